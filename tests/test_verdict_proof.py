"""Each verdict of the contract fires on a recorded report and is refused on another, or stands in docs/unproven.md."""

from __future__ import annotations

import re

import pytest

import recorded
from gen_unproven import LATER, REASONS, TARGET, VERDICTS, Proof, proofs, text
from test_recorded_verdicts import KNOWN_WRONG

CONTRACT = recorded.ROOT.parent / "shared" / "contract.md"


def test_core_pack_has_every_verdict_and_no_other() -> None:
    pack = {rule.id for rule in recorded.rules()}
    known = {*VERDICTS, *LATER}
    assert known == pack, f"missing {known - pack}, beyond the contract {pack - known}"


@pytest.mark.skipif(not CONTRACT.is_file(), reason="the contract is not beside the clone")
def test_verdicts_are_the_contracts() -> None:
    table = CONTRACT.read_text(encoding="utf-8").split("## Verdicts")[1].split("Program findings")[0]
    rows = re.findall(r"^\| ([a-z0-9, -]+) \| (\w+) \|", table, re.MULTILINE)
    classes = {name.strip(): klass for names, klass in rows if names != "id" for name in names.split(",")}
    assert classes.keys() | {"not-enough-data", "inconsistent-data"} == set(VERDICTS)
    wrong = {r.id: (r.klass, classes[r.id]) for r in recorded.rules() if classes.get(r.id, r.klass) != r.klass}
    assert not wrong, f"classes (ours, the contract's): {wrong}"


@pytest.mark.parametrize("verdict", (*VERDICTS, *LATER))
def test_verdict_is_proven_or_listed(verdict: str) -> None:
    proof: Proof = proofs()[verdict]
    numbers = f"fires on {len(proof.fires)}, refused on {len(proof.silent)}, unknown on {len(proof.open)}"
    if proof.complete:
        assert f"| {verdict} |" not in TARGET.read_text(encoding="utf-8"), f"{verdict} is proven ({numbers}) and listed"
    else:
        assert verdict in REASONS, f"{verdict}: {numbers}; give the reason in tests/gen_unproven.py"
        assert f"| {verdict} |" in TARGET.read_text(encoding="utf-8"), f"{verdict}: {numbers}; run gen_unproven.py"


def test_a_fix_does_not_have_the_verdict_of_its_fault() -> None:
    both = []
    for name, entry in recorded.manifest().items():
        twin = recorded.manifest().get(entry.twin or "")
        if twin is None or entry.expect == "quiet" or not {name, twin.name} <= set(recorded.names()):
            continue
        defensible = {twin.expect, *twin.also}
        verdict = recorded.diagnosis(twin.name).verdict.rule
        if verdict == entry.expect and verdict not in defensible and twin.name not in KNOWN_WRONG:
            both.append((name, twin.name, verdict))
    assert not both, f"the fix has the fault's verdict: {both}"


def test_unproven_is_up_to_date() -> None:
    assert TARGET.is_file() and TARGET.read_text(encoding="utf-8") == text(), "run: python tests/gen_unproven.py"
