"""Writes docs/unproven.md: the verdicts that no recorded report of ours fires, or none refuses. Run it after a change.

python tests/gen_unproven.py            writes the file
python tests/gen_unproven.py --check    says whether it is up to date
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parent)]

import recorded
from diagnose.engine import FactEnv
from diagnose.rules import evaluate

TARGET = recorded.ROOT / "docs" / "unproven.md"

# The contract's verdicts, in its order, and the two of class unknown.
VERDICTS = tuple(
    """
    hbm-bandwidth l2-bandwidth smem-bandwidth tensor-compute fp32-compute fp64-compute int-compute sfu-compute
    issue-bound power-throttle launch-bound small-grid tail-wave small-wgmma-n padding-waste random-access
    under-split load-imbalance cluster-placement memory-latency dependency-latency uncoalesced partial-writes
    narrow-access lsu-issue global-reload smem-reload l2-locality bank-conflict barrier pipeline-wait no-overlap
    spill local-array occupancy-registers occupancy-smem occupancy-block divergence global-atomics
    shared-atomics no-tensor-core legacy-mma wgmma-serialized no-async-copy tma-overhead fp8-not-native
    sparse-not-used conversion fp64-by-accident slow-math index-math instruction-cache constant-divergence
    fence spin-wait host-memory peer-memory debug-build not-enough-data inconsistent-data
    """.split()  # noqa: SIM905
)
# The contract's list may grow: verdicts that came later.
LATER = ("nvlink-bandwidth",)

REASONS = {
    "power-throttle": "needs a clock log from outside a replayed run (trap 27); `clock_loss` is a declared input",
    "peer-memory": "needs two GPUs that read each other's memory; the reports were recorded on one",
    "nvlink-bandwidth": "needs two GPUs and traffic at the links' rate; the reports were recorded on one",
    "not-enough-data": "every recorded report holds throughputs; test_traps.py takes them away from one",
    "inconsistent-data": "no recorded report contradicts itself; test_traps.py gives one another launch's counters",
}


@dataclass(frozen=True)
class Proof:
    """Recorded kernels of ours on which a rule is the verdict or a finding, those refused, and those left open."""

    fires: tuple[str, ...]
    verdict: tuple[str, ...]
    silent: tuple[str, ...]
    open: tuple[str, ...]

    @property
    def complete(self) -> bool:
        return bool(self.fires and self.silent)


@cache
def proofs() -> dict[str, Proof]:
    """What the recorded reports show of each verdict."""
    recorded.profiles()
    known = {rule.id for rule in recorded.rules()}
    found = {}
    for verdict in (*VERDICTS, *LATER):
        if verdict not in known:
            found[verdict] = Proof((), (), (), ())
            continue
        fires, chosen, silent, unknown = [], [], [], []
        for name in recorded.names():
            diagnosis = recorded.diagnosis(name)
            if diagnosis.verdict.rule == verdict:
                chosen.append(name)
            if diagnosis.verdict.rule == verdict or any(f.rule == verdict for f in diagnosis.findings):
                fires.append(name)
                continue
            state = evaluate(recorded.rule(verdict), FactEnv(recorded.context(name))).state
            (unknown if state is None else silent if state is False else []).append(name)
        found[verdict] = Proof(tuple(fires), tuple(chosen), tuple(silent), tuple(unknown))
    return found


def text() -> str:
    """The document."""
    lines = [
        "# Unproven verdicts",
        "",
        "Written by `tests/gen_unproven.py` from the reports in `examples/reports`; a test keeps it up to date.",
        "A verdict is proven when at least one recorded report of our own fires it and at least one is looked at and",
        "refused. What is listed here was not seen to fire on one: its rule rests on its examples and its reasons.",
        "",
        "| verdict | fires on | refused on | why it is not proven |",
        "| --- | --- | --- | --- |",
    ]
    for verdict, proof in proofs().items():
        if not proof.complete:
            reason = REASONS.get(verdict, "NO REASON GIVEN: add one to tests/gen_unproven.py")
            lines.append(f"| {verdict} | {len(proof.fires)} | {len(proof.silent)} | {reason} |")
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> int:
    fresh = text()
    if "--check" in arguments:
        same = TARGET.is_file() and TARGET.read_text(encoding="utf-8") == fresh
        print(f"{TARGET} is {'up to date' if same else 'out of date: run python tests/gen_unproven.py'}")
        return 0 if same else 1
    TARGET.write_text(fresh, encoding="utf-8")
    print(f"wrote {TARGET}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
