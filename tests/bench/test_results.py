"""Figures computed from the rounds of a race."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bench_fakes import entry, result, sample_result

from remuda._bench.results import Entry, paired_ratio


def test_the_typical_rate_is_the_median() -> None:
    assert entry("a", [1, 100, 3]).steps_per_second == 3.0


def test_without_rounds_there_are_no_figures() -> None:
    blank = Entry("a")
    assert blank.steps_per_second is None
    assert blank.cpu_share(2) is None
    assert blank.idle_cpu_share(2) == 0.0
    assert result(blank, blank).ideal is None
    assert result(blank, blank).ratio_to_ideal(blank) is None


def test_ratios_pair_the_rates_of_a_round() -> None:
    slow_for_a_while = entry("base", [100, 10, 100])
    ours = entry("ours", [200, 20, 200])
    assert paired_ratio(ours, slow_for_a_while) == 2.0


def test_a_contender_that_dropped_out_is_compared_in_its_own_rounds() -> None:
    assert paired_ratio(entry("a", [30]), entry("b", [10, 20, 30])) == 3.0


def test_the_ideal_is_the_plain_loop_on_every_core() -> None:
    found = result(entry("plain loop", [100, 120, 110]), entry("remuda", [180, 180, 180]))
    assert found.ideal == 220.0
    assert found.ratio_to_ideal(found.plain) == 0.5
    assert found.ratio_to_ideal(found.remuda) == pytest.approx(180 / 110 / 2)


def test_the_ideal_can_be_a_given_number_of_plain_loops() -> None:
    found = replace(result(entry("plain loop", [100]), entry("remuda", [800])), loops=16)
    assert found.ideal == 1600.0
    assert found.ratio_to_ideal(found.remuda) == 0.5
    assert found.remuda.cpu_share(found.cores) == 0.75


def test_advantage_over_is_the_speed_ratio() -> None:
    found = sample_result()
    slow = found.entry("slow")
    assert slow is not None
    assert found.advantage_over(slow) == 200.0
    assert found.advantage_over(found.remuda) == 1.0


def test_cpu_shares_are_per_second_and_core() -> None:
    assert entry("a", [1, 1]).cpu_share(cores=2) == 0.75
    assert entry("a", idle_seconds=10.0, idle_cpu_seconds=2.0).idle_cpu_share(cores=2) == 0.1


def test_entries_are_found_by_name() -> None:
    assert sample_result().entry("unknown") is None
