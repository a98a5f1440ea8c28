"""What part of its peak a resource sustained when it was measured, and that a kernel's limits are against that."""

from __future__ import annotations

from typing import Any

import pytest

import recorded
from diagnose import facts, limits
from diagnose.ceilings.record import Measured, Record
from diagnose.gpus import catalogue

SMS, BOOST = 132, 1980e6


def h200() -> catalogue.Product:
    found = catalogue.product("NVIDIA H200", 90)
    assert found is not None
    return found


def a_record(*values: Measured) -> Record:
    return Record("NVIDIA H200", None, "sm_90", "580", {}, "2026-11-30", values)


def rate(key: str, per_cycle: float, mhz: float = BOOST / 1e6, unit: str = "op/s") -> Measured:
    """So many operations a cycle and SM, at that clock."""
    return Measured(key, per_cycle * SMS * mhz * 1e6, unit, 11, 0.01, mhz)


def shares(*values: Measured) -> dict[str, float]:
    known = catalogue.ceilings(h200(), a_record(*values))
    return {
        name: round(ceiling.value, 6)
        for name, ceiling in known.items()
        if name.startswith("share:") and ceiling is not None and ceiling.source == "measured"
    }


def test_shares_do_not_depend_on_the_clock_of_the_measurement():
    for mhz in (1980.0, 1500.0):
        assert shares(rate("tensor:wgmma:bf16:fp32:m64n256k16:ss", 0.5 * 4096, mhz), rate("fp32", 0.9 * 256, mhz)) == {
            "share:tensor:wgmma": 0.5,
            "share:fp32": 0.9,
        }


def test_the_best_type_counts_and_sparse_is_another_path():
    assert shares(
        rate("tensor:wgmma:bf16:fp32:m64n256k16:ss", 0.9 * 4096),
        rate("tensor:wgmma:e4m3:fp32:m64n256k32:ss", 0.95 * 8192),
        rate("tensor:sparse-wgmma:bf16:fp32:m64n256k32:ss", 0.99 * 8192),
        rate("tensor:mma:bf16:fp32:m16n8k16", 0.93 * 2730.667),
    ) == {"share:tensor:wgmma": 0.95, "share:tensor:mma": 0.93}


def test_more_than_the_peak_is_the_peak():
    assert shares(rate("issue", 7.0, unit="inst/s")) == {"share:issue": 1.0}


def test_nothing_measured_gives_no_share():
    assert shares() == {}


@pytest.mark.parametrize(
    ("name", "key", "peak"), [("faults/orbit-float", "fp32", 256), ("faults/orbit-double", "fp64", 128)]
)
def test_a_pipe_s_limit_is_against_what_the_pipe_sustained(name, key, peak):
    kernel = recorded.profile(name)

    def limit(*values: Measured) -> Any:
        known = {n: c for n, c in catalogue.ceilings(h200(), a_record(*values)).items() if c is not None}
        context = facts.context(kernel, known, (), recorded.declared(name))
        return next(found for found in limits.compute(context) if found.resource == key)

    high, low = limit(rate(key, peak)), limit(rate(key, 0.98 * peak))
    assert high.ceiling_source == low.ceiling_source == "measured"
    assert high.utilization < low.utilization
    assert high.utilization == pytest.approx(0.98 * low.utilization) or low.utilization == 1.0
