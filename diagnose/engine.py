"""Evaluates rules on one kernel, ranks what fired, and decides the verdict. Pure: facts in, Diagnosis out.

The order of decision (design.md, "The model behind a verdict"):

1. a report that contradicts itself, and a debug build, come before all;
2. the finding with the most recoverable time, when that is worth having (WORTH);
3. the resource that binds (a hardware rule), when it explains enough of the time;
4. what is left: the largest finding, or not enough data, at low confidence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from diagnose.facts.context import UNDEFINED, Context
from diagnose.facts.pipes import all_limits
from diagnose.facts.stalls import kernel_waits
from diagnose.limits import library
from diagnose.model import (
    Diagnosis,
    Evidence,
    Finding,
    NotEvaluated,
    Rejected,
    SassLine,
    Scalar,
    Speedup,
    Verdict,
    Where,
)
from diagnose.rules import Rule, RuleOutcome, Stakes, evaluate, expectation, stakes
from diagnose.sass.executed import loop_opcodes
from diagnose.sass.text import matches, parse

WORTH = 0.10  # design.md: nothing worth having below about 10 %; run-to-run noise of profiled kernels is 1 to 5 %
SURE = 2 * WORTH  # sure of a finding: even the low end of its interval is twice what is worth having
CRITICAL = 0.50  # half of the time: the fix at least doubles the speed
MOST = 0.995  # a share of 1 would mean a kernel that takes no time; the largest gain seen on the pairs was 130 times
ACCOUNTS = 0.5  # a cause that recovers less than half of what a finding would is not what that finding is about
EXPLAINS = 0.3  # a resource that is busy for less than a third of the time explains nothing
FIRST = ("inconsistent-data", "debug-build")
FALLBACK = "not-enough-data"
# Without an interval from the rule: what is expected to remain, or to go, may be off by these parts of the smaller of
# the two, below and above. From the measured gains of the fault pairs (docs/accuracy.md): four of five lie within. A
# loss that the hardware counted (`loss: counted`) is known better than how far other code would go.
_INTERVAL: Mapping[str | None, tuple[float, float]] = {
    "counted": (0.35, 0.32),
    "estimated": (0.60, 0.50),
    None: (0.50, 0.40),
}


@dataclass(frozen=True)
class FactEnv:
    """A rule's view of one kernel: facts by name, raw metrics, executed opcodes."""

    context: Context

    @property
    def opcodes(self) -> Mapping[str, float]:
        return self.context.kernel.opcodes

    @property
    def loop_opcodes(self) -> Mapping[str, float] | None:
        lines = self.context.kernel.lines
        found = self.context.cached("loop_opcodes", lambda: loop_opcodes(lines))
        return found  # type: ignore[return-value]

    def lookup(self, name: str) -> tuple[Scalar | None, str, tuple[str, ...]]:
        fact = self.context.evaluate(name)
        value = fact.value
        return (float(value) if type(value) is int else value), fact.unit, fact.missing

    def metric(self, name: str) -> tuple[Scalar | None, str, tuple[str, ...]]:
        value = self.context.kernel.metrics.get(name)
        unit = self.context.kernel.units.get(name, "")
        return value, unit, () if value is not None else (name,)


def speedup(share: float, low: float | None, high: float | None, loss: str | None = None) -> Speedup:
    """The interval of speed-ups for a recoverable share and its bounds (shares of time, 0..1)."""
    expected = min(share, MOST)
    smaller = min(expected, 1 - expected)
    down, up = _INTERVAL[loss]
    least = min(low, expected) if low is not None else max(0.0, expected - down * smaller)
    most = max(high, expected) if high is not None else expected + up * smaller
    return Speedup(1 / (1 - least), 1 / (1 - expected), 1 / (1 - min(most, MOST)))


def _severity(rule: Rule, share: float | None) -> str:
    """A rule's severity is the most it can be; the share of time decides below it."""
    if rule.severity == "note" or (share is not None and share < WORTH):
        return "note"
    if share is not None and share >= CRITICAL:
        return "critical"
    return "warning" if share is not None else rule.severity


def _place(role: str, line: SassLine, samples: int, total: int) -> Where:
    return Where(role, line.pc, line.text, line.file, line.line, min(1.0, samples / total) if total else 0.0)


def where(rule: Rule, context: Context) -> tuple[Where, ...]:
    """The instructions that the rule's selections point at, with their share of the kernel's warp samples."""
    if not rule.where:
        return ()
    lines = context.kernel.lines
    total = sum(line.samples or 0 for line in lines)
    found: list[Where] = []
    for select in rule.where:
        if select.kind == "stall":
            chosen = [w for w in kernel_waits(context) if select.name in {w.stall, w.kind}][: select.top]
            for wait in chosen:
                found.append(_place("waiting", wait.line, wait.samples, total))
                if wait.cause is not None and wait.cause is not wait.line:
                    found.append(_place("cause", wait.cause, wait.cause.samples or 0, total))
        else:
            those = [line for line in lines if (i := parse(line.text)) is not None and matches(i.opcode, select.name)]
            those.sort(key=lambda line: (-(line.samples or 0), -(line.executed or 0.0), line.pc))
            found += [_place(select.role, line, line.samples or 0, total) for line in those[: select.top]]
    unique: dict[tuple[str, int], Where] = {}
    for place in found:
        unique.setdefault((place.role, place.pc), place)
    return tuple(unique.values())


def _finding(outcome: RuleOutcome, at: Stakes, weight: float, context: Context) -> Finding:
    rule = outcome.rule
    share = None if at.expected is None else min(at.expected * weight, MOST)
    return Finding(
        rule=rule.id,
        klass=rule.klass,
        severity=_severity(rule, share),
        title=rule.title,
        at_stake=share,
        speedup=speedup(share, at.low, at.high, rule.loss) if share is not None else None,
        evidence=outcome.evidence + outcome.context,
        where=where(rule, context),
        why=rule.why,
        change=rule.change,
        expect=expectation(rule, outcome.env),
        references=rule.references,
    )


def _rank(finding: Finding) -> tuple[float, str]:
    return (-(finding.at_stake if finding.at_stake is not None else 0.0), finding.rule)


def _near_miss(outcome: RuleOutcome) -> bool:
    """Exactly one condition stood between the rule and firing."""
    failed = sum(holds is False for _, _, holds in outcome.measured)
    return failed == 1 and len(outcome.measured) > 1


def collect_with(missing: Sequence[str]) -> str:
    """The option that collects what is missing."""
    if any("source counters" in name or "sass__" in name or name == "inst_executed" for name in missing):
        return "ncu --section SourceCounters --section InstructionStats --import-source yes"
    if missing == ("declared clock_loss",):
        return "a log of clocks and power beside unprofiled runs"
    if any(name.startswith("declared ") for name in missing):
        return "--problem SPEC or --useful-flops N"
    metrics = [name.split(" ")[0] for name in missing if "__" in name and "*" not in name]
    if metrics:
        return "ncu --metrics " + ",".join(dict.fromkeys(metrics))
    return "run `diagnose` on the program, or record with `ncu --set full`"


def _confidence(best: Finding | None, runner_up: float, context: Context) -> str:
    """high, medium or low: how far the verdict is ahead of `runner_up`, and what it rests on; without `best`, of a
    hardware verdict. A finding whose worth is in doubt at the low end of its interval is no certain one.
    """
    kernel = context.kernel
    resource = context.fact("binding_resource")
    level = 1
    if best is None:
        # Of the resource that is named: another may be busier by a little (`limits.TIE`).
        named = [limit.utilization for limit in all_limits(context) if limit.resource == resource]
        top = max(named, default=context.value("top_utilization") or 0.0)
        level = 2 if top >= 0.85 and runner_up < WORTH else 1 if top >= 0.70 else 0
        if resource in {"hbm", "l2"} and context.fact("footprint_in_l2") is True:
            level -= 1  # ncu's cache flush decides what is measured (trap 29)
    elif best.at_stake is not None and best.speedup is not None:
        low = 1 - 1 / best.speedup.low
        level = 2 if low >= SURE and best.at_stake - runner_up >= WORTH else 1
    if not kernel.opcodes:
        level = min(level, 1)  # utilization counters cannot show what is absent; SASS can
    return ("low", "medium", "high")[max(level, 0)]


def diagnose_kernel(context: Context, rules: Sequence[Rule], weigh: Mapping[str, float]) -> Diagnosis:
    """Evaluates `rules` (those in force, kernel scope) on one kernel."""
    env = FactEnv(context)
    arch = f"sm_{context.arch}" if context.arch is not None else None
    outcomes: dict[str, RuleOutcome] = {}
    not_evaluated: list[NotEvaluated] = []
    rejected: list[Rejected] = []
    for rule in rules:
        applies = rule.applies(arch)
        if applies is False:
            continue
        outcome = evaluate(rule, env)
        outcomes[rule.id] = outcome
        if outcome.state is None or (applies is None and outcome.state):
            missing = outcome.missing or ("device__attribute_compute_capability_major",)
            measurable = tuple(name for name in missing if UNDEFINED not in name)
            if measurable:
                not_evaluated.append(NotEvaluated(rule.id, measurable, collect_with(measurable)))
            else:  # a kernel without loads has no use of loaded sectors: the rule has nothing to say of it
                rejected.append(Rejected(rule.id, outcome.because, False))
        elif outcome.state is False:
            rejected.append(Rejected(rule.id, outcome.because, _near_miss(outcome)))
    fired = {
        rule_id: outcome
        for rule_id, outcome in outcomes.items()
        if outcome.state is True and outcome.rule.applies(arch) is not None
    }
    findings = {
        rule_id: _finding(outcome, stakes(outcome.rule, env), weigh.get(rule_id, 1.0), context)
        for rule_id, outcome in fired.items()
        if outcome.rule.klass != "hardware" and rule_id != FALLBACK
    }
    for rule_id, explained_by in _explained(findings, fired).items():
        findings.pop(rule_id)
        evidence = Evidence("explained_by", explained_by, "text", "==", explained_by, True)
        rejected.append(Rejected(rule_id, (evidence,), True))
    ranked = sorted(findings.values(), key=_rank)
    hardware = [outcome for outcome in fired.values() if outcome.rule.klass == "hardware"]
    verdict, ranked = _decide(ranked, hardware, outcomes, fired, context)
    return Diagnosis(
        kernel=context.kernel,
        facts={name: context.evaluate(name) for name in context.catalogue},
        limits=(*all_limits(context), *((mark,) if (mark := library(context)) is not None else ())),
        verdict=verdict,
        findings=tuple(ranked),
        rejected=tuple(sorted(rejected, key=lambda r: (not r.near, r.rule))),
        not_evaluated=tuple(sorted(not_evaluated, key=lambda n: n.rule)),
    )


def _explained(findings: Mapping[str, Finding], fired: Mapping[str, RuleOutcome]) -> dict[str, str]:
    """Findings whose cause another finding names more deeply (`yields_to`): rule id -> the rule that explains it.

    A deeper finding that recovers only a small part of what this one would does not explain it.
    """
    result: dict[str, str] = {}
    for rule_id, finding in findings.items():
        rule = fired[rule_id].rule
        enough = max(WORTH, ACCOUNTS * (finding.at_stake or 0.0))
        for other in rule.yields_to:
            deeper = findings.get(other) or findings.get(f"{rule.pack}/{other}")
            if deeper is not None and (deeper.at_stake is None or deeper.at_stake >= enough):
                result[rule_id] = deeper.rule
                break
    return result


def _decide(
    ranked: list[Finding],
    hardware: Sequence[RuleOutcome],
    outcomes: Mapping[str, RuleOutcome],
    fired: Mapping[str, RuleOutcome],
    context: Context,
) -> tuple[Verdict, list[Finding]]:
    """The verdict, and the findings with the verdict's rule first where it is a finding."""
    env = FactEnv(context)
    first = [finding for rule_id in FIRST for finding in ranked if finding.rule == rule_id]
    if first:
        ranked = [first[0], *(f for f in ranked if f is not first[0])]
        return _from_finding(ranked[0], fired, env, "high"), ranked
    worth = [f for f in ranked if f.severity != "note" and f.at_stake is not None and f.at_stake >= WORTH]
    shares = sorted((f.at_stake or 0.0 for f in ranked if f.severity != "note"), reverse=True)
    if worth:
        best = worth[0]
        ranked = [best, *(f for f in ranked if f is not best)]
        runner_up = shares[1] if len(shares) > 1 else 0.0
        return _from_finding(best, fired, env, _confidence(best, runner_up, context)), ranked
    if hardware:
        outcome = hardware[0]
        ranked = [replace(f, severity="note") for f in ranked]
        confidence = _confidence(None, shares[0] if shares else 0.0, context)
        rule = outcome.rule
        return (
            Verdict(rule.id, rule.klass, rule.title, None, None, confidence, rule.sentence.fill(env)),
            ranked,
        )
    if ranked:
        return _from_finding(ranked[0], fired, env, "low"), ranked
    nearest = _explains_most(outcomes, context)
    if nearest is not None:
        title = f"No cause stands out; nearest limit: {nearest.id}"
        return Verdict(nearest.id, nearest.klass, title, None, None, "low", nearest.sentence.fill(env)), []
    fallback = outcomes.get(FALLBACK)
    if fallback is not None:
        finding = _finding(fallback, Stakes(None, None, None), 1.0, context)
        return _from_finding(finding, {FALLBACK: fallback}, env, "low"), [finding]
    return Verdict(
        FALLBACK, "unknown", "Not enough data", None, None, "low", "no rule of the enabled packs decides"
    ), []


def _explains_most(outcomes: Mapping[str, RuleOutcome], context: Context) -> Rule | None:
    """The hardware rule of the resource that binds, where no rule fired at all: it explains more than anything else."""
    resource = context.fact("binding_resource")
    if (context.value("top_utilization") or 0.0) < EXPLAINS:
        return None
    for outcome in outcomes.values():
        names = {leaf.right.text.strip("'") for leaf in outcome.rule.leaves if leaf.left.text == "binding_resource"}
        if outcome.rule.klass == "hardware" and resource in names:
            return outcome.rule
    return None


def _from_finding(finding: Finding, fired: Mapping[str, RuleOutcome], env: FactEnv, confidence: str) -> Verdict:
    sentence = fired[finding.rule].rule.sentence.fill(env)
    return Verdict(finding.rule, finding.klass, finding.title, finding.at_stake, finding.speedup, confidence, sentence)
