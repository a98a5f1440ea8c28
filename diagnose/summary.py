"""What the Python API hands back: a diagnosis that shows itself in a notebook, in rich and as text."""

from __future__ import annotations

import html as markup
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diagnose.model import Profile
from diagnose.render import format as fmt
from diagnose.render import ranks as rank_table
from diagnose.render import view

if TYPE_CHECKING:
    import pandas
    from rich.console import Console, ConsoleOptions
    from rich.text import Text

SHOWN = 15  # kernels of an inline table: what fits on a screen; the frames and the page have all
_TEXT_WIDTH = 120


@dataclass(frozen=True, repr=False)
class Summary:
    """A diagnosis. `document` is the JSON document of `--format json`, `profile` what was read.

    `parameters` has one entry a kernel of the document, in its order: what the sweep that launched it was given
    (`from_nsight`); it is empty where there was no sweep.
    """

    document: dict[str, Any]
    profile: Profile
    parameters: tuple[Mapping[str, Any], ...] = ()

    @property
    def kernels(self) -> pandas.DataFrame:
        """One row a kernel: the sweep's parameters, then name, time in µs, share, verdict, class, stake, gain."""
        from diagnose import tables

        found = tables.verdicts_table(self.document)
        for place, name in enumerate(dict.fromkeys(key for entry in self.parameters for key in entry)):
            found.insert(place, name, [entry.get(name) for entry in self.parameters])
        return found

    @property
    def metrics(self) -> pandas.DataFrame:
        """Kernels by ncu's metrics, in ncu's base units (`attrs["units"]`); not measured is NaN."""
        from diagnose import tables

        return tables.metrics_table(self.profile)

    def save(self, path: str | Path) -> Path:
        """Writes the HTML report; an existing file is never overwritten. Returns the path that was taken."""
        from diagnose import output
        from diagnose.render import html

        return output.write_new(Path(path), html.render(self.document))

    def _ansi(self, width: int, color: bool) -> str:
        from rich.console import Console

        from diagnose.render import terminal

        buffer = io.StringIO()
        terminal.render(self.document, Console(file=buffer, width=width, force_terminal=color, no_color=not color))
        return buffer.getvalue()

    def __str__(self) -> str:
        return self._ansi(_TEXT_WIDTH, color=False)

    __repr__ = __str__  # what a shell without HTML shows

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        from rich.text import Text

        yield Text.from_ansi(self._ansi(options.max_width, color=console.color_system is not None), end="")

    def _repr_html_(self) -> str:
        return _html(self.document, self.parameters)


def read(*reports: str | Path, kernel: str | None = None, rules: Sequence[str | Path] = ()) -> Summary:
    """Diagnoses recorded reports, or folders of them, together: ranks side by side. `rules` are folders of packs."""
    from diagnose import api

    options = api.Options(kernel=kernel, rules=tuple(map(Path, rules)))
    result = api.diagnose_reports([Path(report) for report in reports], options)
    return Summary(result.document, result.profile)


def _cell(text: object, tag: str = "td", right: bool = False) -> str:
    style = "text-align:right;white-space:nowrap" if right else "text-align:left;vertical-align:top"
    return f'<{tag} style="{style}">{markup.escape(fmt.shorten(str(text), 240))}</{tag}>'


def _table(head: Sequence[str], rows: Sequence[Sequence[tuple[object, bool]]]) -> str:
    top = "".join(_cell(word, "th") for word in head)
    body = "".join("<tr>" + "".join(_cell(text, right=right) for text, right in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def _html(document: Mapping[str, Any], parameters: Sequence[Mapping[str, Any]]) -> str:
    """A table that takes its colours from the notebook; all text is escaped."""
    every = view.kernels(document)
    names = list(dict.fromkeys(key for entry in parameters for key in entry))
    # A sweep is read in its order, every other run by time.
    by_id = {
        str(kernel["id"]): entry for kernel, entry in zip(document["kernels"], parameters, strict=bool(parameters))
    }
    found = sorted(every, key=lambda kernel: kernel.position) if names else view.groups(every)
    rows: list[list[tuple[object, bool]]] = []
    for kernel in found[:SHOWN]:
        swept = by_id.get(kernel.id, {})
        row: list[tuple[object, bool]] = [(swept.get(name, ""), True) for name in names]
        row += [
            (kernel.label, False),
            (fmt.duration(kernel.total_us) if kernel.total_us is not None else "not measured", True),
            (f"{kernel.sign} {kernel.title} ({kernel.word})", False),
            (kernel.win + (f" ({kernel.win_range})" if kernel.win_range else ""), True),
            (kernel.reason, False),
        ]
        rows.append(row)
    parts = [f"<p>{markup.escape(view.summary(document, every))}</p>"]
    parts.append(_table([*names, "Kernel", "GPU time", "Verdict", "Can win", "Why"], rows))
    if len(found) > SHOWN:
        parts.append(f"<p>and {len(found) - SHOWN} more, in <code>.kernels</code></p>")
    compared = rank_table.table(document)
    if compared is not None:
        lines = [
            [(name, False), *((cell, True) for cell in cells), (told, False)] for name, cells, told in compared.rows
        ]
        parts.append(f"<p>{markup.escape(compared.summary)}</p>")
        parts.append(_table(["Kernel", *compared.columns, "What it says"], lines[:SHOWN]))
    warnings = view.texts(document.get("warnings"))
    if warnings:
        items = "".join(f"<li>{markup.escape(fmt.shorten(text, 300))}</li>" for text in warnings[:10])
        parts.append(f"<details><summary>{view.plural(len(warnings), 'warning')}</summary><ul>{items}</ul></details>")
    return "".join(parts)
