"""Episodes that a fault cut off, in the form that DI-engine's middleware takes.

Its collectors and evaluators make tensors of whole timesteps and pass over none, so what stands for a step that was
never done must look like the others in every part.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from ding.envs import BaseEnvTimestep


class Episodes:
    """What envs have earned in the episodes under way, and what their rewards look like.

    Args:
        reward_space: says what a reward looks like as long as there was none.
    """

    def __init__(self, reward_space: Any) -> None:
        shape = getattr(reward_space, "shape", None)
        self._reward = np.zeros((1,) if shape is None else shape, getattr(reward_space, "dtype", None) or np.float32)
        self._returns: dict[int, float] = {}

    def begin(self, env_id: int) -> None:
        self._returns[env_id] = 0.0

    def add(self, env_id: int, timestep: Any) -> None:
        """Note a timestep of an env."""
        self._reward = timestep.reward
        self._returns[env_id] = 0.0 if timestep.done else self._returns[env_id] + _sum(timestep.reward)

    def stand_in(self, env_id: int, obs: Any, *, done: bool) -> Any:
        """Return a timestep in the place of one that failed.

        Args:
            obs: the last one of the env.
            done: whether the episode ends, truncated, with what it has earned so far. An evaluator must not count it:
                for that it has not happened, and another one begins.
        """
        info: dict[str, Any] = {"abnormal": True}
        if done:
            info |= {"TimeLimit.truncated": True, "eval_episode_return": np.float32(self._returns[env_id])}
        return BaseEnvTimestep(obs, _zeros(self._reward), done, info)


def _sum(reward: Any) -> float:
    if type(reward) is np.ndarray and reward.size == 1:
        return float(reward.item())
    if isinstance(reward, Mapping):
        return sum(map(_sum, reward.values()))
    numbers = np.asarray(reward)
    return float(numbers.sum()) if numbers.dtype.kind in "biuf" else 0.0


def _zeros(reward: Any) -> Any:
    if isinstance(reward, Mapping):
        return {key: _zeros(part) for key, part in reward.items()}
    return np.zeros_like(np.asarray(reward))
