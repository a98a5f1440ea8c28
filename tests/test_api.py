"""The steps as a library: rules and their options, configuration, gates, what is asked of ncu, live results."""

from __future__ import annotations

import json
import lzma
import os
from pathlib import Path
from typing import Any

import pytest

from diagnose import api, config, output
from diagnose.collect.run import Collected
from diagnose.errors import DiagnoseError

ROOT = Path(__file__).resolve().parents[1]
REPORTS = ROOT / "examples" / "reports"
GEMM = REPORTS / "gemm-mma.ncu-rep.xz"
FAKE = ROOT / "tests" / "fake_ncu" / "ncu"
needs_report = pytest.mark.skipif(not GEMM.is_file(), reason="examples/reports is not here")


@needs_report
def test_reports_as_a_library() -> None:
    result = api.diagnose_reports([GEMM], api.Options())
    assert result.document["kernels"][0]["verdict"]["rule"] == "legacy-mma"
    assert result.collected is None and len(result.profile.kernels) == 1
    assert api.exit_code(result.document) == 0


@needs_report
def test_disabled_rules_are_not_asked() -> None:
    options = api.Options(disable=("legacy-mma",))
    document = api.diagnose_reports([GEMM], options).document
    assert document["packs"][0]["disabled"] == ["legacy-mma"]
    assert document["kernels"][0]["verdict"]["rule"] != "legacy-mma"
    with pytest.raises(DiagnoseError, match="did you mean 'legacy-mma'"):
        api.load_rules(api.Options(disable=("legacy-mm",)))


@needs_report
def test_a_teams_pack_takes_part(tmp_path: Path) -> None:
    (tmp_path / "pack.yaml").write_text("name: acme\nversion: 2\n")
    (tmp_path / "large-grid.yaml").write_text(
        "title: A large grid\nclass: fit\nseverity: note\nwhen:\n- grid_blocks > 100\n"
        "sentence: '{grid_blocks:n} blocks'\n"
        "why: For the test.\nnext_experiment:\n  change: Fewer blocks.\n  expect: grid_blocks < 100\n"
        "examples:\n  base:\n    grid_blocks: 200\n  silent:\n  - grid_blocks: 50\n"
    )
    document = api.diagnose_reports([GEMM], api.Options(rules=(tmp_path,))).document
    assert [pack["name"] for pack in document["packs"]] == ["core", "acme"]
    assert "acme/large-grid" in [one["rule"] for one in document["kernels"][0]["findings"]]
    assert document["rule_pages"]["acme/large-grid"]["title"] == "A large grid"


def test_live_metrics_are_names_that_ncu_takes() -> None:
    found = api.live_metrics(api.load_rules(api.Options()))
    assert len(found) == len(set(found)) and list(found) == sorted(found)
    assert "gpu__time_duration.sum" in found and "smsp__inst_executed.sum" in found
    for name in found:
        unit = name.split("__", 1)[0]
        assert unit in {"sm", "smsp", "l1tex", "lts", "dram", "gpu", "gpc", "idc", "gcc", "fbpa", "ltc"}, name
        assert "{" not in name and " " not in name


def test_gates() -> None:
    packs = api.load_rules(api.Options())
    api.check_gates(["hardware", "critical", "target", "spill", "many-small-launches"], packs)
    with pytest.raises(DiagnoseError) as raised:
        api.check_gates(["spil"], packs)
    assert "did you mean 'spill'" in raised.value.message and raised.value.exit_code == 2


def document(
    verdict: tuple[str, str], *findings: tuple[str, str, str], target_exit: int | None = None
) -> dict[str, Any]:
    return {
        "runs": [{"target_exit": target_exit}],
        "program": {"findings": []},
        "kernels": [
            {
                "name": "k",
                "verdict": {"rule": verdict[0], "class": verdict[1]},
                "findings": [{"rule": r, "class": c, "severity": s} for r, c, s in findings],
            }
        ],
    }


@pytest.mark.parametrize(
    ("gate", "holds"),
    [
        ("implementation", True), ("fit", False), ("hardware", False), ("critical", False), ("warning", True),
        ("note", True), ("spill", True), ("tail-wave", True), ("barrier", False), ("target", False),
    ],
)  # fmt: skip
def test_what_a_gate_looks_at(gate: str, holds: bool) -> None:
    found = document(("spill", "implementation"), ("spill", "implementation", "warning"), ("tail-wave", "fit", "note"))
    assert bool(api.gates_that_hold(found, [gate])) is holds
    assert api.exit_code(found, [gate]) == int(holds)


def test_notes_on_a_kernel_at_its_limit_hold_no_class() -> None:
    found = document(("hbm-bandwidth", "hardware"), ("tail-wave", "fit", "note"))
    assert not api.gates_that_hold(found, ["fit", "implementation", "warning"])
    assert api.gates_that_hold(found, ["hardware"]) and api.gates_that_hold(found, ["note"])


def test_accepted_findings_hold_nothing() -> None:
    found = document(("spill", "implementation"), ("spill", "implementation", "warning"))
    found["kernels"][0]["findings"][0]["accepted"] = {"reason": "planned"}
    assert not api.gates_that_hold(found, ["implementation", "spill", "warning"])


def test_a_failed_target_is_a_gate_only_when_asked() -> None:
    found = document(("hbm-bandwidth", "hardware"), target_exit=3)
    assert api.exit_code(found) == 0 and api.exit_code(found, ["target"]) == 1
    assert "status 3" in api.gates_that_hold(found, ["target"])[0]


# --- live


def scenario(folder: Path, monkeypatch: pytest.MonkeyPatch, **played: Any) -> api.Live:
    report = folder / "recorded"
    report.write_bytes(lzma.decompress(GEMM.read_bytes()))
    path = folder / "scenario.json"
    path.write_text(json.dumps({"launches": [["gemm_mma", 3]], "report_file": str(report), **played}))
    monkeypatch.setenv("FAKE_NCU_SCENARIO", str(path))
    monkeypatch.setenv("FAKE_NCU_RECORD", str(folder / "commands"))
    monkeypatch.setenv("DIAGNOSE_NCU", str(FAKE))
    return api.Live(profile=folder / "out.ncu-rep")


@needs_report
def test_a_program_as_a_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    live = scenario(tmp_path, monkeypatch, wait_s=0.0)
    result = api.diagnose_program(["true"], live, api.Options(), told.append)
    assert isinstance(result, api.Result) and result.collected is not None
    assert result.document["runs"][0]["target_exit"] == 0 and result.document["kernels"][0]["id"]
    assert (tmp_path / "out.ncu-rep").read_bytes()[:4] == b"NVR\0"
    assert any("profiled 1" in line for line in told)


@needs_report
def test_a_reference_kernel_is_built_run_and_its_work_declared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "gemm-mma"
    program.write_text("#!/bin/sh\necho $@\n")
    program.chmod(0o755)
    monkeypatch.setattr("diagnose.collect.kernels.build_kernel", lambda kernel, progress=None: program)
    live = scenario(tmp_path, monkeypatch)
    result = api.diagnose_reference_kernel("kernel:gemm/mma", live, api.Options(all_facts=True), lambda text: None)
    assert not isinstance(result, Collected)
    (kernel,) = result.document["kernels"]
    assert kernel["facts"]["useful_flops"]["value"] == 2 * 4096**3
    command = json.loads((tmp_path / "commands").read_text().splitlines()[-1])
    assert "::regex:^gemm_mma$:1" in command and command[-2:] == ["--repeats", "0"]


def test_a_reference_kernel_without_ncu_is_not_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "find_ncu", lambda given: None)
    with pytest.raises(DiagnoseError) as raised:
        api.diagnose_reference_kernel("gemm/mma", api.Live(tmp_path / "x.ncu-rep"), api.Options(), lambda text: None)
    assert raised.value.exit_code == 3 and "doctor" in raised.value.hint


# --- configuration


def test_no_configuration(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    assert config.load(None, tmp_path) == config.Config()


def test_the_nearest_configuration_is_read(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text('[tool.diagnose]\npacks = ["perf"]\nfail-on = "critical"\n')
    found = config.load(None, inner)
    assert (found.packs, found.fail_on, found.file) == (
        (tmp_path / "perf",),
        ("critical",),
        tmp_path / "pyproject.toml",
    )
    (inner / "pyproject.toml").write_text("[tool.other]\nx = 1\n")
    assert config.load(None, inner).file == tmp_path / "pyproject.toml"
    (inner / "diagnose.toml").write_text('disable = ["spill"]\n')
    assert config.load(None, inner).disable == ("spill",)
    named = tmp_path / "only.toml"
    named.write_text('packs = ["x"]\n')
    assert config.load(named, inner) == config.Config(named, (tmp_path / "x",))
    (tmp_path / "a" / ".git").mkdir()
    (inner / "diagnose.toml").unlink()
    assert config.load(None, inner).file is None, "what lies above the repository is not read"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("packs = 1", "list of texts"),
        ("pack = ['x']", "did you mean 'packs'"),
        ("packs = [", "no TOML"),
        ("disable = ['']", "list of texts"),
    ],
)
def test_bad_configuration(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "c.toml"
    file.write_text(text)
    with pytest.raises(DiagnoseError) as raised:
        config.load(file)
    assert said in raised.value.message and "c.toml" in raised.value.message and raised.value.exit_code == 2


def test_configuration_that_cannot_be_read(tmp_path: Path) -> None:
    for content in (b"\xff\xfe", b"x" * 1_000_001):
        file = tmp_path / "c.toml"
        file.write_bytes(content)
        with pytest.raises(DiagnoseError):
            config.load(file)
    with pytest.raises(DiagnoseError, match=r"none\.toml"):
        config.load(tmp_path / "none.toml")


# --- files


def test_files_appear_whole_and_are_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "x.html"
    assert output.write_new(path, "one") == path
    assert output.write_new(path, "two") == tmp_path / "x-2.html"
    assert path.read_text() == "one" and (tmp_path / "x-2.html").read_text() == "two"
    output.write_file(path, "lone \udcff surrogate")
    assert path.read_text() == "lone ? surrogate"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["x-2.html", "x.html"], "no scratch file is left"
    with pytest.raises(DiagnoseError):
        output.write_new(tmp_path / "none" / "x.html", "")


def test_messages_stay_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    output.report_error(DiagnoseError("a\nb\x1b[31m", "do    this\r\nthat"))
    assert capsys.readouterr().err == "error: a b\\x1b[31m\nhint: do    this that\n"
    assert os.linesep == "\n"
