"""The function in a kernel's name, mangled or demangled."""

from __future__ import annotations

import re


def function_of(name: str) -> str:
    """The function in a demangled or mangled name: `gemm` of `void ns::gemm<float>(float*)` and of `_ZN2ns4gemmIfEvPf`.

    Of mangled names the nested ones of the Itanium C++ ABI are read; any other name is its own function.
    """
    if name.startswith("_Z"):
        return _mangled_function(name) or name
    text = name.removeprefix("void ")
    depth = 0
    kept: list[str] = []
    for at, character in enumerate(text):
        if character == "(" and depth == 0:
            if text.startswith("(anonymous namespace)", at):
                kept.append("?")
                continue
            if kept and kept[-1] != "?":
                break
        depth += (character == "<") - (character == ">")
        if depth == 0 and character != ">":
            kept.append(character)
    return "".join(kept).split("::")[-1].strip() or name


_SOURCE_NAME = re.compile(r"(\d+)")
_SUBSTITUTION = re.compile(r"S(?:[0-9A-Z]*_|[a-z])")


def _mangled_function(name: str) -> str | None:
    """The last component of the name that `_Z` encodes, without its template arguments."""
    at = 2
    nested = name[at : at + 1] == "N"
    if nested:
        at += 1
    last: str | None = None
    while at < len(name):
        if length := _SOURCE_NAME.match(name, at):
            end = length.end() + int(length[1])
            if end > len(name):  # the text is no mangled name after all
                return None
            last, at = name[length.end() : end], end
            if not nested:
                return last
        elif name[at] == "I" and nested:
            end_of = _after_arguments(name, at)
            if end_of is None or name[end_of : end_of + 1] == "E":
                return last
            at = end_of
        elif name[at] == "E":
            return last
        elif name[at] == "S":  # a substitution: St, Sa, S_, S0_
            match = _SUBSTITUTION.match(name, at)
            if match is None:
                return last
            at = match.end()
        elif name[at] in "KVrL":
            at += 1
        else:
            return last
    return last


def _after_arguments(name: str, at: int) -> int | None:
    """Where the template arguments that begin at `at` end; None where the text has a form that is not followed."""
    depth = 0
    while at < len(name):
        character = name[at]
        if length := _SOURCE_NAME.match(name, at):
            at = length.end() + int(length[1])
            continue
        if character == "L":  # a literal: Li4E, Lb0E; L_Z…E names something
            end = name.find("E", at)
            if end < 0 or name.startswith("L_Z", at):
                return None
            at = end + 1
            continue
        if character in "INJXF":
            depth += 1
        elif character == "E":
            depth -= 1
            if depth == 0:
                return at + 1
        at += 1
    return None
