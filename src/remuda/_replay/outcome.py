"""The outcome of a replay: how far it came, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Raised:
    """An exception: its class, text and traceback, and the operation that it came from ("build", "reset", "step")."""

    type_name: str
    message: str
    traceback: str
    operation: str


@dataclass(frozen=True)
class Outcome:
    """Attributes:
    reached: Index of the op that was begun last; -1: none was.
    raised: What that raised; None when it did not.
    finished: Whether all ops were done and nothing was raised.
    exitcode: Of the process, where it neither finished nor told of an exception; negative for a signal.
    is_spoilt: Whether what came back from the last op made no sense.
    is_late: Whether it was killed because the last op took longer than the deadline that was missed then.
    """

    reached: int
    raised: Raised | None = None
    finished: bool = False
    exitcode: int | None = None
    is_spoilt: bool = False
    is_late: bool = False
