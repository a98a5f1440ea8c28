"""Rules and packs: loads and checks a pack's YAML, evaluates a rule on one kernel. Pure data; no pack can run code.

A rule's `when` is turned into all/any groups over leaves when it is loaded (`not` inverts the comparisons below it),
so that evidence always reads as what must hold. Outcomes are three-valued: None is unknown, and says what is missing.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diagnose import __version__
from diagnose.errors import DiagnoseError
from diagnose.expr import (
    COMPARISONS,
    DIMENSIONLESS,
    MIRRORED,
    MIXED,
    NEGATED,
    Bool,
    Compare,
    Compiled,
    Env,
    ExprError,
    Metric,
    Name,
    Node,
    Num,
    Reading,
    Text,
    UnitError,
    compare,
    compile_node,
    expand,
    missing,
    names,
    parse,
    parse_number,
    show,
    unit_of,
    walk,
)
from diagnose.model import Evidence, Scalar
from diagnose.packfile import YNode, known_keys, nearest, parse_yaml, read_bytes
from diagnose.scope import Scope, arch_fits, read_bounds, read_scope
from diagnose.sections import Section
from diagnose.sections import read as read_sections
from diagnose.sentence import Sentence, parse_sentence

if TYPE_CHECKING:
    from diagnose.facts.context import FactDefinition

CLASSES = ("hardware", "fit", "implementation", "unknown")
SEVERITIES = ("critical", "warning", "note")
STATUSES = ("preview", "stable", "deprecated")
SCOPES = ("kernel", "program")
LOSSES = ("counted", "estimated")  # how `at_stake` is known; engine.py has the interval of each
ROLES = ("waiting", "cause")
CORE = "core"
# Limits that keep a hostile pack from taking long or much memory; rules written by people are far below.
MAX_RULES = 2000
MAX_PACK_BYTES = 20_000_000
MAX_LEAVES = 100
MAX_EXAMPLES = 200
MAX_VALUES = 300
MAX_SENTENCE = 2000
RULE_KEYS = (
    "title",
    "class",
    "severity",
    "status",
    "scope",
    "applies_to",
    "when",
    "at_stake",
    "at_stake_high",
    "at_stake_low",
    "loss",
    "sentence",
    "show",
    "where",
    "why",
    "next_experiment",
    "limitations",
    "article",
    "references",
    "yields_to",
    "examples",
)
REQUIRED_KEYS = ("title", "class", "severity", "when", "sentence", "why", "next_experiment", "examples")
PACK_KEYS = ("name", "version", "requires_diagnose", "disable", "weigh", "reword", "thresholds", "sections")
REWORDABLE = ("title", "sentence", "why", "change", "limitations", "references")  # words, and nothing that decides
FACTS_FILE = "facts.yaml"
TABLE_FILE = "decision_table.yaml"
NO_RULES = ("pack.yaml", FACTS_FILE, TABLE_FILE)  # files at a pack's top that are not rules
STUDIES_FOLDER = "studies"  # a pack's ablations (`diagnose.ablate.study`): no rules
MAX_FACTS = 200
MAX_NODES = 500  # of an expression with its derived facts put in
MAX_THRESHOLDS = 500

LIST_FACTS = "`diagnose facts` lists the facts a rule may use"
LIST_RULES = "`diagnose rules list` lists the rules and their packs"
HELP_RULE = "`diagnose rules new NAME` writes a rule with every key; `diagnose rules list` lists the rules"

_ID = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*", re.ASCII)
_VERSION = re.compile(r"\s*(>=|<=|==|!=|>|<)\s*([0-9]{1,6}(?:\.[0-9]{1,6}){0,3})\s*", re.ASCII)
_STALL = re.compile(r"[a-z][a-z0-9_]*", re.ASCII)
_OPCODE = re.compile(r"[A-Z][A-Za-z0-9_.]*\*?", re.ASCII)
_METRIC = re.compile(r"ncu:[A-Za-z0-9_.]+", re.ASCII)
_FACT = re.compile(r"[a-z][a-z0-9_]*", re.ASCII)
_UNIT = re.compile(r"[A-Za-z%/0-9]{1,20}", re.ASCII)


Measured = tuple[Scalar | None, Scalar | None, bool | None]  # left, right, whether the condition holds


# --- what a rule is ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Expression:
    """A parsed, unit-checked expression."""

    text: str
    node: Node
    unit: str
    value: Compiled = field(compare=False, repr=False)


@dataclass(frozen=True)
class Leaf:
    """One condition, with the fact on the left: `left op right`. A bare boolean reads `fact == true`."""

    text: str
    left: Expression
    op: str
    right: Expression
    line: int

    @cached_property
    def measure(self) -> Callable[[Env], Measured]:
        """Gives left value, right value and whether the condition holds."""
        left, right, op = self.left.value, self.right.value, self.op
        if isinstance(self.right.node, Num):
            bound, test = self.right.node.value, COMPARISONS[op]

            def against_number(env: Env) -> Measured:
                value = left(env)
                return value, bound, test(value, bound) if isinstance(value, float) else None

            return against_number

        def against_value(env: Env) -> Measured:
            first, second = left(env), right(env)
            return first, second, compare(op, first, second)

        return against_value

    def evidence(self, env: Env, measured: Measured) -> Evidence:
        """What evaluating the condition produced."""
        value, threshold, holds = measured
        absent = () if holds is not None else missing(Compare(self.op, self.left.node, self.right.node), env)
        return Evidence(self.left.text, value, _live_unit(self.left, env), self.op, threshold, holds, absent)


@dataclass(frozen=True)
class Group:
    """`all` or `any` of conditions; a child is a Leaf's position in `Rule.leaves` or a Group."""

    kind: str
    children: tuple[int | Group, ...]


@dataclass(frozen=True)
class Select:
    """Which instructions a finding points at: the `top` that wait for a stall, or the `top` of an opcode prefix."""

    role: str
    kind: str
    name: str
    top: int


@dataclass(frozen=True)
class Example:
    """Values under which a rule must fire, or must not. `opcodes`, `loop` None: not counted in all, by address."""

    values: Mapping[str, Scalar | None]
    opcodes: Mapping[str, float] | None
    loop: Mapping[str, float] | None
    line: int


@dataclass(frozen=True)
class Examples:
    """A rule's own test: `base` and `fires` must fire, `silent` must not."""

    base: Example
    fires: tuple[Example, ...]
    silent: tuple[Example, ...]


@dataclass(frozen=True)
class Rule:
    """One rule of a pack. `facts` and `metrics` are what evaluating it and telling of it reads.

    `yields_to` names rules that explain the same time more deeply: when one of them fires, this one is rejected.
    """

    id: str
    pack: str
    file: Path
    title: str
    klass: str
    severity: str
    status: str
    scope: str
    arch: tuple[tuple[str, int], ...]
    when: Group
    leaves: tuple[Leaf, ...]
    at_stake: Expression | None
    at_stake_low: Expression | None
    at_stake_high: Expression | None
    loss: str | None
    sentence: Sentence
    show: tuple[str, ...]
    where: tuple[Select, ...]
    why: str
    change: str
    expect: Leaf
    limitations: str | None
    article: str | None
    references: tuple[str, ...]
    yields_to: tuple[str, ...]
    examples: Examples
    facts: tuple[str, ...]
    metrics: tuple[str, ...]

    @cached_property
    def decide(self) -> Callable[[Sequence[bool | None]], bool | None]:
        """The outcome from the leaves' outcomes."""
        return _decider(self.when)

    def applies(self, arch: str | None) -> bool | None:
        """Whether the rule is meant for `arch` (`sm_90a`); None when that is not known."""
        return arch_fits(self.arch, arch)


@dataclass(frozen=True)
class DerivedFact:
    """A fact of a pack's facts.yaml: an expression over facts and metrics. Only its own pack sees it."""

    name: str
    unit: str
    doc: str
    text: str
    node: Node  # with the derived facts that it uses put in


@dataclass(frozen=True)
class Threshold:
    """Other thresholds for a rule's conditions, on kernels whose name matches a glob or on some architectures."""

    rule: str
    scope: Scope
    values: Mapping[str, float]  # as the pack writes them: `fact` or `fact op`
    leaves: tuple[tuple[int, float], ...]  # position in Rule.leaves -> threshold


@dataclass(frozen=True)
class CodeFacts:
    """Facts that an installed package computes: the entry point's value, the distribution, the definitions."""

    source: str
    distribution: str
    definitions: tuple[FactDefinition, ...]


@dataclass(frozen=True)
class Pack:
    """A folder of rules. `disable`, `weigh` and `reworded` name rules of any pack; `sha256` covers every file read.

    `code`: the facts in Python of an installed package (`diagnose.installed`), which no folder can bring.
    """

    name: str
    version: str
    path: Path
    sha256: str
    requires_diagnose: str | None
    disable: tuple[str, ...]
    weigh: Mapping[str, float]
    rules: tuple[Rule, ...]
    facts: tuple[DerivedFact, ...] = ()
    thresholds: tuple[Threshold, ...] = ()
    sections: tuple[Section, ...] = ()
    reworded: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # rule id -> the keys with other words
    code: CodeFacts | None = None


@dataclass(frozen=True)
class RuleOutcome:
    """What a rule says of one kernel: True fires, False does not, None unknown. Evidence is made when asked for."""

    rule: Rule
    state: bool | None
    env: Env = field(repr=False, compare=False)
    measured: tuple[Measured, ...]

    @cached_property
    def leaves(self) -> tuple[Evidence, ...]:
        """Every condition of the rule, in order."""
        pairs = zip(self.rule.leaves, self.measured, strict=True)
        return tuple(leaf.evidence(self.env, measured) for leaf, measured in pairs)

    @cached_property
    def evidence(self) -> tuple[Evidence, ...]:
        """The conditions that made it fire (of an `any` those that hold); all conditions when it did not."""
        return self._decisive() if self.state is True else self.leaves

    @cached_property
    def because(self) -> tuple[Evidence, ...]:
        """The conditions that decided the outcome: those that held, failed or are unknown."""
        return self._decisive()

    @cached_property
    def missing(self) -> tuple[str, ...]:
        """What to measure for an unknown outcome to become known; empty when it is known."""
        if self.state is not None:
            return ()
        return tuple(dict.fromkeys(name for leaf in self._decisive() for name in leaf.missing))

    @cached_property
    def context(self) -> tuple[Evidence, ...]:
        """The facts that the rule's `show` adds; they decide nothing, so `op` is empty and `holds` None."""
        cited = {leaf.fact for leaf in self.evidence}
        context = []
        for name in self.rule.show:
            if name not in cited:
                metric = name.startswith("ncu:")
                value, unit, absent = self.env.metric(name[4:]) if metric else self.env.lookup(name)
                context.append(Evidence(name, value, unit, "", None, None, absent))
        return tuple(context)

    def _decisive(self) -> tuple[Evidence, ...]:
        chosen: list[int] = []
        outcomes = [holds for _, _, holds in self.measured]
        _collect(self.rule.when, self.state, outcomes, chosen)
        return tuple(self.rule.leaves[at].evidence(self.env, self.measured[at]) for at in sorted(chosen))


@dataclass(frozen=True)
class Stakes:
    """The share of the kernel's time that a fix can recover, 0..1; None where it is not known or not given."""

    low: float | None
    expected: float | None
    high: float | None


@dataclass(frozen=True)
class ValuesEnv:
    """An Env over plain values: facts by name, raw metrics as `ncu:NAME`, opcodes and those of the main loop (None: not
    measured)."""

    values: Mapping[str, Scalar | None]
    units: Mapping[str, str] = field(default_factory=dict)
    counts: Mapping[str, float] | None = None
    loop_opcodes: Mapping[str, float] | None = None

    @cached_property
    def opcodes(self) -> Mapping[str, float]:
        """Executed warp instructions by opcode."""
        return self.counts or {}

    def lookup(self, name: str) -> Reading:
        """A fact."""
        value = self.values.get(name)
        return value, self.units.get(name, ""), (() if value is not None else (name,))

    def metric(self, name: str) -> Reading:
        """A raw metric."""
        value = self.values.get(f"ncu:{name}")
        return value, self.units.get(f"ncu:{name}", ""), (() if value is not None else (name,))


# --- evaluating ----------------------------------------------------------------------------------------------------


def evaluate(rule: Rule, env: Env) -> RuleOutcome:
    """The rule's outcome on one kernel. Whether the rule is meant for the kernel's GPU is `Rule.applies`."""
    measured = tuple([leaf.measure(env) for leaf in rule.leaves])
    return RuleOutcome(rule, rule.decide([holds for _, _, holds in measured]), env, measured)


def stakes(rule: Rule, env: Env) -> Stakes:
    """What is at stake, limited to 0..1 and with low ≤ expected ≤ high."""
    low, expected, high = (_share(part, env) for part in (rule.at_stake_low, rule.at_stake, rule.at_stake_high))
    if expected is not None:
        low = None if low is None else min(low, expected)
        high = None if high is None else max(high, expected)
    return Stakes(low, expected, high)


def expectation(rule: Rule, env: Env) -> dict[str, Scalar]:
    """The outcome that `next_experiment` predicts, as the contract's {fact, op, value}."""
    value = rule.expect.right.value(env)
    return {
        "fact": rule.expect.left.text,
        "op": rule.expect.op,
        "value": value if value is not None else rule.expect.right.text,
    }


def active_rules(packs: Sequence[Pack]) -> tuple[Rule, ...]:
    """The rules of all packs without those that a pack disables."""
    disabled = {name for pack in packs for name in pack.disable}
    return tuple(rule for pack in packs for rule in pack.rules if rule.id not in disabled)


def weights(packs: Sequence[Pack]) -> dict[str, float]:
    """The factor of each re-weighed rule; packs' factors multiply."""
    result: dict[str, float] = {}
    for pack in packs:
        for name, factor in pack.weigh.items():
            result[name] = result.get(name, 1.0) * factor
    return result


def with_thresholds(rule: Rule, values: Mapping[int, float]) -> Rule:
    """The rule with other numbers on the right of some of its conditions (by position)."""
    leaves = list(rule.leaves)
    for index, value in values.items():
        leaf = leaves[index]
        node = Num(value)
        right = Expression(show(node), node, leaf.right.unit, compile_node(node))
        leaves[index] = replace(leaf, right=right, text=f"{leaf.left.text} {leaf.op} {right.text}")
    return replace(rule, leaves=tuple(leaves))


def tuner(rules: Sequence[Rule], packs: Sequence[Pack]) -> Callable[[Sequence[str], str | None], Sequence[Rule]]:
    """Gives the rules as the packs' thresholds make them for a kernel (its names, its architecture).

    Of several entries that set the same condition, the last one that fits counts: that of the last pack.
    """
    entries = [entry for pack in packs for entry in pack.thresholds]
    made: dict[tuple[int, ...], Sequence[Rule]] = {(): rules}

    def tuned(names_: Sequence[str], arch: str | None) -> Sequence[Rule]:
        chosen = tuple(index for index, entry in enumerate(entries) if entry.scope.fits(names_, arch))
        if chosen not in made:
            changes: dict[str, dict[int, float]] = {}
            for index in chosen:
                changes.setdefault(entries[index].rule, {}).update(entries[index].leaves)
            made[chosen] = [with_thresholds(r, changes[r.id]) if r.id in changes else r for r in rules]
        return made[chosen]

    return tuned


def rule_metrics(rule: Rule, fact_needs: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """The ncu metrics that a rule needs, through its facts and by name."""
    needed = set(rule.metrics)
    for fact in rule.facts:
        needed.update(fact_needs.get(fact, ()))
    return tuple(sorted(needed))


def metrics_needed(packs: Sequence[Pack], fact_needs: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """The ncu metrics that the rules in force and the packs' sections need."""
    needed = {metric for rule in active_rules(packs) for metric in rule_metrics(rule, fact_needs)}
    for section in (section for pack in packs for section in pack.sections):
        needed.update(section.metrics, *(fact_needs.get(fact, ()) for fact in section.facts))
    return tuple(sorted(needed))


def _live_unit(expression: Expression, env: Env) -> str:
    if isinstance(expression.node, Metric):
        return env.metric(expression.node.name)[1] or expression.unit
    return expression.unit


def _share(expression: Expression | None, env: Env) -> float | None:
    value = None if expression is None else expression.value(env)
    return min(1.0, max(0.0, value)) if isinstance(value, float) else None


def _decider(group: Group) -> Callable[[Sequence[bool | None]], bool | None]:
    """Kleene's all/any as a closure over the leaves' outcomes."""
    indices = tuple(child for child in group.children if isinstance(child, int))
    groups = tuple(_decider(child) for child in group.children if isinstance(child, Group))
    decisive = group.kind == "any"

    def decide(outcomes: Sequence[bool | None]) -> bool | None:
        unknown = False
        for index in indices:
            outcome = outcomes[index]
            if outcome is decisive:
                return decisive
            unknown = unknown or outcome is None
        for inner in groups:
            outcome = inner(outcomes)
            if outcome is decisive:
                return decisive
            unknown = unknown or outcome is None
        return None if unknown else not decisive

    return decide


def _collect(group: Group, state: bool | None, outcomes: Sequence[bool | None], chosen: list[int]) -> None:
    """The leaves that made `group` come out as `state`: those children that share it."""
    for child in group.children:
        if isinstance(child, int):
            if outcomes[child] is state:
                chosen.append(child)
        elif _decider(child)(outcomes) is state:
            _collect(child, state, outcomes, chosen)


# --- loading -------------------------------------------------------------------------------------------------------


def load_packs(dirs: Iterable[Path], catalogue: Mapping[str, str]) -> tuple[Pack, ...]:
    """Loads and checks pack folders, the core pack (`bundled("rules")`) first. `catalogue` gives each fact's unit.

    Raises DiagnoseError with file:line for the first thing wrong.
    """
    packs: list[Pack] = []
    owners: dict[str, Rule] = {}
    manifests: list[YNode] = []
    for folder in dirs:
        pack, manifest = _load_pack(Path(folder), catalogue)
        for other in packs:
            if other.name == pack.name:
                raise DiagnoseError(
                    f"{pack.path / 'pack.yaml'}: the pack name {pack.name!r} is taken by {other.path}",
                    "give each pack its own name; " + LIST_RULES,
                )
        for rule in pack.rules:
            if rule.id in owners:
                raise DiagnoseError(
                    f"{rule.file}:1: the rule id {rule.id!r} is taken by {owners[rule.id].file}",
                    "rename one of the files; " + LIST_RULES,
                )
            owners[rule.id] = rule
        packs.append(pack)
        manifests.append(manifest)
    whole = any(pack.name == CORE for pack in packs)
    if whole:
        for manifest in manifests:
            _check_targets(manifest, owners)
        for rule in owners.values():
            _check_yields(rule, owners)
    packs = [
        replace(pack, thresholds=_thresholds(pack.name, manifest, owners, whole))
        for pack, manifest in zip(packs, manifests, strict=True)
    ]
    return _reworded(packs, manifests, owners, catalogue, whole)


def pack_digest(folder: Path) -> str:
    """sha256 over the names and contents of a pack's files, in hex."""
    return _digest((path.relative_to(folder).as_posix(), data) for path, data in _read_pack(folder))


def _digest(files: Iterable[tuple[str, bytes]]) -> str:
    total = hashlib.sha256()
    for name, data in sorted(files):
        for part in (name.encode("utf-8", "surrogateescape"), data):
            total.update(len(part).to_bytes(8, "big"))
            total.update(part)
    return total.hexdigest()


def _pack_files(folder: Path) -> list[Path]:
    """pack.yaml and every rule file beneath; hidden folders are not looked into and links out of the pack refused."""
    if not folder.is_dir():
        raise DiagnoseError(f"{folder} is not a folder of rules", "`--rules DIR` names a folder with a pack.yaml in it")
    if not (folder / "pack.yaml").is_file():
        raise DiagnoseError(
            f"{folder} has no pack.yaml", "write one with `name:` and `version:`; `diagnose rules new NAME` does it too"
        )
    root = folder.resolve()
    found: list[Path] = []
    for where, folders, files in os.walk(folder):
        # A folder with a pack.yaml of its own is another pack (rules/migration in rules).
        folders[:] = sorted(
            name for name in folders if not name.startswith(".") and not (Path(where) / name / "pack.yaml").is_file()
        )
        if Path(where) == folder and STUDIES_FOLDER in folders:
            folders.remove(STUDIES_FOLDER)
        for name in sorted(files):
            path = Path(where) / name
            if name.endswith(".yml"):
                raise DiagnoseError(f"{path} would not be read", "a pack's files end in .yaml: rename it")
            if not name.endswith(".yaml") or name.startswith("."):
                continue
            if not path.resolve().is_relative_to(root):
                raise DiagnoseError(f"{path} links out of the pack", "a pack holds its own files: copy it in")
            found.append(path)
            if len(found) > MAX_RULES:
                raise DiagnoseError(f"{folder} holds more than {MAX_RULES} rule files", "split it into several packs")
    return found


def _read_pack(folder: Path) -> list[tuple[Path, bytes]]:
    contents, total = [], 0
    for path in _pack_files(folder):
        data = read_bytes(path)
        total += len(data)
        if total > MAX_PACK_BYTES:
            raise DiagnoseError(f"{folder} holds more than {MAX_PACK_BYTES:,} bytes of rules", "split it into packs")
        contents.append((path, data))
    return contents


def _load_pack(folder: Path, catalogue: Mapping[str, str]) -> tuple[Pack, YNode]:
    contents = _read_pack(folder)
    manifest_path = folder / "pack.yaml"
    manifest = parse_yaml(dict(contents)[manifest_path], manifest_path)
    keys = manifest.mapping("pack.yaml")
    known_keys(keys, PACK_KEYS, "a pack.yaml", "pack.yaml takes " + ", ".join(PACK_KEYS))
    for key in ("name", "version"):
        if key not in keys:
            raise manifest.fail(f"pack.yaml lacks {key!r}", f"add `{key}: …`")
    name = keys["name"].text("name")
    if not _ID.fullmatch(name):
        raise keys["name"].fail(
            f"the pack name {name!r} is not lower case words joined by '-'",
            "rules are then called NAME/RULE, as acme/tma",
        )
    requires = keys["requires_diagnose"].verbatim("requires_diagnose") if "requires_diagnose" in keys else None
    if requires is not None:
        _check_version(requires, name, keys["requires_diagnose"])
    disable = keys["disable"].items("disable") if "disable" in keys else ()
    weigh: dict[str, float] = {}
    if "weigh" in keys and keys["weigh"].value is not None:
        for rule_id, node in keys["weigh"].mapping("weigh").items():
            factor = node.number(f"the weight of {rule_id!r}")
            if factor <= 0:
                raise node.fail(
                    f"the weight of {rule_id!r} is {factor:g}", "weights are above 0; `disable` turns a rule off"
                )
            weigh[rule_id] = factor
    rules = []
    stems: dict[str, Path] = {}
    facts_path = folder / FACTS_FILE
    own = dict(contents).get(facts_path)
    derived = _derived_facts(parse_yaml(own, facts_path), catalogue) if own is not None else ()
    for path, data in contents:
        if path.parent == folder and path.name in NO_RULES:
            continue
        if path.stem in stems:
            raise DiagnoseError(
                f"{path}:1: the rule id {path.stem!r} is taken by {stems[path.stem]}",
                "rename one of the files; " + LIST_RULES,
            )
        stems[path.stem] = path
        rules.append(Reader(path, name, catalogue, derived).read(parse_yaml(data, path)))
    pack = Pack(
        name,
        keys["version"].verbatim("version"),
        folder,
        _digest([(path.relative_to(folder).as_posix(), data) for path, data in contents]),
        requires,
        tuple(node.text("a rule id in disable") for node in disable),
        weigh,
        tuple(rules),
        derived,
        sections=read_sections(keys["sections"], Reader(manifest_path, name, catalogue, derived))
        if "sections" in keys
        else (),
    )
    return pack, manifest


def _reworded(
    packs: Sequence[Pack],
    manifests: Sequence[YNode],
    owners: Mapping[str, Rule],
    catalogue: Mapping[str, str],
    whole: bool,
) -> tuple[Pack, ...]:
    """The packs with the words that their `reword` gives to rules; of several the last one counts."""
    said: dict[str, Rule] = dict(owners)
    listed: list[dict[str, tuple[str, ...]]] = []
    for pack, manifest in zip(packs, manifests, strict=True):
        listed.append({})
        keys = manifest.mapping("pack.yaml")
        if "reword" not in keys or keys["reword"].value is None:
            continue
        for name, node in keys["reword"].mapping("reword").items():
            rule = said.get(name) or said.get(f"{pack.name}/{name}")
            if rule is not None:
                said[rule.id] = _with_words(rule, node, Reader(node.file, pack.name, catalogue, pack.facts))
                listed[-1][rule.id] = tuple(node.mapping("words"))
            elif whole:
                raise DiagnoseError(
                    f"{node.file}:{node.key_line}: there is no rule {name!r} to reword{nearest(name, said)}", LIST_RULES
                )
    return tuple(
        replace(pack, rules=tuple(said[rule.id] for rule in pack.rules), reworded=words)
        for pack, words in zip(packs, listed, strict=True)
    )


def _with_words(rule: Rule, node: YNode, reader: Reader) -> Rule:
    """The rule with other words; what decides, what is at stake and what is expected stay."""
    given = node.mapping(f"the words of {rule.id}")
    hint = f"reword takes {', '.join(REWORDABLE)}; conditions take `thresholds`"
    known_keys(given, REWORDABLE, "reword", hint)
    if not given:
        raise node.fail(f"no words are given for {rule.id}", hint)
    texts = {key: part.text(key) for key, part in given.items() if key in ("title", "why", "change", "limitations")}
    words: dict[str, Any] = dict(texts)
    if "sentence" in given:
        words["sentence"] = reader.sentence(given["sentence"])
    if "references" in given:
        words["references"] = tuple(part.text("a reference") for part in given["references"].items("references"))
    facts, metrics = {*rule.facts, *reader.facts}, {*rule.metrics, *reader.metrics}
    return replace(rule, **words, facts=tuple(sorted(facts)), metrics=tuple(sorted(metrics)))


def _check_targets(manifest: YNode, owners: Mapping[str, Rule]) -> None:
    """Every rule that a pack disables or weighs must exist."""
    keys = manifest.mapping("pack.yaml")
    named: list[tuple[str, YNode]] = []
    if "disable" in keys:
        named += [(node.text("a rule id in disable"), node) for node in keys["disable"].items("disable")]
    if "weigh" in keys and keys["weigh"].value is not None:
        named += list(keys["weigh"].mapping("weigh").items())
    for rule_id, node in named:
        if rule_id not in owners:
            raise node.fail(f"there is no rule {rule_id!r}{nearest(rule_id, owners)}", LIST_RULES)


def _derived_facts(root: YNode, catalogue: Mapping[str, str]) -> tuple[DerivedFact, ...]:
    """The facts of a facts.yaml; each may use those above it."""
    if root.value is None:
        return ()
    units = dict(catalogue)
    nodes: dict[str, Node] = {}
    found: list[DerivedFact] = []
    given = root.mapping(FACTS_FILE)
    if len(given) > MAX_FACTS:
        raise root.fail(f"{FACTS_FILE} holds more than {MAX_FACTS} facts", "split the pack")
    shape = "as `my_fact: {unit: share, expression: 'load_waste * hbm_utilization', doc: …}`"
    for name, node in given.items():
        if not _FACT.fullmatch(name):
            raise node.fail(f"{name[:60]!r} is not a fact's name", "lower case letters, digits and _; " + shape)
        if name in catalogue:
            raise node.fail(f"the fact {name!r} is taken by diagnose itself", "choose another name; " + LIST_FACTS)
        keys = node.mapping(name)
        known_keys(keys, ("unit", "expression", "doc"), name, shape)
        for key in ("unit", "expression"):
            if key not in keys:
                raise node.fail(f"{name} lacks {key!r}", shape)
        unit = keys["unit"].text("unit")
        if not _UNIT.fullmatch(unit) or unit in ("text", "bool", "flag", MIXED):
            raise keys["unit"].fail(f"{unit[:40]!r} is no unit of a number", LIST_FACTS)
        text = keys["expression"].expression("expression")
        try:
            tree = parse(text)
            for used in sorted(names(tree)[0] - units.keys()):
                raise ExprError(f"unknown fact {used!r}{nearest(used, units)}", 1)
            is_ = unit_of(tree, units)
        except ExprError as error:
            raise keys["expression"].fail(_at(error, text), "a fact may use those above it; " + LIST_FACTS) from None
        if isinstance(tree, Compare) or is_ in ("text", "bool"):
            raise keys["expression"].fail(f"{text!r} is no number", "a derived fact is a number with a unit")
        if is_ not in (None, MIXED, unit) and not (is_ in DIMENSIONLESS and unit in DIMENSIONLESS):
            raise keys["expression"].fail(f"{text!r} is in {is_}, not in {unit}", f"write `unit: {is_}`")
        if not any(names(tree)):
            raise keys["expression"].fail(f"{text!r} reads no fact: it is always the same", LIST_FACTS)
        _check_size(keys["expression"], tree, nodes)
        nodes[name] = expand(tree, nodes)
        units[name] = unit
        doc = keys["doc"].text("doc") if "doc" in keys else ""
        found.append(DerivedFact(name, unit, doc, text, nodes[name]))
    return tuple(found)


def _check_size(node: YNode, tree: Node, derived: Mapping[str, Node]) -> None:
    """Refuses an expression that is too large once its derived facts are put in (each of them is within the limit)."""
    size = 0
    for part in walk(tree):
        inner = derived.get(part.name) if isinstance(part, Name) else None
        size += 1 if inner is None else sum(1 for _ in walk(inner))
        if size > MAX_NODES:
            raise node.fail(f"with its derived facts the expression has more than {MAX_NODES} parts", "simplify it")


def _thresholds(pack: str, manifest: YNode, owners: Mapping[str, Rule], whole: bool) -> tuple[Threshold, ...]:
    """The `thresholds` of a pack. `whole`: the core pack is here, so every rule named must be."""
    keys = manifest.mapping("pack.yaml")
    entries = keys["thresholds"].items("thresholds") if "thresholds" in keys else ()
    if len(entries) > MAX_THRESHOLDS:
        raise keys["thresholds"].fail(f"more than {MAX_THRESHOLDS} thresholds", "split the pack")
    shape = "as `- {rule: tail-wave, kernel: 'attention_*', arch: '>=sm_90', set: {wave_tail_idle: 0.2}}`"
    found = []
    for entry in entries:
        given = entry.mapping("an entry of thresholds")
        known_keys(given, ("rule", "kernel", "arch", "set"), "thresholds", shape)
        for key in ("rule", "set"):
            if key not in given:
                raise entry.fail(f"an entry of thresholds lacks {key!r}", shape)
        name = given["rule"].text("rule")
        rule = owners.get(name) or owners.get(f"{pack}/{name}")
        scope = read_scope(given)
        values: dict[str, float] = {}
        for what, node in given["set"].mapping("set").items():
            number = parse_number(node.value) if isinstance(node.value, str) else None
            values[what] = number if number is not None else node.number(f"the threshold of {what}")
        if rule is None:
            if whole:
                raise given["rule"].fail(f"there is no rule {name!r}{nearest(name, owners)}", LIST_RULES)
            continue
        leaves = tuple((_leaf_of(rule, what, given["set"]), value) for what, value in values.items())
        found.append(Threshold(rule.id, scope, values, leaves))
    return tuple(found)


def _leaf_of(rule: Rule, what: str, node: YNode) -> int:
    """The condition that a threshold names: by its left side, with the operator where several have it."""
    numeric = {index: leaf for index, leaf in enumerate(rule.leaves) if isinstance(leaf.right.node, Num)}
    wanted = " ".join(what.split())
    found = [i for i, leaf in numeric.items() if wanted in (leaf.left.text, f"{leaf.left.text} {leaf.op}")]
    if len(found) == 1:
        return found[0]
    choices = [f"{leaf.left.text} {leaf.op}" for leaf in numeric.values()]
    hint = f"the conditions of {rule.id} with a number: {', '.join(choices) or 'none'}"
    if found:
        raise node.fail(f"{what[:80]!r} names {len(found)} conditions of {rule.id}", hint)
    lefts = [leaf.left.text for leaf in numeric.values()]
    raise node.fail(f"{rule.id} compares no {what[:80]!r} with a number{nearest(what, lefts)}", hint)


def _check_yields(rule: Rule, owners: Mapping[str, Rule]) -> None:
    """A rule may yield to one of its own pack (by its bare name too) or of any other."""
    for name in rule.yields_to:
        if name not in owners and f"{rule.pack}/{name}" not in owners:
            raise DiagnoseError(
                f"{rule.file}:1: yields_to names {name!r}, and there is no such rule{nearest(name, owners)}", LIST_RULES
            )


def _check_version(spec: str, pack: str, node: YNode) -> None:
    have = _version(__version__)
    for part in spec.split(","):
        match = _VERSION.fullmatch(part)
        if match is None:
            raise node.fail(f"requires_diagnose {spec!r} is not a version range", "write it as '>=0.1' or '>=0.1,<2'")
        want = _version(match[2])
        order = (have > want) - (have < want)
        if not COMPARISONS[match[1]](order, 0):
            raise node.fail(
                f"the pack {pack!r} requires diagnose {spec}, this is {__version__}",
                "install a diagnose that fits (`pip install 'diagnose" + spec + "'`), or leave out the pack",
            )


def _version(text: str) -> tuple[int, ...]:
    numbers = [int(part) for part in re.findall(r"[0-9]+", text)[:4]]
    return tuple(numbers + [0] * (4 - len(numbers)))


def _choice(node: YNode, what: str, allowed: Sequence[str]) -> str:
    value = node.text(what)
    if value not in allowed:
        raise node.fail(f"{what} {value!r} is not one of {', '.join(allowed)}{nearest(value, allowed)}", HELP_RULE)
    return value


class Reader:
    """Turns one rule file into a Rule, or into the error that says what to correct. `facts` and `metrics` collect what
    its expressions read; a pack's other parts use it for their expressions."""

    def __init__(
        self, path: Path, pack: str, catalogue: Mapping[str, str], derived: Sequence[DerivedFact] = ()
    ) -> None:
        self.path = path
        self.pack = pack
        self.measured = catalogue
        self.derived = {fact.name: fact.node for fact in derived}
        self.catalogue = {**catalogue, **{fact.name: fact.unit for fact in derived}} if derived else catalogue
        self.leaves: list[Leaf] = []
        self.facts: set[str] = set()
        self.metrics: set[str] = set()

    def read(self, root: YNode) -> Rule:
        if not _ID.fullmatch(self.path.stem):
            raise root.fail(
                f"the file name {self.path.name!r} is no rule id",
                "name it in lower case words joined by '-': bank-conflict.yaml",
            )
        keys = root.mapping("a rule")
        known_keys(keys, RULE_KEYS, "a rule", "a rule takes " + ", ".join(RULE_KEYS))
        for key in REQUIRED_KEYS:
            if key not in keys:
                raise root.fail(f"the rule lacks the key {key!r}", HELP_RULE)
        when = self.when(keys["when"], False)
        experiment = keys["next_experiment"].mapping("next_experiment")
        known_keys(experiment, ("change", "expect"), "next_experiment", "next_experiment takes change and expect")
        for key in ("change", "expect"):
            if key not in experiment:
                raise keys["next_experiment"].fail(f"next_experiment lacks {key!r}", HELP_RULE)
        rule = Rule(
            id=self.path.stem if self.pack == CORE else f"{self.pack}/{self.path.stem}",
            pack=self.pack,
            file=self.path,
            title=keys["title"].text("title"),
            klass=_choice(keys["class"], "class", CLASSES),
            severity=_choice(keys["severity"], "severity", SEVERITIES),
            status=_choice(keys["status"], "status", STATUSES) if "status" in keys else "preview",
            scope=_choice(keys["scope"], "scope", SCOPES) if "scope" in keys else "kernel",
            arch=self.arch(keys.get("applies_to")),
            when=when if isinstance(when, Group) else Group("all", (when,)),
            leaves=tuple(self.leaves),
            at_stake=self.stake(keys, "at_stake"),
            at_stake_low=self.stake(keys, "at_stake_low"),
            at_stake_high=self.stake(keys, "at_stake_high"),
            loss=_choice(keys["loss"], "loss", LOSSES) if "loss" in keys else None,
            sentence=self.sentence(keys["sentence"]),
            show=self.show(keys.get("show")),
            where=self.where(keys.get("where")),
            why=keys["why"].text("why"),
            change=experiment["change"].text("next_experiment.change"),
            expect=self.leaf(experiment["expect"], "next_experiment.expect", False),
            limitations=keys["limitations"].optional_text("limitations") if "limitations" in keys else None,
            article=keys["article"].optional_text("article") if "article" in keys else None,
            references=tuple(
                node.text("a reference")
                for node in (keys["references"].items("references") if "references" in keys else ())
            ),
            yields_to=tuple(
                node.text("a rule id in yields_to")
                for node in (keys["yields_to"].items("yields_to") if "yields_to" in keys else ())
            ),
            examples=self.examples(keys["examples"]),
            facts=tuple(sorted(self.facts)),
            metrics=tuple(sorted(self.metrics)),
        )
        _prove(rule, keys["examples"], self.catalogue)
        return rule

    # conditions

    def when(self, node: YNode, negated: bool) -> int | Group:
        """A condition, a list (all of it), or a mapping of all/any/not; `not` is pushed down to the comparisons."""
        if isinstance(node.value, dict):
            known_keys(node.value, ("all", "any", "not"), "when", "when takes conditions under all, any and not")
            parts: list[int | Group] = []
            for key, value in node.value.items():
                if key == "not":
                    parts.append(self.when(value, not negated))
                else:
                    parts.append(self.group(value, key, negated))
            if not parts:
                raise node.fail("when holds no condition", "write a condition such as `fact > 0.5`; " + LIST_FACTS)
            return _group("all", parts, negated)
        if isinstance(node.value, tuple):
            return self.group(node, "all", negated)
        self.leaves.append(self.leaf(node, "when", negated))
        if len(self.leaves) > MAX_LEAVES:
            raise node.fail(f"the rule has more than {MAX_LEAVES} conditions", "split it into several rules")
        return len(self.leaves) - 1

    def group(self, node: YNode, kind: str, negated: bool) -> int | Group:
        children = node.items(f"when.{kind}")
        if not children:
            raise node.fail(f"{kind} holds no condition", "write a condition such as `fact > 0.5`; " + LIST_FACTS)
        return _group(kind, [self.when(child, negated) for child in children], negated)

    def leaf(self, node: YNode, what: str, negated: bool) -> Leaf:
        text = node.expression(what)
        tree, unit = self.parse(node, text)
        if isinstance(tree, Compare):
            left, op, right = tree.left, tree.op, tree.right
            if isinstance(left, Num | Bool | Text) and not isinstance(right, Num | Bool | Text):
                left, op, right = right, MIRRORED[op], left
        elif unit == "bool":
            left, op, right = tree, "==", Bool(True)
        else:
            raise node.fail(
                f"{what} {text!r} is a value ({unit or 'a number'}), not a condition",
                "compare it: `… > 0.5`; " + LIST_FACTS,
            )
        if negated:
            op = NEGATED[op]
        if isinstance(right, Bool) and op == "!=":
            op, right = "==", Bool(not right.value)
        if not self.reads(tree):
            raise node.fail(f"{what} {text!r} reads no fact: it is always the same", "name a fact; " + LIST_FACTS)
        return Leaf(text, self.expression(left), op, self.expression(right), node.line)

    # expressions

    def parse(self, node: YNode, text: str) -> tuple[Node, str | None]:
        """The tree and its unit; names are checked before units, so that a misspelt fact is called that."""
        try:
            tree = parse(text)
        except ExprError as error:
            raise node.fail(
                _at(error, text),
                "the language: fact names, ncu:METRIC, numbers, + - * /, min, max, sass.has(OPCODE), "
                "sass.count(OPCODE in loop), and one of > >= < <= == !=; " + LIST_FACTS,
            ) from None
        self.use(node, tree)
        try:
            return tree, unit_of(tree, self.catalogue)
        except UnitError as error:
            raise node.fail(_at(error, text), "`diagnose facts` lists each fact with its unit") from None

    def use(self, node: YNode, tree: Node) -> None:
        for name in sorted(names(tree)[0]):
            self.known(node, name)
        if self.derived:
            _check_size(node, tree, self.derived)
        facts, metrics = names(expand(tree, self.derived))
        self.facts |= facts
        self.metrics |= metrics

    @staticmethod
    def reads(tree: Node) -> bool:
        """Whether an expression reads a fact, a metric or opcodes."""
        return any(names(tree))

    def known(self, node: YNode, name: str) -> None:
        if name not in self.catalogue:
            raise node.fail(f"unknown fact {name!r}{nearest(name, self.catalogue)}", LIST_FACTS)

    def expression(self, tree: Node) -> Expression:
        unit = unit_of(tree, self.catalogue)
        text, whole = show(tree), expand(tree, self.derived)
        return Expression(text, whole, unit if unit not in (None, MIXED) else "", compile_node(whole))

    def stake(self, keys: Mapping[str, YNode], key: str) -> Expression | None:
        node = keys.get(key)
        if node is None or node.value is None:
            return None
        text = node.expression(key)
        tree, unit = self.parse(node, text)
        if isinstance(tree, Compare) or (unit is not None and unit not in DIMENSIONLESS and unit != MIXED):
            raise node.fail(f"{key} must be a share, {text!r} is {unit}", "give the recoverable share of time, 0..1")
        return self.expression(tree)

    def sentence(self, node: YNode) -> Sentence:
        text = " ".join(node.text("sentence").split())
        if len(text) > MAX_SENTENCE:
            raise node.fail(
                f"the sentence has {len(text):,} characters, more than {MAX_SENTENCE}", "move text to `why`"
            )
        try:
            sentence = parse_sentence(text, self.catalogue, self.derived)
        except ExprError as error:
            raise node.fail(
                _at(error, text), "a template takes {fact}, {fact:%}, {fact:us}, {fact:TB/s}; " + LIST_FACTS
            ) from None
        for tree in sentence.nodes():
            self.use(node, tree)
        return sentence

    # the other keys

    def show(self, node: YNode | None) -> tuple[str, ...]:
        shown = []
        for item in node.items("show") if node is not None else ():
            name = item.text("a fact in show")
            if _METRIC.fullmatch(name):
                self.metrics.add(name[4:])
            else:
                self.known(item, name)
                if name in self.derived:
                    raise item.fail(
                        f"{name!r} is a derived fact, and show takes measured ones",
                        "put it into the sentence, or show the facts that it is made of",
                    )
                self.facts.add(name)
            shown.append(name)
        return tuple(shown)

    @staticmethod
    def where(node: YNode | None) -> tuple[Select, ...]:
        selects = []
        for item in node.items("where") if node is not None else ():
            keys = item.mapping("an entry of where")
            known_keys(keys, ("role", "select", "top"), "where", "an entry of where takes role, select and top")
            for key in ("role", "select"):
                if key not in keys:
                    raise item.fail(
                        f"an entry of where lacks {key!r}",
                        "as `{role: waiting, select: 'stall:long_scoreboard', top: 3}`",
                    )
            select = keys["select"].text("select")
            kind, _, name = select.partition(":")
            pattern = {"stall": _STALL, "opcode": _OPCODE}.get(kind)
            if pattern is None or not pattern.fullmatch(name):
                raise keys["select"].fail(
                    f"select {select!r} is neither stall:NAME nor opcode:PREFIX",
                    "as stall:long_scoreboard or opcode:LDG.E",
                )
            top = keys["top"].number("top") if "top" in keys else 3
            if not 1 <= top <= 100 or top != int(top):
                raise keys["top"].fail(f"top is {top:g}", "top is a whole number from 1 to 100")
            selects.append(Select(_choice(keys["role"], "role", ROLES), kind, name, int(top)))
        return tuple(selects)

    @staticmethod
    def arch(node: YNode | None) -> tuple[tuple[str, int], ...]:
        if node is None or node.value is None:
            return ()
        keys = node.mapping("applies_to")
        known_keys(keys, ("arch",), "applies_to", "applies_to takes arch")
        return read_bounds(keys["arch"]) if "arch" in keys else ()

    # examples

    def examples(self, node: YNode) -> Examples:
        keys = node.mapping("examples")
        known_keys(keys, ("base", "fires", "silent"), "examples", "examples takes base, fires and silent")
        for key, part in keys.items():
            if isinstance(part.value, tuple) and len(part.value) > MAX_EXAMPLES:
                raise part.fail(f"examples.{key} has more than {MAX_EXAMPLES} entries", "keep one for each condition")
        if "base" not in keys:
            raise node.fail("examples lacks 'base'", "give base: the facts' values of a kernel on which the rule fires")
        base = self.example(keys["base"], None)
        fires, silent = (
            tuple(self.example(item, base) for item in (keys[key].items(f"examples.{key}") if key in keys else ()))
            for key in ("fires", "silent")
        )
        if not silent:
            raise node.fail(
                "the rule has no silent example",
                "add to examples.silent what differs from base where the rule must be silent",
            )
        return Examples(base, fires, silent)

    def example(self, node: YNode, base: Example | None) -> Example:
        """Values by fact, raw metric and, under `sass` and `loop`, opcode; those not given are base's."""
        values: dict[str, Scalar | None] = dict(base.values) if base else {}
        counts = {
            "sass": dict(base.opcodes) if base and base.opcodes is not None else None,
            "loop": dict(base.loop) if base and base.loop is not None else None,
        }
        given = node.mapping("an example")
        if len(given) > MAX_VALUES:
            raise node.fail(f"the example has more than {MAX_VALUES} values", "give only those that the rule reads")
        for name, item in given.items():
            if name in counts:
                counts[name] = self.opcodes(name, item, counts[name])
                continue
            if not _METRIC.fullmatch(name):
                if name in self.derived:
                    raise DiagnoseError(
                        f"{item.file}:{item.key_line}: {name!r} is a derived fact: an example gives what it is made of",
                        f"{name} = {show(self.derived[name])}",
                    )
                if name not in self.catalogue:
                    raise DiagnoseError(
                        f"{item.file}:{item.key_line}: unknown fact {name!r}{nearest(name, self.catalogue)}", LIST_FACTS
                    )
            values[name] = self.example_value(name, item)
        return Example(values, counts["sass"], counts["loop"], node.line)

    @staticmethod
    def opcodes(where: str, node: YNode, base: dict[str, float] | None) -> dict[str, float] | None:
        if node.value is None:
            return None
        opcodes = dict(base or {})
        given = node.mapping(where)
        if len(given) > MAX_VALUES:
            raise node.fail(f"{where} has more than {MAX_VALUES} opcodes", "give only those that the rule asks for")
        for opcode, item in given.items():
            if not _OPCODE.fullmatch(opcode) or opcode.endswith("*"):
                raise item.fail(
                    f"{opcode!r} is not an opcode", f"under {where}, give full opcodes: {{HMMA.16816.F32: 1000}}"
                )
            opcodes[opcode] = item.number(f"{where}.{opcode}")
        return opcodes

    def example_value(self, name: str, node: YNode) -> Scalar | None:
        unit = self.catalogue.get(name, MIXED)
        unit = "bool" if unit == "flag" else unit
        value = node.value
        if value is None:
            return None
        if isinstance(value, tuple | dict):
            raise node.fail(
                f"{name} must be one value, got {node.kind()}", "give a number, a text, true, false or null"
            )
        if isinstance(value, str) and unit != "text" and (number := parse_number(value)) is not None:
            value = number
        kind = "bool" if isinstance(value, bool) else "text" if isinstance(value, str) else "number"
        if unit != MIXED and kind != (unit if unit in ("bool", "text") else "number"):
            wanted = f"a {unit}" if unit in ("bool", "text") else f"a number in {unit or 'no unit'}"
            raise node.fail(
                f"{name} is {wanted}, got {node.kind()}",
                "`diagnose facts` lists each fact with its unit",
            )
        return value if isinstance(value, bool | str) else float(value)


def _at(error: ExprError, text: str) -> str:
    shown = text if len(text) <= 80 else text[:77] + "..."
    return f"{error.message} (column {error.column} of {shown!r})"


def _group(kind: str, children: list[int | Group], negated: bool) -> int | Group:
    if negated:
        kind = "any" if kind == "all" else "all"
    return children[0] if len(children) == 1 else Group(kind, tuple(children))


# --- proving the examples ------------------------------------------------------------------------------------------


def example_env(example: Example, catalogue: Mapping[str, str]) -> ValuesEnv:
    """The env that an example describes."""
    return ValuesEnv(example.values, catalogue, example.opcodes, example.loop)


def _prove(rule: Rule, node: YNode, catalogue: Mapping[str, str]) -> None:
    """Base and `fires` fire, `silent` does not, and each condition is needed by an example."""

    def outcomes(example: Example) -> list[bool | None]:
        env = example_env(example, catalogue)
        return [leaf.measure(env)[2] for leaf in rule.leaves]

    firing = [outcomes(example) for example in (rule.examples.base, *rule.examples.fires)]
    silent = [outcomes(example) for example in rule.examples.silent]
    for index, example in enumerate((rule.examples.base, *rule.examples.fires)):
        outcome = evaluate(rule, example_env(example, catalogue))
        if outcome.state is not True:
            what = "examples.base" if index == 0 else f"examples.fires, entry {index},"
            reasons = "; ".join(_reason(evidence) for evidence in outcome.because)
            raise DiagnoseError(
                f"{node.file}:{example.line}: {what} does not fire: {reasons}", "correct the values or `when`"
            )
    for index, example in enumerate(rule.examples.silent, 1):
        if rule.decide(silent[index - 1]) is True:
            raise DiagnoseError(
                f"{node.file}:{example.line}: examples.silent, entry {index}, fires",
                "change one fact of base so that a condition of `when` no longer holds",
            )
    for index, leaf in enumerate(rule.leaves):
        place = f"{node.file}:{leaf.line}"
        if not any(rule.decide(_with(values, index, True)) is True for values in silent):
            raise DiagnoseError(
                f"{place}: no silent example needs the condition {leaf.text!r}: without it none of them would fire",
                "add to examples.silent an entry in which only this condition fails, or remove the condition",
            )
        if _in_any(rule.when, index) and all(rule.decide(_with(values, index, False)) is True for values in firing):
            raise DiagnoseError(
                f"{place}: no firing example needs the alternative {leaf.text!r}: all of them fire without it",
                "add to examples.fires an entry in which only this alternative holds, or remove the alternative",
            )


def _with(values: Sequence[bool | None], index: int, value: bool) -> list[bool | None]:
    changed = list(values)
    changed[index] = value
    return changed


def _in_any(group: Group, index: int) -> bool:
    """Whether a leaf stands somewhere below an `any`."""
    for child in group.children:
        if child == index:
            return group.kind == "any"
        if isinstance(child, Group) and _holds(child, index):
            return group.kind == "any" or _in_any(child, index)
    return False


def _holds(group: Group, index: int) -> bool:
    return any(child == index or (isinstance(child, Group) and _holds(child, index)) for child in group.children)


def _reason(evidence: Evidence) -> str:
    if evidence.holds is None:
        return f"{evidence.fact} {evidence.op} … is unknown (missing: {', '.join(evidence.missing)})"
    return f"{evidence.fact} is {_plain(evidence.value)}, not {evidence.op} {_plain(evidence.threshold)}"


def _plain(value: Scalar | None) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value).lower() if isinstance(value, bool) else repr(value)
