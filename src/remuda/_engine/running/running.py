"""The running parts of a pool, and the shared memory that is released with them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NoReturn

from remuda import _core
from remuda._backends.base import Backend, Processes
from remuda._engine.options.recording import Factories
from remuda._wire.layout import Layout
from remuda._worker.env_report import EnvReport
from remuda._worker.reset_defaults import ResetDefaults
from remuda.errors import ClosedError

CLOSED = "the pool is closed; make a new one"
SPLIT_SINCE = (
    "the pool has been split since: use what the latest split() returned, or make it whole with split(1), or with "
    "reset() or discard(), which drop what is in flight"
)


@dataclass
class Running:
    """The parts that `start` has started. The engine owns them; all other objects borrow them.

    A borrower reaches the hub and the arena through this object, and keeps no reference to them or to columns of the
    arena. So `release` frees the memory.

    Attributes:
        backend, hub, arena, layout: The workers, the core's end of the protocol, the shared memory, and its layout.
        reports: The report of each env.
        factories: The factories as crash records have them; None if none are written.
        defaults: The defaults of resets, for successors of workers.
    """

    backend: Backend
    hub: _core.Hub
    arena: _core.Arena
    layout: Layout
    reports: list[EnvReport]
    factories: Factories | None = None
    defaults: ResetDefaults = field(default_factory=ResetDefaults)

    @property
    def slots(self) -> _core.SlotLedger:
        """The commands of slots, and their outcomes."""
        return self.hub.slots

    @property
    def workers(self) -> _core.Workers:
        """The hub's side of the workers: processes, deadlines, and current operations."""
        return self.hub.workers

    @property
    def processes(self) -> Processes:
        """The methods that kill and replace workers. Only a backend with worker processes has them."""
        assert self.backend.processes is not None  # only processes die, are late, or are replaced
        return self.backend.processes

    def records_sent(self) -> int:
        """Returns the number of log records and warnings of workers so far."""
        return self.hub.workers.records_sent()

    def __getattr__(self, name: str) -> NoReturn:
        """Raises ClosedError for what has been released: a handler of logs or warnings may close the pool in a call."""
        if name in ("hub", "arena"):
            raise ClosedError(CLOSED)
        raise AttributeError(name)

    @property
    def is_there(self) -> bool:
        """Whether `release` has not been called."""
        return "hub" in self.__dict__

    def release(self) -> None:
        """Releases the shared memory. Arrays keep their parts of it."""
        self.arena.close_fd()  # arrays may keep the memory, but other processes must no longer find it
        del self.hub, self.arena
