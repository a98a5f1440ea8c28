"""The engine: ranking, what yields to what, severities, the order of decision, confidence, gains, architectures.

Small rules over declared facts drive it, so that no recorded number decides; the core pack's own properties follow.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

import recorded
from diagnose import facts
from diagnose.engine import CRITICAL, EXPLAINS, FALLBACK, FIRST, MOST, WORTH, collect_with, diagnose_kernel, speedup
from diagnose.errors import DiagnoseError
from diagnose.gpus.catalogue import architectures
from diagnose.model import Diagnosis, KernelProfile, SassLine, Scalar
from diagnose.packs import load_packs
from diagnose.rules import Rule, stakes
from recorded import rules

H200: dict[str, Scalar] = {
    "device__attribute_compute_capability_major": 9.0,
    "device__attribute_compute_capability_minor": 0.0,
}


def kernel(
    metrics: Mapping[str, Scalar] = H200, lines: tuple[SassLine, ...] = (), opcodes: Mapping[str, float] | None = None
) -> KernelProfile:
    code = {"FFMA": 100.0} if opcodes is None else dict(opcodes)
    return KernelProfile(0, 0, "k", "k()", "kernel", dict(metrics), {}, opcodes=code, lines=lines)


class Pack:
    """A pack of made-up rules. Each rule fires when the fact named in its condition says so."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "rules"
        self.folder.mkdir()
        (self.folder / "pack.yaml").write_text("name: core\nversion: 1.0.0\n")

    def add(self, name: str, when: str | Mapping[str, object] = "waves > 1", **keys: object) -> None:
        rule: dict[str, object] = {
            "title": f"Title of {name}",
            "class": "implementation",
            "severity": "warning",
            "when": {"all": [when]} if isinstance(when, str) else dict(when),
            "at_stake": "sm_imbalance",
            "sentence": f"{name} says so",
            "why": "because",
            "next_experiment": {"change": "do it", "expect": "waves <= 1"},
            "examples": {"base": {"waves": 2.0}, "silent": [{"waves": 0.5}]},
        }
        rule |= {key: value for key, value in keys.items() if value is not None}
        for key in [key for key, value in keys.items() if value is None]:
            rule.pop(key)
        (self.folder / f"{name}.yaml").write_text(yaml.safe_dump(rule))

    def rules(self) -> tuple[Rule, ...]:
        return load_packs([self.folder], facts.units())[0].rules


@pytest.fixture
def pack(tmp_path: Path) -> Pack:
    return Pack(tmp_path)


def run(pack: Pack, declared: Mapping[str, Scalar], where: KernelProfile | None = None, **weigh: float) -> Diagnosis:
    known: dict[str, Scalar] = {"waves": 2.0, **declared}
    context = facts.context(where or kernel(), {}, (), known)
    return diagnose_kernel(context, pack.rules(), {name.replace("_", "-"): factor for name, factor in weigh.items()})


def ids(found: Diagnosis) -> list[str]:
    return [finding.rule for finding in found.findings]


# --- ranking and severity ---


def test_the_largest_stake_comes_first_and_is_the_verdict(pack: Pack) -> None:
    pack.add("small", at_stake="sm_imbalance")
    pack.add("large", at_stake="idle_sm_share")
    pack.add("middle", at_stake="wave_tail_idle")
    found = run(pack, {"sm_imbalance": 0.12, "idle_sm_share": 0.4, "wave_tail_idle": 0.25})
    assert ids(found) == ["large", "middle", "small"]
    assert (found.verdict.rule, found.verdict.at_stake) == ("large", 0.4)


def test_equal_stakes_rank_by_name(pack: Pack) -> None:
    for name in ("beta", "alpha", "gamma"):
        pack.add(name)
    assert ids(run(pack, {"sm_imbalance": 0.3})) == ["alpha", "beta", "gamma"]


@pytest.mark.parametrize(
    ("share", "severity"),
    [(0.05, "note"), (0.0999, "note"), (0.10, "warning"), (0.49, "warning"), (0.5, "critical"), (0.99, "critical")],
)
def test_the_share_of_time_decides_the_severity(pack: Pack, share: float, severity: str) -> None:
    pack.add("one")
    found = run(pack, {"sm_imbalance": share})
    assert found.findings[0].severity == severity, f"{share} gives {found.findings[0].severity}"


def test_a_note_stays_a_note(pack: Pack) -> None:
    pack.add("one", severity="note")
    found = run(pack, {"sm_imbalance": 0.9})
    assert found.findings[0].severity == "note" and found.verdict.confidence == "low"


def test_thresholds_are_in_order() -> None:
    assert 0 < WORTH < EXPLAINS < CRITICAL < MOST < 1


def test_below_ten_percent_a_hardware_rule_has_the_word(pack: Pack) -> None:
    pack.add("fault")
    pack.add("roof", **{"class": "hardware", "at_stake": None})
    little = run(pack, {"sm_imbalance": 0.08})
    assert (little.verdict.rule, little.verdict.klass) == ("roof", "hardware")
    assert [(f.rule, f.severity) for f in little.findings] == [("fault", "note")]
    much = run(pack, {"sm_imbalance": 0.3})
    assert much.verdict.rule == "fault" and ids(much) == ["fault"]


def test_a_small_finding_alone_is_the_verdict_at_low_confidence(pack: Pack) -> None:
    pack.add("fault")
    found = run(pack, {"sm_imbalance": 0.04})
    assert (found.verdict.rule, found.verdict.confidence) == ("fault", "low")


def test_where_no_rule_fires_the_nearest_limit_is_named_as_that(pack: Pack) -> None:
    roof = {"class": "hardware", "at_stake": None}
    binding = {
        "base": {"binding_resource": "issue", "waves": 10.0},
        "silent": [{"waves": 1.0}, {"binding_resource": "l2"}],
    }
    pack.add("roof", {"all": ["binding_resource == 'issue'", "waves > 9"]}, examples=binding, **roof)
    found = run(pack, {"binding_resource": "issue", "top_utilization": EXPLAINS + 0.01}).verdict
    assert (found.rule, found.klass, found.confidence) == ("roof", "hardware", "low")
    assert found.title == "No cause stands out; nearest limit: roof"
    assert run(pack, {"binding_resource": "issue", "top_utilization": EXPLAINS - 0.01}).verdict.rule == FALLBACK


def test_weights_scale_the_stake(pack: Pack) -> None:
    pack.add("first")
    pack.add("second", at_stake="idle_sm_share")
    shares = {"sm_imbalance": 0.4, "idle_sm_share": 0.3}
    assert run(pack, shares).verdict.rule == "first"
    weighed = run(pack, shares, first=0.5)
    assert weighed.verdict.rule == "second" and weighed.findings[1].at_stake == pytest.approx(0.2)
    assert run(pack, shares, first=100.0).findings[0].at_stake == MOST


# --- what yields to what ---


def test_a_finding_yields_to_a_deeper_one(pack: Pack) -> None:
    pack.add("symptom", yields_to=["cause"])
    pack.add("cause", at_stake="idle_sm_share")
    found = run(pack, {"sm_imbalance": 0.8, "idle_sm_share": 0.45})
    assert ids(found) == ["cause"]
    rejected = {r.rule: r for r in found.rejected}
    assert rejected["symptom"].near and rejected["symptom"].because[0].value == "cause"


def test_nothing_yields_to_a_cause_that_is_worth_little_or_did_not_fire(pack: Pack) -> None:
    pack.add("symptom", yields_to=["cause"])
    pack.add("cause", at_stake="idle_sm_share")
    assert ids(run(pack, {"sm_imbalance": 0.8, "idle_sm_share": 0.05})) == ["symptom", "cause"]
    assert ids(run(pack, {"sm_imbalance": 0.8, "idle_sm_share": 0.35})) == ["symptom", "cause"], "less than half"
    pack.add("cause", "waves > 9", examples={"base": {"waves": 10.0}, "silent": [{"waves": 1.0}]})
    assert ids(run(pack, {"sm_imbalance": 0.8})) == ["symptom"]


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.id)
def test_no_two_core_rules_yield_to_each_other(rule: Rule) -> None:
    by_id = {one.id: one for one in rules()}
    unknown = [other for other in rule.yields_to if other not in by_id]
    assert not unknown, f"{rule.id} yields to what does not exist: {unknown}"
    mutual = [other for other in rule.yields_to if rule.id in by_id[other].yields_to]
    assert not mutual and rule.id not in rule.yields_to, (
        f"{rule.id} and {mutual} yield to each other: both would vanish"
    )


def test_core_rules_do_not_yield_in_a_circle() -> None:
    """In a circle all of its findings would vanish, each explained by the next."""
    after = {rule.id: rule.yields_to for rule in rules()}
    done: set[str] = set()

    def walk(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, f"circle: {' -> '.join((*path[path.index(name) :], name))}"
        if name not in done:
            for other in after.get(name, ()):
                walk(other, (*path, name))
            done.add(name)

    for name in after:
        walk(name, ())


# --- order of decision ---


@pytest.mark.parametrize("first", FIRST)
def test_contradictions_and_debug_builds_come_before_all(pack: Pack, first: str) -> None:
    pack.add(first, at_stake="idle_sm_share")
    pack.add("fault")
    pack.add("roof", **{"class": "hardware", "at_stake": None})
    found = run(pack, {"sm_imbalance": 0.9, "idle_sm_share": 0.2})
    assert found.verdict.rule == first and ids(found) == [first, "fault"] and found.verdict.confidence == "high"


def test_of_the_two_a_contradiction_comes_first(pack: Pack) -> None:
    for name in reversed(FIRST):
        pack.add(name)
    assert run(pack, {"sm_imbalance": 0.9}).verdict.rule == FIRST[0] == "inconsistent-data"


def test_with_no_rule_at_all_there_is_an_answer(pack: Pack) -> None:
    pack.add("never", "waves > 9", examples={"base": {"waves": 10.0}, "silent": [{"waves": 1.0}]})
    found = run(pack, {})
    assert (found.verdict.rule, found.verdict.klass, found.verdict.confidence) == (FALLBACK, "unknown", "low")


def test_the_fallback_rule_gives_its_own_sentence_and_finding(pack: Pack) -> None:
    pack.add(
        FALLBACK, "waves > 9", examples={"base": {"waves": 10.0}, "silent": [{"waves": 1.0}]}, **{"class": "unknown"}
    )
    found = run(pack, {})
    assert found.verdict.rule == FALLBACK and ids(found) == [FALLBACK]
    assert found.verdict.sentence == f"{FALLBACK} says so"


def test_the_resource_that_binds_is_the_answer_when_nothing_fires(pack: Pack) -> None:
    fires: dict[str, Scalar] = {"binding_resource": "l2", "l2_utilization": 0.9}
    silent: list[dict[str, Scalar]] = [{"l2_utilization": 0.1}, {"binding_resource": "hbm"}]
    pack.add(
        "roof",
        {"all": ["binding_resource == 'l2'", "l2_utilization >= 0.6"]},
        examples={"base": fires, "silent": silent},
        **{"class": "hardware", "at_stake": None},
    )
    half: dict[str, Scalar] = {"binding_resource": "l2", "top_utilization": 0.5, "l2_utilization": 0.5}
    found = run(pack, half)
    assert (found.verdict.rule, found.verdict.confidence, found.findings) == ("roof", "low", ())
    idle: dict[str, Scalar] = {"binding_resource": "l2", "top_utilization": 0.2, "l2_utilization": 0.2}
    assert run(pack, idle).verdict.rule == FALLBACK


# --- confidence ---


@pytest.mark.parametrize(
    ("share", "other", "confidence"),
    [(0.6, 0.0, "high"), (0.45, 0.1, "high"), (0.25, 0.0, "medium"), (0.6, 0.55, "medium"), (0.12, 0.11, "medium")],
)
def test_confidence_of_a_finding_is_its_lead_and_its_low_end(
    pack: Pack, share: float, other: float, confidence: str
) -> None:
    pack.add("one")
    pack.add("two", at_stake="idle_sm_share")
    found = run(pack, {"sm_imbalance": share, "idle_sm_share": other})
    assert found.verdict.rule == "one"
    assert found.verdict.confidence == confidence, f"{share} before {other}: {found.verdict.confidence}"


@pytest.mark.parametrize(("top", "confidence"), [(0.95, "high"), (0.85, "high"), (0.8, "medium"), (0.69, "low")])
def test_confidence_of_a_roof_is_how_full_it_is(pack: Pack, top: float, confidence: str) -> None:
    pack.add("roof", **{"class": "hardware", "at_stake": None})
    found = run(pack, {"top_utilization": top, "binding_resource": "fp32"})
    assert found.verdict.confidence == confidence


@pytest.mark.parametrize(("resource", "confidence"), [("hbm", "medium"), ("l2", "medium"), ("fp32", "high")])
def test_a_footprint_in_l2_lowers_memory_verdicts(pack: Pack, resource: str, confidence: str) -> None:
    pack.add("roof", **{"class": "hardware", "at_stake": None})
    known: dict[str, Scalar] = {"top_utilization": 0.95, "binding_resource": resource, "footprint_in_l2": True}
    assert run(pack, known).verdict.confidence == confidence


def test_without_opcodes_no_confidence_is_high(pack: Pack) -> None:
    pack.add("one")
    bare = kernel(opcodes={})
    assert run(pack, {"sm_imbalance": 0.9}, bare).verdict.confidence == "medium"


# --- gains ---


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.75, 0.9])
def test_the_expected_gain_is_the_formula_of_the_contract(share: float) -> None:
    gain = speedup(share, None, None)
    assert gain.expected == pytest.approx(1 / (1 - share))
    assert gain.low <= gain.expected <= gain.high


@pytest.mark.parametrize("low", [None, 0.0, 0.2, 0.9])
@pytest.mark.parametrize("high", [None, 0.0, 0.6, 1.0])
@pytest.mark.parametrize("share", [0.0, 0.05, 0.3, 0.8, 1.0])
def test_low_expected_high_are_in_order_and_finite(share: float, low: float | None, high: float | None) -> None:
    gain = speedup(share, low, high)
    assert 1 <= gain.low <= gain.expected <= gain.high <= 1 / (1 - MOST) + 1e-9, gain


def test_a_rules_interval_is_used_and_put_in_order(pack: Pack) -> None:
    pack.add("one", at_stake_low="idle_sm_share", at_stake_high="wave_tail_idle")
    found = run(pack, {"sm_imbalance": 0.5, "idle_sm_share": 0.25, "wave_tail_idle": 0.75}).findings[0].speedup
    assert found is not None and (found.low, found.expected, found.high) == pytest.approx((4 / 3, 2.0, 4.0))
    crossed = run(pack, {"sm_imbalance": 0.5, "idle_sm_share": 0.9, "wave_tail_idle": 0.1}).findings[0].speedup
    assert crossed is not None and (crossed.low, crossed.high) == pytest.approx((2.0, 2.0))
    unknown = stakes(pack.rules()[0], recorded.FactEnv(facts.context(kernel(), {}, (), {"waves": 2.0})))
    assert unknown.expected is None and unknown.low is None, unknown


def test_a_finding_without_a_stake_has_no_gain(pack: Pack) -> None:
    pack.add("one", at_stake=None)
    found = run(pack, {})
    assert found.findings[0].at_stake is None and found.findings[0].speedup is None
    assert found.verdict.rule == "one" and found.verdict.speedup is None


# --- what is unknown, and what nearly fired ---


def test_a_rule_with_an_unknown_fact_is_not_evaluated(pack: Pack) -> None:
    example = {"base": {"registers_per_thread": 2.0}, "silent": [{"registers_per_thread": 0.0}]}
    pack.add("one", "registers_per_thread > 1", examples=example)
    found = run(pack, {})
    missing = {n.rule: n for n in found.not_evaluated}["one"]
    assert missing.missing == ("launch__registers_per_thread",)
    assert missing.collect_with == "ncu --metrics launch__registers_per_thread"


@pytest.mark.parametrize(
    ("missing", "option"),
    [
        (["source counters (SASS by address)"], "SourceCounters"),
        (["sass__inst_executed_per_opcode_with_modifier_all"], "InstructionStats"),
        (["inst_executed"], "--import-source yes"),
        (["declared useful_flops"], "--useful-flops"),
        (["dram__bytes_read.sum", "dram__bytes_read.sum"], "--metrics dram__bytes_read.sum"),
        (["l1tex__t_sectors.sum (reads 229 %)"], "--metrics l1tex__t_sectors.sum"),
        (["waves (not defined for this kernel)"], "--set full"),
    ],
)
def test_collect_with_names_the_option(missing: list[str], option: str) -> None:
    found = collect_with(missing)
    assert option in found and found.count("dram__bytes_read") <= 1, found


def test_collect_with_gives_no_pattern_that_ncu_refuses() -> None:
    found = collect_with(["sm__ops_path_tensor_src_*.sum"])
    assert "*" not in found, found


def test_yields_to_names_a_rule_that_exists(pack: Pack) -> None:
    pack.add("symptom", yields_to=["no-such-rule"])
    with pytest.raises(DiagnoseError, match="no-such-rule"):
        pack.rules()


def test_a_near_miss_is_one_failed_condition_among_several(pack: Pack) -> None:
    example = {"base": {"waves": 2.0, "grid_blocks": 10.0}, "silent": [{"waves": 0.5}, {"grid_blocks": 1.0}]}
    pack.add("near", {"all": ["waves > 1", "grid_blocks > 9"]}, examples=example)
    near = run(pack, {"waves": 2.0, "grid_blocks": 1.0}).rejected[0]
    assert near.near and [e.fact for e in near.because] == ["grid_blocks"] and near.because[0].threshold == 9
    far = run(pack, {"waves": 0.5, "grid_blocks": 1.0}).rejected[0]
    assert not far.near and len(far.because) == 2


def test_evidence_of_a_finding_is_what_held(pack: Pack) -> None:
    pack.add("one", show=["grid_blocks", "sm_count"])
    found = run(pack, {"sm_imbalance": 0.3, "grid_blocks": 7.0}).findings[0]
    decisive = [e for e in found.evidence if e.op]
    assert [(e.fact, e.value, e.op, e.threshold, e.holds) for e in decisive] == [("waves", 2.0, ">", 1.0, True)]
    context = {e.fact: e for e in found.evidence if not e.op}
    assert context["grid_blocks"].value == 7.0 and context["grid_blocks"].holds is None
    assert context["sm_count"].value is None and context["sm_count"].missing
    assert found.expect == {"fact": "waves", "op": "<=", "value": 1.0}


def test_where_points_at_code_with_shares_of_the_samples(pack: Pack) -> None:
    pack.add("one", where=[{"role": "cause", "select": "opcode:LDG", "top": 1}])
    lines = (
        SassLine(0, "LDG.E R2, [R4.64]", 10.0, samples=5),
        SassLine(16, "@P0 LDG.E R3, [R6.64]", 10.0, samples=15, file="k.cu", line=7),
        SassLine(32, "FADD R2, R2, R3", 10.0, samples=80),
    )
    found = run(pack, {"sm_imbalance": 0.3}, kernel(lines=lines)).findings[0]
    assert [(w.role, w.pc, w.share, w.file, w.line) for w in found.where] == [("cause", 16, 0.15, "k.cu", 7)]


@pytest.mark.parametrize("opcode", ["UTMALDG", "UBLKCP", "PRMT", "TEX"])
def test_where_finds_opcodes_that_begin_like_a_predicate(pack: Pack, opcode: str) -> None:
    pack.add("one", where=[{"role": "cause", "select": f"opcode:{opcode}", "top": 1}])
    lines = (SassLine(0, f"@P1 {opcode}.2D [UR8], [UR4]", 10.0, samples=5),)
    assert run(pack, {"sm_imbalance": 0.3}, kernel(lines=lines)).findings[0].where, opcode


# --- architectures ---


def test_a_rule_for_other_gpus_is_not_asked(pack: Pack) -> None:
    pack.add("hopper", applies_to={"arch": "sm_90"})
    assert ids(run(pack, {"sm_imbalance": 0.4})) == ["hopper"]
    ada = kernel({"device__attribute_compute_capability_major": 8.0, "device__attribute_compute_capability_minor": 9.0})
    other = run(pack, {"sm_imbalance": 0.4}, ada)
    assert not other.findings and not other.not_evaluated and not other.rejected


def test_on_an_unknown_gpu_a_rule_for_one_is_not_evaluated(pack: Pack) -> None:
    pack.add("hopper", applies_to={"arch": ">=sm_90"})
    found = run(pack, {"sm_imbalance": 0.4}, kernel({}))
    assert not found.findings
    assert [(n.rule, n.missing) for n in found.not_evaluated] == [
        ("hopper", ("device__attribute_compute_capability_major",))
    ]


# Core rules that ask for, or advise, what only some GPUs have: the contract's data paths that they stand on.
STANDS_ON = {
    "small-wgmma-n": ("wgmma",),
    "wgmma-serialized": ("wgmma",),
    "legacy-mma": ("mma", "wgmma"),
    "tma-overhead": ("tma",),
    "cluster-placement": ("cluster",),
    "no-async-copy": ("cp-async",),
    "sparse-not-used": ("sparse-mma",),
    "no-tensor-core": ("mma",),
    "pipeline-wait": ("mbarrier",),
}
# sm_100 has tcgen05 in wgmma's place, and the rule for warp-level mma there is the same one (contract, legacy-mma).
ALSO_ON = {"legacy-mma": {100, 103, 110}}


@pytest.mark.parametrize("name", STANDS_ON)
def test_a_rule_applies_only_where_its_path_exists(name: str) -> None:
    rule = recorded.rule(name)
    wrong = [
        (sm.sm, path)
        for sm in architectures()
        if rule.applies(f"sm_{sm.sm}") and sm.sm not in ALSO_ON.get(name, ())
        for path in STANDS_ON[name]
        if not sm.has(path)
    ]
    assert not wrong, f"{name} is asked of GPUs without the path: {wrong}"


@pytest.mark.parametrize("name", sorted(set(STANDS_ON) - {"sparse-not-used", "no-tensor-core", "pipeline-wait"}))
def test_a_rule_is_asked_of_every_gpu_that_has_its_path(name: str) -> None:
    rule = recorded.rule(name)
    left_out = [
        sm.sm for sm in architectures() if not rule.applies(f"sm_{sm.sm}") and all(map(sm.has, STANDS_ON[name]))
    ]
    assert not left_out, f"{name} is not asked of {left_out}"


def test_warp_level_mma_is_also_a_fault_where_tcgen05_serves() -> None:
    rule = recorded.rule("legacy-mma")
    assert [sm.sm for sm in architectures() if sm.has("tcgen05") and not rule.applies(f"sm_{sm.sm}")] == []


_NAMES = {
    "wgmma": r"\bwgmma", "tma": r"\bTMA\b|\btma_", "cp-async": r"cp\.async|cp_async_", "cluster": r"\bcluster_",
    "tcgen05": r"tcgen05",
}  # fmt: skip
# Rules that say `this kernel has none of it` and so mean nothing where the path does not exist.
_NEGATIVE = {"spin-wait", "occupancy-registers", "occupancy-smem", "occupancy-block"}


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.id)
def test_conditions_on_a_path_are_asked_only_where_it_exists(rule: Rule) -> None:
    """`No rule asks Ada for TMA or Volta for cp.async`: a condition that needs a path needs an architecture with it."""
    if rule.id in _NEGATIVE:
        return
    for path, pattern in _NAMES.items():
        needs = [leaf.text for leaf in rule.leaves if re.search(pattern, leaf.text) and not leaf.text.endswith("== 0")]
        if needs and rule.id != "no-async-copy":
            wrong = [sm.sm for sm in architectures() if rule.applies(f"sm_{sm.sm}") and not sm.has(path)]
            assert not wrong, f"{rule.id} asks sm_{wrong} for {path}: {needs}"


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.id)
def test_core_rules_are_complete(rule: Rule) -> None:
    assert rule.title and rule.why and rule.change and rule.leaves, rule.id
    assert (rule.at_stake is None) == (rule.klass in {"hardware", "unknown"}), f"{rule.id}: {rule.klass}"
