"""What a sampled stall waits for: the producer of its register, a barrier, an mbarrier, a copy group."""

from __future__ import annotations

import re

import pytest

import recorded
from diagnose.model import SassLine
from diagnose.sass.waits import KINDS, Wait, by_kind, waits


def code(listing: str) -> tuple[SassLine, ...]:
    """Lines of SASS; `<- stall 10` at the end of a line puts 10 waiting samples there."""
    lines = []
    for at, text in enumerate(line.strip() for line in listing.strip().splitlines()):
        instruction, _, rest = text.partition(" <- ")
        stalls = {reason: int(n) for reason, n in re.findall(r"(\w+) (\d+)", rest)}
        lines.append(SassLine(at * 16, instruction, 100.0, samples=sum(stalls.values()), stalls=stalls))
    return tuple(lines)


def only(listing: str) -> Wait:
    found = waits(code(listing))
    assert len(found) == 1, found
    return found[0]


def cause(wait: Wait) -> str:
    return wait.cause.text.split(" ")[0] if wait.cause else "none"


@pytest.mark.parametrize(
    ("listing", "kind", "opcode"),
    [
        ("LDG.E R2, desc[UR4][R4.64]\nFADD R3, R2, R2 <- long_scoreboard 10", "global_load", "LDG.E"),
        ("LDG.E.128 R4, desc[UR4][R2.64]\nFADD R3, R7, R8 <- long_scoreboard 10", "global_load", "LDG.E.128"),
        ("LDL R2, [R1]\nFADD R3, R2, R2 <- long_scoreboard 10", "local_load", "LDL"),
        ("LDS R2, [R4]\nFADD R3, R2, R2 <- short_scoreboard 10", "shared_load", "LDS"),
        ("MUFU.EX2 R2, R4\nFADD R3, R2, R2 <- short_scoreboard 10", "special_function", "MUFU.EX2"),
        pytest.param(
            "SHFL.BFLY PT, R2, R4, 0x1, 0x1f\nFADD R3, R2, R2 <- short_scoreboard 10",
            "shuffle",
            "SHFL.BFLY",
        ),
        pytest.param(
            "ATOMG.E.ADD PT, R2, desc[UR4][R4.64], R6\nFADD R3, R2, R2 <- long_scoreboard 10",
            "global_atomic",
            "ATOMG.E.ADD",
        ),
        ("I2F R2, R4\nFADD R3, R2, R2 <- short_scoreboard 10", "conversion", "I2F"),
        ("ATOMG.E.ADD R2, desc[UR4][R4.64], R6\nFADD R3, R2, R2 <- long_scoreboard 10", "global_atomic", "ATOMG.E.ADD"),
        ("ATOMS.ADD R2, [R4], R6\nFADD R3, R2, R2 <- short_scoreboard 10", "shared_atomic", "ATOMS.ADD"),
        ("HMMA.16816.F32 R4, R8, R12, R4\nFADD R3, R6, R2 <- short_scoreboard 10", "tensor", "HMMA.16816.F32"),
    ],
)
def test_the_producer_of_the_register_is_the_cause(listing: str, kind: str, opcode: str) -> None:
    found = only(listing)
    assert (found.kind, cause(found), found.samples) == (kind, opcode, 10)


def test_the_nearest_write_is_the_cause_and_arithmetic_ends_the_search() -> None:
    nearest = """
        LDG.E R2, desc[UR4][R4.64]
        LDS R2, [R6]
        FADD R3, R2, R2 <- short_scoreboard 4
    """
    assert only(nearest).kind == "shared_load"
    overwritten = """
        LDG.E R2, desc[UR4][R4.64]
        FADD R2, R6, R7
        FADD R3, R2, R2 <- short_scoreboard 4
    """
    assert only(overwritten).kind == "other"
    one_of_two = """
        LDG.E R2, desc[UR4][R4.64]
        FADD R6, R8, R9
        FADD R3, R2, R6 <- long_scoreboard 4
    """
    assert (only(one_of_two).kind, cause(only(one_of_two))) == ("global_load", "LDG.E")


def test_a_load_behind_its_use_is_found_around_the_loop() -> None:
    loop = """
        FADD R3, R3, R2 <- long_scoreboard 9
        IADD3 R4, R4, 0x4, RZ
        LDG.E R2, desc[UR4][R4.64]
        @P0 BRA `(.L_x_1)
    """
    assert (only(loop).kind, cause(only(loop))) == ("global_load", "LDG.E")


def test_long_scoreboard_is_a_wait_for_l1tex_whatever_else_was_written_last() -> None:
    """The store's address comes from a constant and its value from a load: only the load is on the long scoreboard."""
    listing = """
        LDG.E R5, desc[UR4][R8.64]
        LDC.64 R2, c[0x0][0x218]
        STG.E desc[UR4][R2.64], R5 <- long_scoreboard 10
    """
    assert (only(listing).kind, cause(only(listing))) == ("global_load", "LDG.E")


@pytest.mark.parametrize("name", ["faults/blend", "faults/field-array"])
def test_recorded_streams_wait_for_their_loads(name: str) -> None:
    found = waits(recorded.profile(name).lines)
    on_long = [w for w in found if w.stall == "long_scoreboard"]
    strangers = sum(w.samples for w in on_long if w.kind == "constant") / sum(w.samples for w in found)
    assert strangers < 0.05, f"{name}: {strangers:.0%} of all waiting is a long scoreboard taken for a constant"


def test_long_scoreboard_without_a_producer_is_a_load() -> None:
    assert only("FADD R3, R2, R2 <- long_scoreboard 3").kind == "global_load"
    assert only("LDL R9, [R1]\nFADD R3, R2, R2 <- long_scoreboard 3").kind == "local_load"
    assert only("FADD R3, R2, R2 <- short_scoreboard 3").kind == "other"


def test_barrier_is_a_cta_barrier_or_a_wait_for_wgmma() -> None:
    """Trap 24: the stall has one name for both; the opcode decides."""
    cta = "BAR.SYNC.DEFER_BLOCKING 0x0\nLDS R2, [R4] <- barrier 10"
    assert (only(cta).kind, cause(only(cta))) == ("cta_barrier", "BAR.SYNC.DEFER_BLOCKING")
    wgmma = "WARPGROUP.DEPBAR.LE gsb0, 0x0\nFADD R2, R24, R25 <- barrier 10"
    assert (only(wgmma).kind, cause(only(wgmma))) == ("wgmma", "WARPGROUP.DEPBAR.LE")
    at_itself = "WARPGROUP.DEPBAR.LE gsb0, 0x0 <- barrier 10"
    assert only(at_itself).kind == "wgmma"
    nearer = "BAR.SYNC.DEFER_BLOCKING 0x0\nWARPGROUP.DEPBAR.LE gsb0, 0x0\nFADD R2, R24, R25 <- barrier 10"
    assert only(nearer).kind == "wgmma"
    cluster = "UCGABAR_WAIT\nLDS R2, [R4] <- barrier 10"
    assert only(cluster).kind == "cluster_barrier"
    alone = "FADD R2, R4, R5 <- barrier 10"
    assert only(alone).kind == "cta_barrier" and only(alone).cause is None
    assert only("WARPGROUP.ARRIVE <- warpgroup_arrive 3").kind == "wgmma"
    assert only("WARPGROUP.ARRIVE <- gmma 3").kind == "wgmma"


def test_try_wait_on_an_mbarrier() -> None:
    """It shows as long_scoreboard on the branch, or on the sleep, behind SYNCS."""
    predicated = """
        SYNCS.PHASECHK.TRANS64.TRYWAIT P3, [UR22], R5
        @!P3 BRA `(.L_x_2) <- long_scoreboard 20
    """
    found = only(predicated)
    assert (found.kind, cause(found)) == ("mbarrier", "SYNCS.PHASECHK.TRANS64.TRYWAIT")
    operand = """
        SYNCS.PHASECHK.TRANS64.TRYWAIT P3, [UR22], R5
        BRA !P3, `(.L_x_2) <- long_scoreboard 20
    """
    assert only(operand).kind == "mbarrier"
    asleep = """
        SYNCS.PHASECHK.TRANS64.TRYWAIT P3, [UR22], R5
        @!P3 NANOSLEEP 0x20 <- long_scoreboard 20
    """
    assert only(asleep).kind == "mbarrier"
    assert only("SYNCS.PHASECHK.TRANS64.TRYWAIT P3, [UR22], R5 <- long_scoreboard 20").kind == "mbarrier"


def test_a_branch_on_a_loaded_value_is_no_mbarrier() -> None:
    listing = """
        LDG.E R2, desc[UR4][R4.64]
        ISETP.NE.AND P0, PT, R2, RZ, PT <- long_scoreboard 20
        @P0 BRA `(.L_x_2)
    """
    assert only(listing).kind == "global_load"


def test_copy_groups_of_cp_async() -> None:
    listing = """
        LDGSTS.E.BYPASS.128 [R9], desc[UR8][R4.64]
        LDGDEPBAR
        DEPBAR.LE SB0, 0x0 <- long_scoreboard 12
        BAR.SYNC.DEFER_BLOCKING 0x0
    """
    assert only(listing).kind == "copy_group"
    behind = """
        LDGSTS.E.BYPASS.128 [R9], desc[UR8][R4.64]
        LDGDEPBAR
        DEPBAR.LE SB0, 0x0
        BAR.SYNC.DEFER_BLOCKING 0x0 <- long_scoreboard 12
    """
    assert only(behind).kind == "copy_group"


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("MEMBAR.SC.GPU\nERRBAR <- membar 5", "fence"),
        ("NANOSLEEP 0x20 <- sleeping 5", "sleep"),
        ("FADD R2, R3, R4 <- no_instructions 5", "instruction_fetch"),
        ("BRA `(.L_x_1) <- branch_resolving 5", "instruction_fetch"),
        ("FADD R2, R3, c[0x0][0x8] <- imc_miss 5", "constant"),
        ("LDG.E R2, desc[UR4][R4.64] <- lg_throttle 5", "global_load"),
        ("LDS R2, [R4] <- mio_throttle 5", "shared_load"),
        ("FFMA R4, R4, R5, R6 <- wait 5", "arithmetic"),
        ("FFMA R4, R4, R5, R6 <- math_pipe_throttle 5", "arithmetic"),
        ("HMMA.16816.F32 R4, R8, R12, R4 <- math_pipe_throttle 5", "tensor"),
        ("MUFU.EX2 R2, R3 <- math_pipe_throttle 5", "special_function"),
        ("FFMA R4, R4, R5, R6 <- drain 5", "other"),
    ],
)
def test_kinds_by_stall(line: str, kind: str) -> None:
    assert only(line).kind == kind
    assert kind in KINDS


def test_issued_warps_do_not_wait() -> None:
    assert waits(code("FFMA R4, R4, R5, R6 <- selected 50 not_selected 20")) == ()


def test_only_samples_without_issue_count_where_there_are_any() -> None:
    load = SassLine(0, "LDG.E R2, desc[UR4][R4.64]", 1.0)
    use = SassLine(16, "FADD R3, R2, R2", 1.0, 100, 100, {"long_scoreboard": 90, "wait": 10}, {"long_scoreboard": 30})
    quiet = waits((load, use))
    assert [(w.kind, w.samples) for w in quiet] == [("global_load", 30)]
    every = waits((load, use), not_issued=False)
    assert [(w.kind, w.samples) for w in every] == [("global_load", 90), ("arithmetic", 10)]


def test_largest_first_and_shares_sum_to_one() -> None:
    found = waits(code("LDS R2, [R4] <- mio_throttle 10\nFADD R3, R2, R2 <- short_scoreboard 30 wait 5"))
    assert [w.samples for w in found] == [30, 10, 5]
    assert by_kind(found) == pytest.approx({"shared_load": 40 / 45, "arithmetic": 5 / 45})
    assert by_kind(()) == {}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("faults/average-bytes", "global_load"),
        ("faults/columns-at-once", "wgmma"),
        ("faults/smooth-first", "cta_barrier"),
        ("faults/stream-single", "mbarrier"),
        ("faults/publish-rows", "fence"),
        ("faults/terms-written", "instruction_fetch"),
    ],
)
def test_recorded_kernels_wait_for_what_they_were_made_to_wait_for(name: str, kind: str) -> None:
    shares = by_kind(waits(recorded.profile(name).lines))
    most = max(shares, key=lambda k: shares[k])
    assert most == kind, f"{name}: {sorted(shares.items(), key=lambda item: -item[1])[:4]}"
