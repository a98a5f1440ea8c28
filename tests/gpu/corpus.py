"""Builds, checks, times and profiles every reference kernel on a machine with a GPU; writes reports and a result table.

Used by `make gpu`. Needs only the standard library and PyYAML, nvcc and ncu, so that it runs on a bare GPU machine.
Everything is built and run in a neutral folder (default /src/diagnose): reports embed paths and command lines.

    python3 tests/gpu/corpus.py --out DIR [--only REGEX] [--stage build,check,time,profile,sanitize] [--set full]
                                [--resume]

`--resume` goes on with what DIR/results.json holds: what went well is not done again. `make gpu` calls it so.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import yaml
from stages import TOOLS

ARCH_FLAGS = {
    "sm_90a": "-gencode=arch=compute_90a,code=sm_90a",
    "sm_90": "-gencode=arch=compute_90,code=sm_90",
    "sm_80": "-gencode=arch=compute_80,code=sm_80",
}
# The sanitizers slow a kernel down by 10 to 1000 times; a few tiles show every role and every barrier. So every
# parameter above OPTION (what is not is an option or the side of a tile) is divided, but not below a floor: the first
# (divisor, floor) that the program accepts. 120 is a multiple of clusters of ten and of three rows.
OPTION = 256
SMALLER = ((1024, 64), (64, 64), (1024, 120), (1024, 512), (64, 512), (16, 512), (4, 512), (2, 512))
# Where racecheck raises an alarm, and why it is none: it orders an arrival at an mbarrier behind what the arriving
# thread did, not behind what the other threads of its warp (__syncwarp) or its warpgroup (wgmma) had read before.
ONE_FOR_ALL = "one thread gives back what its whole warp or warpgroup has read"
ALARMS = {
    ("racecheck", "attention/specialised"): ONE_FOR_ALL,
    ("racecheck", "faults/p-pieces-a"): ONE_FOR_ALL,
    ("racecheck", "faults/p-pieces-b"): ONE_FOR_ALL,
    ("racecheck", "faults/q-page-a"): ONE_FOR_ALL,
    ("racecheck", "faults/q-page-b"): ONE_FOR_ALL,
    ("racecheck", "gemm/sparse"): ONE_FOR_ALL,
}
AT_ONCE = max(12, (os.cpu_count() or 12) * 3 // 4)  # programs under a sanitizer, whose work is mostly the host's


def load(root: Path, only: str) -> list[dict[str, Any]]:
    """All manifest entries whose name matches `only`, with the folder they stand in."""
    found = []
    for manifest in sorted(root.glob("*/*.yaml")):
        data = yaml.safe_load(manifest.read_text())
        for kernel in data.get("kernels", []):
            if re.search(only, kernel["name"]):
                found.append({**kernel, "family": data["family"], "folder": manifest.parent})
    return found


def slug(name: str) -> str:
    return name.replace("/", "-")


def arguments(kernel: dict[str, Any], divisor: int = 1, floor: int = 0) -> list[str]:
    """The command line at the manifest's parameters, or at smaller ones."""
    fixed = [str(a) for a in kernel.get("args") or []]
    values = {
        key: max(value // divisor, min(value, floor)) if value > OPTION else value
        for key, value in (kernel.get("params") or {}).items()
    }
    return fixed + [part for key, value in values.items() for part in (f"--{key}", str(value))]


def small_arguments(kernel: dict[str, Any], binaries: Path) -> list[str]:
    """The smallest sizes that the program takes and is right at; its own where it takes no smaller ones."""
    for divisor, floor in SMALLER:
        smaller = arguments(kernel, divisor, floor)
        if run([f"./{slug(kernel['name'])}", *smaller, "--repeats", "0"], binaries, 30)[0] == 0:
            return smaller
    return arguments(kernel)


def newest(folder: Path) -> float:
    """When a source that a kernel of this folder may include was last written."""
    places = (folder, folder.parent, folder.parent / "common")
    return max(path.stat().st_mtime for place in places for path in place.glob("*.cu*"))


def recipe(kernel: dict[str, Any]) -> tuple[Path, str, str, tuple[str, ...]]:
    """What decides a program: folder, source, architecture, flags. Kernels of one recipe are one program."""
    arch = "sm_90a" if "sm_90a" in kernel["archs"] else kernel["archs"][-1]
    return kernel["folder"], kernel["source"], arch, tuple(str(f) for f in kernel.get("nvcc_flags") or [])


def build(kernels: list[dict[str, Any]], binaries: Path, resume: bool) -> str:
    """Compiles the program of kernels of one recipe; returns the compiler's last words on failure, else ""."""
    targets = [binaries / slug(kernel["name"]) for kernel in kernels]
    folder, source, arch, flags = recipe(kernels[0])
    if resume and all(target.is_file() and target.stat().st_mtime > newest(folder) for target in targets):
        return ""
    optimise = [] if "-G" in flags else ["-O3", "-lineinfo"]
    command = ["nvcc", "-std=c++17", *optimise, ARCH_FLAGS[arch], *flags, source, "-o", str(targets[0])]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        return (done.stdout + done.stderr)[-600:]
    for target in targets[1:]:
        shutil.copy2(targets[0], target)
    return ""


def run(command: list[str], cwd: Path, limit_s: float) -> tuple[int, str]:
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, errors="replace", timeout=limit_s)
    except subprocess.TimeoutExpired:
        return 124, f"no end within {limit_s:.0f} s"
    except FileNotFoundError:
        return 127, f"{command[0]} is not here"
    return done.returncode, (done.stdout + done.stderr).strip()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", default="")
    parser.add_argument("--stage", default="build,check,time,profile")
    parser.add_argument("--set", default="full")
    parser.add_argument("--folder", type=Path, default=Path("/src/diagnose"))
    parser.add_argument("--budget", type=float, default=520.0, help="seconds after which no new kernel is started")
    parser.add_argument("--resume", action="store_true")
    options = parser.parse_args()
    stages = options.stage.split(",")
    start = time.monotonic()
    options.out.mkdir(parents=True, exist_ok=True)
    here = Path(__file__).resolve().parents[2]
    folder = options.folder
    shutil.copytree(here / "kernels", folder / "kernels", dirs_exist_ok=True)
    binaries = folder / "build"
    binaries.mkdir(parents=True, exist_ok=True)
    kernels = load(folder / "kernels", options.only)
    results: dict[str, dict[str, Any]] = {k["name"]: {"expect": k["expect"], "twin": k.get("twin")} for k in kernels}
    before = options.out / "results.json"
    if options.resume and before.is_file():
        for name, known in json.loads(before.read_text())["kernels"].items():
            if name in results:
                results[name] = {**known, **results[name]}
    left: list[str] = []

    def late(kernel: dict[str, Any], what: str) -> bool:
        """Whether the budget is used up; what is not started then is said."""
        if time.monotonic() - start <= options.budget:
            return False
        left.append(f"{what} {kernel['name']}")
        return True

    smi = run(
        ["nvidia-smi", "--query-gpu=name,driver_version,clocks.sm,clocks.max.sm", "--format=csv,noheader"], folder, 30
    )
    print(f"# {smi[1]} · {time.strftime('%Y-%m-%d')}", flush=True)
    saving = threading.Lock()

    def save() -> None:
        """Keeps what is known so far: a run that is killed has lost nothing."""
        with saving:
            text = json.dumps({"gpu": smi[1], "date": time.strftime("%Y-%m-%d"), "kernels": results}, indent=1)
            fresh = options.out / "results.json.part"
            fresh.write_text(text)
            fresh.replace(options.out / "results.json")

    if "build" in stages:
        programs: dict[object, list[dict[str, Any]]] = {}
        for kernel in kernels:
            programs.setdefault(recipe(kernel), []).append(kernel)
        with ThreadPoolExecutor(os.cpu_count() or 2) as pool:
            said = pool.map(lambda group: build(group, binaries, options.resume), programs.values())
            for group, words in zip(programs.values(), said, strict=True):
                for kernel in group:
                    results[kernel["name"]].pop("build", None)
                    if words:
                        results[kernel["name"]]["build"] = words
                        print(f"BUILD {kernel['name']}: {words}", flush=True)
        print(f"# built {len(kernels)} in {time.monotonic() - start:.0f} s", flush=True)
    ready = [k for k in kernels if (binaries / slug(k["name"])).exists()]

    for stage, key, repeats in (("check", "exit", ["--repeats", "0"]), ("time", "timed_exit", [])):
        if stage not in stages:
            continue
        for kernel in ready:
            result = results[kernel["name"]]
            if (options.resume and result.get(key) == 0) or late(kernel, stage):
                continue
            code, words = run([f"./{slug(kernel['name'])}", *arguments(kernel), *repeats], binaries, 60)
            line = words.splitlines()[-1] if words else str(code)
            result.update({key: code, "line" if stage == "time" else "checked": line})
            print(f"{'ok  ' if code == 0 else 'FAIL'} {kernel['name']}: {line}", flush=True)
            save()

    if "sanitize" in stages:

        def sanitize(kernel: dict[str, Any]) -> None:
            result = results[kernel["name"]]
            smaller: list[str] = []
            for tool in TOOLS:
                if (options.resume and result.get(tool) == 0) or late(kernel, tool):
                    continue
                smaller = smaller or small_arguments(kernel, binaries)
                command = ["compute-sanitizer", "--tool", tool, "--error-exitcode", "9", f"./{slug(kernel['name'])}"]
                began = time.monotonic()
                code, words = run([*command, *smaller, "--repeats", "0"], binaries, 120)
                if code == 9 and (why := ALARMS.get((tool, kernel["name"]))):
                    print(f"ALARM {tool} {kernel['name']}: {why}", flush=True)
                    code = 0
                with saving:  # a row grows while another thread writes all rows
                    result[tool] = code
                if time.monotonic() - began > 20:
                    print(f"# {tool} {kernel['name']}: {time.monotonic() - began:.0f} s", flush=True)
                if code:
                    told = [line for line in words.splitlines() if line.startswith("========= Error")] or [words[-300:]]
                    print(f"{tool} {kernel['name']}: exit {code} {told[0][:300]}", flush=True)
                save()

        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(sanitize, ready))

    if "profile" in stages:
        with ThreadPoolExecutor(4) as pool:  # compression runs beside the next profile
            for kernel in ready:
                kept = options.out / f"{slug(kernel['name'])}.ncu-rep.xz"
                if results[kernel["name"]].get("exit", 0) != 0 or (options.resume and kept.is_file()):
                    continue
                if late(kernel, "profile"):
                    continue
                results[kernel["name"]].pop("profile", None)
                report = binaries / f"{slug(kernel['name'])}.ncu-rep"
                command = ["ncu", "--set", options.set, "--import-source", "yes", "--clock-control", "none", "-f",
                           "-k", f"regex:^{kernel['function']}$", "--launch-count", "1", "-o", str(report)]  # fmt: skip
                began = time.monotonic()
                code, words = run(
                    [*command, f"./{slug(kernel['name'])}", *arguments(kernel), "--repeats", "0"], binaries, 120
                )
                results[kernel["name"]].update(profile_s=round(time.monotonic() - began, 1), profiled_exit=code)
                if code:
                    print(f"PROFILED {kernel['name']}: exit {code} {words[-300:]}", flush=True)
                if not report.exists():
                    results[kernel["name"]]["profile"] = words[-400:]
                    print(f"PROFILE {kernel['name']}: exit {code} {words[-400:]}", flush=True)
                    continue
                data = report.read_bytes()
                pool.submit(_compress, data, kept)
                save()
    save()
    bad = ("exit", "timed_exit", *TOOLS)
    failed = [n for n, r in results.items() if any(r.get(key) for key in bad) or "build" in r or "profile" in r]
    for one in left:
        print(f"LEFT {one}: time budget", flush=True)
    print(
        f"# {len(results)} kernels, {len(failed)} failed: {' '.join(failed)}; {time.monotonic() - start:.0f} s",
        flush=True,
    )
    return 1 if failed or left else 0


def _compress(data: bytes, path: Path) -> None:
    path.write_bytes(lzma.compress(data, preset=6))


if __name__ == "__main__":
    sys.exit(main())
