"""Chooses the number of workers, and whether the caller steps the envs, by the measured cost of a step."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from remuda._engine.stats.durations import span
from remuda._worker.measuring import Measured, StepCost

# The extra cost of a step if another process had the core before, so that caches are cold. Measured with CartPole on
# two cores: 6 us a step if one process makes many steps in a row, 23 us of CPU if 64 workers share the cores.
SWITCH_SECONDS = 20e-6

WAKE_SECONDS = 20e-6  # the time to wake a worker and be woken by it, unless a trial has measured it.
_RING_SECONDS = 1e-6  # the additional time for each worker that is woken.
_ROW_SECONDS = 0.3e-6  # the time to write the result of a step into its row
_BYTES_A_SECOND = 5e9

# The extra time of a batch if a worker shares its core with the policy, which runs between two batches. The worker
# waits until the policy releases the core, both find cold caches, and the batch has to wait for this worker.
# Measured beside 300 us of Python: 20 to 50 us if two cores are two physical ones, 200 us and more if they are one.
# `benchmarks/auto.py` compares the choices with a policy.
_SHARED_SECONDS = 100e-6
# If envs and the policy take turns in one process, caches get cold. This adds the share `_IN_TURNS` of the envs' own
# time, but at most `_IN_TURNS_SECONDS`.
_IN_TURNS, _IN_TURNS_SECONDS = 0.2, 200e-6
# Workers are chosen over a caller that steps the envs only if they are expected to be this many times as fast.
_WORTH_WORKERS = 1.05


@dataclass(frozen=True)
class WorkerChoice:
    """The choice of num_workers="auto" for a pool. Its `str` is the reason.

    Attributes:
        num_workers: The number of workers that share the envs.
        backend: "process", "thread", or "serial": the caller steps the envs.
        reason: A sentence, with the figures that decided.
    """

    num_workers: int
    backend: Literal["process", "thread", "serial"]
    reason: str

    def __str__(self) -> str:
        return self.reason


def batch_seconds(cost: StepCost, num_envs: int, num_workers: int, cores: int, wake: float = 0.0) -> float:
    """Estimates the seconds in which `num_workers` workers could step `num_envs` envs once.

    `wake`: seconds to wake one worker and be woken by it. The caller is on one of the cores: with as many workers as
    cores, one worker has to share that core.
    """
    envs_per_worker = -(-num_envs // num_workers)
    shared = _SHARED_SECONDS if num_workers >= cores else 0.0
    switches = num_workers * SWITCH_SECONDS if num_workers > cores else 0.0
    in_a_row = envs_per_worker * cost.wall
    on_the_cores = (num_envs * cost.cpu + switches) / cores
    return wake + num_workers * _RING_SECONDS + shared + max(in_a_row, on_the_cores)


def best_num_workers(cost: StepCost, num_envs: int, cores: int, wake: float = WAKE_SECONDS) -> int:
    """Returns the number of workers with the shortest batch; of nearly equal ones the smallest, to save memory."""
    few: Iterable[int] = range(1, min(num_envs, cores) + 1)
    candidates = sorted({*few, *(min(num_envs, n) for n in (2 * cores, 4 * cores, -(-num_envs // 2), num_envs))})
    times = {n: batch_seconds(cost, num_envs, n, cores, wake) for n in candidates}
    fastest = min(times.values())
    return next(n for n in candidates if times[n] <= 1.1 * fastest)


def choose(measured: Measured, num_envs: int, cores: int, wake: float | None = None) -> WorkerChoice:
    """Chooses workers for envs (or vector envs) like the measured one. `wake`: None if the caller may not step envs."""
    if measured.cost is None:
        return one_each(num_envs, "process", f"env 0 cannot be measured ({measured.problem})")
    row = _ROW_SECONDS + measured.obs_bytes / _BYTES_A_SECOND
    cost = StepCost(measured.cost.wall + row, measured.cost.cpu + row)
    best = best_num_workers(cost, num_envs, cores, WAKE_SECONDS if wake is None else wake)
    if wake is not None:
        if num_envs == 1:
            reason = f"stepped by the caller: it is one env, a step of which takes {span(cost.wall)}"
            return WorkerChoice(1, "serial", reason)
        alone, shared = num_envs * cost.wall, batch_seconds(cost, num_envs, best, cores, wake)
        alone += min(_IN_TURNS * alone, _IN_TURNS_SECONDS)
        if alone < _WORTH_WORKERS * shared:
            batch = f"the {num_envs} steps of a batch take {span(alone)}, by {counted(best, 'worker')} {span(shared)}"
            return WorkerChoice(1, "serial", f"stepped by the caller: {batch}, and to wake a worker {span(wake)}")
    reason = f"a step takes {span(cost.wall)}, {span(cost.cpu)} of it CPU, and {counted(cores, 'core')} may be used"
    return WorkerChoice(best, "process", f"{counted(best, 'worker')} for {num_envs} envs: {reason}")


def one_each(num_envs: int, backend: Literal["process", "thread"], why: str) -> WorkerChoice:
    return WorkerChoice(num_envs, backend, f"one worker for each of {num_envs} envs: {why}")


def counted(number: int, noun: str) -> str:
    """Returns a number with its noun, such as "1 core" or "2 cores"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
