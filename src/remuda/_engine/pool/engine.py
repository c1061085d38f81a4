"""Everything behind a pool, which its parts share: workers, memory, supervision, seeds."""

from __future__ import annotations

import os

from remuda import _core
from remuda._engine.pool.action_spaces import ActionSpaces
from remuda._engine.pool.batch_maker import BatchMaker
from remuda._engine.pool.exchange import Exchange
from remuda._engine.pool.infos import InfoColumns
from remuda._engine.pool.progress import ProgressTracker
from remuda._engine.pool.resets import Resets
from remuda._engine.pool.seeds import EpisodeSeeds, GymnasiumSeeds
from remuda._engine.startup.running import Running
from remuda._engine.startup.start import Settings
from remuda._engine.supervision.faults import Faults
from remuda._engine.supervision.recorder import Recorder
from remuda._engine.supervision.supervisor import Supervisor
from remuda._worker.reset_defaults import ResetDefaults
from remuda.errors import ClosedError, StateError


class Engine:
    """Running workers, and all that deals with them.

    Attributes:
        settings: As the pool was told.
        running: What runs. It is the engine's own: all others only borrow it.
        owner: The process that made it.
        closed, is_copy: Whether it can still be used, and whether this is the forked copy of another process's.
        hub: That of `running`, for as long as it can be used; then None. Where something may raise it is called by this
            name, not by a local one: a traceback that is kept would keep the shared memory mapped past a close.
    """

    def __init__(self, settings: Settings, running: Running) -> None:
        self.settings, self.owner = settings, os.getpid()
        self.closed = self.is_copy = False
        self.hub: _core.Hub | None = running.hub
        self.running, self.backend, self.layout = running, running.backend, running.layout
        self.faults = Faults(
            running.hub.obstacles, running.layout.num_slots, in_callers_thread=settings.backend == "serial"
        )
        infos, defaults = InfoColumns(running.layout.info_bytes), ResetDefaults()
        per_episode = settings.seeding == "per_episode"
        seeds = EpisodeSeeds(defaults) if per_episode else GymnasiumSeeds(defaults, running.layout)
        self.tracker = ProgressTracker(running, seeds, settings.operation_of)
        recorder = None
        if settings.record is not None and running.factories is not None:
            recorder = Recorder(settings.record, running.factories, settings.backend, running)
        supervisor = Supervisor(
            settings.faults, running, settings.start_timeout, self.faults, self.tracker, infos, defaults, recorder
        )
        self.exchange = Exchange(running, self.faults, supervisor)
        self.batches = BatchMaker(running, infos, self.exchange)
        action_spaces = [report.action_space for report in running.reports[: running.layout.num_slots]]
        self.action_spaces = ActionSpaces(running.layout.action_space, action_spaces)
        if per_episode:
            self.action_spaces = self.action_spaces.separate()
        seeded = self.action_spaces if per_episode else None
        self.resets = Resets(running, seeds, defaults, seeded, self.exchange)

    def check_open(self) -> None:
        if self.closed:
            raise ClosedError("the pool is closed; make a new one")
        if self.is_copy:
            raise StateError(
                f"this pool belongs to process {self.owner}, got a call from its forked copy {os.getpid()}; "
                "make a pool of its own there"
            )

    def close(self) -> None:
        self.closed, self.hub = True, None

    def disown(self) -> None:
        """This is the copy of a pool, in a process that was forked from its owner."""
        self.is_copy, self.hub = True, None

    def divide(self, shares: list[list[int]]) -> int:
        """Makes these parts of the pool's slots, and returns the number of the first; there are none besides."""
        first = self.running.hub.split(shares)
        self.faults.divide(first, shares)
        return first

    def release(self) -> None:
        """Lets go of the shared memory. Whoever waits for an answer is told that there will be none."""
        self.exchange.closing = True
        self.running.release()
