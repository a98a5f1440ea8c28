"""Reading a line of SASS: predicate, opcode, what it writes and reads; families of opcodes; bytes of an access."""

from __future__ import annotations

import pytest

import recorded
from diagnose.sass import mix
from diagnose.sass.text import matches, parse


@pytest.mark.parametrize(
    ("text", "opcode", "writes", "reads"),
    [
        ("FFMA R4, R2, R3, R4", "FFMA", {"R4"}, {"R2", "R3", "R4"}),
        ("  FFMA R4, R2.reuse, R3, R4 ;", "FFMA", {"R4"}, {"R2", "R3", "R4"}),
        ("FADD R7, -R6, |R5|", "FADD", {"R7"}, {"R5", "R6"}),
        ("LDG.E R2, desc[UR4][R2.64]", "LDG.E", {"R2"}, {"R2", "UR4"}),
        ("LDG.E.128 R8, desc[UR4][R2.64+0x10]", "LDG.E.128", {"R8", "R9", "R10", "R11"}, {"R2", "UR4"}),
        ("LDG.E.64 R8, desc[UR4][R2.64]", "LDG.E.64", {"R8", "R9"}, {"R2", "UR4"}),
        ("LDS.64 R6, [R3+UR4]", "LDS.64", {"R6", "R7"}, {"R3", "UR4"}),
        ("STG.E.64 desc[UR4][R2.64], R6", "STG.E.64", set(), {"R2", "R6", "UR4"}),
        ("STS [R5+0x100], R4", "STS", set(), {"R4", "R5"}),
        ("LDGSTS.E.BYPASS.128 [R9], desc[UR8][R4.64]", "LDGSTS.E.BYPASS.128", set(), {"R4", "R9", "UR8"}),
        ("IMAD.WIDE R4, R0, 0x4, R2", "IMAD.WIDE", {"R4", "R5"}, {"R0", "R2"}),
        ("DFMA R4, R6, R8, R4", "DFMA", {"R4", "R5"}, {"R4", "R6", "R8"}),
        ("HMMA.16816.F32.BF16 R4, R8, R12, R4", "HMMA.16816.F32.BF16", {"R4", "R5", "R6", "R7"}, {"R4", "R8", "R12"}),
        ("LDSM.16.M88.4 R4, [R20]", "LDSM.16.M88.4", {"R4", "R5", "R6", "R7"}, {"R20"}),
        ("LDSM.16.M88.2 R4, [R20]", "LDSM.16.M88.2", {"R4", "R5"}, {"R20"}),
        ("MUFU.EX2 R3, R3", "MUFU.EX2", {"R3"}, {"R3"}),
        ("S2R R0, SR_TID.X", "S2R", {"R0"}, set()),
        ("LDC R1, c[0x0][0x28]", "LDC", {"R1"}, set()),
        ("ULDC.64 UR4, c[0x0][0x208]", "ULDC.64", {"UR4"}, set()),
        ("BAR.SYNC.DEFER_BLOCKING 0x0", "BAR.SYNC.DEFER_BLOCKING", set(), set()),
        ("EXIT", "EXIT", set(), set()),
    ],
)
def test_what_an_instruction_writes_and_reads(text: str, opcode: str, writes: set[str], reads: set[str]) -> None:
    found = parse(text)
    assert found is not None
    assert (found.opcode, found.base) == (opcode, opcode.split(".")[0])
    assert found.destinations == writes, f"{text}: writes {set(found.destinations)}"
    assert found.sources == reads, f"{text}: reads {set(found.sources)}"


@pytest.mark.parametrize(
    ("text", "writes"),
    [
        ("SHFL.BFLY PT, R7, R6, 0x1, 0x1f", {"R7"}),
        ("SHFL.IDX P0, R53, R39, R26, R27", {"P0", "R53"}),
        ("ATOMG.E.ADD.STRONG.GPU PT, R4, desc[UR6][R4.64], R7", {"R4"}),
    ],
)
def test_a_predicate_before_the_result_does_not_hide_it(text: str, writes: set[str]) -> None:
    found = parse(text)
    assert found is not None and found.destinations == writes, f"{text}: writes {found and set(found.destinations)}"


def test_predicates_are_read_and_set() -> None:
    guarded = parse("@!P0 BRA `(.L_x_1)")
    assert guarded is not None and guarded.predicate == "!P0" and "P0" in guarded.sources
    uniform = parse("@UP1 UIADD3 UR4, UR4, 0x1, URZ")
    assert uniform is not None and uniform.predicate == "UP1" and uniform.destinations == {"UR4"}
    compared = parse("ISETP.GE.AND P0, PT, R0, R5, PT")
    assert compared is not None and compared.destinations == {"P0"} and {"R0", "R5"} <= compared.sources
    both = parse("ISETP.GE.AND P0, P3, R0, R5, PT")
    assert both is not None and both.destinations == {"P0", "P3"}
    tried = parse("SYNCS.PHASECHK.TRANS64.TRYWAIT P3, [UR22], R5")
    assert tried is not None and tried.destinations == {"P3"} and {"UR22", "R5"} <= tried.sources


@pytest.mark.parametrize("text", ["", "   ", "// comment", "0x1234", ".L_x_1:", "{"])
def test_what_is_no_instruction(text: str) -> None:
    assert parse(text) is None


@pytest.mark.parametrize(
    ("opcode", "prefix", "holds"),
    [
        ("HMMA.16816.F32", "HMMA", True),
        ("HMMAX", "HMMA", False),
        ("HMMA", "HMMA", True),
        ("LDG.E.128", "LDG.E", True),
        ("LDG.EX", "LDG.E", False),
        ("VIMNMX3", "VIMNMX3", True),
        ("VIADDMNMX.U32", "VIADDMNMX*", True),
        ("HGMMA.64x128x16.F32", "HMMA", False),
        ("LDGSTS.E", "LDG", False),
    ],
)
def test_prefixes_end_at_dots(opcode: str, prefix: str, holds: bool) -> None:
    assert matches(opcode, prefix) is holds


@pytest.mark.parametrize(
    ("opcode", "size"),
    [
        ("LDG.E", 4),
        ("LDG.E.64", 8),
        ("LDG.E.128.CONSTANT", 16),
        ("LDG.E.U16", 2),
        ("LDG.E.S8", 1),
        ("STG.E.U8", 1),
        ("LDGSTS.E.BYPASS.LTC128B.128", 16),
        ("LDGSTS.E.LTC128B", 4),
    ],
)
def test_bytes_of_an_access(opcode: str, size: int) -> None:
    assert mix.access_bytes(opcode) == size


def test_bytes_asked_for_and_shapes() -> None:
    threads = {"LDG.E.128": 32.0, "LDG.E": 64.0, "STG.E": 32.0, "LDS.128": 1000.0}
    assert mix.bytes_asked(threads, "LDG") == 32 * 16 + 64 * 4
    assert mix.bytes_asked(threads, "STG", "ST") == 128
    shapes = {"HGMMA.64x16x16.F32.BF16": 10.0, "HGMMA.64x256x16.F32.BF16": 1.0, "FFMA": 5.0}
    assert mix.wgmma_n(shapes) == 256, "the shape with most work, not the most frequent one"
    assert mix.wgmma_n({"HMMA.16816.F32": 3.0}) is None
    assert mix.count({"LDG.E": 2.0, "LDGSTS.E": 3.0, "LD.E": 4.0}, "LDG", "LD") == 6


@pytest.mark.parametrize(
    ("opcode", "paths"),
    [
        ("HMMA.16816.F32.BF16", {"mma"}),
        ("HMMA.SP.16832.F32", {"mma", "sparse-mma"}),
        ("HGMMA.64x128x16.F32.BF16", {"wgmma"}),
        ("QGMMA.64x128x32.F32.E4M3.E4M3", {"wgmma", "fp8-wgmma"}),
        ("HFMA2.MMA", set()),
        ("LDGSTS.E.BYPASS.128", {"cp-async"}),
        ("UTMALDG.2D", {"tma"}),
        ("UTMALDG.2D.MULTICAST", {"tma", "tma-multicast"}),
        ("LDSM.16.M88.4", {"ldmatrix"}),
        ("FFMA", set()),
    ],
)
def test_paths_of_an_opcode(opcode: str, paths: set[str]) -> None:
    found = set(mix.paths({opcode: 1.0}))
    assert found - {"sparse-mma"} == paths - {"sparse-mma"}, found
    assert ("sparse-mma" in found) == ("sparse-mma" in paths), found


def test_recorded_code_parses() -> None:
    """Every line of the recorded kernels that holds text is an instruction."""
    recorded.profiles()
    strange = {
        line.text
        for name in recorded.names()
        for line in recorded.profile(name).lines
        if line.text and not parse(line.text)
    }
    assert not strange, sorted(strange)[:10]
