"""Envs for the tests of rollouts, and helpers for them. Workers import this module by name, like `pool_envs`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces
from pool_envs import CountingEnv, EnvFn

if TYPE_CHECKING:
    from remuda import Rollout


def ending(lengths: Sequence[int]) -> list[EnvFn]:
    """Returns factories of CountingEnvs with these episode lengths."""
    return [(lambda tag=i, length=length: CountingEnv(tag, length)) for i, length in enumerate(lengths)]  # type: ignore[misc]


class NumberInfoEnv(CountingEnv):
    """An env with numbers in its infos, and a text at the end of an episode."""

    def __init__(self) -> None:
        super().__init__(length=5)

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, _ = super().step(action)
        info: dict[str, Any] = {"last": float(action)}
        if self.steps % 2 == 0:
            info["even"] = {"steps": self.steps, "pair": np.array([1.0, action])}
        if terminated:
            info["word"] = "end"
        return obs, reward, terminated, truncated, info


class ImageEnv(CountingEnv):
    """Observes a picture filled with the number of steps."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Box(0, 255, (64, 64, 3), np.uint8)

    def observe(self) -> Any:
        return np.full((64, 64, 3), self.steps % 256, np.uint8)


class CutOffEnv(CountingEnv):
    """Truncates its episodes after `steps` steps."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.most = steps

    def step(self, action: Any) -> Any:
        obs, reward, terminated, _, info = super().step(action)
        return obs, reward, terminated, self.steps == self.most, info


class FailingEnv(CountingEnv):
    """Raises at action 4."""

    def step(self, action: Any) -> Any:
        if action == 4:
            raise RuntimeError("four")
        return super().step(action)


def fill(rollout: Rollout, action: int = 1) -> Rollout:
    for step in rollout:
        step.act(np.full(len(step.env_ids), action))
    return rollout
