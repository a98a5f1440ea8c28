"""What a fact may look at, and how a fact is declared.

A fact is a name, a unit, the ncu metrics it needs and a small pure function. Facts may use other facts; each is
computed once a kernel. A fact that cannot be computed is None and says which metrics were missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from diagnose.model import Ceiling, Fact, KernelProfile, Scalar

UNDEFINED = "(not defined for this kernel)"  # what a fact misses that has no value here, though all was measured

# ncu rounds percentages of short launches up; beyond this a percentage of elapsed time contradicts itself (trap 21).
_LARGEST_BELIEVABLE_SHARE = 1.2


Compute = Callable[["Context"], Scalar | None]


@dataclass(frozen=True)
class FactDefinition:
    """`unit`: share (0..1), us, byte, byte/s, count, ratio, cycle, text, bool …

    `needs` are metrics to collect for it (every one when several are listed; alternatives of other ncu versions are
    tried by the function itself); `code` says that it needs opcodes (`opcodes`) or per-address samples (`lines`).
    """

    name: str
    unit: str
    doc: str
    compute: Compute
    needs: tuple[str, ...] = ()
    code: str | None = None


@dataclass
class Context:
    """One kernel with its GPU; memoises facts. `arch` is the compute capability times ten (90), None when unknown."""

    kernel: KernelProfile
    arch: int | None
    ceilings: Mapping[str, Ceiling]
    available_paths: frozenset[str]
    catalogue: Mapping[str, FactDefinition]
    declared: Mapping[str, Scalar] = field(default_factory=dict)
    _values: dict[str, Fact] = field(default_factory=dict)
    _missing: list[set[str]] = field(default_factory=list)
    _cache: dict[str, object] = field(default_factory=dict)

    def number(self, *names: str) -> float | None:
        """The first of these metrics that was measured; alternatives of one quantity across ncu versions."""
        for name in names:
            value = self.kernel.number(name)
            if value is not None:
                return value
        self.miss(names[0])
        return None

    def share(self, *names: str) -> float | None:
        """The first measured percentage as 0..1. A value beyond belief (short launches) is unknown, never evidence."""
        value = self.number(*names)
        if value is None:
            return None
        if value / 100 > _LARGEST_BELIEVABLE_SHARE:
            self.miss(f"{names[0]} (reads {value:.0f} %)")
            return None
        return min(value / 100, 1.0)

    def miss(self, name: str) -> None:
        if self._missing:
            self._missing[-1].add(name)

    def has_opcodes(self) -> bool:
        """Whether executed opcodes were counted; where not, they are what is missing."""
        return self._has(self.kernel.opcodes, "sass__inst_executed_per_opcode_with_modifier_all")

    def has_thread_opcodes(self) -> bool:
        """The same of the opcodes by threads."""
        return self._has(self.kernel.thread_opcodes, "sass__thread_inst_executed_true_per_opcode_with_modifier_all")

    def _has(self, counts: Mapping[str, float], name: str) -> bool:
        if any(counts.values()):
            return True
        self.miss(name)
        return False

    def fact(self, name: str) -> Scalar | None:
        """The value of another fact."""
        return self.evaluate(name).value

    def value(self, name: str) -> float | None:
        """A numeric fact as a float."""
        result = self.fact(name)
        return float(result) if isinstance(result, int | float) and not isinstance(result, bool) else None

    def evaluate(self, name: str) -> Fact:
        """Computes and memoises one fact; its missing metrics are also those of the fact that uses it."""
        known = self._values.get(name)
        if known is None:
            definition = self.catalogue[name]
            if name in self.declared:
                known = Fact(name, self.declared[name], definition.unit)
            else:
                self._missing.append(set())
                value = definition.compute(self)
                missing = self._missing.pop()
                if value is None and not missing:
                    missing = {f"{name} {UNDEFINED}"}
                known = Fact(name, value, definition.unit, tuple(sorted(missing)) if value is None else ())
            self._values[name] = known
        if known.value is None and self._missing:
            self._missing[-1].update(known.missing)
        return known

    def quietly(self, build: Callable[[], object]) -> object:
        """Calls `build` without noting what it misses."""
        self._missing.append(set())
        try:
            return build()
        finally:
            self._missing.pop()

    def cached(self, key: str, build: Callable[[], object]) -> object:
        """Memoises an intermediate result that several facts share (the waits of a kernel, say)."""
        if key not in self._cache:
            self._cache[key] = build()
        return self._cache[key]
