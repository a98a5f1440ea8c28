"""Tables for people who go on with the numbers in a notebook: what was read, and what was said, as pandas frames.

Not on the way to a report: pandas takes longer to import than a small report takes to diagnose.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from diagnose.model import Profile

if TYPE_CHECKING:
    import pandas


def metrics_table(profile: Profile) -> pandas.DataFrame:
    """Kernels by metrics: one row a result, indexed by (run, index, name), one column an ncu metric.

    Numbers are floats in ncu's base units (`attrs["units"]` names them), texts strings; what was not measured is NaN.
    """
    import numpy as np
    import pandas as pd

    index = pd.MultiIndex.from_tuples(
        [(kernel.run, kernel.index, kernel.name) for kernel in profile.kernels], names=["run", "index", "name"]
    )
    columns = sorted({name for kernel in profile.kernels for name in kernel.metrics})
    rows = [[kernel.metrics.get(name, np.nan) for name in columns] for kernel in profile.kernels]
    table = pd.DataFrame(rows, index=index, columns=columns)
    table.attrs["units"] = {name: unit for kernel in profile.kernels for name, unit in kernel.units.items()}
    return table


def verdicts_table(document: Mapping[str, Any]) -> pandas.DataFrame:
    """One row a kernel of a JSON document: name, time, share of GPU time, verdict, class, stake, gain, confidence."""
    import pandas as pd

    rows = []
    for kernel in document["kernels"]:
        verdict, gain = kernel["verdict"], kernel["verdict"]["speedup"] or {}
        rows.append(
            {
                "name": kernel["name"],
                "duration_us": kernel["duration_us"],
                "time_share": kernel["time_share"],
                "verdict": verdict["rule"],
                "class": verdict["class"],
                "at_stake": verdict["at_stake"],
                "speedup": gain.get("expected"),
                "speedup_low": gain.get("low"),
                "speedup_high": gain.get("high"),
                "confidence": verdict["confidence"],
            }
        )
    table = pd.DataFrame(rows)
    if rows:
        table.index = pd.Index([kernel["id"] for kernel in document["kernels"]], name="id")
    return table
