"""`--baseline FILE`: what was there before gates nothing, what is new or worse does.

Kernels are matched as `diagnose compare` matches them. A finding that the baseline has too, and that costs no more time
than there (beyond the noise), carries `baseline: known`; others `new` or `worse`. Pure: two documents in, one out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from diagnose import compare

Document = Mapping[str, Any]


def apply(document: Document, before: Document, source: str, noise: float = compare.NOISE) -> dict[str, Any]:
    """The document with every finding and verdict held against the baseline, and `baseline` counting them."""
    old, new = list(before["kernels"]), list(document["kernels"])
    pairs = {after: old[first] for first, after, _ in compare.match(old, new)}
    counts = {"known": 0, "new": 0, "worse": 0}
    slower: list[dict[str, Any]] = []

    def judged(finding: Mapping[str, Any], status: str | None) -> dict[str, Any]:
        word = {None: "new", "new": "new", "worse": "worse"}.get(status, "known")
        counts[word] += 1
        return {**finding, "baseline": word}

    kernels = []
    for position, kernel in enumerate(new):
        pair = pairs.get(position)
        states: dict[str, str] = {}
        verdict = dict(kernel["verdict"]) if kernel.get("verdict") else None
        if pair is not None:
            states = {row["rule"]: row["status"] for row in compare.finding_changes(pair, kernel, noise)}
            if verdict and (pair.get("verdict") or {}).get("rule") == verdict["rule"]:
                verdict["baseline"] = "known"
            us = pair.get("duration_us"), kernel.get("duration_us")
            if compare.change(*us, noise) == "slower":
                slower.append({"name": kernel["name"], "before_us": us[0], "after_us": us[1]})
        findings = [judged(finding, states.get(str(finding["rule"]))) for finding in kernel.get("findings") or ()]
        kernels.append({**kernel, "verdict": verdict, "findings": findings})
    known = {one.get("rule") for one in (before.get("program") or {}).get("findings") or ()}
    program = document.get("program") or {}
    findings = [judged(one, "same" if one["rule"] in known else None) for one in program.get("findings") or ()]
    return {
        **document,
        "program": {**program, "findings": findings},
        "kernels": kernels,
        "baseline": {"source": source, "matched": len(pairs), **counts, "slower": slower},
    }
