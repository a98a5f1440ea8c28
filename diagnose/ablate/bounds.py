"""Lower bounds along the curve, without a profiler: a point's useful work over what the GPU sustains.

T >= bytes / HBM rate and T >= operations / rate of the variant's path (`diagnose.limits` says the same of counters).
Rates are the catalogue's, at the boost clock: at a lower clock the true bound is higher. Repeated launches on data
that fits L2 read nothing from HBM, so that such a point has no HBM bound.
"""

from __future__ import annotations

from typing import Any

from diagnose.ablate.plan import Point
from diagnose.ceilings import store
from diagnose.gpus import catalogue


def of(point: Point, gpu: str, sm: int) -> list[dict[str, Any]]:
    """{resource, bound_us, source} a resource; empty where GPU or work is not known."""
    product = catalogue.product(gpu, sm)
    ceilings = catalogue.ceilings(product, store.load(gpu))
    resident = product.l2_bytes if product is not None and product.l2_bytes is not None else 0
    work = point.work()
    wanted = (("hbm", work.get("bytes")), (point.variant.flops_ceiling, work.get("flops")))
    found = []
    for name, amount in wanted:
        ceiling = ceilings.get(name) if name else None
        if ceiling is not None and amount and not (name == "hbm" and amount <= resident):
            us = amount / ceiling.value * 1e6
            found.append({"resource": name, "bound_us": us, "source": ceiling.source})
    return found
