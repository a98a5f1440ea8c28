"""The summary that a terminal shows: verdicts first, then the five longest kernels in detail."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from diagnose.render import format as fmt
from diagnose.render import provenance, view
from diagnose.render import ranks as rank_table
from diagnose.render.ablation import tested_by

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

DETAILED = 5
LISTED = 30
STYLES = {"implementation": "bold yellow", "fit": "bold magenta", "hardware": "bold green", "unknown": "bold"}
_ASCII = str.maketrans(
    {"▲": "^", "▼": "v", "◆": "*", "■": "#", "○": "o", "×": "x", "·": "-", "…": "...", "–": "-", "−": "-", "µ": "u"}
    | {"✓": "+", "≥": ">=", "≤": "<=", "≠": "!=", "→": "->", "✗": "-"}
)  # fmt: skip


class Page:
    """Writes lines to a console: wrapped with a hanging indent, and in ASCII where the console has nothing else."""

    def __init__(self, console: Console) -> None:
        from rich.text import Text

        self._console = console
        self._text = Text
        self._encoding = console.encoding or "utf-8"
        self._plain = not self._encoding.lower().startswith("utf")

    def _spell(self, words: str) -> str:
        words = fmt.clean(words, newlines=True)
        if self._plain:
            words = words.translate(_ASCII).encode(self._encoding, "backslashreplace").decode(self._encoding)
        return words

    def text(self, *parts: str | tuple[str, str]) -> Text:
        """A rich text of plain parts and (part, style) pairs; markup in names stays text."""
        line = self._text()
        for part in parts:
            words, style = part if isinstance(part, tuple) else (part, "")
            line.append(self._spell(words), style)
        return line

    def line(self, *parts: str | tuple[str, str], indent: int = 0) -> None:
        """One paragraph, indented by `indent`."""
        from rich.padding import Padding

        self._console.print(Padding(self.text(*parts), (0, 0, 0, indent), expand=False), highlight=False, markup=False)

    def item(self, label: str, *parts: str | tuple[str, str], indent: int = 2, width: int = 10) -> None:
        """A label in its own column and a paragraph beside it."""
        from rich.table import Table

        grid = Table.grid(padding=(0, 1))
        grid.add_column(width=width, no_wrap=True)
        grid.add_column(overflow="fold")
        grid.add_row(self.text((label, "dim")), self.text(*parts))
        from rich.padding import Padding

        self._console.print(Padding(grid, (0, 0, 0, indent), expand=False), highlight=False, markup=False)

    def show(self, grid: Table, indent: int = 0) -> None:
        """A table, indented by `indent`."""
        from rich.padding import Padding

        self._console.print(Padding(grid, (0, 0, 0, indent), expand=False), highlight=False, markup=False)

    def gap(self) -> None:
        """An empty line."""
        self._console.print()


def _ranks(page: Page, found: rank_table.Table) -> None:
    """The ranks side by side: the longest kernels, then all that they have in common."""
    from rich.table import Table

    grid = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_edge=False)
    grid.add_column(page.text("Kernel"), overflow="fold", ratio=2)
    for label in found.columns:
        grid.add_column(page.text(label), justify="right", no_wrap=True)
    grid.add_column(page.text("What it says"), overflow="fold", ratio=3)
    for name, cells, told in found.rows[: rank_table.SHOWN]:
        grid.add_row(*map(page.text, (name, *cells, told)))
    grid.add_row(*map(page.text, ("all in common", *found.totals, "")))
    page.line(("Ranks", "bold"))
    page.line(found.summary, indent=2)
    page.show(grid, indent=2)
    if len(found.rows) > rank_table.SHOWN:
        page.line(f"and {view.plural(len(found.rows) - rank_table.SHOWN, 'more kernel')}, each shorter", indent=2)
    for note in found.notes:
        page.line(note, indent=2)


def _verdict_line(page: Page, kernel: view.KernelView, width: int) -> None:
    style = STYLES[kernel.klass]
    figures = f"{fmt.duration(kernel.total_us):>12} {fmt.share(kernel.share):>7}" if kernel.total_us is not None else ""
    gain = kernel.win if kernel.win != fmt.NOT_MEASURED else "gain not measured"
    name = fmt.shorten(kernel.label, max(24, width - 40))
    launches = f"  n={kernel.launches:,}" if kernel.launches and kernel.launches > 1 else ""
    if rank := view.text(kernel.data.get("rank_label")):
        launches = f"  {rank}{launches}"
    page.line((f"{kernel.sign} ", style), (name, "bold"), launches)
    page.line(figures.strip() or "time not measured", "  ", (kernel.word, style), f"  {kernel.title}  ", (gain, "bold"),
              f" ({kernel.win_range})" if kernel.win_range else "", indent=2)  # fmt: skip
    page.line(kernel.reason, indent=2)


def _place(where: Mapping[str, Any]) -> str:
    file, line = view.text(where.get("file")), fmt.number(where.get("line"))
    found = f"{file}:{int(line)}" if file and line is not None else (file or "")
    sass = view.text(where.get("sass"))
    pieces = [found, " ".join(part for part in (view.text(where.get("pc")), sass) if part)]
    role, share = view.text(where.get("role")), fmt.number(where.get("share"))
    told = "  ".join(piece for piece in pieces if piece) or "no address"
    tail = ", ".join(part for part in (role, f"{fmt.share(share)} of samples" if share is not None else None) if part)
    return f"{told} ({tail})" if tail else told


def _finding(page: Page, finding: Mapping[str, Any], first: bool, verbose: bool, units: Mapping[str, str]) -> None:
    title = view.text(finding.get("title")) or str(finding.get("rule"))
    accepted = view.mapping(finding.get("accepted"))
    if accepted and not verbose:
        owner, until = fmt.shorten(accepted.get("owner"), 60), accepted.get("expires")
        page.item("accepted", f"{title} [{finding.get('rule')}], by {owner} until {until}")
        return
    if not first:
        severity = view.text(finding.get("severity")) or "note"
        page.item("also", f"{severity}: {title} [{finding.get('rule')}], {view.speedup_of(finding)}")
        if not verbose:
            return
    for position, evidence in enumerate(view.objects(finding.get("evidence"))):
        # A fact that a rule shows beside its conditions has no operator and decides nothing.
        mark = "·" if not evidence.get("op") else "?"
        holds = {True: "✓", False: "✗"}.get(evidence.get("holds"), mark)  # type: ignore[arg-type]
        page.item("evidence" if position == 0 else "", f"{holds} {evidence.get('fact')}: {fmt.condition(evidence)}")
    if verbose and view.text(finding.get("why")):
        page.item("why", finding["why"])
    for position, where in enumerate(view.objects(finding.get("where"))[: None if verbose else 3]):
        page.item("where" if position == 0 else "", _place(where))
    experiment = view.mapping(finding.get("next_experiment"))
    if view.text(experiment.get("change")):
        expect = view.expectation(experiment, units)
        page.item("next", (experiment["change"], "bold"), f"  Expect {expect}." if expect else "")
    if study := view.mapping(experiment.get("study")):
        page.item("tested by", tested_by(study))


def _details(page: Page, kernel: view.KernelView, verbose: bool) -> None:
    data = kernel.data
    launch = view.mapping(data.get("launch"))
    head = [f"grid {fmt.dims(launch.get('grid'))}", f"block {fmt.dims(launch.get('block'))}"] if launch else []
    if kernel.duration_us is not None:
        head.append(f"{fmt.duration(kernel.duration_us)} a launch")
    clock = fmt.number(data.get("clock_ghz"))
    if clock is not None:
        head.append(fmt.quantity(clock, "ghz"))
    rule = f"  [{kernel.rule or 'no rule'}]" + (f"  confidence {kernel.confidence}" if kernel.confidence else "")
    page.line((f"{kernel.sign} ", STYLES[kernel.klass]), (fmt.shorten(kernel.label, 100), "bold"), rule)
    if head:
        page.line((" · ".join(head), "dim"), indent=2)
    limits = [item for item in view.objects(data.get("limits")) if fmt.number(item.get("utilization")) is not None]
    limits.sort(key=lambda item: -(fmt.number(item.get("utilization")) or 0.0))
    for position, item in enumerate(limits[: None if verbose else 3]):
        page.item(
            "limits" if position == 0 else "",
            f"{fmt.resource(item.get('resource'))}: at least {fmt.duration(item.get('bound_us'))}, "
            f"{fmt.share(item.get('utilization'))} of {fmt.quantity(item.get('ceiling'), item.get('ceiling_unit'))} "
            f"({view.text(item.get('ceiling_source')) or 'source not recorded'})",
        )
    if not limits:
        page.item("limits", f"not measured ({view.HOW_TO_COLLECT['limits']})")
    for position, finding in enumerate(view.objects(data.get("findings"))):
        _finding(page, finding, position == 0, verbose, view.units(data))
    if verbose:
        told = [one for one in view.objects(data.get("advice")) if view.text(one.get("text"))]
        for position, one in enumerate(told):
            page.item("advice" if position == 0 else "", (f"{one.get('title')}: ", "bold"), one["text"])
        for position, rejected in enumerate(view.objects(data.get("rejected"))):
            reasons = "; ".join(f"{e.get('fact')} {fmt.condition(e)}" for e in view.objects(rejected.get("because")))
            page.item("rejected" if position == 0 else "", f"{rejected.get('rule')}: {reasons or 'no number'}")
    for section in view.objects(data.get("sections")):
        page.line((fmt.shorten(section.get("title"), 120), "bold"), f"  [{section.get('pack')}]", indent=2)
        if verbose and view.text(section.get("text")):
            page.line(section["text"], indent=2)
        for row in view.objects(section.get("rows")):
            value = fmt.quantity(row.get("value"), row.get("unit"))
            page.line(f"{fmt.shorten(row.get('label'), 80)}: {value}", indent=4)
    skipped, undeclared = view.not_evaluated(data)
    for position, entry in enumerate(skipped[: None if verbose else 3]):
        missing = ", ".join(view.texts(entry.get("missing"))) or "not named"
        how = view.text(entry.get("collect_with"))
        page.item(
            "not asked" if position == 0 else "",
            f"{entry.get('rule')}: {missing} not measured" + (f"; collect with {how}" if how else ""),
        )
    if not verbose and len(skipped) > 3:
        page.item("", f"and {len(skipped) - 3} more rules (--verbose lists them)")
    if undeclared:
        how = view.text(undeclared[0].get("collect_with")) or "--problem SPEC"
        names = ", ".join(str(entry.get("rule")) for entry in undeclared)
        page.item("undeclared", f"{names}: need what no counter shows; declare it with {how}")


def _static(page: Page, kernel: view.KernelView, verbose: bool) -> None:
    data = kernel.data
    page.line(
        (fmt.shorten(kernel.name, 100), "bold"), f"  {view.text(data.get('arch')) or 'architecture not recorded'}"
    )
    sizes = [
        f"{label} {fmt.quantity(data.get(key), unit)}"
        for key, label, unit in (
            ("registers", "registers", ""),
            ("shared_bytes", "shared", "byte"),
            ("stack_bytes", "stack", "byte"),
            ("spill_bytes", "spill", "byte"),
        )
    ]
    readings = view.mapping(data.get("readings"))
    changed = view.mapping(readings.get("setmaxnreg")) if readings is not None else None
    if changed is not None:
        words = [
            f"{word} {' and '.join(fmt.quantity(value, '') for value in values)}"
            for key, word in (("lowered_to", "down to"), ("raised_to", "up to"))
            if isinstance(values := changed.get(key), list) and values
        ]
        if words:
            sizes[0] += f" at launch, {', '.join(words)} by setmaxnreg"
    page.line((" · ".join(sizes), "dim"), indent=2)
    page.item("paths", ", ".join(view.texts(data.get("paths"))) or "none of the special data paths")
    for position, finding in enumerate(view.objects(data.get("findings"))):
        severity = view.text(finding.get("severity")) or "note"
        page.item(
            "finding" if position == 0 else "", f"{severity}: {view.text(finding.get('title')) or finding.get('rule')}"
        )
        _finding(page, finding, True, verbose, view.units(data))


def render(document: view.Document, console: Console, verbose: bool = False) -> None:
    """Prints the document on `console`: header, a verdict per kernel, details of the longest, findings, warnings."""
    page = Page(console)
    found = view.kernels(document)
    page.line((" · ".join(_header(document, found)), "dim"))
    warnings = view.texts(document.get("warnings"))
    if document.get("partial") is True:
        page.line(("Partial: not everything that was asked for could be measured.", "bold"))
    static = [kernel for kernel in found if kernel.duration_us is None and view.mapping(kernel.data.get("opcodes"))]
    if static and len(static) == len(found):
        page.line(f"{view.plural(len(found), 'kernel')}, read from the code; nothing was run.")
        for kernel in found:
            page.gap()
            _static(page, kernel, verbose)
    else:
        page.line((view.summary(document, found), "bold"))
        for told in view.review(document):
            page.line(told)
        page.gap()
        shown = found if verbose else found[:LISTED]
        for kernel in shown:
            _verdict_line(page, kernel, console.width)
        if len(shown) < len(found):
            more = view.plural(len(found) - len(shown), "more kernel")
            page.line(f"and {more}, each shorter than these (--verbose lists them)")
        for kernel in found[:DETAILED]:
            if kernel.data.get("verdict") is None and not view.objects(kernel.data.get("limits")):
                continue
            page.gap()
            _details(page, kernel, verbose)
    program = view.objects(view.mapping(document.get("program")).get("findings"))
    if program:
        page.gap()
        page.line(("The program as a whole", "bold"))
        for finding in program:
            severity, title = view.text(finding.get("severity")) or "note", view.text(finding.get("title"))
            tail = f" [{finding.get('rule')}], {view.speedup_of(finding)}"
            page.line(f"{severity}: ", (title or str(finding.get("rule")), "bold"), tail, indent=2)
            _finding(page, finding, True, verbose, view.units(view.mapping(document.get("program"))))
    compared = rank_table.table(document)
    if compared is not None:
        page.gap()
        _ranks(page, compared)
    if warnings:
        page.gap()
        for warning in warnings:
            page.line(("warning: ", "yellow"), warning)
    packs, how = view.packs(document), provenance.rows(document)
    if packs or how:
        page.gap()
    for label, told in how:
        page.line((f"{label}: {told}", "dim"))
    for name, told in packs:
        page.line((f"rules: {name}", "dim"), (f"; {told}", "") if told else "")


def _header(document: view.Document, found: list[view.KernelView]) -> list[str]:
    labels = {
        "source": "",
        "GPU": "",
        "ncu": "ncu ",
        "clock control": "clock control ",
        "cache control": "cache control ",
        "launches": "",
        "GPU time": "",
    }
    tails = {"launches": " launch" if view.launches_total(found) == 1 else " launches", "GPU time": " GPU time"}
    values = [(label, value) for label, value in view.header(document, found) if value != "not recorded"]
    if found and all(kernel.duration_us is None and kernel.data.get("opcodes") for kernel in found):
        values = values[:1]  # read from a binary: it has a name, and nothing was launched
    return [f"{labels[label]}{value}{tails.get(label, '')}" for label, value in values]
