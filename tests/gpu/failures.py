"""Provokes on a machine with a GPU what goes wrong in the field, and keeps what ncu says about it.

    python3 tests/gpu/failures.py --out DIR [--budget 85] [--only NAME,NAME]

Each case runs a mode of `failures.cu` under ncu itself, so that the lines are ncu's own, and shows what `diagnose`
makes of them. `tests/data/ncu_failures.json` is taken from DIR/failures.json. Needs only the standard library.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from diagnose.collect.failures import Context, explain_errors, explain_no_kernels, read_log  # noqa: E402
from diagnose.collect.find import find_ncu, ncu_version  # noqa: E402

NOBODY = 65534
LIMIT_S = 20.0
STOCK = {"NV_COMPUTE_PROFILER_DISABLE_STOCK_FILE_DEPLOYMENT": "1"}  # as `diagnose` sets it
CHEAP = ("--metrics", "gpu__time_duration.sum")


@dataclass(frozen=True)
class Case:
    """One run of ncu. `stop_s`: SIGINT after that time, as `--timeout` does. `alone`: not beside other cases."""

    name: str
    target: tuple[str, ...]
    options: tuple[str, ...] = CHEAP
    stop_s: float | None = None
    alone: bool = True
    user: int | None = None
    ncu: str | None = None
    env: dict[str, str] = field(default_factory=dict)
    folder: Path | None = None
    group: Path | None = None


def work_folder(base: Path) -> Path:
    """A folder that every user may write."""
    os.umask(0)
    folder = base / "failures"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def full_disk(folder: Path) -> Path | None:
    """A file system of 64 kB, or None where none may be mounted."""
    place = folder / "full"
    place.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)], check=False)
    return place if done.returncode == 0 else None


def small_group() -> Path | None:
    """A control group with 6 GB of memory, or None where none may be made."""
    place = Path("/sys/fs/cgroup/diagnose-failures")
    if not (place.parent / "cgroup.controllers").exists():  # that of version 2
        return None
    try:
        (place.parent / "cgroup.subtree_control").write_text("+memory")
        place.mkdir(exist_ok=True)
        with (place / "memory.max").open("r+") as limit:  # the kernel's file, or none
            limit.write("6G")
        return place
    except OSError:
        return None


def cases(folder: Path, ncu: Path) -> list[Case]:
    """All cases; those that do not profile a kernel first."""
    program = str(folder / "failures")
    moved = folder / "moved" / "ncu"
    moved.parent.mkdir()
    real = Path(os.path.realpath(ncu))
    shutil.copy(real, moved)
    trees = (real.parent, *Path("/opt/nvidia/nsight-compute").glob("*"))
    binary = next((p for tree in trees for p in tree.glob("target/linux-desktop*x64/ncu")), None)
    lock = folder / "locked"
    lock.mkdir(mode=0o1777)
    (lock / "nsight-compute-lock").touch(mode=0o600)
    found = [
        Case("none", (program, "none"), alone=False),
        Case("early", (program, "early"), alone=False),
        Case("not-a-program", (str(folder / "failures.cu"),), alone=False),
        Case("filter", (program, "ok"), (*CHEAP, "--kernel-name", "ad_one"), alone=False),
        Case("filter-nvtx", (program, "ok"), (*CHEAP, "--nvtx", "--nvtx-include", "step/"), alone=False),
        Case("unknown-option", (program, "ok"), ("--no-such-option",), alone=False),
        Case("unknown-metric", (program, "ok"), ("--metrics", "sm__no_such_thing.sum"), alone=False),
        Case("unknown-section", (program, "ok"), ("--section", "NoSuchSection"), alone=False),
        Case("moved-script", (program, "ok"), (), alone=False, ncu=str(moved)),
        Case("lock", (program, "ok"), user=NOBODY, env={"TMPDIR": str(lock), "HOME": str(folder)}),
        Case("home", (program, "ok"), user=NOBODY, alone=False),
        Case("fork-late", (program, "fork-late"), alone=False),
        Case("fork-early", (program, "fork-early")),
        Case("user", (program, "ok"), user=NOBODY, env={"HOME": str(folder)}),
        Case("ptx-only", (program + "-ptx", "ok")),
        Case("exit3", (program, "exit3")),
        Case("abort", (program, "abort")),
        Case("segv", (program, "segv")),
        Case("killed", (program, "killed")),
        Case("trap", (program, "trap")),
        Case("assert", (program, "assert")),
        Case("illegal", (program, "illegal")),
        Case("hang", (program, "hang"), stop_s=4.0),
        Case("range", (program, "range"), (*CHEAP, "--replay-mode", "range")),
        Case("graph", (program, "graph"), (*CHEAP, "--graph-profiling", "graph")),
        Case("graph-node", (program, "graph")),
        Case("not-available", (program, "ok"), ("--metrics", "nvlrx__bytes.sum,gpu__time_duration.sum")),
        Case("peer", (program, "peer"), ("--set", "basic"), stop_s=8.0),
    ]
    if binary is not None:
        alone = folder / "moved" / "bare"
        alone.mkdir()
        shutil.copy(binary, alone / "ncu")
        found.insert(9, Case("moved-binary", (program, "ok"), (), alone=False, ncu=str(alone / "ncu")))
    if (group := small_group()) is not None:
        found.insert(-1, Case("big", (program, "big"), ("--set", "basic"), stop_s=15.0, group=group))
    if (full := full_disk(folder)) is not None:
        found.insert(10, Case("disk-full", (program, "ok"), ("--set", "basic"), folder=full))
        found.insert(11, Case("tmp-full", (program, "ok"), ("--set", "basic"), env={"TMPDIR": str(full)}))
    return found


def before(case: Case) -> Any:
    """What a child does before it becomes ncu: enters its control group, gives up root."""

    def change() -> None:
        if case.group is not None:
            (case.group / "cgroup.procs").write_text(str(os.getpid()))
        if case.user is not None:
            os.setgroups([])
            os.setgid(case.user)
            os.setuid(case.user)

    return change


def command_of(case: Case, folder: Path, ncu: Path) -> tuple[list[str], Path, Path]:
    report = (case.folder or folder) / f"{case.name}.ncu-rep"
    log = folder / f"{case.name}.log"
    base = [case.ncu or str(ncu), "--export", str(report), "--force-overwrite", "--log-file", str(log)]
    return [*base, "--clock-control", "none", *case.options, *case.target], report, log


def run(case: Case, folder: Path, ncu: Path, version: str | None) -> dict[str, Any]:
    command, report, log = command_of(case, folder, ncu)
    began = time.monotonic()
    process = subprocess.Popen(
        command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env={**os.environ, **STOCK, **case.env}, start_new_session=True, preexec_fn=before(case),
    )  # fmt: skip
    stopped = None
    try:
        output, _ = process.communicate(timeout=case.stop_s or LIMIT_S)
    except subprocess.TimeoutExpired:
        stopped = "SIGINT"
        interrupt(process.pid)
        try:
            output, _ = process.communicate(timeout=6)
        except subprocess.TimeoutExpired:
            stopped = "SIGINT, then SIGKILL"
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
    lines = log.read_text("utf-8", "replace").splitlines() if log.exists() else []
    said = output.decode("utf-8", "replace").splitlines()
    size = report.stat().st_size if report.exists() else None
    return {
        "command": command,
        "exit": process.returncode,
        "stopped": stopped,
        "seconds": round(time.monotonic() - began, 1),
        "report_bytes": size,
        "log": lines,
        "output": said[-20:],
        "diagnose": explained(case, lines, said, process.returncode, ncu, version),
    }


def interrupt(pid: int) -> None:
    """SIGINT to ncu itself, as `diagnose` sends it: CUDA's `ncu` is a script around the program of that name."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            group, name = os.getpgid(int(entry.name)), (entry / "comm").read_text().strip()
        except (OSError, ValueError):
            continue
        if group == pid and name == "ncu":
            os.kill(int(entry.name), signal.SIGINT)


def explained(
    case: Case, lines: Sequence[str], said: Sequence[str], status: int, ncu: Path, version: str | None
) -> dict[str, Any]:
    """What `diagnose` makes of these lines."""
    log = read_log("\n".join(lines))
    wanted = case.options[case.options.index("--kernel-name") + 1] if "--kernel-name" in case.options else None
    context = Context(Path(case.ncu or ncu), version, case.target, wanted, status)
    cause = explain_errors(log, "\n".join(said), context)
    if cause is None and log.profiled == 0:
        cause = explain_no_kernels(log, "\n".join(said), context)
    return {
        "profiled": log.profiled,
        "replaying": log.replaying,
        "target_exit": log.target_exit,
        "error": cause.message if cause else None,
        "hint": cause.hint if cause else None,
        "warnings": list(log.warnings),
    }


def two_profilers(folder: Path, ncu: Path, version: str | None) -> dict[str, Any]:
    """A second ncu, which knows no common lock, while the first holds the counters in a kernel that never ends."""
    program = str(folder / "failures")
    for name in ("one", "two"):
        (folder / name).mkdir(exist_ok=True)
    first = Case("holder", (program, "peer"), ("--set", "basic"), stop_s=12.0, env={"TMPDIR": str(folder / "one")})
    second = Case("counters-held", (program, "ok"), ("--set", "basic"), env={"TMPDIR": str(folder / "two")}, stop_s=6.0)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run, first, folder, ncu, version)
        time.sleep(4.5)
        result = run(second, folder, ncu, version)
        running.result()
    return result


def show(name: str, result: dict[str, Any]) -> None:
    stopped = f", stopped by {result['stopped']}" if result["stopped"] else ""
    size = f", report {result['report_bytes']} bytes" if result["report_bytes"] is not None else ", no report"
    print(f"== {name}: exit {result['exit']}{stopped}, {result['seconds']} s{size}", flush=True)
    for line in [*result["log"], *(f"| {line}" for line in result["output"])][:14]:
        print(f"   {line[:170]}", flush=True)
    said = result["diagnose"]
    if said["error"]:
        print(f"   -> {said['error'][:200]}\n   -> {said['hint'][:160]}", flush=True)
    else:
        print(f"   -> profiled {said['profiled']}, in {said['replaying']}, target {said['target_exit']}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--budget", type=float, default=85.0, help="seconds; cases beyond it are not run")
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    began = time.monotonic()
    given.out.mkdir(parents=True, exist_ok=True)
    ncu = find_ncu(None)
    if ncu is None:
        print("no ncu here", file=sys.stderr)
        return 3
    version = ncu_version(ncu)
    folder = work_folder(Path("/tmp"))
    source = ROOT / "tests" / "gpu" / "failures.cu"
    shutil.copy(source, folder / "failures.cu")
    builds = {"failures": ["-arch=sm_90"], "failures-ptx": ["-gencode", "arch=compute_75,code=compute_75"]}
    compiling = [
        subprocess.Popen(["nvcc", "-O2", *words, "failures.cu", "-o", name], cwd=folder)
        for name, words in builds.items()
    ]
    if any(compiler.wait() for compiler in compiling):
        return 3
    print(f"ncu {version} at {os.path.realpath(ncu)}; built in {time.monotonic() - began:.1f} s", flush=True)
    wanted = set(given.only.split(",")) - {""}
    chosen = [case for case in cases(folder, ncu) if not wanted or case.name in wanted]
    results: dict[str, Any] = {}

    def keep(name: str, result: dict[str, Any]) -> None:
        results[name] = result
        show(name, result)
        text = json.dumps({"ncu": version, "cases": results}, indent=1)
        (given.out / "failures.json").write_text(text + "\n")

    together = [case for case in chosen if not case.alone]
    with ThreadPoolExecutor(4) as pool:
        for case, result in zip(together, pool.map(lambda c: run(c, folder, ncu, version), together), strict=True):
            keep(case.name, result)
    skipped = []
    for case in (case for case in chosen if case.alone):
        if time.monotonic() - began > given.budget - (case.stop_s or 3.0):
            skipped.append(case.name)
            continue
        keep(case.name, run(case, folder, ncu, version))
    if not wanted or "counters-held" in wanted:
        if time.monotonic() - began < given.budget - 13:
            keep("counters-held", two_profilers(folder, ncu, version))
        else:
            skipped.append("counters-held")
    if (folder / "full").is_mount():
        subprocess.run(["umount", str(folder / "full")], check=False)
    left = ", ".join(skipped) or "none"
    print(f"# {len(results)} cases in {time.monotonic() - began:.0f} s; not run: {left}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
