"""doctor: what it says of each part, on machines that have it, lack it, or have it in a bad state."""

from __future__ import annotations

import importlib.metadata
import os
import textwrap
from pathlib import Path

import pytest

from diagnose import doctor
from diagnose.collect import find, host, surveying
from diagnose.doctor import Check, examine

SMI = "NVIDIA H200, 580.82.07, 9.0, Disabled\n"


class Machine:
    """A machine made of a few files: programs on PATH, and a root folder with /proc."""

    def __init__(self, folder: Path) -> None:
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.root = folder / "root"
        (self.root / "proc/driver/nvidia").mkdir(parents=True)

    def program(self, name: str, says: str) -> Path:
        path = self.bin / name
        path.write_text(f"#!/bin/sh\ncat <<'END'\n{textwrap.dedent(says)}\nEND\n")
        path.chmod(0o755)
        return path

    def file(self, name: str, text: str = "") -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def checks(self) -> dict[str, Check]:
        return {check.name: check for check in examine()}


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine(tmp_path)
    monkeypatch.setenv("PATH", f"{made.bin}:/usr/bin:/bin")
    for name in ("DIAGNOSE_NCU", "CUDA_HOME", "CUDA_PATH", "KUBERNETES_SERVICE_HOST", "container"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(host, "ROOT", made.root)
    monkeypatch.setattr(find, "NCU_PLACES", ())
    monkeypatch.setattr(find, "CUDA_PLACES", ())
    monkeypatch.setattr(find, "wheel_bin", lambda: ())
    return made


def test_examine_works_on_this_machine() -> None:
    checks = examine()
    names = [check.name for check in checks]
    assert names == [
        "GPU", "driver", "ncu", "counter permission", "survey", "nvcc", "nvdisasm", "cuobjdump", "ncu-report",
        "container", "Python",
    ]  # fmt: skip
    for check in checks:
        assert check.status in ("ok", "warning", "missing") and check.value
        assert (check.status == "ok") == (check.remedy == ""), check
        assert "\n" not in check.value + check.remedy


def test_a_machine_that_has_everything(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.program("nvidia-smi", SMI.strip())
    ncu = machine.program("ncu", "Version 2025.3.1.0 (build 1) (public-release)")
    for tool in ("nvcc", "nvdisasm", "cuobjdump"):
        machine.program(tool, "Cuda compilation tools, release 13.0, V13.0.88")
    machine.file("proc/driver/nvidia/params", "ResmanDebugLevel: 0\nRmProfilingAdminOnly: 0\n")
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "2026.3.1")
    monkeypatch.setattr(surveying, "cupti_places", lambda: [(Path("/cuda/include"), Path("/cuda/libcupti.so.13"))])
    monkeypatch.setattr(surveying, "compiler", lambda: Path("/usr/bin/g++"))
    checks = machine.checks()
    assert checks["survey"].value == "by CUPTI, /cuda/libcupti.so.13, built with /usr/bin/g++"
    assert {check.status for check in checks.values()} == {"ok"}
    assert checks["GPU"].value == "NVIDIA H200 (sm_90)" and checks["driver"].value == "580.82.07"
    assert checks["ncu"].value == f"2025.3.1.0 at {ncu}" and checks["container"].value == "no"


def test_a_bare_machine(machine: Machine) -> None:
    checks = machine.checks()
    assert {name for name, check in checks.items() if check.status == "missing"} == {"GPU", "driver", "ncu", "nvdisasm"}
    assert checks["counter permission"].status == checks["nvcc"].status == "warning"
    assert "diagnose[cuda]" in checks["nvcc"].remedy and "--ncu PATH" in checks["ncu"].remedy


def test_what_a_survey_is_made_with(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surveying, "cupti_places", list)
    monkeypatch.setattr(surveying, "find_nsys", lambda: Path("/opt/nsys"))
    assert machine.checks()["survey"].value == "by Nsight Systems, /opt/nsys (no CUPTI in CUDA's usual places)"
    monkeypatch.setattr(surveying, "find_nsys", lambda: None)
    alone = machine.checks()["survey"]
    assert alone.status == "warning" and alone.value.startswith("by ncu, one pass a launch") and alone.remedy


def test_mig_and_several_gpus(machine: Machine) -> None:
    machine.program("nvidia-smi", SMI + "NVIDIA A100, 580.82.07, 8.0, Enabled\nodd line")
    gpu = machine.checks()["GPU"]
    assert gpu.status == "warning" and "NVIDIA A100 (sm_80); MIG is enabled" in gpu.value
    machine.program("nvidia-smi", "Tesla, 470.1, [N/A], [N/A]")
    assert machine.checks()["GPU"].value == "Tesla"


def test_a_driver_without_nvidia_smi(machine: Machine) -> None:
    text = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.82.07  Release Build  (dvs)\n"
    machine.file("proc/driver/nvidia/version", text)
    assert machine.checks()["driver"].value == "580.82.07"


def test_ncu_in_every_state(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.program("ncu", "Version 2019.3.0.0 (build 1)")
    assert "older than 2022.1" in machine.checks()["ncu"].remedy
    machine.program("ncu", "check-updates 1.0")
    assert "is it Nsight Compute?" in machine.checks()["ncu"].remedy
    monkeypatch.setenv("DIAGNOSE_NCU", "/no/ncu")
    broken = machine.checks()["ncu"]
    assert broken.status == "missing" and "DIAGNOSE_NCU names /no/ncu" in broken.value


def test_two_installed_copies_are_listed_with_their_real_paths(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(find, "NCU_PLACES", (str(machine.bin / "ncu-*"),))
    new = machine.program("ncu-new", "Version 2025.3.1.0 (build 1)")
    machine.program("ncu-old", "Version 2024.1.0.0 (build 1)")
    (machine.bin / "ncu").symlink_to(new)
    value = machine.checks()["ncu"].value
    assert f"-> {new}" in value and f"installed: {new} (2025.3.1.0); {machine.bin / 'ncu-old'} (2024.1.0.0)" in value


@pytest.mark.parametrize(
    ("user", "marker", "status", "remedy"),
    [
        (1000, None, "missing", "sudo -E diagnose"),
        (0, None, "ok", ""),
        (0, ".dockerenv", "warning", "start the docker container with --cap-add=SYS_ADMIN"),
        (1000, "run/.containerenv", "warning", "start the podman container with --cap-add=SYS_ADMIN"),
    ],
)
def test_counters_for_administrators_only(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, user: int, marker: str | None, status: str, remedy: str
) -> None:
    machine.file("proc/driver/nvidia/params", "RmProfilingAdminOnly: 1\n")
    if marker:
        machine.file(marker)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    check = machine.checks()["counter permission"]
    assert check.status == status and check.remedy.startswith(remedy)
    if status != "ok":
        assert "NVreg_RestrictProfilingToAdminUsers=0" in check.remedy and "ask its provider" in check.remedy


def test_containers(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    assert host.container() is None and not host.is_wsl()
    machine.file("proc/1/cgroup", "0::/system.slice/docker-abc.scope\n")
    assert host.container() == "docker"
    machine.file("proc/1/cgroup", "0::/kubepods/pod1\n")
    assert host.container() == "kubernetes"
    machine.file("proc/1/cgroup", "0::/\n")
    monkeypatch.setenv("container", "lxc")
    assert machine.checks()["container"].value == "yes (lxc)"
    monkeypatch.setenv("APPTAINER_CONTAINER", "/x.sif")
    assert host.container() == "apptainer"
    machine.file("proc/version", "Linux Microsoft WSL2")
    assert host.is_wsl()


def test_an_old_or_missing_ncu_report(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "2024.1.0")
    assert machine.checks()["ncu-report"].status == "warning"

    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    assert machine.checks()["ncu-report"] == Check(
        "ncu-report", "missing", "not installed", "pip install 'ncu-report>=2025.3'"
    )


def test_it_never_fails(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> Check:
        raise RuntimeError("boom")

    monkeypatch.setattr(doctor, "_EXAMINE", (("GPU", broken),))
    assert examine() == (Check("GPU", "warning", "could not be examined: boom", "report this as a bug"),)
    machine.program("nvidia-smi", "").write_text("#!/bin/sh\nexit 9\n")
    assert host.gpus() == () and host.output_of(["sleep", "5"], seconds=0.1) is None
