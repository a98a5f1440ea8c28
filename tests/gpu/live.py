"""Runs `diagnose` on live programs on a machine with a GPU: the cases that a stand-in `ncu` cannot prove.

    python3 tests/gpu/live.py --out DIR [--filters]

Prints each case with its exit code and last lines; exits 1 when one differs from what is expected. Part of `make gpu`.
`--filters` only shows which launches ncu takes under several filters (`docs/architecture.md`, collection).
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DIAGNOSE = [sys.executable, "-m", "diagnose"]

TWO_KERNELS = r"""
#include <cstdio>
#include <cstdlib>
__global__ void first(float* x, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] += 1.0f; }
__global__ void second(float* x, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] *= 2.0f; }
int main(int argc, char** argv) {
  int n = 1 << 24, rounds = argc > 1 ? atoi(argv[1]) : 3, code = argc > 2 ? atoi(argv[2]) : 0;
  float* x; cudaMalloc(&x, n * sizeof(float)); cudaMemset(x, 0, n * sizeof(float));
  for (int r = 0; r < rounds; ++r) {
    first<<<n / 256, 256>>>(x, n); second<<<n / 256, 256>>>(x, n); first<<<n / 512, 256>>>(x, n / 2);
  }
  printf("done %s\n", cudaGetErrorString(cudaDeviceSynchronize()));
  return code;
}
"""

# What a run of `two` must hold: a launch of each kernel name and launch configuration, by name and blocks.
CONFIGURATIONS = [("first", 32768), ("first", 65536), ("second", 65536)]

FILTERS = {
    "by name": ["--kernel-id", "::regex:^(?!nccl):1"],
    "by name, per configuration": ["--filter-mode", "per-launch-config", "--kernel-id", "::regex:^(?!nccl):1"],
    "count 1, per configuration": ["--filter-mode", "per-launch-config", "--launch-count", "1"],
    "count 2, per configuration": ["--filter-mode", "per-launch-config", "--launch-count", "2"],
    "by name, per configuration, count 2": [
        "--filter-mode", "per-launch-config", "--kernel-id", "::regex:^(?!nccl):1", "--launch-count", "2",
    ],
}  # fmt: skip

TORCH = """
import torch
x = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
w = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
for _ in range(20):
    y = torch.nn.functional.gelu(x @ w)
    y = torch.nn.functional.layer_norm(y, (4096,))
    x = torch.softmax(y.float(), -1).to(torch.bfloat16)
torch.cuda.synchronize()
print("finished", float(x.float().sum()))
"""


def run(
    words: list[str], folder: Path, interrupt_after: float | None = None, limit: float = 150
) -> tuple[int, str, str, float]:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"}
    began = time.monotonic()
    process = subprocess.Popen(
        [*DIAGNOSE, *words], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
        env=environment, start_new_session=True,
    )  # fmt: skip
    try:
        out, err = process.communicate(timeout=interrupt_after if interrupt_after is not None else limit)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        try:
            out, err = process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
    return process.returncode, out, err, time.monotonic() - began


def show_filters(folder: Path) -> None:
    """Which of the launches of `two` (first 65536, second 65536, first 32768 blocks, five times) each filter takes."""
    import re

    sys.path.insert(0, str(ROOT))
    from diagnose.collect.find import find_ncu

    for name, words in FILTERS.items():
        command = [str(find_ncu(None)), *words, "--metrics", "gpu__time_duration.sum", "./two", "5"]
        text = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=150, check=False).stdout
        chosen = re.findall(r"^ +(?:\w+ )?(first|second)\(.*?\) \((\d+), \d+, \d+\)x", text, re.MULTILINE)
        print(f"== {name}: {len(chosen)} launches: {', '.join(' '.join(one) for one in chosen)}", flush=True)
        if not chosen:
            print(text[-600:], flush=True)


def launches(report: Path) -> list[tuple[str, int]]:
    """Name and number of blocks of each kernel in a document."""
    if not report.exists():
        return []
    kernels = json.loads(report.read_text())["kernels"]
    return sorted((k["name"].split("(")[0], k["launch"]["grid"][0]) for k in kernels if k["launch"])


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--filters", action="store_true")
    given = parser.parse_args()
    out = given.out
    out.mkdir(parents=True, exist_ok=True)
    work = Path("/src/diagnose/live")
    work.mkdir(parents=True, exist_ok=True)
    (work / "two.cu").write_text(TWO_KERNELS)
    (work / "train.py").write_text(TORCH)
    subprocess.run(["nvcc", "-O3", "-lineinfo", "-arch=sm_90", "two.cu", "-o", "two"], cwd=work, check=True)
    if given.filters:
        show_filters(work)
        return 0
    cases: list[tuple[str, list[str], float | None, int]] = [
        ("doctor", ["doctor"], None, 0),
        ("reference kernel", ["kernel:gemm/naive", "--json", "naive.json"], None, 0),
        ("two kernels, three launch configurations", ["--json", "two.json", "./two", "5"], None, 0),
        ("target fails after its kernels", ["--json", "fails.json", "./two", "1", "3"], None, 0),
        ("filter that matches nothing", ["--kernel", "nothing", "./two"], None, 3),
        ("PyTorch program", ["--json", "train.json", "--max-launches", "12", sys.executable, "train.py"], None, 0),
        ("cap reached", ["--json", "capped.json", "--max-launches", "2", "./two", "5"], None, 0),
        (
            "interrupted",
            ["--survey", "none", "--json", "interrupted.json", "--max-launches", "5000", "./two", "2000000"],
            25.0,
            130,
        ),
        ("no kernel", ["/bin/true"], None, 3),
    ]
    wrong = 0
    for name, words, interrupt, expected in cases:
        code, stdout, stderr, seconds = run(words, work, interrupt)
        ok = code == expected
        wrong += not ok
        print(f"== {'ok ' if ok else 'NO '} {name}: exit {code} (expected {expected}), {seconds:.1f} s", flush=True)
        if words[-2:] == ["./two", "5"] and "capped.json" not in words:
            found = launches(work / "two.json")
            wrong += ok and found != CONFIGURATIONS
            print(f"   {'ok ' if found == CONFIGURATIONS else 'NO '} launch configurations: {found}", flush=True)
        print(
            "\n".join(("   " + line)[:150] for line in (stdout.splitlines()[:14] + stderr.splitlines()[-8:])),
            flush=True,
        )
    for report in work.glob("*.json"):
        document = json.loads(report.read_text())
        print(
            report.name,
            [(k["name"][:40], k["launch"] and k["launch"]["grid"], k["verdict"]["rule"]) for k in document["kernels"]],
        )
        (out / report.name).write_bytes(report.read_bytes())
    print(f"# {len(cases) - wrong} of {len(cases)} as expected", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
