"""Runs a program once to count its launches: by CUPTI's activity records, by Nsight Systems, or by one cheap ncu pass.

Measured on an H200 (docs/collection.md): CUPTI costs next to nothing; ncu one pass and some milliseconds a launch.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sysconfig
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import platformdirs

from diagnose.collect import clocks, launchers, survey
from diagnose.collect.find import CUDA_PLACES, is_program, parse_version
from diagnose.collect.host import gpus
from diagnose.collect.plan import Plan, Selection
from diagnose.collect.process import (
    POLL_S,
    Interrupts,
    Tail,
    has_ended,
    kill_tree,
    pump,
    settle_disks,
    stdin_can_be_read_again,
    stdin_is_terminal,
    stdin_put_back,
    tree,
    written_bytes,
)
from diagnose.collect.run import CollectOptions, collect
from diagnose.collect.survey import Survey
from diagnose.errors import DiagnoseError

METHODS = ("auto", "cupti", "nsys", "ncu", "none")
# One ncu pass costs about 6 ms a launch (docs/collection.md), so this many cost half a minute. More are not counted:
# the program is stopped there, and the survey says that it is not complete.
NCU_LAUNCHES = 5000
_SOURCE = Path(__file__).with_name("cupti_survey.cpp")
_BUILD_S = 60.0
_MEMORY = "/dev/shm"
_MOST_OUTPUT = 16 << 20  # bytes of what a program prints: the end of a longer text is kept
_MOST_PIECES = 100_000  # of a program that prints letter by letter
_EXPORT_S = 300.0  # nsys turns its own format into a database: some seconds a million records
_NSYS_PLACES = ("/opt/nvidia/nsight-systems/*/bin/nsys", "/usr/local/cuda*/bin/nsys")


@dataclass(frozen=True)
class SurveyOptions:
    """What to run. `selection` is what the profiling run will admit; a survey by ncu is filtered by it, too."""

    target: tuple[str, ...]
    ncu: str | None = None
    selection: Selection = field(default_factory=Selection)
    timeout_s: float | None = None
    grace_s: float = 10.0
    replay: str = "kernel"
    graph: str = "node"


class Interrupted(Exception):
    """Ctrl-C during the survey: nothing is profiled then."""


def method_for(asked: str, options: SurveyOptions) -> tuple[str, str]:
    """(the method, why) for what `--survey` asks: the first of cupti, nsys and ncu that is here.

    Raises where the method that was named is not here.
    """
    if asked == "none":
        return "none", "--survey none"
    if asked == "auto":
        if reason := _needless(options):
            return "none", reason
    if asked in ("auto", "cupti"):
        why = _no_cupti()
        if why is None:
            return "cupti", "CUPTI's activity records, by a library that the CUDA driver loads"
        if asked == "cupti":
            raise DiagnoseError(f"--survey cupti: {why}", "diagnose --survey ncu …    (one pass a launch)")
    if asked in ("auto", "nsys"):
        if find_nsys() is not None:
            return "nsys", "Nsight Systems"
        if asked == "nsys":
            raise DiagnoseError(
                "--survey nsys: no nsys was found on PATH or in its usual places",
                "diagnose --survey auto …    (takes what is here)",
            )
    return "ncu", "one ncu pass over every launch"


def _needless(options: SurveyOptions) -> str | None:
    """Why a survey could not serve this run."""
    chosen = options.selection
    if chosen.nvtx:
        return "--nvtx chooses the launches"
    if chosen.demangled:
        return "--demangled chooses by names that only ncu has"
    if chosen.process:
        return "--process chooses the launches"
    if chosen.window:
        return "--launch-skip or --launch-count chooses the launches"
    if chosen.profiler_range:
        return "--profiler-range chooses the launches"
    if launchers.one_of_many():
        return "one of several ranks can run its program only once"
    if options.replay in ("range", "app-range"):
        return f"--replay {options.replay} profiles ranges"
    if options.graph == "graph":
        return "whole graphs are profiled"
    if not stdin_can_be_read_again():
        return "the program's input is a pipe, which can be read once"
    if not gpus():  # a run of the program that can count nothing; what ncu says of the machine decides
        return "nvidia-smi names no GPU here"
    return None


# --- CUPTI


def cupti_places() -> list[tuple[Path, Path]]:
    """(folder of cupti.h, libcupti.so.N) of CUDA's toolkits and PyPI's wheels, newest first."""
    found: list[tuple[Path, Path]] = []
    homes = [os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    homes += sorted(
        {os.path.realpath(match) for place in CUDA_PLACES for match in glob.glob(place)},
        key=lambda path: parse_version(Path(path).name),
        reverse=True,
    )
    for home in map(Path, homes):
        for root in (home, home / "extras" / "CUPTI"):
            libraries = [path for folder in ("lib64", "lib") for path in root.glob(f"{folder}/libcupti.so.[0-9]*")]
            if (root / "include" / "cupti.h").is_file() and libraries:
                found.append((root / "include", _major(libraries)))
    site = {Path(sysconfig.get_path(kind)) / "nvidia" for kind in ("platlib", "purelib")}
    for root in sorted(path for folder in site for path in folder.glob("cu*")):
        libraries = list(root.glob("lib/libcupti.so.[0-9]*"))
        if (root / "include" / "cupti.h").is_file() and libraries:
            found.append((root / "include", _major(libraries)))
    return found


def _major(libraries: Sequence[Path]) -> Path:
    """`libcupti.so.13` rather than `libcupti.so.2025.3.1`: the name under which programs load it, too."""
    return min(libraries, key=lambda path: (len(path.name), path.name))


def compiler() -> Path | None:
    """The C++ compiler that builds the library: CXX, else the first of the usual names on PATH."""
    for name in filter(None, (os.environ.get("CXX"), "c++", "g++", "clang++")):
        if path := shutil.which(name):
            return Path(path)
    return None


def _no_cupti() -> str | None:
    """Why there can be no survey by CUPTI; None where there can."""
    if os.environ.get("CUDA_INJECTION64_PATH"):
        return "CUDA_INJECTION64_PATH is set: another tool is loaded into the program"
    try:
        build_injection()
    except DiagnoseError as error:
        return error.message
    return None


def build_injection() -> Path:
    """The library that the driver loads, built with this machine's C++ compiler unless the cache holds it."""
    places, cxx = cupti_places(), compiler()
    if not places:
        raise DiagnoseError("no CUPTI (cupti.h and libcupti) was found in CUDA's usual places", "diagnose doctor")
    if cxx is None:
        raise DiagnoseError("no C++ compiler was found (CXX, c++, g++, clang++)", "apt-get install g++")
    include, library = places[0]
    headers = (include / "cupti_activity.h").read_text("utf-8", "replace")
    records = sorted({int(number) for number in re.findall(r"\bCUpti_ActivityKernel(\d+);", headers)})
    if not records:
        raise DiagnoseError(f"{include}/cupti_activity.h names no record of kernels", "diagnose --survey ncu …")
    command = [
        str(cxx), "-O2", "-std=c++17", "-shared", "-fPIC", f"-DKERNEL_RECORD=CUpti_ActivityKernel{records[-1]}",
        str(_SOURCE), "-I", str(include), "-I", str(include.parents[2] / "include"), str(library),
        f"-Wl,-rpath,{library.parent}",
    ]  # fmt: skip
    digest = hashlib.sha256(b"\0".join([_SOURCE.read_bytes(), *(word.encode() for word in command)]))
    digest.update(str(os.path.realpath(library)).encode())
    built = platformdirs.user_cache_path("diagnose", appauthor=False) / "survey" / f"{digest.hexdigest()[:24]}.so"
    if built.is_file():
        return built
    try:
        built.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=built.parent) as folder:
            fresh = Path(folder) / built.name
            done = subprocess.run(
                [*command, "-o", str(fresh)],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_BUILD_S,
                check=False,
            )
            if done.returncode or not fresh.is_file():
                said = done.stderr.decode("utf-8", "replace")
                cause = next((line for line in said.splitlines() if "error" in line), "no message")
                raise DiagnoseError(f"{cxx} failed to build the survey library: {cause[:300]}", "diagnose doctor")
            fresh.replace(built)  # at once, so that two builds at the same time do no harm
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DiagnoseError(
            f"the survey library cannot be built in {built.parent}: {error}", "diagnose --survey ncu …"
        ) from None
    return built


# --- Nsight Systems


def find_nsys() -> Path | None:
    """The nsys of Nsight Systems. The one inside Nsight Compute's own tree cannot make reports and is not taken."""
    on_path = shutil.which("nsys")
    places = [Path(on_path)] if on_path else []
    found = [Path(name) for place in _NSYS_PLACES for name in glob.glob(place)]
    places += sorted(found, key=lambda path: parse_version(str(path)), reverse=True)
    return next((path for path in places if is_program(path) and "nsight-compute" not in os.path.realpath(path)), None)


# --- running


@dataclass(frozen=True)
class _Ran:
    status: int
    output: bytes
    seconds: float
    timed_out: bool
    wrote_bytes: int | None


def _run(command: Sequence[str], options: SurveyOptions, environment: Mapping[str, str], settled: bool = False) -> _Ran:
    """Runs the command with our stdin. What it prints is kept and not shown: as a rule the profiled run shows it.

    `settled`: `settle_disks` was called just before.
    """
    interrupts = Interrupts()
    own_group = not stdin_is_terminal()  # a background group could not read the terminal
    began = time.monotonic()
    printed = Tail(_MOST_OUTPUT, _MOST_PIECES)
    with interrupts.caught(), stdin_put_back():
        try:
            process = subprocess.Popen(
                list(command),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=own_group,
                env={**launchers.environment(), **os.environ, **environment},
            )
        except OSError as error:
            raise DiagnoseError(
                f"{command[0]} cannot be started: {error.strerror or error}", "diagnose doctor"
            ) from None
        assert process.stdout is not None
        passing = threading.Thread(target=pump, args=(process.stdout, None, printed), daemon=True)
        passing.start()
        timed_out = _wait(process, options, interrupts, own_group)
        wrote = written_bytes(process.pid, settled)
        process.wait()
        seconds = time.monotonic() - began
        passing.join(timeout=2.0)  # a daemon that the target left behind may keep the pipe open
    if interrupts.count:
        raise Interrupted
    return _Ran(process.returncode, printed.read(), seconds, timed_out, wrote)


def _wait(process: subprocess.Popen[bytes], options: SurveyOptions, interrupts: Interrupts, own_group: bool) -> bool:
    """Waits for the end; asks for it at a time-out or an interrupt, and forces it after the grace.

    Returns whether the time was out. The process has ended then, and its accounts can still be read.
    """
    began = time.monotonic()
    stop_by: float | None = None
    timed_out = False
    while not has_ended(process.pid):
        time.sleep(POLL_S)
        now = time.monotonic()
        if stop_by is not None:
            if now > stop_by or interrupts.count > 1:
                kill_tree(process.pid)
            continue
        timed_out = options.timeout_s is not None and now - began > options.timeout_s
        if timed_out or interrupts.count:
            stop_by = now + options.grace_s
            if own_group or timed_out:  # at a terminal, Ctrl-C has reached the program already
                for pid in tree(process.pid):
                    with contextlib.suppress(OSError):
                        os.kill(pid, signal.SIGINT)
    return timed_out


def _in_memory() -> str | None:
    """A folder whose files are no disk's: what the survey itself writes must not count as the program's."""
    return _MEMORY if os.access(_MEMORY, os.W_OK | os.X_OK) else None


def _by_cupti(options: SurveyOptions, progress: Callable[[str], None]) -> Survey:
    library = build_injection()
    with tempfile.TemporaryDirectory(prefix="diagnose-", dir=_in_memory()) as folder:
        # Only this run is the program as it is: nothing is replayed, and the GPU gets as warm as it does.
        with clocks.sampling() as log:
            injected = {"CUDA_INJECTION64_PATH": str(library), "DIAGNOSE_SURVEY": folder}
            ran = _run(options.target, options, injected, settle_disks())
        rows, complete, errors = survey.read_injected(Path(folder))
    notes = [f"CUPTI: {error}" for error in errors]
    if not complete and rows and not ran.timed_out:
        notes.append("a process of the program ended without its last records: the counts are too low")
    seen = clocks.read(log)
    complete = complete and not ran.timed_out
    return Survey("cupti", rows, ran.seconds, complete, ran.status, tuple(notes), seen, ran.wrote_bytes, ran.output)


def _by_nsys(options: SurveyOptions, progress: Callable[[str], None]) -> Survey:
    nsys = find_nsys()
    assert nsys is not None
    with tempfile.TemporaryDirectory(prefix="diagnose-") as folder:
        report, database = Path(folder) / "survey.nsys-rep", Path(folder) / "survey.sqlite"
        command = [
            str(nsys), "profile", "--trace=cuda", "--sample=none", "--cpuctxsw=none", "--stats=false",
            "--force-overwrite=true", f"--output={report}", *options.target,
        ]  # fmt: skip
        ran = _run(command, options, {})
        export = [str(nsys), "export", "--type=sqlite", "--force-overwrite=true", f"--output={database}", str(report)]
        try:
            subprocess.run(export, stdin=subprocess.DEVNULL, capture_output=True, timeout=_EXPORT_S, check=True)
            rows = survey.read_nsys(database)
        except (OSError, subprocess.SubprocessError, sqlite3.Error) as error:
            raise DiagnoseError(f"{nsys} gave no readable survey: {error}", "diagnose --survey ncu …") from None
    return Survey("nsys", rows, ran.seconds, not ran.timed_out, ran.status)


def _by_ncu(options: SurveyOptions, progress: Callable[[str], None]) -> Survey:
    from diagnose.reader import read_reports  # late: it imports what only reading needs

    began = time.monotonic()
    selection = replace(options.selection, per_config=False, max_launches=NCU_LAUNCHES, names=())
    plan = Plan(
        metrics=("gpu__time_duration.sum",),
        sections=(),
        selection=selection,
        cache_control="none",  # a survey counts time as the program spends it
        import_source=False,
        apply_rules=False,
    )
    with tempfile.TemporaryDirectory(prefix="diagnose-") as folder, stdin_put_back():
        place = Path(folder)
        done = collect(
            CollectOptions(
                target=options.target,
                profile=place / "survey.ncu-rep",
                plan=plan,
                ncu=options.ncu,
                timeout_s=options.timeout_s,
                target_output=place / "output",
            ),
            lambda text: None,
        )
        if done.interrupted:
            raise Interrupted
        if done.profile is None:
            return Survey("ncu", (), time.monotonic() - began, False, done.target_exit)
        profile = read_reports([done.profile], source=False, ncu=done.ncu_path)
    complete = done.profiled < NCU_LAUNCHES and not done.timed_out
    return Survey("ncu", survey.of_profile(profile), time.monotonic() - began, complete, done.target_exit)


_RUN = {"cupti": _by_cupti, "nsys": _by_nsys, "ncu": _by_ncu}


def run(asked: str, options: SurveyOptions, progress: Callable[[str], None]) -> tuple[Survey | None, tuple[str, ...]]:
    """The survey, or None where there is none, and what to say of it.

    `auto` goes on to the next method where one fails or sees no kernel, and in the end without a survey: the
    profiling run then says what is wrong. Raises Interrupted at Ctrl-C, and DiagnoseError where a named method fails.
    """
    method, why = method_for(asked, options)
    if method == "none":
        return None, () if asked == "none" else (f"no survey: {why}",)
    notes: list[str] = []
    tried = [method] if asked != "auto" else _from(method)
    for one in tried:
        progress(f"survey by {one}: the program runs once to count its launches")
        try:
            found = _RUN[one](options, progress)
        except DiagnoseError as error:
            if asked != "auto":
                raise
            notes.append(f"survey by {one}: {error.message}")
            continue
        if found.configurations:
            progress(
                f"survey: {found.launches:,} launches of {len(found.configurations):,} kernels and launch "
                f"configurations, {found.total_us / 1e3:,.1f} ms of GPU time, in {found.seconds or 0.0:.1f} s"
            )
            return found, tuple(notes)
        notes += [f"survey by {one}: {note}" for note in found.notes]
        # A program that fails, or that launches nothing, does so under every tool: ncu says what is wrong.
        if not found.notes:
            break
    return None, tuple(notes)


def _from(first: str) -> list[str]:
    """The methods of `auto` from `first` on that are here."""
    order = ["cupti", "nsys", "ncu"]
    rest = order[order.index(first) :]
    return [one for one in rest if one != "nsys" or find_nsys() is not None]
