"""Tiles staged through registers in a loop: what counts and what does not."""

from diagnose.model import SassLine
from diagnose.sass.staging import staged_in_loop

LOOP = [
    ("S2R R0, SR_TID.X", 8),
    ("LDG.E.128 R4, desc[UR4][R2.64]", 80),
    ("STS.128 [R10], R4", 80),
    ("BAR.SYNC.DEFER_BLOCKING 0x0", 80),
    ("LDS R20, [R11]", 80),
    ("FFMA R30, R20, R21, R30", 80),
    ("BAR.SYNC.DEFER_BLOCKING 0x0", 80),
    ("ISETP.NE.AND P0, PT, R9, RZ, PT", 80),
]


def lines(rows, back_to=1, counts=True):
    rows = [*rows, (f"@P0 BRA {back_to * 16:#x}", rows[-1][1])] if back_to is not None else rows
    rows = [*rows, ("EXIT", 8)]
    return [
        SassLine(pc=at * 16, text=text, executed=float(n) if counts else None, samples=0)
        for at, (text, n) in enumerate(rows)
    ]


def test_a_tile_stored_as_it_was_loaded_counts():
    assert staged_in_loop(lines(LOOP)) == 1.0


def test_a_pipelined_loop_stores_what_the_iteration_before_loaded():
    rows = [LOOP[0], LOOP[2], LOOP[1], *LOOP[3:]]
    assert staged_in_loop(lines(rows)) == 1.0


def test_a_block_that_stages_once_has_nothing_to_run_the_copy_under():
    assert staged_in_loop(lines([(text, 8) for text, _ in LOOP], back_to=None)) == 0.0


def test_a_loop_without_a_barrier_is_no_staging():
    assert staged_in_loop(lines([row for row in LOOP if not row[0].startswith("BAR")])) == 0.0


def test_a_changed_value_cannot_be_copied_past_the_registers():
    rows = [*LOOP[:2], ("F2FP.BF16.F32.PACK_AB R4, R5, R4", 80), *LOOP[2:]]
    assert staged_in_loop(lines(rows)) == 0.0


def test_half_of_the_bytes():
    rows = [*LOOP[:2], ("LDG.E.128 R12, desc[UR4][R6.64]", 80), ("FADD R12, R12, R13", 80), *LOOP[2:]]
    assert staged_in_loop(lines(rows)) == 0.5


def test_without_counts_it_is_unknown():
    assert staged_in_loop(lines(LOOP, counts=False)) is None
