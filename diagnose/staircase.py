"""The staircase: white paper, micro-benchmark, library, kernel, end to end, and what stands between two steps.

A kernel's time is held against the time that each step needs for the same work, since each step has its own tight
limit. Of a program: the share of its GPU time by what it is spent on, and what one kernel's gain brings the whole
(Amdahl): 1 / (1 - s + s / k) for a share s that becomes k times faster. Pure: facts and plain data in, plain data out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from diagnose.details import Part, rounded
from diagnose.facts.context import Context
from diagnose.facts.pipes import competing
from diagnose.facts.work import Operations, operations, tensor_path
from diagnose.gpus.catalogue import Product, architecture
from diagnose.limits import binding
from diagnose.model import Ceiling, Diagnosis

KERNELS = 20  # of the program's list: by the time that they can give back
#: Below it a factor between two steps is not worth a line: rates are known to about two digits.
_TELLS = 1.02
#: Families of operators with a line of their own in a program: time that does no work of the model.
OWN_LINES: Mapping[str, str] = {
    "conversion": "Conversions of types",
    "copy": "Copies, fills, changes of layout",
    "collective": "Communication",
}
OTHER = "other"


@dataclass(frozen=True)
class _Bound:
    """A lower bound on time: `work` / `rate`."""

    resource: str
    us: float
    work: float
    rate: float
    unit: str
    source: str


def _clock_scale(c: Context, product: Product) -> float:
    clock = c.value("clock_ghz")
    return min(1.0, clock * 1e9 / product.boost_hz) if clock and product.boost_hz else 1.0


def _units(done: Operations, useful: float | None) -> list[tuple[str, str, float]]:
    """(resource, key of the unit's peak, operations) of the units that the kernel computes on."""
    found = []
    if done.tensor and done.kind:
        # What is declared is the work of the whole kernel, of which a Tensor kernel does nearly all there.
        found.append(("tensor", done.kind, min(useful, done.tensor) if useful else done.tensor))
    for unit in ("fp32", "fp64"):
        amount = float(getattr(done, unit))
        if amount:
            found.append((unit, unit, amount))
    return found


def _needed_bytes(c: Context) -> float | None:
    moved, useful = c.value("hbm_bytes"), c.value("useful_bytes")
    return min(moved, useful) if moved and useful else moved


def _sparse(c: Context) -> bool:
    done = operations(c)
    return done is not None and str(tensor_path(c, done)).startswith("sparse-")


def _best_path(c: Context, kind: str) -> Ceiling | None:
    """The fastest Tensor path for the type (`tensor:PATH:TYPE`): of the sparse ones where the kernel is sparse."""
    sparse = _sparse(c)
    paths = architecture(c.arch).tensor if c.arch is not None else {}
    names = [f"tensor:{path}" for path in paths if path.endswith(f":{kind}") and path.startswith("sparse-") == sparse]
    known = [found for name in names if (found := c.ceilings.get(name)) is not None]
    return max(known, key=lambda one: one.value, default=None)


def _white_paper(c: Context, done: Operations | None, product: Product) -> _Bound | None:
    """The needed work at the data sheet's peaks: any path of the type, boost clock, all bandwidth."""
    found: list[_Bound] = []
    needed, bandwidth = _needed_bytes(c), product.memory_bytes_per_s
    if needed and bandwidth:
        found.append(_Bound("hbm", needed / bandwidth * 1e6, needed, bandwidth, "byte/s", "datasheet"))
    for resource, key, amount in _units(done, c.value("useful_flops")) if done is not None else ():
        peak = product.peaks.get("fp64-tensor" if (resource, key) == ("tensor", "fp64") else key)
        if peak and resource == "tensor" and _sparse(c):
            peak *= 2  # data sheets give twice the dense rate for 2:4 sparsity
        if peak:
            found.append(_Bound(resource, amount / peak * 1e6, amount, peak, "op/s", "datasheet"))
    return max(found, key=lambda one: one.us, default=None)


def _micro_benchmark(c: Context, done: Operations | None, product: Product) -> _Bound | None:
    """The same work at the rates that this GPU sustains, on the best path of the type and at the kernel's clock."""
    scale = _clock_scale(c, product)
    found: list[_Bound] = []
    needed, hbm = _needed_bytes(c), c.ceilings.get("hbm")
    for one in (c.ceilings.get("hbm:read"), c.ceilings.get("hbm:write")):
        if one is not None and (hbm is None or one.value > hbm.value):
            hbm = one  # the best that a stream of any mix reaches: the kernel's own mix is the kernel's own step
    if needed and hbm is not None:
        found.append(_Bound("hbm", needed / hbm.value * 1e6, needed, hbm.value, "byte/s", hbm.source))
    for resource, key, amount in _units(done, c.value("useful_flops")) if done is not None else ():
        best = _best_path(c, key) if resource == "tensor" else c.ceilings.get(key)
        if best is not None:
            rate = best.value * scale
            found.append(_Bound(resource, amount / rate * 1e6, amount, rate, "op/s", best.source))
    return max(found, key=lambda one: one.us, default=None)


def _step(name: str, label: str, us: float, bound: _Bound | None = None, source: str | None = None) -> Part:
    return {
        "step": name,
        "label": label,
        "us": rounded(us),
        "resource": bound.resource if bound is not None else None,
        "rate": rounded(bound.rate) if bound is not None else None,
        "rate_unit": bound.unit if bound is not None else None,
        "source": bound.source if bound is not None else source,
    }


def _cause(what: str, factor: float | None) -> Part:
    return {"what": what, "factor": rounded(factor) if factor is not None else None}


def _paper_to_micro(c: Context, product: Product, paper: _Bound, micro: _Bound) -> list[Part]:
    if paper.resource != micro.resource:
        return [_cause(f"another resource binds: {micro.resource} in place of {paper.resource}", None)]
    clock = 1 / _clock_scale(c, product) if micro.unit == "op/s" else 1.0
    found = []
    if clock >= _TELLS:
        found.append(_cause("the SM clock under the boost clock", clock))
    sustained = paper.rate / micro.rate / clock  # below 1: the data sheet counts a clock under boost
    if not 1 / _TELLS < sustained < _TELLS:
        at = " at the boost clock" if micro.unit == "op/s" else ""
        found.append(_cause(f"the data sheet's rate over the one sustained{at}", sustained))
    return found


def _own_path(c: Context, done: Operations | None) -> float | None:
    """How much slower the kernel's Tensor path is than the best one of its type."""
    if done is None or not done.tensor or not done.path or not done.kind:
        return None
    own, best = c.ceilings.get(f"tensor:{tensor_path(c, done)}:{done.kind}"), _best_path(c, done.kind)
    return best.value / own.value if own is not None and best is not None else None


def _to_kernel(c: Context, done: Operations | None, diagnosis: Diagnosis, bound_by: str | None) -> list[Part]:
    """What the kernel loses by itself. The causes overlap, so that their factors do not multiply."""
    found = []
    issued, useful = c.value("issued_tensor_flops"), c.value("useful_flops")
    if issued and useful and issued / useful >= _TELLS:
        found.append(_cause("padding: operations issued over those needed", issued / useful))
    over = c.value("hbm_over_useful_bytes")
    if over is not None and over >= _TELLS and bound_by == "hbm":
        found.append(_cause("bytes moved over those needed", over))
    path = _own_path(c, done)
    if path is not None and path >= _TELLS and done is not None and bound_by == "tensor":
        found.append(_cause(f"the instruction path: {done.path} under the best for {done.kind}", path))
    for one in diagnosis.findings[:2]:
        if one.speedup is not None and one.severity != "note":
            found.append(_cause(f"{one.title} ({one.rule})", one.speedup.expected))
    return found


def amdahl(share: float, speedup: float) -> float:
    """How many times faster the whole becomes when `share` of its time becomes `speedup` times faster."""
    return 1 / (1 - share + share / speedup)


def kernel(c: Context, diagnosis: Diagnosis, product: Product | None, time_share: float | None) -> Part | None:
    """`staircase` of a kernel's entry: `steps` with the time that each needs, `between` neighbours what separates them.

    None without a measured time, or where neither the data sheet nor a ceiling is known. The library's step is there
    where its time for the declared problem is known (`library_us`).
    """
    us = c.value("duration_us")
    if not us or product is None:
        return None
    done = operations(c)
    paper, micro = _white_paper(c, done, product), _micro_benchmark(c, done, product)
    if paper is None or micro is None:
        return None
    steps = [
        _step("white-paper", "White paper", paper.us, paper),
        _step("micro-benchmark", "Micro-benchmark", micro.us, micro),
    ]
    causes = [_paper_to_micro(c, product, paper, micro)]
    library = c.value("library_us")
    if library:
        steps.append(_step("library", "Library", library, None, "library"))
        causes.append([_cause("instruction shape, feeding of operands, edges, power", None)])
    own = binding(competing(c))
    steps.append(
        {
            **_step("kernel", "This kernel", us, None, "measured"),
            "explained_us": rounded(min(own.bound_us, us)) if own is not None else None,
            "explained_by": own.resource if own is not None else None,
        }
    )
    causes.append(_to_kernel(c, done, diagnosis, own.resource if own is not None else None))
    times = [float(step["us"]) for step in steps]
    between = [
        {
            "from": first["step"],
            "to": second["step"],
            "factor": rounded(times[at + 1] / times[at]) if times[at] else None,
            "because": because,
        }
        for at, (first, second, because) in enumerate(zip(steps, steps[1:], causes, strict=False))
    ]
    return {"steps": steps, "between": between, "end_to_end": _end_to_end(time_share, us, micro.us, diagnosis)}


def _end_to_end(share: float | None, us: float, limit_us: float, diagnosis: Diagnosis) -> Part | None:
    if share is None:
        return None
    gain = diagnosis.verdict.speedup.expected if diagnosis.verdict.speedup is not None else None
    return {
        "share": rounded(share),
        "with_fix": rounded(amdahl(share, gain)) if gain is not None else None,
        "at_limit": rounded(amdahl(share, max(1.0, us / limit_us))),
        "gone": _gone(share),
    }


# --- the program ---


def program(
    kernels: Sequence[Mapping[str, object]], gpu_time_us: float | None, families: Mapping[str, str]
) -> Part | None:
    """`program.amdahl` from the kernels' entries of the document (`time_share`, `launches`, `group`, `verdict`,
    `operator`). `families`: id -> title.

    `lines`: GPU time by what it is spent on, the OWN_LINES apart; `classes`: by the verdicts' class. `kernels`: the
    groups of equal launches whose fix brings the whole most. Shares are of the GPU time that was profiled: the host's
    time and the gaps between launches are not in a profile. None where no time was measured.
    """
    timed = [(one, share) for one in kernels if isinstance(share := one.get("time_share"), int | float) and share > 0]
    if not timed or not gpu_time_us:
        return None
    lines: dict[str, list[float]] = {}
    classes: dict[str, float] = {}
    groups: dict[object, list[tuple[Mapping[str, object], float]]] = {}
    for one, share in timed:
        operator = one.get("operator")
        family = str(operator["family"]) if isinstance(operator, Mapping) else OTHER
        spent = lines.setdefault(family, [0.0, 0.0])
        spent[0] += share
        spent[1] += _launches(one)
        klass = str(_verdict(one)["class"])
        classes[klass] = classes.get(klass, 0.0) + share
        groups.setdefault((one.get("group"), _verdict(one)["rule"]), []).append((one, share))
    titles = {**families, **OWN_LINES, OTHER: "Not recognised"}
    return {
        "lines": [
            {
                "line": family,
                "title": titles.get(family, family),
                "own": family in OWN_LINES,
                "us": rounded(share * gpu_time_us),
                "share": rounded(share),
                "launches": int(count),
                "gone": _gone(share),
            }
            for family, (share, count) in sorted(lines.items(), key=lambda item: (-item[1][0], item[0]))
        ],
        "classes": [
            {"class": klass, "us": rounded(share * gpu_time_us), "share": rounded(share)}
            for klass, share in sorted(classes.items(), key=lambda item: (-item[1], item[0]))
        ],
        "kernels": _gains(list(groups.values())),
    }


def _verdict(entry: Mapping[str, object]) -> Mapping[str, Any]:
    found = entry["verdict"]
    assert isinstance(found, Mapping)
    return found


def _launches(entry: Mapping[str, object]) -> int:
    found = entry.get("launches")
    return found if isinstance(found, int) else 1


def _gone(share: float) -> float | int | None:
    """The whole's speed-up if this share of its time took none; None where it is all there is."""
    return rounded(1 / (1 - share)) if share < 1 - 1e-9 else None


def _gains(groups: Sequence[Sequence[tuple[Mapping[str, object], float]]]) -> list[Part]:
    rows = []
    for members in groups:
        share = min(1.0, sum(part for _, part in members))
        longest = max(members, key=lambda item: item[1])[0]
        verdict = _verdict(longest)
        gain = verdict["speedup"] or {}
        row: Part = {
            "id": longest.get("id"),
            "name": longest.get("name"),
            "launches": sum(_launches(one) for one, _ in members),
            "share": rounded(share),
            "rule": verdict["rule"],
            **{key: rounded(amdahl(share, gain[key])) if gain else None for key in ("low", "expected", "high")},
            "gone": _gone(share),
        }
        rows.append((-float(row["expected"] or 1.0), -share, row))
    rows.sort(key=lambda row: row[:2])
    return [row for *_, row in rows[:KERNELS]]
