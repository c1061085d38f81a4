"""What becomes of envs that fail: they are reported, or restarted."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, Any

from remuda import _core
from remuda._backends.base import death_of, worker_of
from remuda._engine.pool.calls import Addressee
from remuda._engine.pool.infos import InfoColumns
from remuda._engine.pool.progress import ProgressTracker
from remuda._engine.startup.space_checks import check_agreement
from remuda._engine.supervision.changes import Changes
from remuda._engine.supervision.fault_kinds import OPERATIONS, deadline_of, forget_frames, kind_of, reason_of
from remuda._engine.supervision.fault_log import FaultLog, restart_in_words
from remuda._engine.supervision.fault_policy import FaultPolicy
from remuda._engine.supervision.fault_resolution import FaultResolution
from remuda._engine.supervision.faults import Faults
from remuda._engine.supervision.quota import Quota
from remuda._engine.supervision.restart import Restart, Stage
from remuda._engine.supervision.standing import Standing
from remuda._wire.failures import build_error
from remuda._wire.pickling import Parts
from remuda._worker.host import EnvReport
from remuda._worker.reset_defaults import ResetDefaults
from remuda.errors import (
    CorruptReplyError,
    EnvError,
    EnvTimeoutError,
    Failure,
    Fault,
    RemudaError,
    StartTimeoutError,
    WorkerDiedError,
)

if TYPE_CHECKING:
    from remuda._engine.startup.start import Started


_FAREWELL = 5.0  # seconds for the worker of an env that is renewed to close it
_LAST_BREATH = 1.0  # seconds for a worker that was killed a moment ago, before its successor starts
_LOOK = 0.01  # seconds until we look whether it has ended
_ASK = 1.0  # seconds until we ask for a successor that has not been started, whose server may not answer
_AT_ONCE = 0.02  # seconds for starting successors, before others get their batch


class Supervisor:
    """Applies a FaultPolicy. The exchange tells it what happened; it decides over the slots that are orphaned.

    Attributes:
        addressees: Who is told the answer to a message, by its sequence; None: nobody cares. Of the exchange's too.
        resolution: What becomes of orphaned slots.
        standing: What envs were told that their successors are told again.
        restarts: How many workers have been restarted.
        closing: Whether the pool closes, and nothing is restarted any more.

    Where envs are restarted, a worker's port is opened anew the moment it is found dead: commands queue up there until
    its successor has built the envs, so nobody has to wait for it who does not want its results.
    """

    def __init__(
        self,
        policy: FaultPolicy,
        parts: Started,
        start_timeout: float | None,
        faults: Faults,
        tracker: ProgressTracker,
        infos: InfoColumns,
        defaults: ResetDefaults,
    ) -> None:
        self._policy, self._start_timeout = policy, start_timeout
        self._backend, self._hub = parts.backend, parts.hub
        self._layout, self._arena = parts.layout, parts.arena
        self._faults, self._tracker = faults, tracker
        self._infos, self._recorder = infos, parts.recorder
        self._defaults = defaults
        self._restarts: dict[int, Restart] = {}
        self._replacements: dict[int, int] = {}  # by worker: how many there were in the place of another
        self._doomed: dict[int, Callable[..., RemudaError]] = {}  # workers that we have killed, and why
        self._leaving: dict[int, float] = {}  # workers that close their env for a renewal, and their deadlines
        self._arrived: set[int] = set()  # successors whose pending messages are to be delivered
        self._quota = Quota(policy)
        self._log = FaultLog()
        self.resolution, self.standing = FaultResolution(parts, faults), Standing()
        self.addressees: dict[int, Addressee | None] = {}  # by sequence of a message: who is told the answer
        self.restarts = 0
        self.closing = False
        build_timeout = start_timeout if self._layout.renews_workers else None  # only a process can be ended
        limits = (policy.reset_timeout, policy.step_timeout, policy.call_timeout, build_timeout)
        self._hub.set_deadlines(*[int((limit or 0) * 1e9) for limit in limits])

    def is_leaving(self, worker: int) -> bool:
        """Whether it takes no more messages, but its successor will."""
        return worker in self._leaving

    # -- what is told --------------------------------------------------------------------------------------

    @property
    def has_untold(self) -> bool:
        return bool(self._log) or bool(self._recorder is not None and self._recorder.sayings)

    def tell(self) -> None:
        """Logs what has been settled. What a handler raises is raised, and the rest told when the pool is used next."""
        try:
            if self._recorder is not None:
                self._recorder.sayings.tell()
            self._log.tell()
        except BaseException:
            self._hub.raise_news()
            raise

    # -- what happens --------------------------------------------------------------------------------------
    #
    # What becomes of it is decided here, and done by whoever makes the changes.

    def env_failed(self, slot: int, failure: Failure, changes: Changes) -> None:
        """An env raised; its slot is orphaned."""
        env = failure.env_id
        assert env is not None
        is_rebuild = failure.operation == "build"
        operation, where = self._tracker.tell(env, failure.operation)
        failure = replace(failure, operation=operation, where=where, shared=env % self._layout.width != 0)
        if failure.worker in self._doomed:  # it is settled when that has died
            return self._go_with_worker(slot, failure, changes)
        if self.closing or self._faults.is_lost(env):
            return changes.do(self._hub.drop, slot)
        is_interrupt = self._faults.is_interrupt(failure)
        if self._recorder is not None and not is_interrupt:
            failure = self._recorder.record_failure(failure)
        if is_interrupt or not self._policy.restarts:
            self._faults.add_failure(failure, changes, slot)
            changes.do(self._hub.drop, slot)
            return None
        if self._layout.vector_size is None:
            return self._restart_env(slot, env, failure, changes, is_rebuild=is_rebuild)
        self._doomed[failure.worker] = _Raised([])  # only a new worker has another one
        self._backend.kill(failure.worker)
        return self._go_with_worker(slot, failure, changes)

    def _go_with_worker(self, slot: int, failure: Failure, changes: Changes) -> None:
        doom = self._doomed[failure.worker]
        if isinstance(doom, _Raised):
            changes.do(doom.failures.append, failure)
        changes.do(self._hub.resend, slot)

    def call_failed(self, failure: Failure) -> Failure:
        """The same, as what the call stands for."""
        if failure.env_id is None or not self._tracker.renames:
            return failure
        operation, where = self._tracker.tell(failure.env_id, failure.operation)
        return replace(failure, operation=operation, where=where)

    def _restart_env(self, slot: int, env: int, failure: Failure, changes: Changes, *, is_rebuild: bool) -> None:
        if is_rebuild and self._can_die(failure.worker):
            changes.do(self._hub.resend, slot)  # to the successor
            return self.rebuild_failed(env, failure, changes)
        fault = self._fault(env, "exception", failure.operation, EnvError([failure]))
        if not self._bear([fault], "it is built anew", changes):
            return changes.do(self._hub.drop, slot)
        if not is_rebuild:  # that is tried again anyway, before the next reset
            rebuild = _Rebuild(self, env)
            changes.do(self._hub.post_message, _core.Op.REBUILD, failure.worker, env, None, self.addressees, rebuild)
        return self.resolution.settle([slot], [fault], changes)

    def worker_late(self, worker: int, op: _core.Op | None) -> None:
        """A worker missed a deadline, or (op None) talks nonsense: it must go. It may be told more than once."""
        if op is None:
            self._doomed[worker] = CorruptReplyError
        else:
            self._doomed[worker] = lambda **context: self._timeout_error(op, context)
        self._backend.kill(worker)

    def worker_died(self, index: int, orphaned: Sequence[int], awaited: bool, changes: Changes) -> RemudaError:
        """Returns the error for its unanswered calls.

        `awaited`: somebody waits for its answer to a call.
        """
        first = self._backend.workers[index].env_ids[0]
        if not self._living(index):  # it was given up, or was sent something all the same
            if index not in self._restarts:
                self._faults.tell_again(first, changes)
            changes.do(self._restarts.pop, index, None)
            self._drop(orphaned, changes)
            return self._faults.lost(first)
        if index in self._leaving and not self.closing:
            changes.do(self._leaving.pop, index)
            self._replace(index, time.monotonic(), changes)
            for slot in orphaned:
                changes.do(self._hub.resend, slot)
            return death_of(self._backend.workers[index], "close", None, WorkerDiedError)
        error = self._death_of(index, orphaned, awaited)
        changes.do(self._doomed.pop, index, None)
        self._record(index, error)
        if self.closing or not self._policy.restarts:
            if isinstance(error, WorkerDiedError):
                is_spare = self._hub.slot_of(first) is None  # nobody would ever ask for it
                self._faults.add_death(error, changes, tell=bool(orphaned) or (is_spare and not self.closing))
            self._drop(orphaned, changes)
        else:
            self._restart(index, orphaned, error, changes)
        return error

    def renewal_due(self, worker: int, slot: int | None, terminal: Parts | None, changes: Changes) -> None:
        """An env has run its number of episodes: its worker, which has no other, closes it and goes.

        With same-step autoreset its slot is orphaned: the reset that belongs to the result is its successor's, or
        (`slot` is None) that of a spare.
        """
        self._let_go(worker, changes)
        if self._layout.autoreset == "same_step" and slot is not None:
            changes.do(self._hub.reset_into_row, slot, terminal, True)

    def reset_left_to_successor(self, worker: int, slot: int, changes: Changes) -> None:
        """The same of an env that is reset in mid-episode: its slot is orphaned, for the env has done nothing."""
        if worker not in self._leaving:
            self._let_go(worker, changes)
        changes.do(self._hub.resend, slot)

    def _let_go(self, worker: int, changes: Changes) -> None:
        changes.do(self._leaving.__setitem__, worker, self._running_time() + _FAREWELL)
        changes.do(self._hub.post_message, _core.Op.CLOSE, worker, _core.WHOLE_WORKER, None)
        changes.do(self._hub.raise_news)  # there is a deadline to be listened for

    def rebuild_failed(self, env: int, failure: Failure, changes: Changes) -> None:
        """An env could not be built anew in its worker: the worker goes, or else tries again before the next reset."""
        if self.closing:
            return
        error = EnvError([failure])
        if self._faults.is_interrupt(failure):
            self._faults.add_interrupt(failure, changes)
        elif self._can_die(failure.worker):
            self._doomed[failure.worker] = lambda **_: error
            self._backend.kill(failure.worker)
        else:
            fault = self._fault(env, "exception", "build", error)
            self._bear([fault], "it is built anew before its next reset", changes)

    def look(self) -> None:
        """Goes on with restarts, as far as they have come."""
        if not self._hub.has_news:
            return
        if self.closing:
            self._hub.listen([], 0)
            return
        now, running_time = time.monotonic(), self._running_time()
        for worker, deadline in self._leaving.items():
            if running_time >= deadline:
                self._backend.kill(worker)
        for worker, restart in list(self._restarts.items()):
            is_begun = restart.stage is not Stage.WAITING
            if is_begun or time.monotonic() < now + _AT_ONCE:  # the alarm brings us back
                self._proceed(worker, restart)
        for worker in list(self._arrived):
            self._backend.deliver(worker)
            self._arrived.discard(worker)
        self._listen()

    def close(self) -> None:
        """No more restarts: those that are under way are broken off."""
        self.closing = True
        self._hub.set_deadlines(0, 0, 0, 0)
        self._hub.listen([], 0)
        for worker in self._restarts:
            self._backend.kill(worker)

    def is_gone(self, worker: int) -> bool:
        """Whether it is between two processes, or has been told to close its env already."""
        return worker in self._restarts or worker in self._leaving

    def _can_die(self, worker: int) -> bool:
        return self._backend.workers[worker].pid is not None

    def release(self) -> None:
        """Lets go of the shared memory."""
        if self._recorder is not None:
            self._recorder.release()
        self.resolution.release()
        del self._hub, self._arena

    # -- restarts ----------------------------------------------------------------------------------------

    def _restart(self, index: int, orphaned: Sequence[int], error: RemudaError, changes: Changes) -> None:
        envs = self._living(index)
        reason, operation = reason_of(error, envs)
        faults = [self._fault(env, kind_of(error), operation, error, shared=env != reason) for env in envs]
        at = self._quota.next_restart(index, changes)
        if not self._bear(faults, restart_in_words(at), changes):
            return self._drop(orphaned, changes)
        self._replace(index, at, changes)
        width = self._layout.width
        for first in range(0, len(faults), width):
            its_faults = faults[first : first + width]
            slots = [slot for fault in its_faults if (slot := self._hub.slot_of(fault.env_id)) is not None]
            if not slots:
                continue  # a spare: nobody is told
            if slots[0] in orphaned:
                self.resolution.settle(slots, its_faults, changes)
            else:
                self.resolution.settle_idle(slots, its_faults, changes)
        return None

    def _replace(self, index: int, at: float, changes: Changes) -> None:
        self._backend.begin_replacement(index)
        changes.do(self._hub.reopen, index)
        env_ids = self._backend.workers[index].env_ids
        replacements = self._replacements.get(index, 0) + 1
        changes.do(self._replacements.__setitem__, index, replacements)
        if (told := self.standing.for_successor(env_ids, replacements)) is not None:  # before what it is sent
            rebuild = _Rebuild(self, env_ids[0])
            changes.do(
                self._hub.post_message, _core.Op.MESSAGE, index, _core.WHOLE_WORKER, told, self.addressees, rebuild
            )
        changes.do(self._restarts.__setitem__, index, Restart(at))
        changes.do(self._hub.raise_news)  # those that died together start together

    def _running_time(self) -> float:
        """`time.monotonic()` less the time in which this process was frozen, or did not look: what deadlines are in."""
        return time.monotonic() - self._hub.lost_ns() / 1e9

    def _proceed(self, worker: int, restart: Restart) -> None:
        if restart.stage in (Stage.STARTING, Stage.JOINING):  # interrupted: nobody knows what it has been told
            self._backend.kill(worker)
            restart.stage = Stage.WAITING
        try:
            if restart.stage is Stage.BUILDING:
                self._greet(worker, restart)
            elif time.monotonic() >= restart.at:
                self._start(worker, restart)
        except (RemudaError, OSError) as error:
            self._start_failed(worker, error)

    def _start(self, worker: int, restart: Restart) -> None:
        now = time.monotonic()
        if restart.vacant_by is None:
            restart.vacant_by = now + _LAST_BREATH
        if now < restart.vacant_by and not self._backend.is_vacant(worker):
            restart.at = now + _LOOK
            return
        restart.stage = Stage.STARTING
        deadline = inf if self._start_timeout is None else self._running_time() + self._start_timeout
        self._backend.start_replacement(worker)
        self.restarts += 1
        self._restarts[worker] = Restart(restart.at, Stage.BUILDING, deadline)

    def _greet(self, worker: int, restart: Restart) -> None:
        restart.stage = Stage.JOINING
        reports = self._backend.poll_successor(worker)
        if isinstance(reports, Failure):
            raise build_error([reports])
        if reports is None:
            restart.stage = Stage.BUILDING
            if self._running_time() >= restart.deadline:
                raise StartTimeoutError(f"worker {worker} did not build its envs within {self._start_timeout} s")
            return
        self._check_spaces(worker, reports)
        pidfd, socket = self._backend.join(worker, self._layout, self._arena, self._infos.columns, self._defaults)
        changes = Changes()
        changes.do(self._restarts.pop, worker)
        changes.do(self._hub.arrive, worker, pidfd, socket)
        changes.do(self._arrived.add, worker)
        for env in self._backend.workers[worker].env_ids:
            if self._hub.slot_of(env) is None:
                changes.do(self._hub.post_message, _core.Op.PREPARE, worker, env, None)
        changes.make()

    def _start_failed(self, index: int, error: Exception) -> None:
        told = error if isinstance(error, RemudaError) else RemudaError(f"worker {index} could not be started: {error}")
        forget_frames(told)
        self._backend.kill(index)  # it may hang, or wait for a loop
        envs = self._living(index)
        reason, operation = reason_of(told, envs)
        faults = [self._fault(env, kind_of(told), operation, told, shared=env != reason) for env in envs]
        changes = Changes()
        at = self._quota.next_restart(index, changes)
        if self._bear(faults, restart_in_words(at), changes):
            changes.do(self._restarts.__setitem__, index, Restart(at))
        else:
            changes.do(self._hub.give_up, index)
        changes.make()

    def _check_spaces(self, worker: int, reports: Sequence[EnvReport]) -> None:
        observation, action = self._layout.observation_space, self._layout.action_space
        first = self._backend.workers[worker].env_ids[0]
        name = f"env {first} and its like before the restart"
        check_agreement("observation", observation, name, [report.observation_space for report in reports])
        check_agreement("action", action, name, [report.action_space for report in reports])

    def _listen(self) -> None:
        building = [worker for worker, restart in self._restarts.items() if restart.stage is Stage.BUILDING]
        deadlines = [r.deadline for r in self._restarts.values()]
        times = [r.at for r in self._restarts.values() if r.stage is not Stage.BUILDING]
        if any(self._backend.is_coming(worker) for worker in building):
            times.append(time.monotonic() + _ASK)
        lost = self._hub.lost_ns() / 1e9
        first = min([*times, *(deadline + lost for deadline in (*deadlines, *self._leaving.values()))], default=inf)
        fds = dict.fromkeys(fd for worker in building for fd in self._backend.descriptors(worker))
        self._hub.listen(list(fds), int(first * 1e9) if first < 1e9 else 0)

    def _living(self, worker: int) -> list[int]:
        """Its envs that are not lost; those that are have no part in what becomes of it."""
        return [env for env in self._backend.workers[worker].env_ids if not self._faults.is_lost(env)]

    def _drop(self, orphaned: Iterable[int], changes: Changes) -> None:
        for slot in orphaned:
            changes.do(self._hub.drop, slot)

    # -- faults ------------------------------------------------------------------------------------------

    def _fault(self, env: int, kind: Any, operation: str, error: RemudaError, *, shared: bool = False) -> Fault:
        worker = worker_of(self._backend.workers, env)
        return Fault(env, worker.index, kind, operation, self._tracker.where(env), error, shared)

    def _bear(self, faults: Sequence[Fault], then: str, changes: Changes) -> bool:
        """Charges faults that happened at once; False when they are too many, and their envs are lost.

        `then`: what follows if they are not.
        """
        each = faults[:: self._layout.width]  # those of a vector env are one
        limit = self._quota.charge(each, changes)
        for fault in each:
            self._log.add(fault, then if limit is None else "it is not restarted any more", changes)
        if limit is not None:
            self._faults.add_loss([fault.env_id for fault in faults], limit, changes)
        return limit is None

    def _record(self, index: int, error: RemudaError) -> None:
        """Writes the crash record of the env that was the reason, where that is known."""
        envs = self._backend.workers[index].env_ids
        if self._recorder is None or self.closing or not isinstance(error, WorkerDiedError):
            return
        if error.where is None and len(envs) > 1:
            return
        where = error.where or self._tracker.where(envs[0])
        self._recorder.record_death(where.env_id, kind_of(error), where, error)

    def _death_of(self, index: int, orphaned: Sequence[int], awaited: bool) -> RemudaError:
        worker = self._backend.workers[index]
        op, env = self._hub.doing(index)
        if op is None and orphaned:  # it had work, but did not come to it
            op, env = self._hub.last_op(orphaned[0]), self._hub.env_of(orphaned[0])
        operation = OPERATIONS[op] if op is not None else "call" if awaited else "nothing"
        if self.closing:
            operation = "close"
        make = self._doomed.get(index, WorkerDiedError)
        if env is None:
            return death_of(worker, operation, None, make)
        return death_of(worker, *self._tracker.tell(env, operation), make)

    def _timeout_error(self, op: _core.Op, context: dict[str, Any]) -> EnvTimeoutError:
        name = deadline_of(op)
        error = EnvTimeoutError(**context)
        limit = self._start_timeout if name == "start_timeout" else getattr(self._policy, name)
        assert limit is not None  # or nobody would have missed it
        error.deadline, error.limit = name, limit
        return error


@dataclass(frozen=True)
class _Rebuild:
    """Waits for an env to be built anew in its worker."""

    supervisor: Supervisor
    env: int

    def answer(self, sequence: int, parts: Parts) -> None:
        """It worked."""

    def fail(self, sequence: int, failure: Failure, changes: Changes) -> None:
        self.supervisor.rebuild_failed(self.env, failure, changes)

    def abandon(self, error: RemudaError) -> None:
        """Its worker died: that is another fault."""


@dataclass(frozen=True)
class _Raised:
    """Why a worker was killed: what a vector env of it has raised, once for each of its slots."""

    failures: list[Failure]

    def __call__(self, **_: Any) -> EnvError:
        return EnvError(self.failures)
