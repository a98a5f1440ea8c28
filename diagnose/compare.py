"""`diagnose compare BEFORE AFTER`: two documents, kernel by kernel. `compare` is pure: documents in, plain data out.

Kernels are matched in passes, each over what the one before left: name, workload and launch; full name; short name;
the likeliest similar name. `by="order"` pairs the n-th with the n-th instead.
"""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from diagnose import __version__
from diagnose.errors import EXIT_GATE, EXIT_NOTHING_MEASURED, EXIT_OK, DiagnoseError
from diagnose.expr import COMPARISONS
from diagnose.render import format as fmt
from diagnose.render import view
from diagnose.render.format import number
from diagnose.report import SCHEMA_VERSION, normalised
from diagnose.rules import SEVERITIES

Document = Mapping[str, Any]
Kernel = Mapping[str, Any]

NOISE = 0.03
NOISE_REASON = (
    "under ncu the same kernel differs by a few per cent from run to run, with clocks that are not locked; "
    "a smaller difference is taken for noise, and where launches repeat their spread can raise that"
)
# A timer's tick is 32 ns and a launch's ramp varies by some hundred: below this, a difference of times says nothing.
FLOOR_US = 0.5
# A launch's ramp, its drain and the profiler's own start take 2 to 3 us: of two kernels that both take less than twice
# that, no difference of times is a difference of the kernels.
SHORT_US = 5.0
# The least difference that repeats show with a power of 80 % at a level of 5 %: 1.96 + 0.84 standard errors.
_DETECTABLE = 2.80
SIMILAR = 0.75
_MOST_SIMILAR = 300  # kernels left over on a side, above which similar names are not looked for
_CLOCK = 0.02
CHANGES = ("faster", "slower", "same", "short", "unknown")
_TOLD = 0.10  # a change of the work, and a share of a ceiling, from which it explains something
_EXPLAINS = 0.25  # a finding that came or went explains a change if it costs that share of it
_NAMES = {"spill": "spills", "bank-conflict": "bank conflicts", "uncoalesced": "wasted sectors"}
_WORK = {"byte": "bytes", "flop": "operations", "op": "operations", "inst": "instructions", "warp inst": "instructions"}
MATCHED_BY = ("configuration", "name", "short name", "similar name", "order")


# --- reading ---


def load(path: Path, diagnose: Callable[[Path], Document]) -> Document:
    """A document: the JSON that `diagnose --json` wrote, or a report, which `diagnose` diagnoses."""
    if path.suffix.lower() != ".json":
        return diagnose(path)
    again = "diagnose REPORT --facts all --json FILE    (writes one)"
    try:
        found = json.loads(path.read_bytes())
    except OSError as error:
        raise DiagnoseError(f"{path} cannot be read: {error.strerror or error}", again) from None
    except (ValueError, RecursionError) as error:
        raise DiagnoseError(f"{path} is no JSON: {str(error)[:200]}", again) from None
    if not isinstance(found, dict) or not isinstance(found.get("kernels"), list):
        raise DiagnoseError(f"{path} is no document of diagnose: it holds no `kernels`", again)
    if found.get("schema_version") != SCHEMA_VERSION:
        version = str(found.get("schema_version"))[:40]
        raise DiagnoseError(f"{path} has schema version {version}, this diagnose reads {SCHEMA_VERSION}", again)
    return found


# --- matching ---


def _key(value: object) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def _full(kernel: Kernel) -> str:
    return normalised(view.text(kernel.get("demangled")) or _name(kernel))


def _name(kernel: Kernel) -> str:
    return view.text(kernel.get("name")) or view.text(kernel.get("demangled")) or "unnamed"


def configured(kernel: Kernel) -> str:
    """What equal launches have in common: name, workload and launch configuration."""
    return _key((_full(kernel), kernel.get("workload"), kernel.get("launch")))


def _by_occurrence(
    left: Sequence[int], right: Sequence[int], before: Sequence[Kernel], after: Sequence[Kernel],
    key: Callable[[Kernel], str],
) -> Iterator[tuple[int, int]]:  # fmt: skip
    """The n-th of a key here with the n-th of that key there."""
    waiting: dict[str, list[int]] = {}
    for index in right:
        waiting.setdefault(key(after[index]), []).append(index)
    for queue in waiting.values():
        queue.reverse()
    for index in left:
        if queue := waiting.get(key(before[index]), []):
            yield index, queue.pop()


def _similar(
    left: Sequence[int], right: Sequence[int], before: Sequence[Kernel], after: Sequence[Kernel]
) -> Iterator[tuple[int, int]]:
    """The likeliest pairs of names first."""
    if len(left) > _MOST_SIMILAR or len(right) > _MOST_SIMILAR:
        return
    names = {i: _name(before[i])[:200] for i in left}, {j: _name(after[j])[:200] for j in right}
    ratios: dict[tuple[str, str], float] = {}
    for one in set(names[0].values()):
        for other in set(names[1].values()):
            ratios[one, other] = difflib.SequenceMatcher(None, one, other, autojunk=False).ratio()
    ranked = sorted(
        (-ratio, i, j) for i in left for j in right if (ratio := ratios[names[0][i], names[1][j]]) >= SIMILAR
    )
    used: tuple[set[int], set[int]] = set(), set()
    for _, i, j in ranked:
        if i not in used[0] and j not in used[1]:
            used[0].add(i)
            used[1].add(j)
            yield i, j


def match(before: Sequence[Kernel], after: Sequence[Kernel], by: str = "name") -> list[tuple[int, int, str]]:
    """Pairs of positions with how they were found, in the order of `before`."""
    if by == "order":
        return [(index, index, "order") for index in range(min(len(before), len(after)))]
    left, right = list(range(len(before))), list(range(len(after)))
    found: list[tuple[int, int, str]] = []

    def take(pairs: Iterator[tuple[int, int]], how: str) -> None:
        new = list(pairs)
        found.extend((i, j, how) for i, j in new)
        gone = {i for i, _ in new}, {j for _, j in new}
        left[:] = [i for i in left if i not in gone[0]]
        right[:] = [j for j in right if j not in gone[1]]

    for key, how in ((configured, "configuration"), (_full, "name"), (_name, "short name")):
        take(_by_occurrence(left, right, before, after, key), how)
    take(_similar(left, right, before, after), "similar name")
    if len(before) == 1 and len(after) == 1:  # one kernel each: nothing else can be meant
        take(zip(left, right, strict=True), "order")
    return sorted(found)


# --- one pair ---


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.6g}")


def change(before_us: float | None, after_us: float | None, noise: float) -> str:
    """faster, slower, same (within the noise), short (nothing is claimed of so few microseconds), or unknown where a
    time was not measured."""
    if before_us is None or after_us is None or before_us <= 0 or after_us <= 0:
        return "unknown"
    if max(before_us, after_us) < SHORT_US:
        return "short"
    if abs(after_us - before_us) <= max(noise * before_us, FLOOR_US):
        return "same"
    return "faster" if after_us < before_us else "slower"


def detectable(before: Sequence[float], after: Sequence[float]) -> float | None:
    """The minimum detectable difference of two medians, as a share, from the spread of repeats on both sides.

    The standard error of a median of n is 1.2533 sigma / sqrt(n) (see `diagnose.ablate.noise`); None where neither side
    was repeated. Repeats of one process share its clocks and its heat, so this is a lower bound on what two runs differ
    by, and can only raise the noise that is asked for.
    """
    from diagnose.ablate import noise as spread

    sigma = spread.pooled({"before": before, "after": after})
    if sigma is None:
        return None
    return _DETECTABLE * 1.2533 * sigma * math.sqrt(1 / len(before) + 1 / len(after))


def _why(before: Kernel, after: Kernel, pair: Mapping[str, Any]) -> list[str]:
    """Why the time changed, the strongest reason first, in words: work that grew or shrank, another path, spills."""
    said: list[tuple[float, str]] = []
    for row in pair["limits"]:
        ratio = row["work_ratio"]
        used = max(row["utilization_before"] or 0.0, row["utilization_after"] or 0.0)
        if ratio is None or ratio <= 0 or abs(ratio - 1) <= _TOLD or used <= _TOLD:
            continue
        what = f"{fmt.resource(row['resource'])} {_WORK.get(str(row['work_unit']), 'work')}"
        said.append((used * abs(math.log(ratio)), f"{what} {_changed(ratio)}"))
    tensor = [[path for path in side.get("paths") or () if "mma" in path] for side in (before, after)]
    if tensor[0] != tensor[1]:
        names = ["none" if not side else " and ".join(side) for side in tensor]
        said.append((10.0, f"Tensor path {names[0]} → {names[1]}"))
    differs = abs((number(after.get("duration_us")) or 0.0) - (number(before.get("duration_us")) or 0.0))
    for row in pair["findings"]:
        lost = row["lost_us_after"] if row["status"] == "new" else row["lost_us_before"]
        # A finding that is gone explains less time, one that is new explains more.
        if (
            row["status"] == ("fixed" if pair["change"] == "faster" else "new")
            and lost is not None
            and lost >= _EXPLAINS * differs
        ):
            word = _NAMES.get(row["rule"], fmt.shorten(row["rule"], 60))
            said.append((5.0, f"{word} {'appeared' if row['status'] == 'new' else 'gone'}"))
    clocks = number(before.get("clock_ghz")), number(after.get("clock_ghz"))
    if clocks[0] and clocks[1] and abs(clocks[1] / clocks[0] - 1) > _CLOCK:
        said.append((4.0, f"the SM clock {_changed(clocks[1] / clocks[0])}"))
    if not said and pair["limits"]:
        top = pair["limits"][0]
        shares = [top["utilization_before"], top["utilization_after"]]
        if None not in shares:
            used = " → ".join(map(fmt.share, shares))
            said.append((0.0, f"the same work, {fmt.resource(top['resource'])} at {used}"))
    return [text for _, text in sorted(said, key=lambda one: -one[0])]


def _changed(ratio: float) -> str:
    """A factor in words."""
    if 0.47 <= ratio <= 0.53:
        return "halved"
    if 1.9 <= ratio <= 2.1:
        return "doubled"
    if ratio < 0.67 or ratio > 1.5:
        return f"{'fell' if ratio < 1 else 'grew'} {1 / ratio if ratio < 1 else ratio:.3g}-fold"
    return f"{'fell' if ratio < 1 else 'grew'} by {abs(ratio - 1):.0%}".replace("%", " %")


def sentence(pair: Mapping[str, Any]) -> str:
    """The pair in one sentence: what changed, by how much and why."""
    us, changed = (pair["before"]["duration_us"], pair["after"]["duration_us"]), pair["change"]
    if changed == "unknown":
        return "The time was not measured on both sides."
    if changed == "short":
        return f"Too short to compare: both take less than {SHORT_US:g} µs."
    if changed == "same":
        start = f"No difference beyond the noise ({fmt.share(pair['noise'])})"
    else:
        part = 1 - us[1] / us[0] if changed == "faster" else us[1] / us[0] - 1
        start = f"{fmt.share(part)} less time" if changed == "faster" else f"{fmt.share(part)} more time"
        if pair["why"]:
            start += ": " + "; ".join(pair["why"][:3])
    if pair["verdict_changed"]:
        rules = [fmt.shorten(pair[side]["verdict"]["rule"] or "none", 60) for side in ("before", "after")]
        start += f"; verdict moved from {rules[0]} to {rules[1]}"
    return start + "."


def _findings(kernel: Kernel) -> dict[str, Mapping[str, Any]]:
    found: dict[str, Mapping[str, Any]] = {}
    for finding in view.objects(kernel.get("findings")):
        rule = view.text(finding.get("rule"))
        if rule is not None:
            found.setdefault(rule, finding)
    return found


def _rank(finding: Mapping[str, Any]) -> int:
    severity = finding.get("severity")
    return SEVERITIES.index(severity) if severity in SEVERITIES else len(SEVERITIES)


def _lost(finding: Mapping[str, Any], us: float | None) -> float | None:
    share = number(finding.get("at_stake"))
    return None if share is None or us is None else share * us


def finding_changes(before: Kernel, after: Kernel, noise: float) -> list[dict[str, Any]]:
    """Every finding of either side. What it costs is compared in time, as a share grows when all else gets faster."""
    old, new = _findings(before), _findings(after)
    us = number(before.get("duration_us")), number(after.get("duration_us"))
    rows = []
    for rule in (*old, *(rule for rule in new if rule not in old)):
        one, other = old.get(rule), new.get(rule)
        costs = _lost(one, us[0]) if one else None, _lost(other, us[1]) if other else None
        if one is None or other is None:
            status = "new" if one is None else "fixed"
        elif costs[0] is not None and costs[1] is not None:
            least = max(noise * (us[0] or 0.0), FLOOR_US)
            status = "same" if abs(costs[1] - costs[0]) <= least else "worse" if costs[1] > costs[0] else "better"
        else:
            ranks = _rank(one), _rank(other)
            status = "same" if ranks[0] == ranks[1] else "worse" if ranks[1] < ranks[0] else "better"
        shown = other or one or {}
        rows.append(
            {
                "rule": rule,
                "status": status,
                "class": shown.get("class"),
                "title": shown.get("title"),
                "severity_before": one.get("severity") if one else None,
                "severity_after": other.get("severity") if other else None,
                "at_stake_before": one.get("at_stake") if one else None,
                "at_stake_after": other.get("at_stake") if other else None,
                "lost_us_before": _rounded(costs[0]),
                "lost_us_after": _rounded(costs[1]),
            }
        )
    return rows


def _fact(kernel: Kernel, name: str) -> Any:
    if name == "duration_us" and kernel.get("duration_us") is not None:
        return kernel["duration_us"]
    return view.mapping(view.mapping(kernel.get("facts")).get(name)).get("value")


def _holds(value: Any, op: object, wanted: Any) -> bool | None:
    first, second = number(value), number(wanted)
    if first is not None and second is not None and op in COMPARISONS:
        return COMPARISONS[str(op)](first, second)
    if value is None or wanted is None or type(value) is not type(wanted) or op not in ("==", "!="):
        return None
    return (value == wanted) is (op == "==")


def _expectations(before: Kernel, after: Kernel) -> list[dict[str, Any]]:
    """What each finding of before said the fix would change. A fact that one side does not hold confirms nothing."""
    rows = []
    same = before.get("duration_us") == after.get("duration_us") and before.get("facts") == after.get("facts")
    for rule, finding in _findings(before).items():
        expect = view.mapping(view.mapping(finding.get("next_experiment")).get("expect"))
        fact, op, wanted = view.text(expect.get("fact")), expect.get("op"), expect.get("value")
        if fact is None:
            continue
        values = _fact(before, fact), _fact(after, fact)
        held = [None if value is None else _holds(value, op, wanted) for value in values]
        if held[0] is None or held[1] is None:
            status = "unknown"
        elif same:
            status = "unchanged"
        elif held[0] and held[1]:
            status = "held before"
        else:
            status = "confirmed" if held[1] else "refuted"
        unit = view.mapping(view.mapping(before.get("facts")).get(fact)).get("unit")
        unit = unit or view.mapping(view.mapping(after.get("facts")).get(fact)).get("unit") or ""
        rows.append(
            {
                "rule": rule,
                "fact": fact,
                "op": op,
                "value": wanted,
                "unit": unit,
                "before": values[0],
                "after": values[1],
                "status": status,
            }
        )
    return rows


def _limits(before: Kernel, after: Kernel) -> list[dict[str, Any]]:
    """The resources that both sides measured, by what they bind in the slower of the two."""
    sides = [{view.text(o.get("resource")): o for o in view.objects(k.get("limits"))} for k in (before, after)]
    rows = []
    for resource, one in sides[0].items():
        other = sides[1].get(resource)
        if resource is None or other is None or one.get("work_unit") != other.get("work_unit"):
            continue
        work = number(one.get("work")), number(other.get("work"))
        rows.append(
            {
                "resource": resource,
                "work_unit": one.get("work_unit"),
                "work_before": work[0],
                "work_after": work[1],
                "work_ratio": _rounded(work[1] / work[0]) if work[0] and work[1] is not None else None,
                "utilization_before": number(one.get("utilization")),
                "utilization_after": number(other.get("utilization")),
            }
        )
    return sorted(rows, key=lambda row: -max(row["utilization_before"] or 0.0, row["utilization_after"] or 0.0))


def _verdict(kernel: Kernel) -> dict[str, Any]:
    verdict = view.mapping(kernel.get("verdict"))
    return {key: verdict.get(key) for key in ("rule", "class", "title", "at_stake")}


def _side(kernel: Kernel) -> dict[str, Any]:
    return {
        "id": kernel.get("id"),
        "name": _name(kernel),
        "launch": kernel.get("launch"),
        "duration_us": number(kernel.get("duration_us")),
        "clock_ghz": number(kernel.get("clock_ghz")),
        "paths": view.texts(kernel.get("paths")),
        "verdict": _verdict(kernel),
    }


def _notes(before: Mapping[str, Any], after: Mapping[str, Any], devices: tuple[object, object]) -> list[str]:
    """What makes the two times hard to compare."""
    notes = []
    if before["launch"] != after["launch"] and before["launch"] and after["launch"]:
        notes.append("the launch differs")
    if devices[0] != devices[1]:
        notes.append(f"the GPU differs: {devices[0] or 'not recorded'} → {devices[1] or 'not recorded'}")
    clocks = before["clock_ghz"], after["clock_ghz"]
    if clocks[0] and clocks[1] and abs(clocks[1] / clocks[0] - 1) > _CLOCK:
        notes.append(f"the SM clock differs: {clocks[0]:.3g} → {clocks[1]:.3g} GHz")
    return notes


def _device(document: Document, kernel: Kernel) -> str | None:
    devices, index = view.objects(document.get("devices")), kernel.get("device")
    known = isinstance(index, int) and 0 <= index < len(devices)
    return view.text(devices[index].get("name")) if known and isinstance(index, int) else None


def _times(launches: Sequence[Kernel]) -> list[float]:
    found = [number(kernel.get("duration_us")) for kernel in launches]
    return [us for us in found if us is not None and us > 0]


def _median_launch(launches: Sequence[Kernel]) -> Kernel:
    """The launch with the median time (the lower of two), else the first."""
    timed = sorted((k for k in launches if number(k.get("duration_us"))), key=lambda k: float(k["duration_us"]))
    return timed[(len(timed) - 1) // 2] if timed else launches[0]


def _pair(
    documents: tuple[Document, Document], launches: tuple[Sequence[Kernel], Sequence[Kernel]], how: str, noise: float
) -> dict[str, Any]:
    before, after = map(_median_launch, launches)
    sides = _side(before), _side(after)
    us = sides[0]["duration_us"], sides[1]["duration_us"]
    times = _times(launches[0]), _times(launches[1])
    least = detectable(*times) if times[0] and times[1] else None
    noise = max(noise, least or 0.0)
    changed = change(*us, noise)
    paths = set(sides[0]["paths"]), set(sides[1]["paths"])
    pair: dict[str, Any] = {
        "name": sides[0]["name"],
        "matched_by": how,
        "launches": [len(launches[0]), len(launches[1])],
        "noise": _rounded(noise),
        "detectable": _rounded(least),
        "change": changed,
        "ratio": _rounded(us[1] / us[0]) if us[0] and us[1] is not None else None,
        "speedup": _rounded(us[0] / us[1]) if us[1] and us[0] is not None else None,
        "before": sides[0],
        "after": sides[1],
        "verdict_changed": sides[0]["verdict"]["rule"] != sides[1]["verdict"]["rule"],
        "findings": finding_changes(before, after, noise),
        "expectations": _expectations(before, after),
        "limits": _limits(before, after),
        "paths_gained": sorted(paths[1] - paths[0]),
        "paths_lost": sorted(paths[0] - paths[1]),
        "notes": _notes(sides[0], sides[1], (_device(documents[0], before), _device(documents[1], after))),
    }
    pair["why"] = _why(before, after, pair) if changed in ("faster", "slower") else []
    return {**pair, "sentence": sentence(pair)}


def reasons(document: Document, before: Sequence[Kernel], after: Sequence[Kernel]) -> Sequence[str]:
    """Why `after`'s launches take another time than `before`'s, of one document: the strongest reason first."""
    found: Sequence[str] = _pair((document, document), (before, after), "configuration", NOISE)["why"]
    return found


def _groups(
    found: Sequence[tuple[int, int, str]], left: Sequence[Kernel], right: Sequence[Kernel]
) -> list[tuple[list[Kernel], list[Kernel], str]]:
    """The matched launches, those of equal configuration on both sides as repeats of one kernel."""
    bundles: dict[tuple[object, ...], tuple[list[Kernel], list[Kernel], str]] = {}
    for i, j, how in found:
        keys = [view.text(kernel.get("group")) for kernel in (left[i], right[j])]
        key: tuple[object, ...] = (i, j) if None in keys else tuple(keys)
        bundle = bundles.setdefault(key, ([], [], how))
        bundle[0].append(left[i])
        bundle[1].append(right[j])
    return list(bundles.values())


# --- the whole ---


def _about(document: Document, source: str) -> dict[str, Any]:
    kernels = view.objects(document.get("kernels"))
    times = [number(kernel.get("duration_us")) for kernel in kernels]
    return {
        "source": source,
        "kernels": len(kernels),
        "gpu_time_us": _rounded(sum(t for t in times if t is not None)),
        "gpus": [view.text(d.get("name")) for d in view.objects(document.get("devices"))],
        "partial": document.get("partial") is True,
    }


def _total(pairs: Sequence[Mapping[str, Any]], side: str) -> float:
    timed = [pair for pair in pairs if pair["change"] != "unknown"]
    return float(sum(pair[side]["duration_us"] for pair in timed))


def compare(
    before: Document, after: Document, *, names: tuple[str, str] = ("before", "after"), by: str = "name",
    noise: float = NOISE,
) -> dict[str, Any]:  # fmt: skip
    """The comparison. Raises with exit code 3 where no kernel of one side is on the other."""
    left, right = view.objects(before.get("kernels")), view.objects(after.get("kernels"))
    found = match(left, right, by)
    if not found:
        listed = ", ".join(dict.fromkeys(_name(kernel) for kernel in left[:5])) or "none"
        there = ", ".join(dict.fromkeys(_name(kernel) for kernel in right[:5])) or "none"
        raise DiagnoseError(
            f"no kernel of {names[0]} ({listed}) is in {names[1]} ({there})",
            f"diagnose compare {names[0]} {names[1]} --by order    (pairs the first with the first)",
            EXIT_NOTHING_MEASURED,
        )
    pairs = [_pair((before, after), (one, other), how, noise) for one, other, how in _groups(found, left, right)]
    gone = {i for i, _, _ in found}, {j for _, j, _ in found}
    changes = [pair["change"] for pair in pairs]
    totals = _rounded(_total(pairs, "before")), _rounded(_total(pairs, "after"))
    warnings = []
    for document, name in ((before, names[0]), (after, names[1])):
        if document.get("partial") is True:
            warnings.append(f"{name} is partial: not everything in it could be read")
    return {
        "schema_version": SCHEMA_VERSION,
        "tool": {"name": "diagnose", "version": __version__},
        "before": _about(before, names[0]),
        "after": _about(after, names[1]),
        "noise": {"share": noise, "floor_us": FLOOR_US, "reason": NOISE_REASON},
        "summary": {
            "matched": len(pairs),
            **{change: changes.count(change) for change in CHANGES},
            "verdicts_changed": sum(pair["verdict_changed"] for pair in pairs),
            "time_us_before": totals[0],
            "time_us_after": totals[1],
            "ratio": _rounded(totals[1] / totals[0]) if totals[0] and totals[1] is not None else None,
        },
        "kernels": pairs,
        "unmatched": {
            "before": [_side(kernel) for i, kernel in enumerate(left) if i not in gone[0]],
            "after": [_side(kernel) for j, kernel in enumerate(right) if j not in gone[1]],
        },
        "warnings": warnings,
    }


def regressions(found: Mapping[str, Any]) -> list[str]:
    """The kernels that got slower by more than the noise."""
    return [
        f"{pair['name']} takes {pair['ratio']:.2f} times as long as before"
        for pair in found["kernels"]
        if pair["change"] == "slower"
    ]


def run(
    before: str,
    after: str,
    *,
    form: str,
    json_file: Path | None,
    by: str,
    noise: float,
    fail_on: tuple[str, ...],
    rules: tuple[Path, ...],
    config_file: Path | None,
    verbose: bool,
    color: bool,
    html: Path | None = None,
    redacted: bool = False,
) -> int:
    """`diagnose compare`: two reports or documents, kernel by kernel. With `redacted`, without hosts, paths, arguments
    and source text, as `--redact` of the main job."""
    from diagnose import api, config, output, redact
    from diagnose.collect.preflight import free_paths
    from diagnose.render import comparison

    if json_file is not None:
        output.check_json(json_file)
    if html is not None:
        output.check_target(html)
    output.check_apart({"-o": html, "--json": json_file})
    settings = config.load(config_file)
    options = api.Options(
        rules=(*settings.packs, *rules), disable=settings.disable, all_facts=True, source=False
    )  # fmt: skip

    def read(path: Path) -> Mapping[str, Any]:
        return api.diagnose_reports([path], options).document

    documents = [load(Path(word), read) for word in (before, after)]
    names = (before, after)
    if redacted:
        documents = [redact.document(document) for document in documents]
        names = (redact.base_name(before), redact.base_name(after))
    found = compare(documents[0], documents[1], names=names, by=by, noise=noise)
    found["warnings"] = [*settings.warnings, *found["warnings"]]
    written = json.dumps(found, indent=1, allow_nan=False) + "\n"
    if form != "text":
        for warning in found["warnings"]:
            output.to_stderr(f"warning: {warning}")
    if json_file is not None:
        output.write_file(json_file, written)
    page = None
    if html is not None:
        from diagnose.render import comparison_page

        named, _ = free_paths(html, None)
        page = output.write_new(named or html, comparison_page.render(found, (documents[0], documents[1])))
    if form == "text":
        output.show(lambda console: comparison.render(found, console, verbose), color=color)
    else:
        output.print_text(written if form == "json" else comparison.render_markdown(found))
    held = regressions(found) if "regression" in fail_on else []
    for line in held:
        output.to_stderr(f"gate: --fail-on regression: {line}")
    if json_file is not None:
        output.to_stderr(f"json: {json_file}")
    if page is not None:
        output.to_stderr(f"report: {page}")
    if held:
        return EXIT_GATE
    said = [pair for pair in found["kernels"] if pair["change"] not in ("unknown", "short")]
    return EXIT_OK if said else EXIT_NOTHING_MEASURED
