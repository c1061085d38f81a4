"""Applies a FaultPolicy to workers that die or are late, and replaces them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from remuda import _core
from remuda._backends.base import Threads
from remuda._engine.batches.infos import InfoColumns
from remuda._engine.calls import Addressee, OnlyFailures
from remuda._engine.options.checks import nanoseconds
from remuda._engine.options.fault_policy import FaultPolicy
from remuda._engine.running import Running
from remuda._engine.supervision.descriptions import Descriptions
from remuda._engine.supervision.fault_reports import FaultReports
from remuda._engine.supervision.faults import Faults
from remuda._engine.supervision.preparations import Preparations
from remuda._engine.supervision.restart_budget import RestartBudget
from remuda._engine.supervision.resumption import Resumption
from remuda._engine.supervision.successors import Successors
from remuda._wire.requests import RememberedCalls
from remuda.errors import ClosedError, CorruptReplyError, EnvError, Failure, Fault, RemudaError

WorkerState = _core.WorkerState
_GONE = (WorkerState.DEAD, WorkerState.STARTING)  # the states of a worker without a process
_CLOSED = "the pool was closed before all answers had come"
_CLOSING = 5.0  # the seconds that a worker has to close an env that is renewed


class WorkerFaults:
    """Applies a FaultPolicy to workers that die, are late, or must be renewed.

    Commands and messages for a worker that is replaced wait in a new port until its successor reads them.

    Attributes:
        remembered, preparations: The lasting calls, and the resets in advance, that successors receive again.
    """

    def __init__(
        self,
        policy: FaultPolicy,
        running: Running,
        start_timeout: float | None,
        faults: Faults,
        descriptions: Descriptions,
        reports: FaultReports,
        budget: RestartBudget,
        infos: InfoColumns,
        addressees: dict[int, Addressee | None],
        preparations: Preparations,
        resumption: Resumption,
    ) -> None:
        """Keeps the objects of the pool that successors need.

        Args:
            policy, running, start_timeout, faults, descriptions, reports, budget, preparations, resumption: Those of
                the pool.
            infos: The columns of infos so far.
            addressees: The receivers of answers, by the sequence of the message.
        """
        self.remembered, self.preparations = RememberedCalls(), preparations
        self._policy, self._faults, self._reports, self._budget = policy, faults, reports, budget
        self._infos, self._addressees, self._resumption = infos, addressees, resumption
        self._running, self._backend, self._layout = running, running.backend, running.layout
        self._ends: dict[int, _End] = {}  # of the workers that the pool ends, until their deaths are noted
        self._descriptions = descriptions
        self.successors: Successors | None = None
        if running.backend.processes is not None:
            self.successors = Successors(running.backend.processes, start_timeout, running.workers.supervision.wake)
            running.threads.append(self.successors)
        self._started = [0] * len(running.backend.workers)  # the number of successors of each worker so far
        build_timeout = start_timeout if self._layout.renews_workers else None  # only processes can be killed if late
        closes = policy.renew_every is not None or self._layout.max_memory > 0 or self._layout.vector_size is not None
        limits = policy.reset_timeout, policy.step_timeout, policy.call_timeout, build_timeout, closes and _CLOSING
        running.workers.set_deadlines(*[nanoseconds(limit or 0) for limit in limits])

    def takes_messages(self, worker: int) -> bool:
        """Whether a message would reach a worker or its successor: not while the worker closes its env."""
        return not self._closes(worker)

    def has_process(self, worker: int) -> bool:
        """Whether a worker can be sent the command to close its envs."""
        return self._running.workers.state(worker) not in _GONE and not self._closes(worker)

    def is_ended(self, worker: int) -> bool:
        """Whether the pool ends a worker for a fault, and has not noted its death yet."""
        end = self._ends.get(worker)
        return end is not None and end.cause is not None

    def _closes(self, worker: int) -> bool:
        """Whether a worker was sent the command to close its envs, so that a successor takes its place."""
        end = self._ends.get(worker)
        return end is not None and end.closes

    def close(self) -> None:
        """Ends all deadlines and starts. Workers without a process have no successor."""
        self._running.workers.set_deadlines(0, 0, 0, 0, 0)
        for worker in range(len(self._backend.workers)):
            if self._running.workers.state(worker) is WorkerState.STARTING:
                dead = self._end(worker)
                self._drop(dead.orphaned)
                self._abandon(dead.unanswered, ClosedError(_CLOSED))

    # -- deaths --------------------------------------------------------------------------------------------

    def died(self, worker: int) -> None:
        """Handles a dead worker. Its earlier messages were handled before."""
        was_dead = self._running.workers.state(worker) is WorkerState.DEAD
        dead = self._running.hub.end(worker)
        error = self._died_again(worker, dead.orphaned) if was_dead else self._on_death(worker, dead.orphaned)
        self._abandon(dead.unanswered, error)

    def break_all(self, error: RemudaError) -> None:
        """Ends all workers and calls, after a decision has failed."""
        workers = [worker.index for worker in self._backend.workers]
        living = [worker for worker in workers if self._running.workers.state(worker) is not WorkerState.DEAD]
        self._abandon(self._running.hub.break_all(), error)
        for worker in living:
            self._note_state(worker)
            if self._backend.processes is not None:
                self._backend.processes.kill(worker)

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
        end = self._ends.pop(worker, None)
        if end is not None and end.cause is None and not self._running.is_closed:  # a renewal
            self._replace(worker, time.monotonic())
            for slot in orphaned:
                self._running.hub.settle(slot, _core.Fate.RENEWED)
            return self._descriptions.of_closing(worker)
        envs = self._faults.living(self._backend.workers[worker].env_ids)
        if not envs:  # they were lost before
            self._note_state(worker)
            return self._died_again(worker, orphaned)
        cause = None if end is None else end.cause
        cause = cause or self._backend.workers[worker].cause_of_death
        error = self._descriptions.death(worker, cause, closing=self._running.is_closed)
        if self._running.is_closed:
            self._lose(worker, orphaned, error)
            return error
        faults = self._descriptions.faults(error, envs)
        (reason,) = (fault for fault in faults if not fault.shared)
        self._reports.died(reason)
        if self._policy.restarts:
            self._restart(faults, orphaned)
        else:
            self._running.slots.count_fault(reason.env_id)
            self._lose(worker, orphaned, error)
        return error

    def _died_again(self, worker: int, orphaned: Sequence[int]) -> RemudaError:
        """Answers commands to envs that were lost before. Returns the error for such messages."""
        if self._running.is_closed:
            self._drop(orphaned)
            return ClosedError(_CLOSED)
        first = self._backend.workers[worker].env_ids[0]
        self._faults.raise_again(first)
        self._drop(orphaned)
        return self._faults.lost(first)

    def _lose(self, worker: int, orphaned: Sequence[int], error: RemudaError) -> None:
        env_ids = self._backend.workers[worker].env_ids
        is_spare = self._running.slots.slot_of(env_ids[0]) is None  # no command to a spare would report its loss
        self._faults.add_death(env_ids, error, awaited=bool(orphaned) or (is_spare and not self._running.is_closed))
        self._note_state(worker)
        self._drop(orphaned)

    def _restart(self, faults: Sequence[Fault], orphaned: Sequence[int]) -> None:
        worker = faults[0].worker
        began = self._running.workers.busy_since(worker) or time.monotonic_ns()
        ended = {fault.env_id: self._resumption.begin(fault) for fault in faults}
        faults = [ended[fault.env_id] or fault for fault in faults]
        resuming = [fault for fault in faults if ended[fault.env_id] is None]
        at = self._budget.charge_worker(faults, resumes=bool(resuming))
        if at is None:
            self._note_state(worker)
            return self._drop(orphaned)
        self._running.workers.begin_outage(worker, began)
        self._replace(worker, at, resuming)
        for env_faults in self._layout.by_env(faults):
            if (slot := self._running.slots.slot_of(env_faults[0].env_id)) is not None:  # a spare has no episode
                self._resumption.settle(slot, env_faults, resumes=ended[env_faults[0].env_id] is None)
        return None

    def _end(self, worker: int) -> _core.DeadWorker:
        """Ends the wait for a successor that will not come."""
        dead = self._running.hub.end(worker)
        self._note_state(worker)
        return dead

    def _note_state(self, worker: int) -> None:
        self._reports.history.note_state(worker, self._running.workers.state(worker))

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
        if self._running.workers.state(worker) is WorkerState.KILLED:  # it closes its envs too slowly
            return self._running.processes.kill(worker)
        stack = "" if op is None else self._running.processes.last_stack(worker)
        return self.kill(worker, CorruptReplyError if op is None else self._descriptions.missed_deadline(op, stack))

    def _relieve(self, threads: Threads, worker: int, op: _core.Op, task: int) -> None:
        self._running.workers.forgive(worker)
        _, env = self._running.workers.doing(worker)
        if env is not None:
            threads.relieve(worker, task, self._descriptions.hang(worker, env, op, threads.stack(worker)))

    def kill(self, worker: int, cause: Callable[..., RemudaError]) -> None:
        """Kills a worker, unless it is killed already. `cause`: makes the error of its death, unless it has one."""
        if self._running.workers.state(worker) in (WorkerState.KILLED, *_GONE):
            return
        self._running.processes.kill(worker)
        self._ends.setdefault(worker, _End(cause))
        self._running.workers.note_killed(worker)
        self._note_state(worker)

    def kill_for(self, worker: int, failures: Sequence[Failure]) -> None:
        """Kills a worker because an env raised that only another worker can rebuild. `failures`: one for each slot."""
        if not self.is_ended(worker):
            self.kill(worker, _Raised(list(failures)))

    def close_for(self, worker: int, failures: Sequence[Failure]) -> None:
        """Ends a worker like `kill_for`, but after the commands that it has: then outcomes do not depend on timing."""
        end = self._ends.get(worker)
        if end is not None and isinstance(end.cause, _Raised):
            end.cause.failures.extend(failures)
        elif self._running.workers.state(worker) is WorkerState.RUNNING:
            self._close(worker, _Raised(list(failures)))

    def renew(self, worker: int, *, has_grown: bool) -> None:
        """Makes a worker with one env close the env and end, so that a successor takes the worker's place.

        The env has run its number of episodes, or (`has_grown`) the worker takes more memory than it may.
        """
        if self._running.workers.state(worker) is not WorkerState.RUNNING:
            return
        if has_grown:
            self._running.workers.count_memory_renewal(worker)
        self._close(worker)

    def _close(self, worker: int, cause: Callable[..., RemudaError] | None = None) -> None:
        self._ends[worker] = _End(cause, closes=True)
        self._running.workers.note_closing(worker)
        self._note_state(worker)
        self._running.hub.instruct(_core.Op.CLOSE, worker, _core.WHOLE_WORKER, None)

    # -- successors ----------------------------------------------------------------------------------------

    def _replace(self, worker: int, at: float, resuming: Sequence[Fault] = ()) -> None:
        """Starts a dead worker's successor at the time `at` of `time.monotonic`.

        `resuming`: the faults of the envs that play their episodes again.
        """
        self._running.hub.reopen(worker)
        env_ids = self._backend.workers[worker].env_ids
        self._started[worker] += 1
        calls = self.remembered.for_successor(env_ids, self._started[worker])
        if calls is not None:  # before other commands
            rebuild = OnlyFailures(lambda failure: self.kill_for(worker, [failure]))
            self._running.hub.instruct(_core.Op.MESSAGE, worker, _core.WHOLE_WORKER, calls, self._addressees, rebuild)
        for fault in resuming:
            self._resumption.send(fault, lambda failure: self.kill_for(worker, [failure]))
        are_resuming = {fault.env_id for fault in resuming}  # their workers find out by themselves what is due
        for env in (env for env in env_ids if env not in are_resuming and self._is_due(env)):
            self._running.hub.instruct(_core.Op.PREPARE, worker, env, None)
        self.prepare_again(worker, env_ids)
        self._start(worker, at)

    def _start(self, worker: int, at: float) -> None:
        assert self.successors is not None  # only processes are replaced
        self._note_state(worker)
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
        for worker, outcome in () if self.successors is None or self._running.is_closed else self.successors.outcomes():
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
        self._running.workers.arrive(worker, pidfd, socket)
        self._note_state(worker)
        return None

    def _start_failed(self, worker: int, error: RemudaError) -> None:
        self._running.processes.kill(worker)  # the process of a successor that failed may still run
        envs = self._faults.living(self._backend.workers[worker].env_ids)
        at = self._budget.charge_worker(self._descriptions.faults(error, envs), at_start=True)
        if at is not None:
            return self._start(worker, at)
        dead = self._end(worker)
        self._drop(dead.orphaned)
        return self._abandon(dead.unanswered, self._faults.lost(self._backend.workers[worker].env_ids[0]))

    def stop_starts(self) -> None:
        """Ends the starts of successors, and the successors that have not joined the pool. Waits for their threads."""
        if self.successors is not None:
            self.successors.stop()


@dataclass(frozen=True)
class _End:
    """How the pool ends a worker.

    Attributes:
        cause: Makes the error of its death; None: for a renewal, which is no fault.
        closes: Whether it was sent the command to close its envs. It may be killed later, if it is too slow.
    """

    cause: Callable[..., RemudaError] | None
    closes: bool = False


@dataclass(frozen=True)
class _Raised:
    """The cause of a kill: an env raised, and only a new worker can rebuild it. `failures` has one for each slot."""

    failures: list[Failure]

    def __call__(self, **_: object) -> EnvError:
        return EnvError(self.failures)
