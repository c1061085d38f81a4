"""Publishes policies: pickles them for machines without the learner's GPUs, and puts them into Ray's object store."""

from __future__ import annotations

import io
import pickle
import sys
from dataclasses import dataclass
from typing import Any

import ray

from remuda._training.acting import check_policy
from remuda._wire import by_value


@dataclass(frozen=True)
class PickledPolicy:
    """A policy, pickled for Ray's object store.

    Attributes:
        pickled: The bytes of `torch.save` if `has_torch`, otherwise those of pickle.
    """

    pickled: bytes
    has_torch: bool

    def load(self) -> Any:
        """Returns the unpickled policy. A torch module is moved to the GPU if this process may use one."""
        if not self.has_torch:
            return pickle.loads(self.pickled)
        import torch

        policy = torch.load(io.BytesIO(self.pickled), map_location="cpu", weights_only=False)
        if isinstance(policy, torch.nn.Module) and torch.cuda.is_available():
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
    torch = sys.modules.get("torch")
    if torch is None:
        return PickledPolicy(by_value.dumps(policy), has_torch=False)
    file = io.BytesIO()
    torch.save(policy, file, pickle_module=by_value, pickle_protocol=5)
    return PickledPolicy(file.getvalue(), has_torch=True)
