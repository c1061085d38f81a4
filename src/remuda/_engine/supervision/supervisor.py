"""Supervises a pool: handles the answers, faults, deaths and missed deadlines of its workers."""

from __future__ import annotations

from remuda import _core
from remuda._engine.calls import Addressee
from remuda._engine.running import Running
from remuda._engine.supervision.env_faults import EnvFaults
from remuda._engine.supervision.faults import Faults
from remuda._engine.supervision.log_records import LogRecords
from remuda._engine.supervision.worker_faults import WorkerFaults
from remuda._wire.failures import load_failure
from remuda._wire.pickling import Buffers, load
from remuda.errors import Failure, RemudaError


class Supervisor:
    """Handles all events of a pool's workers, in the supervisor's thread.

    Each decision on an event holds the hub's lock, so callers see all of it or nothing. No code of the program runs in
    this thread, because that code may wait for a lock of a thread that waits for a decision.

    Attributes:
        envs, workers: Apply the policy to envs and workers that fail.
        addressees: The receivers of the answers to messages, by sequence; None: the answer has no receiver.
        logs: The log records that are not emitted yet.
    """

    def __init__(
        self,
        running: Running,
        faults: Faults,
        logs: LogRecords,
        envs: EnvFaults,
        workers: WorkerFaults,
        addressees: dict[int, Addressee | None],
    ) -> None:
        self.logs, self.envs, self.workers, self.addressees = logs, envs, workers, addressees
        self._running, self._backend, self._faults = running, running.backend, faults

    def attend(self) -> None:
        """Handles all events that have occurred."""
        self._running.hub.decide(self._decide)
        if (ns := self.logs.emit_if_late()) is not None:
            self._running.workers.supervision.remind(ns)

    def _decide(self) -> bool:
        """Decides on events, in one hold of the hub's lock. Returns whether there are faults to be logged."""
        try:
            for event in self._running.hub.take_events():
                match event:
                    case _core.Message():
                        self._on_message(event)
                    case _core.LateWorker():
                        self.workers.late(event.worker, event.op, event.task)
                    case _core.EndedWorker():
                        self.workers.died(event.worker)
            self.workers.continue_starts()
        except Exception as error:  # a bug in remuda: callers must not wait for ever
            if self._faults.broken is None:
                self.workers.break_all(self._faults.break_all(error))
        return self.logs.has_faults

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
                self._running.hub.settle(slot, _core.Fate.DYING)
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
        elif failure is not None and slot is not None and event.flags & _core.NOT_RESUMED:
            self.envs.not_resumed(slot, failure)
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
            self._running.hub.settle(event.slot, _core.Fate.RENEWED)
        else:
            self._running.hub.settle(event.slot, _core.Fate.ENDED, event.parts)

    def _on_abandoned(self, event: _core.Message) -> None:
        """Handles an error that a shard has sent in place of an answer. The shard may also have given up the env."""
        error, loss = load(event.parts)
        is_answer = bool(event.flags & _core.IS_MESSAGE)
        if is_answer:
            self._abandon(event.sequence, error)
        else:
            assert event.slot is not None  # the result of a command
            self._running.hub.settle(event.slot, _core.Fate.LOST)
        if event.slot is not None and loss is not None:
            self.envs.lost(event.slot, loss, awaited=not is_answer)
        elif loss is None and not is_answer:
            self._faults.add_refusal(error)

    def _abandon(self, sequence: int, error: RemudaError) -> None:
        """Ends the call of a message that will get no answer."""
        if (addressee := self.addressees.pop(sequence, None)) is not None:
            addressee.abandon(error)
