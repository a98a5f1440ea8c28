"""The frames for notebooks hold what the profile and the document hold."""

from __future__ import annotations

import math

import recorded
from diagnose import api
from diagnose.tables import metrics_table, verdicts_table


def test_metrics_by_kernel() -> None:
    profile = recorded.read(recorded.report_of("gemm/naive"))
    table = metrics_table(profile)
    kernel = profile.kernels[0]
    assert list(table.index) == [(kernel.run, kernel.index, "gemm_naive")]
    time = "gpu__time_duration.sum"
    assert table[time].iloc[0] == kernel.metrics[time] and table.attrs["units"][time] == kernel.units[time]
    assert len(table.columns) == len(kernel.metrics)


def test_what_was_not_measured_is_nan() -> None:
    profile = recorded.read(recorded.report_of("gemm/naive"))
    kernel = profile.kernels[0]
    bare = recorded.changed(kernel, {"gpu__time_duration.sum": None})
    table = metrics_table(type(profile)(profile.runs, (kernel, bare)))
    assert math.isnan(table["gpu__time_duration.sum"].iloc[1])


def test_verdicts_by_kernel() -> None:
    profile = recorded.read(recorded.report_of("reduction/shuffle"))
    document = api.examine(profile, api.load_rules(api.Options()), api.Options())
    table = verdicts_table(document)
    assert table["verdict"].iloc[0] == "hbm-bandwidth" and table.index[0] == document["kernels"][0]["id"]
    assert verdicts_table({"kernels": []}).empty
