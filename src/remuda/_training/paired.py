"""The exact test and the confidence interval of a difference between two rates, measured on the same trials."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

_Floats: TypeAlias = "np.ndarray[Any, np.dtype[np.float64]]"

_POINTS = 2_001  # of the grid on which a distribution is integrated
_SPREAD = 8  # standard deviations on each side of a mean that the grid has
_HALVINGS = 40


def p_value(wins: int, losses: int) -> float:
    """Returns the two-sided p-value of McNemar's exact test: the doubled tail of the binomial distribution."""
    return min(1.0, 2 * _tail(wins + losses, max(wins, losses)))


def interval(wins: int, losses: int, pairs: int, confidence: float = 0.95) -> tuple[float, float]:
    """Returns the confidence interval (low, high) of the probability of a win minus that of a loss.

    It is the interval of Fay and Lumbard, "Confidence intervals for difference in proportions for matched pairs
    compatible with exact McNemar's or sign tests", Statistics in Medicine 40, 2021: it does not contain 0 if and only
    if `p_value` is less than 1 - confidence. The difference is d (2 w - 1), with the probability d that a pair differs,
    and the probability w that a pair which differs is a win. Both have the confidence distributions that belong to the
    intervals of Clopper and Pearson.

    Args:
        wins, losses: The number of pairs of each kind.
        pairs: The number of all pairs, at least 1.
        confidence: The share of such intervals that contain the difference.

    Raises:
        ValueError: `confidence` is not between 0 and 1.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"expected confidence to be between 0 and 1, got {confidence}")
    tail = (1 - confidence) / 2
    return _low(wins, losses, pairs, tail), -_low(losses, wins, pairs, tail)


def _low(wins: int, losses: int, pairs: int, tail: float) -> float:
    """Returns the quantile `tail` of the product of d and 2 w - 1, with the lower distribution of w."""
    n = wins + losses
    places, weights = _beta(wins, losses + 1)
    scales = 2 * places - 1
    is_win = scales > 0
    least, most = _cdf(n, pairs - n + 1), _cdf(n + 1, pairs - n)

    def below(value: float) -> float:
        """Returns the probability that the product is at most `value`: with `least` of d for positive scales."""
        ratios = np.divide(value, scales, out=np.full(len(scales), math.inf), where=scales != 0)
        shares = np.where(is_win, least(ratios), 1 - most(ratios)) if value else np.where(is_win, 0.0, 1.0)
        return float((weights * shares).sum())

    # The exact probability of 2 w <= 1 decides the sign, so that the interval agrees with the test.
    low, high = (0.0, 1.0) if wins and _tail(n, wins) < tail else (-1.0, 0.0)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if below(middle) < tail else (low, middle)
    return high if high > 0 else low  # the end of the last bracket that agrees with the test


def _tail(n: int, k: int) -> float:
    """Returns the probability of at least `k` heads in `n` tosses of a coin."""
    ways, total = 1, 0  # to toss i heads, and to toss at most i; as likely as n - i and at least n - i heads
    for i in range(n - k + 1):
        total += ways
        ways = ways * (n - i) // (i + 1)
    return float(total / 2**n)


def _beta(a: int, b: int) -> tuple[_Floats, _Floats]:
    """Returns places from 0 to 1, and their weights in the beta distribution: with a = 0 only 0, with b = 0 only 1."""
    if a == 0 or b == 0:
        return np.array([float(b == 0)]), np.ones(1)
    mean = a / (a + b)
    spread = _SPREAD * math.sqrt(mean * (1 - mean) / (a + b + 1))
    edges = np.linspace(max(0.0, mean - spread), min(1.0, mean + spread), _POINTS + 1)
    places = (edges[1:] + edges[:-1]) / 2
    logs = (a - 1) * np.log(places) + (b - 1) * np.log1p(-places)
    weights = np.exp(logs - logs.max())
    return places, weights / weights.sum()


def _cdf(a: int, b: int) -> Callable[[_Floats], _Floats]:
    """Returns the cumulative distribution function of the beta distribution."""
    places, weights = _beta(a, b)
    if len(places) == 1:
        return lambda values: (values >= places[0]).astype(np.float64)
    ends, sums = places + (places[1] - places[0]) / 2, np.cumsum(weights)
    return lambda values: np.interp(values, ends, sums, left=0.0)
