"""Runs again, under ncu, what `diagnose.profile` was given: a function, a script, or a notebook's cells.

    python -m diagnose.rerun FILE        (FILE is written by diagnose.notebook in a private folder)

A process cannot be profiled by ncu after it has started (before ncu 2026.2), so `diagnose.profile` starts this one.
What is to be profiled stands between cudaProfilerStart and cudaProfilerStop; everything else runs unprofiled.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import pickle
import runpy
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

#: The number of the block that this process profiles (1 is the first), or None where it is not such a process.
block: int | None = None
#: What the first process has for the calls and blocks before that one: none of them is profiled a second time.
known: list[Any] = []


class BlockDone(SystemExit):
    """Raised at the end of the profiled block: nothing after it is wanted."""

    def __init__(self) -> None:
        super().__init__(0)


def _driver() -> ctypes.CDLL | None:
    for name in ("libcuda.so.1", "libcuda.so"):
        with contextlib.suppress(OSError):
            return ctypes.CDLL(name)
    return None


def _context(driver: ctypes.CDLL) -> None:
    """Makes the first GPU's primary context current where none is: without one, start and stop are refused."""
    current = ctypes.c_void_p()
    if driver.cuInit(0) == 0 and driver.cuCtxGetCurrent(ctypes.byref(current)) == 0 and not current.value:
        device, context = ctypes.c_int(), ctypes.c_void_p()
        if driver.cuDeviceGet(ctypes.byref(device), 0) == 0:
            if driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0:
                driver.cuCtxSetCurrent(context)


@contextlib.contextmanager
def profiler_range() -> Iterator[None]:
    """What runs inside stands between cudaProfilerStart and cudaProfilerStop, work in flight included.

    By the driver's own functions, which are there whatever the program uses (PyTorch, CuPy, Triton); without a driver
    nothing is marked, and what runs under ncu then says so.
    """
    driver = _driver()
    if driver is None:
        yield
        return
    _context(driver)
    driver.cuCtxSynchronize()  # launches from before do not count
    driver.cuProfilerStart()
    try:
        yield
    finally:
        driver.cuCtxSynchronize()
        driver.cuProfilerStop()


def _function(job: dict[str, Any]) -> None:
    if main := job["main"]:
        # As multiprocessing's spawn does: the script's functions, without what it does under `__main__`.
        names = runpy.run_path(main, run_name="__mp_main__")
        module = type(sys)("__main__")
        module.__dict__.update(names)
        sys.modules["__main__"] = sys.modules["__mp_main__"] = module
    function: Callable[..., Any]
    function, args, kwargs = pickle.loads(Path(job["payload"]).read_bytes())  # written by our own parent, mode 0600
    for _ in range(job["warmup"]):
        function(*args, **kwargs)
    with profiler_range():
        function(*args, **kwargs)


def _script(job: dict[str, Any]) -> None:
    sys.argv = [job["script"], *job["argv"]]
    sys.path.insert(0, str(Path(job["script"]).resolve().parent))
    runpy.run_path(job["script"], run_name="__main__")


def _cells(job: dict[str, Any]) -> None:
    """The cells in the order in which they were run, in a shell of the same kind. Failed cells failed before, too."""
    interactive: Any = importlib.import_module("IPython.core.interactiveshell")  # the parent is one, so it is here
    shell = interactive.InteractiveShell.instance()
    for cell in job["cells"]:
        result = shell.run_cell(cell, store_history=False)
        if isinstance(result.error_in_exec, BlockDone):
            return


def main(path: str) -> int:
    """Does what the file says. Returns the exit status."""
    global block, known
    job = json.loads(Path(path).read_text("utf-8"))
    os.chdir(job["folder"])
    sys.path[:0] = [entry for entry in job["path"] if entry not in sys.path]
    block = job.get("block")
    if "known" in job:
        known = pickle.loads(Path(job["known"]).read_bytes())  # written by our own parent, mode 0600
    try:
        {"function": _function, "script": _script, "cells": _cells}[job["kind"]](job)
    except BlockDone:
        return 0
    return 0


if __name__ == "__main__":
    # Under its own name, so that the profiled program meets this module and not a second one.
    from diagnose import rerun

    sys.exit(rerun.main(sys.argv[1]))
