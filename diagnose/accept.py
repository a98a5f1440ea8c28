"""Accepted findings: what a team has looked at and decided to live with, until a date.

`[[accept]]` entries of the configuration are applied to a document: a finding that one matches carries `accepted` and
gates nothing; one whose entry is past its date, or that is more than WORSE worse than the entry says, carries `lapsed`
and counts again; an entry that matches nothing is listed as stale. `apply` is pure: the day is given to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from fnmatch import fnmatchcase
from typing import Any

from diagnose.errors import DiagnoseError
from diagnose.packfile import nearest
from diagnose.render.format import number

#: A finding this much above what was accepted counts again (shared/html-report.md, review workflow). It is above the
#: noise of repeats under ncu (3 %), so that a mere repeat does not bring it back.
WORSE = 0.10
_KEYS = ("finding", "kernel", "at", "reason", "owner", "expires")
_AT = ("win", "metric", "value")
_LONGEST = 2000  # characters of a text; more is no pattern or reason that a person wrote

Document = Mapping[str, Any]


@dataclass(frozen=True)
class Accepted:
    """One entry. `finding` is a rule's id without its pack; `kernel` a shell pattern on the short or the full name."""

    finding: str
    kernel: str
    reason: str
    owner: str
    expires: date
    win: float | None = None
    metric: str | None = None
    value: float | None = None

    def told(self) -> dict[str, Any]:
        """As it stands in the document."""
        return {"reason": self.reason, "owner": self.owner, "expires": self.expires.isoformat(), "kernel": self.kernel}


def pattern_matches(pattern: str, kernel: Mapping[str, Any]) -> bool:
    """Whether a shell pattern (`*`, `?`, `[…]`) is the kernel's short or full name; case counts."""
    return any(fnmatchcase(name, pattern) for name in (kernel.get("name"), kernel.get("demangled")) if name)


# --- reading ---


def _text(place: str, entry: Mapping[str, Any], key: str) -> str:
    value = entry.get(key)
    if not isinstance(value, str) or not value.strip() or len(value) > _LONGEST:
        raise DiagnoseError(f"{place}: {key} must be a text, got {value!r}"[:300], f'write {key} = "…" in it')
    return value


def _date(place: str, value: object) -> date:
    # A TOML date is a date already; a date-time is one too, and counts by its day.
    if isinstance(value, date):
        return date(value.year, value.month, value.day)
    try:
        return date.fromisoformat(str(value))
    except ValueError:
        raise DiagnoseError(
            f"{place}: expires must be a date, got {value!r}"[:300], "write expires = 2027-02-28 in it"
        ) from None


def _at(place: str, value: object) -> tuple[float | None, str | None, float | None]:
    if value is None:
        return None, None, None
    if not isinstance(value, Mapping):
        raise DiagnoseError(f"{place}: at is no table", 'write at = { win = 2.3, metric = "fact", value = 31 }')
    for key in value:
        if key not in _AT:
            raise DiagnoseError(f"{place}: at has the unknown key {key!r}"[:300], f"it takes {', '.join(_AT)}")
    metric = value.get("metric")
    found = []
    for key in ("win", "value"):
        measured = number(value.get(key))
        if key in value and measured is None:
            raise DiagnoseError(f"{place}: at.{key} must be a number, got {value[key]!r}"[:300], f"write {key} = 2.3")
        found.append(measured)
    if metric is not None and not isinstance(metric, str):
        raise DiagnoseError(f"{place}: at.metric must be a text, got {metric!r}"[:300], 'write metric = "fact"')
    return found[0], metric, found[1]


def read(place: str, value: object) -> tuple[Accepted, ...]:
    """The entries of `accept`. Raises for one that lacks a reason, an owner or a date: nobody could review it."""
    if not isinstance(value, list | tuple):
        raise DiagnoseError(f"{place}: accept must be a list of tables", 'write [[accept]] with finding = "…" below it')
    entries = []
    for position, entry in enumerate(value, 1):
        here = f"{place}: accept {position}"
        if not isinstance(entry, Mapping):
            raise DiagnoseError(f"{here} is no table", 'write [[accept]] with finding = "…" below it')
        for key in entry:
            if key not in _KEYS:
                raise DiagnoseError(f"{here}: unknown key {key!r}{nearest(str(key), _KEYS)}", f"{', '.join(_KEYS)}")
        for key in ("reason", "owner", "expires"):
            if key not in entry:
                raise DiagnoseError(
                    f"{here} has no {key}", f"add {key}: an accepted finding says who, why and how long"
                )
        entries.append(
            Accepted(
                _text(here, entry, "finding").rsplit("/", 1)[-1],
                _text(here, {"kernel": "*", **entry}, "kernel"),
                _text(here, entry, "reason"),
                _text(here, entry, "owner"),
                _date(here, entry["expires"]),
                *_at(here, entry.get("at")),
            )
        )
    return tuple(entries)


# --- applying ---


def _worse(entry: Accepted, finding: Mapping[str, Any]) -> str | None:
    """What is more than WORSE above what was accepted, as text; None where nothing is."""
    speedup = finding.get("speedup")
    win = number(speedup.get("expected")) if isinstance(speedup, Mapping) else None
    if entry.win is not None and win is not None and win > entry.win * (1 + WORSE):
        return f"the fix would now win {win:.3g}×, accepted at {entry.win:.3g}×"
    if entry.metric is None or entry.value is None:
        return None
    for one in finding.get("evidence") or ():
        value = number(one.get("value"))
        if one.get("fact") != entry.metric or value is None:
            continue
        down = str(one.get("op")).startswith("<")  # the finding needs a small value: smaller is worse
        slack = WORSE * abs(entry.value)
        if (value < entry.value - slack) if down else (value > entry.value + slack):
            return f"{entry.metric} is now {value:.4g}, accepted at {entry.value:.4g}"
    return None


def _judged(finding: Mapping[str, Any], entries: Sequence[tuple[int, Accepted]], today: date) -> dict[str, Any]:
    """The finding with `accepted` or `lapsed`. One entry that still holds is enough."""
    lapsed: dict[str, Any] | None = None
    for _, entry in entries:
        why = f"expired on {entry.expires}" if entry.expires < today else _worse(entry, finding)
        if why is None:
            return {**finding, "accepted": entry.told()}
        lapsed = lapsed or {**entry.told(), "why": why}
    return {**finding, "lapsed": lapsed} if lapsed else dict(finding)


def apply(document: Document, entries: Sequence[Accepted], today: date) -> dict[str, Any]:
    """The document with accepted and lapsed findings marked, and `acceptance` counting them. No entry: unchanged."""
    if not entries:
        return dict(document)
    used: set[int] = set()
    counts = {"accepted": 0, "lapsed": 0}
    by_rule: dict[str, list[tuple[int, Accepted]]] = {}
    for number_, entry in enumerate(entries):
        by_rule.setdefault(entry.finding, []).append((number_, entry))

    def findings(owner: Mapping[str, Any]) -> list[dict[str, Any]]:
        found = []
        for finding in owner.get("findings") or ():
            fitting = [
                (position, entry)
                for position, entry in by_rule.get(str(finding.get("rule")).rsplit("/", 1)[-1], ())
                if pattern_matches(entry.kernel, owner)
            ]
            used.update(position for position, _ in fitting)
            judged = _judged(finding, fitting, today)
            counts["accepted"] += "accepted" in judged
            counts["lapsed"] += "lapsed" in judged
            found.append(judged)
        return found

    kernels = [{**kernel, "findings": findings(kernel)} for kernel in document["kernels"]]
    program = document.get("program") or {}
    named = {"name": "program", "findings": program.get("findings")}
    return {
        **document,
        "program": {**program, "findings": findings(named)},
        "kernels": kernels,
        "acceptance": {
            **counts,
            "stale": [
                {"finding": entry.finding, **entry.told()}
                for position, entry in enumerate(entries)
                if position not in used
            ],
        },
    }
