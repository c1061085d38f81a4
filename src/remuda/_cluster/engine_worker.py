"""A worker of a shard, as the pool's engine sees it."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from remuda import _core
from remuda._cluster.trip import Taken
from remuda._wire.channel import LocalChannel
from remuda._wire.layout import Layout
from remuda.errors import RemudaError, WorkerDiedError


class EngineWorker:
    """A worker of a shard: the driver's end of its rings, and whether it is dead.

    Attributes:
        index, name, env_ids: As the pool numbers them.
        channel: The channel for messages that do not fit into the rings.
        fd: A descriptor that becomes readable when the worker is dead.
        is_serving: Whether it is not.
    """

    pid = exitcode = None

    def __init__(
        self, index: int, name: str, env_ids: tuple[int, ...], death_of_shard: Callable[[str], RemudaError]
    ) -> None:
        """`death_of_shard`: returns the error for the death of the shard in an operation."""
        self.index, self.name, self.env_ids = index, name, env_ids
        self.channel = LocalChannel()
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.is_serving = True
        self._port: _core.RemotePort | None = None
        self._death: WorkerDiedError | None = None
        self._death_of_shard = death_of_shard

    # -- rings -------------------------------------------------------------------------------------------

    def open(self, layout: Layout, arena: _core.Arena) -> None:
        """Opens the worker's end of its rings, which are empty."""
        to_worker, from_worker = self.channel.queues
        for queue in (to_worker, from_worker):
            while not queue.empty():
                queue.get()
        spec, count = layout.worker_spec(self.index), len(self.env_ids)
        self._port = _core.RemotePort(arena, layout.plan, spec, count, to_worker.get_nowait, from_worker.put)

    def take(self, commands: list[Taken]) -> None:
        """Moves the commands in the ring to a list. The rings of a dead worker are emptied for its successor."""
        if self.is_serving and self._port is not None:
            self._port.take(commands)

    def answer(self, env: int, count: int, flags: int, parts: Any, until: int) -> None:
        """Answers the commands of some envs, whose rows are written. See `_core.RemotePort`."""
        if self._port is not None:
            self._port.answer(env, count, flags, parts, until)

    def answer_all(self, until: int) -> None:
        """Answers the commands of all envs, which have nothing beside their rows."""
        self.answer(self.env_ids[0], len(self.env_ids), 0, None, until)

    def answer_message(self, sequence: int, flags: int, parts: Any) -> None:
        """Answers a message, if it is of this worker."""
        if self._port is not None:
            self._port.answer_message(sequence, flags, parts)

    # -- life --------------------------------------------------------------------------------------------

    def die(self, death: WorkerDiedError | None) -> None:
        """Makes the pool see that the worker is dead. `death`: the error; None: it went with its shard."""
        if self.is_serving:
            self.is_serving, self._death = False, death
            os.eventfd_write(self.fd, 1)

    def revive(self) -> None:
        """Makes it the successor of the dead worker."""
        with suppress(BlockingIOError):
            os.eventfd_read(self.fd)
        self.is_serving, self._death = True, None

    def close(self) -> None:
        """Frees the descriptor and the memory."""
        self.is_serving, self._port = False, None
        os.close(self.fd)

    def is_alive(self) -> bool:
        return self.is_serving

    def cause_of_death(self, **context: Any) -> RemudaError:
        """Makes the error for its death from the arguments of `WorkerDiedError`."""
        return self._death or self._death_of_shard(context["operation"])

    def verdict(self) -> None:
        return None

    def output(self, limit: int = 0) -> str:
        return ""

    def output_tail(self) -> str:
        return ""
