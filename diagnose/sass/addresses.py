"""Follows loaded values into addresses: is a global access affine in thread and block indices, or data-dependent?"""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping, Sequence

from diagnose.model import SassLine
from diagnose.sass.text import Instruction, parse

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
    loops. Work on values that are loaded each time is no address arithmetic, though a later look-up uses its result (a
    cipher's rounds, a hash): it cannot be hoisted or stepped. None when the lines carry no executed counts.
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
    data = {
        index
        for index, instruction, executed, loaded in _with_loaded(lines)
        if index in marked and _freshest(loaded, instruction.sources) >= _EACH_TIME * executed > 0
    }
    return sum(lines[index].executed or 0.0 for index in marked - data) / total


_ACCESS = {"LDG": "load", "LD": "load", "STG": "store", "ST": "store"}
_BRANCH = re.compile(r"\bBRA\S*(?:\s+!?U?P\d+,)?\s+(?:`\([^)]*\)\s+)?0x([0-9a-f]+)")


def _with_loaded(lines: Sequence[SassLine]) -> Iterator[tuple[int, Instruction, float, Mapping[str, float]]]:
    """Each instruction, in address order: index, instruction, executions by all lanes, and what holds loaded values.

    A forward pass marks registers that hold loaded values or results computed from them, with how often the load ran. A
    second pass, the one that is given out, starts from those marks, and joins at the head of a loop what its end had
    carried (the next address of a list that is followed). The mapping is that before the instruction; it changes. What
    is written under a predicate leaves the old value to lanes without it, so instructions under the same predicate see
    the new value's mark alone.
    """
    loaded: dict[str, float] = {}
    carried: dict[int, dict[str, float]] = {}  # address of a loop's head -> marks at the branches back to it
    joints = {int(match[1], 16) for line in lines if (match := _BRANCH.search(line.text)) is not None}
    for last in (False, True):
        under: dict[str, dict[str, float]] = {}  # predicate, as written -> marks of what was written under it
        for index, line in enumerate(lines):
            _join(loaded, carried.get(line.pc, {}))
            if line.pc in joints:
                under.clear()  # whoever jumps here has not written under the predicate
            instruction = parse(line.text)
            if instruction is None:
                continue
            executed = _lanes(line)
            guard = instruction.predicate
            seen: Mapping[str, float] = ChainMap(under[guard], loaded) if guard in under else loaded
            if last:
                yield index, instruction, executed, seen
            target = _BRANCH.search(line.text) if executed and not last else None
            if target is not None and int(target[1], 16) < line.pc:
                _join(carried.setdefault(int(target[1], 16), {}), loaded)
            if instruction.destinations:
                fresh = executed if instruction.base in _LOADS else _freshest(seen, instruction.sources)
                for register in instruction.destinations:
                    for marks in under.values():
                        marks.pop(register, None)
                    under.pop(register, None)
                    under.pop("!" + register, None)
                    if fresh:
                        # A value carried around a loop is as fresh as what was last added to it.
                        loaded[register] = fresh
                    elif guard is None:
                        loaded.pop(register, None)
                    if guard is not None:
                        under.setdefault(guard, {})[register] = fresh


def _freshest(loaded: Mapping[str, float], registers: Iterable[str]) -> float:
    return max((loaded.get(r, 0.0) for r in registers if r.startswith(("R", "UR"))), default=0.0)


# A value that was loaded half as often as it is used, or more, is another one each time; one that was loaded once and
# then stepped along (a row pointer) is a base.
_EACH_TIME = 0.5


def gathered_share(lines: Sequence[SassLine]) -> float | None:
    """Share of executed global loads, or of stores where that is larger, at data-dependent addresses (0..1).

    An access is gathered when the value in its address was loaded about as often as the access itself runs. None when
    the lines hold no global access with a count.
    """
    counts = {"load": [0.0, 0.0], "store": [0.0, 0.0]}
    for index, instruction, executed, loaded in _with_loaded(lines):
        kind = _ACCESS.get(instruction.base)
        if kind is None:
            continue
        counts[kind][0] += executed
        if _freshest(loaded, _address_registers(lines[index].text)) >= _EACH_TIME * executed > 0:
            counts[kind][1] += executed
    shares = [gathered / total for total, gathered in counts.values() if total]
    return max(shares) if shares else None


def _lanes(line: SassLine) -> float:
    """Executions by all lanes: a loop that few lanes go on with runs often as a warp and rarely as a lane."""
    return line.thread_executed if line.thread_executed is not None else 32 * (line.executed or 0.0)


def _join(marks: dict[str, float], others: Mapping[str, float]) -> None:
    for register, count in others.items():
        marks[register] = max(marks.get(register, 0.0), count)
