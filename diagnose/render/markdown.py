"""A comment for a pull request: one sentence, the kernels that hold the time, and what to do first."""

from __future__ import annotations

import re

from diagnose.render import format as fmt
from diagnose.render import links, provenance, view
from diagnose.render import ranks as rank_table

TOP = 10


def inert(value: object, limit: int = 200) -> str:
    """Text inert in Markdown: no markup, no HTML, no table cell border, no mention, reference or automatic link."""
    shown = fmt.shorten(value, limit)
    shown = shown.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    shown = re.sub(r"([\\`*_{}\[\]()#+!|~$])", r"\\\1", shown)
    shown = re.sub(r"(@|\\#)(?=\w)", r"\1<!-- -->", shown)
    return re.sub(r"(?i)(://|www\.)", lambda match: match[0][0] + "<!-- -->" + match[0][1:], shown)


def code(value: object, limit: int = 90) -> str:
    """A code span that survives backticks and table cells."""
    shown = fmt.shorten(value, limit).replace("|", "\\|")
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", shown)), default=0))
    pad = " " if shown.startswith("`") or shown.endswith("`") else ""
    return f"{fence}{pad}{shown}{pad}{fence}"


def _ranks(found: rank_table.Table | None) -> list[str]:
    if found is None:
        return []
    head = ["Kernel", *(inert(label, 40) for label in found.columns), "What it says"]
    lines = ["", "**Ranks**", "", inert(found.summary, 300), "", f"| {' | '.join(head)} |"]
    lines.append("|---|" + "---:|" * len(found.columns) + "---|")
    for name, cells, told in found.rows[: rank_table.SHOWN]:
        lines.append(f"| {' | '.join((code(name), *cells, inert(told, 240)))} |")
    lines.append(f"| {' | '.join(('all in common', *found.totals, ''))} |")
    return [*lines, *(f"{note}" for note in ("", *(inert(note, 240) for note in found.notes)))]


def linked(shown: str, address: str | None) -> str:
    """Markdown of a link to the HTML report, where there is one."""
    return f"[{shown}]({address})" if address is not None else shown


def render(document: view.Document, page: str | None = None) -> str:
    """The Markdown text. `page`: the address of the HTML report, to which kernels and findings then link."""
    found = view.kernels(document)
    lines = [f"### {inert(view.summary(document, found), 400)}", ""]
    about = [
        f"{label} {code(value, 60)}" if label == "source" else f"{label} {inert(value, 80)}"
        for label, value in view.header(document, found)
    ]
    lines += [" · ".join(about), ""]
    for told in view.review(document):
        lines += [inert(told, 300), ""]
    if document.get("partial") is True:
        lines += ["**Partial:** not everything that was asked for could be measured.", ""]
    if found:
        lines += ["| | Kernel | GPU time | Verdict | Can win | Why |", "|---|---|---:|---|---:|---|"]
    for kernel in found[:TOP]:
        time = fmt.duration(kernel.total_us) + (f" ({fmt.share(kernel.share)})" if kernel.share is not None else "")
        win = kernel.win + (f" ({kernel.win_range})" if kernel.win_range else "")
        rule = f", {code(kernel.rule, 50)}" if kernel.rule else ""
        verdict = f"{inert(kernel.title, 120)} ({kernel.word}{rule})"
        name = linked(code(kernel.label), links.kernel(page, kernel.id) if page is not None else None)
        cells = [kernel.sign, name, time, verdict, win, inert(kernel.reason, 300)]
        lines.append(f"| {' | '.join(cells)} |")
    if len(found) > TOP:
        lines += ["", f"{view.plural(len(found) - TOP, 'more kernel')} not shown, each shorter than these."]
    first = []
    for kernel in found[:TOP]:
        findings = [one for one in view.objects(kernel.data.get("findings")) if not one.get("accepted")]
        change = view.text(view.mapping(findings[0].get("next_experiment")).get("change")) if findings else None
        if change and kernel.klass in {"implementation", "fit"}:
            expect = view.expectation(findings[0].get("next_experiment"), view.units(kernel.data))
            address = links.finding(page, kernel.id, findings[0]) if page is not None else None
            first.append(
                f"- {linked(code(kernel.label), address)}: {inert(change, 500)}"
                + (f" Expect {code(expect)}." if expect else "")
            )
    if first:
        lines += ["", "**Next experiments**", "", *first]
    program = view.objects(view.mapping(document.get("program")).get("findings"))
    if program:
        lines += ["", "**The program as a whole**", ""]
        for finding in program:
            title = view.text(finding.get("title")) or finding.get("rule")
            lines.append(
                f"- {inert(finding.get('severity') or 'note', 20)}: {inert(title, 160)}, {view.speedup_of(finding)}"
            )
    lines += _ranks(rank_table.table(document))
    lines += ["", *(f"{label}: {inert(told, 600)}  " for label, told in provenance.rows(document))]
    packs = view.packs(document)
    if packs:
        lines += ["", "Rules: " + " · ".join(inert(f"{name}; {told}" if told else name, 600) for name, told in packs)]
    warnings = view.texts(document.get("warnings"))
    if warnings:
        lines += ["", f"<details><summary>{view.plural(len(warnings), 'warning')}</summary>", ""]
        lines += [f"- {inert(warning, 400)}" for warning in warnings[:20]]
        if len(warnings) > 20:
            lines.append(f"- and {len(warnings) - 20} more")
        lines += ["", "</details>"]
    return "\n".join(lines) + "\n"
