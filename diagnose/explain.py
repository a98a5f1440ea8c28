"""`diagnose rules explain`: one rule as a page."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from diagnose.api import fact_needs
from diagnose.errors import DiagnoseError
from diagnose.packfile import nearest
from diagnose.rules import Group, Pack, Rule, rule_metrics

_WIDTH = 100


def _conditions(rule: Rule, group: Group, depth: int) -> list[str]:
    lines = [f"{'  ' * depth}{group.kind} of:"]
    for child in group.children:
        if isinstance(child, int):
            leaf = rule.leaves[child]
            lines.append(f"{'  ' * (depth + 1)}{leaf.left.text} {leaf.op} {leaf.right.text}")
        else:
            lines += _conditions(rule, child, depth + 1)
    return lines


def page(rule_id: str, packs: Sequence[Pack]) -> dict[str, Any]:
    """Everything about a rule. Raises with the nearest name where there is none."""
    rules = {rule.id: rule for pack in packs for rule in pack.rules}
    rule = rules.get(rule_id) or rules.get(rule_id.removeprefix("core/"))  # as [[accept]] names it
    if rule is None:
        raise DiagnoseError(f"there is no rule {rule_id!r}{nearest(rule_id, rules)}", "diagnose rules list")
    return {
        "id": rule.id,
        "pack": rule.pack,
        "title": rule.title,
        "class": rule.klass,
        "severity": rule.severity,
        "status": rule.status,
        "file": str(rule.file),
        "when": _conditions(rule, rule.when, 0),
        "at_stake": rule.at_stake.text if rule.at_stake else None,
        "why": rule.why,
        "next_experiment": {"change": rule.change, "expect": rule.expect.text},
        "limitations": rule.limitations,
        "article": rule.article,
        "references": list(rule.references),
        "yields_to": list(rule.yields_to),
        "facts": list(rule.facts),
        "needs": list(rule_metrics(rule, fact_needs(packs))),
        "disabled": any(rule.id in pack.disable for pack in packs),
    }


def _parts(found: Mapping[str, Any]) -> list[tuple[str, str | list[str]]]:
    """The page's headings, each with its text or its lines; without those that have nothing."""
    experiment = found["next_experiment"]
    parts: list[tuple[str, str | list[str]]] = [
        ("Fires when", found["when"]),
        ("At stake (share of the kernel's time)", found["at_stake"] or ""),
        ("Why", found["why"]),
        ("Next experiment", experiment["change"]),
        ("It worked if", experiment["expect"]),
        ("Not when", found["limitations"] or ""),
        ("Gives way to", ", ".join(found["yields_to"])),
        ("In the article", found["article"] or ""),
        ("References", found["references"]),
        ("Facts", ", ".join(found["facts"])),
        ("ncu metrics", ", ".join(found["needs"])),
    ]
    return [(heading, body) for heading, body in parts if body]


def _kind(found: Mapping[str, Any]) -> str:
    return f"class {found['class']}, severity at most {found['severity']}, {found['status']}, pack {found['pack']}" + (
        ", disabled" if found["disabled"] else ""
    )


def text(found: Mapping[str, Any]) -> str:
    """The page as text."""
    lines = [f"{found['id']}: {found['title']}", _kind(found)]
    for heading, body in _parts(found):
        wrapped = body if isinstance(body, list) else textwrap.wrap(body, _WIDTH - 2, break_on_hyphens=False)
        lines += ["", heading, *(f"  {line}" for line in wrapped)]
    return "\n".join([*lines, "", found["file"]]) + "\n"


def markdown(found: Mapping[str, Any], file: str) -> str:
    """The page as Markdown with the same text; `file` is where the rule lies in the repository."""
    lines = [f"# {found['id']}: {found['title']}", "", _kind(found)]
    code = ("Fires when", "At stake (share of the kernel's time)", "It worked if")
    for heading, body in _parts(found):
        rows = (
            body if isinstance(body, list) else textwrap.wrap(body, 120, break_long_words=False, break_on_hyphens=False)
        )
        if heading in code:
            rows = ["```", *rows, "```"]
        elif isinstance(body, list):
            rows = [f"- {row}" for row in rows]
        lines += ["", f"## {heading}", "", *rows]
    return "\n".join([*lines, "", f"From `{file}`; written by `tests/gen_rule_pages.py`."]) + "\n"
