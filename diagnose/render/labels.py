"""Labels that tell the instances of one template apart: `map<Add>` and `map<Gelu>`, where both are called `map`."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

_MOST_READ = 4000  # characters of a demangled name: PyTorch's have up to 3,000, and a hostile one any number
_CAST = re.compile(r"\((?:bool|char|signed char|unsigned char|short|unsigned short|int|unsigned int|unsigned|"
                   r"long|unsigned long|long long|unsigned long long)\)(?=-?\d)")  # fmt: skip
_NAMESPACES = re.compile(r"(?:(?:\b[A-Za-z_]\w*|<unnamed>|\(anonymous namespace\))::)+(?=[A-Za-z_<])")
# What follows a function that a lambda is inside of: its parameters, and the way to the lambda.
_INSIDE = re.compile(r"\([^()]*\)(?:::\[lambda[^\]]*\]|::operator \(\)\(\) const)+")


def arguments(name: str, full: str) -> str | None:
    """The template arguments of the function `name` in its demangled name, without their outer brackets."""
    full = full[:_MOST_READ]
    found = re.search(rf"(?<!\w){re.escape(name)}<", full)
    if found is None:
        return None
    depth = 1
    for at in range(found.end(), len(full)):
        if full[at] == "<":
            depth += 1
        elif full[at] == ">" and full[at - 1] != "-":
            depth -= 1
            if depth == 0:
                return full[found.end() : at]
    return None


def _tidy(text: str) -> str:
    return _NAMESPACES.sub("", _CAST.sub("", text))


def labels(named: Sequence[tuple[str, str]], width: int = 40) -> list[str]:
    """A label for each (name, demangled name): the name, with template arguments where others of that name differ.

    Of arguments longer than `width` the end is cut off. Where that would make two alike, they stay so: the full name
    is on the page.
    """
    forms: dict[str, set[str]] = defaultdict(set)
    for name, full in named:
        forms[name].add(full)
    found = []
    for name, full in named:
        inner = arguments(name, full) if len(forms[name]) > 1 else None
        if inner is None:
            found.append(name)
            continue
        text = _INSIDE.sub("", _tidy(inner))
        found.append(f"{name}<{text if len(text) <= width else text[: width - 1].rstrip() + '…'}>")
    return found
