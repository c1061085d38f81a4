"""Says once when another number of workers would be much faster, from what a running pool has measured of itself."""

from __future__ import annotations

import time
from dataclasses import dataclass

from remuda._engine.pool.stats import PoolStats
from remuda._engine.startup.choice import SWITCH_SECONDS, WAKE_SECONDS, batch_seconds, best_num_workers, micros
from remuda._relay.log import logger
from remuda._worker.measuring import StepCost

_WORTH_SAYING = 2.0  # times faster, the caller's own time included


@dataclass(frozen=True)
class Snapshot:
    """Where a pool is: its figures, and the seconds on some clock, so that of two of them all is known in between."""

    stats: PoolStats
    queued_seconds: float  # in which its workers were ready to run and had no core
    when: float

    @classmethod
    def now(cls, stats: PoolStats, queued_seconds: float) -> Snapshot:
        return cls(stats, queued_seconds, time.perf_counter())


@dataclass(frozen=True)
class Observed:
    """What a batch takes, in the mean.

    Attributes:
        whole: Seconds from one batch to the next, the caller's own time included.
        waited: Seconds of that in which the caller waited for envs.
        cost: Of a step as it is, in this pool.
    """

    whole: float
    waited: float
    cost: StepCost

    @classmethod
    def between(cls, one: Snapshot, other: Snapshot, width: int = 1) -> Observed | None:
        """None where no step was taken. `width`: so many envs are stepped by one call."""
        batches = other.stats.batches - one.stats.batches
        steps = (other.stats.steps - one.stats.steps) // width
        if batches <= 0 or steps <= 0:
            return None
        cpu = (other.stats.cpu_seconds - one.stats.cpu_seconds) / steps
        busy = (other.stats.env_seconds - one.stats.env_seconds) / steps
        queued = (other.queued_seconds - one.queued_seconds) / steps
        blocked = max(0.0, busy - cpu - queued)
        waited = (other.stats.waited_seconds - one.stats.waited_seconds) / batches
        return cls((other.when - one.when) / batches, waited, StepCost(cpu + blocked, cpu))


def advice(observed: Observed, num_envs: int, num_workers: int, cores: int, what: str = "envs") -> str | None:
    """What to say to whoever chose num_workers; None unless his loop as a whole could be several times faster.

    `what`: is stepped, "envs" or "vector envs".
    """
    cost = _alone(observed.cost, num_workers, cores)
    best = best_num_workers(cost, num_envs, cores)
    saved = observed.waited - batch_seconds(cost, num_envs, best, cores, WAKE_SECONDS)
    if best == num_workers or saved < (1 - 1 / _WORTH_SAYING) * observed.whole:
        return None
    step = f"{micros(observed.cost.cpu)} of CPU and {micros(observed.cost.wall - observed.cost.cpu)} of waiting"
    return (
        f"remuda: of {micros(observed.whole)} a batch, your program waits {micros(observed.waited)} for {num_envs} "
        f"{what} in {num_workers} worker{'' if num_workers == 1 else 's'} on {cores} core{'' if cores == 1 else 's'}, "
        f"a step of which takes {step}. num_workers={best} should be faster. (num_workers='auto' measures and "
        "chooses; advise=False keeps this quiet.)"
    )


def _alone(cost: StepCost, num_workers: int, cores: int) -> StepCost:
    """What a step would cost in a process that need not share its core."""
    if num_workers <= cores:
        return cost
    cpu = max(cost.cpu - SWITCH_SECONDS, cost.cpu / 4)  # every step pays for a switch of processes
    return StepCost(cost.wall - cost.cpu + cpu, cpu)


class Adviser:
    """Says at most one thing in the life of this process, however many pools it has."""

    def __init__(self) -> None:
        self.has_spoken = False

    def say(self, text: str) -> None:
        if not self.has_spoken:
            self.has_spoken = True
            logger.warning("%s", text)


ADVISER = Adviser()
