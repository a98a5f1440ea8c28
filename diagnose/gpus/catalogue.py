"""What is known about GPUs: architectures, products and the rates that they sustain, read from the YAML files here.

What no source says is None or absent, and an unknown GPU stays unknown: nothing is guessed from a similar one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from diagnose.ceilings import record
from diagnose.ceilings.record import Record
from diagnose.model import Ceiling

_EMPTY: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True)
class Architecture:
    """An sm_ version: limits of an SM, rates per SM and cycle, data paths. `known` is False for one without an entry.

    `rates` holds lanes or bytes per SM and cycle (`fp32`, `fp64`, `fp16`, `int32`, `sfu`, `lsu`, `l1_bytes`,
    `shared_bytes`, `l2_bytes`), `tensor` operations per SM and cycle by `path:type` (`wgmma:bf16`).
    """

    sm: int
    name: str
    known: bool = False
    max_warps_per_sm: int | None = None
    max_blocks_per_sm: int | None = None
    registers_per_sm: int | None = None
    max_registers_per_thread: int | None = None
    register_unit: int | None = None
    shared_per_sm: int | None = None
    shared_per_block: int | None = None
    shared_reserved_per_block: int | None = None
    shared_unit: int | None = None
    schedulers: int | None = None
    rates: Mapping[str, float | None] = field(default_factory=dict)
    tensor: Mapping[str, float] = field(default_factory=dict)
    paths: frozenset[str] = frozenset()

    def has(self, path: str) -> bool:
        """Whether the data path (a name of the contract) exists on this architecture."""
        return path in self.paths


@dataclass(frozen=True)
class Product:
    """A GPU that can be bought, with its data-sheet rates: dense operations a second in `peaks`, by type."""

    id: str
    name: str
    sm: int
    sm_count: int
    boost_hz: float | None
    memory_bytes_per_s: float | None
    l2_bytes: int | None
    l2_bytes_per_cycle: float | None
    peaks: Mapping[str, float]
    tensor: bool
    source: str
    date: str
    nvlink_bytes_per_s: float | None = None  # all links, both directions together


def load(name: str) -> dict[str, Any]:
    """The content of `NAME.yaml` of this folder."""
    text = Path(__file__).with_name(f"{name}.yaml").read_text(encoding="utf-8")
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    content: dict[str, Any] = yaml.load(text, Loader=loader)
    return content


@cache
def _architectures() -> Mapping[int, Architecture]:
    return {
        entry["sm"]: Architecture(
            sm=entry["sm"],
            name=entry["name"],
            known=True,
            **entry["limits"],
            rates=entry["rates"],
            tensor={key: float(value) for key, value in entry["tensor"].items()},
            paths=frozenset(entry["paths"]),
        )
        for entry in load("architectures")["architectures"]
    }


@cache
def _products() -> tuple[tuple[tuple[re.Pattern[str], ...], Product], ...]:
    found = []
    for entry in load("products")["products"]:
        patterns = tuple(re.compile(pattern, re.IGNORECASE) for pattern in entry["match"])
        product = Product(
            id=entry["id"],
            name=entry["name"],
            sm=entry["sm"],
            sm_count=entry["sm_count"],
            boost_hz=entry["boost_hz"],
            memory_bytes_per_s=entry["memory_bytes_per_s"],
            l2_bytes=entry["l2_bytes"],
            l2_bytes_per_cycle=entry.get("l2_bytes_per_cycle"),
            peaks={key: value for key, value in entry["peaks"].items() if value is not None},
            tensor=entry.get("tensor", True),
            source=entry["source"],
            date=entry["date"],
            nvlink_bytes_per_s=entry.get("nvlink_bytes_per_s"),
        )
        found.append((patterns, product))
    return tuple(found)


def architectures() -> tuple[Architecture, ...]:
    """All known architectures, oldest first."""
    return tuple(_architectures()[sm] for sm in sorted(_architectures()))


def products() -> tuple[Product, ...]:
    """All known products."""
    return tuple(product for _, product in _products())


def architecture(sm: int) -> Architecture:
    """The architecture of compute capability `sm` (90 for 9.0); one with only Nones where it is not in the list."""
    return _architectures().get(sm) or Architecture(sm=sm, name=f"sm_{sm}")


def product(device_name: str, sm: int) -> Product | None:
    """The product that ncu calls `device_name`, or None where it is not in the list."""
    name = device_name.strip()
    for patterns, candidate in _products():
        if candidate.sm == sm and any(pattern.fullmatch(name) for pattern in patterns):
            return candidate
    return None


def sustained_share(resource: str, sm: int | None = None) -> float | None:
    """Part of its peak that a resource sustains (hbm, l2, smem, pipe, issue, tensor:PATH); None for an unknown one."""
    return _share(resource, sm if sm is not None else -1)


def _share(resource: str, sm: int) -> float | None:
    for entry in _shares():
        prefix = entry["resource"]
        if (resource == prefix or resource.startswith(prefix + ":")) and entry.get("sm", sm) == sm:
            return float(entry["share"])
    return None


@cache
def _shares() -> tuple[Mapping[str, Any], ...]:
    """The sustained shares of ceilings.yaml, in order."""
    return tuple(load("ceilings")["shares"])


@cache
def _recorded() -> tuple[Mapping[str, Any], ...]:
    """The recorded ceilings of ceilings.yaml."""
    return tuple(load("ceilings")["recorded"])


def _tensor_peaks(gpu: Product, arch: Architecture) -> dict[str, float]:
    """Peak operations a second by `path:type`: the product's peak for the type, scaled by what the path can of it."""
    best: dict[str, float] = {}
    for key, rate in arch.tensor.items():
        path, kind = key.split(":")
        if not path.startswith("sparse-"):
            best[kind] = max(best.get(kind, 0.0), rate)
    peaks = {}
    for key, rate in arch.tensor.items():
        path, kind = key.split(":")
        peak = gpu.peaks.get("fp64-tensor" if kind == "fp64" else kind)
        if gpu.tensor and peak is not None and kind in best:
            peaks[key] = peak * rate / best[kind]
    return peaks


def _datasheet_rates(gpu: Product, arch: Architecture) -> dict[str, tuple[float | None, str, str]]:
    """Data-sheet rates by resource: (rate, unit, the resource whose sustained share applies)."""

    def chip(per_sm: float | None) -> float | None:
        return per_sm * gpu.sm_count * gpu.boost_hz if per_sm is not None and gpu.boost_hz is not None else None

    def operations(pipe: str, per_lane: int) -> float | None:
        lanes = arch.rates.get(pipe)
        return chip(lanes * per_lane) if lanes is not None else None

    rates: dict[str, tuple[float | None, str, str]] = {
        "hbm": (gpu.memory_bytes_per_s, "byte/s", "hbm"),
        "nvlink": (gpu.nvlink_bytes_per_s / 2 if gpu.nvlink_bytes_per_s else None, "byte/s", "nvlink"),  # one direction
        "l2": (gpu.l2_bytes_per_cycle, "byte/cycle", "l2"),
        "smem": (chip(arch.rates.get("shared_bytes")), "byte/s", "smem"),
        "l1": (chip(arch.rates.get("l1_bytes")), "byte/s", "smem"),
        "fp32": (gpu.peaks.get("fp32"), "op/s", "pipe"),
        "fp64": (gpu.peaks.get("fp64") or operations("fp64", 2), "op/s", "pipe"),
        "fp16": (operations("fp16", 2), "op/s", "pipe"),
        "int": (operations("int32", 1), "op/s", "pipe"),
        "sfu": (operations("sfu", 1), "op/s", "pipe"),
        "lsu": (operations("lsu", 1), "op/s", "pipe"),
        "issue": (chip(arch.schedulers), "inst/s", "issue"),
    }
    for key, peak in _tensor_peaks(gpu, arch).items():
        rates[f"tensor:{key}"] = (peak, "op/s", f"tensor:{key}")
    return rates


# A resource's most in a cycle of an SM: (name of the architecture's rate, operations a lane of it). ncu's percentages
# are of these peaks. Shared memory is not among them: the stream that measures it (99.6 % of the peak) only reads, and
# no mix of reads and writes has been measured, which is what ncu's percentages of it are of.
_PIPE_PEAKS: Mapping[str, tuple[str, int]] = {
    "fp32": ("fp32", 2),
    "fp64": ("fp64", 2),
    "int": ("int32", 1),
    "sfu": ("sfu", 1),
}


def _shares_of(known: Mapping[str, Ceiling], gpu: Product, arch: Architecture) -> dict[str, Ceiling]:
    """`share:RESOURCE`: what part of its peak (per cycle, by the architecture) the resource sustained when measured.

    Of a Tensor path the best type counts: a ceiling that a kernel exceeds is none. L2 has no share here, since its own
    clock is not measured.
    """
    if gpu.boost_hz is None:
        return {}
    cycles = gpu.sm_count * gpu.boost_hz
    best: dict[str, Ceiling] = {}

    def note(name: str, of: Ceiling, per_cycle: float | None) -> None:
        share = min(of.value / (per_cycle * cycles), 1.0) if per_cycle else 0.0
        if share > 0 and (name not in best or best[name].value < share):
            best[name] = Ceiling(name, share, "share", of.source, of.date)

    for name, (rate, operations) in _PIPE_PEAKS.items():
        lanes = arch.rates.get(rate)
        if name in known and lanes is not None:
            note(f"share:{name}", known[name], lanes * operations)
    if "issue" in known:
        note("share:issue", known["issue"], arch.schedulers)
    for key, rate_of in arch.tensor.items():
        path = key.split(":")[0]
        if f"tensor:{key}" in known and not path.startswith("sparse-"):
            note("share:tensor:wgmma" if "wgmma" in path else "share:tensor:mma", known[f"tensor:{key}"], rate_of)
    return best


@cache
def _shipped() -> tuple[Record, ...]:
    """The measurements that the project ships: `measured/*.json`, written by `diagnose ceilings --export`."""
    return tuple(record.read(path) for path in sorted((Path(__file__).parent / "measured").glob("*.json")))


def shipped(gpu: Product) -> Record | None:
    """The shipped measurement of this product, or None."""
    return next((one for one in _shipped() if product(one.gpu, int(one.arch.removeprefix("sm_"))) == gpu), None)


def sustained_mhz(gpu: Product | None, stored: Record | None = None) -> float | None:
    """The highest SM clock that this GPU ran at while its ceilings were measured, in MHz; None where none were."""
    record_ = stored or (shipped(gpu) if gpu is not None else None)
    return record_.clocks_mhz.get("seen_most") if record_ is not None else None


def ceilings(gpu: Product | None, stored: Record | None = None) -> Mapping[str, Ceiling | None]:
    """The rates that this GPU sustains, by resource: `hbm`, `nvlink` (one direction), `l2`, `smem`, `l1`, `fp32`,
    `fp64`, `fp16`, `int`, `sfu`, `lsu`, `issue`, `tensor:PATH:TYPE`, `library:…`, the keys of a measurement and the
    shares of its peak that a resource sustained in it (`share:RESOURCE`). None where nothing is known.

    `stored` is what `diagnose ceilings` measured on a GPU of this name; its values win. Then come the recorded ones
    (ceilings.yaml, then a shipped measurement), then the data sheet times its sustained share. Without a product only
    the stored ones are known.

    Rates are at the boost clock (a kernel at a lower clock has less: scale by its own), `l2` is per L2 cycle.
    """
    measured = (
        record.ceilings(stored, "measured", gpu.boost_hz if gpu is not None else None) if stored is not None else {}
    )
    if gpu is None:
        return dict(measured)
    arch = architecture(gpu.sm)
    measured |= _shares_of(measured, gpu, arch)
    found: dict[str, Ceiling | None] = {}
    for resource, (rate, unit, share_of) in _datasheet_rates(gpu, arch).items():
        share = _share(share_of, gpu.sm)
        found[resource] = None if rate is None or share is None else Ceiling(resource, rate * share, unit, "datasheet")
    if (known := shipped(gpu)) is not None:
        rates = record.ceilings(known, "recorded", gpu.boost_hz)
        found.update({**rates, **_shares_of(rates, gpu, arch)})
    for entry in _recorded():
        if entry["product"] == gpu.id:
            resource = entry["resource"]
            found[resource] = Ceiling(
                resource, float(entry["value"]), entry["unit"], entry["source"], entry.get("date")
            )
    return {**found, **measured}
