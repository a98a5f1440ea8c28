"""Loads packs: folders of rules with a pack.yaml. Files, versions, derived facts, words and thresholds are checked."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from diagnose import __version__
from diagnose.errors import DiagnoseError
from diagnose.expr import (
    COMPARISONS,
    DIMENSIONLESS,
    MIXED,
    Compare,
    ExprError,
    Node,
    Num,
    expand,
    names,
    parse,
    parse_number,
)
from diagnose.packfile import YNode, known_keys, nearest, parse_yaml, read_bytes
from diagnose.rule_file import LIST_FACTS, RULE_ID, Reader, check_size, placed
from diagnose.rules import CORE, DerivedFact, Pack, Rule, Threshold
from diagnose.scope import read_scope
from diagnose.sections import read as read_sections
from diagnose.sentence import known_unit

# Limits that keep a hostile pack from taking long or much memory; rules written by people are far below.
MAX_RULES = 2000
MAX_PACK_BYTES = 20_000_000
MAX_FACTS = 200
MAX_THRESHOLDS = 500
PACK_KEYS = ("name", "version", "requires_diagnose", "disable", "weigh", "reword", "thresholds", "sections")
REWORDABLE = ("title", "sentence", "why", "change", "limitations", "references")  # words, and nothing that decides
FACTS_FILE = "facts.yaml"
TABLE_FILE = "decision_table.yaml"
NO_RULES = ("pack.yaml", FACTS_FILE, TABLE_FILE)  # files at a pack's top that are not rules
STUDIES_FOLDER = "studies"  # a pack's ablations (`diagnose.ablate.study`): no rules

LIST_RULES = "`diagnose rules list` lists the rules and their packs"

_VERSION = re.compile(r"\s*(>=|<=|==|!=|>|<)\s*([0-9]{1,6}(?:\.[0-9]{1,6}){0,3})\s*", re.ASCII)
_FACT = re.compile(r"[a-z][a-z0-9_]*", re.ASCII)
_UNIT = re.compile(r"[A-Za-z%/0-9]{1,20}", re.ASCII)


def load_packs(dirs: Iterable[Path], catalogue: Mapping[str, str]) -> tuple[Pack, ...]:
    """Loads and checks pack folders, the core pack (`bundled("rules")`) first. `catalogue` gives each fact's unit.

    Raises DiagnoseError with file:line for the first thing wrong.
    """
    packs: list[Pack] = []
    owners: dict[str, Rule] = {}
    manifests: list[YNode] = []
    for folder in dirs:
        pack, manifest = _load_pack(Path(folder), catalogue)
        for other in packs:
            if other.name == pack.name:
                raise DiagnoseError(
                    f"{pack.path / 'pack.yaml'}: the pack name {pack.name!r} is taken by {other.path}",
                    "give each pack its own name; " + LIST_RULES,
                )
        for rule in pack.rules:
            if rule.id in owners:
                raise DiagnoseError(
                    f"{rule.file}:1: the rule id {rule.id!r} is taken by {owners[rule.id].file}",
                    "rename one of the files; " + LIST_RULES,
                )
            owners[rule.id] = rule
        packs.append(pack)
        manifests.append(manifest)
    whole = any(pack.name == CORE for pack in packs)
    if whole:
        for manifest in manifests:
            _check_targets(manifest, owners)
        for rule in owners.values():
            _check_yields(rule, owners)
    packs = [
        replace(pack, thresholds=_thresholds(pack.name, manifest, owners, whole))
        for pack, manifest in zip(packs, manifests, strict=True)
    ]
    return _reworded(packs, manifests, owners, catalogue, whole)


def pack_digest(folder: Path) -> str:
    """sha256 over the names and contents of a pack's files, in hex."""
    return _digest((path.relative_to(folder).as_posix(), data) for path, data in _read_pack(folder))


def _digest(files: Iterable[tuple[str, bytes]]) -> str:
    total = hashlib.sha256()
    for name, data in sorted(files):
        for part in (name.encode("utf-8", "surrogateescape"), data):
            total.update(len(part).to_bytes(8, "big"))
            total.update(part)
    return total.hexdigest()


def _pack_files(folder: Path) -> list[Path]:
    """pack.yaml and every rule file beneath; hidden folders are not looked into and links out of the pack refused."""
    if not folder.is_dir():
        raise DiagnoseError(f"{folder} is not a folder of rules", "`--rules DIR` names a folder with a pack.yaml in it")
    if not (folder / "pack.yaml").is_file():
        raise DiagnoseError(
            f"{folder} has no pack.yaml", "write one with `name:` and `version:`; `diagnose rules new NAME` does it too"
        )
    root = folder.resolve()
    found: list[Path] = []
    for where, folders, files in os.walk(folder):
        # A folder with a pack.yaml of its own is another pack (rules/migration in rules).
        folders[:] = sorted(
            name for name in folders if not name.startswith(".") and not (Path(where) / name / "pack.yaml").is_file()
        )
        if Path(where) == folder and STUDIES_FOLDER in folders:
            folders.remove(STUDIES_FOLDER)
        for name in sorted(files):
            path = Path(where) / name
            if name.endswith(".yml"):
                raise DiagnoseError(f"{path} would not be read", "a pack's files end in .yaml: rename it")
            if not name.endswith(".yaml") or name.startswith("."):
                continue
            if not path.resolve().is_relative_to(root):
                raise DiagnoseError(f"{path} links out of the pack", "a pack holds its own files: copy it in")
            found.append(path)
            if len(found) > MAX_RULES:
                raise DiagnoseError(f"{folder} holds more than {MAX_RULES} rule files", "split it into several packs")
    return found


def _read_pack(folder: Path) -> list[tuple[Path, bytes]]:
    contents, total = [], 0
    for path in _pack_files(folder):
        data = read_bytes(path)
        total += len(data)
        if total > MAX_PACK_BYTES:
            raise DiagnoseError(f"{folder} holds more than {MAX_PACK_BYTES:,} bytes of rules", "split it into packs")
        contents.append((path, data))
    return contents


def _load_pack(folder: Path, catalogue: Mapping[str, str]) -> tuple[Pack, YNode]:
    contents = _read_pack(folder)
    manifest_path = folder / "pack.yaml"
    manifest = parse_yaml(dict(contents)[manifest_path], manifest_path)
    keys = manifest.mapping("pack.yaml")
    known_keys(keys, PACK_KEYS, "a pack.yaml", "pack.yaml takes " + ", ".join(PACK_KEYS))
    for key in ("name", "version"):
        if key not in keys:
            raise manifest.fail(f"pack.yaml lacks {key!r}", f"add `{key}: …`")
    name = keys["name"].text("name")
    if not RULE_ID.fullmatch(name):
        raise keys["name"].fail(
            f"the pack name {name!r} is not lower case words joined by '-'",
            "rules are then called NAME/RULE, as acme/tma",
        )
    requires = keys["requires_diagnose"].verbatim("requires_diagnose") if "requires_diagnose" in keys else None
    if requires is not None:
        _check_version(requires, name, keys["requires_diagnose"])
    disable = keys["disable"].items("disable") if "disable" in keys else ()
    weigh: dict[str, float] = {}
    if "weigh" in keys and keys["weigh"].value is not None:
        for rule_id, node in keys["weigh"].mapping("weigh").items():
            factor = node.number(f"the weight of {rule_id!r}")
            if factor <= 0:
                raise node.fail(
                    f"the weight of {rule_id!r} is {factor:g}", "weights are above 0; `disable` turns a rule off"
                )
            weigh[rule_id] = factor
    rules = []
    stems: dict[str, Path] = {}
    facts_path = folder / FACTS_FILE
    own = dict(contents).get(facts_path)
    derived = _derived_facts(parse_yaml(own, facts_path), catalogue) if own is not None else ()
    for path, data in contents:
        if path.parent == folder and path.name in NO_RULES:
            continue
        if path.stem in stems:
            raise DiagnoseError(
                f"{path}:1: the rule id {path.stem!r} is taken by {stems[path.stem]}",
                "rename one of the files; " + LIST_RULES,
            )
        stems[path.stem] = path
        rules.append(Reader(path, name, catalogue, derived).read(parse_yaml(data, path)))
    pack = Pack(
        name,
        keys["version"].verbatim("version"),
        folder,
        _digest([(path.relative_to(folder).as_posix(), data) for path, data in contents]),
        requires,
        tuple(node.text("a rule id in disable") for node in disable),
        weigh,
        tuple(rules),
        derived,
        sections=read_sections(keys["sections"], Reader(manifest_path, name, catalogue, derived))
        if "sections" in keys
        else (),
    )
    return pack, manifest


def _reworded(
    packs: Sequence[Pack],
    manifests: Sequence[YNode],
    owners: Mapping[str, Rule],
    catalogue: Mapping[str, str],
    whole: bool,
) -> tuple[Pack, ...]:
    """The packs with the words that their `reword` gives to rules; of several the last one counts."""
    said: dict[str, Rule] = dict(owners)
    listed: list[dict[str, tuple[str, ...]]] = []
    for pack, manifest in zip(packs, manifests, strict=True):
        listed.append({})
        keys = manifest.mapping("pack.yaml")
        if "reword" not in keys or keys["reword"].value is None:
            continue
        for name, node in keys["reword"].mapping("reword").items():
            rule = said.get(name) or said.get(f"{pack.name}/{name}")
            if rule is not None:
                said[rule.id] = _with_words(rule, node, Reader(node.file, pack.name, catalogue, pack.facts))
                listed[-1][rule.id] = tuple(node.mapping("words"))
            elif whole:
                raise DiagnoseError(
                    f"{node.file}:{node.key_line}: there is no rule {name!r} to reword{nearest(name, said)}", LIST_RULES
                )
    return tuple(
        replace(pack, rules=tuple(said[rule.id] for rule in pack.rules), reworded=words)
        for pack, words in zip(packs, listed, strict=True)
    )


def _with_words(rule: Rule, node: YNode, reader: Reader) -> Rule:
    """The rule with other words; what decides, what is at stake and what is expected stay."""
    given = node.mapping(f"the words of {rule.id}")
    hint = f"reword takes {', '.join(REWORDABLE)}; conditions take `thresholds`"
    known_keys(given, REWORDABLE, "reword", hint)
    if not given:
        raise node.fail(f"no words are given for {rule.id}", hint)
    texts = {key: part.text(key) for key, part in given.items() if key in ("title", "why", "change", "limitations")}
    words: dict[str, Any] = dict(texts)
    if "sentence" in given:
        words["sentence"] = reader.sentence(given["sentence"])
    if "references" in given:
        words["references"] = tuple(part.text("a reference") for part in given["references"].items("references"))
    facts, metrics = {*rule.facts, *reader.facts}, {*rule.metrics, *reader.metrics}
    return replace(rule, **words, facts=tuple(sorted(facts)), metrics=tuple(sorted(metrics)))


def _check_targets(manifest: YNode, owners: Mapping[str, Rule]) -> None:
    """Every rule that a pack disables or weighs must exist."""
    keys = manifest.mapping("pack.yaml")
    named: list[tuple[str, YNode]] = []
    if "disable" in keys:
        named += [(node.text("a rule id in disable"), node) for node in keys["disable"].items("disable")]
    if "weigh" in keys and keys["weigh"].value is not None:
        named += list(keys["weigh"].mapping("weigh").items())
    for rule_id, node in named:
        if rule_id not in owners:
            raise node.fail(f"there is no rule {rule_id!r}{nearest(rule_id, owners)}", LIST_RULES)


def _derived_facts(root: YNode, catalogue: Mapping[str, str]) -> tuple[DerivedFact, ...]:
    """The facts of a facts.yaml; each may use those above it."""
    if root.value is None:
        return ()
    units = dict(catalogue)
    nodes: dict[str, Node] = {}
    found: list[DerivedFact] = []
    given = root.mapping(FACTS_FILE)
    if len(given) > MAX_FACTS:
        raise root.fail(f"{FACTS_FILE} holds more than {MAX_FACTS} facts", "split the pack")
    shape = "as `my_fact: {unit: share, expression: 'load_waste * hbm_utilization', doc: …}`"
    for name, node in given.items():
        if not _FACT.fullmatch(name):
            raise node.fail(f"{name[:60]!r} is not a fact's name", "lower case letters, digits and _; " + shape)
        if name in catalogue:
            raise node.fail(f"the fact {name!r} is taken by diagnose itself", "choose another name; " + LIST_FACTS)
        keys = node.mapping(name)
        known_keys(keys, ("unit", "expression", "doc"), name, shape)
        for key in ("unit", "expression"):
            if key not in keys:
                raise node.fail(f"{name} lacks {key!r}", shape)
        unit = keys["unit"].text("unit")
        if not _UNIT.fullmatch(unit) or unit in ("text", "bool", "flag", MIXED):
            raise keys["unit"].fail(f"{unit[:40]!r} is no unit of a number", LIST_FACTS)
        text = keys["expression"].expression("expression")
        try:
            tree = parse(text)
            is_ = known_unit(tree, units)
        except ExprError as error:
            raise keys["expression"].fail(placed(error, text), "a fact may use those above it; " + LIST_FACTS) from None
        if isinstance(tree, Compare) or is_ in ("text", "bool"):
            raise keys["expression"].fail(f"{text!r} is no number", "a derived fact is a number with a unit")
        if is_ not in (None, MIXED, unit) and not (is_ in DIMENSIONLESS and unit in DIMENSIONLESS):
            raise keys["expression"].fail(f"{text!r} is in {is_}, not in {unit}", f"write `unit: {is_}`")
        if not any(names(tree)):
            raise keys["expression"].fail(f"{text!r} reads no fact: it is always the same", LIST_FACTS)
        check_size(keys["expression"], tree, nodes)
        nodes[name] = expand(tree, nodes)
        units[name] = unit
        doc = keys["doc"].text("doc") if "doc" in keys else ""
        found.append(DerivedFact(name, unit, doc, text, nodes[name]))
    return tuple(found)


def _thresholds(pack: str, manifest: YNode, owners: Mapping[str, Rule], whole: bool) -> tuple[Threshold, ...]:
    """The `thresholds` of a pack. `whole`: the core pack is here, so every rule named must be."""
    keys = manifest.mapping("pack.yaml")
    entries = keys["thresholds"].items("thresholds") if "thresholds" in keys else ()
    if len(entries) > MAX_THRESHOLDS:
        raise keys["thresholds"].fail(f"more than {MAX_THRESHOLDS} thresholds", "split the pack")
    shape = "as `- {rule: tail-wave, kernel: 'attention_*', arch: '>=sm_90', set: {wave_tail_idle: 0.2}}`"
    found = []
    for entry in entries:
        given = entry.mapping("an entry of thresholds")
        known_keys(given, ("rule", "kernel", "arch", "set"), "thresholds", shape)
        for key in ("rule", "set"):
            if key not in given:
                raise entry.fail(f"an entry of thresholds lacks {key!r}", shape)
        name = given["rule"].text("rule")
        rule = owners.get(name) or owners.get(f"{pack}/{name}")
        scope = read_scope(given)
        values: dict[str, float] = {}
        for what, node in given["set"].mapping("set").items():
            number = parse_number(node.value) if isinstance(node.value, str) else None
            values[what] = number if number is not None else node.number(f"the threshold of {what}")
        if rule is None:
            if whole:
                raise given["rule"].fail(f"there is no rule {name!r}{nearest(name, owners)}", LIST_RULES)
            continue
        leaves = tuple((_leaf_of(rule, what, given["set"]), value) for what, value in values.items())
        found.append(Threshold(rule.id, scope, values, leaves))
    return tuple(found)


def _leaf_of(rule: Rule, what: str, node: YNode) -> int:
    """The condition that a threshold names: by its left side, with the operator where several have it."""
    numeric = {index: leaf for index, leaf in enumerate(rule.leaves) if isinstance(leaf.right.node, Num)}
    wanted = " ".join(what.split())
    found = [i for i, leaf in numeric.items() if wanted in (leaf.left.text, f"{leaf.left.text} {leaf.op}")]
    if len(found) == 1:
        return found[0]
    choices = [f"{leaf.left.text} {leaf.op}" for leaf in numeric.values()]
    hint = f"the conditions of {rule.id} with a number: {', '.join(choices) or 'none'}"
    if found:
        raise node.fail(f"{what[:80]!r} names {len(found)} conditions of {rule.id}", hint)
    lefts = [leaf.left.text for leaf in numeric.values()]
    raise node.fail(f"{rule.id} compares no {what[:80]!r} with a number{nearest(what, lefts)}", hint)


def _check_yields(rule: Rule, owners: Mapping[str, Rule]) -> None:
    """A rule may yield to one of its own pack (by its bare name too) or of any other."""
    for name in rule.yields_to:
        if name not in owners and f"{rule.pack}/{name}" not in owners:
            raise DiagnoseError(
                f"{rule.file}:1: yields_to names {name!r}, and there is no such rule{nearest(name, owners)}", LIST_RULES
            )


def _check_version(spec: str, pack: str, node: YNode) -> None:
    have = _version(__version__)
    for part in spec.split(","):
        match = _VERSION.fullmatch(part)
        if match is None:
            raise node.fail(f"requires_diagnose {spec!r} is not a version range", "write it as '>=0.1' or '>=0.1,<2'")
        want = _version(match[2])
        order = (have > want) - (have < want)
        if not COMPARISONS[match[1]](order, 0):
            raise node.fail(
                f"the pack {pack!r} requires diagnose {spec}, this is {__version__}",
                "install a diagnose that fits (`pip install 'diagnose" + spec + "'`), or leave out the pack",
            )


def _version(text: str) -> tuple[int, ...]:
    numbers = [int(part) for part in re.findall(r"[0-9]+", text)[:4]]
    return tuple(numbers + [0] * (4 - len(numbers)))
