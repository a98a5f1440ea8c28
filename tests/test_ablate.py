"""Ablations: studies as data, the noise, knees and crossings of known curves, the runner with a stand-in program."""

from __future__ import annotations

import json
import math
import re
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import gen_ablations
import recorded
from diagnose import api, program
from diagnose.ablate import command, conclude, document, knee, noise, outcomes, plan, run, state, sweep, timing
from diagnose.ablate import study as studies
from diagnose.ablate.conditions import parse
from diagnose.bundled import bundled
from diagnose.cli import main
from diagnose.errors import EXIT_NOTHING_MEASURED, DiagnoseError
from diagnose.packs import TABLE_FILE
from diagnose.render import ablation, curve
from diagnose.rules import active_rules

FAKE_NCU = Path(__file__).parent / "fake_ncu" / "ncu"
STUDY = """
    title: Stages
    question: Is it hidden?
    improves: it was not hidden
    unchanged: it was hidden
    tests: [pipeline-wait]
    ablates: axis
    axis: {name: stages, params: [stages], values: [2, 3, 4]}
    baseline: 2
    variants:
      - {name: one, kernel: gemm/sweep, params: {m: 1024}}
"""


def write(folder: Path, text: str, name: str = "mine.yaml") -> Path:
    path = folder / name
    path.write_text(textwrap.dedent(text))
    return path


def program_file(folder: Path, body: str) -> Path:
    """A program in Python: `args` holds its --name value pairs as numbers."""
    path = folder / "program"
    head = "import pathlib, sys\nargs = dict(zip([w[2:] for w in sys.argv[1::2]], map(float, sys.argv[2::2])))\n"
    path.write_text(f"#!{sys.executable}\n{head}{textwrap.dedent(body)}")
    path.chmod(0o755)
    return path


# --- studies


@pytest.mark.parametrize("name", sorted(studies.files()))
def test_every_bundled_study_can_run(name: str) -> None:
    one = studies.load(studies.files()[name])
    known = {rule.id for rule in active_rules(api.load_rules(api.Options()))} | set(program.RULES)
    assert set(one.tests) <= known
    points = plan.points(one)
    assert len({point.id for point in points}) == len(points) >= 2
    compared = conclude.compare(one, points, {p.id: noise.Estimate(100.0, 0.001, 3) for p in points})
    assert conclude.deciding(one, compared) is not None, "something can be concluded"
    if one.profile != "none":
        base = [p for p in plan.profiled(one, points) if one.baseline in (p.value, p.variant.name)]
        assert base, "what was predicted is known at the baseline"
    for point in points:
        assert point.work().keys() <= {"flops", "bytes"} and max(point.work().values()) > 0


def test_all_rows_of_the_article_have_a_study() -> None:
    import yaml

    rows = yaml.safe_load((bundled("rules") / TABLE_FILE).read_text(encoding="utf-8"))["ablations"]
    assert len(rows) == 7
    for row in rows:
        one = studies.find(row["study"])
        assert one.article is not None and one.article["variable"] == row["variable"]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("gemm/sweep", "gemm/swep", "no bundled kernel 'gemm/swep'.*'gemm/sweep'"),
        ("params: [stages]", "params: [stage]", "gemm/sweep has no parameter 'stage'.*'stages'"),
        ("m: 1024", "x: 1024", "no parameter 'x'"),
        ("m: 1024", "stages: 3", "stages is set by the axis"),
        ("baseline: 2", "baseline: 7", "baseline 7 is no value"),
        ("title: Stages", "titel: Stages", "no key 'titel'.*'title'"),
        ("question: Is it hidden?", "", "lacks 'question'"),
        ("improves: it was not hidden", "", "neither an article row nor 'improves'"),
        ("values: [2, 3, 4]", "values: [2, 2]", "twice"),
        ("values: [2, 3, 4]", "values: [2, 3.5]", "whole number"),
        ("ablates: axis", "ablates: axes", "'axes' is not one of"),
        ("ablates: axis", "ablates: variant", "baseline '2' is no variant"),
        ("axis: {name: stages, params: [stages], values: [2, 3, 4]}", "", "has no axis"),
        ("tests: [pipeline-wait]", "analyses: [waves]", "needs `blocks`"),
        ("tests: [pipeline-wait]", "analyses: [crossover]", "needs two variants"),
        ("tests: [pipeline-wait]", "article: nothing", "no ablation 'nothing'"),
        ("tests: [pipeline-wait]", "blocks: m/q", "blocks.*'q' is not a parameter"),
        ("params: {m: 1024}", "flops_ceiling: tensor:wgma:bf16", "no GPU of the catalogue"),
    ],
)
def test_a_study_that_cannot_run_is_refused_with_its_line(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in STUDY
    path = write(tmp_path, STUDY.replace(old, new))
    with pytest.raises(DiagnoseError) as raised:
        studies.load(path)
    assert re.search(r"mine\.yaml:\d+: ", raised.value.message) and re.search(said, raised.value.message)


def test_a_pack_ships_its_studies_and_its_rules_still_load(tmp_path: Path) -> None:
    (tmp_path / "pack.yaml").write_text("name: acme\nversion: 1\n")
    (tmp_path / "studies").mkdir()
    write(tmp_path / "studies", STUDY, "acme-stages.yaml")
    assert api.load_rules(api.Options(rules=(tmp_path,)))[1].name == "acme"
    assert studies.find("acme-stages", (tmp_path,)).title == "Stages"
    write(tmp_path / "studies", STUDY, "stages.yaml")
    with pytest.raises(DiagnoseError, match="'stages' is taken"):
        studies.files((tmp_path,))


def test_a_sweep_out_of_words() -> None:
    one = sweep.from_words("N=256,512,1024", ["./a.out", "--n={N}", "{M}"])
    commands = [point.command() for point in plan.points(one)]
    assert commands == [("./a.out", f"--n={n}", "{M}") for n in (256, 512, 1024)] and one.baseline == 256
    assert plan.points(sweep.from_words("N=2,3", ["a", "{N}"], flops="2*N*N"))[1].work() == {"flops": 18.0}


@pytest.mark.parametrize(
    ("words", "target", "said"),
    [
        ("N", ["a", "{N}"], "not NAME=VALUE"),
        ("N=1", ["a", "{N}"], "two values"),
        ("N=1,x", ["a", "{N}"], "'x' is no whole number"),
        ("N=1,2", ["a"], "does not stand in"),
        ("N=1,2", [], "needs a program"),
    ],
)
def test_a_sweep_that_cannot_be_run(words: str, target: list[str], said: str) -> None:
    with pytest.raises(DiagnoseError, match=re.escape(said)):
        sweep.from_words(words, target)


# --- noise


def test_the_noise_of_few_runs_is_not_biased() -> None:
    generator = np.random.default_rng(7)
    for runs in (3, 8):
        samples = {str(i): list(np.exp(generator.normal(math.log(50 + i), 0.01, runs))) for i in range(400)}
        assert noise.pooled(samples) == pytest.approx(0.01, rel=0.1)
    assert noise.pooled({"a": [1.0]}) is None
    assert noise.pooled({"a": [5.0, 5.0, 5.0]}) == noise.FLOOR


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    generator = np.random.default_rng(8)
    hits = 0
    for _ in range(800):
        samples = list(np.exp(generator.normal(math.log(1000.0), 0.02, 5)))
        found = noise.estimate(samples, 0.02)
        assert found is not None
        hits += found.low <= 1000.0 <= found.high
    assert 0.92 <= hits / 800 <= 0.99


@pytest.mark.parametrize(
    ("before", "after", "work", "outcome"),
    [(100, 80, 1, "improves"), (100, 125, 1, "worse"), (100, 101, 1, "same"), (100, 97, 1, "open"),
     (100, 200, 2, "same"), (100, 200, 3, "improves")],
)  # fmt: skip
def test_a_gain_is_told_from_the_noise(before: float, after: float, work: float, outcome: str) -> None:
    assert noise.gain(noise.Estimate(before, 0.004, 3), noise.Estimate(after, 0.004, 3), work).outcome == outcome


def test_noise_decides_and_not_the_factor_alone() -> None:
    pair = [noise.Estimate(us, 0.05, 3) for us in (100.0, 92.0)]
    assert noise.gain(*pair).outcome == "open"
    assert noise.gain(noise.Estimate(100, 0.005, 3), noise.Estimate(92, 0.005, 3)).outcome == "improves"
    wide, narrow = (noise.gain(*pair, comparisons=n).high for n in (20, 1))
    assert wide > narrow, "the best of many needs more"


# --- curves


def line(name: str, values: list[int], rate: Callable[[int], float], error: float = 0.005) -> knee.Curve:
    return knee.Curve(name, tuple(values), tuple(rate(v) for v in values), (error,) * len(values))


SIZES = [256, 512, 1024, 2048, 4096, 8192, 16384]


def test_the_knee_of_a_saturating_curve() -> None:
    found = knee.knee(line("a", SIZES, lambda n: n / (n + 200)))
    # 0.9 of a plateau of 0.981: n / (n + 200) >= 0.883 from 1,509 on.
    assert found["stays"]["value"] == 2048 and found["stays"]["low"] == found["stays"]["high"] == 2048
    assert not knee.knee(line("b", SIZES, float))["flat"]
    dip = knee.knee(line("c", SIZES, lambda n: 0.5 if n in (256, 4096) else 1.0))
    assert (dip["reaches"]["value"], dip["stays"]["value"]) == (512, 8192)


def test_a_knee_between_two_values_has_both_in_its_interval() -> None:
    found = knee.knee(line("a", SIZES, lambda n: 0.2 if n < 1024 else 0.9 if n == 1024 else 1.0, 0.02))
    assert (found["stays"]["low"], found["stays"]["high"]) == (1024, 2048)


def test_the_crossing_of_two_lines() -> None:
    base = line("bf16", SIZES, lambda n: 1.0)
    other = line("fp8", SIZES, lambda n: (n / 3000) ** 0.5)
    found = knee.crossover(base, other)
    assert found["from"] == pytest.approx(3000, rel=0.02) and found["low"] < 3000 < found["high"]
    assert found["high"] / found["low"] < 1.2
    never = knee.crossover(base, line("c", SIZES, lambda n: 0.5))
    assert never["from"] is None and never["always"] == "bf16" and never["found_in"] == 0.0


def test_waves_predict_a_saw_tooth() -> None:
    def rate(n: int) -> float:
        return (n / 256 * 12 / 132) / math.ceil(n / 256 * 12 / 132)

    one = line("a", [2816, 3072, 4352, 5632, 5888, 8448], rate)
    found = knee.waves(one, lambda n: 12 * n / 256, 132)
    assert found["good"] == [2816, 5632, 8448] and found["correlation"] > 0.99


# --- the runner


def limits(**changed: Any) -> run.Limits:
    return run.Limits(**{"width": 0.05, "budget_s": 60.0, "timeout_s": 20.0, "most": 6, **changed})


def measure(one: studies.Study, limit: run.Limits, now: state.State | None = None) -> tuple[state.State, list[str]]:
    now = now or state.State(one.fingerprint(), 5)
    told: list[str] = []
    setup = run.Setup(timing.source_of(r"time ([\d.]+)", "us", None, None), {}, profiles=False)
    run.run(one, setup, limit, now, lambda current: None, told.append)
    return now, told


def test_rounds_are_in_random_order_after_a_warm_up(tmp_path: Path) -> None:
    target = program_file(
        tmp_path,
        f"""
        with open({str(tmp_path / "order")!r}, "a") as file: print(int(args["n"]), file=file)
        print("time", 10 + args["n"])
        """,
    )
    now, _ = measure(sweep.from_words("N=1,2,3,4,5,6", [str(target), "--n", "{N}"]), limits())
    order = [int(word) for word in (tmp_path / "order").read_text().split()]
    rounds = [order[1 + 6 * i : 7 + 6 * i] for i in range(3)]
    assert order[0] == 1 and len(order) == 19, "a warm-up, then three rounds"
    assert all(sorted(one) == [1, 2, 3, 4, 5, 6] for one in rounds)
    assert len({tuple(one) for one in rounds}) == 3
    assert now.complete and now.stopped is None and all(len(p.samples) == 3 for p in now.points.values())


def test_a_point_with_a_wrong_result_does_not_count(tmp_path: Path) -> None:
    target = program_file(tmp_path, 'print("time", 10) if args["n"] != 2 else sys.exit("error: mismatch")')
    one = sweep.from_words("N=1,2,3", [str(target), "--n", "{N}"])
    now, told = measure(one, limits())
    found = document.build(one, now)
    assert [point["time_us"] for point in found["points"]] == [10.0, None, 10.0]
    assert found["points"][1]["failed"] == "exit status 1: mismatch" and any("do not count" in text for text in told)
    assert {row["value"] for row in found["comparisons"]} == {3}


def test_repeats_until_narrow_or_the_end(tmp_path: Path) -> None:
    target = program_file(
        tmp_path,
        f"""
        count = pathlib.Path({str(tmp_path / "count")!r})
        n = int(count.read_text()) if count.exists() else 0
        count.write_text(str(n + 1))
        print("time", 100 * (1 + (n * 37 % 11) / 20))
        """,
    )
    one = sweep.from_words("N=1,2", [str(target), "--n", "{N}"])
    now, _ = measure(one, limits(most=5))
    assert all(len(point.samples) == 5 for point in now.points.values()) and now.rounds == 5
    assert conclude.conclusion(one, [], now, plan.points(one))["status"] == "open"


def test_the_budget_ends_a_study(tmp_path: Path) -> None:
    target = program_file(tmp_path, 'import time; time.sleep(0.3); print("time", 5)')
    now, _ = measure(sweep.from_words("N=1,2,3", [str(target), "--n", "{N}"]), limits(budget_s=1.2))
    assert not now.complete and now.stopped is not None and "budget" in now.stopped and now.spent_s < 4


def test_nothing_measured_is_an_error(tmp_path: Path) -> None:
    target = program_file(tmp_path, "sys.exit(3)")
    with pytest.raises(DiagnoseError, match=r"no point .* could be timed: exit status 3") as raised:
        measure(sweep.from_words("N=1,2", [str(target), "--n", "{N}"]), limits())
    assert raised.value.exit_code == EXIT_NOTHING_MEASURED


def test_a_program_that_hangs_costs_its_limit_only(tmp_path: Path) -> None:
    target = program_file(tmp_path, 'import time; time.sleep(30 if args["n"] == 2 else 0); print("time", 5)')
    now, _ = measure(sweep.from_words("N=1,2,3", [str(target), "--n", "{N}"]), limits(timeout_s=1.0))
    assert [point.failed for point in now.points.values()] == [None, "no end within 1 s", None]


def test_an_interrupted_study_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    target = program_file(
        tmp_path,
        f"""
        count = pathlib.Path({str(tmp_path / "count")!r})
        n = int(count.read_text()) if count.exists() else 0
        count.write_text(str(n + 1))
        print("time", 10 + n / 1000)
        """,
    )
    monkeypatch.chdir(tmp_path)
    words = ["ablate", "--sweep", "N=1,2,3", "--time", r"time ([\d.]+)", "--no-profile", "--interval", "5"]
    real, calls = timing.once, []

    def stops(*arguments: Any) -> timing.Timed:
        calls.append(1)
        if len(calls) == 6:  # a warm-up, three points, one of the second round
            raise KeyboardInterrupt
        return real(*arguments)

    monkeypatch.setattr(timing, "once", stops)
    assert main([*words, "--", str(target), "--n", "{N}"]) == 130
    kept = tmp_path / "diagnose-ablation-sweep-N.json"
    first = json.loads(kept.read_text())
    assert not first["run"]["complete"] and sum(len(p["samples"]) for p in first["points"]) == 4
    assert f"--resume {kept.name}" in capfd.readouterr().err
    monkeypatch.setattr(timing, "once", real)
    assert main([*words, "--resume", kept.name, "--", str(target), "--n", "{N}"]) == 0
    second = json.loads(kept.read_text())
    assert second["run"]["complete"] and second["run"]["seed"] == first["run"]["seed"]
    for before, after in zip(first["points"], second["points"], strict=True):
        assert after["samples"][: len(before["samples"])] == before["samples"]
    assert main([*words[:2], "N=1,2,4", *words[3:], "--resume", kept.name, "--", str(target), "--n", "{N}"]) == 2
    assert "another study" in capfd.readouterr().err


def test_conditions_are_read_and_absent_ones_are_none() -> None:
    assert parse("1980, 3201, 41, 612.53") == (1980.0, 3201.0, 41.0, 612.53)
    assert parse("1980, [N/A], 41, [Not Supported]") == (1980.0, None, 41.0, None)
    assert parse("No devices were found") is None


@pytest.mark.parametrize(
    ("pattern", "unit", "said"), [("(", "us", "no regular"), ("x", "us", "no group"), ("(x)", "h", "not one of")]
)
def test_a_pattern_that_cannot_be_used(pattern: str, unit: str, said: str) -> None:
    with pytest.raises(DiagnoseError, match=said):
        timing.source_of(pattern, unit, None, None)


# --- whole commands, with a stand-in for nvidia-smi, ncu and the bundled programs

STAND_IN = """
size, stages = args["m"], args.get("stages", 4)
us = 100 * (1 + 1 / stages) * (args["repeats"] > 0)
print(f"gemm/sweep | {us:.1f} us | {us:.1f} TFLOP/s | error 1e-3 (tolerance 4e-3) | ok")
"""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with a GPU by name, a stand-in ncu that gives a recorded report, and programs built."""
    tools = tmp_path / "tools"
    tools.mkdir()
    smi = tools / "nvidia-smi"
    smi.write_text(
        f"#!{sys.executable}\nimport sys, time\n"
        "if 'compute_cap' in ' '.join(sys.argv): print('NVIDIA H200, 580.0, 9.0, Disabled'); sys.exit()\n"
        "while True: print('1900, 3201, 40, 500.0', flush=True); time.sleep(0.02)\n"
    )
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    monkeypatch.setattr(plan, "build_kernel", lambda kernel, arch, progress: program_file(tmp_path, STAND_IN))
    report = unpack(tmp_path)
    scenario = tmp_path / "scenario.json"
    scenario.write_text(json.dumps({"launches": [["gemm_mma", 12]], "report_file": str(report)}))
    monkeypatch.setenv("FAKE_NCU_SCENARIO", str(scenario))
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return work


def unpack(folder: Path) -> Path:
    import lzma

    path = folder / "mma.ncu-rep"
    path.write_bytes(lzma.decompress(recorded.report_of("gemm/mma").read_bytes()))
    return path


def test_a_study_from_the_command_to_its_files(machine: Path, capfd: Any) -> None:
    path = write(machine, STUDY.replace("gemm/sweep, params", "gemm/sweep, flops_ceiling: 'tensor:wgmma:bf16', params"))
    assert main(["ablate", str(path), "--no-profile", "--budget", "30"]) == 0
    said = capfd.readouterr()
    assert "Improves: one @ 4, 1.20×" in said.out and "So: it was not hidden." in said.out
    found = json.loads((machine / "diagnose-ablation-mine.json").read_text())
    assert [round(point["time_us"], 1) for point in found["points"]] == [150.0, 133.3, 125.0]
    assert found["run"]["gpu"] == "NVIDIA H200" and found["run"]["complete"]
    assert found["points"][0]["samples"][0]["sm_mhz"] == 1900.0
    assert found["points"][0]["target"].startswith("kernel:gemm/sweep,m=1024,")
    assert found["points"][0]["bounds"][-1]["resource"] == "tensor:wgmma:bf16"
    assert str(machine.parent) not in json.dumps(found), "a result names no folder of this machine"
    page = (machine / "diagnose-ablation-mine.html").read_text(encoding="utf-8")
    assert (
        "<svg" in page and "Content-Security-Policy" in page and "http://" not in page.replace("http://www.w3.org", "")
    )
    # A second run overwrites nothing, and the first can be shown again without a GPU.
    assert main(["ablate", str(path), "--no-profile", "--no-html"]) == 0
    assert (machine / "diagnose-ablation-mine-2.json").is_file()
    capfd.readouterr()
    assert main(["ablate", "diagnose-ablation-mine.json"]) == 0
    assert capfd.readouterr().out == said.out


def test_the_baseline_is_profiled_and_what_it_predicted_is_compared(machine: Path, capfd: Any) -> None:
    text = STUDY.replace("pipeline-wait", "legacy-mma").replace("gemm/sweep, params: {m: 1024}", "gemm/sweep")
    path = write(machine, text)
    assert main(["ablate", str(path), "--no-html", "--ncu", str(FAKE_NCU)]) == 0
    found = json.loads((machine / "diagnose-ablation-mine.json").read_text())
    profiles = [point["profile"] for point in found["points"]]
    assert profiles[1] is None and profiles[0]["verdict"]["rule"] == "legacy-mma" and profiles[0]["limits"]
    said = found["conclusion"]["predicted"]
    assert said["fired"] and said["agrees"] and said["rules"] == ["legacy-mma"]
    assert found["conclusion"]["status"] == "confirmed"
    assert "as measured" in capfd.readouterr().out


def test_without_ncu_the_times_stand_alone(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "find_ncu", lambda named: None)
    path = write(machine, STUDY)
    assert main(["ablate", str(path), "--no-html"]) == 0
    found = json.loads((machine / "diagnose-ablation-mine.json").read_text())
    assert found["points"][0]["not_profiled"] == "no ncu was found" and found["points"][1]["not_profiled"] is None
    assert found["conclusion"]["predicted"]["fired"] is None


def test_a_program_of_the_users_is_timed_by_ncu(machine: Path, tmp_path: Path) -> None:
    target = program_file(tmp_path, "print('nothing')")
    words = ["ablate", "--sweep", "N=1,2", "--ncu", str(FAKE_NCU), "-k", "gemm_mma", "--no-profile", "--no-html"]
    assert main([*words, "--", str(target), "--n", "{N}"]) == 0
    found = json.loads((machine / "diagnose-ablation-sweep-N.json").read_text())
    expected = next(k for k in recorded.read(recorded.report_of("gemm/mma")).kernels if k.name == "gemm_mma")
    us = api.facts.context(expected, {}, ()).value("duration_us")
    assert found["points"][0]["time_us"] == pytest.approx(us, rel=1e-4)
    assert "gpu__time_duration of the kernel gemm_mma" in found["run"]["time_source"]
    assert found["conclusion"]["outcome"] == "same" and found["conclusion"]["status"] == "refuted"


def test_without_a_gpu_a_bundled_study_says_so(machine: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    monkeypatch.setattr(command, "gpus", lambda: ())
    assert main(["ablate", "stages"]) == EXIT_NOTHING_MEASURED
    assert "no GPU was found" in capfd.readouterr().err and not list(machine.iterdir())


# --- renderers and outcomes


def example(title: str = "Stages") -> dict[str, Any]:
    """A result with two curves, made of known times."""
    kernel = studies.load_kernels()["gemm/sweep"]
    one = studies.Study(
        id="mine", title=title, question="Why?", improves="it was", unchanged="it was not", ablates="axis", baseline=2,
        axis=studies.Axis("stages", ("stages",), (2, 3, 4)), tests=("legacy-mma",), analyses=("knee",), measure="rate",
        variants=tuple(
            studies.Variant(name, kernel, kernel.params, flops_ceiling="tensor:wgmma:bf16")
            for name in ("one", "<b>two</b>")
        ),
    )  # fmt: skip
    now = state.State(one.fingerprint(), 1, "NVIDIA H200", 90, "580.0", "2026-11-30", "told", 3, 9.0)
    for number, point in enumerate(plan.points(one)):
        times = [2000 - 100 * number + 2 * i for i in range(3)]
        now.points[point.id] = state.PointState([{"us": us, "sm_mhz": 1900.0} for us in times], None, 1e-3, 4e-3)
    return document.build(one, now)


def test_the_page_is_inert_and_the_curve_is_xml() -> None:
    found = example("<script>alert(1)</script>")
    page = ablation.render_html(found)
    assert "<script" not in page and "<b>two" not in page and "&lt;script&gt;" in page
    drawing = ablation.svg(found)
    assert drawing is not None
    root = ElementTree.fromstring(drawing)
    assert root.get("viewBox") == f"0 0 {curve.WIDTH} {curve.HEIGHT}"
    assert len([e for e in root.iter() if e.tag.endswith("circle")]) == 3
    assert ablation.svg({**found, "points": []}) is None


def test_marks_lie_inside_the_frame_and_bounds_above_the_curve() -> None:
    chart = curve.chart(example())
    assert chart is not None
    for series in chart["series"]:
        for point in series["points"]:
            assert chart["left"] <= float(point["x"]) <= chart["right"] and 0 < float(point["y"]) < chart["bottom"]
            assert float(point["high"]) <= float(point["y"]) <= float(point["low"])
    roof = min(float(pair.split(",")[1]) for pair in chart["bounds"][0]["path"].split())
    assert all(roof < float(point["y"]) for series in chart["series"] for point in series["points"])


def diagnosed(name: str) -> dict[str, Any]:
    profile = recorded.read(recorded.report_of(name))
    return api.examine(profile, api.load_rules(api.Options()), api.Options(source=False))


def test_a_finding_names_its_study_and_shows_the_outcome_on_its_kernel() -> None:
    found = diagnosed("gemm/mma")
    plain = outcomes.attach(found)["kernels"][0]["findings"]
    study = next(f for f in plain if f["rule"] == "legacy-mma")["next_experiment"]["study"]
    assert study == {"name": "mma-to-wgmma", "command": "diagnose ablate mma-to-wgmma", "outcome": None}
    result = example()
    for variant in result["study"]["variants"]:
        variant["function"] = "gemm_mma"
    for outcome, status in (("improves", "confirmed"), ("same", "refuted"), ("worse", "refuted"), ("open", "open")):
        assert conclude.STATUS[outcome] == status
        result["conclusion"]["status"] = status
        told = outcomes.attach(found, [result])["kernels"][0]["findings"]
        study = next(f for f in told if f["rule"] == "legacy-mma")["next_experiment"]["study"]
        assert study["outcome"]["status"] == status and study["name"] == "mine"
        assert status in ablation.tested_by(study)


def test_an_outcome_of_another_kernel_rule_or_gpu_says_nothing() -> None:
    found = diagnosed("gemm/mma")
    for change in ({"function": "gemm_other"}, {"tests": ["spill"]}, {"gpu": "NVIDIA B200"}):
        result = example()
        for variant in result["study"]["variants"]:
            variant["function"] = change.get("function", "gemm_mma")
        result["study"]["tests"] = change.get("tests", ["legacy-mma"])
        result["run"]["gpu"] = change.get("gpu", "NVIDIA H200")
        for finding in outcomes.attach(found, [result])["kernels"][0]["findings"]:
            assert finding["next_experiment"].get("study", {}).get("outcome") is None


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"kind": "ablation"}', "{" * 5000])
def test_what_is_no_result_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(DiagnoseError):
        document.read(tmp_path / "x.json")


# --- the recorded studies and their page


def test_the_page_is_up_to_date() -> None:
    assert gen_ablations.stale() == [], "run python tests/gen_ablations.py"


@pytest.mark.parametrize("path", sorted(gen_ablations.RECORDED.glob("*.json")), ids=lambda path: path.stem)
def test_a_recorded_study_is_of_its_kernels_and_shows_without_a_gpu(path: Path, capfd: Any) -> None:
    found = document.read(path)
    one = studies.find(path.stem)
    assert [p["id"] for p in found["points"]] == [p.id for p in plan.points(one)], "record it: tests/gpu/ablations.py"
    # What the file concludes is what its samples give today.
    now = state.restore(found, found["run"]["fingerprint"], None, path)
    now.complete, now.stopped = found["run"]["complete"], found["run"]["stopped"]
    again = document.build(one, now)
    assert again["comparisons"] == found["comparisons"] and again["conclusion"] == found["conclusion"]
    assert main(["ablate", str(path)]) == 0
    assert one.title in capfd.readouterr().out
