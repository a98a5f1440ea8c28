"""Reads one line of SASS text: predicate, opcode with modifiers, destination and source registers."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

_LINE = re.compile(r"^\s*(?:@(!?U?P[0-9T]+)\s+)?([A-Z][A-Za-z0-9_.]*)\s*(.*?)\s*;?\s*$")
_REGISTER = re.compile(r"\b(U?R\d+|U?P\d+)(?:\.(64|reuse))?")

# Opcodes whose first operand is a source and not a destination.
_NO_DESTINATION = (
    "ST", "STG", "STS", "STL", "RED", "REDG", "BRA", "BRX", "EXIT", "BAR", "BSYNC", "BSSY", "NANOSLEEP", "MEMBAR",
    "ERRBAR", "CCTL", "DEPBAR", "LDGDEPBAR", "WARPSYNC", "CALL", "RET", "NOP", "UTMASTG", "UTMALDG", "UBLKCP",
    "WARPGROUP", "ARRIVES", "UTMACMDFLUSH", "STSM", "LDGSTS", "STAS", "UTMAREDG", "UBLKRED", "FENCE", "JMP", "YIELD",
)  # fmt: skip


@dataclass(frozen=True)
class Instruction:
    """`opcode` with all modifiers (`LDG.E.128`), `base` without (`LDG`), register names as written (`R4`, `UR8`,
    `P2`).
    """

    opcode: str
    base: str
    predicate: str | None
    destinations: frozenset[str]
    sources: frozenset[str]


def _span(name: str, opcode: str, is_destination: bool) -> list[str]:
    """The registers that a vector destination covers: LDG.128 R4 writes R4 to R7."""
    if not is_destination or not name.startswith("R"):
        return [name]
    width = 4 if ".128" in opcode else 2 if ".64" in opcode or opcode.startswith(("D", "IMAD.WIDE")) else 1
    if opcode.startswith("LDSM"):
        width = 4 if ".4" in opcode else 2 if ".2" in opcode else 1
    if opcode.startswith("HMMA"):
        width = 4
    first = int(name[1:])
    return [f"R{first + i}" for i in range(width)]


@lru_cache(maxsize=65536)
def parse(text: str) -> Instruction | None:
    """Parses one instruction; None when the text is not SASS."""
    match = _LINE.match(text)
    if match is None:
        return None
    predicate, opcode, operands = match.group(1), match.group(2), match.group(3)
    base = opcode.split(".", 1)[0]
    parts = [part.strip() for part in operands.split(",")] if operands else []
    destinations: set[str] = set()
    sources: set[str] = set()
    takes_destination = base not in _NO_DESTINATION
    for position, part in enumerate(parts):
        names = [m.group(1) for m in _REGISTER.finditer(part)]
        # `ISETP.NE P0, PT, R1, R2` writes both predicates; `SHFL.BFLY PT, R7, …` and `ATOMG… PT, R4, …` a predicate
        # and a register; `SYNCS… P3, [UR22], R5` a predicate alone.
        bare = re.fullmatch(r"U?P[0-9T]+", part) is not None
        second = position == 1 and (
            (bare and base.endswith("SETP"))
            or (not base.endswith("SETP") and re.fullmatch(r"U?P[0-9T]+", parts[0]) is not None and not bare)
        )
        if takes_destination and (position == 0 or second) and not part.startswith(("[", "desc", "gdesc")):
            for name in names:
                destinations.update(_span(name, opcode, True))
        else:
            sources.update(names)
    if predicate is not None:
        sources.add(predicate.lstrip("!"))
    return Instruction(opcode, base, predicate, frozenset(destinations), frozenset(sources))


@lru_cache(maxsize=4096)
def matcher(*prefixes: str) -> Callable[[str], bool]:
    """Whether a dotted opcode begins with one of the dotted prefixes: HMMA.16816 is an HMMA, HMMAX is not; `prefix*`
    takes any rest.
    """
    begins = tuple(prefix[:-1] if prefix.endswith("*") else prefix + "." for prefix in prefixes)
    return lambda opcode: opcode.startswith(begins) or opcode in prefixes


def matches(opcode: str, prefix: str) -> bool:
    """The same of one opcode and one prefix."""
    return matcher(prefix)(opcode)
