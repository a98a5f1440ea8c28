"""A sweep over shapes under nsight-python, and its diagnosis, on a machine with a GPU.

    python3 tests/gpu/nsight_python.py --out DIR

Needs PyTorch and nsight-python (0.9 for an ncu older than 2026.2). DIR gets the frame (CSV), the report (xz) and the
document: `tests/test_python_api.py` is held against them.
"""

from __future__ import annotations

import argparse
import json
import lzma
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import nsight  # noqa: E402
import torch  # noqa: E402

import diagnose  # noqa: E402

PREFIX = "/tmp/nsight_python/"
METRICS = Path(PREFIX) / "metrics.json"


def one(n: int) -> None:
    """What is measured to know the metrics of this machine."""
    torch.rand(n, device="cuda").mul_(2.0)
    torch.cuda.synchronize()


def metrics() -> list[str]:
    """Asked once: nsight-python 0.9 runs this script a second time under ncu."""
    if not METRICS.is_file():
        METRICS.parent.mkdir(parents=True, exist_ok=True)
        seen = diagnose.profile(one, 1 << 20, kernel="regex:elementwise")
        METRICS.write_text(json.dumps(diagnose.nsight_metrics(like=seen)))
    found: list[str] = json.loads(METRICS.read_text())
    return found


@nsight.analyze.kernel(
    configs=[(1 << 12,), (1 << 20,), (1 << 26,)],
    runs=2,
    metrics=metrics() if __name__ == "__main__" else ["gpu__time_duration.sum"],
    output_prefix=PREFIX,
)
def scale(n: int) -> None:
    """Doubles n numbers, out of place and in place."""
    x = torch.rand(n, device="cuda")
    y = torch.empty_like(x)
    torch.cuda.synchronize()
    with nsight.annotate("out-of-place"):
        torch.mul(x, 2.0, out=y)
    with nsight.annotate("in-place"):
        x.mul_(2.0)
    torch.cuda.synchronize()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    out: Path = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    print(len(metrics()), "metrics", flush=True)
    result: Any = scale()
    frame = result.to_dataframe()
    frame[frame["Metric"].isin(["gpu__time_duration.sum", "dram__bytes_read.sum"])].to_csv(
        out / "scale.csv", index=False
    )
    print(list(frame.columns), len(frame), flush=True)
    report = next(Path(PREFIX).glob("*.ncu-rep"))
    (out / "scale.ncu-rep.xz").write_bytes(lzma.compress(report.read_bytes()))
    for how, summary in (
        ("result and function", diagnose.from_nsight(result, function=scale)),
        ("function", diagnose.from_nsight(scale)),
        ("result and report", diagnose.from_nsight(result, report=report)),
    ):
        print(how, len(summary.parameters), [k["verdict"]["rule"] for k in summary.document["kernels"]], flush=True)
    summary = diagnose.from_nsight(result, function=scale)
    print(summary.kernels.to_string())
    (out / "scale.json").write_text(json.dumps(summary.document)[:8_000_000])
    rules = {kernel["verdict"]["rule"] for kernel in summary.document["kernels"]}
    return 0 if len(summary.parameters) == 12 and "hbm-bandwidth" in rules else 1


if __name__ == "__main__":
    sys.exit(main())
