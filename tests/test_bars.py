"""Progress bars: on a terminal, on stderr, for work that takes long, and nowhere else."""

from __future__ import annotations

import io
import sys

import pytest

import pages
import recorded
from diagnose import api, bars, cli
from diagnose.reader import read_reports
from diagnose.render import html


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A terminal as stderr. Called in the test: pytest puts its own stderr back after a fixture."""
    found = Terminal()
    monkeypatch.setattr(sys, "stderr", found)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    return found


def test_long_work_is_drawn_with_its_counts_and_cleared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bars, "DELAY_S", 0.0)
    stderr = terminal(monkeypatch)
    with bars.bar("diagnosing kernels") as step:
        for done in range(1, 30):
            step(done, 30)
    text = stderr.getvalue()
    assert "diagnosing kernels" in text and "/30" in text
    assert text.endswith(("\x1b[2K", "\x1b[?25h", "\r", "\n")) and "\x1b[2K" in text  # the bar's line is erased


def test_short_work_draws_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = terminal(monkeypatch)
    with bars.bar("reading") as step:
        step(1, 2)
        step(2, 2)
    assert stderr.getvalue() == ""


def test_what_is_no_terminal_gets_no_bar(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(bars, "DELAY_S", 0.0)
    with bars.bar("reading") as step:
        assert step is bars.silent
    assert cli.main([str(recorded.report_of("gemm/mma")), "--no-html", "--format", "json"]) == 0
    assert capsys.readouterr().err == ""


def test_the_steps_are_told_how_much_is_done() -> None:
    told: list[tuple[int, int]] = []

    def step(done: int, total: int) -> None:
        told.append((done, total))

    profile = read_reports([recorded.report_of(name) for name in ("gemm/mma", "gemm/naive")], step=step)
    assert told == [(1, 2), (2, 2)]
    told.clear()
    api.examine(profile, api.load_rules(api.Options()), api.Options(), step=step)
    assert told[-1] == (len(profile.kernels), len(profile.kernels)) and len(told) == len(profile.kernels)
    told.clear()
    html.render(pages.many(30), step)
    assert len(told) == 30 and {total for _, total in told} == {30}
