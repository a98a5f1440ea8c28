"""Asks every advisor of `diagnose.advice` about one kernel, with the facts that were measured of it.

What a kernel's facts do not give keeps its advisor silent. Each advisor names the headings of the articles that it
comes from (`file#heading`), and the rules and studies that decide or measure the same question.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from diagnose import advice
from diagnose.advice import Answer
from diagnose.details import exact
from diagnose.facts.context import Context
from diagnose.gpus import catalogue
from diagnose.gpus.catalogue import Architecture
from diagnose.model import Scalar
from diagnose.occupancy import Block, resident
from diagnose.sass import mix, static_facts
from diagnose.sass.cfg import WGMMA, category_of
from diagnose.sass.disassemble import Code, Instruction
from diagnose.sass.elf import KernelResources
from diagnose.sass.text import parse


def _no(why: str) -> Answer:
    return Answer(False, why)


_TARGET = re.compile(r"\b(0x[0-9a-f]+)\s*$")


@lru_cache(maxsize=32)
def _graph(arch: int | None, lines: tuple[tuple[int, str], ...]) -> static_facts.Kernel:
    """The code of a report as the readings of static code take it: labels at every address, targets named."""
    found: list[Instruction] = []
    labels: dict[str, int] = {}
    for pc, line in lines:
        parsed = parse(line)
        if parsed is None:
            continue
        text = line.rstrip(" ;")
        targets: tuple[str, ...] = ()
        match = _TARGET.search(text) if parsed.base in {"BRA", "JMP", "CALL"} else None
        if match is not None:
            text, targets = f"{text[: match.start()]}`({match[1]})", (match[1],)
        labels[hex(pc)] = len(found)
        found.append(Instruction(pc, text, parsed.opcode, parsed.base, parsed.predicate, targets))
    return static_facts.Kernel(Code("", f"sm_{arch}", tuple(found), labels), KernelResources("", 0, 0))


def _code(c: Context) -> static_facts.Kernel | None:
    """The kernel's code; None where the report has none, or where no advisor asks about such code."""
    if not c.kernel.lines or not any(op.startswith(("LDGSTS", "UTMALDG", "UBLKCP", *WGMMA)) for op in c.kernel.opcodes):
        return None
    return _graph(c.arch, _listing(c))


def _listing(c: Context) -> tuple[tuple[int, str], ...]:
    return tuple((line.pc, line.text) for line in sorted(c.kernel.lines, key=lambda line: line.pc))


def _whole(c: Context, *names: str) -> list[int] | None:
    """These facts as whole numbers; None where one of them is not known."""
    values = [c.value(name) for name in names]
    return [int(value) for value in values if value is not None] if None not in values else None


def _arch(c: Context) -> Architecture | None:
    arch = catalogue.architecture(c.arch) if c.arch is not None else None
    return arch if arch is not None and arch.known else None


def _paths(c: Context) -> frozenset[str]:
    found = c.fact("paths")
    return frozenset(found.split()) if isinstance(found, str) else frozenset()


def _copied(c: Context) -> float | None:
    """Bytes that asynchronous copies brought into shared memory."""
    per_tma, copies = c.value("bytes_per_tma"), c.value("tma_instructions")
    if per_tma is not None and copies:
        return per_tma * copies
    return mix.bytes_asked(c.kernel.thread_opcodes, "LDGSTS") or None


def _latency_cycles(c: Context, tma: bool, size: int) -> float | None:
    """Cycles of a copy, between L2 and HBM by the hit rate, as measured on this GPU (`diagnose ceilings`)."""
    sizes = (128, 1024, 8192, 32768)  # bytes that kernels/ceilings/tma.cu measures
    nearest = min(sizes, key=lambda one: abs(math.log(one / max(size, 1))))
    stem = ("latency:tma:{}:" + f"{nearest}B") if tma else "latency:load:{}"
    l2, hbm = c.ceilings.get(stem.format("l2")), c.ceilings.get(stem.format("hbm"))
    hit = c.value("l2_read_hit_rate")
    if l2 is None or hbm is None or hit is None:
        return None
    return l2.value * hit + hbm.value * (1 - hit)


def _stages(c: Context) -> Answer:
    code, arch = _code(c), _arch(c)
    found = static_facts.pipeline(code) if code is not None else None
    if code is None or found is None or found.stages < 2:
        return _no("the code shows no pipeline of copies")
    whole = _whole(c, "shared_bytes_per_block", "blocks_per_sm_limit", "block_threads", "sm_count")
    us, clock, use = (c.value(name) for name in ("duration_us", "clock_ghz", "top_utilization"))
    copied = _copied(c)
    if whole is None or arch is None or arch.shared_per_sm is None or not us or not clock or not use or not copied:
        return _no("shared memory, time, clock or the copied bytes were not measured")
    shared, blocks, threads, sms = whole
    shared -= arch.shared_reserved_per_block or 0  # ncu counts it with the block's own bytes
    tma = found.shown_by != "commit groups"
    count = found.stages
    tile = shared // count
    if not tma:
        # All warps copy: what one iteration copies is a tile, and shared memory says how many there are.
        widths = static_facts.widths(code).get("async_copy", {})
        tile = sum(int(width) * times for width, times in widths.items()) * threads
        if not tile or shared < tile:
            return _no("the bytes of a tile are not in the code")
        count = max(count, shared // tile)
    box = int(c.value("bytes_per_tma") or 0) if tma else 16
    cycles = _latency_cycles(c, tma, box)
    if cycles is None:
        return _no("the latency of copies was not measured on this GPU (diagnose ceilings)")
    tile_us = us * use / (copied / sms / tile)
    options = advice.stage_budget(
        tile, arch.shared_per_sm, arch.shared_reserved_per_block or 0, shared - count * tile, arch.shared_per_block
    )
    by_registers = _most_blocks(c, arch, threads)
    waits = [w for w in (c.value("exposed_mbarrier"), c.value("exposed_copy_group")) if w is not None]
    return advice.stages(
        latency_ns=cycles / clock,
        tile_ns=tile_us * 1e3,
        blocks=blocks,
        stages_now=count,
        tile_bytes=tile,
        options=[(b, s) for b, s in options if b <= by_registers],
        exposed=sum(waits) if waits else None,
        busiest=use,
    )


def _most_blocks(c: Context, arch: Architecture, threads: int) -> int:
    """Blocks that registers and warps alone would let onto an SM."""
    count = c.value("registers_per_thread")
    found = resident(arch, Block(threads, int(count), 0)) if count is not None else None
    return found.blocks if found is not None else 1


def _registers(c: Context) -> Answer:
    arch = _arch(c)
    whole = _whole(c, "block_threads", "registers_per_thread", "shared_bytes_per_block", "blocks_per_sm_limit")
    if arch is None or whole is None:
        return _no("the limits of this GPU, or the kernel's resources, are not known")
    threads, count, shared, blocks = whole
    # ncu's bytes have the system's reserve in them; it is added again in the arithmetic.
    block = Block(threads, count, max(0, shared - (arch.shared_reserved_per_block or 0)))
    answer = advice.registers(arch, block, no_issue=c.value("no_issue"))
    if answer.applies and answer.inputs.get("blocks") != blocks:
        return _no("another limit of this launch leaves fewer blocks")
    return answer


def _wgmma(c: Context) -> static_facts.Wgmma | None:
    code = _code(c) if c.value("wgmma_instructions") else None
    return static_facts.wgmma(code) if code is not None else None


def _operand_a(c: Context) -> Answer:
    found = _wgmma(c)
    if found is None or not found.n:
        return _no("no wgmma")
    return advice.operand_a(
        n=found.n, operands=found.operands, spill_share=_spilled(c), tensor_utilization=c.value("tensor_utilization")
    )


def _spilled(c: Context) -> float:
    """Share of spills in local memory, 0 where there are no local bytes or they are not known."""
    return (c.value("spill_share") or 0.0) if c.value("local_bytes") else 0.0


def _wgmma_n(c: Context) -> Answer:
    n, count, tensor, limiter = (
        c.value("wgmma_n"), c.value("registers_per_thread"), c.value("tensor_utilization"), c.fact("occupancy_limiter"),
    )  # fmt: skip
    blocks = c.value("blocks_per_sm_limit")
    if not n or count is None or tensor is None or blocks is None or not isinstance(limiter, str):
        return _no("no wgmma")
    return advice.wgmma_n(
        n=int(n), registers=int(count), spill_share=_spilled(c),
        blocks=int(blocks), limiter=limiter, tensor_utilization=tensor,
    )  # fmt: skip


def _cluster_size(c: Context) -> Answer:
    whole = _whole(c, "cluster_blocks", "cluster_max_active", "sm_count", "blocks_per_sm_limit", "grid_blocks")
    if whole is None or whole[0] <= 1:
        return _no("no cluster")
    size, active, sms, per_sm, grid = whole
    two, here = (c.ceilings.get(f"dsm:broadcast:cluster{blocks}") for blocks in (2, size))
    return advice.cluster_size(
        size=size, active=active, sms=sms, blocks_per_sm=per_sm, grid=grid,
        barrier_wait=c.value("exposed_cluster_barrier"),
        broadcast=(two.value, here.value) if two is not None and here is not None and "dsm" in _paths(c) else None,
    )  # fmt: skip


def _dsm_or_multicast(c: Context) -> Answer:
    size = c.value("cluster_blocks")
    if not size or size <= 1:
        return _no("no cluster")
    if not c.kernel.lines:
        return _no("the report has no code, and accesses to another block's shared memory show nowhere else")
    paths = _graph(c.arch, _listing(c)).paths
    return advice.dsm_or_multicast(
        size=int(size),
        multicast="tma-multicast" in paths,
        remote="dsm" in paths,
        tensor=bool(c.value("tensor_instructions")),
    )


def _tma_or_plain(c: Context) -> Answer:
    hbm, sms, clock = c.ceilings.get("hbm:read") or c.ceilings.get("hbm"), c.value("sm_count"), c.value("clock_ghz")
    total = sum(c.kernel.opcodes.values())
    if not total or hbm is None or not sms or not clock:
        return _no("instructions or the rate of HBM are not known")
    copies = c.value("cp_async_instructions") or 0.0
    return advice.tma_or_plain(
        bytes_per_tma=c.value("bytes_per_tma") if c.value("tma_instructions") else None,
        async_copies=copies,
        copy_share=copies / total,
        copied_bytes=_copied(c),
        gathered_share=c.value("gathered_load_share"),
        break_even=advice.break_even_bytes(hbm.value, int(sms), clock * 1e9),
        has_tma="tma" in c.available_paths,
    )


def _l2_window(c: Context) -> Answer:
    l2 = c.kernel.number("device__attribute_l2_cache_size")
    moved, use = c.value("hbm_bytes"), c.value("hbm_utilization")
    if c.arch is None or c.arch < 80 or l2 is None or moved is None or use is None:
        return _no("no access-policy windows before sm_80, or the bytes were not measured")
    return advice.l2_window(
        l2_bytes=l2, hbm_bytes=moved, useful_bytes=c.value("useful_bytes"), hbm_utilization=use,
        in_l2=c.fact("footprint_in_l2") is True,
        waste=max(c.value("load_waste") or 0.0, c.value("store_waste") or 0.0, _spilled(c)),
    )  # fmt: skip


def _shape(c: Context) -> tuple[float, float, float] | None:
    m, n, k = c.value("gemm_m"), c.value("gemm_n"), c.value("gemm_k")
    return (m, n, k) if m is not None and n is not None and k is not None else None


def _small_shape(c: Context) -> Answer:
    shape = _shape(c)
    if shape is None:
        return _no("the shape was not declared (--problem gemm:M,N,K)")
    if not _paths(c) & {"tma", "cp-async", "wgmma", "tcgen05"}:
        return _no("nothing in this kernel is asynchronous")
    code = _code(c)
    found = static_facts.pipeline(code) if code is not None else None
    m, n, k = shape
    return advice.small_shape(
        m=m, n=n, k=k, stages_now=found.stages if found is not None else None, us=c.value("duration_us")
    )


def _fp8(c: Context) -> Answer:
    if not _paths(c) & {"fp8-wgmma", "fp8-mma"}:
        return _no("no FP8 products")
    shape, us, converts, hbm = _shape(c), c.value("duration_us"), c.value("conversion_share"), c.ceilings.get("hbm")
    if shape is None:
        return _no("the shape was not declared (--problem gemm:M,N,K,fp8)")
    if us is None or converts is None or hbm is None:
        return _no("time, conversions or the rate of HBM are not known")
    m, n, k = shape
    return advice.fp8_conversions(m=m, n=n, k=k, conversion_share=converts, hbm_bytes_per_s=hbm.value, us=us)


def _fp32_units(c: Context) -> Answer:
    total = sum(c.kernel.opcodes.values())
    if c.arch is None or not total:
        return _no("instructions were not counted")
    shares = dict.fromkeys(("float", "integer"), 0.0)
    for opcode, executed in c.kernel.opcodes.items():
        name = category_of(opcode)
        if name in shares:
            shares[name] += executed / total
    return advice.fp32_units(sm=c.arch, fp32_share=shares["float"], integer_share=shares["integer"])


@dataclass(frozen=True)
class Advisor:
    """One question: how it is asked of a kernel, where it comes from, and what decides or measures the same."""

    name: str
    title: str
    ask: Callable[[Context], Answer]
    articles: tuple[str, ...]
    see: tuple[str, ...] = ()


ADVISORS: tuple[Advisor, ...] = (
    Advisor(
        "stages",
        "Stages against latency, and shared memory against blocks",
        _stages,
        ("002_81d68bc01aff1bfb#3.3 多级流水线的深度选择",),
        (
            "rule:pipeline-wait",
            "rule:occupancy-smem",
            "study:stages",
        ),
    ),
    Advisor(
        "registers",
        "Registers at a step of the occupancy staircase",
        _registers,
        ("002_81d68bc01aff1bfb#5.3 寄存器压力与occupancy的权衡不是线性的",),
        (
            "rule:occupancy-registers",
            "study:occupancy-registers",
        ),
    ),
    Advisor(
        "operand-a",
        "A from shared memory or from registers",
        _operand_a,
        ("000_3ce42bb8a7855e69#WGMMA 既然能读 SMEM，为什么还保留 Register/Shared 模式",),
        (
            "rule:small-wgmma-n",
            "study:operand-a",
        ),
    ),
    Advisor(
        "wgmma-n",
        "How wide wgmma is",
        _wgmma_n,
        (
            "002_81d68bc01aff1bfb#2.2 累加器寄存器的分配约束",
            "000_3ce42bb8a7855e69#WGMMA 省掉 ldmatrix 后，为什么 register pressure 仍然很高",
        ),
        (
            "rule:small-wgmma-n",
            "rule:spill",
            "study:tile-n",
        ),
    ),
    Advisor(
        "cluster-size",
        "What the cluster's size costs",
        _cluster_size,
        ("000_3ce42bb8a7855e69#Cluster 不是越大越好",),
        (
            "rule:cluster-placement",
            "study:cluster",
        ),
    ),
    Advisor(
        "dsm-or-multicast",
        "What the cluster shares, and how",
        _dsm_or_multicast,
        (
            "000_3ce42bb8a7855e69#DSM 与 TMA multicast 如何选择",
            "000_3ce42bb8a7855e69#有了 50 MB L2，为什么还需要 multicast 和 DSM",
        ),
        ("study:cluster",),
    ),
    Advisor(
        "tma-or-plain",
        "TMA, cp.async or plain loads",
        _tma_or_plain,
        (
            "000_3ce42bb8a7855e69#Descriptor-driven addressing",
            "002_81d68bc01aff1bfb#3.1 为什么是TMA而不是cp.async",
        ),
        (
            "rule:tma-overhead",
            "rule:no-async-copy",
            "study:tma",
        ),
    ),
    Advisor(
        "l2-window",
        "Data that could stay in L2",
        _l2_window,
        ("000_3ce42bb8a7855e69#编程范式改变了什么",),
        ("rule:l2-locality",),
    ),
    Advisor(
        "small-shape",
        "Shapes too small for an asynchronous pipeline",
        _small_shape,
        ("002_81d68bc01aff1bfb#5.1 异步不等于更快：小shape下的同步开销",),
        (
            "rule:launch-bound",
            "rule:small-grid",
            "study:async-tax",
        ),
    ),
    Advisor(
        "fp8-conversions",
        "FP8 with its conversions",
        _fp8,
        ("000_3ce42bb8a7855e69#Hopper 中的 FP8 与 Transformer Engine",),
        (
            "rule:conversion",
            "rule:fp8-not-native",
            "study:data-type",
        ),
    ),
    Advisor(
        "fp32-units",
        "FP32 lanes counted once",
        _fp32_units,
        ("000_3ce42bb8a7855e69#Ampere → Ada：先复用，再按 L2/FP8 重调",),
        (
            "rule:fp32-compute",
            "rule:index-math",
        ),
    ),
)


def _plain(value: Scalar) -> Any:
    return value if isinstance(value, bool | str) else exact(value)


def advise(c: Context, every: bool = False) -> list[dict[str, Any]]:
    """The advice for one kernel as JSON data; with `every` also the silent advisors, with why they are (`silent`)."""
    found = []
    for one in ADVISORS:
        answer = one.ask(c)
        if not (answer.applies or every):
            continue
        entry: dict[str, Any] = {"name": one.name, "title": one.title}
        entry["text" if answer.applies else "silent"] = answer.text
        numbers = {name: _plain(value) for name, value in answer.inputs.items()}
        entry |= {"inputs": numbers, "articles": list(one.articles), "see": list(one.see)}
        found.append(entry)
    return sorted(found, key=lambda entry: "silent" in entry)
