"""`diagnose ablate` from its options to its exit code: the study, the run, the files, what is printed."""

from __future__ import annotations

import datetime
import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from diagnose import api, output
from diagnose.ablate import document, plan, run, state, sweep, timing
from diagnose.ablate import study as studies
from diagnose.ablate.study import Study
from diagnose.collect.host import gpus
from diagnose.collect.kernels import load_kernels
from diagnose.collect.preflight import check_writable, resolve_target
from diagnose.errors import EXIT_NOTHING_MEASURED, EXIT_OK, DiagnoseError
from diagnose.render import ablation


@dataclass(frozen=True)
class Job:
    """The options of `diagnose ablate`. `words` are the study, or the program after `--sweep … --`."""

    words: tuple[str, ...]
    sweep: str | None = None
    pattern: str | None = None
    unit: str = "us"
    kernel: str | None = None
    work: str | None = None
    tests: tuple[str, ...] = ()
    limits: run.Limits = field(default_factory=run.Limits)
    profiles: bool = True
    ncu: str | None = None
    resume: Path | None = None
    form: str = "text"
    json_file: Path | None = None
    html: Path | None = None
    no_html: bool = False
    rules: tuple[Path, ...] = ()
    color: bool = True


def table(packs: tuple[Path, ...]) -> list[dict[str, Any]]:
    """The rows of `diagnose ablate --list`."""
    rows, kernels = [], load_kernels()
    for name, path in studies.files(packs).items():
        one = studies.load(path, kernels)
        rows.append(
            {
                "name": name,
                "title": one.title,
                "article": one.article["variable"] if one.article else None,
                "tests": list(one.tests),
                "points": len(plan.points(one)),
            }
        )
    return rows


def execute(job: Job) -> int:
    """Runs or shows what was asked for. Exit 0 where something was measured or shown."""
    if job.sweep is None and len(job.words) == 1 and job.words[0].endswith(".json"):
        found = document.read(Path(job.words[0]))
        return _show(job, found, None)
    study, source = _study(job)
    return _measure(job, study, source)


def _study(job: Job) -> tuple[Study, timing.Source]:
    if job.sweep is not None:
        source = timing.source_of(job.pattern, job.unit, job.kernel, job.ncu)
        study = sweep.from_words(job.sweep, job.words, job.tests, job.kernel, job.work)
        resolve_target(study.variants[0].command)  # a program that is not there fails now
        return study, source
    if not job.words:
        raise DiagnoseError("no study was named", "diagnose ablate --list    (or --sweep N=256,512 -- ./a.out --n {N})")
    if len(job.words) > 1:
        raise DiagnoseError(
            f"a study takes no program, got {' '.join(job.words[1:])}",
            "diagnose ablate --sweep N=256,512 -- PROGRAM {N}",
        )
    for option, value in (("--time", job.pattern), ("--kernel", job.kernel), ("--work", job.work)):
        if value is not None:
            raise DiagnoseError(f"{option} goes with --sweep: a study says its own", f"leave {option} out")
    return studies.find(job.words[0], job.rules), timing.Source("result-line")


def _measure(job: Job, study: Study, source: timing.Source) -> int:
    html = _html(job, study)
    present = gpus()
    gpu = present[0] if present else None
    if gpu is None and job.sweep is None:
        raise DiagnoseError(
            f"no GPU was found (nvidia-smi lists none), so {study.id} cannot run",
            "diagnose ablate FILE.json    (shows a recorded study; docs/ablations.md shows those of an H200)",
            EXIT_NOTHING_MEASURED,
        )
    now = _state(job, study, source, gpu.name if gpu else None)
    if gpu is not None:
        now.gpu, now.sm, now.driver = gpu.name, gpu.capability, gpu.driver
    built = plan.programs(study, None, output.to_stderr)
    kept = job.resume or _reserve(job, study)
    setup = run.Setup(
        source=source,
        built=built,
        packs=api.load_rules(api.Options(rules=job.rules)) if job.profiles else (),
        ncu=job.ncu,
        profiles=job.profiles,
        kernel=job.kernel,
    )

    def save(current: state.State) -> None:
        output.write_file(kept, document.text(document.build(study, current)))

    try:
        run.run(study, setup, job.limits, now, save, output.to_stderr)
    except KeyboardInterrupt:
        again = " ".join(["diagnose ablate", *(["--sweep", job.sweep, "…"] if job.sweep else [study.id])])
        output.to_stderr(f"interrupted: {again} --resume {kept} goes on")
        raise
    except DiagnoseError:
        if not any(one.samples for one in now.points.values()) and job.resume is None:
            kept.unlink(missing_ok=True)
        raise
    output.to_stderr(f"json: {kept}")
    return _show(job, document.build(study, now), html)


def _state(job: Job, study: Study, source: timing.Source, gpu: str | None) -> state.State:
    if job.resume is not None:
        found = state.restore(document.read(job.resume), study.fingerprint(), gpu, job.resume)
        return replace(found, time_source=source.words())
    return state.State(
        fingerprint=study.fingerprint(),
        seed=random.SystemRandom().randrange(2**31),
        date=datetime.date.today().isoformat(),
        time_source=source.words(),
    )


def _reserve(job: Job, study: Study) -> Path:
    """The JSON that every round is saved to: `--json`, or a free name in the current folder."""
    if job.json_file is not None:
        output.check_json(job.json_file)
        return job.json_file
    return output.write_new(Path(f"diagnose-ablation-{study.id}.json"), "")


def _html(job: Job, study: Study) -> Path | None:
    """Where the page goes. Fails before anything runs where it cannot."""
    if job.no_html:
        return None
    named = job.html or Path(f"diagnose-ablation-{study.id}.html")
    path = named / f"diagnose-ablation-{study.id}.html" if named.is_dir() else named
    if not path.parent.is_dir():
        raise DiagnoseError(f"the folder {path.parent} of -o does not exist", f"mkdir -p {path.parent}")
    check_writable(path.parent)
    return path


def _show(job: Job, found: Mapping[str, Any], html: Path | None) -> int:
    if html is None and job.html is not None and not job.no_html:
        html = job.html  # a recorded study: a page only where one is asked for
    if job.form == "json":
        output.print_text(document.text(dict(found)))
    else:
        output.show(lambda console: ablation.render(found, console), color=job.color)
    if html is not None:
        output.to_stderr(f"report: {output.write_new(html, ablation.render_html(found))}")
    return EXIT_OK
