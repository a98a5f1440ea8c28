"""The main loop of executed code: chosen among nested and waiting loops, with a budget that follows the executions."""

from __future__ import annotations

import pytest

from diagnose.model import SassLine
from diagnose.sass.executed import main_loop
from diagnose.sass.waits import waits


def lines(*rows):
    """(text, executed, samples) in the order of addresses."""
    return tuple(
        SassLine(16 * at, text, executed=executed, samples=samples, stalls={}, not_issued={})
        for at, (text, executed, samples) in enumerate(rows)
    )


NESTED = (
    ("LDC R1, c[0x0][0x28]", 4, 1),
    ("IADD3 R2, R2, 0x1, RZ", 40, 2),  # 0x10: the outer loop, 10 turns of 4 warps
    ("LDG.E.128 R4, desc[UR4][R2.64]", 320, 60),  # 0x20: the inner loop, 8 turns each
    ("FFMA R8, R4, R5, R8", 320, 90),
    ("@P1 FFMA R9, R6, R7, R9", 80, 10),
    ("BRA P0, 0x20", 320, 4),
    ("@P2 BRA 0x10", 40, 2),
    ("EXIT", 4, 0),
)


def test_the_inner_loop_and_its_budget():
    loop = main_loop(lines(*NESTED))
    assert (loop.first.pc, loop.last.pc, loop.iterations) == (0x20, 0x50, 320)
    assert loop.budget == {"float": 400, "control": 320, "global_load": 320} and loop.executed == 1040
    assert list(loop.budget) == ["float", "control", "global_load"]
    assert loop.share == pytest.approx(1040 / (4 + 40 + 1040 + 40 + 4))


def test_products_decide_before_samples():
    waiting = ("@!P0 BRA 0x0", 900, 500)
    rows = (
        ("IADD3 R2, R2, 0x1, RZ", 900, 400),
        waiting,
        ("HGMMA.64x64x16.F32.BF16 R24, gdesc[UR4], R24", 64, 3),  # 0x20
        ("UIADD3 UR4, UR4, 0x2, URZ", 64, 1),
        ("@P1 BRA 0x20", 64, 1),
    )
    assert main_loop(lines(*rows)).first.pc == 0x20
    without = tuple(row for row in rows if "HGMMA" not in row[0])
    assert main_loop(lines(*without)).first.pc == 0


def test_a_loop_that_waits_is_none_and_without_counts_nothing_is_said():
    spin = (("SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR8], R4", 90, 5), ("@!P0 BRA 0x0", 90, 80), ("EXIT", 4, 0))
    assert main_loop(lines(*spin)) is None
    assert main_loop(lines(*((text, None, samples) for text, _, samples in NESTED))) is None
    assert main_loop(()) is None
    assert main_loop(lines(*((text, executed, None) for text, executed, _ in NESTED))).first.pc == 0x20


def test_a_branch_waits_for_a_test_and_not_for_an_initialisation():
    rows = [
        SassLine(0, "@UP1 SYNCS.EXCH.64 URZ, [UR7], UR10", executed=1),
        SassLine(16, "BRA !P2, 0x80", executed=9, samples=7, stalls={"long_scoreboard": 7}, not_issued={}),
        SassLine(32, "SYNCS.PHASECHK.TRANS64.TRYWAIT P3, [UR6], R4", executed=9),
    ]
    (wait,) = waits(rows)
    assert wait.kind == "mbarrier" and wait.cause.pc == 32
