"""The turns of a rollout: what the caller sees of the envs, and what he tells them to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from remuda.errors import StateError

if TYPE_CHECKING:
    from remuda._engine.pool.part import Part
    from remuda._engine.rollouts.rollout import Rollout


class RolloutStep:
    """One turn of a rollout: the envs that are to act.

    Attributes:
        obs: (k, ...), or a dict or tuple of such: their observations. A view of the rollout, but in partial batches.
        rows: Where in the rollout they are: an index of its (T, n, ...) arrays, `rollout.columns["value"][step.rows]`.
    """

    def __init__(self, rollout: Rollout, part: Part, env_ids: np.ndarray[Any, Any] | None, rows: Any, obs: Any) -> None:
        """`env_ids`: None for all of the part."""
        self._rollout, self._part, self._some = rollout, part, env_ids
        self.rows, self.obs = rows, obs
        self._has_acted = False

    @property
    def env_ids(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """(k,) int64: which envs are to act."""
        return self._part.env_ids if self._some is None else self._some

    @property
    def extras(self) -> dict[str, np.ndarray[Any, Any]]:
        """The columns of `PoolOptions.extras` that belong to `obs`, by name: (k, ...)."""
        return {name: column[self.rows] for name, column in self._rollout.extras.items()}

    def act(self, actions: Any, **columns: Any) -> None:
        """Sends the envs their actions, which lie in the rollout from now on, and returns at once.

        Args:
            actions: As `Pool.send` takes them, one for each of `env_ids`.
            **columns: To be kept beside: an array, or what NumPy makes one of, of k rows each. The first time that one
                comes up it is laid out with its dtype and shape.

        Raises:
            ValueError: A column of another number of rows, or of another shape than before. Nothing was sent.
            StateError: These envs have acted in this turn; or somebody else has stepped or reset them in it, or made
                another rollout of them, or closed this one.
            Exception: What `Pool.send` raises. Nothing was sent.
        """
        if self._has_acted:
            raise StateError("expected one act() in each turn of a rollout, got another one")
        self._rollout.check_turn(*self.rows)
        arrays = {name: self._checked(name, value) for name, value in columns.items()} if columns else None
        self._part.send(actions, self._some)
        self._has_acted = True
        if arrays:
            for name, array in arrays.items():
                self._rollout.columns[name][self.rows] = array

    def _checked(self, name: str, value: Any) -> np.ndarray[Any, Any]:
        array, k = np.asarray(value), len(self.env_ids)
        if array.ndim == 0 or len(array) != k:
            raise ValueError(f"expected {name}= to have {k} rows, one for each env, got the shape {array.shape}")
        self._rollout.lay_out(name, array.dtype, array.shape[1:])
        shape = self._rollout.columns[name].shape[2:]
        if array.shape[1:] != shape:
            raise ValueError(f"expected {name}= to have the shape {(k, *shape)}, got {array.shape}")
        return array

    def check_acted(self) -> None:
        """Raises StateError where nobody has acted."""
        if not self._has_acted:
            raise StateError(
                "expected step.act(actions) in each turn of a rollout, got a turn without: call close() to end it"
            )


def lockstep(rollout: Rollout, parts: Sequence[Part]) -> Iterator[RolloutStep]:
    """Turns in which all envs of a part act. While one part does, the others' envs step."""
    codec, leaves = rollout._engine.layout.observation, rollout._leaves
    ends = np.cumsum([part.num_envs for part in parts]).tolist()
    columns = [slice(end - part.num_envs, end) for part, end in zip(parts, ends, strict=True)]
    for t in range(rollout.steps):
        for part, its in zip(parts, columns, strict=True):
            if t:
                part.recv()
            obs = codec.build_batch([leaf[t, its] for leaf in leaves], [])
            step = RolloutStep(rollout, part, None, (t, its), obs)
            yield step
            step.check_acted()
    for part in parts:
        part.recv()
    rollout._complete()


def partial_batches(rollout: Rollout, part: Part, min_envs: int) -> Iterator[RolloutStep]:
    """Turns in which those envs act that are ready, each as often as the rollout has steps."""
    codec, leaves, n = rollout._engine.layout.observation, rollout._leaves, rollout.num_envs
    clocks, ready = np.zeros(n, np.int64), np.arange(n)
    while True:
        if len(ready):
            rows = clocks[ready], ready
            obs = codec.build_batch([leaf[rows] for leaf in leaves], [])
            step = RolloutStep(rollout, part, rollout.env_ids[ready], rows, obs)
            yield step
            step.check_acted()
            clocks[ready] += 1
        if not part.pending:
            break
        arrived = np.searchsorted(rollout.env_ids, part.recv(min_envs).env_ids)
        ready = arrived[clocks[arrived] < rollout.steps]
    rollout._complete()
