"""What a rule is, and what it says of one kernel. Pure data; no pack can run code.

A rule's `when` is turned into all/any groups over leaves when it is loaded (`not` inverts the comparisons below it),
so that evidence always reads as what must hold. Outcomes are three-valued: None is unknown, and says what is missing.
Loading is `packs.py` (folders) and `rule_file.py` (one rule).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from diagnose.expr import (
    COMPARISONS,
    Compare,
    Compiled,
    Env,
    Metric,
    Node,
    Num,
    Reading,
    compare,
    compile_node,
    missing,
    show,
)
from diagnose.model import Evidence, Scalar
from diagnose.scope import Scope, arch_fits
from diagnose.sections import Section
from diagnose.sentence import Sentence

if TYPE_CHECKING:
    from diagnose.facts.context import FactDefinition

CLASSES = ("hardware", "fit", "implementation", "unknown")
SEVERITIES = ("critical", "warning", "note")
STATUSES = ("preview", "stable", "deprecated")
SCOPES = ("kernel", "program")
LOSSES = ("counted", "estimated")  # how `at_stake` is known; engine.py has the interval of each
ROLES = ("waiting", "cause")
CORE = "core"

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
