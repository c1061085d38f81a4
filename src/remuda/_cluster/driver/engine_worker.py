"""Represents a shard's worker in the driver, where the pool's engine uses it like a local worker."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from remuda import _core
from remuda._cluster.driver.shard_message import Taken
from remuda._wire.channel import LocalChannel
from remuda._wire.layout import Layout
from remuda.errors import RemudaError


class EngineWorker:
    """Represents a shard's worker in the driver: the worker's rings in the pool's memory, and whether it is alive.

    Attributes:
        index, name, env_ids: The worker's index, name and envs, by the numbers of the pool.
        channel: The channel for messages that do not fit into the rings.
        fd: A descriptor that becomes readable when the worker dies.
        is_serving: Whether the worker is alive.
        generation: The number of the shard's actor that has built the worker's envs.
    """

    pid = exitcode = None

    def __init__(self, index: int, name: str, env_ids: tuple[int, ...], generation: int) -> None:
        self.index, self.name, self.env_ids, self.generation = index, name, env_ids, generation
        self.channel = LocalChannel()
        self._fds = _core.Descriptors([os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)])
        self.fd = self._fds[0]
        self.is_serving = True
        self._port: _core.RemotePort | None = None
        self._cause: Callable[[str], RemudaError]

    # -- rings -------------------------------------------------------------------------------------------

    def open(self, layout: Layout, arena: _core.Arena) -> None:
        """Opens the worker's end of its rings."""
        to_worker, from_worker = self.channel.queues
        spec, count = layout.worker_spec(self.index), len(self.env_ids)
        # `get` waits, because the hub sends a message after the record in the ring that announces it
        self._port = _core.RemotePort(arena, layout.plan, spec, count, to_worker.get, from_worker.put)

    @property
    def has_command(self) -> bool:
        """Whether there are commands in the worker's ring."""
        return self._port is not None and self._port.has_command

    def take(self, commands: list[Taken]) -> None:
        """Moves the commands in the worker's ring to the list `commands`, unless the worker is dead."""
        if self._port is not None:
            self._port.take(commands)

    def answer(self, env: int, count: int, flags: int, parts: Any) -> None:
        """Answers commands to some envs, after the envs' rows were written. Arguments as in `_core.RemotePort`."""
        if self._port is not None:
            self._port.answer(env, count, flags, parts)

    def answer_message(self, sequence: int, flags: int, parts: Any) -> None:
        """Answers the message with this sequence number if it was sent to this worker."""
        if self._port is not None:
            self._port.answer_message(sequence, flags, parts)

    def note_record(self) -> None:
        """Counts a log record that the supervisor is to emit before it handles the worker's next results."""
        if self._port is not None:
            self._port.note_record()

    # -- life --------------------------------------------------------------------------------------------

    def die(self, cause: Callable[[str], RemudaError]) -> None:
        """Marks the worker as dead. The engine may then empty the rings, so this drops them first.

        `cause(operation)` returns the error for a death during that operation.
        """
        if self.is_serving:
            self.is_serving, self._port, self._cause = False, None, cause
            os.eventfd_write(self.fd, 1)

    def revive(self) -> None:
        """Marks the worker as alive, after a successor has taken the dead worker's place."""
        with suppress(BlockingIOError):
            os.eventfd_read(self.fd)
        self.is_serving = True

    def close(self) -> None:
        """Closes the worker's descriptor and drops its reference to the pool's memory. Can be called again."""
        self.is_serving, self._port = False, None
        self._fds.close()

    def is_alive(self) -> bool:
        return self.is_serving

    def cause_of_death(self, **context: Any) -> RemudaError:
        """Returns the error for the worker's death. `context`: the arguments of `WorkerDiedError`."""
        return self._cause(context["operation"])

    def verdict(self) -> None:
        return None

    def output(self, limit: int = 0) -> str:
        return ""

    def output_tail(self) -> str:
        return ""
