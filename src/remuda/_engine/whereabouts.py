"""How far each env has come: what a report says about the moment when it failed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from remuda import _core
from remuda._backends.layout import Layout
from remuda.errors import Whereabouts


class Tracker:
    """Knows every env's episode, step, seed and last action. It costs nothing until somebody asks."""

    def __init__(self, hub: _core.Hub, layout: Layout, arena: _core.Arena) -> None:
        self._hub, self._action = hub, layout.action
        self._actions = layout.action_columns(arena)
        self._seeds: dict[int, tuple[int, int]] = {}  # by env: the seed, and the number of the reset that had it

    def next_resets(self, env_ids: Sequence[int]) -> list[int]:
        """The number that the next reset of each of these will have."""
        return [self._hub.progress(env_id)[0] + 1 for env_id in env_ids]

    def note_seeds(self, env_ids: Sequence[int], seeds: Sequence[int | None], resets: Sequence[int]) -> None:
        """They were told to reset with these, and those resets have these numbers."""
        noted = zip(env_ids, seeds, resets, strict=True)
        self._seeds.update({env_id: (seed, number) for env_id, seed, number in noted if seed is not None})

    def where(self, env_id: int) -> Whereabouts:
        resets, steps = self._hub.progress(env_id)
        seed, at = self._seeds.get(env_id, (None, resets))
        return Whereabouts(
            env_id=env_id,
            episode=resets - 1 if resets else None,
            step=steps,
            seed=seed,
            resets_since_seed=max(0, resets - at),
            action=self._last_action(env_id) if steps else None,
        )

    def _last_action(self, env_id: int) -> Any:
        if self._action.num_objects:  # those are not kept
            return None
        if (slot := self._hub.slot_of(env_id)) is None:
            return None  # a spare has forgotten
        row = self._hub.action_row(slot)
        return self._action.build_one([column.read(row) for column in self._actions], [])

    def release(self) -> None:
        """Lets go of the shared memory."""
        self._actions = []
        del self._hub
