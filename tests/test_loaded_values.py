"""What loaded values are used for, loops that poll, and lanes that gather: on code as the compiler writes it."""

from dataclasses import replace

import pytest

import recorded
from diagnose.engine import diagnose_kernel
from diagnose.model import SassLine
from diagnose.sass.addresses import gathered_share
from diagnose.sass.loaded import double_data, operations_per_load
from diagnose.sass.polling import polled_waits, swapped_again, tried_again
from diagnose.sass.waits import waits


def lines(rows, lanes=None):
    """(text, executions[, stalls]) at 16 bytes each; `lanes` are executions by lane, else not measured."""
    return [
        SassLine(
            pc=at * 16,
            text=row[0],
            executed=float(row[1]),
            thread_executed=None if lanes is None else float(lanes[at]),
            stalls=row[2] if len(row) > 2 else {},
            not_issued=row[2] if len(row) > 2 else {},
        )
        for at, row in enumerate(rows)
    ]


def test_each_operation_on_a_loaded_value_counts_whatever_its_algebra():
    tropical = [("LDS R4, [R2]", 64), ("LDS R5, [R3]", 64), ("VIADDMNMX R6, R4, R5, R6, PT", 64)]
    assert operations_per_load(lines(tropical)) == 0.5
    tile = [("LDS.128 R4, [R2]", 8), *((f"FFMA R{20 + i}, R{4 + i}, R9, R{20 + i}", 8) for i in range(4))]
    assert operations_per_load(lines(tile)) == 4.0


def test_arithmetic_on_other_values_and_copies_do_not_count():
    rows = [("LDG.E R4, desc[UR4][R2.64]", 8), ("IADD3 R9, R9, 0x1, RZ", 8), ("STG.E desc[UR4][R6.64], R4", 8)]
    assert operations_per_load(lines(rows)) == 0.0
    assert operations_per_load([]) is None


def test_a_value_that_was_changed_is_no_loaded_one():
    rows = [("LDS R4, [R2]", 8), ("FMUL R4, R4, R9", 8), ("FADD R5, R4, R5", 8)]
    assert operations_per_load(lines(rows)) == 1.0


@pytest.mark.parametrize(
    ("rows", "double"),
    [
        ([("LDG.E.64 R4, desc[UR4][R2.64]", 8), ("DFMA R6, R4, R8, R6", 8)], True),
        ([("DADD R6, R8, R10", 8), ("STG.E.64 desc[UR4][R2.64], R6", 8)], True),
        # Two floats in one load, widened for a double literal, and narrowed again.
        (
            [
                ("LDG.E.64 R4, desc[UR4][R2.64]", 8),
                ("F2F.F64.F32 R6, R4", 8),
                ("DMUL R6, R6, 2", 800),
                ("F2F.F32.F64 R8, R6", 8),
                ("STG.E.64 desc[UR4][R2.64], R8", 8),
            ],
            False,
        ),
    ],
)
def test_double_data_is_loaded_or_stored_as_it_is(rows, double):
    assert double_data(lines(rows)) is double


def test_without_counts_double_data_is_unknown():
    assert double_data([SassLine(pc=0, text="DADD R6, R8, R10")]) is None


POLL = [
    ("MEMBAR.SC.GPU", 8),
    ("ATOMG.E.ADD.STRONG.GPU PT, RZ, desc[UR6][R2.64], R5", 8),
    ("LDG.E.STRONG.GPU R4, desc[UR6][R2.64]", 40, {"wait": 2}),
    ("ISETP.GE.AND P0, PT, R4, R7, PT", 40, {"long_scoreboard": 20}),
    ("@!P0 BRA 0x20", 40),
    ("BAR.SYNC.DEFER_BLOCKING 0x0", 64),
    ("FADD R9, R9, R8", 64, {"barrier": 60}),
    ("LDS R9, [R3]", 64),
    ("FADD R9, R9, R8", 64, {"short_scoreboard": 18}),
    ("EXIT", 64),
]


def test_a_block_waits_behind_its_poller():
    code = lines(POLL)
    assert polled_waits(code, waits(code)) == pytest.approx(82 / 100)


def test_a_loop_that_works_on_what_it_reads_does_not_poll():
    for work in ("FADD R9, R9, R4", "STG.E desc[UR6][R8.64], R4"):
        code = lines([*POLL[:4], (work, 40), ("@!P0 BRA 0x20", 40), *POLL[5:]])
        assert polled_waits(code, waits(code)) == 0.0


def test_a_loop_that_reads_through_the_caches_does_not_poll():
    code = lines([(row[0].replace(".STRONG.GPU", ""), *row[1:]) for row in POLL])
    assert polled_waits(code, waits(code)) == 0.0
    assert polled_waits(code, ()) == 0.0


def test_a_probe_goes_on_for_a_few_lanes_and_is_still_a_gather():
    rows = [
        ("LDG.E R4, desc[UR4][R2.64]", 1),
        ("IMAD.WIDE R6, R4, 0x8, R8", 1),
        ("LDG.E.64 R10, desc[UR4][R6.64]", 6),
        ("IADD3 R6, P1, R6, 0x8, RZ", 6),
        ("@!P0 BRA 0x20", 6),
    ]
    assert gathered_share(lines(rows)) == 0.0
    assert gathered_share(lines(rows, lanes=[32, 32, 48, 48, 48])) == pytest.approx(48 / 80)


@pytest.mark.parametrize(("lanes", "waiting", "serial"), [(0.08, 0.38, True), (0.08, 0.1, False), (0.9, 0.38, False)])
def test_one_thread_that_works_while_its_block_waits_is_a_barrier_and_no_divergence(lanes, waiting, serial):
    context = recorded.context_of(
        recorded.profile("faults/smooth-first"),
        {"active_lanes": lanes, "lanes_on": lanes, "exposed_barrier": waiting, "exposed_sleeping": 0.0},
    )
    assert context.fact("serial_section") is serial
    found = {one.rule for one in diagnose_kernel(context, recorded.rules(), {}).findings}
    assert ("divergence" in found) is (lanes < 0.5 and not serial)
    if serial:
        assert context.value("stake_barrier") > waiting  # the work of the one thread goes too


def test_shuffles_take_turns_of_the_load_store_unit_and_are_no_traffic():
    shuffling, streaming = recorded.context("faults/g-lanes-a"), recorded.context("faults/add-plain")
    assert shuffling.value("shuffles_on_lsu") > 0.9 and streaming.value("shuffles_on_lsu") == 0.0


# --- tries of an mbarrier ---


def _waiting(*more: tuple[str, float]) -> list[SassLine]:
    listing = [
        ("SHF.L.U32 R2, R2, 0x1f, RZ", 10.0),
        ("SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [R3+URZ], R2", 40.0),
        ("@P0 BRA 0x40", 40.0),
        ("@!P0 BRA 0x10", 30.0),
        ("LDS.128 R8, [R8]", 10.0),
        *more,
    ]
    return [SassLine(16 * at, text, executed) for at, (text, executed) in enumerate(listing)]


def test_all_turns_but_the_last_are_tries_again() -> None:
    # 110 instructions in the loop, of whose 40 turns ten were the last.
    assert tried_again(_waiting()) == pytest.approx(110 * 30 / 40 / 130)


def test_a_loop_that_works_or_tries_nothing_is_no_wait() -> None:
    working = [replace(line, text="FADD R4, R4, R5") if "@P0" in line.text else line for line in _waiting()]
    assert tried_again(working) == 0
    polling = [
        replace(line, text="LDG.E R2, desc[UR4][R6.64]") if "SYNCS" in line.text else line for line in _waiting()
    ]
    assert tried_again(polling) == 0
    assert tried_again([]) is None


def test_swaps_count_again_for_all_turns_but_one_a_value():
    loop = [
        ("IMAD R4, R0, 0x4, R1", 5.0),
        ("LDS R8, [R4]", 50.0),
        ("FADD R9, R8, R3", 50.0),
        ("ATOMS.CAST.SPIN R9, [R4], R8, R9", 50.0),
        ("ISETP.EQ.U32.AND P0, PT, R9, 0x1, PT", 50.0),
        ("@!P0 BRA 0x10", 50.0),
    ]
    lines = [SassLine(16 * at, text, executed) for at, (text, executed) in enumerate(loop)]
    assert swapped_again(lines) == pytest.approx(250 * 45 / 50 / 255)
    assert tried_again(lines) == 0
    # Around the loop of swaps goes one over values: its turns are no repetition.
    around = [*lines, SassLine(16 * len(lines), "@!P1 BRA 0x0", 5.0)]
    assert swapped_again(around) == pytest.approx(250 * 45 / 50 / 260)
    # An atomic that the hardware adds has no loop, and a loop over values with one in it repeats nothing.
    native = [
        replace(line, text=line.text.replace("ATOMS.CAST.SPIN R9, [R4], R8", "ATOMS.ADD RZ, [R4]")) for line in lines
    ]
    assert swapped_again(native) == 0
