"""Contenders with DI-engine's env managers, and with remuda's managers of the same names."""

from __future__ import annotations

import functools
import importlib
import threading
from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np

from remuda._bench.contenders import Contender, Plan, Remuda, by_name, pids
from remuda._bench.workloads import EnvFactory

from .remuda_pools import UnevenPlan


class _Manager(Contender):
    """A contender with a manager of DI-engine, which runs each env in its own process."""

    module = "ding.envs"
    package = "DI-engine"
    manager: ClassVar[str]

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        manager = getattr(self.load(), self.manager)
        config = manager.default_config()
        config.context = plan.start_method or config.context
        config.update(self.options())
        self.envs = manager([functools.partial(_DingEnv, make_env) for make_env in plan.env_fns], config)

    def options(self) -> dict[str, Any]:
        return {}

    @property
    def obs(self) -> Any:
        ready = self.envs.ready_obs
        return np.stack([np.asarray(obs) for obs in (ready.values() if isinstance(ready, dict) else ready)])

    def reset(self, seed: int) -> None:
        self.envs.seed(seed)
        self.envs.launch()

    def step(self, actions: Any) -> int:
        """Steps the envs that are ready. Passes arrays, the form in which DI-engine's policies return actions."""
        timesteps = self.envs.step({env_id: np.asarray(actions[env_id]) for env_id in self.envs.ready_obs})
        return self.read(timesteps.values())

    def read(self, timesteps: Iterable[Any]) -> int:
        self.rewards = [timestep.reward for timestep in timesteps]
        self.ends = ([timestep.done for timestep in timesteps],)
        return len(self.rewards)

    def close(self) -> None:
        """Waits until background resets have ended, because closing would break them. Then closes the manager."""
        for thread in threading.enumerate():
            if thread.name == "regular_reset":
                thread.join()
        self.envs.close()
        for process in self.envs._subprocesses.values():
            process.join()

    def worker_pids(self) -> list[int]:
        return pids(self.envs._subprocesses.values())


class DiEngine(_Manager):
    """DI-engine's AsyncSubprocessEnvManager with ``wait_num``, which resets envs in threads.

    The manager gathers results for 10 ms at a time, even if it already has ``wait_num``.
    """

    name = "ding"
    manager = "AsyncSubprocessEnvManager"
    gather_seconds: ClassVar[float | None] = None
    """The seconds for which the manager gathers results. None: its default."""
    plan: UnevenPlan

    def options(self) -> dict[str, Any]:
        gather = {} if self.gather_seconds is None else {"step_wait_timeout": self.gather_seconds}
        return {"wait_num": self.plan.min_envs, **gather}


class DiEnginePrompt(DiEngine):
    """DI-engine's AsyncSubprocessEnvManager with a short wait for results. Even shorter waits gained nothing."""

    name = "ding-prompt"
    gather_seconds = 1e-4


class DiEngineSync(_Manager):
    """DI-engine's SyncSubprocessEnvManager. A step also resets finished envs, so the next step can include all envs."""

    name = "ding-sync"
    manager = "SyncSubprocessEnvManager"

    def options(self) -> dict[str, Any]:
        return {"reset_inplace": True}


class DiEngineV2(DiEngineSync):
    """DI-engine's SubprocessEnvManagerV2, which returns observations and timesteps as treetensors."""

    name = "ding-v2"
    manager = "SubprocessEnvManagerV2"

    def step(self, actions: Any) -> int:
        return self.read(self.envs.step([np.asarray(action) for action in actions]))


PER_ENV: Any = {"num_workers": None}


class _Ours:
    """A mixin that runs a remuda manager, with several envs in each worker."""

    changed: ClassVar[dict[str, Any]] = {}
    """The options that differ from `Remuda.options`."""

    @classmethod
    def load(cls) -> Any:
        importlib.import_module("ding.envs")
        return importlib.import_module("remuda.ding")

    def options(self) -> dict[str, Any]:
        more: dict[str, Any] = super().options()  # type: ignore[misc]  # the next base class has it
        return {**more, "remuda": {**Remuda.options(self), **self.changed}}  # type: ignore[arg-type]

    def close(self) -> None:
        self.envs.close()  # type: ignore[attr-defined]

    def worker_pids(self) -> list[int]:
        return pids(self.envs.workers)  # type: ignore[attr-defined]


class RemudaDing(_Ours, DiEngineSync):
    """`remuda.ding.SyncSubprocessEnvManager` with several envs in each worker."""

    name = "remuda-ding"


class RemudaDingPerEnv(RemudaDing):
    """`remuda.ding.SyncSubprocessEnvManager` with its default, one env in each worker."""

    name = "remuda-ding-1-per-env"
    changed = PER_ENV


class RemudaDingV2(_Ours, DiEngineV2):
    """`remuda.ding.SubprocessEnvManagerV2` with several envs in each worker."""

    name = "remuda-ding-v2"


class RemudaDingV2PerEnv(RemudaDingV2):
    """`remuda.ding.SubprocessEnvManagerV2` with its default, one env in each worker."""

    name = "remuda-ding-v2-1-per-env"
    changed = PER_ENV


CONTENDERS = by_name(DiEngineSync, DiEngineV2, RemudaDing, RemudaDingPerEnv, RemudaDingV2, RemudaDingV2PerEnv)


class _DingEnv:
    """Wraps a Gymnasium env for DI-engine. Its timesteps do not distinguish terminated from truncated."""

    def __init__(self, make_env: EnvFactory) -> None:
        self._env = make_env()
        self._timestep = importlib.import_module(_Manager.module).BaseEnvTimestep
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
