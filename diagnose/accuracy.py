"""`diagnose rules accuracy`: the verdicts on kernels whose cause is known, against what their labels say.

A corpus is the bundled kernels with their recorded reports, or a folder with `labels.yaml`:

family: mine                       # optional, for every kernel that names none
kernels:
  - name: mine/transpose
    report: transpose.ncu-rep      # beside labels.yaml; compressed ones too
    function: transpose_rows       # optional: the kernel that is meant, where the report holds others (`nvjet*` too)
    expect: uncoalesced            # a rule id, or `quiet`: at a ceiling of the hardware
    also: []                       # optional: verdicts that are defensible too
    twin: mine/transpose-tiled     # optional: the same work without the fault; the two times are the measured gain
    gain: true                     # optional: false where the twin does not show what removing `expect` gains
    declared: {useful_flops: 0}    # optional: work that a user would declare
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diagnose import api
from diagnose.bars import bar
from diagnose.bundled import bundled
from diagnose.engine import WORTH
from diagnose.errors import DiagnoseError
from diagnose.model import Diagnosis, KernelProfile, Scalar, Verdict
from diagnose.packfile import nearest
from diagnose.rules import Pack, active_rules
from diagnose.scope import glob_matches

LABELS = "labels.yaml"
QUIET = "quiet"
SUFFIX = ".ncu-rep.xz"
_KEYS = ("name", "report", "expect", "function", "also", "twin", "gain", "declared", "family")
_FORMAT = "labels.yaml holds kernels: [{name: NAME, report: FILE, expect: RULE}, …], see docs/accuracy.md"


@dataclass(frozen=True)
class Label:
    """What is known of one kernel. `report` may not exist yet; `held_out` kernels were not looked at in any tuning."""

    name: str
    family: str
    report: Path
    function: str | None
    expect: str
    also: tuple[str, ...] = ()
    twin: str | None = None
    gain: bool = True
    declared: tuple[tuple[str, Scalar], ...] = ()
    held_out: bool = False

    @property
    def accepted(self) -> frozenset[str]:
        return frozenset((self.expect, *self.also))


@dataclass(frozen=True)
class Case:
    """A labelled kernel with what was said of it."""

    label: Label
    diagnosis: Diagnosis

    @property
    def verdict(self) -> Verdict:
        return self.diagnosis.verdict

    @property
    def duration_us(self) -> float | None:
        fact = self.diagnosis.facts.get("duration_us")
        return float(fact.value) if fact and isinstance(fact.value, int | float) and fact.value > 0 else None


# --- NVIDIA's own suggestions ---


@dataclass(frozen=True)
class Hint:
    """What a rule of Nsight Compute (identifier, and title where it says more than one thing) comes to in our words.

    Every verdict that a reader could fairly take from its text counts, so that the comparison errs in its favour.
    """

    rule: str
    title: str | None
    verdicts: tuple[str, ...]
    reason: str


_IDLE = ("launch-bound", "small-grid", "under-split", "memory-latency", "dependency-latency")
_OCCUPANCY = ("occupancy-registers", "occupancy-smem", "occupancy-block")
HINTS: tuple[Hint, ...] = (
    Hint("HighPipeUtilization", "Low Utilization", _IDLE,
         "'very small, or does not issue enough warps per scheduler': too little work, or latency"),
    Hint("HighPipeUtilization", None, ("fp32-compute", "fp64-compute", "int-compute", "sfu-compute", "tensor-compute",
         "issue-bound", QUIET), "a pipe that is busy: a limit of the hardware"),
    Hint("IssueSlotUtilization", None, (*_IDLE, *_OCCUPANCY, "load-imbalance"),
         "'no eligible warp': latency, occupancy or imbalance; it points at the stalls without naming one"),
    Hint("TheoreticalOccupancy", None, (*_OCCUPANCY, "cluster-placement"), "names registers, shared memory or block"),
    Hint("AchievedOccupancy", None, ("load-imbalance", "tail-wave", "launch-bound"),
         "'scheduling overheads or workload imbalances'"),
    Hint("WorkloadImbalance", None, ("load-imbalance", "under-split", "small-grid", "tail-wave"), "some units idle"),
    Hint("LaunchConfiguration", "Small Grid", ("small-grid", "under-split", "launch-bound"), "fewer blocks than SMs"),
    Hint("LaunchConfiguration", "Tail Effect", ("tail-wave",), "a partial last wave"),
    Hint("LaunchConfiguration", None, ("occupancy-block",), "a block size that is no multiple of the warp"),
    Hint("MemoryL2Compression", None, (), "whether data could be stored compressed: no cause of a loss"),
    Hint("MemoryCacheAccessPattern", None, ("uncoalesced", "partial-writes", "random-access", "narrow-access"),
         "bytes of each sector that no lane uses"),
    Hint("MemoryCacheAccessPattern", "L1TEX Local Load Access Pattern", ("spill", "local-array"), "local memory"),
    Hint("MemoryCacheAccessPattern", "L1TEX Local Store Access Pattern", ("spill", "local-array"), "local memory"),
    Hint("MemoryCacheAccessPattern", "L2 Local Load Access Pattern", ("spill", "local-array"), "local memory"),
    Hint("MemoryCacheAccessPattern", "L2 Local Store Access Pattern", ("spill", "local-array"), "local memory"),
    Hint("UncoalescedGlobalAccess", None, ("uncoalesced", "partial-writes", "random-access"), "excessive sectors"),
    Hint("UncoalescedSharedAccess", None, ("bank-conflict",), "excessive wavefronts of shared memory"),
    Hint("SharedMemoryConflicts", None, ("bank-conflict",), "bank conflicts"),
    Hint("ThreadDivergence", None, ("divergence",), "few active or unpredicated lanes"),
    Hint("FPInstructions", "FP64 Non-Fused Instructions", ("fp64-by-accident", "fp64-compute"), "double arithmetic"),
    Hint("FPInstructions", None, ("fp32-compute",), "additions and multiplications that could fuse: operations"),
    Hint("SOLFPRoofline", "FP64/32 Utilization", ("fp64-by-accident", "fp64-compute", "conversion"),
         "double arithmetic where float might do"),
    Hint("SOLFPRoofline", None, (), "places the kernel on a roofline: no cause"),
    Hint("CPIStall", "Long Scoreboard Stalls", ("memory-latency", "global-reload", "l2-locality", "random-access"),
         "waits for global or local memory: 'increase cache hit rates', 'move data to shared memory'"),
    Hint("CPIStall", "Short Scoreboard Stalls", ("bank-conflict", "smem-reload", "smem-bandwidth", "slow-math",
         "conversion"), "waits for shared memory or special functions"),
    Hint("CPIStall", "Mio Throttle Stalls", ("bank-conflict", "smem-reload", "smem-bandwidth", "conversion",
         "slow-math", "shared-atomics"), "the queue of shared memory, special functions and conversions is full"),
    Hint("CPIStall", "Lg Throttle Stalls", ("lsu-issue", "narrow-access", "local-array", "spill"),
         "the queue for global and local memory is full: 'fewer, wider accesses'"),
    Hint("CPIStall", "Barrier Stalls", ("barrier",), "CTA barriers"),
    Hint("CPIStall", "Membar Stalls", ("fence",), "memory fences"),
    Hint("CPIStall", "Wait Stalls", ("dependency-latency",), "fixed-latency dependencies"),
    Hint("CPIStall", "Math Pipe Throttle Stalls", ("fp32-compute", "fp64-compute", "int-compute", "issue-bound"),
         "a pipe is full"),
    Hint("CPIStall", "Not Selected Stalls", ("issue-bound",), "more eligible warps than issue slots"),
    Hint("CPIStall", "Imc Miss Stalls", ("constant-divergence",), "the immediate constant cache"),
    Hint("CPIStall", "No Instruction Stalls", ("instruction-cache",), "instruction fetch"),
    Hint("CPIStall", "Sleeping Stalls", ("spin-wait",), "sleeping threads"),
    Hint("CPIStall", "Dispatch Stall Stalls", (), "the dispatcher holds back: no cause that a user can change"),
    Hint("CPIStall", "Drain Stalls", ("partial-writes", "hbm-bandwidth"), "stores at the end of the kernel"),
)  # fmt: skip
_HINTS = {(hint.rule, hint.title): hint for hint in HINTS}


def _estimate(result: Mapping[str, str]) -> float | None:
    try:
        return float(result["speedup_estimation"]) / 100
    except (KeyError, ValueError):
        return None


def ncu_top(kernel: KernelProfile, kinds: Sequence[str] = ()) -> tuple[str, str | None, float] | None:
    """ncu's rule with the largest estimate: (identifier, title, share of the time); None where it estimates nothing.

    `kinds` restricts it to estimates for the whole kernel (`global`) or for one of its units (`local`).
    """
    best: tuple[str, str | None, float] | None = None
    for result in kernel.ncu_rules:
        share = _estimate(result)
        if share is None or (kinds and result.get("speedup_type") not in kinds):
            continue
        if best is None or share > best[2]:
            best = (result.get("rule_identifier", ""), result.get("rule_title"), share)
    return best


def ncu_verdicts(kernel: KernelProfile, kinds: Sequence[str] = ()) -> frozenset[str]:
    """The verdicts that ncu's top suggestion may be read as; `quiet` where it promises less than is worth having."""
    top = ncu_top(kernel, kinds)
    if top is None or top[2] < WORTH:
        return frozenset({QUIET})
    hint = _HINTS.get((top[0], top[1])) or _HINTS.get((top[0], None))
    return frozenset(hint.verdicts) if hint else frozenset()


# --- corpora ---


def bundled_labels(kernels: Path | None = None, reports: Path | None = None) -> tuple[Label, ...]:
    """The bundled kernels; their own manifests say what is expected."""
    from diagnose.collect.kernels import declared_of, load_kernels, read_manifest

    kernels, reports = kernels or bundled("kernels"), reports or bundled("examples") / "reports"
    held_out = {kernel.name for path in kernels.glob("*/heldout_*.yaml") for kernel in read_manifest(path)}
    return tuple(
        Label(
            name=entry.name,
            family=entry.family,
            report=reports / (entry.name.replace("/", "-") + SUFFIX),
            function=entry.function.replace(".*", "*"),  # a manifest's is an expression for ncu
            expect=entry.expect,
            also=entry.also,
            twin=entry.twin,
            gain=entry.gain,
            declared=tuple(declared_of(entry, entry.params).items()),
            held_out=entry.name in held_out,
        )
        for entry in load_kernels(kernels).values()
    )


def _text_list(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def folder_labels(folder: Path, known: Sequence[str]) -> tuple[Label, ...]:
    """The labels of a folder. `known` are the rule ids that may be expected."""
    import yaml

    file = folder / LABELS
    if not folder.is_dir():
        raise DiagnoseError(f"{folder} is no folder", f"name a folder that holds reports and {LABELS}")
    if not file.is_file():
        raise DiagnoseError(f"{folder} holds no {LABELS}", _FORMAT)
    try:
        document = yaml.safe_load(file.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise DiagnoseError(f"{file} cannot be read: {' '.join(str(error).split())}", _FORMAT) from None
    entries = document.get("kernels") if isinstance(document, dict) else None
    if not isinstance(entries, list) or not entries:
        raise DiagnoseError(f"{file} holds no list `kernels`", _FORMAT)
    if unknown := sorted(str(key) for key in document if key not in ("kernels", "family")):
        raise DiagnoseError(f"{file}: unknown key {unknown[0]!r}", _FORMAT)
    labels = [_label(file, number, entry, document.get("family"), known) for number, entry in enumerate(entries)]
    names = [label.name for label in labels]
    for label in labels:
        if names.count(label.name) > 1:
            raise DiagnoseError(f"{file}: {label.name} is there twice", "give each kernel a name of its own")
        if label.twin is not None and label.twin not in names:
            raise DiagnoseError(f"{file}: {label.name}: there is no twin {label.twin!r}{nearest(label.twin, names)}",
                                _FORMAT)  # fmt: skip
    return tuple(labels)


def _label(file: Path, number: int, entry: Any, family: object, known: Sequence[str]) -> Label:
    where = f"{file}: kernels[{number}]"

    def fail(problem: str) -> DiagnoseError:
        return DiagnoseError(f"{where}: {problem}", _FORMAT)

    if not isinstance(entry, dict):
        raise fail("is no mapping")
    for key in entry:
        if key not in _KEYS:
            raise fail(f"unknown key {key!r}{nearest(str(key), _KEYS)}")
    for key in ("name", "report", "expect"):
        if not isinstance(entry.get(key), str) or not entry[key]:
            raise fail(f"{key} must be a text, got {entry.get(key)!r}")
    where = f"{file}: {entry['name']}"
    for key in ("function", "twin", "family"):
        if not isinstance(entry.get(key, ""), str | None):
            raise fail(f"{key} must be a text, got {entry[key]!r}")
    also, gain, declared = entry.get("also") or [], entry.get("gain", True), entry.get("declared") or {}
    if not _text_list(also):
        raise fail(f"also must be a list of verdicts, got {also!r}")
    if not isinstance(gain, bool):
        raise fail(f"gain must be true or false, got {gain!r}")
    if not isinstance(declared, dict) or not all(
        isinstance(k, str) and isinstance(v, int | float | str | bool) for k, v in declared.items()
    ):
        raise fail(f"declared must map facts to values, got {declared!r}")
    for verdict in (entry["expect"], *also):
        if verdict != QUIET and verdict not in known:
            raise fail(f"there is no verdict {verdict!r}{nearest(verdict, known)}")
    return Label(
        name=entry["name"],
        family=entry.get("family") or (family if isinstance(family, str) else "") or "corpus",
        report=file.parent / entry["report"],
        function=entry.get("function"),
        expect=entry["expect"],
        also=tuple(also),
        twin=entry.get("twin"),
        gain=gain,
        declared=tuple((k, v if isinstance(v, str | bool) else float(v)) for k, v in declared.items()),
    )


def cases(
    labels: Sequence[Label], packs: Sequence[Pack], progress: Callable[[str], None], *, missing_is_error: bool
) -> tuple[list[Case], list[str]]:
    """Reads and diagnoses every label's report; gives also the names of those without one."""
    from diagnose.reader import read_reports

    here = [label for label in labels if label.report.is_file()]
    absent = [label.name for label in labels if not label.report.is_file()]
    if absent and missing_is_error:
        gone = next(label for label in labels if label.name == absent[0])
        raise DiagnoseError(f"{gone.name}: the report {gone.report} does not exist", f"ls {gone.report.parent}")
    if not here:
        raise DiagnoseError("none of the labelled kernels has a report", "git checkout -- examples")
    files = list(dict.fromkeys(label.report for label in here))
    progress(f"reading {len(files)} reports (about half a second each)")
    with bar("reading reports") as step:
        profile = read_reports(files, source=False, step=step)
    by_file: dict[Path, list[KernelProfile]] = {file: [] for file in files}
    for kernel in profile.kernels:
        by_file[files[kernel.run]].append(kernel)
    repeated = api.repeated_counters(profile.kernels)
    ask = api.asker(packs)
    found = []
    for label in here:
        chosen = chosen_kernel(label, by_file[label.report])
        known = dict(label.declared)
        if chosen.index in repeated:
            known["counters_repeat"] = True
        found.append(Case(label, ask(chosen, known).diagnosis))
    return found, absent


def chosen_kernel(label: Label, kernels: Sequence[KernelProfile]) -> KernelProfile:
    """The kernel that a label means: the first of that function, else the report's first."""
    if label.function is None:
        return kernels[0]
    wanted = label.function
    found = next((k for k in kernels if wanted in (k.name, k.demangled) or glob_matches(wanted, k.name)), None)
    if found is None:
        names = sorted({kernel.name for kernel in kernels})
        raise DiagnoseError(
            f"{label.name}: {label.report} holds no kernel {label.function!r}{nearest(label.function, names)}",
            f"it holds {', '.join(names)[:300]}",
        )
    return found


# --- scores ---


def right(accepted: frozenset[str], rule: str, klass: str) -> bool:
    """Whether a verdict is one that the label accepts; `quiet` stands for any verdict of class hardware."""
    return rule in accepted or (QUIET in accepted and klass == "hardware")


def _second(case: Case) -> tuple[str, str] | None:
    """The finding after the verdict's own."""
    return next(((f.rule, f.klass) for f in case.diagnosis.findings if f.rule != case.verdict.rule), None)


def _in_two(case: Case) -> bool:
    label, second = case.label, _second(case)
    return right(label.accepted, case.verdict.rule, case.verdict.klass) or (
        second is not None and right(label.accepted, *second)
    )


def _loud(case: Case) -> list[str]:
    return [f.rule for f in case.diagnosis.findings if f.severity != "note"]


def _share(held: Sequence[bool]) -> float | None:
    return round(sum(held) / len(held), 4) if held else None


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def _classes(accepted: frozenset[str], classes: Mapping[str, str]) -> frozenset[str]:
    return frozenset("hardware" if one == QUIET else classes.get(one, "unknown") for one in accepted)


def _scores(found: Sequence[Case], classes: Mapping[str, str]) -> dict[str, Any]:
    """The shares that any part of the corpus has."""
    healthy = [case for case in found if case.label.expect == QUIET]
    return {
        "kernels": len(found),
        "top1": _share([right(c.label.accepted, c.verdict.rule, c.verdict.klass) for c in found]),
        "top2": _share([_in_two(c) for c in found]),
        "class": _share([c.verdict.klass in _classes(c.label.accepted, classes) for c in found]),
        "quiet_on_healthy": _share([not _loud(c) for c in healthy]),
        "top1_strict": _share([right(frozenset({c.label.expect}), c.verdict.rule, c.verdict.klass) for c in found]),
        "healthy": len(healthy),
    }


def _per_rule(found: Sequence[Case]) -> list[dict[str, Any]]:
    rows = []
    expected = {c.label.expect for c in found} - {QUIET}
    for rule in sorted(expected | {c.verdict.rule for c in found}):
        got = [c for c in found if c.verdict.rule == rule]
        wanted = [c for c in found if c.label.expect == rule]
        rows.append(
            {
                "rule": rule,
                "precision": _share([right(c.label.accepted, rule, c.verdict.klass) for c in got]),
                "recall": _share([c.verdict.rule == rule for c in wanted]),
                "verdicts": len(got),
                "expected": len(wanted),
            }
        )
    return rows


def gains(found: Sequence[Case]) -> list[dict[str, Any]]:
    """The pairs whose fault was named and whose twin shows what removing it brings: predicted against measured."""
    by_name = {case.label.name: case for case in found}
    rows = []
    for case in found:
        label, verdict = case.label, case.verdict
        twin = by_name.get(label.twin) if label.twin else None
        if label.expect == QUIET or not label.gain or verdict.rule != label.expect or twin is None:
            continue
        before, after = case.duration_us, twin.duration_us
        if before is None or after is None or verdict.speedup is None:
            continue
        measured, speedup = before / after, verdict.speedup
        rows.append(
            {
                "kernel": label.name,
                "twin": twin.label.name,
                "rule": verdict.rule,
                "low": _rounded(speedup.low),
                "expected": _rounded(speedup.expected),
                "high": _rounded(speedup.high),
                "measured": _rounded(measured),
                "error": _rounded(abs(speedup.expected - measured) / measured),
                "inside": speedup.low <= measured <= speedup.high,
            }
        )
    return rows


def _gain(found: Sequence[Case]) -> dict[str, Any]:
    rows = gains(found)
    errors = [row["error"] for row in rows]
    widths = [row["high"] / row["low"] for row in rows if row["low"] > 0]
    return {
        "median_error": _rounded(statistics.median(errors)) if errors else None,
        "worst_error": _rounded(max(errors)) if errors else None,
        "coverage": _share([row["inside"] for row in rows]),
        "median_width": _rounded(statistics.median(widths)) if widths else None,
        "pairs": rows,
    }


def _hint_row(found: Sequence[Case], kinds: Sequence[str], classes: Mapping[str, str]) -> float | None:
    held = []
    for case in found:
        said = ncu_verdicts(case.diagnosis.kernel, kinds)
        held.append(any(right(case.label.accepted, one, "hardware" if one == QUIET else classes.get(one, ""))
                        for one in said))  # fmt: skip
    return _share(held)


def _ncu(found: Sequence[Case], classes: Mapping[str, str]) -> dict[str, Any]:
    asked = [case for case in found if case.diagnosis.kernel.ncu_rules]
    return {
        "top1": _hint_row(asked, (), classes),
        "top1_global": _hint_row(asked, ("global",), classes),
        "kernels": len(asked),
        "kernels_list": [
            {
                "kernel": case.label.name,
                "expect": case.label.expect,
                "rule": top[0] if top else None,
                "title": top[1] if top else None,
                "estimate": _rounded(top[2]) if top else None,
                "read_as": sorted(ncu_verdicts(case.diagnosis.kernel)),
            }
            for case in asked
            for top in (ncu_top(case.diagnosis.kernel),)
        ],
    }


def _row(case: Case) -> dict[str, Any]:
    label, verdict, second = case.label, case.verdict, _second(case)
    return {
        "kernel": label.name,
        "family": label.family,
        "expect": label.expect,
        "also": list(label.also),
        "got": verdict.rule,
        "class": verdict.klass,
        "confidence": verdict.confidence,
        "second": second[0] if second else None,
        "at_stake": _rounded(verdict.at_stake),
        "right": right(label.accepted, verdict.rule, verdict.klass),
        "above_note": _loud(case),
    }


def measure(
    found: Sequence[Case], packs: Sequence[Pack], absent: Sequence[str] = (), corpus: str = ""
) -> dict[str, Any]:
    """Every figure. The first eight keys are the contract's."""
    classes = {rule.id: rule.klass for rule in active_rules(packs)}
    confusion: dict[tuple[str, str], int] = {}
    for case in found:
        got = case.verdict.rule
        if QUIET in case.label.accepted and case.verdict.klass == "hardware":
            got = QUIET if case.label.expect == QUIET else got
        confusion[case.label.expect, got] = confusion.get((case.label.expect, got), 0) + 1
    scores = _scores(found, classes)
    held_out = [case for case in found if case.label.held_out]
    return {
        **{key: scores[key] for key in ("kernels", "top1", "top2", "class", "quiet_on_healthy")},
        "gain": _gain(found),
        "per_rule": _per_rule(found),
        "ncu_top_hint": _ncu(found, classes),
        "top1_strict": scores["top1_strict"],
        "healthy": scores["healthy"],
        "held_out": _scores(held_out, classes) if held_out else None,
        "families": {
            family: _scores([c for c in found if c.label.family == family], classes)
            for family in dict.fromkeys(case.label.family for case in found)
        },
        "confidence": {
            level: _scores(those, classes)
            for level in ("high", "medium", "low")
            if (those := [case for case in found if case.verdict.confidence == level])
        },
        "confusion": [{"expect": e, "got": g, "kernels": n} for (e, g), n in sorted(confusion.items())],
        "verdicts": [_row(case) for case in found],
        "corpus": corpus,
        "not_recorded": list(absent),
    }


def run(corpus: Path | None, packs: Sequence[Pack], progress: Callable[[str], None]) -> dict[str, Any]:
    """Reads a corpus and measures the rules on it."""
    if corpus is None:
        labels, name = bundled_labels(), "bundled kernels and their recorded reports"
    else:
        labels, name = folder_labels(corpus, [rule.id for rule in active_rules(packs)]), str(corpus)
    found, absent = cases(labels, packs, progress, missing_is_error=corpus is not None)
    return measure(found, packs, absent, name)
