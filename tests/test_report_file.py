"""Finding, sniffing and unpacking report files, and the session data in their block headers."""

from __future__ import annotations

import gzip
import lzma
import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from diagnose.errors import EXIT_USAGE, DiagnoseError
from diagnose.report_file import MAX_RATIO, MAX_UNPACKED, find_reports, is_report_name, open_report
from diagnose.report_session import read_session

PACK: dict[str, Callable[[bytes], bytes]] = {
    ".xz": lzma.compress,
    ".gz": gzip.compress,
    ".zst": zstandard.ZstdCompressor().compress,
}


def varint(value: int) -> bytes:
    out = b""
    while True:
        out += bytes([value & 0x7F | (0x80 if value > 0x7F else 0)])
        value >>= 7
        if not value:
            return out


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def text(field: int, value: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(value)) + value


def block(header: bytes, payload: bytes = b"") -> bytes:
    header += number(5, len(payload))
    return struct.pack("<I", len(header)) + header + payload


def report_bytes(
    version: str = "2025.3.1.0", command: str = "/opt/ncu -o r ./app", results: int = 1, host: str = "node7"
) -> bytes:
    """A file with the layout of a report: session blocks and `results` result blocks of no meaning."""
    file_header = number(1, 7)
    target = text(1, b"Nsight Compute Target") + text(2, f"{version} (build 1) (public-release)".encode())
    parts = [b"NVR\0", struct.pack("<I", len(file_header)), file_header]
    parts.append(block(text(3, text(3, text(5, host.encode() + b"\0\0")))))
    parts += [block(number(2, 1), b"result" * 10) for _ in range(results)]
    parts.append(block(text(3, text(8, target))))
    parts.append(block(text(3, text(11, command.encode() + b" "))))
    return b"".join(parts)


def fails(path: Path, max_unpacked: int = MAX_UNPACKED, max_ratio: int = MAX_RATIO) -> DiagnoseError:
    limited = open_report(path, max_unpacked=max_unpacked, max_ratio=max_ratio)
    with pytest.raises(DiagnoseError) as caught, limited:
        pass
    assert caught.value.exit_code == EXIT_USAGE
    assert caught.value.hint
    assert str(path) in caught.value.message
    return caught.value


def test_a_plain_report_is_used_where_it_lies(tmp_path: Path) -> None:
    path = tmp_path / "a.ncu-rep"
    path.write_bytes(report_bytes())
    with open_report(path) as opened:
        assert opened.path == path
        assert opened.cut is None


@pytest.mark.parametrize("suffix", PACK)
@pytest.mark.parametrize("name", ["a.ncu-rep", "a.ncu-repz", "a.nsight-cuprof-report", "no-extension"])
def test_packed_reports_are_known_by_content(tmp_path: Path, suffix: str, name: str) -> None:
    path = tmp_path / (name + suffix)
    path.write_bytes(PACK[suffix](report_bytes()))
    with open_report(path, tmp_path) as opened:
        assert opened.path.read_bytes() == report_bytes()
        assert opened.cut is None
        unpacked = opened.path
    assert not unpacked.exists()
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_a_zstd_report_that_was_compressed_once_more(tmp_path: Path) -> None:
    path = tmp_path / "a.ncu-repz.xz"
    path.write_bytes(PACK[".xz"](PACK[".zst"](report_bytes())))
    with open_report(path) as opened:
        assert opened.path.read_bytes() == report_bytes()
    path.write_bytes(PACK[".gz"](path.read_bytes()))
    assert "more than 2 times" in fails(path).message


@pytest.mark.parametrize("suffix", PACK)
def test_concatenated_streams_are_one_file(tmp_path: Path, suffix: str) -> None:
    data = report_bytes()
    path = tmp_path / f"a.ncu-rep{suffix}"
    path.write_bytes(PACK[suffix](data[:50]) + PACK[suffix](data[50:]))
    with open_report(path) as opened:
        assert opened.path.read_bytes() == data


@pytest.mark.parametrize("suffix", [".xz", ".gz"])
def test_a_cut_archive_gives_its_beginning(tmp_path: Path, suffix: str) -> None:
    data = report_bytes() + os.urandom(300_000)
    path = tmp_path / f"a.ncu-rep{suffix}"
    path.write_bytes(PACK[suffix](data)[:200_000])
    with open_report(path) as opened:
        assert opened.cut and "ends early" in opened.cut
        got = opened.path.read_bytes()
        assert len(got) > 1000
        assert data.startswith(got)


@pytest.mark.parametrize("suffix", PACK)
def test_an_archive_with_nothing_in_it(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.ncu-rep{suffix}"
    path.write_bytes(PACK[suffix](b""))
    assert "nothing" in fails(path).message
    path.write_bytes(PACK[suffix](report_bytes())[:12])
    assert "nothing" in fails(path).message


@pytest.mark.parametrize("suffix", PACK)
def test_a_bomb_is_refused_with_both_sizes(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.ncu-rep{suffix}"
    path.write_bytes(PACK[suffix](b"NVR\0" + bytes(20 << 20)))
    error = fails(path, max_unpacked=8 << 20)
    assert f"{path.stat().st_size:,}" in error.message
    assert f"{8 << 20:,}" in error.message
    assert not list(tmp_path.glob("diagnose-*"))


def test_a_high_ratio_is_refused_only_for_large_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.ncu-rep.xz"
    path.write_bytes(lzma.compress(b"NVR\0" + bytes(8 << 20)))
    with open_report(path, max_ratio=10):
        pass
    monkeypatch.setattr("diagnose.report_file._RATIO_FROM", 1 << 20)
    assert "10 times" in fails(path, max_ratio=10).message


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "empty (0 bytes)"),
        (b"N", "truncated"),
        (b"NVR", "truncated"),
        (b"kernel,duration\n1,2\n", "b'kernel,d'"),
        (b"\x7fELF\x02\x01\x01", "ELF binary"),
        (b"SQLite format 3\0 and more", "Nsight Systems"),
        (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer"),
        (bytes(range(200, 240)), "not an Nsight Compute report"),
    ],
)
def test_what_is_no_report_says_what_it_is(tmp_path: Path, data: bytes, said: str) -> None:
    path = tmp_path / "a.ncu-rep"
    path.write_bytes(data)
    assert said in fails(path).message
    if data:
        path.write_bytes(gzip.compress(data))
        assert "after unpacking" in fails(path).message


def test_a_folder_means_the_reports_in_it_by_name(tmp_path: Path) -> None:
    for name in ("b.ncu-rep", "a.ncu-rep.xz", "c.nsight-cuprof-report", "b.ncu-rep.zst", "notes.txt", "d.ncu-repz"):
        (tmp_path / name).touch()
    (tmp_path / "sub.ncu-rep").mkdir()
    found = find_reports([tmp_path])
    # b.ncu-rep.zst is b.ncu-rep compressed: one report, not two.
    assert [f.path.name for f in found] == ["a.ncu-rep.xz", "b.ncu-rep", "c.nsight-cuprof-report", "d.ncu-repz"]
    assert not any(f.named for f in found)
    assert find_reports([tmp_path / "b.ncu-rep.zst"])[0].named


def test_nothing_to_read(tmp_path: Path) -> None:
    for paths, said in (([], "no report"), ([tmp_path], "holds no report"), ([tmp_path / "x.ncu-rep"], "not exist")):
        with pytest.raises(DiagnoseError, match=said) as caught:
            find_reports(paths)
        assert caught.value.exit_code == EXIT_USAGE
    os.mkfifo(tmp_path / "pipe.ncu-rep")
    with pytest.raises(DiagnoseError, match="neither a file nor a folder"):
        find_reports([tmp_path / "pipe.ncu-rep"])


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    path = tmp_path / "a.ncu-rep"
    path.write_bytes(report_bytes())
    path.chmod(0)
    assert "Permission denied" in fails(path).message


def test_report_names() -> None:
    assert is_report_name("a.ncu-rep")
    assert is_report_name("a.ncu-repz.gz")
    assert not is_report_name("a.ncu-rep.html")
    assert not is_report_name("a.xz")


def test_session_data(tmp_path: Path) -> None:
    path = tmp_path / "a.ncu-rep"
    command = "/opt/ncu --set full -f --clock-control none --replay-mode=application -o r app --cache-control none"
    path.write_bytes(report_bytes(command=command, results=3))
    session = read_session(path)
    assert session.ncu_version == "2025.3.1.0"
    assert session.command == command
    assert session.host == "node7"
    assert session.results == 3
    assert session.complete
    assert session.output == "r"
    assert session.option("--clock-control", "base") == "none"
    assert session.option("--replay-mode", "kernel") == "application"
    # What follows the target's name is the target's: ncu's default holds.
    assert session.option("--cache-control", "all") == "all"


def test_options_that_a_configuration_file_may_set_are_unknown(tmp_path: Path) -> None:
    path = tmp_path / "a.ncu-rep"
    path.write_bytes(report_bytes(command='"C:\\Program Files\\ncu.exe" --config-file-path x.ncu-cfg --csv app'))
    assert read_session(path).option("--clock-control", "base") is None


def test_every_truncation_is_seen_and_none_fails(tmp_path: Path) -> None:
    path = tmp_path / "a.ncu-rep"
    data = report_bytes()
    starts = set()
    for length in range(4, len(data)):
        path.write_bytes(data[:length])
        if read_session(path).complete:
            starts.add(length)
    # A cut exactly between two blocks cannot be told from an end: five blocks, after a file header.
    assert len(starts) == 4


@pytest.mark.parametrize("tail", [b"\xff\xff\xff\xff", b"\x04\0\0\0\x2a\xff\xff\xff", b"\x02\0\0\0\x0f\x00", bytes(7)])
def test_hostile_lengths_end_the_walk(tmp_path: Path, tail: bytes) -> None:
    path = tmp_path / "a.ncu-rep"
    path.write_bytes(report_bytes() + tail)
    session = read_session(path)
    assert session.command
    assert not session.complete
    path.write_bytes(report_bytes() + block(text(3, b"\xff\xff")))
    assert read_session(path).complete
