"""The catalogue of facts: every name that a rule may use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from diagnose.facts import code, gains, launch, memory, pipes, stalls, timeline, work
from diagnose.facts.context import Context, FactDefinition
from diagnose.model import Ceiling, KernelProfile, Scalar

CATALOGUE: Mapping[str, FactDefinition] = {
    definition.name: definition
    for module in (launch, memory, pipes, timeline, stalls, code, gains, work)
    for definition in module.FACTS
}


def units() -> Mapping[str, str]:
    """Fact name -> unit."""
    return {name: definition.unit for name, definition in CATALOGUE.items()}


def architecture_number(kernel: KernelProfile) -> int | None:
    """Compute capability times ten (90 for sm_90); None when the report does not say."""
    major = kernel.number("device__attribute_compute_capability_major")
    minor = kernel.number("device__attribute_compute_capability_minor")
    return int(major) * 10 + int(minor or 0) if major is not None else None


def context(
    kernel: KernelProfile,
    ceilings: Mapping[str, Ceiling],
    available_paths: Iterable[str],
    declared: Mapping[str, Scalar] | None = None,
    catalogue: Mapping[str, FactDefinition] = CATALOGUE,
) -> Context:
    """Everything that facts of one kernel may look at. `catalogue`: with the facts of installed packages, where some
    were named (`diagnose.installed`)."""
    return Context(
        kernel, architecture_number(kernel), ceilings, frozenset(available_paths), catalogue, dict(declared or {})
    )


def metrics_of(names: Iterable[str]) -> tuple[str, ...]:
    """ncu metrics to collect for these facts, in catalogue order, without repeats."""
    found: dict[str, None] = {}
    for name in names:
        for metric in CATALOGUE[name].needs:
            found.setdefault(metric)
    return tuple(found)
