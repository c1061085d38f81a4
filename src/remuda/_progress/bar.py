"""A progress bar on stderr, drawn with rich. Its owner calls it between other work, because it has no thread."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, ClassVar

from remuda.errors import MissingFrameworkError

PATIENCE = 2.0  # the seconds until a bar appears, unless the user has requested it.
INTERVAL = 0.2  # the seconds between two drawings of the bar
clock: Callable[[], float] = time.monotonic


def is_watched() -> bool:
    """Whether to show a bar that the user has not requested.

    That is: stderr is a terminal that can move its cursor, rich is installed, and REMUDA_PROGRESS is not 0.
    """
    if not _is_terminal(sys.stderr) or os.environ.get("TERM") in ("dumb", "unknown"):
        return False
    return os.environ.get("REMUDA_PROGRESS") != "0" and find_spec("rich") is not None


def _is_terminal(stream: Any) -> bool:
    isatty = getattr(stream, "isatty", None)  # streams that programs put in place of stderr may lack it
    return isatty is not None and bool(isatty())


def check_rich() -> None:
    """Raises MissingFrameworkError if no bar can be drawn."""
    _progress("", stays=False)


def make_way() -> None:
    """Hides the visible bar before other output is written to the terminal. The bar's next `show` draws it again."""
    if Bar.shown is not None:
        Bar.shown.hide()


class Bar:
    """A progress bar in one line. It has no thread, so it changes only in `show` and `hide`."""

    shown: ClassVar[Bar | None] = None  # the visible bar; a terminal has room for one

    def __init__(self, what: str, total: int, after: float, *, stays: bool = False) -> None:
        """`what`: the text before the bar. `after`: its delay in seconds. `stays`: `hide` leaves the bar visible."""
        self._what, self._total, self._stays = what, total, stays
        self._begin = clock()
        self._due = self._begin + after
        self._progress: Any = None
        self._task: Any = None

    def show(self, done: Callable[[], int], note: Callable[[], str] = lambda: "", *, at_once: bool = False) -> float:
        """Draws the bar if a drawing is due. Returns the seconds until the next drawing is due.

        `done`: how many of the total; `note`: the text behind the bar; both are called when it is drawn. `at_once`:
        draws a bar that has appeared before now, because the next call may be far.
        """
        now = clock()
        if now < self._due and not (at_once and self._progress is not None):
            return self._due - now
        self._due = now + INTERVAL
        if self._progress is None:
            self._progress = _progress(self._what, stays=self._stays)
            self._task = self._progress.add_task("", total=self._total, note="")
            self._progress.tasks[0].start_time = self._begin  # the shown time includes the time before the bar appeared
        self._progress.update(self._task, completed=done(), note=note())
        if Bar.shown is self:
            self._progress.refresh()
        else:
            make_way()
            Bar.shown = self
            self._progress.start()
        return INTERVAL

    def finish(self, done: int) -> None:
        """Shows the final count `done`, and hides the bar."""
        if Bar.shown is self:
            self._progress.update(self._task, completed=done, note="")
        self.hide()

    def hide(self) -> None:
        """Hides the bar until the next `show`."""
        if Bar.shown is self:
            Bar.shown, self._due = None, 0.0
            self._progress.stop()


def _progress(what: str, *, stays: bool) -> Any:
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
        from rich.progress import TimeRemainingColumn as TimeLeftColumn
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] != "rich":  # a package that rich needs is missing: the error names it
            raise
        text = "a progress bar needs rich, which is not installed: pip install rich"
        raise MissingFrameworkError(text, name="rich") from missing
    columns = [TextColumn(what), BarColumn(bar_width=20), MofNCompleteColumn(), TimeElapsedColumn()]
    columns.append(TimeLeftColumn() if stays else TextColumn("{task.fields[note]}", markup=False))
    console = Console(stderr=True)
    return Progress(*columns, console=console, auto_refresh=False, transient=not stays, get_time=clock)
