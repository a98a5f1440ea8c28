"""Reading reports in a child: values, partial reports, failures of the child, and the recorded reports beside us."""

from __future__ import annotations

import lzma
import math
import re
import signal
import threading
import time
from importlib import metadata
from pathlib import Path

import pytest

from diagnose import reader
from diagnose.errors import EXIT_USAGE, DiagnoseError
from diagnose.model import KernelProfile, Profile
from diagnose.reader import read_reports
from test_report_file import report_bytes

SHARED = Path(__file__).resolve().parents[2] / "shared" / "reports"
needs_reports = pytest.mark.skipif(not SHARED.is_dir(), reason="the recorded reports are not beside the clone")

# A stand-in for NVIDIA's module, found in the tree of an ncu that is newer than the installed one.
FAKE = """
import math, os, time
class Metric:
    ValueKind_STRING = 2
    def __init__(self, value=None, unit="", instances=(), ids=None):
        self.value, self.u, self.instances, self.ids = value, unit, instances, ids
    def kind(self, i=None): return 2 if isinstance(self.value, str) else 4
    def has_value(self): return self.value is not None
    def unit(self): return self.u
    def num_instances(self): return len(self.instances)
    def as_double(self, i=None): return float(self.value if i is None else self.instances[i])
    def as_uint64(self, i=None): return int(self.value if i is None else self.instances[i])
    def as_string(self, i=None): return self.value if i is None else self.instances[i]
    def correlation_ids(self): return None if self.ids is None else Metric(instances=self.ids)
class Place:
    def __init__(self, pc): self.pc = pc
    def file_name(self): return "k.cu"
    def line(self): return self.pc // 16 % 100
class Action:
    NameBase_FUNCTION, NameBase_DEMANGLED = 0, 1
    WorkloadType_KERNEL, WorkloadType_RANGE, WorkloadType_CMDLIST, WorkloadType_GRAPH = 0, 1, 2, 3
    def __init__(self, name, metrics, kind=0): self.n, self.m, self.k = name, metrics, kind
    def name(self, base=0): return self.n if base == 0 or self.n is None else "void " + self.n + "(int)"
    def workload_type(self): return self.k
    def metric_names(self): return tuple(self.m)
    def metric_by_name(self, name): return self.m.get(name)
    def sass_by_pc(self, pc):
        return "  BRA `(.L_x_1) 0x7f0000000010" if pc % 32 else "      LDG.E  R2, desc[UR4][R2.64]"
    def source_info(self, pc): return Place(pc)
    def source_files(self): return {"k.cu": "__global__ text", "other.cu": "not named by a line"}
    def nvtx_state(self): raise RuntimeError("no state")
    def rule_results_as_dicts(self):
        return [{"rule_identifier": "R", "name": "N", "section_identifier": "S",
                 "rule_message": {"title": "T", "message": "M", "type": 1},
                 "speedup_estimation": {"type": 2, "speedup": 12.5}},
                {"rule_identifier": "old", "rule_message": "plain"}]
class Range(list):
    def num_actions(self): return len(self)
    def action_by_idx(self, i): return self[i]
class Context(list):
    def num_ranges(self): return len(self)
    def range_by_idx(self, i): return self[i]
    def get_version(self): return "2099.1.0"
def load_report(path):
    return Context(Range(r) for r in ACTIONS())
"""
PLAIN = 'Action("k", {"gpu__time_duration.sum": Metric(1e3, "ns"), "profiler__replayer_passes": Metric(3.0, "pass")})'


def fake_report(
    tmp_path: Path, body: str, *, version: str = "2099.1.0.0", results: int = 1, name: str = "r.ncu-rep"
) -> dict[str, Path]:
    """A report, and the ncu whose module will be used to read it."""
    report = tmp_path / name
    report.write_bytes(report_bytes(version=version, results=results))
    python = tmp_path / "nsight-compute" / "2099.1.0" / "extras" / "python"
    python.mkdir(parents=True, exist_ok=True)
    (python / "ncu_report.py").write_text(f"{FAKE}\ndef ACTIONS():\n    {body}\n")
    return {"report": report, "ncu": python.parents[1] / "ncu"}


def read_fake(tmp_path: Path, body: str, *, results: int = 1, timeout_s: float = 60, source: bool = True) -> Profile:
    made = fake_report(tmp_path, body, results=results)
    return read_reports([made["report"]], ncu=made["ncu"], timeout_s=timeout_s, source=source)


def fails(tmp_path: Path, body: str, timeout_s: float = 60) -> DiagnoseError:
    with pytest.raises(DiagnoseError) as caught:
        read_fake(tmp_path, body, timeout_s=timeout_s)
    assert caught.value.exit_code == EXIT_USAGE
    assert caught.value.hint
    assert "r.ncu-rep" in caught.value.message
    return caught.value


def test_values_of_a_kernel(tmp_path: Path) -> None:
    body = """return [[Action("k", {
        "gpu__time_duration.sum": Metric(1500.0, "ns"),
        "device__attribute_display_name": Metric("GPU \\udcff", ""),
        "sm__nan.avg": Metric(math.nan, "%"),
        "sm__inf.avg": Metric(math.inf, "%"),
        "no_value": Metric(),
        "sass__inst_executed_per_opcode": Metric(3.0, "", [1, 2], ["LDG", "BRA"]),
        "sass__inst_executed_per_opcode_with_modifier_all": Metric(3.0, "", [1, 2], ["LDG.E", "BRA"]),
        "sass__thread_inst_executed_true_per_opcode": Metric(96.0, "", [32, 64], ["LDG", "BRA"]),
        "inst_executed": Metric(5.0, "inst", [2, 3], [0x7f0000000000, 0x7f0000000010]),
        "smsp__pcsamp_sample_count": Metric(7.0, "", [7], [0x7f0000000010]),
        "smsp__pcsamp_warps_issue_stalled_long_scoreboard": Metric(6.0, "warp", [6], [0x7f0000000010]),
        "smsp__pcsamp_warps_issue_stalled_long_scoreboard_not_issued": Metric(4.0, "warp", [4], [0x7f0000000010]),
        "smsp__pcsamp_warps_issue_stalled_wait": Metric(0.0, "warp", [0], [0x7f0000000010]),
        "memory_l2_theoretical_sectors_global": Metric(9.0, "sectors", [9], [0x7f0000000000]),
    })]]"""
    result = read_fake(tmp_path, body)
    (kernel,) = result.kernels
    assert (kernel.name, kernel.demangled, kernel.workload) == ("k", "void k(int)", "kernel")
    assert (kernel.run, kernel.index) == (0, 0)
    assert kernel.number("gpu__time_duration.sum") == 1500
    assert kernel.units["gpu__time_duration.sum"] == "ns"
    assert kernel.text("device__attribute_display_name") == "GPU \ufffd"
    assert kernel.not_finite == ("sm__nan.avg", "sm__inf.avg")
    assert "no_value" not in kernel.metrics
    assert kernel.opcodes == {"LDG.E": 1, "BRA": 2}
    assert kernel.thread_opcodes == {"LDG": 32, "BRA": 64}
    assert kernel.number("diagnose__inst_executed_by_address") == 5
    assert kernel.number("diagnose__sass_instructions") == 2
    load, branch = kernel.lines
    assert (load.pc, load.text, load.executed, load.samples) == (0, "LDG.E R2, desc[UR4][R2.64]", 2, 0)
    assert (load.l2_sectors, load.l2_sectors_ideal, load.shared_wavefronts) == (9, None, None)
    assert (branch.pc, branch.text, branch.samples) == (16, "BRA `(.L_x_1) 0x10", 7)
    assert (branch.stalls, branch.not_issued) == ({"long_scoreboard": 6}, {"long_scoreboard": 4})
    assert (branch.file, branch.line) == ("k.cu", (0x7F0000000010 // 16) % 100)
    assert kernel.sources == {"k.cu": "__global__ text"}
    assert kernel.ncu_rules[0] == {
        "rule_identifier": "R",
        "section_identifier": "S",
        "name": "N",
        "rule_title": "T",
        "rule_message": "M",
        "speedup_type": "global",
        "speedup_estimation": "12.5",
    }
    assert kernel.ncu_rules[1] == {"rule_identifier": "old", "rule_message": "plain"}
    # A part that the module cannot give is a warning and does not cost the kernel.
    assert any("NVTX" in w and "no state" in w for w in result.warnings)
    assert result.lost == ()
    assert result.runs[0].ncu_version == "2099.1.0.0"
    assert result.runs[0].clock_control == "base"
    assert result.runs[0].host == "node7"


def test_source_texts_and_metrics_can_be_left_out(tmp_path: Path) -> None:
    body = 'return [[Action("k", {"a": Metric(1, "ns"), "b": Metric(2), "inst_executed": Metric(5, "", [2], [4096])})]]'
    assert read_fake(tmp_path, body).kernels[0].sources
    kernel = read_fake(tmp_path, body, source=False).kernels[0]
    assert kernel.sources == {}
    assert kernel.lines[0].file == "k.cu"
    made = fake_report(tmp_path, body)
    kernel = read_reports([made["report"]], ncu=made["ncu"], metrics=lambda n: n == "b").kernels[0]
    assert kernel.metrics == {"b": 2}
    assert kernel.units == {}
    assert kernel.lines


def test_workloads(tmp_path: Path) -> None:
    body = 'return [[Action("k", {"a": Metric(1.0)}, kind)] for kind in range(4)]'
    kernels = read_fake(tmp_path, body, results=4).kernels
    assert [k.workload for k in kernels] == ["kernel", "range", "range", "graph"]
    assert [k.index for k in kernels] == [0, 1, 2, 3]


def test_a_time_line_is_cut_to_the_life_of_the_kernel_and_thinned(tmp_path: Path) -> None:
    body = """
    times = [0, *range(1000, 4000)]
    name = "TPC.TriageCompute.sm__cycles_active.avg"
    return [[Action("k", {
        name: Metric(None, "cycle", [float(t) for t in times], times),
        "SM.TriageA.x": Metric(None, "%", [math.nan] * 8, list(range(1500, 2300, 100))),
        "FBPA.TriageA.y": Metric(None, "%", [1.0, 2.0, 3.0], None),
        "profiler__timestamp_workload_start_0": Metric(1.0, "", [0], [1500]),
        "profiler__timestamp_workload_end_0": Metric(1.0, "", [0], [2699]),
    })]]"""
    kernel = read_fake(tmp_path, body).kernels[0]
    series = {s.metric: s for s in kernel.timeline}
    active = series["TPC.TriageCompute.sm__cycles_active.avg"]
    values = list(active.values)
    assert active.unit == "cycle"
    assert (len(values), values[0], values[-1]) == (400, 1501, 2698)
    assert list(series["FBPA.TriageA.y"].values) == [1, 2, 3]
    assert "SM.TriageA.x" in kernel.not_finite


def test_a_large_kernel_gets_text_for_its_hot_places_only(tmp_path: Path) -> None:
    body = """
    pcs = [0x100000 + 16 * i for i in range(5000)]
    samples = [10 if i == 2500 else 0 for i in range(5000)]
    return [[Action("k", {"inst_executed": Metric(1.0, "inst", list(range(5000)), pcs),
                          "smsp__pcsamp_sample_count": Metric(10.0, "", samples, pcs)})]]"""
    kernel = read_fake(tmp_path, body).kernels[0]
    offsets = [line.pc // 16 for line in kernel.lines]
    assert offsets == sorted({*range(2476, 2525), *range(4600, 5000)})
    assert kernel.number("diagnose__sass_instructions") == 5000
    assert kernel.number("diagnose__inst_executed_by_address") == sum(range(5000))


def test_results_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    body = f'return [[{PLAIN}, Action(None, {{}}), Action("empty", {{}}), {PLAIN}]]'
    result = read_fake(tmp_path, body, results=5)
    assert [k.name for k in result.kernels] == ["k", "k"]
    assert [k.index for k in result.kernels] == [0, 1]
    assert result.runs[0].passes_total == 6
    assert len(result.lost) == 3
    assert "result 1 (its data is not in the file)" in result.lost[0]
    assert "result 2 (it has no metrics)" in result.lost[1]
    assert "1 of 5 results" in result.lost[2]
    assert any("2 results" in w for w in result.warnings)


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        ("os.abort()", "crashed (SIGABRT)"),
        (f"os.kill(os.getpid(), {int(signal.SIGSEGV)})", "crashed (SIGSEGV)"),
        ("os.kill(os.getpid(), 9)", "SIGKILL"),
        ("bytearray(1 << 40)", "limit of 8 GiB of memory"),
        ("os._exit(3)", "exit status 3"),
        ("raise RuntimeError('bad table')", "RuntimeError: bad table"),
        ("raise ImportError('libnvperf')", "libnvperf"),
    ],
)
def test_a_child_that_fails_is_one_error(tmp_path: Path, failure: str, said: str) -> None:
    assert said in fails(tmp_path, failure).message


def test_a_child_that_hangs_is_ended_in_time(tmp_path: Path) -> None:
    start = time.monotonic()
    assert "within 0.5 s" in fails(tmp_path, "time.sleep(60)", timeout_s=0.5).message
    assert time.monotonic() - start < 10


def test_what_was_read_before_a_crash_is_kept(tmp_path: Path) -> None:
    body = f"""
    class Late(Range):
        def action_by_idx(self, i): return self[i] if i < 2 else os.abort()
    return [Late([{PLAIN}, {PLAIN}, None])]"""
    python = fake_report(tmp_path, body, results=3)
    module = python["ncu"].parent / "extras" / "python" / "ncu_report.py"
    module.write_text(module.read_text().replace("Context(Range(r) for r in ACTIONS())", "Context(ACTIONS())"))
    result = read_reports([python["report"]], ncu=python["ncu"])
    assert len(result.kernels) == 2
    assert any("SIGABRT" in text for text in result.lost)


def test_files_of_the_current_folder_are_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = fake_report(tmp_path, f"return [[{PLAIN}]]")
    (tmp_path / "json.py").write_text("raise SystemExit('imported from the current folder')")
    monkeypatch.chdir(tmp_path)
    assert read_reports([Path("r.ncu-rep")], ncu=made["ncu"]).runs[0].source == "r.ncu-rep"


@pytest.mark.parametrize(
    "line",
    [
        '{"kind":"kernel"}',
        '{"kind":"kernel","index":0,"name":"k","demangled":"k","workload":"kernel","metrics":{"a":1e999}}',
        '{"kind":"kernel","index":0,"name":"k","demangled":"k","workload":"kernel","metrics":{"a":NaN}}',
        '[[["kernel"]]]',
        "[" * 100_000,
        "\\xff\\xfe",
    ],
)
def test_the_output_of_the_child_is_not_believed(tmp_path: Path, line: str) -> None:
    escaped = line.replace('"', '\\"')
    body = f'import sys; open(sys.argv[2], "ab").write(b"{escaped}\\n"); os._exit(0)'
    assert fails(tmp_path, body)


def test_an_interrupt_ends_the_children(tmp_path: Path) -> None:
    made = fake_report(tmp_path, "time.sleep(120)")
    main = threading.main_thread().ident
    assert main is not None
    timer = threading.Timer(1.0, lambda: signal.pthread_kill(main, signal.SIGINT))
    timer.start()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        read_reports([made["report"]], ncu=made["ncu"])
    assert time.monotonic() - start < 20


@pytest.mark.parametrize("tail", [b"", b"\0" * 60])
def test_a_report_without_results(tmp_path: Path, tail: bytes) -> None:
    path = tmp_path / "a.ncu-rep"
    path.write_bytes(report_bytes(results=0) + tail)
    with pytest.raises(DiagnoseError, match="truncated" if tail else "truncated or empty: it holds 0 results"):
        read_reports([path])


def test_a_report_that_is_too_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIAGNOSE_NCU", str(tmp_path / "no" / "ncu"))
    path = tmp_path / "a.ncu-rep"
    path.write_bytes(report_bytes(version="2099.2.0.0"))
    with pytest.raises(DiagnoseError, match=r"ncu 2099\.2\.0\.0, too new for ncu_report 20") as caught:
        read_reports([path])
    assert "ncu-report" in caught.value.hint


def test_the_module_of_an_ncu_serves_where_none_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    made = fake_report(tmp_path, f"return [[{PLAIN}]]", version="2025.1.0.0")
    monkeypatch.setattr(metadata, "version", missing)
    monkeypatch.setenv("DIAGNOSE_NCU", str(made["ncu"]))
    assert read_reports([made["report"]]).kernels[0].name == "k"


def test_a_folder_with_a_bad_report_gives_the_others(tmp_path: Path) -> None:
    folder = tmp_path / "ranks"
    folder.mkdir()
    made = fake_report(tmp_path, f"return [[{PLAIN}]]")
    for rank in range(3):
        (folder / f"job.{rank}.ncu-rep").write_bytes(made["report"].read_bytes() if rank != 1 else b"")
    result = read_reports([folder], ncu=made["ncu"])
    assert [k.run for k in result.kernels] == [0, 1]
    assert [k.index for k in result.kernels] == [0, 1]
    assert len(result.runs) == 2
    assert "job.1.ncu-rep is empty" in result.lost[0]
    with pytest.raises(DiagnoseError, match=r"job\.1\.ncu-rep is empty"):
        read_reports([folder / f"job.{rank}.ncu-rep" for rank in range(3)], ncu=made["ncu"])
    (folder / "job.0.ncu-rep").unlink()
    (folder / "job.2.ncu-rep").unlink()
    with pytest.raises(DiagnoseError, match=r"job\.1\.ncu-rep is empty"):
        read_reports([folder], ncu=made["ncu"])


@pytest.mark.parametrize(
    ("names", "ranks"),
    [
        (["a.ncu-rep"], [None]),
        (["job_rank3.ncu-rep"], [3]),
        (["h200-0.ncu-rep", "h200-1.ncu-rep.xz"], [0, 1]),
        (["before1.ncu-rep", "after2.ncu-rep"], [None, None]),
        (["v1.ncu-rep", "v2.ncu-rep"], [None, None]),
        (["job.12.0.ncu-rep", "job.12.1.ncu-rep"], [0, 1]),
        (["frank7.ncu-rep"], [None]),
    ],
)
def test_ranks_by_file_name(tmp_path: Path, names: list[str], ranks: list[int | None]) -> None:
    made = fake_report(tmp_path, f"return [[{PLAIN}]]")
    paths = [tmp_path / name for name in names]
    for path in paths:
        data = made["report"].read_bytes()
        path.write_bytes(lzma.compress(data) if path.suffix == ".xz" else data)
    assert [run.rank for run in read_reports(paths, ncu=made["ncu"]).runs] == ranks


def test_rank_by_the_output_name_given_to_ncu(tmp_path: Path) -> None:
    made = fake_report(tmp_path, f"return [[{PLAIN}]]")
    path = tmp_path / "train-node7-13.ncu-rep"
    path.write_bytes(
        report_bytes(version="2099.1.0.0", command="/opt/ncu -o out/train-%h-%q{OMPI_COMM_WORLD_RANK} python t.py")
    )
    assert read_reports([path], ncu=made["ncu"]).runs[0].rank == 13


# --- recorded reports ---


def recorded(name: str) -> Profile:
    return read_reports([SHARED / name])


@pytest.fixture(scope="module")
def gemm() -> Profile:
    return recorded("h200-gemm.ncu-rep.xz")


@needs_reports
def test_provenance_of_a_recorded_report(gemm: Profile) -> None:
    (run,) = gemm.runs
    assert run.source == str(SHARED / "h200-gemm.ncu-rep.xz")
    assert run.ncu_version == "2025.3.1.0"
    assert run.command is not None
    assert run.command.endswith("gemm_fp8_8192")
    assert (run.clock_control, run.cache_control, run.replay) == ("none", "all", "kernel")
    assert (run.passes_total, run.host, run.rank) == (190, "vm", None)
    assert gemm.warnings == ()
    assert gemm.lost == ()


@needs_reports
def test_a_gemm_on_an_h200(gemm: Profile) -> None:
    assert len(gemm.kernels) == 5
    kernel = gemm.kernels[0]
    assert kernel.number("gpu__time_duration.sum") == 1379424
    assert kernel.units["gpu__time_duration.sum"] == "ns"
    assert len(kernel.metrics) > 2200
    assert kernel.opcodes["HGMMA.64x64x16.F32.BF16"] == 34078720
    assert kernel.nvtx == ("gemm_bf16_8192",)
    assert len(kernel.ncu_rules) == 9
    hottest = max(kernel.lines, key=lambda line: line.samples or 0)
    assert hottest.text.startswith("HGMMA.64x64x16.F32.BF16")
    assert max(hottest.stalls, key=lambda reason: hottest.stalls[reason]) == "warpgroup_arrive"
    assert kernel.lines[0].text == "LDC R1, c[0x0][0x28]"
    assert kernel.lines[0].pc == 0
    # Branches lead to offsets inside the kernel.
    targets = [int(m, 16) for line in kernel.lines for m in re.findall(r"BRA.* (0x[0-9a-f]+)$", line.text)]
    assert targets
    assert all(0 <= t <= kernel.lines[-1].pc for t in targets)


@needs_reports
def test_time_lines_show_the_kernel_and_not_the_idle_time_around_it(gemm: Profile) -> None:
    for kernel in (gemm.kernels[0], gemm.kernels[1], gemm.kernels[4]):
        series = {s.metric: s.values for s in kernel.timeline}
        active = series["TPC.TriageCompute.sm__cycles_active.avg"]
        assert 20 <= len(active) <= 400
        assert sum(v > 0 for v in active) >= 0.95 * len(active)
        assert active[0] > 0


@needs_reports
def test_every_recorded_report_reads_without_a_loss() -> None:
    paths = sorted(p for p in SHARED.rglob("*") if ".ncu-rep" in p.name or "cuprof" in p.name)
    result = read_reports(paths)
    assert len(result.runs) == len(paths)
    assert result.lost == ()
    assert result.warnings == ()
    assert [k.index for k in result.kernels] == list(range(len(result.kernels)))
    for kernel in result.kernels:
        check(kernel)
    legacy = next(r for r in result.runs if "pascal" in r.source)
    assert (legacy.ncu_version, legacy.command, legacy.clock_control) == (None, None, None)


def check(kernel: KernelProfile) -> None:
    assert kernel.name
    assert kernel.workload == "kernel"
    assert all(math.isfinite(v) for v in kernel.metrics.values() if not isinstance(v, str))
    assert not set(kernel.not_finite) & set(kernel.metrics)
    executed = kernel.number("diagnose__inst_executed_by_address")
    if executed is None:
        assert kernel.lines == ()
        return
    counted = kernel.number("smsp__inst_executed.sum")
    if counted is not None:  # spinning loops make passes differ by some per cent
        assert executed == pytest.approx(counted, rel=0.15)
    samples = kernel.number("smsp__pcsamp_sample_count")
    if samples:
        assert sum(line.samples or 0 for line in kernel.lines) >= 0.9 * samples
        for line in kernel.lines:
            assert sum(line.stalls.values()) <= (line.samples or 0)
    assert all(line.text and line.pc >= 0 for line in kernel.lines)


@needs_reports
def test_source_lines_of_a_recorded_report() -> None:
    kernel = recorded("public/nvidia-training-nvtx.ncu-rep").kernels[1]
    assert kernel.name == "daxpy_kernel"
    assert {line.file for line in kernel.lines} == {"/usr/local/parallel_forall/posts/nvtx/manual_nvtx.cu"}
    assert all(line.line for line in kernel.lines)
    assert kernel.nvtx == ("run_test", "daxpy")


@needs_reports
@pytest.mark.parametrize(("share", "kernels"), [(0.3, 0), (0.5, 2), (0.8, 4)])
def test_a_truncated_report(tmp_path: Path, share: float, kernels: int) -> None:
    data = lzma.decompress((SHARED / "h200-gemm.ncu-rep.xz").read_bytes())
    path = tmp_path / "cut.ncu-rep"
    path.write_bytes(data[: int(len(data) * share)])
    if not kernels:
        with pytest.raises(DiagnoseError, match="truncated and holds no readable result"):
            read_reports([path])
        return
    result = read_reports([path])
    assert len(result.kernels) == kernels
    assert f"result {kernels} (its data is not in the file)" in result.lost[0]
    assert any("truncated" in w for w in result.warnings)


@needs_reports
def test_a_truncated_archive(tmp_path: Path) -> None:
    data = (SHARED / "h200-gemm.ncu-rep.xz").read_bytes()
    path = tmp_path / "cut.ncu-rep.xz"
    path.write_bytes(data[: len(data) * 9 // 10])
    result = read_reports([path])
    assert 0 < len(result.kernels) < 5
    assert any("xz data ends early" in w for w in result.warnings)
    assert result.lost


@needs_reports
def test_two_children_read_what_one_reads(gemm: Profile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("diagnose.reader._SHARED_FROM", 0)
    monkeypatch.setattr("os.cpu_count", lambda: 3)
    assert recorded("h200-gemm.ncu-rep.xz") == gemm


@pytest.mark.parametrize(
    ("results", "megabytes", "children", "parts"),
    [
        (3, 1, 15, 1),  # a second child would start for longer than it reads
        (10, 1, 15, 2),
        (3, 20, 15, 2),  # large kernels
        (32, 80, 15, 8),
        (500, 80, 15, 8),
        (63, 400, 15, 5),  # every child maps the whole file
        (63, 3000, 15, 1),
        (32, 80, 1, 1),  # two cores: this process has one of them
        (0, 0, 15, 1),
    ],
)
def test_how_many_children_share_a_report(results: int, megabytes: int, children: int, parts: int) -> None:
    assert reader._parts(results, megabytes << 20, children) == parts


def test_a_crash_of_one_of_two_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("diagnose.reader._SHARED_FROM", 0)
    monkeypatch.setattr("os.cpu_count", lambda: 3)
    bad = "type('Bad', (Action,), {'metric_names': lambda self: os.abort()})('bad', {})"
    result = read_fake(tmp_path, f"return [[{PLAIN}, {bad}, {PLAIN}]]", results=3)
    assert [k.index for k in result.kernels] == [0, 1]
    assert any("SIGABRT" in text for text in result.lost)


@needs_reports
@pytest.mark.parametrize("megabytes", [20, 45])
def test_too_little_memory_is_said(megabytes: int) -> None:
    with pytest.raises(DiagnoseError, match=f"limit of {megabytes} MiB") as caught:
        read_reports([SHARED / "h200-gemm.ncu-rep.xz"], memory_bytes=megabytes << 20)
    assert caught.value.exit_code == EXIT_USAGE


@needs_reports
def test_what_fits_into_memory_is_kept() -> None:
    result = read_reports([SHARED / "h200-gemm.ncu-rep.xz"], memory_bytes=200 << 20)
    assert 0 < len(result.kernels) < 5
    assert len(result.lost) == 1
    assert "limit of 200 MiB" in result.lost[0]
