"""Where results go: stdout, files that are never overwritten, and lines on stderr."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diagnose.collect.preflight import check_writable
from diagnose.errors import DiagnoseError
from diagnose.render import format as fmt
from diagnose.report_file import is_report_name

if TYPE_CHECKING:
    from rich.console import Console

FORMATS = ("text", "json", "jsonl", "md", "sarif", "junit")
HTML_NAME = "diagnose-report.html"
_TEXT_WIDTH = 110  # columns where stdout is no terminal
_NARROWEST = 20  # columns: below that most words are cut


def one_line(text: str) -> str:
    """`text` on one line, with invisible characters written out."""
    return fmt.clean(re.sub(r"\s*[\r\n]\s*", " ", text.strip()))


def to_stderr(text: str) -> None:
    """One line on stderr; nothing happens where stderr is closed."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(one_line(text) + "\n")
        sys.stderr.flush()


def report_error(error: DiagnoseError) -> None:
    """The pair of lines that every failure ends in."""
    to_stderr(f"error: {error.message}")
    to_stderr(f"hint: {error.hint}")


def to_stdout(text: str) -> None:
    """`text` as UTF-8, whatever the locale."""
    buffer = getattr(sys.stdout, "buffer", None)
    if buffer is None:
        sys.stdout.write(text)
    else:
        sys.stdout.flush()
        buffer.write(text.encode("utf-8", "surrogateescape"))
    sys.stdout.flush()


def quiet_stdout() -> None:
    """Where nothing can be written to stdout any more (its reader has gone, its disk is full): what is still held for
    it goes nowhere, also at the interpreter's end.
    """
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def render(document: Mapping[str, Any], form: str, page: str | None = None) -> str:
    """The document in one of the formats but text; `page` is the address of the HTML report, for those that link."""
    if form == "json":
        from diagnose.render import jsonl

        return jsonl.render_json(document)
    if form == "jsonl":
        from diagnose.render import jsonl

        return jsonl.render(document)
    if form == "md":
        from diagnose.render import markdown

        return markdown.render(document, page)
    if form == "sarif":
        from diagnose.render import sarif

        return sarif.render(document, page)
    from diagnose.render import junit

    return junit.render(document)


def print_document(
    document: Mapping[str, Any], form: str, *, verbose: bool, color: bool, page: str | None = None
) -> bool:
    """The document on stdout; False where its reader went away before the end."""
    from diagnose.render import terminal

    if form == "text":
        return show(lambda console: terminal.render(document, console, verbose), color=color)
    return print_text(render(document, form, page))


def print_text(text: str) -> bool:
    """A text on stdout; False where its reader went away before the end."""
    try:
        to_stdout(text)
    except BrokenPipeError:
        quiet_stdout()
        return False
    return True


def show(draw: Callable[[Console], None], *, color: bool) -> bool:
    """What `draw` prints on a console, on stdout; False where its reader went away before the end."""
    from rich.console import Console

    class Pipe(Console):
        """rich ends the program with 1 when the reader of stdout has gone; the exit code is the diagnosis's."""

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="replace")  # a terminal without the sign of a class shows a question mark
    try:
        draw(Pipe(file=sys.stdout, no_color=not color or None, width=_width()))
        sys.stdout.flush()
    except BrokenPipeError:
        quiet_stdout()
        return False
    return True


def _width() -> int:
    """Columns of the text: COLUMNS where it says a number above 0, else the terminal's."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns):
        return max(int(columns), _NARROWEST)
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else _TEXT_WIDTH


def open_streams() -> None:
    """Puts the null device where the caller has closed stdin, stdout or stderr: no report is opened in their place."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is not None:
            continue
        with contextlib.suppress(OSError):
            null = os.open(os.devnull, os.O_RDWR)
            if null != number:
                os.dup2(null, number)
                os.close(null)
            setattr(sys, name, os.fdopen(number, "w" if number else "r", encoding="utf-8", closefd=False))


# --- files ---


@contextlib.contextmanager
def _scratch(path: Path, text: str) -> Iterator[Path]:
    """`text` in a complete file beside `path`."""
    try:
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    except OSError as error:
        raise DiagnoseError(
            f"cannot write to the folder {path.parent}: {error.strerror or error}",
            "diagnose -o DIR/report.html …    (names a folder that can be written)",
        ) from error
    scratch = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace", newline="\n") as file:
            file.write(text)
        mask = os.umask(0)
        os.umask(mask)
        scratch.chmod(0o666 & ~mask)
        yield scratch
    except OSError as error:
        raise DiagnoseError(
            f"cannot write {path}: {error.strerror or error}", f"df -h {path.parent}    (is the disk full?)"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            scratch.unlink()


def _is_special(path: Path) -> bool:
    """Whether `path` is a device, a pipe or a link: such a name is written to, never replaced by a file."""
    return path.is_symlink() or (path.exists() and not path.is_file())


def write_file(path: Path, text: str) -> None:
    """Replaces `path` by a complete file."""
    if _is_special(path):
        try:
            path.write_text(text, "utf-8", errors="replace")
        except OSError as error:
            raise DiagnoseError(f"cannot write {path}: {error.strerror or error}", f"ls -l {path}") from error
        return
    with _scratch(path, text) as scratch:
        scratch.replace(path)


def write_new(path: Path, text: str) -> Path:
    """Writes `text` to `path`, or to the next free number where that was taken meanwhile; returns the name used."""
    with _scratch(path, text) as scratch:
        number = 1
        while True:
            name = path if number == 1 else path.with_name(f"{path.stem}-{number}{path.suffix}")
            try:
                os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
            except FileExistsError:
                number += 1
                continue
            scratch.replace(name)
            return name


def check_target(path: Path) -> None:
    """Raises where a file of that name cannot be written."""
    if path.is_dir():
        raise DiagnoseError(f"{path} is a folder, not a file", f"name a file in it: {path / 'report.json'}")
    if not path.parent.is_dir():
        raise DiagnoseError(f"the folder {path.parent} does not exist", f"mkdir -p {path.parent}")
    if is_report_name(path.name):
        raise DiagnoseError(f"{path} names a report, which would be lost", f"name another file: {path}.out")
    if not _is_special(path):
        check_writable(path.parent)


def check_apart(files: Mapping[str, Path | None]) -> None:
    """Raises where two options (the keys) name one file: the later one would be written over the earlier."""
    owners: dict[Path, str] = {}
    for option, path in files.items():
        if path is None or _is_special(path):
            continue
        if (owner := owners.setdefault(path.resolve(), option)) != option:
            raise DiagnoseError(f"{owner} and {option} both name {path}", f"name another file: {option} {path}.other")


def check_json(path: Path) -> None:
    """Raises where no JSON can be written to that name, and where it would replace a file that is something else."""
    check_target(path)
    if _is_special(path):
        return
    try:
        with path.open("rb") as file:
            head = file.read(1)
    except FileNotFoundError:
        return
    except OSError as error:
        raise DiagnoseError(f"cannot write {path}: {error.strerror or error}", f"ls -l {path}") from error
    if head not in (b"", b"{"):
        raise DiagnoseError(f"{path} exists and is no JSON: it would be lost", f"name another file: {path}.json")
