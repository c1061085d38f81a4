"""Contenders that go on with those envs that are done: their step takes `Plan.min_envs` results or more."""

from __future__ import annotations

import functools
import importlib
import threading
from dataclasses import replace
from typing import Any

import numpy as np

from .contenders import Contender, Plan, Remuda
from .peers import Tianshou, pids
from .workloads import EnvFactory, touch


class RemudaPartial(Remuda):
    """`remuda.Pool`, one env a worker: `recv` of at least so many, and `send` to those."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(replace(plan, num_envs=plan.num_envs + plan.spares))  # it counts the spares among its envs
        self._min_envs = plan.min_envs
        self._resets_itself = plan.background_resets

    def _num_workers(self, plan: Plan) -> int | None:
        return None

    def _more(self, plan: Plan) -> dict[str, Any]:
        resets = {"autoreset": "background"} if plan.background_resets else {}
        return resets | ({"spares": plan.spares} if plan.spares else {})

    def begin_turn(self, seed: int) -> None:
        """Resets that ended while nobody looked would leave the envs in step with each other."""
        self._pool.discard()
        self._pool.send_reset(seed=seed)

    def step(self, actions: Any) -> Any:
        batch = self._pool.recv(min_envs=self._min_envs)
        rewards = self._read(batch)
        env_ids = batch.env_ids
        if self._resets_itself:  # who has finished comes back by itself
            env_ids = env_ids[~(batch.terminated | batch.truncated)]
        if env_ids.size:
            self._pool.send(actions[env_ids], env_ids)
        return rewards


class TianshouPartial(Tianshou):
    """Tianshou's SubprocVectorEnv with ``wait_num``. It resets finished envs when told, and waits for them."""

    def _more(self, plan: Plan) -> dict[str, Any]:
        return {"wait_num": plan.min_envs}

    def reset(self, seed: int) -> None:
        super().reset(seed)
        self._ready = np.arange(len(self._envs))

    def step(self, actions: Any) -> Any:
        ready = self._ready
        obs, rewards, terminated, truncated, infos = self._envs.step(actions[ready], ready)
        touch(obs)
        self._ready = np.array([info["env_id"] for info in infos])
        finished = self._ready[terminated | truncated]
        if finished.size:
            self._envs.reset(finished)
        return rewards


class DiEngine(Contender):
    """DI-engine's AsyncSubprocessEnvManager with ``wait_num``: one process an env, resets in threads.

    It gathers results for 10 ms at a time, even if it has as many as it is to wait for.
    """

    name = "ding"
    module = "ding.envs"
    package = "DI-engine"
    gather_seconds: float | None = None
    """None: as by default."""

    def __init__(self, plan: Plan) -> None:
        self.workload = plan.workload
        ding = self.load()
        config = ding.AsyncSubprocessEnvManager.default_config()
        config.wait_num = plan.min_envs or plan.num_envs
        config.context = plan.start_method or config.context
        config.step_wait_timeout = self.gather_seconds or config.step_wait_timeout
        env_fns = [functools.partial(_DingEnv, make_env) for make_env in plan.env_fns]
        self._envs = ding.AsyncSubprocessEnvManager(env_fns, config)

    def reset(self, seed: int) -> None:
        self._envs.seed(seed)
        self._envs.launch()

    def step(self, actions: Any) -> list[Any]:
        ready = self._envs.ready_obs
        touch(ready)
        timesteps = self._envs.step({env_id: actions[env_id] for env_id in ready})
        return [timestep.reward for timestep in timesteps.values()]

    def close(self) -> None:
        """Its own close waits neither for resets in the background, which would fail then, nor for its processes."""
        for thread in threading.enumerate():
            if thread.name == "regular_reset":
                thread.join()
        self._envs.close()
        for process in self._processes():
            process.join()

    def worker_pids(self) -> list[int]:
        return pids(self._processes())

    def _processes(self) -> list[Any]:
        return list(self._envs._subprocesses.values())


class DiEnginePrompt(DiEngine):
    """The same with the shortest wait that gained anything: whoever is done is soon stepped again."""

    name = "ding-prompt"
    gather_seconds = 1e-4


class _DingEnv:
    """An env in the form that DI-engine takes, in which no step tells terminated from truncated."""

    def __init__(self, make_env: EnvFactory) -> None:
        self._env = make_env()
        self._timestep = importlib.import_module(DiEngine.module).BaseEnvTimestep
        self._seed: int | None = None
        self.observation_space = self._env.observation_space
        self.action_space = self._env.action_space
        self.reward_space = None

    def seed(self, seed: int) -> None:
        self._seed = seed

    def reset(self) -> Any:
        seed, self._seed = self._seed, None
        obs, _ = self._env.reset(seed=seed)
        return obs

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = self._env.step(action)
        return self._timestep(obs, reward, terminated or truncated, info)

    def close(self) -> None:
        self._env.close()
