"""Any launcher: which rank this is, files that never meet, one report a rank read together, and ranks compared.

Launchers that are not here (mpirun, srun, torchrun) are played by scripts that set the same variables and start the
same processes; `tests/gpu/launchers.py` runs real ones.
"""

from __future__ import annotations

import json
import lzma
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from diagnose import api, ranks
from diagnose.collect import launchers
from diagnose.collect.launchers import Placement, inside, placement, ranked
from diagnose.collect.plan import Plan, Selection, ncu_command
from diagnose.model import KernelProfile, Profile
from diagnose.reader import read_reports
from diagnose.render import html, markdown, terminal
from recorded import COMMAND, REPORTS
from test_collect import FAKE, GEMM, Runner, script

ROOT = Path(__file__).resolve().parents[1]
MMA, NAIVE = REPORTS / "gemm-mma.ncu-rep.xz", REPORTS / "gemm-naive.ncu-rep.xz"
needs_reports = pytest.mark.skipif(not (MMA.is_file() and NAIVE.is_file()), reason="examples/reports is not here")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runner:
    monkeypatch.chdir(tmp_path)
    return Runner(tmp_path, monkeypatch)


# --- which rank


@pytest.mark.parametrize(
    ("variables", "found"),
    [
        ({}, None),
        ({"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "8"}, (3, 8)),
        ({"PMI_RANK": "1", "PMI_SIZE": "4"}, (1, 4)),
        ({"MV2_COMM_WORLD_RANK": "1", "MV2_COMM_WORLD_SIZE": "2"}, (1, 2)),
        ({"PMIX_RANK": "5"}, (5, None)),
        ({"FLUX_TASK_RANK": "0", "FLUX_JOB_SIZE": "2"}, (0, 2)),
        ({"JSM_NAMESPACE_RANK": "1", "JSM_NAMESPACE_SIZE": "6"}, (1, 6)),
        ({"SLURM_PROCID": "7", "SLURM_STEP_NUM_TASKS": "16"}, (7, 16)),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "16"}, None),  # a batch script is no rank
        ({"RANK": "2", "LOCAL_RANK": "0", "WORLD_SIZE": "4"}, (2, 4)),
        ({"RANK": "2", "WORLD_SIZE": "4"}, None),  # a pod's own variable
        ({"RANK": "2", "LOCAL_RANK": "2", "WORLD_SIZE": "4", "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"}, (2, 4)),
        ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1"}, (0, 1)),
        ({"OMPI_COMM_WORLD_RANK": "9", "OMPI_COMM_WORLD_SIZE": "2"}, None),
        ({"PMI_RANK": "../../etc"}, None),
    ],
)
def test_the_rank_is_read_from_what_launchers_set(
    variables: Mapping[str, str], found: tuple[int, int | None] | None
) -> None:
    place = placement(variables)
    assert (None if place is None else (place.rank, place.size)) == found


def test_names_hold_the_rank_once() -> None:
    two, alone = Placement(3, 8, "PMI_RANK"), Placement(0, 1, "PMI_RANK")
    assert ranked(Path("a/report.html"), two) == Path("a/report-rank3.html")
    assert ranked(Path("report-rank3.html"), two) == Path("report-rank3.html")
    assert ranked(Path("report-rank31.html"), two) == Path("report-rank31-rank3.html")
    assert ranked(Path("report.html"), alone) == ranked(Path("report.html"), None) == Path("report.html")
    assert ranked(Path("report.html"), Placement(2, None, "PMIX_RANK")) == Path("report-rank2.html")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("srun -N 2 --ntasks 4 sh -c true", "srun -N 2 --ntasks 4 diagnose sh -c true"),
        ("mpirun -n 4 --bind-to core python3 train.py", "mpirun -n 4 --bind-to core diagnose python3 train.py"),
        ("torchrun --nproc-per-node 8 train.py -b 1",
         "torchrun --no-python --nproc-per-node 8 diagnose python3 train.py -b 1"),
        ("python3 -m torch.distributed.run --nnodes 2 train.py",
         "python3 -m torch.distributed.run --no-python --nnodes 2 diagnose python3 train.py"),
        ("mpiexec -n 2", "mpiexec diagnose PROGRAM …"),
        ("python3 train.py", None),
    ],
)  # fmt: skip
def test_diagnose_goes_inside_a_launcher(words: str, told: str | None) -> None:
    assert inside(words.split()) == told


# --- diagnose inside each rank


MPIRUN = """\
#!/bin/sh
# mpirun -n N PROGRAM: N processes at the same time, each with its rank
n=$2; shift 2; r=0
while [ $r -lt $n ]; do OMPI_COMM_WORLD_RANK=$r OMPI_COMM_WORLD_SIZE=$n "$@" & r=$((r + 1)); done
wait
"""
TORCHRUN = """\
#!/bin/sh
# torchrun --nproc-per-node N SCRIPT
n=$2; shift 2; r=0
while [ $r -lt $n ]; do RANK=$r LOCAL_RANK=$r WORLD_SIZE=$n "$@" & r=$((r + 1)); done
wait
"""


def command(folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    keep = {k: v for k, v in os.environ.items() if not k.startswith(("DIAGNOSE_", "OMPI_", "PMI", "SLURM_"))}
    environment = {**keep, "PYTHONPATH": str(ROOT), "DIAGNOSE_NCU": str(FAKE), **variables}
    done = subprocess.run(
        list(words), cwd=folder, env=environment, capture_output=True, text=True, timeout=180, check=False
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


@needs_reports
def test_ranks_under_mpirun_write_their_own_files_and_are_read_together(tmp_path: Path) -> None:
    report = tmp_path / "recorded"
    report.write_bytes(lzma.decompress(MMA.read_bytes()))
    (tmp_path / "scenario.json").write_text(json.dumps({"launches": GEMM, "report_file": str(report)}))
    script(tmp_path / "mpirun", MPIRUN)
    script(tmp_path / "app", "#!/bin/sh\necho once >> runs-$OMPI_COMM_WORLD_RANK\n")
    scenario = {"FAKE_NCU_SCENARIO": str(tmp_path / "scenario.json")}
    ranks_folder = tmp_path / "ranks"
    ranks_folder.mkdir()
    words = ["../mpirun", "-n", "3", *COMMAND, "--json", "out.json", "--target-output", "out.txt", "../app"]
    done = command(ranks_folder, *words, **scenario)
    reports = ("diagnose-report-rank{}.html", "diagnose-report-rank{}.ncu-rep")
    each = (*reports, "out-rank{}.json", "out-rank{}.txt", "runs-{}")
    expected = {name.format(rank) for name in each for rank in range(3)}
    assert {path.name for path in ranks_folder.iterdir()} == expected, done.stderr
    assert all((ranks_folder / f"runs-{r}").read_text() == "once\n" for r in range(3)), "a rank runs its program once"
    documents = [json.loads((ranks_folder / f"out-rank{r}.json").read_text()) for r in range(3)]
    assert [document["runs"][0]["rank"] for document in documents] == [0, 1, 2]
    assert command(ranks_folder, *words, **scenario).returncode == 0
    assert (ranks_folder / "diagnose-report-rank1-2.ncu-rep").is_file(), "the next free number, within the rank"
    for path in ranks_folder.glob("*-2.*"):
        path.unlink()
    together = command(tmp_path, *COMMAND, "--format", "json", "--no-html", str(ranks_folder))
    document = json.loads(together.stdout)
    assert [run["rank"] for run in document["runs"]] == [0, 1, 2]
    assert [rank["label"] for rank in document["ranks"]["ranks"]] == ["rank 0", "rank 1", "rank 2"]
    assert document["ranks"]["slower"] is False and [kernel["rank"] for kernel in document["kernels"]] == [0, 1, 2]


def test_a_program_knows_that_it_is_profiled_and_autotuning_stays_on_disk(run: Runner) -> None:
    words = ["sh", "-c", "echo $TRITON_CACHE_AUTOTUNING $DIAGNOSE_PROFILED > seen"]
    run(words, launches=GEMM)
    assert (run.folder / "seen").read_text() == "1 1\n"
    run.monkeypatch.setenv("TRITON_CACHE_AUTOTUNING", "0")
    run(words, {"profile": run.folder / "second.ncu-rep"}, launches=GEMM)
    assert (run.folder / "seen").read_text() == "0 1\n", "what the user says holds"


def test_one_rank_is_not_several(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    assert not launchers.one_of_many()
    monkeypatch.setenv("PMI_RANK", "0")
    assert launchers.one_of_many()
    monkeypatch.setenv("PMI_SIZE", "1")
    assert not launchers.one_of_many()


# --- ncu around the launcher


def test_ncu_follows_all_processes_of_a_launcher(run: Runner) -> None:
    script(run.folder / "torchrun", TORCHRUN)
    done = run(["./torchrun", "--nproc-per-node", "2", "sh", "-c", "echo $RANK of $WORLD_SIZE >> seen"], launches=GEMM)
    assert done.target_exit == 0 and sorted((run.folder / "seen").read_text().split("\n")[:2]) == ["0 of 2", "1 of 2"]
    sent = run.commands[0]
    assert sent[sent.index("--target-processes") + 1] == "all"


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_are_followed(run: Runner, method: str) -> None:
    (run.folder / "workers.py").write_text(
        "import multiprocessing, sys\n"
        "def work(n):\n    open(f'seen-{n}', 'w').close()\n"
        "if __name__ == '__main__':\n"
        "    context = multiprocessing.get_context(sys.argv[1])\n"
        "    workers = [context.Process(target=work, args=(n,)) for n in range(2)]\n"
        "    [w.start() for w in workers]; [w.join() for w in workers]\n"
    )
    done = run([sys.executable, "workers.py", method], launches=GEMM)
    assert done.target_exit == 0 and all((run.folder / f"seen-{n}").exists() for n in range(2))


def test_graphs_and_ranges_in_ncus_words() -> None:
    def words(plan: Plan) -> str:
        return " ".join(ncu_command(plan, ["app"], Path("ncu"), "2025.3.1.0", Path("r.ncu-rep"), Path("log")))

    assert "--graph-profiling" not in words(Plan()) and "--profile-from-start" not in words(Plan())
    assert "--graph-profiling graph" in words(Plan(graph="graph"))
    metrics = ("gpu__time_duration.sum", "smsp__sass_average_branch_targets_threads_uniform.pct")
    for whole in (Plan(metrics=metrics, graph="graph"), Plan(metrics=metrics, replay="range")):
        assert "sass" not in words(whole) and "SourceCounters" not in words(whole), "ncu refuses them there"
    assert "sass" in words(Plan(metrics=metrics))
    assert "--profile-from-start off" in words(Plan(selection=Selection(profiler_range=True)))
    assert "--nvtx --nvtx-include step/" in words(Plan(selection=Selection(nvtx=("step/",))))


# --- a report of several processes


def two_processes(path: Path) -> Path:
    """What ncu wrote around a program that forked two ranks (`tests/gpu/ranks.cu`)."""
    recorded = ROOT / "tests" / "data" / "two_processes.ncu-rep.xz"
    if not recorded.is_file():
        pytest.skip("tests/data/two_processes.ncu-rep.xz is not here")
    path.write_bytes(lzma.decompress(recorded.read_bytes()))
    return path


def test_processes_of_one_report_are_told_apart_and_compared(tmp_path: Path) -> None:
    document = api.diagnose_reports([two_processes(tmp_path / "two.ncu-rep")], api.Options()).document
    processes = [kernel["process"] for kernel in document["kernels"]]
    assert len(set(processes)) == 2 and len({kernel["group"] for kernel in document["kernels"]}) == 2
    part = document["ranks"]
    assert [rank["process"] for rank in part["ranks"]] == sorted(processes)
    # The second rank does twice the work in the same launch configuration.
    assert part["slower"] and 1.6 < part["ratio"] < 2.4
    assert document["program"]["findings"][0]["rule"] == "slow-rank"


def test_threads_of_one_process_are_no_ranks(tmp_path: Path) -> None:
    """PyTorch launches its backward pass from a thread of its own, whose number stands where a process' first thread
    has that of the process."""
    report = two_processes(tmp_path / "two.ncu-rep")
    one, other = (b"\x08%s\x12\t127.0.0.1" % pid for pid in (b"\xcf\x18", b"\xd1\x18"))  # 3151 and 3153, of a block
    data = report.read_bytes()
    assert data.count(one) > 1 < data.count(other)
    report.write_bytes(data.replace(other, one))
    document = api.diagnose_reports([report], api.Options()).document
    assert {kernel.get("process") for kernel in document["kernels"]} == {None} and document.get("ranks") is None


# --- ranks compared


@pytest.fixture(scope="module")
def profile() -> Profile:
    return read_reports([MMA, NAIVE])


def slowed(kernel: KernelProfile, factor: float, clock: float = 1.0) -> KernelProfile:
    metrics = dict(kernel.metrics)
    for name, value in metrics.items():
        if name == "gpu__time_duration.sum" and isinstance(value, float):
            metrics[name] = value * factor
        elif name.startswith("sm__cycles_elapsed") and name.endswith("per_second") and isinstance(value, float):
            metrics[name] = value * clock
    return replace(kernel, metrics=metrics)


def of_ranks(profile: Profile, factors: Sequence[Sequence[float]], clocks: Mapping[int, float] | None = None) -> Any:
    """A document of as many ranks as there are lists; each launches both kernels once a factor."""
    runs, kernels = [], []
    for rank, repeats in enumerate(factors):
        runs.append(replace(profile.runs[0], source=f"rank{rank}.ncu-rep", rank=rank, host=f"node{rank // 2}"))
        for factor in repeats:
            for kernel in profile.kernels:
                changed = slowed(kernel, factor, (clocks or {}).get(rank, 1.0))
                kernels.append(replace(changed, run=rank, index=len(kernels)))
    whole = replace(profile, runs=tuple(runs), kernels=tuple(kernels))
    return api.examine(whole, api.load_rules(api.Options()), api.Options(page=True))


@needs_reports
def test_the_slow_rank_is_named_with_its_factor_its_spread_and_its_clock(profile: Profile) -> None:
    document = of_ranks(profile, [[1.0], [1.004], [1.32], [0.99]], clocks={2: 0.75})
    part = document["ranks"]
    assert part["slowest"] == 2 and part["slower"] and part["ratio"] == pytest.approx(1.32, abs=0.005)
    assert part["spread"] == pytest.approx(0.03, abs=0.001), "the noise, where the others differ by less"
    assert [row["slowest"] for row in part["kernels"]] == [2, 2] and part["common_kernels"] == 2
    assert part["kernels"][0]["why"][0].startswith("the SM clock fell")
    found = document["program"]["findings"][0]
    assert found["rule"] == "slow-rank" and found["severity"] == "warning"
    assert found["title"].startswith("rank 2 takes 1.3") and "nvidia-smi" in found["next_experiment"]["change"]
    assert found["at_stake"] == pytest.approx(1 - 1 / part["ratio"], abs=1e-4)
    assert found["evidence"][0]["holds"] is True
    assert api.gates_that_hold(document, ["slow-rank"]) and not api.gates_that_hold(document, ["target"])


@needs_reports
def test_what_the_others_differ_by_is_no_slow_rank(profile: Profile) -> None:
    document = of_ranks(profile, [[1.0], [1.10], [1.13], [1.05]])
    assert document["ranks"]["slower"] is False and document["ranks"]["spread"] >= 0.09
    assert not [one for one in document["program"]["findings"] if one["rule"] == "slow-rank"]


@needs_reports
def test_repeats_that_scatter_widen_the_spread(profile: Profile) -> None:
    steady = of_ranks(profile, [[1.0, 1.001, 0.999], [1.10, 1.101, 1.099]])
    loose = of_ranks(profile, [[1.0, 1.2, 0.8], [1.10, 1.3, 0.9]])
    assert all(row["slower"] for row in steady["ranks"]["kernels"])
    assert not any(row["slower"] for row in loose["ranks"]["kernels"])


@needs_reports
def test_a_rank_with_more_work_is_told_so(profile: Profile) -> None:
    kernel = profile.kernels[1]
    more = {
        name: value * 1.5 if isinstance(value, float) and ("inst_executed" in name or "bytes" in name) else value
        for name, value in slowed(kernel, 1.5).metrics.items()
    }
    heavy = replace(kernel, metrics=more, opcodes={k: v * 1.5 for k, v in kernel.opcodes.items()})
    runs = tuple(replace(profile.runs[0], rank=rank, source=f"{rank}") for rank in range(2))
    kernels = (replace(kernel, run=0, index=0), replace(heavy, run=1, index=1))
    document = api.examine(replace(profile, runs=runs, kernels=kernels), api.load_rules(api.Options()), api.Options())
    assert document["ranks"]["slowest"] == 1 and any("grew" in text for text in document["ranks"]["kernels"][0]["why"])
    assert "Give that rank less" in document["program"]["findings"][0]["next_experiment"]["change"]


@needs_reports
def test_a_kernel_that_not_every_rank_launched_is_listed(profile: Profile) -> None:
    runs = tuple(replace(profile.runs[0], rank=rank, source=f"{rank}") for rank in range(2))
    first, second = profile.kernels[:2]
    kernels = (replace(first, run=0, index=0), replace(second, run=0, index=1), replace(first, run=1, index=2))
    document = api.examine(replace(profile, runs=runs, kernels=kernels), api.load_rules(api.Options()), api.Options())
    assert document["ranks"]["only"] == [
        {"name": second.name, "launch": document["kernels"][1]["launch"], "on": ["rank 0"]}
    ]
    assert document["ranks"]["common_kernels"] == 1


@needs_reports
def test_reports_without_ranks_are_not_compared(profile: Profile) -> None:
    document = api.examine(profile, api.load_rules(api.Options()), api.Options())
    assert "ranks" not in document and ranks.compare_ranks(document) is None
    assert "rank_label" not in document["kernels"][0]


@needs_reports
def test_short_kernels_are_not_compared(profile: Profile) -> None:
    document = of_ranks(profile, [[0.001], [0.0015]])
    assert document["ranks"]["slower"] is False and all(row["short"] for row in document["ranks"]["kernels"])


@needs_reports
def test_ranks_stand_in_the_terminal_the_page_and_a_comment(profile: Profile) -> None:
    import io

    from rich.console import Console

    document = of_ranks(profile, [[1.0], [1.0], [1.4]])
    buffer = io.StringIO()
    terminal.render(document, Console(file=buffer, width=160))
    for text in (buffer.getvalue(), markdown.render(document), html.render(document)):
        assert (
            "Ranks" in text
            and "rank 2" in text
            and "×1.40" in text
            and "all in common" in text.lower().replace("all they have in common", "all in common")
        )
    assert "gemm_naive" in buffer.getvalue() and "  rank 1" in buffer.getvalue(), "the rank stands beside each kernel"
    many = of_ranks(profile, [[1.0 + 0.001 * rank] for rank in range(12)])
    terminal.render(many, Console(file=buffer, width=200))
    assert "4 ranks between these are not shown" in buffer.getvalue()


@needs_reports
def test_hosts_of_ranks_are_redacted(profile: Profile) -> None:
    from diagnose import redact

    document = of_ranks(profile, [[1.0], [1.0], [1.4]])
    assert "rank 2 on node1 takes" in markdown.render(document)
    clean = redact.document(document)
    assert "node1" not in json.dumps(clean) and "rank 2 takes" in markdown.render(clean)


@needs_reports
def test_the_same_rank_of_two_runs_is_told_apart(profile: Profile) -> None:
    runs = tuple(replace(profile.runs[0], rank=0, source=name) for name in ("monday", "tuesday"))
    kernels = tuple(replace(profile.kernels[0], run=at, index=at) for at in range(2))
    document = api.examine(replace(profile, runs=runs, kernels=kernels), api.load_rules(api.Options()), api.Options())
    assert [rank["label"] for rank in document["ranks"]["ranks"]] == ["rank 0 (run 1)", "rank 0 (run 2)"]
