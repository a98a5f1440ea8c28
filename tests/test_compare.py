"""`diagnose compare`: matching, times within the noise, findings, expectations, and the gate."""

from __future__ import annotations

import copy
import json
import math
import re
from collections.abc import Sequence
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import recorded
from diagnose import api, cli, compare
from diagnose.errors import DiagnoseError
from diagnose.render import comparison, comparison_page, geometry

FAULT, FIX = "faults/bank-conflict-pitch64", "faults/bank-conflict-pitch65"


@cache
def _document(name: str) -> str:
    options = api.Options(all_facts=True)
    return json.dumps(api.examine(recorded.read(recorded.report_of(name)), api.load_rules(options), options))


def document(name: str) -> dict[str, Any]:
    """A recorded report as `--facts all --format json` gives it."""
    found = json.loads(_document(name))
    assert isinstance(found, dict)
    return found


def kernel(name: str = "k", us: float | None = 100.0, grid: int = 1, **more: Any) -> dict[str, Any]:
    """A kernel of a document with what comparing reads."""
    return {
        "name": name,
        "demangled": f"void {name}<float>(float*)",
        "workload": "kernel",
        "launch": {"grid": [grid, 1, 1], "block": [32, 1, 1], "cluster": None},
        "duration_us": us,
        "verdict": {"rule": "spill", "class": "implementation", "title": "Spills", "at_stake": 0.5},
        "findings": [],
        "facts": {},
        **more,
    }


def finding(rule: str = "spill", stake: float | None = 0.5, severity: str = "warning", **expect: Any) -> dict[str, Any]:
    """A finding with what its next experiment expects."""
    return {
        "rule": rule, "class": "implementation", "severity": severity, "title": rule, "at_stake": stake,
        "next_experiment": {"change": "do it", "expect": expect},
    }  # fmt: skip


def both(before: Sequence[dict[str, Any]], after: Sequence[dict[str, Any]], **options: Any) -> dict[str, Any]:
    """The comparison of two lists of kernels."""
    found = compare.compare({"kernels": list(before)}, {"kernels": list(after)}, **options)
    json.dumps(found, allow_nan=False)
    assert text(found) and comparison.render_markdown(found)
    return found


def text(found: dict[str, Any], verbose: bool = False) -> str:
    """What a terminal shows."""
    out = StringIO()
    comparison.render(found, Console(file=out, width=200), verbose)
    return out.getvalue()


# --- recorded reports ---


def test_fault_against_fix() -> None:
    found = compare.compare(document(FAULT), document(FIX))
    pair = found["kernels"][0]
    assert (pair["matched_by"], pair["change"]) == ("similar name", "faster")
    assert pair["speedup"] == pytest.approx(2.29, abs=0.02)
    assert (pair["before"]["verdict"]["rule"], pair["after"]["verdict"]["rule"]) == ("bank-conflict", "hbm-bandwidth")
    changes = {row["rule"]: row["status"] for row in pair["findings"]}
    assert changes["bank-conflict"] == "fixed" and "new" not in changes.values()
    promised = next(row for row in pair["expectations"] if row["rule"] == "bank-conflict")
    assert promised["status"] == "confirmed", promised
    page = text(found)
    assert "2.29× faster" in page and "bank-conflict (implementation) → hbm-bandwidth (hardware)" in page
    assert "confirmed" in page and "gone: bank-conflict" in page
    assert not compare.regressions(found)


def test_fix_against_fault_is_a_regression() -> None:
    found = compare.compare(document(FIX), document(FAULT))
    assert found["kernels"][0]["change"] == "slower"
    assert {row["rule"]: row["status"] for row in found["kernels"][0]["findings"]}["bank-conflict"] == "new"
    assert compare.regressions(found) == ["transpose_pitch65 takes 2.29 times as long as before"]
    assert "| ▲ | `transpose_pitch65` → `transpose_pitch64` |" in comparison.render_markdown(found)


@pytest.mark.parametrize("name", [FAULT, "gemm/naive", "attention/fused"])
def test_the_same_report_twice(name: str) -> None:
    found = compare.compare(document(name), document(name))
    assert {pair["matched_by"] for pair in found["kernels"]} == {"configuration"}
    assert {pair["change"] for pair in found["kernels"]} == {"same"}
    assert found["summary"]["verdicts_changed"] == 0 and found["summary"]["ratio"] == 1
    assert not found["unmatched"]["before"] and not found["unmatched"]["after"]
    for pair in found["kernels"]:
        assert {row["status"] for row in pair["findings"]} <= {"same"}
        assert {row["status"] for row in pair["expectations"]} <= {"unchanged", "unknown"}
    assert "confirmed" not in text(found) and "refuted" not in text(found)


# --- matching ---


def test_matching_by_configuration_then_name_then_likeness() -> None:
    before = [kernel("a", 1, grid=1), kernel("a", 2, grid=2), kernel("b"), kernel("copy_rows_v1"), kernel("gone")]
    after = [kernel("a", 2, grid=2), kernel("a", 1, grid=3), kernel("new"), kernel("copy_rows_v2"), kernel("b")]
    after[4]["demangled"] = "void b<double>(double*)"
    found = both(before, after)
    assert [(p["before"]["name"], p["after"]["name"], p["matched_by"]) for p in found["kernels"]] == [
        ("a", "a", "name"),
        ("a", "a", "configuration"),
        ("b", "b", "short name"),
        ("copy_rows_v1", "copy_rows_v2", "similar name"),
    ]
    assert "the launch differs" in found["kernels"][0]["notes"]
    assert [one["name"] for one in found["unmatched"]["before"]] == ["gone"]
    assert [one["name"] for one in found["unmatched"]["after"]] == ["new"]
    assert "only in before: gone" in text(found) and "only in after: new" in text(found)


def test_occurrences_stay_in_order() -> None:
    found = both([kernel(us=us) for us in (10, 20, 30)], [kernel(us=us) for us in (10, 20)])
    assert [(p["before"]["duration_us"], p["after"]["duration_us"]) for p in found["kernels"]] == [(10, 10), (20, 20)]
    assert [one["duration_us"] for one in found["unmatched"]["before"]] == [30]


def test_matching_by_order() -> None:
    found = both([kernel("a"), kernel("b")], [kernel("x"), kernel("y"), kernel("z")], by="order")
    assert [(p["before"]["name"], p["after"]["name"]) for p in found["kernels"]] == [("a", "x"), ("b", "y")]
    assert [one["name"] for one in found["unmatched"]["after"]] == ["z"]


def test_one_kernel_each_can_only_be_meant_together() -> None:
    assert both([kernel("alpha")], [kernel("omega")])["kernels"][0]["matched_by"] == "order"


def test_nothing_in_common() -> None:
    with pytest.raises(DiagnoseError) as failure:
        both([kernel("alpha"), kernel("beta")], [kernel("omega"), kernel("psi")])
    assert failure.value.exit_code == 3 and "alpha" in failure.value.message and "--by order" in failure.value.hint


def test_names_that_change_from_build_to_build() -> None:
    one, other = kernel("f"), kernel("f")
    one["demangled"] = "<unnamed>::f()"
    other["demangled"] = "(anonymous namespace)::f()"
    assert both([one], [other])["kernels"][0]["matched_by"] == "configuration"


# --- times ---


@pytest.mark.parametrize(
    ("before", "after", "change"),
    [
        (100, 102.9, "same"),
        (100, 97.1, "same"),
        (100, 103.5, "slower"),
        (100, 96.5, "faster"),
        (6.0, 6.4, "same"),
        (6.0, 6.6, "slower"),
        (3.0, 4.9, "short"),
        (3.0, 6.0, "slower"),
        (None, 3.6, "unknown"),
        (3.0, None, "unknown"),
        (0, 3.0, "unknown"),
    ],
)
def test_noise(before: float | None, after: float | None, change: str) -> None:
    found = both([kernel(us=before)], [kernel(us=after)])
    assert found["kernels"][0]["change"] == change
    assert bool(compare.regressions(found)) is (change == "slower")
    assert found["summary"][change] == 1


def test_another_noise() -> None:
    assert both([kernel()], [kernel(us=108)], noise=0.1)["kernels"][0]["change"] == "same"
    assert "within 10 %" in text(both([kernel()], [kernel(us=108)], noise=0.1))


def test_what_makes_times_hard_to_compare() -> None:
    one = {"kernels": [kernel(clock_ghz=1.98, device=0)], "devices": [{"name": "NVIDIA H200"}]}
    other = {"kernels": [kernel(clock_ghz=1.41, device=0)], "devices": [{"name": "NVIDIA A100"}], "partial": True}
    found = compare.compare(one, other)
    notes = " ".join(found["kernels"][0]["notes"])
    assert "NVIDIA H200 → NVIDIA A100" in notes and "1.98 → 1.41 GHz" in notes
    assert found["warnings"] == ["after is partial: not everything in it could be read"]


# --- findings and expectations ---


def test_findings_cost_time_and_not_shares() -> None:
    before = kernel(us=100, findings=[finding("spill", 0.2), finding("barrier", 0.3), finding("fence", 0.1)])
    after = kernel(us=50, findings=[finding("spill", 0.4), finding("barrier", 0.8), finding("divergence", 0.1)])
    rows = {row["rule"]: row for row in both([before], [after])["kernels"][0]["findings"]}
    assert {rule: row["status"] for rule, row in rows.items()} == {
        "spill": "same",  # 20 µs each
        "barrier": "worse",  # 30 to 40 µs
        "fence": "fixed",
        "divergence": "new",
    }
    assert rows["barrier"]["lost_us_before"] == 30 and rows["barrier"]["lost_us_after"] == 40


def test_findings_without_a_stake_go_by_severity() -> None:
    found = both(
        [kernel(findings=[finding(stake=None)])], [kernel(findings=[finding(stake=None, severity="critical")])]
    )
    assert found["kernels"][0]["findings"][0]["status"] == "worse"


@pytest.mark.parametrize(
    ("before", "after", "status"),
    [(40.0, 4.0, "confirmed"), (40.0, 12.0, "refuted"), (4.0, 3.0, "held before"), (40.0, None, "unknown"),
     (None, 4.0, "unknown")],
)  # fmt: skip
def test_expectations(before: float | None, after: float | None, status: str) -> None:
    def side(value: float | None, us: float) -> dict[str, Any]:
        facts = {"waste": {"value": value, "unit": "%"}} if value is not None else {}
        return kernel(us=us, facts=facts, findings=[finding(fact="waste", op="<", value=10)])

    row = both([side(before, 100)], [side(after, 80)])["kernels"][0]["expectations"][0]
    assert (row["status"], row["before"], row["after"]) == (status, before, after)


def test_expectations_of_texts_and_times() -> None:
    before = kernel(us=100, facts={"path": {"value": "ffma", "unit": ""}})
    before["findings"] = [
        finding("a", fact="path", op="==", value="wgmma"),
        finding("b", fact="duration_us", op="<", value=60),
    ]
    after = kernel(us=50, facts={"path": {"value": "wgmma", "unit": ""}})
    assert [row["status"] for row in both([before], [after])["kernels"][0]["expectations"]] == [
        "confirmed",
        "confirmed",
    ]


def test_why_it_changed() -> None:
    def limit(work: float, utilization: float) -> dict[str, Any]:
        return {"resource": "hbm", "work": work, "work_unit": "byte", "utilization": utilization}

    before, after = kernel(us=100, limits=[limit(2e9, 0.9)], paths=["mma"]), kernel(us=50, limits=[limit(1e9, 0.9)])
    after["paths"] = ["wgmma"]
    said = comparison.reasons(both([before], [after])["kernels"][0])
    assert said[0].startswith("HBM: 2.00 GB → 1.00 GB (0.50×)")
    assert said[1:] == ["paths used now: wgmma", "paths no longer used: mma"]


def test_the_sentence_says_why() -> None:
    def limit(work: float, utilization: float) -> dict[str, Any]:
        return {"resource": "hbm", "work": work, "work_unit": "byte", "utilization": utilization}

    before = kernel(us=100, limits=[limit(2e9, 0.9)], paths=["mma"], findings=[finding("bank-conflict", 0.4)])
    after = kernel(us=50, limits=[limit(1e9, 0.9)], paths=["wgmma"])
    pair = both([before], [after])["kernels"][0]
    assert pair["why"] == ["Tensor path mma → wgmma", "bank conflicts gone", "HBM bytes halved"]
    assert pair["sentence"].startswith("50 % less time: Tensor path mma → wgmma; bank conflicts gone; HBM bytes halved")
    spilling = kernel(us=200, findings=[finding("spill", 0.5)])
    assert "100 % more time: spills appeared" in both([kernel(us=100)], [spilling])["kernels"][0]["sentence"]
    assert "No difference beyond the noise (3.0 %)" in both([kernel()], [kernel()])["kernels"][0]["sentence"]


def repeated(times: list[float]) -> list[dict[str, Any]]:
    return [{**kernel(us=us), "group": "g", "id": f"{at}"} for at, us in enumerate(times)]


def test_repeats_raise_the_noise_and_count_as_one_kernel() -> None:
    steady, wild = [100.0, 100.2, 99.9, 100.1], [100.0, 130.0, 85.0, 115.0]
    found = both(repeated(steady), repeated([us * 1.06 for us in steady]))
    pair = found["kernels"][0]
    assert len(found["kernels"]) == 1 and pair["launches"] == [4, 4] and found["summary"]["matched"] == 1
    assert (pair["change"], pair["noise"]) == ("slower", 0.03) and pair["detectable"] < 0.03
    assert pair["before"]["duration_us"] == 100.0
    pair = both(repeated(wild), repeated([us * 1.06 for us in wild]))["kernels"][0]
    assert pair["change"] == "same" and pair["noise"] == pair["detectable"] > 0.06
    assert "medians of 4 and 4 launches" in text(found)
    assert both(repeated([100.0]), repeated([100.0]))["kernels"][0]["detectable"] is None


def test_the_detectable_difference_is_the_formula() -> None:
    # Neighbours differ by ln 1.02: sigma = ln 1.02 / (sqrt 2 * 0.6745), and a median of 4 has 1.2533 sigma / 2.
    times = [100.0, 102.0, 100.0, 102.0]
    sigma = math.log(1.02) / (math.sqrt(2) * 0.6745)
    assert compare.detectable(times, times) == pytest.approx(2.80 * 1.2533 * sigma * math.sqrt(0.5))


# --- the page ---


def test_the_page_says_what_the_comparison_says() -> None:
    documents = document(FAULT), document(FIX)
    found = compare.compare(*documents, names=("slow.ncu-rep", "fast.ncu-rep"))
    page = comparison_page.render(found, documents)
    assert page == comparison_page.render(found, documents)
    for said in ("less time", "slow.ncu-rep", "bank-conflict"):
        assert said in page, said
    assert 'style="' not in page and " onclick" not in page and page.count("<script>") == 1
    assert re.search(r"status-(confirmed|refuted|not-known)", page)


def test_one_roofline_holds_both_dots() -> None:
    def side(rate: float) -> dict[str, Any]:
        return {
            "points": [{"level": "hbm", "kind": "useful", "intensity": 10, "flops_per_s": rate}],
            "bandwidth_roofs": [{"level": "hbm", "bytes_per_s": 4e12}],
            "compute_roofs": [{"label": "FP32", "flops_per_s": 6e13}],
        }

    chart = geometry.journey(side(1e12), side(2e12))
    assert chart is not None
    assert [(point["label"], point["kind"]) for point in chart["points"]] == [("before", "issued"), ("after", "useful")]
    assert chart["arrow"]["x1"] == chart["arrow"]["x2"] and float(chart["arrow"]["y1"]) > float(chart["arrow"]["y2"])
    assert geometry.journey(side(1e12), None) is None


def test_the_page_of_hostile_documents() -> None:
    nasty = "</script><img src=x onerror=alert(1)>\u202e" + "x" * 100_000
    sides = [kernel(nasty, findings=[finding(nasty, 0.3)])], [kernel(nasty, us=50)]
    found = both(*sides)
    page = comparison_page.render(found, ({"kernels": sides[0]}, {"kernels": sides[1]}))
    at = page.find("<img")
    assert at < 0, page[at - 300 : at + 40]
    assert "\u202e" not in page and len(page) < 80_000


def test_command_writes_a_page_and_redacts_it(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "secret-project"
    folder.mkdir()
    slow, page = folder / "slow.json", tmp_path / "c.html"
    slow.write_text(json.dumps(document(FAULT)), encoding="utf-8")
    assert cli.main(["compare", str(slow), str(slow), "-o", str(page), "--redact", "--format", "json"]) == 0
    said = capfd.readouterr()
    assert "secret-project" not in page.read_text(encoding="utf-8") and "secret-project" not in said.out
    assert str(page) in said.err
    assert cli.main(["compare", str(slow), str(slow), "-o", str(page), "--format", "json"]) == 0
    assert (tmp_path / "c-2.html").is_file()  # nothing is overwritten


def test_hostile_documents() -> None:
    nasty = "\x1b[31m<script>|`\u202e" + "x" * 5000
    found = both(
        [kernel(nasty, findings=[finding(nasty, None, fact=nasty, op=nasty, value={"a": []})], facts=[], verdict=None)],
        [kernel(nasty, findings=["no object", {}, {"rule": 3}], launch="none", limits=[{}], paths=3, device="x")],
    )
    page, comment = text(found), comparison.render_markdown(found)
    for invisible in ("\x1b", "\u202e"):
        assert invisible not in page and invisible not in comment
    assert "<script>" not in re.sub(r"(`+).*?\1", "", comment)


# --- the command ---


def test_command_on_json_files(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    slow, fast = tmp_path / "slow.json", tmp_path / "fast.json"
    slow.write_text(json.dumps(document(FAULT)), encoding="utf-8")
    fast.write_text(json.dumps(document(FIX)), encoding="utf-8")
    again = tmp_path / "out.json"
    assert cli.main(["compare", str(slow), str(fast), "--format", "json", "--json", str(again)]) == 0
    said = capfd.readouterr()
    assert json.loads(said.out) == json.loads(again.read_text(encoding="utf-8"))
    assert json.loads(said.out)["schema_version"] == "1"
    assert cli.main(["compare", str(fast), "--fail-on", "regression", str(slow), "--format", "md"]) == 1
    assert "gate: --fail-on regression: transpose_pitch65" in capfd.readouterr().err
    assert cli.main(["compare", str(fast), str(slow)]) == 0
    assert "2.29× slower" in capfd.readouterr().out
    assert cli.main(["compare", str(fast), str(slow), "--fail-on", "regression", "--noise", "99"]) == 1


def test_command_on_a_report_and_a_document(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    kept = tmp_path / "kept.json"
    kept.write_text(json.dumps(document(FIX)), encoding="utf-8")
    words = ["compare", str(kept), str(recorded.report_of(FIX)), "--fail-on", "regression", "--format", "json"]
    assert cli.main(words) == 0
    pair = json.loads(capfd.readouterr().out)["kernels"][0]
    assert (pair["matched_by"], pair["change"], pair["verdict_changed"]) == ("configuration", "same", False)


def test_command_refuses(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_text(json.dumps({"schema_version": "1", "kernels": [kernel("alpha", None)]}), encoding="utf-8")
    for content, said in (
        ("{", "is no JSON"),
        ("[]", "holds no `kernels`"),
        ('{"kernels": 3}', "holds no `kernels`"),
        ('{"kernels": []}', "has schema version None"),
        ('{"schema_version": "2", "kernels": []}', "has schema version 2"),
    ):
        bad.write_text(content, encoding="utf-8")
        assert cli.main(["compare", str(good), str(bad)]) == 2
        assert said in capfd.readouterr().err
    for words, said in (
        ((str(good), str(tmp_path / "none.json")), "cannot be read"),
        ((str(good), str(tmp_path / "none.ncu-rep")), "does not exist"),
        ((str(good), str(good), "--fail-on", "regresion"), "did you mean 'regression'"),
        ((str(good), str(good), "--noise", "100"), "--noise 100"),
        ((str(good), str(good), "--by", "id"), "--by 'id'"),
        ((str(good), str(good), "--format", "sarif"), "--format 'sarif'"),
        ((str(good),), "missing argument"),
    ):
        assert cli.main(["compare", *words]) == 2, words
        assert said in capfd.readouterr().err.replace("Missing", "missing"), words


def test_nothing_measured_is_no_success(tmp_path: Path) -> None:
    path = tmp_path / "k.json"
    path.write_text(json.dumps({"schema_version": "1", "kernels": [kernel("alpha", None)]}), encoding="utf-8")
    assert cli.main(["compare", str(path), str(path)]) == 3
    other = copy.deepcopy([kernel("beta"), kernel("gamma")])
    (tmp_path / "o.json").write_text(json.dumps({"schema_version": "1", "kernels": other}), encoding="utf-8")
    assert cli.main(["compare", str(path), str(tmp_path / "o.json")]) == 3
