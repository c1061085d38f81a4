"""Envs with vectors as rewards. Workers import this module by name, like `pool_envs`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class TwoGoals(gymnasium.Env[Any, Any]):
    """Has the rewards (step of the episode, minus the action), declared by `reward_space`. An episode has three steps.

    `before_step` is called with the env before each step.
    """

    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float64)
    action_space = spaces.Discrete(5)
    reward_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)

    def __init__(self, before_step: Callable[[Any], Any] = lambda env: None) -> None:
        self.steps, self._before_step = 0, before_step

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(1), {}

    def step(self, action: Any) -> Any:
        self._before_step(self)
        self.steps += 1
        reward: Any = np.array([self.steps, -action], np.float32)
        return np.full(1, float(self.steps)), reward, self.steps == 3, False, {}


class Returning(TwoGoals):
    """Returns `reward` in each step, and declares `reward_space`."""

    def __init__(self, reward: Any, reward_space: Any = None) -> None:
        super().__init__()
        self.reward, self.reward_space = reward, reward_space

    def step(self, action: Any) -> Any:
        obs, _, *rest = super().step(action)
        return obs, self.reward, *rest


class Sum(gymnasium.RewardWrapper[Any, Any]):
    """Adds the numbers of each reward."""

    def reward(self, reward: Any) -> Any:
        return float(np.sum(reward))


class TwoGoalsVector:
    """A vector env of `num_envs` of these envs."""

    metadata: dict[str, Any] = {}
    single_observation_space = TwoGoals.observation_space
    single_action_space = TwoGoals.action_space
    reward_space: Any = TwoGoals.reward_space

    def __init__(self, num_envs: int) -> None:
        self.num_envs, self.steps = num_envs, 0

    def reset(self, **_: Any) -> Any:
        return np.zeros((self.num_envs, 1)), {}

    def step(self, actions: Any) -> Any:
        no = np.zeros(self.num_envs, np.bool_)
        return np.zeros((self.num_envs, 1)), np.stack([actions, -actions], axis=1), no, no, {}

    def close(self) -> None: ...


class NumbersInRows(TwoGoalsVector):
    """Returns rewards of shape (num_envs, 1)."""

    reward_space = None

    def step(self, actions: Any) -> Any:
        obs, rewards, *rest = super().step(actions)
        return obs, rewards[:, :1], *rest
