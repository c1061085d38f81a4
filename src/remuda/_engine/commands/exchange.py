"""Sends commands and messages to workers, waits for results, and handles answers, faults and deaths."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, NoReturn

from remuda import _core
from remuda._backends.waiting import Deadline
from remuda._engine.calls import Addressee, Noting
from remuda._engine.commands.answers import Answers
from remuda._engine.options.checks import nanoseconds
from remuda._engine.running import Running
from remuda._engine.supervision.descriptions import operation_of
from remuda._engine.supervision.faults import Faults, must_reset
from remuda._engine.supervision.supervisor import Supervisor
from remuda._wire.failures import load_failure
from remuda._wire.pickling import Buffers, load
from remuda.errors import ClosedError, RemudaError, StateError

_FOREVER = -1  # the value of a timeout in ns that stands for no timeout.
_SLICE = 0.05  # seconds between two looks at a call


class Exchange:
    """The communication of a pool with its workers.

    Results stay in the hub until they are taken. Answers go to their `Call`. Faults stay until the pool raises them.

    Attributes:
        faults: The faults that are not raised yet, and the envs that are lost.
        supervisor: Applies the policy to envs that fail.
    """

    def __init__(self, running: Running, faults: Faults, supervisor: Supervisor) -> None:
        self.faults, self.supervisor = faults, supervisor
        self._running, self._backend = running, running.backend
        self._layout = running.layout
        self._calls = supervisor.addressees

    # -- results -----------------------------------------------------------------------------------------

    def send(self, op: _core.Op, targets: Sequence[int], blobs: list[Any] | None, part: int, *, to_all: bool) -> None:
        """Sends `op` (a reset or an observe) to the slots `targets` of a part. If this raises, nothing was sent.

        `blobs`: the pickled arguments of each env.
        """
        refusal = self._running.hub.send(op, None if to_all else targets, None, blobs, part)
        if refusal is not None:
            self.raise_refusal(refusal, part)

    def raise_refusal(self, refusal: _core.Refusal, part: int) -> NoReturn:
        """Raises the error for a command to envs of a part that the hub refused to send."""
        match refusal.reason:
            case _core.Reason.MUST_RESET:
                raise must_reset(refusal.slots)
            case _core.Reason.LOST:
                self.log(part)
                raise self.faults.lost_env(self._running.slots.env_of(refusal.slots[0]))
            case _core.Reason.PENDING:
                raise StateError(f"expected no env in flight, got {len(refusal.slots)}; call recv or discard first")
            case _core.Reason.IN_FLIGHT:
                raise StateError(
                    f"expected envs whose last result was received, but env {refusal.slots[0]} is in flight; "
                    "call recv first"
                )
            case _:
                raise StateError("the pool was split in the course of this call, and nothing was sent; call again")

    @property
    def spares(self) -> list[int]:
        """The spares: the envs that back no slot now. Each is the only env of the worker with the same number."""
        return [env for env in range(self._layout.num_envs) if self._running.slots.slot_of(env) is None]

    def prepare(self, spare: int, arguments: Buffers | None) -> None:
        """Sends a spare the command to reset in advance. Keeps the arguments for a successor of the spare's worker."""
        if arguments is None:
            self._post(spare, spare, None, op=_core.Op.PREPARE)
        else:
            self._await_room(spare)  # first: otherwise a successor would receive the arguments twice
            preparation = self.supervisor.workers.preparations.expect(spare, arguments)
            self._post(spare, spare, arguments, self._calls, preparation, op=_core.Op.PREPARE)

    def forget_preparations(self, envs: Sequence[int]) -> None:
        """Drops the reset arguments that `prepare` has kept, because the caller's reset has given others."""
        self.supervisor.workers.preparations.forget(envs)

    def wait(self, wanted: int, timeout: float | None, part: int) -> bool:
        """Waits for results of `wanted` envs of a part. Returns False if time runs out or an error must be raised."""
        deadline = None if timeout is None else time.monotonic() + timeout
        return self._running.hub.wait(wanted, _remaining_ns(deadline), part)

    def log(self, part: int) -> None:
        """Emits the log records that belong before an error."""
        self.wait(0, None, part)

    def drop_pending(self, part: int) -> None:
        """Waits for all envs of a part that are in flight, and drops their results and faults."""
        # One wait may not suffice: a death ends it early, and a reset in the background may follow a dropped result.
        self.faults.drop(part)
        while pending := self._running.slots.pending(part):
            self.wait(pending, None, part)
            self._running.hub.drop_ready(part)
            self.faults.drop(part)  # otherwise a fault that must be raised at once would end each further wait

    # -- messages ----------------------------------------------------------------------------------------

    def call(
        self, slots: Sequence[int], messages: Sequence[Buffers], about: Hashable = None, part: int | None = None
    ) -> Answers:
        """Sends `messages[i]` to the env of `slots[i]`. Returns a `Call` for all answers.

        A vector env receives the first message for its slots, and its answer is that of each slot. An env that
        is rebuilt receives the latest message with each `about` again, except None. `part`: the part of the slots, if
        other threads may use other parts while one waits for the answers.
        """
        self.faults.check_alive(self._running.slots.env_of(slot) for slot in slots)
        wait = self._wait_for_call if part is None else partial(self._wait_in_turn, part)
        call, sent = Answers(wait, self.faults), dict[int, int]()
        for slot, parts in zip(slots, messages, strict=True):
            env = self._layout.ids_with(self._running.slots.env_of(slot))[0]
            if env not in sent:
                addressee = self._remembering(call, env, about, parts)
                sent[env] = self._post(self._running.slots.worker_of(slot), env, parts, self._calls, addressee)
            call.expect(sent[env], slot, self._running.slots.worker_of(slot))
        return call

    def ask(
        self,
        envs: Sequence[int],
        messages: Sequence[Buffers],
        op: _core.Op = _core.Op.MESSAGE,
        addressee_of: Callable[[Answers, int], Addressee] = lambda call, _: call,
    ) -> Answers:
        """Sends `messages[i]` to `envs[i]`. Returns a `Call` for all answers.

        Args:
            envs: Envs of a pool without spares; a vector env is named by its first id.
            messages: One for each env.
            op: The op of the messages.
            addressee_of: Returns the receiver of the answer of the env at an index of `envs`.
        """
        call = Answers(self._wait_for_call, self.faults)
        for i, (env, parts) in enumerate(zip(envs, messages, strict=True)):
            worker = self._running.slots.worker_of(env)
            call.expect(self._post(worker, env, parts, self._calls, addressee_of(call, i), op), env, worker)
        return call

    def tell(self, worker: int, parts: Buffers) -> Answers:
        """Sends a message to a worker as a whole, not to one of its envs. Returns a `Call` for the answer."""
        call = Answers(self._wait_for_call, self.faults)
        call.expect(self._post(worker, _core.WHOLE_WORKER, parts, self._calls, call), None, worker)
        return call

    def _remembering(self, call: Answers, env: int, about: Hashable, parts: Buffers) -> Addressee:
        """Returns the receiver of the answer to a call. It keeps a lasting call for envs that are rebuilt."""
        if about is None:
            return call
        copies = [bytes(part) for part in parts]  # the caller may change the arrays in the message later
        return Noting(call, partial(self.supervisor.workers.remembered.remember, env, about, copies))

    def call_spares(self, call: Answers, parts: Buffers, about: Hashable = None) -> None:
        """Sends a message to each env that backs no slot. The call returns their answers after those of the slots."""
        for spare in self.spares:
            addressee = self._remembering(call, spare, about, parts)
            call.expect(self._post(spare, spare, parts, self._calls, addressee), spare, spare)

    def notify(self, worker: int, parts: Buffers, env: int = _core.WHOLE_WORKER) -> None:
        """Sends a message to a worker or one of its envs. If the message fails, a later call raises the failure."""
        self._post(worker, env, parts, self._calls)

    def _post(
        self,
        worker: int,
        env: int,
        parts: Buffers | None,
        calls: dict[int, Addressee | None] | None = None,
        addressee: Addressee | None = None,
        op: _core.Op = _core.Op.MESSAGE,
    ) -> int:
        """Sends a message, once the worker's ring has room. Raises BrokenPoolError if the worker's envs are lost.

        `calls`: the dict that keeps the addressee; None: closing the pool does not wait for the answer.
        """
        self._await_room(worker)
        return self._running.hub.post_message(op, worker, env, parts, calls, addressee)

    def _await_room(self, worker: int) -> None:
        """Waits until a worker takes a message. Raises BrokenPoolError if its envs are lost."""
        env_ids = self._backend.workers[worker].env_ids
        self.faults.check_alive(env_ids)
        while not self._running.workers.has_room(worker) or not self.supervisor.workers.takes_messages(worker):
            self.attend_until(None)
            self.faults.check_alive(env_ids)

    def _wait_in_turn(self, part: int, call: Answers, timeout: float | None) -> None:
        """Does the same as `_wait_for_call`. Meanwhile other threads may use other parts."""
        if call.done or self._running.is_closed:
            return self._wait_for_call(call, timeout)
        self._running.hub.in_turn(partial(self._wait_for_call, call, timeout), part)

    def _wait_for_call(self, call: Answers, timeout: float | None) -> None:
        deadline = None if timeout is None else time.monotonic() + timeout
        while not call.done:
            if self._running.is_closed:  # while the pool closes, `close_envs` receives all answers
                raise ClosedError("the pool was closed before all answers had come")
            if self.faults.broken is not None:  # the answer may be the event that could not be handled
                raise self.faults.broken
            # In slices, because another thread may have answered since the look at the call.
            slice_ends = time.monotonic() + _SLICE
            self.attend_until(slice_ends if deadline is None else min(deadline, slice_ends))
            if deadline is not None and time.monotonic() >= deadline:
                break
        if self._running.is_there:  # the answers may have come before the first look at the call
            self._running.hub.log_news()

    # -- closing -----------------------------------------------------------------------------------------

    def close_envs(self, deadline: Deadline) -> Answers:
        """Makes workers close their envs, and waits for that until the deadline. Drops everything in flight."""
        close_errors = _CloseErrors(self._wait_for_call, self.faults)
        for worker in self._backend.workers:
            while self.supervisor.workers.has_process(worker.index) and worker.is_alive() and not deadline.has_passed():
                if self._running.workers.has_room(worker.index):
                    sequence = self._running.hub.post_message(
                        _core.Op.CLOSE, worker.index, _core.WHOLE_WORKER, None, self._calls, close_errors
                    )
                    close_errors.expect(sequence, None, worker.index)
                    break
                self.attend_until(_soon(deadline))
        while self._calls and not deadline.has_passed():
            self.attend_until(_soon(deadline))
        return close_errors

    def raise_close_errors(self, close_errors: Answers) -> None:
        """Raises the error that envs have raised when they were closed, if any."""
        answers = close_errors.so_far()
        if failures := [load_failure(parts, self._backend.interrupts) for answer in answers for parts in load(answer)]:
            raise self.faults.shown(self.faults.error_for(failures))
        if close_errors.error is not None:
            raise close_errors.error

    # -- events ------------------------------------------------------------------------------------------

    def attend_until(self, deadline: float | None) -> None:
        """Waits until the supervisor has handled an event, or until `deadline`, a time of `time.monotonic`."""
        self._running.hub.wait(0, _remaining_ns(deadline), None)


class _CloseErrors(Answers):
    """The answers of workers to the command to close their envs.

    The death of a worker in an earlier command is not an error of closing, because everything in flight is dropped.
    """

    def abandon(self, error: RemudaError) -> None:
        if operation_of(error) == "close":
            super().abandon(error)


def _soon(deadline: Deadline) -> float | None:
    """Returns the time at which a wait must end to check the deadline again; None if there is no deadline."""
    slice = deadline.slice()
    return None if slice is None else time.monotonic() + slice


def _remaining_ns(deadline: float | None) -> int:
    if deadline is None:
        return _FOREVER
    return nanoseconds(max(0.0, deadline - time.monotonic()))
