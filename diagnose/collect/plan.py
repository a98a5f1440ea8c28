"""What to collect and of which launches, as an ncu command line.

What passes cost was measured on an H200 with ncu 2025.3.1 (`docs/architecture.md`, collection): SourceCounters 5
passes (instrumented, so slow ones), InstructionStats 3, PmSampling 4; LaunchStats and Occupancy share passes with
others. Named metrics come from the rules, so that nothing is measured that no rule reads.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from diagnose.collect.find import Version, parse_version

# Launch data, occupancy limits, per-address stalls and counts, executed opcodes.
BASE_SECTIONS = ("LaunchStats", "Occupancy", "SourceCounters", "InstructionStats")
# A time line of the units' activity. Four passes, so asked for and not given.
TIMELINE_SECTION = "PmSampling"
# Section identifiers that older versions refuse, with the first version that has them.
SECTION_SINCE: dict[str, Version] = {
    "PmSampling": (2024, 1),
    "PmSampling_WarpStates": (2024, 2),
    "WorkloadDistribution": (2024, 3),
}
# The oldest manual that has `--filter-mode per-launch-config` is that of this version.
FILTER_MODE_SINCE: Version = (2023, 2)
# Kernels that wait for another GPU: kernel replay runs them alone, and they never end.
COLLECTIVES = ("nccl", "nvshmem")


@dataclass(frozen=True)
class Selection:
    """Which launches are profiled.

    `kernel` is a function name (without parameters and template arguments) or `regex:EXPRESSION`, matched anywhere
    in it. Without it every kernel but the collectives is. `per_config` profiles each kernel once per launch
    configuration (name, grid, block, shared memory); `max_launches` caps all of them together.
    """

    kernel: str | None = None
    per_config: bool = True
    max_launches: int = 50
    skip: int = 0


@dataclass(frozen=True)
class Plan:
    """What ncu is asked to do, all but the target."""

    metrics: tuple[str, ...] = ()
    sections: tuple[str, ...] = BASE_SECTIONS
    selection: Selection = Selection()
    clock_control: str = "none"
    cache_control: str = "all"
    replay: str = "kernel"
    graph: str = "node"
    import_source: bool = True
    apply_rules: bool = True
    nvtx: bool = False
    extra: tuple[str, ...] = ()


def kernel_expression(selection: Selection) -> str:
    """The kernel filter in ncu's words: a function name or `regex:…` (ncu's dialect has look-ahead)."""
    return selection.kernel or f"regex:^(?!{'|'.join(COLLECTIVES)})"


def counts_configurations(selection: Selection, version: Version) -> bool:
    """Whether ncu is asked for one launch of each kernel name and launch configuration."""
    return _numbers_invocations(selection) and (not version or version >= FILTER_MODE_SINCE)


def selection_in_words(selection: Selection, version: Version) -> str | None:
    """Which repeats are not profiled, as exactly as ncu was told; None where every launch is."""
    if counts_configurations(selection, version):
        return "repeats: one launch of each kernel per launch configuration (grid, block, shared memory) is profiled"
    if _numbers_invocations(selection):
        return "repeats: one launch of each kernel name is profiled, because this ncu cannot tell configurations apart"
    return None


def _numbers_invocations(selection: Selection) -> bool:
    # A colon separates the parts of --kernel-id and cannot stand in an expression there.
    pattern = kernel_expression(selection).removeprefix("regex:")
    return selection.per_config and selection.skip == 0 and ":" not in pattern


def _launch_filter(selection: Selection, version: Version) -> list[str]:
    """What was measured of these options, and what is assumed, is in `docs/architecture.md` (collection)."""
    expression = kernel_expression(selection)
    chosen = []
    if counts_configurations(selection, version):
        chosen += ["--filter-mode", "per-launch-config"]
    if _numbers_invocations(selection):
        chosen += ["--kernel-id", f"::{expression}:1"]
    else:
        chosen += ["--kernel-name", expression]
        if selection.skip:
            chosen += ["--launch-skip", str(selection.skip)]
    # Under the filter mode the count holds for each configuration; `collect` then stops at the cap of the run.
    return [*chosen, "--launch-count", str(selection.max_launches)]


def _usable_sections(sections: Iterable[str], version: Version) -> list[str]:
    return [name for name in dict.fromkeys(sections) if not version or version >= SECTION_SINCE.get(name, ())]


def ncu_command(
    plan: Plan, target: Iterable[str], ncu: Path, version: str | None, export: Path, log: Path
) -> list[str]:
    """The command line that profiles `target` (program and arguments) into `export`, with ncu's messages in `log`.

    `export` must end in `.ncu-rep` and is overwritten: the caller has reserved it.
    """
    command = [str(ncu), "--export", str(export).replace("%", "%%"), "--force-overwrite", "--log-file", str(log)]
    command += ["--target-processes", "all"]
    command += _launch_filter(plan.selection, parse_version(version))
    for section in _usable_sections(plan.sections, parse_version(version)):
        command += ["--section", section]
    if metrics := list(dict.fromkeys(plan.metrics)):
        command += ["--metrics", ",".join(metrics)]
    command += ["--clock-control", plan.clock_control, "--cache-control", plan.cache_control]
    command += ["--replay-mode", plan.replay]
    if plan.graph != "node":  # node is ncu's default, and old versions do not know the option
        command += ["--graph-profiling", plan.graph]
    command += ["--import-source", "yes" if plan.import_source else "no"]
    command += ["--apply-rules", "yes" if plan.apply_rules else "no"]
    if plan.nvtx:
        command.append("--nvtx")
    return [*command, *plan.extra, *target]
