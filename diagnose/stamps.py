"""Stamps from inside a kernel (`kernels/common/diagnose_timeline.cuh`): read, checked, and summed up a role.

A stamps file is untrusted input: everything in it is checked before it is used.
"""

from __future__ import annotations

import json
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from diagnose.errors import EXIT_NOTHING_MEASURED, DiagnoseError

FORMAT, VERSION = "diagnose-timeline", 1
_MOST_BYTES = 64 << 20  # the header writes about 35 bytes a stamp: two million stamps
_MOST_TRACKS = 64  # a block has at most 64 warps (compute capability 9.0), and a role is at least one
_MOST_KINDS = 16  # four bits in the header's stamp
_MOST_TEXT = 300
_HALF = 1 << 31
_LEAST_NS = 1000  # shorter, and the timer's steps (32 ns on an H200's generation) spoil the clock rate by over 3 %
BEGIN, END, POINT = 0, 1, 2


@dataclass(frozen=True)
class Interval:
    """What a role did from `start` to `end`, in cycles since the block's first stamp; `argument`: a step or a tile."""

    kind: str
    argument: int
    start: int
    end: int


@dataclass(frozen=True)
class Role:
    """One recording thread. `full` says that its buffer was used up, so that later stamps are missing."""

    name: str
    intervals: tuple[Interval, ...]
    points: tuple[Interval, ...]
    full: bool


@dataclass(frozen=True)
class Timeline:
    """The stamps of one block. `ghz` is None where the stamps span too little time to know the clock."""

    kernel: str
    device: str
    block: int
    sm: int | None
    ghz: float | None
    kinds: tuple[str, ...]
    roles: tuple[Role, ...]

    @property
    def cycles(self) -> int:
        """From the first stamp to the end of the last interval."""
        return max((one.end for role in self.roles for one in role.intervals), default=0)

    def us(self, cycles: float) -> float | None:
        """Cycles as microseconds."""
        return cycles / self.ghz / 1e3 if self.ghz else None


@dataclass(frozen=True)
class Doing:
    """One kind of work of a role: its share of the role's span, how often, and the median of one (cycles)."""

    kind: str
    share: float
    count: int
    median: float


@dataclass(frozen=True)
class RoleSummary:
    """`waiting` is the share of the kinds whose name ends in "wait"; `other` what no interval covers."""

    name: str
    span: int
    waiting: float
    other: float
    doings: tuple[Doing, ...]


def is_wait(kind: str) -> bool:
    """Whether a kind counts as waiting (the header's rule)."""
    return kind.endswith("wait")


def _bad(path: Path, problem: str) -> DiagnoseError:
    return DiagnoseError(
        f"{path} is no stamps file of diagnose_timeline.cuh: {problem}",
        "diagnose kernels run gemm/specialised --timeline    (records one)",
    )


def _text(path: Path, value: Any, what: str) -> str:
    if not isinstance(value, str) or not value or len(value) > _MOST_TEXT:
        raise _bad(path, f"{what} must be a text of 1 to {_MOST_TEXT} characters")
    return value


def _whole(value: Any, below: int) -> TypeGuard[int]:
    return type(value) is int and 0 <= value < below


def _stamps(path: Path, track: Any, kinds: int, capacity: int) -> tuple[str, list[tuple[int, int, int, int, int]]]:
    if not isinstance(track, dict) or not isinstance(track.get("stamps"), list):
        raise _bad(path, "a track must hold role and stamps")
    role = _text(path, track.get("role"), "a role")
    rows = track["stamps"]
    if len(rows) > capacity:
        raise _bad(path, f"{role!r} has {len(rows)} stamps, more than the capacity {capacity}")
    bounds = (1 << 63, 1 << 32, kinds, 3, 1 << 26)
    found: list[tuple[int, int, int, int, int]] = []
    for number, row in enumerate(rows):
        if not isinstance(row, list) or len(row) != 5 or not all(map(_whole, row, bounds)):
            raise _bad(
                path, f"stamp {number} of {role!r} must be [clock, ns, kind, edge, argument], got {str(row)[:80]}"
            )
        clock, ns, kind, edge, argument = row
        # Where the timer goes back begins what an earlier launch left. The timer's low half wraps after 4.3 s.
        if found and ((ns - found[-1][1]) % (1 << 32) >= _HALF or clock < found[-1][0]):
            break
        found.append((clock, ns, kind, edge, argument))
    return role, found


def read(path: Path) -> Timeline:
    """Reads and checks a stamps file. Raises DiagnoseError with what is wrong, or where nothing was stamped."""
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise DiagnoseError(f"cannot read {path}: {error.strerror or error}", "diagnose kernels run --help") from None
    if len(data) > _MOST_BYTES:
        raise _bad(path, f"it has more than {_MOST_BYTES >> 20} MiB")
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _bad(path, str(error)[:120]) from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise _bad(path, f"format must be {FORMAT!r}")
    if document.get("version") != VERSION:
        raise _bad(path, f"version must be {VERSION}, got {str(document.get('version'))[:40]}")
    kinds, tracks, capacity = document.get("kinds"), document.get("tracks"), document.get("capacity")
    if not isinstance(kinds, list) or not 1 <= len(kinds) <= _MOST_KINDS:
        raise _bad(path, f"kinds must be 1 to {_MOST_KINDS} texts")
    names = tuple(_text(path, kind, "a kind") for kind in kinds)
    if not isinstance(tracks, list) or not 1 <= len(tracks) <= _MOST_TRACKS:
        raise _bad(path, f"tracks must be 1 to {_MOST_TRACKS} roles")
    if not _whole(capacity, 1 << 24) or not _whole(document.get("block"), 1 << 32):
        raise _bad(path, "block and capacity must be whole numbers")
    rows = [_stamps(path, track, len(names), capacity) for track in tracks]
    used = [stamps for _, stamps in rows if stamps]
    if not used:
        raise DiagnoseError(
            f"{path} holds no stamp: block {document['block']} did not run, or its recording thread stamped nothing",
            "DIAGNOSE_TIMELINE_BLOCK=0 PROGRAM    (records block 0)",
            EXIT_NOTHING_MEASURED,
        )
    zero = min(stamps[0][0] for stamps in used)
    opened = {stamps[0][4] for stamps in used if stamps[0][2] == 0 and stamps[0][3] == POINT}
    if len(opened) > 1:
        raise _bad(path, f"its roles ran on several SMs ({', '.join(map(str, sorted(opened)))}), whose clocks differ")
    return Timeline(
        kernel=_text(path, document.get("kernel"), "kernel"),
        device=_text(path, document.get("device"), "device"),
        block=document["block"],
        sm=next(iter(opened), None),
        ghz=_clock_rate(used),
        kinds=names,
        roles=tuple(_role(name, stamps, names, zero, len(stamps) == capacity) for name, stamps in rows),
    )


def _clock_rate(tracks: list[list[tuple[int, int, int, int, int]]]) -> float | None:
    """Cycles a nanosecond, over the longest track."""
    spans = [((t[-1][1] - t[0][1]) % (1 << 32), t[-1][0] - t[0][0]) for t in tracks]
    ns, cycles = max(spans)
    return cycles / ns if ns >= _LEAST_NS and cycles else None


def _role(
    name: str, stamps: list[tuple[int, int, int, int, int]], kinds: tuple[str, ...], zero: int, full: bool
) -> Role:
    """Intervals out of stamps: a begin ends what was open. What is open after the last stamp has no known end."""
    intervals: list[Interval] = []
    points: list[Interval] = []
    open_: tuple[str, int, int] | None = None
    for clock, _, kind, edge, argument in stamps:
        at = clock - zero
        if edge == POINT:
            if kind:
                points.append(Interval(kinds[kind], argument, at, at))
            continue
        if open_ is not None:
            intervals.append(Interval(*open_, at))
        open_ = (kinds[kind], argument, at) if edge == BEGIN else None
    return Role(name, tuple(intervals), tuple(points), full)


def summary(timeline: Timeline) -> tuple[RoleSummary, ...]:
    """What each role spent its time on; roles without an interval have a span of 0 and no doings."""
    found = []
    for role in timeline.roles:
        if not role.intervals:
            found.append(RoleSummary(role.name, 0, 0.0, 0.0, ()))
            continue
        span = max(role.intervals[-1].end - role.intervals[0].start, 1)
        by_kind: dict[str, list[int]] = {}
        for one in role.intervals:
            by_kind.setdefault(one.kind, []).append(one.end - one.start)
        doings = [Doing(kind, sum(t) / span, len(t), float(statistics.median(t))) for kind, t in by_kind.items()]
        doings.sort(key=lambda one: -one.share)
        covered = sum(one.share for one in doings)
        waiting = sum(one.share for one in doings if is_wait(one.kind))
        found.append(RoleSummary(role.name, span, waiting, max(0.0, 1 - covered), tuple(doings)))
    return tuple(found)


def document(timeline: Timeline) -> dict[str, Any]:
    """The summary as JSON; times are None where the clock is not known."""
    return {
        "kernel": timeline.kernel,
        "device": timeline.device,
        "block": timeline.block,
        "sm": timeline.sm,
        "clock_ghz": round(timeline.ghz, 4) if timeline.ghz else None,
        "roles": [
            {
                "role": row.name,
                "span_cycles": row.span,
                "span_us": _rounded(timeline.us(row.span)),
                "waiting": round(row.waiting, 6) if row.doings else None,
                "other": round(row.other, 6) if row.doings else None,
                "complete": not role.full,
                "doing": [
                    {"kind": d.kind, "share": round(d.share, 6), "count": d.count, "median_cycles": d.median}
                    for d in row.doings
                ],
            }
            for row, role in zip(summary(timeline), timeline.roles, strict=True)
        ],
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
