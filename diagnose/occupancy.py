"""Occupancy as a staircase: how many blocks of a kernel fit an SM, what limits them, and the next steps up and down.

The arithmetic is that of the hardware's allocation: registers by the warp and by scheduler, shared memory in units with
a reserve for the system, named barriers, warps and blocks. Everything comes from the architecture's entry; nothing is
guessed for an architecture that is not known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
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

    def add(resource: str, found: list[tuple[int, int]], wanted: Callable[[int], bool]) -> None:
        for value, blocks in found:
            if wanted(blocks):
                share = blocks * block.warps / (arch.max_warps_per_sm or 1)
                steps.append(Step(resource, value, blocks, share))
                return

    def registers(value: int) -> Block:
        return replace(block, registers=value)

    def shared(value: int) -> Block:
        return replace(block, shared_bytes=value)

    fewer, more = range(block.registers, 15, -1), range(block.registers, most + 1)
    add("registers", _changes(arch, fewer, registers, shared_capacity), lambda n: n > now.blocks)
    add("registers", _changes(arch, more, registers, shared_capacity), lambda n: n < now.blocks)
    unit = arch.shared_unit or 128
    # The step lies on a boundary of the allocation: all values of one unit allocate the same.
    low = [v for v in range(block.shared_bytes // unit * unit, -1, -unit) if v < block.shared_bytes]
    high = range(_up(block.shared_bytes, unit) + 1, (arch.shared_per_block or 0) + 1 + unit, unit)
    changes = _changes(arch, [block.shared_bytes, *low], shared, shared_capacity)
    add("shared_bytes", changes, lambda n: n > now.blocks)
    changes = _changes(arch, [block.shared_bytes, *high], shared, shared_capacity)
    add("shared_bytes", changes, lambda n: n < now.blocks)
    return tuple(steps)


def _changes(
    arch: Architecture, values: Iterable[int], make: Callable[[int], Block], capacity: int | None
) -> list[tuple[int, int]]:
    """The values at which the number of blocks changes, walking through `values`."""
    found: list[tuple[int, int]] = []
    last: int | None = None
    for value in values:
        fits = resident(arch, make(value), capacity)
        blocks = fits.blocks if fits is not None else 0
        if last is not None and blocks != last:
            found.append((value, blocks))
        last = blocks
    return found
