"""The recorded reports of our own kernels (`examples/reports`) for tests: read once, diagnosed once.

Reading all of them takes a while, so what was read is kept under `.pytest_cache/recorded`, named by
the report's bytes and the sources that read it: a changed report or reader is read anew.
"""

from __future__ import annotations

import gc
import hashlib
import multiprocessing
import os
import pickle
import sys
from collections.abc import Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from diagnose import facts
from diagnose import reader as reader_module
from diagnose.collect.kernels import ReferenceKernel, declared_of, load_kernels, read_manifest
from diagnose.engine import FactEnv, diagnose_kernel
from diagnose.facts.context import Context
from diagnose.gpus.catalogue import ceilings, product
from diagnose.model import Ceiling, Diagnosis, KernelProfile, Profile, SassLine, Scalar
from diagnose.packs import load_packs
from diagnose.reader import read_reports
from diagnose.rules import Rule, RuleOutcome, active_rules, evaluate

ROOT = Path(__file__).resolve().parents[1]
REPORTS = ROOT / "examples" / "reports"
SHARED = ROOT.parent / "shared" / "reports"
COMMAND = (sys.executable, "-m", "diagnose")  # the tool as a process of its own, with the Python that runs the tests
_CACHE = ROOT / ".pytest_cache" / "recorded"
_READERS = ("model", "reader", "report_file", "report_session", "report_worker")
_SUFFIX = ".ncu-rep.xz"


@cache
def manifest() -> Mapping[str, ReferenceKernel]:
    """Every reference kernel by name."""
    return load_kernels(ROOT / "kernels")


def report_of(name: str) -> Path:
    """Where the report of a reference kernel lies, or would lie."""
    return REPORTS / (name.replace("/", "-") + _SUFFIX)


@cache
def held_out() -> frozenset[str]:
    """Kernels of the held-out sets: `diagnose rules accuracy` measures the verdicts on them, no test asserts them."""
    return frozenset(
        kernel.name for path in (ROOT / "kernels").glob("*/heldout_*.yaml") for kernel in read_manifest(path)
    )


@cache
def names() -> tuple[str, ...]:
    """The reference kernels with a recorded report, in the order of the manifests, without the held-out ones."""
    return tuple(name for name in manifest() if name not in held_out() and report_of(name).is_file())


@cache
def _reader() -> bytes:
    digest = hashlib.sha256(metadata.version("ncu-report").encode())
    for module in _READERS:
        digest.update((ROOT / "diagnose" / f"{module}.py").read_bytes())
    return digest.digest()


@cache
def read(path: Path) -> Profile:
    """What one report holds; from the cache where the same bytes were read by the same code before."""
    kept = _kept(path)
    try:
        found = pickle.loads(kept.read_bytes())
        if isinstance(found, Profile):
            return found
    except (OSError, pickle.UnpicklingError, EOFError, AttributeError, ImportError, IndexError):
        pass
    found = read_reports([path])
    try:
        _CACHE.mkdir(parents=True, exist_ok=True)
        for stale in _CACHE.glob(f"{path.name.split('.')[0]}-{'?' * 24}.pickle"):
            stale.unlink(missing_ok=True)
        fresh = kept.with_suffix(".new")
        fresh.write_bytes(pickle.dumps(found))
        fresh.replace(kept)
    except OSError:
        pass  # a read-only checkout is read again each time
    return found


def _kept(path: Path) -> Path:
    key = hashlib.sha256(_reader() + path.read_bytes()).hexdigest()[:24]
    return _CACHE / f"{path.name.split('.')[0]}-{key}.pickle"


def _read_here(path: Path) -> None:
    """For a process of its own that reads many reports: NVIDIA's disassembler takes 0.4 s to start, once a process."""
    from diagnose import report_worker

    def in_this_process(
        _reader: object, job: Mapping[str, object], module: reader_module._Module, _take: object
    ) -> object:
        if module.folder and module.folder not in sys.path:
            sys.path.insert(0, module.folder)
        report_worker.job(job, lambda: None)
        return reader_module._Answer(None)

    reader_module._Reader._do = in_this_process  # type: ignore[assignment,method-assign]
    read(path)
    read.cache_clear()
    gc.collect()


def read_all(paths: Iterable[Path]) -> None:
    """Reads reports side by side, so that the tests that follow find them."""
    new = [path for path in paths if not _kept(path).is_file()]
    if len(new) > 4 and os.access(_CACHE.parent if _CACHE.parent.is_dir() else ROOT, os.W_OK):
        with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
            list(pool.map(_read_here, new))
    else:
        with ThreadPoolExecutor(2) as threads:
            list(threads.map(read, new))


@cache
def profiles() -> Mapping[str, KernelProfile]:
    """The profile of every recorded reference kernel."""
    read_all(report_of(name) for name in names())
    return {name: profile(name) for name in names()}


def profile(name: str) -> KernelProfile:
    """The profile of one reference kernel; other launches in its report are helpers."""
    kernels = read(report_of(name)).kernels
    function = manifest()[name].function
    return next((kernel for kernel in kernels if kernel.name == function), kernels[0])


def declared(name: str) -> dict[str, Scalar]:
    """The useful work of a reference kernel as `diagnose kernel:NAME` declares it."""
    entry = manifest()[name]
    return declared_of(entry, entry.params)


@cache
def rules() -> tuple[Rule, ...]:
    """The core pack's rules on kernels."""
    packs = load_packs([ROOT / "rules"], facts.units())
    return tuple(rule for rule in active_rules(packs) if rule.scope == "kernel")


@cache
def rule(rule_id: str) -> Rule:
    """One rule of the core pack."""
    return next(one for one in rules() if one.id == rule_id)


def known_ceilings(kernel: KernelProfile) -> dict[str, Ceiling]:
    """The catalogue's ceilings of the GPU that the kernel ran on."""
    name, arch = kernel.text("device__attribute_display_name"), facts.architecture_number(kernel)
    gpu = product(name, arch) if name and arch else None
    return {resource: ceiling for resource, ceiling in ceilings(gpu).items() if ceiling is not None}


def context_of(kernel: KernelProfile, work: Mapping[str, Scalar] | None = None) -> Context:
    """A context as the program makes it."""
    return facts.context(kernel, known_ceilings(kernel), (), work)


def diagnose(kernel: KernelProfile, work: Mapping[str, Scalar] | None = None) -> Diagnosis:
    """The core pack's diagnosis of any kernel."""
    return diagnose_kernel(context_of(kernel, work), rules(), {})


@cache
def diagnosis(name: str) -> Diagnosis:
    """The diagnosis of one reference kernel with its work declared."""
    return diagnose(profile(name), declared(name))


@cache
def context(name: str) -> Context:
    """The context of one reference kernel with its work declared."""
    return context_of(profile(name), declared(name))


def outcome(rule_id: str, kernel: KernelProfile, work: Mapping[str, Scalar] | None = None) -> RuleOutcome:
    """What one rule says of a kernel, whatever other rules say."""
    return evaluate(rule(rule_id), FactEnv(context_of(kernel, work)))


def shared_kernel(file: str, index: int) -> KernelProfile:
    """A kernel of the reports beside the clone."""
    return read(SHARED / file).kernels[index]


def changed(
    kernel: KernelProfile,
    metrics: Mapping[str, Scalar | None] | None = None,
    *,
    opcodes: Mapping[str, float] | None = None,
    lines: tuple[SassLine, ...] | None = None,
    **fields: Any,
) -> KernelProfile:
    """A profile with some metrics replaced (None removes one), and other fields where given."""
    values = dict(kernel.metrics)
    for name, value in (metrics or {}).items():
        if value is None:
            values.pop(name, None)
        else:
            values[name] = value
    more: dict[str, Any] = dict(fields)
    if opcodes is not None:
        more["opcodes"] = dict(opcodes)
    if lines is not None:
        more["lines"] = lines
    return replace(kernel, metrics=values, **more)


def summary(diagnosis: Diagnosis) -> str:
    """A line with the numbers that a failing test needs."""
    found = " ".join(f"{f.rule}({f.severity} {_number(f.at_stake)})" for f in diagnosis.findings[:6])
    limits = " ".join(f"{limit.resource}:{limit.utilization:.2f}" for limit in diagnosis.limits[:4])
    verdict = diagnosis.verdict
    return (
        f"{diagnosis.kernel.name}: {verdict.rule} [{verdict.klass}, {verdict.confidence}, stake "
        f"{_number(verdict.at_stake)}] | findings: {found or 'none'} | limits: {limits} | "
        f"{_number(diagnosis.facts['duration_us'].value)} us"
    )


def _number(value: Scalar | None) -> str:
    return "-" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)
