"""Envs with states that can be saved in different ways. Workers import this module by name."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils import EzPickle
from gymnasium.vector import SyncVectorEnv
from pool_envs import CountingEnv, DiceEnv, HookedEnv, Info, StepResult


class WalkEnv(gymnasium.Env[Any, Any]):
    """A random walk that observes (tag, place, steps), always in the same array. An episode ends beyond 5 or -5."""

    def __init__(self, tag: int = 0) -> None:
        self.observation_space = spaces.Box(-100, 100, (3,), np.int64)
        self.action_space = spaces.Discrete(10)
        self.tag, self.place, self.steps = tag, 0, 0
        self.buffer = np.zeros(3, np.int64)

    def _observe(self) -> Any:
        self.buffer[:] = self.tag, self.place, self.steps
        return self.buffer

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Any, Info]:
        super().reset(seed=seed)
        self.place, self.steps = int(self.np_random.integers(-2, 3)), 0
        return self._observe(), {"start": self.place}

    def step(self, action: Any) -> StepResult:
        self.steps += 1
        self.place += int(self.np_random.integers(-1, 2)) + int(action) % 3 - 1
        return self._observe(), float(self.place), abs(self.place) >= 5, False, {"place": self.place}


class _LockedWalkEnv(WalkEnv):
    """A walk with attributes that cannot be pickled."""

    def __init__(self, tag: int = 0) -> None:
        super().__init__(tag)
        self.lock = threading.Lock()


class SavingWalkEnv(_LockedWalkEnv):
    """Saves its state by methods."""

    def get_state(self) -> Any:
        return {"all": take(self)}

    def set_state(self, state: Any) -> None:
        put(self, state["all"])


class CloningWalkEnv(_LockedWalkEnv):
    """Like ale_py's envs, it clones only the simulator's state."""

    def clone_state(self, include_rng: bool = False) -> Any:
        assert include_rng
        return self.place, self.steps

    def restore_state(self, state: Any) -> None:
        self.place, self.steps = state


class BufferedEnv(CountingEnv):
    """Writes each observation to the same array. `broken`: its steps write to the array and raise."""

    broken = False

    def __init__(self, tag: int = 0, length: int = 1_000_000) -> None:
        super().__init__(tag, length)
        self.buffer = np.zeros(4, np.int64)

    def observe(self) -> Any:
        self.buffer[:] = super().observe()
        return self.buffer

    def spoil(self) -> None:
        self.buffer[:] = -7

    def step(self, action: Any) -> StepResult:
        if self.broken:
            self.spoil()
            raise ValueError("broken")
        return super().step(action)


def shown(env: Any) -> Any:
    """Returns the current observation of a BufferedEnv."""
    return CountingEnv.observe(env.unwrapped)


class BufferedVector(SyncVectorEnv):
    """A vector env that always returns the same array of observations."""

    def __init__(self, tags: Sequence[int]) -> None:
        super().__init__([partial(CountingEnv, tag) for tag in tags], copy=False)

    def spoil(self) -> None:
        self._observations[:] = -7


class SizedEnv(WalkEnv):
    """A WalkEnv with an observation that is padded with zeros to a size."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.observation_space = spaces.Box(-100, 100, (size,), np.int64)
        self.buffer = np.zeros(size, np.int64)

    def _observe(self) -> Any:
        self.buffer[:3] = self.tag, self.place, self.steps
        return self.buffer


class WritingEnv(CountingEnv):
    """An env that holds an open text file."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.log = path.open("w")

    def close(self) -> None:
        self.log.close()


class EzEnv(EzPickle, DiceEnv):
    """An env with pickles that do not contain its state."""

    def __init__(self, tag: int = 0) -> None:
        EzPickle.__init__(self, tag)
        DiceEnv.__init__(self)
        self.inner = Inner(tag)

    def step(self, action: Any) -> StepResult:
        self.inner.count += 1
        obs, reward, terminated, truncated, info = super().step(action)
        return obs, reward + self.inner.count, terminated, truncated, info


class Inner(EzPickle):
    def __init__(self, tag: int) -> None:
        super().__init__(tag)
        self.count = 0


class Recent(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A wrapper that observes the last two observations, and has further references to the inner env."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.core, self.look = env.unwrapped, env.unwrapped._observe
        self.observation_space = spaces.Box(-100, 100, (2, 3), np.int64)
        self.recent: list[Any] = []

    def _note(self, obs: Any) -> Any:
        assert self.core is self.env.unwrapped
        assert (self.look() == obs).all()
        self.recent = [*self.recent[-1:], obs.copy()]
        return np.stack([self.recent[0], self.recent[-1]])

    def reset(self, **arguments: Any) -> Any:
        self.recent = []
        obs, info = self.env.reset(**arguments)
        return self._note(obs), info

    def step(self, action: Any) -> Any:
        obs, *others = self.env.step(action)
        return self._note(obs), *others


def take(env: Any) -> Any:
    core = env.unwrapped
    return core.place, core.steps, core.np_random.bit_generator.state


def put(env: Any, state: Any) -> None:
    core = env.unwrapped
    core.place, core.steps, core.np_random.bit_generator.state = state


def take_counts(env: Any) -> Any:
    return env.steps, env.episodes


class Putting:
    """A function for `state_fns` that calls a hook and then sets the state of a HookedEnv."""

    def __init__(self, hook: Callable[..., Any] = lambda env: None) -> None:
        self.hook = hook

    def __call__(self, env: HookedEnv, state: Any) -> None:
        self.hook(env)
        env.steps, env.episodes = state
