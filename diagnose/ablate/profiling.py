"""One point under ncu: the limits, the verdict and the findings of its kernel, as the main job gives them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from diagnose import api
from diagnose.ablate.plan import Point
from diagnose.collect.run import Collected
from diagnose.errors import DiagnoseError
from diagnose.model import Scalar
from diagnose.rules import Pack

FACTS = ("waves", "occupancy_theoretical", "occupancy_achieved", "clock_ghz")


def profile(
    point: Point,
    words: Sequence[str],
    packs: Sequence[Pack],
    ncu: str | None,
    timeout_s: float,
    kernel: str | None,
    progress: Callable[[str], None],
) -> dict[str, Any]:
    """Profiles the point's program and diagnoses its kernel (of several, the one with the most time).

    Raises DiagnoseError where nothing was measured.
    """
    own = point.variant.kernel
    declared: Mapping[str, Scalar] = {f"useful_{name}": amount for name, amount in point.work().items() if amount > 0}
    chosen = f"regex:^{own.function}$" if own is not None else kernel
    options = api.Options(kernel=chosen, all_facts=True, source=False, timeout_s=timeout_s, ncu=ncu)
    with tempfile.TemporaryDirectory(prefix="diagnose-") as folder:
        place = Path(folder)
        # One kernel is asked for: a survey would run each point once more to rank it among others.
        live = api.Live(place / "point.ncu-rep", max_launches=8, survey="none", target_output=place / "said")
        result = api.diagnose_program(words, live, options, progress, packs, dict(declared))
    if isinstance(result, Collected):
        raise KeyboardInterrupt
    kernels = [one for one in result.document["kernels"] if one["duration_us"] is not None]
    if not kernels:
        raise DiagnoseError(f"{point.id}: ncu gave no duration", "diagnose doctor")
    return summary(max(kernels, key=lambda one: float(one["duration_us"])))


def summary(kernel: Mapping[str, Any]) -> dict[str, Any]:
    """What a study keeps of a kernel of the document: enough to draw the bounds and to compare the diagnosis."""
    facts = kernel["facts"]
    return {
        "kernel": kernel["name"],
        "duration_us": kernel["duration_us"],
        "paths": kernel["paths"],
        "verdict": {key: kernel["verdict"][key] for key in ("rule", "class", "title", "speedup")},
        "findings": [
            {"rule": one["rule"], "severity": one["severity"], "speedup": one["speedup"]} for one in kernel["findings"]
        ],
        "limits": [
            {key: one[key] for key in ("resource", "bound_us", "utilization", "ceiling_source")}
            for one in kernel["limits"][:6]
        ],
        "facts": {name: facts[name]["value"] for name in FACTS if name in facts},
    }
