"""What ncu asks for each group of metrics, which launches a mangled-name filter takes, and what a survey costs.

    python3 tests/gpu/collection_probe.py --out DIR

The numbers behind `diagnose/collect/plan.py` and docs/collection.md. Needs nvcc, ncu and a GPU; about two minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SMALL = ["--steps", "1", "--n", "1024", "--much", "16"]
SAMPLED = "group:smsp__pcsamp_warp_stall_reasons,group:smsp__pcsamp_warp_stall_reasons_not_issued"
BY_ADDRESS = (
    "inst_executed,thread_inst_executed_true,memory_l1_wavefronts_shared,memory_l1_wavefronts_shared_ideal,"
    "memory_l2_theoretical_sectors_global,memory_l2_theoretical_sectors_global_ideal"
)
OPCODES = (
    "sass__inst_executed_per_opcode_with_modifier_all,sass__thread_inst_executed_true_per_opcode_with_modifier_all"
)
THREE = ["-k", "regex:^(matmul|reduce_rows|softmax_rows)$", "-c", "8"]


def ran(words: list[str], folder: Path, environment: dict[str, str] | None = None) -> tuple[float, str]:
    began = time.monotonic()
    done = subprocess.run(
        words, cwd=folder, capture_output=True, text=True, errors="replace", timeout=200, check=False,
        env={**os.environ, **(environment or {})},
    )  # fmt: skip
    return time.monotonic() - began, done.stdout + done.stderr


def long_kernels(ncu: str, work: Path) -> dict[str, dict[str, float]]:
    """Seconds that each group costs on a matrix product of 20 ms and on an elementwise kernel of 400 MB."""
    groups = {
        "time only": "gpu__time_duration.sum",
        "one more hardware pass": "gpu__time_duration.sum,l1tex__t_sector_hit_rate.pct,lts__t_sector_hit_rate.pct",
        "inst_executed": "inst_executed",
        "thread_inst_executed_true": "thread_inst_executed_true",
        "memory_l1_wavefronts_shared": "memory_l1_wavefronts_shared,memory_l1_wavefronts_shared_ideal",
        "memory_l2_theoretical_sectors": (
            "memory_l2_theoretical_sectors_global,memory_l2_theoretical_sectors_global_ideal"
        ),
        "opcodes": "sass__inst_executed_per_opcode_with_modifier_all",
        "thread opcodes": "sass__thread_inst_executed_true_per_opcode_with_modifier_all",
        "spills": "sass__inst_executed_register_spilling",
        "sampled stalls": SAMPLED,
    }
    found: dict[str, dict[str, float]] = {}
    for kernel in ("matmul", "map"):
        base = ["-k", kernel, "-c", "2", "./loop", "--steps", "1", "--n", "4096"]
        for name, metrics in groups.items():
            words = [ncu, "--clock-control", "none", "-f", "-o", str(work / "long"), "--metrics", metrics, *base]
            seconds, text = ran(words, work)
            passes = re.findall(r"(\d+) pass(?:es)?\s*$", text, re.MULTILINE)
            found.setdefault(kernel, {})[name] = round(seconds, 2)
            errors = [line for line in text.splitlines() if "ERROR" in line]
            print(f"{kernel} {name}: {seconds:.2f} s, passes {passes}", *errors, flush=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--long", action="store_true", help="only what each group costs on long kernels")
    given = parser.parse_args()
    out = given.out
    out.mkdir(parents=True, exist_ok=True)
    sys.path.insert(0, str(ROOT))
    from diagnose.api import Options, live_metrics, load_rules
    from diagnose.collect.find import find_ncu
    from diagnose.collect.plan import CODE_METRICS, DEFERRED, SINGLE_PASS
    from diagnose.collect.surveying import build_injection

    work = Path("/src/diagnose/collection")
    work.mkdir(parents=True, exist_ok=True)
    build = ["nvcc", "-O3", "-std=c++17", "-lineinfo", "-arch=sm_90", "-I", str(ROOT / "kernels")]
    subprocess.run([*build, str(ROOT / "tests/gpu/training_loop.cu"), "-o", str(work / "loop")], check=True)
    if given.long:
        (out / "long.json").write_text(json.dumps(long_kernels(str(find_ncu(None)), work), indent=1))
        return 0
    print(ran(["./loop", "--steps", "0", "--check", "1", "--n", "1024", "--much", "4"], work)[1], flush=True)
    seconds, text = ran(["./loop"], work)
    print(f"alone: {seconds:.2f} s {text.strip()}", flush=True)

    # --- CUPTI by injection
    folder = work / "survey"
    folder.mkdir(exist_ok=True)
    injected = {"CUDA_INJECTION64_PATH": str(build_injection()), "DIAGNOSE_SURVEY": str(folder)}
    torch = (
        "import torch; x = torch.randn(2048, 2048, device='cuda');"
        "y = [torch.nn.functional.gelu(x @ x) for _ in range(50)]; torch.cuda.synchronize()"
    )
    for words in (["./loop"], [sys.executable, "-c", torch]):
        alone, _ = ran(words, work)
        seconds, text = ran(words, work, injected)
        print(f"{words[0]}: alone {alone:.2f} s, counted {seconds:.2f} s {text.strip()[-300:]}", flush=True)
        for file in folder.glob("*.tsv"):
            rows = file.read_text().splitlines()
            print(len(rows), *(row[:150] for row in (*rows[:3], *rows[-1:])), sep="\n   ", flush=True)
            file.unlink()

    # --- passes
    ncu = str(find_ncu(None))
    metrics = list(live_metrics(load_rules(Options())))
    core = [m for m in metrics if not DEFERRED.fullmatch(m)]
    plain = ["--clock-control", "none"]
    sets = {
        "`gpu__time_duration.sum`": ["--metrics", "gpu__time_duration.sum"],
        "section SourceCounters": ["--section", "SourceCounters"],
        "sampled stalls": ["--metrics", SAMPLED],
        "`inst_executed`": ["--metrics", "inst_executed"],
        "all six counts by address": ["--metrics", BY_ADDRESS],
        "section InstructionStats": ["--section", "InstructionStats"],
        "opcodes": ["--metrics", OPCODES],
        "hardware counters, all that rules name": ["--metrics", ",".join(metrics)],
        "hardware counters, without the deferred": ["--metrics", ",".join(core)],
        "without the deferred, and by address, opcodes, samples by name": [
            "--section", "LaunchStats", "--section", "Occupancy", "--metrics", ",".join([*core, *CODE_METRICS])
        ],
        "`--single-pass`": ["--metrics", ",".join(SINGLE_PASS)],
        "without the deferred, and both sections": [
            *(w for s in ("LaunchStats", "Occupancy", "SourceCounters", "InstructionStats") for w in ("--section", s)),
            "--metrics", ",".join(core),
        ],
        "all that rules name, and both sections": [
            *(w for s in ("LaunchStats", "Occupancy", "SourceCounters", "InstructionStats") for w in ("--section", s)),
            "--metrics", ",".join(metrics),
        ],
        "`--set full`": ["--set", "full"],
    }  # fmt: skip
    found = {}
    for name, words in sets.items():
        report = work / "probe.ncu-rep"
        command = [ncu, *plain, "-f", "-o", str(report), *words, *THREE, "./loop", *SMALL]
        seconds, text = ran(command, work)
        passes = [int(n) for n in re.findall(r"(\d+) pass(?:es)?\s*$", text, re.MULTILINE)]
        found[name] = {
            "passes": passes,
            "seconds": round(seconds, 2),
            "bytes": report.stat().st_size if report.exists() else 0,
        }
        print(f"{name}: {found[name]}", flush=True)
        for line in text.splitlines():
            if "ERROR" in line or "Failed" in line:
                print("   ", line[:300])
        report.unlink(missing_ok=True)
    (out / "probe.json").write_text(json.dumps(found, indent=1))

    # --- a survey by ncu
    for steps in ("1", "5"):
        seconds, text = ran(
            [
                ncu,
                *plain,
                "--cache-control",
                "none",
                "-f",
                "-o",
                str(work / "s"),
                "--metrics",
                "gpu__time_duration.sum",
                "./loop",
                "--steps",
                steps,
            ],
            work,
        )
        print(f"ncu survey of {text.count('==PROF== Profiling')} launches: {seconds:.2f} s", flush=True)

    # --- filters by name
    for base, expression in (
        ("function", "regex:^map$"),
        ("mangled", "regex:^(_Z3mapI3AddEvPKfS2_Pfm|_Z3mapI4GeluEvPKfS2_Pfm|_Z3mapI5ClampEvPKfS2_Pfm)$"),
        ("demangled", "regex:^void map<(Add|Gelu)>"),
    ):
        words = ["--kernel-name-base", base, "--filter-mode", "per-launch-config", "--kernel-id", f"::{expression}:1"]
        seconds, text = ran([ncu, *plain, *words, "--metrics", "gpu__time_duration.sum", "./loop", *SMALL], work)
        print(
            f"base {base} {expression}:",
            *re.findall(r"^==PROF== Profiling.*|^ERROR.*|^==ERROR.*", text, re.MULTILINE),
            sep="\n   ",
            flush=True,
        )
        print(*re.findall(r"^ +\S.*\(\d+, \d+, \d+\)x.*", text, re.MULTILINE), sep="\n   ", flush=True)
    # --- does ncu number launches outside of a range, too?
    numbered = [
        "--kernel-name-base",
        "mangled",
        "--filter-mode",
        "per-launch-config",
        "--kernel-id",
        "::regex:sum|Sum:1",
    ]
    for name, words in (
        ("nvtx", ["--nvtx", "--nvtx-include", "later/"]),
        ("profiler", ["--profile-from-start", "off"]),
    ):
        command = [ncu, *plain, *words, *numbered, "--metrics", "gpu__time_duration.sum", "./loop", *SMALL[2:]]
        _, text = ran([*command, "--steps", "3", "--ranges", "1"], work)
        print(f"{name}:", *re.findall(r"^==PROF== Profiling.*|^==WARNING==.*", text, re.MULTILINE), sep="\n   ")
    return 0


if __name__ == "__main__":
    sys.exit(main())
