"""Evaluation: the result of `remuda.evaluate`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from remuda.errors import Fault

_RESAMPLES = 10_000


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    """The result of `remuda.evaluate`. Row k of each array is the k-th of N episodes, in the order of their starts.

    Attributes:
        seed: The seed from which the seeds of the episodes were derived: the same one gives the same episodes.
        returns: (N,) float64: sums of the rewards that the envs returned; (N, k) if rewards are vectors. Then the
            statistics of the returns are arrays (k,).
        lengths: (N,) int64: numbers of steps.
        terminated: (N,) bool: whether the episode ended in a terminal state; else it was cut off.
        seeds: (N,) int64: the seeds with which the envs were reset.
        env_ids: (N,) int64: the env that played the episode.
        infos: The last info of each episode, which may report success.
        faults: The faults after which episodes were played again, in order.
        videos: The files that were written.
    """

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
        """Mean of the returns."""
        return _plain(self.returns.mean(axis=0))

    @property
    def std(self) -> float:
        """The standard deviation of these N returns: `numpy.std`, not the estimate for all possible episodes."""
        return _plain(self.returns.std(axis=0))

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Returns the confidence interval (low, high) of the mean return of all possible episodes.

        It is the percentile bootstrap of the mean (Efron, "Bootstrap methods: another look at the jackknife", 1979),
        with 10,000 resamples that are the same every time. It reflects the spread of the episodes, but not the spread
        of policies from different training runs.

        Raises:
            ValueError: `confidence` is not between 0 and 1.
        """
        if not 0 < confidence < 1:
            raise ValueError(f"expected confidence to be between 0 and 1, got {confidence}")
        generator, n = np.random.default_rng(0), len(self.returns)
        means = [self.returns[generator.integers(n, size=n)].mean(axis=0) for _ in range(_RESAMPLES)]
        low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2], axis=0)
        return _plain(low), _plain(high)

    def __len__(self) -> int:
        return len(self.returns)

    def __repr__(self) -> str:
        low, high = self.interval()
        mean = f"mean return {_text(self.mean)} (95 %: {_text(low)} to {_text(high)})"
        again = f", {len(self.faults)} played again after a fault" if self.faults else ""
        return f"<Evaluation of {len(self)} episodes: {mean}, mean length {self.lengths.mean():.6g}{again}>"


def _plain(numbers: Any) -> float:
    """Returns a float for a single number. Arrays are returned as they are, though their type is not declared."""
    return float(numbers) if np.ndim(numbers) == 0 else cast(float, numbers)


def _text(numbers: Any) -> str:
    return f"{numbers:.6g}" if np.ndim(numbers) == 0 else np.array2string(numbers, precision=6)
