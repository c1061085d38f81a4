"""What workers answer, in the order of arrival, and the pool that they belong to."""

from __future__ import annotations

import queue
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from mlagents.trainers.subprocess_env_manager import EnvironmentCommand, EnvironmentRequest, EnvironmentResponse
from mlagents_envs.base_env import BehaviorSpec, TerminalSteps

from remuda import Batch, EnvProgress, Pool, StateError
from remuda._faces.episode_counter import EpisodeCounter
from remuda.mlagents import wire
from remuda.mlagents.agents import Agents
from remuda.mlagents.errors import ClosedError, error_of, translated
from remuda.mlagents.worker import ANSWER, Answer, Request, put

_ANSWERED = {
    EnvironmentCommand.STEP: "step",
    EnvironmentCommand.RESET: "reset",
    EnvironmentCommand.BEHAVIOR_SPECS: "call",
}
"""Requests that are answered, and what reports of faults call them."""


class _Arrival(NamedTuple):
    to: EnvironmentCommand
    response: EnvironmentResponse


class StepQueue:
    """The answers of all workers. Who waits for one sleeps.

    Args:
        start: Makes the pool, when the first worker is asked for. It is to tell what :meth:`operation_of` says.
    """

    def __init__(self, start: Callable[[], Pool]) -> None:
        self._start = start
        self._pool: Pool | None = None
        self._closed = False
        self._lines: dict[int, Line] = {}
        self._arrived: deque[_Arrival] = deque()

    def open_line(self, worker_id: int) -> Line:
        """A new line to a worker, whose env may be another by now. Workers start with the first one."""
        before = self._lines.get(worker_id)
        line = Line(self, worker_id) if before is None else Line(self, worker_id, before.specs, before.counter)
        self._lines[worker_id] = line
        self.process(worker_id)
        return line

    def process(self, worker_id: int) -> Any:
        """The process: ``name``, ``pid``, ``exitcode`` and ``is_alive()``."""
        return next(worker for worker in self._get_pool().workers if worker_id in worker.env_ids)

    def operation_of(self, operation: str, where: EnvProgress) -> tuple[str, EnvProgress]:
        """What an env is in, which to the pool is always a step."""
        line = self._lines.get(where.env_id)
        return (operation, where) if line is None else line.operation_of(operation)

    # -- answers -----------------------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """Whether nobody has anything to do, and all that came was taken."""
        return not self._arrived and not (self._pool is not None and self._pool.pending)

    def empty(self) -> bool:
        return not self._arrived

    def get_nowait(self) -> EnvironmentResponse:
        """The first answer that has come.

        Raises:
            queue.Empty: There is none.
        """
        if not self._arrived:
            raise queue.Empty
        return self._arrived.popleft().response

    def wait(self, timeout: float | None = None) -> bool:
        """Sleep until there is an answer; whether there is one after ``timeout`` seconds.

        Raises:
            remuda.StateError: Nobody was asked anything.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._arrived:
            if not self._get_pool().pending:
                raise StateError("expected workers that step, got none: call reset first")
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return False
            self._receive(left)
        return True

    def answer_of(self, worker_id: int) -> EnvironmentResponse:
        """Wait for what a worker answers to what is no step, and take it, past all that came before."""
        while True:
            for arrival in self._arrived:
                if arrival.response.worker_id == worker_id and arrival.to is not EnvironmentCommand.STEP:
                    self._arrived.remove(arrival)
                    return arrival.response
            self._receive(None)

    @translated
    def _receive(self, timeout: float | None) -> None:
        batch = self._get_pool().recv(1, timeout)
        for row, worker_id in enumerate(batch.env_ids.tolist()):
            if (arrival := self._lines[worker_id].read(batch, row)) is not None:
                self._arrived.append(arrival)

    def put(self, to: EnvironmentCommand, response: EnvironmentResponse) -> None:
        """One that needed no worker."""
        self._arrived.append(_Arrival(to, response))

    # -- orders ------------------------------------------------------------------------------------------

    @translated
    def send_row(self, row: np.ndarray[Any, Any], to: np.ndarray[Any, Any]) -> None:
        """``to``: the worker's number, in an array."""
        self._get_pool().send(row, to)

    @translated
    def put_order(self, order: list[Request], worker_id: int) -> None:
        """The order that the worker follows when it gets an empty row."""
        self._get_pool().apply_async(put, (order,), env_ids=[worker_id])

    # -- life --------------------------------------------------------------------------------------------

    def check_open(self) -> None:
        if self._closed:
            raise ClosedError("the manager is closed; make a new one")

    def close(self, timeout: float) -> None:
        """End the workers; envs get ``timeout`` seconds to close."""
        self._closed = True
        self._arrived.clear()
        if self._pool is not None:
            self._pool.close(timeout)

    @property
    def pool(self) -> Pool | None:
        """The workers'; None until there is one."""
        return self._pool

    def _get_pool(self) -> Pool:
        self.check_open()
        if self._pool is None:
            self._pool = self._start()
        return self._pool


class Line:
    """The way to one worker, in the form of the connection that a ``UnityEnvWorker`` holds.

    An env does one thing at a time. What is sent meanwhile waits here, and what needs no answer goes along with the
    next request that does. Before the first of those, the env is built.

    Attributes:
        specs: The behaviours that the worker has told of.
        counter: How far its envs have come, of which it has one after another.
    """

    def __init__(
        self,
        owner: StepQueue,
        worker_id: int,
        specs: dict[str, BehaviorSpec] | None = None,
        counter: EpisodeCounter | None = None,
    ) -> None:
        self._queue, self._worker_id = owner, worker_id
        self._address = np.array([worker_id])
        self._row = np.zeros((1, *wire.ORDERS.shape), np.uint8)
        self.specs: dict[str, BehaviorSpec] = {}
        self._no_ends: dict[str, TerminalSteps] = {}
        self._learn(specs or {})
        self.counter = counter or EpisodeCounter()
        self._agents = Agents()
        self._unsent: list[Request] = []
        self._has_env = False
        self._in_flight: EnvironmentCommand | None = None
        self._is_building = False  # for what is in flight, which is still unsent

    def send(self, request: EnvironmentRequest) -> None:
        """Raise ``ClosedError`` where the manager was closed."""
        self._queue.check_open()
        command, payload = request
        match command:
            case EnvironmentCommand.CLOSE:  # the queue closes all at once
                return
            case EnvironmentCommand.BEHAVIOR_SPECS if self.specs:
                self._queue.put(command, self._response(command, self.specs))
                return
            case EnvironmentCommand.STEP:
                payload = {name: info.env_action for name, info in payload.items() if len(info.agent_ids) > 0}
            case EnvironmentCommand.RESET:
                payload = None  # the parameters went before it
            case EnvironmentCommand.ENVIRONMENT_PARAMETERS:
                payload = dict(payload or {})
        self._unsent.append((command, payload))
        self._flush()

    def recv(self) -> EnvironmentResponse:
        """Wait for the answer to what is no step."""
        return self._queue.answer_of(self._worker_id)

    def cut_off(self) -> dict[str, Any]:
        """The step that ends the episodes of all agents, where the env is gone."""
        return self._agents.cut_off()

    def operation_of(self, operation: str) -> tuple[str, EnvProgress]:
        """Of the env. `operation`: the pool's word for it."""
        if operation == "step" and self._in_flight is not None:  # not "nothing", as of one that died while it was idle
            operation = "build" if self._is_building else _ANSWERED[self._in_flight]
        return operation, self.counter.progress(self._worker_id)

    def read(self, batch: Batch, row: int) -> _Arrival | None:
        """Take what the pool has received, and send what has waited for it; None where nobody waits for that."""
        command, self._in_flight = self._in_flight, None
        assert command is not None  # or there would be no answer
        was_building, self._is_building = self._is_building, False
        self._has_env = not batch.truncated[row]
        arrival = None
        if not self._has_env:
            if was_building:
                self._take_order()  # which the failure answers
            error = error_of(batch.infos[row]["final_info"]["fault"])
            arrival = _Arrival(command, self._response(EnvironmentCommand.ENV_EXITED, error))
        elif was_building:
            self._unpack(batch, row)
        else:
            arrival = _Arrival(command, self._response(command, self._take_in(command, batch, row)))
        self._flush()
        return arrival

    def _take_in(self, command: EnvironmentCommand, batch: Batch, row: int) -> Any:
        payload = self._unpack(batch, row)
        match command:
            case EnvironmentCommand.BEHAVIOR_SPECS:
                return self.specs
            case EnvironmentCommand.RESET:
                self._agents = Agents()
                self._agents.follow(payload)
            case EnvironmentCommand.STEP:
                self._agents.follow(payload.all_step_result)
        return payload

    def _unpack(self, batch: Batch, row: int) -> Any:
        obs = batch.obs[row]
        if not wire.is_empty(obs):
            return wire.load_answer(obs, self._no_ends)
        answer: Answer = batch.infos[row][ANSWER]
        self._learn(answer.specs)
        return answer.payload

    def _learn(self, specs: dict[str, BehaviorSpec]) -> None:
        self.specs.update(specs)
        self._no_ends.update({name: TerminalSteps.empty(spec) for name, spec in specs.items()})

    def _flush(self) -> None:
        """Send the worker all up to the next request that it answers, if there is one and the worker is free."""
        command = next((command for command, _ in self._unsent if command in _ANSWERED), None)
        if command is None or self._in_flight is not None:
            return
        self._is_building = not self._has_env
        self._dispatch([] if self._is_building else self._take_order())
        self._in_flight = command

    def _take_order(self) -> list[Request]:
        end = next(i for i, (command, _) in enumerate(self._unsent, 1) if command in _ANSWERED)
        order, self._unsent = self._unsent[:end], self._unsent[end:]
        return order

    def _dispatch(self, order: list[Request]) -> None:
        """Send it; an empty one builds the env. What needs no answer goes first, so what begins with a step is one."""
        is_step = bool(order) and order[0][0] is EnvironmentCommand.STEP
        if not (is_step and wire.fill_with_actions(self._row[0], order[0][1])):
            self._row[0, 0] = 0
            self._queue.put_order(order, self._worker_id)
        self._queue.send_row(self._row, self._address)
        self._count(order)

    def _count(self, order: list[Request]) -> None:
        if order:
            self.counter.count(_ANSWERED[order[-1][0]])

    def _response(self, command: EnvironmentCommand, payload: Any) -> EnvironmentResponse:
        return EnvironmentResponse(command, self._worker_id, payload)
