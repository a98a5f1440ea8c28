"""`diagnose static --for`: moves to another architecture; packs and declared work on code alone; tcgen05."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import sass_tools as tools
from diagnose import static
from diagnose.errors import DiagnoseError
from diagnose.sass import disassemble, tcgen05, useful
from diagnose.static import Asked
from sass_tools import needs_nvcc, needs_ptxas

AMPERE = """
#include <mma.h>
using namespace nvcuda;
__global__ void product(const half* a, const half* b, float* c, int n) {
    __shared__ half tile[2][256];
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> fb;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> fc;
    wmma::fill_fragment(fc, 0.f);
    for (int i = 0; i < n; i++) {
        unsigned to = __cvta_generic_to_shared(&tile[i & 1][threadIdx.x * 8]);
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16; cp.async.commit_group; cp.async.wait_group 0;"
                     :: "r"(to), "l"(a + i * 256 + threadIdx.x * 8));
        __syncthreads();
        wmma::load_matrix_sync(fa, tile[i & 1], 16);
        wmma::load_matrix_sync(fb, b + i * 256, 16);
        wmma::mma_sync(fc, fa, fb, fc);
    }
    wmma::store_matrix_sync(c, fc, 16, wmma::mem_row_major);
}
"""


def findings(path: Path, **asked: object) -> dict[str, dict[str, object]]:
    (kernel,) = static.analyse(path, asked=replace(Asked(), **asked))["kernels"]
    return {finding["rule"]: finding for finding in kernel["findings"]}


@needs_nvcc
def test_ampere_code_is_told_the_steps_of_each_move(tmp_path: Path) -> None:
    cubin = tools.nvcc(tmp_path, AMPERE, "-arch", "sm_80", "-cubin", output="a.cubin")
    steps = ("bottleneck", "cluster", "registers", "roles", "shared", "tma")
    hopper = findings(cubin, target="sm_90a")
    assert sorted(hopper) == [f"migration/hopper-{step}" for step in steps]
    assert all(one["severity"] == "note" and one["at_stake"] is None for one in hopper.values())
    ada = findings(cubin, target="sm_89", problem="gemm:4096,4096,64,fp16")
    assert sorted(ada) == ["migration/ada-fp8", "migration/ada-l2", "migration/ada-stages"]
    assert findings(cubin) == {} == findings(cubin, target="sm_80")


@needs_nvcc
def test_the_working_set_has_to_be_declared(tmp_path: Path) -> None:
    cubin = tools.nvcc(tmp_path, AMPERE, "-arch", "sm_80", "-cubin", output="a.cubin")
    (kernel,) = static.analyse(cubin, asked=Asked(target="sm_89"))["kernels"]
    (unknown,) = kernel["not_evaluated"]
    assert unknown["rule"] == "migration/ada-l2" and unknown["missing"] == ["useful_bytes"]
    assert unknown["collect_with"] == "--problem SPEC"


@needs_ptxas
@pytest.mark.parametrize("n", (64, 256))
def test_hopper_code_is_told_the_five_steps_to_blackwell(n: int, tmp_path: Path) -> None:
    cubin = tools.assemble(tools.wgmma_loop(n, 2, 1), "sm_90a", tmp_path)
    found = findings(cubin, target="sm_100")
    for step in ("accumulators", "single-thread", "mbarrier", "descriptors", "epilogue"):
        assert f"migration/blackwell-{step}" in found, step
    evidence = found["migration/blackwell-accumulators"]["evidence"]
    values = {one["fact"]: one["value"] for one in evidence}  # type: ignore[attr-defined]
    assert values["registers_of_tile"] == n // 2 and values["tmem_columns"] == n and values["tmem_blocks"] == 512 // n


@pytest.mark.parametrize("target", ("sm_91", "hopper", ""))
def test_a_target_that_is_not_known(target: str, tmp_path: Path) -> None:
    with pytest.raises(DiagnoseError, match="--for"):
        static.analyse(tmp_path / "none", asked=Asked(target=target))


@needs_ptxas
@pytest.mark.parametrize(
    ("m", "n", "form", "kind", "k"), [(128, 256, 1, "bf16", 16), (64, 32, 0, "fp16", 16), (256, 128, 0, "fp16", 16)]
)
def test_the_shape_of_tcgen05_is_read_from_a_constant_descriptor(
    m: int, n: int, form: int, kind: str, k: int, tmp_path: Path
) -> None:
    descriptor = (m >> 4) << 24 | (n >> 3) << 17 | form << 7 | 1 << 4
    ptx = tools.ptx_for(["tcgen05_f16"], "sm_100a").replace("ld.param.u32 n, [count];", f"mov.b32 n, {descriptor};")
    cubin = tools.assemble(ptx, "sm_100a", tmp_path)
    (code,) = disassemble.disassemble(cubin.read_bytes(), "tcgen05", functions=None, timeout_s=60)
    at = next(i for i, one in enumerate(code.instructions) if tcgen05.is_mma(one))
    assert tcgen05.shape(code.instructions, at) == tcgen05.Shape(m, n, k, kind)
    assert tcgen05.columns(code.instructions) == 128


@needs_ptxas
def test_a_descriptor_that_is_not_in_the_code_stays_unknown(tmp_path: Path) -> None:
    cubin = tools.assemble(tools.ptx_for(["tcgen05_f16"], "sm_100a"), "sm_100a", tmp_path)
    (code,) = disassemble.disassemble(cubin.read_bytes(), "tcgen05", functions=None, timeout_s=60)
    at = next(i for i, one in enumerate(code.instructions) if tcgen05.is_mma(one))
    assert tcgen05.shape(code.instructions, at) is None


@pytest.mark.parametrize(
    ("problem", "shape", "share"),
    [
        ((16, 4096, 64), (64, 256, 16), 0.25),
        ((16, 4096, 64), (64, 16, 16), 1.0),
        ((65, 64, 16), (64, 64, 16), 65 / 128),
    ],
)
def test_padding_by_the_shape_of_one_instruction(
    problem: tuple[int, int, int], shape: tuple[int, int, int], share: float
) -> None:
    assert useful.padded_share(problem, shape) == pytest.approx(share)


PACK = """title: Many registers
class: implementation
severity: warning
when: {all: ['EXPRESSION']}
sentence: found
why: A rule of a team.
next_experiment: {change: fewer, expect: registers_per_thread < 8}
examples: {base: {FACT: 20}, silent: [{FACT: 1}]}
"""


@needs_nvcc
def test_a_pack_says_what_code_can_say_and_misses_what_a_run_would(tmp_path: Path) -> None:
    folder = tmp_path / "team"
    folder.mkdir()
    (folder / "pack.yaml").write_text("name: team\nversion: 1.0\n")
    rule = PACK.replace("registers_per_thread < 8", "FACT < 8")
    (folder / "waves.yaml").write_text(rule.replace("EXPRESSION", "FACT > 2").replace("FACT", "waves"))
    (folder / "moves.yaml").write_text(rule.replace("EXPRESSION", "FACT > 2").replace("FACT", "spill_bytes"))
    (folder / "size.yaml").write_text(rule.replace("EXPRESSION", "FACT > 2").replace("FACT", "code_instructions"))
    cubin = tools.nvcc(tmp_path, AMPERE, "-arch", "sm_80", "-cubin", output="a.cubin")
    document = static.analyse(cubin, asked=Asked(packs=(str(folder),)))
    (kernel,) = document["kernels"]
    assert [one["rule"] for one in kernel["findings"]] == ["team/size"] and kernel["verdict"]["rule"] == "team/size"
    assert [(one["rule"], one["missing"]) for one in kernel["not_evaluated"]] == [("team/waves", ["waves"])]
    assert [pack["name"] for pack in document["packs"]] == ["static", "team"]
