"""Advice: the articles' own examples by hand, cases in which an advisor must stay silent, and recorded kernels."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import recorded
from diagnose import advice, api
from diagnose.advisors import ADVISORS, advise
from diagnose.gpus import catalogue
from diagnose.model import SassLine
from diagnose.occupancy import Block
from diagnose.report import Document
from diagnose.rules import active_rules

ROOT = Path(__file__).resolve().parents[1]
SEEDS = ROOT.parent / "shared" / "seeds"
H100 = catalogue.architecture(90)
KIB = 1024


# --- stages and shared memory (article 2, 3.3: 500 ns and 300 ns; tiles of 32 KB in 228 KB) ---


def test_500_ns_against_300_ns_take_two_stages_and_three_are_safer() -> None:
    assert advice.tiles_to_cover(500, 300) == 2
    found = advice.stages(
        latency_ns=500, tile_ns=300, blocks=1, stages_now=2, tile_bytes=32 * KIB, options=((1, 7), (2, 3), (3, 2))
    )
    assert found.applies and "ceil(500 / 300) = 2 tiles" in found.text and "1 x 3 would do" in found.text
    assert found.inputs["tiles_needed"] == 3


def test_tiles_of_32_kb_in_228_kb() -> None:
    """96 KB for three stages; 7 stages alone, 3 each for two blocks, 2 each for three."""
    assert 3 * 32 * KIB == 96 * KIB
    budget = advice.stage_budget(32 * KIB, 228 * KIB, reserved=KIB, most_per_block=227 * KIB)
    assert budget == ((1, 7), (2, 3), (3, 2), (4, 1))
    # with 40 KB for the output, one block of 5 stages, two of 2
    assert advice.stage_budget(32 * KIB, 228 * KIB, KIB, 40 * KIB, 227 * KIB) == ((1, 5), (2, 2), (3, 1))
    assert advice.stage_budget(300 * KIB, 228 * KIB) == ()


def test_two_blocks_of_two_stages_against_one_of_four() -> None:
    """Article 2, 3.3: 2 x 2 was 8 % faster than 4 x 1. As many tiles, and a second block."""
    options = advice.stage_budget(32 * KIB, 228 * KIB, KIB, most_per_block=227 * KIB)
    found = advice.stages(
        latency_ns=500, tile_ns=300, blocks=1, stages_now=4, tile_bytes=32 * KIB, options=options, exposed=0.3
    )
    assert found.applies and "2 x 2 = 4" in found.text and "measured" in found.text


@pytest.mark.parametrize(
    ("stages_now", "exposed", "options"),
    [
        (2, 0.04, ((1, 7), (2, 3))),  # covered: nothing waits
        (4, 0.3, ((1, 4),)),  # enough stages, and no room for another block
        (2, 0.95, ((1, 7), (2, 3))),  # a full resource, see below
    ],
)
def test_stages_stay_silent(stages_now: int, exposed: float, options: tuple[tuple[int, int], ...]) -> None:
    found = advice.stages(
        latency_ns=500, tile_ns=300, blocks=1, stages_now=stages_now, tile_bytes=32 * KIB, options=options,
        exposed=exposed, busiest=0.95 if exposed > 0.9 else 0.5,
    )  # fmt: skip
    assert not found.applies and found.text


def test_no_split_of_shared_memory_may_hold_enough() -> None:
    found = advice.stages(
        latency_ns=2000, tile_ns=100, blocks=1, stages_now=2, tile_bytes=96 * KIB, options=((1, 2),), exposed=0.5
    )
    assert found.applies and "smaller tiles" in found.text


# --- registers (article 2, 5.3: 128 and 129 of 64 K) ---


def test_129_registers_leave_one_block_where_128_leave_two() -> None:
    found = advice.registers(H100, Block(256, 129, 0))
    assert found.applies and (found.inputs["blocks"], found.inputs["step"], found.inputs["blocks_there"]) == (1, 128, 2)
    assert "34,816 of 65,536" in found.text and "2 times the warps" in found.text


def test_128_registers_stand_on_the_edge() -> None:
    found = advice.registers(H100, Block(256, 128, 0))
    assert found.applies and found.inputs["step"] == 129 and "at 129 only 1" in found.text


def test_fewer_registers_within_a_step_change_nothing() -> None:
    """Article 2, 5.3: 32 fewer may leave one block as before."""
    found = advice.registers(H100, Block(256, 168, 0))
    assert not found.applies and "The next step is at 128" in found.text
    # full occupancy at 32 registers: one more costs a quarter, as of every kernel of that size
    assert not advice.registers(H100, Block(256, 32, 0)).applies


def test_registers_are_silent_where_they_are_not_the_limit_or_nobody_waits() -> None:
    limited = advice.registers(H100, Block(256, 129, 200 * KIB))
    assert not limited.applies and "Shared memory leaves no more" in limited.text
    assert not advice.registers(H100, Block(256, 129, 0), no_issue=0.1).applies
    assert not advice.registers(catalogue.architecture(999), Block(256, 129, 0)).applies


# --- wgmma ---


def test_operand_cycles_are_those_of_the_rule() -> None:
    for n in (8, 64, 128, 256):
        tensor, shared = advice.operand_cycles(n, a_from_shared=True)
        assert tensor == 2 * 64 * n * 16 / 4096 and shared == (64 * 16 * 2 + n * 16 * 2) / 128
    assert advice.operand_cycles(64, True) == (32, 32)  # equal: where the rule small-wgmma-n begins


def test_ss_at_n_64_and_rs_that_spills() -> None:
    found = advice.operand_a(n=64, operands="SS")
    assert found.applies and "100%" in found.text
    found = advice.operand_a(n=128, operands="RS", spill_share=0.4)
    assert found.applies and "SS gives those registers back" in found.text
    assert not advice.operand_a(n=64, operands="SS", tensor_utilization=0.9).applies  # it is fed as it is
    for n, operands in ((256, "SS"), (128, "RS"), (32, "SS")):
        assert not advice.operand_a(n=n, operands=operands, spill_share=0.0).applies


def test_n_256_takes_128_registers() -> None:
    """Article 2, 2.2: N = 256 with FP32 accumulators, 128 registers a thread; spills undo it."""
    spilling = advice.wgmma_n(
        n=256, registers=255, spill_share=0.5, blocks=1, limiter="registers", tensor_utilization=0.4
    )
    assert spilling.applies and "N/2 = 128 registers" in spilling.text and "spills" in spilling.text
    alone = advice.wgmma_n(n=256, registers=240, spill_share=0, blocks=1, limiter="registers", tensor_utilization=0.4)
    assert alone.applies and "one block" in alone.text
    for n, use, limiter in ((256, 0.93, "registers"), (128, 0.4, "registers"), (256, 0.4, "shared memory")):
        assert not advice.wgmma_n(
            n=n, registers=200, spill_share=0, blocks=1, limiter=limiter, tensor_utilization=use
        ).applies


# --- clusters ---


def test_112_of_132_sms() -> None:
    """Seven clusters of 16, one a GPC: 112 of 132 SMs, 20 idle; and more than the portable 8."""
    found = advice.cluster_size(size=16, active=7, sms=132, blocks_per_sm=1, grid=1120)
    assert found.applies and "fill 112 of 132 SMs, 20 stay idle (15%)" in found.text
    assert "more than 8" in found.text


def test_clusters_that_cost_nothing_are_silent() -> None:
    assert not advice.cluster_size(size=2, active=66, sms=132, blocks_per_sm=1, grid=13200).applies
    assert not advice.cluster_size(size=1, active=132, sms=132, blocks_per_sm=1, grid=132).applies
    # fewer blocks than places: what is idle is idle for want of blocks
    assert not advice.cluster_size(size=8, active=14, sms=132, blocks_per_sm=1, grid=64).applies


def test_the_other_costs_of_a_cluster() -> None:
    waiting = advice.cluster_size(size=2, active=66, sms=132, blocks_per_sm=1, grid=1320, barrier_wait=0.2)
    assert waiting.applies and "slowest block" in waiting.text
    traffic = advice.cluster_size(
        size=8, active=16, sms=128, blocks_per_sm=1, grid=1280, broadcast=(5.57e12, 0.386e12)
    )  # as measured on an H200
    assert traffic.applies and "0.39 TB/s in clusters of 8, 5.6 in clusters of 2" in traffic.text
    tail = advice.cluster_size(size=8, active=16, sms=128, blocks_per_sm=1, grid=129)
    assert not tail.applies  # single blocks would leave the same tail


def test_a_cluster_that_shares_nothing() -> None:
    found = advice.dsm_or_multicast(size=4, multicast=False, remote=False, tensor=False)
    assert found.applies and "shares nothing" in found.text
    assert advice.dsm_or_multicast(size=4, multicast=False, remote=True, tensor=True).applies  # tiles read remotely
    assert not advice.dsm_or_multicast(size=4, multicast=True, remote=True, tensor=True).applies
    assert not advice.dsm_or_multicast(size=4, multicast=False, remote=True, tensor=False).applies  # a reduction
    assert not advice.dsm_or_multicast(size=1, multicast=False, remote=False, tensor=True).applies


# --- copies ---


def _tma(**changed: Any) -> advice.Answer:
    given: dict[str, Any] = {
        "bytes_per_tma": None, "async_copies": 0.0, "copy_share": 0.0, "copied_bytes": None, "gathered_share": 0.0,
        "break_even": advice.break_even_bytes(4.1e12, 132, 1.83e9), "has_tma": True,
    }  # fmt: skip
    return advice.tma_or_plain(**{**given, **changed})


def test_170_cycles_are_the_time_of_about_three_kilobytes() -> None:
    assert advice.break_even_bytes(4.1e12, 132, 1.83e9) == pytest.approx(2885, abs=5)
    assert _tma(bytes_per_tma=64.0).applies  # small boxes
    assert not _tma(bytes_per_tma=16384.0).applies


def test_cp_async_of_a_128_by_128_tile() -> None:
    """Article 2, 3.1: 128 x 128 halves by 16 bytes are 2,048 copies of a thread, 64 of a warp; two boxes of TMA."""
    found = _tma(async_copies=64.0, copy_share=0.1, copied_bytes=128.0 * 128 * 2)
    assert found.applies and found.inputs["boxes"] == 2
    assert not _tma(async_copies=64.0, copy_share=0.1, copied_bytes=32768.0, gathered_share=0.9).applies  # irregular
    assert not _tma(async_copies=64.0, copy_share=0.1, copied_bytes=32768.0, has_tma=False).applies
    assert not _tma(async_copies=64.0, copy_share=0.01, copied_bytes=32768.0).applies
    assert not _tma().applies


# --- L2 ---


def _l2(**changed: Any) -> advice.Answer:
    given: dict[str, Any] = {
        "l2_bytes": 50e6, "hbm_bytes": 100e6, "useful_bytes": 30e6, "hbm_utilization": 0.6, "in_l2": False,
    }  # fmt: skip
    return advice.l2_window(**{**given, **changed})


def test_what_a_window_can_hold() -> None:
    assert "All of it fits" in _l2().text and _l2().applies
    assert "order of tiles" in _l2(useful_bytes=60e6).text and _l2(useful_bytes=60e6).applies
    assert _l2(useful_bytes=None, hbm_bytes=20e6, in_l2=True).applies  # the next kernel finds it


@pytest.mark.parametrize(
    "changed",
    [
        {"hbm_bytes": 31e6},  # each byte once
        {"waste": 0.5},  # the surplus is unused sectors
        {"hbm_utilization": 0.1},
        {"useful_bytes": None},  # a stream larger than L2 (article 1: a larger L2 brings it nothing)
    ],
)
def test_l2_stays_silent(changed: dict[str, Any]) -> None:
    assert not _l2(**changed).applies


# --- small shapes, FP8, FP32 ---


def test_512_cubed_is_under_the_lines() -> None:
    """Article 2, 5.1: M = N = K = 512 was 3 % slower; K above 1,024, M and N above 256 pay."""
    found = advice.small_shape(m=512, n=512, k=512, stages_now=4, us=13.0)
    assert found.applies and "K = 512" in found.text and "8 steps" in found.text and "M =" not in found.text
    assert advice.small_shape(m=8, n=8192, k=8192).applies
    assert not advice.small_shape(m=257, n=257, k=1025).applies


def test_fp8_with_its_conversions() -> None:
    """A small product: the pass that quantises takes a good part of what FP8 saves; a large one hides it."""
    small = advice.fp8_conversions(m=1024, n=1024, k=1024, conversion_share=0, hbm_bytes_per_s=4.1e12, us=13.2)
    assert small.applies and small.inputs["quantise_us"] == 2.0  # 3.1 MB are less than the shortest kernel
    large = advice.fp8_conversions(m=8192, n=8192, k=8192, conversion_share=0, hbm_bytes_per_s=4.1e12, us=786)
    assert not large.applies and large.inputs["quantise_us"] == pytest.approx(3 * 8192**2 / 4.1e12 * 1e6)
    assert not advice.fp8_conversions(
        m=1024, n=1024, k=1024, conversion_share=0.1, hbm_bytes_per_s=4.1e12, us=13.2
    ).applies


def test_fp32_units_are_counted_once() -> None:
    """GA10x and Ada: half of the FP32 lanes are the integer lanes; as many integers as FP32 leave half of the peak."""
    for sm in (86, 89):
        found = advice.fp32_units(sm=sm, fp32_share=0.4, integer_share=0.4)
        assert found.applies and found.inputs["reachable"] == pytest.approx(0.5)
        assert advice.fp32_units(sm=sm, fp32_share=0.3, integer_share=0.5).inputs["reachable"] == pytest.approx(0.3)
        assert not advice.fp32_units(sm=sm, fp32_share=0.6, integer_share=0.05).applies
        assert not advice.fp32_units(sm=sm, fp32_share=0.0, integer_share=0.5).applies
    assert not advice.fp32_units(sm=90, fp32_share=0.4, integer_share=0.4).applies


# --- asked of recorded kernels ---


def _of(name: str, **declared: Any) -> dict[str, dict[str, Any]]:
    context = recorded.context_of(recorded.profile(name), declared)
    return {entry["name"]: entry for entry in advise(context, every=True)}


def test_every_advisor_answers_every_recorded_kernel() -> None:
    """An answer of each, with finite numbers; and no advisor that speaks always."""
    spoke: dict[str, int] = {}
    for name in recorded.names():
        found = advise(recorded.context(name), every=True)
        assert len(found) == len(ADVISORS)
        for entry in found:
            assert ("text" in entry) != ("silent" in entry)
            spoke[entry["name"]] = spoke.get(entry["name"], 0) + ("text" in entry)
            for value in entry["inputs"].values():
                assert isinstance(value, bool | str) or math.isfinite(value), (name, entry)
    total = len(recorded.names())
    assert all(count < total / 4 for count in spoke.values()), spoke


def test_stages_of_the_gemm_ladder() -> None:
    """Four stages of 48 KB (128 x 64 and 256 x 64 of 2 bytes), by mbarriers and by commit groups, read off the code."""
    for step in ("gemm/tma", "gemm/specialised", "gemm/multicast", "gemm/wgmma"):
        inputs = _of(step)["stages"]["inputs"]
        assert inputs["stages"] == 4 and inputs["tile_bytes"] == pytest.approx(49152, rel=0.03), step
        # what the Tensor pipe needs for 2 x 128 x 256 x 64 operations at 4,096 a cycle
        cycles = 2 * 128 * 256 * 64 / 4096
        clock = recorded.context(step).value("clock_ghz")
        assert clock is not None and inputs["tile_ns"] == pytest.approx(cycles / clock, rel=0.15), step


def test_a_pipeline_that_waits_is_told_what_would_cover_it() -> None:
    """The same kernel with fewer tiles a second worked off, and mbarriers that nobody covers."""
    context = recorded.context_of(recorded.profile("gemm/tma"), {"exposed_mbarrier": 0.4, "top_utilization": 0.3})
    entry = next(e for e in advise(context, every=True) if e["name"] == "stages")
    assert "text" in entry and "Stages cover latency only" in entry["text"]
    assert entry["inputs"]["tiles_needed"] > 4


def test_wgmma_operands_and_width_are_read_off_the_code() -> None:
    assert _of("gemm/wgmma")["operand-a"]["inputs"]["operands"] == "SS"
    assert _of("gemm/wgmma")["wgmma-n"]["inputs"]["n"] == 256
    assert "SS+RS" in _of("attention/tma")["operand-a"]["inputs"]["operands"]
    assert _of("gemm/mma")["operand-a"]["silent"] == "no wgmma"


def test_clusters_that_share_and_that_do_not() -> None:
    assert "silent" in _of("gemm/multicast")["dsm-or-multicast"]
    # its sums go through distributed shared memory, which only the code shows
    assert _of("reduction/cluster")["dsm-or-multicast"]["inputs"]["remote_shared_memory"] is True
    assert "no cluster" in _of("gemm/tma")["dsm-or-multicast"]["silent"]


def test_a_cluster_in_which_no_block_reads_another_s_memory() -> None:
    """The same reduction without the mapping of remote addresses."""
    kernel = recorded.profile("reduction/cluster")
    lines = tuple(line for line in kernel.lines if "0x654" not in line.text)
    assert len(lines) < len(kernel.lines)
    found = advise(recorded.context_of(replace(kernel, lines=lines), {}))
    assert "dsm-or-multicast" in [entry["name"] for entry in found]
    nothing: tuple[SassLine, ...] = ()
    unknown = advise(recorded.context_of(replace(kernel, lines=nothing), {}), every=True)
    assert "no code" in next(e for e in unknown if e["name"] == "dsm-or-multicast")["silent"]


def test_shapes_come_from_the_declaration() -> None:
    small = _of("gemm/tma", gemm_m=512.0, gemm_n=512.0, gemm_k=512.0)["small-shape"]
    assert "K = 512" in small["text"] and small["inputs"]["stages"] == 4
    assert "--problem" in _of("gemm/tma")["small-shape"]["silent"]
    assert "asynchronous" in _of("gemm/naive", gemm_m=512.0, gemm_n=512.0, gemm_k=512.0)["small-shape"]["silent"]


# --- where it is shown ---


def _document(name: str, **options: Any) -> Document:
    profile = recorded.read(recorded.report_of(name))
    return api.examine(profile, api.load_rules(api.Options()), api.Options(source=False, **options))


def test_the_document_holds_what_applies_and_all_with_facts_all() -> None:
    kernel = _document("gemm/register")["kernels"][0]
    assert [entry["name"] for entry in kernel["advice"]] == ["registers"]
    assert kernel["advice"][0]["inputs"]["step"] == 129
    every = _document("gemm/register", all_facts=True)["kernels"][0]["advice"]
    assert len(every) == len(ADVISORS) and sum("silent" in entry for entry in every) == len(ADVISORS) - 1
    json.dumps(every, allow_nan=False)


def test_text_and_page_show_it() -> None:
    from rich.console import Console

    from diagnose.render import html, terminal

    document = _document("gemm/register")
    shown = {}
    for verbose in (False, True):
        console = Console(record=True, width=110)
        terminal.render(document, console, verbose)
        shown[verbose] = console.export_text()
    assert "Registers at a step" in shown[True] and "Registers at a step" not in shown[False]
    assert "Advice from its numbers" in html.render(document)
    kernel = {
        **document["kernels"][0],
        "advice": [{"title": "<b>t</b>", "text": "<script>x</script>", "see": ["a:<i>"]}],
    }
    page = html.render({**document, "kernels": [kernel]})
    assert "<script>x" not in page and "&lt;script&gt;x" in page


# --- the articles, rules and studies that are named ---


def test_rules_and_studies_exist() -> None:
    rules = {rule.id for rule in active_rules(api.load_rules(api.Options()))}
    studies = {path.stem for path in (ROOT / "rules" / "studies").glob("*.yaml")}
    for advisor in ADVISORS:
        assert advisor.articles
        for one in advisor.see:
            kind, _, name = one.partition(":")
            assert name in {"rule": rules, "study": studies}[kind], one


@pytest.mark.skipif(not SEEDS.is_dir(), reason="the articles are not beside this checkout")
def test_headings_stand_in_the_articles() -> None:
    from diagnose import descriptor

    texts = {path.stem: path.read_text("utf-8").splitlines() for path in SEEDS.glob("*.txt")}
    for tag in (*descriptor.ARTICLES, *(tag for advisor in ADVISORS for tag in advisor.articles)):
        stem, _, heading = tag.partition("#")
        assert heading in [re.sub(r"\s+", " ", line.strip()) for line in texts[stem]], tag
