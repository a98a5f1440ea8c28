"""The staircase of a kernel and Amdahl's table of a program."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

import recorded
from diagnose import api, staircase
from diagnose.facts.context import Context
from diagnose.gpus import catalogue
from diagnose.model import Diagnosis, Speedup
from diagnose.render import html, view

H200 = catalogue.product("NVIDIA H200", 90)
SQUARE = {"useful_flops": 2 * 8192.0**3, "useful_bytes": 3 * 2 * 8192.0**2, "gemm_m": 8192.0, "gemm_n": 8192.0,
          "gemm_k": 8192.0, "product_type": "bf16"}  # fmt: skip


def stairs(name: str, work: Any = None, share: float | None = 1.0) -> dict[str, Any]:
    kernel = recorded.profile(name)
    found = staircase.kernel(recorded.context_of(kernel, work), recorded.diagnose(kernel, work), H200, share)
    assert found is not None
    return found


def steps(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {step["step"]: step for step in found["steps"]}


def test_a_product_with_its_library_has_all_steps_in_order() -> None:
    found = stairs("gemm/specialised", SQUARE)
    assert [step["step"] for step in found["steps"]] == ["white-paper", "micro-benchmark", "library", "kernel"]
    at = steps(found)
    assert at["white-paper"]["us"] == pytest.approx(2 * 8192**3 / 989e12 * 1e6, rel=1e-3)
    assert at["white-paper"]["us"] < at["micro-benchmark"]["us"] < at["library"]["us"] < at["kernel"]["us"]
    assert at["library"]["us"] == pytest.approx(2 * 8192**3 / 795.2e12 * 1e6, rel=1e-3)
    assert (at["kernel"]["source"], at["kernel"]["explained_by"]) == ("measured", "tensor")


def test_the_causes_between_white_paper_and_micro_benchmark_multiply_to_their_factor() -> None:
    for name in ("gemm/specialised", "gemm/mma", "attention/decode", "faults/stream-copy", "gemm/register"):
        between = stairs(name)["between"][0]
        product = math.prod(cause["factor"] for cause in between["because"])
        assert between["factor"] == pytest.approx(product, rel=0.021), name  # causes below 2 % have no line


def test_each_step_is_held_against_its_own_tight_limit() -> None:
    assert steps(stairs("attention/decode"))["white-paper"]["resource"] == "hbm"
    assert steps(stairs("gemm/wgmma"))["white-paper"]["resource"] == "tensor"
    assert steps(stairs("gemm/register"))["white-paper"]["resource"] == "fp32"


def test_the_old_instruction_path_separates_the_micro_benchmark_from_the_kernel() -> None:
    causes = [cause["what"] for cause in stairs("gemm/mma")["between"][-1]["because"]]
    assert any("mma under the best for bf16" in cause for cause in causes)
    # The same path is no cause where memory binds.
    assert not any("mma under" in cause["what"] for cause in stairs("attention/decode")["between"][-1]["because"])


def test_needed_work_is_what_was_declared() -> None:
    half = {"useful_flops": 2 * 4096.0 * 4096 * 4096 / 2}
    whole, part = stairs("gemm/mma"), stairs("gemm/mma", half)
    assert steps(part)["white-paper"]["us"] == pytest.approx(steps(whole)["white-paper"]["us"] / 2, rel=0.02)
    assert any("padding" in cause["what"] for cause in part["between"][-1]["because"])


@pytest.mark.skipif(not recorded.report_of("gemm/sparse").is_file(), reason="gemm/sparse is not recorded")
def test_a_sparse_product_is_held_against_the_sparse_rate() -> None:
    at = steps(stairs("gemm/sparse"))
    assert at["white-paper"]["rate"] == pytest.approx(2 * 989e12)
    assert at["micro-benchmark"]["us"] < at["kernel"]["us"]


@pytest.mark.parametrize("name", recorded.names())
def test_no_limit_lies_above_the_time(name: str) -> None:
    kernel = recorded.profile(name)
    found = staircase.kernel(recorded.context_of(kernel), recorded.diagnosis(name), H200, 1.0)
    if found is None:
        return
    at = steps(found)
    # Without declared work the needed work is what was done, and no kernel is faster than this GPU (3 %: the noise).
    assert at["white-paper"]["us"] <= 1.03 * at["kernel"]["us"], found
    assert at["micro-benchmark"]["us"] <= 1.03 * at["kernel"]["us"], found


def test_nothing_is_drawn_without_time_or_product() -> None:
    kernel = recorded.profile("gemm/mma")
    diagnosis = recorded.diagnosis("gemm/mma")
    assert staircase.kernel(recorded.context_of(kernel), diagnosis, None, 1.0) is None
    timeless = replace(kernel, metrics={})
    assert staircase.kernel(recorded.context_of(timeless), diagnosis, H200, 1.0) is None


def _gain(context: Context, factor: float) -> Diagnosis:
    found = recorded.diagnosis("gemm/mma")
    return replace(found, verdict=replace(found.verdict, speedup=Speedup(factor, factor, factor)))


def test_end_to_end_is_amdahls_law() -> None:
    context = recorded.context("gemm/mma")
    found = staircase.kernel(context, _gain(context, 2.0), H200, 0.5)
    assert found is not None
    whole = found["end_to_end"]
    assert whole["with_fix"] == pytest.approx(1 / (0.5 + 0.25), rel=1e-5) and whole["gone"] == 2
    assert 1 < whole["at_limit"] < 2
    assert staircase.amdahl(0.25, 1e9) == pytest.approx(4 / 3)


def entry(share: float, family: str | None, gain: float | None, group: str, launches: int = 1) -> dict[str, Any]:
    speed = {"low": gain * 0.9, "expected": gain, "high": gain * 1.1} if gain else None
    klass = "implementation" if gain else "hardware"
    return {
        "id": group, "name": group, "group": group, "time_share": share, "launches": launches,
        "operator": {"family": family} if family else None,
        "verdict": {"rule": f"rule-{group}", "speedup": speed, "class": klass},
    }  # fmt: skip


def test_a_program_has_conversions_copies_and_communication_as_own_lines() -> None:
    kernels = [
        entry(0.40, "gemm-large", 2.0, "a"),
        entry(0.10, "gemm-large", 2.0, "a"),
        entry(0.20, "conversion", None, "b"),
        entry(0.15, "copy", 4.0, "c", launches=3),
        entry(0.10, "collective", None, "d"),
        entry(0.05, None, None, "e"),
    ]
    found = staircase.program(kernels, 1000.0, {"gemm-large": "Large product"})
    assert found is not None
    lines = {line["line"]: line for line in found["lines"]}
    assert [line for line in lines if lines[line]["own"]] == ["conversion", "copy", "collective"]
    assert (lines["gemm-large"]["us"], lines["gemm-large"]["launches"]) == (500, 2)
    assert lines["conversion"]["gone"] == pytest.approx(1 / 0.8) and lines["copy"]["launches"] == 3
    assert sum(line["share"] for line in found["lines"]) == pytest.approx(1)
    assert [(one["class"], one["share"]) for one in found["classes"]] == [("implementation", 0.65), ("hardware", 0.35)]
    first = found["kernels"][0]
    assert first["name"] == "a" and first["share"] == pytest.approx(0.5)
    assert first["expected"] == pytest.approx(1 / (0.5 + 0.25), rel=1e-5)
    assert [row["expected"] for row in found["kernels"] if row["name"] in "bde"] == [None] * 3


def test_a_program_without_times_has_no_table() -> None:
    assert staircase.program([], 10.0, {}) is None
    assert staircase.program([{**entry(0.0, None, None, "a"), "time_share": None}], None, {}) is None


def test_the_page_shows_what_the_document_says() -> None:
    from diagnose.render import staircase as shown

    drawn = shown.chart({"staircase": stairs("gemm/specialised", SQUARE)})
    assert drawn is not None
    assert [row["label"] for row in drawn["rows"]] == ["White paper", "Micro-benchmark", "Library", "This kernel"]
    assert drawn["rows"][0]["because"] == "" and "boost clock" in drawn["rows"][1]["because"]
    assert "100 % of the GPU time" in drawn["whole"]
    assert shown.chart({"staircase": None}) is None and shown.chart({}) is None


def test_the_page_says_whether_the_operator_was_declared_or_recognised() -> None:
    for problem, said in (("gemm:8192,8192,8192,bf16", ">as declared<"), (None, ">by name and code<")):
        options = api.Options(problem=problem, page=True)
        page = html.render(api.diagnose_reports([recorded.report_of("gemm/specialised")], options).document)
        assert said in page


def test_the_programs_table_tells_instances_of_a_template_apart() -> None:
    from diagnose.render import staircase as shown

    entries = [
        {"id": str(n), "name": "map", "demangled": f"void map<{op}>(float *)", "verdict": {}}
        for n, op in enumerate(("Add", "Gelu"))
    ]
    rows = [{"id": str(n), "name": "map", "expected": 1.1} for n in (0, 1)]
    document = {"kernels": entries, "program": {"amdahl": {"kernels": rows, "lines": []}}}
    found = shown.program(document, view.kernels(document))
    assert found is not None and [row["name"] for row in found["kernels"]] == ["map<Add>", "map<Gelu>"]
