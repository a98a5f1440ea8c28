"""Numbers, units and names as text."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnose.render import format as fmt
from diagnose.render import geometry


@pytest.mark.parametrize(
    ("us", "shown"),
    [
        (0.85, "0.850 µs"),
        (12.3, "12.3 µs"),
        (999.4, "999 µs"),
        (999.7, "1.00 ms"),
        (1234, "1.23 ms"),
        (2.5e6, "2.50 s"),
    ],
)
def test_durations_pick_the_unit(us: float, shown: str) -> None:
    assert fmt.duration(us) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0 %"),
        (0.0001, "<0.1 %"),
        (0.0213, "2.1 %"),
        (0.0996, "10 %"),
        (0.413, "41 %"),
        (0.996, "99.6 %"),
        (1, "100 %"),
    ],
)
def test_shares_keep_a_decimal_only_where_it_tells(value: float, shown: str) -> None:
    assert fmt.share(value) == shown


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (4.3e12, "byte/s", "4.30 TB/s"),
        (1e9, "byte", "1.00 GB"),
        (512, "byte", "512 B"),
        (7.9e14, "flop/s", "790 TFLOP/s"),
        (31, "sector", "31 sector"),
        (5.37e7, "inst", "53.7 M inst"),
        (0.413, "share", "41 %"),
        (41.3, "%", "41 %"),
        (908416, "ns", "908 µs"),
        (1.5, "x", "1.50×"),
        (128, "", "128"),
        (1.755, "ghz", "1.75 GHz"),
        (True, "bool", "yes"),
        ("none", "text", "none"),
        (None, "byte", fmt.NOT_MEASURED),
        (math.nan, "byte", fmt.NOT_MEASURED),
        (math.inf, "", fmt.NOT_MEASURED),
    ],
)
def test_quantities_carry_their_unit(value: object, unit: str, shown: str) -> None:
    assert fmt.quantity(value, unit) == shown


def test_speedups_show_their_interval() -> None:
    assert fmt.speedup({"low": 1.31, "expected": 1.54, "high": 1.9}) == "1.54× (1.31–1.90×)"
    assert fmt.speedup({"low": None, "expected": 1.5, "high": None}) == "1.50×"
    assert fmt.speedup(None) == fmt.NOT_MEASURED


def test_a_condition_without_a_threshold_is_its_value() -> None:
    assert fmt.condition({"value": 31, "unit": "sector", "op": ">", "threshold": 4}) == "31 sector > 4 sector"
    assert fmt.condition({"value": None, "unit": None, "op": ">", "threshold": None}) == fmt.NOT_MEASURED


def test_invisible_characters_are_written_out() -> None:
    assert fmt.clean("a\x1b[31m\u202eb\x00\ud800\u2066") == "a\\x1b[31m\\u202eb\\x00\\ud800\\u2066"
    assert fmt.clean("a\nb") == "a\\x0ab"
    assert fmt.clean("a\nb", newlines=True) == "a\nb"
    assert fmt.clean("größe 寸法 ×") == "größe 寸法 ×"


def test_long_names_are_cut_in_the_middle() -> None:
    shown = fmt.shorten("gemm<" + "x" * 100_000 + ", 128>", 60)
    assert len(shown) <= 60
    assert shown.startswith("gemm<xx") and shown.endswith(", 128>") and "…" in shown


@given(st.floats(min_value=1e-6, max_value=1e17))
def test_digits_are_close_to_the_number(value: float) -> None:
    assert float(fmt.digits(value).replace(",", "")) == pytest.approx(value, rel=0.0051)


@given(st.one_of(st.none(), st.floats(), st.integers(), st.text(), st.booleans()), st.text(max_size=8))
def test_nothing_prints_none_or_nan(value: object, unit: str) -> None:
    shown = fmt.quantity(value, unit)
    if not isinstance(value, str) and unit.isascii():
        assert not {"none", "nan", "inf"} & set(shown.replace(unit, "").lower().split())


@given(st.text())
def test_cleaned_text_has_no_control_characters(text: str) -> None:
    assert fmt.clean(text).isprintable() or all(c.isprintable() or c.isspace() for c in fmt.clean(text))


def test_labels_of_steep_roofs_stay_inside_the_narrowest_chart() -> None:
    rate = 365e12  # attention_fused on an H200
    levels = (("hbm", "HBM", 2199, 4.43e12), ("l2", "L2", 135, 9.95e12), ("l1", "L1 / shared", 24.3, 28.5e12))
    chart = geometry.roofline(
        {
            "points": [{"level": a, "label": b, "intensity": x, "flops_per_s": rate} for a, b, x, _ in levels],
            "bandwidth_roofs": [{"level": a, "label": b, "bytes_per_s": y} for a, b, _, y in levels],
            "compute_roofs": [
                {"label": "BF16 wgmma", "flops_per_s": 953e12},
                {"label": "BF16 mma", "flops_per_s": 637e12},
            ],
        }
    )
    assert chart is not None and len(chart["slants"]) == 3
    for roof in chart["slants"]:
        spot, width = roof["spot"], 6.0 * len(roof["label"])
        at = float(spot["x"].rstrip("%")) / 100 * 366 + float(spot["dx"])
        left = at - width if spot["anchor"] == "end" else at
        assert left >= 0 and left + width <= 366, roof
