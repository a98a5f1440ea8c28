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
    sweep = {**ladders.cube(4096), "bits": 16}
    runs = [
        run("gemm/sweep", 110.0, **sweep, tile=256, stages=4),
        run("gemm/sweep", 100.0, **sweep, tile=128, stages=3),
        run("gemm/sweep", 120.0, **sweep, tile=128, stages=4),
        run("gemm/sweep", 50.0, **sweep, tile=256, stages=4, zeros=1),  # less power: another thing
        run("gemm/sweep", 10.0, **sweep, tile=128, stages=3),
    ]
    runs[-1]["result"]["ok"] = False  # faster than anything, and wrong
    rows = {row["what"]: row for row in ladders.compared(runs)}
    tiles = "tiles of 128 columns against 256, {} (best of the stages and clusters run)"
    found = rows[tiles.format("4096 x 4096 x 4096")]
    assert (found["measured"], found["verdict"]) == ("+10.0%", "agrees")
    missing = rows[tiles.format("8192 x 8192 x 1024")]
    assert (missing["measured"], missing["verdict"]) == ("not measured", "")


def test_a_comparison_is_of_sides_of_one_run_where_one_has_both() -> None:
    runs = [
        {**run("gemm/mma", 10.0, **ladders.cube(512)), "from": "cold"},
        {**run("gemm/mma", 20.0, **ladders.cube(512)), "from": "warm"},
        {**run("gemm/mma-sync", 19.0, **ladders.cube(512)), "from": "warm"},
    ]
    (found,) = (row for row in ladders.compared(runs) if row["what"].startswith("asynchronous"))
    assert found["measured"] == "-5.0%"


def test_a_run_put_beside_another_replaces_none_of_its_rows() -> None:
    stored: dict[str, Any] = {"runs": []}
    for name, us in (("whole", 3.0), ("part", 2.0), ("part", 1.0)):
        ladders.merge(stored, {"conditions": name, "runs": [run("k", us, **ladders.cube(64))]}, "runs", name)
    assert [(row["from"], row["result"]["us"]) for row in stored["runs"]] == [("whole", 3.0), ("part", 1.0)]
    assert stored["conditions"] == "whole"


def test_rates_of_instructions_are_of_the_shipped_measurement() -> None:
    rows = {row["what"]: row for row in ladders.instructions()}
    assert all(row["verdict"] == "agrees" for row in rows.values()), rows
    assert rows["2:4 sparse wgmma against dense, N = 256 (instruction rates)"]["measured"] == "1.80"


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
