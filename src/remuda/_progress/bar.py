"""Progress bars on stderr, drawn with rich. Their owners call them between other work, because they have no threads."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from textwrap import shorten
from typing import Any, ClassVar

from remuda._wording import name_some
from remuda.errors import MissingFrameworkError

PATIENCE = 2.0  # the seconds until a bar appears, unless the user has requested it.
LOG_PATIENCE = 10.0  # the seconds until the progress of builds is logged, if there is no bar.
INTERVAL = 0.2  # the seconds between two drawings of the bar
_MAX_NOTE = 32  # the characters that a terminal of 80 columns has room for, behind the bar
clock: Callable[[], float] = time.monotonic
_logger = logging.getLogger("remuda")


def is_watched() -> bool:
    """Whether to show a bar that the user has not requested: in a terminal that can move its cursor, drawn with rich.

    There is none in workers, which share one terminal, or if REMUDA_PROGRESS is 0.
    """
    isatty = getattr(sys.stderr, "isatty", None)  # streams that programs put in place of stderr may lack it
    if isatty is None or not isatty() or os.environ.get("TERM") in ("dumb", "unknown"):
        return False
    is_off = os.environ.get("REMUDA_PROGRESS") == "0" or "REMUDA_WORKER_INDEX" in os.environ
    return not is_off and find_spec("rich") is not None


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
        self._progress: Any = None  # rich's bar, from the first drawing on, because its import takes time

    def show(self, done: Callable[[], int], note: Callable[[], str] = lambda: "", *, at_once: bool = False) -> float:
        """Draws the bar if a drawing is due. Returns the seconds until the next drawing is due.

        `done`: how many of the total; `note`: the text behind the bar; both are called when it is drawn. `at_once`:
        draws a visible bar now, because the next call may be far.
        """
        now = clock()
        if now < self._due and not (at_once and Bar.shown is self):
            return self._due - now
        self._due = now + INTERVAL
        if self._progress is None:
            self._progress = rich_progress(self._what, stays=self._stays)
            self._progress.add_task("", total=self._total, note="")
            self._progress.tasks[0].start_time = self._begin  # the shown time includes the time before the bar appeared
        self._progress.update(self._progress.tasks[0].id, completed=done(), note=note())
        if Bar.shown is self:
            self._progress.refresh()
        else:
            make_way()
            Bar.shown = self
            self._progress.start()
        return INTERVAL

    def finish(self, done: int, note: str = "") -> None:
        """Shows the final count `done` and `note`, and hides the bar."""
        if Bar.shown is self:
            self._progress.update(self._progress.tasks[0].id, completed=done, note=note)
        self.hide()

    def hide(self) -> None:
        """Hides the bar until the next `show`."""
        if Bar.shown is self:
            Bar.shown, self._due = None, 0.0
            self._progress.stop()


class BuildBar:
    """The progress of building envs: a bar in a terminal, otherwise one log record if the builds take long.

    A context manager, which hides the bar at its end.

    Attributes:
        missing: The envs that are not built yet. The owner changes it.
    """

    def __init__(self, env_ids: Iterable[int]) -> None:
        """`env_ids`: the envs to build; of each vector env, the first one."""
        self.missing = set(env_ids)
        self._total = len(self.missing)
        self._bar = Bar("building envs", self._total, PATIENCE) if is_watched() else None
        self._log_at: float | None = clock() + LOG_PATIENCE

    def show(self, most: float | None = None, *, at_once: bool = False) -> float | None:
        """Shows the progress if that is due. Returns the seconds until the next call is due, at most `most`."""
        if self._bar is not None:
            left = self._bar.show(lambda: self._total - len(self.missing), self._note, at_once=at_once)
        elif self._log_at is None:
            return most
        elif (left := self._log_at - clock()) <= 0:
            self._log_at = None
            built, missing = self._total - len(self.missing), name_some("env", self.missing)
            _logger.info("%d of %d envs are built after %.0f s; missing: %s", built, self._total, LOG_PATIENCE, missing)
            return most
        return left if most is None else min(left, most)

    def _note(self) -> str:
        return shorten(f"waits for {name_some('env', self.missing)}", _MAX_NOTE, placeholder=" ...")

    def __enter__(self) -> BuildBar:
        return self

    def __exit__(self, *error: object) -> None:
        self.hide()

    def hide(self) -> None:
        """Hides the bar until the next `show`, before other output is written or a worker is forked."""
        if self._bar is not None:
            self._bar.hide()


def rich_progress(what: str, *, stays: bool) -> Any:
    """Returns a bar of rich. Raises MissingFrameworkError if rich is not installed."""
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
    columns += [TimeLeftColumn()] if stays else []
    columns.append(TextColumn("{task.fields[note]}", markup=False))
    console = Console(stderr=True)
    return Progress(*columns, console=console, auto_refresh=False, transient=not stays, get_time=clock)
