"""What double arithmetic costs beside itself (`diagnose/sass/doubles.py`), on small listings and recorded kernels."""

from __future__ import annotations

import pytest

import recorded
from diagnose.model import SassLine
from diagnose.sass.doubles import Doubles, doubles


def found(*listing: str) -> Doubles:
    """Of lines that were executed once each."""
    counted = doubles([SassLine(16 * at, text, 1.0) for at, text in enumerate(listing)])
    assert counted is not None
    return counted


def test_both_halves_of_a_constant_count() -> None:
    step = found(
        "UMOV UR8, 0x9f02676f",
        "UMOV UR9, 0x3ef3b266",
        "DFMA R26, R24, R26, UR8",
        "UMOV UR10, 0x10",
        "IADD3 R2, R3, UR10, RZ",
    )
    assert step == Doubles(moves=2, in_functions=0), "two of three moves, and a product is no function"


def test_moves_of_results_count_and_others_do_not() -> None:
    assert found("DADD R6, R2, R4", "IMAD.MOV.U32 R9, RZ, RZ, R7", "MOV R10, R1").moves == 1
    # A register that was written anew is no half of a double any more.
    assert found("DADD R6, R2, R4", "FADD R7, R1, R1", "IMAD.MOV.U32 R9, RZ, RZ, R7").moves == 0
    assert found("MOV R2, 0x1", "FADD R2, R1, R1", "DADD R6, R2, R4").moves == 0


def test_a_move_before_a_loops_end_serves_its_head() -> None:
    assert found("DADD R6, R2, R4", "MOV R2, R8", "BRA 0x0").moves == 1


def test_work_on_the_bits_of_a_double_makes_a_function() -> None:
    scaled = ("DFMA R6, R2, R4, R4", "DFMA R6, R6, R4, R4", "LEA R7, R0, R7, 0x14", "DMUL R6, R6, R2")
    assert found(*scaled).in_functions == 3, "an exponential scales by its exponent's bits"
    assert found("MUFU.RCP64H R3, R5", "DFMA R6, R2, R4, R4").in_functions == 1
    # The stretch before a branch is judged by itself.
    assert found("DFMA R6, R2, R4, R4", "BRA 0x20", *scaled).in_functions == 3
    # A maximum of two doubles selects halves, and knows nothing of their bits.
    assert found("DADD R6, R2, R4", "DSETP.MAX.AND P0, PT, R6, R2, PT", "FSEL R6, R6, R2, P0").in_functions == 0


def test_nothing_to_say_without_counts() -> None:
    assert doubles([SassLine(0, "DADD R6, R2, R4")]) is None
    assert doubles([]) is None


@pytest.mark.parametrize(
    ("name", "moves", "functions"),
    [
        ("faults/spring-plain", 0.09, 0.0),  # literals in plain arithmetic: two moves each
        ("faults/h-polynomial-literals", 0.10, 0.0),
        ("faults/stream-copy", 0.0, 0.0),
    ],
)
def test_recorded_kernels(name: str, moves: float, functions: float) -> None:
    context = recorded.context(name)
    assert context.value("double_move_share") == pytest.approx(moves, abs=0.01)
    assert context.value("double_function_share") == functions
