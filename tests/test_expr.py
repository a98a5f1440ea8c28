"""The condition language: what parses, what it means, and that it fails in one way only."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnose.expr import (
    ADDRESS_METRIC,
    COMPARISONS,
    MAX_DEPTH,
    MAX_LENGTH,
    NEGATED,
    OPCODES_METRIC,
    Compare,
    ExprError,
    Num,
    UnitError,
    compile_node,
    evaluate,
    names,
    parse,
    parse_number,
    show,
    unit_of,
    walk,
)
from diagnose.model import Scalar
from diagnose.rules import ValuesEnv

UNITS = {
    "a": "share",
    "b": "share",
    "bytes": "byte",
    "time": "us",
    "seconds": "s",
    "n": "count",
    "kind": "text",
    "on": "flag",
}
OPCODES = {
    "HMMA.16816.F32": 30.0,
    "HMMA": 10.0,
    "HMMAX.1": 5.0,
    "LDG.E.128": 40.0,
    "LDGSTS.E": 15.0,
}


def value_of(
    text: str, opcodes: dict[str, float] | None = None, /, **facts: Scalar | None
) -> tuple[Scalar | None, tuple[str, ...]]:
    return evaluate(parse(text), ValuesEnv(facts, UNITS, opcodes))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 + 2 * 3", 7.0),
        ("(1 + 2) * 3", 9.0),
        ("10 - 4 - 3", 3.0),
        ("16 / 4 / 2", 2.0),
        ("-2 * -3", 6.0),
        ("--2", 2.0),
        ("80%", 0.8),
        ("1e3 + 2.5", 1002.5),
        ("min(3, 1, 2) + max(4, 5)", 6.0),
        ("2 > 1", True),
        ("2 >= 2", True),
        ("1 < 1", False),
        ("1 <= 0", False),
        ("1 == 1", True),
        ("1 != 1", False),
        ("'x' == 'x'", True),
        ("'x' != 'x'", False),
        ("true == false", False),
        ("true", True),
    ],
)
def test_value_of_constants(text: str, expected: object) -> None:
    assert value_of(text) == (expected, ())


def test_reads_facts_and_raw_metrics() -> None:
    env = ValuesEnv({"hbm.use": 0.5, "ncu:sm__cycles.avg": 40.0, "kind": "gemm", "on": True})
    assert evaluate(parse("hbm.use * ncu:sm__cycles.avg"), env) == (20.0, ())
    assert evaluate(parse("kind == 'gemm'"), env) == (True, ())
    assert evaluate(parse("on"), env) == (True, ())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sass.count(HMMA)", 40.0),  # not HMMAX
        ("sass.count(HMMA*)", 45.0),
        ("sass.count(HMMA.16816)", 30.0),
        ("sass.count(HMMA.168)", 0.0),
        ("sass.count(HMMA.168*)", 30.0),
        ("sass.count(LDG)", 40.0),
        ("sass.share(LDG*)", 0.55),
        ("sass.has(LDG.E.128)", True),
        ("sass.has(HGMMA)", False),
    ],
)
def test_opcode_predicates_match_dotted_prefixes(text: str, expected: object) -> None:
    assert value_of(text, OPCODES) == (expected, ())


@pytest.mark.parametrize("function", ["has", "count", "share"])
def test_opcodes_that_were_not_measured_are_unknown_not_absent(function: str) -> None:
    assert value_of(f"sass.{function}(HMMA)", None) == (None, (OPCODES_METRIC,))


def test_a_second_kernels_opcodes_do_not_see_the_first_ones() -> None:
    condition = compile_node(parse("sass.count(HMMA)"))
    first, second = ValuesEnv({}, {}, OPCODES), ValuesEnv({}, {}, {"HMMA": 1.0})
    assert [condition(env) for env in (first, second, first)] == [40.0, 1.0, 40.0]


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("a + b > 1", ("a", "b")),
        ("ncu:m.sum > 1", ("m.sum",)),
        ("max(1, a) > 0", ("a",)),
        ("n / (n - 4) > 1", ("division by zero in n / (n - 4)",)),
        ("1e308 * 10 > 1", ("1e+308 * 10 is not finite",)),
        ("kind * 2 > 1", ("kind is not a number",)),
        ("kind > 1", ("kind > 1 compares a number with a text or boolean",)),
    ],
)
def test_unknown_names_its_reason(text: str, missing: tuple[str, ...]) -> None:
    assert value_of(text, None, n=4.0, kind="x") == (None, missing)


@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan, 10**400])
def test_values_that_are_not_finite_are_unknown(bad: float) -> None:
    assert value_of("n > 1", None, n=bad) == (None, ("n is not finite",))


def test_whole_numbers_work_like_floats() -> None:
    assert value_of("n / 4", None, n=2) == (0.5, ())


@pytest.mark.parametrize(
    ("text", "column", "says"),
    [
        ("", 1, "expected a number, a fact"),
        ("a >", 4, "got the end"),
        ("a > > 1", 5, "got '>'"),
        ("a = 1", 3, "write '=='"),
        ("a < b < n", 7, "do not chain"),
        ("a > 1 and b > 1", 7, "keys all, any and not"),
        ("(a > 1)", 4, "expected ')'"),
        ("foo(1)", 1, "no function 'foo'"),
        ("A > 1", 1, "not a fact's name"),
        ("a..b > 1", 1, "not a fact's name"),
        ("12abc > 1", 1, "not a number"),
        ("1e999 > a", 1, "too large"),
        ("'open", 1, "no closing quote"),
        ("'text'", 1, "a text alone"),
        ("'x' + 1", 1, "arithmetic needs numbers"),
        ("true * 2", 1, "arithmetic needs numbers"),
        ("kind < 'x'", 6, "needs numbers"),
        ("sass.has(hmma)", 10, "not an opcode"),
        ("sass.has(HMMA.)", 10, "not an opcode"),
        ("sass.has(1)", 10, "not an opcode"),
        ("sass.has HMMA", 10, "expected '('"),
        ("min()", 5, "expected a number"),
        ("a; b", 2, "unexpected character ';'"),
        ("__import__('os')", 1, "no function"),
        ("ａ > 1", 1, "unexpected character"),
    ],
)
def test_parse_errors_say_where(text: str, column: int, says: str) -> None:
    with pytest.raises(ExprError) as caught:
        parse(text)
    assert says in caught.value.message
    assert caught.value.column == column


def test_limits() -> None:
    assert parse("(" * (MAX_DEPTH - 1) + "a" + ")" * (MAX_DEPTH - 1)) == parse("a")
    for text in (
        "(" * MAX_DEPTH + "a" + ")" * MAX_DEPTH,
        "-" * MAX_DEPTH + "a",
        "min(" * MAX_DEPTH + "a" + ")" * MAX_DEPTH,
    ):
        with pytest.raises(ExprError, match="deeper"):
            parse(text)
    with pytest.raises(ExprError, match="too many"):
        parse("a" * (MAX_LENGTH + 1))
    long = "+".join(["1"] * (MAX_LENGTH // 2))
    assert value_of(long) == (MAX_LENGTH // 2, ())


def test_names() -> None:
    facts, metrics = names(parse("min(a, x.y) + ncu:m.sum > sass.count(LDL) / n"))
    assert facts == {"a", "x.y", "n"}
    assert metrics == {"m.sum", OPCODES_METRIC}


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("3", None),
        ("3%", "share"),
        ("a", "share"),
        ("1 - a", "share"),
        ("a * b", "share"),
        ("bytes * 2", "byte"),
        ("a * bytes", "byte"),
        ("bytes / bytes", "ratio"),
        ("bytes / 2", "byte"),
        ("bytes / a", "byte"),
        ("bytes / seconds", "byte/s"),
        ("bytes / time", "byte/us"),
        ("bytes / n", "mixed"),
        ("bytes / n + time", "mixed"),
        ("max(bytes, bytes)", "byte"),
        ("-time", "us"),
        ("ncu:x.sum", "mixed"),
        ("ncu:x.pct_of_peak", "%"),
        ("ncu:x.pct / 100", "mixed"),
        ("sass.has(A)", "bool"),
        ("sass.count(A)", "count"),
        ("sass.share(A)", "share"),
        ("on", "bool"),
        ("kind", "text"),
        ("a > 80%", "bool"),
        ("a > bytes / bytes", "bool"),
        ("bytes > ncu:x.sum", "bool"),
        ("ncu:x.pct / 100 > a", "bool"),
        ("kind == 'x'", "bool"),
        ("ncu:x == 'x'", "bool"),
    ],
)
def test_units(text: str, unit: str | None) -> None:
    assert unit_of(parse(text), UNITS) == unit


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("a > bytes", 3),
        ("bytes > 80%", 7),
        ("a + time > 1", 3),
        ("min(a, bytes) > 1", 8),
        ("ncu:x.pct > 80%", 11),
        ("ncu:x.pct > a", 11),
        ("kind > 1", 6),
        ("kind == 1", 6),
        ("on == 'x'", 4),
        ("on > 0", 4),
        ("on + 1 > 0", 1),
        ("sass.has(A) * 2 > 1", 1),
        ("-kind > 1", 2),
    ],
)
def test_unit_errors(text: str, column: int) -> None:
    with pytest.raises(UnitError) as caught:
        unit_of(parse(text), UNITS)
    assert caught.value.column == column


def test_number_literals() -> None:
    assert [parse_number(text) for text in ("40%", "-1e3", "7", "a", "1 + 1", "")] == [
        0.4,
        -1000.0,
        7.0,
        None,
        None,
        None,
    ]


# --- properties ---

_leaf = st.one_of(
    st.sampled_from(
        [
            "a",
            "b",
            "n",
            "time",
            "ncu:m.sum",
            "sass.count(HMMA*)",
            "sass.share(LDG)",
            "sass.share(LDG in loop)",
            "0",
            "25%",
        ]
    ),
    st.integers(0, 10**6).map(str),
    st.floats(0, 1e12).map(lambda value: f"{value:.6f}"),
)
_numeric = st.recursive(
    _leaf,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from("+-*/"), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        inner.map(lambda text: f"-{text}"),
        st.tuples(st.sampled_from(["min", "max"]), inner, inner).map(lambda t: f"{t[0]}({t[1]}, {t[2]})"),
    ),
    max_leaves=8,
)
_scalars = st.one_of(st.none(), st.floats(), st.integers(), st.booleans(), st.text(max_size=5))
_envs = st.builds(
    lambda values, opcodes, loop: ValuesEnv(values, UNITS, opcodes, loop),
    st.fixed_dictionaries(dict.fromkeys(("a", "b", "n", "time", "kind", "on", "ncu:m.sum"), _scalars)),
    *[st.one_of(st.none(), st.dictionaries(st.sampled_from(sorted(OPCODES)), st.floats()))] * 2,
)
_fragments = st.lists(
    st.sampled_from(
        [
            "a",
            "on",
            "kind",
            "ncu:m.sum",
            "1",
            "2%",
            "'x'",
            "true",
            "min",
            "max",
            "sass.has",
            "sass.count",
            "(",
            ")",
            ",",
            "+",
            "-",
            "*",
            "/",
            ">",
            ">=",
            "<",
            "<=",
            "==",
            "!=",
            "HMMA",
            "HMMA*",
            ".",
            "'",
            "%",
        ]
    ),
    max_size=20,
).map(" ".join)


@given(st.one_of(st.text(max_size=600), _fragments))
def test_any_text_parses_or_raises_the_parse_error(text: str) -> None:
    try:
        node = parse(text)
        unit_of(node, UNITS)
    except ExprError as error:
        assert error.column >= 1
        return
    value, missing = evaluate(node, ValuesEnv({"a": 1.0}, UNITS))
    assert (value is None) == bool(missing)


@given(_numeric, st.sampled_from(sorted(COMPARISONS)), _numeric, _envs)
def test_conditions_never_raise_and_unknown_always_has_a_reason(left: str, op: str, right: str, env: ValuesEnv) -> None:
    try:
        node = parse(f"{left} {op} {right}")
    except ExprError as error:
        assert "too many" in error.message or "deeper" in error.message
        return
    value, missing = evaluate(node, env)
    assert value in (True, False, None)
    assert (value is None) == bool(missing)
    negated = parse(f"{left} {NEGATED[op]} {right}")
    opposite, _ = evaluate(negated, env)
    assert opposite is (None if value is None else not value)


@given(_numeric, _envs)
def test_numbers_are_finite_and_an_unknown_operand_makes_the_whole_unknown(text: str, env: ValuesEnv) -> None:
    try:
        node = parse(text)
    except ExprError:
        return
    value, _ = evaluate(node, env)
    assert value is None or isinstance(value, float | bool | str)
    if isinstance(value, float):
        assert math.isfinite(value)
    if any(evaluate(part, env)[0] is None for part in walk(node)):
        assert value is None


@given(_numeric, st.sampled_from(sorted(COMPARISONS)), _numeric)
def test_shown_text_parses_to_the_same_tree(left: str, op: str, right: str) -> None:
    try:
        node = parse(f"{left} {op} {right}")
    except ExprError:
        return
    assert isinstance(node, Compare)
    rounded = any(isinstance(part, Num) and f"{part.value:.12g}" != repr(part.value) for part in walk(node))
    try:
        again = parse(show(node))
    except ExprError as error:
        assert "too many" in error.message
        return
    assert show(again) == show(node)
    if not rounded and not any(isinstance(part, Num) for part in walk(node)):
        assert again == node


# --- the main loop ---


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sass.count(LDL in loop)", 6.0),
        ("sass.has(LDL in loop)", True),
        ("sass.has(HMMA in loop)", False),
        ("sass.share(LD* in loop)", 0.75),
        ("sass.count(HMMA) - sass.count(LDL in loop)", 34.0),
    ],
)
def test_opcodes_in_the_main_loop_are_counted_apart(text: str, expected: object) -> None:
    env = ValuesEnv({}, {}, OPCODES, {"LDL.64": 6.0, "FFMA": 2.0})
    assert evaluate(parse(text), env) == (expected, ())


@pytest.mark.parametrize("function", ["has", "count", "share"])
def test_a_loop_that_was_not_counted_is_unknown_and_no_loop_is_none(function: str) -> None:
    condition = parse(f"sass.{function}(LDL in loop)")
    assert evaluate(condition, ValuesEnv({}, {}, OPCODES)) == (None, (ADDRESS_METRIC,))
    value, why = evaluate(condition, ValuesEnv({}, {}, OPCODES, {}))
    assert (value, why) == {
        "has": (False, ()),
        "count": (0.0, ()),
        "share": (None, ("instructions executed in the main loop",)),
    }[function]
    assert names(condition)[1] == {ADDRESS_METRIC}


@pytest.mark.parametrize(
    ("text", "column", "says"),
    [
        ("sass.count(LDL in)", 18, "the kernel's main loop"),
        ("sass.count(LDL in the loop)", 19, "'loop'"),
        ("sass.count(LDL out loop)", 16, "'in loop'"),
    ],
)
def test_a_loop_that_is_misspelt_is_explained(text: str, column: int, says: str) -> None:
    with pytest.raises(ExprError) as caught:
        parse(text)
    assert caught.value.column == column and says in caught.value.message
