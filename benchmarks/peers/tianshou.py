"""Contenders with tianshou, set up as in tianshou's documentation."""

from __future__ import annotations

from typing import Any

import numpy as np

from remuda._bench.contenders import Contender, Plan, pids

from .remuda_pools import UnevenPlan


class Tianshou(Contender):
    """Tianshou's SubprocVectorEnv with shared memory and one process for each env. The caller resets finished envs."""

    name = "tianshou"
    module = "tianshou.env"
    package = "tianshou"

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        make = self.load().SubprocVectorEnv
        self.envs = make(plan.env_fns, share_memory=True, context=plan.start_method, **self.options())

    def options(self) -> dict[str, Any]:
        return {}

    def reset(self, seed: int) -> None:
        self.envs.seed(seed)
        self.obs, _ = self.envs.reset()

    def step(self, actions: Any) -> int:
        self.obs, self.rewards, *self.ends, self.infos = self.envs.step(actions)
        finished = np.flatnonzero(np.logical_or(*self.ends))
        if finished.size:
            self.obs = self.obs.copy()
            self.obs[finished], _ = self.envs.reset(finished)
        return self.plan.num_envs

    def close(self) -> None:
        self.envs.close()

    def worker_pids(self) -> list[int]:
        return pids(worker.process for worker in self.envs.workers)


class TianshouPartial(Tianshou):
    """Tianshou's SubprocVectorEnv with ``wait_num``. The caller waits while finished envs reset."""

    plan: UnevenPlan

    def options(self) -> dict[str, Any]:
        return {"wait_num": self.plan.min_envs}

    def reset(self, seed: int) -> None:
        super().reset(seed)
        self._ready = np.arange(len(self.envs))

    def step(self, actions: Any) -> int:
        ready = self._ready
        self.obs, self.rewards, terminated, truncated, infos = self.envs.step(actions[ready], ready)
        self._ready = np.array([info["env_id"] for info in infos])
        finished = self._ready[terminated | truncated]
        if finished.size:
            self.envs.reset(finished)
        return len(self._ready)
