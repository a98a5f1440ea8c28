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
