"""The recorded and data-sheet ceilings of known GPUs, as rows."""

from __future__ import annotations

from typing import Any

from diagnose.details import rounded
from diagnose.gpus import catalogue


def rows() -> list[dict[str, Any]]:
    """One row a GPU and resource: what it sustains, and where that number comes from."""
    recorded = {(e["product"], e["resource"]): e.get("date") for e in catalogue.load("ceilings")["recorded"]}
    found = []
    for product in catalogue.products():
        for resource, ceiling in catalogue.ceilings(product).items():
            if ceiling is None:
                continue
            found.append(
                {
                    "gpu": product.name,
                    "arch": f"sm_{product.sm}",
                    "resource": resource,
                    "value": rounded(ceiling.value),
                    "unit": ceiling.unit,
                    "source": ceiling.source,
                    "date": recorded.get((product.id, resource)) or product.date,
                }
            )
    return found
