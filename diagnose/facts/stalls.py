"""Facts on waiting: stall reasons, and what is waited for at the waiting address.

`exposed_*` facts are shares of the kernel's time: the samples of one kind among those taken while the scheduler issued
nothing, times the share of time without issue. A stall under cover of other warps costs nothing and does not count.
"""

from __future__ import annotations

from diagnose.facts.context import Compute, Context, FactDefinition
from diagnose.model import KernelProfile, Scalar
from diagnose.sass.polling import polled_waits, swapped_again, tried_again
from diagnose.sass.waits import KINDS, Wait, by_kind, waits

REASONS = (
    "barrier",
    "branch_resolving",
    "dispatch_stall",
    "drain",
    "gmma",
    "imc_miss",
    "lg_throttle",
    "long_scoreboard",
    "math_pipe_throttle",
    "membar",
    "mio_throttle",
    "misc",
    "no_instruction",
    "not_selected",
    "selected",
    "short_scoreboard",
    "sleeping",
    "tex_throttle",
    "wait",
)

# The sampled name of a reason where it differs from the counted one (trap 24).
_SAMPLED_NAME = {"gmma": "warpgroup_arrive", "no_instruction": "no_instructions"}


def distribution(kernel: KernelProfile) -> tuple[str, dict[str, float], dict[str, float]]:
    """(source, share of warp time by reason, share among samples without issue by reason).

    source is `sampled`, `counted` or `none`; the third is empty unless sampled with `_not_issued`.
    """
    sampled = {r: kernel.number(f"smsp__pcsamp_warps_issue_stalled_{_SAMPLED_NAME.get(r, r)}") for r in REASONS}
    known = {r: v for r, v in sampled.items() if v is not None}
    total = sum(known.values())
    if total > 0:
        quiet = {
            r: kernel.number(f"smsp__pcsamp_warps_issue_stalled_{_SAMPLED_NAME.get(r, r)}_not_issued") for r in known
        }
        quiet_total = sum(v for v in quiet.values() if v is not None)
        shares = {r: (v or 0.0) / quiet_total for r, v in quiet.items()} if quiet_total > 0 else {}
        return "sampled", {r: v / total for r, v in known.items()}, shares
    for pattern in (
        "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio",
        "smsp__average_warp_latency_issue_stalled_{}.ratio",
        "smsp__warp_issue_stalled_{}_per_warp_active.pct",
        "smsp__average_warps_issue_stalled_{}_not_issued_per_issue_active.ratio",
    ):
        counted = {r: kernel.number(pattern.format(r)) for r in REASONS}
        known = {r: v for r, v in counted.items() if v is not None}
        total = sum(known.values())
        if total > 0:
            return "counted", {r: v / total for r, v in known.items()}, {}
    return "none", {}, {}


def _distribution(c: Context) -> tuple[str, dict[str, float], dict[str, float]]:
    found = c.cached("stalls", lambda: distribution(c.kernel))
    assert isinstance(found, tuple)
    return found


def kernel_waits(c: Context) -> tuple[Wait, ...]:
    """Waiting samples by address, computed once."""
    found = c.cached("waits", lambda: waits(c.kernel.lines))
    assert isinstance(found, tuple)
    return found


def _quiet_samples(c: Context) -> tuple[float, float] | None:
    """(samples taken while the scheduler issued nothing, all samples); None when not sampled so."""
    pattern = "smsp__pcsamp_warps_issue_stalled_{}"
    names = [_SAMPLED_NAME.get(r, r) for r in REASONS]
    total = sum(c.kernel.number(pattern.format(n)) or 0.0 for n in names)
    quiet = sum(c.kernel.number(pattern.format(n) + "_not_issued") or 0.0 for n in names)
    return (quiet, total) if total > 0 and quiet > 0 else None


def _waiting_time(c: Context) -> float | None:
    """Share of the kernel's time that stalls can explain: cycles without issue, less those that dispatch took.

    Samples marked "not issued" leave out cycles in which a selected instruction was held at dispatch (register banks,
    a busy pipe); those are fixed latency (`_held_at_dispatch`) and no waiting for data.
    """
    no_issue = c.value("no_issue")
    samples = _quiet_samples(c)
    if no_issue is None or samples is None:
        return no_issue
    active = c.value("sm_active")
    return min(no_issue, samples[0] / samples[1] * (active if active is not None else 1.0))


def _held_at_dispatch(c: Context) -> float:
    no_issue, waiting = c.value("no_issue"), _waiting_time(c)
    return max(0.0, no_issue - waiting) if no_issue is not None and waiting is not None else 0.0


def exposed_reason(c: Context, *reasons: str) -> float | None:
    """Share of the kernel's time without issue that these stall reasons take."""
    source, shares, quiet = _distribution(c)
    waiting_time = _waiting_time(c)
    if source == "none":
        c.miss("smsp__average_warps_issue_stalled_*_per_issue_active.ratio (WarpStateStats)")
        return None
    known = [r for r in reasons if r in shares]
    if not known:
        c.miss(f"smsp__average_warps_issue_stalled_{reasons[0]}_per_issue_active.ratio")
        return None
    if waiting_time is None:
        return None
    if quiet:
        return waiting_time * sum(quiet.get(r, 0.0) for r in reasons)
    waiting = sum(v for r, v in shares.items() if r not in {"selected", "not_selected"})
    return waiting_time * sum(shares.get(r, 0.0) for r in reasons) / waiting if waiting > 0 else 0.0


def _exposed_fixed(c: Context) -> float | None:
    waiting = exposed_reason(c, "wait", "dispatch_stall")
    return waiting + _held_at_dispatch(c) if waiting is not None else None


def _wait_shares(c: Context) -> dict[str, float]:
    found = c.cached("wait_shares", lambda: by_kind(kernel_waits(c)))
    assert isinstance(found, dict)
    return found


def exposed_kind(*kinds: str) -> Compute:
    """Fact function: share of the kernel's time without issue spent waiting for one of `kinds`."""

    def compute(c: Context) -> Scalar | None:
        if not any(line.stalls for line in c.kernel.lines):
            c.miss("source counters (warp samples by address)")
            return None
        waiting_time = _waiting_time(c)
        if waiting_time is None:
            return None
        shares = _wait_shares(c)
        return waiting_time * sum(shares.get(kind, 0.0) for kind in kinds)

    return compute


def _share_of(reason: str) -> Compute:
    def compute(c: Context) -> Scalar | None:
        source, shares, _ = _distribution(c)
        if source == "none":
            c.miss(f"smsp__average_warps_issue_stalled_{reason}_per_issue_active.ratio")
            return None
        if reason not in shares:
            c.miss(f"smsp__average_warps_issue_stalled_{reason}_per_issue_active.ratio")
            return None
        return shares[reason]

    return compute


def _exposed_reasons(*reasons: str) -> Compute:
    return lambda c: exposed_reason(c, *reasons)


def _wait_kind_or_reason(kinds: tuple[str, ...], reasons: tuple[str, ...]) -> Compute:
    """By address where samples are there, else by the stall reason's name."""
    by_address = exposed_kind(*kinds)

    def compute(c: Context) -> Scalar | None:
        if any(line.stalls for line in c.kernel.lines):
            return by_address(c)
        return exposed_reason(c, *reasons)

    return compute


def _cycles_per_load(c: Context) -> float | None:
    """Cycles that a warp waits for data on long scoreboard for each global or local load it executes (latency seen by a
    warp). Waits for others under the same reason (mbarriers, atomics, copies, textures) are left out by address.
    """
    source, shares, _ = _distribution(c)
    per_instruction = c.number(
        "smsp__average_warp_latency_per_inst_issued.ratio", "smsp__average_warps_active_per_inst_executed.ratio"
    )
    executed = sum(c.kernel.opcodes.values())
    loads = sum(n for op, n in c.kernel.opcodes.items() if op.split(".", 1)[0] in {"LDG", "LD", "LDL"})
    if source == "none" or per_instruction is None or not loads or not executed:
        return None
    waiting = [wait for wait in kernel_waits(c) if wait.stall == "long_scoreboard"]
    samples = sum(wait.samples for wait in waiting)
    for_loads = sum(wait.samples for wait in waiting if wait.kind in ("global_load", "local_load"))
    share = shares.get("long_scoreboard", 0.0) * (for_loads / samples if samples else 1.0)
    return per_instruction * share * executed / loads


def _source(c: Context) -> str:
    return _distribution(c)[0]


def _exposed_polling(c: Context) -> float | None:
    if not any(line.stalls for line in c.kernel.lines):
        c.miss("source counters (warp samples by address)")
        return None
    waiting_time = _waiting_time(c)
    return None if waiting_time is None else waiting_time * polled_waits(c.kernel.lines, kernel_waits(c))


def _issued_tries(c: Context) -> float | None:
    again, issuing = tried_again(c.kernel.lines), c.value("issue_active")
    if again is None:
        c.miss("source counters (SASS by address)")
    if again is None or issuing is None:
        return None
    return again * issuing * (c.value("sm_active") or 1.0)


def _swapped_again(c: Context) -> float | None:
    again = swapped_again(c.kernel.lines)
    if again is None:
        c.miss("source counters (SASS by address)")
    return again


_COUNTED = tuple(f"smsp__average_warps_issue_stalled_{r}_per_issue_active.ratio" for r in REASONS)

FACTS: tuple[FactDefinition, ...] = (
    FactDefinition("stall_source", "text", "Whether stalls were sampled, counted or not measured.", _source, _COUNTED),
    *(
        FactDefinition(f"stall_{reason}", "share", f"Warp time stalled on {reason}.", _share_of(reason))
        for reason in REASONS
    ),
    *(
        FactDefinition(
            f"exposed_{kind}",
            "share",
            f"Time without issue spent waiting for: {kind.replace('_', ' ')}.",
            exposed_kind(kind),
            (),
            "lines",
        )
        for kind in KINDS
    ),
    FactDefinition(
        "exposed_long_scoreboard",
        "share",
        "Time without issue under long-scoreboard stalls.",
        _exposed_reasons("long_scoreboard"),
    ),
    FactDefinition(
        "exposed_short_scoreboard",
        "share",
        "Time without issue under short-scoreboard stalls.",
        _exposed_reasons("short_scoreboard"),
    ),
    FactDefinition(
        "exposed_fixed_latency",
        "share",
        "Time without issue under wait, dispatch and math-pipe stalls: short dependent chains.",
        _exposed_fixed,
    ),
    FactDefinition(
        "exposed_math_throttle",
        "share",
        "Time without issue because a math pipe was taken.",
        _exposed_reasons("math_pipe_throttle"),
    ),
    FactDefinition(
        "exposed_mio_throttle",
        "share",
        "Time without issue because the MIO queue (shared memory, special functions, shuffles) was full.",
        _exposed_reasons("mio_throttle", "tex_throttle"),
    ),
    FactDefinition(
        "exposed_lg_throttle",
        "share",
        "Time without issue because the queue for global and local accesses was full.",
        _exposed_reasons("lg_throttle"),
    ),
    FactDefinition(
        "exposed_barrier",
        "share",
        "Time without issue at CTA barriers (BAR).",
        _wait_kind_or_reason(("cta_barrier",), ("barrier",)),
    ),
    FactDefinition("exposed_membar", "share", "Time without issue at memory fences.", _exposed_reasons("membar")),
    FactDefinition(
        "exposed_polling",
        "share",
        "Time without issue in loops that poll a flag, and at the barrier right behind one.",
        _exposed_polling,
        (),
        "lines",
    ),
    FactDefinition(
        "issued_tries",
        "share",
        "Time in which schedulers issued nothing but another try of an mbarrier: waiting, too.",
        _issued_tries,
        ("inst_executed",),
        "lines",
    ),
    FactDefinition(
        "retried_swaps",
        "share",
        "Instructions that compare and swap in shared memory again, of all.",
        _swapped_again,
        ("inst_executed",),
        "lines",
    ),
    FactDefinition("exposed_sleeping", "share", "Time without issue asleep.", _exposed_reasons("sleeping")),
    FactDefinition(
        "exposed_instruction_fetch_stall",
        "share",
        "Time without issue without instructions or waiting for branches.",
        _exposed_reasons("no_instruction"),
    ),
    FactDefinition(
        "exposed_constant_miss", "share", "Time without issue for immediate constants.", _exposed_reasons("imc_miss")
    ),
    FactDefinition(
        "exposed_load",
        "share",
        "Time without issue waiting for loads from global memory.",
        _wait_kind_or_reason(("global_load", "texture", "copy_group"), ("long_scoreboard",)),
    ),
    FactDefinition(
        "cycles_per_load",
        "cycle",
        "Cycles that a warp waits for each global or local load.",
        _cycles_per_load,
        ("smsp__average_warp_latency_per_inst_issued.ratio",),
        "opcodes",
    ),
)
