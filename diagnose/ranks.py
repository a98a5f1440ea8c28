"""Ranks side by side: which is slower for the same kernel, by how much against the spread, and why. Pure.

A rank is a run with a rank, or one of several processes of a run. The same kernel is the same name and launch
configuration. A rank is called slower where its median time exceeds the median of the other ranks by more than the
largest of three: the noise of `compare`, the difference that the repeats can show, and the range of the others.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from diagnose import compare
from diagnose.details import Part, rounded
from diagnose.render import view
from diagnose.render.format import number

RULE = "slow-rank"
MOST_KERNELS = 50  # of the table, the longest first: a page for people, and the kernels' own entries hold the rest
_WORTH = 0.10  # the border of `diagnose.program`: less is not worth a change

Document = Mapping[str, Any]
Kernel = Mapping[str, Any]
_Key = tuple[int, int | None]


@dataclass(frozen=True)
class Unit:
    """One rank: a run, or a process of a run."""

    run: int
    process: int | None
    rank: int | None
    host: str | None
    device: int | None
    label: str


def _label(rank: int | None, process: int | None, several: bool) -> str:
    if rank is None:
        return f"process {process}"
    return f"rank {rank}, process {process}" if several else f"rank {rank}"


def units(document: Document) -> tuple[Unit, ...]:
    """The ranks of a document, by rank, then by process; empty where there is no or only one."""
    runs = view.objects(document.get("runs"))
    met: dict[_Key, int | None] = {}
    for kernel in view.objects(document.get("kernels")):
        key = (int(kernel["run"]), kernel.get("process"))
        met.setdefault(key, kernel.get("device"))
    several = {run for run, _ in met if sum(1 for other, _ in met if other == run) > 1}
    found = []
    for (run, process), device in met.items():
        entry = runs[run] if run < len(runs) else {}
        rank = entry.get("rank")
        if rank is None and run not in several:
            continue  # a report of its own, which is not said to be a rank
        label = _label(rank, process, run in several)
        found.append(Unit(run, process, rank, view.text(entry.get("host")), device, label))
    if len(found) < 2:
        return ()
    found.sort(key=lambda unit: (unit.rank is None, unit.rank or 0, unit.run, unit.process or 0))
    labels = [unit.label for unit in found]
    if len(set(labels)) < len(labels):  # the same rank in several runs
        found = [replace(unit, label=f"{unit.label} (run {unit.run + 1})") for unit in found]
    return tuple(found)


def _median(times: Sequence[float]) -> float | None:
    return statistics.median(times) if times else None


def _times(launches: Sequence[Kernel]) -> list[float]:
    return [us for kernel in launches if (us := number(kernel.get("duration_us"))) is not None and us > 0]


@dataclass(frozen=True)
class _Slowest:
    """The slowest of several times: its place, its factor over the median of the others, and the spread."""

    place: int
    ratio: float
    spread: float

    @property
    def slower(self) -> bool:
        return self.ratio - 1 > self.spread


def _slowest(medians: Sequence[float | None], repeats: float | None) -> _Slowest | None:
    """Of at least two times; None where fewer were measured. `repeats` is the difference that repeats can show."""
    known = [(us, place) for place, us in enumerate(medians) if us is not None]
    if len(known) < 2:
        return None
    most, place = max(known)
    others = [us for us, at in known if at != place]
    middle = statistics.median(others)
    # The noise floor also bounds what two ranks can be told apart by; three and more show their own range.
    between = (max(others) - min(others)) / middle
    return _Slowest(place, most / middle, max(compare.NOISE, repeats or 0.0, between))


def _repeats(by_unit: Sequence[Sequence[float]], place: int) -> float | None:
    others = [us for at, times in enumerate(by_unit) if at != place for us in times]
    # Only repeats within a rank: times of different ranks differ by more than chance.
    if max((len(times) for times in by_unit), default=0) < 2 or not others or not by_unit[place]:
        return None
    longest = max((times for at, times in enumerate(by_unit) if at != place), key=len)
    return compare.detectable(by_unit[place], longest) if longest else None


def _row(key_launches: Sequence[Sequence[Kernel]], document: Document) -> Part:
    """One kernel over all ranks."""
    first = next(kernel for launches in key_launches for kernel in launches)
    by_unit = [_times(launches) for launches in key_launches]
    medians = [_median(times) for times in by_unit]
    found = _slowest(medians, None)
    if found is not None:
        found = _slowest(medians, _repeats(by_unit, found.place))
    short = all(us is None or us < compare.SHORT_US for us in medians)
    slower = found is not None and found.slower and not short
    why: list[str] = []
    if found is not None and slower:
        known = [(us, at) for at, us in enumerate(medians) if us is not None and at != found.place]
        middle = sorted(known)[(len(known) - 1) // 2][1]
        why = list(compare.reasons(document, key_launches[middle], key_launches[found.place]))
    return {
        "name": first.get("name"),
        "launch": first.get("launch"),
        "workload": first.get("workload"),
        "us": [None if us is None else rounded(us) for us in medians],
        "launches": [sum(int(kernel.get("launches") or 1) for kernel in launches) for launches in key_launches],
        "slowest": found.place if found is not None else None,
        "ratio": rounded(found.ratio) if found is not None else None,
        "spread": rounded(found.spread) if found is not None else None,
        "slower": slower,
        "short": short,
        "why": why,
    }


def compare_ranks(document: Document) -> Part | None:
    """The `ranks` part of a document; None where it holds no or only one rank."""
    ranks = units(document)
    if not ranks:
        return None
    places = {(unit.run, unit.process): at for at, unit in enumerate(ranks)}
    grouped: dict[str, list[list[Kernel]]] = {}
    for kernel in view.objects(document.get("kernels")):
        at = places.get((int(kernel["run"]), kernel.get("process")))
        if at is not None:
            grouped.setdefault(compare.configured(kernel), [[] for _ in ranks])[at].append(kernel)
    rows = [_row(launches, document) for launches in grouped.values() if sum(map(bool, launches)) > 1]
    rows.sort(key=lambda row: -max(us or 0.0 for us in row["us"]))
    everywhere = [row for row in rows if all(us is not None for us in row["us"])]
    totals = [
        sum(row["us"][at] * statistics.median(row["launches"]) for row in everywhere) if everywhere else None
        for at in range(len(ranks))
    ]
    found = _slowest(totals, None)
    slower = found is not None and found.slower and max(t or 0.0 for t in totals) >= compare.SHORT_US
    return {
        "ranks": [
            {
                "label": unit.label,
                "rank": unit.rank,
                "process": unit.process,
                "host": unit.host,
                "run": unit.run,
                "device": unit.device,
                "common_us": rounded(total) if total is not None else None,
            }
            for unit, total in zip(ranks, totals, strict=True)
        ],
        "common_kernels": len(everywhere),
        "slowest": found.place if found is not None else None,
        "ratio": rounded(found.ratio) if found is not None else None,
        "spread": rounded(found.spread) if found is not None else None,
        "slower": slower,
        "kernels": rows[:MOST_KERNELS],
        "kernels_left_out": max(0, len(rows) - MOST_KERNELS),
        "only": [_only(launches, ranks) for launches in grouped.values() if not all(launches)][:MOST_KERNELS],
    }


def _only(launches: Sequence[Sequence[Kernel]], ranks: Sequence[Unit]) -> Part:
    first = next(kernel for one in launches for kernel in one)
    return {
        "name": first.get("name"),
        "launch": first.get("launch"),
        "on": [unit.label for unit, one in zip(ranks, launches, strict=True) if one],
    }


def finding(part: Part) -> Part | None:
    """The program finding about the slowest rank; None where none is slower than the spread."""
    if not part["slower"]:
        return None
    slowest, ratio, spread = part["ranks"][part["slowest"]], part["ratio"], part["spread"]
    slow_rows = [row for row in part["kernels"] if row["slower"] and row["slowest"] == part["slowest"]]
    why = [text for row in slow_rows for text in row["why"][:1]]
    clock = any("SM clock" in text for text in why)
    work = any(word in text for text in why for word in ("bytes", "operations", "instructions", "work"))
    # What waits for the slowest rank gains this much; how much waits is not in a profile of kernels.
    stake = 1 - 1 / ratio
    changes = {
        "clock": "Look at that GPU: nvidia-smi -q -d CLOCK,PERFORMANCE,TEMPERATURE on its host; another GPU, or a "
        "lower power of its neighbours, gives the clock back.",
        "work": "Give that rank less: its kernels do more work than those of the others (batch, sequence lengths, "
        "experts, remainder of a split).",
        "": "Run the slow rank's work on another GPU: if the slowness stays with the GPU, it is the GPU or its host; "
        "if it goes with the rank, it is the data.",
    }
    told = f": {'; '.join(dict.fromkeys(why))}" if why else ""
    return {
        "rule": RULE,
        "class": "implementation",
        "severity": "warning" if stake >= _WORTH else "note",
        "title": f"{slowest['label']} takes {ratio:.2f} times as long as the other ranks for the same kernels",
        "at_stake": rounded(stake),
        "speedup": {"low": 1, "expected": rounded(1 / (1 - stake)), "high": rounded(1 / (1 - stake))},
        "evidence": [
            _evidence("rank_time_ratio", ratio, "ratio", ">", rounded(1 + spread)),
            _evidence("rank_spread", spread, "share", "", None),
            _evidence("slower_kernels", len(slow_rows), "count", "", None),
        ],
        "where": [],
        "why": "Ranks that meet at a collective wait for the slowest of them, so its time is everybody's. The kernels "
        f"are the same by name and launch configuration{told}.",
        "next_experiment": {
            "change": changes["clock" if clock else "work" if work else ""],
            "expect": {"fact": "rank_time_ratio", "op": "<=", "value": rounded(1 + spread)},
        },
        "references": [],
        "launches": [],
    }


def _evidence(fact: str, value: float, unit: str, op: str, threshold: float | int | None) -> Part:
    holds = None if not op else value > (threshold or 0.0)
    return {"fact": fact, "value": value, "unit": unit, "op": op, "threshold": threshold, "holds": holds}


def attach(document: dict[str, Any]) -> dict[str, Any]:
    """The document with `ranks` and the finding about the slowest, where it holds more than one rank."""
    part = compare_ranks(document)
    if part is None:
        return document
    program = document["program"]
    found = finding(part)
    findings = sorted([*program["findings"], *([found] if found else [])], key=lambda one: -(one["at_stake"] or 0.0))
    labels = {(one["run"], one["process"]): (one["rank"], one["label"]) for one in part["ranks"]}
    kernels = []
    for kernel in document["kernels"]:
        rank, label = labels.get((kernel["run"], kernel.get("process")), (None, None))
        kernels.append({**kernel, "rank": rank, "rank_label": label})
    return {**document, "kernels": kernels, "ranks": part, "program": {**program, "findings": findings}}
