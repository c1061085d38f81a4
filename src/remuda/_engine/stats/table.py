"""A snapshot as text: tables of workers and envs, where the time went, the verdict. With rich, where it is there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from io import StringIO
from statistics import fmean

from remuda._engine.stats.durations import Durations, span
from remuda._engine.stats.snapshot import EnvStats, Snapshot, WorkerStats
from remuda._engine.stats.verdict import judge

_MOST_ROWS = 12  # of envs, the slowest first, and of workers
_WIDTH = 200  # more than any has: it is as narrow as can be


@dataclass(frozen=True)
class Table:
    """Rows of texts under a heading."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


def table(stats: Snapshot) -> str:
    """All of it."""
    show = _rich if find_spec("rich") is not None else _plain
    parts = [summary(stats), *(show(one) for one in (workers_table(stats), envs_table(stats))), _verdict(stats)]
    return "\n\n".join(parts)


def summary(stats: Snapshot) -> str:
    """How much was done, and where the caller's time went."""
    setup, caller = stats.setup, stats.caller
    spares = f" and {setup.spares} spares" if setup.spares else ""
    whole = max(stats.seconds, 1e-9)
    unpickles = f"unpickles infos {caller.unpickling / whole:.0%}, " if caller.unpickling else ""
    return (
        f"{setup.num_envs} envs{spares} in {setup.num_workers} {setup.backend} workers on {stats.machine.cores} cores: "
        f"{stats.steps} steps, {stats.steps_per_second:,.0f} a second; {stats.episodes} episodes, "
        f"{stats.faults} faults\nyour program, {stats.seconds:.3g} s and {stats.batches} batches: waits for envs "
        f"{caller.waiting / whole:.0%}, gathers {caller.gathering / whole:.0%}, {unpickles}"
        f"own code {caller.own / whole:.0%}"
    )


def workers_table(stats: Snapshot) -> Table:
    """Those that were busy longest first."""
    shown = sorted(stats.workers, key=lambda worker: -worker.busy)[:_MOST_ROWS]
    columns = ("worker", "pid", "envs", "steps", "busy", "CPU", "queued", "idle p50", "memory", "restarts")
    return Table(_title("workers", len(shown), len(stats.workers)), columns, [_worker_row(worker) for worker in shown])


def _worker_row(worker: WorkerStats) -> list[str]:
    seconds = max(worker.seconds, 1e-9)
    return [
        str(worker.index),
        "" if worker.pid is None else str(worker.pid),
        _range(worker.env_ids),
        str(worker.steps),
        f"{worker.busy / seconds:.0%}",
        f"{worker.cpu_share:.0%}",
        f"{worker.queued / seconds:.0%}",
        span(worker.idle.p50),
        "" if worker.memory is None else f"{worker.memory / 2**20:.0f} MB",
        str(worker.restarts),
    ]


def envs_table(stats: Snapshot) -> Table:
    """The slowest first."""
    shown = sorted(stats.envs, key=lambda env: -env.step.mean)[:_MOST_ROWS]
    columns = ("env", "worker", "steps", "step", "p50", "p99", "max", "reset", "episodes", "return", "length", "faults")
    return Table(_title("envs", len(shown), len(stats.envs)), columns, [_env_row(env) for env in shown])


def _env_row(env: EnvStats) -> list[str]:
    step: Durations = env.step
    return [
        str(env.env_id),
        str(env.worker),
        str(step.count),
        *(span(seconds) if step.count else "" for seconds in (step.mean, step.p50, step.p99, step.max)),
        span(env.reset.mean) if env.reset.count else "",
        str(env.episodes),
        f"{fmean(env.returns):.4g}" if env.returns else "",
        f"{fmean(env.lengths):.4g}" if env.lengths else "",
        str(env.faults),
    ]


def _verdict(stats: Snapshot) -> str:
    verdict = judge(stats)
    code = "" if verdict.code is None else "\n\n" + "\n".join(f"    {line}" for line in verdict.code.splitlines())
    return f"{verdict.text}{code}"


def _title(what: str, shown: int, of: int) -> str:
    return what if shown == of else f"{what}: {shown} of {of}, the slowest"


def _range(ids: Sequence[int]) -> str:
    return str(ids[0]) if len(ids) == 1 else f"{ids[0]}-{ids[-1]}"


def _plain(one: Table) -> str:
    lines = [list(one.columns), *map(list, one.rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(one.columns))]
    rows = ("  ".join(f"{text:>{width}}" for text, width in zip(line, widths, strict=True)) for line in lines)
    return "\n".join([one.title, *rows])


def _rich(one: Table) -> str:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table as RichTable

    drawn = RichTable(title=one.title, title_justify="left", box=SIMPLE_HEAD, show_edge=False, padding=0)
    for column in one.columns:
        drawn.add_column(column, justify="right", no_wrap=True)
    for row in one.rows:
        drawn.add_row(*row)
    text = StringIO()
    Console(file=text, width=_WIDTH, color_system=None, legacy_windows=False).print(drawn)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines()).strip("\n")
