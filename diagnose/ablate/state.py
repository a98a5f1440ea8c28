"""What a study has measured so far: filled by the runner, saved after every round, read again to resume."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from diagnose.errors import DiagnoseError


@dataclass
class PointState:
    """The runs of one point. `failed` says why its times do not count; `profile` is what `profiling.summary` gave."""

    samples: list[dict[str, Any]] = field(default_factory=list)
    failed: str | None = None
    error: float | None = None
    tolerance: float | None = None
    profile: dict[str, Any] | None = None
    not_profiled: str | None = None

    def times(self) -> list[float]:
        """The times in µs, in the order in which they were measured."""
        return [float(sample["us"]) for sample in self.samples]


@dataclass
class State:
    """All points by id, and the conditions of the run. `seed` orders the rounds; `stopped` says why it ended."""

    fingerprint: str
    seed: int
    gpu: str | None = None
    sm: int | None = None
    driver: str | None = None
    date: str = ""
    time_source: str = ""
    rounds: int = 0
    spent_s: float = 0.0
    stopped: str | None = None
    complete: bool = False
    points: dict[str, PointState] = field(default_factory=dict)


_POINT = ("samples", "failed", "error", "tolerance", "profile", "not_profiled")


def restore(document: Mapping[str, Any], fingerprint: str, gpu: str | None, source: Path) -> State:
    """The state inside a study's JSON. Raises where it is of another study, other settings or another GPU."""
    try:
        run = document["run"]
        state = State(
            fingerprint=str(run["fingerprint"]),
            seed=int(run["seed"]),
            gpu=run["gpu"],
            sm=run["sm"],
            driver=run["driver"],
            date=str(run["date"]),
            time_source=str(run["time_source"]),
            rounds=int(run["rounds"]),
            spent_s=float(run["spent_s"]),
            points={str(one["id"]): PointState(**{key: one[key] for key in _POINT}) for one in document["points"]},
        )
        for point in state.points.values():
            point.times()
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DiagnoseError(
            f"{source} is no study's JSON: {type(error).__name__}: {error}", "diagnose ablate STUDY    (starts anew)"
        ) from None
    if state.fingerprint != fingerprint:
        raise DiagnoseError(
            f"{source} is of another study, or its kernels, values or launches have changed since",
            "diagnose ablate STUDY    (starts anew)",
        )
    if gpu is not None and state.gpu is not None and gpu != state.gpu:
        raise DiagnoseError(
            f"{source} was measured on {state.gpu}, and this is {gpu}", "diagnose ablate STUDY    (starts anew)"
        )
    return state
