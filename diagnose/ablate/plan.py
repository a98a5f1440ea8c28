"""The points of a study, and the program that each of them runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from diagnose.ablate.study import Study, Variant
from diagnose.collect.kernels import build_kernel, evaluate, kernel_arguments, work_of


@dataclass(frozen=True)
class Point:
    """One place of a study: a variant at a value of the axis (None without an axis), with all parameters."""

    variant: Variant
    value: int | None
    params: Mapping[str, int]

    @property
    def id(self) -> str:
        """Stable in a study: `wgmma` or `wgmma @ 4096`."""
        return self.variant.name if self.value is None else f"{self.variant.name} @ {self.value}"

    @property
    def target(self) -> str:
        """What runs, in words: `kernel:NAME,param=value` or the command line."""
        if self.variant.kernel is None:
            return " ".join(self.command())
        return f"kernel:{self.variant.kernel.name}" + "".join(f",{k}={v}" for k, v in self.params.items())

    def command(self) -> tuple[str, ...]:
        """A user's command line with the values in it."""
        words = self.variant.command
        for name, value in self.params.items():
            words = tuple(word.replace("{" + name + "}", str(value)) for word in words)
        return words

    def work(self) -> dict[str, float]:
        """Useful `flops` and `bytes`; empty for a user's program that did not say its work."""
        if self.variant.kernel is not None:
            return work_of(self.variant.kernel, self.params)
        return {"flops": evaluate(self.variant.flops, self.params)} if self.variant.flops is not None else {}


def points(study: Study) -> tuple[Point, ...]:
    """All points, variant by variant, in the order of the values."""
    found = []
    for variant in study.variants:
        axis = study.axis
        if axis is None:
            found.append(Point(variant, None, variant.params))
            continue
        for value in variant.values if variant.values is not None else axis.values:
            found.append(Point(variant, value, {**variant.params, **dict.fromkeys(axis.params, value)}))
    return tuple(found)


def profiled(study: Study, all_points: tuple[Point, ...]) -> tuple[Point, ...]:
    """The points that are profiled too: `ends` are each variant's baseline (or first) and last value."""
    if study.profile == "none":
        return ()
    if study.profile == "all":
        return all_points
    chosen = []
    for variant in study.variants:
        own = [point for point in all_points if point.variant is variant]
        base = next((point for point in own if point.value == study.baseline), own[0])
        decides = next((point for point in own if point.value == study.at), own[-1])
        if study.ablates == "variant":
            chosen += [decides]  # where the variants are compared
        else:
            chosen += [base] if study.profile == "baseline" else [base, own[-1]]
    return tuple({point.id: point for point in chosen}.values())


def programs(study: Study, arch: str | None, progress: Callable[[str], None]) -> dict[str, Path]:
    """Kernel name -> its program, built or out of the cache. Raises DiagnoseError where one cannot be built."""
    found = {}
    for variant in study.variants:
        if variant.kernel is not None and variant.kernel.name not in found:
            found[variant.kernel.name] = build_kernel(variant.kernel, arch, progress)
    return found


def words(point: Point, built: Mapping[str, Path], launches: int) -> tuple[str, ...]:
    """The command that runs a point with so many timed launches (0 under a profiler)."""
    kernel = point.variant.kernel
    if kernel is None:
        return point.command()
    return (str(built[kernel.name]), *kernel_arguments(kernel, point.params, launches))
