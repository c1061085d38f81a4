"""Reports faults: in crash records, in the history for traces, and in the log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from remuda._engine.running import Running
from remuda._engine.supervision.crash_recorder import CrashRecorder
from remuda._engine.supervision.episode_progress import ProgressTracker
from remuda._engine.supervision.fault_history import FaultHistory
from remuda._engine.supervision.fault_log import FaultLog
from remuda.errors import Failure, Fault, WorkerDiedError


class FaultReports:
    """Reports faults of envs and workers.

    Attributes:
        log: The faults that are not logged yet.
        tracker: The progress of each env.
        history: The latest faults, and states of workers.
    """

    def __init__(
        self, running: Running, tracker: ProgressTracker, recorder: CrashRecorder | None, history: FaultHistory
    ) -> None:
        self.log, self.tracker, self.history = FaultLog(), tracker, history
        self._running, self._recorder = running, recorder

    def of_each_slot(self, first: int, failure: Failure) -> list[Failure]:
        """Returns a copy of an env's failure for each slot of the env."""
        failures = []
        for env in self._running.layout.ids_with(first):
            operation, where = self.tracker.describe(env, failure.operation)
            failures.append(replace(failure, env_id=env, operation=operation, where=where, shared=env != first))
        return failures

    def failed(self, failures: Sequence[Failure], operation: str) -> list[Failure]:
        """Reports an env that raised in `operation`. Returns its failures, one for each slot, with crash records."""
        first = failures[0]
        if self._recorder is not None:
            failures = [self._recorder.record_failure(one) for one in failures]
        self.history.note_fault(first.worker, first.env_id, "exception", operation, str(failures[0]))
        return list(failures)

    def hung(self, fault: Fault) -> None:
        """Reports an env that hangs in a thread."""
        self._record(fault)
        self.history.note_fault(fault.worker, fault.env_id, fault.kind, fault.operation, str(fault.error))

    def died(self, cause: Fault) -> None:
        """Reports the death of a worker. `cause`: the fault of the env that has caused it, if that is known."""
        self._record(cause)
        is_known = not isinstance(cause.error, WorkerDiedError) or cause.error.where is not None
        env, began_ns = cause.env_id if is_known else None, self._running.workers.busy_since(cause.worker) or None
        self.history.note_fault(cause.worker, env, cause.kind, cause.operation, str(cause.error), began_ns=began_ns)

    def _record(self, cause: Fault) -> None:
        """Writes the crash record of the env that caused a worker's death, if that env is known."""
        error = cause.error
        if self._recorder is None or not isinstance(error, WorkerDiedError):
            return
        if error.where is None and len(error.env_ids) > 1:
            return
        self._recorder.record_death(cause.env_id, cause.kind, error.where or cause.where, error)

    @property
    def has_unlogged(self) -> bool:
        """Whether something that has been reported is not logged yet."""
        return self.log.has_any or (self._recorder is not None and self._recorder.has_unlogged)

    def log_all(self, after_each: Callable[[], object]) -> None:
        """Logs what has been reported, and calls `after_each` after each record. Runs log handlers."""
        if self._recorder is not None:
            self._recorder.log_all(after_each)
        self.log.log_all(after_each)
