"""Contenders that step their own envs in native code, EnvPool and ale_py."""

from __future__ import annotations

import warnings
from typing import Any

from remuda._bench.contenders import Plan
from remuda._bench.peers import GymnasiumVector
from remuda._bench.workloads import Workload


class _Native(GymnasiumVector):
    """A contender that steps its own native version of an env. `Workload.native` has the name of that version."""

    _envs: Any

    @classmethod
    def is_for(cls, workload: Workload) -> bool:
        return cls.name in workload.native

    def send(self, actions: Any) -> None:
        super().send(actions.astype(self._envs.action_space.dtype, copy=False))


class EnvPool(_Native):
    """EnvPool, which steps envs written in C++ in a pool of threads."""

    name = "envpool"
    module = package = "envpool"

    def __init__(self, plan: Plan) -> None:
        self.workload = plan.workload
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # hides warnings that the bounds of EnvPool's spaces lose precision
            self._envs = self.load().make(
                plan.workload.native[self.name],
                env_type="gymnasium",
                num_envs=plan.num_envs,
                num_threads=plan.num_workers,
                seed=plan.seed,
            )
            _ = self._envs.action_space, self._envs.observation_space  # the first access makes the spaces, and warns

    def reset(self, seed: int) -> None:
        self.obs, _ = self._envs.reset()


class AleVector(_Native):
    """The vector env of ale_py, with emulators, frame skip and preprocessing in C++ threads."""

    name = "ale-vector"
    module, package = "ale_py.vector_env", "ale-py"

    def __init__(self, plan: Plan) -> None:
        self.workload = plan.workload
        game = plan.workload.native[self.name]
        self._envs = self.load().AtariVectorEnv(game, plan.num_envs, num_threads=plan.num_workers)
