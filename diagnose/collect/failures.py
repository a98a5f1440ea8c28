"""ncu's messages, and what a failed run means: one error line and one hint each."""

from __future__ import annotations

import difflib
import os
import pwd
import re
import shutil
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from diagnose.collect import launchers
from diagnose.collect.host import container, driver_version, is_wsl
from diagnose.collect.names import function_of
from diagnose.errors import EXIT_NOTHING_MEASURED, DiagnoseError

_PROFILING = re.compile(r'^==PROF== Profiling (?:"(?P<name>.*?)"|(?P<other>[^:]+))(?P<rest>.*)$')
_PASSES = re.compile(r"(\d+) pass(?:es)?\s*$")
_EXIT = re.compile(r"The application returned an error code \((-?\d+)\)")
_UNKNOWN_METRIC = re.compile(r"Failed to find metric (?:regex:)?\^?([A-Za-z0-9_.:\\]+)")
# A chip or an instance (MIG) without such counters, seen with `nvlrx__bytes.sum` on a GPU without a link.
_NO_ACCESS = re.compile(r"==ERROR== Unable to access the following \d+ metrics?: ([A-Za-z0-9_., ]+)")
# For whole graphs and ranges ncu names the first such metric and gives up (seen with --graph-profiling graph).
_NOT_IN_RANGES = re.compile(r"==ERROR== Metric ([A-Za-z0-9_.]+) is not supported in range replay")
# What ncu says, after 2 s, of a launch that does not come back: `peer` of tests/gpu/failures.py.
_SLOW_LAUNCH = "Launching the workload is taking more time than expected"
# With `--kernel-id` a launch is called context:stream:name:invocation.
_LAUNCH_ID = re.compile(r"^\d+:\d+:(?P<name>.+):\d+$")
_DROPPED_WARNINGS = (
    "No kernels were profiled",
    "Profiling kernels launched by child processes requires",
    "Note: Running with unmodified GPU clocks",  # every duration is shown with its clock control
    "Note that specified NVTX include expressions match only push/pop ranges",
    "Refer https://docs.nvidia.com/",
    _SLOW_LAUNCH,  # `NcuLog.waits` says it
)


@dataclass(frozen=True)
class Launch:
    """One `==PROF== Profiling "name"` line; `passes` is None while (or where) it did not end."""

    name: str
    passes: int | None


@dataclass(frozen=True)
class NcuLog:
    """What ncu said: launches, errors, warnings, the target's exit status, and the kernels that it saw.

    `unknown_metrics` are those that this ncu, GPU or instance does not have. `unsaved` is the report that could not be
    written to the end, `crashed` the kernel that failed on the GPU.
    """

    launches: tuple[Launch, ...] = ()
    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    no_kernels: bool = False
    target_exit: int | None = None
    connected: bool = False
    available: tuple[str, ...] = ()
    report: str | None = None
    unknown_metrics: tuple[str, ...] = ()
    unsaved: str | None = None
    crashed: str | None = None
    slow: bool = False

    @property
    def done(self) -> tuple[Launch, ...]:
        """The launches that were profiled to the end."""
        return tuple(launch for launch in self.launches if launch.passes is not None)

    @property
    def profiled(self) -> int:
        """How many launches were profiled to the end."""
        return len(self.done)

    @property
    def waits(self) -> bool:
        """Whether ncu itself says that the launch in progress does not come back."""
        return self.slow and self.replaying is not None

    @property
    def replaying(self) -> str | None:
        """The kernel that is being replayed, if one is."""
        return self.launches[-1].name if self.launches and self.launches[-1].passes is None else None


@dataclass
class _Reading:
    launches: list[Launch] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    available: list[str] = field(default_factory=list)
    in_available: bool = False
    slow: int | None = None  # the last launch of which ncu said that it does not come back


def read_log(text: str) -> NcuLog:
    """Reads ncu's messages. Lines without a `==…==` mark belong to the list that a mark before them opened."""
    seen = _Reading()
    for line in text.splitlines():
        if seen.in_available and (entry := re.match(r"^\d+\.\s+(.*\S)", line)):
            seen.available.append(entry[1])
            continue
        seen.in_available = line.startswith("Available Kernels")
        if profiling := _PROFILING.match(line):
            passes = _PASSES.search(profiling["rest"])
            name = profiling["name"] or (profiling["other"] or "").strip()
            if numbered := _LAUNCH_ID.match(name):
                name = numbered["name"]
            name = function_of(name)
            seen.launches.append(Launch(name, int(passes[1]) if passes else None))
            if _SLOW_LAUNCH in line:
                seen.slow = len(seen.launches) - 1
        elif (passes := _PASSES.search(line)) and seen.launches and seen.launches[-1].passes is None:
            # The percentages went to the log in pieces, with other lines between them.
            seen.launches[-1] = Launch(seen.launches[-1].name, int(passes[1]))
        if "==ERROR==" in line:
            seen.errors.append(line.split("==ERROR==", 1)[1].strip())
        elif "==WARNING==" in line:
            seen.warnings.append(line.split("==WARNING==", 1)[1].strip())
    for error in seen.errors:  # "12 passes" is printed for a launch that failed, too
        if failed := re.match(r'Failed to profile "(.*)" in process', error):
            for place in range(len(seen.launches) - 1, -1, -1):
                if seen.launches[place].name == function_of(failed[1]):
                    seen.launches[place] = Launch(failed[1], None)
                    break
    crashed = None
    if "LaunchFailed" in seen.errors and seen.launches:  # after a trap, an assertion or a wild address: no counters
        crashed = seen.launches[-1].name
        seen.launches[-1] = Launch(crashed, None)
    unsaved = re.search(r"Failed to save the report to file (.*\S)", text)
    no_access = _NOT_IN_RANGES.findall(text)
    no_access += [name.strip(" .") for names in _NO_ACCESS.findall(text) for name in names.split(",")]
    exits = _EXIT.findall(text)
    reports = re.findall(r"^==PROF== Report: (.*\S)", text, re.MULTILINE)
    return NcuLog(
        launches=tuple(seen.launches),
        errors=tuple(dict.fromkeys(seen.errors)),
        warnings=tuple(w for w in dict.fromkeys(seen.warnings) if not w.startswith(_DROPPED_WARNINGS)),
        no_kernels="No kernels were profiled" in text,
        target_exit=int(exits[-1]) if exits else None,
        connected="==PROF== Connected to process" in text,
        available=tuple(dict.fromkeys(seen.available)),
        report=reports[-1] if reports else None,
        # ncu writes a name without its suffix as `^name\\.(sum|…)$`.
        unknown_metrics=tuple(
            dict.fromkeys(
                [
                    *(name.replace("\\", "").rstrip(".") for name in _UNKNOWN_METRIC.findall(text)),
                    *filter(None, no_access),
                ]
            )
        ),
        unsaved=unsaved[1] if unsaved else None,
        crashed=crashed,
        slow=seen.slow is not None and seen.slow == len(seen.launches) - 1,
    )


@dataclass(frozen=True)
class Context:
    """What an explanation may name."""

    ncu: Path
    version: str | None
    target: tuple[str, ...]
    kernel_filter: str | None
    ncu_exit: int | None = None
    filters: tuple[str, ...] = ()  # the other filters in force, as they were given: `--nvtx step/`

    @property
    def ncu_named(self) -> str:
        """`ncu 2025.3.1.0 (/resolved/path)`."""
        return f"ncu {self.version or 'of unknown version'} ({os.path.realpath(self.ncu)})"


def _permission(found: re.Match[str], context: Context) -> DiagnoseError:
    host = "on the host: options nvidia NVreg_RestrictProfilingToAdminUsers=0 in /etc/modprobe.d, then reboot"
    inside = "start the container with --cap-add=SYS_ADMIN"
    provider = "on a rented or shared machine: ask its provider, you cannot change it yourself"
    if is_wsl():
        hint = "Windows: NVIDIA Control Panel > Developer > Manage GPU Performance Counters > allow access to all users"
    elif kind := container():
        hint = f"this is a container ({kind}): {inside}; or {host}; {provider}; diagnose doctor"
    elif os.geteuid() == 0:
        hint = f"{host}; if this is a container, {inside}; {provider}; diagnose doctor"
    else:
        hint = f"sudo -E diagnose …; or {host}; in a container: {inside}; {provider}; diagnose doctor"
    return DiagnoseError(
        f"no permission to read the GPU's performance counters (ERR_NVGPUCTRPERM, {context.ncu_named})",
        hint,
        EXIT_NOTHING_MEASURED,
    )


def _driver(found: re.Match[str], context: Context) -> DiagnoseError:
    return DiagnoseError(
        f"driver {driver_version() or 'of unknown version'} does not fit {context.ncu_named}: {found[0]}",
        "diagnose --ncu PATH …    (an ncu no newer than the driver; diagnose doctor lists those found)",
        EXIT_NOTHING_MEASURED,
    )


def _stub(found: re.Match[str], context: Context) -> DiagnoseError:
    return DiagnoseError(
        f"{context.ncu_named} cannot reach the CUDA driver: {found[0]}",
        "diagnose doctor    (shows the driver; remove CUDA's lib64/stubs from LD_LIBRARY_PATH, "
        "start a container with --gpus all)",
        EXIT_NOTHING_MEASURED,
    )


def _unsupported(found: re.Match[str], context: Context) -> DiagnoseError:
    return DiagnoseError(
        f"{context.ncu_named} does not support this GPU: {found[0]}",
        f"{context.ncu} --list-chips    (the GPUs it knows; choose another with --ncu PATH)",
        EXIT_NOTHING_MEASURED,
    )


def _mig(found: re.Match[str], context: Context) -> DiagnoseError:
    return DiagnoseError(
        f"ncu cannot profile on this MIG instance: {found[0]}",
        "diagnose doctor    (shows MIG; profile on a GPU without MIG: units shared between instances are not counted)",
        EXIT_NOTHING_MEASURED,
    )


def _agent(found: re.Match[str], context: Context) -> DiagnoseError:
    hint = "dcgmi profile --pause    (a monitoring agent such as DCGM holds the counters; afterwards --resume)"
    if is_wsl():
        hint = "Windows: NVIDIA Control Panel > Developer > Manage GPU Performance Counters > allow access to all users"
    return DiagnoseError(
        "the GPU's performance counters are in use by another tool, such as DCGM (a driver resource was unavailable)",
        hint,
        EXIT_NOTHING_MEASURED,
    )


def owner_of(path: str) -> str:
    """The name of the user who owns `path`, or `unknown`."""
    try:
        return pwd.getpwuid(os.stat(path).st_uid).pw_name
    except (OSError, KeyError):
        return "unknown"


def _lock(found: re.Match[str], context: Context) -> DiagnoseError:
    lock = found["path"].rstrip(".")
    return DiagnoseError(
        f"ncu may not open its lock file {lock} (owner: {owner_of(lock)})",
        f"TMPDIR=$(mktemp -d) diagnose …    (or let its owner remove {lock})",
        EXIT_NOTHING_MEASURED,
    )


def _library(found: re.Match[str], context: Context) -> DiagnoseError:
    where = f"this container ({container()})" if container() else "this system"
    return DiagnoseError(
        f"{context.ncu_named} failed to initialize the profiler (LibraryNotLoaded) "
        f"with driver {driver_version() or 'of unknown version'}",
        f"diagnose doctor    (choose an ncu that fits the driver with --ncu PATH; or {where} lacks the driver's "
        "profiling library, as sandboxes such as gVisor do)",
        EXIT_NOTHING_MEASURED,
    )


def _memory(found: re.Match[str], context: Context) -> DiagnoseError:
    return DiagnoseError(
        f"ncu ran out of memory while saving the GPU's memory for replay: {found[0]}",
        "diagnose --replay application …    (saves nothing, runs the program once a pass; or take a smaller problem)",
        EXIT_NOTHING_MEASURED,
    )


def _sections(found: re.Match[str], context: Context) -> DiagnoseError:
    return DiagnoseError(
        f"{context.ncu_named} finds no section files: {found[0]}",
        "diagnose --ncu PATH …    (the ncu inside its own installation; diagnose doctor lists those found)",
        EXIT_NOTHING_MEASURED,
    )


def _disk(found: re.Match[str], context: Context) -> DiagnoseError:
    report = Path(found["file"])
    return DiagnoseError(
        f"ncu could not write its report {report} to the end{free_space(report.parent)}",
        f"df -h {report.parent}    (then diagnose -o DIR/report.html …, where there is room)",
        EXIT_NOTHING_MEASURED,
    )


def free_space(folder: Path) -> str:
    """`: 12 kB are free there`, or nothing where that cannot be known."""
    try:
        free = shutil.disk_usage(folder).free
    except OSError:
        return ""
    return f": {free / 1e6:,.1f} MB are free there"


def _home(found: re.Match[str], context: Context) -> DiagnoseError:
    return DiagnoseError(
        f"ncu may not read its own settings in the home folder: {found[0]}",
        "HOME=$(mktemp -d) diagnose …    (HOME belongs to another user, as after sudo or in a container)",
        EXIT_NOTHING_MEASURED,
    )


def _not_a_program(found: re.Match[str], context: Context) -> DiagnoseError:
    program = context.target[0]
    return DiagnoseError(
        f"ncu cannot run {program}: {found[0]}",
        f"diagnose /full/path/of/the/interpreter {program} …    (python3, sh: a script is run by its interpreter)",
        EXIT_NOTHING_MEASURED,
    )


def _crash(found: re.Match[str], context: Context) -> DiagnoseError:
    return DiagnoseError(
        "a kernel failed on the GPU (LaunchFailed: a trap, a failed assertion or a wild address)",
        f"compute-sanitizer {' '.join(context.target)}    (names the kernel, the thread and the address)",
        EXIT_NOTHING_MEASURED,
    )


def _no_access(found: re.Match[str], context: Context) -> DiagnoseError:
    return DiagnoseError(
        f"this GPU does not give the counters asked for: {found[0][:300]}",
        "diagnose doctor    (shows the GPU and MIG; units that instances share are not counted)",
        EXIT_NOTHING_MEASURED,
    )


def _option(found: re.Match[str], context: Context) -> DiagnoseError:
    return DiagnoseError(
        f"{context.ncu_named} refused its command line: {found[0]}",
        "diagnose --ncu PATH …    (a newer ncu; diagnose doctor lists those found)",
        EXIT_NOTHING_MEASURED,
    )


_Explain = Callable[[re.Match[str], Context], DiagnoseError]

_NO_SECTIONS = re.compile(
    r"[^\n]*(?:[Nn]o section files|[Ss]ections? (?:files? |folder )?(?:[\w./-]+ )?(?:was |were )?not found"
    r"|[Uu]nable to find section|(?:[Ff]ailed to|[Cc]ould not) (?:find|load|open|deploy)[^\n]*section"
    r"|No metrics to collect found in sections|Failed to add (?:default section|rules|section) search path"
    r"|did not match any section)[^\n]*"
)

# In the order in which they are the cause: what comes later is often only the consequence of what comes before.
_CAUSES: tuple[tuple[re.Pattern[str], _Explain], ...] = (
    (re.compile(r"ERR_NVGPUCTRPERM"), _permission),
    (re.compile(r"[Ff]ailed to open/create lock file (?P<path>\S+)"), _lock),
    (re.compile(r"[^\n]*Permission denied \[[^\]\n]*/\.config/[^\n]*"), _home),
    (re.compile(r"[^\n]*target application is not an executable binary[^\n]*"), _not_a_program),
    (re.compile(r"driver resource was unavailable"), _agent),
    (re.compile(r"[^\n]*\bMIG\b[^\n]*"), _mig),
    (re.compile(r"[^\n]*LibraryNotLoaded[^\n]*"), _library),
    (re.compile(r"[^\n]*failed to connect to the CUDA driver[^\n]*"), _stub),
    (re.compile(r"[^\n]*(?:not compatible with Nsight Compute|driver version is insufficient)[^\n]*"), _driver),
    (
        re.compile(r"[^\n]*(?:[Pp]rofiling is not supported on|[Uu]nsupported GPU|not supported on this GPU)[^\n]*"),
        _unsupported,
    ),
    (
        re.compile(
            r"[^\n]*(?:Failed to save (?:memory|context)|ContextSaveFailed|bad.alloc|[Oo]ut of memory|OutOfMemory"
            r"|Failed to (?:back ?up|restore) (?:device )?memory)[^\n]*"
        ),
        _memory,
    ),
    (_NO_SECTIONS, _sections),
    (re.compile(r"Failed to save the report to file (?P<file>.*\S)"), _disk),
    (re.compile(r"\bLaunchFailed\b"), _crash),
    (re.compile(r"Unable to access the following \d+ metrics?: [^\n]*"), _no_access),
    (
        re.compile(
            r"[^\n]*(?:unrecogni[sz]ed option|[Uu]nknown option|invalid option|the argument \(.*\) for option)[^\n]*"
        ),
        _option,
    ),
)


def explain_errors(log: NcuLog, output_tail: str, context: Context) -> DiagnoseError | None:
    """The first cause that ncu's errors name, or None where they name none that is known.

    `output_tail` is what the process printed: ncu refuses a command line there, before it opens its log.
    """
    marked = [line.split("==ERROR==", 1)[1].strip() for line in output_tail.splitlines() if "==ERROR==" in line]
    errors = "\n".join((*log.errors, *marked))
    for pattern, explain in _CAUSES:
        if found := pattern.search(errors):
            return explain(found, context)
    if found := _FAILED.fullmatch("\n".join(error for error in log.errors if not _EXIT.search(error))):
        return _failed(found, context)
    if log.profiled == 0 and (found := _NO_SECTIONS.search("\n".join(log.warnings))):
        return _sections(found, context)
    return None


# Seen where a kernel wrote 85 % of an H200's memory and the host had 6 GB for the copy: not a word about memory.
_FAILED = re.compile(r'Failed to profile "(?P<kernel>[^\n]*)" in process \d+')


def _failed(found: re.Match[str], context: Context) -> DiagnoseError:
    return DiagnoseError(
        f"ncu failed to profile {found['kernel']} and gave no reason",
        "diagnose --replay application …    (most often there was no room for a copy of the memory that the kernel "
        "writes; this saves nothing and runs the program once a pass; or take a smaller problem)",
        EXIT_NOTHING_MEASURED,
    )


_FATAL = {int(s): s.name for s in (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGKILL)}


def exit_in_words(status: int) -> str:
    """`3`, or `11 (SIGSEGV)` where the number is that of a signal that kills."""
    number = status - 128 if status > 128 else abs(status)
    return f"{status} ({_FATAL[number]})" if number in _FATAL else str(status)


def _filter_echo(context: Context) -> str:
    named = "every kernel but collectives (nccl*, nvshmem*)"
    if context.kernel_filter is not None:
        named = (
            f"--kernel {context.kernel_filter} (matched against the function name, without parameters and templates)"
        )
    return ", ".join((named, *context.filters))


def explain_no_kernels(log: NcuLog, output_tail: str, context: Context) -> DiagnoseError:
    """Why a run profiled nothing: ncu's own errors, then the target's exit status, the filter, and child processes."""
    if cause := explain_errors(log, output_tail, context):
        return cause
    program = context.target[0]
    unknown = [error for error in log.errors if not _EXIT.search(error) and "trying to profile" not in error]
    if log.launches and unknown:
        return DiagnoseError(
            f"ncu failed on the kernel {log.launches[-1].name!r}: {unknown[0]}",
            "diagnose --replay application …    (does not save and restore memory; diagnose doctor checks the set-up)",
            EXIT_NOTHING_MEASURED,
        )
    if log.target_exit:
        return DiagnoseError(
            f"{program} exited with status {exit_in_words(log.target_exit)} before any kernel was profiled",
            f"{' '.join(context.target)}    (run it alone: what it printed stands above)",
            EXIT_NOTHING_MEASURED,
        )
    if unknown:
        return DiagnoseError(
            f"{context.ncu_named} failed: {unknown[0]}", "diagnose doctor    (checks the set-up)", EXIT_NOTHING_MEASURED
        )
    if log.available:
        functions = list(dict.fromkeys(function_of(name) for name in log.available))
        wanted = (context.kernel_filter or "").removeprefix("regex:")
        near = difflib.get_close_matches(wanted, functions, n=3, cutoff=0.4) or functions[:3]
        forms = "; ".join(f"{function_of(name)} = {name}" for name in log.available if function_of(name) in near)
        hint = f"diagnose --kernel {near[0]} …    (launched were: {forms[:400]})"
        if context.kernel_filter is None:
            hint = f"diagnose --kernel {near[0]} …    (names a kernel that the default leaves out, at your own risk)"
        return DiagnoseError(
            f"no kernel matched the filter {_filter_echo(context)}; {len(log.available)} others were launched",
            hint,
            EXIT_NOTHING_MEASURED,
        )
    if context.ncu_exit and not log.connected:
        lines = [line.strip() for line in output_tail.splitlines() if line.strip()]
        return DiagnoseError(
            f"{context.ncu_named} exited with status {context.ncu_exit}" + (f": {lines[-1][:300]}" if lines else ""),
            "diagnose doctor    (checks the set-up)",
            EXIT_NOTHING_MEASURED,
        )
    if context.filters and log.connected:
        return DiagnoseError(
            f"no kernel matched the filter {_filter_echo(context)}, though {program} used the GPU",
            "diagnose …    (without the filter; an NVTX name matches push/pop ranges, `name/` their exact nesting, and "
            "`domain@name` ranges of a domain; a range counts where kernels are launched in it, not where they run)",
            EXIT_NOTHING_MEASURED,
        )
    if within := launchers.inside(context.target):
        why = " (a daemon starts its processes)" if launchers.out_of_sight(context.target) else ""
        return DiagnoseError(
            f"{program} ended with status 0 and ncu saw no kernel below it{why}; filter: {_filter_echo(context)}",
            f"{within}    (diagnose inside the launcher: one report a rank; then diagnose FOLDER reads them together)",
            EXIT_NOTHING_MEASURED,
        )
    return DiagnoseError(
        f"{program} ended with status 0 and launched no kernel that ncu saw; filter: {_filter_echo(context)}",
        "check that it uses the GPU; child processes are followed when they are spawned, not when they are forked "
        "after CUDA was initialised (Python: multiprocessing's spawn), nor through ssh, docker or a server",
        EXIT_NOTHING_MEASURED,
    )
