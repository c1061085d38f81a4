"""Calls into envs that are on several shards."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import cloudpickle
import numpy as np
import numpy.typing as npt

from remuda import Call, EnvError, RemudaError
from remuda._cluster import actors
from remuda._cluster.driver import Driver
from remuda._cluster.fleet import Station
from remuda._cluster.replies import Answer
from remuda._engine.pool.arguments import check_timeout
from remuda._wire.failures import not_loaded
from remuda._wire.pickling import load_from_env
from remuda.errors import ShardDiedError

Ids = npt.NDArray[np.int64]


@dataclass
class _Asked:
    """A shard that was asked, and where its envs are among those of the call."""

    ref: actors.Ref
    station: Station
    generation: int
    where: npt.NDArray[np.intp]


class ShardCall(Call):
    """The answers of envs on several shards; see `Call`."""

    def __init__(self, driver: Driver) -> None:
        self._driver, self._asked_of = driver, list[_Asked]()
        self._env_ids: Ids = np.zeros(0, np.int64)
        self._pickled: dict[int, bytes] = {}  # by place
        self._raised: list[RemudaError] = []
        self._loaded: list[Any] | None = None
        self.error: RemudaError | None = None

    def ask(
        self,
        env_ids: Ids,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any] | None,
        per_env_args: Sequence[tuple[Any, ...]] | None,
        about: Hashable,
        again: Callable[..., Any] | None,
    ) -> None:
        """Raises before anything is sent where something cannot be pickled."""
        self._env_ids = env_ids
        divided = self._driver.shares.divide(env_ids)
        messages = []
        for _, where in divided:
            own = None if per_env_args is None else [per_env_args[i] for i in where.tolist()]
            messages.append(cloudpickle.dumps((fn, args, kwargs, own, about, again)))
        for (share, where), message in zip(divided, messages, strict=True):
            station = self._driver.fleet.stations[share.shard]
            ref = station.actor.apply.remote(message, share.local(env_ids[where]))
            self._asked_of.append(_Asked(ref, station, station.generation, where))

    def remember(self, env_ids: Ids, options: Sequence[dict[str, Any] | None]) -> None:
        """Reset options, instead of a function."""
        self._env_ids = env_ids
        for share, where in self._driver.shares.divide(env_ids):
            station = self._driver.fleet.stations[share.shard]
            ref = station.actor.remember.remote([options[i] for i in where.tolist()], share.local(env_ids[where]))
            self._asked_of.append(_Asked(ref, station, station.generation, where))

    @property
    def done(self) -> bool:
        """Whether `result` would return (or raise) without waiting."""
        self._collect(0)
        return not self._asked_of or self.error is not None

    def result(self, timeout: float | None = None) -> list[Any]:
        """Waits for all answers. See `Call.result`."""
        check_timeout(timeout)
        self._collect(timeout)
        if self.error is not None:
            raise self.error
        if self._asked_of:
            late = sum(len(asked.where) for asked in self._asked_of)
            raise TimeoutError(f"{late} of {len(self._env_ids)} envs have not answered within {timeout} s")
        failures = [failure for error in self._raised if isinstance(error, EnvError) for failure in error.failures]
        if failures:
            raise EnvError(failures)
        if self._loaded is None:
            self._loaded = self._load_all_values()
        return list(self._loaded)

    def _collect(self, timeout: float | None) -> None:
        deadline = None if timeout is None else time.monotonic() + timeout
        while self._asked_of and self.error is None:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            ready = actors.wait([asked.ref for asked in self._asked_of], 1, left)
            if not ready:
                return
            for asked in [asked for asked in self._asked_of if asked.ref in ready]:
                self._note(asked)

    def _note(self, asked: _Asked) -> None:
        try:
            answer: Answer = actors.get(asked.ref)
        except actors.Lost as error:
            lost = self._driver.died(asked.station, asked.generation, error, "call")
            self.error = lost or self._death_of(asked, error)
            return
        self._asked_of.remove(asked)
        if isinstance(answer.error, EnvError):
            self._raised.append(answer.error)
        elif answer.error is not None:
            self.error = answer.error if isinstance(answer.error, RemudaError) else RemudaError(str(answer.error))
        elif answer.value is not None:
            self._pickled.update(zip(asked.where.tolist(), answer.value, strict=True))

    def _death_of(self, asked: _Asked, error: Exception) -> ShardDiedError:
        """What was asked of a shard that has died is never answered, though another one comes in its place."""
        share = asked.station.share
        return ShardDiedError(
            shard=share.shard,
            node=asked.station.node,
            reason=str(error),
            worker=share.first,
            env_ids=share.env_ids,
            operation="call",
        )

    def _load_all_values(self) -> list[Any]:
        values, failures = list[Any](), []
        for place, env in enumerate(self._env_ids.tolist()):
            if place not in self._pickled:
                values.append(None)
                continue
            try:
                values.append(load_from_env([self._pickled[place]]))
            except Exception as error:
                failures.append(not_loaded(env, env, "call", "an answer", error))
        if failures:
            raise EnvError(failures)
        return values
