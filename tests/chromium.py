"""Debian's Chromium, for the browser tests, the screenshots and the benchmark of the page."""

from __future__ import annotations

import shutil
from typing import Any

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)


def launch(playwright: Any) -> Any:
    """A running browser; needs CHROMIUM."""
    return playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
