"""The batch: results of envs, as arrays that the pool hands to the learner."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from remuda import _core
from remuda._engine.batches.infos import Infos, PickledRows, RawRow, final_obs_of, rows_of_envs
from remuda._error_frames import holds_nothing
from remuda._wire.codec import SpaceCodec
from remuda._wire.failures import not_loaded
from remuda.errors import EnvError

if TYPE_CHECKING:
    import torch

    from remuda._tensors.tensors import TensorBatch


@dataclass(frozen=True)
class Source:
    """The data that all batches of a pool share.

    Attributes:
        codec: Builds observations.
        info_reader: Reads info columns.
        vector_size: The number of envs in each vector env; None if envs are single.
        worker_of: Returns the worker that hosts an env.
        extras: The names of the caller's own columns.
        note_unpickling: Counts the nanoseconds in which infos are unpickled.
    """

    codec: SpaceCodec
    info_reader: _core.InfoReader
    vector_size: int | None
    worker_of: Callable[[int], int]
    extras: tuple[str, ...]
    note_unpickling: Callable[[int], None]

    def __deepcopy__(self, _: dict[int, Any]) -> Source:
        """Returns the same source, because a copied batch has the same envs."""
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "expected an object that can be pickled, got a batch, which belongs to its pool: pickle its arrays and "
            "list(batch.infos) instead"
        )


class Batch(_core.Batch):
    """A batch: one result from each of n envs.

    Arrays are views of the pool's shared memory wherever possible. They are yours for as long as you keep them, a view
    of them, or the batch: the pool never writes to a frame that is held, and copies when all frames are held. You may
    write to them. The pool uses arrays again that are no longer held, so `id(batch.obs)` does not identify a batch, and
    a weak reference to an array ends with the next step.

    Attributes:
        env_ids: (n,) int64. All envs in ascending order, or some in the order of their arrival.
        obs: The observations, batched as `gymnasium.vector.utils.batch_space` has it: an (n, ...) array, a dict or
            tuple of such, and for spaces without a fixed size (Text, Graph, ...) a tuple of n objects.
        rewards: (n,) float64; (n, k) if the envs have vectors as rewards. 0 after a reset.
        terminations: (n,) bool. The episode ended in a terminal state.
        truncations: (n,) bool. The episode was cut off.
        dones: (n,) bool. The episode ended in either way; a new array each time.
        has_infos: bool. At least one of the n infos is not empty. (On most steps of many envs all are empty.)
    """

    if TYPE_CHECKING:
        env_ids: np.ndarray[Any, np.dtype[np.int64]]
        obs: Any
        rewards: np.ndarray[Any, np.dtype[np.float64]]
        terminations: np.ndarray[Any, np.dtype[np.bool_]]
        truncations: np.ndarray[Any, np.dtype[np.bool_]]
        dones: np.ndarray[Any, np.dtype[np.bool_]]
        _source: Source

    @holds_nothing
    def _build_obs(self) -> Any:
        """Builds `obs` if it consists of more than one array. The core calls this once."""
        codec = self._source.codec
        objects = list(map(self._lazy.objects, range(len(self)))) if codec.num_objects else []
        return codec.build_batch(self._leaves(), objects)

    @cached_property
    @holds_nothing
    def final_obs(self) -> Any:
        """The terminal observations, batched like `obs`; only with same-step autoreset.

        Only the rows with a termination or a truncation have a meaning. None if no episode ended in this batch, and in
        the other modes.
        """
        if (leaves := self._final_leaves()) is None:
            return None
        codec = self._source.codec
        objects = list(map(self._final_objects, range(len(self)))) if codec.num_objects else []
        return codec.build_batch(leaves, objects)

    def _final_objects(self, row: int) -> list[Any]:
        if self._lazy.has_final(row):
            return self._source.codec.flatten(self._lazy.final(row)[0])[1]
        return [None] * self._source.codec.num_objects

    @cached_property
    def extras(self) -> dict[str, np.ndarray[Any, Any]]:
        """The columns of `PoolOptions.extras` by name: arrays with a row for each env.

        The worker computes a row after the reset or step that returned the row's observation. In a row that ends an
        episode, that is the next episode's first observation with same-step autoreset, and the terminal observation
        with next-step autoreset. The row of an env that failed repeats the values that were computed last. Rows of a
        `StepColumn` have the value of the step, and zeros after a reset or a fault.
        """
        return dict(zip(self._source.extras, self._computed() or (), strict=True))

    @holds_nothing
    def to(
        self, device: torch.device | str | int, non_blocking: bool = False, *, out: TensorBatch | None = None
    ) -> TensorBatch:
        """Returns the batch as torch tensors: shared on the CPU, copied to a GPU while the program continues::

            while learning:
                tensors = batch.to("cuda", non_blocking=True)
                actions = policy(tensors.obs)  # the current stream waits for the copy; the program does not
                batch = pool.step(actions.cpu().numpy())

        A frame stays leased until its copy is done, so the pool never writes into data that is being copied. `to_torch`
        documents each kind of device, and converts arrays outside batches. Infos stay in the batch.

        Args:
            device, non_blocking: See `to_torch`.
            out: An earlier result of `to` for as many rows. Its tensors are overwritten and returned, so their
                addresses stay the same, as CUDA graphs need. Only `final_obs` is new each time.

        Returns:
            Views on the CPU, which keep the frame leased while they are held; copies on other devices.

        Raises: See `to_torch`.
        """
        from remuda._tensors.tensors import TensorBatch  # imported here because workers do not need it

        return TensorBatch._of(self, device, non_blocking, out)

    @cached_property
    def infos(self) -> Infos:
        """The n info dicts, each built when it is read. `infos.stack()` returns Gymnasium's format."""
        leaves = self._final_leaves()
        read_final = None if leaves is None else partial(final_obs_of, self._source.codec, leaves, self._lazy)
        arrays = self._info_arrays()
        mask = np.zeros(len(self), np.uint64) if arrays is None else self._info_mask()
        return Infos(mask, self._source.info_reader, arrays, self._lazy, read_final)

    def _rows_matter(self) -> dict[int, RawRow]:
        """Returns the pickled data of rows: objects and infos that have no column."""
        if self._pickled is None or self._source.vector_size is None:
            return self._pickled or {}
        return rows_of_envs(self._pickled, self._source.vector_size)

    @cached_property
    def _lazy(self) -> PickledRows:
        return PickledRows(
            self._rows_matter(), self._source.note_unpickling, partial(_blame, self.env_ids, self._source.worker_of)
        )  # no argument refers to the batch: the batch refers to this object, so that would be a cycle

    def __reduce__(self) -> tuple[Any, ...]:
        return Batch, (self._source, *self._apart(self._pickled))

    def _apart(self, raw: dict[int, RawRow] | None) -> tuple[Any, ...]:
        """Returns the arguments that construct a copy, without the first, the source."""
        fixed = [self.rewards, self.terminations, self.truncations]
        arrays = self._info_arrays()
        columns = [*fixed, None if arrays is None else self._info_mask(), *self._leaves()]
        computed = list(self.extras.values()) or None
        return self.env_ids, columns, self._final_leaves(), computed, arrays, raw

    def __repr__(self) -> str:
        return f"<Batch of {len(self)} envs>"


def _blame(env_ids: np.ndarray[Any, Any], worker_of: Callable[[int], int], row: int, error: Exception) -> EnvError:
    """Returns the error to raise if the observation or info of a row cannot be unpickled."""
    env_id = int(env_ids[row])
    return EnvError([not_loaded(env_id, worker_of(env_id), "step", "an observation and an info", error)])
