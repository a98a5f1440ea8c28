"""The time of one run of a program: its own result line, a pattern in its output, or ncu's duration of a kernel."""

from __future__ import annotations

import math
import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from diagnose.collect.failures import exit_in_words
from diagnose.collect.kernels import parse_result
from diagnose.collect.plan import Plan, Selection
from diagnose.collect.run import CollectOptions, collect
from diagnose.errors import DiagnoseError

UNITS_US = {"us": 1.0, "ms": 1e3, "s": 1e6, "ns": 1e-3}
DURATION = "gpu__time_duration.sum"


@dataclass(frozen=True)
class Source:
    """Where a point's time comes from.

    `kind`: `result-line` (bundled kernels: CUDA events, median of the launches of one run), `pattern` (a user's
    program; group 1 of `pattern` in `unit`), or `ncu` (gpu__time_duration of the launches that `kernel` names).
    """

    kind: str
    pattern: re.Pattern[str] | None = None
    unit: str = "us"
    kernel: str | None = None
    ncu: str | None = None

    def words(self) -> str:
        """For the page and the table."""
        if self.kind == "result-line":
            return "the program's result line: CUDA events, median of the launches of one run, result checked first"
        if self.kind == "pattern":
            assert self.pattern is not None
            return f"the program's output: group 1 of {self.pattern.pattern!r} in {self.unit}; exit status 0 asked for"
        which = f"the kernel {self.kernel}" if self.kernel else "all kernels, one launch of each configuration"
        return f"ncu's gpu__time_duration of {which}; exit status 0 asked for"


@dataclass(frozen=True)
class Timed:
    """What one run gave: a time, or why its time does not count."""

    us: float | None
    failed: str | None = None
    error: float | None = None
    tolerance: float | None = None


def source_of(pattern: str | None, unit: str, kernel: str | None, ncu: str | None) -> Source:
    """The source for a user's program. Raises for a pattern that cannot be used."""
    if pattern is None:
        return Source("ncu", kernel=kernel, ncu=ncu)
    if unit not in UNITS_US:
        raise DiagnoseError(f"--time-unit {unit!r} is not one of {', '.join(UNITS_US)}", "--time-unit us")
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise DiagnoseError(
            f"--time {pattern!r} is no regular expression: {error}", r"--time 'time: ([\d.]+)'"
        ) from None
    if compiled.groups < 1:
        raise DiagnoseError(f"--time {pattern!r} has no group for the number", r"--time 'time: ([\d.]+)'")
    return Source("pattern", pattern=compiled, unit=unit)


def once(words: Sequence[str], source: Source, timeout_s: float) -> Timed:
    """Runs the program and reads its time. Never raises for what the program does; a DiagnoseError of ncu passes."""
    if source.kind == "ncu":
        return _under_ncu(words, source, timeout_s)
    try:
        done = subprocess.run(
            list(words), stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired:
        return Timed(None, f"no end within {timeout_s:g} s")
    except OSError as error:
        return Timed(None, f"cannot be started: {error.strerror or error}")
    out = done.stdout.decode("utf-8", "replace")
    last = (done.stderr.decode("utf-8", "replace").strip().splitlines() or [""])[-1].removeprefix("error: ")[:200]
    if source.kind == "result-line":
        result = parse_result(out)
        if result is not None and not result.ok:
            return Timed(None, f"wrong result: error {result.error:g}, tolerance {result.tolerance:g}", result.error,
                         result.tolerance)  # fmt: skip
        if done.returncode or result is None or result.time_us is None:
            return Timed(None, f"exit status {exit_in_words(done.returncode)} without a time: {last}".rstrip(": "))
        return Timed(result.time_us, None, result.error, result.tolerance)
    if done.returncode:
        return Timed(None, f"exit status {exit_in_words(done.returncode)}: {last}".rstrip(": "))
    assert source.pattern is not None
    found = source.pattern.search(out)
    if found is None:
        return Timed(None, f"its output holds nothing like {source.pattern.pattern!r}")
    try:
        us = float(found[1]) * UNITS_US[source.unit]
    except (TypeError, ValueError):
        return Timed(None, f"{found[1]!r} is no number")
    return Timed(us) if math.isfinite(us) and us > 0 else Timed(None, f"{found[1]!r} is no time")


def _under_ncu(words: Sequence[str], source: Source, timeout_s: float) -> Timed:
    from diagnose import facts
    from diagnose.reader import read_reports

    with tempfile.TemporaryDirectory(prefix="diagnose-") as folder:
        plan = Plan(
            metrics=(DURATION,),
            sections=(),
            selection=Selection(kernel=source.kernel),
            import_source=False,
            apply_rules=False,
        )
        options = CollectOptions(
            tuple(words),
            Path(folder) / "time.ncu-rep",
            plan,
            source.ncu,
            timeout_s,
            target_output=Path(folder) / "said",
        )
        collected = collect(options, lambda text: None)
        if collected.interrupted:
            raise KeyboardInterrupt
        if collected.profile is None or collected.target_exit:
            return Timed(None, f"exit status {collected.target_exit}" if collected.target_exit else "nothing profiled")
        profile = read_reports([collected.profile], source=False, ncu=collected.ncu_path)
    times = [facts.context(kernel, {}, ()).value("duration_us") for kernel in profile.kernels]
    known = [us for us in times if us is not None]
    return Timed(sum(known)) if known and len(known) == len(times) else Timed(None, "ncu gave no duration")
