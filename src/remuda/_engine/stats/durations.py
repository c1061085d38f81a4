"""Durations of repeated events, kept as counts in buckets. They can be added and subtracted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from remuda import _core

_EDGES = np.array(_core.duration_edges(), np.float64) / 1e9
BUCKETS = len(_EDGES) - 1


class Durations:
    """The durations of repeated events, in seconds, and the number of events; immutable.

        >>> import gymnasium, remuda
        >>> with remuda.Pool([lambda: gymnasium.make("CartPole-v1")] * 2) as pool:
        ...     batch = pool.reset(seed=0)
        ...     for _ in range(10):
        ...         batch = pool.step([0, 1])
        ...     step = pool.stats().step
        >>> step.count >= 18, 0 < step.p50 <= step.p99 <= step.max
        (True, True)

    Quantiles are accurate to about 10 %; `count`, `total`, `mean` and `max` are exact (in a difference, `max` is as
    accurate as a quantile). All are 0.0 without events. Differences (`later - earlier`) and sums are durations, too.

    Args:
        counts: The number of events in each bucket.
        total: The sum of all durations, in seconds.
        longest: An upper bound of the durations, in seconds.

    Attributes:
        count: The number of events.
        total: The sum of all durations.
    """

    __slots__ = ("_counts", "_longest", "count", "total")

    def __init__(self, counts: Sequence[int] | NDArray[Any] = (), total: float = 0.0, longest: float = 0.0) -> None:
        """Makes durations from a copy of `counts`; the class describes the arguments."""
        self._counts = np.zeros(BUCKETS, np.int64)
        self._counts[: len(counts)] = counts
        self._counts.flags.writeable = False
        self._longest, self.total = longest, total
        self.count = int(self._counts.sum())

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Durations:
        """Returns the `Durations` of events that took `seconds`, one entry for each event."""
        counts, _ = np.histogram(np.minimum(seconds, _EDGES[-2]), _EDGES)
        return cls(counts, float(np.sum(seconds)), float(max(seconds, default=0.0)))

    @property
    def mean(self) -> float:
        """The mean duration."""
        return self.total / self.count if self.count else 0.0

    @property
    def max(self) -> float:
        """The longest duration."""
        filled = np.flatnonzero(self._counts)
        if not len(filled) or filled[-1] == BUCKETS - 1:  # the last bucket has no upper limit
            return self._longest if len(filled) else 0.0
        return min(self._longest, float(_EDGES[filled[-1] + 1]))

    @property
    def p50(self) -> float:
        """The median duration."""
        return self.quantile(0.5)

    @property
    def p99(self) -> float:
        """The duration that one in a hundred events exceeds."""
        return self.quantile(0.99)

    def quantile(self, share: float) -> float:
        """Returns the duration that this share of events, from 0 to 1, does not exceed."""
        if not self.count:
            return 0.0
        below = np.cumsum(self._counts)
        bucket = int(np.searchsorted(below, share * self.count))
        bucket = min(bucket, BUCKETS - 1)
        within = (share * self.count - (below[bucket] - self._counts[bucket])) / max(1, self._counts[bucket])
        first, last = float(_EDGES[bucket]), float(_EDGES[bucket + 1])
        return float(min(first + within * (last - first), self.max))

    def __add__(self, other: Durations) -> Durations:
        return Durations(self._counts + other._counts, self.total + other.total, max(self._longest, other._longest))

    def __sub__(self, earlier: Durations) -> Durations:
        counts = np.maximum(self._counts - earlier._counts, 0)
        return Durations(counts, max(0.0, self.total - earlier.total), self._longest)

    def __repr__(self) -> str:
        return f"<Durations: {self.count}, mean {self.mean:.3g} s, p99 {self.p99:.3g} s, max {self.max:.3g} s>"


def span(seconds: float) -> str:
    """Returns a time as text, in us, ms or s."""
    for factor, unit in ((1e6, "us"), (1e3, "ms")):
        if seconds < 1000 / factor:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds:.3g} s"
