"""Contenders with TorchRL's ParallelEnv and AsyncEnvPool, which return batches as tensordicts."""

from __future__ import annotations

import functools
import importlib
import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from remuda._bench.contenders import Contender, Plan, pids
from remuda._bench.workloads import EnvFactory

from .remuda_pools import UnevenPlan


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


class TorchRLQueue(Contender):
    """TorchRL's AsyncEnvPool with results in queues. A step receives at least `UnevenPlan.min_envs` results.

    Each env has a process of its own, which also resets the env when its episode ends. Workers are forked by default.
    """

    name = "torchrl-queue"
    module = "torchrl.envs"
    package = "torchrl>=0.14"
    exchange = "queue"
    plan: UnevenPlan

    def __init__(self, plan: UnevenPlan) -> None:
        super().__init__(plan)
        self._torch = importlib.import_module("torch")
        # Without this setting, tensordicts return the indices of envs as a list of tensordicts.
        importlib.import_module("tensordict").set_capture_non_tensor_stack(False).set()
        # The pool cannot seed its envs.
        makers = [functools.partial(_torchrl_env, make, plan.seed + place) for place, make in enumerate(plan.env_fns)]
        with start_method(plan.start_method or "fork"):
            self.envs = self.load().AsyncEnvPool(makers, backend="multiprocessing", exchange=self.exchange)

    def reset(self, seed: int) -> None:
        self._tensors = self.envs.reset()
        self.obs, self._is_sent = self._tensors["observation"].numpy(), False

    def step(self, actions: Any) -> int:
        most = self.plan.num_envs
        if not self._is_sent:
            self._send(actions)
        done, self._tensors = self.envs.async_step_and_maybe_reset_recv(min_get=self.plan.min_envs, max_get=most)
        stepped = done["next"]
        self.obs = self._tensors["observation"].numpy()
        self.ends = [stepped[name].numpy()[:, 0] for name in ("terminated", "truncated")]
        self.rewards = stepped["reward"].numpy()[:, 0]
        self._send(actions)
        return len(self.rewards)

    def _send(self, actions: Any) -> None:
        env_ids = np.asarray(list(self._tensors["env_index"]), np.intp).reshape(-1)
        self._tensors["action"] = self._torch.as_tensor(actions[env_ids])
        self.envs.async_step_and_maybe_reset_send(self._tensors)
        self._is_sent = True

    def close(self) -> None:
        self.envs.close()

    def worker_pids(self) -> list[int]:
        return pids(self.envs.threads)


class TorchRLShm(TorchRLQueue):
    """TorchRL's AsyncEnvPool with results in shared memory."""

    name = "torchrl-shm"
    exchange = "shm"


@contextmanager
def start_method(name: str) -> Iterator[None]:
    """Changes the start method of `multiprocessing`. TorchRL sets "spawn", with which each worker imports PyTorch."""
    before = multiprocessing.get_start_method()
    multiprocessing.set_start_method(name, force=True)
    try:
        yield
    finally:
        multiprocessing.set_start_method(before, force=True)


def _torchrl_env(make_env: EnvFactory, seed: int | None = None) -> Any:
    """Runs in the worker: builds the env, wrapped for TorchRL."""
    env = importlib.import_module(TorchRL.module).GymWrapper(make_env(), categorical_action_encoding=True)
    if seed is not None:
        env.set_seed(seed)
    return env
