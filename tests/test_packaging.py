"""What a user installs: the wheel's content, the lock file, and recorded files that give nobody's machine away."""

from __future__ import annotations

import gzip
import lzma
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import zstandard

from diagnose.report_file import is_report_name, open_report
from diagnose.report_session import read_session

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"
BUNDLED = ("rules", "kernels", "reports", "examples")
SCRATCH = ("__pycache__", ".build")

# A recorded report names the folder it was recorded in, and nothing else of the machine. System folders of a CUDA
# toolkit and of a Linux distribution say nothing about anybody; homes, work and temporary folders do.
PRIVATE_PATH = re.compile(
    rb"(?<![A-Za-z0-9_.$}-])/(?:root|home|work|tmp|Users|mnt|data|workspace|scratch)/[A-Za-z0-9_.+-]+"
)
NEUTRAL_FOLDER = b"/src/diagnose"
OWN_FOLDER = re.compile(rb"(?<![A-Za-z0-9_.$}-])/src/[A-Za-z0-9_.+-]+")
# The hosts that a report's session names: one that we set, and what a bare virtual machine calls itself.
NEUTRAL_HOSTS = {"gpu-host", "vm"}
# Addresses: with a domain that mail can go to, or with a bare host as machines are named (a hyphen, or a number at the
# end). Lower case only, as they are written in practice: binary data has an @ in every other kilobyte.
ADDRESS = re.compile(
    rb"(?<![A-Za-z0-9])[a-z][a-z0-9_.+-]{1,30}@(?:"
    rb"(?:[a-z0-9](?:[a-z0-9-]*[a-z0-9])?\.)+(?:com|org|net|edu|gov|mil|io|ai|dev|cloud|info|de|uk|fr|cn|jp|in|ch|eu)"
    rb"|[a-z][a-z0-9]*(?:-[a-z0-9]+)+|[a-z]{3,}\d{1,4})(?![A-Za-z0-9@])"
)
PUBLIC_ADDRESSES = {b"snaroff@next.com"}  # a comment in GCC's stddef.h
# Fully qualified names inside clusters and clouds.
HOST = re.compile(
    rb"\b((?:[a-z0-9](?:[a-z0-9-]*[a-z0-9])?\.)+)(?:internal|local|lan|corp|intranet|cluster|compute\.amazonaws\.com)\b",
    re.IGNORECASE,
)
# `.local` is a state space of PTX and `.cluster` a scope: words that come before them in an instruction.
PTX_WORDS = frozenset(
    b"acq_rel acquire add aligned and arrive async atom barrier bulk cas const cp cta cvta exch expect_tx fence "
    b"generic global gpu init inc isspacep ld ldu level mapa max mbarrier min mmio multimem no_complete or param "
    b"prefetch prefetchu proxy red reduce relaxed release sc shared st sync sys tensor test_wait to try_wait "
    b"volatile wait weak xor".split()
)
SOURCE_WORDS = {b"choice.", b"r."}  # variables of kernels/gemm/sweep.cu and of CUDA's headers with a member `cluster`
PTX_TYPE = re.compile(rb"[busf](?:8|16|32|64|128)|v[248]|L[12]")
# Host names as machines get them by themselves: ip-10-0-0-1, DESKTOP-…, and whatever an environment calls HOSTNAME.
MACHINE = re.compile(rb"\bip-\d{1,3}(?:-\d{1,3}){3}\b|\bDESKTOP-[A-Z0-9]{7}\b|\bHOSTNAME=[^\0\s]+")


def unpacked(path: Path) -> bytes:
    data = path.read_bytes()
    if path.suffix == ".xz":
        return lzma.decompress(data)
    if path.suffix == ".gz":
        return gzip.decompress(data)
    if path.suffix in {".zst", ".ncu-repz"}:
        return zstandard.ZstdDecompressor().decompressobj().decompress(data)
    return data


def given_away(data: bytes) -> list[str]:
    """What in `data` names a machine or a person: paths outside the neutral folder, and hosts. Without repeats."""
    found = [*PRIVATE_PATH.findall(data), *MACHINE.findall(data)]
    found += [match for match in ADDRESS.findall(data) if match not in PUBLIC_ADDRESSES]
    found += [match.group() for match in HOST.finditer(data) if not _is_ptx(match.group(1))]
    found += [match for match in OWN_FOLDER.findall(data) if match != NEUTRAL_FOLDER]
    return list(dict.fromkeys(match.decode("ascii", "replace") for match in found))


def _is_ptx(labels: bytes) -> bool:
    words = labels.rstrip(b".").split(b".")
    words[0] = words[0].removeprefix(b"n") if words[0] not in PTX_WORDS else words[0]  # after a written line end, \\n
    return labels in SOURCE_WORDS or all(word in PTX_WORDS or PTX_TYPE.fullmatch(word) for word in words)


def recorded_files() -> list[Path]:
    return sorted(path for path in EXAMPLES.rglob("*") if path.is_file() and not set(path.parts) & set(SCRATCH))


@pytest.mark.parametrize("path", recorded_files(), ids=lambda path: path.relative_to(EXAMPLES).as_posix())
def test_a_recorded_file_gives_no_machine_away(path):
    assert given_away(unpacked(path)) == []
    if is_report_name(path.name):
        with open_report(path) as opened:
            assert read_session(opened.path).host in NEUTRAL_HOSTS


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"\0/home/ada/gemm.cu\0", ["/home/ada"]),
        (b"file=/root/x.cu", ["/root/x.cu"]),
        (b"/work/main/kernels/a.cu and /tmp/tmpab12/k.o", ["/work/main", "/tmp/tmpab12"]),
        (b"ada@gpu-node-17", ["ada@gpu-node-17"]),
        (b"gpu7.cluster.internal", ["gpu7.cluster.internal"]),
        (b"from ada@node17, ada.l@mail.example.org", ["ada@node17", "ada.l@mail.example.org"]),
        (b"\0gpu7.local\0 login.cluster st.gpu7.local", ["gpu7.local", "login.cluster", "st.gpu7.local"]),
        (b"ec2-1-2.compute.amazonaws.com", ["ec2-1-2.compute.amazonaws.com"]),
        (b"ip-10-11-12-13", ["ip-10-11-12-13"]),
        (b"/src/other/kernel.cu", ["/src/other"]),
        (b"/src/diagnose/kernels/gemm/naive.cu\0/usr/local/cuda/include/mma.hpp\0hostname", []),
        (b"ld.local.u32 st.volatile.local.b32 barrier.cluster.arrive; fence.mbarrier_init.release.cluster;", []),
        (b"\x19yrr@Z5U@\x1a \x19gn@KNIN@ me@hds\xfa hX@3v6A@ DY@0pfV /* snaroff@next.com says */", []),
        (b"a/home/b x.root/y MUFU.RCP @!P0 BRA 0x1a0; @P1 EXIT", []),
    ],
)
def test_the_neutrality_check_sees_what_it_should(data, expected):
    assert given_away(data) == expected


def test_the_lock_names_no_address_and_pins_every_dependency():
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    assert "://" not in lock and "index-url" not in lock and "find-links" not in lock
    pinned = {line.split("==")[0].lower() for line in lock.splitlines() if "==" in line and not line.startswith(" ")}
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    lists = re.findall(r"^(?:dependencies|cuda|dev) = \[\n(.*?)^\]", project, re.MULTILINE | re.DOTALL)
    wanted = {name.lower() for text in lists for name in re.findall(r'^    "([A-Za-z0-9-]+)', text, re.MULTILINE)}
    assert len(lists) == 3 and wanted and wanted <= pinned, wanted - pinned


def test_every_run_time_dependency_is_explained():
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    text = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    block = re.search(r"^dependencies = \[\n(.*?)^\]", project, re.MULTILINE | re.DOTALL)
    assert block is not None
    for name in re.findall(r'^    "([A-Za-z0-9-]+)', block.group(1), re.MULTILINE):
        assert re.search(rf"^\| {re.escape(name)} \|", text, re.MULTILINE), (
            f"docs/dependencies.md has no row for {name}"
        )


def tracked(folder: Path) -> set[str]:
    return {
        path.relative_to(ROOT).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and not set(path.relative_to(ROOT).parts) & set(SCRATCH)
    }


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel built from a copy of the sources, so that nothing is written beside them."""
    source = tmp_path_factory.mktemp("source")
    for name in ("diagnose", *BUNDLED):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns(*SCRATCH))
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, source / name)
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--outdir", str(out), str(source)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if run.returncode and "ConnectionError" in run.stdout + run.stderr:
        pytest.skip("hatchling cannot be fetched here")
    assert run.returncode == 0, run.stdout + run.stderr
    (built,) = out.glob("*.whl")
    return built


@pytest.mark.slow
def test_the_wheel_holds_the_package_and_its_data(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (entry_points,) = [name for name in names if name.endswith(".dist-info/entry_points.txt")]
        assert "diagnose = diagnose.__main__:main" in archive.read(entry_points).decode()
    expected = tracked(ROOT / "diagnose")
    for kind in BUNDLED:
        expected |= {f"diagnose/_bundled/{name}" for name in tracked(ROOT / kind)}
    packaged = {name for name in names if ".dist-info/" not in name}
    assert packaged == expected
    assert not any(name.endswith((".so", ".cubin", ".o")) for name in names), "nothing built is shipped"


@pytest.mark.slow
def test_the_installed_wheel_finds_its_data_from_another_folder(wheel, tmp_path):
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    script = (
        "import sys; sys.path.insert(0, sys.argv[1]); import diagnose.bundled as b;"
        "print(b.__file__); print(*[b.bundled(kind) for kind in sys.argv[2:]], sep='\\n')"
    )
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    command = [sys.executable, "-I", "-c", script, str(site), *BUNDLED]
    run = subprocess.run(command, cwd=elsewhere, capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    module, *folders = run.stdout.splitlines()
    assert module == str(site / "diagnose" / "bundled.py")
    assert folders == [str(site / "diagnose" / "_bundled" / kind) for kind in BUNDLED]
