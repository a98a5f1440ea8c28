"""Fixtures of more than one test module."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import chromium


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api")
    if chromium.CHROMIUM is None:
        pytest.skip("no Chromium is installed")
    with api.sync_playwright() as playwright:
        running = chromium.launch(playwright)
        yield running
        running.close()
