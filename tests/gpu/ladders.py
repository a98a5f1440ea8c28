"""The ladders and the articles' comparisons as tables, from what ladder_gemm.py and ladder_attention.py measured.

    python tests/gpu/ladders.py [--gemm FILE.json] [--attention FILE.json]     puts a run into kernels/ladders.json
    python tests/gpu/ladders.py --attention FILE.json --mark reduction/cub=4379.6     with a step 0 timed beside it

A run is named after its file, and its rows keep that name (`from`). Rows of the same run, program and arguments are
replaced; those of other runs stay. Ratios are of rows of one run wherever one has both.

`tests/gpu/results.py` then writes the tables into kernels/RESULTS.md. Only the standard library: ladder_gemm.py prints
the comparisons on the GPU machine.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
STORED = ROOT / "kernels" / "ladders.json"
INSTRUCTIONS = ROOT / "diagnose" / "gpus" / "measured" / "h200.json"  # by `diagnose ceilings`
# Of the H200's data sheet: dense bf16 (half of the rate with sparsity).
PEAK_TFLOPS = 989.4
# A step counts as slower than the one before from this share on: less is the spread between runs of one program.
SPREAD = 0.01

# Why a step is slower than the one before. A step that is slower and not here is called unexplained.
REASONS = {
    "gemm/multicast": "the blocks of a cluster wait for each other at every stage, and the L2 traffic that they save "
    "was no limit (a cluster of 4 is slower still); the persistent step, whose pairs also share L2, gains",
    "reduction/tree-conflicts": "the other order of the same tree: strides of a power of two fall on one bank",
    "reduction/vectorised": "both read at the rate of HBM; this one keeps the order of the sum: each block leaves its "
    "part, and the last one adds them",
    "reduction/cluster": "both read at the rate of HBM; a cluster's blocks start and end together",
    "attention/naive-values": "another pass of the same naive program, with twice the loads a product",
}


@dataclass(frozen=True)
class Side:
    """Runs of one program whose arguments include these; the fastest counts."""

    name: str
    arguments: dict[str, int]
    choices: tuple[dict[str, int], ...] = ({},)

    def runs(self) -> list[tuple[str, dict[str, int]]]:
        """Name and arguments of each run that this side is made of."""
        return [(self.name, {**self.arguments, **choice}) for choice in self.choices]


@dataclass(frozen=True)
class Comparison:
    """One claim of the articles.

    `kind`: gain (first over second, less one), times (first over second) or share (of the peak). `stated` is the
    article's number in words, `low` and `high` the range in which a measured value agrees with it, `note` what is known
    where it does not.
    """

    what: str
    stated: str
    kind: str
    first: Side
    second: Side | None = None
    low: float | None = None
    high: float | None = None
    note: str = ""


def cube(size: int, **arguments: int) -> dict[str, int]:
    return {"m": size, "n": size, "k": size, **arguments}


def _sweep(size: int, k: int, *choices: dict[str, int]) -> Side:
    return Side("gemm/sweep", {**cube(size, bits=16), "k": k}, choices or ({},))


def _shape(size: int, k: int, *choices: dict[str, int], **arguments: int) -> Side:
    return Side("gemm/shape", {**cube(size), "k": k, **_SHAPE, **arguments}, choices or ({},))


def _sparse(size: int, k: int, dense: int) -> Side:
    return Side("gemm/sparse", {**cube(size), "k": k, "dense": dense})


_SHAPE = {"tile_m": 128, "tile_n": 256, "tile_k": 128, "stages": 4, "rs": 0, "bits": 16}
_N128 = tuple({"tile": 128, "stages": stages, "zeros": 0} for stages in (3, 4))
_N256 = tuple({"tile": 256, "stages": 4, "cluster": cluster, "zeros": 0} for cluster in (1, 2))
_BASE = {"tile": 256, "stages": 4, "rs": 0, "cluster": 1, "producers": 1, "epilogue": 0, "swizzle": 128, "zeros": 0}
_TWO, _THREE, _FOUR = ({"tile": 128, "stages": stages, "cluster": 1, "producers": 1} for stages in (2, 3, 4))

# The bounds of agreement are the article's own range, else its number give or take a few points.
COMPARISONS: tuple[Comparison, ...] = (
    *(
        Comparison(
            f"tiles of 128 columns against 256, {size} x {size} x {k} (best of the stages and clusters run)",
            "+5 % to +15 %", "gain", _sweep(size, k, *_N128), _sweep(size, k, *_N256), 0.05, 0.15,
            "256 columns do not spill here (a test asserts it), which was the article's reason",
        )
        for size, k in ((4096, 4096), (8192, 1024), (8192, 8192))
    ),
    Comparison(
        "2 stages and 2 blocks an SM against 4 stages and 1 block, 128 x 128 tiles, 4096 cubed",
        "about +8 %", "gain", _sweep(4096, 4096, _TWO), _sweep(4096, 4096, _FOUR), 0.05, 0.11,
        "two stages do not cover the latency of a copy; three with the same two blocks do",
    ),
    Comparison(
        "3 stages and 2 blocks an SM against 4 stages and 1 block, the same",
        "", "gain", _sweep(4096, 4096, _THREE), _sweep(4096, 4096, _FOUR),
    ),
    Comparison(
        "asynchronous copies (cp.async) against synchronous ones, mma.sync, 512 cubed",
        "about -3 %", "gain", Side("gemm/mma", cube(512)), Side("gemm/mma-sync", cube(512)), -0.06, 0.0,
        "the asynchronous program also has more stages in flight",
    ),
    Comparison(
        "3 stages against 2, 128 x 256 tiles, 8192 cubed", "gains while latency is not hidden", "gain",
        _sweep(8192, 8192, {**_BASE, "stages": 3}), _sweep(8192, 8192, {**_BASE, "stages": 2}), SPREAD, 9.0,
    ),
    Comparison(
        "4 stages against 3, the same", "gains while latency is not hidden", "gain",
        _sweep(8192, 8192, _BASE), _sweep(8192, 8192, {**_BASE, "stages": 3}), SPREAD, 9.0,
    ),
    Comparison(
        "A from registers (RS) against shared memory (SS), 8192 cubed", "a trade, no number", "gain",
        _sweep(8192, 8192, {**_BASE, "rs": 1}), _sweep(8192, 8192, _BASE),
    ),
    *(
        Comparison(
            f"A from registers (RS) against shared memory (SS), 8192 cubed, {name}", "", "gain",
            _shape(8192, 8192, rs=1, bits=bits), _shape(8192, 8192, rs=0, bits=bits),
        )
        for name, bits in (("e4m3", 8), ("tf32", 32))
    ),
    *(
        Comparison(
            f"tiles of {m} x {n} against 128 x 256, 8192 cubed (best of the stages run)", "", "gain",
            _shape(8192, 8192, {"tile_k": 128, "stages": 4}, {"tile_k": 64, "stages": 8}, tile_m=m, tile_n=n),
            _shape(8192, 8192),
        )
        for m, n in ((256, 128), (128, 128), (64, 256))
    ),
    Comparison(
        "stages of 256 bytes of K against twice as many of 128, 128 x 256 tiles, 8192 cubed", "", "gain",
        _shape(8192, 8192, tile_k=256, stages=2), _shape(8192, 8192),
    ),
    Comparison(
        "2:4 sparse GEMM against dense on the same pruned operands, 8192 x 8192 x 512", "about 1.3 (small K)", "times",
        _sparse(8192, 512, 0), _sparse(8192, 512, 1), 1.2, 1.4,
    ),
    Comparison(
        "the same, 8192 x 8192 x 2048", "", "times", _sparse(8192, 2048, 0), _sparse(8192, 2048, 1),
    ),
    Comparison(
        "the same, 8192 cubed", "near 2 (large K)", "times", _sparse(8192, 8192, 0), _sparse(8192, 8192, 1), 1.7, 2.0,
        "the instruction alone reaches 1.80 (B at the whole rate of shared memory); here L2 is at 80 % of its rate",
    ),
    Comparison(
        "mma.sync, share of the peak (a whole GEMM, 8192 cubed)", "62.9 % (instruction alone)", "share",
        Side("gemm/mma", cube(8192)), None, 0.60, 0.66,
        "loads, barriers and clocks under load are in a whole GEMM's rate",
    ),
    Comparison(
        "wgmma, share of the peak (a whole GEMM, 8192 cubed)", "96 % (instruction alone)", "share",
        Side("gemm/persistent", cube(8192)), None, 0.93, 0.99,
        "the clock that 700 W allow is below the peak's; see the operands of zeros",
    ),
    Comparison(
        "wgmma on operands of zeros, which draw less power", "", "share",
        _sweep(8192, 8192, {**_BASE, "cluster": 2, "zeros": 1}),
    ),
    Comparison(
        "wgmma on random operands, the same program", "", "share",
        _sweep(8192, 8192, {**_BASE, "cluster": 2, "zeros": 0}),
    ),
)  # fmt: skip


# The same claims of the instructions alone: (what, stated, first key, second key or None for the peak, low, high). The
# peak is the dense bf16 operations a cycle and SM, at the clock that was seen; the bounds are within a tenth of what is
# stated.
_PER_CYCLE, _SMS = 4096, 132
INSTRUCTION_RATES: tuple[tuple[str, str, str, str | None, float, float], ...] = (
    ("mma.sync, share of the peak (the instruction alone)", "62.9 %",
     "tensor:mma:bf16:fp32:m16n8k16", None, 0.566, 0.692),
    ("wgmma, share of the peak (the instruction alone, m64n256k16)", "96 %",
     "tensor:wgmma:bf16:fp32:m64n256k16:ss", None, 0.864, 1.0),
    ("2:4 sparse wgmma against dense, N = 128 (instruction rates)", "about 1.3 (small K) to near 2 (large K)",
     "tensor:sparse-wgmma:bf16:fp32:m64n128k32:ss", "tensor:wgmma:bf16:fp32:m64n128k16:ss", 1.3, 2.0),
    ("2:4 sparse wgmma against dense, N = 256 (instruction rates)", "about 1.3 (small K) to near 2 (large K)",
     "tensor:sparse-wgmma:bf16:fp32:m64n256k32:ss", "tensor:wgmma:bf16:fp32:m64n256k16:ss", 1.3, 2.0),
)  # fmt: skip


def instructions() -> list[dict[str, str]]:
    """The claims about instructions, as `compared` gives those about programs; of the shipped measurement."""
    known = {one["key"]: one for one in json.loads(INSTRUCTIONS.read_text(encoding="utf-8"))["ceilings"]}
    rows = []
    for what, stated, first, second, low, high in INSTRUCTION_RATES:
        one, other = known.get(first), known.get(second) if second else None
        row = {"what": what, "stated": stated, "measured": "not measured", "verdict": "", "rates": ""}
        if one and (other or second is None):
            value = one["value"] / (other["value"] if other else _PER_CYCLE * _SMS * one["clock_mhz"] * 1e6)
            row["measured"] = f"{value:.2f}" if other else f"{value:.1%}"
            row["verdict"] = "agrees" if low <= value <= high else "disagrees"
            row["rates"] = " : ".join(
                f"{side['value'] / 1e12:.1f} at {side['clock_mhz']:,.0f} MHz" for side in (one, other) if side
            )
        rows.append(row)
    return rows


def best(side: Side, runs: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """The fastest correct run of a side, or None where none was measured."""
    found = [
        run
        for name, wanted in side.runs()
        for run in runs
        if run["name"] == name
        and run["result"]
        and run["result"]["ok"]
        and all(run["arguments"].get(key, _default(name, key)) == value for key, value in wanted.items())
    ]
    return max(found, key=lambda run: float(run["result"]["tflops"]), default=None)


def _default(name: str, key: str) -> int | None:
    """What a sweep run without this argument had."""
    return {**_BASE, "bits": 16}.get(key) if name == "gemm/sweep" else None


def compared(runs: Sequence[dict[str, Any]]) -> list[dict[str, str]]:
    """Each comparison: what, stated, measured, the verdict (empty without a number stated) and the two rates."""
    rows = []
    for one in COMPARISONS:
        first, second = _sides(one, runs)
        row = {"what": one.what, "stated": one.stated, "measured": "not measured", "verdict": "", "rates": ""}
        if first and (second or not one.second):
            rate = first["result"]["tflops"]
            other = second["result"]["tflops"] if second else PEAK_TFLOPS
            value = rate / other
            if second:  # times have more digits than rates
                value = second["result"]["us"] / first["result"]["us"] * _work(first) / _work(second)
            value -= one.kind == "gain"
            row["measured"] = f"{value:.2f}" if one.kind == "times" else f"{value:{'+' * (one.kind == 'gain')}.1%}"
            row["rates"] = " : ".join(_rate(run) for run in (first, second) if run)
            if one.low is not None and one.high is not None:
                agrees = one.low <= value <= one.high
                row["verdict"] = "agrees" if agrees else f"disagrees{': ' * bool(one.note)}{one.note}"
        rows.append(row)
    return rows


def _sides(one: Comparison, runs: Sequence[dict[str, Any]]) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """The best of both sides in the last run that has both, else in all of them."""
    names = list(dict.fromkeys(run.get("from", "") for run in runs))
    for some in (*([run for run in runs if run.get("from", "") == name] for name in reversed(names)), runs):
        first, second = best(one.first, some), best(one.second, some) if one.second else None
        if first and (second or not one.second):
            break
    return first, second


def _work(run: dict[str, Any]) -> float:
    arguments = run["arguments"]
    return float(arguments["m"] * arguments["n"] * arguments["k"])


def _rate(run: dict[str, Any]) -> str:
    blocks = run["result"].get("blocks")
    return f"{run['result']['tflops']:.1f}" + (f" ({blocks} an SM)" if blocks else "")


def print_comparisons(runs: Sequence[dict[str, Any]]) -> None:
    """The comparisons as lines, for the log of a run."""
    for row in compared(runs):
        stated = f"stated {row['stated']}" if row["stated"] else "no number stated"
        print(f"compared | {row['what']} | {row['measured']} | {stated} | {row['verdict']} | {row['rates']} TFLOP/s")


def _table(head: Sequence[str], right: int, rows: Sequence[Sequence[str]]) -> list[str]:
    """A Markdown table; the `right` columns after the first are set flush right."""
    line = ["---", *["--:"] * right, *["---"] * (len(head) - 1 - right)]
    return ["| " + " | ".join(cells) + " |" for cells in (head, line, *rows)]


def _why(name: str, rate: float, before: float | None) -> str:
    if before is None or rate >= before * (1 - SPREAD):
        return ""
    return f"slower: {REASONS.get(name) or 'unexplained'}"


def _gemm(runs: Sequence[dict[str, Any]], ceiling: float, steps: Sequence[str]) -> list[str]:
    out = []
    for size in (4096, 8192):
        rows, before = [], None
        whole = next((run.get("from") for run in runs if run["name"] == "gemm/cublas"), None)
        runs = [run for run in runs if run.get("from") == whole]  # shares of a step 0 of the same run
        mark = best(Side("gemm/cublas", cube(size, bits=16)), runs)
        for name in steps:
            run = mark if name == "gemm/cublas" else best(Side(name, cube(size)), runs)
            if not run:
                continue
            us, rate = run["result"]["us"], run["result"]["tflops"]
            share = f"{rate / mark['result']['tflops']:.3f}" if mark else ""
            why = "" if name == "gemm/cublas" else _why(name, rate, before)
            rows.append([name, f"{us:,.1f}", f"{rate:.1f}", share, f"{rate / ceiling:.3f}", why])
            before = before if name == "gemm/cublas" else rate
        head = [f"GEMM {size} cubed", "µs", "TFLOP/s", "of step 0", "of the wgmma ceiling", ""]
        out += [*_table(head, 4, rows), ""]
    return out


_LINE = re.compile(r"^(\S+) \| ([\d.]+) us \| ([\d.e+-]+) (TFLOP/s|GB/s) \|")


def _others(
    attention: dict[str, Any], family: str, steps: Sequence[str], graded: str, ceiling: float | None
) -> list[str]:
    """A ladder of the attention run: its steps in order, then its other shapes and choices."""
    rows, before, unit = [], None, ""
    marks, whole = attention["step0"], attention["rows"][0].get("from", "")
    found = [
        (row, match) for row in attention["rows"] if (match := _LINE.match(row["line"])) and match[1].startswith(family)
    ]

    def cells(row: dict[str, Any], match: re.Match[str], why: str) -> list[str]:
        rate, mark = float(match[3]), marks.get(row.get("from", ""), {}).get(row["of"])
        share = f"{rate / mark:.3f} of {row['of']}" if mark else ""
        share += f", run {row['from']}" if row.get("from", whole) != whole else ""
        of_ceiling = [f"{rate / ceiling:.3f}" if match[4] == "TFLOP/s" else ""] if ceiling else []
        return [
            f"{match[1]} {row['arguments']}".strip(),
            f"{float(match[2]):,.1f}",
            f"{rate:.1f} {match[4]}",
            *of_ceiling,
            share,
            why,
        ]

    taken: list[int] = []
    for name in steps:
        mine = [at for at, (row, match) in enumerate(found) if match[1] == name]
        mine = [at for at in mine if found[at][0]["arguments"] == graded] or mine
        if not mine:
            continue
        at = max(mine, key=lambda i: float(found[i][1][3]))
        row, match = found[at]
        same = unit == match[4] and not name.endswith("-softmax")
        rows.append(cells(row, match, _why(name, float(match[3]), before if same else None)))
        if not name.endswith("/cub"):  # step 0 is the mark, not a step of the ladder
            before, unit = float(match[3]), match[4]
        taken.append(at)
    rows += [cells(row, match, "") for at, (row, match) in enumerate(found) if at not in taken]
    head = [family, "µs", "rate", *(["of the wgmma ceiling"] if ceiling else []), "of step 0", ""]
    return [*_table(head, 3 if ceiling else 2, rows), ""]


def _spread(attention: dict[str, Any]) -> str:
    """What attention/decode reaches of CUB's read in each run: medians of its shapes and choices, and their range."""
    words = []
    for run, marks in attention["step0"].items():
        rates = [
            float(match[3]) / marks["reduction/cub"]
            for row in attention["rows"]
            if row["name"] == "attention/decode" and row.get("from") == run and (match := _LINE.match(row["line"]))
            if "--l2 256" not in row["arguments"]  # what all runs had before it was an argument
        ]
        if rates:
            words.append(
                f"{median(rates):.3f} in run {run} ({len(rates)} rows from {min(rates):.3f} to {max(rates):.3f})"
            )
    return f"attention/decode over CUB's read of the same run, median: {'; '.join(words)}."


def sections(steps: dict[str, list[str]], wgmma_ceiling: float) -> list[str]:
    """The ladders and comparisons in Markdown. `steps`: the names by family in order; the ceiling in TFLOP/s."""
    stored = json.loads(STORED.read_text(encoding="utf-8"))
    gemm, attention = stored["gemm"], stored["attention"]
    graded = "--b 4 --h 16 --s 4096 --d 128 --causal 1"
    marks = "; ".join(
        f"run {run}: " + ", ".join(f"{name} {rate:.1f}" for name, rate in sorted(rates.items()))
        for run, rates in attention["step0"].items()
    )
    intro = (
        f"{gemm['conditions']} (GEMM); {attention['conditions']} (attention and reductions). Step 0 is cuBLASLt, cuDNN "
        f"through PyTorch, or CUB. The wgmma ceiling is {wgmma_ceiling:.0f} TFLOP/s (bf16). A step is called slower "
        f"from {SPREAD:.0%} on. Written from `kernels/ladders.json`, which `tests/gpu/ladders.py` fills."
    )
    rows = [*compared(gemm["runs"]), *instructions()]
    meaning = (
        f"Stated by the articles (H100, H800) and measured here, as rates; shares are of {PEAK_TFLOPS} TFLOP/s. In "
        "brackets, the blocks that fit on an SM. Of an instruction alone (`diagnose ceilings`, in "
        "`diagnose/gpus/measured/h200.json`), shares are of the peak at the clock that it ran at."
    )
    return [
        "## The ladders",
        "",
        intro,
        "",
        *_gemm(gemm["runs"], wgmma_ceiling, steps["gemm"]),
        *_others(attention, "attention", steps["attention"], graded, wgmma_ceiling),
        *_others(attention, "reduction", steps["reduction"], "", None),
        f"Rates of step 0 (TFLOP/s and GB/s): {marks}.",
        "",
        _spread(attention),
        "",
        "## The articles' comparisons",
        "",
        meaning,
        "",
        *_table(
            ["comparison", "stated", "measured", "", "TFLOP/s, first : second"],
            0,
            [[r["what"], r["stated"], r["measured"], r["verdict"], r["rates"]] for r in rows],
        ),
    ]


def merge(stored: dict[str, Any], run: dict[str, Any], kept: str, name: str) -> None:
    """Puts the rows (under `kept`) and the rates of step 0 of the run `name` beside those of other runs."""
    stored.setdefault("conditions", run["conditions"])
    rows = {_key(row): row for row in stored[kept]}
    for row in run[kept]:
        rows[_key({**row, "from": name})] = {**row, "from": name}
    stored[kept] = list(rows.values())
    if "step0" in run:
        stored.setdefault("step0", {})[name] = run["step0"]


def _key(row: dict[str, Any]) -> str:
    return json.dumps([row.get("from"), row["name"], row["arguments"]], sort_keys=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gemm", type=Path)
    parser.add_argument("--attention", type=Path)
    parser.add_argument("--mark", help="NAME=RATE of a step 0 that the attention run does not hold itself")
    options = parser.parse_args()
    stored = json.loads(STORED.read_text(encoding="utf-8")) if STORED.is_file() else {}
    for name, kept in (("gemm", "runs"), ("attention", "rows")):
        if path := getattr(options, name):
            merge(stored.setdefault(name, {kept: []}), json.loads(path.read_text(encoding="utf-8")), kept, path.stem)
    if options.mark and options.attention:
        what, rate = options.mark.rsplit("=", 1)
        stored["attention"]["step0"][options.attention.stem][what] = float(rate)
    STORED.write_text(json.dumps(stored, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
