"""The running parts of a pool, and the shared memory that goes with them when it is closed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from remuda import _core
from remuda._backends.base import Backend
from remuda._backends.serial import SerialBackend
from remuda._engine.supervision.recording import Factories
from remuda._wire.layout import Layout
from remuda._worker.host import EnvReport


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

    def release(self) -> None:
        """Lets go of the shared memory, which goes with it, but for what arrays hold."""
        del self.hub, self.arena

    def open_short_way(self) -> bool:
        """Whether steps can take the short way through the core: one plain column of actions, and workers that run
        by themselves."""
        action = self.layout.action
        if not action.is_single_column or isinstance(self.backend, SerialBackend):
            return False
        column = action.columns[0]
        if column.choices is None:
            return True
        if not column.choices.is_range or column.dtype != np.int64:
            return False
        self.hub.set_choices(int(column.choices.low), int(column.choices.high))
        return True
