"""How long something took, how often: counts in buckets, of which two can be subtracted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from remuda import _core

_EDGES = np.array(_core.duration_edges(), np.float64) / 1e9
BUCKETS = len(_EDGES) - 1


class Durations:
    """How long something took, in seconds, and how often; never changes.

        >>> import gymnasium, remuda
        >>> with remuda.Pool([lambda: gymnasium.make("CartPole-v1")] * 2) as pool:
        ...     batch = pool.reset(seed=0)
        ...     for _ in range(10):
        ...         batch = pool.step([0, 1])
        ...     step = pool.stats().step
        >>> step.count >= 18, 0 < step.p50 <= step.p99 <= step.max
        (True, True)

    Quantiles are known to about 10 %; `count`, `total`, `mean` and `max` are exact (of a difference, `max` is known
    like a quantile). All are 0.0 where there were none. Differences (`later - earlier`) and sums are durations again.

    Args:
        counts: How many there were in each bucket.
        total: Seconds of all of them together.
        longest: Seconds that none is longer than.

    Attributes:
        count: How many there were.
        total: All of them together.
    """

    __slots__ = ("_counts", "_longest", "count", "total")

    def __init__(self, counts: Sequence[int] | NDArray[Any] = (), total: float = 0.0, longest: float = 0.0) -> None:
        """Takes what was counted; see the class."""
        self._counts = np.zeros(BUCKETS, np.int64)
        self._counts[: len(counts)] = counts
        self._counts.flags.writeable = False
        self._longest, self.total = longest, total
        self.count = int(self._counts.sum())

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Durations:
        """Returns the durations of so many, each by its length."""
        counts, _ = np.histogram(np.minimum(seconds, _EDGES[-2]), _EDGES)
        return cls(counts, float(np.sum(seconds)), float(max(seconds, default=0.0)))

    @property
    def mean(self) -> float:
        """The mean."""
        return self.total / self.count if self.count else 0.0

    @property
    def max(self) -> float:
        """The longest."""
        filled = np.flatnonzero(self._counts)
        if not len(filled) or filled[-1] == BUCKETS - 1:  # the last has no end
            return self._longest if len(filled) else 0.0
        return min(self._longest, float(_EDGES[filled[-1] + 1]))

    @property
    def p50(self) -> float:
        """The median."""
        return self.quantile(0.5)

    @property
    def p99(self) -> float:
        """The duration that one in a hundred exceeds."""
        return self.quantile(0.99)

    def quantile(self, share: float) -> float:
        """Returns the duration that this share of them, from 0 to 1, does not exceed."""
        if not self.count:
            return 0.0
        below = np.cumsum(self._counts)
        bucket = int(np.searchsorted(below, share * self.count))
        bucket = min(bucket, BUCKETS - 1)
        within = (share * self.count - (below[bucket] - self._counts[bucket])) / max(1, self._counts[bucket])
        first, last = float(_EDGES[bucket]), float(_EDGES[bucket + 1])
        return float(min(first + within * (last - first), self.max))

    def slowest_of(self, many: int) -> float:
        """How long the slowest of `many` takes in the mean, if each is drawn from these independently."""
        if not self.count:
            return 0.0
        shares = np.cumsum(self._counts) / self.count
        chances = np.diff(shares**many, prepend=0.0)
        middles = np.minimum((_EDGES[:-1] + _EDGES[1:]) / 2, self.max)
        return max(self.mean, float(np.dot(chances, middles)))

    def __add__(self, other: Durations) -> Durations:
        return Durations(self._counts + other._counts, self.total + other.total, max(self._longest, other._longest))

    def __sub__(self, earlier: Durations) -> Durations:
        counts = np.maximum(self._counts - earlier._counts, 0)
        return Durations(counts, max(0.0, self.total - earlier.total), self._longest)

    def __repr__(self) -> str:
        return f"<Durations: {self.count}, mean {self.mean:.3g} s, p99 {self.p99:.3g} s, max {self.max:.3g} s>"


def span(seconds: float) -> str:
    """A time in the unit that fits."""
    for factor, unit in ((1e6, "us"), (1e3, "ms")):
        if seconds < 1000 / factor:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds:.3g} s"
