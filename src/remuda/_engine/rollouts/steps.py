"""The turns of a rollout. A turn has the observations of envs, and sends them actions by `act`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np

from remuda._engine.batches.batch import Batch
from remuda._engine.commands.engine import Engine
from remuda._engine.rollouts.columns import Columns
from remuda._error_frames import holds_nothing
from remuda.errors import StateError


class SteppedEnvs(Protocol):
    """The members of `Part` that rollouts use to step the envs of a part."""

    _engine: Engine
    _part: int

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
    """The members of a rollout that its turns use."""

    extras: dict[str, np.ndarray[Any, Any]]
    columns: dict[str, np.ndarray[Any, Any]]
    _columns: Columns

    def _obs_at(self, rows: Any) -> Any: ...
    def _starts_at(self, rows: Any) -> np.ndarray[Any, np.dtype[np.bool_]]: ...
    def check_turn(self, frames: Any, columns: Any) -> None: ...


class RolloutStep:
    """One turn of a rollout, for the envs that act next.

    Attributes:
        obs: (k, ...), or a dict or tuple of such: their observations. A view of the rollout, except in `partial`.
        rows: Their place in the rollout: an index of its (T, n, ...) arrays, `rollout.columns["value"][step.rows]`.
    """

    def __init__(
        self, rollout: Filled, part: SteppedEnvs, env_ids: np.ndarray[Any, Any] | None, rows: tuple[Any, Any]
    ) -> None:
        """`env_ids`: the envs of this turn; None for all envs of the part."""
        self._rollout, self._part, self._some = rollout, part, env_ids
        self.rows, self.obs = rows, rollout._obs_at(rows)
        self._has_acted = False

    @property
    def env_ids(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """(k,) int64: the envs that act next."""
        return self._part.env_ids if self._some is None else self._some

    @property
    def extras(self) -> dict[str, np.ndarray[Any, Any]]:
        """The columns of `PoolOptions.extras` that belong to `obs`, by name: (k, ...)."""
        return {name: column[self.rows] for name, column in self._rollout.extras.items()}

    def starts_episodes(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Returns (k,) bool: whether `obs` is the first observation of an episode."""
        return self._rollout._starts_at(self.rows)

    @holds_nothing
    def act(self, actions: Any, **columns: Any) -> None:
        """Sends the envs their actions, which the rollout keeps, and returns at once.

        Args:
            actions: One for each of `env_ids`; see `Pool.send`.
            **columns: Values to keep with the step: for each column k rows, as an array or an object that NumPy
                converts. A new column gets the dtype and shape of its first values. If later values need a wider dtype
                (floats after ints), a wider array replaces the column. A column that was declared in `Pool.rollout`
                keeps its dtype.

        Raises:
            ValueError: A column has another number of rows, or another shape than before; or its dtype would change
                values by more than the precision of floats. Nothing was sent.
            StateError: These envs have already acted in this turn; or other code has stepped or reset them in it, begun
                another rollout of them, or closed this one.
            Exception: Any error of `Pool.send`. Nothing was sent.
        """
        if self._has_acted:
            raise StateError("expected one act() in each turn of a rollout, got another one")
        rollout = self._rollout
        rollout.check_turn(*self.rows)
        checked = []
        for name, value in columns.items():  # no comprehension: in a traceback, its frame would keep the rollout
            checked.append((name, *rollout._columns.check(name, value, len(self.env_ids))))
        self._part.send(actions, self._some)
        self._has_acted = True
        for name, column, values in checked:
            column[self.rows] = values
            rollout.columns[name] = column

    def check_acted(self) -> None:
        """Raises StateError if `act` was not called in this turn."""
        if not self._has_acted:
            raise StateError(
                "expected step.act(actions) in each turn of a rollout, got a turn without: call close() to end it"
            )


class RolloutSteps(Iterator[RolloutStep]):
    """The turns of a rollout, one after another. An exception from a turn does not keep the rollout alive."""

    def __init__(self, turns: Iterator[RolloutStep]) -> None:
        self._turns = turns

    @holds_nothing
    def __next__(self) -> RolloutStep:
        return next(self._turns)
