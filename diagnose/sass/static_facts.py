"""What the code of a kernel says without being run: readings of its main loop, and the facts that static rules use.

Counts are counts in the code. Shares are of the hot code: the main loop where there is one, else the whole kernel.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from diagnose.expr import Reading as Value
from diagnose.facts import CATALOGUE
from diagnose.facts.context import Context
from diagnose.model import KernelProfile, SassLine, Scalar
from diagnose.sass import mix, mma_tile, pathtable, products, rings, tcgen05
from diagnose.sass.cfg import COPIES, MMA, WGMMA, Graph, Loop, category, graph
from diagnose.sass.disassemble import Code, Instruction
from diagnose.sass.elf import KernelResources
from diagnose.sass.mma_tile import Tile
from diagnose.sass.text import parse

_GLOBAL_LOADS = frozenset({"LDG", "LD"})
_DOUBLE = frozenset({"DFMA", "DADD", "DMUL", "DSETP", "DMNMX"})
_LOCAL = frozenset({"LDL", "STL"})
_GMMA_SHAPE = re.compile(r"^(\d+)x(\d+)x(\d+)$")
_WAIT = re.compile(r"\b(?:gsb0|SB0)\s*,\s*(0x[0-9a-f]+)")
_REGISTER_LIST = re.compile(r"\bR(\d+)\b")
# Functions of the compiler's own library that are software paths (names as nvdisasm prints them).
_SOFTWARE = re.compile(
    r"__cuda_sm\d+x?_(?:div|rem|rcp|sqrt|rsqrt|dblrcp|dsqrt|pow)|__internal_.*(?:div|rem|pow|trig|accurate)"
)
# One warp-level MMA in multiply-adds, by the shape in its opcode.
_SHAPES: Mapping[str, tuple[int, int, int]] = {
    "884": (8, 8, 4), "8x8x4": (8, 8, 4), "1684": (16, 8, 4), "1688": (16, 8, 8), "16816": (16, 8, 16),
    "16832": (16, 8, 32), "16864": (16, 8, 64), "168128": (16, 8, 128), "8816": (8, 8, 16), "8832": (8, 8, 32),
    "88128": (8, 8, 128), "168256": (16, 8, 256), "16x8x4": (16, 8, 4), "16x8x8": (16, 8, 8), "16x8x16": (16, 8, 16),
}  # fmt: skip


@dataclass(frozen=True)
class Kernel:
    """The code of one kernel with its graph and what its cubin says of it."""

    code: Code
    resources: KernelResources

    @cached_property
    def graph(self) -> Graph:
        """The control-flow graph."""
        return graph(self.code)

    @property
    def loop(self) -> Loop | None:
        """The main loop."""
        return self.graph.main_loop

    @cached_property
    def all(self) -> tuple[Instruction, ...]:
        """Every instruction that can run, without the padding behind the last one."""
        instructions = list(self.code.instructions)
        while instructions and instructions[-1].base == "NOP":
            instructions.pop()
        if instructions and instructions[-1].base == "BRA" and len(instructions) > 1 and not instructions[-1].predicate:
            at = self.code.labels.get(instructions[-1].targets[0]) if instructions[-1].targets else None
            if at == len(instructions) - 1:
                instructions.pop()  # the jump to itself that ends a section
        return tuple(i for i in instructions if not i.never)

    @cached_property
    def hot(self) -> tuple[Instruction, ...]:
        """The main loop, or everything where there is no loop; without the NOPs that space instructions on sm_120."""
        chosen = self.graph.inside(self.loop) if self.loop is not None else self.all
        return tuple(i for i in chosen if i.base != "NOP")

    @cached_property
    def looped(self) -> frozenset[int]:
        """Addresses inside any loop."""
        return frozenset(i.pc for loop in self.graph.loops for i in self.graph.inside(loop))

    @cached_property
    def opcodes(self) -> Mapping[str, int]:
        """Instructions in the code by opcode."""
        return Counter(i.opcode for i in self.all)

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """Data paths in the code, by opcodes, operands and the cubin's own notes."""
        found = set(pathtable.of_code((i.opcode, i.text) for i in self.all))
        if self.resources.clusters:
            found.add("cluster")
        return tuple(sorted(found))

    @property
    def sm(self) -> int | None:
        """The architecture number (90)."""
        match = re.fullmatch(r"sm_(\d+)[a-z]?", self.code.arch)
        return int(match[1]) if match else None

    @cached_property
    def context(self) -> Context:
        """The hot code as the facts of profiled kernels see one: each instruction executed once."""
        opcodes = {name: float(n) for name, n in Counter(i.opcode for i in self.hot).items()}
        lines = tuple(SassLine(i.pc, i.text, executed=1.0, file=i.file, line=i.line) for i in self.hot)
        profile = KernelProfile(0, 0, self.code.name, self.code.name, "kernel", {}, {}, (), opcodes, opcodes, lines)
        return Context(profile, self.sm, {}, frozenset(), CATALOGUE)


def count(instructions: Sequence[Instruction], *bases: str) -> int:
    """Instructions with one of the base opcodes."""
    return sum(1 for i in instructions if i.base in bases)


# --- readings ---


@dataclass(frozen=True)
class Wgmma:
    """How a kernel uses wgmma in its hot code.

    `operands` SS, RS or SS+RS; `per_wait` wgmma instructions for each wait; `distance` the groups that the most
    relaxed wait leaves in flight; `serialized` whether each wgmma is waited for before the next.
    """

    n: int
    operands: str
    instructions: int
    groups: int
    waits: int
    per_wait: float
    distance: int | None
    serialized: bool


def wgmma(kernel: Kernel) -> Wgmma | None:
    """The reading of wgmma; None without any."""
    hot = kernel.hot if count(kernel.hot, *WGMMA) else kernel.all
    issued = [i for i in hot if i.base in WGMMA]
    if not issued:
        return None
    waits = [i for i in hot if i.opcode.startswith("WARPGROUP.DEPBAR")]
    left = [int(match[1], 16) for i in waits if (match := _WAIT.search(i.text))]
    operands = sorted({"RS" if _a_in_registers(i) else "SS" for i in issued})
    groups = sum(1 for i in issued if "gsb0" in i.text)
    per_wait = len(issued) / len(waits) if waits else float(len(issued))
    distance = max(left, default=None)
    return Wgmma(
        n=mix.wgmma_n(Counter(i.opcode for i in issued)) or 0,
        operands="+".join(reversed(operands)) if len(operands) > 1 else operands[0],
        instructions=len(issued),
        groups=groups,
        waits=len(waits),
        per_wait=per_wait,
        distance=distance,
        serialized=bool(waits) and distance == 0 and per_wait <= 1.5,
    )


def _a_in_registers(instruction: Instruction) -> bool:
    """RS: the first source of a wgmma is a register, `HGMMA… R24, R28, gdesc[UR4], R24`."""
    operands = [part.strip() for part in instruction.text[len(instruction.opcode) :].split(",")]
    return len(operands) > 2 and not operands[1].startswith("gdesc")


@dataclass(frozen=True)
class Pipeline:
    """Stages of the copies into shared memory, and what shows them: `commit groups`, `mbarriers` or `ring counters`."""

    stages: int
    shown_by: str


def pipeline(kernel: Kernel) -> Pipeline | None:
    """Stages of a pipelined loop; None where the code does not show them beyond doubt.

    With cp.async a loop of S stages has S-1 groups committed before it, and its wait leaves S-2 or S-1 groups in
    flight. With mbarriers each stage has one that says full, and one that says empty where consumers arrive on it; the
    stage's number wraps around at S. Where threads share the initialisation, the wrapping counters alone show S.
    """
    loop = kernel.loop
    if loop is None:
        return None
    inside = kernel.hot
    if count(inside, "LDGDEPBAR") and count(inside, "LDGSTS"):
        waits = [int(m[1], 16) for i in inside if i.opcode == "DEPBAR.LE" and (m := _WAIT.search(i.text))]
        stages = count(_before(kernel, loop), "LDGDEPBAR") + 1
        possible = {max(waits, default=0) + 1, max(waits, default=0) + 2}
        return Pipeline(stages, "commit groups") if stages in possible else None
    initialised = [i for i in kernel.all if i.opcode.startswith("SYNCS.EXCH")]
    if not count(kernel.all, "UTMALDG", "UBLKCP") or not initialised:
        return None
    if any(i.pc in kernel.looped or i.predicate for i in initialised):
        # How many there are is decided at run time; the counters of their rings still wrap around at the stages.
        found = rings.stages(kernel.all, kernel.looped)
        return Pipeline(found, "ring counters") if found is not None else None
    # Consumers say that a stage is empty; a producer's own arrive announces bytes and is written without A1T0.
    released = any(
        i.opcode.startswith("SYNCS.ARRIVE") and {"A1T0", "RED"} & set(i.opcode.split(".")) and i.pc in kernel.looped
        for i in kernel.all
    )
    number = len(initialised)
    if released and number % 2:
        return None
    stages = number // 2 if released else number
    wraps = rings.wraps(kernel.all, kernel.looped)
    if stages in wraps or (not wraps and stages & (stages - 1) == 0):
        return Pipeline(stages, "mbarriers")
    return None


def _before(kernel: Kernel, loop: Loop) -> list[Instruction]:
    """Instructions on the way to the loop: those of blocks that dominate its header and are in no loop with it."""
    blocks = kernel.graph.blocks
    at = kernel.graph.dominators[loop.header]
    found: list[Instruction] = []
    inside = {b for other in kernel.graph.loops for b in other.blocks if loop.blocks <= other.blocks}
    while at is not None:
        if at not in inside:
            found += kernel.code.instructions[blocks[at].first : blocks[at].last + 1]
        at = kernel.graph.dominators[at]
    # A prologue under a condition (`if (s < tiles) load`) does not dominate, but leads to the loop and to it alone.
    header = blocks[loop.header].first
    dominating = {i.pc for i in found}
    for number, block in enumerate(blocks):
        if block.first < header and number not in inside and kernel.graph.reaches(number, loop.header):
            found += [
                i
                for i in kernel.code.instructions[block.first : block.last + 1]
                if i.pc not in dominating and i.base == "LDGDEPBAR"
            ]
    return [i for i in found if not i.never]


_IMMEDIATE = re.compile(r"\b(0x[0-9a-f]+)\s*$")


def setmaxnreg(kernel: Kernel) -> dict[str, list[int]] | None:
    """Registers a thread that warp groups ask for while they run: `lowered_to` and `raised_to`, in rising order. None
    without setmaxnreg. The kernel starts, and occupancy counts, with the registers that the cubin names."""
    found: dict[str, set[int]] = {"lowered_to": set(), "raised_to": set()}
    asked = [i for i in kernel.all if i.base == "USETMAXREG"]
    for i in asked:
        match = _IMMEDIATE.search(i.text)
        if match:
            found["lowered_to" if "DEALLOC" in i.opcode else "raised_to"].add(int(match[1], 16))
    return {name: sorted(values) for name, values in found.items()} if asked else None


def budget(kernel: Kernel) -> Mapping[str, int]:
    """Instructions of the hot code by category (one iteration of the main loop, every path through it counted)."""
    found = Counter(category(i) for i in kernel.hot)
    return {name: found[name] for name in sorted(found)}


def widths(kernel: Kernel) -> Mapping[str, Mapping[str, int]]:
    """Accesses of the hot code by space and bytes a lane: {"global_load": {"16": 4}, …}."""
    found: dict[str, Counter[str]] = {}
    for i in kernel.hot:
        space = category(i)
        if space in {"global_load", "global_store", "shared_load", "shared_store"} or i.base == "LDGSTS":
            name = "async_copy" if i.base == "LDGSTS" else space
            found.setdefault(name, Counter())[str(mix.access_bytes(i.opcode))] += 1
    return {space: dict(sorted(sizes.items())) for space, sizes in sorted(found.items())}


def instruction_shape(instruction: Instruction) -> tuple[int, int, int] | None:
    """m, n, k in the opcode of a Tensor instruction; None where it has none (tcgen05)."""
    found = None
    for modifier in instruction.opcode.split(".")[1:]:
        if modifier in _SHAPES:
            found = _SHAPES[modifier]
        elif match := _GMMA_SHAPE.match(modifier):
            found = (int(match[1]), int(match[2]), int(match[3]))
    return found


def tcgen05_shapes(kernel: Kernel) -> tuple[tcgen05.Shape | None, ...]:
    """The shape of each tcgen05.mma of the hot code; None for one whose descriptor is not a constant of the code."""
    wanted = {i.pc for i in kernel.hot if tcgen05.is_mma(i)}
    code = kernel.all
    return tuple(tcgen05.shape(code, at) for at, i in enumerate(code) if i.pc in wanted)


def kernel_operations(kernel: Kernel) -> Mapping[str, float | None]:
    """Tensor operations of the hot code once, by `path:type`: a warp's, and with tcgen05 a block's (one thread issues
    them). None where the shape of a tcgen05.mma is not in the code."""
    found: dict[str, float | None] = dict(tensor_operations(kernel.hot))
    for shape in tcgen05_shapes(kernel):
        if shape is None:
            found["tcgen05"] = None
            continue
        key = f"tcgen05:{shape.kind}"
        found[key] = (found.get(key) or 0.0) + shape.operations
    return found


def tensor_operations(instructions: Sequence[Instruction]) -> Mapping[str, float]:
    """Operations (2 a multiply-add) that the Tensor instructions issue once, by `path:type`, per warp; without tcgen05,
    whose shape is not in the opcode."""
    found: dict[str, float] = {}
    for i in instructions:
        if i.base not in MMA or i.base.startswith("UTC"):
            continue
        base, *modifiers = i.opcode.split(".")
        shape = instruction_shape(i)
        size = 2.0 * math.prod(shape) if shape is not None else 0.0
        if i.base in WGMMA:
            size /= 4  # four warps issue it together
        path = {"HMMA": "mma", "IMMA": "int-mma", "BMMA": "int-mma", "DMMA": "fp64-mma", "QMMA": "fp8-mma"}.get(
            base, "block-scaled-mma" if base == "OMMA" else "wgmma"
        )
        kind = _type_of(base, modifiers)
        found[f"{path}:{kind}"] = found.get(f"{path}:{kind}", 0.0) + size
    return found


def _type_of(base: str, modifiers: Sequence[str]) -> str:
    if base in {"QMMA", "QGMMA"}:
        return "fp8"
    if base == "OMMA":
        return "fp4"
    if base in {"IMMA", "IGMMA"}:
        return "int4" if {"S4", "U4"} & set(modifiers) else "int8"
    if base in {"BMMA", "BGMMA"}:
        return "b1"
    if base == "DMMA":
        return "fp64"
    return "bf16" if "BF16" in modifiers else "tf32" if "TF32" in modifiers else "fp16"


@dataclass(frozen=True)
class Spills:
    """Bytes that spill code stores and loads a thread, in the whole kernel and inside loops."""

    stored: int
    loaded: int
    in_loops: int


def spills(kernel: Kernel) -> Spills:
    """Spill code, by the compiler's marks; without marks, local accesses at fixed places of the stack, where the
    kernel has no indexed local access (older compilers)."""
    local = [i for i in kernel.all if i.base in _LOCAL]
    if kernel.code.has_spill_marks:
        chosen = [i for i in local if i.spill]
    elif not _marks_expected(kernel) and not any(_indexed(i) for i in local):
        chosen = local
    else:
        chosen = []
    return Spills(
        stored=sum(mix.access_bytes(i.opcode) for i in chosen if i.base == "STL"),
        loaded=sum(mix.access_bytes(i.opcode) for i in chosen if i.base == "LDL"),
        in_loops=sum(mix.access_bytes(i.opcode) for i in chosen if i.pc in kernel.looped),
    )


def _marks_expected(kernel: Kernel) -> bool:
    """Whether the compiler that made the code marks spills: ABI version 8, which CUDA 13 writes for every target."""
    return kernel.resources.abi >= 8


def _indexed(instruction: Instruction) -> bool:
    """Whether a local access has an address other than the stack pointer plus a constant."""
    inside = re.search(r"\[([^]]*)\]", instruction.text)
    return inside is not None and re.fullmatch(r"R1(?:\+-?0x[0-9a-f]+)?", inside[1]) is None


def spill_share(kernel: Kernel) -> float:
    """Spill code's share of the instructions of the main loop."""
    if kernel.loop is None or not spills(kernel).in_loops:
        return 0.0
    marked = kernel.code.has_spill_marks
    return sum(1 for i in kernel.hot if i.base in _LOCAL and (i.spill or not marked)) / len(kernel.hot)


def local_array(kernel: Kernel) -> list[Instruction]:
    """Local accesses of the hot code with a run-time index: an array that is kept in local memory."""
    return [i for i in kernel.hot if i.base in _LOCAL and not i.spill and _indexed(i)]


def staged(kernel: Kernel) -> list[Instruction]:
    """Shared stores of the hot code whose data was loaded from global memory in it, unchanged or repacked."""
    loaded: set[str] = set()
    found: list[Instruction] = []
    cheap = {"MOV", "PRMT", "SEL", "HADD2", "F2FP", "IMAD", "LOP3", "SHF"}
    for turn in (False, True):  # twice around the loop: a load for the next iteration stands behind its store
        for i in kernel.hot:
            parsed = parse(i.text)
            if parsed is None:
                continue
            if i.base in _GLOBAL_LOADS:
                loaded |= _written(i, parsed.destinations)
            elif i.base == "STS":
                data = i.text.rsplit(",", 1)[-1]
                if turn and {f"R{number}" for number in _REGISTER_LIST.findall(data)} & loaded:
                    found.append(i)
            elif i.base in cheap and parsed.sources & loaded:
                loaded |= parsed.destinations
            else:
                loaded -= parsed.destinations
    return found


def _written(instruction: Instruction, destinations: frozenset[str]) -> set[str]:
    return {name for name in destinations if name.startswith("R")}


def staged_reuse(kernel: Kernel) -> float:
    """Bytes read from shared memory in the main loop for each byte that was staged there through registers.

    A load counts until something else is stored: an exchange between threads (CUB's BlockLoad and BlockStore) reads
    each byte once, and stores and reads its results in the same memory.
    """
    here = staged(kernel) if kernel.loop is not None else []
    stored, copies = sum(mix.access_bytes(i.opcode) for i in here), {i.pc for i in here}
    loaded = 0.0
    held = storing = False
    for turn in (False, True):  # twice around the loop: a tile for the next iteration is stored behind its reads
        for i in kernel.hot:
            if i.base in {"STS", "STSM"}:
                if i.pc in copies:
                    held = storing = True
                elif not storing:
                    held = False
            elif i.base in {"BAR", "LDS", "LDSM"}:
                storing = False
                if not (turn and held):
                    continue
                if i.base == "LDS":
                    loaded += mix.access_bytes(i.opcode)
                elif i.base == "LDSM":
                    last = i.opcode.rsplit(".", 1)[-1]
                    loaded += 4 * (int(last) if last in {"1", "2", "4"} else 1)
    return loaded / stored if stored else 0.0


def outer_product(kernel: Kernel) -> float:
    """Products of each loaded value of the main loop with another one; 0 without a loop."""
    return products.outer_product(i.text for i in kernel.hot) if kernel.loop is not None else 0.0


def _mma_tile(kernel: Kernel) -> Tile | None:
    hot = kernel.hot if count(kernel.hot, "HMMA") else kernel.all
    first = hot[0].pc if hot else 0
    return mma_tile.tile(hot, [i for i in kernel.all if i.pc < first])


def _warps(kernel: Kernel) -> int:
    """Warps of a block; 4 where the code does not fix the block size: usual for tiles of 64 and 128."""
    threads = kernel.resources.required_threads or kernel.resources.max_threads
    return max(1, threads // 32) if threads and threads < 1024 else 4


def mma_tile_elements(kernel: Kernel) -> int | None:
    """Output elements of a block's warp-level MMA tile: accumulators of a warp times its warps."""
    found = _mma_tile(kernel)
    return found.elements(_warps(kernel)) if found is not None else None


def mma_rows(kernel: Kernel) -> int | None:
    """Rows that a block's warp-level MMA tile has at most: every warp of the block above the others."""
    found = _mma_tile(kernel)
    return found.most_rows(_warps(kernel)) if found is not None else None


def software_calls(kernel: Kernel) -> list[Instruction]:
    """Calls of the hot code into the compiler's division, root and power functions; the slow path of a float division,
    which only special values take, is none."""
    return [
        i
        for i in kernel.hot
        if i.base == "CALL" and any(_SOFTWARE.search(name) and "slowpath" not in name for name in i.targets)
    ]


# Instructions of a software path beside the one that shows it (nvcc 13.0 listings): a 32-bit integer division by a
# run-time divisor around its I2F.…RP, a call into 64-bit division or a double function.
_PER_DIVISION, _PER_CALL = 18, 70


def software_share(kernel: Kernel) -> float:
    """Software paths (division and modulo by run-time divisors, double and 64-bit functions) of the hot code's work."""
    divisions = sum(1 for i in kernel.hot if i.base == "I2F" and "RP" in i.opcode.split("."))
    called = _PER_CALL * len(software_calls(kernel))
    total = len(kernel.hot) + called
    return min(1.0, (divisions * _PER_DIVISION + called) / total) if total else 0.0


# --- facts ---


@dataclass(frozen=True)
class StaticFact:
    """A fact of the code alone."""

    name: str
    unit: str
    doc: str
    compute: Callable[[Kernel], Scalar | None]


def _shared_with_profiled(name: str) -> StaticFact:
    """A fact of profiled kernels, evaluated on the hot code."""
    definition = CATALOGUE[name]

    def compute(kernel: Kernel) -> Scalar | None:
        return kernel.context.evaluate(name).value

    return StaticFact(name, definition.unit, f"{definition.doc} Of the hot code.", compute)


def _flag(fact: Callable[[Wgmma], Scalar | None]) -> Callable[[Kernel], Scalar | None]:
    def compute(kernel: Kernel) -> Scalar | None:
        reading = wgmma(kernel)
        return fact(reading) if reading is not None else None

    return compute


def _async_copies(kernel: Kernel) -> int:
    return count(kernel.all, *COPIES)


FACTS: Mapping[str, StaticFact] = {
    fact.name: fact
    for fact in (
        StaticFact("code_instructions", "count", "Instructions of the kernel.", lambda k: len(k.all)),
        StaticFact("hot_instructions", "count", "Instructions of the main loop.", lambda k: len(k.hot)),
        StaticFact("has_loop", "bool", "Whether the kernel has a loop.", lambda k: k.loop is not None),
        StaticFact("code_tensor", "count", "Tensor instructions in the code.", lambda k: count(k.all, *MMA)),
        StaticFact("code_mma", "count", "Warp-level 16-bit MMA in the code.", lambda k: count(k.all, "HMMA")),
        StaticFact("code_wgmma", "count", "wgmma in the code.", lambda k: count(k.all, *WGMMA)),
        StaticFact(
            "code_tcgen05", "count", "tcgen05.mma in the code.",
            lambda k: sum(1 for i in k.all if i.base in MMA and i.base.startswith("UTC")),
        ),
        StaticFact("mma_tile_elements", "count", "Output elements of a block's warp-level tile.", mma_tile_elements),
        StaticFact("mma_rows", "count", "Rows of a block's warp-level tile at most.", mma_rows),
        StaticFact("async_copies", "count", "cp.async, TMA and bulk copies in the code.", _async_copies),
        StaticFact("staged_stores", "count", "Shared stores of loaded data in the main loop.",
                   lambda k: len(staged(k)) if k.loop is not None else 0),
        StaticFact("staged_reuse", "ratio", "Shared bytes read for each byte staged through registers.", staged_reuse),
        StaticFact("outer_product_uses", "ratio", "Products of each loaded value with another one.", outer_product),
        StaticFact("software_share", "share", "Software paths of the main loop's work.", software_share),
        StaticFact("loop_barriers", "count", "CTA barriers in the main loop.",
                   lambda k: count(k.hot, "BAR") if k.loop is not None else 0),
        StaticFact("wgmma_width", "count", "N of the wgmma that does most of the work.", _flag(lambda w: w.n)),
        StaticFact("wgmma_wait_distance", "count", "Groups left in flight by a wait.", _flag(lambda w: w.distance)),
        StaticFact("wgmma_for_each_wait", "ratio", "wgmma for each wait in the code.", _flag(lambda w: w.per_wait)),
        StaticFact("wgmma_waits_after_each", "bool", "Whether each wgmma is waited for.",
                   _flag(lambda w: w.serialized)),
        StaticFact("spill_bytes", "byte", "Bytes stored by spill code.", lambda k: spills(k).stored),
        StaticFact("loop_spill_bytes", "byte", "Bytes that spill code moves inside loops.",
                   lambda k: spills(k).in_loops),
        StaticFact("loop_spill_share", "share", "Spill code of the instructions of the main loop.", spill_share),
        StaticFact("stack_bytes", "byte", "Stack of a thread.", lambda k: k.resources.stack_bytes),
        StaticFact("registers", "count", "Registers of a thread.", lambda k: k.resources.registers),
        StaticFact("local_array_accesses", "count", "Indexed local accesses in the main loop.",
                   lambda k: len(local_array(k))),
        StaticFact("software_calls", "count", "Calls of software division, root or power in the main loop.",
                   lambda k: len(software_calls(k))),
        StaticFact("code_double", "count", "Double instructions in the main loop.", lambda k: count(k.hot, *_DOUBLE)),
        *(
            _shared_with_profiled(name)
            for name in (
                "half_fma_share", "sixteen_bit_matrix", "double_matrix", "fp8_emulated",
                "double_share", "double_conversions", "has_double_data", "move_share",
                "fma_share", "integer_share", "conversion_share",
            )
        ),
    )
}  # fmt: skip


def units() -> Mapping[str, str]:
    """Fact name -> unit: the catalogue that static rules are checked against."""
    return {name: fact.unit for name, fact in FACTS.items()}


@dataclass(frozen=True)
class StaticEnv:
    """A rule's view of one kernel's code."""

    kernel: Kernel
    _known: dict[str, Scalar | None] = field(default_factory=dict, compare=False)

    @property
    def opcodes(self) -> Mapping[str, float]:
        """Instructions in the code by opcode."""
        return self.kernel.opcodes

    @cached_property
    def loop_opcodes(self) -> Mapping[str, float]:
        """Instructions in the main loop by opcode."""
        loop = self.kernel.loop
        return Counter(i.opcode for i in self.kernel.graph.inside(loop)) if loop is not None else {}

    def lookup(self, name: str) -> Value:
        """A fact."""
        if name not in self._known:
            value = FACTS[name].compute(self.kernel)
            self._known[name] = float(value) if type(value) is int else value
        value = self._known[name]
        return value, FACTS[name].unit, () if value is not None else (name,)

    def metric(self, name: str) -> Value:
        """No counters here."""
        return None, "", (name,)
