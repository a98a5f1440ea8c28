"""Occupancy as a staircase: how many blocks of a kernel fit an SM, what limits them, and the next steps up and down.

The arithmetic is that of the hardware's allocation: registers by the warp and by scheduler, shared memory in units with
a reserve for the system, named barriers, warps and blocks. Everything comes from the architecture's entry; nothing is
guessed for an architecture that is not known.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from diagnose.gpus.catalogue import Architecture

# Named barriers of an SM are twice its block slots (ncu's tables: 64 on sm_90); a block has at most 16.
_BARRIERS_PER_BLOCK_SLOT = 2
WARP = 32


@dataclass(frozen=True)
class Block:
    """What one block of a kernel asks for. `shared_bytes` is static plus dynamic, without the system's reserve."""

    threads: int
    registers: int
    shared_bytes: int
    barriers: int = 0

    @property
    def warps(self) -> int:
        """Warps of the block."""
        return math.ceil(self.threads / WARP)


@dataclass(frozen=True)
class Residency:
    """Blocks that fit an SM by each resource; `blocks` is the smallest, `limiter` what it comes from."""

    blocks: int
    limiter: str
    by_warps: int
    by_blocks: int
    by_registers: int
    by_shared: int
    by_barriers: int
    warps: int
    occupancy: float


@dataclass(frozen=True)
class Step:
    """At `value` of the resource (and not before) `blocks` blocks fit an SM."""

    resource: str
    value: int
    blocks: int
    occupancy: float


def _up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def resident(arch: Architecture, block: Block, shared_capacity: int | None = None) -> Residency | None:
    """How many blocks fit an SM; None where the architecture's limits are not known.

    `shared_capacity` is the part of L1 set aside as shared memory, where a launch chose less than the most.
    """
    unit, size = arch.register_unit, arch.registers_per_sm
    capacity = shared_capacity if shared_capacity is not None else arch.shared_per_sm
    if not (arch.known and unit and size and capacity and arch.max_warps_per_sm and arch.max_blocks_per_sm):
        return None
    if block.threads < 1:
        return None
    warps = block.warps
    by_warps = arch.max_warps_per_sm // warps
    by_blocks = arch.max_blocks_per_sm
    # Each scheduler has its own part of the register file; a warp's registers are allocated as a whole in one of them.
    parts = arch.schedulers or 1
    a_warp = _up(block.registers * WARP, unit)
    by_registers = size // parts // a_warp * parts // warps if a_warp else by_blocks
    if arch.max_registers_per_thread is not None and block.registers > _up(arch.max_registers_per_thread, 8):
        by_registers = 0
    a_block = _up(block.shared_bytes + (arch.shared_reserved_per_block or 0), arch.shared_unit or 1)
    by_shared = capacity // a_block if a_block else by_blocks
    if arch.shared_per_block is not None and block.shared_bytes > arch.shared_per_block:
        by_shared = 0
    barriers = _BARRIERS_PER_BLOCK_SLOT * arch.max_blocks_per_sm
    by_barriers = min(by_blocks, barriers // block.barriers) if block.barriers else by_blocks
    limits = (
        ("registers", by_registers),
        ("shared memory", by_shared),
        ("warps", by_warps),
        ("blocks", by_blocks),
        ("barriers", by_barriers),
    )
    name, blocks = min(limits, key=lambda limit: limit[1])
    resident_warps = blocks * warps
    return Residency(
        blocks, name, by_warps, by_blocks, by_registers, by_shared, by_barriers, resident_warps,
        resident_warps / arch.max_warps_per_sm,
    )  # fmt: skip


def staircase(arch: Architecture, block: Block, shared_capacity: int | None = None) -> tuple[Step, ...]:
    """The next steps from the kernel as it is, in registers and in shared memory, in both directions.

    Fewer registers (or bytes): the most at which one more block fits. More: the most that still fits as many blocks as
    now, given as the step at which one block fewer fits. Empty where nothing is known.
    """
    now = resident(arch, block, shared_capacity)
    if now is None or arch.max_warps_per_sm is None:
        return ()
    steps: list[Step] = []
    most = arch.max_registers_per_thread or 255
    unit = arch.shared_unit or 128
    # A step lies on a boundary of the allocation: all values of one unit allocate the same.
    below = block.shared_bytes // unit * unit
    below -= unit if below == block.shared_bytes else 0
    above = _up(block.shared_bytes, unit) + 1
    for resource, values in (
        ("registers", range(block.registers - 1, 15, -1)),
        ("registers", range(block.registers + 1, most + 1)),
        ("shared_bytes", range(below, -1, -unit)),
        ("shared_bytes", range(above, (arch.shared_per_block or 0) + 1 + unit, unit)),
    ):
        found = _first_change(arch, block, resource, values, shared_capacity, now.blocks)
        if found is not None:
            value, blocks = found
            steps.append(Step(resource, value, blocks, blocks * block.warps / arch.max_warps_per_sm))
    return tuple(steps)


def _first_change(
    arch: Architecture, block: Block, resource: str, values: range, capacity: int | None, now: int
) -> tuple[int, int] | None:
    """The first of `values` at which another number of blocks fits than `now`; that number is monotonic in them."""

    def fits(value: int) -> int:
        changed = replace(block, registers=value) if resource == "registers" else replace(block, shared_bytes=value)
        found = resident(arch, changed, capacity)
        return found.blocks if found is not None else now

    low, high = 0, len(values)
    while low < high:
        middle = (low + high) // 2
        if fits(values[middle]) == now:
            low = middle + 1
        else:
            high = middle
    return (values[low], fits(values[low])) if low < len(values) else None
