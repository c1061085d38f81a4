"""Publishes policies to shards: puts them into the object store, and tells shards where they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import cloudpickle
import numpy as np

from remuda._cluster import actors
from remuda._cluster.policies import Weights, Whole, is_module


class Publisher:
    """Puts policies into the object store, once for all shards, and tells these where they are.

    Of a torch module the state alone is sent, once shards have the module.

    Attributes:
        version: Of the latest; -1 before the first.
    """

    def __init__(self, tell: Callable[[int, Sequence[Any]], None]) -> None:
        """`tell`: tells all shards of a version, and what it is made of."""
        self._tell = tell
        self.version = -1
        self._whole: Any = None  # references to what successors of shards must have
        self._weights: Any = None
        self._kind: Any = None  # of the module that shards have

    def publish(self, policy: Any) -> int:
        """Returns its version."""
        kind = _kind_of(policy)
        if kind is not None and kind == self._kind:
            self._weights = actors.put(Weights(_state_of(policy)))
            news = [self._weights]
        else:
            check_policy(policy)
            self._whole, self._weights, self._kind = actors.put(Whole(cloudpickle.dumps(policy))), None, kind
            news = [self._whole]
        self.version += 1
        self._tell(self.version, news)
        return self.version

    @property
    def latest(self) -> list[Any]:
        """What somebody who knows nothing needs."""
        return [ref for ref in (self._whole, self._weights) if ref is not None]


def check_policy(policy: Any) -> None:
    if not callable(policy) and not hasattr(policy, "act"):
        raise TypeError(f"expected a policy that can be called, or has a method act, got {policy!r}")


def _kind_of(policy: Any) -> Any:
    """What two modules have in common, of which one may have the state of the other; None: it is no module."""
    if not is_module(policy):
        return None
    return type(policy), tuple((name, tuple(tensor.shape)) for name, tensor in policy.state_dict().items())


def _state_of(module: Any) -> dict[str, np.ndarray[Any, Any]]:
    return {name: tensor.detach().cpu().numpy() for name, tensor in module.state_dict().items()}
