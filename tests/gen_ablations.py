"""Writes docs/ablations.md and its curves from the recorded studies in examples/studies. Run it after recording them.

python tests/gen_ablations.py            writes the files
python tests/gen_ablations.py --check    says whether they are up to date
"""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parent)]

from diagnose.ablate import study as studies
from diagnose.ablate.document import read
from diagnose.bundled import bundled
from diagnose.packfile import parse_yaml, read_bytes
from diagnose.packs import TABLE_FILE
from diagnose.render import ablation
from diagnose.render.markdown import inert

ROOT = Path(__file__).resolve().parents[1]
RECORDED = ROOT / "examples" / "studies"
TARGET = ROOT / "docs" / "ablations.md"
CURVES = ROOT / "docs" / "ablations"

KEYS = """
    title: Stages of the copy pipeline
    question: Is the latency of the copies hidden?
    article: 'stage count：2 → 3 → 4…'   # optional: a row of the article's table, which says what the outcome means
    improves: latency had not been hidden   # what it means, in place of the article's words
    unchanged: it is covered
    tests: [pipeline-wait]          # the rules whose cause it tests
    ablates: axis                   # axis: curves against themselves at `baseline`; variant: against that variant
    axis: {name: stages, params: [stages], values: [2, 3, 4, 5]}   # every one of params takes each value
    baseline: 2
    at: 4                           # optional: the value that decides (else the last, or the best of a swept axis)
    measure: rate                   # rate: useful work a second, where the work grows; time (default)
    analyses: [knee]                # knee, waves (needs blocks), crossover (needs two variants)
    blocks: m/128*n/256             # the grid's blocks over the parameters
    profile: ends                   # which points ncu profiles too: ends (default), baseline, all, none
    launches: 20                    # timed launches a run
    variants:                       # the curves: a bundled kernel with its parameters (`diagnose kernels list`)
      - {name: N 128, kernel: gemm/sweep, params: {tile: 128}, flops_ceiling: "tensor:wgmma:bf16"}
"""


def recorded() -> dict[str, dict[str, Any]]:
    """The recorded studies by name, those of the article's rows first and in its order."""
    order = {name: number for number, (name, _) in enumerate(rows())}
    found = {path.stem: read(path) for path in sorted(RECORDED.glob("*.json"))}
    return dict(sorted(found.items(), key=lambda item: (order.get(item[0], len(order)), item[0])))


def rows() -> list[tuple[str, str]]:
    """(study, English variable) of each row of the article's ablation table."""
    table = bundled("rules") / TABLE_FILE
    items = parse_yaml(read_bytes(table), table).mapping(TABLE_FILE)["ablations"].items("ablations")
    return [(i.mapping("a row")["study"].text("study"), i.mapping("a row")["english"].text("english")) for i in items]


def _paragraph(words: str) -> list[str]:
    return textwrap.wrap(" ".join(words.split()), 120, break_long_words=False, break_on_hyphens=False)


def _section(name: str, found: Mapping[str, Any]) -> list[str]:
    study, run_ = found["study"], found["run"]
    lines = [f"## {study['title']} (`{name}`)", ""]
    if study["article"]:
        lines += [f"The article's row: {study['article']} ({study['english']}).", ""]
    lines += _paragraph(f"{study['question']} " + " ".join(inert(line, 400) for line in ablation.answer(found)))
    if study["note"]:
        lines += ["", *_paragraph(study["note"])]
    lines += ["", f"![{study['title']}](ablations/{name}.svg)", ""]
    lines += [f"- {inert(line, 400)}" for line in (*ablation.shapes(found), *ablation.profiles(found))]
    lines += ["", "<details><summary>Numbers</summary>", ""]
    head = ablation.COLUMNS
    lines += [f"| {' | '.join(head)} |", f"| --- {'| --: ' * (len(head) - 1)}|"]
    lines += [f"| {' | '.join(inert(cell, 200) for cell in row)} |" for row in ablation.rows(found)]
    noise = f"{found['noise']['sigma']:.2%}" if found["noise"]["sigma"] is not None else "not measured"
    first = found["points"][0]["target"] if found["points"] else name
    conditions = (
        f"{run_['gpu']}, driver {run_['driver']}, {run_['date']}; {run_['rounds']} rounds of {run_['launches']} "
        f"launches in random order (seed {run_['seed']}), clocks as found, noise {noise}. The first point is `{first}`."
    )
    lines += ["", *_paragraph(conditions), "", "</details>", ""]
    if run_["stopped"]:
        lines += [f"Not complete: {inert(run_['stopped'], 300)}.", ""]
    return lines


def text() -> str:
    """The page."""
    found = recorded()
    lines = ["# Ablations", ""]
    lines += _paragraph(
        """A verdict is a hypothesis. The article's fifth step tests it: change one variable, draw the curve, conclude.
        Written by `tests/gen_ablations.py` from the recorded studies in `examples/studies` (made by
        `tests/gpu/ablations.py`); a test keeps it up to date. `diagnose ablate --list` names the studies,
        `diagnose ablate STUDY` runs one, `diagnose ablate examples/studies/STUDY.json` shows a recorded one, and
        `diagnose --studies examples/studies REPORT` shows beside a finding what became of it."""
    )
    lines += ["", "## The article's table", "", "| variable | study | outcome | by | diagnosis before |",
              "| --- | --- | --- | --- | --- |"]  # fmt: skip
    for name, english in rows():
        one = found.get(name)
        if one is None:
            lines.append(f"| {english} | `{name}` | not recorded yet | | |")
            continue
        said = one["conclusion"]
        decided = said["decided_by"]
        by = f"{decided['variant']} @ {decided['value']}: {decided['gain']:.2f}×" if decided else "–"
        agrees = {True: "as measured", False: "against it", None: "nothing predicted"}[said["predicted"]["agrees"]]
        lines.append(
            f"| {english} | `{name}` | {said['outcome']}: {inert(str(said['meaning'] or 'open'), 200)} "
            f"| {inert(by, 80)} | {agrees} |"
        )
    lines += ["", "## How it is measured", ""]
    lines += _paragraph(
        """Every run of a bundled program checks its result against a reference on fresh random inputs before its time
        counts. After one run as warm-up, rounds over all points follow, each in an order of its own; a run's time is
        the median of its launches by CUDA events, a point's the median of its runs. The noise is measured in the study
        itself: the median |ln ratio| of neighbouring runs of a point, pooled over the points, as a sigma. A change
        improves where the whole 95 % interval of the ratio (wider with more comparisons: Bonferroni) lies above 1.03,
        is worse below 1/1.03, is none between, and open otherwise. Rounds repeat until half of every interval is
        within 1 %, or the budget ends. Knees and crossings are read off 2,000 curves drawn from the intervals. Bounds
        along the curve are the useful work over the catalogue's ceilings; where a point was profiled, the binding limit
        stands over it. The SM clock is the highest that nvidia-smi saw while the point ran."""
    )
    lines += ["", "## A study of your own", ""]
    lines += _paragraph(
        """One YAML file, in the folder `studies` of a pack (`--rules PACK`) or anywhere (`diagnose ablate FILE.yaml`).
        A kernel, parameter or ceiling that does not exist is an error with its line."""
    )
    lines += ["", "```yaml", *textwrap.dedent(KEYS).strip().splitlines(), "```", ""]
    lines += _paragraph(
        """A program of yours needs no file: `diagnose ablate --sweep N=256,512,1024 -- ./a.out --n {N}`. Its time is
        ncu's `gpu__time_duration` of the kernel that `-k` names, or what `--time REGEX` finds in its output; the result
        says which. It must exit with 0. `--work '2*N*N*N'` compares rates instead of times, `--tests RULE` says which
        finding is tested, and `--studies FILE` then shows the outcome beside it."""
    )
    lines.append("")
    for name, one in found.items():
        lines += _section(name, one)
    missing = [name for name in studies.files() if name not in found]
    if missing:
        lines += ["## Not recorded", "", *_paragraph(", ".join(f"`{name}`" for name in missing)), ""]
    return "\n".join(lines).rstrip() + "\n"


def files() -> dict[Path, str]:
    """Every file that this writes."""
    written = {TARGET: text()}
    for name, one in recorded().items():
        drawing = ablation.svg(one)
        if drawing is not None:
            written[CURVES / f"{name}.svg"] = drawing
    return written


def stale() -> list[str]:
    """The files that are missing, differ, or are left over."""
    fresh = files()
    found = [str(p) for p, words in fresh.items() if not p.is_file() or p.read_text(encoding="utf-8") != words]
    return found + [str(path) for path in CURVES.glob("*.svg") if path not in fresh]


def main(arguments: list[str]) -> int:
    if "--check" in arguments:
        found = stale()
        print("up to date" if not found else f"out of date: {', '.join(found)}: run python {__file__}")
        return 1 if found else 0
    for path, words in files().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(words, encoding="utf-8")
    kept = json.dumps(sorted(recorded()))
    print(f"wrote {TARGET} with {kept}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
