"""Writes kernels/RESULTS.md from what was last measured: kernels/results.json (`make gpu`) and kernels/ladders.json.

python tests/gpu/results.py            writes the file
python tests/gpu/results.py --check    says whether it is up to date
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import corpus  # noqa: E402
import ladders  # noqa: E402
import stages  # noqa: E402

from diagnose.collect.kernels import load_kernels  # noqa: E402
from diagnose.gpus import catalogue  # noqa: E402

TARGET = ROOT / "kernels" / "RESULTS.md"


def text() -> str:
    """The table, one row a kernel in the order of the manifests."""
    run = json.loads((ROOT / "kernels" / "results.json").read_text(encoding="utf-8"))
    measured = run["kernels"]
    rows = []
    for name, kernel in load_kernels(ROOT / "kernels").items():
        if name not in measured:
            continue
        here = measured[name]
        twin = measured.get(kernel.twin or "")
        gain = f"{here['us'] / twin['us']:.2f}" if twin and kernel.expect != "quiet" and kernel.gain else ""
        rows.append(
            f"| {name} | {kernel.expect} | {here['us']:,.1f} | {here['rate']} | {here['error']} of {here['tolerance']} "
            f"| {kernel.twin or ''} | {gain} |"
        )
    conditions = (
        f"{run['gpu']}, driver {run['driver']}, clocks {run['clocks']}, {run['date']}: median of {run['repeats']}"
        " launches by CUDA events after warm-up, fresh random inputs, each result checked against a reference."
    )
    meaning = (
        "`gain` is the time over that of the twin that does the same work without the fault. Kernels without a row have"
        " not run since they were written or last changed. Written by `tests/gpu/results.py`."
    )
    head = [
        "# What the reference kernels measured",
        "",
        conditions,
        meaning,
        "",
        "| kernel | expected | µs | rate | error | twin | gain |",
        "| --- | --- | --: | --: | --- | --- | --: |",
    ]
    return "\n".join([*head, *rows, "", *sanitizer_section(), *ladder_sections()]) + "\n"


def sanitizer_section() -> list[str]:
    """What compute-sanitizer said of the kernels at small sizes, and which have not run under it."""
    if not stages.SANITIZERS.is_file():
        return []
    run = json.loads(stages.SANITIZERS.read_text(encoding="utf-8"))
    names = list(load_kernels(ROOT / "kernels"))
    rows = {name: run["kernels"][name] for name in names if name in run["kernels"]}
    bad = {name: [tool for tool, code in row.items() if code] for name, row in rows.items() if any(row.values())}
    left = [name for name in names if name not in rows]
    counted = (
        f"{run['gpu']}, {run['date']}: memcheck, racecheck and synccheck over {len(rows)} of {len(names)} kernels, each"
        f" at the smallest sizes that its program takes and is right at: {len(rows) - len(bad)} without an error."
    )
    lines = ["## Sanitizers", "", counted]
    lines += [f"With an error: {', '.join(f'{n} ({t})' for n, ts in bad.items() for t in ts)}."] if bad else []
    lines += [f"Not run since they were written or last changed: {', '.join(left)}."] if left else []
    alarms = [f"`{name}`" for (_, name) in corpus.ALARMS if name in rows]
    lines += [f"Racecheck's alarms at {', '.join(alarms)} are none: {corpus.ONE_FOR_ALL}."] if alarms else []
    return [*lines, ""]


def ladder_sections() -> list[str]:
    """The ladders in the order of the manifests' steps; the ceiling is the share of the peak that wgmma sustains."""
    steps: dict[str, list[tuple[int, str]]] = {}
    for name, kernel in load_kernels(ROOT / "kernels").items():
        if kernel.step is not None:
            steps.setdefault(kernel.family, []).append((kernel.step, name))
    share = catalogue.sustained_share("tensor:wgmma", 90)
    assert share is not None  # ceilings.yaml has it
    return ladders.sections({f: [name for _, name in sorted(s)] for f, s in steps.items()}, ladders.PEAK_TFLOPS * share)


def main() -> int:
    if "--check" in sys.argv[1:]:
        return 0 if TARGET.is_file() and TARGET.read_text(encoding="utf-8") == text() else 1
    TARGET.write_text(text(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
