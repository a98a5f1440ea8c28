"""Where the marks of the charts go: pure arithmetic, drawn by the macros in `reports/macros/`.

Horizontal positions are per cent of the drawing's width and vertical ones pixels, so a chart fits any width while its
text keeps its size. (A `style` attribute could do the same but is blocked by the report's content security policy.)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from diagnose.render import format as fmt
from diagnose.render.view import mapping, objects, text

ROOFLINE_HEIGHT = 330
_TOP, _BOTTOM = 16.0, 300.0
_NARROWEST = 366.0  # pixels of the narrowest card: labels that are apart there are apart everywhere
LEVELS = ("hbm", "l2", "l1")
TIMELINE_POINTS = 64


def pct(value: float) -> str:
    """A share of the width, for an SVG attribute."""
    return f"{min(max(value, 0.0), 1.0) * 100:.2f}%"


def bar(value: object, full: float) -> str | None:
    """The width of a bar, or None where its value was not measured."""
    found = fmt.number(value)
    if found is None or full <= 0:
        return None
    return pct(found / full)


def heat(value: object, full: float) -> str:
    """The heat class h0 (cold) to h9 of a value."""
    found = fmt.number(value)
    if found is None or full <= 0:
        return "h0"
    return f"h{min(9, max(0, int(found / full * 9.999)))}"


@dataclass(frozen=True)
class _Scale:
    """log10 of a range onto 0..1."""

    low: float
    high: float

    def __call__(self, value: float) -> float:
        return (math.log10(value) - self.low) / (self.high - self.low)

    def ticks(self) -> list[float]:
        """Powers of ten inside the range, every second one where there are many."""
        first, last = math.ceil(self.low - 1e-9), math.floor(self.high + 1e-9)
        step = 1 if last - first <= 6 else 2
        return [10.0**exponent for exponent in range(first, last + 1, step)]


def _positive(value: object) -> float | None:
    found = fmt.number(value)
    return found if found is not None and found > 0 else None


class _Labels:
    """Keeps texts apart: boxes already taken, on the narrowest drawing."""

    def __init__(self) -> None:
        self.taken: list[tuple[float, float, float, float]] = []

    def mark(self, x: float, y: float) -> None:
        """Reserves the place of a point at `x` (share of the width), `y` (pixels)."""
        px = x * _NARROWEST
        self.taken.append((px - 8, y - 8, px + 8, y + 8))

    def place(self, words: str, choices: Sequence[_Spot], lines: Sequence[float] = ()) -> _Spot:
        """The first of `choices` where `words` collides with nothing and crosses none of the horizontal `lines`,
        else the first inside the frame, else the first of all; its place is then taken."""
        whole = next((spot for spot in choices if self._inside(self._box(spot, words))), choices[0])
        best = next((spot for spot in choices if self._free(self._box(spot, words), lines)), whole)
        self.taken.append(self._box(best, words))
        return best

    @staticmethod
    def _box(spot: _Spot, words: str) -> tuple[float, float, float, float]:
        width = 7.2 * len(words)
        x = spot.x * _NARROWEST + spot.dx
        left = x if spot.anchor == "start" else x - width if spot.anchor == "end" else x - width / 2
        return (left, spot.y + spot.dy - 10, left + width, spot.y + spot.dy + 3)

    @staticmethod
    def _inside(box: tuple[float, float, float, float]) -> bool:
        return box[0] >= 0 and box[2] <= _NARROWEST and box[3] <= _BOTTOM

    def _free(self, box: tuple[float, float, float, float], lines: Sequence[float]) -> bool:
        if not self._inside(box) or any(box[1] < line < box[3] for line in lines):
            return False
        return not any(box[0] < b[2] and b[0] < box[2] and box[1] < b[3] and b[1] < box[3] for b in self.taken)


@dataclass(frozen=True)
class _Spot:
    """Where a label may stand: a point (share of the width, pixels), an offset from it in pixels, and its anchor."""

    x: float
    y: float
    dx: float
    dy: float
    anchor: str

    def attributes(self) -> dict[str, str]:
        """As the macro prints it."""
        return {
            "x": pct(self.x),
            "y": f"{self.y:.1f}",
            "dx": f"{self.dx:g}",
            "dy": f"{self.dy:g}",
            "anchor": self.anchor,
        }


@dataclass(frozen=True)
class _Roof:
    """A roof of the chart: `rate` in byte/s for a slanted one, FLOP/s for a flat one."""

    name: str
    level: str
    rate: float
    source: str


@dataclass(frozen=True)
class _Point:
    """A point of the chart."""

    name: str
    level: str
    kind: str
    intensity: float
    rate: float

    @property
    def label(self) -> str:
        """Its level, and that it counts issued work where it does."""
        return f"{self.name} issued" if self.kind == "issued" else self.name


def _level(item: Mapping[str, Any]) -> str:
    level = str(item.get("level") or "").lower()
    return level if level in LEVELS else "other"


def _roofs(items: object, key: str, name: str) -> list[_Roof]:
    found = []
    for item in objects(items):
        rate = _positive(item.get(key))
        if rate is not None:
            label = text(item.get("label")) or (name or _level(item).upper())
            found.append(_Roof(label, _level(item), rate, text(item.get("source")) or "source not recorded"))
    return sorted(found, key=lambda roof: -roof.rate)


def _points(items: object) -> list[_Point]:
    found = []
    for item in objects(items):
        across, up = _positive(item.get("intensity")), _positive(item.get("flops_per_s"))
        if across is not None and up is not None:
            kind = "issued" if item.get("kind") == "issued" else "useful"
            name = fmt.shorten(text(item.get("label")) or _level(item).upper(), 16)
            found.append(_Point(name, _level(item), kind, across, up))
    return found


class _Roofline:
    """The scales of one roofline chart and what is drawn on them."""

    def __init__(self, points: list[_Point], slants: list[_Roof], flats: list[_Roof]) -> None:
        self.points, self.slants, self.flats = points, slants, flats
        self.labels = _Labels()
        intensities = [point.intensity for point in points] + [f.rate / s.rate for f in flats for s in slants]
        rates = [point.rate for point in points] + [flat.rate for flat in flats]
        highest = max(rates) if flats else max([*rates, *(slant.rate * max(intensities) for slant in slants)])
        top = math.log10(highest) + 0.28
        self.across = _Scale(math.log10(min(intensities)) - 0.75, math.log10(max(intensities)) + 0.75)
        self.upward = _Scale(min(math.log10(min(rates)) - 0.8, top - 2.5), top)
        self.peak = flats[0].rate if flats else 10**self.upward.high
        for tick in self.upward.ticks():
            self.labels.place(fmt.quantity(tick, "flop/s"), [_Spot(0.0, self.height(tick), 0, -3, "start")])
        for point in points:
            self.labels.mark(self.across(point.intensity), self.height(point.rate))

    def height(self, rate: float) -> float:
        """Pixels from the top."""
        return _BOTTOM - (_BOTTOM - _TOP) * self.upward(rate)

    def slanted(self) -> list[dict[str, Any]]:
        """The memory levels' roofs, each from the frame to the highest flat roof."""
        drawn = []
        lines = [self.height(roof.rate) for roof in self.flats]
        for position, roof in enumerate(self.slants):
            start = max(10**self.across.low, 10**self.upward.low / roof.rate)
            end = min(self.peak / roof.rate, 10**self.across.high)
            if end <= start:
                continue
            name = fmt.shorten(roof.name, 14)
            lowest = position == len(self.slants) - 1 and position > 0
            below, above = (7.0, 13.0, "start"), (-6.0, -4.0, "end")
            choices = []
            for dx, dy, anchor in (below, above) if lowest else (above, below):
                for part in (0.42 + 0.12 * position, 0.55, 0.7, 0.3, 0.85):
                    at = start * (end / start) ** part
                    choices.append(_Spot(self.across(at), self.height(roof.rate * at), dx, dy, anchor))
            drawn.append(
                {
                    "level": roof.level,
                    "x1": pct(self.across(start)),
                    "y1": f"{self.height(roof.rate * start):.1f}",
                    "x2": pct(self.across(end)),
                    "y2": f"{self.height(roof.rate * end):.1f}",
                    "label": name,
                    "spot": self.labels.place(name, choices, lines).attributes(),
                    "rate": fmt.quantity(roof.rate, "byte/s"),
                    "source": roof.source,
                }
            )
        return drawn

    def flat(self) -> list[dict[str, Any]]:
        """The compute roofs, each from the fastest level's roof to the right."""
        drawn = []
        lines = [self.height(roof.rate) for roof in self.flats]
        for roof in self.flats:
            y, rate = self.height(roof.rate), fmt.quantity(roof.rate, "flop/s")
            start = self.across(roof.rate / self.slants[0].rate) if self.slants else 0.0
            label = f"{fmt.shorten(roof.name, 26)} {rate}"
            ends = ((1.0, "end"), (start, "start"), (0.75, "end"))
            choices = [_Spot(x, y, 0, dy, anchor) for x, anchor in ends for dy in (-5, 14)]
            drawn.append(
                {
                    "x1": pct(start),
                    "y": f"{y:.1f}",
                    "label": label,
                    "spot": self.labels.place(label, choices, lines).attributes(),
                    "name": fmt.shorten(roof.name, 40),
                    "rate": rate,
                    "source": roof.source,
                }
            )
        return drawn

    def ridges(self) -> list[dict[str, str]]:
        """Where a slanted roof meets a flat one."""
        return [
            {
                "x": pct(self.across(flat.rate / slant.rate)),
                "y": f"{self.height(flat.rate):.1f}",
                "intensity": fmt.intensity(flat.rate / slant.rate),
                "label": f"{fmt.shorten(slant.name, 20)} meets {fmt.shorten(flat.name, 30)}",
            }
            for slant in self.slants
            for flat in self.flats
        ]

    def roof_over(self, point: _Point) -> float | None:
        """The highest rate that the chart allows at the point's intensity and level."""
        found = [slant.rate * point.intensity for slant in self.slants if slant.level == point.level]
        return min([*found, *([self.peak] if self.flats else [])], default=None)

    def dots(self) -> list[dict[str, Any]]:
        """The points; two in one place share a label."""
        groups: list[list[_Point]] = []
        for point in self.points:
            for group in groups:
                apart = abs(self.across(group[0].intensity) - self.across(point.intensity)) * _NARROWEST
                if (
                    group[0].kind == point.kind
                    and apart < 8
                    and abs(self.height(group[0].rate) - self.height(point.rate)) < 8
                ):
                    group.append(point)
                    break
            else:
                groups.append([point])
        spoken = {id(group[0]): ", ".join([*(p.name for p in group[:-1]), group[-1].label]) for group in groups}
        drawn = []
        for point in self.points:
            x, y, roof = self.across(point.intensity), self.height(point.rate), self.roof_over(point)
            words = spoken.get(id(point), "")
            spot = _Spot(x, y, 0, 20, "middle")
            if words:
                spot = self.labels.place(words, [_Spot(x, y, dx, dy, anchor) for dx, dy, anchor in _AROUND])
            drawn.append(
                {
                    "level": point.level,
                    "kind": point.kind,
                    "x": pct(x),
                    "y": f"{y:.1f}",
                    "label": point.label,
                    "drawn": words,
                    "spot": spot.attributes(),
                    "intensity": fmt.intensity(point.intensity),
                    "rate": fmt.quantity(point.rate, "flop/s"),
                    "of_roof": fmt.share(point.rate / roof) if roof else fmt.NOT_MEASURED,
                }
            )
        return drawn

    def gap(self) -> dict[str, str] | None:
        """The line from the useful point nearest to its roof up to that roof."""
        gaps = [
            (roof / point.rate, roof, point)
            for point in self.points
            if point.kind == "useful" and (roof := self.roof_over(point)) is not None and roof > point.rate * 1.03
        ]
        if not gaps:
            return None
        factor, roof, point = min(gaps, key=lambda gap: gap[0])
        ends = {"y1": f"{self.height(roof):.1f}", "y2": f"{self.height(point.rate) - 6:.1f}"}
        return {"x": pct(self.across(point.intensity)), **ends, "factor": fmt.times(factor)}


_AROUND = (
    (0, 20, "middle"), (0, -11, "middle"), (10, 4, "start"), (-10, 4, "end"), (8, 18, "start"), (-8, 18, "end"),
    (8, -9, "start"), (-8, -9, "end"), (0, 33, "middle"), (0, 46, "middle"), (-8, 33, "end"),
)  # fmt: skip


def roofline(data: object) -> dict[str, Any] | None:
    """Everything that the roofline macro draws, or None where there is no point or no roof."""
    source = mapping(data)
    points = _points(source.get("points"))
    slants = _roofs(source.get("bandwidth_roofs"), "bytes_per_s", "")
    flats = _roofs(source.get("compute_roofs"), "flops_per_s", "compute")
    if not points or not (slants or flats):
        return None
    chart = _Roofline(points, slants, flats)
    across, upward = chart.across, chart.upward
    drawn_slants, drawn_flats, dots = chart.slanted(), chart.flat(), chart.dots()
    return {
        "height": ROOFLINE_HEIGHT,
        "bottom": f"{_BOTTOM:.1f}",
        "top": f"{_TOP:.1f}",
        "x_ticks": [
            {"x": pct(across(tick)), "label": fmt.digits(tick, 1)}
            for tick in across.ticks()
            if 0.03 < across(tick) < 0.86
        ],
        "y_ticks": [
            {"y": f"{y:.1f}", "label": fmt.quantity(tick, "flop/s").replace(".00 ", " ").replace(".0 ", " ")}
            for tick in upward.ticks()
            if _TOP + 8 < (y := chart.height(tick)) < _BOTTOM - 4
        ],
        "slants": drawn_slants,
        "flats": drawn_flats,
        "ridges": chart.ridges(),
        "points": dots,
        "gap": chart.gap(),
        "summary": "; ".join(
            f"{p['label']} at {p['intensity']} and {p['rate']}, {p['of_roof']} of its roof" for p in dots
        ),
    }


def journey(before: object, after: object) -> dict[str, Any] | None:
    """One roofline for two measurements: the useful points of each level before and after, joined by an arrow. The
    roofs are those of `after`. None where one side lacks points, or both lack roofs."""
    sides = [mapping(before), mapping(after)]
    points = [[one for one in objects(side.get("points")) if one.get("kind") != "issued"] for side in sides]
    levels = [str(one.get("level")) for one in points[0] if any(one.get("level") == p.get("level") for p in points[1])]
    if not levels:
        return None
    level = "hbm" if "hbm" in levels else levels[0]  # one pair of dots: three would cross each other
    merged = [
        {**next(one for one in part if str(one.get("level")) == level), "label": word, "kind": kind}
        # The shapes of `useful` and `issued` tell the two apart without colour.
        for part, word, kind in zip(points, ("before", "after"), ("issued", "useful"), strict=True)
    ]
    roofs: Mapping[str, Any] = next(
        (side for side in reversed(sides) if side.get("bandwidth_roofs") or side.get("compute_roofs")), {}
    )
    chart = roofline({**roofs, "points": merged})
    if chart is None or len(chart["points"]) != 2:
        return None
    first, last = chart["points"]
    for point, word in zip(chart["points"], ("before", "after"), strict=True):
        point["label"] = word
        point["drawn"] = point["drawn"] and word
    return {
        **chart,
        "gap": None,
        "level": level,
        "arrow": {"x1": first["x"], "y1": first["y"], "x2": last["x"], "y2": last["y"]},
    }


def memory(data: object) -> dict[str, Any] | None:
    """The memory picture: levels from the SM outwards, each with its traffic; None where no level was measured."""
    levels: dict[str, Mapping[str, Any]] = {}
    for item in objects(data):
        level = str(item.get("level") or "").lower()
        if any(
            fmt.number(item.get(key)) is not None for key in ("read_bytes", "write_bytes", "utilization", "hit_rate")
        ):
            levels.setdefault({"dram": "hbm", "smem": "shared"}.get(level, level), item)
    if not any(level in levels for level in ("hbm", "l2", "l1", "shared")):
        return None
    most = max(
        (fmt.number(item.get(key)) or 0.0 for item in levels.values() for key in ("read_bytes", "write_bytes")),
        default=0.0,
    )

    def flow(item: Mapping[str, Any], key: str) -> dict[str, str]:
        moved = fmt.number(item.get(key))
        if moved is None:
            return {"text": fmt.NOT_MEASURED, "width": "1", "kind": "none"}
        width = 1.0 if most <= 0 or moved <= 0 else max(1.0, 10 * (moved / most) ** 0.5)
        return {"text": fmt.quantity(moved, "byte"), "width": f"{width:.1f}", "kind": "zero" if moved == 0 else "flow"}

    def box(level: str, name: str) -> dict[str, Any] | None:
        if level not in levels:
            return None
        item = levels[level]
        return {
            "level": level,
            "name": name,
            "used": fmt.share(item.get("utilization")),
            "width": bar(item.get("utilization"), 1.0),
            "hit": fmt.share(item.get("hit_rate")) if fmt.number(item.get("hit_rate")) is not None else None,
            "read": flow(item, "read_bytes"),
            "write": flow(item, "write_bytes"),
        }

    return {
        "l1": box("l1", "L1"),
        "shared": box("shared", "Shared"),
        "l2": box("l2", "L2"),
        "hbm": box("hbm", "HBM"),
    }


def timeline(data: object) -> list[dict[str, Any]]:
    """Each series as a polyline of at most TIMELINE_POINTS bucket means; a bucket without a sample is a hole."""
    drawn: list[dict[str, Any]] = []
    for item in objects(mapping(data).get("series")):
        values = (
            [fmt.number(value) for value in item.get("values") or []] if isinstance(item.get("values"), list) else []
        )
        if not any(value is not None for value in values):
            continue
        buckets = min(len(values), TIMELINE_POINTS)
        means: list[float | None] = []
        for position in range(buckets):
            part = values[position * len(values) // buckets : (position + 1) * len(values) // buckets]
            known = [value for value in part if value is not None]
            means.append(sum(known) / len(known) if known else None)
        unit = text(item.get("unit")) or ""
        measured = [value for value in means if value is not None]
        ceiling = 100.0 if unit in {"%", "pct"} and max(measured) <= 100 else max(measured)
        ceiling = ceiling if ceiling > 0 else 1.0
        pieces: list[list[str]] = [[]]
        for position, mean in enumerate(means):
            if mean is None:
                pieces.append([])
            else:
                x = position / max(buckets - 1, 1) * 100
                pieces[-1].append(f"{x:.2f},{100 - max(0.0, min(mean / ceiling, 1.0)) * 96:.1f}")
        whole = [value for value in values if value is not None]
        drawn.append(
            {
                "label": text(item.get("label")) or "series without a name",
                "lines": [" ".join(piece) for piece in pieces if len(piece) > 1],
                "dots": [piece[0].split(",") for piece in pieces if len(piece) == 1],
                "areas": [
                    f"{piece[0].split(',')[0]},100 {' '.join(piece)} {piece[-1].split(',')[0]},100"
                    for piece in pieces
                    if len(piece) > 1
                ],
                "values": [fmt.quantity(mean, unit) for mean in means],
                "mean": fmt.quantity(sum(whole) / len(whole), unit),
                "low": fmt.quantity(min(whole), unit),
                "high": fmt.quantity(max(whole), unit),
                "full": fmt.quantity(ceiling, unit),
            }
        )
    return drawn


def staircase(steps: object, unit_of: Mapping[str, str]) -> list[dict[str, Any]]:
    """The occupancy steps, in the document's order, with a bar each."""
    rows = []
    for step in objects(steps):
        level = fmt.number(step.get("occupancy"))
        at = fmt.number(step.get("at"))
        if level is None:
            continue
        name = str(step.get("resource") or "")
        where = fmt.quantity(at, unit_of.get(name, step.get("unit"))) if at is not None else ""
        rows.append(
            {
                "label": f"{fmt.words(name) if name else 'step'} {where}".strip(),
                "occupancy": fmt.share(level),
                "width": pct(level),
            }
        )
    return rows
