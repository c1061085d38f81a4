"""Envs with masks of valid actions. Workers import this module by name."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class MaskedEnv(gymnasium.Env[Any, Any]):
    """Walks along a line. Moves off its ends, or onto a field that each reset draws, are invalid."""

    def __init__(self, length: int = 7) -> None:
        self.observation_space = spaces.Box(-1, length, (2,), np.float32)
        self.action_space = spaces.Discrete(4)
        self.length, self.place, self.hole, self.steps, self.mask_calls = length, 0, -1, 0, 0
        self.strict = True

    def _observe(self) -> Any:
        return np.array([self.place, self.hole], np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place, self.steps, self.hole = 0, 0, int(self.np_random.integers(2, self.length - 1))
        return self._observe(), {}

    def action_masks(self) -> Any:
        self.mask_calls += 1
        targets = self.place + np.array([-2, -1, 1, 2])
        return (targets >= 0) & (targets < self.length) & (targets != self.hole)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        target = self.place + (-2, -1, 1, 2)[int(action)]
        if self.strict and not (0 <= target < self.length and target != self.hole):
            raise ValueError(f"no way to {target}")
        self.place, self.steps = target, self.steps + 1
        return self._observe(), float(target), target == self.length - 1, self.steps == 20, {}


def masks_of(env: Any) -> Any:
    return env.action_masks()


class Bare(MaskedEnv):
    """An env without a method for its masks."""

    action_masks = None  # type: ignore[assignment]


def bare_masks(env: Bare) -> Any:
    assert type(env) is Bare
    return MaskedEnv.action_masks(env)
