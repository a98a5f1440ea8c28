"""Ceilings measured on a GPU: what is kept or refused, the store, the exported form, and what verdicts make of it.

No GPU is needed: stand-in programs print what the CUDA programs print; nvcc, where it is, compiles those, and their
machine code is looked at.
"""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import recorded
from diagnose import engine, facts, limits
from diagnose.bundled import bundled
from diagnose.ceilings import command, measure, record, store
from diagnose.ceilings.record import Measured, Record, Refused
from diagnose.collect.host import Gpu
from diagnose.errors import EXIT_NOTHING_MEASURED, DiagnoseError
from diagnose.gpus import catalogue
from sass_tools import NVCC, NVDISASM, needs_nvcc

H200 = "NVIDIA H200"


def line(key: str = "hbm", **changes: Any) -> str:
    entry = {
        "key": key,
        "value": 4.0e12,
        "unit": "byte/s",
        "repeats": 11,
        "spread": 0.01,
        "clock_mhz": 1980.0,
        "clock_spread": 0.0,
    }
    return json.dumps({**entry, **changes})


def stand_in(tmp_path: Path, text: str, code: int = 0) -> list[str]:
    script = tmp_path / "program.py"
    script.write_text(
        f"import sys\nprint({text!r})\nsys.stdout.flush()\nsys.stderr.write('error: out of luck')\nsys.exit({code})\n"
    )
    return [sys.executable, str(script)]


def a_record(*values: Measured, gpu: str = H200) -> Record:
    return Record(gpu, "GPU-1234", "sm_90", "580.1", {"sm_max": 1980.0}, "2026-11-30", values)


@pytest.fixture
def data_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    store.load.cache_clear()
    yield tmp_path / "data"
    store.load.cache_clear()  # other tests must not find what was stored here


# --- what a program prints


def test_a_steady_value_is_kept(tmp_path: Path) -> None:
    found = measure.run_program("memory", stand_in(tmp_path, line("hbm:read", value=4.6e12)))
    assert found == [Measured("hbm:read", 4.6e12, "byte/s", 11, 0.01, 1980.0)]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"spread": 0.08}, "spread over 8.0%"),
        ({"clock_spread": 0.05}, "clock moved by 5.0%"),
        ({"value": 0}, "not above 0"),
        ({"value": float("nan")}, "not a finite number"),
        ({"value": "fast"}, "not a finite number"),
        ({"unit": None}, "not a unit"),
        ({"repeats": 0}, "not a count"),
        ({"key": "../../etc/passwd"}, "not a name"),
    ],
)
def test_what_does_not_hold_is_refused_with_its_reason(changes: dict[str, Any], reason: str) -> None:
    (found,) = measure.read_lines("memory", line(**changes))
    assert isinstance(found, Refused)
    assert reason in found.reason


def test_borders_of_spread_and_clock_still_hold() -> None:
    assert isinstance(measure.read_lines("m", line(spread=measure.SPREAD, clock_spread=measure.CLOCK))[0], Measured)


def test_a_program_that_fails_keeps_what_it_had_printed(tmp_path: Path) -> None:
    found = measure.run_program("memory", stand_in(tmp_path, line(), code=3))
    assert isinstance(found[0], Measured)
    assert found[1] == Refused("memory", "exited with status 3: error: out of luck")


def test_a_program_that_hangs_is_stopped(tmp_path: Path) -> None:
    script = tmp_path / "hang.py"
    script.write_text("import time\ntime.sleep(60)\n")
    found = measure.run_program("tma", [sys.executable, str(script)], seconds=0.5)
    assert found == [Refused("tma", "did not end within 0.5 s")]


def test_text_that_is_no_measurement_is_refused(tmp_path: Path) -> None:
    (found,) = measure.run_program("memory", stand_in(tmp_path, "hello"))
    assert isinstance(found, Refused)
    assert found.key == "memory"


def test_nothing_measured_is_an_error_not_an_empty_record() -> None:
    with pytest.raises(DiagnoseError) as error:
        measure.collected(H200, None, "sm_90", "580", {}, [Refused("memory", "exited with status 1")])
    assert error.value.exit_code == EXIT_NOTHING_MEASURED
    assert "exited with status 1" in error.value.message


def test_programs_suit_the_architecture() -> None:
    assert set(measure.programs(90)) == {"memory", "pipes", "launch", "mma", "wgmma", "latency", "tma"}
    assert measure.programs(90)["wgmma"].archs == ("sm_90a",)
    assert set(measure.programs(80)) == {"memory", "pipes", "launch", "mma"}
    assert set(measure.programs(75)) == {"memory", "pipes", "launch"}
    assert set(measure.programs(120)) == {"memory", "pipes", "launch", "mma"}


# --- the store


def test_what_is_stored_is_read_back_by_the_gpu_s_name(data_home: Path) -> None:
    kept = a_record(
        Measured("hbm", 4.0e12, "byte/s", 11, 0.01, 1980.0),
        Measured("library:gemm:bf16:8192", 8e14, "op/s", 60, 0.0, None),
    )
    path = store.save(kept)
    assert path.is_relative_to(data_home)
    assert store.load(H200) == kept
    assert store.load("NVIDIA H100") is None


def test_the_exported_form_names_no_card(data_home: Path, tmp_path: Path) -> None:
    kept = a_record(Measured("hbm", 4.0e12, "byte/s", 11, 0.01, 1980.0))
    store.export(kept, tmp_path / "h200.json")
    assert "GPU-1234" not in (tmp_path / "h200.json").read_text()
    assert record.read(tmp_path / "h200.json") == dataclasses.replace(kept, uuid=None)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"gpu": "x", "arch": "sm_90", "driver": "1", "date": "d", "ceilings": [{}]}']
)
def test_a_damaged_file_is_named(data_home: Path, text: str) -> None:
    path = store.path_of(H200)
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.raises(DiagnoseError) as error:
        store.load(H200)
    assert str(path) in error.value.message


def test_a_name_cannot_leave_the_folder(data_home: Path) -> None:
    assert store.path_of("../../../etc/passwd").parent == store.folder()


def test_the_command_measures_stores_and_exports(
    data_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = stand_in(tmp_path, "\n".join([line(), line("hbm:write", spread=0.2)]))
    monkeypatch.setattr(command.host, "gpus", lambda: (Gpu(H200, "580.1", 90, False),))
    monkeypatch.setattr(measure, "build_kernel", lambda kernel, arch: Path(program[1]))
    run_program = measure.run_program
    monkeypatch.setattr(measure, "run_program", lambda name, command: run_program(name, [sys.executable, *command]))
    monkeypatch.setattr(measure, "_library", lambda progress: [])
    said: list[str] = []
    content, lines = command.run(tmp_path / "export.json", False, said.append)
    assert content["measured"] is True
    assert [row["resource"] for row in content["ceilings"]] == ["hbm"]
    assert {one["key"] for one in content["refused"]} == {"hbm:write"}
    assert len(lines) == 1
    assert any("hbm:write was refused" in text for text in said)
    kept = store.load(H200)
    assert kept is not None
    assert record.read(tmp_path / "export.json").ceilings == kept.ceilings


def test_an_export_without_a_gpu_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(command.host, "gpus", lambda: ())
    with pytest.raises(DiagnoseError):
        command.run(tmp_path / "x.json", False, lambda text: None)
    assert command.run(None, False, lambda text: None)[0]["measured"] is False


# --- what the engine makes of it


def h200() -> catalogue.Product:
    found = catalogue.product(H200, 90)
    assert found is not None
    return found


def test_a_stored_rate_wins_over_a_recorded_one_and_says_so() -> None:
    known = catalogue.ceilings(h200(), a_record(Measured("hbm", 3.9e12, "byte/s", 11, 0.01, 1980.0)))
    hbm, read = known["hbm"], known["hbm:read"]
    assert hbm is not None and read is not None
    assert (hbm.value, hbm.source, hbm.date) == (3.9e12, "measured", "2026-11-30")
    assert read.source == "recorded"


def test_rates_of_the_sm_clock_are_stated_at_the_boost_clock() -> None:
    boost = h200().boost_hz
    assert boost is not None
    slow = boost / 1e6 / 2
    values = (
        Measured("fp32", 3e13, "op/s", 11, 0.01, slow),
        Measured("hbm", 4e12, "byte/s", 11, 0.01, slow),
        Measured("library:gemm:bf16:8192", 8e14, "op/s", 60, 0.01, None),
    )
    found = record.ceilings(a_record(*values), "measured", boost)
    assert found["fp32"].value == pytest.approx(6e13)
    assert found["hbm"].value == 4e12
    assert found["library:gemm:bf16:8192"].source == "library"


def test_the_best_shape_is_the_path_s_ceiling() -> None:
    def one(key: str, value: float) -> Measured:
        return Measured(key, value, "op/s", 11, 0.01, None)

    found = record.ceilings(
        a_record(
            one("tensor:wgmma:bf16:fp32:m64n8k16:ss", 1e14),
            one("tensor:wgmma:bf16:fp32:m64n256k16:ss", 9e14),
            one("tensor:wgmma:e4m3:fp32:m64n256k32:ss", 18e14),
            one("tensor:mma:fp64:fp64:m8n8k4", 6e13),
        ),
        "measured",
        None,
    )
    assert found["tensor:wgmma:bf16"].value == 9e14
    assert found["tensor:fp8-wgmma:fp8"].value == 18e14
    assert found["tensor:fp64-mma:fp64"].value == 6e13
    datasheet = set(catalogue.ceilings(h200()))
    assert {"tensor:wgmma:bf16", "tensor:fp8-wgmma:fp8", "tensor:fp64-mma:fp64"} <= datasheet


def test_a_shipped_measurement_is_recorded_and_the_profiled_rates_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    values = (
        Measured("smem", 3.2e13, "byte/s", 11, 0.01, 1980.0),
        Measured("hbm", 4.3e12, "byte/s", 11, 0.01, 1980.0),
        Measured("tensor:wgmma:bf16:fp32:m64n256k16:ss", 10e14, "op/s", 11, 0.01, 1980.0),
    )
    monkeypatch.setattr(catalogue, "_shipped", lambda: (a_record(*values),))
    known = catalogue.ceilings(h200())
    smem, hbm, wgmma = known["smem"], known["hbm"], known["tensor:wgmma:bf16"]
    assert smem is not None and hbm is not None and wgmma is not None
    assert (smem.value, smem.source, smem.date) == (3.2e13, "recorded", "2026-11-30")
    assert wgmma.value == 10e14
    # ceilings.yaml's, of kernels under ncu, whose durations are what limits are held against
    assert hbm.value == 4.1e12


# Recorded on an H200; a plain stream. Its HBM limit binds at an H200's rates.
STREAM = "faults/stream-copy"


def _diagnosed(factor: float) -> tuple[str, str]:
    """(verdict, source of the HBM ceiling) of the stream on a GPU whose memory is `factor` times as fast."""
    kernel = recorded.profile(STREAM)
    values = []
    for key in ("hbm", "hbm:read", "hbm:write"):
        rate = catalogue.ceilings(h200())[key]
        assert rate is not None
        values.append(Measured(key, factor * rate.value, "byte/s", 11, 0.01, None))
    known = {key: one for key, one in catalogue.ceilings(h200(), a_record(*values)).items() if one is not None}
    # The report's own busy share of HBM is of the very GPU: another one's ceiling is tested without it.
    kernel = dataclasses.replace(
        kernel,
        metrics={
            name: value
            for name, value in kernel.metrics.items()
            if not re.match(r"(gpu__dram_throughput|dram__throughput|dram__cycles_active)", name)
        },
    )
    context = facts.context(kernel, known, (), recorded.declared(STREAM))
    (hbm,) = (limit for limit in limits.compute(context) if limit.resource == "hbm")
    verdict = engine.diagnose_kernel(context, recorded.rules(), {}).verdict
    assert verdict is not None
    return verdict.rule, hbm.ceiling_source


def test_another_gpu_s_ceilings_change_the_verdict() -> None:
    assert _diagnosed(1.0) == ("hbm-bandwidth", "measured")
    verdict, source = _diagnosed(4.0)
    assert source == "measured"
    assert verdict != "hbm-bandwidth"


# --- the machine code


def _loops(source: str, arch: str, folder: Path) -> dict[str, list[Counter[str]]]:
    """Opcodes of every loop (a backward branch and what lies between), by the kernel's mangled name."""
    assert NVCC is not None and NVDISASM is not None
    target = folder / "code.cubin"
    specific = f"-gencode=arch={arch.replace('sm_', 'compute_')},code={arch}"
    path = bundled("kernels") / "ceilings" / source
    subprocess.run([NVCC, "-O3", "-std=c++17", specific, "-cubin", path, "-o", target], check=True, timeout=600)
    text = subprocess.run([NVDISASM, "-c", target], check=True, capture_output=True, text=True, timeout=600).stdout
    found: dict[str, list[Counter[str]]] = {}
    for section in re.split(r"(?m)^\s*\.section\s+\.text\.", text)[1:]:
        lines = section.splitlines()
        labels = {at[1]: n for n, one in enumerate(lines) if (at := re.match(r"\s*(\.L_x_\d+):", one))}
        loops = found.setdefault(section.split(",")[0].split()[0], [])
        for end, one in enumerate(lines):
            jump = re.search(r"BRA\S* .*?(\.L_x_\d+)", one)
            if jump and labels.get(jump[1], end) < end - 1:
                body = "\n".join(lines[labels[jump[1]] : end])
                loops.append(Counter(re.findall(r"(?m)^\s*/\*\w+\*/\s+(?:@!?U?P\d\s+)?([A-Z][\w.]*)", body)))
    return found


def _count(loops: dict[str, list[Counter[str]]], kernel: str, opcode: str) -> int:
    """The most that a loop of the kernels of that name has of the opcode."""
    bodies = [body for name, found in loops.items() if kernel in name for body in found]
    assert bodies, f"no loop of {kernel}"
    return max(sum(count for name, count in body.items() if re.fullmatch(opcode, name)) for body in bodies)


@pytest.mark.slow
@needs_nvcc
def test_streams_load_16_bytes_in_their_loops(tmp_path: Path) -> None:
    loops = _loops("memory.cu", "sm_90a", tmp_path)
    assert _count(loops, "4readPK5uint4", r"LDG\.E(\.\w+)*\.128.*") == 8
    assert _count(loops, "read_l2", r"LDG\.E(\.\w+)*\.128.*") == 8
    assert _count(loops, "read_l1", r"LDG\.E(\.\w+)*\.128.*") == 8
    assert _count(loops, "read_shared", r"LDS\.128") == 4


@pytest.mark.slow
@needs_nvcc
def test_pipes_hold_only_their_instruction(tmp_path: Path) -> None:
    loops = _loops("pipes.cu", "sm_90a", tmp_path)
    for operation, opcode in enumerate(("FFMA", "DFMA", r"HFMA2(\.MMA)?", "IMAD", "PRMT", r"MUFU\.EX2")):
        assert _count(loops, f"chainsIL2Op{operation}E", opcode) == 128, opcode


@pytest.mark.slow
@needs_nvcc
def test_wgmma_of_the_stated_shape_is_all_that_the_loop_feeds(tmp_path: Path) -> None:
    loops = _loops("wgmma.cu", "sm_90a", tmp_path)
    for n in (8, 16, 32, 64, 128, 256):
        for source in (0, 1):  # SS, RS
            assert _count(loops, f"Kind0ELi{n}EL6Source{source}E", rf"HGMMA\.64x{n}x16\.F32\.BF16") == 16
        assert _count(loops, f"Kind0ELi{n}EL6Source2E", rf"HGMMA\.SP\.64x{n}x32\.F32\.BF16") == 16
        assert _count(loops, f"Kind6ELi{n}EL6Source0E", rf"IGMMA\.64x{n}x32\.S8\.S8") == 16
    everything = Counter[str]()
    for bodies in loops.values():
        for body in bodies:
            everything += body
    assert not [opcode for opcode in everything if opcode.startswith(("LDL", "STL"))]


@pytest.mark.slow
@needs_nvcc
def test_mma_is_the_instruction_of_its_types(tmp_path: Path) -> None:
    loops = _loops("mma.cu", "sm_90", tmp_path)
    for kernel, opcode in (
        ("4Bf16", r"HMMA\.16816\.F32\.BF16"),
        ("9Fp16Short", r"HMMA\.16816\.F16"),
        ("4Tf32", r"HMMA\.1688\.F32\.TF32"),
        ("4Int8E", r"IMMA\.16832\.S8\.S8"),
        ("10Bf16Sparse", r"HMMA\.SP\.16832\.F32\.BF16"),
    ):
        assert _count(loops, kernel, opcode) == 32, kernel
