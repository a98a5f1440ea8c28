"""The fault of each recorded pair is in the machine code that ran, and not in that of its fix.

`tests/gpu/pair_code.py` does the same for all pairs, recorded or not, on the programs as they were built.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import fault_code
import recorded


def pairs() -> Iterator[tuple[str, str]]:
    names = set(recorded.names())
    for name, kernel in recorded.manifest().items():
        if kernel.twin in names and name in names and kernel.expect != "quiet" and kernel.gain is not False:
            yield name, kernel.twin


def test_the_table_has_every_verdict_of_the_pairs() -> None:
    named = {kernel.expect for kernel in recorded.manifest().values() if kernel.twin and kernel.expect != "quiet"}
    assert named <= set(fault_code.table()), sorted(named - set(fault_code.table()))


@pytest.mark.parametrize(("fault", "fix"), list(pairs()))
def test_the_fault_is_in_the_code(fault: str, fix: str) -> None:
    verdict = recorded.manifest()[fault].expect
    first, second = (recorded.profile(name).opcodes for name in (fault, fix))
    assert fault_code.problem(verdict, first, second, set(first) == set(second)) is None


def test_code_without_the_fault_is_found() -> None:
    """A fix in the place of its fault, for every verdict by which the two must differ."""
    told = {}
    for fault, fix in pairs():
        verdict = recorded.manifest()[fault].expect
        first, second = (recorded.profile(name).opcodes for name in (fault, fix))
        if {"lacks", "fixed", "fewer"} & set(fault_code.table()[verdict]) and set(first) != set(second):
            told[fault] = fault_code.problem(verdict, second, first, False)
    assert len(told) > 5 and all(told.values()), {name: problem for name, problem in told.items() if not problem}


@pytest.mark.parametrize(
    ("prefixes", "found"),
    [(["LD"], 1.0), (["LDG"], 2.0), (["LDG", "LD"], 3.0), (["LDG.E.STRONG", "LD.E.STRONG"], 2.0)],
)
def test_a_prefix_matches_whole_parts_of_an_opcode(prefixes: list[str], found: float) -> None:
    opcodes = {"LD.E.STRONG.GPU": 1.0, "LDG.E.STRONG.SYS": 1.0, "LDG.E": 1.0, "LDGSTS.E": 1.0, "LDS": 1.0}
    assert fault_code.count(opcodes, *prefixes) == found
