"""What clocks sampled beside an unprofiled run say of a program's kernels: the declared fact `clock_loss`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from diagnose.ceilings import store
from diagnose.collect.clocks import Clocks, loss
from diagnose.facts import architecture_number
from diagnose.gpus import catalogue
from diagnose.model import KernelProfile, Scalar

MOSTLY = 0.5  # of the GPU time: the samples are of the whole run, so they tell of a kernel that takes most of it


def declared(seen: Clocks | None, kernels: Sequence[KernelProfile]) -> dict[str, Mapping[str, Scalar]]:
    """Kernel (full name) -> its `clock_loss`, for the one that takes most of the counted time, if any does."""
    spent: dict[str, float] = {}
    for kernel in kernels:
        if kernel.counted is not None:
            spent[kernel.demangled] = spent.get(kernel.demangled, 0.0) + kernel.counted.total_us
    longest = max(spent, key=lambda name: spent[name], default=None)
    if seen is None or longest is None or spent[longest] < MOSTLY * sum(spent.values()):
        return {}
    kernel = next(one for one in kernels if one.demangled == longest)
    sm, name = architecture_number(kernel), kernel.text("device__attribute_display_name") or ""
    sustained = catalogue.sustained_mhz(catalogue.product(name, sm), store.load(name)) if sm is not None else None
    return {longest: {"clock_loss": loss(seen, sustained)}} if sustained else {}
