"""Searches for the best pool for an env and a policy: chooses trials, and draws conclusions from them.

`trials` makes the trials. Here the result of a trial is a number, so that the search can be tested by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

_WORTH_MORE_ENVS = 1.1  # a larger batch is chosen if it is faster by this factor: it may be worse for the learner.
_WORTH_CHANGING = 1.05  # another change is chosen if it is faster by this factor, because a smaller gain may be noise
_MOST_ENVS = 256
_ENOUGH = 2  # the search ends after this number of successive batch sizes without a sufficient gain


@dataclass(frozen=True)
class Trial:
    """The settings of a trial: of its pool, and of the loop that steps the pool.

    Attributes:
        num_envs: The number of envs in a batch.
        num_workers: The number of workers that share the envs; None: "auto" chooses, perhaps the caller itself.
        spares: The number of further envs, reset in advance. Then each env has a worker of its own.
        parts: 1, or 2: one half steps while the policy works on the other.
    """

    num_envs: int
    num_workers: int | None = None
    spares: int = 0
    parts: int = 1


@dataclass(frozen=True)
class Outcome:
    """The result of a trial.

    Attributes:
        trial: The trial, with the number of workers that the pool had.
        backend: The pool's backend. With "serial" the caller steps the envs.
        rate: Env steps per second.
        wanted_spares: The number of spares that the pool's verdict suggests.
        finding: The finding of the verdict. The search tries the suggestions of verdicts in any case.
        others, own: The shares of the CPU that other programs, and the pool with this program, took meanwhile.
    """

    trial: Trial
    backend: str
    rate: float
    wanted_spares: int = 0
    finding: str = ""
    others: float = 0.0
    own: float = 0.0


Measure = Callable[[Trial], Outcome]


@dataclass(frozen=True)
class Tuned:
    """The result of the search for the best pool.

    Attributes:
        best: The recommended pool.
        outcomes: The outcomes of all trials, in order.
        reasons: The reasons for the recommendation, a sentence each.
    """

    best: Outcome
    outcomes: tuple[Outcome, ...]
    reasons: tuple[str, ...]


def tune(measure: Measure, *, num_envs: int | None, cores: int, thinks: bool) -> Tuned:
    """Searches for the fastest pool: each trial measures a pool that could be faster than the best one so far.

    Args:
        measure: Makes a trial. An exception ends the search.
        num_envs: The number of envs in a batch; None: as many as increase the rate enough.
        cores: The number of cores that may be used.
        thinks: Whether there is a policy that takes time.
    """
    search = _Search(measure)
    search.sizes([num_envs] if num_envs is not None else _sizes(cores))
    search.workers(cores)
    if search.best.wanted_spares:
        search.spares(search.best.wanted_spares)
    if thinks:
        search.halves()
    return Tuned(search.best, tuple(search.outcomes), tuple(search.reasons))


class _Search:
    """The state of the search: the best outcome so far, and the reasons for it."""

    def __init__(self, measure: Measure) -> None:
        self._measure = measure
        self.outcomes: list[Outcome] = []
        self.reasons: list[str] = []
        self.best: Outcome

    def _try(self, trial: Trial) -> Outcome:
        outcome = self._measure(trial)
        self.outcomes.append(outcome)
        return outcome

    def sizes(self, sizes: Sequence[int]) -> None:
        """Tries larger batches until two in a row gain too little, because one alone may be slow by chance."""
        larger: list[Outcome] = []  # the outcomes of larger batches that gained too little
        for size in sizes:
            outcome = self._try(Trial(size))
            if size == sizes[0] or outcome.rate >= _WORTH_MORE_ENVS * self.best.rate:
                self.best, larger = outcome, []
            else:
                larger.append(outcome)
            if len(larger) == _ENOUGH:
                break
        if larger:
            others = " and ".join(f"{one.trial.num_envs} are {_times(one, self.best)} as fast" for one in larger)
            self.reasons.append(f"{self.best.trial.num_envs} envs a batch: {others}")

    def workers(self, cores: int) -> None:
        """Tries more and fewer workers than "auto" has chosen."""
        base, num_envs = self.best, self.best.trial.num_envs
        chosen = base.trial.num_workers or 1
        numbers = {chosen // 2, 2 * chosen, cores - 1, cores, num_envs} - {chosen}
        if base.backend == "serial":
            numbers.add(chosen)  # "auto" has chosen the serial backend, so one worker process was not tried
        tried = [
            self._try(replace(base.trial, num_workers=number)) for number in sorted(numbers) if 1 <= number <= num_envs
        ]
        fastest = max(tried, key=lambda outcome: outcome.rate, default=base)
        if fastest.rate > _WORTH_CHANGING * base.rate:
            self.best = fastest
            self.reasons.append(f"{_workers(fastest)}: {_times(fastest, base)} as fast as {_workers(base)} ('auto')")
        elif tried:
            self.reasons.append(f"{_workers(base)}, as 'auto' has it: {_workers(fastest)} {_are(fastest, base)}")

    def spares(self, spares: int) -> None:
        """Tries spares: further envs that are reset in advance."""
        outcome = self._try(Trial(self.best.trial.num_envs, spares=spares))
        self._take_if_faster(outcome, f"{spares} spares, for resets are slow")

    def halves(self) -> None:
        """Tries to step one half of the envs while the policy works on the other."""
        if self.best.backend == "serial" or self.best.trial.num_envs < 2:
            return
        outcome = self._try(replace(self.best.trial, parts=2))
        self._take_if_faster(outcome, "two halves, so that envs step while the policy is at work")

    def _take_if_faster(self, outcome: Outcome, what: str) -> None:
        if outcome.rate > _WORTH_CHANGING * self.best.rate:
            self.reasons.append(f"{what}: {_times(outcome, self.best)} as fast")
            self.best = outcome
        else:
            self.reasons.append(f"not {what}: {_times(outcome, self.best)} as fast")


def _sizes(cores: int) -> list[int]:
    doubling = (min(max(8, cores), _MOST_ENVS) << times for times in range(_MOST_ENVS.bit_length()))
    return [size for size in doubling if size <= _MOST_ENVS]


def _times(one: Outcome, other: Outcome) -> str:
    return f"{one.rate / other.rate:.2f} times" if other.rate else "many times"


def _are(one: Outcome, other: Outcome) -> str:
    return f"{'is' if one.trial.num_workers == 1 else 'are'} {_times(one, other)} as fast"


def _workers(outcome: Outcome) -> str:
    if outcome.backend == "serial":
        return "no workers"
    number = outcome.trial.num_workers
    return "1 worker" if number == 1 else f"{number} workers"
