"""`diagnose check-races`: finding compute-sanitizer, running it, reading its logs, exit codes. A stand-in plays it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from diagnose import cli
from diagnose.collect import sanitizer
from diagnose.collect.find import find_cuda_tool, find_sanitizer
from diagnose.errors import DiagnoseError

ROOT = Path(__file__).resolve().parents[1]
STAND_IN = ROOT / "tests" / "fake_sanitizer" / "compute-sanitizer"
CLEAN = ["========= COMPUTE-SANITIZER", "========= ERROR SUMMARY: 0 errors"]
NO_RACE = ["========= COMPUTE-SANITIZER", "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)"]
# Lines as the tools print them (2021 to 2025), with -lineinfo.
MEMCHECK = """\
========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at scale(float *, int)+0x50 in /src/scale.cu:14
=========     by thread (31,0,0) in block (4,0,0)
=========     Address 0x7f2a1c003c9c is out of bounds
=========     and is 29 bytes after the nearest allocation at 0x7f2a1c003c00 of size 128 bytes
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: main [0x1754] in scale
=========
========= Invalid __global__ write of size 4 bytes
=========     at scale(float *, int)+0x50 in /src/scale.cu:14
=========     by thread (30,0,0) in block (4,0,0)
=========     Address 0x7f2a1c003c98 is out of bounds
=========
========= Program hit cudaErrorLaunchFailure (error 719) on CUDA API call to cudaFree.
=========     Saved host backtrace up to driver entry point at error
=========
========= Target application returned an error
========= ERROR SUMMARY: 3 errors
"""
RACECHECK = """\
========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at window_sums(const float *, float *)+0xe0 in {file}:2
=========     and Read access at window_sums(const float *, float *)+0x140 in {file}:4 [1024 hazards]
=========     and Write access at window_sums(const float *, float *)+0xe0 in {file}:2 [6 hazards]
=========
========= Warning: Race reported between Read access at 0x00000170 in ./race.cu:4:test(int*, int*)
=========     and Write access at 0x00000148 in ./race.cu:3:test(int*, int*) [4 hazards]
=========
========= RACECHECK SUMMARY: 2 hazards displayed (1 error, 1 warning)
"""
SYNCCHECK = """\
========= COMPUTE-SANITIZER
========= Barrier error detected. Invalid arguments.
=========     at __syncwarp(unsigned int)+0xe0 in sm_30_intrinsics.hpp:110
=========     by thread (16,0,0) in block (0,0,0)
=========         Device Frame: broken(float *, unsigned long)+0xb0 in /src/kernel.cu:12
=========
========= ERROR SUMMARY: 1 error
"""
SOURCE = "__shared__ float tile[256];\ntile[threadIdx.x] = in[i];\n\nsum += tile[threadIdx.x + 1];\n"

Check = Callable[..., tuple[int, str, str]]


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Check:
    """Runs check-races with a scenario on a program that prints and ends with `program_exit`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DIAGNOSE_SANITIZER", str(STAND_IN))
    monkeypatch.setenv("FAKE_SANITIZER_RECORD", str(tmp_path / "record"))

    def run(*words: str, program_exit: int = 0, **tools: Any) -> tuple[int, str, str]:
        plays = {"memcheck": {"log": CLEAN}, "racecheck": {"log": NO_RACE}, "synccheck": {"log": CLEAN}, **tools}
        scenario = tmp_path / "scenario.json"
        scenario.write_text(json.dumps(plays))
        monkeypatch.setenv("FAKE_SANITIZER_SCENARIO", str(scenario))
        program = tmp_path / "program"
        program.write_text(f'#!/bin/sh\necho "program says $*"\nexit {program_exit}\n')
        program.chmod(0o755)
        code = cli.main(["check-races", *words])
        said = capfd.readouterr()
        return code, said.out, said.err

    return run


def test_memcheck_log() -> None:
    hazards, notes, errors, warnings = sanitizer.read_log("memcheck", MEMCHECK)
    assert (errors, warnings) == (3, 0) and notes == ("Target application returned an error",)
    write, api = hazards
    assert (write.message, write.count, write.severity) == ("Invalid __global__ write of size 4 bytes", 2, "error")
    assert write.places == (sanitizer.Place("at", "scale(float *, int)", "0x50", "/src/scale.cu", 14),)
    assert write.details[0] == "by thread (31,0,0) in block (4,0,0)" and len(write.details) == 3
    assert "cudaErrorLaunchFailure" in api.message and api.places == ()


def test_racecheck_log() -> None:
    hazards, _, errors, warnings = sanitizer.read_log("racecheck", RACECHECK.format(file="/src/race.cu"))
    assert (errors, warnings) == (1, 1)
    race, old = hazards
    assert (race.severity, race.count) == ("error", 1030)
    assert [(p.access, p.line, p.pc) for p in race.places] == [
        ("write", 2, "0xe0"),
        ("read", 4, "0x140"),
        ("write", 2, "0xe0"),
    ]
    assert race.places[0].function == "window_sums(const float *, float *)" and race.places[0].file == "/src/race.cu"
    assert (old.severity, old.count) == ("warning", 4)
    assert old.places[1] == sanitizer.Place("write", "test(int*, int*)", "0x00000148", "./race.cu", 3)


def test_racecheck_log_without_line_information() -> None:
    log = (
        "========= Error: Race reported between Write access at gemm+0x68\n"
        "=========     and Read access at gemm+0x78 [8 hazards]"
    )
    (race,), _, errors, _ = sanitizer.read_log("racecheck", log)
    assert errors is None and [(p.function, p.pc, p.file) for p in race.places] == [
        ("gemm", "0x68", None),
        ("gemm", "0x78", None),
    ]


def test_synccheck_log_names_the_caller() -> None:
    (one,), _, errors, _ = sanitizer.read_log("synccheck", SYNCCHECK)
    assert errors == 1 and one.message == "Barrier error detected. Invalid arguments."
    assert [(p.access, p.file, p.line) for p in one.places] == [
        ("at", "sm_30_intrinsics.hpp", 110),
        ("called from", "/src/kernel.cu", 12),
    ]


def test_a_clean_program(check: Check, tmp_path: Path) -> None:
    code, out, err = check("./program", "--size", "4", "--tool")
    assert code == 0, err
    assert "memcheck: 0 errors" in out and "racecheck: 0 errors" in out and "mbarriers" in out
    assert "program says" not in out and err.count("program says --size 4 --tool") == 3
    runs = [json.loads(line) for line in (tmp_path / "record").read_text().splitlines()]
    assert [options["--tool"] for options, _ in runs] == ["memcheck", "racecheck", "synccheck"]
    assert all(words == ["./program", "--size", "4", "--tool"] for _, words in runs)


def test_a_race_is_tied_to_its_source(check: Check, tmp_path: Path) -> None:
    (tmp_path / "race.cu").write_text(SOURCE)
    log = RACECHECK.format(file="/not/here/race.cu").splitlines()
    code, out, _ = check("--tool", "racecheck", "-k", "window", "./program", racecheck={"log": log, "exit": 0})
    assert code == 1
    line = next(line for line in out.splitlines() if line.startswith("error"))
    assert "write at race.cu:2, read at race.cu:4 (1,030 hazards)" in line and "window_sums" in out
    assert "tile[threadIdx.x] = in[i];" in out and "sum += tile[threadIdx.x + 1];" in out
    ((options, _),) = (json.loads(one) for one in (tmp_path / "record").read_text().splitlines())
    assert options["--kernel-name"] == "kernel_substring=window"


def test_json(check: Check) -> None:
    code, out, _ = check("--format", "json", "./program", memcheck={"log": MEMCHECK.splitlines(), "exit": 1})
    found = json.loads(out)
    assert code == 1 and found["complete"] and [run["errors"] for run in found["runs"]] == [3, 0, 0]
    assert found["hazards"][0]["places"][0]["line"] == 14 and found["hazards"][0]["places"][0]["source"] is None
    assert found["sanitizer"]["version"] == "Version 2025.3.1.0" and len(found["caveats"]) == 3


def test_only_warnings_are_no_error(check: Check) -> None:
    log = [line for line in RACECHECK.splitlines() if "window_sums" not in line]
    log[-1] = "========= RACECHECK SUMMARY: 1 hazard displayed (0 errors, 1 warning)"
    code, out, _ = check("./program", racecheck={"log": log})
    assert code == 0 and "racecheck: 0 errors, 1 warning" in out and out.startswith("warning racecheck: race: read at")


@pytest.mark.parametrize(
    ("play", "said"),
    [
        ({"log": None, "exit": 1}, "no summary was written (exit status 1)"),
        ({"log": NO_RACE, "exit": 139}, "the program ended with exit status 139"),
        (
            {"log": ["========= Error: No attachable process found. compute-sanitizer timed-out."]},
            "No attachable process",
        ),
        ({"hang": True}, "no end within 0.5 s"),
    ],
)
def test_a_run_that_proves_nothing_never_exits_0(check: Check, play: dict[str, Any], said: str) -> None:
    limit = "0.5" if "hang" in play else "60"  # the stand-in takes longer than half a second to start on a busy machine
    code, out, _ = check("--timeout", limit, "--tool", "racecheck", "./program", racecheck=play)
    assert code == 3 and said in " ".join(out.split())


def test_a_program_that_fails_by_itself_proves_nothing(check: Check) -> None:
    code, out, _ = check("./program", program_exit=4)
    assert code == 3 and "the program ended with exit status 4" in out


def test_errors_that_cannot_be_read_still_count(check: Check) -> None:
    code, out, _ = check("./program", synccheck={"log": ["========= ERROR SUMMARY: 7 errors"]})
    assert code == 1 and "7 errors that this version of diagnose cannot read" in out


def test_hostile_text_stays_text(check: Check) -> None:
    log = [
        "========= Invalid \x1b[31m read [bold]x[/bold]",
        "=========     at f\x1b]0;x\x07+0x1 in a.cu:1",
        "========= ERROR SUMMARY: 1 error",
    ]
    code, out, _ = check("./program", memcheck={"log": log})
    assert code == 1 and "\x1b" not in out and "[bold]x[/bold]" in out


def test_wrong_usage(check: Check) -> None:
    code, out, err = check()
    assert code == 2 and out == "" and "error: no program was named" in err
    code, _, err = check("--tool", "racechek", "./program")
    assert code == 2 and "did you mean 'racecheck'?" in err
    code, _, err = check("./not-there")
    assert code == 2 and "hint:" in err
    code, _, err = check("kernel:gemm/tma", "more")
    assert code == 2 and "takes no arguments" in err


def test_where_it_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "cuda"
    (home / "bin").mkdir(parents=True)
    shutil.copy(STAND_IN, home / "bin" / "compute-sanitizer")
    monkeypatch.delenv("DIAGNOSE_SANITIZER", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("CUDA_HOME", str(home))
    assert find_sanitizer() == home / "bin" / "compute-sanitizer"
    assert find_sanitizer(str(STAND_IN.parent)) == STAND_IN
    monkeypatch.setenv("DIAGNOSE_SANITIZER", str(tmp_path / "none"))
    with pytest.raises(DiagnoseError, match="DIAGNOSE_SANITIZER names"):
        find_sanitizer()


NVCC, NVDISASM = find_cuda_tool("nvcc"), find_cuda_tool("nvdisasm")


@pytest.mark.skipif(not (NVCC and NVDISASM and shutil.which("g++")), reason="nvcc, g++ or nvdisasm is not here")
def test_the_planted_race_is_in_the_machine_code(tmp_path: Path) -> None:
    cubin = tmp_path / "race.cubin"
    command = [
        str(NVCC),
        "-O3",
        "-std=c++17",
        "-arch=sm_90",
        "-cubin",
        "-o",
        str(cubin),
        str(ROOT / "kernels/faults/race.cu"),
    ]
    subprocess.run(command, check=True)
    sass = subprocess.run([str(NVDISASM), "-c", str(cubin)], capture_output=True, text=True, check=True).stdout
    parts = {
        found[1]: found[0]
        for found in re.finditer(r"\.text\._Z\d+(window_sums_[a-z]+)PKf.*?(?=\.section|\Z)", sass, re.DOTALL)
    }
    for name, barrier in (("window_sums_racing", False), ("window_sums_ordered", True)):
        assert "STS" in parts[name] and "LDS" in parts[name] and ("BAR.SYNC" in parts[name]) == barrier


# --- beside a profile: `diagnose --races FILE` ---


def _report(name: str = "gemm-tiled") -> Path:
    return ROOT / "examples" / "reports" / f"{name}.ncu-rep.xz"


TAGS = "<b>x</b>"


def _found(file: Path, function: str, *places: tuple[str, str | None, int]) -> Path:
    """An output of check-races with one race; places are (access, address, line of tiled.cu)."""
    rows = [
        {
            "access": access,
            "function": function,
            "pc": pc,
            "file": "/home/me/tiled.cu",
            "line": line,
            "source": "<b>x</b>",
        }
        for access, pc, line in places
    ]
    hazard = {"tool": "racecheck", "severity": "error", "message": "race: write, read", "count": 7, "places": rows}
    file.write_text(
        json.dumps({"sanitizer": {"version": "1"}, "complete": True, "hazards": [{**hazard, "details": []}]})
    )
    return file


@pytest.fixture(scope="module")
def tiled() -> dict[str, Any]:
    from diagnose.api import Options, diagnose_reports

    return dict(diagnose_reports([_report()], Options(page=True)).document)


FUNCTION = "gemm_tiled(const float *, const float *, float *, int, int, int)"


def test_hazards_stand_at_the_instructions_of_their_lines(tmp_path: Path, tiled: dict[str, Any]) -> None:
    from diagnose import races

    lines = tiled["kernels"][0]["code"]["lines"]
    write = next(pc for pc, _, _, _, _, _, line in lines if line == 16)
    exact = next(pc for pc, text, *_, line in lines if line == 20 and "LDS" in text)
    found = races.attach(
        tiled,
        [_found(tmp_path / "r.json", FUNCTION, ("write", "0x7777770", 16), ("read", f"0x{int(exact, 16):08x}", 20))],
    )
    (hazard,) = found["kernels"][0]["hazards"]
    # The address of another build is not this one's: the line decides; of the same build the address itself is kept.
    assert [place["at"] for place in hazard["places"]] == [write, exact]
    assert any("compute-sanitizer found 1 kind(s) of error in gemm_tiled" in line for line in found["warnings"])
    assert any("mbarrier" in line for line in found["races"]["caveats"])
    assert "hazards" not in tiled["kernels"][0]  # the document that was given is not changed


def test_hazards_of_other_kernels_and_unfinished_runs_are_said(tmp_path: Path, tiled: dict[str, Any]) -> None:
    from diagnose import races

    file = _found(tmp_path / "r.json", "another(int *)", ("write", "0x10", 16))
    content = json.loads(file.read_text())
    file.write_text(json.dumps({**content, "complete": False}))
    found = races.attach(tiled, [file])
    assert "hazards" not in found["kernels"][0]
    assert "1 hazard(s) of --races are in no kernel of this report" in found["warnings"]
    assert any("is no proof" in line for line in found["warnings"])
    elsewhere = races.attach(tiled, [_found(tmp_path / "s.json", FUNCTION, ("write", None, 9999))])
    assert elsewhere["kernels"][0]["hazards"][0]["places"][0]["at"] is None
    assert races.attach(tiled, []) == tiled


@pytest.mark.parametrize("text", ["", "[]", '{"hazards": []}', '{"kernels": []}', "{"])
def test_a_file_that_is_no_list_of_hazards(text: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "r.json"
    file.write_text(text)
    assert cli.main([str(_report()), "--no-html", "--races", str(file)]) == 2
    err = capfd.readouterr().err
    assert f"error: --races {file}" in err and "hint: diagnose check-races --format json" in err


def test_the_page_pins_hazards_in_the_source_view(tmp_path: Path, tiled: dict[str, Any], browser: Any) -> None:
    from diagnose import races
    from diagnose.render import html

    file = _found(tmp_path / "r.json", FUNCTION, ("write", None, 16), ("read", None, 20))
    target = tmp_path / "page.html"
    target.write_text(html.render(races.attach(tiled, [file])))
    page = browser.new_page()
    page.goto(target.as_uri())
    told = page.locator(".finding", has_text="race: write, read").inner_text()
    assert "/home/me/tiled.cu:16" in told and "<b>x</b>" in told and "7 times" in told
    assert "mbarriers written in PTX" in page.locator("section.findings").first.inner_text()
    page.locator(".showcode").click()
    page.locator(".tag.pin", has_text="write: racecheck").first.wait_for()
    assert page.locator(".tag.pin", has_text="read: racecheck").count() == 1
    page.close()


def test_redacted_hazards_have_no_path_and_no_source(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = _found(tmp_path / "r.json", FUNCTION, ("write", "0x10", 16))
    words = [str(_report()), "--no-html", "--format", "json", "--redact", "--races", str(file)]
    assert cli.main(words) == 0
    out = capfd.readouterr().out
    (place,) = json.loads(out)["kernels"][0]["hazards"][0]["places"]
    assert (place["file"], place["source"]) == ("tiled.cu", None) and "/home/me" not in out


# --- a conflict that looks like something else ---


def test_bank_conflicts_are_recognised_under_other_stalls_names() -> None:
    """The article: such conflicts may show as a throttled pipe or as short scoreboard. The rule counts wavefronts."""
    import recorded

    shown = {}
    for name in ("faults/bank-conflict-pitch64", "reduction/tree-conflicts"):
        context = recorded.context_of(recorded.profile(name))
        shown[name] = {
            stall: context.value(f"stall_{stall}") or 0.0
            for stall in ("mio_throttle", "short_scoreboard", "math_pipe_throttle")
        }
        found = recorded.diagnosis(name)
        assert any(one.rule == "bank-conflict" for one in found.findings), recorded.summary(found)
    assert shown["faults/bank-conflict-pitch64"]["mio_throttle"] > 0.5  # a throttled queue
    assert shown["reduction/tree-conflicts"]["short_scoreboard"] > 0.3
    rule = recorded.rule("bank-conflict")
    assert not any("stall" in leaf.left.text or "exposed" in leaf.left.text for leaf in rule.leaves)
    assert recorded.diagnosis("faults/bank-conflict-pitch65").verdict.rule != "bank-conflict"


def test_a_throttled_tensor_pipe_with_replays_is_a_bank_conflict() -> None:
    """Facts only: no recorded kernel of ours has a Tensor pipe that waits for replays."""
    import recorded
    from diagnose.rules import ValuesEnv, evaluate

    rule = recorded.rule("bank-conflict")
    env = ValuesEnv(
        {"shared_conflict_excess": 0.5, "stake_bank_conflict": 0.3, "stall_math_pipe_throttle": 0.6,
         "l1_utilization": 0.7, "shared_wavefront_share": 0.9},
    )  # fmt: skip
    assert evaluate(rule, env).state is True
