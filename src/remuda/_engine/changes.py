"""Makes several changes of state at once, so that no signal handler and no exception can interrupt them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from remuda import _core
from remuda._relay.log import logger


class Changes:
    """A transaction: collects steps while the pool decides on an event, and makes all of them at once.

    A signal handler may raise between any two lines of a decision, for example at Ctrl-C. Nothing has changed then, and
    the pool decides on the same event again. So a decision must have no effect that cannot happen twice.
    """

    def __init__(self) -> None:
        self._steps: list[Callable[[], Any]] = []

    def do(self, function: Callable[..., Any], *args: Any) -> None:
        """Adds a step: a call of a function written in C, such as a method of the hub or of a Python container."""
        self._steps.append(partial(function, *args))

    def make(self) -> None:
        """Makes all steps, with no signal handler in between."""
        _core.call_all(self._steps)


class Sayings:
    """Keeps log records until their event is settled, because a log handler may raise, and may use the pool."""

    def __init__(self) -> None:
        self._untold: deque[tuple[int, str, dict[str, Any]]] = deque()

    def __bool__(self) -> bool:
        return bool(self._untold)

    def add(self, level: int, text: str, **extra: Any) -> None:
        self._untold.append((level, text, extra))

    def tell(self) -> None:
        """Logs each record once. If a log handler raises, this raises too, and the next call logs the rest."""
        while self._untold:
            level, text, extra = self._untold.popleft()
            logger.log(level, "%s", text, extra=extra)
