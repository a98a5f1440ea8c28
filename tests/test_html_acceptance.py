"""The twelve browser checks of the report, on recorded kernels, in Debian's Chromium with the network off.

Each test names the check it makes (shared/html-report.md). Reports of 1, 10, 1,000 and 10,000 kernels; sizes and times
are measured by `tests/benchmarks/bench_html.py` too.
"""

from __future__ import annotations

import json
import re
import sys
import time
from datetime import date
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

import pages
from diagnose import accept, compare, config
from diagnose.render import comparison_page, html, view
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


def test_3_ten_thousand_kernels_open_at_once(browser: Any, ten_thousand: str) -> None:
    found = view.kernels(pages.many(10_000))
    with Opened(browser) as opened:
        started = time.monotonic()
        page = opened.go(ten_thousand)
        page.locator("#rows tr").nth(59).wait_for()
        loaded = time.monotonic() - started
        assert (
            page.evaluate("document.querySelectorAll('*:not(script)').length") < 5_000
        )  # a script holds a packed kernel
        assert page.locator("#count").inner_text() == "10,000 kernels"
        for kernel in (found[0], found[5_000], found[-1]):
            milliseconds = page.evaluate(
                """async (id) => {
                    const start = performance.now();
                    location.hash = 'k=' + id;
                    const there = () => document.querySelector(`.kernel.active[data-id="${id}"] .answer`);
                    while (!there()) await new Promise((resolve) => requestAnimationFrame(resolve));
                    return performance.now() - start;
                }""",
                kernel.id,
            )
            # 50 ms on an idle machine; a test machine that runs other tests beside is given five times that.
            assert milliseconds < 250, kernel.name
        assert page.evaluate("performance.memory.usedJSHeapSize") < 60e6
        assert loaded < 5
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


def test_7_links_opened_cold_land_where_they_point(browser: Any, ten: str, ten_thousand: str) -> None:
    document = pages.many(10)
    identity, rule, pc = pinned(document)
    kernel = next(kernel for kernel in document["kernels"] if kernel["id"] == identity)
    place = next(f for f in kernel["findings"] if f["rule"] == rule)["where"][0]
    in_view = "(e) => { const b = e.getBoundingClientRect(); return b.top >= 0 && b.bottom <= innerHeight; }"
    with Opened(browser) as opened:
        page = opened.go(f"{ten}#k={identity}&sass={pc}")
        line = page.locator(f'.pane tr.target[data-pc="{pc}"]')
        line.wait_for()
        assert rule in line.inner_text() and line.evaluate(in_view)
        page = opened.go(f"{ten}#k={identity}&src={Path(place['file']).name}:{place['line']}")
        page.locator(f'.pane tr[data-line="{place["line"]}"].target').wait_for()
        page = opened.go(f"{ten}#k={identity}&f={rule}")
        page.locator(".finding.target").wait_for()
        assert page.locator("#foreign").is_hidden()
        last = view.kernels(pages.many(10_000))[-1]
        page = opened.go(f"{ten_thousand}#k={last.id}")
        page.locator(".kernel.active h2").wait_for()
        assert last.name in page.locator(".kernel.active h2").inner_text()
        page = opened.go(f"{ten}#k=ffffffffffff&r=0123456789&n={kernel['name'].rsplit('_', 1)[0]}")
        page.locator(".kernel.active h2").wait_for()
        assert kernel["name"].rsplit("_", 1)[0] in page.locator(".kernel.active h2").inner_text()
        assert "another report" in page.locator("#foreign").inner_text()
        page.keyboard.press("y")
        assert f"r={page.evaluate('document.documentElement.dataset.report')}" in page.url
        opened.quiet()


def test_8_filters_agree_with_the_document(browser: Any, thousand: str) -> None:
    found = view.kernels(pages.many(1_000))
    with Opened(browser) as opened:
        page = opened.go(thousand)
        page.locator("#rows tr").nth(59).wait_for()
        rule = next(kernel.rule for kernel in found if kernel.klass == "implementation")
        for words, fits in (
            (f"rule:{rule}", [kernel for kernel in found if (kernel.rule or "").startswith(rule or "")]),
            ("class:fit", [kernel for kernel in found if kernel.klass == "fit"]),
            ("device:nvidia-h200", found),
            ("device:a100", []),
        ):
            page.locator("#q").fill(words)
            shown = page.locator("#count").inner_text()
            assert shown.startswith(f"{len(fits):,} "), words
            top = page.evaluate("[...document.querySelectorAll('#rows tr')].slice(0, 20).map((row) => row.dataset.id)")
            assert top == [kernel.id for kernel in fits[:20]]
        page.locator("#q").fill("class:fit")
        opened.requests.clear()
        page.reload()
        page.wait_for_selector("html.js")
        assert page.locator("#q").input_value() == "class:fit"
        opened.quiet()


def test_9_hostile_text_is_shown_and_never_run(browser: Any, folder: Path) -> None:
    nasty = "</script><img src=x onerror='window.pwned=1'>\u202egnp<svg onload=window.pwned=1>{{7*7}}"
    document = pages.many(5)
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


def test_12_numbers_are_the_documents_and_nothing_is_empty(browser: Any, ten: str) -> None:
    document = pages.many(10)
    with Opened(browser) as opened:
        page = opened.go(ten)
        for kernel in view.kernels(document):
            page.evaluate(f"location.hash = 'k={kernel.id}'")
            page.locator(f'.kernel.active[data-id="{kernel.id}"] .card').first.wait_for()
            page.evaluate(OPEN_ALL)
            text = page.locator(".kernel.active").inner_text()
            for word in (r"\bNaN\b", r"\bundefined\b", r"\bnull\b", r"\bNone\b", r"\bInfinity\b"):
                assert not re.search(word, text), (kernel.name, word)
            for limit in kernel.data["limits"]:
                assert html.fmt.share(limit["utilization"]) in text
                assert html.fmt.duration(limit["bound_us"]) in text
            assert html.fmt.duration(kernel.duration_us) in text
        empty = page.evaluate(
            "[...document.querySelectorAll('.cards td')].filter((cell) => !cell.textContent.trim()).length"
        )
        assert empty == 0
        opened.quiet()


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
