"""How often each core rule fired on the project's recorded reports: `rules/fired.json`, by `tests/gen_fired.py`."""

from __future__ import annotations

import json
from typing import Any

from diagnose.bundled import bundled

FILE = "fired.json"


def read() -> dict[str, Any]:
    """`reports`, `kernels` and, under `rules`, each core rule's `fired` (kernels; of a rule on programs: reports) and
    `verdicts` (kernels whose verdict it is)."""
    found: dict[str, Any] = json.loads((bundled("rules") / FILE).read_text(encoding="utf-8"))
    return found


def told(counts: dict[str, Any], rule: str, scope: str) -> str:
    """A rule's count as text; a team's rule is not on the corpus: `rules test DIR` tries it."""
    row = counts["rules"].get(rule)
    if row is None:
        return "not counted"
    of = f"{counts['kernels']}" if scope == "kernel" else f"{counts['reports']} runs"
    return f"{row['fired']} of {of}"
