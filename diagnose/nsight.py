"""Results of NVIDIA's nsight-python (PyPI `nsight-python`, `@nsight.analyze.kernel`), diagnosed with their parameters.

Its result is a table of numbers; the counters are in the report that it wrote, and which launch belongs to which
configuration follows from their order, as nsight-python itself counts them: within an annotation (an NVTX range), for
each configuration, for each run. The times of the table have to be those of the report. Nothing of it is imported here.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diagnose.errors import EXIT_NOTHING_MEASURED, DiagnoseError
from diagnose.model import KernelProfile, Profile
from diagnose.summary import Summary

if TYPE_CHECKING:
    import pandas

    from diagnose.api import Options

# Columns of its frame that are no parameter of the decorated function (nsight-python 0.9.4 to 1.1.0).
_OWN = frozenset(
    {
        "Annotation", "AvgValue", "StdDev", "MinValue", "MaxValue", "NumRuns", "CI95_Lower", "CI95_Upper",
        "RelativeStdDevPct", "StableMeasurement", "Metric", "Unit", "Kernel", "GPU", "Host", "ComputeClock",
        "MemoryClock", "Normalized", "NormalizationValue", "Geomean", "Transformed",
    }
)  # fmt: skip
_TIME = "gpu__time_duration.sum"
_OPCODES = "sass__inst_executed_per_opcode_with_modifier_all"
_SAME = 1e-6  # both are the same numbers of one report, one of them as a mean
_LOOKED_AT = 20  # reports in the temporary folder, the newest first


def nsight_metrics(like: Summary | None = None, options: Options | None = None) -> list[str]:
    """The metrics to name in `@nsight.analyze.kernel(metrics=…)`, so that the rules in force have what they need.

    nsight-python collects by default the duration alone, of which nothing can be said. It cannot ask for sections, so
    stalls by address are not among them, and it fails where this ncu or GPU lacks one of the metrics: `like` is
    anything that `diagnose.profile` or `diagnose.read` measured here, and leaves out what is not in it.
    """
    from diagnose import api

    asked = options if options is not None else api.Options()
    wanted = api.live_metrics(api.load_rules(asked))
    if like is None:
        return [*wanted, _OPCODES]
    measured = [set(kernel.metrics) for kernel in like.profile.kernels]
    everywhere = set.intersection(*measured) if measured else set()
    counted = all(kernel.opcodes for kernel in like.profile.kernels)
    return [*(name for name in wanted if name in everywhere), *([_OPCODES] if counted else [])]


def from_nsight(
    result: Any, *, function: Callable[..., Any] | None = None, report: str | Path | None = None,
    options: Options | None = None,
) -> Summary:  # fmt: skip
    """Diagnoses what `@nsight.analyze.kernel` measured.

    `result` is what the decorated function returned, or the decorated function itself after a call. The report is
    `report`, else the last one of `function` (or of `result`, where that is the function), else the newest one in the
    temporary folder that holds the very times of `result`. Raises DiagnoseError where none does.
    """
    from diagnose import api

    decorated = function if function is not None else result if callable(result) else None
    frame = _frame(result)
    chosen = Path(report) if report is not None else _report_of(decorated) if decorated is not None else None
    asked = options if options is not None else api.Options()
    profile, rows = _read(chosen, asked) if frame is None else _matching(chosen, frame, asked)
    document = api.examine(profile, api.load_rules(asked), asked)
    if rows:
        kernels = [{**kernel, "parameters": _plain(row)} for kernel, row in zip(document["kernels"], rows, strict=True)]
        document = {**document, "kernels": kernels}
    return Summary(document, profile, tuple(rows))


def _frame(result: Any) -> pandas.DataFrame | None:
    """The table of a result; None for a decorated function, whose call's result is not here."""
    if hasattr(result, "to_dataframe"):
        found: pandas.DataFrame = result.to_dataframe()
        return found
    if hasattr(result, "columns") and hasattr(result, "iterrows"):
        return result  # type: ignore[no-any-return]
    if result is None:
        raise DiagnoseError(
            "nsight-python returned no result: it profiles another decorated function in this process",
            "call diagnose.from_nsight(result) only where the decorated function returned a result",
        )
    if callable(result):
        return None
    raise DiagnoseError(
        f"{type(result).__name__} is no result of nsight-python",
        "diagnose.from_nsight(decorated_function(…))    (the return value of a function under @nsight.analyze.kernel)",
    )


# --- which report


def _wrapped(function: Any) -> Iterator[Any]:
    """The function and what it wraps, outermost first."""
    for _ in range(16):
        yield function
        if not hasattr(function, "__wrapped__"):
            return
        function = function.__wrapped__


def _prefix(function: Any) -> str | None:
    """`output_prefix` of the profiler that decorates the function: its wrapper closes over it."""
    for one in _wrapped(function):
        for cell in getattr(one, "__closure__", None) or ():
            try:
                prefix = cell.cell_contents.settings.output_prefix
            except (AttributeError, ValueError):  # another variable, or an empty cell
                continue
            if isinstance(prefix, str):
                return prefix
    return None


def _report_of(function: Any) -> Path:
    """The report of the function's last call, named as nsight-python names it."""
    inner = list(_wrapped(function))[-1]
    prefix = _prefix(function)
    # 0.9 counts its runs under another name than 1.0 and later.
    number = getattr(inner, "_nspy_run_id", getattr(inner, "_nspy_ncu_run_id", None))
    if prefix is None or number is None:
        raise DiagnoseError(
            f"{getattr(function, '__name__', function)} is not decorated with @nsight.analyze.kernel",
            "diagnose.from_nsight(result, report='….ncu-rep')",
        )
    if number == 0:
        raise DiagnoseError(
            f"{inner.__name__} was not called yet", f"call {inner.__name__}(…) first, then diagnose.from_nsight"
        )
    return Path(f"{prefix}ncu-output-{inner.__name__}-{number - 1}.ncu-rep")


def _newest() -> list[Path]:
    found = []
    for path in Path(tempfile.gettempdir()).glob("nspy*/ncu-output-*.ncu-rep"):
        try:
            found.append((os.stat(path).st_mtime, path))
        except OSError:
            continue
    return [path for _, path in sorted(found, reverse=True)[:_LOOKED_AT]]


# --- which launch belongs to which configuration


def _read(path: Path | None, options: Options) -> tuple[Profile, list[Mapping[str, Any]]]:
    from diagnose.reader import read_reports

    assert path is not None
    if not path.is_file():
        raise DiagnoseError(
            f"nsight-python's report {path} is not there",
            "diagnose.from_nsight(result, report='….ncu-rep')    (its last line of output names the report)",
        )
    return read_reports([path], source=options.source), []


def _matching(
    report: Path | None, frame: pandas.DataFrame, options: Options
) -> tuple[Profile, list[Mapping[str, Any]]]:
    """The report that holds the numbers of the table, and the parameters of each of its launches."""
    reasons = []
    candidates = [report] if report is not None else _newest()
    for path in candidates:
        profile, _ = _read(path, options)
        try:
            return matched(profile, frame)
        except DiagnoseError as error:
            reasons.append(error.message)
    if report is not None:
        raise DiagnoseError(
            f"{report} does not hold this result: {reasons[0]}", "name the report of this very call (report=…)"
        )
    raise DiagnoseError(
        f"none of {len(candidates)} reports of nsight-python in {tempfile.gettempdir()} holds this result",
        "diagnose.from_nsight(result, report='….ncu-rep')    (or function=DECORATED; output_prefix=… keeps reports)",
        EXIT_NOTHING_MEASURED,
    )


def matched(profile: Profile, frame: pandas.DataFrame) -> tuple[Profile, list[Mapping[str, Any]]]:
    """The results that belong to the table's rows, and for each the parameters of its row and its annotation.

    Raises DiagnoseError where numbers of launches or times disagree.
    """
    if "Annotation" not in frame.columns or "Metric" not in frame.columns:
        raise DiagnoseError("the table has no columns Annotation and Metric", "pass what nsight-python returned")
    known = [metric for metric in frame["Metric"] if metric in profile.kernels[0].metrics]
    metric = _TIME if _TIME in known else known[0] if known else frame["Metric"].iloc[0]
    rows = frame[frame["Metric"] == metric]
    names = [str(name) for name in frame.columns if name not in _OWN]
    kept: dict[int, Mapping[str, Any]] = {}
    annotations = list(dict.fromkeys(rows["Annotation"]))
    for annotation in annotations:
        launches = [kernel for kernel in profile.kernels if annotation in kernel.nvtx]
        own = rows[rows["Annotation"] == annotation]
        told = {"annotation": annotation} if len(annotations) > 1 else {}
        for row, members in _shared_out(launches, own, annotation):
            _check(members, row, metric, annotation)
            for kernel in members:
                kept[kernel.index] = {**told, **{name: row[name] for name in names}}
    chosen = [kernel for kernel in profile.kernels if kernel.index in kept]
    kernels = tuple(replace(kernel, index=place) for place, kernel in enumerate(chosen))
    return replace(profile, kernels=kernels), [kept[kernel.index] for kernel in chosen]


def _shared_out(
    launches: Sequence[KernelProfile], rows: pandas.DataFrame, annotation: str
) -> Iterator[tuple[pandas.Series[Any], Sequence[KernelProfile]]]:
    """Each row with its launches: as many a run everywhere, in the order of the configurations."""
    runs = [int(count) for count in rows["NumRuns"]]
    total = sum(runs)
    if not launches or total == 0 or len(launches) % total:
        raise DiagnoseError(
            f"annotation {annotation!r} has {len(launches)} launches for {total} runs in all",
            "profile again with the same number of kernels a run",
        )
    each, at = len(launches) // total, 0
    for place, count in enumerate(runs):
        yield rows.iloc[place], launches[at : at + count * each]
        at += count * each


def _check(members: Sequence[KernelProfile], row: pandas.Series[Any], metric: str, annotation: str) -> None:
    """Whether the mean of the launches is the row's: with one kernel a run, and where the row was not normalised."""
    values = [value for kernel in members if (value := kernel.number(metric)) is not None]
    # Several kernels a run are combined by a function of the user's, and a normalised row is a ratio.
    if not values or len(members) != int(row["NumRuns"]) or bool(row.get("Normalized", False)):
        return
    mean, said = sum(values) / len(values), float(row["AvgValue"])
    if abs(mean - said) > _SAME * abs(said):
        raise DiagnoseError(
            f"annotation {annotation!r}: {metric} is {mean:g} in the report and {said:g} in the table",
            "pass the report of this very call",
        )


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row's values as JSON has them: numbers and truth as they are, everything else as text."""
    plain: dict[str, Any] = {}
    for name, value in row.items():
        item = value.item() if hasattr(value, "item") and getattr(value, "ndim", None) == 0 else value
        plain[name] = item if isinstance(item, bool | int | float | str) and item == item else str(item)
    return plain
