"""Policies that act beside the envs: how they get there, and which version of one is used."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import cloudpickle
import numpy as np

from remuda._cluster import actors


@dataclass(frozen=True)
class Weights:
    """A torch module's state: an array for each of its tensors."""

    arrays: dict[str, np.ndarray[Any, Any]]


@dataclass(frozen=True)
class Whole:
    """A policy as a whole, pickled."""

    pickled: bytes


class Publisher:
    """The driver's side: puts policies into the object store, once for all shards, and tells these where they are.

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


def _is_module(policy: Any) -> bool:
    return "torch" in sys.modules and isinstance(policy, sys.modules["torch"].nn.Module)


def _kind_of(policy: Any) -> Any:
    """What two modules have in common, of which one may have the state of the other; None: it is no module."""
    if not _is_module(policy):
        return None
    return type(policy), tuple((name, tuple(tensor.shape)) for name, tensor in policy.state_dict().items())


def _state_of(module: Any) -> dict[str, np.ndarray[Any, Any]]:
    return {name: tensor.detach().cpu().numpy() for name, tensor in module.state_dict().items()}


class Policies:
    """A shard's side. News may come while the policy acts: they are looked at when the next rollout begins."""

    def __init__(self) -> None:
        self._has_news = threading.Condition()
        self._news: list[Whole | Weights] = []
        self._news_version = self.version = -1
        self._policy: Any = None

    def tell(self, version: int, news: Sequence[Whole | Weights]) -> None:
        with self._has_news:
            self._news.extend(news)
            self._news_version = version
            self._has_news.notify_all()

    def newest(self, at_least: int) -> Callable[[Any], Any]:
        """Acts as the newest version does, which is not older than that one: gets observations, returns actions, or
        these and columns."""
        with self._has_news:
            self._has_news.wait_for(lambda: self._news_version >= at_least)
            news, self._news = self._news, []
            self.version = self._news_version
        for one in news:
            self._take(one)
        act = self._policy.act if hasattr(self._policy, "act") else self._policy
        return _with_tensors(act) if _is_module(self._policy) else act

    def _take(self, news: Whole | Weights) -> None:
        if isinstance(news, Whole):
            self._policy = cloudpickle.loads(news.pickled)
            return
        torch = sys.modules["torch"]  # the module has brought it along
        self._policy.load_state_dict({name: torch.tensor(array) for name, array in news.arrays.items()})


def _with_tensors(act: Callable[[Any], Any]) -> Callable[[Any], Any]:
    torch = sys.modules["torch"]

    def with_tensors(obs: Any) -> Any:
        with torch.no_grad():
            return _map(_array, act(_map(torch.as_tensor, obs)))

    return with_tensors


def _array(value: Any) -> Any:
    return value.detach().cpu().numpy() if hasattr(value, "detach") else value


def _map(function: Callable[[Any], Any], value: Any) -> Any:
    """Of each array in a batch."""
    if isinstance(value, dict):
        return {key: _map(function, child) for key, child in value.items()}
    if isinstance(value, tuple):
        return tuple(_map(function, child) for child in value)
    return function(value)
