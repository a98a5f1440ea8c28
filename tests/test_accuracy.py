"""`diagnose rules accuracy`: what it counts, the corpora it reads, and docs/accuracy.md."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import gen_accuracy
import recorded
from diagnose import accuracy, cli
from diagnose.accuracy import Case, Label
from diagnose.errors import DiagnoseError
from diagnose.model import Fact, Finding, KernelProfile, Speedup
from diagnose.render import accuracy as figures

RULES = tuple(rule.id for rule in recorded.rules())
FAULT, FIX = "faults/bank-conflict-pitch64", "faults/bank-conflict-pitch65"


def _finding(rule: str, severity: str = "warning", klass: str = "implementation") -> Finding:
    return Finding(rule, klass, severity, rule, 0.3, None, (), (), "", "", {})


def case(
    expect: str,
    verdict: str,
    klass: str = "implementation",
    *,
    name: str = "a/b",
    also: tuple[str, ...] = (),
    findings: Sequence[Finding] = (),
    twin: str | None = None,
    us: float = 100.0,
    speedup: Speedup | None = None,
    gain: bool = True,
    held_out: bool = False,
) -> Case:
    """A label and a diagnosis, without a report behind them."""
    base = recorded.diagnosis(FAULT)
    chosen = replace(base.verdict, rule=verdict, klass=klass, speedup=speedup)
    facts = {**base.facts, "duration_us": Fact("duration_us", us, "us")}
    kernel = replace(base.kernel, ncu_rules=())
    diagnosis = replace(base, kernel=kernel, verdict=chosen, findings=tuple(findings), facts=facts)
    label = Label(name, "faults", Path("x"), None, expect, also, twin, gain, held_out=held_out)
    return Case(label, diagnosis)


def test_document_is_up_to_date() -> None:
    problem = gen_accuracy.differs(gen_accuracy.text(), gen_accuracy.TARGET.read_text(encoding="utf-8"))
    assert problem is None, f"run python tests/gen_accuracy.py: {problem}"


def test_document_check_sees_words_and_large_differences_only() -> None:
    assert gen_accuracy.differs("a 22.0 %\n", "a 22.1 %\n") is None
    assert gen_accuracy.differs("a 22.0 %\n", "a 24.0 %\n")
    assert gen_accuracy.differs("of 120 kernels\n", "of 121 kernels\n")
    assert gen_accuracy.differs("a\n", "b\n")
    assert gen_accuracy.differs("a\n", "a\nb\n")


def test_keys_are_the_contracts_and_no_number_is_infinite() -> None:
    found = accuracy.measure(gen_accuracy.cases(), gen_accuracy.packs(), gen_accuracy.absent(), "corpus")
    contract = ("kernels", "top1", "top2", "class", "quiet_on_healthy", "gain", "per_rule", "ncu_top_hint")
    assert tuple(found)[: len(contract)] == contract
    assert {"median_error", "worst_error", "coverage", "median_width"} <= set(found["gain"])
    assert all({"rule", "precision", "recall"} <= set(row) for row in found["per_rule"])
    assert found["kernels"] == len(gen_accuracy.cases()) == sum(row["kernels"] for row in found["confusion"])
    by_level = found["confidence"]
    assert found["kernels"] == sum(row["kernels"] for row in by_level.values())
    assert by_level["high"]["top1"] >= 0.99 > by_level["medium"]["top1"], "sure means right"
    assert 0 < found["ncu_top_hint"]["top1"] < found["top1"] <= found["top2"] <= 1
    assert found["top1_strict"] <= found["top1"]
    assert found["top1"] == pytest.approx(sum(row["right"] for row in found["verdicts"]) / found["kernels"], abs=1e-4)
    json.dumps(found, allow_nan=False)
    page = figures.render(found)
    assert "top 1" in page and "None" not in page and "nan" not in page


def test_what_counts_as_right() -> None:
    packs = gen_accuracy.packs()
    found = accuracy.measure(
        [
            case("spill", "spill"),
            case("spill", "barrier", also=("barrier",)),
            case("spill", "barrier", findings=[_finding("barrier"), _finding("spill")]),
            case("spill", "barrier", findings=[_finding("barrier"), _finding("fence"), _finding("spill")]),
            case("quiet", "hbm-bandwidth", "hardware"),
            case("quiet", "uncoalesced", findings=[_finding("uncoalesced")]),
            case("spill", "hbm-bandwidth", "hardware"),
            case("launch-bound", "launch-bound", "fit", also=("quiet",), held_out=True),
        ],
        packs,
    )
    assert found["top1"] == pytest.approx(4 / 8)
    assert found["top2"] == pytest.approx(5 / 8)
    assert found["top1_strict"] == pytest.approx(3 / 8)
    assert found["class"] == pytest.approx(6 / 8)
    assert found["quiet_on_healthy"] == pytest.approx(1 / 2)
    assert found["held_out"]["kernels"] == 1 and found["held_out"]["top1"] == 1
    rows = {row["rule"]: row for row in found["per_rule"]}
    assert rows["spill"]["precision"] == 1 and rows["spill"]["recall"] == pytest.approx(1 / 5)
    assert rows["barrier"]["precision"] == pytest.approx(1 / 3, abs=1e-4) and rows["barrier"]["recall"] is None
    assert "quiet" not in rows


def test_a_note_does_not_break_the_quiet() -> None:
    quiet = case("quiet", "hbm-bandwidth", "hardware", findings=[_finding("fence", "note")])
    assert accuracy.measure([quiet], gen_accuracy.packs())["quiet_on_healthy"] == 1


def test_gain_compares_the_two_recorded_times() -> None:
    two = Speedup(1.5, 2.0, 3.0)
    fix = case("quiet", "hbm-bandwidth", "hardware", name="fix", us=40.0, twin="one")
    found = accuracy.gains(
        [
            case("spill", "spill", name="one", twin="fix", us=100.0, speedup=two),
            case("spill", "spill", name="two", twin="fix", us=200.0, speedup=two),
            case("spill", "spill", name="worse twin", twin="fix", speedup=two, gain=False),
            case("spill", "barrier", name="by also", twin="fix", also=("barrier",), speedup=two),
            case("spill", "spill", name="twin without a report", twin="gone", speedup=two),
            case("spill", "spill", name="nothing predicted", twin="fix"),
            fix,
        ]
    )
    assert [(row["kernel"], row["measured"], row["inside"]) for row in found] == [
        ("one", 2.5, True),
        ("two", 5.0, False),
    ]
    assert found[0]["error"] == pytest.approx(0.2) and found[1]["error"] == pytest.approx(0.6)


def _kernel(*results: tuple[str, str | None, str, str]) -> KernelProfile:
    rules = [
        {"rule_identifier": rule, "speedup_estimation": estimate, "speedup_type": kind}
        | ({"rule_title": title} if title else {})
        for rule, title, estimate, kind in results
    ]
    return replace(recorded.profile(FAULT), ncu_rules=tuple(rules))


def test_ncu_hint_is_the_largest_estimate_read_generously() -> None:
    kernel = _kernel(
        ("SharedMemoryConflicts", None, "60", "global"), ("HighPipeUtilization", "Low Utilization", "90", "local")
    )
    assert "memory-latency" in accuracy.ncu_verdicts(kernel)
    assert accuracy.ncu_verdicts(kernel, ("global",)) == {"bank-conflict"}
    assert accuracy.ncu_verdicts(_kernel(("ThreadDivergence", None, "3", "global"))) == {"quiet"}
    assert accuracy.ncu_verdicts(_kernel(("ThreadDivergence", None, "not a number", "global"))) == {"quiet"}
    assert accuracy.ncu_verdicts(_kernel(("SomethingNew", "Title", "50", "global"))) == frozenset()
    assert accuracy.ncu_verdicts(_kernel()) == {"quiet"}


def test_hint_table_names_verdicts_and_covers_what_ncu_suggested() -> None:
    named = {one for hint in accuracy.HINTS for one in hint.verdicts}
    assert named <= {*RULES, "quiet"}, named - {*RULES, "quiet"}
    keys = [(hint.rule, hint.title) for hint in accuracy.HINTS]
    assert len(keys) == len(set(keys)) and all(hint.reason for hint in accuracy.HINTS)
    tops = {accuracy.ncu_top(one.diagnosis.kernel) for one in gen_accuracy.cases()}
    unknown = {top[:2] for top in tops if top and top[:2] not in keys and (top[0], None) not in keys}
    assert not unknown, unknown


# --- corpora ---


def _corpus(folder: Path, text: str, *names: str) -> Path:
    for name in names:
        (folder / recorded.report_of(name).name).symlink_to(recorded.report_of(name))
    (folder / "labels.yaml").write_text(text, encoding="utf-8")
    return folder


LABELS = """
family: mine
kernels:
  - {name: fault, report: faults-bank-conflict-pitch64.ncu-rep.xz, expect: EXPECT, twin: fix}
  - {name: fix, report: faults-bank-conflict-pitch65.ncu-rep.xz, function: transpose_pitch65, expect: quiet}
"""


def test_corpus_of_ones_own(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = _corpus(tmp_path, LABELS.replace("EXPECT", "bank-conflict"), FAULT, FIX)
    assert cli.main(["rules", "accuracy", str(folder), "--threshold", "1", "--format", "json"]) == 0
    said = capfd.readouterr()
    found = json.loads(said.out)
    assert (found["kernels"], found["top1"], found["quiet_on_healthy"]) == (2, 1, 1)
    assert found["gain"]["pairs"][0]["measured"] == pytest.approx(2.29, abs=0.02)
    assert list(found["families"]) == ["mine"] and "reading 2 reports" in said.err
    _corpus(tmp_path, LABELS.replace("EXPECT", "spill"))
    assert cli.main(["rules", "accuracy", "--threshold", "0.6", str(folder)]) == 1
    said = capfd.readouterr()
    assert "Wrong verdicts" in said.out and "bank-conflict" in said.out
    assert said.err.splitlines()[-1] == "gate: 50.0% of the verdicts are right, --threshold asks for 60.0%"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "holds no list `kernels`"),
        ("kernels: []", "holds no list `kernels`"),
        ("a: [", "cannot be read"),
        ("kernels: [x]", "kernels[0]: is no mapping"),
        ("kernels: [{name: a, report: b}]", "expect must be a text, got None"),
        ("kernels: [{name: a, report: b, expect: spil}]", "there is no verdict 'spil'; did you mean 'spill'"),
        ("kernels: [{name: a, report: b, expect: spill, als: []}]", "unknown key 'als'"),
        ("kernels: [{name: a, report: b, expect: spill, also: spill}]", "also must be a list"),
        ("kernels: [{name: a, report: b, expect: spill, gain: 3}]", "gain must be true or false"),
        ("kernels: [{name: a, report: b, expect: spill, twin: c}]", "there is no twin 'c'"),
        ("kernels: [{name: a, report: b, expect: spill, declared: [1]}]", "declared must map facts"),
        ("kernels: [{name: a, report: b, expect: spill}, {name: a, report: c, expect: quiet}]", "a is there twice"),
        ("kernels: [{name: a, report: b, expect: spill}]\nfoo: 1", "unknown key 'foo'"),
    ],
)
def test_bad_labels_say_where(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(DiagnoseError) as failure:
        accuracy.folder_labels(_corpus(tmp_path, text), RULES)
    assert said in failure.value.message, failure.value.message
    assert "labels.yaml" in failure.value.message and failure.value.exit_code == 2


def test_bad_corpora_and_thresholds(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for words, code, said in (
        ((str(tmp_path),), 2, "holds no labels.yaml"),
        ((str(tmp_path / "none"),), 2, "is no folder"),
        (("--threshold", "95"), 2, "--threshold 95 is no share between 0 and 1"),
        (("--threshold", "nan"), 2, "no share"),
    ):
        assert cli.main(["rules", "accuracy", *words]) == code
        assert said in capfd.readouterr().err
    _corpus(tmp_path, "kernels: [{name: a, report: gone.ncu-rep, expect: spill}]")
    assert cli.main(["rules", "accuracy", str(tmp_path)]) == 2
    assert "gone.ncu-rep does not exist" in capfd.readouterr().err


def test_a_function_that_the_report_lacks(tmp_path: Path) -> None:
    label = Label("a", "b", Path("c.ncu-rep"), "transpose_pitch46", "spill")
    with pytest.raises(DiagnoseError, match="transpose_pitch64"):
        accuracy.chosen_kernel(label, [recorded.profile(FAULT)])
