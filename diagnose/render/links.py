"""Addresses of kernels and findings in an HTML report, for the formats that may link to it.

`page` is what comes before the `#`: where the report is served (`--report-url`), or the file that was written. The
fragments are those that reports/report.js reads.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from diagnose.errors import DiagnoseError
from diagnose.render import view


def anchor(rule: str) -> str:
    """A rule's id as it stands in addresses and element ids: `acme/own` is `acme.own`."""
    return view.safe_id(rule.replace("/", "."), "rule")


def kernel(page: str, identity: str) -> str:
    """The address of a kernel."""
    return f"{page}#k={identity}"


def finding(page: str, identity: str, found: Mapping[str, Any]) -> str:
    """The address of a kernel's finding."""
    return f"{kernel(page, identity)}&f={anchor(view.text(found.get('rule')) or 'rule without an id')}"


def checked(address: str | None) -> str | None:
    """`--report-url` as an address without a fragment, percent-encoded."""
    if address is None:
        return None
    if not address.startswith(("https://", "http://")) or any(char.isspace() for char in address):
        raise DiagnoseError(
            f"--report-url {address!r} is no web address",
            "--report-url https://ci.example.org/artifacts/diagnose-report.html",
        )
    return quote(address.split("#")[0], safe="/:?&=%@+,;~")


def of_file(written: Path | None, form: str, redacted: bool) -> str | None:
    """The address of a report that was written: absolute for SARIF, relative for Markdown; a redacted one names no
    folder, which leaves SARIF without."""
    if written is None:
        return None
    if form == "sarif":
        return None if redacted else written.resolve().as_uri()
    return quote(os.fsencode(written.name if redacted else written.as_posix()))
