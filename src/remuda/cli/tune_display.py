"""Shows running trials in the terminal. It needs rich, and is imported when there is one."""

from __future__ import annotations

from collections.abc import Callable

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from remuda._bench.tune_report import COLUMNS, cells, conclusion
from remuda._bench.tuning import Measure, Outcome, Trial, Tuned

_USUAL_TRIALS = 10


def run(search: Callable[[Measure], Tuned], measure: Measure, env: str) -> Tuned:
    """Show trials and a bar on standard error as they are made, and the result on standard output."""
    with Live(console=Console(stderr=True), auto_refresh=False, transient=True) as live:
        display = _Display(live)
        tuned = search(lambda trial: display.show(trial, measure))
    console = Console(highlight=False)
    console.print(_table(tuned.outcomes, tuned.best))
    console.print(conclusion(tuned, env), markup=False, soft_wrap=True)
    return tuned


class _Display:
    """The table so far and a bar, redrawn between trials: a thread that refreshes it would disturb them."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._outcomes: list[Outcome] = []
        self._bar = Progress(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), auto_refresh=False)
        self._task = self._bar.add_task("")

    def show(self, trial: Trial, measure: Measure) -> Outcome:
        """Shows what is tried, tries it, and shows what has come of it."""
        workers = "auto" if trial.num_workers is None else trial.num_workers
        self._redraw(f"{trial.num_envs} envs, {workers} workers")
        outcome = measure(trial)
        self._outcomes.append(outcome)
        self._redraw("")
        return outcome

    def _redraw(self, doing: str) -> None:
        done = len(self._outcomes)
        self._bar.update(self._task, description=doing, completed=done, total=max(_USUAL_TRIALS, done + 1))
        best = max(self._outcomes, key=lambda outcome: outcome.rate, default=None)
        shown = [] if best is None else [_table(self._outcomes, best)]
        self._live.update(Group(*shown, self._bar), refresh=True)


def _table(outcomes: list[Outcome] | tuple[Outcome, ...], best: Outcome) -> Table:
    table = Table(box=SIMPLE_HEAD, show_edge=False, padding=0)
    for column in COLUMNS:
        table.add_column(column, justify="right", no_wrap=True)
    for outcome in outcomes:
        table.add_row(*cells(outcome, best), style="bold green" if outcome is best else "")
    return table
