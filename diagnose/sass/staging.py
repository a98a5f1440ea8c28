"""Tiles staged through registers: loaded values that a loop with a CTA barrier stores to shared memory unchanged. Pure.

Such a loop is what an asynchronous copy serves: the next tile's copy runs under this one's work. A block that stages
once (a transposing store, a scan's exchange) has nothing to run under, and a value that is changed on the way
(converted, scaled) cannot be copied past the registers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from diagnose.model import SassLine
from diagnose.sass.executed import bodies
from diagnose.sass.mix import access_bytes
from diagnose.sass.text import parse

_TWICE = 2.0  # the barrier of a loop runs at least twice as often as what stands before the loop
_LAST = re.compile(r"\b(R\d+)[^,\s]*\s*;?\s*$")


def staged_in_loop(lines: Sequence[SassLine]) -> float | None:
    """Bytes that loops with a CTA barrier store to shared memory as they were loaded, over all bytes that LDG loads
    (0..1).

    None where no instruction carries an executed count.
    """
    ordered = sorted(lines, key=lambda line: line.pc)
    parsed = [(line, instruction) for line in ordered if (instruction := parse(line.text)) is not None]
    if not any(line.executed for line in ordered):
        return None
    once = min((line.executed for line in ordered if line.executed), default=0.0)
    spans = [
        (body[0].pc, body[-1].pc)
        for body in bodies(ordered)
        if any(line.text.lstrip().startswith("BAR") and (line.executed or 0.0) >= _TWICE * once for line in body)
    ]
    loaded = staged = 0.0
    marked: set[str] = set()
    for last in (False, True):  # a pipelined loop stores what the iteration before loaded
        for line, instruction in parsed:
            amount = (line.executed or 0.0) * access_bytes(instruction.opcode)
            if instruction.base in {"LDG", "LD"}:
                marked |= instruction.destinations
                loaded += amount if last else 0.0
            elif instruction.base == "STS":
                value = _LAST.search(line.text)
                inside = any(first <= line.pc <= end for first, end in spans)
                if last and inside and value is not None and value[1] in marked:
                    staged += amount
            elif instruction.base == "MOV" and instruction.sources & marked:
                marked |= instruction.destinations
            else:
                marked -= instruction.destinations
    return min(1.0, staged / loaded) if loaded else 0.0
