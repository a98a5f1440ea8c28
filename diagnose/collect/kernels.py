"""The bundled reference kernels: their manifests, building them with nvcc, running them."""

from __future__ import annotations

import ast
import difflib
import hashlib
import operator
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import platformdirs
import yaml

from diagnose.bundled import bundled
from diagnose.collect.find import cuda_tool_version, find_cuda_tool, wheel_bin
from diagnose.collect.host import gpus
from diagnose.errors import EXIT_NOTHING_MEASURED, DiagnoseError
from diagnose.model import Scalar

FAMILIES = ("gemm", "attention", "reduction", "faults", "ceilings")
BASE_FLAGS = ("-O3", "-lineinfo", "-std=c++17")
_REQUIRED = ("name", "source", "function", "expect", "params", "work", "archs", "why")
_OPTIONAL = ("args", "nvcc_flags", "step", "also", "twin", "gain", "sparse", "recorded")
_ARCH = re.compile(r"sm_(\d+)([af]?)")
_BUILD_SECONDS = 600.0
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the manifests are 5,000 lines: C reads them in a tenth
_OPERATORS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}


@dataclass(frozen=True)
class ReferenceKernel:
    """One manifest entry (`kernels/README.md` explains the fields). `work` holds expressions over `params`."""

    name: str
    family: str
    source: Path
    function: str
    args: tuple[str, ...]
    nvcc_flags: tuple[str, ...]
    step: int | None
    expect: str
    also: tuple[str, ...]
    twin: str | None
    params: Mapping[str, int]
    work: Mapping[str, str]
    archs: tuple[str, ...]
    why: str
    gain: bool = True
    sparse: bool = False
    recorded: bool = True


@dataclass(frozen=True)
class RunResult:
    """What a reference kernel printed. `time_us` and `rate` are None where it was not timed."""

    line: str
    time_us: float | None
    rate: float | None
    rate_unit: str | None
    error: float
    tolerance: float
    ok: bool

    def document(self) -> dict[str, Any]:
        """As JSON, without the printed line."""
        return {name: value for name, value in asdict(self).items() if name != "line"}


def evaluate(expression: str, params: Mapping[str, int]) -> float:
    """The value of a work expression: numbers, parameter names, + - * / // and parentheses. Raises ValueError."""

    def value(node: ast.expr) -> float:
        if isinstance(node, ast.Constant) and type(node.value) in (int, float):
            return float(node.value)  # type: ignore[arg-type]
        if isinstance(node, ast.Name):
            if node.id not in params:
                raise ValueError(f"{node.id!r} is not a parameter")
            return float(params[node.id])
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -value(node.operand)
        if isinstance(node, ast.BinOp) and (apply := _OPERATORS.get(type(node.op))):
            return apply(value(node.left), value(node.right))
        raise ValueError(f"{ast.unparse(node)!r} is not a number, a parameter or + - * / //")

    try:
        return value(ast.parse(expression, mode="eval").body)
    except (SyntaxError, ZeroDivisionError, OverflowError, RecursionError) as error:
        raise ValueError(f"{expression!r}: {error}") from None


def work_of(kernel: ReferenceKernel, params: Mapping[str, int]) -> dict[str, float]:
    """The useful work (`flops`, `bytes`) at these parameters."""
    return {name: evaluate(expression, params) for name, expression in kernel.work.items()}


def declared_of(kernel: ReferenceKernel, params: Mapping[str, int]) -> dict[str, Scalar]:
    """What a user would declare of the problem: `useful_flops`, `useful_bytes`, `declared_sparse`, `gemm_m` …"""
    found: dict[str, Scalar] = {
        f"useful_{name}": amount for name, amount in work_of(kernel, params).items() if amount > 0
    }
    if kernel.sparse:
        found["declared_sparse"] = True
    if kernel.family == "gemm" and {"m", "n", "k"} <= params.keys():
        found.update({f"gemm_{name}": float(params[name]) for name in ("m", "n", "k")})
    return found


def _bad(manifest: Path, entry: str, problem: str) -> DiagnoseError:
    return DiagnoseError(f"{manifest}: {entry}: {problem}", "the format is explained in kernels/README.md")


def _strings(value: Any) -> tuple[str, ...] | None:
    if isinstance(value, list) and all(isinstance(one, str | int | float) for one in value):
        return tuple(str(one) for one in value)
    return None


def _kernel(entry: Any, family: str, manifest: Path, number: int) -> ReferenceKernel:
    label = entry.get("name") if isinstance(entry, dict) else None
    label = label if isinstance(label, str) else f"kernels[{number}]"
    if not isinstance(entry, dict):
        raise _bad(manifest, label, "is not a mapping")
    if missing := [key for key in _REQUIRED if key not in entry]:
        raise _bad(manifest, label, f"lacks {', '.join(missing)}")
    if unknown := [str(key) for key in entry if key not in (*_REQUIRED, *_OPTIONAL)]:
        near = difflib.get_close_matches(unknown[0], (*_REQUIRED, *_OPTIONAL), n=1)
        raise _bad(manifest, label, f"unknown key {unknown[0]!r}" + (f", did you mean {near[0]!r}?" if near else ""))
    for key in ("name", "source", "function", "expect", "why"):
        if not isinstance(entry[key], str) or not entry[key].strip():
            raise _bad(manifest, label, f"{key} must be a text, got {entry[key]!r}")
    if not re.fullmatch(r"[a-z0-9_]+/[a-z0-9_.-]+", entry["name"]):
        raise _bad(manifest, label, "name must be folder/short-name")
    lists = {key: _strings(entry.get(key) or []) for key in ("args", "nvcc_flags", "also", "archs")}
    for key, values in lists.items():
        if values is None:
            raise _bad(manifest, label, f"{key} must be a list of texts, got {entry.get(key)!r}")
    archs = lists["archs"] or ()
    if not archs or any(not _ARCH.fullmatch(arch) for arch in archs):
        raise _bad(manifest, label, f"archs must name architectures such as sm_90a, got {entry['archs']!r}")
    step, twin, params, work = entry.get("step"), entry.get("twin"), entry["params"], entry["work"]
    if step is not None and type(step) is not int:
        raise _bad(manifest, label, f"step must be a number or null, got {step!r}")
    if twin is not None and not isinstance(twin, str):
        raise _bad(manifest, label, f"twin must be a name or null, got {twin!r}")
    for key in ("gain", "sparse", "recorded"):
        if not isinstance(entry.get(key, True), bool):
            raise _bad(manifest, label, f"{key} must be true or false, got {entry[key]!r}")
    if not isinstance(params, dict) or any(type(value) is not int for value in params.values()):
        raise _bad(manifest, label, f"params must map names to integers, got {params!r}")
    if not isinstance(work, dict):
        raise _bad(manifest, label, f"work must map flops and bytes to expressions, got {work!r}")
    for name, expression in work.items():
        if name not in ("flops", "bytes"):
            raise _bad(manifest, label, f"work knows flops and bytes, not {name!r}")
        try:
            evaluate(str(expression), params)
        except ValueError as error:
            raise _bad(manifest, label, f"work.{name}: {error}") from None
    source = manifest.parent / entry["source"]
    if not source.is_file():
        raise _bad(manifest, label, f"source {entry['source']!r} does not exist")
    return ReferenceKernel(
        name=entry["name"],
        family=family,
        source=source,
        function=entry["function"],
        args=lists["args"] or (),
        nvcc_flags=lists["nvcc_flags"] or (),
        step=step,
        expect=entry["expect"],
        also=lists["also"] or (),
        twin=twin,
        params={str(name): value for name, value in params.items()},
        work={str(name): str(expression) for name, expression in work.items()},
        archs=archs,
        why=entry["why"],
        gain=entry.get("gain", True),
        sparse=entry.get("sparse", False),
        recorded=entry.get("recorded", True),
    )


def read_manifest(manifest: Path) -> tuple[ReferenceKernel, ...]:
    """The kernels of one manifest. Raises DiagnoseError with file, entry and what is wrong."""
    try:
        document = yaml.load(manifest.read_text("utf-8"), Loader=_LOADER)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise _bad(manifest, "manifest", str(error).replace("\n", " ")) from None
    if not isinstance(document, dict) or set(document) != {"family", "kernels"}:
        raise _bad(manifest, "manifest", "must hold family and kernels, nothing else")
    if document["family"] not in FAMILIES:
        raise _bad(manifest, "manifest", f"family {document['family']!r} is not one of {', '.join(FAMILIES)}")
    if not isinstance(document["kernels"], list):
        raise _bad(manifest, "manifest", "kernels must be a list")
    return tuple(_kernel(one, document["family"], manifest, n) for n, one in enumerate(document["kernels"]))


def load_kernels(root: Path | None = None) -> dict[str, ReferenceKernel]:
    """All reference kernels by name, in the order of the manifests. `root` is the bundled folder unless given."""
    found: dict[str, ReferenceKernel] = {}
    for manifest in sorted((root or bundled("kernels")).glob("*/*.yaml")):
        for kernel in read_manifest(manifest):
            if kernel.name in found:
                raise _bad(manifest, kernel.name, "is defined twice")
            found[kernel.name] = kernel
    for kernel in found.values():
        if kernel.twin is not None and kernel.twin not in found:
            raise _bad(kernel.source.parent, kernel.name, f"its twin {kernel.twin!r} does not exist")
    return found


def list_kernels(root: Path | None = None) -> list[dict[str, object]]:
    """The rows of `diagnose kernels list`, with the contract's keys."""
    return [
        {
            "name": kernel.name,
            "family": kernel.family,
            "step": kernel.step,
            "expect": kernel.expect,
            "twin": kernel.twin,
            "params": dict(kernel.params),
            "archs": list(kernel.archs),
        }
        for kernel in load_kernels(root).values()
    ]


def _nearest(name: str, names: Iterable[str]) -> list[str]:
    known = list(names)
    short = {one.rpartition("/")[2]: one for one in known}
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    near += [short[one] for one in difflib.get_close_matches(name.rpartition("/")[2], list(short), n=3, cutoff=0.6)]
    return list(dict.fromkeys(near))[:3]


def parse_spec(spec: str, root: Path | None = None) -> tuple[ReferenceKernel, dict[str, int]]:
    """`kernel:NAME[,param=value…]` (the prefix may be left out) as the kernel and all its parameters."""
    name, *settings = spec.removeprefix("kernel:").split(",")
    kernels = load_kernels(root)
    if name not in kernels:
        near = _nearest(name, kernels)
        hint = f"diagnose kernel:{near[0]}" if near else "diagnose kernels list"
        if len(near) > 1:
            hint += f"    (also near: {', '.join(near[1:])})"
        raise DiagnoseError(f"no reference kernel is named {name!r}", hint)
    kernel = kernels[name]
    params = dict(kernel.params)
    example = f"diagnose kernel:{name}" + "".join(f",{key}={value}" for key, value in kernel.params.items())
    seen: set[str] = set()
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise DiagnoseError(f"{setting!r} in {spec!r} is not param=value", example)
        if key not in params:
            near = difflib.get_close_matches(key, params, n=1) or list(params)
            known = f"it has {', '.join(params)}" if params else "it has none"
            raise DiagnoseError(f"{name} has no parameter {key!r}: {known}", f"{example}    (near: {', '.join(near)})")
        if not re.fullmatch(r"-?\d{1,18}", value):
            raise DiagnoseError(f"{key}={value!r} in {spec!r} is not an integer", example)
        if key in seen:
            raise DiagnoseError(f"{key} is given twice in {spec!r}", example)
        seen.add(key)
        params[key] = int(value)
    return kernel, params


def _arch_number(arch: str) -> tuple[int, str]:
    found = _ARCH.fullmatch(arch)
    return (int(found[1]), found[2]) if found else (0, "")


def suits(arch: str, capability: int) -> bool:
    """Whether code for `arch` runs on a device: sm_90a only on 9.0, sm_100f in its family, sm_80 on 8.0 and later."""
    number, suffix = _arch_number(arch)
    if suffix == "a":
        return number == capability
    if suffix == "f":
        return number <= capability and number // 10 == capability // 10
    return number <= capability


def choose_arch(kernel: ReferenceKernel, capability: int | None, requested: str | None = None) -> str:
    """The architecture to build for: `requested`, else the newest that suits the device, else the manifest's first."""
    if requested is not None:
        number, suffix = _arch_number(requested)
        if requested in kernel.archs or (number and not suffix and any(suits(one, number) for one in kernel.archs)):
            return requested
        raise DiagnoseError(
            f"{kernel.name} cannot be built for {requested}: it needs {' or '.join(kernel.archs)}",
            f"diagnose kernels build {kernel.name} --arch {kernel.archs[0]}",
        )
    if capability is None:
        return kernel.archs[0]
    fitting = [arch for arch in kernel.archs if suits(arch, capability)]
    if not fitting:
        raise DiagnoseError(
            f"{kernel.name} needs {' or '.join(kernel.archs)}, and this GPU is sm_{capability}",
            "diagnose kernels list    (shows what each kernel needs)",
            EXIT_NOTHING_MEASURED,
        )
    return max(fitting, key=_arch_number)


@cache
def _device_capability() -> int | None:
    return next((gpu.capability for gpu in gpus() if gpu.capability), None)


def cache_folder() -> Path:
    """Where built kernels are kept; safe to delete."""
    return platformdirs.user_cache_path("diagnose", appauthor=False) / "kernels"


def _wheel_flags(nvcc: Path) -> list[str]:
    """The include and library folders that an nvcc out of PyPI's wheels does not find itself."""
    if nvcc.parent not in wheel_bin():
        return []
    home = nvcc.parent.parent
    return ["-I", str(home / "include"), "-L", str(home / "lib")]


def _key(kernel: ReferenceKernel, flags: list[str], nvcc_version: str | None) -> str:
    digest = hashlib.sha256("\0".join([*flags, nvcc_version or ""]).encode())
    folder = kernel.source.parent
    shared = [
        path
        for place in (folder, folder.parent, folder.parent / "common")
        for pattern in ("*.cuh", "*.h")
        for path in place.glob(pattern)
    ]
    for path in (kernel.source, *sorted(shared)):
        digest.update(b"\0" + path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:24]


def _build_failed(kernel: ReferenceKernel, arch: str, nvcc: Path, output: str) -> DiagnoseError:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    cause = next((line for line in lines if re.search(r"\b(error|fatal)\b", line, re.IGNORECASE)), "".join(lines[-1:]))
    hint = "diagnose doctor    (shows which compiler is used)"
    if "Unsupported gpu architecture" in output or "not defined for option" in output:
        hint = f"diagnose kernels build {kernel.name} --arch {kernel.archs[0]}    (or a newer nvcc: diagnose doctor)"
    elif re.search(r"(gcc|g\+\+|cc1plus|cl\.exe).*(No such file|not found)|cannot find.*compiler", output):
        hint = "apt-get install g++    (nvcc needs a C++ compiler)"
    return DiagnoseError(f"{nvcc} failed to build {kernel.name} for {arch}: {cause[:400]}", hint, EXIT_NOTHING_MEASURED)


def build_kernel(
    kernel: ReferenceKernel, arch: str | None = None, progress: Callable[[str], None] | None = None
) -> Path:
    """The kernel's program, compiled unless the cache holds it for the same sources, flags, nvcc and architecture."""
    nvcc = find_cuda_tool("nvcc")
    if nvcc is None:
        raise DiagnoseError(
            "no nvcc was found on PATH, in CUDA_HOME or among Python's packages",
            "pip install 'diagnose[cuda]'    (brings a CUDA compiler; a C++ compiler is needed besides)",
            EXIT_NOTHING_MEASURED,
        )
    chosen = choose_arch(kernel, _device_capability() if arch is None else None, arch)
    # -arch=sm_90a would add a pass for plain sm_90, which refuses wgmma; -arch=sm_80 adds the PTX for newer devices.
    specific = f"-gencode=arch={chosen.replace('sm_', 'compute_')},code={chosen}"
    target = f"-arch={chosen}" if chosen[-1].isdigit() else specific
    flags = [*BASE_FLAGS, target, *kernel.nvcc_flags, *_wheel_flags(nvcc)]
    key = _key(kernel, flags, cuda_tool_version(nvcc))
    built = cache_folder() / key / kernel.source.stem  # variants of one source share the program
    if os.access(built, os.X_OK) and built.is_file():
        return built
    if progress:
        progress(f"building {kernel.name} for {chosen} with {nvcc}")
    try:
        built.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=built.parent) as folder:
            fresh = Path(folder) / built.name
            command = [str(nvcc), *flags, "-o", str(fresh), str(kernel.source)]
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=_BUILD_SECONDS,
                check=False,
            )
            if done.returncode or not fresh.is_file():
                raise _build_failed(kernel, chosen, nvcc, done.stdout.decode("utf-8", "replace"))
            fresh.replace(built)  # at once, so that two builds at the same time do no harm
    except subprocess.TimeoutExpired:
        raise _build_failed(kernel, chosen, nvcc, f"error: no result after {_BUILD_SECONDS:g} s") from None
    except OSError as error:
        raise DiagnoseError(
            f"cannot build {kernel.name} in {built.parent}: {error.strerror or error}",
            "XDG_CACHE_HOME=DIR diagnose …    (names a cache folder that can be written)",
            EXIT_NOTHING_MEASURED,
        ) from error
    return built


def kernel_arguments(kernel: ReferenceKernel, params: Mapping[str, int], repeats: int | None = None) -> tuple[str, ...]:
    """The program's arguments. Under a profiler `repeats` is 0: one launch, nothing is timed."""
    arguments = [*kernel.args, *(text for name, value in params.items() for text in (f"--{name}", str(value)))]
    return (*arguments, "--repeats", str(repeats)) if repeats is not None else tuple(arguments)


_RESULT = re.compile(
    r"^(?P<name>\S+) \| (?P<time>-|[\d.e+-]+ us) \| (?P<rate>-|[\d.e+-]+ \S+) \| "
    r"error (?P<error>\S+) \(tolerance (?P<tolerance>\S+)\) \| (?P<verdict>ok|mismatch)\s*$",
    re.MULTILINE,
)


def _is_stamped(kernel: ReferenceKernel) -> bool:
    return "diagnose_timeline::start(" in kernel.source.read_text("utf-8", "replace")


def stamped(kernel: ReferenceKernel, root: Path | None = None) -> ReferenceKernel:
    """The kernel as its build with the stamps of `common/diagnose_timeline.cuh`. Raises where it has none."""
    if not _is_stamped(kernel):
        others = [one.name for one in load_kernels(root).values() if _is_stamped(one)]
        raise DiagnoseError(
            f"{kernel.name} stamps no time line (those that do: {', '.join(others) or 'none'})",
            f"diagnose kernels run {others[0] if others else 'NAME'} --timeline",
        )
    return replace(kernel, nvcc_flags=(*kernel.nvcc_flags, "-DDIAGNOSE_TIMELINE"))


def parse_result(text: str) -> RunResult | None:
    """The result line that a reference kernel prints, or None where there is none."""
    found = _RESULT.search(text)
    if found is None:
        return None
    rate, _, unit = found["rate"].partition(" ")
    return RunResult(
        line=found[0].strip(),
        time_us=None if found["time"] == "-" else float(found["time"].removesuffix(" us")),
        rate=None if rate == "-" else float(rate),
        rate_unit=unit or None,
        error=float(found["error"]),
        tolerance=float(found["tolerance"]),
        ok=found["verdict"] == "ok",
    )


def run_kernel(
    kernel: ReferenceKernel,
    params: Mapping[str, int] | None = None,
    arch: str | None = None,
    repeats: int | None = None,
    timeout_s: float = 600.0,
    progress: Callable[[str], None] | None = None,
    environment: Mapping[str, str] | None = None,
) -> RunResult:
    """Builds and runs a kernel on this machine's GPU. A wrong result is `ok=False`; a program that fails raises.

    `environment` is added to this process's own.
    """
    program = build_kernel(kernel, arch, progress)
    command = [str(program), *kernel_arguments(kernel, kernel.params if params is None else params, repeats)]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_s,
            check=False,
            env={**os.environ, **(environment or {})},
        )
    except subprocess.TimeoutExpired:
        raise DiagnoseError(
            f"{kernel.name} did not end within {timeout_s:g} s",
            f"diagnose kernels run {kernel.name} --timeout {4 * timeout_s:g}    (or smaller parameters)",
            EXIT_NOTHING_MEASURED,
        ) from None
    result = parse_result(done.stdout.decode("utf-8", "replace"))
    if result is None:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise DiagnoseError(
            f"{kernel.name} exited with status {done.returncode} without a result"
            + (f": {said[-1].removeprefix('error: ')}" if said else ""),
            # The programs say `error: …` of arguments that they refuse, and a file and line of CUDA's errors.
            f"diagnose kernels run {kernel.name}    (with its own parameters; diagnose kernels list shows them)"
            if said and said[-1].startswith("error: ")
            else "diagnose doctor    (shows GPU and driver)",
            EXIT_NOTHING_MEASURED,
        )
    return result
