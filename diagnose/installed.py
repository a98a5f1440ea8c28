"""Packs of installed packages: entry points whose values name a folder of a package, and facts that it computes.

[project.entry-points."diagnose.rule_packs"]
acme = "acme_gpu.rules"            # the folder rules/ of the package acme_gpu

[project.entry-points."diagnose.facts"]
acme = "acme_gpu.facts:FACTS"      # a sequence of diagnose.facts.FactDefinition, named acme.NAME

`--rules installed:acme` (or `packs = ["installed:acme"]`) uses both. A pack that is not named is not used, and nothing
of it is imported. Of a pack without `diagnose.facts` only files are read; with it, naming the pack is what trusts its
code. That code comes from where this Python installs packages and from nowhere else: not from `--rules DIR`, and not
from a folder that merely stands on the path, as a checkout under review may.
"""

from __future__ import annotations

import re
import site
import sysconfig
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import metadata, util
from pathlib import Path
from typing import TYPE_CHECKING, cast

from diagnose.errors import DiagnoseError
from diagnose.packfile import nearest
from diagnose.packs import MAX_FACTS
from diagnose.rules import CodeFacts

if TYPE_CHECKING:
    from diagnose.facts.context import Context, FactDefinition
    from diagnose.model import Scalar

GROUP = "diagnose.rule_packs"
FACTS_GROUP = "diagnose.facts"
PREFIX = "installed:"
_DOTTED = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*", re.ASCII)
_FACT = re.compile(r"[a-z][a-z0-9_]*\.[a-z][a-z0-9_]*", re.ASCII)


def resolve(path: Path) -> Path:
    """The folder of `installed:NAME`; any other path as it is."""
    name = _name(path)
    if name is None:
        return path
    found = {point.name: point.value for point in metadata.entry_points(group=GROUP)}
    if name not in found:
        known = ", ".join(sorted(found)) or "none"
        raise DiagnoseError(
            f"no installed package offers the pack {name!r}{nearest(name, found)}",
            f"installed packs: {known}; `--rules DIR` names a folder",
        )
    return _folder(name, found[name])


def _name(path: Path) -> str | None:
    text = str(path)
    return text.removeprefix(PREFIX) if text.startswith(PREFIX) else None


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


# --- facts in Python ---


def places() -> tuple[Path, ...]:
    """Where this Python installs packages."""
    found = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *site.getsitepackages()]
    if site.ENABLE_USER_SITE:
        found.append(site.getusersitepackages())
    return tuple(dict.fromkeys(Path(place).resolve() for place in found if place))


def code_facts(path: Path) -> CodeFacts | None:
    """The facts that the package of `installed:NAME` computes; None where it has none, and for any other path.

    Imports the package. Raises DiagnoseError where it is not installed, or what it gives are no facts.
    """
    name = _name(path)
    point = next((one for one in metadata.entry_points(group=FACTS_GROUP) if one.name == name), None) if name else None
    if name is None or point is None:
        return None
    what = f"the facts of the installed pack {name!r} ({point.value[:80]})"
    home = Path(str(point.dist.locate_file(""))).resolve() if point.dist is not None else None
    if point.dist is None or home not in places():
        raise DiagnoseError(
            f"{what} would be run from {home or 'nowhere known'}, where no package is installed",
            "pip install it: code of a folder on the path is not run",
        )
    try:
        given = point.load()
    except Exception as error:
        raise DiagnoseError(
            f"{what} cannot be imported: {type(error).__name__}: {str(error)[:200]}", "correct the package"
        ) from None
    return CodeFacts(
        point.value, f"{point.dist.name} {point.dist.version}", tuple(_checked(what, name.replace("-", "_"), given))
    )


def _checked(what: str, prefix: str, given: object) -> list[FactDefinition]:
    from diagnose.facts.context import FactDefinition

    shape = f"a sequence of diagnose.facts.FactDefinition named {prefix}.NAME"
    if not isinstance(given, Sequence) or not all(isinstance(one, FactDefinition) for one in given):
        raise DiagnoseError(f"{what} are {type(given).__name__}, not FactDefinitions", shape)
    if len(given) > MAX_FACTS:
        raise DiagnoseError(f"{what} are {len(given)}, more than {MAX_FACTS}", "split the package")
    names = [one.name for one in given]
    for name in names:
        if not _FACT.fullmatch(name) or not name.startswith(f"{prefix}."):
            raise DiagnoseError(f"{what}: {name[:80]!r} is not a name that they may take", shape)
    if len(set(names)) < len(names):
        raise DiagnoseError(f"{what}: a name stands twice", shape)
    return [replace(one, compute=_guarded(one)) for one in given]


def _guarded(definition: FactDefinition) -> Callable[[Context], Scalar | None]:
    """The fact's function; what it raises, or a value of another kind, is an unknown fact that says so."""

    def compute(context: Context) -> Scalar | None:
        try:
            value = cast(object, definition.compute(context))  # whatever the package's code gives
        except Exception as error:
            context.miss(f"{definition.name} (its code raised {type(error).__name__})")
            return None
        if value is None or isinstance(value, int | float | str):
            return value
        context.miss(f"{definition.name} (its code gave a {type(value).__name__})")
        return None

    return compute
