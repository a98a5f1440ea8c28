"""Writes docs/articles.md: every heading and every table row of the two articles, and where it lives in this project.

python tests/gen_articles.py            writes the file
python tests/gen_articles.py --check    says whether it is up to date

The headings with their references are in docs/articles.yaml. Tags that stand elsewhere are joined: `article:` of rules
and studies by the decision table, `articles` of the advisors, the figures of tests/data/article_figures.yaml, and
comments `article: FILE#HEADING` in pages.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import typer
import yaml

from diagnose import facts, operators, table
from diagnose.advisors import ADVISORS
from diagnose.api import Options, load_rules
from diagnose.cli import job_app, verbs_app
from diagnose.collect.kernels import load_kernels
from diagnose.gpus import catalogue
from diagnose.sass import pathtable
from diagnose.static import migration_rules

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "docs" / "articles.yaml"
TARGET = ROOT / "docs" / "articles.md"
FIGURES = ROOT / "tests" / "data" / "article_figures.yaml"
STUDIES = ROOT / "rules" / "studies"
FILES = {"hardware": "000_3ce42bb8a7855e69", "async": "002_81d68bc01aff1bfb"}  # the names that the figures use
GPU = ("NVIDIA H200", 90)  # whose ceilings are shipped
_TAG = re.compile(r"<!-- article: (\S+)#(.+?) -->")
# Words that stand for something of the user's in a command that cannot run here.
PLACEHOLDERS = ("FILE", "PROGRAM", "REPORT", "BEFORE", "AFTER", "FILE.json")


@dataclass
class Row:
    """The first cell of a table's row, and where it lives."""

    cell: str
    at: list[str]


@dataclass
class Section:
    """A heading of an article; `under` tells headings of equal words apart."""

    file: str
    heading: str
    under: str | None
    says: str
    at: list[str]
    rows: list[Row] = field(default_factory=list)


@cache
def content() -> tuple[Mapping[str, Any], ...]:
    """The articles of the data file as they are."""
    return tuple(yaml.safe_load(DATA.read_text("utf-8"))["articles"])


def sections() -> list[Section]:
    """Every heading with the references of the data file and of the tags elsewhere, each once."""
    found = [
        Section(
            article["file"],
            entry["h"],
            entry.get("under"),
            entry["says"],
            list(entry["at"]),
            [Row(row[0], list(row[1:])) for row in entry.get("rows", ())],
        )
        for article in content()
        for entry in article["sections"]
    ]
    for file, heading, ref in _tags():
        section = next((one for one in found if (one.file, one.heading) == (file, heading)), None)
        if section is None:
            raise ValueError(f"{ref} names {file}#{heading}, which is no heading of docs/articles.yaml")
        section.at.append(ref)
    of_rows = dict(_row_tags())
    for section in found:
        for row in section.rows:
            row.at += of_rows.get(plain(row.cell), [])
            row.at = list(dict.fromkeys(row.at))
        section.at = list(dict.fromkeys(section.at))
    return found


def plain(cell: str) -> str:
    """A cell without the marks of formulas, and up to its first comma where the table shortens it."""
    return cell.replace("$", "").removesuffix("，不同数据 pattern 波动").strip()


def _tags() -> Iterator[tuple[str, str, str]]:
    """(file, heading, reference) of the tags that stand elsewhere."""
    for advisor in ADVISORS:
        for tag in advisor.articles:
            file, _, heading = tag.partition("#")
            yield file, heading, f"advisor:{advisor.name}"
    for figure in yaml.safe_load(FIGURES.read_text("utf-8"))["figures"]:
        yield FILES[figure["article"]], figure["heading"], f"page:docs/ceilings.md#{slug(figure['heading'])}"
    for page in sorted((ROOT / "docs").glob("*.md")):
        if page != TARGET:
            for tag in _TAG.finditer(page.read_text("utf-8")):
                yield tag[1], tag[2], f"page:docs/{page.name}"


def _row_tags() -> Iterator[tuple[str, list[str]]]:
    """(row of the decision table, the rules and studies that encode it)."""
    found = table.read(load_rules(Options()))
    for row in found["observations"]:
        guards = row.get("guards", ())
        yield row["row"], [f"rule:{name}" for name in (*row["rules"], *guards)]
    for row in found["ablations"]:
        own = [path.stem for path in sorted(STUDIES.glob("*.yaml")) if _article(path) == row["variable"]]
        yield row["variable"], [f"study:{name}" for name in own]


def _article(study: Path) -> str | None:
    article: str | None = yaml.safe_load(study.read_text("utf-8")).get("article")
    return article


# --- references ---


def slug(heading: str) -> str:
    """The anchor that GitHub gives a heading."""
    kept = re.sub(r"[^\w\- ]", "", heading.strip().lower().replace("`", ""))
    return kept.replace(" ", "-")


@cache
def _anchors(path: str) -> frozenset[str]:
    text = (ROOT / path).read_text("utf-8")
    return frozenset(slug(line.lstrip("#")) for line in text.splitlines() if re.match(r"#+ ", line))


@cache
def _names(kind: str) -> frozenset[str]:
    if kind == "rule":
        return frozenset(rule.id for rule in load_rules(Options())[0].rules)
    if kind == "move":
        return frozenset(rule.id.rpartition("/")[2] for rule in migration_rules()[0].rules)
    if kind == "fact":
        return frozenset(facts.CATALOGUE)
    if kind == "study":
        return frozenset(path.stem for path in STUDIES.glob("*.yaml"))
    if kind == "kernel":
        return frozenset(load_kernels(ROOT / "kernels"))
    if kind == "advisor":
        return frozenset(advisor.name for advisor in ADVISORS)
    if kind == "operator":
        return frozenset(operators.titles())
    if kind == "path":
        return frozenset(entry.path for entry in pathtable.entries())
    if kind == "ceiling":
        known = catalogue.ceilings(catalogue.product(*GPU))
        return frozenset(name for name, one in known.items() if one is not None)
    raise ValueError(f"{kind!r} is no kind of reference")


def _gpu(name: str) -> str | None:
    product, _, what = name.partition(".")
    gpu = next((one for one in catalogue.products() if one.id == product), None)
    if gpu is None:
        return "no such GPU"
    if what and gpu.peaks.get(what, getattr(gpu, what, None)) is None:
        return f"{product} has no {what}"
    return None


def _arch(name: str) -> str | None:
    sm, _, what = name.partition(".")
    arch = catalogue.architecture(int(sm))
    value = arch.tensor.get(what, arch.rates.get(what, getattr(arch, what, None)))
    return None if arch.known and value is not None else f"sm_{sm} has no {what}"


def command_words(command: str) -> list[str]:
    """The words of a command. Raises ValueError for a verb or an option that does not exist."""
    words = command.split()
    verb: Any = typer.main.get_command(verbs_app)
    rest = words
    if words[0].startswith("-"):  # the main job
        verb = typer.main.get_command(job_app)
    else:
        while commands := getattr(verb, "commands", None):
            if rest[0] not in commands:
                raise ValueError(f"{rest[0]} is no command")
            verb, rest = commands[rest[0]], rest[1:]
    options = {name for parameter in verb.params for name in (*parameter.opts, *parameter.secondary_opts)}
    for word in rest:
        if word.startswith("-") and word not in options:
            raise ValueError(f"{word} is no option of {verb.name}")
    return words


def problem(ref: str) -> str | None:
    """What is wrong with a reference; None where what it names exists."""
    kind, _, name = ref.partition(":")
    if kind == "page":
        path, _, anchor = name.partition("#")
        if not (ROOT / path).is_file():
            return "no such page"
        return f"{path} has no heading {anchor}" if anchor and anchor not in _anchors(path) else None
    if kind == "file":
        return None if (ROOT / name).is_file() else "no such file"
    if kind == "gpu":
        return _gpu(name)
    if kind == "arch":
        return _arch(name)
    if kind == "command":
        try:
            command_words(name)
        except ValueError as error:
            return str(error)
        return None
    try:
        return None if name in _names(kind) else f"no such {kind}"
    except ValueError as error:
        return str(error)


# --- the page ---


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


def _shown(ref: str) -> str:
    kind, _, name = ref.partition(":")
    if kind == "page":
        path = name.removeprefix("docs/")
        return f"[{path.partition('#')[0]}]({path})"
    if kind == "file":
        return f"[{name.rpartition('/')[2]}](../{name})"
    if kind == "rule":
        return f"rule [{name}](rules/{name}.md)"
    if kind == "move":
        return f"note [{name}](rules/migration-{name}.md)"
    if kind == "study":
        return f"study `{name}`"
    if kind == "command":
        return f"`diagnose {name}`"
    return f"{kind} `{name}`"


def _where(refs: list[str]) -> str:
    return "; ".join(_shown(ref) for ref in refs)


def page() -> str:
    """The file's text."""
    lines = ["# Where each idea of the two articles lives", ""]
    intro = (
        "Written by `tests/gen_articles.py` from `docs/articles.yaml` and from the tags in rules, studies, advisors, "
        "figures and pages; a test keeps it up to date and fails when a heading or a row has no place, or when a place "
        "does not exist. Headings and first cells are the articles' own short titles; the rest is in our words. "
        "`diagnose rules explain RULE`, `diagnose facts`, `diagnose ablate --list`, `diagnose kernels list` and "
        "`diagnose ceilings` show what is named here; advisors and operators stand in a report (`diagnose REPORT`)."
    )
    lines += [*textwrap.wrap(intro, 150), ""]
    every = sections()
    for article in content():
        own = [section for section in every if section.file == article["file"]]
        rows = sum(len(section.rows) for section in own)
        lines += [f"## {article['title']}", ""]
        lines += [f"`{article['file']}`: {len(own)} headings, {rows} rows of tables.", ""]
        lines += ["| heading | in short | where |", "| --- | --- | --- |"]
        for section in own:
            heading = section.heading + (f" ({section.under.partition('：')[0]})" if section.under else "")
            lines.append(f"| **{_escaped(heading)}** | {_escaped(section.says)} | {_where(section.at)} |")
            lines += [f"| ↳ {_escaped(row.cell)} | | {_where(row.at)} |" for row in section.rows]
        lines.append("")
    lines += ["## Operators", ""]
    lines += ["`diagnose/operators.yaml`; see [staircase.md](staircase.md#the-operator).", ""]
    lines += ["| family | what Hopper can bring | what limits it | saves |", "| --- | --- | --- | --- |"]
    for one in operators.families():
        saves = ", ".join(one.saves)
        lines.append(f"| `{one.id}`: {one.title} | {_escaped(one.brings)} | {_escaped(one.limits)} | {saves} |")
    return "\n".join(lines) + "\n"


def stale() -> bool:
    """Whether the file differs from what it should hold."""
    return not TARGET.is_file() or TARGET.read_text("utf-8") != page()


def main() -> int:
    if "--check" in sys.argv[1:]:
        if stale():
            print("docs/articles.md is not up to date: python tests/gen_articles.py")
            return 1
        return 0
    TARGET.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
