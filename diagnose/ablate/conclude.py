"""From times to the article's answer: improves, so this was the cause; does not, so look elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from diagnose.ablate import knee, noise, plan
from diagnose.ablate.noise import Estimate, Gain
from diagnose.ablate.plan import Point
from diagnose.ablate.state import State
from diagnose.ablate.study import Study
from diagnose.collect.kernels import evaluate
from diagnose.gpus import catalogue

#: A finding's status by the outcome of the study that tests it.
STATUS = {"improves": "confirmed", "same": "refuted", "worse": "refuted", "open": "open"}


@dataclass(frozen=True)
class Compared:
    """Two points of a study and how many times better the second is."""

    variant: str
    value: int | None
    against: str
    gain: Gain

    def document(self) -> dict[str, Any]:
        """As the JSON holds it."""
        g = self.gain
        return {
            "variant": self.variant,
            "value": self.value,
            "against": self.against,
            "gain": g.factor,
            "low": g.low,
            "high": g.high,
            "outcome": g.outcome,
        }


def work(study: Study, point: Point) -> float:
    """What a point's rate counts: its flops (else bytes), or 1 where the study compares times."""
    if study.measure == "time":
        return 1.0
    amounts = point.work()
    return amounts.get("flops") or amounts.get("bytes") or 1.0


def compare(study: Study, points: Sequence[Point], estimates: Mapping[str, Estimate]) -> list[Compared]:
    """Every point against the baseline: of its own curve (ablates: axis) or of the baseline's variant at its value."""
    known = {(point.variant.name, point.value): point for point in points if point.id in estimates}
    pairs = []
    for (name, value), point in known.items():
        key = (name, study.baseline) if study.ablates == "axis" else (str(study.baseline), value)
        if key != (name, value) and key in known:
            pairs.append((known[key], point))
    found = []
    for base, point in pairs:
        ratio = work(study, point) / work(study, base)
        gain = noise.gain(estimates[base.id], estimates[point.id], ratio, len(pairs))
        against = str(base.value) if study.ablates == "axis" else base.variant.name
        found.append(Compared(point.variant.name, point.value, against, gain))
    return found


def deciding(study: Study, compared: Sequence[Compared]) -> Compared | None:
    """The comparison that answers the question: the best of those at the deciding value (or of all of a swept axis).

    With several comparisons their intervals are wider (`noise.quantile`), so that the best of many is no luck.
    """
    if study.ablates == "variant" and study.axis is not None:
        last = (
            study.at if study.at is not None else max((c.value for c in compared if c.value is not None), default=None)
        )
        compared = [one for one in compared if one.value == last]
    elif study.at is not None:
        compared = [one for one in compared if one.value == study.at]
    return max(compared, key=lambda one: one.gain.factor, default=None)


def analyses(study: Study, points: Sequence[Point], estimates: Mapping[str, Estimate], state: State) -> dict[str, Any]:
    """Knees, waves and crossovers that the study asks for, of the curves that have the points for it."""
    curves = {}
    for variant in study.variants:
        own = {
            point.value: (estimates[point.id], work(study, point))
            for point in points
            if point.variant is variant and point.value is not None and point.id in estimates
        }
        if len(own) >= 3:
            curves[variant.name] = knee.curve(variant.name, own)
    found: dict[str, Any] = {}
    if "knee" in study.analyses:
        found["knee"] = [knee.knee(one) for one in curves.values()]
    sms = _sms(state)
    if "waves" in study.analyses and study.blocks is not None and sms is not None:
        at = {(point.variant.name, point.value): point.params for point in points}
        expression = study.blocks
        found["waves"] = [
            knee.waves(one, lambda value, one=one: evaluate(expression, at[one.name, value]), sms)  # type: ignore[misc]
            for one in curves.values()
        ]
    if "crossover" in study.analyses:
        base = str(study.baseline) if study.ablates == "variant" else study.variants[0].name
        if base in curves:
            found["crossover"] = [knee.crossover(curves[base], one) for name, one in curves.items() if name != base]
    return found


def _sms(state: State) -> int | None:
    product = catalogue.product(state.gpu, state.sm) if state.gpu is not None and state.sm is not None else None
    return product.sm_count if product is not None else None


def predicted(study: Study, state: State, points: Sequence[Point]) -> dict[str, Any]:
    """What the diagnosis of the baseline's profile had said: did a rule that the study tests fire there?

    `fired` None: no profile, or the study tests no rule. `speedup` is the prediction of the first of them.
    """
    base = [
        point
        for point in plan.profiled(study, tuple(points))
        if (point.value if study.ablates == "axis" else point.variant.name) == study.baseline
    ]
    profile = next((state.points[p.id].profile for p in base if state.points[p.id].profile is not None), None)
    if profile is None or not study.tests:
        return {"fired": None, "rules": [], "verdict": profile["verdict"]["rule"] if profile else None, "speedup": None}
    own = [one for one in profile["findings"] if one["rule"] in study.tests]
    verdict = profile["verdict"]["rule"]
    rules = [one["rule"] for one in own] or ([verdict] if verdict in study.tests else [])
    return {
        "fired": bool(rules),
        "rules": rules,
        "verdict": verdict,
        "speedup": next((one["speedup"] for one in own if one["speedup"] is not None), None),
    }


def conclusion(study: Study, compared: Sequence[Compared], state: State, points: Sequence[Point]) -> dict[str, Any]:
    """The outcome, what it means by the article's table, and whether the diagnosis had predicted it."""
    best = deciding(study, compared)
    said = predicted(study, state, points)
    outcome = best.gain.outcome if best is not None else "open"
    meaning = {"improves": study.improves, "same": study.unchanged, "worse": study.unchanged}.get(outcome)
    agrees = None if said["fired"] is None or outcome == "open" else said["fired"] == (outcome == "improves")
    return {
        "outcome": outcome,
        "status": STATUS[outcome],
        "meaning": meaning,
        "decided_by": best.document() if best is not None else None,
        "improves_at": [f"{c.variant} @ {c.value}" if c.value is not None else c.variant for c in compared
                        if c.gain.outcome == "improves"],
        "worse_at": [f"{c.variant} @ {c.value}" if c.value is not None else c.variant for c in compared
                     if c.gain.outcome == "worse"],
        "compared": len(compared),
        "predicted": {**said, "agrees": agrees},
    }  # fmt: skip
