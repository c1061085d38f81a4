"""The objects of a running pool, with the shared memory that a close releases."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import NoReturn, Protocol

from remuda import _core
from remuda._backends.base import Backend, Processes
from remuda._engine.options.crash_dir import Factories
from remuda._wire.layout import Layout
from remuda._worker.env_report import EnvReport
from remuda._worker.reset_defaults import ResetDefaults
from remuda.errors import ClosedError

CLOSED = "the pool is closed; make a new one"
SPLIT_SINCE = (
    "the pool has been split since: use what the latest split() returned, or make it whole with split(1), or with "
    "reset() or discard(), which drop what is in flight"
)


class Phase(Enum):
    """The one record of how far a pool has come. A command is accepted in OPEN only."""

    OPEN = "it runs"
    PAUSED = "its shards fill rollouts by themselves"
    SUCCEEDED = "another engine has taken the place of this one"
    COPIED = "this process was forked from the pool's process"
    CLOSED = "it was closed, and may still end its workers; what fails from now on is dropped"


class Stoppable(Protocol):
    """An object that has threads."""

    def stop(self) -> None:
        """Ends the threads, and waits for their end for a limited time.

        Can be called again, also after a signal handler has raised. Does not wait for the calling thread.
        """


@dataclass
class Running:
    """The objects that `start` has made for a pool. The engine owns them; all other objects borrow them.

    A borrower reaches the hub and the arena through this object, and keeps no reference to them or to columns of the
    arena. So `release` frees the memory.

    Attributes:
        backend, hub, arena, layout: The workers, the core's end of the protocol, the shared memory, and its layout.
        reports: The report of each env.
        factories: The factories as crash records have them; None if none are written.
        specs: What is registered with Gymnasium, by id, pickled, for crash records.
        defaults: The defaults of resets, for successors of workers.
        threads: The threads that supervise the pool, in the order in which they must be stopped.
        phase: How far the pool has come. The engine changes it.
    """

    backend: Backend
    hub: _core.Hub
    arena: _core.Arena
    layout: Layout
    reports: list[EnvReport]
    factories: Factories | None = None
    specs: dict[str, bytes] = field(default_factory=dict)
    defaults: ResetDefaults = field(default_factory=ResetDefaults)
    threads: list[Stoppable] = field(default_factory=list)
    phase: Phase = Phase.OPEN

    @property
    def slots(self) -> _core.SlotLedger:
        """The hub's record of each slot: its command, and the outcome of the command."""
        return self.hub.slots

    @property
    def workers(self) -> _core.Workers:
        """The hub's record of the workers: processes, deadlines, and current operations."""
        return self.hub.workers

    @property
    def processes(self) -> Processes:
        """The methods that kill and replace workers. Only a backend with worker processes has them."""
        assert self.backend.processes is not None  # only processes are killed or replaced
        return self.backend.processes

    def records_sent(self) -> int:
        """Returns the number of log records and warnings that workers have sent so far."""
        return self.hub.workers.records_sent()

    @property
    def is_in_turn(self) -> bool:
        """Whether the calling thread is in a call that keeps other threads out of the hub."""
        return self.is_there and self.hub.is_in_turn

    def __getattr__(self, name: str) -> NoReturn:
        """Raises ClosedError for `hub` and `arena` after `release`. A log handler may close the pool during a call."""
        if name in ("hub", "arena"):
            raise ClosedError(CLOSED)
        raise AttributeError(name)

    @property
    def is_there(self) -> bool:
        """Whether the shared memory is still there: `release` was not called."""
        return "hub" in self.__dict__

    @property
    def is_closed(self) -> bool:
        """Whether the pool was closed. What fails from then on is dropped, and nothing is restarted."""
        return self.phase is Phase.CLOSED

    def release(self) -> None:
        """Releases the shared memory, except memory that arrays still use. Can be called again."""
        if "arena" in self.__dict__:
            self.arena.close_fd()  # other processes must no longer find the memory, even if arrays keep it
        for name in ("hub", "arena"):
            self.__dict__.pop(name, None)
