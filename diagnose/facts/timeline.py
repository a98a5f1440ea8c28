"""Facts on the engines of a main loop: copies, Tensor Cores and scalar pipes, over the whole kernel and over its life.

The article's stage model: T_stage >= max(copy, Tensor, CUDA) where the three overlap, their sum where they take turns.
PM samples are means over all SMs: blocks out of phase with each other hide turns that each of them takes.
"""

from __future__ import annotations

from collections.abc import Mapping

from diagnose.facts.context import Compute, Context, FactDefinition
from diagnose.facts.pipes import all_limits

# Which resources belong to which engine, and which PM-sampling series (share of peak, in per cent) show it working.
_RESOURCES: Mapping[str, tuple[str, ...]] = {
    "copy": ("hbm", "l2"),
    "tensor": ("tensor",),
    "scalar": ("fp32", "fp64", "int", "sfu"),
}
_ELAPSED = ".avg.pct_of_peak_sustained_elapsed"
_SERIES: Mapping[str, tuple[str, ...]] = {
    "copy": (f"lts__throughput{_ELAPSED}", f"dramc__throughput{_ELAPSED}", f"dram__throughput{_ELAPSED}"),
    "tensor": (f"sm__pipe_tensor_cycles_active_realtime{_ELAPSED}",),
    "scalar": (
        f"sm__inst_executed_pipe_fma_realtime{_ELAPSED}",
        f"sm__inst_executed_pipe_alu_realtime{_ELAPSED}",
        f"sm__inst_executed_pipe_xu_realtime{_ELAPSED}",
        f"sm__pipe_fp64_cycles_active_realtime{_ELAPSED}",
    ),
}
_FEWEST = 8  # samples; below that the start and the end are most of what was sampled
_AT_WORK = 0.5  # of the engine's own mean while it works: a phase is on or off
_ENGINE = 0.15  # utilization from which an engine matters to the stage: a seventh of the time


def engine(name: str) -> Compute:
    """Fact function: the largest utilization among the engine's resources."""

    def compute(c: Context) -> float | None:
        found = [limit.utilization for limit in all_limits(c) if limit.resource in _RESOURCES[name]]
        if not found:
            c.miss("any throughput metric (Speed of Light)")
        return max(found) if found else None

    return compute


def _engines(c: Context) -> list[float] | None:
    known = [c.value(f"engine_{name}") for name in _RESOURCES]
    if known[1] is None and c.value("tensor_utilization") == 0:
        known[1] = 0.0
    values = [value for value in known if value is not None]
    return values if len(values) == len(known) else None


def _longest(c: Context) -> float | None:
    found = _engines(c)
    return max(found) if found else None


def _sum(c: Context) -> float | None:
    found = _engines(c)
    return sum(found) if found else None


def _series(c: Context) -> dict[str, list[float]]:
    """The engines' activity (0..1) over the kernel's life, for the engines that matter; samples of equal number."""
    by_name = {item.metric.split(".TriageCompute.")[-1]: item.values for item in c.kernel.timeline}
    found: dict[str, list[float]] = {}
    for name, metrics in _SERIES.items():
        parts = [by_name[metric] for metric in metrics if metric in by_name]
        if parts and (c.value(f"engine_{name}") or 0.0) >= _ENGINE:
            found[name] = [max(values) / 100 for values in zip(*parts, strict=False)]
    return found


def _one_at_a_time(c: Context) -> float | None:
    if not c.kernel.timeline:
        c.miss("PM sampling (ncu --section PmSampling)")
        return None
    series = _series(c)
    samples = min((len(values) for values in series.values()), default=0)
    if len(series) < 2 or samples < _FEWEST:
        return 0.0 if len(series) < 2 else None
    at_work: list[list[bool]] = []
    for values in series.values():
        busy = [value for value in values if value > 0]
        mean = sum(busy) / len(busy) if busy else 0.0
        at_work.append([value >= _AT_WORK * mean and value > 0 for value in values[:samples]])
    together = [sum(states) for states in zip(*at_work, strict=True)]
    return together.count(1) / samples


FACTS: tuple[FactDefinition, ...] = (
    FactDefinition(
        "engine_copy", "share", "Time that copies need: the larger of the HBM and L2 bounds.", engine("copy")
    ),
    FactDefinition("engine_tensor", "share", "Time that the Tensor pipe needs.", engine("tensor")),
    FactDefinition(
        "engine_scalar",
        "share",
        "Time that the busiest of FP32, FP64, integer and special pipes needs.",
        engine("scalar"),
    ),
    FactDefinition("engines_longest", "share", "The longest of the three: the stage's time if all overlap.", _longest),
    FactDefinition("engines_sum", "ratio", "Their sum: up to 1, they may have taken turns all the time.", _sum),
    FactDefinition(
        "one_engine_at_a_time",
        "share",
        "Samples of the kernel's life in which exactly one of the engines that matter was at work.",
        _one_at_a_time,
    ),
)
