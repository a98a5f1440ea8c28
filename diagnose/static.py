"""`diagnose static FILE`: reads the machine code of a binary and says what code alone can say, without a GPU.

One unit of work is a part of one cubin. Small files are read here; large ones by worker processes, which send one line
of JSON a kernel, so that memory holds results and never a library's listing.
"""

from __future__ import annotations

import hashlib
import json
import os
import queue
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from diagnose import __version__, facts, occupancy
from diagnose.bundled import bundled
from diagnose.details import Part, exact, rounded
from diagnose.errors import EXIT_NOTHING_MEASURED, EXIT_USAGE, DiagnoseError
from diagnose.gpus import catalogue
from diagnose.model import Scalar
from diagnose.packfile import nearest
from diagnose.packs import load_packs
from diagnose.problem import declared
from diagnose.report import Document, evidence, packs_entry
from diagnose.rules import Pack, Rule, RuleOutcome, active_rules, evaluate, expectation, with_thresholds
from diagnose.sass import binary, compatibility, disassemble, elf, migration, names, static_facts, useful
from diagnose.sass.binary import Binary, Image
from diagnose.sass.cfg import MMA
from diagnose.sass.disassemble import Instruction
from diagnose.sass.migration import MigrationEnv, Target
from diagnose.sass.pitfalls import pitfalls
from diagnose.sass.static_facts import Kernel, StaticEnv
from diagnose.sass.text import matches

# Bytes of code from which starting a worker (about half a second) pays: nvdisasm reads 0.8 MB a second.
_WORKERS_FROM = 3 << 20
_PART = 2 << 20  # bytes of code in a unit of work
_MOST_WORKERS = 16
_LIMIT_KERNELS = 1_000_000
# Which finding is told first where several hold: what makes the rest unreadable, then what costs most as a rule.
_ORDER = (
    "debug-build", "spill", "fp8-not-native", "no-tensor-core", "legacy-mma", "wgmma-serialized", "small-wgmma-n",
    "local-array", "fp64-by-accident", "slow-math", "no-async-copy",
)  # fmt: skip
_FILTERS = "diagnose static FILE --kernel REGEX --arch sm_90a"

Progress = Callable[[int, int, int], None]
"""Called with bytes of images done, bytes of all images, kernels found so far."""


@dataclass(frozen=True)
class _Task:
    """Part `part` of `parts` of the kernels of image number `image`."""

    image: int
    part: int
    parts: int
    size: int


@dataclass(frozen=True)
class Asked:
    """What is asked of each kernel: a target architecture to move to (`sm_100`), packs of rules, the declared work."""

    target: str | None = None
    packs: tuple[str, ...] = ()
    problem: str | None = None
    useful_flops: str | None = None


_PLAIN = Asked()


@dataclass(frozen=True)
class _Choice:
    """What was asked for, and the limits."""

    kernel: str | None
    arch: str | None
    timeout_s: float
    asked: Asked = _PLAIN


@cache
def rules() -> tuple[Pack, ...]:
    """The pack of static rules."""
    return load_packs([Path(__file__).parent / "sass" / "rules"], static_facts.units())


@cache
def migration_rules() -> tuple[Pack, ...]:
    """The pack of what to check when code moves to a newer architecture."""
    return load_packs([bundled("rules") / "migration"], migration.units())


@cache
def packs_for(asked: Asked) -> tuple[Pack, ...]:
    """The packs in force: the static rules, those of a migration where a target is named, and the user's.

    A pack of the user is read as for profiled kernels, beside the core pack; what it disables is off here too, and
    facts that only a run can give are missing.
    """
    own: tuple[Pack, ...] = ()
    if asked.packs:
        catalogue = {**facts.units(), **migration.units()}
        own = load_packs([bundled("rules"), *map(Path, asked.packs)], catalogue)[1:]
    return (*rules(), *(migration_rules() if asked.target else ()), *own)


def analyse(
    path: Path | str,
    *,
    kernel: str | None = None,
    arch: str | None = None,
    progress: Progress | None = None,
    timeout_s: float = disassemble.TIMEOUT_S,
    workers: int | None = None,
    asked: Asked = _PLAIN,
) -> Document:
    """The document for the GPU code in a file: one entry a kernel and architecture.

    `kernel` is a regular expression searched in mangled and C++ names, `arch` a target (`sm_90a`; `sm_90` also takes
    90a and 90f). `timeout_s` bounds each run of nvdisasm, `workers` the processes that read a large file. With a target
    in `asked` the rules of a migration are asked about each kernel that is older than it.
    """
    path = Path(path)
    asked = replace(asked, target=_target(asked.target))
    declared(asked.problem, asked.useful_flops)
    packs_for(asked)
    choice = _Choice(kernel, _architecture(arch), timeout_s, asked)
    _pattern(kernel)
    found = binary.open_binary(path)
    _has_code(found)
    images = [
        n for n, image in enumerate(found.images) if image.kind == "cubin" and _may_match(image.arch, choice.arch)
    ]
    if not images:
        have = sorted({image.arch for image in found.cubins})
        raise DiagnoseError(
            f"{path} has no code for {arch}; it has {', '.join(have)}",
            f"diagnose static {path} --arch {have[0]}",
            EXIT_USAGE,
        )
    disassemble.find_nvdisasm()
    results, problems = _read(found, images, choice, progress, workers)
    if not results:
        raise _no_kernels(found, choice, problems)
    return _document(found, results, problems, asked)


def _target(name: str | None) -> str | None:
    """The architecture to move to, checked; None where none is named."""
    match = None if name is None else re.fullmatch(r"(?:sm_?)?(\d{2,4})[af]?", name.strip().lower())
    if match is not None and catalogue.architecture(int(match[1])).known:
        return f"sm_{match[1]}"
    if name is None:
        return None
    known = ", ".join(f"sm_{one.sm}" for one in catalogue.architectures() if one.sm >= 80)
    raise DiagnoseError(f"--for {name!r} is no architecture that is known here", f"--for takes {known}", EXIT_USAGE)


def _architecture(arch: str | None) -> str | None:
    if arch is None:
        return None
    match = re.fullmatch(r"(?:sm_?|compute_)?(\d{2,4}[af]?)", arch.strip().lower())
    if match is None:
        raise DiagnoseError(f"--arch {arch!r} is not an architecture", "--arch sm_90a", EXIT_USAGE)
    return f"sm_{match[1]}"


def _pattern(kernel: str | None) -> re.Pattern[str] | None:
    if kernel is None:
        return None
    try:
        return re.compile(kernel)
    except re.error as error:
        raise DiagnoseError(
            f"--kernel {kernel!r} is not a regular expression: {error}", "--kernel 'gemm.*f16'", EXIT_USAGE
        ) from None


def _may_match(have: str, wanted: str | None) -> bool:
    """Whether an image may be of the wanted architecture; a header without a letter may be of any."""
    if wanted is None or have == wanted:
        return True
    return have.rstrip("af") == wanted.rstrip("af") and (wanted[-1].isdigit() or have[-1].isdigit())


def _has_code(found: Binary) -> None:
    """Raises when the file holds no SASS at all, and says what it holds instead."""
    if found.cubins:
        return
    ptx = sorted({image.arch for image in found.images if image.kind == "ptx"})
    if ptx:
        number = re.sub(r"\D", "", ptx[-1])
        raise DiagnoseError(
            f"{found.path} holds only PTX ({', '.join(ptx)}), which becomes SASS when it is loaded",
            f"build it for a GPU: nvcc -gencode arch={ptx[-1]},code=sm_{number} …",
            EXIT_NOTHING_MEASURED,
        )
    kinds = sorted({image.kind for image in found.images})
    raise DiagnoseError(
        f"{found.path} holds no SASS, only {', '.join(kinds)}, which becomes SASS when it is linked",
        "name the linked program or library",
        EXIT_NOTHING_MEASURED,
    )


def _no_kernels(found: Binary, choice: _Choice, problems: Sequence[DiagnoseError]) -> DiagnoseError:
    if problems:
        return problems[0]
    if choice.kernel is not None:
        known = sorted({name for image in found.cubins for name in _kernel_names(found, image)})
        near = nearest(choice.kernel, [names.short(names.demangle(name)) for name in known])
        shown = ", ".join(dict.fromkeys(names.short(names.demangle(name)) for name in known[:8]))
        return DiagnoseError(
            f"no kernel of {found.path} matches --kernel {choice.kernel!r}{near}; it has {shown or 'none'}"
            + (" …" if len(known) > 8 else ""),
            "the expression is searched in the C++ name and in the mangled one",
            EXIT_USAGE,
        )
    return DiagnoseError(
        f"{found.path} holds GPU code without a kernel",
        "name the file that holds the kernels (this one may only call a library)",
        EXIT_NOTHING_MEASURED,
    )


def _kernel_names(found: Binary, image: Image) -> list[str]:
    try:
        return [k.name for k in elf.read_cubin(memoryview(binary.read_image(found.path, image))).kernels]
    except (elf.ElfError, DiagnoseError):
        return []


# --- reading ---


def _tasks(found: Binary, images: Sequence[int]) -> list[_Task]:
    tasks = []
    for number in images:
        image = found.images[number]
        parts = max(1, min(64, image.size // _PART))
        tasks += [_Task(number, part, parts, image.size // parts) for part in range(parts)]
    return tasks


def _read(
    found: Binary, images: Sequence[int], choice: _Choice, progress: Progress | None, workers: int | None
) -> tuple[list[Part], list[DiagnoseError]]:
    tasks = _tasks(found, images)
    total = sum(task.size for task in tasks)
    count = workers if workers is not None else min(os.cpu_count() or 1, _MOST_WORKERS)
    results: list[Part] = []
    problems: list[DiagnoseError] = []
    done = 0
    source = (
        _with_workers(found, tasks, choice, min(count, len(tasks)))
        if count > 1 and len(tasks) > 1 and total >= _WORKERS_FROM
        else _here(found, tasks, choice)
    )
    for item in source:
        if isinstance(item, DiagnoseError):
            problems.append(item)
        elif isinstance(item, _Task):
            done += item.size
        else:
            results.append(item)
            if len(results) > _LIMIT_KERNELS:
                raise DiagnoseError(f"{found.path} has more than {_LIMIT_KERNELS:,} kernels", _FILTERS, EXIT_USAGE)
        if progress is not None:
            progress(done, total, len(results))
    results.sort(key=lambda entry: (entry["image"], entry["symbol"]))
    return results, problems


def _here(found: Binary, tasks: Sequence[_Task], choice: _Choice) -> Iterator[Part | _Task | DiagnoseError]:
    for task in tasks:
        try:
            yield from read_part(
                found, task.image, task.part, task.parts, choice.kernel, choice.arch, choice.timeout_s, choice.asked
            )
        except DiagnoseError as error:
            yield error
        yield task


def read_part(
    found: Binary,
    number: int,
    part: int,
    parts: int,
    kernel: str | None,
    arch: str | None,
    timeout_s: float,
    asked: Asked = _PLAIN,
) -> Iterator[Part]:
    """Entries for a part of the kernels of an image."""
    image = found.images[number]
    source = f"{found.path} ({image.arch} at {image.offset:#x})"
    data = binary.read_image(found.path, image)
    try:
        cubin = elf.read_cubin(memoryview(data))
    except elf.ElfError as error:
        raise DiagnoseError(
            f"{source} is a damaged cubin: {error}", "copy or build the file again", EXIT_USAGE
        ) from None
    pattern = _pattern(kernel)
    chosen = [
        k
        for k in cubin.kernels[part::parts]
        if pattern is None or pattern.search(k.name) or pattern.search(names.demangle(k.name))
    ]
    if not chosen:
        return
    everything = len(chosen) == len(cubin.kernels)
    by_name = {k.name: k for k in chosen}
    for code in disassemble.disassemble(
        data, source, functions=None if everything else [k.symbol for k in chosen], timeout_s=timeout_s
    ):
        resources = by_name.get(code.name)
        if resources is None:
            continue  # a device function with a section of its own, or a neighbour
        if not code.arch:  # the older format names its target in other words
            code = replace(code, arch=image.arch)
        if arch is not None and arch[-1] in "af" and code.arch != arch:
            return
        yield entry(Kernel(code, resources), number, asked)


def _with_workers(
    found: Binary, tasks: Sequence[_Task], choice: _Choice, count: int
) -> Iterator[Part | _Task | DiagnoseError]:
    """Spreads the tasks over worker processes; results come as they are ready."""
    waiting: queue.SimpleQueue[_Task] = queue.SimpleQueue()
    ready: queue.SimpleQueue[Part | _Task | DiagnoseError | None] = queue.SimpleQueue()
    for task in sorted(tasks, key=lambda task: -task.size):
        waiting.put(task)
    processes: list[subprocess.Popen[str]] = []

    def drive() -> None:
        process: subprocess.Popen[str] | None = None
        try:
            while True:
                try:
                    task = waiting.get_nowait()
                except queue.Empty:
                    break
                if process is None or process.poll() is not None:
                    process = _start_worker()
                    processes.append(process)
                _hand_over(process, found, task, choice, ready)
                ready.put(task)
        except Exception as error:
            ready.put(DiagnoseError(f"reading {found.path} failed: {error!r}", _FILTERS, EXIT_NOTHING_MEASURED))
        finally:
            if process is not None and process.stdin is not None:
                try:
                    process.stdin.close()
                except OSError:
                    process.kill()
            ready.put(None)

    threads = [threading.Thread(target=drive, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        running = count
        while running:
            item = ready.get()
            if item is None:
                running -= 1
            else:
                yield item
    finally:
        for process in processes:
            if process.poll() is None:
                process.terminate()
            process.wait()


def _start_worker() -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "diagnose.sass.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        encoding="utf-8",
        start_new_session=False,
    )


def _hand_over(
    process: subprocess.Popen[str],
    found: Binary,
    task: _Task,
    choice: _Choice,
    ready: queue.SimpleQueue[Part | _Task | DiagnoseError | None],
) -> None:
    assert process.stdin is not None and process.stdout is not None
    order = {
        "path": str(found.path.absolute()), "image": task.image, "part": task.part, "parts": task.parts,
        "kernel": choice.kernel, "arch": choice.arch, "timeout_s": choice.timeout_s,
        "asked": asdict(choice.asked),
    }  # fmt: skip
    process.stdin.write(json.dumps(order) + "\n")
    process.stdin.flush()
    for line in process.stdout:
        answer = json.loads(line)
        if "end" in answer:
            return
        if "error" in answer:
            ready.put(DiagnoseError(*answer["error"]))
        else:
            ready.put(answer["kernel"])
    raise RuntimeError(f"a worker ended with {process.wait()} in {found.images[task.image].arch}")


# --- one kernel ---


def entry(kernel: Kernel, image: int, asked: Asked = _PLAIN) -> Part:
    """The document's entry for a kernel; `id` and `index` are added with the whole."""
    resources, code = kernel.resources, kernel.code
    demangled = names.demangle(code.name)
    spilled = static_facts.spills(kernel)
    env = _env(kernel, asked)
    outcomes = _outcomes(env, asked)
    fired = [outcome for outcome in outcomes if outcome.state is True]
    findings = [_finding(outcome, kernel) for outcome in sorted(fired, key=_rank)]
    first = next((one for one in findings if one["severity"] != "note"), None)
    return {
        "workload": "static",
        "name": names.short(demangled),
        "demangled": demangled,
        "mangled": code.name,
        "arch": code.arch,
        "image": image,
        "symbol": resources.symbol,
        "launch": None,
        "duration_us": None,
        "registers": resources.registers,
        "shared_bytes": resources.shared_bytes,
        "stack_bytes": resources.stack_bytes,
        "spill_bytes": spilled.stored,
        "spill": {"stored": spilled.stored, "loaded": spilled.loaded, "in_loops": spilled.in_loops},
        "barriers": resources.barriers or 0,
        "max_threads": resources.required_threads or resources.max_threads,
        "cluster": list(resources.cluster) if resources.cluster else None,
        "code_bytes": resources.code_bytes,
        "paths": list(kernel.paths),
        "opcodes": dict(sorted(kernel.opcodes.items())),
        "verdict": {**first, "confidence": "low"} if first is not None else None,
        "limits": [],
        "findings": findings,
        "rejected": [
            {"rule": outcome.rule.id, "because": [evidence(e) for e in outcome.because]}
            for outcome in outcomes
            if outcome.state is False and len(outcome.because) == 1 and len(outcome.leaves) > 1
        ],
        "not_evaluated": [
            {"rule": outcome.rule.id, "missing": list(outcome.missing), "collect_with": _remedy(outcome)}
            for outcome in outcomes
            if outcome.state is None
        ],
        "facts": _facts(env, fired),
        "readings": {**_readings(kernel), "work": _work(kernel, asked)},
        "occupancy": _occupancy(kernel),
    }


def _env(kernel: Kernel, asked: Asked) -> MigrationEnv:
    """What rules may ask of a kernel; without a target the facts of a migration are those of its own architecture."""
    number = _number(asked.target) if asked.target else kernel.sm or 0
    work = declared(asked.problem, asked.useful_flops)
    return MigrationEnv(kernel, Target(catalogue.architecture(number), work), StaticEnv(kernel))


def _outcomes(env: MigrationEnv, asked: Asked) -> list[RuleOutcome]:
    """What each rule says: those of a migration are for the target's architecture, all others for the code's own."""
    kernel = env.kernel
    target = asked.target if asked.target and (kernel.sm or 0) < _number(asked.target) else None
    moved = {rule.id for pack in migration_rules() for rule in pack.rules} if asked.target else set()
    found = []
    known_as = (names.demangle(kernel.code.name), kernel.code.name)
    for rule in _rules_in_force(asked, known_as, kernel.code.arch):
        arch = target if rule.id in moved else kernel.code.arch
        if arch is not None and rule.scope == "kernel" and rule.applies(arch):
            found.append(evaluate(rule, env))
    return found


def _rules_in_force(asked: Asked, known_as: Sequence[str], arch: str) -> list[Rule]:
    """The rules of all packs, with the thresholds that packs set for their own rules. Those set for core rules are left
    out: the conditions of the core rules on code are others."""
    packs = packs_for(asked)
    own = {rule.id for pack in packs[len(rules()) :] for rule in pack.rules}
    changed: dict[str, dict[int, float]] = {}
    for one in (one for pack in packs for one in pack.thresholds):
        if one.rule in own and one.scope.fits(known_as, arch):
            changed.setdefault(one.rule, {}).update(one.leaves)
    return [with_thresholds(rule, changed[rule.id]) if rule.id in changed else rule for rule in active_rules(packs)]


def _remedy(outcome: RuleOutcome) -> str:
    """How to get what a rule misses: declare the work where that is all, else run the program."""
    return "--problem SPEC" if set(outcome.missing) <= {"useful_bytes", "useful_flops"} else "diagnose TARGET"


def _rank(outcome: RuleOutcome) -> tuple[int, str, str]:
    """By `_ORDER`, then by title: the steps of a migration have their number in it."""
    rule = outcome.rule
    return (_ORDER.index(rule.id) if rule.id in _ORDER else len(_ORDER), rule.title, rule.id)


def _finding(outcome: RuleOutcome, kernel: Kernel) -> Part:
    rule = outcome.rule
    return {
        "rule": rule.id,
        "class": rule.klass,
        "severity": rule.severity,
        "title": rule.title,
        "sentence": rule.sentence.fill(outcome.env),
        "static": True,
        "at_stake": None,
        "speedup": None,
        "evidence": [evidence(one) for one in (*outcome.evidence, *outcome.context)],
        "where": _where(rule, kernel),
        "why": rule.why,
        "next_experiment": {"change": rule.change, "expect": expectation(rule, outcome.env)},
        "limitations": rule.limitations,
        "references": list(rule.references),
    }


def _where(rule: Rule, kernel: Kernel) -> list[Part]:
    """The first instructions of the hot code that the rule points at."""
    places: dict[int, Part] = {}
    for select in rule.where:
        if select.kind != "opcode":
            continue
        chosen = [i for i in kernel.hot if matches(i.opcode, select.name)]
        chosen = chosen or [i for i in kernel.all if matches(i.opcode, select.name)]
        for instruction in chosen[: select.top]:
            places.setdefault(instruction.pc, _place(select.role, instruction))
    return list(places.values())


def _place(role: str, instruction: Instruction) -> Part:
    return {
        "role": role,
        "pc": hex(instruction.pc),
        "sass": instruction.text,
        "file": instruction.file,
        "line": instruction.line,
        "share": None,
    }


def _facts(env: MigrationEnv, fired: Sequence[RuleOutcome]) -> Part:
    cited = {name for outcome in fired for name in (*outcome.rule.facts, *outcome.rule.show)}
    found: Part = {}
    for name in sorted(cited & set(migration.units())):
        value, unit, _ = env.lookup(name)
        found[name] = {"value": _scalar(value), "unit": unit}
    return found


def _scalar(value: Scalar | None) -> Any:
    return value if isinstance(value, bool | str) or value is None else exact(float(value))


def _readings(kernel: Kernel) -> Part:
    """What the code shows of its structure."""
    loop = kernel.loop
    threads = kernel.resources.required_threads or kernel.resources.max_threads
    found: Part = {
        "main_loop": None,
        "stages": None,
        "wgmma": None,
        "roles": list(kernel.graph.roles),
        "setmaxnreg": static_facts.setmaxnreg(kernel),
        "recompiled_ampere": compatibility.recompiled_ampere(kernel.paths, kernel.sm),
        "pitfalls": [
            {"name": one.name, "severity": "note", "text": one.text, "where": [_place("cause", one.at)]}
            for one in pitfalls(kernel.all, threads)
        ],
    }
    if loop is not None:
        first = kernel.code.instructions[kernel.graph.blocks[loop.header].first]
        found["main_loop"] = {
            "pc": hex(first.pc),
            "file": first.file,
            "line": first.line,
            "depth": loop.depth,
            "instructions": len(kernel.hot),
            "budget": dict(static_facts.budget(kernel)),
            "widths": static_facts.widths(kernel),
            "tensor_operations": {
                name: exact(value) if value is not None else None
                for name, value in static_facts.kernel_operations(kernel).items()
            },
        }
    stages = static_facts.pipeline(kernel)
    if stages is not None:
        found["stages"] = {"number": stages.stages, "shown_by": stages.shown_by}
    reading = static_facts.wgmma(kernel)
    if reading is not None:
        found["wgmma"] = {
            "n": reading.n,
            "operands": reading.operands,
            "instructions": reading.instructions,
            "groups": reading.groups,
            "waits": reading.waits,
            "per_wait": rounded(reading.per_wait),
            "wait_distance": reading.distance,
            "serialized": reading.serialized,
        }
    return found


def _work(kernel: Kernel, asked: Asked) -> Part | None:
    """Declared operations beside those that the main loop issues; None where nothing is declared."""
    amount = declared(asked.problem, asked.useful_flops).get("useful_flops")
    if not isinstance(amount, float | int):
        return None
    issued = [i for i in kernel.hot if i.base in MMA]
    shapes = {shape for i in issued if (shape := static_facts.instruction_shape(i)) is not None}
    shapes |= {(one.m, one.n, one.k) for one in static_facts.tcgen05_shapes(kernel) if one is not None}
    operations = static_facts.kernel_operations(kernel)
    found = useful.work(float(amount), asked.problem, operations, shapes)
    return {
        "useful_flops": exact(found.useful_flops),
        "issued_per_iteration": _rounded(found.issued_per_iteration),
        "iterations_at_least": _rounded(found.iterations),
        "useful_share_at_most": _rounded(found.share_at_most),
    }


def _rounded(value: float | None) -> float | None:
    return rounded(value) if value is not None else None


def _occupancy(kernel: Kernel) -> Part | None:
    """Blocks an SM of the code's own architecture holds, and the next steps, for the block size that the code fixes."""
    resources = kernel.resources
    if kernel.sm is None or resources.registers is None:
        return None
    arch = catalogue.architecture(kernel.sm)
    threads = resources.required_threads or resources.max_threads
    block = occupancy.Block(threads or 256, resources.registers, resources.shared_bytes, resources.barriers or 0)
    found = occupancy.resident(arch, block)
    if found is None:
        return None
    return {
        "theoretical": rounded(found.occupancy),
        "achieved": None,
        "blocks": found.blocks,
        "limiter": found.limiter,
        "registers": resources.registers,
        "shared_bytes": resources.shared_bytes,
        "block": block.threads,
        "block_assumed": threads is None,
        "steps": [
            {"resource": s.resource, "at": s.value, "blocks": s.blocks, "occupancy": rounded(s.occupancy)}
            for s in occupancy.staircase(arch, block)
        ],
    }


# --- the whole ---


def _document(
    found: Binary, results: Sequence[Part], problems: Sequence[DiagnoseError], asked: Asked = _PLAIN
) -> Document:
    kernels = []
    seen: dict[str, int] = {}
    for index, result in enumerate(results):
        key = f"{result['mangled']}\0{result['arch']}"
        occurrence = seen[key] = seen.get(key, -1) + 1
        identity = hashlib.sha256(f"{key}\0{occurrence}".encode("utf-8", "surrogatepass")).hexdigest()[:12]
        kernels.append({"id": identity, "index": index, "run": 0, "device": None, "launches": 0, **result})
    warnings = [f"{problem.message}: left out" for problem in dict.fromkeys(problems)]
    unknown = sorted({k["arch"] for k in kernels if not catalogue.architecture(_number(k["arch"])).known})
    if unknown:
        warnings.append(f"{', '.join(unknown)}: newer than this version's tables; limits and some paths are not known")
    ampere = sum(1 for k in kernels if k["readings"]["recompiled_ampere"])
    if ampere:
        warnings.append(
            f"{ampere} kernel{'s are' if ampere > 1 else ' is'} recompiled Ampere code: built for sm_90 or later, "
            "with mma, ldmatrix or cp.async and none of the newer paths"
        )
    return {
        "schema_version": "1",
        "tool": {"name": "diagnose", "version": __version__},
        "packs": packs_entry([replace(pack, name="static") if pack in rules() else pack for pack in packs_for(asked)]),
        "ceilings": {"source": "datasheet", "gpu": None, "date": None},
        "devices": [],
        "runs": [_run(found)],
        "warnings": warnings,
        "partial": bool(problems),
        "program": {"findings": [], "gpu_time_us": None, "covered_share": None},
        "binary": _binary(found),
        "kernels": kernels,
    }


def _number(arch: str) -> int:
    return int(re.sub(r"\D", "", arch) or 0)


def _run(found: Binary) -> Part:
    empty = dict.fromkeys(
        ("ncu_version", "command", "clock_control", "cache_control", "replay", "passes_total", "rank", "host",
         "target_exit")
    )  # fmt: skip
    return {"source": str(found.path), **empty}


def _binary(found: Binary) -> Part:
    """What the file carries, and which GPUs run it."""
    carried: dict[tuple[str, str], list[int]] = {}
    for image in found.images:
        carried.setdefault((image.kind, image.arch), []).append(image.size)
    return {
        "host": found.host,
        "images": [
            {"kind": kind, "arch": arch, "count": len(sizes), "bytes": sum(sizes)}
            for (kind, arch), sizes in sorted(carried.items(), key=lambda item: (item[0][0], _number(item[0][1])))
        ],
        "runs_on": [
            {"arch": f"sm_{one.sm}", "how": one.how, "target": one.target, "lost": one.lost}
            for one in compatibility.table(found.images, (a.sm for a in catalogue.architectures()))
        ],
    }


def error_parts(error: DiagnoseError) -> list[Any]:
    """A DiagnoseError as plain data, for the pipe between a worker and its parent."""
    return [error.message, error.hint, error.exit_code]
