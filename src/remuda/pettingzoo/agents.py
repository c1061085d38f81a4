"""Translates between the arrays of a pool of parallel envs and dicts by agent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from remuda import InvalidActionError
from remuda._wording import name_some
from remuda.pettingzoo.agents_env import REWARDS, TERMINATIONS, TRUNCATIONS
from remuda.pettingzoo.groups import Group, Leaves, joined, views, within

ByAgent: TypeAlias = dict[str, Any]
Flags: TypeAlias = "dict[str, npt.NDArray[np.bool_]]"


class Agents:
    """The agents of parallel envs.

    Attributes:
        groups: Their groups.
        names: Their names, in the order of `possible_agents`.
        in_same_step: Whether an env is reset in the step that ends its episode.
    """

    def __init__(self, groups: Sequence[Group], names: Sequence[str], *, in_same_step: bool) -> None:
        self.groups, self.names, self.in_same_step = groups, names, in_same_step
        self.group_of = {agent: group for group in groups for agent in group.agents}
        # The actions of agents that are not there, as leaves of the group's space.
        self.fillers = [group.action.flatten(within(group.action_space)) for group in groups]
        self._places = {agent: place for place, agent in enumerate(names)}

    def joint_actions(
        self, actions: Mapping[str, Any], env_ids: Sequence[int], there: npt.NDArray[np.bool_]
    ) -> dict[str, Any]:
        """Returns actions of envs as a pool expects them. See `ParallelVectorEnv.step`.

        `there`: (n, agents) bool: the agents of these envs whose actions must be given. An action that fits is sent as
        it was given, also for other agents, because only the worker knows surely which agents act.
        """
        if not isinstance(actions, Mapping):
            raise InvalidActionError(f"expected a dict of actions by agent, got {type(actions).__name__}")
        if unknown := actions.keys() - self.group_of.keys():
            raise InvalidActionError(f"expected agents of {list(self.names)}, got {sorted(map(str, unknown))}")
        for agent, rows in zip(self.names, there.T, strict=True):
            if agent not in actions and rows.any():
                where = name_some("env", [env for env, row in zip(env_ids, rows, strict=True) if row])
                raise InvalidActionError(f"expected actions of {agent!r}, which is in {where}, got none")
        joint = {}
        for group, filler in zip(self.groups, self.fillers, strict=True):
            if group.action.num_objects:
                raise InvalidActionError(f"expected action spaces of numbers, got {group.action_space}")
            each = []
            for agent in group.agents:
                if agent in actions:
                    each.append(self._own(agent, actions[agent], filler, there[:, self._places[agent]]))
                else:
                    each.append(([np.broadcast_to(leaf, (len(env_ids), *leaf.shape)) for leaf in filler[0]], ()))
            joint[group.name] = joined(group.action, each, axis=1)
        return joint

    def _own(self, agent: str, given: Any, filler: Any, there: npt.NDArray[np.bool_]) -> Leaves:
        """Returns the leaves of an agent's n actions. Rows of envs where it is not there may have any values."""
        codec, name = self.group_of[agent].action, f"actions[{agent!r}]"
        try:
            return codec.split_batch(given, len(there), name)[0], ()
        except InvalidActionError as refusal:
            if there.all():
                raise
            try:
                placed = _with_rows(codec.build_one(filler[0], ()), given, ~there)
                return codec.split_batch(placed, len(there), name)[0], ()
            except (AttributeError, IndexError, TypeError, ValueError):  # it has another form than actions
                raise refusal from None

    def numbers(self, rows: Any, truncated: Any, before: Any) -> tuple[Any, Any, Any]:
        """Returns the rewards, terminations and truncations of agents, the last axis of each.

        An env that was truncated without a flag of any agent has failed: so the agents that were there are truncated.

        Args:
            rows: (..., 3, agents): the column `NUMBERS`.
            truncated: (...) bool: the truncations of the envs.
            before: (..., agents) bool: the agents that were there before the step.
        """
        flags = rows[..., TERMINATIONS:, :] != 0
        failed = truncated & ~flags.any(axis=(-2, -1))
        flags[..., TRUNCATIONS - TERMINATIONS, :] |= failed[..., None] & before
        return rows[..., REWARDS, :], flags[..., 0, :], flags[..., 1, :]

    def observations(self, joint: Mapping[str, Any], axis: int = 1) -> ByAgent:
        return self._views(joint["agents"], "observation_space", axis)

    def actions(self, joint: Mapping[str, Any], axis: int) -> ByAgent:
        return self._views(joint, "action_space", axis)

    def _views(self, joint: Mapping[str, Any], kind: str, axis: int) -> ByAgent:
        found = ByAgent()
        for group in self.groups:
            found.update(views(getattr(group, kind), group, joint[group.name], axis))
        return {agent: found[agent] for agent in self.names}

    def split_groups(self, arrays: Mapping[str, Any], axis: int) -> ByAgent:
        """Returns arrays, or dicts or tuples of them, by group as views by agent. `axis`: that of the agents."""
        if unknown := arrays.keys() - {group.name for group in self.groups}:
            known = [group.name for group in self.groups]
            raise ValueError(f"expected groups of agents among {known}, got {sorted(map(str, unknown))}")
        found = ByAgent()
        for group in self.groups:
            if group.name in arrays:
                found.update({agent: _along(arrays[group.name], axis, i) for i, agent in enumerate(group.agents)})
        return {agent: found[agent] for agent in self.names if agent in found}

    def by_agent(self, rows: npt.NDArray[Any]) -> dict[str, npt.NDArray[Any]]:
        return {agent: rows[..., i] for i, agent in enumerate(self.names)}


def _along(tree: Any, axis: int, index: int) -> Any:
    if isinstance(tree, Mapping):
        return {key: _along(child, axis, index) for key, child in tree.items()}
    if isinstance(tree, tuple):
        return tuple(_along(child, axis, index) for child in tree)
    place: Any = (*[slice(None)] * axis, index)
    return np.asarray(tree)[place]


def _with_rows(filler: Any, given: Any, rows: npt.NDArray[np.bool_]) -> Any:
    """Returns a copy of some actions with `filler` in these rows."""
    if isinstance(filler, dict):
        return {key: _with_rows(filler[key], own, rows) if key in filler else own for key, own in given.items()}
    if isinstance(filler, tuple):
        return tuple(_with_rows(one, own, rows) for one, own in zip(filler, given, strict=True))
    # Lists become arrays of objects, because the rows that are replaced may have any objects.
    array = np.array(given, given.dtype if isinstance(given, np.ndarray) else object)
    array[rows] = np.reshape(filler, (1,) * (array.ndim - 1)) if filler.ndim == 0 else filler
    return array.tolist() if array.dtype == object else array
