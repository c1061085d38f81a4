"""A part of a pool, or a whole pool: the spaces of its envs, and their rollouts."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from gymnasium import Space
from gymnasium.vector.utils import batch_space

from remuda._engine.commands.arguments import check_rollout
from remuda._engine.commands.partition import Division
from remuda._engine.pool.in_turn import in_turn
from remuda._engine.pool.stateful import Stateful
from remuda._engine.rollouts.columns import ColumnType, Declared, check_columns
from remuda._engine.rollouts.rollout import Rollout
from remuda._error_frames import holds_nothing
from remuda._naming import owns_methods


@owns_methods
class Part(Stateful):
    """A part of a pool: envs that get commands and return results together. `Pool.split` returns parts::

        halves = pool.split(2)
        for half in halves:
            half.send_reset(seed=0)
        while learning:
            for half in halves:  # while the policy acts for one half, the other half's envs step
                batch = half.recv()
                half.send(policy(batch.obs))

    Env ids are those of the pool. A whole pool is a part too. Calls reach the envs of the part.

    Attributes:
        env_ids: (n,) int64, ascending.
        num_envs: n.
        observation_space, action_space: The batched spaces of n envs, built when they are first used.
        single_observation_space, single_action_space: The spaces of one env.
    """

    @property
    def single_observation_space(self) -> Space[Any]:
        """The observation space of one env."""
        return self._engine.layout.observation_space

    @property
    def single_action_space(self) -> Space[Any]:
        """The action space of one env. With `seeding="per_episode"`, a reset of env 0 with a seed seeds it too."""
        return self._engine.action_spaces.single

    @property
    def observation_space(self) -> Space[Any]:
        """The space of `obs` in a batch of all `num_envs` envs: Gymnasium's `batch_space` of the single space."""
        return self._batched_spaces[0]

    @property
    def action_space(self) -> Space[Any]:
        """The space of actions for all `num_envs` envs: `pool.step(pool.action_space.sample())`.

        It is Gymnasium's `batch_space` of the single space. No reset seeds it; its own `seed` does.
        """
        return self._batched_spaces[1]

    @cached_property
    def _batched_spaces(self) -> tuple[Space[Any], Space[Any]]:
        """The batched spaces of observations and actions. Built only once: spaces built again would lose their seed."""
        single = self.single_observation_space, self.single_action_space
        return batch_space(single[0], self.num_envs), batch_space(single[1], self.num_envs)

    @holds_nothing
    def rollout(self, steps: int, columns: Mapping[str, ColumnType] | None = None, parts: int = 1) -> Rollout:
        """Returns a rollout: memory for `steps` steps of all envs, into which workers write the envs' next steps.

        The envs need no reset: the rollout begins with their current observations. Until each env has made its steps,
        all steps go there, even those that other code sends. You may hold several rollouts. The memory of a rollout is
        reused when neither the rollout nor an array of it is held.

        Args:
            steps: The number of steps of each env, from 1 up.
            columns: Your own columns: names, and for each a dtype or (dtype, shape), of one env's entry at one step.
                Other columns are created when `act` first gets them.
            parts: The number of parts. More than 1, only for a whole pool, divides the envs like `Pool.split`, so that
                some step while others act. Then `env_ids` has another order. The pool is whole again when the rollout
                is full, closed or dropped, and after `reset` or `discard` of the pool.

        Returns:
            The rollout, to be iterated over.

        Raises:
            ValueError, TypeError: An argument is invalid; a space has parts without a column, such as texts and graphs;
                or autoreset is "disabled" or "background". Nothing has changed.
            MemoryError: There is not enough memory. Nothing has changed.
            StateError: An env is in flight, must be reset, or was put there by `replace` and not reset since.
            NotImplementedError: This system is not Linux.
            EnvError, WorkerDiedError: An env could not return its observation.
        """
        self._check_rollout(steps, parts)
        declared = check_columns(columns)
        self._check_quiet()
        self._engine.faults.check_reset(self._ids)
        return self._begin_rollout(steps, declared, parts)

    @in_turn
    def _begin_rollout(self, steps: int, columns: Declared, parts: int) -> Rollout:
        return Rollout((self,), steps, columns, Division())

    def _check_rollout(self, steps: int, parts: int) -> None:
        """Checks the arguments of `rollout`, and whether the pool supports rollouts. Raises the errors of `rollout`."""
        self._check_open()
        check_rollout(steps, parts, self._engine.layout)
        if parts > 1 and self._pool is not None:
            raise ValueError(f"expected parts=1 for a part of a pool, got {parts}: only a whole pool can be divided")

    def __repr__(self) -> str:
        return f"<Part of a pool: {self.num_envs} envs>"
