"""A contender with SuperSuit, set up as in SuperSuit's documentation."""

from __future__ import annotations

import functools
from typing import Any

from gymnasium.vector.utils import concatenate, create_empty_array

from remuda._bench.contenders import Contender, Plan
from remuda._bench.peers import pids, read_each
from remuda._bench.workloads import EnvFactory, touch


class SuperSuit(Contender):
    """SuperSuit's ProcConcatVec, with several envs in each worker and shared memory for observations."""

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
        read_each(infos, self.workload.info_key)
        return rewards

    def close(self) -> None:
        self._envs.close()

    def worker_pids(self) -> list[int]:
        return pids(getattr(self._envs, "procs", ()))


class _VectorOfOne:
    """A vector env that has one env and resets it automatically. SuperSuit's workers step several such vector envs."""

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
