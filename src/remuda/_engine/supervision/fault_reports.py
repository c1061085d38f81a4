"""Reports faults: in crash records, in the history for traces, and in the log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from remuda._engine.history.fault_history import FaultHistory
from remuda._engine.history.fault_kinds import kind_of, reason_of
from remuda._engine.running import Running
from remuda._engine.supervision.episode_progress import ProgressTracker
from remuda._engine.supervision.fault_log import FaultLog
from remuda._engine.supervision.recorder import Recorder
from remuda.errors import EnvTimeoutError, Failure, RemudaError, WorkerDiedError


class FaultReports:
    """Reports faults of envs and workers.

    Attributes:
        log: The faults that are not logged yet.
        tracker: The progress of each env.
        history: The latest faults, and states of workers.
    """

    def __init__(
        self, running: Running, tracker: ProgressTracker, recorder: Recorder | None, history: FaultHistory
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

    def hung(self, error: EnvTimeoutError) -> None:
        """Reports an env that hangs in a thread."""
        (env,) = error.env_ids
        self._record(error)
        self.history.note_fault(error.worker, env, kind_of(error), error.operation, str(error))

    def died(self, worker: int, error: RemudaError) -> None:
        """Reports the death of a worker."""
        if isinstance(error, WorkerDiedError):
            self._record(error)
        env, operation = reason_of(error, self._running.backend.workers[worker].env_ids)
        is_known = not isinstance(error, WorkerDiedError) or error.where is not None
        began_ns = self._running.workers.busy_since(worker) or None
        self.history.note_fault(
            worker, env if is_known else None, kind_of(error), operation, str(error), began_ns=began_ns
        )

    def _record(self, error: WorkerDiedError) -> None:
        """Writes the crash record of the env that caused a worker's death, if that env is known."""
        if self._recorder is None or (error.where is None and len(error.env_ids) > 1):
            return
        where = error.where or self.tracker.where(error.env_ids[0])
        self._recorder.record_death(where.env_id, kind_of(error), where, error)

    @property
    def has_unlogged(self) -> bool:
        """Whether something that has been reported is not logged yet."""
        return self.log.has_any or (self._recorder is not None and self._recorder.has_unlogged)

    def log_all(self, after_each: Callable[[], object]) -> None:
        """Logs what has been reported, and calls `after_each` after each record. Runs log handlers."""
        if self._recorder is not None:
            self._recorder.log_all(after_each)
        self.log.log_all(after_each)
