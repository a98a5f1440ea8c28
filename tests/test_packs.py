"""What packs can do beyond rules: facts, thresholds, installed packs; the scaffold, the table, pages, Acme's pack."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path

import jsonschema
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console

import gen_fired
import gen_rule_pages
import recorded
from diagnose import (
    api,
    config,
    explain,
    facts,
    fired,
    installed,
    output,
    program,
    report,
    review,
    rules,
    scaffold,
    sections,
    table,
)
from diagnose import packs as packs_module
from diagnose.errors import DiagnoseError
from diagnose.model import KernelProfile, Profile, Run
from diagnose.packfile import YNode, parse_yaml
from diagnose.packs import load_packs
from diagnose.render import html, terminal
from diagnose.rule_file import RULE_KEYS
from diagnose.rules import Pack, active_rules, rule_metrics, tuner
from diagnose.scope import glob_matches

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
    monkeypatch.setattr(metadata, "entry_points", lambda group: points if group == installed.GROUP else [])
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
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        env, command = {**os.environ, "PYTHONPATH": str(ROOT)}, [*recorded.COMMAND, "rules", *words]
        return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)

    assert run("new", "acme/tma", "--dir", "perf").stdout.splitlines()[-1] == "next: diagnose rules test perf"
    again = run("new", "acme/tma", "--dir", "perf")
    assert again.returncode == 2 and "perf/tma.yaml exists" in again.stderr
    told = run("test", "--rules", "perf", "--no-reports", "--format", "json")
    assert [row["pack"] for row in json.loads(told.stdout)["packs"]] == ["core", "acme"]
    assert run("test", "--against", "HEAD").returncode == 2
    assert len(json.loads(run("list", "--table", "--format", "json").stdout)["ablations"]) == 7
    (tmp_path / "perf" / "tma.yaml").write_text("title: x\n")
    assert run("test", "perf").returncode == 1


# --- other words for rules ---


def test_a_pack_gives_rules_other_words_and_changes_nothing_that_decides(make: Make) -> None:
    words = {
        "title": "Our words",
        "why": "Ours.",
        "change": "Ask the kernel team.",
        "sentence": "{wasted:%} of the time goes, see the handbook",
        "references": ["Handbook, chapter 4"],
    }
    facts = {"wasted": {"unit": "share", "expression": "1 - hbm_utilization"}}
    folder = make(facts=facts, reword={"memory-latency": words, "waits": {"title": "Theirs"}})
    plain, packs = load(), load(folder)
    before = next(rule for rule in plain[0].rules if rule.id == "memory-latency")
    after = next(rule for rule in packs[0].rules if rule.id == "memory-latency")
    assert (after.title, after.why, after.change) == ("Our words", "Ours.", "Ask the kernel team.")
    assert after.references == ("Handbook, chapter 4",) and after.limitations == before.limitations
    assert (after.leaves, after.when, after.at_stake, after.expect) == (
        before.leaves, before.when, before.at_stake, before.expect,
    )  # fmt: skip
    assert "hbm_utilization" in after.facts
    assert packs[1].rules[0].title == "Theirs"
    assert packs[0].sha256 == plain[0].sha256
    assert report.packs_entry(packs)[1]["reworded"] == {"memory-latency": sorted(words), "team/waits": ["title"]}
    kernel = recorded.profile("faults/iterate-items")
    rule = document(kernel, plain)["kernels"][0]["findings"][0]["rule"]
    (folder / "pack.yaml").write_text(
        yaml.safe_dump({"name": "team", "version": "1", "reword": {rule: {"title": "T", "change": "C", "why": "W"}}})
    )
    found = document(kernel, load(folder))["kernels"][0]
    assert (found["findings"][0]["title"], found["findings"][0]["why"]) == ("T", "W")
    assert found["findings"][0]["next_experiment"]["change"] == "C" and found["verdict"]["title"] == "T"


@pytest.mark.parametrize(
    ("reword", "parts"),
    [
        ({"memory-latncy": {"title": "x"}}, ("pack.yaml:", "no rule 'memory-latncy'", "'memory-latency'")),
        ({"memory-latency": {"titel": "x"}}, ("pack.yaml:", "unknown key 'titel'", "'title'", "thresholds")),
        ({"memory-latency": {"when": "true"}}, ("unknown key 'when'",)),
        ({"memory-latency": {}}, ("no words",)),
        ({"memory-latency": {"sentence": "{hbm_utilisation:%}"}}, ("hbm_utilization",)),
        (["memory-latency"], ("must be a mapping",)),
    ],
)
def test_words_that_are_wrong_are_refused(make: Make, reword: object, parts: tuple[str, ...]) -> None:
    refused(make(reword=reword), *parts)


# --- sections ---


def test_a_packs_sections_hold_values_for_the_kernels_they_are_for(make: Make) -> None:
    folder = make(
        facts={"both": {"unit": "share", "expression": "hbm_utilization + exposed_load"}},
        sections=[
            {
                "title": "Handover",
                "kernel": "iterate_*",
                "arch": ">=sm_90",
                "text": "Read <b>this</b> first.",
                "rows": [
                    "occupancy_achieved",
                    "ncu:launch__registers_per_thread",
                    {"label": "Both", "value": "both"},
                    {"value": "ncu:no_such_metric.sum / 2"},
                    "sass.has(HMMA in loop)",
                ],
            },
            {"title": "Elsewhere", "kernel": "gemm_*", "rows": ["waves"]},
        ],
    )
    packs = load(folder)
    kernel = recorded.profile("faults/iterate-items")
    context = recorded.context_of(kernel)
    entry = document(kernel, packs)["kernels"][0]
    (section,) = entry["sections"]
    assert (section["pack"], section["title"], section["text"]) == ("team", "Handover", "Read <b>this</b> first.")
    rows = section["rows"]
    assert [row["label"] for row in rows] == [
        "occupancy_achieved", "ncu:launch__registers_per_thread", "Both", "ncu:no_such_metric.sum / 2",
        "sass.has(HMMA in loop)",
    ]  # fmt: skip
    achieved = context.value("occupancy_achieved")
    assert achieved is not None and rows[0]["value"] == pytest.approx(achieved, rel=1e-5)
    assert rows[1] == {
        "label": "ncu:launch__registers_per_thread",
        "value": kernel.number("launch__registers_per_thread"),
        "unit": kernel.units["launch__registers_per_thread"],
    }
    hbm, load_ = context.value("hbm_utilization"), context.value("exposed_load")
    assert hbm is not None and load_ is not None
    assert rows[2]["value"] == pytest.approx(hbm + load_, rel=1e-5) and rows[2]["unit"] == "share"
    assert rows[3]["value"] is None and rows[3]["missing"] == ["no_such_metric.sum"]
    assert rows[4]["value"] is False
    assert report.packs_entry(packs)[1]["sections"] == ["Handover", "Elsewhere"]
    page, told = html.render(document(kernel, packs)), io.StringIO()
    terminal.render(document(kernel, packs), Console(file=told, width=100), verbose=True)
    assert "<h3>Handover" in page and "&lt;b&gt;this&lt;/b&gt;" in page
    assert "Both: " in told.getvalue() and "ncu:no_such_metric.sum / 2: not measured" in told.getvalue()


def test_what_a_section_reads_is_collected(make: Make) -> None:
    before = set(api.live_metrics(load()))
    after = set(api.live_metrics(load(make(sections=[{"title": "T", "rows": ["ncu:a__b.sum + ncu:c__d.sum"]}]))))
    assert after - before == {"a__b.sum", "c__d.sum"}


@pytest.mark.parametrize(
    ("section", "parts"),
    [
        ({"title": "T"}, ("lacks 'rows'",)),
        ({"rows": ["waves"]}, ("lacks 'title'",)),
        ({"title": "T", "rows": []}, ("no rows",)),
        ({"title": "T", "rows": ["wavs"]}, ("unknown fact 'wavs'", "'waves'")),
        ({"title": "T", "rows": ["waves + hbm_read_bytes"]}, ("units differ",)),
        ({"title": "T", "rows": [{"lable": "x", "value": "waves"}]}, ("unknown key 'lable'", "'label'")),
        ({"title": "T", "rows": [{"label": "x"}]}, ("lacks 'value'",)),
        ({"title": "T", "rows": ["1 + 1"]}, ("reads no fact",)),
        ({"title": "T", "rows": ["waves"] * 51}, ("more than 50 rows",)),
        ({"title": "T" * 121, "rows": ["waves"]}, ("121 characters",)),
        ({"title": "T", "arch": "hopper", "rows": ["waves"]}, ("not an architecture",)),
    ],
)
def test_a_section_that_is_wrong_is_refused(make: Make, section: object, parts: tuple[str, ...]) -> None:
    refused(make(sections=[section]), "pack.yaml:", *parts)


# --- facts in Python, of installed packages only ---


CODE = """
from diagnose.facts import Context, FactDefinition

def twice(c: Context):
    waves = c.value("waves")
    return None if waves is None else 2 * waves

def breaks(c: Context):
    raise KeyError("x")

FACTS = (
    FactDefinition("acme_x.twice_the_waves", "ratio", "Twice the waves.", twice, ("acme__own.sum",)),
    FactDefinition("acme_x.breaks", "share", "Raises.", breaks),
    FactDefinition("acme_x.odd", "share", "Gives a list.", lambda c: [1]),
)
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package with a pack and facts, as pip lays one down; its folder counts as where packages are installed."""
    home = tmp_path / "site-packages"
    folder = home / "acme_x_for_test"
    scaffold.create("acme-x/waits", folder / "rules")
    (folder / "__init__.py").write_text("")
    (folder / "code.py").write_text(CODE)
    rule = yaml.safe_load((folder / "rules" / "waits.yaml").read_text())
    changes = {
        "when": ["acme_x.twice_the_waves > 1"],
        "sentence": "{acme_x.twice_the_waves:.1} waves, twice",
        "at_stake": None,
        "at_stake_low": None,
        "at_stake_high": None,
        "examples": {"base": {"acme_x.twice_the_waves": 2}, "silent": [{"acme_x.twice_the_waves": 1}]},
    }
    (folder / "rules" / "waits.yaml").write_text(yaml.safe_dump({**rule, **changes}))
    manifest = {
        "name": "acme-x",
        "version": "1",
        "sections": [{"title": "S", "rows": ["acme_x.twice_the_waves", "acme_x.breaks", "acme_x.odd"]}],
    }
    (folder / "rules" / "pack.yaml").write_text(yaml.safe_dump(manifest))
    info = home / "acme_x_for_test-2.5.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-x-for-test\nVersion: 2.5\n")
    (info / "entry_points.txt").write_text(
        "[diagnose.rule_packs]\nacme-x = acme_x_for_test.rules\n[diagnose.facts]\nacme-x = acme_x_for_test.code:FACTS\n"
    )
    monkeypatch.syspath_prepend(str(home))
    monkeypatch.setattr(installed, "places", lambda: (home.resolve(),))
    yield home
    for name in [name for name in sys.modules if name.startswith("acme_x_for_test")]:
        del sys.modules[name]


def test_facts_of_an_installed_package_are_used_collected_and_listed(package: Path) -> None:
    packs = load(Path("installed:acme-x"))
    assert "acme__own.sum" in api.live_metrics(packs)
    assert report.packs_entry(packs)[1]["code"] == {
        "source": "acme_x_for_test.code:FACTS",
        "distribution": "acme-x-for-test 2.5",
        "facts": ["acme_x.twice_the_waves", "acme_x.breaks", "acme_x.odd"],
    }
    kernel = recorded.profile("faults/iterate-items")
    waves = recorded.context_of(kernel).value("waves")
    assert waves is not None and waves > 0.5
    entry = document(kernel, packs)["kernels"][0]
    assert "acme-x/waits" in [one["rule"] for one in entry["findings"]]
    good, broken, odd = entry["sections"][0]["rows"]
    assert good["value"] == pytest.approx(2 * waves, rel=1e-5)
    assert broken["value"] is None and broken["missing"] == ["acme_x.breaks (its code raised KeyError)"]
    assert odd["value"] is None and odd["missing"] == ["acme_x.odd (its code gave a list)"]
    assert "acme_x.twice_the_waves" not in api.catalogue_of(load())


def test_code_runs_for_a_named_pack_that_is_installed_and_for_nothing_else(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load()
    assert "acme_x_for_test.code" not in sys.modules
    with pytest.raises(DiagnoseError, match="unknown fact"):
        load(package / "acme_x_for_test" / "rules")  # the same files by --rules DIR: their facts are not known
    assert "acme_x_for_test.code" not in sys.modules
    monkeypatch.setattr(installed, "places", lambda: (package.parent.resolve(),))
    with pytest.raises(DiagnoseError, match="where no package is installed"):
        load(Path("installed:acme-x"))
    assert "acme_x_for_test.code" not in sys.modules


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("raise SystemError('no GPU')", "cannot be imported: SystemError: no GPU"),
        ("FACTS = 5", "not FactDefinitions"),
        (
            "from diagnose.facts import FactDefinition as F\nFACTS = [F('waves', 'x', '', None)]",
            "'waves' is not a name",
        ),
        ("from diagnose.facts import FactDefinition as F\nFACTS = [F('acme_x.a', 'x', '', None)] * 2", "stands twice"),
    ],
)
def test_code_that_gives_no_facts_is_named(package: Path, code: str, said: str) -> None:
    (package / "acme_x_for_test" / "code.py").write_text(code)
    with pytest.raises(DiagnoseError, match=said):
        load(Path("installed:acme-x"))


def test_packages_are_installed_where_python_says() -> None:
    assert Path(yaml.__file__).parents[1].resolve() in installed.places()
    assert Path.cwd().resolve() not in installed.places()


# --- what is published for editors ---


def schema(name: str) -> dict[str, object]:
    found: dict[str, object] = json.loads((Path(rules.__file__).parent / f"{name}.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(found)
    return found


def plain(path: Path) -> object:
    def data(node: YNode) -> object:
        if isinstance(node.value, dict):
            return {key: data(value) for key, value in node.value.items()}
        return [data(value) for value in node.value] if isinstance(node.value, tuple) else node.value

    return data(parse_yaml(path.read_bytes(), path))


def test_the_schemas_accept_every_pack_and_agree_with_the_loader_on_keys(make: Make, tmp_path: Path) -> None:
    pack, facts = schema("pack"), schema("facts")
    assert tuple(pack["properties"]) == packs_module.PACK_KEYS  # type: ignore[arg-type]
    inner = pack["properties"]
    assert tuple(inner["reword"]["additionalProperties"]["properties"]) == packs_module.REWORDABLE  # type: ignore[index]
    assert tuple(inner["sections"]["items"]["properties"]) == sections.KEYS  # type: ignore[index]
    assert inner["sections"]["maxItems"] == sections.MAX_SECTIONS  # type: ignore[index]
    scaffold.create("team/waits", tmp_path / "made")
    for folder in (ROOT / "rules", ROOT / "rules" / "migration", ACME, tmp_path / "made"):
        jsonschema.validate(plain(folder / "pack.yaml"), pack)
    jsonschema.validate(plain(ACME / "facts.yaml"), facts)


@pytest.mark.parametrize(
    ("which", "data"),
    [
        ("pack", {"name": "Team", "version": "1"}),
        ("pack", {"name": "team"}),
        ("pack", {"name": "team", "version": "1", "wiegh": {}}),
        ("pack", {"name": "team", "version": "1", "requires_diagnose": "new"}),
        ("pack", {"name": "team", "version": "1", "weigh": {"tail-wave": 0}}),
        ("pack", {"name": "team", "version": "1", "reword": {"tail-wave": {"when": "waves > 1"}}}),
        ("pack", {"name": "team", "version": "1", "sections": [{"title": "T", "rows": []}]}),
        ("pack", {"name": "team", "version": "1", "thresholds": [{"rule": "tail-wave"}]}),
        ("facts", {"Mine": {"unit": "share", "expression": "waves"}}),
        ("facts", {"mine": {"unit": "text", "expression": "waves"}}),
        ("facts", {"mine": {"unit": "share"}}),
        ("facts", ["mine"]),
    ],
)
def test_the_schemas_refuse_what_the_loader_refuses(make: Make, which: str, data: object) -> None:
    assert list(jsonschema.Draft202012Validator(schema(which)).iter_errors(data))
    folder = make()
    (folder / ("pack.yaml" if which == "pack" else "facts.yaml")).write_text(yaml.safe_dump(data))
    refused(folder)


# --- fuzz: any pack loads, or fails with the one error ---

_texts = st.one_of(
    st.text(max_size=12),
    st.sampled_from(
        [
            "waves",
            "waves > 1",
            "tail-wave",
            "waits",
            "ncu:a.sum",
            "sm_90",
            "*",
            "{waves}",
            "sass.count(LDL in loop)",
            "",
        ]
    ),
)
_data = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), _texts),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(
            st.one_of(
                _texts, st.sampled_from([*packs_module.REWORDABLE, *sections.KEYS, "rule", "set", "unit", "expression"])
            ),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=12,
)


class _Plain(yaml.SafeDumper):
    def ignore_aliases(self, data: object) -> bool:
        return True


def loads_or_says_why(folder: Path) -> None:
    try:
        load_packs([folder], UNITS)
    except DiagnoseError as error:
        assert "\n" not in error.message + error.hint and error.exit_code == 2


UNITS = facts.units()
_fuzz = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=150)


def frame(folder: Path, name: str, content: bytes) -> Path:
    """A sound pack of one rule with one of its files replaced. Called core, so that what it names must exist."""
    files = {
        "pack.yaml": b"name: core\nversion: 1",
        "waits.yaml": scaffold.RULE.format(pack="core", rule="waits").encode(),
    }
    for old in folder.glob("*.yaml"):
        old.unlink()
    for file, data in {**files, name: content}.items():
        (folder / file).write_bytes(data)
    return folder


def dumped(data: object) -> bytes:
    return yaml.dump(data, Dumper=_Plain, sort_keys=False).encode("utf-8", "surrogatepass")


@_fuzz
@given(key=st.sampled_from(packs_module.PACK_KEYS), value=_data)
def test_any_value_in_pack_yaml_loads_or_is_explained(tmp_path: Path, key: str, value: object) -> None:
    loads_or_says_why(frame(tmp_path, "pack.yaml", dumped({"name": "core", "version": "1", key: value})))


@_fuzz
@given(value=st.one_of(_data, st.dictionaries(st.sampled_from(["mine", "ours"]), _data, max_size=2)))
def test_any_facts_yaml_loads_or_is_explained(tmp_path: Path, value: object) -> None:
    loads_or_says_why(frame(tmp_path, "facts.yaml", dumped(value)))


@_fuzz
@given(data=st.binary(max_size=300), name=st.sampled_from(["pack.yaml", "facts.yaml", "waits.yaml"]))
def test_any_bytes_as_a_packs_file_load_or_are_explained(tmp_path: Path, data: bytes, name: str) -> None:
    loads_or_says_why(frame(tmp_path, name, data))


def test_the_frame_of_the_fuzzed_pack_loads(tmp_path: Path) -> None:
    (pack,) = load_packs(
        [frame(tmp_path, "facts.yaml", dumped({"mine": {"unit": "share", "expression": "waves"}}))], UNITS
    )
    assert [rule.id for rule in pack.rules] == ["waits"] and [fact.name for fact in pack.facts] == ["mine"]


# --- trust: every output lists what decided ---


@pytest.mark.parametrize("form", ["text", "json", "jsonl", "md", "sarif", "junit", "html"])
def test_every_output_lists_the_packs_and_what_they_change(make: Make, form: str) -> None:
    folder = make(
        disable=["tail-wave"],
        weigh={"barrier": 0.5},
        reword={"fence": {"title": "Ours"}},
        thresholds=[{"rule": "divergence", "kernel": "gemm_*", "set": {"lanes_on": 0.4}}],
        sections=[{"title": "Handover", "rows": ["waves"]}],
    )
    packs = load(folder)
    found = document(recorded.profile("gemm/mma"), packs)
    if form == "text":
        file = io.StringIO()
        terminal.render(found, Console(file=file, width=400))
        text = file.getvalue()
    else:
        text = html.render(found) if form == "html" else output.render(found, form)
    text = text.replace("\\", "")  # Markdown's escapes
    for pack in packs:
        assert pack.sha256[:12] in text
    for word in ("team", "tail-wave", "barrier", "0.5", "fence", "divergence", "gemm_*", "0.4", "Handover"):
        assert word in text, word


# --- the corpus ---


def test_how_often_rules_fired_is_up_to_date() -> None:
    held = json.loads((ROOT / "rules" / fired.FILE).read_text())
    assert held == gen_fired.counted(), "python tests/gen_fired.py"
    assert set(held["rules"]) == {rule.id for rule in load()[0].rules} | set(program.RULE_ROWS)
    assert held["rules"]["hbm-bandwidth"]["fired"] > 0
    assert fired.told(held, "acme/own", "kernel") == "not counted"
