"""Start-up of `diagnose --help`: the median of ten, beside a bare interpreter, and what the import time goes to.

python tests/benchmarks/bench_startup.py
"""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
import time

RUNS = 10
AIM_S = 0.3
HELP = [sys.executable, "-m", "diagnose", "--help"]
LATE = ("pandas", "numpy", "ncu_report", "jinja2", "yaml", "zstandard")  # must not be imported for --help


def median_seconds(command: list[str]) -> float:
    """The median wall time of `command`; one run before it fills the file cache and the byte-code cache."""
    times = []
    for _ in range(RUNS + 1):
        start = time.perf_counter()
        run = subprocess.run(command, capture_output=True)
        times.append(time.perf_counter() - start)
        if run.returncode:
            sys.exit(
                f"error: {' '.join(command)} ended with {run.returncode}: {run.stderr.decode(errors='replace')[-400:]}"
            )
    return statistics.median(times[1:])


def imports() -> list[tuple[int, str]]:
    """(cumulative µs, module) of each top-level package that `--help` imports, slowest first."""
    run = subprocess.run([HELP[0], "-X", "importtime", *HELP[1:]], capture_output=True, text=True)
    found: dict[str, int] = {}
    for cumulative, module in re.findall(r"^import time:\s+\d+ \|\s+(\d+) \| +(\S+)$", run.stderr, re.MULTILINE):
        package = module.split(".")[0]
        found[package] = max(found.get(package, 0), int(cumulative))
    return sorted(((us, name) for name, us in found.items()), reverse=True)


def main() -> None:
    bare = median_seconds([sys.executable, "-c", "pass"])
    full = median_seconds(HELP)
    print(f"diagnose --help   median of {RUNS}: {full * 1e3:6.0f} ms   (aim: under {AIM_S * 1e3:.0f} ms)")
    print(f"python -c pass    median of {RUNS}: {bare * 1e3:6.0f} ms   ratio {full / bare:.1f}x")
    packages = imports()
    print("slowest imports   " + ", ".join(f"{name} {us / 1e3:.0f} ms" for us, name in packages[:8]))
    early = sorted({name for _, name in packages} & set(LATE))
    print("imported too soon " + (", ".join(early) or "none"))


if __name__ == "__main__":
    main()
