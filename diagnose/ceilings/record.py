"""What one measurement of a GPU's ceilings holds, and its form in a file.

The file is JSON, the same where `diagnose ceilings` stores it, where `--export` writes it (without the GPU's UUID) and
where the project ships it (`diagnose/gpus/measured/`): {gpu, uuid, arch, driver, clocks_mhz, date,
ceilings: [{key, value, unit, repeats, spread, clock_mhz}], refused: [{key, reason}]}.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from diagnose.errors import DiagnoseError
from diagnose.model import Ceiling

KEY = re.compile(r"[a-z0-9]+([:.-][A-Za-z0-9]+)*")
LONGEST_KEY = 120
_LARGEST_FILE = 4 << 20  # bytes; a measurement of 300 ceilings takes 50 kB
_PATHS = {
    ("wgmma", "fp8"): "fp8-wgmma",
    ("mma", "fp8"): "fp8-mma",
    ("mma", "fp64"): "fp64-mma",
    ("mma", "int8"): "int-mma",
}
_TYPES = {"e4m3": "fp8"}  # the catalogue's names, which do not tell e4m3 from e5m2


@dataclass(frozen=True)
class Measured:
    """One ceiling. `spread`: of the middle half of the repeats about the median; `clock_mhz`: the SM clock seen."""

    key: str
    value: float
    unit: str
    repeats: int
    spread: float
    clock_mhz: float | None


@dataclass(frozen=True)
class Refused:
    """A ceiling that was not taken, and why."""

    key: str
    reason: str


@dataclass(frozen=True)
class Record:
    """The ceilings of one GPU, measured on one day (`date`, ISO)."""

    gpu: str
    uuid: str | None
    arch: str
    driver: str
    clocks_mhz: Mapping[str, float]
    date: str
    ceilings: tuple[Measured, ...]
    refused: tuple[Refused, ...] = ()


def _number(entry: Mapping[str, Any], name: str) -> float:
    number = entry.get(name)
    if not isinstance(number, int | float) or isinstance(number, bool) or not math.isfinite(number) or number < 0:
        raise ValueError(f"{entry['key']}: {name} {number!r} is not a finite number")
    return float(number)


def measured(entry: Any) -> Measured:
    """One checked entry of a file or of a program's output. Raises ValueError with what is wrong."""
    if not isinstance(entry, dict):
        raise ValueError("is not an object")
    key, unit, repeats = entry.get("key"), entry.get("unit"), entry.get("repeats")
    if not isinstance(key, str) or len(key) > LONGEST_KEY or not KEY.fullmatch(key):
        raise ValueError(f"key {str(key)[:LONGEST_KEY]!r} is not a name such as hbm:read")
    if not isinstance(unit, str) or not re.fullmatch(r"[A-Za-z0-9/]{1,20}", unit):
        raise ValueError(f"{key}: unit {str(unit)[:40]!r} is not a unit")
    if type(repeats) is not int or repeats < 1:
        raise ValueError(f"{key}: repeats {repeats!r} is not a count")
    value, spread = _number(entry, "value"), _number(entry, "spread")
    clock = _number(entry, "clock_mhz") if entry.get("clock_mhz") is not None else None
    if value == 0:
        raise ValueError(f"{key}: value {value!r} is not above 0")
    return Measured(key, value, unit, repeats, spread, clock)


def parse(text: str, source: str) -> Record:
    """The record in a file's text. Raises DiagnoseError that names `source`."""

    def bad(problem: str) -> DiagnoseError:
        return DiagnoseError(f"{source}: {problem}", "diagnose ceilings    (measures again and replaces the file)")

    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise bad(f"is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise bad("holds no object")
    for name in ("gpu", "arch", "driver", "date"):
        if not isinstance(content.get(name), str):
            raise bad(f"{name} {content.get(name)!r} is not a text")
    clocks, entries, refused = content.get("clocks_mhz", {}), content.get("ceilings"), content.get("refused", [])
    if not isinstance(entries, list) or not isinstance(refused, list) or not isinstance(clocks, dict):
        raise bad("ceilings and refused must be lists, clocks_mhz an object")
    try:
        found = tuple(measured(entry) for entry in entries)
        left_out = tuple(Refused(str(entry["key"]), str(entry["reason"])) for entry in refused)
        seen_clocks = {str(name): float(value) for name, value in clocks.items()}
    except (ValueError, TypeError, KeyError) as error:
        raise bad(f"ceilings: {error}") from None
    uuid = content.get("uuid")
    return Record(
        gpu=content["gpu"],
        uuid=uuid if isinstance(uuid, str) else None,
        arch=content["arch"],
        driver=content["driver"],
        clocks_mhz=seen_clocks,
        date=content["date"],
        ceilings=found,
        refused=left_out,
    )


def read(path: Path) -> Record:
    """The record in the file. Raises DiagnoseError where it cannot be read or is none."""
    try:
        if path.stat().st_size > _LARGEST_FILE:
            raise DiagnoseError(
                f"{path} is larger than any record of ceilings", "diagnose ceilings    (measures again)"
            )
        return parse(path.read_text("utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise DiagnoseError(f"cannot read {path}: {error}", "diagnose ceilings    (measures again)") from None


def dump(record: Record) -> str:
    """The file's text."""
    return json.dumps(asdict(record), indent=1, sort_keys=False) + "\n"


def _resource(key: str) -> str | None:
    """The catalogue's resource that a Tensor measurement counts for: tensor:PATH:TYPE, whatever the shape."""
    parts = key.split(":")
    if parts[0] != "tensor" or len(parts) < 5:
        return None
    path, kind, accumulator = parts[1], _TYPES.get(parts[2], parts[2]), parts[3]
    path = _PATHS.get((path, kind), path)
    if kind == "fp16" and accumulator == "fp16":
        kind = "fp16_fp16"
    return f"tensor:{path}:{kind}"


_OF_SM_CLOCK = ("op/s", "inst/s")
_OF_SM_CLOCK_KEYS = ("smem", "l1")


def ceilings(record: Record, source: str, boost_hz: float | None) -> dict[str, Ceiling]:
    """The record's rates by resource, with `source` (measured or recorded).

    Every measured key is a resource; the best shape of a path and type is its `tensor:PATH:TYPE`. The catalogue states
    rates at the boost clock: one that follows the SM clock and was measured at another is scaled by clock / boost.
    """
    found: dict[str, Ceiling] = {}
    for one in record.ceilings:
        value = one.value
        follows = one.unit in _OF_SM_CLOCK or one.key in _OF_SM_CLOCK_KEYS
        if follows and one.clock_mhz and boost_hz and not one.key.startswith(("atomic", "library")):
            value *= boost_hz / (one.clock_mhz * 1e6)
        # What a library reached is no limit of the hardware, wherever it was measured.
        origin = "library" if one.key.startswith("library:") else source
        found[one.key] = Ceiling(one.key, value, one.unit, origin, record.date)
        resource = _resource(one.key)
        if resource is not None and (resource not in found or found[resource].value < value):
            found[resource] = Ceiling(resource, value, one.unit, source, record.date)
    return found
