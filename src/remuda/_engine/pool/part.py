"""A part of a pool, or a whole one: its envs, their spaces, and rollouts of them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from gymnasium import Space
from gymnasium.vector.utils import batch_space

from remuda._engine.commands.arguments import check_rollout
from remuda._engine.commands.partition import Division
from remuda._engine.pool.naming import owns_methods
from remuda._engine.pool.stateful import Stateful
from remuda._engine.rollouts.columns import ColumnType, Declared, check_columns
from remuda._engine.rollouts.rollout import Rollout
from remuda._error_frames import holds_nothing


@owns_methods
class Part(Stateful):
    """Envs of a pool that are sent and received together, apart from its other parts: what `Pool.split` makes::

        halves = pool.split(2)
        for half in halves:
            half.send_reset(seed=0)
        while learning:
            for half in halves:  # while the policy deals with one half, the other half's envs step
                batch = half.recv()
                half.send(policy(batch.obs))

    Env ids are those of the pool. A whole pool is a part too. Calls reach the envs of the part.

    Attributes:
        env_ids: (n,) int64, ascending.
        num_envs: n.
        observation_space, action_space: Of n envs, batched; they are built when they are first used.
        single_observation_space, single_action_space: Of one env.
    """

    @property
    def single_observation_space(self) -> Space[Any]:
        """The observation space of one env."""
        return self._engine.layout.observation_space

    @property
    def single_action_space(self) -> Space[Any]:
        """The action space of one env. With `seeding="per_episode"` each seed of env 0 seeds it."""
        return self._engine.action_spaces.single

    @property
    def observation_space(self) -> Space[Any]:
        """The space of `obs` in a batch of all `num_envs` envs: Gymnasium's `batch_space` of the single one."""
        return self._batched_spaces[0]

    @property
    def action_space(self) -> Space[Any]:
        """The space of actions for all `num_envs` envs: `pool.step(pool.action_space.sample())`.

        It is Gymnasium's `batch_space` of the single one. No reset seeds it; its own `seed` does.
        """
        return self._batched_spaces[1]

    @cached_property
    def _batched_spaces(self) -> tuple[Space[Any], Space[Any]]:
        """The spaces of all envs. They are built once, since a space keeps its seed."""
        single = self.single_observation_space, self.single_action_space
        return batch_space(single[0], self.num_envs), batch_space(single[1], self.num_envs)

    @holds_nothing
    def rollout(self, steps: int, columns: Mapping[str, ColumnType] | None = None, parts: int = 1) -> Rollout:
        """Reserves memory for so many steps of all envs, and has their steps from now on written there.

        They need not be reset for it: it begins with their current observations. Until each of them has made its steps,
        every step goes there, whoever sends it. Several rollouts may be held at a time; the memory of one that nobody
        holds any more, nor an array of it, is used again.

        Args:
            steps: From 1 up.
            columns: What the caller will keep beside: names, and for each a dtype or (dtype, shape), of one env's entry
                at one step. Others are laid out when they first come up.
            parts: Of a whole pool: divides the envs for the time of the rollout, so that while some act the others
                step, as `Pool.split` does. Then `env_ids` has another order. The pool is whole again when the rollout
                is full, closed or dropped, and after `reset` or `discard` of the pool.

        Returns:
            The rollout, to be iterated over.

        Raises:
            ValueError, TypeError: Bad arguments; a space with parts that have no column, as texts and graphs; or
                autoreset="disabled" or "background". Nothing has changed.
            MemoryError: There is not that much memory. Nothing has changed.
            StateError: An env is in flight, or must be reset; or `replace` has put it there, and it was not reset.
            NotImplementedError: This system is not Linux.
            EnvError, WorkerDiedError: What kept envs from showing their observations.
        """
        self._check_rollout(steps, parts)
        declared = check_columns(columns)
        self._check_quiet()
        self._engine.faults.check_reset(self._ids)
        return self._begin_rollout(steps, declared, parts)

    def _begin_rollout(self, steps: int, columns: Declared, parts: int) -> Rollout:
        return Rollout((self,), steps, columns, Division())

    def _check_rollout(self, steps: int, parts: int) -> None:
        """Raises as `rollout` does for wrong arguments, and for a pool that has no rollouts."""
        self._check_open()
        check_rollout(steps, parts, self._engine.layout)
        if parts > 1 and self._pool is not None:
            raise ValueError(f"expected parts=1 for a part of a pool, got {parts}: only a whole pool can be divided")

    def __repr__(self) -> str:
        return f"<Part of a pool: {self.num_envs} envs>"
