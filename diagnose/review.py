"""What a pack changes: recorded reports diagnosed with and without it, or with it as a git commit has it."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diagnose.api import Options, examine, load_rules
from diagnose.bars import bar
from diagnose.bundled import bundled
from diagnose.errors import DiagnoseError
from diagnose.model import Profile
from diagnose.packs import MAX_PACK_BYTES, MAX_RULES
from diagnose.reader import read_reports
from diagnose.report_file import is_report_name
from diagnose.rules import Pack

SAMPLE = 12
MOVED = 0.01  # a smaller change of what is at stake is not told


@dataclass(frozen=True)
class Change:
    """A finding, or the verdict, of a kernel that is not the same; None: not there."""

    kind: str  # appears, vanishes, changes, verdict
    rule: str
    report: str
    kernel: str
    before: str | None
    after: str | None


def sample() -> list[Path]:
    """Recorded reports of the bundled kernels, evenly chosen: at most SAMPLE."""
    try:
        found = sorted(path for path in (bundled("examples") / "reports").iterdir() if is_report_name(path.name))
    except OSError:
        return []
    step = max(1, -(-len(found) // SAMPLE))
    return found[::step]


def reports_in(paths: Sequence[Path]) -> list[Path]:
    """The reports of files and folders."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            found += sorted(inner for inner in path.iterdir() if is_report_name(inner.name))
        else:
            found.append(path)
    return found


def read(paths: Sequence[Path]) -> list[Profile]:
    """The reports, a few side by side."""
    found: list[Profile] = []
    with bar("reading reports") as step, ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as threads:
        for profile in threads.map(lambda path: read_reports([path], source=False), paths):
            found.append(profile)
            step(len(found), len(paths))
    return found


def _said(finding: Mapping[str, Any]) -> str:
    stake = finding["at_stake"]
    return str(finding["severity"]) + (f", {stake:.0%} at stake" if stake is not None else "")


def changes(profiles: Sequence[Profile], before: Sequence[Pack], after: Sequence[Pack]) -> list[Change]:
    """What is not the same, in the order of the reports."""
    found: list[Change] = []
    for profile in profiles:
        report = Path(str(profile.runs[0].source)).name if profile.runs else ""
        pair = (examine(profile, packs, Options()) for packs in (before, after))
        for old, new in zip(*(document["kernels"] for document in pair), strict=True):
            was = {one["rule"]: one for one in old["findings"]}
            is_ = {one["rule"]: one for one in new["findings"]}
            name = new["name"]
            for rule in sorted({*was, *is_}):
                one, other = was.get(rule), is_.get(rule)
                if one is None and other is not None:
                    found.append(Change("appears", rule, report, name, None, _said(other)))
                elif one is not None and other is None:
                    found.append(Change("vanishes", rule, report, name, _said(one), None))
                elif one is not None and other is not None:
                    moved = abs((one["at_stake"] or 0.0) - (other["at_stake"] or 0.0)) >= MOVED
                    if moved or one["severity"] != other["severity"]:
                        found.append(Change("changes", rule, report, name, _said(one), _said(other)))
            first, last = old["verdict"]["rule"], new["verdict"]["rule"]
            if first != last:
                found.append(Change("verdict", last, report, name, first, last))
    return found


def text(found: Sequence[Change], reports: int, kernels: int, against: str) -> str:
    """The changes as text."""
    lines = [f"{kernels} kernels of {reports} recorded reports, against {against}:"]
    if not found:
        lines.append("  no finding and no verdict changes")
    for one in found:
        what = {
            "appears": f"appears   {one.rule} ({one.after})",
            "vanishes": f"vanishes  {one.rule} ({one.before})",
            "changes": f"changes   {one.rule} ({one.before} -> {one.after})",
            "verdict": f"verdict   {one.before} -> {one.after}",
        }[one.kind]
        lines.append(f"  {what}  in {one.kernel}, {one.report}")
    return "\n".join(lines) + "\n"


def _git(folder: Path, *words: str) -> bytes:
    try:
        done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DiagnoseError(f"git could not be run: {error}", "install git, or leave out --against") from None
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise DiagnoseError(
            f"git in {folder}: {said[-1][:300] if said else 'failed'}", f"git -C {folder} log --oneline -- ."
        )
    return done.stdout


@contextmanager
def at_commit(folder: Path, ref: str) -> Iterator[Path]:
    """The pack folder as the commit `ref` has it, in a temporary folder (plain blobs: no filters, hooks or links)."""
    if not folder.is_dir():
        raise DiagnoseError(f"{folder} is not a folder of rules", "`diagnose rules test DIR --against REF`")
    commit = _git(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}").decode().strip()
    with tempfile.TemporaryDirectory(prefix="diagnose-pack-") as made:
        target, total, count = Path(made), 0, 0
        for entry in _git(folder, "ls-tree", "-r", "-l", "-z", commit, ".").split(b"\0"):
            head, _, name = entry.partition(b"\t")
            path = name.decode("utf-8", "surrogateescape")
            mode, kind, blob, size = [*head.decode().split(), "", "", "", ""][:4]
            if kind != "blob" or mode == "120000" or not path.endswith(".yaml") or ".." in Path(path).parts:
                continue
            total, count = total + int(size), count + 1
            if total > MAX_PACK_BYTES or count > MAX_RULES:
                raise DiagnoseError(f"{folder} is too large a pack at {ref}", "name a pack's own folder")
            inner = target / path
            inner.parent.mkdir(parents=True, exist_ok=True)
            inner.write_bytes(_git(folder, "cat-file", "blob", blob))
        if not (target / "pack.yaml").is_file():
            raise DiagnoseError(f"{folder} has no pack.yaml at {ref}", f"git -C {folder} log --oneline -- pack.yaml")
        yield target


def load_before(folders: Sequence[Path], ref: str | None) -> tuple[Sequence[Pack], str]:
    """What to compare with: the core pack alone, or with the packs as `ref` has them; and its name."""
    if ref is None:
        return load_rules(Options()), "the core pack alone"
    with ExitStack() as stack:
        made = tuple(stack.enter_context(at_commit(folder, ref)) for folder in folders)
        try:
            return load_rules(Options(rules=made)), f"{ref} of {', '.join(map(str, folders))}"
        except DiagnoseError as error:
            raise DiagnoseError(f"the pack at {ref} does not load: {error.message}", "name another commit") from None
