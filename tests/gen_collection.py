"""Writes the tables of docs/collection.md from what tests/gpu/collection.py and collection_probe.py measured.

python tests/gen_collection.py [RESULTS.json]   takes new results into tests/data, and writes the tables
python tests/gen_collection.py --check          says whether they are up to date
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "collection.md"
RESULTS = ROOT / "tests" / "data" / "collection.json"
PROBE = ROOT / "tests" / "data" / "collection_probe.json"
NOT_YET = (
    "Played by a stand-in for ncu so far (`tests/test_survey.py`, `tests/test_collect.py`). On a machine with a GPU: "
    "`python3 tests/gpu/collection.py --out DIR --only filters`, then this script."
)
_TITLES = {
    "empty": "one empty kernel: the fixed start",
    "loop": "training-like loop: 2,000 launches of 30 kernels",
    "torch": "PyTorch: 20 steps of an MLP",
    "gpt": "PyTorch: 50 steps of a GPT of four blocks",
    "gemm-naive": "`kernel:gemm/naive`",
    "reduction-vectorised": "`kernel:reduction/vectorised`",
    "attention-decode": "`kernel:attention/decode`",
}
_COLUMNS = ("default", "no-stop", "deep", "single-pass")


def _seconds(row: Mapping[str, Any] | None) -> str:
    return f"{row['seconds']:.1f}" if row else ""


def _passes(row: Mapping[str, Any]) -> str:
    spans = [run["passes_per_launch"] for run in (row.get("collection") or {}).get("runs", [])]
    return " + ".join(f"{low}" if low == high else f"{low}–{high}" for low, high in filter(None, spans))


def _megabytes(count: float | None) -> str:
    return f"{count / 1e6:.1f}" if count else ""


def probe(data: Mapping[str, Any]) -> str:
    """What ncu is asked for, with passes and seconds."""
    lines = ["| asked for | passes a launch | seconds for 8 launches | report, MB |", "| --- | ---: | ---: | ---: |"]
    for name, row in data.items():
        passes = row["passes"][0] if row["passes"] else "failed"
        lines.append(f"| {name} | {passes} | {row['seconds']:.1f} | {_megabytes(row['bytes'])} |")
    return "\n".join(lines)


def programs(data: Mapping[str, Any]) -> str:
    """Seconds of each program alone and under each tool, passes, coverage, sizes, verdicts."""
    lines = [
        f"{data['gpu']}, driver {data['driver']}, ncu {data['ncu']}, {data['date']}; wall seconds of whole commands.",
        "",
        "| program | alone | `ncu --set full` | diagnose | of full | `--no-stop` | `--deep` | `--single-pass` |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, row in data["programs"].items():
        full, default = row.get("full"), row["default"]
        share = f"{default['seconds'] / full['seconds']:.2f}" if full else ""
        more, less = ("> ", "< ") if full and full["exit"] else ("", "")  # the budget cut off a run: it takes longer
        cells = [_seconds(row.get("alone")), f"{more}{_seconds(full)}", _seconds(default), f"{less}{share}"]
        cells += [_seconds(row.get(mode)) for mode in _COLUMNS[1:]]
        lines.append(f"| {_TITLES.get(name, name)} | {' | '.join(cells)} |")
    lines += [
        "",
        "| program | mode | kernels | passes a launch | covered | verdicts as `--set full` | report, MB | HTML, MB |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, row in data["programs"].items():
        for mode in _COLUMNS:
            one = row.get(mode)
            if not one or "profiled" not in one:
                continue
            covered = one.get("covered_share")
            share = f"{100 * covered:.1f} %" if covered is not None else "not counted"
            compared = one.get("compared", 0)
            same = f"{compared - len(one.get('different', []))} of {compared}" if compared else ""
            cells = [mode, str(one["profiled"]), _passes(one), share, same, _megabytes(one.get("report_bytes"))]
            cells.append(_megabytes(one.get("html_bytes")))
            lines.append(f"| {_TITLES.get(name, name)} | {' | '.join(cells)} |")
        if full := row.get("full"):
            passes = sorted(set(full["passes"]))
            span = f"{passes[0]}" if len(passes) == 1 else f"{passes[0]}–{passes[-1]}" if passes else ""
            cells = ["`ncu --set full`", str(full["profiled"]), span, "", "", _megabytes(full.get("report_bytes")), ""]
            lines.append(f"| {_TITLES.get(name, name)} | {' | '.join(cells)} |")
    different = [
        f"- {_TITLES.get(name, name)}, {mode}: `{text}`"
        for name, row in data["programs"].items()
        for mode in _COLUMNS
        for text in (row.get(mode) or {}).get("different", [])
    ]
    if different:
        lines += ["", "Verdicts that differ (with the full set / in that mode):", "", *different]
    return "\n".join(lines)


def filters(data: Mapping[str, Any]) -> str:
    """What each filter gave on the small loop."""
    rows = data.get("filters") or {}
    lines = ["| filter, on two steps of the loop | exit | kernels | which |", "| --- | ---: | ---: | --- |"]
    for name, row in rows.items():
        names = ", ".join(f"`{one}`" for one in row["names"][:6]) + (" …" if len(row["names"]) > 6 else "")
        lines.append(f"| {name} | {row['exit']} | {row['kernels']} | {names} |")
    for kind, taken in (data.get("numbering") or {}).items():
        seen = ", ".join(f"`{one}`" for one in taken) or "nothing"
        lines += ["", f"`--kernel-id ::regex:sum|Sum:1` within a range ({kind}), after launches outside of it: {seen}."]
    cut = data.get("interrupted")
    if cut:
        lines += ["", f"Interrupted after {cut['kept']} launches, then `--resume`: kernels by run {cut['by_run']}."]
    return "\n".join(lines)


def page() -> str:
    """The page with its tables as they should be."""
    text = PAGE.read_text("utf-8")
    results = json.loads(RESULTS.read_text("utf-8")) if RESULTS.is_file() else {}
    parts = {
        "probe": probe(json.loads(PROBE.read_text("utf-8"))),
        "programs": programs(results) if results.get("programs") else NOT_YET,
        "filters": filters(results) if results.get("filters") else NOT_YET,
    }
    for name, table in parts.items():
        pattern = re.compile(f"<!-- {name} -->.*?<!-- /{name} -->", re.DOTALL)
        text = pattern.sub(lambda _, n=name, t=table: f"<!-- {n} -->\n{t}\n<!-- /{n} -->", text)  # type: ignore[misc]
    return text


def main() -> int:
    words = sys.argv[1:]
    if words == ["--check"]:
        good = page() == PAGE.read_text("utf-8")
        print("" if good else "docs/collection.md is not up to date: python tests/gen_collection.py")
        return 0 if good else 1
    if words:
        kept = json.loads(RESULTS.read_text("utf-8")) if RESULTS.is_file() else {"programs": {}}
        new = json.loads(Path(words[0]).read_text("utf-8"))
        merged = {**kept, **new}
        for part in ("programs", "filters"):
            merged[part] = {**kept.get(part, {}), **new.get(part, {})}
        RESULTS.write_text(json.dumps(merged, indent=1) + "\n", "utf-8")
    PAGE.write_text(page(), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
