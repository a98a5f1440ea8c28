"""`diagnose.profile`: a function, or the block of a `with`, profiled from Python.

ncu profiles processes that it starts. So a second process does the work again under ncu, and only the function or the
block is profiled there: see `diagnose.rerun`. `docs/python-api.md` says what that means for the program.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import pickle
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, overload

from diagnose.collect import launchers
from diagnose.errors import EXIT_INTERRUPTED, DiagnoseError

if TYPE_CHECKING:
    from diagnose.api import Options
    from diagnose.summary import Summary

_entered = 0  # calls and blocks of this process so far: by their number the second process knows the one to profile
_results: list[Summary | None] = []  # theirs, for a second process that comes by them again
_TAIL = 2000  # characters of a failed program's output that the error shows


@dataclass(frozen=True)
class _Wanted:
    """How to profile. `report` keeps ncu's report; without it there is none afterwards."""

    options: Options
    report: Path | None
    max_launches: int
    clock_control: str
    cache_control: str
    progress: Callable[[str], None]


@overload
def profile(
    function: Callable[..., Any], /, *args: Any, warmup: int = ..., kernel: str | None = ...,
    report: str | Path | None = ..., max_launches: int = ..., clock_control: str = ..., cache_control: str = ...,
    ncu: str | None = ..., timeout_s: float | None = ..., progress: Callable[[str], None] | None = ..., **kwargs: Any,
) -> Summary | None: ...  # fmt: skip


@overload
def profile(
    *, kernel: str | None = ..., report: str | Path | None = ..., max_launches: int = ..., clock_control: str = ...,
    cache_control: str = ..., ncu: str | None = ..., timeout_s: float | None = ...,
    progress: Callable[[str], None] | None = ...,
) -> Block: ...  # fmt: skip


def profile(
    function: Callable[..., Any] | None = None, /, *args: Any, warmup: int = 1, kernel: str | None = None,
    report: str | Path | None = None, max_launches: int = 50, clock_control: str = "none", cache_control: str = "all",
    ncu: str | None = None, timeout_s: float | None = None, progress: Callable[[str], None] | None = None,
    **kwargs: Any,
) -> Summary | Block | None:  # fmt: skip
    """Profiles `function(*args, **kwargs)` in a second process and returns its `Summary`; without a function, the block
    of `with diagnose.profile() as p:`, whose summary is then `p.summary`.

    `warmup` calls come before the profiled one, so that compiling and autotuning are left out. `kernel` is a function
    name or `regex:…`. `report` keeps ncu's report under that name. `progress` is told each step. The function's result
    is not returned: it belongs to the second process. Returns None where this process is being profiled itself. Raises
    DiagnoseError where nothing was measured.
    """
    from diagnose.api import Options

    wanted = _Wanted(
        Options(kernel=kernel, ncu=ncu, timeout_s=timeout_s),
        Path(report) if report is not None else None,
        max_launches,
        clock_control,
        cache_control,
        progress or (lambda text: None),
    )
    if function is None:
        return Block(wanted)
    return _call(function, args, kwargs, warmup, wanted)


def _call(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], warmup: int, wanted: _Wanted
) -> Summary | None:
    from diagnose import rerun

    number = _next()
    if rerun.block is not None:
        return _known(number)
    if profiled():
        for _ in range(warmup):
            function(*args, **kwargs)
        with rerun.profiler_range() if _marks() else contextlib.nullcontext():
            function(*args, **kwargs)
        return None
    if launchers.one_of_many():
        raise _inside_a_launcher()
    summary = _in_second_process(_function_job(function, args, kwargs, warmup), wanted)
    _results[number - 1] = summary
    return summary


def _next() -> int:
    global _entered
    _entered += 1
    _results.append(None)
    return _entered


def _known(number: int) -> Summary | None:
    """What the first process has for that call or block."""
    from diagnose import rerun

    found: Summary | None = rerun.known[number - 1] if number <= len(rerun.known) else None
    return found


class Block:
    """The context manager of `with diagnose.profile() as p:`; `p.summary` is None until the block has ended, and stays
    None where this process is being profiled itself (by `diagnose --profiler-range` or ncu): then the block is marked.
    """

    def __init__(self, wanted: _Wanted) -> None:
        self.summary: Summary | None = None
        self._wanted = wanted
        self._marked: contextlib.AbstractContextManager[None] | None = None
        self._number = 0

    def __enter__(self) -> Block:
        from diagnose import rerun

        self._number = _next()
        mine = rerun.block == self._number if rerun.block is not None else _marks()
        if rerun.block is None and not profiled() and launchers.one_of_many():
            raise _inside_a_launcher()
        if mine:
            self._marked = rerun.profiler_range()
            self._marked.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        from diagnose import rerun

        if self._marked is not None:
            self._marked.__exit__(kind, error, trace)
            if rerun.block is not None and error is None:
                raise rerun.BlockDone
            return
        if error is not None:
            return
        if rerun.block is not None or profiled():
            self.summary = _known(self._number)
            return
        job = _program_job(self._number)
        self.summary = _in_second_process({**job, "known": _results[: self._number - 1]}, self._wanted)
        _results[self._number - 1] = self.summary
        _show(self.summary)

    def _repr_html_(self) -> str:
        return "<p>not profiled yet</p>" if self.summary is None else self.summary._repr_html_()

    def __str__(self) -> str:
        return "not profiled yet" if self.summary is None else str(self.summary)


def profiled() -> bool:
    """Whether this process runs under a profiler already: diagnose's, or an ncu that somebody started."""
    if os.environ.get(launchers.PROFILED):
        return True
    try:
        return "libTreeLauncher" in Path("/proc/self/maps").read_text("utf-8", "replace")
    except OSError:
        return False


def _marks() -> bool:
    """Whether a profiler around this process wants the block marked. A stop ends what it profiles, so a `diagnose` that
    profiles everything (no --profiler-range) wants no marks."""
    return profiled() and os.environ.get(launchers.PROFILED, launchers.RANGE) == launchers.RANGE


def _inside_a_launcher() -> DiagnoseError:
    place = launchers.placement()
    rank = f"rank {place.rank} of {place.size or 'several'}" if place is not None else "one of several ranks"
    return DiagnoseError(
        f"this process is {rank}, whose program cannot run a second time on its own",
        "LAUNCHER … diagnose --profiler-range python3 SCRIPT    (the block is marked then; one report a rank)",
    )


# --- what the second process is to do


def _job(kind: str, **words: Any) -> dict[str, Any]:
    return {"kind": kind, "folder": os.getcwd(), "path": [entry for entry in sys.path if entry], **words}


def _shell() -> Any:
    """IPython's shell, where this is one."""
    module = sys.modules.get("IPython")
    return module.get_ipython() if module is not None else None


def _main_file() -> str | None:
    path = getattr(sys.modules.get("__main__"), "__file__", None)
    return os.path.abspath(path) if isinstance(path, str) and os.path.isfile(path) else None


def _function_job(function: Callable[..., Any], args: Any, kwargs: Any, warmup: int) -> dict[str, Any]:
    of_main = getattr(function, "__module__", None) == "__main__"
    main = _main_file() if of_main and _shell() is None else None
    try:
        payload = pickle.dumps((function, args, kwargs)) if main or not of_main else _by_value((function, args, kwargs))
    except DiagnoseError:
        raise
    except Exception as error:  # pickle raises what the objects raise
        name = getattr(function, "__qualname__", repr(function))
        raise DiagnoseError(
            f"{name} and its arguments cannot be sent to the second process: {str(error)[:300]}",
            "define it at the top of a module or script, let it make its own data; or use `with diagnose.profile():`",
        ) from error
    return _job("function", main=main, warmup=warmup, data=payload)


def _by_value(value: Any) -> bytes:
    """A function of a notebook has no module: cloudpickle sends its code."""
    try:
        import cloudpickle  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError:
        raise DiagnoseError(
            "a function that was defined in a notebook cannot be imported by the second process",
            "pip install cloudpickle    (sends its code; `with diagnose.profile():` runs the cells again instead)",
        ) from None
    data: bytes = cloudpickle.dumps(value)
    return data


def _program_job(number: int) -> dict[str, Any]:
    """The script or the cells, up to the block of that number."""
    shell = _shell()
    if shell is not None:
        cells = [str(cell) for cell in shell.user_ns.get("In", [])[1:]]
        return _job("cells", cells=cells, block=number)
    script = _main_file()
    if script is None:
        raise DiagnoseError(
            "this block stands in no file and no notebook, so it cannot run a second time",
            "diagnose.profile(function, …)    (or save it as a script: diagnose --profiler-range python3 SCRIPT)",
        )
    return _job("script", script=script, argv=sys.argv[1:], block=number)


# --- the second process


def _in_second_process(job: dict[str, Any], wanted: _Wanted) -> Summary:
    from diagnose import api
    from diagnose.collect.run import Collected
    from diagnose.summary import Summary

    with tempfile.TemporaryDirectory(prefix="diagnose-") as name:
        folder = Path(name)
        data = job.pop("data", None)
        if data is not None:
            job["payload"] = str(folder / "payload")
            Path(job["payload"]).write_bytes(data)
        if "known" in job:
            known, job["known"] = job["known"], str(folder / "known")
            Path(job["known"]).write_bytes(pickle.dumps(known))
        (folder / "job.json").write_text(json.dumps(job), "utf-8")
        output = folder / "output.txt"
        live = api.Live(
            profile=(wanted.report or folder / "report.ncu-rep").absolute(),
            max_launches=wanted.max_launches,
            clock_control=wanted.clock_control,
            cache_control=wanted.cache_control,
            target_output=output,
            profiler_range=True,
        )
        target = (sys.executable, "-m", "diagnose.rerun", str(folder / "job.json"))
        try:
            result = api.diagnose_program(target, live, wanted.options, wanted.progress)
        except DiagnoseError as error:
            raise _with_output(error, output) from error
        if isinstance(result, Collected):
            raise DiagnoseError("interrupted before anything was profiled", "run it again", EXIT_INTERRUPTED)
    return Summary(result.document, result.profile)


def _with_output(error: DiagnoseError, output: Path) -> DiagnoseError:
    """The error with its hint and the end of what the program printed: a notebook shows nothing else."""
    try:
        said = output.read_text("utf-8", "replace").strip()[-_TAIL:]
    except OSError:
        said = ""
    told = f"{error.message}\nhint: {error.hint}" + (f"\nthe second process said:\n{said}" if said else "")
    return DiagnoseError(told, error.hint, error.exit_code)


def _show(summary: Summary) -> None:
    """Inline in a notebook; a script prints `p` itself where it wants to."""
    if _shell() is not None:
        display = importlib.import_module("IPython.display").display

        display(summary)
