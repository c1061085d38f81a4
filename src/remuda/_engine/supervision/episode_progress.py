"""Reads the progress of each env from shared memory, for reports of faults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from remuda._engine.running import Running
from remuda._engine.seeds import Seeds
from remuda.errors import EnvProgress


class ProgressTracker:
    """Reads the episode, step, seed and last action of an env when a report needs them.

    Attributes:
        rename: Replaces the operation and the progress in reports. A face sets it if it runs other operations as steps
            or calls of the pool.
    """

    def __init__(self, running: Running, seeds: Seeds) -> None:
        self._running, self._seeds, self._action = running, seeds, running.layout.action
        self.rename: Callable[[str, EnvProgress], tuple[str, EnvProgress]] | None = None

    def describe(self, env_id: int, operation: str) -> tuple[str, EnvProgress]:
        """Returns the name of an operation for a report, and the progress of the env."""
        where = self._where(env_id)
        return (operation, where) if self.rename is None else self.rename(operation, where)

    def where(self, env_id: int) -> EnvProgress:
        """Returns the progress of an env, as reports show it."""
        return self.describe(env_id, "nothing")[1]

    def _where(self, env_id: int) -> EnvProgress:
        resets, steps = self._running.slots.progress(env_id)
        seed, resets_since_seed = self._seeds.latest(env_id, self._running.slots.seeded(env_id))
        return EnvProgress(
            env_id=env_id,
            episode=resets - 1 if resets else None,
            step=steps,
            seed=seed,
            resets_since_seed=resets_since_seed,
            action=self._last_action(env_id) if steps else None,
        )

    def _last_action(self, env_id: int) -> Any:
        if self._action.num_objects:  # an action is not kept if a value in it has no column
            return None
        if (slot := self._running.slots.slot_of(env_id)) is None:
            return None  # the action of a spare is not kept
        row = self._running.slots.action_row(slot)
        columns = self._running.layout.action_columns(self._running.arena)
        return self._action.build_one([column.read(row) for column in columns], [])
