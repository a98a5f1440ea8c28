"""How the numbers came about, in one sentence a run: the same in every format that is no JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from diagnose.render import format as fmt
from diagnose.render import view

#: Runs that are told one by one; of more (ranks), the number.
SHOWN = 4
_COMMAND = 300


def _clocks(document: view.Document, number: int) -> str | None:
    """`SM clock 1.41 to 1.98 GHz` of a run's kernels."""
    kernels = [k for k in view.objects(document.get("kernels")) if k.get("run") == number]
    found = [clock for k in kernels if (clock := fmt.number(k.get("clock_ghz"))) is not None]
    if not found:
        return None
    low, high = (fmt.quantity(value, "ghz") for value in (min(found), max(found)))
    return f"SM clock {low}" if low == high else f"SM clock {low} to {high}"


def _gpu(document: view.Document, number: int) -> str | None:
    devices = view.objects(document.get("devices"))
    used = {k.get("device") for k in view.objects(document.get("kernels")) if k.get("run") == number}
    names = [view.text(device.get("name")) for at, device in enumerate(devices) if at in used]
    return ", ".join(dict.fromkeys(name for name in names if name)) or None


def _run(document: view.Document, number: int, run: Mapping[str, Any]) -> str:
    def told(key: str, before: str) -> str | None:
        value = view.text(run.get(key))
        return f"{before}{fmt.shorten(value, 60)}" if value else None

    passes = fmt.number(run.get("passes_total"))
    parts = [
        told("date", ""),
        _gpu(document, number),
        told("driver", "driver "),
        told("ncu_version", "ncu "),
        _clocks(document, number),
        told("clock_control", "clock control "),
        told("cache_control", "cache control "),
        told("replay", "replay "),
        f"{int(passes):,} passes" if passes is not None else None,
    ]
    command = view.text(run.get("command"))
    line = ", ".join(part for part in parts if part)
    return f"{line}; {fmt.shorten(command, _COMMAND)}" if command else line


def _percent(value: object) -> str | None:
    share = fmt.number(value)
    return f"{100 * share:.3g} %" if share is not None else None


def _collection(document: view.Document) -> list[tuple[str, str]]:
    """What a live run chose, and what it left out."""
    entry = view.mapping(document.get("collection"))
    if not entry:
        return []
    found: list[tuple[str, str]] = []
    counted = view.mapping(entry.get("survey"))
    if counted:
        launches, rows = fmt.number(counted.get("launches")), fmt.number(counted.get("configurations"))
        found.append(
            (
                "survey",
                f"by {counted.get('method')}: {int(launches or 0):,} launches of {int(rows or 0):,} kernels and launch "
                f"configurations, {fmt.duration(fmt.number(counted.get('gpu_time_us')))} of GPU time"
                + ("" if counted.get("complete") is True else ", not the whole program"),
            )
        )
    covered = _percent(view.mapping(document.get("program")).get("covered_share"))
    runs = view.objects(entry.get("runs"))
    passes = [one.get("passes_per_launch") for one in runs]
    told = [
        f"{span[0]} to {span[1]}" if span[0] != span[1] else f"{span[0]}" for span in passes if isinstance(span, list)
    ]
    seconds = [fmt.number(one.get("seconds")) for one in runs]
    took = sum(one for one in seconds if one is not None)
    words = [str(entry.get("mode") or "")]
    words += [f"{covered} of the program's GPU time"] if covered else []
    words += [f"{' and '.join(told)} passes a launch"] if told else []
    words += [f"{took:.1f} s under ncu"] if took else []
    found.append(("profiled", ", ".join(word for word in words if word)))
    left = fmt.number(entry.get("left_out_configurations"))
    if left:
        rows_ = view.objects(entry.get("left_out"))
        names = list(dict.fromkeys(fmt.shorten(row.get("name"), 60) for row in rows_))
        share = _percent(sum(fmt.number(row.get("time_share")) or 0.0 for row in rows_))
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        what = view.plural(int(left), "kernel or launch configuration")
        found.append(("left out", f"{what}, {share} of the GPU time: {', '.join(names[:3])}{more}"))
    return found


def rows(document: view.Document) -> list[tuple[str, str]]:
    """(label, sentence): what was counted, what was profiled, then each run with how it was measured."""
    runs = view.objects(document.get("runs"))
    found = _collection(document)
    for number, run in enumerate(runs[:SHOWN]):
        told = _run(document, number, run)
        if told:
            found.append(("measured" if len(runs) == 1 else f"run {number + 1}", told))
    if len(runs) > SHOWN:
        found.append(("runs", f"{len(runs) - SHOWN} more, in the JSON"))
    return found
