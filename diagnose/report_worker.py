"""Runs in a child process: reads reports with NVIDIA's native `ncu_report` and writes JSON lines.

The native module parses untrusted bytes, so it is imported here only; the parent treats the output as data.
Every line is one record, written as soon as it is known, so that what was read survives a crash:
`start`, then `source`, `kernel` and `lost` in order, then `end`; or `error`.
Usage: python -m diagnose.report_worker MEMORY_BYTES MODULE_DIR, with one job a line on stdin, as JSON:
{"report": path, "output": path, "source": true, "part": 0, "parts": 1}; of several parts, each child reads every
so many-th result. The answers are a line `more` for each result that was written, and the line `done`.
"""

from __future__ import annotations

import gc
import json
import math
import os
import re
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from typing import IO, Any

SAMPLES = "smsp__pcsamp_sample_count"
EXECUTED = "inst_executed"
# Fields of a SASS line that come from one metric with an instance per address, in the order of the transport.
ADDRESS_METRICS = (
    EXECUTED,
    "thread_inst_executed_true",
    SAMPLES,
    "memory_l1_wavefronts_shared",
    "memory_l1_wavefronts_shared_ideal",
    "memory_l2_theoretical_sectors_global",
    "memory_l2_theoretical_sectors_global_ideal",
)
_OPCODES = "sass__inst_executed_per_opcode"
_THREAD_OPCODES = "sass__thread_inst_executed_true_per_opcode"
_STALL = re.compile(r"smsp__(?:pcsamp_)?warps?_issue_stalled_(\w+)")
_LIFE = re.compile(r"profiler__timestamp_workload_(start|end)_\d+")
_TIMELINE = re.compile(r"\w+\.Triage\w+\.")

# SASS text costs 0.1 to 0.2 ms an address, so only hot places of large kernels get theirs: those with the most
# samples until they hold _COVERED of all samples, those executed most, and the surroundings of the hottest.
WHOLE_KERNEL = 800
_TOP = 400
_MOST = 1600
_COVERED = 0.97
_CENTRES = 12
_WINDOW = 24
_TIMELINE_POINTS = 400
_MAX_SOURCE = 2 << 20
_MAX_OUTPUT = 1 << 30

Metric = Any  # the module's SWIG proxies have no types
Action = Any


def main(arguments: list[str]) -> int:
    """Reads reports until its input ends; see the module's text."""
    _limit_memory(int(arguments[0]))
    gc.disable()  # cycles are few: those of a job go at its end
    if arguments[1]:
        sys.path.insert(0, arguments[1])
    # What the native module prints on stdout must not look like an answer.
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.close(silent)
    for line in sys.stdin.buffer:
        job(json.loads(line), lambda: answers.write(b"more\n"))
        answers.write(b"done\n")
        gc.collect()
    return 0


def job(options: Mapping[str, Any], told: Callable[[], object]) -> None:
    """Reads one report, and writes what it holds or why it cannot be read; `told` is called after each result."""
    with open(options["output"], "wb") as out:
        try:
            _read(options["report"], out, options, told)
        except MemoryError:
            _write(out, {"kind": "error", "what": "memory", "text": ""})
        except ImportError as error:
            _write(out, {"kind": "error", "what": "module", "text": str(error)})
        except Exception as error:
            _write(out, {"kind": "error", "what": "read", "text": f"{type(error).__name__}: {error}"})


def _limit_memory(limit: int) -> None:
    if sys.platform == "win32":
        return
    import resource

    for what, value in (
        (resource.RLIMIT_AS, limit),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, _MAX_OUTPUT),
    ):
        hard = resource.getrlimit(what)[1]
        resource.setrlimit(what, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))


def _write(out: IO[bytes], record: Mapping[str, object]) -> None:
    # Native strings that are not UTF-8 arrive as surrogates: back to their bytes, which the parent decodes with care.
    line = json.dumps(record, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    out.write(line.encode("utf-8", "surrogateescape") + b"\n")
    out.flush()


def _read(report: str, out: IO[bytes], options: Mapping[str, Any], told: Callable[[], object]) -> None:
    import ncu_report

    context = ncu_report.load_report(report)
    version = context.get_version() if hasattr(context, "get_version") else None
    _write(out, {"kind": "start", "module": str(version) if version else None})
    written: dict[str, str] = {}
    shared = _Shared()
    part, parts, source = options["part"], options["parts"], bool(options["source"])
    count = -1
    for range_at in range(context.num_ranges()):
        actions = context.range_by_idx(range_at)
        for action_at in range(actions.num_actions()):
            count += 1
            if count % parts != part:
                continue
            try:
                record = _kernel(actions.action_by_idx(action_at), shared, source=source)
                for name, text in record.pop("texts").items():
                    if written.get(name) != text:
                        written[name] = text
                        _write(out, {"kind": "source", "name": name, "text": text})
                _write(out, {"kind": "kernel", "index": count, **record})
                told()
            except MemoryError:
                raise
            except Exception as error:
                reason = str(error) if isinstance(error, _Unreadable) else f"{type(error).__name__}: {error}"
                _write(out, {"kind": "lost", "index": count, "reason": reason})
    _write(out, {"kind": "end"})


class _Shared:
    """What the results of one report have in common, read once: units by metric, SASS by kernel and address."""

    def __init__(self) -> None:
        self.units: dict[str, str] = {}
        self.sass: dict[tuple[str, int], str] = {}


class _Unreadable(Exception):
    """A result that the module lists but cannot read."""


def _kernel(action: Action, shared: _Shared, *, source: bool) -> dict[str, Any]:
    name = action.name()
    if name is None:
        raise _Unreadable("its data is not in the file")
    metric_names = action.metric_names()
    if not metric_names:
        raise _Unreadable("it has no metrics")
    notes: list[str] = []
    values = _Values(action, metric_names, shared.units)
    demangled = _quiet(notes, "name", lambda: action.name(action.NameBase_DEMANGLED)) or name
    mangled = _quiet(notes, "name", lambda: action.name(action.NameBase_MANGLED)) or ""
    code = _Code(values, name)
    code.fetch_text(action, shared.sass, notes)
    if code.executed is not None:
        values.add("diagnose__inst_executed_by_address", code.executed, "inst")
        values.add("diagnose__sass_instructions", float(len(code.columns[EXECUTED])), "inst")
    lines, files = code.lines(action, notes)
    texts = _quiet(notes, "sources", lambda: _sources(action, files)) if source and files else None
    return {
        "name": name,
        "demangled": demangled,
        "mangled": mangled,
        "workload": _workload(action),
        "metrics": values.scalars,
        "units": values.units,
        "not_finite": values.not_finite,
        "opcodes": _per_opcode(values.instanced, _OPCODES),
        "thread_opcodes": _per_opcode(values.instanced, _THREAD_OPCODES),
        "lines": lines,
        "timeline": values.timeline(),
        "sources": list(texts or ()),
        "texts": texts or {},
        "nvtx": _quiet(notes, "NVTX ranges", lambda: _nvtx(action)) or [],
        "rules": _quiet(notes, "rule results", lambda: _rules(action)) or [],
        "notes": notes,
    }


def _quiet(notes: list[str], what: str, read: Callable[[], Any]) -> Any:
    """The result of `read`, or None with a note: parts that older modules lack do not cost the kernel."""
    try:
        return read()
    except MemoryError:
        raise
    except Exception as error:
        notes.append(f"{what} could not be read ({type(error).__name__}: {error})")
        return None


def _workload(action: Action) -> str:
    kind = action.workload_type() if hasattr(action, "workload_type") else None
    if kind is None or kind == getattr(action, "WorkloadType_KERNEL", 0):
        return "kernel"
    return "graph" if kind == getattr(action, "WorkloadType_GRAPH", None) else "range"


class _Ids:
    """Correlation ids as integers: addresses or time stamps. Most metrics of a kernel share theirs, read once."""

    def __init__(self) -> None:
        self.known: dict[tuple[int, int, int, int], list[int]] = {}

    def of(self, metric: Metric) -> list[int]:
        """The ids in the order of the metric's instances; empty where it has none."""
        ids = metric.correlation_ids()
        count = metric.num_instances()
        if ids is None or not count:
            return []
        read = ids.as_uint64
        # Two sets of one kernel that agree in size, ends and middle are the same set.
        shape = (count, read(0), read(count // 2), read(count - 1))
        if shape not in self.known:
            self.known[shape] = [read(i) for i in range(count)]
        return self.known[shape]


class _Values:
    """All metrics of an action in one pass: scalars and units, and the proxies of instanced ones."""

    def __init__(self, action: Action, names: Iterable[str], units: dict[str, str]) -> None:
        self.ids = _Ids()
        self.scalars: dict[str, float | str] = {}
        self.units: dict[str, str] = {}
        self.not_finite: list[str] = []
        self.instanced: dict[str, Metric] = {}
        by_name = action.metric_by_name
        string: int | None = None
        for name in names:
            metric = by_name(name)
            if metric is None:
                continue
            if string is None:
                string = metric.ValueKind_STRING
            unit = units.get(name)
            if unit is None:
                unit = units[name] = metric.unit() or ""
            if metric.has_value():
                if metric.kind() == string:
                    text = metric.as_string()
                    if text is not None:
                        self.add(name, text, unit)
                else:
                    self.add(name, metric.as_double(), unit)
            if metric.num_instances():
                self.instanced[name] = metric
        self._units_by_name = units

    def add(self, name: str, value: float | str, unit: str) -> None:
        """Adds a scalar, or notes that it is not finite."""
        if isinstance(value, float) and not math.isfinite(value):
            self.not_finite.append(name)
            return
        self.scalars[name] = value
        if unit:
            self.units[name] = unit

    def timeline(self) -> list[tuple[str, str, list[float]]]:
        """PM-sampling series, cut to the kernel's life: sampling starts long before it and ends after it."""
        series = []
        start, end = self._life()
        for name, metric in self.instanced.items():
            if metric.num_instances() < 2 or not _TIMELINE.match(name):
                continue
            times = self.ids.of(metric)
            if times and start < end:
                first, last = max(0, bisect_right(times, start) - 1), bisect_right(times, end)
            else:
                first, last = 0, metric.num_instances()
            read = metric.as_double
            points = _thinned([read(i) for i in range(first, last)])
            if points:
                series.append((name, self._units_by_name.get(name, ""), points))
            elif points is None and name not in self.not_finite:
                self.not_finite.append(name)
        return series

    def _life(self) -> tuple[int, int]:
        """Time stamps of the workload's start and end, or (0, 0): they are the correlation ids of two metrics."""
        stamps: dict[str, list[int]] = {"start": [], "end": []}
        for name, metric in self.instanced.items():
            if match := _LIFE.fullmatch(name):
                stamps[match.group(1)] += self.ids.of(metric)
        if stamps["start"] and stamps["end"]:
            return min(stamps["start"]), max(stamps["end"])
        return 0, 0


def _thinned(values: list[float]) -> list[float] | None:
    """At most _TIMELINE_POINTS averages of equal stretches; None where a stretch has no finite value."""
    step = -(-len(values) // _TIMELINE_POINTS)
    if step == 1:
        return values if all(map(math.isfinite, values)) else None
    points = []
    for start in range(0, len(values), step):
        part = values[start : start + step]
        total = math.fsum(part) if all(map(math.isfinite, part)) else math.nan
        if not math.isfinite(total):
            part = [v for v in part if math.isfinite(v)]
            if not part:
                return None
            total = math.fsum(part)
        points.append(total / len(part))
    return points


def _per_opcode(instanced: Mapping[str, Metric], name: str) -> dict[str, float]:
    metric = instanced.get(f"{name}_with_modifier_all") or instanced.get(name)
    opcodes = metric.correlation_ids() if metric is not None else None
    if metric is None or opcodes is None:
        return {}
    counts: dict[str, float] = {}
    for i in range(metric.num_instances()):
        opcode, count = opcodes.as_string(i), metric.as_double(i)
        if opcode and math.isfinite(count):
            counts[opcode] = counts.get(opcode, 0.0) + count
    return counts


class _Code:
    """What is known per instruction address of one kernel."""

    def __init__(self, values: _Values, name: str) -> None:
        self.name = name
        self.ids = values.ids
        self.columns = {m: _by_address(values.instanced.get(m), self.ids) for m in ADDRESS_METRICS}
        self.stalls: dict[str, Metric] = {}
        self.not_issued: dict[str, Metric] = {}
        for metric_name, metric in values.instanced.items():
            match = _STALL.fullmatch(metric_name)
            # A reason that was never sampled costs a read of every address for nothing.
            if match and values.scalars.get(metric_name) != 0.0:
                reason = match.group(1).removesuffix("_not_issued")
                (self.stalls if reason == match.group(1) else self.not_issued)[reason] = metric
        self.sampled = bool(self.columns[SAMPLES]) or SAMPLES in values.scalars
        executed = self.columns[EXECUTED]
        self.executed = math.fsum(executed.values()) if executed else None
        self.addresses = sorted(set().union(*self.columns.values()))
        starts = values.instanced.get("launch__function_pcs")
        pcs = [starts.as_uint64(i) for i in range(starts.num_instances())] if starts is not None else []
        self.base = min([*self.addresses[:1], *(pc for pc in pcs if pc)], default=0)
        self.text: dict[int, str] = {}

    def fetch_text(self, action: Action, known: dict[tuple[str, int], str], notes: list[str]) -> None:
        """Reads the SASS of hot addresses; `known` shares it between launches of one kernel at one place."""

        def read() -> None:
            for pc in self._hot():
                key = (f"{self.base}{self.name}", pc)
                if key not in known:
                    known[key] = _sass(action.sass_by_pc(pc), self.base, self.addresses[-1])
                if known[key]:
                    self.text[pc] = known[key]

        if self.addresses:
            _quiet(notes, "SASS", read)

    def _hot(self) -> list[int]:
        if len(self.addresses) <= WHOLE_KERNEL:
            return self.addresses
        samples, executed = self.columns[SAMPLES], self.columns[EXECUTED]
        by_samples = _top(samples, _MOST)
        covered = list(accumulate(samples[pc] for pc in by_samples))
        enough = bisect_left(covered, _COVERED * math.fsum(samples.values())) + 1
        by_samples = by_samples[: max(_TOP, enough)]
        wanted = {*by_samples, *_top(executed, _TOP)}
        position = {pc: i for i, pc in enumerate(self.addresses)}
        for pc in by_samples[:_CENTRES]:
            at = position[pc]
            wanted.update(self.addresses[max(0, at - _WINDOW) : at + _WINDOW + 1])
        return sorted(wanted)

    def lines(self, action: Action, notes: list[str]) -> tuple[list[list[Any]], set[str]]:
        """The lines with text, as the parent expects them, and the names of their source files."""
        pcs = sorted(self.text)
        wanted = frozenset(pcs)
        stalls = _reasons(self.stalls, wanted, self.ids)
        not_issued = _reasons(self.not_issued, wanted, self.ids)
        places = _quiet(notes, "source lines", lambda: _places(action, pcs)) or {}
        if self.sampled:  # an address without an instance was never sampled; of other metrics that is not known
            self.columns[SAMPLES] = dict.fromkeys(pcs, 0.0) | self.columns[SAMPLES]
        columns = [self.columns[m] for m in ADDRESS_METRICS]
        lines = [
            [
                pc - self.base,
                self.text[pc],
                [column.get(pc) for column in columns],
                stalls.get(pc, {}),
                not_issued.get(pc, {}),
                *places.get(pc, (None, None)),
            ]
            for pc in pcs
        ]
        return lines, {name for name, _ in places.values()}


def _by_address(metric: Metric | None, ids: _Ids) -> dict[int, float]:
    if metric is None:
        return {}
    value = metric.as_double
    pairs = ((pc, value(i)) for i, pc in enumerate(ids.of(metric)))
    return {pc: v for pc, v in pairs if pc and math.isfinite(v)}


def _top(values: Mapping[int, float], count: int) -> list[int]:
    return sorted((pc for pc, v in values.items() if v > 0), key=lambda pc: (-values[pc], pc))[:count]


def _reasons(metrics: Mapping[str, Metric], wanted: frozenset[int], ids: _Ids) -> dict[int, dict[str, int]]:
    """Sampled stalls by address and reason, zeros left out."""
    result: dict[int, dict[str, int]] = {}
    for reason, metric in metrics.items():
        value = metric.as_uint64
        for i, pc in enumerate(ids.of(metric)):
            if pc in wanted and (samples := value(i)):
                result.setdefault(pc, {})[reason] = samples
    return result


_HEX = re.compile(r"0x[0-9a-f]+")


def _sass(text: str | None, base: int, last: int) -> str:
    """The text with single spaces; addresses inside the kernel (branch targets) become offsets like `pc`."""
    text = " ".join((text or "").split())
    if text == "N/A":
        return ""

    def offset(match: re.Match[str]) -> str:
        value = int(match.group(), 16)
        return hex(value - base) if base <= value <= last + 32 else match.group()

    return _HEX.sub(offset, text) if base > 0xFFFF else text


def _places(action: Action, pcs: Iterable[int]) -> dict[int, tuple[str, int]]:
    places = {}
    for pc in pcs:
        info = action.source_info(pc)
        if info is not None and (name := info.file_name()) and (line := int(info.line())) > 0:
            places[pc] = (name, line)
    return places


def _sources(action: Action, files: set[str]) -> dict[str, str]:
    found = action.source_files() if hasattr(action, "source_files") else {}
    texts = {name: found[name] for name in sorted(files) if name in found}
    return {name: text for name, text in texts.items() if text and len(text) <= _MAX_SOURCE}


def _nvtx(action: Action) -> list[str]:
    state = action.nvtx_state()
    names: dict[str, None] = {}
    for domain in state.domains() if state is not None else ():
        info = state.domain_by_id(domain)
        for name in (*info.push_pop_ranges(), *info.start_end_ranges()):
            if name:
                names[name] = None
    return list(names)


def _rules(action: Action) -> list[dict[str, str]]:
    if not hasattr(action, "rule_results_as_dicts"):
        return []
    return [dict(_rule_texts(result)) for result in action.rule_results_as_dicts()]


_SPEEDUP_TYPES = {0: "unknown", 1: "local", 2: "global"}


def _rule_texts(result: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The texts of one rule result; the message and the estimate are plain in some versions, dicts in others."""
    for key in ("rule_identifier", "section_identifier", "name"):
        if result.get(key):
            yield key, str(result[key])
    message = result.get("rule_message") or result.get("message")
    if isinstance(message, Mapping):
        if message.get("title"):
            yield "rule_title", str(message["title"])
        message = message.get("message")
    if message:
        yield "rule_message", str(message)
    estimate = result.get("speedup_estimation")
    if isinstance(estimate, Mapping):
        kind = estimate.get("type")
        if kind is not None:
            yield "speedup_type", _SPEEDUP_TYPES.get(kind, str(kind))
        estimate = estimate.get("speedup")
    if estimate is not None:
        yield "speedup_estimation", str(estimate)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
