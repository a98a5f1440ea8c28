"""A kernel's time line (`diagnose.stamps`) in a terminal and as a page: a Gantt chart per role, and a table."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from diagnose import __version__
from diagnose.bundled import bundled
from diagnose.render import format as fmt
from diagnose.stamps import Interval, RoleSummary, Timeline, is_wait, summary

if TYPE_CHECKING:
    from rich.console import Console

COLUMNS = ("role", "does", "share of its time", "times", "median")
WIDTH = 1180
_LEFT, _RIGHT, _TOP, _BAR, _GAP = 110.0, 24.0, 12.0, 34.0, 10.0
_COLORS = 12  # timeline.css
_WINDOW_INTERVALS = 36  # of the busiest role: bars of about 30 pixels, wide enough to read
_WINDOW_AT = 0.5  # the middle: past the fill of the pipeline, before its drain
_BINS = 120  # columns of about 9 pixels
_PER_LETTER = 6.2  # pixels of a letter at 10.5 px


def _length(timeline: Timeline, cycles: float) -> str:
    us = timeline.us(cycles)
    return fmt.duration(us) if us is not None else f"{fmt.count(round(cycles))} cycles"


def rows(timeline: Timeline) -> list[list[str]]:
    """The table of COLUMNS."""
    found = []
    for role in summary(timeline):
        if not role.doings:
            found.append([role.name, "stamped nothing", "", "", ""])
        for doing in role.doings:
            median = f"{fmt.count(round(doing.median))} cycles"
            found.append([role.name, doing.kind, fmt.share(doing.share), fmt.count(doing.count), median])
        if role.other > 0.005:  # less than the table's digits show
            found.append([role.name, "no stamp", fmt.share(role.other), "", ""])
    return found


def _sentence(timeline: Timeline, role: RoleSummary) -> str:
    if not role.doings:
        return f"{role.name} stamped nothing."
    waits = [f"{fmt.share(one.share)} {one.kind}" for one in role.doings if is_wait(one.kind)]
    told = f": {', '.join(waits)}" if waits else ""
    return f"{role.name} waits {fmt.share(role.waiting)} of its {_length(timeline, role.span)}{told}."


def sentences(timeline: Timeline) -> list[str]:
    """What the roles wait for, and how to read it."""
    found = summary(timeline)
    lines = [_sentence(timeline, role) for role in found]
    kinds = {one.kind for role in found for one in role.doings}
    if "wgmma-wait" in kinds:
        lines.append(
            "While a role waits for wgmma the Tensor pipe works for it. A consumer that waits at a barrier has no "
            "data; a producer that does has filled every stage."
        )
    return lines


def notices(timeline: Timeline) -> list[str]:
    """What is missing."""
    full = [role.name for role in timeline.roles if role.full]
    if not full:
        return []
    return [
        f"The buffer of {', '.join(full)} was full: later stamps are missing (DIAGNOSE_TIMELINE_STAMPS sets its size)."
    ]


def method(timeline: Timeline) -> list[str]:
    """How the numbers came about."""
    clock = f"{timeline.ghz:.3f} GHz by the GPU's timer" if timeline.ghz else "not known: the stamps span under 1 µs"
    return [
        f"Stamps of block {timeline.block} by the clock of its SM; clock rate {clock}.",
        "One thread a role stamps; a begin ends what was open, so a role does one thing at a time.",
        "Stamps cost time: compare shares, and times only with those of another stamped run.",
    ]


def render(timeline: Timeline, console: Console) -> None:
    """The table and the sentences."""
    from rich.table import Table

    from diagnose.render.terminal import Page

    page = Page(console)
    where = f"block {timeline.block}" + (f" on SM {timeline.sm}" if timeline.sm is not None else "")
    page.line((timeline.kernel, "bold"), f"  {timeline.device}, {where}")
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for number, name in enumerate(COLUMNS):
        table.add_column(page.text((name, "dim")), justify="left" if number < 2 else "right")
    for row in rows(timeline):
        table.add_row(*(page.text(cell) for cell in row))
    console.print(table)
    for line in sentences(timeline):
        page.line(line)
    for line in notices(timeline):
        page.line((line, "yellow"))


# --- charts: pixels in a view box


def _color(timeline: Timeline, kind: str) -> int:
    return timeline.kinds.index(kind) % _COLORS


def _fixed(value: float) -> str:
    return f"{value:.1f}"


def _ticks(timeline: Timeline, start: float, end: float) -> list[dict[str, Any]]:
    """Round times, or round cycles where the clock is not known."""
    unit = timeline.ghz * 1e3 if timeline.ghz else 1.0  # cycles
    span = (end - start) / unit
    raw = span / 8
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw * 0.999)
    first = math.ceil(start / unit / step)
    places = [n * step for n in range(first, first + 12) if n * step * unit <= end]
    across = (WIDTH - _LEFT - _RIGHT) / (end - start)
    return [
        {
            "x": _fixed(_LEFT + (place * unit - start) * across),
            "text": fmt.duration(place) if timeline.ghz else fmt.count(round(place)),
        }
        for place in places
    ]


def _frame(timeline: Timeline, start: float, end: float) -> dict[str, Any]:
    lanes = [{"name": fmt.shorten(r.name, 16), "y": _TOP + i * (_BAR + _GAP)} for i, r in enumerate(timeline.roles)]
    bottom = _TOP + len(lanes) * (_BAR + _GAP)
    return {
        "width": WIDTH,
        "height": bottom + 24,
        "left": _LEFT,
        "right": WIDTH - _RIGHT,
        "bottom": bottom,
        "bar": _BAR,
        "lanes": lanes,
        "ticks": _ticks(timeline, start, end),
        "bars": [],
        "points": [],
    }


def window(timeline: Timeline) -> tuple[int, int]:
    """The cycles that the detailed chart shows: some intervals of the busiest role around the middle."""
    busiest = max(timeline.roles, key=lambda role: len(role.intervals)).intervals
    if not busiest:
        return 0, 1
    first = max(0, min(int(len(busiest) * _WINDOW_AT), len(busiest) - _WINDOW_INTERVALS))
    last = min(first + _WINDOW_INTERVALS, len(busiest)) - 1
    return busiest[first].start, max(busiest[last].end, busiest[first].start + 1)


def detail(timeline: Timeline, start: int, end: int) -> dict[str, Any]:
    """Every interval between two cycles as a bar."""
    chart = _frame(timeline, start, end)
    across = (WIDTH - _LEFT - _RIGHT) / (end - start)

    def told(role: str, one: Interval) -> str:
        return f"{role}: {one.kind} {one.argument}, {_length(timeline, one.end - one.start)}"

    for lane, role in zip(chart["lanes"], timeline.roles, strict=True):
        for one in role.intervals:
            if one.end <= start or one.start >= end:
                continue
            x = _LEFT + (max(one.start, start) - start) * across
            width = (min(one.end, end) - max(one.start, start)) * across
            fits = width >= _PER_LETTER * (len(one.kind) + 1)
            chart["bars"].append(
                {
                    "x": _fixed(x),
                    "y": lane["y"],
                    "width": _fixed(max(width, 0.5)),
                    "height": _BAR,
                    "middle": _fixed(x + width / 2),
                    "y_text": lane["y"] + _BAR / 2 + 4,
                    "text": one.kind if fits else "",
                    "title": told(role.name, one),
                    "color": _color(timeline, one.kind),
                    "waits": is_wait(one.kind),
                }
            )
        for one in role.points:
            if start <= one.start <= end:
                x = _LEFT + (one.start - start) * across
                chart["points"].append(
                    {"x": _fixed(x), "y": lane["y"], "title": f"{role.name}: {one.kind} {one.argument}"}
                )
    return chart


def overview(timeline: Timeline) -> dict[str, Any]:
    """The whole recording in columns: how much of each the role spent on every kind."""
    end = max(timeline.cycles, 1)
    chart = _frame(timeline, 0, end)
    size = end / _BINS
    pixels = (WIDTH - _LEFT - _RIGHT) / _BINS
    for lane, role in zip(chart["lanes"], timeline.roles, strict=True):
        shares: list[dict[str, float]] = [{} for _ in range(_BINS)]
        for one in role.intervals:
            for number in range(int(one.start / size), min(int(one.end / size), _BINS - 1) + 1):
                part = min(one.end, (number + 1) * size) - max(one.start, number * size)
                shares[number][one.kind] = shares[number].get(one.kind, 0.0) + max(part, 0.0) / size
        for number, column in enumerate(shares):
            y = lane["y"] + _BAR
            for kind in timeline.kinds:
                height = column.get(kind, 0.0) * _BAR
                if height < 0.05:  # less than a tenth of a pixel
                    continue
                y -= height
                chart["bars"].append(
                    {
                        "x": _fixed(_LEFT + number * pixels),
                        "y": _fixed(y),
                        "width": _fixed(pixels),
                        "height": _fixed(height),
                        "text": "",
                        "title": f"{role.name}: {kind} {fmt.share(column[kind])}",
                        "color": _color(timeline, kind),
                        "waits": is_wait(kind),
                    }
                )
    return chart


def render_html(timeline: Timeline) -> str:
    """The whole page."""
    from markupsafe import Markup

    from diagnose.render.html import _environment, _hash

    folder = bundled("reports")
    style = "".join((folder / name).read_text(encoding="utf-8") for name in ("report.css", "timeline.css"))
    start, end = window(timeline)
    used = {one.kind for role in timeline.roles for one in role.intervals}
    header = [("GPU", timeline.device), ("block", str(timeline.block))]
    if timeline.sm is not None:
        header.append(("SM", str(timeline.sm)))
    if timeline.ghz:
        header.append(("clock", f"{timeline.ghz:.3f} GHz"))
    return (
        _environment(folder)
        .get_template("timeline.html.j2")
        .render(
            style=Markup(style),
            policy=f"default-src 'none'; style-src '{_hash(style)}'; base-uri 'none'; form-action 'none'",
            title=timeline.kernel,
            header=header,
            sentences=sentences(timeline),
            notices=notices(timeline),
            caption=f"{_length(timeline, end - start)} from {_length(timeline, start)} on; bars' titles have lengths.",
            detail=detail(timeline, start, end),
            overview=overview(timeline),
            bin=_length(timeline, max(timeline.cycles, 1) / _BINS),
            legend=[
                {"name": kind, "color": _color(timeline, kind), "waits": is_wait(kind)}
                for kind in timeline.kinds
                if kind in used
            ],
            columns=COLUMNS,
            rows=rows(timeline),
            method=method(timeline),
            version=__version__,
        )
    )
