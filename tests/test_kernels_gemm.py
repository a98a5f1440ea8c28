"""The GEMM ladder without a GPU: each step's machine code holds its idea and no later step's, and nothing spills."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from diagnose.collect.find import find_cuda_tool
from diagnose.collect.kernels import load_kernels

NVCC, NVDISASM = find_cuda_tool("nvcc"), find_cuda_tool("nvdisasm")
needs_compiler = pytest.mark.skipif(
    NVCC is None or NVDISASM is None or shutil.which("g++") is None, reason="nvcc, g++ or nvdisasm is not here"
)
# What each SASS must hold, and what it must not: the idea of a later step, or of an earlier one it replaces.
STEPS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "gemm/naive": (("FFMA",), ("STS", "HMMA")),
    "gemm/tiled": (("FFMA", "STS"), ("HMMA",)),
    "gemm/register": (("FFMA", "LDS.128", "LDG.E.128"), ("HMMA", "LDGSTS")),
    "gemm/mma-sync": (("HMMA.16816.F32.BF16", "LDSM", "STS.128"), ("LDGSTS", "HGMMA")),
    "gemm/mma": (("HMMA.16816.F32.BF16", "LDSM", "LDGSTS"), ("HGMMA",)),
    "gemm/wgmma": (("HGMMA.64x256x16.F32.BF16", "LDGSTS", "FENCE.VIEW.ASYNC"), ("HMMA", "UTMALDG", "LDSM")),
    "gemm/tma": (("HGMMA.64x256x16.F32.BF16", "UTMALDG.2D", "SYNCS.PHASECHK"), ("LDGSTS", "USETMAXREG", "MULTICAST")),
    "gemm/specialised": (("UTMALDG.2D", "USETMAXREG", "SYNCS.ARRIVE"), ("MULTICAST", "UCGABAR", "UTMASTG")),
    "gemm/multicast": (("UTMALDG.2D.MULTICAST", "USETMAXREG", "UCGABAR_ARV"), ("UTMASTG",)),
    "gemm/persistent": (("UTMALDG.2D.MULTICAST", "UTMASTG.2D", "STSM", "USETMAXREG"), ("STG",)),
}


def compiled(source: Path, folder: Path) -> tuple[str, str]:
    """What ptxas says of a source, and the SASS of its kernels."""
    assert NVCC is not None and NVDISASM is not None
    cubin = folder / f"{source.stem}.cubin"
    flags = [
        "-O3",
        "-std=c++17",
        "-gencode=arch=compute_90a,code=sm_90a",
        "-Xptxas",
        "-v",
        "-cubin",
        "-split-compile=0",
    ]
    made = subprocess.run([NVCC, *flags, "-o", cubin, source], capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr[-2000:]
    sass = subprocess.run([NVDISASM, "-c", cubin], capture_output=True, text=True, check=True).stdout
    return made.stdout + made.stderr, sass


def of_function(sass: str, name: str) -> str:
    """The SASS of the kernels of that base name."""
    parts = re.split(r"(?m)^\s*\.section\s+\.text\.", sass)
    found = [part for part in parts[1:] if re.match(rf"_Z(?:TS)?{len(name)}{name}", part)]
    assert found, f"no kernel {name} in the cubin"
    return "\n".join(found)


def has(sass: str, opcode: str) -> bool:
    """Whether an instruction starts with this opcode, or contains it as a modifier."""
    return re.search(rf"[\s.]{re.escape(opcode)}(?![A-Za-z0-9_])", sass) is not None


def test_every_step_is_here_once_and_in_order() -> None:
    kernels = [kernel for kernel in load_kernels().values() if kernel.family == "gemm"]
    steps = sorted((kernel.step, kernel.name) for kernel in kernels if kernel.step is not None)
    assert [step for step, _ in steps] == list(range(len(steps)))
    assert [name for _, name in steps] == ["gemm/cublas", *STEPS]


@needs_compiler
@pytest.mark.parametrize("name", list(STEPS))
def test_the_machine_code_of_a_step(name: str, tmp_path: Path) -> None:
    kernel = load_kernels()[name]
    words, sass = compiled(kernel.source, tmp_path)
    own = of_function(sass, kernel.function)
    wanted, unwanted = STEPS[name]
    assert [opcode for opcode in wanted if not has(own, opcode)] == []
    assert [opcode for opcode in unwanted if has(own, opcode)] == []
    assert not has(own, "STL") and not has(own, "LDL")
    assert not re.search(r"[1-9]\d* bytes spill", words) and "C75" not in words, "spilled, or wgmma serialized"


@needs_compiler
def test_a_word_of_metadata_stays_while_its_product_runs(tmp_path: Path) -> None:
    """The compiler does not know that wgmma reads the register until its group is done: two must take turns."""
    words, sass = compiled(load_kernels()["gemm/sparse"].source, tmp_path)
    assert not re.search(r"[1-9]\d* bytes spill", words) and "C75" not in words
    (body,) = [part for part in of_function(sass, "gemm_sparse").split(".section") if "HGMMA.SP" in part]
    lines = [line for line in body.splitlines() if re.search(r"/\*[0-9a-f]{4}\*/", line)]
    products = [at for at, line in enumerate(lines) if "HGMMA.SP.64x256x32" in line]
    waits = [at for at, line in enumerate(lines) if "WARPGROUP.DEPBAR.LE gsb0, 0x1" in line]
    assert len(products) == 4  # two steps of two
    assert products[1] < waits[0] < products[2] and products[3] < waits[1] < products[3] + 4
    words_of = [re.findall(r", (R\d+), 0x[01]", lines[at])[0] for at in products]
    assert words_of[0] == words_of[1] != words_of[2] == words_of[3]
    start = next(at for at in range(products[0], 0, -1) if "SYNCS.PHASECHK" in lines[at])

    def writes(register: str, lines: list[str]) -> list[str]:
        return [line for line in lines if re.search(rf"\*/\s+(?:@!?U?P\d\s+)?[A-Z][\w.]*\s+{register}\b", line)]

    even, odd = words_of[0], words_of[2]
    assert writes(even, lines[products[0] : waits[1]]) == []
    # From the end of the loop its beginning follows, then the wait of the first step.
    assert writes(odd, [*lines[products[2] : waits[1] + 1], *lines[start : waits[0]]]) == []
    # Nor does anything but wgmma touch the sums, R24 to R151, before the last group is done.
    done = next(at for at, line in enumerate(lines) if at > products[3] and "WARPGROUP.DEPBAR.LE gsb0, 0x0" in line)
    used = {int(n) for line in lines[products[3] + 1 : done] for n in re.findall(r"\bR(\d+)", line)}
    assert not used & set(range(24, 152))


@needs_compiler
@pytest.mark.slow
def test_no_tile_of_the_shapes_spills_or_serializes(tmp_path: Path) -> None:
    words, sass = compiled(load_kernels()["gemm/shape"].source, tmp_path)
    assert not re.search(r"[1-9]\d* bytes spill", words) and "C75" not in words
    own = of_function(sass, "gemm_shape")
    for opcode in ("HGMMA.64x64x16.F32.BF16", "HGMMA.64x256x8.F32.TF32", "QGMMA.64x256x32.F32.E4M3.E4M3", "LDSM"):
        assert has(own, opcode), opcode
    from_registers = [line for line in own.splitlines() if re.search(r"[HQ]GMMA\.\S+ R\d+, R\d+, gdesc", line)]
    assert {line.split("GMMA")[1].split()[0].split("x")[2].split(".")[0] for line in from_registers} == {
        "8",
        "16",
        "32",
    }


@needs_compiler
@pytest.mark.slow
def test_no_choice_of_the_sweep_spills_or_serializes(tmp_path: Path) -> None:
    words, sass = compiled(load_kernels()["gemm/sweep"].source, tmp_path)
    assert not re.search(r"[1-9]\d* bytes spill", words) and "C75" not in words
    own = of_function(sass, "gemm_sweep")
    for opcode in ("HGMMA.64x64x16.F32.BF16", "HGMMA.64x256x8.F32.TF32", "QGMMA.64x256x32.F32.E4M3.E4M3", "LDSM"):
        assert has(own, opcode), opcode
