"""What packs can do beyond rules: facts, thresholds, installed packs; the scaffold, the table, pages, Acme's pack."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import gen_rule_pages
import recorded
from diagnose import api, config, explain, installed, report, review, scaffold, table
from diagnose.errors import DiagnoseError
from diagnose.model import KernelProfile, Profile, Run
from diagnose.rules import RULE_KEYS, Pack, active_rules, glob_matches, rule_metrics, tuner

ROOT = Path(__file__).resolve().parents[1]
ACME = ROOT / "examples" / "acme_rules"

Make = Callable[..., Path]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """A pack made by the scaffold, with other text in its files."""

    def write(rule: dict[str, object] | None = None, facts: object = None, **manifest: object) -> Path:
        folder = tmp_path / "team"
        scaffold.create("team/waits", folder)
        if rule is not None:
            (folder / "waits.yaml").write_text(
                yaml.safe_dump({**yaml.safe_load((folder / "waits.yaml").read_text()), **rule})
            )
        if facts is not None:
            (folder / "facts.yaml").write_text(yaml.safe_dump(facts, sort_keys=False))
        if manifest:
            (folder / "pack.yaml").write_text(yaml.safe_dump({"name": "team", "version": "1", **manifest}))
        return folder

    return write


def load(*folders: Path) -> tuple[Pack, ...]:
    return api.load_rules(api.Options(rules=folders))


def refused(folder: Path, *parts: str) -> None:
    with pytest.raises(DiagnoseError) as caught:
        load(folder)
    for part in parts:
        assert part in f"{caught.value.message} | {caught.value.hint}"


def document(kernel: KernelProfile, packs: tuple[Pack, ...]) -> report.Document:
    return api.examine(Profile((Run("x.ncu-rep"),), (kernel,)), packs, api.Options())


def found_in(kernel: KernelProfile, packs: tuple[Pack, ...]) -> list[str]:
    return [one["rule"] for one in document(kernel, packs)["kernels"][0]["findings"]]


# --- the scaffold ---


def test_a_new_rule_has_every_key_loads_and_is_never_overwritten(tmp_path: Path) -> None:
    folder = tmp_path / "Perf Rules"
    assert [path.name for path in scaffold.create("must-use-tma", folder)] == ["pack.yaml", "must-use-tma.yaml"]
    assert set(yaml.safe_load((folder / "must-use-tma.yaml").read_text())) == set(RULE_KEYS)
    assert load(folder)[1].rules[0].id == "perf-rules/must-use-tma"
    assert [path.name for path in scaffold.create("perf-rules/other", folder)] == ["other.yaml"]
    assert len(load(folder)[1].rules) == 2
    (folder / "deep").mkdir()
    (folder / "deep" / "third.yaml").write_text("kept")
    for name in ("other", "third"):
        with pytest.raises(DiagnoseError, match="exists"):
            scaffold.create(name, folder)
    assert (folder / "deep" / "third.yaml").read_text() == "kept"


@pytest.mark.parametrize("name", ["Must_Use", "../up", "a/b/c", "", "pack", "core/x", "other/x", "facts", "x" * 81])
def test_a_name_that_is_no_rules_is_refused(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "core"
    if name == "other/x":
        scaffold.create("team/first", folder)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(DiagnoseError):
        scaffold.create(name, folder)
    assert sorted(tmp_path.rglob("*")) == before


# --- derived facts ---


def test_a_derived_fact_is_used_in_conditions_and_sentences_and_collected(make: Make) -> None:
    facts = {
        "waiting": {"unit": "share", "expression": "exposed_load * (1 - hbm_utilization)", "doc": "Both."},
        "loud": {"unit": "ratio", "expression": "waiting * ncu:launch__registers_per_thread / 10"},
    }
    rule = {
        "when": ["waiting >= 20%", "loud > 1"],
        "sentence": "{waiting:%} and {loud:.1}",
        "examples": {
            "base": {"exposed_load": 0.5, "hbm_utilization": 0.5, "ncu:launch__registers_per_thread": 100},
            "silent": [{"exposed_load": 0.3}, {"ncu:launch__registers_per_thread": 10}],
        },
    }
    pack = load(make(rule, facts))[1]
    (one,) = pack.rules
    assert [fact.name for fact in pack.facts] == ["waiting", "loud"]
    assert {"exposed_load", "hbm_utilization"} <= set(one.facts) and "waiting" not in one.facts
    assert "launch__registers_per_thread" in rule_metrics(one, {})
    assert one.leaves[0].left.text == "waiting"


@pytest.mark.parametrize(
    ("facts", "parts"),
    [
        ({"duration_us": {"unit": "us", "expression": "1 + clock_ghz"}}, ("facts.yaml:2", "taken")),
        ({"a": {"unit": "share", "expression": "b + 1"}, "b": {"unit": "x", "expression": "waves"}}, ("fact 'b'",)),
        ({"a": {"unit": "share", "expression": "a"}}, ("unknown fact 'a'",)),
        ({"a": {"unit": "byte", "expression": "duration_us"}}, ("is in us, not in byte", "unit: us")),
        ({"a": {"unit": "share", "expression": "hbm_bytes + duration_us"}}, ("facts.yaml:3", "units differ")),
        ({"a": {"unit": "share", "expression": "waves > 1"}}, ("no number",)),
        ({"a": {"unit": "share", "expression": "2 * 3"}}, ("reads no fact",)),
        ({"a": {"unit": "share"}}, ("lacks 'expression'",)),
        ({"A b": {"unit": "share", "expression": "waves"}}, ("not a fact's name",)),
        ({"a": {"unit": "share", "expression": "waves", "unti": "x"}}, ("'unti'", "'unit'")),
        ({"a": {"unit": "share", "expression": "__import__('os')"}}, ("facts.yaml",)),
        (["a"], ("must be a mapping",)),
    ],
)
def test_a_derived_fact_that_is_wrong_is_refused(make: Make, facts: object, parts: tuple[str, ...]) -> None:
    refused(make(facts=facts), *parts)


def test_derived_facts_cannot_blow_up(make: Make) -> None:
    facts: dict[str, object] = {"f0": {"unit": "ratio", "expression": "waves + waves"}}
    for n in range(1, 60):
        facts[f"f{n}"] = {"unit": "ratio", "expression": f"f{n - 1} + f{n - 1}"}
    refused(make(facts=facts), "more than 500 parts")


def test_an_example_and_show_take_measured_facts_only(make: Make, tmp_path: Path) -> None:
    facts = {"waiting": {"unit": "share", "expression": "exposed_load"}}
    folder = make({"show": ["waiting"]}, facts)
    refused(folder, "derived fact")
    rule = yaml.safe_load((folder / "waits.yaml").read_text())
    rule["show"] = []
    rule["examples"]["base"]["waiting"] = 1
    (folder / "waits.yaml").write_text(yaml.safe_dump(rule))
    refused(folder, "derived fact", "exposed_load")


# --- thresholds ---


def threshold(packs: tuple[Pack, ...], rule_id: str, fact: str, name: str, arch: str | None) -> float:
    (rule,) = [r for r in tuner(active_rules(packs), packs)((name, name), arch) if r.id == rule_id]
    (leaf,) = [leaf for leaf in rule.leaves if leaf.left.text == fact]
    return float(leaf.right.text.rstrip("%"))


def test_thresholds_follow_the_kernels_name_and_the_architecture(make: Make) -> None:
    entries = [
        {"rule": "tail-wave", "kernel": "attention_*", "set": {"wave_tail_idle": 0.2}},
        {"rule": "tail-wave", "kernel": "attention_f*", "arch": ">=sm_90", "set": {"wave_tail_idle >=": "40%"}},
        {"rule": "waits", "arch": "sm_90", "set": {"exposed_load": 0.5}},
    ]
    packs = load(make(thresholds=entries))
    idle = ("tail-wave", "wave_tail_idle")
    assert threshold(packs, *idle, "gemm", "sm_90") == 0.1
    assert threshold(packs, *idle, "attention_x", "sm_90") == 0.2
    assert threshold(packs, *idle, "attention_fused", "sm_100") == 0.4
    assert threshold(packs, *idle, "attention_fused", "sm_80") == 0.2
    assert threshold(packs, *idle, "attention_fused", None) == 0.2
    assert threshold(packs, "team/waits", "exposed_load", "gemm", "sm_90") == 0.5
    assert threshold(packs, "team/waits", "exposed_load", "gemm", "sm_80") == 0.2
    told = report.packs_entry(packs)[1]["thresholds"]
    assert told[2] == {"rule": "team/waits", "kernel": None, "arch": ["==sm_90"], "set": {"exposed_load": 0.5}}


@pytest.mark.parametrize(
    ("entry", "parts"),
    [
        ({"rule": "tail-wav", "set": {"waves": 2}}, ("pack.yaml", "'tail-wav'", "'tail-wave'")),
        ({"rule": "tail-wave", "set": {"wave": 2}}, ("compares no 'wave'", "'waves'", "waves >")),
        ({"rule": "tail-wave", "set": {"waves": "much"}}, ("must be a number",)),
        ({"rule": "tail-wave"}, ("lacks 'set'",)),
        ({"rule": "tail-wave", "kernel": "*" * 201, "set": {"waves": 2}}, ("200 characters",)),
        ({"rule": "tail-wave", "arch": "hopper", "set": {"waves": 2}}, ("'hopper'",)),
        ({"rule": "tail-wave", "kernle": "x", "set": {"waves": 2}}, ("'kernle'", "'kernel'")),
    ],
)
def test_a_threshold_that_is_wrong_is_refused(make: Make, entry: object, parts: tuple[str, ...]) -> None:
    refused(make(thresholds=[entry]), *parts)


@given(st.text("ab*?", max_size=12), st.text("ab", max_size=12))
def test_a_glob_matches_as_its_definition_says(pattern: str, text: str) -> None:
    reach = {0}
    for sign in pattern:
        if sign == "*":
            reach = {end for start in reach for end in range(start, len(text) + 1)}
        else:
            reach = {at + 1 for at in reach if at < len(text) and sign in ("?", text[at])}
    assert glob_matches(pattern, text) is (len(text) in reach)


def test_a_hostile_glob_takes_no_time() -> None:
    assert not glob_matches("*a" * 100, "a" * 5000 + "b")


# --- installed packs ---


def test_an_installed_pack_is_found_without_running_its_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "acme_gpu_for_test"
    scaffold.create("acme/waits", package / "rules")
    (package / "__init__.py").write_text("raise SystemExit('code of a pack ran')")
    points = [
        metadata.EntryPoint("acme", "acme_gpu_for_test.rules", installed.GROUP),
        metadata.EntryPoint("gone", "acme_gpu_for_test.nothing", installed.GROUP),
        metadata.EntryPoint("odd", "../../etc", installed.GROUP),
    ]
    monkeypatch.setattr(metadata, "entry_points", lambda group: points)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert load(Path("installed:acme"))[1].name == "acme"
    assert "acme_gpu_for_test" not in sys.modules
    for name, said in (("acm", "'acme'"), ("gone", "no such folder"), ("odd", "no dotted path")):
        with pytest.raises(DiagnoseError, match=said):
            load(Path(f"installed:{name}"))
    (tmp_path / "diagnose.toml").write_text('packs = ["installed:acme", "rules"]')
    assert config.load(tmp_path / "diagnose.toml").packs == (Path("installed:acme"), tmp_path / "rules")


# --- the article's table, and the pages ---


def test_the_table_has_the_articles_rows_and_every_row_a_rule_or_a_reason() -> None:
    packs = load()
    found = table.read(packs)
    assert len(found["observations"]) == 10 and len(found["ablations"]) == 7
    ids = {rule.id for rule in packs[0].rules}
    for row in found["observations"]:
        assert row["rules"] or (row["note"] and set(row["guards"]) <= ids), row
    rows = {row["row"] for row in found["observations"]}
    step = [rule for rule in packs[0].rules if rule.article and "/第四步: " in rule.article]
    assert step and all(rule.article and rule.article.split(": ", 1)[1] in rows for rule in step)
    text = table.text(found)
    assert text.count("study: diagnose ablate ") == 7 and "rules: hbm-bandwidth" in text


def test_the_pages_of_the_rules_are_up_to_date() -> None:
    assert gen_rule_pages.stale() == [], "python tests/gen_rule_pages.py"


def test_a_page_says_what_explain_says() -> None:
    packs = load()
    for rule in packs[0].rules:
        page = explain.page(rule.id, packs)
        words = set(explain.text(page).split()) - set(page["file"].split())
        assert words - set(explain.markdown(page, "x").split()) <= {f"{rule.id}:"}


# --- Acme's pack ---


def test_acmes_pack_fires_where_it_should_and_nowhere_else() -> None:
    packs = load(ACME)
    fires = {
        "gemm/mma": "acme/must-use-tma",
        "faults/iterate-items": "acme/tail-of-a-batch",
        "faults/bank-conflict-pitch64": "acme/conflicts-a-request",
    }
    for name, rule in fires.items():
        mine = [one for one in found_in(recorded.profile(name), packs) if one.startswith("acme/")]
        assert mine == [rule], name
    for name in ("faults/tile-sums-whole", "faults/bank-conflict-pitch65", "faults/stream-read"):
        assert not [one for one in found_in(recorded.profile(name), packs) if one.startswith("acme/")], name


def test_acmes_thresholds_hold_for_the_kernels_they_name() -> None:
    packs = load(ACME)
    tail = recorded.profile("faults/iterate-items")
    assert "acme/tail-of-a-batch" in found_in(tail, packs)
    assert "tail-wave" not in found_in(tail, packs)
    solver = recorded.changed(tail, name="my_solver_step", demangled="my_solver_step(float*)")
    assert "acme/tail-of-a-batch" not in found_in(solver, packs)


def test_what_a_pack_changes_is_told() -> None:
    profiles = [Profile((Run("tail.ncu-rep"),), (recorded.profile("faults/iterate-items"),))]
    found = review.changes(profiles, load(), load(ACME))
    assert [(one.kind, one.rule) for one in found] == [
        ("appears", "acme/tail-of-a-batch"),
        ("vanishes", "tail-wave"),
        ("verdict", "acme/tail-of-a-batch"),
    ]
    assert "tail-wave -> acme/tail-of-a-batch" in review.text(found, 1, 1, "core")
    assert not review.changes(profiles, load(ACME), load(ACME))


def test_a_pack_is_read_as_a_commit_has_it(make: Make, tmp_path: Path) -> None:
    folder = make()
    env = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull}
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    (folder / "link.yaml").symlink_to("/etc/passwd")
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*git, *words], check=True, env=env, capture_output=True)
    (folder / "link.yaml").unlink()
    (folder / "pack.yaml").write_text("name: team\nversion: 2\ndisable: [tail-wave]\n")
    with review.at_commit(folder, "HEAD") as before:
        assert load(before)[1].version == "0.1.0"
        assert not (before / "link.yaml").exists()
    assert not before.exists()
    for ref in ("nothing", "--output=x"):
        with pytest.raises(DiagnoseError, match="git in"), review.at_commit(folder, ref):
            pass


def test_the_sample_is_small() -> None:
    assert 0 < len(review.sample()) <= review.SAMPLE


def test_the_commands(tmp_path: Path) -> None:
    program = [sys.executable, "-c", "import sys; from diagnose.cli import main; sys.exit(main())"]

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        return subprocess.run([*program, "rules", *words], cwd=tmp_path, env=env, capture_output=True, text=True)

    assert run("new", "acme/tma", "--dir", "perf").stdout.splitlines()[-1] == "next: diagnose rules test perf"
    again = run("new", "acme/tma", "--dir", "perf")
    assert again.returncode == 2 and "perf/tma.yaml exists" in again.stderr
    told = run("test", "--rules", "perf", "--no-reports", "--format", "json")
    assert [row["pack"] for row in json.loads(told.stdout)["packs"]] == ["core", "acme"]
    assert run("test", "--against", "HEAD").returncode == 2
    assert len(json.loads(run("list", "--table", "--format", "json").stdout)["ablations"]) == 7
    (tmp_path / "perf" / "tma.yaml").write_text("title: x\n")
    assert run("test", "perf").returncode == 1
