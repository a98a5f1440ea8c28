"""Runs all studies on a machine with a GPU and writes what was measured: `examples/studies/*.json`.

    python3 tests/gpu/ablations.py --out DIR [--budget 200] [--only REGEX]     on the GPU: writes DIR/ablations.json
    python3 tests/gpu/ablations.py --build [--arch sm_90a]                     anywhere: fills the cache of programs
    python3 tests/gpu/ablations.py --take FILE                                 here: writes examples/studies/*.json

Needs PyYAML, numpy, platformdirs, and ncu-report and zstandard for the profiles. The seconds of the budget are shared
among the studies by their points; every program has a time limit.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
RECORDED = ROOT / "examples" / "studies"

from diagnose import api  # noqa: E402
from diagnose.ablate import conclude, document, plan, run, timing  # noqa: E402
from diagnose.ablate import study as studies  # noqa: E402
from diagnose.ablate.state import State  # noqa: E402
from diagnose.ablate.study import Study  # noqa: E402
from diagnose.collect.host import gpus  # noqa: E402
from diagnose.collect.kernels import build_kernel  # noqa: E402
from diagnose.errors import DiagnoseError  # noqa: E402

_PROFILE_S = 5.0  # what one profile takes, for the shares of the budget
_RUN_S = 0.5  # and one run of a program


def say(text: str) -> None:
    print(text, flush=True)


def chosen(only: str) -> list[Study]:
    """The studies, those of the article's table first."""
    found = [studies.load(path) for name, path in studies.files().items() if re.search(only, name)]
    return sorted(found, key=lambda one: (one.article is None, one.id))


def build(found: list[Study], arch: str | None) -> dict[str, Path]:
    """All programs, several at a time; a kernel that does not build is said and its studies are left out."""
    kernels = {v.kernel.name: v.kernel for one in found for v in one.variants if v.kernel is not None}
    built: dict[str, Path] = {}

    def one(name: str) -> None:
        start = time.monotonic()
        try:
            built[name] = build_kernel(kernels[name], arch)
        except DiagnoseError as error:
            say(f"BUILD {name}: {error.message}")
        if time.monotonic() - start > 1:
            say(f"# built {name} in {time.monotonic() - start:.0f} s")

    with ThreadPoolExecutor(os.cpu_count() or 2) as pool:
        list(pool.map(one, sorted(kernels, key=lambda name: name != "gemm/sweep")))
    return built


def weight(one: Study) -> float:
    """The seconds that a study asks for: three runs of each point, and its profiles."""
    points = plan.points(one)
    return 3.3 * _RUN_S * len(points) + _PROFILE_S * len(plan.profiled(one, points))


def measure(found: list[Study], built: dict[str, Path], budget_s: float, out: Path, ncu: bool) -> None:
    """Runs the studies one after another into one file, which is written after each."""
    gpu = gpus()[0]
    packs = api.load_rules(api.Options()) if ncu else ()
    results: dict[str, dict[str, object]] = {}
    start = time.monotonic()
    say(f"# {gpu.name}, driver {gpu.driver}, {len(found)} studies, {sum(map(weight, found)):.0f} s wished for")
    for number, one in enumerate(found):
        if any(v.kernel is not None and v.kernel.name not in built for v in one.variants):
            say(f"LEFT {one.id}: a kernel of it was not built")
            continue
        left = budget_s - (time.monotonic() - start)
        share = left * weight(one) / sum(map(weight, found[number:]))
        state = State(one.fingerprint(), 20251130 + number, gpu.name, gpu.capability, gpu.driver,
                      datetime.date.today().isoformat(), timing.Source("result-line").words())  # fmt: skip
        limits = run.Limits(width=0.01, budget_s=max(share, 3.0), timeout_s=30.0, most=5)
        setup = run.Setup(timing.Source("result-line"), built, packs, profiles=ncu)
        began = time.monotonic()
        try:
            run.run(one, setup, limits, state, lambda state: None, lambda text: None)
        except DiagnoseError as error:
            say(f"FAIL {one.id}: {error.message}")
        results[one.id] = document.build(one, state)
        (out / "ablations.json").write_text(json.dumps(results, ensure_ascii=False, allow_nan=False))
        tell(one, state, results[one.id], time.monotonic() - began)


def tell(one: Study, state: State, found: dict[str, object], seconds: float) -> None:
    """One line a study, and what failed."""
    ended = conclude.conclusion(one, [], state, plan.points(one))["predicted"]
    said = found["conclusion"]
    assert isinstance(said, dict)
    decided = said["decided_by"] or {}
    say(
        f"{one.id}: {said['outcome']} {decided.get('variant')} @ {decided.get('value')} "
        f"{decided.get('gain')} ({decided.get('low')}..{decided.get('high')}), rules {ended['rules']}, verdict "
        f"{ended['verdict']}, {state.rounds} rounds, noise {run.sigma_of(state)}, {seconds:.1f} s, "
        f"{state.stopped or 'narrow'}"
    )
    for name, point in state.points.items():
        if point.failed or point.not_profiled:
            say(f"    {name}: {point.failed or 'not profiled: ' + str(point.not_profiled)}")


def take(file: Path) -> None:
    """Splits a run's file into one recorded study each; a study that the run lacks keeps its earlier record."""
    RECORDED.mkdir(parents=True, exist_ok=True)
    for name, found in json.loads(file.read_text("utf-8")).items():
        (RECORDED / f"{name}.json").write_text(document.text(found), encoding="utf-8")
        say(f"wrote {RECORDED / name}.json")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path)
    parser.add_argument("--budget", type=float, default=200.0)
    parser.add_argument("--only", default="")
    parser.add_argument("--build", action="store_true")
    parser.add_argument("--arch", default=None)
    parser.add_argument("--no-profile", action="store_true")
    parser.add_argument("--take", type=Path)
    options = parser.parse_args()
    if options.take:
        take(options.take)
        return 0
    found = chosen(options.only)
    start = time.monotonic()
    built = build(found, options.arch)
    say(f"# {len(built)} programs ready after {time.monotonic() - start:.0f} s")
    if options.build:
        return 0
    if options.out is None or not gpus():
        say("nothing was run: --out DIR and a GPU are needed")
        return 3
    options.out.mkdir(parents=True, exist_ok=True)
    measure(found, built, options.budget, options.out, not options.no_profile)
    return 0


if __name__ == "__main__":
    sys.exit(main())
