"""A study's document as text, as HTML and as a curve. The sentences are the same everywhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from diagnose.bundled import bundled
from diagnose.render import curve
from diagnose.render import format as fmt
from diagnose.render.view import mapping, objects, plural, text, texts

if TYPE_CHECKING:
    from rich.console import Console

Ablation = Mapping[str, Any]

COLUMNS = ("point", "time", "95 % interval", "rate", "gain", "of the bound", "runs", "SM clock", "temperature", "error")
_OUTCOMES = {"improves": "improves", "same": "no change", "worse": "worse", "open": "open"}
_STYLES = {"improves": "bold green", "same": "bold", "worse": "bold yellow", "open": "dim"}


def _of(row: Mapping[str, Any]) -> str:
    value = row.get("value")
    return str(row.get("variant")) if value is None else f"{row.get('variant')} @ {value}"


def _factor(row: Mapping[str, Any]) -> str:
    return f"{fmt.times(row.get('gain'))} ({fmt.times_range(row.get('low'), row.get('high'))})"


def answer(document: Ablation) -> list[str]:
    """The conclusion: what was compared, what it means, and whether the diagnosis had said so."""
    study, found = mapping(document.get("study")), mapping(document.get("conclusion"))
    decided = mapping(found.get("decided_by"))
    outcome = str(found.get("outcome"))
    if not decided:
        return ["Open: the points that would decide were not measured."]
    against = decided.get("against")
    base = f"{mapping(study.get('axis')).get('name')} = {against}" if study.get("ablates") == "axis" else str(against)
    lines = [
        f"{_OUTCOMES.get(outcome, outcome).capitalize()}: {_of(decided)}, {_factor(decided)} the performance of {base}."
    ]
    if outcome == "open":
        lines.append("The interval holds both an improvement and none: more runs (--interval 0.3) narrow it.")
    elif text(found.get("meaning")):
        lines.append(f"{'Every change makes it worse, so' if outcome == 'worse' else 'So'}: {found['meaning']}.")
    compared = fmt.number(found.get("compared")) or 0
    if compared > 1:
        better, worse = texts(found.get("improves_at")), texts(found.get("worse_at"))
        lines.append(
            f"Better in {len(better)} and worse in {len(worse)} of {compared:.0f} comparisons"
            + (f"; worse: {', '.join(worse[:6])}" if worse else "")
            + "."
        )
    lines.append(_prediction(mapping(found.get("predicted")), texts(study.get("tests"))))
    return [line for line in lines if line]


def _prediction(said: Mapping[str, Any], tests: list[str]) -> str:
    if not tests:
        return ""
    if said.get("fired") is None:
        return f"The baseline was not profiled, so nothing was predicted ({', '.join(tests)})."
    rules = ", ".join(texts(said.get("rules")))
    told = f"the profile of the baseline gave {rules}" if said["fired"] else (
        f"the profile of the baseline gave none of {', '.join(tests)} (its verdict: {said.get('verdict')})"
    )  # fmt: skip
    gain = f", predicted {fmt.speedup(said['speedup'])}" if said.get("speedup") else ""
    agrees = {True: "as measured", False: "against what was measured", None: "open"}[said.get("agrees")]
    return f"Diagnosis before: {told}{gain}: {agrees}."


def shapes(document: Ablation) -> list[str]:
    """Knees, waves and crossovers in words."""
    found = mapping(document.get("analyses"))
    axis = str(mapping(mapping(document.get("study")).get("axis")).get("name"))
    lines = []
    for one in objects(found.get("knee")):
        stays, name = mapping(one.get("stays")), one.get("variant")
        if not one.get("flat"):
            lines.append(f"{name}: still rising at the last value, so there is no plateau and no knee in this range.")
        elif stays.get("value") is None:
            lines.append(f"{name}: no value from which 90 % of the plateau holds.")
        else:
            first = mapping(one.get("reaches")).get("value")
            early = f" (first reached at {first})" if first != stays["value"] else ""
            lines.append(
                f"{name}: 90 % of the plateau from {axis} = {stays['value']} on{early}; "
                f"interval {stays.get('low')} to {stays.get('high')}."
            )
    for one in objects(found.get("waves")):
        good = ", ".join(str(value) for value in one.get("good") or ()) or "none of the values"
        fits = fmt.number(one.get("correlation"))
        told = f"r = {fits:.2f}" if fits is not None else "no correlation: one of the two does not vary"
        lines.append(
            f"{one.get('variant')}: waves over {one.get('sms')} SMs against the measured rate: {told}. "
            f"Good sizes: {good}."
        )
    for one in objects(found.get("crossover")):
        base, other = one.get("base"), one.get("other")
        if one.get("from") is None:
            lines.append(
                f"{other} against {base}: no crossing in this range; {one.get('always')} is ahead at the last value."
            )
        else:
            lines.append(
                f"{other} passes {base} at {axis} = {fmt.count(round(float(one['from'])))} (95 %: "
                f"{fmt.count(round(float(one['low'])))} to {fmt.count(round(float(one['high'])))}) and stays ahead."
            )
    return lines


def profiles(document: Ablation) -> list[str]:
    """What ncu's profiles of single points said."""
    lines = []
    for point in objects(document.get("points")):
        profile = mapping(point.get("profile"))
        if profile:
            limits = ", ".join(
                f"{fmt.resource(one.get('resource'))} {fmt.share(one.get('utilization'))}"
                for one in objects(profile.get("limits"))[:3]
            )
            verdict = mapping(profile.get("verdict"))
            lines.append(f"{point.get('id')}: {verdict.get('rule')} ({verdict.get('class')}); limits: {limits}.")
        elif text(point.get("not_profiled")):
            lines.append(f"{point.get('id')}: not profiled: {point['not_profiled']}.")
    return lines


def _median(samples: list[Mapping[str, Any]], key: str) -> float | None:
    known = sorted(value for one in samples if (value := fmt.number(one.get(key))) is not None)
    return known[len(known) // 2] if known else None


def rows(document: Ablation) -> list[list[str]]:
    """The table of the points; see COLUMNS."""
    gains = {(c.get("variant"), c.get("value")): c for c in objects(document.get("comparisons"))}
    found = []
    for point in objects(document.get("points")):
        if text(point.get("failed")):
            found.append([str(point["id"]), f"does not count: {point['failed']}", *[""] * (len(COLUMNS) - 2)])
            continue
        samples = objects(point.get("samples"))
        gain = gains.get((point.get("variant"), point.get("value")))
        bound = max(
            (value for b in objects(point.get("bounds")) if (value := fmt.number(b.get("bound_us")))), default=None
        )
        us = fmt.number(point.get("time_us"))
        clock, heat = _median(samples, "sm_mhz"), _median(samples, "temperature_c")
        error, tolerance = fmt.number(point.get("error")), fmt.number(point.get("tolerance"))
        found.append(
            [
                str(point["id"]),
                fmt.duration(us),
                f"{fmt.duration(point.get('low_us'))} – {fmt.duration(point.get('high_us'))}",
                fmt.quantity(point.get("rate"), point.get("rate_unit")) if point.get("rate_unit") else "–",
                f"{_factor(gain)} {_OUTCOMES[str(gain['outcome'])]}" if gain else "baseline",
                fmt.share(bound / us) if bound and us else "–",
                str(len(samples)),
                f"{clock:.0f} MHz" if clock is not None else fmt.NOT_MEASURED,
                f"{heat:.0f} °C" if heat is not None else fmt.NOT_MEASURED,
                f"{error:.1e} of {tolerance:.1e}" if error is not None and tolerance is not None else "–",
            ]
        )
    return found


def method(document: Ablation) -> list[str]:
    """How the numbers came about."""
    run, noise = mapping(document.get("run")), mapping(document.get("noise"))
    lines = [
        f"Time: {run.get('time_source')}.",
        (
            f"{run.get('rounds')} rounds over all points, each in a random order (seed {run.get('seed')}), after one "
            f"run as warm-up; {run.get('launches')} timed launches a run; "
            f"{fmt.digits(fmt.number(run.get('spent_s')) or 0)} s."
        ),
        (
            f"Noise (one sigma of a run): {fmt.share(noise.get('sigma'))}; a change within "
            f"{fmt.share(noise.get('least'))} is none."
        ),
        f"Statistics: {noise.get('method')}.",
        "Clocks as found: not locked; the SM clock beside each point is the highest seen while it ran.",
    ]
    if text(run.get("stopped")):
        lines.append(f"Stopped: {run['stopped']}.")
    return lines


def render(document: Ablation, console: Console) -> None:
    """The study in a terminal."""
    from rich.table import Table

    from diagnose.render.terminal import Page

    page = Page(console)
    study, run = mapping(document.get("study")), mapping(document.get("run"))
    page.line((str(study.get("title")), "bold"), f"  {run.get('gpu') or 'GPU not known'}, {run.get('date')}")
    page.line((str(study.get("question")), "dim"))
    page.gap()
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    shown = [number for number, name in enumerate(COLUMNS) if name not in ("temperature", "error")]
    for number in shown:
        table.add_column(page.text((COLUMNS[number], "dim")), justify="left" if number == 0 else "right")
    for row in rows(document):
        table.add_row(*(page.text(row[number]) for number in shown))
    console.print(table)
    page.gap()
    outcome = str(mapping(document.get("conclusion")).get("outcome"))
    for number, line in enumerate(answer(document)):
        page.line((line, _STYLES.get(outcome, "")) if number == 0 else line)
    for line in (*shapes(document), *profiles(document)):
        page.line(line, indent=2)
    for line in method(document)[:3]:
        page.line((line, "dim"))
    if not run.get("complete"):
        page.line(("not complete: ", "yellow"), str(run.get("stopped")))


def caption(document: Ablation) -> str:
    """What the marks are."""
    return (
        "Marks: medians with their 95 % interval. Dashed: the bound of the useful work by the catalogue's ceilings. "
        "Bars over marks: the binding limit of a profile."
    )


def svg(document: Ablation) -> str | None:
    """The curve as a file of its own; None where nothing was timed."""
    from markupsafe import Markup

    from diagnose.render.html import _environment

    chart = curve.chart(document)
    if chart is None:
        return None
    folder = bundled("reports")
    part: Any = _environment(folder).get_template("macros/curve.j2").module
    style = Markup((folder / "curve.css").read_text(encoding="utf-8"))
    return str(part.curve(chart, str(mapping(document.get("study")).get("title")), style)).strip() + "\n"


def render_html(document: Ablation) -> str:
    """The whole page."""
    from markupsafe import Markup

    from diagnose.render.html import _environment, _hash

    folder = bundled("reports")
    style = "".join((folder / name).read_text(encoding="utf-8") for name in ("report.css", "curve.css"))
    study, run = mapping(document.get("study")), mapping(document.get("run"))
    stopped = None if run.get("complete") else text(run.get("stopped")) or "It was interrupted."
    header = [("GPU", run.get("gpu") or fmt.NOT_MEASURED), ("driver", run.get("driver") or fmt.NOT_MEASURED),
              ("date", run.get("date")), ("points", plural(len(objects(document.get("points"))), "point"))]  # fmt: skip
    return (
        _environment(folder)
        .get_template("ablation.html.j2")
        .render(
            style=Markup(style),
            policy=f"default-src 'none'; style-src '{_hash(style)}'; base-uri 'none'; form-action 'none'",
            title=study.get("title"),
            question=study.get("question"),
            header=header,
            answer=answer(document),
            partial=stopped,
            chart=curve.chart(document),
            caption=caption(document),
            shapes=shapes(document),
            columns=COLUMNS,
            rows=rows(document),
            profiles=profiles(document),
            method=method(document),
            version=mapping(document.get("tool")).get("version"),
        )
    )


def tested_by(study: Mapping[str, Any]) -> str:
    """Of a finding's next experiment: `diagnose ablate stages: confirmed, 1.24× (1.23–1.25×) …`, or the command."""
    outcome = study.get("outcome")
    if not isinstance(outcome, Mapping):
        return text(study.get("command")) or ""
    place = str(outcome.get("variant")) + (f" @ {outcome['at']}" if outcome.get("at") is not None else "")
    gain = (
        f", {fmt.times(outcome.get('gain'))} ({fmt.times_range(outcome.get('low'), outcome.get('high'))}) with {place}"
    )
    return f"{study.get('command')}: {outcome.get('status')}{gain if outcome.get('gain') is not None else ''}"
