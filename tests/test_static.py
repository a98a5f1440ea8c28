"""`diagnose static`: findings on pairs with a known cause, readings with a known answer, and every bad input."""

from __future__ import annotations

import contextlib
import json
import lzma
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import sass_tools as tools
from diagnose import static
from diagnose.bundled import bundled
from diagnose.errors import EXIT_NOTHING_MEASURED, EXIT_USAGE, DiagnoseError
from diagnose.sass import binary, compatibility, disassemble, elf, names
from diagnose.sass.binary import Image
from sass_tools import needs_nvcc, needs_nvdisasm, needs_ptxas

TWINS = ("sm_80", "sm_90a", "sm_120a")


def by_name(document):
    return {kernel["demangled"].split("(")[0].removeprefix("void "): kernel for kernel in document["kernels"]}


def rules_of(kernel):
    return [finding["rule"] for finding in kernel["findings"]]


def only(path):
    (kernel,) = static.analyse(path)["kernels"]
    return kernel


# --- findings on pairs ---


@pytest.fixture(scope="session", params=TWINS)
def twins(request, tmp_path_factory):
    if tools.NVCC is None or tools.NVDISASM is None or shutil.which("g++") is None:
        pytest.skip("nvcc, g++ or nvdisasm is not here")
    folder = tmp_path_factory.mktemp("twins")
    options = ("-arch", request.param, "-lineinfo", "-cubin")
    return by_name(static.analyse(tools.nvcc(folder, "twins.cu", *options, output="twins.cubin")))


FAULTS = {
    "spill": "spill",
    "local_array": "local-array",
    "doubles": "fp64-by-accident",
    "division": "slow-math",
    "outer_half": "no-tensor-core",
    "staged": "no-async-copy",
}
HEALTHY = (
    *("spill_fixed", "spill_outside", "local_array_fixed", "doubles_fixed", "doubles_meant", "division_fixed"),
    *("stencil", "copied<1>", "copied<2>", "copied<3>", "copied<4>"),
)


@pytest.mark.parametrize(("kernel", "rule"), FAULTS.items())
def test_a_planted_fault_is_the_verdict(twins, kernel, rule):
    found = twins[kernel]
    assert found["verdict"]["rule"] == rule, rules_of(found)
    finding = found["findings"][0]
    assert finding["at_stake"] is None and finding["speedup"] is None and finding["static"] is True
    assert finding["where"] and finding["where"][0]["file"].endswith("twins.cu") and finding["where"][0]["line"] > 1
    assert all(item["holds"] is True for item in finding["evidence"] if item["op"])


@pytest.mark.parametrize("kernel", HEALTHY)
def test_a_healthy_kernel_stays_quiet(twins, kernel):
    assert rules_of(twins[kernel]) == [] and twins[kernel]["verdict"] is None
    assert twins[kernel]["not_evaluated"] == []


@pytest.mark.parametrize("stages", [1, 2, 3, 4])
def test_stages_of_cp_async(twins, stages):
    assert twins[f"copied<{stages}>"]["readings"]["stages"] == {"number": stages, "shown_by": "commit groups"}
    assert twins[f"copied<{stages}>"]["paths"].count("cp-async") == 1


def test_spills_inside_and_outside_the_loop(twins):
    assert twins["spill"]["spill"]["in_loops"] > 100
    assert twins["spill_outside"]["spill_bytes"] > 0 and twins["spill_outside"]["spill"]["in_loops"] == 0
    assert twins["local_array"]["spill_bytes"] == 0 and twins["local_array"]["stack_bytes"] >= 256


def test_width_of_accesses_in_the_loop(twins):
    assert set(twins["copied<4>"]["readings"]["main_loop"]["widths"]["async_copy"]) == {"16"}
    assert set(twins["staged"]["readings"]["main_loop"]["widths"]["shared_store"]) == {"16"}
    assert set(twins["doubles_meant"]["readings"]["main_loop"]["widths"]["global_load"]) == {"8"}
    assert set(twins["stencil"]["readings"]["main_loop"]["widths"]["global_load"]) == {"2"}


def test_the_budget_of_the_main_loop(twins):
    budget = twins["outer_half"]["readings"]["main_loop"]["budget"]
    assert budget["float"] >= 1024  # 8 by 8 products, 16 times; conversions may add to them
    assert sum(budget.values()) == twins["outer_half"]["readings"]["main_loop"]["instructions"]


@needs_nvcc
def test_resources_are_those_that_ptxas_prints(tmp_path):
    made = tmp_path / "twins.cubin"
    command = [tools.NVCC, "-std=c++17", "-arch", "sm_90a", "-cubin", "-Xptxas", "-v", "-o", made]
    done = subprocess.run([*command, tools.SOURCES / "twins.cu"], capture_output=True, text=True, check=True)
    printed = re.findall(
        r"Function properties for (\S+)\s+(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads"
        r"\s+ptxas info\s+: Used (\d+) registers, used (\d+) barriers(?:, \d+ bytes cumulative stack size)?"
        r"(?:, (\d+) bytes smem)?",
        done.stderr,
    )
    assert len(printed) >= 15
    found = {kernel["mangled"]: kernel for kernel in static.analyse(made)["kernels"]}
    for name, stack, stored, loaded, registers, barriers, shared in printed:
        kernel = found[name]
        have = (kernel["stack_bytes"], kernel["spill"]["stored"], kernel["spill"]["loaded"], kernel["registers"],
                kernel["barriers"], kernel["shared_bytes"])  # fmt: skip
        assert have == (int(stack), int(stored), int(loaded), int(registers), int(barriers), int(shared or 0)), name


# --- readings with a known answer ---


@needs_ptxas
@pytest.mark.parametrize(
    ("n", "in_group", "distance", "operands", "rules"),
    [
        (8, 1, 0, "SS", ["wgmma-serialized", "small-wgmma-n"]),
        (32, 4, 1, "SS", ["small-wgmma-n"]),
        (64, 1, 0, "RS", ["wgmma-serialized"]),
        (64, 1, 1, "SS", []),
        (128, 4, 0, "SS", []),
        (128, 4, 1, "RS", []),
        (256, 2, 2, "SS", []),
    ],
)
def test_wgmma_width_operands_and_waits(n, in_group, distance, operands, rules, tmp_path):
    kernel = only(tools.assemble(tools.wgmma_loop(n, in_group, distance, operands), "sm_90a", tmp_path))
    reading = kernel["readings"]["wgmma"]
    assert (reading["n"], reading["operands"]) == (n, operands)
    assert (reading["per_wait"], reading["wait_distance"]) == (in_group, distance)
    assert reading["groups"] * in_group == reading["instructions"]
    assert reading["serialized"] is ("wgmma-serialized" in rules)
    assert rules_of(kernel) == rules
    operations = kernel["readings"]["main_loop"]["tensor_operations"]["wgmma:fp16"]
    assert operations == reading["instructions"] * 2 * 64 * n * 16 / 4


@needs_ptxas
@pytest.mark.parametrize("stages", [2, 3, 4, 5, 7])
def test_stages_of_mbarriers_and_roles(stages, tmp_path):
    kernel = only(tools.assemble(tools.tma_pipeline(stages), "sm_90a", tmp_path))
    assert kernel["readings"]["stages"] == {"number": stages, "shown_by": "mbarriers"}
    assert kernel["readings"]["roles"] == ["producer", "consumer"]
    assert kernel["readings"]["main_loop"]["budget"]["mma"] == 2
    assert {"tma", "mbarrier", "wgmma"} <= set(kernel["paths"]) and rules_of(kernel) == []
    assert kernel["max_threads"] == 256 and kernel["occupancy"]["block_assumed"] is False


@needs_ptxas
@pytest.mark.parametrize(
    ("tiles", "target", "rules"),
    [
        (16, "sm_90", ["legacy-mma"]),
        (16, "sm_90a", ["legacy-mma"]),
        (16, "sm_100a", ["legacy-mma"]),
        (2, "sm_90", []),  # 16 by 64 elements: a matter of fit
        (16, "sm_80", []),
        (16, "sm_89", []),
        (16, "sm_120a", []),
    ],
)
def test_warp_level_mma_is_legacy_where_a_wider_path_serves(tiles, target, rules, tmp_path):
    kernel = only(tools.assemble(tools.mma_loop(tiles, target), target, tmp_path))
    assert kernel["paths"] == ["mma"] and rules_of(kernel) == rules
    assert kernel["readings"]["recompiled_ampere"] is (int(re.sub(r"\D", "", target)) >= 90)
    assert kernel["readings"]["roles"] == []


@needs_ptxas
@pytest.mark.parametrize(("target", "rules"), [("sm_89", []), ("sm_90a", ["fp8-not-native"]), ("sm_120a", []),
                                               ("sm_100a", ["fp8-not-native"])])  # fmt: skip
def test_fp8_that_is_not_multiplied_as_fp8(target, rules, tmp_path):
    kernel = only(tools.assemble(tools.ptx_for(["mma_fp8"], target), target, tmp_path))
    assert rules_of(kernel) == rules
    assert ("fp8-mma" in kernel["paths"]) is (not rules)


@needs_ptxas
@pytest.mark.parametrize(
    ("source", "target", "removed", "names"),
    [
        ("tma_store", "sm_90a", (), []),
        ("tma_store", "sm_90a", ("fence.proxy.async",), ["async-fence"]),
        ("cp_async", "sm_80", (), []),
        ("cp_async", "sm_80", ("cp.async.wait_group",), ["copy-wait"]),
        ("setmaxnreg", "sm_90a", (), []),
        ("setmaxnreg", "sm_90a", ("setmaxnreg.dec",), ["setmaxnreg-order"]),
    ],
)
def test_pitfalls_say_may(source, target, removed, names, tmp_path):
    lines = tools.ptx_for([source], target).splitlines()
    ptx = "\n".join(line for line in lines if not any(word in line for word in removed)) + "\n"
    found = only(tools.assemble(ptx, target, tmp_path))["readings"]["pitfalls"]
    assert [one["name"] for one in found] == names
    assert all("may" in one["text"] and one["where"][0]["sass"] for one in found)


@needs_ptxas
@pytest.mark.parametrize(
    ("change", "names"),
    [
        (("[empty+{}], 128", "[empty+{}], 128"), []),
        (("[empty+{}], 128", "[empty+{}], 1"), ["mbarrier-count"]),  # every thread of 128 arrives at a count of 1
        (("[empty+{}], 128", "[empty+{}], 2048"), ["mbarrier-count"]),  # 256 threads with two arrivals make 512
    ],
)
def test_counts_of_mbarriers_against_arrivals(change, names, tmp_path):
    ptx = tools.tma_pipeline(3)
    for stage in range(3):
        ptx = ptx.replace(change[0].format(8 * stage), change[1].format(8 * stage))
    kernel = only(tools.assemble(ptx, "sm_90a", tmp_path))
    assert [one["name"] for one in kernel["readings"]["pitfalls"]] == names
    assert all("may" in one["text"] and "SYNCS.ARRIVE" in one["where"][0]["sass"]
               for one in kernel["readings"]["pitfalls"])  # fmt: skip


@needs_ptxas
def test_a_wait_without_any_arrival(tmp_path):
    lines = tools.ptx_for(["mbarrier"], "sm_90a").splitlines()
    for removed, said in (("nothing", []), ("mbarrier.arrive", ["mbarrier-count"])):
        ptx = "\n".join(line for line in lines if removed not in line) + "\n"
        found = only(tools.assemble(ptx, "sm_90a", tmp_path))["readings"]["pitfalls"]
        assert [one["name"] for one in found] == said


@needs_nvcc
@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "sm_100a"])
def test_the_main_loop_may_stand_in_a_called_function(target, tmp_path):
    source = """
__device__ __noinline__ float looped(const float *a, int n, float s) {
    #pragma unroll 1
    for (int i = 0; i < n; i++) s = s * a[i] + a[i + n] * a[i + 2 * n];
    return s;
}
__device__ __noinline__ float straight(const float *a, float s) { return s * a[0] + a[1] * a[2] + a[3] * a[4]; }
__global__ void once(float *a, int n) { a[threadIdx.x] = looped(a + 1, n, a[0]); }
__global__ void nested(float *a, int n) {
    float s = 0;
    #pragma unroll 1
    for (int t = 0; t < n; t++) s += looped(a + t, n, s);
    a[threadIdx.x] = s;
}
__global__ void flat(float *a, int n) {
    float s = 0;
    #pragma unroll 1
    for (int t = 0; t < n; t++) s += straight(a + t, s);
    a[threadIdx.x] = s;
}
"""
    made = tools.nvcc(tmp_path, source, "-arch", target, "-lineinfo", "-cubin", output="called.cubin")
    found = {name: kernel["readings"]["main_loop"] for name, kernel in by_name(static.analyse(made)).items()}
    assert {name: loop["depth"] for name, loop in found.items()} == {"once": 1, "nested": 2, "flat": 1}
    assert {name: loop["budget"]["global_load"] for name, loop in found.items()} == {"once": 3, "nested": 3, "flat": 5}


@needs_ptxas
def test_a_turn_for_each_thread_is_no_loop(tmp_path):
    path = tools.assemble(tools.ptx_for(["tcgen05_f16"], "sm_100a"), "sm_100a", tmp_path)
    text = [i.opcode for code in disassemble.disassemble(path.read_bytes(), "x") for i in code.instructions]
    assert any(opcode.startswith("BRA.U.ANY") for opcode in text)
    assert only(path)["readings"]["main_loop"] is None


@needs_nvcc
def test_an_exchange_between_threads_stages_no_tile(tmp_path):
    source = """
__global__ void scaled(const float *a, float *b, int n) {
    __shared__ float s[1024];
    for (int at = blockIdx.x * 1024; at < n; at += gridDim.x * 1024) {
        for (int i = 0; i < 4; i++) s[i * 256 + threadIdx.x] = a[at + i * 256 + threadIdx.x];
        __syncthreads();
        float4 x = reinterpret_cast<float4 *>(s)[threadIdx.x];
        __syncthreads();
        x.x = sqrtf(x.x); x.y = sqrtf(x.y); x.z += x.x * x.y; x.w *= x.z;
        reinterpret_cast<float4 *>(s)[threadIdx.x] = x;
        __syncthreads();
        for (int i = 0; i < 4; i++) b[at + i * 256 + threadIdx.x] = s[i * 256 + threadIdx.x];
        __syncthreads();
    }
}
"""
    kernel = only(tools.nvcc(tmp_path, source, "-arch=sm_90", "-cubin", output="exchange.cubin"))
    assert rules_of(kernel) == []
    (why,) = [one for one in kernel["rejected"] if one["rule"] == "no-async-copy"]
    assert [(e["fact"], e["value"]) for e in why["because"]] == [("staged_reuse", 1)]


@needs_ptxas
def test_registers_before_and_after_setmaxnreg(tmp_path):
    path = tools.assemble(tools.ptx_for(["setmaxnreg"], "sm_90a"), "sm_90a", tmp_path)
    kernel = only(path)
    asked = re.findall(r"setmaxnreg\.(inc|dec)\S* (\d+);", (tools.SOURCES / "setmaxnreg.ptx").read_text("utf-8"))
    by = {"inc": "raised_to", "dec": "lowered_to"}
    wanted = {by[way]: sorted({int(value) for other, value in asked if other == way}) for way, _ in asked}
    assert asked and kernel["readings"]["setmaxnreg"] == {"lowered_to": [], "raised_to": []} | wanted
    command = [sys.executable, "-m", "diagnose", "static", path]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    for values in wanted.values():
        assert f"to {values[0]}" in done.stdout
    assert f"registers {kernel['registers']} at launch" in done.stdout and "by setmaxnreg" in done.stdout


@needs_ptxas
def test_rows_that_are_padding_make_a_tile_a_matter_of_fit(tmp_path):
    padded = tools.mma_loop(16, "sm_90").replace("{r0, r1, r2, r3}", "{r0, z, r2, z}")
    padded = padded.replace(".reg .pred p;", ".reg .pred p;\n  .reg .b32 z;\n  mov.u32 z, 0;", 1)
    kernel = only(tools.assemble(padded, "sm_90", tmp_path))
    assert kernel["paths"] == ["mma"] and rules_of(kernel) == []
    (why,) = [one for one in kernel["rejected"] if one["rule"] == "legacy-mma"]
    assert [(e["fact"], e["value"]) for e in why["because"]] == [("mma_rows", 32)]


@needs_nvcc
@pytest.mark.parametrize(
    ("source", "kernel", "paths", "without"),
    [
        ("attention/decode", "attention_decode", {"mma", "ldmatrix", "mbarrier", "tma"}, {"dpx", "dsm"}),
        ("gemm/multicast", "gemm_multicast", {"wgmma", "tma-multicast", "cluster"}, {"dpx", "dsm"}),
        ("gemm/persistent", "gemm_persistent", {"wgmma", "setmaxnreg"}, {"dpx", "dsm"}),
    ],
)
def test_bundled_kernels_are_said_to_take_no_path_that_they_do_not(source, kernel, paths, without, tmp_path):
    made = tmp_path / "made.cubin"
    path = bundled("kernels") / f"{source}.cu"
    command = [tools.NVCC, "-std=c++17", "-arch=sm_90a", "-cubin", "-o", made, path]
    subprocess.run(command, check=True, capture_output=True)
    found = static.analyse(made, kernel=kernel)["kernels"]
    assert found
    for one in found:
        assert paths <= set(one["paths"]) and not without & set(one["paths"])
        assert "legacy-mma" not in rules_of(one)  # decode has 8 query rows at most; the others use wgmma


@needs_nvcc
def test_a_debug_build_is_said_first(tmp_path):
    body = "float x[8]; for (int i = 0; i < n; i++) { x[i & 7] += a[i]; } a[n] = x[n & 7];"
    source = f"__global__ void k(float *a, int n) {{ {body} }}"
    kernel = only(tools.nvcc(tmp_path, source, "-arch=sm_90", "-G", "-cubin", output="debug.cubin"))
    assert kernel["verdict"]["rule"] == "debug-build"


# --- vendor code, out of recorded reports ---

REPORTS = Path(__file__).resolve().parents[2] / "shared" / "reports"


def cubins_in(report, folder):
    """The modules that a report embeds."""
    data = lzma.decompress(report.read_bytes()) if report.suffix == ".xz" else report.read_bytes()
    view, at, number = memoryview(data), -1, 0
    while (at := data.find(b"\x7fELF\x02\x01\x01", at + 1)) >= 0:
        with contextlib.suppress(elf.ElfError):
            if elf.machine(view[at:]) == elf.EM_CUDA:
                path = folder / f"{number}.cubin"
                path.write_bytes(view[at : at + elf.length(view[at:])])
                number += 1
                yield path


@needs_nvdisasm
@pytest.mark.skipif(not REPORTS.is_dir(), reason="the recorded reports are not here (../shared)")
@pytest.mark.parametrize(
    ("report", "kernel", "rules", "paths", "stages"),
    [
        # cuBLAS names its stages: 320x128_64x3 is a tile of 320 by 128 with 3 stages of 64.
        ("h200-gemm", "nvjet_sm90_tst_320x128_64x3", [], {"wgmma", "tma", "tma-multicast", "setmaxnreg", "cluster"}, 3),
        ("h200-gemm", "nvjet_sm90_tst_64x16_64x16", ["small-wgmma-n"], {"wgmma", "tma"}, 16),
        ("h200-gemm", "nvjet_sm90_qqtst_144x128_128x6", [], {"wgmma", "fp8-wgmma"}, 6),
        ("h200-attention-other", "cudnn_generated", [], {"wgmma", "tma", "setmaxnreg"}, 2),
        ("h200-attention-other", "fmha_cutlassF_bf16_aligned_64x128_rf_sm80", ["legacy-mma"], {"mma"}, None),
        ("h200-attention-decode-softmax", "flash_fwd_kernel.*128, 128, 64, 4", ["legacy-mma"], {"mma", "cp-async"},
         None),
    ],
)  # fmt: skip
def test_vendor_kernels(report, kernel, rules, paths, stages, tmp_path):
    seen = 0
    for path in cubins_in(REPORTS / f"{report}.ncu-rep.xz", tmp_path):
        try:
            found = static.analyse(path, kernel=kernel)["kernels"]
        except DiagnoseError as error:
            assert "matches" in error.message
            continue
        for one in found:
            seen += 1
            assert rules_of(one)[:1] == rules[:1] or (rules_of(one)[1:] == rules and rules_of(one)[0] == "spill")
            assert paths <= set(one["paths"]) and one["arch"].startswith("sm_90")
            assert "dpx" not in one["paths"]
            if stages is not None:
                assert one["readings"]["stages"] == {"number": stages, "shown_by": "ring counters"}
    assert seen


# --- files of every kind ---

TWO = """
__global__ void first(float *a) { a[threadIdx.x] *= 2; }
__global__ void second(int *a) { a[threadIdx.x] = 1; }
int main() { return 0; }
"""
BOTH = ("-gencode", "arch=compute_90a,code=sm_90a", "-gencode", "arch=compute_80,code=[sm_80,compute_80]")


@needs_nvcc
@pytest.mark.parametrize(
    ("options", "output"),
    [
        ((), "program"),
        (("-shared", "-Xcompiler", "-fPIC"), "library.so"),
        (("-c",), "object.o"),
        (("-dc",), "relocatable.o"),
        (("-rdc=true",), "linked"),
        (("-fatbin",), "bare.fatbin"),
        (("-fatbin", "--compress-mode=size"), "small.fatbin"),
        (("-fatbin", "--compress-mode=speed"), "fast.fatbin"),
        (("-fatbin", "--compress-mode=none"), "plain.fatbin"),
    ],
)
def test_every_kind_of_file(options, output, tmp_path):
    made = tools.nvcc(tmp_path, TWO, *BOTH, *options, output=output)
    document = static.analyse(made)
    found = {(kernel["name"], kernel["arch"]) for kernel in document["kernels"]}
    assert found == {(name, arch) for name in ("first", "second") for arch in ("sm_80", "sm_90a")}
    carried = {(image["kind"], image["arch"]) for image in document["binary"]["images"]}
    assert {("cubin", "sm_80"), ("cubin", "sm_90a")} <= carried
    json.dumps(document, allow_nan=False)
    one = static.analyse(made, kernel="^first", arch="sm_90a")
    assert {(kernel["name"], kernel["arch"]) for kernel in one["kernels"]} == {("first", "sm_90a")}


@needs_nvcc
def test_a_stripped_program_and_an_archive(tmp_path):
    made = tools.nvcc(tmp_path, TWO, "-arch=sm_90", output="program")
    subprocess.run(["strip", "--strip-all", made], check=True)
    assert len(static.analyse(made)["kernels"]) == 2
    made.write_bytes(made.read_bytes()[:-64] + bytes(64))  # no section table either
    assert len(static.analyse(made)["kernels"]) == 2
    member = tools.nvcc(tmp_path, TWO, "-arch=sm_90", "-c", output="member.o")
    subprocess.run(["ar", "rc", tmp_path / "lib.a", member], check=True)
    assert len(static.analyse(tmp_path / "lib.a")["kernels"]) == 2


@needs_nvcc
def test_many_parts_read_by_workers_say_the_same(tmp_path, monkeypatch):
    made = tools.nvcc(tmp_path, "twins.cu", "-arch", "sm_90a", "-lineinfo", "-cubin", output="twins.cubin")
    alone = static.analyse(made, workers=1)
    monkeypatch.setattr(static, "_WORKERS_FROM", 0)
    monkeypatch.setattr(static, "_PART", 1 << 14)
    seen = []
    shared = static.analyse(made, workers=2, progress=lambda *now: seen.append(now))
    assert shared == alone
    assert seen[-1][0] == pytest.approx(seen[-1][1], abs=64) and seen[-1][2] == len(alone["kernels"])
    assert [now[0] for now in seen] == sorted(now[0] for now in seen)


def error_of(path, **more):
    with pytest.raises(DiagnoseError) as caught:
        static.analyse(path, **more)
    assert caught.value.hint and "\n" not in caught.value.message
    return caught.value


@needs_nvcc
def test_a_filter_that_matches_nothing_names_what_is_there(tmp_path):
    made = tools.nvcc(tmp_path, TWO, *BOTH, "-fatbin", output="bare.fatbin")
    error = error_of(made, kernel="frist")
    assert error.exit_code == EXIT_USAGE and "first" in error.message and "second" in error.message
    error = error_of(made, arch="sm_75")
    assert error.exit_code == EXIT_USAGE and "sm_90a" in error.message
    assert error_of(made, kernel="(").exit_code == EXIT_USAGE
    assert error_of(made, arch="hopper").exit_code == EXIT_USAGE
    assert error_of(made, arch="sm_90f").exit_code == EXIT_USAGE


@needs_nvcc
def test_only_ptx(tmp_path):
    made = tools.nvcc(tmp_path, TWO, "-gencode", "arch=compute_90,code=compute_90", "-fatbin", output="only.fatbin")
    error = error_of(made)
    assert error.exit_code == EXIT_NOTHING_MEASURED and "only PTX" in error.message and "compute_90" in error.message


def test_host_only_text_empty_and_missing(tmp_path):
    host = Path(shutil.which("true") or "/bin/true").resolve()
    assert error_of(host).exit_code == EXIT_NOTHING_MEASURED
    for name, content in (
        ("text.cu", b"__global__ void k() {}\n"),
        ("empty.so", b""),
        ("noise", bytes(range(256)) * 9),
    ):
        path = tmp_path / name
        path.write_bytes(content)
        assert error_of(path).exit_code == EXIT_USAGE
    assert error_of(tmp_path / "nowhere.so").exit_code == EXIT_USAGE
    assert error_of(tmp_path).exit_code == EXIT_USAGE
    wheel = tmp_path / "package.whl"
    wheel.write_bytes(b"PK\x03\x04" + bytes(100))
    assert "unzip" in error_of(wheel).hint
    ptx = tmp_path / "kernel.ptx"
    ptx.write_text(".version 9.0\n.target sm_90\n")
    assert "PTX" in error_of(ptx).message


@needs_ptxas
def test_cut_and_damaged_cubins(tmp_path):
    whole = tools.assemble(tools.ptx_for(["mma_f16"], "sm_90a"), "sm_90a", tmp_path).read_bytes()
    for size in (8, 63, 64, 200, len(whole) // 2, len(whole) - 1):
        path = tmp_path / "cut.cubin"
        path.write_bytes(whole[:size])
        assert error_of(path).exit_code in (EXIT_USAGE, EXIT_NOTHING_MEASURED)


@needs_ptxas
def test_a_newer_architecture(tmp_path):
    whole = bytearray(tools.assemble(tools.ptx_for(["mma_f16"], "sm_90"), "sm_90", tmp_path).read_bytes())
    flags = struct.unpack_from("<I", whole, 48)[0]
    newer = 150
    whole[48:52] = struct.pack("<I", (flags & ~0xFF00) | newer << 8 if whole[8] >= 8 else (flags & ~0xFF) | newer)
    path = tmp_path / "newer.cubin"
    path.write_bytes(whole)
    error = error_of(path)
    assert error.exit_code == EXIT_NOTHING_MEASURED and "nvdisasm" in error.message + error.hint


@needs_nvdisasm
def test_an_architecture_that_nvdisasm_has_dropped(tmp_path):
    error = disassemble._tool_error('nvdisasm fatal : CUDA architecture "SM70" is deprecated.', "x", tools.NVDISASM)
    assert "sm_70" in error.message and error.exit_code == EXIT_NOTHING_MEASURED


@needs_nvcc
def test_a_damaged_image_leaves_the_others(tmp_path):
    made = tools.nvcc(tmp_path, TWO, *BOTH, "-fatbin", "--compress-mode=size", output="small.fatbin")
    found = binary.open_binary(made)
    image = found.cubins[0]
    data = bytearray(made.read_bytes())
    data[image.offset + 8 : image.offset + image.stored - 4] = bytes(image.stored - 12)
    made.write_bytes(data)
    document = static.analyse(made)
    assert document["partial"] is True and len(document["kernels"]) == 2
    assert any(image.arch in warning for warning in document["warnings"])


@needs_nvcc
def test_a_timeout_is_an_error_of_its_own(tmp_path):
    made = tools.nvcc(tmp_path, "twins.cu", "-arch", "sm_90a", "-lineinfo", "-cubin", output="twins.cubin")
    error = error_of(made, timeout_s=0.001)
    assert error.exit_code == EXIT_NOTHING_MEASURED and "within" in error.message


def test_no_nvdisasm(monkeypatch):
    monkeypatch.setattr(disassemble, "find_cuda_tool", lambda name: None)
    with pytest.raises(DiagnoseError) as caught:
        disassemble.find_nvdisasm()
    assert caught.value.hint.startswith("pip install") and caught.value.exit_code == EXIT_NOTHING_MEASURED


# --- parsers on hostile bytes ---


@given(st.binary(max_size=400), st.integers(0, 2000))
def test_lz4_never_does_more_than_asked(data, size):
    with contextlib.suppress(ValueError):
        assert len(binary.lz4_block(data, size)) == size


@needs_ptxas
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 255)), min_size=1, max_size=12))
def test_changed_bytes_of_a_cubin_are_read_or_refused(tmp_path, changes):
    whole = _cubin(tmp_path)
    for at, value in changes:
        whole[at % len(whole)] = value
    with contextlib.suppress(elf.ElfError):
        elf.read_cubin(memoryview(whole))
        elf.length(memoryview(whole))


def _cubin(folder):
    made = folder / "sm_90a.cubin"
    if not made.exists():
        tools.assemble(tools.ptx_for(["mma_f16", "ldmatrix"], "sm_90a"), "sm_90a", folder)
    return bytearray(made.read_bytes())


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=300))
def test_bytes_after_a_fatbin_magic(tmp_path, data):
    path = tmp_path / "some.fatbin"
    path.write_bytes(binary.FATBIN + data)
    try:
        binary.open_binary(path)
    except DiagnoseError as error:
        assert error.exit_code == EXIT_USAGE


# --- names and compatibility ---


@pytest.mark.parametrize(
    ("mangled", "short"),
    [
        ("_Z1kPfPKfi", "k"),
        ("_Z1tILi16EEvPf", "t"),
        (
            "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIiEEEEviT0_",
            "vectorized_elementwise_kernel",
        ),
        ("kernel", "kernel"),
        ("_Znonsense", "_Znonsense"),
    ],
)
def test_short_names(mangled, short):
    assert names.short(names.demangle(mangled)) == short


def images(*targets):
    return [Image("ptx" if t.startswith("compute") else "cubin", t, 0, 1, 1, "none") for t in targets]


@pytest.mark.parametrize(
    ("targets", "sm", "how", "target"),
    [
        (("sm_90",), 90, "code", "sm_90"),
        (("sm_90a",), 90, "code", "sm_90a"),
        (("sm_90", "sm_90a"), 90, "code", "sm_90a"),
        (("sm_90a",), 100, "no", None),
        (("sm_80",), 86, "code", "sm_80"),
        (("sm_86",), 80, "no", None),
        (("sm_80",), 90, "no", None),
        (("sm_80", "compute_80"), 90, "ptx", "compute_80"),
        (("compute_90a",), 90, "ptx", "compute_90a"),
        (("compute_90a",), 100, "no", None),
        (("sm_100f",), 103, "code", "sm_100f"),
        (("sm_100a",), 103, "no", None),
        (("sm_100",), 120, "no", None),
        (("compute_100f",), 103, "ptx", "compute_100f"),
        (("compute_100f",), 120, "no", None),
    ],
)
def test_what_runs_where(targets, sm, how, target):
    found = compatibility.on(images(*targets), sm)
    assert (found.how, found.target) == (how, target)


def test_what_is_lost():
    assert "wgmma" in (compatibility.on(images("sm_90"), 90).lost or "")
    assert compatibility.on(images("sm_90a"), 90).lost is None
    assert "tcgen05" in (compatibility.on(images("sm_100"), 100).lost or "")
    assert compatibility.on(images("sm_80"), 80).lost is None
    assert "beyond sm_80" in (compatibility.on(images("compute_80"), 90).lost or "")
