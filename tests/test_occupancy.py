"""The occupancy staircase: equal to ncu's own occupancy tables, and right at every step."""

from __future__ import annotations

import lzma
from dataclasses import replace
from pathlib import Path

import pytest

from diagnose import occupancy
from diagnose.gpus import catalogue
from diagnose.occupancy import Block

REPORTS = Path(__file__).resolve().parents[2] / "shared" / "reports"
HOPPER = catalogue.architecture(90)


def blocks(block, arch=HOPPER, **more):
    found = occupancy.resident(arch, block, **more)
    assert found is not None
    return found.blocks


def test_registers_step_at_multiples_of_eight_and_by_scheduler():
    # 129 registers are 136 allocated: 65536 / 4 / (136 * 32) = 3 warps a scheduler, 12 an SM; 128: 4 and 16.
    assert blocks(Block(256, 129, 0)) == 1
    assert blocks(Block(256, 128, 0)) == 2
    assert blocks(Block(128, 168, 0)) == 3
    steps = occupancy.staircase(HOPPER, Block(256, 129, 0))
    assert next((s.value, s.blocks) for s in steps if s.resource == "registers") == (128, 2)


def test_shared_memory_counts_the_systems_reserve():
    assert blocks(Block(128, 32, 232448)) == 1  # 227 KiB and 1 KiB of the system fill the SM's 228
    assert blocks(Block(128, 32, 232448 // 2)) == 1
    assert blocks(Block(128, 32, 233472 // 2 - 1024)) == 2
    steps = occupancy.staircase(HOPPER, Block(128, 32, 233472 // 2 - 1023))
    assert next((s.value, s.blocks) for s in steps if s.resource == "shared_bytes") == (233472 // 2 - 1024, 2)


def test_the_way_up_says_where_a_block_is_lost():
    steps = {(s.resource, s.blocks): s.value for s in occupancy.staircase(HOPPER, Block(256, 100, 10000))}
    now = blocks(Block(256, 100, 10000))
    assert now == 2
    assert steps["registers", now + 1] == 80
    assert steps["registers", now - 1] == 129
    lost = steps["shared_bytes", now - 1]
    assert blocks(Block(256, 100, lost)) == now - 1 and blocks(Block(256, 100, lost - 1)) == now


@pytest.mark.parametrize("sm", [75, 80, 86, 89, 90, 100, 120])
def test_every_step_is_exact(sm):
    arch = catalogue.architecture(sm)
    for threads in (32, 96, 128, 256, 512, 1024):
        for registers in (16, 40, 64, 72):
            for shared in (0, 1000, 20000, 40000):
                block = Block(threads, registers, shared)
                now = blocks(block, arch)
                for step in occupancy.staircase(arch, block):
                    key = "registers" if step.resource == "registers" else "shared_bytes"
                    assert blocks(replace(block, **{key: step.value}), arch) == step.blocks != now
                    before = step.value + (1 if step.value < getattr(block, key) else -1)
                    assert blocks(replace(block, **{key: before}), arch) == now, (block, step)
                    assert step.occupancy == step.blocks * block.warps / arch.max_warps_per_sm


def test_an_unknown_architecture_says_nothing():
    unknown = catalogue.architecture(999)
    assert occupancy.resident(unknown, Block(128, 32, 0)) is None
    assert occupancy.staircase(unknown, Block(128, 32, 0)) == ()


def _load(path, folder):
    ncu_report = pytest.importorskip("ncu_report")
    if path.suffix == ".xz":
        plain = folder / path.stem
        plain.write_bytes(lzma.decompress(path.read_bytes()))
        path = plain
    return ncu_report.load_report(str(path))


def _tables(action):
    """(table, make a Block, argument, warps) of ncu's occupancy tables, for arguments that a launch can have."""

    def value(name, default=None):
        try:
            found = action.metric_by_name(name).value()
        except Exception:
            return default
        return default if found is None else found

    major = value("device__attribute_compute_capability_major")
    if major is None or value("launch__registers_per_thread") is None:
        return
    arch = catalogue.architecture(int(major) * 10 + int(value("device__attribute_compute_capability_minor", 0)))
    reserve = int(value("launch__shared_mem_per_block_driver", 0))
    used = int(value("launch__shared_mem_per_block_static", 0)) + int(value("launch__shared_mem_per_block_dynamic", 0))
    capacity = int(value("launch__shared_mem_config_size", 0)) or None
    block = Block(int(value("launch__block_size")), int(value("launch__registers_per_thread")), used,
                  int(value("launch__barrier_count", 0)))  # fmt: skip
    for table, key in (
        ("register_count", "registers"), ("block_size", "threads"), ("shared_mem_size", "shared_bytes"),
        ("barrier_count", "barriers"),
    ):  # fmt: skip
        try:
            metric = action.metric_by_name(f"launch__occupancy_per_{table}")
        except Exception:
            continue
        if metric is None or not metric.has_correlation_ids():
            continue
        for at in range(metric.num_instances()):
            argument = int(metric.correlation_ids().value(at))
            if table == "barrier_count" and argument > 16:
                continue  # a block has at most 16
            if table == "shared_mem_size":
                # The argument includes the system's part; beyond the part of L1 set aside, or beyond what a kernel
                # gets without asking (48 KB), ncu's table is about another configuration.
                if argument < reserve or argument > min(capacity or 0, max(49152, used)):
                    continue
                argument -= reserve
            yield arch, table, replace(block, **{key: argument}), capacity, metric.value(at)


@pytest.mark.skipif(not REPORTS.is_dir(), reason="the recorded reports are not here (../shared)")
def test_equal_to_ncus_occupancy_tables(tmp_path):
    compared: dict[str, int] = {}
    for path in sorted([*REPORTS.glob("*.xz"), *REPORTS.glob("public/*.ncu-rep")]):
        for group in _load(path, tmp_path):
            for action in group:
                for arch, table, block, capacity, warps in _tables(action):
                    found = occupancy.resident(arch, block, capacity)
                    assert found is not None and found.warps == warps, (path.name, arch.sm, table, block, capacity)
                    compared[table] = compared.get(table, 0) + 1
    assert compared["register_count"] > 5000 and compared["block_size"] > 1000 and compared["shared_mem_size"] > 1000
