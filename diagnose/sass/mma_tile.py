"""The output tile of warp-level MMA, read from operands: accumulators a warp keeps, and rows a block can have. Pure.

A fragment of A in mma.m16n8k16 is four registers: the first and third hold rows 0 to 7, the second and fourth rows 8 to
15 (PTX ISA, matrix fragments of mma.m16n8k16). Zeros in the latter say that at most 8 rows are real.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

from diagnose.sass.disassemble import Instruction
from diagnose.sass.text import parse

_ROWS, _COLUMNS = 16, 8  # of one HMMA's output from sm_75 on
# Attention has two products, as much work each, and only the first has the padded operand: about half of the HMMA.
_PADDED = 0.4
_BACK = 512  # instructions that are searched for the last write of a register
_ZERO = re.compile(r"^(?:U?R\d+)(?:,\s*(?:-?U?RZ|0x0|0|!?U?PT|0xc0|0xff|0x3c))+$")


@dataclass(frozen=True)
class Tile:
    """`accumulators` of 16 by 8 a warp, `row_tiles` of them above one another, `rows` (8 or 16) real ones in each."""

    accumulators: int
    row_tiles: int
    rows: int

    def elements(self, warps: int) -> int:
        """Output elements of a block of `warps` warps."""
        return self.accumulators * self.rows * _COLUMNS * warps

    def most_rows(self, warps: int) -> int:
        """Rows of the block's tile at most: all warps above one another."""
        return self.row_tiles * self.rows * warps


def _operands(instruction: Instruction) -> list[str]:
    text = instruction.text[instruction.text.index(instruction.opcode) + len(instruction.opcode) :]
    return [part.strip().split(".")[0] for part in text.split(",")]


def tile(code: Sequence[Instruction], before: Sequence[Instruction] = ()) -> Tile | None:
    """The tile of the HMMA in `code` (in order of addresses); `before` is what ran ahead of it. None without HMMA."""
    products = [(i, _operands(i)) for i in code if i.base == "HMMA"]
    products = [(i, operands) for i, operands in products if len(operands) >= 4]
    if not products:
        return None
    return Tile(_accumulators(products), _row_tiles(code), 8 if _padded(code, before) else _ROWS)


def _accumulators(products: Sequence[tuple[Instruction, list[str]]]) -> int:
    """Accumulators of the larger of two kinds of products: those that begin at zero here, and those that go on.

    A chain may change its register at each step (D R104, C R120); registers joined by a step are one accumulator.
    """
    group: dict[str, str] = {}

    def find(name: str) -> str:
        group.setdefault(name, name)
        while group[name] != name:
            name = group[name]
        return name

    begun: set[str] = set()
    for _, operands in products:
        if operands[3] == "RZ":
            begun.add(operands[0])
            find(operands[0])
        else:
            group[find(operands[0])] = find(operands[3])
    fresh = {find(name) for name in begun}
    carried = {find(name) for name in group} - fresh
    return max(len(fresh), len(carried))


def _row_tiles(code: Sequence[Instruction]) -> int:
    """Products with different A of one fragment of B: the tiles of 16 rows that a warp has above one another.

    Registers are told apart by their values: a copy of a fragment (the compiler makes some for the banks) is the same.
    """
    value: dict[str, int] = {}
    uses: dict[int, set[int]] = {}
    fresh = count()

    def of(name: str) -> int:
        return value.setdefault(name, next(fresh))

    for i in code:
        operands = _operands(i)
        if i.base == "HMMA" and len(operands) >= 4:
            uses.setdefault(of(operands[2]), set()).add(of(operands[1]))
        parsed = parse(i.text)
        if parsed is None:
            continue
        copied = of(operands[-1]) if _is_copy(i, operands) else None
        for name in parsed.destinations:
            value[name] = copied if copied is not None else next(fresh)
    return max((len(tiles) for tiles in uses.values()), default=1)


def _is_copy(instruction: Instruction, operands: Sequence[str]) -> bool:
    if instruction.predicate is not None or re.fullmatch(r"R\d+", operands[-1]) is None:
        return False
    return (instruction.base == "MOV" and len(operands) == 2) or (
        instruction.opcode.startswith("IMAD.MOV") and operands[1:3] == ["RZ", "RZ"]
    )


def _padded(code: Sequence[Instruction], before: Sequence[Instruction]) -> bool:
    listing = [*before, *code]
    first = len(before)
    padded: Counter[bool] = Counter()
    for at in range(first, len(listing)):
        if listing[at].base != "HMMA" or "16816" not in listing[at].opcode:
            continue
        match = re.fullmatch(r"R(\d+)", _operands(listing[at])[1])
        if match:
            low = int(match[1])
            padded[all(_zero(listing, at, f"R{low + half}") for half in (1, 3))] += 1
    return padded[True] >= _PADDED * padded.total() and padded[True] > 0


def _zero(listing: Sequence[Instruction], at: int, register: str) -> bool:
    """Whether the last write of a register before `at`, in order of addresses, stores zero."""
    for index in range(at - 1, max(-1, at - 1 - _BACK), -1):
        parsed = parse(listing[index].text)
        if parsed is not None and register in parsed.destinations:
            text = listing[index].text
            rest = text[text.index(listing[index].opcode) + len(listing[index].opcode) :].strip()
            return listing[index].base in {"MOV", "IMAD", "CS2R", "HFMA2"} and (
                _ZERO.match(rest) is not None or (listing[index].base == "CS2R" and rest.endswith("SRZ"))
            )
    return False
