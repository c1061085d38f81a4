"""The running parts of a pool, and the shared memory that goes with them when it is closed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from remuda import _core
from remuda._backends.base import Backend, Processes
from remuda._engine.options.recording import Factories
from remuda._wire.layout import Layout
from remuda._worker.env_report import EnvReport
from remuda.errors import ClosedError

CLOSED = "the pool is closed; make a new one"


@dataclass
class Running:
    """What `start` has started. The engine owns it; all others borrow it.

    Borrowers reach the hub and the arena through this, and keep neither, nor columns of the arena: so `release` is all
    that is needed for the memory to go.

    Attributes:
        backend, hub, arena, layout: The workers, who talks to them, over which memory, and what lies where.
        reports: Of each env.
        factories: As crash records have them; None: none are written.
    """

    backend: Backend
    hub: _core.Hub
    arena: _core.Arena
    layout: Layout
    reports: list[EnvReport]
    factories: Factories | None = None

    @property
    def slots(self) -> _core.SlotLedger:
        """What each slot was sent, and its outcome."""
        return self.hub.slots

    @property
    def workers(self) -> _core.Workers:
        """The hub's side of the workers: their processes, their deadlines, what they are doing."""
        return self.hub.workers

    @property
    def processes(self) -> Processes:
        """How workers are killed and replaced: of a backend with worker processes alone."""
        assert self.backend.processes is not None  # no other worker dies, is late or is away
        return self.backend.processes

    def said(self) -> int:
        """How often workers have logged or warned so far: the hub's count, for those who may keep no hub."""
        return self.hub.workers.said()

    def __getattr__(self, name: str) -> NoReturn:
        """Raises ClosedError for what has been released: a handler of logs or warnings may close the pool in a call."""
        if name in ("hub", "arena"):
            raise ClosedError(CLOSED)
        raise AttributeError(name)

    @property
    def is_there(self) -> bool:
        """Whether it has not been released."""
        return "hub" in self.__dict__

    def release(self) -> None:
        """Lets go of the shared memory, which goes with it, but for what arrays hold."""
        self.arena.close_fd()  # arrays may keep the memory: nobody is to find it any more
        del self.hub, self.arena
