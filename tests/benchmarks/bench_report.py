"""`diagnose REPORT` on the 57 MB report of scatter, scan and reduce, against a bare loop over the same metrics.

    python tests/benchmarks/bench_report.py [REPORT]

Both sides run as processes of their own, on the decompressed file. The bare loop loads the report with ncu_report and
reads, of each kernel, what `diagnose` reads: every metric's value, and the instances of the per-address counters, the
sampled stalls and the opcode counts; of the time lines, which `diagnose` reads too, nothing. A second bare loop also
asks for the SASS text of the addresses that `diagnose` asks for: NVIDIA's disassembler takes 0.6 s to start. The sides
take turns, and the least time of each counts, because other work on the machine only adds. Peak memory is that of the
largest process of each side.
"""

from __future__ import annotations

import lzma
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

RUNS = 5
AIM_RATIO = 2.0
AIM_MB = 600
NAME = "h200-scatter-scan-reduce.ncu-rep"
ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared" / "reports"

BARE = """
import json
import sys
import ncu_report
from diagnose.report_worker import ADDRESS_METRICS

BY_INSTANCE = (*ADDRESS_METRICS, "sass__inst_executed_per_opcode", "sass__thread_inst_executed_true_per_opcode")
count = 0
context = ncu_report.load_report(sys.argv[1])
for r in range(context.num_ranges()):
    results = context.range_by_idx(r)
    for a in range(results.num_actions()):
        action = results.action_by_idx(a)
        for name in action.metric_names():
            metric = action.metric_by_name(name)
            if metric is None:
                continue
            metric.value()
            count += 1
            if name.startswith(("smsp__pcsamp_warps_issue", "sass__")) or name in BY_INSTANCE:
                for i in range(metric.num_instances()):
                    metric.value(i)
                    count += 1
        for pc in json.load(open(sys.argv[2]))[a] if len(sys.argv) > 2 else ():
            action.sass_by_pc(pc)
            count += 1
print(count)
"""

# Which addresses `diagnose` asks for, by result: a JSON list of lists.
ADDRESSES = """
import json
import os
import sys
import ncu_report
from diagnose import report_worker

asked = []
original = ncu_report.IAction.sass_by_pc
ncu_report.IAction.sass_by_pc = lambda action, pc: asked[-1].append(pc) or original(action, pc)
kernel = report_worker._kernel
report_worker._kernel = lambda *given, **named: asked.append([]) or kernel(*given, **named)
job = {"report": sys.argv[1], "output": os.devnull, "source": False, "part": 0, "parts": 1}
report_worker.job(job, lambda: None)
print(json.dumps(asked))
"""


def tree_rss_kb(pid: int) -> list[int]:
    """Peak resident memory (VmHWM) of `pid` and of its descendants, each."""
    found = []
    pending = [pid]
    while pending:
        current = pending.pop()
        try:
            status = Path(f"/proc/{current}/status").read_text()
            # A process started from a thread is listed as that thread's child.
            for task in Path(f"/proc/{current}/task").iterdir():
                pending += [int(child) for child in (task / "children").read_text().split()]
        except OSError:
            continue
        found += [int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")]
    return found


def measure(command: list[str], folder: Path) -> tuple[float, float]:
    """(seconds, peak MB of the largest process) of `command` run in `folder`."""
    peak_kb = 0
    start = time.perf_counter()
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr is not None
    tail: list[bytes] = []
    reader = threading.Thread(target=lambda pipe=process.stderr, out=tail: out.append(pipe.read()[-600:]))
    reader.start()
    while process.poll() is None:
        peak_kb = max(peak_kb, *tree_rss_kb(process.pid), 0)
        time.sleep(0.02)
    seconds = time.perf_counter() - start
    reader.join()
    if process.returncode not in (0, 3):
        said = b"".join(tail).decode(errors="replace")
        sys.exit(f"error: {' '.join(command)} ended with {process.returncode}: {said}")
    return seconds, peak_kb / 1024


def main() -> None:
    packed = SHARED / f"{NAME}.xz"
    given = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    if given is None and not packed.exists():
        print(f"skipped: {NAME} is not beside the checkout (shared/reports)")
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        report = folder / NAME
        if given is not None:
            report = given.resolve()
        else:
            with lzma.open(packed) as source, report.open("wb") as target:
                shutil.copyfileobj(source, target)
        bare, addresses = folder / "bare.py", folder / "addresses.json"
        bare.write_text(BARE)
        # In the folder of the checkout, so that `diagnose` is found without being installed.
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"}
        asked = [sys.executable, "-c", ADDRESSES, str(report)]
        addresses.write_bytes(subprocess.run(asked, check=True, capture_output=True, env=environment).stdout)
        os.environ.update(environment)
        tool = [sys.executable, "-m", "diagnose", str(report)]
        sides = {
            "bare loop": [sys.executable, str(bare), str(report)],
            "bare loop with SASS": [sys.executable, str(bare), str(report), str(addresses)],
            "diagnose --no-html": [*tool, "--no-html", "--format", "json"],
            "diagnose": [*tool, "--format", "json", "-o", str(folder / "out.html")],
        }
        print(f"{report.name}: {report.stat().st_size / 1e6:.0f} MB, least of {RUNS}, {os.cpu_count()} cores, "
              f"load {os.getloadavg()[0]:.1f}")  # fmt: skip
        took: dict[str, list[float]] = {name: [] for name in sides}
        peaks: dict[str, float] = dict.fromkeys(sides, 0.0)
        for _ in range(RUNS):
            for name, command in sides.items():
                seconds, peak = measure(command, folder)
                took[name].append(seconds)
                peaks[name] = max(peaks[name], peak)
        plain, with_sass = min(took["bare loop"]), min(took["bare loop with SASS"])
        print(f"  {'':20} {'':8}   bare   bare with SASS")
        for name, times in took.items():
            least = min(times)
            print(f"  {name:20} {least:6.2f} s {least / plain:5.2f}x {least / with_sass:11.2f}x"
                  f"      largest process {peaks[name]:5.0f} MB")  # fmt: skip
        print(f"  aim: at most {AIM_RATIO:.0f}x the loop that reads the same metrics and SASS, under {AIM_MB} MB")


if __name__ == "__main__":
    main()
