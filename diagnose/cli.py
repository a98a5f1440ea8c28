"""The command line: parse, call, print. What the words mean is decided in `commandline`, what is done in `api`."""

from __future__ import annotations

import errno
import gc
import json
import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from diagnose import __version__, commandline
from diagnose.commandline import OptionNames
from diagnose.errors import EXIT_GATE, EXIT_INTERRUPTED, EXIT_NOTHING_MEASURED, EXIT_OK, EXIT_USAGE, DiagnoseError

_UsageError: type[Exception] = typer.BadParameter.__mro__[1]

job_app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
verbs_app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
rules_app = typer.Typer(add_completion=False, help="The rules and the team packs.", rich_markup_mode=None)
kernels_app = typer.Typer(add_completion=False, help="The bundled reference kernels.", rich_markup_mode=None)
verbs_app.add_typer(rules_app, name="rules")
verbs_app.add_typer(kernels_app, name="kernels")

_FORMATS = ("text", "json", "jsonl", "md", "sarif", "junit")
_FORMAT = typer.Option("text", "--format", metavar="|".join(_FORMATS), help="What goes to stdout.")
_LIST_FORMAT = typer.Option("text", "--format", metavar="text|json", help="What goes to stdout.")
_RULES = typer.Option([], "--rules", metavar="DIR", help="Adds a pack of rules (repeatable).")
_CONFIG = typer.Option(None, "--config", metavar="FILE", help="The only configuration read.")
_LONGEST_S = 2e6  # of a wait, 23 days: poll(2) takes milliseconds in 32 bits
_CHOICES = {
    "--clock-control": ("none", "base"),
    "--cache-control": ("all", "none"),
    "--replay": ("kernel", "application", "range", "app-range"),
    "--graph": ("node", "graph"),
    "--facts": ("all", "cited"),
    "--survey": ("auto", "cupti", "nsys", "ncu", "none"),
}


def _chosen(option: str, value: str, choices: Sequence[str]) -> str:
    from diagnose.packfile import nearest

    if value not in choices:
        raise DiagnoseError(
            f"{option} {value!r} is not one of {', '.join(choices)}{nearest(value, choices)}", f"{option} {choices[0]}"
        )
    return value


def _mode(deep: bool, single_pass: bool) -> str | None:
    if deep and single_pass:
        raise DiagnoseError("--deep and --single-pass exclude each other", "leave one of them out")
    return "deep" if deep else "single-pass" if single_pass else None


# --- the main job ---


@job_app.command(
    help="""Says why a CUDA kernel is slow.

    TARGET is a program with its arguments (runs it under Nsight Compute), recorded reports or folders of them (no GPU
    needed), or kernel:NAME[,param=value...] for a bundled kernel. Options of diagnose come before a program;
    everything after it is the program's own.

    \b
    Other commands (diagnose COMMAND --help):
      doctor     what is here, and the remedy for what is missing
      static     the data paths in a binary's machine code: no GPU
      kernels    list, build, run: the bundled kernels
      rules      list, explain, new, test, schema, accuracy: the rules and packs
      facts      the facts that rules may use
      ceilings   the rates that a GPU sustains
      compare    two reports, kernel by kernel
      ablate     one variable swept, with a curve
      check-races  memory errors, races, misused barriers, by compute-sanitizer
      open       shows an HTML report in the browser
      descriptor  what a matrix descriptor of wgmma or tcgen05 says, and what is wrong with it
    A program of such a name: ./static or -- static

    \b
    Exit codes: 0 diagnosed, 1 a gate holds, 2 wrong usage or unreadable input,
    3 nothing could be measured or said, 130 interrupted
    """
)
def job(
    target: list[str] = typer.Argument(None, metavar="TARGET [ARGS]...", show_default=False),
    form: str = _FORMAT,
    json_file: str = typer.Option(None, "--json", metavar="FILE", help="Also writes the JSON there."),
    html: str = typer.Option(None, "-o", "--output", metavar="FILE", help="Names the HTML (diagnose-report.html)."),
    no_html: bool = typer.Option(False, "--no-html", help="Writes no HTML."),
    report_url: str = typer.Option(
        None, "--report-url", metavar="URL", help="Where the HTML will be served: md and sarif link there."
    ),
    rules: list[str] = _RULES,
    config: str = _CONFIG,
    fail_on: list[str] = typer.Option(
        [], "--fail-on", metavar="X", help="Exit 1 if X holds: class, severity or worse, rule, target (repeatable)."
    ),
    baseline: str = typer.Option(
        None, "--baseline", metavar="FILE", help="JSON or report: what is in it does not count for --fail-on."
    ),
    problem: str = typer.Option(
        None, "--problem", metavar="SPEC", help="gemm:M,N,K,TYPE or attention:B,H,SQ,SK,D,causal or bytes=N,flops=N."
    ),
    useful_flops: str = typer.Option(None, "--useful-flops", metavar="N", help="The operations that are needed."),
    no_library: bool = typer.Option(False, "--no-library", help="With --problem: without running the library on it."),
    studies: list[str] = typer.Option(
        [], "--studies", metavar="PATH", help="Results of diagnose ablate (JSON, folders): the findings' outcomes."
    ),
    races: list[str] = typer.Option(
        [], "--races", metavar="FILE", help="JSON of diagnose check-races: hazards beside their lines (repeatable)."
    ),
    facts: str = typer.Option("cited", "--facts", metavar="all", help="all: every fact, rejected rule and raw metric."),
    kernel: str = typer.Option(None, "-k", "--kernel", metavar="NAME", help="Only these: a name or regex:EXPR."),
    demangled: bool = typer.Option(False, "--demangled", help="-k is matched against the whole demangled name."),
    nvtx: list[str] = typer.Option([], "--nvtx", metavar="EXPR", help="Only within these NVTX ranges (repeatable)."),
    launch_skip: int = typer.Option(0, "--launch-skip", metavar="N", min=0, help="Leaves the first N launches out."),
    launch_count: int = typer.Option(None, "--launch-count", metavar="N", min=1, help="Only the next N launches."),
    devices: list[int] = typer.Option([], "--device", metavar="N", min=0, help="Only on this GPU (repeatable)."),
    process: str = typer.Option(None, "--process", metavar="NAME", help="Only in programs of this name."),
    profiler_range: bool = typer.Option(
        False, "--profiler-range", help="Only between cudaProfilerStart and cudaProfilerStop."
    ),
    survey: str = typer.Option(
        None, "--survey", metavar="auto|cupti|nsys|ncu|none", help="What counts all launches first, in a run before."
    ),
    top: int = typer.Option(None, "--top", metavar="N", min=1, help="Profiles the survey's N longest kernels (50)."),
    coverage: float = typer.Option(
        None, "--coverage", metavar="SHARE", min=0.01, max=1.0, help="Or as many as take this share of the time (0.95)."
    ),
    deep: bool = typer.Option(False, "--deep", help="Measures all at once, with a time line; takes twice as long."),
    single_pass: bool = typer.Option(False, "--single-pass", help="Replays nothing: for kernels that spin or wait."),
    stop: bool = typer.Option(
        None, "--stop/--no-stop", help="Ends the program when what was chosen is profiled (if it writes no file)."
    ),
    resume: list[str] = typer.Option(
        [], "--resume", metavar="REPORT", help="Goes on with the report of an interrupted run (repeatable)."
    ),
    max_launches: int = typer.Option(
        None, "--max-launches", metavar="N", min=1, help="Profiles at most N launches (50, or as many as --top)."
    ),
    clock_control: str = typer.Option("none", "--clock-control", metavar="none|base", help="ncu's clock control."),
    cache_control: str = typer.Option("all", "--cache-control", metavar="all|none", help="all: flushed each pass."),
    replay: str = typer.Option("kernel", "--replay", metavar="MODE", help="kernel, application, range or app-range."),
    graph: str = typer.Option("node", "--graph", metavar="node|graph", help="CUDA graphs by their kernels, or whole."),
    ncu: str = typer.Option(None, "--ncu", metavar="PATH", help="The ncu (else DIAGNOSE_NCU, PATH, CUDA's places)."),
    timeout: float = typer.Option(
        None, "--timeout", metavar="S", min=0.001, max=_LONGEST_S, help="Stops after S seconds."
    ),
    target_output: str = typer.Option(None, "--target-output", metavar="FILE", help="Keeps its output there."),
    redact: bool = typer.Option(False, "--redact", help="Without hosts, user paths, arguments and source text."),
    no_source: bool = typer.Option(False, "--no-source", help="Without source text."),
    verbose: bool = typer.Option(False, "--verbose", "-v", help="Every kernel and finding in the text."),
    no_color: bool = typer.Option(False, "--no-color", help="Text without colours."),
    version: bool = typer.Option(False, "--version", help="Prints the version."),
) -> int:  # fmt: skip
    from diagnose.job import Job, run

    if version:
        print(f"diagnose {__version__}")
        return EXIT_OK
    if not target:
        raise DiagnoseError("no target was named: a program, a report or kernel:NAME", "diagnose --help")
    if address := next((word for word in target[:1] if word.startswith(("http://", "https://"))), None):
        raise DiagnoseError(f"{address} is an address, not a file", f"curl -fLO {shlex.quote(address)}")
    return run(
        Job(
            target=tuple(target),
            live=not commandline.is_report(target[0]),
            form=_chosen("--format", form, _FORMATS),
            json_file=Path(json_file) if json_file else None,
            html=Path(html) if html else None,
            no_html=no_html,
            report_url=report_url,
            rules=tuple(Path(one) for one in rules),
            config=Path(config) if config else None,
            fail_on=tuple(fail_on),
            baseline=Path(baseline) if baseline else None,
            problem=problem,
            useful_flops=useful_flops,
            library=not no_library,
            all_facts=_chosen("--facts", facts, _CHOICES["--facts"]) == "all",
            kernel=kernel,
            max_launches=max_launches,
            clock_control=_chosen("--clock-control", clock_control, _CHOICES["--clock-control"]),
            cache_control=_chosen("--cache-control", cache_control, _CHOICES["--cache-control"]),
            replay=_chosen("--replay", replay, _CHOICES["--replay"]),
            graph=_chosen("--graph", graph, _CHOICES["--graph"]),
            ncu=ncu,
            timeout_s=timeout,
            target_output=Path(target_output) if target_output else None,
            mode=_mode(deep, single_pass),
            survey=_chosen("--survey", survey, _CHOICES["--survey"]) if survey else None,
            top=top,
            coverage=coverage,
            stop=stop,
            demangled=demangled,
            nvtx=tuple(nvtx),
            launch_skip=launch_skip,
            launch_count=launch_count,
            devices=tuple(devices),
            process=process,
            profiler_range=profiler_range,
            resume=tuple(map(Path, resume)),
            studies=tuple(map(Path, studies)),
            races=tuple(map(Path, races)),
            redact=redact,
            no_source=no_source,
            verbose=verbose,
            color=not no_color,
        ),
    )


# --- verbs ---


def _print_json(value: Mapping[str, Any]) -> None:
    from diagnose.output import to_stdout

    to_stdout(json.dumps(value, indent=1, allow_nan=False) + "\n")


def _print_table(rows: Sequence[Sequence[str]]) -> None:
    """Columns by their widest cell; the last one runs on."""
    from diagnose.output import one_line, to_stdout

    cells = [[one_line(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join(c.ljust(w) for c, w in zip(row, [*widths[:-1], 0], strict=True)).rstrip() for row in cells]
    to_stdout("\n".join(lines) + "\n" if lines else "")


def _json_wanted(form: str) -> bool:
    return _chosen("--format", form, ("text", "json")) == "json"


@verbs_app.command(help="What is on this machine, and the exact remedy for what is missing.")
def doctor(form: str = _LIST_FORMAT) -> int:
    from diagnose.doctor import examine

    wants_json = _json_wanted(form)
    checks = examine()
    if wants_json:
        rows = [{"name": c.name, "status": c.status, "value": c.value, "remedy": c.remedy or None} for c in checks]
        _print_json({"checks": rows})
        return EXIT_OK
    signs = {"ok": "✓", "warning": "!", "missing": "✗"}
    lines = []
    for check in checks:
        lines.append((signs.get(check.status, "?"), check.name, check.value))
        if check.remedy:
            lines.append(("", "", f"→ {check.remedy}"))
    _print_table(lines)
    return EXIT_OK


@verbs_app.command(name="facts", help="The catalogue of facts that rules may use.")
def facts_(form: str = _LIST_FORMAT, rules: list[str] = _RULES) -> int:
    from diagnose.api import Options, catalogue_of, load_rules

    found = catalogue_of(load_rules(Options(rules=tuple(map(Path, rules)))) if rules else ()).values()
    if _json_wanted(form):
        rows = [{"name": d.name, "unit": d.unit, "needs": list(d.needs), "code": d.code, "doc": d.doc} for d in found]
        _print_json({"facts": rows})
    else:
        _print_table([(d.name, d.unit, d.doc) for d in found])
    return EXIT_OK


def _packs(rules: Sequence[str], config: str | None) -> Any:
    from diagnose import config as configuration
    from diagnose.api import Options, load_rules

    settings = configuration.load(Path(config) if config else None)
    return load_rules(Options(rules=(*settings.packs, *map(Path, rules)), disable=settings.disable))


@rules_app.command("list", help="The rules in force: class, status, how often each fired on the recorded kernels.")
def rules_list(
    form: str = _LIST_FORMAT,
    rules: list[str] = _RULES,
    config: str = _CONFIG,
    table: bool = typer.Option(False, "--table", help="The article's decision table with the rules of each row."),
) -> int:
    from diagnose import fired, program
    from diagnose.api import fact_needs
    from diagnose.rules import active_rules, rule_metrics

    wants_json = _json_wanted(form)
    packs = _packs(rules, config)
    if table:
        from diagnose import table as decision_table
        from diagnose.output import to_stdout

        found = decision_table.read(packs)
        if wants_json:
            _print_json(found)
        else:
            to_stdout(decision_table.text(found))
        return EXIT_OK
    active, counts = active_rules(packs), fired.read()
    if wants_json:
        needs = fact_needs(packs)
        rows: list[dict[str, Any]] = [
            {
                "id": rule.id,
                "pack": rule.pack,
                "class": rule.klass,
                "status": rule.status,
                "article": rule.article,
                "needs": list(rule_metrics(rule, needs)),
                "title": rule.title,
                "scope": rule.scope,
            }
            for rule in active
        ]
        rows += [{"id": name, "pack": "core", **row} for name, row in program.RULE_ROWS.items()]
        for row in rows:
            row |= counts["rules"].get(row["id"], {"fired": None, "verdicts": None})
        _print_json({"rules": rows, "corpus": {"reports": counts["reports"], "kernels": counts["kernels"]}})
    else:
        named: list[tuple[str, str, str, str, str, str]] = [
            (one.id, one.pack, one.klass, one.status, one.title, one.scope) for one in active
        ]
        named += [
            (name, "core", row["class"], row["status"], row["title"], "program")
            for name, row in program.RULE_ROWS.items()
        ]
        lines = [
            (name, pack, klass, status, "fired on " + fired.told(counts, name, scope), title)
            for name, pack, klass, status, title, scope in named
        ]
        _print_table(lines)
    return EXIT_OK


@rules_app.command("schema", help="The JSON Schema of a rule, a pack.yaml or a facts.yaml, for an editor.")
def rules_schema(what: str = typer.Argument("rule", metavar="rule|pack|facts")) -> int:
    from diagnose.output import to_stdout

    _chosen("diagnose rules schema", what, ("rule", "pack", "facts"))
    to_stdout((Path(__file__).parent / f"{what}.schema.json").read_text(encoding="utf-8"))
    return EXIT_OK


@rules_app.command("explain", help="One rule: its conditions, why, what to try, and when it is wrong.")
def rules_explain(
    rule_id: str = typer.Argument(..., metavar="ID"), form: str = _LIST_FORMAT, rules: list[str] = _RULES,
    config: str = _CONFIG,
) -> int:  # fmt: skip
    from diagnose import explain

    wants_json = _json_wanted(form)
    page = explain.page(rule_id, _packs(rules, config))
    if wants_json:
        _print_json(page)
    else:
        from diagnose.output import to_stdout

        to_stdout(explain.text(page))
    return EXIT_OK


@rules_app.command("test", help="Proves every rule's examples; with a pack, shows what it changes in recorded reports.")
def rules_test(
    words: list[str] = typer.Argument(None, metavar="[DIR] [REPORT]...", show_default=False),
    against: str = typer.Option(None, "--against", metavar="REF", help="Compares with the pack at this git commit."),
    no_reports: bool = typer.Option(False, "--no-reports", help="Only the examples."),
    form: str = _LIST_FORMAT,
    rules: list[str] = _RULES,
) -> int:
    from diagnose.api import Options, load_rules
    from diagnose.output import report_error, to_stdout

    wants_json = _json_wanted(form)
    given = list(map(Path, words or ()))
    # The first word is the pack, unless --rules names it.
    folders = [*given[:1], *map(Path, rules)] if given and not (rules and commandline.is_report(str(given[0]))) else []
    reports = given[1:] if folders else given
    folders = folders or list(map(Path, rules))
    if (reports or against) and not folders:
        raise DiagnoseError("no pack was named", "diagnose rules test DIR [REPORT]...")
    try:
        packs = load_rules(Options(rules=tuple(folders)))
    except DiagnoseError as error:
        report_error(error)
        return EXIT_GATE
    rows = [
        {
            "pack": pack.name,
            "version": pack.version,
            "rules": len(pack.rules),
            "firing": sum(1 + len(rule.examples.fires) for rule in pack.rules),
            "silent": sum(len(rule.examples.silent) for rule in pack.rules),
        }
        for pack in packs
    ]
    result: dict[str, Any] = {"packs": rows}
    told = "".join(
        f"{row['pack']} {row['version']}: {row['rules']} rules; "
        f"{row['firing']} firing and {row['silent']} silent examples hold\n"
        for row in rows
    )
    if folders and not no_reports:
        from dataclasses import asdict

        from diagnose import review

        before, name = review.load_before(folders, against)
        paths = review.reports_in(reports) or review.sample()
        profiles = review.read(paths)
        found = review.changes(profiles, before, packs)
        kernels = sum(len(profile.kernels) for profile in profiles)
        told += review.text(found, len(paths), kernels, name)
        result |= {"against": name, "reports": len(paths), "kernels": kernels, "changes": [asdict(c) for c in found]}
    if wants_json:
        _print_json(result)
    else:
        to_stdout(told)
    return EXIT_OK


@rules_app.command(
    "new", help="Writes a rule with every key and its examples, and a pack around it where there is none."
)
def rules_new(
    name: str = typer.Argument(..., metavar="[PACK/]RULE"),
    folder: str = typer.Option("diagnose-rules", "--dir", metavar="DIR", help="The pack's folder."),
) -> int:
    from diagnose import scaffold
    from diagnose.output import to_stdout

    written = scaffold.create(name, Path(folder))
    to_stdout("".join(f"wrote {path}\n" for path in written) + f"next: diagnose rules test {folder}\n")
    return EXIT_OK


@rules_app.command("accuracy", help="Verdicts on kernels with a known cause: bundled ones, or CORPUS with labels.yaml.")
def rules_accuracy(
    corpus: str = typer.Argument(None, metavar="[CORPUS]"),
    form: str = _LIST_FORMAT,
    threshold: float = typer.Option(
        None, "--threshold", metavar="X", help="Exit 1 if fewer verdicts are right (0..1)."
    ),
    rules: list[str] = _RULES,
    config: str = _CONFIG,
) -> int:
    from diagnose import accuracy
    from diagnose.output import to_stderr, to_stdout
    from diagnose.render import accuracy as figures

    wants_json = _json_wanted(form)
    if threshold is not None and not 0 <= threshold <= 1:
        raise DiagnoseError(f"--threshold {threshold:g} is no share between 0 and 1", "--threshold 0.95")
    packs = _packs(rules, config)
    found = accuracy.run(Path(corpus) if corpus else None, packs, to_stderr)
    if wants_json:
        _print_json(found)
    else:
        to_stdout(figures.render(found))
    if threshold is not None and found["top1"] < threshold:
        to_stderr(f"gate: {found['top1']:.1%} of the verdicts are right, --threshold asks for {threshold:.1%}")
        return EXIT_GATE
    return EXIT_OK


@kernels_app.command("list", help="The kernels, with the verdict each should get.")
def kernels_list(form: str = _LIST_FORMAT) -> int:
    from diagnose.collect.kernels import list_kernels

    wants_json = _json_wanted(form)
    rows: list[Any] = list_kernels()
    if wants_json:
        _print_json({"kernels": rows})
    else:
        _print_table(
            [
                (
                    row["name"],
                    row["expect"],
                    ",".join(row["archs"]),
                    ",".join(f"{name}={value}" for name, value in row["params"].items()),
                )
                for row in rows
            ]
        )
    return EXIT_OK


_SPEC = typer.Argument(..., metavar="NAME[,param=value...]")
_ARCH = typer.Option(None, "--arch", metavar="sm_XX", help="The architecture, such as sm_90a.")


@kernels_app.command("build", help="Builds a kernel with nvcc and prints the program's path.")
def kernels_build(spec: str = _SPEC, arch: str = _ARCH, form: str = _LIST_FORMAT) -> int:
    from diagnose.collect.kernels import build_kernel, parse_spec
    from diagnose.output import to_stderr, to_stdout

    wants_json = _json_wanted(form)
    kernel, _ = parse_spec(spec)
    built = build_kernel(kernel, arch, to_stderr)
    if wants_json:
        _print_json({"name": kernel.name, "program": str(built)})
    else:
        to_stdout(f"{built}\n")
    return EXIT_OK


@kernels_app.command(
    "run",
    help="""Builds and runs a kernel, checks its result and prints its time.

    With --timeline it runs a build that stamps what each role does, and draws the stamps; FILE.json --timeline draws
    those of a program of yours (kernels/common/diagnose_timeline.cuh): no GPU.
    """,
)
def kernels_run(
    spec: str = typer.Argument(..., metavar="NAME[,param=value...] | FILE.json"),
    arch: str = _ARCH,
    timeline: bool = typer.Option(False, "--timeline", help="Draws what each role of the kernel does, over time."),
    block: int = typer.Option(0, "--block", metavar="N", min=0, max=(1 << 24) - 1, help="The block that stamps."),
    html: str = typer.Option(None, "-o", "--output", metavar="FILE", help="Names the HTML (diagnose-timeline.html)."),
    no_html: bool = typer.Option(False, "--no-html", help="Writes no HTML."),
    timeout: float = typer.Option(
        600.0, "--timeout", metavar="S", min=0.001, max=_LONGEST_S, help="Stops it after S seconds."
    ),
    form: str = _LIST_FORMAT,
    no_color: bool = typer.Option(False, "--no-color", help="Text without colours."),
) -> int:
    from diagnose.collect.kernels import parse_spec, run_kernel
    from diagnose.output import to_stderr, to_stdout

    wants_json = _json_wanted(form)
    if timeline:
        from diagnose import roles

        page = None if no_html else Path(html or roles.HTML_NAME)
        job = roles.Job(spec, arch, block, page, timeout, wants_json, not no_color)
        return roles.run(job)
    kernel, params = parse_spec(spec)
    result = run_kernel(kernel, params, arch, timeout_s=timeout, progress=to_stderr)
    if wants_json:
        _print_json({"name": kernel.name, "params": params, **result.document()})
    else:
        to_stdout(f"{result.line}\n")
    return EXIT_OK if result.ok else EXIT_GATE


@verbs_app.command(help="Measures what this machine's GPU sustains; without a GPU, shows what is known of others.")
def ceilings(
    export: str = typer.Option(None, "--export", metavar="FILE", help="Writes the form that the project ships, too."),
    show: bool = typer.Option(False, "--show", help="Measures nothing, shows what is known."),
    form: str = _LIST_FORMAT,
) -> int:
    from diagnose.ceilings import command
    from diagnose.output import to_stderr

    wants_json = _json_wanted(form)
    content, lines = command.run(Path(export) if export else None, show, to_stderr)
    if wants_json:
        _print_json(content)
    else:
        _print_table(lines)
    return EXIT_OK


@verbs_app.command("open", help="Shows an HTML report in the browser.")
def open_(file: str = typer.Argument(..., metavar="FILE")) -> int:
    import webbrowser

    path = Path(file)
    if path.is_dir():
        raise DiagnoseError(f"{file} is a folder, not a file", f"ls {shlex.quote(file)}")
    if not path.is_file():
        raise DiagnoseError(f"{file} does not exist", "diagnose REPORT    (writes diagnose-report.html)")
    if path.suffix.lower() not in (".html", ".htm"):
        raise DiagnoseError(f"{file} is no HTML file", f"diagnose {file}    (writes one)")
    address = path.resolve().as_uri()
    if not webbrowser.open(address):
        raise DiagnoseError("no browser could be started here", f"open {address}", EXIT_NOTHING_MEASURED)
    return EXIT_OK


@verbs_app.command(help="The data paths in a binary's machine code: no GPU.")
def static(
    file: str = typer.Argument(..., metavar="FILE"),
    form: str = _FORMAT,
    json_file: str = typer.Option(None, "--json", metavar="FILE", help="Also writes the JSON there."),
    kernel: str = typer.Option(None, "-k", "--kernel", metavar="EXPR", help="Only kernels whose name matches."),
    arch: str = _ARCH,
    timeout: float = typer.Option(
        None, "--timeout", metavar="S", min=0.001, max=_LONGEST_S, help="Limit of each run of nvdisasm."
    ),
    target: str = typer.Option(None, "--for", metavar="sm_XX", help="Says what a move to that GPU asks for."),
    rules: list[str] = _RULES,
    problem: str = typer.Option(None, "--problem", metavar="SPEC", help="The work, as gemm:4096,4096,4096,bf16."),
    useful_flops: str = typer.Option(None, "--useful-flops", metavar="N", help="Useful operations of one launch."),
    fail_on: list[str] = typer.Option([], "--fail-on", metavar="X", help="Exit 1 if X holds (repeatable)."),
    redact: bool = typer.Option(False, "--redact", help="Without user paths."),
    verbose: bool = typer.Option(False, "--verbose", "-v", help="Everything in the text."),
    no_color: bool = typer.Option(False, "--no-color", help="Text without colours."),
) -> int:
    from diagnose.job import run_static

    return run_static(
        Path(file),
        form=_chosen("--format", form, _FORMATS),
        json_file=Path(json_file) if json_file else None,
        kernel=kernel,
        arch=arch,
        timeout_s=timeout,
        fail_on=tuple(fail_on),
        redacted=redact,
        verbose=verbose,
        color=not no_color,
        target=target,
        packs=tuple(rules),
        problem=problem,
        useful_flops=useful_flops,
    )


@verbs_app.command(help="Two reports, or JSON files of diagnose, kernel by kernel.")
def compare(
    before: str = typer.Argument(..., metavar="BEFORE"),
    after: str = typer.Argument(..., metavar="AFTER"),
    form: str = typer.Option("text", "--format", metavar="text|json|md", help="What goes to stdout."),
    json_file: str = typer.Option(None, "--json", metavar="FILE", help="Also writes the JSON there."),
    by: str = typer.Option("name", "--by", metavar="name|order", help="order: the n-th kernel with the n-th."),
    noise: float = typer.Option(3.0, "--noise", metavar="PERCENT", help="A smaller difference of times is the same."),
    fail_on: list[str] = typer.Option([], "--fail-on", metavar="regression", help="Exit 1 if a kernel got slower."),
    html: str = typer.Option(None, "-o", "--output", metavar="FILE", help="Also writes the comparison as HTML there."),
    redact: bool = typer.Option(False, "--redact", help="Without hosts, user paths, arguments and source text."),
    rules: list[str] = _RULES,
    config: str = _CONFIG,
    verbose: bool = typer.Option(False, "--verbose", "-v", help="Every kernel in the text."),
    no_color: bool = typer.Option(False, "--no-color", help="Text without colours."),
) -> int:
    from diagnose import compare as comparing

    if not 0 <= noise < 100:
        raise DiagnoseError(f"--noise {noise:g} is no percentage from 0 to 100", "--noise 3")
    for gate in fail_on:
        _chosen("--fail-on", gate, ("regression",))

    return comparing.run(
        before,
        after,
        form=_chosen("--format", form, ("text", "json", "md")),
        json_file=Path(json_file) if json_file else None,
        by=_chosen("--by", by, ("name", "order")),
        noise=noise / 100,
        fail_on=tuple(fail_on),
        rules=tuple(Path(one) for one in rules),
        config_file=Path(config) if config else None,
        verbose=verbose,
        color=not no_color,
        html=Path(html) if html else None,
        redacted=redact,
    )


@verbs_app.command(
    help="""One variable swept on a bundled kernel or on a program of yours, with a curve and what it means.

    \b
      diagnose ablate --list
      diagnose ablate STUDY
      diagnose ablate --sweep N=256,512,1024 -- ./a.out --n {N}
      diagnose ablate FILE.json     shows a recorded study: no GPU
    """
)
def ablate(
    words: list[str] = typer.Argument(None, metavar="STUDY | -- PROGRAM [ARGS]...", show_default=False),
    list_: bool = typer.Option(False, "--list", help="The studies."),
    sweep: str = typer.Option(None, "--sweep", metavar="N=V,V,...", help="Sweeps {N} in a program's command line."),
    pattern: str = typer.Option(
        None, "--time", metavar="REGEX", help="A program's own time: group 1 in its output. Else ncu's duration."
    ),
    unit: str = typer.Option("us", "--time-unit", metavar="us|ms|s|ns", help="The unit of --time."),
    kernel: str = typer.Option(
        None, "-k", "--kernel", metavar="NAME", help="The program's kernel: name or regex:EXPR."
    ),
    work: str = typer.Option(None, "--work", metavar="EXPR", help="Its operations (2*N*N*N): rates are compared then."),
    tests: list[str] = typer.Option(
        [], "--tests", metavar="RULE", help="The finding that the sweep tests (repeatable)."
    ),
    budget: float = typer.Option(120.0, "--budget", metavar="S", min=1.0, help="Stops after S seconds."),
    interval: float = typer.Option(1.0, "--interval", metavar="PERCENT", min=0.05, help="Repeats until so narrow."),
    timeout: float = typer.Option(
        60.0, "--timeout", metavar="S", min=0.001, max=_LONGEST_S, help="Limit of one run of the program."
    ),
    no_profile: bool = typer.Option(False, "--no-profile", help="Only times: no ncu beside them."),
    ncu: str = typer.Option(None, "--ncu", metavar="PATH", help="The ncu (else DIAGNOSE_NCU, PATH, CUDA's places)."),
    resume: str = typer.Option(None, "--resume", metavar="FILE", help="Goes on with an interrupted study's JSON."),
    form: str = _LIST_FORMAT,
    json_file: str = typer.Option(
        None, "--json", metavar="FILE", help="Names the JSON (diagnose-ablation-STUDY.json)."
    ),
    html: str = typer.Option(None, "-o", "--output", metavar="FILE", help="Names the HTML."),
    no_html: bool = typer.Option(False, "--no-html", help="Writes no HTML."),
    rules: list[str] = _RULES,
    no_color: bool = typer.Option(False, "--no-color", help="Text without colours."),
) -> int:
    from diagnose import installed
    from diagnose.ablate import command
    from diagnose.ablate.run import Limits

    wants_json = _json_wanted(form)
    packs = tuple(installed.resolve(Path(one)) for one in rules)
    if list_:
        rows = command.table(packs)
        if wants_json:
            _print_json({"studies": rows})
        else:
            _print_table([(row["name"], str(row["points"]), row["title"]) for row in rows])
        return EXIT_OK
    return command.execute(
        command.Job(
            words=tuple(words or ()),
            sweep=sweep,
            pattern=pattern,
            unit=unit,
            kernel=kernel,
            work=work,
            tests=tuple(tests),
            limits=Limits(width=interval / 100, budget_s=budget, timeout_s=timeout),
            profiles=not no_profile,
            ncu=ncu,
            resume=Path(resume) if resume else None,
            form=form,
            json_file=Path(json_file) if json_file else None,
            html=Path(html) if html else None,
            no_html=no_html,
            rules=packs,
            color=not no_color,
        ),
    )


@verbs_app.command(
    "check-races",
    help="""Memory errors, races and misused barriers of a program, by compute-sanitizer, before its speed matters.

    Runs PROGRAM (or kernel:NAME) once under each tool, with an empty stdin. Options come before the program.

    \b
    Exit codes: 0 no error found, 1 an error was found, 2 wrong usage,
    3 a tool or the program did not reach its end
    """,
)
def check_races(
    target: list[str] = typer.Argument(None, metavar="PROGRAM [ARGS]...", show_default=False),
    tools: list[str] = typer.Option(
        [], "--tool", metavar="memcheck|racecheck|synccheck", help="Only this one (repeatable)."
    ),
    kernel: str = typer.Option(None, "-k", "--kernel", metavar="NAME", help="Only kernels with this in their name."),
    sanitizer: str = typer.Option(
        None,
        "--sanitizer",
        metavar="PATH",
        help="The compute-sanitizer (else DIAGNOSE_SANITIZER, PATH, CUDA's places).",
    ),
    timeout: float = typer.Option(
        None, "--timeout", metavar="S", min=0.001, max=_LONGEST_S, help="Limit of each tool's run."
    ),
    form: str = _LIST_FORMAT,
    no_color: bool = typer.Option(False, "--no-color", help="Text without colours."),
) -> int:
    from diagnose import races
    from diagnose.collect.sanitizer import TOOLS

    wants_json = _json_wanted(form)
    if not target:
        raise DiagnoseError("no program was named", "diagnose check-races ./a.out")
    chosen = tuple(dict.fromkeys(_chosen("--tool", tool, TOOLS) for tool in tools)) or TOOLS
    job = races.Job(tuple(target), chosen, kernel, sanitizer, timeout, wants_json, not no_color)
    return races.run(job)


@verbs_app.command(
    help="""What a matrix descriptor of wgmma or tcgen05 says, and what is wrong with it; or the descriptor of fields.

    \b
      diagnose descriptor 0x4000004000010040
      diagnose descriptor --address 0x400 --leading 16 --stride 1024 --swizzle 128
      diagnose descriptor --instruction f16 0x8200490

    \b
    Exit codes: 0 nothing illegal, 1 something illegal, 2 wrong usage or fields that no descriptor can hold
    """
)
def descriptor(
    value: str = typer.Argument(None, metavar="[VALUE]", show_default=False),
    address: str = typer.Option(None, "--address", metavar="BYTES", help="Start in shared memory."),
    leading: str = typer.Option(None, "--leading", metavar="BYTES", help="Leading dimension byte offset (16)."),
    stride: str = typer.Option(None, "--stride", metavar="BYTES", help="Stride byte offset (eight dense rows)."),
    swizzle: str = typer.Option(None, "--swizzle", metavar="MODE", help="none, 32, 64, 128, tcgen05 also 128-32."),
    base_offset: str = typer.Option("0", "--base-offset", metavar="N", help="0 to 7."),
    tcgen05: bool = typer.Option(False, "--tcgen05", help="The form of Blackwell's tcgen05."),
    instruction: str = typer.Option(
        None, "--instruction", metavar="KIND", help="VALUE is tcgen05's instruction descriptor: f16, tf32, f8f6f4, i8."
    ),
    major: str = typer.Option("k", "--major", metavar="k|mn", help="How the instruction reads the matrix."),
    form: str = _LIST_FORMAT,
) -> int:
    from diagnose import descriptor as descriptors
    from diagnose.output import to_stdout

    wants_json = _json_wanted(form)
    fields = descriptors.Fields(address, leading, stride, swizzle, base_offset)
    kind = _chosen("--instruction", instruction, tuple(descriptors.KINDS)) if instruction else None
    found = descriptors.examine(value, fields, tcgen05, kind, _chosen("--major", major, ("k", "mn")))
    if wants_json:
        _print_json(found)
    else:
        to_stdout(descriptors.text(found))
    return EXIT_OK if found["legal"] else EXIT_GATE


# --- entry ---


def _options_of(command: Any) -> dict[str, bool]:
    """Option name -> whether a value follows, of a command and those below it."""
    found = {"--help": False}
    for parameter in command.params:
        for name in (*parameter.opts, *parameter.secondary_opts):
            if name.startswith("-"):
                found[name] = not parameter.is_flag
    for inner in getattr(command, "commands", {}).values():
        found.update(_options_of(inner))
    return found


def _usage(error: Any, names: OptionNames, arguments: Sequence[str]) -> DiagnoseError:
    from diagnose.packfile import nearest

    context = getattr(error, "ctx", None)
    verb = context.command_path if context else "diagnose"
    option = getattr(error, "option_name", None)
    if option is not None and type(error).__name__ == "NoSuchOption":
        known = [*names.job, *names.verbs]
        if option in known:  # of another command
            return DiagnoseError(f"{verb} has no option {option}", f"{verb} --help")
        return DiagnoseError(f"there is no option {option}{nearest(option, known)}", "diagnose --help")
    message = str(error.format_message() if hasattr(error, "format_message") else error).rstrip(".")
    if seen := _refused(error, arguments):
        message = f"{seen[0]} {seen[1]!r}: {message.partition(': ')[2].partition(',')[0]}"
    return DiagnoseError(message[:1].lower() + message[1:], f"{verb} --help")


def _refused(error: Any, arguments: Sequence[str]) -> tuple[str, str] | None:
    """The option that refused its value, and that value; None where the error is of another kind."""
    spellings = getattr(getattr(error, "param", None), "opts", ())
    if type(error).__name__ != "BadParameter":
        return None
    for at, word in enumerate(arguments):
        name, equals, value = word.partition("=")
        if name in spellings and (equals or at + 1 < len(arguments)):
            return name, value if equals else arguments[at + 1]
    return None


def _uninterrupted(step: Callable[..., Any]) -> Callable[..., Any]:
    """`step`, where an interrupt becomes the pair of lines before typer makes a bare exit code of it."""

    def call(*arguments: Any, **options: Any) -> Any:
        try:
            return step(*arguments, **options)
        except KeyboardInterrupt:
            raise DiagnoseError("interrupted", "run the same command again", EXIT_INTERRUPTED) from None

    return call


def _dispatch(arguments: Sequence[str]) -> int:
    commands = typer.main.get_command(job_app), typer.main.get_command(verbs_app)
    names = OptionNames(_options_of(commands[0]), _options_of(commands[1]))
    if not arguments:
        arguments = ["--help"]
    call = commandline.read(arguments, names)
    command: Any = commands[0] if call.verb is None else commands[1]
    command.make_context, command.invoke = _uninterrupted(command.make_context), _uninterrupted(command.invoke)
    try:
        result = command.main(args=list(call.arguments), prog_name="diagnose", standalone_mode=False)
    except _UsageError as error:
        raise _usage(error, names, call.arguments) from None
    except typer.Exit as error:
        return int(error.exit_code)
    except typer.Abort:
        raise KeyboardInterrupt from None
    return result if isinstance(result, int) else EXIT_OK


def _wants_color_off() -> None:
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace" if stream is sys.stderr else "replace")


# What a name or a disk can be to blame for anywhere, and the hint.
_OF_THE_SYSTEM = {
    errno.ENOSPC: "df -h    (is a disk full?)",
    errno.EDQUOT: "quota    (or another folder: -o DIR/report.html)",
    errno.ENAMETOOLONG: "give it a shorter name",
}


def _folder_is_gone() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; every failure ends in one `error:` and one `hint:` line. Returns the exit code."""
    from diagnose import output

    gc.set_threshold(100_000)  # a short run with much data and few cycles: looking for them often took a tenth of it
    output.open_streams()
    _wants_color_off()
    try:
        code = _dispatch(list(sys.argv[1:] if arguments is None else arguments))
        sys.stdout.flush()
        return code
    except DiagnoseError as error:
        output.report_error(error)
        return error.exit_code
    except KeyboardInterrupt:
        output.report_error(DiagnoseError("interrupted", "run the same command again", EXIT_INTERRUPTED))
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        output.quiet_stdout()
        return EXIT_OK
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _OF_THE_SYSTEM:
            what = (
                f"{error.filename}: {error.strerror}" if error.filename else f"cannot write to stdout: {error.strerror}"
            )
            output.report_error(DiagnoseError(what, _OF_THE_SYSTEM[error.errno]))
            if not error.filename:
                output.quiet_stdout()
            return EXIT_USAGE
        if os.environ.get("DIAGNOSE_DEBUG"):
            raise
        if isinstance(error, FileNotFoundError) and _folder_is_gone():
            gone = DiagnoseError(
                "the current folder was deleted", "cd ~    (or another folder, and run it again there)"
            )
            output.report_error(gone)
            return EXIT_USAGE
        what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        again = "run it again with DIAGNOSE_DEBUG=1 and report the traceback: this is a bug in diagnose"
        output.report_error(DiagnoseError(f"unexpected {what}", again))
        return EXIT_USAGE


if __name__ == "__main__":
    sys.exit(main())
