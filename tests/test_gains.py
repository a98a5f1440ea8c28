"""What a fix can recover (`diagnose/facts/gains.py`): each argument of the next bound on values set by hand."""

from __future__ import annotations

from typing import Any

import pytest

import recorded

_ELAPSED = ".avg.pct_of_peak_sustained_elapsed"
_COPY = "faults/sum-steps"  # waits for loads: every resource far from full


def _stake(fact: str, name: str = _COPY, metrics: dict[str, Any] | None = None, **declared: Any) -> float:
    """A stake with other facts as declared, and some metrics changed."""
    kernel = recorded.changed(recorded.profile(name), metrics)
    value = recorded.context_of(kernel, declared).value(fact)
    assert value is not None
    return value


def test_waiting_is_a_share_of_the_blocks_time() -> None:
    # Half of the SMs idle while others wait for 40 of 50 %: without that wait the kernel takes a fifth, not 60 %.
    known: dict[str, Any] = {"exposed_membar": 0.4, "top_utilization": 0.1}
    assert _stake("stake_fence", sm_active=0.5, **known) == pytest.approx(0.8)
    assert _stake("stake_fence", sm_active=1.0, **known) == pytest.approx(0.4)


def test_a_serial_section_goes_down_to_memory() -> None:
    section: dict[str, Any] = {"serial_section": True, "stall_barrier": 0.7, "exposed_barrier": 0.3, "sm_active": 1.0}
    # One warp of eight works, seven wait: their 70 % are seven eighths of the sections' time.
    assert _stake("stake_barrier", block_threads=256, **section) == pytest.approx(0.8)
    # A block of one warp has nobody who waits for it.
    assert _stake("stake_barrier", block_threads=32, **section) == pytest.approx(0.3)
    full = _stake("stake_barrier", "reduction/scalar", block_threads=256, **section)
    hbm = recorded.context("reduction/scalar").value("hbm_utilization")
    assert hbm is not None and full == pytest.approx(1 - hbm / 0.95)


def test_idle_lanes_recover_no_more_than_memory_leaves() -> None:
    name = "faults/evolve-in-place"
    free, busy = _stake("stake_divergence", name), _stake("stake_divergence", name, {f"lts__t_sectors{_ELAPSED}": 60.0})
    assert free > 0.7 and busy < 0.35


def test_a_shorter_division_costs_issue_slots_and_no_memory() -> None:
    kernel = recorded.changed(
        recorded.profile(_COPY), opcodes={"I2F.U32.RP": 1.0, "LDG.E": 4.0, "FADD": 35.0}, lines=()
    )
    context = recorded.context_of(kernel)
    assert context.value("software_path_share") == pytest.approx(20 / 40)
    assert context.value("software_path_kept") == pytest.approx(3 / 40)
    # HBM at half bounds it alike whether the sequence shrinks to nothing or to a sixth.
    at_half = "faults/h-rope-computed"
    assert _stake("stake_software_path", at_half, software_path_kept=0.0) == pytest.approx(
        _stake("stake_software_path", at_half, software_path_kept=0.15)
    )


def test_scattered_requests_leave_l2s_tags() -> None:
    name = "faults/sparse-by-thread"
    kernel = recorded.profile(name)
    sectors = f"lts__t_sectors{_ELAPSED}"
    held = kernel.number(sectors)
    assert held is not None
    whole = _stake("stake_uncoalesced", name)
    # Were the sectors themselves what fills L2, only their waste would go.
    busiest = max(kernel.number(f"{part}{_ELAPSED}") or 0.0 for part in ("lts__t_tag_requests", "lts__t_sectors"))
    assert busiest > held and whole > _stake("stake_uncoalesced", name, {sectors: busiest})


def test_contended_atomics_bound_nothing_by_what_they_ask_of_l2() -> None:
    name = "faults/count-direct"
    returned = f"lts__lts2xbar_cycles_active{_ELAPSED}"
    asked = _stake("stake_contention", name)
    assert asked > 0.99 > _stake("stake_contention", name, {returned: 10.0})


def test_local_memory_leaves_hbm_what_is_read_once() -> None:
    name = "faults/tally-private"
    streamed = _stake("stake_local_array", name)
    # Were all of HBM's traffic the stream's, HBM would bind afterwards as it does now.
    hbm = recorded.context(name).value("hbm_bytes")
    assert hbm is not None
    kept = _stake("stake_local_array", name, hbm_bytes=hbm, load_l2_bytes=hbm)
    assert kept < streamed and kept <= 1 - (recorded.context(name).value("hbm_utilization") or 0.0)


def test_padded_tiles_take_what_feeds_them_along() -> None:
    name = "faults/layers-single"
    work = recorded.declared(name)
    context = recorded.context_of(recorded.profile(name), work)
    useful, issued = work["useful_flops"], context.value("issued_tensor_flops")
    assert issued and isinstance(useful, float)
    assert context.value("stake_padding") == pytest.approx(1 - useful / issued, abs=0.01)


def test_behind_a_queue_of_constants_every_wait_goes() -> None:
    known: dict[str, Any] = {"exposed_constant_miss": 0.0, "exposed_constant": 0.6, "no_issue": 0.9, "sm_active": 1.0}
    full = _stake("stake_constant", exposed_mio_throttle=0.6, **known)
    # Without the full queue they are waits of their own.
    assert _stake("stake_constant", exposed_mio_throttle=0.2, **known) == pytest.approx(0.6)
    assert full > 0.6


def test_sms_without_blocks_stay_without() -> None:
    # A tenth of the SMs works: without its software paths they come nearer to their ceiling, the others do not.
    known: dict[str, Any] = {"software_path_share": 0.5, "software_path_kept": 0.05}
    few, all_of_them = (_stake("stake_software_path", "faults/digits-direct", sm_active=n, **known) for n in (0.1, 1.0))
    assert 0 < few < all_of_them


def test_a_tree_between_barriers_goes_down_to_memory() -> None:
    name = "reduction/tree-divergent"
    context = recorded.context(name)
    hbm = context.value("hbm_utilization")
    assert context.fact("barrier_tree") is True and context.value("stake_divergence") == 0
    # A warp that reduces by shuffles reads the same bytes; `reduction/shuffle` takes a fifth of the time a byte.
    assert hbm is not None and context.value("stake_barrier") == pytest.approx(1 - hbm / 0.95)
    # Without opcodes nobody knows how many barriers there are: idle lanes are what is seen.
    unknown = recorded.context_of(recorded.changed(recorded.profile(name), opcodes={}, thread_opcodes={}, lines=()))
    assert unknown.fact("barrier_tree") is None and (unknown.value("stake_divergence") or 0) > 0.3


def test_wgmma_shortens_no_waits_for_copies() -> None:
    assert _stake("stake_legacy_mma", "gemm/mma", exposed_copy_group=0.3) == pytest.approx(0.7 / 3, rel=0.01)
    # And no more goes than the next bound leaves.
    full = {"exposed_copy_group": 0.0, "top_utilization": 0.99}
    context = recorded.context_of(recorded.profile("gemm/mma"), full)
    best = context.value("stake_legacy_mma_best")
    assert best is not None and (context.value("stake_legacy_mma") or 0) <= best


def test_writes_to_host_memory_are_seen() -> None:
    metric = "lts__t_sectors_srcunit_tex_aperture_sysmem_op_write.sum"
    kernel = recorded.profile("faults/sum-steps")
    missed = kernel.number("lts__t_sectors_lookup_miss.sum")
    assert missed is not None
    assert recorded.context_of(kernel).value("host_write_share") == 0
    wrote = recorded.context_of(recorded.changed(kernel, {metric: missed / 9}))
    assert wrote.value("host_write_share") == pytest.approx(0.1)
    assert recorded.diagnose(wrote.kernel, {}).verdict.rule == "host-memory"


# --- narrow accesses ---

_BYTES = {"LDG.E.U8.CONSTANT": 8e6, "STG.E.U8": 8e6, "IADD3": 50e6}
_FROM_L2 = "l1tex__m_xbar2l1tex_read_sectors_mem_lg_op_ld.sum"


def _narrow(opcodes: dict[str, float], sectors: float) -> Any:
    kernel = recorded.changed(
        recorded.profile("faults/average-bytes"),
        {_FROM_L2: sectors},
        opcodes=opcodes,
        thread_opcodes={name: 32 * n for name, n in opcodes.items()},
    )
    return recorded.context_of(kernel)


def test_bytes_that_cross_once_are_a_stream_whatever_else_is_loaded() -> None:
    # Two scales that all lanes share: they ask for 8 times the bytes of the stream and bring none.
    with_scales = _narrow(_BYTES | {"LDG.E.CONSTANT": 16e6}, 8e6)
    assert with_scales.fact("subword_stream") is True
    assert with_scales.value("lane_bytes") == pytest.approx((2 * 4 + 1 + 1) / 4)
    assert with_scales.value("stream_lane_bytes") == pytest.approx(1.0)
    # A byte from each of three planes, or the three of a pixel: their spans are what crosses.
    assert _narrow({"LDG.E.U8": 24e6, "STG.E.U8": 8e6}, 24e6).fact("subword_stream") is True


def test_bytes_asked_for_again_or_strewn_are_no_stream() -> None:
    assert _narrow(_BYTES | {"LDG.E.U8": 16e6}, 8e6).fact("subword_stream") is False, "each byte three times"
    assert _narrow(_BYTES, 4 * 8e6).fact("subword_stream") is False, "a sector for eight lanes"
    words = _narrow({"LDG.E": 8e6, "STG.E": 8e6}, 32e6)
    assert words.fact("subword_stream") is False and words.value("stream_lane_bytes") == pytest.approx(4.0)


def test_a_scale_beside_each_byte_hides_no_narrow_access() -> None:
    assert recorded.outcome("narrow-access", _narrow(_BYTES | {"LDG.E.CONSTANT": 16e6}, 8e6).kernel).state is True
    again = _narrow(_BYTES | {"LDG.E.U8": 16e6, "LDG.E.CONSTANT": 16e6}, 8e6).kernel
    assert recorded.outcome("narrow-access", again).state is False


def test_without_doubles_their_constants_need_no_moves() -> None:
    full: dict[str, Any] = {"name": "faults/energy-general", "conversions_on_sfu": 0.0, "conversion_share": 0.02}
    full["software_path_share"] = 0.0
    literals = _stake("stake_double", **full, double_move_share=0.3, double_function_share=0.0)
    functions = _stake("stake_double", **full, double_move_share=0.0, double_function_share=0.3)
    plain = _stake("stake_double", **full, double_move_share=0.0, double_function_share=0.0)
    assert literals > functions + 0.1 > plain + 0.2, "moves go, half of a function's polynomial, no plain arithmetic"


def test_more_warps_cover_no_more_than_they_are() -> None:
    # Half of the slots are taken: at best twice the loads are on their way.
    known: dict[str, Any] = {"exposed_load": 0.8, "top_utilization": 0.1}
    assert _stake("stake_more_warps", occupancy_achieved=0.5, **known) == pytest.approx(0.5)
    few = _stake("stake_more_warps", occupancy_achieved=0.06, **known)
    assert few == _stake("stake_load_latency", **known) > 0.8, "sixteen times the warps cover all of it"
    assert _stake("stake_more_warps", occupancy_achieved=1.0, **known) == 0.0


def test_tries_of_an_mbarrier_are_waiting_and_no_work() -> None:
    # Half of the time nothing issues for copies, a fifth goes into tries: with both, only other work is left.
    known: dict[str, Any] = {"exposed_mbarrier": 0.5, "exposed_copy_group": 0.0, "issue_active": 0.25, "sm_active": 1.0}
    assert _stake("stake_pipeline", issued_tries=0.0, **known) == pytest.approx(0.5)
    assert _stake("stake_pipeline", issued_tries=0.2, **known) == pytest.approx(0.7)
    # Slots full of tries bound nothing; slots full of work leave what they leave.
    busy = {f"sm__issue_active{_ELAPSED}": 70.0}
    tried = _stake("stake_pipeline", metrics=busy, issued_tries=0.2, **known)
    assert tried > _stake("stake_pipeline", metrics=busy, issued_tries=0.0, **known) + 0.2


def test_conversions_to_double_free_their_issue_slots_and_others_do_not() -> None:
    kernel = recorded.profile("faults/scales-typed")  # XU at 0.94, issue at 0.70

    def stake(of: str) -> float:
        opcodes = {of: 20.0, "FFMA": 80.0}
        value = recorded.context_of(recorded.changed(kernel, opcodes=opcodes), {"integer_share": 0.0}).value(
            "stake_conversion"
        )
        assert value is not None
        return value

    # Next is the scheduler: with all of its slots where an integer trick converts, less a fifth where nothing does.
    assert stake("F2I.NTZ") == pytest.approx(1 - 0.70 / 0.95, abs=0.01)
    assert stake("F2F.F64.F32") == pytest.approx(1 - 0.8 * 0.70 / 0.95, abs=0.01)


def test_waiting_for_wgmma_holds_the_product_itself() -> None:
    known: dict[str, Any] = {"exposed_wgmma": 0.5, "sm_active": 1.0, "top_utilization": 0.4}
    assert _stake("stake_wgmma_covered", tensor_utilization=0.4, **known) == pytest.approx(0.5)
    # Half of the time stays if the rest covers the products, nine tenths if the two follow each other.
    assert _stake("stake_wgmma_wait", tensor_utilization=0.4, **known) == pytest.approx(1 - (0.5 * 0.9) ** 0.5)
    # Short products leave latency alone; where the pipe works all through the wait, only covering it helps.
    assert _stake("stake_wgmma_wait", tensor_utilization=0.0, **known) == pytest.approx(0.5)
    assert _stake("stake_wgmma_wait", tensor_utilization=0.5, **known) == pytest.approx(1 - 0.5**0.5)
    assert _stake("stake_wgmma_wait", **{**known, "exposed_wgmma": 0.0}, tensor_utilization=0.4) == 0.0


def test_what_completes_sectors_is_counted_once() -> None:
    # Loads ask for 1 of 8 GB; of the other reads 3 complete sectors; 4 GB are written for 1: 2 of 12 GB stay.
    gb = 1e9
    known: dict[str, Any] = {
        "load_waste": 0.875, "store_waste": 0.875, "load_bytes_asked": gb, "store_bytes_asked": gb,
        "hbm_read_bytes": 8 * gb, "hbm_write_bytes": 4 * gb, "hbm_bytes": 12 * gb, "write_fill_bytes": 3 * gb,
    }  # fmt: skip
    # The kernel fills HBM now, and would with what is left; twice taken off, nothing would be.
    assert 1 - _stake("stake_uncoalesced", "faults/interleave-planes", **known) == pytest.approx(
        2 / 12 / 0.95, rel=0.01
    )


def test_swaps_go_down_to_one_a_value() -> None:
    known: dict[str, Any] = {
        "l1_utilization": 0.95, "hbm_utilization": 0.02, "issue_utilization": 0.3, "exposed_shared_atomic": 0.1,
    }  # fmt: skip
    assert _stake("stake_shared_atomics", retried_swaps=0.0, **known) == pytest.approx(1 - 0.2 / 0.95)
    assert _stake("stake_shared_atomics", retried_swaps=0.9, **known) == pytest.approx(1 - 0.1)
    # Memory bounds them both alike.
    known["hbm_utilization"] = 0.5
    assert _stake("stake_shared_atomics", retried_swaps=0.9, **known) == pytest.approx(1 - 0.5 / 0.95)


def test_fp8_goes_down_to_its_own_products() -> None:
    kernel = recorded.profile("faults/bytes-by-warp")  # issue 0.58, Tensor 0.49, L1 0.44
    unpacking = {"HMMA.16816.F32": 20.0, "F2FP.F16.E4M3.UNPACK_B": 40.0, "FADD": 40.0, "LDSM.16.M88.4": 10.0}

    def stake(opcodes: dict[str, float], metrics: dict[str, Any] | None = None) -> float:
        value = recorded.context_of(recorded.changed(kernel, metrics, opcodes=opcodes)).value("stake_fp8_native")
        assert value is not None
        return value

    # Nothing but what the emulation needs: half of L1's use is the next bound. Where as much else is issued, that is.
    assert stake(unpacking) > stake({**unpacking, "LOP3.LUT": 110.0}) + 0.05 > 0.4
    # Sums that are no products' own stay.
    assert stake({**unpacking, "FADD": 150.0}) < stake(unpacking)
    # HBM at its limit leaves nothing.
    assert stake(unpacking, {f"gpu__dram_throughput{_ELAPSED}": 95.0}) < 0.05


def test_products_on_tensor_cores_go_down_to_their_operands() -> None:
    name = "faults/product-outer"  # issue 0.80, L1 0.72, FMA pipe 0.71: bf16 that lies in shared memory as float
    as_float, as_it_is = (
        _stake("stake_tensor_cores", name),
        _stake("stake_tensor_cores", name, sixteen_bit_matrix=False),
    )
    assert as_float > as_it_is + 0.1 > 0.5, "twice the bytes of 16-bit data in shared memory"
    # Where the pipe multiplies doubles, twice its rate is what DMMA has; data that L2 cannot bring faster bound both.
    kernel = recorded.profile(name)
    doubles = {f"sm__pipe_fp64_cycles_active{_ELAPSED}": 90.0, f"sm__pipe_fma_cycles_active{_ELAPSED}": 0.0}
    doubles |= {f"sm__pipe_fmaheavy_cycles_active{_ELAPSED}": 0.0, f"sm__inst_executed_pipe_fma{_ELAPSED}": 0.0}
    context = recorded.context_of(recorded.changed(kernel, doubles, opcodes={"DFMA": 80.0, "LDS.128": 20.0}))
    share = context.value("stake_tensor_cores")
    assert share is not None and 0.45 < share < 0.55
    assert _stake("stake_tensor_cores", name, {f"lts__t_sectors{_ELAPSED}": 90.0}) < 0.1


_REDUCED = {
    "I2F.F64.S64": 1.0,
    "F2F.F32.F64": 1.0,
    "DMUL": 1.0,
    "STL": 7.0,
    "LDL": 3.0,
    "IMAD.WIDE.U32": 6.0,
    "FFMA": 241.0,
}


def test_sines_of_large_arguments_hold_the_local_memory_of_their_reduction() -> None:
    def asked(opcodes: dict[str, float]) -> Any:
        kernel = recorded.profile("faults/tally-private")  # L2 full of local memory
        return recorded.context_of(recorded.changed(kernel, opcodes=opcodes))

    reduced = asked(_REDUCED)
    assert reduced.value("local_of_reductions") == 1.0
    assert reduced.value("software_path_share") == pytest.approx(130 / 260)
    assert reduced.value("stake_software_path") > 0.3 and reduced.value("stake_local_array") == 0.0
    # An array beside it, or a double made of 64 bits for another reason: the local memory is the code's own.
    both = asked({**_REDUCED, "STL": 70.0})
    assert both.value("local_of_reductions") == pytest.approx(0.1) and both.value("stake_local_array") > 0.3
    own = asked({**_REDUCED, "STL": 3.0})
    assert own.value("local_of_reductions") == 0.0 and own.value("software_path_share") == 0.0
