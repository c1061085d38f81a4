"""Restart supervision: applies a FaultPolicy to envs that raise, and to workers that die or are late."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from remuda import _core
from remuda._backends.base import Threads
from remuda._engine.batches.infos import InfoColumns
from remuda._engine.calls import Addressee
from remuda._engine.changes import Changes
from remuda._engine.history.fault_history import FaultHistory
from remuda._engine.history.fault_kinds import kind_of, reason_of
from remuda._engine.history.worker_state import ABSENT, WorkerState
from remuda._engine.options.fault_policy import FaultPolicy
from remuda._engine.running import Running
from remuda._engine.supervision.deaths import DeathReports, Raised
from remuda._engine.supervision.episode_progress import ProgressTracker
from remuda._engine.supervision.fault_log import FaultLog
from remuda._engine.supervision.fault_resolution import FaultResolution
from remuda._engine.supervision.faults import Faults
from remuda._engine.supervision.recorder import Recorder
from remuda._engine.supervision.replacements import Replacements
from remuda._engine.supervision.restart_budget import RestartBudget
from remuda._engine.supervision.worker_states import WorkerStates
from remuda._wire.pickling import Buffers
from remuda._worker.reset_defaults import ResetDefaults
from remuda.errors import (
    CorruptReplyError,
    EnvError,
    EnvTimeoutError,
    Failure,
    Fault,
    RemudaError,
    RestartLimitError,
    WorkerDiedError,
)


class Supervisor:
    """Applies a FaultPolicy to the events that `Exchange` reports, and settles slots that wait for a failed env.

    Attributes:
        addressees: The receivers of the answers to messages, by sequence; None: the answer has no receiver.
        resolution: Answers, or repeats, the commands of orphaned slots.
        replacements: Starts the successors of workers.
        closing: Whether the pool is closing, so that nothing is restarted.
    """

    def __init__(
        self,
        policy: FaultPolicy,
        running: Running,
        start_timeout: float | None,
        faults: Faults,
        tracker: ProgressTracker,
        infos: InfoColumns,
        defaults: ResetDefaults,
        recorder: Recorder | None,
        history: FaultHistory,
    ) -> None:
        self._policy = policy
        self._running, self._backend, self._layout = running, running.backend, running.layout
        self._faults, self._tracker, self._recorder = faults, tracker, recorder
        self._budget = RestartBudget(policy, running, faults, tracker)
        self._deaths = DeathReports(policy, running, start_timeout, tracker)
        self._history = history
        self._lives = WorkerStates(len(running.backend.workers), history)
        self.addressees: dict[int, Addressee | None] = {}
        self.replacements = Replacements(
            running,
            self._lives,
            self._budget,
            start_timeout,
            infos,
            defaults,
            faults,
            self.addressees,
        )
        self.resolution = FaultResolution(running, faults)
        self.closing = False
        build_timeout = start_timeout if self._layout.renews_workers else None  # only processes can be killed if late
        limits = (policy.reset_timeout, policy.step_timeout, policy.call_timeout, build_timeout)
        self._running.workers.set_deadlines(*[int((limit or 0) * 1e9) for limit in limits])

    # -- workers -------------------------------------------------------------------------------------------

    def takes_messages(self, worker: int) -> bool:
        """Whether a message would reach a worker or its successor: not while the worker closes its env."""
        return self._lives.state(worker) is not WorkerState.CLOSING

    def has_process(self, worker: int) -> bool:
        """Whether a worker can be sent the command to close its envs."""
        return self._lives.state(worker) in {WorkerState.RUNNING, WorkerState.KILLED}

    def resume(self) -> None:
        """Continues replacements that an interrupt has stopped in an earlier call."""
        if self._running.workers.has_news:
            self.replacements.resume()

    def look(self) -> None:
        """Continues all replacements of workers as far as possible without waiting."""
        if not self._running.workers.has_news:
            return
        if self.closing:
            self._running.workers.listen([], 0)
        else:
            self.replacements.look()

    def close(self) -> None:
        """Stops all replacements of workers."""
        self.closing = True
        self._running.workers.set_deadlines(0, 0, 0, 0)
        self._running.workers.listen([], 0)
        self.replacements.stop()

    # -- logs ----------------------------------------------------------------------------------------------

    @property
    def fault_log(self) -> FaultLog:
        """The faults that are not logged yet."""
        return self._budget.log

    @property
    def has_records(self) -> bool:
        """Whether `log` has anything to log."""
        return bool(self._budget.log) or (self._recorder is not None and bool(self._recorder.sayings))

    def log(self) -> None:
        """Logs faults. If a log handler raises, this raises too, and the next call to the pool logs the rest."""
        try:
            if self._recorder is not None:
                self._recorder.sayings.tell()
            self._budget.log.log_all()
        except BaseException:
            self._running.workers.raise_news()
            raise

    # -- deaths --------------------------------------------------------------------------------------------

    def worker_died(self, index: int, orphaned: Sequence[int], awaited: bool, changes: Changes) -> RemudaError:
        """Handles a dead worker. Returns the error for its unanswered calls.

        `awaited`: a call waits for its answer.
        """
        match self._lives.state(index):
            case WorkerState.CLOSING if not self.closing:
                return self._closed_to_be_replaced(index, orphaned, changes)
            case WorkerState.GIVEN_UP:
                self._lives.plan(index, WorkerState.LOST, changes)
                return self._lost(index, orphaned, changes, awaited=False)
            case WorkerState.LOST:  # the worker was lost before, and was sent another command
                return self._lost(index, orphaned, changes, awaited=True)
            case _ if not self._faults.living(self._backend.workers[index].env_ids):  # its envs were lost before
                self._lives.plan(index, WorkerState.LOST, changes)
                return self._lost(index, orphaned, changes, awaited=True)
            case _:
                return self._died(index, orphaned, awaited, changes)

    def _closed_to_be_replaced(self, index: int, orphaned: Sequence[int], changes: Changes) -> RemudaError:
        self._replace(index, time.monotonic(), changes)
        for slot in orphaned:
            self.resolution.resend(slot, changes)
        return self._deaths.of_closing(index)

    def _lost(self, index: int, orphaned: Sequence[int], changes: Changes, *, awaited: bool) -> RemudaError:
        first = self._backend.workers[index].env_ids[0]
        if awaited:
            self._faults.raise_again(first, changes)
        self._drop(orphaned, changes)
        return self._faults.lost(first)

    def _died(self, index: int, orphaned: Sequence[int], awaited: bool, changes: Changes) -> RemudaError:
        cause = self._lives[index].cause or self._backend.workers[index].cause_of_death
        error = self._deaths.error(index, orphaned, cause, awaited=awaited, closing=self.closing)
        self._record(index, error)
        self._note_death(index, error, changes)
        if self.closing or not self._policy.restarts:
            self._lose(index, orphaned, error, changes)
        else:
            self._restart(index, orphaned, error, changes)
        return error

    def _note_death(self, index: int, error: RemudaError, changes: Changes) -> None:
        if self.closing:
            return
        env, operation = reason_of(error, self._backend.workers[index].env_ids)
        is_known = not isinstance(error, WorkerDiedError) or error.where is not None
        began_ns = self._running.workers.busy_since(index) or None
        self._history.plan_fault(
            index, env if is_known else None, kind_of(error), operation, str(error), changes, began_ns=began_ns
        )

    def _lose(self, index: int, orphaned: Sequence[int], error: RemudaError, changes: Changes) -> None:
        env_ids = self._backend.workers[index].env_ids
        is_spare = self._running.slots.slot_of(env_ids[0]) is None  # no command to a spare would report its loss
        awaited = bool(orphaned) or (is_spare and not self.closing)
        self._faults.add_death(env_ids, error, changes, awaited=awaited)
        if not self.closing:
            changes.do(self._running.slots.count_fault, reason_of(error, list(env_ids))[0])
        self._lives.plan(index, WorkerState.LOST, changes)
        self._drop(orphaned, changes)

    def _restart(self, index: int, orphaned: Sequence[int], error: RemudaError, changes: Changes) -> None:
        faults, at = self._budget.charge_worker(index, error, changes)
        if at is None:
            self._lives.plan(index, WorkerState.LOST, changes)
            return self._drop(orphaned, changes)
        self.replacements.note_outage(index, changes)
        self._replace(index, at, changes)
        for env_faults in self._layout.by_env(faults):
            slots = [slot for fault in env_faults if (slot := self._running.slots.slot_of(fault.env_id)) is not None]
            if not slots:
                continue  # a spare has no episode to settle
            if slots[0] in orphaned:
                self.resolution.settle(slots, env_faults, changes)
            else:
                self.resolution.settle_idle(slots, env_faults, changes)
        return None

    def _replace(self, index: int, at: float, changes: Changes) -> None:
        rebuild = _Rebuild(self, self._backend.workers[index].env_ids[0])
        self.replacements.replace(index, at, rebuild, changes)

    def _record(self, index: int, error: RemudaError) -> None:
        """Writes the crash record of the env that caused a worker's death, if that env is known."""
        envs = self._backend.workers[index].env_ids
        if self._recorder is None or self.closing or not isinstance(error, WorkerDiedError):
            return
        if error.where is None and len(envs) > 1:
            return
        where = error.where or self._tracker.where(envs[0])
        self._recorder.record_death(where.env_id, kind_of(error), where, error)

    def _drop(self, orphaned: Iterable[int], changes: Changes) -> None:
        for slot in orphaned:
            changes.do(self._running.hub.resolve, slot, _core.Outcome.DROP)

    # -- workers that are killed or replaced ---------------------------------------------------------------

    def worker_late(self, worker: int, op: _core.Op | None, task: int = 0) -> None:
        """Kills a worker that missed the deadline of `op`, or sent invalid data (op None). May be called again.

        A thread cannot be killed: if an env hangs in it, in the task `task`, another thread takes its place.
        """
        if op is not None and self._backend.threads is not None:
            return self._relieve(self._backend.threads, worker, op, task)
        stack = ""
        if op is not None and self._lives.state(worker) is WorkerState.RUNNING:
            stack = self._running.processes.last_stack(worker)
        return self._kill(worker, CorruptReplyError if op is None else self._deaths.missed_deadline(op, stack))

    def _relieve(self, threads: Threads, worker: int, op: _core.Op, task: int) -> None:
        self._running.workers.forgive(worker)
        _, env = self._running.workers.doing(worker)
        if env is not None:
            threads.relieve(worker, task, self._deaths.hang(worker, env, op, threads.stack(worker)))

    def _kill(self, worker: int, cause: Callable[..., RemudaError]) -> None:
        """Kills a worker. If an interrupt makes the pool call this again, the first cause counts."""
        state = self._lives.state(worker)
        if state not in ABSENT:
            self._running.processes.kill(worker)
        if state is WorkerState.RUNNING:
            self._lives.enter(worker, WorkerState.KILLED, cause=cause)

    def renew_worker(self, worker: int, changes: Changes, *, has_grown: bool) -> None:
        """Makes a worker with one env close the env and end, so that a successor takes the worker's place.

        The env has run its number of episodes, or (`has_grown`) the worker takes more memory than it may.
        """
        if self._lives.state(worker) is not WorkerState.RUNNING:
            return
        if has_grown:
            changes.do(self._running.workers.count_memory_renewal, worker)
        self.replacements.close_worker(worker, changes)

    # -- envs that raise -----------------------------------------------------------------------------------

    def env_failed(self, slot: int, failure: Failure, changes: Changes) -> None:
        """Handles an env that raised. `slot`: the slot of the env, or the first slot of a vector env."""
        env = failure.env_id
        assert env is not None
        is_rebuild = failure.operation == "build"
        failures = self._of_each_slot(env, failure)
        if self._lives.state(failure.worker) is WorkerState.KILLED:  # the coming death of the worker settles the slot
            return self._go_with_worker(slot, failures, changes)
        if self.closing or self._faults.is_lost(env):
            return changes.do(self._running.hub.resolve, slot, _core.Outcome.DROP)
        is_interrupt = self._faults.is_interrupt(failure)
        if self._recorder is not None and not is_interrupt:
            failures = [self._recorder.record_failure(one) for one in failures]
        if not is_interrupt:
            text = str(failures[0])
            self._history.plan_fault(failure.worker, env, "exception", failure.operation, text, changes)
        if is_interrupt or not self._policy.restarts:
            if not is_interrupt:
                changes.do(self._running.slots.count_fault, env)
            return self._faults.add_failures(failures, range(slot, slot + len(failures)), changes)
        if self._layout.vector_size is None:
            return self._restart_env(slot, env, failures[0], changes, is_rebuild=is_rebuild)
        self._kill(failure.worker, Raised([]))  # only a new worker can build another vector env
        return self._go_with_worker(slot, failures, changes)

    def env_lost(self, env: int, error: RemudaError, changes: Changes, *, awaited: bool) -> None:
        """Handles an env that its shard has given up. `awaited`: its slot waits for a result."""
        env_ids = self._layout.ids_with(env)
        if isinstance(error, RestartLimitError):
            self._faults.add_loss(env_ids, error, changes)
        elif not self.closing:
            self._faults.add_death(env_ids, error, changes, awaited=awaited)

    def _of_each_slot(self, first: int, failure: Failure) -> list[Failure]:
        """Returns a copy of an env's failure for each slot of the env."""
        failures = []
        for env in self._layout.ids_with(first):
            operation, where = self._tracker.describe(env, failure.operation)
            failures.append(replace(failure, env_id=env, operation=operation, where=where, shared=env != first))
        return failures

    def _go_with_worker(self, slot: int, failures: Sequence[Failure], changes: Changes) -> None:
        cause = self._lives[failures[0].worker].cause
        if isinstance(cause, Raised):
            changes.do(cause.failures.extend, failures)
        changes.do(self._running.hub.resolve, slot, _core.Outcome.RESEND)

    def _restart_env(self, slot: int, env: int, failure: Failure, changes: Changes, *, is_rebuild: bool) -> None:
        if is_rebuild and self._backend.processes is not None:
            changes.do(self._running.hub.resolve, slot, _core.Outcome.RESEND)  # its successor repeats the command
            return self.rebuild_failed(env, failure, changes)
        fault = self._budget.env_fault(env, failure.operation, EnvError([failure]))
        # The worker tries a failed rebuild again before the env's next reset.
        return self._rebuild_env([slot], fault, changes, is_due=not is_rebuild)

    def _rebuild_env(self, waiting: Sequence[int], fault: Fault, changes: Changes, *, is_due: bool = True) -> None:
        """Makes a worker rebuild an env, if `is_due`. `waiting`: its slot, if that waits for a result; else empty."""
        env, worker = fault.env_id, fault.worker
        if not self._budget.charge([fault], "it is rebuilt", changes):
            return self._drop(waiting, changes)
        if is_due:
            rebuild = _Rebuild(self, env)
            changes.do(self._running.hub.instruct, _core.Op.REBUILD, worker, env, None, self.addressees, rebuild)
        self.replacements.prepare_again(worker, [env], changes)
        if waiting:
            return self.resolution.settle(waiting, [fault], changes)
        idle = self._running.slots.slot_of(env)
        return None if idle is None else self.resolution.settle_idle([idle], [fault], changes)

    def hang_of(self, failure: Failure, changes: Changes) -> EnvTimeoutError | None:
        """Returns the error of an env whose thread was left, if `failure` is its first failure since then."""
        if self._backend.threads is None or failure.env_id is None:
            return None
        hung = self._backend.threads.hung(failure.worker)
        if (error := hung.get(failure.env_id)) is not None:
            changes.do(hung.pop, failure.env_id, None)
        return error

    def env_hung(self, waiting: Sequence[int], error: EnvTimeoutError, changes: Changes) -> None:
        """Handles an env that still runs in a thread that was left. `waiting`: see `_rebuild_env`."""
        (env,) = error.env_ids
        if self.closing:
            return self._drop(waiting, changes)
        self._record(error.worker, error)
        self._history.plan_fault(error.worker, env, kind_of(error), error.operation, str(error), changes)
        if self._policy.restarts and self._policy.abandon_hung_threads:
            return self._rebuild_env(waiting, self._budget.env_fault(env, error.operation, error), changes)
        changes.do(self._running.slots.count_fault, env)
        awaited = bool(waiting) or self._running.slots.slot_of(env) is None  # no command to a spare would report it
        self._faults.add_death([env], error, changes, awaited=awaited)
        return self._drop(waiting, changes)

    def rebuild_failed(self, env: int, failure: Failure, changes: Changes) -> None:
        """Handles an env that its worker could not rebuild. Kills a process; a thread retries before the next reset."""
        if self.closing:
            return
        error = EnvError([failure])
        if self._faults.is_interrupt(failure):
            self._faults.add_failure(failure, changes)
        elif self._backend.processes is not None:
            self._kill(failure.worker, lambda **_: error)
        else:
            fault = self._budget.env_fault(env, "build", error)
            self._budget.charge([fault], "it is rebuilt before its next reset", changes)

    def call_failed(self, failure: Failure) -> Failure:
        """Returns the failure of a call, with the operation renamed if the pool's face renames operations."""
        if failure.env_id is None or not self._tracker.renames:
            return failure
        operation, where = self._tracker.describe(failure.env_id, failure.operation)
        return replace(failure, operation=operation, where=where)


@dataclass(frozen=True)
class _Rebuild:
    """Receives the answer of a worker that rebuilds an env."""

    supervisor: Supervisor
    env: int

    def answer(self, sequence: int, parts: Buffers) -> None:
        """Does nothing, because the env was rebuilt."""

    def fail(self, sequence: int, failure: Failure, changes: Changes) -> None:
        self.supervisor.rebuild_failed(self.env, failure, changes)

    def abandon(self, error: RemudaError) -> None:
        """Does nothing, because the death of the worker is handled as a fault of its own."""
