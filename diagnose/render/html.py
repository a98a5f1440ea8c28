"""The HTML report: one self-contained file that asks nothing of a network, readable without JavaScript.

Two walls stand against hostile text: Jinja's autoescape, and a content security policy whose hashes allow only this
report's own script and style sheet. The same document gives the same bytes.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diagnose import budget
from diagnose.bars import Step, silent
from diagnose.bundled import bundled
from diagnose.render import ablation, geometry, jsonl, links, provenance, staircase, view
from diagnose.render import format as fmt
from diagnose.render import ranks as rank_table

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

# The budgets below keep 1 kernel under 200 kB, 10 under 400 kB and 1,000 under 6 MB (shared/html-report.md).
#: Up to so many kernels stand in the page whole, about 75 kB each; of more, all are packed, and of the FRONT longest
#: the verdict and the findings stand there too, for readers without JavaScript.
INLINE = 2
FRONT = 20
#: Bytes of packed kernels with all their charts; the shorter kernels beyond keep verdict, figures and findings.
CHART_BUDGET = 2_800_000
#: Raw metrics above this count are packed too.
RAW_INLINE = 60
#: Bytes of packed raw metrics and of packed code in one file; kernels get theirs by time until it is used.
RAW_BUDGET = 600_000
CODE_BUDGET = 800_000
_KEPT = {True: "kept", False: "broken", None: "not measured"}
_NAME_IN_TABLE = 90
_QUERY = 300


def _finalize(value: object) -> object:
    """Every value that a template prints: None, NaN and missing keys as words, texts without control characters."""
    kind = type(value)
    if kind is str:
        plain: str = value  # type: ignore[assignment]
        return plain if plain.isascii() and plain.isprintable() else fmt.clean(plain, newlines=True)
    if kind is int or hasattr(value, "__html__"):
        return value
    if kind is float:
        return value if math.isfinite(value) else fmt.NOT_MEASURED  # type: ignore[arg-type]
    return fmt.clean(str(value), newlines=True) if isinstance(value, str | bool | list | dict) else fmt.NOT_MEASURED


def _link(value: object) -> str | None:
    """`value` if it is a web address that may become a link."""
    if isinstance(value, str) and value.startswith(("https://", "http://")) and not any(c.isspace() for c in value):
        return value
    return None


_WITH_UNIT = re.compile(r"\d[\d.,]* (?:%|[nµm]?s|[kMGTP]?B(?:/s)?|[kMGTP]?FLOP(?:/s)?)(?![\w/])")


def _held(value: object) -> Markup:
    """A sentence as HTML in which a number and its unit stay on one line."""
    from markupsafe import Markup, escape

    if not isinstance(value, str):
        return escape(fmt.NOT_MEASURED)
    return Markup(_WITH_UNIT.sub(r'<span class="gapless">\g<0></span>', str(escape(fmt.clean(value, newlines=True)))))


def _spans(pairs: list[tuple[str, str]]) -> Markup:
    """Labels and texts as spans. Here and not in the template, where 10,000 kernels' would take half a second more."""
    from markupsafe import Markup, escape

    return Markup(
        " ".join(f"<span><b>{escape(label)}</b> {escape(fmt.shorten(text, 160))}</span>" for label, text in pairs)
    )


@cache
def _environment(folder: Path) -> Environment:
    from jinja2 import Environment, FileSystemLoader

    class Quick(Environment):
        """What the templates name is nearly always a key: looked for before an attribute, it costs a quarter less."""

        def getattr(self, obj: Any, attribute: str) -> Any:
            if type(obj) is dict and attribute in obj:
                return obj[attribute]
            return super().getattr(obj, attribute)

    environment = Quick(
        loader=FileSystemLoader(folder), autoescape=True, finalize=_finalize, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(
        duration=fmt.duration,
        share=fmt.share,
        times=fmt.times,
        speedup=fmt.speedup,
        amount=fmt.quantity,
        number=fmt.count,
        words=fmt.words,
        resource=fmt.resource,
        condition=fmt.condition,
        short=fmt.shorten,
        dims=fmt.dims,
        weblink=_link,
        held=_held,
        spans=_spans,
    )
    environment.globals["told"] = _told
    return environment


@lru_cache(maxsize=512)
def _told(why: str | None, limitations: str | None, references: tuple[str, ...], first: bool) -> Markup:
    """The macro `reasons` of a rule's texts: of 10,000 kernels a few dozen differ."""
    module: Any = _environment(bundled("reports")).get_template("macros/kernel.j2").module
    found: Markup = module.reasons(why, limitations, references, first)
    return found


def _hash(source: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()


def _pack(source: str, level: int = 9) -> dict[str, object]:
    """`source` as base64 of raw deflate, with the size at which a reader stops inflating."""
    raw = source.encode("utf-8", "replace")
    squeeze = zlib.compressobj(level, zlib.DEFLATED, -15)
    return {"size": len(raw), "body": base64.b64encode(squeeze.compress(raw) + squeeze.flush()).decode()}


def _time_model(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    rows = [
        (view.text(item.get("label")) or "bound", fmt.number(item.get("us")), str(item.get("kind")))
        for item in view.objects(data.get("time_model"))
    ]
    if not any(us is not None for _, us, _ in rows):
        measured = fmt.number(data.get("duration_us"))
        rows = [
            (fmt.resource(item.get("resource")), fmt.number(item.get("bound_us")), "bound")
            for item in view.objects(data.get("limits"))
        ]
        rows = [row for row in rows if row[1] is not None]
        rows.sort(key=lambda row: -(row[1] or 0.0))
        if rows and measured is not None:
            rows.append(("Measured", measured, "measured"))
    full = max((us for _, us, _ in rows if us is not None), default=0.0)
    measured = next((us for _, us, kind in rows if kind == "measured" and us is not None), None)
    return [
        {
            "label": label,
            "us": us,
            "kind": kind if kind in {"bound", "waste", "measured"} else "bound",
            "width": geometry.bar(us, full),
            "mark": geometry.bar(measured, full),
            "of": fmt.share(us / measured) if us is not None and measured else None,
        }
        for label, us, kind in rows
    ]


def _stalls(data: Mapping[str, Any]) -> dict[str, Any] | None:
    stalls = view.mapping(data.get("stalls"))
    reasons = [item for item in view.objects(stalls.get("reasons")) if fmt.number(item.get("share")) is not None]
    if not reasons:
        return None
    full = max(fmt.number(item.get("share")) or 0.0 for item in reasons)
    rows = [
        {
            "label": fmt.words(item.get("reason")),
            "share": item.get("share"),
            "width": geometry.bar(item.get("share"), full),
            "not_issued": item.get("not_issued_share"),
            "inner": geometry.bar(item.get("not_issued_share"), full),
        }
        for item in reasons
    ]
    return {
        "source": view.text(stalls.get("source")) or "source not recorded",
        "no_issue": fmt.number(stalls.get("no_issue_share")),
        "rows": rows,
        "split": any(row["inner"] is not None for row in rows),
    }


def _mix(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    items = [item for item in view.objects(data.get("instruction_mix")) if view.text(item.get("opcode"))]
    full = max((fmt.number(item.get("share")) or 0.0 for item in items), default=0.0)
    return [{**item, "width": geometry.bar(item.get("share"), full)} for item in items]


def _occupancy(data: Mapping[str, Any]) -> dict[str, Any] | None:
    occupancy = view.mapping(data.get("occupancy"))
    if not any(value is not None for value in occupancy.values()):
        return None
    units = {"shared": "byte", "shared_bytes": "byte"}
    return {
        "theoretical": occupancy.get("theoretical"),
        "achieved": occupancy.get("achieved"),
        "theoretical_width": geometry.bar(occupancy.get("theoretical"), 1.0),
        "achieved_width": geometry.bar(occupancy.get("achieved"), 1.0),
        "limiter": view.text(occupancy.get("limiter")),
        "registers": occupancy.get("registers"),
        "shared_bytes": occupancy.get("shared_bytes"),
        "block": occupancy.get("block"),
        "steps": geometry.staircase(occupancy.get("steps"), units),
        "notes": view.texts(occupancy.get("steps")),
    }


def _hot(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    items = view.objects(data.get("hot"))
    full = max((fmt.number(item.get("share")) or 0.0 for item in items), default=0.0)
    return [
        {
            **item,
            "heat": geometry.heat(item.get("share"), full),
            "width": geometry.bar(item.get("share"), full),
            "place": _place(item),
            "anchor": view.text(item.get("pc")),
            "cause": _cause(item),
        }
        for item in items
    ]


def _cause(item: Mapping[str, Any]) -> dict[str, Any] | None:
    """The instruction that is waited for, where it is another one than the one that waits."""
    cause = view.mapping(item.get("cause"))
    if view.text(cause.get("pc")) is None or cause.get("pc") == item.get("pc"):
        return None
    return {**cause, "place": _place(cause)}


def _main_loop(data: Mapping[str, Any]) -> dict[str, Any] | None:
    loop = view.mapping(data.get("main_loop"))
    budget = view.objects(loop.get("budget"))
    if not budget or view.text(loop.get("pc")) is None:
        return None
    full = max((fmt.number(item.get("share")) or 0.0 for item in budget), default=0.0)
    rows = [
        {**item, "label": fmt.words(item.get("category")), "width": geometry.bar(item.get("share"), full)}
        for item in budget
    ]
    return {**loop, "place": _place(loop), "rows": rows}


def _place(item: Mapping[str, Any]) -> str | None:
    file, line = view.text(item.get("file")), fmt.number(item.get("line"))
    if file is None:
        return None
    return f"{file}:{int(line)}" if line is not None else file


def _raw(data: Mapping[str, Any]) -> list[tuple[str, str]]:
    rows = []
    for name, entry in view.mapping(data.get("raw_metrics")).items():
        value, unit = [*entry, "", ""][:2] if isinstance(entry, list | tuple) and entry else (entry, "")
        found = fmt.number(value)
        if found is None:
            shown = fmt.shorten(value, 200) if isinstance(value, str) and value else fmt.NOT_MEASURED
        else:
            # Four digits, as the page's other numbers: six would make these, the largest part, a third larger.
            shown = f"{int(found):,}" if found == int(found) and abs(found) < 1e18 else f"{found:,.4g}"
            shown += f" {unit}" if isinstance(unit, str) and unit else ""
        rows.append((fmt.shorten(name, 200), fmt.clean(shown)))
    return sorted(rows)


def _at(finding: Mapping[str, Any]) -> str:
    """What an accepted finding is held to later, as JSON for the page's export: its gain and the value that decides."""
    found: dict[str, Any] = {}
    win = fmt.number(view.mapping(finding.get("speedup")).get("expected"))
    if win is not None:
        found["win"] = float(f"{win:.3g}")
    for item in view.objects(finding.get("evidence")):
        value = fmt.number(item.get("value"))
        if item.get("holds") is True and value is not None and view.text(item.get("fact")):
            found |= {"metric": item["fact"], "value": float(f"{value:.4g}")}
            break
    return json.dumps(found)


def _findings(data: Mapping[str, Any], pages: Mapping[str, Any]) -> list[dict[str, Any]]:
    units = view.units(data)
    found = []
    for finding in view.objects(data.get("findings")):
        rule = view.text(finding.get("rule")) or "rule without an id"
        page = view.mapping(pages.get(rule))
        klass = finding.get("class") if finding.get("class") in view.CLASSES else "unknown"
        found.append(
            {
                "rule": rule,
                "anchor": links.anchor(rule),
                "klass": klass,
                "sign": fmt.CLASS_SIGN[str(klass)],
                "word": fmt.CLASS_WORD[str(klass)],
                "severity": view.text(finding.get("severity")) or "note",
                "title": view.text(finding.get("title")) or view.text(page.get("title")) or rule,
                "gain": view.speedup_of(finding),
                "accepted": view.mapping(finding.get("accepted")),
                "lapsed": view.mapping(finding.get("lapsed")),
                "at": _at(finding),
                "evidence": view.objects(finding.get("evidence")),
                "where": [{**item, "place": _place(item)} for item in view.objects(finding.get("where"))],
                "why": view.text(finding.get("why")) or view.text(page.get("why")),
                "change": view.text(view.mapping(finding.get("next_experiment")).get("change"))
                or view.text(page.get("change")),
                "expect": view.expectation(finding.get("next_experiment"), units),
                "study": ablation.tested_by(view.mapping(view.mapping(finding.get("next_experiment")).get("study"))),
                "limitations": view.text(page.get("limitations"))
                or "; ".join(view.texts(page.get("limitations")))
                or None,
                "references": tuple(
                    dict.fromkeys(view.texts(finding.get("references")) + view.texts(page.get("references")))
                ),
            }
        )
    return found


_PC = re.compile(r"0x[0-9a-f]{1,12}")
#: Source files longer than this many lines (a library's headers, mostly) keep only what stands near code.
_WHOLE_FILE = 400
_NEAR = 20


def _excerpts(text: str | None, used: set[int]) -> dict[str, Any]:
    """A source file as `parts` of [first line's number, text]: whole, or of a long one (`cut`) the lines near those
    that code comes from; None where the report holds no text of it."""
    if text is None:
        return {"parts": None}
    lines = re.split(r"\r?\n", text)
    if len(lines) <= _WHOLE_FILE:
        return {"parts": [[1, "\n".join(lines)]]}
    parts: list[list[int]] = []
    for number in sorted(one for one in used if 0 < one <= len(lines)):
        first, last = max(1, number - _NEAR), min(len(lines), number + _NEAR)
        if parts and first <= parts[-1][1] + 1:
            parts[-1][1] = last
        else:
            parts.append([first, last])
    return {"parts": [[first, "\n".join(lines[first - 1 : last])] for first, last in parts], "cut": True}


def _code(data: Mapping[str, Any]) -> tuple[str, str, str] | None:
    """The kernel's code for the script, as JSON: (hash of the code, code and sources, what was counted in it).

    Columns pack a third smaller than rows; addresses are differences from one instruction to the next.
    """
    code = view.mapping(data.get("code"))
    lines = [
        line
        for line in code.get("lines") or ()
        if isinstance(line, list | tuple) and len(line) == 7 and _PC.fullmatch(str(line[0]))
    ]
    if not lines:
        return None
    used: dict[int, set[int]] = {}
    for *_, file, line in lines:
        if isinstance(file, int) and isinstance(line, int):
            used.setdefault(file, set()).add(line)
    files = [
        {"file": fmt.shorten(one.get("file"), 300), **_excerpts(view.text(one.get("text")), used.get(at, set()))}
        for at, one in enumerate(view.objects(code.get("files")))
    ]
    addresses = [int(str(pc), 16) for pc, *_ in lines]
    reasons = sorted({stall for *_, stall, _, _ in lines if isinstance(stall, str)})
    heat = {
        "samples": [fmt.number(line[2]) for line in lines],
        "executed": [fmt.number(line[3]) for line in lines],
        "reasons": [fmt.words(reason) for reason in reasons],
        "stall": [reasons.index(line[4]) if line[4] in reasons else None for line in lines],
    }

    def packed(value: object) -> str:
        return json.dumps(jsonl.finite(value), ensure_ascii=False, separators=(",", ":"))

    body = packed(
        {
            "files": files,
            "pc": [here - before for before, here in zip([0, *addresses], addresses, strict=False)],
            "text": [fmt.shorten(line[1], 300) for line in lines],
            "file": [line[5] for line in lines],
            "line": [line[6] for line in lines],
        }
    )
    return hashlib.sha256(body.encode("utf-8", "replace")).hexdigest()[:12], body, packed(heat)


def _pins(data: Mapping[str, Any]) -> str:
    """Where the findings point, for the script: [address, rule, role] each."""
    return json.dumps(
        [
            [place["pc"], view.text(finding.get("rule")) or "", view.text(place.get("role")) or "place"]
            for finding in view.objects(data.get("findings"))
            for place in view.objects(finding.get("where"))
            if view.text(place.get("pc"))
        ]
        + [
            [place["at"], view.text(hazard.get("tool")) or "", view.text(place.get("access")) or "place"]
            for hazard in view.objects(data.get("hazards"))
            for place in view.objects(hazard.get("places"))
            if view.text(place.get("at"))
        ]
    )


def _launches(kernel: view.KernelView) -> list[tuple[str, str]]:
    """The spread of a group's launches."""
    times = kernel.times_us
    if len(kernel.members) < 2 or not times:
        return []
    return [
        ("Median launch", fmt.duration(view.median(times))),
        ("Shortest", fmt.duration(times[0])),
        ("Longest", fmt.duration(times[-1])),
        ("Half of them within ±", fmt.share(kernel.spread) if kernel.spread is not None else "too few launches to say"),
    ]


def _kernel(kernel: view.KernelView, pages: Mapping[str, Any], device: str | None, raw: bool) -> dict[str, Any]:
    """All that the kernel part prints."""
    data = kernel.data
    sol = [item for item in view.objects(data.get("speed_of_light")) if item.get("label") or item.get("resource")]
    parts: dict[str, Any] = {
        "time_model": _time_model(data),
        "staircase": staircase.chart(data),
        "operator": staircase.operator(data),
        "limits": view.objects(data.get("limits")),
        "speed_of_light": [
            {
                "label": view.text(item.get("label")) or fmt.resource(item.get("resource")),
                "utilization": item.get("utilization"),
                "width": geometry.bar(item.get("utilization"), 1.0),
                "source": view.text(item.get("source")),
            }
            for item in sol
        ],
        "roofline": geometry.roofline(data.get("roofline")),
        "memory": geometry.memory(data.get("memory")),
        "stalls": _stalls(data),
        "timeline": geometry.timeline(data.get("timeline")),
        "occupancy": _occupancy(data),
        "instruction_mix": _mix(data),
        "main_loop": _main_loop(data),
        "hot": _hot(data),
        "findings": _findings(data, pages),
        "advice": [item for item in view.objects(data.get("advice")) if view.text(item.get("text"))],
        "rejected": view.objects(data.get("rejected")),
        "not_evaluated": [
            {
                "rule": item.get("rule"),
                "missing": ", ".join(view.texts(item.get("missing"))) or "not named",
                "how": view.text(item.get("collect_with")),
            }
            for item in view.objects(data.get("not_evaluated"))
        ],
        "facts": sorted(view.mapping(data.get("facts")).items()),
        "sections": [{**one, "rows": view.objects(one.get("rows"))} for one in view.objects(data.get("sections"))],
    }
    raw_rows = _raw(data)
    parts["raw"] = raw_rows if raw and len(raw_rows) <= RAW_INLINE else []
    parts["raw_packed"] = raw_rows if raw and len(raw_rows) > RAW_INLINE else []
    parts["raw_count"] = len(raw_rows)
    labels = {
        "time_model": ("Time and limits", "limits"),
        "roofline": ("Roofline", "roofline"),
        "speed_of_light": ("Speed of Light", "speed_of_light"),
        "memory": ("Memory picture", "memory"),
        "stalls": ("Stall reasons", "stalls"),
        "timeline": ("Timeline", "timeline"),
        "occupancy": ("Occupancy", "occupancy"),
        "instruction_mix": ("Instruction mix", "instruction_mix"),
        "hot": ("Hot instructions and source lines", "hot"),
    }
    parts["pins"] = _pins(data)
    parts["group"] = _launches(kernel)
    parts["missing"] = [
        {"label": label, "how": view.HOW_TO_COLLECT[how]} for part, (label, how) in labels.items() if not parts[part]
    ]
    if kernel.duration_us is None:
        parts["missing"].insert(0, {"label": "Duration", "how": view.HOW_TO_COLLECT["time"]})
    if not raw_rows:
        parts["missing"].append({"label": "Raw metrics", "how": view.HOW_TO_COLLECT["raw_metrics"]})
    parts["config"] = _config(kernel, device)
    return parts


def _config(kernel: view.KernelView, device: str | None) -> list[tuple[str, str]]:
    """How the kernel was launched, as labels and texts."""
    data = kernel.data
    launch, paths = view.mapping(data.get("launch")), view.texts(data.get("paths"))
    return [
        (label, shown)
        for label, shown in (
            ("Grid", fmt.dims(launch.get("grid"))),
            ("Block", fmt.dims(launch.get("block"))),
            ("Cluster", fmt.dims(launch.get("cluster")) if launch.get("cluster") else None),
            ("Launches", f"{kernel.launches:,}" if kernel.launches is not None else None),
            ("Per launch", fmt.duration(kernel.duration_us)),
            ("SM clock", fmt.quantity(data.get("clock_ghz"), "ghz")),
            ("Device", device),
            ("Data paths", ", ".join(paths) if paths else None),
            ("Workload", data.get("workload") if data.get("workload") in {"range", "graph"} else None),
        )
        if shown and shown != fmt.NOT_MEASURED
    ]


def _index(rows: list[dict[str, Any]]) -> str:
    """The rows of the table as columns, for the script: a list of values, or where they repeat the values once (`d`)
    and each row's place among them (`i`), which takes a quarter of the memory."""
    columns: dict[str, Any] = {}
    for key in rows[0]:
        values = [row[key] for row in rows]
        places: dict[object, int] = {}
        numbers = [places.setdefault(value, len(places)) for value in values]
        columns[key] = {"d": list(places), "i": numbers} if len(places) * 4 <= len(values) else values
    return json.dumps(columns, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _count(kernel: view.KernelView) -> str:
    """Launches and their spread, and the rank, where there are several."""
    told = view.text(kernel.data.get("rank_label")) or ""
    if kernel.launches is None or kernel.launches < 2:
        return told
    spread = f" ±{fmt.share(kernel.spread)}" if kernel.spread is not None else ""
    return f"{told} n = {kernel.launches:,}{spread}".lstrip()


def _row(kernel: view.KernelView, device: str | None) -> dict[str, Any]:
    """A table row: what it shows, and by what it is sorted and searched."""
    rules = [fmt.shorten(finding.get("rule"), 60) for finding in view.objects(kernel.data.get("findings"))]
    name = fmt.shorten(kernel.label, _NAME_IN_TABLE)
    full = fmt.shorten(kernel.full_name, _QUERY)
    tags = [f"class:{kernel.klass}", f"rule:{kernel.rule or ''}", f"sev:{kernel.severity or ''}", kernel.state]
    if device:
        tags.append(f"device:{fmt.shorten(device, 60).replace(' ', '-')}")
    if label := view.text(kernel.data.get("rank_label")):
        tags.append(label.replace("rank ", "rank:").replace(" ", "-"))
    tags += [f"has:{rule}" for rule in dict.fromkeys(rules) if rule != kernel.rule]
    return {
        "id": kernel.id,
        "name": name,
        "klass": kernel.klass,
        "sign": kernel.sign,
        "word": kernel.word,
        "title": fmt.shorten(kernel.title, 120),
        "time": fmt.duration(kernel.total_us),
        "share": fmt.share(kernel.share) if kernel.share is not None else "",
        "width": geometry.bar(kernel.share, 1.0) or "0%",
        "n": _count(kernel),
        "state": kernel.state,
        "win": kernel.win,
        "range": kernel.win_range,
        "why": fmt.shorten(kernel.reason, 260),
        "by_time": round(kernel.total_us, 3) if kernel.total_us is not None else -1,
        "by_win": round(kernel.win_key, 5),
        # What is searched besides the name and the verdict.
        "full": full if full != name else "",
        "tags": " ".join(filter(None, tags)),
    }


def _provenance(document: view.Document) -> dict[str, Any]:
    """Runs, devices, ceilings and packs: the bottom of the page."""
    ceilings = view.mapping(document.get("ceilings"))
    return {
        "runs": view.objects(document.get("runs")),
        "devices": view.objects(document.get("devices")),
        "ceilings": [
            (label, ceilings[key])
            for label, key in (("source", "source"), ("GPU", "gpu"), ("date", "date"))
            if ceilings.get(key)
        ],
        "packs": view.packs(document),
        # What is told of each run stands above them already.
        "how": [row for row in provenance.rows(document) if row[0] in ("survey", "profiled", "left out")],
    }


@dataclass
class _Bodies:
    """The kernels' parts of the page: what stands there as HTML, and what is packed."""

    inline: list[dict[str, Any]] = field(default_factory=list)
    chunks: list[dict[str, object]] = field(default_factory=list)
    names: dict[str, int] = field(default_factory=dict)
    codes: set[str] = field(default_factory=set)
    raw_kernels: int = 0
    raw_left: int = field(default_factory=lambda: RAW_BUDGET)
    code_left: int = field(default_factory=lambda: CODE_BUDGET)
    charts_left: int = field(default_factory=lambda: CHART_BUDGET)

    def pack(self, name: str, source: str, level: int = 9) -> int:
        """Adds a packed element; returns its size in the file."""
        chunk = _pack(source, level)
        self.chunks.append({"id": name, **chunk})
        return len(str(chunk["body"]))

    def pack_raw(self, kernel: view.KernelView, rows: list[tuple[str, str]]) -> None:
        """The metrics' names stand in the page once, in the element `mn`; each kernel has its values in that order."""
        for name, _ in rows:
            self.names.setdefault(name, len(self.names))
        values: list[str | None] = [None] * len(self.names)
        for name, shown in rows:
            values[self.names[name]] = shown
        source = json.dumps(values, ensure_ascii=False, separators=(",", ":"))
        self.raw_left -= self.pack(f"m-{kernel.id}", source)

    def pack_code(self, kernel: view.KernelView) -> str | None:
        """The code, once for all kernels that share it, and what was counted in it; the element's name."""
        found = _code(kernel.data) if self.code_left > 0 else None
        if found is None:
            return None
        digest, body, heat = found
        if digest not in self.codes:
            self.codes.add(digest)
            self.code_left -= self.pack(f"c-{digest}", body)
        self.code_left -= self.pack(f"h-{kernel.id}", heat)
        return f"c-{digest}"


def _device(document: view.Document, kernel: view.KernelView) -> str | None:
    devices, number = view.objects(document.get("devices")), fmt.number(kernel.data.get("device"))
    if number is None or not 0 <= int(number) < len(devices):
        return None
    return view.text(devices[int(number)].get("name"))


def _bodies(document: view.Document, found: list[view.KernelView], macros: Any, step: Step) -> _Bodies:
    """Renders every kernel: whole while CHART_BUDGET lasts, then in brief. See INLINE for what stands in the page."""
    pages = view.mapping(document.get("rule_pages"))
    bodies = _Bodies()
    packed = len(found) > INLINE
    for position, kernel in enumerate(found):
        step(position, len(found))
        device = _device(document, kernel)
        whole = bodies.charts_left > 0
        brief = ""
        if packed and (position < FRONT or not whole):
            findings = _findings(kernel.data, pages)
            brief = macros.brief(kernel, findings, _config(kernel, device), not whole)
        if packed and position < FRONT:
            bodies.inline.append({"kernel": kernel, "body": brief})
        if not whole:
            # Level 1: the tail of a large report is many small texts, and level 9 takes three times as long for 6 %.
            bodies.pack(f"k-{kernel.id}", str(brief), 1)
            continue
        parts = _kernel(kernel, pages, device, bodies.raw_left > 0)
        parts["code"] = bodies.pack_code(kernel)
        bodies.raw_kernels += bool(parts["raw"] or parts["raw_packed"])
        if parts["raw_packed"]:
            bodies.pack_raw(kernel, parts["raw_packed"])
        body = macros.kernel_part(kernel, parts)
        if packed:
            bodies.charts_left -= bodies.pack(f"k-{kernel.id}", str(body), 6)  # level 9: 1 % smaller, a third slower
        else:
            bodies.inline.append({"kernel": kernel, "body": body})
    if bodies.names:
        bodies.pack("mn", json.dumps(list(bodies.names), ensure_ascii=False, separators=(",", ":")))
    return bodies


def _aliases(found: list[view.KernelView]) -> dict[str, str]:
    """The ids of launches that stand in the row of another: links to them lead there."""
    return {one.id: kernel.id for kernel in found for one in kernel.members if one.id != kernel.id}


def _tally(found: list[view.KernelView]) -> str:
    """How many kernels want what, in one line."""
    open_ = sum(one.klass in {"implementation", "fit"} and one.state != "accepted" for one in found)
    states = [one.state for one in found]
    parts = [
        (open_, "to act on"),
        (sum(one.at_its_limit for one in found), "at their limit"),
        (sum(one.klass == "hardware" and not one.at_its_limit for one in found), "without a clear cause"),
        (sum(one.klass == "unknown" for one in found), "not known"),
        (states.count("accepted"), "accepted"),
        (states.count("lapsed"), "no longer accepted"),
    ]
    launches = sum(one.launches if one.launches is not None else 1 for one in found)
    groups = view.plural(len(found), "group")
    start = (
        f"{view.plural(launches, 'launch').replace('launchs', 'launches')} in {groups}: "
        if launches > len(found)
        else ""
    )
    return start + ", ".join(f"{count:,} {what}" for count, what in parts if count)


def _report_hash(found: list[view.KernelView]) -> str:
    """What tells this report from another: its kernels' ids and times."""
    told = "\n".join(f"{kernel.id} {kernel.total_us}" for kernel in found)
    return hashlib.sha256(told.encode()).hexdigest()[:10]


def _classes(found: list[view.KernelView]) -> list[dict[str, Any]]:
    """The stacked bar of GPU time by class."""
    shares = view.class_shares(found)
    left = 0.0
    classes = []
    for klass in view.CLASSES:
        members = sum(kernel.klass == klass for kernel in found)
        size = shares.get(klass, 0.0)
        if members:
            classes.append(
                {
                    "klass": klass,
                    "sign": fmt.CLASS_SIGN[klass],
                    "word": fmt.CLASS_WORD[klass],
                    "share": size if shares else None,
                    "count": members,
                    "x": geometry.pct(left),
                    "width": geometry.pct(size),
                }
            )
        left += size
    return classes


def page(template: str, script_name: str, **values: object) -> str:
    """A template with the style sheet, one script and the policy that allows only these two."""
    from markupsafe import Markup

    folder = bundled("reports")
    style = (folder / "report.css").read_text(encoding="utf-8")
    script = (folder / script_name).read_text(encoding="utf-8")
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    # Our own files, as they are: a test checks that they cannot close their elements.
    own = {"style": Markup(style), "script": Markup(script), "policy": policy}
    return _environment(folder).get_template(template).render(**own, **values)


def render(document: view.Document, step: Step = silent) -> str:
    """The whole page for a document of the contract; `step` is told how many kernels are written."""
    environment = _environment(bundled("reports"))
    every = view.kernels(document)
    found = view.groups(every)
    rows = [_row(kernel, _device(document, kernel)) for kernel in found]
    macros: Any = environment.get_template("macros/kernel.j2").module
    bodies = _bodies(document, found, macros, step)
    packed = len(found) > FRONT
    aliases = _aliases(found)
    return page(
        "template.html.j2",
        "report.js",
        title=_title(found, document),
        report=_report_hash(found),
        summary=view.summary(document, every),
        tally=_tally(found),
        acceptance=view.mapping(document.get("acceptance")),
        budgets=[(row, _KEPT[row.get("kept")], budget.told(row)) for row in view.objects(document.get("budgets"))],
        baseline=view.mapping(document.get("baseline")),
        header=view.header(document, every),
        warnings=view.texts(document.get("warnings")),
        partial=document.get("partial") is True,
        classes=_classes(found),
        rows=rows[:FRONT],
        row_count=len(rows),
        inline=bodies.inline,
        index={"id": "ix", **_pack(_index(rows))} if packed else None,
        aliases={"id": "al", **_pack(json.dumps(aliases, separators=(",", ":")))} if aliases else None,
        brief=len(found) > INLINE,
        chunks=bodies.chunks,
        raw_kernels=bodies.raw_kernels,
        raw_limited=bodies.raw_kernels < len(found),
        amdahl=staircase.program(document, every),
        ranks=rank_table.table(document),
        program=_findings(view.mapping(document.get("program")), view.mapping(document.get("rule_pages"))),
        provenance=_provenance(document),
        version=view.text(view.mapping(document.get("tool")).get("version")),
    )


def _title(found: list[view.KernelView], document: view.Document) -> str:
    sources = [
        fmt.shorten(run.get("source"), 60) for run in view.objects(document.get("runs")) if view.text(run.get("source"))
    ]
    what = sources[0] if sources else view.plural(len(found), "kernel")
    return f"{what}: why it is slow"
