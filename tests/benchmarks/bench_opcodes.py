"""Opcode histograms: from the instanced metric, as `diagnose` reads them, against the SASS of every address.

    python tests/benchmarks/bench_opcodes.py [REPORT]

Each side runs in a process of its own on the decompressed report and counts executed warp instructions by opcode
without modifiers: `sass__inst_executed_per_opcode` has them by opcode; the other way takes `inst_executed` by address
and asks NVIDIA's disassembler for the text of each. The sums have to agree. The least time of the runs counts.
"""

from __future__ import annotations

import json
import lzma
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

RUNS = 3
NAME = "h200-gemm.ncu-rep"
SHARED = Path(__file__).resolve().parents[3] / "shared" / "reports"

SIDE = """
import json, sys, time
import ncu_report
metric_name, by_address = sys.argv[2], sys.argv[2] == "inst_executed"
context = ncu_report.load_report(sys.argv[1])
start, kernels, total, asked = time.perf_counter(), 0, 0, 0
for r in range(context.num_ranges()):
    results = context.range_by_idx(r)
    for a in range(results.num_actions()):
        action = results.action_by_idx(a)
        metric = action.metric_by_name(metric_name)
        if metric is None or not metric.num_instances():
            continue
        kernels += 1
        found, ids = {}, metric.correlation_ids()
        for i in range(metric.num_instances()):
            key = ids.value(i)
            if by_address:
                words = (action.sass_by_pc(key) or "").split()
                key = next((w for w in words if not w.startswith(("@", "/*"))), "").split(".")[0]
                asked += 1
            found[key] = found.get(key, 0) + metric.value(i)
        total += sum(found.values())
print(json.dumps([time.perf_counter() - start, kernels, total, asked]))
"""


def main() -> int:
    """Prints both times; 1 where the sums differ."""
    packed = SHARED / f"{NAME}.xz"
    given = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    if given is None and not packed.exists():
        print(f"skipped: {NAME} is not beside the checkout (shared/reports)")
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        report = given or Path(scratch) / NAME
        if given is None:
            with lzma.open(packed) as source, report.open("wb") as target:
                shutil.copyfileobj(source, target)
        best: dict[str, list[float]] = {}
        for metric in ("sass__inst_executed_per_opcode", "inst_executed") * RUNS:
            command = [sys.executable, "-c", SIDE, str(report), metric]
            answer = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            best[metric] = min(best.get(metric, answer), answer)
        (fast, kernels, total, _), (slow, _, other, asked) = best.values()
        print(f"{report.name}: {kernels:.0f} kernels, {asked:.0f} addresses, least of {RUNS}")
        print(f"  instanced metric   {fast:7.3f} s")
        print(f"  every address      {slow:7.3f} s   {slow / fast:.0f}x")
        print(f"  instructions       {total:.0f} and {other:.0f}")
        return 0 if abs(total - other) <= 0.001 * total else 1


if __name__ == "__main__":
    sys.exit(main())
