"""Pitfalls of asynchronous copies, wgmma and mbarriers that the code alone can hint at. Each says "may": a wait or a
fence can also stand in another kernel, behind a call, or be unnecessary."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from diagnose.sass.cfg import WGMMA
from diagnose.sass.disassemble import Instruction
from diagnose.sass.tcgen05 import constant

_STORES = frozenset({"STS", "STSM"})
_VALUE = re.compile(r"\b(0x[0-9a-f]+)\s*$")


@dataclass(frozen=True)
class Pitfall:
    """What may be wrong, and the instruction to look at."""

    name: str
    text: str
    at: Instruction


def pitfalls(code: Sequence[Instruction], threads: int | None = None) -> tuple[Pitfall, ...]:
    """Every pitfall that the code of a kernel hints at. `threads` is the most that a block has, where the code fixes
    it."""
    found: list[Pitfall] = []
    fenced = any(i.opcode.startswith("FENCE.VIEW.ASYNC") and "T" not in i.opcode.split(".") for i in code)
    stored = [i for i in code if i.base in _STORES]
    if stored and not fenced:
        out = next((i for i in code if i.base in {"UTMASTG", "UTMAREDG"} or i.opcode.startswith("UBLKCP.G.S")), None)
        if out is not None:
            found.append(
                Pitfall(
                    "async-fence",
                    "TMA may read shared memory before ordinary stores to it are visible: no fence.proxy.async",
                    out,
                )
            )
        # Without a TMA load, what wgmma reads in shared memory was stored there by the threads.
        loads = any(i.base == "UTMALDG" or i.opcode.startswith("UBLKCP.S.G") for i in code)
        reads = next((i for i in code if i.base in WGMMA and "gdesc" in i.text), None)
        if reads is not None and not loads:
            found.append(
                Pitfall(
                    "async-fence",
                    "wgmma may read shared memory before ordinary stores to it are visible: no fence.proxy.async",
                    reads,
                )
            )
    committed = next((i for i in code if i.base == "LDGDEPBAR"), None)
    copied = next((i for i in code if i.base == "LDGSTS"), None)
    waited = any(
        i.base == "DEPBAR" or i.opcode.startswith("SYNCS") or i.opcode.startswith("ATOMS.ARRIVE") for i in code
    )
    if copied is not None and not waited:
        what = "are committed" if committed is not None else "are issued"
        found.append(
            Pitfall(
                "copy-wait", f"cp.async copies {what} and may never be waited for in this kernel", committed or copied
            )
        )
    found += _setmaxnreg(code)
    found += _arrivals(code, threads)
    return tuple(found)


# What all threads of a warp execute together: behind one of them, and before the next jump, at least 32 threads run.
_COLLECTIVE = frozenset({"WARPGROUP", "HMMA", "IMMA", "QMMA", "LDSM", "STSM", "SHFL", "WARPSYNC"}) | WGMMA
_LEAVES = frozenset({"BRA", "BRX", "JMP", "EXIT", "RET", "CALL", "BSYNC", "ELECT", "BREAK"})
_WARP = 32
_NEAR = 64  # instructions back from an arrival to what its whole warp executed
_PENDING = 0x100000  # a phase's arrivals are stored as this much less the count (code of mbarrier.init, nvcc 13.0)
_FROM_PENDING = re.compile(r"-(UR\d+), 0x100000\b")


def arrival_counts(code: Sequence[Instruction]) -> tuple[int, ...] | None:
    """Counts that mbarriers are initialised with, one an initialisation; None where one is not a constant of the code.

    mbarrier.init of `count` is `UIADD3 UR6, -URcount, 0x100000`, `USHF.L.U32 UR6, UR6, 0x1`, `SYNCS.EXCH.64 …, UR6`.
    """
    counts = []
    for at, i in enumerate(code):
        if not i.opcode.startswith("SYNCS.EXCH"):
            continue
        shift = _written_by(code, at, _operands(i)[-1])
        pending = _written_by(code, shift, _operands(code[shift])[1]) if shift is not None else None
        match = _FROM_PENDING.search(code[pending].text) if pending is not None else None
        value = constant(code, pending, match[1]) if match is not None and pending is not None else None
        if value is None or not 0 < value < _PENDING:
            return None
        counts.append(value)
    return tuple(counts)


def _written_by(code: Sequence[Instruction], at: int, register: str) -> int | None:
    for index in range(at - 1, -1, -1):
        if code[index].base in {"USHF", "UIADD3"} and _operands(code[index])[0] == register:
            return index
    return None


def _operands(instruction: Instruction) -> list[str]:
    text = instruction.text[instruction.text.index(instruction.opcode) + len(instruction.opcode) :]
    return [part.strip().split(".")[0] for part in text.split(",")]


def _arrivals(code: Sequence[Instruction], threads: int | None) -> list[Pitfall]:
    """Arrivals that cannot meet the counts: none at all, more than the block's threads make, or a whole warp's on
    barriers that count single threads."""
    waits = [i for i in code if i.opcode.startswith("SYNCS.PHASECHK")]
    arrivals = [(at, i) for at, i in enumerate(code) if i.opcode.startswith("SYNCS.ARRIVE")]
    others = any(i.base in {"ARRIVES", "UTCBAR"} for i in code)  # cp.async and tcgen05 arrive by themselves
    if waits and not arrivals and not others:
        text = "mbarriers are waited for, and nothing in this kernel may arrive: the wait may never end"
        return [Pitfall("mbarrier-count", text, waits[0])]
    counts = arrival_counts(code)
    remote = any("RED" in i.opcode.split(".") for _, i in arrivals)  # threads of the whole cluster arrive
    if not counts or not arrivals or others or remote:
        return []
    if threads and max(counts) > threads * len(arrivals):
        text = f"an mbarrier counts {max(counts)} arrivals, and the {threads} threads of a block may not make so many"
        return [Pitfall("mbarrier-count", text, arrivals[0][1])]
    if max(counts) < _WARP:
        for at, i in arrivals:
            if i.predicate is None and "A1T0" in i.opcode.split(".") and _whole_warp(code, at):
                text = (
                    f"all threads of a warp arrive at an mbarrier, and none counts more than {max(counts)}: "
                    "its phase may end before the data is read"
                )
                return [Pitfall("mbarrier-count", text, i)]
    return []


def _whole_warp(code: Sequence[Instruction], at: int) -> bool:
    for index in range(at - 1, max(-1, at - 1 - _NEAR), -1):
        if code[index].base in _COLLECTIVE and code[index].predicate is None:
            return True
        if code[index].base in _LEAVES:
            return False
    return False


def _setmaxnreg(code: Sequence[Instruction]) -> list[Pitfall]:
    """A kernel that raises a warp group's registers has to lower another's first, or the raise waits for ever."""
    raised = [i for i in code if i.base == "USETMAXREG" and "TRY_ALLOC" in i.opcode]
    lowered = [i for i in code if i.base == "USETMAXREG" and "DEALLOC" in i.opcode]
    if raised and not lowered:
        match = _VALUE.search(raised[0].text)
        amount = f" to {int(match[1], 16)}" if match else ""
        text = f"setmaxnreg raises registers{amount}, and no warp group gives any back: it may wait for ever"
        return [Pitfall("setmaxnreg-order", text, raised[0])]
    return []
