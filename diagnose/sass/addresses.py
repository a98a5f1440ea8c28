"""Follows loaded values into addresses: is a global access affine in thread and block indices, or data-dependent?"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from diagnose.model import SassLine
from diagnose.sass.text import parse

_LOADS = frozenset({"LDG", "LD", "ATOMG", "ATOM", "LDS", "SHFL"})
_GLOBAL = frozenset({"LDG", "LD", "STG", "ST", "ATOMG", "ATOM", "RED", "REDG"})


def _address_registers(text: str) -> set[str]:
    """Registers inside the brackets of a memory operand, with the upper half of 64-bit addresses."""
    text = re.sub(r"desc\[[^\]]*\]", "", text)  # the descriptor is no address
    inside = text[text.find("[") + 1 : text.rfind("]")] if "[" in text else ""
    found: set[str] = set()
    for token in inside.replace("+", " ").replace(",", " ").replace("]", " ").replace("[", " ").split():
        name = token.split(".", 1)[0]
        stem = "UR" if name.startswith("UR") else "R"
        if name.startswith(stem) and name[len(stem) :].isdigit():
            found.add(name)
            if ".64" in token:
                found.add(f"{stem}{int(name[len(stem) :]) + 1}")
    return found


_MEMORY = _GLOBAL | {"LDS", "STS", "LDGSTS", "LDL", "STL", "LDSM", "STSM", "ATOMS", "LDC"}
# Integer work that makes addresses; moves and constant loads are not arithmetic.
_INTEGER = frozenset({
    "IMAD", "IADD3", "IADD", "LEA", "SHF", "LOP3", "VIADD", "IABS", "ISETP", "SEL", "IMNMX", "VIMNMX", "PRMT", "SHL",
    "SHR", "UIMAD", "UIADD3", "ULEA", "USHF", "ULOP3", "USEL", "UISETP", "I2F", "F2I",
})  # fmt: skip


def address_arithmetic_share(lines: Sequence[SassLine]) -> float | None:
    """Share of executed instructions (0..1) that are integer arithmetic whose result reaches an address.

    A backward pass in address order follows address registers to what computes them; a second pass carries them around
    loops. None when the lines carry no executed counts.
    """
    total = sum(line.executed or 0.0 for line in lines)
    if not total:
        return None
    wanted: set[str] = set()
    marked: set[int] = set()
    for _ in (0, 1):
        for index in range(len(lines) - 1, -1, -1):
            instruction = parse(lines[index].text)
            if instruction is None:
                continue
            if instruction.destinations & wanted:
                if instruction.base in _INTEGER:
                    marked.add(index)
                    wanted |= {s for s in instruction.sources if s.startswith(("R", "UR"))}
                elif instruction.base in {"MOV", "UMOV", "R2UR", "S2UR", "CS2R", "HFMA2"}:
                    wanted |= {s for s in instruction.sources if s.startswith(("R", "UR"))}
                if instruction.predicate is None and not (instruction.destinations & instruction.sources):
                    wanted -= instruction.destinations
            if instruction.base in _MEMORY:
                wanted |= _address_registers(lines[index].text)
    return sum(lines[index].executed or 0.0 for index in marked) / total


_ACCESS = {"LDG": "load", "LD": "load", "STG": "store", "ST": "store"}
_BRANCH = re.compile(r"\bBRA\S*(?:\s+!?U?P\d+,)?\s+(?:`\([^)]*\)\s+)?0x([0-9a-f]+)")


def gathered_share(lines: Sequence[SassLine]) -> float | None:
    """Share of executed global loads, or of stores where that is larger, at data-dependent addresses (0..1).

    A forward pass in address order marks registers that hold loaded values or results computed from them, with how
    often the load ran. A second pass starts from those marks, and joins at the head of a loop what its end had carried
    (the next address of a list that is followed). An access is gathered when the value in its address was loaded about
    as often as the access itself runs: a row pointer that is loaded once and then stepped along is a base, no gather.
    None when the lines hold no global access with a count.
    """
    loaded: dict[str, float] = {}
    carried: dict[int, dict[str, float]] = {}  # address of a loop's head -> marks at the branches back to it
    counts = {"load": [0.0, 0.0], "store": [0.0, 0.0]}
    for last in (False, True):
        for line in lines:
            _join(loaded, carried.get(line.pc, {}))
            instruction = parse(line.text)
            if instruction is None:
                continue
            executed = _lanes(line)
            kind = _ACCESS.get(instruction.base)
            if last and kind is not None:
                counts[kind][0] += executed
                freshest = max((loaded.get(r, 0.0) for r in _address_registers(line.text)), default=0.0)
                if freshest >= 0.5 * executed > 0:
                    counts[kind][1] += executed
            target = _BRANCH.search(line.text) if executed and not last else None
            if target is not None and int(target[1], 16) < line.pc:
                _join(carried.setdefault(int(target[1], 16), {}), loaded)
            if instruction.base in _LOADS:
                for register in instruction.destinations:
                    loaded[register] = executed
            elif instruction.destinations:
                freshest = max(
                    (loaded.get(s, 0.0) for s in instruction.sources if s.startswith(("R", "UR"))), default=0.0
                )
                for register in instruction.destinations:
                    if freshest:
                        # A value carried around a loop is as fresh as what was last added to it.
                        loaded[register] = freshest
                    elif instruction.predicate is None:
                        loaded.pop(register, None)
    shares = [gathered / total for total, gathered in counts.values() if total]
    return max(shares) if shares else None


def _lanes(line: SassLine) -> float:
    """Executions by all lanes: a loop that few lanes go on with runs often as a warp and rarely as a lane."""
    return line.thread_executed if line.thread_executed is not None else 32 * (line.executed or 0.0)


def _join(marks: dict[str, float], others: Mapping[str, float]) -> None:
    for register, count in others.items():
        marks[register] = max(marks.get(register, 0.0), count)
