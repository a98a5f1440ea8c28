"""Budgets: what a team asks of its kernels, checked on a document.

A `[[budget]]` of the configuration names kernels by a shell pattern and asks for a `max_duration`, a
`min_tensor_utilization` or data paths that `must_use` names. What was not measured is neither kept nor broken: a gate
that measured nothing must not pass.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from diagnose.accept import pattern_matches
from diagnose.errors import DiagnoseError
from diagnose.packfile import nearest
from diagnose.render import format as fmt
from diagnose.render.format import number

_KEYS = ("kernel", "max_duration", "min_tensor_utilization", "must_use")
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ns|us|µs|ms|s)\s*")
_US = {"ns": 1e-3, "us": 1.0, "µs": 1.0, "ms": 1e3, "s": 1e6}
#: The path names of the contract (the list "Path names").
PATHS = (
    "mma", "sparse-mma", "fp8-mma", "block-scaled-mma", "int-mma", "fp64-mma", "ldmatrix", "stmatrix", "cp-async",
    "mbarrier", "tma", "tma-multicast", "wgmma", "sparse-wgmma", "fp8-wgmma", "setmaxnreg", "cluster", "dsm",
    "async-fence", "tcgen05", "tmem", "dpx",
)  # fmt: skip
_TENSOR = frozenset(path for path in PATHS if "mma" in path) | {"tcgen05"}


@dataclass(frozen=True)
class Budget:
    """What the kernels of a pattern owe. `max_us` in microseconds, `min_tensor` a share of the Tensor ceiling."""

    kernel: str
    max_us: float | None = None
    min_tensor: float | None = None
    must_use: tuple[str, ...] = ()


# --- reading ---


def _one(place: str, entry: Mapping[str, Any]) -> Budget:
    for key in entry:
        if key not in _KEYS:
            raise DiagnoseError(
                f"{place}: unknown key {key!r}{nearest(str(key), _KEYS)}", f"it takes {', '.join(_KEYS)}"
            )
    kernel = entry.get("kernel")
    if not isinstance(kernel, str) or not kernel:
        raise DiagnoseError(f"{place}: kernel must be a pattern, got {kernel!r}"[:300], 'write kernel = "gemm*"')
    most = least = None
    if (asked := entry.get("max_duration")) is not None:
        match = _DURATION.fullmatch(asked) if isinstance(asked, str) else None
        if match is None or not float(match[1]):
            raise DiagnoseError(
                f"{place}: max_duration must be a time with its unit, got {asked!r}"[:300],
                'write max_duration = "120 us"    (ns, us, ms or s)',
            )
        most = float(match[1]) * _US[match[2]]
    if (asked := entry.get("min_tensor_utilization")) is not None:
        least = number(asked)
        if least is None or not 0 < least <= 1:
            raise DiagnoseError(
                f"{place}: min_tensor_utilization must be a share above 0 and up to 1, got {asked!r}"[:300],
                "write min_tensor_utilization = 0.6",
            )
    paths = [paths] if isinstance(paths := entry.get("must_use", []), str) else paths
    if not isinstance(paths, list) or not all(path in PATHS for path in paths):
        unknown = next((str(p) for p in paths if p not in PATHS), "") if isinstance(paths, list) else str(paths)
        raise DiagnoseError(
            f"{place}: must_use names no path with {unknown[:60]!r}{nearest(unknown, PATHS)}", 'must_use = ["wgmma"]'
        )
    if most is None and least is None and not paths:
        raise DiagnoseError(f"{place} asks for nothing", f"add one of {', '.join(_KEYS[1:])}")
    return Budget(kernel, most, least, tuple(paths))


def read(place: str, value: object) -> tuple[Budget, ...]:
    """The entries of `budget`; raises for one that asks for nothing."""
    if not isinstance(value, list | tuple) or not all(isinstance(entry, Mapping) for entry in value):
        raise DiagnoseError(f"{place}: budget must be a list of tables", 'write [[budget]] with kernel = "…" below it')
    return tuple(_one(f"{place}: budget {position}", entry) for position, entry in enumerate(value, 1))


# --- checking ---


def _code_is_known(kernel: Mapping[str, Any]) -> bool:
    """Whether the report says what executed: only then does a path that is not listed mean that it was not used."""
    return bool(kernel.get("paths") or kernel.get("instruction_mix"))


def _tensor(kernel: Mapping[str, Any]) -> float | None:
    """The share of the Tensor ceiling; 0 where the executed code is known to hold no Tensor instruction."""
    for part in ("limits", "speed_of_light"):
        for row in kernel.get(part) or ():
            if row.get("resource") == "tensor" and (found := number(row.get("utilization"))) is not None:
                return found
    return 0.0 if _code_is_known(kernel) and not _TENSOR & set(kernel.get("paths") or ()) else None


def _rows(budget: Budget, kernel: Mapping[str, Any]) -> list[dict[str, Any]]:
    about = {"kernel": kernel.get("name"), "id": kernel.get("id"), "pattern": budget.kernel}
    rows: list[dict[str, Any]] = []

    def add(what: str, asked: Any, found: Any, kept: bool | None, unit: str) -> None:
        rows.append({**about, "budget": what, "asked": asked, "found": found, "unit": unit, "kept": kept})

    if budget.max_us is not None:
        us = number(kernel.get("duration_us"))
        add("max_duration", budget.max_us, us, None if us is None else us <= budget.max_us, "us")
    if budget.min_tensor is not None:
        used = _tensor(kernel)
        add(
            "min_tensor_utilization",
            budget.min_tensor,
            used,
            None if used is None else used >= budget.min_tensor,
            "share",
        )
    for path in budget.must_use:
        there = path in (kernel.get("paths") or ())
        add("must_use", path, there if _code_is_known(kernel) else None, there if _code_is_known(kernel) else None, "")
    return rows


def check(document: Mapping[str, Any], budgets: Sequence[Budget]) -> list[dict[str, Any]]:
    """A row a budget and kernel; `kept` is None where nothing was measured, also where no kernel fits the pattern."""
    rows: list[dict[str, Any]] = []
    for budget in budgets:
        fitting = [kernel for kernel in document["kernels"] if pattern_matches(budget.kernel, kernel)]
        for kernel in fitting:
            rows += _rows(budget, kernel)
        if not fitting:
            nothing = {"kernel": None, "id": None, "pattern": budget.kernel, "budget": "kernel", "asked": budget.kernel}
            rows.append({**nothing, "found": None, "unit": "", "kept": None})
    return rows


def told(row: Mapping[str, Any]) -> str:
    """A row as a sentence."""
    if row["budget"] == "kernel":
        return f"no profiled kernel is {row['pattern']}"
    name, what = row["kernel"], row["budget"]
    if what == "must_use":
        if row["kept"] is None:
            return f"{name}: whether it uses {row['asked']} was not measured (ncu --section InstructionStats)"
        return f"{name} {'uses' if row['kept'] else 'does not use'} {row['asked']}"
    sign = "at most" if what == "max_duration" else "at least"
    asked, found = (fmt.quantity(row[key], row["unit"]) for key in ("asked", "found"))
    return f"{name}: {what} asks for {sign} {asked}, it is {found}"
