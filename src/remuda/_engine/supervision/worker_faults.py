"""Applies a FaultPolicy to workers that die or are late, and replaces them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from remuda import _core
from remuda._backends.base import Threads
from remuda._engine.batches.infos import InfoColumns
from remuda._engine.calls import Addressee, OnlyFailures
from remuda._engine.history.fault_kinds import reason_of
from remuda._engine.history.worker_state import WorkerState
from remuda._engine.options.fault_policy import FaultPolicy
from remuda._engine.running import Running
from remuda._engine.supervision.deaths import DeathReports
from remuda._engine.supervision.fault_reports import FaultReports
from remuda._engine.supervision.faults import Faults
from remuda._engine.supervision.preparations import Preparations
from remuda._engine.supervision.restart_budget import RestartBudget
from remuda._engine.supervision.successors import Successors
from remuda._engine.supervision.worker_states import WorkerStates
from remuda._wire.requests import RememberedCalls
from remuda.errors import ClosedError, CorruptReplyError, EnvError, Failure, RemudaError

_CLOSED = "the pool was closed before all answers had come"
_CLOSING = 5.0  # the seconds that a worker has to close an env that is renewed


class WorkerFaults:
    """Applies a FaultPolicy to workers that die, are late, or must be renewed.

    Commands and messages for a worker that is replaced wait in a new port until its successor reads them.

    Attributes:
        remembered, preparations: The lasting calls, and the resets in advance, that successors receive again.
        closing: Whether the pool is closing, so that nothing is restarted.
    """

    def __init__(
        self,
        policy: FaultPolicy,
        running: Running,
        start_timeout: float | None,
        faults: Faults,
        reports: FaultReports,
        budget: RestartBudget,
        infos: InfoColumns,
        addressees: dict[int, Addressee | None],
    ) -> None:
        """Keeps the objects of the pool that successors need.

        Args:
            policy, running, start_timeout, faults, reports, budget: Those of the pool.
            infos: The columns of infos so far.
            addressees: The receivers of answers, by the sequence of the message.
        """
        self.remembered, self.preparations, self.closing = RememberedCalls(), Preparations(faults), False
        self._policy, self._faults, self._reports, self._budget = policy, faults, reports, budget
        self._infos, self._addressees = infos, addressees
        self._running, self._backend, self._layout = running, running.backend, running.layout
        self._states = WorkerStates(len(running.backend.workers), reports.history)
        self._deaths = DeathReports(policy, running, start_timeout, reports.tracker)
        self.successors: Successors | None = None
        if running.backend.processes is not None:
            self.successors = Successors(running.backend.processes, start_timeout, running.workers.supervision.wake)
            running.threads.append(self.successors)
        self._started = [0] * len(running.backend.workers)  # the number of successors of each worker so far
        build_timeout = start_timeout if self._layout.renews_workers else None  # only processes can be killed if late
        closes = policy.renew_every is not None or self._layout.max_memory > 0 or self._layout.vector_size is not None
        limits = policy.reset_timeout, policy.step_timeout, policy.call_timeout, build_timeout, closes and _CLOSING
        running.workers.set_deadlines(*[int((limit or 0) * 1e9) for limit in limits])

    def takes_messages(self, worker: int) -> bool:
        """Whether a message would reach a worker or its successor: not while the worker closes its env."""
        return self._states[worker] is not WorkerState.CLOSING

    def has_process(self, worker: int) -> bool:
        """Whether a worker can be sent the command to close its envs."""
        return self._states[worker] in {WorkerState.RUNNING, WorkerState.KILLED}

    def is_ended(self, worker: int) -> bool:
        """Whether the pool ends a worker for a fault, and has not noted its death yet."""
        return self._states.cause(worker) is not None

    def close(self) -> None:
        """Makes later decisions drop everything. Workers without a process have no successor."""
        self.closing = True
        self._running.workers.set_deadlines(0, 0, 0, 0, 0)
        for worker in range(len(self._backend.workers)):
            if self._states[worker] is WorkerState.ABSENT:
                self._states.enter(worker, WorkerState.LOST)
                dead = self._running.hub.end(worker)
                self._drop(dead.orphaned)
                self._abandon(dead.unanswered, ClosedError(_CLOSED))

    # -- deaths --------------------------------------------------------------------------------------------

    def died(self, worker: int) -> None:
        """Handles a dead worker. Its earlier messages were handled before."""
        dead = self._running.hub.end(worker)
        self._abandon(dead.unanswered, self._on_death(worker, dead.orphaned))

    def break_all(self, error: RemudaError) -> None:
        """Ends all workers and calls, after a decision has failed."""
        self._abandon(self._running.hub.break_all(), error)
        for worker in self._backend.workers:
            if self._states[worker.index] is WorkerState.LOST:
                continue
            self._states.enter(worker.index, WorkerState.LOST)
            if self._backend.processes is not None:
                self._backend.processes.kill(worker.index)

    def _abandon(self, unanswered: Iterable[int], error: RemudaError) -> None:
        """Ends the calls that a dead worker has not answered."""
        for sequence in unanswered:
            if (addressee := self._addressees.pop(sequence, None)) is not None:
                addressee.abandon(error)
                self._faults.note_heard(error)

    def _on_death(self, worker: int, orphaned: Sequence[int]) -> RemudaError:
        """Settles the slots of a dead worker. Returns the error for its unanswered calls.

        `orphaned`: the slots that wait for its results.
        """
        match self._states[worker]:
            case WorkerState.CLOSING if not self.closing and self._states.cause(worker) is None:
                self._replace(worker, time.monotonic())
                for slot in orphaned:
                    self._running.hub.settle(slot, _core.Fate.RENEWED)
                return self._deaths.of_closing(worker)
            case WorkerState.LOST if self.closing:
                self._drop(orphaned)
                return ClosedError(_CLOSED)
            case WorkerState.LOST:  # the worker was lost before, and was sent another command
                return self._died_again(worker, orphaned)
            case _ if not self._faults.living(self._backend.workers[worker].env_ids):  # its envs were lost before
                self._states.enter(worker, WorkerState.LOST)
                return self._died_again(worker, orphaned)
        cause = self._states.cause(worker) or self._backend.workers[worker].cause_of_death
        error = self._deaths.error(worker, cause, closing=self.closing)
        if not self.closing:
            self._reports.died(worker, error)
        if self.closing or not self._policy.restarts:
            self._lose(worker, orphaned, error)
        else:
            self._restart(worker, orphaned, error)
        return error

    def _died_again(self, worker: int, orphaned: Sequence[int]) -> RemudaError:
        first = self._backend.workers[worker].env_ids[0]
        self._faults.raise_again(first)
        self._drop(orphaned)
        return self._faults.lost(first)

    def _lose(self, worker: int, orphaned: Sequence[int], error: RemudaError) -> None:
        env_ids = self._backend.workers[worker].env_ids
        is_spare = self._running.slots.slot_of(env_ids[0]) is None  # no command to a spare would report its loss
        self._faults.add_death(env_ids, error, awaited=bool(orphaned) or (is_spare and not self.closing))
        if not self.closing:
            self._running.slots.count_fault(reason_of(error, list(env_ids))[0])
        self._states.enter(worker, WorkerState.LOST)
        self._drop(orphaned)

    def _restart(self, worker: int, orphaned: Sequence[int], error: RemudaError) -> None:
        began = self._running.workers.busy_since(worker) or time.monotonic_ns()
        faults, at = self._budget.charge_worker(worker, error)
        if at is None:
            self._states.enter(worker, WorkerState.LOST)
            return self._drop(orphaned)
        self._running.workers.begin_outage(worker, began)
        self._replace(worker, at)
        for env_faults in self._layout.by_env(faults):
            if (slot := self._running.slots.slot_of(env_faults[0].env_id)) is not None:  # a spare has no episode
                infos = [{"fault": fault} for fault in env_faults]
                self._running.hub.settle(slot, self._budget.fate_of(env_faults[0]), infos)
        return None

    def _drop(self, orphaned: Iterable[int]) -> None:
        for slot in orphaned:
            self._running.hub.settle(slot, _core.Fate.LOST)

    # -- workers that the pool ends ------------------------------------------------------------------------

    def late(self, worker: int, op: _core.Op | None, task: int = 0) -> None:
        """Kills a worker that missed the deadline of `op`, or sent invalid data (op None).

        A thread cannot be killed: if an env hangs in it, in the task `task`, another thread takes its place.
        """
        if op is not None and self._backend.threads is not None:
            return self._relieve(self._backend.threads, worker, op, task)
        if op is _core.Op.CLOSE:
            return self._running.processes.kill(worker)
        stack = ""
        if op is not None and self._states[worker] is WorkerState.RUNNING:
            stack = self._running.processes.last_stack(worker)
        return self.kill(worker, CorruptReplyError if op is None else self._deaths.missed_deadline(op, stack))

    def _relieve(self, threads: Threads, worker: int, op: _core.Op, task: int) -> None:
        self._running.workers.forgive(worker)
        _, env = self._running.workers.doing(worker)
        if env is not None:
            threads.relieve(worker, task, self._deaths.hang(worker, env, op, threads.stack(worker)))

    def kill(self, worker: int, cause: Callable[..., RemudaError]) -> None:
        """Kills a worker, unless it is killed already. `cause`: makes the error of its death."""
        if self._states[worker] in (WorkerState.RUNNING, WorkerState.CLOSING):
            self._running.processes.kill(worker)
        if self._states[worker] is WorkerState.RUNNING:
            self._states.enter(worker, WorkerState.KILLED, cause)

    def kill_for(self, worker: int, failures: Sequence[Failure]) -> None:
        """Kills a worker because an env raised that only another worker can rebuild. `failures`: one for each slot."""
        if self._states.cause(worker) is None:
            self.kill(worker, _Raised(list(failures)))

    def close_for(self, worker: int, failures: Sequence[Failure]) -> None:
        """Ends a worker like `kill_for`, but after the commands that it has: then outcomes do not depend on timing."""
        cause = self._states.cause(worker)
        if isinstance(cause, _Raised):
            cause.failures.extend(failures)
        elif self._states[worker] is WorkerState.RUNNING:
            self._close(worker, _Raised(list(failures)))

    def renew(self, worker: int, *, has_grown: bool) -> None:
        """Makes a worker with one env close the env and end, so that a successor takes the worker's place.

        The env has run its number of episodes, or (`has_grown`) the worker takes more memory than it may.
        """
        if self._states[worker] is not WorkerState.RUNNING:
            return
        if has_grown:
            self._running.workers.count_memory_renewal(worker)
        self._close(worker)

    def _close(self, worker: int, cause: Callable[..., RemudaError] | None = None) -> None:
        self._states.enter(worker, WorkerState.CLOSING, cause)
        self._running.hub.instruct(_core.Op.CLOSE, worker, _core.WHOLE_WORKER, None)

    # -- successors ----------------------------------------------------------------------------------------

    def _replace(self, worker: int, at: float) -> None:
        """Starts a dead worker's successor at the time `at` of `time.monotonic`."""
        self._running.hub.reopen(worker)
        env_ids = self._backend.workers[worker].env_ids
        self._started[worker] += 1
        calls = self.remembered.for_successor(env_ids, self._started[worker])
        if calls is not None:  # before other commands
            rebuild = OnlyFailures(lambda failure: self.kill_for(worker, [failure]))
            self._running.hub.instruct(_core.Op.MESSAGE, worker, _core.WHOLE_WORKER, calls, self._addressees, rebuild)
        for env in filter(self._is_due, env_ids):
            self._running.hub.instruct(_core.Op.PREPARE, worker, env, None)
        self.prepare_again(worker, env_ids)
        self._start(worker, at)

    def _start(self, worker: int, at: float) -> None:
        assert self.successors is not None  # only processes are replaced
        self._states.enter(worker, WorkerState.ABSENT)
        self._running.workers.count_restart(worker)
        self.successors.start(worker, at)

    def _is_due(self, env: int) -> bool:
        """Whether an env resets in advance without arguments, as if its worker had not been replaced.

        That precedes later commands, so that the number of resets does not depend on the time of the rebuild.
        """
        slot = self._running.slots.slot_of(env)
        if slot is None:
            return not self.preparations.is_unmade(env)
        in_background = self._layout.mode.in_background  # the pool then sends the reset
        return self._layout.resets_ahead and not in_background and self._running.slots.needs_reset(slot)

    def prepare_again(self, worker: int, env_ids: Iterable[int]) -> None:
        """Sends these rebuilt envs the commands for resets in advance that their predecessors did not complete."""
        for env, arguments, preparation in self.preparations.unmade(env_ids):
            self._running.hub.instruct(_core.Op.PREPARE, worker, env, arguments, self._addressees, preparation)

    def continue_starts(self) -> None:
        """Lets successors that have built their envs join the pool. Those that could not are started again, or lost."""
        for worker, outcome in () if self.successors is None or self.closing else self.successors.outcomes():
            error = self._join(worker) if outcome is None else outcome
            if error is not None:
                self._start_failed(worker, error)

    def _join(self, worker: int) -> RemudaError | None:
        try:
            pidfd, socket = self._running.processes.join(
                worker, self._running.arena, self._infos.columns, self._running.defaults
            )
        except RemudaError as error:
            return error
        self._states.enter(worker, WorkerState.RUNNING)
        self._running.workers.arrive(worker, pidfd, socket)
        return None

    def _start_failed(self, worker: int, error: RemudaError) -> None:
        self._running.processes.kill(worker)  # the process of a successor that failed may still run
        _, at = self._budget.charge_worker(worker, error, at_start=True)
        if at is not None:
            return self._start(worker, at)
        self._states.enter(worker, WorkerState.LOST)
        dead = self._running.hub.end(worker)
        self._drop(dead.orphaned)
        return self._abandon(dead.unanswered, self._faults.lost(self._backend.workers[worker].env_ids[0]))

    def stop_starts(self) -> None:
        """Ends the starts of successors, and the successors that have not joined the pool. Waits for their threads."""
        if self.successors is not None:
            self.successors.stop()


@dataclass(frozen=True)
class _Raised:
    """The cause of a kill: an env raised, and only a new worker can rebuild it. `failures` has one for each slot."""

    failures: list[Failure]

    def __call__(self, **_: object) -> EnvError:
        return EnvError(self.failures)
