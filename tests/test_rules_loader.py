"""Packs: what loads, what each mistake says, and what a loaded rule answers."""

from __future__ import annotations

import copy
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import diagnose.packfile
from diagnose import packs, rule_file
from diagnose import rules as rules_module
from diagnose.bundled import bundled
from diagnose.errors import EXIT_USAGE, DiagnoseError
from diagnose.expr import OPCODES_METRIC
from diagnose.packfile import YNode, parse_yaml
from diagnose.packs import load_packs, pack_digest
from diagnose.rule_proof import example_env
from diagnose.rules import ValuesEnv, active_rules, evaluate, expectation, metrics_needed, stakes, weights

CATALOGUE = {
    "hbm.use": "share",
    "l2.use": "share",
    "useful": "share",
    "moved": "byte",
    "duration": "us",
    "random": "flag",
    "path": "text",
    "waves": "ratio",
}
SCHEMA = json.loads((Path(rules_module.__file__).parent / "rule.schema.json").read_text())

Data = dict[str, Any]


def a_rule(**changes: Any) -> Data:
    """A sound rule with some keys changed; None removes a key."""
    rule: Data = {
        "title": "Most bytes of each sector are unused",
        "class": "implementation",
        "severity": "warning",
        "when": {"all": ["useful < 60%", {"any": ["hbm.use > 0.5", "l2.use > 0.5"]}, {"not": "random"}]},
        "at_stake": "1 - useful",
        "sentence": "{useful:%} of {moved:MB} are used in {duration:us}",
        "show": ["duration"],
        "where": [{"role": "waiting", "select": "stall:long_scoreboard", "top": 2}],
        "why": "A warp touches many sectors.",
        "next_experiment": {"change": "Let neighbours read neighbours.", "expect": "useful > 90%"},
        "examples": {
            "base": {"useful": 0.25, "hbm.use": 0.8, "l2.use": 0.3, "random": False},
            "fires": [{"hbm.use": 0.2, "l2.use": 0.9}],
            "silent": [{"useful": 0.9}, {"hbm.use": 0.1}, {"random": True}],
        },
    }
    for key, value in changes.items():
        if value is None:
            rule.pop(key)
        else:
            rule[key] = value
    return rule


def condition(when: Any, base: Data, silent: list[Data], fires: list[Data] | None = None, **changes: Any) -> Data:
    """A rule about its `when` only."""
    examples = {"base": base, "silent": silent, **({"fires": fires} if fires else {})}
    return a_rule(when=when, examples=examples, **changes)


Make = Callable[..., Path]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Writes a pack folder: rules by stem as data or as YAML text."""

    def write(rules: dict[str, Data | str] | None = None, name: str = "core", **manifest: Any) -> Path:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        (folder / "pack.yaml").write_text(yaml.safe_dump({"name": name, "version": "1.0", **manifest}))
        for stem, rule in (rules or {}).items():
            path = folder / f"{stem}.yaml"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(rule if isinstance(rule, str) else yaml.safe_dump(rule, sort_keys=False))
        return folder

    return write


def load_one(make: Make, rule: Data | str) -> rules_module.Rule:
    return load_packs([make({"uncoalesced": rule})], CATALOGUE)[0].rules[0]


def failure(*dirs: Path) -> DiagnoseError:
    with pytest.raises(DiagnoseError) as caught:
        load_packs(dirs, CATALOGUE)
    assert caught.value.exit_code == EXIT_USAGE
    assert caught.value.hint
    assert "\n" not in caught.value.message + caught.value.hint
    return caught.value


# --- what a rule answers ---


def test_a_sound_rule(make: Make) -> None:
    rule = load_one(make, a_rule())
    assert (rule.id, rule.pack, rule.klass, rule.status, rule.scope) == (
        "uncoalesced", "core", "implementation", "preview", "kernel",
    )  # fmt: skip
    assert rule.facts == ("duration", "hbm.use", "l2.use", "moved", "random", "useful")
    assert [(leaf.left.text, leaf.op, leaf.right.text) for leaf in rule.leaves] == [
        ("useful", "<", "60%"),
        ("hbm.use", ">", "0.5"),
        ("l2.use", ">", "0.5"),
        ("random", "==", "false"),
    ]
    assert rule.where[0] == rules_module.Select("waiting", "stall", "long_scoreboard", 2)


def test_evidence_of_a_firing_rule_keeps_the_alternative_that_holds(make: Make) -> None:
    rule = load_one(make, a_rule())
    outcome = evaluate(rule, example_env(rule.examples.base, CATALOGUE))
    assert outcome.state is True
    assert [(e.fact, e.value, e.unit, e.op, e.threshold, e.holds) for e in outcome.evidence] == [
        ("useful", 0.25, "share", "<", 0.6, True),
        ("hbm.use", 0.8, "share", ">", 0.5, True),
        ("random", False, "bool", "==", False, True),
    ]
    assert [(e.fact, e.op, e.holds) for e in outcome.context] == [("duration", "", None)]


def test_a_rejected_rule_says_which_conditions_failed(make: Make) -> None:
    rule = load_one(make, a_rule())
    outcome = evaluate(rule, example_env(rule.examples.silent[1], CATALOGUE))
    assert outcome.state is False
    assert [(e.fact, e.holds) for e in outcome.because] == [("hbm.use", False), ("l2.use", False)]
    assert len(outcome.evidence) == 4


def test_an_unknown_outcome_names_what_is_missing(make: Make) -> None:
    rule = load_one(make, a_rule())
    values = {"useful": 0.2, "hbm.use": None, "l2.use": 0.1, "random": False}
    outcome = evaluate(rule, ValuesEnv(values, CATALOGUE))
    assert (outcome.state, outcome.missing) == (None, ("hbm.use",))
    known = evaluate(rule, ValuesEnv({**values, "useful": 0.9}, CATALOGUE))
    assert (known.state, known.missing) == (False, ())  # it cannot fire, whatever hbm.use is
    other = evaluate(rule, ValuesEnv({**values, "l2.use": 0.9}, CATALOGUE))
    assert other.state is True


def test_sentence_stakes_and_expectation(make: Make) -> None:
    rule = load_one(make, a_rule(at_stake_high="1.5", at_stake_low="0.9 - useful"))
    env = ValuesEnv({"useful": 0.25, "moved": 3.2e6}, CATALOGUE)
    assert rule.sentence.fill(env) == "25 % of 3.20 MB are used in not measured"
    assert stakes(rule, env) == rules_module.Stakes(0.65, 0.75, 1.0)
    assert expectation(rule, env) == {"fact": "useful", "op": ">", "value": 0.9}
    assert stakes(rule, ValuesEnv({}, CATALOGUE)).expected is None


def test_not_is_pushed_into_groups_by_de_morgan(make: Make) -> None:
    when = {"not": {"any": ["useful >= 0.5", {"all": ["hbm.use < 0.5", "path == 'x'"]}]}}
    base: Data = {"useful": 0.2, "hbm.use": 0.8, "path": "x"}
    silent: list[Data] = [{"useful": 0.7}, {"hbm.use": 0.2}]
    rule = load_one(make, condition(when, base, silent, [{"hbm.use": 0.2, "path": "y"}]))
    assert [(leaf.left.text, leaf.op) for leaf in rule.leaves] == [("useful", "<"), ("hbm.use", ">="), ("path", "!=")]
    assert rule.when == rules_module.Group("all", (0, rules_module.Group("any", (1, 2))))


def test_a_threshold_on_the_left_is_turned_round(make: Make) -> None:
    rule = load_one(make, condition("0.5 > useful", {"useful": 0.1}, [{"useful": 0.6}]))
    assert [(leaf.left.text, leaf.op, leaf.right.text) for leaf in rule.leaves] == [("useful", "<", "0.5")]


def test_opcodes_and_raw_metrics(make: Make) -> None:
    when = ["sass.has(FFMA)", "ncu:a.sum / ncu:b.sum > 2"]
    base: Data = {"sass": {"FFMA.FTZ": 10, "LDG.E": 5}, "ncu:a.sum": 9, "ncu:b.sum": 3}
    rule = load_one(make, condition(when, base, [{"sass": {"FFMA.FTZ": 0}}, {"ncu:b.sum": 9}]))
    pack = load_packs([rule.file.parent], CATALOGUE)
    needs = {"useful": ["m.useful"], "moved": ["m.moved", "a.sum"], "waves": ["never"]}
    assert metrics_needed(pack, needs) == ("a.sum", "b.sum", "m.moved", "m.useful", OPCODES_METRIC)
    outcome = evaluate(rule, ValuesEnv({"ncu:a.sum": 9.0, "ncu:b.sum": 3.0}, CATALOGUE))
    assert (outcome.state, outcome.missing) == (None, (OPCODES_METRIC,))


@pytest.mark.parametrize(
    ("spec", "arch", "expected"),
    [
        (">=sm_80", "sm_90a", True),
        (">=sm_80", "sm_75", False),
        (">=sm_90", "sm_100", True),  # numbers, not texts
        ("sm_90", "sm_90a", True),
        ("sm_90a", "sm_90", True),
        (["sm_80", "sm_90"], "sm_86", False),
        ([">=sm_80", "<sm_100"], "sm_90", True),
        ([">=sm_80", "<sm_100"], "sm_100", False),
        (["sm_75", ">=sm_90"], "sm_75", True),
        (">=sm_80", None, None),
    ],
)
def test_architectures(make: Make, spec: Any, arch: str | None, expected: object) -> None:
    assert load_one(make, a_rule(applies_to={"arch": spec})).applies(arch) is expected
    assert load_one(make, a_rule()).applies(arch) is True


def test_yaml_of_the_1_2_kind(tmp_path: Path) -> None:
    node = parse_yaml(b"a: yes\nb: 1e9\nc: 'true'\nd: true\ne: ~\nf: 0x10\ng: .inf\n", tmp_path / "x.yaml")
    values = {key: value.value for key, value in node.mapping("x").items()}
    assert values == {"a": "yes", "b": 1e9, "c": "true", "d": True, "e": None, "f": "0x10", "g": ".inf"}


# --- packs ---


def test_team_packs_prefix_their_ids_and_change_the_core(make: Make) -> None:
    core = make({"uncoalesced": a_rule(), "memory/other": a_rule()})
    team = make(
        {"tma": a_rule()},
        "acme",
        requires_diagnose=">=0.1,<9",
        disable=["other"],
        weigh={"uncoalesced": 0.5, "acme/tma": 2},
    )
    packs = load_packs([core, team], CATALOGUE)
    assert [rule.id for pack in packs for rule in pack.rules] == ["uncoalesced", "other", "acme/tma"]
    assert [rule.id for rule in active_rules(packs)] == ["uncoalesced", "acme/tma"]
    assert weights(packs) == {"uncoalesced": 0.5, "acme/tma": 2.0}
    assert (packs[1].name, packs[1].version, packs[1].disable) == ("acme", "1.0", ("other",))


def test_a_pack_version_is_kept_as_written(make: Make) -> None:
    folder = make({})
    (folder / "pack.yaml").write_text("name: core\nversion: 1.10\n")
    assert load_packs([folder], CATALOGUE)[0].version == "1.10"


def test_the_digest_covers_every_file(make: Make) -> None:
    folder = make({"uncoalesced": a_rule()})
    first = pack_digest(folder)
    assert load_packs([folder], CATALOGUE)[0].sha256 == first
    (folder / "notes.txt").write_text("not a rule")
    assert pack_digest(folder) == first
    path = folder / "uncoalesced.yaml"
    path.write_text(path.read_text() + "# changed\n")
    second = pack_digest(folder)
    path.rename(folder / "renamed.yaml")
    assert len({first, second, pack_digest(folder)}) == 3


def test_pack_mistakes(make: Make, tmp_path: Path) -> None:
    core = make({"uncoalesced": a_rule()})
    assert "is not a folder" in failure(tmp_path / "nowhere").message
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "has no pack.yaml" in failure(empty).message
    assert "taken by" in failure(core, core).message
    assert (
        "unknown key 'disabled' in a pack.yaml; did you mean 'disable'?" in failure(make({}, "a", disabled=[])).message
    )
    assert failure(core, make({}, "b", disable=["uncoalesce"])).message.endswith(
        "pack.yaml:2: there is no rule 'uncoalesce'; did you mean 'uncoalesced'?"
    )
    error = failure(core, make({}, "c", weigh={"nothing": 2}))
    assert "there is no rule 'nothing'" in error.message and "diagnose rules list" in error.hint
    assert "weights are above 0" in failure(core, make({}, "d", weigh={"uncoalesced": 0})).hint
    assert "requires diagnose >=99, this is" in failure(make({}, "e", requires_diagnose=">=99")).message
    assert "not a version range" in failure(make({}, "f", requires_diagnose="new")).message
    assert "not lower case words" in failure(make({}, "G")).message
    (tmp_path / "empty" / "pack.yaml").write_text("version: 1\n")
    assert "lacks 'name'" in failure(empty).message


def test_duplicate_ids(make: Make) -> None:
    error = failure(make({"a/same": a_rule(), "b/same": a_rule()}))
    assert "the rule id 'same' is taken by" in error.message and "diagnose rules list" in error.hint


def test_a_pack_reads_no_file_outside_it(make: Make, tmp_path: Path) -> None:
    folder = make({"uncoalesced": a_rule()})
    outside = tmp_path / "secret.yaml"
    outside.write_text("secret")
    (folder / "link.yaml").symlink_to(outside)
    assert "links out of the pack" in failure(folder).message
    (folder / "link.yaml").unlink()
    os.mkfifo(folder / "pipe.yaml")
    assert "not a regular file" in failure(folder).message
    (folder / "pipe.yaml").unlink()
    (folder / "rule.yml").write_text("title: x")
    assert "end in .yaml" in failure(folder).hint


# --- mistakes in a rule: each is named with file and line ---

MISTAKES: list[tuple[str, Data, int, str, str]] = [
    ("unknown key", {"sevrity": "note"}, 0, "unknown key 'sevrity' in a rule; did you mean 'severity'?", "severity"),
    ("missing key", {"why": None}, 1, "the rule lacks the key 'why'", "rules new"),
    ("class", {"class": "implmentation"}, 2, "class 'implmentation' is not one of hardware, fit,", "rules list"),
    ("severity", {"severity": "high"}, 3, "severity 'high' is not one of critical", "rules list"),
    ("status", {"status": "done"}, 0, "status 'done' is not one of", "rules"),
    ("scope", {"scope": "grid"}, 0, "scope 'grid' is not one of", "rules"),
    ("empty title", {"title": " "}, 1, "title must be a text", "text"),
    ("arch", {"applies_to": {"arch": "hopper"}}, 0, "arch 'hopper' is not an architecture", ">=sm_80"),
    ("unknown fact", {"when": ["usefull < 1"]}, 0, "unknown fact 'usefull'; did you mean 'useful'?", "diagnose facts"),
    ("stake fact", {"at_stake": "1 - usefull"}, 0, "did you mean 'useful'?", "diagnose facts"),
    ("shown fact", {"show": ["durations"]}, 0, "did you mean 'duration'?", "diagnose facts"),
    (
        "sentence fact",
        {"sentence": "{usefull:%}"},
        0,
        "unknown fact 'usefull'; did you mean 'useful'?",
        "diagnose facts",
    ),
    ("sentence format", {"sentence": "x {duration:uss}"}, 0, "unknown format 'uss'; did you mean 'us'?", "template"),
    ("sentence unit", {"sentence": "{useful:us}"}, 0, "unit share and cannot be shown as 'us'", "template"),
    ("sentence brace", {"sentence": "a {useful"}, 0, "column 3", "template"),
    ("syntax", {"when": ["useful >> 1"]}, 0, "column 9 of 'useful >> 1'", "language"),
    ("units", {"when": ["useful > moved"]}, 0, "units differ: share against byte (column 8", "diagnose facts"),
    ("stake unit", {"at_stake": "duration"}, 0, "at_stake must be a share, 'duration' is us", "share"),
    ("stake condition", {"at_stake": "useful > 1"}, 0, "at_stake must be a share", "share"),
    ("no condition", {"when": ["useful"]}, 0, "is a value (share), not a condition", "diagnose facts"),
    ("constant", {"when": ["1 < 2"]}, 0, "reads no fact", "diagnose facts"),
    ("empty when", {"when": {"all": []}}, 0, "all holds no condition", "diagnose facts"),
    ("group key", {"when": {"al": ["useful < 1"]}}, 0, "unknown key 'al' in when; did you mean 'all'?", "all, any"),
    ("experiment", {"next_experiment": {"change": "x"}}, 0, "next_experiment lacks 'expect'", "rules"),
    ("expect", {"next_experiment": {"change": "x", "expect": "better"}}, 0, "unknown fact 'better'", "diagnose facts"),
    ("where role", {"where": [{"role": "wait", "select": "stall:x"}]}, 0, "role 'wait' is not one of", "rules"),
    ("where select", {"where": [{"role": "cause", "select": "stal:x"}]}, 0, "neither stall:NAME nor", "opcode:"),
    ("where top", {"where": [{"role": "cause", "select": "stall:x", "top": 0}]}, 0, "top is 0", "1 to 100"),
    ("list", {"show": "duration"}, 0, "show must be a list, got 'duration'", "- item"),
]


@pytest.mark.parametrize(
    ("changes", "line", "says", "hint"), [row[1:] for row in MISTAKES], ids=[row[0] for row in MISTAKES]
)
def test_mistakes_teach(make: Make, changes: Data, line: int, says: str, hint: str) -> None:
    folder = make({"uncoalesced": a_rule(**changes)})
    error = failure(folder)
    path = folder / "uncoalesced.yaml"
    assert error.message.startswith(f"{path}:")
    assert says in error.message
    assert hint in error.hint
    seen = int(error.message[len(f"{path}:") :].split(":")[0])
    if line:
        assert seen == line
    else:
        key = next(iter(changes))
        first = next(n for n, text in enumerate(path.read_text().splitlines(), 1) if text.startswith(f"{key}:"))
        assert first <= seen <= first + 5


SOUND = a_rule()["examples"]
EXAMPLE_MISTAKES: list[tuple[str, Data, str]] = [
    ("no base", {"silent": SOUND["silent"]}, "examples lacks 'base'"),
    ("no silent", {"base": SOUND["base"]}, "has no silent example"),
    ("unknown fact", {**SOUND, "base": {"usefull": 1}}, "unknown fact 'usefull'; did you mean 'useful'?"),
    (
        "base is silent",
        {**SOUND, "base": {**SOUND["base"], "useful": 0.9}},
        "examples.base does not fire: useful is 0.9, not < 0.6",
    ),
    ("base is unknown", {**SOUND, "base": {"useful": 0.1, "hbm.use": 0.8}}, "random == … is unknown (missing: random)"),
    ("fires is silent", {**SOUND, "fires": [{"useful": 1}]}, "examples.fires, entry 1, does not fire"),
    ("silent fires", {**SOUND, "silent": [{"useful": 0.9}, {"useful": 0.3}]}, "examples.silent, entry 2, fires"),
    (
        "needless",
        {**SOUND, "silent": [{"useful": 0.9}, {"hbm.use": 0.1}]},
        "no silent example needs the condition 'random'",
    ),
    ("needless any", {**SOUND, "fires": []}, "no firing example needs the alternative"),
    ("text", {**SOUND, "base": {**SOUND["base"], "useful": "much"}}, "useful is a number in share, got 'much'"),
    ("number", {**SOUND, "base": {**SOUND["base"], "random": 1}}, "random is a bool, got 1"),
    ("list", {**SOUND, "base": {"useful": [1]}}, "useful must be one value, got a list"),
    ("opcode", {**SOUND, "base": {**SOUND["base"], "sass": {"hmma": 1}}}, "'hmma' is not an opcode"),
]


@pytest.mark.parametrize(
    ("examples", "says"), [row[1:] for row in EXAMPLE_MISTAKES], ids=[row[0] for row in EXAMPLE_MISTAKES]
)
def test_examples_must_prove_the_rule(make: Make, examples: Data, says: str) -> None:
    if says.startswith("no firing"):
        examples = {key: value for key, value in examples.items() if key != "fires"}
    folder = make({"uncoalesced": a_rule(examples=copy.deepcopy(examples))})
    error = failure(folder)
    assert says in error.message
    assert error.message.startswith(f"{folder / 'uncoalesced.yaml'}:")


def test_percentages_may_be_written_in_examples(make: Make) -> None:
    rule = load_one(make, condition("useful < 60%", {"useful": "25%"}, [{"useful": "90%"}]))
    assert rule.examples.base.values == {"useful": 0.25}


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("title: [unclosed\n", 2, "not valid YAML"),
        ("title: a\n\tb: c\n", 2, "not valid YAML"),
        ("a: &x 1\nb: *x\n", 1, "anchors and aliases are not allowed"),
        ("a: 1\nb: !!python/object/apply:os.system [ls]\n", 2, "the tag"),
        ("title: a\nclass: fit\ntitle: b\n", 3, "the key 'title' stands twice (first on line 1)"),
        ("a: 1\n---\nb: 2\n", 2, "a second document"),
        ("a:\n  ? [x]\n  : 1\n", 2, "a key must be a text"),
        ("a: " + "[" * 30 + "]" * 30, 1, "nested deeper"),
        ("", 1, "a rule must be a mapping of keys, got nothing"),
        ("- a\n", 1, "a rule must be a mapping of keys, got a list"),
        ("a: 1\nb: \x07\n", 1, "not valid YAML"),
    ],
)
def test_yaml_mistakes(make: Make, text: str, line: int, says: str) -> None:
    folder = make({"uncoalesced": text})
    error = failure(folder)
    assert error.message.startswith(f"{folder / 'uncoalesced.yaml'}:{line}: ")
    assert says in error.message


def test_file_limits(make: Make) -> None:
    folder = make({"uncoalesced": "# " + "x" * diagnose.packfile.MAX_BYTES})
    assert "more than 1,000,000" in failure(folder).message
    (folder / "uncoalesced.yaml").write_bytes(b"title: a\nwhy: \xff\n")
    assert "uncoalesced.yaml:2: the file is not UTF-8" in failure(folder).message
    (folder / "uncoalesced.yaml").write_text(yaml.safe_dump(a_rule(when=["useful < 0.5"] * 200)))
    assert "more than 100 conditions" in failure(folder).message
    for changes, says in (
        ({"sentence": "{useful}" * 1000}, "the sentence has 8,000 characters"),
        ({"examples": {**SOUND, "silent": [{"useful": 1}] * 201}}, "more than 200 entries"),
        ({"examples": {**SOUND, "base": {f"ncu:m{n}": 1 for n in range(301)}}}, "more than 300 values"),
        ({"class": "x" * 10_000}, "class 'xxx"),
    ):
        (folder / "uncoalesced.yaml").write_text(yaml.dump(a_rule(**changes), Dumper=_NoAliases))
        message = failure(folder).message
        assert says in message and len(message) < 1000
    (folder / "uncoalesced.yaml").rename(folder / "Not_An_Id.yaml")
    assert "is no rule id" in failure(folder).message


_yaml_data = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(max_size=20),
        st.sampled_from(["useful < 1", "random"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(
            st.one_of(st.text(max_size=8), st.sampled_from((*rule_file.RULE_KEYS, "all", "base"))), inner, max_size=5
        ),
    ),
    max_leaves=15,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(key=st.sampled_from(rule_file.RULE_KEYS), value=_yaml_data)
def test_any_value_of_a_key_loads_or_raises_the_one_error(make: Make, key: str, value: Any) -> None:
    text = yaml.dump(a_rule(**{key: value}) if value is not None else a_rule(), Dumper=_NoAliases, sort_keys=False)
    try:
        load_packs([make({"uncoalesced": text})], CATALOGUE)
    except DiagnoseError as error:
        assert "\n" not in error.message


class _NoAliases(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


@given(st.one_of(st.binary(max_size=200), st.text(alphabet="[]{}:-&*!|>'\"# \nab?,%@", max_size=80).map(str.encode)))
def test_any_bytes_parse_or_raise_the_one_error(data: bytes) -> None:
    try:
        node = parse_yaml(data, Path("x.yaml"))
    except DiagnoseError as error:
        assert error.message.startswith("x.yaml:")
    else:
        assert isinstance(node, YNode)


# --- the schema ---


def test_the_schema_and_the_loader_agree_on_keys_and_choices() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    properties = SCHEMA["properties"]
    assert tuple(properties) == rule_file.RULE_KEYS
    assert tuple(SCHEMA["required"]) == rule_file.REQUIRED_KEYS
    assert tuple(properties["class"]["enum"]) == rules_module.CLASSES
    assert tuple(properties["severity"]["enum"]) == rules_module.SEVERITIES
    assert tuple(properties["status"]["enum"]) == rules_module.STATUSES
    assert tuple(properties["scope"]["enum"]) == rules_module.SCOPES
    assert tuple(properties["where"]["items"]["properties"]["role"]["enum"]) == rules_module.ROLES


def plain(node: YNode) -> Any:
    """The data of a YAML file as the loader reads it."""
    if isinstance(node.value, dict):
        return {key: plain(value) for key, value in node.value.items()}
    if isinstance(node.value, tuple):
        return [plain(value) for value in node.value]
    return node.value


def test_the_schema_accepts_every_core_rule() -> None:
    validator = jsonschema.Draft202012Validator(SCHEMA)
    validator.validate(a_rule())
    folder = bundled("rules")
    for path in sorted(folder.rglob("*.yaml")):
        of_studies = path.parent == folder / packs.STUDIES_FOLDER  # ablations have a form of their own
        if path.name not in packs.NO_RULES and not of_studies:
            problems = [error.message for error in validator.iter_errors(plain(parse_yaml(path.read_bytes(), path)))]
            assert not problems, f"{path}: {problems}"


@pytest.mark.parametrize(
    "changes", [{"sevrity": "note"}, {"class": "slow"}, {"when": []}, {"where": [{"role": "cause"}]}, {"why": None}]
)
def test_the_schema_refuses_what_the_loader_refuses(changes: Data) -> None:
    assert list(jsonschema.Draft202012Validator(SCHEMA).iter_errors(a_rule(**changes)))


# --- speed ---


def test_75_rules_take_about_a_millisecond_a_kernel(make: Make) -> None:
    rule = load_one(make, a_rule())
    env = ValuesEnv(rule.examples.base.values, CATALOGUE)
    best = float("inf")
    for _ in range(20):
        begin = time.process_time()
        for _ in range(75):
            evaluate(rule, env)
        best = min(best, time.process_time() - begin)
    assert best < 0.003  # 0.3 ms on a quiet core; slack for loaded machines
