"""Clocks and power beside an unprofiled run: samples, caps, and what is said of them."""

import stat
import time

import pytest

from diagnose.collect import clocks


def line(mhz=1500, power=690.0, limit=700.0, busy=100, reasons="0x0000000000000004", gpu=0):
    return f"{gpu}, {mhz}, {power}, {limit}, {busy}, {reasons}\n"


def stand_in(folder, lines, known="clocks_event_reasons.active"):
    """An nvidia-smi that knows one name of the reasons and prints `lines` once, then waits."""
    (folder / "lines").write_text("".join(lines))
    script = folder / "nvidia-smi"
    script.write_text(
        f'#!/bin/sh\ncase "$1" in *{known}*) ;; *) exit 2;; esac\n'
        f'case "$3" in "") echo 0x0; exit 0;; esac\ncat "{folder}/lines"\nexec sleep 60\n'
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return str(script)


def seen(lines):
    return clocks.read(clocks.Log(list(lines)))


@pytest.mark.parametrize("known", ["clocks_event_reasons.active", "clocks_throttle_reasons.active"])
def test_samples_are_taken_while_the_block_runs(tmp_path, known):
    program = stand_in(tmp_path, [line()] * 20, known)
    with clocks.sampling(program) as log:
        for _ in range(100):
            if len(log.lines) == 20:
                break
            time.sleep(0.02)
    found = clocks.read(log)
    assert found == clocks.Clocks(20, 1500.0, 690.0, 700.0, 1.0, ("power cap",))


def test_without_nvidia_smi_nothing_is_said(tmp_path):
    with clocks.sampling(str(tmp_path / "absent")) as log:
        pass
    assert clocks.read(log) is None


def test_an_exception_in_the_block_ends_the_sampling(tmp_path):
    program = stand_in(tmp_path, [line()])
    with pytest.raises(ValueError, match="mine"), clocks.sampling(program):
        raise ValueError("mine")


def test_idle_and_broken_lines_do_not_count():
    lines = (
        [line(mhz=345, busy=0)] * 50 + [line()] * 12 + ["0, 15", "0, [N/A], 1, 1, 100, 0x4", "0, 1, 1, 1, 100, Active"]
    )
    found = seen(lines)
    assert found is not None and (found.samples, found.sm_mhz) == (12, 1500.0)


def test_too_few_busy_samples_say_nothing():
    assert seen([line()] * (clocks.ENOUGH - 1)) is None
    assert seen([line()] * clocks.ENOUGH) is not None


def test_the_gpu_that_worked_is_read():
    found = seen([line(gpu=0, mhz=1980, busy=60)] * 11 + [line(gpu=3, mhz=1400)] * 30)
    assert found is not None and found.sm_mhz == 1400.0


def test_power_that_is_not_supported_is_unknown():
    found = seen([line(power="[N/A]", limit="[N/A]")] * 12)
    assert found is not None and found.power_w is None and found.limit_w is None


@pytest.mark.parametrize(
    ("lines", "lost"),
    [
        ([line(mhz=1485)] * 20, 0.25),
        ([line(mhz=1485, reasons="0x0000000000000000")] * 20, 0.0),  # low, and no cap holds it: somebody locked it
        ([line(mhz=1485)] * 9 + [line(mhz=1485, reasons="0x0")] * 11, 0.0),  # a cap in fewer than half of the samples
        ([line(mhz=1485, reasons="0x1")] * 20, 0.0),  # idle is no cap
        ([line(mhz=1485, reasons="0x40")] * 20, 0.25),
        ([line(mhz=2000)] * 20, 0.0),  # above what was sustained elsewhere
    ],
)
def test_a_loss_needs_a_cap(lines, lost):
    found = seen(lines)
    assert found is not None
    assert clocks.loss(found, 1980.0) == pytest.approx(lost)
