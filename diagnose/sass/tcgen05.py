"""What the code shows of tcgen05: shape and operations of an MMA, and the columns of Tensor Memory it allocates. Pure.

The opcode does not carry the shape: it stands in the instruction descriptor, a register. Where that register holds a
constant (CUTLASS and the compiler's own code usually make it one), it is read; else the shape is not known.

Layout of the descriptor, PTX ISA 9.0 (tcgen05 instruction descriptor): N >> 3 in bits 17 to 22; M >> 4 in bits 24 to
28, for block-scaled kinds M >> 7 in bits 27 and 28. One instruction multiplies 32 bytes of K: 8 TF32, 16 of 16 bit, 32
of 8 or 6 bit, 64 of 4 bit.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from diagnose.sass.disassemble import Instruction
from diagnose.sass.text import parse

COLUMNS = 512  # of an SM's Tensor Memory, 128 lanes of 4 bytes each: 256 KB (PTX ISA 9.0, Tensor Memory)
COLUMNS_LEAST = 32  # the smallest allocation; larger ones are powers of two
_BACK = 2000  # instructions searched for the last write of a register: a kernel's prologue and some more
_DEPTH = 4  # moves followed from register to register
_K = {"UTCHMMA": 16, "UTCQMMA": 32, "UTCIMMA": 32, "UTCOMMA": 64}
_KIND = {"UTCHMMA": "fp16", "UTCQMMA": "fp8", "UTCIMMA": "int8", "UTCOMMA": "fp4"}
_DESCRIPTOR = re.compile(r"\bidesc\[(UR\d+)\]")


@dataclass(frozen=True)
class Shape:
    """One tcgen05.mma: `m` rows (of both blocks in 2-CTA mode), `n` columns, `k`, and the type it multiplies."""

    m: int
    n: int
    k: int
    kind: str

    @property
    def operations(self) -> float:
        """Operations of one instruction, 2 a multiply-add."""
        return 2.0 * self.m * self.n * self.k


def is_mma(instruction: Instruction) -> bool:
    """Whether it is a tcgen05.mma of any kind."""
    return instruction.base in _K


def shape(code: Sequence[Instruction], at: int) -> Shape | None:
    """The shape of the tcgen05.mma at position `at` of `code`; None where its descriptor is no constant."""
    instruction = code[at]
    match = _DESCRIPTOR.search(instruction.text)
    if match is None or not is_mma(instruction):
        return None
    value = constant(code, at, match[1])
    if value is None:
        return None
    scaled = instruction.base == "UTCOMMA" or instruction.text.count("tmem[") > 2 + ("tmem[" in _first(instruction))
    n = ((value >> 17) & 0x3F) << 3
    m = ((value >> 27) & 0x3) << 7 if scaled else ((value >> 24) & 0x1F) << 4
    if not m or not n:
        return None
    kind, k = _KIND[instruction.base], _K[instruction.base]
    if instruction.base == "UTCHMMA" and not scaled:
        # Bits 7 to 9: the type of A; 2 is TF32 under kind::tf32, 1 bf16 and 0 half under kind::f16.
        form = (value >> 7) & 0x7
        kind, k = {0: ("fp16", 16), 1: ("bf16", 16), 2: ("tf32", 8)}.get(form, (kind, k))
    if "SP" in instruction.opcode.split("."):
        k *= 2
    return Shape(m, n, k, kind)


def _first(instruction: Instruction) -> str:
    """The first operand: A, in shared memory (`gdesc`) or in Tensor Memory (`tmem`)."""
    return instruction.text[len(instruction.opcode) :].split(",", 1)[0]


def columns(code: Sequence[Instruction]) -> int | None:
    """Columns of Tensor Memory that a block allocates at least: the largest tcgen05.alloc with a constant size. None
    without an allocation, or without a constant."""
    found = []
    for at, instruction in enumerate(code):
        if instruction.base == "UTCATOMSWS" and "FIND_AND_SET" in instruction.opcode:
            source = instruction.text.rsplit(",", 1)[-1].strip()
            value = constant(code, at, source) if source.startswith("UR") else None
            if value is not None and 0 < value * COLUMNS_LEAST <= COLUMNS:
                found.append(value * COLUMNS_LEAST)  # allocations are counted in 32 columns
    return max(found, default=None)


def allocated_for(wanted: int) -> int:
    """Columns that an allocation for `wanted` columns takes: a power of two, 32 at least."""
    size = COLUMNS_LEAST
    while size < wanted:
        size *= 2
    return size


def constant(code: Sequence[Instruction], at: int, register: str, depth: int = _DEPTH) -> int | None:
    """The constant that the last write of `register` before position `at` (in order of addresses) put there."""
    for index in range(at - 1, max(-1, at - 1 - _BACK), -1):
        parsed = parse(code[index].text)
        if parsed is None or register not in parsed.destinations:
            continue
        if code[index].predicate not in (None, "PT", "UPT"):
            return None
        opcode = code[index].opcode
        operands = [o.strip() for o in code[index].text.split(opcode, 1)[1].split(",")][1:]
        rest = [o for o in operands if o not in {"RZ", "URZ"}]
        if not opcode.startswith(("UMOV", "MOV", "IMAD.MOV", "R2UR", "IMAD.U32")) or len(rest) != 1:
            return None
        if re.fullmatch(r"-?0x[0-9a-f]+", rest[0]):
            return int(rest[0], 16) & 0xFFFFFFFF
        name = rest[0].split(".")[0]
        return constant(code, index, name, depth - 1) if depth and re.fullmatch(r"U?R\d+", name) else None
    return None
