"""What a kernel computed: operations by unit and Tensor path, and the article's model of what bounds useful work.

P_useful <= min(U_shape P_TC, I_HBM BW_HBM, I_L2 BW_L2, I_SMEM BW_SMEM, P_scalar / f_scalar): the utilizations of the
limits are these bounds over the measured time; the facts here are the factors.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import NamedTuple

from diagnose.facts.context import Compute, Context, FactDefinition
from diagnose.facts.pipes import all_limits


class Operations(NamedTuple):
    """Floating-point (or integer Tensor) operations by unit, and the Tensor path and type that did most of them."""

    tensor: float
    fp32: float
    fp64: float
    fp16: float
    path: str | None
    kind: str | None

    @property
    def total(self) -> float:
        """All of them."""
        return self.tensor + self.fp32 + self.fp64 + self.fp16


# Operations a lane by opcode. HADD2.F32 converts and is not counted.
_PER_LANE: Mapping[str, tuple[str, float]] = {
    "FFMA": ("fp32", 2), "FADD": ("fp32", 1), "FMUL": ("fp32", 1), "FFMA32I": ("fp32", 2), "FADD32I": ("fp32", 1),
    "FMUL32I": ("fp32", 1), "FFMA2": ("fp32", 4), "FADD2": ("fp32", 2), "FMUL2": ("fp32", 2),
    "DFMA": ("fp64", 2), "DADD": ("fp64", 1), "DMUL": ("fp64", 1),
    "HFMA2": ("fp16", 4), "HADD2": ("fp16", 2), "HMUL2": ("fp16", 2),
}  # fmt: skip
# Shapes of the warp-level instructions as their opcodes write them.
_SHAPES: Mapping[str, tuple[int, int, int]] = {
    "884": (8, 8, 4), "1684": (16, 8, 4), "1688": (16, 8, 8), "16816": (16, 8, 16), "16832": (16, 8, 32),
    "16864": (16, 8, 64), "8816": (8, 8, 16), "8832": (8, 8, 32), "88128": (8, 8, 128), "168128": (16, 8, 128),
    "168256": (16, 8, 256),
}  # fmt: skip
_WARP_LEVEL = {"HMMA": "mma", "QMMA": "fp8-mma", "OMMA": "block-scaled-mma", "IMMA": "int-mma", "DMMA": "fp64-mma"}
_GROUP_LEVEL = {"HGMMA": "wgmma", "QGMMA": "fp8-wgmma", "IGMMA": "wgmma", "BGMMA": "wgmma"}
_LONG_SHAPE = re.compile(r"^(\d+)x(\d+)x(\d+)$")  # of wgmma, and of DMMA on sm_90: DMMA.16x8x4


def _tensor_operations(opcode: str) -> tuple[str, str, float] | None:
    """(path, type, operations a warp instruction) of an MMA opcode; None for others."""
    base, *modifiers = opcode.split(".")
    path = _WARP_LEVEL.get(base) or _GROUP_LEVEL.get(base)
    if path is None:
        return None
    size = 0.0
    for modifier in modifiers:
        if shape := _SHAPES.get(modifier):
            size = 2.0 * math.prod(shape)
        elif match := _LONG_SHAPE.match(modifier):
            warps = 4 if base in _GROUP_LEVEL else 1  # four warps issue a wgmma together
            size = 2.0 * math.prod(int(part) for part in match.groups()) / warps
    kind = "fp16"
    if base in {"QMMA", "QGMMA"}:
        kind = "fp8"
    elif base == "OMMA":
        kind = "fp4"
    elif base in {"IMMA", "IGMMA"}:
        kind = "int4" if "S4" in modifiers or "U4" in modifiers else "int8"
    elif base == "DMMA":
        kind = "fp64"
    elif "BF16" in modifiers:
        kind = "bf16"
    elif "TF32" in modifiers:
        kind = "tf32"
    return path, kind, size


def operations(c: Context) -> Operations | None:
    """What the kernel executed, from its opcodes, else from ncu's operation counters; None where neither is there."""
    found = c.cached("operations", lambda: _operations(c))
    assert found is None or isinstance(found, Operations)
    return found


def _operations(c: Context) -> Operations | None:
    kernel = c.kernel
    if not kernel.opcodes:
        return _counted_operations(c)
    units = dict.fromkeys(("fp32", "fp64", "fp16"), 0.0)
    # HFMA2.MMA alone is how the compiler writes constants; beside plain HFMA2 it is arithmetic.
    plain_half = any(op.split(".", 1)[0] == "HFMA2" and ".MMA" not in op for op in kernel.thread_opcodes)
    for opcode, count in kernel.thread_opcodes.items():
        base = opcode.split(".", 1)[0]
        if base in _PER_LANE and not opcode.startswith("HADD2.F32") and (plain_half or base != "HFMA2"):
            unit, each = _PER_LANE[base]
            units[unit] += each * count
    paths: dict[tuple[str, str], float] = {}
    for opcode, count in kernel.opcodes.items():
        if found := _tensor_operations(opcode):
            path, kind, each = found
            paths[(path, kind)] = paths.get((path, kind), 0.0) + each * count
    tensor = sum(paths.values())
    if any(opcode.startswith("UTC") for opcode in kernel.opcodes):  # tcgen05: the shape is not in the opcode
        tensor = max(tensor, counted_tensor(c) or 0.0)
        return Operations(tensor, units["fp32"], units["fp64"], units["fp16"], "tcgen05", None)
    most = max(paths, key=lambda key: paths[key]) if paths else (None, None)
    return Operations(tensor, units["fp32"], units["fp64"], units["fp16"], *most)


def tensor_path(c: Context, done: Operations) -> str | None:
    """The Tensor path that did most, `sparse-` where its operands are 2:4 sparse: such operations count as dense ones
    and have twice the rate."""
    paths = c.fact("paths")
    sparse = isinstance(paths, str) and f"sparse-{done.path}" in paths.split()
    return f"sparse-{done.path}" if sparse else done.path


def counted_tensor(c: Context) -> float | None:
    """Tensor operations by ncu's own counters, all source types; None where there is none."""
    # `src` metrics are the totals by data type; `op` metrics count the same work by instruction path.
    names = [n for n in c.kernel.metrics if n.startswith("sm__ops_path_tensor_src_") and n.endswith(".sum")]
    known = [v for v in (c.kernel.number(name) for name in names) if v is not None]
    return sum(known) if known else None


def issued_tensor(c: Context) -> float | None:
    """Tensor operations by executed opcodes, else by ncu's own counters; None where neither tells.

    Opcodes tell all but tcgen05's, whose shape stands in a descriptor: they agree with the counters on all 60 recorded
    kernels with Tensor operations, wgmma, 2:4 sparse, fp8, int8 and fp64 ones among them.
    """
    sizes = [found[2] for opcode in c.kernel.opcodes if (found := _tensor_operations(opcode)) is not None]
    done = operations(c)
    if c.kernel.opcodes and done is not None and all(sizes) and done.path != "tcgen05":
        return done.tensor
    return counted_tensor(c)


def _counted_operations(c: Context) -> Operations | None:
    kernel = c.kernel
    cycles = kernel.number("smsp__cycles_elapsed.max") or kernel.number("sm__cycles_elapsed.max")
    found: dict[str, float] = {}
    for unit, parts in {
        "fp32": (("ffma", 2), ("fadd", 1), ("fmul", 1)),
        "fp64": (("dfma", 2), ("dadd", 1), ("dmul", 1)),
        "fp16": (("hfma", 4), ("hadd", 2), ("hmul", 2)),
    }.items():
        for name, each in parts:
            stem = f"smsp__sass_thread_inst_executed_op_{name}_pred_on.sum"
            count = kernel.number(stem)
            rate = kernel.number(f"{stem}.per_cycle_elapsed")
            if count is None and rate is not None and cycles:
                count = rate * cycles
            if count is not None:
                found[unit] = found.get(unit, 0.0) + each * count
    tensor = counted_tensor(c)
    if tensor is None and not found:
        return None
    return Operations(tensor or 0.0, found.get("fp32", 0.0), found.get("fp64", 0.0), found.get("fp16", 0.0), None, None)


WAVEFRONT = 128  # bytes that L1 / shared memory moves a cycle and SM, on every architecture from sm_70 on


def _done(c: Context) -> float | None:
    """Useful operations where they are declared, else what was issued."""
    useful = c.value("useful_flops")
    if useful:
        return useful
    found = operations(c)
    return found.total if found is not None and found.total > 0 else None


def _intensity(bytes_moved: Compute) -> Compute:
    def compute(c: Context) -> float | None:
        done, moved = _done(c), bytes_moved(c)
        return done / moved if done and isinstance(moved, float) and moved else None

    return compute


def _l2_bytes(c: Context) -> float | None:
    limit = next((one for one in all_limits(c) if one.resource == "l2" and one.work_unit == "byte"), None)
    return limit.work if limit is not None else None


def _l1_bytes(c: Context) -> float | None:
    limit, sms = next((one for one in all_limits(c) if one.resource == "l1"), None), c.value("sm_count")
    return limit.work * WAVEFRONT * sms if limit is not None and sms else None


def _shape_use(c: Context) -> float | None:
    """Useful operations over those issued; only with declared work, and on the units that did most of it."""
    useful, found = c.value("useful_flops"), operations(c)
    if not useful or found is None or not found.tensor:
        return None
    return min(1.0, useful / found.tensor)


def _scalar_share(c: Context) -> float | None:
    found = operations(c)
    return 1 - found.tensor / found.total if found is not None and found.total > 0 else None


def _moved_over_useful(c: Context) -> float | None:
    ideal, moved = c.value("useful_bytes"), c.value("hbm_bytes")
    return moved / ideal if ideal and moved is not None else None


FACTS: tuple[FactDefinition, ...] = (
    FactDefinition(
        "intensity_hbm", "ratio", "I_HBM: operations for each byte of HBM.", _intensity(lambda c: c.value("hbm_bytes"))
    ),
    FactDefinition("intensity_l2", "ratio", "I_L2: operations for each byte of L2.", _intensity(_l2_bytes)),
    FactDefinition(
        "intensity_smem", "ratio", "I_SMEM: operations for each byte of L1 / shared memory.", _intensity(_l1_bytes)
    ),
    FactDefinition(
        "shape_use", "share", "U_shape: useful of the issued Tensor operations (declared problem).", _shape_use
    ),
    FactDefinition("scalar_share", "share", "f_scalar: operations that did not run on Tensor Cores.", _scalar_share),
    FactDefinition(
        "hbm_over_useful_bytes", "ratio", "Bytes of HBM over the ideal ones (declared problem).", _moved_over_useful
    ),
)
