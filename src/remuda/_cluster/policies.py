"""Policies that act beside the envs: what is sent of them, and which version of one is used there."""

from __future__ import annotations

import pickle
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Weights:
    """A torch module's state: an array for each of its tensors."""

    arrays: dict[str, np.ndarray[Any, Any]]


@dataclass(frozen=True)
class Whole:
    """A policy as a whole, pickled."""

    pickled: bytes


def is_module(policy: Any) -> bool:
    """Whether it is torch's."""
    return "torch" in sys.modules and isinstance(policy, sys.modules["torch"].nn.Module)


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
        return _with_tensors(act) if is_module(self._policy) else act

    def _take(self, news: Whole | Weights) -> None:
        if isinstance(news, Whole):
            self._policy = pickle.loads(news.pickled)
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
