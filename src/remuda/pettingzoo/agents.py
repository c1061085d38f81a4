"""Translates between the arrays of a pool of parallel envs and dicts by agent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from remuda import InvalidActionError
from remuda._wording import name_some
from remuda.pettingzoo.agents_env import REWARDS, TERMINATIONS, TRUNCATIONS
from remuda.pettingzoo.groups import Group, Space, views, within

ByAgent: TypeAlias = dict[str, Any]
Flags: TypeAlias = "dict[str, npt.NDArray[np.bool_]]"


class Agents:
    """The agents of parallel envs.

    Attributes:
        groups: Their groups.
        names: Their names, in the order of `possible_agents`.
        in_same_step: Whether an env is reset in the step that ends its episode.
        there: (num_envs, agents) bool: which agents act next.
    """

    def __init__(self, groups: Sequence[Group], names: Sequence[str], num_envs: int, *, in_same_step: bool) -> None:
        self.groups, self.names, self.in_same_step = groups, names, in_same_step
        self.group_of = {agent: group for group in groups for agent in group.agents}
        self.fillers = [within(group.action_space) for group in groups]  # actions of agents that are not there
        self.there = np.zeros((num_envs, len(names)), np.bool_)
        self._places = [[names.index(agent) for agent in group.agents] for group in groups]  # in `names`, by group

    def alive(self, shown: npt.NDArray[Any], ended: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Returns which agents act next. `shown`: by the observations; `ended`: the envs whose episode has ended.

        If an env has failed, its row repeats the last observation, of an episode that has ended.
        """
        there: npt.NDArray[np.bool_] = shown.astype(np.bool_)
        return there if self.in_same_step else there & ~ended[..., None]

    def joint_actions(self, actions: Mapping[str, Any], env_ids: Iterable[int] | None = None) -> dict[str, Any]:
        """Returns the actions of some envs as a pool expects them. See `ParallelVectorEnv.step`."""
        ids = list(range(len(self.there))) if env_ids is None else list(env_ids)
        if unknown := actions.keys() - self.group_of.keys():
            raise InvalidActionError(f"expected agents of {list(self.names)}, got {sorted(unknown)}")
        there = self.there[ids]
        for agent, rows in zip(self.names, there.T, strict=True):
            if agent not in actions and rows.any():
                where = name_some("env", [env for env, row in zip(ids, rows, strict=True) if row])
                raise InvalidActionError(f"expected actions of {agent!r}, which is in {where}, got none")
        joined = {}
        for group, filler, places in zip(self.groups, self.fillers, self._places, strict=True):
            absent = ~there[:, places]
            own = [actions.get(agent) for agent in group.agents]
            joined[group.name] = _stacked(group.action_space, own, filler, absent if absent.any() else None, len(ids))
        return joined

    def numbers(self, rewards: Any, truncated: Any, before: Any) -> tuple[Any, Any, Any]:
        """Splits rewards of the envs into rewards, terminations and truncations of agents, the last axis of each.

        An env that was truncated without a flag of any agent has failed: so the agents that were there are truncated.
        """
        rows = rewards.reshape(*rewards.shape[:-1], 3, len(self.names))
        flags = rows[..., TERMINATIONS:, :] != 0
        failed = truncated & ~flags.any(axis=(-2, -1))
        flags[..., TRUNCATIONS - TERMINATIONS, :] |= failed[..., None] & before
        return rows[..., REWARDS, :], flags[..., 0, :], flags[..., 1, :]

    def observations(self, joint: Mapping[str, Any], axis: int = 1) -> ByAgent:
        found = ByAgent()
        for group in self.groups:
            found.update(views(group.observation_space, group, joint["agents"][group.name], axis))
        return {agent: found[agent] for agent in self.names}

    def by_agent(self, rows: npt.NDArray[Any]) -> dict[str, npt.NDArray[Any]]:
        return {agent: rows[..., i] for i, agent in enumerate(self.names)}


def _stacked(space: Space, values: Sequence[Any], filler: Any, absent: Any, n: int) -> Any:
    """Returns n actions of each agent of a group as actions of envs, with `filler` for agents that are not there.

    `values`: by agent; None if the agent is in no env. `absent`: (n, agents) bool; None if all are there.
    """
    if isinstance(space, spaces.Dict):
        given = {key: [None if value is None else value[key] for value in values] for key in space.spaces}
        return {key: _stacked(inner, given[key], filler[key], absent, n) for key, inner in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        each = [[None if value is None else value[i] for value in values] for i in range(len(space.spaces))]
        parts = zip(space.spaces, each, filler, strict=True)
        return tuple(_stacked(inner, own, its_filler, absent, n) for inner, own, its_filler in parts)
    if space.shape is None:
        raise InvalidActionError(f"expected action spaces of numbers, got {space}")
    rows = np.empty((n, len(values), *space.shape), space.dtype)
    for i, value in enumerate(values):
        array = np.asarray(filler if value is None else value)
        if value is not None and array.shape != (n, *space.shape):
            raise InvalidActionError(f"expected {n} actions of {space}, got an array of shape {array.shape}")
        if not np.can_cast(array.dtype, rows.dtype, "same_kind"):
            raise InvalidActionError(f"expected actions of the dtype {rows.dtype}, got {array.dtype}")
        rows[:, i] = array
    if absent is not None:
        rows[absent] = filler
    return rows
