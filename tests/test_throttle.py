"""From sampled clocks to the verdict power-throttle: with samples of an unprofiled run, and for its kernel only."""

from dataclasses import replace

import pytest

import recorded
from diagnose import throttle
from diagnose.collect import survey
from diagnose.collect.clocks import Clocks
from diagnose.gpus import catalogue
from diagnose.model import Counted

CAPPED = Clocks(100, 1485.0, 699.0, 700.0, 0.9, ("power cap",))


def kernels(*totals):
    names = ("faults/add-plain", "faults/tally-private", "gemm/mma")
    return [
        replace(recorded.profile(name), counted=Counted(1, total)) for name, total in zip(names, totals, strict=False)
    ]


def test_the_kernel_with_most_of_the_time_has_the_loss():
    one, two = kernels(10.0, 90.0)
    assert throttle.declared(CAPPED, [one, two]) == {two.demangled: {"clock_loss": pytest.approx(0.25, abs=0.001)}}


def test_no_kernel_has_it_where_none_takes_most_of_the_time():
    assert throttle.declared(CAPPED, kernels(40.0, 35.0, 40.0)) == {}


def test_nothing_is_said_without_samples_or_counts_or_a_known_clock():
    assert throttle.declared(None, kernels(10.0, 90.0)) == {}
    assert throttle.declared(CAPPED, [recorded.profile("gemm/mma")]) == {}
    (known,) = kernels(10.0)
    other = replace(known, metrics={**known.metrics, "device__attribute_display_name": "A GPU that nobody knows"})
    assert throttle.declared(CAPPED, [other]) == {}


def test_an_uncapped_clock_is_a_measured_loss_of_nothing():
    (one,) = kernels(10.0)
    assert throttle.declared(replace(CAPPED, capped=0.1), [one]) == {one.demangled: {"clock_loss": 0.0}}


def test_the_rule_fires_on_what_was_sampled_and_never_while_a_pipe_is_full():
    slow = recorded.diagnose(recorded.profile("faults/tally-private"), {"clock_loss": 0.25})
    assert "power-throttle" not in {finding.rule for finding in slow.findings}  # its memory is full
    idle = recorded.diagnose(recorded.profile("faults/sum-steps"), {"clock_loss": 0.25})
    assert "power-throttle" not in {one.rule for one in idle.not_evaluated}
    assert "power-throttle" not in {one.rule for one in idle.rejected}


def test_the_clock_that_this_gpu_sustains_is_the_one_it_was_measured_at():
    assert catalogue.sustained_mhz(catalogue.product("NVIDIA H200", 90)) == pytest.approx(1980.1)
    assert catalogue.sustained_mhz(None) is None


def test_a_survey_keeps_its_clocks_for_a_resumed_run():
    found = survey.Survey("cupti", (), 1.0, True, 0, (), CAPPED)
    assert survey.from_json(survey.to_json(found)) == found
    assert survey.from_json(survey.to_json(replace(found, clocks=None))).clocks is None
