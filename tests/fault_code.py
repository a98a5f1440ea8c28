"""Whether the fault of a pair is in its machine code (`tests/data/fault_in_code.yaml`, by verdict)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

import yaml

from diagnose.sass.mix import count

TABLE = Path(__file__).parent / "data" / "fault_in_code.yaml"
Opcodes = Mapping[str, float]  # opcode, with its suffixes -> how often


@lru_cache(maxsize=1)
def table() -> Mapping[str, Mapping[str, object]]:
    """What must be there, by verdict."""
    found: Mapping[str, Mapping[str, object]] = yaml.safe_load(TABLE.read_text("utf-8"))
    return found


def problem(verdict: str, fault: Opcodes, fix: Opcodes, one_code: bool) -> str | None:
    """What is not as the table says; None where all is.

    With `one_code`, fault and fix are one function, told apart by their data, their launch or a template argument: then
    only what the fault must have is looked at.
    """
    wanted = {key: [str(one) for one in told] for key, told in table()[verdict].items() if isinstance(told, list)}
    if "has" in wanted and not count(fault, *wanted["has"]):
        return f"the fault has none of {wanted['has']}"
    if one_code:
        return None
    if "lacks" in wanted and count(fault, *wanted["lacks"]):
        return f"the fault has one of {wanted['lacks']}"
    if "fixed" in wanted and not count(fix, *wanted["fixed"]):
        return f"the fix has none of {wanted['fixed']}"
    if "fewer" in wanted and count(fix, *wanted["fewer"]) >= count(fault, *wanted["fewer"]):
        return f"the fix has no fewer of {wanted['fewer']}"
    return None
