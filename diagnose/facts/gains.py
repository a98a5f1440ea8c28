"""What a fix can recover, from the next bound: shares of the kernel's time (`stake_*` facts).

Two arguments, both from the limits model and never from the size of a stall bar alone:

- *Waste on a resource*: the same bounds with the waste removed. T_after / T >= max(U'), and a kernel that reaches the
  fraction max(U) of its bound today is expected to reach the same fraction afterwards, or more, as the waiting that
  the wasted work caused goes with it: 1 - max(U') / reached.
- *Waiting that nothing covers*: the exposed share of time, but no more than what the binding resource leaves: 1 -
  max(U).

What is replaced and not removed (a shorter division, a tile's own reads) stays in the bounds, so it costs nothing where
another resource binds afterwards. Work that only the fault asks for (scattered requests' tags, contended atomics' share
of L2, a serial section's single lanes) bounds nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from diagnose import limits
from diagnose.facts.context import Compute, Context, FactDefinition
from diagnose.facts.memory import HOST_WRITES
from diagnose.facts.pipes import all_limits, competing
from diagnose.facts.work import issued_tensor
from diagnose.model import Scalar
from diagnose.sass import mix

# A fixed kernel reaches about this share of its binding ceiling: what healthy kernels in the recorded reports reach
# (copies, reductions and library GEMMs sit at 0.88 to 1.0 of their limit).
ACHIEVABLE = 0.95

COMMON = 0.80  # three of four healthy kernels in the recorded reports reach this share of their binding ceiling
NOISE = 0.05  # run-to-run differences of profiled kernels are 1 to 5 % (field notes)

# wgmma's peak over warp-level mma's on sm_90: 4096 against 2730.7 bf16 operations a cycle and SM (ncu's own peaks).
MMA_OF_WGMMA = 2 / 3


def removed(c: Context, factors: Mapping[str, float], waits: bool = True, waited: float = 0.0) -> float | None:
    """At stake when the work of each resource is multiplied by its factor (1 when absent).

    `waits`: the work also makes warps wait (for a sector, a result), and that waiting goes with it. `waited`: the share
    of what warps wait for that goes, where it is known to be more than the share of the binding work.
    """
    found = competing(c)
    if not found:
        return None
    # A kernel that uses its ceiling in full today is expected to use the next one as healthy kernels do.
    before = min(max(limit.utilization for limit in found), ACHIEVABLE)
    after = max(limit.utilization * factors.get(limit.resource, 1.0) for limit in found)
    if before <= 0:
        return 0.0
    # What the work makes warps wait for goes with the work, in proportion: the nearer to all of it, the nearer to the
    # use that healthy kernels make of their ceiling.
    gone = max(waited, 1 - after / before) if waits else 0.0
    # SMs without blocks stay without: only those at work come nearer to their ceiling.
    reachable = max(before, ACHIEVABLE * (c.value("sm_active") or 1.0))
    return max(0.0, 1 - after / (before + (reachable - before) * gone))


def removed_at_best(c: Context, factors: Mapping[str, float]) -> float | None:
    """The most that can be at stake: the next bound itself, reached in full."""
    found = competing(c)
    if not found:
        return None
    return max(0.0, 1 - max(limit.utilization * factors.get(limit.resource, 1.0) for limit in found))


def bounded(c: Context, share: float | None, top: float | None = None) -> float | None:
    """A waiting share, limited by what the binding resource leaves when it is used as well as healthy kernels use
    it. Nothing where the kernel is one of them already: their waits look the same.

    `top`: the binding resource's use, where it is not that of today.
    """
    top = c.value("top_utilization") if top is None else top
    if share is None:
        return None
    if top is None:
        return share
    if 1 - top / COMMON < NOISE:
        return 0.0
    return max(0.0, min(share, 1 - top / ACHIEVABLE))


def _towards_bound(share: float, top: float) -> float:
    """`share`, and on towards the bound: what remains lies between the two, expected at their geometric mean."""
    return 1 - math.sqrt((1 - share) * min(1 - share, top / ACHIEVABLE))


def _covered(*facts: str) -> Compute:
    """Fact function: exposed shares that more warps or loads in flight would cover.

    They cover whatever else waits too, up to the bound: what remains is expected between the two, at their geometric
    mean.
    """

    def compute(c: Context) -> float | None:
        share, top = _waited(c, *facts), c.value("top_utilization")
        return _towards_bound(share, top) if share and top else share

    return compute


def _of_blocks(c: Context, exposed: float) -> float:
    """An exposed share of the kernel's time as a share of the time of its blocks.

    Idle SMs wait for the blocks of others: the kernel takes as long as its blocks, and shrinks with them in proportion.
    """
    return min(1.0, exposed / (c.value("sm_active") or 1.0))


def _waited(c: Context, *facts: str, top: float | None = None) -> float | None:
    """The sum of exposed shares, bounded (`top` as in `bounded`). Unknown only when every one is unknown."""
    known = [v for v in (c.value(name) for name in facts) if v is not None]
    return bounded(c, _of_blocks(c, sum(known)), top) if known else None


def _waiting(*facts: str) -> Compute:
    """Fact function: the same."""
    return lambda c: _waited(c, *facts)


def _of_copies(*facts: str) -> Compute:
    """Fact function: waiting for copies, by warps that issue nothing and by those that try their mbarrier again.

    The tries take issue slots and pipes, and go with the wait: they bound nothing.
    """

    def compute(c: Context) -> float | None:
        tries, issuing = (
            c.value("issued_tries") or 0.0,
            (c.value("issue_active") or 0.0) * (c.value("sm_active") or 1.0),
        )
        work = max(0.0, 1 - tries / issuing) if issuing else 1.0
        left = [limit.utilization * (work if limit.resource in {"issue", "int"} else 1.0) for limit in all_limits(c)]
        return _waited(c, *facts, "issued_tries", top=max(left, default=None))

    return compute


def _wgmma_wait(c: Context) -> float | None:
    """Waiting for wgmma is in part the product itself, which stays.

    With more products a wait, at least the latency around each goes: the rest of the kernel and the Tensor work follow
    each other. At most the rest covers the Tensor work. What remains is expected at the geometric mean of both.
    """
    waiting, tensor = c.value("stake_wgmma_covered"), c.value("tensor_utilization")
    if not waiting or tensor is None:
        return waiting
    return 1 - math.sqrt((1 - waiting) * min(1.0, 1 - waiting + tensor))


def _load_factors(c: Context) -> dict[str, float] | None:
    """Factors when loads fetch only what was asked for."""
    waste, loads = c.value("load_waste"), c.value("load_l2_bytes")
    stores = c.value("store_l2_bytes")
    if waste is None or loads is None:
        return None
    share_of_l2 = loads / (loads + (stores or 0.0)) if loads else 0.0
    factors = {"l2": 1 - waste * share_of_l2}
    hbm_read, hbm, asked = c.value("hbm_read_bytes"), c.value("hbm_bytes"), c.value("load_bytes_asked")
    # Bytes asked for by TMA are not in `asked`; without waste behind L1 there is none at HBM from this cause.
    if hbm_read and hbm and asked and waste > 0.05 and not c.value("tma_instructions"):
        factors["hbm"] = 1 - max(0.0, hbm_read - asked) / hbm
    shared = c.value("shared_wavefront_share")
    # In L1 every sector of a request costs, hit or miss.
    factors["l1"] = 1 - max(waste, c.value("load_l1_waste") or 0.0) * (1 - (shared or 0.0))
    return factors


def _uncoalesced(c: Context) -> float | None:
    factors = _load_factors(c)
    if factors is None:
        return None
    store = _store_factors(c)
    if store:
        # Both directions of one access pattern (a transpose through L2) count once each on the resource they use.
        factors["l2"] = max(0.0, factors["l2"] + store["l2"] - 1)
        factors["l1"] = max(0.0, factors["l1"] + store["l1"] - 1)
        # What completes partly written sectors is read beyond what loads asked for: both hold it, and it goes once.
        twice = _filled(c) if "hbm" in factors and "hbm" in store else 0.0
        factors["hbm"] = max(0.0, factors.get("hbm", 1.0) + store.get("hbm", 1.0) - 1 + twice)
    of_l2 = _whole_lines(c, factors["l2"], 1 - (c.value("load_waste") or 0.0))
    return removed(c, {**factors, "l2": of_l2}) if of_l2 is not None else None


def _filled(c: Context) -> float:
    """Bytes read to complete sectors, as far as they exceed what loads asked for, of all bytes at device memory."""
    fill, read, asked = c.value("write_fill_bytes"), c.value("hbm_read_bytes"), c.value("load_bytes_asked")
    hbm = c.value("hbm_bytes")
    return min(fill, max(0.0, read - asked)) / hbm if fill and read is not None and asked is not None and hbm else 0.0


def _whole_lines(c: Context, sectors: float, loaded: float) -> float | None:
    """What is left of L2's use when requests ask for whole lines.

    A request looks up one tag and crosses to L2 once for up to four sectors; scattered ones do so for each sector
    (tags at 89 % where sectors read 32 %). With whole lines both are no fuller than the sectors, of which the part
    `sectors` is left. Data on its way back shrinks with the bytes: `loaded` is left.
    """
    most, held, back = limits.busiest(c, "l2"), c.share(limits.L2_SECTORS), _largest_share(c, limits.L2_RETURNS)
    if held is None and c.kernel.number(limits.L2_TAGS) is not None:
        return None
    if not most or held is None or back is None:
        return sectors  # old reports know L2's use only as a whole
    return min(sectors, max(held * sectors, back * loaded, c.share(limits.L2_ATOMICS) or 0.0) / most)


def _largest_share(c: Context, metrics: tuple[str, ...]) -> float | None:
    return max((share for share in map(c.share, metrics) if share is not None), default=None)


def _store_factors(c: Context) -> dict[str, float] | None:
    waste, stores = c.value("store_waste"), c.value("store_l2_bytes")
    loads = c.value("load_l2_bytes")
    if waste is None or stores is None:
        return None
    share_of_l2 = stores / (stores + (loads or 0.0)) if stores else 0.0
    factors = {"l2": 1 - waste * share_of_l2, "l1": 1 - waste * share_of_l2}
    fill, hbm, written = c.value("write_fill_bytes"), c.value("hbm_bytes"), c.value("hbm_write_bytes")
    asked = c.value("store_bytes_asked")
    if fill is not None and hbm and written is not None and asked is not None and waste > 0.05:
        factors["hbm"] = max(0.0, 1 - (fill + max(0.0, written - asked)) / hbm)
    return factors


def _partial_writes(c: Context) -> float | None:
    factors = _store_factors(c)
    return removed(c, factors) if factors is not None else None


def _bank_conflict(c: Context) -> float | None:
    excess, share = c.value("shared_conflict_excess"), c.value("shared_wavefront_share")
    if excess is None:
        return None
    factor = 1 - excess * (share if share is not None else 1.0)
    by_bandwidth = removed(c, {"l1": factor})
    # Conflicts also lengthen each access: the part of exposed shared-memory waiting that the excess replays cause.
    waiting = (c.value("exposed_shared_load") or 0.0) + (c.value("exposed_shared_store") or 0.0)
    by_latency = bounded(c, excess * waiting) or 0.0
    if by_bandwidth is None:
        return None
    l1 = c.value("l1_utilization")
    if l1 is not None and l1 < COMMON:
        # Where the data pipe is not full, no more waiting goes than is seen at shared memory and at its queue.
        seen = waiting + (c.value("exposed_mio_throttle") or 0.0)
        by_bandwidth = min(by_bandwidth, (removed(c, {"l1": factor}, waits=False) or 0.0) + excess * seen)
    return max(by_bandwidth, by_latency)


def _spill(c: Context) -> float | None:
    share, spilled = c.value("local_instruction_share"), c.value("spill_share")
    if share is None or spilled is None:
        return None
    return _local(c, share * spilled)


def _local_array(c: Context) -> float | None:
    share, spilled = c.value("local_instruction_share"), c.value("spill_share")
    if share is None or spilled is None:
        return None
    return _local(c, share * (1 - spilled) * (1 - (c.value("local_of_reductions") or 0.0)))


def _local(c: Context, share: float) -> float | None:
    """Local accesses vanish from L1, L2, HBM and issue; their exposed waiting with them."""
    if share <= 0:
        return 0.0
    factors = _local_factors(c)
    if factors is None:
        return None
    # Instructions that go with an access (its address) go too.
    by_work = removed(c, {**factors, "issue": 1 - share}, waited=1 - factors["l1"])
    by_waiting = bounded(c, c.value("exposed_local_load")) or 0.0
    return max(by_work, by_waiting) if by_work is not None else None


def _local_factors(c: Context) -> dict[str, float] | None:
    """What is left of each memory level without local memory."""
    local, at_l2 = c.value("local_bytes"), c.value("local_l2_bytes")
    if local is None or at_l2 is None:
        return None
    globals_ = [c.kernel.number(f"l1tex__t_sectors_pipe_lsu_mem_global_op_{op}.sum") or 0.0 for op in ("ld", "st")]
    of_l1 = local / (local + sum(globals_) * 32) if local else 0.0
    others = (c.value("load_l2_bytes") or 0.0) + (c.value("store_l2_bytes") or 0.0)
    of_l2 = at_l2 / (at_l2 + others) if at_l2 else 0.0
    # Local memory displaces what is read and written once; global traffic behind L1 comes from HBM all the same.
    hbm = c.value("hbm_bytes")
    of_hbm = 1 - min(1.0, others / hbm) if hbm else of_l2
    return {"l1": 1 - of_l1, "lsu": 1 - of_l1, "l2": 1 - of_l2, "hbm": 1 - of_hbm}


def _leaves(c: Context, share: float | None) -> float | None:
    """Idle SM time, limited by the binding resource: with even work the kernel takes at least its bound."""
    top = c.value("top_utilization")
    return share if share is None or top is None else max(0.0, min(share, 1 - top))


def _small_grid(c: Context) -> float | None:
    return _leaves(c, c.value("idle_sm_share"))


def _split(c: Context) -> float | None:
    """Blocks for the idle SMs, and with them several for each busy one, which cover what a single block waits for.

    How far that goes lies between the idle time alone and the bound: what remains is expected at their geometric mean.
    """
    share, top = _small_grid(c), c.value("top_utilization")
    if not share or not top:
        return share
    return _towards_bound(share, top)


def _tail(c: Context) -> float | None:
    """What a last, partly filled wave costs: no more than the measured idle time of SMs."""
    tail, active = c.value("wave_tail_idle"), c.value("sm_active")
    if tail is None:
        return None
    return _leaves(c, min(tail, 1 - active) if active is not None else tail)


def _imbalance(c: Context) -> float | None:
    return _leaves(c, c.value("sm_imbalance"))


def _under_occupied(c: Context) -> Scalar | None:
    """Exposed waiting of all fixed and memory latencies: what more resident warps could hide."""
    return _waited(c, "exposed_long_scoreboard", "exposed_short_scoreboard", "exposed_fixed_latency")


def _more_warps(c: Context) -> float | None:
    """What loads wait for, as far as more resident warps can cover it.

    Little's law: with the same loads a warp and the same latency, loads in flight grow with the warps that are there,
    and with them the rate. All warp slots taken, they are 1 / occupancy times as many as now.
    """
    waiting, there = c.value("stake_load_latency"), c.value("occupancy_achieved")
    return waiting if waiting is None or there is None else max(0.0, min(waiting, 1 - there))


def _legacy_mma(c: Context) -> float | None:
    """Tensor work at wgmma's rate: the pipe's bound falls to 2/3, and ldmatrix traffic of the operands goes with it.

    A third of the time at least, as far as the next bound leaves it: a kernel on the narrower path is shaped by it. Not
    of the time in which warps wait for copies: a faster path does not feed itself.
    """
    factors = {"tensor": MMA_OF_WGMMA, "l1": 0.5, "lsu": 0.5, "issue": 0.5, "int": 0.5}
    share, best = removed(c, factors, waits=False), removed_at_best(c, factors)
    if share is None or best is None:
        return None
    return max(min(1 - MMA_OF_WGMMA, best), share) * (1 - (c.value("exposed_copy_group") or 0.0))


def _legacy_mma_best(c: Context) -> float | None:
    return removed_at_best(c, {"tensor": MMA_OF_WGMMA, "l1": 0.5, "lsu": 0.5, "issue": 0.5, "int": 0.5})


def _fp8_native(c: Context) -> float | None:
    """FP8 as the hardware multiplies it: at twice the 16-bit rate, on sm_90 twice that of wgmma.

    Unpacking goes, and so do the instructions that feed warp-level mma one fragment at a time: with FP8 as HMMA two
    additions an HMMA (the compiler sums in float behind each), ldmatrix, and the HMMA themselves.
    """
    if not c.has_opcodes():
        return None
    total = sum(c.kernel.opcodes.values())
    multiplied = mix.count(c.kernel.opcodes, "HMMA")
    unpacked = mix.count(c.kernel.opcodes, "F2FP.F16.E4M3.UNPACK_B", "F2FP.F16.E5M2.UNPACK_B")
    added = min(2 * multiplied, mix.count(c.kernel.opcodes, "FADD"))
    gone = (unpacked + multiplied + added + mix.count(c.kernel.opcodes, "LDSM")) / total
    tensor = (MMA_OF_WGMMA if c.arch == 90 else 1.0) / 2
    # Shared memory is read by the Tensor pipe itself, as for legacy-mma; unpacking runs beside integers.
    factors = {"tensor": tensor, "issue": 1 - gone, "int": 1 - gone, "fp32": 1 - gone, "l1": 0.5, "lsu": 0.5}
    return removed(c, factors)


_TENSOR_RATES: Mapping[str, float] = {"fp64": 2.0, "fp32": 8.0}
"""Tensor Cores over the pipe that multiplies now: FP64 by data sheet (H200: 67 and 34 TFLOP/s), 16 bit 8 at least."""


def _tensor_cores(c: Context) -> float | None:
    """Matrix work as MMA: products leave their pipe and their issue slots (one HMMA for 64 FFMA of a warp).

    Its fragments hold each operand once a warp where an outer product has a copy in each lane: half of what shared
    memory delivers, as for legacy-mma, and half of that again where 16-bit data lie there as floats.
    """
    if not c.has_opcodes():
        return None
    products, total = mix.count(c.kernel.opcodes, "FFMA", "HFMA2", "DFMA"), sum(c.kernel.opcodes.values())
    operands = 0.25 if c.fact("sixteen_bit_matrix") is True else 0.5
    factors = {name: 1 / rate for name, rate in _TENSOR_RATES.items()}
    return removed(c, {**factors, "issue": 1 - products / total, "l1": operands, "lsu": operands})


WARP = 32

SERIAL_LANES = 0.25  # an average instruction has fewer than 8 of 32 lanes: most of them belong to one thread or a few
SERIAL_WAIT = 0.25  # and a quarter of the time the others of the block wait for it


def _memory_utilization(c: Context) -> float:
    """The fuller of L2 and HBM; 0 where neither is known."""
    return max((limit.utilization for limit in all_limits(c) if limit.resource in {"hbm", "l2"}), default=0.0)


def _serial_section(c: Context) -> bool | None:
    lanes, waiting = c.value("active_lanes"), c.value("exposed_barrier")
    if lanes is None or waiting is None:
        return None
    return lanes < SERIAL_LANES and waiting >= SERIAL_WAIT


TREE_BARRIERS = 1 / 16  # a tree's level is one barrier in eight instructions; barriers around tiles are one in fifty
TREE_LANES = 0.7  # half of the threads and more have nothing to do on each level but the first
TREE_TAKE_PART = 0.9  # though whole warps walk through it: by predicates, not by branches


def _barrier_tree(c: Context) -> bool | None:
    """Whether the block reduces level by level between barriers: most threads idle, no warp's lanes part ways."""
    barriers, total = c.value("barrier_instructions"), sum(c.kernel.opcodes.values())
    lanes, on = c.value("active_lanes"), c.value("lanes_on")
    if barriers is None or not total or lanes is None or on is None:
        return None
    return barriers / total >= TREE_BARRIERS and lanes >= TREE_TAKE_PART and on < TREE_LANES


def _barrier(c: Context) -> Scalar | None:
    """Waiting at barriers. Serial sections go altogether where their work is spread over the block, and so does a tree
    between barriers where warps reduce in registers: only memory bounds what goes then.

    In a section of one warp all others of the block wait, so `stall_barrier` is (W - 1) / W of the sections' share of
    time for W warps a block. Their waits, issue slots and accesses are those of single lanes: only memory bounds what
    goes.
    """
    waiting = _waited(c, "exposed_barrier", "exposed_cluster_barrier")
    if c.fact("barrier_tree") is True:
        return max(0.0, 1 - _memory_utilization(c) / ACHIEVABLE)
    stalled, threads = c.value("stall_barrier"), c.value("block_threads")
    if c.fact("serial_section") is not True or stalled is None or threads is None or threads <= WARP:
        return waiting
    warps = threads / WARP
    sections = min(1.0, stalled * warps / (warps - 1))
    bound = min(sections, 1 - _memory_utilization(c) / ACHIEVABLE)
    return max(bound, waiting or 0.0)


def _divergence(c: Context) -> float | None:
    """Idle lanes cost the instructions that full warps would share: worth as much as issue and pipes bind."""
    if c.fact("barrier_tree") is True:
        return 0.0  # whole warps idle, and no warp's lanes part ways: stake_barrier holds it
    lanes = c.value("active_lanes")
    on = c.value("lanes_on")
    if lanes is None:
        return None
    lanes = min(lanes, on if on is not None else lanes)
    active = c.value("sm_active") or 1.0
    pipes = max(
        (limit.utilization for limit in all_limits(c) if limit.resource not in {"hbm", "l2", "l1"}), default=0.0
    )
    memory = _memory_utilization(c)
    if memory > pipes and memory > 0.7:
        return 0.0  # where a memory level binds, idle lanes cost nothing
    # Full warps move the same bytes: memory bounds what goes.
    return max(0.0, min((1 - lanes) * active * min(1.0, pipes / active / ACHIEVABLE), 1 - memory / ACHIEVABLE))


def _instructions_removed(c: Context, share: float) -> float | None:
    """At stake when this share of the executed instructions vanishes from issue and the scalar pipes."""
    # The family sits on the integer, XU and FMA pipes together with its issue slots.
    return removed(c, dict.fromkeys(("issue", "int", "sfu", "fp32", "lsu"), 1 - share))


def _software(c: Context) -> float | None:
    """Software division and pow become shorter sequences. What remains of them takes issue slots and pipes: where
    memory binds afterwards it costs nothing. Sines of large arguments take their local memory with them.
    """
    share, kept = c.value("software_path_share"), c.value("software_path_kept")
    if share is None or kept is None:
        return None
    factors = dict.fromkeys(("issue", "int", "sfu", "fp32", "lsu"), 1 - (share - kept))
    reductions = c.value("local_of_reductions") or 0.0
    for level, left in (_local_factors(c) or {}).items() if reductions else ():
        factors[level] = min(factors.get(level, 1.0), 1 - reductions * (1 - left))
    return removed(c, factors)


def _index_math(c: Context) -> float | None:
    share = c.value("address_share")
    return None if share is None else _instructions_removed(c, share)


FLOAT_BITS, DOUBLE_BITS = 24, 53  # of the mantissas: a polynomial needs about as many terms more for as many bits


def _double(c: Context) -> float | None:
    """The double operations become float ones on a pipe that is 2 to 64 times wider. What only they need goes:
    conversions, and the moves of constants and halves. Of the library's double functions float ones need half the
    polynomial.
    """
    moves = c.value("double_move_share") or 0.0
    software = max(c.value("double_function_share") or 0.0, (c.value("software_path_share") or 0.0) - moves)
    gone = (c.value("conversion_share") or 0.0) + moves + software * (1 - FLOAT_BITS / DOUBLE_BITS)
    factors = {"fp64": 0.02, "issue": max(0.0, 1 - gone)}
    conversions = c.value("conversions_on_sfu")
    if conversions:
        factors["sfu"] = 1 - conversions
    return removed(c, factors)


def _constant(c: Context) -> float | None:
    """Waiting for constants that are served one address after another. The queue of the load/store instructions fills
    with their replays, so its use does not bound what goes.
    """
    waiting = [v for v in (c.value("exposed_constant_miss"), c.value("exposed_constant")) if v is not None]
    others = [limit.utilization for limit in competing(c) if limit.resource != "lsu"]
    if not waiting or not others:
        return sum(waiting) if waiting else None
    # Where the queue is what most of the time waits for, all other waits stand behind it.
    queued, idle = c.value("exposed_mio_throttle") or 0.0, c.value("no_issue")
    exposed = idle if idle is not None and sum(waiting) >= 0.5 and queued >= 0.5 else sum(waiting)
    return max(0.0, min(_of_blocks(c, exposed), 1 - max(others) / ACHIEVABLE))


def _conversion(c: Context) -> float | None:
    on_sfu, share = c.value("conversions_on_sfu"), c.value("conversion_share")
    if on_sfu is None or share is None:
        return None
    # Converted by integer tricks or in packs, the same values still take issue slots: only the XU pipe is relieved.
    # Where conversions run on other pipes (F2FP), their instructions are what goes.
    if on_sfu < 0.5:
        return removed(c, {"issue": 1 - share, "int": 1 - share})
    # Values of less than a byte are cut out of words first, about as many instructions as are converted: a form that
    # needs no conversion (dot products of integers, tables of pairs) needs no cutting either.
    if share > 0.2 and (c.value("integer_share") or 0.0) >= share:
        without = max(0.0, 1 - 2 * share)
        return removed(c, {"sfu": 1 - on_sfu, "issue": without, "int": without})
    # No trick makes a double of a float: sums that stay float for a while are converted once, and the slots go too.
    total, wide = sum(c.kernel.opcodes.values()), c.value("double_conversions") or 0.0
    return removed(c, {"sfu": 1 - on_sfu, "issue": 1 - wide / total if total else 1.0})


def _narrow(c: Context) -> float | None:
    """Accesses of 16 bytes in place of narrow ones: memory instructions and their address arithmetic shrink."""
    lane = c.value("stream_lane_bytes")
    if lane is None or lane >= 16:
        return 0.0 if lane is not None else None
    factor = lane / 16
    share = c.value("memory_instruction_share") or 0.0
    global_l1 = 1 - (c.value("shared_wavefront_share") or 0.0)  # wider global accesses leave those of shared memory
    l1 = 1 - global_l1 * (1 - max(factor, 0.25))
    # An address serves 16 bytes: its arithmetic goes with the accesses.
    share += c.value("address_share") or 0.0
    factors = {"lsu": factor, "issue": 1 - share * (1 - factor), "l1": l1, "int": 0.5}
    by_work = removed(c, factors)
    # A request of 1 or 2 bytes a lane fills half a line or less: fewer bytes are in flight for the same waiting.
    waiting = (c.value("exposed_lg_throttle") or 0.0) + ((c.value("exposed_load") or 0.0) if lane <= 2 else 0.0)
    by_waiting = bounded(c, waiting * (1 - factor)) or 0.0
    hbm = c.value("hbm_utilization") or 0.0
    if lane <= 2 and by_waiting and hbm / factor >= 1:
        # Little's law: with that many more bytes in flight in the same waiting, memory is full.
        by_waiting = max(by_waiting, 1 - (1 - (removed_at_best(c, factors) or 0.0)) / ACHIEVABLE)
    return max(by_work, by_waiting) if by_work is not None else None


def _memory_share(c: Context) -> float | None:
    if not c.has_opcodes():
        return None
    total = sum(c.kernel.opcodes.values())
    return sum(n for op, n in c.kernel.opcodes.items() if op.split(".", 1)[0] in {"LDG", "STG", "LD", "ST"}) / total


TILE = 4  # a first register tile: 4 by 4 results a thread
_ARITHMETIC = ("FFMA", "FMUL", "FADD", "HFMA2", "HADD2", "HMUL2", "DFMA", "DMUL", "DADD", "MUFU", "FMNMX")


def _global_reload(c: Context) -> float | None:
    """A tile in shared memory and registers: each value is loaded once and used for the 16 results of a thread.

    4 by 4 results read a quarter of the operands in L1, and a block of 16 times the results a quarter of what it reads
    from L2, no less than each value once. Loads, their addresses, loop counters and checks are shared by the results.
    """
    reuse = c.value("l1_reuse")
    if reuse is None or reuse <= 1:
        return 0.0 if reuse is not None else None
    keep = max(1 / reuse, 1 / TILE**2)
    # Only what computes the results stays. Where that is integer work it looks like addresses, so of the rest only
    # loads and what is known to be address arithmetic go.
    on_fma, loads = c.value("integer_on_fma") or 0.0, c.value("global_load_share") or 0.0
    total = sum(c.kernel.opcodes.values())
    floating = mix.count(c.kernel.opcodes, *_ARITHMETIC) / total if total else 0.0
    if loads and floating >= loads / 2:  # an operation for two loads at least: the results are floating ones
        gone, of_int = 1 - floating, keep
    else:
        gone, of_int = min(0.8, loads + (c.value("address_share") or loads)), 0.3
    issue = 1 - gone * (1 - keep)
    rereads = max(1.0, c.value("l2_rereads") or 1.0)
    factors = {
        "l1": max(1 / reuse, 1 / TILE),
        "lsu": keep,
        "l2": max(1 / rereads, 1 / TILE),
        "issue": issue,
        "int": of_int,
        "fp32": 1 - on_fma * (1 - of_int),
    }
    # What the instructions make warps wait for goes with them.
    return removed(c, factors, waited=1 - issue)


def _smem_reload(c: Context) -> float | None:
    """A register tile of 4 by 4 reads 8 values for 16 operations where one result a thread reads 32: a quarter of the
    wavefronts. Four neighbouring values are one instruction of 16 bytes, so 2 loads are left of 32.
    """
    share, loads = c.value("shared_wavefront_share"), c.value("shared_load_share")
    if share is None or loads is None:
        return None
    instructions = 1 / TILE**2
    return removed(
        c,
        {"l1": 1 - share * (1 - 1 / TILE), "lsu": instructions, "issue": 1 - loads * (1 - instructions)},
    )


_LSU = ("SHFL", "LDG", "LD", "STG", "ST", "LDS", "STS")


def _lsu_issue(c: Context) -> float | None:
    """16 bytes a lane in place of 4, or one shuffle for four values: a quarter of the load/store unit's instructions
    and of their issue slots. In L1, shuffles take a turn each, while wider accesses move the same data.
    """
    if not c.has_opcodes():
        return None
    gone = 1 - 1 / TILE
    share = mix.count(c.kernel.opcodes, *_LSU) / sum(c.kernel.opcodes.values())
    shuffles = c.value("shuffles_on_lsu") or 0.0
    return removed(c, {"lsu": 1 - gone, "issue": 1 - share * gone, "l1": 1 - shuffles * gone})


def _l2_locality(c: Context) -> float | None:
    return None if c.value("useful_bytes") is None else _l2_locality_declared(c)


def _l2_locality_declared(c: Context) -> float | None:
    useful, moved = c.value("useful_bytes"), c.value("hbm_bytes")
    return removed(c, {"hbm": min(1.0, useful / moved)}) if useful and moved else None


def _library_us(c: Context) -> float | None:
    """Recorded for a square product of this GPU (`diagnose ceilings`); a live run declares the time it measured."""
    edges = {c.declared.get(name) for name in ("gemm_m", "gemm_n", "gemm_k")}
    type_, operations = c.declared.get("product_type"), c.declared.get("useful_flops")
    edge = edges.pop() if len(edges) == 1 else None
    if isinstance(edge, float) and isinstance(operations, float) and type_:
        rate = c.ceilings.get(f"library:gemm:{type_}:{edge:.0f}")
        if rate is not None and rate.value > 0:
            return operations / rate.value * 1e6
    c.miss("declared library_us")
    return None


def _over_library(c: Context) -> float | None:
    us, best = c.value("duration_us"), c.value("library_us")
    return us / best if us and best else None


def _declared(name: str) -> Compute:
    def compute(c: Context) -> float | None:
        c.miss(f"declared {name}")
        return None

    return compute


def _small_n(c: Context) -> float | None:
    """A wgmma of N >= 128 keeps the pipe full: the operand path's part of the time goes, down to the Tensor work."""
    efficiency, active = c.value("wgmma_n_efficiency"), c.value("top_utilization")
    if efficiency is None:
        return None
    share = max(0.0, 1 - efficiency) * (1.0 if active is None else min(1.0, active + 0.1))
    tensor = c.value("tensor_utilization")
    return share if tensor is None else max(0.0, min(share, 1 - tensor / ACHIEVABLE))


def _overlap(c: Context) -> float | None:
    return bounded(c, c.value("tensor_and_sfu"))


def _host(c: Context) -> float | None:
    """The same bytes from device memory: the next bound is HBM with them, or what binds already."""
    sectors, us, share = (
        c.number("lts__t_sectors_aperture_sysmem_lookup_miss.sum"),
        c.value("duration_us"),
        c.value("system_memory_share"),
    )
    if sectors is None or not us or share is None:
        return None
    hbm = c.ceilings.get("hbm")
    if hbm is None:
        return _link(c, "system_memory_share")
    # A sector that crosses between the halves of L2 misses twice; SMs ask for it once. Writes are no misses.
    asked = c.kernel.number("lts__t_sectors_srcunit_tex.sum")
    written = c.kernel.number(HOST_WRITES) or 0.0
    moved = min(sectors, asked if asked is not None else sectors) + written
    local = moved * 32 / hbm.value / (us * 1e-6)
    after = max([local, *(limit.utilization for limit in all_limits(c))])
    return max(0.0, 1 - after / ACHIEVABLE)


def _link(c: Context, fact: str) -> float | None:
    """Without a known HBM rate: the waiting for loads, by the share of misses that go over the link."""
    share, waiting = c.value(fact), c.value("exposed_load")
    return share * waiting if share is not None and waiting is not None else None


def _peer(c: Context) -> float | None:
    return _link(c, "peer_memory_share")


def _contended(c: Context) -> float | None:
    """Atomics serialise behind each other: waiting of loads behind them in the queue goes with theirs.

    One addition a block is left, so what they ask of L2 bounds nothing: of its use only the data that it returns does.
    """
    # Beyond six unloaded HBM latencies (656 cycles on Hopper, article) a load waits in a queue: then everything does.
    queued = (c.value("cycles_per_load") or 0.0) >= 4000
    facts = ("no_issue",) if queued else ("exposed_global_atomic", "exposed_long_scoreboard", "exposed_lg_throttle")
    returned, most = _largest_share(c, limits.L2_RETURNS), limits.busiest(c, "l2")
    of_l2 = returned / most if returned is not None and most else 1.0
    left = [limit.utilization * (of_l2 if limit.resource == "l2" else 1.0) for limit in all_limits(c)]
    return _waited(c, *facts, top=max(left, default=None))


def _shared_atomics(c: Context) -> float | None:
    """Replays of atomics fill L1 and go; waiting for them is the least. A private copy is still written and added up: a
    fifth of the time in L1 stays, and half of the issue slots.

    Loops of compare and swap show how much of both is repetition: with it they go down to one turn a value.
    """
    waiting = _waited(c, "exposed_shared_atomic")
    l1 = c.value("l1_utilization")
    if l1 is None or not l1:
        return waiting
    once = 1 - (c.value("retried_swaps") or 0.0)
    issue = (c.value("issue_utilization") or 0.0) * min(0.5, once)
    after = max(c.value("hbm_utilization") or 0.0, issue, min(0.2, l1 * once))
    by_work = max(0.0, 1 - after / min(l1, ACHIEVABLE)) if l1 > after else 0.0
    return max(by_work, waiting or 0.0)


def _padding(c: Context) -> float | None:
    """Fewer tiles, and with each what feeds it: its fragments are loaded and unpacked, its loop counted. Nothing else
    changes, so the rest of the kernel reaches what it reaches now. The bytes of L2 and HBM stay.
    """
    useful, issued = c.value("useful_flops"), c.value("issued_tensor_flops")
    if useful is None or not issued:
        return None
    tiles = ("tensor", "issue", "int", "fp32", "sfu", "lsu", "l1")
    return removed(c, dict.fromkeys(tiles, min(1.0, useful / issued)), waits=False)


# ncu 2025.3 names on sm_90; ncu leaves out with a warning what a chip does not have.
_TENSOR_SOURCES = ("bf16_dst_fp32", "fp16", "fp64", "fp8_sparsity_off", "fp8_sparsity_on", "int8", "tf32_dst_fp32")


def _issued_tensor_flops(c: Context) -> float | None:
    issued = issued_tensor(c)
    if issued is None:
        c.miss("sm__ops_path_tensor_src_*.sum")
    return issued


FACTS: tuple[FactDefinition, ...] = (
    FactDefinition("useful_flops", "count", "Useful operations, declared.", _declared("useful_flops")),
    FactDefinition("useful_bytes", "byte", "Bytes that must move at least, declared.", _declared("useful_bytes")),
    FactDefinition("product_type", "text", "Type of the declared product.", _declared("product_type")),
    FactDefinition(
        "library_us", "us", "The library's own time for the declared problem, run on this GPU or recorded.", _library_us
    ),
    FactDefinition(
        "over_library", "ratio", "The kernel's time over the library's for the declared problem.", _over_library
    ),
    FactDefinition("gemm_m", "count", "M of the declared product.", _declared("gemm_m")),
    FactDefinition("gemm_n", "count", "N of the declared product.", _declared("gemm_n")),
    FactDefinition("gemm_k", "count", "K of the declared product.", _declared("gemm_k")),
    FactDefinition(
        "issued_tensor_flops",
        "count",
        "Tensor operations issued, all paths.",
        _issued_tensor_flops,
        tuple(f"sm__ops_path_tensor_src_{source}.sum" for source in _TENSOR_SOURCES),
    ),
    FactDefinition(
        "memory_instruction_share",
        "share",
        "Global loads and stores of all instructions.",
        _memory_share,
        (),
        "opcodes",
    ),
    FactDefinition(
        "stake_uncoalesced", "share", "Time at stake if loads and stores moved only the bytes asked for.", _uncoalesced
    ),
    FactDefinition("stake_partial_writes", "share", "Time at stake if stores wrote whole sectors.", _partial_writes),
    FactDefinition("stake_bank_conflict", "share", "Time at stake without bank conflicts.", _bank_conflict),
    FactDefinition("stake_spill", "share", "Time at stake without register spills.", _spill),
    FactDefinition("stake_local_array", "share", "Time at stake without arrays in local memory.", _local_array),
    FactDefinition("stake_small_grid", "share", "Time at stake if every SM had a block.", _small_grid),
    FactDefinition(
        "stake_under_split", "share", "Time at stake if long blocks were split until every SM had several.", _split
    ),
    FactDefinition("stake_tail", "share", "Time at stake with full waves.", _tail),
    FactDefinition("stake_imbalance", "share", "Time at stake if all SMs worked equally long.", _imbalance),
    FactDefinition(
        "stake_load_latency",
        "share",
        "Time at stake if loads were covered by others in flight.",
        _covered("exposed_load"),
    ),
    FactDefinition(
        "stake_dependency",
        "share",
        "Time at stake if arithmetic latencies were covered.",
        _covered("exposed_fixed_latency", "exposed_special_function", "exposed_double", "exposed_tensor"),
    ),
    FactDefinition(
        "barrier_tree",
        "bool",
        "Whether a block reduces level by level between barriers, with most threads idle.",
        _barrier_tree,
    ),
    FactDefinition(
        "serial_section",
        "bool",
        "Whether a few lanes work alone while the other warps of their block wait at a barrier.",
        _serial_section,
    ),
    FactDefinition(
        "stake_barrier",
        "share",
        "Time at stake without waiting at CTA barriers, and without the serial sections that are waited for.",
        _barrier,
    ),
    FactDefinition(
        "stake_pipeline",
        "share",
        "Time at stake without waiting at mbarriers and copy groups.",
        _of_copies("exposed_mbarrier", "exposed_copy_group"),
    ),
    FactDefinition(
        "stake_wgmma_covered",
        "share",
        "Time at stake if other work covered all waiting for wgmma.",
        _waiting("exposed_wgmma"),
    ),
    FactDefinition(
        "stake_wgmma_wait", "share", "Time at stake with several products for each wait for wgmma.", _wgmma_wait
    ),
    FactDefinition(
        "stake_atomics", "share", "Time at stake without waiting for global atomics.", _waiting("exposed_global_atomic")
    ),
    FactDefinition(
        "stake_shared_atomics",
        "share",
        "Time at stake without contended shared atomics: their replays in L1, and the waiting for them.",
        _shared_atomics,
    ),
    FactDefinition(
        "stake_lsu",
        "share",
        "Time at stake if accesses and shuffles of 4 bytes a lane became a quarter as many of 16.",
        _lsu_issue,
    ),
    FactDefinition("stake_fence", "share", "Time at stake without waiting at fences.", _waiting("exposed_membar")),
    FactDefinition("stake_sleep", "share", "Time at stake without polling and sleeping.", _waiting("exposed_sleeping")),
    FactDefinition(
        "stake_instruction_fetch",
        "share",
        "Time at stake if instructions came from the cache.",
        _waiting("exposed_instruction_fetch_stall"),
    ),
    FactDefinition(
        "stake_constant",
        "share",
        "Time at stake if constants were read uniformly.",
        _constant,
    ),
    FactDefinition("stake_occupancy", "share", "Time at stake if more warps covered all latencies.", _under_occupied),
    FactDefinition(
        "stake_more_warps", "share", "Time at stake if all warp slots were taken to cover loads.", _more_warps
    ),
    FactDefinition(
        "stake_fp8_native",
        "share",
        "Time at stake if FP8 were multiplied as FP8.",
        _fp8_native,
        (),
        "opcodes",
    ),
    FactDefinition("stake_tensor_cores", "share", "Time at stake if products were MMA.", _tensor_cores, (), "opcodes"),
    FactDefinition("stake_legacy_mma", "share", "Time at stake on wgmma in place of warp-level mma.", _legacy_mma),
    FactDefinition("stake_legacy_mma_best", "share", "The most that wgmma can bring.", _legacy_mma_best),
    FactDefinition("stake_divergence", "share", "Time at stake with full warps.", _divergence),
    FactDefinition(
        "stake_software_path",
        "share",
        "Time at stake without software division and pow.",
        _software,
    ),
    FactDefinition(
        "stake_index_math",
        "share",
        "Time at stake without integer and address arithmetic.",
        _index_math,
    ),
    FactDefinition("stake_double", "share", "Time at stake without double arithmetic.", _double),
    FactDefinition("stake_conversion", "share", "Time at stake without type conversions.", _conversion),
    FactDefinition("stake_narrow", "share", "Time at stake with 16-byte accesses.", _narrow),
    FactDefinition(
        "stake_global_reload", "share", "Time at stake with a tile in shared memory or registers.", _global_reload
    ),
    FactDefinition("stake_smem_reload", "share", "Time at stake with a register tile.", _smem_reload),
    FactDefinition(
        "stake_l2_locality", "share", "Time at stake if each byte came from HBM once (declared problem).", _l2_locality
    ),
    FactDefinition(
        "clock_loss",
        "share",
        "How far the clock lies under the sustained one, declared from a log.",
        _declared("clock_loss"),
    ),
    FactDefinition("declared_sparse", "bool", "Whether the data is 2:4 sparse, declared.", _declared("sparse")),
    FactDefinition(
        "stake_staging",
        "share",
        "Time at stake if copies to shared memory were asynchronous.",
        _waiting("exposed_load", "exposed_barrier"),
    ),
    FactDefinition("stake_small_n", "share", "Time at stake with a wide wgmma.", _small_n),
    FactDefinition("stake_overlap", "share", "Time at stake if Tensor and special-function work overlapped.", _overlap),
    FactDefinition("stake_host", "share", "Time at stake without reads over the host link.", _host),
    FactDefinition("stake_peer", "share", "Time at stake without reads of another GPU's memory.", _peer),
    FactDefinition(
        "stake_tma",
        "share",
        "Time at stake if copies were large: waiting for them, and for the thread that issues them.",
        _of_copies("exposed_mbarrier", "exposed_copy_group", "exposed_barrier", "exposed_fixed_latency"),
    ),
    FactDefinition("stake_contention", "share", "Time at stake without contended global atomics.", _contended),
    FactDefinition("stake_padding", "share", "Time at stake without padded Tensor work (declared problem).", _padding),
)
