"""`Durations`: counts in buckets, with exact means and approximate quantiles."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.stats import Durations

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
