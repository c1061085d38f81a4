"""Envs for the tests of the Stable-Baselines3 face. Workers import this module by name, so it does not import SB3."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from pool_envs import CountingEnv

EnvFns = Sequence[Callable[[], gymnasium.Env[Any, Any]]]


def cartpoles(num_envs: int, **kwargs: Any) -> EnvFns:
    return [lambda: gymnasium.make("CartPole-v1", **kwargs)] * num_envs


class RewardEnv(gymnasium.Env[Any, Any]):
    """Gives the listed rewards in turn. Every second episode ends with both terminated and truncated."""

    def __init__(self, rewards: Sequence[Any]) -> None:
        self.observation_space, self.action_space = spaces.Discrete(100), spaces.Discrete(2)
        self.rewards, self.steps = rewards, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return 0, {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        reward = self.rewards[self.steps]
        self.steps += 1
        return self.steps, reward, self.steps % 4 == 0, self.steps % 2 == 0, {"step": self.steps}


class PlanningEnv(RewardEnv):
    """Steps copies of itself to look ahead."""

    is_copy = False

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        if not self.is_copy:
            ahead = copy.copy(self)
            ahead.is_copy = True
            ahead.step(action)
        return super().step(action)


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


class PictureEnv(gymnasium.Env[Any, Any]):
    """Observes and renders small pictures of one colour."""

    metadata = {"render_modes": ["rgb_array", "human", "ansi"], "render_fps": 12}

    def __init__(self, colour: int = 0, render_mode: str | None = "rgb_array") -> None:
        self.observation_space = spaces.Box(0, 255, (36, 40, 3), np.uint8)
        self.action_space = spaces.Discrete(2)
        self.colour, self.render_mode, self.renders = colour, render_mode, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self._picture(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self._picture(), 1.0, False, False, {}

    def _picture(self) -> np.ndarray:
        return np.full((36, 40, 3), self.colour, np.uint8)

    def render(self) -> Any:
        self.renders += 1
        return self._picture()


class GoalEnv(gymnasium.Env[Any, Any]):
    """Walks along a line to a goal. SB3's hindsight replay calls `compute_reward` for other goals."""

    def __init__(self) -> None:
        line = spaces.Box(-10, 10, (1,), np.float32)
        self.observation_space = spaces.Dict(observation=line, achieved_goal=line, desired_goal=line)
        self.action_space = spaces.Box(-1, 1, (1,), np.float32)

    def _observe(self) -> dict[str, Any]:
        place = np.array([self.place], np.float32)
        return {"observation": place, "achieved_goal": place.copy(), "desired_goal": np.array([self.goal], np.float32)}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place, self.goal, self.steps = 0.0, float(self.np_random.uniform(-3, 3)), 0
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        self.place = float(np.clip(self.place + float(action[0]), -10, 10))
        obs = self._observe()
        reward = float(self.compute_reward(obs["achieved_goal"], obs["desired_goal"], {}))
        return obs, reward, reward == 0, self.steps >= 10, {"is_success": reward == 0}

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        return -(np.linalg.norm(achieved_goal - desired_goal, axis=-1) > 0.3).astype(np.float32)


class HoldsAGenerator(CountingEnv):
    def __init__(self) -> None:
        super().__init__()
        self.generator = (i for i in range(3))
