"""Reads one rule's YAML into a `Rule`, checks it, and has its examples proven. Says what to correct, with file:line."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from diagnose.errors import DiagnoseError
from diagnose.expr import (
    DIMENSIONLESS,
    MIRRORED,
    MIXED,
    NEGATED,
    Bool,
    Compare,
    ExprError,
    Name,
    Node,
    Num,
    Text,
    UnitError,
    compile_node,
    expand,
    names,
    parse,
    parse_number,
    show,
    unit_of,
    walk,
)
from diagnose.model import Scalar
from diagnose.packfile import YNode, known_keys, nearest
from diagnose.rule_proof import prove
from diagnose.rules import (
    CLASSES,
    CORE,
    LOSSES,
    ROLES,
    SCOPES,
    SEVERITIES,
    STATUSES,
    DerivedFact,
    Example,
    Examples,
    Expression,
    Group,
    Leaf,
    Rule,
    Select,
)
from diagnose.scope import read_bounds
from diagnose.sentence import Sentence, parse_sentence

# Limits that keep a hostile pack from taking long or much memory; rules written by people are far below.
MAX_LEAVES = 100
MAX_EXAMPLES = 200
MAX_VALUES = 300
MAX_SENTENCE = 2000
MAX_NODES = 500  # of an expression with its derived facts put in
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

LIST_FACTS = "`diagnose facts` lists the facts a rule may use"
HELP_RULE = "`diagnose rules new NAME` writes a rule with every key; `diagnose rules list` lists the rules"

RULE_ID = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*", re.ASCII)
_STALL = re.compile(r"[a-z][a-z0-9_]*", re.ASCII)
_OPCODE = re.compile(r"[A-Z][A-Za-z0-9_.]*\*?", re.ASCII)
_METRIC = re.compile(r"ncu:[A-Za-z0-9_.]+", re.ASCII)


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
        if not RULE_ID.fullmatch(self.path.stem):
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
        prove(rule, keys["examples"], self.catalogue)
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
                placed(error, text),
                "the language: fact names, ncu:METRIC, numbers, + - * /, min, max, sass.has(OPCODE), "
                "sass.count(OPCODE in loop), and one of > >= < <= == !=; " + LIST_FACTS,
            ) from None
        self.use(node, tree)
        try:
            return tree, unit_of(tree, self.catalogue)
        except UnitError as error:
            raise node.fail(placed(error, text), "`diagnose facts` lists each fact with its unit") from None

    def use(self, node: YNode, tree: Node) -> None:
        for name in sorted(names(tree)[0]):
            self.known(node, name)
        if self.derived:
            check_size(node, tree, self.derived)
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
                placed(error, text), "a template takes {fact}, {fact:%}, {fact:us}, {fact:TB/s}; " + LIST_FACTS
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


def check_size(node: YNode, tree: Node, derived: Mapping[str, Node]) -> None:
    """Refuses an expression that is too large once its derived facts are put in (each of them is within the limit)."""
    size = 0
    for part in walk(tree):
        inner = derived.get(part.name) if isinstance(part, Name) else None
        size += 1 if inner is None else sum(1 for _ in walk(inner))
        if size > MAX_NODES:
            raise node.fail(f"with its derived facts the expression has more than {MAX_NODES} parts", "simplify it")


def placed(error: ExprError, text: str) -> str:
    shown = text if len(text) <= 80 else text[:77] + "..."
    return f"{error.message} (column {error.column} of {shown!r})"


def _group(kind: str, children: list[int | Group], negated: bool) -> int | Group:
    if negated:
        kind = "any" if kind == "all" else "all"
    return children[0] if len(children) == 1 else Group(kind, tuple(children))
