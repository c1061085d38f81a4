"""Shows a running benchmark in the terminal. It needs rich, and is imported when there is one."""

from __future__ import annotations

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as ProgressBar

from remuda._bench.contenders import Contender, Plan
from remuda._bench.results import Result
from remuda._bench.rich_report import render
from remuda._bench.rounds import Progress, race


def run_race(kinds: list[type[Contender]], plan: Plan, seconds: float, rounds: int) -> Result:
    """Show the race live on standard error, and its final table on standard output."""
    with Live(console=Console(stderr=True), auto_refresh=False, transient=True) as live:
        result = race(kinds, plan, seconds=seconds, rounds=rounds, on_progress=_Display(live).show)
    Console().print(render(result))
    return result


class _Display:
    """The table so far and a bar, redrawn between turns.

    It is redrawn by hand: a thread that refreshes it would disturb the measurement, and forking beside a
    running thread is unsafe.
    """

    def __init__(self, live: Live) -> None:
        self._live = live
        self._bar = ProgressBar(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), auto_refresh=False)
        self._task = self._bar.add_task("")

    def show(self, progress: Progress) -> None:
        self._bar.update(self._task, description=progress.doing, completed=progress.done, total=progress.total)
        self._live.update(Group(render(progress.result), self._bar), refresh=True)
