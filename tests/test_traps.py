"""The traps in diagnosis (field notes), one test each, on recorded kernels, some with a metric changed.

Not written here, and why:

- 17 (helpers in a report) and 22 (an operator of many small launches): about the whole report, not a kernel; they
  belong to the tests of the document and of `diagnose.program`.
- 12, second half (a tile of fewer than 64 rows): the tile is in no counter and no opcode.
- 4, first half (a larger grid at the same occupancy): needs one kernel at two grids; the half on occupancy is here.
- 14, second half (a step-by-step comparison that mixes builds): belongs to `diagnose compare`.
- 33, second half (0.8 or 5 microseconds a request): needs Little's law over requests in flight, which no fact gives.
"""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

import recorded
from diagnose import limits
from diagnose.facts import CATALOGUE
from diagnose.gpus.catalogue import architecture
from diagnose.model import Diagnosis, Scalar
from recorded import changed, diagnose, diagnosis, outcome, profile, rules, summary

ELAPSED = ".avg.pct_of_peak_sustained_elapsed"


def rule_ids(found: Diagnosis) -> set[str]:
    return {f.rule for f in found.findings}


def loud(found: Diagnosis) -> set[str]:
    return {f.rule for f in found.findings if f.severity != "note"}


def number(found: Diagnosis, fact: str) -> float:
    value = found.facts[fact].value
    assert isinstance(value, float | int), f"{fact} is {value!r}, missing {found.facts[fact].missing}"
    return float(value)


def test_trap_01_the_verdict_belongs_to_the_launch_not_the_function() -> None:
    """The same code on 16 blocks leaves SMs idle, and on a full GPU is at the roof of HBM."""
    full = profile("faults/stream-copy")
    grid = {"launch__grid_size": 16.0, "launch__grid_dim_x": 16.0, "launch__waves_per_multiprocessor": 16 / 132 / 8}
    slow = {f"gpu__dram_throughput{ELAPSED}": 9.0, "dram__bytes_read.sum": 5e7, "dram__bytes_write.sum": 5e7}
    starved = diagnose(changed(full, {**grid, **slow, "gpu__time_duration.sum": 100_000.0}))
    assert diagnosis("faults/stream-copy").verdict.rule == "hbm-bandwidth", summary(diagnosis("faults/stream-copy"))
    assert starved.verdict.rule in {"small-grid", "under-split"}, summary(starved)
    same = {diagnosis("faults/add-plain").verdict.rule, diagnosis("faults/add-short").verdict.rule}
    assert profile("faults/add-plain").name == profile("faults/add-short").name
    assert same == {"hbm-bandwidth", "launch-bound"}, f"add_vectors at two sizes: {same}"


def test_trap_02_a_full_l1_from_sector_amplification_limits_before_dram_at_70_percent() -> None:
    kernel = profile("faults/record-field")
    stages = {f"gpu__dram_throughput{ELAPSED}": 70.0, f"l1tex__data_pipe_lsu_wavefronts{ELAPSED}": 89.0}
    idle = {f"lts__t_sectors{ELAPSED}": 40.0, f"lts__t_tag_requests{ELAPSED}": 40.0}
    found = diagnose(changed(kernel, {**stages, **idle}))
    assert found.verdict.rule == "uncoalesced", summary(found)
    assert found.verdict.rule != "hbm-bandwidth" and number(found, "l1_utilization") > 0.9, summary(found)


def test_trap_03_long_scoreboard_under_a_full_hbm_is_no_latency() -> None:
    seen = 0
    for name in recorded.names():
        found = diagnosis(name)
        if number(found, "hbm_utilization") >= 0.9 and number(found, "stall_long_scoreboard") >= 0.4:
            seen += 1
            assert "memory-latency" not in loud(found), f"{name}: {summary(found)}"
    assert seen >= 2, f"only {seen} recorded kernels wait on loads under a full HBM"


@pytest.mark.parametrize("name", ["gemm/cublas", "attention/decode"])
def test_trap_03_waiting_for_an_mbarrier_is_no_latency_of_loads(name: str) -> None:
    """Both wait on long scoreboard for TMA, load little by LDG, and hand out tiles by a few hundred atomics: divided by
    those loads the waits would look like a queue of loads behind atomics."""
    found = diagnosis(name)
    assert number(found, "stall_long_scoreboard") > 0.1 and number(found, "global_atomic_instructions") > 100
    assert number(found, "cycles_per_load") < 4000, summary(found)
    assert "global-atomics" not in rule_ids(found)


def test_trap_04_low_occupancy_without_exposed_latency_is_no_finding() -> None:
    for name in recorded.names():
        found = diagnosis(name)
        if number(found, "occupancy_achieved") < 0.3 and number(found, "top_utilization") >= 0.85:
            named = {r for r in rule_ids(found) if r.startswith("occupancy-")}
            assert not named, f"{name}: occupancy {found.facts['occupancy_achieved'].value}: {summary(found)}"
    kernel = profile("faults/stream-copy")
    low = {"sm__maximum_warps_per_active_cycle_pct": 17.0, "sm__warps_active.avg.pct_of_peak_sustained_active": 17.0}
    found = diagnose(changed(kernel, low))
    assert found.verdict.rule == "hbm-bandwidth", f"occupancy 17 % under a full HBM: {summary(found)}"


@pytest.mark.parametrize("fact", ["l1_hit_rate", "l2_hit_rate", "l2_read_hit_rate", "l2_rereads"])
def test_trap_05_and_13_no_rule_decides_by_a_hit_rate(fact: str) -> None:
    deciding = [r.id for r in rules() if any(fact in leaf.text for leaf in r.leaves)]
    assert not deciding, f"{fact} decides {deciding}"


def test_trap_06_a_few_double_instructions_are_not_worth_a_word() -> None:
    kernel = profile("faults/orbit-float")
    total = sum(kernel.opcodes.values())
    few = {"DFMA": total * 0.002, "F2F.F64.F32": total * 0.001, "F2F.F32.F64": total * 0.001}
    with_few = changed(kernel, {f"sm__pipe_fp64_cycles_active{ELAPSED}": 1.0}, opcodes={**kernel.opcodes, **few})
    found = diagnose(with_few)
    assert "fp64-by-accident" not in loud(found), summary(found)
    assert found.verdict.rule == diagnosis("faults/orbit-float").verdict.rule, summary(found)
    real = diagnosis("faults/spring-plain")
    assert real.verdict.rule == "fp64-by-accident", summary(real)


def test_trap_07_conflict_counts_of_no_consequence() -> None:
    """Hundreds of thousands of counted conflicts beside no wavefront above ideal."""
    name = "faults/bank-conflict-pitch65"
    counted = profile(name).number("l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum")
    found = diagnosis(name)
    assert counted and counted > 1000 and number(found, "shared_conflict_excess") < 0.05
    assert "bank-conflict" not in rule_ids(found), summary(found)
    few = {"l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum": 272.0, "memory_l1_wavefronts_shared": None}
    assert outcome("bank-conflict", changed(profile(name), few)).state is False
    fault = diagnosis("faults/bank-conflict-pitch64")
    assert fault.verdict.rule == "bank-conflict", summary(fault)


def test_trap_08_branches_that_all_lanes_take_alike_are_no_divergence() -> None:
    found = diagnosis("faults/evolve-by-list")
    branches = sum(n for op, n in profile("faults/evolve-by-list").opcodes.items() if op.startswith("BRA"))
    assert branches > 0 and number(found, "branch_uniformity") > 0.99
    assert "divergence" not in rule_ids(found), summary(found)


def test_trap_09_a_small_spill_is_harmless_and_a_large_one_is_not() -> None:
    kernel = profile("faults/filter-bank-tall")
    total = sum(kernel.opcodes.values())
    little = changed(
        kernel,
        {"derived__local_spilling_requests_pct": 100.0, "derived__local_spilling_requests": 10_000.0},
        opcodes={**kernel.opcodes, "LDL": total * 0.001, "STL": total * 0.001},
    )
    found = diagnose(little)
    assert "spill" not in rule_ids(found), summary(found)
    assert diagnosis("faults/filter-bank-wide").verdict.rule == "spill"


def test_trap_10_registers_are_allocated_in_units() -> None:
    """ncu's own limit, which the facts use, is the arithmetic with units of 8 registers a thread, 256 a warp."""
    sm = architecture(90)
    assert sm.register_unit == 256 and sm.registers_per_sm == 65536
    for name in recorded.names():
        kernel = profile(name)
        registers, block = kernel.number("launch__registers_per_thread"), kernel.number("launch__block_size")
        said = kernel.number("launch__occupancy_limit_registers")
        if not registers or not block or not said:
            continue
        a_warp = math.ceil(registers * 32 / sm.register_unit) * sm.register_unit
        partition = sm.registers_per_sm // 4 // a_warp  # a warp's registers lie in one of the four partitions
        assert partition * 4 // math.ceil(block / 32) == said, f"{name}: {registers} registers, {block} threads, {said}"


def test_trap_11_one_block_an_sm_with_a_full_pipe_is_fine() -> None:
    found = diagnosis("faults/columns-at-once")
    assert number(found, "occupancy_achieved") < 0.2 and found.verdict.rule == "tensor-compute", summary(found)
    assert not {r for r in rule_ids(found) if r.startswith("occupancy-")}, summary(found)


def test_trap_12_fp32_matrix_work_is_no_missing_tensor_core() -> None:
    """TF32 off is a policy about accuracy; on sm_90 HMMA beside HGMMA is no fault either."""
    for name in ("gemm/tiled", "gemm/naive", "faults/multiply-patches"):
        assert outcome("no-tensor-core", profile(name)).state is False, summary(diagnosis(name))
    wgmma = profile("faults/columns-at-once")
    mixed = changed(wgmma, opcodes={**wgmma.opcodes, "HMMA.16816.F32.BF16": 1000.0})
    assert "legacy-mma" not in rule_ids(diagnose(mixed))


def test_trap_13_no_l1_hits_on_data_read_once_and_nothing_left_at_the_roof() -> None:
    found = diagnosis("reduction/shuffle")
    assert number(found, "l1_hit_rate") < 0.01 and number(found, "hbm_utilization") > 0.9
    assert found.verdict.rule == "hbm-bandwidth" and not loud(found), summary(found)


def test_trap_14_a_debug_build_comes_before_all() -> None:
    found = diagnosis("faults/texture-plain")
    assert number(found, "move_share") > 0.5 and number(found, "stall_wait") > 0.5
    assert found.verdict.rule == "debug-build" and found.findings[0].rule == "debug-build", summary(found)
    # ... also before a finding with more at stake.
    grid = {"launch__grid_size": 1.0, "launch__grid_dim_x": 1.0, "launch__grid_dim_y": 1.0}
    small = diagnose(changed(profile("faults/texture-plain"), {**grid, "gpu__time_duration.sum": 2100.0}))
    assert small.verdict.rule == "debug-build", summary(small)


@pytest.mark.parametrize("factor", [0.5, 1.6])
@pytest.mark.parametrize("name", ["gemm/mma", "faults/stream-copy", "reduction/tree-conflicts"])
def test_trap_15_counters_of_another_launch_are_refused(name: str, factor: float) -> None:
    kernel = profile(name)
    counted = kernel.number("smsp__inst_executed.sum")
    assert counted
    found = diagnose(changed(kernel, {"smsp__inst_executed.sum": counted * factor}))
    assert found.verdict.rule == "inconsistent-data" and found.verdict.klass == "unknown", summary(found)
    cited = {e.fact: e for e in found.findings[0].evidence}
    assert "instructions_by_address_ratio" in cited, cited
    assert cited["instructions_by_address_ratio"].value == pytest.approx(1 / factor, rel=0.05)


def test_trap_15_identical_counters_of_different_kernels_are_refused() -> None:
    found = diagnose(profile("gemm/mma"), {"counters_repeat": True})
    assert found.verdict.rule == "inconsistent-data", summary(found)


def test_trap_15_counters_that_are_not_numbers_are_refused() -> None:
    kernel = profile("faults/stream-copy")
    metric = f"gpu__dram_throughput{ELAPSED}"
    found = diagnose(changed(kernel, {metric: None}, not_finite=(metric,)))
    assert found.verdict.rule == "inconsistent-data", summary(found)
    gone = {m: None for m in kernel.metrics if "pct" in m or m.startswith("dram__")}
    none = diagnose(changed(kernel, gone))
    assert none.verdict.rule == "not-enough-data" and none.verdict.confidence == "low", summary(none)


def test_trap_15_honest_reports_are_not_refused() -> None:
    refused = {
        name: diagnosis(name).facts["instructions_by_address_ratio"].value
        for name in recorded.names()
        if diagnosis(name).verdict.rule == "inconsistent-data"
    }
    assert not refused, f"instructions by address over the counter: {refused}"


def test_trap_16_wavefronts_above_ideal_decide_on_conflicts() -> None:
    kernel = profile("faults/bank-conflict-pitch65")
    misleading = {
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum": 1e9,
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum": 1e9,
        "derived__memory_l1_conflicts_shared_nway": 459.0,
    }
    assert outcome("bank-conflict", changed(kernel, misleading)).state is False
    silent = dict.fromkeys(misleading, 0.0)
    assert outcome("bank-conflict", changed(profile("faults/bank-conflict-pitch64"), silent)).state is True
    assert not [d for d in CATALOGUE.values() if any("nway" in metric for metric in d.needs)]


def test_trap_18_tensor_activity_without_an_mma_is_no_tensor_work() -> None:
    busy = {f"sm__pipe_tensor_cycles_active{ELAPSED}": 80.0}
    found = diagnose(changed(profile("faults/stream-copy"), busy))
    assert found.facts["tensor_instructions"].value == 0
    assert found.verdict.rule not in {"tensor-compute", "no-overlap", "legacy-mma"}, summary(found)
    idiom = {name: profile(name).opcodes.get("HFMA2.MMA", 0.0) for name in recorded.names()}
    assert any(idiom.values())
    for name, count in idiom.items():
        if count:
            assert "mma" not in str(diagnosis(name).facts["paths"].value).split() or any(
                op.startswith("HMMA") for op in profile(name).opcodes
            ), name


def test_trap_18_the_constant_idiom_is_no_half_arithmetic() -> None:
    kernel = profile("faults/interleave-records")
    assert {op for op in kernel.opcodes if op.startswith("HFMA2")} == {"HFMA2.MMA"}
    share = diagnosis("faults/interleave-records").facts["half_fma_share"].value
    assert share == 0, f"half_fma_share {share} from {kernel.opcodes['HFMA2.MMA']:.0f} constants"


@pytest.mark.parametrize(
    ("name", "resource", "verdict"),
    [
        ("faults/interleave-planes", "hbm", "partial-writes"),
        ("faults/transpose-uncoalesced", "l2", "uncoalesced"),
        ("gemm/tiled", "l1", "smem-reload"),
        ("faults/distance-sweeps", "hbm", "l2-locality"),
    ],
)
def test_trap_19_a_resource_full_of_waste_is_no_roof(name: str, resource: str, verdict: str) -> None:
    found = diagnosis(name)
    assert number(found, f"{resource}_utilization") > 0.84, summary(found)
    assert found.verdict.rule == verdict and found.verdict.klass == "implementation", summary(found)
    assert found.verdict.speedup and found.verdict.speedup.expected > 1.3, found.verdict.speedup


def test_trap_20_the_roof_is_what_this_gpu_was_seen_to_sustain() -> None:
    kernel = profile("faults/stream-copy")
    limit = next(m for m in diagnosis("faults/stream-copy").limits if m.resource == "hbm")
    assert limit.ceiling_source in {"recorded", "measured"} and 4.0e12 < limit.ceiling < 4.8e12, limit
    us = kernel.number("gpu__time_duration.sum")
    assert us
    # The same bytes in 1.35 times the time: 70 % of that ceiling is not at the roof with high confidence.
    busy = next(resource for resource in limits.RESOURCES if resource.name == "hbm").percentages
    slow = {m: 66.0 for m in busy if m in kernel.metrics} | {"gpu__time_duration.sum": us * 1.35}
    found = diagnose(changed(kernel, slow))
    assert number(found, "hbm_utilization") < 0.75
    assert not (found.verdict.rule == "hbm-bandwidth" and found.verdict.confidence == "high"), summary(found)


def test_trap_21_percentages_above_100_are_never_evidence() -> None:
    kernel = profile("faults/add-short")
    beyond = {
        f"l1tex__data_pipe_lsu_wavefronts{ELAPSED}": 229.0,
        f"l1tex__data_bank_reads{ELAPSED}": 229.0,
        f"l1tex__data_bank_writes{ELAPSED}": 229.0,
        f"l1tex__f_wavefronts{ELAPSED}": 229.0,
        "tex__sol_pct": None,
    }
    found = diagnose(changed(kernel, beyond))
    assert found.verdict.rule == "launch-bound", summary(found)
    assert found.facts["l1_utilization"].value is None, found.facts["l1_utilization"]
    over = [
        e
        for f in found.findings
        for e in f.evidence
        if e.unit == "share" and isinstance(e.value, float) and e.value > 1
    ]
    assert not over, over


def test_trap_23_theoretical_sectors_decide_nothing() -> None:
    high = {}
    for name in recorded.names():
        kernel = profile(name)
        actual = kernel.number("memory_l2_theoretical_sectors_global")
        ideal = kernel.number("memory_l2_theoretical_sectors_global_ideal")
        if actual and ideal:
            changed_to = diagnose(
                changed(kernel, {"memory_l2_theoretical_sectors_global": actual * 2.2}), recorded.declared(name)
            )
            if changed_to.verdict != diagnosis(name).verdict:
                high[name] = (diagnosis(name).verdict.rule, changed_to.verdict.rule)
    assert not high, high


@pytest.mark.parametrize("name", ["faults/columns-at-once", "faults/bytes-by-group"])
def test_trap_24_the_barrier_stall_of_a_wgmma_kernel_is_no_cta_barrier(name: str) -> None:
    found = diagnosis(name)
    assert number(found, "stall_barrier") > 0.25, summary(found)
    assert number(found, "exposed_barrier") < 0.05 < number(found, "exposed_wgmma"), summary(found)
    assert "barrier" not in rule_ids(found), summary(found)


def test_trap_25_a_finding_points_at_the_cause_beside_the_place_that_waits() -> None:
    found = next(f for f in diagnosis("faults/sum-steps").findings if f.rule == "memory-latency")
    roles = {place.role: place for place in found.where}
    assert {"waiting", "cause"} <= set(roles), found.where
    assert "LDG" in roles["cause"].sass and "LDG" not in roles["waiting"].sass, found.where
    assert roles["cause"].pc != roles["waiting"].pc


def test_trap_26_of_two_resources_the_one_with_the_useful_work() -> None:
    """wgmma reads its operands over the shared-memory pipe, which then shows a little above the Tensor pipe."""
    kernel = profile("faults/columns-at-once")
    above = {f"l1tex__data_pipe_lsu_wavefronts{ELAPSED}": 94.0, f"l1tex__data_bank_reads{ELAPSED}": 94.0}
    full = {f"sm__pipe_tensor_cycles_active{ELAPSED}": 93.0}
    found = diagnose(changed(kernel, {**above, **full}))
    assert found.verdict.rule == "tensor-compute", summary(found)
    assert found.facts["binding_resource"].value == "tensor"
    close = (("l1", 0.94), ("tensor", 0.92))
    chosen = limits.binding(tuple(limits.Limit(r, 1, "", 1, "", "", u, u) for r, u in close))
    assert chosen is not None and chosen.resource == "tensor"


def test_trap_27_a_lowered_clock_in_a_replayed_run_is_no_throttle() -> None:
    kernel = profile("faults/columns-at-once")
    slow = {
        metric: value / 2
        for metric, value in kernel.metrics.items()
        if metric.endswith("cycles_elapsed.avg.per_second") and isinstance(value, float)
    }
    assert slow
    found = diagnose(changed(kernel, slow))
    assert found.verdict.rule != "power-throttle", summary(found)
    declared = diagnose(changed(kernel, slow), {"clock_loss": 0.3})
    assert declared.verdict.rule != "power-throttle", f"a full pipe at the clock it had: {summary(declared)}"
    idle = outcome("power-throttle", profile("faults/average-bytes"), {"clock_loss": 0.3})
    assert idle.state is True
    unknown = outcome("power-throttle", profile("faults/average-bytes"))
    assert unknown.state is None and any("clock_loss" in name for name in unknown.missing), unknown.missing


def test_trap_28_percent_of_active_time_is_no_utilization() -> None:
    read = {metric for resource in limits.RESOURCES for metric in resource.percentages} | set(limits.NEEDS)
    assert not [metric for metric in read if metric.endswith("sustained_active")]
    kernel = profile("faults/transpose-uncoalesced")
    wild: dict[str, Scalar | None] = {
        m: 146.0 for m in kernel.metrics if m.endswith("pct_of_peak_sustained_active") and "warps" not in m
    }
    assert wild
    found, before = diagnose(changed(kernel, wild)), diagnosis("faults/transpose-uncoalesced")
    assert found.limits == before.limits and found.verdict.rule == before.verdict.rule, summary(found)


def test_trap_29_dram_figures_of_a_kernel_that_fits_l2_are_less_sure() -> None:
    kernel = profile("faults/stream-copy")
    fits = diagnose(changed(kernel, {"device__attribute_l2_cache_size": 1e12}))
    levels = ("low", "medium", "high")
    before = diagnosis("faults/stream-copy").verdict
    assert fits.facts["footprint_in_l2"].value is True and fits.verdict.rule == before.rule
    assert levels.index(fits.verdict.confidence) < levels.index(before.confidence), summary(fits)


def test_trap_29_half_of_a_copys_l2_accesses_hit_and_that_means_nothing() -> None:
    found = diagnosis("faults/stream-copy")
    assert 0.4 < number(found, "l2_hit_rate") < 0.6 and found.verdict.rule == "hbm-bandwidth", summary(found)


@pytest.mark.parametrize("name", ["gemm/mma", "faults/product-four-buffers", "attention/fused"])
def test_trap_30_copies_by_cp_async_are_loads(name: str) -> None:
    found = diagnosis(name)
    assert number(found, "cp_async_instructions") > 0 and number(found, "load_bytes_asked") > 0
    assert profile(name).number("smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio") in {None, 0.0}
    assert found.facts["load_sector_use"].value is None, "0 bytes a sector there is not known, and no waste"


@pytest.mark.parametrize("name", ["faults/tile-sums-whole", "faults/stream-fourfold"])
def test_trap_30_copies_by_tma_are_no_waste(name: str) -> None:
    found = diagnosis(name)
    assert number(found, "tma_instructions") > 0 and found.facts["load_bytes_asked"].value == 0
    assert found.verdict.rule == "hbm-bandwidth" and not rule_ids(found) & {"uncoalesced", "global-reload"}, summary(
        found
    )


def test_trap_31_l2_throughput_with_hidden_parts_is_not_read() -> None:
    kernel = profile("faults/transpose-tiled")
    full = {m: 99.0 for m in kernel.metrics if m.startswith("lts__throughput")}
    assert full
    found, before = diagnose(changed(kernel, full)), diagnosis("faults/transpose-tiled")
    assert found.limits == before.limits and found.verdict == before.verdict, summary(found)


def test_trap_32_fp8_through_16_bit_and_native_fp8() -> None:
    kernel = profile("faults/bytes-by-warp")
    found = diagnosis("faults/bytes-by-warp")
    assert found.verdict.rule == "fp8-not-native", summary(found)
    assert not {f.rule for f in found.findings} & {"conversion", "legacy-mma"}, "it comes before what follows from it"
    ada = {"device__attribute_compute_capability_major": 8.0, "device__attribute_compute_capability_minor": 9.0}
    native = {op.replace("HMMA.16816.F32", "QMMA.16832.F32.E4M3.E4M3"): n for op, n in kernel.opcodes.items()}
    native = {op: n for op, n in native.items() if not op.startswith("F2FP")}
    on_ada = diagnose(changed(kernel, ada, opcodes=native))
    assert "fp8-not-native" not in rule_ids(on_ada) and "fp8-mma" in str(on_ada.facts["paths"].value), summary(on_ada)


def test_trap_32_nobody_asks_a_gpu_without_wgmma_for_it() -> None:
    kernel = profile("gemm/mma")
    for major, minor in ((8.0, 0.0), (8.0, 9.0), (12.0, 0.0)):
        other = {
            "device__attribute_compute_capability_major": major,
            "device__attribute_compute_capability_minor": minor,
        }
        found = diagnose(changed(kernel, other))
        assert "legacy-mma" not in rule_ids(found), f"sm_{major:.0f}{minor:.0f}: {summary(found)}"


def test_trap_33_a_random_word_costs_more_than_a_sector() -> None:
    found = diagnosis("faults/gather-random")
    read, crossed = number(found, "hbm_read_bytes"), number(found, "load_l2_bytes")
    assert read > 1.5 * crossed, f"HBM {read:.3g} bytes, L2 to L1 {crossed:.3g}: fetches are 64 bytes"
    assert found.verdict.rule == "random-access" and found.verdict.klass == "fit", summary(found)
    assert diagnosis("faults/gather-sorted").verdict.rule != "random-access"


def test_trap_34_a_pipe_at_two_thirds_is_no_roof() -> None:
    kernel = profile("faults/filter-bank-tall")
    calm = dict.fromkeys((f"gpu__dram_throughput{ELAPSED}",), 20.0)
    two_thirds = {
        m: 63.0
        for resource in limits.RESOURCES
        if resource.name in {"fp32", "issue"}
        for m in resource.percentages
        if m in kernel.metrics
    }
    found = diagnose(changed(kernel, {**calm, **two_thirds}))
    assert number(found, "fp32_utilization") == pytest.approx(63 / 95, abs=0.02)
    assert found.verdict.confidence != "high" or found.verdict.klass != "hardware", summary(found)


def test_a_kernel_without_a_duration_is_not_diagnosed_by_guess() -> None:
    kernel = profile("faults/stream-copy")
    without = diagnose(changed(kernel, {m: None for m in kernel.metrics if m.startswith("gpu__time")}))
    assert without.limits == () and without.facts["duration_us"].value is None
    assert without.verdict.klass == "unknown" or without.verdict.confidence == "low", summary(without)


def test_changed_profiles_leave_the_recorded_ones_alone() -> None:
    kernel = profile("faults/stream-copy")
    other = changed(kernel, {"launch__grid_size": 1.0})
    assert kernel.number("launch__grid_size") != 1.0 and replace(other, metrics=kernel.metrics) == kernel
