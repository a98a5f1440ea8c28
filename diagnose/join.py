"""Joins what different runs of one program measured, launch by launch. Pure.

Counters of two runs belong together only where they are of the same launch. It is taken for the same where name, grid,
block, dynamic shared memory, device and order agree, and where both runs executed the same instructions; anything else
is refused and said (field notes, trap 15: ten public reports hold counters of another launch).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from diagnose.collect.survey import configuration_of
from diagnose.model import Joined, KernelProfile, Profile

# Instructions that two runs of the same launch may differ by: a spinning or data-dependent loop runs on by chance.
SAME_WORK = 0.02
_WORK = "smsp__inst_executed.sum"


def _place(kernel: KernelProfile, seen: dict[object, int]) -> object:
    """What identifies a launch in every run: its configuration and which of the equal ones it is."""
    one = configuration_of(kernel)
    key = (kernel.demangled, kernel.workload) if one is None else (one.key, one.device)
    number = seen[key] = seen.get(key, -1) + 1
    return (key, number)


def same_work(one: KernelProfile, other: KernelProfile) -> bool:
    """Whether both results executed the same number of instructions; False where one does not say."""
    here, there = one.number(_WORK), other.number(_WORK)
    return here is not None and there is not None and abs(here - there) <= SAME_WORK * max(here, there)


def join(first: Profile, second: Profile) -> tuple[Profile, tuple[str, ...]]:
    """The first profile with the metrics that only the second measured; each is tagged with its run.

    Returns it with a line for each result of the second that has no equal launch in the first.
    """
    run = len(first.runs)
    seen: dict[object, int] = {}
    places = {_place(kernel, seen): at for at, kernel in enumerate(first.kernels)}
    kernels = list(first.kernels)
    refused: list[str] = []
    seen = {}
    for other in second.kernels:
        at = places.get(_place(other, seen))
        if at is None:
            refused.append(f"{other.name}: no launch of the first run has its name, grid and order")
        elif not same_work(kernels[at], other):
            refused.append(f"{other.name}: the two runs executed different instructions under that name and grid")
        else:
            kernels[at] = _with(kernels[at], other, run)
    runs = (*first.runs, *second.runs)
    warnings = tuple(f"the second run's counters are not used for {line}" for line in dict.fromkeys(refused))
    return replace(first, runs=runs, kernels=tuple(kernels)), warnings


def _with(kernel: KernelProfile, other: KernelProfile, run: int) -> KernelProfile:
    new = {name: value for name, value in other.metrics.items() if name not in kernel.metrics}
    units = {name: other.units[name] for name in new if name in other.units}
    return replace(
        kernel,
        metrics={**kernel.metrics, **new},
        units={**kernel.units, **units},
        opcodes=kernel.opcodes or other.opcodes,
        thread_opcodes=kernel.thread_opcodes or other.thread_opcodes,
        lines=kernel.lines or other.lines,
        timeline=kernel.timeline or other.timeline,
        joined=(*kernel.joined, Joined(run, tuple(sorted(new)))),
    )


def resumed(kept: Profile, fresh: Profile) -> Profile:
    """Both profiles as one: the kept results, and those of the new run whose launch configuration is not among them."""
    done = {one.key for kernel in kept.kernels if (one := configuration_of(kernel)) is not None}
    new: Sequence[KernelProfile] = [
        kernel for kernel in fresh.kernels if (one := configuration_of(kernel)) is None or one.key not in done
    ]
    first, at = len(kept.runs), len(kept.kernels)
    moved = [replace(kernel, run=kernel.run + first, index=at + place) for place, kernel in enumerate(new)]
    return Profile(
        (*kept.runs, *fresh.runs),
        (*kept.kernels, *moved),
        tuple(dict.fromkeys((*kept.warnings, *fresh.warnings))),
        fresh.lost,
    )
