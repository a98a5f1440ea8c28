"""docs/articles.md: every heading and row of the two articles has a place that exists, and some of it runs."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

import gen_articles as page
import recorded
import sass_tools
from diagnose import advisors, cli, operators

SEEDS = Path(__file__).resolve().parents[2] / "shared" / "seeds"
here = pytest.mark.skipif(not SEEDS.is_dir(), reason="the articles are not beside the clone")
SECTIONS = page.sections()
REFERENCES = sorted({ref for one in SECTIONS for ref in (*one.at, *(ref for row in one.rows for ref in row.at))})


def test_the_page_is_up_to_date() -> None:
    assert not page.stale(), "run python tests/gen_articles.py"


@pytest.mark.parametrize("section", SECTIONS, ids=lambda one: one.heading[:40])
def test_every_heading_and_row_has_a_place(section: page.Section) -> None:
    assert section.says and section.at, section.heading
    assert [row.cell for row in section.rows if not row.at] == []


def test_every_place_exists() -> None:
    assert {ref: found for ref in REFERENCES if (found := page.problem(ref))} == {}
    assert len(REFERENCES) > 200


@pytest.mark.parametrize(
    "ref",
    [
        "rule:bank-conflicts", "fact:intensity", "study:stage", "kernel:gemm/none", "advisor:none", "operator:gemm",
        "path:wmma2", "ceiling:none", "gpu:h100", "gpu:h100-sxm.int4", "arch:90.none", "arch:91.shared_per_sm",
        "page:docs/none.md", "page:docs/swizzle.md#none", "file:none.py", "command:none", "command:ablate --none",
        "command:rules none", "command:--none REPORT", "word:none", "move:hopper",
    ],
)  # fmt: skip
def test_a_place_that_does_not_exist_is_seen(ref: str) -> None:
    assert page.problem(ref) is not None


def test_headings_of_equal_words_are_told_apart() -> None:
    keys = Counter((one.file, one.heading, one.under) for one in SECTIONS)
    assert max(keys.values()) == 1
    twice = Counter((one.file, one.heading) for one in SECTIONS)
    assert all(one.under for one in SECTIONS if twice[one.file, one.heading] > 1)


# --- against the articles themselves ---

_LABELS = {"WARNING", "TIP", "NOTE", "IMPORTANT", "Reference", "Footnotes"}
_CODE = re.compile(r"//|cp\.async|wgmma\.|mma\.sync|nvcc |ncu |cuobjdump |mbarrier\.")
_LONGEST = 60  # of a heading; a paragraph of one short sentence ends in a full stop


def headings(text: str) -> list[str]:
    """Lines that stand alone and are no sentence, code, drawing, label or footnote."""
    lines = [line.rstrip() for line in text.splitlines()]
    found = []
    for at, line in enumerate(lines):
        alone = line and at > 0 and not lines[at - 1] and (at + 1 == len(lines) or not lines[at + 1])
        if not alone or len(line) >= _LONGEST or line in _LABELS or "\t" in line or "↩" in line:
            continue
        if line[0] in " •$`│" or line[-1] in "。；：:，,；？…" or _CODE.match(line) or re.search("[¹²³⁴-⁹]", line):
            continue
        if re.search("[→─]", line) and "：" not in line:
            continue
        found.append(line)
    return found


def tables(text: str) -> list[str]:
    """The first cells of all rows but the tables' own headings."""
    cells = []
    before = ""
    for line in text.splitlines():
        if "\t" in line and "\t" in before:
            cells.append(line.split("\t")[0].replace("$", ""))
        before = line
    return cells


def test_what_counts_as_a_heading() -> None:
    text = "Title\n\nFirst part\n\nA sentence。\n\nNOTE\n\na → b\n\nA → B：moving\n\n• item\n\nx\ty\n1\t2\n"
    assert headings(text) == ["First part", "A → B：moving"]
    assert tables(text) == ["1"]


@here
@pytest.mark.parametrize("file", page.FILES.values())
def test_no_heading_of_the_article_is_left_out(file: str) -> None:
    text = (SEEDS / f"{file}.txt").read_text("utf-8")
    assert headings(text) == [one.heading for one in SECTIONS if one.file == file]


@here
@pytest.mark.parametrize("file", page.FILES.values())
def test_no_row_of_a_table_is_left_out(file: str) -> None:
    text = (SEEDS / f"{file}.txt").read_text("utf-8")
    assert tables(text) == [row.cell for one in SECTIONS if one.file == file for row in one.rows]


@here
def test_no_sentence_of_the_articles_is_copied() -> None:
    """Beyond the headings and first cells, the page shares no run of ten Chinese characters with an article."""
    texts = "".join((SEEDS / f"{file}.txt").read_text("utf-8") for file in page.FILES.values())
    own = re.sub(r"\]\([^)]*\)", "]", page.page())  # links hold headings once more
    titles = {one.heading for one in SECTIONS} | {row.cell.replace("|", "\\|") for one in SECTIONS for row in one.rows}
    for title in sorted(titles, key=len, reverse=True):
        own = own.replace(title, "")
    runs = re.findall(r"[一-鿿]{10,}", own)
    assert [run for run in runs if run in texts] == []


# --- ten headings chosen by chance lead to something that runs ---

RUNNABLE = ("rule", "fact", "study", "kernel", "ceiling", "advisor", "operator", "command")
TIMELINE = str(page.ROOT / "tests/data/timeline/specialised.json")
REPORT = str(recorded.report_of("gemm/mma"))
STAND_IN = page.ROOT / "tests/fake_sanitizer/compute-sanitizer"


def runnable(ref: str) -> bool:
    """Whether the reference names something that runs here; `--races` and `compare` have tests of their own."""
    kind, _, name = ref.partition(":")
    words = name.split()
    return kind in RUNNABLE and not (kind == "command" and ("--races" in words or "BEFORE" in words))


@pytest.fixture
def words_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[str] | None]:
    """A command's words with something of ours for each placeholder; None where a tool for it is not here."""
    clean = [
        "========= ERROR SUMMARY: 0 errors",
        "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)",
    ]
    scenario = tmp_path / "scenario.json"
    plays = {"memcheck": {"log": clean[:1]}, "racecheck": {"log": clean[1:]}, "synccheck": {"log": clean[:1]}}
    scenario.write_text(json.dumps(plays))
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\nexit 0\n")
    program.chmod(0o755)
    monkeypatch.setenv("DIAGNOSE_SANITIZER", str(STAND_IN))
    monkeypatch.setenv("FAKE_SANITIZER_RECORD", str(tmp_path / "record"))
    monkeypatch.setenv("FAKE_SANITIZER_SCENARIO", str(scenario))
    monkeypatch.chdir(tmp_path)

    def words(command: str) -> list[str] | None:
        found = command.replace("FILE.json", TIMELINE).replace("PROGRAM", str(program)).replace("REPORT", REPORT)
        if "FILE" in found:
            if sass_tools.PTXAS is None or sass_tools.NVDISASM is None:
                return None
            cubin = sass_tools.assemble(sass_tools.ptx_for(["cp_async"], "sm_80"), "sm_80", tmp_path)
            found = found.replace("FILE", str(cubin))
        return [*found.split(), "--no-html"] if "--timeline" in found or REPORT in found else found.split()

    return words


def test_every_heading_leads_to_something_that_can_run_here() -> None:
    assert [one.heading for one in SECTIONS if not any(map(runnable, one.at))] == []


SEED = random.SystemRandom().randrange(10**6)  # in the test's name, so that a failure can be repeated
CHOSEN = random.Random(SEED).sample(SECTIONS, 10)
_SAID: dict[tuple[str, ...], str] = {}


@pytest.mark.parametrize("section", CHOSEN, ids=lambda one: f"{SEED}-{one.heading[:30]}")
def test_ten_headings_by_chance(
    section: page.Section, capfd: pytest.CaptureFixture[str], words_of: Callable[[str], list[str] | None]
) -> None:
    def said(*words: str) -> str:
        if words not in _SAID:
            code = cli.main(list(words))
            out, err = capfd.readouterr()
            assert code == 0, (words, err)
            _SAID[words] = out
        return _SAID[words]

    for ref in filter(runnable, section.at):
        kind, _, name = ref.partition(":")
        if kind == "rule":
            assert name in said("rules", "explain", name)
        elif kind == "fact":
            assert re.search(rf"^{name}\b", said("facts"), re.MULTILINE)
        elif kind == "study":
            assert re.search(rf"^{name}\b", said("ablate", "--list"), re.MULTILINE)
        elif kind == "kernel":
            assert re.search(rf"^{name}\b", said("kernels", "list"), re.MULTILINE)
        elif kind == "ceiling":
            assert "H200" in said("ceilings", "--format", "json")
        elif kind == "command":
            words = words_of(name)
            assert words is None or said(*words).strip()
        elif kind == "advisor":
            asked = advisors.advise(recorded.context("gemm/specialised"), every=True)
            assert name in {one["name"] for one in asked}
        else:
            found = {operators.recognise(recorded.context(kernel)) for kernel in RECOGNISED}
            assert name in {one[0].id for one in found if one} | NOT_RECORDED


# One recorded kernel of each family; no report here is of several GPUs or of a product with few rows.
RECOGNISED = ("gemm/mma", "attention/fused", "attention/decode", "reduction/softmax-fused", "faults/add-plain",
              "faults/gather-random", "reduction/cub", "faults/stream-copy")  # fmt: skip
NOT_RECORDED = {"collective", "conversion", "gemm-skinny"}


# --- the pages' commands ---

PAGES = ("three-phase.md", "swizzle.md", "staircase.md")


def _commands(name: str) -> list[str]:
    blocks = re.findall(r"^```\n(.*?)^```", (page.ROOT / "docs" / name).read_text("utf-8"), re.MULTILINE | re.DOTALL)
    lines = [line.split("#", 1)[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line.startswith("diagnose ")]


@pytest.mark.parametrize("name", PAGES)
def test_commands_of_a_page_exist_with_their_options_and_files(name: str) -> None:
    found = _commands(name)
    assert len(found) >= 4
    for command in found:
        words = command.removeprefix("diagnose ").split(" > ")[0].split(" -- ")[0].split()
        ours = [word for word in words if word.startswith(("examples/", "kernels/", "tests/"))]
        assert all((page.ROOT / word).exists() for word in ours), command
        first = words[0]
        if first.startswith(("./", "examples/", "-")):
            first = "--format"  # the main job: only its options are looked at
        page.command_words(" ".join([first, *words[1:]]))


@pytest.mark.parametrize(
    "command",
    sorted({one for name in PAGES for one in _commands(name) if "examples/reports/" in one or "descriptor" in one}),
)
def test_commands_on_what_is_shipped_run(
    command: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(page.ROOT)
    words = command.split()[1:]
    assert cli.main([*words, "--no-html"] if "--no-html" not in words and words[0] != "descriptor" else words) == 0
    assert capfd.readouterr().out.strip()
