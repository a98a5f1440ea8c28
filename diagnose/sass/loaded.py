"""What loaded values are used for: operations on each, and whether double arithmetic works on double data. Pure.

A forward pass in address order marks registers that hold a loaded value as it was loaded; a second one starts from the
marks of the first, for values that a loop loads for its next turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from diagnose.model import SassLine
from diagnose.sass.text import Instruction, parse

_LOADS = frozenset({"LDG", "LD", "LDS"})
_ARITHMETIC = frozenset({
    "FFMA", "FFMA2", "FADD", "FMUL", "FMNMX", "FSETP", "FSEL", "HFMA2", "HADD2", "HMUL2", "HMNMX2", "DFMA", "DADD",
    "DMUL", "DSETP", "IMAD", "IADD3", "IADD", "VIADD", "IMNMX", "VIMNMX", "VIADDMNMX", "VIMNMX3", "ISETP", "LOP3",
    "POPC", "IDP", "SHF", "VABSDIFF", "VABSDIFF4", "MUFU",
})  # fmt: skip
_DOUBLE = frozenset({"DFMA", "DADD", "DMUL", "DSETP", "DMMA"})
_STORES = frozenset({"STG", "ST", "STS", "RED", "REDG", "ATOMG", "ATOM", "ATOMS"})


def marked(
    lines: Sequence[SassLine], *makers: frozenset[str]
) -> Iterator[tuple[SassLine, Instruction, list[set[str]]]]:
    """Each executed instruction, and for each group of base opcodes the registers that hold a result as it was."""
    parsed = [(line, one) for line in lines if line.executed and (one := parse(line.text)) is not None]
    held: list[set[str]] = [set() for _ in makers]
    for last in (False, True):
        for line, instruction in parsed:
            if last:
                yield line, instruction, held
            written = {name for name in instruction.destinations if name.startswith("R")}
            for marks, makes in zip(held, makers, strict=True):
                if instruction.base in makes or (instruction.base == "MOV" and instruction.sources & marks):
                    marks |= written
                else:
                    marks -= written


def operations_per_load(lines: Sequence[SassLine]) -> float | None:
    """Executed arithmetic that takes a loaded value as it was loaded, for each executed load (shared or global).

    A product from shared tiles with one result a thread has about one, a register tile many, a copy none. None without
    executed counts; 0 without loads.
    """
    if not any(line.executed for line in lines):
        return None
    operations = loads = 0.0
    for line, instruction, (loaded,) in marked(lines, _LOADS):
        if instruction.base in _LOADS:
            loads += line.executed or 0.0
        elif instruction.base in _ARITHMETIC and instruction.sources & loaded:
            operations += line.executed or 0.0
    return operations / loads if loads else 0.0


def double_data(lines: Sequence[SassLine]) -> bool | None:
    """Whether double arithmetic takes a value as it was loaded, or its result is stored as it is.

    Float data that double literals widen goes through a conversion on both ways. None without executed counts.
    """
    if not any(line.executed for line in lines):
        return None
    for _, instruction, (loaded, double) in marked(lines, _LOADS, _DOUBLE):
        if instruction.base in _DOUBLE and instruction.sources & loaded:
            return True
        if instruction.base in _STORES and ".64" in instruction.opcode and instruction.sources & double:
            return True
    return False
