"""Findings on the program as a whole: on the sequence of its launches, not on one of them.

`unfused` (one kernel writes what the next reads) is not decided: byte counts alone do not say whose bytes they are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from diagnose import engine, report
from diagnose.details import Part, rounded
from diagnose.facts import work
from diagnose.facts.context import Context
from diagnose.facts.launch import SHORTEST_KERNEL_US
from diagnose.model import Evidence, Finding, Scalar

RULES = ("many-small-launches", "unfused", "helper-time", "slow-rank")
# What `rules list` says of those that are decided.

RULE_ROWS: Mapping[str, Part] = {
    name: {
        "class": "implementation",
        "status": "preview",
        "article": None,
        "needs": ["gpu__time_duration.sum"],
        "title": title,
        "scope": "program",
    }
    for name, title in (
        ("many-small-launches", "Many small launches in a row"),
        ("helper-time", "Fills, copies and conversions outweigh the work"),
        ("slow-rank", "One rank is slower than the others for the same kernels"),  # see `diagnose.ranks`
    )
}

# Five times the shortest kernel: below it a fifth and more of a launch is start and end.
SMALL_US = 5 * SHORTEST_KERNEL_US
LEAST_LAUNCHES = 5
LEAST_SHARE = 0.10  # the same border as for kernels: less is not worth a change
# Operations a byte below which a kernel only moves data: a fill or copy has none, a conversion one for 2 to 8 bytes.
MOVES_ONLY = 0.6
_HELPER = re.compile(
    r"fill|memset|memcpy|copy|(?:^|[^a-z])cast|convert|zero_|zeros|set_zero|transpose|permute|layout|to_dtype|arange",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class _Launch:
    context: Context
    us: float


def _evidence(fact: str, value: Scalar, unit: str, op: str, threshold: Scalar) -> Evidence:
    return Evidence(fact, value, unit, op, threshold, True)


def _entry(
    rule: str, title: str, shares: tuple[float, float, float], why: str, change: str, expect: tuple[str, str, float],
    evidence: tuple[Evidence, ...], launches: Sequence[_Launch],
) -> Part:  # fmt: skip
    low, expected, high = shares
    fact, op, value = expect
    found = Finding(
        rule=rule,
        klass="implementation",
        severity="warning" if expected >= LEAST_SHARE else "note",
        title=title,
        at_stake=expected,
        speedup=engine.speedup(expected, low, high),
        evidence=evidence,
        where=(),
        why=why,
        change=change,
        expect={"fact": fact, "op": op, "value": value},
    )
    return {**report.finding(found), "launches": [launch.context.kernel.index for launch in launches]}


def _sequences(launches: Sequence[_Launch]) -> list[list[_Launch]]:
    """Launches in a row of one run that are all small."""
    found: list[list[_Launch]] = []
    current: list[_Launch] = []
    last: _Launch | None = None
    for launch in launches:
        if last is not None and last.context.kernel.run != launch.context.kernel.run:
            current = []
        if launch.us < SMALL_US:
            if not current:
                found.append(current)
            current.append(launch)
        else:
            current = []
        last = launch
    return [one for one in found if len(one) >= LEAST_LAUNCHES]


def _small_launches(launches: Sequence[_Launch], total_us: float) -> Part | None:
    small = [launch for sequence in _sequences(launches) for launch in sequence]
    spent = sum(launch.us for launch in small)
    if not small or spent / total_us < LEAST_SHARE:
        return None
    # In one kernel the starts and ends of all but one launch are gone; the gaps between launches, which no report of
    # a serialising profiler shows, come on top.
    saved = sum(min(SHORTEST_KERNEL_US, launch.us) for launch in small) * (1 - 1 / len(small))
    return _entry(
        "many-small-launches",
        f"{len(small)} launches in a row of {spent / len(small):.1f} µs on average",
        (saved / total_us / 2, saved / total_us, spent / total_us),
        "A launch of a few microseconds is mostly start and end, and the gap before the next one adds to it. "
        "The time belongs to the sequence, not to any kernel of it.",
        "Capture the sequence in a CUDA graph, or fuse neighbouring kernels into one.",
        ("small_launch_share", "<", LEAST_SHARE),
        (
            _evidence("small_launch_share", spent / total_us, "share", ">=", LEAST_SHARE),
            _evidence("small_launches_in_a_row", max(map(len, _sequences(launches))), "count", ">=", LEAST_LAUNCHES),
            _evidence("mean_duration_us", spent / len(small), "us", "<", SMALL_US),
        ),
        small,
    )


def _is_helper(context: Context) -> bool:
    """Named like a fill, copy or conversion, and counted as one: it moves bytes and computes next to nothing."""
    kernel = context.kernel
    if not _HELPER.search(kernel.demangled or kernel.name):
        return False
    done = work.operations(context)
    moved = context.value("hbm_bytes")
    return done is not None and bool(moved) and done.total / (moved or 1.0) < MOVES_ONLY and done.tensor == 0


def _helper_time(launches: Sequence[_Launch], total_us: float) -> Part | None:
    helpers = [launch for launch in launches if _is_helper(launch.context)]
    spent = sum(launch.us for launch in helpers)
    if len(helpers) in (0, len(launches)) or spent <= total_us - spent:
        return None
    share = spent / total_us
    return _entry(
        "helper-time",
        f"Fills, copies and conversions take {share:.0%} of the GPU time",
        (0.0, share / 2, share),
        "These launches move or convert data that the other kernels could read and write in that form themselves.",
        "Let the producing or consuming kernel do the conversion or the copy; allocate without filling.",
        ("helper_time_share", "<", 0.5),
        (_evidence("helper_time_share", share, "share", ">", 0.5),),
        helpers,
    )


def examine(contexts: Sequence[Context], covered_share: float | None = None) -> Part:
    """`program` of the document. `covered_share` is the part of the program's GPU time that was profiled, if known."""
    launches = [_Launch(c, us) for c in contexts if (us := c.value("duration_us")) is not None]
    total = sum(launch.us for launch in launches)
    found = [_small_launches(launches, total), _helper_time(launches, total)] if total > 0 else []
    return {
        "findings": sorted((one for one in found if one), key=lambda one: -one["at_stake"]),
        "gpu_time_us": rounded(total) if launches else None,
        "covered_share": covered_share,
    }
