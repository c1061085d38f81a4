"""Makes changes of state in one step, which no signal handler and no exception can come in between."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from remuda import _core
from remuda._relay.log import logger


class Changes:
    """What is to be done about something that came up: decided first, step by step, and then done at once.

    Whoever is interrupted while he decides (by Ctrl-C, or any signal handler that raises) has changed nothing, and
    decides once more. So deciding must have no effects but such as may be had twice.
    """

    def __init__(self) -> None:
        self._steps: list[Callable[[], Any]] = []

    def do(self, function: Callable[..., Any], *args: Any) -> None:
        """`function`: one that is written in C, as methods of the hub, of dicts, sets, lists and deques are."""
        self._steps.append(partial(function, *args))

    def make(self) -> None:
        _core.call_all(self._steps)


class Sayings:
    """Log records that wait until what they tell of is settled: handlers may raise, and may use the pool."""

    def __init__(self) -> None:
        self._untold: deque[tuple[int, str, dict[str, Any]]] = deque()

    def __bool__(self) -> bool:
        return bool(self._untold)

    def add(self, level: int, text: str, **extra: Any) -> None:
        self._untold.append((level, text, extra))

    def tell(self) -> None:
        """Logs what is there, each once. What a handler raises is raised; the rest comes the next time."""
        while self._untold:
            level, text, extra = self._untold.popleft()
            logger.log(level, "%s", text, extra=extra)
