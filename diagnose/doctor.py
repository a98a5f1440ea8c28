"""`diagnose doctor`: what is on this machine, and the exact remedy for what is missing. Never fails."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from collections.abc import Callable
from dataclasses import dataclass

from diagnose.collect import find, host
from diagnose.errors import DiagnoseError

OLDEST_NCU = (2022, 1)
OLDEST_NCU_REPORT = (2025, 3)


@dataclass(frozen=True)
class Check:
    """One line of the doctor's answer. `status` is ok, warning or missing; `remedy` is empty where it is ok."""

    name: str
    status: str
    value: str
    remedy: str = ""


def _gpu() -> Check:
    found = host.gpus()
    if not found:
        inside = host.container()
        remedy = f"start the {inside} container with --gpus all" if inside else "install NVIDIA's driver (nvidia-smi)"
        return Check("GPU", "missing", "nvidia-smi shows none", f"{remedy}; recorded reports need no GPU")
    names = ", ".join(f"{gpu.name} (sm_{gpu.capability})" if gpu.capability else gpu.name for gpu in found)
    if any(gpu.mig for gpu in found):
        remedy = "profile on a GPU without MIG: units shared between instances are not counted"
        return Check("GPU", "warning", f"{names}; MIG is enabled", remedy)
    return Check("GPU", "ok", names)


def _driver() -> Check:
    version = next((gpu.driver for gpu in host.gpus()), None) or host.driver_version()
    if version is None:
        return Check("driver", "missing", "none is loaded", "install NVIDIA's driver; recorded reports need none")
    return Check("driver", "ok", version)


def _ncu() -> Check:
    others = find.installed_ncus()
    listed = "; ".join(f"{path} ({find.ncu_version(path) or 'unknown version'})" for path in others)
    try:
        ncu = find.find_ncu()
    except DiagnoseError as error:
        return Check("ncu", "missing", error.message, f"unset DIAGNOSE_NCU or name one of: {listed or 'none found'}")
    if ncu is None:
        remedy = "install Nsight Compute (apt-get install nsight-compute-2025.3.1, or the CUDA toolkit), or --ncu PATH"
        return Check("ncu", "missing", "not on PATH nor in CUDA's usual places", remedy)
    version = find.ncu_version(ncu)
    value = f"{version or 'unknown version'} at {ncu}"
    if (resolved := os.path.realpath(ncu)) != str(ncu):
        value += f" -> {resolved}"
    if len(others) > 1:
        value += f"; installed: {listed}"
    if version is None:
        return Check("ncu", "warning", value, f"{ncu} --version prints no version: is it Nsight Compute?")
    if find.parse_version(version) < OLDEST_NCU:
        oldest = ".".join(map(str, OLDEST_NCU))
        return Check("ncu", "warning", value, f"older than {oldest}: metrics may be missing; --ncu PATH names another")
    return Check("ncu", "ok", value)


def _counters() -> Check:
    restricted = host.counters_need_admin()
    if restricted is None:
        return Check("counter permission", "warning", "unknown: no driver says", "profile a program: ncu decides")
    if not restricted:
        return Check("counter permission", "ok", "every user (RmProfilingAdminOnly: 0)")
    value = "administrators only (RmProfilingAdminOnly: 1)"
    module = "options nvidia NVreg_RestrictProfilingToAdminUsers=0 in the host's /etc/modprobe.d, then reboot"
    provider = "on a rented machine ask its provider"
    if inside := host.container():
        remedy = f"start the {inside} container with --cap-add=SYS_ADMIN; or {module}; {provider}"
        return Check("counter permission", "warning", value, remedy)
    if os.geteuid() == 0:
        return Check("counter permission", "ok", f"{value}, and this is root")
    return Check("counter permission", "missing", value, f"sudo -E diagnose …; or {module}; {provider}")


def _tool(name: str, remedy: str, status: str) -> Check:
    path = find.find_cuda_tool(name)
    if path is None:
        return Check(name, status, "not found on PATH, in CUDA_HOME or among Python's packages", remedy)
    return Check(name, "ok", f"{find.cuda_tool_version(path) or 'unknown version'} at {path}")


def _nvcc() -> Check:
    return _tool("nvcc", "pip install 'diagnose[cuda]' (only the bundled kernels need it)", "warning")


def _nvdisasm() -> Check:
    return _tool("nvdisasm", "pip install nvidia-cuda-nvdisasm", "missing")


def _cuobjdump() -> Check:
    return _tool("cuobjdump", "pip install nvidia-cuda-cuobjdump (reads compressed device code)", "warning")


def _survey() -> Check:
    from diagnose.collect import surveying  # late: it imports the collector

    places, compiler = surveying.cupti_places(), surveying.compiler()
    if places and compiler is not None:
        return Check("survey", "ok", f"by CUPTI, {places[0][1]}, built with {compiler}")
    lacking = "no CUPTI in CUDA's usual places" if not places else "no C++ compiler"
    remedy = "apt-get install g++" if places else "install a CUDA toolkit, which brings CUPTI"
    if nsys := surveying.find_nsys():
        return Check("survey", "ok", f"by Nsight Systems, {nsys} ({lacking})")
    return Check("survey", "warning", f"by ncu, one pass a launch ({lacking})", remedy)


def _ncu_report() -> Check:
    remedy = "pip install 'ncu-report>=2025.3'"
    for package in ("ncu-report", "ncu_report"):
        try:
            version = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
        status = "ok" if find.parse_version(version) >= OLDEST_NCU_REPORT else "warning"
        return Check("ncu-report", status, version, "" if status == "ok" else remedy)
    return Check("ncu-report", "missing", "not installed", remedy)


def _container() -> Check:
    kind = host.container()
    return Check("container", "ok", f"yes ({kind})" if kind else ("no (WSL)" if host.is_wsl() else "no"))


def _python() -> Check:
    return Check("Python", "ok", f"{platform.python_version()} at {sys.executable}")


_EXAMINE: tuple[tuple[str, Callable[[], Check]], ...] = (
    ("GPU", _gpu),
    ("driver", _driver),
    ("ncu", _ncu),
    ("counter permission", _counters),
    ("survey", _survey),
    ("nvcc", _nvcc),
    ("nvdisasm", _nvdisasm),
    ("cuobjdump", _cuobjdump),
    ("ncu-report", _ncu_report),
    ("container", _container),
    ("Python", _python),
)


def examine() -> tuple[Check, ...]:
    """Looks at everything that the product uses. A check that itself fails is a warning with what went wrong."""
    checks = []
    for name, check in _EXAMINE:
        try:
            checks.append(check())
        except Exception as error:
            checks.append(Check(name, "warning", f"could not be examined: {error}", "report this as a bug"))
    return tuple(checks)
