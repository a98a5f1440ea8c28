"""The library as a mark for the declared problem: how it is run, what of it is believed, and where it stands."""

import json
import sys
from pathlib import Path

import pytest

import recorded
from diagnose import engine, problem
from diagnose.ceilings import library
from diagnose.ceilings.record import Measured, Refused
from diagnose.collect.host import Gpu
from diagnose.errors import DiagnoseError
from diagnose.model import Ceiling

H200 = (Gpu("NVIDIA H200", "580", 90, False),)


def measured(us: float) -> list[Measured | Refused]:
    return [Measured("library:gemm", us * 1e-6, "s", 55, 0.01, None)]


@pytest.fixture
def machine(monkeypatch):
    """A GPU and a compiler that are there, and what the program would print; gives the commands that were run."""
    commands: list[list[str]] = []
    answer = {"found": measured(120.0)}

    def run(name, words, seconds):
        commands.append([str(word) for word in words])
        return answer["found"]

    monkeypatch.setattr(library.host, "gpus", lambda: H200)
    monkeypatch.setattr(library, "build_kernel", lambda kernel, arch, progress: Path("/built") / kernel.archs[0])
    monkeypatch.setattr(library, "run_program", run)
    return commands, answer


def test_a_product_is_run_as_it_was_declared(machine):
    commands, _ = machine
    spec = "gemm:64,128,256,fp16,tn,bias,gelu,batch=4"
    assert library.declared(spec, ["./a.out"], print) == ({"library_us": pytest.approx(120.0)}, [])
    assert [" ".join(words) for words in commands] == [
        "/built/sm_90 --m 64 --n 128 --k 256 --batch 4 --type fp16 --transpose tn --epilogue bias-gelu"
    ]


@pytest.mark.parametrize(
    ("spec", "kept"), [("gemm:8,8,8,fp8", "nt"), ("gemm:8,8,8", "nn"), ("gemm:8,8,8,fp8,tt", "tt")]
)
def test_operands_are_kept_as_declared_or_as_the_library_needs_them(machine, spec, kept):
    commands, _ = machine
    library.declared(spec, ["./a.out"], print)
    assert commands[0][commands[0].index("--transpose") + 1] == kept


def test_attention_is_run_by_the_programs_own_python(machine):
    commands, _ = machine
    library.declared("attention:4,16,512,512,128,bf16,causal,hkv=4", ["/venv/bin/python3.12", "train.py"], print)
    assert commands[0][0] == "/venv/bin/python3.12" and commands[0][1].endswith("library_attention.py")
    assert commands[0][2:] == ["4", "16", "4", "512", "512", "128", "bf16", "1"]


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ("gemm:64,64,64,int8", "int8 is not among its types"),
        ("attention:1,8,64,64,64,fp32", "fp32 is not among its types"),
        ("attention:1,8,1,4096,128,causal", "masks unequal lengths"),
    ],
)
def test_what_the_library_cannot_run_is_said_and_is_no_limit(machine, spec, why):
    commands, _ = machine
    facts, (warning,) = library.declared(spec, ["./a.out"], print)
    assert facts == {} and why in warning and commands == []


def test_a_refused_time_is_said(machine):
    _, answer = machine
    answer["found"] = [Refused("library:gemm", "repeats spread over 9.0% of the median, more than 5%")]
    facts, (warning,) = library.declared("gemm:64,64,64", ["./a.out"], print)
    assert facts == {} and "spread over 9.0%" in warning


def test_without_a_compiler_or_a_gpu_the_reason_is_said(machine, monkeypatch):
    def absent(kernel, arch, progress):
        raise DiagnoseError("no nvcc was found", "diagnose doctor")

    monkeypatch.setattr(library, "build_kernel", absent)
    assert "no nvcc" in library.declared("gemm:64,64,64", ["./a.out"], print)[1][0]
    monkeypatch.setattr(library.host, "gpus", lambda: ())
    assert "no GPU" in library.declared("gemm:64,64,64", ["./a.out"], print)[1][0]


def test_amounts_name_no_problem_to_run(machine):
    commands, _ = machine
    assert library.declared("flops=1e12", ["./a.out"], print) == ({}, [])
    assert library.declared(None, ["./a.out"], print) == ({}, []) and commands == []


def test_the_interpreter_is_a_python():
    assert library.interpreter(["./a.out"]) != "./a.out"
    assert library.interpreter(["python", "x.py"]) == "python"


def test_the_script_of_attention_says_why_it_cannot_run(tmp_path):
    """Here without PyTorch or without a GPU: the one refusal names the cause, and no traceback's head."""
    script = Path(library.bundled("kernels")) / "ceilings" / "library_attention.py"
    found = library.run_program("library", [sys.executable, script, "1", "1", "1", "64", "64", "64", "bf16", "0"])
    assert [type(one) for one in found] == [Refused]
    assert "exited with status 1" in found[0].reason


def limits_of(declared, ceilings=None):
    kernel = recorded.profile("gemm/tma")
    context = recorded.context_of(kernel, declared)
    if ceilings:
        context.ceilings = {**context.ceilings, **ceilings}
    return engine.diagnose_kernel(context, recorded.rules(), {}), context


def test_the_time_stands_among_the_limits_and_binds_nothing():
    kernel = recorded.profile("gemm/tma")
    us = kernel.number("gpu__time_duration.sum") / (1e3 if kernel.units["gpu__time_duration.sum"] == "ns" else 1.0)
    plain, before = limits_of({**problem.parse("gemm:4096,4096,4096,batch=2")})
    marked, after = limits_of({**problem.parse("gemm:4096,4096,4096,batch=2"), "library_us": 0.9 * us})
    assert "library" not in {limit.resource for limit in plain.limits}
    mark = marked.limits[-1]
    assert (mark.resource, mark.ceiling_source) == ("library", "library")
    assert mark.utilization == pytest.approx(0.9, rel=0.02) and mark.bound_us == pytest.approx(0.9 * us)
    assert marked.verdict == plain.verdict
    assert after.fact("binding_resource") == before.fact("binding_resource")
    assert after.value("over_library") == pytest.approx(1 / 0.9, rel=0.02)


def test_a_recorded_time_of_the_same_square_product_is_used():
    declared = problem.parse("gemm:8192,8192,8192,bf16")
    _, context = limits_of(declared, {"library:gemm:bf16:8192": Ceiling("library", 8e14, "op/s", "library", None)})
    assert context.value("library_us") == pytest.approx(2 * 8192**3 / 8e14 * 1e6)
    for other in (
        "gemm:8192,8192,4096",
        "gemm:8192,8192,8192,fp16",
        "gemm:8192,8192,8192,bias",
        "gemm:8192,8192,8192,sparse",
    ):
        _, context = limits_of(
            problem.parse(other), {"library:gemm:bf16:8192": Ceiling("l", 8e14, "op/s", "library", None)}
        )
        assert context.value("library_us") is None, other


def test_the_document_names_the_source():
    found, _ = limits_of({**problem.parse("gemm:64,64,64"), "library_us": 10.0})
    from diagnose.report import _limit

    row = _limit(found.limits[-1])
    assert row["ceiling_source"] == "library" and row["work_unit"] == "op"
    json.dumps(row)
