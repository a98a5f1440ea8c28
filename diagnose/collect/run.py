"""Runs a program under ncu and keeps what was profiled."""

from __future__ import annotations

import contextlib
import datetime
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from diagnose.collect import launchers
from diagnose.collect.failures import Context, NcuLog, exit_in_words, explain_errors, explain_no_kernels, read_log
from diagnose.collect.find import find_ncu, ncu_version, parse_version
from diagnose.collect.plan import COLLECTIVES, Plan, counts_configurations, ncu_command, selection_in_words
from diagnose.collect.preflight import check_writable, reserve, resolve_target
from diagnose.collect.process import POLL_S, Interrupts, Tail, kill_tree, pump, stdin_is_terminal, tree
from diagnose.errors import EXIT_NOTHING_MEASURED, DiagnoseError

_MOST_WARNINGS = 20
# ncu says after 2 s of one launch that it does not come back; one that takes a minute is no launch to replay.
WAITS_S = 60.0
# ncu else copies its section files into the home folder, which may be read-only, and uses the user's edited copies.
_STOCK_SECTIONS = "NV_COMPUTE_PROFILER_DISABLE_STOCK_FILE_DEPLOYMENT"


@dataclass(frozen=True)
class CollectOptions:
    """What to run and how long. `profile` is where the report goes: a free name, or one reserved by `free_paths`.

    `timeout_s` is what is left here of the time that the user gave, `given_s` (the same where it is None). Without
    `show_output` what the target prints is dropped.
    """

    target: tuple[str, ...]
    profile: Path
    plan: Plan = field(default_factory=Plan)
    ncu: str | None = None
    timeout_s: float | None = None
    given_s: float | None = None
    stall_s: float = 300.0
    grace_s: float = 60.0
    target_output: Path | None = None
    show_output: bool = True

    @property
    def limit(self) -> float:
        """The time limit as the user gave it, in seconds; 0 where there is none."""
        return self.given_s or self.timeout_s or 0.0


@dataclass(frozen=True)
class Collected:
    """What a live run gave. `profile` is None where it was interrupted before anything was written.

    `target_exit` is None where ncu did not say how the target ended. `left_out` says what was not profiled. `date` is
    that of the start, in ISO 8601 with the zone; `seconds` the wall time of ncu; `saved` is False where ncu could not
    write the report to its end. `rest_s` is how long the program ran on after the last profiled launch, None where none
    was.
    """

    profile: Path | None
    ncu_path: Path
    ncu_version: str | None
    command: tuple[str, ...]
    target_exit: int | None
    warnings: tuple[str, ...]
    left_out: tuple[str, ...]
    interrupted: bool
    timed_out: bool
    clock_control: str
    cache_control: str
    replay: str
    profiled: int
    date: str | None = None
    seconds: float | None = None
    passes: tuple[int, ...] = ()
    saved: bool = True
    rest_s: float | None = None


@dataclass(frozen=True)
class _Outcome:
    log: NcuLog
    tail: str
    ncu_exit: int
    interrupted: bool
    timed_out: bool
    stalled: str | None
    capped: bool
    rest_s: float | None


def _interrupt_ncu(pid: int) -> None:
    """Asks ncu to stop and to write what it has. CUDA's `ncu` is a shell script around the program of that name."""
    for one in tree(pid):
        with contextlib.suppress(OSError):
            if one == pid or Path(f"/proc/{one}/comm").read_bytes().strip() == b"ncu":
                os.kill(one, signal.SIGINT)


class _Log:
    """ncu's log file, read as it grows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self.parsed = NcuLog()
        self.profiled_at: float | None = None  # when the last result was seen

    def refresh(self) -> bool:
        """Whether it grew since the last call."""
        try:
            size = self.path.stat().st_size
        except OSError:
            return False
        if size == self.size:
            return False
        self.size = size
        before = self.parsed.profiled
        self.parsed = read_log(self.path.read_text("utf-8", "replace"))
        if self.parsed.profiled > before:
            self.profiled_at = time.monotonic()
        return True


def _patience(log: NcuLog, options: CollectOptions) -> float:
    """Seconds without progress after which a launch counts as hanging."""
    return min(options.stall_s, WAITS_S) if log.waits else options.stall_s


def _watch(
    process: subprocess.Popen[bytes],
    log: _Log,
    options: CollectOptions,
    interrupts: Interrupts,
    own_group: bool,
    most: int | None,
    progress: Callable[[str], None],
) -> tuple[bool, bool, str | None, bool]:
    """Waits for ncu; stops it when it begins more than `most` launches, or has as many as the plan calls enough.

    Returns (interrupted, timed out, the kernel that hung, stopped at the cap).
    """
    started = last_progress = time.monotonic()
    told = 0
    timed_out = capped = False
    stalled: str | None = None
    stop_by: float | None = None
    seen_interrupts = 0
    while process.poll() is None:
        time.sleep(POLL_S)
        now = time.monotonic()
        if log.refresh():
            last_progress = now
            for launch in log.parsed.done[told:]:
                told += 1
                progress(f"profiled {told}: {launch.name} ({launch.passes} passes)")
        if stop_by is not None:
            if now > stop_by or interrupts.count > max(seen_interrupts, 1):
                kill_tree(process.pid)
                process.wait()
            continue
        if interrupts.count:
            seen_interrupts = interrupts.count
            progress("interrupted: ncu writes what it has profiled (again: stop at once)")
            # At a terminal ncu is in the same process group, so the terminal has told it already.
            if own_group:
                _interrupt_ncu(process.pid)
        elif options.timeout_s is not None and now - started > options.timeout_s:
            timed_out = True
            progress(f"stopped after {options.limit:g} s (--timeout)")
            _interrupt_ncu(process.pid)
        elif most is not None and len(log.parsed.launches) > most and log.parsed.profiled >= most:
            capped = True
            progress(f"stopped: {log.parsed.profiled} launches are profiled (--max-launches {most})")
            _interrupt_ncu(process.pid)
        elif options.plan.enough is not None and log.parsed.profiled >= options.plan.enough:
            capped = True
            progress(f"stopped: all {log.parsed.profiled} chosen launches are profiled ({options.plan.stop_reason})")
            _interrupt_ncu(process.pid)
        elif log.parsed.replaying is not None and now - last_progress > _patience(log.parsed, options):
            stalled = log.parsed.replaying
            progress(f"stopped: no progress for {_patience(log.parsed, options):g} s in {stalled}")
            _interrupt_ncu(process.pid)
        else:
            continue
        stop_by = now + options.grace_s
    return interrupts.count > 0, timed_out, stalled, capped


def _execute(
    command: list[str], log_file: Path, options: CollectOptions, most: int | None, progress: Callable[[str], None]
) -> _Outcome:
    log = _Log(log_file)
    tail = Tail()
    interrupts = Interrupts()
    own_group = not stdin_is_terminal()  # a background group could not read the terminal
    with contextlib.ExitStack() as stack:
        sink = 2 if options.show_output else None
        if options.target_output is not None and options.show_output:
            sink = stack.enter_context(options.target_output.open("wb", buffering=0)).fileno()
        stack.enter_context(interrupts.caught())
        try:
            process = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=own_group,
                env={
                    _STOCK_SECTIONS: "1",
                    **launchers.environment(options.plan.selection.profiler_range),
                    **os.environ,
                },
            )
        except OSError as error:
            raise DiagnoseError(
                f"{command[0]} cannot be started: {error.strerror or error}", "diagnose doctor", EXIT_NOTHING_MEASURED
            ) from error
        assert process.stdout is not None
        passing = threading.Thread(target=pump, args=(process.stdout, sink, tail), daemon=True)
        passing.start()
        try:
            interrupted, timed_out, stalled, capped = _watch(
                process, log, options, interrupts, own_group, most, progress
            )
        except BaseException:
            kill_tree(process.pid)
            process.wait()
            raise
        if interrupted or timed_out or stalled or capped:
            if own_group:
                with contextlib.suppress(OSError):
                    os.killpg(process.pid, signal.SIGKILL)
        ended = time.monotonic()
        passing.join(timeout=2.0)  # a daemon that the target left behind may keep the pipe open
        log.refresh()
    text = tail.read().decode("utf-8", "replace")
    rest_s = max(0.0, ended - log.profiled_at) if log.profiled_at is not None else None
    return _Outcome(log.parsed, text, process.returncode, interrupted, timed_out, stalled, capped, rest_s)


def _written(profile: Path) -> Path | None:
    """The report that ncu wrote: under the given name, or with the suffix that some versions add or change."""
    names = (profile, profile.with_name(profile.name + ".ncu-rep"), profile.with_suffix(".ncu-repz"))
    return next((path for path in names if path.is_file() and path.stat().st_size > 0), None)


def _left_out(plan: Plan, version: str | None, profiled: int, capped: bool) -> tuple[str, ...]:
    lines = []
    if repeats := selection_in_words(plan.selection, parse_version(version)):
        lines.append(repeats)
    if plan.selection.kernel is None:
        names = ", ".join(f"{name}*" for name in COLLECTIVES)
        lines.append(f"collectives ({names}), which wait for other GPUs and hang when replayed")
    else:
        lines.append(f"kernels that do not match --kernel {plan.selection.kernel}")
    if plan.selection.window or plan.selection.nvtx or plan.selection.devices or plan.selection.process:
        lines.append(f"launches that the filters leave out: {plan.selection.in_words()}")
    if plan.enough is not None and capped and profiled >= plan.enough:
        why = plan.stop_reason
        lines.append(f"the rest of the program, which was stopped when the chosen launches were profiled ({why})")
    elif profiled >= plan.selection.most:
        stopped = ": the program was stopped there" if capped else ""
        option = (
            f"--launch-count {plan.selection.count}"
            if plan.selection.most == plan.selection.count
            else f"--max-launches {plan.selection.max_launches}"
        )
        lines.append(f"launches after the first {profiled} ({option}){stopped}")
    return tuple(lines)


def _warnings(outcome: _Outcome, options: CollectOptions, context: Context, kept: bool) -> tuple[str, ...]:
    log = outcome.log
    found = [*log.warnings]
    stopped = outcome.interrupted or outcome.timed_out or outcome.stalled is not None or outcome.capped
    if outcome.interrupted:
        found.append(f"interrupted: only the {log.profiled} launches before that were profiled")
    if outcome.timed_out:
        found.append(f"stopped after {options.limit:g} s (--timeout): only {log.profiled} launches were profiled")
    if log.unsaved is not None:
        found.append(
            f"ncu could not write the report to its end ({log.unsaved}): is the disk full? Results are missing"
        )
    if outcome.stalled is not None:
        found.append(
            f"{outcome.stalled} made no progress for {_patience(log, options):g} s under replay and was stopped"
        )
    if not stopped and kept:
        if cause := explain_errors(replace(log, warnings=()), outcome.tail, context):
            found.append(f"profiling ended early: {cause.message} ({cause.hint})")
        elif any(error.startswith("Failed to profile") for error in log.errors):
            found.append(f"profiling ended early: {next(e for e in log.errors if e.startswith('Failed to profile'))}")
        elif log.target_exit:
            status = exit_in_words(log.target_exit)
            found.append(f"{options.target[0]} exited with status {status} after {log.profiled} launches were profiled")
    if len(found) > _MOST_WARNINGS:
        found = [*found[:_MOST_WARNINGS], f"{len(found) - _MOST_WARNINGS} more warnings by ncu are not shown"]
    return tuple(found)


def _conclude(outcome: _Outcome, options: CollectOptions, context: Context, command: list[str]) -> Collected:
    log = outcome.log
    written = _written(options.profile)
    # ncu also writes a report when no kernel was profiled.
    kept = written is not None and not (log.no_kernels or (log.profiled == 0 and (log.errors or log.launches)))
    if not kept and not outcome.interrupted:
        if outcome.stalled is not None:
            raise DiagnoseError(
                f"the kernel {outcome.stalled} made no progress for {_patience(log, options):g} s under ncu's replay",
                "diagnose --replay application …    (a kernel that waits for another kernel, for a GPU or for the host "
                "never ends when it is replayed alone; --kernel NAME leaves it out)",
                EXIT_NOTHING_MEASURED,
            )
        if outcome.timed_out:
            raise DiagnoseError(
                f"no profile was written within {options.limit:g} s (--timeout)",
                f"diagnose --timeout {4 * (options.limit or 1):g} …    (or a smaller problem, or --kernel NAME)",
                EXIT_NOTHING_MEASURED,
            )
        if log.profiled and not log.no_kernels:
            cause = explain_errors(log, outcome.tail, context)
            raise cause or DiagnoseError(
                f"{context.ncu_named} profiled {log.profiled} launches but wrote no report; it exited with status "
                f"{exit_in_words(outcome.ncu_exit)}" + (f": {log.errors[-1]}" if log.errors else ""),
                f"df -h {options.profile.parent}    (is the disk full?)",
                EXIT_NOTHING_MEASURED,
            )
        raise explain_no_kernels(log, outcome.tail, context)
    target_exit = None if outcome.capped else log.target_exit  # a program that was stopped has no status of its own
    if target_exit is None and outcome.ncu_exit == 0 and not outcome.capped:
        target_exit = 0
    return Collected(
        profile=written if kept else None,
        ncu_path=context.ncu,
        ncu_version=context.version,
        command=tuple(command),
        target_exit=target_exit,
        warnings=_warnings(outcome, options, context, kept),
        left_out=_left_out(options.plan, context.version, log.profiled, outcome.capped),
        interrupted=outcome.interrupted,
        timed_out=outcome.timed_out,
        clock_control=options.plan.clock_control,
        cache_control=options.plan.cache_control,
        replay=options.plan.replay,
        profiled=log.profiled,
        passes=tuple(launch.passes for launch in log.done if launch.passes is not None),
        saved=log.unsaved is None,
        rest_s=outcome.rest_s,
    )


def _without(plan: Plan, unknown: tuple[str, ...]) -> Plan:
    """The plan without the metrics that this ncu does not know (it names them by their beginning)."""
    return replace(plan, metrics=tuple(m for m in plan.metrics if not m.startswith(unknown)))


def _collect(options: CollectOptions, ncu: Path, version: str | None, progress: Callable[[str], None]) -> Collected:
    dropped: tuple[str, ...] = ()
    plan = options.plan
    # Where ncu counts launches by configuration, its own limit is not one of the whole run.
    most = plan.selection.most if counts_configurations(plan.selection, parse_version(version)) else None
    began, date = time.monotonic(), datetime.datetime.now().astimezone().isoformat(timespec="seconds")
    with tempfile.TemporaryDirectory(prefix="diagnose-") as folder:
        log_file = Path(folder) / "ncu.log"
        while True:
            command = ncu_command(plan, options.target, ncu, version, options.profile.absolute(), log_file)
            outcome = _execute(command, log_file, options, most, progress)
            unknown = outcome.log.unknown_metrics
            smaller = _without(plan, unknown) if unknown else plan
            # ncu refuses unknown metrics before the target starts, so it can be asked again without them.
            if not unknown or outcome.log.profiled or outcome.interrupted or smaller == plan:
                break
            dropped += unknown
            plan = smaller
            log_file.unlink(missing_ok=True)
            progress(f"this ncu does not know {len(unknown)} metric(s); asking without them")
    context = Context(
        ncu, version, options.target, plan.selection.kernel, outcome.ncu_exit, plan.selection.other_filters()
    )
    collected = _conclude(outcome, replace(options, plan=plan), context, command)
    collected = replace(collected, date=date, seconds=time.monotonic() - began)
    if dropped:
        lacking = f"not measured, because ncu {version or ''} does not know them: {', '.join(dropped)}"
        collected = replace(collected, warnings=(lacking, *collected.warnings))
    return collected


def collect(options: CollectOptions, progress: Callable[[str], None]) -> Collected:
    """Runs the target under ncu. Raises DiagnoseError where nothing was measured; keeps what was otherwise.

    Fails before it profiles where the target cannot be run, the profile cannot be written, or there is no ncu.
    """
    target = resolve_target(options.target)
    options = replace(options, target=target)
    check_writable(options.profile.parent)
    if options.target_output is not None:
        check_writable(options.target_output.parent)
    try:
        reserve(options.profile)
    except FileExistsError:
        if options.profile.stat().st_size:
            raise DiagnoseError(
                f"{options.profile} exists and is not overwritten", "diagnose -o OTHER.html …    (another name)"
            ) from None
    try:
        ncu = find_ncu(options.ncu)
        if ncu is None:
            raise DiagnoseError(
                "no ncu (Nsight Compute) was found on PATH or in CUDA's usual places",
                "diagnose doctor    (says how to get it; --ncu PATH or DIAGNOSE_NCU names one)",
                EXIT_NOTHING_MEASURED,
            )
        version = ncu_version(ncu)
        progress(f"ncu {version or '(unknown version)'} at {ncu} profiles {' '.join(target)}")
        collected = _collect(options, ncu, version, progress)
        if collected.profile is None:
            options.profile.unlink(missing_ok=True)
        return collected
    except BaseException:
        options.profile.unlink(missing_ok=True)
        raise
    finally:
        with contextlib.suppress(OSError):
            if options.profile.stat().st_size == 0:
                options.profile.unlink()
