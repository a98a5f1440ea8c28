"""Surveys: what three tools count, which launches are chosen, and how counts meet what was profiled."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gen_collection
import recorded
from diagnose.collect import survey, surveying
from diagnose.collect.host import Gpu
from diagnose.collect.names import function_of
from diagnose.collect.plan import Selection
from diagnose.collect.process import Tail, has_ended, settle_disks, written_bytes
from diagnose.collect.survey import FEW, Configuration, Survey, choose, configuration_of, counted, merged, standing
from diagnose.collect.surveying import SurveyOptions
from diagnose.errors import DiagnoseError
from diagnose.model import Profile

FAKE = Path(__file__).parent / "fake_ncu" / "ncu"
SHARED = recorded.SHARED / "h200-elementwise.ncu-rep.xz"


def row(name: str = "gemm", us: float = 1.0, first: float = 0.0, **more: object) -> Configuration:
    fields: dict[str, object] = {
        "mangled": f"_Z{len(name)}{name}v", "grid": (8, 1, 1), "block": (128, 1, 1), "shared": 0, "launches": 1,
    }  # fmt: skip
    return Configuration(name=name, total_us=us, first=first, **{**fields, **more})  # type: ignore[arg-type]


# --- names

ELEMENTWISE = (
    "_ZN2at6native29vectorized_elementwise_kernelILi4EZZZNS0_18GeluCUDAKernelImplERNS_18TensorIteratorBaseENS0_8"
    "GeluTypeEENKUlvE0_clEvENKUlvE0_clEvEUlfE_St5arrayIPcLm2EEEEviT0_T1_"
)


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("_Z11reduce_rowsI3SumEvPKfPfi", "reduce_rows"),
        ("_Z9transposeILb1EEvPKfPfi", "transpose"),
        ("_Z6gatherPKfPKiPfm", "gather"),
        ("_ZN7cutlass7Kernel2I43cutlass_80_simt_sgemm_256x128_8x4_nn_align1EEvNT_6ParamsE", "Kernel2"),
        (ELEMENTWISE, "vectorized_elementwise_kernel"),
        ("_ZN4testI3fooE6kernelEv", "kernel"),
        ("triton_poi_fused_0", "triton_poi_fused_0"),
        ("_Z", "_Z"),
        ("_Z999999999999999999x", "_Z999999999999999999x"),
        ("void ns::gemm_tiled<float, (int)4>(float *, int)", "gemm_tiled"),
        ("void at::native::<unnamed>::norm<c10::BFloat16>(int)", "norm"),
        ("void (anonymous namespace)::k<int>(int)", "k"),
        ("fill(float *)", "fill"),
    ],
)
def test_the_function_in_a_name(name: str, function: str) -> None:
    assert function_of(name) == function


@pytest.mark.parametrize("file", ["h200-elementwise", "h200-gemm", "h200-attention-other"])
def test_the_function_is_the_one_that_ncu_names(file: str) -> None:
    for kernel in recorded.read(recorded.SHARED / f"{file}.ncu-rep.xz").kernels:
        assert function_of(kernel.mangled) == kernel.name, kernel.mangled
        assert function_of(kernel.demangled) == kernel.name, kernel.demangled


@given(st.text(max_size=60))
def test_any_text_is_a_name(text: str) -> None:
    assert isinstance(function_of(text), str) and isinstance(function_of("_Z" + text), str)


# --- choosing


def test_the_longest_are_chosen_until_the_share_is_reached() -> None:
    rows = [row(f"k{n:02}", us=100.0 / 2**n, first=n) for n in range(20)]
    assert [one.name for one in choose(rows, 50, 0.95).chosen] == [f"k{n:02}" for n in range(FEW)], "few cost little"
    even = [row(f"k{n:02}", us=1.0, first=n) for n in range(40)]
    chosen = choose(even, 50, 0.95)
    assert len(chosen.chosen) == 38 and [one.name for one in chosen.left_out] == ["k38", "k39"]
    assert len(choose(even, 7, 0.95).chosen) == 7


def test_the_share_is_that_of_what_the_filters_admit() -> None:
    rows = [row("nccl", us=1000.0), *(row(f"k{n:02}", us=1.0, first=n) for n in range(20))]
    choice = choose(rows, 50, 0.5, [one.name != "nccl" for one in rows])
    assert len(choice.chosen) == 10 and [one.name for one in choice.not_admitted] == ["nccl"]


def test_a_choice_without_every_compilers_name_names_none() -> None:
    assert choose([row("a"), row("b", grid=(9, 1, 1))], 5, 1).names == ("_Z1av", "_Z1bv")
    assert choose([row("a"), row("b", mangled="")], 5, 1).names == ()


def test_configurations_of_a_chosen_name_come_with_it_and_count() -> None:
    # 20 kernels of 5 us each, and `wide` in ten shapes that hold half of the time together.
    shapes = [row("wide", grid=(n, 1, 1), us=14.0 if n == 1 else 9.5) for n in range(1, 11)]
    rows = [*(row(f"k{n:02}", us=5.0) for n in range(20)), *shapes]
    choice = choose(rows, 50, 0.6)
    assert [one.name for one in choice.chosen].count("wide") == 10
    assert len(choice.names) < 10, "what comes with a name need not come from further ones"
    assert sum(one.total_us for one in choice.chosen) >= 0.6 * sum(one.total_us for one in rows)
    assert {*choice.chosen, *choice.left_out} == {*rows}
    assert len(choose(rows, 4, 1).chosen) == 4, "and no more than asked for"


def test_a_name_whose_shapes_cost_more_than_they_hold_comes_last() -> None:
    """Twelve shapes of one name, one of them longer than those of ten other kernels."""
    shapes = [row("map", grid=(n, 1, 1), us=3.0 if n == 1 else 0.01) for n in range(1, 13)]
    rows = [
        *(row(f"k{n:02}", us=20.0, first=n) for n in range(4)),
        *(row(f"s{n:02}", us=2.0) for n in range(10)),
        *shapes,
    ]
    names = {one.name for one in choose(rows, 15, 0.95).chosen}
    assert "map" not in names and len(names) == 13
    assert "map" in {one.name for one in choose(rows, 50, 0.99).chosen}


def test_a_name_without_which_the_share_cannot_be_reached_is_chosen_first() -> None:
    """A kernel in very many shapes: each short, together a third of the time."""
    shapes = [row("attention", grid=(n, 1, 1), us=1.0, first=n) for n in range(1, 101)]
    rows = [*(row(f"k{n:02}", us=20.0) for n in range(10)), *shapes]
    assert "attention" in {one.name for one in choose(rows, 20, 0.95).chosen}


def many_shapes() -> list[Configuration]:
    """Tokens are generated one after another: two kernels in a new configuration each time, one always in the same."""
    grown = [row(name, grid=(n, 1, 1), us=1.0 + n / 1000, first=1000 - n) for name in "ab" for n in range(300)]
    return [row("c", us=40.0), *grown]


def test_names_with_more_shapes_than_may_be_profiled_are_chosen_by_name() -> None:
    choice = choose(many_shapes(), 50, 0.95)
    assert choice.by_name and sorted(one.name for one in choice.chosen) == ["a", "b", "c"] and not choice.left_out
    assert {one.grid[0] for one in choice.chosen if one.name != "c"} == {299}, "the first that is launched"
    assert not choose(many_shapes(), 1000, 0.95).by_name


def test_a_launch_that_stands_for_a_name_has_all_its_launches() -> None:
    survey = Survey("cupti", tuple(many_shapes()))
    found = standing(survey, choose(survey.configurations, 50, 0.95))
    assert len(found.configurations) == 3
    assert (found.launches, found.total_us) == (survey.launches, pytest.approx(survey.total_us))
    assert standing(survey, choose(survey.configurations, 1000, 0.95)) is survey


def test_processes_and_repeats_are_one_row() -> None:
    rows = merged([row(us=2, first=5, launches=3), row(us=4, first=1, launches=1), row(us=1, device=1)])
    assert [(one.launches, one.total_us, one.processes, one.first) for one in rows] == [(1, 1, 1, 0), (4, 6, 2, 1)]


# --- reading


LINE = "launch\t{}\t{}\t1\t9\t{}\t0\t8\t1\t1\t128\t1\t1\t1024\t{}\t0\t{}"


def write_rows(folder: Path, name: str, *lines: str, end: str | None = "end\t0") -> None:
    text = "\n".join(["process\t1\t/app", *lines, *((end,) if end else ())])
    (folder / f"{name}.tsv").write_text(text + "\n")


def test_rows_of_the_injected_library(tmp_path: Path) -> None:
    write_rows(tmp_path, "1", LINE.format(3, 9000, 50, 16, "_Z3mapI3AddEvPf"), LINE.format(1, 700, 20, 0, "fill"))
    write_rows(tmp_path, "2", LINE.format(2, 1000, 60, 16, "_Z3mapI3AddEvPf"))
    rows, complete, errors = survey.read_injected(tmp_path)
    assert complete and not errors
    assert [(one.name, one.mangled, one.launches, one.total_us, one.shared, one.processes) for one in rows] == [
        ("fill", "fill", 1, 0.7, 0, 1),
        ("map", "_Z3mapI3AddEvPf", 5, 10.0, 16, 2),
    ]
    assert rows[0].grid == (8, 1, 1) and rows[0].block == (128, 1, 1) and rows[0].device == 0


@pytest.mark.parametrize("end", [None, "end\t7"], ids=["killed", "records dropped"])
def test_a_process_without_its_last_records_is_incomplete(tmp_path: Path, end: str | None) -> None:
    write_rows(tmp_path, "1", LINE.format(3, 9000, 50, 0, "fill"), end=end)
    rows, complete, _ = survey.read_injected(tmp_path)
    assert len(rows) == 1 and not complete


def test_the_librarys_error_is_told(tmp_path: Path) -> None:
    write_rows(tmp_path, "1", "error\tcuptiActivityEnable: CUPTI_ERROR_NOT_INITIALIZED", "launch\t1")
    assert survey.read_injected(tmp_path) == ((), True, ("cuptiActivityEnable: CUPTI_ERROR_NOT_INITIALIZED",))


def nsys_database(path: Path, kernels: list[tuple[int, int, int, int, int]]) -> None:
    """A database as `nsys export` writes it: (start, end, name, grid, device)."""
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
        connection.executemany("INSERT INTO StringIds VALUES (?, ?)", [(1, "map"), (2, "_Z3mapI3AddEvPf"), (3, "fill")])
        if not kernels:
            return
        connection.execute(
            "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, gridX, gridY, gridZ, blockX, blockY,"
            " blockZ, dynamicSharedMemory, shortName, mangledName, demangledName)"
        )
        for start, end, name, grid, device in kernels:
            short, mangled = (1, 2) if name == 2 else (3, 3)
            values = (start, end, device, grid, 1, 1, 64, 1, 1, 0, short, mangled, 9)
            connection.execute(f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({', '.join('?' * 13)})", values)


def test_kernels_of_an_nsys_database(tmp_path: Path) -> None:
    nsys_database(tmp_path / "a.sqlite", [(100, 300, 2, 4, 0), (400, 900, 2, 4, 0), (50, 60, 3, 4, 0)])
    rows = survey.read_nsys(tmp_path / "a.sqlite")
    assert [(one.name, one.mangled, one.launches, one.total_us) for one in rows] == [
        ("fill", "fill", 1, 0.01),
        ("map", "_Z3mapI3AddEvPf", 2, 0.7),
    ]
    nsys_database(tmp_path / "b.sqlite", [])
    assert survey.read_nsys(tmp_path / "b.sqlite") == ()
    (tmp_path / "c.sqlite").write_text("no database")
    with pytest.raises(sqlite3.Error):
        survey.read_nsys(tmp_path / "c.sqlite")


def test_a_survey_is_kept_as_it_was() -> None:
    found = Survey("cupti", (row(us=2.5, device=1, graph=True), row("b")), 1.5, False, 3, ("a note",))
    assert survey.from_json(survey.to_json(found)) == found
    for text in ("{}", "[]", "nothing", '{"diagnose_survey": 1}', survey.to_json(found).replace("grid", "gird")):
        with pytest.raises(ValueError):
            survey.from_json(text)


# --- counts and what was profiled


def profile() -> Profile:
    return recorded.read(SHARED)


def surveyed(times: int = 10) -> Survey:
    rows = survey.of_profile(profile())
    return Survey("cupti", tuple(replace(one, launches=times, total_us=one.total_us * times) for one in rows))


def test_counts_meet_the_launches_of_the_same_configuration() -> None:
    found, profiled = counted(profile(), surveyed())
    assert all(kernel.counted is not None for kernel in found.kernels)
    assert sum(kernel.counted.launches for kernel in found.kernels if kernel.counted) == 10 * len(profiled)
    for kernel in found.kernels:
        assert kernel.counted is not None
        us = (kernel.number("gpu__time_duration.sum") or 0.0) / 1e3
        assert kernel.counted.total_us == pytest.approx(10 * us)


def test_counts_of_another_grid_do_not_count() -> None:
    first = surveyed().configurations[0]
    other = Survey("cupti", (replace(first, grid=(first.grid[0] + 1, *first.grid[1:])),))
    found, profiled = counted(profile(), other)
    assert not profiled and not any(kernel.counted for kernel in found.kernels)


def test_results_of_several_processes_share_their_launches() -> None:
    one = profile()
    twice = replace(one, kernels=(*one.kernels, *one.kernels))
    found, _ = counted(twice, surveyed())
    total = sum(kernel.counted.total_us for kernel in found.kernels if kernel.counted)
    assert total == pytest.approx(surveyed().total_us)


def test_a_tool_without_compilers_names_or_devices_is_joined_by_function() -> None:
    rows = tuple(replace(one, mangled="", device=None) for one in surveyed().configurations)
    names = [(one.name, one.grid, one.block) for one in rows]
    found, _ = counted(
        profile(), Survey("nsys", tuple(r for r, n in zip(rows, names, strict=True) if names.count(n) == 1))
    )
    assert any(kernel.counted for kernel in found.kernels)


def test_ranges_have_no_configuration() -> None:
    assert configuration_of(replace(profile().kernels[0], workload="range")) is None


# --- running


def program(folder: Path, body: str) -> str:
    path = folder / "program"
    path.write_text(f"#!{sys.executable}\nimport os, sys, time\nfrom pathlib import Path\n{body}")
    path.chmod(0o755)
    return str(path)


ROWS = "\n".join(("process\t1\t/app", LINE.format(3, 9000, 50, 0, "fill"), "end\t0")) + "\n"
COUNTING = f"""
folder = os.environ.get("DIAGNOSE_SURVEY")
if folder:
    assert os.environ["CUDA_INJECTION64_PATH"].endswith(".so")
    Path(folder, "1.tsv").write_text({ROWS!r})
"""


@pytest.fixture(autouse=True)
def a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine has a GPU."""
    monkeypatch.setattr(surveying, "gpus", lambda: (Gpu("NVIDIA H200", "580", 90, False),))


def test_without_a_gpu_the_program_is_not_run_to_count_nothing(
    injection: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(surveying, "gpus", lambda: ())
    assert surveying.method_for("auto", SurveyOptions(("app",))) == ("none", "nvidia-smi names no GPU here")
    assert surveying.method_for("cupti", SurveyOptions(("app",)))[0] == "cupti", "the user knows better"


@pytest.fixture
def injection(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUPTI is there; the programs write what the library would."""
    monkeypatch.setattr(surveying, "build_injection", lambda: Path("/nowhere/library.so"))
    monkeypatch.delenv("CUDA_INJECTION64_PATH", raising=False)


def told(options: SurveyOptions, asked: str = "auto") -> tuple[Survey | None, tuple[str, ...]]:
    return surveying.run(asked, options, lambda text: None)


def test_a_survey_by_cupti(tmp_path: Path, injection: None, capfd: pytest.CaptureFixture[str]) -> None:
    found, notes = told(SurveyOptions((program(tmp_path, COUNTING + "print('hello')"),)))
    assert found is not None and not notes
    assert (found.method, found.launches, found.total_us, found.complete, found.target_exit) == ("cupti", 3, 9, True, 0)
    assert capfd.readouterr().out == "", "the profiling run prints it"


def test_the_programs_status_is_kept(tmp_path: Path, injection: None) -> None:
    found, _ = told(SurveyOptions((program(tmp_path, COUNTING + "sys.exit(3)"),)))
    assert found is not None and found.target_exit == 3


def test_a_program_without_kernels_is_run_once(
    tmp_path: Path, injection: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = "Path('runs').open('a').write('x')"
    monkeypatch.chdir(tmp_path)
    assert told(SurveyOptions((program(tmp_path, body),), ncu=str(FAKE))) == (None, ())
    assert (tmp_path / "runs").read_text() == "x", "another tool would see no kernel either"


def test_the_next_tool_follows_one_that_fails(tmp_path: Path, injection: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surveying, "find_nsys", lambda: None)
    monkeypatch.setitem(surveying._RUN, "ncu", lambda options, progress: Survey("ncu", (row(),)))
    failing = 'Path(os.environ["DIAGNOSE_SURVEY"], "1.tsv").write_text("error\\tno CUPTI here\\nend\\t0\\n")'
    found, notes = told(SurveyOptions((program(tmp_path, failing),)))
    assert found is not None and found.method == "ncu" and notes == ("survey by cupti: CUPTI: no CUPTI here",)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"selection": Selection(nvtx=("step/",))}, "--nvtx"),
        ({"selection": Selection(skip=3)}, "--launch-skip"),
        ({"selection": Selection(process="x")}, "--process"),
        ({"selection": Selection("regex:f<a>", demangled=True)}, "--demangled"),
        ({"replay": "range"}, "--replay range"),
        ({"graph": "graph"}, "graphs"),
    ],
)
def test_where_a_survey_could_not_choose_there_is_none(options: dict[str, object], why: str, injection: None) -> None:
    method, said = surveying.method_for("auto", SurveyOptions(("app",), **options))  # type: ignore[arg-type]
    assert method == "none" and why in said


def test_an_input_that_can_be_read_once_is_left_to_the_profiling_run(
    injection: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(surveying, "stdin_can_be_read_again", lambda: False)
    assert surveying.method_for("auto", SurveyOptions(("app",)))[0] == "none"
    assert surveying.method_for("cupti", SurveyOptions(("app",)))[0] == "cupti", "the user knows better"


def test_another_tools_injection_is_left_alone(injection: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_INJECTION64_PATH", "/other.so")
    monkeypatch.setattr(surveying, "find_nsys", lambda: None)
    assert surveying.method_for("auto", SurveyOptions(("app",)))[0] == "ncu"
    with pytest.raises(DiagnoseError, match="CUDA_INJECTION64_PATH is set"):
        surveying.method_for("cupti", SurveyOptions(("app",)))


def test_a_method_that_is_not_here_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surveying, "find_nsys", lambda: None)
    with pytest.raises(DiagnoseError, match="--survey nsys: no nsys"):
        surveying.method_for("nsys", SurveyOptions(("app",)))
    monkeypatch.setattr(surveying, "cupti_places", list)
    monkeypatch.delenv("CUDA_INJECTION64_PATH", raising=False)
    with pytest.raises(DiagnoseError, match="--survey cupti: no CUPTI"):
        surveying.method_for("cupti", SurveyOptions(("app",)))


def test_a_survey_that_takes_too_long_is_stopped_and_used(tmp_path: Path, injection: None) -> None:
    began = time.monotonic()
    found, _ = told(SurveyOptions((program(tmp_path, COUNTING + "time.sleep(60)"),), timeout_s=2.0, grace_s=3.0))
    assert time.monotonic() - began < 20
    assert found is not None and found.launches == 3 and not found.complete


def test_ctrl_c_during_a_survey_ends_it(tmp_path: Path, injection: None) -> None:
    started = tmp_path / "started"
    body = f"Path({str(started)!r}).touch()\ntime.sleep(60)"

    def press() -> None:
        while not started.exists():
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=press)
    thread.start()
    with pytest.raises(surveying.Interrupted):
        told(SurveyOptions((program(tmp_path, body),), grace_s=3.0))
    thread.join()


def test_a_file_on_stdin_is_read_by_both_runs(tmp_path: Path, injection: None, monkeypatch: pytest.MonkeyPatch) -> None:
    words = tmp_path / "words"
    words.write_text("one two")
    text = "Path('read').open('a').write(sys.stdin.read() + ';')"
    target = program(tmp_path, COUNTING + text)
    before = os.dup(0)
    monkeypatch.chdir(tmp_path)
    try:
        with words.open() as file:
            os.dup2(file.fileno(), 0)
            told(SurveyOptions((target,)))
            told(SurveyOptions((target,)))
    finally:
        os.dup2(before, 0)
        os.close(before)
    assert (tmp_path / "read").read_text() == "one two;one two;"


def test_a_survey_by_nsys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nsys_database(tmp_path / "kept.sqlite", [(100, 300, 2, 4, 0)])
    fake = tmp_path / "nsys"
    fake.write_text(
        '#!/bin/sh\nfor word in "$@"; do case $word in --output=*) out=${word#--output=};; esac; done\n'
        f'if [ "$1" = export ]; then cp {tmp_path}/kept.sqlite "$out"; exit; fi\n'
        'touch "$out"; while [ "${1#-}" != "$1" ] || [ "$1" = profile ]; do shift; done; "$@"\n'
    )
    fake.chmod(0o755)
    monkeypatch.setattr(surveying, "find_nsys", lambda: fake)
    monkeypatch.chdir(tmp_path)
    found, notes = told(SurveyOptions((program(tmp_path, "Path('ran').touch()"),)), "nsys")
    assert found is not None and (found.method, found.launches) == ("nsys", 1) and not notes
    assert (tmp_path / "ran").exists()
    (tmp_path / "kept.sqlite").write_text("no database")
    with pytest.raises(DiagnoseError, match="gave no readable survey"):
        told(SurveyOptions(("true",)), "nsys")


def test_nsys_inside_nsight_computes_tree_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = tmp_path / "nsight-compute" / "host"
    inside.mkdir(parents=True)
    (inside / "nsys").write_text("#!/bin/sh\n")
    (inside / "nsys").chmod(0o755)
    monkeypatch.setenv("PATH", str(inside))
    monkeypatch.setattr(surveying, "_NSYS_PLACES", ())
    assert surveying.find_nsys() is None


def test_the_library_builds_against_the_cupti_that_is_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not surveying.cupti_places() or surveying.compiler() is None:
        pytest.skip("no CUPTI or no C++ compiler here")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    built = surveying.build_injection()
    assert b"InitializeInjection" in built.read_bytes()
    when = built.stat().st_mtime_ns
    assert surveying.build_injection() == built and built.stat().st_mtime_ns == when, "built once"


def test_the_page_on_collection_is_up_to_date() -> None:
    assert gen_collection.page() == gen_collection.PAGE.read_text("utf-8"), "python tests/gen_collection.py"


@pytest.mark.parametrize(
    ("pieces", "kept"),
    [
        ([b"abc", b"defg"], b"abcdefg"),
        ([b"abcdef", b"ghij", b"klmno", b"p"], b"ghijklmnop"),  # whole pieces, as many as fill the limit
        ([b"x" * 50], b"x" * 50),
        ([], b""),
    ],
)
def test_the_end_of_what_a_program_prints_is_kept(pieces: list[bytes], kept: bytes) -> None:
    tail = Tail(10, 100)
    for piece in pieces:
        tail.append(piece)
    assert tail.read() == kept


def account(script: str, settled: bool = False) -> int | None:
    """What a shell script is said to have written to disks."""
    process = subprocess.Popen(["sh", "-c", script], stdout=subprocess.DEVNULL)
    while not has_ended(process.pid):
        time.sleep(0.01)
    told = written_bytes(process.pid, settled)
    process.wait()
    return told


def needs_a_disk(folder: Path) -> int:
    """What a script that writes nothing is said to have written; skips where no file would count."""
    nothing, file = account("true"), account(f"head -c 300000 /dev/zero > {folder}/probe; true")
    if nothing is None or file is None or file <= nothing:
        pytest.skip("no account of what is written here, or a file system in memory")
    return nothing


def test_what_is_written_to_disks_is_told(tmp_path: Path) -> None:
    """By the process and by children that it waited for; pipes do not count."""
    nothing = needs_a_disk(tmp_path)
    file, pipe = account(f"head -c 300000 /dev/zero > {tmp_path}/a; true"), account("head -c 300000 /dev/zero | cat")
    assert file is not None and pipe is not None
    assert file >= 300_000 > 100_000 > max(nothing, pipe)  # reading may set a file's time of access: some blocks


def test_what_is_written_and_deleted_again_does_not_count(tmp_path: Path) -> None:
    needs_a_disk(tmp_path)
    assert settle_disks(60.0)
    temporary = f"head -c 4096 /dev/zero > {tmp_path}/t; rm {tmp_path}/t"
    told = [account(temporary, settled=True) for _ in range(3)]  # the first may set times of access
    assert told[-1] == 0
    assert account(temporary), "if not settled, it may be another program's file that was deleted"


def test_a_result_that_is_replaced_counts(tmp_path: Path) -> None:
    """As much is taken from the account as is written, were the file before not on the disk by then."""
    needs_a_disk(tmp_path)
    replaced = f"head -c 40960 /dev/zero > {tmp_path}/result"
    account(replaced)
    assert settle_disks(60.0)
    told = account(replaced, settled=True)
    assert told is not None and told >= 40960
