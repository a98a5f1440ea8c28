"""What can be known to fail before a program is run for minutes: the output folder, and the target itself."""

from __future__ import annotations

import difflib
import os
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from diagnose.collect.find import is_program
from diagnose.errors import DiagnoseError


def check_writable(folder: Path) -> None:
    """Raises where no file can be created in `folder`. It tries: permission bits say too little (root, mounts)."""
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".diagnose-"):
            pass
    except OSError as error:
        raise DiagnoseError(
            f"cannot write to the folder {folder}: {error.strerror or error}",
            "diagnose -o DIR/report.html …    (names a folder that can be written)",
        ) from error


# A report holds the module of each kernel: 0.2 to 10 MB a kernel of PyTorch, and 110 MB were seen for a handful.
LITTLE_SPACE = 256 << 20


def little_space(folder: Path) -> str | None:
    """A sentence where the disk may be too full for a report; ncu loses one that it cannot write to its end."""
    try:
        free = shutil.disk_usage(folder).free
    except OSError:
        return None
    if free >= LITTLE_SPACE:
        return None
    return f"only {free / 1e6:,.0f} MB are free in {folder}: a report that does not fit is lost (-o DIR/report.html)"


# What is done with a file that is given as a program and is none.
_PLAIN = {
    ".cu": "nvcc -O3 -lineinfo -o {1} {0} && diagnose ./{1}",
    ".cubin": "diagnose static {0}",
    ".fatbin": "diagnose static {0}",
    ".so": "diagnose static {0}",
    ".o": "diagnose static {0}",
    ".html": "diagnose open {0}",
    ".json": "diagnose compare {0} AFTER    (or: diagnose REPORT --baseline {0})",
    ".toml": "diagnose TARGET --config {0}",
}


def _numbered(path: Path, number: int) -> Path:
    return path if number == 1 else path.with_name(f"{path.stem}-{number}{path.suffix}")


def _candidates(html: Path | None, profile: Path | None) -> Iterator[tuple[Path | None, Path | None]]:
    number = 0
    while True:
        number += 1
        yield (html and _numbered(html, number), profile and _numbered(profile, number))


def free_paths(html: Path | None, profile: Path | None) -> tuple[Path | None, Path | None]:
    """Both names with the first number that is free for both: `diagnose-report-2.html`, `diagnose-report-2.ncu-rep`.

    The profile is created empty, so that a second `diagnose` in the same folder takes the next number; `collect`
    fills it, or removes it when nothing was measured. Raises where a folder cannot be written.
    """
    for folder in {path.parent for path in (html, profile) if path}:
        check_writable(folder)
    for free_html, free_profile in _candidates(html, profile):
        if free_html and os.path.lexists(free_html):
            continue
        if free_profile:
            try:
                reserve(free_profile)
            except FileExistsError:
                continue
        return free_html, free_profile
    raise AssertionError("the numbers do not end")


def reserve(path: Path) -> None:
    """Creates `path` empty; raises FileExistsError where it exists."""
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))


def _near(name: str, folder: Path) -> list[str]:
    try:
        names = [entry.name for entry in folder.iterdir() if is_program(entry)]
    except OSError:
        return []
    return difflib.get_close_matches(name, names, n=3, cutoff=0.6)


def _not_found(given: str) -> DiagnoseError:
    folder = Path(given).parent
    near = [os.path.join(folder, name) if os.sep in given else f"./{name}" for name in _near(Path(given).name, folder)]
    where = "" if os.sep in given else " on PATH or in this folder"
    hint = f"diagnose {near[0]}" if near else "diagnose --help    (a target is a program, a report or kernel:NAME)"
    if len(near) > 1:
        hint += f"    (also near: {', '.join(near[1:])})"
    return DiagnoseError(f"no program {given!r}{where}", hint)


def _head(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(256)
    except OSError:
        return b"\x7fELF"  # executable but not readable: the system may still run it


def _interpreter(head: bytes) -> str | None:
    words = head[2:].split(b"\n", 1)[0].split()
    return words[0].decode("utf-8", "replace") if words else None


def resolve_target(target: Sequence[str]) -> tuple[str, ...]:
    """The target as ncu is given it. A bare name is looked for on PATH, then in this folder.

    Raises where it does not exist, is a folder, may not be executed, or is a text file that the system cannot run.
    """
    if not target or not target[0]:
        raise DiagnoseError("no program to profile was named", "diagnose --help")
    given = target[0]
    if os.sep not in given:
        if shutil.which(given):
            return tuple(target)
        if not os.path.lexists(given):
            raise _not_found(given)
        program = f"./{given}"
    else:
        program = given
    path = Path(program)
    if path.is_dir():
        near = [f"{program.rstrip('/')}/{entry.name}" for entry in sorted(path.iterdir()) if is_program(entry)]
        raise DiagnoseError(f"{given!r} is a folder, not a program", f"diagnose {near[0] if near else 'PROGRAM'}")
    if not path.exists():
        raise _not_found(given)
    if not path.is_file():
        raise DiagnoseError(f"{given!r} is a device or a pipe, not a program", f"ls -l {shlex.quote(program)}")
    head = _head(path)
    if not os.access(path, os.X_OK):
        launcher = {".py": "python3", ".sh": "sh", ".pl": "perl", ".jl": "julia"}.get(path.suffix)
        plain = _PLAIN.get(path.suffix, "chmod +x {0}").format(shlex.quote(program), shlex.quote(path.stem))
        raise DiagnoseError(f"{given!r} is not executable", f"diagnose {launcher} {program}" if launcher else plain)
    if head.startswith(b"#!"):
        interpreter = _interpreter(head)
        if not interpreter or not is_program(Path(interpreter)):
            raise DiagnoseError(
                f"{given!r} names the interpreter {interpreter or ''!r}, which does not exist",
                f"diagnose python3 {program}    (names the interpreter on the command line)",
            )
    elif not head.startswith((b"\x7fELF", b"\xca\xfe\xba\xbe", b"MZ")):
        kind = "is empty" if not head else "is neither a binary for this system nor a script with a #! line"
        launcher = "python3" if path.suffix == ".py" else "sh"
        raise DiagnoseError(f"{given!r} {kind}", f"diagnose {launcher} {program}    (names what runs it)")
    return (program, *target[1:])
