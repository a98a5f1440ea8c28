"""JUnit XML: a test case per kernel, which fails when a finding of warning or worse stands against it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from diagnose import budget
from diagnose.render import format as fmt
from diagnose.render import provenance, view


def _told(finding: Mapping[str, Any], units: Mapping[str, str]) -> str:
    rule = finding.get("rule")
    title = view.text(finding.get("title")) or rule
    lines = [f"{finding.get('severity')}: {title} [{rule}], {view.speedup_of(finding)}"]
    lines += [f"  {item.get('fact')}: {fmt.condition(item)}" for item in view.objects(finding.get("evidence"))]
    for where in view.objects(finding.get("where")):
        place = " ".join(
            str(where[key]) for key in ("role", "file", "line", "pc", "sass") if where.get(key) is not None
        )
        lines.append(f"  at {place}")
    experiment = view.mapping(finding.get("next_experiment"))
    if view.text(experiment.get("change")):
        expect = view.expectation(experiment, units)
        lines.append(f"  next: {experiment['change']}" + (f" Expect {expect}." if expect else ""))
    return "\n".join(lines)


def render(document: view.Document) -> str:
    """The XML text."""
    from xml.etree import ElementTree

    found = view.kernels(document)
    runs = view.objects(document.get("runs"))
    source = next((run["source"] for run in runs if view.text(run.get("source"))), "diagnose")
    cases: list[ElementTree.Element] = []
    failed = skipped = 0

    def case(name: str, classname: str, seconds: float | None, data: Mapping[str, Any], unknown: str | None) -> None:
        nonlocal failed, skipped
        element = ElementTree.Element(
            "testcase", {"name": fmt.shorten(name, 300), "classname": fmt.shorten(classname, 120)}
        )
        if seconds is not None:
            element.set("time", f"{seconds:.9f}".rstrip("0").rstrip("."))
        open_ = [
            f
            for f in view.objects(data.get("findings"))
            if f.get("severity") in {"critical", "warning"} and not f.get("accepted")
        ]
        if open_:
            failed += 1
            title = view.text(open_[0].get("title")) or str(open_[0].get("rule"))
            failure = ElementTree.SubElement(
                element,
                "failure",
                {"type": fmt.shorten(str(open_[0].get("rule")), 80), "message": fmt.shorten(title, 300)},
            )
            failure.text = fmt.clean("\n\n".join(_told(finding, view.units(data)) for finding in open_), newlines=True)
        elif unknown is not None:
            skipped += 1
            ElementTree.SubElement(element, "skipped", {"message": fmt.shorten(unknown, 300)})
        cases.append(element)

    for kernel in found:
        launch = view.mapping(kernel.data.get("launch"))
        size = f" grid {fmt.dims(launch.get('grid'))} block {fmt.dims(launch.get('block'))}" if launch else ""
        seconds = kernel.total_us / 1e6 if kernel.total_us is not None else None
        unknown = kernel.reason if kernel.klass == "unknown" else None
        case(fmt.shorten(kernel.name, 200) + size, f"diagnose.{kernel.klass}", seconds, kernel.data, unknown)
    program = view.mapping(document.get("program"))
    if view.objects(program.get("findings")):
        case("the program as a whole", "diagnose.program", None, program, None)
    for row in view.objects(document.get("budgets")):
        element = ElementTree.Element(
            "testcase",
            {"name": fmt.shorten(f"{row.get('budget')} of {row.get('kernel') or row.get('pattern')}", 300)}
            | {"classname": "diagnose.budget"},
        )
        if row.get("kept") is not True:
            # A budget that nothing was measured for fails too: a gate that measured nothing must not pass.
            failed += 1
            attributes = {"type": "budget", "message": fmt.shorten(budget.told(row), 300)}
            ElementTree.SubElement(element, "failure", attributes)
        cases.append(element)
    counts = {"tests": str(len(cases)), "failures": str(failed), "errors": "0", "skipped": str(skipped)}
    # Jenkins' schema (junit-10.xsd of its xunit plug-in) knows `skipped` on a suite and not on the root.
    totals = {key: value for key, value in counts.items() if key != "skipped"}
    root = ElementTree.Element("testsuites", {"name": "diagnose", **totals})
    suite = ElementTree.SubElement(root, "testsuite", {"name": fmt.shorten(source, 200), **counts})
    packs, how = view.packs(document), provenance.rows(document)
    if packs or how:
        properties = ElementTree.SubElement(suite, "properties")
        for name, told in packs:
            value = fmt.shorten(f"{name}; {told}" if told else name, 2000)
            ElementTree.SubElement(properties, "property", {"name": "rules", "value": value})
        for name, told in how:
            ElementTree.SubElement(properties, "property", {"name": name, "value": fmt.shorten(told, 2000)})
    suite.extend(cases)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"
