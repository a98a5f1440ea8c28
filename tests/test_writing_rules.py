"""docs/writing-rules.md: every command in it runs, in order, in one folder, and does what the text says."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

import recorded
from diagnose import facts

ROOT = Path(__file__).resolve().parents[1]
REPORTS = ROOT / "examples" / "reports"
TEXT = (ROOT / "docs" / "writing-rules.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```([a-z]+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def run(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    words = shlex.split(line.replace("$REPORTS", str(REPORTS)).replace("$ACME", str(ROOT / "examples" / "acme_rules")))
    assert words[0] in ("diagnose", "git"), line
    command = [*recorded.COMMAND, *words[1:]] if words[0] == "diagnose" else words
    env = {**os.environ, "PYTHONPATH": str(ROOT), "GIT_CONFIG_GLOBAL": os.devnull}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=120)


@pytest.mark.skipif(not (REPORTS / "gemm-mma.ncu-rep.xz").is_file(), reason="examples/reports is not here")
def test_every_command_of_the_tutorial_does_what_it_says(tmp_path: Path) -> None:
    said: dict[str, str] = {}
    for kind, about, body in BLOCK.findall(TEXT):
        if kind in ("yaml", "toml") and about.strip():
            (tmp_path / about.strip()).write_text(body, encoding="utf-8")
        if kind != "sh":
            continue
        for line in body.splitlines():
            done = run(line, tmp_path)
            expected = 1 if about.strip() == "fails" else 0
            assert done.returncode == expected, f"{line}\n{done.stdout}\n{done.stderr}"
            said[line] = done.stdout
    tested = next(text for line, text in said.items() if "faults-tile-sums-whole" in line and "rules test" in line)
    assert re.search(r"appears +acme/must-use-tma .* in gemm_mma, gemm-mma", tested)
    assert "tile_sums" not in tested
    against = next(text for line, text in said.items() if "--against" in line)
    assert "no finding and no verdict changes" in against
    report = next(text for line, text in said.items() if "-v --no-html" in line)
    assert "Copies tiles without TMA on Hopper" in report
    ours = next(text for line, text in said.items() if "with-our-words" in line)
    assert "the handbook's chapter 5" in ours and "Spills in the main loop: 0" in ours
    assert "Handover sheet" in (tmp_path / "with-our-words.html").read_text(encoding="utf-8")
    assert len(said) >= 12


def test_the_fact_in_python_is_one() -> None:
    (code,) = [body for kind, _, body in BLOCK.findall(TEXT) if kind == "python"]
    found: dict[str, Any] = {}
    exec(compile(code, "docs/writing-rules.md", "exec"), found)
    (fact,) = found["FACTS"]
    used = set(re.findall(r'value\("(\w+)"\)', code))
    assert used and used <= set(facts.CATALOGUE), used
    kernel = recorded.profile("gemm/mma")
    value = fact.compute(recorded.context_of(kernel))
    assert value is not None and value > 0
