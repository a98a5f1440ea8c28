"""The HTML report in a real browser: Debian's Chromium, opened from a file with the network off."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from diagnose.render import html, view

pytestmark = pytest.mark.browser

SAMPLE = Path(__file__).parent / "data" / "sample_document.json"
WATCH = """window.violations = [];
document.addEventListener('securitypolicyviolation', (event) => window.violations.push(event.violatedDirective));"""
OPEN_ALL = """for (const part of document.querySelectorAll(
    '#parts > .active details, #overview details, .about details')) part.open = true"""
IN_VIEW = """(line) => {
    const box = line.getBoundingClientRect();
    return box.top >= 0 && box.bottom <= innerHeight;
}"""
SHAPE = """(row) => [...row.querySelectorAll('*')].map((part) => part.tagName + '.'
    + (part.getAttribute('class') || '').replace(/c-(implementation|fit|hardware|unknown)/, '')).join()"""
ROW_NAMES = (
    "() => [...document.querySelectorAll('#rows tr')].map((row) => row.querySelector('.c-name bdi').textContent)"
)

Document = dict[str, Any]


@pytest.fixture(scope="module")
def document() -> Document:
    loaded: Document = json.loads(SAMPLE.read_text(encoding="utf-8"))
    return loaded


@pytest.fixture(scope="module")
def report(document: Document, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(html.render(document), encoding="utf-8")
    return path.as_uri()


@pytest.fixture(scope="module")
def packed(document: Document, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A report of 300 kernels, most of them packed; k250's chunk is broken."""
    kernels = []
    for position in range(300):
        kernel = copy.deepcopy(document["kernels"][position % 3])
        kernel |= {
            "id": f"k{position}",
            "name": f"kernel_{position}",
            "launches": 1,
            "time_share": None,
            "duration_us": 900.0 - position,
        }
        kernels.append(kernel)
    kernels[0]["raw_metrics"] = {f"metric_{n}": [n, "byte"] for n in range(200)}
    source = html.render({**document, "kernels": kernels, "program": {}})
    at = source.index(">", source.index('id="k-k250"')) + 1
    path = tmp_path_factory.mktemp("packed") / "report.html"
    path.write_text(source[:at] + "AAAA" + source[at + 4 :], encoding="utf-8")
    return path.as_uri()


class Opened:
    """A page and what it did."""

    def __init__(self, browser: Any, width: int = 1280, theme: str = "light", js: bool = True) -> None:
        self.context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=theme, offline=True, java_script_enabled=js
        )
        self.page = self.context.new_page()
        self.page.set_default_timeout(10_000)
        self.page.add_init_script(WATCH)
        self.noise: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.noise.append(message.text))
        self.page.on("pageerror", lambda error: self.noise.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))

    def __enter__(self) -> Opened:
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()

    def go(self, address: str) -> Any:
        self.page.goto("about:blank")
        self.requests.clear()
        self.page.goto(address)
        return self.page

    def quiet(self) -> None:
        assert self.noise == []
        assert self.page.evaluate("window.violations") == []
        assert len([url for url in self.requests if url != "about:blank"]) == 1  # the file itself
        assert self.page.evaluate("window.pwned") is None


def overflow(page: Any) -> int:
    width: int = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    return width


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 720, 1280, 2500])
def test_silent_and_never_wider_than_the_window(
    browser: Any, report: str, document: Document, width: int, theme: str
) -> None:
    with Opened(browser, width, theme) as opened:
        addresses = [report] + [f"{report}#k={kernel.id}" for kernel in view.kernels(document)]
        for address in addresses:
            page = opened.go(address)
            page.wait_for_selector("html.js")
            page.evaluate(OPEN_ALL)
            assert overflow(page) <= 0, address
            assert page.evaluate("document.querySelectorAll('[style]').length") == 0
            opened.quiet()


def test_sorting_agrees_with_python(browser: Any, report: str, document: Document) -> None:
    found = view.kernels(document)
    with Opened(browser) as opened:
        page = opened.go(report)
        by_time = page.evaluate(ROW_NAMES)
        assert by_time[:3] == [kernel.name for kernel in found][:3]
        page.get_by_role("button", name="Can win").click()
        wins = sorted(found, key=lambda kernel: -round(kernel.win_key, 5))
        assert page.evaluate(ROW_NAMES)[:2] == [kernel.name for kernel in wins][:2]
        assert page.locator("th[data-sort=win]").get_attribute("aria-sort") == "descending"
        page.get_by_role("button", name="Kernel", exact=True).click()
        names = page.evaluate(ROW_NAMES)
        assert names == sorted(names)
        assert "sort=name" in page.url
        page.reload()
        assert page.evaluate(ROW_NAMES) == names
        opened.noise.clear()


def test_filters_agree_with_the_chips(browser: Any, report: str, document: Document) -> None:
    with Opened(browser) as opened:
        page = opened.go(report)
        for chip in page.locator(".chip").all():
            chip.click()
            klass = chip.get_attribute("data-class")
            rows = page.evaluate("[...document.querySelectorAll('#rows tr')].map((row) => row.dataset.class)")
            expected = [kernel for kernel in view.kernels(document) if kernel.klass == klass]
            assert rows == [klass] * len(expected)
            assert f"{len(expected)} kernel" in chip.inner_text()
            chip.click()
        page.keyboard.press("/")
        page.keyboard.type("decode")
        assert page.evaluate(ROW_NAMES) == ["decode_attention_kernel"]
        assert page.locator("#count").inner_text() == "1 of 5 kernels"
        assert page.url.endswith("#q=decode")
        page.locator("#q").fill("nothing like this")
        assert page.locator("#none").is_visible()
        page.get_by_role("button", name="Show all").click()
        assert len(page.evaluate(ROW_NAMES)) == 5
        opened.quiet()


def test_the_keyboard_alone(browser: Any, report: str) -> None:
    with Opened(browser) as opened:
        page = opened.go(report)
        focused = "document.activeElement.textContent"
        page.keyboard.press("j")
        assert page.evaluate(focused) == "flash_fwd_kernel"
        page.keyboard.press("j")
        assert page.evaluate(focused) == "vectorized_elementwise_kernel"
        page.keyboard.press("Enter")
        page.wait_for_selector(".kernel.active")
        assert page.url.endswith("#k=b04e77d1")
        assert "vectorized_elementwise_kernel" in page.evaluate(focused)
        page.keyboard.press("j")
        page.wait_for_selector(".kernel.active[data-id=c91d02aa]")
        page.keyboard.press("Escape")
        page.wait_for_selector("#rows")
        assert page.evaluate(focused) == "decode_attention_kernel"  # the row of the kernel that was open
        opened.quiet()


def test_links_to_a_kernel_a_line_and_a_finding(browser: Any, report: str) -> None:
    with Opened(browser) as opened:
        page = opened.go(f"{report}#k=7f3a91c2")
        assert page.locator(".kernel.active h2").inner_text().endswith("flash_fwd_kernel")
        assert not page.locator("#overview").is_visible()
        page = opened.go(f"{report}#k=7f3a91c2&sass=0x1b10")
        line = page.locator("tr.target")
        assert "MUFU.EX2" in line.inner_text()
        assert line.evaluate(IN_VIEW)
        page = opened.go(f"{report}#k=7f3a91c2&f=no-overlap")
        assert page.locator(".finding.target").is_visible()
        page = opened.go(f"{report}#k=nowhere")
        assert "nowhere" in page.locator("#trouble").inner_text()
        page.locator("#back").click()
        assert page.locator("#rows").is_visible()
        opened.quiet()


def test_clicking_a_row_opens_it_and_back_returns(browser: Any, report: str) -> None:
    with Opened(browser) as opened:
        page = opened.go(report)
        page.locator("#rows tr").first.locator(".c-why").click()
        assert page.locator(".kernel.active").get_attribute("data-id") == "7f3a91c2"
        page.go_back()
        page.wait_for_selector("#rows tr")
        assert page.locator("#overview").is_visible() and not page.locator("#parts").is_visible()
        opened.quiet()


def test_a_lone_kernel_is_open_at_once(browser: Any, document: Document, tmp_path: Path) -> None:
    path = tmp_path / "one.html"
    path.write_text(html.render({**document, "kernels": document["kernels"][:1]}), encoding="utf-8")
    with Opened(browser) as opened:
        page = opened.go(path.as_uri())
        assert page.locator("#rows").is_visible() and page.locator(".roofline").first.is_visible()
        opened.quiet()


def test_without_javascript_everything_can_be_read(browser: Any, report: str, document: Document) -> None:
    with Opened(browser, js=False) as opened:
        page = opened.go(f"{report}#k=7f3a91c2")
        text = page.locator("body").inner_text()
        assert view.summary(document, view.kernels(document)) in text
        for kernel in view.kernels(document)[:3]:
            assert kernel.name in text and kernel.reason in text and kernel.title in text
        assert "opcode.hmma_share" in text  # the part that the link names has opened itself
        assert not page.locator("#q").is_visible()
        assert overflow(page) <= 0


def test_packed_kernels_open_on_demand(browser: Any, packed: str) -> None:
    with Opened(browser) as opened:
        page = opened.go(packed)
        page.locator("#rows tr").nth(59).wait_for()
        assert page.locator("#count").inner_text() == "300 kernels"
        first, later = page.locator("#rows tr").nth(0), page.locator("#rows tr").nth(30)
        assert later.locator("a").get_attribute("href") == "#k=k30"
        assert first.evaluate(SHAPE) == later.evaluate(SHAPE)  # rows by the template and by the script are alike
        page.locator("#q").fill("kernel_299")
        assert page.locator("#count").inner_text() == "1 of 300 kernels"
        page.keyboard.press("Enter")
        page.locator(".kernel.active[data-id=k299] h2").wait_for()
        assert page.locator(".kernel.active .card").count() > 3
        page = opened.go(f"{packed}#k=k298")
        page.locator(".kernel.active h2").wait_for()
        assert "kernel_298" in page.locator(".kernel.active h2").inner_text()
        page = opened.go(f"{packed}#k=k0")
        page.locator(".kernel.active .roofline").wait_for()  # the brief part gave way to the packed one
        raw = page.locator(".active details.raw")
        raw.locator("summary").click()
        raw.locator("tbody tr").nth(199).wait_for()
        raw.locator("input").fill("metric_19")
        assert raw.locator("tbody tr:visible").count() == 11
        opened.quiet()


def test_a_broken_chunk_spoils_one_kernel_only(browser: Any, packed: str) -> None:
    with Opened(browser) as opened:
        page = opened.go(f"{packed}#k=k250")
        page.locator("#trouble").wait_for()
        assert "k250" in page.locator("#trouble").inner_text()
        page.evaluate("location.hash = '#k=k251'")
        page.locator(".kernel.active[data-id=k251] h2").wait_for()
        assert not page.locator("#trouble").is_visible()


def test_scrolling_draws_more_rows(browser: Any, packed: str) -> None:
    with Opened(browser) as opened:
        page = opened.go(packed)
        page.locator("#rows tr").nth(59).wait_for()
        assert page.locator("#rows tr").count() == 60
        page.evaluate("scrollTo(0, document.body.scrollHeight)")
        page.locator("#rows tr").nth(119).wait_for()
        assert page.evaluate("document.querySelectorAll('*').length") < 15_000
        opened.quiet()


def test_prints_light_and_unclipped(browser: Any, report: str) -> None:
    with Opened(browser, theme="dark") as opened:
        page = opened.go(f"{report}#k=7f3a91c2")
        page.emulate_media(media="print")
        page.set_viewport_size({"width": 718, "height": 1000})  # A4 less its margins
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert overflow(page) <= 0
        assert not page.locator("#back").is_visible()
