"""Contenders: the libraries that remuda is measured against, each used as its own documentation shows."""

from __future__ import annotations

import functools
import importlib
from typing import Any

import numpy as np
from gymnasium import Space
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import concatenate, create_empty_array, iterate

from remuda._system.cores import usable_cores

from .contenders import Contender, Plan
from .workloads import EnvFactory, touch


class _GymnasiumVector(Contender):
    """Whatever speaks Gymnasium's vector interface."""

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


class GymnasiumAsync(_GymnasiumVector):
    """Gymnasium's AsyncVectorEnv: one process an env, shared memory for observations."""

    name = "gymnasium"
    _envs: AsyncVectorEnv

    def __init__(self, plan: Plan) -> None:
        self.workload = plan.workload
        self._envs = AsyncVectorEnv(plan.env_fns, context=plan.start_method)

    def close(self) -> None:
        self._envs.close(terminate=True)  # an orderly close waits for workers that may have died

    def worker_pids(self) -> list[int]:
        return pids(self._envs.processes)


class GymnasiumSync(_GymnasiumVector):
    """Gymnasium's SyncVectorEnv: all envs in this process."""

    name = "gymnasium-sync"

    def __init__(self, plan: Plan) -> None:
        self.workload = plan.workload
        self._envs = SyncVectorEnv(plan.env_fns)


class Sb3(Contender):
    """Stable-Baselines3's SubprocVecEnv: one process an env, everything through pipes."""

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
        _read_each(infos, self.workload.info_key)
        return rewards

    def close(self) -> None:
        self.forget()
        self._envs.close()

    def prepare(self, space: Space[Any], batch: Any) -> list[Any]:
        return list(iterate(space, batch))

    def worker_pids(self) -> list[int]:
        return pids(self._envs.processes)


class Sb3Dummy(Sb3):
    """Stable-Baselines3's DummyVecEnv: all envs in this process."""

    name = "sb3-dummy"

    def __init__(self, plan: Plan) -> None:
        self.workload = plan.workload
        self._envs = self.load().DummyVecEnv(plan.env_fns)

    def worker_pids(self) -> list[int]:
        return []


class RemudaSb3(Sb3):
    """`remuda.sb3.SubprocVecEnv` with several envs a worker, in the same program."""

    name = "remuda-sb3"

    @classmethod
    def load(cls) -> Any:
        super().load()
        return importlib.import_module("remuda.sb3.subproc_vec_env")

    def _more(self, plan: Plan) -> dict[str, Any]:
        return {"num_workers": plan.num_workers, "backend": plan.backend, "advise": False}

    def prepare(self, space: Space[Any], batch: Any) -> Any:
        return batch if isinstance(batch, np.ndarray) else super().prepare(space, batch)


class RemudaSb3PerEnv(RemudaSb3):
    """`remuda.sb3.SubprocVecEnv` as it is by default: one env a worker."""

    name = "remuda-sb3-per-env"

    def _more(self, plan: Plan) -> dict[str, Any]:
        return {**super()._more(plan), "num_workers": None}


class RemudaSb3Auto(RemudaSb3):
    """The same with as many workers as a measurement says, or none: then the caller steps the envs."""

    name = "remuda-sb3-auto"

    def _more(self, plan: Plan) -> dict[str, Any]:
        return {**super()._more(plan), "num_workers": "auto", "backend": plan.open_backend}


class SuperSuit(Contender):
    """SuperSuit's ProcConcatVec: several envs a worker, shared memory for observations."""

    name = "supersuit"
    module = "supersuit.vector"
    package = "supersuit"

    def __init__(self, plan: Plan) -> None:
        self.workload = plan.workload
        env_fns = [functools.partial(_VectorOfOne, make_env) for make_env in plan.env_fns]
        one = env_fns[0]()
        construct = self.load().MakeCPUAsyncConstructor(plan.num_workers)
        self._envs = construct(env_fns, one.observation_space, one.action_space)
        one.close()

    def reset(self, seed: int) -> None:
        self.obs, _ = self._envs.reset(seed=seed)

    def step(self, actions: Any) -> Any:
        self.obs, rewards, *self.ends, infos = self._envs.step(actions)
        touch(self.obs)
        _read_each(infos, self.workload.info_key)
        return rewards

    def close(self) -> None:
        self._envs.close()

    def worker_pids(self) -> list[int]:
        return pids(getattr(self._envs, "procs", ()))


class _VectorOfOne:
    """An env in the form SuperSuit concatenates: a vector of one env that resets itself."""

    num_envs = 1

    def __init__(self, make_env: EnvFactory) -> None:
        self._env = make_env()
        self.metadata = self._env.metadata
        self.render_mode = self._env.render_mode
        self.observation_space = self._env.observation_space
        self.action_space = self._env.action_space

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, list[Any]]:
        obs, info = self._env.reset(seed=seed, options=options)
        return self._batched(obs), [info]

    def step(self, actions: Any) -> tuple[Any, list[Any], list[bool], list[bool], list[Any]]:
        obs, reward, terminated, truncated, info = self._env.step(actions[0])
        if terminated or truncated:
            obs, _ = self._env.reset()
        return self._batched(obs), [reward], [terminated], [truncated], [info]

    def close(self) -> None:
        self._env.close()

    def _batched(self, obs: Any) -> Any:
        space = self.observation_space
        return concatenate(space, [obs], create_empty_array(space, 1))  # type: ignore[arg-type]


class Tianshou(Contender):
    """Tianshou's SubprocVectorEnv with shared memory: one process an env; the caller resets finished envs."""

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
        _read_each(infos, self.workload.info_key)
        finished = np.flatnonzero(self.dones())
        if finished.size:
            self.obs = self.obs.copy()
            self.obs[finished], _ = self._envs.reset(finished)
        return rewards

    def close(self) -> None:
        self._envs.close()

    def worker_pids(self) -> list[int]:
        return pids(worker.process for worker in self._envs.workers)


class PufferLib(Contender):
    """PufferLib's Multiprocessing: several envs a worker, workers that poll shared flags."""

    name = "pufferlib"
    module = "pufferlib.vector"
    package = "pufferlib-core"

    def __init__(self, plan: Plan) -> None:
        self.workload = plan.workload
        vector = self.load()
        self._envs = vector.make(
            functools.partial(_puffer_env, plan.workload.make_env),
            backend=vector.Multiprocessing,
            num_envs=plan.num_envs,
            num_workers=_puffer_workers(plan, usable_cores()),
            batch_size=plan.num_envs,
            overwork=True,  # it counts physical cores, and refuses a worker for every logical one
        )

    def reset(self, seed: int) -> None:
        self.obs, *_ = self._envs.reset(seed)

    def step(self, actions: Any) -> Any:
        self.obs, rewards, terminated, truncated, infos, *_ = self._envs.step(actions)
        self.ends = terminated, truncated
        _read_each(infos, self.workload.info_key)
        return rewards

    def close(self) -> None:
        """Its own close ends the workers without waiting for that."""
        processes = list(self._envs.processes)
        self._envs.close()
        for process in processes:
            process.join()

    def worker_pids(self) -> list[int]:
        return pids(self._envs.processes)


def _puffer_workers(plan: Plan, cores: int) -> int:
    """Its workers have to share the envs evenly, and its parent polls: left without a core it crawls."""
    most = min(plan.num_workers, max(1, cores - 1))
    return next(count for count in range(most, 0, -1) if plan.num_envs % count == 0)


def _puffer_env(make_env: EnvFactory, **kwargs: Any) -> Any:
    """Runs in the worker: the env in the wrapper that PufferLib's vectorization takes."""
    emulation = importlib.import_module("pufferlib.emulation")
    return emulation.GymnasiumPufferEnv(env_creator=make_env, **kwargs)


def pids(processes: Any) -> list[int]:
    """As `Contender.worker_pids` has it, of objects with a ``pid``: None where the caller steps the envs."""
    return [process.pid for process in processes if process.pid is not None]


def _read_each(infos: Any, info_key: str | None) -> None:
    if info_key is not None:
        for info in infos:
            info.get(info_key)
