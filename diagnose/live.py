"""From a program to a profile: survey, choice, one run under ncu, and a second one where a hypothesis needs it.

Why so, and what it costs: docs/collection.md. The diagnosis itself is the caller's.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from diagnose.collect import launchers, surveying
from diagnose.collect import survey as counting
from diagnose.collect.clocks import Clocks
from diagnose.collect.find import find_ncu, ncu_version, parse_version
from diagnose.collect.host import driver_version, gpus
from diagnose.collect.plan import COLLECTIVES, FINGERPRINT, MetricSet, Plan, Selection, metric_set
from diagnose.collect.preflight import check_writable, little_space, resolve_target
from diagnose.collect.process import stdin_can_be_read_again, stdin_put_back
from diagnose.collect.run import Collected, CollectOptions, collect
from diagnose.collect.survey import Choice, Configuration, Survey
from diagnose.errors import EXIT_NOTHING_MEASURED, DiagnoseError
from diagnose.gpus import catalogue
from diagnose.join import join, resumed
from diagnose.model import Diagnosis, KernelProfile, Profile
from diagnose.reader import read_reports

Progress = Callable[[str], None]
Ask = Callable[[KernelProfile], Diagnosis]

TOP = 50
COVERAGE = 0.95  # what is left is, at most, a twentieth of the program's GPU time: no fix in it is worth having
_STOP_FROM_S = 3.0  # of a shorter program, ending it costs as much as its end
_WORTH_SAYING_S, _WORTH_SAYING = 10.0, 0.2  # what a user waits for with impatience, and a fifth of any run


@dataclass(frozen=True)
class Live:
    """How a program is profiled. `profile` is where the report goes: a free name, or one that `free_paths` reserved.

    `mode` is one of plan.MODES, `survey` one of surveying.METHODS. `top` and `coverage` bound what a survey chooses;
    `stop` ends the program when that is profiled (None: where `_stops` says that nothing is lost by it). `resume`
    names reports of an earlier, incomplete run.
    """

    profile: Path
    max_launches: int | None = None
    clock_control: str = "none"
    cache_control: str = "all"
    replay: str = "kernel"
    graph: str = "node"
    target_output: Path | None = None
    mode: str = "adaptive"
    survey: str = "auto"
    top: int = TOP
    coverage: float = COVERAGE
    stop: bool | None = None
    demangled: bool = False
    nvtx: tuple[str, ...] = ()
    skip: int = 0
    count: int | None = None
    devices: tuple[int, ...] = ()
    process: str | None = None
    profiler_range: bool = False
    resume: tuple[Path, ...] = ()

    @property
    def cap(self) -> int:
        """Launches at which the run is stopped: room for `top`, where nothing else is asked for."""
        return self.max_launches or max(TOP, self.top)

    def selection(self, kernel: str | None) -> Selection:
        """The filters as ncu's plan has them."""
        return Selection(
            kernel=kernel,
            max_launches=self.cap,
            skip=self.skip,
            count=self.count,
            demangled=self.demangled,
            nvtx=self.nvtx,
            devices=self.devices,
            process=self.process,
            profiler_range=self.profiler_range,
        )


@dataclass(frozen=True)
class Asked:
    """What the rest of the program wants of a live run: which kernels, which metrics, and what to ask of a kernel."""

    kernel: str | None
    metrics: tuple[str, ...]
    ask: Ask
    source: bool = True
    timeout_s: float | None = None
    given_s: float | None = None
    ncu: str | None = None
    work_declared: bool = False


@dataclass(frozen=True)
class Profiled:
    """What came of it. `collection` is the document's part of that name."""

    profile: Profile
    collected: Collected
    warnings: tuple[str, ...]
    covered_share: float | None
    collection: Mapping[str, Any]
    clocks: Clocks | None = None


@dataclass
class _State:
    """What is known on the way, for the document."""

    survey: Survey | None = None
    choice: Choice | None = None
    notes: list[str] = field(default_factory=list)
    runs: list[dict[str, Any]] = field(default_factory=list)
    stop_reason: str | None = None  # why the program need not run to its end again
    shown: bool = False  # whether its output was
    profiled: tuple[Configuration, ...] = ()


# --- which launches


def admits(selection: Selection, one: Configuration) -> bool:
    """Whether the filters of a run let a configuration through, as ncu would."""
    if selection.devices and one.device is not None and one.device not in selection.devices:
        return False
    if selection.kernel is None:
        return not one.name.startswith(COLLECTIVES)
    if selection.kernel.startswith("regex:"):
        return compiled(selection.kernel).search(one.name) is not None
    return one.name == selection.kernel


def compiled(kernel: str) -> re.Pattern[str]:
    """The expression of a `regex:…`; raises DiagnoseError where it is none."""
    try:
        return re.compile(kernel.removeprefix("regex:"))
    except re.error as error:
        raise DiagnoseError(
            f"--kernel {kernel!r} is no regular expression: {error}", "diagnose --kernel NAME …"
        ) from None


def _choose(live: Live, selection: Selection, found: Survey) -> Choice:
    admitted = [admits(selection, one) for one in found.configurations]
    if not any(admitted):
        raise _nothing_matches(selection, found)
    choice = counting.choose(found.configurations, min(live.top, live.cap), live.coverage, admitted)
    return _within(choice, found, live.cap)


def _within(choice: Choice, found: Survey, most: int) -> Choice:
    """The choice without the names of its shortest configurations, until what comes with the others fits the cap."""
    found = counting.standing(found, choice)
    names = list(dict.fromkeys(one.mangled for one in choice.chosen))
    while len(names) > 1 and _launches_expected(found, names) > most:
        names.pop()
    chosen = tuple(one for one in choice.chosen if one.mangled in names)
    gone = tuple(one for one in choice.chosen if one.mangled not in names)
    return replace(choice, chosen=chosen, left_out=(*gone, *choice.left_out))


def _nothing_matches(selection: Selection, found: Survey) -> DiagnoseError:
    """The filters leave nothing of what the survey saw."""
    names = list(dict.fromkeys(one.name for one in sorted(found.configurations, key=lambda one: -one.total_us)))
    wanted = (selection.kernel or "").removeprefix("regex:")
    near = difflib.get_close_matches(wanted, names, n=3, cutoff=0.4) or names[:3]
    how = "matched against the function name, without parameters and templates"
    echo = selection.in_words() or "every kernel but collectives (nccl*, nvshmem*)"
    kernel = f" ({how})" if selection.kernel else ""
    seen = ", ".join(names)[:400]
    return DiagnoseError(
        f"no kernel matched the filter {echo}{kernel}; {len(names)} others were launched",
        f"diagnose --kernel {near[0]} …    (launched were, the longest first: {seen})",
        EXIT_NOTHING_MEASURED,
    )


def _launches_expected(found: Survey, names: Sequence[str]) -> int:
    """Launches that ncu profiles under a filter by names: one a configuration and process."""
    return sum(one.processes for one in found.configurations if one.mangled in names)


# --- the run


def profile_program(target: Sequence[str], live: Live, asked: Asked, progress: Progress) -> Profiled | Collected:
    """Runs a program and profiles it.

    Returns the bare `Collected` where the run was interrupted before anything was written. Raises DiagnoseError where
    nothing was measured.
    """
    words = resolve_target(target)
    if asked.kernel is not None and asked.kernel.startswith("regex:"):
        compiled(asked.kernel)  # a bad one is refused before anything runs
    ncu = find_ncu(asked.ncu)
    version = ncu_version(ncu) if ncu else None
    kept = _kept(live, asked, progress) if live.resume else None
    selection, state = live.selection(asked.kernel), _State()
    if full := little_space(live.profile.parent):
        state.notes.append(full)
        progress(f"warning: {full}")
    began = time.monotonic()
    try:
        _survey(words, live, asked, selection, state, progress)
    except surveying.Interrupted:
        live.profile.unlink(missing_ok=True)
        raise KeyboardInterrupt from None
    except BaseException:
        live.profile.unlink(missing_ok=True)
        raise
    if asked.timeout_s is not None:
        left = max(asked.timeout_s - (time.monotonic() - began), asked.timeout_s / 2)
        asked = replace(asked, timeout_s=left, given_s=asked.timeout_s)
    enough, expected = None, 0
    if state.survey is not None and state.choice is not None:
        chosen = _without_kept(state.choice, kept)
        if kept is not None and not chosen.chosen:
            return _only_kept(live, kept, state, progress)
        if chosen.names:
            expected = _launches_expected(counting.standing(state.survey, state.choice), chosen.names)
            selection = replace(selection, names=chosen.names, by_name=chosen.by_name)
            state.stop_reason = _stops(live, state.survey)
            enough = expected if state.stop_reason else None
    # Padding is judged by issued Tensor operations: executed opcodes tell them, but not of whole graphs and ranges.
    without_code = asked.work_declared and (live.graph == "graph" or live.replay in ("range", "app-range"))
    wanted = metric_set(live.mode, asked.metrics, parse_version(version), without_code or _has_tcgen05())
    plan = Plan(
        metrics=wanted.metrics,
        sections=wanted.sections,
        selection=selection,
        clock_control=live.clock_control,
        cache_control=live.cache_control,
        replay=live.replay,
        graph=live.graph,
        import_source=asked.source,
        apply_rules=False,
        enough=enough,
        stop_reason=state.stop_reason or "",
    )
    if enough is not None and state.survey is not None:
        state.shown = _show(state.survey, live)
    collected = _collect(words, live, asked, plan, live.profile, state, progress)
    if collected.profile is None:
        return collected
    if collected.target_exit is None and enough is not None and collected.profiled >= enough:
        assert state.survey is not None  # it said what is enough
        collected = replace(collected, target_exit=state.survey.target_exit)
    progress(f"profiled {collected.profiled} launches; reading {collected.profile}")
    profile = _read(collected, asked)
    state.runs.append(_run_entry("first", collected))
    warnings = [*collected.warnings, *(f"left out: {line}" for line in collected.left_out)]
    if state.survey is not None and state.choice is not None and selection.names:
        warnings += _not_chosen(state.choice, state.survey, live)
    warnings += _ran_on(live, collected, expected)
    ended_early = collected.interrupted or collected.timed_out or not collected.saved
    ended_early |= bool(collected.target_exit) and collected.profiled < expected
    if ended_early:
        profile = replace(profile, lost=(*profile.lost, "launches after the program was stopped"))
        warnings += _resumable(live, state, collected)
    if kept is not None:
        profile = resumed(kept, profile)
    profile = _count(profile, state)
    if not ended_early:
        profile, more = _second_run(words, live, asked, wanted, profile, state, progress)
        warnings += more
    seen = state.survey.clocks if state.survey is not None else None
    return Profiled(profile, collected, (*state.notes, *warnings), _covered(state), _document(live, state), seen)


def _has_tcgen05() -> bool:
    """Whether a GPU of this machine multiplies with tcgen05."""
    known = (catalogue.architecture(gpu.capability) for gpu in gpus() if gpu.capability is not None)
    return any("tcgen05" in one.paths for one in known)


def _survey(
    words: tuple[str, ...], live: Live, asked: Asked, selection: Selection, state: _State, progress: Progress
) -> None:
    """Counts the launches, unless an earlier run has, and chooses those to profile."""
    found, limit = _kept_survey(live), asked.timeout_s
    if found is None:  # of a limited time, a survey may take half
        options = surveying.SurveyOptions(
            words, asked.ncu, selection, limit and limit / 2, replay=live.replay, graph=live.graph
        )
        found, notes = surveying.run(live.survey, options, progress)
        state.notes += notes
    state.survey = found
    if found is None:
        return
    if not found.complete:
        state.notes.append("the survey did not see the whole program: its counts and shares are too low")
    state.choice = _choose(live, selection, found)


def _stops(live: Live, found: Survey) -> str | None:
    """Why the profiled run of a program may end before the program does; None where it may not.

    A program that has run to its end once, well, and that wrote to no disk meanwhile leaves nothing half done when it
    is stopped: so that is the default where the run is long enough to be worth it.
    """
    if live.replay != "kernel":  # application replay needs whole runs: one for each pass
        return None
    if live.stop is not None:
        return "--stop" if live.stop else None
    ended_well = found.complete and found.target_exit == 0
    if not ended_well or found.wrote_bytes != 0 or (found.seconds or 0.0) < _STOP_FROM_S:
        return None
    return "it ran to its end before and wrote to no disk; --no-stop lets it go on"


def _show(found: Survey, live: Live) -> bool:
    """Passes on what the program printed in the survey's run, because the profiled run's output will be cut off."""
    if found.output is None:
        return False
    if live.target_output is not None:
        check_writable(live.target_output.parent)
        live.target_output.write_bytes(found.output)
    else:
        with contextlib.suppress(OSError):
            sink = os.fdopen(os.dup(2), "wb")
            with sink:
                sink.write(found.output)
    return True


def _collect(
    words: tuple[str, ...],
    live: Live,
    asked: Asked,
    plan: Plan,
    profile: Path,
    state: _State,
    progress: Progress,
) -> Collected:
    options = CollectOptions(
        target=words,
        profile=profile,
        plan=plan,
        ncu=asked.ncu,
        timeout_s=asked.timeout_s,
        given_s=asked.given_s,
        target_output=live.target_output,
        show_output=not state.shown,
    )
    with stdin_put_back():
        return collect(options, progress)


def _read(collected: Collected, asked: Asked) -> Profile:
    assert collected.profile is not None
    try:
        profile = read_reports([collected.profile], source=asked.source, ncu=collected.ncu_path)
    except DiagnoseError as error:
        if collected.saved:
            raise
        raise DiagnoseError(
            f"{collected.profiled} launches were profiled, and their report could not be written: {error.message}",
            f"df -h {collected.profile.parent}    (diagnose -o DIR/report.html names a folder on another disk)",
            EXIT_NOTHING_MEASURED,
        ) from error
    place = launchers.placement()
    rank = place.rank if place is not None and place.shared else None
    runs = tuple(
        replace(
            run,
            ncu_version=run.ncu_version or collected.ncu_version,
            clock_control=collected.clock_control,
            cache_control=collected.cache_control,
            replay=collected.replay,
            target_exit=collected.target_exit,
            date=collected.date,
            driver=driver_version(),
            rank=run.rank if run.rank is not None else rank,
        )
        for run in profile.runs
    )
    return replace(profile, runs=runs)


def _count(profile: Profile, state: _State) -> Profile:
    if state.survey is None:
        return profile
    profile, state.profiled = counting.counted(profile, counting.standing(state.survey, state.choice))
    return profile


def _not_chosen(choice: Choice, found: Survey, live: Live) -> list[str]:
    """What the survey's choice leaves out, the longest first."""
    if not choice.left_out or not found.total_us:
        return []
    share = sum(one.total_us for one in choice.left_out) / found.total_us
    names = list(dict.fromkeys(one.name for one in choice.left_out))
    told = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    line = f"left out: {len(choice.left_out)} kernels and launch configurations with {share:.1%} of the GPU time"
    admitted = (*choice.chosen, *choice.left_out)
    needed = len(counting.choose(admitted, len(admitted), live.coverage).chosen)
    more = f" (--top {needed} would reach it)" if needed > len(choice.chosen) and not choice.by_name else ""
    return [f"{line}, beyond --top {live.top} or --coverage {live.coverage:g}{more}: {told}"]


def _ran_on(live: Live, collected: Collected, expected: int) -> list[str]:
    """What --stop would have saved, where that is worth saying."""
    rest, whole = collected.rest_s, collected.seconds
    if live.stop is not None or not expected or collected.profiled < expected or rest is None or whole is None:
        return []
    if rest < max(_WORTH_SAYING_S, _WORTH_SAYING * whole):
        return []
    return [f"the program ran on for {rest:.0f} s after the last chosen launch was profiled: --stop ends it there"]


# --- the second run


def open_metrics(kernel: KernelProfile, ask: Ask, deferred: Sequence[str]) -> tuple[str, ...]:
    """The deferred metrics that rules without an answer need of a kernel whose verdict is not certain."""
    found = ask(kernel)
    if found.verdict.confidence == "high" and found.verdict.klass != "unknown":
        return ()
    wanted: set[str] = set()
    for one in found.not_evaluated:
        needs = [[m for m in deferred if fnmatchcase(m, name.split(" ")[0])] for name in one.missing]
        if all(needs):  # a rule that also lacks what no run measures stays open whatever is measured
            wanted.update(metric for those in needs for metric in those)
    return tuple(metric for metric in deferred if metric in wanted)


def _second_run(
    words: tuple[str, ...],
    live: Live,
    asked: Asked,
    first: MetricSet,
    profile: Profile,
    state: _State,
    progress: Progress,
) -> tuple[Profile, list[str]]:
    """Measures what open hypotheses need, where the kernels concerned hold more time than what may stay uncovered."""
    if live.mode != "adaptive" or not first.deferred or live.replay in ("range", "app-range"):
        return profile, []
    needs = {kernel.index: open_metrics(kernel, asked.ask, first.deferred) for kernel in profile.kernels}
    open_kernels = [kernel for kernel in profile.kernels if needs[kernel.index]]
    total = sum(map(_weight, profile.kernels))
    share = sum(map(_weight, open_kernels)) / total if total else 0.0
    if not open_kernels or share <= 1 - live.coverage:
        return profile, []
    metrics = tuple(dict.fromkeys(metric for kernel in open_kernels for metric in needs[kernel.index]))
    names = ", ".join(dict.fromkeys(kernel.name for kernel in open_kernels))[:200]
    if launchers.one_of_many() or not stdin_can_be_read_again() or any(not kernel.mangled for kernel in open_kernels):
        return profile, [f"not measured for {names}: {', '.join(metrics)} (diagnose --deep measures all at once)"]
    selection = replace(
        live.selection(asked.kernel),
        names=tuple(dict.fromkeys(kernel.mangled for kernel in open_kernels)),
        max_launches=max(live.cap, len(profile.kernels)),
        by_name=state.choice is not None and state.choice.by_name,
    )
    plan = Plan(
        metrics=(*FINGERPRINT, *metrics),
        sections=("LaunchStats",),
        selection=selection,
        clock_control=live.clock_control,
        cache_control=live.cache_control,
        replay=live.replay,
        graph=live.graph,
        import_source=False,
        apply_rules=False,
        enough=len(open_kernels) if state.stop_reason else None,
        stop_reason=state.stop_reason or "",
    )
    progress(f"second run: {len(metrics)} more metrics decide what limits {names}")
    place = _free(live.profile.with_name(f"{live.profile.stem}-more{live.profile.suffix}"))
    try:
        collected = _collect(words, live, asked, plan, place, state, progress)
    except DiagnoseError as error:
        return profile, [f"the second run measured nothing: {error.message}"]
    if collected.profile is None:
        return profile, ["the second run was interrupted: what it was to measure is unknown"]
    state.runs.append(_run_entry("second", collected))
    joined, refused = join(profile, _read(collected, asked))
    return joined, [*collected.warnings, *refused]


def _weight(kernel: KernelProfile) -> float:
    """The time that a result stands for, in microseconds."""
    if kernel.counted is not None:
        return kernel.counted.total_us
    return (kernel.number("gpu__time_duration.sum") or 0.0) / 1e3


def _free(path: Path) -> Path:
    number, free = 1, path
    while free.exists():
        number += 1
        free = path.with_name(f"{path.stem}-{number}{path.suffix}")
    return free


# --- going on with an earlier run


def survey_file(report: Path) -> Path:
    """Where the survey of an incomplete run is kept: beside its report."""
    return report.with_suffix(".survey.json")


def _resumable(live: Live, state: _State, collected: Collected) -> list[str]:
    """Keeps the survey for `--resume`; what to say of it."""
    if collected.profile is None:
        return []
    earlier = " ".join(f"--resume {path}" for path in (*live.resume, collected.profile))
    if state.survey is not None:
        survey_file(collected.profile).write_text(counting.to_json(state.survey), "utf-8")
    return [f"what is profiled is kept: diagnose {earlier} … goes on with what is missing"]


def _kept(live: Live, asked: Asked, progress: Progress) -> Profile:
    progress(f"resume: reading {', '.join(map(str, live.resume))}")
    return read_reports(list(live.resume), source=asked.source, ncu=Path(asked.ncu) if asked.ncu else None)


def _kept_survey(live: Live) -> Survey | None:
    for report in live.resume:
        file = survey_file(report)
        if file.is_file():
            try:
                return counting.from_json(file.read_text("utf-8"))
            except (OSError, ValueError) as error:
                raise DiagnoseError(
                    f"{file} cannot be used: {error}", f"rm {file}    (the survey runs again)"
                ) from None
    return None


def _without_kept(choice: Choice, kept: Profile | None) -> Choice:
    if kept is None:
        return choice
    done = {one.key for kernel in kept.kernels if (one := counting.configuration_of(kernel)) is not None}
    return replace(choice, chosen=tuple(one for one in choice.chosen if one.key not in done))


def _only_kept(live: Live, kept: Profile, state: _State, progress: Progress) -> Profiled:
    """Everything chosen is in the kept reports: nothing runs."""
    progress("resume: every chosen launch is profiled already")
    live.profile.unlink(missing_ok=True)
    run = kept.runs[0]
    collected = Collected(
        profile=live.resume[0],
        ncu_path=Path("ncu"),
        ncu_version=run.ncu_version,
        command=(),
        target_exit=None,
        warnings=(),
        left_out=(),
        interrupted=False,
        timed_out=False,
        clock_control=run.clock_control or "",
        cache_control=run.cache_control or "",
        replay=run.replay or "",
        profiled=0,
    )
    profile = _count(kept, state)
    return Profiled(profile, collected, tuple(state.notes), _covered(state), _document(live, state))


# --- for the document


def _covered(state: _State) -> float | None:
    """The share of the program's GPU time that the profiled kernels and configurations took; None where not known."""
    if state.survey is None or not state.survey.complete or state.survey.total_us <= 0:
        return None
    return sum(one.total_us for one in state.profiled) / state.survey.total_us


def _run_entry(stage: str, collected: Collected) -> dict[str, Any]:
    passes = collected.passes
    return {
        "stage": stage,
        "seconds": None if collected.seconds is None else round(collected.seconds, 3),
        "profiled": collected.profiled,
        "passes": sum(passes) if passes else None,
        "passes_per_launch": [min(passes), max(passes)] if passes else None,
        "report_bytes": collected.profile.stat().st_size if collected.profile is not None else None,
    }


def _document(live: Live, state: _State) -> dict[str, Any]:
    """The document's `collection`: how the results came about, and what is not among them."""
    found, done = state.survey, {one.key for one in state.profiled}
    entry: dict[str, Any] = {"mode": live.mode, "runs": state.runs, "survey": None, "left_out": []}
    if found is None:
        return entry
    entry["survey"] = {
        "method": found.method,
        "complete": found.complete,
        "seconds": None if found.seconds is None else round(found.seconds, 3),
        "launches": found.launches,
        "configurations": len(found.configurations),
        "gpu_time_us": round(found.total_us, 3),
        "top": live.top,
        "coverage": live.coverage,
        "clocks": asdict(found.clocks) if found.clocks is not None else None,
        "wrote_bytes": found.wrote_bytes,
    }
    rows = counting.standing(found, state.choice).configurations
    rest = sorted((one for one in rows if one.key not in done), key=lambda one: -one.total_us)
    entry["left_out"] = [
        {
            "name": one.name,
            "grid": list(one.grid),
            "block": list(one.block),
            "launches": one.launches,
            "time_share": round(one.total_us / found.total_us, 6) if found.total_us else None,
        }
        for one in rest[:MOST_LEFT_OUT]
    ]
    entry["left_out_configurations"] = len(rest)
    return entry


MOST_LEFT_OUT = 50  # entries of the document: enough to see what they are; their number is told besides
