"""Proves a rule by its examples: those that must fire do, those that must not do not, and each condition is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from diagnose.errors import DiagnoseError
from diagnose.model import Evidence, Scalar
from diagnose.packfile import YNode
from diagnose.rules import Example, Group, Rule, ValuesEnv, evaluate


def example_env(example: Example, catalogue: Mapping[str, str]) -> ValuesEnv:
    """The env that an example describes."""
    return ValuesEnv(example.values, catalogue, example.opcodes, example.loop)


def prove(rule: Rule, node: YNode, catalogue: Mapping[str, str]) -> None:
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
