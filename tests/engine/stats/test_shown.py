"""Snapshots of statistics as tables and as scalars, and `Durations`, from which they are made."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_stats import each, snapshot

from remuda.stats import Durations

MS = 1e-3
GAMES = snapshot(steps=[each(5 * MS)] * 8, workers=1, cpu=0.01, waited=40 * MS, resets=[each(9 * MS, 10)] * 8)


def test_a_table_has_workers_envs_the_callers_time_and_the_verdict() -> None:
    lines = str(GAMES).splitlines()
    assert lines[0].startswith("8 envs in 1 process workers on 2 cores: 8080 steps")
    assert "waits for envs 100%" in lines[1]
    assert any(line.split()[:3] == ["0", "1000", "0-7"] for line in lines)  # the columns worker, pid and envs
    assert sum("5 ms" in line for line in lines) >= 8
    assert lines[-1] == GAMES.verdict.text


def test_a_table_of_many_envs_shows_the_slowest() -> None:
    stats = snapshot(steps=[each(1 * MS)] * 99 + [each(9 * MS)], workers=50, waited=10 * MS)
    text = str(stats)
    assert "envs: 12 of 100, the slowest" in text
    assert "workers: 12 of 50, the slowest" in text
    assert any(line.split()[:1] == ["99"] and "9 ms" in line for line in text.splitlines())


def test_scalars_are_flat_numbers_with_a_prefix() -> None:
    scalars = GAMES.scalars()
    assert all(name.startswith("remuda/") and type(value) is float for name, value in scalars.items())
    assert all(math.isfinite(value) for value in scalars.values())
    assert scalars["remuda/steps"] == 8080
    assert scalars["remuda/step/mean_seconds"] == pytest.approx(5 * MS)
    assert scalars["remuda/caller/waiting_share"] == pytest.approx(1.0, abs=1e-3)
    assert "remuda/idle/p99_seconds" not in scalars  # no worker was idle
    assert "remuda/episode_return_mean" not in scalars
    assert set(GAMES.scalars("")) == {name.removeprefix("remuda/") for name in scalars}


def test_a_snapshot_of_an_unused_pool_is_shown() -> None:
    nothing = snapshot(steps=[Durations()] * 2, workers=1, waited=0.0, gathering=0.0, batches=0)
    assert "0 steps, 0 a second" in str(nothing)
    assert nothing.scalars()["remuda/steps"] == 0.0


# -- durations -------------------------------------------------------------------------------------------


seconds_lists = st.lists(st.floats(300e-9, 100.0), min_size=1, max_size=300)


@given(seconds_lists)
def test_counts_and_means_are_exact_and_quantiles_approximate(seconds: list[float]) -> None:
    durations = Durations.of(seconds)
    assert durations.count == len(seconds)
    assert durations.total == pytest.approx(sum(seconds))
    assert durations.mean == pytest.approx(np.mean(seconds))
    assert durations.max == max(seconds)
    for share in (0.5, 0.99):
        nth = sorted(seconds)[max(0, int(np.ceil(share * len(seconds))) - 1)]
        assert durations.quantile(share) == pytest.approx(nth, rel=0.25)
    assert durations.p50 <= durations.p99 <= durations.max


@given(seconds_lists, seconds_lists)
def test_a_difference_has_the_durations_in_between(before: list[float], after: list[float]) -> None:
    between = Durations.of(before + after) - Durations.of(before)
    assert between.count == len(after)
    assert between.total == pytest.approx(sum(after), abs=1e-6)
    assert max(after) <= between.max * 1.0001 <= max(after) * 1.2502 or between.max <= max(before + after)
    assert (Durations.of(before) + Durations.of(after)).count == len(before + after)


def test_durations_without_events_and_outside_of_all_buckets() -> None:
    none, wide = Durations(), Durations.of([1e-9, 1e6])
    assert (none.count, none.mean, none.max, none.p50, none.p99) == (0, 0.0, 0.0, 0.0, 0.0)
    assert (wide.count, wide.max) == (2, 1e6)
