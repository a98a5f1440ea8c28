"""Runs a program under compute-sanitizer, one tool at a time, and reads what the tool wrote.

The text log is read, not the XML: every version writes it and it names the same things. It goes to a file of its own
(`--log-file`), so that the program's output cannot be taken for it. Formats: NVIDIA's Compute Sanitizer user manual,
"Understanding Memcheck Errors", "Understanding Racecheck Analysis Reports", "Understanding Synccheck Reports".
"""

from __future__ import annotations

import re
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from diagnose.collect.process import kill_tree

TOOLS = ("memcheck", "racecheck", "synccheck")
_MOST_LOG_BYTES = 32 << 20  # 100 reports (the tool's --print-limit) have well under 1 MB; the rest is not ours to read
_MOST_TEXT = 2000


@dataclass(frozen=True)
class Place:
    """Where an access or a call stands. `file` and `line` are None without -lineinfo."""

    access: str
    function: str
    pc: str | None
    file: str | None
    line: int | None


@dataclass(frozen=True)
class Hazard:
    """One report, or several that differ only by thread. `count`: hazards of a race, else reports."""

    tool: str
    severity: str
    message: str
    places: tuple[Place, ...]
    details: tuple[str, ...]
    count: int


@dataclass(frozen=True)
class ToolRun:
    """One tool's run. `errors` and `warnings` are its own summary's, None where it wrote none.

    `problem` says why the run is no proof: the tool or the program did not reach its end.
    """

    tool: str
    errors: int | None
    warnings: int | None
    exit_code: int | None
    seconds: float
    hazards: tuple[Hazard, ...]
    notes: tuple[str, ...]
    problem: str | None


_PREFIX = re.compile(r"^=========(?: |$)")
_RACE = re.compile(r"(?P<level>\w+): Race reported between (?P<accesses>.+)", re.IGNORECASE)
_AND = re.compile(r"\s+and (?=\w+ access at\b)", re.IGNORECASE)
_ACCESS = re.compile(r"(?P<access>\w+) access at (?P<place>.+?)(?: \[(?P<count>\d+) hazards?\])?", re.IGNORECASE)
_SUMMARY = re.compile(
    r"(?:RACECHECK SUMMARY: \d+ hazards? displayed \((?P<races>\d+) errors?, (?P<warnings>\d+) warnings?\)"
    r"|(?<!LEAK )ERROR SUMMARY: (?P<errors>\d+) errors?$)"
)
# `kernel(int *)+0xf0 in /a/b.cu:12`, the file by -lineinfo; once `0xf0 in b.cu:12:kernel(int*)`.
_PLACE = re.compile(r"(?P<function>.+?)(?:[+:](?P<pc>0x[0-9a-f]+))?(?: in (?P<file>.+?):(?P<line>\d+))?", re.IGNORECASE)
_OLD_PLACE = re.compile(r"(?P<pc>0x[0-9a-f]+) in (?:(?P<file>.+?):(?P<line>\d+):)?(?P<function>.+)$", re.IGNORECASE)
_LEVELS = {"error": "error", "fatal": "error", "warning": "warning", "warn": "warning", "info": "note"}
# What the tool says about itself or the program, in lines that begin a report or stand alone.
_NOTE = re.compile(
    r"COMPUTE-SANITIZER|CUDA-MEMCHECK|Target application|Error: |Warning: |Internal |.*SUMMARY:|.* not printed|"
    r"No attachable|If the target|The application|Please|Unable|Process ID",
    re.IGNORECASE,
)
_HEADINGS = re.compile(r"COMPUTE-SANITIZER|CUDA-MEMCHECK|.*SUMMARY:|Process ID", re.IGNORECASE)
_BAD_NOTE = re.compile(r"Error: |Internal |No attachable|Target application terminated|Unable", re.IGNORECASE)


def _place(access: str, text: str) -> Place:
    found = _OLD_PLACE.fullmatch(text) or _PLACE.fullmatch(text)
    if found is None:
        return Place(access, text[:_MOST_TEXT], None, None, None)
    line = found["line"]
    function = found["function"].strip()[:_MOST_TEXT]
    return Place(access, function, found["pc"], found["file"], int(line) if line and len(line) < 9 else None)


def _reports(log: str) -> list[list[str]]:
    """The log's lines by report: a line, and the indented ones under it."""
    found: list[list[str]] = []
    for raw in log.splitlines():
        prefix = _PREFIX.match(raw)
        if prefix is None:
            continue
        line = raw[prefix.end() :].rstrip()
        if not line:
            continue
        if found and (line.startswith("  ") or re.match(r"and \w+ access at\b", line)):
            found[-1].append(line.strip())
        else:
            found.append([line.strip()])
    return found


def _race(level: str, accesses: str) -> Hazard:
    places: list[Place] = []
    count = 0
    for part in _AND.split(accesses):
        if found := _ACCESS.fullmatch(part.strip()):
            places.append(_place(found["access"].lower(), found["place"]))
            count += int(found["count"] or 0)
    message = f"race: {', '.join(one.access for one in places)}"
    return Hazard("racecheck", _LEVELS.get(level.lower(), "error"), message, tuple(places), (), max(count, 1))


def _violation(tool: str, lines: Sequence[str]) -> Hazard:
    places: list[Place] = []
    details: list[str] = []
    for line in lines[1:]:
        if line.startswith("at "):
            places.append(_place("at", line[3:]))
        elif line.startswith("Device Frame:"):
            places.append(_place("called from", line.removeprefix("Device Frame:").strip()))
        elif not line.startswith(("Host Frame:", "Saved host backtrace", "in ")):
            details.append(line[:_MOST_TEXT])
    return Hazard(tool, "error", lines[0][:_MOST_TEXT], tuple(places), tuple(details), 1)


def read_log(tool: str, log: str) -> tuple[tuple[Hazard, ...], tuple[str, ...], int | None, int | None]:
    """Hazards, the tool's notes, and the numbers of errors and warnings of its summary (None: it wrote none)."""
    merged: dict[tuple[object, ...], Hazard] = {}
    notes: list[str] = []
    errors = warnings = None
    for lines in _reports(log):
        if summary := _SUMMARY.search(lines[0]):
            # One summary a process; a program with children has several.
            errors = (errors or 0) + int(summary["races"] or summary["errors"] or 0)
            warnings = (warnings or 0) + int(summary["warnings"] or 0)
        if race := _RACE.match(" ".join(lines)):
            hazard = _race(race["level"], race["accesses"])
        elif _NOTE.match(lines[0]):
            if not _HEADINGS.match(lines[0]):
                notes.append(lines[0][:_MOST_TEXT])
            continue
        else:
            hazard = _violation(tool, lines)
        key = (hazard.severity, hazard.message, hazard.places)
        before = merged.get(key)
        merged[key] = replace(before, count=before.count + hazard.count) if before else hazard
    return tuple(merged.values()), tuple(dict.fromkeys(notes)), errors, warnings


def command(sanitizer: Path, tool: str, log: Path, target: Sequence[str], kernel: str | None) -> tuple[str, ...]:
    """The command line. Whole paths, so that source lines are found; `kernel` is a part of the names to check."""
    chosen = ("--kernel-name", f"kernel_substring={kernel}") if kernel else ()
    return (str(sanitizer), "--tool", tool, "--log-file", str(log), "--strip-paths", "no", *chosen, *target)


def run(sanitizer: Path, tool: str, target: Sequence[str], kernel: str | None, timeout_s: float | None) -> ToolRun:
    """Runs the program under one tool. The program's stdout and stderr go to stderr; its stdin is empty."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="diagnose-") as folder:
        log = Path(folder) / "log"
        code: int | None
        with subprocess.Popen(
            command(sanitizer, tool, log, target, kernel), stdin=subprocess.DEVNULL, stdout=2
        ) as child:
            try:
                code = child.wait(timeout_s)
            except BaseException as error:
                kill_tree(child.pid)
                if not isinstance(error, subprocess.TimeoutExpired):
                    raise
                code = None
        try:
            with log.open("rb") as file:
                text = file.read(_MOST_LOG_BYTES).decode("utf-8", "replace")
        except FileNotFoundError:
            text = ""
    hazards, notes, errors, warnings = read_log(tool, text)
    if errors and not any(one.severity == "error" for one in hazards):
        message = f"{errors} errors that this version of diagnose cannot read"
        hazards = (*hazards, Hazard(tool, "error", message, (), (), errors))
    return ToolRun(
        tool=tool,
        errors=errors,
        warnings=warnings,
        exit_code=code,
        seconds=time.monotonic() - began,
        hazards=hazards,
        notes=notes,
        problem=_problem(code, errors, notes, timeout_s),
    )


def _problem(code: int | None, errors: int | None, notes: Sequence[str], timeout_s: float | None) -> str | None:
    if code is None:
        return f"no end within {timeout_s:g} s"
    said = next((note for note in notes if _BAD_NOTE.match(note)), None)
    if errors is None:
        return f"no summary was written (exit status {code})" + (f": {said}" if said else "")
    if errors == 0 and (code or said):
        # Seen with racecheck: 0 hazards in the summary of a program that had crashed before its kernels.
        return f"the program ended with exit status {code}" + (f" ({said})" if said else "")
    return None
