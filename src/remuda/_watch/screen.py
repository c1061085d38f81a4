"""Draws the pages of `remuda top` with rich."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from remuda._engine.stats.pool_stats import PoolStats
from remuda._watch.pages import Row, View, details, headings, rows, summary
from remuda._watch.watched_pool import WatchedPool, output_of

_KEYS = "q quit  e envs  w workers  s S r sort  up down enter env  tab next pool  j JSON"
_LEAST_ROWS = 3  # of the table, however small the terminal is
_TAIL = 8  # lines of output


def draw(
    pool: WatchedPool, number: str, so_far: PoolStats, late: PoolStats, view: View, console: Console, notice: str
) -> RenderableType:
    """A whole screen.

    Args:
        pool: That is shown.
        number: Which of how many pools that is.
        so_far, late: Its figures since it was made, and in the last seconds.
        view: What of them.
        console: The terminal, by whose size it is decided how much is shown.
        notice: To be told in the last line but one.
    """
    setup = late.setup
    title = (
        f"remuda top  {pool.card.name}, process {pool.card.owner}{number}: {setup.num_envs} envs in "
        f"{setup.num_workers} {setup.backend} workers"
    )
    shares, verdict = summary(late)
    head = [Text(title, style="bold reverse"), Text(shares), Text(verdict, style="yellow"), Text()]
    foot = [Text(notice, style="green"), Text(_KEYS, style="dim")]
    room = console.height - sum(max(1, len(text.wrap(console, console.width))) for text in head + foot)
    if view.page == "env":
        page = _page_of(so_far, late, view)
        left = room - page.row_count - 3  # its title, the line between, a heading
        body = [page, Text(), _output(so_far, view, left)]
    else:
        body = [_table(rows(late, view), view, room - 1)]  # its headings
    return Group(*head, *body, *foot)


def _table(found: Sequence[Row], view: View, room: int) -> Table:
    """As many rows as there is room for, the marked one among them."""
    room = max(_LEAST_ROWS, room if len(found) <= room else room - 1)  # without the caption, which tells of the rest
    cursor = min(view.cursor, max(0, len(found) - 1))
    first = max(0, min(cursor - room // 2, len(found) - room))
    table = Table(box=None, padding=(0, 1, 0, 0), expand=False, header_style="bold")
    for heading in headings(view):
        table.add_column(heading, justify="right", no_wrap=True)
    for place, row in enumerate(found[first : first + room], first):
        style = "reverse" if place == cursor else "bold red" if row.is_late else ""
        table.add_row(*row.texts, style=style)
    if len(found) > room:
        table.caption = f"{first + 1}-{min(first + room, len(found))} of {len(found)}"
    return table


def _page_of(so_far: PoolStats, late: PoolStats, view: View) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False, title=f"env {view.env}", title_justify="left")
    for name, value in details(late, so_far, view.env):
        table.add_row(name, value)
    return table


def _output(so_far: PoolStats, view: View, room: int) -> RenderableType:
    worker = so_far.workers[next(env.worker for env in so_far.envs if env.env_id == view.env)]
    text = output_of(worker.pid)
    if text is None:
        return Text("its worker's output is not kept: worker_output='capture'", style="dim")
    lines = text.splitlines()[-max(1, min(_TAIL, room)) :] or ["(nothing)"]
    told = "\n".join("".join(c for c in line if c.isprintable() or c == "\t") for line in lines)
    return Group(Text("the end of its worker's output", style="bold"), Text(told, overflow="ellipsis", no_wrap=True))
