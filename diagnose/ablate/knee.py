"""What a curve over sizes shows: the knee, the waves, and where two curves cross.

Every point is drawn 2,000 times from the logarithm's normal distribution with its standard error (`noise`), and the
feature is read off each drawn curve: the interval holds the middle 95 % of what was read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from diagnose.ablate.noise import Estimate

DRAWS = 2000
SEED = 20250  # the same data give the same interval
OF_PLATEAU = 0.90  # the definition: 90 % of the plateau
_FLAT = 0.10  # a last step that still gains more than this has no plateau behind it
_FULL_WAVE = 0.90  # of the last wave's places in use
_GOOD = 0.95  # of the best rate


@dataclass(frozen=True)
class Curve:
    """One variant over the axis: `values` ascending, `rates` (anything of which more is better) and relative errors."""

    name: str
    values: tuple[int, ...]
    rates: tuple[float, ...]
    errors: tuple[float, ...]


def curve(name: str, points: Mapping[int, tuple[Estimate, float]]) -> Curve:
    """A curve out of estimates and the work of each point (1 where only the time counts)."""
    ordered = sorted(points)
    return Curve(
        name,
        tuple(ordered),
        tuple(points[value][1] / points[value][0].us for value in ordered),
        tuple(points[value][0].error for value in ordered),
    )


def _drawn(one: Curve, generator: np.random.Generator) -> np.ndarray[Any, np.dtype[np.float64]]:
    """DRAWS x points."""
    noise = generator.standard_normal((DRAWS, len(one.values))) * np.array(one.errors)
    return np.asarray(np.array(one.rates) * np.exp(noise), dtype=np.float64)


def _interval(found: Sequence[float | None]) -> dict[str, float | None]:
    """The middle 95 % of what was found, and the share of draws in which anything was."""
    known = sorted(value for value in found if value is not None)
    if not known:
        return {"low": None, "high": None, "found_in": 0.0}
    return {
        "low": known[int(0.025 * (len(known) - 1))],
        "high": known[math.ceil(0.975 * (len(known) - 1))],
        "found_in": len(known) / len(found),
    }


def _plateau(rates: Sequence[float]) -> float:
    """The median of the best third of the points, two at least: one lucky point is no plateau."""
    count = max(2, len(rates) // 3)
    return float(np.median(np.sort(np.asarray(rates))[-count:]))


def _first(values: Sequence[int], rates: Sequence[float], stays: bool) -> int | None:
    """The first value with OF_PLATEAU of the plateau; with `stays` all later ones have it too."""
    enough = np.asarray(rates) >= OF_PLATEAU * _plateau(rates)
    if not stays:
        return values[int(np.argmax(enough))] if enough.any() else None
    below = np.flatnonzero(~enough)
    first = int(below[-1]) + 1 if below.size else 0
    return values[first] if first < len(values) else None


def knee(one: Curve) -> dict[str, Any]:
    """Where the curve reaches OF_PLATEAU of its plateau, and from where it stays above, each with its interval.

    `plateau` is None where the last value still gains more than 10 % over the one before: the curve has not ended.
    """
    flat = one.rates[-1] <= one.rates[-2] * (1 + _FLAT)
    draws = _drawn(one, np.random.default_rng(SEED))
    found: dict[str, Any] = {"variant": one.name, "plateau": _plateau(one.rates) if flat else None, "flat": flat}
    for key, stays in (("reaches", False), ("stays", True)):
        value = _first(one.values, one.rates, stays) if flat else None
        drawn = [_first(one.values, row, stays) for row in draws] if flat else []
        found[key] = {"value": value, **_interval(drawn)}
    return found


def waves(one: Curve, blocks: Callable[[int], float], sms: int) -> dict[str, Any]:
    """The saw-tooth of whole waves: blocks over SMs at each value, what it predicts, and the good sizes.

    With one block an SM, w waves take ceil(w) turns: the predicted share of the rate is w / ceil(w). `correlation` is
    Pearson's of that share with the measured rates over their running best; None where one of them does not vary.
    A good size fills its last wave to 90 % or more and reaches 95 % of the best rate so far.
    """
    counts = [blocks(value) / sms for value in one.values]
    predicted = [count / math.ceil(count) for count in counts]
    best = np.maximum.accumulate(np.array(one.rates))
    relative = np.array(one.rates) / best
    varies = np.std(relative) > 0 and np.std(predicted) > 0
    steps = [
        {
            "value": value,
            "waves": count,
            "predicted": share,
            "measured": float(measured),
            "good": share >= _FULL_WAVE and float(measured) >= _GOOD,
        }
        for value, count, share, measured in zip(one.values, counts, predicted, relative, strict=True)
    ]
    return {
        "variant": one.name,
        "sms": sms,
        "steps": steps,
        "correlation": float(np.corrcoef(relative, predicted)[0, 1]) if varies else None,
        "good": [step["value"] for step in steps if step["good"]],
    }


def _crossing(values: Sequence[int], ratio: Sequence[float]) -> float | None:
    """The last value at which ln ratio turns from below 0 to above, between points by the logarithm of the value."""
    for i in range(len(values) - 2, -1, -1):
        if ratio[i] < 0 <= ratio[i + 1]:
            share = -ratio[i] / (ratio[i + 1] - ratio[i])
            low, high = math.log(values[i]), math.log(values[i + 1])
            return math.exp(low + share * (high - low))
    return None


def crossover(base: Curve, other: Curve) -> dict[str, Any]:
    """Where `other` becomes better than `base` and stays so, over the values that both have (which must be above 0).

    `from` None: it never turns in this range; `always` says which is better at the last value then.
    """
    shared = [value for value in base.values if value in other.values and value > 0]
    rows = [[one.values.index(value) for value in shared] for one in (base, other)]

    def ratios(a: Sequence[float], b: Sequence[float]) -> list[float]:
        return [math.log(b[j] / a[i]) for i, j in zip(*rows, strict=True)]

    generator = np.random.default_rng(SEED)
    drawn = [
        _crossing(shared, ratios(a.tolist(), b.tolist()))
        for a, b in zip(_drawn(base, generator), _drawn(other, generator), strict=True)
    ]
    measured = ratios(base.rates, other.rates)
    at = _crossing(shared, measured)
    return {
        "base": base.name,
        "other": other.name,
        "from": at,
        **_interval(drawn),
        "always": None if at is not None or not measured else (other.name if measured[-1] >= 0 else base.name),
    }
