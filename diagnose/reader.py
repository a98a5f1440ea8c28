"""Reads recorded reports into a `Profile` in child processes, so that a bad file costs one error line."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from diagnose.bars import Step, silent
from diagnose.errors import DiagnoseError
from diagnose.model import KernelProfile, Profile, Run, SassLine, Scalar, Series
from diagnose.report_file import PACKED_SUFFIXES, REPORT_SUFFIXES, ReportFile, find_reports, open_report
from diagnose.report_session import Session, read_session

_MAX_RECORDS = 1 << 30  # bytes of output accepted from a child
_PARALLEL = 4
_STDERR_TAIL = 400
_LAST_RECORD = b'{"kind":"end"}\n'
# How many children share a report. A child takes 0.6 s to start (NVIDIA's disassembler), a result 0.1 to 0.25 s, and
# each child maps the whole file.
_RESULTS_EACH = 4
_SHARED_FROM = 16 << 20  # bytes: results of large kernels, of which two pay for a second child
_SHARED_BYTES = 2 << 30  # of all children's copies together
_MOST_CHILDREN = 8
_NO_MEMORY = re.compile("bad_alloc|MemoryError|length_error|failed to map segment|annot allocate memory")
_AGAIN = "copy the file again, or profile again: the run that wrote it may have ended early"
_MORE_TIME = "give it more time: --timeout SECONDS"
_INSTALL = f"{sys.executable} -m pip install --upgrade ncu-report"


def read_reports(
    paths: Sequence[Path],
    *,
    timeout_s: float = 300,
    memory_bytes: int = 8 << 30,
    source: bool = True,
    metrics: Callable[[str], bool] | None = None,
    ncu: Path | None = None,
    meanwhile: Callable[[], object] | None = None,
    step: Step = silent,
) -> Profile:
    """Everything that the reports hold, in the order given.

    `timeout_s` and `memory_bytes` bound the reading of each file in a child process; `source=False` leaves source
    texts out; `metrics` keeps only the scalar metrics whose name it accepts; `ncu` is the ncu whose own module may
    serve where the installed one is absent or older than a report. A report that cannot be read at all is an error
    when it was named, or when nothing else can be read; one found in a folder is listed in `lost`.
    `meanwhile` is called once, as soon as a child reads: what it imports or starts would delay the child. `step` is
    told how many of the files are read.
    """
    files = find_reports(paths)
    cores = os.cpu_count() or 1
    workers = max(1, min(len(files), cores, _PARALLEL))
    # One core is this process's own: more children than the others would wait for each other.
    reader = _Reader(timeout_s, memory_bytes, source, ncu, children=max(1, (cores - 1) // workers))
    with ThreadPoolExecutor(workers) as pool:
        try:
            coming = pool.map(lambda file: _read_or_error(file, reader), files)
            if meanwhile is not None:
                reader.at_work.wait()
                meanwhile()
            results = []
            for result in coming:
                results.append(result)
                step(len(results), len(files))
        except BaseException:  # an interrupt: the pool waits for its threads, and those wait for their children
            reader.stop()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        reader.stop()
    errors = [r for r in results if isinstance(r, DiagnoseError)]
    fatal = next((r for f, r in zip(files, results, strict=True) if f.named and isinstance(r, DiagnoseError)), None)
    if fatal is None and len(errors) == len(files):
        fatal = errors[0]
    if fatal is not None:
        raise fatal
    warnings = [f"{e.message}: left out" for e in errors]
    lost = [e.message for e in errors]
    runs: list[Run] = []
    kernels: list[KernelProfile] = []
    for result in results:
        if isinstance(result, DiagnoseError):
            continue
        for kernel in result.kernels:
            kept = kernel if metrics is None else _only(kernel, metrics)
            kernels.append(replace(kept, run=len(runs), index=len(kernels)))
        runs.append(result.run)
        warnings += result.warnings
        lost += result.lost
    return Profile(tuple(_with_ranks(runs)), tuple(kernels), tuple(warnings), tuple(lost))


@dataclass
class _Report:
    """What was read from one file."""

    run: Run
    kernels: list[KernelProfile] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)


def _read_or_error(file: ReportFile, reader: _Reader) -> _Report | DiagnoseError:
    try:
        return _read(file.path, reader)
    except DiagnoseError as error:
        return error
    finally:
        reader.at_work.set()


def _read(path: Path, reader: _Reader) -> _Report:
    with open_report(path) as opened:
        session = read_session(opened.path)
        module = _choose_module(session, reader.ncu)
        parts = _parts(session.results, opened.path.stat().st_size, reader.children)
        records, ended = _run_parts(path, opened.path, reader, module, parts)
    kernels = _with_processes(records.kernels, session)
    report = _Report(_run(path, session, kernels), kernels, records.warnings, records.lost)
    module_version = records.module or module.version
    if not report.kernels:
        raise _nothing_readable(path, session, opened.cut, ended, records, module_version)
    if opened.cut:
        report.warnings.append(f"{path}: {opened.cut}; what was before that is used")
    if not session.complete:
        report.warnings.append(f"{path} is truncated: it ends after {session.size:,} bytes inside a block of data")
        report.lost.append(f"{path}: whatever came after byte {session.size:,}")
    elif ended is None and len(report.kernels) + len(report.lost) < session.results:
        missing = session.results - len(report.kernels) - len(report.lost)
        report.lost.append(f"{path}: {missing} of {session.results} results are not shown by ncu_report")
    if ended:
        report.lost.append(f"{path}: what it holds beside these {len(report.kernels)} results: the reader {ended.what}")
    if _newer(session.ncu_version, module_version):
        report.warnings.append(
            f"{path} was written by ncu {session.ncu_version} and read by the older ncu_report {module_version}: "
            "metrics may be missing"
        )
    if report.lost:
        report.warnings.append(
            f"{path} was read in part: {len(report.kernels)} results; lost: {'; '.join(report.lost)}"
        )
    return report


def _parts(results: int, size: int, children: int) -> int:
    """How many children share a report of so many results and bytes, where there may be `children`."""
    by_results = max(results // _RESULTS_EACH, 2 if size >= _SHARED_FROM else 1)
    return max(1, min(by_results, children, _MOST_CHILDREN, _SHARED_BYTES // max(size, 1)))


def _run_parts(path: Path, content: Path, reader: _Reader, module: _Module, parts: int) -> tuple[_Records, _End | None]:
    """Children share a report, result by result, because reading its code takes long."""
    with ThreadPoolExecutor(parts) as pool:
        read = list(pool.map(lambda part: reader.run(path, content, module, part, parts), range(parts)))
    return _merged([records for records, _ in read]), next((end for _, end in read if end), None)


# --- the child process ---


class _End(NamedTuple):
    """How a child ended that did not finish its work, and what to do about it."""

    what: str
    hint: str


class _Answer(NamedTuple):
    """What became of a job: the child's exit status (None: it lives), what it said, and whether it had read before."""

    status: int | None
    said: str = ""
    late: bool = False
    used: bool = False


class _Worker:
    """A child process that reads one report after another: NVIDIA's disassembler takes 0.6 s to start in each."""

    def __init__(self, memory_bytes: int, module: _Module) -> None:
        self.module = module
        self.jobs = 0
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - open for as long as the child lives
        # In the package's parent folder `-m` finds the package first and imports nothing from the user's folder.
        # The child's own session keeps the terminal's Ctrl-C from it: `_Reader.stop` ends it.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "diagnose.report_worker", str(memory_bytes), module.folder or ""],
            cwd=Path(__file__).resolve().parent.parent,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
        )

    def do(
        self, job: Mapping[str, object], timeout_s: float, begun: threading.Event, take: Callable[[], None]
    ) -> _Answer:
        """Hands the child a job and waits for its end, or the child's; `take` is called when there are new records."""
        late = threading.Event()

        def kill() -> None:
            late.set()
            self._process.kill()

        assert self._process.stdin is not None and self._process.stdout is not None
        used, self.jobs = self.jobs > 0, self.jobs + 1
        before = os.fstat(self._errors.fileno()).st_size
        timer = threading.Timer(timeout_s, kill)
        timer.daemon = True
        timer.start()
        try:
            self._process.stdin.write(json.dumps(job).encode() + b"\n")
            self._process.stdin.flush()
            begun.set()
            while (answer := self._process.stdout.readline()) == b"more\n":
                take()
            done = answer == b"done\n"
        except OSError:  # the child ended before it could read
            done = False
        finally:
            timer.cancel()
        status = None if done else self._process.wait()
        size = os.fstat(self._errors.fileno()).st_size
        start = max(before, size - _STDERR_TAIL)
        said = os.pread(self._errors.fileno(), size - start, start).decode("utf-8", "replace").strip()
        return _Answer(status, said, late.is_set() and not done, used)

    def kill(self) -> None:
        """Ends the child at once, also in the middle of a job."""
        self._process.kill()

    def close(self) -> None:
        """Ends the child, which has no job, and leaves nothing open."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        self._errors.close()


class _Reader:
    """Hands reports to children, within limits; `stop` ends them and lets no other start."""

    def __init__(self, timeout_s: float, memory_bytes: int, source: bool, ncu: Path | None, children: int) -> None:
        self.timeout_s = timeout_s
        self.memory_bytes = memory_bytes
        self.source = source
        self.ncu = ncu
        self.children = children
        self.at_work = threading.Event()
        self._lock = threading.Lock()
        self._busy: set[_Worker] = set()
        self._idle: list[_Worker] = []
        self._stopped = False

    def stop(self) -> None:
        """Ends all children; a thread that waits for one closes it."""
        with self._lock:
            self._stopped = True
            for worker in self._busy:
                worker.kill()
            for worker in self._idle:
                worker.close()
            self._idle.clear()

    def run(self, path: Path, content: Path, module: _Module, part: int, parts: int) -> tuple[_Records, _End | None]:
        """What a child reads of the report, and how the child ended unless it finished its work."""
        with tempfile.TemporaryDirectory(prefix="diagnose-") as name:
            output = Path(name, "records")
            job = {"report": str(content), "output": str(output), "source": self.source, "part": part, "parts": parts}
            while True:
                records = _Records(path)
                lines = _JsonLines(output, records.take)
                answer = self._do(job, module, lines.read)
                lines.read()
                if records.ended:
                    return records, None
                if answer.late:
                    return records, _End(f"did not finish within {self.timeout_s:g} s", _MORE_TIME)
                # A child that had read other reports before may be the reason: a new one has the last word.
                if not answer.used or self._stopped:
                    return records, self._end(answer.status or 0, answer.said, records)
                output.unlink(missing_ok=True)

    def _do(self, job: Mapping[str, object], module: _Module, take: Callable[[], None]) -> _Answer:
        """The job, done by a child; one that ended or that an error stopped is not used again."""
        worker = self._take(module)
        if worker is None:
            return _Answer(-signal.SIGTERM)
        keep = False
        try:
            answer = worker.do(job, self.timeout_s, self.at_work, take)
            keep = answer.status is None and not _failed(Path(str(job["output"])))
            return answer
        finally:
            with self._lock:
                self._busy.discard(worker)
                keep = keep and not self._stopped
                if keep:
                    self._idle.append(worker)
            if not keep:
                worker.close()

    def _take(self, module: _Module) -> _Worker | None:
        with self._lock:
            if self._stopped:
                return None
            worker = next((idle for idle in self._idle if idle.module == module), None)
            if worker is None:
                worker = _Worker(self.memory_bytes, module)
            else:
                self._idle.remove(worker)
            self._busy.add(worker)
            return worker

    def _end(self, status: int, said: str, records: _Records) -> _End:
        fewer = "profile fewer kernels into one report: ncu --launch-count N, or diagnose TARGET"
        if records.error == "memory" or _NO_MEMORY.search(f"{said} {records.error_text}"):
            return _End(f"needed more than its limit of {_size(self.memory_bytes)} of memory", fewer)
        if status == -signal.SIGKILL:
            return _End("was killed (SIGKILL), probably for want of memory", fewer)
        if status < 0:
            return _End(f"crashed ({_signal_name(-status)})", _AGAIN)
        said = records.error_text or (said.splitlines() or ["no message"])[-1]
        return _End(f"failed with exit status {status}: {said[:200]}", _AGAIN)


def _failed(output: Path) -> bool:
    """Whether the last of a child's records is not the one that ends a report."""
    with contextlib.suppress(OSError), output.open("rb") as file:
        file.seek(max(0, output.stat().st_size - len(_LAST_RECORD)))
        return file.read() != _LAST_RECORD
    return True


def _size(count: int) -> str:
    return f"{count / 2**30:.3g} GiB" if count >= 2**30 else f"{count >> 20} MiB"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class _JsonLines:
    """The complete records of a child's output, handed on as it grows; anything that is no JSON ends them."""

    def __init__(self, output: Path, take: Callable[[object], None]) -> None:
        self._output = output
        self._take = take
        self._at = 0
        self._ended = False

    def read(self) -> None:
        """Hands on what is complete and new."""
        if self._ended or not self._output.exists():
            return
        self._ended = self._output.stat().st_size > _MAX_RECORDS
        if self._ended:
            return
        with self._output.open("rb") as file:
            file.seek(self._at)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._at += len(line)
                try:
                    record = json.loads(line.decode("utf-8", "replace"), parse_constant=_no_number)
                except (ValueError, RecursionError):
                    self._ended = True
                    return
                self._take(record)


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no JSON number")


def _nothing_readable(
    path: Path, session: Session, cut: str | None, ended: _End | None, records: _Records, module_version: str | None
) -> DiagnoseError:
    if records.error == "module" and ended and not _NO_MEMORY.search(records.error_text):
        message = f"{path} cannot be read: the Python module ncu_report is not usable ({records.error_text})"
        return DiagnoseError(message, _INSTALL)
    if _newer(session.ncu_version, module_version):
        how = f" (the reader {ended.what})" if ended else ""
        return DiagnoseError(
            f"{path} was written by ncu {session.ncu_version}, too new for ncu_report {module_version}{how}",
            f"{_INSTALL}; or name that ncu in DIAGNOSE_NCU: the module in its folder is used then",
        )
    if ended:
        return DiagnoseError(f"{path} could not be read: the reader {ended.what}", ended.hint)
    if cut or not session.complete:
        where = cut or f"it ends after {session.size:,} bytes inside a block of data"
        return DiagnoseError(f"{path} is truncated and holds no readable result: {where}", _AGAIN)
    if session.results:
        return DiagnoseError(f"{path} is damaged: none of its {session.results} results can be read", _AGAIN)
    return DiagnoseError(
        f"{path} is truncated or empty: it holds 0 results in {session.size:,} bytes",
        "ncu profiled no kernel in that run: check its filters and the target's exit status, then: diagnose TARGET",
    )


# --- which ncu_report ---


@dataclass(frozen=True)
class _Module:
    """The module for the child: its folder when it is not the installed one, and its version if known."""

    folder: str | None
    version: str | None


def _choose_module(session: Session, ncu: Path | None) -> _Module:
    """The installed module; where it is absent or older than the report, the one in ncu's own tree."""
    try:
        installed = metadata.version("ncu-report")
    except metadata.PackageNotFoundError:
        installed = None
    if installed and not _newer(session.ncu_version, installed):
        return _Module(None, installed)
    trees = sorted(_trees(ncu), key=_version_in, reverse=True)
    for folder in trees:
        if not installed or _version_in(folder) > _numbers(installed):
            return _Module(str(folder), ".".join(map(str, _version_in(folder))) or None)
    return _Module(None, installed)


def _trees(ncu: Path | None) -> Iterator[Path]:
    """Folders with a module `ncu_report` in the trees of the ncu that would be used and of those in the usual place."""
    used = ncu or os.environ.get("DIAGNOSE_NCU") or shutil.which("ncu")
    roots = list(Path(used).resolve().parents)[:3] if used else []
    usual = Path("/opt/nvidia/nsight-compute")
    if usual.is_dir():
        roots += sorted(usual.iterdir())
    for root in roots:
        folder = root / "extras" / "python"
        if (folder / "ncu_report.py").is_file():
            yield folder


def _version_in(folder: Path) -> tuple[int, ...]:
    versions = re.findall(r"20\d\d(?:\.\d+)+", str(folder))
    return _numbers(versions[-1]) if versions else ()


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d+", version)[:3])


def _newer(report: str | None, module: str | None) -> bool:
    """Whether a report was written by a newer release than the module; patch levels keep the format."""
    return bool(report and module) and _numbers(report or "")[:2] > _numbers(module or "")[:2]


# --- records to dataclasses ---


class _Records:
    """Takes a child's records one by one. The child parsed untrusted bytes: types are checked here, not believed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.kernels: list[KernelProfile] = []
        self.warnings: list[str] = []
        self.lost: list[str] = []
        self.module: str | None = None
        self.ended = False
        self.error: str | None = None
        self.error_text = ""
        self._sources: dict[str, str] = {}

    def take(self, record: object) -> None:
        """Adds one record."""
        data = record if isinstance(record, dict) else {}
        kind = data.get("kind")
        if kind == "start":
            self.module = _text_or_none(data.get("module"))
        elif kind == "source":
            self._sources[str(data.get("name"))] = str(data.get("text"))
        elif kind == "kernel":
            self._kernel(data)
        elif kind == "lost":
            self._lose(data, str(data.get("reason")))
        elif kind == "end":
            self.ended = True
        elif kind == "error":
            self.error, self.error_text = str(data.get("what")), str(data.get("text"))[:300]

    def _kernel(self, data: Mapping[str, Any]) -> None:
        try:
            kernel = _kernel(data, self._sources)
        except (KeyError, IndexError, TypeError, ValueError, OverflowError) as error:
            self._lose(data, f"the reader returned it malformed ({type(error).__name__}: {error})")
            return
        self.kernels.append(kernel)
        self.warnings += [f"{self.path}, result {kernel.index} ({kernel.name}): {n}" for n in _texts(data["notes"])]

    def _lose(self, data: Mapping[str, Any], reason: str) -> None:
        self.lost.append(f"{self.path}: result {data.get('index')} ({reason})")


def _merged(parts: Sequence[_Records]) -> _Records:
    """What several children read of one report, in the report's order."""
    merged = parts[0]
    for part in parts[1:]:
        merged.kernels += part.kernels
        merged.warnings += part.warnings
        merged.lost += part.lost
        merged.module = merged.module or part.module
        merged.ended = merged.ended and part.ended
        if merged.error is None:
            merged.error, merged.error_text = part.error, part.error_text
    merged.kernels.sort(key=lambda kernel: kernel.index)
    return merged


def _kernel(data: Mapping[str, Any], sources: Mapping[str, str]) -> KernelProfile:
    return KernelProfile(
        run=0,
        index=int(data["index"]),
        name=_text(data["name"]),
        demangled=_text(data["demangled"]),
        workload=_text(data["workload"]),
        metrics={
            sys.intern(_text(k)): v if isinstance(v, str) else _number(v) for k, v in _mapping(data["metrics"]).items()
        },
        units={sys.intern(_text(k)): sys.intern(_text(v)) for k, v in _mapping(data["units"]).items()},
        not_finite=_texts(data["not_finite"]),
        opcodes=_numbers_by_name(data["opcodes"]),
        thread_opcodes=_numbers_by_name(data["thread_opcodes"]),
        lines=tuple(_line(*entry) for entry in data["lines"]),
        timeline=tuple(Series(_text(m), _text(u), tuple(map(_number, values))) for m, u, values in data["timeline"]),
        sources={name: sources[name] for name in _texts(data["sources"]) if name in sources},
        nvtx=_texts(data["nvtx"]),
        ncu_rules=tuple({_text(k): _text(v) for k, v in _mapping(rule).items()} for rule in data["rules"]),
        mangled=_text(data.get("mangled", "")),
    )


def _line(
    pc: int, text: str, columns: Sequence[float | None], stalls: object, not_issued: object, file: object, line: object
) -> SassLine:
    executed, thread_executed, samples, wavefronts, wavefronts_ideal, sectors, sectors_ideal = (
        None if value is None else _number(value) for value in columns
    )
    by_reason = {reason: int(count) for reason, count in _numbers_by_name(stalls).items()}
    if samples is None and by_reason:
        samples = float(sum(by_reason.values()))  # a report without the total: every sample has one reason
    return SassLine(
        pc=int(pc),
        text=_text(text),
        executed=executed,
        thread_executed=thread_executed,
        samples=None if samples is None else int(samples),
        stalls=by_reason,
        not_issued={reason: int(count) for reason, count in _numbers_by_name(not_issued).items()},
        file=_text_or_none(file),
        line=int(line) if isinstance(line, int) else None,
        shared_wavefronts=wavefronts,
        shared_wavefronts_ideal=wavefronts_ideal,
        l2_sectors=sectors,
        l2_sectors_ideal=sectors_ideal,
    )


def _mapping(value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"{type(value).__name__} instead of an object")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} instead of a text")
    return value if value.isascii() else value.encode("utf-8", "replace").decode("utf-8")


def _number(value: object) -> float:
    if not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{value!r} instead of a finite number")
    return float(value)


def _text_or_none(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _texts(values: object) -> tuple[str, ...]:
    if not isinstance(values, list):
        raise TypeError(f"{type(values).__name__} instead of a list")
    return tuple(map(_text, values))


def _numbers_by_name(values: object) -> dict[str, float]:
    return {sys.intern(_text(name)): _number(value) for name, value in _mapping(values).items()}


def _only(kernel: KernelProfile, wanted: Callable[[str], bool]) -> KernelProfile:
    metrics: dict[str, Scalar] = {name: value for name, value in kernel.metrics.items() if wanted(name)}
    return replace(kernel, metrics=metrics, units={n: u for n, u in kernel.units.items() if n in metrics})


# --- the run ---


def _run(path: Path, session: Session, kernels: Sequence[KernelProfile]) -> Run:
    passes = [n for k in kernels if (n := k.number("profiler__replayer_passes")) is not None]
    return Run(
        source=str(path),
        ncu_version=session.ncu_version,
        command=session.command,
        clock_control=session.option("--clock-control", "base"),
        cache_control=session.option("--cache-control", "all"),
        replay=session.option("--replay-mode", "kernel"),
        passes_total=int(sum(passes)) if passes else None,
        rank=_rank(path.name, session.output),
        host=session.host,
    )


def _with_processes(kernels: list[KernelProfile], session: Session) -> list[KernelProfile]:
    """The results with the process that launched each, where there was more than one: `ncu_report` does not show it.

    The order of the file counts, and the names have to agree.
    """
    processes = {process for process, _ in session.launched}
    if len(processes) < 2 or [k.name for k in kernels] != [name for _, name in session.launched]:
        return kernels
    return [replace(k, process=process) for k, (process, _) in zip(kernels, session.launched, strict=True)]


_RANK_VARIABLE = re.compile(r"%q\{[A-Z0-9_]*(?:RANK|PROCID)[A-Z0-9_]*\}")
_RANK_IN_NAME = re.compile(r"(?:^|[._-])rank[._-]?(\d{1,6})(?=[._-]|$)", re.IGNORECASE)


def _stem(name: str) -> str:
    for suffix in (*PACKED_SUFFIXES, *REPORT_SUFFIXES):
        name = name.removesuffix(suffix)
    return name


def _rank(name: str, output: str | None) -> int | None:
    """The rank by the file's name: where ncu's `-o` had `%q{…RANK}`, or after the word rank."""
    stem = _stem(name)
    if output and (variable := _RANK_VARIABLE.search(output)):
        before, after = output[: variable.start()], _stem(output[variable.end() :])
        pattern = f"{_template(before.rpartition('/')[2])}(\\d{{1,6}}){_template(after)}"
        if match := re.fullmatch(pattern, stem):
            return int(match.group(1))
    match = _RANK_IN_NAME.search(stem)
    return int(match.group(1)) if match else None


def _template(text: str) -> str:
    """A pattern for a part of ncu's output name: `%h`, `%p`, `%i` and `%q{X}` stand for what is not known."""
    parts = re.split(r"%q\{\w*\}|%\w", text)
    return ".*?".join(map(re.escape, parts))


def _with_ranks(runs: Sequence[Run]) -> list[Run]:
    """Ranks by number where several reports differ in one number only and those count 0, 1, 2 …"""
    if len(runs) < 2 or any(run.rank is not None for run in runs):
        return list(runs)
    stems = [_stem(Path(run.source).name) for run in runs]
    digits = [re.findall(r"\d+", stem) for stem in stems]
    if len({re.sub(r"\d+", "#", stem) for stem in stems}) > 1:
        return list(runs)
    varying = [at for at in range(len(digits[0])) if len({d[at] for d in digits}) > 1]
    if len(varying) != 1:
        return list(runs)
    ranks = [int(d[varying[0]][:9]) for d in digits]
    if sorted(ranks) != list(range(len(runs))):
        return list(runs)
    return [replace(run, rank=rank) for run, rank in zip(runs, ranks, strict=True)]
