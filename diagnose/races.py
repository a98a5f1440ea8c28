"""`diagnose check-races PROGRAM`: memory errors, races and misused barriers, before anything is worth timing."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from diagnose import __version__, output
from diagnose.collect import sanitizer
from diagnose.collect.find import find_sanitizer
from diagnose.collect.host import output_of
from diagnose.collect.preflight import resolve_target
from diagnose.collect.sanitizer import Place, ToolRun
from diagnose.commandline import KERNEL_PREFIX
from diagnose.errors import EXIT_GATE, EXIT_NOTHING_MEASURED, EXIT_OK, DiagnoseError
from diagnose.sass.names import short

_MOST_SOURCE_BYTES = 4 << 20
# The manual: "Racecheck support for cuda::barrier", "Racecheck support for asynchronous copy", "What is Synccheck?".
CAVEATS = (
    "racecheck sees shared memory only: races between blocks, and in global memory, stay unseen.",
    (
        "racecheck follows __syncthreads, __syncwarp, cuda::barrier (as many as the compiler counted) and cp.async. "
        "With mbarriers written in PTX, TMA and wgmma a clean result is no proof, and a reported race may be one that "
        "an mbarrier orders: look at the phase and the count of the barrier between the two lines."
    ),
    "Only what this run executed was checked.",
)


@dataclass(frozen=True)
class Job:
    """What is asked for: the program with its arguments, or `kernel:NAME`."""

    target: tuple[str, ...]
    tools: tuple[str, ...]
    kernel: str | None
    sanitizer: str | None
    timeout_s: float | None
    as_json: bool
    color: bool


def run(job: Job) -> int:
    """Runs the tools one after another and prints what they found. Returns the exit code.

    0: all ran and found no error; 1: an error was found; 3: a tool or the program did not reach its end.
    """
    target, folders = _target(job.target)
    program = find_sanitizer(job.sanitizer)
    if program is None:
        raise DiagnoseError(
            "no compute-sanitizer was found on PATH, in CUDA_HOME or in CUDA's usual places",
            "--sanitizer PATH    (it comes with the CUDA toolkit; cuda-sanitizer in NVIDIA's package repository)",
            EXIT_NOTHING_MEASURED,
        )
    runs = []
    for tool in job.tools:
        output.to_stderr(f"{tool}: {program} runs {' '.join(target)}")
        runs.append(sanitizer.run(program, tool, target, job.kernel, job.timeout_s))
    document = _document(job, program, target, runs, folders)
    if job.as_json:
        output.to_stdout(json.dumps(document, indent=1, allow_nan=False) + "\n")
    else:
        from diagnose.render import races

        output.show(lambda console: races.render(document, console), color=job.color)
    if any(hazard["severity"] == "error" for hazard in document["hazards"]):
        return EXIT_GATE
    return EXIT_OK if document["complete"] else EXIT_NOTHING_MEASURED


def _target(words: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[Path, ...]]:
    """The program to run and the folders where its sources may be."""
    if not words[0].startswith(KERNEL_PREFIX):
        found = resolve_target(words)
        return found, (Path.cwd(), Path(found[0]).resolve().parent)
    if len(words) > 1:
        raise DiagnoseError(
            f"{words[0]} takes no arguments, got {' '.join(words[1:])}", f"diagnose check-races {words[0]},param=value"
        )
    from diagnose.collect.kernels import build_kernel, kernel_arguments, parse_spec

    kernel, params = parse_spec(words[0])
    built = build_kernel(kernel, progress=output.to_stderr)
    return (str(built), *kernel_arguments(kernel, params, repeats=0)), (
        kernel.source.parent,
        kernel.source.parent.parent,
    )


def source_line(place: Place, folders: tuple[Path, ...]) -> str | None:
    """The text of a place's line: from the file as the tool names it, else from one of that name in `folders`."""
    if place.file is None or place.line is None:
        return None
    named = Path(place.file)
    for path in (named, *(folder / named.name for folder in folders)):
        try:
            if path.is_absolute() and path.is_file() and path.stat().st_size <= _MOST_SOURCE_BYTES:
                lines = path.read_text("utf-8", "replace").splitlines()
                return lines[place.line - 1].strip()[:200] if 0 < place.line <= len(lines) else None
        except (OSError, ValueError):
            continue
    return None


def _place(place: Place, folders: tuple[Path, ...]) -> dict[str, Any]:
    return {
        "access": place.access,
        "function": place.function,
        "pc": place.pc,
        "file": place.file,
        "line": place.line,
        "source": source_line(place, folders),
    }


def _document(
    job: Job, program: Path, target: tuple[str, ...], runs: list[ToolRun], folders: tuple[Path, ...]
) -> dict[str, Any]:
    version = (output_of([str(program), "--version"]) or "").strip().splitlines()
    return {
        "schema_version": "1",
        "tool": {"name": "diagnose", "version": __version__},
        "sanitizer": {"path": str(program), "version": version[-1] if version else None},
        "command": list(target),
        "complete": all(one.problem is None for one in runs),
        "runs": [
            {
                "tool": one.tool,
                "errors": one.errors,
                "warnings": one.warnings,
                "exit": one.exit_code,
                "seconds": round(one.seconds, 2),
                "problem": one.problem,
                "notes": list(one.notes),
            }
            for one in runs
        ],
        "hazards": [
            {
                "tool": hazard.tool,
                "severity": hazard.severity,
                "message": hazard.message,
                "count": hazard.count,
                "places": [_place(place, folders) for place in hazard.places],
                "details": list(hazard.details),
            }
            for one in runs
            for hazard in one.hazards
        ],
        "caveats": list(CAVEATS),
    }


# --- beside a profile: `diagnose --races FILE …` ---

_MOST_FILE_BYTES = 32 << 20
_CHECK = "diagnose check-races --format json PROGRAM > races.json"


def read(path: Path) -> dict[str, Any]:
    """What `check-races --format json` wrote. Raises DiagnoseError where the file is something else."""
    try:
        if path.stat().st_size > _MOST_FILE_BYTES:
            raise DiagnoseError(f"--races {path} is larger than any list of hazards", _CHECK)
        found = json.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, ValueError, RecursionError) as error:
        why = getattr(error, "strerror", None) or error
        raise DiagnoseError(f"--races {path} cannot be read: {why}", _CHECK) from None
    if not isinstance(found, dict) or not isinstance(found.get("sanitizer"), dict) or "hazards" not in found:
        raise DiagnoseError(f"--races {path} is no output of check-races", _CHECK)
    return found


def _hazards(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    hazards = document.get("hazards")
    return [one for one in hazards if isinstance(one, Mapping)] if isinstance(hazards, list) else []


def _places(hazard: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    places = hazard.get("places")
    return [one for one in places if isinstance(one, Mapping)] if isinstance(places, list) else []


def _same_function(place: Mapping[str, Any], kernel: Mapping[str, Any]) -> bool:
    """By the whole name without blanks; by the short one where one of the two is mangled or cut."""
    function = place.get("function")
    if not isinstance(function, str):
        return False
    names = [str(kernel.get(key) or "") for key in ("demangled", "name")]
    return "".join(function.split()) in ["".join(name.split()) for name in names] or short(function) == names[1]


def _in_code(place: Mapping[str, Any], kernel: Mapping[str, Any]) -> str | None:
    """The address of the place in the profiled kernel: its own where the code there has the same source line (or no
    line is known), else the first instruction of that line. None where the report holds no code of it."""
    code = kernel.get("code")
    if not isinstance(code, Mapping):
        return None
    files = [str(one.get("file") or "") for one in code.get("files") or ()]
    wanted = PurePosixPath(str(place.get("file") or "")).name, place.get("line")
    lines = {}
    for pc, _, _, _, _, file, line in code.get("lines") or ():
        lines[pc] = (PurePosixPath(files[file]).name if file is not None else "", line)
    pc = _plain(place.get("pc"))
    if pc in lines and (not wanted[0] or lines[pc] == wanted):
        return pc
    return next((at for at, there in lines.items() if wanted[0] and there == wanted), None)


def _plain(pc: object) -> str | None:
    """0x000000e0 as 0xe0, the way the report writes addresses."""
    try:
        return hex(int(pc, 16)) if isinstance(pc, str) else None
    except ValueError:
        return None


def attach(document: Mapping[str, Any], paths: Sequence[Path]) -> dict[str, Any]:
    """The document with the hazards that compute-sanitizer found in its kernels: `kernels[].hazards`, each place with
    `at`, the address in the profiled code. Hazards of other kernels are a warning."""
    if not paths:
        return dict(document)
    checked = [read(path) for path in paths]
    hazards = [one for each in checked for one in _hazards(each)]
    matched: set[int] = set()
    kernels = []
    for kernel in document["kernels"]:
        own = []
        for number, hazard in enumerate(hazards):
            places = _places(hazard)
            if any(_same_function(place, kernel) for place in places):
                matched.add(number)
                own.append({**hazard, "places": [{**place, "at": _in_code(place, kernel)} for place in places]})
        kernels.append({**kernel, "hazards": own} if own else kernel)
    told = list(document["warnings"])
    for kernel in kernels:
        errors = sum(one.get("severity") == "error" for one in kernel.get("hazards", ()))
        if errors:
            line = f"compute-sanitizer found {errors} kind(s) of error in {kernel['name']}: right first, then fast"
            told += [line] if line not in told else []
    if len(matched) < len(hazards):
        told.append(f"{len(hazards) - len(matched)} hazard(s) of --races are in no kernel of this report")
    told += [f"--races {path} is no proof: a tool did not reach its end"
             for path, one in zip(paths, checked, strict=True) if one.get("complete") is not True]  # fmt: skip
    return {**document, "warnings": told, "kernels": kernels, "races": {"caveats": list(CAVEATS)}}
