"""What the page shows of a kernel's staircase and operator, and of the program's Amdahl table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from diagnose.render import format as fmt
from diagnose.render import geometry, view

_KERNELS = 8  # rows of the program's table; the JSON has more
_QUESTIONS = ("Tile", "Reuse", "Overlap", "Critical path")  # the four questions in short: a page may hold 1,000 of them
_KIND = {"white-paper": "bound", "micro-benchmark": "bound", "library": "bound", "kernel": "measured"}


def _because(entry: Mapping[str, Any]) -> str:
    """ "1.20×: the SM clock under the boost clock 1.13×"; empty where the two steps are equal."""
    factor = fmt.number(entry.get("factor"))
    if factor is None:
        return ""
    causes = []
    for cause in view.objects(entry.get("because")):
        by = fmt.number(cause.get("factor"))
        causes.append(f"{cause.get('what')} {fmt.times(by)}" if by is not None else str(cause.get("what")))
    return f"{fmt.times(factor)}" + (f": {'; '.join(causes)}" if causes else "")


def chart(data: Mapping[str, Any]) -> dict[str, Any] | None:
    """The steps with their bars, each with what separates it from the one before."""
    stairs = view.mapping(data.get("staircase"))
    steps = [step for step in view.objects(stairs.get("steps")) if fmt.number(step.get("us")) is not None]
    if not steps:
        return None
    full = max(float(step["us"]) for step in steps)
    between = {entry.get("to"): _because(entry) for entry in view.objects(stairs.get("between"))}
    rows = [
        {
            "label": view.text(step.get("label")) or "step",
            "kind": _KIND.get(str(step.get("step")), "bound"),
            "us": step["us"],
            "width": geometry.bar(step["us"], full),
            "inner": geometry.bar(step.get("explained_us"), full),
            "because": between.get(step.get("step"), ""),
            "limit": _limit(step),
        }
        for step in steps
    ]
    return {"rows": rows, "whole": _whole(view.mapping(stairs.get("end_to_end")))}


def _limit(step: Mapping[str, Any]) -> str:
    """What the step's time comes from."""
    if fmt.number(step.get("rate")) is not None:
        rate = fmt.quantity(step["rate"], step.get("rate_unit"))
        return f"{fmt.resource(step.get('resource'))} at {rate}, {step.get('source')}"
    explained = fmt.number(step.get("explained_us"))
    if explained is not None:
        return f"{step.get('source')}; {fmt.resource(step.get('explained_by'))} explains {fmt.duration(explained)}"
    return str(step.get("source"))


def _whole(entry: Mapping[str, Any]) -> str | None:
    share = fmt.number(entry.get("share"))
    if share is None:
        return None
    said = f"End to end it is {fmt.share(share)} of the GPU time profiled"
    fix, limit = fmt.number(entry.get("with_fix")), fmt.number(entry.get("at_limit"))
    if fix is not None:
        said += f"; its verdict's fix makes the whole {fmt.times(fix)}"
    if limit is not None:
        said += f"; at the micro-benchmark's time {fmt.times(limit)}"
    return said + "."


def operator(data: Mapping[str, Any]) -> dict[str, Any] | None:
    """The family with the four questions that have an answer."""
    found = view.mapping(data.get("operator"))
    if not view.text(found.get("title")):
        return None
    asked = zip(_QUESTIONS, view.objects(found.get("questions")), strict=False)
    return {**found, "questions": [(short, one["answer"]) for short, one in asked if view.text(one.get("answer"))]}


def program(document: Mapping[str, Any], every: Sequence[view.KernelView]) -> dict[str, Any] | None:
    """The table of a program of several kernels; None for one kernel alone, whose own part says it all. `every` is
    the document's kernels as they are shown."""
    amdahl = view.mapping(view.mapping(document.get("program")).get("amdahl"))
    kernels, lines = view.objects(amdahl.get("kernels")), view.objects(amdahl.get("lines"))
    if len(kernels) < 2:
        return None
    shown = {kernel.data.get("id"): kernel.label for kernel in every}
    named = [{**row, "name": shown.get(row.get("id"), row.get("name"))} for row in kernels]
    return {
        "lines": [{**line, "width": geometry.bar(line.get("share"), 1.0)} for line in lines],
        "kernels": [row for row in named if fmt.number(row.get("expected")) is not None][:_KERNELS],
    }
