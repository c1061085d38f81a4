"""Shows the progress of a benchmark on standard error: with rich if it is installed, else line by line."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

from remuda._bench.race import Progress
from remuda._bench.report import report_on
from remuda._reports.packages import is_installed

if TYPE_CHECKING:
    from rich.live import Live

Display: TypeAlias = Callable[[Progress], None]


@contextmanager
def display() -> Iterator[Display]:
    """Yields a display, which is removed from the terminal when the block ends."""
    if not is_installed("rich"):
        yield lambda now: print(f"[{now.done}/{now.total}] {now.doing}", file=sys.stderr, flush=True)
        return
    from rich.console import Console
    from rich.live import Live

    with Live(console=Console(stderr=True), auto_refresh=False, transient=True) as live:
        yield _redrawing(live)


def _redrawing(live: Live) -> Display:
    """Returns a display that redraws the report and a progress bar with each call.

    A thread that refreshes them would disturb the measurement, and forking beside a running thread is unsafe.
    """
    from rich.console import Group
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as ProgressBar

    from remuda._reports.terminal import as_rich

    bar = ProgressBar(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), auto_refresh=False)
    task = bar.add_task("")

    def redraw(now: Progress) -> None:
        bar.update(task, description=now.doing, completed=now.done, total=now.total)
        live.update(Group(as_rich(report_on(now.result)), bar), refresh=True)

    return redraw
