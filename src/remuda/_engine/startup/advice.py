"""How many workers would be best, by measurement."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.vector.utils import batch_space

from remuda._engine.pool.stats import PoolStats

# What an env's step costs more when another process had the core before: its caches are cold. Measured with
# CartPole on two cores: 6 us a step in a row, 23 us of CPU where 64 workers share the cores.
SWITCH_SECONDS = 20e-6

_WORTH_SAYING = 3.0  # times faster


@dataclass(frozen=True)
class StepCost:
    """The mean of one step, alone in a process.

    Attributes:
        wall: Seconds it takes.
        cpu: Seconds of CPU it uses; less than `wall` where it waits (for a simulator, a server, a device).
    """

    wall: float
    cpu: float


def observed_cost(stats: PoolStats, queued_seconds: float, num_workers: int, cores: int) -> StepCost:
    """What a step would cost alone in a process, from what it cost in this pool.

    Args:
        stats: Of a pool that has stepped.
        queued_seconds: Time its workers were ready to run and had no core.
    """
    cpu = stats.cpu_seconds / stats.steps
    blocked = max(0.0, stats.env_seconds - stats.cpu_seconds - queued_seconds) / stats.steps
    if num_workers > cores:  # then every step pays for a switch of processes
        cpu = max(cpu - SWITCH_SECONDS, cpu / 4)
    return StepCost(wall=cpu + blocked, cpu=cpu)


def batch_seconds(cost: StepCost, num_envs: int, num_workers: int, cores: int) -> float:
    """The time in which num_workers could step num_envs once: an estimate, to compare numbers of workers by."""
    envs_per_worker = -(-num_envs // num_workers)
    switching = SWITCH_SECONDS if num_workers > cores else 0.0
    in_a_row = envs_per_worker * cost.wall
    on_the_cores = (num_envs * cost.cpu + num_workers * switching) / cores
    return max(in_a_row, on_the_cores)


def best_num_workers(cost: StepCost, num_envs: int, cores: int) -> int:
    """The number of workers with the shortest batch; of nearly equals the smallest, for it needs least memory."""
    candidates = sorted({min(num_envs, n) for n in (cores, 2 * cores, 4 * cores, -(-num_envs // 2), num_envs)})
    times = {n: batch_seconds(cost, num_envs, n, cores) for n in candidates}
    fastest = min(times.values())
    return next(n for n in candidates if times[n] <= 1.1 * fastest)


def advice(cost: StepCost, num_envs: int, num_workers: int, cores: int, what: str = "envs") -> str | None:
    """What to say to whoever chose num_workers; None unless another number would be several times faster.

    `what`: is stepped, "envs" or "vector envs".
    """
    best = best_num_workers(cost, num_envs, cores)
    now, then = (batch_seconds(cost, num_envs, n, cores) for n in (num_workers, best))
    gain = now / then if then > 0 else 1.0
    if best == num_workers or gain < _WORTH_SAYING:
        return None
    return (
        f"num_workers={best} would step these {num_envs} {what} about {gain:.0f} times faster than "
        f"num_workers={num_workers}: a step takes {1e6 * cost.wall:.0f} us, {1e6 * cost.cpu:.0f} us of it CPU, and "
        f"{cores} cores may be used. (num_workers='auto' picks by measuring; advise=False keeps this quiet.)"
    )


def measure_steps(env: Any, seconds: float = 0.1) -> StepCost:
    """Steps an env for about so long; runs in a worker, on an env made for this alone.

    The class in which a face wraps its envs may have a method `steps_to_measure`, which returns an iterator: each
    `next` does one step in that face's way, and resets whenever that is due. Others are stepped with samples of their
    action space. (The class is asked, since there are envs that answer to any name.)
    """
    steps = env.steps_to_measure() if hasattr(type(env), "steps_to_measure") else _random_steps(env)
    next(steps)  # the first comes with a reset, and with all that is done but once
    count = 0
    wall, cpu = time.perf_counter(), time.thread_time()
    while count < 10 or time.perf_counter() - wall < seconds:
        next(steps)
        count += 1
        if time.perf_counter() - wall > 20 * seconds:  # a very slow env: ten of its steps are too many
            break
    return StepCost((time.perf_counter() - wall) / count, (time.thread_time() - cpu) / count)


def _random_steps(env: Any) -> Iterator[None]:
    is_vector = hasattr(env, "single_action_space")
    actions = batch_space(env.single_action_space, env.num_envs) if is_vector else env.action_space
    actions.seed(0)
    env.reset(seed=0)
    while True:
        *_, terminated, truncated, _ = env.step(actions.sample())
        yield
        if np.any(terminated) or np.any(truncated):
            env.reset()
