"""docs/architectures.md: up to date, and the articles' own figures come out of the data."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import gen_architectures as page
from diagnose.advice import SHARED_LANES
from diagnose.gpus import catalogue
from diagnose.gpus.catalogue import Architecture

SEEDS = Path(__file__).resolve().parents[2] / "shared" / "seeds"


def arch(name: str) -> Architecture:
    return catalogue.architecture(page.product(name).sm)


def test_the_page_is_up_to_date() -> None:
    assert not page.stale(), "run python tests/gen_architectures.py"


def test_every_gpu_that_the_articles_compare_is_there() -> None:
    text = page.page()
    for name in ("V100 SXM2", "T4", "A100 SXM4 40 GB", "RTX 3090 Ti", "RTX 4090", "H100 SXM", "H800", "H200", "B200"):
        assert name in text, name
    assert {name for pair in page.MOVES for name in pair} <= set(page.GPUS)


@pytest.mark.parametrize(
    ("name", "kind", "stated"),
    [
        ("v100-sxm2", "fp16", 139), ("a100-sxm4-40gb", "fp16", 201), ("rtx-3090-ti", "fp16", 79),
        ("rtx-4090", "fp16", 164), ("rtx-4090", "fp8", 328), ("h100-sxm", "fp16", 295),
    ],
)  # fmt: skip
def test_ridge_points_are_the_articles(name: str, kind: str, stated: float) -> None:
    found = page.ridge(page.product(name), kind)
    assert found is not None and round(found) == stated


def test_a_type_without_a_peak_has_no_ridge() -> None:
    assert page.ridge(page.product("a100-sxm4-40gb"), "fp8") is None


def _change(before: str, after: str) -> dict[str, tuple[str, str, str]]:
    return {label: (old, new, change) for label, old, new, change in page.comparison(before, after)}


def test_the_articles_comparisons_come_out() -> None:
    """Article 1: V100 to A100 2.5 and 1.73 times; 3090 Ti to 4090 1.52, 1.35 and 12; A100 to H100 3.17, 2.15."""
    ampere = _change("v100-sxm2", "a100-sxm4-40gb")
    assert ampere["16-bit Tensor"][2] == "2.50×" and ampere["Memory"][2] == "1.73×"
    assert ampere["Shared memory an SM"][:2] == ("96 KB", "164 KB") and ampere["L2"][:2] == ("6 MB", "40 MB")
    assert "Registers an SM" not in ampere  # the same: 256 KB
    ada = _change("rtx-3090-ti", "rtx-4090")
    assert (ada["SMs"][2], ada["Boost clock"][2], ada["L2"][2]) == ("1.52×", "1.35×", "12.0×")
    assert ada["FP32"][2] == "2.06×" and ada["FP8 Tensor"] == ("–", "330 TFLOP/s", "new") and "Memory" not in ada
    hopper = _change("a100-sxm4-40gb", "h100-sxm")
    assert hopper["16-bit Tensor"][2] == "3.17×" and hopper["Memory"][2] == "2.15×" and hopper["L2"][2] == "1.25×"


def test_what_a_move_gains_loses_and_asks_for() -> None:
    ada = " ".join(page.changes("a100-sxm4-40gb", "rtx-4090"))
    assert "`fp8-mma`" in ada and "`tma`" not in ada and "164 to 100 KB" in ada and "no NVLink" in ada
    hopper = " ".join(page.changes("a100-sxm4-40gb", "h100-sxm"))
    assert "`wgmma`" in hopper and "659 of the 989" in hopper and "201 to 295" in hopper
    blackwell = " ".join(page.changes("h200", "b200"))
    assert "Gone: `fp8-wgmma`, `sparse-wgmma`, `wgmma`" in blackwell and "`tcgen05`" in blackwell
    h800 = " ".join(page.changes("h100-sxm", "h800-sxm"))
    assert "FP64 falls to 0.029" in h800 and "0.44 times the NVLink" in h800 and "stays near 295" in h800
    assert "206 and 295 were bound by memory" in " ".join(page.changes("h100-sxm", "h200"))


def test_code_that_is_only_built_anew_keeps_two_thirds() -> None:
    """Article 1: the compatible mma path is not the limit of wgmma. Two thirds by ncu's peaks; no guess for B200."""
    found = page.recompiled(page.product("h100-sxm"), arch("h100-sxm"))
    assert found == pytest.approx(989e12 * 2 / 3, rel=1e-3)
    assert page.recompiled(page.product("a100-sxm4-40gb"), arch("a100-sxm4-40gb")) == 312e12
    assert page.recompiled(page.product("b200"), arch("b200")) is None


def test_stages_of_the_articles_tile() -> None:
    assert [page.stages_alone(arch(name)) for name in ("v100-sxm2", "a100-sxm4-40gb", "rtx-4090", "h100-sxm")] == [
        3, 5, 3, 7,
    ]  # fmt: skip


@pytest.mark.parametrize("name", page.GPUS)
def test_the_fp32_peak_is_lanes_times_clock_once(name: str) -> None:
    """SMs x FP32 lanes x 2 x boost clock is the data sheet's peak: lanes that integers share are in it, once."""
    gpu = page.product(name)
    lanes, clock = arch(name).rates["fp32"], gpu.boost_hz
    assert lanes and clock
    assert gpu.peaks["fp32"] == pytest.approx(gpu.sm_count * lanes * 2 * clock, rel=0.01)


def test_ada_gains_by_sms_and_clock_and_not_by_a_second_doubling() -> None:
    """Article 1: GA10x has the double FP32 path already; Ada's gain is its SMs and clock."""
    old, new = page.product("rtx-3090-ti"), page.product("rtx-4090")
    assert {old.sm, new.sm} <= SHARED_LANES and arch("rtx-3090-ti").rates["fp32"] == arch("rtx-4090").rates["fp32"]
    assert old.boost_hz and new.boost_hz
    grown = new.sm_count / old.sm_count * new.boost_hz / old.boost_hz
    assert new.peaks["fp32"] / old.peaks["fp32"] == pytest.approx(grown, rel=0.01)
    assert "does not count again" in " ".join(page.changes("rtx-3090-ti", "rtx-4090"))
    from_ga100 = page.migration_rules(catalogue.architecture(80), catalogue.architecture(89))
    from_ga10x = page.migration_rules(catalogue.architecture(86), catalogue.architecture(89))
    assert set(from_ga100) - set(from_ga10x) == {"FP32 arithmetic has twice the lanes"}


@pytest.mark.skipif(not SEEDS.is_dir(), reason="the articles are not beside this checkout")
def test_headings_stand_in_the_articles() -> None:
    texts = {path.stem: path.read_text("utf-8").splitlines() for path in SEEDS.glob("*.txt")}
    for tag in page.ARTICLES:
        stem, _, heading = tag.partition("#")
        assert heading in [re.sub(r"\s+", " ", line.strip()) for line in texts[stem]], tag
