"""Findings and the studies that test them: which study, and what its outcome says where it has run on this kernel.

A study names the rules that it tests. Its result (the JSON of `diagnose ablate`) belongs to a finding where it tested
the finding's rule on the finding's kernel: improved means that the cause is confirmed, not improved that it is refuted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from diagnose.ablate import study as studies
from diagnose.errors import DiagnoseError
from diagnose.packfile import parse_yaml, read_bytes


def tested(packs: Sequence[Path] = ()) -> dict[str, str]:
    """Rule -> the study that tests it. Reads nothing but `tests`: a report needs no kernels.

    Of several the one with the shortest name: `fusion-epilogue` is a special case of `fusion`.
    """
    found: dict[str, str] = {}
    for name, path in sorted(studies.files(packs).items(), key=lambda item: (len(item[0]), item[0])):
        keys = parse_yaml(read_bytes(path), path).mapping("a study")
        for rule in keys["tests"].items("tests") if "tests" in keys else ():
            found.setdefault(rule.text("tests"), name)
    return found


def read(paths: Sequence[Path]) -> list[dict[str, Any]]:
    """The results in these files and folders, the newest first. Raises for a file that is none."""
    if not paths:
        return []
    from diagnose.ablate import document as results  # late: it brings numpy

    found = []
    for path in paths:
        if path.is_dir():
            files = sorted(path.glob("*.json"))
            if not files:
                raise DiagnoseError(f"{path} holds no study's JSON", "diagnose ablate STUDY    (writes one)")
            found += [results.read(file) for file in files]
        else:
            found.append(results.read(path))
    return sorted(found, key=lambda one: str(one["run"]["date"]), reverse=True)


def attach(
    document: Mapping[str, Any], recorded: Sequence[Mapping[str, Any]] = (), packs: Sequence[Path] = ()
) -> dict[str, Any]:
    """The document with `study` beside each next experiment that a study tests: its name, command and outcome.

    `outcome` is None where no result is of this kernel (by its function's name) and of a GPU of the document.
    """
    tests = tested(packs)
    gpus = {device.get("name") for device in document["devices"]}
    kernels = []
    for kernel in document["kernels"]:
        findings = []
        for finding in kernel["findings"]:
            own = [one for one in recorded if _is_of(one, kernel, finding["rule"], gpus)]
            name = str(own[0]["study"]["id"]) if own else tests.get(finding["rule"])
            if name is not None:
                told = {"name": name, "command": _command(name), "outcome": _outcome(own[0]) if own else None}
                finding = {**finding, "next_experiment": {**finding["next_experiment"], "study": told}}
            findings.append(finding)
        kernels.append({**kernel, "findings": findings})
    return {**document, "kernels": kernels}


def _command(name: str) -> str:
    if name.startswith("sweep-"):
        variable = name.removeprefix("sweep-")
        return f"diagnose ablate --sweep {variable}=… -- PROGRAM {{{variable}}}"
    return f"diagnose ablate {name}"


def _is_of(result: Mapping[str, Any], kernel: Mapping[str, Any], rule: str, gpus: set[Any]) -> bool:
    study = result["study"]
    names = [str(one["function"] or one["name"]) for one in study["variants"]]
    if rule not in study["tests"] or (result["run"]["gpu"] is not None and result["run"]["gpu"] not in gpus):
        return False
    return any(_matches(name, str(kernel["name"])) for name in names)


def _matches(wanted: str, name: str) -> bool:
    """A function's name or, of a bundled library kernel or `regex:EXPR`, an expression over all of it."""
    try:
        return wanted == name or re.fullmatch(wanted.removeprefix("regex:"), name) is not None
    except re.error:
        return False


def _outcome(result: Mapping[str, Any]) -> dict[str, Any]:
    conclusion = result["conclusion"]
    decided = conclusion["decided_by"] or {}
    return {
        "status": conclusion["status"],
        "gain": decided.get("gain"),
        "low": decided.get("low"),
        "high": decided.get("high"),
        "at": decided.get("value"),
        "variant": decided.get("variant"),
        "gpu": result["run"]["gpu"],
        "date": result["run"]["date"],
    }
