"""Shows the progress of a measurement on standard error: with rich if it is installed, else line by line."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from remuda._reports.packages import is_installed

if TYPE_CHECKING:
    from rich.live import Live

    from remuda._reports.report import Report


class Display(Protocol):
    """A function that shows the activity `doing`, the count `done` of `total`, and any report so far."""

    def __call__(self, doing: str, done: int, total: int, so_far: Report | None) -> None: ...


@contextmanager
def display() -> Iterator[Display]:
    """Yields a display, which is removed from the terminal when the block ends."""
    if not is_installed("rich"):
        yield _print_line
        return
    from rich.console import Console
    from rich.live import Live

    with Live(console=Console(stderr=True), auto_refresh=False, transient=True) as live:
        yield _redrawing(live)


def _print_line(doing: str, done: int, total: int, so_far: Report | None) -> None:
    print(f"[{done}/{total}] {doing}", file=sys.stderr, flush=True)


def _redrawing(live: Live) -> Display:
    """Returns a display that redraws the report and a progress bar with each call.

    A thread that refreshes them would disturb the measurement, and forking beside a running thread is unsafe.
    """
    from rich.console import Group
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from remuda._reports.terminal import as_rich

    bar = Progress(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), auto_refresh=False)
    task = bar.add_task("")

    def redraw(doing: str, done: int, total: int, so_far: Report | None) -> None:
        bar.update(task, description=doing, completed=done, total=total)
        above = [] if so_far is None else [as_rich(so_far)]
        live.update(Group(*above, bar), refresh=True)

    return redraw
