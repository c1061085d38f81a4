"""Contenders that step their own envs in native code, EnvPool and ale_py."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

from remuda._bench.contenders import Gymnasium
from remuda._bench.workloads import Workload


class _Native(Gymnasium):
    """A contender that steps its own native version of an env."""

    names: ClassVar[dict[str, str]]
    """The names of the native envs by those of the workloads."""

    @classmethod
    def is_for(cls, workload: Workload) -> bool:
        """Returns whether the contender has the workload's env."""
        return workload.name in cls.names

    def step(self, actions: Any) -> int:
        return super().step(actions.astype(self.envs.action_space.dtype, copy=False))

    def close(self) -> None:
        self.envs.close()


class EnvPool(_Native):
    """EnvPool, which steps envs written in C++ in a pool of threads."""

    name = "envpool"
    module = package = "envpool"
    names: ClassVar[dict[str, str]] = {
        "CartPole-v1": "CartPole-v1",
        "HalfCheetah-v5": "HalfCheetah-v5",
        "Ant-v5": "Ant-v5",
        "ALE/Pong-v5, preprocessed": "Pong-v5",
    }

    def make(self) -> Any:
        plan = self.plan
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # hides warnings that the bounds of EnvPool's spaces lose precision
            envs = self.load().make(
                self.names[plan.workload.name],
                env_type="gymnasium",
                num_envs=plan.num_envs,
                num_threads=plan.num_workers,
                seed=plan.seed,
            )
            _ = envs.action_space, envs.observation_space  # the first access makes the spaces, and warns
        return envs

    def reset(self, seed: int) -> None:
        self.obs, self.infos = self.envs.reset()


class AleVector(_Native):
    """The vector env of ale_py, with emulators, frame skip and preprocessing in C++ threads."""

    name = "ale-vector"
    module, package = "ale_py.vector_env", "ale-py"
    names: ClassVar[dict[str, str]] = {"ALE/Pong-v5, preprocessed": "pong"}

    def make(self) -> Any:
        game = self.names[self.plan.workload.name]
        return self.load().AtariVectorEnv(game, self.plan.num_envs, num_threads=self.plan.num_workers)
