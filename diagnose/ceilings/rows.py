"""Ceilings as rows: the recorded and data-sheet ones of known GPUs, the stored ones of measured GPUs."""

from __future__ import annotations

from typing import Any

from diagnose.ceilings import store
from diagnose.ceilings.record import Record
from diagnose.details import rounded
from diagnose.gpus import catalogue


def rows() -> list[dict[str, Any]]:
    """One row a known GPU and resource: what it sustains, and where that number comes from."""
    found = []
    for product in catalogue.products():
        for resource, ceiling in catalogue.ceilings(product, store.of_product(product)).items():
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
                    "date": ceiling.date or product.date,
                }
            )
    return found


def measured_rows(found: Record) -> list[dict[str, Any]]:
    """One row a measured ceiling, as it was measured (not scaled to the boost clock)."""
    return [
        {
            "gpu": found.gpu,
            "arch": found.arch,
            "resource": one.key,
            "value": rounded(one.value),
            "unit": one.unit,
            "source": "measured",
            "date": found.date,
            "repeats": one.repeats,
            "spread": rounded(one.spread),
            "clock_mhz": rounded(one.clock_mhz) if one.clock_mhz is not None else None,
        }
        for one in found.ceilings
    ]
