"""Reads the progress of each env from shared memory, for reports of faults."""

from __future__ import annotations

from typing import Any

from remuda._engine.options.pool_options import OperationOf
from remuda._engine.running import Running
from remuda._engine.seeds import Seeds
from remuda.errors import EnvProgress


class ProgressTracker:
    """Reads the episode, step, seed and last action of an env when a report needs them."""

    def __init__(
        self,
        running: Running,
        seeds: Seeds,
        rename_operation: OperationOf | None = None,
    ) -> None:
        """`rename_operation`: the pool's option of this name, by which a face renames operations in reports."""
        self._running, self._action = running, running.layout.action
        self._seeds, self._rename_operation = seeds, rename_operation

    def describe(self, env_id: int, operation: str) -> tuple[str, EnvProgress]:
        """Returns the name of an operation for a report, and the progress of the env."""
        where = self._where(env_id)
        return (operation, where) if self._rename_operation is None else self._rename_operation(operation, where)

    def where(self, env_id: int) -> EnvProgress:
        """Returns the progress of an env, as reports show it."""
        return self.describe(env_id, "nothing")[1]

    @property
    def renames(self) -> bool:
        """Whether the option `rename_operation` may rename operations."""
        return self._rename_operation is not None

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
