"""collect: finding ncu, the command line, preflight, and running with a stand-in ncu that plays every known failure."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import shutil
import signal
import stat
import subprocess
import sys
import sysconfig
import termios
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from diagnose.collect import failures, find, host
from diagnose.collect.failures import read_log
from diagnose.collect.plan import (
    CODE_METRICS,
    SINGLE_PASS,
    Plan,
    Selection,
    kernel_expression,
    metric_set,
    ncu_command,
)
from diagnose.collect.preflight import free_paths, resolve_target
from diagnose.collect.run import Collected, CollectOptions, collect
from diagnose.errors import EXIT_NOTHING_MEASURED, EXIT_USAGE, DiagnoseError

FAKE = Path(__file__).parent / "fake_ncu" / "ncu"
GEMM = [["gemm", 38]]


def script(path: Path, text: str) -> str:
    path.write_text(textwrap.dedent(text))
    path.chmod(0o755)
    return str(path)


class Runner:
    """Runs collect with the stand-in and a scenario; keeps what it was told."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.monkeypatch = monkeypatch
        self.told: list[str] = []
        self.record = folder / "commands"
        monkeypatch.setenv("FAKE_NCU_RECORD", str(self.record))

    def __call__(
        self, target: str | list[str] = "true", options: dict[str, Any] | None = None, **scenario: Any
    ) -> Collected:
        path = self.folder / "scenario.json"
        path.write_text(json.dumps(scenario))
        self.monkeypatch.setenv("FAKE_NCU_SCENARIO", str(path))
        words = [target] if isinstance(target, str) else target
        settings = {"profile": self.folder / "out.ncu-rep", "ncu": str(FAKE), "grace_s": 5.0, **(options or {})}
        return collect(CollectOptions(target=tuple(words), **settings), self.told.append)

    def fails(
        self, target: str | list[str] = "true", options: dict[str, Any] | None = None, **scenario: Any
    ) -> DiagnoseError:
        with pytest.raises(DiagnoseError) as raised:
            self(target, options, **scenario)
        error = raised.value
        assert "\n" not in error.message and "\n" not in error.hint, "one line each"
        assert error.message and error.hint
        assert not (self.folder / "out.ncu-rep").exists(), "a run that measured nothing leaves no profile"
        return error

    @property
    def commands(self) -> list[list[str]]:
        return [json.loads(line) for line in self.record.read_text().splitlines()]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runner:
    monkeypatch.chdir(tmp_path)
    return Runner(tmp_path, monkeypatch)


# --- a run that works


def test_keeps_the_report_and_says_how_it_was_made(run: Runner) -> None:
    done = run(launches=[["gemm", 38], ["fill", 38]])
    assert done.profile == run.folder / "out.ncu-rep"
    assert done.profile.read_bytes() == b"NVR\0report"
    assert (done.ncu_version, done.ncu_path, done.target_exit) == ("2025.3.1.0", FAKE, 0)
    assert (done.clock_control, done.cache_control, done.replay) == ("none", "all", "kernel")
    assert not done.interrupted and not done.timed_out and done.warnings == () and done.profiled == 2
    assert "profiled 2: fill (38 passes)" in run.told
    assert list(done.command) == run.commands[0]


def test_says_what_is_left_out(run: Runner) -> None:
    capped = run(launches=GEMM * 3, options={"plan": Plan(selection=Selection(max_launches=3))})
    assert any("collectives (nccl*, nvshmem*)" in line for line in capped.left_out)
    assert any("one launch of each kernel per launch configuration" in line for line in capped.left_out)
    assert any("after the first 3 (--max-launches 3)" in line for line in capped.left_out)
    named = run(launches=GEMM, options={"plan": Plan(selection=Selection("gemm")), "profile": run.folder / "2.ncu-rep"})
    assert any("do not match --kernel gemm" in line for line in named.left_out)
    assert not any("max-launches" in line for line in named.left_out)


PROGRAM = [["first", 9, 65536], ["second", 9, 65536], ["first", 9, 32768]] * 5


def test_every_launch_configuration_of_a_kernel_is_profiled_once(run: Runner) -> None:
    done = run(program=PROGRAM)
    assert done.profiled == 3 and done.target_exit == 0
    assert [text.split(": ")[1] for text in run.told if text.startswith("profiled ")] == [
        "first (9 passes)", "second (9 passes)", "first (9 passes)",
    ]  # fmt: skip
    assert not any("max-launches" in line for line in done.left_out)


def test_an_old_ncu_profiles_each_name_once_and_that_is_said(run: Runner) -> None:
    done = run(program=PROGRAM, version="2022.1.0.0")
    assert done.profiled == 2
    assert any("one launch of each kernel name stands for its launch configurations" in line for line in done.left_out)


def test_the_cap_of_the_run_stops_ncu_and_keeps_what_is_profiled(run: Runner) -> None:
    """ncu counts by configuration: with eight of them, its own limit of 3 would never be reached."""
    plan = Plan(selection=Selection(max_launches=3))
    program = [["first", 9, grid] for grid in range(1, 9)]
    done = run(["sleep", "30"], {"plan": plan}, program=program, wait_s=0.2)
    assert done.profile is not None and 3 <= done.profiled <= 5
    assert done.target_exit is None and not done.interrupted and not done.timed_out and done.warnings == ()
    assert any(f"the first {done.profiled} (--max-launches 3): the program was stopped" in x for x in done.left_out)
    assert any(text.startswith("stopped: ") for text in run.told)


def test_a_program_that_ends_at_the_cap_is_not_stopped(run: Runner) -> None:
    plan = Plan(selection=Selection(max_launches=3))
    done = run(["sleep", "0.3"], {"plan": plan}, program=PROGRAM)
    assert done.profiled == 3 and done.target_exit == 0
    assert not any(text.startswith("stopped") for text in run.told)


def test_the_targets_output_goes_to_stderr_byte_by_byte(run: Runner, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    target = script(
        run.folder / "noisy",
        f"""\
        #!{sys.executable}
        import os, sys
        for n in range(64):
            os.write(1, bytes(range(128, 256)) * 512)
            os.write(2, b"\\xff\\xfe" * 32768)
        """,
    )
    run([target], launches=GEMM)
    out, err = capfdbinary.readouterr()
    assert out == b"", "stdout carries only the chosen format"
    assert len(err) == 64 * (65536 + 65536)
    assert err.count(b"\xff\xfe") >= 64 * 32768 and b"\x80\x81" in err


def test_the_targets_output_goes_to_a_file(run: Runner, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    run(["sh", "-c", "echo out; echo err >&2"], {"target_output": run.folder / "o"}, launches=GEMM)
    assert (run.folder / "o").read_bytes() == b"out\nerr\n"
    assert capfdbinary.readouterr() == (b"", b"")


def test_stdin_is_passed_on(run: Runner) -> None:
    (run.folder / "s.json").write_text(json.dumps({"launches": GEMM}))
    program = (
        "from pathlib import Path; from diagnose.collect.run import *;"
        f"collect(CollectOptions(('sed', 's/^/got /'), Path('p.ncu-rep'), ncu={str(FAKE)!r}), lambda text: None)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=b"one\ntwo\xff\n",
        capture_output=True,
        env={**os.environ, "FAKE_NCU_SCENARIO": str(run.folder / "s.json"), "PYTHONPATH": str(FAKE.parents[2])},
        timeout=60,
        check=True,
    )
    assert done.stdout == b"" and done.stderr == b"got one\ngot two\xff\n"


def test_a_name_with_percent_signs_is_no_macro(run: Runner) -> None:
    profile = run.folder / "50%h.ncu-rep"
    assert run(launches=GEMM, options={"profile": profile}).profile == profile
    assert run.commands[0][2].endswith("/50%%h.ncu-rep")


def test_a_report_under_another_suffix_is_found(run: Runner) -> None:
    done = run(launches=GEMM, suffix=".ncu-rep", options={"profile": run.folder / "x"})
    assert done.profile == run.folder / "x.ncu-rep"
    assert not (run.folder / "x").exists(), "the empty reservation is removed"


def test_a_launch_is_called_by_its_kernels_name() -> None:
    log = read_log(
        '==PROF== Profiling "1:7:f<a::b>:1": 0%....50%....100% - 22 passes\n'
        '==PROF== Profiling "1:7:g:2": 0%.. - 9 passes\n'
        '==ERROR== Failed to profile "g" in process 12\n==WARNING== Note: Running with unmodified GPU clocks. If not\n'
    )
    assert [launch.name for launch in log.done] == ["f"] and log.replaying == "g"
    assert log.warnings == ()


def test_a_metric_that_cannot_be_named_is_recognised_without_its_suffix() -> None:
    log = read_log(r"==ERROR== Failed to find metric regex:^derived__x_pct\.(sum|min|max)$")
    assert log.unknown_metrics == ("derived__x_pct",)


def test_unknown_metrics_are_left_out_and_named(run: Runner) -> None:
    plan = Plan(metrics=("gpu__time_duration.sum", "a__new.sum", "b__new.avg"))
    done = run(launches=GEMM, unknown_metrics=["a__new.sum"], options={"plan": plan})
    assert "a__new.sum" in done.warnings[0] and done.profile is not None
    assert "gpu__time_duration.sum,b__new.avg" in run.commands[1]


def test_ncus_warnings_are_kept_once(run: Runner) -> None:
    warning = "==WARNING== Could not access metric x. If profiling on a MIG instance, shared units are not counted."
    done = run(launches=GEMM, before=[warning, warning])
    assert len(done.warnings) == 1 and "Could not access metric x" in done.warnings[0]


# --- preflight: what fails before anything is profiled


def test_a_folder_that_cannot_be_written_fails_first(run: Runner) -> None:
    error = run.fails(launches=GEMM, options={"profile": Path("/proc/out.ncu-rep")})
    assert error.exit_code == EXIT_USAGE and "/proc" in error.message
    assert not run.record.exists(), "ncu was not started"


def test_a_missing_folder_fails_first(run: Runner) -> None:
    assert "nowhere" in run.fails(options={"profile": run.folder / "nowhere" / "o.ncu-rep"}).message


def test_an_existing_profile_is_not_overwritten(run: Runner) -> None:
    (run.folder / "kept.ncu-rep").write_text("mine")
    error = run.fails(options={"profile": run.folder / "kept.ncu-rep"})
    assert error.exit_code == EXIT_USAGE and (run.folder / "kept.ncu-rep").read_text() == "mine"


def test_free_paths_take_one_number_for_both(tmp_path: Path) -> None:
    html, profile = tmp_path / "diagnose-report.html", tmp_path / "diagnose-report.ncu-rep"
    assert free_paths(html, profile) == (html, profile)
    assert profile.read_bytes() == b"", "reserved"
    (tmp_path / "diagnose-report-2.html").touch()
    assert free_paths(html, profile) == (tmp_path / "diagnose-report-3.html", tmp_path / "diagnose-report-3.ncu-rep")
    assert free_paths(html, None) == (html, None)
    assert free_paths(None, None) == (None, None)


def test_free_paths_are_distinct_for_runs_at_the_same_time(tmp_path: Path) -> None:
    got: list[Path | None] = []
    threads = [
        threading.Thread(target=lambda: got.append(free_paths(tmp_path / "r.html", tmp_path / "r.ncu-rep")[1]))
        for _ in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(got)) == 16


def test_free_paths_refuse_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(DiagnoseError) as raised:
        free_paths(Path("/proc/x.html"), tmp_path / "r.ncu-rep")
    assert raised.value.exit_code == EXIT_USAGE and not list(tmp_path.iterdir())


@pytest.mark.parametrize("given", ["./matmull", "matmull"])
def test_a_missing_target_names_what_is_near(run: Runner, given: str) -> None:
    script(run.folder / "matmul", "#!/bin/sh\n")
    error = run.fails(given)
    assert error.exit_code == EXIT_USAGE and "matmull" in error.message
    assert error.hint.startswith("diagnose ./matmul") and not run.record.exists()


def test_a_folder_is_no_target(run: Runner) -> None:
    (run.folder / "build").mkdir()
    script(run.folder / "build" / "app", "#!/bin/sh\n")
    error = run.fails("./build")
    assert "is a folder" in error.message and error.hint == "diagnose ./build/app"


@pytest.mark.parametrize(
    ("name", "text", "mode", "message", "hint"),
    [
        ("train.py", "print(1)", 0o644, "not executable", "diagnose python3 ./train.py"),
        ("app", "\x7fELF", 0o644, "not executable", "chmod +x ./app"),
        ("a b.cu", "void", 0o644, "not executable", "nvcc -O3 -lineinfo -o 'a b' './a b.cu' && diagnose ./'a b'"),
        ("page.html", "<!doctype html>", 0o644, "not executable", "diagnose open ./page.html"),
        ("k.cubin", "\x7fELF", 0o644, "not executable", "diagnose static ./k.cubin"),
        ("steps", "echo hi\n", 0o755, "neither a binary", "diagnose sh ./steps"),
        ("empty", "", 0o755, "is empty", "diagnose sh ./empty"),
        ("old", "#!/no/such/perl\n", 0o755, "/no/such/perl", "diagnose python3 ./old"),
        ("odd", "#!\n", 0o755, "interpreter", "diagnose python3 ./odd"),
    ],
)
def test_a_file_that_cannot_run_is_refused(
    run: Runner, name: str, text: str, mode: int, message: str, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = run.folder / name
    path.write_text(text)
    path.chmod(mode)
    real = os.access
    monkeypatch.setattr(  # for root, access says yes where no execute bit is set on some systems
        os, "access", lambda p, m, **k: bool(os.stat(p).st_mode & stat.S_IXUSR) if m == os.X_OK else real(p, m, **k)
    )
    error = run.fails(f"./{name}")
    assert message in error.message and error.hint.startswith(hint) and error.exit_code == EXIT_USAGE


def test_bare_names_are_found_on_path_then_here(run: Runner) -> None:
    script(run.folder / "static", "#!/bin/sh\n")
    assert resolve_target(["static", "-x"]) == ("./static", "-x")
    assert resolve_target(["sh"]) == ("sh",)
    with pytest.raises(DiagnoseError):
        resolve_target([])


# --- finding ncu


def test_no_ncu_is_error_3(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DIAGNOSE_NCU", raising=False)
    monkeypatch.setattr(find, "NCU_PLACES", ())
    monkeypatch.setattr(shutil, "which", lambda name: None)
    error = run.fails(str(script(run.folder / "t", "#!/bin/sh\n")), {"ncu": None})
    assert error.exit_code == EXIT_NOTHING_MEASURED and error.hint.startswith("diagnose doctor")


def test_a_named_ncu_must_exist(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "--ncu names /no/ncu" in run.fails(options={"ncu": "/no/ncu"}).message
    monkeypatch.setenv("DIAGNOSE_NCU", "/no/other")
    assert "DIAGNOSE_NCU names /no/other" in run.fails(options={"ncu": None}).message


def test_the_order_in_which_ncu_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fake(folder: str, version: str) -> Path:
        path = tmp_path / folder
        path.mkdir(parents=True)
        return Path(script(path / "ncu", f"#!/bin/sh\necho Version {version} '(build 1)'\n"))

    monkeypatch.delenv("DIAGNOSE_NCU", raising=False)
    old, new = fake("cuda-12.4/bin", "2024.1.1.0"), fake("cuda-13.0/bin", "2025.10.0.0")
    monkeypatch.setattr(find, "NCU_PLACES", (str(tmp_path / "cuda-*/bin/ncu"),))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert find.find_ncu() == new and find.installed_ncus() == (new, old), "10 is newer than 9"
    on_path = fake("onpath", "2023.1.0.0")
    monkeypatch.setenv("PATH", f"{on_path.parent}:/usr/bin:/bin")
    assert find.find_ncu() == on_path
    monkeypatch.setenv("DIAGNOSE_NCU", str(old))
    assert find.find_ncu() == old
    assert find.find_ncu(str(new.parent)) == new, "a folder means the ncu in it"


def test_versions() -> None:
    assert find.ncu_version(FAKE) == "2025.3.1.0"
    assert find.ncu_version(Path("/no/ncu")) is None
    assert find.parse_version("2025.3.1.0") > find.parse_version("2024.10") > find.parse_version(None) == ()


def test_cuda_tools_are_found_in_cuda_home_and_wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("CUDA_PATH", raising=False)
    monkeypatch.setattr(find, "CUDA_PLACES", ())
    wheel = tmp_path / "site" / "nvidia"
    for cuda in ("cu12", "cu13"):
        (wheel / cuda / "bin").mkdir(parents=True)
        script(wheel / cuda / "bin" / "nvcc", "#!/bin/sh\necho Cuda compilation tools, release 13.0, V13.0.88\n")
    monkeypatch.setattr(sysconfig, "get_path", lambda kind: str(wheel.parent))
    monkeypatch.delenv("CUDA_HOME", raising=False)
    nvcc = find.find_cuda_tool("nvcc")
    assert nvcc == wheel / "cu13/bin/nvcc" and find.cuda_tool_version(nvcc) == "13.0.88"
    assert find.find_cuda_tool("nvdisasm") is None
    home = tmp_path / "home" / "bin"
    home.mkdir(parents=True)
    script(home / "nvcc", "#!/bin/sh\n")
    monkeypatch.setenv("CUDA_HOME", str(home.parent))
    assert find.find_cuda_tool("nvcc") == home / "nvcc"
    assert find.cuda_tool_version(home / "nvcc") is None


# --- the command line


def command(plan: Plan, version: str | None = "2025.3.1.0") -> str:
    words = ncu_command(plan, ["./app", "-n", "1"], Path("/x/ncu"), version, Path("/o/p.ncu-rep"), Path("/t/log"))
    return " ".join(words)


def test_the_default_command_line() -> None:
    assert command(Plan(metrics=("b", "a", "b"))) == (
        "/x/ncu --export /o/p.ncu-rep --force-overwrite --log-file /t/log --target-processes all "
        "--kernel-name-base mangled --filter-mode per-launch-config "
        "--kernel-id ::regex:^(?!(_ZN?[0-9]+)?(nccl|nvshmem)):1 --launch-count 50 "
        "--section LaunchStats --section Occupancy --section SourceCounters --section InstructionStats --metrics b,a "
        "--clock-control none --cache-control all --replay-mode kernel --import-source yes --apply-rules yes "
        "./app -n 1"
    )


def test_selections() -> None:
    assert "--kernel-id ::gemm:1 --launch-count 50 " in command(Plan(selection=Selection("gemm")))
    assert "--kernel-id ::regex:gemm|attn:1 " in command(Plan(selection=Selection("regex:gemm|attn")))
    assert "--target-processes all --kernel-id ::gemm:1 " in command(Plan(selection=Selection("gemm")), "2022.1.0.0")
    every = Plan(selection=Selection(per_config=False, max_launches=7, skip=3))
    assert "--kernel-name regex:^(?!(_ZN?[0-9]+)?(nccl|nvshmem)) --launch-skip 3 --launch-count 7 " in command(every)
    # A colon separates the parts of --kernel-id and cannot stand in an expression there.
    assert "--kernel-name regex:(?:a|b) --launch-count 50 " in command(Plan(selection=Selection("regex:(?:a|b)")))


@pytest.mark.parametrize("ranges", [{"nvtx": ("step/",)}, {"profiler_range": True}])
def test_within_a_range_one_launch_of_each_configuration_is_profiled(ranges: dict[str, Any]) -> None:
    words = command(Plan(selection=Selection(**ranges)))
    assert "--filter-mode per-launch-config --kernel-id ::regex:^" in words and "--kernel-name " not in words
    # Instances of a template share the function's name: by that, they would count as one.
    words = command(Plan(selection=Selection("gemm", **ranges)))
    assert "--kernel-name gemm " in words and "--kernel-id" not in words


def test_filters_go_to_ncu_as_they_are() -> None:
    chosen = Selection("gemm", nvtx=("step/", "a@b"), devices=(0, 2), process="train", count=4, max_launches=9)
    words = command(Plan(selection=chosen))
    assert "--kernel-name gemm --nvtx --nvtx-include step/ --nvtx --nvtx-include a@b --devices 0,2 " in words
    assert "--target-processes-filter train --launch-count 4 " in words and "--kernel-id" not in words
    assert chosen.in_words() == (
        "--kernel gemm, --nvtx step/, --nvtx a@b, --launch-count 4, --device 0,2, --process train"
    )
    whole = command(Plan(selection=Selection("regex:map<Add>", demangled=True)))
    assert "--kernel-name-base demangled --filter-mode per-launch-config --kernel-id ::regex:map<Add>:1 " in whole


def test_chosen_kernels_are_named_to_ncu_by_their_compilers_names() -> None:
    """Instances of one template share the function name, by which ncu numbers launches unless told otherwise."""
    words = command(Plan(selection=Selection("map", names=("_Z3mapI3AddEvPf", "_Z3mapI4GeluEvPf.kd"))))
    expected = "--kernel-name-base mangled --filter-mode per-launch-config --kernel-id ::regex:^(_Z3mapI3AddEvPf|"
    assert f"{expected}_Z3mapI4GeluEvPf\\.kd)$:1 " in words
    many = tuple(f"_Z{n:06}{'x' * 2000}" for n in range(60))
    assert "--kernel-id ::map:1 " in command(Plan(selection=Selection("map", names=many))), "longer than a word may be"


def test_the_default_leaves_collectives_out_and_nothing_else() -> None:
    pattern = kernel_expression(Selection())[1].removeprefix("regex:")
    collective = ("_Z35ncclDevKernel_AllReduce_Sum_f32_RING", "ncclKernel", "_ZN7nvshmem3putEv", "nvshmemi_put")
    other = ("_Z3mapI3AddEvPf", "gemm", "_ZN2at6nccl_like4copyEv", "_Z9not_nccl_v", "_ZN4mine13ncclish_helperEv")
    assert not [name for name in collective if re.search(pattern, name)]
    assert [name for name in other if re.search(pattern, name)] == list(other)


WANTED = (
    "gpu__time_duration.sum",
    "sm__mio_inst_issued.avg.pct_of_peak_sustained_elapsed",
    "sm__ops_path_tensor_src_int8.sum",
    "smsp__average_warps_issue_stalled_wait_per_issue_active.ratio",
)


def test_the_set_of_a_mode() -> None:
    adaptive = metric_set("adaptive", WANTED, (2025, 3, 1))
    assert adaptive.metrics == ("gpu__time_duration.sum", *CODE_METRICS) and adaptive.deferred == WANTED[1:]
    assert adaptive.sections == ("LaunchStats", "Occupancy")
    declared = metric_set("adaptive", WANTED, (2025, 3, 1), tensor_counters=True)
    assert "sm__ops_path_tensor_src_int8.sum" in declared.metrics, "padding is judged by the operations issued"
    assert declared.deferred == (WANTED[1], WANTED[3])
    old = metric_set("adaptive", WANTED, (2024, 1))
    assert "SourceCounters" in old.sections and not set(CODE_METRICS) & set(old.metrics)
    deep = metric_set("deep", WANTED, (2025, 3, 1))
    assert deep.metrics == WANTED and "PmSampling" in deep.sections and not deep.deferred
    single = metric_set("single-pass", WANTED, (2025, 3, 1))
    assert single.metrics == SINGLE_PASS and single.sections == ("LaunchStats",) and not single.deferred


def test_options_follow_the_version() -> None:
    plan = Plan(sections=("LaunchStats", "PmSampling", "WorkloadDistribution"))
    assert "PmSampling" not in command(plan, "2023.3.1.0")
    assert "PmSampling" in command(plan, "2024.1.0") and "WorkloadDistribution" not in command(plan, "2024.1.0")
    assert "WorkloadDistribution" in command(plan, None), "an unknown version is asked for everything"
    assert "--graph-profiling graph" in command(Plan(graph="graph"))
    assert "--nvtx --verbose ./app" in command(Plan(nvtx=True, extra=("--verbose",)))


# --- what a failed run means

PERMISSION = (
    "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters on the "
    "target device 0. For instructions see https://developer.nvidia.com/ERR_NVGPUCTRPERM"
)
NONE = "==WARNING== No kernels were profiled."


@pytest.fixture
def bare_metal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "root"
    (root / "proc/driver/nvidia").mkdir(parents=True)
    (root / "proc/driver/nvidia/version").write_text(
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.82.07  Release Build\n"
    )
    monkeypatch.setattr(host, "ROOT", root)
    for variable in ("KUBERNETES_SERVICE_HOST", "APPTAINER_CONTAINER", "SINGULARITY_CONTAINER", "container"):
        monkeypatch.delenv(variable, raising=False)
    return root


def test_permission_names_three_remedies(run: Runner, bare_metal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    # The target's traceback and status are a consequence, not the cause.
    error = run.fails(["sh", "-c", "echo Traceback; exit 1"], before=[PERMISSION], after=[NONE])
    assert error.exit_code == EXIT_NOTHING_MEASURED and "ERR_NVGPUCTRPERM" in error.message
    assert error.hint.startswith("sudo -E diagnose")
    for remedy in ("NVreg_RestrictProfilingToAdminUsers=0", "--cap-add=SYS_ADMIN", "ask its provider"):
        assert remedy in error.hint


def test_permission_in_a_container_starts_with_the_containers_remedy(run: Runner, bare_metal: Path) -> None:
    (bare_metal / ".dockerenv").touch()
    hint = run.fails(before=[PERMISSION], after=[NONE]).hint
    assert hint.startswith("this is a container (docker): start the container with --cap-add=SYS_ADMIN")
    assert "NVreg_RestrictProfilingToAdminUsers=0" in hint and "ask its provider" in hint


def test_permission_on_wsl(run: Runner, bare_metal: Path) -> None:
    (bare_metal / "proc/version").write_text("Linux version 5.15 (root@x) Microsoft WSL2")
    assert run.fails(before=[PERMISSION], after=[NONE]).hint.startswith("Windows: NVIDIA Control Panel")


@pytest.mark.parametrize(
    ("lines", "message", "hint"),
    [
        (
            [
                "==ERROR== An error was reported by the driver:",
                "==ERROR== Cuda driver is not compatible with Nsight Compute.",
            ],
            "driver 580.82.07 does not fit ncu 2025.3.1.0 (",
            "diagnose --ncu PATH",
        ),
        (
            ["==ERROR== Nsight Compute failed to connect to the CUDA driver (stub libcuda.so[.1] on path?)."],
            "cannot reach the CUDA driver",
            "diagnose doctor",
        ),
        (
            ["==ERROR== Profiling is not supported on device 0. To find out supported GPUs refer --list-chips option."],
            "does not support this GPU",
            f"{FAKE} --list-chips",
        ),
        (
            ["==ERROR== Cannot lock GPU clock frequencies on MIG! Try locking the clocks externally"],
            "MIG instance",
            "diagnose doctor",
        ),
        (
            ["==ERROR== Failed to initialize the profiler: LibraryNotLoaded. Check that a driver is loaded."],
            "LibraryNotLoaded",
            "diagnose doctor",
        ),
        (
            [
                "==ERROR== Profiling failed because a driver resource was unavailable. Ensure that no other tool is",
                '==ERROR== Failed to profile "gemm" in process 4711',
            ],
            "in use by another tool, such as DCGM",
            "dcgmi profile --pause",
        ),
        (
            [
                "==WARNING== Backing up device memory in system memory. Kernel replay might be slow.",
                '==ERROR== Failed to save memory for replay. Consider using "--replay-mode application".',
                '==ERROR== Failed to profile "gemm" in process 4711',
            ],
            "ran out of memory",
            "diagnose --replay application",
        ),
        (["==ERROR== Unhandled C++ exception: bad allocation"], "ran out of memory", "diagnose --replay application"),
        (["==ERROR== No section files found in folder sections."], "finds no section files", "diagnose --ncu PATH"),
        (["==WARNING== No metrics to collect found in sections."], str(FAKE.resolve()), "diagnose --ncu PATH"),
    ],
)
def test_ncus_errors_are_explained(run: Runner, bare_metal: Path, lines: list[str], message: str, hint: str) -> None:
    error = run.fails(before=lines, after=["==ERROR== The application returned an error code (9).", NONE], exit=9)
    assert message in error.message and error.hint.startswith(hint) and error.exit_code == EXIT_NOTHING_MEASURED


def test_a_lock_file_of_another_user(run: Runner, tmp_path: Path) -> None:
    lock = tmp_path / "nsight-compute-lock"
    lock.touch()
    line = (
        f"==ERROR== Failed to open/create lock file {lock}. Please check that this process has write permissions on it."
    )
    error = run.fails(before=[line], after=[NONE], exit=9)
    assert f"lock file {lock} (owner: {lock.owner()})" in error.message
    assert error.hint.startswith("TMPDIR=$(mktemp -d) diagnose")
    assert failures.owner_of("/no/such/file") == "unknown"


def test_a_refused_command_line(run: Runner) -> None:
    error = run.fails(refuse="==ERROR== unrecognised option '--import-source'.", exit=1)
    assert "refused its command line: unrecognised option '--import-source'." in error.message


def test_an_ncu_that_just_fails(run: Runner) -> None:
    error = run.fails(refuse="ncu: cannot load libfoo.so")
    assert "exited with status 1: ncu: cannot load libfoo.so" in error.message and error.hint.startswith(
        "diagnose doctor"
    )
    program = script(run.folder / "broken", "#!/no/such/thing\n")
    assert "cannot be started" in run.fails(options={"ncu": program}).message


def test_an_unknown_error_is_quoted(run: Runner) -> None:
    error = run.fails(before=["==ERROR== The moon is in the wrong phase"], after=[NONE], exit=1)
    assert "The moon is in the wrong phase" in error.message


def test_an_unknown_error_in_a_kernel_is_quoted(run: Runner) -> None:
    after = ["==ERROR== Unknown Error on device 0.", '==ERROR== Failed to profile "gemm" in process 4711', NONE]
    error = run.fails(launches=GEMM, after=after, exit=9)
    assert "failed on the kernel 'gemm': Unknown Error on device 0." in error.message


def test_the_targets_own_failure_comes_first(run: Runner) -> None:
    error = run.fails(["sh", "-c", "exit 3"], after=[NONE])
    assert "sh exited with status 3 before any kernel was profiled" in error.message
    assert error.hint.startswith("sh -c exit 3") and error.exit_code == EXIT_NOTHING_MEASURED


def test_a_killed_target(run: Runner) -> None:
    assert "status 9 (SIGKILL)" in run.fails(["sh", "-c", "kill -9 $$"], after=[NONE]).message
    assert "status 11 (SIGSEGV)" in run.fails(["sh", "-c", "kill -11 $$"], after=[NONE]).message


def test_a_target_that_launches_nothing(run: Runner) -> None:
    error = run.fails(after=[NONE])
    assert "launched no kernel that ncu saw" in error.message and "collectives (nccl*, nvshmem*)" in error.message
    assert "spawn" in error.hint


def test_a_filter_that_matches_nothing(run: Runner) -> None:
    listed = [NONE, "Available Kernels:", "1. void ns::gemm_tiled<float, (int)4>(float *, int)", "2. fill(float *)"]
    error = run.fails(after=listed, options={"plan": Plan(selection=Selection("gem_tiled"))})
    assert "--kernel gem_tiled (matched against the function name" in error.message and "2 others" in error.message
    assert error.hint.startswith("diagnose --kernel gemm_tiled ")
    assert "gemm_tiled = void ns::gemm_tiled<float, (int)4>(float *, int)" in error.hint
    only_nccl = [NONE, "Available Kernels:", "1. ncclDevKernel_AllReduce(ncclDevComm *)"]
    assert "--kernel ncclDevKernel_AllReduce" in run.fails(after=only_nccl).hint


def test_a_report_without_kernels_is_nothing(run: Runner) -> None:
    run.fails(after=[NONE], report="NVR\0empty")


def test_profiled_but_no_report(run: Runner) -> None:
    error = run.fails(launches=GEMM, report=None, after=["==ERROR== Failed to write the report file"], exit=1)
    assert "wrote no report" in error.message and "Failed to write the report file" in error.message


# --- partial results


def test_a_target_that_fails_after_kernels_keeps_them(run: Runner) -> None:
    done = run(["sh", "-c", "exit 3"], launches=GEMM)
    assert done.target_exit == 3 and done.profile is not None
    assert done.warnings == ("sh exited with status 3 after 1 launches were profiled",)


def test_ncu_failing_after_kernels_keeps_them(run: Runner) -> None:
    lines = ["==ERROR== Failed to save memory for replay.", '==ERROR== Failed to profile "big" in process 4711']
    done = run(launches=[["gemm", 38], ["big", 2]], after=lines, exit=9)
    assert done.profiled == 1 and done.profile is not None
    assert "profiling ended early: ncu ran out of memory" in done.warnings[0]
    other = run(
        launches=[["gemm", 38], ["big", 2]], after=[lines[1]], options={"profile": run.folder / "second.ncu-rep"}
    )
    assert "profiling ended early: ncu failed to profile big and gave no reason" in other.warnings[0]


# --- stopping


def test_timeout_keeps_what_was_profiled(run: Runner) -> None:
    started = time.monotonic()
    done = run(["sleep", "60"], {"timeout_s": 3.0}, launches=GEMM)
    assert time.monotonic() - started < 10
    assert done.timed_out and not done.interrupted and done.profile is not None
    assert any("--timeout" in warning for warning in done.warnings)


def test_timeout_kills_what_does_not_stop(run: Runner) -> None:
    started = time.monotonic()
    marker = f"{60 + os.getpid() % 1000}.125"
    error = run.fails(["sleep", marker], {"timeout_s": 0.5, "grace_s": 0.3}, launches=GEMM, deaf=True)
    assert time.monotonic() - started < 10
    assert error.exit_code == EXIT_NOTHING_MEASURED and "0.5 s (--timeout)" in error.message
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            assert entry.read_bytes() != f"sleep\0{marker}\0".encode(), "the target was killed too"
        except OSError:
            continue


def test_a_kernel_that_hangs_under_replay_is_stopped(run: Runner) -> None:
    options = {"stall_s": 1.0}
    error = run.fails(["sleep", "60"], options, hang="spin", report=None)
    assert "the kernel spin made no progress for 1 s" in error.message
    assert error.hint.startswith("diagnose --replay application")
    done = run(["sleep", "60"], options, launches=GEMM, hang="spin")
    assert done.profile is not None and any("spin made no progress" in warning for warning in done.warnings)


def test_a_slow_target_is_not_taken_for_a_hang(run: Runner) -> None:
    assert run(["sleep", "1.5"], {"stall_s": 0.8}, launches=GEMM).warnings == ()


STARTED = ["sh", "-c", "touch started; exec sleep 60"]


def signal_when_started(run: Runner, *pauses_s: float, number: int = signal.SIGINT) -> threading.Thread:
    """Sends us the signal once the target has started, after each of the pauses."""

    def press() -> None:
        while not (run.folder / "started").exists():
            time.sleep(0.01)
        for pause in pauses_s:
            time.sleep(pause)
            os.kill(os.getpid(), number)

    thread = threading.Thread(target=press)
    thread.start()
    return thread


def test_interrupt_waits_for_ncu_and_keeps_its_report(run: Runner) -> None:
    handler = signal.getsignal(signal.SIGINT)
    thread = signal_when_started(run, 0.5)
    done = run(STARTED, launches=GEMM)
    thread.join()
    assert done.interrupted and done.profile is not None and done.profile.read_bytes() == b"NVR\0report"
    assert any("interrupted" in warning for warning in done.warnings) and any("again" in text for text in run.told)
    assert signal.getsignal(signal.SIGINT) is handler


def test_interrupts_pass_through_a_wrapper_script(run: Runner) -> None:
    wrapper = script(run.folder / "ncu", f'#!/bin/sh\n"{FAKE}" "$@"\nexit $?\n')
    done = run(["sleep", "60"], {"ncu": wrapper, "timeout_s": 3.0, "grace_s": 30.0}, launches=GEMM)
    assert done.timed_out and done.profile is not None and done.profile.read_bytes() == b"NVR\0report"


def test_ctrl_c_at_a_terminal_reaches_ncu_once(run: Runner) -> None:
    (run.folder / "s.json").write_text(json.dumps({"launches": GEMM}))
    program = (
        "from pathlib import Path; from diagnose.collect.run import *;"
        f"done = collect(CollectOptions(('sh', '-c', 'read line; echo got $line; sleep 60'), Path('p.ncu-rep'),"
        f" ncu={str(FAKE)!r}), print); print('interrupted', done.interrupted, done.profile)"
    )
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        env={**os.environ, "FAKE_NCU_SCENARIO": str(run.folder / "s.json"), "PYTHONPATH": str(FAKE.parents[2])},
    )
    os.close(theirs)
    os.write(ours, b"hello\n")
    seen = b""
    while b"got hello" not in seen or b"profiled 1" not in seen:
        seen += os.read(ours, 4096)
    os.write(ours, b"\x03")
    while not re.search(rb"interrupted True .*\n", seen):
        seen += os.read(ours, 4096)
    assert process.wait(timeout=20) == 0
    os.close(ours)
    assert b"interrupted True p.ncu-rep" in seen and seen.count(b"again: stop at once") == 1


def test_interrupt_before_anything_was_profiled(run: Runner) -> None:
    thread = signal_when_started(run, 0.5)
    done = run(STARTED, report=None)
    thread.join()
    assert done.interrupted and done.profile is None and not (run.folder / "out.ncu-rep").exists()


def test_a_second_interrupt_stops_at_once(run: Runner) -> None:
    thread = signal_when_started(run, 0.5, 0.5)
    started = time.monotonic()
    done = run(STARTED, {"grace_s": 60.0}, deaf=True)
    thread.join()
    assert done.interrupted and done.profile is None and time.monotonic() - started < 15


def test_termination_counts_as_an_interrupt(run: Runner) -> None:
    thread = signal_when_started(run, 0.5, number=signal.SIGTERM)
    assert run(STARTED, launches=GEMM).interrupted
    thread.join()


def test_a_daemon_that_keeps_the_pipe_does_not_keep_us(run: Runner) -> None:
    started = time.monotonic()
    run(["sh", "-c", "sleep 20 & echo $! > pid"], launches=GEMM)
    assert time.monotonic() - started < 10
    os.kill(int((run.folder / "pid").read_text()), signal.SIGKILL)


# --- reading ncu's messages


def test_read_log() -> None:
    log = read_log(
        "==PROF== Connected to process 20 (/bin/app)\n"
        '==PROF== Profiling "gemm" - 0 (1/2): 0%....50%....100% - 38 passes\n'
        '==PROF== Profiling "fill" - 1 (2/2): 0%..==WARNING== Found outstanding GPU clock reset\n'
        " - 1 pass\n"
        '==PROF== Profiling "spin": 0%..'
    )
    assert [(launch.name, launch.passes) for launch in log.launches] == [("gemm", 38), ("fill", 1), ("spin", None)]
    assert log.profiled == 2 and log.replaying == "spin" and log.connected
    assert log.warnings == ("Found outstanding GPU clock reset",)
    assert read_log("").replaying is None
    assert read_log("==ERROR== The application returned an error code (11).").target_exit == 11


def test_names_in_exit_status() -> None:
    assert failures.exit_in_words(3) == "3" and failures.exit_in_words(139) == "139 (SIGSEGV)"
