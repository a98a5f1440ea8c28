"""Studies as data: one YAML file each, read and checked before anything runs.

A study names a variable (an `axis` of values, or `variants` of a kernel), the kernels and parameters that carry it,
and what an improvement would mean. `docs/ablations.md` explains the keys.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from diagnose.bundled import bundled
from diagnose.collect.kernels import ReferenceKernel, evaluate, load_kernels
from diagnose.errors import DiagnoseError
from diagnose.packfile import YNode, nearest, parse_yaml, read_bytes
from diagnose.packs import STUDIES_FOLDER, TABLE_FILE

ANALYSES = ("knee", "waves", "crossover")
ABLATES = ("axis", "variant")
MEASURES = ("rate", "time")
PROFILES = ("ends", "baseline", "all", "none")
_KEYS = (
    "title", "question", "article", "improves", "unchanged", "tests", "ablates", "baseline", "at", "axis", "variants",
    "measure", "analyses", "blocks", "profile", "launches", "note",
)  # fmt: skip
_REQUIRED = ("title", "question", "ablates", "baseline", "variants")
_VARIANT_KEYS = ("name", "kernel", "params", "values", "flops_ceiling")
HELP = "the keys of a study are explained in docs/ablations.md"


@dataclass(frozen=True)
class Axis:
    """A swept variable: every one of `params` takes each of `values`."""

    name: str
    params: tuple[str, ...]
    values: tuple[int, ...]


@dataclass(frozen=True)
class Variant:
    """One curve: a bundled kernel with fixed parameters, or a user's command line with `{axis}` in it.

    `flops_ceiling` names the catalogue's ceiling for its operations (`tensor:wgmma:bf16`); `values` replaces the
    axis's; `flops` is a user's program's work over the axis (a bundled kernel's manifest says its own).
    """

    name: str
    kernel: ReferenceKernel | None
    params: Mapping[str, int] = field(default_factory=dict)
    command: tuple[str, ...] = ()
    values: tuple[int, ...] | None = None
    flops_ceiling: str | None = None
    flops: str | None = None


@dataclass(frozen=True)
class Study:
    """A study that can run. `baseline` and `at` are values of the axis, or the name of a variant (`baseline` only).

    `ablates` says what is changed: the axis (each variant is compared with itself at `baseline`) or the variant (each
    is compared with the variant `baseline` at every value; `at` is the value that decides, the last unless given).
    `measure` is what improves along an axis: `rate` (useful work a second) where the work grows, else `time`.
    `blocks` gives the grid's blocks as an expression over the parameters, for the waves.
    """

    id: str
    title: str
    question: str
    improves: str
    unchanged: str
    ablates: str
    baseline: int | str
    variants: tuple[Variant, ...]
    axis: Axis | None = None
    at: int | None = None
    article: Mapping[str, Any] | None = None
    tests: tuple[str, ...] = ()
    measure: str = "time"
    analyses: tuple[str, ...] = ()
    blocks: str | None = None
    profile: str = "ends"
    launches: int = 20
    note: str = ""
    file: Path | None = None

    def fingerprint(self) -> str:
        """A digest of everything that decides what is measured: an interrupted study resumes only where it is equal."""
        told = [
            [v.name, v.kernel.name if v.kernel else None, sorted(v.params.items()), v.command, v.values]
            for v in self.variants
        ]
        axis = [self.axis.name, self.axis.params, self.axis.values] if self.axis else None
        return hashlib.sha256(json.dumps([self.id, told, axis, self.launches]).encode()).hexdigest()[:16]


# --- where studies are ---


def folders(packs: Sequence[Path] = ()) -> list[Path]:
    """The bundled folder of studies, then those of the given packs that have one."""
    return [bundled("rules") / STUDIES_FOLDER, *(p / STUDIES_FOLDER for p in packs if (p / STUDIES_FOLDER).is_dir())]


def files(packs: Sequence[Path] = ()) -> dict[str, Path]:
    """Study id -> file. A pack's study may not take a name that is taken."""
    found: dict[str, Path] = {}
    for folder in folders(packs):
        for path in sorted(folder.glob("*.yaml")):
            if path.stem in found:
                raise DiagnoseError(
                    f"{path}: the study {path.stem!r} is taken by {found[path.stem]}", "rename one of the files"
                )
            found[path.stem] = path
    return found


def find(word: str, packs: Sequence[Path] = ()) -> Study:
    """The study of that name, or in that YAML file."""
    path = Path(word)
    if path.suffix in (".yaml", ".yml"):
        if not path.is_file():
            raise DiagnoseError(f"{word} does not exist", "diagnose ablate --list")
        return load(path)
    known = files(packs)
    if word not in known:
        raise DiagnoseError(f"there is no study {word!r}{nearest(word, known)}", "diagnose ablate --list")
    return load(known[word])


# --- reading one ---


def load(path: Path, kernels: Mapping[str, ReferenceKernel] | None = None) -> Study:
    """Reads and checks one study. Raises DiagnoseError with file, line and what is wrong."""
    root = parse_yaml(read_bytes(path), path)
    keys = root.mapping("a study")
    _only(keys, _KEYS, root, "a study")
    for key in _REQUIRED:
        if key not in keys:
            raise root.fail(f"the study lacks {key!r}", HELP)
    ablates = _choice(keys["ablates"], "ablates", ABLATES)
    axis = _axis(keys["axis"]) if "axis" in keys else None
    if axis is None and ablates == "axis":
        raise keys["ablates"].fail("ablates: axis, but the study has no axis", "add axis: {name, params, values}")
    known = load_kernels() if kernels is None else kernels
    items = keys["variants"].items("variants")
    if not items:
        raise keys["variants"].fail("variants is empty", "name at least one: {name, kernel, params}")
    variants = tuple(_variant(item, axis, known) for item in items)
    names = [variant.name for variant in variants]
    if len(set(names)) < len(names):
        raise keys["variants"].fail("two variants have the same name", "give each its own")
    article = _article(keys["article"]) if "article" in keys else None
    meaning = {}
    for key in ("improves", "unchanged"):
        if key in keys:
            meaning[key] = keys[key].text(key)
        elif article is not None:
            meaning[key] = str(article[key])
        else:
            raise root.fail(f"the study has neither an article row nor {key!r}", HELP)
    analyses = tuple(_choice(one, "an analysis", ANALYSES) for one in _items(keys, "analyses"))
    study = Study(
        id=path.stem,
        title=keys["title"].text("title"),
        question=keys["question"].text("question"),
        improves=meaning["improves"],
        unchanged=meaning["unchanged"],
        ablates=ablates,
        baseline=_baseline(keys["baseline"], ablates, axis, variants),
        variants=variants,
        axis=axis,
        at=_at(keys["at"], axis) if "at" in keys else None,
        article=article,
        tests=tuple(one.text("tests") for one in _items(keys, "tests")),
        measure=_choice(keys["measure"], "measure", MEASURES) if "measure" in keys else "time",
        analyses=analyses,
        blocks=keys["blocks"].expression("blocks") if "blocks" in keys else None,
        profile=_choice(keys["profile"], "profile", PROFILES) if "profile" in keys else "ends",
        launches=_whole(keys["launches"], "launches", 1) if "launches" in keys else 20,
        note=keys["note"].text("note") if "note" in keys else "",
        file=path,
    )
    _check_analyses(study, keys)
    return study


def _items(keys: Mapping[str, YNode], name: str) -> tuple[YNode, ...]:
    return keys[name].items(name) if name in keys else ()


def _only(keys: Mapping[str, YNode], known: Iterable[str], root: YNode, what: str) -> None:
    for key, node in keys.items():
        if key not in known:
            raise DiagnoseError(
                f"{root.file}:{node.key_line}: {what} has no key {key!r}{nearest(key, known)}",
                f"{what} takes {', '.join(known)}",
            )


def _choice(node: YNode, what: str, choices: Sequence[str]) -> str:
    value = node.text(what)
    if value not in choices:
        raise node.fail(f"{what} {value!r} is not one of {', '.join(choices)}{nearest(value, choices)}", HELP)
    return value


def _whole(node: YNode, what: str, least: int) -> int:
    value = node.number(what)
    if value != int(value) or value < least:
        raise node.fail(f"{what} must be a whole number from {least}, got {value:g}", HELP)
    return int(value)


def _values(node: YNode, what: str) -> tuple[int, ...]:
    found = tuple(_whole(one, what, 0) for one in node.items(what))
    if not found:
        raise node.fail(f"{what} is empty", "give it at least one value")
    if len(set(found)) < len(found):
        raise node.fail(f"{what} holds a value twice", "name each value once")
    return found


def _axis(node: YNode) -> Axis:
    keys = node.mapping("axis")
    _only(keys, ("name", "params", "values"), node, "an axis")
    for key in ("name", "params", "values"):
        if key not in keys:
            raise node.fail(f"the axis lacks {key!r}", "axis: {name: N, params: [n], values: [256, 512]}")
    params = tuple(one.text("params") for one in keys["params"].items("params"))
    if not params:
        raise keys["params"].fail("the axis sets no parameter", "params: [n]")
    return Axis(keys["name"].verbatim("name"), params, _values(keys["values"], "values"))


def _variant(node: YNode, axis: Axis | None, kernels: Mapping[str, ReferenceKernel]) -> Variant:
    keys = node.mapping("a variant")
    _only(keys, _VARIANT_KEYS, node, "a variant")
    for key in ("name", "kernel"):
        if key not in keys:
            raise node.fail(f"the variant lacks {key!r}", "a variant is {name, kernel, params}")
    wanted = keys["kernel"].text("kernel")
    if wanted not in kernels:
        raise keys["kernel"].fail(
            f"there is no bundled kernel {wanted!r}{nearest(wanted, kernels)}", "diagnose kernels list"
        )
    kernel = kernels[wanted]
    params = dict(kernel.params)
    settings = keys["params"].mapping("params") if "params" in keys else {}
    for name, value in settings.items():
        _known_param(kernel, name, value)
        params[name] = _whole(value, name, 0)
    if axis is not None:
        for name in axis.params:
            _known_param(kernel, name, node)
            if name in settings:
                raise settings[name].fail(f"{name} is set by the axis {axis.name} too", "leave it out here")
    ceiling = keys["flops_ceiling"].text("flops_ceiling") if "flops_ceiling" in keys else None
    if ceiling is not None:
        _check_ceiling(ceiling, keys["flops_ceiling"])
    return Variant(
        name=keys["name"].verbatim("name"),
        kernel=kernel,
        params=params,
        values=_values(keys["values"], "values") if "values" in keys else None,
        flops_ceiling=ceiling,
    )


def _known_param(kernel: ReferenceKernel, name: str, node: YNode) -> None:
    if name not in kernel.params:
        has = ", ".join(kernel.params) or "none"
        raise node.fail(
            f"{kernel.name} has no parameter {name!r}{nearest(name, kernel.params)}",
            f"its parameters: {has} (diagnose kernels list)",
        )


def _check_ceiling(name: str, node: YNode) -> None:
    from diagnose.gpus import catalogue

    known = {resource for product in catalogue.products() for resource in catalogue.ceilings(product)}
    if name not in known:
        raise node.fail(f"no GPU of the catalogue has a ceiling {name!r}{nearest(name, known)}", "diagnose ceilings")


def _article(node: YNode) -> dict[str, Any]:
    """The row of the article's ablation table whose `variable` is the value."""
    row = node.text("article")
    table = bundled("rules") / TABLE_FILE
    rows = parse_yaml(read_bytes(table), table).mapping(TABLE_FILE)["ablations"].items("ablations")
    texts = [{k: v.value for k, v in one.mapping("a row").items()} for one in rows]
    for found in texts:
        if found["variable"] == row:
            return found
    raise node.fail(
        f"the article's table has no ablation {row!r}{nearest(row, [str(t['variable']) for t in texts])}",
        "diagnose rules list --table",
    )


def _baseline(node: YNode, ablates: str, axis: Axis | None, variants: Sequence[Variant]) -> int | str:
    if ablates == "axis":
        assert axis is not None
        value = _whole(node, "baseline", 0)
        if value not in axis.values:
            raise node.fail(
                f"the baseline {value} is no value of the axis", f"one of {', '.join(map(str, axis.values))}"
            )
        return value
    name = node.verbatim("baseline")
    names = [variant.name for variant in variants]
    if name not in names:
        raise node.fail(f"the baseline {name!r} is no variant{nearest(name, names)}", f"one of {', '.join(names)}")
    if len(names) < 2:
        raise node.fail("ablates: variant needs two variants", HELP)
    return name


def _at(node: YNode, axis: Axis | None) -> int:
    value = _whole(node, "at", 0)
    if axis is None or value not in axis.values:
        raise node.fail(f"at: {value} is no value of the axis", HELP)
    return value


def _check_analyses(study: Study, keys: Mapping[str, YNode]) -> None:
    for name in study.analyses:
        if study.axis is None or len(study.axis.values) < 3:
            raise keys["analyses"].fail(f"{name} needs an axis of three values or more", HELP)
    if "crossover" in study.analyses and len(study.variants) < 2:
        raise keys["analyses"].fail("crossover needs two variants", HELP)
    if "waves" in study.analyses and study.blocks is None:
        raise keys["analyses"].fail("waves needs `blocks`: the grid's blocks over the parameters", HELP)
    if study.blocks is not None:
        for variant in study.variants:
            try:
                evaluate(study.blocks, variant.params)
            except ValueError as error:
                raise keys["blocks"].fail(f"blocks: {error} ({variant.name})", HELP) from None
