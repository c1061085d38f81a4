"""The turns of a rollout: the observations of the envs that are to act, and `act`."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np

from remuda._engine.commands.batch import Batch
from remuda._engine.commands.engine import Engine
from remuda._engine.rollouts.columns import Columns
from remuda._error_frames import holds_nothing
from remuda._spellings import OtherSpellings
from remuda.errors import StateError


class SteppedEnvs(Protocol):
    """The envs of a rollout, or of a part of it, as `Part` has them."""

    _engine: Engine
    _part: int
    _pool: Any

    @property
    def env_ids(self) -> np.ndarray[Any, np.dtype[np.int64]]: ...
    @property
    def num_envs(self) -> int: ...
    @property
    def pending(self) -> int: ...
    @property
    def _ids(self) -> list[int]: ...
    def send(self, actions: Any, env_ids: Any = None) -> None: ...
    def recv(self, min_envs: int | None = None) -> Batch: ...
    def _receive(self) -> Batch: ...


class Filled(Protocol):
    """A rollout, as its turns see it."""

    extras: dict[str, np.ndarray[Any, Any]]
    columns: dict[str, np.ndarray[Any, Any]]
    _columns: Columns

    def _obs_at(self, rows: Any) -> Any: ...
    def _starts_at(self, rows: Any) -> np.ndarray[Any, np.dtype[np.bool_]]: ...
    def check_turn(self, frames: Any, columns: Any) -> None: ...


class RolloutStep(OtherSpellings):
    """One turn of a rollout: the envs that are to act.

    Attributes:
        obs: (k, ...), or a dict or tuple of such: their observations. A view of the rollout, but in partial batches.
        rows: Where in the rollout they are: an index of its (T, n, ...) arrays, `rollout.columns["value"][step.rows]`.
    """

    def __init__(
        self, rollout: Filled, part: SteppedEnvs, env_ids: np.ndarray[Any, Any] | None, rows: tuple[Any, Any]
    ) -> None:
        """`env_ids`: None for all of the part."""
        # A turn that is left over must not hold a rollout that was dropped: the pool would stay divided.
        self._rollout = weakref.ref(rollout)
        self._part, self._some, self._extras = part, env_ids, rollout.extras
        self.rows, self.obs = rows, rollout._obs_at(rows)
        self._has_acted = False

    @property
    def env_ids(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """(k,) int64: which envs are to act."""
        return self._part.env_ids if self._some is None else self._some

    @property
    def extras(self) -> dict[str, np.ndarray[Any, Any]]:
        """The columns of `PoolOptions.extras` that belong to `obs`, by name: (k, ...)."""
        return {name: column[self.rows] for name, column in self._extras.items()}

    def starts_episodes(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Returns (k,) bool: whether `obs` is the first observation of an episode.

        Raises:
            StateError: The rollout was dropped.
        """
        return self._held()._starts_at(self.rows)

    def _held(self) -> Filled:
        if (rollout := self._rollout()) is None:
            raise StateError("expected a turn of a rollout that is held, got one of a rollout that was dropped")
        return rollout

    @holds_nothing
    def act(self, actions: Any, **columns: Any) -> None:
        """Sends the envs their actions, which lie in the rollout from now on, and returns at once.

        Args:
            actions: As `Pool.send` takes them, one for each of `env_ids`.
            **columns: To be kept beside: an array, or what NumPy makes one of, of k rows each. The first time that one
                comes up it is laid out with its dtype and shape. Where later values need a wider dtype (ints are
                followed by floats), it is replaced by one that has it. What `Pool.rollout` was told keeps its dtype.

        Raises:
            ValueError: A column of another number of rows, or of another shape than before; or values that would change
                in its dtype, but for the precision of floats. Nothing was sent.
            StateError: These envs have acted in this turn; or somebody else has stepped or reset them in it, or made
                another rollout of them, or closed this one.
            Exception: What `Pool.send` raises. Nothing was sent.
        """
        if self._has_acted:
            raise StateError("expected one act() in each turn of a rollout, got another one")
        rollout = self._held()
        rollout.check_turn(*self.rows)
        checked = []
        for name, value in columns.items():  # no comprehension: the frame of one keeps what it refers to
            checked.append((name, *rollout._columns.check(name, value, len(self.env_ids))))
        self._part.send(actions, self._some)
        self._has_acted = True
        for name, column, values in checked:
            column[self.rows] = values
            rollout.columns[name] = column

    def check_acted(self) -> None:
        """Raises StateError unless `act` was called."""
        if not self._has_acted:
            raise StateError(
                "expected step.act(actions) in each turn of a rollout, got a turn without: call close() to end it"
            )


class Turns(Iterator[RolloutStep]):
    """The turns of a rollout, one after another. What they raise does not hold the rollout."""

    def __init__(self, turns: Iterator[RolloutStep]) -> None:
        self._turns = turns

    @holds_nothing
    def __next__(self) -> RolloutStep:
        return next(self._turns)
