"""Contenders that train PPO (ours or SB3's) on another contender's envs. One step is an iteration of training."""

from __future__ import annotations

import time
from typing import Any, ClassVar

import numpy as np

from remuda._bench.contenders import Contender, Plan, Sb3
from remuda._bench.workloads import probe_spaces

from . import ppo
from .parts import Whole, dones


class Trainer(Contender):
    """A contender that trains on another contender's envs: a learner collects steps and learns from them, in turn."""

    kind: ClassVar[type[Contender]]
    settings: ClassVar[ppo.Settings]
    seconds: ClassVar[dict[str, float]]
    """The time of all steps so far ("all"), and the part that was spent on learning ("learning")."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self._envs = self.kind(plan)

    def reset(self, seed: int) -> None:
        """Resets the envs, and makes a new learner."""
        self._envs.reset(seed)
        self._learner = self._make()

    def _make(self) -> Any:
        raise NotImplementedError

    def step(self, actions: Any) -> int:
        begin = time.perf_counter()
        self._iterate()
        self.seconds["all"] += time.perf_counter() - begin
        return self.settings.num_steps * self.plan.num_envs

    def _iterate(self) -> None:
        raise NotImplementedError

    @classmethod
    def learning_share(cls) -> float:
        """Returns the share of the contender's time that was spent on learning. Faster envs do not save this time."""
        return cls.seconds["learning"] / cls.seconds["all"]

    def close(self) -> None:
        self._envs.close()

    def worker_pids(self) -> list[int]:
        return self._envs.worker_pids()


class OwnPpo(Trainer):
    """Trains with our own PPO, `ppo.py`."""

    def _make(self) -> ppo.Ppo:
        return ppo.Ppo(self._envs, self.plan, self.settings)

    def _iterate(self) -> None:
        before = self._learner.learning_seconds
        self._learner.iterate()
        self.seconds["learning"] += self._learner.learning_seconds - before


class Sb3Ppo(Trainer):
    """Trains with Stable-Baselines3's PPO and the same settings."""

    def _make(self) -> Any:
        from stable_baselines3 import PPO

        settings, spaces = self.settings, probe_spaces(self.plan.workload)
        envs = self._envs.envs if isinstance(self._envs, Sb3) else as_vec_env(self._envs, self.plan)
        model = PPO(
            "CnnPolicy" if len(spaces.observation_space.shape or ()) == 3 else "MlpPolicy",
            envs,
            learning_rate=settings.learning_rate,
            n_steps=settings.num_steps,
            batch_size=max(2, settings.num_steps * self.plan.num_envs // settings.num_minibatches),
            n_epochs=settings.num_epochs,
            clip_range=settings.clip,
            ent_coef=settings.entropy_coefficient,
            seed=self.plan.seed,
            device="cpu",
        )
        learn = model.train

        def timed() -> None:
            begin = time.perf_counter()
            learn()
            self.seconds["learning"] += time.perf_counter() - begin

        model.train = timed  # type: ignore[method-assign]
        return model

    def _iterate(self) -> None:
        self._learner.learn(self.settings.num_steps * self.plan.num_envs, reset_num_timesteps=False)


def trained(kind: type[Contender], trainer: type[Trainer], settings: ppo.Settings) -> type[Trainer]:
    """Returns a trainer class that steps the envs of a contender, under that contender's name."""
    fields = {"name": kind.name, "module": kind.module, "package": kind.package, "load": kind.load}
    seconds = {"all": 0.0, "learning": 0.0}
    more = {"kind": kind, "settings": settings, "seconds": seconds}
    return type(f"{trainer.__name__}{kind.__name__}", (trainer,), {**fields, **more})


def as_vec_env(envs: Contender, plan: Plan) -> Any:
    """Wraps a contender as a `VecEnv`. Its infos are empty, so SB3 takes a truncated episode for a terminated one."""
    from stable_baselines3.common.vec_env import VecEnv

    whole = Whole(envs)

    class AsVecEnv(VecEnv):
        def __init__(self) -> None:
            spaces = probe_spaces(plan.workload)
            super().__init__(plan.num_envs, spaces.observation_space, spaces.action_space)

        def reset(self) -> Any:
            envs.reset(plan.seed)
            return envs.obs

        def step_async(self, actions: Any) -> None:
            whole.send(actions)

        def step_wait(self) -> Any:
            whole.finish()
            rewards = np.asarray(envs.rewards, np.float32).reshape(-1)
            return envs.obs, rewards, dones(whole), [{} for _ in range(self.num_envs)]

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
