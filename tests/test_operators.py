"""The operator table: families recognised from name, code and shape; the four questions; never a verdict."""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import recorded
from diagnose import facts, limits, operators, problem
from diagnose.expr import names, unit_of
from diagnose.gpus import catalogue
from diagnose.model import Ceiling, KernelProfile

ROOT = Path(__file__).resolve().parents[1]
H200 = recorded.known_ceilings
# What people call these kernels. The names of most say nothing (project, rotate, embed): their code does.
FAMILIES = {
    "gemm/cublas": "gemm-large", "gemm/naive": "gemm-large", "gemm/mma": "gemm-large", "gemm/specialised": "gemm-large",
    "attention/fused": "attention-prefill", "attention/specialised": "attention-prefill",
    "attention/decode": "attention-decode", "attention/naive-softmax": "normalisation",
    "reduction/softmax-fused": "normalisation", "reduction/rmsnorm-fused": "normalisation",
    "reduction/cub": "histogram", "reduction/cluster": "histogram", "faults/count-staged": "histogram",
    "faults/gather-random": "gather", "faults/add-plain": "elementwise", "faults/stream-copy": "copy",
    "faults/transpose-tiled": "copy",
}  # fmt: skip
# Neither name nor code settles it: a stencil, an iteration on each value, a scan, a walk.
SILENT = ("faults/orbit-float", "faults/stencil-distances", "faults/walk", "faults/smooth-first", "faults/sum-relay",
          "faults/density", "faults/map-in-step", "faults/keystream")  # fmt: skip


def family(kernel: KernelProfile, work: Any = None) -> tuple[str, str] | None:
    found = operators.recognise(recorded.context_of(kernel, work))
    return (found[0].id, found[1]) if found else None


@pytest.mark.parametrize(("name", "expected"), FAMILIES.items())
def test_families_of_recorded_kernels(name: str, expected: str) -> None:
    found = family(recorded.profile(name))
    assert found is not None and found[0] == expected, found


@pytest.mark.parametrize("name", SILENT)
def test_silent_when_unsure(name: str) -> None:
    assert family(recorded.profile(name)) is None
    assert operators.describe(recorded.context_of(recorded.profile(name))) is None


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gemm/mma", "gemm-large"), ("gemm/wgmma", "gemm-large"), ("attention/fused", "attention-prefill"),
        ("attention/tma", "attention-prefill"), ("attention/decode", "attention-decode"),
        ("reduction/softmax-fused", "normalisation"), ("reduction/rmsnorm-fused", "normalisation"),
        ("faults/gather-random", "gather"), ("faults/add-plain", "elementwise"), ("faults/count-staged", "histogram"),
        ("reduction/shuffle", "histogram"),
    ],
)  # fmt: skip
def test_code_alone_is_enough_where_it_proves_the_family(name: str, expected: str) -> None:
    nameless = replace(recorded.profile(name), name="k", demangled="k(float *)")
    assert family(nameless) == (expected, "code")


def test_a_name_that_the_code_contradicts_is_no_family() -> None:
    copy = replace(recorded.profile("faults/orbit-float"), name="flash_attention", demangled="flash_attention()")
    assert family(copy) is None  # no Tensor instruction, no exponential
    scan = replace(recorded.profile("faults/smooth-first"), name="silu_elementwise", demangled="silu_elementwise()")
    assert family(scan) is None  # barriers


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "collective"),
        ("void cross_device_reduce_1stage<__nv_bfloat16, 2>()", "histogram"),  # by its name no more than a reduction
        ("void convert_fp8_kernel<__half>(float *)", "conversion"),
        ("dequantize_block_q4_0", "conversion"),
        ("void broadcast_kernel<float>(float *)", None),
        ("property_update", None),
        ("prefill_plan", None),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>(int)", "copy"),
        ("moe_align_block_size_kernel", "gather"),
        ("embedded_runge_kutta", None),
    ],
)
def test_names_on_code_that_only_moves_bytes(name: str, expected: str | None) -> None:
    moved = family(replace(recorded.profile("faults/stream-copy"), name=name, demangled=name))
    assert (moved[0] if moved else None) == expected


@pytest.mark.skipif(not recorded.SHARED.is_dir(), reason="the shared reports are not beside the clone")
def test_skinny_products_of_a_library() -> None:
    found = [family(recorded.shared_kernel("h200-gemm.ncu-rep.xz", at)) for at in range(5)]
    assert [one and one[0] for one in found] == [
        "gemm-large",
        "gemm-skinny",
        "gemm-skinny",
        "gemm-skinny",
        "gemm-large",
    ]


def test_a_name_alone_is_said_to_be_one() -> None:
    bare = replace(recorded.profile("reduction/cub"), opcodes={}, thread_opcodes={}, lines=(), metrics={})
    assert family(bare) == ("histogram", "name")


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("gemm:8192,8192,8192,bf16", "gemm-large"), ("gemm:16,8192,8192,bf16", "gemm-skinny"),
        ("gemm:8192,1,8192,bf16", "gemm-skinny"), ("attention:4,16,4096,4096,128", "attention-prefill"),
        ("attention:16,32,1,16384,128,hkv=8", "attention-decode"),
        ("attention:1,64,1,4096,128,hkv=1", "attention-prefill"),  # 64 queries share each key
    ],
)  # fmt: skip
def test_what_is_declared_decides(spec: str, expected: str) -> None:
    assert family(recorded.profile("gemm/mma"), problem.parse(spec)) == (expected, "declared")


def test_a_declared_product_is_not_the_copy_beside_it() -> None:
    work = problem.parse("gemm:8192,8192,8192,bf16")
    assert family(recorded.profile("faults/stream-copy"), work) is None


# --- the four questions ---


def answers(name: str, work: Any = None) -> list[str | None]:
    found = operators.describe(recorded.context_of(recorded.profile(name), work))
    assert found is not None
    assert len(found["questions"]) == 4 and found["brings"] and found["limits"]
    return [one["answer"] for one in found["questions"]]


def test_the_four_questions_of_a_large_product() -> None:
    tile, reuse, overlap, path = answers("gemm/specialised", problem.parse("gemm:8192,8192,8192,bf16"))
    assert tile == "All issued Tensor operations are useful. N of its wgmma is 256 and allows 100 % of the Tensor peak."
    assert reuse is not None and "413 operations, above the ridge point of 233 (bf16 by wgmma)" in reuse
    assert overlap is not None and "170 % of the time one after another, 93 %" in overlap
    assert path is not None and "arithmetic is the critical path" in path and path.endswith("among them.")


def test_the_four_questions_of_decode() -> None:
    tile, reuse, _, path = answers("attention/decode", problem.parse("attention:16,32,1,16384,128,hkv=8"))
    assert tile is not None and "4 rows share an operand, and a tile of wgmma has 64" in tile
    assert reuse is not None and "below the ridge point" in reuse
    assert path is not None and "bytes are the critical path" in path and path.endswith("bytes: among them.")


def test_what_the_new_paths_save_may_be_off_the_critical_path() -> None:
    path = answers("attention/naive-softmax")[3]
    assert path is not None and "bytes are the critical path" in path
    path = answers("faults/add-short")[3]
    assert path is not None and "latency is the critical path" in path and path.endswith("bytes: not among them.")


def test_nothing_measured_gives_no_answer_and_no_zero() -> None:
    bare = replace(recorded.profile("reduction/cub"), opcodes={}, thread_opcodes={}, lines=(), metrics={}, timeline=())
    found = operators.describe(recorded.context_of(bare))
    assert found is not None
    assert [one["answer"] for one in found["questions"]] == [None] * 4
    assert all(one["values"] == [] for one in found["questions"])


# --- never a verdict ---


def test_nothing_that_decides_a_verdict_reads_the_table() -> None:
    """The modules behind a verdict import neither the table nor what shows it."""
    for module in (
        "engine",
        "rules",
        "limits",
        "expr",
        *(f"facts/{p.stem}" for p in (ROOT / "diagnose/facts").glob("*.py")),
    ):
        tree = ast.parse((ROOT / "diagnose" / f"{module}.py").read_text("utf-8"))
        imported = {
            name
            for node in ast.walk(tree)
            for name in (
                [node.module or "", *(alias.name for alias in node.names)]
                if isinstance(node, ast.ImportFrom)
                else [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else []
            )
        }
        assert not imported & {"operators", "diagnose.operators", "staircase", "diagnose.staircase"}, module
    assert not {"operator", "family"} & set(facts.CATALOGUE)


def _renamed() -> Iterator[str]:
    chooser = random.Random(7)
    yield from chooser.sample([name for name in recorded.names() if recorded.report_of(name).is_file()], 25)


@pytest.mark.parametrize("name", list(_renamed()))
def test_a_name_changes_no_verdict(name: str) -> None:
    kernel = recorded.profile(name)
    other = replace(
        kernel, name="flash_gemm_softmax_copy", demangled="void nccl::flash_gemm_softmax_copy<int>(float *)"
    )
    before, after = recorded.diagnose(kernel), recorded.diagnose(other)
    assert before.verdict == after.verdict and before.findings == after.findings


# --- the data ---


def test_conditions_use_known_facts_and_units() -> None:
    units = facts.units()
    for one in operators.families():
        for way in one.ways:
            for node in way.code:
                used, metrics = names(node)
                assert used <= set(units), (one.id, used - set(units))
                assert metrics <= {"sass__inst_executed_per_opcode_with_modifier_all"}, (one.id, metrics)
                assert unit_of(node, units) == "bool", one.id
            assert way.names is None or way.names.search("") is None, one.id


def test_ids_are_unique_and_each_kind_of_declaration_has_both_sizes() -> None:
    table = operators.families()
    assert len({one.id for one in table}) == len(table)
    declared = sorted((one.declared, one.rows) for one in table if one.declared)
    assert declared == [(kind, rows) for kind in ("attention", "gemm") for rows in ("few", "many")]


def test_every_family_of_the_articles_table_is_there() -> None:
    wanted = {"gemm-large", "gemm-skinny", "attention-prefill", "attention-decode", "normalisation", "elementwise",
              "gather", "histogram", "collective"}  # fmt: skip
    assert wanted <= {one.id for one in operators.families()}


@pytest.mark.parametrize(
    "bad",
    [
        "families: [{id: a, title: A, ways: [], saves: [time], brings: x, limits: y}]",
        "families: [{id: a, title: A, ways: [], saves: [bytes], brings: x, limits: y, verdict: gemm}]",
        "families: [{id: a, title: A, declared: gemm, ways: [], saves: [bytes], brings: x, limits: y}]",
        "families: [{id: a, title: A, ways: [{names: gemm}], saves: [bytes], brings: x, limits: y}]",
    ],
)
def test_a_bad_table_is_an_error(bad: str, tmp_path: Path) -> None:
    file = tmp_path / "operators.yaml"
    file.write_text(bad)
    with pytest.raises(ValueError, match=r"a|names and code"):
        operators.read(file)


# --- NVLink ---


def _with_link(kernel: KernelProfile, rate: float) -> KernelProfile:
    return recorded.changed(kernel, {"nvlrx__bytes.sum.per_second": rate, "nvltx__bytes.sum.per_second": rate / 4})


def test_nvlink_is_a_limit_where_its_counters_show_traffic() -> None:
    kernel = recorded.profile("faults/stream-copy")
    quiet = recorded.context_of(kernel)
    assert quiet.value("nvlink_utilization") == 0
    assert "nvlink" not in {one.resource for one in recorded.diagnose(kernel).limits}
    busy = recorded.context_of(_with_link(kernel, 300e9))
    limit = next(one for one in limits.compute(busy) if one.resource == "nvlink")
    # The busier direction, at half of the data sheet's 900 GB/s times the sustained share.
    assert limit.ceiling == pytest.approx(0.9 * 450e9) and limit.ceiling_source == "datasheet"
    us = busy.value("duration_us")
    assert us is not None and limit.work == pytest.approx(300e9 * us * 1e-6)
    assert busy.value("nvlink_utilization") == pytest.approx(300 / 405, rel=0.05)
    assert family(_with_link(replace(kernel, name="k", demangled="k()"), 300e9)) == ("collective", "code")


def test_without_link_counters_the_misses_to_peer_memory_count() -> None:
    kernel = recorded.changed(
        recorded.profile("faults/stream-copy"),
        dict.fromkeys(limits.LINK_COUNTERS) | {limits.PEER_MISSES: 1e6},
    )
    found = next(one for one in limits.compute(recorded.context_of(kernel)) if one.resource == "nvlink")
    assert found.work == 32e6


def test_a_gpu_without_nvlink_has_no_such_limit() -> None:
    gpu = catalogue.product("NVIDIA GeForce RTX 4090", 89)
    assert gpu is not None and gpu.nvlink_bytes_per_s is None
    ceilings: dict[str, Ceiling | None] = dict(catalogue.ceilings(gpu))
    assert ceilings["nvlink"] is None
    busy = _with_link(recorded.profile("faults/stream-copy"), 300e9)
    known = {name: one for name, one in ceilings.items() if one is not None}
    assert "nvlink" not in {one.resource for one in limits.compute(facts.context(busy, known, ()))}


def test_a_full_link_is_a_hardware_verdict() -> None:
    full = _with_link(recorded.profile("faults/stream-copy"), 400e9)
    slow = recorded.changed(
        full, {name: 5.0 for name in full.metrics if name.endswith("pct_of_peak_sustained_elapsed")}
    )
    slow = recorded.changed(slow, {"dram__bytes_read.sum": 1e6, "dram__bytes_write.sum": 1e6})
    found = recorded.diagnose(slow)
    assert (found.verdict.rule, found.verdict.klass) == ("nvlink-bandwidth", "hardware"), recorded.summary(found)
    assert recorded.diagnosis("faults/stream-copy").verdict.rule == "hbm-bandwidth"
