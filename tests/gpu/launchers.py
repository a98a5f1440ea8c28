"""Runs `diagnose` around and inside launchers, on graphs, ranges, JIT programs and from Python, where a GPU is.

    python3 tests/gpu/launchers.py --out DIR [--budget 90] [--only NAME,NAME]

Prints each case with what it has to show; exits 1 where one does not. DIR gets the JSON documents and the two-process
report. Needs nvcc, ncu, and PyTorch with Triton for some cases.
"""

from __future__ import annotations

import argparse
import contextlib
import glob
import json
import lzma
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 45.0
DIAGNOSE = [sys.executable, "-m", "diagnose"]
QUICK = ["--survey", "none", "--no-html"]

TRAIN = """
import os, sys, torch
rank = int(os.environ.get("RANK", 0))
torch.distributed.init_process_group("gloo")
torch.cuda.set_device(rank % torch.cuda.device_count())
x = torch.randn(4096, 4096, device="cuda")
for _ in range(3):
    x = torch.sin(x) + 1.0
    torch.cuda.synchronize()
    torch.distributed.barrier()
print("rank", rank, "process", os.getpid(), float(x.sum()))
torch.distributed.destroy_process_group()
"""
WORKERS = """
import multiprocessing, os, sys, torch
def work(number):
    x = torch.full((1 << 22,), float(number), device="cuda")
    print("worker", number, "process", os.getpid(), float(torch.cos(x).sum()))
if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    workers = [context.Process(target=work, args=(n,)) for n in range(2)]
    [w.start() for w in workers]; [w.join() for w in workers]
    sys.exit(max(w.exitcode for w in workers))
"""
RANGES = """
import torch
x = torch.randn(1 << 22, device="cuda"); torch.cuda.synchronize()
y = torch.exp(x)
torch.cuda.nvtx.range_push("step"); y = torch.sin(x); torch.cuda.synchronize(); torch.cuda.nvtx.range_pop()
torch.cuda.profiler.start(); y = torch.cos(x); torch.cuda.synchronize(); torch.cuda.profiler.stop()
y = torch.tan(x); torch.cuda.synchronize()
"""
TUNED = """
import torch, triton, triton.language as tl
@triton.autotune(configs=[triton.Config({"B": b}, num_warps=w) for b in (256, 512, 1024) for w in (2, 4)], key=["n"])
@triton.jit
def scale(x, y, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + at, tl.load(x + at, at < n) * 2.0, at < n)
x = torch.randn(1 << 24, device="cuda"); y = torch.empty_like(x)
for _ in range(5):
    scale[lambda meta: (triton.cdiv(x.numel(), meta["B"]),)](x, y, x.numel())
torch.cuda.synchronize()
print("right", bool(torch.equal(y, x * 2.0)))
"""
NOTEBOOK = """
import os, sys, torch, diagnose
from diagnose import notebook
def step(n):
    x = torch.randn(n, n, device="cuda")
    y = torch.tanh(x); torch.cuda.synchronize()
if __name__ == "__main__":
    s = diagnose.profile(step, 2048, kernel="regex:tanh|elementwise")
    print("FUNCTION", [k["name"] for k in s.document["kernels"]], s.document["kernels"][0]["verdict"]["rule"])
    x = torch.randn(1 << 22, device="cuda")
    y = torch.exp(x)
    with diagnose.profile() as p:
        y = torch.log1p(x.abs()); torch.cuda.synchronize()
    print("BLOCK", [k["name"] for k in p.summary.document["kernels"]], len(p.summary._repr_html_()))
"""
UNDER = """
import os, ctypes
ctypes.CDLL("libcuda.so.1").cuInit(0)
print("ENV", {k: v for k, v in os.environ.items() if "NV" in k or "PRELOAD" in k or "INJECT" in k})
seen = {l.split()[-1] for l in open("/proc/self/maps") if "/" in l}
print("MAPS", sorted(path for path in seen if "njection" in path or "nsight" in path))
"""


class Machine:
    """The work folder, and what every case needs."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.folder = Path("/tmp/launchers")
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        for name, text in (("train", TRAIN), ("workers", WORKERS), ("ranges", RANGES), ("tuned", TUNED),
                           ("notebook", NOTEBOOK), ("under", UNDER)):  # fmt: skip
            (self.folder / f"{name}.py").write_text(text)
        builds = []
        for source in ("ranks", "failures"):
            shutil.copy(ROOT / "tests" / "gpu" / f"{source}.cu", self.folder)
            words = ["nvcc", "-O2", "-arch=sm_90", f"{source}.cu", "-o", source]
            builds.append(subprocess.Popen(words, cwd=self.folder))
        if any(build.wait() for build in builds):
            raise SystemExit("nvcc failed")

    def run(self, words: Sequence[str], env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        path = f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"
        environment = {**os.environ, "PYTHONPATH": path, "LAUNCHERS_CASE": "1", **(env or {})}
        process = subprocess.Popen(
            list(words), cwd=self.folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True,
        )  # fmt: skip
        try:
            out, err = process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            for entry in Path("/proc").glob("[0-9]*/environ"):  # also what left the group, as ncu's own session does
                with contextlib.suppress(OSError):
                    if b"LAUNCHERS_CASE=1" in entry.read_bytes():
                        os.kill(int(entry.parent.name), signal.SIGKILL)
            out, err = process.communicate()
            err += f"\nkilled after {LIMIT_S:g} s"
        return subprocess.CompletedProcess(list(words), process.returncode, out, err)

    def diagnose(self, name: str, *words: str, env: dict[str, str] | None = None) -> tuple[Any, str]:
        """(document, what was said): a run of diagnose with its JSON."""
        path = self.folder / f"{name}.json"
        done = self.run([*DIAGNOSE, "--json", str(path), *words], env)
        document = json.loads(path.read_text()) if path.is_file() else None
        if document is not None and path.stat().st_size < 4 << 20:
            (self.out / path.name).write_bytes(lzma.compress(path.read_bytes()))
        return document, f"exit {done.returncode}\n{done.stderr}"


def names(document: Any) -> list[str]:
    return [kernel["name"] for kernel in document["kernels"]] if document else []


def told(document: Any) -> str:
    part = (document or {}).get("ranks")
    if not part:
        return "no ranks"
    rows = [(row["name"][:30], row["us"], row["slower"], row["why"]) for row in part["kernels"]]
    return f"{[rank['label'] for rank in part['ranks']]} slowest {part['slowest']} ×{part['ratio']}: {rows[:4]}"


def forked(machine: Machine) -> tuple[bool, str]:
    """ncu outside: one report of two processes, told apart and compared."""
    words = [*QUICK, "-o", "forked.html", "./ranks", "2"]
    document, said = machine.diagnose("forked", *[w for w in words if w != "--no-html"])
    report = machine.folder / "forked.ncu-rep"
    if report.is_file():
        (machine.out / "forked.ncu-rep.xz").write_bytes(lzma.compress(report.read_bytes()))
    part = (document or {}).get("ranks") or {}
    slow = [finding["rule"] for finding in (document or {"program": {"findings": []}})["program"]["findings"]]
    return len(part.get("ranks", [])) == 2 and "slow-rank" in slow, f"{told(document)} {slow}\n{said[-600:]}"


def inside(machine: Machine) -> tuple[bool, str]:
    """diagnose inside: each rank its own report, read together afterwards (the launcher is played)."""
    folder = machine.folder / "inside"
    folder.mkdir()
    ranks = []
    for rank in range(2):
        variables = {"OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": "2"}
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}", **variables}
        ranks.append(subprocess.Popen([*DIAGNOSE, "--no-html", "../ranks"], cwd=folder, env=environment,
                                      stdout=subprocess.DEVNULL, stderr=subprocess.PIPE))  # fmt: skip
    said = b"".join(rank.communicate()[1][-300:] for rank in ranks).decode()
    found = sorted(path.name for path in folder.glob("*.ncu-rep"))
    document, read = machine.diagnose("inside", "--no-html", str(folder))
    ok = found == ["diagnose-report-rank0.ncu-rep", "diagnose-report-rank1.ncu-rep"]
    ok = ok and [run["rank"] for run in document["runs"]] == [0, 1]
    return ok, f"{found} {told(document)}\n{said}\n{read[-200:]}"


def mpirun(machine: Machine) -> tuple[bool, str]:
    """A real MPI launcher, where there is one."""
    if shutil.which("mpirun") is None:
        return True, "no mpirun here"
    (machine.folder / "mpi").mkdir()
    allow = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    words = ["mpirun", "-n", "2", *DIAGNOSE, "--no-html", "-o", "mpi/report.html", "./ranks"]
    done = machine.run(words, allow)
    found = sorted(path.name for path in (machine.folder / "mpi").glob("*.ncu-rep"))
    outside, said = machine.diagnose("mpi-outside", *QUICK, "mpirun", "-n", "2", "./ranks", env=allow)
    seen = len({kernel.get("process") for kernel in (outside or {"kernels": []})["kernels"]})
    ok = found == ["report-rank0.ncu-rep", "report-rank1.ncu-rep"] and seen == 2
    return ok, f"inside {found}, outside {seen} processes, {told(outside)}\n{done.stderr[-500:]}\n{said[-400:]}"


def torchrun_outside(machine: Machine) -> tuple[bool, str]:
    words = ["torchrun", "--nproc-per-node", "2", "train.py"]
    document, said = machine.diagnose("torchrun", *QUICK, "--kernel", "regex:elementwise", *words)
    return document is not None and len((document.get("ranks") or {}).get("ranks", [])) == 2, told(document) + said[
        -500:
    ]


def torchrun_inside(machine: Machine) -> tuple[bool, str]:
    folder = machine.folder / "torch"
    folder.mkdir()
    words = ["torchrun", "--no-python", "--nproc-per-node", "2", *DIAGNOSE, "--no-html", "-o", "torch/report.html"]
    done = machine.run([*words, "--kernel", "regex:elementwise", sys.executable, "train.py"])
    found = sorted(path.name for path in folder.glob("*.ncu-rep"))
    if len(found) != 2:
        return False, f"{found}\n{done.stderr[-900:]}"
    document, _ = machine.diagnose("torch-inside", "--no-html", str(folder))
    return document is not None and [run["rank"] for run in document["runs"]] == [0, 1], f"{found} {told(document)}"


def workers(method: str) -> Callable[[Machine], tuple[bool, str]]:
    def case(machine: Machine) -> tuple[bool, str]:
        words = [*QUICK, "--kernel", "regex:elementwise", sys.executable, "workers.py", method]
        document, said = machine.diagnose(method, *words)
        return len({k.get("process") for k in (document or {"kernels": []})["kernels"]}) == 2, names_and(document, said)

    return case


def names_and(document: Any, said: str) -> str:
    return f"{names(document)[:8]}\n{said[-500:]}"


def graph_nodes(machine: Machine) -> tuple[bool, str]:
    document, said = machine.diagnose("graph-node", *QUICK, "./failures", "graph")
    return names(document) == ["add_one"], names_and(document, said)


def graph_whole(machine: Machine) -> tuple[bool, str]:
    document, said = machine.diagnose("graph-whole", *QUICK, "--graph", "graph", "./failures", "graph")
    return [k["workload"] for k in (document or {"kernels": []})["kernels"]] == ["graph"], names_and(document, said)


def nvtx(machine: Machine) -> tuple[bool, str]:
    document, said = machine.diagnose("nvtx", "--no-html", "--nvtx", "step/", sys.executable, "ranges.py")
    return any("sin" in k["demangled"] for k in (document or {"kernels": []})["kernels"]), names_and(document, said)


def profiler_range(machine: Machine) -> tuple[bool, str]:
    document, said = machine.diagnose("profiler", "--no-html", "--profiler-range", sys.executable, "ranges.py")
    found = [k["demangled"] for k in (document or {"kernels": []})["kernels"]]
    return len(found) == 1 and "cos" in found[0], f"{[name[:120] for name in found]}\n{said[-500:]}"


def triton(machine: Machine) -> tuple[bool, str]:
    """Autotuning is in the profile where nothing ran before, and is not where the survey did."""
    bare, _ = machine.diagnose(
        "tuned-bare", *QUICK, sys.executable, "tuned.py", env={"TRITON_CACHE_DIR": str(machine.folder / "cache-bare")}
    )
    kept, more = machine.diagnose(
        "tuned", "--no-html", sys.executable, "tuned.py", env={"TRITON_CACHE_DIR": str(machine.folder / "cache")}
    )
    counts = [sum(name == "scale" for name in names(document)) for document in (bare, kept)]
    return counts[1] == 1, f"scale profiled {counts[0]} times without a run before, {counts[1]} with\n{more[-700:]}"


def from_python(machine: Machine) -> tuple[bool, str]:
    done = machine.run([sys.executable, "notebook.py"])
    ok = "FUNCTION" in done.stdout and "BLOCK" in done.stdout and done.returncode == 0
    return ok, f"{done.stdout[-900:]}\n{done.stderr[-900:]}"


def under(machine: Machine) -> tuple[bool, str]:
    """What a program sees of ncu: `diagnose.notebook.profiled` looks for it."""
    done = machine.run(["ncu", sys.executable, "under.py"])
    return "libTreeLauncher" in done.stdout, done.stdout[-2500:]


CASES: dict[str, Callable[[Machine], tuple[bool, str]]] = {
    "forked": forked,
    "inside": inside,
    "mpirun": mpirun,
    "under": under,
    "graph-nodes": graph_nodes,
    "graph-whole": graph_whole,
    "python": from_python,
    "profiler-range": profiler_range,
    "nvtx": nvtx,
    "torchrun-outside": torchrun_outside,
    "torchrun-inside": torchrun_inside,
    "triton": triton,
    "spawn": workers("spawn"),
    "fork": workers("fork"),
}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--budget", type=float, default=90.0)
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    began = time.monotonic()
    given.out.mkdir(parents=True, exist_ok=True)
    machine = Machine(given.out)
    here = {name: shutil.which(name) for name in ("mpirun", "srun", "torchrun", "ncu", "nsys")}
    print(f"GPUs {len(glob.glob('/dev/nvidia[0-9]*'))}; {here}; built in {time.monotonic() - began:.0f} s", flush=True)
    wrong = 0
    for name in given.only.split(",") if given.only else CASES:
        if time.monotonic() - began > given.budget:
            print(f"== not run: {name}", flush=True)
            continue
        start = time.monotonic()
        try:
            ok, text = CASES[name](machine)
        except (subprocess.TimeoutExpired, KeyError, TypeError, ValueError, OSError) as error:
            ok, text = False, f"{type(error).__name__}: {error}"
        wrong += not ok
        print(f"== {'ok ' if ok else 'NO '} {name}, {time.monotonic() - start:.0f} s", flush=True)
        print("\n".join(f"   {line[:400]}" for line in text.splitlines()), flush=True)
    print(f"# {wrong} wrong, {time.monotonic() - began:.0f} s", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
