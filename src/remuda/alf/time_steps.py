"""Converts actions from tensors to the engine's arrays, and time steps from arrays to tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import alf
import numpy as np
import torch

from remuda import Batch, Fault
from remuda._wording import in_brief
from remuda.alf.errors import InvalidActionError
from remuda.alf.nests import Nest, converter
from remuda.alf.worker import LAST, columns_of


def action_reader(spec: Nest, num_envs: int, outer: tuple[int, ...]) -> Callable[[Nest], Nest]:
    """Returns a function that converts a nest of tensors or arrays, with a row for each env, to the engine's nest.

    The function raises InvalidActionError for another structure; the engine checks the numbers, shapes and dtypes.
    `outer`: (batch size,) for a batched env, which has several rows, else ().
    """

    def to_array(rows: Any) -> Any:
        array = rows.numpy(force=True) if isinstance(rows, torch.Tensor) else np.asarray(rows)
        return array.reshape(num_envs, *outer, *array.shape[1:]) if outer else array

    convert = converter(spec, to_array, to_plain=True)

    def read(actions: Nest) -> Nest:
        try:
            return convert(actions)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise InvalidActionError(f"expected actions of {spec}, got {in_brief(actions)} ({error!r})") from error

    return read


class TimeSteps:
    """Converts batches to ALF's time steps. Their tensors share the memory of the batch.

    Attributes:
        faults: The faults that ended episodes in the latest time step, by the env's row in the batch.
    """

    def __init__(self, spec: Any, num_envs: int, outer: tuple[int, ...]) -> None:
        """`spec` is that of one env's time steps, with env info; `outer` is (batch size,), or () if not batched."""
        self.faults: Mapping[int, Fault] = {}
        columns = columns_of(spec)
        self._blank = type(spec)._make(field if i not in columns else () for i, field in enumerate(spec))
        self._names = [spec._fields[i] for i in columns]
        leaf = _flat_tensor if outer else torch.from_numpy
        self._to_tensors = [converter(spec[i], leaf) for i in columns]
        self._env_ids = torch.arange(num_envs * sum(outer or (1,)), dtype=torch.int32, device="cpu")

    def read(self, batch: Batch, actions: Nest) -> Any:
        """Converts a batch to a ``TimeStep`` on ALF's default device. `actions` are the step's actions, as arrays."""
        columns = dict(zip(self._names, batch.obs, strict=True))
        self.faults = {}
        if batch.truncations.any():  # faults are the only truncations here
            self._end_episodes(batch, columns, actions)
        fields = {name: convert(columns[name]) for name, convert in zip(self._names, self._to_tensors, strict=True)}
        return _on_default_device(self._blank._replace(env_id=self._env_ids.clone(), **fields))

    def _end_episodes(self, batch: Batch, columns: Mapping[str, Nest], actions: Nest) -> None:
        """Sets LAST in the row of each env with an episode that a fault ended. The row repeats the env's last one."""
        lost = np.flatnonzero(batch.truncations)
        columns["step_type"][lost] = LAST
        columns["reward"][lost] = 0

        def copy_rows(target: Any, source: Any) -> None:
            target[lost] = np.asarray(source).reshape(target.shape)[lost]

        alf.nest.map_structure(copy_rows, columns["prev_action"], actions)
        self.faults = {i: batch.infos[i]["fault"] for i in lost.tolist()}


def _flat_tensor(array: Any) -> torch.Tensor:
    """Returns the rows of all batched envs as one tensor, without a copy."""
    return torch.from_numpy(array.reshape(-1, *array.shape[2:]))


def _on_default_device(time_step: Any) -> Any:
    """Copies a time step to ALF's default device, unless the device is the CPU. The copy keeps the original alive."""
    if alf.get_default_device() != "cuda":
        return time_step
    copied = alf.nest.map_structure(lambda tensor: tensor.cuda(), time_step)
    copied._cpu = time_step
    return copied
