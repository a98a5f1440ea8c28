"""Where the marks of the charts go: pure arithmetic, drawn by the macros in `reports/macros/`.

Horizontal positions are per cent of the drawing's width and vertical ones pixels, so a chart fits any width while its text
keeps its size. (A `style` attribute could do the same but is blocked by the report's content security policy.)
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
_NOMINAL_WIDTH = 500.0  # pixels; only to keep labels apart
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


def _overlaps(a: Sequence[float], b: Sequence[float]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def _label_box(x: float, y: float, words: str, anchor: str) -> tuple[float, float, float, float]:
    width = 6.6 * len(words)
    left = x if anchor == "start" else x - width if anchor == "end" else x - width / 2
    return (left, y - 10, left + width, y + 3)


def roofline(data: object) -> dict[str, Any] | None:
    """Everything that the roofline macro draws, or None where there is no point or no roof."""
    source = mapping(data)
    points = [
        (str(item.get("level") or "").lower(), x, y, "issued" if item.get("kind") == "issued" else "useful", item)
        for item in objects(source.get("points"))
        if (x := _positive(item.get("intensity"))) is not None and (y := _positive(item.get("flops_per_s"))) is not None
    ]
    slants = [
        (str(item.get("level") or "").lower(), rate, item)
        for item in objects(source.get("bandwidth_roofs"))
        if (rate := _positive(item.get("bytes_per_s"))) is not None
    ]
    flats = [
        (rate, item) for item in objects(source.get("compute_roofs")) if (rate := _positive(item.get("flops_per_s"))) is not None
    ]
    if not points or not (slants or flats):
        return None
    flats.sort(key=lambda flat: -flat[0])
    slants.sort(key=lambda slant: -slant[1])
    ridges = [flat[0] / slant[1] for flat in flats for slant in slants]
    low_x, high_x = min([p[1] for p in points] + ridges), max([p[1] for p in points] + ridges)
    high_y = max([p[2] for p in points] + [flat[0] for flat in flats])
    if not flats:
        high_y = max(high_y, *(slant[1] * high_x for slant in slants))
    low_y = min([p[2] for p in points] + [flat[0] for flat in flats])
    across = _Scale(math.log10(low_x) - 0.75, math.log10(high_x) + 0.75)
    top = math.log10(high_y) + 0.28
    upward = _Scale(min(math.log10(low_y) - 0.8, top - 2.5), top)

    def left(value: float) -> float:
        return across(value)

    def height(value: float) -> float:
        return _BOTTOM - (_BOTTOM - _TOP) * upward(value)

    taken: list[tuple[float, float, float, float]] = []
    bound_y, bound_x = 10**upward.low, 10**across.low
    drawn_slants = []
    peak = flats[0][0] if flats else 10**upward.high
    for position, (level, rate, item) in enumerate(slants):
        start = max(bound_x, bound_y / rate)
        end = min(peak / rate, 10**across.high)
        if end <= start:
            continue
        along = math.log10(start) + (math.log10(end) - math.log10(start)) * (0.42 + 0.12 * position)
        name = fmt.shorten(item.get("label") or level.upper(), 14)
        at_x, at_y = left(10**along), height(rate * 10**along)
        taken.append(_label_box(at_x * _NOMINAL_WIDTH - 6, at_y - 4, name, "end"))
        drawn_slants.append(
            {
                "level": level if level in LEVELS else "other",
                "x1": pct(left(start)),
                "y1": f"{height(rate * start):.1f}",
                "x2": pct(left(end)),
                "y2": f"{height(rate * end):.1f}",
                "label": name,
                "label_x": pct(at_x),
                "label_y": f"{at_y:.1f}",
                "rate": fmt.quantity(rate, "byte/s"),
                "source": text(item.get("source")) or "source not recorded",
            }
        )
    fastest = slants[0][1] if slants else None
    drawn_flats = []
    above: float | None = None
    for rate, item in flats:
        y = height(rate)
        below = above is not None and y - above < 15
        label = f"{fmt.shorten(item.get('label') or 'compute', 26)} {fmt.quantity(rate, 'flop/s')}"
        label_y = y + 13 if below else y - 5
        taken.append(_label_box(_NOMINAL_WIDTH - 2, label_y, label, "end"))
        drawn_flats.append(
            {
                "x1": pct(left(rate / fastest) if fastest else 0.0),
                "y": f"{y:.1f}",
                "label": label,
                "label_y": f"{label_y:.1f}",
                "name": fmt.shorten(item.get("label") or "compute", 40),
                "rate": fmt.quantity(rate, "flop/s"),
                "source": text(item.get("source")) or "source not recorded",
            }
        )
        above = label_y if below else y
    drawn_ridges = []
    for level, rate, item in slants:
        for flat, roof in flats:
            drawn_ridges.append(
                {
                    "x": pct(left(flat / rate)),
                    "y": f"{height(flat):.1f}",
                    "intensity": fmt.intensity(flat / rate),
                    "label": f"{fmt.shorten(item.get('label') or level.upper(), 20)} meets {fmt.shorten(roof.get('label') or 'compute', 30)}",
                }
            )
    drawn_points, gaps = [], []
    taken += [(left(x) * _NOMINAL_WIDTH - 7, height(y) - 7, left(x) * _NOMINAL_WIDTH + 7, height(y) + 7) for _, x, y, _, _ in points]
    for level, x, y, kind, item in points:
        name = fmt.shorten(item.get("label") or level.upper() or "point", 16)
        words = f"{name} issued" if kind == "issued" else name
        px, py = left(x) * _NOMINAL_WIDTH, height(y)
        choices = [(0, 20, "middle"), (0, -11, "middle"), (10, 4, "start"), (-10, 4, "end"), (8, 18, "start"), (-8, 18, "end"),
                   (8, -9, "start"), (-8, -9, "end"), (0, 33, "middle"), (0, 46, "middle")]  # fmt: skip
        placed = choices[0]
        for dx, dy, anchor in choices:
            box = _label_box(px + dx, py + dy, words, anchor)
            if box[0] < 0 or box[2] > _NOMINAL_WIDTH or box[3] > _BOTTOM or any(_overlaps(box, other) for other in taken):
                continue
            placed = (dx, dy, anchor)
            break
        taken.append(_label_box(px + placed[0], py + placed[1], words, placed[2]))
        roof = min([slant[1] * x for slant in slants if slant[0] == level] + ([peak] if flats else []), default=None)
        drawn_points.append(
            {
                "level": level if level in LEVELS else "other",
                "kind": kind,
                "x": pct(left(x)),
                "y": f"{py:.1f}",
                "label": words,
                "dx": placed[0],
                "dy": placed[1],
                "anchor": placed[2],
                "intensity": fmt.intensity(x),
                "rate": fmt.quantity(y, "flop/s"),
                "of_roof": fmt.share(y / roof) if roof else fmt.NOT_MEASURED,
            }
        )
        if roof and kind == "useful" and roof > y * 1.03:
            gaps.append((roof / y, {"x": pct(left(x)), "y1": f"{height(roof):.1f}", "y2": f"{py - 6:.1f}", "factor": fmt.times(roof / y)}))
    return {
        "height": ROOFLINE_HEIGHT,
        "bottom": f"{_BOTTOM:.1f}",
        "top": f"{_TOP:.1f}",
        "x_ticks": [{"x": pct(left(tick)), "label": fmt.digits(tick, 1)} for tick in across.ticks() if 0.03 < left(tick) < 0.9],
        "y_ticks": [{"y": f"{height(tick):.1f}", "label": fmt.quantity(tick, "flop/s")} for tick in upward.ticks()
                    if _TOP + 8 < height(tick) < _BOTTOM - 4],
        "slants": drawn_slants,
        "flats": drawn_flats,
        "ridges": drawn_ridges,
        "points": drawn_points,
        "gap": min(gaps, key=lambda gap: gap[0])[1] if gaps else None,
        "summary": "; ".join(f"{p['label']} at {p['intensity']} and {p['rate']}, {p['of_roof']} of its roof" for p in drawn_points),
    }  # fmt: skip


def memory(data: object) -> dict[str, Any] | None:
    """The memory picture: levels from the SM outwards, each with its traffic; None where no level was measured."""
    levels: dict[str, Mapping[str, Any]] = {}
    for item in objects(data):
        level = str(item.get("level") or "").lower()
        if any(fmt.number(item.get(key)) is not None for key in ("read_bytes", "write_bytes", "utilization", "hit_rate")):
            levels.setdefault({"dram": "hbm", "smem": "shared"}.get(level, level), item)
    if not any(level in levels for level in ("hbm", "l2", "l1", "shared")):
        return None
    most = max(
        (fmt.number(item.get(key)) or 0.0 for item in levels.values() for key in ("read_bytes", "write_bytes")), default=0.0
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
        values = [fmt.number(value) for value in item.get("values") or []] if isinstance(item.get("values"), list) else []
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
                    f"{piece[0].split(',')[0]},100 {' '.join(piece)} {piece[-1].split(',')[0]},100" for piece in pieces if len(piece) > 1
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
        rows.append({"label": f"{fmt.words(name) if name else 'step'} {where}".strip(), "occupancy": fmt.share(level), "width": pct(level)})
    return rows
