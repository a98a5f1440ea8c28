"""The table of data paths: every row is proved by compiling its source, and its page is up to date."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from diagnose.sass import disassemble, mix, pathtable
from sass_tools import SOURCES, assemble, needs_nvcc, needs_ptxas, nvcc, ptx_for

CONTRACT = {
    *("mma", "sparse-mma", "fp8-mma", "block-scaled-mma", "int-mma", "fp64-mma", "ldmatrix", "stmatrix", "cp-async"),
    *("mbarrier", "tma", "tma-multicast", "wgmma", "sparse-wgmma", "fp8-wgmma", "setmaxnreg", "cluster", "dsm"),
    *("async-fence", "tcgen05", "tmem", "dpx"),
}
ROWS = pathtable.entries()
TARGETS = sorted({target for row in ROWS for on in row.proof.values() for target in on})


def code_by_source(target, folder):
    names = sorted({name for row in ROWS for name, on in row.proof.items() if target in on})
    cubin = assemble(ptx_for(names, target), target, folder).read_bytes()
    found = {code.name: code for code in disassemble.disassemble(cubin, target)}
    assert set(names) <= set(found)
    return found


def test_the_table_has_every_path_of_the_contract_and_no_other():
    assert set(pathtable.names()) == CONTRACT


def test_every_row_has_a_source_and_every_source_a_row():
    named = {name for row in ROWS for name in row.proof}
    assert all(row.proof for row in ROWS)
    assert named == {path.stem for path in SOURCES.glob("*.ptx")}


@needs_ptxas
@pytest.mark.parametrize("target", [target for target in TARGETS if target != "sm_70"])
def test_each_row_is_found_in_what_the_compiler_makes(target, tmp_path):
    found = code_by_source(target, tmp_path)
    for row in ROWS:
        for name, on in row.proof.items():
            if target in on:
                code = found[name]
                hits = [i for i in code.instructions if not i.never and row.proves(i.opcode, i.text)]
                assert hits, f"{row.path} ({row.pattern}) is not in {name}.ptx for {target}"
                assert row.path in pathtable.of_code((i.opcode, i.text) for i in code.instructions)


@needs_ptxas
@pytest.mark.parametrize(
    ("name", "target", "absent", "present"),
    [
        ("mma_fp8", "sm_90a", {"fp8-mma"}, {"mma"}),
        ("mma_fp8", "sm_100a", {"fp8-mma"}, {"mma"}),
        ("mma_m8n8k4", "sm_80", {"mma"}, set()),
        ("tma_multicast", "sm_120a", {"tma-multicast"}, set()),
        ("dpx", "sm_120a", {"dpx"}, set()),
        ("dsm_arrive", "sm_90a", {"dsm"}, {"mbarrier"}),
        ("dsm_arrive", "sm_100a", {"dsm"}, {"mbarrier"}),
        ("tcgen05_st", "sm_100a", {"async-fence"}, {"tmem"}),
        ("mma_fp8_block", "sm_120a", set(), {"block-scaled-mma", "fp8-mma"}),
        ("wgmma_fp8", "sm_90a", {"mma", "fp8-mma"}, {"wgmma", "fp8-wgmma"}),
        ("tcgen05_fp8", "sm_100a", {"block-scaled-mma"}, {"tcgen05"}),
        ("cp_async", "sm_80", {"mbarrier", "tma"}, {"cp-async"}),
    ],
)
def test_what_is_not_there_is_not_named(name, target, absent, present, tmp_path):
    cubin = assemble(ptx_for([name], target), target, tmp_path).read_bytes()
    (code,) = disassemble.disassemble(cubin, name)
    paths = set(pathtable.of_code((i.opcode, i.text) for i in code.instructions))
    assert not paths & absent and present <= paths


@needs_nvcc
@pytest.mark.parametrize("target", ["sm_90a", "sm_100a"])
def test_an_index_that_is_clamped_is_no_dpx(target, tmp_path):
    source = """
__global__ void clamped(int *a, int n) { a[0] = min(a[1] + 1, n); a[2] = max(a[3] - n, 0); a[4] = max(a[5], n); }
__global__ void scored(int *a, int n) { a[0] = __viaddmax_s32_relu(a[1], a[2], n); }
"""
    cubin = nvcc(tmp_path, source, "-arch", target, "-cubin", output="clamped.cubin").read_bytes()
    found = {code.name: code for code in disassemble.disassemble(cubin, target)}
    paths = {name: pathtable.of_code((i.opcode, i.text) for i in code.instructions) for name, code in found.items()}
    assert any(i.base == "VIADDMNMX" for i in found["_Z7clampedPii"].instructions)
    assert paths == {"_Z7clampedPii": (), "_Z6scoredPii": ("dpx",)}


def test_a_permutation_of_bytes_is_no_distributed_shared_memory():
    packed = ("PRMT", "PRMT R5, R6, 0x654, R7")
    assert pathtable.of_code([packed, ("STG.E", "STG.E desc[UR4][R2.64], R5")]) == ()
    assert pathtable.of_code([packed, ("ST.E", "ST.E desc[UR4][R2.64], R5")]) == ()
    assert pathtable.of_code([packed, ("LD.E", "LD.E R3, desc[UR4][R5.64]")]) == ("dsm",)
    assert pathtable.of_code([packed, ("MOV", "MOV R8, R5"), ("LD.E", "LD.E R3, desc[UR4][R8.64]")]) == ("dsm",)


def test_opcodes_alone_name_paths():
    assert mix.paths({"HMMA.16816.F32": 1, "LDGSTS.E.BYPASS.128": 2, "FFMA": 3}) == ("cp-async", "mma")
    assert mix.paths({"HGMMA.SP.64x8x32.F32": 1}) == ("sparse-wgmma", "wgmma")
    assert mix.paths({"HFMA2.MMA": 5, "LDS": 1, "PRMT": 1, "HMMAX": 1}) == ()
    assert mix.paths({"FENCE.VIEW.ASYNC": 1}) == ("async-fence",)
    assert mix.paths({"UTMALDG.2D.MULTICAST": 1}) == ("tma", "tma-multicast")


def test_the_page_is_up_to_date():
    script = SOURCES / "render_doc.py"
    done = subprocess.run(
        [sys.executable, "-c", f"import runpy; print(runpy.run_path({str(script)!r})['page'](), end='')"],
        capture_output=True,
        text=True,
        check=True,
    )
    page = (SOURCES.parents[1] / "docs" / "sass-paths.md").read_text("utf-8")
    assert page == done.stdout, "run python tests/sass_sources/render_doc.py"
    for row in ROWS:
        for name in row.proof:
            assert re.search(rf"\| {row.path} \|.*{name}\.ptx", page)
