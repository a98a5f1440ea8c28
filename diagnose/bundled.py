"""Finds the data that ships with the package: rules/, kernels/, reports/, examples/."""

from __future__ import annotations

from pathlib import Path


def bundled(kind: str) -> Path:
    """The folder of bundled data `kind` (`rules`, `kernels`, `reports`, `examples`).

    In a wheel the data lies under `diagnose/_bundled/KIND` (hatchling's force-include); in a checkout (an editable
    install) beside the package. Raises FileNotFoundError when neither is there.
    """
    package = Path(__file__).resolve().parent
    for candidate in (package / "_bundled" / kind, package.parent / kind):
        if candidate.is_dir():
            return candidate
    raise FileNotFoundError(f"bundled data {kind!r} is missing from this installation")
