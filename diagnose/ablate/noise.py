"""How far repeats of one point differ, and what can be told apart because of it.

The time of a point is the median over its runs. The noise is the spread of runs of the same point, relative:
sigma = median |ln(t_i / t_j)| over neighbouring runs of every point / (sqrt(2) * 0.6745). Differences of neighbours are
not biased by how few runs a point has (a MAD of three values is), and a drift that is slow beside a round cancels.
The pooled sigma holds for every point; a point whose own runs (four or more) spread wider has its own.
A median of n runs then has the standard error 1.2533 * sigma / sqrt(n): the asymptotic one of a normal sample's median.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

_MAD = 0.6745  # the 75 % quantile of the standard normal: median |x| = 0.6745 sigma
_MEDIAN = 1.2533  # sqrt(pi / 2): the standard error of a median over that of a mean, for a normal sample
_OWN = 4  # runs from which a point's own spread says anything
FLOOR = 0.001  # runs that agree to the last digit do not prove a smaller noise
RESOLUTION_US = 0.05  # result lines print a tenth of a microsecond
CONFIDENCE = 0.95
#: A smaller change is "the same" even where it is certain: the default of `diagnose compare --noise`.
LEAST = 0.03


def quantile(comparisons: int = 1) -> float:
    """The two-sided normal quantile at CONFIDENCE, shared among that many comparisons (Bonferroni)."""
    return statistics.NormalDist().inv_cdf(1 - (1 - CONFIDENCE) / (2 * max(comparisons, 1)))


def differences(samples: Sequence[float]) -> list[float]:
    """|ln| of the ratio of neighbouring runs."""
    return [abs(math.log(a / b)) for a, b in pairwise(samples)]


def _sigma(found: Sequence[float]) -> float:
    return statistics.median(found) / (math.sqrt(2) * _MAD) if found else math.nan


def pooled(samples: Mapping[str, Sequence[float]]) -> float | None:
    """The relative sigma over all points; None where no point ran twice. Never below FLOOR."""
    found = [d for one in samples.values() for d in differences(one)]
    return max(_sigma(found), FLOOR) if found else None


@dataclass(frozen=True)
class Estimate:
    """A median with its standard error on the logarithm (a relative error)."""

    us: float
    error: float
    runs: int

    @property
    def low(self) -> float:
        """The lower end of the interval at CONFIDENCE."""
        return self.us * math.exp(-quantile() * self.error)

    @property
    def high(self) -> float:
        """The upper end."""
        return self.us * math.exp(quantile() * self.error)

    @property
    def width(self) -> float:
        """Half the interval over the median."""
        return math.expm1(quantile() * self.error)

    def narrow(self, width: float) -> bool:
        """Whether half the interval is at most `width` of the median, or more runs cannot narrow it (RESOLUTION_US)."""
        return self.width <= width or self.error <= 1.2 * RESOLUTION_US / self.us


def estimate(samples: Sequence[float], sigma: float | None) -> Estimate | None:
    """The point's time; None without a run, or where nothing tells the noise."""
    if not samples or sigma is None:
        return None
    own = _sigma(differences(samples)) if len(samples) >= _OWN else 0.0
    us = statistics.median(samples)
    error = math.hypot(_MEDIAN * max(own, sigma) / math.sqrt(len(samples)), RESOLUTION_US / us)
    return Estimate(us, error, len(samples))


@dataclass(frozen=True)
class Gain:
    """How many times better, with the interval. `outcome`: improves, worse, same or open (the interval holds both)."""

    factor: float
    low: float
    high: float
    outcome: str


def gain(before: Estimate, after: Estimate, work: float = 1.0, comparisons: int = 1) -> Gain:
    """`before` over `after` in time, times the ratio of their work (after / before).

    Improves: the whole interval is above 1 + LEAST; worse: below 1 / (1 + LEAST); same: between the two.
    """
    factor = before.us / after.us * work
    spread = quantile(comparisons) * math.hypot(before.error, after.error)
    low, high = factor * math.exp(-spread), factor * math.exp(spread)
    outcome = "open"
    if low > 1 + LEAST:
        outcome = "improves"
    elif high < 1 / (1 + LEAST):
        outcome = "worse"
    elif high <= 1 + LEAST and low >= 1 / (1 + LEAST):
        outcome = "same"
    return Gain(factor, low, high, outcome)
