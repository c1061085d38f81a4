"""Shows a running benchmark where there is no rich: a line for each turn, and the table in plain text."""

from __future__ import annotations

import sys

from remuda._bench import report
from remuda._bench.contenders import Contender, Plan
from remuda._bench.results import Result
from remuda._bench.rounds import Progress, race


def run_race(kinds: list[type[Contender]], plan: Plan, seconds: float, rounds: int) -> Result:
    """Show on standard error what is done, and the final table on standard output."""
    result = race(kinds, plan, seconds=seconds, rounds=rounds, on_progress=_show)
    print(report.as_text(result))
    return result


def _show(progress: Progress) -> None:
    print(f"[{progress.done}/{progress.total}] {progress.doing}", file=sys.stderr, flush=True)
