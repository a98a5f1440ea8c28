"""What this machine is: GPUs and driver, container, counter permission. Nothing here raises."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/")
QUERY_SECONDS = 20.0


@dataclass(frozen=True)
class Gpu:
    """One GPU as nvidia-smi names it; `capability` is 90 for compute capability 9.0."""

    name: str
    driver: str
    capability: int | None
    mig: bool


def output_of(command: Sequence[str], seconds: float = QUERY_SECONDS) -> str | None:
    """The command's stdout and stderr as text, or None where it cannot run, fails or takes too long."""
    try:
        done = subprocess.run(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=seconds,
            check=False,
        )
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else None


def gpus() -> tuple[Gpu, ...]:
    """The GPUs that nvidia-smi lists; empty where there is no nvidia-smi or no GPU."""
    fields = "name,driver_version,compute_cap,mig.mode.current"
    text = output_of(["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"])
    found = []
    for line in (text or "").splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) != 4:
            continue
        capability = re.fullmatch(r"(\d+)\.(\d)", cells[2])
        found.append(
            Gpu(
                name=cells[0],
                driver=cells[1],
                capability=int(capability[1] + capability[2]) if capability else None,
                mig=cells[3] == "Enabled",
            )
        )
    return tuple(found)


def _text(relative: str) -> str:
    try:
        return (ROOT / relative).read_text("utf-8", "replace")
    except OSError:
        return ""


def driver_version() -> str | None:
    """The loaded kernel module's version, from /proc."""
    found = re.search(r"Kernel Module.*?\s(\d+(?:\.\d+)+)\s", _text("proc/driver/nvidia/version"))
    return found[1] if found else None


def container() -> str | None:
    """The kind of container this runs in (`docker`, `podman`, `kubernetes`, …), or None."""
    for variable, kind in (
        ("KUBERNETES_SERVICE_HOST", "kubernetes"),
        ("APPTAINER_CONTAINER", "apptainer"),
        ("SINGULARITY_CONTAINER", "singularity"),
    ):
        if os.environ.get(variable):
            return kind
    if (ROOT / "run/.containerenv").exists():
        return "podman"
    if (ROOT / ".dockerenv").exists():
        return "docker"
    groups = _text("proc/1/cgroup")
    for word, kind in (("kubepods", "kubernetes"), ("docker", "docker"), ("libpod", "podman"), ("lxc", "lxc")):
        if word in groups:
            return kind
    return os.environ.get("container") or None  # noqa: SIM112 - systemd-nspawn and podman spell it so


def is_wsl() -> bool:
    """Whether this is the Windows Subsystem for Linux."""
    return "microsoft" in _text("proc/version").lower()


def counters_need_admin() -> bool | None:
    """Whether the driver keeps the counters for administrators; None where no driver says."""
    found = re.search(r"RmProfilingAdminOnly:\s*(\d)", _text("proc/driver/nvidia/params"))
    return found[1] != "0" if found else None
