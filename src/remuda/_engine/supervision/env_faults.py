"""Applies a FaultPolicy to envs that raise, or that hang in threads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from remuda import _core
from remuda._engine.calls import Addressee, OnlyFailures
from remuda._engine.options.fault_policy import FaultPolicy
from remuda._engine.running import Running
from remuda._engine.supervision.descriptions import Descriptions
from remuda._engine.supervision.fault_reports import FaultReports
from remuda._engine.supervision.faults import Faults
from remuda._engine.supervision.restart_budget import RestartBudget
from remuda._engine.supervision.resumption import Resumption
from remuda._engine.supervision.worker_faults import WorkerFaults
from remuda._wire.pickling import dump
from remuda._wire.requests import CloseEnv
from remuda.errors import EnvError, EnvTimeoutError, Failure, Fault, RemudaError, RestartLimitError


class EnvFaults:
    """Applies a FaultPolicy to envs that raise, or that hang in threads."""

    def __init__(
        self,
        policy: FaultPolicy,
        running: Running,
        faults: Faults,
        descriptions: Descriptions,
        reports: FaultReports,
        budget: RestartBudget,
        workers: WorkerFaults,
        addressees: dict[int, Addressee | None],
        resumption: Resumption,
    ) -> None:
        self._policy, self._faults, self._descriptions, self._reports = policy, faults, descriptions, reports
        self._budget, self._workers = budget, workers
        self._running, self._backend, self._layout = running, running.backend, running.layout
        self._addressees, self._resumption = addressees, resumption

    def failed(self, slot: int, failure: Failure) -> None:
        """Handles an env that raised. `slot`: the slot of the env, or the first slot of a vector env."""
        env = failure.env_id
        assert env is not None
        failures = self._reports.of_each_slot(env, failure)
        if self._workers.is_ended(failure.worker):  # the coming death of the worker settles the slot
            return self._go_with_worker(slot, failures)
        if self._running.is_closed or self._faults.is_lost(env):
            return self._running.hub.settle(slot, _core.Fate.LOST)
        is_interrupt = self._faults.is_interrupt(failure)
        if not is_interrupt:
            failures = self._reports.failed(failures, failure.operation)
        if is_interrupt or not self._policy.restarts:
            if not is_interrupt:
                self._running.slots.count_fault(env)
            return self._faults.add_failures(failures, range(slot, slot + len(failures)))
        if self._layout.vector_size is not None:
            return self._go_with_worker(slot, failures)
        is_rebuild = failure.operation == "build"
        if is_rebuild and self._backend.processes is not None and not self._policy.reports_resets:
            self._running.hub.settle(slot, _core.Fate.DYING)  # its successor repeats the command
            return self.rebuild_failed(env, failures[0])
        fault = self._descriptions.fault(env, EnvError([failures[0]]), failures[0].operation)
        # The worker tries a failed rebuild again before the env's next reset.
        return self._rebuild([slot], fault, is_due=not is_rebuild)

    def _go_with_worker(self, slot: int, failures: Sequence[Failure]) -> None:
        """Ends the worker of a vector env that raised. The worker's death settles the slot."""
        self._workers.close_for(failures[0].worker, failures)
        self._running.hub.settle(slot, _core.Fate.DYING)

    def lost(self, env: int, error: RemudaError, *, awaited: bool) -> None:
        """Handles an env that its shard has given up. `awaited`: its slot waits for a result."""
        env_ids = self._layout.ids_with(env)
        if isinstance(error, RestartLimitError):
            self._faults.add_loss(env_ids, error)
        elif not self._running.is_closed:
            self._faults.add_death(env_ids, error, awaited=awaited)

    def renamed(self, failure: Failure) -> Failure:
        """Returns the failure of a call, with the operation renamed if the pool's face renames operations."""
        tracker = self._descriptions.tracker
        if failure.env_id is None or tracker.rename is None:
            return failure
        operation, where = tracker.describe(failure.env_id, failure.operation)
        return replace(failure, operation=operation, where=where)

    # -- rebuilds ------------------------------------------------------------------------------------------

    def _rebuild(self, waiting: Sequence[int], fault: Fault, *, is_due: bool = True) -> None:
        """Makes a worker rebuild an env, if `is_due`. `waiting`: its slot, if that waits for a result; else empty."""
        ended = self._resumption.begin(fault)
        if not self._budget.charge([ended or fault], "it is rebuilt" + (", and resumes" if ended is None else "")):
            return self._drop(waiting)
        self._build_again(ended or fault, is_due=is_due, resumes=ended is None)
        return None

    def _build_again(self, fault: Fault, *, is_due: bool = True, resumes: bool = False) -> None:
        env, worker = fault.env_id, fault.worker
        if is_due and self._policy.reports_resets and not resumes:  # its next reset builds it
            self._running.hub.instruct(_core.Op.MESSAGE, worker, env, dump(CloseEnv()), self._addressees)
        elif is_due:
            rebuild = OnlyFailures(partial(self.rebuild_failed, env))
            self._running.hub.instruct(_core.Op.REBUILD, worker, env, None, self._addressees, rebuild)
        if resumes:
            self._resumption.send(fault, partial(self.rebuild_failed, env))
        self._workers.prepare_again(worker, [env])
        if (slot := self._running.slots.slot_of(env)) is not None:
            self._resumption.settle(slot, [fault], resumes=resumes)

    def not_resumed(self, slot: int, failure: Failure) -> None:
        """Handles a command to an env whose episode could not be played again. `failure`: has the reason."""
        env = failure.env_id
        assert env is not None
        if self._workers.is_ended(failure.worker):
            return self._running.hub.settle(slot, _core.Fate.DYING)
        if self._running.is_closed or self._faults.is_lost(env):
            return self._running.hub.settle(slot, _core.Fate.LOST)
        fault = self._resumption.given_up(env, failure.message)
        return self._build_again(fault)

    def rebuild_failed(self, env: int, failure: Failure) -> None:
        """Handles an env that its worker could not rebuild. Kills a process; a thread retries before the next reset."""
        if self._running.is_closed:
            return
        if self._faults.is_interrupt(failure):
            self._faults.add_failure(failure)
        elif self._backend.processes is not None:
            self._workers.kill_for(failure.worker, [failure])
        else:
            fault = self._descriptions.fault(env, EnvError([failure]), "build")
            self._budget.charge([fault], "it is rebuilt before its next reset")

    def _drop(self, waiting: Sequence[int]) -> None:
        for slot in waiting:
            self._running.hub.settle(slot, _core.Fate.LOST)

    # -- envs that hang in threads -------------------------------------------------------------------------

    def hang_of(self, failure: Failure) -> EnvTimeoutError | None:
        """Returns the error of an env whose thread was left, if `failure` is its first failure since then."""
        if self._backend.threads is None or failure.env_id is None:
            return None
        return self._backend.threads.hung(failure.worker).pop(failure.env_id, None)

    def hung(self, waiting: Sequence[int], error: EnvTimeoutError) -> None:
        """Handles an env that still runs in a thread that was left. `waiting`: see `_rebuild`."""
        (env,) = error.env_ids
        if self._running.is_closed:
            return self._drop(waiting)
        fault = self._descriptions.fault(env, error, error.operation)
        self._reports.hung(fault)
        if self._policy.restarts and self._policy.abandon_hung_threads:
            return self._rebuild(waiting, fault)
        self._running.slots.count_fault(env)
        awaited = bool(waiting) or self._running.slots.slot_of(env) is None  # no command to a spare would report it
        self._faults.add_death([env], error, awaited=awaited)
        return self._drop(waiting)
