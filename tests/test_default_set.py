"""The metrics of a default run: what is left out of it changes no verdict."""

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

import recorded
from diagnose import details
from diagnose.api import Options, live_metrics, load_rules
from diagnose.collect.plan import metric_set
from diagnose.facts import work
from diagnose.model import KernelProfile

VERSION = (2025, 3, 1)
GEMM = "gemm/tiled"
SPLIT = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"


@cache
def wanted() -> tuple[str, ...]:
    """What the rules read: the packs are loaded once for all kernels."""
    return live_metrics(load_rules(Options()))


def as_by_default(kernel: KernelProfile) -> KernelProfile:
    """The profile without what a default run leaves for a second one, and without counts by access."""
    left = metric_set("adaptive", wanted(), VERSION).deferred
    other = ("memory_l", "sm__ops_path_tensor_")  # the counters of a whole section: more source types than rules read
    kept = {m: value for m, value in kernel.metrics.items() if m not in left and not m.startswith(other)}
    unsaid: dict[str, Any] = {
        "shared_wavefronts": None,
        "shared_wavefronts_ideal": None,
        "l2_sectors": None,
        "l2_sectors_ideal": None,
    }
    return replace(kernel, metrics=kept, lines=tuple(replace(line, **unsaid) for line in kernel.lines))


@pytest.mark.parametrize("name", recorded.names())
def test_deferred_metrics_change_no_verdict(name: str) -> None:
    declared = recorded.declared(name)
    whole = recorded.diagnosis(name)
    short = recorded.diagnose(as_by_default(recorded.profile(name)), declared)
    assert (short.verdict.rule, short.verdict.confidence) == (whole.verdict.rule, whole.verdict.confidence)


def test_opcodes_tell_what_the_tensor_counters_count() -> None:
    seen = set()
    for name in recorded.names():
        c = recorded.context(name)
        done, counted = work.operations(c), work.counted_tensor(c)
        if done is not None and done.tensor and counted is not None:
            seen.add(done.path)
            assert c.value("issued_tensor_flops") == done.tensor == pytest.approx(counted, rel=1e-6), name
    assert {"mma", "wgmma", "fp8-wgmma", "int-mma"} <= seen


@pytest.mark.parametrize("opcode", ["UTCHMMA.2CTA", "HMMA.999"])
def test_tensor_operations_without_a_shape_need_the_counters(opcode: str) -> None:
    """tcgen05 writes no shape into its opcode; of an unknown one nothing is known either."""
    kernel = recorded.changed(as_by_default(recorded.profile("gemm/mma")), opcodes={opcode: 10.0})
    unknown = recorded.context_of(kernel).evaluate("issued_tensor_flops")
    assert unknown.value is None and unknown.missing == ("sm__ops_path_tensor_src_*.sum",)
    counter = {"sm__ops_path_tensor_src_fp16.sum": 4096.0}
    assert recorded.context_of(recorded.changed(kernel, counter)).value("issued_tensor_flops") == 4096.0


def test_the_default_leaves_out_what_another_counter_stands_for() -> None:
    default, deep = (metric_set(mode, wanted(), VERSION) for mode in ("adaptive", "deep"))
    of = "avg.pct_of_peak_sustained_elapsed"
    instead = {
        f"l1tex__data_bank_reads.{of}": f"l1tex__data_pipe_lsu_wavefronts.{of}",
        f"l1tex__data_bank_writes.{of}": f"l1tex__data_pipe_lsu_wavefronts.{of}",
        f"l1tex__m_xbar2l1tex_read_sectors.{of}": f"lts__lts2xbar_cycles_active.{of}",
        f"l1tex__lsuin_requests.{of}": f"sm__inst_executed_pipe_lsu.{of}",
        SPLIT: "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
    }
    for left, other in instead.items():
        assert left in default.deferred and left in deep.metrics and other in default.metrics


def test_shared_memory_without_loads_and_stores_apart_shows_how_busy_it_is() -> None:
    whole = recorded.profile(GEMM)
    rows = {row["level"]: row for row in details.memory(recorded.context_of(as_by_default(whole)))}
    wavefronts, cycles = (
        whole.number(f"l1tex__{name}.sum") for name in ("data_pipe_lsu_wavefronts_mem_shared", "cycles_elapsed")
    )
    assert wavefronts and cycles and rows["shared"]["read_bytes"] is None
    assert rows["shared"]["utilization"] == pytest.approx(wavefronts / cycles, rel=1e-5)
    counted = {row["level"]: row for row in details.memory(recorded.context(GEMM))}
    assert counted["shared"]["read_bytes"] == 128 * (whole.number(SPLIT) or 0.0)
