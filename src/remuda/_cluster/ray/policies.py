"""Publishes policies: pickles them for machines without the learner's GPUs, and puts them into Ray's object store."""

from __future__ import annotations

import io
import pickle
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import ray

from remuda._training.acting import check_policy
from remuda._wire import by_value

Bytes = np.ndarray[Any, np.dtype[np.uint8]]


@dataclass(frozen=True)
class PickledPolicy:
    """A policy, pickled for Ray's object store.

    Attributes:
        pickled: The policy without its large memory.
        buffers: The memory of its tensors and arrays, which processes of one machine share there.
    """

    pickled: bytes
    buffers: list[Bytes]

    def load(self) -> Any:
        """Returns the unpickled policy. A torch module is moved to the GPU if this process may use one.

        Its memory is a copy, because a policy may write to it.
        """
        policy = pickle.loads(self.pickled, buffers=[bytearray(one.data) for one in self.buffers])
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(policy, torch.nn.Module) and torch.cuda.is_available():
            policy.to("cuda")
        return policy


class Publisher:
    """Keeps the newest policy in Ray's object store, once for all shards. Requests for rollouts refer to it there.

    Attributes:
        version: The number of the newest policy; -1 before the first.
        newest: A list with the reference to the policy. Ray would fetch a bare reference for each request.
    """

    def __init__(self) -> None:
        self.version = -1
        self.newest: list[Any] = []

    def publish(self, policy: Any) -> int:
        """Makes `policy` the newest policy. Returns its version.

        Raises TypeError if `policy` is not a policy, and the exception of an object that cannot be pickled.
        """
        check_policy(policy)
        self.newest = [ray.put(_pickled(policy))]
        self.version += 1
        return self.version


def _pickled(policy: Any) -> PickledPolicy:
    """Pickles a policy as a whole, with all attributes. Tensors on a GPU are copied to the CPU."""
    file, buffers = io.BytesIO(), list[Bytes]()
    _Pickler(file, 5, lambda buffer: buffers.append(np.frombuffer(buffer.raw(), np.uint8))).dump(policy)
    return PickledPolicy(file.getvalue(), buffers)


class _Pickler(by_value.Pickler):
    """Pickles the memory of torch's tensors out of band. Tensors that share memory share it again after loading."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._torch: Any = sys.modules.get("torch")
        self._storages: dict[int, Any] = {}  # one object for each storage, by address, so that pickle stores it once

    def reducer_override(self, value: Any) -> Any:
        if self._torch is not None:
            if isinstance(value, self._torch.storage.TypedStorage):
                untyped = value._untyped_storage  # `untyped()` warns
                return _typed_storage, (self._storages.setdefault(untyped._cdata, untyped), value.dtype)
            if isinstance(value, self._torch.UntypedStorage):
                memory = self._torch.empty(0, dtype=self._torch.uint8).set_(value.cpu())
                return _untyped_storage, (memory.numpy(),)
        return super().reducer_override(value)


def _typed_storage(untyped: Any, dtype: Any) -> Any:
    import torch

    storage: Any = torch.storage.TypedStorage
    return storage(wrap_storage=untyped, dtype=dtype, _internal=True)


def _untyped_storage(memory: Bytes) -> Any:
    import torch

    return torch.from_numpy(memory).untyped_storage()
