"""Every renderer on the sample document: what it says, and what it never says."""

from __future__ import annotations

import base64
import copy
import hashlib
import io
import json
import re
import zlib
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from rich.console import Console

from diagnose.render import html, jsonl, junit, markdown, sarif, terminal, view

SAMPLE = Path(__file__).parent / "data" / "sample_document.json"
Document = dict[str, Any]
FLAT = {"flops_per_s": 1}
SLANT = {"bytes_per_s": 5}


@pytest.fixture(autouse=True)
def _whole(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """The page with every kernel as HTML, so that its text can be read here; tests with `packed` see the real limit."""
    if "packed" not in request.node.name:
        monkeypatch.setattr(html, "INLINE", 200)


@pytest.fixture
def document() -> Document:
    loaded: Document = json.loads(SAMPLE.read_text(encoding="utf-8"))
    return loaded


def in_terminal(document: Document, verbose: bool = False, width: int = 80, encoding: str = "utf-8") -> str:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding)
    terminal.render(document, Console(file=stream, width=width, force_terminal=False), verbose)
    stream.flush()
    return raw.getvalue().decode(encoding)


def verbosely(document: Document) -> str:
    return in_terminal(document, verbose=True)


RENDERERS: dict[str, Callable[[Document], str]] = {
    "html": html.render,
    "markdown": markdown.render,
    "sarif": sarif.render,
    "junit": junit.render,
    "jsonl": jsonl.render,
    "terminal": in_terminal,
    "terminal verbose": verbosely,
}


class Page(HTMLParser):
    """The text, the attributes and the scripts of a page."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.attributes: list[tuple[str, str, str | None]] = []
        self.texts: list[str] = []
        self.raw: dict[str, list[str]] = {"script": [], "style": []}
        self.stack: list[str] = []
        self.executed: list[str] = []
        self.feed(source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value) for name, value in attrs]
        self.stack.append(tag)
        if tag == "script":
            self.executed.append(dict(attrs).get("type") or "script")

    def handle_endtag(self, tag: str) -> None:
        if tag in self.stack:
            while self.stack.pop() != tag:
                pass

    def handle_data(self, data: str) -> None:
        inside = self.stack[-1] if self.stack else ""
        if inside in self.raw:
            self.raw[inside].append(data)
        else:
            self.texts.append(data)

    @property
    def text(self) -> str:
        """What a reader's eyes get; the texts of neighbouring elements run together."""
        return " ".join("".join(self.texts).split())

    @property
    def words(self) -> str:
        """The same with a space between any two elements."""
        return " ".join(" ".join(self.texts).split())


@pytest.mark.parametrize("name", RENDERERS)
def test_the_same_document_gives_the_same_bytes(name: str, document: Document) -> None:
    assert RENDERERS[name](document) == RENDERERS[name](copy.deepcopy(document))


@pytest.mark.parametrize("name", [name for name in RENDERERS if name not in {"jsonl", "sarif", "junit"}])
def test_what_was_not_measured_is_said_in_words(name: str, document: Document) -> None:
    rendered = RENDERERS[name](document)
    text = Page(rendered).words if name == "html" else rendered
    assert "not measured" in text
    for forbidden in (r"\bNone\b", r"\bnan\b", r"\bNaN\b", r"\bundefined\b", r"\bUndefined\b", r"\binf\b"):
        assert not re.search(forbidden, text), forbidden


@pytest.mark.parametrize("name", RENDERERS)
@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"kernels": []},
        {"kernels": None, "runs": None, "devices": 3, "program": [], "warnings": "one"},
        {"kernels": [{}]},
        {
            "kernels": [
                None,
                3,
                {"name": 7, "verdict": "x", "findings": [None, {}], "limits": {}, "launch": 4, "hot": [{}]},
            ]
        },
        {
            "kernels": [
                {"id": "a"},
                {"id": "a"},
                {"id": 3},
                {"verdict": {"class": "new", "speedup": {"expected": float("nan")}}},
            ]
        },
        {
            "kernels": [
                {"roofline": {"points": [{"intensity": 0, "flops_per_s": 1}], "compute_roofs": [{"flops_per_s": 1}]}}
            ]
        },
        {
            "kernels": [
                {"roofline": {"points": [{"intensity": 1, "flops_per_s": 1}], "bandwidth_roofs": [{"bytes_per_s": 5}]}}
            ]
        },
        {
            "kernels": [
                {"timeline": {"series": [{"values": [0, 0]}, {"values": []}, {"label": "x", "values": [float("inf")]}]}}
            ]
        },
        {
            "kernels": [
                {"occupancy": {"theoretical": 2, "steps": ["text", {"occupancy": 0.5}]}, "memory": [{"level": "l2"}]}
            ]
        },
        {
            "kernels": [
                {"facts": {"a": None, "b": {"value": True}}, "raw_metrics": {"a": None, "b": [], "c": [1], "d": 5}}
            ]
        },
        {"kernels": [{"duration_us": 0, "time_share": 0, "verdict": {"at_stake": 1}}], "program": {"gpu_time_us": 0}},
    ],
)
def test_odd_documents_are_rendered(name: str, broken: Document) -> None:
    assert RENDERERS[name](broken)


def test_every_key_of_a_kernel_may_be_null_or_missing(document: Document) -> None:
    for key in document["kernels"][0]:
        for gone in (True, False):
            changed = copy.deepcopy(document)
            if gone:
                del changed["kernels"][0][key]
            else:
                changed["kernels"][0][key] = None
            changed["kernels"] = changed["kernels"][:1]
            page = Page(html.render(changed))
            assert "None" not in page.words.split(), key
            assert in_terminal(changed)


# ---- HTML ----


@pytest.mark.parametrize("name", ["html", "markdown"])
def test_a_limit_that_is_only_the_nearest_is_not_said_to_be_reached(name: str, document: Document) -> None:
    """A hardware verdict with low confidence: nothing stood out, or one pass told which resource is busiest."""
    kernel = next(one for one in document["kernels"] if one["verdict"]["class"] == "hardware")
    document["kernels"] = [kernel]
    assert "at its limit" in RENDERERS[name](document)
    kernel["verdict"]["confidence"] = "low"
    found = RENDERERS[name](document)
    assert "nearest limit" in found and not re.search("at (its|their) (hardware )?limit", found)


def test_the_policy_allows_exactly_the_pages_own_script_and_style(document: Document) -> None:
    page = Page(html.render(document))
    policy = next(
        value
        for tag, name, value in page.attributes
        if tag == "meta" and name == "content" and value and "default-src" in value
    )
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy and "http" not in policy
    for kind, source in (("script", "".join(page.raw["script"])), ("style", "".join(page.raw["style"]))):
        digest = base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy


def test_no_inline_style_no_handler_no_address_to_load(document: Document) -> None:
    page = Page(html.render(document))
    for tag, name, value in page.attributes:
        assert name != "style" and not name.startswith("on"), (tag, name)
        if name in {"src", "srcset", "href", "action", "data", "poster", "xlink:href"} and tag != "a":
            pytest.fail(f"{tag} {name}={value}")
        if tag == "a" and name == "href":
            assert value is not None and re.match(r"(https?://|#)", value), value
    assert page.executed.count("script") == 1
    assert "url(" not in "".join(page.raw["style"]) and "@import" not in "".join(page.raw["style"])


def test_hostile_names_stay_text(document: Document) -> None:
    rendered = html.render(document)
    page = Page(rendered)
    assert "</script><img src=x" in page.text
    assert not [
        tag for tag, _, _ in page.attributes if tag in {"img", "iframe", "object", "embed", "link", "base", "form"}
    ]
    assert "\u202e" not in rendered and "\x1b" not in rendered and "\x00" not in rendered and "\u2066" not in rendered
    assert "\\u202e" in page.text
    assert "{{ 7*7 }}" in page.text and "49" not in page.words.split()


def test_a_name_of_100_kb_is_short_but_for_one_place(document: Document) -> None:
    name = "kernel<" + "deep::" * 17_000 + ">"
    document["kernels"][0]["demangled"] = document["kernels"][0]["name"] = name
    rendered = html.render(document)
    assert rendered.count("deep::" * 1000) == 1 * (len(re.findall("(?:deep::){1000}", name)))
    for kind in ("markdown", "sarif", "junit", "terminal"):
        assert "deep::" * 1000 not in RENDERERS[kind](document)
    assert len(markdown.render(document)) < 60_000


def test_own_files_cannot_close_their_elements() -> None:
    folder = Path(__file__).parent.parent / "reports"
    script = (folder / "report.js").read_text(encoding="utf-8")
    assert "</script" not in script.lower() and "<!--" not in script
    assert "</style" not in (folder / "report.css").read_text(encoding="utf-8").lower()
    assert len(script.encode()) <= 60_000
    assert not re.search(r"\b(fetch|XMLHttpRequest|WebSocket|sendBeacon|eval|Function|importScripts)\b\s*\(", script)


def test_the_page_says_what_the_document_says(document: Document) -> None:
    text = Page(html.render(document)).text
    numbers = ("1.54×", "1.31–1.90×", "21.8 ms", "2.1 % > 10 %", "duration_us < 700 µs", "0x1a40")
    names = ("flash_fwd_kernel.h:412", "not-enough-data", "padding-waste", "--problem attention", "bank-conflict")
    for expected in (*numbers, *names):
        assert expected in text, expected
    assert view.summary(document, view.kernels(document)) in text


def test_every_chart_has_its_numbers_as_a_table(document: Document) -> None:
    rendered = html.render(document)
    for figure in re.findall(r"<figure.*?</figure>", rendered, re.DOTALL):
        assert re.search(r"<details class=\"numbers\">.*?<table", figure, re.DOTALL), figure[:200]


def test_element_ids_are_unique(document: Document) -> None:
    document["kernels"].append(copy.deepcopy(document["kernels"][0]))
    ids = [value for _, name, value in Page(html.render(document)).attributes if name == "id"]
    assert len(ids) == len(set(ids))


def many(document: Document, count: int) -> Document:
    big = {key: value for key, value in document.items() if key != "kernels"}
    big["kernels"] = []
    for position in range(count):
        kernel = {
            **document["kernels"][position % 3],
            "id": f"k{position}",
            "name": f"kernel_{position}",
            "launches": 1,
        }
        kernel["duration_us"] = float(count - position)
        kernel["time_share"] = None
        big["kernels"].append(kernel)
    big["program"] = {"findings": []}
    return big


def unpacked(rendered: str, name: str) -> str:
    match = re.search(rf'<script type="text/plain" id="{name}" data-size="(\d+)">([^<]*)</script>', rendered)
    assert match, name
    raw = zlib.decompress(base64.b64decode(match[2]), -15)
    assert len(raw) == int(match[1])
    return raw.decode()


def test_many_kernels_are_packed(document: Document) -> None:
    rendered = html.render(many(document, 201))
    index = json.loads(unpacked(rendered, "ix"))
    assert index["id"][:3] == ["k0", "k1", "k2"] and len(index["name"]) == 201
    assert index["by_time"] == sorted(index["by_time"], reverse=True)
    last = Page(unpacked(rendered, "k-k200"))
    assert "kernel_200" in last.text and not any(
        name == "style" or name.startswith("on") for _, name, _ in last.attributes
    )
    page = Page(rendered)
    assert "kernel_19" in page.text and "kernel_20 " not in page.words
    assert page.executed.count("script") == 1
    few = html.render(many(document, 20))
    assert 'id="ix"' not in few and "kernel_19" in unpacked(few, "k-k19")
    assert "roofline" in unpacked(few, "k-k0") and '<svg class="roofline"' not in few


def test_packed_charts_are_left_out_beyond_the_budget(document: Document, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html, "CHART_BUDGET", 10_000)
    rendered = html.render(many(document, 201))
    assert '<svg class="roofline"' in unpacked(rendered, "k-k0")
    short = unpacked(rendered, "k-k198")
    assert (
        "to keep the file small" in short
        and '<svg class="roofline"' not in short
        and "Roofline" not in Page(short).text
    )


def test_many_raw_metrics_are_packed(document: Document) -> None:
    document["kernels"][0]["raw_metrics"] = {f"metric_{n}": [n / 3, "byte"] for n in range(100)}
    rendered = html.render(document)
    packed, names = json.loads(unpacked(rendered, "m-7f3a91c2")), json.loads(unpacked(rendered, "mn"))
    assert len(packed) == len(names) == 100 and packed[0] == "0 byte" and names[0] == "metric_0"
    assert "metric_99" not in Page(rendered).text


def test_equal_launches_are_one_row_with_their_spread(document: Document) -> None:
    first = document["kernels"][0]
    times = [100.0, 98.0, 102.0, 101.0, 130.0]
    launches = [
        {**first, "id": f"n{at}", "group": "g", "duration_us": us, "launches": 1, "time_share": us / 531}
        for at, us in enumerate(times)
    ]
    page = {**document, "kernels": launches, "program": {}}
    found = view.groups(view.kernels(page))
    assert [(one.id, one.duration_us, one.total_us, one.launches) for one in found] == [("n0", 101.0, 531.0, 5)]
    assert found[0].spread == pytest.approx((102 - 100) / 2 / 101)
    text = Page(html.render(page)).text
    assert "n = 5 ±1.0 %" in text and "Shortest98.0 µsLongest130 µs" in text and "5 launches in 1 group" in text
    assert json.loads(unpacked(html.render(page), "al")) == {f"n{at}": "n0" for at in range(1, 5)}


def test_code_is_packed_once_for_kernels_that_share_it(document: Document) -> None:
    hostile = "LDG </script><img src=x onerror=alert(1)> \u202e"
    code = {
        "lines": [["0x0", hostile, 5, 32, "long_scoreboard", 0, 2], ["0x10", "EXIT", None, None, None, None, None]],
        "files": [{"file": "/home/me/a.cu", "text": "one\ntwo </script>"}],
    }
    kernels = [{**document["kernels"][0], "id": f"c{at}", "code": code} for at in range(2)]
    rendered = html.render({**document, "kernels": kernels, "program": {}})
    chunks = re.findall(r'id="(c-[0-9a-f]{12})" data-size', rendered)
    assert len(chunks) == 1 and hostile not in rendered and rendered.count(f'data-code="{chunks[0]}"') == 2
    packed = json.loads(unpacked(rendered, chunks[0]))
    assert packed["text"][0].endswith("\\u202e") and packed["files"][0]["parts"] == [[1, "one\ntwo </script>"]]
    assert (packed["pc"], packed["file"], packed["line"]) == ([0, 16], [0, None], [2, None])
    long = "\n".join(f"line {number}" for number in range(1, 1001))
    cut = html._excerpts(long, {100, 130, 990})
    assert cut["cut"] and [(first, text.count("\n") + 1) for first, text in cut["parts"]] == [(80, 71), (970, 31)]
    assert cut["parts"][0][1].startswith("line 80\n") and cut["parts"][1][1].endswith("line 1000")
    heat = json.loads(unpacked(rendered, "h-c1"))
    assert heat == {"samples": [5, None], "executed": [32, None], "reasons": ["long scoreboard"], "stall": [0, None]}


def test_accepted_and_lapsed_findings_and_budgets_are_said(document: Document) -> None:
    kernel = document["kernels"][0]
    about = {"owner": "@kernel-team", "reason": "next quarter", "expires": "2027-02-28", "kernel": "*"}
    kernel["findings"][0]["accepted"] = about
    other = document["kernels"][1]
    other["findings"] = [copy.deepcopy(kernel["findings"][0])]
    other["verdict"]["rule"] = other["findings"][0]["rule"]
    del other["findings"][0]["accepted"]
    other["findings"][0]["lapsed"] = {**about, "why": "expired on 2026-11-30"}
    document["acceptance"] = {"accepted": 1, "lapsed": 1, "stale": [{"finding": "spill", **about}]}
    row = {"kernel": "gemm", "id": "1", "pattern": "g*", "budget": "max_duration", "unit": "us"}
    document["budgets"] = [{**row, "asked": 10, "found": 12.5, "kept": False}]
    document["baseline"] = {"source": "main.json", "new": 1, "worse": 0, "known": 2, "slower": []}
    for told in (in_terminal(document, width=200), markdown.render(document).replace("\\", "")):
        assert "1 finding accepted" in told and "1 finding no longer accepted" in told
        assert "1 finding new, 0 worse, 2 known; 0 kernels slower" in told
        assert "0 kept, 1 broken, 0 not measured" in told and "matches nothing" in told
    rendered = html.render(document)
    text = Page(rendered).text
    assert "Accepted by @kernel-team until 2027-02-28: next quarter" in text
    assert "No longer accepted: expired on 2026-11-30" in text and "Stale." in text
    assert "1 accepted" in text and "1 no longer accepted" in text
    assert "✗ broken gemm: max_duration asks for at most 10.0 µs, it is 12.5 µs" in text
    assert 'data-state="accepted"' in rendered and 'data-state="lapsed"' in rendered


# ---- JSON ----


def test_large_json_is_trimmed_and_json_lines_are_not(document: Document) -> None:
    for kernel in document["kernels"]:
        kernel.pop("raw_metrics", None)
    few, large = json.loads(jsonl.render_json(many(document, 201))), many(document, 2_001)
    assert "trimmed" not in few and "roofline" in few["kernels"][0]
    found = json.loads(jsonl.render_json(large))
    assert "jsonl" in found["trimmed"] and len(found["kernels"]) == 2_001
    kept = found["kernels"][0]
    assert "roofline" not in kept and kept["findings"] == large["kernels"][0]["findings"] and len(kept["limits"]) <= 2
    assert "roofline" in json.loads(jsonl.render(large).splitlines()[1])
    large["kernels"][0]["raw_metrics"] = {}
    assert "trimmed" not in json.loads(jsonl.render_json(large))


# ---- the terminal ----


@pytest.mark.parametrize("width", [40, 80, 200])
def test_lines_fit_the_terminal(document: Document, width: int) -> None:
    assert max(len(line) for line in in_terminal(document, width=width).splitlines()) <= width


def test_no_escape_sequence_reaches_a_pipe(document: Document) -> None:
    shown = in_terminal(document, verbose=True)
    assert "\x1b" not in shown and "\u202e" not in shown and "\x00" not in shown
    assert "[bold]Too little[/bold]" in shown  # markup in a name is text


def test_the_first_lines_answer(document: Document) -> None:
    head = in_terminal(document, width=160).splitlines()
    assert head[0].startswith(
        "train.ncu-rep · NVIDIA H200 · ncu 2025.3.1 · clock control none · cache control all · 242 launches"
    )
    assert "can be won back" in head[1]
    assert head[3].startswith("▲ flash_fwd_kernel")
    assert "implementation" in head[4] and "1.54×" in head[4] and "56 %" in head[4]


def test_an_ascii_terminal_gets_ascii(document: Document) -> None:
    document["kernels"][0]["name"] = "größe"
    shown = in_terminal(document, encoding="ascii")
    assert shown.isascii() and "^ gr\\xf6\\xdfe" in shown and "1.54x" in shown


def test_static_documents_show_paths(document: Document) -> None:
    kernel = {"name": "gemm", "arch": "sm_90a", "registers": 168, "shared_bytes": 49152, "stack_bytes": 0}
    kernel |= {"spill_bytes": None, "paths": ["tma", "wgmma"], "opcodes": {"HGMMA": 4}, "findings": [], "verdict": None}
    shown = in_terminal({"kernels": [kernel], "tool": {}})
    assert "sm_90a" in shown and "tma, wgmma" in shown and "registers 168" in shown and "spill not measured" in shown


# ---- the other formats ----


def test_jsonl_has_a_head_and_a_kernel_a_line(document: Document) -> None:
    lines = [json.loads(line) for line in jsonl.render(document).splitlines()]
    assert len(lines) == 1 + len(document["kernels"])
    assert "kernels" not in lines[0] and lines[0]["schema_version"] == "1"
    assert lines[1] == document["kernels"][0]
    assert json.loads(jsonl.render_json(document)) == document
    assert json.loads(jsonl.render_json({"a": float("nan")})) == {"a": None}


def test_sarif_points_at_source_lines(document: Document) -> None:
    log = json.loads(sarif.render(document))
    assert log["version"] == "2.1.0"
    run = log["runs"][0]
    rules = run["tool"]["driver"]["rules"]
    assert len({rule["id"] for rule in rules}) == len(rules)
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["level"] in {"error", "warning", "note"} and result["message"]["text"]
    first = run["results"][0]
    place = first["locations"][0]["physicalLocation"]
    assert place == {"artifactLocation": {"uri": "flash_fwd_kernel.h"}, "region": {"startLine": 412}}
    assert first["level"] == "error" and "1.54×" in first["message"]["text"]
    assert all("suppressions" not in result for result in run["results"])


def test_accepted_findings_are_suppressed_and_do_not_fail(document: Document) -> None:
    document["kernels"] = document["kernels"][:1]
    document["program"]["findings"] = []
    document["kernels"][0]["findings"][0]["accepted"] = {"reason": "planned"}
    result = json.loads(sarif.render(document))["runs"][0]["results"][0]
    assert result["suppressions"] == [{"kind": "external", "justification": "planned"}]
    assert ElementTree.fromstring(junit.render(document)).get("failures") == "0"


def test_paths_become_uris(document: Document) -> None:
    assert sarif._uri("/home/me/a b.cu") == "file:///home/me/a%20b.cu"
    assert sarif._uri("C:\\src\\x.cu") == "file:///C:/src/x.cu"
    assert sarif._uri("src/größe#1.cu") == "src/gr%C3%B6%C3%9Fe%231.cu"


def test_junit_fails_on_warnings_and_worse(document: Document) -> None:
    root = ElementTree.fromstring(junit.render(document))
    cases = root.findall(".//testcase")
    assert len(cases) == len(document["kernels"]) + 1
    failed = {case.get("name", "").split()[0] for case in cases if case.find("failure") is not None}
    assert failed == {"flash_fwd_kernel", "decode_attention_kernel", "the"}
    suite = root.find("testsuite")
    assert suite is not None and suite.get("skipped") == "2"
    assert root.get("failures") == "3" and root.get("tests") == str(len(cases))


def test_markdown_is_inert(document: Document) -> None:
    document["kernels"][0]["name"] = "x`y|z @team <b>"
    document["kernels"][0]["sentence"] = (
        "@everyone see #1 at https://example.com | <script>alert(1)</script> [x](javascript:1)"
    )
    shown = markdown.render(document)
    assert "<script" not in shown and "<b>" not in re.sub(r"``[^\n]*?``|`[^`\n]*`", "", shown)
    assert "@<!-- -->everyone" in shown and "https:<!-- -->//" in shown
    rows = [line for line in shown.splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {7}
    assert "\u202e" not in shown


# ---- what they share ----


def test_time_is_that_of_all_launches(document: Document) -> None:
    found = view.kernels(document)
    assert [kernel.name for kernel in found][:3] == [
        "flash_fwd_kernel",
        "vectorized_elementwise_kernel",
        "decode_attention_kernel",
    ]
    assert found[0].total_us == pytest.approx(908.4 * 24)
    document["kernels"][0]["duration_us"] *= 24  # a document that gives the sum means the same
    assert view.kernels(document)[0].total_us == pytest.approx(908.4 * 24)
    assert found[-1].total_us is None


def test_the_summary_follows_the_verdicts(document: Document) -> None:
    def says(kernels: list[Any]) -> str:
        changed = {**document, "kernels": kernels, "program": {}}
        return view.summary(changed, view.kernels(changed))

    assert "No kernel" in says([])
    assert "can be won back" in says(document["kernels"][:1])
    assert "hardware limit" in says(document["kernels"][1:2])
    assert "not measured" in says(document["kernels"][3:4])
    assert "Too little was measured" in says(document["kernels"][4:5])


def test_the_number_that_decides(document: Document) -> None:
    kernels = document["kernels"]
    assert view.deciding_number(kernels[0]) == "opcode.hmma_share = 97 % > 50 %"
    assert view.deciding_number(kernels[1]) == "HBM 98 % of 4.30 TB/s (measured)"
    assert view.deciding_number(kernels[3]) is None


def test_nothing_happens_at_import() -> None:
    import subprocess
    import sys

    code = "import sys\nfrom diagnose.render import html, junit, markdown, sarif, terminal\n"
    code += "print([m for m in ('jinja2', 'rich', 'markupsafe') if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=SAMPLE.parents[2]
    )
    assert done.stdout.strip() == "[]"
