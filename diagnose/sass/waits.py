"""Names what a sampled stall waits for, from the instruction at its address and the one that caused it.

A stall is sampled at the instruction that waits: the consumer of a load, or the instruction after a barrier (ncu's
sampling hardware reports the warp's next instruction). The cause is found by following the registers of the waiting
instruction back to the variable-latency instruction that writes them, in address order and then around a loop.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from diagnose.model import SassLine
from diagnose.sass.text import Instruction, parse

# Waiting kinds by the base opcode of the cause. A kind is a word of the field, used in fact names `wait_KIND`.
_KIND_OF_CAUSE: Mapping[str, str] = {
    "LDG": "global_load", "LD": "global_load", "LDGSTS": "copy_group", "LDGDEPBAR": "copy_group",
    "LDL": "local_load", "STL": "local_load",
    "LDS": "shared_load", "LDSM": "shared_load", "STS": "shared_store", "STSM": "shared_store",
    "ATOM": "global_atomic", "ATOMG": "global_atomic", "RED": "global_atomic", "REDG": "global_atomic",
    "ATOMS": "shared_atomic",
    "LDC": "constant", "LDCU": "constant", "ULDC": "constant",
    "MUFU": "special_function", "F2F": "conversion", "F2I": "conversion", "I2F": "conversion", "FRND": "conversion",
    "F2FP": "conversion", "I2FP": "conversion", "I2I": "conversion",
    "SHFL": "shuffle", "VOTE": "vote", "REDUX": "shuffle", "MATCH": "vote",
    "TEX": "texture", "TLD": "texture", "TLD4": "texture", "SULD": "texture",
    "HMMA": "tensor", "IMMA": "tensor", "DMMA": "tensor", "QMMA": "tensor", "OMMA": "tensor",
    "HGMMA": "wgmma", "QGMMA": "wgmma", "IGMMA": "wgmma", "WARPGROUP": "wgmma",
    "SYNCS": "mbarrier", "UTMALDG": "mbarrier", "UBLKCP": "mbarrier",
    "BAR": "cta_barrier", "UCGABAR_WAIT": "cluster_barrier", "UCGABAR_ARV": "cluster_barrier",
    "MEMBAR": "fence", "FENCE": "fence", "CCTL": "fence", "ERRBAR": "fence",
    "NANOSLEEP": "sleep", "DADD": "double", "DMUL": "double", "DFMA": "double", "DSETP": "double",
    "STG": "global_store", "ST": "global_store",
}  # fmt: skip

# Whose results a warp waits for under long scoreboard: instructions that L1TEX answers (Profiling Guide, warp stall
# reasons). The other variable-latency instructions answer under short scoreboard.
_L1TEX = frozenset({
    "LDG", "LD", "LDL", "STL", "LDGSTS", "LDGDEPBAR", "ATOM", "ATOMG", "RED", "REDG", "TEX", "TLD", "TLD4", "SULD",
    "STG", "ST", "CCTL", "SYNCS", "UTMALDG", "UBLKCP", "MEMBAR",
})  # fmt: skip

KINDS: tuple[str, ...] = tuple(sorted(set(_KIND_OF_CAUSE.values()) | {"arithmetic", "instruction_fetch", "other"}))

# A register chain through address arithmetic is followed at most this far back: beyond it the cause is another
# iteration's.
_MAX_STEPS = 256


@dataclass(frozen=True)
class Wait:
    """Warp samples that wait at `line` for `kind`; `cause` is the instruction that is waited for, where it was
    found.
    """

    line: SassLine
    stall: str
    kind: str
    cause: SassLine | None
    samples: int


def _kind_of(instruction: Instruction | None) -> str:
    return _KIND_OF_CAUSE.get(instruction.base, "other") if instruction is not None else "other"


def _variable_latency(instruction: Instruction) -> bool:
    return instruction.base in _KIND_OF_CAUSE


def _producer(
    lines: Sequence[SassLine], parsed: Sequence[Instruction | None], at: int, stall: str = "long_scoreboard"
) -> int | None:
    """Index of the instruction whose result `lines[at]` waits for under `stall`; None when none is seen.

    The last writer of each source register is looked at; one that answers under the other scoreboard is not waited for.
    """
    here = parsed[at]
    if here is None or not here.sources:
        return None
    # Backwards through the code, then once around (a load for the next iteration stands after its use in a loop).
    order = [*range(at - 1, max(-1, at - 1 - _MAX_STEPS), -1), *range(min(len(lines) - 1, at + _MAX_STEPS), at, -1)]
    wanted: set[str] = set(here.sources)
    for index in order:
        candidate = parsed[index]
        if candidate is None or not (candidate.destinations & wanted):
            continue
        if _variable_latency(candidate) and (candidate.base in _L1TEX) == (stall == "long_scoreboard"):
            return int(index)
        if candidate.predicate is None:
            wanted -= candidate.destinations
        if not wanted:
            return None
    return None


def _nearby(parsed: Sequence[Instruction | None], at: int, bases: frozenset[str], back: int) -> int | None:
    for index in range(at, max(-1, at - back - 1), -1):
        candidate = parsed[index]
        if candidate is not None and candidate.base in bases:
            return index
    return None


_BARRIERS = frozenset({"BAR", "WARPGROUP", "UCGABAR_WAIT", "UCGABAR_ARV"})
_FENCES = frozenset({"MEMBAR", "FENCE", "CCTL", "ERRBAR"})


def _try_wait(parsed: Sequence[Instruction | None], at: int) -> int | None:
    """The nearest test of an mbarrier before or after a branch: a loop may test for its next turn at its end."""
    near = range(max(0, at - _MAX_STEPS), min(len(parsed), at + _MAX_STEPS + 1))
    tests = [n for n in near if (one := parsed[n]) is not None and one.opcode.startswith("SYNCS.PHASECHK")]
    return min(tests, key=lambda n: (abs(n - at), n), default=None)


def _classify(
    lines: Sequence[SassLine], parsed: Sequence[Instruction | None], at: int, stall: str
) -> tuple[str, int | None]:
    here = parsed[at]
    if here is None:
        return "other", None
    if stall == "barrier":
        cause = _nearby(parsed, at, _BARRIERS, 2)
        return (_kind_of(parsed[cause]), cause) if cause is not None else ("cta_barrier", None)
    if stall in {"gmma", "warpgroup_arrive"}:
        return "wgmma", at
    if stall == "membar":
        return "fence", _nearby(parsed, at, _FENCES, 2)
    if stall == "sleeping":
        return "sleep", at
    if stall in {"no_instructions", "no_instruction", "branch_resolving"}:
        return "instruction_fetch", at
    if stall in {"imc_miss"}:
        return "constant", at
    if stall in {"lg_throttle", "mio_throttle", "tex_throttle"}:
        return _KIND_OF_CAUSE.get(here.base, "other"), at
    if stall in {"long_scoreboard", "short_scoreboard"}:
        if here.base in {"BRA", "NANOSLEEP"} or here.predicate is not None:
            # A try-wait loop: the branch, or the sleep, waits for the predicate that SYNCS.PHASECHK writes.
            cause = _producer(lines, parsed, at)
            if cause is not None and _kind_of(parsed[cause]) == "mbarrier":
                return "mbarrier", cause
            if cause is None and here.base in {"BRA", "NANOSLEEP"} and here.predicate is None:
                # `BRA !P2, …` names its predicate as an operand; the try-wait may stand in a block that jumps here.
                cause = _try_wait(parsed, at)
                if cause is not None:
                    return "mbarrier", cause
        if here.base == "SYNCS":
            return "mbarrier", at
        if here.base in {"DEPBAR", "LDGDEPBAR"} or (
            at > 0 and _nearby(parsed, at, frozenset({"DEPBAR"}), 1) is not None
        ):
            # Waits for copy groups when the kernel copies with LDGSTS, for bulk groups otherwise.
            return "copy_group", at
        cause = _producer(lines, parsed, at, stall)
        if cause is not None:
            return _kind_of(parsed[cause]), cause
        if stall == "long_scoreboard":
            # Long scoreboard is L1TEX by definition (global, local, texture); the load was not found near enough.
            bases = {instruction.base for instruction in parsed if instruction is not None}
            return ("local_load" if "LDL" in bases and not bases & {"LDG", "LD"} else "global_load"), None
        return "other", None
    if stall in {"wait", "math_pipe_throttle", "dispatch_stall"}:
        kind = _KIND_OF_CAUSE.get(here.base)
        if stall == "math_pipe_throttle" and kind in {"tensor", "wgmma", "special_function", "double", "conversion"}:
            return kind, at
        return "arithmetic", at
    return "other", at


def waits(lines: Sequence[SassLine], *, not_issued: bool = True) -> tuple[Wait, ...]:
    """Every sampled stall of `lines` with what it waits for, largest first.

    `not_issued` counts only samples of cycles in which the scheduler issued nothing (stalls of other cycles cost no
    time); where the report has no such samples, all samples of stalled warps count.
    """
    has_not_issued = any(line.not_issued for line in lines)
    parsed = [parse(line.text) for line in lines]
    found: list[Wait] = []
    for at, line in enumerate(lines):
        table = line.not_issued if not_issued and has_not_issued else line.stalls
        for stall, samples in table.items():
            if samples <= 0 or stall in {"selected", "not_selected"}:
                continue
            kind, cause = _classify(lines, parsed, at, stall)
            found.append(Wait(line, stall, kind, lines[cause] if cause is not None else None, samples))
    return tuple(sorted(found, key=lambda wait: (-wait.samples, wait.line.pc)))


def by_kind(found: Sequence[Wait]) -> dict[str, float]:
    """Share of all waiting samples by kind (sums to 1; empty when there are no samples)."""
    total = sum(wait.samples for wait in found)
    shares: dict[str, float] = defaultdict(float)
    for wait in found:
        shares[wait.kind] += wait.samples / total
    return dict(shares)
