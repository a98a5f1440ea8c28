"""Facts of a kernel's code beside an architecture that it may move to: what `rules/migration` is asked about
(`diagnose static FILE --for sm_90a`). Pure.

`shared_bytes` is what the cubin fixes: shared memory given at launch is not in the code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from diagnose import occupancy
from diagnose.expr import Reading
from diagnose.facts import CATALOGUE
from diagnose.gpus import catalogue
from diagnose.gpus.catalogue import Architecture
from diagnose.model import Scalar
from diagnose.sass import mix, static_facts, tcgen05
from diagnose.sass.cfg import MMA, WGMMA
from diagnose.sass.static_facts import Kernel, count

_THREADS = 128  # where the code does not fix a block size; a warp group, and the usual size of tiles of 64 and 128
_COPIED = ("LDGSTS", "UTMALDG", "UBLKCP")


@dataclass(frozen=True)
class Target:
    """Where a kernel may move to, and what the user says of the work."""

    arch: Architecture
    declared: Mapping[str, Scalar] = field(default_factory=dict)

    @property
    def l2_bytes(self) -> float | None:
        """The smallest L2 of the products of that architecture: what holds for all of them."""
        sizes = [one.l2_bytes for one in catalogue.products() if one.sm == self.arch.sm and one.l2_bytes]
        return float(min(sizes)) if sizes else None


@dataclass(frozen=True)
class MigrationFact:
    """A fact of a kernel and the architecture it may move to."""

    name: str
    unit: str
    doc: str
    compute: Callable[[Kernel, Target], Scalar | None]


def _threads(kernel: Kernel) -> int:
    return kernel.resources.required_threads or kernel.resources.max_threads or _THREADS


def _blocks(kernel: Kernel, arch: Architecture) -> int | None:
    resources = kernel.resources
    if resources.registers is None:
        return None
    block = occupancy.Block(_threads(kernel), resources.registers, resources.shared_bytes, resources.barriers or 0)
    found = occupancy.resident(arch, block)
    return found.blocks if found is not None else None


def _blocks_here(kernel: Kernel, target: Target) -> int | None:
    return _blocks(kernel, catalogue.architecture(kernel.sm)) if kernel.sm is not None else None


def _stages(kernel: Kernel, target: Target) -> int | None:
    found = static_facts.pipeline(kernel)
    return found.stages if found is not None else None


def _stage_room(kernel: Kernel, target: Target) -> float | None:
    """Shared memory of a block of the target for each stage that the code has."""
    stages = _stages(kernel, target)
    room = target.arch.shared_per_block
    return room / stages if stages and room else None


def _shared_of_target(kernel: Kernel, target: Target) -> float | None:
    room = target.arch.shared_per_block
    return kernel.resources.shared_bytes / room if room else None


def _copy_width(kernel: Kernel, target: Target) -> int | None:
    """Bytes a lane of the narrowest cp.async or staged global load of the hot code."""
    copies = [i for i in kernel.hot if i.base == "LDGSTS"] or [i for i in kernel.hot if i.base == "LDG"]
    return min((mix.access_bytes(i.opcode) for i in copies), default=None)


def _accumulators(kernel: Kernel) -> int:
    """Different accumulator registers that wgmma of the code begins at: output tiles of a warp group."""
    first = set()
    for i in kernel.all:
        if i.base in WGMMA:
            match = re.match(r"\s*(R\d+)", i.text[len(i.opcode) :])
            if match:
                first.add(match[1])
    return len(first)


def _accumulator_registers(kernel: Kernel, target: Target) -> int | None:
    """Registers a thread that the largest wgmma accumulators take: 64 rows by N values of 4 bytes over 128 threads."""
    reading = static_facts.wgmma(kernel)
    return reading.n // 2 * max(1, min(_accumulators(kernel), 4)) if reading is not None and reading.n else None


def _tmem_columns(kernel: Kernel, target: Target) -> int | None:
    """Columns of Tensor Memory: those that tcgen05.alloc asks for, else those that the wgmma accumulators would take
    (N columns of 4 bytes a tile; 128 lanes hold the rows of two warp groups)."""
    own = tcgen05.columns(kernel.all)
    if own is not None:
        return own
    reading = static_facts.wgmma(kernel)
    if reading is None or not reading.n:
        return None
    return tcgen05.allocated_for(reading.n * max(1, min(_accumulators(kernel), 4)))


def _tmem_blocks(kernel: Kernel, target: Target) -> int | None:
    """Blocks an SM whose allocations fit its 512 columns."""
    columns = _tmem_columns(kernel, target)
    return tcgen05.COLUMNS // columns if columns else None


def _epilogue_stores(kernel: Kernel, target: Target) -> int:
    """Stores of results outside the main loop."""
    inside = {i.pc for i in kernel.hot}
    return sum(1 for i in kernel.all if i.base in {"STG", "STS", "STSM", "UTMASTG"} and i.pc not in inside)


def _arrivals(kernel: Kernel, target: Target) -> int:
    return sum(1 for i in kernel.all if i.opcode.startswith("SYNCS.ARRIVE"))


def _of_code(*bases: str) -> Callable[[Kernel, Target], Scalar | None]:
    return lambda kernel, target: count(kernel.all, *bases)


_OWN: Mapping[str, MigrationFact] = {
    fact.name: fact
    for fact in (
        MigrationFact("code_sm", "count", "Architecture that the code is for (80).", lambda k, t: k.sm),
        MigrationFact("target_sm", "count", "Architecture that it may move to (90).", lambda k, t: t.arch.sm),
        MigrationFact("code_cp_async", "count", "cp.async in the code.", _of_code("LDGSTS")),
        MigrationFact("code_tma", "count", "TMA and bulk copies in the code.", _of_code("UTMALDG", "UBLKCP")),
        MigrationFact("code_ldmatrix", "count", "ldmatrix in the code.", _of_code("LDSM")),
        MigrationFact("code_setmaxnreg", "count", "setmaxnreg in the code.", _of_code("USETMAXREG")),
        MigrationFact("code_fp8_mma", "count", "MMA on FP8 in the code.", _of_code("QMMA", "QGMMA", "UTCQMMA")),
        MigrationFact("code_descriptors", "count", "wgmma that read a shared memory descriptor.",
                      lambda k, t: sum(1 for i in k.all if i.base in WGMMA and "gdesc" in i.text)),
        MigrationFact("loop_mma", "count", "Tensor instructions of the main loop.", lambda k, t: count(k.hot, *MMA)),
        MigrationFact("loop_mma_share", "share", "Tensor instructions of the main loop's.",
                      lambda k, t: count(k.hot, *MMA) / len(k.hot) if k.hot else None),
        MigrationFact("loop_copies", "count", "Asynchronous copies of the main loop.",
                      lambda k, t: count(k.hot, *_COPIED)),
        MigrationFact("has_roles", "bool", "Whether warps have the roles of producer and consumer.",
                      lambda k, t: bool(k.graph.roles)),
        MigrationFact("has_cluster", "bool", "Whether the kernel uses thread block clusters.",
                      lambda k, t: "cluster" in k.paths or "tma-multicast" in k.paths or "dsm" in k.paths),
        MigrationFact("pipeline_stages", "count", "Stages of the copies into shared memory.", _stages),
        MigrationFact("stage_room", "byte", "Shared memory of the target's block for each stage.", _stage_room),
        MigrationFact("copy_width", "byte", "Bytes a lane of the narrowest copy of the main loop.", _copy_width),
        MigrationFact("shared_bytes", "byte", "Shared memory that the code fixes.",
                      lambda k, t: k.resources.shared_bytes),
        MigrationFact("shared_of_target", "share", "Shared memory that the code fixes, of the target's block.",
                      _shared_of_target),
        MigrationFact("target_shared_per_block", "byte", "Shared memory that a block of the target may have.",
                      lambda k, t: t.arch.shared_per_block),
        MigrationFact("target_shared_per_sm", "byte", "Shared memory of an SM of the target.",
                      lambda k, t: t.arch.shared_per_sm),
        MigrationFact("blocks_here", "count", "Blocks an SM that the code's own architecture holds.", _blocks_here),
        MigrationFact("blocks_on_target", "count", "Blocks an SM that the target holds.",
                      lambda k, t: _blocks(k, t.arch)),
        MigrationFact("registers_of_tile", "count", "Registers a thread that the wgmma accumulators take.",
                      _accumulator_registers),
        MigrationFact("tmem_columns", "count", "Columns of Tensor Memory a block.", _tmem_columns),
        MigrationFact("tmem_blocks", "count", "Blocks an SM whose Tensor Memory fits.", _tmem_blocks),
        MigrationFact("mbarrier_arrivals", "count", "mbarrier arrivals in the code.", _arrivals),
        MigrationFact("mbarrier_inits", "count", "mbarrier initialisations in the code.",
                      lambda k, t: sum(1 for i in k.all if i.opcode.startswith("SYNCS.EXCH"))),
        MigrationFact("wgmma_waits", "count", "Waits for wgmma in the code.",
                      lambda k, t: sum(1 for i in k.all if i.opcode.startswith("WARPGROUP.DEPBAR"))),
        MigrationFact("epilogue_stores", "count", "Stores outside the main loop.", _epilogue_stores),
        MigrationFact("useful_bytes", "byte", "Bytes that the declared problem has to move.",
                      lambda k, t: t.declared.get("useful_bytes")),
        MigrationFact("useful_flops", "count", "Operations of the declared problem.",
                      lambda k, t: t.declared.get("useful_flops")),
        MigrationFact("target_l2_bytes", "byte", "L2 of the target's smallest product.", lambda k, t: t.l2_bytes),
    )
}  # fmt: skip


def units() -> Mapping[str, str]:
    """Fact name -> unit: what rules of a migration may use, the static facts among them."""
    return {**static_facts.units(), **{name: fact.unit for name, fact in _OWN.items()}}


@dataclass(frozen=True)
class MigrationEnv:
    """A rule's view of one kernel's code and the architecture it may move to."""

    kernel: Kernel
    target: Target
    static: static_facts.StaticEnv
    _known: dict[str, Scalar | None] = field(default_factory=dict, compare=False)

    @property
    def opcodes(self) -> Mapping[str, float]:
        """Instructions in the code by opcode."""
        return self.kernel.opcodes

    @property
    def loop_opcodes(self) -> Mapping[str, float]:
        """Instructions in the main loop by opcode."""
        return self.static.loop_opcodes

    def lookup(self, name: str) -> Reading:
        """A fact."""
        if name in static_facts.FACTS:
            return self.static.lookup(name)
        if name not in _OWN:
            return None, CATALOGUE[name].unit if name in CATALOGUE else "", (name,)  # only a run can tell
        if name not in self._known:
            value = _OWN[name].compute(self.kernel, self.target)
            self._known[name] = float(value) if type(value) is int else value
        value = self._known[name]
        return value, _OWN[name].unit, () if value is not None else (name,)

    def metric(self, name: str) -> Reading:
        """No counters here."""
        return None, "", (name,)
