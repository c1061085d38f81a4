"""Counts faults of envs against the restart limits of a `FaultPolicy`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from remuda import _core
from remuda._backends.base import worker_of
from remuda._engine.history.fault_kinds import kind_of, reason_of
from remuda._engine.options.fault_policy import FaultPolicy
from remuda._engine.running import Running
from remuda._engine.supervision.fault_log import restart_in_words
from remuda._engine.supervision.fault_reports import FaultReports
from remuda._engine.supervision.faults import Faults
from remuda._engine.supervision.quota import Quota
from remuda.errors import Fault, RemudaError


class RestartBudget:
    """Makes a `Fault` for each env that failed, and counts it against the restart limits."""

    def __init__(self, policy: FaultPolicy, running: Running, faults: Faults, reports: FaultReports) -> None:
        self._quota, self._policy = Quota(policy), policy
        self._running, self._backend, self._layout = running, running.backend, running.layout
        self._faults, self._reports = faults, reports

    def env_fault(self, env: int, operation: str, error: RemudaError) -> Fault:
        """Returns the `Fault` of an env that raised, or hangs in a thread."""
        return self._fault(env, kind_of(error), operation, error, shared=False)

    def charge_worker(
        self, worker: int, error: RemudaError, *, at_start: bool = False
    ) -> tuple[list[Fault], float | None]:
        """Counts the failure of a worker as a fault of each of its envs, lost ones excepted.

        `at_start`: whether its start failed, which the limits count even if the pool reports faults of resets.

        Returns: The faults, and the time of the restart, of `time.monotonic`; None instead if its envs are now lost.
        """
        envs = self._faults.living(self._backend.workers[worker].env_ids)
        reason, operation = reason_of(error, envs)
        faults = [self._fault(env, kind_of(error), operation, error, shared=env != reason) for env in envs]
        is_free = self._policy._reports(operation) and not at_start
        at = time.monotonic() if is_free else self._quota.next_restart(worker)
        return faults, at if self.charge(faults, restart_in_words(at), at_start=at_start) else None

    def charge(self, faults: Sequence[Fault], then: str, *, at_start: bool = False) -> bool:
        """Counts faults that occurred together. Returns False, and marks their envs as lost, if a limit is exceeded.

        `then`: the reaction if they do not, as text for the log.
        """
        each = [of_env[0] for of_env in self._layout.by_env(faults)]  # the faults of a vector env count as one
        counted = [fault for fault in each if at_start or not self._policy._reports(fault.operation)]
        limit = self._quota.charge(counted) if counted else None
        for fault in each:
            if not fault.shared:
                self._running.slots.count_fault(fault.env_id)
            self._reports.log.add(fault, then if limit is None else "it is no longer restarted")
        if limit is not None:
            self._faults.add_loss([fault.env_id for fault in faults], limit)
        return limit is None

    def fate_of(self, fault: Fault) -> _core.Fate:
        """Returns the fate of an env that has failed and is built again."""
        # A reset that had not begun, because its worker died before, is not reported: it is sent again.
        is_reported = self._policy._reports(fault.operation) and not fault.shared
        return _core.Fate.REPORTED if is_reported else _core.Fate.FAILED

    def _fault(self, env: int, kind: Any, operation: str, error: RemudaError, *, shared: bool) -> Fault:
        worker = worker_of(self._backend.workers, env)
        shard, node = getattr(error, "shard", None), getattr(error, "node", None)  # of a ShardDiedError
        return Fault(env, worker.index, kind, operation, self._reports.tracker.where(env), error, shared, shard, node)
