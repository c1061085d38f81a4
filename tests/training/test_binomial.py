"""The confidence interval of a rate of successes, beside scipy's."""

from __future__ import annotations

import numpy as np
import pytest

from remuda._training.success import interval

stats = pytest.importorskip("scipy.stats")


def test_intervals_are_those_of_scipy() -> None:
    rng = np.random.default_rng(0)
    for _ in range(300):
        count = int(rng.integers(1, 200))
        successes, confidence = int(rng.integers(0, count + 1)), float(rng.uniform(0.5, 0.999))
        expected = stats.binomtest(successes, count).proportion_ci(confidence, method="wilson")
        assert interval(successes, count, confidence) == pytest.approx((expected.low, expected.high), abs=1e-9)


def test_without_trials_nothing_is_known() -> None:
    assert interval(0, 0) == (0, 1)
    for confidence in (0, 1, -1):
        with pytest.raises(ValueError, match="expected confidence to be between 0 and 1"):
            interval(1, 2, confidence)
