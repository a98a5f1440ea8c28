"""`--redact`: takes host names, user paths, command arguments and source text out of a document, for every format.

Kernel names, metrics and the texts of rules stay. The kept profile (`.ncu-rep`) is ncu's own file and is not changed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

REMOVED = "[redacted]"
# Texts that rules and the tool wrote: they hold nothing of the user's.
_OURS = {
    "schema_version", "tool", "packs", "ceilings", "rule_pages", "why", "references", "next_experiment", "class",
    "severity", "unit", "op", "id", "group", "workload", "paths", "arch",
}  # fmt: skip
# A path: at least two components from a root, a home or a drive; a unit such as byte/s or I/O is none.
_PATH = re.compile(
    r"(?<![\w.:/\\<>&=])(?:file://)?"
    r"(?:~[\w.-]*(?=/)|[A-Za-z]:(?=[\\/])|\.{1,2}(?=/))?"
    r"(?:(?:/+[^\s/:;,'\"()<>|*?\[\]{}]+)+|(?:\\+[^\s\\/:;,'\"()<>|*?\[\]{}]+)+)[\\/]*"
)
_SHORTEST_ARGUMENT = 3


def base_name(path: str) -> str:
    """The last component of a path of any system."""
    return re.split(r"[\\/]+", path.rstrip("\\/"))[-1]


class Redactor:
    """Cleans texts of what it was told: hosts, and arguments of the command lines."""

    def __init__(self, hosts: Iterable[str] = (), arguments: Iterable[str] = ()) -> None:
        words = {host for host in hosts if host}
        words |= {argument for argument in arguments if len(argument) >= _SHORTEST_ARGUMENT}
        ordered = sorted(words, key=lambda word: (-len(word), word))
        pattern = "|".join(re.escape(word) for word in ordered)
        self._words = re.compile(rf"(?<![\w-])(?:{pattern})(?![\w-])") if ordered else None

    def text(self, text: str) -> str:
        """A message without the words, and with only the last component of each path."""
        return self.paths(self._words.sub(REMOVED, text) if self._words is not None else text)

    def paths(self, text: str) -> str:
        """`text` with only the last component of each path."""
        return _PATH.sub(lambda match: base_name(match[0]) or match[0], text) if "/" in text or "\\" in text else text


def _command(command: str) -> str:
    """The program of a command line without its arguments."""
    match = re.match(r'\s*(?:"([^"]*)"|(\S+))', command)
    program = (match[1] or match[2]) if match else ""
    return f"{base_name(program)} {REMOVED}".strip()


def command_words(command: str) -> list[str]:
    """The arguments of a command line that are the user's: not the names and values of ncu's own options."""
    words = re.findall(r'"[^"]*"|\S+', command)[1:]
    found: list[str] = []
    for word in words:
        plain = word.strip('"')
        if plain.startswith("-"):
            if "=" in plain:
                found.append(plain.partition("=")[2])
            continue
        if plain not in _COMMON:
            found += [plain, base_name(plain)] if "/" in plain or "\\" in plain else [plain]
    return found


# Values of ncu's options and names of launchers, which say nothing of the user and stand in many sentences.
_COMMON = {
    "all", "base", "none", "full", "yes", "no", "on", "off", "basic", "detailed", "kernel", "application", "range",
    "auto", "function", "demangled", "global", "node", "graph", "python", "python3", "mpirun", "srun", "torchrun",
    "SourceCounters", "SpeedOfLight", "LaunchStats", "Occupancy", "InstructionStats", "application-only", "app-range",
}  # fmt: skip


def document(source: Mapping[str, Any], arguments: Sequence[str] = ()) -> dict[str, Any]:
    """A copy of the document without what identifies the user; `arguments` are those of a live run's target."""
    runs = source.get("runs") or []
    hosts = [run["host"] for run in runs if isinstance(run.get("host"), str)]
    words = [word for run in runs if isinstance(run.get("command"), str) for word in command_words(run["command"])]
    kept_names = {kernel.get("name") for kernel in source.get("kernels") or []}
    redactor = Redactor(hosts, [word for word in (*words, *arguments) if word not in kept_names])
    result: dict[str, Any] = _cleaned(source, redactor)
    result["runs"] = [
        {
            **_cleaned(run, redactor),
            "source": base_name(run["source"]) if isinstance(run.get("source"), str) else run.get("source"),
            "command": _command(run["command"]) if isinstance(run.get("command"), str) else None,
            "host": None,
        }
        for run in runs
    ]
    return result


def without_source(source: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of the document without source text; file names and lines stay."""
    kernels = [
        {
            **kernel,
            "hot": [{**row, "source": None} for row in kernel.get("hot") or []],
            **({"code": _code(kernel["code"], lambda name: name)} if kernel.get("code") else {}),
        }
        for kernel in source.get("kernels") or []
    ]
    return {**source, "kernels": kernels}


def _code(code: Mapping[str, Any], name: Callable[[str], str]) -> dict[str, Any]:
    """A kernel's code without source text. The instructions are the compiler's and stay."""
    return {**code, "files": [{"file": name(one["file"]), "text": None} for one in code["files"]]}


def _cleaned(value: Any, redactor: Redactor) -> Any:
    if isinstance(value, str):
        return redactor.paths(value)
    if isinstance(value, Mapping):
        return {
            key: [redactor.text(text) for text in item]
            if key == "warnings"  # messages may name arguments; in other texts a number is not an argument
            else None
            if key == "source" and _is_code(value)
            else _code(item, base_name)
            if key == "code" and isinstance(item, Mapping)
            else None
            if key == "host"
            else item
            if key in _OURS
            else base_name(item)
            if key == "file" and isinstance(item, str)
            else _cleaned(item, redactor)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_cleaned(item, redactor) for item in value]
    return value


def _is_code(row: Mapping[str, Any]) -> bool:
    """Whether a row's `source` is program text (beside an address) and not where a number comes from."""
    return "pc" in row
