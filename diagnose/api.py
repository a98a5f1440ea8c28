"""The steps in order, usable as a library: collect, read, facts and limits, rules, verdict, document.

from diagnose.api import Options, diagnose_reports
document = diagnose_reports([Path("run.ncu-rep")], Options()).document
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from diagnose import budget, engine, facts, installed, problem, program, ranks, sections, throttle
from diagnose.bars import Step, silent
from diagnose.bundled import bundled
from diagnose.ceilings import library, store
from diagnose.collect.clocks import Clocks
from diagnose.collect.find import find_ncu
from diagnose.collect.run import Collected
from diagnose.errors import EXIT_GATE, EXIT_NOTHING_MEASURED, EXIT_OK, DiagnoseError
from diagnose.facts.context import FactDefinition
from diagnose.gpus import catalogue
from diagnose.live import Asked, compiled, profile_program
from diagnose.live import Live as Live
from diagnose.model import Ceiling, KernelProfile, Profile, Scalar
from diagnose.packfile import nearest
from diagnose.packs import load_packs
from diagnose.reader import read_reports
from diagnose.report import Diagnosed, Document, ReportOptions, architecture, build
from diagnose.rules import CLASSES, SEVERITIES, Pack, Rule, active_rules, metrics_needed, tuner, weights
from diagnose.sass import mix

Progress = Callable[[str], None]
Asker = Callable[[KernelProfile, Mapping[str, Scalar]], Diagnosed]


@dataclass(frozen=True)
class Options:
    """What applies to recorded reports and live runs alike. `rules` are folders of packs beside the core pack; `page`
    adds to the document what only the HTML shows (see `report.ReportOptions`)."""

    rules: tuple[Path, ...] = ()
    disable: tuple[str, ...] = ()
    problem: str | None = None
    useful_flops: str | None = None
    kernel: str | None = None
    all_facts: bool = False
    raw_metrics: bool = False
    page: bool = False
    source: bool = True
    timeout_s: float | None = None
    ncu: str | None = None
    library: bool = True


@dataclass(frozen=True)
class Result:
    """The document, and what a live run left behind."""

    document: Document
    profile: Profile
    collected: Collected | None = None


# --- rules ---


def load_rules(options: Options) -> tuple[Pack, ...]:
    """The core pack, then the given ones. `options.disable` turns rules off as a pack's own `disable` does."""
    code = [installed.code_facts(path) for path in options.rules]
    units = {**facts.units(), **{d.name: d.unit for found in code if found is not None for d in found.definitions}}
    core_pack, *others = load_packs([bundled("rules"), *map(installed.resolve, options.rules)], units)
    packs = (core_pack, *(replace(pack, code=found) for pack, found in zip(others, code, strict=True)))
    if not options.disable:
        return packs
    known = {rule.id for pack in packs for rule in pack.rules}
    for name in options.disable:
        if name not in known:
            raise DiagnoseError(f"there is no rule {name!r} to disable{nearest(name, known)}", "diagnose rules list")
    core = packs[0]
    return (replace(core, disable=tuple(dict.fromkeys((*core.disable, *options.disable)))), *packs[1:])


def catalogue_of(packs: Sequence[Pack]) -> Mapping[str, FactDefinition]:
    """Every fact by name: diagnose's own, and those of the installed packages among the packs."""
    more = {one.name: one for pack in packs if pack.code is not None for one in pack.code.definitions}
    return {**facts.CATALOGUE, **more} if more else facts.CATALOGUE


def fact_needs(packs: Sequence[Pack] = ()) -> Mapping[str, tuple[str, ...]]:
    """Fact -> the ncu metrics that it needs."""
    return {name: definition.needs for name, definition in catalogue_of(packs).items()}


# Counted by address or opcode: they come with the sections SourceCounters and InstructionStats, not by name.
_WITH_SECTIONS = re.compile(
    r"^(?:inst_executed|thread_inst_executed.*|memory_.*|sass__.*|smsp__pcsamp_.*|diagnose__.*)$"
)
# Collected with the launch or the device: ncu gives them with every result. Derived metrics cannot be named to ncu at
# all ("Failed to find metric", ncu 2025.3); they come with the sections whose metrics they are made of.
_ALWAYS = re.compile(r"^(?:launch__.*|device__attribute_.*|profiler__.*|derived__.*)$")
_NAMED = re.compile(r"^[a-z0-9]+__[A-Za-z0-9_.]+$")
# What the document shows beside what rules ask for: the duration, the clock, and traffic at L1, shared memory and L2.
_SHOWN = (
    "gpu__time_duration.sum",
    "sm__cycles_elapsed.avg.per_second",
    "sm__cycles_elapsed.max",
    "smsp__inst_executed.sum",
    "lts__t_sectors_op_read.sum",
    "lts__t_sectors_op_write.sum",
    "lts__t_sector_hit_rate.pct",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
)


def live_metrics(packs: Sequence[Pack]) -> tuple[str, ...]:
    """The metrics that a live run names to ncu: what the rules in force need, and the facts that those facts use."""
    needs = fact_needs(packs)
    wanted = {*metrics_needed(packs, needs), *_SHOWN, *(metric for metrics in needs.values() for metric in metrics)}
    return tuple(
        sorted(
            name for name in wanted if _NAMED.match(name) and not (_WITH_SECTIONS.match(name) or _ALWAYS.match(name))
        )
    )


# --- diagnosing ---


@cache
def _ceilings(name: str, sm: int) -> tuple[catalogue.Product | None, Mapping[str, Ceiling]]:
    product = catalogue.product(name, sm)
    known = catalogue.ceilings(product, store.load(name))
    return product, {resource: ceiling for resource, ceiling in known.items() if ceiling is not None}


_FINGERPRINT = (
    "gpu__time_duration.sum",
    "sm__cycles_elapsed.max",
    "smsp__inst_executed.sum",
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
)


def repeated_counters(kernels: Sequence[KernelProfile]) -> frozenset[int]:
    """Indices of results that hold the very counters of a different launch of the same run (field notes, trap 15)."""
    groups: dict[tuple[object, ...], list[KernelProfile]] = {}
    for kernel in kernels:
        values = tuple(kernel.number(name) for name in _FINGERPRINT)
        # Time and cycles both to the last digit, and instructions or bytes besides: no two launches agree in that.
        if values[0] and values[1] and any(values[2:]):
            groups.setdefault((kernel.run, *values), []).append(kernel)
    repeated: set[int] = set()
    for members in groups.values():
        configurations = {
            (k.demangled or k.name, k.number("launch__grid_size"), k.number("launch__block_size")) for k in members
        }
        if len(configurations) > 1:
            repeated.update(kernel.index for kernel in members)
    return frozenset(repeated)


def matching(kernels: Sequence[KernelProfile], wanted: str) -> list[KernelProfile]:
    """The results that `--kernel` names: a function name, or `regex:EXPRESSION` found anywhere in it."""
    if wanted.startswith("regex:"):
        pattern = compiled(wanted)
        return [k for k in kernels if pattern.search(k.name) or pattern.search(k.demangled)]
    return [k for k in kernels if wanted in (k.name, k.demangled)]


def _selected(profile: Profile, wanted: str | None) -> Sequence[KernelProfile]:
    if wanted is None:
        return profile.kernels
    found = matching(profile.kernels, wanted)
    if not found:
        names = sorted({kernel.name for kernel in profile.kernels})
        raise DiagnoseError(
            f"no kernel of {len(profile.kernels)} matches --kernel {wanted}{nearest(wanted, names)}",
            f"the kernels are: {', '.join(names)[:400]}",
            EXIT_NOTHING_MEASURED,
        )
    return found


def _declared_for(kernels: Sequence[KernelProfile], declared: Mapping[str, Scalar]) -> tuple[str | None, list[str]]:
    """The kernel (full name) that the declared work belongs to: the one that takes the most time."""
    if not declared:
        return None, []
    spent: dict[str, float] = {}
    for kernel in kernels:
        spent[kernel.demangled] = spent.get(kernel.demangled, 0.0) + (kernel.number("gpu__time_duration.sum") or 0.0)
    if not spent:
        return None, []
    chosen = max(spent, key=lambda name: spent[name])
    if len(spent) == 1:
        return chosen, []
    short = next(kernel.name for kernel in kernels if kernel.demangled == chosen)
    return chosen, [
        f"the declared work is taken for {short}, the longest of {len(spent)} kernels (--kernel NAME chooses)"
    ]


def _about_workloads(profile: Profile) -> list[str]:
    """What cannot be said about ranges and graphs."""
    found = []
    for number, run in enumerate(profile.runs):
        others = [k.workload for k in profile.kernels if k.run == number and k.workload != "kernel"]
        if others:
            kinds = " and ".join(sorted({f"{others.count(kind)} {kind} result(s)" for kind in others}))
            found.append(
                f"{run.source}: {kinds}: counters are sums over everything that ran inside, so grid, block, occupancy, "
                "waves, instructions by address and the single kernels' names are not known "
                "(record with --replay-mode kernel and --graph-profiling node to get kernels)"
            )
    return found


def examine(
    profile: Profile,
    packs: Sequence[Pack],
    options: Options,
    warnings: Sequence[str] = (),
    declared: Mapping[str, Scalar] | None = None,
    covered_share: float | None = None,
    step: Step = silent,
    clocks: Clocks | None = None,
    ask: Asker | None = None,
) -> Document:
    """Diagnoses every result of a profile and builds the document. `declared` replaces what the options declare;
    `covered_share` is the part of the GPU time that was profiled, where a survey says. `step` is told how many
    results are diagnosed. `clocks` is what was sampled beside an unprofiled run. `ask` is the packs' asker, where the
    caller has one."""
    if declared is None:
        declared = problem.declared(options.problem, options.useful_flops)
    kernels = _selected(profile, options.kernel)
    ask = ask or asker(packs)
    repeated = repeated_counters(profile.kernels)
    owner, notes = _declared_for(kernels, declared)
    items = []
    throttled = throttle.declared(clocks, kernels)
    for kernel in kernels:
        known: dict[str, Scalar] = dict(declared) if kernel.demangled == owner else {}
        if kernel.index in repeated:
            known["counters_repeat"] = True
        known.update(throttled.get(kernel.demangled, {}))
        items.append(ask(kernel, known))
        step(len(items), len(kernels))
    named = [] if options.kernel is None else _left_out_by_filter(profile, kernels)
    document = build(
        profile,
        items,
        packs,
        program.examine([item.context for item in items], covered_share),
        [*warnings, *named, *_about_workloads(profile), *notes],
        ReportOptions(options.all_facts, options.raw_metrics, options.page),
    )
    return ranks.attach(document)


def _left_out_by_filter(profile: Profile, kernels: Sequence[KernelProfile]) -> list[str]:
    left = len(profile.kernels) - len(kernels)
    return [f"{left} results that do not match --kernel are left out"] if left else []


def asker(packs: Sequence[Pack]) -> Asker:
    """What diagnoses one kernel after another, with the work declared for each, under the rules in force."""
    tuned = tuner([rule for rule in active_rules(packs) if rule.scope == "kernel"], packs)
    weigh, catalogue = weights(packs), catalogue_of(packs)
    extra = [(pack.name, section) for pack in packs for section in pack.sections]

    def ask(kernel: KernelProfile, declared: Mapping[str, Scalar]) -> Diagnosed:
        names, arch = (kernel.name, kernel.demangled), architecture(kernel)
        found = _diagnose(kernel, tuned(names, arch), weigh, declared, catalogue)
        if not extra:
            return found
        return replace(found, sections=sections.shown(extra, engine.FactEnv(found.context), names, arch))

    return ask


def _asked_once(ask: Asker) -> Asker:
    """The same, without asking twice of one kernel with the same work: a live run asks before it decides on a second
    run of the program, and again for the document."""
    before: dict[int, tuple[KernelProfile, dict[str, Scalar], Diagnosed]] = {}

    def once(kernel: KernelProfile, declared: Mapping[str, Scalar]) -> Diagnosed:
        known = before.get(id(kernel))
        if known is None or known[0] is not kernel or known[1] != declared:
            known = before[id(kernel)] = (kernel, dict(declared), ask(kernel, declared))
        return known[2]

    return once


def _diagnose(
    kernel: KernelProfile,
    rules: Sequence[Rule],
    weigh: Mapping[str, float],
    declared: Mapping[str, Scalar],
    fact_catalogue: Mapping[str, FactDefinition],
) -> Diagnosed:
    sm = facts.architecture_number(kernel)
    name = kernel.text("device__attribute_display_name") or ""
    product, ceilings = _ceilings(name, sm) if sm is not None else (None, {})
    paths = catalogue.architecture(sm).paths if sm is not None else frozenset()
    context = facts.context(kernel, ceilings, paths, declared, fact_catalogue)
    return Diagnosed(context, engine.diagnose_kernel(context, rules, weigh), product)


def warm_up() -> None:
    """Reads the GPU data and the table of data paths, which the first kernel would wait for."""
    catalogue.products()
    catalogue.architectures()
    mix.paths({"EXIT": 1.0})


# --- the three ways in ---


@dataclass
class _Rules:
    """Loads the packs while a report is read in a child process."""

    options: Options
    packs: tuple[Pack, ...] = ()
    error: BaseException | None = None
    thread: threading.Thread | None = field(default=None, repr=False)

    def start(self) -> _Rules:
        self.thread = threading.Thread(target=self._load, daemon=True)
        self.thread.start()
        return self

    def _load(self) -> None:
        try:
            self.packs = load_rules(self.options)
        except BaseException as error:
            self.error = error

    def get(self) -> tuple[Pack, ...]:
        assert self.thread is not None
        self.thread.join()
        if self.error is not None:
            raise self.error
        return self.packs


def diagnose_reports(paths: Sequence[Path], options: Options, packs: Sequence[Pack] | None = None) -> Result:
    """Recorded reports (or folders of them), diagnosed together."""
    declared = problem.declared(options.problem, options.useful_flops)
    loading = _Rules(options).start() if packs is None else None
    profile = read_reports(
        paths,
        timeout_s=options.timeout_s or 300.0,
        source=options.source,
        ncu=Path(options.ncu) if options.ncu else None,
    )
    rules = packs if packs is not None else loading.get() if loading else ()
    return Result(examine(profile, rules, options, declared=declared), profile)


def diagnose_program(
    target: Sequence[str],
    live: Live,
    options: Options,
    progress: Progress,
    packs: Sequence[Pack] | None = None,
    declared: Mapping[str, Scalar] | None = None,
) -> Result | Collected:
    """Runs a program under ncu and diagnoses what was profiled.

    Returns the bare `Collected` where the run was interrupted before anything was written.
    """
    if declared is None:
        declared = problem.declared(options.problem, options.useful_flops)
    packs = load_rules(options) if packs is None else packs
    ask = _asked_once(asker(packs))
    known = declared
    found = profile_program(
        target,
        live,
        Asked(
            kernel=options.kernel,
            metrics=live_metrics(packs),
            ask=lambda kernel: ask(kernel, known).diagnosis,
            source=options.source,
            timeout_s=options.timeout_s,
            ncu=options.ncu,
            work_declared=bool(declared),
        ),
        progress,
    )
    if isinstance(found, Collected):
        return found
    warnings = list(found.warnings)
    if options.library:
        mark, notes = library.declared(options.problem, target, progress)
        declared, warnings = {**declared, **mark}, [*warnings, *notes]
    document = examine(
        found.profile,
        packs,
        replace(options, kernel=None),
        warnings,
        declared,
        found.covered_share,
        clocks=found.clocks,
        ask=ask,
    )
    if live.mode == "single-pass":
        document = _of_one_pass(document)
    return Result({**document, "collection": dict(found.collection)}, found.profile, found.collected)


def _of_one_pass(document: Document) -> Document:
    """The document of counters that fit one pass: they show what is full, and not whether its work is needed."""
    kernels = [
        {**kernel, "verdict": {**kernel["verdict"], "confidence": "low"}}
        if kernel["verdict"]["class"] == "hardware"
        else kernel
        for kernel in document["kernels"]
    ]
    told = (
        "--single-pass: a hardware verdict says which resource is full; whether that is needed work, and what the "
        "kernel waits for, was not measured"
    )
    return {**document, "kernels": kernels, "warnings": [*document["warnings"], told]}


def diagnose_reference_kernel(
    spec: str, live: Live, options: Options, progress: Progress, packs: Sequence[Pack] | None = None
) -> Result | Collected:
    """Builds, runs and diagnoses a bundled kernel: `kernel:NAME[,param=value…]`. Its own work counts as declared."""
    from diagnose.collect.kernels import build_kernel, declared_of, kernel_arguments, parse_spec

    kernel, params = parse_spec(spec)
    if find_ncu(options.ncu) is None:  # known before a minute of building
        raise DiagnoseError(
            "no ncu (Nsight Compute) was found on PATH or in CUDA's usual places",
            "diagnose doctor    (says how to get it; --ncu PATH or DIAGNOSE_NCU names one)",
            EXIT_NOTHING_MEASURED,
        )
    declared = declared_of(kernel, params)
    declared.update(problem.declared(options.problem, options.useful_flops))
    built = build_kernel(kernel, progress=progress)
    target = (str(built), *kernel_arguments(kernel, params, repeats=0))
    chosen = options if options.kernel else replace(options, kernel=f"regex:^{kernel.function}$")
    # The program launches its kernel once: a survey would run it again to learn that.
    return diagnose_program(target, replace(live, survey="none"), chosen, progress, packs, declared)


# --- gates ---


def check_gates(gates: Sequence[str], packs: Sequence[Pack]) -> None:
    """Raises for a `--fail-on` value that can never hold."""
    rules = {rule.id for pack in packs for rule in pack.rules} | set(program.RULES)
    known = {*CLASSES, *SEVERITIES, *rules, "target", "regression"}
    for gate in gates:
        if gate not in known:
            raise DiagnoseError(
                f"--fail-on {gate!r} is no class, severity or rule{nearest(gate, known)}",
                f"--fail-on takes a class ({', '.join(CLASSES)}), a severity ({', '.join(SEVERITIES)}), target, or a "
                "rule of `diagnose rules list`",
            )


def gates_that_hold(document: Mapping[str, Any], gates: Sequence[str]) -> list[str]:
    """The gates that hold, each with what holds it.

    A class holds where a verdict, or a finding of warning or worse, is of that class; a severity where a finding is
    that bad or worse; a rule where it is a verdict or a finding of any severity; `target` where a program failed;
    `regression` where a kernel is slower than in the baseline. What is accepted, or known from the baseline, does not
    count.
    """
    held = []
    for gate in gates:
        cause = _holds(document, gate)
        if cause:
            held.append(f"--fail-on {gate}: {cause}")
    return held


def _holds(document: Mapping[str, Any], gate: str) -> str | None:
    if gate == "target":
        return next(
            (f"the program ended with status {r['target_exit']}" for r in document["runs"] if r["target_exit"]), None
        )
    if gate == "regression":
        slower = (document.get("baseline") or {}).get("slower") or ()
        return next((f"{k['name']} takes {k['after_us'] / k['before_us']:.2f} times as long" for k in slower), None)
    places = [(k["name"], k["verdict"], k["findings"]) for k in document["kernels"]]
    places.append(("the program", None, document["program"]["findings"]))
    for name, verdict, findings in places:
        closed = {one["rule"] for one in findings if one.get("accepted") or one.get("baseline") == "known"}
        open_ = [one for one in findings if one["rule"] not in closed]
        known = verdict is not None and (verdict["rule"] in closed or verdict.get("baseline") == "known")
        if verdict and not known and gate in (verdict["class"], verdict["rule"]):
            return f"{name} is {verdict['rule']} ({verdict['class']})"
        for one in open_:
            bad = SEVERITIES.index(one["severity"])
            serious = bad <= SEVERITIES.index("warning")
            if (
                gate == one["rule"]
                or (gate == one["class"] and serious)
                or (gate in SEVERITIES and bad <= SEVERITIES.index(gate))
            ):
                return f"{name} has {one['rule']} ({one['severity']})"
    return None


def budgets_broken(document: Mapping[str, Any], kept: bool | None = False) -> list[str]:
    """The budgets that are broken, as sentences; with `kept` None those for which nothing was measured."""
    return [f"budget: {budget.told(row)}" for row in document.get("budgets") or () if row["kept"] is kept]


def exit_code(document: Mapping[str, Any], gates: Sequence[str] = ()) -> int:
    """0, 1 where a gate holds or a budget is broken, 3 where nothing could be said about any kernel or any budget that
    was asked for could not be measured: a gate that measured nothing must not pass."""
    if gates_that_hold(document, gates) or budgets_broken(document):
        return EXIT_GATE
    if budgets_broken(document, None):
        return EXIT_NOTHING_MEASURED
    if all(kernel["verdict"]["class"] == "unknown" for kernel in document["kernels"]):
        return EXIT_NOTHING_MEASURED
    return EXIT_OK
