"""Helpers of the SASS tests: compile small sources for a target, and where the tools for that are."""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

from diagnose.collect.find import find_cuda_tool

SOURCES = Path(__file__).with_name("sass_sources")
NVDISASM = find_cuda_tool("nvdisasm")
PTXAS = find_cuda_tool("ptxas")
NVCC = find_cuda_tool("nvcc")

needs_nvdisasm = pytest.mark.skipif(NVDISASM is None, reason="nvdisasm is not here (pip install nvidia-cuda-nvdisasm)")
needs_ptxas = pytest.mark.skipif(PTXAS is None or NVDISASM is None, reason="ptxas or nvdisasm is not here")
needs_nvcc = pytest.mark.skipif(
    NVCC is None or NVDISASM is None or shutil.which("g++") is None,
    reason="nvcc, g++ or nvdisasm is not here",
)


def ptx_for(names: list[str], target: str) -> str:
    """One PTX module for `target` with the kernels of several sources."""
    bodies = []
    for name in names:
        text = (SOURCES / f"{name}.ptx").read_text("utf-8")
        bodies.append(text[text.index(".visible") :])
    version = "9.0" if target != "sm_70" else "8.0"
    return f".version {version}\n.target {target}\n.address_size 64\n" + "\n".join(bodies)


def assemble(ptx: str, target: str, folder: Path) -> Path:
    """A cubin from PTX text."""
    assert PTXAS is not None
    source, cubin = folder / f"{target}.ptx", folder / f"{target}.cubin"
    source.write_text(ptx, "utf-8")
    done = subprocess.run([PTXAS, "-arch", target, "-o", cubin, source], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return cubin


@cache
def _compiled() -> dict[tuple[str, ...], bytes]:
    return {}


def nvcc(folder: Path, source: str, *options: str, output: str) -> Path:
    """What nvcc makes of a .cu file of tests/sass_sources, or of CUDA text. Equal calls compile once a session."""
    assert NVCC is not None
    path = SOURCES / source
    if not source.endswith(".cu"):
        path = folder / "source.cu"
        path.write_text(source, "utf-8")
    made = folder / output
    key = (source, *options, re.sub(r"\W", "", made.suffix))
    if key not in _compiled():
        command = [str(NVCC), "-std=c++17", *options, "-o", str(made), str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
        assert done.returncode == 0, done.stderr
        _compiled()[key] = made.read_bytes()
    made.write_bytes(_compiled()[key])
    return made


# --- PTX with a known answer ---

_HEADER = """.version 9.0
.target {target}
.address_size 64
"""


def wgmma_loop(n: int, in_group: int, distance: int, operands: str = "SS") -> str:
    """A loop that issues `in_group` wgmma of width `n`, commits, and waits until `distance` groups are in flight."""
    width = n // 2
    accumulators = ", ".join(f"f{i}" for i in range(width))
    a = "d0" if operands == "SS" else "{r0, r1, r2, r3}"
    tail = "1, 1, 1, 0, 0" if operands == "SS" else "1, 1, 1, 0"
    one = f"  wgmma.mma_async.sync.aligned.m64n{n}k16.f32.f16.f16 {{{accumulators}}}, {a}, d1, {tail};\n"
    return (
        _HEADER.format(target="sm_90a")
        + f""".visible .entry loop(.param .u64 data, .param .u32 count) .reqntid 128
{{
  .reg .b64 a, d0, d1;
  .reg .b32 n, i, r<4>;
  .reg .f32 f<{width}>;
  .reg .pred p;
  ld.param.u64 a, [data];
  ld.param.u32 n, [count];
  mov.b64 d0, 0x4000004000010000;
  mov.b64 d1, 0x4000004000010010;
"""
        + "".join(f"  ld.global.b32 r{k}, [a+{4 * k}];\n" for k in range(4))
        + "".join(f"  mov.f32 f{k}, 0f00000000;\n" for k in range(width))
        + "  mov.u32 i, 0;\n  wgmma.fence.sync.aligned;\nagain:\n"
        + one * in_group
        + f"""  wgmma.commit_group.sync.aligned;
  wgmma.wait_group.sync.aligned {distance};
  add.u32 i, i, 1;
  add.u64 d0, d0, 2;
  setp.lt.u32 p, i, n;
  @p bra again;
  wgmma.wait_group.sync.aligned 0;
"""
        + "".join(f"  st.global.f32 [a+{4 * k}], f{k};\n" for k in range(width))
        + "  ret;\n}\n"
    )


def tma_pipeline(stages: int) -> str:
    """Warp specialisation: one warp group fills `stages` tiles by TMA, the other multiplies them; full and empty
    mbarriers a stage."""
    init = "".join(
        f"  mbarrier.init.shared::cta.b64 [{name}+{8 * s}], {count};\n"
        for s in range(stages)
        for name, count in (("full", 1), ("empty", 128))
    )
    accumulators = ", ".join(f"f{i}" for i in range(32))
    return (
        _HEADER.format(target="sm_90a")
        + f""".visible .entry pipeline(.param .u64 map, .param .u64 data, .param .u32 count) .reqntid 256
{{
  .shared .align 1024 .b8 tile[{stages * 8192}];
  .shared .align 8 .b64 full[{stages}];
  .shared .align 8 .b64 empty[{stages}];
  .reg .b64 m, a, d0, d1, t;
  .reg .b32 n, i, s, phase, tid, fb, eb, to, x;
  .reg .f32 f<32>;
  .reg .pred p, q, w;
  ld.param.u64 m, [map];
  ld.param.u64 a, [data];
  ld.param.u32 n, [count];
  mov.u32 tid, %tid.x;
  setp.ne.u32 p, tid, 0;
  @p bra ready;
{init}  fence.mbarrier_init.release.cluster;
ready:
  bar.sync 0;
  mov.u32 i, 0;
  mov.u32 s, 0;
  mov.u32 phase, 0;
  setp.lt.u32 p, tid, 128;
  @!p bra consumer;
  setp.ne.u32 q, tid, 0;
  @q bra done;
producer:
  shl.b32 x, s, 3;
  mov.u32 eb, empty;
  add.u32 eb, eb, x;
  mov.u32 fb, full;
  add.u32 fb, fb, x;
  shl.b32 x, s, 13;
  mov.u32 to, tile;
  add.u32 to, to, x;
  xor.b32 x, phase, 1;
wait_empty:
  mbarrier.try_wait.parity.shared::cta.b64 w, [eb], x;
  @!w bra wait_empty;
  mbarrier.arrive.expect_tx.shared::cta.b64 t, [fb], 8192;
  cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [to], [m, {{i, i}}], [fb];
  add.u32 s, s, 1;
  setp.eq.u32 w, s, {stages};
  selp.u32 s, 0, s, w;
  @w xor.b32 phase, phase, 1;
  add.u32 i, i, 1;
  setp.lt.u32 p, i, n;
  @p bra producer;
  bra done;
consumer:
"""
        + "".join(f"  mov.f32 f{k}, 0f00000000;\n" for k in range(32))
        + f"""multiply:
  shl.b32 x, s, 3;
  mov.u32 eb, empty;
  add.u32 eb, eb, x;
  mov.u32 fb, full;
  add.u32 fb, fb, x;
  shl.b32 x, s, 9;
  cvt.u64.u32 t, x;
  mov.b64 d0, 0x4000004000010000;
  mov.b64 d1, 0x4000004000010010;
  add.u64 d0, d0, t;
  add.u64 d1, d1, t;
wait_full:
  mbarrier.try_wait.parity.shared::cta.b64 w, [fb], phase;
  @!w bra wait_full;
  wgmma.fence.sync.aligned;
  wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {{{accumulators}}}, d0, d1, 1, 1, 1, 0, 0;
  wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {{{accumulators}}}, d0, d1, 1, 1, 1, 0, 0;
  wgmma.commit_group.sync.aligned;
  wgmma.wait_group.sync.aligned 0;
  mbarrier.arrive.shared::cta.b64 t, [eb];
  add.u32 s, s, 1;
  setp.eq.u32 w, s, {stages};
  selp.u32 s, 0, s, w;
  @w xor.b32 phase, phase, 1;
  add.u32 i, i, 1;
  setp.lt.u32 p, i, n;
  @p bra multiply;
"""
        + "".join(f"  st.global.f32 [a+{4 * k}], f{k};\n" for k in range(32))
        + "done:\n  ret;\n}\n"
    )


def mma_loop(tiles: int, target: str, warps: int = 4) -> str:
    """A loop of warp-level FP16 products with `tiles` accumulator tiles of 16 by 8 a warp."""
    accumulators = 4 * tiles
    products = "".join(
        "  mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        f"{{f{4 * t}, f{4 * t + 1}, f{4 * t + 2}, f{4 * t + 3}}}, {{r0, r1, r2, r3}}, {{r4, r5}}, "
        f"{{f{4 * t}, f{4 * t + 1}, f{4 * t + 2}, f{4 * t + 3}}};\n"
        for t in range(tiles)
    )
    return (
        _HEADER.format(target=target)
        + f""".visible .entry loop(.param .u64 data, .param .u32 count) .reqntid {32 * warps}
{{
  .reg .b64 a;
  .reg .b32 n, i, r<6>;
  .reg .f32 f<{accumulators}>;
  .reg .pred p;
  ld.param.u64 a, [data];
  ld.param.u32 n, [count];
  mov.u32 i, 0;
"""
        + "".join(f"  mov.f32 f{k}, 0f00000000;\n" for k in range(accumulators))
        + "again:\n"
        + "".join(f"  ld.global.b32 r{k}, [a+{4 * k}];\n" for k in range(6))
        + products
        + "  add.u64 a, a, 128;\n  add.u32 i, i, 1;\n  setp.lt.u32 p, i, n;\n  @p bra again;\n"
        + "".join(f"  st.global.f32 [a+{4 * k}], f{k};\n" for k in range(accumulators))
        + "  ret;\n}\n"
    )
