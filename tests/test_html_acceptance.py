"""The twelve browser checks of the report, on recorded kernels, in Debian's Chromium with the network off.

Each test names the check it makes (shared/html-report.md). Reports of 1, 10, 1,000 and 10,000 kernels; sizes and times
are measured by `tests/benchmarks/bench_html.py` too.
"""

from __future__ import annotations

import copy
import json
import re
import sys
from collections.abc import Mapping
from datetime import date
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

import pages
from diagnose import accept, compare, config
from diagnose.render import comparison_page, html, links, view
from diagnose.render import format as fmt
from test_render_browser import OPEN_ALL, Opened, overflow

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

pytestmark = pytest.mark.browser
Document = dict[str, Any]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pages")


def written(folder: Path, name: str, text: str) -> str:
    path = folder / name
    if not path.exists():
        path.write_text(text, encoding="utf-8")
    return path.as_uri()


@pytest.fixture(scope="module")
def ten(folder: Path) -> str:
    return written(folder, "ten.html", html.render(pages.many(10)))


@pytest.fixture(scope="module")
def thousand(folder: Path) -> str:
    return written(folder, "thousand.html", html.render(pages.many(1_000)))


@pytest.fixture(scope="module")
def ten_thousand(folder: Path) -> str:
    return written(folder, "ten-thousand.html", html.render(pages.many(10_000)))


@pytest.fixture(scope="module")
def comparison(folder: Path) -> str:
    sides = pages.many(6), pages.many(6)
    for kernel in sides[1]["kernels"][:3]:
        kernel["duration_us"] /= 2
    found = compare.compare(*sides, names=("before.ncu-rep", "after.ncu-rep"))
    return written(folder, "compare.html", comparison_page.render(found, sides))


def pinned(document: Document) -> tuple[str, str, str]:
    """A kernel with code, the rule of its first finding and an address that it points at."""
    for kernel in document["kernels"]:
        for finding in kernel["findings"]:
            if kernel.get("code") and finding["where"]:
                return kernel["id"], finding["rule"], finding["where"][0]["pc"]
    raise AssertionError("no recorded kernel has a finding with a place in its code")


def open_code(page: Any) -> None:
    page.locator(".kernel.active .showcode").click()
    page.locator(".kernel.active .pane").first.wait_for()


def test_1_asks_for_nothing_and_breaks_no_policy(browser: Any, ten: str, comparison: str) -> None:
    identity, _, _ = pinned(pages.many(10))
    with Opened(browser) as opened:
        for address in (ten, f"{ten}#k={identity}", comparison):
            page = opened.go(address)
            page.wait_for_selector("html.js")
            if "#k=" in address:
                open_code(page)
            page.evaluate(OPEN_ALL)
            page.evaluate("for (const part of document.querySelectorAll('details')) part.open = true")
            assert "default-src 'none'" in page.locator("meta[http-equiv]").get_attribute("content")
            assert page.evaluate("document.querySelectorAll('[style]').length") == 0
            assert (
                page.evaluate(
                    "[...document.querySelectorAll('*')].flatMap((e) => [...e.attributes])"
                    ".filter((a) => a.name.startsWith('on')).length"
                )
                == 0
            )
            opened.quiet()


def test_2_without_scripts_and_styles_the_answers_stand_there(browser: Any, thousand: str) -> None:
    document = pages.many(1_000)
    found = view.kernels(document)
    with Opened(browser, js=False) as opened:
        text = " ".join(opened.go(thousand).locator("body").inner_text().split())
        assert view.summary(document, found).split(";")[0] in text
        for kernel in found[:20]:
            assert kernel.name in text and kernel.title in text
            assert " ".join(kernel.reason.split()) in text


OPENED = """async (id) => {
    const start = performance.now();
    location.hash = 'k=' + id;
    const there = () => document.querySelector(`.kernel.active[data-id="${id}"] .answer`);
    while (!there()) await new Promise((resolve) => requestAnimationFrame(resolve));
    return performance.now() - start;
}"""
# When the rows stood there and could be clicked, in milliseconds after the navigation began.
ROWS_STOOD = """window.stood = null;
new MutationObserver((_, me) => { if (document.documentElement.classList.contains('js')
    && document.querySelector('#rows tr a')) { window.stood = performance.now(); me.disconnect(); } })
    .observe(document, {attributes: true, childList: true, subtree: true});"""


# Times are those of an idle machine; one that runs other tests beside is slow for a while: the best of so many counts.
TRIES = 10


def test_3_ten_thousand_kernels_open_at_once(browser: Any, ten_thousand: str) -> None:
    found = view.kernels(pages.many(10_000))
    with Opened(browser) as opened:
        opened.page.add_init_script(ROWS_STOOD)
        stood: list[float] = []
        while len(stood) < TRIES and min(stood, default=1e9) > 500:
            page = opened.go(ten_thousand)
            page.locator("#rows tr").nth(59).wait_for()
            stood.append(page.evaluate("window.stood"))
        assert min(stood) <= 500, stood
        # A packed kernel is one script element: all others are what is drawn.
        assert page.evaluate("document.querySelectorAll('*:not(script)').length") <= 5_000
        assert page.locator("#count").inner_text() == "10,000 kernels"
        assert page.evaluate("performance.memory.usedJSHeapSize") <= 30e6
        page.locator("#rows tr a").first.click()
        page.locator(f'.kernel.active[data-id="{found[0].id}"]').wait_for()
        for near in (found[1:], found[5_000:], found[::-1]):
            took: list[float] = []
            while len(took) < TRIES and min(took, default=1e9) > 50:
                took.append(page.evaluate(OPENED, near[len(took)].id))
            assert min(took) <= 50, took
        opened.quiet()


@pytest.mark.parametrize(("count", "limit"), [(1, 200e3), (10, 400e3), (1_000, 6e6), (10_000, 40e6)])
def test_4_sizes_hold_and_bytes_repeat(count: int, limit: float) -> None:
    document = pages.many(count)
    text = html.render(document)
    assert len(text.encode()) <= limit
    if count < 10_000:
        assert html.render(pages.many(count)) == text


def axe() -> str:
    pytest.importorskip("axe_playwright_python", reason="axe-playwright-python is not installed")
    return (resources.files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")


@pytest.mark.parametrize("width", [400, 1280, 2500])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_5_axe_finds_nothing_serious(browser: Any, ten: str, comparison: str, width: int, theme: str) -> None:
    source = axe()
    identity, _, _ = pinned(pages.many(10))
    with Opened(browser, width, theme) as opened:
        for address in (ten, f"{ten}#k={identity}", comparison):
            page = opened.go(address)
            page.wait_for_selector("html.js")
            if "#k=" in address:
                open_code(page)
            page.evaluate(source)
            found = page.evaluate("axe.run({resultTypes: ['violations']})")
            bad = [
                (one["id"], [node["html"][:160] for node in one["nodes"][:3]])
                for one in found["violations"]
                if one["impact"] in {"serious", "critical"}
            ]
            assert bad == [], address
            assert overflow(page) <= 0, address


def test_6_the_keyboard_alone_from_finding_to_export(browser: Any, ten: str) -> None:
    document = pages.many(10)
    identity, rule, _ = pinned(document)
    name = next(kernel["name"] for kernel in document["kernels"] if kernel["id"] == identity)
    with Opened(browser) as opened:
        page = opened.go(ten)
        page.wait_for_selector("html.js")
        page.keyboard.press("/")
        page.keyboard.type(name)
        page.keyboard.press("Enter")
        page.locator(f'.kernel.active[data-id="{identity}"] .codeview').wait_for()
        page.keyboard.press("n")
        page.locator(".pane tr.target").wait_for()
        assert page.evaluate("document.activeElement.closest('tr.target') !== null")
        page.keyboard.press("m")
        page.keyboard.type("rewrite planned")
        page.keyboard.press("Tab")
        page.keyboard.type("@kernel-team")
        page.locator("#marksave").focus()
        page.keyboard.press("Enter")
        assert page.locator("#marked").inner_text() == "1"
        assert page.evaluate("document.activeElement.classList.contains('mark')")  # the focus is where it was
        page.locator("#marks").focus()
        page.keyboard.press("Enter")
        assert rule in page.locator("#exporttext").input_value()
        page.keyboard.press("Escape")
        assert not page.locator("#exportbox").is_visible()
        page.evaluate("document.activeElement.blur()")
        page.keyboard.press("Escape")
        page.locator("#rows tr").first.wait_for()
        assert page.evaluate("document.activeElement.textContent") == name
        opened.quiet()


LANDED = """async (selector) => {
    const find = () => document.querySelector(selector);
    while (!find() || !find().offsetParent) await new Promise((resolve) => requestAnimationFrame(resolve));
    return performance.now();
}"""
IN_VIEW = """(e) => { const b = e.getBoundingClientRect();
    return b.top >= 0 && b.top < innerHeight && b.left >= 0 && b.left < innerWidth; }"""
STYLED = """(e) => { const of = (x) => getComputedStyle(x).backgroundColor;
    return [e, ...e.children].some((x) => of(x) !== 'rgba(0, 0, 0, 0)' && of(x) !== of(document.body)); }"""


def landed(opened: Opened, address: str, selector: str) -> Any:
    """The element that a link opened cold, in a new tab each time, leads to; there within a second (best of 3)."""
    took = []
    for _ in range(3):
        page = opened.context.new_page()
        page.set_default_timeout(10_000)
        page.goto(address)
        took.append(page.evaluate(LANDED, selector))
        if took[-1] <= 1000:
            break
        page.close()
    assert min(took) <= 1000, (address, took)
    return page.locator(selector).first


def test_7_links_opened_cold_land_where_they_point(browser: Any, ten: str, ten_thousand: str) -> None:
    document = pages.many(10)
    identity, rule, pc = pinned(document)
    kernel = next(kernel for kernel in document["kernels"] if kernel["id"] == identity)
    place = next(f for f in kernel["findings"] if f["rule"] == rule)["where"][0]
    many = view.kernels(pages.many(10_000))
    last = many[-1]
    found = next(one for one in reversed(many) if one.data["findings"])
    source = f"{Path(place['file']).name}:{place['line']}"
    with Opened(browser) as opened:
        line = landed(opened, f"{ten}#k={identity}&sass={pc}", f'.pane tr.target[data-pc="{pc}"]')
        assert rule in line.inner_text() and line.evaluate(IN_VIEW) and line.evaluate(STYLED)
        line = landed(opened, f"{ten}#k={identity}&src={source}", f'.pane tr[data-line="{place["line"]}"].target')
        assert line.evaluate(IN_VIEW) and line.evaluate(STYLED)
        part = landed(opened, links.finding(ten, identity, {"rule": rule}), ".finding.target")
        assert part.evaluate(IN_VIEW) and part.evaluate(STYLED) and rule in part.inner_text()
        assert part.page.locator("#foreign").is_hidden()
        head = landed(opened, links.kernel(ten_thousand, last.id), ".kernel.active h2")
        assert last.name in head.inner_text() and head.evaluate(IN_VIEW)
        part = landed(opened, links.finding(ten_thousand, found.id, found.data["findings"][0]), ".finding.target")
        assert part.evaluate(IN_VIEW) and part.evaluate(STYLED)
        landed(opened, f"{ten_thousand}#q=class%3Afit&sort=name", "#rows tr:nth-child(20)")
        page = opened.context.pages[-1]
        fits = sorted((one for one in many if one.klass == "fit"), key=lambda one: one.name)
        page.locator("#count", has_text=f"{len(fits):,} of 10,000 kernels").wait_for()
        shown = page.evaluate("[...document.querySelectorAll('#rows tr')].slice(0, 20).map((row) => row.dataset.id)")
        assert shown == [one.id for one in fits[:20]] and page.locator("#q").input_value() == "class:fit"
        near = kernel["name"].rsplit("_", 1)[0]
        head = landed(opened, f"{ten}#k=ffffffffffff&r=0123456789&n={near}", ".kernel.active h2")
        page = head.page
        assert near in head.inner_text() and "another report" in page.locator("#foreign").inner_text()
        page.keyboard.press("y")
        assert f"r={page.evaluate('document.documentElement.dataset.report')}" in page.url
        assert opened.noise == []


def test_8_sorts_and_filters_agree_with_the_document(browser: Any, thousand: str) -> None:
    """The same operations done in Python on the document; what is chosen is in the address and survives."""
    found = view.kernels(pages.many(1_000))
    rows = "[...document.querySelectorAll('#rows tr')].map((row) => row.dataset.id)"
    keys: dict[str, Any] = {
        "win": lambda one: round(one.win_key, 5),
        "name": lambda one: one.name,
        "verdict": lambda one: one.title,
        "time": lambda one: round(one.total_us, 3),
    }
    with Opened(browser) as opened:
        page = opened.go(thousand)
        page.locator("#rows tr").nth(59).wait_for()
        for sort, key in keys.items():
            for _ in range(2):
                page.locator(f"th[data-sort={sort}] button").click()
                down = page.locator(f"th[data-sort={sort}]").get_attribute("aria-sort") == "descending"
                expected = sorted(found, key=key)
                if down:  # equal ones keep the order by time
                    expected = sorted(found, key=key, reverse=True)
                assert page.evaluate(rows) == [one.id for one in expected[:60]], (sort, down)
        page.evaluate("location.hash = ''")
        for chip in page.locator(".chip").all():
            klass = chip.get_attribute("data-class")
            members = [one for one in found if one.klass == klass]
            chip.click()
            assert f"{len(members):,} kernel" in chip.inner_text()
            assert page.locator("#count").inner_text().startswith(f"{len(members):,} ")
            assert page.evaluate(rows) == [one.id for one in members[:60]]
            assert int(page.locator(".ktable").get_attribute("aria-rowcount")) == len(members) + 1
            chip.click()
        rule = next(kernel.rule for kernel in found if kernel.klass == "implementation")
        for words, fits in (
            (f"rule:{rule}", [one for one in found if (one.rule or "").startswith(rule or "")]),
            (f"has:{rule}", [one for one in found if _has(one, str(rule))]),
            ("class:fit", [one for one in found if one.klass == "fit"]),
            ("sev:critical class:implementation", [one for one in found if _critical(one)]),
            ("device:nvidia-h200", found),
            ("device:a100", []),
            ("GEMM _1", [one for one in found if "gemm" in _text(one) and "_1" in _text(one)]),
        ):
            page.locator("#q").fill(words)
            assert page.locator("#count").inner_text().startswith(f"{len(fits):,} "), words
            assert page.evaluate(rows) == [one.id for one in fits[:60]], words
        page.locator("#q").fill("class:fit")
        page.locator("th[data-sort=name] button").click()
        ordered = [
            one.id for one in sorted((one for one in found if one.klass == "fit"), key=lambda one: one.name)[:60]
        ]
        assert "class%3Afit" in page.url and "sort=name" in page.url
        opened.requests.clear()
        page.reload()
        page.locator("#count", has_text="of 1,000").wait_for()
        assert page.locator("#q").input_value() == "class:fit" and page.evaluate(rows) == ordered
        page.locator("#rows tr a").nth(3).click()
        page.locator(".kernel.active h2").wait_for()
        page.go_back()
        page.locator("#rows tr").first.wait_for()
        assert page.locator("#q").input_value() == "class:fit" and page.evaluate(rows) == ordered
        opened.quiet()


def _has(kernel: view.KernelView, rule: str) -> bool:
    return kernel.rule != rule and any(str(f["rule"]).startswith(rule) for f in kernel.data["findings"])


def _critical(kernel: view.KernelView) -> bool:
    worst = next((one for one in view.SEVERITIES if one in {f["severity"] for f in kernel.data["findings"]}), None)
    return worst == "critical" and kernel.klass == "implementation"


def _text(kernel: view.KernelView) -> str:
    return f"{kernel.name}\n{kernel.full_name}\n{kernel.title}".lower()


def test_9_hostile_text_is_shown_and_never_run(browser: Any, folder: Path) -> None:
    nasty = "</script><img src=x onerror='window.pwned=1'>\u202egnp<svg onload=window.pwned=1>{{7*7}}"
    document = copy.deepcopy(pages.many(5))  # what follows changes it
    for kernel in document["kernels"]:
        kernel["name"] = nasty + kernel["name"]
        kernel["demangled"] = nasty + "template<" * 12_000
        for row in kernel["hot"]:
            row |= {"source": nasty, "file": "/tmp/" + nasty, "sass": nasty}
        for one in (kernel.get("code") or {}).get("files", ()):
            one |= {"file": "/tmp/" + nasty, "text": "\n".join([nasty] * 200)}
        for line in (kernel.get("code") or {}).get("lines", ()):
            line[1] = nasty
        for finding in kernel["findings"]:
            finding["title"] = nasty
    document["runs"] = [{**document["runs"][0], "source": nasty, "command": nasty, "host": nasty}]
    address = written(folder, "hostile.html", html.render(document))
    with Opened(browser) as opened:
        page = opened.go(address)
        heights = page.evaluate("[...document.querySelectorAll('#rows tr')].map((row) => row.offsetHeight)")
        assert max(heights) < 200
        for kernel in document["kernels"]:
            page.evaluate(f"location.hash = 'k={kernel['id']}'")
            page.locator(f'.kernel.active[data-id="{kernel["id"]}"] h2').wait_for()
            if kernel.get("code"):
                open_code(page)
            page.evaluate(OPEN_ALL)
        assert page.locator("img").count() == 0
        assert "\u202e" not in page.locator("body").inner_text()
        assert "<img src=x" in page.locator(".kernel.active").inner_text()
        opened.quiet()


def test_10_a_mark_is_exported_read_and_applied(browser: Any, ten: str, tmp_path: Path) -> None:
    document = pages.many(10)
    identity, rule, _ = pinned(document)
    with Opened(browser) as opened:
        page = opened.go(f"{ten}#k={identity}")
        page.locator(".kernel.active .mark").first.click()
        page.locator("#markreason").fill('planned "soon" \\ later\u2028')
        page.locator("#markowner").fill("@kernel-team")
        page.locator("#markexpires").fill("2027-02-28")
        page.locator("#marksave").click()
        opened.requests.clear()
        page.reload()
        page.locator("#marks").click()
        exported = page.locator("#exporttext").input_value()
        opened.quiet()
    assert tomllib.loads(exported)["accept"][0]["finding"] == rule
    (tmp_path / "diagnose.toml").write_text(exported, encoding="utf-8")
    entries = config.load(tmp_path / "diagnose.toml").accepted
    assert entries[0].reason.startswith('planned "soon" \\ later') and entries[0].expires == date(2027, 2, 28)

    def state(changed: Document, day: date) -> str:
        applied = accept.apply(changed, entries, day)
        return next(one for one in view.kernels(applied) if one.id == identity).state

    assert state(document, date(2027, 2, 1)) == "accepted"
    assert state(document, date(2027, 3, 1)) == "lapsed"
    worse = json.loads(json.dumps(document))
    finding = next(k for k in worse["kernels"] if k["id"] == identity)["findings"][0]
    if finding.get("speedup"):
        finding["speedup"]["expected"] *= 1.2
        assert state(worse, date(2027, 2, 1)) == "lapsed"
    folded = written(tmp_path, "folded.html", html.render(accept.apply(document, entries, date(2027, 2, 1))))
    with Opened(browser) as opened:
        page = opened.go(folded)
        assert page.locator("#count").inner_text() == "9 of 10 kernels"
        page.get_by_role("button", name="Show 1 accepted").click()
        assert page.locator("#count").inner_text() == "10 kernels"
        assert "accepted=1" in page.url
        opened.quiet()


def test_11_prints(browser: Any, ten: str, tmp_path: Path) -> None:
    identity, _, _ = pinned(pages.many(10))
    with Opened(browser, theme="dark") as opened:
        page = opened.go(f"{ten}#k={identity}")
        page.locator(".kernel.active .roofline, .kernel.active .card").first.wait_for()
        page.emulate_media(media="print")
        page.set_viewport_size({"width": 718, "height": 1000})  # A4 less its margins
        assert overflow(page) <= 0
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        target = tmp_path / "page.pdf"
        page.pdf(path=str(target), format="A4")
        assert target.read_bytes().startswith(b"%PDF") and target.stat().st_size > 20_000


TABLES = """() => [...document.querySelectorAll('.kernel.active .card, .kernel.active .hot')].map((card) => ({
    title: card.querySelector('h3').textContent.trim(),
    widths: [...card.querySelectorAll('.bars .bar')].map((bar) => bar.querySelector('.fill'))
        .map((fill) => fill ? fill.getAttribute('width') : '0%'),
    tables: [...card.querySelectorAll('table')].map((table) => [...table.tBodies[0].rows].map((row) =>
        [...row.cells].map((cell) => cell.textContent.trim()))),
}))"""


def expected_tables(data: Mapping[str, Any]) -> dict[str, list[list[str | None]]]:
    """What the tables of a kernel's charts must say, from the document, in the digits of the page."""
    share, us, amount, count = fmt.share, fmt.duration, fmt.quantity, fmt.count
    whole = next(row["us"] for row in data["time_model"] if row["kind"] == "measured")
    found: dict[str, list[list[str | None]]] = {
        "Time: what it needs, what it takes": [
            [fmt.shorten(row["label"], 60), row["kind"], us(row["us"]), share(row["us"] / whole)]
            for row in data["time_model"]
        ],
        "limits": [
            [
                fmt.resource(one["resource"]), amount(one["work"], one["work_unit"]),
                amount(one["ceiling"], one["ceiling_unit"]), one["ceiling_source"], us(one["bound_us"]),
                share(one["utilization"]),
            ]
            for one in data["limits"]
        ],
        "Speed of Light": [[one["label"], share(one["utilization"]), one["source"]] for one in data["speed_of_light"]],
        "Instruction mix": [
            [one["opcode"], amount(one["executed"], "inst"), share(one["share"])] for one in data["instruction_mix"]
        ],
    }  # fmt: skip
    if data["stalls"]:
        found["Why warps waited"] = [
            [fmt.words(one["reason"]), share(one["share"]), share(one["not_issued_share"])]
            for one in data["stalls"]["reasons"]
        ]
    if data["main_loop"]:
        found["Main loop"] = [
            [one["category"].replace("_", " "), amount(one["executed"], "inst"), share(one["share"])]
            for one in data["main_loop"]["budget"]
        ]
    names = {"l1": "L1", "shared": "Shared", "l2": "L2", "hbm": "HBM"}
    found["Memory"] = [
        [
            names[one["level"]], amount(one["read_bytes"], "byte"), amount(one["write_bytes"], "byte"),
            share(one["hit_rate"]) if one["hit_rate"] is not None else None, share(one["utilization"]),
        ]
        for one in data["memory"]
    ]  # fmt: skip
    found["Hot instructions and their source"] = [
        [share(one["share"]), one["pc"], fmt.shorten(one["sass"], 120), None, count(one["executed"])]
        for one in data["hot"]
    ]
    return {title: rows for title, rows in found.items() if rows}


def test_12_numbers_are_the_documents_and_nothing_is_empty(browser: Any, ten: str) -> None:
    """Every chart's table says what the document says, in its digits and with its units; its bars are as long."""
    document = pages.many(10)
    compared = 0
    with Opened(browser) as opened:
        page = opened.go(ten)
        for kernel in view.kernels(document):
            page.evaluate(f"location.hash = 'k={kernel.id}'")
            page.locator(f'.kernel.active[data-id="{kernel.id}"] .card').first.wait_for()
            page.evaluate(OPEN_ALL)
            text = page.locator(".kernel.active").inner_text()
            for word in (r"\bNaN\b", r"\bundefined\b", r"\bnull\b", r"\bNone\b", r"\bInfinity\b"):
                assert not re.search(word, text), (kernel.name, word)
            shown = {card["title"]: card for card in page.evaluate(TABLES)}
            for title, rows in expected_tables(kernel.data).items():
                card = shown["Time: what it needs, what it takes" if title == "limits" else title]
                table = card["tables"][1 if title == "limits" else 0]
                assert len(table) == len(rows), (kernel.name, title)
                for cells, row in zip(table, rows, strict=True):
                    for cell, wanted in zip(cells, row, strict=False):
                        assert wanted is None or cell == wanted, (kernel.name, title, cells, row)
                        compared += 1
            bars = {
                "Time: what it needs, what it takes": [row["us"] for row in kernel.data["time_model"]],
                "Speed of Light": [1.0, *(one["utilization"] for one in kernel.data["speed_of_light"])],
                "Why warps waited": [one["share"] for one in (kernel.data["stalls"] or {}).get("reasons", ())],
                "Instruction mix": [one["share"] for one in kernel.data["instruction_mix"][:12]],
            }
            for title, values in bars.items():
                if title not in shown or not values:
                    continue
                full, drawn = max(values), values[1:] if title == "Speed of Light" else values
                widths = [float(width.rstrip("%")) / 100 for width in shown[title]["widths"]]
                assert len(widths) == len(drawn), (kernel.name, title)
                for width, value in zip(widths, drawn, strict=True):
                    assert abs(width - min(1.0, value / full)) < 2e-4, (kernel.name, title, width, value)
            for finding in kernel.data["findings"]:
                for one in finding["evidence"]:
                    assert f"{one['fact']}" in text and fmt.condition(one) in text, (kernel.name, one)
            for fact in kernel.data["facts"].values():
                assert fmt.shorten(fmt.quantity(fact["value"], fact["unit"]), 120) in text
            assert fmt.duration(kernel.duration_us) in text
            empty = page.evaluate(
                "[...document.querySelectorAll('.kernel.active td')].filter((cell) => !cell.textContent.trim())"
                ".map((cell) => cell.closest('table').outerHTML.slice(0, 200))"
            )
            assert empty == []
        opened.quiet()
    assert compared > 1_000


def test_the_comparison_filters_and_names_its_pairs(browser: Any, comparison: str) -> None:
    with Opened(browser) as opened:
        page = opened.go(comparison)
        page.wait_for_selector("html.js")
        page.locator('.chip[data-show="faster"]').click()
        assert page.locator(".pair:visible").count() == 3
        assert "less time" in page.locator(".pair:visible .answer").first.inner_text()
        page.locator('.chip[data-show="faster"]').click()
        assert page.locator(".pair:visible").count() == 6
        opened.quiet()
