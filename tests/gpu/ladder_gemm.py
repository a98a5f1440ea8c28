"""Builds the GEMM ladder on a machine with a GPU, checks and times every step beside step 0 (cuBLASLt).

Needs only the standard library, PyYAML and nvcc. A step that fails or hangs costs its time limit, the rest goes on.

    python3 tests/gpu/ladder_gemm.py [--stage steps,check,sweep,compare] [--only REGEX] [--out FILE.json]
"""

from __future__ import annotations

import argparse
import glob
import itertools
import json
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ladders
import yaml

ROOT = Path(__file__).resolve().parents[2]
FLAGS = ("-O3", "-lineinfo", "-std=c++17", "-split-compile=0", "-gencode=arch=compute_90a,code=sm_90a")
LIMIT_S = 20.0
SMALL = {"gemm/naive": (2048, 4096), "gemm/tiled": (2048, 4096), "gemm/register": (4096,)}
RESULT = re.compile(r"\| ([\d.]+) us \| ([\d.e+-]+) TFLOP/s \| error (\S+) \(tolerance (\S+)\) \| (ok|mismatch)")
BASE = {
    "tile": 256,
    "stages": 4,
    "rs": 0,
    "swizzle": 128,
    "cluster": 1,
    "producers": 1,
    "bits": 16,
    "epilogue": 0,
    "zeros": 0,
}
BLOCKS = re.compile(r"blocks an SM: (\d+)")
# One choice away from the defaults at a time, and the articles' comparisons.
ABLATIONS: tuple[dict[str, int], ...] = (
    {},
    {"cluster": 2},
    {"cluster": 4},
    {"tile": 128},
    {"tile": 64},
    {"stages": 2},
    {"stages": 3},
    *({"tile": 128, "stages": stages} for stages in (2, 3, 4, 5, 6, 7)),
    {"tile": 128, "stages": 2, "producers": 0},
    {"tile": 128, "stages": 4, "producers": 0},
    {"producers": 0},
    {"producers": 2},
    {"rs": 1},
    {"swizzle": 64},
    {"swizzle": 32},
    {"swizzle": 0},
    {"epilogue": 1},
    {"epilogue": 2},
    {"cluster": 2, "zeros": 1},
    {"bits": 8, "cluster": 2},
    {"bits": 32, "cluster": 2},
)


def cublaslt() -> str:
    """The cuBLASLt that a Python package brings, where the loader has none: empty when there is none either."""
    folders = [*sys.path, *glob.glob("/opt/*/.venv/lib/python3*/site-packages")]
    for folder in folders:
        if found := sorted(glob.glob(f"{folder}/nvidia/*/lib/libcublasLt.so.*")):
            return found[-1]
    return ""


def build(source: Path, target: Path) -> str:
    """Compiles one program; what the compiler said on failure, else an empty text."""
    done = subprocess.run(["nvcc", *FLAGS, "-o", str(target), str(source)], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else (done.stdout + done.stderr).strip()[-600:]


def run(program: Path, arguments: dict[str, int], environment: dict[str, str]) -> tuple[dict[str, Any] | None, str]:
    """One run: what was measured, and the line to print."""
    flags = [part for name, value in arguments.items() for part in (f"--{name}", str(value))]
    try:
        done = subprocess.run(
            [str(program), *flags], capture_output=True, text=True, timeout=LIMIT_S, env=environment, check=False
        )
    except subprocess.TimeoutExpired:
        return None, f"HANG: no end within {LIMIT_S:.0f} s"
    found = RESULT.search(done.stdout)
    if not found:
        return None, f"FAIL ({done.returncode}): {(done.stderr or done.stdout).strip()[-300:]}"
    us, rate, error, tolerance, verdict = found.groups()
    measured: dict[str, Any] = {
        "us": float(us),
        "tflops": float(rate),
        "error": error,
        "tolerance": tolerance,
        "ok": verdict == "ok",
    }
    if blocks := BLOCKS.search(done.stdout):
        measured["blocks"] = int(blocks[1])
    return measured, f"{us:>9} us {rate:>7} TFLOP/s  error {error} of {tolerance}  {verdict}"


def combinations() -> list[dict[str, int]]:
    """Every legal combination of the sweep's structural choices, thinned to one in five by a fixed stride."""
    axes = {"tile": (64, 128, 256), "stages": (2, 3, 4), "rs": (0, 1), "swizzle": (0, 32, 64, 128)}
    more = {"cluster": (1, 2, 4), "producers": (0, 1, 2), "bits": (8, 16, 32), "epilogue": (0, 1)}
    names = [*axes, *more]
    every = (dict(zip(names, values, strict=True)) for values in itertools.product(*axes.values(), *more.values()))
    legal = [one for one in every if not one["rs"] or one["bits"] == 16]
    return legal[7::53]  # 53 is prime to every axis, so that all values and most pairs come up


def shapes() -> list[dict[str, int]]:
    """Every legal tile of gemm/shape with every operand, thinned to one in seven by a fixed stride."""
    axes = {"tile_m": (64, 128, 192, 256), "tile_n": (64, 128, 256), "tile_k": (64, 128, 256), "rs": (0, 1)}
    axes["bits"] = (8, 16, 32)
    every = (dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values()))
    most = {64: 256, 128: 256, 256: 128}
    legal = [one for one in every if one["tile_m"] <= most[one["tile_n"]] - 64 * (one["tile_n"] == 128 and one["rs"])]
    return [{**one, "stages": 2} for one in legal[3::7]]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--stage", default="steps,check,sweep,compare")
    parser.add_argument("--only", default="", help="of all stages: the programs whose names match")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/ladder"))
    parser.add_argument("--budget", type=float, default=200.0, help="seconds after which nothing new is started")
    options = parser.parse_args()
    start = time.monotonic()
    stages = options.stage.split(",")
    options.folder.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "DIAGNOSE_CUBLASLT": cublaslt()}
    query = ["nvidia-smi", "--query-gpu=name,driver_version,clocks.max.sm,power.limit", "--format=csv,noheader"]
    gpu = subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip()
    print("#", gpu)
    manifest = yaml.safe_load((ROOT / "kernels" / "gemm" / "manifest.yaml").read_text())
    kernels = {k["name"]: k for k in manifest["kernels"]}
    programs = {name: options.folder / Path(k["source"]).stem for name, k in kernels.items()}
    sources = {k["source"] for name, k in kernels.items() if re.search(options.only, name)}
    jobs = [(ROOT / "kernels" / "gemm" / source, options.folder / Path(source).stem) for source in sorted(sources)]
    with ThreadPoolExecutor(os.cpu_count() or 2) as pool:
        for (source, _), words in zip(jobs, pool.map(lambda job: build(*job), jobs), strict=True):
            if words:
                print(f"BUILD {source.name}: {words}", flush=True)
    print(f"# built in {time.monotonic() - start:.0f} s", flush=True)

    results: list[dict[str, Any]] = []
    failed = 0
    hung: set[str] = set()  # one time limit a program is enough

    def measure(
        name: str, label: str, arguments: dict[str, int], reference: float | None = None
    ) -> dict[str, Any] | None:
        nonlocal failed
        if name in hung or not programs[name].exists() or time.monotonic() - start > options.budget:
            print(f"{label:58} LEFT OUT", flush=True)
            failed += 1
            return None
        measured, line = run(programs[name], arguments, environment)
        ratio = f"  {measured['tflops'] / reference:.3f} of cuBLAS" if measured and reference else ""
        print(f"{label:58} {line}{ratio}", flush=True)
        failed += not (measured and measured["ok"])
        if line.startswith("HANG"):
            hung.add(name)
        results.append({"name": name, "arguments": arguments, "result": measured, "line": line})
        return measured

    marks: dict[tuple[int, int], float | None] = {}

    def mark(size: int, bits: int = 16) -> float | None:
        if (size, bits) not in marks:
            cube = {"m": size, "n": size, "k": size, "bits": bits}
            found = measure("gemm/cublas", f"gemm/cublas {size} bits={bits}", cube)
            marks[size, bits] = found["tflops"] if found else None
        return marks[size, bits]

    if "steps" in stages:
        # The last step first: what matters most is measured even if something later hangs.
        order = sorted((k for k in kernels.values() if k["step"]), key=lambda k: -k["step"])
        for kernel in order:
            name = kernel["name"]
            if not re.search(options.only, name):
                continue
            for size in SMALL.get(name, (4096, 8192)):
                reference = mark(size)
                measure(name, f"{name} {size}", {"m": size, "n": size, "k": size, "repeats": 20}, reference)
    if "check" in stages and re.search(options.only, "gemm/shape"):
        for choice in shapes():
            cube = {"m": 768, "n": 512, "k": 1024, **choice, "repeats": 1}
            measure("gemm/shape", "check " + " ".join(f"{k}={v}" for k, v in choice.items()), cube)
    if "check" in stages and re.search(options.only, "gemm/sweep"):
        for choice in combinations():
            cube = {"m": 1024, "n": 768, "k": 1152, **choice, "repeats": 2}
            measure("gemm/sweep", "check " + " ".join(f"{k}={v}" for k, v in choice.items()), cube)
    if "sweep" in stages:
        for choice in ABLATIONS:
            bits = choice.get("bits", 16)
            cube = {"m": 8192, "n": 8192, "k": 8192, **BASE, **choice, "repeats": 10}
            measure("gemm/sweep", "sweep " + " ".join(f"{k}={v}" for k, v in choice.items()), cube, mark(8192, bits))
        for band in (4, 16, 32):
            measure(
                "gemm/persistent",
                f"gemm/persistent 8192 band={band}",
                ladders.cube(8192, band=band, repeats=20),
                mark(8192),
            )
        for name in ("gemm/cublas", "gemm/mma-sync", "gemm/mma", "gemm/sweep", "gemm/persistent"):
            extra = {"tile": 64} if name == "gemm/sweep" else {}
            measure(name, f"{name} 512", {"m": 512, "n": 512, "k": 512, **extra, "repeats": 200})
    if "compare" in stages:
        done = [(one["name"], one["arguments"]) for one in results]
        for side in (side for one in ladders.COMPARISONS for side in (one.first, one.second) if side):
            for name, wanted in side.runs():
                if not re.search(options.only, name):
                    continue
                arguments = {**(BASE if name == "gemm/sweep" else {}), **wanted}
                if any(there == name and arguments.items() <= had.items() for there, had in done):
                    continue
                done.append((name, arguments))
                label = " ".join(f"{k}={v}" for k, v in arguments.items() if BASE.get(k) != v)
                measure(name, f"{name} {label}", {**arguments, "repeats": 20})
        ladders.print_comparisons(results)
    if options.out:
        conditions = f"{gpu}, {time.strftime('%Y-%m-%d')}"
        options.out.write_text(json.dumps({"conditions": conditions, "runs": results}, indent=1))
    print(f"# {len(results)} runs, {failed} not ok, {time.monotonic() - start:.0f} s", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
