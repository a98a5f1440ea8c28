"""Where the marks of an ablation's curve go: pure arithmetic, drawn by `reports/macros/curve.j2`.

Pixels in a view box of WIDTH x HEIGHT. The height is the rate where the work of every point is known, else the time: a
lower bound on the time lies over the curve as a rate, and under it as a time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from diagnose.render import format as fmt
from diagnose.render.view import mapping, objects, text

WIDTH, HEIGHT = 760, 380
_LEFT, _RIGHT, _TOP, _BOTTOM = 84.0, 178.0, 18.0, 46.0
_MARKS = ("circle", "square", "diamond", "triangle")
_SPREAD = 6.0  # values further apart than this factor stand on a logarithmic axis
_HEADROOM = 1.06
_GAP = 13.0  # pixels between two labels
_TICK_GAP = 38.0  # and between two values of the axis


TIME = "us"


def scaled(point: Mapping[str, Any], us: object) -> float | None:
    """What a time is as a height: the point's rate at that time, or the time itself where the point has no rate."""
    time, own, rate = fmt.number(us), fmt.number(point.get("time_us")), fmt.number(point.get("rate"))
    if time is None or time <= 0:
        return None
    return rate * own / time if rate is not None and own is not None else time


def unit(points: Sequence[Mapping[str, Any]]) -> str:
    """The unit of the heights: the rates' where all points have one and the same, else TIME."""
    units = {text(point.get("rate_unit")) if fmt.number(point.get("rate")) is not None else None for point in points}
    return (units.pop() or TIME) if len(units) == 1 else TIME


def _nice(top: float) -> list[float]:
    """Four to six round steps from 0."""
    raw = top / 5
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw * 0.999)
    return [step * i for i in range(int(top / step) + 1)]


class _Frame:
    """The two scales."""

    def __init__(self, places: Sequence[float], top: float, ordinal: bool) -> None:
        self.top = top
        self.log = not ordinal and min(places) > 0 and max(places) / min(places) > _SPREAD
        ends = [self._across(v) for v in (min(places), max(places))]
        margin = (ends[1] - ends[0]) * 0.04 or 1.0
        self.low, self.high = ends[0] - margin, ends[1] + margin

    def _across(self, value: float) -> float:
        return math.log(value) if self.log else value

    def x(self, value: float) -> float:
        """Pixels from the left."""
        return _LEFT + (self._across(value) - self.low) / (self.high - self.low) * (WIDTH - _LEFT - _RIGHT)

    def y(self, height: float) -> float:
        """Pixels from the top."""
        return HEIGHT - _BOTTOM - min(height / self.top, 1.0) * (HEIGHT - _TOP - _BOTTOM)


def _apart(labels: list[dict[str, Any]]) -> None:
    """Moves the labels at the right end so that none covers another."""
    labels.sort(key=lambda one: one["y"])
    for above, below in pairwise(labels):
        below["y"] = max(below["y"], above["y"] + _GAP)
    excess = labels[-1]["y"] - (HEIGHT - _BOTTOM) if labels else 0.0
    if excess > 0:
        for label in labels:
            label["y"] -= excess


def _fixed(value: float) -> str:
    return f"{value:.1f}"


def chart(document: Mapping[str, Any]) -> dict[str, Any] | None:
    """Axes, series, bounds and labels; None where nothing was timed."""
    points = [p for p in objects(document.get("points")) if fmt.number(p.get("time_us")) is not None]
    if not points:
        return None
    study = mapping(document.get("study"))
    axis = mapping(study.get("axis"))
    names = [text(v.get("name")) or "" for v in objects(study.get("variants"))]
    ordinal = not axis

    def place(point: Mapping[str, Any]) -> float:
        value = fmt.number(point.get("value"))
        return float(names.index(str(point.get("variant")))) if ordinal or value is None else value

    kind = unit(points)
    if kind == TIME:
        points = [{**point, "rate": None} for point in points]
    heights = [scaled(p, p.get(key)) or 0.0 for p in points for key in ("low_us", "high_us")]
    tallest = max(heights)
    # Bounds far above the curve would press it flat; they are then left out of the drawing and stand in the table.
    bounds = {p["id"]: _bound(p) for p in points}
    near = [h for h in bounds.values() if h is not None and h[0] <= 2.5 * tallest]
    frame = _Frame([place(p) for p in points], _HEADROOM * max([tallest, *(h for h, _ in near)]), ordinal)
    series: list[dict[str, Any]] = []
    labels: list[dict[str, Any]] = []
    bound_lines: list[dict[str, Any]] = []
    for number, name in enumerate(names):
        own = sorted((p for p in points if p.get("variant") == name), key=place)
        if not own:
            continue
        marks = [_mark(frame, place(p), p) for p in own]
        series.append(
            {
                "name": name,
                "color": number % 8,
                "mark": _MARKS[number % 4],
                "path": " ".join(f"{m['x']},{m['y']}" for m in marks) if len(marks) > 1 else "",
                "points": marks,
            }
        )
        if not ordinal:
            labels.append({"text": fmt.shorten(name, 20), "y": float(marks[-1]["y"]) + 4, "color": number % 8})
        line = [(frame.x(place(p)), frame.y(b[0]), b[1]) for p in own if (b := bounds[p["id"]]) and b[0] <= frame.top]
        coordinates = " ".join(f"{_fixed(x)},{_fixed(y)}" for x, y, _ in line)
        told = line[-1][2].removeprefix("tensor:") if line else ""
        if len(line) > 1 and told not in [one["name"] for one in bound_lines]:
            bound_lines.append({"path": coordinates, "color": number % 8, "name": told})
            labels.append({"text": f"bound: {fmt.shorten(told, 18)}", "y": line[-1][1] + 4, "color": number % 8})
    _apart(labels)
    return {
        "width": WIDTH,
        "height": HEIGHT,
        "left": _LEFT,
        "right": WIDTH - _RIGHT,
        "bottom": HEIGHT - _BOTTOM,
        "x_title": "" if ordinal else text(axis.get("name")) or "",
        "x_ticks": _x_ticks(frame, names, [place(p) for p in points], ordinal),
        "y_ticks": [{"y": _fixed(frame.y(v)), "text": _height(v, kind)} for v in _nice(frame.top) if v <= frame.top],
        "series": series,
        "bounds": bound_lines,
        "labels": [{**one, "x": WIDTH - _RIGHT + 6, "y": _fixed(one["y"])} for one in labels],
        "knees": _knees(document, frame),
    }


def _bound(point: Mapping[str, Any]) -> tuple[float, str] | None:
    """The bound that binds at a point (the longest time), as a height, and its resource."""
    known = [
        (us, text(one.get("resource")) or "")
        for one in objects(point.get("bounds"))
        if (us := fmt.number(one.get("bound_us"))) is not None
    ]
    if not known:
        return None
    us, name = max(known)
    height = scaled(point, us)
    return None if height is None else (height, name)


def _mark(frame: _Frame, place: float, point: Mapping[str, Any]) -> dict[str, str]:
    middle, low, high = (scaled(point, point.get(key)) or 0.0 for key in ("time_us", "high_us", "low_us"))
    profile = mapping(point.get("profile"))
    binding = next(iter(objects(profile.get("limits"))), None)
    # The profile's bound belongs to the profiled duration: its utilization is carried to the time without a profiler.
    used = fmt.number(binding.get("utilization")) if binding else None
    own = fmt.number(point.get("time_us"))
    roof = scaled(point, own * used) if used and own is not None else None
    if roof is not None and roof > frame.top:
        roof = None
    return {
        "x": _fixed(frame.x(place)),
        "y": _fixed(frame.y(middle)),
        "low": _fixed(frame.y(low)),
        "high": _fixed(frame.y(high)),
        "roof": _fixed(frame.y(roof)) if roof is not None else "",
        "title": f"{point.get('id')}: {fmt.duration(point.get('time_us'))}",
    }


def _height(value: float, kind: str) -> str:
    return fmt.duration(value) if kind == TIME else fmt.quantity(value, kind)


def _x_ticks(frame: _Frame, names: Sequence[str], places: Sequence[float], ordinal: bool) -> list[dict[str, str]]:
    if ordinal:
        return [{"x": _fixed(frame.x(float(i))), "text": fmt.shorten(name, 16)} for i, name in enumerate(names)]
    shown: list[float] = []
    for value in sorted(set(places), reverse=True):
        if not shown or frame.x(shown[-1]) - frame.x(value) >= _TICK_GAP:
            shown.append(value)
    return [{"x": _fixed(frame.x(value)), "text": f"{value:g}"} for value in reversed(shown)]


def _knees(document: Mapping[str, Any], frame: _Frame) -> list[dict[str, str]]:
    found = []
    for one in objects(mapping(document.get("analyses")).get("knee")):
        value = fmt.number(mapping(one.get("stays")).get("value"))
        if value is not None:
            found.append({"x": _fixed(frame.x(value)), "text": f"90 % from {value:g}"})
    return list({one["x"]: one for one in found}.values())
