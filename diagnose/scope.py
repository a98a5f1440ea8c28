"""Which kernels a rule, a pack's threshold or a section is meant for: a glob over names, bounds on the architecture."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from diagnose.expr import COMPARISONS
from diagnose.packfile import YNode

MAX_GLOB = 200
_ARCH = re.compile(r"\s*(>=|<=|==|!=|>|<)?\s*sm_([0-9]{2,4})[a-z]?\s*", re.ASCII)


def arch_fits(bounds: Sequence[tuple[str, int]], arch: str | None) -> bool | None:
    """Whether `arch` (`sm_90a`) is within `bounds`; None when that is not known. No bounds: any fits."""
    if not bounds:
        return True
    match = _ARCH.fullmatch(arch or "")
    if match is None:
        return None
    number = int(match[2])
    if any(op == "==" and number == other for op, other in bounds):
        return True
    limits = [COMPARISONS[op](number, other) for op, other in bounds if op != "=="]
    return bool(limits) and all(limits)


def read_bounds(value: YNode) -> tuple[tuple[str, int], ...]:
    """`sm_90`, `'>=sm_80'` or a list of these, as (operator, number)."""
    bounds = []
    for item in value.value if isinstance(value.value, tuple) else (value,):
        text = item.text("arch")
        match = _ARCH.fullmatch(text)
        if match is None:
            raise item.fail(
                f"arch {text!r} is not an architecture", "as sm_90, '>=sm_80', or a list: ['>=sm_80', '<sm_100']"
            )
        bounds.append((match[1] or "==", int(match[2])))
    return tuple(bounds)


def glob_matches(pattern: str, text: str) -> bool:
    """Whether a whole text matches `*` (any characters) and `?` (one); no regular expression, no blow-up."""
    at = star = mark = 0
    found_star = False
    where = 0
    while where < len(text):
        if at < len(pattern) and pattern[at] == "*":
            found_star, star, mark = True, at, where
            at += 1
        elif at < len(pattern) and pattern[at] in ("?", text[where]):
            at += 1
            where += 1
        elif found_star:
            mark += 1
            at, where = star + 1, mark
        else:
            return False
    return not pattern[at:].strip("*")


@dataclass(frozen=True)
class Scope:
    """Kernels whose short or full name matches `kernel` (None: all), on an architecture within `arch`."""

    kernel: str | None = None
    arch: tuple[tuple[str, int], ...] = ()

    def fits(self, names: Sequence[str], arch: str | None) -> bool:
        """Whether it is meant for a kernel of these names on `arch`. An unknown architecture fits no bound."""
        if self.kernel is not None and not any(glob_matches(self.kernel, name) for name in names):
            return False
        return arch_fits(self.arch, arch) is True


def read_scope(given: Mapping[str, YNode]) -> Scope:
    """The scope that the keys `kernel` and `arch` of a mapping give."""
    glob = given["kernel"].optional_text("kernel") if "kernel" in given else None
    if glob is not None and len(glob) > MAX_GLOB:
        raise given["kernel"].fail(f"the pattern has more than {MAX_GLOB} characters", "as 'attention_*'")
    return Scope(glob, read_bounds(given["arch"]) if "arch" in given else ())
