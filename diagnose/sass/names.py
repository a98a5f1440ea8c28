"""Names of kernels: the C++ name of a mangled one, and the short name that people use."""

from __future__ import annotations

import ctypes
import ctypes.util
from functools import cache, lru_cache

_LONGEST = 20_000


@cache
def _demangler() -> ctypes.CDLL | None:
    for name in ("libstdc++.so.6", ctypes.util.find_library("stdc++")):
        if name:
            try:
                library = ctypes.CDLL(name)
                library.__cxa_demangle.restype = ctypes.c_void_p
                return library
            except (OSError, AttributeError):
                continue
    return None


@lru_cache(maxsize=65536)
def demangle(name: str) -> str:
    """The C++ name, or the name as it is where it is not mangled or cannot be read."""
    library = _demangler()
    if library is None or not name.startswith("_Z") or len(name) > _LONGEST:
        return name
    status = ctypes.c_int(1)
    found = library.__cxa_demangle(name.encode("utf-8"), None, None, ctypes.byref(status))
    if not found:
        return name
    try:
        return ctypes.string_at(found).decode("utf-8", "replace") if status.value == 0 else name
    finally:
        ctypes.CDLL(None).free(ctypes.c_void_p(found))


def short(demangled: str) -> str:
    """The function's own name: `void ns::kernel<float>(int)` -> `kernel`."""
    depth = 0
    end = len(demangled)
    text = demangled.replace("(anonymous namespace)", "anonymous_namespace")
    for at, character in enumerate(text):  # the parameters begin at the first parenthesis outside template arguments
        if character == "<":
            depth += 1
        elif character == ">":
            depth -= 1
        elif character == "(" and depth <= 0:
            end = at
            break
    else:
        end = len(text)
    head = text[:end]
    while head.endswith(">"):  # template arguments of the function itself
        depth = 0
        for at in range(len(head) - 1, -1, -1):
            depth += {">": 1, "<": -1}.get(head[at], 0)
            if depth == 0:
                head = head[:at]
                break
        else:
            break
    depth = 0
    for at in range(len(head) - 1, -1, -1):
        depth += {">": 1, "<": -1}.get(head[at], 0)
        if depth == 0 and head[at] in ": *&":
            return head[at + 1 :] or demangled
    return head or demangled
