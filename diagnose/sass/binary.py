"""Finds the GPU code in a file: cubins and PTX of an executable, library, object, archive, fatbin or cubin.

A fatbin is a header (magic, version, size) and entries (kind, architecture, flags, size); entries are stored plain,
with zstd or with LZ4. Host files are scanned for fatbin headers, so that a stripped section table, an archive or a
nested library makes no difference. Everything read is untrusted.
"""

from __future__ import annotations

import mmap
import re
import stat
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from diagnose.errors import EXIT_NOTHING_MEASURED, EXIT_USAGE, DiagnoseError
from diagnose.sass import elf

FATBIN = b"\x50\xed\x55\xba"
_KINDS = {1: "ptx", 2: "cubin", 8: "lto", 16: "merc", 32: "tile"}
_LETTER_A, _LETTER_F = 0x100000, 0x200000
_LZ4, _ZSTD = 0x2000, 0x8000
MAX_IMAGE = 2 << 30  # bytes of one unpacked image; the largest seen in vendor libraries is under 0.5 GB
_GIVE_FILE = "give an executable, a .so, a .o, a .cubin or a .fatbin: diagnose static FILE"


@dataclass(frozen=True)
class Image:
    """One entry of the GPU code in a file. `offset` and `stored` are where its bytes lie, `size` its unpacked size.

    `kind` is cubin, ptx, lto (link-time intermediate code) or other; `arch` is `sm_90a`, for PTX `compute_90a`.
    """

    kind: str
    arch: str
    offset: int
    stored: int
    size: int
    packing: str


@dataclass(frozen=True)
class Binary:
    """The GPU code of a file. `host` says that the file is a host program or library, not a bare cubin or fatbin."""

    path: Path
    images: tuple[Image, ...]
    host: bool

    @property
    def cubins(self) -> tuple[Image, ...]:
        """The images that hold SASS."""
        return tuple(image for image in self.images if image.kind == "cubin")


def _unreadable(path: Path, why: str, hint: str = _GIVE_FILE) -> DiagnoseError:
    return DiagnoseError(f"{path}: {why}", hint, EXIT_USAGE)


def open_binary(path: Path) -> Binary:
    """Lists the GPU code in the file. Raises when it cannot be read, is no binary, or holds no GPU code at all."""
    try:
        info = path.stat()
        if stat.S_ISDIR(info.st_mode):
            raise _unreadable(path, "is a folder, not a binary")
        if not stat.S_ISREG(info.st_mode):
            raise _unreadable(path, "is not a regular file")
        if info.st_size == 0:
            raise _unreadable(path, "is empty", "build it again: nothing was written to it")
        with (
            path.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
            memoryview(data) as view,
        ):
            return _scan(path, data, view)
    except OSError as error:
        raise _unreadable(path, f"cannot be read: {error.strerror}", f"ls -l {path}") from None


def _scan(path: Path, data: mmap.mmap, view: memoryview) -> Binary:
    head = bytes(view[:8])
    if head[:4] == b"\x7fELF":
        try:
            if elf.machine(view) == elf.EM_CUDA:
                return Binary(path, (_bare_cubin(view),), host=False)
        except elf.ElfError as error:
            raise _unreadable(path, f"is a damaged binary: {error}", "copy or build the file again") from None
    images = tuple(_fatbins(data, view))
    if images:
        return Binary(path, images, host=head[:4] != FATBIN)
    raise _nothing(path, view, head)


def _nothing(path: Path, view: memoryview, head: bytes) -> DiagnoseError:
    """The error for a file without GPU code, by what it looks like."""
    if head[:4] == FATBIN:
        return _unreadable(path, "is a damaged fatbin: no entry in it can be read", "copy or build the file again")
    if head[:4] == b"\x7fELF" or head[:7] == b"!<arch>":
        what = "archive" if head[:7] == b"!<arch>" else "program or library"
        return DiagnoseError(
            f"{path} is a host {what} without GPU code",
            "name the file that holds the kernels; for a Python package that is a .so inside it: find . -name '*.so'",
            EXIT_NOTHING_MEASURED,
        )
    if head[:4] == b"PK\x03\x04":
        return _unreadable(path, "is a zip archive or a wheel", f"unpack it and name a .so in it: unzip {path.name}")
    start = bytes(view[:4096])
    if re.search(rb"^\s*\.version\s+\d", start, re.MULTILINE):
        return _unreadable(
            path, "is PTX text, which has no SASS yet", f"ptxas -arch=sm_90a {path.name} -o out.cubin, then out.cubin"
        )
    return _unreadable(path, f"is not a binary with GPU code (it begins with {head!r})")


def _bare_cubin(view: memoryview) -> Image:
    sm, letter = elf.sm_version(view)
    elf.length(view)
    return Image("cubin", f"sm_{sm}{letter}", 0, len(view), len(view), "none")


def _fatbins(data: mmap.mmap, view: memoryview) -> Iterator[Image]:
    at = data.find(FATBIN)
    while at >= 0:
        found = list(_fatbin(view, at))
        yield from found
        after = max((image.offset + image.stored for image in found), default=at + 4)
        at = data.find(FATBIN, after)


def _fatbin(view: memoryview, start: int) -> Iterator[Image]:
    """Entries of the fatbin at `start`; nothing where the bytes only look like one."""
    try:
        _, version, header, size = struct.unpack_from("<IHHQ", view, start)
    except struct.error:
        return
    if version != 1 or header < 16 or header > 64:
        return
    end = min(start + header + size, len(view))
    at = start + header
    while at + 64 <= end:
        kind, _, header, size, packed = struct.unpack_from("<HHIQI", view, at)
        sm, flags, unpacked = (
            struct.unpack_from("<I", view, at + 28)[0],
            *struct.unpack_from("<QQQ", view, at + 40)[::2],
        )
        if header < 64 or header > 65536 or at + header + size > len(view) or kind not in _KINDS or sm > 10_000:
            return
        packing = "zstd" if flags & _ZSTD else "lz4" if flags & _LZ4 else "none"
        letter = "a" if flags & _LETTER_A else "f" if flags & _LETTER_F else ""
        name = _KINDS[kind]
        yield Image(
            name,
            f"{'compute' if name in ('ptx', 'lto') else 'sm'}_{sm}{letter}",
            at + header,
            packed if packing != "none" and 0 < packed <= size else size,
            unpacked if packing != "none" else size,
            packing,
        )
        at += header + size


def read_image(path: Path, image: Image) -> bytes:
    """The unpacked bytes of an image. Raises DiagnoseError when they are damaged."""
    hint = "copy or build the file again"
    if image.size > MAX_IMAGE:
        raise _unreadable(path, f"claims an image of {image.size:,} bytes at {image.offset:#x}", hint)
    try:
        with path.open("rb") as file:
            file.seek(image.offset)
            stored = file.read(image.stored)
    except OSError as error:
        raise _unreadable(path, f"cannot be read: {error.strerror}", f"ls -l {path}") from None
    if len(stored) < image.stored:
        raise _unreadable(path, f"ends inside the code for {image.arch}", hint)
    try:
        if image.packing == "zstd":
            return _zstd(stored, image.size)
        if image.packing == "lz4":
            return lz4_block(stored, image.size)
    except ValueError as error:
        raise _unreadable(path, f"holds damaged code for {image.arch} at {image.offset:#x}: {error}", hint) from None
    return stored


def _zstd(stored: bytes, size: int) -> bytes:
    import zstandard

    try:
        with zstandard.ZstdDecompressor(max_window_size=1 << 31).stream_reader(stored) as reader:
            found = reader.read(size)
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from None
    if len(found) != size:
        raise ValueError(f"{len(found):,} of {size:,} bytes unpacked")
    return found


def lz4_block(stored: bytes, size: int) -> bytes:
    """Unpacks one LZ4 block of known unpacked size."""
    out = bytearray()
    at, end = 0, len(stored)
    try:
        while at < end:
            token = stored[at]
            at += 1
            count = token >> 4
            if count == 15:
                while True:
                    more = stored[at]
                    at += 1
                    count += more
                    if more != 255:
                        break
            if count:
                out += stored[at : at + count]
                at += count
            if at >= end or len(out) >= size:
                break
            distance = stored[at] | stored[at + 1] << 8
            at += 2
            count = token & 15
            if count == 15:
                while True:
                    more = stored[at]
                    at += 1
                    count += more
                    if more != 255:
                        break
            count += 4
            start = len(out) - distance
            if distance == 0 or start < 0 or len(out) + count > size:
                raise ValueError("a copy reaches outside the block")
            if distance >= count:
                out += out[start : start + count]
            else:
                piece = bytes(out[start:])
                out += (piece * (count // distance + 1))[:count]
    except IndexError:
        raise ValueError("the block ends in the middle") from None
    if len(out) != size:
        raise ValueError(f"{len(out):,} of {size:,} bytes unpacked")
    return bytes(out)
