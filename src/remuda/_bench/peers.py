"""Contenders: Gymnasium's and Stable-Baselines3's vector envs."""

from __future__ import annotations

from typing import Any

from gymnasium import Space
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import iterate

from .contenders import Contender, Plan
from .workloads import touch


class GymnasiumVector(Contender):
    """A vector env with Gymnasium's interface."""

    module = package = "gymnasium"
    _envs: VectorEnv[Any, Any, Any]

    def reset(self, seed: int) -> None:
        self.obs, _ = self._envs.reset(seed=seed)

    def step(self, actions: Any) -> Any:
        self.obs, rewards, *self.ends, infos = self._envs.step(actions)
        touch(self.obs)
        if self.workload.info_key is not None:
            infos.get(self.workload.info_key)
        return rewards

    def close(self) -> None:
        self.forget()
        self._envs.close()

    def worker_pids(self) -> list[int]:
        return pids(getattr(self._envs, "processes", ()))


class GymnasiumAsync(GymnasiumVector):
    """Gymnasium's AsyncVectorEnv: one process for each env, shared memory for observations."""

    name = "gymnasium"
    _envs: AsyncVectorEnv

    def __init__(self, plan: Plan) -> None:
        self.workload = plan.workload
        self._envs = AsyncVectorEnv(plan.env_fns, context=plan.start_method)

    def close(self) -> None:
        self._envs.close(terminate=True)  # an orderly close would wait for workers that may have died


class GymnasiumSync(GymnasiumVector):
    """Gymnasium's SyncVectorEnv: all envs in this process."""

    name = "gymnasium-sync"

    def __init__(self, plan: Plan) -> None:
        self.workload = plan.workload
        self._envs = SyncVectorEnv(plan.env_fns)


class Sb3(Contender):
    """Stable-Baselines3's SubprocVecEnv: one process for each env, all data through pipes."""

    name = "sb3"
    module = "stable_baselines3.common.vec_env"
    package = "stable-baselines3"

    def __init__(self, plan: Plan) -> None:
        self.workload = plan.workload
        self._envs = self.load().SubprocVecEnv(plan.env_fns, start_method=plan.start_method, **self._more(plan))

    def _more(self, plan: Plan) -> dict[str, Any]:
        return {}

    def reset(self, seed: int) -> None:
        self._envs.seed(seed)
        self.obs = self._envs.reset()

    def step(self, actions: Any) -> Any:
        self.obs, rewards, *self.ends, infos = self._envs.step(actions)
        touch(self.obs)
        read_each(infos, self.workload.info_key)
        return rewards

    def close(self) -> None:
        self.forget()
        self._envs.close()

    def prepare(self, space: Space[Any], batch: Any) -> list[Any]:
        return list(iterate(space, batch))

    def worker_pids(self) -> list[int]:
        return pids(getattr(self._envs, "processes", ()))


class Sb3Dummy(Sb3):
    """Stable-Baselines3's DummyVecEnv: all envs in this process."""

    name = "sb3-dummy"

    def __init__(self, plan: Plan) -> None:
        self.workload = plan.workload
        self._envs = self.load().DummyVecEnv(plan.env_fns)


def pids(processes: Any) -> list[int]:
    """Returns the pids of worker objects. Workers without a ``pid``, such as threads, are omitted."""
    return [process.pid for process in processes if process.pid is not None]


def read_each(infos: Any, info_key: str | None) -> None:
    """Looks up ``info_key`` in each info, as a learner does."""
    if info_key is not None:
        for info in infos:
            info.get(info_key)
