"""What becomes of envs that fail: they are reported, or restarted."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from remuda import _core
from remuda._backends.base import death_of, worker_of
from remuda._backends.host import EnvReport, build_error
from remuda._backends.log import logger
from remuda._backends.pickling import Parts
from remuda._backends.resets import ResetDefaults
from remuda._engine.agreement import check_agreement
from remuda._engine.calls import Addressee
from remuda._engine.faults import Faults
from remuda._engine.infos import InfoColumns
from remuda._engine.policy import FaultPolicy
from remuda._engine.quota import Quota
from remuda._engine.settlement import Settlement
from remuda._engine.whereabouts import Tracker
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
    from remuda._engine.start import Started


OPERATIONS = {
    _core.Op.RESET: "reset",
    _core.Op.STEP: "step",
    _core.Op.OBSERVE: "observe",
    _core.Op.MESSAGE: "call",
    _core.Op.CLOSE: "close",
    _core.Op.REVIVE: "reset",
    _core.Op.REBUILD: "build",
    _core.Op.PREPARE: "reset",
}
_FAREWELL = 5.0  # seconds for the worker of an env that is renewed to close it


@dataclass
class _Restart:
    """A worker that is being replaced.

    Attributes:
        at: When its successor is to be started, in `time.monotonic()` seconds.
        deadline: When that must have built its envs; None before it was started.
    """

    at: float
    deadline: float | None = None


class Supervisor:
    """Applies a FaultPolicy. The exchange tells it what happened; it decides over the slots that are stranded.

    Attributes:
        addressees: Who is told the answer to a message, by its sequence; None: nobody cares. Of the exchange's too.
        settlement: What becomes of stranded slots.
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
        tracker: Tracker,
        infos: InfoColumns,
        defaults: ResetDefaults,
    ) -> None:
        self._policy, self._start_timeout = policy, start_timeout
        self._backend, self._hub = parts.backend, parts.hub
        self._layout, self._arena = parts.layout, parts.arena
        self._faults, self._tracker = faults, tracker
        self._infos, self._recorder = infos, parts.recorder
        self._defaults = defaults
        self._restarts: dict[int, _Restart] = {}
        self._doomed: dict[int, Callable[..., RemudaError]] = {}  # workers that we have killed, and why
        self._leaving: dict[int, float] = {}  # workers that close their env for a renewal, and their deadlines
        self._quota = Quota(policy)
        self.settlement = Settlement(parts, faults)
        self.addressees: dict[int, Addressee | None] = {}  # by sequence of a message: who is told the answer
        self.restarts = 0
        self.closing = False
        build_timeout = start_timeout if self._layout.renews_workers else None  # only a process can be ended
        limits = (policy.reset_timeout, policy.step_timeout, policy.call_timeout, build_timeout)
        self._hub.set_deadlines(*[int((limit or 0) * 1e9) for limit in limits])

    def is_leaving(self, worker: int) -> bool:
        """Whether it takes no more messages, but its successor will."""
        return worker in self._leaving

    # -- what happens ------------------------------------------------------------------------------------

    def env_failed(self, slot: int, failure: Failure) -> None:
        """An env raised; its slot is stranded."""
        env = failure.env_id
        assert env is not None
        failure = replace(failure, where=self._tracker.where(env), shared=env % self._layout.lanes != 0)
        if failure.worker in self._doomed:  # it is settled when that has died
            return self._go_with_worker(slot, failure)
        if self.closing or self._faults.is_lost(env):
            return self._hub.drop(slot)
        is_interrupt = self._faults.is_interrupt(failure)
        if self._recorder is not None and not is_interrupt:
            failure = self._recorder.record_failure(failure)
        if is_interrupt or not self._policy.restarts:
            self._faults.add_failure(failure, slot)
            self._hub.drop(slot)
            return None
        if self._layout.vector_size is None:
            return self._restart_env(slot, env, failure)
        self._doomed[failure.worker] = _Raised([])  # only a new worker has another one
        self._backend.kill(failure.worker)
        return self._go_with_worker(slot, failure)

    def _go_with_worker(self, slot: int, failure: Failure) -> None:
        doom = self._doomed[failure.worker]
        if isinstance(doom, _Raised):
            doom.failures.append(failure)
        self._hub.resend(slot)

    def _restart_env(self, slot: int, env: int, failure: Failure) -> None:
        if failure.operation == "build" and self._can_die(failure.worker):
            self._hub.resend(slot)  # to the successor
            return self.rebuild_failed(env, failure)
        fault = self._fault(env, "exception", failure.operation, EnvError([failure]))
        if not self._bear([fault]):
            self._hub.drop(slot)
            return None
        if failure.operation != "build":  # that is tried again anyway, before the next reset
            sequence = self._hub.post_message(_core.Op.REBUILD, failure.worker, env, None)
            self.addressees[sequence] = _Rebuild(self, env)
        self.settlement.settle([slot], [fault])
        return None

    def worker_late(self, worker: int, op: _core.Op | None) -> None:
        """A worker missed a deadline, or (op None) talks nonsense: it must go."""
        if op is None:
            self._doomed[worker] = CorruptReplyError
        else:
            self._doomed[worker] = lambda **context: self._timeout_error(op, context)
        self._backend.kill(worker)

    def worker_died(self, index: int, stranded: Sequence[int], awaited: bool) -> RemudaError:
        """Returns the error for its unanswered calls.

        `awaited`: somebody waits for its answer to a call.
        """
        first = self._backend.workers[index].env_ids[0]
        if self._faults.is_lost(first) and index not in self._restarts:  # it was sent something all the same
            self._faults.tell_again(first)
            self._drop(stranded)
            return self._faults.lost(first)
        if index in self._restarts:  # it was given up
            error: RemudaError = self._faults.lost(first)
            del self._restarts[index]
            self._drop(stranded)
            return error
        if self._leaving.pop(index, None) is not None and not self.closing:
            self._replace(index, time.monotonic())
            for slot in stranded:
                self._hub.resend(slot)
            return death_of(self._backend.workers[index], "close", None, WorkerDiedError)
        error = self._death_of(index, stranded, awaited)
        self._record(index, error)
        if self.closing or not self._policy.restarts:
            if isinstance(error, WorkerDiedError):
                is_spare = self._hub.slot_of(first) is None  # nobody would ever ask for it
                self._faults.add_death(error, tell=bool(stranded) or (is_spare and not self.closing))
            self._drop(stranded)
        else:
            self._restart(index, stranded, error)
        return error

    def renewal_due(self, worker: int, slot: int | None, terminal: Parts | None) -> None:
        """An env has run its number of episodes: its worker, which has no other, closes it and goes.

        With same-step autoreset its slot is stranded: the reset that belongs to the result is its successor's, or
        (`slot` is None) that of a spare.
        """
        self._leaving[worker] = time.monotonic() + _FAREWELL
        self._hub.post_message(_core.Op.CLOSE, worker, _core.WHOLE_WORKER, None)
        if self._layout.autoreset == "same_step" and slot is not None:
            self._hub.revive(slot, terminal, True)
        self._set_alarm()

    def rebuild_failed(self, env: int, failure: Failure) -> None:
        """An env could not be built anew in its worker: the worker goes, or else tries again before the next reset."""
        if self.closing:
            return
        error = EnvError([failure])
        if self._faults.is_interrupt(failure):
            self._faults.add_interrupt(failure)
        elif self._can_die(failure.worker):
            self._doomed[failure.worker] = lambda **_: error
            self._backend.kill(failure.worker)
        else:
            self._bear([self._fault(env, "exception", "build", error)])

    def look(self) -> None:
        """Goes on with restarts, as far as they have come."""
        if not self._hub.take_news() or self.closing:
            return
        now = time.monotonic()
        for worker, deadline in self._leaving.items():
            if now >= deadline:
                self._backend.kill(worker)
        for worker, restart in list(self._restarts.items()):
            self._proceed(worker, restart, now)
        self._listen()

    def close(self) -> None:
        """No more restarts: those that are under way are broken off."""
        self.closing = True
        self._hub.set_deadlines(0, 0, 0, 0)
        self._hub.listen([])
        self._hub.set_alarm(0)
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
        self.settlement.release()
        del self._hub, self._arena

    # -- restarts ----------------------------------------------------------------------------------------

    def _restart(self, index: int, stranded: Sequence[int], error: RemudaError) -> None:
        envs = self._backend.workers[index].env_ids
        reason, operation = _reason(error, envs)
        faults = [self._fault(env, _kind(error), operation, error, shared=env != reason) for env in envs]
        if not self._bear(faults):
            return self._drop(stranded)
        self._replace(index, self._quota.next_restart(index))
        lanes = self._layout.lanes
        for first in range(0, len(faults), lanes):
            its_faults = faults[first : first + lanes]
            slots = [slot for fault in its_faults if (slot := self._hub.slot_of(fault.env_id)) is not None]
            if not slots:
                continue  # a spare: nobody is told
            if slots[0] in stranded:
                self.settlement.settle(slots, its_faults)
            else:
                self.settlement.settle_idle(slots, its_faults)

    def _replace(self, index: int, at: float) -> None:
        self._backend.vacate(index)
        self._hub.reopen(index)
        self._restarts[index] = _Restart(at)
        self._proceed(index, self._restarts[index], time.monotonic())
        self._listen()

    def _proceed(self, worker: int, restart: _Restart, now: float) -> None:
        try:
            if restart.deadline is not None:
                self._greet(worker, restart, now)
            elif now >= restart.at:
                self._start(worker, restart)
        except (RemudaError, OSError) as error:
            self._start_failed(worker, restart, error)

    def _start(self, worker: int, restart: _Restart) -> None:
        restart.deadline = float("inf") if self._start_timeout is None else time.monotonic() + self._start_timeout
        self.restarts += 1
        self._backend.succeed(worker)

    def _greet(self, worker: int, restart: _Restart, now: float) -> None:
        reports = self._backend.poll_successor(worker)
        if isinstance(reports, Failure):
            raise build_error([reports])
        if reports is None:
            if restart.deadline is not None and now >= restart.deadline:
                raise StartTimeoutError(f"worker {worker} did not build its envs within {self._start_timeout} s")
            return
        self._check_spaces(worker, reports)
        pidfd = self._backend.join(worker, self._layout, self._arena, self._infos.columns, self._defaults)
        del self._restarts[worker]
        self._hub.arrive(worker, pidfd)
        self._backend.deliver(worker)
        for env in self._backend.workers[worker].env_ids:
            if self._hub.slot_of(env) is None:
                self._hub.post_message(_core.Op.PREPARE, worker, env, None)

    def _start_failed(self, index: int, restart: _Restart, error: Exception) -> None:
        told = error if isinstance(error, RemudaError) else RemudaError(f"worker {index} could not be started: {error}")
        _forget_frames(told)
        self._backend.kill(index)  # it may hang, or wait for a loop
        envs = self._backend.workers[index].env_ids
        reason, operation = _reason(told, envs)
        if not self._bear([self._fault(env, _kind(told), operation, told, shared=env != reason) for env in envs]):
            return self._hub.give_up(index)
        restart.at, restart.deadline = self._quota.next_restart(index), None

    def _check_spaces(self, worker: int, reports: Sequence[EnvReport]) -> None:
        observation, action = self._layout.observation_space, self._layout.action_space
        first = self._backend.workers[worker].env_ids[0]
        name = f"env {first} and its like before the restart"
        check_agreement("observation", observation, name, [report.observation_space for report in reports])
        check_agreement("action", action, name, [report.action_space for report in reports])

    def _listen(self) -> None:
        started = [worker for worker, restart in self._restarts.items() if restart.deadline is not None]
        self._hub.listen([fd for worker in started for fd in self._backend.descriptors(worker)])
        self._set_alarm()

    def _set_alarm(self) -> None:
        restarts = [r.at if r.deadline is None else r.deadline for r in self._restarts.values()]
        first = min([*restarts, *self._leaving.values()], default=0.0)
        self._hub.set_alarm(int(first * 1e9) if first < 1e9 else 0)

    def _drop(self, stranded: Iterable[int]) -> None:
        for slot in stranded:
            self._hub.drop(slot)

    # -- faults ------------------------------------------------------------------------------------------

    def _fault(self, env: int, kind: Any, operation: str, error: RemudaError, *, shared: bool = False) -> Fault:
        worker = worker_of(self._backend.workers, env)
        return Fault(env, worker.index, kind, operation, self._tracker.where(env), error, shared)

    def _bear(self, faults: Sequence[Fault]) -> bool:
        """Charges faults that happened at once; False when they are too many, and their envs are lost."""
        each = faults[:: self._layout.lanes]  # those of a vector env are one
        for fault in each:
            # As text: its error may come to hold the frames of whoever it is raised to, and handlers keep records.
            logger.warning("%s", str(fault), extra={"env": fault.env_id, "worker": fault.worker})
        limit = self._quota.charge(each)
        if limit is not None:
            self._faults.add_loss([fault.env_id for fault in faults], limit)
        return limit is None

    def _record(self, index: int, error: RemudaError) -> None:
        """Writes the crash record of the env that was the reason, where that is known."""
        envs = self._backend.workers[index].env_ids
        if self._recorder is None or self.closing or not isinstance(error, WorkerDiedError):
            return
        if error.where is None and len(envs) > 1:
            return
        where = error.where or self._tracker.where(envs[0])
        self._recorder.record_death(where.env_id, _kind(error), where, error)

    def _death_of(self, index: int, stranded: Sequence[int], awaited: bool) -> RemudaError:
        worker = self._backend.workers[index]
        op, env = self._hub.doing(index)
        if op is None and stranded:  # it had work, but did not come to it
            op, env = self._hub.last_op(stranded[0]), self._hub.env_of(stranded[0])
        operation = OPERATIONS[op] if op is not None else "call" if awaited else "nothing"
        if self.closing:
            operation = "close"
        make = self._doomed.pop(index, WorkerDiedError)
        return death_of(worker, operation, None if env is None else self._tracker.where(env), make)

    def _timeout_error(self, op: _core.Op, context: dict[str, Any]) -> EnvTimeoutError:
        name = _DEADLINES.get(OPERATIONS[op], "step_timeout")
        error = EnvTimeoutError(**context)
        limit = self._start_timeout if name == "start_timeout" else getattr(self._policy, name)
        assert limit is not None  # or nobody would have missed it
        error.deadline, error.limit = name, limit
        return error


_DEADLINES = {"reset": "reset_timeout", "call": "call_timeout", "close": "call_timeout", "build": "start_timeout"}


@dataclass(frozen=True)
class _Rebuild:
    """Waits for an env to be built anew in its worker."""

    supervisor: Supervisor
    env: int

    def answer(self, sequence: int, parts: Parts) -> None:
        """It worked."""

    def fail(self, sequence: int, failure: Failure) -> None:
        self.supervisor.rebuild_failed(self.env, failure)

    def abandon(self, error: RemudaError) -> None:
        """Its worker died: that is another fault."""


@dataclass(frozen=True)
class _Raised:
    """Why a worker was killed: what a vector env of it has raised, once for each of its slots."""

    failures: list[Failure]

    def __call__(self, **_: Any) -> EnvError:
        return EnvError(self.failures)


def _forget_frames(error: BaseException) -> None:
    """Whoever keeps a fault must not keep what the frames that raised it know: us, and the memory of the pool."""
    error.__traceback__ = error.__context__ = None


def _reason(error: RemudaError, envs: Sequence[int]) -> tuple[int, str]:
    """Which env of a worker that is gone, or could not come, was the reason, and what was done to it."""
    if isinstance(error, WorkerDiedError):
        return envs[0] if error.where is None else error.where.env_id, error.operation
    if not isinstance(error, EnvError):
        return envs[0], "build"
    return (error.env_ids or envs)[0], error.failures[0].operation


_KINDS = {
    WorkerDiedError: "death",
    EnvTimeoutError: "timeout",
    StartTimeoutError: "timeout",
    CorruptReplyError: "corrupt",
}


def _kind(error: RemudaError) -> str:
    return _KINDS.get(type(error), "exception")
