"""Follows loaded values into addresses: is a global access affine in thread and block indices, or data-dependent?"""

from __future__ import annotations

from collections.abc import Sequence

from diagnose.model import SassLine
from diagnose.sass.text import parse

_LOADS = frozenset({"LDG", "LD", "ATOMG", "ATOM", "LDS", "SHFL"})
_GLOBAL = frozenset({"LDG", "LD", "STG", "ST", "ATOMG", "ATOM", "RED", "REDG"})


def _address_registers(text: str) -> set[str]:
    """Registers inside the brackets of a memory operand, with the upper half of 64-bit addresses."""
    inside = text[text.find("[") + 1 : text.rfind("]")] if "[" in text else ""
    found: set[str] = set()
    for token in inside.replace("+", " ").replace(",", " ").replace("]", " ").replace("[", " ").split():
        name = token.split(".", 1)[0]
        if name.startswith("R") and name[1:].isdigit():
            found.add(name)
            found.add(f"R{int(name[1:]) + 1}") if ".64" in token else None
    return found


def gathered_share(lines: Sequence[SassLine]) -> float | None:
    """Share of executed global accesses (0..1) whose address depends on a value that was loaded.

    A forward pass in address order marks registers that hold loaded values or results computed from them; a second
    pass carries marks around loops. None when the lines hold no global access with a count.
    """
    tainted: set[str] = set()
    total = gathered = 0.0
    for last in (False, True):
        for line in lines:
            instruction = parse(line.text)
            if instruction is None:
                continue
            if last and instruction.base in _GLOBAL:
                weight = line.executed or 0.0
                total += weight
                if _address_registers(line.text) & tainted:
                    gathered += weight
            if instruction.base in _LOADS:
                tainted |= instruction.destinations
            elif instruction.destinations:
                if {s for s in instruction.sources if not s.startswith(("P", "UP"))} & tainted:
                    tainted |= instruction.destinations
                elif instruction.predicate is None:
                    tainted -= instruction.destinations
    return gathered / total if total else None
