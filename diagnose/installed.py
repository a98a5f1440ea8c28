"""Packs of installed packages: the entry points `diagnose.rule_packs`, whose values name a folder of a package.

[project.entry-points."diagnose.rule_packs"]
acme = "acme_gpu.rules"        # the folder rules/ of the package acme_gpu

`--rules installed:acme` (or `packs = ["installed:acme"]`) uses it. Only the path is read: no code of it is imported,
and a pack that is not named is not used.
"""

from __future__ import annotations

import re
from importlib import metadata, util
from pathlib import Path

from diagnose.errors import DiagnoseError
from diagnose.packfile import nearest

GROUP = "diagnose.rule_packs"
PREFIX = "installed:"
_DOTTED = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*", re.ASCII)


def resolve(path: Path) -> Path:
    """The folder of `installed:NAME`; any other path as it is."""
    text = str(path)
    if not text.startswith(PREFIX):
        return path
    name = text.removeprefix(PREFIX)
    found = {point.name: point.value for point in metadata.entry_points(group=GROUP)}
    if name not in found:
        known = ", ".join(sorted(found)) or "none"
        raise DiagnoseError(
            f"no installed package offers the pack {name!r}{nearest(name, found)}",
            f"installed packs: {known}; `--rules DIR` names a folder",
        )
    return _folder(name, found[name])


def _folder(name: str, value: str) -> Path:
    if not _DOTTED.fullmatch(value):
        raise DiagnoseError(
            f"the entry point {name!r} of {GROUP} is {value[:80]!r}, no dotted path",
            "as acme.rules: PACKAGE.FOLDER",
        )
    package, *inner = value.split(".")
    try:
        spec = util.find_spec(package)  # a top-level name: found, not imported
    except (ImportError, ValueError):
        spec = None
    for root in (spec.submodule_search_locations or ()) if spec is not None else ():
        folder = Path(root).joinpath(*inner)
        if folder.is_dir():
            return folder
    raise DiagnoseError(
        f"the entry point {name!r} of {GROUP} names {value}, and there is no such folder",
        "install the package again, or name its folder: --rules DIR",
    )
