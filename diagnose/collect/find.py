"""Finds the tools that this product runs: ncu, nvcc, nvdisasm, cuobjdump, compute-sanitizer."""

from __future__ import annotations

import glob
import os
import re
import shutil
import sysconfig
from collections.abc import Iterable
from pathlib import Path

from diagnose.collect.host import output_of
from diagnose.errors import EXIT_NOTHING_MEASURED, DiagnoseError

# CUDA's usual places, as globs.
NCU_PLACES = (
    "/usr/local/cuda*/bin/ncu",
    "/opt/nvidia/nsight-compute/*/ncu",
    "/usr/local/NVIDIA-Nsight-Compute*/ncu",
    "/opt/nvidia/hpc_sdk/Linux_*/*/compilers/bin/ncu",
)
CUDA_PLACES = ("/usr/local/cuda", "/usr/local/cuda-*", "/opt/cuda")

Version = tuple[int, ...]


def is_program(path: Path) -> bool:
    """Whether the path is a file that may be executed."""
    return path.is_file() and os.access(path, os.X_OK)


def parse_version(text: str | None) -> Version:
    """`2025.3.1.0` as (2025, 3, 1, 0); an unknown version is (), which is older than all."""
    return tuple(int(part) for part in re.findall(r"\d+", text or ""))


def ncu_version(ncu: Path) -> str | None:
    """The version that `ncu --version` prints (`2025.3.1.0`), or None where it prints none."""
    found = re.search(r"^Version (\d+(?:\.\d+)+)", output_of([str(ncu), "--version"]) or "", re.MULTILINE)
    return found[1] if found else None


def _given(text: str, where: str, name: str = "ncu") -> Path:
    path = Path(text).expanduser()
    if path.is_dir():
        path = path / name
    if not is_program(path):
        raise DiagnoseError(
            f"{where} names {text}, which is not an executable file",
            f"diagnose doctor    (lists the {name} installations found here)" if name == "ncu" else f"which {name}",
            EXIT_NOTHING_MEASURED,
        )
    return path.absolute()


def _existing(places: Iterable[str]) -> list[Path]:
    found: dict[str, Path] = {}
    for place in places:
        for name in sorted(glob.glob(place)):
            if is_program(Path(name)):
                found.setdefault(os.path.realpath(name), Path(name))
    return list(found.values())


def installed_ncus() -> tuple[Path, ...]:
    """Every ncu in CUDA's usual places, newest first."""
    return tuple(sorted(_existing(NCU_PLACES), key=lambda ncu: parse_version(ncu_version(ncu)), reverse=True))


def find_ncu(given: str | None = None) -> Path | None:
    """The ncu to use: `given` (`--ncu`), else DIAGNOSE_NCU, else PATH, else the newest in CUDA's usual places.

    A named one that cannot be run is an error; None means that there is none on this machine.
    """
    if given:
        return _given(given, "--ncu")
    if from_environment := os.environ.get("DIAGNOSE_NCU"):
        return _given(from_environment, "DIAGNOSE_NCU")
    if on_path := shutil.which("ncu"):
        return Path(on_path).absolute()
    return next(iter(installed_ncus()), None)


def wheel_bin() -> tuple[Path, ...]:
    """The `bin` folders that NVIDIA's PyPI wheels install (`site-packages/nvidia/cu13/bin`), newest CUDA first."""
    folders = {Path(sysconfig.get_path(kind)) / "nvidia" for kind in ("platlib", "purelib")}
    found = {path for folder in folders for path in folder.glob("cu[0-9]*/bin")}
    return tuple(sorted(found, key=lambda path: parse_version(path.parent.name), reverse=True))


def find_cuda_tool(name: str) -> Path | None:
    """A tool of the CUDA toolkit (`nvcc`, `nvdisasm`, `cuobjdump`): PATH, CUDA_HOME, CUDA's places, PyPI's wheels."""
    if on_path := shutil.which(name):
        return Path(on_path).absolute()
    homes = [os.environ[variable] for variable in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(variable)]
    toolkits = sorted(
        (match for place in CUDA_PLACES for match in glob.glob(place)),
        key=lambda path: parse_version(Path(os.path.realpath(path)).name),
        reverse=True,
    )
    folders = [Path(home) / "bin" for home in (*homes, *toolkits)] + list(wheel_bin())
    return next((folder / name for folder in folders if is_program(folder / name)), None)


def find_sanitizer(given: str | None = None) -> Path | None:
    """The compute-sanitizer to use: `given` (`--sanitizer`), else DIAGNOSE_SANITIZER, else as any tool of CUDA.

    A named one that cannot be run is an error; None means that there is none on this machine.
    """
    for text, where in ((given, "--sanitizer"), (os.environ.get("DIAGNOSE_SANITIZER"), "DIAGNOSE_SANITIZER")):
        if text:
            return _given(text, where, "compute-sanitizer")
    return find_cuda_tool("compute-sanitizer")


def cuda_tool_version(tool: Path) -> str | None:
    """The release that a CUDA tool prints for `--version` (`13.0.88`), or None."""
    text = output_of([str(tool), "--version"]) or ""
    found = re.search(r"\bV(\d+(?:\.\d+)+)", text) or re.search(r"release (\d+(?:\.\d+)+)", text)
    return found[1] if found else None
