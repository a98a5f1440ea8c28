"""Programs that start other programs: which rank this process is, and how `diagnose` goes inside a launcher."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

# (rank, number of ranks) by launcher, the innermost first: torchrun is started by the others, not the other way round.
# The second must be there where the first alone can mean something else (a batch script has SLURM_PROCID=0).
_VARIABLES: tuple[tuple[str, str, bool], ...] = (
    ("RANK", "WORLD_SIZE", True),  # torchrun, accelerate, deepspeed; LOCAL_RANK beside them
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", False),  # Open MPI
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", False),  # MVAPICH
    ("PMI_RANK", "PMI_SIZE", False),  # MPICH, Intel MPI
    ("JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE", False),  # jsrun
    ("FLUX_TASK_RANK", "FLUX_JOB_SIZE", False),  # flux
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", True),  # srun
    ("PMIX_RANK", "PMIX_SIZE", False),  # whatever speaks PMIx and sets nothing of its own
)
# Launchers whose processes are no children of theirs: a daemon of the machine starts them, out of ncu's sight.
_BY_DAEMON = frozenset({"srun", "jsrun", "aprun", "flux", "sbatch", "salloc"})
_MPI = frozenset({"mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prun", "horovodrun"})
_TORCH = frozenset({"torchrun"})
_TORCH_MODULES = frozenset({"torch.distributed.run", "torch.distributed.launch"})
# Set for programs that diagnose runs: `diagnose.profile` then marks its block instead of starting a second process.
PROFILED = "DIAGNOSE_PROFILED"
RANGE = "range"  # its value where only what stands between cudaProfilerStart and cudaProfilerStop counts


@dataclass(frozen=True)
class Placement:
    """Which of several processes this one is; `size` is None where the launcher does not say how many there are."""

    rank: int
    size: int | None
    variable: str

    @property
    def shared(self) -> bool:
        """Whether there are, or may be, other ranks that write into the same folder."""
        return self.size is None or self.size > 1


def _natural(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 10 else None


def placement(environ: Mapping[str, str] | None = None) -> Placement | None:
    """The rank that a launcher gave to this process, from its environment; None outside of launchers."""
    variables = os.environ if environ is None else environ
    for name, size_name, needs_size in _VARIABLES:
        rank, size = _natural(variables.get(name)), _natural(variables.get(size_name))
        if rank is None or (needs_size and size is None) or (size is not None and rank >= size):
            continue
        if name == "RANK" and _natural(variables.get("LOCAL_RANK")) is None:
            continue  # a pod's or a user's own variable, not a process's
        return Placement(rank, size, name)
    return None


def one_of_many() -> bool:
    """Whether this process is one of several ranks: its program meets the others', and so can run only once."""
    place = placement()
    return place is not None and place.shared


def ranked(path: Path, place: Placement | None) -> Path:
    """`report-rank3.html` for `report.html`, where several ranks write; the name itself where it holds the rank."""
    if place is None or not place.shared:
        return path
    mark = f"rank{place.rank}"
    return (
        path if mark in path.stem.replace("-", ".").split(".") else path.with_name(f"{path.stem}-{mark}{path.suffix}")
    )


def _name(target: Sequence[str]) -> str | None:
    """The launcher that a command line starts with, or None."""
    program = Path(target[0]).name
    if program in _BY_DAEMON | _MPI | _TORCH:
        return program
    if len(target) > 2 and program.startswith("python") and target[1] == "-m" and target[2] in _TORCH_MODULES:
        return target[2]
    return None


def _program_at(target: Sequence[str], start: int) -> int | None:
    """Where the launched program stands: the first word that is one. Values of options (`4`, `core`) are none."""
    for at in range(start, len(target)):
        word = target[at]
        if word.startswith("-"):
            continue
        if word.endswith(".py") or shutil.which(word) or (os.path.isfile(word) and os.access(word, os.X_OK)):
            return at
    return None


def inside(target: Sequence[str]) -> str | None:
    """The command line with `diagnose` inside the launcher, one report a rank; None where the target is no launcher."""
    launcher = _name(target) if target else None
    if launcher is None:
        return None
    torch = launcher in _TORCH | _TORCH_MODULES
    start = 3 if launcher in _TORCH_MODULES else 1
    at = _program_at(target, start)
    head, program = (list(target[:at]), list(target[at:])) if at is not None else (list(target[:start]), ["PROGRAM …"])
    if torch:
        # Without --no-python torchrun starts a Python interpreter on its script.
        head.insert(start, "--no-python")
        if program[0].endswith(".py"):
            program.insert(0, "python3")
    return " ".join((*head, "diagnose", *program))


def out_of_sight(target: Sequence[str]) -> bool:
    """Whether the launcher's processes are started by a daemon, so that no profiler around the launcher sees them."""
    return bool(target) and _name(target) in _BY_DAEMON


def environment(profiler_range: bool = False) -> dict[str, str]:
    """What a profiled program finds in its environment, where it does not say otherwise.

    Triton's autotuner times each configuration with dozens of launches; with its results on disk (Triton 3.3 and newer)
    only the first run of the program does that, and the profiled one launches what was chosen.
    """
    return {"TRITON_CACHE_AUTOTUNING": "1", PROFILED: RANGE if profiler_range else "1"}
