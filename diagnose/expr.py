"""The condition language of rules: parsed by hand, checked for units, compiled to closures; never Python's eval.

    condition := sum [ ("<" | "<=" | ">" | ">=" | "==" | "!=") sum ]
    sum       := product { ("+" | "-") product }
    product   := factor { ("*" | "/") factor }
    factor    := "-" factor | "(" sum ")" | number ["%"] | 'text' | true | false | fact | ncu:METRIC
               | min(sum, …) | max(sum, …) | sass.has(CODE) | sass.count(CODE) | sass.share(CODE)
    code      := OPCODE [ in loop ]

Every value is a number, a text, a boolean or unknown; an unknown operand makes the result unknown, and `missing` then
names what was not measured. OPCODE is a dotted prefix: HMMA means HMMA and HMMA.16816.F32 but not HMMAX; HMMA* means
all three. `in loop` counts what executed in the kernel's main loop only (`diagnose.sass.executed`); a kernel without a
loop executed nothing there.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NoReturn, Protocol

from diagnose.model import Scalar

MAX_LENGTH = 500
MAX_DEPTH = 32
OPCODES_METRIC = "sass__inst_executed_per_opcode_with_modifier_all"
ADDRESS_METRIC = "inst_executed"  # warp instructions by address: where loops are seen
COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
}
NEGATED = {">": "<=", ">=": "<", "<": ">=", "<=": ">", "==": "!=", "!=": "=="}
MIRRORED = {">": "<", ">=": "<=", "<": ">", "<=": ">=", "==": "==", "!=": "!="}
DIMENSIONLESS = frozenset({"share", "ratio", "x", "1", ""})  # units that may be compared with each other
MIXED = "mixed"  # the unit of what we cannot derive: compares with anything

Reading = tuple[Scalar | None, str, tuple[str, ...]]  # value, unit, what was not measured
Compiled = Callable[["Env"], Scalar | None]


class Env(Protocol):
    """Where an expression reads its values: one kernel. `opcodes` must not change while it is used."""

    @property
    def opcodes(self) -> Mapping[str, float]:
        """Executed warp instructions by full opcode; empty when they were not measured."""

    @property
    def loop_opcodes(self) -> Mapping[str, float] | None:
        """The same in the main loop, empty without a loop; None when executions by address were not measured."""

    def lookup(self, name: str) -> Reading:
        """A fact of the catalogue."""

    def metric(self, name: str) -> Reading:
        """A raw ncu metric, without the `ncu:`."""


class ExprError(Exception):
    """An expression that cannot be used; `column` counts from 1."""

    def __init__(self, message: str, column: int) -> None:
        super().__init__(f"{message} (column {column})")
        self.message = message
        self.column = column


class UnitError(ExprError):
    """An expression that mixes units, or kinds of value, that do not go together."""


@dataclass(frozen=True)
class Num:
    """A number; `80%` is 0.8 with `percent` set."""

    value: float
    percent: bool = False
    column: int = field(default=1, compare=False)


@dataclass(frozen=True)
class Text:
    """A text in single quotes."""

    value: str
    column: int = field(default=1, compare=False)


@dataclass(frozen=True)
class Bool:
    """true or false."""

    value: bool
    column: int = field(default=1, compare=False)


@dataclass(frozen=True)
class Name:
    """A fact of the catalogue."""

    name: str
    column: int = field(default=1, compare=False)


@dataclass(frozen=True)
class Metric:
    """A raw metric, `ncu:NAME`."""

    name: str
    column: int = field(default=1, compare=False)


@dataclass(frozen=True)
class Sass:
    """`sass.has`, `sass.count` or `sass.share` of the executed opcodes that match, or of those `in loop`."""

    function: str
    opcode: str
    star: bool = False
    loop: bool = False
    column: int = field(default=1, compare=False)


@dataclass(frozen=True)
class Neg:
    """Unary minus."""

    operand: Node
    column: int = field(default=1, compare=False)


@dataclass(frozen=True)
class Arith:
    """+ - * / of two numbers."""

    op: str
    left: Node
    right: Node
    column: int = field(default=1, compare=False)


@dataclass(frozen=True)
class Call:
    """min or max."""

    function: str
    args: tuple[Node, ...]
    column: int = field(default=1, compare=False)


@dataclass(frozen=True)
class Compare:
    """The comparison at the top of a condition."""

    op: str
    left: Node
    right: Node
    column: int = field(default=1, compare=False)


Node = Num | Text | Bool | Name | Metric | Sass | Neg | Arith | Call | Compare

_TOKEN = re.compile(
    r"\s*(?:(?P<num>[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![A-Za-z0-9_.]))"
    r"|(?P<metric>ncu:[A-Za-z0-9_.]+)"
    r"|(?P<word>[A-Za-z_][A-Za-z0-9_.]*)"
    r"|(?P<text>'[^']*')"
    r"|(?P<op>>=|<=|==|!=|[-+*/()<>,%])"
    r"|(?P<end>$))",
    re.ASCII,
)
_FACT = re.compile(r"[a-z_][a-z0-9_]*(\.[a-z0-9_]+)*", re.ASCII)
_OPCODE = re.compile(r"[A-Z][A-Za-z0-9_]*(\.[A-Za-z0-9_]+)*", re.ASCII)


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    column: int


def _tokens(text: str) -> Iterator[_Token]:
    at = 0
    while True:
        match = _TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            rest = text[at:].lstrip()
            column = len(text) - len(rest) + 1
            if rest[:1] == "'":
                raise ExprError("this text has no closing quote", column)
            if rest[:1].isdigit():
                raise ExprError(f"{rest.split()[0]!r} is not a number", column)
            if rest.startswith("="):
                raise ExprError("'=' is not a comparison; write '=='", column)
            raise ExprError(f"unexpected character {rest[:1]!r}", column)
        yield _Token(match.lastgroup, match.group(match.lastgroup), match.start(match.lastgroup) + 1)
        if match.lastgroup == "end":
            return
        at = match.end()


class _Parser:
    """Recursive descent over the tokens of one expression."""

    def __init__(self, text: str) -> None:
        if len(text) > MAX_LENGTH:
            raise ExprError(f"{len(text)} characters are too many; at most {MAX_LENGTH} are allowed", MAX_LENGTH + 1)
        self.tokens = list(_tokens(text))
        self.at = 0
        self.depth = 0

    @property
    def token(self) -> _Token:
        return self.tokens[self.at]

    def take(self, *texts: str) -> _Token | None:
        token = self.token
        if token.kind == "op" and token.text in texts:
            self.at += 1
            return token
        return None

    def fail(self, wanted: str) -> NoReturn:
        token = self.token
        seen = "the end" if token.kind == "end" else repr(token.text)
        raise ExprError(f"expected {wanted}, got {seen}", token.column)

    def condition(self) -> Node:
        node = self.sum()
        if op := self.take(*COMPARISONS):
            right = self.sum()
            if op.text not in ("==", "!=") and (isinstance(node, Text | Bool) or isinstance(right, Text | Bool)):
                raise ExprError(f"{op.text!r} needs numbers; texts and booleans compare with == or !=", op.column)
            node = Compare(op.text, node, right, op.column)
            if self.token.kind == "op" and self.token.text in COMPARISONS:
                raise ExprError("comparisons do not chain; write two conditions", self.token.column)
        elif isinstance(node, Text):
            raise ExprError("a text alone is no value; compare it with == or !=", node.column)
        if self.token.kind == "word" and self.token.text in ("and", "or", "not"):
            raise ExprError(f"there is no {self.token.text!r} here; use the keys all, any and not", self.token.column)
        if self.token.kind != "end":
            self.fail("an operator or the end")
        return node

    def sum(self) -> Node:
        node = self.product()
        while op := self.take("+", "-"):
            node = self.arith(op, node, self.product())
        return node

    def product(self) -> Node:
        node = self.factor()
        while op := self.take("*", "/"):
            node = self.arith(op, node, self.factor())
        return node

    def arith(self, op: _Token, left: Node, right: Node) -> Node:
        return Arith(op.text, self.number(left), self.number(right), op.column)

    @staticmethod
    def number(node: Node) -> Node:
        if isinstance(node, Text | Bool):
            raise ExprError("arithmetic needs numbers", node.column)
        return node

    def factor(self) -> Node:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise ExprError(f"the expression nests deeper than {MAX_DEPTH}", self.token.column)
        node = self.atom()
        self.depth -= 1
        return node

    def atom(self) -> Node:
        token = self.token
        if self.take("-"):
            return Neg(self.number(self.factor()), token.column)
        if self.take("("):
            node = self.sum()
            if not self.take(")"):
                self.fail("')'")
            return node
        self.at += 1
        if token.kind == "num":
            value = float(token.text)
            if not math.isfinite(value):
                raise ExprError(f"{token.text[:40]!r} is too large", token.column)
            return Num(value / 100, True, token.column) if self.take("%") else Num(value, False, token.column)
        if token.kind == "text":
            return Text(token.text[1:-1], token.column)
        if token.kind == "metric":
            return Metric(token.text[4:], token.column)
        if token.kind == "word":
            return self.word(token)
        self.at -= 1
        self.fail("a number, a fact, ncu:METRIC or '('")

    def word(self, token: _Token) -> Node:
        if token.text in ("true", "false"):
            return Bool(token.text == "true", token.column)
        if token.text in ("min", "max"):
            return self.call(token)
        if token.text in ("sass.has", "sass.count", "sass.share"):
            return self.sass(token)
        if self.take("("):
            raise ExprError(
                f"there is no function {token.text!r}; there are min, max, sass.has, sass.count and sass.share",
                token.column,
            )
        if not _FACT.fullmatch(token.text):
            raise ExprError(f"{token.text!r} is not a fact's name (lower case letters, digits, _ and .)", token.column)
        return Name(token.text, token.column)

    def call(self, token: _Token) -> Node:
        if not self.take("("):
            self.fail("'('")
        args = [self.number(self.sum())]
        while self.take(","):
            args.append(self.number(self.sum()))
        if not self.take(")"):
            self.fail("',' or ')'")
        return Call(token.text, tuple(args), token.column)

    def sass(self, token: _Token) -> Node:
        if not self.take("("):
            self.fail("'('")
        word = self.token
        text, star = word.text, False
        if word.kind == "word":
            self.at += 1
            if self.token.text == "*" and self.token.column == word.column + len(text):
                self.at += 1
                star = True
        if word.kind != "word" or not _OPCODE.fullmatch(text.removesuffix(".") if star else text):
            raise ExprError(f"{text!r} is not an opcode (HMMA, LDG.E.128, LD*)", word.column)
        loop = self.token.kind == "word" and self.token.text == "in"
        if loop:
            self.at += 1
            if self.token.text != "loop":
                self.fail("'loop', the kernel's main loop")
            self.at += 1
        if not self.take(")"):
            self.fail("')'" if loop else "')' or 'in loop'")
        return Sass(token.text.removeprefix("sass."), text, star, loop, token.column)


def parse(text: str) -> Node:
    """The syntax tree of a condition or of a plain expression. Raises ExprError."""
    return _Parser(text).condition()


def parse_number(text: str) -> float | None:
    """A number literal as the language writes it (`1e9`, `40%`, `-3`), else None."""
    try:
        node = parse(text)
    except ExprError:
        return None
    sign = 1.0
    if isinstance(node, Neg):
        node, sign = node.operand, -1.0
    return sign * node.value if isinstance(node, Num) else None


def show(node: Node) -> str:
    """The expression as text, with the fewest parentheses."""
    match node:
        case Num(value, percent):
            return f"{value * 100:.12g}%" if percent else f"{value:.12g}"
        case Text(value):
            return f"'{value}'"
        case Bool(value):
            return "true" if value else "false"
        case Name(name):
            return name
        case Metric(name):
            return f"ncu:{name}"
        case Sass(function, opcode, star, loop):
            return f"sass.{function}({opcode}{'*' if star else ''}{' in loop' if loop else ''})"
        case Neg(operand):
            return f"-({show(operand)})" if isinstance(operand, Arith) else f"-{show(operand)}"
        case Arith(op, left, right):
            low = ("+", "-")
            first, second = show(left), show(right)
            if op not in low and isinstance(left, Arith) and left.op in low:
                first = f"({first})"
            if isinstance(right, Arith) and (op in ("*", "/") or right.op in low):
                second = f"({second})"
            return f"{first} {op} {second}"
        case Call(function, args):
            return f"{function}({', '.join(map(show, args))})"
        case Compare(op, left, right):
            return f"{show(left)} {op} {show(right)}"


def children(node: Node) -> tuple[Node, ...]:
    """The operands of a node."""
    match node:
        case Neg(operand):
            return (operand,)
        case Arith(_, left, right) | Compare(_, left, right):
            return (left, right)
        case Call(_, args):
            return args
    return ()


def expand(node: Node, derived: Mapping[str, Node]) -> Node:
    """The expression with each derived fact replaced by what it stands for."""
    match node:
        case Name(name):
            return derived.get(name, node)
        case Neg(operand):
            return replace(node, operand=expand(operand, derived))
        case Arith(_, left, right) | Compare(_, left, right):
            return replace(node, left=expand(left, derived), right=expand(right, derived))
        case Call(_, args):
            return replace(node, args=tuple(expand(arg, derived) for arg in args))
    return node


def walk(node: Node) -> Iterator[Node]:
    """The node and all below it."""
    todo = [node]
    while todo:
        node = todo.pop()
        yield node
        todo.extend(reversed(children(node)))


def names(node: Node) -> tuple[frozenset[str], frozenset[str]]:
    """The facts and the ncu metrics that an expression reads (a sass predicate reads `OPCODES_METRIC`, one `in loop`
    `ADDRESS_METRIC`)."""
    facts, metrics = set(), set()
    for part in walk(node):
        if isinstance(part, Name):
            facts.add(part.name)
        elif isinstance(part, Metric):
            metrics.add(part.name)
        elif isinstance(part, Sass):
            metrics.add(ADDRESS_METRIC if part.loop else OPCODES_METRIC)
    return frozenset(facts), frozenset(metrics)


# --- units ---------------------------------------------------------------------------------------------------------


def unit_of(node: Node, units: Mapping[str, str]) -> str | None:
    """The unit of an expression's value, None for plain numbers; raises UnitError where units do not go together.

    Sums and comparisons need one unit (a plain number goes with any); a product with a plain or dimensionless number
    keeps the other's unit; a quotient of one unit is a `ratio`; all else is `mixed`, which goes with any number.
    `units` gives the facts' units (`text` for texts, `flag` or `bool` for booleans), and those of raw metrics under
    `ncu:NAME` where they are known.
    """
    match node:
        case Num(_, percent):
            return "share" if percent else None
        case Text():
            return "text"
        case Bool():
            return "bool"
        case Name(name):
            declared = units.get(name, MIXED)
            return "bool" if declared == "flag" else declared
        case Metric(name):
            known = units.get(f"ncu:{name}")
            return known if known is not None else "%" if ".pct" in name or name.endswith("_pct") else MIXED
        case Sass(function):
            return {"has": "bool", "count": "count", "share": "share"}[function]
        case Neg(operand):
            return _numeric(operand, units)
        case Call(_, args):
            unit = _numeric(args[0], units)
            for arg in args[1:]:
                unit = _same(unit, _numeric(arg, units), arg.column)
            return unit
        case Arith(op, left, right):
            first, second = _numeric(left, units), _numeric(right, units)
            if op in ("+", "-"):
                return _same(first, second, node.column)
            return _product(first, second) if op == "*" else _quotient(first, second)
        case Compare(op, left, right):
            first, second = unit_of(left, units), unit_of(right, units)
            kinds = {unit for unit in (first, second) if unit in ("text", "bool")}
            if kinds:
                if op not in ("==", "!="):
                    raise UnitError(f"{op!r} needs numbers; {kinds.pop()} compares with == or !=", node.column)
                if first != second and MIXED not in (first, second):
                    raise UnitError(_mismatch(first, second), node.column)
            else:
                _same(first, second, node.column)
            return "bool"


def _numeric(node: Node, units: Mapping[str, str]) -> str | None:
    unit = unit_of(node, units)
    if unit in ("text", "bool"):
        raise UnitError(f"arithmetic needs numbers, and {show(node)} is a {unit}", node.column)
    return unit


def _mismatch(first: str | None, second: str | None) -> str:
    return f"units differ: {first or 'a number'} against {second or 'a number'}"


def _same(first: str | None, second: str | None, column: int) -> str | None:
    if first == second or second is None:
        return first
    if first is None:
        return second
    if MIXED in (first, second):
        return MIXED
    if first in DIMENSIONLESS and second in DIMENSIONLESS:
        return "ratio"
    hint = "; ncu's percentages are 0..100: write the plain number" if {first, second} == {"%", "share"} else ""
    raise UnitError(_mismatch(first, second) + hint, column)


def _product(first: str | None, second: str | None) -> str | None:
    if first is None or second is None:
        unit = second if first is None else first
        return MIXED if unit == "%" else unit  # x / 100 of a percentage is a share, and we do not follow the numbers
    if first in DIMENSIONLESS or second in DIMENSIONLESS:
        return second if first in DIMENSIONLESS else first
    return MIXED


def _quotient(first: str | None, second: str | None) -> str | None:
    if first == second:
        return None if first is None else MIXED if first == MIXED else "ratio"
    if second is None:
        return MIXED if first == "%" else first
    if second in DIMENSIONLESS:
        return "ratio" if first is None else first
    return f"{first}/{second}" if second in ("s", "us") and first in ("byte", "op") else MIXED


# --- values --------------------------------------------------------------------------------------------------------


class _Opcodes:
    """The sums that sass predicates ask for: one pass over a kernel's opcodes, then look-ups."""

    def __init__(self, opcodes: Mapping[str, float]) -> None:
        self.opcodes = opcodes
        self.total = 0.0
        self.prefixes: dict[str, float] = {}
        prefixes = self.prefixes
        for opcode, count in opcodes.items():
            self.total += count
            prefixes[opcode] = prefixes.get(opcode, 0.0) + count
            cut = opcode.rfind(".")
            while cut > 0:
                opcode = opcode[:cut]
                prefixes[opcode] = prefixes.get(opcode, 0.0) + count
                cut = opcode.rfind(".")

    def count(self, prefix: str, star: bool) -> float:
        if star:
            return float(sum(count for opcode, count in self.opcodes.items() if opcode.startswith(prefix)))
        return self.prefixes.get(prefix, 0.0)


_last = _Opcodes({})
_last_loop = _Opcodes({})


def _opcodes(env: Env) -> _Opcodes | None:
    """The index of the env's opcodes, kept for the kernel that was asked about last; None when not measured."""
    global _last
    opcodes = env.opcodes
    index = _last
    if index.opcodes is not opcodes:
        _last = index = _Opcodes(opcodes)
    return index if opcodes else None


def _loop_opcodes(env: Env) -> _Opcodes | None:
    """The same of the main loop."""
    global _last_loop
    opcodes = env.loop_opcodes
    if opcodes is None:
        return None
    index = _last_loop
    if index.opcodes is not opcodes:
        _last_loop = index = _Opcodes(opcodes)
    return index


def _finite(value: Scalar | None) -> Scalar | None:
    """A value as the language sees it: float, str or bool; None for what is not finite."""
    if value is None or isinstance(value, str | bool):
        return value
    try:
        value = float(value)
    except OverflowError:
        return None
    return value if math.isfinite(value) else None


def compile_node(node: Node) -> Compiled:
    """A closure that gives the value in an env, None when it is unknown (`missing` then says why)."""
    isfinite = math.isfinite
    match node:
        case Num(value) | Text(value) | Bool(value):
            return lambda env: value
        case Name(name):

            def fact(env: Env) -> Scalar | None:
                value = env.lookup(name)[0]
                return value if type(value) is float and isfinite(value) else _finite(value)

            return fact
        case Metric(name):

            def metric(env: Env) -> Scalar | None:
                value = env.metric(name)[0]
                return value if type(value) is float and isfinite(value) else _finite(value)

            return metric
        case Sass(function, opcode, star, loop):
            return _compile_sass(function, opcode, star, loop)
        case Neg(operand):
            inner = compile_node(operand)

            def negate(env: Env) -> Scalar | None:
                value = inner(env)
                return -value if isinstance(value, float) else None

            return negate
        case Arith(op, left, right):
            return _compile_arith(op, compile_node(left), compile_node(right))
        case Call(function, args):
            parts = tuple(compile_node(arg) for arg in args)
            pick = min if function == "min" else max

            def call(env: Env) -> Scalar | None:
                values = []
                for part in parts:
                    value = part(env)
                    if not isinstance(value, float):
                        return None
                    values.append(value)
                return pick(values)

            return call
        case Compare(op, left, right):
            first, second = compile_node(left), compile_node(right)

            def compared(env: Env) -> Scalar | None:
                return compare(op, first(env), second(env))

            return compared


def _compile_sass(function: str, opcode: str, star: bool, loop: bool) -> Compiled:
    of = _loop_opcodes if loop else _opcodes

    def sass(env: Env) -> Scalar | None:
        index = of(env)
        if index is None:
            return None
        count = index.count(opcode, star)
        if function == "has":
            return count > 0
        if function == "count":
            return _finite(count)
        return _finite(count / index.total) if index.total > 0 else None

    return sass


_ARITHMETIC: Mapping[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}


def _compile_arith(op: str, left: Compiled, right: Compiled) -> Compiled:
    function, divides, isfinite = _ARITHMETIC[op], op == "/", math.isfinite

    def arith(env: Env) -> Scalar | None:
        first, second = left(env), right(env)
        if not isinstance(first, float) or not isinstance(second, float) or (divides and second == 0.0):
            return None
        value = function(first, second)
        return value if isfinite(value) else None

    return arith


def compare(op: str, first: Scalar | None, second: Scalar | None) -> bool | None:
    """The outcome of a comparison: None when a side is unknown or the two cannot be compared."""
    if isinstance(first, float) and isinstance(second, float):
        return COMPARISONS[op](first, second)
    if first is None or second is None or first.__class__ is not second.__class__ or op not in ("==", "!="):
        return None
    return (first == second) is (op == "==")


def missing(node: Node, env: Env) -> tuple[str, ...]:
    """Why the expression is unknown in `env`: what was not measured, divisions by zero; empty when it is known."""
    found: dict[str, None] = {}
    _missing(node, env, found)
    return tuple(found)


def _missing(node: Node, env: Env, found: dict[str, None]) -> Scalar | None:
    """Evaluates once more and notes the reason for each unknown."""
    values = [_missing(child, env, found) for child in children(node)]
    if any(value is None for value in values):
        return None
    value = compile_node(node)(env)
    if value is not None:
        return value
    match node:
        case Name(name):
            reading = env.lookup(name)
            found.update(dict.fromkeys(reading[2] or ((name,) if reading[0] is None else (f"{name} is not finite",))))
        case Metric(name):
            reading = env.metric(name)
            known = reading[0] is not None
            found.update(dict.fromkeys(reading[2] or ((f"ncu:{name} is not finite",) if known else (name,))))
        case Sass(loop=True):
            found[ADDRESS_METRIC if env.loop_opcodes is None else "instructions executed in the main loop"] = None
        case Sass():
            found["executed instructions" if env.opcodes else OPCODES_METRIC] = None
        case Compare():
            found[f"{show(node)} compares a number with a text or boolean"] = None
        case _:
            wrong = [child for child, value in zip(children(node), values, strict=True) if not isinstance(value, float)]
            if wrong:
                found.update(dict.fromkeys(f"{show(child)} is not a number" for child in wrong))
            elif isinstance(node, Arith) and node.op == "/" and values[1] == 0:
                found[f"division by zero in {show(node)}"] = None
            else:
                found[f"{show(node)} is not finite"] = None
    return None


def evaluate(node: Node, env: Env) -> tuple[Scalar | None, tuple[str, ...]]:
    """The value and, when that is None, what is missing. For repeated use keep `compile_node`'s closure instead."""
    value = compile_node(node)(env)
    return value, (() if value is not None else missing(node, env))
