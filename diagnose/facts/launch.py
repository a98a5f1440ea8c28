"""Facts on the launch: time, clock, grid, waves, occupancy, how evenly the SMs worked."""

from __future__ import annotations

import math

from diagnose.facts.context import Compute, Context, FactDefinition
from diagnose.model import Scalar

# Time of the shortest kernel under ncu: one block that does nothing much took 1.9 to 2.1 us on an H200 (recorded
# reports, zero fill of 256 elements 1.86 us, 1,024-element add 2.14 us), 1.7 us on an RTX 4090. Launch, ramp and
# drain are in it.
SHORTEST_KERNEL_US = 2.0

_LIMITERS = {
    "registers": "launch__occupancy_limit_registers",
    "shared memory": "launch__occupancy_limit_shared_mem",
    "block size": "launch__occupancy_limit_blocks",
    "warps": "launch__occupancy_limit_warps",
    "barriers": "launch__occupancy_limit_barriers",
}


def _duration(c: Context) -> float | None:
    scale = {"ns": 1e-3, "nsecond": 1e-3, "us": 1.0, "usecond": 1.0, "ms": 1e3, "msecond": 1e3, "s": 1e6, "second": 1e6}
    for name in ("gpu__time_duration.sum", "gpu__time_duration.avg", "gpu__time_duration.max", "gpu__time_duration"):
        value = c.kernel.number(name)
        if value is not None:
            return value * scale.get(c.kernel.units.get(name, "ns"), 1e-3)
    c.miss("gpu__time_duration.sum")
    return None


def _clock(c: Context) -> float | None:
    rate = c.number(
        "sm__cycles_elapsed.avg.per_second",
        "smsp__cycles_elapsed.avg.per_second",
        "gpc__cycles_elapsed.avg.per_second",
        "gpc__frequency",
    )
    if rate is not None:
        return rate / 1e9
    cycles, us = c.number("sm__cycles_elapsed.max", "gpc__cycles_elapsed.max"), c.value("duration_us")
    return cycles / us / 1e3 if cycles and us else None


def _sm_count(c: Context) -> float | None:
    return c.number("device__attribute_multiprocessor_count", "launch__sm_count")


def _dimension_product(c: Context, stem: str) -> float | None:
    parts = [c.number(f"launch__{stem}_dim_{axis}") for axis in "xyz"]
    return float(math.prod(int(p) for p in parts if p is not None)) if all(p is not None for p in parts) else None


def _grid(c: Context) -> float | None:
    return c.number("launch__grid_size") or _dimension_product(c, "grid")


def _block(c: Context) -> float | None:
    return c.number("launch__block_size") or _dimension_product(c, "block")


def _blocks_per_sm(c: Context) -> float | None:
    limits = [c.number(metric) for metric in _LIMITERS.values()]
    known = [value for value in limits if value is not None and value > 0]
    return min(known) if known else None


def _limiter(c: Context) -> str | None:
    known = {name: c.number(metric) for name, metric in _LIMITERS.items()}
    values = {name: value for name, value in known.items() if value is not None and value > 0}
    if not values:
        return None
    smallest = min(values.values())
    # At a tie the block count comes first: with it at its maximum, no other resource keeps blocks out.
    for name in ("block size", "registers", "shared memory", "warps", "barriers"):
        if values.get(name) == smallest:
            return name
    return None


def _waves(c: Context) -> float | None:
    measured = c.number("launch__waves_per_multiprocessor")
    if measured is not None:
        return measured
    grid, per_sm, sms = c.value("grid_blocks"), c.value("blocks_per_sm_limit"), c.value("sm_count")
    return grid / (per_sm * sms) if grid and per_sm and sms else None


def _tail_idle(c: Context) -> float | None:
    """Share of SM time that the last wave leaves idle when all blocks take equally long: 1 - waves / ceil(waves)."""
    waves = c.value("waves")
    if waves is None or waves <= 0:
        return None
    return 1 - waves / math.ceil(waves) if waves > 1 else 0.0


def _sm_active(c: Context) -> float | None:
    active = c.number("sm__cycles_active.avg")
    elapsed = c.number("sm__cycles_elapsed.max", "sm__cycles_elapsed.avg", "gpc__cycles_elapsed.max")
    return min(active / elapsed, 1.0) if active is not None and elapsed else None


def _sm_imbalance(c: Context) -> float | None:
    """1 - average / maximum of the SMs' active cycles: 0 when all SMs work equally long."""
    average, most = c.number("sm__cycles_active.avg"), c.number("sm__cycles_active.max")
    # Average and maximum can come from different passes (seen): a negative value means balance.
    return max(0.0, 1 - average / most) if average is not None and most else None


def _grid_per_sm(c: Context) -> float | None:
    grid, sms = c.value("grid_blocks"), c.value("sm_count")
    return grid / sms if grid and sms else None


def _idle_sm_share(c: Context) -> float | None:
    """Share of the SMs that get no block at all because the grid has fewer blocks than SMs."""
    per_sm = c.value("grid_blocks_per_sm")
    return max(0.0, 1 - per_sm) if per_sm is not None else None


def _launch_overhead(c: Context) -> float | None:
    us = c.value("duration_us")
    return min(1.0, SHORTEST_KERNEL_US / us) if us else None


def _achieved(c: Context) -> float | None:
    return c.share(
        "sm__warps_active.avg.pct_of_peak_sustained_active", "smsp__warps_active.avg.pct_of_peak_sustained_active"
    )


def _theoretical(c: Context) -> float | None:
    return c.share("sm__maximum_warps_per_active_cycle_pct")


def _warps_per_scheduler(c: Context) -> float | None:
    per_sm = c.number("sm__warps_active.avg.per_cycle_active")
    if per_sm is not None:
        return per_sm / 4
    return c.number("smsp__warps_active.avg.per_cycle_active")


def _instructions_per_warp(c: Context) -> float | None:
    total, grid, block = c.value("instructions"), c.value("grid_blocks"), c.value("block_threads")
    return total / (grid * math.ceil(block / 32)) if total is not None and grid and block else None


def _cluster_idle(c: Context) -> float | None:
    """Share of the block places that clusters leave empty: places over those that clusters of this size can fill."""
    size, most = c.value("cluster_blocks"), c.value("cluster_max_active")
    if size is not None and size <= 1:
        return 0.0
    per_sm, sms, grid = c.value("blocks_per_sm_limit"), c.value("sm_count"), c.value("grid_blocks")
    if not size or not most or not per_sm or not sms or grid is None:
        return None
    places = per_sm * sms
    # A grid smaller than the GPU leaves places empty for want of blocks, whatever their clusters.
    return max(0.0, 1 - size * most / places) if grid >= places else 0.0


def _metric(*names: str) -> Compute:
    def compute(c: Context) -> Scalar | None:
        return c.number(*names)

    return compute


FACTS: tuple[FactDefinition, ...] = (
    FactDefinition(
        "duration_us",
        "us",
        "Time of the launch as ncu measured it (cache and clock control apply).",
        _duration,
        ("gpu__time_duration.sum",),
    ),
    FactDefinition(
        "clock_ghz",
        "GHz",
        "Average SM clock during the launch.",
        _clock,
        ("sm__cycles_elapsed.avg.per_second", "sm__cycles_elapsed.max"),
    ),
    FactDefinition(
        "sm_count",
        "count",
        "SMs of the GPU.",
        _sm_count,
        ("launch__sm_count", "device__attribute_multiprocessor_count"),
    ),
    FactDefinition("grid_blocks", "count", "Blocks of the grid.", _grid, ("launch__grid_size",)),
    FactDefinition("block_threads", "count", "Threads of a block.", _block, ("launch__block_size",)),
    FactDefinition(
        "cluster_blocks",
        "count",
        "Blocks of a cluster (0 or 1: none).",
        _metric("launch__cluster_size"),
        ("launch__cluster_size",),
    ),
    FactDefinition(
        "cluster_max_active",
        "count",
        "Clusters that fit the GPU at once.",
        _metric("launch__cluster_max_active"),
        ("launch__cluster_max_active",),
    ),
    FactDefinition(
        "registers_per_thread",
        "count",
        "Registers a thread.",
        _metric("launch__registers_per_thread"),
        ("launch__registers_per_thread",),
    ),
    FactDefinition(
        "shared_bytes_per_block",
        "byte",
        "Shared memory a block, static and dynamic.",
        _metric("launch__shared_mem_per_block", "launch__shared_mem_per_block_allocated"),
        ("launch__shared_mem_per_block",),
    ),
    FactDefinition("blocks_per_sm_limit", "count", "Blocks that fit an SM.", _blocks_per_sm, tuple(_LIMITERS.values())),
    FactDefinition(
        "occupancy_limiter", "text", "The resource that limits the blocks an SM.", _limiter, tuple(_LIMITERS.values())
    ),
    FactDefinition(
        "occupancy_theoretical",
        "share",
        "Warps that fit, of the SM's maximum.",
        _theoretical,
        ("sm__maximum_warps_per_active_cycle_pct",),
    ),
    FactDefinition(
        "occupancy_achieved",
        "share",
        "Warps resident on average while the SM was active, of the SM's maximum.",
        _achieved,
        ("sm__warps_active.avg.pct_of_peak_sustained_active",),
    ),
    FactDefinition(
        "warps_per_scheduler",
        "count",
        "Warps resident on a scheduler on average.",
        _warps_per_scheduler,
        ("smsp__warps_active.avg.per_cycle_active",),
    ),
    FactDefinition("grid_blocks_per_sm", "ratio", "Blocks of the grid over SMs.", _grid_per_sm),
    FactDefinition(
        "waves",
        "ratio",
        "Grid over the blocks that fit the GPU at once.",
        _waves,
        ("launch__waves_per_multiprocessor",),
    ),
    FactDefinition(
        "wave_tail_idle", "share", "SM time that the last wave leaves idle if blocks take equally long.", _tail_idle
    ),
    FactDefinition("idle_sm_share", "share", "SMs that get no block.", _idle_sm_share),
    FactDefinition(
        "sm_active",
        "share",
        "Time that an SM had work, average over SMs.",
        _sm_active,
        ("sm__cycles_active.avg", "sm__cycles_elapsed.max"),
    ),
    FactDefinition(
        "sm_imbalance",
        "share",
        "1 - average / maximum of the SMs' active cycles.",
        _sm_imbalance,
        ("sm__cycles_active.avg", "sm__cycles_active.max"),
    ),
    FactDefinition(
        "instructions_per_warp",
        "count",
        "Executed instructions over warps of the grid: how long a warp's program is.",
        _instructions_per_warp,
    ),
    FactDefinition(
        "cluster_idle_share", "share", "Block places that clusters of this size cannot fill.", _cluster_idle
    ),
    FactDefinition("launch_overhead", "share", "Shortest kernel's time over this one's.", _launch_overhead),
)
