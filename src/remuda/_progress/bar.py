"""Draws a progress bar on stderr with rich, whenever its owner looks up from the work."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from remuda.errors import MissingFrameworkError

PATIENCE = 2.0  # seconds before a bar shows that nobody has asked for
INTERVAL = 0.2  # seconds between two drawings
_SWITCH = "REMUDA_PROGRESS"
clock: Callable[[], float] = time.monotonic
_shown: Bar | None = None  # a terminal has room for one


def is_watched() -> bool:
    """Whether somebody may like to see a bar that he has not asked for.

    That is: stderr is a terminal that can move its cursor, rich is installed, and REMUDA_PROGRESS is not 0.
    """
    if sys.stderr is None or not sys.stderr.isatty() or os.environ.get("TERM") in ("dumb", "unknown"):
        return False
    return os.environ.get(_SWITCH) != "0" and find_spec("rich") is not None


def check_rich() -> None:
    """Raises MissingFrameworkError if no bar can be drawn."""
    _bars("", stays=False)


def make_way() -> None:
    """Something is about to be written to the terminal. The bar that is there comes back when it is next shown."""
    if _shown is not None:
        _shown.hide()


class Bar:
    """A bar in one line. It has no thread: nothing changes but in `show` and `hide`."""

    def __init__(self, what: str, total: int, after: float, *, stays: bool = False) -> None:
        """What is to be told.

        Args:
            what: It is a bar of.
            total: How many there will be.
            after: Seconds before it appears.
            stays: Whether its last state stays in the terminal when it is hidden.
        """
        self._what, self._total, self._stays = what, total, stays
        self._begin = clock()
        self._due = self._begin + after
        self._bars: Any = None
        self._task: Any = None
        self._is_there = False

    def show(self, done: Callable[[], int], told: Callable[[], str] = lambda: "", *, at_once: bool = False) -> float:
        """Draws it, if it is time for that; returns the seconds until it is.

        Args:
            done: Tells how many there are; asked when it is drawn.
            told: What else there is to be told.
            at_once: It is drawn each time from its first on: the next call may be far.

        Raises:
            MissingFrameworkError: rich is not installed.
        """
        now = clock()
        if now < self._due and not (at_once and self._bars is not None):
            return self._due - now
        self._due = now + INTERVAL
        if self._bars is None:
            self._bars = _bars(self._what, stays=self._stays)
            self._task = self._bars.add_task("", total=self._total, told="")
            self._bars.tasks[0].start_time = self._begin  # not when it appears
        self._bars.update(self._task, completed=done(), told=told())
        if self._is_there:
            self._bars.refresh()
        else:
            self._start()
        return INTERVAL

    def _start(self) -> None:
        global _shown
        make_way()
        _shown, self._is_there = self, True
        self._bars.start()

    def finish(self, done: int) -> None:
        """It is over, with so many."""
        if self._is_there:
            self._bars.update(self._task, completed=done, told="")
        self.hide()

    def hide(self) -> None:
        """Until it is shown again."""
        global _shown
        if self._is_there:
            _shown, self._is_there, self._due = None, False, 0.0
            self._bars.stop()


def _bars(what: str, *, stays: bool) -> Any:
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
        from rich.progress import TimeRemainingColumn as TimeLeftColumn
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] != "rich":  # a package that rich needs: its own error names it
            raise
        text = "a progress bar needs rich, which is not installed: pip install rich"
        raise MissingFrameworkError(text, name="rich") from missing
    columns = [TextColumn(what), BarColumn(bar_width=20), MofNCompleteColumn(), TimeElapsedColumn()]
    columns.append(TimeLeftColumn() if stays else TextColumn("{task.fields[told]}", markup=False))
    console = Console(stderr=True)
    return Progress(*columns, console=console, auto_refresh=False, transient=not stays, get_time=clock)
