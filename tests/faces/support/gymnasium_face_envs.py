"""Envs for the tests of the Gymnasium and Stable-Baselines3 faces. Workers import this module by name, so it
does not import Stable-Baselines3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces
from pool_envs import HookedEnv, SampleEnv

EnvFns = Sequence[Callable[[], gymnasium.Env[Any, Any]]]


class SpaceEnv(SampleEnv):
    """Observes seeded samples of a space. Episodes end at random, and infos have values of every kind."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": 7}
    render_mode = "rgb_array"

    def __init__(self, space: spaces.Space[Any], action_space: spaces.Space[Any] | None = None) -> None:
        super().__init__(space, spaces.Discrete(3) if action_space is None else action_space)
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        obs, _ = super().reset(seed=seed)
        self.steps = 0
        return obs, {"seeded": seed is not None, "options": options}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        chance = self.np_random.random()
        info = {
            "steps": self.steps,
            "chance": chance,
            "small": np.float32(chance),
            "vector": np.arange(3) * self.steps,
            "nested": {"even": self.steps % 2 == 0, "word": "x" * self.steps},
        }
        if chance < 0.5:
            info["sometimes"] = self.steps
        return self.observation_space.sample(), chance * 3, chance < 0.1, 0.1 <= chance < 0.2, info

    def render(self) -> np.ndarray:
        return np.full((2, 2, 3), self.steps, dtype=np.uint8)


class TimelessEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Replaces the duration in the statistics of an episode, which differs between runs."""

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        *result, info = super().step(action)
        if "episode" in info:
            info["episode"]["t"] = 0.5
        return *result, info  # type: ignore[return-value]


def cartpoles(num_envs: int, **kwargs: Any) -> EnvFns:
    return [lambda: gymnasium.make("CartPole-v1", **kwargs)] * num_envs


def rewarding(rewards: Sequence[Any]) -> Callable[[], HookedEnv]:
    """Returns a factory of envs with these rewards. Every second episode ends with both terminated and truncated."""

    def step(env: Any, _: Any) -> Any:
        n = env.total_steps
        return env.observe(), rewards[n - 1], n % 4 == 0, n % 2 == 0, {"step": n}

    return lambda: HookedEnv(step=step)


class ResetInfoEnv(gymnasium.Env[Any, Any]):
    """Reports its action, seed and options in its infos. Its episodes have two steps."""

    def __init__(self, action_space: spaces.Space[Any] | None = None) -> None:
        self.observation_space = spaces.Box(-1, 1, (1,), np.float64)
        self.action_space = spaces.Discrete(3) if action_space is None else action_space
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(1), {"seed": seed, "options": options}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return np.zeros(1), 0.0, False, self.steps == 2, {"action": action}
