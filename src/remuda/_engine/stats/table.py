"""Shows a snapshot as text: the use of time, tables of workers and envs, the verdict. Uses rich if it is installed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from io import StringIO
from statistics import fmean
from typing import Any, TypeAlias

from remuda._engine.stats.durations import Durations, span
from remuda._engine.stats.snapshot import Snapshot
from remuda._engine.stats.verdict import judge

_MOST_ROWS = 12  # the most rows of a table. It shows the slowest envs or workers first.
_WIDTH = 200  # the width of rich's console, which is more than any table needs


Columns: TypeAlias = Mapping[str, Callable[[Any], str]]
"""The headings of a table, and what each column shows of a record."""

_WORKERS: Columns = {
    "worker": lambda worker: str(worker.index),
    "pid": lambda worker: "" if worker.pid is None else str(worker.pid),
    "envs": lambda worker: _range(worker.env_ids),
    "steps": lambda worker: str(worker.steps),
    "busy": lambda worker: _share(worker.busy, worker.seconds),
    "CPU": lambda worker: f"{worker.cpu_share:.0%}",
    "queued": lambda worker: _share(worker.queued, worker.seconds),
    "idle p50": lambda worker: span(worker.idle.p50),
    "memory": lambda worker: "" if worker.memory is None else f"{worker.memory / 2**20:.0f} MB",
    "restarts": lambda worker: str(worker.restarts),
}
_ENVS: Columns = {
    "env": lambda env: str(env.env_id),
    "worker": lambda env: str(env.worker),
    "steps": lambda env: str(env.steps),
    "step": lambda env: _span(env.step, env.step.mean),
    "p50": lambda env: _span(env.step, env.step.p50),
    "p99": lambda env: _span(env.step, env.step.p99),
    "max": lambda env: _span(env.step, env.step.max),
    "reset": lambda env: _span(env.reset, env.reset.mean),
    "episodes": lambda env: str(env.episodes),
    "return": lambda env: _mean(env.returns),
    "length": lambda env: _mean(env.lengths),
    "faults": lambda env: str(env.faults),
}


def table(stats: Snapshot) -> str:
    """Returns a snapshot as text: a summary, the tables and the verdict."""
    show = _rich if find_spec("rich") is not None else _plain
    workers = sorted(stats.workers, key=lambda worker: -worker.busy)
    envs = sorted(stats.envs, key=lambda env: -env.step.mean)
    parts = [_summary(stats), show(*_rows("workers", workers, _WORKERS)), show(*_rows("envs", envs, _ENVS))]
    return "\n\n".join([*parts, judge(stats).text])


def _rows(what: str, records: Sequence[Any], columns: Columns) -> tuple[str, list[list[str]]]:
    """Returns (title, lines) of a table. A line has a text for each column; the first line has the headings."""
    shown = records[:_MOST_ROWS]
    title = what if len(shown) == len(records) else f"{what}: {len(shown)} of {len(records)}, the slowest"
    return title, [list(columns), *([show(record) for show in columns.values()] for record in shown)]


def _summary(stats: Snapshot) -> str:
    """Returns a text that sums up the pool's work and the use of the caller's time."""
    setup, caller = stats.setup, stats.caller
    spares = f" and {setup.spares} spares" if setup.spares else ""
    whole = max(stats.seconds, 1e-9)
    unpickles = f"unpickles infos {caller.unpickling / whole:.0%}, " if caller.unpickling else ""
    return (
        f"{setup.num_envs} envs{spares} in {setup.num_workers} {setup.backend} workers on {stats.cores} cores: "
        f"{stats.steps} steps, {stats.steps_per_second:,.0f} a second; {stats.episodes} episodes, "
        f"{stats.faults} faults\nyour program, {stats.seconds:.3g} s and {stats.batches} batches: waits for envs "
        f"{caller.waiting / whole:.0%}, gathers {caller.gathering / whole:.0%}, {unpickles}"
        f"own code {caller.own / whole:.0%}"
    )


# -- cells -------------------------------------------------------------------------------------------------


def _range(ids: Sequence[int]) -> str:
    return str(ids[0]) if len(ids) == 1 else f"{ids[0]}-{ids[-1]}"


def _share(seconds: float, whole: float) -> str:
    return f"{seconds / max(whole, 1e-9):.0%}"


def _span(durations: Durations, seconds: float) -> str:
    """Returns `seconds`, a figure of `durations`, as text; "" if `durations` has no events."""
    return span(seconds) if durations.count else ""


def _mean(values: Sequence[float]) -> str:
    return f"{fmean(values):.4g}" if values else ""


# -- drawing -----------------------------------------------------------------------------------------------


def _plain(title: str, lines: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rows = ("  ".join(f"{text:>{width}}" for text, width in zip(line, widths, strict=True)) for line in lines)
    return "\n".join([title, *rows])


def _rich(title: str, lines: Sequence[Sequence[str]]) -> str:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, show_edge=False, padding=0)
    for heading in lines[0]:
        table.add_column(heading, justify="right", no_wrap=True)
    for line in lines[1:]:
        table.add_row(*line)
    text = StringIO()
    Console(file=text, width=_WIDTH, color_system=None, legacy_windows=False).print(table)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines()).strip("\n")
