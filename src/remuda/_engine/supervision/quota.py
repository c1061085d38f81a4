"""Restart limits: how many faults are borne within a period, as in Erlang/OTP's supervisors."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence

from remuda._engine.options.fault_policy import FaultPolicy
from remuda._engine.running.changes import Changes
from remuda.errors import Fault, RestartLimitError


class Quota:
    """The faults of the last `period` seconds, and the restarts of workers in it."""

    def __init__(self, policy: FaultPolicy) -> None:
        self._policy = policy
        self._faults: deque[tuple[float, Fault]] = deque()  # and when
        self._restarts: dict[int, deque[float]] = {}  # by worker: when it failed

    def charge(self, faults: Sequence[Fault], changes: Changes) -> RestartLimitError | None:
        """Takes faults that happened at once to the record; the error, when they are too many."""
        now = time.monotonic()
        while self._faults and self._faults[0][0] < now - self._policy.period:
            self._faults.popleft()
        changes.do(self._faults.extend, [(now, fault) for fault in faults])
        all_faults = [*(fault for _, fault in self._faults), *faults]
        limit = self._exceeded(all_faults, faults)
        return None if limit is None else RestartLimitError(limit, all_faults)

    def _exceeded(self, all_faults: Sequence[Fault], newest: Sequence[Fault]) -> str | None:
        """The limit that the newest exceed."""
        policy, period = self._policy, self._policy.period
        by_env = [sum(past.env_id == fault.env_id for past in all_faults) for fault in newest]
        if max(by_env) > policy.max_restarts:
            return f"max_restarts={policy.max_restarts} of one env in {period:g} s"
        alone = sum(not past.shared for past in all_faults)
        if policy.max_pool_restarts is not None and alone > policy.max_pool_restarts:
            return f"max_pool_restarts={policy.max_pool_restarts} in {period:g} s"
        return None

    def next_restart(self, worker: int, changes: Changes) -> float:
        """When a worker that has just failed may be restarted, of `time.monotonic`. It counts from then on."""
        restarts, now = self._restarts.setdefault(worker, deque()), time.monotonic()
        while restarts and restarts[0] < now - self._policy.period:
            restarts.popleft()
        changes.do(restarts.append, now)
        return now + self._policy.delay(len(restarts))
