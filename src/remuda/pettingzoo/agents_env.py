"""A parallel env as one Gymnasium env, which a pool can step. It runs in the workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from remuda.errors import InvalidEnvError
from remuda.pettingzoo.groups import Space, groups_of, joint_space, stacked, views, zeros_of

REWARDS, TERMINATIONS, TRUNCATIONS = range(3)
"""The rows of a reward, which is an array (3, agents) in one vector: so flags of agents belong to the step, too."""


class AgentsEnv(gymnasium.Env[dict[str, Any], dict[str, Any]]):
    """Hosts a parallel env. An episode ends when no agent is left.

    An observation has the group's arrays under "agents", whether each agent is there under "alive", and, if
    `with_state`, the env's `state()` under "state".

    Attributes:
        env: The parallel env; calls of attributes go to it.
        groups: Its groups of agents.
    """

    def __init__(self, env: Any, *, with_state: bool = False) -> None:
        if hasattr(env, "agent_iter"):  # its agents take turns (AEC)
            from pettingzoo.utils.conversions import aec_to_parallel

            env = aec_to_parallel(env)
        if not hasattr(env, "possible_agents"):
            raise InvalidEnvError(f"expected a PettingZoo env, parallel or AEC, got {env!r}")
        self.env, self.groups = env, groups_of(env)
        self.metadata, self.render_mode = getattr(env, "metadata", {}), getattr(env, "render_mode", None)
        self._places = {agent: i for i, agent in enumerate(env.possible_agents)}
        observed: dict[str, Space] = {
            "agents": joint_space(self.groups, "observation_space"),
            "alive": spaces.MultiBinary(len(self._places)),
        }
        self._has_state = with_state
        if with_state:
            state_space = getattr(env, "state_space", None)
            if not isinstance(state_space, gymnasium.Space):
                raise InvalidEnvError(f"expected an env with a `state_space`, for `state=True`, got {env!r}")
            observed["state"] = state_space
        self.observation_space = spaces.Dict(observed)
        self.action_space = joint_space(self.groups, "action_space")
        self.reward_space = spaces.Box(-np.inf, np.inf, (3 * len(self._places),), np.float64)
        self._zeros = [zeros_of(group.observation_space) for group in self.groups]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observations, infos = self.env.reset(seed=seed, options=options)
        return self._observe(observations), _told(infos)

    def step(self, action: dict[str, Any]) -> Any:
        """Steps the agents that are there."""
        chosen = dict[str, Any]()
        for group in self.groups:
            chosen.update(views(group.action_space, group, action[group.name], axis=0))
        observations, *numbers, infos = self.env.step({agent: chosen[agent] for agent in self.env.agents})
        row = np.zeros((3, len(self._places)))
        for kind, of_agents in enumerate(numbers):
            for agent, number in of_agents.items():
                row[kind, self._places[agent]] = number
        is_over = not self.env.agents
        is_truncated = is_over and bool(row[TRUNCATIONS].any())
        observed = self._observe(observations)
        return observed, row.reshape(-1), is_over and not is_truncated, is_truncated, _told(infos)

    def _observe(self, observations: Mapping[str, Any]) -> dict[str, Any]:
        agents = {
            group.name: stacked(group.observation_space, [observations.get(agent) for agent in group.agents], zeros)
            for group, zeros in zip(self.groups, self._zeros, strict=True)
        }
        alive = np.zeros(len(self._places), np.int8)
        alive[[self._places[agent] for agent in self.env.agents]] = 1
        return {"agents": agents, "alive": alive, **({"state": self.env.state()} if self._has_state else {})}

    def render(self) -> Any:
        return self.env.render()

    def close(self) -> None:
        self.env.close()

    def get_wrapper_attr(self, name: str) -> Any:
        return getattr(self.env if hasattr(self.env, name) else self, name)

    def set_wrapper_attr(self, name: str, value: Any, **_: Any) -> bool:
        setattr(self.env, name, value)
        return True


def _told(infos: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    return {agent: info for agent, info in infos.items() if info}


def build(env_fn: Callable[[], Any], *, with_state: bool) -> AgentsEnv:
    """Builds an env and its host."""
    return AgentsEnv(env_fn(), with_state=with_state)


def groups_in(hosted: AgentsEnv) -> Any:
    """Returns the groups of a hosted env, and the names of its agents."""
    return hosted.groups, tuple(hosted.env.possible_agents)
