"""Builds the document of the contract (JSON schema version 1) from profiles and diagnoses. Every renderer reads it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from diagnose import __version__, details, operators, staircase
from diagnose.advisors import advise
from diagnose.details import Part, exact, rounded
from diagnose.facts import architecture_number
from diagnose.facts.context import Context
from diagnose.gpus import catalogue
from diagnose.model import (
    Diagnosis,
    Evidence,
    Fact,
    Finding,
    KernelProfile,
    Limit,
    Profile,
    Run,
    Scalar,
    Speedup,
    Where,
)
from diagnose.rules import Pack, Rule, active_rules

SCHEMA_VERSION = "1"
#: Kernels whose code and raw metrics go into a page: about 20 kB each packed, and nobody reads that of the hundredth.
PAGE_KERNELS = 64
Document = dict[str, Any]


@dataclass(frozen=True)
class Diagnosed:
    """One kernel with everything that was said about it."""

    context: Context
    diagnosis: Diagnosis
    product: catalogue.Product | None
    sections: Sequence[Part] = ()  # of packs, see `diagnose.sections`


@dataclass(frozen=True)
class ReportOptions:
    """`all_facts` keeps every fact, every rejected rule and the raw metrics. `page` adds what only the HTML shows, for
    the PAGE_KERNELS that take the most time: their whole code and their raw metrics."""

    all_facts: bool = False
    raw_metrics: bool = False
    page: bool = False


@dataclass
class _Devices:
    """The GPUs of the report, in the order in which they are met."""

    found: dict[tuple[object, ...], int] = field(default_factory=dict)
    entries: list[Part] = field(default_factory=list)

    def index(self, kernel: KernelProfile, run: Run) -> int:
        """The position of the kernel's GPU in `devices`."""
        entry = device(kernel)
        # A GPU is known by its host and its number there; a report without a host counts as one of the same machine.
        number = kernel.number("launch__device_id")
        key = (run.host, number, entry["name"], entry["arch"], entry["sm_count"])
        if key not in self.found:
            self.found[key] = len(self.entries)
            self.entries.append(entry)
        return self.found[key]


def architecture(kernel: KernelProfile) -> str | None:
    """`sm_90`, or None where the report does not say."""
    number = architecture_number(kernel)
    return f"sm_{number}" if number is not None else None


def device(kernel: KernelProfile) -> Part:
    """The GPU that a kernel ran on, as the report states it."""

    def number(*names: str) -> float | int | None:
        value = next((v for v in (kernel.number(name) for name in names) if v is not None), None)
        return exact(value) if value is not None else None

    khz = number("device__attribute_max_gpu_frequency_khz", "device__attribute_clock_rate")
    return {
        "name": kernel.text("device__attribute_display_name"),
        "arch": architecture(kernel),
        "sm_count": number("device__attribute_multiprocessor_count", "launch__sm_count"),
        "l2_bytes": number("device__attribute_l2_cache_size"),
        "max_clock_ghz": rounded(khz / 1e6) if khz else None,
    }


# --- values ---


def _scalar(value: Scalar | None) -> Any:
    if isinstance(value, bool | str) or value is None:
        return value
    return exact(float(value))


def _share(value: float | None) -> float | int | None:
    return rounded(value) if value is not None else None


def _speedup(value: Speedup | None) -> Part | None:
    if value is None:
        return None
    return {"low": rounded(value.low), "expected": rounded(value.expected), "high": rounded(value.high)}


def evidence(item: Evidence) -> Part:
    """An evaluated condition."""
    entry = {
        "fact": item.fact,
        "value": _scalar(item.value),
        "unit": item.unit,
        "op": item.op,
        "threshold": _scalar(item.threshold),
        "holds": item.holds,
    }
    return {**entry, "missing": list(item.missing)} if item.missing else entry


def _where(place: Where) -> Part:
    return {
        "role": place.role,
        "pc": hex(place.pc),
        "sass": place.sass,
        "file": place.file,
        "line": place.line,
        "share": _share(place.share),
    }


def finding(item: Finding) -> Part:
    """A finding as the contract has it."""
    return {
        "rule": item.rule,
        "class": item.klass,
        "severity": item.severity,
        "title": item.title,
        "at_stake": _share(item.at_stake),
        "speedup": _speedup(item.speedup),
        "evidence": [evidence(one) for one in item.evidence],
        "where": [_where(place) for place in item.where],
        "why": item.why,
        "next_experiment": {
            "change": item.change,
            "expect": {name: _scalar(value) for name, value in item.expect.items()},
        },
        "references": list(item.references),
    }


def _limit(limit: Limit) -> Part:
    return {
        "resource": limit.resource,
        "work": exact(limit.work),
        "work_unit": limit.work_unit,
        "ceiling": rounded(limit.ceiling),
        "ceiling_unit": limit.ceiling_unit,
        "ceiling_source": limit.ceiling_source,
        "bound_us": rounded(limit.bound_us),
        "utilization": rounded(limit.utilization),
    }


def _fact(fact: Fact) -> Part:
    entry: Part = {"value": _scalar(fact.value), "unit": fact.unit}
    return {**entry, "missing": list(fact.missing)} if fact.value is None and fact.missing else entry


# --- identity ---

# Parts of a name that differ between builds of the same code: hashes of anonymous namespaces and translation units.
_UNSTABLE = (
    (re.compile(r"_GLOBAL__N__?[0-9a-f]+(?:_\w*?_cu_[0-9a-f]+(?:_\d+)?)?"), "(anonymous namespace)"),
    (re.compile(r"<unnamed>"), "(anonymous namespace)"),
    (re.compile(r"_INTERNAL_[0-9a-f]+_\w*?_cu_[0-9a-f]+(?:_\d+)?"), "_INTERNAL_"),
    (re.compile(r"0x[0-9a-f]{6,}"), "0x"),
    (re.compile(r"\s+"), " "),
)


def normalised(name: str) -> str:
    """A kernel's name without what changes from build to build."""
    for pattern, replacement in _UNSTABLE:
        name = pattern.sub(replacement, name)
    return name.strip()


def _hash(*parts: object) -> str:
    return hashlib.sha256("\0".join(map(str, parts)).encode("utf-8", "surrogatepass")).hexdigest()[:12]


def launch(kernel: KernelProfile) -> Part | None:
    """Grid, block and cluster; None for ranges and graphs, and where the report does not say."""
    if kernel.workload != "kernel":
        return None

    def dims(stem: str) -> list[int] | None:
        parts = [kernel.number(f"launch__{stem}_dim_{axis}") for axis in "xyz"]
        return [int(part) for part in parts if part is not None] if all(p is not None for p in parts) else None

    grid, block, cluster = dims("grid"), dims("block"), dims("cluster")
    if grid is None and (size := kernel.number("launch__grid_size")) is not None:
        grid = [int(size), 1, 1]
    if block is None and (size := kernel.number("launch__block_size")) is not None:
        block = [int(size), 1, 1]
    if grid is None or block is None:
        return None
    return {"grid": grid, "block": block, "cluster": cluster if cluster and 0 not in cluster else None}


# --- one kernel ---


def _cited(item: Diagnosed, rules: Mapping[str, Rule]) -> list[str]:
    """The facts that the verdict, the findings and the near misses rest on, in catalogue order."""
    diagnosis = item.diagnosis
    named: set[str] = {"duration_us"}
    for rule_id in (diagnosis.verdict.rule, *(f.rule for f in diagnosis.findings)):
        if rule_id in rules:
            named.update(rules[rule_id].facts)
            named.update(rules[rule_id].show)
    for one in (e for f in diagnosis.findings for e in f.evidence):
        named.add(one.fact)
    for rejected in diagnosis.rejected:
        if rejected.near:
            named.update(e.fact for e in rejected.because)
    return [name for name in diagnosis.facts if name in named]


def _weight_us(item: Diagnosed) -> float | None:
    """The GPU time that an entry stands for: of all launches that a survey counted, else of the one profiled."""
    counted = item.context.kernel.counted
    return counted.total_us if counted is not None else item.context.value("duration_us")


def _raw_metrics(kernel: KernelProfile) -> Part:
    return {
        name: [_scalar(value), kernel.units.get(name, "")]
        for name, value in sorted(kernel.metrics.items())
        # `group:` and `breakdown:` list other metrics.
        if not name.startswith(("group:", "breakdown:"))
    }


def _kernel(
    item: Diagnosed,
    number: int,
    total_us: float,
    identity: Part,
    rules: Mapping[str, Rule],
    options: ReportOptions,
    page: bool = False,
) -> Part:
    context, diagnosis, kernel = item.context, item.diagnosis, item.context.kernel
    us, clock = context.value("duration_us"), context.value("clock_ghz")
    verdict = diagnosis.verdict
    names = list(diagnosis.facts) if options.all_facts else _cited(item, rules)
    arch = catalogue.architecture(context.arch) if context.arch is not None else None
    paths = context.fact("paths")
    entry: Part = {
        "id": identity["id"],
        "index": kernel.index,
        "run": kernel.run,
        "device": number,
        "workload": kernel.workload,
        "name": kernel.name,
        "demangled": kernel.demangled,
        "launch": launch(kernel),
        "launches": kernel.counted.launches if kernel.counted is not None else 1,
        "group": identity["group"],
        "duration_us": rounded(us) if us is not None else None,
        "time_share": rounded(weight / total_us) if (weight := _weight_us(item)) is not None and total_us > 0 else None,
        "clock_ghz": rounded(clock) if clock is not None else None,
        "paths": paths.split() if isinstance(paths, str) else [],
        "verdict": {
            "rule": verdict.rule,
            "class": verdict.klass,
            "title": verdict.title,
            "at_stake": _share(verdict.at_stake),
            "speedup": _speedup(verdict.speedup),
            "confidence": verdict.confidence,
        },
        "sentence": verdict.sentence,
        "limits": [_limit(limit) for limit in diagnosis.limits],
        "findings": [finding(one) for one in diagnosis.findings],
        "rejected": [
            {"rule": one.rule, "because": [evidence(e) for e in one.because]}
            for one in diagnosis.rejected
            if one.near or options.all_facts
        ],
        "not_evaluated": [
            {"rule": one.rule, "missing": list(one.missing), "collect_with": one.collect_with}
            for one in diagnosis.not_evaluated
        ],
        "facts": {name: _fact(diagnosis.facts[name]) for name in names},
        "warnings": list(diagnosis.warnings),
        "time_model": details.time_model(context, diagnosis),
        "speed_of_light": details.speed_of_light(context),
        "roofline": details.roofline(context, item.product.boost_hz if item.product else None),
        "memory": details.memory(context),
        "stalls": details.stalls(context),
        "instruction_mix": details.instruction_mix(context),
        "occupancy": details.occupancy(context, arch),
        "timeline": details.timeline(kernel.timeline),
        "hot": details.hot(context),
        "main_loop": details.main_loop(context),
        "advice": advise(context, options.all_facts),
        "operator": operators.describe(context),
    }
    entry["staircase"] = staircase.kernel(context, diagnosis, item.product, entry["time_share"])
    if item.sections:
        entry["sections"] = [_section(one) for one in item.sections]
    if kernel.process is not None:
        entry["process"] = kernel.process
    if kernel.joined:
        entry["joined"] = [{"run": one.run, "metrics": list(one.metrics)} for one in kernel.joined]
    if options.raw_metrics or options.all_facts or page:
        entry["raw_metrics"] = _raw_metrics(kernel)
    if page and (code := details.code(context)) is not None:
        entry["code"] = code
    return entry


def _section(section: Part) -> Part:
    return {**section, "rows": [{**row, "value": _scalar(row["value"])} for row in section["rows"]]}


def _of_a_page(items: Sequence[Diagnosed]) -> frozenset[int]:
    """The positions of the PAGE_KERNELS longest."""
    longest = sorted(range(len(items)), key=lambda at: (-(items[at].context.value("duration_us") or 0.0), at))
    return frozenset(longest[:PAGE_KERNELS])


def without_page(document: Document, raw_metrics: bool = False) -> Document:
    """The document without what only the page shows: the code, and raw metrics unless they were asked for."""
    gone = {"code"} if raw_metrics else {"code", "raw_metrics"}
    if not any(gone & kernel.keys() for kernel in document["kernels"]):
        return document
    kernels = [{key: value for key, value in kernel.items() if key not in gone} for kernel in document["kernels"]]
    return {**document, "kernels": kernels}


def _identities(items: Sequence[Diagnosed], devices: Sequence[int]) -> list[Part]:
    """Ids that stay the same from run to run: name, launch configuration and occurrence decide."""
    seen: dict[str, int] = {}
    found: list[Part] = []
    for item, number in zip(items, devices, strict=True):
        kernel = item.context.kernel
        shape = launch(kernel)
        key = (normalised(kernel.demangled or kernel.name), kernel.workload, shape)
        config = _hash(*key)
        occurrence = seen[config] = seen.get(config, -1) + 1
        # Equal launches of two processes are repeats of nothing; where a report has one, its groups stay as they were.
        where = (kernel.run, number) if kernel.process is None else (kernel.run, number, kernel.process)
        found.append({"id": _hash(*key, occurrence), "group": _hash(*key, *where)})
    return found


# --- the whole ---


def _ceilings(items: Sequence[Diagnosed]) -> Part:
    """Where the ceilings come from, for the GPU that holds most of the time."""
    if not items:
        return {"source": "datasheet", "gpu": None, "date": None}
    item = max(items, key=lambda one: one.context.value("duration_us") or 0.0)
    name = item.context.kernel.text("device__attribute_display_name")
    gpu = item.product.name if item.product is not None else name
    sources = {c.source for c in item.context.ceilings.values()} - {"library"}
    for source in ("measured", "recorded"):
        if source in sources:
            dates = [c.date for c in item.context.ceilings.values() if c.source == source and c.date]
            return {"source": source, "gpu": gpu, "date": max(dates, default=None)}
    return {"source": "datasheet", "gpu": gpu, "date": item.product.date if item.product is not None else None}


def _run(run: Run) -> Part:
    return {
        "source": run.source,
        "ncu_version": run.ncu_version,
        "command": run.command,
        "clock_control": run.clock_control,
        "cache_control": run.cache_control,
        "replay": run.replay,
        "passes_total": run.passes_total,
        "rank": run.rank,
        "host": run.host,
        "target_exit": run.target_exit,
        "date": run.date,
        "driver": run.driver,
    }


def _pages(packs: Iterable[Pack], cited: set[str]) -> Part:
    return {
        rule.id: {
            "title": rule.title,
            "why": rule.why,
            "change": rule.change,
            "limitations": rule.limitations,
            "references": list(rule.references),
        }
        for pack in packs
        for rule in pack.rules
        if rule.id in cited
    }


def packs_entry(packs: Sequence[Pack]) -> list[Part]:
    """The packs with what each of them turns off, re-weighs, re-words and re-thresholds, its sections, and the code of
    an installed package that computes facts."""
    entries = []
    for pack in packs:
        entry: Part = {
            "name": pack.name,
            "version": pack.version,
            "sha256": pack.sha256,
            "disabled": list(pack.disable),
        }
        if pack.weigh:
            entry["weighed"] = dict(pack.weigh)
        if pack.thresholds:
            entry["thresholds"] = [
                {
                    "rule": one.rule,
                    "kernel": one.scope.kernel,
                    "arch": [f"{op}sm_{number}" for op, number in one.scope.arch] or None,
                    "set": dict(one.values),
                }
                for one in pack.thresholds
            ]
        if pack.reworded:
            entry["reworded"] = {name: list(words) for name, words in pack.reworded.items()}
        if pack.sections:
            entry["sections"] = [section.title for section in pack.sections]
        if pack.code is not None:
            entry["code"] = {
                "source": pack.code.source,
                "distribution": pack.code.distribution,
                "facts": [definition.name for definition in pack.code.definitions],
            }
        entries.append(entry)
    return entries


def build(
    profile: Profile,
    items: Sequence[Diagnosed],
    packs: Sequence[Pack],
    program: Part,
    warnings: Sequence[str],
    options: ReportOptions,
) -> Document:
    """The document. `program` holds findings, gpu_time_us and covered_share (see `diagnose.program`)."""
    rules = {rule.id: rule for rule in active_rules(packs)}
    devices = _Devices()
    numbers = [devices.index(item.context.kernel, profile.runs[item.context.kernel.run]) for item in items]
    total_us = sum(_weight_us(item) or 0.0 for item in items)
    if any(item.context.kernel.counted is not None for item in items):
        program = {**program, "gpu_time_us": rounded(total_us)}
    in_page = _of_a_page(items) if options.page else frozenset()
    kernels = [
        _kernel(item, number, total_us, identity, rules, options, at in in_page)
        for at, (item, number, identity) in enumerate(zip(items, numbers, _identities(items, numbers), strict=True))
    ]
    cited = {kernel["verdict"]["rule"] for kernel in kernels}
    cited |= {one["rule"] for kernel in kernels for part in ("findings", "rejected") for one in kernel[part]}
    return {
        "schema_version": SCHEMA_VERSION,
        "tool": {"name": "diagnose", "version": __version__},
        "packs": packs_entry(packs),
        "ceilings": _ceilings(items),
        "devices": devices.entries,
        "runs": [_run(run) for run in profile.runs],
        "warnings": list(dict.fromkeys((*profile.warnings, *warnings))),
        "partial": bool(profile.lost),
        "program": {**program, "amdahl": staircase.program(kernels, program["gpu_time_us"], operators.titles())},
        "rule_pages": _pages(packs, cited),
        "kernels": kernels,
    }
