"""A parallel env whose agents leave and return, with different spaces, and a serial loop over such envs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

AGENTS = ("a0", "a1", "b0")


class Crowd(ParallelEnv[str, Any, Any]):
    """Agents leave by chance, and a1 returns. Observations and rewards tell what the env has been given.

    `accident`: called with the env and the actions of each step.
    """

    metadata = {"name": "crowd"}
    possible_agents = list(AGENTS)
    state_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)

    def __init__(self, accident: Callable[[Any, Any], None] = lambda *_: None) -> None:
        self.accident, self.agents, self.rng = accident, list[str](), np.random.default_rng(0)
        self.episode, self.time, self.luck = -1, 0, 0

    def observation_space(self, agent: str) -> Any:
        if agent == "b0":
            return spaces.Dict(mask=spaces.MultiBinary(3), place=spaces.Box(-1000, 1000, (1,)))
        return spaces.Box(0, 255, (2, 2), np.uint8)

    def action_space(self, agent: str) -> Any:
        return spaces.Box(1, 2, (1,)) if agent == "b0" else spaces.Discrete(4)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        self.episode, self.time, self.agents = self.episode + 1, 0, list(AGENTS)
        self.luck = int(self.rng.integers(100))
        return self._observations(self.agents), {agent: {} for agent in self.agents}

    def step(self, actions: Any) -> Any:
        assert sorted(actions) == sorted(self.agents)
        assert all(np.shape(action) == self.action_space(agent).shape for agent, action in actions.items())
        self.accident(self, actions)
        self.time += 1
        acted = list(self.agents)
        rewards = {agent: float(np.sum(actions[agent])) + self.luck / 128 for agent in acted}
        draws = {agent: self.rng.random() for agent in acted}
        terminations = {agent: draws[agent] < 0.15 for agent in acted}
        truncations = {agent: 0.1 < draws[agent] < 0.2 or self.time >= 9 for agent in acted}
        self.agents = [agent for agent in acted if not (terminations[agent] or truncations[agent])]
        if self.agents and "a1" not in acted and self.rng.random() < 0.5:
            self.agents = [agent for agent in AGENTS if agent in (*self.agents, "a1")]
        infos = {agent: {"time": self.time, "of": agent} for agent in acted}
        return (
            self._observations([*acted, *(a for a in self.agents if a not in acted)]),
            rewards,
            terminations,
            truncations,
            infos,
        )

    def _observations(self, agents: Any) -> dict[str, Any]:
        number = 100 * self.episode + self.time
        found = dict[str, Any]()
        for agent in agents:
            if agent == "b0":
                found[agent] = {"mask": np.array([1, 0, self.time % 2], np.int8), "place": np.float32([number])}
            else:
                found[agent] = np.full((2, 2), (self.luck + self.time) % 256, np.uint8)
        return found

    def state(self) -> Any:
        return np.array([self.episode, self.time], np.float64)


class TwoAgents(ParallelEnv[str, Any, Any]):
    """A base for small envs. Its agents have equal spaces, and all of them are there after a reset."""

    metadata = {"name": "two agents"}
    possible_agents = ["a", "b"]

    def __init__(self) -> None:
        self.time, self.agents = 0, list[str]()

    def observation_space(self, agent: str) -> Any:
        return spaces.Box(0, 2**20, (1,), np.int64)

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(2**20)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.time, self.agents = 0, list(self.possible_agents)
        return self._observed(), {agent: {} for agent in self.agents}

    def _observed(self) -> dict[str, Any]:
        return {agent: np.array([i]) for i, agent in enumerate(self.agents)}


def fail_in_the_second_step(env: Crowd, _: Any) -> None:
    """An accident in the first episode."""
    if env.time == 1 and env.episode == 0:
        raise ValueError("broken")


class Pair(ParallelEnv[str, Any, Any]):
    """Two agents that act in one single-agent env together. Other attributes are those of that env."""

    metadata = {"name": "pair"}
    possible_agents = ["left", "right"]

    def __init__(self, env_fn: Callable[[], Any]) -> None:
        self.env, self.agents = env_fn(), list[str]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.env, name)

    def observation_space(self, agent: str) -> Any:
        return self.env.observation_space

    def action_space(self, agent: str) -> Any:
        return self.env.action_space

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        observation, info = self.env.reset(seed=seed, options=options)
        self.agents = list(self.possible_agents)
        return self._for_all(observation), self._for_all(info)

    def step(self, actions: Any) -> Any:
        results = self.env.step(actions["left"])
        if results[2] or results[3]:
            self.agents = []
        return tuple(map(self._for_all, results))

    def _for_all(self, value: Any) -> dict[str, Any]:
        return dict.fromkeys(self.possible_agents, value)

    def render(self) -> Any:
        return self.env.render()

    def close(self) -> None:
        self.env.close()


def actions_of(rng: np.random.Generator, num_envs: int) -> dict[str, Any]:
    """Draws actions of all agents in all envs."""
    numbers = rng.integers(0, 4, (2, num_envs))
    return {"a0": numbers[0], "a1": numbers[1], "b0": rng.uniform(1, 2, (num_envs, 1)).astype(np.float32)}
