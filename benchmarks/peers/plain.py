"""Contenders without workers, and a contender that runs the plain loop in several processes at once."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from gymnasium.vector import SyncVectorEnv
from gymnasium.vector.utils import iterate

import remuda
from remuda._bench.contenders import Gymnasium, Plan, Remuda, Sb3
from remuda._bench.workloads import Env, probe_spaces, sample_actions

_SECONDS = 0.05
"""The duration of a step of `IdealLoops`: so long that its overhead is negligible."""
_ACTIONS = 64


class GymnasiumSync(Gymnasium):
    """Gymnasium's SyncVectorEnv: all envs in this process."""

    name = "gymnasium-sync"

    def make(self) -> Any:
        return SyncVectorEnv(self.plan.env_fns)

    def close(self) -> None:
        self.envs.close()


class Sb3Dummy(Sb3):
    """Stable-Baselines3's DummyVecEnv: all envs in this process."""

    name = "sb3-dummy"

    def make(self) -> Any:
        return self.load().DummyVecEnv(self.plan.env_fns)


class IdealLoops(Remuda):
    """A plain loop in each of `Plan.num_workers` processes, to measure the machine with its cores busy."""

    name = "ideal-loops"

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        actions = sample_actions(probe_spaces(plan.workload).action_space, _ACTIONS, 1, plan.seed)
        self._actions = list(iterate(actions.space, actions.batches[0]))
        self.pool = remuda.Pool([plan.workload.make_env] * plan.num_workers, num_workers=None, log_advice=False)

    def step(self, actions: Any) -> int:
        return sum(self.pool.apply(_loop, self._actions, _SECONDS))


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
