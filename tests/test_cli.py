"""The command line as a user meets it: verbs and targets, options anywhere, messages, exit codes, files."""

from __future__ import annotations

import gzip
import json
import lzma
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from diagnose import __version__, cli, commandline
from diagnose.commandline import Call, OptionNames
from diagnose.errors import DiagnoseError
from recorded import COMMAND

ROOT = Path(__file__).resolve().parents[1]
FAKE = ROOT / "tests" / "fake_ncu" / "ncu"
RECORDED = ROOT / "examples" / "reports"
SHARED = ROOT.parent / "shared" / "reports"
GEMM = RECORDED / "gemm-mma.ncu-rep.xz"

needs_report = pytest.mark.skipif(not GEMM.is_file(), reason="examples/reports is not here")

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs the command in a folder of its own, where nobody's configuration is found."""

    def call(*words: str | Path, env: dict[str, str] | None = None, **options: Any) -> subprocess.CompletedProcess[str]:
        settings: dict[str, Any] = {"capture_output": True, "text": True, "cwd": tmp_path, "timeout": 120, **options}
        environment = {k: v for k, v in os.environ.items() if not k.startswith("DIAGNOSE_")} | (env or {})
        done = subprocess.run([*COMMAND, *map(str, words)], env=environment, **settings)
        assert "Traceback" not in str(done.stderr), done.stderr
        return done

    return call


@pytest.fixture(scope="session")
def plain_report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recorded report, unpacked."""
    if not GEMM.is_file():
        pytest.skip("examples/reports is not here")
    path = tmp_path_factory.mktemp("plain") / "gemm.ncu-rep"
    path.write_bytes(lzma.decompress(GEMM.read_bytes()))
    return path


def failed(done: subprocess.CompletedProcess[str], code: int, *words: str) -> None:
    """One error line with `words`, one hint line, nothing on stdout."""
    assert done.returncode == code, (done.returncode, done.stderr)
    lines = done.stderr.splitlines()
    errors = [line for line in lines if line.startswith("error: ")]
    hints = [line for line in lines if line.startswith("hint: ")]
    assert len(errors) == 1 and len(hints) == 1, done.stderr
    assert len(errors[0]) > 12 and len(hints[0]) > 8
    assert lines[-2:] == [errors[0], hints[0]], "the pair stands at the end"
    assert done.stdout == ""
    for word in words:
        assert word in errors[0] + "\n" + hints[0], (word, errors, hints)


# --- what a line of words means


NAMES = OptionNames({"--format": True, "-o": True, "--no-html": False, "--help": False, "-v": False}, {"--arch": True})


def meant(*words: str) -> Call:
    return commandline.read(words, NAMES)


def test_a_first_word_that_is_a_verb_is_that_verb() -> None:
    assert meant("doctor", "--format", "json") == Call("doctor", ("doctor", "--format", "json"))
    assert meant("--format", "json", "doctor") == Call("doctor", ("doctor", "--format", "json"))
    assert meant("rules", "--format", "json", "list") == Call("rules", ("rules", "list", "--format", "json"))
    assert meant("--format=json", "rules", "explain", "spill") == Call(
        "rules", ("rules", "explain", "--format=json", "spill")
    )
    assert meant("kernels", "build", "gemm/naive", "--arch", "sm_90a").arguments == (
        "kernels", "build", "--arch", "sm_90a", "gemm/naive",
    )  # fmt: skip


def test_anything_else_is_a_target() -> None:
    assert meant("./static", "a") == Call(None, ("--", "./static", "a"))
    assert meant("--", "static", "-v") == Call(None, ("--", "static", "-v"))
    assert meant("--no-html", "--", "doctor") == Call(None, ("--no-html", "--", "doctor"))


def test_everything_after_a_program_is_the_programs() -> None:
    call = meant("--format", "json", "python3", "x.py", "--format", "text", "-o", "out", "--", "-q")
    assert call == Call(
        None, ("--format", "json", "--", "python3", "x.py", "--format", "text", "-o", "out", "--", "-q")
    )
    assert meant("-oX", "-v", "./a.out", "--help").arguments == ("-oX", "-v", "--", "./a.out", "--help")


def test_reports_and_reference_kernels_take_options_anywhere(tmp_path: Path) -> None:
    assert meant("a.ncu-rep", "--no-html", "b.ncu-rep.xz").arguments == ("a.ncu-rep", "--no-html", "b.ncu-rep.xz")
    assert meant("kernel:gemm/naive", "--no-html").arguments == ("kernel:gemm/naive", "--no-html")


def test_what_is_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("disguised").write_bytes(b"NVR\0more")
    Path("program").write_bytes(b"\x7fELF")
    Path("true").mkdir()
    Path("reports").mkdir()
    Path("reports", "x.ncu-rep").touch()
    for word in (
        "disguised",
        "reports",
        "./true",
        "no.ncu-rep",
        "a.ncu-repz",
        "b.nsight-cuprof-report",
        "c.ncu-rep.zst",
    ):
        assert commandline.is_report(word), word
    for word in ("program", "true", "nothing", "python3", "a.xz"):
        assert not commandline.is_report(word), word


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--fromat", "json", "x"), "did you mean '--format'?"),
        (("-z", "x"), "there is no option -z"),
        (("rules", "lst"), "did you mean 'list'?"),
        (("rules",), "needs one of list, explain"),
        (("doctor", "--froo"), "there is no option --froo"),
        (("comprae", "a", "b"), "no command and no program 'comprae'; did you mean 'compare'?"),
        (("",), "empty: ''"),
        (("a.ncu-rep", ""), "empty: ''"),
        (("compare", "a.ncu-rep", ""), "empty: ''"),
        (("--", "", "x"), "empty: ''"),
    ],
)
def test_words_that_mean_nothing(words: tuple[str, ...], said: str) -> None:
    with pytest.raises(DiagnoseError) as raised:
        meant(*words)
    assert said in raised.value.message and raised.value.exit_code == 2


def test_an_option_of_another_command_is_said_to_be_that(run: Run) -> None:
    done = run("static", "x", "--no-html")
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "error: diagnose static has no option --no-html",
        "hint: diagnose static --help",
    ]


def test_empty_values_after_a_program_are_the_programs() -> None:
    assert meant("./a.out", "--problem", "", "-o", "-").arguments == ("--", "./a.out", "--problem", "", "-o", "-")


@needs_report
def test_nothing_but_an_older_json_is_replaced(run: Run, tmp_path: Path, plain_report: Path) -> None:
    (tmp_path / "a.out").write_bytes(b"\x7fELF")
    (tmp_path / "b.ncu-rep").write_bytes(b"NVR\0")
    failed(run(plain_report, "--no-html", "--json", "a.out"), 2, "a.out exists and is no JSON")
    failed(run(plain_report, "--no-html", "--json", "b.ncu-rep"), 2, "b.ncu-rep names a report, which would be lost")
    failed(run("compare", plain_report, plain_report, "--json", "a.out"), 2, "a.out exists and is no JSON")
    assert (tmp_path / "a.out").read_bytes() == b"\x7fELF"
    for text in ("", '{"an": "older one"}'):
        (tmp_path / "x.json").write_text(text)
        assert run(plain_report, "--no-html", "--json", "x.json").returncode == 0
        assert json.loads((tmp_path / "x.json").read_text())["kernels"]


@needs_report
def test_devices_and_links_are_written_to_and_not_replaced(run: Run, tmp_path: Path, plain_report: Path) -> None:
    (tmp_path / "link").symlink_to("there.json")
    assert run(plain_report, "--no-html", "--json", "link").returncode == 0
    assert (tmp_path / "link").is_symlink() and json.loads((tmp_path / "there.json").read_text())["kernels"]
    os.mkfifo(tmp_path / "pipe")
    with subprocess.Popen(["cat", "pipe"], cwd=tmp_path, stdout=subprocess.PIPE) as reader:
        assert run(plain_report, "--no-html", "--json", "pipe").returncode == 0
        assert reader.stdout is not None and json.loads(reader.stdout.read())["kernels"]
    assert (tmp_path / "pipe").is_fifo()
    failed(run(plain_report, "-o", "pipe"), 2, "-o pipe is no regular file", "--no-html")
    failed(run("./pipe"), 2, "a device or a pipe, not a program")


def test_a_name_that_is_too_long(run: Run) -> None:
    failed(run("a" * 300 + ".ncu-rep"), 2, "File name too long", "shorter")


@needs_report
def test_options_of_programs_are_said_to_do_nothing_beside_a_report(run: Run) -> None:
    done = run(GEMM, "--no-html", "--format", "json", "--device", "7", "--launch-skip", "5", "--clock-control", "none")
    assert done.returncode == 0
    told = [f"{option} changes nothing here" for option in ("--launch-skip", "--device")]
    warnings = json.loads(done.stdout)["warnings"]
    assert [text.partition(":")[0] for text in warnings if "changes nothing" in text] == told


def test_an_address_and_a_folder_that_is_opened(run: Run, tmp_path: Path) -> None:
    failed(
        run("https://a.org/x.ncu-rep"), 2, "https://a.org/x.ncu-rep is an address", "curl -fLO https://a.org/x.ncu-rep"
    )
    failed(run("open", tmp_path), 2, f"{tmp_path} is a folder")


def test_a_verb_without_its_argument_points_to_its_own_help(run: Run) -> None:
    assert run("compare", "a.ncu-rep").stderr.splitlines() == [
        "error: missing argument 'AFTER'",
        "hint: diagnose compare --help",
    ]


# --- verbs


def test_python_m_and_the_installed_program_are_the_same() -> None:
    done = subprocess.run([sys.executable, "-m", "diagnose", "--version"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, f"diagnose {__version__}\n")
    assert '\ndiagnose = "diagnose.__main__:main"\n' in (ROOT / "pyproject.toml").read_text("utf-8")


def test_help_names_every_verb_and_starts_fast(run: Run) -> None:
    done = run("--help")
    assert done.returncode == 0 and done.stderr == ""
    for verb in commandline.VERBS:
        assert verb in done.stdout
    for option in ("--format", "--json", "--no-html", "--rules", "--config", "--problem", "--fail-on", "--redact"):
        assert option in done.stdout
    assert run().stdout == done.stdout
    assert run("--version").stdout == f"diagnose {__version__}\n"


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from diagnose.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = ('pandas', 'numpy', 'ncu_report', 'jinja2', 'yaml', 'zstandard')\n"
        "print([m for m in heavy if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize(
    ("words", "key", "fields"),
    [
        (("rules", "list"), "rules", {"id", "pack", "class", "status", "article", "needs"}),
        (("facts",), "facts", {"name", "unit", "needs"}),
        (("kernels", "list"), "kernels", {"name", "family", "step", "expect", "twin", "params", "archs"}),
        (("doctor",), "checks", {"name", "status", "value", "remedy"}),
        (("ceilings",), "ceilings", {"gpu", "resource", "value", "unit", "source"}),
        (("rules", "test"), "packs", {"pack", "rules", "firing", "silent"}),
    ],
)
def test_listing_verbs(run: Run, words: tuple[str, ...], key: str, fields: set[str]) -> None:
    done = run(*words, "--format", "json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)[key]
    assert rows and all(fields <= set(row) for row in rows)
    assert run("--format", "json", *words).stdout == done.stdout, "options may stand before the verb"
    text = run(*words)
    assert text.returncode == 0 and len(text.stdout.splitlines()) >= len(rows)


def test_rules_explain(run: Run) -> None:
    assert run("rules", "explain", "core/bank-conflict").stdout == run("rules", "explain", "bank-conflict").stdout
    done = run("rules", "explain", "tail-wave")
    assert done.returncode == 0
    assert "waves > 1" in done.stdout and "Next experiment" in done.stdout
    failed(run("rules", "explain", "tail-wav"), 2, "did you mean 'tail-wave'?")


def test_rules_test_of_a_bad_pack_is_a_gate(run: Run, tmp_path: Path) -> None:
    pack = tmp_path / "pack"
    pack.mkdir()
    (pack / "pack.yaml").write_text("name: acme\nversion: 1\n")
    (pack / "broken.yaml").write_text("title: x\nclass: fit\n")
    failed(run("rules", "test", pack), 1, "broken.yaml")
    failed(run("--rules", pack, "x.ncu-rep"), 2)


def test_static_refuses_what_holds_no_gpu_code(run: Run) -> None:
    failed(run("static", "/bin/ls"), 3, "without GPU code")
    failed(run("static", "nothing.cubin"), 2, "nothing.cubin")
    failed(run("static", "/bin/ls", "--fail-on", "spil"), 2, "--fail-on 'spil'")


def test_ablate_names_the_nearest_study(run: Run) -> None:
    failed(run("ablate", "stags"), 2, "no study 'stags'", "'stages'")
    failed(run("ablate"), 2, "no study was named", "--list")


def test_kernels_and_open(run: Run, tmp_path: Path) -> None:
    failed(run("kernels", "build", "gemm/nave"), 2, "gemm/nave", "gemm/naive")
    failed(run("kernel:gemm/nave"), 2, "gemm/naive")
    failed(run("open", "nothing.html"), 2, "nothing.html does not exist")
    (tmp_path / "x.txt").touch()
    failed(run("open", "x.txt"), 2, "no HTML file")


# --- recorded reports


@needs_report
def test_a_report_gives_a_summary_a_page_and_names_it(run: Run, tmp_path: Path) -> None:
    done = run(GEMM)
    assert done.returncode == 0, done.stderr
    assert "gemm_mma" in done.stdout and "legacy-mma" in done.stdout
    assert done.stderr.splitlines()[-1] == "report: diagnose-report.html"
    assert (tmp_path / "diagnose-report.html").read_text().startswith("<!")
    again = run(GEMM)
    assert again.stderr.splitlines()[-1] == "report: diagnose-report-2.html", "nothing is overwritten"
    assert again.stdout == done.stdout
    assert (tmp_path / "diagnose-report.html").read_bytes() == (tmp_path / "diagnose-report-2.html").read_bytes()
    assert oct((tmp_path / "diagnose-report.html").stat().st_mode & 0o777) == oct(0o666 & ~_umask())


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@needs_report
def test_every_format_parses_and_is_alone_on_stdout(run: Run, tmp_path: Path) -> None:
    def printed(form: str) -> str:
        done = run(GEMM, "--no-html", "--format", form)
        assert done.returncode == 0, done.stderr
        return done.stdout

    document = json.loads(printed("json"))
    assert document["schema_version"] == "1" and document["kernels"][0]["verdict"]["rule"] == "legacy-mma"
    lines = [json.loads(line) for line in printed("jsonl").splitlines()]
    assert lines[0]["schema_version"] == "1" and lines[1] == document["kernels"][0]
    assert json.loads(printed("sarif"))["version"] == "2.1.0"
    assert ElementTree.fromstring(printed("junit")).tag == "testsuites"
    assert "gemm" in printed("md")
    assert list(tmp_path.iterdir()) == []


@needs_report
def test_options_stand_anywhere_and_files_go_where_they_are_sent(run: Run, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    done = run("--format", "md", GEMM, "-o", "d/page.html", "--json", "d/x.json", "--verbose", "--no-color")
    assert done.returncode == 0, done.stderr
    assert sorted(p.name for p in (tmp_path / "d").iterdir()) == ["page.html", "x.json"]
    assert json.loads((tmp_path / "d" / "x.json").read_text())["kernels"]
    assert "report: d/page.html" in done.stderr and "json: d/x.json" in done.stderr
    assert run(GEMM, "-od", "--format=json").returncode == 0
    assert (tmp_path / "d" / "diagnose-report.html").is_file(), "a folder takes the usual name"
    failed(run(GEMM, "-o", "none/x.html"), 2, "does not exist", "mkdir -p none")
    failed(run(GEMM, "--json", "d"), 2, "is a folder")
    failed(run(GEMM, "-o", "x.html", "--no-html"), 2, "exclude each other")


@needs_report
def test_a_folder_means_the_reports_in_it_and_index_counts_over_all(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "ranks"
    folder.mkdir()
    for name in ("gemm-mma", "gemm-tiled"):
        shutil.copy(RECORDED / f"{name}.ncu-rep.xz", folder)
    document = json.loads(run(folder, "--format", "json", "--no-html").stdout)
    assert [k["index"] for k in document["kernels"]] == [0, 1]
    assert [k["run"] for k in document["kernels"]] == [0, 1]
    assert [Path(r["source"]).name for r in document["runs"]] == ["gemm-mma.ncu-rep.xz", "gemm-tiled.ncu-rep.xz"]
    assert len(document["devices"]) == 1


@needs_report
def test_gates(run: Run) -> None:
    def code(*gates: str) -> int:
        words = [word for gate in gates for word in ("--fail-on", gate)]
        return run(GEMM, "--no-html", *words).returncode

    assert code("implementation") == 1 and code("legacy-mma") == 1 and code("warning") == 1 and code("note") == 1
    assert code("hardware") == 0 and code("unknown") == 0 and code("spill") == 0 and code("target") == 0
    assert code("hardware", "legacy-mma") == 1
    failed(run(GEMM, "--fail-on", "implementatio"), 2, "did you mean 'implementation'?")


@needs_report
def test_kernel_chooses_and_a_filter_that_matches_nothing_is_an_error(run: Run) -> None:
    assert run(GEMM, "--no-html", "-k", "regex:^gemm").returncode == 0
    failed(run(GEMM, "--no-html", "--kernel", "gem_mma"), 3, "did you mean 'gemm_mma'?")
    failed(run(GEMM, "--no-html", "--kernel", "regex:("), 2, "regular expression")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--format", "xml"), "text, json"),
        (("--problem", "gemm:1,2"), "K missing"),
        (("--problem", "gemm:9999999999999,1,1"), "12 digits at most"),
        (("--problem", "sort:5"), "sort"),
        (("--useful-flops", "many"), "many"),
        (("--timeout", "soon"), "--timeout"),
        (("--timeout", "-1"), "--timeout"),
        (("--timeout", "1e400"), "--timeout '1e400': Input should be less"),
        (("--timeout", "nan"), "--timeout 'nan'"),
        (("--max-launches", "0"), "--max-launches"),
        (("--replay", "kernl"), "did you mean 'kernel'?"),
        (("--facts", "none"), "all"),
        (("--config", "none.toml"), "none.toml"),
        (("--froo",), "--froo"),
        (("--json",), "--json"),
        (("--timeout=-1",), "--timeout '-1': Input should be greater"),
        (("--launch-count", "0"), "--launch-count '0'"),
        (("--json", "-"), "--json - names no file"),
        (("-o", "-"), "-o - names no file"),
        (("-o", "prof.ncu-rep"), "-o prof.ncu-rep names a report"),
        (("-o", ""), "-o '' is empty"),
        (("--problem=",), "--problem '' is empty"),
    ],
)
def test_wrong_options(run: Run, tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    (tmp_path / "x.ncu-rep").write_bytes(b"NVR\0")
    failed(run("x.ncu-rep", *words), 2, said)


@needs_report
def test_two_options_with_one_file(run: Run, tmp_path: Path, plain_report: Path) -> None:
    failed(run(plain_report, "-o", "x", "--json", "./x"), 2, "-o and --json both name x")
    failed(run("compare", plain_report, plain_report, "-o", "x", "--json", "x"), 2, "-o and --json both name x")
    assert not (tmp_path / "x").exists()
    (tmp_path / "x.json").write_text("{}")  # the page takes the next free name
    assert run(plain_report, "-o", "x.json", "--json", "x.json").returncode == 0
    assert json.loads((tmp_path / "x.json").read_text())["kernels"]
    assert (tmp_path / "x-2.json").read_text().startswith("<!doctype html>")


def test_a_name_with_a_dash_before_it(run: Run, tmp_path: Path) -> None:
    (tmp_path / "-x y.ncu-rep").write_bytes(b"")
    failed(run("-x y.ncu-rep"), 2, "hint: diagnose './-x y.ncu-rep'")
    failed(run("./-x y.ncu-rep"), 2, "is empty")


@pytest.mark.parametrize("words", [("rules", "list"), ("x.ncu-rep", "--no-html")])
def test_a_current_folder_that_was_deleted(tmp_path: Path, words: tuple[str, ...]) -> None:
    (tmp_path / "gone").mkdir()
    script = f'cd "{tmp_path}/gone" && rmdir "{tmp_path}/gone" && exec "$@"'
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = ["sh", "-c", script, "sh", *COMMAND, *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    failed(done, 2, "the current folder was deleted")


def test_unreadable_input(run: Run, tmp_path: Path, plain_report: Path) -> None:
    def file(name: str, content: bytes) -> str:
        (tmp_path / name).write_bytes(content)
        return name

    failed(run(file("empty.ncu-rep", b"")), 2, "empty.ncu-rep is empty")
    failed(run(file("random.ncu-rep", os.urandom(5000) + b"x")), 2, "random.ncu-rep")
    failed(run(file("text.ncu-rep", b"hello, I am text\n" * 99)), 2, "not an Nsight Compute report")
    failed(run(file("magic.ncu-rep", b"NVR\0" + bytes(400))), 2, "magic.ncu-rep")
    failed(run(file("cut.ncu-rep", plain_report.read_bytes()[:3000])), 2, "truncated")
    failed(run("missing.ncu-rep"), 2, "missing.ncu-rep does not exist")
    (tmp_path / "bare").mkdir()
    failed(run("./bare"), 2, "holds no report")
    failed(run(file("notes.txt", b"text")), 2, "notes.txt")
    bomb = file("bomb.ncu-rep.gz", gzip.compress(b"NVR\0" + bytes(600 << 20), 9))
    failed(run(bomb), 2, "over the limit")
    assert not list(tmp_path.glob("diagnose-report*"))


def test_a_truncated_report_gives_what_is_left(run: Run, tmp_path: Path, plain_report: Path) -> None:
    data = plain_report.read_bytes()
    (tmp_path / "cut.ncu-rep").write_bytes(data[: len(data) - 200])
    done = run("cut.ncu-rep", "--no-html", "--format", "json")
    if done.returncode == 2:
        failed(done, 2, "truncated")
    else:
        document = json.loads(done.stdout)
        assert document["partial"] is True and any("truncated" in text for text in document["warnings"])


@needs_report
def test_a_read_only_folder_fails_before_anything_is_read(run: Run, tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    locked.mkdir()
    locked.chmod(0o555)
    if os.geteuid() == 0:
        target = "/proc/report.html"  # root writes anywhere else
        failed(run(GEMM, "-o", target), 2, "cannot write to the folder /proc")
    else:
        failed(run(GEMM, "-o", "locked/x.html"), 2, "cannot write to the folder locked")
        failed(run(GEMM, cwd=locked), 2, "cannot write to the folder")


@needs_report
def test_a_closed_pipe_and_a_narrow_locale_do_no_harm(tmp_path: Path) -> None:
    for form in ("json", "text"):
        command = [*COMMAND, str(GEMM), "--no-html", "--format", form]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path)
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 0, form
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run([*COMMAND, str(GEMM), "--no-html"], env=environment, capture_output=True, cwd=tmp_path)
    assert done.returncode == 0 and b"gemm_mma" in done.stdout


@needs_report
@pytest.mark.parametrize("form", ["json", "text"])
def test_a_full_disk_behind_stdout(tmp_path: Path, form: str) -> None:
    # Without a locale the stream is wrapped anew, and holds text that the interpreter's end would write.
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    with open("/dev/full", "wb") as full:
        command = [*COMMAND, str(GEMM), "--no-html", "--format", form]
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, cwd=tmp_path, timeout=120, env=env
        )
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "error: cannot write to stdout: No space left on device",
        "hint: df -h    (is a disk full?)",
    ]


@needs_report
def test_closed_streams(tmp_path: Path) -> None:
    script = '"$@" <&- >&- 2>&-'
    done = subprocess.run(["sh", "-c", script, "sh", *COMMAND, str(GEMM), "-o", "x.html"], cwd=tmp_path, timeout=120)
    assert done.returncode == 0
    assert (tmp_path / "x.html").read_text().startswith("<!doctype html>")


@needs_report
@pytest.mark.parametrize(("columns", "widest"), [("0", 110), ("wide", 110), ("60", 60), ("1", 20)])
def test_the_width_that_COLUMNS_asks_for(run: Run, columns: str, widest: int) -> None:
    lines = run(GEMM, "--no-html", env={"COLUMNS": columns}).stdout.splitlines()
    assert max(map(len, lines)) == widest


@needs_report
@pytest.mark.parametrize("form", ["json", "jsonl", "sarif", "junit", "md"])
def test_a_name_that_is_no_utf8(run: Run, tmp_path: Path, plain_report: Path, form: str) -> None:
    name = os.fsdecode(b"caf\xe9.ncu-rep")
    (tmp_path / name).symlink_to(plain_report)
    done = run(name, "-o", os.fsdecode(b"caf\xe9.html"), "--format", form)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / os.fsdecode(b"caf\xe9.html")).is_file()


def test_an_interrupt_at_any_time_is_the_pair_of_lines(tmp_path: Path) -> None:
    sitecustomize = (
        "import os, signal, sys\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == os.environ['AT']:\n"
        "            signal.raise_signal(signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupt())\n"
    )
    (tmp_path / "sitecustomize.py").write_text(sitecustomize)
    for at in ("typer", "diagnose.cli", "diagnose.job", "diagnose.api"):
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), str(ROOT))), "AT": at}
        command = [sys.executable, "-m", "diagnose", "rules", "list"] if at != "diagnose.job" else [
            sys.executable, "-m", "diagnose", "x.ncu-rep"
        ]  # fmt: skip
        done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=tmp_path, timeout=60)
        said = (done.returncode, done.stdout, done.stderr.splitlines())
        assert said == (130, "", ["error: interrupted", "hint: run the same command again"]), at


def test_a_bug_is_one_line_too(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken(words: object) -> int:
        raise ZeroDivisionError("no\nway")

    monkeypatch.setattr(cli, "_dispatch", broken)
    assert cli.main(["x"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "error: unexpected ZeroDivisionError: no way",
        "hint: run it again with DIAGNOSE_DEBUG=1 and report the traceback: this is a bug in diagnose",
    ]


# --- programs, with a stand-in for ncu


class Live:
    """Runs a program under the stand-in, which plays a scenario."""

    def __init__(self, run: Run, folder: Path, report: Path) -> None:
        self.run, self.folder, self.report = run, folder, report

    def environment(self, **scenario: Any) -> dict[str, str]:
        path = self.folder / "scenario.json"
        path.write_text(json.dumps({"launches": [["gemm_mma", 12]], "report_file": str(self.report), **scenario}))
        record = str(self.folder / "commands")
        return {"DIAGNOSE_NCU": str(FAKE), "FAKE_NCU_SCENARIO": str(path), "FAKE_NCU_RECORD": record}

    def __call__(self, *words: str, options: dict[str, Any] | None = None, **scenario: Any) -> Any:
        return self.run(*words, env=self.environment(**scenario), **(options or {}))

    @property
    def command(self) -> list[str]:
        found: list[str] = json.loads((self.folder / "commands").read_text().splitlines()[-1])
        return found

    @property
    def files(self) -> list[str]:
        return sorted(p.name for p in self.folder.glob("diagnose-report*"))


@pytest.fixture
def live(run: Run, tmp_path: Path, plain_report: Path) -> Live:
    return Live(run, tmp_path, plain_report)


def test_a_program_is_profiled_diagnosed_and_kept(live: Live) -> None:
    done = live("sh", "-c", "echo from the target; echo more >&2", "--format", "json")
    assert done.returncode == 0, done.stderr
    assert "from the target" in done.stderr and "more" in done.stderr
    assert "from the target" not in done.stdout and "legacy-mma" in done.stdout
    assert live.files == ["diagnose-report.html", "diagnose-report.ncu-rep"]
    assert done.stderr.splitlines()[-2:] == ["profile: diagnose-report.ncu-rep", "report: diagnose-report.html"]
    assert "clocks: not locked (--clock-control none)" in done.stderr
    assert "caches: flushed before each pass (--cache-control all)" in done.stderr
    assert live.command[-5:] == ["sh", "-c", "echo from the target; echo more >&2", "--format", "json"]
    assert live.command[live.command.index("--clock-control") + 1] == "none"


def test_the_command_line_asks_for_what_rules_need(live: Live) -> None:
    assert live("true").returncode == 0
    metrics = live.command[live.command.index("--metrics") + 1].split(",")
    assert "gpu__time_duration.sum" in metrics and "dram__bytes_read.sum" in metrics
    # Counted by address and opcode, by name: their sections cost eight passes where these cost three.
    assert {"inst_executed", "sass__inst_executed_per_opcode_with_modifier_all"} <= set(metrics)
    assert "group:smsp__pcsamp_warp_stall_reasons" in metrics
    assert not [name for name in metrics if name.startswith(("launch__", "device__", "diagnose__", "derived__"))]
    sections = [word for at, word in enumerate(live.command) if live.command[at - 1] == "--section"]
    assert sections == ["LaunchStats", "Occupancy"]


def test_a_live_run_says_how_it_was_made_and_what_it_left_out(live: Live) -> None:
    done = live("--format", "json", "--cache-control", "none", "--max-launches", "1", "true")
    document = json.loads(done.stdout)
    (run,) = document["runs"]
    assert (run["clock_control"], run["cache_control"], run["replay"], run["target_exit"]) == (
        "none",
        "none",
        "kernel",
        0,
    )
    assert any("collectives" in text for text in document["warnings"])
    assert any("--max-launches 1" in text for text in document["warnings"])


def test_the_second_run_takes_the_next_number_for_both_files(live: Live) -> None:
    assert live("true").returncode == 0
    assert live("true").returncode == 0
    assert live.files == [
        "diagnose-report-2.html", "diagnose-report-2.ncu-rep", "diagnose-report.html", "diagnose-report.ncu-rep",
    ]  # fmt: skip


def test_a_target_that_fails_after_kernels_is_a_warning_and_a_gate_if_asked(live: Live) -> None:
    done = live("--format", "json", "sh", "-c", "exit 3")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["runs"][0]["target_exit"] == 3
    assert any("exited with status 3" in text for text in document["warnings"])
    assert live("--fail-on", "target", "sh", "-c", "exit 3").returncode == 1


def test_a_target_that_fails_before_any_kernel(live: Live) -> None:
    done = live(
        "sh",
        "-c",
        "exit 3",
        launches=[],
        report_file=None,
        report=None,
        after=["==WARNING== No kernels were profiled."],
    )
    failed(done, 3, "exited with status 3")
    assert live.files == [], "nothing is left"


def test_targets_that_cannot_run(live: Live) -> None:
    failed(live("./nothing"), 2, "./nothing")
    failed(live("no-such-program-anywhere"), 2, "no-such-program-anywhere")
    (live.folder / "text").write_text("words")
    failed(live("./text"), 2, "not executable", "chmod +x ./text")
    assert live.files == []


def test_stdin_reaches_the_target(live: Live) -> None:
    done = live("--target-output", "said", "cat", options={"input": "typed\n"})
    assert done.returncode == 0
    assert (live.folder / "said").read_text() == "typed\n" and "typed" not in done.stderr


def test_the_page_and_the_targets_output_are_two_files(live: Live) -> None:
    failed(live("-o", "x", "--target-output", "x", "true"), 2, "-o and --target-output both name x")
    assert live.files == []


def test_output_that_is_no_text(live: Live) -> None:
    noisy = "import os\nfor n in range(40): os.write(1, bytes(range(128, 256)) * 512)"
    done = live("--format", "json", sys.executable, "-c", noisy, options={"text": False})
    assert done.returncode == 0
    assert json.loads(done.stdout)["kernels"] and done.stderr.count(b"\x80\x81") == 40 * 512


def test_a_target_that_hangs(live: Live) -> None:
    once = ("--survey", "none")
    done = live(*once, "--timeout", "0.5", "sleep", "60", launches=[], report_file=None, report=None, hang="spin")
    failed(done, 3, "within 0.5 s (--timeout)", "diagnose --timeout 2")
    kept = live(*once, "--timeout", "1.5", "--format", "json", "sleep", "60", hang="spin")
    assert kept.returncode == 0, kept.stderr
    document = json.loads(kept.stdout)
    assert document["partial"] is True and any("--timeout" in text for text in document["warnings"])


def test_a_run_without_ncu_or_permission(live: Live, run: Run) -> None:
    failed(run("true", env={"DIAGNOSE_NCU": "/nowhere/ncu"}), 3, "/nowhere/ncu")
    refused = [
        "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters"
    ]
    failed(live("true", launches=[], report_file=None, report=None, after=refused), 3, "ERR_NVGPUCTRPERM")
    assert live.files == []


def test_a_folder_that_cannot_be_written_fails_before_the_program_runs(live: Live) -> None:
    target = "/proc/x.html" if os.geteuid() == 0 else "/x.html"
    failed(live("-o", target, "sh", "-c", "touch ran"), 2, "cannot write to the folder")
    assert not (live.folder / "ran").exists()


def _interrupted(live: Live, after_s: float, **scenario: Any) -> tuple[int, str, str]:
    environment = {**os.environ, **live.environment(**scenario)}
    process = subprocess.Popen(
        [*COMMAND, "--survey", "none", "--format", "json", "sleep", "60"], env=environment, cwd=live.folder,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    deadline = time.monotonic() + 30
    while not (live.folder / "commands").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(after_s)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert "Traceback" not in err, err
    return process.returncode, out, err


def test_an_interrupt_keeps_and_diagnoses_what_was_profiled(live: Live) -> None:
    code, out, err = _interrupted(live, 1.0, hang="spin")
    assert code == 130, err
    document = json.loads(out)
    assert document["partial"] is True and document["kernels"][0]["verdict"]["rule"] == "legacy-mma"
    assert live.files == ["diagnose-report.html", "diagnose-report.ncu-rep"]


def test_an_interrupt_before_anything_was_profiled(live: Live) -> None:
    code, out, err = _interrupted(live, 0.6, launches=[], report_file=None, report=None, hang="spin")
    assert (code, out) == (130, "")
    assert err.splitlines()[-2:] == ["error: interrupted", "hint: run the same command again"]
    assert live.files == []


# --- every report that is at hand


def _shared() -> list[Path]:
    found = [*SHARED.glob("*.ncu-rep*"), *SHARED.glob("public/*")] if SHARED.is_dir() else []
    return sorted(path for path in found if path.suffix != ".md")


@pytest.mark.slow
@pytest.mark.parametrize("path", _shared(), ids=lambda path: path.name)
def test_every_shared_report_ends_well(run: Run, path: Path) -> None:
    done = run(path, "--format", "json", "--json", "x.json")
    assert done.returncode in (0, 3), done.stderr
    document = json.loads(done.stdout)
    unknown = all(kernel["verdict"]["class"] == "unknown" for kernel in document["kernels"])
    assert done.returncode == (3 if unknown else 0)
    assert document["kernels"] and "report: diagnose-report.html" in done.stderr
