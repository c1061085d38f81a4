"""The episodes of an evaluation: their returns, and the confidence of the mean."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from remuda.errors import Fault

_RESAMPLES = 10_000


@dataclass(frozen=True, eq=False)
class Episodes:
    """The data of an `Evaluation`."""

    seed: int
    returns: np.ndarray[Any, np.dtype[np.float64]]
    lengths: np.ndarray[Any, np.dtype[np.int64]]
    terminated: np.ndarray[Any, np.dtype[np.bool_]]
    seeds: np.ndarray[Any, np.dtype[np.int64]]
    env_ids: np.ndarray[Any, np.dtype[np.int64]]
    infos: tuple[dict[str, Any], ...]
    faults: tuple[Fault, ...] = ()
    videos: tuple[Path, ...] = ()

    @property
    def mean(self) -> float:
        """Of the returns."""
        return float(self.returns.mean())

    @property
    def std(self) -> float:
        """Standard deviation of the returns (of these N, not an estimate for all: `numpy.std`)."""
        return float(self.returns.std())

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """The interval that the mean return of all episodes lies in with this confidence.

        It is the percentile bootstrap of the mean (Efron, "Bootstrap methods: another look at the jackknife", 1979),
        with 10,000 resamples that are the same every time. It knows of the episodes' spread, and not that another
        training run would give another policy.

        Raises:
            ValueError: `confidence` is not between 0 and 1.
        """
        if not 0 < confidence < 1:
            raise ValueError(f"expected confidence to be between 0 and 1, got {confidence}")
        generator, n = np.random.default_rng(0), len(self.returns)
        means = [self.returns[generator.integers(n, size=n)].mean() for _ in range(_RESAMPLES)]
        low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
        return float(low), float(high)

    def __len__(self) -> int:
        return len(self.returns)
