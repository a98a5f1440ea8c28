"""The attention and reduction ladders compile for sm_90a into the instructions that each step is about."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

from diagnose.collect.kernels import read_manifest
from sass_tools import NVCC, NVDISASM, needs_nvcc

KERNELS = Path(__file__).resolve().parents[1] / "kernels"
FLAGS = ["-O3", "-lineinfo", "-std=c++17", "-gencode=arch=compute_90a,code=sm_90a", "-Xptxas", "-v"]

WGMMA = {"HGMMA", "UTMALDG", "SYNCS", "WARPGROUP"}
# source, function: what its SASS must hold, and what it must not. Opcodes without their modifiers.
STEPS: dict[tuple[str, str], tuple[set[str], set[str]]] = {
    ("attention/naive", "attention_naive_scores"): ({"FFMA", "LDG"}, {"HMMA", "HGMMA"}),
    ("attention/fused", "attention_fused"): ({"HMMA", "LDSM", "LDGSTS"}, {"HGMMA", "UTMALDG"}),
    ("attention/tma", "attention_tma"): (WGMMA, {"HMMA", "LDSM", "LDGSTS", "USETMAXREG"}),
    ("attention/specialised", "attention_specialised"): (WGMMA | {"USETMAXREG"}, {"HMMA", "LDSM", "LDGSTS"}),
    ("attention/decode", "attention_decode"): ({"HMMA", "LDSM", "UTMALDG", "SYNCS"}, {"HGMMA", "LDGSTS"}),
    ("reduction/cub", "DeviceReduceKernel"): ({"LDG"}, set()),
    ("reduction/atomic", "reduce_atomic"): ({"LDG", "REDG"}, {"SHFL", "LDS"}),
    ("reduction/tree", "reduce_tree_divergent"): ({"LDS", "STS", "BAR"}, {"SHFL"}),
    ("reduction/scalar", "reduce_scalar"): ({"LDG", "SHFL", "REDG"}, set()),
    ("reduction/shuffle", "reduce_shuffle"): ({"LDG", "SHFL", "REDG"}, set()),
    ("reduction/vectorised", "reduce_vectorised"): ({"LDG", "SHFL"}, {"UCGABAR_ARV"}),
    ("reduction/cluster", "reduce_cluster"): ({"LDG", "SHFL", "UCGABAR_ARV", "UCGABAR_WAIT"}, set()),
    ("reduction/softmax", "softmax_fused"): ({"LDG", "SHFL", "MUFU", "STG"}, set()),
    ("reduction/rmsnorm", "rmsnorm_fused"): ({"LDG", "SHFL", "MUFU", "STG"}, set()),
}
pytestmark = [pytest.mark.slow, needs_nvcc]


@cache
def compiled(name: str, folder: Path) -> tuple[str, dict[str, list[str]]]:
    """What ptxas said, and the SASS instructions of each kernel by mangled name, in order."""
    assert NVCC is not None and NVDISASM is not None
    cubin = folder / (name.replace("/", "-") + ".cubin")
    command = [str(NVCC), *FLAGS, "-cubin", "-o", str(cubin), str(KERNELS / f"{name}.cu")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    listing = subprocess.run([NVDISASM, "-c", cubin], capture_output=True, text=True, check=True).stdout
    functions: dict[str, list[str]] = {}
    for section in re.split(r"^\s*\.section\s+\.text\.", listing, flags=re.MULTILINE)[1:]:
        lines = re.findall(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:\{\s*)?(.+?)\s*;", section, flags=re.MULTILINE)
        functions[section.split(",", 1)[0].split()[0]] = lines
    return done.stderr + done.stdout, functions


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ladders")


def opcode(line: str) -> str:
    return re.sub(r"^@!?U?P\w+\s+", "", line).split()[0].split(".")[0].rstrip(",")


def kernels_of(name: str, function: str, folder: Path) -> dict[str, list[str]]:
    # The length before an identifier ends a match of a longer name that contains it.
    marked = f"{len(function)}{function}"
    found = {mangled: lines for mangled, lines in compiled(name, folder)[1].items() if marked in mangled}
    assert found, f"{name} has no kernel {function}"
    return found


@pytest.mark.parametrize(("name", "function"), STEPS, ids=[f"{name}:{function}" for name, function in STEPS])
def test_a_step_has_its_instructions(name: str, function: str, folder: Path) -> None:
    wanted, unwanted = STEPS[name, function]
    for mangled, lines in kernels_of(name, function, folder).items():
        opcodes = {opcode(line) for line in lines}
        assert wanted <= opcodes, f"{mangled} lacks {wanted - opcodes}"
        assert not unwanted & opcodes, f"{mangled} has {unwanted & opcodes}"
        assert not {"LDL", "STL"} & opcodes, f"{mangled} goes through local memory"


@pytest.mark.parametrize("name", sorted({name for name, _ in STEPS}))
def test_ptxas_has_no_complaint(name: str, folder: Path) -> None:
    said = compiled(name, folder)[0]
    # C7510: wgmma serialised; C7508: setmaxnreg ignored; C7519: a fence for wgmma was missing.
    assert not re.search(r"C75\d\d|warning", said), said
    spills = re.findall(r"(\d+) bytes spill (?:stores|loads)", said)
    assert spills and set(spills) == {"0"}, said


def test_every_step_of_the_ladders_is_here() -> None:
    for family in ("attention", "reduction"):
        for kernel in read_manifest(KERNELS / family / "manifest.yaml"):
            assert f"{family}/{kernel.source.stem}" in {name for name, _ in STEPS}, kernel.name


def test_loads_are_as_wide_as_they_say(folder: Path) -> None:
    def loads(name: str, function: str) -> list[str]:
        ((_, lines),) = kernels_of(name, function, folder).items()
        return [line for line in lines if opcode(line) == "LDG"]

    assert all(".128" not in line for line in loads("reduction/scalar", "reduce_scalar"))
    for name in ("vectorised", "cluster"):
        wide = [line for line in loads(f"reduction/{name}", f"reduce_{name}") if ".128" in line]
        assert len(wide) >= 8, f"{name}: {len(wide)} loads of 16 bytes"


def test_eight_loads_are_in_flight_before_the_first_sum(folder: Path) -> None:
    for name in ("vectorised", "cluster"):
        ((_, lines),) = kernels_of(f"reduction/{name}", f"reduce_{name}", folder).items()
        kinds = [opcode(line) for line in lines if ".128" in line or opcode(line) == "FADD"]
        assert "LDG " * 8 in " ".join(kinds) + " ", kinds


def test_the_softmax_runs_while_p_v_is_under_way(folder: Path) -> None:
    """The exponentials of the main loop lie between the waits for Q K^T and P V: ptxas once moved them behind both."""
    for mangled, lines in kernels_of("attention/specialised", "attention_specialised", folder).items():
        text = [opcode(line) + (" " + line.split()[-1] if "DEPBAR" in line else "") for line in lines]
        first = text.index("WARPGROUP 0x1")
        second = text.index("WARPGROUP 0x0", first)
        # 64 scores a lane, and two factors for the earlier sums.
        assert text[first:second].count("MUFU") >= 66, f"{mangled}: {text[first:second].count('MUFU')} exponentials"


def test_the_warpgroups_take_turns(folder: Path) -> None:
    kernels = kernels_of("attention/specialised", "attention_specialised", folder)
    assert len(kernels) == 4  # two head dimensions, with a mask or without
    for mangled, lines in kernels.items():
        assert any(opcode(line) == "BAR" and "ARV" in line for line in lines), mangled


def test_blocks_of_a_cluster_write_to_each_other(folder: Path) -> None:
    ((_, lines),) = kernels_of("reduction/cluster", "reduce_cluster", folder).items()
    # mapa becomes a PRMT or an add of the rank's window; what shows is a generic store, where others are STS or STG.
    assert any(opcode(line) == "ST" for line in lines), "no store to distributed shared memory"
