"""Runs nvdisasm on a cubin and reads its text: one `Code` a kernel, with labels, branch targets and source lines."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import tempfile
import threading
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from diagnose.collect.find import cuda_tool_version, find_cuda_tool
from diagnose.errors import EXIT_NOTHING_MEASURED, EXIT_USAGE, DiagnoseError

TIMEOUT_S = 300.0
MEMORY_BYTES = 8 << 30
_MAX_LINE = 65536
_MOST_FUNCTIONS = 10_000  # an argument has at most 128 KB; beyond, everything is printed and the caller chooses
_TARGET = re.compile(r"^\s*\.target\s+(sm_\d+[a-z]?)")
_SECTION = re.compile(r'^\s*\.section\s+"?\.text\.(.+?)"?,\s*"')
_LABEL = re.compile(r"^([.$\w]\S*):\s*$")
# /*00a0*/ @!P0 BRA `(.L_x_3) ;   and a note (*"…"*) before or behind the semicolon
_INSTRUCTION = re.compile(
    r"\s*/\*([0-9a-f]{4,})\*/\s+((?:@(!?U?P[0-9T]+)\s+)?([A-Z][A-Z0-9a-z_]*)([.A-Za-z0-9_]*)[^;]*?)\s*(?:\(\*([^;]*))?;(.*)"
)
_BRANCH = re.compile(r"`\(([^)]*)\)")
_TARGETS = re.compile(r'BRANCH_TARGETS ([^"]*)"')
_FILE = re.compile(r'//## File "([^"]*)", line (\d+)')


class Instruction(NamedTuple):
    """One instruction: offset in the section, text without the final `;`, opcode with modifiers, predicate (`!P0`).

    `targets` are labels that a branch names; `spill` is the compiler's own mark on spill code.
    """

    pc: int
    text: str
    opcode: str
    base: str
    predicate: str | None
    targets: tuple[str, ...] = ()
    spill: bool = False
    file: str | None = None
    line: int | None = None

    @property
    def never(self) -> bool:
        """Whether its predicate is always false: the compiler's padding, not code that runs."""
        return self.predicate == "!PT"


@dataclass(frozen=True)
class Code:
    """The code of one kernel (called functions may stand behind it). `labels` map to instruction indexes."""

    name: str
    arch: str
    instructions: tuple[Instruction, ...]
    labels: Mapping[str, int] = field(default_factory=dict)

    @property
    def has_spill_marks(self) -> bool:
        """Whether the compiler marked spill code (CUDA 12.8 on does)."""
        return any(instruction.spill for instruction in self.instructions)


def find_nvdisasm() -> Path:
    """The nvdisasm to use, or the error that says how to get one."""
    found = find_cuda_tool("nvdisasm")
    if found is None:
        raise DiagnoseError(
            "nvdisasm was not found, so machine code cannot be read",
            "pip install nvidia-cuda-nvdisasm",
            EXIT_NOTHING_MEASURED,
        )
    return found


def _tool_error(stderr: str, source: str, nvdisasm: Path) -> DiagnoseError:
    version = cuda_tool_version(nvdisasm) or "?"
    text = " ".join(stderr.split())[:300] or "no message"
    old = re.search(r'architecture "?(SM\d+\w*)"? is deprecated', text, re.IGNORECASE)
    if old:
        return DiagnoseError(
            f"{source} is code for {old[1].lower().replace('sm', 'sm_')}, which nvdisasm {version} no longer reads",
            "put the nvdisasm of CUDA 12 first on PATH (CUDA 13 dropped architectures before sm_75)",
            EXIT_NOTHING_MEASURED,
        )
    if re.search(r"unknown|unsupported|not supported|invalid.*arch|architecture", text, re.IGNORECASE):
        return DiagnoseError(
            f"nvdisasm {version} cannot read {source}: {text}",
            "pip install --upgrade nvidia-cuda-nvdisasm    (the code may be for a newer architecture)",
            EXIT_NOTHING_MEASURED,
        )
    return DiagnoseError(f"nvdisasm {version} cannot read {source}: {text}", "copy or build the file again", EXIT_USAGE)


def disassemble(
    cubin: bytes,
    source: str,
    *,
    functions: Collection[int] | None = None,
    timeout_s: float = TIMEOUT_S,
    memory_bytes: int = MEMORY_BYTES,
    nvdisasm: Path | None = None,
) -> Iterator[Code]:
    """Every code section of the cubin, as nvdisasm prints it; with `functions`, only those symbols' sections.

    `source` names the cubin in errors. The text is read as it comes, so memory holds one kernel at a time.
    """
    tool = nvdisasm or find_nvdisasm()
    command = [str(tool), "-c", "-g"]
    if functions is not None and len(functions) <= _MOST_FUNCTIONS:
        command += ["-fun", ",".join(str(index) for index in sorted(functions))]
    with tempfile.TemporaryDirectory(prefix="diagnose-sass-") as folder:
        path = Path(folder) / "image.cubin"
        path.write_bytes(cubin)
        errors = Path(folder) / "errors"
        with errors.open("wb") as stderr:
            process = subprocess.Popen(
                [*command, str(path)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                encoding="utf-8",
                errors="replace",
                cwd=folder,
                env={**os.environ, "LC_ALL": "C"},
            )
        limit_memory(process.pid, memory_bytes)
        late = threading.Event()

        def stop() -> None:
            late.set()
            process.kill()

        timer = threading.Timer(timeout_s, stop)
        timer.daemon = True
        timer.start()
        try:
            assert process.stdout is not None
            yield from read_text(process.stdout)
            status = process.wait()
        finally:
            timer.cancel()
            if process.poll() is None:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()
        if late.is_set():
            raise DiagnoseError(
                f"nvdisasm did not finish {source} within {timeout_s:g} s",
                "choose kernels or an architecture, or allow more time: --kernel REGEX, --arch sm_90a, --timeout S",
                EXIT_NOTHING_MEASURED,
            )
        if status != 0:
            raise _tool_error(errors.read_text("utf-8", "replace"), source, tool)


def limit_memory(pid: int, memory_bytes: int) -> None:
    """Bounds a child's address space, where the system can."""
    if hasattr(resource, "prlimit"):
        try:
            resource.prlimit(pid, resource.RLIMIT_AS, (memory_bytes, memory_bytes))
        except (OSError, ValueError):
            return


def read_text(lines: Iterator[str] | Collection[str]) -> Iterator[Code]:
    """Kernels from the lines that `nvdisasm -c` prints."""
    arch, name = "", None
    instructions: list[Instruction] = []
    labels: dict[str, int] = {}
    file: str | None = None
    line_number: int | None = None
    for raw in lines:
        line = raw[:_MAX_LINE]
        match = _INSTRUCTION.match(line)
        if match is not None:
            if name is None:
                continue
            pc, text, predicate, base, modifiers, note, rest = match.groups()
            targets: tuple[str, ...] = ()
            spill = False
            if "`(" in text:
                targets = tuple(_BRANCH.findall(text))
            if note or '"' in rest:
                note = f"{note or ''}{rest}"
                listed = _TARGETS.search(note)
                if listed is not None:
                    targets = tuple(part.strip() for part in listed[1].split(","))
                spill = "SpillRefill" in note
            opcode = base + modifiers if modifiers else base
            instructions.append(
                Instruction(int(pc, 16), text, opcode, base, predicate, targets, spill, file, line_number)
            )
            continue
        if "//## File" in line:
            place = _FILE.search(line)
            if place is not None:
                file, line_number = place[1], int(place[2])
            continue
        label = _LABEL.match(line)
        if label is not None:
            labels.setdefault(label[1], len(instructions))
            continue
        section = _SECTION.match(line)
        if section is not None:
            if name is not None:
                yield Code(name, arch, tuple(instructions), labels)
            name, instructions, labels, file, line_number = section[1], [], {}, None, None
            continue
        if ".section\t" in line and name is not None:
            yield Code(name, arch, tuple(instructions), labels)
            name, instructions, labels = None, [], {}
            continue
        target = _TARGET.match(line)
        if target is not None:
            arch = target[1]
    if name is not None:
        yield Code(name, arch, tuple(instructions), labels)
