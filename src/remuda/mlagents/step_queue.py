"""A queue of the answers of workers, in the order of arrival, and the pool of these workers."""

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
from remuda._wire.pickling import dump_whole
from remuda.mlagents import wire
from remuda.mlagents.agents import Agents
from remuda.mlagents.errors import ClosedError, error_of, translated
from remuda.mlagents.worker import ANSWER, Answer, Request, put

_ANSWERED = {
    EnvironmentCommand.STEP: "step",
    EnvironmentCommand.RESET: "reset",
    EnvironmentCommand.BEHAVIOR_SPECS: "call",
}
"""Requests that are answered, with their operations in reports of faults."""


class _Arrival(NamedTuple):
    to: EnvironmentCommand
    response: EnvironmentResponse


class StepQueue:
    """The queue of the answers of all workers. Waiting for an answer takes no CPU time.

    Args:
        start: Makes the pool when the first worker is needed.

    Attributes:
        pool: The pool of the workers; None until the first worker is needed.
    """

    def __init__(self, start: Callable[[], Pool]) -> None:
        self._start = start
        self.pool: Pool | None = None
        self._closed = False
        self._lines: dict[int, Line] = {}
        self._arrived: deque[_Arrival] = deque()

    def open_line(self, worker_id: int) -> Line:
        """Returns the connection to a worker. The next request builds its env. The first call starts all workers."""
        line = self._lines.setdefault(worker_id, Line(self, worker_id))
        line.forget()
        self.process(worker_id)
        return line

    def process(self, worker_id: int) -> Any:
        """Returns the worker's process, which has ``name``, ``pid``, ``exitcode`` and ``is_alive()``."""
        return next(worker for worker in self.get_pool().workers if worker_id in worker.env_ids)

    def rename_operation(self, operation: str, where: EnvProgress) -> tuple[str, EnvProgress]:
        """Returns an env's true operation and progress for reports, because the pool runs every operation as a step."""
        line = self._lines.get(where.env_id)
        return (operation, where) if line is None else line.rename_operation(operation)

    # -- answers -----------------------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """Whether no request is in flight, and all answers were taken."""
        return not self._arrived and not (self.pool is not None and self.pool.pending)

    def empty(self) -> bool:
        return not self._arrived

    def get_nowait(self) -> EnvironmentResponse:
        """Takes the first answer that has arrived.

        Raises:
            queue.Empty: No answer has arrived.
        """
        if not self._arrived:
            raise queue.Empty
        return self._arrived.popleft().response

    def wait(self, timeout: float | None = None) -> bool:
        """Sleeps until an answer arrives. Returns False if none has arrived after ``timeout`` seconds.

        Raises:
            remuda.StateError: No request is under way.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._arrived:
            if not self.get_pool().pending:
                raise StateError("expected workers that step, got none: call reset first")
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return False
            self._receive(left)
        return True

    def answer_of(self, worker_id: int) -> EnvironmentResponse:
        """Waits for a worker's answer to a request other than a step. Earlier answers stay in the queue."""
        while True:
            for arrival in self._arrived:
                if arrival.response.worker_id == worker_id and arrival.to is not EnvironmentCommand.STEP:
                    self._arrived.remove(arrival)
                    return arrival.response
            self._receive(None)

    @translated
    def _receive(self, timeout: float | None) -> None:
        batch = self.get_pool().recv(1, timeout)
        for row, worker_id in enumerate(batch.env_ids.tolist()):
            if (arrival := self._lines[worker_id].read(batch, row)) is not None:
                self._arrived.append(arrival)

    def put(self, to: EnvironmentCommand, response: EnvironmentResponse) -> None:
        """Appends an answer that this process makes without the worker."""
        self._arrived.append(_Arrival(to, response))

    @translated
    def drop_all(self) -> None:
        """Waits for the requests in flight, and drops all answers and waiting requests. The envs stay."""
        pool = self.get_pool()
        pool.discard()
        pool.reset()  # with the serial backend, an interrupt inside an env leaves a slot that refuses steps
        self._arrived.clear()
        for line in self._lines.values():
            line.forget()

    # -- life --------------------------------------------------------------------------------------------

    def check_open(self) -> None:
        if self._closed:
            raise ClosedError("the manager is closed; make a new one")

    def close(self, timeout: float) -> None:
        """Ends the workers; envs have ``timeout`` seconds to close."""
        self._closed = True
        self._arrived.clear()
        if self.pool is not None:
            self.pool.close(timeout)

    def get_pool(self) -> Pool:
        """Returns the pool of the workers. The first call starts it."""
        self.check_open()
        if self.pool is None:
            self.pool = self._start()
        return self.pool


class Line:
    """The connection to one worker and its env, with the methods that a ``UnityEnvWorker`` needs.

    An env executes one order at a time. Requests wait here meanwhile. Requests without an answer wait for the next
    request with an answer, and are sent with it. The env is built before the first such request.
    """

    def __init__(self, owner: StepQueue, worker_id: int) -> None:
        self._queue, self._worker_id = owner, worker_id
        self._address = np.array([worker_id])
        self._row = np.zeros((1, *wire.ORDERS.shape), np.uint8)
        self._specs: dict[str, BehaviorSpec] = {}
        self._no_ends: dict[str, TerminalSteps] = {}
        self._counter = EpisodeCounter()
        self.forget()

    def forget(self) -> None:
        """Drops the agents, the waiting requests, and the request in flight."""
        self._agents = Agents()
        self._unsent: list[Request] = []
        self._in_flight: EnvironmentCommand | None = None  # the request in flight, which the worker will answer.
        self._is_building = False  # whether the row in flight only builds the env, before the request is sent
        self._has_env = False  # whether the env is known to be built

    def send(self, request: EnvironmentRequest) -> None:
        """Sends a request, or queues it until the env is free. Raises ``ClosedError`` if the manager is closed."""
        self._queue.check_open()
        command, payload = request
        match command:
            case EnvironmentCommand.CLOSE:  # ignored, because `StepQueue.close` ends all workers at once
                return
            case EnvironmentCommand.BEHAVIOR_SPECS if self._specs:
                self._queue.put(command, self._response(command, self._specs))
                return
            case EnvironmentCommand.STEP:
                payload = {name: info.env_action for name, info in payload.items() if len(info.agent_ids) > 0}
            case EnvironmentCommand.RESET:
                payload = None  # the parameters were sent before the reset
            case EnvironmentCommand.ENVIRONMENT_PARAMETERS:
                payload = dict(payload or {})
        self._unsent.append((command, payload))
        self._flush()

    def recv(self) -> EnvironmentResponse:
        """Waits for the worker's answer to a request other than a step."""
        return self._queue.answer_of(self._worker_id)

    def cut_off(self) -> dict[str, Any]:
        """Returns a step that ends the episodes of all agents, for an env that has failed."""
        return self._agents.cut_off(self._specs)

    def rename_operation(self, operation: str) -> tuple[str, EnvProgress]:
        """Returns the env's true operation and progress. `operation` is the one that the pool reports."""
        # If the worker died while it was idle, the operation stays "nothing".
        in_flight = self._in_flight  # read once, because the pool's thread calls this while the manager may change it
        if operation == "step" and in_flight is not None:
            operation = "build" if self._is_building else _ANSWERED[in_flight]
        return operation, self._counter.progress(self._worker_id)

    def read(self, batch: Batch, row: int) -> _Arrival | None:
        """Reads a result from the pool, and sends the requests that waited until the env was free.

        Returns: The answer to a request; None if an env was built, and the request had to be sent afterwards. If the
            answer cannot be read, or a request cannot be sent, the answer is the failure.
        """
        command, self._in_flight = self._in_flight, None
        assert command is not None  # every result belongs to a request
        was_building, self._is_building = self._is_building, False
        if batch.truncations[row]:
            return self._failed(command, error_of(batch.infos[row]["final_info"]["fault"]))
        try:
            payload = self._take_in(None if was_building else command, batch, row)
            self._has_env = True
            self._flush()
        except Exception as error:  # an error raised here would lose the other rows of the batch
            return self._failed(command, error)
        return None if was_building else _Arrival(command, self._response(command, payload))

    def _failed(self, command: EnvironmentCommand, error: BaseException) -> _Arrival:
        self._has_env = False
        self._unsent.clear()  # a restart or reset sends the lasting requests again
        return _Arrival(command, self._response(EnvironmentCommand.ENV_EXITED, error))

    def _take_in(self, command: EnvironmentCommand | None, batch: Batch, row: int) -> Any:
        payload = self._unpack(batch, row)
        match command:
            case EnvironmentCommand.BEHAVIOR_SPECS:
                return self._specs
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
        self._specs.update(answer.specs)
        self._no_ends.update({name: TerminalSteps.empty(spec) for name, spec in answer.specs.items()})
        return answer.payload

    def _flush(self) -> None:
        """If the worker is free, sends the unsent requests up to the first one that expects an answer."""
        last = next((i for i, (command, _) in enumerate(self._unsent) if command in _ANSWERED), None)
        if last is None or self._in_flight is not None:
            return
        command, _ = self._unsent[last]
        self._is_building = not self._has_env
        order = [] if self._is_building else self._unsent[: last + 1]
        self._in_flight = command  # before it is sent, because the worker may die of it at once, which is reported
        if order:
            self._counter.count(_ANSWERED[command])
        try:
            self._dispatch(order)
        except Exception:
            self._in_flight = None
            del self._unsent[last]  # those before it are sent with the next request that expects an answer
            raise
        del self._unsent[: len(order)]

    @translated
    def _dispatch(self, order: list[Request]) -> None:
        """Sends an order, a list of requests. An empty one builds the env. A lone step goes into the row if it fits."""
        pool = self._queue.get_pool()
        is_step = bool(order) and order[0][0] is EnvironmentCommand.STEP
        if not (is_step and wire.fill_with_actions(self._row[0], order[0][1])):
            self._row[0, 0] = 0
            pool.apply_async(put, (dump_whole(order),), env_ids=[self._worker_id])
        pool.send(self._row, self._address)

    def _response(self, command: EnvironmentCommand, payload: Any) -> EnvironmentResponse:
        return EnvironmentResponse(command, self._worker_id, payload)
