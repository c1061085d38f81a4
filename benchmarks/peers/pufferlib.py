"""Contenders with PufferLib, set up as in PufferLib's documentation."""

from __future__ import annotations

import functools
import importlib
from typing import Any

import numpy as np
from gymnasium.spaces import Box

from remuda._bench.contenders import Contender, Plan, pids
from remuda._bench.workloads import EnvFactory


class PufferLib(Contender):
    """PufferLib's Multiprocessing, with as many workers as remuda. Workers and caller poll shared flags."""

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
            num_workers=self.num_workers(),
            batch_size=plan.num_envs,
            overwork=True,  # permits a worker for each logical core, instead of each physical one
        )
        space = self.envs.action_space
        self._bounds = (space.low, space.high) if isinstance(space, Box) else None

    def num_workers(self) -> int:
        """Returns the largest number of workers, at most as many as remuda has, that divides the envs evenly."""
        return next(count for count in range(self.plan.num_workers, 0, -1) if self.plan.num_envs % count == 0)

    def reset(self, seed: int) -> None:
        self.obs, *_ = self.envs.reset(seed)

    def step(self, actions: Any) -> int:
        """Steps all envs. PufferLib refuses actions outside of the action space, so they are clipped."""
        if self._bounds is not None:
            actions = np.clip(actions, *self._bounds)
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


class PufferLibOne(PufferLib):
    """PufferLib's Multiprocessing with one worker. On two cores this leaves one to the caller, which polls as well."""

    name = "pufferlib-1"

    def num_workers(self) -> int:
        return 1


def _puffer_env(make_env: EnvFactory, **kwargs: Any) -> Any:
    """Runs in the worker: builds the env, wrapped for PufferLib's vectorization."""
    emulation = importlib.import_module("pufferlib.emulation")
    return emulation.GymnasiumPufferEnv(env_creator=make_env, **kwargs)
