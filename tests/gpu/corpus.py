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
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import yaml

ARCH_FLAGS = {
    "sm_90a": "-gencode=arch=compute_90a,code=sm_90a",
    "sm_90": "-gencode=arch=compute_90,code=sm_90",
    "sm_80": "-gencode=arch=compute_80,code=sm_80",
}
TOOLS = ("memcheck", "racecheck", "synccheck")
# The sanitizers slow a kernel down by 10 to 1000 times: a few tiles show every role and every barrier.
SMALL = {"gemm": {"m": 512, "n": 512, "k": 512}}
AT_ONCE = 6  # programs under a sanitizer, whose work is mostly the host's


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


def arguments(kernel: dict[str, Any], small: bool = False) -> list[str]:
    fixed = [str(a) for a in kernel.get("args") or []]
    values = dict(kernel.get("params") or {})
    if small:
        values.update({key: value for key, value in SMALL.get(kernel["family"], {}).items() if key in values})
    return fixed + [part for key, value in values.items() for part in (f"--{key}", str(value))]


def newest(folder: Path) -> float:
    """When a source that a kernel of this folder may include was last written."""
    places = (folder, folder.parent, folder.parent / "common")
    return max(path.stat().st_mtime for place in places for path in place.glob("*.cu*"))


def build(kernel: dict[str, Any], binaries: Path, resume: bool) -> str:
    """Compiles one kernel; returns the compiler's last words on failure, else an empty string."""
    target = binaries / slug(kernel["name"])
    if resume and target.is_file() and target.stat().st_mtime > newest(kernel["folder"]):
        return ""
    arch = "sm_90a" if "sm_90a" in kernel["archs"] else kernel["archs"][-1]
    flags = [str(f) for f in kernel.get("nvcc_flags") or []]
    optimise = [] if "-G" in flags else ["-O3", "-lineinfo"]
    command = ["nvcc", "-std=c++17", *optimise, ARCH_FLAGS[arch], *flags, kernel["source"], "-o", str(target)]
    done = subprocess.run(command, cwd=kernel["folder"], capture_output=True, text=True)
    return "" if done.returncode == 0 else (done.stdout + done.stderr)[-600:]


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

    if "build" in stages:
        with ThreadPoolExecutor(os.cpu_count() or 2) as pool:
            for kernel, words in zip(
                kernels, pool.map(lambda k: build(k, binaries, options.resume), kernels), strict=True
            ):
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

    if "sanitize" in stages:

        def sanitize(kernel: dict[str, Any]) -> None:
            result = results[kernel["name"]]
            for tool in TOOLS:
                if (options.resume and result.get(tool) == 0) or late(kernel, tool):
                    continue
                command = ["compute-sanitizer", "--tool", tool, "--error-exitcode", "9", f"./{slug(kernel['name'])}"]
                code, words = run([*command, *arguments(kernel, small=True), "--repeats", "0"], binaries, 120)
                result[tool] = code
                if code:
                    print(f"{tool} {kernel['name']}: exit {code} {words[-300:]}", flush=True)

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
    (options.out / "results.json").write_text(
        json.dumps({"gpu": smi[1], "date": time.strftime("%Y-%m-%d"), "kernels": results}, indent=1)
    )
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
