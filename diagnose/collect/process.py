"""Child processes: whole trees of them, their output passed on unread, and Ctrl-C noted instead of raised."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import threading
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import BinaryIO

POLL_S = 0.05
_CHUNK = 65536
# Kept of a child's output for messages: so many pieces, which are at most that long.
MESSAGE_PIECES = 16
MESSAGE_BYTES = MESSAGE_PIECES * _CHUNK


class Interrupts:
    """Counts Ctrl-C and termination requests while a child runs, instead of raising KeyboardInterrupt."""

    def __init__(self) -> None:
        self.count = 0

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.count += 1

    @contextlib.contextmanager
    def caught(self) -> Iterator[None]:
        """Within it, signals are counted. Does nothing outside the main thread, where no handler may be set."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._note) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _children() -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text("utf-8", "replace").rpartition(")")[2].split()
            found.setdefault(int(fields[1]), []).append(int(entry.parent.name))
        except (OSError, IndexError, ValueError):
            continue
    return found


def tree(pid: int) -> list[int]:
    """A process and all its descendants."""
    children = _children()
    pids = [pid]
    for one in pids:
        pids += children.get(one, [])
    return pids


def kill_tree(pid: int) -> None:
    """Kills a process and all its descendants. They are listed first: an orphan no longer shows whose it was."""
    for one in tree(pid):
        with contextlib.suppress(OSError):
            os.kill(one, signal.SIGKILL)


def has_ended(pid: int) -> bool:
    """Whether a child has ended; its status and its accounts stay until somebody waits for it."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def settle_disks(limit_s: float = 1.0) -> bool:
    """Lets the system write to its disks what it still holds of anybody's files; whether that was done in time."""
    syncing = threading.Thread(target=os.sync, daemon=True)
    syncing.start()
    syncing.join(limit_s)
    return not syncing.is_alive()


def written_bytes(pid: int, settled: bool = False) -> int | None:
    """Bytes that a process, and the children that it waited for, have caused to be written to disks: of files, and of
    folders that they changed. Pipes, terminals and file systems in memory do not count. None where Linux's account
    (proc(5), `write_bytes`) cannot be read.

    After `settle_disks`, what is deleted before it reached a disk (`cancelled_write_bytes`) can only have been written
    since. So a program all of whose bytes were deleted again wrote 0: Python's `tempfile` tries a folder in this way.
    Without that, what is cancelled may be another program's, and does not count.
    """
    try:
        account = Path(f"/proc/{pid}/io").read_text("utf-8")
    except OSError:
        return None
    counts = dict(re.findall(r"^(\w+): (\d+)$", account, re.MULTILINE))
    if "write_bytes" not in counts:
        return None
    written = int(counts["write_bytes"])
    return 0 if settled and written == int(counts.get("cancelled_write_bytes", 0)) else written


class Tail:
    """The end of what a child prints, in memory: at most `pieces` pieces and about `limit` bytes."""

    def __init__(self, limit: int = MESSAGE_BYTES, pieces: int = MESSAGE_PIECES) -> None:
        self.limit = limit
        self.pieces = pieces
        self.size = 0
        self.chunks: deque[bytes] = deque()

    def append(self, chunk: bytes) -> None:
        """Adds a piece; the oldest ones go that are not needed to fill the limit, or that are too many."""
        self.chunks.append(chunk)
        self.size += len(chunk)
        while self.size - len(self.chunks[0]) >= self.limit or len(self.chunks) > self.pieces:
            self.size -= len(self.chunks.popleft())

    def read(self) -> bytes:
        """All that is kept."""
        return b"".join(self.chunks)


def pump(source: BinaryIO, sink: int | None, tail: Tail) -> None:
    """Passes a child's bytes on unread; goes on reading when nobody takes them, so that the child never blocks."""
    open_sink = sink is not None
    descriptor = source.fileno()
    while True:
        try:
            chunk = os.read(descriptor, _CHUNK)
        except OSError:
            return
        if not chunk:
            return
        tail.append(chunk)
        while sink is not None and open_sink and chunk:
            try:
                chunk = chunk[os.write(sink, chunk) :]
            except BlockingIOError:
                time.sleep(0.01)
            except OSError:
                open_sink = False


def stdin_is_terminal() -> bool:
    """Whether the standard input is a terminal: then a child must stay in its process group to read it."""
    try:
        return os.isatty(0)
    except OSError:
        return False


def stdin_can_be_read_again() -> bool:
    """Whether a second run of a program would read the same input: from a file, from nothing, or from a terminal.

    A pipe is empty after the first run.
    """
    try:
        os.lseek(0, 0, os.SEEK_CUR)
    except OSError:
        return stdin_is_terminal()
    return True


@contextlib.contextmanager
def stdin_put_back() -> Iterator[None]:
    """Sets a file on the standard input back to where it was, so that the next run reads it again."""
    try:
        place = os.lseek(0, 0, os.SEEK_CUR)
    except OSError:
        yield
        return
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.lseek(0, place, os.SEEK_SET)
