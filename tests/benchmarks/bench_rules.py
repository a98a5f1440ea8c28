"""The rules on many kernels: milliseconds a kernel for the core pack, and with generated rules beside it.

python tests/benchmarks/bench_rules.py [KERNELS] [RULES]        10000 and 500

The rules are evaluated on all KERNELS. Facts are computed once a kernel and kept, as in a run; their time and that of
the whole diagnosis are measured on SAMPLE of them. Growth: the slope over rules of one form, and so the cost of a rule.
Exit 1 where the core pack takes more than AIM_MS a kernel.
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


def measure(packs: tuple[Pack, ...], kernels: int) -> tuple[float, float, float]:
    """Milliseconds a kernel: for the facts, for evaluating all rules, and for the whole diagnosis but facts."""
    tuned = tuner([rule for rule in active_rules(packs) if rule.scope == "kernel"], packs)
    weigh = weights(packs)
    profiles = [recorded.profile(name) for name in REPORTS]
    known = []
    spent = [0.0, 0.0, 0.0]
    for n in range(SAMPLE):
        kernel = profiles[n % len(profiles)]
        start = time.process_time()
        context = recorded.context_of(kernel)
        for name in context.catalogue:
            context.evaluate(name)
        spent[0] += time.process_time() - start
        rules = tuned((kernel.name, kernel.demangled), "sm_90")
        start = time.process_time()
        diagnose_kernel(context, rules, weigh)
        spent[2] += time.process_time() - start
        if n < len(profiles):
            known.append((kernel, context))
    start = time.process_time()
    for n in range(kernels):
        kernel, context = known[n % len(known)]
        env = FactEnv(context)
        for rule in tuned((kernel.name, kernel.demangled), "sm_90"):
            evaluate(rule, env)
    spent[1] = time.process_time() - start
    return spent[0] / SAMPLE * 1e3, spent[1] / kernels * 1e3, spent[2] / SAMPLE * 1e3


def main() -> int:
    """Prints a row for the core pack alone, with a fifth of the generated rules, and with all of them."""
    kernels = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    most = int(sys.argv[2]) if len(sys.argv) > 2 else 500
    facts.units()
    print(f"one core, CPU time; rules evaluated on {kernels:,} kernels, the rest measured on {SAMPLE}")
    print("rules             load      evaluate   aim    whole diagnosis   facts")
    rows = []
    for count in (0, most // 5, most):
        with tempfile.TemporaryDirectory() as made:
            folder = Path(made)
            generated(folder, count)
            start = time.process_time()
            packs = load_rules(Options(rules=(folder,) if count else ()))
            load = time.process_time() - start
        known, asked, whole = measure(packs, kernels)
        rows.append((count, load, asked))
        name = f"core + {count}" if count else f"core ({len(packs[0].rules)})"
        aim = f"{AIM_MS:.0f} ms" if not count else "-"
        print(
            f"{name:<14} {load * 1e3:6.0f} ms  {asked:8.3f} ms  {aim:5}  {whole:8.3f} ms  {known:10.3f} ms", flush=True
        )
    (_, first_load, core), (some, _, few), (all_, load, many) = rows
    slope, own = (many - few) / (all_ - some) * 1e3, core / len(packs[0].rules) * 1e3
    proving = (load - first_load) / all_ * 1e3
    print(f"growth: {slope:.1f} µs a kernel and rule ({own:.1f} µs a core rule), {proving:.2f} ms to load a rule")
    print(
        "the core pack is within the aim" if core <= AIM_MS else f"the core pack takes more than {AIM_MS:g} ms a kernel"
    )
    return int(core > AIM_MS)


if __name__ == "__main__":
    sys.exit(main())
