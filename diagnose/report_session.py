"""What a report file says about its own making: profiler version, command line, host, number of results.

`ncu_report` shows none of this. A report is the magic `NVR\\0`, a length-prefixed file header, and blocks: a
length-prefixed protobuf header (number of sources, number of results, session details, string table, payload size,
process) followed by its payload: the sources, then the results, each length-prefixed. Seen so in files of 2019 to
2025; only the headers and the first fields of the results are read here, in Python, with every length checked, so the
bytes need not be trusted.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

MAGIC = b"NVR\0"
_MAX_HEADER = 64 << 20  # the largest seen is 135 KB: the string table of a full metric set
_MAX_BLOCKS = 1_000_000
_RESULT_HEAD = 1 << 16  # names come first; the longest mangled name seen has 9 kB

# Options of ncu that take no value; every other option is followed by one.
_FLAGS = frozenset({"-f", "--force-overwrite", "--nvtx", "--call-stack", "--csv", "--verbose", "--quiet"})
_FLAGS |= {"--open-in-ui", "--null-stdin", "--support-32bit", "--details-all", "--disable-profiler-start-stop"}
_FLAGS |= {"--query-metrics", "--list-sets", "--list-sections", "--list-rules", "--list-metrics", "--list-chips"}
_FLAGS |= {"-h", "--help", "-v", "--version"}


@dataclass(frozen=True)
class Session:
    """The session data of one report. `results` counts results announced by block headers that were reached.

    `launched` has the process and the kernel's function name of each result in the order of the file; it is empty where
    a result could not be read.
    """

    ncu_version: str | None = None
    command: str | None = None
    host: str | None = None
    results: int = 0
    complete: bool = True
    size: int = 0
    launched: tuple[tuple[int, str], ...] = ()

    def option(self, name: str, default: str) -> str | None:
        """The value of an option of ncu in the recorded command, or ncu's default; None where that is unknown."""
        if self.command is None:
            return None
        options = _ncu_options(self.command)
        if name in options:
            return options[name]
        return None if "--config-file-path" in options else default

    @property
    def output(self) -> str | None:
        """The file name given to ncu, with its unexpanded `%q{VARIABLE}` parts."""
        if self.command is None:
            return None
        options = _ncu_options(self.command)
        return options.get("-o") or options.get("--export")


def read_session(path: Path) -> Session:
    """The session data in the block headers of a decompressed report."""
    size = path.stat().st_size
    version = command = host = None
    results = 0
    launched: list[tuple[int, str]] = []
    with path.open("rb") as file:
        walk = _Blocks(file, size)
        for header in walk:
            launched += _launched(file, header, size)
            for number, value in header:
                if number == 2 and isinstance(value, int):
                    results += value
                elif number == 3 and isinstance(value, bytes):
                    details = dict(_versions(value))
                    version = details.get("Nsight Compute Target", version)
                    command = details.get("command", command)
                    host = host or details.get("host")
    match = re.match(r"\d+(\.\d+)+", version) if version else None
    known = tuple(launched) if len(launched) == results else ()
    return Session(match.group() if match else version, command, host, results, walk.complete, size, known)


def _launched(file: BinaryIO, header: list[tuple[int, int | bytes]], size: int) -> list[tuple[int, str]]:
    """Process and function name (field 6) of the results in the payload that begins here.

    The process is the block's (field 6 of its header, its field 1); 0 where a file does not say. A result's own field 1
    is the thread that launched: PyTorch launches the kernels of its backward pass in another one.
    """

    def count(field: int) -> int:
        return sum(value for number, value in header if number == field and isinstance(value, int))

    sources, results = count(1), count(2)
    if not results or sources + results > _MAX_BLOCKS:
        return []
    found = []
    process = _process(header)
    for place in range(sources + results):
        prefix = file.read(4)
        end = file.tell() + (struct.unpack("<I", prefix)[0] if len(prefix) == 4 else size)
        if end > size:
            return []
        if place >= sources:
            name = ""
            try:
                for number, value in _fields(file.read(min(_RESULT_HEAD, end - file.tell()))):
                    if number == 6 and isinstance(value, bytes):
                        name = _text(value)
                        break
            except ValueError:  # the head ends within a field
                pass
            found.append((process, name))
        file.seek(end)
    return found


def _process(header: list[tuple[int, int | bytes]]) -> int:
    """The process whose results a block holds; 0 where its header does not say."""
    told = next((value for number, value in header if number == 6 and isinstance(value, bytes)), b"")
    try:
        process = dict(_fields(told)).get(1)
    except ValueError:
        return 0
    return process if isinstance(process, int) else 0


class _Blocks:
    """Iterates over the fields of block headers; `complete` tells whether the file ended where a block ended."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self.file = file
        self.size = size
        self.complete = False

    def __iter__(self) -> Iterator[list[tuple[int, int | bytes]]]:
        if self.file.read(4) != MAGIC or self._chunk() is None:
            return
        for _ in range(_MAX_BLOCKS):
            if self.file.tell() == self.size:
                self.complete = True
                return
            chunk = self._chunk()
            if chunk is None:
                return
            try:
                header = list(_fields(chunk))
            except ValueError:
                return
            start = self.file.tell()
            yield header
            payload = next((v for n, v in header if n == 5 and isinstance(v, int)), 0)
            if start + payload > self.size:
                return
            self.file.seek(start + payload)

    def _chunk(self) -> bytes | None:
        prefix = self.file.read(4)
        if len(prefix) < 4:
            return None
        (length,) = struct.unpack("<I", prefix)
        if length > _MAX_HEADER:
            return None
        data = self.file.read(length)
        return data if len(data) == length else None


def _versions(details: bytes) -> Iterator[tuple[str, str]]:
    """Named texts in the session details: field 8 is (name, value), 11 the command line, 3 and 4 the system."""
    try:
        for number, value in _fields(details):
            if not isinstance(value, bytes):
                continue
            if number == 8:
                entry = dict(_fields(value))
                name, text = entry.get(1), entry.get(2)
                if isinstance(name, bytes) and isinstance(text, bytes):
                    yield _text(name), _text(text)
            elif number == 11 and value.strip():
                yield "command", _text(value)
            elif number in (3, 4):
                host = dict(_fields(value)).get(5)
                if isinstance(host, bytes) and _text(host):
                    yield "host", _text(host)
    except ValueError:
        return


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace").strip("\0 \t\r\n")


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a protobuf message: number and value (integers, or bytes). ValueError where it is none."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield number, value
            continue
        if kind == 2:
            length, at = _varint(data, at)
        elif kind in (1, 5):
            length = 8 if kind == 1 else 4
        else:
            raise ValueError(f"wire type {kind}")
        if at + length > len(data):
            raise ValueError("length beyond the message")
        yield number, data[at : at + length]
        at += length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    result = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise ValueError("varint beyond the message")
        byte = data[at]
        at += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, at
    raise ValueError("varint too long")


def _ncu_options(command: str) -> dict[str, str]:
    """Options of ncu itself; what follows the first word that is no option belongs to the target.

    The command is recorded with single spaces and without quotes, so a value with spaces ends the list early.
    """
    match = re.match(r'\s*(?:"[^"]*"|\S+)', command)
    words = command[match.end() :].split() if match else []
    options: dict[str, str] = {}
    at = 0
    while at < len(words) and words[at].startswith("-"):
        name, equals, value = words[at].partition("=")
        at += 1
        if equals:
            options[name] = value
        elif name in _FLAGS:
            options[name] = ""
        elif at < len(words):
            options[name] = words[at]
            at += 1
    return options
