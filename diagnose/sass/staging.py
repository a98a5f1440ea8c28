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
from diagnose.sass.loaded import marked
from diagnose.sass.mix import access_bytes

_TWICE = 2.0  # the barrier of a loop runs at least twice as often as what stands before the loop
_GLOBAL_LOADS = frozenset({"LDG", "LD"})
_LAST = re.compile(r"\b(R\d+)[^,\s]*\s*;?\s*$")


def staged_in_loop(lines: Sequence[SassLine]) -> float | None:
    """Bytes that loops with a CTA barrier store to shared memory as they were loaded, over all bytes that LDG loads
    (0..1).

    None where no instruction carries an executed count.
    """
    ordered = sorted(lines, key=lambda line: line.pc)
    if not any(line.executed for line in ordered):
        return None
    once = min((line.executed for line in ordered if line.executed), default=0.0)
    spans = [
        (body[0].pc, body[-1].pc)
        for body in bodies(ordered)
        if any(line.text.lstrip().startswith("BAR") and (line.executed or 0.0) >= _TWICE * once for line in body)
    ]
    loaded = staged = 0.0
    for line, instruction, (held,) in marked(ordered, _GLOBAL_LOADS):
        amount = (line.executed or 0.0) * access_bytes(instruction.opcode)
        if instruction.base in _GLOBAL_LOADS:
            loaded += amount
        elif instruction.base == "STS" and any(first <= line.pc <= end for first, end in spans):
            value = _LAST.search(line.text)
            staged += amount if value is not None and value[1] in held else 0.0
    return min(1.0, staged / loaded) if loaded else 0.0
