"""A parallel env as one Gymnasium env, which a pool can step. It runs in the workers."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from remuda._faces.hosting import HostedEnv
from remuda._wire.requests import reading
from remuda._wording import in_brief
from remuda.errors import InvalidEnvError
from remuda.pettingzoo.groups import Space, groups_of, joined, joint_space, views, zeros_of

REWARDS, TERMINATIONS, TRUNCATIONS = range(3)
"""The rows of the column `NUMBERS`, which is an array (3, agents)."""

NUMBERS = "by_agent"
"""The name of the step column that has the rewards and flags of agents."""

_STEP = "(observations, rewards, terminations, truncations, infos)"
_KEPT_EPISODES = 15  # as many as an env's figures have


class AgentsEnv(HostedEnv, gymnasium.Env[dict[str, Any], dict[str, Any]]):
    """Hosts a parallel env. An agent with a flag is gone. An episode ends when no agent is left.

    An observation has the groups' arrays under "agents", whether each agent is there under "alive", and, if
    `with_state`, the env's `state()` under "state". The reward is the mean over `possible_agents`.

    Attributes:
        env: The parallel env; calls of attributes go to it.
        groups: Its groups of agents.
        numbers: (3, agents) float64: the rewards and flags of the latest step.
        returns: The sums of rewards of the last episodes, each (agents,), the latest last.
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
        blanks = [(group, zeros_of(group.observation_space)) for group in self.groups]
        self._blanks = [group.observation.flatten(blank) for group, blank in blanks]
        self._labels = {agent: f"obs[{agent!r}]" for agent in self._places}  # of observations, in errors
        self._kept = set[str]()  # agents that had a flag, and are still in `env.agents`
        self.numbers = np.zeros((3, len(self._places)))
        self._sums: npt.NDArray[np.float64] = np.zeros(len(self._places))
        self.returns = deque[npt.NDArray[np.float64]](maxlen=_KEPT_EPISODES)

    @property
    def must_agree(self) -> tuple[tuple[str, Any], ...]:
        """What must be equal for all envs of a pool: rows of arrays stand for agents."""
        return ("agents", tuple(self._places)), ("groups of agents", tuple(group.agents for group in self.groups))

    @property
    def np_random(self) -> Any:
        """The generator of the parallel env. From its state an episode is begun again as it began."""
        return self.env.unwrapped.np_random

    @np_random.setter
    def np_random(self, value: np.random.Generator) -> None:
        self.env.unwrapped.np_random = value

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        result = self.env.reset(seed=seed, options=options)
        observations, infos = _parts(result, "reset", "(observations, infos)", 2)
        self._check_names("reset", [observations])
        self._kept.clear()
        self.numbers, self._sums = np.zeros((3, len(self._places))), np.zeros(len(self._places))
        there = self._those_there()
        return self._observe(observations, there, there), _told(infos)

    def step(self, action: dict[str, Any]) -> Any:
        """Steps the agents that are there. The env also receives actions of agents that it keeps after their end."""
        chosen, acted = dict[str, Any](), self._those_there()
        for group in self.groups:
            chosen.update(views(group.action_space, group, action[group.name], axis=0))
        result = self.env.step({agent: chosen[agent] for agent in self.env.agents})
        observations, rewards, terminations, truncations, infos = _parts(result, "step", _STEP, 5)
        self._check_names("step", [observations, rewards, terminations, truncations])
        ended, numbers, n = list[str](), [0.0] * (3 * len(self._places)), len(self._places)
        for agent in acted:
            row = self._places[agent]
            numbers[row] = _number(rewards.get(agent, 0.0), agent)
            numbers[n + row] = terminated = _truth(terminations.get(agent), "termination", agent)
            numbers[2 * n + row] = truncated = _truth(truncations.get(agent), "truncation", agent)
            if terminated or truncated:
                ended.append(agent)
        if ended or self._kept:
            self._kept = {*self._kept, *ended}.intersection(self.env.agents)
        there = self._those_there()
        is_over = not there
        if is_over:
            for agent in set(acted).difference(ended):  # `agents` is empty, without a flag of the agent
                numbers[n + self._places[agent]] = 1.0
        self.numbers = np.array(numbers, np.float64).reshape(3, n)
        self._sums += self.numbers[REWARDS]
        if is_over:
            self.returns.append(self._sums)
        mean, is_truncated = sum(numbers[:n]) / n, is_over and any(numbers[2 * n :])
        observed = self._observe(observations, there, {*acted, *there})
        return observed, mean, is_over and not is_truncated, is_truncated, _told(infos)

    def _those_there(self) -> list[str]:
        """Returns the agents that act next."""
        if unknown := [agent for agent in self.env.agents if agent not in self._places]:
            raise InvalidEnvError(f"expected `agents` to be among {list(self._places)}, got {unknown}")
        return [agent for agent in self.env.agents if agent not in self._kept]

    def _check_names(self, method: str, results: Iterable[Mapping[str, Any]]) -> None:
        for result in results:
            if not self._places.keys() >= result.keys():
                unknown = sorted(map(str, result.keys() - self._places.keys()))
                raise InvalidEnvError(
                    f"expected {method}() to return results of agents of {list(self._places)}, got {unknown}; "
                    "`possible_agents` must name all agents"
                )

    def _observe(self, observations: Mapping[str, Any], there: Iterable[str], shown: Container[str]) -> dict[str, Any]:
        """Returns an observation. `there`: the agents that act next. `shown`: those whose rows are not zeros."""
        if missing := [agent for agent in there if agent not in observations]:
            raise InvalidEnvError(f"expected an observation of each agent in `agents`, got none of {missing}")
        agents = dict[str, Any]()
        for group, blank in zip(self.groups, self._blanks, strict=True):
            split = group.observation.flatten
            given = [agent in shown and agent in observations for agent in group.agents]
            leaves = [
                split(observations[agent], self._labels[agent]) if is_given else blank
                for agent, is_given in zip(group.agents, given, strict=True)
            ]
            agents[group.name] = joined(group.observation, leaves)
        alive = np.zeros(len(self._places), np.int8)
        for agent in there:
            alive[self._places[agent]] = 1
        return {"agents": agents, "alive": alive, **({"state": self.env.state()} if self._has_state else {})}

    def render(self) -> Any:
        return self.env.render()

    def get_wrapper_attr(self, name: str) -> Any:
        return getattr(self.env if hasattr(self.env, name) else self, name)

    def set_wrapper_attr(self, name: str, value: Any, **_: Any) -> bool:
        setattr(self.env, name, value)
        return True


def _parts(result: Any, method: str, expected: str, count: int) -> tuple[Mapping[str, Any], ...]:
    """Returns the dicts by agent that a method of a parallel env has returned."""
    if not isinstance(result, (tuple, list)) or len(result) != count:
        raise InvalidEnvError(f"expected {method}() to return {expected}, got {in_brief(result)}")
    for i, part in enumerate(result):
        if type(part) is not dict and not isinstance(part, Mapping):
            name = expected.strip("()").split(", ")[i]
            raise InvalidEnvError(f"expected the {name} of {method}() to be a dict by agent, got {in_brief(part)}")
    return tuple(result)


def _number(value: Any, agent: str) -> float:
    """Returns a reward as a float. It may be an array of shape (1,), as in a pool."""
    if type(value) is float:
        return value
    try:
        return math.fsum(value if isinstance(value, np.ndarray) and value.shape == (1,) else (value,))
    except (TypeError, ValueError):
        raise InvalidEnvError(f"expected a number as the reward of agent {agent!r}, got {in_brief(value)}") from None


def _truth(value: Any, what: str, agent: str) -> bool:
    """Returns a flag as a bool. An agent without a flag has none."""
    try:
        return bool(value)
    except (TypeError, ValueError):
        raise InvalidEnvError(f"expected a bool as the {what} of agent {agent!r}, got {in_brief(value)}") from None


def _told(infos: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    return {agent: info for agent, info in infos.items() if info}


def build(env_fn: Callable[[], Any], *, with_state: bool) -> AgentsEnv:
    """Builds an env and its host."""
    return AgentsEnv(env_fn(), with_state=with_state)


@reading
def groups_in(hosted: AgentsEnv) -> Any:
    """Returns the groups of a hosted env, and the names of its agents."""
    return hosted.groups, tuple(hosted.env.possible_agents)


def numbers_of(hosted: AgentsEnv) -> npt.NDArray[np.float64]:
    """Returns the values of the column `NUMBERS`."""
    return hosted.numbers


@reading
def returns_of(hosted: AgentsEnv) -> list[npt.NDArray[np.float64]]:
    """Returns the sums of rewards of the agents in the last episodes."""
    return list(hosted.returns)
