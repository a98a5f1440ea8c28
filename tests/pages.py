"""Documents of recorded kernels for tests and benchmarks of the HTML: as many as wanted, each with its own name."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache
from typing import Any

import recorded
from diagnose import api
from diagnose.model import Profile

Document = dict[str, Any]
_ONLY_THE_LONGEST = 64  # as report.PAGE_KERNELS: of more no page holds code and raw metrics


@cache
def whole() -> Document:
    """Every recorded kernel in one document, with what only the page shows."""
    kernels: list[Any] = []
    profiles = [recorded.read(recorded.report_of(name)) for name in recorded.names()]
    for profile in profiles:
        kernels += [replace(kernel, run=0, index=len(kernels) + at) for at, kernel in enumerate(profile.kernels)]
    merged = Profile(profiles[0].runs[:1], tuple(kernels))
    return api.examine(merged, api.load_rules(api.Options()), api.Options(page=True))


def many(count: int) -> Document:
    """`count` kernels: the recorded ones over and over, with a number in the name and times of their own."""
    source = whole()
    chance = random.Random(1)
    # Launches that the report could not time are few; here every kernel has a time, so that sorting can be checked.
    base = [kernel for kernel in source["kernels"] if kernel["duration_us"]]
    kernels = []
    for position in range(count):
        kernel = dict(base[position % len(base)])
        if position >= _ONLY_THE_LONGEST:
            kernel.pop("code", None)
            kernel.pop("raw_metrics", None)
        number = f"{position:012x}"
        kernels.append(
            {
                **kernel,
                "id": number,
                "group": number,
                "index": position,
                "name": f"{kernel['name']}_{position}",
                "demangled": f"{kernel['demangled']} [{position}]",
                "duration_us": round(kernel["duration_us"] * (1 + chance.random()), 3),
            }
        )
    total = sum(kernel["duration_us"] for kernel in kernels)
    for kernel in kernels:
        kernel["time_share"] = float(f"{kernel['duration_us'] / total:.6g}")
    program = {**source["program"], "gpu_time_us": round(total, 3)}
    return {**source, "kernels": kernels, "program": program, "warnings": []}
