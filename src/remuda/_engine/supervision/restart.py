"""How far the restart of a worker has come."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from math import inf


class Stage(Enum):
    """Of a worker that is being replaced. Who finds it in one that is a moment's work was interrupted there."""

    WAITING = "its successor is not to be started yet"
    STARTING = "its successor is being started (a moment's work)"
    BUILDING = "its successor builds its envs"
    JOINING = "its successor is being told what it needs (a moment's work)"


@dataclass
class Restart:
    """A worker that is being replaced.

    Attributes:
        at: When its successor is to be started, in `time.monotonic()` seconds.
        stage: How far it has come.
        deadline: When that must have built its envs, in seconds of running time.
        vacant_by: When its predecessor must have ended, if somebody waits for that.
    """

    at: float
    stage: Stage = Stage.WAITING
    deadline: float = inf
    vacant_by: float | None = None
