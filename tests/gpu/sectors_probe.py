"""Sectors of global memory by L1's own counters and by instrumentation: are they equal, and what does each cost?

    python3 tests/gpu/sectors_probe.py --out DIR

`smsp__sass_l1tex_t_sectors_*` come in the pass that counts how much of each sector is used; `l1tex__t_sectors_*` take a
pass of their own on sm_90. Prints, for some bundled kernels (with cp.async, broadcasts, scattered loads, local memory),
both counts in one line, then passes and seconds of a run with either, whose reports are left in DIR. Needs
nvcc, ncu and a GPU; about two minutes.
"""

from __future__ import annotations

import argparse
import csv
import io
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KERNELS = (
    "faults/sparse-by-thread",
    "faults/energy-stretches",
    "faults/tally-private",
    "faults/g-turns-a",
    "gemm/mma",
    "gemm/naive",
    "attention/decode",
    "reduction/vectorised",
)
COUNTER = tuple(f"l1tex__t_sectors_pipe_lsu_mem_global_op_{way}.sum" for way in ("ld", "st"))
INSTRUMENTED = tuple(f"smsp__sass_l1tex_t_sectors_pipe_lsu_mem_global_op_{way}.sum" for way in ("ld", "ldgsts", "st"))
COPIES_APART = tuple(
    f"smsp__sass_l1tex_t_sectors_pipe_lsu_mem_global_op_ldgsts_cache_{way}.sum" for way in ("access", "bypass")
)


def profiled(ncu: str, words: list[str], function: str, metrics: list[str], *more: str) -> tuple[float, str]:
    """Seconds, and what ncu wrote, of one launch with these metrics."""
    command = [ncu, "--clock-control", "none", "-k", function, "-c", "1", *more, "--metrics", ",".join(metrics), *words]
    began = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=200, check=False)
    return time.monotonic() - began, done.stdout + done.stderr


def values(text: str) -> dict[str, float]:
    """Metric -> value of ncu's raw page in CSV: a line of names, one of units, one of values."""
    lines = [line for line in text.splitlines() if line.startswith('"')]
    rows = list(csv.reader(io.StringIO("\n".join(lines))))
    if len(rows) < 3:
        return {}
    cells = zip(rows[0], rows[2], strict=False)
    return {name: float(cell.replace(",", "")) for name, cell in cells if re.fullmatch(r"[\d,.]+", cell)}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    out: Path = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    sys.path.insert(0, str(ROOT))
    from diagnose.api import Options, live_metrics, load_rules
    from diagnose.collect.find import find_ncu
    from diagnose.collect.kernels import build_kernel, kernel_arguments, load_kernels
    from diagnose.collect.plan import CODE_METRICS, DEFERRED

    ncu, known = str(find_ncu(None)), load_kernels(ROOT / "kernels")
    other = {*COUNTER, *INSTRUMENTED}
    core = [m for m in live_metrics(load_rules(Options())) if not DEFERRED.fullmatch(m) and m not in other]
    sets = {
        "counters": [*core, *COUNTER, *CODE_METRICS],
        "instrumented": [*core, *INSTRUMENTED, *CODE_METRICS],
        "neither": [*core, *CODE_METRICS],
    }
    for name in KERNELS:
        kernel = known[name]
        words = [str(build_kernel(kernel)), *kernel_arguments(kernel, kernel.params, 0)]
        both = [*COUNTER, *INSTRUMENTED, *COPIES_APART]
        seconds, text = profiled(ncu, words, kernel.function, both, "--csv", "--page", "raw", "--print-units", "base")
        found = values(text)
        loads, copies, stores = (found.get(metric) for metric in INSTRUMENTED)
        print(f"{name}: {seconds:.1f} s; loads {found.get(COUNTER[0])} by counter, {loads} + {copies} (cp.async)")
        print(f"   cp.async apart {[found.get(m) for m in COPIES_APART]}; stores {found.get(COUNTER[1])}, {stores}")
        for said in (line for line in text.splitlines() if "ERROR" in line or "WARNING" in line):
            print("  ", said[:200])
        for chosen, metrics in sets.items():
            report = ("-f", "-o", str(out / f"{name.replace('/', '-')}-{chosen}"))
            seconds, text = profiled(ncu, words, kernel.function, metrics, *report)
            passes = re.findall(r"(\d+) pass(?:es)?\s*$", text, re.MULTILINE)
            print(f"   {chosen}: {seconds:.2f} s, passes {', '.join(passes)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
