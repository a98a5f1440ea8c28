"""What a survey counted: a program's launches by kernel and launch configuration, and which of them to profile.

Three tools count (`surveying.py` runs them); what they give has one form here. Pure, but for the two readers of files.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from diagnose.collect.clocks import Clocks
from diagnose.collect.names import function_of
from diagnose.model import Counted, KernelProfile, Profile

Triple = tuple[int, int, int]
# Names, grids, blocks: what a launch of one run and a launch of another must share to be taken for the same.
Key = tuple[str, Triple, Triple, int]


@dataclass(frozen=True)
class Configuration:
    """A kernel in one launch configuration, on one device: its launches and their time together, in microseconds.

    `mangled` is the compiler's name ("" where the tool gives none), `shared` the dynamic shared memory of a block in
    bytes, `first` a number that orders first launches, `processes` how many processes launched it.
    """

    name: str
    mangled: str
    grid: Triple
    block: Triple
    shared: int
    launches: int
    total_us: float
    first: float
    device: int | None = None
    processes: int = 1
    graph: bool = False

    @property
    def key(self) -> Key:
        """What identifies the launch configuration in every run of the program."""
        return (self.mangled or self.name, self.grid, self.block, self.shared)


@dataclass(frozen=True)
class Survey:
    """All launches of one run of a program. `complete` is False where it was stopped or records were lost; `clocks` is
    what the GPU's clock and power did meanwhile, where they were sampled long enough. `wrote_bytes` is what the program
    wrote to disks, `output` what it printed, where this run was the program as it is: else None.
    """

    method: str
    configurations: tuple[Configuration, ...] = ()
    seconds: float | None = None
    complete: bool = True
    target_exit: int | None = None
    notes: tuple[str, ...] = ()
    clocks: Clocks | None = None
    wrote_bytes: int | None = None
    output: bytes | None = field(default=None, repr=False)

    @property
    def launches(self) -> int:
        """Launches of all kernels."""
        return sum(one.launches for one in self.configurations)

    @property
    def total_us(self) -> float:
        """GPU time of all launches, in microseconds."""
        return sum(one.total_us for one in self.configurations)


@dataclass(frozen=True)
class Choice:
    """The configurations to profile, longest first, and what is left out of those that the filters admit.

    With `by_name` the first launch of each name is profiled and stands for all configurations of the name.
    """

    chosen: tuple[Configuration, ...]
    left_out: tuple[Configuration, ...]
    not_admitted: tuple[Configuration, ...]
    by_name: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The mangled names, for ncu's filter; empty where one of them is not known."""
        names = tuple(dict.fromkeys(one.mangled for one in self.chosen))
        return names if all(names) else ()


# Ten kernels cost some seconds to profile, so that many are profiled whatever their share: a program of few kernels is
# shown whole.
FEW = 10


def choose(
    configurations: Sequence[Configuration], top: int, coverage: float, admitted: Iterable[bool] | None = None
) -> Choice:
    """Configurations that hold `coverage` of the GPU time that is admitted: as few as can be, at most `top`.

    ncu is told names, so all configurations of a chosen name are profiled: names are chosen, those first that hold the
    most time for each configuration, and a name that does not fit is left for one that does. Before them come the names
    without which the coverage cannot be reached. Where names come in more configurations than may be profiled, one
    launch of each stands for more than they do (batches and sequences of many lengths): then names are chosen so.
    """
    admits = list(admitted) if admitted is not None else [True] * len(configurations)
    those = [one for one, good in zip(configurations, admits, strict=True) if good]
    ranked = sorted(those, key=lambda one: (-one.total_us, one.first))
    total = sum(one.total_us for one in those)
    names: dict[str | int, list[int]] = {}  # places in `ranked`, the longest first
    for place, one in enumerate(ranked):
        names.setdefault(one.mangled or place, []).append(place)
    held_by = {name: sum(ranked[place].total_us for place in places) for name, places in names.items()}

    def needed(name: str | int) -> bool:
        return held_by[name] > (1 - coverage) * total

    def order(name: str | int) -> tuple[bool, float]:
        return not needed(name), -held_by[name] / (1 if needed(name) else len(names[name]))

    chosen: set[int] = set()
    held = 0.0
    for name in sorted(names, key=order):
        if len(chosen) >= FEW and held >= coverage * total:
            break
        if needed(name) or len(chosen) + len(names[name]) <= top:
            places = names[name][: top - len(chosen)]
            chosen.update(places)
            held += sum(ranked[place].total_us for place in places)
    others = tuple(one for one, good in zip(configurations, admits, strict=True) if not good)
    few = _few_names(held_by, top, coverage * total)
    # Twice: the first configuration of a name need not be its most typical one, so that its own launches come first.
    by_name = all(one.mangled for one in those) and sum(held_by[name] for name in few) > 2 * held
    if by_name:
        chosen = {min(names[name], key=lambda place: ranked[place].first) for name in few}
    left_out = tuple(
        one for place, one in enumerate(ranked) if place not in chosen and not (by_name and one.mangled in few)
    )
    return Choice(tuple(ranked[place] for place in sorted(chosen)), left_out, others, by_name)


def _few_names(held_by: Mapping[str | int, float], top: int, wanted: float) -> tuple[str | int, ...]:
    """The names with the most time: at most `top`, until they hold what is wanted."""
    few: list[str | int] = []
    held = 0.0
    for name in sorted(held_by, key=lambda name: -held_by[name])[:top]:
        if len(few) >= FEW and held >= wanted:
            break
        few.append(name)
        held += held_by[name]
    return tuple(few)


def standing(survey: Survey, choice: Choice | None) -> Survey:
    """The survey with all launches of a name at the configuration that is profiled for it, where names were chosen."""
    if choice is None or not choice.by_name:
        return survey
    profiled = {one.mangled: one for one in choice.chosen}
    rows: dict[Configuration, Configuration] = {}
    for one in survey.configurations:
        itself = profiled.get(one.mangled, one)
        before = rows.get(itself, replace(itself, launches=0, total_us=0.0))
        rows[itself] = replace(before, launches=before.launches + one.launches, total_us=before.total_us + one.total_us)
    return replace(survey, configurations=tuple(rows.values()))


def merged(configurations: Iterable[Configuration]) -> tuple[Configuration, ...]:
    """Rows of several processes: equal configurations on one device are one. In the order of their first launches."""
    found: dict[tuple[Key, int | None], Configuration] = {}
    for one in configurations:
        place = (one.key, one.device)
        before = found.get(place)
        if before is None:
            found[place] = one
        else:
            found[place] = replace(
                before,
                launches=before.launches + one.launches,
                total_us=before.total_us + one.total_us,
                first=min(before.first, one.first),
                processes=before.processes + one.processes,
            )
    return tuple(sorted(found.values(), key=lambda one: one.first))


# --- what the tools write


def read_injected(folder: Path) -> tuple[tuple[Configuration, ...], bool, tuple[str, ...]]:
    """The rows of `cupti_survey.cpp`, one file a process: (configurations, whether complete, errors)."""
    rows: list[Configuration] = []
    errors: list[str] = []
    complete = True
    for file in sorted(folder.glob("*.tsv")):
        ended = False
        for line in file.read_text("utf-8", "replace").splitlines():
            kind, *cells = line.split("\t")
            if kind == "error" and cells:
                errors.append(cells[0])
            elif kind == "end" and cells:
                ended = cells[0] == "0"
            elif kind == "launch" and len(cells) == 16:
                rows.append(_injected_row(cells))
        complete = complete and ended
    return merged(rows), complete, tuple(dict.fromkeys(errors))


def _injected_row(cells: Sequence[str]) -> Configuration:
    numbers = [int(cell) for cell in cells[:15]]
    count, total, _, _, first, device = numbers[:6]
    mangled = cells[15]
    return Configuration(
        name=function_of(mangled),
        mangled=mangled,
        grid=(numbers[6], numbers[7], numbers[8]),
        block=(numbers[9], numbers[10], numbers[11]),
        shared=numbers[13],
        launches=count,
        total_us=total / 1e3,
        first=float(first),
        device=device,
        graph=numbers[14] != 0,
    )


_NSYS = """
    SELECT f.value, m.value, gridX, gridY, gridZ, blockX, blockY, blockZ, dynamicSharedMemory, deviceId,
           COUNT(*), SUM(end - start), MIN(start)
    FROM CUPTI_ACTIVITY_KIND_KERNEL AS k
    LEFT JOIN StringIds AS f ON f.id = k.shortName
    LEFT JOIN StringIds AS m ON m.id = k.mangledName
    GROUP BY k.mangledName, k.shortName, gridX, gridY, gridZ, blockX, blockY, blockZ, dynamicSharedMemory, deviceId
"""


def read_nsys(database: Path) -> tuple[Configuration, ...]:
    """The kernels of a database that `nsys export --type sqlite` wrote. Raises sqlite3.Error for any other file."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        known = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if "CUPTI_ACTIVITY_KIND_KERNEL" not in known:  # no kernel was launched
            return ()
        rows = connection.execute(_NSYS).fetchall()
    return merged(
        Configuration(
            name=str(name or mangled or "?"),
            mangled=str(mangled or ""),
            grid=(gx, gy, gz),
            block=(bx, by, bz),
            shared=shared,
            launches=count,
            total_us=total / 1e3,
            first=float(first),
            device=device,
        )
        for name, mangled, gx, gy, gz, bx, by, bz, shared, device, count, total, first in rows
    )


def configuration_of(kernel: KernelProfile) -> Configuration | None:
    """A profiled launch as a configuration with one launch; None for ranges, graphs and launches without a grid."""
    if kernel.workload != "kernel":
        return None

    def triple(stem: str) -> Triple | None:
        parts = [kernel.number(f"launch__{stem}_dim_{axis}") for axis in "xyz"]
        known = [int(part) for part in parts if part is not None]
        return (known[0], known[1], known[2]) if len(known) == 3 else None

    grid, block = triple("grid"), triple("block")
    if grid is None or block is None:
        return None
    device = kernel.number("launch__device_id")
    return Configuration(
        name=kernel.name,
        mangled=kernel.mangled,
        grid=grid,
        block=block,
        shared=int(kernel.number("launch__shared_mem_per_block_dynamic") or 0),
        launches=1,
        total_us=(kernel.number("gpu__time_duration.sum") or 0.0) / 1e3,
        first=float(kernel.index),
        device=None if device is None else int(device),
    )


def of_profile(profile: Profile) -> tuple[Configuration, ...]:
    """The configurations of a report in which every launch was profiled."""
    found = (configuration_of(kernel) for kernel in profile.kernels)
    return merged(one for one in found if one is not None)


# --- joining with what was profiled


def counted(profile: Profile, survey: Survey) -> tuple[Profile, tuple[Configuration, ...]]:
    """The profile with the survey's counts at the launches that it counted, and the configurations that were profiled.

    Joined by name, grid, block and dynamic shared memory, and by device where both say it. Where several results fit
    one configuration (ranks, processes), each stands for an equal part of its launches.
    """
    rows: dict[tuple[Key, int | None], Configuration] = {}
    for one in survey.configurations:
        rows[(one.key, one.device)] = one
    anywhere = {one.key: one for one in merged(replace(one, device=None) for one in survey.configurations)}
    matched: list[tuple[Key, int | None] | None] = []
    for kernel in profile.kernels:
        itself = configuration_of(kernel)
        place: tuple[Key, int | None] | None = None
        if itself is not None:
            names: tuple[Key, ...] = (itself.key, (kernel.name, *itself.key[1:]))
            place = next(((key, itself.device) for key in names if (key, itself.device) in rows), None)
            if place is None:
                place = next(((key, None) for key in names if key in anywhere), None)
        matched.append(place)
    uses = {place: matched.count(place) for place in set(matched) if place is not None}
    kernels = []
    for kernel, place in zip(profile.kernels, matched, strict=True):
        if place is not None:
            row = rows[place] if place in rows else anywhere[place[0]]
            part = 1 / uses[place]
            known = Counted(max(1, round(row.launches * part)), row.total_us * part)
            kernel = replace(kernel, counted=known)
        kernels.append(kernel)
    keys = {place[0] for place in uses}
    profiled = tuple(one for one in survey.configurations if one.key in keys)
    return replace(profile, kernels=tuple(kernels)), profiled


# --- kept beside a report, so that a run can be resumed


def to_json(survey: Survey) -> str:
    """The survey as JSON."""
    kept = {key: value for key, value in asdict(survey).items() if key != "output"}
    return json.dumps({"diagnose_survey": 1, **kept}, indent=1)


def from_json(text: str) -> Survey:
    """The survey that `to_json` wrote. Raises ValueError for anything else."""
    try:
        data: Mapping[str, Any] = json.loads(text)
        if data.get("diagnose_survey") != 1:
            raise ValueError("no survey of diagnose")
        rows = tuple(
            Configuration(**{**row, "grid": tuple(row["grid"]), "block": tuple(row["block"])})
            for row in data["configurations"]
        )
        return Survey(
            method=str(data["method"]),
            configurations=rows,
            seconds=data["seconds"],
            complete=bool(data["complete"]),
            target_exit=data["target_exit"],
            notes=tuple(map(str, data["notes"])),
            clocks=Clocks(**{**seen, "reasons": tuple(seen["reasons"])}) if (seen := data.get("clocks")) else None,
            wrote_bytes=data.get("wrote_bytes"),
        )
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"no survey of diagnose: {error}") from None
