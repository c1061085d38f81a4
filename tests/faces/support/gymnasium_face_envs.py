"""Envs for the tests of the Gymnasium and Stable-Baselines3 faces. Workers import this module by name."""

from __future__ import annotations

import copy
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces


class SpaceEnv(gymnasium.Env[Any, Any]):
    """Observes seeded samples of a space. Episodes end at random, and infos have values of every kind."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": 7}

    def __init__(self, space: spaces.Space[Any], action_space: spaces.Space[Any] | None = None) -> None:
        # envs in one process would otherwise share the space's random numbers
        self.observation_space = copy.deepcopy(space)
        self.action_space = spaces.Discrete(3) if action_space is None else action_space
        self.render_mode = "rgb_array"
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.steps = 0
        return self.observation_space.sample(), {"seeded": seed is not None, "options": options}

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
