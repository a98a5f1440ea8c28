"""Outer products: whether the hot code multiplies loaded values by one another as matrix work does. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from diagnose.sass.text import parse

_FMA = frozenset({"FFMA", "HFMA2", "DFMA", "FFMA2"})
# A value that one of these makes of a loaded one counts as loaded: unpacked, converted, scaled, moved.
_UNPACK = frozenset({"HADD2", "PRMT", "SHL", "IMAD", "LOP3", "SHF", "F2F", "MOV", "HMUL2", "I2F", "F2FP", "I2FP"})
_FEW = 4  # fewer products than this are no tile: a 2 x 2 one has four


def outer_product(code: Iterable[str]) -> float:
    """How often a loaded value of the code (SASS text, in order) is multiplied by another one into an accumulator.

    In an outer product that is the tile's edge (4 to 16). In a dot product, a matrix times a vector, element-wise work,
    a softmax or a stencil it is 0 to 2, also where a loaded word is unpacked into many values: each is used once.
    """
    loaded: set[str] = set()
    used: Counter[str] = Counter()
    generation: Counter[str] = Counter()
    for text in code:
        parsed = parse(text)
        if parsed is None or parsed.opcode.startswith("HFMA2.MMA"):
            continue
        written = {name for name in parsed.destinations if name.startswith("R")}
        if parsed.base in {"LDS", "LDG", "LD"} or (parsed.base in _UNPACK and parsed.sources & loaded):
            loaded |= written
            generation.update(written)
            continue
        if parsed.base in _FMA:
            operands = [part.strip().lstrip("-|").split(".")[0].rstrip("|") for part in _operands(text, parsed.opcode)]
            if len(operands) >= 4 and operands[0] == operands[3] and {operands[1], operands[2]} <= loaded:
                for name in operands[1:3]:
                    used[f"{name} {generation[name]}"] += 1
        loaded -= parsed.destinations
    # Of the values that are multiplied at all: a loop may load others.
    return sum(used.values()) / len(used) if len(used) >= _FEW else 0.0


def _operands(text: str, opcode: str) -> list[str]:
    return text[text.index(opcode) + len(opcode) :].rstrip(" ;").split(",")
