"""Finds how a pool is to be made for an env and a policy: which trials to make, and what follows from them.

What a trial is worth is measured elsewhere (`trials`). Here it is a number, so the search can be looked at by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

_WORTH_MORE_ENVS = 1.1  # times as fast, for twice the envs: a larger batch has its price for who learns from it
_WORTH_CHANGING = 1.05  # below, it may be noise
_MOST_ENVS = 256
_ENOUGH = 2  # sizes in a row that did not pay


@dataclass(frozen=True)
class Trial:
    """A way to make and use a pool.

    Attributes:
        num_envs: In a batch.
        num_workers: How many share them; None: "auto" chooses, and the caller may step them itself.
        spares: Envs beside them, reset in advance; then each has a worker of its own.
        parts: 1, or 2: one half steps while the policy deals with the other.
    """

    num_envs: int
    num_workers: int | None = None
    spares: int = 0
    parts: int = 1


@dataclass(frozen=True)
class Outcome:
    """What has come of a trial.

    Attributes:
        trial: With the number of workers that there were.
        backend: That there was: "serial" is the caller itself.
        rate: Env steps per second, all told.
        wanted_spares: How many spares its verdict asks for; 0: none.
        told: What its verdict finds; what verdicts suggest is what is tried.
    """

    trial: Trial
    backend: str
    rate: float
    wanted_spares: int = 0
    told: str = ""


Measure = Callable[[Trial], Outcome]


@dataclass(frozen=True)
class Tuned:
    """What was found.

    Attributes:
        best: What is recommended.
        outcomes: Of all trials, in order.
        reasons: Why, a sentence each.
    """

    best: Outcome
    outcomes: tuple[Outcome, ...]
    reasons: tuple[str, ...]


def tune(measure: Measure, *, num_envs: int | None, cores: int, thinks: bool) -> Tuned:
    """Makes trials, each time of what could be better than the best so far.

    Args:
        measure: Makes one. What it raises ends the search.
        num_envs: Envs in a batch; None: as many as pay.
        cores: That may be used.
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
    """The best so far, and how it came to be that."""

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
        """Larger batches, as long as they pay; one that does not may be chance, two are not."""
        larger: list[Outcome] = []  # than the best, and not worth it
        for size in sizes:
            outcome = self._try(Trial(size))
            if size == sizes[0] or outcome.rate >= _WORTH_MORE_ENVS * self.best.rate:
                self.best, larger = outcome, []
            else:
                larger.append(outcome)
            if len(larger) == _ENOUGH:
                break
        if larger:
            told = " and ".join(f"{one.trial.num_envs} are {_times(one, self.best)} as fast" for one in larger)
            self.reasons.append(f"{self.best.trial.num_envs} envs a batch: {told}")

    def workers(self, cores: int) -> None:
        """More and fewer workers than "auto" has chosen, itself among them."""
        base, num_envs = self.best, self.best.trial.num_envs
        chosen = base.trial.num_workers or 1
        others = {chosen, chosen // 2, 2 * chosen, cores - 1, cores, num_envs} - {
            chosen if base.backend != "serial" else 0
        }
        tried = [
            self._try(replace(base.trial, num_workers=workers))
            for workers in sorted(others)
            if 1 <= workers <= num_envs
        ]
        fastest = max(tried, key=lambda outcome: outcome.rate, default=base)
        if fastest.rate > _WORTH_CHANGING * base.rate:
            self.best = fastest
            self.reasons.append(f"{_workers(fastest)}: {_times(fastest, base)} as fast as {_workers(base)} ('auto')")
        elif tried:
            self.reasons.append(f"{_workers(base)}, as 'auto' has it: {_workers(fastest)} {_are(fastest, base)}")

    def spares(self, spares: int) -> None:
        """Envs that have been reset when they are wanted."""
        outcome = self._try(Trial(self.best.trial.num_envs, spares=spares))
        self._take_if_faster(outcome, f"{spares} spares, for resets are slow")

    def halves(self) -> None:
        """One half of the envs steps while the policy deals with the other."""
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
    return list(_doubling(max(8, cores)))


def _doubling(size: int) -> Iterator[int]:
    while size <= _MOST_ENVS:
        yield size
        size *= 2


def _times(one: Outcome, other: Outcome) -> str:
    return f"{one.rate / other.rate:.2f} times" if other.rate else "many times"


def _are(one: Outcome, other: Outcome) -> str:
    return f"{'is' if one.trial.num_workers == 1 else 'are'} {_times(one, other)} as fast"


def _workers(outcome: Outcome) -> str:
    if outcome.backend == "serial":
        return "no workers"
    number = outcome.trial.num_workers
    return "1 worker" if number == 1 else f"{number} workers"
