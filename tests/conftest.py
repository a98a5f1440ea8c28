"""Fixtures of more than one test module."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest

import chromium


def pytest_configure() -> None:
    """Ctrl-C works in a run that a script has put into the background, too: it would be ignored there, by this process
    and by every program that a test starts and interrupts."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api")
    if chromium.CHROMIUM is None:
        pytest.skip("no Chromium is installed")
    with api.sync_playwright() as playwright:
        running = chromium.launch(playwright)
        yield running
        running.close()
