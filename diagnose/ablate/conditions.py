"""The GPU's clock, temperature and power while a program runs, as nvidia-smi tells them."""

from __future__ import annotations

import contextlib
import subprocess
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

_FIELDS = "clocks.sm,clocks.mem,temperature.gpu,power.draw"
_EVERY_MS = 100  # a timed run takes some tenths of a second
_KEPT = 4096


@dataclass(frozen=True)
class Conditions:
    """The largest SM clock and power, the memory clock and the temperature seen; None where nothing was."""

    sm_mhz: float | None = None
    memory_mhz: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None


@dataclass
class Watch:
    """What nvidia-smi has said, with the time at which it said it."""

    seen: deque[tuple[float, tuple[float | None, ...]]] = field(default_factory=lambda: deque(maxlen=_KEPT))

    def since(self, start: float) -> Conditions:
        """The conditions since `start` (time.monotonic)."""
        rows = [values for at, values in list(self.seen) if at >= start]
        columns = [[v for v in column if v is not None] for column in zip(*rows, strict=True)] if rows else [[]] * 4
        return Conditions(*(max(column) if column else None for column in columns))


def parse(line: str) -> tuple[float | None, ...] | None:
    """One line of `--format=csv,noheader,nounits`; `[N/A]` becomes None. None for anything else."""
    cells = [cell.strip() for cell in line.split(",")]
    if len(cells) != 4:
        return None
    values: list[float | None] = []
    for cell in cells:
        try:
            values.append(float(cell))
        except ValueError:
            values.append(None)
    return tuple(values)


@contextlib.contextmanager
def watching(gpu: int = 0) -> Iterator[Watch]:
    """Follows a GPU until the block ends. Without nvidia-smi nothing is seen, and every condition is None."""
    watch = Watch()
    command = ["nvidia-smi", f"--id={gpu}", f"--query-gpu={_FIELDS}", "--format=csv,noheader,nounits"]
    try:
        process = subprocess.Popen(
            [*command, f"--loop-ms={_EVERY_MS}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            errors="replace",
        )
    except OSError:
        yield watch
        return

    def follow() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if (values := parse(line)) is not None:
                watch.seen.append((time.monotonic(), values))

    threading.Thread(target=follow, daemon=True).start()
    try:
        yield watch
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)
        if process.poll() is None:
            process.kill()
