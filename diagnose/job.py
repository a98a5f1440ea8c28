"""The main job from options to exit code: names the files, runs or reads, prints, writes."""

from __future__ import annotations

import datetime
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diagnose import accept, baseline, budget, config, output, problem, redact
from diagnose.bars import bar
from diagnose.collect import launchers
from diagnose.collect.preflight import free_paths
from diagnose.commandline import KERNEL_PREFIX
from diagnose.errors import EXIT_GATE, EXIT_INTERRUPTED, EXIT_OK, DiagnoseError
from diagnose.report_file import is_report_name

if TYPE_CHECKING:
    from diagnose.api import Options, Result
    from diagnose.collect.run import Collected
    from diagnose.rules import Pack


@dataclass(frozen=True)
class Job:
    """The options of the main job, checked one by one."""

    target: tuple[str, ...]
    live: bool
    form: str = "text"
    json_file: Path | None = None
    html: Path | None = None
    no_html: bool = False
    rules: tuple[Path, ...] = ()
    config: Path | None = None
    fail_on: tuple[str, ...] = ()
    baseline: Path | None = None
    problem: str | None = None
    useful_flops: str | None = None
    library: bool = True
    all_facts: bool = False
    kernel: str | None = None
    max_launches: int | None = None
    clock_control: str = "none"
    cache_control: str = "all"
    replay: str = "kernel"
    graph: str = "node"
    ncu: str | None = None
    timeout_s: float | None = None
    target_output: Path | None = None
    mode: str | None = None
    survey: str | None = None
    top: int | None = None
    coverage: float | None = None
    stop: bool | None = None
    demangled: bool = False
    nvtx: tuple[str, ...] = ()
    launch_skip: int = 0
    launch_count: int | None = None
    devices: tuple[int, ...] = ()
    profiler_range: bool = False
    process: str | None = None
    resume: tuple[Path, ...] = ()
    studies: tuple[Path, ...] = ()
    races: tuple[Path, ...] = ()
    report_url: str | None = None
    redact: bool = False
    no_source: bool = False
    verbose: bool = False
    color: bool = True


# What only means something where a program is run, by its field of Job.
_OF_RUNS = {
    "max_launches": "--max-launches",
    "clock_control": "--clock-control",
    "cache_control": "--cache-control",
    "replay": "--replay",
    "graph": "--graph",
    "target_output": "--target-output",
    "mode": "--deep and --single-pass",
    "survey": "--survey",
    "top": "--top",
    "coverage": "--coverage",
    "stop": "--stop",
    "nvtx": "--nvtx",
    "launch_skip": "--launch-skip",
    "launch_count": "--launch-count",
    "devices": "--device",
    "profiler_range": "--profiler-range",
    "process": "--process",
    "resume": "--resume",
}


@dataclass
class _Preparation:
    """Loads the rules, and what is imported late, while a child process reads the report."""

    job: Job
    settings: config.Config
    gates: tuple[str, ...]
    packs: tuple[Pack, ...] = ()
    error: BaseException | None = None
    thread: threading.Thread | None = field(default=None, repr=False)

    def start(self) -> _Preparation:
        """In the background, where the reader's child leaves this process idle."""
        self.thread = threading.Thread(target=self._work, daemon=True)
        self.thread.start()
        return self

    def _work(self) -> None:
        try:
            from diagnose import api

            self.packs = api.load_rules(_options(self.job, self.settings))
            api.check_gates(self.gates, self.packs)
            api.warm_up()
            if self.thread is not None:
                self._compile()
        except BaseException as error:
            self.error = error

    def _compile(self) -> None:
        if not self.job.no_html:
            from diagnose.render import html

            html.render({})  # compiles the templates

    def get(self) -> tuple[Pack, ...]:
        """The packs; raises what went wrong."""
        if self.thread is None:
            self._work()
        else:
            self.thread.join()
        if self.error is not None:
            raise self.error
        if self.thread is None:  # a live run waits for other programs now
            threading.Thread(target=self._compile, daemon=True).start()
        return self.packs


def _options(job: Job, settings: config.Config) -> Options:
    from diagnose.api import Options

    return Options(
        rules=(*settings.packs, *job.rules),
        disable=settings.disable,
        problem=job.problem,
        useful_flops=job.useful_flops,
        library=job.library,
        kernel=job.kernel,
        all_facts=job.all_facts,
        page=not job.no_html,
        source=not (job.no_source or job.redact),
        timeout_s=job.timeout_s,
        ncu=job.ncu,
    )


def _html_name(job: Job) -> Path:
    if job.html is None:
        return Path(output.HTML_NAME)
    if is_report_name(job.html.name):
        page = job.html.name.partition(".ncu-rep")[0] or "report"
        raise DiagnoseError(
            f"-o {job.html} names a report, and -o is for the HTML", f"-o {page}.html    (the profile stands beside it)"
        )
    if job.html.is_dir():
        return job.html / output.HTML_NAME
    if job.html.exists() and not job.html.is_file():
        raise DiagnoseError(f"-o {job.html} is no regular file", "diagnose --no-html …    (writes none)")
    if not job.html.parent.is_dir():
        raise DiagnoseError(f"the folder {job.html.parent} of -o does not exist", f"mkdir -p {job.html.parent}")
    return job.html


def _ranked(job: Job, path: Path) -> Path:
    """The name with this process's rank, where it is one of several that profile programs: their files never meet."""
    return launchers.ranked(path, launchers.placement()) if job.live else path


def _files(job: Job) -> tuple[Path | None, Path | None]:
    """The HTML and the profile, under names that are free. Fails here, before anything runs, where one cannot be."""
    if job.json_file is not None:
        output.check_json(job.json_file)
    if job.target_output is not None:
        output.check_target(job.target_output)
    if job.no_html and job.html is not None and not job.live:
        raise DiagnoseError("-o and --no-html exclude each other", "leave one of them out")
    named = _ranked(job, _html_name(job))
    profile = named.with_suffix(".ncu-rep") if job.live else None
    html, profile = free_paths(None if job.no_html else named, profile)
    try:
        output.check_apart({"-o": html, "--json": job.json_file, "--target-output": job.target_output})
    except DiagnoseError:
        if profile is not None:
            profile.unlink()  # it was reserved, empty
        raise
    return html, profile


def _own_words(job: Job) -> list[str]:
    """The arguments of a live target, which `--redact` keeps out of every message."""
    return redact.command_words(" ".join(("x", *job.target))) if job.live else []


def _cleaner(job: Job) -> Callable[[str], str]:
    """What is done to every message: nothing, or what `--redact` asks for."""
    return redact.Redactor(arguments=_own_words(job)).text if job.redact else str


def run(job: Job) -> int:
    """Does the job; returns the exit code."""
    try:
        return _run(job)
    except DiagnoseError as error:
        clean = _cleaner(job)
        raise DiagnoseError(clean(error.message), clean(error.hint), error.exit_code) from error


def _without_effect(job: Job) -> list[str]:
    """A warning for each option that chooses what to profile, given beside a report that is recorded already."""
    if job.live:
        return []
    plain = Job(job.target, live=False)
    given = [option for name, option in _OF_RUNS.items() if getattr(job, name) != getattr(plain, name)]
    return [f"{option} changes nothing here: it is for programs, and this is a recorded report" for option in given]


def _run(job: Job) -> int:
    settings = config.load(job.config)
    gates = (*settings.fail_on, *job.fail_on)
    problem.declared(job.problem, job.useful_flops)
    if job.report_url is not None:
        from diagnose.render import links

        links.checked(job.report_url)
    job = replace(
        job,
        json_file=job.json_file and _ranked(job, job.json_file),
        target_output=job.target_output and _ranked(job, job.target_output),
    )
    before = _baseline(job, settings, gates)
    html, profile = _files(job)
    preparation = _Preparation(job, settings, gates)
    result = (
        _recorded(job, settings, preparation) if profile is None else _profiled(job, settings, profile, preparation)
    )
    if result is None:
        raise KeyboardInterrupt
    told = [*_without_effect(job), *settings.warnings, *result.document["warnings"]]
    document: dict[str, Any] = {**result.document, "warnings": told}
    from diagnose import races
    from diagnose.ablate import outcomes

    document = races.attach(outcomes.attach(document, outcomes.read(job.studies)), job.races)
    document = accept.apply(document, settings.accepted, datetime.date.today())
    if before is not None:
        document = baseline.apply(document, *before)
    if settings.budgets:
        document["budgets"] = budget.check(document, settings.budgets)
    if job.no_source:
        document = redact.without_source(document)
    if job.redact:
        document = redact.document(document, _own_words(job))
    return _deliver(job, document, html, gates, result.collected)


def _baseline(job: Job, settings: config.Config, gates: Sequence[str]) -> tuple[Mapping[str, Any], str] | None:
    """The document to hold this run against, and its name. Read first, so that a bad one fails before anything runs."""
    path = job.baseline or settings.baseline
    if path is None:
        if "regression" in gates:
            raise DiagnoseError("--fail-on regression has nothing to compare with", "add --baseline FILE")
        return None
    from diagnose import api, compare

    options = _options(job, settings)
    return compare.load(path, lambda report: api.diagnose_reports([report], options).document), str(path)


def _recorded(job: Job, settings: config.Config, preparation: _Preparation) -> Result:
    for word in job.target:
        if word.startswith(KERNEL_PREFIX):
            raise DiagnoseError(f"{word} stands beside recorded reports", f"diagnose {word}    (on its own)")
    from diagnose.reader import read_reports

    with bar("reading reports") as step:
        profile = read_reports(
            [Path(word) for word in job.target],
            timeout_s=job.timeout_s or 300.0,
            source=not (job.no_source or job.redact),
            ncu=Path(job.ncu) if job.ncu else None,
            meanwhile=preparation.start,
            step=step,
        )
    packs = preparation.get()
    from diagnose import api

    with bar("diagnosing kernels") as step:
        return api.Result(api.examine(profile, packs, _options(job, settings), step=step), profile)


def _profiled(job: Job, settings: config.Config, profile: Path, preparation: _Preparation) -> Result | None:
    """None where the run was interrupted before anything was written."""
    from diagnose import api
    from diagnose.collect.run import Collected

    try:
        packs = preparation.get()
        live = api.Live(
            profile=profile,
            max_launches=job.max_launches,
            clock_control=job.clock_control,
            cache_control=job.cache_control,
            replay=job.replay,
            graph=job.graph,
            target_output=job.target_output,
            mode=job.mode or settings.collect.mode or "adaptive",
            survey=job.survey or settings.collect.survey or "auto",
            top=job.top or settings.collect.top or api.Live.top,
            coverage=job.coverage or settings.collect.coverage or api.Live.coverage,
            stop=job.stop if job.stop is not None else settings.collect.stop,
            demangled=job.demangled,
            nvtx=job.nvtx,
            skip=job.launch_skip,
            count=job.launch_count,
            devices=job.devices,
            profiler_range=job.profiler_range,
            process=job.process,
            resume=job.resume,
        )
        progress, options = _progress(job), _options(job, settings)
        if not job.target[0].startswith(KERNEL_PREFIX):
            result = api.diagnose_program(job.target, live, options, progress, packs)
        elif len(job.target) > 1:
            raise DiagnoseError(
                f"{job.target[0]} takes no arguments, got {' '.join(job.target[1:])}",
                f"diagnose {job.target[0]},param=value    (diagnose kernels list shows the parameters)",
            )
        else:
            result = api.diagnose_reference_kernel(job.target[0], live, options, progress, packs)
    except BaseException:
        if profile.exists() and not profile.stat().st_size:
            profile.unlink()  # the name that was reserved
        raise
    return None if isinstance(result, Collected) else result


def _progress(job: Job) -> Callable[[str], None]:
    """Progress on stderr; how clocks and caches are treated is said when profiling begins."""
    clean = _cleaner(job)
    clocks = "not locked" if job.clock_control == "none" else "locked to base by ncu"
    caches = "flushed before each pass" if job.cache_control == "all" else "left as they are"
    conditions = [
        f"clocks: {clocks} (--clock-control {job.clock_control})",
        f"caches: {caches} (--cache-control {job.cache_control})",
    ]

    def progress(text: str) -> None:
        output.to_stderr(clean(text))
        while conditions and text.startswith("ncu "):
            output.to_stderr(conditions.pop(0))

    return progress


def _deliver(
    job: Job, document: Mapping[str, Any], html: Path | None, gates: Sequence[str], collected: Collected | None
) -> int:
    from diagnose import api, report

    clean = _cleaner(job)
    if job.form != "text":
        for warning in document["warnings"]:
            output.to_stderr(f"warning: {warning}")
    written = None
    if html is not None:
        from diagnose.render import html as renderer

        with bar("writing the page") as step:
            text = renderer.render(document, step)
        written = output.write_new(html, text)
    document = report.without_page(dict(document), job.all_facts)
    if job.json_file is not None:
        output.write_file(job.json_file, output.render(document, "json"))
    from diagnose.render import links

    page = links.checked(job.report_url) or links.of_file(written, job.form, job.redact)
    output.print_document(document, job.form, verbose=job.verbose, color=job.color, page=page)
    for line in (
        *api.gates_that_hold(document, gates),
        *api.budgets_broken(document),
        *api.budgets_broken(document, None),
    ):
        output.to_stderr(f"gate: {line}")
    if collected is not None and collected.profile is not None:
        output.to_stderr(clean(f"profile: {collected.profile}") + (" (not redacted)" if job.redact else ""))
    if job.json_file is not None:
        output.to_stderr(clean(f"json: {job.json_file}"))
    if written is not None:
        output.to_stderr(clean(f"report: {written}"))
    if collected is not None and collected.interrupted:
        return EXIT_INTERRUPTED
    return api.exit_code(document, gates)


def run_static(
    path: Path,
    *,
    form: str,
    json_file: Path | None,
    kernel: str | None,
    arch: str | None,
    timeout_s: float | None,
    fail_on: tuple[str, ...],
    redacted: bool,
    verbose: bool,
    color: bool,
    target: str | None = None,
    packs: tuple[str, ...] = (),
    problem: str | None = None,
    useful_flops: str | None = None,
) -> int:
    """`diagnose static`: the machine code of a binary, with no GPU and no run."""
    from diagnose import api, installed, static
    from diagnose.sass import disassemble

    if json_file is not None:
        output.check_json(json_file)
    asked = static.Asked(target, tuple(str(installed.resolve(Path(pack))) for pack in packs), problem, useful_flops)
    api.check_gates(fail_on, static.packs_for(asked))
    limit = timeout_s if timeout_s is not None else disassemble.TIMEOUT_S
    document: Mapping[str, Any] = static.analyse(path, kernel=kernel, arch=arch, timeout_s=limit, asked=asked)
    if redacted:
        document = redact.document(document)
    if form != "text":
        for warning in document.get("warnings", ()):
            output.to_stderr(f"warning: {warning}")
    if json_file is not None:
        output.write_file(json_file, output.render(document, "json"))
    output.print_document(document, form, verbose=verbose, color=color)
    held = api.gates_that_hold(document, fail_on)
    for line in held:
        output.to_stderr(f"gate: {line}")
    if json_file is not None:
        output.to_stderr(f"json: {json_file}")
    return EXIT_GATE if held else EXIT_OK
