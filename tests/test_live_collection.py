"""From a program to a document: survey, choice, one run, a second one where it is needed, and going on after a stop.

A stand-in `ncu` plays the profiler, the target writes what the survey library would, and recorded results stand for
what `ncu` measured.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import recorded
from diagnose import api, cli, config, live
from diagnose.api import Live, Options, Result
from diagnose.collect import survey as counting
from diagnose.collect import surveying
from diagnose.collect.host import Gpu
from diagnose.collect.plan import DEFERRED
from diagnose.collect.process import written_bytes
from diagnose.collect.run import Collected
from diagnose.errors import EXIT_INTERRUPTED, EXIT_NOTHING_MEASURED, DiagnoseError
from diagnose.join import join, resumed
from diagnose.model import KernelProfile, Profile, Run

FAKE = Path(__file__).parent / "fake_ncu" / "ncu"
COUNTED = "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio"


def kernels() -> tuple[KernelProfile, ...]:
    """Eight elementwise launches of PyTorch, of which several share their function name, grid and block."""
    return recorded.read(recorded.SHARED / "h200-elementwise.ncu-rep.xz").kernels


def without(kernel: KernelProfile, drop: Callable[[str], Any]) -> KernelProfile:
    return replace(kernel, metrics={name: value for name, value in kernel.metrics.items() if not drop(name)})


class World:
    """A folder with a program, a survey of it, and what ncu will measure, report by report."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.monkeypatch = monkeypatch
        self.told: list[str] = []
        self.record = folder / "commands"
        self.reports: dict[str, Sequence[KernelProfile]] = {}
        self.sleep_in_survey = 0
        self.in_survey = ""  # what else the program does in that run
        self.rows = [
            replace(one, launches=10 * (n + 1), total_us=one.total_us * 10 * (n + 1))
            for n, one in enumerate(counting.of_profile(Profile((), kernels())))
        ]
        monkeypatch.setenv("FAKE_NCU_RECORD", str(self.record))
        monkeypatch.setattr(surveying, "build_injection", lambda: Path("/nowhere/library.so"))
        monkeypatch.setattr(surveying, "gpus", lambda: (Gpu("NVIDIA H200", "580", 90, False),))
        monkeypatch.delenv("CUDA_INJECTION64_PATH", raising=False)
        monkeypatch.setattr(live, "read_reports", self._read)

    def _read(self, paths: Sequence[Path], **options: Any) -> Profile:
        """Every report holds the results of `reports`, else all of them."""
        found: list[KernelProfile] = []
        runs = []
        for number, path in enumerate(paths):
            for kernel in self.reports.get(Path(path).name, kernels()):
                found.append(replace(kernel, run=number, index=len(found)))
            runs.append(Run(str(path)))
        return Profile(tuple(runs), tuple(found))

    def program(self, body: str = "") -> str:
        lines = ["process\t1\t/app"]
        for n, one in enumerate(self.rows):
            cells = ["launch", one.launches, round(one.total_us * 1e3), 1, 2, 1000 + n, one.device or 0, *one.grid]
            cells += [*one.block, 0, one.shared, 0, one.mangled]
            lines.append("\t".join(map(str, cells)))
        text = "\n".join([*lines, "end\t0"]) + "\n"
        path = self.folder / "app"
        path.write_text(
            f"#!{sys.executable}\nimport os, sys, time\nfrom pathlib import Path\n"
            "folder = os.environ.get('DIAGNOSE_SURVEY')\n"
            f"if folder:\n    Path(folder, '1.tsv').write_text({text!r})\n"
            f"    time.sleep({self.sleep_in_survey})\n    {self.in_survey}\n    sys.exit(0)\n{body}\n"
        )
        path.chmod(0o755)
        return str(path)

    def __call__(
        self, kernel: str | None = None, body: str = "", scenario: dict[str, Any] | None = None, **settings: Any
    ) -> Result:
        launches = [[one.name, 9, one.grid[0], one.mangled] for one in self.rows]
        played = {"program": launches, "report": "NVR\0report", **(scenario or {})}
        (self.folder / "scenario.json").write_text(json.dumps(played))
        self.monkeypatch.setenv("FAKE_NCU_SCENARIO", str(self.folder / "scenario.json"))
        chosen = {"profile": self.folder / "out.ncu-rep", **settings}
        useful = chosen.pop("useful_flops", None)
        options = Options(kernel=kernel, ncu=str(FAKE), timeout_s=chosen.pop("timeout_s", None), useful_flops=useful)
        found = api.diagnose_program([self.program(body)], Live(**chosen), options, self.told.append)
        assert isinstance(found, Result)
        return found

    @property
    def commands(self) -> list[str]:
        return (
            [" ".join(json.loads(line)) for line in self.record.read_text().splitlines()]
            if self.record.exists()
            else []
        )


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.chdir(tmp_path)
    return World(tmp_path, monkeypatch)


# --- what a survey gives to a document


def test_launches_shares_and_coverage_are_those_of_the_program(world: World) -> None:
    document = world().document
    total = sum(one.total_us for one in world.rows)
    by_key = {(one.mangled, one.grid): one for one in world.rows}
    assert document["program"]["covered_share"] == pytest.approx(1.0)
    assert document["program"]["gpu_time_us"] == pytest.approx(total, rel=1e-5)
    assert sum(kernel["time_share"] for kernel in document["kernels"]) == pytest.approx(1.0, abs=1e-4)
    for kernel, result in zip(document["kernels"], kernels(), strict=True):
        row = by_key[(result.mangled, tuple(kernel["launch"]["grid"]))]
        assert kernel["launches"] == row.launches
        assert kernel["time_share"] == pytest.approx(row.total_us / total, rel=1e-3)
    survey = document["collection"]["survey"]
    assert (survey["method"], survey["launches"]) == ("cupti", sum(one.launches for one in world.rows))
    assert document["collection"]["runs"][0]["passes_per_launch"] == [9, 9]
    assert document["runs"][0]["date"].startswith("20") and len(world.commands) == 1


def test_every_instance_of_a_template_is_named_to_ncu(world: World) -> None:
    world()
    (command,) = world.commands
    assert "--kernel-name-base mangled --filter-mode per-launch-config --kernel-id ::regex:^(" in command
    assert all(one.mangled in command for one in world.rows)


def test_what_the_choice_leaves_out_is_said(world: World) -> None:
    longest = sorted(world.rows, key=lambda one: -one.total_us)
    chosen = [kernel for kernel in kernels() if kernel.mangled in {one.mangled for one in longest[:2]}]
    world.reports["out.ncu-rep"] = chosen
    document = world(top=2).document
    kept = [one for one in world.rows if one.mangled in {two.mangled for two in longest[:2]}]
    share = sum(one.total_us for one in kept) / sum(one.total_us for one in world.rows)
    assert document["program"]["covered_share"] == pytest.approx(share)
    assert document["collection"]["left_out_configurations"] == len(world.rows) - len(kept)
    assert document["collection"]["left_out"][0]["name"]
    assert any(line.startswith(f"left out: {len(world.rows) - 2} kernels and launch") for line in document["warnings"])


def test_how_many_would_reach_the_coverage_is_said(world: World) -> None:
    all_of_them = len(world.rows)
    warnings = world(top=2, coverage=1.0).document["warnings"]
    assert any(f"--coverage 1 (--top {all_of_them} would reach it): " in line for line in warnings)


def test_a_kernel_in_very_many_configurations_is_profiled_once_for_all(world: World) -> None:
    """As the tokens of a language model: a new grid for each."""
    longest = max(world.rows, key=lambda one: one.total_us)
    world.rows += [replace(longest, grid=(1000 + n, 1, 1)) for n in range(120)]
    document = world().document
    (command,) = world.commands
    assert "--filter-mode" not in command and "--kernel-id ::regex:^(" in command
    assert any("stands for its launch configurations, because there are too many" in w for w in document["warnings"])
    (kernel,) = [one for one in document["kernels"] if one["launches"] > 120]
    assert kernel["time_share"] > 0.9 and document["program"]["covered_share"] > 0.95


def test_of_one_kernel_in_more_configurations_than_the_cap_only_the_rest_is_left_out(world: World) -> None:
    longest = max(world.rows, key=lambda one: one.total_us)
    world.rows[:] = [replace(longest, grid=(1000 + n, 1, 1), total_us=50.0 + n) for n in range(60)]
    warnings = world(body="").document["warnings"]
    assert any(line.startswith("left out: 10 kernels and launch configurations") for line in warnings)


@pytest.mark.parametrize(("options", "cap"), [({}, 50), ({"top": 80}, 80), ({"top": 80, "max_launches": 60}, 60)])
def test_the_cap_leaves_room_for_the_top(world: World, options: dict[str, int], cap: int) -> None:
    world(**options)
    assert f"--launch-count {cap} " in world.commands[0]


def test_the_cap_holds_with_what_comes_under_the_chosen_names(world: World) -> None:
    """Another launch configuration of a chosen kernel is profiled, too: ncu's filter is by name."""
    longest = max(world.rows, key=lambda one: one.total_us)
    world.rows.append(replace(longest, grid=(7, 1, 1), total_us=0.1))
    world(max_launches=2)
    second = sorted(world.rows, key=lambda one: -one.total_us)[1]
    assert longest.mangled in world.commands[0] and second.mangled not in world.commands[0]


def test_without_a_survey_nothing_is_claimed_of_the_whole(world: World) -> None:
    document = world(survey="none").document
    assert document["program"]["covered_share"] is None and document["collection"]["survey"] is None
    assert {kernel["launches"] for kernel in document["kernels"]} == {1}


def test_an_incomplete_survey_claims_no_coverage(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    real = counting.read_injected
    monkeypatch.setattr(counting, "read_injected", lambda folder: (real(folder)[0], False, ()))
    document = world().document
    assert document["program"]["covered_share"] is None
    assert any("did not see the whole program" in line for line in document["warnings"])


# --- filters


def test_a_filter_that_matches_nothing_fails_before_profiling(world: World) -> None:
    name = world.rows[0].name
    with pytest.raises(DiagnoseError) as raised:
        world(kernel=name[:-1])
    error = raised.value
    assert error.exit_code == EXIT_NOTHING_MEASURED
    assert f"no kernel matched the filter --kernel {name[:-1]} (matched against the function name" in error.message
    assert f"diagnose --kernel {name} " in error.hint and "the longest first: " in error.hint
    assert not world.commands and not (world.folder / "out.ncu-rep").exists()


@pytest.mark.parametrize("survey", ["auto", "none"])
def test_a_bad_expression_is_an_error_before_anything_runs(world: World, survey: str) -> None:
    world.in_survey = "Path('ran').touch()"
    with pytest.raises(DiagnoseError, match="is no regular expression"):
        world(kernel="regex:(", survey=survey)
    assert not world.commands and not (world.folder / "ran").exists()


def test_a_name_chooses_all_its_instances_and_no_other_kernel(world: World) -> None:
    name = "vectorized_elementwise_kernel"
    world.reports["out.ncu-rep"] = [kernel for kernel in kernels() if kernel.name == name]
    document = world(kernel=name).document
    (command,) = world.commands
    assert all((one.mangled in command) == (one.name == name) for one in world.rows)
    assert document["program"]["covered_share"] < 1


def test_collectives_count_but_are_not_chosen(world: World) -> None:
    first = world.rows[0]
    world.rows.append(replace(first, name="ncclDevKernel", mangled="_Z13ncclDevKernelv", total_us=1e6))
    document = world().document
    assert "ncclDevKernel" not in world.commands[0] and document["program"]["covered_share"] < 0.5


def test_devices(world: World) -> None:
    with pytest.raises(DiagnoseError, match="--device 7"):
        world(devices=(7,))
    world(devices=(0,))
    assert "--devices 0 " in world.commands[-1]


# --- the second run


def needing(world: World, at: int = 0) -> Profile:
    """A first run in which one result holds no stall samples, as of a kernel too short to be sampled."""
    first = list(kernels())
    drop = lambda name: "pcsamp" in name or DEFERRED.fullmatch(name)  # noqa: E731
    first[at] = replace(without(first[at], drop), lines=())
    world.reports["out.ncu-rep"] = first
    return Profile((), tuple(first))


@pytest.fixture
def uncertain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every verdict leaves room for doubt, so that what is open is asked for."""
    real = live.open_metrics

    def doubting(kernel: KernelProfile, ask: live.Ask, deferred: Sequence[str]) -> tuple[str, ...]:
        found = ask(kernel)
        return real(kernel, lambda _: replace(found, verdict=replace(found.verdict, confidence="low")), deferred)

    monkeypatch.setattr(live, "open_metrics", doubting)


def test_open_rules_are_measured_in_a_second_run_and_joined(world: World, uncertain: None) -> None:
    longest = max(range(len(kernels())), key=lambda at: world.rows[at].total_us)
    needing(world, longest)
    second = kernels()[longest]
    world.reports["out-more.ncu-rep"] = [second]
    result = world()
    first_command, second_command = world.commands
    assert COUNTED not in first_command and COUNTED in second_command
    assert second.mangled in second_command and second_command.count("_ZN") == 1, "only the kernel that needs it"
    assert "--section SourceCounters" not in second_command and "smsp__inst_executed.sum" in second_command
    kernel = result.document["kernels"][longest]
    assert kernel["joined"][0]["run"] == 1 and COUNTED in kernel["joined"][0]["metrics"]
    assert [run["stage"] for run in result.document["collection"]["runs"]] == ["first", "second"]
    assert len(result.document["runs"]) == 2
    assert not any("joined" in other for at, other in enumerate(result.document["kernels"]) if at != longest)


def test_a_second_run_of_other_work_is_refused(world: World, uncertain: None) -> None:
    longest = max(range(len(kernels())), key=lambda at: world.rows[at].total_us)
    needing(world, longest)
    second = kernels()[longest]
    more = {**second.metrics, "smsp__inst_executed.sum": 3 * (second.number("smsp__inst_executed.sum") or 1)}
    world.reports["out-more.ncu-rep"] = [replace(second, metrics=more)]
    document = world().document
    assert "joined" not in document["kernels"][longest]
    assert any("the two runs executed different instructions" in line for line in document["warnings"])


def test_what_no_run_measures_is_not_asked_for() -> None:
    """Padding is judged by issued and by declared operations: without the second, the first decide nothing."""
    deferred = tuple(name for name in api.live_metrics(api.load_rules(Options())) if DEFERRED.fullmatch(name))
    ask = api.asker(api.load_rules(Options()))
    gemm = recorded.read(recorded.SHARED / "h200-gemm.ncu-rep.xz").kernels[0]
    bare = replace(without(gemm, DEFERRED.fullmatch), opcodes={}, thread_opcodes={})
    doubted = replace(ask(bare, {}).diagnosis, verdict=replace(ask(bare, {}).diagnosis.verdict, confidence="low"))
    assert any("sm__ops_path_tensor_src_*.sum" in one.missing for one in doubted.not_evaluated)
    assert live.open_metrics(bare, lambda _: doubted, deferred) == ()


@pytest.mark.parametrize(("capability", "measured"), [(90, False), (100, True), (None, False), (9999, False)])
def test_tensor_operations_of_tcgen05_are_counted_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch, capability: int | None, measured: bool
) -> None:
    monkeypatch.setattr(live, "gpus", lambda: (Gpu("a GPU", "580", capability, False),))
    world()
    assert ("sm__ops_path_tensor_src_fp16.sum" in world.commands[0]) == measured


@pytest.mark.parametrize(("graph", "measured"), [("node", False), ("graph", True)])
def test_declared_work_needs_tensor_counters_only_without_opcodes(world: World, graph: str, measured: bool) -> None:
    world(graph=graph, useful_flops="1e9", survey="none")
    assert ("sm__ops_path_tensor_src_fp16.sum" in world.commands[0]) == measured


def test_a_kernel_of_little_time_is_not_worth_a_run(world: World, uncertain: None) -> None:
    shortest = min(range(len(kernels())), key=lambda at: world.rows[at].total_us)
    needing(world, shortest)
    total = sum(one.total_us for one in world.rows)
    assert world.rows[shortest].total_us / total < 0.05
    world()
    assert len(world.commands) == 1


def test_nothing_open_is_no_second_run(world: World) -> None:
    world()
    assert len(world.commands) == 1


@pytest.mark.parametrize("mode", ["deep", "single-pass"])
def test_other_modes_run_once(world: World, uncertain: None, mode: str) -> None:
    needing(world)
    world(mode=mode)
    assert len(world.commands) == 1
    assert ("PmSampling" in world.commands[0]) == (mode == "deep")
    assert ("SourceCounters" in world.commands[0]) == (mode == "deep")


def test_one_pass_is_not_certain_of_a_limit(world: World) -> None:
    sure = world().document
    document = world(mode="single-pass", profile=world.folder / "b.ncu-rep").document
    hardware = [k["verdict"] for k in document["kernels"] if k["verdict"]["class"] == "hardware"]
    assert hardware and {verdict["confidence"] for verdict in hardware} == {"low"}
    assert {k["verdict"]["confidence"] for k in sure["kernels"]} != {"low"}
    assert any(line.startswith("--single-pass: a hardware verdict") for line in document["warnings"])


# --- joining


def test_a_launch_is_joined_by_name_grid_and_order() -> None:
    one, other = kernels()[:2]
    first = Profile((Run("a"),), (without(one, lambda name: name == "x"), one, other))
    fresh = replace(one, metrics={**one.metrics, "new__metric": 1.0})
    second = Profile((Run("b"),), (one, fresh))
    joined, refused = join(first, second)
    assert not refused and "new__metric" not in joined.kernels[0].metrics
    assert joined.kernels[1].number("new__metric") == 1.0 and joined.kernels[1].joined[0].run == 1
    moved = replace(fresh, metrics={**fresh.metrics, "launch__grid_dim_x": 7.0})
    _, refused = join(first, Profile((Run("b"),), (moved,)))
    assert "no launch of the first run has its name, grid and order" in refused[0]
    third = Profile((Run("b"),), (fresh, fresh, fresh))
    assert "name, grid and order" in join(first, third)[1][0], "the third of two"


def test_what_was_measured_first_stays() -> None:
    one = kernels()[0]
    other = replace(one, metrics={**one.metrics, "gpu__time_duration.sum": 1.0})
    joined, _ = join(Profile((Run("a"),), (one,)), Profile((Run("b"),), (other,)))
    assert joined.kernels[0].number("gpu__time_duration.sum") == one.number("gpu__time_duration.sum")


# --- stopped, and gone on with


def test_an_interrupted_run_is_kept_with_its_survey_and_gone_on_with(world: World) -> None:
    first, rest = kernels()[:3], kernels()[3:]
    world.reports["out.ncu-rep"] = first
    cut = world(body="time.sleep(60)", timeout_s=3.0, scenario={"program": [[k.name, 9, 1, k.mangled] for k in first]})
    assert cut.document["partial"] is True and len(cut.document["kernels"]) == 3
    assert any("--resume" in line and "out.ncu-rep" in line for line in cut.document["warnings"])
    kept = counting.from_json((world.folder / "out.survey.json").read_text())
    assert [one.key for one in kept.configurations] == [one.key for one in world.rows]
    world.told.clear()
    world.reports["again.ncu-rep"] = rest
    done = world(profile=world.folder / "again.ncu-rep", resume=(world.folder / "out.ncu-rep",)).document
    assert len(world.commands) == 2 and not any(text.startswith("survey") for text in world.told)
    done_names = {k.mangled for k in first} - {k.mangled for k in rest}
    assert all(name not in world.commands[1] for name in done_names)
    assert [kernel["run"] for kernel in done["kernels"]] == [0, 0, 0, *(1 for _ in rest)]
    assert done["partial"] is False and done["program"]["covered_share"] == pytest.approx(1.0)
    assert len({kernel["index"] for kernel in done["kernels"]}) == len(kernels())


def test_a_time_limit_is_one_of_both_runs(world: World) -> None:
    """The survey is stopped at half of it; what it counted serves, and the limit is told as it was given."""
    world.sleep_in_survey = 60
    began = time.monotonic()
    document = world(body="time.sleep(60)", timeout_s=6.0).document
    assert time.monotonic() - began < 40
    assert any("did not see the whole program" in line for line in document["warnings"])
    assert any("stopped after 6 s (--timeout)" in line for line in document["warnings"])
    assert document["program"]["covered_share"] is None and document["kernels"][0]["launches"] == 10


def test_resuming_a_complete_run_profiles_nothing(world: World) -> None:
    (world.folder / "out.ncu-rep").write_bytes(b"NVR\0report")
    done = world(profile=world.folder / "again.ncu-rep", resume=(world.folder / "out.ncu-rep",))
    assert not world.commands and len(done.document["kernels"]) == len(kernels())
    assert not (world.folder / "again.ncu-rep").exists()


def test_a_result_that_came_twice_counts_once() -> None:
    one, other = kernels()[:2]
    both = resumed(Profile((Run("a"),), (one,)), Profile((Run("b"),), (one, other)))
    assert [(kernel.name, kernel.run, kernel.index) for kernel in both.kernels] == [
        (one.name, one.run, one.index),
        (other.name, other.run + 1, 1),
    ]


def test_a_damaged_survey_beside_a_report_is_an_error(world: World) -> None:
    (world.folder / "out.survey.json").write_text("{}")
    with pytest.raises(DiagnoseError, match=r"out\.survey\.json cannot be used"):
        world(profile=world.folder / "again.ncu-rep", resume=(world.folder / "out.ncu-rep",))


def test_stop_ends_the_program_when_all_chosen_launches_are_profiled(world: World) -> None:
    result = world(body="time.sleep(60)", stop=True)
    assert any("(--stop)" in line for line in result.document["warnings"])
    assert result.collected is not None and result.collected.target_exit == 0  # that of the survey's run


@pytest.fixture
def long_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stops short programs, too. Some blocks of the account do not count: reading a fresh file (the program) may set
    the time of its last access."""
    monkeypatch.setattr(live, "_STOP_FROM_S", 0.0)

    def told(pid: int, settled: bool) -> int:
        return max(0, (written_bytes(pid, settled) or 0) - NOISE)

    monkeypatch.setattr(surveying, "written_bytes", told)


NOISE = 64 << 10


needs_accounts = pytest.mark.skipif(
    written_bytes(os.getpid()) is None or not os.access("/dev/shm", os.W_OK), reason="no account of what is written"
)


@needs_accounts
def test_a_program_that_wrote_nothing_ends_when_all_is_profiled(
    world: World, long_enough: None, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its output is that of the run to its end, once."""
    world.in_survey = "print('step 1'); print('the result is 7', flush=True)"
    result = world(body="print('step 1', flush=True); time.sleep(60); print('the result is 7')")
    assert any("wrote to no disk; --no-stop lets it go on" in line for line in result.document["warnings"])
    assert result.document["runs"][0]["target_exit"] == 0
    assert result.document["collection"]["survey"]["wrote_bytes"] == 0
    assert capfd.readouterr().err == "step 1\nthe result is 7\n"


@needs_accounts
def test_the_output_of_a_program_that_is_stopped_goes_where_it_should(world: World, long_enough: None) -> None:
    world.in_survey = "print('the result is 7', flush=True)"
    world(body="print('cut', flush=True); time.sleep(60)", target_output=world.folder / "output.txt")
    assert (world.folder / "output.txt").read_text() == "the result is 7\n"


@needs_accounts
@pytest.mark.parametrize(
    ("in_survey", "settings"),
    [
        ("Path('result.bin').write_bytes(bytes(200_000))", {}),
        ("os.system('head -c 200000 /dev/zero > result.bin')", {}),  # by a child
        ("sys.exit(4)", {}),
        ("pass", {"stop": False}),
        ("pass", {"replay": "application"}),
    ],
)
def test_a_program_whose_end_may_matter_runs_to_it(
    world: World, long_enough: None, in_survey: str, settings: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    world.in_survey = in_survey
    result = world(body="time.sleep(0.5)\nprint('the end', flush=True)\nsys.exit(3)", **settings)
    assert result.collected is not None and result.collected.target_exit == 3
    assert capfd.readouterr().err == "the end\n"


@needs_accounts
def test_a_short_program_runs_to_its_end(world: World) -> None:
    result = world(body="sys.exit(3)")
    assert result.collected is not None and result.collected.target_exit == 3


def test_what_stop_would_have_saved_is_said(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    line = "the program ran on for {} s after the last chosen launch was profiled: --stop ends it there"
    assert not any("--stop ends it" in warning for warning in world(body="time.sleep(0.2)").document["warnings"])
    monkeypatch.setattr(live, "_WORTH_SAYING_S", 1.0)
    monkeypatch.setattr(live, "_WORTH_SAYING", 0.0)
    told = world(profile=world.folder / "b.ncu-rep", body="time.sleep(1.6)").document["warnings"]
    assert line.format(2) in told


def test_a_kernel_is_asked_once_for_the_second_run_and_the_document(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    diagnose = api._diagnose
    monkeypatch.setattr(api, "_diagnose", lambda kernel, *rest: asked.append(kernel.index) or diagnose(kernel, *rest))
    world()
    assert sorted(asked) == list(range(len(kernels())))


def test_ctrl_c_during_the_survey_leaves_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise surveying.Interrupted

    monkeypatch.setattr(surveying, "run", interrupt)
    (world.folder / "out.ncu-rep").touch()
    with pytest.raises(KeyboardInterrupt):
        world()
    assert not (world.folder / "out.ncu-rep").exists()


UNSAVED = ["==ERROR== Failed to save the report to file /full/disk-full.ncu-rep"]


def test_a_full_disk_keeps_what_reached_it(world: World) -> None:
    world.reports["out.ncu-rep"] = kernels()[:2]
    document = world(scenario={"after": UNSAVED, "exit": 1}).document
    assert len(document["kernels"]) == 2 and document["partial"] is True
    assert any("could not write the report to its end (/full/disk-full.ncu-rep)" in x for x in document["warnings"])
    assert any("--resume" in line for line in document["warnings"])


def test_a_program_that_dies_midway_can_be_gone_on_with(world: World) -> None:
    first = kernels()[:3]
    world.reports["out.ncu-rep"] = first
    launches = [[kernel.name, 9, 1, kernel.mangled] for kernel in first]
    document = world(body="sys.exit(3)", scenario={"program": launches}).document
    assert document["partial"] is True and document["runs"][0]["target_exit"] == 3
    assert any("--resume" in line for line in document["warnings"]) and (world.folder / "out.survey.json").exists()


def test_a_report_that_a_full_disk_cut_off_is_told_as_that(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(*_: object, **__: object) -> Profile:
        raise DiagnoseError("out.ncu-rep is truncated and holds no readable result", "copy the file again")

    monkeypatch.setattr(live, "read_reports", unreadable)
    with pytest.raises(DiagnoseError) as raised:
        world(scenario={"after": UNSAVED, "exit": 1})
    assert raised.value.exit_code == EXIT_NOTHING_MEASURED and raised.value.hint.startswith("df -h")
    assert f"{len(world.rows)} launches were profiled, and their report could not be written" in raised.value.message


def test_little_space_is_said_before(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 3_000_000})())
    assert any("only 3 MB are free" in line for line in world().document["warnings"])
    assert any(text.startswith("warning: only 3 MB") for text in world.told)


def test_no_temporary_folder_is_left(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    place = world.folder / "tmp"
    place.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    world()
    with pytest.raises(DiagnoseError):
        world(kernel="nothing_like_it", profile=world.folder / "b.ncu-rep")
    assert not list(place.iterdir())


def test_a_reference_kernel_needs_no_survey(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(api, "profile_program", lambda target, live, *_: asked.append(live.survey) or _collected())
    monkeypatch.setattr("diagnose.collect.kernels.build_kernel", lambda kernel, progress=None: Path("/bin/true"))
    api.diagnose_reference_kernel("gemm/naive", Live(world.folder / "k.ncu-rep"), Options(ncu=str(FAKE)), print)
    assert asked == ["none"]


def _collected() -> Collected:
    return Collected(None, FAKE, None, (), None, (), (), True, False, "none", "all", "kernel", 0)


# --- the configuration


def test_a_configuration_says_how_live_runs_are_profiled(tmp_path: Path) -> None:
    file = tmp_path / "diagnose.toml"
    file.write_text('[collect]\nmode = "deep"\nsurvey = "none"\ntop = 7\ncoverage = 1\nstop = true\n')
    assert config.load(file).collect == config.Collect("deep", "none", 7, 1, True)
    file.write_text("")
    assert config.load(file).collect == config.Collect()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("collect = 3", "collect is no table"),
        ("[collect]\ntopp = 3", "unknown key collect.topp; did you mean 'top'"),
        ('[collect]\nmode = "deeper"', "collect.mode is 'deeper'"),
        ("[collect]\nsurvey = 3", "collect.survey is 3"),
        ("[collect]\ntop = 0", "collect.top must be a whole number"),
        ("[collect]\ntop = true", "collect.top must be a whole number"),
        ("[collect]\ncoverage = 95", "collect.coverage must be a share"),
        ("[collect]\nstop = 1", "collect.stop must be true or false"),
    ],
)
def test_a_wrong_configuration_is_an_error(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "diagnose.toml"
    file.write_text(text)
    with pytest.raises(DiagnoseError) as raised:
        config.load(file)
    assert said in raised.value.message


def test_an_option_comes_before_the_configuration(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Live] = []

    def seen(target: Sequence[str], how: Live, *_: object) -> Collected:
        asked.append(how)
        return _collected()

    monkeypatch.setattr(api, "diagnose_program", seen)
    (world.folder / "diagnose.toml").write_text('[collect]\nmode = "deep"\ntop = 7\nsurvey = "ncu"\n')
    assert cli.main(["--no-html", "--top", "3", world.program()]) == EXIT_INTERRUPTED
    assert (asked[0].top, asked[0].mode, asked[0].survey, asked[0].coverage) == (3, "deep", "ncu", live.COVERAGE)
