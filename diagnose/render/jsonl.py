"""JSON Lines: a first line with all but the kernels, then one kernel a line; also the document as one JSON text."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from diagnose.render import view


def finite(value: Any) -> Any:
    """`value` with every non-finite number replaced by null: JSON has no NaN."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value


#: Above so many kernels the JSON is written one kernel a line: indenting takes ten times as long and half the file.
INDENTED = 200
#: Above so many kernels the JSON leaves out what charts are drawn from and keeps the leading limits and near misses:
#: 10,000 kernels stay under 30 MB. JSON Lines and `--facts all` keep everything.
TRIMMED = 2_000
_LEADING = 2
_DRAWN = frozenset(
    {
        "main_loop",
        "operator",
        "staircase",
        "time_model",
        "speed_of_light",
        "roofline",
        "memory",
        "stalls",
        "instruction_mix",
        "occupancy",
        "timeline",
        "hot",
    }
)


def _line(value: object) -> str:
    try:
        return json.dumps(value, separators=(",", ":"), allow_nan=False)
    except (ValueError, TypeError):  # a number that is not finite: rare, and looking for it takes longer than writing
        return json.dumps(finite(value), separators=(",", ":"), allow_nan=False)


def render(document: view.Document) -> str:
    """The document as JSON Lines; ASCII only, so that no terminal or log mangles a name."""
    head = {key: value for key, value in document.items() if key != "kernels"}
    return "\n".join([_line(head), *(_line(kernel) for kernel in view.objects(document.get("kernels")))]) + "\n"


def _trimmed(kernel: Mapping[str, Any]) -> dict[str, Any]:
    found = {key: value for key, value in kernel.items() if key not in _DRAWN}
    for key, most in (("limits", _LEADING), ("rejected", 1)):
        if isinstance(found.get(key), list):
            found[key] = found[key][:most]
    return found


def render_json(document: view.Document) -> str:
    """The document as one JSON text: indented where a person may read it, one kernel a line above INDENTED kernels."""
    kernels = document.get("kernels")
    if not isinstance(kernels, list) or len(kernels) <= INDENTED:
        return json.dumps(finite(document), indent=1, allow_nan=False) + "\n"
    head = {key: value for key, value in document.items() if key != "kernels"}
    rows = view.objects(kernels)
    if len(kernels) > TRIMMED and not any("raw_metrics" in kernel for kernel in rows):
        head["trimmed"] = (
            f"of {len(kernels)} kernels: without what charts are drawn from and the loops, with the {_LEADING} leading "
            "limits and the nearest rejected rule each; --format jsonl or --facts all keeps everything"
        )
        rows = [_trimmed(kernel) for kernel in rows]
    return _line(head)[:-1] + ',"kernels":[\n' + ",\n".join(map(_line, rows)) + "\n]}\n"
