"""The live view of `remuda top`: a table of all running pools, which is drawn again at intervals."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from remuda._engine.stats.durations import span
from remuda._engine.stats.pool_stats import PoolStats
from remuda._watch.finding import NotFoundError, find
from remuda._watch.open_pool import OpenPool, between

# The headings, and whether texts of a column may be wrapped: the others are complete in 80 columns.
_COLUMNS = {
    "pool": True,
    **dict.fromkeys(("pid", "envs", "steps/s", "waits", "p99 step", "faults", "memory"), False),
    "longest call": True,
}
_FRAMES = 5  # rates and times cover the span of this number of frames, because a verdict needs several batches.
_LATE = 20  # a call is late if it takes longer than this multiple of the p99 of such calls.
_LEAST_LATE = 1.0  # a call of fewer seconds is never late


def watch(pid: int | None, console: Console, interval: float) -> None:
    """Shows the pools of a process, or of all processes of this user, until none is left.

    `interval`: the seconds between two frames.

    Raises:
        NotFoundError: There is no pool at the start.
    """
    history = deque[dict[Any, Any]](maxlen=_FRAMES)  # the snapshots of the last frames, by the pool's file
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            try:
                pools = find(pid)
            except NotFoundError:
                if history:
                    return
                raise
            history.append({pool.file: pool.look() for pool in pools})
            live.update(frame(pools, history), refresh=True)
            del pools  # unmaps their memory
            time.sleep(interval)


def frame(pools: Sequence[OpenPool], history: Sequence[dict[Any, Any]]) -> RenderableType:
    """Returns the table of these pools, and a line about each pool. `history` ends with a snapshot of each pool."""
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
    for heading, may_wrap in _COLUMNS.items():
        table.add_column(heading, justify="left" if may_wrap else "right", no_wrap=not may_wrap)
    lines = []
    for pool in pools:
        first = next(seen[pool.file] for seen in history if pool.file in seen)
        last = history[-1][pool.file]
        late = between(first, last)
        table.add_row(pool.name, str(pool.pid), *_cells(last, late), style="bold red" if _hangs(late) else "")
        line = str(late.verdict)
        if pool.is_stopped:
            line = f"stopped, by SIGSTOP, Ctrl-Z or a debugger: kill -CONT {pool.pid} lets it go on"
        lines += [Text(), Text(f"{pool.name}, process {pool.pid}: {line}", style="yellow")]
    return Group(table, *lines)


def _cells(so_far: PoolStats, late: PoolStats) -> list[str]:
    """Returns the cells of an open pool, without its name and pid. `late` has the figures of the last frames."""
    busy = max(late.workers, key=lambda worker: worker.doing_since)
    env = "" if busy.doing_env is None else f" env {busy.doing_env}"
    memory = sum(worker.memory or 0 for worker in late.workers)
    return [
        str(late.setup.num_envs),
        f"{late.steps_per_second:,.0f}",
        f"{late.caller.waiting / max(late.seconds, 1e-9):.0%}",
        span(late.step.p99),
        str(so_far.faults),
        f"{memory / 2**20:.0f} MB" if memory else "-",
        f"{busy.doing}{env} {span(busy.doing_since)}" if busy.doing else "-",
    ]


def _hangs(stats: PoolStats) -> bool:
    """Returns whether a worker is in a call that takes much longer than usual."""
    busy = max(stats.workers, key=lambda worker: worker.doing_since)
    usual = stats.reset if busy.doing == "reset" else stats.step
    return busy.doing is not None and busy.doing_since > max(_LEAST_LATE, _LATE * usual.p99)
