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


def _line(value: object) -> str:
    return json.dumps(finite(value), separators=(",", ":"), allow_nan=False)


def render(document: view.Document) -> str:
    """The document as JSON Lines; ASCII only, so that no terminal or log mangles a name."""
    head = {key: value for key, value in document.items() if key != "kernels"}
    return "\n".join([_line(head), *(_line(kernel) for kernel in view.objects(document.get("kernels")))]) + "\n"


def render_json(document: view.Document) -> str:
    """The document as one indented JSON text."""
    return json.dumps(finite(document), indent=1, allow_nan=False) + "\n"
