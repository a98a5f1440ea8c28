"""Runs a study: rounds over all points in random order, profiles of some, more rounds until all are narrow."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from diagnose.ablate import noise, plan, profiling, timing
from diagnose.ablate.conditions import Watch, watching
from diagnose.ablate.plan import Point
from diagnose.ablate.state import PointState, State
from diagnose.ablate.study import Study
from diagnose.collect.find import find_ncu
from diagnose.errors import EXIT_NOTHING_MEASURED, DiagnoseError
from diagnose.rules import Pack

FEWEST = 3  # rounds: fewer say nothing about the noise


@dataclass(frozen=True)
class Limits:
    """When to stop. `width`: half an interval over its median; `budget_s` of the study, `timeout_s` of one program."""

    width: float = 0.01
    budget_s: float = 120.0
    timeout_s: float = 60.0
    most: int = 15


@dataclass(frozen=True)
class Setup:
    """What a run needs beside the study: the time's source, built programs, packs for the verdicts, or no profiles."""

    source: timing.Source
    built: Mapping[str, Path]
    packs: Sequence[Pack] = ()
    ncu: str | None = None
    profiles: bool = True
    kernel: str | None = None


def sigma_of(state: State) -> float | None:
    """The noise of the study so far."""
    return noise.pooled({name: one.times() for name, one in state.points.items() if one.failed is None})


def run(
    study: Study,
    setup: Setup,
    limits: Limits,
    state: State,
    save: Callable[[State], None],
    progress: Callable[[str], None],
) -> None:
    """Measures into `state`, saving after every round. An interrupt passes through; what was measured stays saved."""
    points = plan.points(study)
    for point in points:
        state.points.setdefault(point.id, PointState())
    start = time.monotonic() - state.spent_s  # a resumed study has used part of its budget
    state.complete, state.stopped = False, "interrupted"

    def left() -> float:
        return limits.budget_s - (time.monotonic() - start)

    try:
        with watching() as watch:
            if not any(one.samples for one in state.points.values()):
                progress(f"warm-up: {points[0].target}")
                timing.once(plan.words(points[0], setup.built, study.launches), setup.source, limits.timeout_s)
            slowest = 0.0
            while (todo := _todo(points, state, limits)) and left() > 0:
                if state.rounds == FEWEST:
                    _profiles(study, points, setup, limits, state, left, progress)
                    save(state)
                slowest = max(slowest, _round(todo, study, setup, limits, state, watch, left, progress))
                state.rounds += 1
                state.spent_s = time.monotonic() - start
                save(state)
            _profiles(study, points, setup, limits, state, left, progress)
        wide = [point.id for point in _todo(points, state, limits)]
        state.stopped = None
        if wide:
            state.stopped = f"the budget of {limits.budget_s:g} s was used with {len(wide)} points not yet narrow"
        elif state.rounds >= limits.most:
            state.stopped = f"{limits.most} rounds were run"
        state.complete = not wide
    finally:
        state.spent_s = time.monotonic() - start
        save(state)
    if not any(one.samples and one.failed is None for one in state.points.values()):
        reasons = [one.failed for one in state.points.values() if one.failed]
        raise DiagnoseError(
            f"no point of {study.id} could be timed" + (f": {reasons[0]}" if reasons else ""),
            f"{points[0].target}    (diagnose kernels run, or the command alone, shows what it says)",
            EXIT_NOTHING_MEASURED,
        )


def _todo(points: Sequence[Point], state: State, limits: Limits) -> list[Point]:
    """The points that need another run: too few, or an interval that is too wide; not those that failed."""
    sigma = sigma_of(state)
    found = []
    for point in points:
        one = state.points[point.id]
        if one.failed is not None or len(one.samples) >= limits.most:
            continue
        known = noise.estimate(one.times(), sigma)
        if len(one.samples) < FEWEST or known is None or not known.narrow(limits.width):
            found.append(point)
    return found


def _round(
    todo: Sequence[Point],
    study: Study,
    setup: Setup,
    limits: Limits,
    state: State,
    watch: Watch,
    left: Callable[[], float],
    progress: Callable[[str], None],
) -> float:
    """One run of every point, in an order of its own. Returns the seconds that the slowest took."""
    order = list(todo)
    random.Random(f"{state.seed} {state.rounds}").shuffle(order)
    slowest = 0.0
    for number, point in enumerate(order):
        if left() <= slowest:
            break
        one = state.points[point.id]
        start = time.monotonic()
        try:
            timed = timing.once(plan.words(point, setup.built, study.launches), setup.source, limits.timeout_s)
        except DiagnoseError as error:
            if not any(other.samples for other in state.points.values()):
                raise  # nothing can be measured here at all: no ncu, no permission
            timed = timing.Timed(None, error.message)
        slowest = max(slowest, time.monotonic() - start)
        one.error = timed.error if one.error is None or timed.error is None else max(one.error, timed.error)
        one.tolerance = timed.tolerance
        if timed.us is None:
            one.failed = timed.failed
            progress(f"{point.id}: {timed.failed}: its times do not count")
            continue
        seen = watch.since(start)
        one.samples.append(
            {
                "us": timed.us,
                "round": state.rounds,
                "order": number,
                "sm_mhz": seen.sm_mhz,
                "memory_mhz": seen.memory_mhz,
                "temperature_c": seen.temperature_c,
                "power_w": seen.power_w,
            }
        )
    progress(f"round {state.rounds + 1}: {len(order)} points, {max(left(), 0):.0f} s of the budget left")
    return slowest


def _profiles(
    study: Study,
    points: tuple[Point, ...],
    setup: Setup,
    limits: Limits,
    state: State,
    left: Callable[[], float],
    progress: Callable[[str], None],
) -> None:
    """The profiles that are still missing. One that cannot be had is said, and the times stand without it."""
    for point in plan.profiled(study, points):
        one = state.points[point.id]
        if one.profile is not None or one.failed is not None:
            continue
        if not setup.profiles or find_ncu(setup.ncu) is None:
            one.not_profiled = "not asked for" if not setup.profiles else "no ncu was found"
            continue
        if left() <= 0:
            one.not_profiled = "the budget was used"
            continue
        try:
            one.profile = profiling.profile(
                point,
                plan.words(point, setup.built, 0),
                setup.packs,
                setup.ncu,
                min(limits.timeout_s, max(left(), 5.0)),
                setup.kernel,
                lambda text: None,
            )
            one.not_profiled = None
            progress(f"profiled {point.id}: {one.profile['verdict']['rule']}")
        except DiagnoseError as error:
            one.not_profiled = error.message
            progress(f"not profiled: {point.id}: {error.message}")
