"""The table of data paths (`paths.yaml`): which opcodes, modifiers and operands prove which path of the contract."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import yaml

from diagnose.sass.text import matches, parse

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class PathEntry:
    """One row: an opcode prefix with modifiers asked for (`any`) and ruled out (`none`), and the sources that prove it.

    `text` is a pattern of the whole instruction, for what the opcode alone does not say; `beyond` are base opcodes that
    do not count as a use: its result has to reach another one. `proof` maps a source of tests/sass_sources to the
    targets for which it was compiled and found.
    """

    path: str
    opcode: str
    any: frozenset[str]
    none: frozenset[str]
    text: re.Pattern[str] | None
    addresses: frozenset[str]
    proof: Mapping[str, tuple[str, ...]]
    note: str

    def proves(self, opcode: str, text: str | None = None) -> bool:
        """Whether an instruction proves the path; without `text`, an entry that needs it proves nothing."""
        if not matches(opcode, self.opcode):
            return False
        parts = set(opcode.split("."))
        if (self.any and not self.any & parts) or self.none & parts:
            return False
        return self.text is None or (text is not None and self.text.search(text) is not None)

    @property
    def pattern(self) -> str:
        """The row's condition in words that a table can show."""
        words = self.opcode
        words += f" with {' or '.join(sorted(self.any))}" if self.any else ""
        words += f" without {' or '.join(sorted(self.none))}" if self.none else ""
        words += f" and operands `{self.text.pattern}`" if self.text else ""
        return words + (f", as an address of {', '.join(sorted(self.addresses))}" if self.addresses else "")


@cache
def entries() -> tuple[PathEntry, ...]:
    """Every row of the table."""
    text = Path(__file__).with_name("paths.yaml").read_text(encoding="utf-8")
    rows: list[dict[str, Any]] = yaml.load(text, Loader=_LOADER)["paths"]
    return tuple(
        PathEntry(
            path=row["path"],
            opcode=row["opcode"],
            any=frozenset(row.get("any", ())),
            none=frozenset(row.get("none", ())),
            text=re.compile(row["text"]) if "text" in row else None,
            addresses=frozenset(row.get("addresses", ())),
            proof={name: tuple(targets) for name, targets in row["proof"].items()},
            note=row.get("note", ""),
        )
        for row in rows
    )


@cache
def _by_base() -> Mapping[str, tuple[PathEntry, ...]]:
    table: dict[str, list[PathEntry]] = {}
    for entry in entries():
        table.setdefault(entry.opcode.split(".", 1)[0], []).append(entry)
    return {base: tuple(rows) for base, rows in table.items()}


@lru_cache(maxsize=8192)
def of_opcode(opcode: str) -> frozenset[str]:
    """The paths that an opcode proves without its operands."""
    rows = _by_base().get(opcode.split(".", 1)[0], ())
    return frozenset(row.path for row in rows if row.proves(opcode))


def of_opcodes(opcodes: Iterable[str]) -> tuple[str, ...]:
    """Sorted path names that the opcodes prove."""
    return tuple(sorted({path for opcode in opcodes for path in of_opcode(opcode)}))


def of_code(instructions: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Sorted path names that (opcode, instruction text) pairs in the order of the code prove, operands included."""
    code = list(instructions)
    found: set[str] = set()
    for at, (opcode, text) in enumerate(code):
        rows = _by_base().get(opcode.split(".", 1)[0])
        if rows:
            found.update(
                row.path
                for row in rows
                if row.path not in found
                and row.proves(opcode, text)
                and (not row.addresses or _is_address(code, at, row.addresses))
            )
    return tuple(sorted(found))


_FOLLOWED = 256  # instructions over which a result is followed: address arithmetic stands near its use
_REGISTER = re.compile(r"U?R\d+")
_CARRY = frozenset({"MOV", "IADD3", "IADD", "VIADD", "LEA", "IMAD", "UMOV", "R2UR", "SEL", "UIADD3"})


def _is_address(code: Sequence[tuple[str, str]], at: int, bases: frozenset[str]) -> bool:
    """Whether the result of `code[at]`, also moved or added to, is an address of an instruction of one of `bases`."""
    first = parse(code[at][1])
    if first is None:
        return False
    held = set(first.destinations)
    for _, text in code[at + 1 : at + 1 + _FOLLOWED]:
        parsed = parse(text)
        if parsed is None:
            continue
        if parsed.sources & held:
            if parsed.base in _CARRY:
                held |= parsed.destinations
                continue
            if parsed.base in bases and held & set(_REGISTER.findall(text[text.find("[") + 1 : text.rfind("]")])):
                return True
        if parsed.predicate in (None, first.predicate):  # under another predicate the old value may live on
            held -= parsed.destinations
        if not held:
            break
    return False


def names() -> Sequence[str]:
    """Every path name in the table, sorted."""
    return sorted({entry.path for entry in entries()})
