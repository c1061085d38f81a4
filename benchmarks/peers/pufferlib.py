"""A contender with PufferLib, set up as in PufferLib's documentation."""

from __future__ import annotations

import functools
import importlib
from typing import Any

from remuda._bench.contenders import Contender, Plan, pids
from remuda._bench.workloads import EnvFactory
from remuda._system.cores import usable_cores


class PufferLib(Contender):
    """PufferLib's Multiprocessing, with several envs in each worker. Its workers poll shared flags."""

    name = "pufferlib"
    module = "pufferlib.vector"
    package = "pufferlib-core"

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        vector = self.load()
        self.envs = vector.make(
            functools.partial(_puffer_env, plan.workload.make_env),
            backend=vector.Multiprocessing,
            num_envs=plan.num_envs,
            num_workers=_puffer_workers(plan, usable_cores()),
            batch_size=plan.num_envs,
            overwork=True,  # permits a worker for each logical core, instead of each physical one
        )

    def reset(self, seed: int) -> None:
        self.obs, *_ = self.envs.reset(seed)

    def step(self, actions: Any) -> int:
        self.obs, self.rewards, terminated, truncated, self.infos, *_ = self.envs.step(actions)
        self.ends = terminated, truncated
        return self.plan.num_envs

    def close(self) -> None:
        """Closes the envs and waits for the worker processes, because PufferLib's close does not wait."""
        processes = list(self.envs.processes)
        self.envs.close()
        for process in processes:
            process.join()

    def worker_pids(self) -> list[int]:
        return pids(self.envs.processes)


def _puffer_workers(plan: Plan, cores: int) -> int:
    """Returns the largest number of workers that divides the envs evenly and leaves a core for the polling parent."""
    most = min(plan.num_workers, max(1, cores - 1))
    return next(count for count in range(most, 0, -1) if plan.num_envs % count == 0)


def _puffer_env(make_env: EnvFactory, **kwargs: Any) -> Any:
    """Runs in the worker: builds the env, wrapped for PufferLib's vectorization."""
    emulation = importlib.import_module("pufferlib.emulation")
    return emulation.GymnasiumPufferEnv(env_creator=make_env, **kwargs)
