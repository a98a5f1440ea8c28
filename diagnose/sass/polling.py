"""Polling: short loops that read a flag again and again, and the barrier where a block waits for its poller. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from diagnose.model import SassLine
from diagnose.sass.executed import SHORT_LOOP, backward_target
from diagnose.sass.text import parse
from diagnose.sass.waits import Wait

_FLAG_READS = ("LDG", "LD", "ATOM", "ATOMG")
_STORES = frozenset({"STG", "ST", "STS", "RED", "REDG"})
_NO_WORK = frozenset({"FENCE", "DEPBAR", "HFMA2"})  # HFMA2 of constants is a move
_AFTER = 16  # instructions: what a block does between its one thread's polling and its own barrier is a few


def polled_waits(lines: Sequence[SassLine], found: Sequence[Wait]) -> float:
    """Of all waiting samples, the share (0..1) that stands in polling loops or at a barrier right behind one.

    A polling loop is at most SHORT_LOOP instructions long, reads memory past the caches (.STRONG at GPU or system
    scope), and neither stores nor computes in floating point.
    """
    total = sum(wait.samples for wait in found)
    ordered = sorted(lines, key=lambda line: line.pc)
    polling: set[int] = set()
    for first, at in _short_loops(ordered):
        body = ordered[first : at + 1]
        if any(_reads_flag(one) for one in body) and not any(_works(one) for one in body):
            polling.update(one.pc for one in body)
            for behind in ordered[at + 1 : at + 1 + _AFTER]:
                if behind.text.lstrip().startswith("BAR"):
                    polling.add(behind.pc)
                    break
    if not total or not polling:
        return 0.0
    there = [w for w in found if w.line.pc in polling or (w.cause is not None and w.cause.pc in polling)]
    return sum(wait.samples for wait in there) / total


def tried_again(lines: Sequence[SassLine]) -> float | None:
    """Share (0..1) of executed instructions that try an mbarrier anew because it was not passed yet.

    Their number is set by how long the wait is, not by any work. None without executed counts.
    """

    def waits(body: Sequence[SassLine]) -> bool:
        return any("TRYWAIT" in line.text for line in body) and not any(_works(line) for line in body)

    return _again(lines, waits)


def swapped_again(lines: Sequence[SassLine]) -> float | None:
    """Share (0..1) of executed instructions that compare and swap in shared memory anew, because another thread came
    between. None without executed counts.
    """
    return _again(lines, lambda body: any("ATOMS.CAS" in line.text for line in body))


def _again(lines: Sequence[SassLine], tries: Callable[[Sequence[SassLine]], bool]) -> float | None:
    """Share of executed instructions in short loops of that kind, without a turn for each time one is entered."""
    ordered = sorted(lines, key=lambda line: line.pc)
    total = sum(line.executed or 0.0 for line in ordered)
    if not total:
        return None
    again = 0.0
    for first, at in _short_loops(ordered):
        body = ordered[first : at + 1]
        if any((inner := backward_target(other)) is not None and inner >= body[0].pc for other in body[:-1]):
            continue  # a loop around one that tries
        turns = body[0].executed or 0.0
        # Entered by what comes before; where the loop is left from its middle, its closing branch runs less often, too.
        entered = max(ordered[first - 1].executed or 0.0 if first else 0.0, turns - (body[-1].executed or 0.0))
        if turns > entered and tries(body):
            again += sum(one.executed or 0.0 for one in body) * (1 - entered / turns)
    return min(1.0, again / total)


def _short_loops(ordered: Sequence[SassLine]) -> Iterator[tuple[int, int]]:
    """First and last place of each loop that ran and is at most SHORT_LOOP instructions long; `ordered` by address.

    Not those of `executed.bodies`, which leaves out what only waits.
    """
    index = {line.pc: at for at, line in enumerate(ordered)}
    for at, line in enumerate(ordered):
        target = backward_target(line)
        first = index.get(target) if target is not None else None
        if first is not None and at - first <= SHORT_LOOP:
            yield first, at


def _works(line: SassLine) -> bool:
    parsed = parse(line.text)
    if parsed is None or parsed.base in _NO_WORK:
        return False
    return parsed.base in _STORES or parsed.base.startswith(("F", "H", "D"))


def past_caches(opcode: str) -> bool:
    """Whether an access goes past L1 to what other blocks, GPUs or the host write (.STRONG at GPU or system scope)."""
    return "STRONG" in opcode and ("GPU" in opcode or "SYS" in opcode)


def _reads_flag(line: SassLine) -> bool:
    parsed = parse(line.text)
    return parsed is not None and parsed.base in _FLAG_READS and past_caches(parsed.opcode)
