"""Reads the YAML of packs: plain data with line numbers, within limits, and errors that name file and line.

A pack may come from an untrusted pull request, so this reader builds strings, numbers, booleans, null, lists and
mappings only. Aliases, tags, duplicate keys, deep nesting and large files are errors. `yes`, `no`, `on` and `off` are
texts (as in YAML 1.2), `1e9` is a number.
"""

from __future__ import annotations

import difflib
import math
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from diagnose.errors import DiagnoseError

MAX_BYTES = 1_000_000
MAX_DEPTH = 20
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NUMBER = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?", re.ASCII)
_CONSTANTS: dict[str, bool | None] = {"": None, "~": None, "null": None, "true": True, "false": False}

Data = str | float | int | bool | None


@dataclass(frozen=True)
class YNode:
    """A value of a YAML file with where it stands: a scalar, a list of nodes or a mapping of nodes."""

    value: Data | tuple[YNode, ...] | dict[str, YNode]
    file: Path
    line: int
    key_line: int
    raw: str = ""

    def fail(self, message: str, hint: str) -> DiagnoseError:
        """The error to raise for this value."""
        shown = message if len(message) <= 600 else message[:597] + "..."
        return DiagnoseError(f"{self.file}:{self.line}: {shown}", hint)

    def mapping(self, what: str) -> dict[str, YNode]:
        """The value as a mapping."""
        if isinstance(self.value, dict):
            return self.value
        raise self.fail(
            f"{what} must be a mapping of keys, got {self.kind()}", f"indent `key: value` lines under {what}"
        )

    def items(self, what: str) -> tuple[YNode, ...]:
        """The value as a list; null is an empty one."""
        if isinstance(self.value, tuple):
            return self.value
        if self.value is None:
            return ()
        raise self.fail(f"{what} must be a list, got {self.kind()}", f"write {what} as `- item` lines or [item, item]")

    def text(self, what: str) -> str:
        """The value as a text that is not empty."""
        if isinstance(self.value, str) and self.value.strip():
            return self.value.strip()
        raise self.fail(f"{what} must be a text, got {self.kind()}", f"give {what} a text, in quotes where in doubt")

    def optional_text(self, what: str) -> str | None:
        """The value as a text, or None for null."""
        return None if self.value is None else self.text(what)

    def expression(self, what: str) -> str:
        """The value as an expression's text: YAML reads `true` and `0.5` as other kinds."""
        if isinstance(self.value, bool):
            return "true" if self.value else "false"
        if isinstance(self.value, int | float):
            return repr(self.value)
        return self.text(what)

    def number(self, what: str) -> float:
        """The value as a finite number."""
        if isinstance(self.value, int | float) and not isinstance(self.value, bool):
            return float(self.value)
        raise self.fail(f"{what} must be a number, got {self.kind()}", f"give {what} a number")

    def verbatim(self, what: str) -> str:
        """A scalar as it is written: a version `1.10` is no number."""
        if self.raw.strip():
            return self.raw.strip()
        raise self.fail(f"{what} must be a text, got {self.kind()}", f"give {what} a text, in quotes where in doubt")

    def kind(self) -> str:
        """What the value is, in words."""
        if isinstance(self.value, dict):
            return "a mapping"
        if isinstance(self.value, tuple):
            return "a list"
        if self.value is None:
            return "nothing"
        shown = repr(self.value)
        return shown if len(shown) <= 60 else shown[:57] + "..."


def nearest(word: str, choices: Iterable[str]) -> str:
    """`; did you mean 'x'?` for the closest choice, else nothing."""
    found = difflib.get_close_matches(word[:200], list(choices), n=1, cutoff=0.6)
    return f"; did you mean {found[0]!r}?" if found else ""


def known_keys(keys: Mapping[str, YNode], allowed: Sequence[str], what: str, hint: str) -> None:
    """Refuses a key of `what` that is none of `allowed`, with its line and the nearest one."""
    for key, node in keys.items():
        if key not in allowed:
            raise DiagnoseError(
                f"{node.file}:{node.key_line}: unknown key {key[:60]!r} in {what}{nearest(key, allowed)}", hint
            )


def read_bytes(path: Path) -> bytes:
    """The content of a regular file within the size limit."""
    hint = f"a pack's files are YAML of at most {MAX_BYTES:,} bytes"
    try:
        info = path.stat()
        if not stat.S_ISREG(info.st_mode):
            raise DiagnoseError(f"{path} is not a regular file", hint)
        if info.st_size > MAX_BYTES:
            raise DiagnoseError(f"{path} has {info.st_size:,} bytes, more than {MAX_BYTES:,}", hint)
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise DiagnoseError(f"{path} cannot be read: {error.strerror}", f"ls -l {path}") from None
    if len(data) > MAX_BYTES:
        raise DiagnoseError(f"{path} has more than {MAX_BYTES:,} bytes", hint)
    return data


def parse_yaml(data: bytes, path: Path) -> YNode:
    """The one document of a YAML file."""
    hint = "correct the YAML; `diagnose rules new NAME` writes a rule to start from"
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise DiagnoseError(f"{path}:{line}: the file is not UTF-8", "save it as UTF-8") from None
    try:
        events = iter(yaml.parse(text, Loader=_LOADER))
        event = next(events)
        while isinstance(event, yaml.StreamStartEvent | yaml.DocumentStartEvent):
            event = next(events)
        if isinstance(event, yaml.StreamEndEvent):
            return YNode(None, path, 1, 1)
        node = _build(event, events, path, 0, None)
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                raise DiagnoseError(f"{path}:{_line(event)}: a second document begins here", "one rule a file")
        return node
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark is not None else 1
        raise DiagnoseError(f"{path}:{line}: not valid YAML: {error.problem or error.context}", hint) from None
    except yaml.YAMLError as error:
        reason = str(error).splitlines()[0]
        raise DiagnoseError(f"{path}:1: not valid YAML: {reason}", hint) from None


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark is not None else 1


def _build(event: yaml.Event, events: Iterator[yaml.Event], path: Path, depth: int, key_line: int | None) -> YNode:
    line = _line(event)
    place = f"{path}:{line}"
    if depth > MAX_DEPTH:
        raise DiagnoseError(f"{place}: nested deeper than {MAX_DEPTH}", "a rule needs far less; flatten it")
    if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
        raise DiagnoseError(f"{place}: anchors and aliases are not allowed in a pack", "write the value out")
    tag = getattr(event, "tag", None)
    if tag is not None and tag != "!":
        raise DiagnoseError(f"{place}: the tag {tag[:60]!r} is not allowed in a pack", "write plain data without tags")
    if isinstance(event, yaml.ScalarEvent):
        plain = event.implicit[0]
        return YNode(_scalar(event.value) if plain else event.value, path, line, key_line or line, event.value)
    if isinstance(event, yaml.SequenceStartEvent):
        items = []
        while not isinstance(event := next(events), yaml.SequenceEndEvent):
            items.append(_build(event, events, path, depth + 1, None))
        return YNode(tuple(items), path, line, key_line or line)
    pairs: dict[str, YNode] = {}
    while not isinstance(event := next(events), yaml.MappingEndEvent):
        key_at = _line(event)
        if not isinstance(event, yaml.ScalarEvent):
            raise DiagnoseError(f"{path}:{key_at}: a key must be a text", "put text that begins with { or [ in quotes")
        key = event.value
        if event.anchor is not None or event.tag not in (None, "!"):
            raise DiagnoseError(f"{path}:{key_at}: anchors and tags are not allowed in a pack", "write plain keys")
        if key in pairs:
            raise DiagnoseError(
                f"{path}:{key_at}: the key {key[:60]!r} stands twice (first on line {pairs[key].key_line})",
                "remove one of them",
            )
        pairs[key] = _build(next(events), events, path, depth + 1, key_at)
    return YNode(pairs, path, line, key_line or line)


def _scalar(text: str) -> Data:
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if len(text) <= 40 and _NUMBER.fullmatch(text):
        value = float(text)
        if math.isfinite(value):
            return int(value) if value.is_integer() and abs(value) < 2**53 else value
    return text
