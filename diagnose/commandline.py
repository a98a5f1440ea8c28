"""Reads the command line before typer does: a verb, recorded reports, or a program with its own arguments."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from diagnose.errors import DiagnoseError
from diagnose.report_file import PACKED_SUFFIXES, is_report_name
from diagnose.report_session import MAGIC

VERBS = (
    "static", "doctor", "ceilings", "kernels", "rules", "facts", "compare", "ablate", "open",
    "check-races", "descriptor",
)  # fmt: skip
PROGRAM_VERBS = ("check-races",)  # what follows their options is a program with words of its own
SUBVERBS: Mapping[str, tuple[str, ...]] = {
    "kernels": ("list", "build", "run"),
    "rules": ("list", "explain", "new", "test", "accuracy", "schema"),
}
KERNEL_PREFIX = "kernel:"
_FILES = ("--json", "-o", "--output", "--target-output")
_PACKED_MAGIC = (b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd", b"\x1f\x8b")


@dataclass(frozen=True)
class Call:
    """What is asked for: `verb` None for the main job. `arguments` are for typer, with options where it takes them."""

    verb: str | None
    arguments: tuple[str, ...]


def is_report(word: str) -> bool:
    """Whether a target is a recorded report or a folder of them, by name or by its first bytes."""
    path = Path(word)
    if path.is_dir():
        try:
            holds = any(is_report_name(entry.name) for entry in path.iterdir())
        except OSError:
            holds = True
        # A folder is no program; a bare name may be one on PATH.
        return holds or "/" in word or shutil.which(word) is None
    if is_report_name(word):
        return True
    if not path.is_file():  # a pipe would be waited for
        return False
    try:
        with path.open("rb") as file:
            head = file.read(8)
    except OSError:
        return False
    return head.startswith(MAGIC) or (head.startswith(_PACKED_MAGIC) and word.endswith(PACKED_SUFFIXES))


@dataclass(frozen=True)
class OptionNames:
    """The options of the main job and of each verb: name -> whether a value follows."""

    job: Mapping[str, bool]
    verbs: Mapping[str, bool]

    def takes_value(self, name: str) -> bool | None:
        """None for an option that nothing here has."""
        return self.job.get(name, self.verbs.get(name))


def _near(word: str, known: Sequence[str]) -> str:
    from diagnose.packfile import nearest  # late: it imports yaml

    return nearest(word, known)


def _unknown(word: str, names: OptionNames) -> DiagnoseError:
    known = [*names.job, *names.verbs]
    if os.path.lexists(word):
        return DiagnoseError(
            f"{word} is taken for an option, because it begins with a dash", f"diagnose {shlex.quote(f'./{word}')}"
        )
    return DiagnoseError(
        f"there is no option {word}{_near(word, known)}",
        "diagnose --help    (options of a program's own come after the program)",
    )


def _option(arguments: Sequence[str], at: int, names: OptionNames) -> int:
    """How many words the option at `at` takes, its value included."""
    word = arguments[at]
    name, equals, _ = word.partition("=")
    takes = names.takes_value(name)
    if takes is None and not word.startswith("--") and len(word) > 2:
        takes = names.takes_value(word[:2])  # -oFILE
        if takes is None:
            raise _unknown(word, names)
        return 1
    if takes is None:
        raise _unknown(name, names)
    return 2 if takes and not equals else 1


def _is_option(word: str) -> bool:
    return word.startswith("-") and word != "-"


def read(arguments: Sequence[str], names: OptionNames) -> Call:
    """Splits the words. Raises for an option before the target that does not exist, and for an empty value."""
    call = _split(arguments, names)
    for word, following in pairwise((*call.arguments, "--")):
        if word == "--":
            break
        name, equals, value = word.partition("=")
        if names.takes_value(name):
            _check_value(name, value if equals else following)
    own = call.arguments.index("--") if "--" in call.arguments else len(call.arguments)
    if "" in (*call.arguments[:own], *call.arguments[own + 1 : own + 2]):  # as a path it is the current folder
        raise DiagnoseError(
            "a word of the command line is empty: ''", "diagnose --help    (is a shell variable not set?)"
        )
    return call


def _check_value(name: str, value: str) -> None:
    """What every option refuses: nothing (of an unset shell variable: the option would silently do nothing), and `-`
    as the name of a file."""
    if not value:
        raise DiagnoseError(f"{name} '' is empty", f"give {name} a value, or leave it out")
    if value == "-" and name in _FILES:
        hint = (
            "--format json    (puts that on stdout)" if name == "--json" else f"{name} ./-    (for a file of that name)"
        )
        raise DiagnoseError(f"{name} - names no file: stdout carries what --format says", hint)


def _split(arguments: Sequence[str], names: OptionNames) -> Call:
    at = 0
    while at < len(arguments) and arguments[at] != "--" and _is_option(arguments[at]):
        at += _option(arguments, at, names)
    options, rest = list(arguments[:at]), list(arguments[at:])
    if not rest:
        return Call(None, tuple(options))
    if rest[0] == "--":
        rest = rest[1:]
        return Call(None, (*options, "--", *rest))
    word = rest[0]
    if word in PROGRAM_VERBS:
        return Call(word, _for_program(word, options, rest[1:], names))
    if word in VERBS:
        return Call(word, _for_verb(word, options, rest[1:], names))
    if is_report(word) or word.startswith(KERNEL_PREFIX):
        return Call(None, (*options, *rest))
    meant = _near(word, VERBS) if word.isalpha() else ""
    if meant and shutil.which(word) is None and not Path(word).exists():
        raise DiagnoseError(f"there is no command and no program {word!r}{meant}", "diagnose --help")
    return Call(None, (*options, "--", *rest))


def _for_program(verb: str, options: list[str], rest: list[str], names: OptionNames) -> tuple[str, ...]:
    """The verb with its options, then the program with its own words untouched."""
    at = 0
    while at < len(rest) and rest[at] != "--" and _is_option(rest[at]):
        at += _option(rest, at, names)
    program = rest[at + 1 :] if rest[at : at + 1] == ["--"] else rest[at:]
    return (verb, *options, *rest[:at], *(("--", *program) if program else ()))


def _for_verb(verb: str, options: list[str], rest: list[str], names: OptionNames) -> tuple[str, ...]:
    """The verb's words with its sub-verb first, wherever the options stand."""
    words: list[str] = []
    at = 0
    while at < len(rest) and rest[at] != "--":
        step = _option(rest, at, names) if _is_option(rest[at]) else 1
        (options if _is_option(rest[at]) else words).extend(rest[at : at + step])
        at += step
    tail = rest[at:]
    head = [words.pop(0)] if verb in SUBVERBS and words and words[0] in SUBVERBS[verb] else []
    if verb in SUBVERBS and not head:
        said = f"{words[0]!r} is no part of `diagnose {verb}`{_near(words[0], SUBVERBS[verb])}" if words else ""
        if said or not any(option in ("--help", "-h") for option in options):
            raise DiagnoseError(
                said or f"`diagnose {verb}` needs one of {', '.join(SUBVERBS[verb])}",
                f"diagnose {verb} {SUBVERBS[verb][0]}    (or: {', '.join(SUBVERBS[verb][1:])})",
            )
    return (verb, *head, *options, *words, *tail)
