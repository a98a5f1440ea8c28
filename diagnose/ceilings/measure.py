"""Measures the ceilings of this machine's GPU: builds the programs of kernels/ceilings, runs them, keeps what holds.

A value is refused, with the reason, when its repeats spread or the clock moved: a ceiling that is a guess misleads
every verdict. Nothing is filled in for it.
"""

from __future__ import annotations

import datetime
import json
import os
import statistics
import subprocess
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from diagnose.bundled import bundled
from diagnose.ceilings.record import Measured, Record, Refused, measured
from diagnose.collect import host
from diagnose.collect.kernels import ReferenceKernel, build_kernel, load_kernels, run_kernel, suits
from diagnose.errors import EXIT_NOTHING_MEASURED, DiagnoseError

SPREAD = 0.05  # of the median: more than any gain that a verdict would want to tell from noise
CLOCK = (
    0.03  # the clock's own steps under load are 15 MHz, 0.8 % of 1980: three of them are one cause, more are two clocks
)
_SECONDS = 90.0  # a program's limit; the longest takes ten
_PROGRAMS: Mapping[str, tuple[str, ...]] = {  # program: what it can be built for; all where it is empty
    "memory": (),
    "pipes": (),
    "launch": (),
    "mma": ("sm_80",),
    "wgmma": ("sm_90a",),
    "latency": ("sm_90a",),
    "tma": ("sm_90a",),
}
_GEMMS = (
    (2048, 16),
    (4096, 16),
    (8192, 16),
    (8192, 8),
)  # edge, bits of an operand: those of which cuBLASLt has a kernel
_GEMM_TYPES = {8: "e4m3", 16: "bf16"}
_GEMM_RUNS = 3

Progress = Callable[[str], None]


def single(name: str, arch: str) -> ReferenceKernel:
    """The build of kernels/ceilings/NAME.cu as the builder takes it; what only a profiled kernel has is empty."""
    source = bundled("kernels") / "ceilings" / f"{name}.cu"
    return ReferenceKernel(
        f"ceilings/{name}", "ceilings", source, "", (), (), None, "quiet", (), None, {}, {}, (arch,), "measures"
    )


def programs(capability: int) -> dict[str, ReferenceKernel]:
    """The programs that this compute capability can run, built for it, by name."""
    found = {}
    for name, archs in _PROGRAMS.items():
        fitting = [arch for arch in archs if suits(arch, capability)]
        if archs and not fitting:
            continue
        arch = next((arch for arch in fitting if not arch[-1].isdigit()), f"sm_{capability}")
        found[name] = single(name, arch)
    return found


def _judged(one: Measured, clock_spread: float) -> Measured | Refused:
    if one.spread > SPREAD:
        return Refused(one.key, f"repeats spread over {one.spread:.1%} of the median, more than {SPREAD:.0%}")
    if clock_spread > CLOCK:
        return Refused(one.key, f"the SM clock moved by {clock_spread:.1%}, more than {CLOCK:.0%}")
    return one


def read_lines(name: str, text: str) -> list[Measured | Refused]:
    """What a program printed: one JSON object a line, judged. A line that is none is refused under the program."""
    found: list[Measured | Refused] = []
    for line in text.splitlines():
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
            moved = entry.get("clock_spread", 0.0) if isinstance(entry, dict) else 0.0
            if type(moved) not in (int, float) or moved != moved:
                raise ValueError(f"clock_spread {moved!r} is not a number")
            found.append(_judged(measured(entry), float(moved)))
        except (ValueError, RecursionError) as error:
            found.append(Refused(name, f"printed a line that is no measurement: {str(error)[:200]}"))
    return found


def run_program(name: str, command: Sequence[str | Path], seconds: float = _SECONDS) -> list[Measured | Refused]:
    """Runs one program and reads its lines; those before a failure count, the failure is one more refusal."""
    try:
        done = subprocess.run(
            [str(word) for word in command], stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds, check=False
        )
        text, failure = done.stdout, None
        if done.returncode:
            said = done.stderr.decode("utf-8", "replace").strip().splitlines()
            failure = f"exited with status {done.returncode}" + (f": {said[-1][:200]}" if said else "")
    except subprocess.TimeoutExpired as error:
        text, failure = error.stdout or b"", f"did not end within {seconds:g} s"
    except OSError as error:
        text, failure = b"", f"could not be started: {error.strerror or error}"
    found = read_lines(name, text.decode("utf-8", "replace"))
    return [*found, Refused(name, failure)] if failure else found


def _library(progress: Progress) -> list[Measured | Refused]:
    """cuBLASLt's product of square matrices, by the project's own program of it (its result is checked there)."""
    kernel = load_kernels()["gemm/cublas"]
    found: list[Measured | Refused] = []
    for edge, bits in _GEMMS:
        key = f"library:gemm:{_GEMM_TYPES[bits]}:{edge}"
        progress(f"running cuBLASLt, {edge} cubed, {_GEMM_TYPES[bits]}")
        times: list[float] = []
        try:
            for _ in range(_GEMM_RUNS):
                params = {**kernel.params, "m": edge, "n": edge, "k": edge, "bits": bits}
                result = run_kernel(kernel, params, repeats=20, timeout_s=_SECONDS)
                if not result.ok or result.time_us is None:
                    raise DiagnoseError(f"its result is wrong: {result.line}", "")
                times.append(result.time_us)
        except DiagnoseError as error:
            found.append(Refused(key, error.message))
            continue
        rates = [2.0 * edge**3 / (us * 1e-6) for us in times]
        middle = statistics.median(rates)
        spread = (max(rates) - min(rates)) / middle
        found.append(_judged(Measured(key, middle, "op/s", 20 * _GEMM_RUNS, spread, None), 0.0))
    return found


def _identity() -> tuple[str, str | None, str, dict[str, float], int]:
    """(name, UUID, driver, clocks in MHz, compute capability) of the first GPU."""
    present = host.gpus()
    if not present or present[0].capability is None:
        raise DiagnoseError(
            "no GPU is present", "diagnose ceilings --show    (lists the recorded ones)", EXIT_NOTHING_MEASURED
        )
    gpu = present[0]
    fields = ("uuid", "clocks.max.sm", "clocks.max.mem", "clocks.applications.graphics")
    text = (
        host.output_of(["nvidia-smi", "--id=0", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"])
        or ""
    )
    cells = dict(zip(fields, (cell.strip() for cell in text.strip().split(",")), strict=False))
    names = {"clocks.max.sm": "sm_max", "clocks.max.mem": "memory_max", "clocks.applications.graphics": "application"}
    clocks = {names[f]: float(cells[f]) for f in names if cells.get(f, "").replace(".", "", 1).isdigit()}
    assert gpu.capability is not None
    return gpu.name, cells.get("uuid") or None, gpu.driver, clocks, gpu.capability


def collected(
    name: str,
    uuid: str | None,
    arch: str,
    driver: str,
    clocks: Mapping[str, float],
    found: Sequence[Measured | Refused],
) -> Record:
    """The record of today out of what the programs gave. Raises DiagnoseError where none of it holds."""
    values = {one.key: one for one in found if isinstance(one, Measured)}  # a key printed twice: the last one
    refused = tuple(one for one in found if isinstance(one, Refused))
    if not values:
        why = f": {refused[0].key}: {refused[0].reason}" if refused else ""
        raise DiagnoseError(f"no ceiling of {name} could be measured{why}", "diagnose doctor", EXIT_NOTHING_MEASURED)
    seen = [one.clock_mhz for one in values.values() if one.clock_mhz]
    measured_clocks = {"seen_least": min(seen), "seen_most": max(seen)} if seen else {}
    today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    return Record(name, uuid, arch, driver, {**clocks, **measured_clocks}, today, tuple(values.values()), refused)


def measure(progress: Progress) -> Record:
    """The ceilings of this machine's first GPU, in a minute or two. Raises DiagnoseError where nothing was measured."""
    name, uuid, driver, clocks, capability = _identity()
    wanted = programs(capability)
    found: list[Measured | Refused] = []
    progress(f"building {len(wanted)} programs for sm_{capability}")

    def built(program: ReferenceKernel) -> Path | DiagnoseError:
        try:
            # Programs of ours name one architecture; the library's product takes the newest that suits this GPU.
            return build_kernel(program, program.archs[0] if len(program.archs) == 1 else None)
        except DiagnoseError as error:
            return error

    with ThreadPoolExecutor(max_workers=max(1, min(len(wanted) + 1, os.cpu_count() or 1))) as pool:
        # wgmma takes longest to build: first.
        order = sorted(wanted, key=lambda one: one != "wgmma")
        library = pool.submit(built, load_kernels()["gemm/cublas"])  # beside them: its failure shows where it runs
        ready = dict(zip(order, pool.map(built, [wanted[one] for one in order]), strict=True))
        library.result()
    for key in wanted:
        program = ready[key]
        if isinstance(program, DiagnoseError):
            found.append(Refused(key, program.message))
            continue
        progress(f"running {key}")
        found += run_program(key, [program])
    found += _library(progress)
    return collected(name, uuid, f"sm_{capability}", driver, clocks, found)
