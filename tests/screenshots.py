"""Takes the pictures in docs/img from recorded kernels: `python tests/screenshots.py`. Look at them before a commit."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import chromium
import pages
from diagnose import compare
from diagnose.render import comparison_page, html

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "img"
WIDTHS = {"narrow": (400, 860), "middle": (1280, 900), "wide": (2500, 1200)}


def main() -> int:
    """Writes the pictures; 1 where there is no Chromium."""
    from playwright.sync_api import sync_playwright

    if chromium.CHROMIUM is None:
        print("no Chromium is installed")
        return 1
    FOLDER.mkdir(exist_ok=True)
    document = pages.many(40)
    chosen = next(
        kernel
        for kernel in document["kernels"]
        if kernel.get("code") and kernel.get("timeline") and kernel["findings"] and kernel["findings"][0]["where"]
    )
    after = pages.many(40)
    for position, kernel in enumerate(after["kernels"][:12]):
        kernel["duration_us"] *= 0.8 if position % 3 else 1.2
    found = compare.compare(document, after, names=("before.ncu-rep", "after.ncu-rep"))
    with tempfile.TemporaryDirectory() as place, sync_playwright() as playwright:
        report, compared = Path(place) / "report.html", Path(place) / "compare.html"
        report.write_text(html.render(document), encoding="utf-8")
        compared.write_text(comparison_page.render(found, (document, after)), encoding="utf-8")
        browser = chromium.launch(playwright)
        for name, (width, height) in WIDTHS.items():
            page = browser.new_page(viewport={"width": width, "height": height})
            page.goto(report.as_uri())
            page.locator("#rows tr").nth(30).wait_for()
            page.screenshot(path=FOLDER / f"list-{name}.png")
            page.goto(f"{report.as_uri()}#k={chosen['id']}")
            page.locator(".kernel.active .card").first.wait_for()
            page.screenshot(path=FOLDER / f"kernel-{name}.png")
            page.goto(compared.as_uri())
            page.locator(".pair").first.wait_for()
            page.screenshot(path=FOLDER / f"compare-{name}.png")
            page.close()
        page = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme="dark")
        page.goto(f"{report.as_uri()}#k={chosen['id']}&sass={chosen['findings'][0]['where'][0]['pc']}")
        page.locator(".pane tr.target").wait_for()
        page.screenshot(path=FOLDER / "source-dark.png")
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
