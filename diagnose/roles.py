"""`diagnose kernels run … --timeline`: runs a kernel's stamped build, or reads recorded stamps, and shows the roles."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diagnose import output, stamps
from diagnose.collect.kernels import RunResult, parse_spec, run_kernel, stamped
from diagnose.errors import EXIT_GATE, EXIT_NOTHING_MEASURED, EXIT_OK, DiagnoseError

HTML_NAME = "diagnose-timeline.html"
_REPEATS = 5  # warm launches of the stamped build; the last one's stamps are kept


@dataclass(frozen=True)
class Job:
    """What is asked for. `spec` is a kernel with its parameters, or a file of stamps; `html` None writes no files."""

    spec: str
    arch: str | None
    block: int
    html: Path | None
    timeout_s: float
    as_json: bool
    color: bool


def run(job: Job) -> int:
    """Records or reads stamps, prints the table, writes the page and the stamps beside it. Returns the exit code."""
    if job.html is not None:
        output.check_target(job.html)
    measured: dict[str, Any] = {}
    ok = True
    if job.spec.endswith(".json"):
        found = stamps.read(Path(job.spec))
    else:
        found, ok, measured = _record(job)
    page = _write(job, found)
    if job.as_json:
        whole = {**measured, "timeline": stamps.document(found), "html": str(page) if page else None}
        output.to_stdout(json.dumps(whole, indent=1, allow_nan=False) + "\n")
    else:
        from diagnose.render import timeline as renderer

        output.show(lambda console: renderer.render(found, console), color=job.color)
    if page:
        output.to_stderr(f"page: {page}")
    return EXIT_OK if ok else EXIT_GATE


def _record(job: Job) -> tuple[stamps.Timeline, bool, dict[str, Any]]:
    """Runs the kernel without and with stamps, so that what they cost is known."""
    kernel, params = parse_spec(job.spec)
    build = stamped(kernel)

    def measure(which: Any, environment: Mapping[str, str]) -> RunResult:
        return run_kernel(which, params, job.arch, _REPEATS, job.timeout_s, output.to_stderr, environment)

    plain = measure(kernel, {})
    with tempfile.TemporaryDirectory(prefix="diagnose-") as folder:
        file = Path(folder) / "stamps.json"
        result = measure(build, {"DIAGNOSE_TIMELINE_FILE": str(file), "DIAGNOSE_TIMELINE_BLOCK": str(job.block)})
        if not file.is_file():
            raise DiagnoseError(
                f"{kernel.name} ended without writing its stamps",
                f"diagnose kernels run {job.spec}    (runs it without stamps)",
                EXIT_NOTHING_MEASURED,
            )
        found = stamps.read(file)
        if job.html is not None:
            kept = output.write_new(job.html.with_suffix(".json"), file.read_text("utf-8"))
            output.to_stderr(f"stamps: {kept}")
    output.to_stderr(result.line)
    if plain.time_us and result.time_us:
        output.to_stderr(
            f"without stamps: {plain.time_us:.1f} us; stamps cost {result.time_us / plain.time_us - 1:+.1%}"
        )
    measured = {"name": kernel.name, "params": params, **result.document(), "time_us_without_stamps": plain.time_us}
    return found, plain.ok and result.ok, measured


def _write(job: Job, found: stamps.Timeline) -> Path | None:
    if job.html is None:
        return None
    from diagnose.render import timeline as renderer

    return output.write_new(job.html, renderer.render_html(found))
