"""What flows between the stages: frozen dataclasses, no behaviour beyond look-ups.

target -collect-> .ncu-rep -profile-> Profile -facts-> FactSet -limits-> Limits -engine-> Diagnosis -report-> document
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Scalar = float | str | bool


@dataclass(frozen=True)
class SassLine:
    """One SASS instruction of a kernel. `pc` is the offset from the kernel's first instruction in bytes.

    `samples` counts warp samples at this address, `stalls` splits them by reason (ncu's sampled reason without
    prefix: `long_scoreboard`); `not_issued` is the same for cycles in which the scheduler issued nothing.
    `executed` counts warp instructions. A field that the report does not hold is None, never 0.
    """

    pc: int
    text: str
    executed: float | None = None
    thread_executed: float | None = None
    samples: int | None = None
    stalls: Mapping[str, int] = field(default_factory=dict)
    not_issued: Mapping[str, int] = field(default_factory=dict)
    file: str | None = None
    line: int | None = None
    shared_wavefronts: float | None = None
    shared_wavefronts_ideal: float | None = None
    l2_sectors: float | None = None
    l2_sectors_ideal: float | None = None


@dataclass(frozen=True)
class Series:
    """A PM-sampling time line of one metric over the kernel's life; `values` as ncu gives them, evenly spaced."""

    metric: str
    unit: str
    values: tuple[float, ...]


@dataclass(frozen=True)
class Counted:
    """What a survey counted of a kernel in this launch configuration: its launches, and their time together."""

    launches: int
    total_us: float


@dataclass(frozen=True)
class Joined:
    """Metrics that a result holds from the same launch in another run of the program (an index into `Profile.runs`)."""

    run: int
    metrics: tuple[str, ...]


@dataclass(frozen=True)
class KernelProfile:
    """One result of a report: a kernel launch, or a range or graph (`workload`). `process` is known where a report
    holds the launches of several.

    `metrics` holds scalars by ncu name: numbers as float in ncu's base unit given in `units` (ns, byte, %, inst …),
    texts as str. NaN and infinities are left out of `metrics` and named in `not_finite`. `opcodes` counts executed
    warp instructions by SASS opcode with all modifiers (`HGMMA.64x256x16.F32.BF16`); `thread_opcodes` executed
    thread instructions. Both are empty when the report holds no instruction statistics.
    """

    run: int
    index: int
    name: str
    demangled: str
    workload: str
    metrics: Mapping[str, Scalar]
    units: Mapping[str, str]
    not_finite: tuple[str, ...] = ()
    opcodes: Mapping[str, float] = field(default_factory=dict)
    thread_opcodes: Mapping[str, float] = field(default_factory=dict)
    lines: tuple[SassLine, ...] = ()
    timeline: tuple[Series, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)
    nvtx: tuple[str, ...] = ()
    ncu_rules: tuple[Mapping[str, str], ...] = ()
    mangled: str = ""  # the compiler's name, which tells instances of one template apart; "" where a report has none
    counted: Counted | None = None
    joined: tuple[Joined, ...] = ()
    process: int | None = None

    def number(self, name: str) -> float | None:
        """The metric as a finite number, or None where it was not measured."""
        value = self.metrics.get(name)
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None

    def text(self, name: str) -> str | None:
        """The metric as text, or None where it was not measured."""
        value = self.metrics.get(name)
        return value if isinstance(value, str) else None


@dataclass(frozen=True)
class Run:
    """Where results came from: one report file, or one live collection."""

    source: str
    ncu_version: str | None = None
    command: str | None = None
    clock_control: str | None = None
    cache_control: str | None = None
    replay: str | None = None
    passes_total: int | None = None
    rank: int | None = None
    host: str | None = None
    target_exit: int | None = None
    date: str | None = None
    driver: str | None = None


@dataclass(frozen=True)
class Profile:
    """All that was read from the given reports. `lost` names results that could not be read (partial reports)."""

    runs: tuple[Run, ...]
    kernels: tuple[KernelProfile, ...]
    warnings: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()


@dataclass(frozen=True)
class Fact:
    """The value of one fact for one kernel; `value` None with the missing metrics named in `missing`."""

    name: str
    value: Scalar | None
    unit: str
    missing: tuple[str, ...] = ()


@dataclass(frozen=True)
class Ceiling:
    """A rate that a GPU sustains, in `unit` (byte/s, op/s, cycle …); `source` measured|recorded|datasheet|library.

    `date`: of the measurement (ISO), where it is known.
    """

    resource: str
    value: float
    unit: str
    source: str
    date: str | None = None


@dataclass(frozen=True)
class Limit:
    """A lower bound on time from one resource: `work` / `ceiling` = `bound_us`; utilization = bound / duration."""

    resource: str
    work: float
    work_unit: str
    ceiling: float
    ceiling_unit: str
    ceiling_source: str
    bound_us: float
    utilization: float


@dataclass(frozen=True)
class Evidence:
    """One evaluated condition. `holds` None means a side is unknown; `missing` names what was not measured."""

    fact: str
    value: Scalar | None
    unit: str
    op: str
    threshold: Scalar | None
    holds: bool | None
    missing: tuple[str, ...] = ()


@dataclass(frozen=True)
class Where:
    """A place in the code that a finding points at; `share` of this kernel's warp samples (0..1)."""

    role: str
    pc: int
    sass: str
    file: str | None
    line: int | None
    share: float


@dataclass(frozen=True)
class Speedup:
    """How many times faster the kernel would run; an interval from the limits model."""

    low: float
    expected: float
    high: float


@dataclass(frozen=True)
class Finding:
    """A rule that fired on a kernel."""

    rule: str
    klass: str
    severity: str
    title: str
    at_stake: float | None
    speedup: Speedup | None
    evidence: tuple[Evidence, ...]
    where: tuple[Where, ...]
    why: str
    change: str
    expect: Mapping[str, Scalar]
    references: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rejected:
    """A rule that did not fire, with the conditions that failed."""

    rule: str
    because: tuple[Evidence, ...]
    near: bool


@dataclass(frozen=True)
class NotEvaluated:
    """A rule whose outcome is unknown because something was not measured."""

    rule: str
    missing: tuple[str, ...]
    collect_with: str


@dataclass(frozen=True)
class Verdict:
    """The one answer for a kernel."""

    rule: str
    klass: str
    title: str
    at_stake: float | None
    speedup: Speedup | None
    confidence: str
    sentence: str


@dataclass(frozen=True)
class Diagnosis:
    """Everything said about one kernel."""

    kernel: KernelProfile
    facts: Mapping[str, Fact]
    limits: tuple[Limit, ...]
    verdict: Verdict
    findings: tuple[Finding, ...]
    rejected: tuple[Rejected, ...]
    not_evaluated: tuple[NotEvaluated, ...]
    warnings: tuple[str, ...] = ()
