"""The comparison of ranks as a table of plain words: one row a kernel, one column a rank. For all renderers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from diagnose.render import format as fmt
from diagnose.render import view

SHOWN = 12  # rows of a terminal or a comment; the page and the JSON have all
COLUMNS = 8  # ranks side by side; of more, the fastest and the slowest ones are shown


@dataclass(frozen=True)
class Table:
    """`columns` are ranks; a row is a kernel's name, its times, and what they say."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[str, ...], str], ...]
    totals: tuple[str, ...]
    summary: str
    notes: tuple[str, ...]


def _told(row: Mapping[str, Any], labels: list[str]) -> str:
    slowest, ratio, spread = row.get("slowest"), fmt.number(row.get("ratio")), fmt.number(row.get("spread"))
    if not isinstance(slowest, int) or ratio is None or not 0 <= slowest < len(labels):
        return "measured on one rank only"
    if row.get("short"):
        return "too short to compare"
    if not row.get("slower"):
        return f"no difference beyond the spread ({fmt.share(spread)})"
    why = "; ".join(view.texts(row.get("why"))[:2])
    return f"{labels[slowest]} is slower: ×{ratio:.2f}, spread {fmt.share(spread)}" + (f" ({why})" if why else "")


def _chosen(part: Mapping[str, Any], count: int) -> list[int]:
    """The ranks that are shown: all, or the slowest ones, in their order."""
    if count <= COLUMNS:
        return list(range(count))
    totals = [fmt.number(rank.get("common_us")) or 0.0 for rank in view.objects(part.get("ranks"))]
    by_time = sorted(range(count), key=lambda at: totals[at])
    return sorted({*by_time[: COLUMNS // 2], *by_time[-COLUMNS // 2 :]})


def table(document: view.Document) -> Table | None:
    """None where the document holds no or only one rank."""
    part = view.mapping(document.get("ranks"))
    ranks = view.objects(part.get("ranks"))
    if len(ranks) < 2:
        return None
    labels = [fmt.shorten(rank.get("label"), 40) for rank in ranks]
    shown = _chosen(part, len(ranks))
    rows = []
    for row in view.objects(part.get("kernels")):
        times = row.get("us")
        values = [fmt.number(us) for us in times] if isinstance(times, list) and len(times) == len(ranks) else []
        cells = tuple(fmt.duration(values[at]) if values and values[at] is not None else "–" for at in shown)
        launch = view.mapping(row.get("launch"))
        size = f" {fmt.dims(launch.get('grid'))}" if launch else ""
        rows.append((fmt.shorten(row.get("name"), 60) + size, cells, _told(row, labels)))
    totals = [fmt.number(rank.get("common_us")) for rank in ranks]
    notes = []
    if len(shown) < len(ranks):
        notes.append(f"{len(ranks) - len(shown)} ranks between these are not shown; the JSON has all")
    only = view.objects(part.get("only"))
    for entry in only[:3]:
        where = ", ".join(view.texts(entry.get("on"))[:6])
        notes.append(f"{fmt.shorten(entry.get('name'), 60)} in this configuration was launched on {where} only")
    if len(only) > 3:
        notes.append(f"and {len(only) - 3} more kernels that not every rank launched")
    return Table(
        columns=tuple(labels[at] for at in shown),
        rows=tuple(rows),
        totals=tuple(fmt.duration(totals[at]) if totals[at] is not None else "–" for at in shown),
        summary=_summary(part, labels),
        notes=tuple(notes),
    )


def _summary(part: Mapping[str, Any], labels: list[str]) -> str:
    common, slowest, ratio = part.get("common_kernels"), part.get("slowest"), fmt.number(part.get("ratio"))
    spread = fmt.share(fmt.number(part.get("spread")))
    if not common or not isinstance(slowest, int) or ratio is None or not 0 <= slowest < len(labels):
        return "No kernel was measured on every rank in the same launch configuration."
    kernels = view.plural(int(common), "kernel")
    host = view.text(view.objects(part.get("ranks"))[slowest].get("host"))
    named = labels[slowest] + (f" on {fmt.shorten(host, 60)}" if host else "")
    if part.get("slower"):
        return f"{named} takes ×{ratio:.2f} of the others' time for the same {kernels} (spread {spread})."
    return f"No rank is slower beyond the spread ({spread}) over the {kernels} that all have in common."
