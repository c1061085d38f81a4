"""Contenders with tianshou, set up as in tianshou's documentation."""

from __future__ import annotations

from typing import Any

import numpy as np

from remuda._bench.contenders import Contender, Plan
from remuda._bench.peers import pids, read_each
from remuda._bench.workloads import touch


class Tianshou(Contender):
    """Tianshou's SubprocVectorEnv with shared memory and one process for each env. The caller resets finished envs."""

    name = "tianshou"
    module = "tianshou.env"
    package = "tianshou"

    def __init__(self, plan: Plan) -> None:
        self.workload = plan.workload
        make = self.load().SubprocVectorEnv
        self._envs = make(plan.env_fns, share_memory=True, context=plan.start_method, **self._more(plan))

    def _more(self, plan: Plan) -> dict[str, Any]:
        return {}

    def reset(self, seed: int) -> None:
        self._envs.seed(seed)
        self.obs, _ = self._envs.reset()

    def step(self, actions: Any) -> Any:
        self.obs, rewards, *self.ends, infos = self._envs.step(actions)
        touch(self.obs)
        read_each(infos, self.workload.info_key)
        finished = np.flatnonzero(self.dones())
        if finished.size:
            self.obs = self.obs.copy()
            self.obs[finished], _ = self._envs.reset(finished)
        return rewards

    def close(self) -> None:
        self._envs.close()

    def worker_pids(self) -> list[int]:
        return pids(worker.process for worker in self._envs.workers)


class TianshouPartial(Tianshou):
    """Tianshou's SubprocVectorEnv with ``wait_num``. The caller waits while finished envs reset."""

    def _more(self, plan: Plan) -> dict[str, Any]:
        return {"wait_num": plan.min_envs}

    def reset(self, seed: int) -> None:
        super().reset(seed)
        self._ready = np.arange(len(self._envs))

    def step(self, actions: Any) -> Any:
        ready = self._ready
        obs, rewards, terminated, truncated, infos = self._envs.step(actions[ready], ready)
        touch(obs)
        self._ready = np.array([info["env_id"] for info in infos])
        finished = self._ready[terminated | truncated]
        if finished.size:
            self._envs.reset(finished)
        return rewards
