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
from remuda.errors import RemudaError, WorkerDiedError


class EngineWorker:
    """Represents a shard's worker in the driver: the worker's rings in the pool's memory, and whether it is alive.

    Attributes:
        index, name, env_ids: The worker's index, name and envs, by the numbers of the pool.
        channel: The channel for messages that do not fit into the rings.
        fd: A descriptor that becomes readable when the worker dies.
        is_serving: Whether the worker is alive.
    """

    pid = exitcode = None

    def __init__(
        self, index: int, name: str, env_ids: tuple[int, ...], death_of_shard: Callable[[str], RemudaError]
    ) -> None:
        """`death_of_shard(operation)` returns the error for a death of the shard during that operation."""
        self.index, self.name, self.env_ids = index, name, env_ids
        self.channel = LocalChannel()
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.is_serving = True
        self._port: _core.RemotePort | None = None
        self._death: WorkerDiedError | None = None
        self._death_of_shard = death_of_shard

    # -- rings -------------------------------------------------------------------------------------------

    def open(self, layout: Layout, arena: _core.Arena) -> None:
        """Opens the worker's end of its rings, and drops the messages in its channel."""
        to_worker, from_worker = self.channel.queues
        for queue in (to_worker, from_worker):
            while not queue.empty():
                queue.get()
        spec, count = layout.worker_spec(self.index), len(self.env_ids)
        self._port = _core.RemotePort(arena, layout.plan, spec, count, to_worker.get_nowait, from_worker.put)

    def take(self, commands: list[Taken]) -> None:
        """Moves the commands in the worker's ring to the list `commands`, unless the worker is dead."""
        if self.is_serving and self._port is not None:
            self._port.take(commands)

    def answer(self, env: int, count: int, flags: int, parts: Any, until: int) -> None:
        """Answers commands to some envs, after the envs' rows were written. Arguments as in `_core.RemotePort`."""
        if self._port is not None:
            self._port.answer(env, count, flags, parts, until)

    def answer_message(self, sequence: int, flags: int, parts: Any) -> None:
        """Answers the message with this sequence number if it was sent to this worker.

        The engine itself abandons the messages of a dead worker, when it handles the death.
        """
        if self._port is not None and (self.is_serving or not flags & _core.ABANDONED):
            self._port.answer_message(sequence, flags, parts)

    # -- life --------------------------------------------------------------------------------------------

    def die(self, death: WorkerDiedError | None) -> None:
        """Marks the worker as dead. `death`: the error for its death; None if its whole shard died."""
        if self.is_serving:
            self.is_serving, self._death = False, death
            os.eventfd_write(self.fd, 1)

    def revive(self) -> None:
        """Marks the worker as alive, after a successor has taken the dead worker's place."""
        with suppress(BlockingIOError):
            os.eventfd_read(self.fd)
        self.is_serving, self._death = True, None

    def close(self) -> None:
        """Closes the worker's descriptor and drops its reference to the pool's memory."""
        self.is_serving, self._port = False, None
        os.close(self.fd)

    def is_alive(self) -> bool:
        return self.is_serving

    def cause_of_death(self, **context: Any) -> RemudaError:
        """Returns the error for the worker's death. `context`: the arguments of `WorkerDiedError`."""
        return self._death or self._death_of_shard(context["operation"])

    def verdict(self) -> None:
        return None

    def output(self, limit: int = 0) -> str:
        return ""

    def output_tail(self) -> str:
        return ""
