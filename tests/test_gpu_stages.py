"""`make gpu` by stages: what ended well is not done again, what changed is; results are taken from a folder."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent / "gpu"))

import corpus
import stages


@pytest.fixture
def out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder, with stages that write a line of what they did and end as the file `exit` says."""
    script = tmp_path / "stage.sh"
    script.write_text(f'echo "$1" >> {tmp_path}/done\nexit $(cat {tmp_path}/exit)\n')
    (tmp_path / "exit").write_text("0")
    monkeypatch.setattr(stages, "commands", lambda stage, _: [["sh", str(script), f"{stage}-{n}"] for n in (0, 1)])
    return tmp_path / "out"


def call(monkeypatch: pytest.MonkeyPatch, out: Path, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["stages.py", "--out", str(out), *words])
    return stages.main()


def done(out: Path) -> list[str]:
    return (out.parent / "done").read_text().split()


def test_a_stage_goes_on_where_it_ended(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (out.parent / "exit").write_text("1")
    assert call(monkeypatch, out, "--stage", "time") == 1
    (out.parent / "exit").write_text("0")
    assert call(monkeypatch, out, "--stage", "time") == 0
    assert call(monkeypatch, out, "--stage", "time") == 0
    assert done(out) == ["time-0", "time-1"] * 2
    assert call(monkeypatch, out, "--stage", "time", "--again") == 0
    assert len(done(out)) == 6


def test_other_sources_start_anew(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert call(monkeypatch, out, "--stage", "check") == 0
    monkeypatch.setattr(stages, "sources", lambda: "other")
    assert call(monkeypatch, out, "--stage", "check") == 0
    assert done(out) == ["check-0", "check-1"] * 2
    assert len(list(out.parent.glob("out-*"))) == 1


def test_an_unknown_stage(out: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(monkeypatch, out, "--stage", "tme") == 2
    assert "hint: one of build, code, check" in capsys.readouterr().err


def test_times_of_a_run_replace_only_their_rows() -> None:
    found: dict[str, Any] = {
        "gpu": "NVIDIA H200, 580.159.04, 1980 MHz, 1980 MHz",
        "date": "2026-12-01",
        "kernels": {
            "gemm/tma": {"line": "gemm/tma | 1,2 us"},
            "gemm/mma": {"line": "gemm/mma | 1500.1 us | 733.0 TFLOP/s | error 0.0017 (tolerance 0.004) | ok"},
            "gemm/wgmma": {"line": "gemm/wgmma | 1500.1 us | 733.0 TFLOP/s | error 0.1 (tolerance 0.004) | mismatch"},
        },
    }
    rows = stages.timed(found, {"kernels": {"gemm/tma": {"us": 1.0}, "gemm/mma": {"us": 2.0}}})
    assert rows["kernels"]["gemm/tma"] == {"us": 1.0} and "gemm/wgmma" not in rows["kernels"]
    assert rows["kernels"]["gemm/mma"] == {
        "us": 1500.1,
        "rate": "733.0 TFLOP/s",
        "error": "0.0017",
        "tolerance": "0.004",
    }
    assert (rows["gpu"], rows["driver"], rows["date"]) == ("NVIDIA H200", "580.159.04", "2026-12-01")


def test_what_the_sanitizers_said_replaces_only_its_rows() -> None:
    clean = dict.fromkeys(stages.TOOLS, 0)
    found: dict[str, Any] = {
        "gpu": "NVIDIA H200, 580.159.04, 1980 MHz, 1980 MHz",
        "date": "2026-12-01",
        "kernels": {"a": {**clean, "exit": 0}, "b": {**clean, "racecheck": 9}, "c": {"memcheck": 0}},
    }
    rows = stages.sanitized(found, {"kernels": {"c": clean, "b": clean}})
    assert rows["kernels"] == {"a": clean, "b": {**clean, "racecheck": 9}, "c": clean}
    assert (rows["gpu"], rows["date"]) == ("NVIDIA H200", "2026-12-01")


# --- corpus.py

KERNEL: dict[str, Any] = {
    "name": "gemm/one", "args": ["--variant", "fix"], "params": {"m": 8192, "tile": 256, "n": 1 << 28},
    "archs": ["sm_80", "sm_90a"], "folder": Path("gemm"), "source": "one.cu", "nvcc_flags": None,
}  # fmt: skip


def test_smaller_sizes_leave_options_alone() -> None:
    assert corpus.arguments(KERNEL) == ["--variant", "fix", "--m", "8192", "--tile", "256", "--n", "268435456"]
    assert corpus.arguments(KERNEL, 1024, 512) == ["--variant", "fix", "--m", "512", "--tile", "256", "--n", "262144"]


def test_the_smallest_sizes_that_a_program_takes(tmp_path: Path) -> None:
    program = tmp_path / "gemm-one"
    program.write_text('#!/bin/sh\ncase "$*" in *"--m 2048 "*|*"--m 8192 "*) exit 0;; esac\nexit 1\n')
    program.chmod(0o755)
    assert corpus.small_arguments(KERNEL, tmp_path) == corpus.arguments(KERNEL, 4, 512)
    program.write_text("#!/bin/sh\nexit 1\n")
    assert corpus.small_arguments(KERNEL, tmp_path) == corpus.arguments(KERNEL)


def test_kernels_of_one_source_are_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = tmp_path / "nvcc"
    compiler.write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/log\nwhile [ "$1" != -o ]; do shift; done\necho x > "$2"\n'
    )
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    here = {**KERNEL, "folder": tmp_path}
    other = {**here, "name": "gemm/two", "args": ["--variant", "fault"]}
    assert corpus.recipe(here) == corpus.recipe(other) != corpus.recipe({**other, "nvcc_flags": ["-G"]})
    assert corpus.build([here, other], tmp_path, resume=False) == ""
    assert (tmp_path / "gemm-one").read_text() == (tmp_path / "gemm-two").read_text() == "x\n"
    assert len((tmp_path / "log").read_text().splitlines()) == 1
