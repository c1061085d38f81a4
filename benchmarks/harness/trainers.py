"""Contenders that train PPO (ours or SB3's) on another contender's envs. One step is an iteration of training."""

from __future__ import annotations

import time
from typing import Any, ClassVar

import numpy as np

from remuda._bench.contenders import Contender, Plan
from remuda._bench.peers import Sb3
from remuda._bench.workloads import probe_spaces

from . import ppo


class Trainer(Contender):
    """A contender that trains on another contender's envs: a learner collects steps and learns from them, in turn."""

    kind: ClassVar[type[Contender]]
    settings: ClassVar[ppo.Settings]
    counts_steps = True

    def __init__(self, plan: Plan) -> None:
        self.workload, self._plan = plan.workload, plan
        self._envs = self.kind(plan)

    def reset(self, seed: int) -> None:
        """Resets the envs, and makes a new learner."""
        self._envs.reset(seed)
        self._learner = self._make()

    def _make(self) -> Any:
        raise NotImplementedError

    def close(self) -> None:
        self._envs.close()

    def worker_pids(self) -> list[int]:
        return self._envs.worker_pids()


class OwnPpo(Trainer):
    """Trains with our own PPO, `ppo.py`."""

    def _make(self) -> ppo.Ppo:
        return ppo.Ppo(self._envs, self._plan, self.settings)

    def step(self, actions: Any) -> int:
        steps = self._learner.iterate()
        self.learning_seconds = self._learner.learning_seconds
        return int(steps)


class Sb3Ppo(Trainer):
    """Trains with Stable-Baselines3's PPO and the same settings."""

    def _make(self) -> Any:
        from stable_baselines3 import PPO

        settings, spaces = self.settings, probe_spaces(self.workload)
        envs = self._envs._envs if isinstance(self._envs, Sb3) else as_vec_env(self._envs, self._plan)
        model = PPO(
            "CnnPolicy" if len(spaces.observation_space.shape or ()) == 3 else "MlpPolicy",
            envs,
            learning_rate=settings.learning_rate,
            n_steps=settings.num_steps,
            batch_size=max(2, settings.num_steps * self._plan.num_envs // settings.num_minibatches),
            n_epochs=settings.num_epochs,
            clip_range=settings.clip,
            ent_coef=settings.entropy_coefficient,
            seed=self._plan.seed,
            device="cpu",
        )
        learn = model.train

        def timed() -> None:
            begin = time.perf_counter()
            learn()
            self.learning_seconds += time.perf_counter() - begin

        model.train = timed  # type: ignore[method-assign]
        return model

    def step(self, actions: Any) -> int:
        steps = self.settings.num_steps * self._plan.num_envs
        self._learner.learn(steps, reset_num_timesteps=False)
        return steps


def trained(kind: type[Contender], trainer: type[Trainer], settings: ppo.Settings) -> type[Contender]:
    """Returns a trainer class that steps the envs of a contender, under that contender's name."""
    fields = {"name": kind.name, "module": kind.module, "package": kind.package, "load": kind.load}
    return type(f"{trainer.__name__}{kind.__name__}", (trainer,), {**fields, "kind": kind, "settings": settings})


def as_vec_env(envs: Contender, plan: Plan) -> Any:
    """Wraps a contender as a `VecEnv`. Its infos are empty, so SB3 takes a truncated episode for a terminated one."""
    from stable_baselines3.common.vec_env import VecEnv

    class AsVecEnv(VecEnv):
        def __init__(self) -> None:
            spaces = probe_spaces(plan.workload)
            super().__init__(plan.num_envs, spaces.observation_space, spaces.action_space)

        def reset(self) -> Any:
            envs.reset(plan.seed)
            return envs.observations()

        def step_async(self, actions: Any) -> None:
            envs.send(actions)

        def step_wait(self) -> Any:
            rewards = np.asarray(envs.finish(), np.float32).reshape(-1)
            return envs.observations(), rewards, envs.dones(), [{} for _ in range(self.num_envs)]

        def close(self) -> None: ...

        def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
            return [None] * self.num_envs

        def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
            raise NotImplementedError

        def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
            raise NotImplementedError

        def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
            return [False] * self.num_envs

    return AsVecEnv()
