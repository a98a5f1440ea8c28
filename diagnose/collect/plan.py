"""What to collect and of which launches, as an ncu command line.

What passes cost was measured on an H200 with ncu 2025.3.1, and computed for other GPUs with CUPTI's host API
(docs/collection.md). Named metrics come from the rules, so that nothing is measured that no rule reads.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from diagnose.collect.find import Version, parse_version

# Launch data and occupancy limits: they cost no pass of their own.
LAUNCH_SECTIONS = ("LaunchStats", "Occupancy")
# Per-address stalls and counts, executed opcodes: eight passes alone, instrumented ones among them.
CODE_SECTIONS = ("SourceCounters", "InstructionStats")
BASE_SECTIONS = (*LAUNCH_SECTIONS, *CODE_SECTIONS)
# What decides of those two sections, by name. Left to --deep: `memory_l1_*` and `memory_l2_*`: ncu instruments each
# access for them, and they changed no finding of 210 recorded kernels, because hardware counters stand beside them.
CODE_METRICS = (
    "group:smsp__pcsamp_warp_stall_reasons",
    "group:smsp__pcsamp_warp_stall_reasons_not_issued",
    "inst_executed",
    "thread_inst_executed_true",
    "sass__inst_executed_per_opcode_with_modifier_all",
    "sass__thread_inst_executed_true_per_opcode_with_modifier_all",
    "sass__inst_executed_register_spilling",
)
# The version in which these names were seen to work; older ones get the sections.
CODE_METRICS_SINCE: Version = (2025, 3)
# A time line of the units' activity. Four passes, so asked for (--deep) and not given.
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
# One word of a command line may hold 131,072 bytes on Linux (MAX_ARG_STRLEN); names of CUTLASS kernels have 3,000.
MOST_NAME_BYTES = 100_000

MODES = ("adaptive", "deep", "single-pass")
# Left for a second run, for the kernels whose open rules need them (passes on sm_90; all together 13 of 19). The last
# four stand beside a counter of the same part: of 466 kernels none loses a finding without them.
DEFERRED = re.compile(
    r"smsp__average_warps_issue_stalled_\w+_per_issue_active\.ratio"  # 6: the sampled stalls say the same, if any
    r"|sm__ops_path_tensor_\w+\.sum"  # 6: counted from opcodes otherwise; see metric_set
    r"|sm__mio_inst_issued\..*"  # 2: the LSU's own counters stand beside it
    r"|l1tex__data_bank_(?:reads|writes)\..*"  # 1: the data pipe's wavefronts are never fewer
    r"|l1tex__m_xbar2l1tex_read_sectors\.avg\..*"  # 1: what L2 returns is counted at L2, too
    r"|l1tex__data_pipe_lsu_wavefronts_mem_shared_op_(?:ld|st)\.sum"  # 1: for display; the total decides
    r"|l1tex__lsuin_requests\..*"  # a counter of the full pass: above the LSU's own only with wgmma, at most 0.30
)
# What fits one pass on sm_80, 86, 89, 90, 100 and 120 by CUPTI's host API, the most telling first.
SINGLE_PASS = (
    "gpu__time_duration.sum",
    "sm__cycles_elapsed.max",
    "sm__cycles_elapsed.avg.per_second",
    "smsp__inst_executed.sum",
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "sm__issue_active.avg.pct_of_peak_sustained_elapsed",
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "lts__t_sectors.avg.pct_of_peak_sustained_elapsed",
    "lts__t_sectors.sum",
    "l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_elapsed",
    "sm__cycles_active.avg",
    "sm__cycles_active.max",
    "smsp__issue_active.avg.per_cycle_active",
    "sm__warps_active.avg.pct_of_peak_sustained_active",
    "lts__t_sectors_op_read.sum",
    "lts__t_sectors_op_write.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
    "l1tex__cycles_elapsed.sum",
)
# Measured again in a second run, to see that it is the same launch.
FINGERPRINT = ("gpu__time_duration.sum", "smsp__inst_executed.sum")


@dataclass(frozen=True)
class MetricSet:
    """What ncu is asked to measure, and what is left for a second run."""

    metrics: tuple[str, ...]
    sections: tuple[str, ...]
    deferred: tuple[str, ...] = ()


def metric_set(mode: str, wanted: Sequence[str], version: Version, tensor_counters: bool = False) -> MetricSet:
    """The set of a mode, from the metrics that the rules in force read (`wanted`).

    `tensor_counters`: Tensor operations are measured at once, where opcodes do not tell them: on GPUs with tcgen05,
    whose opcodes do not hold the shape, and with declared work of whole graphs and ranges, which have no opcodes.
    """
    if mode == "single-pass":
        return MetricSet(SINGLE_PASS, LAUNCH_SECTIONS[:1])
    if mode == "deep":
        return MetricSet(tuple(wanted), (*BASE_SECTIONS, TIMELINE_SECTION))
    at_once = [m for m in wanted if not DEFERRED.fullmatch(m) or (tensor_counters and m.startswith("sm__ops_path"))]
    deferred = tuple(m for m in wanted if m not in at_once)
    if version and version < CODE_METRICS_SINCE:
        return MetricSet(tuple(at_once), BASE_SECTIONS, deferred)
    return MetricSet((*at_once, *CODE_METRICS), LAUNCH_SECTIONS, deferred)


@dataclass(frozen=True)
class Selection:
    """Which launches are profiled.

    `kernel` is a function name (without parameters and template arguments) or `regex:EXPRESSION`, matched anywhere
    in it; with `demangled`, both are matched against the whole demangled name. Without it every kernel but the
    collectives is. `per_config` profiles each kernel once per launch configuration (name, grid, block, shared memory);
    `max_launches` caps all of them together. `skip` and `count` are a window of the launches that match, `nvtx` ncu's
    expressions of NVTX ranges, `devices` numbers of GPUs, `process` the name of the only program that is profiled.
    `names` are the compiler's names of the only kernels, as a survey chose them; with `by_name` one launch of each is
    profiled, whatever its configuration. With `profiler_range` only what is
    launched between cudaProfilerStart and cudaProfilerStop counts.
    """

    kernel: str | None = None
    per_config: bool = True
    by_name: bool = False
    max_launches: int = 50
    skip: int = 0
    count: int | None = None
    demangled: bool = False
    nvtx: tuple[str, ...] = ()
    devices: tuple[int, ...] = ()
    process: str | None = None
    names: tuple[str, ...] = ()
    profiler_range: bool = False

    @property
    def window(self) -> bool:
        """Whether launches are chosen by their number."""
        return self.skip > 0 or self.count is not None

    @property
    def most(self) -> int:
        """The largest number of launches."""
        return self.max_launches if self.count is None else min(self.count, self.max_launches)

    def other_filters(self) -> tuple[str, ...]:
        """The filters besides the kernel's name, as the user gave them."""
        words = [f"--nvtx {one}" for one in self.nvtx]
        words += [f"--launch-skip {self.skip}"] if self.skip else []
        words += [f"--launch-count {self.count}"] if self.count is not None else []
        words += [f"--device {','.join(map(str, self.devices))}"] if self.devices else []
        words += [f"--process {self.process}"] if self.process else []
        words += ["--demangled"] if self.demangled else []
        words += ["--profiler-range"] if self.profiler_range else []
        return tuple(words)

    def in_words(self) -> str:
        """All filters, for messages."""
        return ", ".join((*((f"--kernel {self.kernel}",) if self.kernel else ()), *self.other_filters()))


@dataclass(frozen=True)
class Plan:
    """What ncu is asked to do, all but the target."""

    metrics: tuple[str, ...] = ()
    sections: tuple[str, ...] = BASE_SECTIONS
    selection: Selection = field(default_factory=Selection)
    clock_control: str = "none"
    cache_control: str = "all"
    replay: str = "kernel"
    graph: str = "node"
    import_source: bool = True
    apply_rules: bool = True
    nvtx: bool = False
    extra: tuple[str, ...] = ()
    enough: int | None = None  # stops the program when so many launches are profiled
    stop_reason: str = ""  # why it may


def kernel_expression(selection: Selection) -> tuple[str, str]:
    """(what ncu matches, the kernel filter in ncu's words): a name or `regex:…` (ncu's dialect has look-ahead).

    ncu numbers launches by the name that it matches. Instances of one template share their function name, so the
    compiler's name is taken wherever the filter leaves the choice.
    """
    if selection.names and sum(map(len, selection.names)) <= MOST_NAME_BYTES:
        return "mangled", f"regex:^({'|'.join(re.escape(name) for name in selection.names)})$"
    if selection.kernel is not None:
        return ("demangled" if selection.demangled else "function"), selection.kernel
    # Functions of the global namespace, `_Z24ncclDevKernel_AllReduce…`, of a namespace, `_ZN7nvshmem…`, and of C.
    return "mangled", f"regex:^(?!(_ZN?[0-9]+)?({'|'.join(COLLECTIVES)}))"


def counts_configurations(selection: Selection, version: Version) -> bool:
    """Whether ncu is asked for one launch of each kernel name and launch configuration."""
    return _numbers_invocations(selection) and not selection.by_name and (not version or version >= FILTER_MODE_SINCE)


def selection_in_words(selection: Selection, version: Version) -> str | None:
    """Which repeats are not profiled, as exactly as ncu was told; None where every launch is."""
    if counts_configurations(selection, version):
        return "repeats: one launch of each kernel per launch configuration (grid, block, shared memory) is profiled"
    if _numbers_invocations(selection):
        why = "there are too many launch configurations" if selection.by_name else "this ncu cannot tell them apart"
        return f"repeats: one launch of each kernel name stands for its launch configurations, because {why}"
    return None


def _numbers_invocations(selection: Selection) -> bool:
    # A colon separates the parts of --kernel-id and cannot stand in an expression there.
    base, expression = kernel_expression(selection)
    # Within a range (NVTX, profiler) ncu counts from the range on: seen with 2025.3, not documented. There is no survey
    # there, and by function names the instances of a template would count as one: then each launch is profiled.
    alike = (selection.nvtx or selection.profiler_range) and base != "mangled"
    return selection.per_config and not selection.window and not alike and ":" not in expression.removeprefix("regex:")


def _launch_filter(selection: Selection, version: Version) -> list[str]:
    """What was measured of these options, and what is assumed, is in `docs/architecture.md` (collection)."""
    base, expression = kernel_expression(selection)
    chosen = ["--kernel-name-base", base] if base != "function" else []  # function is ncu's default
    if counts_configurations(selection, version):
        chosen += ["--filter-mode", "per-launch-config"]
    if _numbers_invocations(selection):
        chosen += ["--kernel-id", f"::{expression}:1"]
    else:
        chosen += ["--kernel-name", expression]
        if selection.skip:
            chosen += ["--launch-skip", str(selection.skip)]
    for one in selection.nvtx:
        chosen += ["--nvtx", "--nvtx-include", one]
    if selection.devices:
        chosen += ["--devices", ",".join(map(str, selection.devices))]
    if selection.process:
        chosen += ["--target-processes-filter", selection.process]
    if selection.profiler_range:
        chosen += ["--profile-from-start", "off"]
    # Under the filter mode the count holds for each configuration; `collect` then stops at the cap of the run.
    return [*chosen, "--launch-count", str(selection.most)]


def _usable_sections(sections: Iterable[str], version: Version) -> list[str]:
    return [name for name in dict.fromkeys(sections) if not version or version >= SECTION_SINCE.get(name, ())]


def _whole(plan: Plan) -> bool:
    """Whether one result stands for everything that runs inside a graph or a range."""
    return plan.graph == "graph" or plan.replay in ("range", "app-range")


def _without_code(plan: Plan) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Metrics and sections without those that count by instruction: ncu refuses them for graphs and ranges (`Metric
    smsp__sass_… is not supported in range replay`, 2025.3)."""
    metrics = tuple(m for m in plan.metrics if "sass_" not in m and m not in CODE_METRICS)
    return metrics, tuple(s for s in plan.sections if s not in CODE_SECTIONS)


def ncu_command(
    plan: Plan, target: Iterable[str], ncu: Path, version: str | None, export: Path, log: Path
) -> list[str]:
    """The command line that profiles `target` (program and arguments) into `export`, with ncu's messages in `log`.

    `export` must end in `.ncu-rep` and is overwritten: the caller has reserved it.
    """
    command = [str(ncu), "--export", str(export).replace("%", "%%"), "--force-overwrite", "--log-file", str(log)]
    command += ["--target-processes", "all"]
    command += _launch_filter(plan.selection, parse_version(version))
    wanted, sections = (plan.metrics, plan.sections) if not _whole(plan) else _without_code(plan)
    for section in _usable_sections(sections, parse_version(version)):
        command += ["--section", section]
    if metrics := list(dict.fromkeys(wanted)):
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
