"""Facts on the memory levels: bytes moved and asked for, hit rates, conflicts, spills."""

from __future__ import annotations

from collections.abc import Mapping

from diagnose.facts.context import Compute, Context, FactDefinition
from diagnose.model import Scalar
from diagnose.sass import mix
from diagnose.sass.addresses import gathered_share

SECTOR = 32  # bytes of a sector, all architectures here (Nsight Compute documentation, memory tables)


def _hbm_read(c: Context) -> float | None:
    value = c.number("dram__bytes_read.sum")
    if value is None:
        sectors = c.number("dram__sectors_read.sum")
        value = sectors * SECTOR if sectors is not None else None
    return _not_zero_dram(c, value)


def _hbm_write(c: Context) -> float | None:
    value = c.number("dram__bytes_write.sum")
    if value is None:
        sectors = c.number("dram__sectors_write.sum")
        value = sectors * SECTOR if sectors is not None else None
    return value


def _not_zero_dram(c: Context, value: float | None) -> float | None:
    """`dram__*` reads 0 on chips without the counter (Orin): not measured rather than no traffic."""
    writes = c.kernel.number("dram__bytes_write.sum")
    misses = c.kernel.number("lts__t_sectors_lookup_miss.sum")
    if value == 0 and not writes and misses:
        c.miss("dram__bytes_read.sum (reads 0 though L2 missed)")
        return None
    return value


def _hbm_bytes(c: Context) -> float | None:
    read, write = c.value("hbm_read_bytes"), c.value("hbm_write_bytes")
    return read + write if read is not None and write is not None else None


def _rate(c: Context, fact: str) -> float | None:
    amount, us = c.value(fact), c.value("duration_us")
    return amount / us * 1e6 if amount is not None and us else None


def _asked(*bases: str) -> Compute:
    def compute(c: Context) -> Scalar | None:
        if not c.has_thread_opcodes():
            return None
        return mix.bytes_asked(c.kernel.thread_opcodes, *bases)

    return compute


def _load_l2_bytes(c: Context) -> float | None:
    sectors = c.number("l1tex__m_xbar2l1tex_read_sectors_mem_lg_op_ld.sum", "lts__t_sectors_srcunit_tex_op_read.sum")
    return max(0.0, sectors * SECTOR - _local_miss_bytes(c, "ld")) if sectors is not None else None


def _local_miss_bytes(c: Context, op: str) -> float:
    """Local-memory bytes that L1 passed to L2; 0 where the report does not say (kernels without local memory)."""
    return (c.kernel.number(f"l1tex__t_sectors_pipe_lsu_mem_local_op_{op}_lookup_miss.sum") or 0.0) * SECTOR


def _local_l2_bytes(c: Context) -> float | None:
    # Local stores write through, hits or not; loads cross only on a miss.
    stores = c.number("l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum")
    return stores * SECTOR + _local_miss_bytes(c, "ld") if stores is not None else None


def _load_l1_waste(c: Context) -> float | None:
    """Sectors that loads look up in L1 beyond what the bytes asked for fill: they cost L1 cycles even when they hit."""
    sectors = c.number("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum")
    if not c.has_thread_opcodes():
        return None
    if sectors is None:
        return None
    asked = mix.bytes_asked(c.kernel.thread_opcodes, "LDG", "LD", "LDGSTS")
    return max(0.0, 1 - asked / (sectors * SECTOR)) if sectors > 0 else 0.0


def _store_l2_bytes(c: Context) -> float | None:
    sectors = c.number("l1tex__m_l1tex2xbar_write_sectors_mem_lg_op_st.sum", "lts__t_sectors_srcunit_tex_op_write.sum")
    if sectors is None:
        return None
    local = (c.kernel.number("l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum") or 0.0) * SECTOR
    return max(0.0, sectors * SECTOR - local)


def _load_sector_use(c: Context) -> float | None:
    """Bytes of a fetched sector that the request used. 0 means loads by other paths only (cp.async, TMA): not
    defined.
    """
    value = c.number("smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio")
    if value:
        return min(value / SECTOR, 1.0)
    sectors, asked = c.kernel.number("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"), c.value("load_bytes_asked")
    if value is None and sectors and asked:
        return min(asked / (sectors * SECTOR), 1.0)
    requests = c.kernel.number("l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum")
    if value is None and sectors and requests:
        # Without opcodes the access width is unknown; a 4-byte access of a full warp fills 4 sectors.
        return min(4 * requests / sectors, 1.0)
    return None


def _store_sector_use(c: Context) -> float | None:
    value = c.number("smsp__sass_average_data_bytes_per_sector_mem_global_op_st.ratio")
    if value:
        return min(value / SECTOR, 1.0)
    sectors, asked = c.kernel.number("l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"), c.value("store_bytes_asked")
    return min(asked / (sectors * SECTOR), 1.0) if value is None and sectors and asked else None


def _amplification(c: Context, moved: str, asked: str) -> float | None:
    a, b = c.value(moved), c.value(asked)
    if a is None or b is None:
        return None
    return a / b if b > 0 else 1.0


def _load_waste_from_hits(c: Context, use: float | None) -> float | None:
    """Without opcodes: of the sectors that loads look up, what L1 does not hit crosses from L2, and `use` was asked
    for.
    """
    hit = c.kernel.number("l1tex__t_sector_pipe_lsu_mem_global_op_ld_hit_rate.pct")
    if use is None or hit is None:
        return None
    crossed = 1 - min(max(hit / 100, 0.0), 1.0)
    return max(0.0, 1 - use / crossed) if crossed > 0 else 0.0


def _load_waste(c: Context) -> float | None:
    """Share of the bytes from L2 to L1 for loads that nobody asked for. Behind L1: hits make a bad sector count
    harmless.
    """
    factor = c.value("load_amplification")
    use = c.value("load_sector_use")
    if factor is None:
        return _load_waste_from_hits(c, use)
    # Bytes asked for count a value once a lane: broadcasts hide waste, so the request's own use of sectors bounds it
    # too.
    by_bytes = max(0.0, 1 - 1 / factor) if factor > 0 else 0.0
    if use is None:
        return by_bytes
    return min(by_bytes, 1 - use) if by_bytes > 0 else 0.0


def _store_waste(c: Context) -> float | None:
    factor = c.value("store_amplification")
    if factor is None:
        return None
    return max(0.0, 1 - 1 / factor) if factor > 0 else 0.0


def _fill_bytes(c: Context) -> float | None:
    """Bytes read from memory beyond what loads missed in L2: partly written sectors are read before they are
    written.
    """
    read = c.value("hbm_read_bytes")
    missed = c.number("lts__t_sectors_srcunit_tex_op_read_lookup_miss.sum")
    if read is None or missed is None:
        return None
    other = c.kernel.number("lts__t_sectors_srcunit_tex_op_atom_dot_alu_lookup_miss.sum") or 0.0
    red = c.kernel.number("lts__t_sectors_srcunit_tex_op_red_lookup_miss.sum") or 0.0
    return max(0.0, read - (missed + other + red) * SECTOR)


def _fill_share(c: Context) -> float | None:
    fill, total = c.value("write_fill_bytes"), c.value("hbm_bytes")
    if fill is None or total is None:
        return None
    return min(1.0, fill / total) if total > 0 else 0.0


def _reread(c: Context) -> float | None:
    """Bytes from L2 to L1 for each byte that HBM delivered: how often L2 serves the same data."""
    from_l2, read = c.value("load_l2_bytes"), c.value("hbm_read_bytes")
    return from_l2 / read if from_l2 is not None and read else None


def _l1_reuse(c: Context) -> float | None:
    """Bytes that loads asked for over bytes that crossed from L2: how often L1 serves the same data."""
    asked, moved = c.value("load_bytes_asked"), c.value("load_l2_bytes")
    return asked / moved if asked is not None and moved else None


def _hit(*names: str) -> Compute:
    def compute(c: Context) -> Scalar | None:
        value = c.number(*names)
        return None if value is None else min(max(value / 100, 0.0), 1.0)

    return compute


def _shared_excess(c: Context) -> float | None:
    """Shared-memory wavefronts above ideal, of all; sees loads, stores and cp.async (trap 16). 0 without shared
    accesses.
    """
    actual = c.kernel.number("memory_l1_wavefronts_shared")
    ideal = c.kernel.number("memory_l1_wavefronts_shared_ideal")
    if actual is not None and ideal is not None:
        # Replays of atomics on one address are contention, not a layout: they belong to shared-atomics.
        atomic = [line for line in c.kernel.lines if "ATOMS" in line.text]
        actual -= sum(line.shared_wavefronts or 0.0 for line in atomic)
        ideal -= sum(line.shared_wavefronts_ideal or 0.0 for line in atomic)
        return max(0.0, 1 - ideal / actual) if actual > 0 else 0.0
    wavefronts = c.number("l1tex__data_pipe_lsu_wavefronts_mem_shared.sum")
    conflicts = c.number("l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum")
    if wavefronts is None or conflicts is None:
        return None
    # The total includes atomics' replays; those belong to shared-atomics.
    atomics = c.kernel.number("l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_atom.sum") or 0.0
    return min(1.0, max(0.0, conflicts - atomics) / wavefronts) if wavefronts > 0 else 0.0


def _shared_share(c: Context) -> float | None:
    """Wavefronts of loads, stores and cp.async in shared memory, of all that the LSU data pipe moved."""
    shared = c.number("l1tex__data_pipe_lsu_wavefronts_mem_shared.sum")
    total = c.kernel.number("l1tex__data_pipe_lsu_wavefronts.sum")
    if total is None:
        # The pipe's peak is one wavefront a cycle, so its percentage of peak times elapsed cycles counts them.
        busy = c.share("l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_elapsed")
        cycles = c.number("l1tex__cycles_elapsed.sum", "sm__cycles_elapsed.sum")
        total = busy * cycles if busy is not None and cycles is not None else None
    return min(1.0, shared / total) if shared is not None and total else None


def _local_bytes(c: Context) -> float | None:
    loads = c.number("l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum")
    stores = c.number("l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum")
    return (loads + stores) * SECTOR if loads is not None and stores is not None else None


def _spill_share(c: Context) -> float | None:
    """Spill requests of all local-memory requests: the rest is local arrays. 0 without local accesses."""
    pct = c.kernel.number("derived__local_spilling_requests_pct")
    if pct is not None:
        return min(1.0, pct / 100)
    spills = c.kernel.number("sass__inst_executed_register_spilling")
    if spills is None:
        if c.kernel.opcodes and mix.count(c.kernel.opcodes, "LDL", "STL") == 0:
            return 0.0
        c.miss("derived__local_spilling_requests_pct")
        return None
    local = mix.count(c.kernel.opcodes, "LDL", "STL")
    return min(1.0, spills / local) if local else 0.0


def _local_instruction_share(c: Context) -> float | None:
    if not c.has_opcodes():
        return None
    return mix.count(c.kernel.opcodes, "LDL", "STL") / sum(c.kernel.opcodes.values())


def _aperture_share(c: Context, aperture: str) -> float | None:
    """L2 sectors that missed to system or peer memory, of all misses."""
    there = c.number(f"lts__t_sectors_aperture_{aperture}_lookup_miss.sum")
    total = c.number("lts__t_sectors_lookup_miss.sum")
    if there is None or total is None:
        return None
    return min(1.0, there / total) if total > 0 else 0.0


HOST_WRITES = "lts__t_sectors_srcunit_tex_aperture_sysmem_op_write.sum"  # writes count as hits in L2, not as misses


def _host_writes(c: Context) -> float | None:
    """Sectors that SMs wrote to host memory, of those and all L2 misses."""
    written, missed = c.number(HOST_WRITES), c.number("lts__t_sectors_lookup_miss.sum")
    if written is None or missed is None:
        return None
    return written / (written + missed) if written else 0.0


def _lane_bytes(c: Context) -> float | None:
    """Average bytes that a lane asks for with a global load or store."""
    if not c.has_thread_opcodes():
        return None
    return _bytes_a_lane({op: n for op, n in c.kernel.thread_opcodes.items() if _base(op) in _ACCESSES})


_ACCESSES = ("LDG", "STG", "LD", "ST", "LDGSTS")


def _bytes_a_lane(accesses: Mapping[str, float]) -> float | None:
    """Average bytes that a lane asks for, of global accesses by threads; None where there are none."""
    n = sum(accesses.values())
    return mix.bytes_asked(accesses, *_ACCESSES) / n if n else None


def _base(opcode: str) -> str:
    return opcode.split(".", 1)[0]


SUBWORD = 2  # bytes of a lane: a warp's request of 1 or 2 bytes a lane fills a sector or two of a line's four
STREAM_LEAST, STREAM_MOST = 0.75, 1.5  # most of what crosses from L2, and little of it asked for again


def _subword_stream(c: Context) -> bool | None:
    """Whether loads of 1 or 2 bytes a lane are what crosses from L2, once.

    The lines that their requests span, all 32 lanes counted, are then as many bytes as cross from L2 for loads. The use
    of a request's sectors would not show that: values that all lanes share (a scale), lanes that skip a load, and the
    bytes of one pixel in turn lower it, and nothing crosses for them.
    """
    if not c.has_opcodes():
        return None
    spanned = sum(32 * n * mix.access_bytes(op) for op, n in c.kernel.opcodes.items() if _subword_load(op))
    moved = c.value("load_l2_bytes")
    if not spanned or moved is None:
        return None if spanned else False
    return STREAM_LEAST * moved <= spanned <= STREAM_MOST * moved


def _subword_load(opcode: str) -> bool:
    return _base(opcode) in {"LDG", "LD"} and mix.access_bytes(opcode) <= SUBWORD


def _stream_lane_bytes(c: Context) -> float | None:
    """Of the loads that stream and of all stores; of all accesses where no narrow loads are known to be the stream."""
    every = c.value("lane_bytes")
    if every is None or c.fact("subword_stream") is not True:
        return every
    threads = c.kernel.thread_opcodes
    streaming = {op: n for op, n in threads.items() if _subword_load(op) or _base(op) in {"STG", "ST"}}
    known = _bytes_a_lane(streaming)
    return known if known is not None else every


def _gathered(c: Context) -> float | None:
    if not c.kernel.lines:
        c.miss("source counters (SASS by address)")
        return None
    return gathered_share(c.kernel.lines)


def _source_counters(c: Context) -> bool:
    return bool(c.kernel.lines)


def _footprint_in_l2(c: Context) -> bool | None:
    """Whether the bytes moved at HBM are fewer than L2 holds: then ncu's cache flush decides what is measured."""
    size = c.number("device__attribute_l2_cache_size")
    moved = c.value("hbm_bytes")
    return moved < size if size is not None and moved is not None else None


FACTS: tuple[FactDefinition, ...] = (
    FactDefinition("hbm_read_bytes", "byte", "Bytes read from device memory.", _hbm_read, ("dram__bytes_read.sum",)),
    FactDefinition(
        "hbm_write_bytes",
        "byte",
        "Bytes written to device memory (dirty lines left in L2 not included).",
        _hbm_write,
        ("dram__bytes_write.sum",),
    ),
    FactDefinition("hbm_bytes", "byte", "Bytes moved at device memory.", _hbm_bytes),
    FactDefinition("hbm_rate", "byte/s", "Rate at device memory.", lambda c: _rate(c, "hbm_bytes")),
    FactDefinition(
        "load_bytes_asked",
        "byte",
        "Bytes that all lanes asked for in global loads.",
        _asked("LDG", "LD", "LDGSTS"),
        ("sass__thread_inst_executed_true_per_opcode_with_modifier_all",),
        "opcodes",
    ),
    FactDefinition(
        "store_bytes_asked",
        "byte",
        "Bytes that all lanes wrote in global stores.",
        _asked("STG", "ST"),
        ("sass__thread_inst_executed_true_per_opcode_with_modifier_all",),
        "opcodes",
    ),
    FactDefinition(
        "load_l2_bytes",
        "byte",
        "Bytes from L2 to L1 for loads.",
        _load_l2_bytes,
        ("l1tex__m_xbar2l1tex_read_sectors_mem_lg_op_ld.sum",),
    ),
    FactDefinition(
        "store_l2_bytes",
        "byte",
        "Bytes from L1 to L2 for stores, whole sectors.",
        _store_l2_bytes,
        ("l1tex__m_l1tex2xbar_write_sectors_mem_lg_op_st.sum",),
    ),
    FactDefinition(
        "load_sector_use",
        "share",
        "Part of each fetched sector that a load request used.",
        _load_sector_use,
        ("smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio",),
    ),
    FactDefinition(
        "store_sector_use",
        "share",
        "Part of each sector that a store request wrote.",
        _store_sector_use,
        ("smsp__sass_average_data_bytes_per_sector_mem_global_op_st.ratio",),
    ),
    FactDefinition(
        "load_l1_waste",
        "share",
        "Sectors looked up in L1 for loads beyond the bytes asked for.",
        _load_l1_waste,
        ("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",),
    ),
    FactDefinition(
        "local_l2_bytes",
        "byte",
        "Bytes of local memory between L1 and L2.",
        _local_l2_bytes,
        ("l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum", "l1tex__t_sectors_pipe_lsu_mem_local_op_ld_lookup_miss.sum"),
    ),
    FactDefinition(
        "load_amplification",
        "ratio",
        "Bytes from L2 for loads over bytes asked for.",
        lambda c: _amplification(c, "load_l2_bytes", "load_bytes_asked"),
    ),
    FactDefinition(
        "store_amplification",
        "ratio",
        "Bytes of whole sectors stored over bytes written.",
        lambda c: _amplification(c, "store_l2_bytes", "store_bytes_asked"),
    ),
    FactDefinition("load_waste", "share", "Bytes from L2 for loads that nobody asked for.", _load_waste),
    FactDefinition("store_waste", "share", "Bytes of stored sectors that nobody wrote.", _store_waste),
    FactDefinition(
        "write_fill_bytes",
        "byte",
        "Bytes read from device memory to complete partly written sectors.",
        _fill_bytes,
        (
            "lts__t_sectors_srcunit_tex_op_read_lookup_miss.sum",
            "lts__t_sectors_srcunit_tex_op_atom_dot_alu_lookup_miss.sum",
            "lts__t_sectors_srcunit_tex_op_red_lookup_miss.sum",
        ),
    ),
    FactDefinition("write_fill_share", "share", "Those bytes, of all bytes at device memory.", _fill_share),
    FactDefinition("l2_rereads", "ratio", "Bytes from L2 for loads over bytes read from device memory.", _reread),
    FactDefinition("l1_reuse", "ratio", "Bytes that loads asked for over bytes from L2.", _l1_reuse),
    FactDefinition(
        "l1_hit_rate",
        "share",
        "L1 sector hits.",
        _hit("l1tex__t_sector_hit_rate.pct"),
        ("l1tex__t_sector_hit_rate.pct",),
    ),
    FactDefinition(
        "l2_hit_rate",
        "share",
        "L2 sector hits (writes count as hits: copies show about 0.5).",
        _hit("lts__t_sector_hit_rate.pct"),
        ("lts__t_sector_hit_rate.pct",),
    ),
    FactDefinition(
        "l2_read_hit_rate",
        "share",
        "L2 sector hits of reads.",
        _hit("lts__t_sector_op_read_hit_rate.pct"),
        ("lts__t_sector_op_read_hit_rate.pct",),
    ),
    FactDefinition(
        "shared_conflict_excess",
        "share",
        "Shared-memory wavefronts above ideal, of all of them.",
        _shared_excess,
        (
            "memory_l1_wavefronts_shared",
            "memory_l1_wavefronts_shared_ideal",
            "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
            "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
        ),
    ),
    FactDefinition(
        "shared_wavefront_share",
        "share",
        "Shared-memory wavefronts of all that the LSU data pipe moved.",
        _shared_share,
        ("l1tex__data_pipe_lsu_wavefronts_mem_shared.sum", "l1tex__cycles_elapsed.sum"),
    ),
    FactDefinition(
        "local_bytes",
        "byte",
        "Bytes of local-memory accesses at L1.",
        _local_bytes,
        ("l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum", "l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum"),
    ),
    FactDefinition(
        "local_instruction_share",
        "share",
        "Executed LDL and STL, of all instructions.",
        _local_instruction_share,
        (),
        "opcodes",
    ),
    FactDefinition(
        "spill_share",
        "share",
        "Spill requests of all local-memory requests.",
        _spill_share,
        ("derived__local_spilling_requests_pct",),
    ),
    FactDefinition(
        "system_memory_share",
        "share",
        "L2 misses that went to host memory.",
        lambda c: _aperture_share(c, "sysmem"),
        ("lts__t_sectors_aperture_sysmem_lookup_miss.sum", "lts__t_sectors_lookup_miss.sum"),
    ),
    FactDefinition(
        "host_write_share",
        "share",
        "Sectors written to host memory, of those and all L2 misses.",
        _host_writes,
        (HOST_WRITES, "lts__t_sectors_lookup_miss.sum"),
    ),
    FactDefinition(
        "peer_memory_share",
        "share",
        "L2 misses that went to another GPU's memory.",
        lambda c: _aperture_share(c, "peer"),
        ("lts__t_sectors_aperture_peer_lookup_miss.sum", "lts__t_sectors_lookup_miss.sum"),
    ),
    FactDefinition(
        "lane_bytes", "byte", "Average bytes that a lane asks for in a global access.", _lane_bytes, (), "opcodes"
    ),
    FactDefinition(
        "subword_stream",
        "bool",
        "Whether what crosses from L2 for loads is asked for once, by loads of 1 or 2 bytes a lane.",
        _subword_stream,
        (),
        "opcodes",
    ),
    FactDefinition(
        "stream_lane_bytes",
        "byte",
        "Average bytes that a lane asks for in a store, and in a load of what crosses from L2.",
        _stream_lane_bytes,
        (),
        "opcodes",
    ),
    FactDefinition(
        "source_counters", "bool", "Whether the report holds samples and counts by address.", _source_counters
    ),
    FactDefinition(
        "gathered_load_share",
        "share",
        "Executed global loads whose address comes from loaded data.",
        _gathered,
        ("inst_executed",),
        "lines",
    ),
    FactDefinition(
        "footprint_in_l2",
        "bool",
        "Bytes at device memory are fewer than L2 holds.",
        _footprint_in_l2,
        ("device__attribute_l2_cache_size",),
    ),
)
