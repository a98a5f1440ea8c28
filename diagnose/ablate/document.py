"""The study's JSON document: everything that the renderers show, and all that resuming needs."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from diagnose import __version__
from diagnose.ablate import bounds, conclude, noise, plan
from diagnose.ablate.run import sigma_of
from diagnose.ablate.state import State
from diagnose.ablate.study import Study
from diagnose.errors import DiagnoseError

SCHEMA = "1"
KIND = "ablation"
METHOD = (
    "median over runs; noise: median |ln ratio| of neighbouring runs of a point / (√2 × 0.6745), pooled over "
    "the points; standard error of a median: 1.2533 × noise / √runs; intervals 95 %, shared "
    "among the comparisons (Bonferroni)"
)
_MAX_BYTES = 50_000_000


def _rounded(value: Any) -> Any:
    """Floats to six digits, as in the main document; what is not finite is null."""
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(one) for one in value]
    return value


def build(study: Study, state: State) -> dict[str, Any]:
    """The document of what was measured so far (`complete` says whether that is all)."""
    points = plan.points(study)
    sigma = sigma_of(state)
    estimates = {}
    rows = []
    for point in points:
        one = state.points.get(point.id)
        if one is None:
            continue
        found = noise.estimate(one.times(), sigma) if one.failed is None else None
        if found is not None:
            estimates[point.id] = found
        amounts = point.work()
        amount, unit = next(((amounts[k], f"{k[:-1]}/s") for k in ("flops", "bytes") if amounts.get(k)), (None, None))
        rows.append(
            {
                "id": point.id,
                "variant": point.variant.name,
                "value": point.value,
                "target": point.target,
                "time_us": found.us if found else None,
                "low_us": found.low if found else None,
                "high_us": found.high if found else None,
                "rate": amount / found.us * 1e6 if found and amount else None,
                "rate_unit": unit,
                "bounds": bounds.of(point, state.gpu, state.sm) if state.gpu and state.sm else [],
                "failed": one.failed,
                "error": one.error,
                "tolerance": one.tolerance,
                "samples": one.samples,
                "profile": one.profile,
                "not_profiled": one.not_profiled,
            }
        )
    compared = conclude.compare(study, points, estimates)
    article = study.article
    document = {
        "schema_version": SCHEMA,
        "kind": KIND,
        "tool": {"name": "diagnose", "version": __version__},
        "study": {
            "id": study.id,
            "title": study.title,
            "question": study.question,
            "article": article["variable"] if article else None,
            "english": article["english"] if article else None,
            "improves": study.improves,
            "unchanged": study.unchanged,
            "tests": list(study.tests),
            "ablates": study.ablates,
            "baseline": study.baseline,
            "at": study.at,
            "axis": {"name": study.axis.name, "values": list(study.axis.values)} if study.axis else None,
            "variants": [
                {
                    "name": v.name,
                    "kernel": v.kernel.name if v.kernel else None,
                    "function": v.kernel.function if v.kernel else None,
                }
                for v in study.variants
            ],
            "measure": study.measure,
            "note": study.note,
        },
        "run": {
            "gpu": state.gpu,
            "sm": state.sm,
            "driver": state.driver,
            "date": state.date,
            "clocks": "as found",
            "time_source": state.time_source,
            "launches": study.launches,
            "rounds": state.rounds,
            "seed": state.seed,
            "spent_s": state.spent_s,
            "complete": state.complete,
            "stopped": state.stopped,
            "fingerprint": state.fingerprint,
        },
        "noise": {"sigma": sigma, "least": noise.LEAST, "confidence": noise.CONFIDENCE, "method": METHOD},
        "points": rows,
        "comparisons": [one.document() for one in compared],
        "analyses": conclude.analyses(study, points, estimates, state),
        "conclusion": conclude.conclusion(study, compared, state, points),
    }
    rounded: dict[str, Any] = _rounded(document)
    return rounded


def text(document: dict[str, Any]) -> str:
    """As a file."""
    return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def read(path: Path) -> dict[str, Any]:
    """A study's JSON. Raises DiagnoseError where it is none."""
    hint = "diagnose ablate STUDY    (writes one)"
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise DiagnoseError(f"{path} has more than {_MAX_BYTES:,} bytes", hint)
        found = json.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise DiagnoseError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}", hint) from None
    except (ValueError, RecursionError) as error:
        raise DiagnoseError(f"{path} is no JSON: {error}", hint) from None
    if not isinstance(found, dict) or found.get("kind") != KIND or found.get("schema_version") != SCHEMA:
        raise DiagnoseError(f"{path} is no result of `diagnose ablate`", hint)
    return found
