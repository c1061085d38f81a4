"""The action spaces from which callers draw random actions, and the seeds of these spaces."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import Any

from gymnasium import Space

from remuda._seeds import derive_seed


class ActionSpaces:
    """The action spaces of a pool.

    Attributes:
        single: The space of env 0. The spaces of other envs may differ from it in their bounds.
        each: The space of each env, by its id.
        are_seeded: Whether resets seed the spaces too. Then they are copies, each of which can be seeded separately:
            several envs may have reported the same object, and envs in this process use that object themselves.
    """

    def __init__(self, single: Space[Any], each: Iterable[Space[Any]], *, are_seeded: bool) -> None:
        self.are_seeded = are_seeded
        self.single, self.each = self.own(single), tuple(map(self.own, each))

    def own(self, space: Space[Any]) -> Space[Any]:
        """Returns the object for the space of an env: a copy if resets seed it."""
        return copy.deepcopy(space) if self.are_seeded else space

    def continue_from(self, other: ActionSpaces) -> None:
        """Takes the spaces of another pool with the same envs, so that their random numbers continue."""
        self.single, self.each = other.single, other.each

    def replace(self, env_id: int, space: Space[Any]) -> None:
        """Sets the space of an env that has replaced another one. `space`: from `own`."""
        self.each = (*self.each[:env_id], space, *self.each[env_id + 1 :])

    def seed(self, env_ids: Sequence[int], seeds: Sequence[int | None]) -> None:
        """Seeds the space of each env that has a seed, from that seed. The seed of env 0 also seeds `single`."""
        for env_id, seed in zip(env_ids, seeds, strict=True):
            if seed is not None:
                self.each[env_id].seed(derive_seed(seed, env_id))
                if env_id == 0:
                    self.single.seed(derive_seed(seed))
