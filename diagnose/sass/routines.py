"""The compiler's own routines in executed code: 64-bit division, slow paths of division, roots, powers. Pure."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence

from diagnose.model import SassLine
from diagnose.sass.text import parse

_TARGET = re.compile(r"\bCALL\.REL\S*\s+0x([0-9a-f]+)")
# nvcc 13.0 listings, sm_70 to sm_120: 64-bit division is 67 to 80 instructions, the double power the longest with 150.
_LONGEST = 200
_SHOWS = ("MUFU", "I2F", "F2I", "DFMA", "FFMA")  # each of those routines starts from an approximation and refines it
_MEMORY = frozenset({"LDG", "STG", "LD", "ST", "LDS", "STS", "ATOM", "ATOMG", "ATOMS", "RED", "BAR", "SHFL"})


def executed_in_routines(lines: Sequence[SassLine]) -> float | None:
    """Instructions executed in called functions that only compute (no memory access): the compiler's software routines.

    None where a call's target cannot be read: the number of calls is then all that is known.
    """
    ordered = sorted(lines, key=lambda line: line.pc)
    addresses = [line.pc for line in ordered]
    total, counted = 0.0, set[int]()
    for line in ordered:
        parsed = parse(line.text)
        if parsed is None or parsed.base != "CALL" or not line.executed:
            continue
        target = _TARGET.search(line.text)
        if target is None:
            return None
        start = bisect_left(addresses, int(target[1], 16))
        if start == len(ordered) or start in counted:
            continue
        counted.add(start)
        total += _computes(ordered[start : start + _LONGEST])
    return total


def _computes(body: Sequence[SassLine]) -> float:
    """Executed instructions of a function up to its return; 0 when it touches memory, or does not return in time."""
    executed, shown = 0.0, False
    for line in body:
        parsed = parse(line.text)
        if parsed is None:
            continue
        if parsed.base in _MEMORY:
            return 0.0
        executed += line.executed or 0.0
        shown = shown or parsed.base in _SHOWS
        if parsed.base == "RET":
            return executed if shown else 0.0
    return 0.0
