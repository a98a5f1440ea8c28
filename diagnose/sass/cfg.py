"""The control-flow graph of a kernel: basic blocks, natural loops, the main loop, and roles of warps."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from diagnose.sass.disassemble import Code, Instruction

MMA = frozenset(
    {"HMMA", "IMMA", "DMMA", "QMMA", "OMMA", "BMMA", "HGMMA", "QGMMA", "IGMMA", "BGMMA",
     "UTCHMMA", "UTCQMMA", "UTCIMMA", "UTCOMMA"}
)  # fmt: skip
WGMMA = frozenset({"HGMMA", "QGMMA", "IGMMA", "BGMMA"})
COPIES = frozenset({"LDGSTS", "UTMALDG", "UBLKCP"})
_JUMPS = frozenset({"BRA", "BRX", "JMP", "JMX", "BRXU", "JMXU", "BREAK"})
_OWN = re.compile(r"__internal_|__cuda_")
_ENDS = frozenset({"EXIT", "RET", "KILL", "BPT"})
# A loop this short around an mbarrier test or a sleep only waits; it is no loop of the algorithm.
_SPIN = 24
_DEEPER = 10.0  # iterations assumed of an inner loop in one of its outer loop: tiles of 8 to 32 are common

# Category of an instruction by base opcode: what a loop's budget is told in.
_CATEGORIES: Mapping[str, frozenset[str]] = {
    "mma": MMA,
    "copy": frozenset({"LDGSTS", "UTMALDG", "UBLKCP", "UTMASTG", "UTMAREDG", "UBLKRED", "UTCCP", "UTMAPF", "UBLKPF"}),
    "fragment": frozenset({"LDSM", "STSM", "MOVM", "LDTM", "STTM"}),
    "global_load": frozenset({"LDG", "LD", "TEX", "TLD", "TLD4", "SULD"}),
    "global_store": frozenset({"STG", "ST", "SUST"}),
    "shared_load": frozenset({"LDS"}),
    "shared_store": frozenset({"STS", "STAS"}),
    "local": frozenset({"LDL", "STL"}),
    "constant": frozenset({"LDC", "LDCU", "ULDC"}),
    "atomic": frozenset({"ATOM", "ATOMG", "ATOMS", "RED", "REDG", "SUATOM", "SURED"}),
    "barrier": frozenset(
        {"BAR", "WARPGROUP", "SYNCS", "DEPBAR", "LDGDEPBAR", "UCGABAR_ARV", "UCGABAR_WAIT", "UTCBAR", "WARPSYNC",
         "UTMACMDFLUSH", "ARRIVES", "NANOSLEEP", "B2R", "R2B", "CGAERRBAR"}
    ),
    "fence": frozenset({"MEMBAR", "FENCE", "ERRBAR", "CCTL"}),
    "float": frozenset({"FFMA", "FMUL", "FADD", "FFMA2", "FADD2", "FMUL2", "FMNMX", "FMNMX3", "FSETP", "FSEL", "FSET",
                        "FCHK", "FSWZADD"}),
    "half": frozenset({"HFMA2", "HADD2", "HMUL2", "HMNMX2", "HSETP2", "HSET2"}),
    "double": frozenset({"DFMA", "DADD", "DMUL", "DSETP", "DMNMX"}),
    "special": frozenset({"MUFU"}),
    "conversion": frozenset({"F2F", "F2I", "I2F", "F2FP", "I2FP", "I2I", "FRND", "I2IP", "F2IP"}),
    "shuffle": frozenset({"SHFL", "VOTE", "VOTEU", "REDUX", "CREDUX", "MATCH"}),
    "move": frozenset({"MOV", "UMOV", "SEL", "USEL", "PRMT", "UPRMT", "R2UR", "S2R", "S2UR", "CS2R", "UCS2R", "P2R",
                       "R2P", "PLOP3", "UPLOP3"}),
    "control": frozenset(
        {"BRA", "BRX", "BRXU", "JMP", "JMX", "EXIT", "RET", "CALL", "BSSY", "BSYNC", "BREAK", "NOP", "ELECT", "YIELD",
         "BMOV", "BPT", "LEPC", "USETMAXREG", "PREEXIT", "ACQBULK"}
    ),
}  # fmt: skip
_CATEGORY_OF = {base: name for name, bases in _CATEGORIES.items() for base in bases}
CATEGORIES = (*_CATEGORIES, "integer", "other")
_INTEGER = (
    "IMAD", "IADD", "LEA", "LOP", "SHF", "ISETP", "IABS", "IMNMX", "VIADD", "VIMNMX", "IDP", "UI", "UL", "US", "UF",
    "FLO", "POPC", "BREV", "BMSK", "SGXT", "ISCADD", "IMUL", "XMAD", "UB", "UP", "VABSDIFF", "SHL", "SHR", "ICMP",
)  # fmt: skip


def category(instruction: Instruction) -> str:
    """What an instruction is for, in one word of CATEGORIES."""
    return category_of(instruction.opcode)


def category_of(opcode: str) -> str:
    """What an opcode with its modifiers is for, in one word of CATEGORIES."""
    base = opcode.split(".", 1)[0]
    if opcode.startswith(("HFMA2.MMA", "IMAD.MOV")):
        return "move"  # idioms of the compiler: a constant, and a move on the FMA pipe
    found = _CATEGORY_OF.get(base)
    if found is not None:
        return found
    return "integer" if base.startswith(_INTEGER) else "other"


@dataclass(frozen=True)
class Block:
    """Instructions `first` to `last` (inclusive) that run in a row; `following` are the blocks that may come next."""

    first: int
    last: int
    following: tuple[int, ...]


@dataclass(frozen=True)
class Loop:
    """A natural loop: its header block, all its blocks, and its depth (1 for an outermost loop)."""

    header: int
    blocks: frozenset[int]
    depth: int


@dataclass(frozen=True)
class Graph:
    """The blocks of a kernel and what follows from them. `calls` are entry blocks of functions, by the block that calls
    them; such an entry also follows its caller, and where the function returns to is left out."""

    code: Code
    blocks: tuple[Block, ...]
    calls: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

    @cached_property
    def preceding(self) -> list[list[int]]:
        """Blocks that may come before each block."""
        found: list[list[int]] = [[] for _ in self.blocks]
        for number, block in enumerate(self.blocks):
            for other in block.following:
                found[other].append(number)
        return found

    @cached_property
    def dominators(self) -> list[int | None]:
        """Immediate dominator of each block; None for the entry and for blocks that nothing reaches."""
        order = self._reverse_postorder()
        rank = {block: i for i, block in enumerate(order)}
        immediate: list[int | None] = [None] * len(self.blocks)
        if not order:
            return immediate
        immediate[order[0]] = order[0]
        changed = True
        while changed:
            changed = False
            for block in order[1:]:
                best: int | None = None
                for other in self.preceding[block]:
                    if immediate[other] is None or other not in rank:
                        continue
                    if best is None:
                        best = other
                        continue
                    left, right = other, best
                    while left != right:
                        while rank[left] > rank[right]:
                            left = immediate[left]  # type: ignore[assignment]
                        while rank[right] > rank[left]:
                            right = immediate[right]  # type: ignore[assignment]
                    best = left
                if best != immediate[block]:
                    immediate[block] = best
                    changed = True
        immediate[order[0]] = None
        return immediate

    def _reverse_postorder(self) -> list[int]:
        seen: set[int] = set()
        order: list[int] = []
        if not self.blocks:
            return order
        stack: list[tuple[int, int]] = [(0, 0)]
        seen.add(0)
        while stack:
            block, at = stack.pop()
            following = self.blocks[block].following
            if at < len(following):
                stack.append((block, at + 1))
                if following[at] not in seen:
                    seen.add(following[at])
                    stack.append((following[at], 0))
            else:
                order.append(block)
        order.reverse()
        return order

    def dominates(self, first: int, second: int) -> bool:
        """Whether every way to block `second` goes through block `first`."""
        at: int | None = second
        while at is not None:
            if at == first:
                return True
            at = self.dominators[at]
        return False

    @cached_property
    def loops(self) -> tuple[Loop, ...]:
        """Natural loops, outermost first, without those that only spin on a barrier."""
        return tuple(loop for loop in self.all_loops if not self._spins(loop))

    @cached_property
    def all_loops(self) -> tuple[Loop, ...]:
        """Every natural loop; loops with one header are one."""
        bodies: dict[int, set[int]] = {}
        reached = set(self._reverse_postorder())
        for number, block in enumerate(self.blocks):
            if number not in reached:
                continue
            for header in block.following:
                if self.dominates(header, number):
                    bodies.setdefault(header, {header}).update(self._body(header, number))
        found = [Loop(header, frozenset(body | self._called(body)), 0) for header, body in bodies.items()]
        # The last instruction of a section is a jump to itself that never runs.
        found = [loop for loop in found if not self._trap(loop)]
        spinning = {loop.header for loop in found if self._spins(loop)}
        result = []
        for loop in found:
            outer = sum(1 for other in found if other.header not in spinning and loop.blocks <= other.blocks)
            result.append(Loop(loop.header, loop.blocks, outer + (loop.header in spinning)))
        return tuple(sorted(result, key=lambda loop: (loop.depth, self.blocks[loop.header].first)))

    def _trap(self, loop: Loop) -> bool:
        block = self.blocks[loop.header]
        return len(loop.blocks) == 1 and block.first == block.last

    def _body(self, header: int, tail: int) -> set[int]:
        body = {tail}
        stack = [tail]
        while stack:
            block = stack.pop()
            if block == header:
                continue
            for other in self.preceding[block]:
                if other not in body:
                    body.add(other)
                    stack.append(other)
        return body

    def _called(self, body: Collection[int]) -> set[int]:
        """Blocks of the functions that the blocks call, and that those call: they run in each iteration too."""
        found: set[int] = set()
        waiting = [entry for number in body for entry in self.calls.get(number, ())]
        while waiting:
            entry = waiting.pop()
            if entry in found or entry in body:
                continue
            function = {number for number in range(len(self.blocks)) if self.dominates(entry, number)}
            found |= function
            waiting += [other for number in function for other in self.calls.get(number, ())]
        return found

    def _spins(self, loop: Loop) -> bool:
        inside = self.inside(loop)
        if len(inside) > _SPIN:
            return False
        if any(i.opcode.startswith("BRA.U.ANY") for i in inside):
            return True  # one turn a thread, for what only one thread may issue: no loop of the algorithm
        bases = {instruction.base for instruction in inside}
        waits = "NANOSLEEP" in bases or any(i.opcode.startswith("SYNCS.PHASECHK") for i in inside)
        polls = any(i.base in {"LDG", "LD", "LDS", "ATOMG", "ATOM"} and "STRONG" in i.opcode for i in inside)
        return (waits or polls) and not bases & (MMA | COPIES | {"FFMA", "STG", "STS"})

    def inside(self, loop: Loop) -> list[Instruction]:
        """The instructions of a loop in address order, without those that never run."""
        code = self.code.instructions
        return [
            code[index]
            for number in sorted(loop.blocks)
            for index in range(self.blocks[number].first, self.blocks[number].last + 1)
            if not code[index].never
        ]

    @cached_property
    def main_loop(self) -> Loop | None:
        """The loop that holds the work: the one with most MMA of its own, or where there is no MMA with most
        instructions of its own (outside inner loops). How often a loop runs is not in the code: one level deeper
        counts as ten times as often. None without a loop."""
        loops = self.loops
        if not loops:
            return None

        def own(loop: Loop) -> list[Instruction]:
            inner = {b for other in loops if other is not loop and other.blocks < loop.blocks for b in other.blocks}
            return self.inside(Loop(loop.header, loop.blocks - inner, loop.depth))

        bodies = {loop.header: own(loop) for loop in loops}
        products = {header: sum(1 for i in body if i.base in MMA) for header, body in bodies.items()}
        some = any(products.values())

        def work(loop: Loop) -> tuple[float, int]:
            amount = products[loop.header] if some else len(bodies[loop.header])
            return amount * _DEEPER ** (loop.depth - 1), loop.depth

        return max(loops, key=work)

    def reaches(self, first: int, second: int) -> bool:
        """Whether block `second` can run after block `first`."""
        seen = {first}
        stack = [first]
        while stack:
            for other in self.blocks[stack.pop()].following:
                if other == second:
                    return True
                if other not in seen:
                    seen.add(other)
                    stack.append(other)
        return False

    @cached_property
    def roles(self) -> tuple[str, ...]:
        """Roles of warps that run different loops: a producer copies and multiplies nothing, a consumer multiplies or
        computes and copies nothing, and neither reaches the other's loop. Empty when all warps run the same loops."""
        outermost = [loop for loop in self.loops if loop.depth == 1]
        copying, multiplying = [], []
        for loop in outermost:
            bases = {instruction.base for instruction in self.inside(loop)}
            if bases & MMA and not bases & COPIES:
                multiplying.append(loop)
            elif bases & COPIES and not bases & MMA:
                copying.append(loop)
        for producer in copying:
            for consumer in multiplying:
                if not self.reaches(producer.header, consumer.header) and not self.reaches(
                    consumer.header, producer.header
                ):
                    return ("producer", "consumer")
        return ()


def conditional(instruction: Instruction) -> bool:
    """Whether control may also go on to the next instruction after a jump or an exit."""
    if instruction.predicate not in (None, "PT"):
        return True
    if instruction.base not in _JUMPS or "`(" not in instruction.text:
        return False
    # Uniform jumps carry their condition as an operand: BRA.U !UP0, `(.L_x_3).
    return instruction.text[: instruction.text.index("`(")].rstrip().endswith(",")


def graph(code: Code) -> Graph:
    """Builds the graph of a kernel's code."""
    instructions: Sequence[Instruction] = code.instructions
    count = len(instructions)
    if not count:
        return Graph(code, ())
    leaders = {0}
    targets: dict[int, list[int]] = {}
    for index, instruction in enumerate(instructions):
        if instruction.base in _JUMPS:
            found = [code.labels[name] for name in instruction.targets if name in code.labels]
            targets[index] = [at for at in found if at < count]
            leaders.update(targets[index])
        elif instruction.base == "CALL":
            # The compiler's own routines (division, powers) are no place of the algorithm: see `software_calls`.
            found = [code.labels[name] for name in instruction.targets if name in code.labels]
            targets[index] = [at for at in found if at < count and not _OWN.search(instruction.text)]
            leaders.update(targets[index])
        if (instruction.base in _JUMPS or instruction.base in _ENDS or targets.get(index)) and index + 1 < count:
            leaders.add(index + 1)
    starts = sorted(leaders)
    number_of = {start: number for number, start in enumerate(starts)}
    blocks = []
    calls: dict[int, tuple[int, ...]] = {}
    for number, start in enumerate(starts):
        last = (starts[number + 1] if number + 1 < len(starts) else count) - 1
        final = instructions[last]
        following: list[int] = []
        if final.base in _JUMPS:
            following += [number_of[at] for at in targets[last]]
            if conditional(final) and number + 1 < len(starts):
                following.append(number + 1)
        elif final.base == "CALL" and targets.get(last):
            calls[number] = tuple(number_of[at] for at in targets[last])
            following += calls[number]
            if number + 1 < len(starts):
                following.append(number + 1)
        elif final.base in _ENDS:
            if conditional(final) and number + 1 < len(starts):
                following.append(number + 1)
        elif number + 1 < len(starts):
            following.append(number + 1)
        blocks.append(Block(start, last, tuple(dict.fromkeys(following))))
    return Graph(code, tuple(blocks), calls)
