"""The tables of the ladders: what is compared, what is called slower, and that the page is what the stored runs say."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "gpu"))

import ladders
import results


def run(name: str, us: float, **arguments: int) -> dict[str, Any]:
    flops = 2.0 * arguments["m"] * arguments["n"] * arguments["k"]
    return {"name": name, "arguments": arguments, "result": {"us": us, "tflops": flops / us * 1e-6, "ok": True}}


def test_the_page_is_what_the_stored_runs_say() -> None:
    assert results.TARGET.read_text(encoding="utf-8") == results.text(), "run tests/gpu/results.py"


def test_a_comparison_takes_the_fastest_correct_run_and_says_whether_it_agrees() -> None:
    runs = [
        run("gemm/sparse", 50.0, **{**ladders.cube(8192, dense=0), "k": 1024}),
        run("gemm/sparse", 65.0, **{**ladders.cube(8192, dense=1), "k": 1024}),
        run("gemm/sparse", 500.0, **ladders.cube(8192, dense=0)),
        run("gemm/sparse", 700.0, **ladders.cube(8192, dense=1)),
        run("gemm/sparse", 10.0, **ladders.cube(8192, dense=0)),
    ]
    runs[-1]["result"]["ok"] = False  # faster than anything, and wrong
    rows = {row["what"]: row for row in ladders.compared(runs)}
    small, large = (
        rows["2:4 sparse A against dense, 8192 x 8192 x 1024"],
        rows["2:4 sparse A against dense, 8192 x 8192 x 8192"],
    )
    assert (small["measured"], small["verdict"]) == ("1.30", "agrees")
    assert (large["measured"], large["verdict"]) == ("1.40", "disagrees")
    missing = rows["2:4 sparse A against dense, 8192 x 8192 x 512"]
    assert (missing["measured"], missing["verdict"]) == ("not measured", "")


def test_a_sweep_run_that_does_not_name_a_choice_had_its_default() -> None:
    base = {**ladders.cube(8192), "bits": 16}
    side = ladders.Side("gemm/sweep", {**base, "cluster": 1, "zeros": 0})
    old, other = run("gemm/sweep", 10.0, **base), run("gemm/sweep", 5.0, **base, zeros=1)
    assert ladders.best(side, [old, other]) is old


def test_a_step_is_slower_from_one_percent_on_and_says_why_or_that_nobody_knows() -> None:
    steps = {"gemm": ["gemm/cublas", "gemm/tma", "gemm/specialised", "gemm/multicast", "gemm/persistent"]}
    times = dict(zip(steps["gemm"], (100.0, 100.0, 100.5, 110.0, 130.0), strict=True))
    runs = [run(name, us, **ladders.cube(4096), bits=16) for name, us in times.items()]
    lines = {line.split(" | ")[0]: line for line in ladders._gemm(runs, 950.0, steps["gemm"])}
    assert "slower" not in lines["| gemm/tma"] + lines["| gemm/specialised"]
    assert "slower: the blocks of a cluster wait" in lines["| gemm/multicast"]
    assert "slower: unexplained" in lines["| gemm/persistent"]
