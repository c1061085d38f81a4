"""Computes the mean time of a batch, the parts of that time, and the cost of a step."""

from __future__ import annotations

from remuda._engine.stats.choice import SWITCH_SECONDS
from remuda._engine.stats.durations import Durations, span
from remuda._engine.stats.snapshot import Snapshot
from remuda._worker.measuring import StepCost


class BatchTime:
    """The mean time of a batch and its parts, in seconds. `count`: the number of batches."""

    def __init__(self, stats: Snapshot) -> None:
        caller, self.count = stats.caller, stats.batches
        self.whole = stats.seconds / self.count
        self.own = caller.own / self.count
        self.gathering, self.unpickling = caller.gathering / self.count, caller.unpickling / self.count
        waited = caller.waiting / self.count
        self.lost = min(waited, sum(worker.lost for worker in stats.workers) / self.count)
        pickling = max((worker.pickling for worker in stats.workers), default=0.0) / self.count
        self.pickling = min(waited - self.lost, pickling)
        self.waited = waited - self.lost - self.pickling  # the wait for envs, without faults and the pickling of infos

    def part(self, seconds: float) -> str:
        """Returns a part of a batch's time as text, with its share, such as "2 ms of 4 ms a batch (50%)"."""
        return f"{self.of_whole(seconds)} ({min(1.0, max(0.0, seconds / self.whole)):.0%})"

    def of_whole(self, seconds: float) -> str:
        """Returns a part of a batch's time as text, such as "2 ms of 4 ms a batch"."""
        return f"{span(seconds)} of {span(self.whole)} a batch"

    def saved(self, seconds: float) -> float:
        """Returns the share of a batch's time that is saved if the wait for envs gets `seconds` shorter."""
        return min(max(0.0, seconds), self.waited) / self.whole


def step_cost(stats: Snapshot) -> StepCost:
    """Returns the mean cost of a step in this pool. It includes the cost of resets, divided among all steps.

    Time in a queue for cores, and time that the host of a virtual machine took, do not count. How much of that fell
    into steps is unknown, so a step waits at least as long as the median does.
    """
    steps = stats.steps / (stats.setup.vector_size or 1)
    cpu, busy, usual = stats.cpu_seconds / steps, stats.env_seconds / steps, stats.step.p50
    ran = cpu * (1 + stolen_share(stats))
    return StepCost(cpu + max(0.0, busy - ran - stats.queued_seconds / steps, usual - ran), cpu)


def stolen_share(stats: Snapshot) -> float:
    """Returns the seconds that a virtual machine's host takes from a program for each second in which it runs."""
    return stats.machine.stolen / stats.machine.busy if stats.machine.busy > 0 else 0.0


def alone(cost: StepCost, num_workers: int, cores: int) -> StepCost:
    """Returns the cost of a step in a process that does not share its core."""
    if num_workers <= cores:
        return cost
    cpu = max(cost.cpu - SWITCH_SECONDS, cost.cpu / 4)  # without the cost of switching processes
    return StepCost(cost.wall - cost.cpu + cpu, cpu)


def steps_seconds(stats: Snapshot, batch: BatchTime) -> float:
    """Returns the mean seconds that the slowest worker spends on the steps of a batch."""
    by_worker = dict[int, Durations]()
    for env in stats._env_objects:
        by_worker[env.worker] = by_worker.get(env.worker, Durations()) + env.step
    return max((durations.total for durations in by_worker.values()), default=0.0) / batch.count
