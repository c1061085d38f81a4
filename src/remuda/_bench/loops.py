"""A contender that runs the plain loop in several processes at once, to measure the machine with all cores busy."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from gymnasium.vector.utils import iterate

import remuda
from remuda._system.cores import usable_cores

from .contenders import Plan, Remuda
from .workloads import Env, probe_spaces, sample_actions

_SECONDS = 0.05
"""The duration of a step: so long that its overhead is negligible."""
_ACTIONS = 64


class LoopsAtOnce(Remuda):
    """A plain loop in each of `Plan.loops` processes. If `Plan.loops` is None, there is one process for each core."""

    name = "loops at once"
    counts_steps = True

    def __init__(self, plan: Plan) -> None:
        self.workload = plan.workload
        count = plan.loops or usable_cores()
        actions = sample_actions(probe_spaces(plan.workload).action_space, _ACTIONS, 1, plan.seed)
        self._actions = list(iterate(actions.space, actions.batches[0]))
        self._pool = remuda.Pool([plan.workload.make_env] * count, num_workers=None, advise=False)

    def step(self, actions: Any) -> int:
        return sum(self._pool.apply(_loop, self._actions, _SECONDS))


def _loop(env: Env, actions: Sequence[Any], seconds: float) -> int:
    """Steps an env in its worker, and returns the number of steps. A reset counts as a step, as in the plain loop."""
    steps, end = 0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        for action in actions:
            _, _, terminated, truncated, _ = env.step(action)
            steps += 1
            if terminated or truncated:
                env.reset()
                steps += 1
    return steps
