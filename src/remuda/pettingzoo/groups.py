"""Groups of agents with equal spaces. The agents of a group share one array, in which an agent is an index."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.vector.utils import batch_space, create_empty_array, iterate

from remuda._wire.codec import SpaceCodec

Space: TypeAlias = "gymnasium.Space[Any]"
Leaves: TypeAlias = "tuple[Sequence[npt.NDArray[Any]], Sequence[Any]]"


@dataclass(frozen=True)
class Group:
    """Agents with equal spaces.

    Attributes:
        agents: Their names, in the order of `possible_agents`.
        observation_space, action_space: Those of each agent.
    """

    agents: tuple[str, ...]
    observation_space: Space
    action_space: Space

    @property
    def name(self) -> str:
        """The key of the group's arrays: the name of its first agent."""
        return str(self.agents[0])

    @cached_property
    def observation(self) -> SpaceCodec:
        """Checks and splits observations of an agent by the rules of a pool."""
        return SpaceCodec(self.observation_space)

    @cached_property
    def action(self) -> SpaceCodec:
        """Checks and splits actions of an agent by the rules of a pool."""
        return SpaceCodec(self.action_space)


def groups_of(env: Any) -> tuple[Group, ...]:
    """Returns the groups of the agents of a parallel env."""
    found = list[tuple[Space, Space, list[str]]]()
    for agent in env.possible_agents:
        own = env.observation_space(agent), env.action_space(agent)
        agents = next((agents for *known, agents in found if tuple(known) == own), None)
        if agents is None:
            found.append((*own, [agent]))
        else:
            agents.append(agent)
    return tuple(Group(tuple(agents), observed, acted) for observed, acted, agents in found)


def joint_space(groups: Sequence[Group], kind: str) -> spaces.Dict:
    """Returns the space of all agents' observations or actions. `kind`: "observation_space" or "action_space"."""
    return spaces.Dict({group.name: batch_space(getattr(group, kind), len(group.agents)) for group in groups})


def joined(codec: SpaceCodec, each: Sequence[Leaves], axis: int = 0) -> Any:
    """Returns elements of a group's agents as a joint element, in arrays of their own.

    `each`: by agent, the arrays and objects that the codec has made of its element. `axis`: that of the agents.
    """
    arrays = []
    for column, parts in zip(codec.columns, zip(*(leaves for leaves, _ in each), strict=True), strict=True):
        rows = np.empty((*parts[0].shape[:axis], len(each), *column.shape), column.dtype)
        before: tuple[Any, ...] = (slice(None),) * axis
        for i, part in enumerate(parts):
            rows[(*before, i) if axis else i] = part
        arrays.append(rows)
    return codec.build_batch(arrays, [objects for _, objects in each])


def zeros_of(space: Space) -> Any:
    """Returns an element of zeros. It need not lie within the bounds of the space."""
    return next(iter(iterate(batch_space(space, 1), create_empty_array(space, 1, fn=np.zeros))))


def within(space: Space) -> Any:
    """Returns an element of the space, the same each time."""
    copied = deepcopy(space)  # the generator of `space` is the caller's
    copied.seed(0)
    return copied.sample()


def views(space: Space, group: Group, batch: Any, axis: int) -> dict[str, Any]:
    """Returns views of joint elements, by agent. `axis`: that of the agents in the arrays, 0 for one joint element."""
    return {agent: _view(space, batch, (*[slice(None)] * axis, i)) for i, agent in enumerate(group.agents)}


def _view(space: Space, batch: Any, index: tuple[Any, ...]) -> Any:
    if isinstance(batch, np.ndarray):
        return batch[index]
    if isinstance(space, spaces.Dict):
        return {key: _view(inner, batch[key], index) for key, inner in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_view(inner, each, index) for inner, each in zip(space.spaces, batch, strict=True))
    return batch[index[-1]]  # a space of objects: a tuple of them
