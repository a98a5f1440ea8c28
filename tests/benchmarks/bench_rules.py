"""The rules on many kernels: milliseconds a kernel for the core pack, and with generated rules beside it.

python tests/benchmarks/bench_rules.py [KERNELS] [RULES]        10000 and 500

SAMPLE kernels are measured and their time scaled to KERNELS. Facts are computed once a kernel and kept, as in a run;
their time is told apart.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).resolve().parents[2]), str(Path(__file__).resolve().parents[1])]

import recorded
from diagnose import facts
from diagnose.api import Options, load_rules
from diagnose.engine import FactEnv, diagnose_kernel
from diagnose.rules import Pack, active_rules, evaluate, tuner, weights

AIM_MS = 1.0
SAMPLE = 300
REPORTS = ("gemm/mma", "gemm/naive", "faults/iterate-items", "faults/bank-conflict-pitch64", "faults/stream-read")
RULE = """\
title: Generated rule {n}
class: implementation
severity: warning
when:
  all:
  - exposed_load >= 0.{n:03}1
  - any: [hbm_utilization < 0.6, sass.share(LDG) > 0.{n:03}1, 'ncu:launch__registers_per_thread > {n}']
at_stake: stake_load_latency
sentence: '{{exposed_load:%}} waits'
why: It is generated.
next_experiment: {{change: None, expect: exposed_load < 0.1}}
examples:
  base: {{exposed_load: 1, hbm_utilization: 0.1, 'ncu:launch__registers_per_thread': 0, sass: {{LDG.E: 0, FFMA: 1}}}}
  fires:
  - {{hbm_utilization: 1, sass: {{LDG.E: 1, FFMA: 0}}}}
  - {{hbm_utilization: 1, 'ncu:launch__registers_per_thread': 1000}}
  silent:
  - {{exposed_load: 0}}
  - {{hbm_utilization: 1}}
"""


def generated(folder: Path, count: int) -> None:
    """A pack of `count` rules, a threshold for every tenth."""
    lines = ["name: generated", "version: 1.0", "thresholds:"]
    for n in range(count):
        (folder / f"rule-{n}.yaml").write_text(RULE.format(n=n))
        if n % 10 == 0:
            lines.append(f"- {{rule: rule-{n}, kernel: '*gemm*', set: {{exposed_load: 0.5}}}}")
    (folder / "pack.yaml").write_text("\n".join(lines) + "\n")


def measure(packs: tuple[Pack, ...]) -> tuple[float, float, float]:
    """Milliseconds a kernel: for the facts, for evaluating all rules, and for the whole diagnosis but facts."""
    tuned = tuner([rule for rule in active_rules(packs) if rule.scope == "kernel"], packs)
    weigh = weights(packs)
    profiles = [recorded.profile(name) for name in REPORTS]
    spent = [0.0, 0.0, 0.0]
    for n in range(SAMPLE):
        kernel = profiles[n % len(profiles)]
        start = time.process_time()
        context = recorded.context_of(kernel)
        for name in context.catalogue:
            context.evaluate(name)
        read = time.process_time()
        rules = tuned((kernel.name, kernel.demangled), "sm_90")
        env = FactEnv(context)
        for rule in rules:
            evaluate(rule, env)
        asked = time.process_time()
        diagnose_kernel(context, rules, weigh)
        done = time.process_time()
        for index, part in enumerate((read - start, asked - read, done - asked)):
            spent[index] += part
    return tuple(total / SAMPLE * 1e3 for total in spent)  # type: ignore[return-value]


def main() -> None:
    kernels = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    most = int(sys.argv[2]) if len(sys.argv) > 2 else 500
    facts.units()
    print(f"one core, CPU time, {SAMPLE} kernels measured, scaled to {kernels}")
    print("rules             load      evaluate   aim    whole diagnosis   facts      all kernels")
    for count in (0, most // 5, most):
        with tempfile.TemporaryDirectory() as made:
            folder = Path(made)
            generated(folder, count)
            start = time.process_time()
            packs = load_rules(Options(rules=(folder,) if count else ()))
            load = time.process_time() - start
        known, asked, whole = measure(packs)
        name = f"core + {count}" if count else f"core ({len(packs[0].rules)})"
        aim = f"{AIM_MS:.0f} ms" if not count else "-"
        total = (known + whole) * kernels / 1e3
        rest = f"{aim:5}  {whole:8.3f} ms  {known:10.3f} ms  {total:8.1f} s"
        print(f"{name:<14} {load * 1e3:6.0f} ms  {asked:8.3f} ms  {rest}")


if __name__ == "__main__":
    main()
