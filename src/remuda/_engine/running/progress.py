"""Reads from shared memory how far each env has come, for reports of what failed."""

from __future__ import annotations

from typing import Any

from remuda._engine.options.pool_options import OperationOf
from remuda._engine.running.running import Running
from remuda._engine.running.seeds import Seeds
from remuda.errors import EnvProgress


class ProgressTracker:
    """Knows every env's episode, step, seed and last action. It costs nothing until somebody asks."""

    def __init__(
        self,
        running: Running,
        seeds: Seeds,
        operation_of: OperationOf | None = None,
    ) -> None:
        """`operation_of`: knows better, where steps and calls stand for something else."""
        self._running, self._action = running, running.layout.action
        self._seeds, self._operation_of = seeds, operation_of

    def tell(self, env_id: int, operation: str) -> tuple[str, EnvProgress]:
        """What an env is in, by the name that reports have for it, and how far it has come."""
        where = self._where(env_id)
        return (operation, where) if self._operation_of is None else self._operation_of(operation, where)

    def where(self, env_id: int) -> EnvProgress:
        return self.tell(env_id, "nothing")[1]

    @property
    def renames(self) -> bool:
        """Whether a call may stand for something else."""
        return self._operation_of is not None

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
        if self._action.num_objects:  # those are not kept
            return None
        if (slot := self._running.slots.slot_of(env_id)) is None:
            return None  # a spare has forgotten
        row = self._running.slots.action_row(slot)
        columns = self._running.layout.action_columns(self._running.arena)
        return self._action.build_one([column.read(row) for column in columns], [])
