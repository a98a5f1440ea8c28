"""`diagnose compare … -o FILE`: the comparison as one offline page, under the same walls as the report (see `html`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from diagnose.render import comparison, geometry, html, view
from diagnose.render import format as fmt

#: Pairs in one page, those that changed most: each is about 12 kB, and nobody reads the three hundredth.
PAIRS = 300
_FINDINGS = {"new": "new", "fixed": "gone", "worse": "costs more", "better": "costs less", "same": "same"}
_CHIPS = {
    "slower": "slower",
    "faster": "faster",
    "same": "same",
    "new": "new findings",
    "fixed": "findings gone",
    "worse": "findings that cost more",
    "confirmed": "expectation confirmed",
    "refuted": "expectation refuted",
}


def _facts(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """The facts of both sides that read differently."""
    sides = view.mapping(before.get("facts")), view.mapping(after.get("facts"))
    rows = []
    for name in sorted(set(sides[0]) & set(sides[1])):
        one, other = view.mapping(sides[0][name]), view.mapping(sides[1][name])
        told = fmt.quantity(one.get("value"), one.get("unit")), fmt.quantity(other.get("value"), other.get("unit"))
        if told[0] != told[1]:
            rows.append((name, *told))
    return rows[:80]


def _pair(
    pair: Mapping[str, Any], sides: tuple[Mapping[str, Any], Mapping[str, Any]], taken: set[str]
) -> dict[str, Any]:
    findings = [
        {**row, "word": _FINDINGS[row["status"]], "before": _cost(row, "before"), "after": _cost(row, "after")}
        for row in pair["findings"]
    ]
    expectations = [
        {
            "rule": row["rule"],
            "asked": " ".join(
                (row["fact"], fmt.OPERATORS.get(str(row["op"]), "="), fmt.quantity(row["value"], row["unit"]))
            ),
            "before": fmt.quantity(row["before"], row["unit"]),
            "after": fmt.quantity(row["after"], row["unit"]),
            "status": {"unknown": "not known"}.get(row["status"], row["status"]),
        }
        for row in pair["expectations"]
    ]
    marks = {pair["change"], *(row["status"] for row in findings), *(row["status"] for row in expectations)}
    notes = list(pair["notes"])
    if max(pair["launches"]) > 1:
        notes.append(f"medians of {pair['launches'][0]} and {pair['launches'][1]} launches")
    if pair["matched_by"] != "configuration":
        notes.append(f"matched by {pair['matched_by']}")
    identity = view.safe_id(pair["after"]["id"], pair["name"])
    while identity in taken:
        identity += "-2"
    taken.add(identity)
    renamed = pair["after"]["name"]
    return {
        "id": identity,
        "change": pair["change"],
        "marks": " ".join(
            sorted(mark for mark in marks if mark in _CHIPS and (mark != "same" or pair["change"] == mark))
        ),
        "sign": comparison.SIGNS[pair["change"]],
        "name": fmt.shorten(pair["name"], 100),
        "renamed": fmt.shorten(renamed, 100) if renamed != pair["name"] else None,
        "changed": comparison.change(pair),
        "times": comparison.times(pair),
        "sentence": pair["sentence"],
        "verdicts": comparison.verdicts(pair),
        "notes": notes,
        "findings": findings,
        "expectations": expectations,
        "limits": pair["limits"],
        "facts": _facts(*sides),
        "roofline": geometry.journey(sides[0].get("roofline"), sides[1].get("roofline")),
    }


def _cost(row: Mapping[str, Any], side: str) -> str:
    if row[f"severity_{side}"] is None:
        return "not found"
    return fmt.duration(row[f"lost_us_{side}"])


def _by_id(document: Mapping[str, Any]) -> dict[object, Mapping[str, Any]]:
    return {kernel.get("id"): kernel for kernel in view.objects(document.get("kernels"))}


def render(found: comparison.Comparison, documents: tuple[view.Document, view.Document]) -> str:
    """The page of a comparison (`diagnose.compare.compare`) of two documents."""
    sides = _by_id(documents[0]), _by_id(documents[1])
    taken: set[str] = set()
    pairs = [
        _pair(pair, (sides[0].get(pair["before"]["id"], {}), sides[1].get(pair["after"]["id"], {})), taken)
        for pair in comparison.ranked(found)[:PAIRS]
    ]
    counts = {word: sum(word in pair["marks"].split() for pair in pairs) for word in _CHIPS}
    return html.page(
        "compare.html.j2",
        "compare.js",
        before=fmt.shorten(found["before"]["source"], 80),
        after=fmt.shorten(found["after"]["source"], 80),
        summary=comparison.summary(found),
        noise=comparison.noise(found),
        chips=[(word, label, counts[word]) for word, label in _CHIPS.items() if counts[word]],
        warnings=view.texts(found["warnings"]),
        pairs=pairs,
        total=len(found["kernels"]),
        unmatched=comparison.unmatched(found),
    )
