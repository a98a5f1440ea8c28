"""Matrix descriptors: decoded, built and judged; and what kernels/hopper.cuh makes of them."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

import sass_tools
from diagnose import cli
from diagnose import descriptor as d
from diagnose.errors import EXIT_GATE, EXIT_OK, EXIT_USAGE, DiagnoseError

ROOT = Path(__file__).resolve().parents[1]


def levels(value: int, form: str = d.WGMMA, major: str = "k") -> dict[str, str]:
    """Field -> the worst level said about it."""
    found: dict[str, str] = {}
    for remark in d.remarks(d.decode(value, form), major):
        found.setdefault(remark.field, remark.level)
    return found


def of(start: int, leading: int, stride: int, swizzle: str, base: int = 0, form: str = d.WGMMA) -> int:
    return d.encode(start, leading, stride, swizzle, base, form)


def test_the_article_s_bit_fields() -> None:
    """Article 1, table of the descriptor's bits: each field alone, written out by hand."""
    assert d.decode(0x3FFF).start == 0x3FFF0
    assert d.decode(0x3FFF << 16).leading == 0x3FFF0
    assert d.decode(0x3FFF << 32).stride == 0x3FFF0
    assert d.decode(0b111 << 49).base_offset == 7
    modes = [d.decode(code << 62).swizzle for code in range(4)]
    assert [mode.name if mode else None for mode in modes] == ["none", "128", "64", "32"]
    # (byte_address & 0x3FFFF) >> 4, the low four bits not stored
    assert of(0x8400, 16, 1024, "128") == 0x840 | 1 << 16 | 64 << 32 | 1 << 62


@pytest.mark.parametrize("form", [d.WGMMA, d.TCGEN05])
def test_what_is_built_is_read_back(form: str) -> None:
    rng = random.Random(7)
    names = [mode.name for mode in d.SWIZZLES[form].values()]
    for _ in range(300):
        start, leading, stride = (rng.randrange(0x4000) * 16 for _ in range(3))
        name, base = rng.choice(names), rng.randrange(8)
        found = d.decode(d.encode(start, leading, stride, name, base, form), form)
        assert (found.start, found.leading, found.stride, found.base_offset) == (start, leading, stride, base)
        assert found.swizzle is not None and found.swizzle.name == name
        assert "reserved" not in levels(found.value, form)


@pytest.mark.parametrize(
    ("start", "leading", "stride", "swizzle", "said"),
    [
        (0x401, 16, 1024, "128", "no multiple of 16"),
        (0x400, 8, 1024, "128", "no multiple of 16"),
        (0x40000, 16, 1024, "128", "14 bits"),
        (0x400, 16, 1024, "96", "no mode"),
        (0x400, 16, 1024, "128-32", "no mode"),  # tcgen05 only
    ],
)
def test_fields_that_no_descriptor_can_hold(start: int, leading: int, stride: int, swizzle: str, said: str) -> None:
    with pytest.raises(DiagnoseError, match=said):
        d.encode(start, leading, stride, swizzle)


def test_bits_that_no_field_has() -> None:
    good = of(0x400, 16, 1024, "128")
    assert levels(good) == {}
    for bit in (14, 15, 30, 31, 46, 47, 48, *range(52, 62)):
        assert levels(good | 1 << bit)["reserved"] == d.ILLEGAL, bit


def test_a_descriptor_of_the_other_form_is_known_by_its_version() -> None:
    wgmma, tcgen05 = of(0x400, 16, 1024, "128"), of(0x400, 16, 1024, "128", form=d.TCGEN05)
    assert tcgen05 == wgmma | 1 << 46
    assert levels(tcgen05, d.TCGEN05) == {}
    for value, form, said in ((tcgen05, d.WGMMA, "--tcgen05"), (wgmma, d.TCGEN05, "wgmma")):
        first = d.remarks(d.decode(value, form))[0]
        assert first.level == d.ILLEGAL and said in first.text


@pytest.mark.parametrize("code", [3, 5, 7])
def test_swizzle_codes_of_tcgen05_without_a_meaning(code: int) -> None:
    value = (of(0x400, 16, 1024, "none", form=d.TCGEN05) & ~(7 << 61)) | code << 61
    assert levels(value, d.TCGEN05)["swizzle"] == d.ILLEGAL


def test_start_inside_the_pattern() -> None:
    assert levels(of(0x400, 16, 1024, "128")) == {}
    # the k-slices of a row of 128 bytes: advance() of kernels/hopper.cuh
    for step in (1, 2, 3):
        assert levels(of(0x400 + 32 * step, 16, 1024, "128")) == {"start": d.NOTE}
    assert levels(of(0x400 + 16, 16, 1024, "128"))["start"] == d.SUSPICIOUS  # half a slice
    # row 3 of the pattern: base offset (0x580 >> 7) & 7 = 3
    value = of(0x580, 16, 1024, "128")
    assert levels(value)["base_offset"] == d.SUSPICIOUS
    assert any("= 3" in remark.text for remark in d.remarks(d.decode(value)))
    assert levels(of(0x580, 16, 1024, "128", 3)) == {"base_offset": d.NOTE}
    assert levels(of(0x580, 16, 1024, "128", 5))["base_offset"] == d.SUSPICIOUS
    assert levels(of(0x400, 16, 1024, "128", 1))["base_offset"] == d.SUSPICIOUS
    # the pattern repeats after 512 and 256 bytes for narrower swizzles
    assert levels(of(0x600, 16, 512, "64")) == {} and levels(of(0x500, 16, 256, "32")) == {}
    assert levels(of(0x600, 16, 1024, "128"))["base_offset"] == d.SUSPICIOUS


def test_base_offset_without_swizzle() -> None:
    assert levels(of(0x400, 128, 256, "none", 2))["base_offset"] == d.ILLEGAL
    assert levels(of(0x400, 128, 256, "none")) == {}


def test_start_outside_shared_memory() -> None:
    """An SM of sm_90 has 228 KB; the last eight rows of 128 bytes start 1,024 before its end."""
    last = 228 * 1024 - 1024
    assert levels(of(last, 16, 1024, "128")) == {}
    assert levels(of(last + 1024, 16, 1024, "128"))["start"] == d.ILLEGAL


def test_strides_against_the_atom() -> None:
    assert levels(of(0x400, 16, 512, "128"))["stride"] == d.SUSPICIOUS  # rows overlap
    assert levels(of(0x400, 16, 1536, "128"))["stride"] == d.SUSPICIOUS  # half a repeat
    assert levels(of(0x400, 16, 2048, "128")) == {}  # padded groups
    assert levels(of(0x400, 16, 0, "128"))["stride"] == d.SUSPICIOUS
    assert levels(of(0x400, 4096, 1024, "128")) == {"leading": d.NOTE}  # not used
    assert levels(of(0x400, 64, 256, "none"))["leading"] == d.SUSPICIOUS  # core matrices of 128 bytes overlap
    assert levels(of(0x400, 128, 128, "none"))["stride"] == d.SUSPICIOUS  # both ways to the same bytes


def test_mn_major_uses_both_strides() -> None:
    """V of kernels/attention: 128 keys of 64 values of 16 bit, leading 128 x 128 bytes."""
    assert levels(of(0x400, 128 * 128, 1024, "128"), major="mn") == {"major": d.NOTE}
    assert levels(of(0x400, 16, 1024, "128"), major="mn")["leading"] == d.SUSPICIOUS


# --- instruction descriptors ---


def _instruction(m: int, n: int, a: int, b: int, result: int, rest: int = 0) -> int:
    return result << 4 | a << 7 | b << 10 | n >> 3 << 17 | m >> 4 << 24 | rest


def test_instruction_descriptor() -> None:
    value = _instruction(128, 256, 1, 1, 1)
    fields = d.instruction_document(value, "f16")["fields"]
    assert (fields["m"], fields["n"], fields["a_type"], fields["d_type"]) == ("128", "256", "bf16", "f32")
    assert d.instruction_remarks(value, "f16") == ()


@pytest.mark.parametrize(
    ("value", "kind", "field"),
    [
        (_instruction(128, 256, 2, 1, 1), "f16", "a_type"),
        (_instruction(128, 256, 1, 1, 2), "f16", "d_type"),
        (_instruction(96, 256, 1, 1, 1), "f16", "m"),
        (_instruction(128, 0, 1, 1, 1), "f16", "n"),
        (_instruction(128, 64, 1, 1, 1, 1 << 3), "f16", "saturate"),
        (_instruction(128, 64, 1, 1, 2, 1 << 13), "i8", "negate"),
        (_instruction(128, 64, 5, 0, 1, 1 << 15), "f8f6f4", "a_major"),
        (_instruction(128, 64, 1, 1, 1, 1 << 23), "f16", "reserved"),
        (_instruction(256, 64, 1, 1, 1, 1 << 30), "f16", "max_shift"),
    ],
)
def test_instruction_descriptors_that_are_illegal(value: int, kind: str, field: str) -> None:
    assert {r.field for r in d.instruction_remarks(value, kind) if r.level == d.ILLEGAL} == {field}


# --- the command ---


def _run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = cli.main(["descriptor", *words])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def test_command(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = _run(capsys, "0x4000004000010040")
    assert code == EXIT_OK and "0x400" in out and "128 bytes" in out and "1,024" in out
    code, out, _ = _run(capsys, "0x4000004000010040ull", "--format", "json")
    content: dict[str, Any] = json.loads(out)
    assert content["fields"] == {
        "start": 1024, "leading": 16, "stride": 1024, "base_offset": 0, "swizzle": "128",
    }  # fmt: skip
    assert content["legal"] is True and content["remarks"] == []


def test_command_builds_what_it_reads(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--address", "0x400", "--leading", "16", "--stride", "1024", "--swizzle", "128", "--format", "json"]
    _, out, _ = _run(capsys, *words)
    built = json.loads(out)
    assert built["value"] == "0x4000004000010040"
    _, out, _ = _run(capsys, built["value"], "--format", "json")
    assert json.loads(out) == built


def test_command_says_what_is_illegal(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = _run(capsys, "0x4000004000010040", "--tcgen05")
    assert code == EXIT_GATE and "illegal" in out and "PTX ISA 9.7.16.4.1" in out


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("0xzz",),
        ("0x1ffffffffffffffff",),
        ("0x40", "--address", "0x40"),
        ("--address", "0x400"),
        ("--swizzle", "128"),
        ("--address", "0x400", "--swizzle", "none"),
        ("--address", "0x404", "--swizzle", "128"),
        ("--instruction", "f16"),
        ("--instruction", "f17", "0x10"),
        ("--instruction", "f16", "0x100000000"),
        ("0x40", "--major", "x"),
    ],
)
def test_wrong_use_ends_in_one_error_and_one_hint(capsys: pytest.CaptureFixture[str], words: tuple[str, ...]) -> None:
    code, out, err = _run(capsys, *words)
    assert code == EXIT_USAGE and out == ""
    assert [line.split(":")[0] for line in err.splitlines()] == ["error", "hint"]


# --- what kernels/hopper.cuh makes ---

# Each call's start, leading, stride, swizzle and the slice along K.
_CALLS = (
    (0x8400, 16, 1024, "128", 0), (0x8400, 16, 1024, "128", 96), (0x2000, 16, 512, "64", 32),
    (0x1100, 16, 256, "32", 0), (0x400, 128, 256, "none", 0), (0x10000, 16384, 1024, "128", 0),
)  # fmt: skip
_MODE = {"128": "b128", "64": "b64", "32": "b32", "none": "none"}


@sass_tools.needs_nvcc
def test_descriptors_of_the_kernels(tmp_path: Path) -> None:
    """nvcc folds the descriptors of constant arguments: their values stand in the PTX, in order."""
    stores = [
        f"out[{i}] = hopper::advance(hopper::descriptor({start}u, {leading}u, {stride}u, "
        f"hopper::Swizzle::{_MODE[mode]}), {step}u);"
        for i, (start, leading, stride, mode, step) in enumerate(_CALLS)
    ]
    last = len(_CALLS)
    stores.append(f"out[{last}] = hopper::descriptor_128({0x8400}u);")
    body = "\n".join(stores)
    head = f'#include "{ROOT}/kernels/hopper.cuh"\n'
    source = head + f'extern "C" __global__ void made(unsigned long long* out) {{{body}}}\n'
    made = sass_tools.nvcc(tmp_path, source, "-ptx", "-arch=sm_90a", "-std=c++17", output="made.ptx")
    ptx = made.read_text("utf-8")
    constants = {
        match[1]: int(match[2]) & (1 << 64) - 1
        for match in re.finditer(r"mov\.[bu]64\s+(%rd\d+), (-?\d+);", ptx)
    }  # fmt: skip
    stored = {
        int(match[1] or 0) // 8: constants[match[2]] if match[2].startswith("%") else int(match[2]) & (1 << 64) - 1
        for match in re.finditer(r"st\.global\.[bu]64\s+\[%rd\d+(?:\+(\d+))?\], (%rd\d+|-?\d+);", ptx)
    }
    assert sorted(stored) == list(range(last + 1))
    for i, (start, leading, stride, mode, step) in enumerate(_CALLS):
        found = d.decode(stored[i])
        assert found.swizzle is not None
        seen = (found.start, found.leading, found.stride, found.swizzle.name, found.base_offset)
        assert seen == (start + step, leading, stride, mode, 0)
        major = "mn" if leading == 16384 else "k"
        assert {r.level for r in d.remarks(found, major)} <= {d.NOTE}, i
        assert stored[i] == d.encode(start + step, leading, stride, mode)
    assert stored[last] == stored[0]
