"""Reads what the few needed parts of an ELF file say: sections, symbols, and the resources of each kernel of a cubin.

Files are untrusted: every offset is checked, every count bounded, and what does not fit raises ElfError.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

EM_CUDA = 190
_MAX_SECTIONS = 1_000_000
_MAX_SYMBOLS = 5_000_000
_KERNEL = 0x10  # STO_CUDA_ENTRY in a symbol's st_other
_RESERVED_SHARED = 1024  # what the system keeps of a block's shared memory from sm_90 on; counted in .nv.shared.NAME

# EIATTR codes of .nv.info: (format, code) -> as nvdisasm names them.
_REGCOUNT, _FRAME_SIZE, _MIN_STACK, _MAX_STACK = 0x2F, 0x11, 0x12, 0x23
_MAX_THREADS, _REQUIRED_THREADS, _BARRIERS, _CLUSTER, _EXPLICIT_CLUSTER = 0x05, 0x10, 0x4C, 0x3D, 0x3E


class ElfError(ValueError):
    """Bytes that are no usable ELF file; the message says what is wrong."""


@dataclass(frozen=True)
class Section:
    """One entry of the section table."""

    index: int
    name: str
    kind: int
    flags: int
    offset: int
    size: int
    link: int
    info: int


@dataclass(frozen=True)
class KernelResources:
    """What a cubin says of one kernel. None where it says nothing.

    `shared_bytes` is static shared memory without the part that the system reserves; `cluster` is a fixed cluster
    shape; `max_threads` comes from launch bounds, `required_threads` from a fixed block size; `abi` is the version of
    the cubin's format.
    """

    name: str
    symbol: int
    code_bytes: int
    registers: int | None = None
    shared_bytes: int = 0
    stack_bytes: int | None = None
    barriers: int | None = None
    max_threads: int | None = None
    required_threads: int | None = None
    cluster: tuple[int, int, int] | None = None
    clusters: bool = False
    abi: int = 0


@dataclass(frozen=True)
class Cubin:
    """The tables of one cubin. `sm` is its architecture number (90); the letter is not always in the header."""

    sm: int
    feature: str
    kernels: tuple[KernelResources, ...]
    functions: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class _Image:
    data: memoryview
    machine: int
    flags: int
    abi: int
    sections: tuple[Section, ...]


def _unpack(form: str, data: memoryview, offset: int) -> tuple[int, ...]:
    try:
        return struct.unpack_from(form, data, offset)
    except struct.error:
        raise ElfError("a table reaches beyond the end of the file") from None


def _name(table: memoryview, offset: int) -> str:
    if offset >= len(table):
        return ""
    end = bytes(table[offset : offset + 65536]).find(b"\0")
    return bytes(table[offset : offset + (end if end >= 0 else 65536)]).decode("utf-8", "replace")


def _read(data: memoryview) -> _Image:
    if len(data) < 64 or bytes(data[:4]) != b"\x7fELF":
        raise ElfError("it does not begin like an ELF file")
    if data[4] != 2 or data[5] != 1:
        raise ElfError("it is not a 64-bit little-endian ELF file")
    machine = _unpack("<H", data, 18)[0]
    at, flags = _unpack("<Q", data, 40)[0], _unpack("<I", data, 48)[0]
    entry, count, names_at = _unpack("<HHH", data, 58)
    if at == 0:
        return _Image(data, machine, flags, data[8], ())
    if entry != 64:
        raise ElfError(f"its section headers have {entry} bytes, not 64")
    first = _unpack("<IIQQQQIIQQ", data, at)
    if count == 0:
        count = first[5]
    if names_at == 0xFFFF:
        names_at = first[6]
    if count > _MAX_SECTIONS or at + count * 64 > len(data):
        raise ElfError("its section table reaches beyond the end of the file")
    raw = list(struct.iter_unpack("<IIQQQQIIQQ", data[at : at + count * 64]))
    if names_at >= count:
        raise ElfError("its section names are missing")
    strings = data[raw[names_at][4] : raw[names_at][4] + raw[names_at][5]]
    return _Image(
        data,
        machine,
        flags,
        data[8],
        tuple(Section(i, _name(strings, r[0]), r[1], r[2], r[4], r[5], r[6], r[7]) for i, r in enumerate(raw)),
    )


def machine(data: memoryview) -> int:
    """The ELF machine number (EM_CUDA for a cubin)."""
    if len(data) < 64 or bytes(data[:4]) != b"\x7fELF":
        raise ElfError("it does not begin like an ELF file")
    return _unpack("<H", data, 18)[0]


def length(data: memoryview) -> int:
    """Bytes of an ELF file inside `data`: to the end of its last section, section or program header."""
    image = _read(data)
    end = _unpack("<Q", data, 40)[0] + len(image.sections) * 64
    programs, size, count = _unpack("<Q", data, 32)[0], *_unpack("<HH", data, 54)
    end = max(end, programs + size * count, 64)
    for section in image.sections:
        if section.kind not in (0, 8):  # SHT_NULL, SHT_NOBITS take no room
            end = max(end, section.offset + section.size)
    if end > len(data):
        raise ElfError(f"it ends after {len(data):,} of {end:,} bytes")
    return end


def sm_version(data: memoryview) -> tuple[int, str]:
    """Architecture number and letter ('' where the header has none) of a cubin, from its e_flags.

    ABI version 7 (CUDA 12 up to sm_90) keeps the number in the low byte and marks the letter with 0x800; version 8
    (CUDA 13, and sm_100 on) keeps it in the second byte and ptxas 12 marked the letter with 0x8.
    """
    flags = _unpack("<I", data, 48)[0]
    if data[8] >= 8:
        return (flags >> 8) & 0xFF, "a" if flags & 0x8 else ""
    return flags & 0xFF, "a" if flags & 0x800 else ""


def _content(image: _Image, section: Section) -> memoryview:
    if section.kind == 8:
        return memoryview(b"")
    if section.offset + section.size > len(image.data):
        raise ElfError(f"section {section.name[:80]!r} reaches beyond the end of the file")
    return image.data[section.offset : section.offset + section.size]


def sections(data: memoryview) -> tuple[Section, ...]:
    """The section table of any ELF file; empty when it was stripped away."""
    return _read(data).sections


def _attributes(content: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Records of .nv.info: format byte, code byte, then a 16-bit value or the size of what follows."""
    at = 0
    while at + 4 <= len(content):
        form, code, value = content[at], content[at + 1], int.from_bytes(content[at + 2 : at + 4], "little")
        at += 4
        if form == 4:
            yield code, content[at : at + value]
            at += value
        else:
            yield code, value & 0xFF if form == 2 else value


def _word(value: int | memoryview, index: int) -> int | None:
    if isinstance(value, int) or len(value) < 4 * index + 4:
        return None
    return int.from_bytes(value[4 * index : 4 * index + 4], "little")


def _symbols(image: _Image) -> list[tuple[str, int, int, int, int]]:
    """(name, info, other, section, size) of every symbol."""
    for section in image.sections:
        if section.kind == 2:
            if section.link >= len(image.sections):
                raise ElfError("its symbols have no names")
            names = _content(image, image.sections[section.link])
            content = _content(image, section)
            if len(content) // 24 > _MAX_SYMBOLS:
                raise ElfError("it has more symbols than any compiler writes")
            usable = content[: len(content) // 24 * 24]
            return [(_name(names, r[0]), r[1], r[2], r[3], r[5]) for r in struct.iter_unpack("<IBBHQQ", usable)]
    return []


def read_cubin(data: memoryview) -> Cubin:
    """Kernels of a cubin with their resources, in the order of its symbols."""
    image = _read(data)
    if image.machine != EM_CUDA:
        raise ElfError(f"it is an ELF file for machine {image.machine}, not for a GPU")
    sm, letter = sm_version(data)
    symbols = _symbols(image)
    by_name = {section.name: section for section in image.sections}
    per_symbol: dict[int, dict[int, int]] = {}
    info = by_name.get(".nv.info")
    if info is not None:
        for code, value in _attributes(_content(image, info)):
            index, number = _word(value, 0), _word(value, 1)
            if code in (_REGCOUNT, _FRAME_SIZE, _MIN_STACK, _MAX_STACK) and index is not None and number is not None:
                per_symbol.setdefault(index, {})[code] = number
    kernels = []
    functions: dict[str, int] = {}
    for index, (name, kind, other, _, size) in enumerate(symbols):
        if kind & 0xF != 2 or not name:  # STT_FUNC
            continue
        functions[name] = index
        text = by_name.get(f".text.{name}")
        if other & _KERNEL and text is not None:
            kernels.append(_kernel(image, by_name, name, index, size, text, per_symbol.get(index, {}), sm))
    return Cubin(sm, letter, tuple(kernels), functions)


def _kernel(
    image: _Image,
    by_name: Mapping[str, Section],
    name: str,
    index: int,
    size: int,
    text: Section,
    values: Mapping[int, int],
    sm: int,
) -> KernelResources:
    # Before .nv.info had it, the register count stood in the upper byte of the code section's sh_info.
    registers = values.get(_REGCOUNT) or (text.info >> 24) or None
    shared_section = by_name.get(f".nv.shared.{name}")
    shared = shared_section.size if shared_section is not None else 0
    if sm >= 90 and shared >= _RESERVED_SHARED:
        shared -= _RESERVED_SHARED
    stack = values.get(_MIN_STACK, values.get(_FRAME_SIZE))
    if stack is not None:
        stack = max(stack, values.get(_FRAME_SIZE, 0))
    barriers = max_threads = required = None
    cluster: tuple[int, int, int] | None = None
    clusters = False
    own = by_name.get(f".nv.info.{name}")
    if own is not None:
        for code, value in _attributes(_content(image, own)):
            x, y, z = _word(value, 0), _word(value, 1), _word(value, 2)
            if code == _BARRIERS and isinstance(value, int):
                barriers = value
            elif code == _EXPLICIT_CLUSTER:
                clusters = True
            elif x is not None and y is not None and z is not None:
                if code == _MAX_THREADS:
                    max_threads = x * y * z
                elif code == _REQUIRED_THREADS:
                    required = x * y * z
                elif code == _CLUSTER:
                    cluster, clusters = (x, y, z), True
    return KernelResources(
        name,
        index,
        size or text.size,
        registers,
        shared,
        stack,
        barriers,
        max_threads,
        required,
        cluster,
        clusters,
        image.abi,
    )
