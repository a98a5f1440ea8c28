"""What double arithmetic costs beside itself: moves of its halves, and library functions that take them apart. Pure.

An instruction holds 32 bits of a literal: a double constant takes two moves, where a float operation has its constant
in itself. Halves of a double are also moved, and selected, one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from diagnose.model import SassLine
from diagnose.sass.text import Instruction, parse

ARITHMETIC = frozenset({"DFMA", "DADD", "DMUL"})
_ON_DOUBLES = ARITHMETIC | {"DSETP"}
# Integer work on the half that holds sign and exponent; a selection of halves (a maximum) is no function.
_BITS = frozenset({"LOP3", "VIADD", "IADD3", "IADD", "SHF", "LEA", "ISETP"})
_ENDS = frozenset({"BRA", "BRX", "BSSY", "BSYNC", "CALL", "RET", "EXIT", "JMP"})


@dataclass(frozen=True)
class Doubles:
    """Executed warp instructions: moves of constants and halves, and double arithmetic inside library functions."""

    moves: float
    in_functions: float


def doubles(lines: Sequence[SassLine]) -> Doubles | None:
    """None without executed counts.

    A forward pass in address order follows halves from double results into moves, and from moves into double
    arithmetic; a second one carries them around loops. A stretch of code without branches belongs to a library function
    (an exponential, a logarithm, a division) where it works on the bits of a double, or starts from MUFU's
    approximation of one.
    """
    parsed = [(line.executed or 0.0, one) for line in lines if line.executed and (one := parse(line.text)) is not None]
    if not parsed:
        return None
    moved_by: dict[str, int] = {}  # register -> the move that wrote it
    results: set[str] = set()  # registers that hold halves of double results
    moves: set[int] = set()
    on_bits: set[int] = set()
    wrote_bits: dict[str, int] = {}
    for _ in (0, 1):
        for index, (_, one) in enumerate(parsed):
            registers = {name for name in one.sources if name.startswith(("R", "UR"))}
            if _is_double(one):
                for half in registers | {_upper(name) for name in registers}:
                    if half in moved_by:
                        moves.add(moved_by[half])
                    if half in wrote_bits:
                        on_bits.add(wrote_bits[half])
            from_double = bool(registers & results)
            move = _is_move(one)
            if move and from_double:
                moves.add(index)
            if one.base in _BITS and from_double:
                on_bits.add(index)
            for name in one.destinations:
                moved_by.pop(name, None)
                wrote_bits.pop(name, None)
                if move:
                    moved_by[name] = index
                if one.base in _BITS:
                    wrote_bits[name] = index
                if _is_double(one) or (move and from_double):
                    results.add(name)
                elif one.predicate is None:
                    results.discard(name)
    return Doubles(sum(parsed[index][0] for index in moves), _in_functions(parsed, on_bits))


def _in_functions(parsed: Sequence[tuple[float, Instruction]], on_bits: set[int]) -> float:
    total, stretch, function = 0.0, 0.0, False
    for index, (executed, one) in enumerate(parsed):
        if one.base in ARITHMETIC:
            stretch += executed
        function = function or index in on_bits or one.opcode.startswith(("MUFU.RCP64H", "MUFU.RSQ64H"))
        if one.base in _ENDS or index + 1 == len(parsed):
            total += stretch if function else 0.0
            stretch, function = 0.0, False
    return total


def _is_double(one: Instruction) -> bool:
    return one.base in _ON_DOUBLES or "64H" in one.opcode


def _is_move(one: Instruction) -> bool:
    return one.base in {"MOV", "UMOV"} or one.opcode.startswith(("IMAD.MOV", "HFMA2.MMA"))


def _upper(register: str) -> str:
    stem = "UR" if register.startswith("UR") else "R"
    number = register[len(stem) :]
    return f"{stem}{int(number) + 1}" if number.isdigit() else register
