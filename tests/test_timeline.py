"""Stamps from inside a kernel: the header costs nothing unless asked for; stamps are checked, summed up and drawn."""

from __future__ import annotations

import copy
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from diagnose import cli, stamps
from diagnose.collect.find import find_cuda_tool
from diagnose.collect.kernels import load_kernels, stamped
from diagnose.errors import EXIT_NOTHING_MEASURED, DiagnoseError
from diagnose.render import timeline as renderer

ROOT = Path(__file__).resolve().parents[1]
RECORDED = ROOT / "tests" / "data" / "timeline"
FILES = sorted(RECORDED.glob("*.json"))
KINDS = ["opened", "tma-issue", "copy-wait", "barrier-wait", "wgmma-issue", "wgmma-wait", "compute", "epilogue"]
# begin 0, end 1, point 2; the clock runs at 2 GHz: 1,000 cycles are 500 ns.
PRODUCER = [
    [1000, 4294967000, 0, 2, 7],
    [1000, 4294967000, 3, 0, 0],
    [2000, 204, 1, 0, 0],
    [2500, 454, 3, 0, 1],
    [9000, 3704, 0, 1, 0],
]
CONSUMER = [
    [1200, 4294967100, 0, 2, 7],
    [2000, 204, 5, 0, 3],
    [4000, 1204, 7, 0, 0],
    [4100, 1254, 6, 2, 5],
    [5000, 1704, 0, 1, 0],
]
BASE: dict[str, Any] = {
    "format": "diagnose-timeline", "version": 1, "kernel": "k", "device": "d", "block": 3, "capacity": 64,
    "kinds": KINDS,
    "tracks": [{"role": "producer", "stamps": PRODUCER}, {"role": "consumer", "stamps": CONSUMER}],
}  # fmt: skip


def written(folder: Path, document: Any) -> Path:
    path = folder / "stamps.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


def changed(**keys: Any) -> dict[str, Any]:
    return {**copy.deepcopy(BASE), **keys}


def track(*rows: Any) -> dict[str, Any]:
    return changed(tracks=[{"role": "r", "stamps": list(rows)}])


def test_intervals_shares_and_clock(tmp_path: Path) -> None:
    found = stamps.read(written(tmp_path, BASE))
    assert (found.block, found.sm) == (3, 7)
    assert found.ghz == pytest.approx(8000 / 4000)  # over the wrap of the timer's low half: 296 + 3,704 ns
    producer, consumer = found.roles
    assert [(i.kind, i.argument, i.start, i.end) for i in producer.intervals] == [
        ("barrier-wait", 0, 0, 1000), ("tma-issue", 0, 1000, 1500), ("barrier-wait", 1, 1500, 8000),
    ]  # fmt: skip
    assert [(p.kind, p.argument, p.start) for p in consumer.points] == [("compute", 5, 3100)]
    first, second = stamps.summary(found)
    assert first.span == 8000 and first.waiting == pytest.approx(7500 / 8000) and first.other == 0
    assert [(d.kind, d.count, d.median) for d in first.doings] == [("barrier-wait", 2, 3750.0), ("tma-issue", 1, 500.0)]
    assert second.waiting == pytest.approx(2000 / 3000)
    assert found.us(found.cycles) == pytest.approx(4.0)


def test_stamps_of_an_earlier_launch_are_left_out(tmp_path: Path) -> None:
    old = [[500, 4294900000, 3, 0, 9], [600, 4294900050, 0, 1, 0]]
    found = stamps.read(written(tmp_path, changed(tracks=[{"role": "producer", "stamps": PRODUCER + old}])))
    assert len(found.roles[0].intervals) == 3


def test_a_full_buffer_is_said(tmp_path: Path) -> None:
    found = stamps.read(written(tmp_path, changed(capacity=len(PRODUCER))))
    assert [role.full for role in found.roles] == [True, True] and renderer.notices(found)
    assert "is full" not in renderer.render_html(found) and "was full" in renderer.render_html(found)


def test_a_clock_that_cannot_be_known_stays_unknown(tmp_path: Path) -> None:
    rows = [[1000, 0, 3, 0, 0], [1500, 320, 0, 1, 0]]
    found = stamps.read(written(tmp_path, track(*rows)))
    assert found.ghz is None and found.us(10) is None and found.sm is None
    assert stamps.document(found)["clock_ghz"] is None and stamps.document(found)["roles"][0]["span_us"] is None
    assert "500 cycles" in renderer.render_html(found)


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ("not json", "no stamps file"),
        ("[" * 100_000, "no stamps file"),
        ([], "format must be"),
        (changed(format="x"), "format must be"),
        (changed(version=2), "version must be 1, got 2"),
        (changed(kernel=7), "kernel must be a text"),
        (changed(device="d" * 301), "device must be a text"),
        (changed(kinds=[]), "kinds must be"),
        (changed(kinds=["a"] * 17), "kinds must be"),
        (changed(tracks=[]), "tracks must be"),
        (changed(tracks=[BASE["tracks"][0]] * 65), "tracks must be"),
        (changed(tracks=[{"role": "r"}]), "a track must hold"),
        (changed(capacity=4), "more than the capacity 4"),
        (changed(capacity=True), "whole numbers"),
        (changed(block=-1), "whole numbers"),
        (track([1, 2, 3]), "stamp 0 of 'r'"),
        (track([1, 2, 8, 0, 0]), "stamp 0 of 'r'"),
        (track([1, 2, 3, 3, 0]), "stamp 0 of 'r'"),
        (track([1.5, 2, 3, 0, 0]), "stamp 0 of 'r'"),
        (track([1 << 63, 2, 3, 0, 0]), "stamp 0 of 'r'"),
        (track([1, True, 3, 0, 0]), "stamp 0 of 'r'"),
    ],
)  # fmt: skip
def test_bad_files_are_refused(tmp_path: Path, document: Any, said: str) -> None:
    with pytest.raises(DiagnoseError) as raised:
        stamps.read(written(tmp_path, document))
    assert said in raised.value.message and "stamps.json" in raised.value.message


def test_roles_on_different_sms_are_refused(tmp_path: Path) -> None:
    document = copy.deepcopy(BASE)
    document["tracks"][1]["stamps"][0][4] = 8
    with pytest.raises(DiagnoseError, match="several SMs"):
        stamps.read(written(tmp_path, document))


def test_nothing_stamped_is_nothing_measured(tmp_path: Path) -> None:
    with pytest.raises(DiagnoseError, match="holds no stamp") as raised:
        stamps.read(written(tmp_path, track()))
    assert raised.value.exit_code == EXIT_NOTHING_MEASURED


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_recorded_stamps(path: Path) -> None:
    found = stamps.read(path)
    assert [role.name for role in found.roles] == ["producer", "consumer 0", "consumer 1"]
    assert found.ghz is not None and 0.8 < found.ghz < 2.2  # the clocks of an H200 under load
    for row in stamps.summary(found):
        assert sum(one.share for one in row.doings) + row.other == pytest.approx(1) and row.waiting > 0.1
    start, end = renderer.window(found)
    chart = renderer.detail(found, start, end)
    left, right = chart["left"], chart["right"]
    assert 20 < len(chart["bars"]) < 400
    assert all(left - 0.1 <= float(b["x"]) and float(b["x"]) + float(b["width"]) <= right + 1 for b in chart["bars"])


def test_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    document = changed(kernel="<script>alert(1)</script>", tracks=[{"role": "<b>", "stamps": PRODUCER}])
    file = written(tmp_path, document)
    assert cli.main(["kernels", "run", str(file), "--timeline"]) == 0
    said = capsys.readouterr()
    assert "<b> waits 94 %" in said.out and "page: diagnose-timeline.html" in said.err
    page = (tmp_path / "diagnose-timeline.html").read_text()
    assert "<script>" not in page and "&lt;script&gt;" in page and "<b> waits" not in page
    assert "Content-Security-Policy" in page and "style=" not in page and not re.search(r"\son\w+=", page)
    assert cli.main(["kernels", "run", "--timeline", str(file), "--format", "json"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["html"] == "diagnose-timeline-2.html"  # nothing is overwritten
    assert json.loads(said.out)["timeline"]["roles"][0]["doing"][0]["kind"] == "barrier-wait"
    assert cli.main(["kernels", "run", str(file), "--timeline", "--no-html"]) == 0
    assert sorted(p.name for p in tmp_path.glob("*.html")) == ["diagnose-timeline-2.html", "diagnose-timeline.html"]


def test_a_kernel_without_stamps(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["kernels", "run", "gemm/naive", "--timeline"]) == 2
    assert "gemm/specialised" in capsys.readouterr().err


NVCC, NVDISASM = find_cuda_tool("nvcc"), find_cuda_tool("nvdisasm")
needs_compiler = pytest.mark.skipif(
    not (NVCC and NVDISASM and shutil.which("g++")), reason="nvcc, g++ or nvdisasm is not here"
)


def opcodes(source: Path, folder: Path, *flags: str, spilled: int = 0) -> list[str]:
    """The opcodes of a source's code, in order. It must neither spill more bytes nor lose wgmma's overlap (C75xx)."""
    cubin = folder / f"{source.stem}.cubin"
    command = [str(NVCC), "-O3", "-std=c++17", "-gencode=arch=compute_90a,code=sm_90a", "-Xptxas", "-v", "-cubin"]
    made = subprocess.run([*command, *flags, "-o", cubin, source], capture_output=True, text=True, check=False)
    said = made.stdout + made.stderr
    spills = [int(count) for count in re.findall(r"(\d+) bytes spill", said)]
    assert made.returncode == 0 and "C75" not in said and max(spills) <= spilled, said[-2000:]
    sass = subprocess.run([str(NVDISASM), "-c", cubin], capture_output=True, text=True, check=True).stdout
    return re.findall(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+ )?([A-Z][\w.]*)(?:[^;]*\b(SR_\w+))?", sass)


@needs_compiler
@pytest.mark.parametrize(
    ("name", "spilled"),
    [
        ("gemm/specialised", 0), ("gemm/persistent", 0), ("attention/tma", 0),
        ("attention/specialised", 32),  # it has no register to spare: the stamps' two go through local memory
    ],
)  # fmt: skip
def test_the_header_changes_no_code_unless_asked_for(name: str, spilled: int, tmp_path: Path) -> None:
    kernel = load_kernels()[name]
    folder = tmp_path / "kernels"
    shutil.copytree(kernel.source.parent.parent, folder)
    source = folder / kernel.family / kernel.source.name
    plain = opcodes(source, tmp_path)
    flags = [flag for flag in stamped(kernel).nvcc_flags if flag not in kernel.nvcc_flags]
    timed = opcodes(source, tmp_path, *flags, spilled=spilled)
    timers = [code for code in timed if "GLOBALTIMER" in code[1]]
    assert len(timers) >= 8 and not [code for code in plain if "GLOBALTIMER" in code[1]]
    # The same program with every call of the header cut out of the sources.
    for path in (source, folder / "gemm" / "ring.cuh"):
        text = path.read_text()
        for pattern in (
            r"^.*diagnose_timeline(\.cuh|::(Kind;|start|write|name|Track track\b[^&\n]*;$)).*\n",
            r"^ *track\.\w+\(.*\);\n",
            r",\s*(diagnose_timeline::Track& )?track(?=[,)])",
        ):
            text = re.sub(pattern, "", text, flags=re.MULTILINE)
        assert "track" not in text and "diagnose_timeline" not in text
        path.write_text(text)
    assert opcodes(source, tmp_path) == plain


USER = """
#include "diagnose_timeline.cuh"
using diagnose_timeline::Kind;
__global__ void copy(const float* in, float* out) {
    diagnose_timeline::Track track(threadIdx.x / 32, threadIdx.x % 32 == 0);
    track.begin(Kind::user0, blockIdx.x);
    float v = in[threadIdx.x];
    track.begin(Kind::store_wait);
    out[threadIdx.x] = v;
    track.end();
    track.point(Kind::compute);
}
int main() {
    diagnose_timeline::name(Kind::user0, "load-wait");
    diagnose_timeline::start("copy", {"warp 0", "warp 1"});
    copy<<<1, 64>>>(nullptr, nullptr);
    diagnose_timeline::write();
}
"""


@needs_compiler
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_a_users_program_needs_only_the_header(arch: str, tmp_path: Path) -> None:
    (tmp_path / "user.cu").write_text(USER)
    for flags in ([], ["-DDIAGNOSE_TIMELINE"]):
        command = [
            str(NVCC),
            "-std=c++17",
            f"-arch={arch}",
            "-Werror",
            "all-warnings",
            f"-I{ROOT / 'kernels/common'}",
            *flags,
        ]
        made = subprocess.run(
            [*command, "-o", tmp_path / "user", tmp_path / "user.cu"], capture_output=True, text=True, check=False
        )
        assert made.returncode == 0, made.stderr
