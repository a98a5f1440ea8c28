"""Sentences of rules: a template with `{expression}` or `{expression:FORMAT}`, checked at load, filled per kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from diagnose.expr import (
    DIMENSIONLESS,
    MIXED,
    Compiled,
    Env,
    ExprError,
    Metric,
    Name,
    Node,
    compile_node,
    expand,
    names,
    unit_of,
)
from diagnose.expr import parse as parse_expression
from diagnose.model import Scalar
from diagnose.packfile import nearest
from diagnose.render import format as text

# Families of units; within one, a value converts by the quotient of the factors.
_TIME = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
_BYTE = {"byte": 1.0, "B": 1.0, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}
_BYTE_RATE = {"byte/s": 1.0, "byte/us": 1e6, "B/s": 1.0, "KB/s": 1e3, "MB/s": 1e6, "GB/s": 1e9, "TB/s": 1e12}
_OP_RATE = {
    "op/s": 1.0,
    "op/us": 1e6,
    "flop/s": 1.0,
    "GFLOP/s": 1e9,
    "TFLOP/s": 1e12,
    "PFLOP/s": 1e15,
    "GOP/s": 1e9,
    "TOP/s": 1e12,
}
_CLOCK = {"Hz": 1.0, "hz": 1.0, "MHz": 1e6, "GHz": 1e9}
_FAMILIES = (_TIME, _BYTE, _BYTE_RATE, _OP_RATE, _CLOCK)
_NUMERIC = ("%", "x", "n", ".0", ".1", ".2", ".3")
FORMATS = (*_NUMERIC, *(unit for family in _FAMILIES for unit in family if not unit.endswith("/us")))


def _family(unit: str) -> Mapping[str, float] | None:
    return next((family for family in _FAMILIES if unit in family), None)


def format_value(value: Scalar | None, unit: str, form: str | None = None) -> str:
    """A value as text: `form` is one of FORMATS, None picks by the unit."""
    if value is None:
        return text.NOT_MEASURED
    if isinstance(value, str | bool) or form is None:
        return text.quantity(value, unit)
    if form == "%":
        return text.percent(value) if unit == "%" else text.share(value)
    if form == "x":
        return text.times(value)
    if form == "n":
        return text.count(round(value))
    if form in _NUMERIC:
        return f"{value:,{form}f}"
    family = _family(form)
    if family is None or unit not in family:
        return text.quantity(value, unit)
    return f"{text.digits(value * family[unit] / family[form])} {'µs' if form == 'us' else form}"


@dataclass(frozen=True)
class Slot:
    """A `{…}` of a template."""

    node: Node
    form: str | None
    unit: str
    value: Compiled = field(compare=False, repr=False)

    def fill(self, env: Env) -> str:
        """The slot's text for one kernel."""
        unit = self.unit
        if isinstance(self.node, Metric):
            unit = env.metric(self.node.name)[1] or unit
        elif isinstance(self.node, Name):
            unit = env.lookup(self.node.name)[1] or unit
        return format_value(self.value(env), unit, self.form)


@dataclass(frozen=True)
class Sentence:
    """A parsed template."""

    text: str
    parts: tuple[str | Slot, ...]

    def fill(self, env: Env) -> str:
        """The sentence for one kernel; what is unknown reads `not measured`."""
        return "".join(part if isinstance(part, str) else part.fill(env) for part in self.parts)

    def nodes(self) -> tuple[Node, ...]:
        """The expressions within."""
        return tuple(part.node for part in self.parts if isinstance(part, Slot))


def parse_sentence(
    template: str, units: Mapping[str, str], derived: Mapping[str, Node] = MappingProxyType({})
) -> Sentence:
    """Parses a template; raises ExprError with the column in the template. `derived` facts are put in."""
    parts: list[str | Slot] = []
    plain = ""
    at = 0
    while at < len(template):
        char = template[at]
        if char in "{}" and template[at : at + 2] == char * 2:
            plain += char
            at += 2
        elif char == "{":
            end = template.find("}", at)
            if end < 0:
                raise ExprError("this '{' has no '}'; a literal brace is written '{{'", at + 1)
            if plain:
                parts.append(plain)
                plain = ""
            parts.append(_slot(template[at + 1 : end], at + 1, units, derived))
            at = end + 1
        elif char == "}":
            raise ExprError("this '}' has no '{'; a literal brace is written '}}'", at + 1)
        else:
            plain += char
            at += 1
    if plain:
        parts.append(plain)
    return Sentence(template, tuple(parts))


def known_unit(node: Node, units: Mapping[str, str]) -> str | None:
    """`unit_of`, where every fact is known: a misspelt one is called that. Raises ExprError."""
    for name in sorted(names(node)[0] - units.keys()):
        raise ExprError(f"unknown fact {name!r}{nearest(name, units)}", 1)
    return unit_of(node, units)


def _slot(inner: str, offset: int, units: Mapping[str, str], derived: Mapping[str, Node]) -> Slot:
    expression, colon, form = inner.rpartition(":")
    if not colon or (expression.endswith("ncu") and form not in FORMATS):
        expression, form = inner, ""
    elif form not in FORMATS:
        raise ExprError(
            f"unknown format {form!r}{nearest(form, FORMATS)} there are {', '.join(FORMATS)}",
            offset + len(expression) + 2,
        )
    try:
        node = parse_expression(expression)
        unit = known_unit(node, units)
    except ExprError as error:
        raise type(error)(error.message, offset + error.column) from None
    if form:
        _check(form, unit, expression, offset + 1)
    node = expand(node, derived)
    return Slot(node, form or None, unit if unit not in (None, MIXED) else "", compile_node(node))


def _check(form: str, unit: str | None, expression: str, column: int) -> None:
    """Refuses a format that the unit cannot be shown in."""
    wrong = f"{expression} has the unit {unit or 'of a plain number'} and cannot be shown as {form!r}"
    if unit in ("text", "bool"):
        raise ExprError(wrong, column)
    if form == "x" and unit not in DIMENSIONLESS and unit not in (None, MIXED):
        raise ExprError(wrong, column)
    if form == "%" and unit not in DIMENSIONLESS and unit not in (None, MIXED, "%"):
        raise ExprError(wrong, column)
    family = _family(form)
    metric = unit == MIXED and expression.strip().startswith("ncu:")
    if family is not None and unit not in family and not metric:
        raise ExprError(wrong, column)
