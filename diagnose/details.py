"""The parts of a kernel's entry that charts and tables are drawn from. A part without a measured value is left out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import diagnose.facts  # noqa: F401 (before limits: each needs the other)
from diagnose import limits
from diagnose.facts.context import Context
from diagnose.facts.pipes import all_limits
from diagnose.facts.stalls import REASONS, distribution, kernel_waits
from diagnose.facts.work import WAVEFRONT, Operations, operations, tensor_path
from diagnose.gpus.catalogue import Architecture
from diagnose.model import Diagnosis, Limit, SassLine, Series
from diagnose.occupancy import Block, Residency, resident
from diagnose.sass.executed import main_loop as executed_main_loop
from diagnose.sass.waits import Wait

Part = dict[str, Any]

HOT_LINES = 12
MIX_ROWS = 16
TIMELINE_POINTS = 120
_STEPS = 6
_SASS_TEXT = 300  # characters of an instruction's text: the longest that nvdisasm writes are about half of it
_SOURCE_BYTES = 200_000  # a source file above that is no hand-written kernel, and would fill the page
_SECTOR = 32


def rounded(value: float, digits: int = 6) -> float | int | None:
    """`value` with `digits` significant digits; whole numbers as int; None where it is not finite."""
    if not math.isfinite(value):
        return None
    short = float(f"{value:.{digits}g}")
    if short == int(short) and abs(short) < 1e15:
        return int(short)
    return short


def exact(value: float) -> float | int | None:
    """Like `rounded`, but whole numbers that a float holds exactly keep all their digits (bytes, counts)."""
    if math.isfinite(value) and value == int(value) and abs(value) < 2**53:
        return int(value)
    return rounded(value)


# --- roofline ---


def _limit(c: Context, resource: str) -> Limit | None:
    return next((limit for limit in all_limits(c) if limit.resource == resource), None)


class _Level(NamedTuple):
    level: str
    label: str
    bytes_moved: float | None
    roof: float | None
    source: str | None


def _levels(c: Context) -> list[_Level]:
    hbm, l2, l1 = _limit(c, "hbm"), _limit(c, "l2"), _limit(c, "l1")
    recorded = c.ceilings.get("hbm")
    sms, clock = c.value("sm_count"), c.value("clock_ghz")
    wave = WAVEFRONT * sms if sms else None
    l1_roof = wave * clock * 1e9 * limits.sustained(c, "l1") if wave and clock else None
    return [
        _Level(
            "hbm",
            "HBM",
            c.value("hbm_bytes"),
            hbm.ceiling if hbm else recorded.value if recorded else None,  # for this mix of reads and writes
            hbm.ceiling_source if hbm else recorded.source if recorded else None,
        ),
        _Level(
            "l2",
            "L2",
            l2.work if l2 else None,
            l2.ceiling if l2 and l2.work else None,
            l2.ceiling_source if l2 else None,
        ),
        _Level("l1", "L1 / shared", l1.work * wave if l1 and wave else None, l1_roof, "datasheet"),
    ]


_COMPUTE_LABELS = {"fp32": "FP32", "fp64": "FP64", "fp16": "FP16"}


def _compute_roofs(c: Context, done: Operations, boost_hz: float | None) -> list[Part]:
    """The roofs of the units that the kernel uses, at its own clock; FP32 where it uses none."""
    clock = c.value("clock_ghz")
    scale = min(1.0, clock * 1e9 / boost_hz) if clock and boost_hz else 1.0
    keys: list[tuple[str, str]] = []
    if done.tensor and done.path and done.kind:
        kind = done.kind.upper()
        path = tensor_path(c, done)
        keys.append((f"tensor:{path}:{done.kind}", f"{kind} {path}"))
        if done.path == "mma" and "wgmma" in c.available_paths:
            keys.append((f"tensor:wgmma:{done.kind}", f"{kind} wgmma"))
    used = [unit for unit in ("fp32", "fp64", "fp16") if getattr(done, unit) > 0.02 * done.total]
    keys += [(unit, _COMPUTE_LABELS[unit]) for unit in used or ([] if keys else ["fp32"])]
    roofs = []
    for key, label in keys:
        ceiling = c.ceilings.get(key)
        if ceiling is not None:
            roofs.append({"label": label, "flops_per_s": rounded(ceiling.value * scale), "source": ceiling.source})
    return roofs


def roofline(c: Context, boost_hz: float | None) -> Part | None:
    """Points at HBM, L2 and L1 for useful and issued work, with the roofs that this GPU sustains."""
    done, us = operations(c), c.value("duration_us")
    if done is None or not us or done.total <= 0:
        return None
    useful = c.value("useful_flops")
    levels = _levels(c)
    points = []
    # Without declared work what was issued counts as useful; equal to it, one point shows both.
    apart = useful is not None and abs(done.total - useful) > 0.01 * done.total
    for kind, flops in (("useful", useful or done.total), ("issued", done.total if apart else None)):
        for level in levels:
            if flops and level.bytes_moved:
                points.append(
                    {
                        "level": level.level,
                        "label": level.label,
                        "kind": kind,
                        "intensity": rounded(flops / level.bytes_moved),
                        "flops_per_s": rounded(flops / (us * 1e-6)),
                    }
                )
    slants = [
        {"label": level.label, "bytes_per_s": rounded(level.roof), "level": level.level, "source": level.source}
        for level in levels
        if level.roof
    ]
    flats = _compute_roofs(c, done, boost_hz)
    if not points or not (slants or flats):
        return None
    return {"points": points, "bandwidth_roofs": slants, "compute_roofs": flats, "issued_flops": rounded(done.total)}


# --- time, Speed of Light, memory ---

_LABELS = {
    "hbm": "HBM", "l2": "L2", "l1": "L1 / shared data", "tensor": "Tensor pipe", "fp32": "FP32 (FMA) pipe",
    "fp64": "FP64 pipe", "int": "Integer (ALU) pipe", "sfu": "Special functions", "lsu": "Load/store issue",
    "issue": "Issue slots", "nvlink": "NVLink", "library": "Library",
}  # fmt: skip


def _label(resource: str, done: Operations | None) -> str:
    label = _LABELS.get(resource, resource)
    return f"{label} ({done.path})" if resource == "tensor" and done and done.tensor and done.path else label


def time_model(c: Context, diagnosis: Diagnosis) -> list[Part]:
    """Bounds, then what a fix of each finding takes away, then the measured time."""
    us = c.value("duration_us")
    if us is None:
        return []
    done = operations(c)
    rows: list[Part] = [
        {"label": _label(limit.resource, done), "us": rounded(limit.bound_us), "kind": "bound"}
        for limit in diagnosis.limits
        if limit.utilization >= 0.01
    ]
    rows += [
        {"label": finding.title, "us": rounded(finding.at_stake * us), "kind": "waste"}
        for finding in diagnosis.findings
        if finding.at_stake is not None and finding.severity != "note"
    ][:4]
    return [*rows, {"label": "Measured", "us": rounded(us), "kind": "measured"}]


def speed_of_light(c: Context) -> list[Part]:
    """Each unit's share of its peak over the whole kernel, as ncu counts it."""
    done = operations(c)
    rows: list[Part] = []
    for resource in limits.RESOURCES:
        known = [s for s in (c.share(name) for name in resource.percentages) if s is not None]
        if known:
            rows.append(
                {
                    "resource": resource.name,
                    "label": _label(resource.name, done),
                    "utilization": rounded(max(known)),
                    "source": "share of ncu's peak",
                }
            )
    return sorted(rows, key=lambda row: -float(row["utilization"] or 0.0))


def _bytes(c: Context, factor: float, *groups: Sequence[str]) -> float | None:
    """The sum over `groups` of the first measured metric of each, times `factor`; None where none was measured."""
    found = []
    for names in groups:
        value = next((v for v in (c.kernel.number(name) for name in names) if v is not None), None)
        if value is not None:
            found.append(value * factor)
    return sum(found) if found else None


def _shared_busy(c: Context) -> float | None:
    """Wavefronts of shared memory a cycle, of one: what is known where loads and stores were not counted apart."""
    moved = c.kernel.number("l1tex__data_pipe_lsu_wavefronts_mem_shared.sum")
    cycles = c.kernel.number("l1tex__cycles_elapsed.sum")
    return rounded(min(1.0, moved / cycles)) if moved is not None and cycles else None


def memory(c: Context) -> list[Part]:
    """Traffic and hit rates by level, from the SM outwards."""

    def row(level: str, read: float | None, write: float | None, hit: str | None, resource: str | None) -> Part:
        limit = _limit(c, resource) if resource else None
        rate = c.value(hit) if hit else None
        return {
            "level": level,
            "read_bytes": exact(read) if read is not None else None,
            "write_bytes": exact(write) if write is not None else None,
            # Hit rates above 1 and below 0 are seen on short kernels: nothing is shown then.
            "hit_rate": rounded(rate) if rate is not None and 0 <= rate <= 1 else None,
            "utilization": rounded(limit.utilization) if limit else None,
        }

    global_ = "l1tex__t_sectors_pipe_lsu_mem_global_op"
    loaded, stored = (_bytes(c, _SECTOR, [f"{global_}_{way}.sum"]) for way in ("ld", "st"))
    shared = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op"
    read, written = (_bytes(c, WAVEFRONT, [f"{shared}_{way}.sum"]) for way in ("ld", "st"))
    rows = [
        row("l1", loaded, stored, "l1_hit_rate", "l1"),
        {**row("shared", read, written, None, None), "utilization": _shared_busy(c) if read is None else None},
        row(
            "l2",
            _bytes(c, _SECTOR, ["lts__t_sectors_op_read.sum", "lts__t_sectors_srcunit_tex_op_read.sum"]),
            _bytes(c, _SECTOR, ["lts__t_sectors_op_write.sum", "lts__t_sectors_srcunit_tex_op_write.sum"]),
            "l2_hit_rate",
            "l2",
        ),
        row("hbm", c.value("hbm_read_bytes"), c.value("hbm_write_bytes"), None, "hbm"),
    ]  # fmt: skip
    keys = ("read_bytes", "write_bytes", "hit_rate", "utilization")
    return [item for item in rows if any(item[key] is not None for key in keys)]


# --- stalls, code ---


def stalls(c: Context) -> Part | None:
    """Warp time by stall reason, and the part of it in cycles without issue."""
    source, shares, quiet = distribution(c.kernel)
    if source == "none":
        return None
    prefix = "smsp__pcsamp_warps_issue_stalled_"
    all_samples = without_issue = 0.0
    for name in c.kernel.metrics:
        if name.startswith(prefix):
            value = c.kernel.number(name) or 0.0
            if name.endswith("_not_issued"):
                without_issue += value
            else:
                all_samples += value
    part = min(1.0, without_issue / all_samples) if all_samples else 0.0
    no_issue = c.value("no_issue")
    return {
        "source": source,
        "no_issue_share": rounded(no_issue) if no_issue is not None else None,
        "reasons": [
            {
                "reason": reason,
                "share": rounded(shares[reason]),
                "not_issued_share": rounded(quiet[reason] * part) if reason in quiet else None,
            }
            for reason in sorted(shares, key=lambda reason: (-shares[reason], REASONS.index(reason)))
            if shares[reason] > 0
        ],
    }


def instruction_mix(c: Context) -> list[Part]:
    """The most executed opcodes."""
    opcodes = c.kernel.opcodes
    total = sum(opcodes.values())
    ranked = sorted(opcodes, key=lambda opcode: (-opcodes[opcode], opcode))[:MIX_ROWS]
    return [
        {"opcode": opcode, "executed": exact(opcodes[opcode]), "share": rounded(opcodes[opcode] / total)}
        for opcode in ranked
        if total > 0
    ]


def source_line(sources: Mapping[str, Sequence[str]], line: SassLine) -> str | None:
    """The text of a SASS line's source line, where the report holds it."""
    lines = sources.get(line.file) if line.file is not None else None
    if not lines or line.line is None or not 0 < line.line <= len(lines):
        return None
    return lines[line.line - 1].rstrip()[:400] or None


def hot(c: Context) -> list[Part]:
    """The instructions with the most warp samples; by executions where the report holds no samples."""
    lines = c.kernel.lines
    total = sum(line.samples or 0 for line in lines)
    executed = sum(line.executed or 0.0 for line in lines)
    if total:
        chosen = sorted((line for line in lines if line.samples), key=lambda line: (-(line.samples or 0), line.pc))
    elif executed:
        chosen = sorted((line for line in lines if line.executed), key=lambda line: (-(line.executed or 0.0), line.pc))
    else:
        return []
    chosen = chosen[:HOT_LINES]
    wanted = {line.file for line in chosen if line.file is not None}
    sources = {name: text.splitlines() for name, text in c.kernel.sources.items() if name in wanted}
    longest: dict[int, Wait] = {}  # the waits are in falling order
    for wait in kernel_waits(c):
        longest.setdefault(wait.line.pc, wait)
    rows = []
    for line in chosen:
        wait_here = longest.get(line.pc)
        cause = wait_here.cause if wait_here is not None else None
        waits = {reason: n for reason, n in line.stalls.items() if reason != "selected" and n > 0}
        share = (line.samples or 0) / total if total else (line.executed or 0.0) / executed
        rows.append(
            {
                "pc": hex(line.pc),
                "sass": line.text,
                "executed": exact(line.executed) if line.executed is not None else None,
                "samples": line.samples,
                "share": rounded(share),
                "stall": max(sorted(waits), key=lambda reason: waits[reason]) if waits else None,
                "waits_for": wait_here.kind if wait_here is not None else None,
                "cause": None
                if cause is None
                else {"pc": hex(cause.pc), "sass": cause.text, "file": cause.file, "line": cause.line},
                "file": line.file,
                "line": line.line,
                "source": source_line(sources, line),
            }
        )
    return rows


def main_loop(c: Context) -> Part | None:
    """The loop that holds the time, with the warp instructions executed in it by category. None without executed
    counts by address, or without a loop."""
    loop = executed_main_loop(c.kernel.lines)
    if loop is None:
        return None
    return {
        "pc": hex(loop.first.pc),
        "to": hex(loop.last.pc),
        "file": loop.first.file,
        "line": loop.first.line,
        "iterations": exact(loop.iterations),
        "executed": exact(loop.executed),
        "share": rounded(loop.share),
        "budget": [
            {"category": name, "executed": exact(n), "share": rounded(n / loop.executed)}
            for name, n in loop.budget.items()
        ],
    }


def code(c: Context) -> Part | None:
    """The kernel's whole code, for the page: every instruction in the order of its address with samples, executions
    and what it waits for most, and the source files it comes from. None where the report holds no code.

    A line is [pc in hex, text, samples, warp instructions executed, stall reason, file (index into `files`), line];
    what was not measured is None.
    """
    lines = sorted(c.kernel.lines, key=lambda line: line.pc)
    if not lines:
        return None
    files: dict[str, int] = {}
    rows = []
    for line in lines:
        if line.file is not None:
            files.setdefault(line.file, len(files))
        waits = {reason: n for reason, n in line.stalls.items() if reason != "selected" and n > 0}
        rows.append(
            [
                hex(line.pc),
                line.text[:_SASS_TEXT],
                line.samples,
                exact(line.executed) if line.executed is not None else None,
                max(sorted(waits), key=lambda reason: waits[reason]) if waits else None,
                files[line.file] if line.file is not None else None,
                line.line,
            ]
        )
    kept = [(name, c.kernel.sources.get(name)) for name in files]
    return {
        "lines": rows,
        "files": [
            {"file": name, "text": text if text is not None and len(text) <= _SOURCE_BYTES else None}
            for name, text in kept
        ],
    }


# --- occupancy ---


def occupancy_steps(arch: Architecture, limiter: str | None, registers: int, shared: float, block: int) -> list[Part]:
    """The next values of the limiting resource at which more blocks fit, from the present one on."""

    def fits(registers: int, shared: int) -> Residency | None:
        return resident(arch, Block(block, registers, shared))

    present = fits(registers, int(shared))
    if present is None or not present.blocks:
        return []

    def step(resource: str, at: int, there: Residency) -> Part:
        return {"resource": resource, "at": at, "occupancy": rounded(there.occupancy)}

    values: Iterable[tuple[int, Residency | None]]
    if limiter == "registers" and registers:
        resource, at = "registers", registers
        values = ((r, fits(r, int(shared))) for r in range(registers // 8 * 8, 15, -8))
    elif limiter == "shared memory" and shared:
        resource, at = "shared_bytes", int(shared)
        unit = arch.shared_unit or 128
        values = ((s, fits(registers, s)) for s in range(int(shared) // unit * unit, -1, -max(unit, 256)))
    else:
        return []
    steps = [step(resource, at, present)]
    best = present.blocks
    for value, there in values:
        if there is not None and there.blocks > best:
            best = there.blocks
            steps.append(step(resource, value, there))
            if len(steps) == _STEPS:
                break
    return steps


def occupancy(c: Context, arch: Architecture | None) -> Part | None:
    """Theoretical and achieved occupancy, what limits it, and what more of it would take."""
    theoretical, achieved = c.value("occupancy_theoretical"), c.value("occupancy_achieved")
    limiter = c.fact("occupancy_limiter")
    registers, shared = c.value("registers_per_thread"), c.value("shared_bytes_per_block")
    block = c.value("block_threads")
    if theoretical is None and achieved is None and limiter is None:
        return None
    limited_by = limiter if isinstance(limiter, str) else None
    steps: list[Part] = []
    if arch is not None and block and registers is not None and shared is not None:
        steps = occupancy_steps(arch, limited_by, int(registers), shared, int(block))
    return {
        "theoretical": rounded(theoretical) if theoretical is not None else None,
        "achieved": rounded(achieved) if achieved is not None else None,
        "limiter": limited_by,
        "registers": exact(registers) if registers is not None else None,
        "shared_bytes": exact(shared) if shared is not None else None,
        "block": exact(block) if block is not None else None,
        "steps": steps,
    }


# --- time line ---

# Readable names of PM-sampling metrics, in the order in which they are shown. The prefix is the sampling pass.
_SERIES: tuple[tuple[str, str], ...] = (
    ("sm__pipe_tensor_cycles_active_realtime.avg.pct_of_peak_sustained_elapsed", "Tensor pipe"),
    ("sm__inst_executed_realtime.avg.pct_of_peak_sustained_elapsed", "Issue slots"),
    ("sm__inst_executed_pipe_fma_realtime.avg.pct_of_peak_sustained_elapsed", "FMA pipe"),
    ("sm__inst_executed_pipe_xu_realtime.avg.pct_of_peak_sustained_elapsed", "Special functions"),
    ("l1tex__throughput.avg.pct_of_peak_sustained_elapsed", "L1 / shared"),
    ("lts__throughput.avg.pct_of_peak_sustained_elapsed", "L2"),
    ("dramc__throughput.avg.pct_of_peak_sustained_elapsed", "HBM"),
    ("dram__throughput.avg.pct_of_peak_sustained_elapsed", "HBM"),
)


def _thinned(values: Sequence[float]) -> list[float | int | None]:
    count = min(len(values), TIMELINE_POINTS)
    found: list[float | int | None] = []
    for at in range(count):
        part = values[at * len(values) // count : (at + 1) * len(values) // count]
        found.append(rounded(sum(part) / len(part), 4))
    return found


def timeline(series: Sequence[Series]) -> Part | None:
    """The units' activity over the kernel's life, at most TIMELINE_POINTS means a unit; idle units are left out."""
    by_name = {item.metric.split(".TriageCompute.")[-1]: item for item in series}
    shown: list[Part] = []
    labels: set[str] = set()
    for name, label in _SERIES:
        item = by_name.get(name)
        if item is None or label in labels or len(item.values) < 2 or max(item.values) <= 0.5:
            continue
        labels.add(label)
        shown.append({"label": label, "unit": item.unit, "values": _thinned(item.values)})
    return {"series": shown} if shown else None
