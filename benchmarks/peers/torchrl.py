"""Contenders with TorchRL's vector envs, which return batches as tensordicts."""

from __future__ import annotations

import functools
import importlib
from typing import Any

import numpy as np

from remuda._bench.contenders import Contender, Plan
from remuda._bench.peers import pids
from remuda._bench.workloads import EnvFactory, touch


class _TorchRL(Contender):
    """A contender with a vector env of TorchRL, which runs each env in its own process."""

    module = "torchrl.envs"
    package = "torchrl"

    def __init__(self, plan: Plan) -> None:
        self.workload = plan.workload
        self._torch = importlib.import_module("torch")
        makers = [functools.partial(_torchrl_env, make_env) for make_env in plan.env_fns]
        self._envs = self._make(plan, makers)

    def _make(self, plan: Plan, makers: list[Any]) -> Any:
        raise NotImplementedError

    def reset(self, seed: int) -> None:
        self._envs.set_seed(seed)
        self._observe(self._envs.reset())

    def _observe(self, tensors: Any) -> None:
        self._tensors, self.obs = tensors, tensors["observation"].numpy()

    def step(self, actions: Any) -> Any:
        self._tensors["action"] = self._torch.as_tensor(np.asarray(actions))
        done, after = self._exchange(self._tensors)
        stepped = done["next"]
        self._observe(after)
        touch(self.obs)
        self.ends = [stepped[name].numpy()[:, 0] for name in ("terminated", "truncated")]
        return stepped["reward"].numpy()[:, 0]

    def _exchange(self, tensors: Any) -> tuple[Any, Any]:
        """Makes a step. Returns the results, and the tensors to pass to the next step."""
        raise NotImplementedError


class TorchRLParallel(_TorchRL):
    """TorchRL's ParallelEnv. Its workers are forked by default, because each spawned one imports PyTorch."""

    name = "torchrl"

    def _make(self, plan: Plan, makers: list[Any]) -> Any:
        return self.load().ParallelEnv(plan.num_envs, makers, mp_start_method=plan.start_method or "fork")

    def _exchange(self, tensors: Any) -> tuple[Any, Any]:
        done, after = self._envs.step_and_maybe_reset(tensors)
        return done, after

    def close(self) -> None:
        self._envs.close()

    def worker_pids(self) -> list[int]:
        return pids(self._envs._workers)


class TorchRLAsync(_TorchRL):
    """TorchRL's AsyncEnvPool, with processes and queues. A step waits for `Plan.min_envs` envs, or for all."""

    name = "torchrl-async"

    def _make(self, plan: Plan, makers: list[Any]) -> Any:
        self._min_envs, self._num_envs = plan.min_envs or plan.num_envs, plan.num_envs
        self._is_sent = False
        return self.load().AsyncEnvPool(makers, backend="multiprocessing", exchange="queue")  # TorchRL's default

    def reset(self, seed: int) -> None:
        """Resets all envs and ignores the seed, because AsyncEnvPool cannot seed its envs."""
        self._observe(self._envs.reset())
        self._is_sent = False

    def _exchange(self, tensors: Any) -> tuple[Any, Any]:
        self._envs.async_step_and_maybe_reset_send(tensors)
        done, after = self._envs.async_step_and_maybe_reset_recv(min_get=self._min_envs)
        if self._min_envs < self._num_envs:
            return done, after
        order = np.argsort(done["env_index"]).tolist()  # results arrive in the order of completion
        return done[order], after[order]

    def step(self, actions: Any) -> Any:
        """Sends actions for as many envs as the last step returned. The other envs are still stepping."""
        return super().step(np.asarray(actions)[: len(self.obs)])

    def close(self) -> None:
        self._envs.shutdown()

    def worker_pids(self) -> list[int]:
        return pids(self._envs.threads)


def _torchrl_env(make_env: EnvFactory) -> Any:
    """Runs in the worker: builds the env, wrapped for TorchRL."""
    wrap = importlib.import_module(_TorchRL.module).GymWrapper
    return wrap(make_env(), categorical_action_encoding=True)
