"""Action spaces to draw random actions from, and their seeds."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import Any

from gymnasium import Space

from remuda._seeds import derive_seed


class ActionSpaces:
    """A pool's action spaces.

    Attributes:
        single: As all envs have it: env 0's.
        each: Of each env, by its id.
    """

    def __init__(self, single: Space[Any], each: Iterable[Space[Any]], *, are_separate: bool = False) -> None:
        self.single, self.each, self._are_separate = single, tuple(each), are_separate

    def separate(self) -> ActionSpaces:
        """Copies that can be seeded each by itself.

        Several envs may have reported one and the same object, and where they live in this process it is theirs.
        """
        each = [copy.deepcopy(space) for space in self.each]
        return ActionSpaces(copy.deepcopy(self.single), each, are_separate=True)

    def replace(self, env_id: int, space: Space[Any]) -> None:
        """That env is another one now."""
        own = copy.deepcopy(space) if self._are_separate else space
        self.each = (*self.each[:env_id], own, *self.each[env_id + 1 :])

    def seed(self, env_ids: Sequence[int], seeds: Sequence[int | None]) -> None:
        """Seeds those of these envs that have a seed; with env 0's also the single one."""
        for env_id, seed in zip(env_ids, seeds, strict=True):
            if seed is not None:
                self.each[env_id].seed(derive_seed(seed, env_id))
                if env_id == 0:
                    self.single.seed(derive_seed(seed))
