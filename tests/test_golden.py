"""The whole JSON document of recorded reports, compared with files that a person can diff.

`DIAGNOSE_UPDATE_GOLDEN=1 pytest tests/test_golden.py` writes them anew; read the diff before you commit it. The ladders
are held in full; of every other recorded kernel one line keeps what a user acts on: verdict, confidence, stake,
findings.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import recorded
from diagnose import __version__, api

GOLDEN = Path(__file__).parent / "golden"
UPDATE = os.environ.get("DIAGNOSE_UPDATE_GOLDEN") == "1"
LADDERS = [name for name in recorded.names() if name.split("/")[0] in {"gemm", "attention", "reduction"}]


def document(name: str) -> dict[str, Any]:
    """The document of one recorded kernel, without what changes with every commit of a rule's text."""
    profile = recorded.read(recorded.report_of(name))
    packs = api.load_rules(api.Options())
    result = api.examine(profile, packs, api.Options(source=False))
    assert result["tool"]["version"] == __version__
    result = json.loads(json.dumps(result))
    result["tool"]["version"] = "VERSION"
    for pack in result["packs"]:
        pack["sha256"] = "SHA256"
    # The rules' texts stand in rules/ and have their own review; time lines and mixes are the report's own numbers.
    result.pop("rule_pages", None)
    for run in result["runs"]:
        run["source"] = Path(run["source"]).name
    for kernel in result["kernels"]:
        kernel.pop("timeline", None)
    return result


def compare(path: Path, got: str) -> None:
    if UPDATE:
        path.parent.mkdir(exist_ok=True)
        path.write_text(got, encoding="utf-8")
        return
    assert path.is_file(), f"{path.name} is missing: DIAGNOSE_UPDATE_GOLDEN=1 pytest {Path(__file__).name}"
    assert got.splitlines() == path.read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("name", LADDERS)
def test_the_whole_document_of_a_ladder_step(name: str) -> None:
    text = json.dumps(document(name), indent=1, ensure_ascii=False, sort_keys=True) + "\n"
    compare(GOLDEN / f"{name.replace('/', '-')}.json", text)


def test_what_a_user_acts_on_of_every_recorded_kernel() -> None:
    lines = {}
    for name in recorded.names():
        found = recorded.diagnosis(name)
        verdict = found.verdict
        lines[name] = " · ".join(
            [
                f"{verdict.rule} ({verdict.klass}, {verdict.confidence})",
                "at stake " + ("-" if verdict.at_stake is None else f"{verdict.at_stake:.2f}"),
                "findings " + (", ".join(f"{f.rule} {f.severity}" for f in found.findings) or "none"),
                "binds "
                + (f"{found.limits[0].resource} {found.limits[0].utilization:.2f}" if found.limits else "nothing"),
            ]
        )
    compare(GOLDEN / "verdicts.json", json.dumps(lines, indent=1, ensure_ascii=False) + "\n")
