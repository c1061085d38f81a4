"""Restart limits: the number of faults that are allowed within a period, as in Erlang/OTP's supervisors."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence

from remuda._engine.options.fault_policy import FaultPolicy
from remuda.errors import Fault, RestartLimitError


class Quota:
    """Counts the faults of envs and the restarts of workers in the last `FaultPolicy.period` seconds."""

    def __init__(self, policy: FaultPolicy) -> None:
        self._policy = policy
        self._faults: deque[tuple[float, Fault]] = deque()  # the time of each fault, and the fault.
        self._restarts: dict[int, deque[float]] = {}  # the times of each worker's failures, by worker

    def charge(self, faults: Sequence[Fault]) -> RestartLimitError | None:
        """Counts faults that occurred together. Returns the error to raise if a limit is exceeded, else None."""
        now = time.monotonic()
        while self._faults and self._faults[0][0] < now - self._policy.period:
            self._faults.popleft()
        self._faults.extend([(now, fault) for fault in faults])
        all_faults = [fault for _, fault in self._faults]
        limit = self._exceeded(all_faults, faults)
        return None if limit is None else RestartLimitError(limit, all_faults)

    def _exceeded(self, all_faults: Sequence[Fault], newest: Sequence[Fault]) -> str | None:
        """Returns the limit that the newest faults exceed, as text; None if they exceed no limit."""
        policy, period = self._policy, self._policy.period
        by_env = [sum(past.env_id == fault.env_id for past in all_faults) for fault in newest]
        if max(by_env) > policy.max_restarts:
            return f"max_restarts={policy.max_restarts} of one env in {period:g} s"
        alone = sum(not past.shared for past in all_faults)
        if policy.max_pool_restarts is not None and alone > policy.max_pool_restarts:
            return f"max_pool_restarts={policy.max_pool_restarts} in {period:g} s"
        return None

    def next_restart(self, worker: int) -> float:
        """Counts a failure of a worker. Returns the time of the worker's restart, of `time.monotonic`."""
        restarts, now = self._restarts.setdefault(worker, deque()), time.monotonic()
        while restarts and restarts[0] < now - self._policy.period:
            restarts.popleft()
        delay = self._policy.delay(len(restarts))
        restarts.append(now)
        return now + delay
