"""Writes docs/ceilings.md: the two articles' figures beside what the shipped measurement of an H200 gave.

python tests/gen_ceilings.py            writes the file
python tests/gen_ceilings.py --check    says whether it is up to date

The figures are in tests/data/article_figures.yaml. What was not measured, or was refused, is said to be so.
"""

from __future__ import annotations

import json
import re
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import yaml

from diagnose.ceilings.record import Record
from diagnose.gpus import catalogue
from diagnose.gpus.catalogue import Product
from diagnose.render.format import quantity

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "docs" / "ceilings.md"
FIGURES = ROOT / "tests" / "data" / "article_figures.yaml"
LADDERS = ROOT / "kernels" / "ladders.json"
GPU = ("NVIDIA H200", 90)
NEAR = 0.10  # within a tenth of the stated value: the articles give two digits, and their GPU is another one
NOT_MEASURED = "not measured"
# The catalogue's name of a type, and the path whose peak a share is of: the best dense one.
_PEAK_TYPES = {
    "bf16": "wgmma:bf16",
    "fp16": "wgmma:fp16",
    "tf32": "wgmma:tf32",
    "int8": "wgmma:int8",
    "e4m3": "fp8-wgmma:fp8",
}


@dataclass(frozen=True)
class Figure:
    """One figure of an article. `stated` is a range in `unit`; `measured` says how it is computed of a measurement."""

    figure: str
    article: str
    heading: str
    gpu: str
    stated: tuple[float, float] | None
    says: str
    unit: str
    measured: Mapping[str, Any] | None
    apart: str


@dataclass(frozen=True)
class Found:
    """What the measurement gives for a figure: a value, or why there is none."""

    value: float | None
    why: str = ""


def content() -> dict[str, Any]:
    """The data file as it is."""
    loaded: dict[str, Any] = yaml.safe_load(FIGURES.read_text("utf-8"))
    return loaded


def figures() -> tuple[Figure, ...]:
    """The figures of the data file, in its order."""
    return tuple(
        Figure(
            figure=entry["figure"],
            article=entry["article"],
            heading=entry["heading"],
            gpu=entry["gpu"],
            stated=(float(entry["stated"][0]), float(entry["stated"][1])) if entry["stated"] else None,
            says=entry.get("says", ""),
            unit=entry["unit"],
            measured=entry["measured"],
            apart=entry["apart"],
        )
        for entry in content()["figures"]
    )


def product() -> Product:
    """The GPU of the page."""
    found = catalogue.product(*GPU)
    assert found is not None
    return found


def keys(figure: Figure) -> tuple[str, ...]:
    """The measured keys that the figure needs."""
    if figure.measured is None or "ladder" in figure.measured:
        return ()
    (needed,) = figure.measured.values()
    return (needed,) if isinstance(needed, str) else tuple(needed)


def _peak(key: str, gpu: Product, clock_hz: float) -> float:
    """Operations a second of the best dense path for the key's type, at this clock."""
    kind = next(part for part in key.split(":") if part in _PEAK_TYPES)
    return catalogue.architecture(gpu.sm).tensor[_PEAK_TYPES[kind]] * gpu.sm_count * clock_hz


def _ladder(name: str, case: str, gpu: Product) -> Found:
    if not LADDERS.is_file():
        return Found(None, NOT_MEASURED)
    rows = json.loads(LADDERS.read_text("utf-8"))["attention"]["rows"]
    rates = [
        float(rate[1]) * 1e12
        for row in rows
        if row["name"] == name and row["of"] == case and (rate := re.search(r"\| ([\d.]+) TFLOP/s \|", row["line"]))
    ]
    return Found(max(rates) / gpu.peaks["bf16"]) if rates else Found(None, NOT_MEASURED)


def found(figure: Figure, record: Record | None, gpu: Product) -> Found:
    """The figure's value in this measurement."""
    if figure.measured is None:
        return Found(None, NOT_MEASURED)
    ((how, _),) = figure.measured.items()
    if how == "ladder":
        name, case = figure.measured["ladder"]
        return _ladder(name, case, gpu)
    known = {one.key: one for one in record.ceilings} if record is not None else {}
    refused = {one.key: one.reason for one in record.refused} if record is not None else {}
    for key in keys(figure):
        if key not in known:
            return Found(None, f"refused: {refused[key]}" if key in refused else NOT_MEASURED)
    values = [known[key].value for key in keys(figure)]

    def of_peak() -> float:
        shares = []
        for key in keys(figure):
            clock = known[key].clock_mhz
            hertz = clock * 1e6 if clock else gpu.boost_hz
            assert hertz is not None
            shares.append(known[key].value / _peak(key, gpu, hertz))
        return sum(shares) / len(shares)

    assert gpu.memory_bytes_per_s is not None
    memory = gpu.memory_bytes_per_s
    ways: Mapping[str, Callable[[], float]] = {
        "value": lambda: values[0],
        "over": lambda: values[0] / values[1],
        "minus": lambda: values[0] - values[1],
        "of_datasheet": lambda: values[0] / memory,
        "of_peak": of_peak,
    }
    return Found(ways[how]())


def agrees(figure: Figure, value: float) -> bool | None:
    """Whether the value is in the stated range or within NEAR of it; None where the article gives no number."""
    if figure.stated is None:
        return None
    low, high = figure.stated
    if figure.unit == "ratio" and low > 1 and value < (1 + low) / 2:
        return False  # of a gain that is itself of NEAR's size, less than half is another finding
    return low * (1 - NEAR) <= value <= high * (1 + NEAR)


def _number(value: float, unit: str) -> str:
    if unit == "share":
        return f"{100 * value:.1f} %"
    if unit == "ratio":
        return f"{value:.2f}×"
    return f"{value:,.1f}".removesuffix(".0") + f" {unit}s"


def _stated(figure: Figure) -> str:
    if figure.stated is None:
        return figure.says
    low, high = figure.stated
    if low == high:
        return _number(low, figure.unit)
    return f"{_number(low, figure.unit)} to {_number(high, figure.unit)}"


def _row(figure: Figure, record: Record | None, gpu: Product) -> str:
    got = found(figure, record, gpu)
    if got.value is None:
        value, verdict = got.why, figure.apart if figure.measured is None else ""
    else:
        value = _number(got.value, figure.unit)
        near = agrees(figure, got.value)
        verdict = "agrees" if near else f"differs: {figure.apart}" if near is False else figure.apart
    cells = (figure.figure, _stated(figure), figure.gpu, value, verdict)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _tables(record: Record | None, gpu: Product) -> list[str]:
    data = content()["articles"]
    lines: list[str] = []
    headings: dict[tuple[str, str], list[Figure]] = {}
    for figure in figures():
        headings.setdefault((figure.article, figure.heading), []).append(figure)
    for (article, heading), group in headings.items():
        lines += [
            f"### {heading}",
            "",
            f"In \u201c{data[article]}\u201d.",
            "",
            "| figure | stated | on | H200 | and |",
            "| --- | --- | --- | --: | --- |",
            *(_row(figure, record, gpu) for figure in group),
            "",
        ]
    return lines


def _errors() -> list[str]:
    lines = ["## Where an article errs", ""]
    for error in content()["errors"]:
        lines.append(f"- **{error['stated']}** ({error['heading']}). {error['right']}. Source: {error['source']}.")
    return [*lines, ""]


def _everything(record: Record) -> list[str]:
    lines = ["## Every ceiling that was taken", ""]
    for head, group in groupby(
        record.ceilings,
        key=lambda one: ":".join(one.key.split(":")[:2]) if one.key.startswith("tensor") else one.key.split(":")[0],
    ):
        lines += [f"### {head}", "", "| key | value | spread | SM clock |", "| --- | --: | --: | --: |"]
        for one in group:
            clock = f"{one.clock_mhz:,.0f} MHz" if one.clock_mhz else ""
            lines.append(f"| `{one.key}` | {quantity(one.value, one.unit)} | {100 * one.spread:.1f} % | {clock} |")
        lines.append("")
    if record.refused:
        lines += ["## Refused", "", "| key | why |", "| --- | --- |"]
        lines += [f"| `{one.key}` | {one.reason.replace('|', '/')} |" for one in record.refused] + [""]
    return lines


def page(record: Record | None) -> str:
    """The page's text for this measurement, or with every value not measured."""
    gpu = product()
    if record is None:
        about = (
            "No measurement of an H200 is shipped yet: `diagnose ceilings --export diagnose/gpus/measured/h200.json` "
            "on one makes it, and this page is then written again."
        )
    else:
        clocks = ", ".join(f"{name.replace('_', ' ')} {value:,.0f} MHz" for name, value in record.clocks_mhz.items())
        about = (
            f"Measured on an {record.gpu}, driver {record.driver}, {record.date}; clocks: {clocks}. "
            f"{len(record.ceilings)} ceilings were taken, {len(record.refused)} refused."
        )
    intro = f"""\
        # Ceilings, and the articles' figures as a test of them

        Written by `tests/gen_ceilings.py` from `tests/data/article_figures.yaml` and the measurement that the project
        ships (`diagnose/gpus/measured`, by `diagnose ceilings --export`); a test keeps it up to date.

        {{about}}

        The programs are in `kernels/ceilings`. Each value is the median of its repeats; the spread is that of their
        middle half. One is refused where the repeats spread too far or the SM clock moved meanwhile, which is read
        inside the kernels (cycles over nanoseconds). Inputs of the Tensor instructions are random: zeros draw less
        power and run faster. A share of a peak is of the peak at the clock that the kernel really ran at.

        "agrees" is within {100 * NEAR:.0f} % of what the article states (of a gain, at least half of it). The
        articles' GPUs are others (an H800 PCIe has fewer watts, a lower clock and other memory), so that a figure may
        differ and both be right; the last column says what is known of why.

        ## The articles' figures
        """
    lines = [
        textwrap.dedent(intro).replace("{about}", about),
        *_tables(record, gpu),
        "Whole operators, tiles and stages beside the articles' own: [kernels/RESULTS.md](../kernels/RESULTS.md).",
        "",
        *_errors(),
        *(_everything(record) if record is not None else []),
    ]
    return "\n".join(lines).rstrip() + "\n"


def stale() -> bool:
    """Whether the file is not what would be written."""
    return not TARGET.is_file() or TARGET.read_text("utf-8") != page(catalogue.shipped(product()))


def main(arguments: Sequence[str]) -> int:
    """Writes or checks the file."""
    if list(arguments) == ["--check"]:
        print("docs/ceilings.md is out of date" if stale() else "docs/ceilings.md is up to date")
        return int(stale())
    TARGET.write_text(page(catalogue.shipped(product())), "utf-8")
    print(f"wrote {TARGET}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
