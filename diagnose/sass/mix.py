"""Reads an executed-opcode histogram: data paths taken, bytes asked for by loads and stores, shares of families."""

from __future__ import annotations

import re
from collections.abc import Mapping

from diagnose.sass import pathtable
from diagnose.sass.text import matcher


def paths(opcodes: Mapping[str, float]) -> tuple[str, ...]:
    """Sorted contract path names that the executed opcodes prove, by the table in paths.yaml."""
    return pathtable.of_opcodes(opcodes)


def count(opcodes: Mapping[str, float], *prefixes: str) -> float:
    """Executed warp (or thread) instructions whose opcode begins with one of the dotted prefixes."""
    counts = matcher(*prefixes)
    return sum(n for opcode, n in opcodes.items() if counts(opcode))


def access_bytes(opcode: str) -> int:
    """Bytes that one lane asks for with a load or store opcode: LDG.E.128 -> 16, LDG.E.U16 -> 2, LDG.E -> 4."""
    parts = opcode.split(".")
    if "128" in parts:
        return 16
    if "64" in parts:
        return 8
    if "U16" in parts or "S16" in parts or "16" in parts:
        return 2
    if "U8" in parts or "S8" in parts or "8" in parts:
        return 1
    return 4


def bytes_asked(thread_opcodes: Mapping[str, float], *bases: str) -> float:
    """Bytes that all executed lanes asked for by instructions with one of the base opcodes (LDG, LDGSTS, STG …)."""
    return sum(n * access_bytes(opcode) for opcode, n in thread_opcodes.items() if opcode.split(".", 1)[0] in bases)


_GMMA = re.compile(r"^(?:HGMMA|QGMMA|IGMMA)(?:\.SP)?\.(\d+)x(\d+)x(\d+)\b")


def wgmma_n(opcodes: Mapping[str, float]) -> int | None:
    """N of the wgmma shape that does most of the work (executed count times N); None without wgmma."""
    work: dict[int, float] = {}
    for opcode, n in opcodes.items():
        match = _GMMA.match(opcode)
        if match:
            size = int(match.group(2))
            work[size] = work.get(size, 0.0) + n * size
    return max(work, key=lambda size: work[size]) if work else None
