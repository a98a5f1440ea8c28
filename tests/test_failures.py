"""The fifteen ways in which runs go wrong in the field, each played through the stand-in `ncu`.

`tests/data/ncu_failures.json` holds what ncu 2025.3.1 printed on an H200 (`tests/gpu/failures.py`); what cannot be
provoked there is restated from NVIDIA's messages. `TABLE` has the rows whose answer is one error or one warning, by the
number of the failure; the tests below it have the others.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from diagnose import api, compare
from diagnose.collect import failures, host
from diagnose.collect.failures import read_log
from diagnose.collect.plan import Plan, Selection
from diagnose.errors import EXIT_NOTHING_MEASURED
from diagnose.model import KernelProfile, Profile
from diagnose.reader import read_reports
from diagnose.render import terminal as terminal_renderer
from diagnose.render import view
from recorded import REPORTS
from test_collect import FAKE, GEMM, Runner, script

ROOT = Path(__file__).resolve().parents[1]
RECORDED: Mapping[str, Any] = json.loads((ROOT / "tests" / "data" / "ncu_failures.json").read_text())["cases"]
REPORT = REPORTS / "gemm-mma.ncu-rep.xz"
NONE = "==WARNING== No kernels were profiled."


def played(name: str) -> dict[str, Any]:
    """The scenario in which the stand-in prints what ncu printed, and leaves a report where ncu left one."""
    case = RECORDED[name]
    report = "NVR\0report" if case["report_bytes"] else None
    return {"before": case["log"], "output": case["output"], "exit": max(case["exit"], 0), "report": report}


@dataclass(frozen=True)
class Row:
    """A failure, what is played, and words of the error (or, where kernels were profiled, of a warning)."""

    number: int
    what: str
    scenario: Mapping[str, Any]
    words: tuple[str, ...]
    kept: int | None = None  # launches that are kept; None: nothing was measured
    target: tuple[str, ...] = ("true",)
    plan: Plan = field(default_factory=Plan)
    hint: str = ""


def said(*lines: str) -> dict[str, Any]:
    return {"before": list(lines), "after": [NONE], "exit": 9}


PERMISSION = (
    "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters on the "
    "target device 0. For instructions on enabling permissions and to get more information see "
    "https://developer.nvidia.com/ERR_NVGPUCTRPERM"
)
FAILED = '==ERROR== Failed to profile "gemm" in process 4711'
TABLE = (
    Row(1, "no permission", said(PERMISSION), ("no permission", "ERR_NVGPUCTRPERM"), hint="ask its provider"),
    Row(1, "no permission, and the target's own error after it",
        said(PERMISSION), ("ERR_NVGPUCTRPERM",), target=("sh", "-c", "echo Traceback; exit 1"),
        hint="NVreg_RestrictProfilingToAdminUsers=0"),
    Row(2, "driver", said("==ERROR== Cuda driver is not compatible with Nsight Compute."),
        ("does not fit ncu 2025.3.1.0", "driver"), hint="--ncu PATH"),
    Row(2, "GPU unknown to this ncu", said("==ERROR== Profiling is not supported on device 0."), ("does not support",),
        hint="--list-chips"),
    Row(2, "MIG", said("==ERROR== Cannot lock GPU clock frequencies on MIG!"), ("MIG instance",), hint="doctor"),
    Row(2, "a counter that this chip lacks, and nothing else was asked for", played("not-available"),
        ("does not give the counters asked for", "nvlrx__bytes.sum"), hint="doctor"),
    Row(4, "no kernel", played("none"), ("launched no kernel that ncu saw",), hint="spawn"),
    Row(4, "the target failed first", {**played("early"), "report": None},
        ("sh exited with status 3 before any kernel",), target=("sh", "-c", "exit 3"), hint="run it alone"),
    Row(4, "no program", played("not-a-program"), ("cannot run true", "not an executable binary"), hint="interpreter"),
    Row(4, "forked after CUDA was initialised", played("fork-late"), ("launched no kernel that ncu saw",),
        hint="forked after CUDA was initialised"),
    Row(5, "a filter that matches nothing", played("filter"), ("--kernel ad_one", "1 others were launched"),
        plan=Plan(selection=Selection("ad_one")), hint="diagnose --kernel add_one"),
    Row(7, "a kernel that waits for a peer", played("peer"), ("ncu failed to profile wait_for_peer",), kept=1),
    Row(8, "a launcher whose processes a daemon starts", played("none"), ("a daemon starts its processes",),
        target=("./srun", "-n", "4", "sh", "-c", "true"), hint="./srun -n 4 diagnose sh -c true"),
    Row(9, "exit status", played("exit3"), ("exited with status 3 after 1 launches",), kept=1),
    Row(9, "abort", played("abort"), ("status 6 (SIGABRT)",), kept=1),
    Row(9, "segmentation fault", played("segv"), ("status 11 (SIGSEGV)",), kept=1),
    Row(9, "killed", played("killed"), ("status 9 (SIGKILL)",), kept=1),
    Row(9, "trap in a kernel", played("trap"), ("a kernel failed on the GPU",), kept=1),
    Row(9, "assertion in a kernel", played("assert"), ("a kernel failed on the GPU", "compute-sanitizer"), kept=1),
    Row(9, "wild address", played("illegal"), ("a kernel failed on the GPU",), kept=1),
    Row(9, "disk full", played("disk-full"), ("could not write its report", "df -h"), kept=1),
    Row(10, "the counters are held",
        said("==ERROR== Profiling failed because a driver resource was unavailable.", FAILED),
        ("in use by another tool, such as DCGM",), hint="dcgmi profile --pause"),
    Row(10, "a lock file of another user", said("==ERROR== Failed to open/create lock file /no/such/lock. Please"),
        ("lock file /no/such/lock (owner: unknown)",), hint="TMPDIR=$(mktemp -d)"),
    Row(10, "the home folder of another user", played("lock"), ("settings in the home folder",),
        hint="HOME=$(mktemp -d)"),
    Row(11, "ncu out of its tree", played("moved-binary"),
        ("finds no section files", str(FAKE.resolve()), "2025.3.1.0"), hint="--ncu PATH"),
    Row(11, "a section that this ncu lacks", played("unknown-section"), ("did not match any section",),
        hint="--ncu PATH"),
    Row(11, "an option that this ncu lacks", {"refuse": "\n".join(RECORDED["unknown-option"]["output"])},
        ("refused its command line", "--no-such-option", str(FAKE.resolve())), hint="a newer ncu"),
    Row(15, "no room for the copy", said("==ERROR== Failed to save memory for replay.", FAILED), ("ran out of memory",),
        hint="--replay application"),
    Row(15, "no room for the copy, and ncu does not say so", played("big"), ("failed to profile fill", "no reason"),
        kept=1),
)  # fmt: skip
OTHERS = {3, 6, 12, 13, 14}  # tested below the table


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runner:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(host, "ROOT", tmp_path / "machine")  # no container, no driver: as on bare metal
    script(tmp_path / "srun", '#!/bin/sh\nshift 2\nexec "$@"\n')
    return Runner(tmp_path, monkeypatch)


@pytest.mark.parametrize("row", TABLE, ids=[f"{row.number}-{row.what.replace(' ', '-')}" for row in TABLE])
def test_each_failure_has_its_answer(run: Runner, row: Row) -> None:
    options = {"plan": row.plan}
    if row.kept is None:
        error = run.fails(list(row.target), options, **row.scenario)
        told = error.message
        assert error.exit_code == EXIT_NOTHING_MEASURED and row.hint in error.hint, error.hint
    else:
        done = run(list(row.target), options, **row.scenario)
        assert done.profiled == row.kept and done.profile is not None, "what was profiled is kept"
        told = "\n".join(done.warnings)
        assert len([line for line in done.warnings if "Failed to profile" in line]) == 0
    for word in row.words:
        assert word in told, (word, told)


def test_every_failure_of_the_list_is_in_the_table_or_below() -> None:
    assert {row.number for row in TABLE} | OTHERS == set(range(1, 16))


def test_allowed_is_asked_anew_each_time(run: Runner) -> None:
    """1: permission differs from run to run."""
    run.fails(**said("==ERROR== ERR_NVGPUCTRPERM - no"))
    assert run(launches=GEMM).profiled == 1


def test_counters_that_a_chip_lacks_are_left_out_and_named_once(run: Runner) -> None:
    """2: the run is repeated without them, once."""
    plan = Plan(metrics=("gpu__time_duration.sum", "dram__throughput.avg.pct_of_peak_sustained_elapsed"))
    done = run(options={"plan": plan}, launches=GEMM, no_access=["dram__throughput.avg.pct_of_peak_sustained_elapsed"])
    assert done.profiled == 1 and "dram__throughput" in done.warnings[0] and len(run.commands) == 2


def test_a_metric_that_ranges_do_not_have_is_left_out() -> None:
    """12: as ncu 2025.3.1 said it on an H200."""
    line = "==ERROR== Metric smsp__sass_average_branch_targets_threads_uniform.pct is not supported in range replay."
    assert read_log(line).unknown_metrics == ("smsp__sass_average_branch_targets_threads_uniform.pct",)


# --- documents


@pytest.fixture(scope="module")
def profile() -> Profile:
    if not REPORT.is_file():
        pytest.skip("examples/reports is not here")
    return read_reports([REPORT])


def diagnosed(profile: Profile, *kernels: KernelProfile) -> dict[str, Any]:
    kept = tuple(replace(kernel, index=at) for at, kernel in enumerate(kernels))
    return api.examine(replace(profile, kernels=kept), api.load_rules(api.Options()), api.Options())


def test_counters_that_are_not_numbers_decide_nothing(profile: Profile) -> None:
    """3: a version mismatch gives NaN for every counter."""
    kernel = profile.kernels[0]
    counters = [name for name in kernel.metrics if not name.startswith(("device__", "launch__"))]
    blind = replace(
        kernel, metrics={n: v for n, v in kernel.metrics.items() if n not in counters}, not_finite=tuple(counters),
        opcodes={}, thread_opcodes={}, lines=(),
    )  # fmt: skip
    document = diagnosed(profile, blind)
    found = document["kernels"][0]
    assert found["verdict"]["class"] == "unknown" and found["duration_us"] is None
    assert found["not_evaluated"] and all(entry["missing"] for entry in found["not_evaluated"])
    assert api.exit_code(document) == EXIT_NOTHING_MEASURED
    json.dumps(document, allow_nan=False)


def test_a_chip_without_a_dram_counter_is_still_diagnosed(profile: Profile) -> None:
    """2: no verdict about memory from counters that were not there; the others stand."""
    kernel = profile.kernels[0]
    without = {n: v for n, v in kernel.metrics.items() if "dram" not in n and "fbpa" not in n}
    found = diagnosed(profile, replace(kernel, metrics=without))["kernels"][0]
    assert found["verdict"]["class"] == "implementation"
    assert not any(limit["resource"] == "hbm" for limit in found["limits"])
    assert any("dram" in name for entry in found["not_evaluated"] for name in entry["missing"])


def test_kernels_of_one_base_name_stay_apart(profile: Profile) -> None:
    """5: lambdas and templates share a function name; name, grid and block tell launches apart."""
    kernel = profile.kernels[0]
    metrics = {**kernel.metrics, "launch__grid_dim_x": 7.0}
    document = diagnosed(
        profile, kernel, replace(kernel, demangled="void run<f(int)::{lambda()#2}>()"), replace(kernel, metrics=metrics)
    )
    assert len({one["id"] for one in document["kernels"]}) == 3
    assert len({one["group"] for one in document["kernels"]}) == 3


def test_hundreds_of_launches_are_profiled_once_a_configuration(run: Runner) -> None:
    """6: and what was left out is said."""
    program = [["matmul", 9, grid] for grid in (64, 128, 256)] * 100
    done = run(program=program)
    assert done.profiled == 3 and any("repeats" in line for line in done.left_out)
    capped = run(
        ["sleep", "20"], {"plan": Plan(selection=Selection(max_launches=5)), "profile": run.folder / "b.ncu-rep"},
        program=[["tune", 9, grid] for grid in range(1, 400)], wait_s=0.05,
    )  # fmt: skip
    assert capped.profiled < 40 and any("--max-launches 5" in line for line in capped.left_out)


def test_ncus_own_word_of_a_launch_that_does_not_come_back() -> None:
    """7: known after two seconds, where a stall takes minutes to be one."""
    lines = RECORDED["peer"]["log"]
    during, after = read_log("\n".join(lines[:4])), read_log("\n".join(lines))
    assert during.waits and str(during.replaying).startswith("wait_for_peer")
    assert after.waits and after.profiled == 1 and after.warnings == ()
    assert not read_log("\n".join([*lines[:4], '==PROF== Profiling "next": 0%.. - 1 pass'])).waits


def test_a_launch_that_does_not_come_back_is_stopped_soon(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """7: ncu's own word shortens the wait; without it a launch may take its time."""
    monkeypatch.setattr("diagnose.collect.run.WAITS_S", 0.7)
    warning = RECORDED["peer"]["log"][3].partition("0%..")[2]
    done = run(["sleep", "30"], launches=GEMM, hang="wait_for_peer", hang_says=warning)
    assert done.profile is not None and any(
        "wait_for_peer made no progress for 0.7 s" in line for line in done.warnings
    )


def test_collectives_are_left_out_by_default(run: Runner) -> None:
    """7"""
    done = run(launches=GEMM)
    assert any("nccl*" in line and "hang" in line for line in done.left_out)
    assert any("(?!nccl|nvshmem)" in word or "nccl|nvshmem" in word for word in run.commands[0])


def test_a_crash_of_a_kernel_is_not_a_profile_of_it() -> None:
    """9: ncu counts a pass for the kernel that failed."""
    log = read_log("\n".join(RECORDED["illegal"]["log"]))
    assert str(log.crashed).startswith("write_nowhere")
    assert [launch.name.split("(")[0] for launch in log.done] == ["add_one"]


def test_a_report_cut_short_by_a_full_disk_is_known() -> None:
    """9"""
    assert read_log("\n".join(RECORDED["disk-full"]["log"])).unsaved == "/tmp/failures/full/disk-full.ncu-rep"
    assert failures.free_space(Path("/no/such/folder")) == ""


def test_graphs_and_ranges_are_one_result_without_a_launch(profile: Profile) -> None:
    """12"""
    assert [launch.name for launch in read_log("\n".join(RECORDED["graph"]["log"])).done] == ["graph"]
    assert [launch.name for launch in read_log("\n".join(RECORDED["range"]["log"])).done] == ["range"]
    assert read_log("\n".join(RECORDED["graph-node"]["log"])).profiled == 3
    kernel = profile.kernels[0]
    bare = {n: v for n, v in kernel.metrics.items() if not n.startswith("launch__")}
    document = diagnosed(
        profile,
        kernel,
        replace(kernel, workload="graph", metrics=bare),
        replace(kernel, workload="range", metrics=bare),
    )
    assert [one["launch"] is None for one in document["kernels"]] == [False, True, True]
    assert any("1 graph result(s)" in line and "1 range result(s)" in line for line in document["warnings"])


def test_every_duration_stands_beside_clock_and_cache_control(profile: Profile) -> None:
    """13: times of ncu are not those of a time line."""
    run = replace(profile.runs[0], clock_control="base", cache_control="none")
    document = diagnosed(replace(profile, runs=(run,)), profile.kernels[0])
    terminal = io.StringIO()
    terminal_renderer.render(document, Console(file=terminal, width=200))
    assert "clock control base" in terminal.getvalue() and "cache control none" in terminal.getvalue()
    assert {"clock control": "base", "cache control": "none"}.items() <= dict(
        view.header(document, view.kernels(document))
    ).items()


def test_no_speedup_is_claimed_of_kernels_of_a_few_microseconds() -> None:
    """13"""
    assert compare.change(4.0, 2.0, compare.NOISE) == "short"
    assert compare.change(40.0, 20.0, compare.NOISE) == "faster"


def test_numbers_do_not_depend_on_the_users_language() -> None:
    """14: they are read as numbers with their units, never from printed text."""
    code = (
        "import sys; from pathlib import Path; from diagnose.reader import read_reports;"
        "k = read_reports([Path(sys.argv[1])]).kernels[0]; print(sorted((n, repr(v), k.units.get(n)) for n, v in"
        " k.metrics.items() if isinstance(v, float)))"
    )
    told = [
        subprocess.run(
            [sys.executable, "-c", code, str(REPORT)], capture_output=True, text=True, check=True, timeout=120,
            env={**os.environ, "LC_ALL": language, "LC_NUMERIC": language},
        ).stdout
        for language in ("C", "de_DE.UTF-8")
    ]  # fmt: skip
    assert told[0] == told[1] and "'ns'" in told[0] and "gpu__time_duration.sum" in told[0]
