"""Reads the JSON document tolerantly: what every renderer needs to know about a kernel, worked out once.

Any key may be missing, null or of a wrong type; then the field here is None or empty, and the renderer says so.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from diagnose.render import format as fmt
from diagnose.render.labels import labels

Document = Mapping[str, Any]

CLASSES = ("implementation", "fit", "hardware", "unknown")
SEVERITIES = ("critical", "warning", "note")
HOW_TO_COLLECT = {
    "limits": "diagnose TARGET, or ncu --set full",
    "speed_of_light": "ncu --section SpeedOfLight",
    "roofline": "ncu --set roofline, or --set full",
    "memory": "ncu --section MemoryWorkloadAnalysis",
    "stalls": "ncu --section WarpStateStats --section SourceCounters",
    "instruction_mix": "ncu --section InstructionStats --section SourceCounters",
    "occupancy": "ncu --section Occupancy --section LaunchStats",
    "timeline": "ncu --section PmSampling",
    "hot": "ncu --section SourceCounters --import-source yes, with the program built with -lineinfo",
    "raw_metrics": "diagnose … --facts all",
    "time": "ncu --metrics gpu__time_duration.sum",
}


def mapping(value: object) -> Mapping[str, Any]:
    """`value` if it is an object, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def objects(value: object) -> list[Mapping[str, Any]]:
    """The objects in a list; anything else is left out."""
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list | tuple) else []


def texts(value: object) -> list[str]:
    """The non-empty texts in a list; a lone text counts as a list of one."""
    if isinstance(value, str):
        return [value] if value else []
    return [item for item in value if isinstance(item, str) and item] if isinstance(value, list | tuple) else []


def text(value: object) -> str | None:
    """`value` if it is a non-empty text, else None."""
    return value if isinstance(value, str) and value.strip() else None


def safe_id(value: object, fallback: str) -> str:
    """A kernel's id as used in links and element ids: kept where harmless, else a hash of it."""
    source = str(value) if isinstance(value, str | int) and str(value) else fallback
    if re.fullmatch(r"[A-Za-z0-9._-]{1,64}", source):
        return source
    return "x" + hashlib.sha256(source.encode("utf-8", "surrogatepass")).hexdigest()[:12]


@dataclass(frozen=True)
class KernelView:
    """One entry of `kernels`, with defaults resolved; `data` is the entry itself."""

    data: Mapping[str, Any]
    position: int
    id: str
    name: str
    label: str
    full_name: str
    klass: str
    rule: str | None
    title: str
    sentence: str | None
    confidence: str | None
    total_us: float | None
    duration_us: float | None
    share: float | None
    launches: int | None
    at_stake: float | None
    speedup: Mapping[str, Any] | None
    deciding: str | None
    severity: str | None
    members: tuple[KernelView, ...] = ()

    @property
    def state(self) -> str:
        """`accepted` or `lapsed` where the verdict's finding is, else empty."""
        for finding in objects(self.data.get("findings")):
            if finding.get("rule") == self.rule:
                return next((word for word in ("accepted", "lapsed") if mapping(finding.get(word))), "")
        return ""

    @property
    def times_us(self) -> list[float]:
        """The durations of its launches that were measured one by one, shortest first."""
        known = [one.duration_us for one in self.members or (self,)]
        return sorted(us for us in known if us is not None)

    @property
    def spread(self) -> float | None:
        """Half the interquartile range of its launches over their median: half of them lie within ± that."""
        times = self.times_us
        middle = median(times)
        if len(times) < 4 or not middle:  # fewer have no quartiles
            return None
        return (times[(3 * len(times)) // 4] - times[len(times) // 4]) / 2 / middle

    @property
    def sign(self) -> str:
        """The class as a sign."""
        return fmt.CLASS_SIGN[self.klass]

    @property
    def word(self) -> str:
        """The class as a word."""
        return fmt.CLASS_WORD[self.klass]

    @property
    def reason(self) -> str:
        """The sentence that decides, else the number that decides, else that there is none."""
        return self.sentence or self.deciding or "Too little was measured to say."

    @property
    def at_its_limit(self) -> bool:
        """Whether the verdict is a hardware limit that is known to hold, and not only the nearest one."""
        return self.klass == "hardware" and self.confidence != "low"

    @property
    def win(self) -> str:
        """What can be won, as text for a table cell."""
        if self.speedup is not None:
            return fmt.times(self.speedup.get("expected"))
        if self.klass == "hardware":
            return "at its limit" if self.at_its_limit else "nearest limit"
        if self.at_stake is not None and self.at_stake < 1:
            return fmt.times(1 / (1 - self.at_stake))
        return fmt.NOT_MEASURED

    @property
    def win_range(self) -> str:
        """The interval of the speedup, empty where there is none."""
        if self.speedup is None or (
            fmt.number(self.speedup.get("low")) is None and fmt.number(self.speedup.get("high")) is None
        ):
            return ""
        return fmt.times_range(self.speedup.get("low"), self.speedup.get("high"))

    @property
    def win_key(self) -> float:
        """The share of all GPU time that the fix recovers, for sorting; −1 where unknown."""
        if self.at_stake is None:
            return 0.0 if self.klass == "hardware" else -1.0
        return self.at_stake * (self.share if self.share is not None else 0.0)


def _class_of(verdict: Mapping[str, Any]) -> str:
    found = verdict.get("class")
    return found if isinstance(found, str) and found in CLASSES else "unknown"


def deciding_number(kernel: Mapping[str, Any]) -> str | None:
    """The one number that decides: the verdict finding's first evidence that holds, else the tightest limit."""
    rule = mapping(kernel.get("verdict")).get("rule")
    for finding in objects(kernel.get("findings")):
        if finding.get("rule") != rule:
            continue
        for evidence in objects(finding.get("evidence")):
            if evidence.get("holds") is True and evidence.get("value") is not None:
                return f"{evidence.get('fact')} = {fmt.condition(evidence)}"
    best: tuple[float, Mapping[str, Any]] | None = None
    for limit in objects(kernel.get("limits")):
        used = fmt.number(limit.get("utilization"))
        if used is not None and (best is None or used > best[0]):
            best = (used, limit)
    if best is None:
        return None
    used, limit = best
    found = f"{fmt.resource(limit.get('resource'))} {fmt.share(used)}"
    if fmt.number(limit.get("ceiling")) is not None:
        found += f" of {fmt.quantity(limit.get('ceiling'), limit.get('ceiling_unit'))}"
        if text(limit.get("ceiling_source")):
            found += f" ({limit['ceiling_source']})"
    return found


def _worst(kernel: Mapping[str, Any]) -> str | None:
    found = {str(finding.get("severity")) for finding in objects(kernel.get("findings"))}
    return next((severity for severity in SEVERITIES if severity in found), None)


def _total_us(duration: float | None, launches: float | None, part: float | None, gpu_us: float | None) -> float | None:
    """The time of all launches of an entry. The share of the GPU time says whether `duration` is of one launch or of
    all; where it fits either, the duration is used, since shares are rounded."""
    by_share = part * gpu_us if part is not None and gpu_us is not None else None
    if duration is None:
        return by_share
    each = duration * (launches or 1)
    if by_share is None:
        return each
    slack = 0.02 * by_share + 0.0001 * (gpu_us or 0.0)
    return each if abs(each - by_share) <= slack else duration if abs(duration - by_share) <= slack else by_share


def kernels(document: Document) -> list[KernelView]:
    """The kernels, longest total time first; those without a time last, in the document's order."""
    gpu_us = fmt.number(mapping(document.get("program")).get("gpu_time_us"))
    taken: set[str] = set()
    found: list[KernelView] = []
    shown = labels([_names(kernel) for kernel in objects(document.get("kernels"))])
    for position, kernel in enumerate(objects(document.get("kernels"))):
        verdict = mapping(kernel.get("verdict"))
        base = unique = safe_id(kernel.get("id"), f"kernel-{position}")
        repeat = 2
        while unique in taken:
            unique, repeat = f"{base}-{repeat}", repeat + 1
        taken.add(unique)
        duration, part = fmt.number(kernel.get("duration_us")), fmt.number(kernel.get("time_share"))
        launches = fmt.number(kernel.get("launches"))
        total = _total_us(duration, launches, part, gpu_us)
        name, full_name = _names(kernel)
        speed = mapping(verdict.get("speedup")) if fmt.number(mapping(verdict.get("speedup")).get("expected")) else None
        found.append(
            KernelView(
                data=kernel,
                position=position,
                id=unique,
                name=name,
                label=shown[position],
                full_name=full_name,
                klass=_class_of(verdict),
                rule=text(verdict.get("rule")),
                title=text(verdict.get("title")) or text(verdict.get("rule")) or "No verdict",
                sentence=text(kernel.get("sentence")) or text(verdict.get("sentence")),
                confidence=text(verdict.get("confidence")),
                total_us=total,
                duration_us=duration,
                share=part,
                launches=int(launches) if launches is not None else None,
                at_stake=fmt.number(verdict.get("at_stake")),
                speedup=speed,
                deciding=deciding_number(kernel),
                severity=_worst(kernel),
            )
        )
    found.sort(key=lambda view: (view.total_us is None, -(view.total_us or 0.0)))
    return found


def _names(kernel: Mapping[str, Any]) -> tuple[str, str]:
    """The name and the demangled name of an entry."""
    name = text(kernel.get("name")) or text(kernel.get("demangled")) or "kernel without a name"
    return name, text(kernel.get("demangled")) or name


def median(ordered: Sequence[float]) -> float | None:
    """The middle of sorted values; of an even number the lower of the two, so that it is one that was measured."""
    return ordered[(len(ordered) - 1) // 2] if ordered else None


def groups(views: Sequence[KernelView]) -> list[KernelView]:
    """Equal launches (the document's `group`) with the same verdict as one view: that of the median launch, under the
    id of the first, with the time and the share of all. A view of one launch stays as it is."""
    bundles: dict[tuple[object, ...], list[KernelView]] = {}
    for view in views:
        group = text(view.data.get("group"))
        key = (group, view.rule, view.state) if group is not None else (view.position, None, None)
        bundles.setdefault(key, []).append(view)
    found: list[KernelView] = []
    for bundle in bundles.values():
        if len(bundle) == 1:
            found.append(bundle[0])
            continue
        members = tuple(sorted(bundle, key=lambda view: view.position))
        timed = sorted((one for one in members if one.duration_us is not None), key=lambda one: one.duration_us or 0.0)
        middle = timed[(len(timed) - 1) // 2] if timed else members[0]
        totals = [one.total_us for one in members if one.total_us is not None]
        shares = [one.share for one in members if one.share is not None]
        found.append(
            replace(
                middle,
                id=members[0].id,
                position=members[0].position,
                total_us=sum(totals) if totals else None,
                share=sum(shares) if shares else None,
                launches=launches_total(members),
                members=members,
            )
        )
    found.sort(key=lambda view: (view.total_us is None, -(view.total_us or 0.0)))
    return found


def gpu_time_us(document: Document, views: Sequence[KernelView]) -> float | None:
    """The GPU time profiled: what the document says, else the sum over the kernels with a time."""
    said = fmt.number(mapping(document.get("program")).get("gpu_time_us"))
    if said is not None:
        return said
    known = [view.total_us for view in views if view.total_us is not None]
    return sum(known) if known else None


def class_shares(views: Sequence[KernelView]) -> dict[str, float]:
    """Each class's share of the kernels' known time; empty where no kernel has a time."""
    total = sum(view.total_us or 0.0 for view in views)
    if total <= 0:
        return {}
    return {klass: sum(view.total_us or 0.0 for view in views if view.klass == klass) / total for klass in CLASSES}


def launches_total(views: Sequence[KernelView]) -> int:
    """Launches profiled; an entry that does not say counts once."""
    return sum(view.launches if view.launches is not None else 1 for view in views)


def plural(number: int, word: str) -> str:
    """ "1 kernel", "1,200 kernels"."""
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"


def summary(document: Document, views: Sequence[KernelView]) -> str:
    """The one sentence over all kernels that opens every format."""
    if not views:
        return "No kernel was profiled: nothing can be said."
    known = [view for view in views if view.total_us is not None]
    if not known:
        return f"The time of {plural(len(views), 'kernel')} was not measured, so what matters cannot be ranked."
    total = gpu_time_us(document, known) or 0.0
    gain = low = high = 0.0
    for view in known:
        spent = view.total_us or 0.0
        if view.at_stake is None or view.klass == "hardware":
            continue
        gain += spent * view.at_stake
        speed = view.speedup or {}
        lowest, highest = fmt.number(speed.get("low")), fmt.number(speed.get("high"))
        low += spent * (1 - 1 / lowest if lowest and lowest >= 1 else view.at_stake)
        high += spent * (1 - 1 / highest if highest and highest >= 1 else view.at_stake)
    if total > 0 and gain / total >= 0.005:
        best = max(known, key=lambda view: (view.at_stake or 0.0) * (view.total_us or 0.0) * (view.klass != "hardware"))
        start = (
            f"About {fmt.duration(gain)} of {fmt.duration(total)} GPU time can be won back ({fmt.share(gain / total)}"
        )
        start += f", range {fmt.share(low / total)} to {fmt.share(high / total)})"
        if len(known) == 1:
            return f"{start}: {best.title[:1].lower()}{best.title[1:]}."
        return f"{start}; most of it in {fmt.shorten(best.label, 60)}: {fmt.shorten(best.title, 90)}."
    unknown = sum(view.total_us or 0.0 for view in known if view.klass == "unknown") / total if total > 0 else 1.0
    if unknown > 0.5:
        return f"Too little was measured to say what limits {fmt.share(unknown)} of the GPU time."
    if all(view.at_its_limit for view in known):
        subject = "The kernel runs at its" if len(known) == 1 else f"All {len(known):,} kernels run at their"
        return f"{subject} hardware limit: leave the code as it is, or move fewer bytes or operations."
    return f"No fix worth having was found in {fmt.duration(total)} of GPU time."


def header(document: Document, views: Sequence[KernelView]) -> list[tuple[str, str]]:
    """Where the numbers come from, as (label, text): source, GPU, ncu, clocks, cache, launches, GPU time."""
    runs, devices = objects(document.get("runs")), objects(document.get("devices"))

    def joined(values: Iterator[str | None]) -> str:
        unique = list(dict.fromkeys(value for value in values if value))
        return ", ".join(unique[:3]) + (f" and {len(unique) - 3} more" if len(unique) > 3 else "")

    gpus: dict[str, int] = {}
    for device in devices:
        name = text(device.get("name")) or "GPU without a name"
        gpus[name] = gpus.get(name, 0) + 1
    found = [
        ("source", joined(fmt.shorten(run["source"], 60) if text(run.get("source")) else None for run in runs)),
        ("GPU", joined(f"{name} ×{n}" if n > 1 else name for name, n in gpus.items())),
        ("ncu", joined(text(run.get("ncu_version")) for run in runs)),
        ("clock control", joined(text(run.get("clock_control")) for run in runs)),
        ("cache control", joined(text(run.get("cache_control")) for run in runs)),
    ]
    found = [
        (label, value or fmt.NOT_MEASURED if label in {"GPU"} else value or "not recorded") for label, value in found
    ]
    found.append(("launches", f"{launches_total(views):,}"))
    found.append(("GPU time", fmt.duration(gpu_time_us(document, views))))
    return found


def speedup_of(item: Mapping[str, Any]) -> str:
    """A finding's gain as text: its speedup, else what is at stake."""
    if mapping(item.get("speedup")):
        return fmt.speedup(item["speedup"])
    stake = fmt.number(item.get("at_stake"))
    return f"{fmt.share(stake)} of the time" if stake is not None else "gain not measured"


def units(kernel: Mapping[str, Any]) -> dict[str, str]:
    """The unit of each fact that this kernel's entry names."""
    found: dict[str, str] = {}
    for name, fact in mapping(kernel.get("facts")).items():
        if isinstance(mapping(fact).get("unit"), str):
            found[name] = fact["unit"]
    for finding in objects(kernel.get("findings")):
        for evidence in objects(finding.get("evidence")):
            if isinstance(evidence.get("unit"), str):
                found.setdefault(str(evidence.get("fact")), evidence["unit"])
    return found


def expectation(experiment: object, known: Mapping[str, str]) -> str | None:
    """What a next experiment should change, as text ("duration_us < 700 µs"); `known` holds the facts' units."""
    expect = mapping(mapping(experiment).get("expect"))
    fact = text(expect.get("fact"))
    if fact is None or expect.get("value") is None:
        return None
    unit = known.get(fact) or ("us" if fact.endswith("_us") else "")
    return f"{fact} {fmt.OPERATORS.get(str(expect.get('op')), '=')} {fmt.quantity(expect['value'], unit)}"


def review(document: Document) -> list[str]:
    """What the team's own files say of this document, in sentences: accepted findings, the baseline, budgets."""
    told = []
    accepted, baseline = mapping(document.get("acceptance")), mapping(document.get("baseline"))
    if accepted.get("accepted"):
        told.append(f"{plural(accepted['accepted'], 'finding')} accepted, counted by no gate.")
    if accepted.get("lapsed"):
        told.append(f"{plural(accepted['lapsed'], 'finding')} no longer accepted: past its date, or worse than it was.")
    for entry in objects(accepted.get("stale"))[:5]:
        name, owner = fmt.shorten(entry.get("kernel"), 60), fmt.shorten(entry.get("owner"), 40)
        told.append(
            f"The accepted {fmt.shorten(entry.get('finding'), 60)} on {name} ({owner}) matches nothing: remove it."
        )
    if baseline:
        told.append(
            f"Against {fmt.shorten(baseline.get('source'), 80)}: {plural(baseline.get('new', 0), 'finding')} new, "
            f"{baseline.get('worse', 0)} worse, {baseline.get('known', 0)} known; "
            f"{plural(len(objects(baseline.get('slower'))), 'kernel')} slower."
        )
    budgets = objects(document.get("budgets"))
    if budgets:
        counts = [sum(row.get("kept") is kept for row in budgets) for kept in (True, False, None)]
        told.append(f"Budgets: {counts[0]} kept, {counts[1]} broken, {counts[2]} not measured.")
    return told


def packs(document: Document) -> list[tuple[str, str]]:
    """The packs in force: ("acme 1.0.0, sha256 0123456789ab", what it changes in other rules; empty for nothing)."""
    found = []
    for pack in objects(document.get("packs")):
        told = []
        if disabled := texts(pack.get("disabled")):
            told.append(f"turns off {', '.join(disabled)}")
        if weighed := mapping(pack.get("weighed")):
            told.append("weighs " + ", ".join(f"{rule} by {fmt.count(factor)}" for rule, factor in weighed.items()))
        if reworded := mapping(pack.get("reworded")):
            told.append(f"re-words {', '.join(reworded)}")
        for one in objects(pack.get("thresholds")):
            who = " ".join([*filter(None, [text(one.get("kernel"))]), *texts(one.get("arch"))])
            values = ", ".join(f"{what} {fmt.count(value)}" for what, value in mapping(one.get("set")).items())
            told.append(f"sets {values} in {one.get('rule')}" + (f" for {who}" if who else ""))
        if sections := texts(pack.get("sections")):
            told.append(f"adds the section{'s' if len(sections) > 1 else ''} {', '.join(sections)}")
        if code := mapping(pack.get("code")):
            names = texts(code.get("facts"))
            source = f"{code.get('source')} of {code.get('distribution')}"
            told.append(f"computes {plural(len(names), 'fact')} in Python by {source}")
        name = f"{fmt.shorten(pack.get('name'), 60)} {fmt.shorten(str(pack.get('version') or 'without a version'), 30)}"
        found.append((f"{name}, sha256 {str(pack.get('sha256') or 'not recorded')[:12]}", "; ".join(told)))
    return found


def not_evaluated(data: Mapping[str, Any]) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
    """(rules that lack a measurement, rules that lack only what a person declares): both with `missing`."""
    entries = objects(data.get("not_evaluated"))
    undeclared = [e for e in entries if all(name.startswith("declared ") for name in texts(e.get("missing")))]
    return [e for e in entries if e not in undeclared], undeclared
