"""Calls into envs that are on several shards."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from remuda import Call, EnvError, RemudaError
from remuda._cluster import actors
from remuda._cluster.driver import Driver
from remuda._cluster.replies import Answer
from remuda._cluster.shares import Portion
from remuda._cluster.station import Sent, answered
from remuda._engine.options.checks import check_timeout
from remuda._wire import by_value
from remuda._wire.env_state import StateFns
from remuda._wire.failures import not_loaded
from remuda._wire.pickling import load_from_env
from remuda._wire.requests import CallEnv

Ids = npt.NDArray[np.int64]


class ShardCall(Call):
    """The answers of envs on several shards; see `Call`."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._asked_of: dict[Sent, npt.NDArray[np.intp]] = {}  # and where its envs are among those of the call
        self._env_ids: Ids = np.zeros(0, np.int64)
        self._pickled: dict[int, bytes] = {}  # by place
        self._raised: list[RemudaError] = []
        self._loaded: list[Any] | None = None
        self.error: RemudaError | None = None

    def ask(self, env_ids: Ids, order: CallEnv, per_env_args: Sequence[tuple[Any, ...]] | None) -> None:
        """Raises before anything is sent where something cannot be pickled."""
        self._env_ids = env_ids
        portions, messages = self._driver.shares.divide(env_ids), []
        for portion in portions:
            own = None if per_env_args is None else [per_env_args[i] for i in portion.where.tolist()]
            messages.append(by_value.dumps((order, own)))
        for portion, message in zip(portions, messages, strict=True):
            self._send(portion, "apply", message)

    def remember(self, env_ids: Ids, options: Sequence[dict[str, Any] | None]) -> None:
        """Tells each env the options of its resets to come, instead of running a function."""
        self._env_ids = env_ids
        for portion in self._driver.shares.divide(env_ids):
            self._send(portion, "remember", [options[i] for i in portion.where.tolist()])

    def take_states(self, env_ids: Ids, state_fns: StateFns) -> None:
        """Asks for states, instead of running a function."""
        self._env_ids, message = env_ids, by_value.dumps(state_fns)
        for portion in self._driver.shares.divide(env_ids):
            self._send(portion, "take_states", message)

    def _send(self, portion: Portion, method: str, argument: Any) -> None:
        station, local = self._driver.fleet.stations[portion.share.shard], portion.share.local(portion.env_ids)
        self._asked_of[station.send(method, argument, local)] = portion.where

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
            late = sum(map(len, self._asked_of.values()))
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
            sent = next(answered(self._asked_of, 1, left), None)
            if sent is None:
                return
            self._note(sent)

    def _note(self, sent: Sent) -> None:
        try:
            answer: Answer = actors.get(sent.ref)
        except actors.Lost as error:
            if not self._driver.fleet.starts_elsewhere(sent, error):
                death = self._driver.fleet.death(sent.station, error, "call")
                self.error = self._driver.died(sent, error, "call") or death  # nobody else is asked in its place
            return
        where = self._asked_of.pop(sent)
        if isinstance(answer.error, EnvError):
            self._raised.append(answer.error)
        elif answer.error is not None:
            self.error = answer.error if isinstance(answer.error, RemudaError) else RemudaError(str(answer.error))
        elif answer.value is not None:
            self._pickled.update(zip(where.tolist(), answer.value, strict=True))
        answer.log_faults()

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
