"""Counts faults against the restart limits of a `FaultPolicy`, as in Erlang/OTP's supervisors."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence

from remuda._engine.options.fault_policy import FaultPolicy
from remuda._engine.running import Running
from remuda._engine.supervision.fault_log import restart_in_words
from remuda._engine.supervision.fault_reports import FaultReports
from remuda._engine.supervision.faults import Faults
from remuda.errors import Fault, RestartLimitError


class RestartBudget:
    """Counts faults against the restart limits, and decides when a worker is started again."""

    def __init__(self, policy: FaultPolicy, running: Running, faults: Faults, reports: FaultReports) -> None:
        self._quota, self._policy = Quota(policy), policy
        self._running, self._layout = running, running.layout
        self._faults, self._reports = faults, reports

    def charge_worker(self, faults: Sequence[Fault], *, at_start: bool = False, resumes: bool = False) -> float | None:
        """Counts the failure of a worker. `faults`: those of all its envs that are not lost.

        `at_start`: whether its start failed, which the limits always count.
        `resumes`: whether episodes are resumed.

        Returns: The time of the restart, of `time.monotonic`; None if its envs are now lost.
        """
        is_free = self._policy._reports(faults[0].operation) and not at_start
        at = time.monotonic() if is_free else self._quota.next_restart(faults[0].worker)
        then = restart_in_words(at) + (", and resumes" if resumes else "")
        return at if self.charge(faults, then, at_start=at_start) else None

    def charge(self, faults: Sequence[Fault], then: str, *, at_start: bool = False) -> bool:
        """Counts faults that occurred together. Returns False, and marks their envs as lost, if a limit is exceeded.

        `then`: the reaction if they do not, as text for the log.
        """
        each = [of_env[0] for of_env in self._layout.by_env(faults)]  # the faults of a vector env count as one
        counted = [fault for fault in each if at_start or self._policy._counts(fault.operation)]
        limit = self._quota.charge(counted) if counted else None
        for fault in each:
            if not fault.shared:
                self._running.slots.count_fault(fault.env_id)
            why = "" if fault.not_resumed is None else f"; its episode is not resumed: {fault.not_resumed}"
            self._reports.log.add(fault, then + why if limit is None else "it is no longer restarted")
        if limit is not None:
            self._faults.add_loss([fault.env_id for fault in faults], limit)
        return limit is None


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
