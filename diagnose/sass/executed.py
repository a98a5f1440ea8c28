"""The main loop of executed code and its instruction budget, weighted by executed counts. Pure.

A report has no labels: a loop is what stands between the target of a backward branch and the branch. Code that the
compiler moved out of that range (waits that fail at first, slow paths) is not counted.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from diagnose.model import SassLine
from diagnose.sass.cfg import MMA, category_of
from diagnose.sass.text import parse

_BACKWARD = re.compile(r"\b0x([0-9a-f]+)\s*;?\s*$")
# As of the static main loop: so short around a wait, it is no loop of the algorithm.
SHORT_LOOP = 24
# An inner loop is the main one when it holds this much of what the largest loop holds; else its neighbours count too.
_HOLDS = 0.5


@dataclass(frozen=True)
class ExecutedLoop:
    """The loop from `first` to `last`. `iterations` are executions of its closing branch by all warps, `executed` the
    warp instructions executed inside, `share` of the kernel's, `budget` the same by category."""

    first: SassLine
    last: SassLine
    iterations: float
    executed: float
    share: float
    budget: Mapping[str, float]


def main_loop(lines: Sequence[SassLine]) -> ExecutedLoop | None:
    """The innermost loop that holds half of what the fullest one holds: executed MMA; without any, warp samples;
    without those, executions. None without executed counts or without a loop."""
    ordered = sorted(lines, key=lambda line: line.pc)
    total = sum(line.executed or 0.0 for line in ordered)
    loops = bodies(ordered)
    if not total or not loops:
        return None

    def products(line: SassLine) -> float:
        parsed = parse(line.text)
        return (line.executed or 0.0) if parsed is not None and parsed.base in MMA else 0.0

    def held(body: Sequence[SassLine]) -> float:
        for amount in (products, lambda line: float(line.samples or 0)):
            if any(amount(line) for line in ordered):
                return sum(amount(line) for line in body)
        return sum(line.executed or 0.0 for line in body)

    weights = [held(body) for body in loops]
    chosen = min(
        (body for body, weight in zip(loops, weights, strict=True) if weight >= _HOLDS * max(weights)),
        key=lambda body: (body[-1].pc - body[0].pc, body[0].pc),
    )
    budget: defaultdict[str, float] = defaultdict(float)
    for line in chosen:
        parsed = parse(line.text)
        if parsed is not None and line.executed:
            budget[category_of(parsed.opcode)] += line.executed
    executed = sum(budget.values())
    return ExecutedLoop(
        first=chosen[0],
        last=chosen[-1],
        iterations=chosen[-1].executed or 0.0,
        executed=executed,
        share=executed / total,
        budget=dict(sorted(budget.items(), key=lambda item: (-item[1], item[0]))),
    )


def loop_opcodes(lines: Sequence[SassLine]) -> dict[str, float] | None:
    """Warp instructions executed in the main loop by opcode; empty without a loop, None without executed counts."""
    if not any(line.executed for line in lines):
        return None
    loop = main_loop(lines)
    counted: defaultdict[str, float] = defaultdict(float)
    for line in lines if loop is not None else ():
        parsed = parse(line.text)
        if loop is not None and parsed is not None and line.executed and loop.first.pc <= line.pc <= loop.last.pc:
            counted[parsed.opcode] += line.executed
    return dict(counted)


def bodies(ordered: Sequence[SassLine]) -> list[Sequence[SassLine]]:
    """The lines of each loop that ran; `ordered` by address."""
    return [body for at in range(len(ordered)) if (body := _body(ordered, at)) is not None]


def backward_target(line: SassLine) -> int | None:
    """Where an executed branch goes back to; None for any other instruction."""
    parsed = parse(line.text)
    if parsed is None or parsed.base not in {"BRA", "JMP"} or not line.executed:
        return None
    target = _BACKWARD.search(line.text)
    return int(target[1], 16) if target is not None and int(target[1], 16) < line.pc else None


def _body(ordered: Sequence[SassLine], at: int) -> Sequence[SassLine] | None:
    """The lines of the loop that the branch at `at` closes; None where it closes none, or one that only waits."""
    target = backward_target(ordered[at])
    if target is None:
        return None
    start = at
    while start > 0 and ordered[start - 1].pc >= target:
        start -= 1
    body = ordered[start : at + 1]
    if len(body) <= SHORT_LOOP:
        found = [one for one in (parse(other.text) for other in body) if one is not None]
        waits = any(one.base == "NANOSLEEP" or one.opcode.startswith("SYNCS.PHASECHK") for one in found)
        if waits and not any(one.base in MMA for one in found):
            return None
    return body
