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
    rule = rules.get(rule_id)
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
        "needs": list(rule_metrics(rule, fact_needs())),
        "disabled": any(rule.id in pack.disable for pack in packs),
    }


def text(found: Mapping[str, Any]) -> str:
    """The page as text."""

    def part(heading: str, body: object) -> list[str]:
        if not body:
            return []
        lines = body if isinstance(body, list) else textwrap.wrap(str(body), _WIDTH - 2)
        return ["", heading, *(f"  {line}" for line in lines)]

    experiment = found["next_experiment"]
    lines = [
        f"{found['id']}: {found['title']}",
        f"class {found['class']}, severity at most {found['severity']}, {found['status']}, pack {found['pack']}"
        + (", disabled" if found["disabled"] else ""),
        *part("Fires when", found["when"]),
        *part("At stake (share of the kernel's time)", found["at_stake"]),
        *part("Why", found["why"]),
        *part("Next experiment", experiment["change"]),
        *part("It worked if", experiment["expect"]),
        *part("Not when", found["limitations"]),
        *part("Gives way to", ", ".join(found["yields_to"])),
        *part("In the article", found["article"]),
        *part("References", found["references"]),
        *part("Facts", ", ".join(found["facts"])),
        *part("ncu metrics", ", ".join(found["needs"])),
        "",
        found["file"],
    ]
    return "\n".join(lines) + "\n"
