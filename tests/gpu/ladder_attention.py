"""Builds, checks and times the attention and reduction ladders on a machine with a GPU (sm_90a), in about 90 seconds.

    python3 tests/gpu/ladder_attention.py [--only PART] [--build DIR] [--deadline SECONDS] [--json FILE]

A line a run: the program's own result line, and its rate over that of step 0 (cuDNN through PyTorch, CUB). Programs are
built in parallel; each is first checked on small shapes, and one that fails or hangs there is not timed. Exits 1 when
anything failed. Needs nvcc; PyTorch only for step 0. `--only` keeps the programs whose name contains PART.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FLAGS = ["-O3", "-lineinfo", "-std=c++17", "-gencode=arch=compute_90a,code=sm_90a"]
BUILD_SECONDS, RUN_SECONDS, TORCH_SECONDS = 120, 20, 90
PROGRAMS = {
    "attention": ("naive", "fused", "tma", "specialised", "decode"),
    "reduction": ("cub", "atomic", "tree", "scalar", "shuffle", "vectorised", "cluster", "softmax", "rmsnorm"),
}
RESULT = re.compile(r"\| ([\d.]+) us \| ([\d.e+-]+) (TFLOP/s|GB/s) \|")

ROWS = ["--rows 5 --columns 1024", "--rows 300 --columns 16384", "--rows 7 --columns 2048 --variant unfused"]
# Small shapes for the check, by program: one tile, two, an odd number, several heads, groups, and every option.
SMALL = {
    "attention/naive": ["--s 1024 --b 1 --h 2"],
    "attention/fused": ["--s 128", "--s 384 --causal 1", "--s 1024 --d 64 --causal 1"],
    "attention/tma": [
        "--s 128", "--s 256 --causal 1", "--s 384 --d 64", "--s 640 --causal 1 --h 8 --kv_heads 2",
        "--s 2048 --d 64 --causal 1",
    ],
    "attention/specialised": [
        "--s 128 --b 1 --h 1", "--s 128 --causal 1", "--s 256 --causal 1", "--s 384", "--s 384 --d 64 --causal 1",
        "--s 640 --causal 1 --h 8 --kv_heads 2", "--s 1024 --stages 1", "--s 1024 --stages 3 --causal 1",
        "--s 1024 --d 64", "--s 1024 --d 64 --stages 1 --causal 1",
        "--s 2048 --d 64 --causal 1 --b 3 --h 15 --kv_heads 5",
    ],
    "attention/decode": [
        "--s 64 --b 1 --h 1 --kv_heads 1", "--s 1024 --b 1 --h 8 --kv_heads 1", "--s 4096 --b 3 --h 12 --kv_heads 4",
        "--s 8192 --b 2 --h 6 --kv_heads 6 --d 64", "--s 65536 --b 1 --h 2 --kv_heads 1",
        "--s 65536 --b 1 --h 8 --kv_heads 2 --stages 6", "--s 4096 --b 1 --h 6 --kv_heads 2 --d 64 --stages 2",
        "--s 131072 --b 1 --h 7 --kv_heads 1", "--s 65536 --b 2 --h 4 --kv_heads 2 --waves 3",
        "--s 192 --b 40 --h 40 --kv_heads 20 --l2 256",
    ],
    "reduction/cub": ["--n 1000"],
    "reduction/scalar": ["--n 4", "--n 1000004"],
    "reduction/vectorised": ["--n 4", "--n 1000004", "--n 33554432"],
    "reduction/cluster": ["--n 4", "--n 1000004 --cluster 8", "--n 33554432 --cluster 2", "--n 1000004 --cluster 1"],
    "reduction/softmax": ROWS,
    "reduction/rmsnorm": ROWS,
}  # fmt: skip

GRADED = "--b 4 --h 16 --s 4096 --d 128 --causal 1"
LONG = "--b 1 --h 16 --s 16384 --d 128 --causal 1"
# The cache of one token's step: grouped heads, each head its own, 64 columns, one long sequence.
DECODE = (
    "--b 16 --h 32 --kv_heads 8 --s 16384 --d 128",
    "--b 16 --h 8 --kv_heads 8 --s 16384 --d 128",
    "--b 16 --h 32 --kv_heads 16 --s 16384 --d 64",
    "--b 1 --h 32 --kv_heads 8 --s 131072 --d 128",
)
# What is timed: program, arguments, and the name of the step 0 that it is measured against.
TIMED = [
    ("attention/naive", "--pass scores", None),
    ("attention/naive", "--pass softmax", None),
    ("attention/naive", "--pass values", None),
    ("attention/fused", GRADED, "causal d128"),
    ("attention/tma", GRADED, "causal d128"),
    ("attention/specialised", GRADED, "causal d128"),
    ("attention/specialised", GRADED + " --stages 1", "causal d128"),
    ("attention/specialised", GRADED + " --stages 2", "causal d128"),
    ("attention/specialised", GRADED + " --kv_heads 4", "causal d128"),
    ("attention/fused", GRADED.replace("causal 1", "causal 0"), "full d128"),
    ("attention/tma", GRADED.replace("causal 1", "causal 0"), "full d128"),
    ("attention/specialised", GRADED.replace("causal 1", "causal 0"), "full d128"),
    ("attention/specialised", GRADED.replace("d 128", "d 64"), "causal d64"),
    ("attention/specialised", LONG, "causal s16384"),
    *(
        ("attention/decode", f"{shape}{choice}", "reduction/cub")
        for shape in DECODE
        for choice in ("", " --l2 256", " --waves 2", " --stages 2", " --stages 4")
    ),
    ("reduction/cub", "", "reduction/cub"),
    ("reduction/atomic", "--repeats 5", "reduction/cub"),
    ("reduction/tree", "--variant divergent", "reduction/cub"),
    ("reduction/tree", "--variant conflicts", "reduction/cub"),
    ("reduction/scalar", "", "reduction/cub"),
    ("reduction/shuffle", "", "reduction/cub"),
    ("reduction/vectorised", "", "reduction/cub"),
    ("reduction/cluster", "--cluster 2", "reduction/cub"),
    ("reduction/cluster", "--cluster 4", "reduction/cub"),
    ("reduction/cluster", "--cluster 8", "reduction/cub"),
    ("reduction/softmax", "--variant unfused", "softmax"),
    ("reduction/softmax", "--variant fused", "softmax"),
    ("reduction/rmsnorm", "--variant unfused", "rms_norm"),
    ("reduction/rmsnorm", "--variant fused", "rms_norm"),
]

# Step 0, by PyTorch in a process of its own: {name: rate} as JSON on its last line.
TORCH = r"""
import json, statistics, torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import rms_norm, scaled_dot_product_attention

def us(f, repeats=20):
    for _ in range(3): f()
    torch.cuda.synchronize()
    times = []
    for _ in range(repeats):
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        a.record(); f(); b.record(); b.synchronize()
        times.append(1000 * a.elapsed_time(b))
    return statistics.median(times)

def uniform(*shape, span, dtype=torch.bfloat16):
    return ((torch.rand(*shape, device="cuda") * 2 - 1) * span).to(dtype)

rates = {}
def attention(name, b, h, s, d, causal):
    q, k, v = uniform(b, h, s, d, span=4), uniform(b, h, s, d, span=1), uniform(b, h, s, d, span=1)
    pairs = b * h * (s * (s + 1) / 2 if causal else s * s)
    for label, backend in (("cudnn", SDPBackend.CUDNN_ATTENTION), ("flash", SDPBackend.FLASH_ATTENTION)):
        try:
            with sdpa_kernel([backend]):
                t = us(lambda: scaled_dot_product_attention(q, k, v, is_causal=causal))
        except RuntimeError as error:
            print(f"step 0 {name} {label}: {str(error).splitlines()[0]}", flush=True)
            continue
        rate = 4 * pairs * d / t * 1e-6
        rates.setdefault(name, rate)  # cuDNN where it is there
        print(f"step 0 {name} | torch {label} | {t:.1f} us | {rate:.1f} TFLOP/s", flush=True)

print(f"torch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}, {torch.cuda.get_device_name()}", flush=True)
attention("causal d128", 4, 16, 4096, 128, True)
attention("full d128", 4, 16, 4096, 128, False)
attention("causal d64", 4, 16, 4096, 64, True)
attention("causal s16384", 1, 16, 16384, 128, True)
x, w = uniform(16384, 8192, span=2, dtype=torch.float32), uniform(8192, span=1, dtype=torch.float32)
for name, f in (("softmax", lambda: torch.softmax(x, -1)), ("rms_norm", lambda: rms_norm(x, (8192,), w, 1e-5))):
    t = us(f)
    rates[name] = 8 * x.numel() / t * 1e-3
    print(f"step 0 {name} | torch | {t:.1f} us | {rates[name]:.1f} GB/s", flush=True)
y = uniform(1 << 28, span=1, dtype=torch.float32)
t = us(lambda: y.sum())
rates["sum"] = 4 * y.numel() / t * 1e-3
print(f"step 0 sum | torch | {t:.1f} us | {rates['sum']:.1f} GB/s", flush=True)
print(json.dumps(rates))
"""


@dataclass(frozen=True)
class Ran:
    """One run of a program: its exit status (None: it did not end in time), its result line or what it said instead."""

    status: int | None
    line: str
    seconds: float


def run(command: list[str], seconds: float) -> Ran:
    """Runs a command; a hang ends with SIGKILL after `seconds`."""
    start = time.monotonic()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return Ran(None, f"did not end within {seconds:.0f} s", time.monotonic() - start)
    lines = (done.stdout.strip() or done.stderr.strip()).splitlines()
    said = done.stderr.strip().splitlines()
    line = lines[-1] if lines else "no output"
    if done.returncode and said and said[-1] != line:
        line += f"    ({said[-1]})"
    return Ran(done.returncode, line, time.monotonic() - start)


def build(name: str, folder: Path, nvcc: str) -> str:
    """Compiles one program; the text of the error, or "" ."""
    family, short = name.split("/")
    target = folder / f"{family}-{short}"
    source = ROOT / "kernels" / family / f"{short}.cu"
    try:
        done = subprocess.run(
            [nvcc, *FLAGS, "-o", str(target), str(source)],
            capture_output=True,
            text=True,
            timeout=BUILD_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"nvcc did not end within {BUILD_SECONDS} s"
    return "" if done.returncode == 0 else (done.stderr.strip() or done.stdout.strip())[:2000] or "nvcc failed"


def say(text: str) -> None:
    print(text, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="")
    parser.add_argument("--build", type=Path)
    parser.add_argument("--deadline", type=float, default=240.0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--no-torch", action="store_true")
    options = parser.parse_args()
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    folder = options.build or Path(tempfile.mkdtemp(prefix="ladder_"))
    folder.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    names = [f"{family}/{short}" for family, shorts in PROGRAMS.items() for short in shorts]
    names = [name for name in names if options.only in name]

    broken: dict[str, str] = {}
    rates: dict[str, float] = {}
    with ThreadPoolExecutor(16) as pool:
        builds = {name: pool.submit(build, name, folder, nvcc) for name in names}
        torch = None if options.no_torch else pool.submit(run_torch)
        for name, building in builds.items():
            if error := building.result():
                broken[name] = "not built"
                say(f"BUILD FAILED {name}\n{error}")
        say(f"built {len(names) - len(broken)} programs in {time.monotonic() - start:.0f} s")
        if torch is not None:
            rates = torch.result()
            say(f"step 0 done at {time.monotonic() - start:.0f} s")

    def command(name: str, arguments: str, *more: str) -> list[str]:
        return [str(folder / name.replace("/", "-")), *arguments.split(), *more]

    def check(name: str) -> list[tuple[str, Ran]]:
        results = []
        for arguments in SMALL.get(name, []):
            ran = run(command(name, arguments, "--repeats", "0"), RUN_SECONDS)
            results.append((arguments, ran))
            if ran.status is None:
                break  # one hang is enough
        return results

    failed = len(broken)
    with ThreadPoolExecutor(6) as pool:
        for name, checked in zip(names, pool.map(lambda n: [] if n in broken else check(n), names), strict=True):
            bad = [(arguments, ran) for arguments, ran in checked if ran.status != 0]
            for arguments, ran in bad:
                say(f"CHECK FAILED {name} {arguments}: {ran.line}")
            failed += len(bad)
            if any(ran.status is None for _, ran in bad):
                broken[name] = "hangs"
            if checked:
                say(f"checked {name}: {len(checked) - len(bad)} of {len(SMALL[name])} shapes ok")
    say(f"checks done at {time.monotonic() - start:.0f} s")

    rows = []
    # CUB first: the others are measured against it.
    for name, arguments, base in sorted(TIMED, key=lambda row: row[0] != "reduction/cub"):
        if name not in names or name in broken:
            continue
        if time.monotonic() - start > options.deadline:
            say("stopped at the deadline")
            failed += 1
            break
        ran = run(command(name, arguments), RUN_SECONDS)
        found = RESULT.search(ran.line)
        ratio = ""
        if found:
            rate = float(found[2])
            if name == "reduction/cub":
                rates["reduction/cub"] = rate
            if base in rates:
                ratio = f" | {rate / rates[base]:.3f} of {base}"
        say(f"{ran.line}{ratio} | {arguments}")
        rows.append({"name": name, "arguments": arguments, "status": ran.status, "line": ran.line, "of": base})
        if ran.status != 0:
            failed += 1
        if ran.status is None:
            broken[name] = "hangs"
    if options.json:
        conditions = f"{gpu_name()}, {time.strftime('%Y-%m-%d')}"
        measured = {"conditions": conditions, "step0": rates, "rows": rows}
        options.json.write_text(json.dumps(measured, indent=1), encoding="utf-8")
    say(f"{failed} failures, {time.monotonic() - start:.0f} s in all")
    return 1 if failed else 0


def gpu_name() -> str:
    query = ["nvidia-smi", "--query-gpu=name,driver_version,clocks.max.sm,power.limit", "--format=csv,noheader"]
    return subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip()


def run_torch() -> dict[str, float]:
    """The rates of step 0 by name; empty where PyTorch is missing or fails, which is said."""
    python = shutil.which("python3") or sys.executable
    try:
        done = subprocess.run([python, "-c", TORCH], capture_output=True, text=True, timeout=TORCH_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        say(f"step 0: PyTorch did not end within {TORCH_SECONDS} s")
        return {}
    lines = done.stdout.strip().splitlines()
    for line in lines[:-1] if done.returncode == 0 else lines:
        say(line)
    if done.returncode:
        say(f"step 0 failed: {(done.stderr.strip().splitlines() or ['no output'])[-1]}")
        return {}
    rates: dict[str, float] = json.loads(lines[-1])
    return rates


if __name__ == "__main__":
    sys.exit(main())
