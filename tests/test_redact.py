"""`--redact` and `--no-source`: what identifies the user is in no output, and everything else stays."""

from __future__ import annotations

import json
import lzma
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from diagnose import redact
from diagnose.output import render
from diagnose.redact import Redactor, command_words
from recorded import COMMAND

ROOT = Path(__file__).resolve().parents[1]
REPORT = ROOT / "examples" / "reports" / "gemm-mma.ncu-rep.xz"
FAKE = ROOT / "tests" / "fake_ncu" / "ncu"
SECRETS = ("gpu-node-07", "alice", "/home/", "s3cret", "--token", "rows_by_customer", "train.py", "C:\\Users")


def sample() -> dict[str, Any]:
    """A document with the user's things wherever one can stand."""
    hot = {
        "pc": "0x10", "sass": "LDG.E R4, [R2]", "share": 0.5, "file": "/home/alice/src/k.cu", "line": 7,
        "source": "float rows_by_customer = 3;",
    }  # fmt: skip
    finding = {
        "rule": "uncoalesced", "class": "implementation", "severity": "warning", "title": "T", "at_stake": 0.4,
        "speedup": {"low": 1.1, "expected": 1.6, "high": 2.0},
        "references": ["https://docs.nvidia.com/cuda/x/y"],
        "evidence": [
            {"fact": "hbm_rate", "value": 1e12, "unit": "byte/s", "op": ">", "threshold": 1e11, "holds": True}
        ],
        "where": [
            {"role": "cause", "pc": "0x10", "sass": "LDG", "file": "C:\\Users\\alice\\k.cu", "line": 7, "share": 0.5}
        ],
        "why": "Reads at 4.1 TB/s and/or more",
        "next_experiment": {"change": "c", "expect": {"fact": "hbm_rate", "op": "<", "value": 1}},
    }  # fmt: skip
    kernel = {
        "id": "abc", "index": 0, "run": 0, "device": 0, "workload": "kernel", "name": "k",
        "demangled": "k(lambda at /home/alice/src/k.cu:12)", "launch": None, "launches": 1, "duration_us": 4096.0,
        "time_share": 1.0, "clock_ghz": 1.7, "paths": ["cp-async"], "sentence": "4096 blocks at 3.9 TB/s",
        "verdict": {
            "rule": "uncoalesced", "class": "implementation", "title": "T", "at_stake": 0.4, "speedup": None,
            "confidence": "high",
        },
        "limits": [], "findings": [finding], "rejected": [], "not_evaluated": [], "facts": {},
        "warnings": ["read from /home/alice/run.ncu-rep"], "hot": [hot],
        "speed_of_light": [{"label": "L1 / shared data", "utilization": 0.5, "source": "share of ncu's peak"}],
    }  # fmt: skip
    run = {
        "source": "/home/alice/results/run.ncu-rep", "ncu_version": "2025.3.1", "clock_control": "none",
        "host": "gpu-node-07", "rank": 0,
        "command": "/opt/ncu --set full -o /home/alice/run python /home/alice/train.py --token s3cret --size 4096",
    }  # fmt: skip
    return {
        "schema_version": "1", "tool": {"name": "diagnose", "version": "1"}, "packs": [], "ceilings": {}, "devices": [],
        "runs": [run], "partial": False, "program": {"findings": [], "gpu_time_us": 4096.0, "covered_share": None},
        "warnings": [
            "/home/alice/train.py on gpu-node-07 failed with s3cret",
            "train.py wrote C:\\Users\\alice\\x.txt",
            "4.3 TB/s",
        ],
        "rule_pages": {}, "kernels": [kernel],
    }  # fmt: skip


@pytest.mark.parametrize("form", ["json", "jsonl", "md", "sarif", "junit"])
def test_nothing_of_the_user_is_in_any_format(form: str) -> None:
    assert any(secret in json.dumps(sample()) for secret in SECRETS)
    said = render(redact.document(sample()), form)
    for secret in SECRETS:
        assert secret not in said and json.dumps(secret)[1:-1] not in said, secret


def test_the_page_and_the_terminal_too() -> None:
    import io

    from rich.console import Console

    from diagnose.render import html, terminal

    clean = redact.document(sample())
    console = Console(file=io.StringIO(), width=200)
    terminal.render(clean, console, True)
    assert isinstance(console.file, io.StringIO)
    for said in (html.render(clean), console.file.getvalue()):
        for secret in SECRETS:
            assert secret not in said, secret


def test_what_is_no_secret_stays() -> None:
    before, after = sample(), redact.document(sample())
    (kernel,) = after["kernels"]
    assert kernel["sentence"] == "4096 blocks at 3.9 TB/s", "a number that is also an argument stays in a sentence"
    assert kernel["findings"][0]["why"] == before["kernels"][0]["findings"][0]["why"]
    assert kernel["findings"][0]["references"] == ["https://docs.nvidia.com/cuda/x/y"]
    assert kernel["findings"][0]["where"][0]["file"] == "k.cu" and kernel["hot"][0]["line"] == 7
    assert kernel["hot"][0]["source"] is None and kernel["hot"][0]["sass"] == "LDG.E R4, [R2]"
    assert kernel["demangled"] == "k(lambda at k.cu:12)"
    assert kernel["speed_of_light"] == before["kernels"][0]["speed_of_light"]
    assert after["runs"][0] == {**before["runs"][0], "source": "run.ncu-rep", "host": None, "command": "ncu [redacted]"}
    assert after["warnings"][2] == "4.3 TB/s"
    assert set(after) == set(before) and set(kernel) == set(before["kernels"][0]), "no key goes"
    assert before == sample(), "the document that was given is not changed"


def test_no_source_takes_only_the_text() -> None:
    clean = redact.without_source(sample())
    (kernel,) = clean["kernels"]
    assert kernel["hot"][0]["source"] is None and kernel["hot"][0]["file"] == "/home/alice/src/k.cu"
    assert clean["runs"] == sample()["runs"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cannot open /home/a/b.cu: no", "cannot open b.cu: no"),
        ("~/x/y.txt and ./z/w and ../q", "y.txt and w and q"),
        ("C:\\Users\\a\\b.exe failed", "b.exe failed"),
        ("4.1 TB/s, and/or I/O, L1 / shared, 10 inst/cycle", "4.1 TB/s, and/or I/O, L1 / shared, 10 inst/cycle"),
        ("https://host/page stays", "https://host/page stays"),
        ("file:///home/a/b", "b"),
        ("operator/(int)", "operator/(int)"),
    ],
)
def test_paths_keep_their_last_part(text: str, expected: str) -> None:
    assert Redactor().paths(text) == expected


def test_words_of_a_command_line() -> None:
    words = command_words('ncu --set full --key=abc -o "/tmp/my run" python /x/t.py --n 12 4096')
    assert {"abc", "/x/t.py", "t.py", "4096"} <= set(words)
    assert not {"full", "python", "--n", "ncu"} & set(words)
    assert (
        Redactor(["h1"], ["4096", "12"]).text("h1 saw 4096 and 12 of h10") == "[redacted] saw [redacted] and 12 of h10"
    )


# --- through the command line


@pytest.mark.skipif(not REPORT.is_file(), reason="examples/reports is not here")
def test_a_recorded_report(tmp_path: Path) -> None:
    private = tmp_path / "users" / "alice"
    private.mkdir(parents=True)
    path = private / "run.ncu-rep"
    path.write_bytes(lzma.decompress(REPORT.read_bytes()))
    done = subprocess.run(
        [*COMMAND, str(path), "--redact", "--format", "json"], capture_output=True, text=True, cwd=tmp_path, check=True
    )
    page = (tmp_path / "diagnose-report.html").read_text()
    for said in (done.stdout, done.stderr, page):
        for secret in ("alice", "gpu-host", "--repeats", "/src/diagnose", "import-source yes"):
            assert secret not in said, secret
    document = json.loads(done.stdout)
    assert all(row["source"] is None for row in document["kernels"][0]["hot"])
    plain = subprocess.run(
        [*COMMAND, str(path), "--no-html", "--format", "json"], capture_output=True, text=True, cwd=tmp_path
    )
    assert "gpu-host" in plain.stdout and "alice" in plain.stdout
    kept = subprocess.run(
        [*COMMAND, str(path), "--no-html", "--no-source", "--format", "json"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    rows = json.loads(kept.stdout)["kernels"][0]["hot"]
    assert all(row["source"] is None for row in rows) and any(row["file"] for row in rows)


@pytest.mark.skipif(not REPORT.is_file(), reason="examples/reports is not here")
def test_a_live_run(tmp_path: Path) -> None:
    report, scenario = tmp_path / "r.ncu-rep", tmp_path / "s.json"
    report.write_bytes(lzma.decompress(REPORT.read_bytes()))
    scenario.write_text(json.dumps({"launches": [["gemm_mma", 3]], "report_file": str(report)}))
    environment = {**os.environ, "DIAGNOSE_NCU": str(FAKE), "FAKE_NCU_SCENARIO": str(scenario)}
    words = ["--redact", "--format", "json", "sh", "-c", "exit 4", "s3cret-argument"]
    done = subprocess.run([*COMMAND, *words], capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "diagnose-report.html").read_text()
    for said in (done.stdout, done.stderr, page):
        assert "s3cret-argument" not in said and str(tmp_path) not in said
    assert "profile: diagnose-report.ncu-rep (not redacted)" in done.stderr
