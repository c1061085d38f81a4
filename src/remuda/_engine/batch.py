"""What the pool hands to the learner."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from remuda import _core
from remuda._backends.codec import SpaceCodec
from remuda._backends.layout import InfoColumn
from remuda._engine.infos import Extras, Infos, final_obs_reader


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
        info_columns: list[InfoColumn],
        info_arrays: list[Any] | None,
        extras: dict[int, Any] | None,
    ) -> None:
        self.env_ids = env_ids
        self.reward: np.ndarray[Any, np.dtype[np.float64]] = fixed_and_leaves[0]
        self.terminated: np.ndarray[Any, np.dtype[np.bool_]] = fixed_and_leaves[1]
        self.truncated: np.ndarray[Any, np.dtype[np.bool_]] = fixed_and_leaves[2]
        self._info_mask = fixed_and_leaves[3]
        self._leaves = fixed_and_leaves[_FIRST_LEAF:]
        self._final_leaves = final_leaves
        self._codec = codec
        self._info_columns, self._info_arrays = info_columns, info_arrays
        self._extras = extras

    def __len__(self) -> int:
        return len(self.env_ids)

    @cached_property
    def obs(self) -> Any:
        """The observations, batched as `gymnasium.vector.utils.batch_space` has it: an (n, ...) array, a dict or
        tuple of such, and for spaces without a fixed size (Text, Graph, ...) a tuple of n objects."""
        if self._codec.is_single_column:
            return self._leaves[0]
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
        read_final = final_obs_reader(self._codec, self._final_leaves, self._lazy)
        return Infos(self._info_mask, self._info_columns, self._info_arrays or [], self._lazy, read_final)

    @cached_property
    def _lazy(self) -> Extras:
        return Extras(self._extras)

    def __repr__(self) -> str:
        return f"<Batch of {len(self)} envs>"


_FIRST_LEAF = _core.FIRST_LEAF - 1  # the core's info room is a column of the arena, but not an array of a batch
