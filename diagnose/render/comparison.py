"""What `diagnose compare` found, in a terminal and as Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from diagnose.render import format as fmt
from diagnose.render import markdown, view

if TYPE_CHECKING:
    from rich.console import Console

Comparison = Mapping[str, Any]

LISTED = 30
_WORDS = {
    "faster": "faster",
    "slower": "slower",
    "same": "same",
    "short": "too short to compare",
    "unknown": "time not measured",
}
SIGNS = {"faster": "▼", "slower": "▲", "same": "=", "short": "·", "unknown": "○"}
_STYLES = {"faster": "bold green", "slower": "bold red", "same": "dim", "short": "dim", "unknown": "dim"}
_FINDINGS = {"new": "new", "fixed": "gone", "worse": "costs more", "better": "costs less"}
_EXPECTED = {
    "confirmed": "confirmed",
    "refuted": "refuted",
    "held before": "held before, so it confirms nothing",
    "unknown": "not known: the fact is not in both (diagnose … --facts all --json FILE)",
}
_WORTH_SAYING = 0.10  # a change of the work, and a share of a ceiling


def change(pair: Mapping[str, Any]) -> str:
    """`2.41× faster`, `1.08× slower`, `same`."""
    word = _WORDS[pair["change"]]
    factor = pair["speedup"] if pair["change"] == "faster" else pair["ratio"]
    return f"{fmt.times(factor)} {word}" if pair["change"] in ("faster", "slower") else word


def times(pair: Mapping[str, Any]) -> str:
    """The two times."""
    return f"{fmt.duration(pair['before']['duration_us'])} → {fmt.duration(pair['after']['duration_us'])}"


def verdicts(pair: Mapping[str, Any]) -> str:
    """The verdict before and after."""
    old, new = pair["before"]["verdict"], pair["after"]["verdict"]
    if old["rule"] is None and new["rule"] is None:
        return "no verdict"
    if old["rule"] == new["rule"]:
        return f"{new['rule']} ({new['class']})"
    return f"{old['rule'] or 'none'} ({old['class'] or '-'}) → {new['rule'] or 'none'} ({new['class'] or '-'})"


def reasons(pair: Mapping[str, Any]) -> list[str]:
    """Why the time changed, as far as the limits show it: work that grew or shrank, paths that came or went."""
    found = []
    for row in pair["limits"]:
        ratio = row["work_ratio"]
        used = max(row["utilization_before"] or 0.0, row["utilization_after"] or 0.0)
        if ratio is not None and abs(ratio - 1) > _WORTH_SAYING and used > _WORTH_SAYING:
            unit = row["work_unit"]
            found.append(
                f"{fmt.resource(row['resource'])}: {fmt.quantity(row['work_before'], unit)} → "
                f"{fmt.quantity(row['work_after'], unit)} ({fmt.times(ratio)}), at "
                f"{fmt.share(row['utilization_before'])} → {fmt.share(row['utilization_after'])} of its ceiling"
            )
    top = next((row for row in pair["limits"] if row["utilization_after"] is not None), None)
    if not found and top is not None and pair["change"] in ("faster", "slower"):
        found.append(
            f"{fmt.resource(top['resource'])}: the same work, at {fmt.share(top['utilization_before'])} → "
            f"{fmt.share(top['utilization_after'])} of its ceiling"
        )
    if pair["paths_gained"]:
        found.append(f"paths used now: {', '.join(pair['paths_gained'])}")
    if pair["paths_lost"]:
        found.append(f"paths no longer used: {', '.join(pair['paths_lost'])}")
    return found


def _finding(row: Mapping[str, Any]) -> str:
    costs = [row["lost_us_before"], row["lost_us_after"]]
    known = [fmt.duration(cost) if cost is not None else None for cost in costs]
    if row["status"] in ("worse", "better"):
        tail = f" ({known[0]} → {known[1]})" if None not in known else ""
    else:
        cost = known[1] if row["status"] == "new" else known[0]
        tail = f" ({cost})" if cost else ""
    severity = row["severity_after"] or row["severity_before"] or "note"
    return f"{_FINDINGS[row['status']]}: {row['rule']}, {severity}{tail}"


def findings(pair: Mapping[str, Any]) -> list[str]:
    """The findings that came, went or changed."""
    return [_finding(row) for row in pair["findings"] if row["status"] in _FINDINGS]


def expectations(pair: Mapping[str, Any]) -> list[str]:
    """What the next experiments had promised, and whether it came true."""
    return [
        f"{row['rule']} expected {row['fact']} {fmt.OPERATORS.get(str(row['op']), '=')} "
        f"{fmt.quantity(row['value'], row['unit'])}: {fmt.quantity(row['before'], row['unit'])} → "
        f"{fmt.quantity(row['after'], row['unit'])}, {_EXPECTED[row['status']]}"
        for row in pair["expectations"]
        if row["status"] in _EXPECTED
    ]


def summary(found: Comparison) -> str:
    """One sentence on the whole."""
    total = found["summary"]
    parts = [f"{total[key]} {word}" for key, word in _WORDS.items() if total[key]]
    text = f"{view.plural(total['matched'], 'kernel')} compared: {', '.join(parts)}"
    if total["ratio"] is not None:
        before, after = fmt.duration(total["time_us_before"]), fmt.duration(total["time_us_after"])
        text += f"; together {before} → {after}"
    return text


def noise(found: Comparison) -> str:
    """What counts as a difference."""
    rule = found["noise"]
    return f"same: within {fmt.share(rule['share'])} or {rule['floor_us']:g} µs; {rule['reason']}"


def ranked(found: Comparison) -> list[Mapping[str, Any]]:
    """Regressions first, then by the time that was won or lost."""

    def weight(pair: Mapping[str, Any]) -> tuple[int, float]:
        before, after = pair["before"]["duration_us"] or 0.0, pair["after"]["duration_us"] or 0.0
        order = ("slower", "faster", "same", "short", "unknown").index(pair["change"])
        return order, -abs(after - before) if order < 2 else -max(before, after)

    return sorted(found["kernels"], key=weight)


def _names(pair: Mapping[str, Any]) -> str:
    """The name, or both where they differ, as Markdown."""
    after = pair["after"]["name"]
    return markdown.code(pair["name"]) + (f" → {markdown.code(after)}" if after != pair["name"] else "")


def unmatched(found: Comparison) -> list[tuple[str, list[str]]]:
    rows = []
    for side in ("before", "after"):
        names = [
            f"{fmt.shorten(kernel['name'], 80)} ({fmt.duration(kernel['duration_us'])})"
            for kernel in found["unmatched"][side]
        ]
        if names:
            more = [f"and {len(names) - LISTED} more"] if len(names) > LISTED else []
            rows.append((f"only in {found[side]['source']}", names[:LISTED] + more))
    return rows


def render(found: Comparison, console: Console, verbose: bool = False) -> None:
    """Prints the comparison on `console`: what got slower first."""
    from diagnose.render.terminal import Page

    page = Page(console)
    page.line((f"{found['before']['source']} → {found['after']['source']}", "dim"))
    page.line((summary(found), "bold"))
    page.line((noise(found), "dim"))
    rows = ranked(found)
    shown = rows if verbose else rows[:LISTED]
    for pair in shown:
        page.gap()
        style = _STYLES[pair["change"]]
        after = pair["after"]["name"]
        name = fmt.shorten(pair["name"], 60)
        page.line(
            (f"{SIGNS[pair['change']]} ", style),
            (name if after == pair["name"] else f"{name} → {fmt.shorten(after, 60)}", "bold"),
            f"  {times(pair)}  ",
            (change(pair), style),
        )
        if pair["change"] in ("faster", "slower"):
            page.item("", pair["sentence"])
        page.item("verdict", verdicts(pair))
        lists = [("findings", findings(pair)), ("expected", expectations(pair))]
        if pair["change"] in ("faster", "slower") or verbose:
            lists.insert(0, ("because", reasons(pair)[: None if verbose else 4]))
        for label, lines in lists:
            for position, line in enumerate(lines):
                page.item(label if position == 0 else "", line)
        notes = list(pair["notes"])
        if max(pair["launches"]) > 1:
            before, after = pair["launches"]
            notes.append(f"medians of {before} and {after} launches, noise {fmt.share(pair['noise'])}")
        if pair["matched_by"] != "configuration":
            notes.append(f"matched by {pair['matched_by']}")
        if notes:
            page.item("but", "; ".join(notes))
    if len(shown) < len(rows):
        page.gap()
        page.line(f"and {view.plural(len(rows) - len(shown), 'more kernel')} (--verbose lists them)")
    for label, names in unmatched(found):
        page.gap()
        page.line((f"{label}: ", "bold"), ", ".join(names))
    for warning in found["warnings"]:
        page.line(("warning: ", "yellow"), warning)


def render_markdown(found: Comparison) -> str:
    """A comment for a pull request."""
    total = found["summary"]
    lines = [f"### {markdown.inert(summary(found), 400)}", ""]
    lines += [
        f"before {markdown.code(found['before']['source'])} · after {markdown.code(found['after']['source'])}",
        "",
    ]
    lines += ["| | Kernel | Before | After | Change | Verdict |", "|---|---|---:|---:|---|---|"]
    rows = ranked(found)
    for pair in rows[:LISTED]:
        cells = [
            SIGNS[pair["change"]],
            _names(pair),
            fmt.duration(pair["before"]["duration_us"]),
            fmt.duration(pair["after"]["duration_us"]),
            change(pair),
            markdown.inert(verdicts(pair)),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    if len(rows) > LISTED:
        lines += ["", f"{view.plural(len(rows) - LISTED, 'more kernel')} not shown."]
    details = []
    for pair in rows[:LISTED]:
        told = [*findings(pair), *expectations(pair), *pair["notes"]]
        if pair["change"] in ("faster", "slower"):
            told = [pair["sentence"].rstrip("."), *reasons(pair)[:4], *told]
        details += [f"- {markdown.code(pair['name'])}: {markdown.inert('; '.join(told), 900)}"] if told else []
    if details:
        lines += ["", "**What changed**", "", *details]
    for label, names in unmatched(found):
        lines += ["", f"**{markdown.inert(label)}**: {', '.join(markdown.inert(name) for name in names)}"]
    lines += ["", markdown.inert(noise(found), 400)]
    lines += [f"- {markdown.inert(warning, 400)}" for warning in found["warnings"]]
    if total["unknown"]:
        lines += ["", f"{view.plural(total['unknown'], 'kernel')} without a time on both sides."]
    return "\n".join(lines) + "\n"
