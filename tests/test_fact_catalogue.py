"""Every fact on every recorded kernel: a value somewhere, in range, and named metrics where there is none."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import pytest

import recorded
from diagnose import facts
from diagnose.facts import CATALOGUE, context
from diagnose.model import Fact, KernelProfile, Scalar

UNITS = {"share", "count", "byte", "ratio", "bool", "text", "us", "GHz", "byte/s", "cycle"}

# Facts that only a declaration gives a value (no report can).
DECLARED: dict[str, Scalar] = {
    "useful_flops": 1e12, "useful_bytes": 1e9, "clock_loss": 0.15, "declared_sparse": True,
    "gemm_m": 64.0, "gemm_n": 64.0, "gemm_k": 64.0,
    "library_us": 120.0,
    "product_type": "bf16",
}  # fmt: skip

# Facts without a value on any recorded report or declaration, with the reason. None today.
WITHOUT: dict[str, str] = {}

# A few kernels of different kinds for the tests that take metrics away.
SAMPLES = (
    "gemm/mma",
    "faults/tally-private",
    "faults/columns-by-eight",
    "faults/bank-conflict-pitch64",
    "faults/add-plain",
)

# Facts that are answers by themselves: they say what is not there.
ALWAYS = {"has_throughput", "source_counters", "not_finite_counters", "counters_repeat", "stall_source"}


def _every() -> Iterator[tuple[str, Fact]]:
    recorded.profiles()
    for name in recorded.names():
        for fact in CATALOGUE:
            yield name, recorded.context(name).evaluate(fact)


def test_every_fact_has_a_value_somewhere() -> None:
    seen = {fact.name for _, fact in _every() if fact.value is not None}
    kernel = recorded.profile("gemm/mma")
    for name, value in DECLARED.items():
        answered = recorded.context_of(kernel, {name: value}).evaluate(name)
        assert answered.value == value, f"declared {name}={value} came back as {answered}"
        seen.add(name)
    product = {"useful_flops": 2.0 * 8192**3, "library_us": 1400.0}
    assert recorded.context_of(kernel, product).value("over_library")
    seen.add("over_library")
    without = set(CATALOGUE) - seen
    assert without == set(WITHOUT), f"no value anywhere: {sorted(without)}; listed: {sorted(WITHOUT)}"


def test_units_are_known_and_fit_the_value() -> None:
    assert {d.unit for d in CATALOGUE.values()} <= UNITS, {d.unit for d in CATALOGUE.values()} - UNITS
    kinds: dict[str, type | tuple[type, ...]] = {"text": str, "bool": bool}
    wrong = [
        (name, fact.name, fact.unit, fact.value)
        for name, fact in _every()
        if fact.value is not None
        and (not isinstance(fact.value, kinds.get(fact.unit, (int, float))) or (
            fact.unit != "bool" and isinstance(fact.value, bool)
        ))
    ]  # fmt: skip
    assert not wrong, wrong[:10]


def test_values_are_finite_and_in_range() -> None:
    wrong = []
    for name, fact in _every():
        if isinstance(fact.value, int | float) and not isinstance(fact.value, bool):
            top = 1.0 if fact.unit == "share" else math.inf
            if not math.isfinite(fact.value) or not 0 <= fact.value <= top:
                wrong.append((name, fact.name, fact.value, fact.unit))
    assert not wrong, f"{len(wrong)} values: {wrong[:10]}"


def test_a_fact_without_a_value_says_what_is_missing() -> None:
    wrong = {(fact.name, fact.missing) for _, fact in _every() if fact.value is None and not all(fact.missing)}
    unnamed = {fact.name for _, fact in _every() if fact.value is None and not fact.missing}
    told_twice = {fact.name for _, fact in _every() if fact.value is not None and fact.missing}
    assert not wrong and not unnamed and not told_twice, (wrong, unnamed, told_twice)


def test_needs_are_ncu_names_and_exist_in_a_report() -> None:
    """A misspelt metric would be asked of ncu for ever and never come."""
    there = {metric for name in recorded.names() for metric in recorded.profile(name).metrics}
    there |= {metric for name in recorded.names() for metric in recorded.profile(name).not_finite}
    per_address = {"inst_executed", "memory_l1_wavefronts_shared", "memory_l1_wavefronts_shared_ideal"}
    unknown = {
        (name, metric)
        for name, definition in CATALOGUE.items()
        for metric in definition.needs
        if metric not in there and metric not in per_address and not metric.startswith("sass__")
    }
    assert not unknown, f"in no recorded report: {sorted(unknown)}"


def _bare(kernel: KernelProfile, **fields: object) -> KernelProfile:
    return replace(kernel, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", SAMPLES)
def test_nothing_measured_is_nothing_known(name: str) -> None:
    empty = _bare(recorded.profile(name), metrics={}, units={}, opcodes={}, thread_opcodes={}, lines=(), timeline=())
    nothing = context(empty, {}, (), {})
    found = {n: f.value for n in CATALOGUE if (f := nothing.evaluate(n)).value is not None and n not in ALWAYS}
    unnamed = [n for n in CATALOGUE if (f := nothing.evaluate(n)).value is None and not f.missing]
    assert not found, f"known of an empty profile: {found}"
    assert not unnamed, f"missing without a name: {unnamed}"


@pytest.mark.parametrize("name", SAMPLES)
def test_facts_on_code_need_code(name: str) -> None:
    without = _bare(recorded.profile(name), opcodes={}, thread_opcodes={}, lines=())
    found = recorded.context_of(without)
    known = {n: found.evaluate(n).value for n, d in CATALOGUE.items() if d.code and found.evaluate(n).value is not None}
    assert not known, f"facts that say they need {{opcodes, lines}} have a value without: {known}"


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("fact", [n for n, d in CATALOGUE.items() if d.needs])
def test_without_its_metrics_a_fact_is_unknown_or_comes_from_another(fact: str, name: str) -> None:
    """Taking away what a fact needs never turns it into 0: it is unknown and says so, or read from an alternative."""
    kernel = recorded.profile(name)
    before = recorded.context(name).evaluate(fact).value
    per_address = set(CATALOGUE[fact].needs) & {"inst_executed"}
    code = any(metric.startswith("sass__") for metric in CATALOGUE[fact].needs)
    metrics = {m: v for m, v in kernel.metrics.items() if m not in CATALOGUE[fact].needs}
    fields: dict[str, object] = {"metrics": metrics}
    if per_address:
        fields["lines"] = ()
    if code:
        fields |= {"opcodes": {}, "thread_opcodes": {}}
    after = recorded.context_of(_bare(kernel, **fields), recorded.declared(name)).evaluate(fact)
    if after.value is None:
        assert after.missing, f"{fact} is unknown and names nothing"
    elif not isinstance(before, bool | str) and before and fact not in ALWAYS:
        assert after.value != 0, f"{fact} was {before} and reads 0 without {CATALOGUE[fact].needs}"


# Facts that read 0, or nothing by name, when one of the metrics they are computed from is absent: a 0 that nobody
# measured. Found by test_taking_one_metric_away; each is a bug to be mended, and must leave the table then.
READS_ZERO = {
    "stall_*, exposed_*": "a stall reason that the report lacks counts as no samples",
    "stake_local_array": "local_bytes unknown counts as 0 bytes",
    "stake_narrow": "exposed_lg_throttle unknown counts as none",
    "stake_divergence": "issue and lanes_on unknown fall back",
    "stake_contention": "one of its reasons unknown counts as none",
    "stake_instruction_fetch": "follows exposed_instruction_fetch_stall",
    "cycles_per_load": "follows stall_long_scoreboard",
}


@pytest.mark.parametrize("name", SAMPLES[:3])
def test_taking_one_metric_away(name: str) -> None:
    """No single absent metric raises, leaves an unnamed gap, or makes a fact 0 that was not (but READS_ZERO)."""
    kernel = recorded.profile(name)
    used: set[str] = set()

    class Watched(dict[str, Scalar]):
        def get(self, key: str, default: object = None) -> object:  # type: ignore[override]
            used.add(key)
            return dict.get(self, key, default)

    watched = recorded.context_of(replace(kernel, metrics=Watched(kernel.metrics)), recorded.declared(name))
    before = {fact: watched.evaluate(fact).value for fact in CATALOGUE}
    zeros: dict[str, set[str]] = {}
    for metric in sorted(used & set(kernel.metrics)):
        after = recorded.context_of(recorded.changed(kernel, {metric: None}), recorded.declared(name))
        for fact in CATALOGUE:
            found = after.evaluate(fact)
            assert found.value is not None or found.missing, f"{fact} without {metric} names nothing"
            known = before[fact]
            if not isinstance(known, bool | str) and known and found.value == 0:
                zeros.setdefault(fact, set()).add(metric)
    excused = {fact for fact in zeros if fact in READS_ZERO or fact.startswith(("stall_", "exposed_"))}
    assert not set(zeros) - excused, f"0 in place of unknown: { {f: zeros[f] for f in set(zeros) - excused} }"


def test_a_stall_reason_that_was_not_measured_is_unknown() -> None:
    kernel = recorded.changed(recorded.profile("gemm/mma"), {"smsp__pcsamp_warps_issue_stalled_barrier": None})
    fact = recorded.context_of(kernel).evaluate("stall_barrier")
    assert fact.value is None and "barrier" in " ".join(fact.missing), fact


def test_stake_of_local_arrays_is_unknown_without_the_local_sectors() -> None:
    metric = "l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum"
    kernel = recorded.profile("faults/tally-private")
    before = recorded.context_of(kernel).value("stake_local_array")
    after = recorded.context_of(recorded.changed(kernel, {metric: None})).evaluate("stake_local_array")
    assert before is not None and before > 0.5
    assert after.value is None and metric in after.missing, f"{before:.2f} became {after.value}"


def test_stakes_are_unknown_without_any_limit() -> None:
    bare = replace(recorded.profile("gemm/mma"), metrics={}, units={})
    found = context(bare, {}, (), {})
    stakes = {n: found.evaluate(n).value for n in ("stake_software_path", "stake_index_math")}
    assert all(value is None for value in stakes.values()), stakes


def test_a_pipe_that_was_measured_idle_is_idle_and_not_unknown() -> None:
    kernel = recorded.profile("faults/orbit-float")
    metric = "sm__pipe_fp64_cycles_active.avg.pct_of_peak_sustained_elapsed"
    assert kernel.number(metric) == 0.0
    fact = recorded.context("faults/orbit-float").evaluate("fp64_utilization")
    assert fact.value == 0.0, f"{metric} is 0 and fp64_utilization is {fact.value}, missing {fact.missing}"


def test_a_fact_names_only_what_it_misses() -> None:
    """tensor_utilization has nothing to do with DRAM or with Pascal's counters."""
    kernel = recorded.profile("gemm/mma")
    metrics = {m: v for m, v in kernel.metrics.items() if "tensor" not in m}
    fact = recorded.context_of(replace(kernel, metrics=metrics)).evaluate("tensor_utilization")
    assert fact.value is None and all("tensor" in name for name in fact.missing), fact.missing


# --- what a live run collects ---

_SECTIONS = (
    "device__", "launch__", "diagnose__", "smsp__pcsamp_", "profiler__", "sass__", "memory_", "derived__",
    "inst_executed",
    "smsp__inst_executed.", "smsp__inst_issued.", "sm__inst_executed.", "sm__warps_active", "sm__maximum_warps",
)  # fmt: skip


@pytest.mark.parametrize("name", recorded.names())
def test_what_a_live_run_collects_gives_the_same_verdict(name: str) -> None:
    """The reports hold `--set full`; a live run asks for the needs of the facts and four sections only."""
    kernel = recorded.profile(name)
    wanted = set(facts.metrics_of(CATALOGUE))
    kept = {m: v for m, v in kernel.metrics.items() if m in wanted or m.startswith(_SECTIONS)}
    live = recorded.diagnose(replace(kernel, metrics=kept), recorded.declared(name))
    full = recorded.diagnosis(name)
    assert live.verdict.rule == full.verdict.rule, f"live {recorded.summary(live)}\nfull {recorded.summary(full)}"
