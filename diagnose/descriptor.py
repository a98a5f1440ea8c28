"""`diagnose descriptor`: what a matrix descriptor of wgmma or tcgen05 says, what is wrong with it, and its inverse.

The formats, the alignments and the base offset are those of the PTX ISA: 9.7.15.5.1.2.2 (wgmma, matrix descriptor
format), 9.7.15.5.1.2 (shared memory matrix layout), 9.7.16.4.1 and 9.7.16.4.2 (tcgen05, shared memory and instruction
descriptor) and 9.7.16.2.1 (shapes). Addresses and offsets are bytes in the shared window; each is stored as
(bytes & 0x3FFFF) >> 4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from diagnose import __version__
from diagnose.errors import DiagnoseError
from diagnose.gpus import catalogue

#: Where the articles speak of it: `file#heading`.
ARTICLES = (
    "000_3ce42bb8a7855e69#Fragment layout：不是“每线程随便拿几个元素”",
    "002_81d68bc01aff1bfb#2. wgmma指令的寄存器与描述符机制拆解",
    "002_81d68bc01aff1bfb#2.1 操作数从寄存器搬到了shared memory",
    "002_81d68bc01aff1bfb#4.3 从Hopper迁移到Blackwell的实操清单",
)

WGMMA, TCGEN05, INSTRUCTION = "wgmma", "tcgen05", "instruction"
ILLEGAL, SUSPICIOUS, NOTE = "illegal", "suspicious", "note"

_UNIT = 16  # the low four bits of every address and offset are not stored
_MOST = 0x3FFF0  # the largest value of a 14-bit field of 16-byte units
_CORE = 8 * _UNIT  # a core matrix without swizzle: 8 rows of 16 bytes
_K_BYTES = 32  # K of one dense wgmma or tcgen05.mma: 16 values of 16 bit, 32 of 8 bit, 8 of TF32
_ROWS = 8  # rows of a swizzle atom (PTX ISA, table of swizzle atoms)

_FORMAT = {
    WGMMA: "PTX ISA 9.7.15.5.1.2.2, matrix descriptor format",
    TCGEN05: "PTX ISA 9.7.16.4.1, shared memory descriptor",
    INSTRUCTION: "PTX ISA 9.7.16.4.2, instruction descriptor",
}
_STRIDES = {WGMMA: "PTX ISA 9.7.15.5.1.2.1, strides", TCGEN05: "PTX ISA 9.7.16.3, strides"}
_LAYOUT = {WGMMA: "PTX ISA 9.7.15.5.1.2, shared memory matrix layout", TCGEN05: "PTX ISA 9.7.16.5, layouts"}


@dataclass(frozen=True)
class Swizzle:
    """A swizzling mode: rows of `row` bytes (16 without swizzle); its pattern repeats after `repeat` bytes."""

    name: str
    row: int

    @property
    def repeat(self) -> int:
        """Bytes after which the pattern begins anew: eight rows (PTX ISA, starting address of repeating pattern)."""
        return _ROWS * self.row

    @property
    def swizzled(self) -> bool:
        """Whether there is a pattern at all."""
        return self.row > _UNIT


_NONE, _128, _64, _32 = Swizzle("none", 16), Swizzle("128", 128), Swizzle("64", 64), Swizzle("32", 32)
_128_32 = Swizzle("128-32", 128)  # 128 bytes in atoms of 32: tcgen05 only
SWIZZLES: Mapping[str, Mapping[int, Swizzle]] = {
    WGMMA: {0: _NONE, 1: _128, 2: _64, 3: _32},
    TCGEN05: {0: _NONE, 1: _128_32, 2: _128, 4: _64, 6: _32},
}
_SWIZZLE_AT = {WGMMA: (62, 2), TCGEN05: (61, 3)}
# Bits that no field has, and those that are fixed: (low bit, width, value they must have).
_FIXED: Mapping[str, Sequence[tuple[int, int, int]]] = {
    WGMMA: ((14, 2, 0), (30, 2, 0), (46, 3, 0), (52, 10, 0)),
    TCGEN05: ((14, 2, 0), (30, 2, 0), (46, 3, 1), (53, 8, 0)),
}
# The architecture whose shared memory an address of that form lies in.
_SM = {WGMMA: 90, TCGEN05: 100}


@dataclass(frozen=True)
class Descriptor:
    """A descriptor of a matrix in shared memory. Bytes throughout; `swizzle` None for a code that has no meaning.

    `form` is wgmma or tcgen05. `absolute`: tcgen05's bit 52, where `leading` is an address and no distance.
    """

    value: int
    form: str
    start: int
    leading: int
    stride: int
    base_offset: int
    swizzle: Swizzle | None
    absolute: bool = False


@dataclass(frozen=True)
class Remark:
    """Something to know about a descriptor: `level` illegal, suspicious or note; `source` says where it is written."""

    level: str
    field: str
    text: str
    source: str


def _bits(value: int, low: int, width: int) -> int:
    return value >> low & (1 << width) - 1


def number(text: str, what: str, bits: int = 64) -> int:
    """A number of at most `bits` bits: 0x4000…, 1024, 0b…; a C++ suffix (ull) and digit marks (' or _) are allowed."""
    plain = text.strip().lower().rstrip("ul").replace("'", "").replace("_", "")
    try:
        value = int(plain, 0)
    except ValueError:
        raise DiagnoseError(f"{what} {text!r} is no number", "a number as 0x400, 1024 or 0b100") from None
    if not 0 <= value < 1 << bits:
        raise DiagnoseError(f"{what} {text} does not fit {bits} bits", f"a number from 0 to {hex((1 << bits) - 1)}")
    return value


def decode(value: int, form: str = WGMMA) -> Descriptor:
    """The fields of a 64-bit descriptor; nothing is refused, `remarks` says what is wrong."""
    low, width = _SWIZZLE_AT[form]
    return Descriptor(
        value=value,
        form=form,
        start=_bits(value, 0, 14) * _UNIT,
        leading=_bits(value, 16, 14) * _UNIT,
        stride=_bits(value, 32, 14) * _UNIT,
        base_offset=_bits(value, 49, 3),
        swizzle=SWIZZLES[form].get(_bits(value, low, width)),
        absolute=form == TCGEN05 and _bits(value, 52, 1) == 1,
    )


def encode(start: int, leading: int, stride: int, swizzle: str, base_offset: int = 0, form: str = WGMMA) -> int:
    """The descriptor of these fields (bytes); the inverse of `decode`. Raises for what no descriptor can hold."""
    for name, amount in (("--address", start), ("--leading", leading), ("--stride", stride)):
        if amount % _UNIT:
            raise DiagnoseError(
                f"{name} {amount} is no multiple of 16 bytes: the low four bits are not stored",
                f"{name} {amount // _UNIT * _UNIT}    (or {amount // _UNIT * _UNIT + _UNIT})",
            )
        if not 0 <= amount <= _MOST:
            raise DiagnoseError(
                f"{name} {amount} does not fit 14 bits of 16-byte units", f"{name} 0 to {_MOST} ({hex(_MOST)})"
            )
    if not 0 <= base_offset <= 7:
        raise DiagnoseError(f"--base-offset {base_offset} does not fit 3 bits", "--base-offset 0    (0 to 7)")
    codes = {mode.name: code for code, mode in SWIZZLES[form].items()}
    if swizzle not in codes:
        raise DiagnoseError(
            f"--swizzle {swizzle} is no mode of {form}: {', '.join(codes)}", f"--swizzle {next(reversed(codes))}"
        )
    value = start // _UNIT | leading // _UNIT << 16 | stride // _UNIT << 32 | base_offset << 49
    for low, _, fixed in _FIXED[form]:
        value |= fixed << low
    return value | codes[swizzle] << _SWIZZLE_AT[form][0]


# --- what is wrong ---


def remarks(d: Descriptor, major: str = "k") -> tuple[Remark, ...]:
    """What is illegal, suspicious or worth knowing. `major`: k or mn, which the descriptor does not hold (it stands in
    the instruction)."""
    found = [*_fixed_bits(d), *_place(d)]
    if d.swizzle is not None:
        found += _pattern(d, d.swizzle)
        if d.swizzle.swizzled:
            found += _swizzled_k(d, d.swizzle) if major == "k" else _swizzled_mn(d, d.swizzle)
        else:
            found += _unswizzled(d, major)
    order = (ILLEGAL, SUSPICIOUS, NOTE)
    return tuple(sorted(found, key=lambda remark: order.index(remark.level)))


def _fixed_bits(d: Descriptor) -> list[Remark]:
    found = []
    for low, width, wanted in _FIXED[d.form]:
        seen = _bits(d.value, low, width)
        if seen == wanted:
            continue
        text = f"bits {low} to {low + width - 1} are {seen:0{width}b} and must be {wanted:0{width}b}"
        if low == 46:
            text += (
                ": 001 there is the mark of a tcgen05 descriptor (--tcgen05)"
                if d.form == WGMMA and seen == 1
                else ": 000 there is what a descriptor of wgmma has"
                if d.form == TCGEN05 and seen == 0
                else ""
            )
        found.append(Remark(ILLEGAL, "reserved", text, _FORMAT[d.form]))
    if d.swizzle is None:
        low, width = _SWIZZLE_AT[d.form]
        code = _bits(d.value, low, width)
        found.append(Remark(ILLEGAL, "swizzle", f"swizzle code {code} has no meaning", _FORMAT[d.form]))
    return found


def _place(d: Descriptor) -> list[Remark]:
    arch = catalogue.architecture(_SM[d.form])
    first = d.swizzle.repeat if d.swizzle is not None else _CORE
    found = []
    if arch.shared_per_sm is not None and d.start + first > arch.shared_per_sm:
        text = (
            f"eight rows from {d.start:,} on end at {d.start + first:,}; an SM of sm_{arch.sm} has "
            f"{arch.shared_per_sm:,} bytes (a generic address? cvta.to.shared makes it one of shared memory)"
        )
        found.append(Remark(ILLEGAL, "start", text, f"{_FORMAT[d.form]}; capacity: CUDA Programming Guide"))
    if d.absolute:
        text = "bit 52: the leading field is the address of the second part of a K of 48 bytes; sm_103a only"
        found.append(Remark(NOTE, "leading", text, "PTX ISA 9.7.16.3.1.2, absolute address mode"))
    return found


def _pattern(d: Descriptor, mode: Swizzle) -> list[Remark]:
    """Start and base offset against the repeating pattern."""
    source = _FORMAT[d.form]
    if not mode.swizzled:
        if d.base_offset:
            text = f"base offset {d.base_offset} without swizzle: it is valid only with one"
            return [Remark(ILLEGAL, "base_offset", text, source)]
        return []
    inside, row = d.start % mode.repeat, d.start % mode.repeat // mode.row
    wanted = d.start >> 7 & 7
    if d.base_offset:
        if not inside:
            text = (
                f"base offset {d.base_offset}, though the start {d.start:#x} is a multiple of {mode.repeat:,}: where "
                "the pattern starts at a boundary it must be 0"
            )
            return [Remark(SUSPICIOUS, "base_offset", text, source)]
        if d.base_offset != wanted:
            text = (
                f"base offset {d.base_offset}, but (start >> 7) & 7 is {wanted}: right only if the pattern starts "
                "elsewhere than the matrix"
            )
            return [Remark(SUSPICIOUS, "base_offset", text, source)]
        text = f"base offset {d.base_offset}: the pattern starts {inside:,} bytes after a boundary of {mode.repeat:,}"
        return [Remark(NOTE, "base_offset", text, source)]
    found = []
    if row:
        needs = f"a pattern that starts there needs base offset (start >> 7) & 7 = {wanted}; " if wanted else ""
        text = (
            f"the start {d.start:#x} lies {inside:,} bytes behind a boundary of {mode.repeat:,}, in row {row} of its "
            f"pattern: {needs}0 is right only for rows of a pattern that starts at the boundary"
        )
        found.append(Remark(SUSPICIOUS, "base_offset", text, source))
    elif inside and inside % _K_BYTES == 0:
        text = (
            f"the start lies {inside} bytes inside the first row: slice {inside // _K_BYTES} along K "
            f"({_K_BYTES} bytes a product); the base offset stays 0"
        )
        found.append(Remark(NOTE, "start", text, source))
    if d.start % mode.row % _K_BYTES:
        text = f"the start is no multiple of {_K_BYTES} bytes in its row, which is K of one product"
        found.append(Remark(SUSPICIOUS, "start", text, _LAYOUT[d.form]))
    return found


def _swizzled_k(d: Descriptor, mode: Swizzle) -> list[Remark]:
    found = []
    source = _STRIDES[d.form]
    if d.stride == 0:
        text = "stride 0: every group of eight rows is the first one; right only for an operand of eight rows"
        found.append(Remark(SUSPICIOUS, "stride", text, source))
    elif d.stride < mode.repeat:
        text = f"stride {d.stride}: groups of eight rows of {mode.row} bytes ({mode.repeat:,}) overlap"
        found.append(Remark(SUSPICIOUS, "stride", text, source))
    elif d.stride % mode.repeat:
        text = (
            f"stride {d.stride:,} is no multiple of {mode.repeat:,}: the pattern of the next eight rows would start "
            "within a repeat"
        )
        found.append(Remark(SUSPICIOUS, "stride", text, source))
    if not d.absolute and d.leading not in (0, _UNIT):
        text = f"leading {d.leading:,} is not used: K-major and swizzled, it is taken as one unit of 16 bytes"
        found.append(Remark(NOTE, "leading", text, source))
    return found


def _swizzled_mn(d: Descriptor, mode: Swizzle) -> list[Remark]:
    """M- or N-major: an atom is `row` bytes along M or N and eight along K."""
    found = []
    source = _STRIDES[d.form]
    wide = mode.row // _UNIT
    for field, amount, what in (
        ("leading", d.leading, f"from {wide} units of 16 bytes along M or N to the next {wide}"),
        ("stride", d.stride, "from eight of K to the next eight"),
    ):
        if amount == 0:
            text = f"{field} 0 ({what}): right only where the operand ends there"
            found.append(Remark(SUSPICIOUS, field, text, source))
        elif amount % mode.repeat:
            text = f"{field} {amount:,} ({what}) is no multiple of the atom's {mode.repeat:,} bytes"
            found.append(Remark(SUSPICIOUS, field, text, source))
    if d.form == WGMMA:
        text = "M- or N-major operands (imm-trans 1) exist for 16-bit types only"
        found.append(Remark(NOTE, "major", text, "PTX ISA 9.7.15.5, wgmma.mma_async"))
    return found


def _unswizzled(d: Descriptor, major: str) -> list[Remark]:
    found = []
    names = (
        ("leading", d.leading, "along K"),
        ("stride", d.stride, "along the rows" if major == "k" else "along M or N"),
    )
    for field, amount, what in names:
        if amount == 0:
            text = f"{field} 0: the next core matrix {what} is the first one again"
            found.append(Remark(SUSPICIOUS, field, text, _STRIDES[d.form]))
        elif amount < _CORE:
            text = f"{field} {amount}: core matrices of 8 x 16 bytes ({_CORE}) {what} overlap"
            found.append(Remark(SUSPICIOUS, field, text, _STRIDES[d.form]))
    if d.leading == d.stride and d.leading:
        text = f"leading and stride are both {d.leading}: neighbours along K and along the rows are the same bytes"
        found.append(Remark(SUSPICIOUS, "stride", text, _STRIDES[d.form]))
    return found


def layout(d: Descriptor, major: str = "k") -> str:
    """In a sentence, what the fields say of the matrix."""
    mode = d.swizzle
    if mode is None:
        return "no layout: the swizzle code has no meaning"
    if not mode.swizzled:
        along = "along the rows" if major == "k" else "along M or N"
        return f"core matrices of 8 x 16 bytes, the next along K {d.leading:,} bytes on, {along} {d.stride:,} bytes on"
    atoms = " in atoms of 32 bytes" if mode is _128_32 else ""
    if major == "k":
        return (
            f"rows of {mode.row} bytes of K, swizzled{atoms} in patterns of eight rows ({mode.repeat:,} bytes); the "
            f"next eight rows {d.stride:,} bytes on"
        )
    return (
        f"{mode.row} bytes along M or N by eight of K, swizzled{atoms} ({mode.repeat:,} bytes); the next along M or N "
        f"{d.leading:,} bytes on, along K {d.stride:,} bytes on"
    )


def _rows(d: Descriptor) -> list[tuple[str, str, int, str]]:
    """Field, bits, raw value and meaning."""
    low, width = _SWIZZLE_AT[d.form]
    rows = [
        ("start", "0-13", _bits(d.value, 0, 14), f"{d.start:#x} ({d.start:,} bytes)"),
        ("leading", "16-29", _bits(d.value, 16, 14), f"{d.leading:,} bytes" + (" (an address)" if d.absolute else "")),
        ("stride", "32-45", _bits(d.value, 32, 14), f"{d.stride:,} bytes"),
    ]
    if d.form == TCGEN05:
        rows.append(("version", "46-48", _bits(d.value, 46, 3), "fixed, 001"))
    rows.append(("base_offset", "49-51", d.base_offset, str(d.base_offset)))
    if d.form == TCGEN05:
        rows.append(("leading_mode", "52", int(d.absolute), "absolute address" if d.absolute else "relative offset"))
    name = d.swizzle.name if d.swizzle is not None else "invalid"
    shown = {"none": "none", "invalid": "invalid", "128-32": "128 bytes in atoms of 32"}.get(name, f"{name} bytes")
    return [*rows, ("swizzle", f"{low}-{low + width - 1}", _bits(d.value, low, width), shown)]


# --- instruction descriptors of tcgen05 ---


@dataclass(frozen=True)
class _Kind:
    """What the fields of an instruction descriptor mean under one `.kind`."""

    results: Mapping[int, str]
    operands: Mapping[int, str]
    negates: bool = True
    saturates: bool = False


KINDS: Mapping[str, _Kind] = {
    "f16": _Kind({0: "f16", 1: "f32"}, {0: "f16", 1: "bf16"}),
    "tf32": _Kind({1: "f32"}, {2: "tf32"}),
    "f8f6f4": _Kind({0: "f16", 1: "f32"}, {0: "e4m3", 1: "e5m2", 3: "e2m3", 4: "e3m2", 5: "e2m1"}),
    "i8": _Kind({2: "s32"}, {0: "u8", 1: "s8"}, negates=False, saturates=True),
}
_ROWS_OF_M = (32, 64, 128, 256)  # 32: .ws only; 256: two blocks (PTX ISA 9.7.16.2.1, shapes)


def _instruction_rows(value: int, kind: str) -> list[tuple[str, str, int, str]]:
    of = KINDS[kind]

    def one(name: str, low: int, width: int, meaning: str) -> tuple[str, str, int, str]:
        return name, f"{low}-{low + width - 1}" if width > 1 else str(low), _bits(value, low, width), meaning

    def named(names: Mapping[int, str], low: int, width: int) -> str:
        return names.get(_bits(value, low, width), "invalid")

    def flag(low: int) -> str:
        return "yes" if _bits(value, low, 1) else "no"

    return [
        one("sparsity_selector", 0, 2, str(_bits(value, 0, 2))),
        one("sparse", 2, 1, flag(2)),
        one("saturate", 3, 1, flag(3)),
        one("d_type", 4, 2, named(of.results, 4, 2)),
        one("a_type", 7, 3, named(of.operands, 7, 3)),
        one("b_type", 10, 3, named(of.operands, 10, 3)),
        one("negate_a", 13, 1, flag(13)),
        one("negate_b", 14, 1, flag(14)),
        one("a_major", 15, 1, "mn" if _bits(value, 15, 1) else "k"),
        one("b_major", 16, 1, "mn" if _bits(value, 16, 1) else "k"),
        one("n", 17, 6, str(_bits(value, 17, 6) << 3)),
        one("m", 24, 5, str(_bits(value, 24, 5) << 4)),
        one("max_shift", 30, 2, ("none", "8", "16", "32")[_bits(value, 30, 2)]),
    ]


def instruction_remarks(value: int, kind: str) -> tuple[Remark, ...]:
    """What is illegal or suspicious in an instruction descriptor of `kind` (without block scaling)."""
    of, source = KINDS[kind], _FORMAT[INSTRUCTION]
    fields = {name: meaning for name, _, _, meaning in _instruction_rows(value, kind)}
    found = [
        Remark(ILLEGAL, "reserved", f"bit {bit} is set and must be 0", source)
        for bit in (6, 23, 29)
        if _bits(value, bit, 1)
    ]
    found += [
        Remark(ILLEGAL, name, f"{name} code {_bits(value, low, width)} has no meaning under kind::{kind}", source)
        for name, low, width in (("d_type", 4, 2), ("a_type", 7, 3), ("b_type", 10, 3))
        if fields[name] == "invalid"
    ]
    if fields["saturate"] == "yes" and not of.saturates:
        found.append(Remark(ILLEGAL, "saturate", "saturation exists under kind::i8 only", source))
    if "yes" in (fields["negate_a"], fields["negate_b"]) and not of.negates:
        found.append(Remark(ILLEGAL, "negate", f"kind::{kind} cannot negate an operand", source))
    m, n = int(fields["m"]), int(fields["n"])
    shapes = "PTX ISA 9.7.16.2.1, shapes"
    if m not in _ROWS_OF_M:
        found.append(Remark(ILLEGAL, "m", f"M = {m}; it is one of {', '.join(map(str, _ROWS_OF_M))}", shapes))
    if not 8 <= n <= 256:
        found.append(Remark(ILLEGAL, "n", f"N = {n}; it is 8 to 256", shapes))
    elif m >= 128 and n % 16:
        text = f"N = {n} with M = {m}: CUTLASS asks for multiples of 16 there, and two blocks together need them"
        found.append(Remark(SUSPICIOUS, "n", text, shapes))
    if fields["max_shift"] != "none" and m == 256:
        found.append(Remark(ILLEGAL, "max_shift", "a shift exists with .ws only, which has M of 32, 64 or 128", source))
    for side in ("a", "b"):
        if fields[f"{side}_major"] == "mn" and fields[f"{side}_type"] in ("e2m3", "e3m2", "e2m1"):
            text = f"{fields[f'{side}_type']} can only be K-major"
            found.append(Remark(ILLEGAL, f"{side}_major", text, source))
    if fields["sparse"] == "no" and fields["sparsity_selector"] != "0":
        found.append(Remark(NOTE, "sparsity_selector", "not used: the product is dense", source))
    return tuple(found)


# --- output ---


def _document(
    form: str, value: int, width: int, rows: Sequence[tuple[str, str, int, str]], found: Sequence[Remark]
) -> dict[str, Any]:
    return {
        "schema_version": "1",
        "tool": {"name": "diagnose", "version": __version__},
        "form": form,
        "value": f"0x{value:0{width}x}",
        "legal": all(remark.level != ILLEGAL for remark in found),
        "bits": [{"field": name, "bits": bits, "raw": raw, "meaning": meaning} for name, bits, raw, meaning in rows],
        "remarks": [{"level": one.level, "field": one.field, "text": one.text, "source": one.source} for one in found],
        "articles": list(ARTICLES),
    }


def document(d: Descriptor, major: str = "k") -> dict[str, Any]:
    """Everything about a matrix descriptor, as JSON data; addresses and offsets in bytes."""
    return {
        **_document(d.form, d.value, 16, _rows(d), remarks(d, major)),
        "major": major,
        "fields": {
            "start": d.start,
            "leading": d.leading,
            "stride": d.stride,
            "base_offset": d.base_offset,
            "swizzle": d.swizzle.name if d.swizzle is not None else None,
        },
        "layout": layout(d, major),
    }


def instruction_document(value: int, kind: str) -> dict[str, Any]:
    """Everything about an instruction descriptor of tcgen05, as JSON data."""
    rows = _instruction_rows(value, kind)
    return {
        **_document(INSTRUCTION, value, 8, rows, instruction_remarks(value, kind)),
        "kind": kind,
        "fields": {name: meaning for name, _, _, meaning in rows},
    }


@dataclass(frozen=True)
class Fields:
    """The fields of a descriptor as words of the command line; None for one that was not given."""

    address: str | None
    leading: str | None
    stride: str | None
    swizzle: str | None
    base_offset: str


def examine(value: str | None, fields: Fields, tcgen05: bool, kind: str | None, major: str) -> dict[str, Any]:
    """The document of a descriptor that is given as a number, or else by its fields."""
    example = "diagnose descriptor 0x4000004000010040    (or: --address 0x400 --swizzle 128)"
    given = any((fields.address, fields.leading, fields.stride, fields.swizzle))
    if (value is None) == (not given):
        what = (
            "neither a value nor fields were given" if value is None else "a value and fields were given: one of them"
        )
        raise DiagnoseError(what, example)
    if kind is not None:
        if value is None:
            raise DiagnoseError(f"--instruction {kind} needs a value of 32 bits", "--instruction f16 0x8200490")
        return instruction_document(number(value, "the instruction descriptor", 32), kind)
    form = TCGEN05 if tcgen05 else WGMMA
    if value is not None:
        return document(decode(number(value, "the descriptor"), form), major)
    return document(decode(_from_fields(fields, form), form), major)


def _from_fields(fields: Fields, form: str) -> int:
    if fields.address is None or fields.swizzle is None:
        missing = "--address" if fields.address is None else "--swizzle"
        raise DiagnoseError(f"{missing} was not given", "diagnose descriptor --address 0x400 --swizzle 128")
    row = {mode.name: mode.row for mode in SWIZZLES[form].values()}.get(fields.swizzle, _UNIT)
    if row == _UNIT and fields.swizzle == "none" and None in (fields.leading, fields.stride):
        raise DiagnoseError(
            "without swizzle, --leading and --stride have no usual value",
            "--leading 128 --stride 256    (K of 32 bytes)",
        )
    return encode(
        number(fields.address, "--address"),
        number(fields.leading, "--leading") if fields.leading is not None else _UNIT,
        number(fields.stride, "--stride") if fields.stride is not None else _ROWS * row,
        fields.swizzle,
        number(fields.base_offset, "--base-offset"),
        form,
    )


def text(content: Mapping[str, Any]) -> str:
    """A document of this module for a terminal."""
    form = content["form"]
    head = f"kind::{content['kind']}, tcgen05 instruction descriptor" if form == INSTRUCTION else f"{form} descriptor"
    lines = [f"{content['value']}  {head}"]
    width = max(len(row["field"]) for row in content["bits"])
    lines += [f"  {r['field']:<{width}}  bits {r['bits']:<6} {r['raw']:>6}  {r['meaning']}" for r in content["bits"]]
    if "layout" in content:
        lines += ["", f"  {'K' if content['major'] == 'k' else 'M- or N'}-major: {content['layout']}"]
    lines.append("")
    for remark in content["remarks"]:
        lines.append(f"  {remark['level']}: {remark['text']}  [{remark['source']}]")
    if not any(remark["level"] in (ILLEGAL, SUSPICIOUS) for remark in content["remarks"]):
        other = "the types and the operands' layout" if form == INSTRUCTION else "the layout that wrote the matrix"
        lines.append(f"  nothing is wrong with it by itself; {other} must fit it")
    return "\n".join(lines) + "\n"
