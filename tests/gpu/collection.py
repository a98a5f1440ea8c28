"""What collecting costs: programs alone, under `ncu --set full`, and under diagnose in its modes; the filters, live.

    python3 tests/gpu/collection.py --out DIR [--budget 350] [--only empty,loop,kernels,torch,gpt,filters]
                                    [--cases REGEX]

Prints a table and writes DIR/collection.json, of which tests/gen_collection.py makes the tables of docs/collection.md.
Needs nvcc, ncu, PyTorch (left out where it is missing) and a GPU. `ncu --set full` is given the same filter as diagnose
(one launch of each kernel and launch configuration): without it, it would take every launch of the loop.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
DIAGNOSE = [sys.executable, "-m", "diagnose"]
ONE_EACH = ["--filter-mode", "per-launch-config", "--kernel-name-base", "mangled", "--kernel-id", "::regex:.:1"]
LOOP = ["./loop"]
LONG_S = 40.0  # what a mode may take
KERNELS = ("gemm/naive", "reduction/vectorised", "attention/decode")

# One launch of a kernel that does nothing: what is left of each tool's time is its fixed start.
EMPTY = """
__global__ void nothing() {}
int main() {
    nothing<<<1, 32>>>();
    return cudaDeviceSynchronize();
}
"""

TORCH = """
import sys, torch
steps = int(sys.argv[1])
model = torch.nn.Sequential(
    torch.nn.Linear(4096, 8192), torch.nn.GELU(), torch.nn.LayerNorm(8192),
    torch.nn.Linear(8192, 4096), torch.nn.LayerNorm(4096),
).cuda().to(torch.bfloat16)
optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4)
x = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
for _ in range(steps):
    loss = torch.nn.functional.mse_loss(torch.softmax(model(x).float(), -1), x.float())
    loss.backward()
    optimiser.step()
    optimiser.zero_grad()
torch.cuda.synchronize()
print("finished", steps)
"""

GPT = """
import sys, torch
from torch import nn
from torch.nn import functional as F
steps, width, device = int(sys.argv[1]), 1024, "cuda"

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, s, _ = x.shape
        q, k, v = self.qkv(self.first(x)).view(b, s, 3, 16, 64).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, s, width)
        x = x + F.dropout(self.out(y), 0.1)
        return x + F.dropout(self.down(F.gelu(self.up(self.second(x)))), 0.1)

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(32000, width), nn.Embedding(1024, width)
        self.blocks = nn.Sequential(*(Block() for _ in range(4)))
        self.last, self.head = nn.LayerNorm(width), nn.Linear(width, 32000, bias=False)

    def forward(self, t):
        return self.head(self.last(self.blocks(self.words(t) + self.places.weight[: t.shape[1]])))

model = Model().to(device)
optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4)
for _ in range(steps):
    tokens = torch.randint(32000, (4, 1025), device=device)
    with torch.autocast(device, torch.bfloat16):
        loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimiser.step()
    optimiser.zero_grad()
print("finished", steps, loss.item())
"""


class Runs:
    """Runs commands in one folder and keeps within a budget of seconds."""

    def __init__(self, folder: Path, budget: float) -> None:
        self.folder = folder
        self.until = time.monotonic() + budget
        self.environment = {
            **os.environ,
            "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}",
            "XDG_CACHE_HOME": str(folder / "cache"),
        }

    def left(self) -> float:
        return self.until - time.monotonic()

    def __call__(
        self, words: list[str], interrupt_after: float | None = None, until: Callable[[], bool] | None = None
    ) -> tuple[int, str, str, float]:
        """(exit code, stdout, stderr, seconds); `until` sends Ctrl-C when it holds."""
        began = time.monotonic()
        with (self.folder / "stderr").open("w+b") as errors:
            process = subprocess.Popen(
                words, cwd=self.folder, stdout=subprocess.PIPE, stderr=errors, stdin=subprocess.DEVNULL,
                env=self.environment, start_new_session=True,
            )  # fmt: skip
            try:
                if until is not None:
                    while process.poll() is None and not until():
                        time.sleep(0.05)
                    process.send_signal(signal.SIGINT)
                out, _ = process.communicate(timeout=interrupt_after or max(self.left(), 20.0))
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                out, _ = process.communicate()
            seconds = time.monotonic() - began
            errors.seek(0)
            said = errors.read().decode("utf-8", "replace")
        return process.returncode, out.decode("utf-8", "replace"), said, seconds


def verdicts(document: dict[str, Any]) -> dict[str, str]:
    """`name grid` -> the verdict's rule; of repeats the first."""
    found: dict[str, str] = {}
    for kernel in document["kernels"]:
        grid = kernel["launch"]["grid"] if kernel["launch"] else None
        found.setdefault(f"{kernel['demangled']} {grid} {kernel['device']}", kernel["verdict"]["rule"])
    return found


def compare(first: dict[str, str], other: dict[str, str]) -> tuple[int, list[str]]:
    """(how many kernels both have, those with different verdicts)."""
    both = [key for key in first if key in other]
    return len(both), [f"{key[:70]}: {first[key]} / {other[key]}" for key in both if first[key] != other[key]]


def under_ncu(run: Runs, ncu: str, target: list[str], name: str) -> dict[str, Any]:
    report = run.folder / f"{name}-full.ncu-rep"
    command = [ncu, "--set", "full", "--import-source", "yes", "--clock-control", "none", "-f", "-o", str(report)]
    code, out, err, seconds = run([*command, *ONE_EACH, *target])
    passes = [int(n) for n in re.findall(r"(\d+) pass(?:es)?\s*$", out + err, re.MULTILINE)]
    row: dict[str, Any] = {"exit": code, "seconds": seconds, "profiled": len(passes), "passes": passes}
    if report.exists():
        row["report_bytes"] = report.stat().st_size
        run([*DIAGNOSE, "--no-html", "--json", f"{name}-full.json", report.name])
        document = run.folder / f"{name}-full.json"
        if document.exists():
            row["verdicts"] = verdicts(json.loads(document.read_text()))
    return row


def under_diagnose(run: Runs, options: list[str], target: list[str], name: str) -> dict[str, Any]:
    document = run.folder / f"{name}.json"
    page = run.folder / f"{name}.html"
    words = [*DIAGNOSE, *options, "--format", "json", "--json", document.name, "-o", page.name, *target]
    code, _, err, seconds = run(words)
    row: dict[str, Any] = {"exit": code, "seconds": seconds}
    if not document.exists():
        print(f"   {name}: exit {code}", *err.splitlines()[-6:], sep="\n      ", flush=True)
        return row
    data = json.loads(document.read_text())
    row |= {
        "verdicts": verdicts(data),
        "profiled": len(data["kernels"]),
        "covered_share": data["program"]["covered_share"],
        "passes": [run_["passes_total"] for run_ in data["runs"]],
        "html_bytes": page.stat().st_size if page.exists() else None,
        "collection": data["collection"],
        "report_bytes": sum(r["report_bytes"] or 0 for r in data["collection"]["runs"]),
        "launches": sum(kernel["launches"] for kernel in data["kernels"]),
        "warnings": data["warnings"][:12],
    }
    return row


def program(
    run: Runs, ncu: str, name: str, target: list[str], modes: dict[str, list[str]], alone: bool = True
) -> dict[str, Any]:
    """One program, alone and under each tool."""
    found: dict[str, Any] = {"target": " ".join(target[:3])}
    if alone:
        run(target)  # warm: the driver's caches, the disk's
        code, _, err, seconds = run(target)
        found["alone"] = {"exit": code, "seconds": seconds}
        if code:
            print(err[-800:])

    def under(mode: str, options: list[str]) -> None:
        row = under_diagnose(run, options, target, f"{name}-{mode}")
        found[mode] = row
        entry = row.get("collection") or {}
        stages = [(one["stage"], one["seconds"], one["passes_per_launch"]) for one in entry.get("runs", [])]
        counted = entry.get("survey") or {}
        print(
            f"   {name} {mode}: {row['seconds']:.1f} s, exit {row['exit']}, {row.get('profiled')} kernels,",
            f"passes {row.get('passes')}, covered {row.get('covered_share')}, stages {stages},",
            f"survey {counted.get('method')} {counted.get('seconds')}, wrote {counted.get('wrote_bytes')}",
            flush=True,
        )

    (first, options), *others = modes.items()
    under(first, options)
    if run.left() > 30:
        found["full"] = under_ncu(run, ncu, target, name)
        print(
            f"   {name} ncu --set full: {found['full']['seconds']:.1f} s, {found['full']['profiled']} kernels",
            flush=True,
        )
    for mode, options in others:  # the ratio comes first: what is left of the time is for these
        if run.left() > LONG_S:
            under(mode, options)
    reference = found.get("full", {}).get("verdicts") or found.get("deep", {}).get("verdicts") or {}
    for mode in modes:
        if found.get(mode, {}).get("verdicts"):
            count, different = compare(reference, found[mode]["verdicts"])
            found[mode]["compared"], found[mode]["different"] = count, different
            print(
                f"   {name} {mode}: {count - len(different)} of {count} verdicts as with the full set",
                *different,
                sep="\n      ",
                flush=True,
            )
    for row in found.values():
        if isinstance(row, dict):
            row.pop("verdicts", None)
    return found


def warm(run: Runs) -> None:
    """What is done once a machine is done before: compiled Python, and the survey's library."""
    compileall.compile_dir(str(ROOT / "diagnose"), quiet=2)
    from diagnose.collect.surveying import build_injection

    os.environ["XDG_CACHE_HOME"] = run.environment["XDG_CACHE_HOME"]
    began = time.monotonic()
    build_injection()
    print(f"   survey's library built in {time.monotonic() - began:.1f} s", flush=True)


def kernels(run: Runs, ncu: str) -> dict[str, Any]:
    """Bundled kernels: the built program under ncu, and `kernel:NAME` under diagnose."""
    from diagnose.collect.kernels import build_kernel, kernel_arguments, load_kernels

    found: dict[str, Any] = {}
    for name in KERNELS:
        kernel = load_kernels()[name]
        target = [str(build_kernel(kernel)), *kernel_arguments(kernel, kernel.params, repeats=0)]
        slug = name.replace("/", "-")
        code, _, _, seconds = run(target)
        row: dict[str, Any] = {"target": f"kernel:{name}", "alone": {"exit": code, "seconds": seconds}}
        row["default"] = under_diagnose(run, [], [f"kernel:{name}"], f"{slug}-default")
        row["full"] = under_ncu(run, ncu, target, slug)
        count, different = compare(row["full"].get("verdicts", {}), row["default"].get("verdicts", {}))
        row["default"] |= {"compared": count, "different": different}
        for one in ("default", "full"):
            row[one].pop("verdicts", None)
        found[slug] = row
        print(
            f"   {name}: alone {seconds:.1f} s, diagnose {row['default']['seconds']:.1f} s,",
            f"{row['default'].get('passes')} passes, full {row['full']['seconds']:.1f} s; different: {different}",
            flush=True,
        )
    return found


def filters(run: Runs, only: str) -> dict[str, Any]:
    """Each filter on the small loop whose name matches `only`: which kernels came."""
    small = ["./loop", "--steps", "2", "--n", "1024", "--much", "16", "--ranges", "1"]
    cases: dict[str, tuple[list[str], int]] = {
        "no survey": (["--survey", "none"], 0),
        "by ncu": (["--survey", "ncu", "--top", "4", "--coverage", "0.5"], 0),
        "one template": (["-k", "map"], 0),
        "one template, no survey": (["-k", "map", "--survey", "none"], 0),
        "expression": (["-k", "regex:^(matmul|softmax)"], 0),
        "demangled": (["--demangled", "-k", "regex:map<(Add|Gelu)>"], 0),
        "nothing": (["-k", "matmull"], 3),
        "window": (["--launch-skip", "10", "--launch-count", "3"], 0),
        "device": (["--device", "0", "--top", "3", "-k", "map"], 0),
        "no such device": (["--device", "7"], 3),
        "NVTX": (["--nvtx", "later/", "-k", "reduce_rows", "--max-launches", "4"], 0),
        "profiler range": (["--profiler-range", "-k", "reduce_rows", "--max-launches", "4"], 0),
        "process": (["--process", "loop", "-k", "softmax_rows"], 0),
        "stop": (["--stop", "-k", "softmax_rows"], 0),
        "single pass": (["--single-pass", "-k", "matmul"], 0),
    }
    found: dict[str, Any] = {}
    for name, (options, expected) in cases.items():
        if not re.search(only, name):
            continue
        if run.left() < 25:
            print(f"   left out for want of time: {name}", flush=True)
            continue
        document = run.folder / "filter.json"
        document.unlink(missing_ok=True)
        code, _, err, seconds = run(
            [*DIAGNOSE, *options, "--no-html", "--format", "json", "--json", "filter.json", *small]
        )
        data = json.loads(document.read_text()) if document.exists() else {"kernels": [], "runs": [], "warnings": []}
        plain = [re.sub(r"^void |\((bool|int)\)", "", k["demangled"]).split("(")[0] for k in data["kernels"]]
        names = sorted(set(plain))
        ok = code == expected
        found[name] = {"ok": ok, "exit": code, "kernels": len(data["kernels"]), "names": names, "seconds": seconds}
        print(
            f"   {'ok ' if ok else 'NO '} {name}: exit {code}, {len(data['kernels'])} kernels, {seconds:.1f} s,",
            f"passes {[one['passes_total'] for one in data['runs']]}: {', '.join(names)[:300]}",
            flush=True,
        )
        if not ok or expected:
            print(*err.splitlines()[-3:], sep="\n      ", flush=True)
    return found


def numbering(run: Runs, ncu: str) -> dict[str, list[str]]:
    """Whether ncu numbers the launches outside of a range, too: which launches `:1` takes within one."""
    small = ["./loop", "--steps", "3", "--n", "1024", "--much", "16", "--ranges", "1"]
    numbered = [
        "--kernel-name-base",
        "mangled",
        "--filter-mode",
        "per-launch-config",
        "--kernel-id",
        "::regex:sum|Sum:1",
    ]
    found: dict[str, list[str]] = {}
    for name, words in (
        ("nvtx", ["--nvtx", "--nvtx-include", "later/"]),
        ("profiler", ["--profile-from-start", "off"]),
    ):
        _, out, err, _ = run(
            [ncu, "--clock-control", "none", *words, *numbered, "--metrics", "gpu__time_duration.sum", *small]
        )
        found[name] = re.findall(r'^==PROF== Profiling "(.*?)"', out + err, re.MULTILINE)
        print(f"   numbering within {name}: {found[name]}", flush=True)
    return found


def interrupted(run: Runs) -> dict[str, Any]:
    """Ctrl-C after some launches, and the rest with --resume."""
    target = ["./loop", "--steps", "2", "--n", "1024", "--much", "16"]

    def some() -> bool:
        return (run.folder / "stderr").read_text(errors="replace").count("profiled ") >= 4

    code, _, err, _ = run([*DIAGNOSE, "-o", "cut.html", "--json", "cut.json", *target], until=some)
    first = (
        len(json.loads((run.folder / "cut.json").read_text())["kernels"]) if (run.folder / "cut.json").exists() else 0
    )
    print(f"   interrupted: exit {code}, {first} kernels kept", *err.splitlines()[-4:], sep="\n      ", flush=True)
    again, _, err, seconds = run(
        [*DIAGNOSE, "--resume", "cut.ncu-rep", "-o", "rest.html", "--json", "rest.json", *target]
    )
    data = (
        json.loads((run.folder / "rest.json").read_text())
        if (run.folder / "rest.json").exists()
        else {"kernels": [], "runs": []}
    )
    by_run = [sum(k["run"] == n for k in data["kernels"]) for n in range(len(data["runs"]))]
    distinct = len(verdicts(data)) if data["kernels"] else 0
    ok = code == 130 and again == 0 and 0 < first < distinct and distinct == len(data["kernels"])
    print(
        f"   {'ok ' if ok else 'NO '} resumed: exit {again}, {seconds:.1f} s, by run {by_run}, {distinct} distinct",
        *err.splitlines()[-3:],
        sep="\n      ",
        flush=True,
    )
    return {"ok": ok, "exit": code, "kept": first, "by_run": by_run}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--budget", type=float, default=350.0)
    parser.add_argument("--only", default="filters,empty,loop,torch,kernels,gpt")
    parser.add_argument("--cases", default="", metavar="REGEX", help="of the filters, only these")
    given = parser.parse_args()
    only = given.only.split(",")
    given.out.mkdir(parents=True, exist_ok=True)
    folder = Path("/src/diagnose/collection")
    folder.mkdir(parents=True, exist_ok=True)
    run = Runs(folder, given.budget)
    from diagnose.collect.find import find_ncu, ncu_version
    from diagnose.collect.host import driver_version, gpus

    ncu = find_ncu(None)
    assert ncu is not None
    build = ["nvcc", "-O3", "-std=c++17", "-lineinfo", "-arch=sm_90", "-I", str(ROOT / "kernels")]
    subprocess.run([*build, str(ROOT / "tests/gpu/training_loop.cu"), "-o", str(folder / "loop")], check=True)
    (folder / "train.py").write_text(TORCH)
    (folder / "gpt.py").write_text(GPT)
    found: dict[str, Any] = {
        "date": time.strftime("%Y-%m-%d"),
        "gpu": next((gpu.name for gpu in gpus()), None),
        "driver": driver_version(),
        "ncu": ncu_version(ncu),
        "programs": {},
    }
    if "filters" in only:
        found["filters"] = filters(run, given.cases)
        if not given.cases:
            found["numbering"] = numbering(run, str(ncu))
            found["interrupted"] = interrupted(run)
    warm(run)
    if "empty" in only:
        (folder / "empty.cu").write_text(EMPTY)
        subprocess.run([*build, str(folder / "empty.cu"), "-o", str(folder / "empty")], check=True)
        found["programs"]["empty"] = program(run, str(ncu), "empty", ["./empty"], {"default": []})
    if "loop" in only:
        modes = {"default": [], "deep": ["--deep"], "single-pass": ["--single-pass"], "no-stop": ["--no-stop"]}
        found["programs"]["loop"] = program(run, str(ncu), "loop", LOOP, modes)
    if "kernels" in only and run.left() > 60:
        found["programs"] |= kernels(run, str(ncu))
    if {"torch", "gpt"} & set(only):
        if subprocess.run([sys.executable, "-c", "import torch"], capture_output=True, check=False).returncode == 0:
            for name, script, steps in (("torch", "train.py", "20"), ("gpt", "gpt.py", "50")):
                if name in only and run.left() > 90:
                    target = [sys.executable, script, steps]
                    found["programs"][name] = program(run, str(ncu), name, target, {"default": []})
    (given.out / "collection.json").write_text(json.dumps(found, indent=1))
    print(
        f"{'program':22} {'alone':>7} {'full':>7} {'default':>8} {'ratio':>6} {'deep':>7} {'1 pass':>7}",
        " verdicts as full",
    )
    for name, row in found["programs"].items():

        def seconds(key: str, row: dict[str, Any] = row) -> float | None:
            return row.get(key, {}).get("seconds")

        full, default = seconds("full"), seconds("default")
        ratio = f"{default / full:.2f}" if full and default and not row["full"]["exit"] else "-"
        cells = [
            f"{s:.1f}" if (s := seconds(key)) is not None else "-"
            for key in ("alone", "full", "default", "deep", "single-pass")
        ]
        one = row.get("default", {})
        same = f"{one.get('compared', 0) - len(one.get('different', []))}/{one.get('compared', 0)}"
        print(f"{name:22} {cells[0]:>7} {cells[1]:>7} {cells[2]:>8} {ratio:>6} {cells[3]:>7} {cells[4]:>7}  {same}")
    print(f"# {given.budget - run.left():.0f} s used")
    return 0


if __name__ == "__main__":
    sys.exit(main())
