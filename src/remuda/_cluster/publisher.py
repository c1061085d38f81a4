"""Publishes policies to shards: puts them into the object store, and tells shards where they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from remuda._cluster import actors
from remuda._cluster.policies import Weights, Whole, is_module
from remuda._wire import by_value

if TYPE_CHECKING:
    from remuda._cluster.fleet import Fleet
    from remuda._cluster.station import Station


class Publisher:
    """Puts policies into the object store, once for all shards, and tells these where they are.

    Of a torch module the state alone is sent, once shards have the module.

    Attributes:
        version: Of the latest; -1 before the first.
    """

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self.version = -1
        self._whole: Any = None  # references to what a shard needs that knows nothing
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
            self._whole, self._weights, self._kind = actors.put(Whole(by_value.dumps(policy))), None, kind
            news = [self._whole]
        self.version += 1
        for station in self._fleet.stations:
            if station.error is None:
                station.send("set_policy", self.version, *news)
        return self.version

    def tell_latest(self, station: Station) -> None:
        """To a shard that knows of no policy: one that has come later than the others, or in the place of another."""
        if self.version >= 0:
            latest = [ref for ref in (self._whole, self._weights) if ref is not None]
            station.send("set_policy", self.version, *latest)


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
