"""Third-party reports beside the clone: the verdicts beyond doubt, and an honest answer for every other kernel."""

from __future__ import annotations

import csv
import math
from functools import cache
from pathlib import Path

import pytest

import recorded
from diagnose.facts import architecture_number
from diagnose.model import Diagnosis
from recorded import SHARED, diagnose, read, read_all, summary

pytestmark = pytest.mark.skipif(not SHARED.is_dir(), reason="the shared reports are not beside the clone")

_EXPECTED = SHARED / "expected.csv"


def _rows() -> list[dict[str, str]]:
    if not _EXPECTED.is_file():
        return []
    with _EXPECTED.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _files() -> list[Path]:
    if not SHARED.is_dir():
        return []
    found = [path for folder in (SHARED, SHARED / "public") if folder.is_dir() for path in folder.iterdir()]
    return sorted(path for path in found if ".ncu-rep" in path.name or ".nsight-cuprof-report" in path.name)


@cache
def _diagnoses(path: Path) -> tuple[Diagnosis, ...]:
    return tuple(diagnose(kernel) for kernel in read(path).kernels)


@pytest.fixture(scope="module", autouse=True)
def read_together(request: pytest.FixtureRequest) -> None:
    if sum(item.path == request.path for item in request.session.items) > 10:
        read_all(_files())


@pytest.mark.parametrize("row", _rows(), ids=lambda row: f"{row['file'].split('.')[0]}-{row['index']}")
def test_verdicts_beyond_doubt(row: dict[str, str]) -> None:
    found = _diagnoses(SHARED / row["file"])[int(row["index"])]
    assert row["kernel"] in found.kernel.demangled or row["kernel"] in found.kernel.name, found.kernel.name
    assert found.verdict.rule in row["verdicts"].split("|"), f"{row['operator']}: {row['verdicts']}; {summary(found)}"
    assert found.verdict.confidence != "low", summary(found)
    if found.verdict.klass == "hardware":
        assert all(f.severity == "note" for f in found.findings), summary(found)


@pytest.mark.parametrize("path", _files(), ids=lambda path: path.name.split(".")[0])
def test_every_kernel_gets_an_honest_answer(path: Path) -> None:
    """A verdict for each, named gaps, and no number that nobody measured."""
    for found in _diagnoses(path):
        line = f"{path.name}: {summary(found)}"
        assert found.verdict.rule in {rule.id for rule in recorded.rules()}, line
        assert found.verdict.sentence and "None" not in found.verdict.sentence, f"{line}: {found.verdict.sentence!r}"
        for fact in found.facts.values():
            if fact.value is None:
                assert fact.missing, f"{line}: {fact.name} is unknown and names nothing"
            elif isinstance(fact.value, float):
                assert math.isfinite(fact.value), f"{line}: {fact}"
                if fact.unit == "share":
                    assert 0 <= fact.value <= 1, f"{line}: {fact}"
        for gap in found.not_evaluated:
            assert gap.missing and gap.collect_with, f"{line}: {gap}"
        for limit in found.limits:
            assert 0 <= limit.utilization <= 1 and math.isfinite(limit.bound_us), f"{line}: {limit}"
        arch = architecture_number(found.kernel)
        asked = {f.rule for f in found.findings} | {n.rule for n in found.not_evaluated}
        foreign = {r for r in asked if recorded.rule(r).applies(f"sm_{arch}") is False}
        assert not foreign, f"{line}: asked of sm_{arch}: {foreign}"


@pytest.mark.parametrize("path", [p for p in _files() if "h200" in p.name], ids=lambda path: path.name.split(".")[0])
def test_full_reports_leave_only_declarations_open(path: Path) -> None:
    """`--set full` on an H200 holds what every rule needs, but the problem and a clock log."""
    declared = {"padding-waste", "l2-locality", "sparse-not-used", "power-throttle"}
    # A rule on what most kernels have none of: a busy special-function pipe beside the Tensor pipe.
    absent = {"no-overlap"}
    for found in _diagnoses(path):
        if not any(line.samples for line in found.kernel.lines):
            continue  # too short for a single warp sample
        open_rules = {n.rule: n.missing for n in found.not_evaluated if n.rule not in declared | absent}
        assert not open_rules, f"{path.name}: {summary(found)}: {open_rules}"


def _one(file: str, index: int = 0) -> Diagnosis:
    path = SHARED / file
    if not path.is_file():
        pytest.skip(f"{file} is not there")
    return _diagnoses(path)[index]


def test_reports_without_throughputs_are_unknown_and_say_what_to_collect() -> None:
    for file, index in (("few-sections.ncu-rep", 0), ("rtx4090-aos.ncu-rep", 0), ("rtx4090-soa.ncu-rep", 0)):
        found = _one(f"public/{file}", index)
        assert found.verdict.klass == "unknown" and found.verdict.confidence == "low", summary(found)
        assert len(found.not_evaluated) > 20 and found.limits == (), summary(found)


def test_short_launches_without_throughputs_are_launch_bound() -> None:
    path = SHARED / "public" / "rtx4090-smem-square.ncu-rep"
    if not path.is_file():
        pytest.skip("not there")
    for found in _diagnoses(path):
        assert found.verdict.rule == "launch-bound", summary(found)
        assert found.verdict.confidence != "high", f"no opcodes were recorded: {summary(found)}"


@pytest.mark.parametrize(
    ("file", "index", "verdicts"),
    [
        ("public/gtx1660s-dot-product.ncu-rep", 0, {"global-atomics"}),
        ("public/gtx1660s-gemm-naive.ncu-rep", 0, {"global-reload"}),
        ("public/t4-vectoradd-8-per-thread.ncu-rep", 0, {"uncoalesced", "partial-writes"}),
        ("public/t4-vectoradd-striped.ncu-rep", 0, {"hbm-bandwidth"}),
        ("public/rtx4090-transpose.ncu-rep", 0, {"hbm-bandwidth"}),
        ("public/nvidia-training-vectoradd.ncu-rep", 0, {"launch-bound", "small-grid"}),
        ("public/nvidia-training-nvtx.ncu-rep", 1, {"hbm-bandwidth"}),
    ],
)
def test_public_kernels_whose_numbers_speak(file: str, index: int, verdicts: set[str]) -> None:
    found = _one(file, index)
    assert found.verdict.rule in verdicts, summary(found)


def test_old_metric_names_are_read() -> None:
    """sm_75 with names of 2020, and Pascal without roll-ups (ncu 2019)."""
    turing = _one("public/gtx1660s-gemm-naive.ncu-rep")
    assert {limit.resource for limit in turing.limits} >= {"hbm", "l2", "l1", "fp32", "issue"}, summary(turing)
    pascal = _one("public/pascal-legacy.nsight-cuprof-report")
    assert pascal.facts["duration_us"].value and {"hbm", "l2"} <= {m.resource for m in pascal.limits}, summary(pascal)


def test_a_library_kernel_at_the_tensor_roof_stays_quiet() -> None:
    """Trap 26: shared-memory wavefronts slightly above the Tensor pipe."""
    found = _one("h200-gemm.ncu-rep.xz")
    utilization = {limit.resource: limit.utilization for limit in found.limits}
    assert utilization["l1"] >= utilization["tensor"] > 0.9, utilization
    assert found.verdict.rule == "tensor-compute" and not found.findings, summary(found)


def test_a_good_wgmma_attention_is_not_told_that_it_waits_on_its_arithmetic() -> None:
    found = _one("h200-attention-other.ncu-rep.xz")
    assert not (found.verdict.rule == "dependency-latency" and found.verdict.confidence == "high"), summary(found)
