"""A pack's own sections of a kernel's page: a title, a line of text, and rows of facts, metrics or expressions.

sections:
- title: Handover sheet
  kernel: 'attention_*'            # as in thresholds: a glob over names, bounds on the architecture
  arch: '>=sm_90'
  text: What the reviewers of attention kernels look at first.
  rows:
  - occupancy_achieved
  - ncu:launch__registers_per_thread
  - {label: Spilled bytes a thread, value: 'local_bytes / launched_threads'}

Data only: values come from the kernel, every text is escaped where it is shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from diagnose.expr import Env, Metric, missing
from diagnose.packfile import YNode, known_keys
from diagnose.scope import Scope, read_scope

if TYPE_CHECKING:
    from diagnose.rule_file import Reader
    from diagnose.rules import Expression

KEYS = ("title", "kernel", "arch", "text", "rows")
ROW_KEYS = ("label", "value")
# A page is read by people: a pack with more than that wants a report of its own. They also bound a hostile pack.
MAX_SECTIONS = 20
MAX_ROWS = 50
MAX_TITLE = 120
MAX_TEXT = 2000
_SHAPE = "as `- {title: …, rows: [occupancy_achieved, {label: …, value: 'a / b'}]}`"


@dataclass(frozen=True)
class Row:
    """A line of a section: what it is called and the expression that it shows."""

    label: str
    expression: Expression

    def shown(self, env: Env) -> dict[str, Any]:
        """`{label, value, unit}`, and `missing` where the value is not known."""
        value, unit = self.expression.value(env), self.expression.unit
        if isinstance(self.expression.node, Metric):
            unit = env.metric(self.expression.node.name)[1] or unit
        row: dict[str, Any] = {"label": self.label, "value": value, "unit": unit}
        return row if value is not None else {**row, "missing": list(missing(self.expression.node, env))}


@dataclass(frozen=True)
class Section:
    """A section and the kernels that it is for. `facts` and `metrics` are what its rows read."""

    title: str
    text: str
    scope: Scope
    rows: tuple[Row, ...]
    facts: tuple[str, ...]
    metrics: tuple[str, ...]


def read(node: YNode, reader: Reader) -> tuple[Section, ...]:
    """The `sections` of a pack.yaml; `reader` checks names and units against the pack's catalogue."""
    items = node.items("sections")
    if len(items) > MAX_SECTIONS:
        raise node.fail(f"more than {MAX_SECTIONS} sections", "keep what a reviewer reads")
    return tuple(_section(item, reader) for item in items)


def _section(node: YNode, reader: Reader) -> Section:
    given = node.mapping("a section")
    known_keys(given, KEYS, "a section", f"a section takes {', '.join(KEYS)}")
    for key in ("title", "rows"):
        if key not in given:
            raise node.fail(f"a section lacks {key!r}", _SHAPE)
    title = _short(given["title"], "title", MAX_TITLE)
    text = _short(given["text"], "text", MAX_TEXT) if "text" in given and given["text"].value is not None else ""
    items = given["rows"].items("rows")
    if not items:
        raise given["rows"].fail("the section has no rows", _SHAPE)
    if len(items) > MAX_ROWS:
        raise given["rows"].fail(f"the section has more than {MAX_ROWS} rows", "split it")
    reader.facts.clear()
    reader.metrics.clear()
    rows = tuple(_row(item, reader) for item in items)
    return Section(title, text, read_scope(given), rows, tuple(sorted(reader.facts)), tuple(sorted(reader.metrics)))


def _row(node: YNode, reader: Reader) -> Row:
    value = node
    label = None
    if isinstance(node.value, dict):
        known_keys(node.value, ROW_KEYS, "a row", "a row is a fact, ncu:METRIC, or {label: …, value: …}")
        if "value" not in node.value:
            raise node.fail("a row lacks 'value'", _SHAPE)
        value = node.value["value"]
        label = _short(node.value["label"], "label", MAX_TITLE) if "label" in node.value else None
    text = value.expression("a row")
    tree, _ = reader.parse(value, text)
    expression = reader.expression(tree)
    if not reader.reads(tree):
        raise value.fail(f"the row {text!r} reads no fact: it is always the same", _SHAPE)
    return Row(label or " ".join(text.split()), expression)


def _short(node: YNode, what: str, limit: int) -> str:
    text = " ".join(node.text(what).split())
    if len(text) > limit:
        raise node.fail(f"{what} has {len(text):,} characters, more than {limit}", "shorten it")
    return text


def shown(sections: Sequence[tuple[str, Section]], env: Env, names: Sequence[str], arch: str | None) -> list[Any]:
    """The sections (with their pack's name) for a kernel, with its values: `{pack, title, text, rows}` each."""
    return [
        {"pack": pack, "title": one.title, "text": one.text, "rows": [row.shown(env) for row in one.rows]}
        for pack, one in sections
        if one.scope.fits(names, arch)
    ]
