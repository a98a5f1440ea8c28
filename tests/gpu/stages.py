"""`make gpu` by stages: each under ten minutes, kept in a folder, so that a run goes on where the last one ended.

    python3 tests/gpu/stages.py --out DIR [--stage check,sanitize] [--again]

Without --stage: every stage in order. What ended well is not done again, unless --again or a kernel's source changed; a
stage that was cut short goes on with what is left. `results` needs no GPU: it takes what DIR holds into the repository.
Only the standard library is needed here; what a stage needs, its script says.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
HERE = ROOT / "tests" / "gpu"
STAGES = ("build", "code", "check", "sanitize", "time", "profile", "ladders", "ceilings", "ablations", "results")
LIMIT_S = 590.0  # of one stage; scripts with a budget of their own end before
TOOLS = ("memcheck", "racecheck", "synccheck")
SANITIZERS = ROOT / "kernels" / "sanitizers.json"
RESULT = re.compile(r"\| ([\d.]+) us \| ([\d.e+-]+ \S+) \| error (\S+) \(tolerance (\S+)\) \| ok")


def commands(stage: str, out: Path) -> list[list[str]]:
    """What a stage runs, one after another."""
    python, corpus = sys.executable, out / "corpus"
    if stage in ("build", "code", "check", "sanitize", "time", "profile"):
        words = stage if stage == "build" else f"build,{stage}"  # builds what a fresh machine lacks
        # Reports embed paths: a neutral folder where it can be made.
        neutral = Path("/src/diagnose")
        usable = os.access(neutral if neutral.exists() else "/", os.W_OK)
        folder = neutral if usable else out / "work"
        if stage == "code":  # of what `build` left
            return [[python, str(HERE / "pair_code.py"), "--binaries", str(folder / "build")]]
        script = [
            python,
            str(HERE / "corpus.py"),
            "--out",
            str(corpus),
            "--stage",
            words,
            "--resume",
            "--folder",
            str(folder),
        ]
        return [[*script, "--budget", "440"]]
    if stage == "ladders":
        gemm = ["--out", str(out / "ladder_gemm.json"), "--folder", str(out / "ladder"), "--budget", "260"]
        attention = ["--json", str(out / "ladder_attention.json"), "--build", str(out / "ladder"), "--deadline", "260"]
        return [[python, str(HERE / "ladder_gemm.py"), *gemm], [python, str(HERE / "ladder_attention.py"), *attention]]
    if stage == "ceilings":
        return [[python, "-m", "diagnose", "ceilings", "--export", str(out / "ceilings.json")]]
    if stage == "ablations":
        return [[python, str(HERE / "ablations.py"), "--out", str(out / "ablations"), "--budget", "480"]]
    return []


def run(stage: str, out: Path, state: dict[str, Any], again: bool) -> bool:
    """Runs what of a stage is left; whether all of it has ended well."""
    good = True
    for number, command in enumerate(commands(stage, out)):
        key = f"{stage}/{number}"
        if state.get(key, {}).get("exit") == 0 and stage != "build" and not again:
            print(f"# {key}: done on {state[key]['date']} in {state[key]['seconds']} s", flush=True)
            continue
        began = time.monotonic()
        try:
            code = subprocess.run(command, cwd=ROOT, timeout=LIMIT_S, check=False).returncode
        except subprocess.TimeoutExpired:
            code = 124
        state[key] = {
            "exit": code,
            "seconds": round(time.monotonic() - began),
            "date": time.strftime("%Y-%m-%d %H:%M"),
        }
        (out / "state.json").write_text(json.dumps(state, indent=1))
        good = good and code == 0
    return good


def sources() -> str:
    """A digest of the kernels: what was measured of others does not count."""
    digest = hashlib.sha256()
    for path in sorted(p for p in (ROOT / "kernels").rglob("*") if p.suffix in (".cu", ".cuh", ".yaml")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def opened(out: Path) -> dict[str, Any]:
    """The state of a folder. That of other sources is put aside, with what was measured of them."""
    file = out / "state.json"
    state: dict[str, Any] = json.loads(file.read_text()) if file.is_file() else {}
    if state and state.get("sources") != sources():
        aside = out.with_name(f"{out.name}-{state.get('sources', 'before')}-{int(time.time())}")
        out.rename(aside)
        out.mkdir()
        print(f"# the kernels have changed: what was measured before is in {aside}")
        state = {}
    return {**state, "sources": sources()}


def timed(found: dict[str, Any], stored: dict[str, Any]) -> dict[str, Any]:
    """kernels/results.json with the times of a run: a kernel that the run lacks keeps its row."""
    rows = dict(stored.get("kernels", {}))
    for name, kernel in found["kernels"].items():
        if result := RESULT.search(kernel.get("line", "")):
            us, rate, error, tolerance = result.groups()
            rows[name] = {"us": float(us), "rate": rate, "error": error, "tolerance": tolerance}
    gpu, _, rest = found["gpu"].partition(", ")
    driver, _, clocks = rest.partition(", ")
    return {"gpu": gpu, "driver": driver, "clocks": clocks, "date": found["date"], "repeats": 20, "kernels": rows}


def sanitized(found: dict[str, Any], stored: dict[str, Any]) -> dict[str, Any]:
    """kernels/sanitizers.json: of each kernel tool -> exit code (0: no error). What the run lacks keeps its row."""
    rows = {**stored.get("kernels", {}), **_under_sanitizers(found)}
    return {"gpu": found["gpu"].partition(", ")[0], "date": found["date"], "kernels": dict(sorted(rows.items()))}


def _under_sanitizers(found: dict[str, Any]) -> dict[str, dict[str, int]]:
    """The rows of kernels that have run under all tools."""
    whole = {name: kernel for name, kernel in found["kernels"].items() if all(tool in kernel for tool in TOOLS)}
    return {name: {tool: kernel[tool] for tool in TOOLS} for name, kernel in whole.items()}


def take(out: Path) -> bool:
    """Takes what a run left in `out` into the repository and writes the pages made from it; says what is not there."""
    results = ROOT / "kernels" / "results.json"
    good = True

    def call(script: str, *words: str) -> None:
        nonlocal good
        good = (
            subprocess.run([sys.executable, str(HERE / script), *words], cwd=ROOT, check=False).returncode == 0 and good
        )

    if (path := out / "corpus" / "results.json").is_file():
        stored = json.loads(results.read_text("utf-8")) if results.is_file() else {}
        found = json.loads(path.read_text("utf-8"))
        if _under_sanitizers(found):
            before = json.loads(SANITIZERS.read_text("utf-8")) if SANITIZERS.is_file() else {}
            SANITIZERS.write_text(json.dumps(sanitized(found, before), indent=1) + "\n", encoding="utf-8")
            print(f"wrote {SANITIZERS}")
        if any(RESULT.search(kernel.get("line", "")) for kernel in found["kernels"].values()):
            results.write_text(json.dumps(timed(found, stored), indent=1) + "\n", encoding="utf-8")
            print(f"wrote {results}")
    for name, script, words in (
        ("ladder_gemm.json", "ladders.py", ["--gemm"]),
        ("ladder_attention.json", "ladders.py", ["--attention"]),
        ("ablations/ablations.json", "ablations.py", ["--take"]),
    ):
        if (path := out / name).is_file():
            call(script, *words, str(path))
        else:
            print(f"not there: {path}")
    call("results.py")
    reports = sorted((out / "corpus").glob("*.ncu-rep.xz"))
    print(f"{len(reports)} reports in {out / 'corpus'}; those that the project keeps go to examples/reports by hand")
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "gpu")
    parser.add_argument("--stage", default=",".join(STAGES))
    parser.add_argument("--again", action="store_true")
    options = parser.parse_args()
    stages = options.stage.split(",")
    if unknown := [stage for stage in stages if stage not in STAGES]:
        print(f"error: no stage {unknown[0]!r}\nhint: one of {', '.join(STAGES)}", file=sys.stderr)
        return 2
    options.out.mkdir(parents=True, exist_ok=True)
    state: dict[str, Any] = {} if stages == ["results"] else opened(options.out)
    good: dict[str, bool] = {}
    for stage in stages:
        good[stage] = take(options.out) if stage == "results" else run(stage, options.out, state, options.again)
    for stage, well in good.items():
        seconds = sum(row["seconds"] for key, row in state.items() if key.startswith(f"{stage}/"))
        print(f"# {stage:<10} {'ok' if well else 'NOT DONE'}  {seconds} s")
    return 0 if all(good.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
