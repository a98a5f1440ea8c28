"""Clocks and power while a program runs unprofiled: samples of nvidia-smi, and whether a cap lowered the clock.

A profiler replays each kernel alone, with pauses between: the GPU is cooler and its clock higher than in the program
itself. Only samples beside an unprofiled run can show that power or heat lowers the clock, so `power-throttle` is said
with nothing less.
"""

from __future__ import annotations

import statistics
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

EVERY_MS = 20  # nvidia-smi's own loop; the driver renews clocks and power about every 20 ms on Hopper
ENOUGH = 10  # busy samples, 0.2 s: fewer may all stand in the ramp from the idle clock
BUSY = 50.0  # per cent of the driver's own utilization: below it the GPU mostly waits, and its clock says little
HALF = 0.5  # of the busy samples under a cap: then the median sample is one

# Bits of NVML's clocks event reasons that mean power or heat (nvml.h: nvmlClocksEventReason*).
_CAPS = {0x4: "power cap", 0x8: "hardware slowdown", 0x20: "heat (software)", 0x40: "heat", 0x80: "power brake"}
# The field's name before driver 535 is the second one.
_REASONS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")
_FIELDS = ("index", "clocks.sm", "power.draw", "power.limit", "utilization.gpu")


@dataclass(frozen=True)
class Sample:
    """One reading of one GPU: MHz, W, W, per cent, NVML's bits."""

    gpu: int
    sm_mhz: float
    power_w: float | None
    limit_w: float | None
    busy_pct: float
    reasons: int


@dataclass(frozen=True)
class Clocks:
    """What the samples of a busy GPU say. `capped`: share of them under a cap of power or heat (0..1)."""

    samples: int
    sm_mhz: float
    power_w: float | None
    limit_w: float | None
    capped: float
    reasons: tuple[str, ...]


@dataclass
class Log:
    """The lines that nvidia-smi prints while the block runs."""

    lines: list[str] = field(default_factory=list)


def _command(nvidia_smi: str, reasons: str) -> list[str]:
    fields = ",".join((*_FIELDS, reasons))
    return [nvidia_smi, f"--query-gpu={fields}", "--format=csv,noheader,nounits", f"--loop-ms={EVERY_MS}"]


def _reasons_field(nvidia_smi: str) -> str | None:
    """The name that this driver gives the reasons; None where nvidia-smi cannot say them, or is not there."""
    for name in _REASONS:
        command = [nvidia_smi, f"--query-gpu={name}", "--format=csv,noheader"]
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=20.0, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return None
        if done.returncode == 0:
            return name
    return None


@contextmanager
def sampling(nvidia_smi: str = "nvidia-smi") -> Iterator[Log]:
    """Samples while the block runs. Without nvidia-smi the log stays empty; nothing here raises."""
    log = Log()
    reasons = _reasons_field(nvidia_smi)
    process = reader = None
    if reasons is not None:
        try:
            process = subprocess.Popen(
                _command(nvidia_smi, reasons),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                errors="replace",
            )
        except OSError:
            process = None
    if process is not None and process.stdout is not None:
        stream = process.stdout
        reader = threading.Thread(target=lambda: log.lines.extend(stream), daemon=True)
        reader.start()
    try:
        yield log
    finally:
        if process is not None:
            process.terminate()
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if reader is not None:
            reader.join(5)


def _amount(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None  # [N/A], [Not Supported]


def samples(lines: Sequence[str]) -> list[Sample]:
    """The readings in the log; lines that are none (the last one may be cut) are left out."""
    found = []
    for line in lines:
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) != len(_FIELDS) + 1:
            continue
        gpu, mhz, power, limit, busy = (_amount(cell) for cell in cells[:-1])
        try:
            reasons = int(cells[-1], 16)
        except ValueError:
            continue
        if gpu is not None and mhz is not None and busy is not None:
            found.append(Sample(int(gpu), mhz, power, limit, busy, reasons))
    return found


def read(log: Log) -> Clocks | None:
    """Of the GPU that was busy in most samples; None where fewer than ENOUGH were."""
    busy: dict[int, list[Sample]] = {}
    for one in samples(log.lines):
        if one.busy_pct >= BUSY:
            busy.setdefault(one.gpu, []).append(one)
    chosen = max(busy.values(), key=len, default=[])
    if len(chosen) < ENOUGH:
        return None
    caps = [one.reasons & sum(_CAPS) for one in chosen]
    powers = [one.power_w for one in chosen if one.power_w is not None]
    return Clocks(
        samples=len(chosen),
        sm_mhz=statistics.median(one.sm_mhz for one in chosen),
        power_w=statistics.median(powers) if powers else None,
        limit_w=chosen[-1].limit_w,
        capped=sum(1 for cap in caps if cap) / len(chosen),
        reasons=tuple(text for bit, text in _CAPS.items() if any(cap & bit for cap in caps)),
    )


def loss(seen: Clocks, sustained_mhz: float) -> float:
    """How far the clock lies under the one this GPU sustains for other work, as a share; 0 where no cap held it."""
    return max(0.0, 1 - seen.sm_mhz / sustained_mhz) if seen.capped >= HALF else 0.0
