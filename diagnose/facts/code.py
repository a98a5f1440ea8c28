"""Facts on the executed code: opcode families, data paths, active lanes, software-path fingerprints."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from diagnose.facts.context import Compute, Context, FactDefinition
from diagnose.model import Scalar
from diagnose.sass import mix
from diagnose.sass.addresses import address_arithmetic_share
from diagnose.sass.doubles import Doubles, doubles
from diagnose.sass.loaded import double_data, operations_per_load
from diagnose.sass.polling import past_caches
from diagnose.sass.products import outer_product
from diagnose.sass.routines import executed_in_routines
from diagnose.sass.staging import staged_in_loop

_OPCODES = "sass__inst_executed_per_opcode_with_modifier_all"


def _share(*prefixes: str) -> Compute:
    def compute(c: Context) -> Scalar | None:
        if not c.has_opcodes():
            return None
        return mix.count(c.kernel.opcodes, *prefixes) / sum(c.kernel.opcodes.values())

    return compute


def _count(*prefixes: str) -> Compute:
    def compute(c: Context) -> Scalar | None:
        return mix.count(c.kernel.opcodes, *prefixes) if c.has_opcodes() else None

    return compute


def _path_count(path: str, metric: str, *prefixes: str) -> Compute:
    """As `_count`; without opcodes, 0 where the GPU lacks the path or ncu's own counter of it reads 0."""

    def compute(c: Context) -> Scalar | None:
        if c.kernel.opcodes:
            return mix.count(c.kernel.opcodes, *prefixes)
        known = c.arch is not None and bool(c.available_paths)
        if (known and path not in c.available_paths) or c.kernel.number(metric) == 0:
            return 0.0
        c.miss(_OPCODES)
        return None

    return compute


def _executed(c: Context) -> float | None:
    return c.number("smsp__inst_executed.sum", "sm__inst_executed.sum")


def _by_address_ratio(c: Context) -> float | None:
    """Instructions summed over addresses against the hardware counter: 1 unless counters belong to another launch
    (trap 15).
    """
    counted = c.number("smsp__inst_executed.sum", "sm__inst_executed.sum")
    by_address = c.number("diagnose__inst_executed_by_address")
    if by_address is None and c.kernel.opcodes:
        by_address = sum(c.kernel.opcodes.values())
    return by_address / counted if counted and by_address else None


def _active_lanes(c: Context) -> float | None:
    value = c.number(
        "smsp__thread_inst_executed_per_inst_executed.ratio",
        "smsp__thread_inst_executed_pred_on_per_inst_executed.ratio",
    )
    return min(value / 32, 1.0) if value is not None else None


def _lanes_on(c: Context) -> float | None:
    value = c.number("smsp__thread_inst_executed_pred_on_per_inst_executed.ratio")
    return min(value / 32, 1.0) if value is not None else None


def _branch_uniformity(c: Context) -> float | None:
    value = c.number("smsp__sass_average_branch_targets_threads_uniform.pct")
    return min(value / 100, 1.0) if value is not None else None


def _wgmma_n(c: Context) -> float | None:
    return mix.wgmma_n(c.kernel.opcodes) if c.has_opcodes() else None


def _wgmma_n_efficiency(c: Context) -> float | None:
    """Share of the Tensor peak that wgmma's operand path allows at this N, both operands from shared memory.

    m64nNk16 takes N/2 cycles on the Tensor pipe (4096 operations a cycle and SM). Its operands are 64x16 and Nx16
    values of 2 bytes: 2048 + 32 N bytes at 128 bytes a cycle, that is 16 + N/4 cycles.
    """
    n = c.value("wgmma_n")
    return min(1.0, (n / 2) / (16 + n / 4)) if n else None


def _polling(c: Context) -> float | None:
    """Loads that cannot be cached (.STRONG.GPU, .STRONG.SYS, volatile) and sleeps, of all instructions: polling
    loops.
    """
    if not c.has_opcodes():
        return None
    polls = sum(
        n for op, n in c.kernel.opcodes.items()
        if op.split(".", 1)[0] in {"LDG", "LD"} and past_caches(op)
    )  # fmt: skip
    return (polls + mix.count(c.kernel.opcodes, "NANOSLEEP")) / sum(c.kernel.opcodes.values())


def _mma(c: Context) -> float | None:
    """HMMA, and IMMA but for the 4-bit kinds, which wgmma lacks."""
    if not c.has_opcodes():
        return None
    narrow = sum(n for op, n in c.kernel.opcodes.items() if op.startswith("IMMA") and (".S4" in op or ".U4" in op))
    return mix.count(c.kernel.opcodes, "HMMA", "IMMA") - narrow


def _wait_loops(c: Context) -> float | None:
    """Polls and tries to pass an mbarrier: how often they run depends on the timing of a pass."""
    polls = _polling(c)
    if polls is None:
        return None
    tries = sum(n for op, n in c.kernel.opcodes.items() if op.startswith("SYNCS") and "TRYWAIT" in op)
    return polls + tries / sum(c.kernel.opcodes.values())


# A little Tensor pipe activity without an MMA opcode is not Tensor work (trap 18): opcodes decide.
_MMA = (
    "HMMA", "IMMA", "DMMA", "QMMA", "OMMA", "BMMA", "HGMMA", "QGMMA", "IGMMA", "BGMMA", "UTCHMMA", "UTCQMMA", "UTCIMMA",
    "UTCOMMA",
)  # fmt: skip
_CONVERSIONS = ("F2F", "F2I", "I2F", "F2FP", "I2FP", "I2I", "FRND", "I2IP", "F2IP")
_INTEGER = (
    "IMAD", "IADD3", "IADD", "LEA", "SHF", "LOP3", "VIADD", "UIMAD", "UIADD3", "ULEA", "USHF", "IABS", "ISETP",
    "UISETP", "SEL",
)  # fmt: skip


def _wgmma_per_wait(c: Context) -> float | None:
    """wgmma instructions for each wait for their results (WARPGROUP.DEPBAR, or `gsb0` on the instruction)."""
    if not c.has_opcodes():
        return None
    issued = mix.count(c.kernel.opcodes, "HGMMA", "QGMMA", "IGMMA", "BGMMA")
    waits = mix.count(c.kernel.opcodes, "WARPGROUP.DEPBAR")
    if not issued:
        return None
    return issued / waits if waits else issued


def _fma_per_load(c: Context) -> float | None:
    """FMA instructions (FFMA, HFMA2, DFMA) for each load from shared or global memory: high in register-tiled matrix
    work.
    """
    if not c.has_opcodes():
        return None
    fma = mix.count(c.kernel.opcodes, "FFMA", "HFMA2", "DFMA", "IDP") + c.kernel.opcodes.get("IMAD", 0.0)
    loads = mix.count(c.kernel.opcodes, "LDS", "LDG", "LD")
    return fma / loads if loads else 0.0


def _operations_per_load(c: Context) -> float | None:
    traced = operations_per_load(c.kernel.lines)
    return traced if traced is not None else c.value("fma_per_load")


def _outer_product(c: Context) -> float | None:
    """As the outer product of static analysis, over the instructions that execute at least a quarter as often as the
    most executed one: the inner loop. None without source counters.
    """
    if not c.kernel.lines:
        c.miss("source counters (SASS by address)")
        return None
    most = max((line.executed or 0.0 for line in c.kernel.lines), default=0.0)
    return outer_product(line.text for line in c.kernel.lines if (line.executed or 0.0) >= 0.25 * most)


# Instructions of one software sequence, from nvcc 13.0 listings (sm_70 to sm_120 alike within a few), and those of the
# short one that can stand for it: a division by a prepared reciprocal is a multiply-high, a shift and, for the
# remainder, a multiply-add; pow is a logarithm, a multiplication and an exponential (MUFU.LG2, MUFU.EX2) with their
# scaling; sin and cos are one multiplication and one MUFU; a float division is MUFU.RCP and a multiplication.
_SEQUENCES: Mapping[str, tuple[float, float]] = {
    "division": (20.0, 3.0),
    "invariant division": (9.0, 3.0),
    "range reduction": (40.0, 6.0),
    "call": (30.0, 4.5),
    "float division": (10.0, 2.0),
    "double division": (15.0, 2.0),
    "large argument": (130.0, 6.0),
}
_LARGE_STORES = 7  # words of the product with 2/pi that the reduction of a large argument keeps in local memory
_CALLED_KEPT = 0.15  # of a called routine: 64-bit division executes 70 to 100, by a reciprocal 10 to 15


def _software_paths(c: Context) -> tuple[float, float]:
    """(executed instructions of software paths, those that shorter sequences in their place would execute).

    - an unsigned division by a run-time divisor converts it once (I2F….RP) and then corrects twice: IMAD.HI.U32 with
      two ISETP.GE.U32 each; division by a constant has the IMAD.HI and a shift, and no corrections;
    - pow, exp of large ranges, sin and cos reduce their range with F2I.NTZ or FRND around 40 instructions of
      polynomial;
    - sin and cos of arguments beyond 105,615 multiply by 2/pi word by word, in local memory (Payne and Hanek);
    - IEEE float division checks its operands (FCHK), double division and square root start from RCP64H or RSQ64H;
    - 64-bit division and slow paths are calls: what their routines executed where source counters show it, else an
      estimate for each call.
    """
    converted = sum(n for op, n in c.kernel.opcodes.items() if op.startswith("I2F") and ".RP" in op)
    high = c.kernel.opcodes.get("IMAD.HI.U32", 0.0)
    corrections = c.kernel.opcodes.get("ISETP.GE.U32.AND", 0.0)
    rounded = sum(n for op, n in c.kernel.opcodes.items() if op.startswith(("F2I.NTZ", "FRND"))) - converted
    floating = mix.count(c.kernel.opcodes, "FFMA", "FMUL", "FADD", "DFMA", "DMUL")
    called = executed_in_routines(c.kernel.lines) if c.kernel.lines else None
    counts = {
        "division": converted,
        "invariant division": max(0.0, min(high, corrections / 2) - converted),
        # A rounding with a polynomial behind it (10 or more operations) reduces a range; else it converts a value.
        "range reduction": rounded if rounded > 0 and floating >= 10 * rounded else 0.0,
        "call": mix.count(c.kernel.opcodes, "CALL.REL") if called is None else 0.0,
        "float division": mix.count(c.kernel.opcodes, "FCHK"),
        "double division": mix.count(c.kernel.opcodes, "MUFU.RCP64H", "MUFU.RSQ64H"),
        "large argument": _large_arguments(c.kernel.opcodes),
    }
    executed = sum(n * _SEQUENCES[name][0] for name, n in counts.items()) + (called or 0.0)
    return executed, sum(n * _SEQUENCES[name][1] for name, n in counts.items()) + _CALLED_KEPT * (called or 0.0)


def _large_arguments(opcodes: Mapping[str, float]) -> float:
    """Reductions of large arguments: each ends with 64 bits made a double, scaled and made a float, and has stored its
    words before. 0 where other code converts so.
    """
    ended = min(mix.count(opcodes, "I2F.F64.S64"), mix.count(opcodes, "F2F.F32.F64"), mix.count(opcodes, "DMUL"))
    return ended if mix.count(opcodes, "STL") >= _LARGE_STORES * ended else 0.0


def _local_of_reductions(c: Context) -> float | None:
    if not c.has_opcodes():
        return None
    stores = mix.count(c.kernel.opcodes, "STL")
    return min(1.0, _LARGE_STORES * _large_arguments(c.kernel.opcodes) / stores) if stores else 0.0


def _software_path(c: Context) -> float | None:
    """Share of instructions that belong to software paths (division, modulo, pow, trigonometry), from fingerprints."""
    return min(1.0, _software_paths(c)[0] / sum(c.kernel.opcodes.values())) if c.has_opcodes() else None


def _software_kept(c: Context) -> float | None:
    """Share of instructions that shorter sequences in place of software paths would take."""
    share = _software_path(c)
    if share is None:
        return None
    executed, kept = _software_paths(c)
    return share * kept / executed if executed else 0.0


def _debug_build(c: Context) -> bool | None:
    """A -G build: half of the instructions are MOV and registers go through local memory (trap 14)."""
    if not c.has_opcodes():
        return None
    total = sum(c.kernel.opcodes.values())
    moves = mix.count(c.kernel.opcodes, "MOV")
    # Optimised code alternates MOV with IMAD.MOV and was seen at 27 % in a fill, else under 10 %; -G builds at 33 to
    # 61 %. They also reach global memory by generic accesses only (LD, ST), where optimised code of a kernel has LDG.
    generic, known = mix.count(c.kernel.opcodes, "LD", "ST"), mix.count(c.kernel.opcodes, "LDG", "STG")
    return moves / total > 0.40 or (moves / total > 0.20 and generic > 0 and known == 0)


def _code_bytes(c: Context) -> float | None:
    n = c.number("diagnose__sass_instructions")
    return n * 16 if n is not None else None  # 16 bytes an instruction from sm_70 on


def _copy_through_registers(c: Context) -> float | None:
    """Bytes that went from global memory through registers into shared memory (STS of loaded data), of those loaded
    by LDG.
    """
    if not c.has_thread_opcodes():
        return None
    loaded = mix.bytes_asked(c.kernel.thread_opcodes, "LDG")
    stored = mix.bytes_asked(c.kernel.thread_opcodes, "STS")
    return min(1.0, stored / loaded) if loaded else 0.0


def _bytes_per_tma(c: Context) -> float | None:
    copies = mix.count(c.kernel.opcodes, "UTMALDG", "UBLKCP") if c.kernel.opcodes else 0.0
    moved = c.kernel.number("l1tex__m_xbar2l1tex_read_bytes_mem_global_op_tma_ld.sum")
    if moved is None:
        sectors = c.kernel.number("l1tex__m_xbar2l1tex_read_sectors_mem_global_op_tma_ld.sum")
        moved = sectors * 32 if sectors is not None else c.kernel.number("l1tex__m_xbar2l1tex_read_bytes.sum")
    if not copies or moved is None:
        return None
    return moved / copies


def _half_fma(c: Context) -> float | None:
    """HFMA2 that computes: HFMA2.MMA is the compiler's idiom for a constant (trap 18)."""
    if not c.has_opcodes():
        return None
    arithmetic = mix.count(c.kernel.opcodes, "HFMA2") - mix.count(c.kernel.opcodes, "HFMA2.MMA")
    return arithmetic / sum(c.kernel.opcodes.values())


def _sixteen_bit_matrix(c: Context) -> bool | None:
    """FFMA work on 16-bit data: values unpacked from half or bfloat16 (HADD2.F32, PRMT/SHL of packed loads) feed the
    FMAs.
    """
    if not c.has_opcodes():
        return None
    fma = mix.count(c.kernel.opcodes, "FFMA")
    half = mix.count(c.kernel.opcodes, "HADD2.F32") > 0.05 * fma
    # bfloat16 becomes float by a shift or a byte permute, one an element; a tile staged in shared memory then grows to
    # twice its bytes.
    threads = c.kernel.thread_opcodes
    unpacked = mix.count(threads, "PRMT", "IMAD.U32", "SHF.L.U32", "IMAD.SHL.U32")
    loaded = mix.bytes_asked(threads, "LDG")
    staged = mix.bytes_asked(threads, "STS")
    grown = loaded > 0 and 1.5 <= staged / loaded <= 2.5 and unpacked >= 0.4 * loaded / 2
    return bool(fma and (half or grown))


def _double_matrix(c: Context) -> bool | None:
    """DFMA work on a GPU whose Tensor Cores multiply doubles (sm_80, sm_90, sm_100)."""
    if not c.has_opcodes():
        return None
    native = c.arch in {80, 90, 100, 103}  # trap 32
    return native and mix.count(c.kernel.opcodes, "DFMA") > 0.2 * sum(c.kernel.opcodes.values())


def _address_share(c: Context) -> float | None:
    if not c.kernel.lines:
        c.miss("source counters (SASS by address)")
        return None
    return address_arithmetic_share(c.kernel.lines)


def _has_double_data(c: Context) -> bool | None:
    """Whether double arithmetic works on double data: on values as they were loaded, or stored as they are."""
    if not c.has_opcodes():
        return None
    double = mix.count(c.kernel.opcodes, "DFMA", "DADD", "DMUL", "DSETP", "DMMA")
    if not double:
        return False
    traced = double_data(c.kernel.lines)
    if traced is not None:
        return traced
    # Without code by address: wide accesses, and conversions that are few beside the arithmetic.
    converted = sum(n for op, n in c.kernel.opcodes.items() if op.startswith("F2F") and ".F64" in op)
    wide = sum(
        n for op, n in c.kernel.opcodes.items()
        if op.split(".", 1)[0] in {"LDG", "LD", "LDS", "STG"} and ("64" in op.split(".") or "128" in op.split("."))
    )  # fmt: skip
    return wide > 0 and converted < 0.1 * double


def _of_doubles(part: Callable[[Doubles], float]) -> Compute:
    """Fact function: a part of what double arithmetic costs, as a share of the instructions that the report shows."""

    def compute(c: Context) -> float | None:
        found = c.cached("doubles", lambda: doubles(c.kernel.lines))
        shown = sum(line.executed or 0.0 for line in c.kernel.lines)
        if not isinstance(found, Doubles) or not shown:
            c.miss("source counters (SASS by address)")
            return None
        return part(found) / shown

    return compute


def _sfu_conversions(c: Context) -> float | None:
    """Conversions of all instructions on the XU pipe (F2F, F2I, I2F, FRND run there with MUFU)."""
    if not c.has_opcodes():
        return None
    conversions = mix.count(c.kernel.opcodes, "F2F", "F2I", "I2F", "FRND")
    special = mix.count(c.kernel.opcodes, "MUFU")
    return conversions / (conversions + special) if conversions + special else 0.0


def _shuffles_on_lsu(c: Context) -> float | None:
    """Shuffles of the instructions that go through the load/store unit: each takes a turn of the L1 data pipe and moves
    nothing that memory holds.
    """
    if not c.has_opcodes():
        return None
    shuffles = mix.count(c.kernel.opcodes, "SHFL")
    accesses = mix.count(
        c.kernel.opcodes, "LDG", "LD", "STG", "ST", "LDS", "STS", "LDSM", "STSM", "LDL", "STL", "LDGSTS", "ATOMS",
        "ATOMG", "RED", "REDG", "ATOM",
    )  # fmt: skip
    return shuffles / (shuffles + accesses) if shuffles + accesses else 0.0


def _integer_on_fma(c: Context) -> float | None:
    """IMAD of all instructions on the FMA pipe: a full FMA pipe may do integer work."""
    if not c.has_opcodes():
        return None
    integer = mix.count(c.kernel.opcodes, "IMAD", "IDP", "IMUL")
    floating = mix.count(c.kernel.opcodes, "FFMA", "FMUL", "FADD", "HFMA2", "HADD2", "HMUL2")
    return integer / (integer + floating) if integer + floating else 0.0


def _paths(c: Context) -> str | None:
    return " ".join(mix.paths(c.kernel.opcodes)) if c.has_opcodes() else None


def _fp8_emulated(c: Context) -> float | None:
    """FP8 unpacking (F2FP….E4M3/E5M2 to half) beside 16-bit MMA: emulated FP8, as a share of MMA instructions."""
    if not c.has_opcodes():
        return None
    unpack = sum(
        n
        for op, n in c.kernel.opcodes.items()
        if op.startswith("F2FP") and ("E4M3" in op or "E5M2" in op) and "UNPACK" in op
    )
    mma = mix.count(c.kernel.opcodes, "HMMA")
    return unpack / mma if mma else 0.0


FACTS: tuple[FactDefinition, ...] = (
    FactDefinition("instructions", "count", "Executed warp instructions.", _executed, ("smsp__inst_executed.sum",)),
    FactDefinition(
        "instructions_by_address_ratio",
        "ratio",
        "Instructions summed over addresses over the hardware counter.",
        _by_address_ratio,
        ("inst_executed",),
    ),
    FactDefinition("code_bytes", "byte", "Size of the kernel's code.", _code_bytes),
    FactDefinition("paths", "text", "Data paths that executed, by opcode.", _paths, (_OPCODES,), "opcodes"),
    FactDefinition(
        "active_lanes",
        "share",
        "Lanes active an instruction, of 32.",
        _active_lanes,
        ("smsp__thread_inst_executed_per_inst_executed.ratio",),
    ),
    FactDefinition(
        "lanes_on",
        "share",
        "Lanes active and not predicated off an instruction, of 32.",
        _lanes_on,
        ("smsp__thread_inst_executed_pred_on_per_inst_executed.ratio",),
    ),
    FactDefinition(
        "branch_uniformity",
        "share",
        "Branches whose lanes all go one way.",
        _branch_uniformity,
        ("smsp__sass_average_branch_targets_threads_uniform.pct",),
    ),
    FactDefinition(
        "tensor_instructions",
        "count",
        "Executed MMA instructions of any path.",
        _count(*_MMA),
        (_OPCODES,),
        "opcodes",
    ),
    FactDefinition("wgmma_n", "count", "N of the wgmma shape that does most of the work.", _wgmma_n, (), "opcodes"),
    FactDefinition(
        "wgmma_n_efficiency",
        "share",
        "Part of the Tensor peak that wgmma's operand path allows at this N.",
        _wgmma_n_efficiency,
    ),
    FactDefinition("polling_share", "share", "Uncached loads and sleeps of all instructions.", _polling, (), "opcodes"),
    FactDefinition(
        "wait_loop_share",
        "share",
        "Instructions that poll, sleep or try an mbarrier: their number differs from pass to pass.",
        _wait_loops,
        (),
        "opcodes",
    ),
    FactDefinition("wgmma_per_wait", "ratio", "wgmma instructions for each wait.", _wgmma_per_wait, (), "opcodes"),
    FactDefinition("fma_per_load", "ratio", "FMA instructions for each load.", _fma_per_load, (), "opcodes"),
    FactDefinition(
        "operations_per_load",
        "ratio",
        "Arithmetic on loaded values for each load; FMA instructions where the report has no code by address.",
        _operations_per_load,
        (),
        "opcodes",
    ),
    FactDefinition(
        "fma_uses_per_loaded_value",
        "ratio",
        "Products of each loaded value with another one in the hot code.",
        _outer_product,
        ("inst_executed",),
        "lines",
    ),
    FactDefinition("fma_share", "share", "FFMA of all instructions.", _share("FFMA"), (_OPCODES,), "opcodes"),
    FactDefinition(
        "half_fma_share",
        "share",
        "HFMA2 (arithmetic, not the .MMA constant idiom) of all instructions.",
        _half_fma,
        (),
        "opcodes",
    ),
    FactDefinition(
        "double_share", "share", "DFMA, DADD, DMUL of all instructions.", _share("DFMA", "DADD", "DMUL"), (), "opcodes"
    ),
    FactDefinition(
        "double_conversions",
        "count",
        "Conversions between double and float.",
        lambda c: (
            sum(n for op, n in c.kernel.opcodes.items() if op.startswith("F2F") and "F64" in op)
            if c.has_opcodes()
            else None
        ),
        (),
        "opcodes",
    ),
    FactDefinition(
        "double_move_share",
        "share",
        "Moves of double constants and of halves of doubles, of all instructions.",
        _of_doubles(lambda found: found.moves),
        ("inst_executed",),
        "lines",
    ),
    FactDefinition(
        "double_function_share",
        "share",
        "DFMA, DADD, DMUL in library functions (exp, log, a division), of all instructions.",
        _of_doubles(lambda found: found.in_functions),
        ("inst_executed",),
        "lines",
    ),
    FactDefinition(
        "sixteen_bit_matrix", "bool", "Whether FFMAs work on unpacked 16-bit data.", _sixteen_bit_matrix, (), "opcodes"
    ),
    FactDefinition(
        "double_matrix", "bool", "Whether DFMA dominates on a GPU that has DMMA.", _double_matrix, (), "opcodes"
    ),
    FactDefinition(
        "address_share",
        "share",
        "Integer arithmetic whose result reaches an address, of all instructions.",
        _address_share,
        ("inst_executed",),
        "lines",
    ),
    FactDefinition("global_load_share", "share", "LDG of all instructions.", _share("LDG", "LD"), (), "opcodes"),
    FactDefinition("shared_atomic_share", "share", "ATOMS of all instructions.", _share("ATOMS"), (), "opcodes"),
    FactDefinition("staging_share", "share", "STS of all instructions.", _share("STS"), (), "opcodes"),
    FactDefinition(
        "has_double_data", "bool", "Whether double arithmetic works on double data.", _has_double_data, (), "opcodes"
    ),
    FactDefinition(
        "software_path_share",
        "share",
        "Instructions in software division, modulo, pow and slow trigonometry, estimated from fingerprints.",
        _software_path,
        (),
        "opcodes",
    ),
    FactDefinition(
        "software_path_kept",
        "share",
        "Instructions that multiplications by a reciprocal and fast intrinsics would take in place of those.",
        _software_kept,
        (),
        "opcodes",
    ),
    FactDefinition(
        "local_of_reductions",
        "share",
        "Local stores that belong to sin and cos of large arguments.",
        _local_of_reductions,
        (),
        "opcodes",
    ),
    FactDefinition(
        "integer_share",
        "share",
        "Integer and address arithmetic of all instructions.",
        _share(*_INTEGER),
        (),
        "opcodes",
    ),
    FactDefinition(
        "shuffles_on_lsu", "share", "Shuffles of the load/store unit's instructions.", _shuffles_on_lsu, (), "opcodes"
    ),
    FactDefinition(
        "integer_on_fma", "share", "IMAD of the instructions on the FMA pipe.", _integer_on_fma, (), "opcodes"
    ),
    FactDefinition(
        "conversion_share", "share", "Type conversions of all instructions.", _share(*_CONVERSIONS), (), "opcodes"
    ),
    FactDefinition(
        "conversions_on_sfu",
        "share",
        "Conversions of the instructions on the XU pipe.",
        _sfu_conversions,
        (),
        "opcodes",
    ),
    FactDefinition(
        "mma_instructions",
        "count",
        "Executed warp-level MMA that wgmma has too (HMMA, 8-bit IMMA).",
        _mma,
        (),
        "opcodes",
    ),
    FactDefinition(
        "tcgen05_instructions",
        "count",
        "Executed tcgen05 MMA.",
        _path_count("tcgen05", "", "UTCHMMA", "UTCQMMA", "UTCIMMA", "UTCOMMA"),
    ),
    FactDefinition(
        "wgmma_instructions",
        "count",
        "Executed wgmma of any type.",
        _path_count(
            "wgmma",
            "sm__inst_executed_pipe_tensor_op_gmma.avg.pct_of_peak_sustained_elapsed",
            "HGMMA",
            "QGMMA",
            "IGMMA",
            "BGMMA",
        ),
    ),
    FactDefinition(
        "sparse_instructions",
        "count",
        "Executed MMA with a 2:4 sparse operand, of any type but tcgen05, whose opcode does not show it.",
        _count("HMMA.SP", "IMMA.SP", "QMMA.SP", "OMMA.SP", "HGMMA.SP", "QGMMA.SP", "IGMMA.SP"),
        (_OPCODES,),
        "opcodes",
    ),
    FactDefinition(
        "tma_instructions",
        "count",
        "Executed TMA loads (UTMALDG, UBLKCP).",
        _path_count("tma", "smsp__inst_executed_op_tma_ld.sum", "UTMALDG", "UBLKCP"),
    ),
    FactDefinition(
        "cp_async_instructions",
        "count",
        "Executed cp.async (LDGSTS).",
        _path_count("cp-async", "smsp__inst_executed_op_ldgsts.sum", "LDGSTS"),
    ),
    FactDefinition("barrier_instructions", "count", "Executed BAR.", _count("BAR"), (), "opcodes"),
    FactDefinition(
        "global_atomic_instructions",
        "count",
        "Executed ATOM, ATOMG, RED.",
        _count("ATOM", "ATOMG", "RED", "REDG"),
        (),
        "opcodes",
    ),
    FactDefinition("shared_atomic_instructions", "count", "Executed ATOMS.", _count("ATOMS"), (), "opcodes"),
    FactDefinition("global_load_instructions", "count", "Executed LDG.", _count("LDG", "LD"), (), "opcodes"),
    FactDefinition(
        "global_atomic_share",
        "share",
        "ATOM, ATOMG and RED of all instructions.",
        _share("ATOM", "ATOMG", "RED", "REDG"),
        (),
        "opcodes",
    ),
    FactDefinition("shared_load_share", "share", "LDS of all instructions.", _share("LDS"), (), "opcodes"),
    FactDefinition("sleep_instructions", "count", "Executed NANOSLEEP.", _count("NANOSLEEP"), (), "opcodes"),
    FactDefinition(
        "fence_instructions",
        "count",
        "Executed MEMBAR and cache-control fences.",
        _count("MEMBAR", "ERRBAR", "CCTL"),
        (),
        "opcodes",
    ),
    FactDefinition("move_share", "share", "MOV of all instructions.", _share("MOV"), (), "opcodes"),
    FactDefinition(
        "debug_build", "bool", "Compiled without optimisation (-G), by its MOVs.", _debug_build, (), "opcodes"
    ),
    FactDefinition(
        "copied_through_registers",
        "share",
        "Bytes stored to shared memory by STS over bytes loaded by LDG.",
        _copy_through_registers,
        (),
        "opcodes",
    ),
    FactDefinition(
        "staged_in_loop",
        "share",
        "Bytes that loops with a CTA barrier store to shared memory as they were loaded, of those loaded.",
        lambda c: staged_in_loop(c.kernel.lines),
        (),
        "lines",
    ),
    FactDefinition(
        "bytes_per_tma",
        "byte",
        "Bytes that one TMA instruction moves.",
        _bytes_per_tma,
        ("l1tex__m_xbar2l1tex_read_bytes_mem_global_op_tma_ld.sum",),
        "opcodes",
    ),
    FactDefinition(
        "fp8_emulated", "ratio", "FP8 unpack instructions beside each 16-bit MMA.", _fp8_emulated, (), "opcodes"
    ),
)
