"""Addresses: gathered or affine, and how much arithmetic they cost, on small listings."""

from __future__ import annotations

import pytest

import recorded
from diagnose.model import SassLine
from diagnose.sass.addresses import _address_registers, address_arithmetic_share, gathered_share


def code(*lines: str | tuple[str, float]) -> tuple[SassLine, ...]:
    """Lines executed 100 times each, or as often as the line says."""
    pairs = [(line, 100.0) if isinstance(line, str) else line for line in lines]
    return tuple(SassLine(at * 16, text, executed) for at, (text, executed) in enumerate(pairs))


@pytest.mark.parametrize(
    ("text", "registers"),
    [
        ("LDG.E R2, desc[UR4][R6.64]", {"R6", "R7"}),
        ("LDG.E R2, desc[UR4][R6.64+0x100]", {"R6", "R7"}),
        ("LDS R2, [R3+UR4]", {"R3", "UR4"}),
        ("LDS R2, [R3.X4+0x80]", {"R3"}),
        ("STG.E desc[UR4][R8.64], R2", {"R8", "R9"}),
        ("LDG.E R2, [R6]", {"R6"}),
        ("LDG.E R2, desc[UR4][R6.64+UR8]", {"R6", "R7", "UR8"}),
        ("FADD R2, R3, R4", set()),
    ],
)
def test_registers_of_an_address(text: str, registers: set[str]) -> None:
    assert _address_registers(text) == registers


def test_addresses_from_thread_indices_are_affine() -> None:
    assert (
        gathered_share(
            code(
                "S2R R0, SR_TID.X",
                "IMAD.WIDE R2, R0, 0x4, R4",
                "LDG.E R6, desc[UR4][R2.64]",
                "STG.E desc[UR4][R2.64], R6",
            )
        )
        == 0
    )


def test_addresses_from_loaded_indices_are_gathered() -> None:
    lines = code(
        "S2R R0, SR_TID.X",
        "IMAD.WIDE R2, R0, 0x4, R4",
        "LDG.E R6, desc[UR4][R2.64]",
        "IMAD.WIDE R8, R6, 0x4, R10",
        "LDG.E R7, desc[UR4][R8.64]",
    )
    assert gathered_share(lines) == 0.5, "one of two loads follows a loaded index"


def test_indices_pass_through_arithmetic_and_shared_memory() -> None:
    for source in ("LDS R6, [R1]", "LDG.E R6, desc[UR4][R2.64]"):
        lines = code(
            source,
            "IADD3 R7, R6, 0x1, RZ",
            "SHF.L.U32 R8, R7, 0x2, RZ",
            "IADD3 R12, R8, R20, RZ",
            "IADD3.X R13, R9, R21, RZ, P0, !PT",
            ("LDG.E R14, desc[UR4][R12.64]", 100.0),
        )
        share = gathered_share(lines)
        assert share in (0.5, 1.0), f"{source}: {share}"


def test_indices_that_come_by_shuffle_are_gathered() -> None:
    lines = code(
        "LDG.E R6, desc[UR4][R2.64]",
        "SHFL.IDX PT, R8, R6, R11, 0x1f",
        "IMAD.WIDE R8, R8, 0x20, R12",
        "LDG.E.128 R16, desc[UR4][R8.64]",
    )
    assert gathered_share(lines) == 0.5


def test_a_row_pointer_loaded_once_is_a_base_and_no_gather() -> None:
    lines = code(
        ("LDG.E.64 R2, desc[UR4][R10.64]", 1.0),
        ("IADD3 R2, R2, 0x4, RZ", 100.0),
        ("LDG.E R6, desc[UR4][R2.64]", 100.0),
    )
    assert gathered_share(lines) == 0


def test_a_scatter_counts_by_its_stores() -> None:
    lines = code(
        "LDG.E R6, desc[UR4][R2.64]",
        "IMAD.WIDE R8, R6, 0x4, R10",
        "STG.E desc[UR4][R8.64], R7",
    )
    assert gathered_share(lines) == 1.0


def test_an_overwritten_register_forgets_what_it_held() -> None:
    lines = code(
        "LDG.E R6, desc[UR4][R2.64]",
        "S2R R6, SR_TID.X",
        "IMAD.WIDE R8, R6, 0x4, R10",
        "LDG.E R7, desc[UR4][R8.64]",
    )
    assert gathered_share(lines) == 0


def test_lanes_under_a_predicate_see_what_was_written_under_it() -> None:
    listing = (
        "LDG.E R6, desc[UR4][R2.64]",
        "@!P0 S2R R6, SR_TID.X",
        "@!P0 IMAD.WIDE R8, R6, 0x4, R10",
        "@!P0 STG.E desc[UR4][R8.64], R7",
    )
    assert gathered_share(code(*listing)) == 0, "a ballot's word at a thread's place"
    without = [line.replace("@!P0 STG", "STG").replace("@!P0 IMAD", "IMAD") for line in listing]
    assert gathered_share(code(*without)) == 1.0, "the other lanes still hold what was loaded"
    renewed = [*listing[:2], "ISETP.GE.AND P0, PT, R0, R1, PT", *listing[2:]]
    assert gathered_share(code(*renewed)) == 1.0, "another predicate of the same name"
    joined = [listing[0], "@P1 BRA 0x30", *listing[1:]]
    assert gathered_share(code(*joined)) == 1.0, "lanes that jump past the write"


def test_a_chain_of_pointers_around_a_loop_is_gathered() -> None:
    lines = code("LDG.E.64 R2, desc[UR4][R2.64]", "ISETP.NE.AND P0, PT, R2, RZ, PT", "@P0 BRA `(.L_x_0)")
    assert gathered_share(lines) == 1.0


def test_nothing_to_say_without_accesses_or_counts() -> None:
    assert gathered_share(()) is None
    assert gathered_share(code("FADD R2, R3, R4")) is None
    assert gathered_share((SassLine(0, "LDG.E R6, desc[UR4][R2.64]"),)) is None
    assert address_arithmetic_share(()) is None
    assert address_arithmetic_share((SassLine(0, "IADD3 R2, R3, R4, RZ"),)) is None


def test_arithmetic_that_reaches_an_address_counts_and_other_does_not() -> None:
    lines = code(
        "IMAD R0, R1, R2, R3",
        "IMAD.WIDE R4, R0, 0x4, R6",
        "LDG.E R8, desc[UR4][R4.64]",
        "IADD3 R9, R8, 0x1, RZ",
        "FADD R10, R8, R9",
    )
    assert address_arithmetic_share(lines) == pytest.approx(2 / 5), "IMAD and IMAD.WIDE of five; IADD3 makes a value"


def test_the_slice_passes_through_moves_and_around_a_loop() -> None:
    lines = code(
        "LDG.E R8, desc[UR4][R4.64]",
        "IADD3 R12, R12, 0x80, RZ",
        "MOV R4, R12",
        "@P0 BRA `(.L_x_0)",
    )
    assert address_arithmetic_share(lines) == pytest.approx(1 / 4)


def test_the_slice_weighs_by_executed_counts() -> None:
    lines = code(("IMAD.WIDE R4, R0, 0x4, R6", 1.0), ("LDG.E R8, desc[UR4][R4.64]", 99.0))
    assert address_arithmetic_share(lines) == pytest.approx(0.01)


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("faults/gather-random", 0.4, 1.0),
        ("faults/stream-copy", 0.0, 0.0),
        ("faults/transpose-uncoalesced", 0.0, 0.0),
        ("gemm/naive", 0.0, 0.0),
        pytest.param(
            "faults/table-rows",
            0.8,
            1.0,
        ),
    ],
)
def test_recorded_kernels(name: str, low: float, high: float) -> None:
    share = gathered_share(recorded.profile(name).lines)
    assert share is not None and low <= share <= high, f"{name}: {share}"


def test_work_on_values_loaded_each_time_is_no_address_arithmetic() -> None:
    # Two rounds of a look-up: what the second load's address comes from is data of the first.
    round_of = ("SHF.R.U32.HI R4, RZ, 0x8, R3", "LOP3.LUT R4, R4, 0xff, RZ, 0xc0, !PT", "LEA R5, R4, R9, 0x2")
    lines = code("IMAD R2, R0, 0x4, R9", "LDS R3, [R2]", *round_of, "LDS R6, [R5]")
    assert address_arithmetic_share(lines) == pytest.approx(1 / 6), "the first IMAD only"
    # A base that was loaded once and is stepped along stays one.
    once = code(("LDG.E R3, desc[UR4][R6.64]", 1.0), "IMAD R5, R3, 0x4, R9", "LDS R6, [R5]")
    assert address_arithmetic_share(once) == pytest.approx(100 / 201)
