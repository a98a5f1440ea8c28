"""The metrics of a default run: what is left out of it changes no verdict."""

from dataclasses import replace

import pytest

import recorded
from diagnose import details
from diagnose.api import Options, live_metrics, load_rules
from diagnose.collect.plan import metric_set
from diagnose.model import KernelProfile

VERSION = (2025, 3, 1)
GEMM = "gemm/tiled"
SPLIT = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"


def as_by_default(kernel: KernelProfile, declared: bool) -> KernelProfile:
    """The profile without what a default run leaves for a second one, and without counts by access."""
    left = metric_set("adaptive", live_metrics(load_rules(Options())), VERSION, declared).deferred
    kept = {name: value for name, value in kernel.metrics.items() if name not in left and "memory_l" not in name}
    unsaid = {"shared_wavefronts": None, "shared_wavefronts_ideal": None, "l2_sectors": None, "l2_sectors_ideal": None}
    return replace(kernel, metrics=kept, lines=tuple(replace(line, **unsaid) for line in kernel.lines))


@pytest.mark.parametrize("name", recorded.names())
def test_deferred_metrics_change_no_verdict(name: str) -> None:
    declared = recorded.declared(name)
    whole = recorded.diagnosis(name)
    short = recorded.diagnose(as_by_default(recorded.profile(name), bool(declared)), declared)
    assert (short.verdict.rule, short.verdict.confidence) == (whole.verdict.rule, whole.verdict.confidence)


def test_the_default_leaves_out_what_another_counter_stands_for() -> None:
    wanted = live_metrics(load_rules(Options()))
    default, deep = (metric_set(mode, wanted, VERSION) for mode in ("adaptive", "deep"))
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
    rows = {row["level"]: row for row in details.memory(recorded.context_of(as_by_default(whole, False)))}
    wavefronts, cycles = (
        whole.number(f"l1tex__{name}.sum") for name in ("data_pipe_lsu_wavefronts_mem_shared", "cycles_elapsed")
    )
    assert wavefronts and cycles and rows["shared"]["read_bytes"] is None
    assert rows["shared"]["utilization"] == pytest.approx(wavefronts / cycles, rel=1e-5)
    counted = {row["level"]: row for row in details.memory(recorded.context(GEMM))}
    assert counted["shared"]["read_bytes"] == 128 * (whole.number(SPLIT) or 0.0)
