"""Evaluation: the result of `remuda.evaluate`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from remuda._training.success import interval
from remuda.errors import Fault, StateError, WorkerDiedError

_RESAMPLES = 10_000
_DIGITS = 3  # the digits of an interval's width in a text
_ROUNDING = 1e-9  # a relative difference that is due to rounding


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    """The result of `remuda.evaluate`. Row k of each array is episode k of N.

    Attributes:
        seed: The seed from which the seeds of the episodes were derived, unless `seeds=` gave them: the same one gives
            the same episodes.
        returns: (N,) float64: sums of the rewards that the envs returned; (N, k) if rewards are vectors. Then the
            statistics of the returns are arrays (k,).
        lengths: (N,) int64: numbers of steps.
        terminated: (N,) bool: whether the episode ended in a terminal state; else it was cut off.
        seeds: (N,) int64: the seeds with which the envs were reset.
        env_ids: (N,) int64: the env that played the episode.
        infos: The last info of each episode, which may report success.
        faults: The faults after which episodes were played again, in order.
        videos: The files that were written.
        successes: (N,) bool: whether the episode was a success; None if `success=` was not given.
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
    successes: np.ndarray[Any, np.dtype[np.bool_]] | None = None

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

    @property
    def success_rate(self) -> float:
        """The share of successes among these N episodes. Raises StateError without `success=`."""
        return float(self._known_successes().mean())

    def success_interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Returns the confidence interval (low, high) of the success rate of all possible episodes.

        It is the Wilson score interval (Wilson, "Probable inference, the law of succession, and statistical inference",
        1927). Like `interval`, it does not reflect the spread of policies from different training runs.

        Raises:
            ValueError: `confidence` is not between 0 and 1.
            StateError: `success=` was not given.
        """
        return interval(int(self._known_successes().sum()), len(self), confidence)

    def _known_successes(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        if self.successes is None:
            raise StateError(
                "expected an evaluation with successes: give remuda.evaluate(..., success=) a key of infos"
            )
        return self.successes

    def __len__(self) -> int:
        return len(self.returns)

    def __repr__(self) -> str:
        mean, low, high = _evenly(self.mean, *self.interval())
        success = ""
        if self.successes is not None:
            rate, least, most = (f"{100 * share:.1f}" for share in (self.success_rate, *self.success_interval()))
            success = f", success {rate} % (95 %: {least} to {most})"
        again = f", {len(self.faults)} played again after a fault" if self.faults else ""
        bounds = f" (95 %: {low} to {high})" if len(self) > 1 else ""  # one episode shows no spread
        returns, length = f"mean return {mean}{bounds}", f"mean length {self.lengths.mean():.1f}"
        return f"<Evaluation of {len(self)} episodes: {returns}, {length}{success}{again}>"


def _plain(numbers: Any) -> float:
    """Returns a float for a single number. Arrays are returned as they are, though their type is not declared."""
    return float(numbers) if np.ndim(numbers) == 0 else cast(float, numbers)


def _evenly(mean: Any, low: Any, high: Any) -> list[str]:
    """Returns a mean and its interval as texts with the same number of decimals, which the interval's width decides."""
    width, size = np.min(np.subtract(high, low)), np.max(np.abs([low, high]))
    form = ".6g"  # the returns are equal except for rounding, or some are not finite
    if _ROUNDING * size < width < math.inf:
        form = f".{max(0, _DIGITS - 1 - math.floor(math.log10(width)))}f"
    formatter: Any = {"float": lambda number: format(number, form)}
    return [np.array2string(np.asarray(each), formatter=formatter) for each in (mean, low, high)]


def is_own(fault: Fault) -> bool:
    """Returns whether the episode's own env has caused the fault, rather than another env of the same worker.

    A death without a known culprit is shared by all envs of the worker, and counts.
    """
    return not fault.shared or (isinstance(fault.error, WorkerDiedError) and fault.error.where is None)
