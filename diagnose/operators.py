"""A kernel's family of operators (`operators.yaml`), and the article's four questions answered with its numbers.

The family is a label beside the verdict: no fact, rule or limit reads it. Where neither the name nor the code settles
it, there is none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import yaml

from diagnose.details import Part, rounded
from diagnose.engine import FactEnv
from diagnose.expr import Compiled, Node, compile_node, parse
from diagnose.facts.context import Context
from diagnose.facts.pipes import all_limits
from diagnose.facts.work import operations, tensor_path
from diagnose.render.format import digits as _n
from diagnose.render.format import resource as _resource
from diagnose.render.format import share as _share

FILE = Path(__file__).with_name("operators.yaml")
TILE_ROWS = 64  # M of wgmma: a product with fewer rows that share an operand pads its tile
SAVES = ("bytes", "instructions", "latency", "arithmetic")
_KEYS = {"id", "title", "declared", "rows", "ways", "saves", "brings", "limits"}
_NAME = 2000  # characters of a full name that are looked at: template arguments have no end
# Below it no resource explains most of the time, and what warps wait for is the critical path (rules/ceilings: 0.6).
_EXPLAINS = 0.6
_ALL = 0.995  # counters of operations agree to half a per cent
# What a resource is, in the words of the fourth question.
_CRITICAL: Mapping[str, str] = {
    "hbm": "bytes", "l2": "bytes", "l1": "bytes", "nvlink": "bytes", "lsu": "instructions", "issue": "instructions",
    "int": "instructions", "tensor": "arithmetic", "fp32": "arithmetic", "fp64": "arithmetic", "sfu": "arithmetic",
}  # fmt: skip


@dataclass(frozen=True)
class Way:
    """One way to recognise a family: a pattern of the name (or None), and conditions on facts and opcodes."""

    names: re.Pattern[str] | None
    code: tuple[Node, ...]
    tests: tuple[Compiled, ...]


@dataclass(frozen=True)
class Family:
    """A row of the operator table."""

    id: str
    title: str
    declared: str | None
    rows: str | None
    ways: tuple[Way, ...]
    saves: tuple[str, ...]
    brings: str
    limits: str


def _way(entry: Mapping[str, Any]) -> Way:
    if not set(entry) <= {"names", "code"} or not entry.get("code"):
        raise ValueError(f"a way of recognition has names and code, got {sorted(entry)}")
    nodes = tuple(parse(text) for text in entry["code"])
    names = re.compile(entry["names"], re.IGNORECASE) if "names" in entry else None
    return Way(names, nodes, tuple(compile_node(node) for node in nodes))


def read(file: Path = FILE) -> tuple[Family, ...]:
    """The families of the data file. Raises ValueError (a bad entry), re.error or ExprError."""
    found = []
    for entry in yaml.safe_load(file.read_text(encoding="utf-8"))["families"]:
        if not set(entry) <= _KEYS or not set(entry["saves"]) <= set(SAVES):
            raise ValueError(f"{entry.get('id')}: unknown key or saving")
        if ("declared" in entry) != ("rows" in entry) or entry.get("rows", "few") not in ("few", "many"):
            raise ValueError(f"{entry['id']}: declared and rows (few or many) go together")
        found.append(
            Family(
                id=entry["id"],
                title=entry["title"],
                declared=entry.get("declared"),
                rows=entry.get("rows"),
                ways=tuple(map(_way, entry["ways"])),
                saves=tuple(entry["saves"]),
                brings=entry["brings"],
                limits=entry["limits"],
            )
        )
    return tuple(found)


@cache
def families() -> tuple[Family, ...]:
    """The shipped table, in its order."""
    return read()


def titles() -> Mapping[str, str]:
    """The title of each family by its id."""
    return {family.id: family.title for family in families()}


# --- recognition ---


@lru_cache(maxsize=4096)
def _named(name: str) -> frozenset[tuple[int, int]]:
    """(family, way) of every way whose pattern is in the name."""
    return frozenset(
        (at, way_at)
        for at, family in enumerate(families())
        for way_at, way in enumerate(family.ways)
        if way.names is not None and way.names.search(name)
    )


def _declared(c: Context) -> tuple[str, float] | None:
    """(gemm or attention, rows that share an operand) where `--problem` says so."""
    m, n, rows = (c.declared.get(name) for name in ("gemm_m", "gemm_n", "attention_rows"))
    if isinstance(m, float) and isinstance(n, float):
        return "gemm", min(m, n)
    return ("attention", rows) if isinstance(rows, float) else None


def recognise(c: Context) -> tuple[Family, str] | None:
    """The kernel's family and what says so: declared, name and code, code, name. None where nothing settles it.

    A declared problem is of the kernel's own kind only where the kernel could compute it: it has Tensor or multiply-add
    instructions, as far as is known.
    """
    env = FactEnv(c)

    def outcomes(way: Way) -> list[Any]:
        return [test(env) for test in way.tests]

    declared = _declared(c)
    if declared is not None and c.kernel.opcodes and not (c.value("tensor_instructions") or c.value("fma_share")):
        declared = None
    if declared is not None:
        kind, rows = declared
        many = "many" if rows >= TILE_ROWS else "few"
        return next((f, "declared") for f in families() if f.declared == kind and f.rows == many)
    named = _named((c.kernel.demangled or c.kernel.name)[:_NAME]) | _named(c.kernel.name[:_NAME])
    for at, family in enumerate(families()):
        for way_at, way in enumerate(family.ways):
            if (at, way_at) in named and False not in (found := outcomes(way)):
                return family, "name and code" if True in found else "name"
    for family in families():
        for way in family.ways:
            if way.names is None and all(found is True for found in outcomes(way)):
                return family, "code"
    return None


# --- the four questions ---


def _answer(question: str, parts: Sequence[str | None], c: Context, facts: Sequence[str]) -> Part:
    values = []
    for name in facts:
        fact = c.evaluate(name)
        if fact.value is not None:
            value = rounded(float(fact.value)) if isinstance(fact.value, int | float) else fact.value
            values.append({"fact": name, "value": value, "unit": fact.unit})
    said = " ".join(part for part in parts if part)
    return {"question": question, "answer": said or None, "values": values}


def _fills_tile(c: Context) -> Part:
    mma, use, n, efficiency = (
        c.value(name) for name in ("tensor_instructions", "shape_use", "wgmma_n", "wgmma_n_efficiency")
    )
    declared = _declared(c)
    parts: list[str | None] = []
    if mma == 0:
        parts.append("It issues no Tensor instruction, so no tile has to be filled.")
    elif mma is not None:
        if use is not None and use >= _ALL:
            parts.append("All issued Tensor operations are useful.")
        elif use is not None:
            parts.append(f"Of the issued Tensor operations {_share(use)} are useful; the rest is padding.")
        else:
            parts.append("How much of it is padding is not known: --problem declares the work.")
        if declared is not None and declared[1] < TILE_ROWS:
            parts.append(f"{declared[1]:g} rows share an operand, and a tile of wgmma has {TILE_ROWS}.")
        if n is not None:
            at = f" and allows {_share(efficiency)} of the Tensor peak" if efficiency is not None else ""
            parts.append(f"N of its wgmma is {n:g}{at}.")
    return _answer(
        "Does the useful tile fill the instruction, or is most Tensor work padding?",
        parts, c, ("tensor_instructions", "shape_use", "wgmma_n", "wgmma_n_efficiency"),
    )  # fmt: skip


def _ridge(c: Context) -> tuple[float, str] | None:
    """Operations a byte at which HBM and the kernel's arithmetic unit take equally long, and the unit's name."""
    done = operations(c)
    hbm = next((one.ceiling for one in all_limits(c) if one.resource == "hbm" and one.ceiling_unit == "byte/s"), None)
    if done is None or not done.total or not hbm:
        return None
    scalar = max(("fp32", "fp64", "fp16"), key=lambda unit: float(getattr(done, unit)))
    path = tensor_path(c, done)
    key = f"tensor:{path}:{done.kind}" if done.tensor >= getattr(done, scalar) else scalar
    roof = c.ceilings.get(key)
    label = f"{done.kind} by {path}" if key.startswith("tensor:") else scalar.upper()
    return (roof.value / hbm, label) if roof is not None else None


def _reuse(c: Context) -> Part:
    intensity, reuse, rereads = (c.value(name) for name in ("intensity_hbm", "l1_reuse", "l2_rereads"))
    ridge = _ridge(c)
    parts: list[str | None] = []
    if intensity is not None:
        said = f"Each byte of HBM serves {_n(intensity)} operations"
        if ridge is not None:
            side = "above" if intensity >= ridge[0] else "below"
            said += f", {side} the ridge point of {_n(ridge[0])} ({ridge[1]})"
        parts.append(said + ".")
    if rereads is not None and rereads >= 1.5:
        parts.append(f"L2 hands each byte on {_n(rereads)} times.")
    if reuse is not None and reuse >= 1.5:
        parts.append(f"L1 hands each byte on {_n(reuse)} times.")
    return _answer(
        "How often is a byte of HBM used, and does that reach the ridge point?",
        parts, c, ("intensity_hbm", "l2_rereads", "l1_reuse"),
    )  # fmt: skip


def _overlap(c: Context) -> Part:
    longest, total, alone = (c.value(name) for name in ("engines_longest", "engines_sum", "one_engine_at_a_time"))
    waits = c.value("exposed_wgmma")
    parts: list[str | None] = []
    if longest is not None and total is not None:
        parts.append(
            f"Copies, Tensor and scalar work need {_share(total)} of the time one after another, {_share(longest)} if "
            "all of it overlaps."
        )
    if alone is not None:
        parts.append(f"In {_share(alone)} of the samples exactly one of them was at work.")
    if waits is not None and c.value("wgmma_instructions"):
        parts.append(f"Waiting for wgmma is exposed for {_share(waits)} of the time.")
    return _answer(
        "Is there independent work to fill the window of asynchronous copies and products?",
        parts, c,
        ("engine_copy", "engine_tensor", "engine_scalar", "engines_sum", "one_engine_at_a_time", "exposed_wgmma"),
    )  # fmt: skip


def critical(c: Context) -> tuple[str, str] | None:
    """(what the critical path consists of, a sentence): one of SAVES. None where no limit was measured."""
    resource, top = c.fact("binding_resource"), c.value("top_utilization")
    if not isinstance(resource, str) or top is None:
        return None
    if top >= _EXPLAINS:
        what = _CRITICAL[resource]
        verb = "is" if what == "arithmetic" else "are"
        named = _resource(resource)
        needs = "need" if named.endswith("slots") else "needs"
        return what, f"{named} {needs} {_share(top)} of the time: {what} {verb} the critical path."
    waits = {name: c.value(name) for name in c.catalogue if name.startswith("exposed_")}
    # The families by stall hold the same time as those by what is waited for; the latter say more.
    known = {name: value for name, value in waits.items() if value and name not in _STALL_VIEWS}
    said = f"No resource needs more than {_share(top)} of the time: latency is the critical path"
    if known:
        most = max(sorted(known), key=lambda name: known[name] or 0.0)
        said += f", most of it for {most.removeprefix('exposed_').replace('_', ' ')} ({_share(known[most])})"
    return "latency", said + "."


_STALL_VIEWS = frozenset(
    f"exposed_{name}"
    for name in (
        "long_scoreboard", "short_scoreboard", "fixed_latency", "math_throttle", "mio_throttle", "lg_throttle",
        "barrier", "membar", "sleeping", "instruction_fetch_stall", "constant_miss", "load", "other",
    )
)  # fmt: skip


def _saves(c: Context, family: Family) -> Part:
    found = critical(c)
    parts: list[str | None] = []
    if found is not None:
        what, sentence = found
        parts.append(sentence)
        on = "among them" if what in family.saves else "not among them"
        parts.append(f"Hopper's paths save this family {', '.join(family.saves)}: {on}.")
    return _answer(
        "What would the new paths save, and is that the critical path now?",
        parts, c, ("binding_resource", "top_utilization", "no_issue"),
    )  # fmt: skip


def describe(c: Context) -> Part | None:
    """`operator` of a kernel's entry; None where no family was recognised."""
    found = recognise(c)
    if found is None:
        return None
    family, by = found
    return {
        "family": family.id,
        "title": family.title,
        "by": by,
        "brings": family.brings,
        "limits": family.limits,
        "questions": [_fills_tile(c), _reuse(c), _overlap(c), _saves(c, family)],
    }
