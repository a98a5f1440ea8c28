"""SARIF 2.1.0: the rules that fired, and one result per finding at the source lines it points at."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from diagnose.render import format as fmt
from diagnose.render import jsonl, links, provenance, view

_LEVEL = {"critical": "error", "warning": "warning", "note": "note"}
_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def _uri(file: str) -> str:
    """A path as a URI reference; a drive letter or a leading slash makes it a file URI."""
    path = file.replace("\\", "/")
    quoted = quote(
        path.encode("utf-8", "replace"), safe="/-._~+@,=:" if len(path) > 1 and path[1] == ":" else "/-._~+@,="
    )
    if path.startswith("/"):
        return "file://" + quoted
    return "file:///" + quoted if len(path) > 1 and path[1] == ":" else quoted


def _physical(where: Mapping[str, Any]) -> dict[str, Any] | None:
    file, line = view.text(where.get("file")), fmt.number(where.get("line"))
    if file is None:
        return None
    place: dict[str, Any] = {"artifactLocation": {"uri": _uri(file)}}
    if line is not None and line >= 1:
        place["region"] = {"startLine": int(line)}
    return place


def _locations(finding: Mapping[str, Any], name: str, full_name: str) -> list[dict[str, Any]]:
    logical = [{"name": name, "fullyQualifiedName": full_name, "kind": "function"}]
    places: list[dict[str, Any]] = []
    seen: set[str] = set()
    wheres = view.objects(finding.get("where"))
    for where in sorted(wheres, key=lambda item: item.get("role") != "cause"):
        physical = _physical(where)
        if physical is None or (key := json.dumps(physical, sort_keys=True)) in seen:
            continue
        seen.add(key)
        label = " ".join(
            part
            for part in (view.text(where.get("role")), view.text(where.get("pc")), view.text(where.get("sass")))
            if part
        )
        place = {"physicalLocation": physical, "logicalLocations": logical}
        places.append({**place, "message": {"text": fmt.shorten(label, 200)}} if label else place)
    return places or [{"logicalLocations": logical}]


def _message(finding: Mapping[str, Any], kernel: str | None, units: Mapping[str, str]) -> str:
    parts = [
        f"{kernel}: " if kernel else "",
        fmt.shorten(view.text(finding.get("title")) or finding.get("rule"), 200),
        f" ({view.speedup_of(finding)}).",
    ]
    held = [item for item in view.objects(finding.get("evidence")) if item.get("holds") is True][:3]
    if held:
        parts.append(
            " " + "; ".join(f"{fmt.shorten(item.get('fact'), 80)} {fmt.condition(item)}" for item in held) + "."
        )
    experiment = view.mapping(finding.get("next_experiment"))
    if view.text(experiment.get("change")):
        parts.append(f" Next: {fmt.shorten(experiment['change'], 600)}")
        expect = view.expectation(experiment, units)
        parts.append(f" Expect {expect}." if expect else "")
    return "".join(parts)


def _rule(rule: str, finding: Mapping[str, Any], page: Mapping[str, Any]) -> dict[str, Any]:
    title = view.text(page.get("title")) or view.text(finding.get("title")) or rule
    why = view.text(page.get("why")) or view.text(finding.get("why"))
    change = view.text(page.get("change")) or view.text(view.mapping(finding.get("next_experiment")).get("change"))
    limitations = view.text(page.get("limitations"))
    references = [link for link in view.texts(page.get("references")) if link.startswith(("https://", "http://"))]
    entry: dict[str, Any] = {
        "id": rule,
        "shortDescription": {"text": fmt.shorten(title, 200)},
        "defaultConfiguration": {"level": _LEVEL.get(str(finding.get("severity")), "note")},
        "properties": {"class": finding.get("class") or "unknown", "tags": ["performance", "cuda"]},
    }
    if why:
        entry["fullDescription"] = {"text": fmt.clean(why, newlines=True)[:4000]}
    help_text = "\n\n".join(
        part
        for part in (
            why,
            change and f"Change: {change}",
            limitations and f"Not when: {limitations}",
            references and f"References: {' '.join(references)}",
        )
        if part
    )
    if help_text:
        entry["help"] = {"text": fmt.clean(help_text, newlines=True)[:8000]}
    if references:
        entry["helpUri"] = references[0]
    return entry


def render(document: view.Document, page: str | None = None) -> str:
    """The SARIF log as JSON text. `page`: the address of the HTML report, to which results and rules then link."""
    tool, pages = view.mapping(document.get("tool")), view.mapping(document.get("rule_pages"))
    rules: dict[str, dict[str, Any]] = {}
    results: list[dict[str, Any]] = []
    helped: dict[str, str] = {}  # where the page first tells of a rule

    def add(finding: Mapping[str, Any], kernel: view.KernelView | None, units: Mapping[str, str]) -> None:
        rule = view.text(finding.get("rule")) or "unnamed-rule"
        rules.setdefault(rule, _rule(rule, finding, view.mapping(pages.get(rule))))
        name = fmt.shorten(kernel.name, 200) if kernel else "program"
        full = fmt.shorten(kernel.full_name, 2000) if kernel else "program"
        launch = view.mapping(kernel.data.get("launch")) if kernel else {}
        identity = json.dumps([rule, full, launch.get("grid"), launch.get("block")], default=str)
        result: dict[str, Any] = {
            "ruleId": rule,
            "ruleIndex": list(rules).index(rule),
            "level": _LEVEL.get(str(finding.get("severity")), "note"),
            "message": {"text": _message(finding, name if kernel else None, units)},
            "locations": _locations(finding, name, full),
            "partialFingerprints": {
                "diagnose/v1": hashlib.sha256(identity.encode("utf-8", "replace")).hexdigest()[:32]
            },
            "properties": {
                "class": finding.get("class"),
                "atStake": finding.get("at_stake"),
                "speedup": finding.get("speedup"),
            },
        }
        if kernel and page is not None:
            result["hostedViewerUri"] = links.finding(page, kernel.id, finding)
            helped.setdefault(rule, result["hostedViewerUri"])
        if kernel:
            result["properties"] |= {"kernel": kernel.id, "timeShare": kernel.share, "durationUs": kernel.duration_us}
        if finding.get("accepted"):
            reason = view.text(view.mapping(finding["accepted"]).get("reason"))
            result["suppressions"] = [{"kind": "external", **({"justification": reason} if reason else {})}]
        results.append(result)

    for kernel in view.kernels(document):
        for finding in view.objects(kernel.data.get("findings")):
            add(finding, kernel, view.units(kernel.data))
    program = view.mapping(document.get("program"))
    for finding in view.objects(program.get("findings")):
        add(finding, None, view.units(program))
    for rule, address in helped.items():
        rules[rule]["helpUri"] = address
    driver: dict[str, Any] = {"name": view.text(tool.get("name")) or "diagnose", "rules": list(rules.values())}
    if view.text(tool.get("version")):
        driver["version"] = tool["version"]
    notes = [
        {"level": "warning", "message": {"text": fmt.clean(text)}} for text in view.texts(document.get("warnings"))
    ]
    invocation: dict[str, Any] = {"executionSuccessful": document.get("partial") is not True}
    if notes:
        invocation["toolExecutionNotifications"] = notes
    extensions = [
        {
            "name": fmt.shorten(pack.get("name"), 200),
            "version": str(pack.get("version") or ""),
            "properties": {key: value for key, value in pack.items() if key not in ("name", "version")},
        }
        for pack in view.objects(document.get("packs"))
        if view.text(pack.get("name"))
    ]
    run = {
        "tool": {"driver": driver, **({"extensions": extensions} if extensions else {})},
        "invocations": [invocation],
        "results": results,
        "properties": {"provenance": {label: fmt.clean(told) for label, told in provenance.rows(document)}},
        "columnKind": "unicodeCodePoints",
    }
    return (
        json.dumps(jsonl.finite({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}), indent=1, allow_nan=False)
        + "\n"
    )
