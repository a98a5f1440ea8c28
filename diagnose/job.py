"""The main job from options to exit code: names the files, runs or reads, prints, writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diagnose import api, config, output, problem, redact
from diagnose.collect.preflight import free_paths
from diagnose.collect.run import Collected
from diagnose.commandline import KERNEL_PREFIX, is_report
from diagnose.errors import EXIT_INTERRUPTED, DiagnoseError


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
    problem: str | None = None
    useful_flops: str | None = None
    all_facts: bool = False
    kernel: str | None = None
    max_launches: int = 50
    clock_control: str = "none"
    cache_control: str = "all"
    replay: str = "kernel"
    ncu: str | None = None
    timeout_s: float | None = None
    target_output: Path | None = None
    redact: bool = False
    no_source: bool = False
    verbose: bool = False
    color: bool = True


def _html_name(job: Job) -> Path:
    if job.html is None:
        return Path(output.HTML_NAME)
    if job.html.is_dir():
        return job.html / output.HTML_NAME
    if not job.html.parent.is_dir():
        raise DiagnoseError(f"the folder {job.html.parent} of -o does not exist", f"mkdir -p {job.html.parent}")
    return job.html


def _files(job: Job) -> tuple[Path | None, Path | None]:
    """The HTML and the profile, under names that are free. Fails here, before anything runs, where one cannot be."""
    for path in (job.json_file, job.target_output):
        if path is not None:
            output.check_target(path)
    if job.no_html and job.html is not None and not job.live:
        raise DiagnoseError("-o and --no-html exclude each other", "leave one of them out")
    named = _html_name(job)
    profile = named.with_suffix(".ncu-rep") if job.live else None
    return free_paths(None if job.no_html else named, profile)


def _redacted_progress(job: Job) -> Callable[[str], None]:
    if not job.redact:
        return output.to_stderr
    words = redact.command_words(" ".join(("x", *job.target)))
    redactor = redact.Redactor(arguments=words)
    return lambda text: output.to_stderr(redactor.text(text))


def run(job: Job) -> int:
    """Does the job; returns the exit code."""
    settings = config.load(job.config)
    gates = (*settings.fail_on, *job.fail_on)
    options = api.Options(
        rules=(*settings.packs, *job.rules),
        disable=settings.disable,
        problem=job.problem,
        useful_flops=job.useful_flops,
        kernel=job.kernel,
        all_facts=job.all_facts,
        source=not (job.no_source or job.redact),
        timeout_s=job.timeout_s,
        ncu=job.ncu,
    )
    problem.declared(job.problem, job.useful_flops)
    html, profile = _files(job)
    try:
        packs = api.load_rules(options)
        api.check_gates(gates, packs)
        if job.live:
            assert profile is not None
            result = _profiled(job, options, profile, packs)
        else:
            result = api.diagnose_reports(_reports(job), options, packs)
    except BaseException:
        if profile is not None and profile.exists() and not profile.stat().st_size:
            profile.unlink()  # the name that was reserved
        raise
    if isinstance(result, Collected):
        raise KeyboardInterrupt
    document = {**result.document, "warnings": [*settings.warnings, *result.document["warnings"]]}
    if job.no_source:
        document = redact.without_source(document)
    if job.redact:
        document = redact.document(document, redact.command_words(" ".join(("x", *job.target))) if job.live else ())
    return _deliver(job, document, html, gates, result.collected)


def _reports(job: Job) -> list[Path]:
    for word in job.target:
        if word.startswith(KERNEL_PREFIX):
            raise DiagnoseError(f"{word} stands beside recorded reports", f"diagnose {word}    (on its own)")
    return [Path(word) for word in job.target]


def _profiled(job: Job, options: api.Options, profile: Path, packs: Any) -> api.Result | Collected:
    live = api.Live(
        profile=profile,
        max_launches=job.max_launches,
        clock_control=job.clock_control,
        cache_control=job.cache_control,
        replay=job.replay,
        target_output=job.target_output,
    )
    progress = _redacted_progress(job)
    clocks = "not locked" if job.clock_control == "none" else "locked to base by ncu"
    caches = "flushed before each pass" if job.cache_control == "all" else "left as they are"
    progress(f"clocks: {clocks} (--clock-control {job.clock_control})")
    progress(f"caches: {caches} (--cache-control {job.cache_control})")
    if job.target[0].startswith(KERNEL_PREFIX):
        if len(job.target) > 1:
            raise DiagnoseError(
                f"{job.target[0]} takes no arguments, got {' '.join(job.target[1:])}",
                f"diagnose {job.target[0]},param=value    (diagnose kernels list shows the parameters)",
            )
        return api.diagnose_reference_kernel(job.target[0], live, options, progress, packs)
    return api.diagnose_program(job.target, live, options, progress, packs)


def _deliver(
    job: Job, document: Mapping[str, Any], html: Path | None, gates: tuple[str, ...], collected: Collected | None
) -> int:
    if job.form != "text":
        for warning in document["warnings"]:
            output.to_stderr(f"warning: {warning}")
    if job.json_file is not None:
        output.write_file(job.json_file, output.render(document, "json"))
    written = None
    if html is not None:
        from diagnose.render import html as page

        written = output.write_new(html, page.render(document))
    output.print_document(document, job.form, verbose=job.verbose, color=job.color)
    held = api.gates_that_hold(document, gates)
    for line in held:
        output.to_stderr(f"gate: {line}")
    if collected is not None and collected.profile is not None:
        output.to_stderr(f"profile: {collected.profile}" + (" (not redacted)" if job.redact else ""))
    if job.json_file is not None:
        output.to_stderr(f"json: {job.json_file}")
    if written is not None:
        output.to_stderr(f"report: {written}")
    if collected is not None and collected.interrupted:
        return EXIT_INTERRUPTED
    return api.exit_code(document, gates)


__all__ = ["Job", "is_report", "run"]
