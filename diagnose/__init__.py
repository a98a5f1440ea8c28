"""diagnose: why a CUDA kernel is slow, in one command.

From Python: `diagnose.profile(function, …)`, `with diagnose.profile() as p:`, `diagnose.read(report, …)` and
`diagnose.from_nsight(result)`. They are imported when they are used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from diagnose.notebook import profile as profile
    from diagnose.nsight import from_nsight as from_nsight
    from diagnose.nsight import nsight_metrics as nsight_metrics
    from diagnose.summary import Summary as Summary
    from diagnose.summary import read as read

__version__ = "0.1.0"

_PLACES = {
    "profile": "notebook",
    "from_nsight": "nsight",
    "nsight_metrics": "nsight",
    "read": "summary",
    "Summary": "summary",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    found = getattr(import_module(f"diagnose.{_PLACES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_PLACES})
