"""What the pool hands to the learner."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np

from remuda import _core
from remuda._engine.pool.infos import Extras, Infos, final_obs_reader
from remuda._wire.codec import SpaceCodec
from remuda._wire.failures import not_loaded
from remuda.errors import EnvError


class Batch:
    """One result from each of n envs.

    Arrays are views of the pool's shared memory wherever possible. They are yours for as long as you keep
    them, or any view of them: the pool never writes to a frame that somebody holds (it copies when all frames
    are held). You may write to them.

    Attributes:
        env_ids: (n,) int64. All envs in ascending order, or some in the order of their arrival.
        reward: (n,) float64. 0 after a reset.
        terminated: (n,) bool. The episode ended in a terminal state.
        truncated: (n,) bool. The episode was cut off.
    """

    def __init__(
        self,
        env_ids: np.ndarray[Any, Any],
        codec: SpaceCodec,
        fixed_and_leaves: list[Any],
        final_leaves: list[Any] | None,
        info_reader: _core.InfoReader,
        info_arrays: list[Any] | None,
        extras: dict[int, Any] | None,
        worker_of: Callable[[int], int],
    ) -> None:
        self.env_ids = env_ids
        self.reward: np.ndarray[Any, np.dtype[np.float64]] = fixed_and_leaves[0]
        self.terminated: np.ndarray[Any, np.dtype[np.bool_]] = fixed_and_leaves[1]
        self.truncated: np.ndarray[Any, np.dtype[np.bool_]] = fixed_and_leaves[2]
        self._info_mask = fixed_and_leaves[3]
        self._leaves = fixed_and_leaves[_FIRST_LEAF:]
        self._final_leaves = final_leaves
        self._codec = codec
        self._info_reader, self._info_arrays = info_reader, info_arrays
        self._extras, self._worker_of = extras, worker_of
        if codec.is_single_column:
            self.obs = self._leaves[0]  # as almost always: without the way through the property

    def in_order(self, env_ids: Sequence[int]) -> Batch:
        """The same rows in the order of these ids, which are those of the batch: itself, or a copy."""
        if self.env_ids.tolist() == list(env_ids):
            return self
        row_of = {env_id: row for row, env_id in enumerate(self.env_ids.tolist())}
        rows = [row_of[env_id] for env_id in env_ids]
        fixed = [self.reward, self.terminated, self.truncated, self._info_mask]
        extras = self._extras
        return Batch(
            self.env_ids[rows],
            self._codec,
            [array[rows] for array in [*fixed, *self._leaves]],
            None if self._final_leaves is None else [array[rows] for array in self._final_leaves],
            self._info_reader,
            None if self._info_arrays is None else [array[rows] for array in self._info_arrays],
            None if extras is None else {i: extras[row] for i, row in enumerate(rows) if row in extras},
            self._worker_of,
        )

    def __len__(self) -> int:
        return len(self.env_ids)

    @cached_property
    def obs(self) -> Any:
        """The observations, batched as `gymnasium.vector.utils.batch_space` has it: an (n, ...) array, a dict or
        tuple of such, and for spaces without a fixed size (Text, Graph, ...) a tuple of n objects."""
        objects = [self._lazy.objects(i) for i in range(len(self))] if self._codec.num_objects else []
        return self._codec.build_batch(self._leaves, objects)

    @cached_property
    def final_obs(self) -> Any:
        """With same-step autoreset the terminal observations, batched like `obs`: only the rows where `terminated`
        or `truncated` mean anything. None when no episode ended in this batch, and in the other modes."""
        if self._final_leaves is None:
            return None
        objects = [self._final_objects(i) for i in range(len(self))] if self._codec.num_objects else []
        return self._codec.build_batch(self._final_leaves, objects)

    def _final_objects(self, row: int) -> list[Any]:
        if self._lazy.has_final(row):
            return self._codec.flatten(self._lazy.final(row)[0])[1]
        return [None] * self._codec.num_objects

    @cached_property
    def infos(self) -> Infos:
        """The n info dicts, built one by one when asked for; `infos.stack()` is Gymnasium's format."""
        read_final = None
        if self._final_leaves is not None:
            read_final = final_obs_reader(self._codec, self._final_leaves, self._lazy)
        return Infos(self._info_mask, self._info_reader, self._info_arrays, self._lazy, read_final)

    def stack_infos(self) -> dict[str, Any]:
        """What `infos.stack()` returns; quicker where there are none."""
        if self._extras is not None:
            return self.infos.stack()
        if self._info_arrays is None:
            return {}
        stacked: dict[str, Any] = self._info_reader.stack(self._info_mask, self._info_arrays, None)
        return stacked

    @cached_property
    def _lazy(self) -> Extras:
        return Extras(self._extras, partial(_blame, self.env_ids, self._worker_of))  # without us: no circle

    def __repr__(self) -> str:
        return f"<Batch of {len(self)} envs>"


def _blame(env_ids: np.ndarray[Any, Any], worker_of: Callable[[int], int], row: int, error: Exception) -> EnvError:
    """What to raise where the pickled matter of a row cannot be unpickled."""
    env_id = int(env_ids[row])
    return EnvError([not_loaded(env_id, worker_of(env_id), "step", "an observation and an info", error)])


_FIRST_LEAF = _core.FIRST_LEAF - 1  # the core's info room is a column of the arena, but not an array of a batch
