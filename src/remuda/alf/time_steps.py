"""Time steps of tensors, out of a batch."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import alf
import numpy as np
import torch

from remuda import Batch, Fault
from remuda.alf.nests import Nest, children, converter, is_leaf
from remuda.alf.worker import LAST, columns_of

NO_FAULTS: Mapping[int, Fault] = MappingProxyType({})


class TimeSteps:
    """Makes the time steps of all envs. Their tensors share the memory of the batch they are read from.

    Attributes:
        faults: Why envs read LAST that have not said so, in the latest one: by their places in the batch.
    """

    def __init__(self, spec: Any, num_envs: int, outer: tuple[int, ...]) -> None:
        """`spec`: of one env's, with its env info. `outer`: (its batch size,), or () for one that has no batch axis."""
        self.faults = NO_FAULTS
        columns = columns_of(spec)
        self._blank = type(spec)._make(field if i not in columns else () for i, field in enumerate(spec))
        self._names = [spec._fields[i] for i in columns]
        leaf = _flat_tensor if outer else torch.from_numpy
        self._to_tensors = [converter(spec[i], leaf) for i in columns]
        self._env_ids = torch.arange(num_envs * sum(outer or (1,)), dtype=torch.int32, device="cpu")

    def read(self, batch: Batch, actions: Nest) -> Any:
        """One of ALF's ``TimeStep``, on its default device. `actions`: those that were sent, as the engine has them."""
        columns = dict(zip(self._names, batch.obs, strict=True))
        self.faults = NO_FAULTS
        if batch.truncated.any():  # no env says that
            self._end_episodes(batch, columns, actions)
        fields = {name: convert(columns[name]) for name, convert in zip(self._names, self._to_tensors, strict=True)}
        return _on_default_device(self._blank._replace(env_id=self._env_ids.clone(), **fields))

    def _end_episodes(self, batch: Batch, columns: Mapping[str, Nest], actions: Nest) -> None:
        """Where the engine has cut an episode off, the row is the last one once more."""
        lost = np.flatnonzero(batch.truncated)
        columns["step_type"][lost] = LAST
        columns["reward"][lost] = 0
        _copy_rows(columns["prev_action"], actions, lost)
        self.faults = {i: batch.infos[i]["fault"] for i in lost.tolist()}


def _flat_tensor(array: Any) -> torch.Tensor:
    """Rows of all envs, one after another; without a copy, for they lie that way."""
    return torch.from_numpy(array.reshape(-1, *array.shape[2:]))


def _copy_rows(target: Nest, source: Nest, rows: Any) -> None:
    if is_leaf(target):
        target[rows] = np.asarray(source).reshape(target.shape)[rows]
        return
    for key, _, child in children(target):
        _copy_rows(child, source[key], rows)


def _on_default_device(time_step: Any) -> Any:
    """ALF's, which keeps what there is on the CPU with what it has copied from there."""
    if alf.get_default_device() != "cuda":
        return time_step
    copied = alf.nest.map_structure(lambda tensor: tensor.cuda(), time_step)
    copied._cpu = time_step
    return copied
