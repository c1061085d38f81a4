"""Progress bars on stderr, drawn with rich. Their owners call them between other work, because they have no threads."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from math import inf
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

    def __init__(self, what: str, total: int, progress: bool | None = None, *, stays: bool = False) -> None:
        """Makes a bar that is not visible yet.

        Args:
            what: The text before the bar.
            total: The count at the end.
            progress: Whether to show the bar. None: after `PATIENCE`, if `is_watched`.
            stays: Whether `hide` leaves the bar visible.
        """
        self._what, self._total, self._stays = what, total, stays
        self._is_on = is_watched() if progress is None else progress
        self._begin = clock()
        self._due = self._begin + (0.0 if progress else PATIENCE)
        self._progress: Any = None  # rich's bar, from the first drawing on, because its import takes time

    def show(self, done: int, note: Callable[[], str] = lambda: "", *, at_once: bool = False) -> None:
        """Draws the bar if a drawing is due, or `at_once` if it is visible. `note`: returns the text behind the bar."""
        if not self._is_on or (clock() < self._due and not (at_once and Bar.shown is self)):
            return
        self._due = clock() + INTERVAL
        if self._progress is None:
            self._progress = rich_progress(self._what, stays=self._stays)
            self._progress.add_task("", total=self._total, note="")
            self._progress.tasks[0].start_time = self._begin  # the shown time includes the time before the bar appeared
        self._progress.update(self._progress.tasks[0].id, completed=done, note=note())
        if Bar.shown is self:
            self._progress.refresh()
        else:
            make_way()
            Bar.shown = self
            self._progress.start()

    def hide(self) -> None:
        """Hides the bar until the next `show`, before other output is written or a worker is forked."""
        if Bar.shown is self:
            Bar.shown, self._due = None, 0.0
            self._progress.stop()


class BuildBar(Bar):
    """The progress of building envs: a bar in a terminal, otherwise one log record if the builds take long.

    A context manager, which hides the bar at its end.

    Attributes:
        missing: The envs that are not built yet. The owner changes it.
    """

    def __init__(self, env_ids: Iterable[int]) -> None:
        """`env_ids`: the envs to build; of each vector env, the first one."""
        self.missing = set(env_ids)
        super().__init__("building envs", len(self.missing))
        self._log_at = inf if self._is_on else self._begin + LOG_PATIENCE

    def show_builds(self, *, at_once: bool = False) -> None:
        """Shows the progress if that is due, or `at_once` if the bar is visible."""
        built = self._total - len(self.missing)
        self.show(built, self._note, at_once=at_once)
        if clock() >= self._log_at:
            self._log_at, missing = inf, name_some("env", self.missing)
            _logger.info("%d of %d envs are built after %.0f s; missing: %s", built, self._total, LOG_PATIENCE, missing)

    def _note(self) -> str:
        return shorten(f"waits for {name_some('env', self.missing)}", _MAX_NOTE, placeholder=" ...")

    def __enter__(self) -> BuildBar:
        return self

    def __exit__(self, *error: object) -> None:
        self.hide()


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
