"""Advice with its arithmetic: stages, registers, operands of wgmma, clusters, copies, types.

Each function takes named numbers, so that its answer can be checked by hand; `diagnose.advisors` asks them with what
was measured of a kernel. A function that has nothing to say says why. Advice is no verdict and names no gain; what a
rule decides is left to the rule.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from diagnose.facts.launch import SHORTEST_KERNEL_US
from diagnose.gpus.catalogue import Architecture
from diagnose.model import Scalar
from diagnose.occupancy import WARP, Block, Residency, resident, staircase


@dataclass(frozen=True)
class Answer:
    """What an advisor says. `applies` False: it has nothing to advise, and `text` says why. `inputs`: the numbers."""

    applies: bool
    text: str
    inputs: Mapping[str, Scalar] = field(default_factory=dict)


def _no(why: str, **inputs: Scalar) -> Answer:
    return Answer(False, why, inputs)


def _yes(text: str, **inputs: Scalar) -> Answer:
    return Answer(True, text, inputs)


# --- stages and shared memory ---

# Below this share of time in waits for copies, more stages have nothing to win (the rule pipeline-wait starts higher).
_EXPOSED = 0.10
_BUSIEST = 0.9  # of its sustainable rate: near a ceiling every stage waits for it
_MOST_BLOCKS = 4  # budgets are shown up to so many resident blocks


def tiles_to_cover(latency: float, tile: float) -> int:
    """Tiles that must be on the way for a copy's latency to be covered: ceil(latency / time a tile), in one unit."""
    return max(1, math.ceil(latency / tile - 1e-9))


def stage_budget(
    tile_bytes: int, shared_per_sm: int, reserved: int = 0, other_bytes: int = 0, most_per_block: int | None = None
) -> tuple[tuple[int, int], ...]:
    """(blocks an SM, stages a block) that shared memory allows: each block has its stages, `other_bytes` (barriers,
    output) and the system's `reserved`. Up to four blocks; those without room for one stage are left out."""
    found = []
    for blocks in range(1, _MOST_BLOCKS + 1):
        room = shared_per_sm // blocks - reserved
        if most_per_block is not None:
            room = min(room, most_per_block)
        if (count := (room - other_bytes) // tile_bytes) >= 1:
            found.append((blocks, count))
    return tuple(found)


def stages(
    *,
    latency_ns: float,
    tile_ns: float,
    blocks: int,
    stages_now: int,
    tile_bytes: int,
    options: Sequence[tuple[int, int]],
    exposed: float | None = None,
    busiest: float | None = None,
) -> Answer:
    """Whether the stages of a pipeline cover the latency of its copies, and what shared memory allows.

    `tile_ns` is the time in which one SM works off a tile; `options` come from `stage_budget`; `exposed` is the share
    of time in waits for copies, `busiest` the utilization of the fullest resource (None: not measured, the arithmetic
    alone decides).
    """
    flying = tiles_to_cover(latency_ns, tile_ns)
    needed = flying + blocks  # each resident block computes on one tile more
    have = blocks * stages_now
    inputs: dict[str, Scalar] = {
        "latency_ns": latency_ns, "tile_ns": tile_ns, "blocks": blocks, "stages": stages_now, "tile_bytes": tile_bytes,
        "tiles_on_the_way": flying, "tiles_needed": needed,
    }  # fmt: skip
    formula = (
        f"A copy takes {latency_ns:,.0f} ns to arrive, and an SM works off a tile in {tile_ns:,.0f} ns: "
        f"ceil({latency_ns:,.0f} / {tile_ns:,.0f}) = {_tiles(flying)} on the way, and one in work in each of "
        f"{_blocks(blocks)}: {needed} in all. Now {blocks} x {stages_now} = {have}."
    )
    if exposed is not None and exposed < _EXPOSED:
        return _no(f"{formula} Waits for copies are {exposed:.0%} of the time: they are covered.", **inputs)
    if busiest is not None and busiest >= _BUSIEST:
        return _no(f"{formula} One resource is busy {busiest:.0%} of the time: waiting for it is no fault.", **inputs)
    room = ", ".join(f"{b} x {s}" for b, s in options)
    budget = f" Tiles of {tile_bytes:,} bytes allow (blocks x stages) {room}." if options else ""
    # What each number of blocks would need: its share of the tiles on the way, and one in work.
    fits = [(b, wanted) for b, s in options if s >= (wanted := math.ceil(flying / b) + 1)]
    if have < needed:
        way = (
            f"{fits[0][0]} x {fits[0][1]} would do."
            if fits
            else "No split of shared memory holds so many: smaller tiles would."
        )
        tail = " Stages cover latency only: where copies one after another take longer than the products, none helps."
        return _yes(f"{formula}{budget} {way}{tail}", **inputs)
    others = [(b, s) for b, s in fits if b > blocks] if blocks == 1 else []  # a second block is what a lone one lacks
    if others:
        b, s = others[0]
        return _yes(
            f"{formula}{budget} {b} x {s} = {b * s} also cover it and leave room for {b} blocks an SM, whose warps "
            "cover barriers and epilogues too: which split is faster has to be measured.",
            **inputs,
        )
    return _no(f"{formula}{budget} The stages cover the latency.", **inputs)


def _tiles(count: int) -> str:
    return f"{count} tile" if count == 1 else f"{count} tiles"


def _blocks(count: int) -> str:
    return "1 resident block" if count == 1 else f"{count} resident blocks"


# --- registers ---

_NEAR = 8  # registers a thread: they are allocated in units of 256 a warp (cuda_occupancy.h)
_GAIN = 1.25  # times the warps: with less, other differences of the build are as large
_LOSS = 1.5  # a third of the warps or more: kernels of 32 registers stand on an edge that costs them a quarter
_BUSY = 0.2  # of the time without issue: below, schedulers want no more warps


def registers(
    arch: Architecture, block: Block, shared_capacity: int | None = None, no_issue: float | None = None
) -> Answer:
    """Whether the registers a thread stand just above a step of the occupancy staircase, or exactly on one. `no_issue`
    is the share of time in which schedulers issue nothing (None: not measured)."""
    now = resident(arch, block, shared_capacity)
    if now is None or not arch.registers_per_sm or not arch.register_unit or now.blocks < 1:
        return _no("the limits of this GPU, or the kernel's resources, are not known")
    allocated = -(-block.registers * WARP // arch.register_unit) * arch.register_unit * block.warps
    inputs: dict[str, Scalar] = {
        "registers": block.registers, "threads": block.threads, "blocks": now.blocks,
        "register_file": arch.registers_per_sm,
    }  # fmt: skip
    told = (
        f"{block.registers} registers a thread are allocated as {allocated // block.warps // WARP}: a block of "
        f"{block.threads} threads takes {allocated:,} of {arch.registers_per_sm:,}, {_fits(now)}."
    )
    if now.limiter != "registers":
        return _no(f"{told} What limits the blocks is {now.limiter}.", **inputs)
    if no_issue is not None and no_issue < _BUSY:
        return _no(f"{told} Schedulers issue {1 - no_issue:.0%} of the time: more warps bring nothing.", **inputs)
    steps = [step for step in staircase(arch, block, shared_capacity) if step.resource == "registers"]
    fewer = next((step for step in steps if step.value < block.registers), None)
    more = next((step for step in steps if step.value > block.registers), None)
    if fewer is not None and block.registers - fewer.value <= _NEAR and fewer.blocks >= _GAIN * now.blocks:
        return _yes(
            f"{told} At {fewer.value} ({block.registers - fewer.value} fewer) {fewer.blocks} fit: "
            f"{fewer.blocks / now.blocks:.2g} times the warps (__launch_bounds__ or -maxrregcount, watching for "
            "spills). It pays where latency is exposed, not where a pipe is full.",
            **inputs, step=fewer.value, blocks_there=fewer.blocks,
        )  # fmt: skip
    if more is not None and more.value - block.registers == 1 and now.blocks >= _LOSS * more.blocks > 0:
        return _yes(
            f"{told} That is the edge: at {more.value} only {more.blocks} would fit.",
            **inputs, step=more.value, blocks_there=more.blocks,
        )  # fmt: skip
    if fewer is not None:
        where = f"The next step is at {fewer.value}, where {fewer.blocks} fit"
    elif now.by_shared == now.blocks:
        where = "Shared memory leaves no more either"
    else:
        where = "There is no step below"
    return _no(f"{told} {where}.", **inputs)


def _fits(now: Residency) -> str:
    return "1 block fits" if now.blocks == 1 else f"{now.blocks} blocks fit"


# --- wgmma ---

_A_REGISTERS = 4  # a thread, of one 64 x 16 (16 bit) A fragment (PTX ISA, register fragments of wgmma)
_NARROW = 64  # where both are equal
_FULL = 0.8  # of its sustainable rate: near its ceiling the rule tensor-compute speaks, and feeding is no question
_FEEDING = 0.8  # of the Tensor time: beyond, reading operands is as tight as multiplying them


def operand_cycles(n: int, a_from_shared: bool) -> tuple[float, float]:
    """(Tensor, shared memory) cycles of one m64nNk16 of 16-bit operands on sm_90.

    4,096 operations a cycle and SM make N / 2 cycles; A is 2,048 bytes and B 32 N, at 128 bytes a cycle 16 + N / 4.
    """
    return n / 2, (16 if a_from_shared else 0) + n / 4


def operand_a(
    *, n: int, operands: str, spill_share: float | None = None, tensor_utilization: float | None = None
) -> Answer:
    """A of wgmma from shared memory (SS) or from registers (RS)."""
    tensor, shared = operand_cycles(n, a_from_shared=True)
    _, without = operand_cycles(n, a_from_shared=False)
    inputs: dict[str, Scalar] = {"n": n, "operands": operands, "tensor_cycles": tensor, "shared_cycles": shared}
    told = (
        f"m64n{n}k16 takes N/2 = {tensor:g} Tensor cycles; SS reads 16 + N/4 = {shared:g} cycles of shared memory, "
        f"RS N/4 = {without:g} and holds A in {_A_REGISTERS} registers a thread for each K of 16."
    )
    if operands == "RS" and spill_share:
        return _yes(f"{told} This is RS and it spills: SS gives those registers back.", **inputs)
    if n < _NARROW:
        return _no(f"{told} Below N = {_NARROW} the rule small-wgmma-n decides.", **inputs)
    if tensor_utilization is not None and tensor_utilization >= _FULL:
        return _no(f"{told} The Tensor pipe is busy {tensor_utilization:.0%} of the time: it is fed.", **inputs)
    if operands == "SS" and shared >= _FEEDING * tensor:
        return _yes(
            f"{told} This is SS: shared memory needs {shared / tensor:.0%} of the Tensor time. RS pays where one A "
            f"serves several products and {_A_REGISTERS} registers for each K of 16 are free.",
            **inputs,
        )
    return _no(f"{told} Neither the registers nor shared memory are tight.", **inputs)


_WIDE = 192  # N whose accumulators take 96 registers a thread or more


def wgmma_n(
    *, n: int, registers: int, spill_share: float, blocks: int, limiter: str, tensor_utilization: float
) -> Answer:
    """A wide N: fewer instructions and fewer reads of A, against N / 2 accumulator registers a thread."""
    inputs: dict[str, Scalar] = {"n": n, "registers": registers, "blocks": blocks, "spill_share": spill_share}
    told = f"64 x {n} FP32 accumulators take N/2 = {n // 2} registers of each of 128 threads, of {registers} at launch."
    if n < _WIDE:
        return _no(f"{told} N is not wide.", **inputs)
    half = f"N = {n // 2} would take {n // 4}, and reads A twice as often."
    if spill_share > 0:
        return _yes(f"{told} The kernel spills, and spilled accumulators undo what the width saves. {half}", **inputs)
    if tensor_utilization >= _FULL:
        return _no(f"{told} The Tensor pipe is busy {tensor_utilization:.0%} of the time: the width serves.", **inputs)
    if blocks == 1 and limiter == "registers":
        return _yes(f"{told} Registers leave one block an SM, and nothing covers its waits. {half}", **inputs)
    return _no(f"{told} It neither spills nor do registers limit the blocks.", **inputs)


# --- clusters ---

PORTABLE = (
    8  # blocks of a cluster that every GPU with clusters launches (CUDA Programming Guide, thread block clusters)
)
_IDLE = 0.02  # of the SMs: under it, what does not divide is one or two of them
_WAITS = 0.05  # of the time at cluster barriers


def cluster_size(
    *,
    size: int,
    active: int,
    sms: int,
    blocks_per_sm: int,
    grid: int,
    barrier_wait: float | None = None,
    broadcast: tuple[float, float] | None = None,
) -> Answer:
    """The four costs of a cluster: placement, tail, traffic between SMs, waiting for the slowest block.

    `active` clusters fit the GPU at once; `broadcast` are the bytes a second that all blocks reading one block's shared
    memory sustain in clusters of 2 and of `size`.
    """
    if size <= 1:
        return _no("no cluster", size=size)
    places, used = sms * blocks_per_sm, active * size
    inputs: dict[str, Scalar] = {
        "size": size, "active": active, "sms": sms, "blocks_per_sm": blocks_per_sm, "grid": grid, "places_used": used,
    }  # fmt: skip
    idle = max(0.0, 1 - used / places)
    filled = used / blocks_per_sm
    costs = []
    if idle >= _IDLE and grid >= places:
        costs.append(
            f"placement: {active} clusters of {size} fill {filled:g} of {sms} SMs, {sms - filled:g} stay idle "
            f"({idle:.0%})"
        )
    if size > PORTABLE:
        costs.append(
            f"portability: {size} blocks are more than {PORTABLE}, the most that every GPU launches "
            "(cudaFuncAttributeNonPortableClusterSizeAllowed)"
        )
    clusters = math.ceil(grid / size)
    waves = clusters / active if active else 0.0
    without = 1 - grid / (math.ceil(grid / places) * places) if grid > places else 0.0
    tail = 1 - waves / math.ceil(waves) if waves > 1 else 0.0
    if tail - without >= _WAITS:
        costs.append(
            f"tail: {clusters:,} clusters in waves of {active} leave {tail:.0%} of the places of {math.ceil(waves)} "
            f"waves empty, single blocks would leave {without:.0%}"
        )
    if broadcast is not None and broadcast[1] < broadcast[0]:
        costs.append(
            f"traffic: all blocks reading one of them get {broadcast[1] / 1e12:.2g} TB/s in clusters of {size}, "
            f"{broadcast[0] / 1e12:.2g} in clusters of 2"
        )
    if barrier_wait is not None and barrier_wait >= _WAITS:
        costs.append(f"waiting: {barrier_wait:.0%} of the time at cluster barriers, until the slowest block comes")
    if not costs:
        return _no(f"{active} clusters of {size} fill {filled:g} of {sms} SMs, and none of its costs shows", **inputs)
    smaller = f" A cluster of {size // 2} halves these costs and what is shared." if size > 2 else ""
    told = "; ".join(costs)
    return _yes(f"{told[0].upper()}{told[1:]}.{smaller}", **inputs)


def dsm_or_multicast(*, size: int, multicast: bool, remote: bool, tensor: bool) -> Answer:
    """What a cluster shares: copies of a tile that all read (multicast), or one owner's data (distributed shared
    memory)."""
    inputs: dict[str, Scalar] = {"size": size, "multicast": multicast, "remote_shared_memory": remote}
    if size <= 1:
        return _no("no cluster", **inputs)
    if not multicast and not remote:
        return _yes(
            f"A cluster of {size} that neither multicasts nor reads another block's shared memory pays for its "
            f"placement and shares nothing. A tile that all {size} read: TMA multicast, one read of L2 instead of "
            f"{size}, a copy in each block. A part that each owns and others touch now and then: distributed shared "
            "memory.",
            **inputs,
        )
    if remote and tensor and not multicast:
        return _yes(
            "Products beside remote reads: a tile that is read again and again belongs into each block's own shared "
            f"memory by multicast (29 cycles a read instead of about 180 to 213), one read of L2 instead of {size}; "
            "remote reads fit a reduction's partial results, bins and queues.",
            **inputs,
        )
    used = "multicast" if multicast else "distributed shared memory"
    return _no(f"{used} fits what this kernel does with it", **inputs)


# --- copies ---

TMA_START = 170  # cycles that a TMA copy takes beyond a plain load (article; 187 to HBM measured here on an H200)
_BOX = 128 * 64 * 2  # bytes of a usual box: 128 rows of 128 bytes (a 128-byte swizzle's widest)
_COPY_SHARE = 0.02  # of all instructions: under it, copies take no issue slots that anything else wants


def break_even_bytes(hbm_bytes_per_s: float, sms: int, clock_hz: float, start_cycles: float = TMA_START) -> float:
    """Bytes that an SM's share of HBM moves in the start of one TMA copy: a smaller box takes longer to start than to
    move."""
    return hbm_bytes_per_s / sms / clock_hz * start_cycles


def tma_or_plain(
    *,
    bytes_per_tma: float | None,
    async_copies: float,
    copy_share: float,
    copied_bytes: float | None,
    gathered_share: float | None,
    break_even: float,
    has_tma: bool,
) -> Answer:
    """TMA, cp.async or plain loads: by the size and the regularity of what is copied."""
    inputs: dict[str, Scalar] = {"break_even_bytes": round(break_even), "async_copy_instructions": async_copies}
    start = (
        f"A TMA copy starts about {TMA_START} cycles later than a load; an SM's share of HBM moves {break_even:,.0f} "
        "bytes in that time."
    )
    if bytes_per_tma is not None:
        inputs["bytes_per_tma"] = round(bytes_per_tma)
        if bytes_per_tma < break_even:
            return _yes(
                f"{start} The copies here have {bytes_per_tma:,.0f}: gather them into larger boxes, or load plainly "
                "what is small or scattered.",
                **inputs,
            )
        return _no(f"{start} The copies here have {bytes_per_tma:,.0f}.", **inputs)
    if not has_tma or not async_copies or copy_share < _COPY_SHARE:
        return _no("no copy engine on this GPU, or too few copy instructions for it to matter", **inputs)
    if gathered_share is not None and gathered_share >= 0.5:
        return _no("the addresses come from data: no descriptor describes them, cp.async and plain loads fit", **inputs)
    if copied_bytes is None:
        return _no("the copied bytes were not counted", **inputs)
    boxes = math.ceil(copied_bytes / _BOX)
    return _yes(
        f"{async_copies:,.0f} cp.async of a warp ({copy_share:.0%} of all instructions, and addresses besides) move "
        f"{copied_bytes:,.0f} bytes. In boxes of 128 rows of 128 bytes they are {boxes:,} TMA copies by one thread "
        f"each. {start} It pays for regular boxes well above that.",
        **inputs, copied_bytes=copied_bytes, boxes=boxes,
    )  # fmt: skip


# --- L2 ---

SET_ASIDE = 0.75  # of L2, at most, for persisting accesses (CUDA Programming Guide, L2 set-aside cache)
_WASTE = 0.2  # of the bytes: beyond it, the surplus of HBM is no re-reading
_REREAD = 1.2  # bytes of HBM over the needed ones: below, every byte comes about once


def l2_window(
    *,
    l2_bytes: float,
    hbm_bytes: float,
    useful_bytes: float | None,
    hbm_utilization: float,
    in_l2: bool,
    waste: float = 0.0,
) -> Answer:
    """Whether an access-policy window, or the order of kernels, can keep data in L2. `waste`: bytes of HBM that nobody
    asked for (unused parts of sectors, spills), as a share."""
    aside = SET_ASIDE * l2_bytes
    inputs: dict[str, Scalar] = {"l2_bytes": l2_bytes, "hbm_bytes": hbm_bytes, "set_aside_bytes": aside}
    if useful_bytes is not None:
        inputs["useful_bytes"] = useful_bytes
        again = hbm_bytes / useful_bytes
        if waste >= _WASTE:
            return _no(
                f"{waste:.0%} of the bytes were not asked for: that comes first, and no window helps it", **inputs
            )
        if again >= _REREAD and hbm_utilization >= 0.3:  # under that, HBM is not what the kernel waits for
            told = (
                f"HBM moves {hbm_bytes:,.0f} bytes for {useful_bytes:,.0f} needed, {again:.2g} times; L2 holds "
                f"{l2_bytes:,.0f} and sets aside at most {aside:,.0f}."
            )
            if useful_bytes <= aside:
                return _yes(
                    f"{told} All of it fits: mark what is read again as persisting (access-policy window) and the "
                    "rest as streaming.",
                    **inputs,
                )
            return _yes(
                f"{told} A window holds {aside / useful_bytes:.0%} of them at most; the order of tiles comes first.",
                **inputs,
            )
        return _no(
            f"HBM moves {again:.2g} times the needed bytes: nothing is read again that a window would keep", **inputs
        )
    if in_l2 and hbm_utilization >= 0.5:  # only then is an order of kernels worth it
        return _yes(
            f"The {hbm_bytes:,.0f} bytes of HBM fit L2 ({l2_bytes:,.0f}): a kernel that runs right after the one "
            "that wrote or read them finds them there (ncu empties L2 first, cache control all). What must stay "
            f"over other kernels, up to {aside:,.0f} bytes, takes an access-policy window.",
            **inputs,
        )
    return _no("a stream larger than L2, or HBM is not what takes the time: no window helps", **inputs)


# --- when asynchronous copies do not pay ---

K_PAYS, MN_PAYS = 1024, 256  # the article's lines: K above 1,024, M and N above 256
_STEP = 64  # K of a step: 128 bytes of 16-bit values


def small_shape(*, m: float, n: float, k: float, stages_now: int | None = None, us: float | None = None) -> Answer:
    """Whether the fixed costs of an asynchronous pipeline (descriptors, barriers, fill and drain) outweigh it."""
    inputs: dict[str, Scalar] = {"m": m, "n": n, "k": k}
    small = [f"{name} = {value:,.0f}" for name, value, line in (("M", m, MN_PAYS), ("N", n, MN_PAYS), ("K", k, K_PAYS))
             if value <= line]  # fmt: skip
    if not small:
        return _no(f"M = {m:,.0f}, N = {n:,.0f}, K = {k:,.0f}: large enough for the pipeline to run", **inputs)
    steps = math.ceil(k / _STEP)
    fill = ""
    if stages_now is not None and stages_now > 1:
        inputs["stages"] = stages_now
        fill = f" K has {steps} steps of {_STEP}; {stages_now} stages fill over {stages_now - 1} of them and drain so."
    told = ", ".join(small)
    time = f" All of it takes {us:.3g} µs." if us is not None else ""
    return _yes(
        f"{told}: at or under the lines (K {K_PAYS:,}, M and N {MN_PAYS}) above which asynchronous copies and "
        f"products clearly pay.{fill}{time} Measure the synchronous version too; batch, group or split K where it is "
        "slow.",
        **inputs, steps=steps,
    )  # fmt: skip


# --- FP8 ---

_CONVERTS = 0.02  # of the instructions: conversions are part of the kernel
_MATTERS = 0.10  # of the time that FP8 can save


def fp8_conversions(
    *, m: float, n: float, k: float, conversion_share: float, hbm_bytes_per_s: float, us: float
) -> Answer:
    """What quantising the inputs costs beside what FP8 saves: fused into the producer, or kernels of its own."""
    inputs: dict[str, Scalar] = {"m": m, "n": n, "k": k, "us": us, "conversion_share": conversion_share}
    if conversion_share >= _CONVERTS:
        return _no(
            f"{conversion_share:.0%} of the instructions convert: it is fused, and stands in this time", **inputs
        )
    bytes_moved = 3 * m * k  # 2 read and 1 written a value of the activations; weights are quantised once
    pass_us = max(bytes_moved / hbm_bytes_per_s * 1e6, SHORTEST_KERNEL_US)
    inputs |= {"quantise_bytes": bytes_moved, "quantise_us": pass_us}
    told = (
        f"A pass that quantises the {m:,.0f} x {k:,.0f} activations reads 2 and writes 1 byte a value: {pass_us:.3g} "
        f"µs (at least {SHORTEST_KERNEL_US:g} for a kernel). FP8 saves at most the {us:.3g} µs that this kernel "
        "takes."
    )
    if pass_us < _MATTERS * us:
        return _no(f"{told} That is little.", **inputs)
    return _yes(f"{told} {pass_us / us:.0%} of the saving: fuse it into the kernel that writes them.", **inputs)


# --- FP32 units ---

# SMs whose 128 FP32 lanes count the 64 that they share with integers (white papers of GA102 and AD102).
SHARED_LANES = frozenset({86, 87, 89})


def fp32_units(*, sm: int, fp32_share: float, integer_share: float) -> Answer:
    """FP32 lanes of GA10x and Ada, counted once: half of them are the integer lanes too.

    An SM does 128 FP32 a cycle, or 64 FP32 and 64 integer: F and I instructions take max(I / 64, (F + I) / 128) cycles.
    """
    inputs: dict[str, Scalar] = {"sm": sm, "fp32_share": fp32_share, "integer_share": integer_share}
    if sm not in SHARED_LANES:
        return _no(f"sm_{sm} has integer lanes of its own, or as many as for FP32", **inputs)
    if not fp32_share:
        return _no("no FP32 arithmetic", **inputs)
    reachable = fp32_share / 128 / max(integer_share / 64, (fp32_share + integer_share) / 128)
    inputs["reachable"] = reachable
    told = (
        f"64 of the 128 FP32 lanes of an SM of sm_{sm} are its integer lanes: {fp32_share:.0%} FP32 and "
        f"{integer_share:.0%} integer instructions reach {reachable:.0%} of the FP32 peak"
    )
    if fp32_share < 0.2 or reachable >= 0.9:  # FP32 is not the work, or the integers hardly take lanes from it
        return _no(f"{told}.", **inputs)
    return _yes(
        f"{told}. The peak counts both halves already (SMs x 128 x 2 x clock): a move from GA10x to Ada brings more "
        "SMs and clock, no second doubling.",
        **inputs,
    )
