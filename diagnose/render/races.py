"""What `diagnose check-races` found, in a terminal: one line a hazard, its source lines under it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from diagnose.render import format as fmt
from diagnose.render.view import mapping, objects, plural, text, texts

if TYPE_CHECKING:
    from rich.console import Console

_STYLES = {"error": "bold red", "warning": "yellow", "note": "dim"}
_MOST_PLACES = 6  # an unrolled loop gives a race dozens of readers


def _where(place: Mapping[str, Any]) -> str:
    file, line, pc = text(place.get("file")), place.get("line"), text(place.get("pc"))
    if file and line:
        return f"{file.rpartition('/')[2]}:{line}"
    return f"{fmt.shorten(str(place.get('function')), 60)}{f'+{pc}' if pc else ''}"


def headline(hazard: Mapping[str, Any]) -> str:
    """The hazard in one line: `write at race.cu:19, read at race.cu:23 (1,024 hazards), in window_sums_racing(…)`."""
    places = objects(hazard.get("places"))
    count = hazard.get("count")
    race = hazard.get("tool") == "racecheck" and len(places) > 1
    said = str(hazard.get("message"))
    if race:
        shown = list(dict.fromkeys(f"{place.get('access')} at {_where(place)}" for place in places))
        more = f" and {len(shown) - _MOST_PLACES} more" if len(shown) > _MOST_PLACES else ""
        said = f"race: {', '.join(shown[:_MOST_PLACES])}{more}"
    elif places:
        said += f" at {_where(places[0])}"
    if isinstance(count, int) and count > 1:
        said += f" ({fmt.count(count)} {'hazards' if race else 'times'})"
    return said + (f", in {fmt.shorten(str(places[0].get('function')), 80)}" if places else "")


def render(document: Mapping[str, Any], console: Console) -> None:
    """Hazards, then each tool's own summary, then what the tools cannot see."""
    from diagnose.render.terminal import Page

    page = Page(console)
    for hazard in objects(document.get("hazards")):
        severity = str(hazard.get("severity"))
        page.line((severity, _STYLES.get(severity, "")), f" {hazard.get('tool')}: {headline(hazard)}")
        shown: set[tuple[object, object]] = set()
        for place in objects(hazard.get("places")):
            key = (place.get("file"), place.get("line"))
            if text(place.get("source")) and key not in shown and len(shown) < _MOST_PLACES:
                shown.add(key)
                page.line((f"{_where(place)}  ", "dim"), str(place["source"]), indent=6)
        for detail in texts(hazard.get("details"))[:2]:
            page.line((detail, "dim"), indent=6)
    for run in objects(document.get("runs")):
        problem = text(run.get("problem"))
        errors = run.get("errors")
        said = "not known" if errors is None else plural(int(errors), "error")
        if run.get("warnings"):
            said += f", {plural(int(run['warnings']), 'warning')}"
        page.line((str(run.get("tool")), "bold"), f": {said}", (f"; no proof: {problem}" if problem else "", "yellow"))
    sanitizer = mapping(document.get("sanitizer"))
    page.line((f"{text(sanitizer.get('version')) or 'version not known'}, {sanitizer.get('path')}", "dim"))
    for caveat in texts(document.get("caveats")):
        page.line((f"note: {caveat}", "dim"))
