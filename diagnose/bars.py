"""Progress bars on long work: on stderr, only where that is a terminal, and gone when the work is done.

What takes long calls a `Step` with how much of it is done; whoever talks to a person gives it one.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

#: Called with what is done and the whole, as the work goes on.
Step = Callable[[int, int], None]
#: Work that ends sooner shows nothing: a bar that flashes up tells nobody anything.
DELAY_S = 0.7


def silent(done: int, total: int) -> None:
    """A Step that shows nothing."""


@contextlib.contextmanager
def bar(what: str) -> Iterator[Step]:
    """A Step that draws `what` as a bar with counts and the time left; `silent` where stderr is no terminal."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield silent
        return
    began = time.monotonic()
    shown: list[Progress] = []

    def step(done: int, total: int) -> None:
        if not shown and time.monotonic() - began >= DELAY_S and done < total:
            shown.append(_started(what))
        for one in shown:
            one.update(one.task_ids[0], completed=done, total=total)

    try:
        yield step
    finally:
        for one in shown:
            one.stop()


def _started(what: str) -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    # stdout and stderr are left as they are: stdout carries the chosen format, and other lines go to stderr directly.
    progress = Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
        console=Console(stderr=True), transient=True, redirect_stdout=False, redirect_stderr=False,
    )  # fmt: skip
    progress.add_task(what, total=None)
    progress.start()
    return progress
