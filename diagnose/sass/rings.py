"""Ring buffers of mbarriers, by the counters that wrap around at the number of stages. Pure.

Three ways in which compilers and libraries write `stage = (stage + 1) % S` are known:

- a number that is compared with S after it was incremented, and reset (nvcc, CUTLASS);
- a number that is compared with S-1, and then the mbarriers' address goes back by 8 or 16 bytes times S-1 (cuBLAS);
- a number that counts stages and phase together, 0 to 2S-1: at S the phase turns, after 2S-1 it is reset (cuDNN).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence

from diagnose.sass.disassemble import Instruction

_COUNTER = re.compile(r"\b(U?R\d+)(?:\.reuse)?, (0x[0-9a-f]{1,2}), U?PT$")
_WINDOW = 24  # instructions between an increment and the test of it
_AFTER = 16  # instructions between a test and what it decides
_BACK = re.compile(r", (-0x[0-9a-f]+|0xffff[0-9a-f]{4})(?:, U?RZ)?$")
_BYTES = (8, 16)  # an mbarrier, and a full one beside its empty one


def _tests(
    code: Sequence[Instruction], looped: Collection[int], *kinds: str
) -> Iterator[tuple[int, str, int, Collection[str]]]:
    """Comparisons of a register with a small constant in loops: position, register, constant, modifiers."""
    for at, i in enumerate(code):
        modifiers = i.opcode.split(".")
        if i.pc in looped and i.base in {"ISETP", "UISETP"} and not {*kinds}.isdisjoint(modifiers):
            match = _COUNTER.search(i.text)
            if match:
                yield at, match[1], int(match[2], 16), modifiers


def wraps(code: Sequence[Instruction], looped: Collection[int]) -> set[int]:
    """Constants with which counters of loops are compared: `UIADD3 UR4, UR4, 0x1`, then `UISETP.NE UR4, 0x3`."""
    return {
        value
        for at, register, value, _ in _tests(code, looped, "EQ", "NE")
        if any(_adds_one(other, register) for other in code[max(0, at - _WINDOW) : at])
    }


def stages(code: Sequence[Instruction], looped: Collection[int]) -> int | None:
    """Stages of the rings; None where none is seen, or several of different length."""
    for way in (_going_back, _with_phase, _reset):
        found = way(code, looped)
        if found:
            return found.pop() if len(found) == 1 else None
    return None


def _going_back(code: Sequence[Instruction], looped: Collection[int]) -> set[int]:
    """`ISETP.EQ P2, R4, S-1`, then under P2 an address step of -8 (S-1)."""
    found = set()
    counters = wraps(code, looped)  # a library's other rings, of tiles to do, are not counted by an increment
    for at, _, last, _ in _tests(code, looped, "EQ"):
        predicate = _predicate(code[at])
        for other in code[at + 1 : at + 1 + _AFTER]:
            match = _BACK.search(other.text) if other.predicate == predicate else None
            if match and last in counters and -_signed(match[1]) in {size * last for size in _BYTES}:
                found.add(last + 1)
    return found


def _with_phase(code: Sequence[Instruction], looped: Collection[int]) -> set[int]:
    """Of one register: `GE 2S-1` resets it, and `GT S-1` or `GE S` gives the phase."""
    bounds: dict[str, set[int]] = {}
    for _, register, value, modifiers in _tests(code, looped, "GE", "GT"):
        bounds.setdefault(register, set()).add(value + ("GT" in modifiers))
    return {
        half
        for values in bounds.values()
        for half in values
        if half >= 1 and 2 * half - 1 in values and 2 * half - 1 != half
    }


def _reset(code: Sequence[Instruction], looped: Collection[int]) -> set[int]:
    """`UIADD3 UR4, UR4, 0x1`, `UISETP.NE UP0, UR4, S`, `USEL UR4, UR4, URZ, UP0`."""
    found = set()
    for at, register, value, _ in _tests(code, looped, "EQ", "NE"):
        if not any(_adds_one(other, register) for other in code[max(0, at - _WINDOW) : at]):
            continue
        predicate = _predicate(code[at])
        for other in code[at + 1 : at + 1 + _AFTER]:
            operands = _operands(other)
            if other.base in {"SEL", "USEL"} and {register, predicate} <= {o.lstrip("!") for o in operands[1:]}:
                if {"RZ", "URZ"} & set(operands):
                    found.add(value)
    return found


def _operands(instruction: Instruction) -> list[str]:
    text = instruction.text[instruction.text.index(instruction.opcode) + len(instruction.opcode) :]
    return [part.strip().split(".")[0] for part in text.split(",")]


def _predicate(instruction: Instruction) -> str:
    return _operands(instruction)[0]


def _adds_one(instruction: Instruction, register: str) -> bool:
    if not instruction.base.removeprefix("U").startswith(("IADD", "VIADD")):
        return False
    operands = _operands(instruction)
    return operands[0] == register and "0x1" in operands


def _signed(text: str) -> int:
    value = int(text, 16)
    return value - (1 << 32) if value >= 1 << 31 else value
