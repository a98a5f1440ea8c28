"""docs/ceilings.md: what the articles state beside a measurement, computed and said as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

import gen_ceilings as page
from diagnose.ceilings.record import Measured, Record, Refused
from diagnose.gpus import catalogue

SEEDS = Path(__file__).resolve().parents[2] / "shared" / "seeds"


def record(values, refused=(), clock=1980.0, units=None):
    taken = tuple(
        Measured(key, value, (units or {}).get(key, "op/s"), 11, 0.01, clock) for key, value in values.items()
    )
    return Record("NVIDIA H200", None, "sm_90", "580", {"sm_max": 1980.0}, "2026-11-30", taken, tuple(refused))


def figure(measured, stated=(29.0, 29.0), unit="cycle", apart="the reason"):
    return page.Figure("a figure", "hardware", "a heading", "H800", stated, "", unit, measured, apart)


def test_the_page_is_up_to_date():
    assert not page.stale(), "run python tests/gen_ceilings.py"


def test_nothing_measured_is_said_to_be_so():
    text = page.page(None)
    assert "No measurement of an H200 is shipped" in text
    rows = [line for line in text.splitlines() if line.startswith("| Shared memory, dependent load")]
    assert rows == ["| Shared memory, dependent load | 29 cycles | H800 PCIe | not measured |  |"]


@pytest.mark.parametrize(
    ("value", "said"),
    [(31.0, "agrees"), (26.2, "agrees"), (33.0, "differs: the reason"), (23.0, "differs: the reason")],
)
def test_a_tenth_tells_agreement_from_difference(value, said):
    row = page._row(figure({"value": "latency:smem"}), record({"latency:smem": value}), page.product())
    assert row.endswith(f"| {said} |"), row


def test_a_refused_ceiling_is_not_filled_in():
    given = record({"hbm": 4e12}, [Refused("latency:smem", "the SM clock moved by 9.0%, more than 3%")])
    got = page.found(figure({"value": "latency:smem"}), given, page.product())
    assert got.value is None and got.why == "refused: the SM clock moved by 9.0%, more than 3%"


def test_ratios_differences_and_shares():
    gpu = page.product()
    given = record({"a": 300.0, "b": 120.0, "hbm:read": 2.4e12})
    assert page.found(figure({"over": ["a", "b"]}), given, gpu).value == 2.5
    assert page.found(figure({"minus": ["a", "b"]}), given, gpu).value == 180.0
    assert page.found(figure({"of_datasheet": "hbm:read"}), given, gpu).value == 0.5


def test_a_share_of_peak_is_at_the_clock_that_the_kernel_ran_at():
    gpu = page.product()
    key = "tensor:wgmma:bf16:fp32:m64n256k16:ss"
    half = 0.5 * 4096 * 132  # of 4,096 operations a cycle and SM (architectures.yaml)
    for clock in (1980.0, 1500.0):
        given = record({key: half * clock * 1e6}, clock=clock)
        assert page.found(figure({"of_peak": [key]}), given, gpu).value == pytest.approx(0.5)


def test_every_figure_has_a_heading_of_its_article_and_a_way_to_be_computed():
    ways = {"value": str, "over": list, "minus": list, "of_datasheet": str, "of_peak": list, "ladder": list}
    found = page.figures()
    assert len({one.figure for one in found}) == len(found)
    for one in found:
        assert one.article in page.content()["articles"]
        assert one.stated is not None or one.says, one.figure
        if one.stated is not None:
            assert one.stated[0] <= one.stated[1] and one.apart, one.figure  # what may differ says why
        if one.measured is not None:
            ((how, of),) = one.measured.items()
            assert isinstance(of, ways[how]) and one.unit in {"cycle", "share", "ratio"}, one.figure


@pytest.mark.skipif(not SEEDS.is_dir(), reason="the articles are not here")
def test_the_headings_stand_in_the_articles():
    text = "\n".join(path.read_text("utf-8") for path in SEEDS.glob("*.txt"))
    lines = {line.strip() for line in text.splitlines()}
    for one in (*page.figures(),):
        assert one.heading in lines, one.heading
    for error in page.content()["errors"]:
        assert error["heading"] in lines, error["heading"]
    for title in page.content()["articles"].values():
        assert title in text, title


def test_the_shipped_measurement_has_or_refused_each_figure():
    shipped = catalogue.shipped(page.product())
    if shipped is None:
        pytest.skip("no measurement of an H200 is shipped")
    known = {one.key for one in shipped.ceilings} | {one.key for one in shipped.refused}
    missing = {key for one in page.figures() for key in page.keys(one)} - known
    assert not missing
