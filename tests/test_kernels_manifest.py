"""The bundled kernels: manifests, specs, architectures, building with a cache, running."""

from __future__ import annotations

import os
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml

from diagnose.collect import kernels
from diagnose.collect.find import find_cuda_tool
from diagnose.collect.kernels import (
    build_kernel,
    choose_arch,
    declared_of,
    evaluate,
    kernel_arguments,
    list_kernels,
    load_kernels,
    parse_result,
    parse_spec,
    run_kernel,
    suits,
    work_of,
)
from diagnose.errors import EXIT_NOTHING_MEASURED, EXIT_USAGE, DiagnoseError

ENTRY: dict[str, Any] = {
    "name": "gemm/naive",
    "source": "naive.cu",
    "function": "gemm_naive",
    "args": ["--variant", "plain"],
    "nvcc_flags": ["-DX=1"],
    "step": 1,
    "expect": "no-tensor-core",
    "also": [],
    "twin": None,
    "params": {"m": 64, "n": 32},
    "work": {"flops": "2*m*n", "bytes": "4*(m+n)"},
    "archs": ["sm_80", "sm_90a"],
    "why": "because",
}


def write(root: Path, *entries: dict[str, Any], family: str = "gemm") -> Path:
    folder = root / "gemm"
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("naive.cu", "tiled.cu"):
        (folder / name).write_text("int main() { return 0; }\n")
    (folder / "manifest.yaml").write_text(yaml.safe_dump({"family": family, "kernels": list(entries)}))
    return root


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text))
    path.chmod(0o755)
    return path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    tiled = {**ENTRY, "name": "gemm/tiled", "source": "tiled.cu", "step": 2, "twin": "gemm/naive"}
    return write(tmp_path / "kernels", ENTRY, tiled)


# --- the kernels that ship


def test_every_bundled_manifest_is_valid() -> None:
    found = load_kernels()
    assert found, "kernels/ holds manifests"
    for kernel in found.values():
        assert kernel.name.startswith(kernel.source.parent.name + "/")
        assert kernel.function in kernel.source.read_text("utf-8"), (
            f"{kernel.name}: {kernel.function} is not in its source"
        )
        assert max(work_of(kernel, kernel.params).values()) > 0, f"{kernel.name} does no useful work"
        if kernel.twin is not None:
            # Several faults may share one healthy twin, which names one of them.
            back = found[found[kernel.twin].twin or ""]
            assert back.name == kernel.name or back.twin == kernel.twin, f"{kernel.twin} is no twin of {kernel.name}"


def test_list_has_the_contracts_keys() -> None:
    for row in list_kernels():
        assert list(row) == ["name", "family", "step", "expect", "twin", "params", "archs"]


# --- manifests


def test_a_manifest_is_read(root: Path) -> None:
    naive, tiled = load_kernels(root).values()
    assert (naive.name, naive.function, naive.args, naive.step) == (
        "gemm/naive",
        "gemm_naive",
        ("--variant", "plain"),
        1,
    )
    assert tiled.twin == "gemm/naive" and tiled.source == root / "gemm" / "tiled.cu"
    assert work_of(naive, {"m": 3, "n": 5}) == {"flops": 30.0, "bytes": 32.0}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"expect": None}, "expect must be a text"),
        ({"expct": "x"}, "unknown key 'expct', did you mean 'expect'?"),
        ({"name": "naive"}, "folder/short-name"),
        ({"params": {"m": "64"}}, "params must map names to integers"),
        ({"params": {"m": True, "n": 1}}, "params must map names to integers"),
        ({"work": {"flops": "2*q"}}, "work.flops: 'q' is not a parameter"),
        ({"work": {"time": "2*m"}}, "knows flops and bytes"),
        ({"work": "2*m"}, "work must map"),
        ({"archs": []}, "archs must name architectures"),
        ({"archs": ["90a"]}, "archs must name architectures"),
        ({"args": "--x"}, "args must be a list"),
        ({"step": "one"}, "step must be a number"),
        ({"gain": "no"}, "gain must be true or false"),
        ({"sparse": 1}, "sparse must be true or false"),
        ({"recorded": "no"}, "recorded must be true or false"),
        ({"twin": 3}, "twin must be a name"),
        ({"twin": "gemm/none"}, "its twin 'gemm/none' does not exist"),
        ({"source": "gone.cu"}, "source 'gone.cu' does not exist"),
    ],
)
def test_a_bad_entry_names_file_entry_and_problem(tmp_path: Path, change: dict[str, Any], problem: str) -> None:
    with pytest.raises(DiagnoseError) as raised:
        load_kernels(write(tmp_path, {**ENTRY, **change}))
    assert problem in raised.value.message and str(tmp_path / "gemm") in raised.value.message
    assert raised.value.exit_code == EXIT_USAGE


def test_what_a_user_would_declare(tmp_path: Path) -> None:
    root = write(tmp_path / "kernels", {**ENTRY, "sparse": True})
    kernel = load_kernels(root)["gemm/naive"]
    assert declared_of(kernel, {"m": 3, "n": 5}) == {
        "useful_flops": 30.0,
        "useful_bytes": 32.0,
        "declared_sparse": True,
    }


def test_missing_keys_and_duplicates(tmp_path: Path) -> None:
    with pytest.raises(DiagnoseError, match="lacks function, why"):
        load_kernels(write(tmp_path, {key: ENTRY[key] for key in ENTRY if key not in ("function", "why")}))
    with pytest.raises(DiagnoseError, match="gemm/naive: is defined twice"):
        load_kernels(write(tmp_path, ENTRY, ENTRY))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("family: [", "manifest"),
        ("just text", "must hold family and kernels"),
        ("family: gemm\nkernels: 3", "kernels must be a list"),
        ("family: gem\nkernels: []", "family 'gem' is not one of"),
        ("family: gemm\nkernels: [3]", "is not a mapping"),
        ("family: gemm\nkernels: []\nextra: 1", "nothing else"),
    ],
)
def test_a_bad_manifest(tmp_path: Path, text: str, problem: str) -> None:
    write(tmp_path)
    (tmp_path / "gemm" / "manifest.yaml").write_text(text)
    with pytest.raises(DiagnoseError) as raised:
        load_kernels(tmp_path)
    assert problem in raised.value.message and "\n" not in raised.value.message


# --- expressions


def test_expressions() -> None:
    params = {"m": 7, "n": 2}
    assert evaluate("2*m*n + -(m - 1)/2 + m//2", params) == 28 - 3 + 3
    assert evaluate("1.5*m", params) == 10.5


@pytest.mark.parametrize(
    "expression",
    [
        "m**9",
        "__import__('os')",
        "m.real",
        "[m]",
        "q",
        "m +",
        "",
        "1/0",
        "True",
        "'m'",
        "m if m else n",
        "max(m, n)",
        "1j",
    ],
)
def test_expressions_are_arithmetic_only(expression: str) -> None:
    with pytest.raises(ValueError):
        evaluate(expression, {"m": 7, "n": 2})


# --- kernel:NAME[,param=value…]


def test_a_spec_sets_parameters(root: Path) -> None:
    kernel, params = parse_spec("kernel:gemm/naive,n=128", root)
    assert params == {"m": 64, "n": 128}
    assert kernel_arguments(kernel, params) == ("--variant", "plain", "--m", "64", "--n", "128")
    assert kernel_arguments(kernel, params, 0)[-2:] == ("--repeats", "0")
    assert parse_spec("gemm/tiled", root)[0].name == "gemm/tiled"


@pytest.mark.parametrize(
    ("spec", "message", "hint"),
    [
        ("kernel:gemm/naiv", "no reference kernel is named 'gemm/naiv'", "diagnose kernel:gemm/naive"),
        ("kernel:tiled", "no reference kernel is named 'tiled'", "diagnose kernel:gemm/tiled"),
        ("kernel:zzz", "no reference kernel is named 'zzz'", "diagnose kernels list"),
        ("kernel:", "no reference kernel is named ''", "diagnose kernels list"),
        (
            "kernel:gemm/naive,mm=3",
            "no parameter 'mm': it has m, n",
            "diagnose kernel:gemm/naive,m=64,n=32    (near: m)",
        ),
        ("kernel:gemm/naive,m=big", "m='big'", "diagnose kernel:gemm/naive,m=64,n=32"),
        ("kernel:gemm/naive,m=1.5", "not an integer", "diagnose kernel:gemm/naive"),
        ("kernel:gemm/naive,m=", "not an integer", "diagnose kernel:gemm/naive"),
        ("kernel:gemm/naive,m", "'m' in", "diagnose kernel:gemm/naive"),
        ("kernel:gemm/naive,m=1,m=2", "m is given twice", "diagnose kernel:gemm/naive"),
    ],
)
def test_a_bad_spec(root: Path, spec: str, message: str, hint: str) -> None:
    with pytest.raises(DiagnoseError) as raised:
        parse_spec(spec, root)
    assert message in raised.value.message and raised.value.hint.startswith(hint)
    assert raised.value.exit_code == EXIT_USAGE


# --- architectures


def test_which_code_runs_where() -> None:
    assert suits("sm_90a", 90) and not suits("sm_90a", 100) and not suits("sm_90a", 89)
    assert suits("sm_100f", 103) and not suits("sm_100f", 120) and not suits("sm_100f", 90)
    assert suits("sm_80", 120) and not suits("sm_80", 75)


def test_the_newest_architecture_that_suits_is_chosen(root: Path) -> None:
    naive = load_kernels(root)["gemm/naive"]
    assert choose_arch(naive, 90) == "sm_90a"
    assert choose_arch(naive, 120) == choose_arch(naive, 86) == choose_arch(naive, None) == "sm_80"
    assert choose_arch(naive, 90, "sm_80") == "sm_80" and choose_arch(naive, None, "sm_89") == "sm_89"
    with pytest.raises(DiagnoseError, match="this GPU is sm_75") as too_old:
        choose_arch(naive, 75)
    assert too_old.value.exit_code == EXIT_NOTHING_MEASURED
    for wrong in ("sm_70", "sm_100a", "compute_90", ""):
        with pytest.raises(DiagnoseError, match="cannot be built for"):
            choose_arch(naive, 90, wrong)


# --- building and running, with a stand-in compiler


@pytest.fixture
def nvcc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An nvcc whose programs print the result line in $RESULT; it counts its runs in nvcc.log."""
    path = script(
        tmp_path / "bin" / "nvcc",
        f"""\
        #!/bin/sh
        if [ "$1" = --version ]; then echo "release 13.0, V${{FAKE_NVCC:-13.0.88}}"; exit 0; fi
        echo "$@" >> {tmp_path}/nvcc.log
        if [ -n "$FAKE_ERROR" ]; then echo "$FAKE_ERROR" >&2; exit 2; fi
        while [ "$1" != -o ]; do shift; done
        printf '#!/bin/sh\\necho "$@" > {tmp_path}/arguments\\necho "$RESULT"\\n%s\\n' "$FAKE_PROGRAM" > "$2"
        chmod +x "$2"
        """,
    )
    monkeypatch.setenv("PATH", f"{path.parent}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(kernels, "_device_capability", lambda: 90)
    return path


def built_times(tmp_path: Path) -> int:
    log = tmp_path / "nvcc.log"
    return len(log.read_text().splitlines()) if log.exists() else 0


def test_a_build_is_cached_by_content(root: Path, nvcc: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    naive = load_kernels(root)["gemm/naive"]
    first = build_kernel(naive, progress=told.append)
    assert os.access(first, os.X_OK) and first.is_relative_to(tmp_path / "cache") and len(told) == 1
    assert "-O3 -lineinfo -std=c++17 -gencode=arch=compute_90a,code=sm_90a -DX=1" in (tmp_path / "nvcc.log").read_text()
    assert build_kernel(naive) == first and built_times(tmp_path) == 1
    builds = {first, build_kernel(naive, "sm_80")}
    naive.source.write_text("int main() { return 1; }\n")
    builds.add(build_kernel(naive))
    (root / "common.cuh").write_text("// shared")
    builds.add(build_kernel(naive))
    monkeypatch.setenv("FAKE_NVCC", "13.1.1")
    builds.add(build_kernel(naive))
    assert len(builds) == built_times(tmp_path) == 5, "arch, source, shared header and nvcc each count"
    assert not list(first.parent.glob("tmp*"))


@pytest.mark.parametrize(
    ("said", "cause", "hint"),
    [
        ("naive.cu(3): error: identifier x is undefined\n1 error detected", "error: identifier x", "diagnose doctor"),
        (
            "nvcc fatal   : Unsupported gpu architecture 'sm_90a'",
            "Unsupported gpu",
            "diagnose kernels build gemm/naive --arch",
        ),
        ("sh: 1: g++: not found\nnvcc fatal: Failed to preprocess", "nvcc fatal", "apt-get install g++"),
        ("it broke", "it broke", "diagnose doctor"),
    ],
)
def test_a_failed_build(
    root: Path, nvcc: Path, monkeypatch: pytest.MonkeyPatch, said: str, cause: str, hint: str
) -> None:
    monkeypatch.setenv("FAKE_ERROR", said)
    with pytest.raises(DiagnoseError) as raised:
        build_kernel(load_kernels(root)["gemm/naive"])
    assert cause in raised.value.message and str(nvcc) in raised.value.message and raised.value.hint.startswith(hint)
    assert raised.value.exit_code == EXIT_NOTHING_MEASURED and "\n" not in raised.value.message


def test_no_compiler_and_no_cache(root: Path, nvcc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    naive = load_kernels(root)["gemm/naive"]
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/none")
    with pytest.raises(DiagnoseError, match="cannot build gemm/naive in /proc/none") as raised:
        build_kernel(naive)
    assert raised.value.hint.startswith("XDG_CACHE_HOME=")
    monkeypatch.setattr(kernels, "find_cuda_tool", lambda name: None)
    with pytest.raises(DiagnoseError, match="no nvcc") as raised:
        build_kernel(naive)
    assert raised.value.hint.startswith("pip install 'diagnose[cuda]'")


def test_a_compiler_out_of_wheels_gets_its_folders(root: Path, nvcc: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(kernels, "wheel_bin", lambda: (nvcc.parent,))
    build_kernel(load_kernels(root)["gemm/naive"])
    assert f"-I {tmp_path}/include -L {tmp_path}/lib" in (tmp_path / "nvcc.log").read_text()


LINE = "gemm/naive | 1234.5 us | 13.9 TFLOP/s | error 1.2e-06 (tolerance 1e-05) | ok"


def test_a_run_gives_the_result(root: Path, nvcc: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RESULT", LINE)
    result = run_kernel(load_kernels(root)["gemm/naive"], {"m": 1, "n": 2}, repeats=5)
    assert result.line == LINE and result.ok
    assert (result.time_us, result.rate, result.rate_unit) == (1234.5, 13.9, "TFLOP/s")
    assert (result.error, result.tolerance) == (1.2e-06, 1e-05)
    assert (tmp_path / "arguments").read_text() == "--variant plain --m 1 --n 2 --repeats 5\n"


def test_a_mismatch_is_a_result(root: Path, nvcc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RESULT", LINE.replace("| ok", "| mismatch"))
    monkeypatch.setenv("FAKE_PROGRAM", "exit 1")
    assert not run_kernel(load_kernels(root)["gemm/naive"]).ok


def test_a_program_that_fails(root: Path, nvcc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    naive = load_kernels(root)["gemm/naive"]
    monkeypatch.setenv("FAKE_PROGRAM", "echo 'common.cuh:9: no CUDA-capable device is detected' >&2; exit 1")
    with pytest.raises(DiagnoseError, match=r"status 1 without a result: common\.cuh:9: no CUDA-capable") as raised:
        run_kernel(naive)
    assert raised.value.exit_code == EXIT_NOTHING_MEASURED and "diagnose doctor" in raised.value.hint
    (root / "common.cuh").write_text("// a second key")
    monkeypatch.setenv("FAKE_PROGRAM", "echo 'error: --m must be between 1 and 65536' >&2; exit 1")
    with pytest.raises(DiagnoseError, match=r"without a result: --m must be between 1 and 65536") as raised:
        run_kernel(naive)
    assert "diagnose kernels list shows them" in raised.value.hint
    (root / "common.cuh").write_text("// another key")
    monkeypatch.setenv("FAKE_PROGRAM", "exec sleep 30")
    with pytest.raises(DiagnoseError, match=r"did not end within 0\.3 s"):
        run_kernel(naive, timeout_s=0.3)


def test_result_lines() -> None:
    untimed = parse_result("noise\nx/y | - | - | error 0 (tolerance 0) | ok\n")
    assert untimed is not None and untimed.time_us is None and untimed.rate is None and untimed.rate_unit is None
    small = parse_result("x/y | 1.0 us | 3.5e-05 GB/s | error nan (tolerance 0.1) | mismatch\n")
    assert small is not None and small.rate == 3.5e-05 and not small.ok and small.error != small.error
    assert parse_result("nothing") is None


@pytest.mark.slow
@pytest.mark.skipif(find_cuda_tool("nvcc") is None, reason="needs nvcc")
def test_a_bundled_kernel_builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    kernel, _ = parse_spec("kernel:reduction/shuffle")
    assert build_kernel(kernel, kernel.archs[0]).read_bytes().startswith(b"\x7fELF")
