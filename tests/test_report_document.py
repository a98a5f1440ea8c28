"""The document: the contract's keys, values that JSON can hold, ids that stay, parts that agree with the facts."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import recorded
from diagnose import api, details, facts, program, report
from diagnose.errors import DiagnoseError
from diagnose.facts import work
from diagnose.gpus.catalogue import architecture
from diagnose.model import KernelProfile, Profile, Run, Series
from diagnose.occupancy import Block, resident
from diagnose.problem import parse

GEMM, TILED = "gemm/mma", "gemm/tiled"
needs_reports = pytest.mark.skipif(not recorded.report_of(GEMM).is_file(), reason="examples/reports is not here")


def profile_of(*kernels: KernelProfile, runs: int = 1) -> Profile:
    """A profile of these results, in order, all in the first run unless they say otherwise."""
    listed = tuple(replace(kernel, index=n) for n, kernel in enumerate(kernels))
    return Profile(tuple(Run(source=f"r{n}.ncu-rep") for n in range(runs)), listed)


@pytest.fixture(scope="module")
def packs() -> Any:
    return api.load_rules(api.Options())


def document(packs: Any, *kernels: KernelProfile, runs: int = 1, **options: Any) -> dict[str, Any]:
    return api.examine(profile_of(*kernels, runs=runs), packs, api.Options(**options))


@pytest.fixture(scope="module")
def gemm() -> KernelProfile:
    return recorded.profile(GEMM)


@pytest.fixture(scope="module")
def tiled() -> KernelProfile:
    return recorded.profile(TILED)


def scalars(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        for item in value.values():
            yield from scalars(item)
    elif isinstance(value, list):
        for item in value:
            yield from scalars(item)
    else:
        yield value


# --- the contract

KERNEL_KEYS = {
    "id", "index", "run", "device", "workload", "name", "demangled", "launch", "launches", "duration_us", "time_share",
    "clock_ghz", "paths", "verdict", "limits", "findings", "rejected", "not_evaluated", "facts",
}  # fmt: skip


@needs_reports
def test_the_contracts_keys_are_all_there(packs: Any, gemm: KernelProfile, tiled: KernelProfile) -> None:
    found = document(packs, gemm, tiled)
    assert {
        "schema_version",
        "tool",
        "packs",
        "ceilings",
        "devices",
        "runs",
        "warnings",
        "partial",
        "program",
        "kernels",
    } <= set(found)
    assert found["schema_version"] == "1" and found["partial"] is False
    assert set(found["packs"][0]) == {"name", "version", "sha256", "disabled"}
    assert set(found["ceilings"]) == {"source", "gpu", "date"} and found["ceilings"]["source"] == "recorded"
    assert {"name", "arch", "sm_count"} <= set(found["devices"][0])
    assert found["devices"][0]["name"] == "NVIDIA H200" and found["devices"][0]["arch"] == "sm_90"
    assert {"findings", "gpu_time_us", "covered_share"} <= set(found["program"]) and found["program"][
        "covered_share"
    ] is None
    for kernel in found["kernels"]:
        assert set(kernel) >= KERNEL_KEYS
        assert set(kernel["verdict"]) == {"rule", "class", "title", "at_stake", "speedup", "confidence"}
        assert kernel["verdict"]["confidence"] in {"high", "medium", "low"}
        assert set(kernel["launch"]) == {"grid", "block", "cluster"}
        for limit in kernel["limits"]:
            assert set(limit) == {
                "resource", "work", "work_unit", "ceiling", "ceiling_unit", "ceiling_source", "bound_us", "utilization",
            }  # fmt: skip
            assert 0 <= limit["utilization"] <= 1
            assert limit["ceiling_source"] in {"measured", "recorded", "datasheet", "library"}
        for item in kernel["findings"]:
            assert {
                "rule",
                "class",
                "severity",
                "title",
                "at_stake",
                "speedup",
                "evidence",
                "where",
                "why",
                "next_experiment",
                "references",
            } <= set(item)
            assert set(item["next_experiment"]) == {"change", "expect"} and set(item["next_experiment"]["expect"]) == {
                "fact",
                "op",
                "value",
            }
            assert item["rule"] in found["rule_pages"]
            for place in item["where"]:
                assert (
                    place["role"] in {"waiting", "cause"} and place["pc"].startswith("0x") and 0 <= place["share"] <= 1
                )
    assert [kernel["index"] for kernel in found["kernels"]] == [0, 1]
    assert math.isclose(sum(kernel["time_share"] for kernel in found["kernels"]), 1, abs_tol=1e-5)


@needs_reports
def test_numbers_are_finite_and_short(packs: Any, gemm: KernelProfile) -> None:
    found = document(packs, gemm, all_facts=True)
    json.dumps(found, allow_nan=False)
    for value in scalars(found):
        if isinstance(value, float):
            assert value == float(f"{value:.6g}"), value
    assert found["kernels"][0]["duration_us"] == 321.984


@needs_reports
def test_findings_are_sorted_and_the_verdict_is_the_first(packs: Any) -> None:
    for name in recorded.names():
        kernel = document(packs, recorded.profile(name))["kernels"][0]
        stakes = [one["at_stake"] or 0 for one in kernel["findings"]]
        if kernel["verdict"]["class"] == "hardware":
            assert all(one["severity"] == "note" for one in kernel["findings"]), name
            assert kernel["verdict"]["at_stake"] is None
        elif kernel["verdict"]["rule"] != "not-enough-data":
            assert kernel["findings"][0]["rule"] == kernel["verdict"]["rule"], name
        for one in kernel["findings"]:
            if one["speedup"] and one["at_stake"] < 0.97:
                assert math.isclose(one["speedup"]["expected"], 1 / (1 - one["at_stake"]), rel_tol=1e-4)
        assert stakes[1:] == sorted(stakes[1:], reverse=True), name


@needs_reports
def test_facts_are_those_cited_unless_all_are_wanted(packs: Any, gemm: KernelProfile) -> None:
    (short,) = document(packs, gemm)["kernels"]
    (full,) = document(packs, gemm, all_facts=True)["kernels"]
    assert set(short["facts"]) < set(full["facts"]) == set(facts.CATALOGUE)
    for item in short["findings"]:
        for evidence in item["evidence"]:
            assert evidence["fact"] not in facts.CATALOGUE or evidence["fact"] in short["facts"]
    assert len(short["rejected"]) < len(full["rejected"])
    assert "raw_metrics" not in short and full["raw_metrics"]["gpu__time_duration.sum"] == [321984, "ns"]
    unmeasured = [fact for fact in full["facts"].values() if fact["value"] is None]
    assert unmeasured and all(fact.get("missing") for fact in unmeasured)


# --- identity


@needs_reports
def test_ids_stay_and_tell_launches_apart(packs: Any, gemm: KernelProfile, tiled: KernelProfile) -> None:
    first = document(packs, gemm, tiled, gemm)["kernels"]
    assert len({kernel["id"] for kernel in first}) == 3
    assert first[0]["group"] == first[2]["group"] != first[1]["group"]
    assert all(kernel["launches"] == 1 for kernel in first)
    swapped = document(packs, tiled, gemm, gemm)["kernels"]
    assert {kernel["id"] for kernel in swapped} == {kernel["id"] for kernel in first}
    wider = recorded.changed(gemm, {"launch__grid_dim_x": 99.0})
    assert document(packs, wider)["kernels"][0]["id"] not in {kernel["id"] for kernel in first}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("void <unnamed>::f<int>(int)", "void (anonymous namespace)::f<int>(int)"),
        ("f__INTERNAL_1234abcd_4_x_cu_99aa8877", "f__INTERNAL_77777777_4_x_cu_11111111"),
        ("void  f( int )", "void f( int )"),
        ("_GLOBAL__N__3f2a1b::k()", "_GLOBAL__N__991122::k()"),
    ],
)
def test_names_are_compared_without_what_a_build_changes(one: str, other: str) -> None:
    assert report.normalised(one) == report.normalised(other)


def test_a_translation_unit_of_another_build_is_the_same() -> None:
    one, other = "_GLOBAL__N__1a2b3c4d_7_main_cu_5e6f7a8b_1::add", "_GLOBAL__N__ffee0011_7_main_cu_00112233_1::add"
    assert report.normalised(one) == report.normalised(other) == "(anonymous namespace)::add"


@needs_reports
def test_devices_are_told_apart_by_host_and_number(packs: Any, gemm: KernelProfile) -> None:
    second = recorded.changed(gemm, {"launch__device_id": 1.0})
    found = document(packs, gemm, second, gemm)
    assert [kernel["device"] for kernel in found["kernels"]] == [0, 1, 0] and len(found["devices"]) == 2


# --- what cannot be said


@needs_reports
@pytest.mark.parametrize("workload", ["range", "graph"])
def test_ranges_and_graphs_have_no_launch(packs: Any, gemm: KernelProfile, workload: str) -> None:
    found = document(packs, replace(gemm, workload=workload))
    (kernel,) = found["kernels"]
    assert kernel["launch"] is None and kernel["workload"] == workload
    assert any(f"1 {workload} result" in text and "occupancy" in text for text in found["warnings"])


@needs_reports
def test_a_result_without_metrics_is_unknown_and_holds_no_zero(packs: Any, gemm: KernelProfile) -> None:
    bare = replace(gemm, metrics={}, units={}, opcodes={}, thread_opcodes={}, lines=(), timeline=())
    found = document(packs, bare)
    (kernel,) = found["kernels"]
    assert kernel["verdict"]["rule"] == "not-enough-data" and kernel["verdict"]["class"] == "unknown"
    assert kernel["duration_us"] is None and kernel["time_share"] is None and kernel["clock_ghz"] is None
    assert kernel["launch"] is None and kernel["limits"] == [] and kernel["roofline"] is None
    assert found["program"]["gpu_time_us"] is None
    assert api.exit_code(found) == 3
    assert api.exit_code(found, ["unknown"]) == 1


@needs_reports
def test_counters_of_another_launch_are_refused(packs: Any, gemm: KernelProfile) -> None:
    copied = replace(gemm, name="other", demangled="other(float*)")
    found = document(packs, gemm, copied)
    assert [kernel["verdict"]["rule"] for kernel in found["kernels"]] == ["inconsistent-data"] * 2
    assert api.repeated_counters(profile_of(gemm, gemm).kernels) == frozenset(), "the same launch may repeat"
    ranks = profile_of(gemm, replace(copied, run=1), runs=2)
    assert api.repeated_counters(ranks.kernels) == frozenset(), "another run is another machine"


# --- parts


@needs_reports
def test_operations_agree_with_ncus_own_counters(gemm: KernelProfile) -> None:
    done = work.operations(recorded.context_of(gemm))
    assert done is not None and (done.path, done.kind) == ("mma", "bf16")
    assert done.tensor == gemm.number("sm__ops_path_tensor_src_bf16_dst_fp32.sum") == 2 * 4096**3
    naive = recorded.profile("gemm/naive")
    counted = work.operations(recorded.context_of(naive))
    assert counted is not None and counted.tensor == 0
    rate = naive.number("smsp__sass_thread_inst_executed_op_ffma_pred_on.sum.per_cycle_elapsed") or 0
    cycles = naive.number("smsp__cycles_elapsed.max") or 0
    assert math.isclose(counted.fp32, 2 * rate * cycles, rel_tol=0.02)


@pytest.mark.parametrize(
    ("opcode", "expected"),
    [
        ("HMMA.16816.F32.BF16", ("mma", "bf16", 4096)),
        ("HMMA.1688.F32.TF32", ("mma", "tf32", 2048)),
        ("HGMMA.64x256x16.F32.BF16", ("wgmma", "bf16", 131072)),
        ("QGMMA.64x144x32.F32.E4M3.E4M3", ("fp8-wgmma", "fp8", 147456)),
        ("IMMA.16832.S8.S8", ("int-mma", "int8", 8192)),
        ("DMMA.884", ("fp64-mma", "fp64", 512)),
        ("DMMA.16x8x4", ("fp64-mma", "fp64", 1024)),
        ("FFMA", None),
    ],
)
def test_tensor_operations_of_an_opcode(opcode: str, expected: tuple[str, str, float] | None) -> None:
    assert work._tensor_operations(opcode) == expected


@needs_reports
def test_the_roofline_lies_under_its_roofs(packs: Any) -> None:
    for name in recorded.names():
        roofline = document(packs, recorded.profile(name))["kernels"][0]["roofline"]
        if roofline is None:
            continue
        roofs = {roof["level"]: roof["bytes_per_s"] for roof in roofline["bandwidth_roofs"]}
        top = max((roof["flops_per_s"] for roof in roofline["compute_roofs"]), default=math.inf)
        for point in roofline["points"]:
            assert point["flops_per_s"] <= 1.05 * top, name
            assert point["flops_per_s"] <= 1.1 * roofs[point["level"]] * point["intensity"], (name, point)


@needs_reports
def test_declared_work_shows_useful_beside_issued(packs: Any, gemm: KernelProfile) -> None:
    (kernel,) = document(packs, gemm, useful_flops="1e11")["kernels"]
    kinds = {point["kind"]: point["flops_per_s"] for point in kernel["roofline"]["points"]}
    assert math.isclose(kinds["useful"], 1e11 / 321.984e-6, rel_tol=1e-4) and kinds["issued"] > kinds["useful"]
    found = document(packs, gemm, recorded.profile(TILED), useful_flops="1e11")
    assert any("the longest of 2 kernels" in text for text in found["warnings"])


@needs_reports
def test_hot_lines_memory_and_stalls(packs: Any, gemm: KernelProfile) -> None:
    (kernel,) = document(packs, gemm)["kernels"]
    hot = kernel["hot"]
    assert hot and [row["share"] for row in hot] == sorted((row["share"] for row in hot), reverse=True)
    assert any(row["source"] for row in hot) and hot[0]["pc"].startswith("0x")
    levels = {row["level"]: row for row in kernel["memory"]}
    assert levels["hbm"]["read_bytes"] == gemm.number("dram__bytes_read.sum")
    assert 0 <= levels["l2"]["hit_rate"] <= 1
    shares = [row["share"] for row in kernel["stalls"]["reasons"]]
    assert math.isclose(sum(shares), 1, abs_tol=1e-4) and shares == sorted(shares, reverse=True)
    assert all(
        row["not_issued_share"] is None or row["not_issued_share"] <= row["share"] + 1e-6
        for row in kernel["stalls"]["reasons"]
    )
    assert kernel["time_model"][-1] == {"label": "Measured", "us": 321.984, "kind": "measured"}
    assert {row["label"] for row in kernel["timeline"]["series"]} >= {"Tensor pipe", "L2", "HBM"}
    assert all(len(row["values"]) <= details.TIMELINE_POINTS for row in kernel["timeline"]["series"])


@needs_reports
def test_residency_agrees_with_what_ncu_counted() -> None:
    """Registers are allocated 8 a thread and 256 a warp at a time (field notes, trap 10)."""
    for name in recorded.names():
        kernel = recorded.profile(name)
        block, registers, shared = (
            kernel.number(metric)
            for metric in (
                "launch__block_size",
                "launch__registers_per_thread",
                "launch__shared_mem_per_block_allocated",
            )
        )
        limits = [
            kernel.number(f"launch__occupancy_limit_{part}") for part in ("registers", "shared_mem", "warps", "blocks")
        ]
        if block is None or registers is None or shared is None or any(limit is None for limit in limits):
            continue
        reserved = architecture(90).shared_reserved_per_block or 0
        found = resident(architecture(90), Block(int(block), int(registers), int(shared - reserved)))
        counted = found.blocks if found is not None else None
        configured = kernel.number("launch__shared_mem_config_size") or 0
        if limits[1] is not None and configured >= (architecture(90).shared_per_sm or 0) - 4096:
            assert counted == min(limit for limit in limits if limit is not None), name
        else:
            assert counted is not None and counted >= min(limit for limit in limits if limit is not None), name


def test_steps_of_occupancy_rise() -> None:
    steps = details.occupancy_steps(architecture(90), "registers", 255, 0.0, 128)
    assert [step["occupancy"] for step in steps] == [0.125, 0.1875, 0.25, 0.3125, 0.375, 0.4375]
    assert [step["at"] for step in steps] == [255, 168, 128, 96, 80, 72]
    shared = details.occupancy_steps(architecture(90), "shared memory", 32, 100 * 1024, 256)
    assert [step["occupancy"] for step in shared][:2] == [0.25, 0.375] and shared[1]["at"] < 76 * 1024
    assert details.occupancy_steps(architecture(999), "registers", 255, 0.0, 128) == []


def test_time_lines_are_thinned_and_idle_units_left_out() -> None:
    busy = Series("X.TriageCompute.lts__throughput.avg.pct_of_peak_sustained_elapsed", "%", tuple(range(1000)))
    idle = Series("X.TriageCompute.dramc__throughput.avg.pct_of_peak_sustained_elapsed", "%", (0.0,) * 9)
    found = details.timeline([busy, idle])
    assert found is not None
    (row,) = found["series"]
    assert row["label"] == "L2" and len(row["values"]) == details.TIMELINE_POINTS
    assert math.isclose(sum(row["values"]) / len(row["values"]), 499.5, rel_tol=0.01)
    assert details.timeline([idle]) is None


# --- the program as a whole


def tiny(kernel: KernelProfile, us: float, name: str = "step") -> KernelProfile:
    return replace(recorded.changed(kernel, {"gpu__time_duration.sum": us * 1e3}), name=name, demangled=f"{name}(int)")


@needs_reports
def test_many_small_launches_belong_to_the_sequence(packs: Any, gemm: KernelProfile) -> None:
    small = [tiny(gemm, 3.0 + n / 10, f"step{n}") for n in range(12)]
    (found,) = document(packs, *small)["program"]["findings"]
    assert found["rule"] == "many-small-launches" and found["launches"] == list(range(12))
    assert 0.3 < found["at_stake"] < 0.7
    assert found["speedup"]["low"] <= found["speedup"]["expected"] <= found["speedup"]["high"]
    assert document(packs, *small[:4])["program"]["findings"] == [], "four are no sequence"
    beside = document(packs, *small, tiny(gemm, 2000.0))
    assert beside["program"]["findings"] == [], "beside a long kernel they do not matter"


@needs_reports
def test_helpers_are_told_by_name_and_by_counters(packs: Any, gemm: KernelProfile) -> None:
    stream = recorded.profile("faults/add-plain")
    copy = tiny(stream, 900.0, "direct_copy_kernel")
    found = document(packs, copy, gemm)["program"]["findings"]
    assert [one["rule"] for one in found] == ["helper-time"] and found[0]["launches"] == [0]
    assert document(packs, tiny(stream, 900.0, "add"), gemm)["program"]["findings"] == [], "no helper by name"
    assert document(packs, tiny(gemm, 900.0, "copy_gemm"), stream)["program"]["findings"] == [], "no helper by counters"
    assert document(packs, copy)["program"]["findings"] == [], "a program of copies alone has no other work"


def test_every_program_finding_is_known_to_gates() -> None:
    assert set(program.RULE_ROWS) <= set(program.RULES)


# --- declared work


@pytest.mark.parametrize(
    ("spec", "flops", "size"),
    [
        ("gemm:8192,8192,8192,bf16", 2 * 8192**3, 3 * 8192**2 * 2),
        ("gemm:16,32,64,fp32,batch=3", 2 * 16 * 32 * 64 * 3, (16 * 64 + 64 * 32 + 16 * 32) * 4 * 3),
        ("attention:4,16,4096,4096,128", 4 * 4 * 16 * 4096**2 * 128, 4 * 4 * 16 * 4096 * 128 * 2),
        ("attention:1,1,4,4,8,causal", 4 * 10 * 8, 4 * 4 * 8 * 2),
        ("attention:1,8,1,100,64,fp16,causal,hkv=2", 4 * 8 * 100 * 64, (2 * 8 * 64 + 2 * 2 * 100 * 64) * 2),
        ("bytes=1e6,flops=2.5G", 2.5e9, 1e6),
    ],
)
def test_declared_problems(spec: str, flops: float, size: float) -> None:
    found = parse(spec)
    assert (found["useful_flops"], found["useful_bytes"]) == (flops, size)


def test_the_shape_of_a_declared_product() -> None:
    found = parse("gemm:16,32,64,fp32,batch=3")
    assert (found["gemm_m"], found["gemm_n"], found["gemm_k"]) == (16, 32, 64)
    assert "gemm_m" not in parse("attention:1,1,4,4,8")


def test_a_sparse_problem() -> None:
    assert parse("gemm:64,64,64,fp16,sparse")["declared_sparse"] is True


@pytest.mark.parametrize(
    "spec",
    ["", "gemm", "gemm:", "gemm:1,2", "gemm:0,1,1", "gemm:1,1,1,fp17", "gemm:1,1,1,causal", "gemm:a,b,c",
     "gemm:1,1,1,q=2", "attention:1,2,3,4", "conv:1,2", "bytes=", "bytes=-1", "bytes=nan", "flops=1e999",
     "what=3", "bytes=1,2"],
)  # fmt: skip
def test_problems_that_mean_nothing(spec: str) -> None:
    with pytest.raises(DiagnoseError) as raised:
        parse(spec)
    assert raised.value.exit_code == 2
    assert "gemm:M,N,K" in raised.value.hint or "--problem" in raised.value.message


def test_all_recorded_reports_make_a_document(packs: Any) -> None:
    """Every report of the tree, through the whole way, ends in JSON without NaN."""
    for name in recorded.names():
        json.dumps(document(packs, recorded.profile(name)), allow_nan=False)
    assert Path(recorded.REPORTS).is_dir() or not recorded.names()
