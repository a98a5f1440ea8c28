"""From Python: `import diagnose` is cheap, `profile` runs things again under (a stand-in for) ncu, summaries show
themselves, and results of nsight-python get their parameters back.
"""

from __future__ import annotations

import functools
import importlib.util
import io
import json
import lzma
import pickle
import subprocess
import sys
import textwrap
import types
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from rich.console import Console

import diagnose
from diagnose import notebook, nsight, rerun
from diagnose.collect import launchers
from diagnose.errors import DiagnoseError
from diagnose.model import Profile
from diagnose.reader import read_reports
from recorded import REPORTS
from test_collect import FAKE, GEMM

ROOT = Path(__file__).resolve().parents[1]
MMA, NAIVE = REPORTS / "gemm-mma.ncu-rep.xz", REPORTS / "gemm-naive.ncu-rep.xz"
pytestmark = pytest.mark.skipif(not (MMA.is_file() and NAIVE.is_file()), reason="examples/reports is not here")
RANK_VARIABLES = ("OMPI_COMM_WORLD_RANK", "RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID", launchers.PROFILED)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which a stand-in ncu runs the target and leaves a recorded report."""
    report = tmp_path / "recorded"
    report.write_bytes(lzma.decompress(MMA.read_bytes()))
    (tmp_path / "scenario.json").write_text(json.dumps({"launches": GEMM, "report_file": str(report)}))
    monkeypatch.setenv("FAKE_NCU_SCENARIO", str(tmp_path / "scenario.json"))
    monkeypatch.setenv("FAKE_NCU_RECORD", str(tmp_path / "commands"))
    monkeypatch.setenv("DIAGNOSE_NCU", str(FAKE))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    for name in RANK_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def runs(folder: Path) -> int:
    """How often ncu was started."""
    record = folder / "commands"
    return len(record.read_text().splitlines()) if record.exists() else 0


def python(folder: Path, text: str, *words: str) -> subprocess.CompletedProcess[str]:
    (folder / "script.py").write_text(textwrap.dedent(text))
    return subprocess.run(
        [sys.executable, "script.py", *words], cwd=folder, capture_output=True, text=True, timeout=180, check=False
    )


def module(folder: Path, name: str, text: str) -> Any:
    (folder / f"{name}.py").write_text(textwrap.dedent(text))
    sys.modules.pop(name, None)
    return importlib.import_module(name)


# --- import


def test_importing_costs_next_to_nothing() -> None:
    code = (
        "import sys, diagnose; heavy = {'numpy', 'pandas', 'yaml', 'jinja2', 'rich', 'typer', 'ncu_report'};"
        "print(sorted(heavy & set(sys.modules)), [n for n in sys.modules if n.startswith('diagnose.')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT, timeout=60
    )
    assert done.stdout.strip() == "[] []"


def test_what_the_package_offers() -> None:
    assert {"profile", "read", "from_nsight", "nsight_metrics", "Summary", "__version__"} <= set(dir(diagnose))
    assert callable(diagnose.profile) and diagnose.profile is notebook.profile
    with pytest.raises(AttributeError, match="no attribute 'porfile'"):
        _ = diagnose.porfile  # type: ignore[attr-defined]


# --- a function


def test_a_function_runs_again_after_its_warm_up(folder: Path) -> None:
    work = module(folder, "steps", "def step(n, *, scale=1):\n    open('seen', 'a').write(f'{n} {scale}\\n')\n")
    told: list[str] = []
    summary = diagnose.profile(work.step, 3, scale=2, warmup=2, progress=told.append)
    assert (folder / "seen").read_text() == "3 2\n" * 3
    assert summary.document["kernels"][0]["verdict"]["rule"] == "legacy-mma"
    assert any(line.startswith("ncu 2025.3.1.0") for line in told) and runs(folder) == 1
    command = json.loads((folder / "commands").read_text())
    assert command[command.index("--profile-from-start") + 1] == "off"
    assert not list(folder.glob("*.ncu-rep")), "no report is left, unless one was asked for"
    diagnose.profile(work.step, 3, report="kept.ncu-rep")
    assert (folder / "kept.ncu-rep").is_file()


def test_a_function_of_a_script(folder: Path) -> None:
    done = python(
        folder,
        """
        import diagnose
        def step(n):
            open("seen", "a").write(f"{n} {__name__}\\n")
        if __name__ == "__main__":
            print(diagnose.profile(step, 7, warmup=0).document["kernels"][0]["name"])
        """,
    )
    assert done.stdout == "gemm_mma\n", done.stderr
    assert (folder / "seen").read_text() == "7 __mp_main__\n"


def test_what_cannot_be_sent_is_refused_before_anything_runs(folder: Path) -> None:
    with pytest.raises(DiagnoseError, match="cannot be sent to the second process"):
        diagnose.profile(lambda: None)
    assert runs(folder) == 0


def test_a_failing_function_is_reported_with_what_it_said(folder: Path) -> None:
    work = module(folder, "broken", "def step():\n    raise ValueError('no weights here')\n")
    (folder / "scenario.json").write_text(
        json.dumps({"report": None, "after": ["==WARNING== No kernels were profiled."]})
    )
    with pytest.raises(DiagnoseError) as raised:
        diagnose.profile(work.step)
    said = str(raised.value)
    assert "exited with status 1 before any kernel" in said and "hint:" in said and "no weights here" in said


# --- a block


def test_a_block_of_a_script_is_profiled_in_a_second_process(folder: Path) -> None:
    done = python(
        folder,
        """
        import sys, diagnose
        def note(text):
            open("seen", "a").write(text + " ")
        note("start")
        with diagnose.profile() as first:
            note("one")
        note("between")
        with diagnose.profile() as second:
            note("two")
        note("end")
        print(first.summary is not None, second.summary is not None, sys.argv[1:])
        print(second)
        """,
        "--batch",
        "4",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("True True ['--batch', '4']\n") and "can be won back" in done.stdout
    # The first process, with each block's second process where it ended: after the block, nothing more of it runs.
    assert (folder / "seen").read_text().split() == [
        "start", "one", "start", "one", "between", "two", "start", "one", "between", "two", "end",
    ]  # fmt: skip
    assert runs(folder) == 2


def test_calls_before_a_block_are_not_profiled_again_in_its_process(folder: Path) -> None:
    """ncu under ncu would wait for itself: the second process is given what the first has."""
    done = python(
        folder,
        """
        import diagnose
        def step():
            open("seen", "a").write("step ")
        if __name__ == "__main__":
            s = diagnose.profile(step, warmup=0)
            open("seen", "a").write(s.document["kernels"][0]["name"] + " ")
            with diagnose.profile() as p:
                open("seen", "a").write("block ")
            print(p.summary is not None)
        """,
    )
    assert done.stdout == "True\n", done.stderr
    assert (folder / "seen").read_text().split() == ["step", "gemm_mma", "block", "gemm_mma", "block"]
    assert runs(folder) == 2


def test_an_error_in_the_block_is_the_programs(folder: Path) -> None:
    with pytest.raises(ZeroDivisionError), diagnose.profile() as p:
        print(1 // 0)
    assert p.summary is None and runs(folder) == 0
    assert "not profiled yet" in p._repr_html_() and str(p) == "not profiled yet"


def test_a_program_that_is_being_profiled_only_marks_its_block(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(launchers.PROFILED, launchers.RANGE)
    marks: list[str] = []
    monkeypatch.setattr(rerun, "profiler_range", lambda: _marking(marks))
    with diagnose.profile() as p:
        marks.append("work")
    assert marks == ["start", "work", "stop"] and p.summary is None and runs(folder) == 0
    marks.clear()
    monkeypatch.setenv(launchers.PROFILED, "1")
    with diagnose.profile():
        marks.append("work")
    assert marks == ["work"] and runs(folder) == 0, "a stop would end the profile of the whole program"
    marks.clear()
    assert diagnose.profile(marks.append, "work") is None and marks == ["work", "work"] and runs(folder) == 0


class _marking:
    def __init__(self, marks: list[str]) -> None:
        self.marks = marks

    def __enter__(self) -> None:
        self.marks.append("start")

    def __exit__(self, *_: object) -> None:
        self.marks.append("stop")


def test_a_rank_is_told_where_diagnose_goes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PMI_RANK", "2")
    monkeypatch.setenv("PMI_SIZE", "4")
    with pytest.raises(DiagnoseError, match="rank 2 of 4") as raised, diagnose.profile():
        raise AssertionError("the block does not begin")
    assert "diagnose --profiler-range" in raised.value.hint
    with pytest.raises(DiagnoseError, match="rank 2 of 4"):
        diagnose.profile(print)


def test_without_a_file_or_a_notebook_there_is_nothing_to_run_again(folder: Path) -> None:
    code = "import diagnose\nwith diagnose.profile() as p:\n    pass\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert "stands in no file and no notebook" in done.stderr


def test_the_range_needs_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    class Driver:
        def __getattr__(self, name: str) -> Callable[..., int]:
            return lambda *args: calls.append(name) or 0  # type: ignore[func-returns-value]

    with rerun.profiler_range():
        pass
    monkeypatch.setattr(rerun, "_driver", Driver)
    with pytest.raises(KeyError), rerun.profiler_range():
        raise KeyError
    assert calls[-4:] == ["cuCtxSynchronize", "cuProfilerStart", "cuCtxSynchronize", "cuProfilerStop"]


# --- a notebook


STAND_IN_SHELL = """
class _Result:
    error_in_exec = None
class InteractiveShell:
    _one = None
    @classmethod
    def instance(cls):
        cls._one = cls._one or cls()
        return cls._one
    def __init__(self):
        self.names = {"__name__": "__main__"}
    def run_cell(self, cell, store_history=True):
        result = _Result()
        try:
            exec(cell, self.names)
        except BaseException as error:
            result.error_in_exec = error
        return result
"""


def test_a_notebook_runs_its_cells_again_up_to_the_block(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "IPython" / "core").mkdir(parents=True)
    for name in ("IPython/__init__.py", "IPython/core/__init__.py"):
        (folder / name).write_text("")
    (folder / "IPython/core/interactiveshell.py").write_text(STAND_IN_SHELL)
    cells = [
        "",
        "import diagnose\ndef note(text):\n    open('seen', 'a').write(text + ' ')\n",
        "note('load'); 1 / 0",
        f"with diagnose.profile() as p:  # block {notebook._entered + 1}\n    note('block')\nnote('after')",
        "note('later')",
    ]
    shown: list[Any] = []
    shell = types.SimpleNamespace(user_ns={"In": cells[:4]})
    fake = types.ModuleType("IPython")
    fake.get_ipython = lambda: shell  # type: ignore[attr-defined]
    fake.display = types.ModuleType("IPython.display")  # type: ignore[attr-defined]
    fake.display.display = shown.append
    monkeypatch.setitem(sys.modules, "IPython", fake)
    monkeypatch.setitem(sys.modules, "IPython.display", fake.display)
    monkeypatch.setattr(notebook, "_entered", 0)
    with diagnose.profile() as p:
        pass
    assert (folder / "seen").read_text() == "load block ", (
        "failed cells failed before, too; nothing after the block runs"
    )
    assert shown == [p.summary] and p.summary is not None and "gemm_mma" in p._repr_html_()


def test_a_function_of_a_notebook_needs_cloudpickle(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = types.ModuleType("IPython")
    fake.get_ipython = lambda: types.SimpleNamespace(user_ns={"In": []})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", fake)
    names: dict[str, Any] = {"__name__": "__main__"}
    exec("def step():\n    open('seen', 'w').write('ran')\n", names)
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    with pytest.raises(DiagnoseError, match="defined in a notebook") as raised:
        diagnose.profile(names["step"])
    assert "pip install cloudpickle" in raised.value.hint and runs(folder) == 0
    sends = types.ModuleType("cloudpickle")
    sends.dumps = lambda value: pickle.dumps((print, ("hello",), {}))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cloudpickle", sends)
    assert diagnose.profile(names["step"]).document["kernels"]


# --- what a summary shows


@pytest.fixture(scope="module")
def profile() -> Profile:
    return read_reports([MMA, NAIVE])


def test_reports_are_read_together() -> None:
    summary = diagnose.read(MMA, NAIVE)
    assert [one["name"] for one in summary.document["kernels"]] == ["gemm_mma", "gemm_naive"]
    assert list(summary.kernels["verdict"]) == ["legacy-mma", "global-reload"]
    assert summary.metrics.shape[0] == 2 and "dram__bytes_read.sum" in summary.metrics.columns


def test_a_summary_shows_itself(tmp_path: Path) -> None:
    summary = diagnose.read(NAIVE)
    assert "gemm_naive" in str(summary) and "\x1b" not in str(summary)
    narrow = Console(width=60, record=True, file=io.StringIO(), force_terminal=True)
    narrow.print(summary)
    lines = narrow.export_text().splitlines()
    assert any("gemm_naive" in line for line in lines) and max(map(len, lines)) <= 60
    page = summary._repr_html_()
    assert "<table>" in page and "gemm_naive" in page and "Reads the same global data" in page and "×" in page
    path = summary.save(tmp_path / "report.html")
    assert path.read_text().startswith("<!doctype html>") and summary.save(path) == tmp_path / "report-2.html"


def test_hostile_names_stay_text_in_a_notebook() -> None:
    summary = diagnose.read(MMA)
    kernel = {**summary.document["kernels"][0], "name": "<img src=x onerror=alert(1)>", "demangled": "<script>"}
    warnings = ["<b>bold</b>"]
    page = replace(summary, document={**summary.document, "kernels": [kernel], "warnings": warnings})._repr_html_()
    assert "<img" not in page and "<script" not in page and "<b>" not in page and "&lt;img" in page


# --- nsight-python


def sweep(profile: Profile, *, runs: int = 2) -> tuple[Profile, pd.DataFrame]:
    """A profile as nsight-python's ncu records it, and its frame: two annotations, two sizes, `runs` runs each."""
    kernels, rows = [], []
    for size, factor in ((1024, 1.0), (4096, 3.0)):
        for run in range(runs):
            for annotation, kernel in zip(("tensor", "simple"), profile.kernels, strict=True):
                time = kernel.metrics["gpu__time_duration.sum"] * factor * (1 + 0.01 * run)  # type: ignore[operator]
                metrics = {**kernel.metrics, "gpu__time_duration.sum": time}
                kernels.append(replace(kernel, index=len(kernels), metrics=metrics, nvtx=(annotation,)))
        for annotation in ("tensor", "simple"):
            times = [k.number("gpu__time_duration.sum") or 0.0 for k in kernels[-2 * runs :] if annotation in k.nvtx]
            common = {"Annotation": annotation, "n": size, "dtype": "bf16", "NumRuns": runs, "Normalized": False}
            rows.append({**common, "Metric": "gpu__time_duration.sum", "AvgValue": sum(times) / runs, "Kernel": "x"})
            rows.append({**common, "Metric": "TFLOPs", "AvgValue": 1.5, "Kernel": "x", "Geomean": 2.0})
    return replace(profile, kernels=tuple(kernels)), pd.DataFrame(rows)


class Result:
    """What a decorated function returns."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self.frame = frame

    def to_dataframe(self) -> pd.DataFrame:
        return self.frame


def decorated(prefix: str, calls: int, counter: str = "_nspy_run_id") -> Callable[..., Any]:
    """A function under a stand-in for `@nsight.analyze.kernel`: the profiler is closed over, the runs are counted."""
    profiler = types.SimpleNamespace(settings=types.SimpleNamespace(output_prefix=prefix))

    def inner(n: int) -> None: ...

    setattr(inner, counter, calls)

    @functools.wraps(inner)
    def wrapper(*args: Any) -> Any:
        return profiler, inner

    @functools.wraps(wrapper)
    def plotted(*args: Any) -> Any:
        return wrapper(*args)

    return plotted


@pytest.fixture
def swept(profile: Profile, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[Profile, pd.DataFrame, Path]:
    """The report is a file; what is read from it is the sweep."""
    found, frame = sweep(profile)
    report = tmp_path / "nspy_x" / "ncu-output-inner-1.ncu-rep"
    report.parent.mkdir()
    report.touch()
    monkeypatch.setattr("diagnose.reader.read_reports", lambda paths, **_: found)
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    return found, frame, report


@pytest.mark.parametrize("how", ["report", "function", "newest"])
def test_a_sweep_gets_its_parameters_back(swept: tuple[Profile, pd.DataFrame, Path], how: str) -> None:
    _, frame, report = swept
    given: Mapping[str, Any] = {
        "report": {"report": report},
        "function": {"function": decorated(f"{report.parent}/", 2, "_nspy_ncu_run_id")},
        "newest": {},
    }[how]
    summary = diagnose.from_nsight(Result(frame), **given)
    assert [(p["n"], p["annotation"]) for p in summary.parameters] == [
        (1024, "tensor"), (1024, "simple"), (1024, "tensor"), (1024, "simple"),
        (4096, "tensor"), (4096, "simple"), (4096, "tensor"), (4096, "simple"),
    ]  # fmt: skip
    table = summary.kernels
    assert list(table.columns[:3]) == ["annotation", "n", "dtype"] and list(table["verdict"][:2]) == [
        "legacy-mma", "global-reload",
    ]  # fmt: skip
    assert summary.document["kernels"][4]["parameters"] == {"annotation": "tensor", "n": 4096, "dtype": "bf16"}
    json.dumps(summary.document)
    page = summary._repr_html_()
    assert page.index("1024") < page.index("4096") and "bf16" in page


def test_a_report_of_another_call_is_refused(swept: tuple[Profile, pd.DataFrame, Path]) -> None:
    _, frame, report = swept
    other = frame.assign(AvgValue=frame["AvgValue"] * 1.01)
    with pytest.raises(DiagnoseError, match="does not hold this result"):
        diagnose.from_nsight(Result(other), report=report)
    with pytest.raises(DiagnoseError, match="none of 1 reports"):
        diagnose.from_nsight(other)
    normalised = other.assign(Normalized="simple")
    assert len(diagnose.from_nsight(normalised, report=report).parameters) == 8, "a ratio says nothing of the report"
    with pytest.raises(DiagnoseError, match="has 4 launches for 6 runs"):
        diagnose.from_nsight(frame.assign(NumRuns=3), report=report)
    with pytest.raises(DiagnoseError, match="is not there"):
        diagnose.from_nsight(frame, report=report.with_name("gone.ncu-rep"))


def test_a_decorated_function_stands_for_its_last_call(swept: tuple[Profile, pd.DataFrame, Path]) -> None:
    report = swept[2]
    function = decorated(f"{report.parent}/", 2)
    assert nsight._report_of(function) == report
    summary = diagnose.from_nsight(function)
    assert summary.parameters == () and len(summary.document["kernels"]) == 8
    with pytest.raises(DiagnoseError, match="was not called yet"):
        diagnose.from_nsight(decorated("x/", 0))
    with pytest.raises(DiagnoseError, match="is not decorated"):
        diagnose.from_nsight(sweep)
    with pytest.raises(DiagnoseError, match="returned no result"):
        diagnose.from_nsight(None)
    with pytest.raises(DiagnoseError, match="int is no result"):
        diagnose.from_nsight(3)


def test_metrics_for_nsight_python(profile: Profile) -> None:
    every = diagnose.nsight_metrics()
    assert "gpu__time_duration.sum" in every and nsight._OPCODES in every and len(set(every)) == len(every)
    summary = diagnose.read(MMA)
    here = diagnose.nsight_metrics(like=summary)
    assert set(here) - {nsight._OPCODES} <= set(summary.profile.kernels[0].metrics) and len(here) > 50


def test_the_real_result_class() -> None:
    """nsight-python itself, where it is installed: its columns are the ones that are known here."""
    if importlib.util.find_spec("nsight") is None:
        pytest.skip("nsight-python is not installed (pip install nsight-python)")
    from nsight.collection.core import ProfileResults
    from nsight.transformation import aggregate_data

    def scale(n: int) -> None: ...

    columns = {"GPU": "x", "Host": "h", "ComputeClock": 1, "MemoryClock": 1, "Unit": "ns", "Kernel": "k"}
    raw = pd.DataFrame(
        [
            {"Annotation": "a", "Value": 1.0 + run, "Metric": "gpu__time_duration.sum", **columns, "n": n}
            for n in (1, 2)
            for run in range(2)
        ]
    )
    frame = ProfileResults(results=aggregate_data(raw, scale, None, 0)).to_dataframe()
    assert [str(name) for name in frame.columns if name not in nsight._OWN] == ["n"]


RECORDED_SWEEP = ROOT / "tests" / "data" / "nsight_scale.csv"


@pytest.mark.skipif(not RECORDED_SWEEP.is_file(), reason="tests/data/nsight_scale.csv is not here")
def test_a_sweep_that_nsight_python_ran_on_an_h200() -> None:
    """`tests/gpu/nsight_python.py`, nsight-python 0.9.6: two annotations, three sizes, two runs each."""
    frame = pd.read_csv(RECORDED_SWEEP)
    report = ROOT / "tests" / "data" / "nsight_scale.ncu-rep.xz"
    summary = diagnose.from_nsight(frame, report=report)
    assert len(summary.parameters) == 12
    verdicts = {
        (p["n"], k["verdict"]["rule"]) for p, k in zip(summary.parameters, summary.document["kernels"], strict=True)
    }
    assert {rule for n, rule in verdicts if n == 1 << 12} == {"launch-bound"}
    assert {rule for n, rule in verdicts if n == 1 << 26} <= {"hbm-bandwidth"}
