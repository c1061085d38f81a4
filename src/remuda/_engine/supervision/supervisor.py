"""Supervises a pool: handles the answers, faults, deaths and missed deadlines of its workers."""

from __future__ import annotations

import threading
import time

from remuda import _core
from remuda._engine.calls import Addressee
from remuda._engine.running import Running
from remuda._engine.supervision.env_faults import EnvFaults
from remuda._engine.supervision.fault_reports import FaultReports
from remuda._engine.supervision.faults import Faults
from remuda._engine.supervision.worker_faults import WorkerFaults
from remuda._wire.failures import load_failure
from remuda._wire.pickling import Buffers, load
from remuda.errors import Failure, RemudaError

_TOGETHER_NS = 20_000_000  # faults that are no further apart, or in one batch, are logged together


class Supervisor:
    """Handles all events of a pool's workers, in the supervisor's thread.

    Each decision on an event holds the hub's lock, so callers see all of it or nothing.

    Attributes:
        envs, workers: Apply the policy to envs and workers that fail.
        addressees: The receivers of the answers to messages, by sequence; None: the answer has no receiver.
    """

    def __init__(
        self,
        running: Running,
        faults: Faults,
        reports: FaultReports,
        envs: EnvFaults,
        workers: WorkerFaults,
        addressees: dict[int, Addressee | None],
    ) -> None:
        self.envs, self.workers, self.addressees = envs, workers, addressees
        self._running, self._backend, self._faults = running, running.backend, faults
        self._reports, self._mode = reports, running.layout.mode
        self._thread: int | None = None  # the thread that calls `attend`
        self._tell_at = 0  # the time of `time.monotonic_ns` until which faults wait for others that are alike

    @property
    def is_in_own_thread(self) -> bool:
        """Whether the caller is the supervisor's thread: a log handler."""
        return self._thread == threading.get_ident()

    def attend(self) -> None:
        """Handles all events that have occurred."""
        self._thread = threading.get_ident()
        hub = self._running.hub
        has_decided = hub.decide(self._decide)
        now, sent = time.monotonic_ns(), self._running.records_sent()
        if has_decided:
            self._tell_at = now + _TOGETHER_NS
        self._relay_records()
        if now < self._tell_at and not hub.awaits_telling:
            self._running.workers.supervision.remind(self._tell_at - now)
            return
        try:
            self.tell()
        finally:
            hub.told(sent)

    def tell(self) -> None:
        """Logs the faults so far."""
        self._reports.tell()

    def _relay_records(self) -> None:
        if self._backend.processes is not None:
            self._backend.processes.drain(self._running.records_sent)

    def _decide(self, events: list[_core.Message | _core.LateWorker | _core.DeadWorker]) -> bool:
        """Decides on events, in one hold of the hub's lock. Returns whether there were any."""
        try:
            for event in events:
                match event:
                    case _core.Message():
                        self._on_message(event)
                    case _core.LateWorker():
                        self.workers.late(event.worker, event.op, event.task)
                    case _core.DeadWorker():
                        self.workers.died(event)
            self.workers.continue_starts()
        except Exception as error:  # a bug in remuda: callers must not wait for ever
            self._faults.break_all(error)
        return bool(events)

    def close(self) -> None:
        """Makes later decisions drop everything, and ends the start of successors."""
        self._running.hub.in_turn(self.workers.close, None)
        self.workers.stop_starts()

    # -- messages ------------------------------------------------------------------------------------------

    def _on_message(self, event: _core.Message) -> None:
        """`event.slot`: the slot that failed or needs a renewal; for an answer, its env (None: the whole worker)."""
        if event.flags & _core.RENEWAL_DUE:
            return self._renew(event)
        if event.flags & _core.ABANDONED:
            return self._on_abandoned(event)
        is_answer = bool(event.flags & _core.IS_MESSAGE)
        slot = None if is_answer else event.slot
        try:
            failure = self._load_failure(event.parts) if event.flags & _core.IS_FAILURE else None
        except Exception:  # native code in the worker has overwritten the pickled failure.
            if slot is not None:  # the slot is in flight until its worker dies
                self._running.hub.resolve(slot, _core.Outcome.RESEND)
            return self.workers.late(event.worker, None)
        # A failed reset in advance is not reported here. The reset that would have used it reports the failure.
        is_undone = bool(event.flags & _core.UNDONE)
        addressee = self.addressees.pop(event.sequence, None) if is_answer else None
        hang = None if failure is None else self.envs.hang_of(failure)
        if hang is not None:
            self.envs.hung([] if slot is None else [slot], hang)
            if addressee is not None and not is_undone:
                addressee.abandon(hang)
                self._faults.note_heard(hang)
        elif addressee is not None and not is_undone:
            if failure is None:
                addressee.answer(event.sequence, event.parts)
            else:
                addressee.fail(event.sequence, self.envs.renamed(failure))
        elif failure is not None and slot is not None:
            self.envs.failed(slot, failure)
        elif failure is not None:
            self._faults.add_failure(failure)
        return None

    def _load_failure(self, parts: Buffers) -> Failure:
        failure = load_failure(parts, self._backend.interrupts)
        self._backend.interrupts.pop(failure.env_id, None)
        return failure

    def _renew(self, event: _core.Message) -> None:
        """Replaces a worker and its env. The worker's successor repeats a command that the worker has not completed."""
        self.workers.renew(event.worker, has_grown=bool(event.flags & _core.GROWN))
        if event.flags & _core.IS_MESSAGE:  # a spare's reset in advance, which the worker's successor makes
            self.addressees.pop(event.sequence, None)
            return
        assert event.slot is not None  # the result of a command
        if event.flags & _core.UNDONE:  # a reset in mid-episode, which the worker's successor repeats
            self._running.hub.resolve(event.slot, _core.Outcome.RESEND)
        elif self._mode.in_same_step and not event.flags & _core.HAS_SPARES:  # the reset completes a step's row
            self._running.hub.resolve(event.slot, _core.Outcome.RESET, event.parts)

    def _on_abandoned(self, event: _core.Message) -> None:
        """Handles an error that a shard has sent in place of an answer. The shard may also have given up the env."""
        error, loss = load(event.parts)
        is_answer = bool(event.flags & _core.IS_MESSAGE)
        if is_answer:
            self._abandon(event.sequence, error)
        else:
            assert event.slot is not None  # the result of a command
            self._running.hub.resolve(event.slot, _core.Outcome.DROP)
        if event.slot is not None and loss is not None:
            self.envs.lost(event.slot, loss, awaited=not is_answer)
        elif loss is None and not is_answer:
            self._faults.add_refusal(error)

    def _abandon(self, sequence: int, error: RemudaError) -> None:
        """Ends the call of a message that will get no answer."""
        if (addressee := self.addressees.pop(sequence, None)) is not None:
            addressee.abandon(error)
