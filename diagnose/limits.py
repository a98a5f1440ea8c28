"""Lower bounds on a kernel's time: work of each resource over the rate that this GPU sustains for it.

T >= max over r of work_r / ceiling_r. A limit's utilization is its bound over the measured time, of *elapsed* time, so
idle SMs and tail count against it; for HBM the few microseconds of every kernel's start and end are left out. Ceilings
come from the catalogue for this GPU (measured, recorded) or, where it has none, from the peak that the report itself
states times a sustained share.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from diagnose.facts.context import Context
from diagnose.gpus import catalogue
from diagnose.model import Ceiling, Limit
from diagnose.sass import mix

# The catalogue's name (ceilings.yaml) of each resource's sustained share.
_SHARE_NAME: Mapping[str, str] = {"hbm": "hbm", "l2": "l2", "l1": "smem", "issue": "issue"}


def _sustained(c: Context, resource: str) -> tuple[float, str]:
    """(sustained part of the resource's peak, its source): measured on this GPU, else the catalogue's usual share."""
    name = _SHARE_NAME.get(resource, "pipe")
    if resource == "tensor":
        # Each instruction path has its own peak, and ncu's percentage is of that (2/3 for warp-level mma on sm_90).
        name = "tensor:wgmma" if mix.count(c.kernel.opcodes, "HGMMA", "QGMMA", "IGMMA") else "tensor:mma"
    measured = c.ceilings.get(f"share:{resource if name == 'pipe' else name}")
    if measured is not None:
        return measured.value, measured.source
    share = catalogue.sustained_share(name, c.arch)
    assert share is not None, name  # the catalogue's own test asks for every name above
    return share, "datasheet"


def sustained(c: Context, resource: str) -> float:
    """Sustained part of the resource's peak."""
    return _sustained(c, resource)[0]


ORDER = ("tensor", "fp64", "fp32", "sfu", "int", "hbm", "nvlink", "l2", "l1", "lsu", "issue")
"""Who binds among resources within a few per cent: the one doing the useful work comes first (trap 26)."""

PIPES = ("tensor", "fp64", "fp32", "sfu")  # the ALU pipe also selects and compares floats: its share names no work
ONE_PIPE = 0.85  # loop counters, branches and addresses take a tenth or so of a loop that otherwise feeds one pipe

TIE = 0.04  # a wgmma GEMM at its roof shows shared memory one to two points above the Tensor pipe (trap 26)


@dataclass(frozen=True)
class Resource:
    """How to read one resource: percentages of peak by ncu name (the largest known counts), then work and its unit."""

    name: str
    percentages: tuple[str, ...]
    work: Callable[[Context], float | None]
    work_unit: str
    ceiling_unit: str


_ELAPSED = ".avg.pct_of_peak_sustained_elapsed"


def _busy_cycles(percentages: tuple[str, ...]) -> Callable[[Context], float | None]:
    """Work of a pipe: its busy cycles an SM, utilization of peak times elapsed cycles."""

    def compute(c: Context) -> float | None:
        shares = [s for s in (c.share(name) for name in percentages) if s is not None]
        clock, us = c.value("clock_ghz"), c.value("duration_us")
        return max(shares) * clock * us * 1e3 if shares and clock and us else None

    return compute


def _l2_bytes(c: Context) -> float | None:
    sectors = c.number("lts__t_sectors.sum", "lts__t_sectors_srcunit_tex.sum")
    return sectors * 32 if sectors is not None else None


LINK_COUNTERS = ("nvlrx__bytes.sum.per_second", "nvltx__bytes.sum.per_second")
PEER_MISSES = "lts__t_sectors_aperture_peer_lookup_miss.sum"


def nvlink_bytes(c: Context) -> float | None:
    """Bytes over NVLink in the busier direction: by the link's counters, else what L2 missed for another GPU's memory.

    The second is reads only, and counts as NVLink on GPUs that have it. 0 where neither direction carried anything.
    """
    us = c.value("duration_us")
    rates = [rate for rate in map(c.kernel.number, LINK_COUNTERS) if rate is not None]
    if rates:
        return max(rates) * us * 1e-6 if us else None
    sectors = c.number(PEER_MISSES)
    return sectors * 32 if sectors is not None else None


_PIPES: Mapping[str, tuple[str, ...]] = {
    "l1": (f"l1tex__data_pipe_lsu_wavefronts{_ELAPSED}", f"l1tex__data_bank_reads{_ELAPSED}",
           f"l1tex__data_bank_writes{_ELAPSED}", f"l1tex__f_wavefronts{_ELAPSED}", "tex__sol_pct"),
    "lsu": (f"sm__inst_executed_pipe_lsu{_ELAPSED}", f"l1tex__lsuin_requests{_ELAPSED}",
    f"sm__mio_inst_issued{_ELAPSED}"), "tensor": (f"sm__pipe_tensor_cycles_active{_ELAPSED}",
    f"sm__pipe_tensor_op_hmma_cycles_active{_ELAPSED}", f"sm__pipe_tensor_op_imma_cycles_active{_ELAPSED}",
    f"sm__pipe_tensor_op_dmma_cycles_active{_ELAPSED}", f"sm__inst_executed_pipe_tensor{_ELAPSED}",
    f"sm__inst_executed_pipe_tensor_op_hmma{_ELAPSED}"), "fp32": (f"sm__pipe_fma_cycles_active{_ELAPSED}",
    f"sm__inst_executed_pipe_fma{_ELAPSED}", f"sm__pipe_fmaheavy_cycles_active{_ELAPSED}"),
    "fp64": (f"sm__pipe_fp64_cycles_active{_ELAPSED}", f"sm__inst_executed_pipe_fp64{_ELAPSED}"),
    "int": (f"sm__pipe_alu_cycles_active{_ELAPSED}", f"sm__inst_executed_pipe_alu{_ELAPSED}"),
    "sfu": (f"sm__inst_executed_pipe_xu{_ELAPSED}", f"sm__pipe_xu_cycles_active{_ELAPSED}"),
    "issue": (f"sm__issue_active{_ELAPSED}", f"sm__inst_issued{_ELAPSED}", f"sm__inst_executed{_ELAPSED}"),
}  # fmt: skip

_HBM = (
    f"gpu__dram_throughput{_ELAPSED}",
    f"dram__throughput{_ELAPSED}",
    f"dram__cycles_active{_ELAPSED}",
    "fbpa__sol_pct",
)  # the last one: Pascal, ncu 2019
# Parts of L2 that are its own: `lts__throughput` also holds device fills, which follow HBM (trap 31).
L2_SECTORS = f"lts__t_sectors{_ELAPSED}"
L2_TAGS = f"lts__t_tag_requests{_ELAPSED}"
L2_RETURNS = (f"lts__lts2xbar_cycles_active{_ELAPSED}", f"l1tex__m_xbar2l1tex_read_sectors{_ELAPSED}")
L2_ATOMICS = f"lts__d_atomic_input_cycles_active{_ELAPSED}"
_L2 = (L2_SECTORS, L2_TAGS, f"lts__xbar2lts_cycles_active{_ELAPSED}", *L2_RETURNS, L2_ATOMICS, "ltc__sol_pct")

RESOURCES: tuple[Resource, ...] = (
    Resource("hbm", _HBM, lambda c: c.value("hbm_bytes"), "byte", "byte/s"),
    Resource("nvlink", (), nvlink_bytes, "byte", "byte/s"),
    Resource("l2", _L2, _l2_bytes, "byte", "byte/s"),
    *(Resource(name, metrics, _busy_cycles(metrics), "cycle", "cycle/s") for name, metrics in _PIPES.items()),
)

NEEDS: tuple[str, ...] = (
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "lts__t_sectors.sum",
    *(metric for metric in _L2 if metric.endswith(_ELAPSED)),
    *(metrics[0] for metrics in _PIPES.values()),
    "l1tex__data_bank_reads.avg.pct_of_peak_sustained_elapsed",
    "l1tex__data_bank_writes.avg.pct_of_peak_sustained_elapsed",
    "sm__mio_inst_issued.avg.pct_of_peak_sustained_elapsed",
    "l1tex__lsuin_requests.avg.pct_of_peak_sustained_elapsed",
    "sm__pipe_fmaheavy_cycles_active.avg.pct_of_peak_sustained_elapsed",  # IMAD runs on this half of the FMA pipe only
)


def needs(resource: str) -> tuple[str, ...]:
    """The metrics of NEEDS that the resource's limit reads."""
    percentages = next(r.percentages for r in RESOURCES if r.name == resource)
    work = ("lts__t_sectors.sum",) if resource == "l2" else ()
    return work + tuple(metric for metric in NEEDS if metric in percentages)


def _hbm(c: Context) -> Ceiling | None:
    """The rate that HBM sustains for this kernel's mix of reads and writes.

    `hbm` is that of a copy. A bus that turns round less often sustains more: between a copy and reads (or writes) only,
    the rate is interpolated by how far the mix is from half and half.
    """
    copy = c.ceilings.get("hbm")
    read, written = c.value("hbm_read_bytes"), c.value("hbm_write_bytes")
    one_way = c.ceilings.get("hbm:read" if (read or 0.0) >= (written or 0.0) else "hbm:write")
    if copy is None or one_way is None or read is None or written is None or read + written == 0:
        return copy
    apart = abs(read - written) / (read + written)
    return replace(copy, value=copy.value + apart * max(0.0, one_way.value - copy.value))


_RAMP_AT_MOST = 0.25  # of the kernel's time; below that the ramp no longer is a small correction


def _streaming_us(c: Context, us: float) -> float:
    """The kernel's time without its start and end, in which memory is not busy whatever the kernel does."""
    ramp = c.ceilings.get("ramp")
    return us - min(ramp.value * 1e6, _RAMP_AT_MOST * us) if ramp is not None else us


def _largest(c: Context, resource: Resource) -> float | None:
    """The largest known percentage of peak of the resource, as a share of elapsed time."""
    known = [s for s in (c.share(name) for name in resource.percentages) if s is not None]
    return max(known) if known else None


def busiest(c: Context, name: str) -> float | None:
    """The busiest part of a resource: its largest known share of peak, of elapsed time."""
    return _largest(c, next(resource for resource in RESOURCES if resource.name == name))


def _limit(c: Context, resource: Resource) -> Limit | None:
    us = c.value("duration_us")
    peak_share = _largest(c, resource)
    work, unit, per_second = resource.work(c), resource.work_unit, resource.ceiling_unit
    if work is None and peak_share is not None:
        # Bytes were not recorded, the busy share of the resource was: its work is its busy cycles.
        work, unit, per_second = _busy_cycles(resource.percentages)(c), "cycle", "cycle/s"
    if not us or work is None:
        return None
    recorded = _hbm(c) if resource.name == "hbm" and unit == "byte" else None
    if resource.name == "nvlink":  # one direction's rate; a kernel that does not use the link has no such limit
        recorded = c.ceilings.get("nvlink") if work > 0 else None
    if recorded is not None:
        rate, source = recorded.value, recorded.source
        utilization = work / rate / (_streaming_us(c, us) * 1e-6)
        if peak_share is not None:
            # Bytes understate a busy bus (refresh, turn-around): the counter's busy share bounds utilization too.
            utilization = max(utilization, peak_share)
    elif peak_share is not None:
        share, source = _sustained(c, resource.name)
        utilization = peak_share / share
        rate = work / (us * 1e-6) / utilization if utilization > 0 else 0.0
    else:
        return None
    if rate <= 0:
        return None
    utilization = min(utilization, 1.0)
    return Limit(resource.name, work, unit, rate, per_second, source, utilization * us, utilization)


def compute(c: Context) -> tuple[Limit, ...]:
    """The limits of one kernel, the largest bound first; a resource that was not measured is absent."""
    found = [limit for limit in (_limit(c, resource) for resource in RESOURCES) if limit is not None]
    return tuple(sorted(found, key=lambda limit: (-limit.utilization, ORDER.index(limit.resource))))


def library(c: Context) -> Limit | None:
    """The library's time for the declared problem, a mark beside the bounds: what this GPU is known to reach, not what
    it cannot pass, so it never binds.
    """
    us, best, operations = c.value("duration_us"), c.value("library_us"), c.value("useful_flops")
    if not us or not best or not operations:
        return None
    return Limit("library", operations, "op", operations / (best * 1e-6), "op/s", "library", best, min(1.0, best / us))


def competing(limits: tuple[Limit, ...], reads_operands: bool) -> tuple[Limit, ...]:
    """The limits that can bind.

    `reads_operands`: the kernel's wgmma read shared memory themselves; that traffic is part of the Tensor work, so the
    L1 / shared-memory pipe does not bind beside a Tensor pipe that is of the same order (contract, tensor-compute).
    """
    if not reads_operands:
        return limits
    tensor = next((limit.utilization for limit in limits if limit.resource == "tensor"), 0.0)
    return tuple(limit for limit in limits if limit.resource != "l1" or tensor < 0.6 * limit.utilization) or limits


def binding(limits: tuple[Limit, ...]) -> Limit | None:
    """The limit that binds of those that compete: the largest; within TIE of it, the one that does the useful work
    (ORDER).
    """
    if not limits:
        return None
    most = max(limit.utilization for limit in limits)
    close = [limit for limit in limits if limit.utilization >= most - TIE]
    found = min(close, key=lambda limit: ORDER.index(limit.resource))
    if found.resource == "issue":
        # Issue is full *because of* one pipe when most of what is issued goes there.
        pipes = [
            limit for limit in limits if limit.resource in PIPES and limit.utilization >= ONE_PIPE * found.utilization
        ]
        found = max(pipes, key=lambda limit: limit.utilization, default=found)
    return found
