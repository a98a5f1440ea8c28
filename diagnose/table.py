"""The article's decision table (`rules/decision_table.yaml`) beside the rules that encode each row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from diagnose.bundled import bundled
from diagnose.packfile import YNode, parse_yaml, read_bytes
from diagnose.packs import TABLE_FILE
from diagnose.rules import Pack, Rule, active_rules

NO_STUDY = "not in this version"


def _texts(node: YNode) -> dict[str, Any]:
    return {
        key: [item.text(key) for item in value.value] if isinstance(value.value, tuple) else value.value
        for key, value in node.mapping("a row").items()
    }


def _encodes(rule: Rule, row: str) -> bool:
    return rule.article is not None and rule.article.split(": ", 1)[-1] == row


def read(packs: Sequence[Pack], file: Path | None = None) -> dict[str, Any]:
    """Observations with `rules` (those in force whose `article` is the row) and ablations with their study."""
    file = file or bundled("rules") / TABLE_FILE
    keys = parse_yaml(read_bytes(file), file).mapping(TABLE_FILE)
    rules = active_rules(packs)
    observations = []
    for item in keys["observations"].items("observations"):
        row = _texts(item)
        row["rules"] = [rule.id for rule in rules if _encodes(rule, row["row"])]
        observations.append(row)
    ablations = [_texts(item) for item in keys["ablations"].items("ablations")]
    return {"observations": observations, "ablations": ablations}


def text(table: Mapping[str, Any]) -> str:
    """The table as text, a block a row."""
    lines = ["What is observed, what it means, what to try, and the rules that say so", ""]
    for number, row in enumerate(table["observations"], 1):
        lines.append(f"{number:2}. {row['row']}")
        lines.append(f"    {row['english']}")
        lines.append(f"    → {row['conclusion']}")
        lines.append(f"    next: {row['next']}")
        lines.append(f"    rules: {', '.join(row['rules']) or 'none'}")
        if row.get("note"):
            lines.append(f"    {row['note']} ({', '.join(row.get('guards', ()))})")
        lines.append("")
    lines += ["One variable at a time", ""]
    for number, row in enumerate(table["ablations"], 1):
        lines.append(f"{number:2}. {row['variable']}")
        lines.append(f"    {row['english']}")
        lines.append(f"    better: {row['improves']}")
        lines.append(f"    the same: {row['unchanged']}")
        lines.append(f"    study: {'diagnose ablate ' + row['study'] if row['study'] else NO_STUDY}")
        lines.append("")
    return "\n".join(lines)
