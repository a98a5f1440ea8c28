"""Configuration: `diagnose.toml`, or `[tool.diagnose]` in pyproject.toml, of this folder or one above it.

packs = ["perf/rules"]          folders of rules, relative to the file; "installed:NAME" is an installed package's
disable = ["slow-math"]         rules that are not asked
fail-on = ["critical"]          gates, as --fail-on
baseline = "perf/main.json"     as --baseline, relative to the file

[collect]                       live runs, as the options of these names; docs/collection.md
mode = "deep"                   adaptive, deep or single-pass
survey = "none"
top = 20
coverage = 0.9
stop = true                     or false, as --stop and --no-stop

[[accept]]                      a finding to live with: see diagnose/accept.py
finding = "uncoalesced"
kernel = "row_reduce*"
reason = "rewrite planned"
owner = "@kernel-team"
expires = 2027-02-28

[[budget]]                      what kernels owe: see diagnose/budget.py
kernel = "gemm*"
max_duration = "120 us"
must_use = ["wgmma"]
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from diagnose import accept, budget
from diagnose.errors import DiagnoseError
from diagnose.packfile import nearest

KEYS = ("packs", "disable", "fail-on", "baseline", "collect", "accept", "budget")
NAME = "diagnose.toml"
_MAX_BYTES = 1_000_000


@dataclass(frozen=True)
class Collect:
    """How live runs are profiled, unless an option says otherwise."""

    mode: str | None = None
    survey: str | None = None
    top: int | None = None
    coverage: float | None = None
    stop: bool | None = None


@dataclass(frozen=True)
class Config:
    """What the configuration says; `file` is None where there is none."""

    file: Path | None = None
    packs: tuple[Path, ...] = ()
    disable: tuple[str, ...] = ()
    fail_on: tuple[str, ...] = ()
    baseline: Path | None = None
    accepted: tuple[accept.Accepted, ...] = ()
    budgets: tuple[budget.Budget, ...] = ()
    warnings: tuple[str, ...] = ()
    collect: Collect = field(default_factory=Collect)


def load(named: Path | None, folder: Path | None = None) -> Config:
    """The configuration of `named` (the only one then), else of the nearest file at or above `folder`."""
    if named is not None:
        table = _read(named)
        section = table.get("tool", {}).get("diagnose") if named.name == "pyproject.toml" else table
        return _checked(named, section if section is not None else {})
    for place in (start := (folder or Path.cwd()).absolute(), *start.parents):
        if (place / NAME).is_file():
            return _checked(place / NAME, _read(place / NAME))
        project = place / "pyproject.toml"
        if project.is_file() and "tool.diagnose" in _text(project):
            tool = _read(project).get("tool")
            if isinstance(tool, dict) and "diagnose" in tool:
                return _checked(project, tool["diagnose"])
        if (place / ".git").exists():  # what lies above a repository belongs to somebody else
            break
    return Config()


def _text(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            data = stream.read(_MAX_BYTES + 1)
        if len(data) > _MAX_BYTES:
            raise DiagnoseError(f"{file} is longer than {_MAX_BYTES:,} bytes", "name another one: --config FILE")
        return data.decode("utf-8")
    except OSError as error:
        raise DiagnoseError(f"{file} cannot be read: {error.strerror or error}", f"ls -l {file}") from None
    except UnicodeDecodeError as error:
        raise DiagnoseError(f"{file} is no UTF-8 text: {error.reason}", "save it as UTF-8") from None


def _read(file: Path) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        return tomllib.loads(_text(file))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise DiagnoseError(f"{file} is no TOML: {error}", "the format is explained at https://toml.io") from None


def _texts(file: Path, key: str, value: object) -> tuple[str, ...]:
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, list) or not all(isinstance(one, str) and one for one in values):
        raise DiagnoseError(f"{file}: {key} must be a list of texts, got {value!r}", f'write {key} = ["…"]')
    return tuple(values)


def _checked(file: Path, section: object) -> Config:
    if not isinstance(section, Mapping):
        raise DiagnoseError(f"{file}: tool.diagnose is no table", "write it as [tool.diagnose]")
    for key in section:
        if key not in KEYS:
            raise DiagnoseError(f"{file}: unknown key {key!r}{nearest(str(key), KEYS)}", f"it takes {', '.join(KEYS)}")
    baseline = section.get("baseline")
    if baseline is not None and (not isinstance(baseline, str) or not baseline):
        raise DiagnoseError(f"{file}: baseline must name a file, got {baseline!r}", 'write baseline = "perf/main.json"')
    return Config(
        file,
        tuple(
            Path(name) if name.startswith("installed:") else file.parent / name
            for name in _texts(file, "packs", section.get("packs", []))
        ),
        _texts(file, "disable", section.get("disable", [])),
        _texts(file, "fail-on", section.get("fail-on", [])),
        file.parent / baseline if baseline is not None else None,
        accept.read(str(file), section.get("accept", [])),
        budget.read(str(file), section.get("budget", [])),
        collect=_collect(file, section.get("collect", {})),
    )


_COLLECT_CHOICES = {
    "mode": ("adaptive", "deep", "single-pass"),
    "survey": ("auto", "cupti", "nsys", "ncu", "none"),
}


def _collect(file: Path, table: object) -> Collect:
    keys = (*_COLLECT_CHOICES, "top", "coverage", "stop")
    if not isinstance(table, Mapping):
        raise DiagnoseError(f"{file}: collect is no table", "write it as [collect]")
    for key, value in table.items():
        if key not in keys:
            raise DiagnoseError(
                f"{file}: unknown key collect.{key}{nearest(str(key), keys)}", f"it takes {', '.join(keys)}"
            )
        choices = _COLLECT_CHOICES.get(key)
        if choices and value not in choices:
            raise DiagnoseError(f"{file}: collect.{key} is {value!r}", f"it is one of {', '.join(choices)}")
        if key == "top" and (type(value) is not int or value < 1):
            raise DiagnoseError(f"{file}: collect.top must be a whole number from 1 on, got {value!r}", "top = 20")
        if key == "coverage" and (type(value) not in (int, float) or not 0 < value <= 1):
            raise DiagnoseError(f"{file}: collect.coverage must be a share, got {value!r}", "coverage = 0.95")
        if key == "stop" and type(value) is not bool:
            raise DiagnoseError(f"{file}: collect.stop must be true or false, got {value!r}", "stop = true")
    return Collect(**table)
