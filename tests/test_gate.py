"""Accepted findings, the baseline and budgets: what gates, what does not, and a gate that measured nothing."""

from __future__ import annotations

import copy
import json
import sys
from datetime import date
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import xmlschema

import recorded
from diagnose import accept, api, baseline, budget, cli, config, job
from diagnose.errors import DiagnoseError
from diagnose.model import Profile
from diagnose.render import junit, links, sarif

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ACME = Path(__file__).resolve().parents[1] / "examples" / "acme_rules"
SAMPLE = Path(__file__).parent / "data" / "sample_document.json"
TODAY = date(2026, 12, 1)
Document = dict[str, Any]


@pytest.fixture
def document() -> Document:
    loaded: Document = json.loads(SAMPLE.read_text(encoding="utf-8"))
    return loaded


def first(document: Document) -> tuple[Document, Document]:
    """A kernel and its first finding."""
    kernel = next(kernel for kernel in document["kernels"] if kernel["findings"])
    return kernel, kernel["findings"][0]


def entries(toml: str) -> tuple[accept.Accepted, ...]:
    return accept.read("diagnose.toml", tomllib.loads(toml)["accept"])


def entry(rule: str, kernel: str, expires: str = "2027-02-28", more: str = "") -> str:
    return (
        f'[[accept]]\nfinding = "core/{rule}"\nkernel = "{kernel}"\nreason = "rewrite planned"\n'
        f'owner = "@kernel-team"\nexpires = {expires}\n{more}\n'
    )


# --- accept ---


def test_an_accepted_finding_is_marked_counted_and_gates_nothing(document: Document) -> None:
    kernel, finding = first(document)
    alone = {**document, "kernels": [kernel], "program": {"findings": []}, "runs": []}
    assert api.gates_that_hold(alone, ["note"])
    every = "".join(entry(one["rule"], kernel["name"][:4] + "*") for one in kernel["findings"])
    found = accept.apply(alone, entries(every), TODAY)
    marked = found["kernels"][0]["findings"][0]["accepted"]
    assert (marked["owner"], marked["reason"], marked["expires"]) == ("@kernel-team", "rewrite planned", "2027-02-28")
    assert found["acceptance"] == {"accepted": len(kernel["findings"]), "lapsed": 0, "stale": []}
    assert api.gates_that_hold(found, ["note", kernel["verdict"]["class"], finding["rule"]]) == []


@pytest.mark.parametrize(
    ("change", "lapses"),
    [
        ({"expires": "2026-11-30"}, "expired on 2026-11-30"),
        ({"expires": "2026-12-01"}, None),  # the day itself still counts
        ({"more": "at = { win = 1.0 }"}, "would now win"),
        ({"more": "at = { win = 99.0 }"}, None),
    ],
)
def test_an_entry_lapses_after_its_day_and_when_it_gets_worse(
    document: Document, change: dict[str, str], lapses: str | None
) -> None:
    kernel, finding = first(document)
    found = accept.apply(document, entries(entry(finding["rule"], kernel["name"], **change)), TODAY)
    marked = next(k for k in found["kernels"] if k["id"] == kernel["id"])["findings"][0]
    assert ("accepted" in marked) is (lapses is None)
    if lapses is not None:
        assert lapses in marked["lapsed"]["why"]
        assert api.gates_that_hold(found, [finding["rule"]])


@pytest.mark.parametrize(("op", "now", "worse"), [(">", 34.2, True), (">", 34.0, False), ("<", 27.8, True)])
def test_the_accepted_value_of_a_metric_counts_in_the_direction_of_its_condition(
    document: Document, op: str, now: float, worse: bool
) -> None:
    kernel, finding = first(document)
    finding["evidence"] = [{"fact": "sectors", "value": now, "op": op, "threshold": 4, "holds": True}]
    text = entry(finding["rule"], kernel["name"], more='at = { metric = "sectors", value = 31 }')
    found = accept.apply(document, entries(text), TODAY)
    assert found["acceptance"]["lapsed"] == int(worse)


def test_an_entry_that_matches_nothing_is_stale(document: Document) -> None:
    found = accept.apply(document, entries(entry("uncoalesced", "no_such_kernel*")), TODAY)
    assert [one["kernel"] for one in found["acceptance"]["stale"]] == ["no_such_kernel*"]
    assert accept.apply(document, (), TODAY) == document


@pytest.mark.parametrize(
    ("toml", "said"),
    [
        ('accept = ["uncoalesced"]', "no table"),
        ('[[accept]]\nfinding = "x"\nreason = "r"\nowner = "o"', "no expires"),
        (entry("x", "k", "'tomorrow'"), "must be a date"),
        (entry("x", "k", more="until = 3"), "unknown key 'until'"),
        (entry("x", "k", more="at = { win = 'much' }"), "at.win must be a number"),
        (entry("x", "k", more="at = { gain = 2 }"), "unknown key 'gain'"),
    ],
)
def test_bad_entries_are_named(toml: str, said: str) -> None:
    with pytest.raises(DiagnoseError, match=said):
        entries(toml)


def test_the_configuration_reads_all_of_it(tmp_path: Path) -> None:
    (tmp_path / "diagnose.toml").write_text(
        'baseline = "perf/main.json"\n'
        + entry("uncoalesced", "row*")
        + '[[budget]]\nkernel = "gemm*"\nmax_duration = "1.5 ms"\nmin_tensor_utilization = 0.6\nmust_use = "wgmma"\n',
        encoding="utf-8",
    )
    found = config.load(tmp_path / "diagnose.toml")
    assert found.baseline == tmp_path / "perf/main.json"
    assert found.accepted[0].finding == "uncoalesced" and found.accepted[0].expires == date(2027, 2, 28)
    assert found.budgets == (budget.Budget("gemm*", 1500.0, 0.6, ("wgmma",)),)
    assert found.warnings == ()


# --- budgets ---


def a_kernel(**fields: Any) -> Document:
    return {"id": "1", "name": "gemm_tile", "demangled": "gemm_tile(float*)", "duration_us": 100.0, **fields}


@pytest.mark.parametrize(
    ("asked", "fields", "kept"),
    [
        ('max_duration = "120 us"', {}, True),
        ('max_duration = "0.09 ms"', {}, False),
        ('max_duration = "120 us"', {"duration_us": None}, None),
        ("min_tensor_utilization = 0.6", {"limits": [{"resource": "tensor", "utilization": 0.61}]}, True),
        ("min_tensor_utilization = 0.6", {"limits": [{"resource": "tensor", "utilization": 0.59}]}, False),
        ("min_tensor_utilization = 0.6", {"instruction_mix": [{"opcode": "FFMA"}], "paths": []}, False),
        ("min_tensor_utilization = 0.6", {"paths": []}, None),
        ('must_use = ["wgmma"]', {"paths": ["tma", "wgmma"]}, True),
        ('must_use = ["wgmma"]', {"paths": ["mma"]}, False),
        ('must_use = ["wgmma"]', {"paths": []}, None),
    ],
)
def test_a_budget_is_kept_broken_or_unknown(asked: str, fields: Document, kept: bool | None) -> None:
    budgets = budget.read("x", tomllib.loads(f'[[budget]]\nkernel = "gemm*"\n{asked}')["budget"])
    rows = budget.check({"kernels": [a_kernel(**fields), a_kernel(name="other", demangled="other")]}, budgets)
    assert [row["kept"] for row in rows] == [kept]
    assert "gemm_tile" in budget.told(rows[0])


@pytest.mark.parametrize(
    ("toml", "said"),
    [
        ('kernel = "g"', "asks for nothing"),
        ('kernel = "g"\nmax_duration = 12', "time with its unit"),
        ('kernel = "g"\nmin_tensor_utilization = 60', "share above 0"),
        ('kernel = "g"\nmust_use = ["wgma"]', "wgma.*wgmma"),
        ('max_duration = "1 s"', "kernel must be a pattern"),
    ],
)
def test_bad_budgets_are_named(toml: str, said: str) -> None:
    with pytest.raises(DiagnoseError, match=said):
        budget.read("x", tomllib.loads("[[budget]]\n" + toml)["budget"])


def test_a_gate_that_measured_nothing_ends_with_3(document: Document) -> None:
    kernels = document["kernels"]
    wide = budget.check(document, [budget.Budget("*", max_us=1e9)])
    assert all(row["kept"] is not None for row in wide) or any(k["duration_us"] is None for k in kernels)
    nothing = {**document, "budgets": budget.check(document, [budget.Budget("no_such*", max_us=1.0)])}
    assert api.exit_code(nothing) == 3
    assert "no profiled kernel is no_such*" in api.budgets_broken(nothing, None)[0]
    broken = {**document, "budgets": budget.check(document, [budget.Budget("*", max_us=1e-6)])}
    assert api.exit_code(broken) == 1


# --- baseline ---


def test_what_the_baseline_has_too_gates_nothing(document: Document) -> None:
    found = baseline.apply(document, copy.deepcopy(document), "main.json")
    assert found["baseline"]["new"] == found["baseline"]["worse"] == 0 and found["baseline"]["slower"] == []
    timed = [kernel for kernel in found["kernels"] if kernel.get("verdict")]
    assert api.gates_that_hold({**found, "kernels": timed, "runs": []}, ["note", "implementation", "regression"]) == []


def test_new_and_worse_findings_and_slower_kernels_count(document: Document) -> None:
    before = copy.deepcopy(document)
    kernel, finding = first(before)
    kernel["findings"] = kernel["findings"][1:]
    kernel["verdict"]["rule"] = "something-else"
    kernel["duration_us"] /= 2
    found = baseline.apply(document, before, "main.json")
    assert found["baseline"]["new"] >= 1
    assert [one["name"] for one in found["baseline"]["slower"]] == [kernel["name"]]
    held = api.gates_that_hold({**found, "runs": [], "kernels": found["kernels"][:1]}, [finding["rule"], "regression"])
    assert len(held) == 2 and "2.00 times as long" in held[1]


# --- through the command line ---


@pytest.fixture
def from_sample(document: Document, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Document:
    """The main job on a report whose document is the sample's first kernel."""
    kernel, _ = first(document)
    one = {**document, "kernels": [kernel], "program": {"findings": []}, "warnings": []}
    result = api.Result(one, Profile((), ()))
    monkeypatch.setattr(job, "_recorded", lambda *_: result)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.ncu-rep").write_bytes(b"")
    return one


def run(*words: str) -> int:
    return cli.main(["x.ncu-rep", "--no-html", "--format", "json", *words])


def test_accept_and_budget_from_the_file_decide_the_exit_code(
    from_sample: Document, capsys: pytest.CaptureFixture[str]
) -> None:
    kernel = from_sample["kernels"][0]
    assert run("--fail-on", "note") == 1
    Path("diagnose.toml").write_text(
        "".join(entry(one["rule"], kernel["name"], "2999-01-01") for one in kernel["findings"]), encoding="utf-8"
    )
    assert run("--fail-on", "note") == 0
    Path("diagnose.toml").write_text('[[budget]]\nkernel = "*"\nmax_duration = "1 ns"\n', encoding="utf-8")
    capsys.readouterr()
    assert run() == 1
    assert "gate: budget: " in capsys.readouterr().err
    Path("diagnose.toml").write_text('[[budget]]\nkernel = "absent"\nmax_duration = "1 ns"\n', encoding="utf-8")
    assert run() == 3


def test_the_baseline_option(from_sample: Document, capsys: pytest.CaptureFixture[str]) -> None:
    Path("main.json").write_text(json.dumps(from_sample), encoding="utf-8")
    assert run("--fail-on", "note", "--fail-on", "regression", "--baseline", "main.json") == 0
    assert json.loads(capsys.readouterr().out)["baseline"]["source"] == "main.json"
    assert run("--fail-on", "regression") == 2
    assert run("--baseline", "absent.json") == 2


# --- what machines read ---

# The schema of Jenkins' xunit plug-in (MIT, its licence stands in it), as pytest's source distribution ships it.
JUNIT = Path(__file__).parent / "data" / "junit-10.xsd"


def test_junit_holds_what_its_schema_allows_and_budgets(document: Document) -> None:
    document["budgets"] = budget.check(document, [budget.Budget("*", max_us=1.0), budget.Budget("absent", max_us=1.0)])
    schema = xmlschema.XMLSchema(JUNIT)
    packs = api.load_rules(api.Options(rules=(ACME,)))
    recorded_one = api.examine(recorded.read(recorded.report_of("gemm/mma")), packs, api.Options())
    for one in (document, recorded_one, {**document, "kernels": []}):
        schema.validate(junit.render(one))
    text = junit.render(recorded_one)
    assert "turns off tail-wave" in text
    for broken in (
        text.replace("<failure", "<fault").replace("</failure", "</fault"),
        text.replace(" tests=", " test="),
    ):
        assert not schema.is_valid(broken)
    root = ElementTree.fromstring(junit.render(document))
    assert root.tag == "testsuites"
    cases = [case for case in root.iter("testcase") if case.get("classname") == "diagnose.budget"]
    assert len(cases) == len(document["budgets"]) and all(len(case) == 1 for case in cases)
    suite = root.find("testsuite")
    assert suite is not None and int(suite.get("tests", "0")) == len(list(root.iter("testcase")))
    assert int(suite.get("failures", "0")) == len(list(root.iter("failure")))


def test_formats_link_to_the_page_that_was_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = str(recorded.report_of("gemm/mma"))

    def printed(*words: str) -> str:
        assert cli.main([report, "-o", str(tmp_path / "a page.html"), *words]) == 0
        return capsys.readouterr().out

    sarif_ = json.loads(printed("--format", "sarif"))["runs"][0]
    (result,) = sarif_["results"]
    address, _, fragment = result["hostedViewerUri"].partition("#")
    assert address == (tmp_path / "a page.html").as_uri()
    kernel = result["properties"]["kernel"]
    assert fragment == f"k={kernel}&f=legacy-mma"
    assert f'id="k={kernel}&amp;f=legacy-mma"' in (tmp_path / "a page.html").read_text(encoding="utf-8")
    assert sarif_["tool"]["driver"]["rules"][0]["helpUri"] == result["hostedViewerUri"]
    text = printed("--format", "md")
    name = f"{tmp_path}/a%20page-2.html"
    assert f"[`gemm_mma`]({name}#k={kernel})" in text and f"]({name}#k={kernel}&f=legacy-mma)" in text
    served = printed("--format", "md", "--report-url", "https://ci.example.org/x(1).html#top")
    assert f"](https://ci.example.org/x%281%29.html#k={kernel})" in served
    assert str(tmp_path) not in printed("--format", "sarif", "--redact")
    assert str(tmp_path) not in printed("--format", "md", "--redact")
    assert cli.main([report, "--report-url", "javascript:alert(1)"]) == 2
    assert links.finding("", "a", {"rule": "acme/own"}) == "#k=a&f=acme.own"


def test_sarif_holds_to_its_schema(document: Document) -> None:
    model = pytest.importorskip("pydantic_sarif.model", reason="pydantic-sarif is not installed")
    kernel, finding = first(document)
    marked = accept.apply(document, entries(entry(finding["rule"], kernel["name"])), TODAY)
    # Made from the public schema of SARIF 2.1.0, with unknown keys forbidden.
    log = model.StaticAnalysisResultsFormatSarifVersion210JsonSchema.model_validate_json(
        sarif.render(marked, "file:///tmp/a.html")
    )
    results = log.runs[0].results
    assert sum(bool(result.suppressions) for result in results) == 1
    assert any(result.locations[0].physicalLocation for result in results)
    with pytest.raises(ValueError):
        model.StaticAnalysisResultsFormatSarifVersion210JsonSchema.model_validate({"version": "2.1.0", "rums": []})
