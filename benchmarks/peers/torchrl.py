"""A contender with TorchRL's ParallelEnv, which returns batches as tensordicts."""

from __future__ import annotations

import functools
import importlib
from typing import Any

import numpy as np

from remuda._bench.contenders import Contender, Plan, pids
from remuda._bench.workloads import EnvFactory


class TorchRL(Contender):
    """TorchRL's ParallelEnv. Its workers are forked by default, because each spawned one imports PyTorch."""

    name = "torchrl"
    module = "torchrl.envs"
    package = "torchrl"

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self._torch = importlib.import_module("torch")
        makers = [functools.partial(_torchrl_env, make_env) for make_env in plan.env_fns]
        start_method = plan.start_method or "fork"
        self.envs = self.load().ParallelEnv(plan.num_envs, makers, mp_start_method=start_method)

    def reset(self, seed: int) -> None:
        self.envs.set_seed(seed)
        self._observe(self.envs.reset())

    def _observe(self, tensors: Any) -> None:
        self._tensors, self.obs = tensors, tensors["observation"].numpy()

    def step(self, actions: Any) -> int:
        self._tensors["action"] = self._torch.as_tensor(np.asarray(actions))
        done, after = self.envs.step_and_maybe_reset(self._tensors)
        stepped = done["next"]
        self._observe(after)
        self.ends = [stepped[name].numpy()[:, 0] for name in ("terminated", "truncated")]
        self.rewards = stepped["reward"].numpy()[:, 0]
        return self.plan.num_envs

    def close(self) -> None:
        self.envs.close()

    def worker_pids(self) -> list[int]:
        return pids(self.envs._workers)


def _torchrl_env(make_env: EnvFactory) -> Any:
    """Runs in the worker: builds the env, wrapped for TorchRL."""
    wrap = importlib.import_module(TorchRL.module).GymWrapper
    return wrap(make_env(), categorical_action_encoding=True)
