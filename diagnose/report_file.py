"""Finds report files, tells what they are by their first bytes, and unpacks compressed ones."""

from __future__ import annotations

import gzip
import lzma
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from diagnose.errors import DiagnoseError
from diagnose.report_session import MAGIC

REPORT_SUFFIXES = (".ncu-rep", ".ncu-repz", ".nsight-cuprof-report")
PACKED_SUFFIXES = (".xz", ".zst", ".gz")
_PACKERS = {b"\xfd7zXZ\x00": "xz", b"\x28\xb5\x2f\xfd": "zstd", b"\x1f\x8b": "gzip"}
_FOREIGN = (
    (b"\x7fELF", "an ELF binary", "diagnose static {path}"),
    (b"SQLite format 3\0", "an SQLite database (an export of Nsight Systems?)", "diagnose TARGET"),
    (b"PK\x03\x04", "a zip archive", "unzip {path}"),
    (b"BZh", "bzip2 data", "bunzip2 -k {path}"),
    (b"version https://git-lfs", "a Git LFS pointer and not the file itself", "git lfs pull"),
)

_CHUNK = 1 << 20
_MAX_LAYERS = 2  # a .ncu-repz that was compressed once more
MAX_UNPACKED = 4 << 30
MAX_RATIO = 500  # reports shrink 10 to 24 times under xz
_RATIO_FROM = 256 << 20  # below this much output any ratio is harmless
_XZ_MEMORY = 512 << 20  # xz -9 needs 65 MiB
_ZSTD_WINDOW = 1 << 27  # zstd --long=27, the most that zstd itself reads without being told


@dataclass(frozen=True)
class ReportFile:
    """A report to read: `named` is False for one that was found in a folder."""

    path: Path
    named: bool


@dataclass(frozen=True)
class OpenReport:
    """An uncompressed report on disk; `cut` says why unpacking ended early, if it did."""

    path: Path
    cut: str | None = None


def find_reports(paths: Sequence[Path]) -> list[ReportFile]:
    """The report files meant by `paths`: files as they are, folders as the reports directly in them, by name."""
    if not paths:
        raise DiagnoseError("no report was given", "diagnose REPORT.ncu-rep, or diagnose TARGET to record one")
    found: list[ReportFile] = []
    for path in paths:
        if path.is_dir():
            found += [ReportFile(p, named=False) for p in _in_folder(path)]
        elif path.is_file():
            found.append(ReportFile(path, named=True))
        elif path.exists():
            raise DiagnoseError(f"{path} is neither a file nor a folder", f"ls -ld {path}")
        else:
            raise DiagnoseError(f"{path} does not exist", f"ls {_nearest_folder(path)}")
    return found


def is_report_name(name: str) -> bool:
    """Whether a file name looks like a report, compressed or not."""
    for packed in PACKED_SUFFIXES:
        name = name.removesuffix(packed)
    return name.endswith(REPORT_SUFFIXES)


def _in_folder(folder: Path) -> list[Path]:
    try:
        names = sorted(p.name for p in folder.iterdir() if is_report_name(p.name) and p.is_file())
    except OSError as error:
        raise DiagnoseError(f"{folder} cannot be read: {error.strerror}", f"ls -ld {folder}") from None
    if not names:
        kinds = ", ".join(REPORT_SUFFIXES)
        raise DiagnoseError(
            f"{folder} holds no report ({kinds}, each also with {', '.join(PACKED_SUFFIXES)})", f"ls {folder}"
        )
    present = set(names)
    # The same report beside its compressed copy is one report.
    return [folder / n for n in names if not (n.endswith(PACKED_SUFFIXES) and n.rpartition(".")[0] in present)]


def _nearest_folder(path: Path) -> Path:
    return next((p for p in path.parents if p.is_dir()), Path("."))


@contextmanager
def open_report(
    path: Path, folder: Path | None = None, *, max_unpacked: int = MAX_UNPACKED, max_ratio: int = MAX_RATIO
) -> Iterator[OpenReport]:
    """The report as an uncompressed file for as long as the context lasts; temporary files go under `folder`."""
    head = _head(path)
    if not _packer(head):
        _refuse_foreign(path, path, head)
        with _native_name(path.absolute(), folder) as named:
            yield OpenReport(named)
        return
    with tempfile.TemporaryDirectory(prefix="diagnose-", dir=folder) as name:
        current, cut = path, None
        for layer in range(_MAX_LAYERS):
            packer = _packer(_head(current))
            if not packer:
                break
            target = Path(name, f"layer{layer}.ncu-rep")
            cut = _unpack(path, current, packer, target, max_unpacked, max_ratio) or cut
            if layer:
                current.unlink()
            current = target
        head = _head(current, path)
        _refuse_foreign(path, current, head)
        yield OpenReport(current, cut)


@contextmanager
def _native_name(path: Path, folder: Path | None) -> Iterator[Path]:
    """`path`, or a link to it where its name is no UTF-8, which is all that NVIDIA's module takes."""
    try:
        str(path).encode("utf-8")
    except UnicodeEncodeError:
        with tempfile.TemporaryDirectory(prefix="diagnose-", dir=folder) as name:
            link = Path(name, "report.ncu-rep")
            link.symlink_to(path)
            yield link
    else:
        yield path


def _head(path: Path, shown: Path | None = None) -> bytes:
    shown = shown or path
    try:
        with path.open("rb") as file:
            head = file.read(64)
    except OSError as error:
        raise DiagnoseError(f"{shown} cannot be read: {error.strerror}", f"ls -l {shown}") from None
    if not head:
        raise DiagnoseError(
            f"{shown} is empty (0 bytes)", "profile again: the run that should have written it ended early or failed"
        )
    return head


def _packer(head: bytes) -> str | None:
    return next((name for magic, name in _PACKERS.items() if head.startswith(magic)), None)


def _refuse_foreign(path: Path, content: Path, head: bytes) -> None:
    if head.startswith(MAGIC):
        return
    inside = f" after unpacking ({content.stat().st_size:,} bytes)" if content != path else ""
    if len(head) < len(MAGIC) and MAGIC.startswith(head):
        raise DiagnoseError(
            f"{path} is truncated: it ends after {len(head)} bytes{inside}", "copy it again, or profile again"
        )
    if _packer(head):
        raise DiagnoseError(f"{path} is compressed more than {_MAX_LAYERS} times", f"unpack {path} and try again")
    for magic, what, hint in _FOREIGN:
        if head.startswith(magic):
            raise DiagnoseError(f"{path} is not an Nsight Compute report{inside}: it is {what}", hint.format(path=path))
    raise DiagnoseError(
        f"{path} is not an Nsight Compute report{inside}: it begins with {head[:8]!r} and not with {MAGIC!r}",
        "diagnose TARGET records one, as does: ncu --set full --import-source yes -o NAME TARGET",
    )


def _unpack(shown: Path, source: Path, packer: str, target: Path, max_unpacked: int, max_ratio: int) -> str | None:
    """Unpacks `source`; returns why it ended early when the data is cut or damaged after a usable beginning."""
    packed = source.stat().st_size
    written = 0
    cut: str | None = None
    chunks = {"xz": _xz_chunks, "gzip": _gzip_chunks, "zstd": _zstd_chunks}[packer](source)
    try:
        with target.open("wb") as out:
            while True:
                try:
                    chunk = next(chunks, b"")
                except _Cut as error:
                    cut = f"its {packer} data {error}"
                    break
                if not chunk:
                    break
                written += len(chunk)
                if written > max_unpacked or (written > _RATIO_FROM and written > max_ratio * packed):
                    raise DiagnoseError(
                        f"{shown} unpacks to more than {written:,} bytes from {packed:,}: "
                        f"over the limit of {max_unpacked:,} bytes and {max_ratio} times",
                        "unpack it yourself if you trust it, and give the unpacked file to diagnose",
                    )
                out.write(chunk)
    except OSError as error:
        raise DiagnoseError(
            f"{shown} could not be unpacked to {target.parent.parent}: {error.strerror or error}",
            "set TMPDIR to a folder with more room",
        ) from None
    if not written:
        raise DiagnoseError(
            f"{shown} holds nothing that can be unpacked: {cut or 'its ' + packer + ' data is empty'}",
            "copy it again from where it was compressed",
        )
    return cut


class _Cut(Exception):
    """The compressed data ends early or is damaged."""


def _xz_chunks(source: Path) -> Iterator[bytes]:
    with source.open("rb") as file:
        data = file.read(_CHUNK)
        while data:
            unpacker = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY)
            while not unpacker.eof:
                if unpacker.needs_input and not data:
                    raise _Cut("ends early")
                try:
                    chunk = unpacker.decompress(data, max_length=_CHUNK)
                except lzma.LZMAError as error:
                    raise _Cut(f"is damaged ({error})") from None
                data = file.read(_CHUNK) if unpacker.needs_input else b""
                if chunk:
                    yield chunk
            data = (unpacker.unused_data or file.read(_CHUNK)).lstrip(b"\0")  # stream padding


def _gzip_chunks(source: Path) -> Iterator[bytes]:
    with gzip.open(source) as file:
        try:
            while chunk := file.read1(_CHUNK):  # not read(): that loses what precedes an early end
                yield chunk
        except EOFError:
            raise _Cut("ends early") from None
        except (gzip.BadGzipFile, zlib.error) as error:
            raise _Cut(f"is damaged ({error})") from None


def _zstd_chunks(source: Path) -> Iterator[bytes]:
    try:
        import zstandard
    except ImportError:
        raise DiagnoseError(
            f"{source} is zstd data and the Python package zstandard is missing", "pip install zstandard"
        ) from None
    unpacker = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW)
    with source.open("rb") as file:
        reader = unpacker.stream_reader(file, read_size=_CHUNK, read_across_frames=True)
        try:
            while chunk := reader.read(_CHUNK):
                yield chunk
        except zstandard.ZstdError as error:
            raise _Cut(f"is damaged ({error})") from None
