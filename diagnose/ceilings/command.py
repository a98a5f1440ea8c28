"""`diagnose ceilings`: measures where a GPU is, else shows what is known."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from diagnose.ceilings import measure, store
from diagnose.ceilings.rows import measured_rows, rows
from diagnose.collect import host
from diagnose.errors import EXIT_NOTHING_MEASURED, EXIT_USAGE, DiagnoseError
from diagnose.render.format import quantity

Line = tuple[str, str, str, str]


def _known() -> tuple[dict[str, Any], list[Line]]:
    found = rows()
    lines = [(r["gpu"], r["resource"], quantity(r["value"], r["unit"]), f"{r['source']}, {r['date']}") for r in found]
    return {"measured": False, "ceilings": found}, lines


def run(export: Path | None, show: bool, say: Callable[[str], None]) -> tuple[dict[str, Any], list[Line]]:
    """(the JSON, the table's rows). Stores what it measures; `say` gets progress and what was refused."""
    if show or not host.gpus():
        if export is not None:
            raise DiagnoseError(
                f"--export {export} needs a measurement, and " + ("--show makes none" if show else "no GPU is present"),
                "diagnose ceilings --export FILE    (on a machine with a GPU)",
                EXIT_USAGE if show else EXIT_NOTHING_MEASURED,
            )
        return _known()
    found = measure.measure(say)
    path = store.save(found)
    say(f"stored in {path}")
    if export is not None:
        store.export(found, export)
        say(f"wrote {export}")
    for one in found.refused:
        say(f"warning: {one.key} was refused: {one.reason}")
    table = measured_rows(found)
    content = {
        "measured": True,
        "gpu": found.gpu,
        "driver": found.driver,
        "clocks_mhz": dict(found.clocks_mhz),
        "date": found.date,
        "file": str(path),
        "ceilings": table,
        "refused": [{"key": one.key, "reason": one.reason} for one in found.refused],
    }
    lines = [
        (
            r["gpu"],
            r["resource"],
            quantity(r["value"], r["unit"]),
            f"spread {r['spread']:.1%}" + (f", {r['clock_mhz']:.0f} MHz" if r["clock_mhz"] else ""),
        )
        for r in table
    ]
    return content, lines
