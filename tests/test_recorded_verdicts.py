"""Every recorded kernel of ours gets the verdict that its manifest asks for, and healthy ones stay quiet."""

from __future__ import annotations

import pytest

import recorded
from diagnose.model import Diagnosis

# What differs from the manifest today: name -> (what we say, why that is wrong, or why the manifest may be). Strict: a
# kernel that comes out as its manifest says must leave the table.
KNOWN_WRONG: dict[str, tuple[str, str]] = {
    "faults/h-conv-tile": (
        "occupancy-registers",
        "no pipe is above 57 %, so its measurement refutes the label (FP32); whether more warps help is not known",
    ),
    "faults/h-int4gemv-packed": (
        "memory-latency",
        "HBM and issue slots are both at 60 %: between the label (HBM) and the verdict the counters do not decide",
    ),
    "faults/g-fragments": (
        "bank-conflict",
        "its fragments do conflict (18 %), but the synchronous copies in front of mma.sync are the larger cause",
    ),
}


def _cases() -> list[object]:
    cases: list[object] = []
    for name in recorded.names():
        said, why = KNOWN_WRONG.get(name, ("", ""))
        marks = [pytest.mark.xfail(strict=True, reason=f"says {said}: {why}")] if said else []
        cases.append(pytest.param(name, marks=marks, id=name))
    return cases


@pytest.fixture(scope="module", autouse=True)
def read_together(request: pytest.FixtureRequest) -> None:
    """Most of the reports are wanted: reads them side by side."""
    if sum(item.path == request.path for item in request.session.items) > 20:
        recorded.profiles()


def _accepted(name: str, diagnosis: Diagnosis) -> str | None:
    """None where the diagnosis is what the manifest asks for; else what is wrong with it."""
    entry, verdict = recorded.manifest()[name], diagnosis.verdict
    named = {entry.expect, *entry.also}
    if "quiet" in named and (verdict.klass == "hardware" or verdict.rule in named):
        loud = [f.rule for f in diagnosis.findings if f.severity != "note" and f.rule not in named]
        return f"a healthy kernel has {loud} above note" if loud else None
    return None if verdict.rule in named else f"expected {' or '.join(sorted(named))}"


@pytest.mark.parametrize("name", _cases())
def test_verdict_of_the_manifest(name: str) -> None:
    diagnosis = recorded.diagnosis(name)
    problem = _accepted(name, diagnosis)
    assert problem is None, f"{name}: {problem}; {recorded.summary(diagnosis)}; {recorded.manifest()[name].why}"


def test_known_wrong_names_kernels() -> None:
    unknown = set(KNOWN_WRONG) - set(recorded.manifest())
    assert not unknown, f"KNOWN_WRONG names what no manifest has: {sorted(unknown)}"


def test_every_reference_kernel_has_its_report_and_the_other_way_round() -> None:
    needed = [name for name in recorded.manifest() if name not in recorded.held_out() and not _is_ceiling(name)]
    without = [name for name in needed if name not in recorded.names() and recorded.manifest()[name].recorded]
    known = {recorded.report_of(name).name for name in recorded.manifest()}
    strangers = [path.name for path in recorded.REPORTS.glob("*.ncu-rep*") if path.name not in known]
    assert not without and not strangers, f"without a report: {without}; without a manifest entry: {strangers}"


def _is_ceiling(name: str) -> bool:
    return recorded.manifest()[name].family == "ceilings"


@pytest.mark.parametrize("name", recorded.names())
def test_invariants(name: str) -> None:
    """What holds for every diagnosis, right or wrong (contract, `--format json`)."""
    found = recorded.diagnosis(name)
    line = recorded.summary(found)
    verdict = found.verdict
    if verdict.klass == "hardware":
        loud = [f.rule for f in found.findings if f.severity != "note"]
        assert not loud, f"a hardware verdict beside {loud}: {line}"
        assert verdict.at_stake is None and verdict.speedup is None, line
    else:
        assert found.findings and found.findings[0].rule == verdict.rule, (
            f"the verdict is not the first finding: {line}"
        )
    stakes = [f.at_stake for f in found.findings[1:] if f.at_stake is not None]
    assert stakes == sorted(stakes, reverse=True), line
    for finding in found.findings:
        assert finding.at_stake is None or 0 <= finding.at_stake < 1, line
        if finding.at_stake is not None:
            gain = finding.speedup
            assert gain is not None and gain.low <= gain.expected <= gain.high, f"{finding.rule} {gain}: {line}"
            assert gain.expected == pytest.approx(1 / (1 - finding.at_stake)), f"{finding.rule} {gain}: {line}"
        assert all(0 <= place.share <= 1 for place in finding.where), line
    for limit in found.limits:
        assert 0 <= limit.utilization <= 1 and limit.bound_us <= (found.facts["duration_us"].value or 0) * 1.0001, (
            f"{limit}: {line}"
        )
    assert [limit.utilization for limit in found.limits] == sorted((m.utilization for m in found.limits), reverse=True)
    rules = {f.rule for f in found.findings} & {r.rule for r in found.rejected}
    assert not rules, f"both found and rejected: {rules}"
    assert verdict.sentence and "None" not in verdict.sentence, f"{verdict.sentence!r}: {line}"
    for missing in found.not_evaluated:
        assert missing.missing and missing.collect_with, f"{missing}: {line}"
