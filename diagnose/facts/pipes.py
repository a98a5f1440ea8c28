"""Facts on how full each resource is: utilizations of sustainable rates (from the limits) and of active time."""

from __future__ import annotations

from diagnose import limits
from diagnose.facts.context import Compute, Context, FactDefinition
from diagnose.model import Limit, Scalar
from diagnose.sass import mix


def all_limits(c: Context) -> tuple[Limit, ...]:
    """The kernel's limits, computed once."""
    # What a limit misses is its own fact's to name, not that of the fact which happens to ask first.
    found = c.cached("limits", lambda: c.quietly(lambda: limits.compute(c)))
    assert isinstance(found, tuple)
    return found


def utilization(resource: str) -> Compute:
    """Fact function: the resource's bound over the measured time."""

    def compute(c: Context) -> Scalar | None:
        for limit in all_limits(c):
            if limit.resource == resource:
                return limit.utilization
        if resource == "nvlink":
            no_link = "hbm" in c.ceilings and "nvlink" not in c.ceilings  # a product that is known, and has none
            return 0.0 if no_link or limits.nvlink_bytes(c) == 0 else None
        percentages = next(r.percentages for r in limits.RESOURCES if r.name == resource)
        if c.kernel.number(percentages[0]) == 0:
            return 0.0  # measured, and idle
        if resource == "tensor" and c.kernel.opcodes and c.value("tensor_instructions") == 0:
            return 0.0  # ncu leaves the pipe's counter out where no MMA ran; the opcodes prove that none did
        c.miss(percentages[0])
        return None

    return compute


def competing(c: Context) -> tuple[Limit, ...]:
    """The limits that can bind this kernel: shared memory that wgmma reads itself is part of the Tensor work."""
    return limits.competing(all_limits(c), mix.count(c.kernel.opcodes, "HGMMA", "QGMMA", "IGMMA") > 0)


def _binding(c: Context) -> str | None:
    limit = limits.binding(competing(c))
    if limit is None:
        c.miss("any throughput metric (Speed of Light)")
    return limit.resource if limit else None


def _top(c: Context) -> float | None:
    found = all_limits(c)
    if not found:
        c.miss("any throughput metric (Speed of Light)")
    return found[0].utilization if found else None


def _top_memory(c: Context) -> float | None:
    known = [limit.utilization for limit in all_limits(c) if limit.resource in {"hbm", "l2", "l1"}]
    return max(known) if known else _top(c)


def _active(c: Context) -> float | None:
    """Largest utilization while SMs were active: "saturated?" is asked of active time, "bound?" of elapsed time."""
    top, active = c.value("top_utilization"), c.value("sm_active")
    return min(1.0, top / active) if top is not None and active else None


def _issue_active(c: Context) -> float | None:
    per_cycle = c.number("smsp__issue_active.avg.per_cycle_active")
    if per_cycle is not None:
        return min(per_cycle, 1.0)
    return c.share("smsp__issue_active.avg.pct_of_peak_sustained_active", "smsp__issue_active.avg.pct")


def _no_issue(c: Context) -> float | None:
    """Share of the kernel's time in which schedulers of active SMs issued nothing: what stalls can explain at most."""
    active, sm = c.value("issue_active"), c.value("sm_active")
    if active is None:
        return None
    return (1 - active) * (sm if sm is not None else 1.0)


def _has_throughput(c: Context) -> bool:
    return bool(all_limits(c))


def _not_finite(c: Context) -> float:
    """Metrics of the limits and of time that the report holds as NaN or infinite: the report contradicts itself."""
    core = {"gpu__time_duration.sum", "smsp__inst_executed.sum", "sm__inst_executed.sum", *limits.NEEDS}
    return float(sum(name in core for name in c.kernel.not_finite))


def _counters_repeat(c: Context) -> Scalar | None:
    """Set from outside for reports in which different kernels hold identical counters (trap 15)."""
    return False


def _constant_cache(c: Context) -> float | None:
    return c.share("idc__request_cycles_active.avg.pct_of_peak_sustained_elapsed")


def _overlap(c: Context) -> float | None:
    """The smaller of Tensor and special-function utilization: what running both at once could hide at most."""
    tensor, sfu = c.value("tensor_utilization"), c.value("sfu_utilization")
    if tensor is None or sfu is None:
        return None
    return min(tensor, sfu)


def _ipc(c: Context) -> float | None:
    return c.number("sm__inst_executed.avg.per_cycle_active")


FACTS: tuple[FactDefinition, ...] = (
    *(
        FactDefinition(
            f"{name}_utilization",
            "share",
            f"Time that {name} needs at its sustainable rate, of the measured time.",
            utilization(name),
            limits.needs(name),
        )
        for name in limits.ORDER
    ),
    FactDefinition(
        "binding_resource",
        "text",
        "The resource whose bound is largest; among near equals the one doing the useful work.",
        _binding,
    ),
    FactDefinition(
        "top_utilization", "share", "The largest bound over the measured time: what the hardware explains.", _top
    ),
    FactDefinition("top_memory_utilization", "share", "The largest utilization among HBM, L2 and L1.", _top_memory),
    FactDefinition("top_active_utilization", "share", "The same while SMs were active.", _active),
    FactDefinition(
        "issue_active",
        "share",
        "Cycles in which a scheduler issued, of active cycles.",
        _issue_active,
        ("smsp__issue_active.avg.per_cycle_active",),
    ),
    FactDefinition(
        "no_issue", "share", "Time in which schedulers of active SMs issued nothing, of elapsed time.", _no_issue
    ),
    FactDefinition("has_throughput", "bool", "Whether any throughput of the limits was measured.", _has_throughput),
    FactDefinition(
        "not_finite_counters", "count", "Counters of the limits or of time that are NaN or infinite.", _not_finite
    ),
    FactDefinition(
        "counters_repeat", "bool", "Whether another kernel of the report holds identical counters.", _counters_repeat
    ),
    FactDefinition(
        "tensor_and_sfu",
        "share",
        "The smaller of Tensor and special-function utilization: what overlapping them can hide.",
        _overlap,
    ),
    FactDefinition(
        "constant_cache_utilization",
        "share",
        "Cycles in which the indexed constant cache served requests.",
        _constant_cache,
        ("idc__request_cycles_active.avg.pct_of_peak_sustained_elapsed",),
    ),
    FactDefinition(
        "ipc", "ratio", "Instructions a cycle and SM while active.", _ipc, ("sm__inst_executed.avg.per_cycle_active",)
    ),
)
