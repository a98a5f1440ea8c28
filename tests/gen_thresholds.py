"""Writes docs/thresholds.md: how many verdicts each number in the rules decides. It takes two minutes; run it by hand.

python tests/gen_thresholds.py

Every number on the right of a condition is moved, one at a time, and all recorded kernels are judged anew. A number
that was fitted to one report turns a verdict when it moves a little; one that states a property of the hardware or of
the model does not.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parent)]

import recorded
from diagnose.engine import diagnose_kernel
from diagnose.expr import Num
from diagnose.rules import Rule, with_thresholds

TARGET = recorded.ROOT / "docs" / "thresholds.md"
MOVED = (0.8, 0.9, 1.1, 1.25)


@dataclass(frozen=True)
class Move:
    """One number of a rule, moved by a factor: the kernels whose verdict changed, and which of them became wrong."""

    rule: str
    condition: str
    factor: float
    changed: tuple[str, ...]
    lost: tuple[str, ...]
    won: tuple[str, ...]


def _right(name: str, verdict: str, klass: str) -> bool:
    entry = recorded.manifest()[name]
    named = {entry.expect, *entry.also}
    return verdict in named or ("quiet" in named and klass == "hardware")


def verdicts(rules: tuple[Rule, ...]) -> dict[str, tuple[str, bool]]:
    """Verdict of each recorded kernel, and whether it is right."""
    found = {}
    for name in recorded.names():
        verdict = diagnose_kernel(recorded.context(name), rules, {}).verdict
        found[name] = (verdict.rule, _right(name, verdict.rule, verdict.klass))
    return found


def moves() -> tuple[list[Move], int]:
    """All moves, and the number of recorded kernels."""
    rules = recorded.rules()
    before = verdicts(rules)
    found = []
    for at, rule in enumerate(rules):
        for index, leaf in enumerate(rule.leaves):
            node = leaf.right.node
            if not isinstance(node, Num) or node.value in (0.0, 1.0) or leaf.op in ("==", "!="):
                continue  # "any" and "none" are no thresholds
            for factor in MOVED:
                moved = with_thresholds(rule, {index: node.value * factor})
                after = verdicts((*rules[:at], moved, *rules[at + 1 :]))
                found.append(_move(rule.id, leaf.text, factor, before, after))
    return found, len(before)


def _move(
    rule: str,
    condition: str,
    factor: float,
    before: Mapping[str, tuple[str, bool]],
    after: Mapping[str, tuple[str, bool]],
) -> Move:
    changed = tuple(name for name in before if before[name][0] != after[name][0])
    lost = tuple(name for name in changed if before[name][1] and not after[name][1])
    won = tuple(name for name in changed if after[name][1] and not before[name][1])
    return Move(rule, condition, factor, changed, lost, won)


def text() -> str:
    """The document."""
    found, kernels = moves()
    numbers = {(move.rule, move.condition) for move in found}
    lines = [
        "# What the numbers in the rules decide",
        "",
        f"Written by `tests/gen_thresholds.py`: {len(numbers)} numbers in the conditions of",
        f"{len(recorded.rules())} rules, each moved alone, {kernels} recorded kernels judged anew.",
        "`rules test --against` shows what a change of yours does.",
        "",
        "| moved by | verdicts changed, mean | without effect | that make one wrong | made wrong | made right |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for factor in MOVED:
        those = [move for move in found if move.factor == factor]
        changed = sum(len(move.changed) for move in those)
        none, harmful = sum(not move.changed for move in those), sum(bool(move.lost) for move in those)
        lost, won = sum(len(move.lost) for move in those), sum(len(move.won) for move in those)
        mean = f"{changed / len(those):.2f} of {kernels}"
        lines.append(f"| ×{factor:g} | {mean} | {none} of {len(those)} | {harmful} | {lost} | {won} |")
    lines += [
        "",
        "## Numbers that make a verdict wrong when moved by a tenth",
        "",
        "| rule | condition | moved by | wrong then | right then |",
        "| --- | --- | --- | --- | --- |",
    ]
    near = [move for move in found if move.factor in (0.9, 1.1) and (move.lost or move.won)]
    for move in sorted(near, key=lambda m: (-len(m.lost), m.rule, m.condition, m.factor)):
        wrong, right = ", ".join(move.lost) or "–", ", ".join(move.won) or "–"
        lines.append(f"| {move.rule} | `{move.condition}` | ×{move.factor:g} | {wrong} | {right} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    TARGET.write_text(text(), encoding="utf-8")
    print(f"wrote {TARGET}")
