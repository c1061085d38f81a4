"""Chooses the number of workers, and who steps the envs, from what a step was measured to cost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from remuda._engine.stats.durations import span
from remuda._worker.measuring import Measured, StepCost

# What an env's step costs more when another process had the core before: its caches are cold. Measured with
# CartPole on two cores: 6 us a step in a row, 23 us of CPU where 64 workers share the cores.
SWITCH_SECONDS = 20e-6

WAKE_SECONDS = 20e-6  # to wake a worker and be woken by it, where that was not measured
_RING_SECONDS = 1e-6  # for each worker that is woken
_ROW_SECONDS = 0.3e-6  # to write what a step returns into its row
_BYTES_A_SECOND = 5e9

# Nobody steps envs for their own sake: between two batches there is a policy, beside which `benchmarks/auto.py` races
# what may be chosen.
#
# What a batch takes longer where no core is left to the policy alone: the worker there has to wait until the policy
# lets go, then each finds the other's caches, and the batch is over when the later worker is.
_SHARED_SECONDS = 200e-6
# What it takes longer, for the same reason, where envs take turns with the policy in one process: a part, but at most.
_IN_TURNS, _IN_TURNS_SECONDS = 0.2, 200e-6
# Where the caller may step the envs himself, workers must be expected to be so many times as fast.
_WORTH_WORKERS = 1.05


@dataclass(frozen=True)
class Choice:
    """What "auto" has chosen for a pool, and why. As a text it is the reason.

    Attributes:
        num_workers: How many share the envs.
        backend: "process", "thread", or "serial": the caller steps the envs.
        reason: A sentence, with the figures that decided.
    """

    num_workers: int
    backend: Literal["process", "thread", "serial"]
    reason: str

    def __str__(self) -> str:
        return self.reason


def batch_seconds(cost: StepCost, num_envs: int, num_workers: int, cores: int, wake: float = 0.0) -> float:
    """The time in which num_workers could step num_envs once: an estimate, to compare numbers of workers by.

    `wake`: seconds to wake one worker and be woken by it. The caller is on one of the cores, so where there are as many
    workers as cores, one has to share his.
    """
    envs_per_worker = -(-num_envs // num_workers)
    shared = _SHARED_SECONDS if num_workers >= cores else 0.0
    switches = num_workers * SWITCH_SECONDS if num_workers > cores else 0.0
    in_a_row = envs_per_worker * cost.wall
    on_the_cores = (num_envs * cost.cpu + switches) / cores
    return wake + num_workers * _RING_SECONDS + shared + max(in_a_row, on_the_cores)


def in_turns(seconds: float) -> float:
    """What so much work of envs takes in the caller's process, beside a policy."""
    return seconds + min(_IN_TURNS * seconds, _IN_TURNS_SECONDS)


def best_num_workers(cost: StepCost, num_envs: int, cores: int, wake: float = WAKE_SECONDS) -> int:
    """The number of workers with the shortest batch; of nearly equals the smallest, for it needs least memory."""
    few: Iterable[int] = range(1, min(num_envs, cores) + 1)
    candidates = sorted({*few, *(min(num_envs, n) for n in (2 * cores, 4 * cores, -(-num_envs // 2), num_envs))})
    times = {n: batch_seconds(cost, num_envs, n, cores, wake) for n in candidates}
    fastest = min(times.values())
    return next(n for n in candidates if times[n] <= 1.1 * fastest)


def choose(
    measured: Measured, num_envs: int, cores: int, backend: Literal["process", "thread"], wake: float | None = None
) -> Choice:
    """What is best for so many envs like the one that was measured.

    Args:
        num_envs: Of vector envs, how many of those.
        cores: That may be used.
        backend: Of the workers, if there are to be any.
        wake: As for `batch_seconds`, where the caller may step the envs itself; None: he may not.
    """
    if measured.cost is None:
        return one_each(num_envs, backend, f"env 0 cannot be played at random ({measured.raised})")
    row = _ROW_SECONDS + measured.obs_bytes / _BYTES_A_SECOND
    cost = StepCost(measured.cost.wall + row, measured.cost.cpu + row)
    best = best_num_workers(cost, num_envs, cores, WAKE_SECONDS if wake is None else wake)
    if wake is not None:
        if num_envs == 1:
            return Choice(1, "serial", f"stepped by the caller: it is one env, a step of which takes {span(cost.wall)}")
        alone, shared = in_turns(num_envs * cost.wall), batch_seconds(cost, num_envs, best, cores, wake)
        if alone < _WORTH_WORKERS * shared:
            batch = f"the {num_envs} steps of a batch take {span(alone)}, by {_workers(best)} {span(shared)}"
            return Choice(1, "serial", f"stepped by the caller: {batch}, and to wake a worker {span(wake)}")
    return Choice(best, backend, f"{_workers(best)} for {num_envs} envs: {describe(cost, cores)}")


def one_each(num_envs: int, backend: Literal["process", "thread"], why: str) -> Choice:
    return Choice(num_envs, backend, f"one worker for each of {num_envs} envs: {why}")


def describe(cost: StepCost, cores: int) -> str:
    usable = "1 core may be used" if cores == 1 else f"{cores} cores may be used"
    return f"a step takes {span(cost.wall)}, {span(cost.cpu)} of it CPU, and {usable}"


def _workers(number: int) -> str:
    return "1 worker" if number == 1 else f"{number} workers"
