"""Draws the pages of `remuda top` with rich."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from remuda._engine.stats.pool_stats import PoolStats
from remuda._watch import start_page
from remuda._watch.owner import name_of
from remuda._watch.pages import Row, View, details, headings, rows, stopped, summary
from remuda._watch.starting_pool import StartingPool
from remuda._watch.watched_pool import WatchedPool, output_of

_KEYS = "q quit  e envs  w workers  s S r sort  up down enter env  tab next pool  j JSON"
_START_KEYS = "q quit  up down  tab next pool  j JSON"
_LEAST_PAGE = 5  # lines: headings, three rows, and how many there are
_TAIL = 8  # lines of output


def draw_start(pool: StartingPool, number: str, cursor: int, console: Console, notice: str) -> RenderableType:
    """A whole screen of a pool that is being started; arguments as `draw` has them."""
    builds = pool.builds()
    shares, hint = start_page.summary(pool, builds)
    head = [_title(name_of(pool.card), pool.card.owner, number, start_page.title(pool)), Text(shares)]
    head += [Text(hint, style="yellow"), Text()]
    foot = [Text(notice, style="green"), Text(_START_KEYS, style="dim")]
    head, foot, room = _fitted(head, foot, console)
    return Group(*head, _table(start_page.rows(builds), start_page.HEADINGS, cursor, room - 1, console.width), *foot)


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
    what = f"{setup.num_envs} envs in {setup.num_workers} {setup.backend} workers"
    title = _title(name_of(pool.card), pool.card.owner, number, what)
    shares, verdict = stopped(pool.card.owner) if pool.owner.is_stopped else summary(late)
    head = [title, Text(shares), Text(verdict, style="yellow"), Text()]
    foot = [Text(notice, style="green"), Text(_KEYS, style="dim")]
    head, foot, room = _fitted(head, foot, console)
    if view.page == "env":
        page = _page_of(so_far, late, view, room - 1)
        left = room - page.row_count - 3  # its title, the line between, a heading
        body = [page, Text(), _output(so_far, view, left)] if left > 0 else [page]
    else:
        body = [_table(rows(late, view), headings(view), view.cursor, room - 1, console.width)]  # its headings
    return Group(*head, *body, *foot)


def _title(name: str, pid: int, number: str, what: str) -> Text:
    return Text(f"remuda top  {name}, process {pid}{number}: {what}", style="bold reverse")


def _fitted(head: list[Text], foot: list[Text], console: Console) -> tuple[list[Text], list[Text], int]:
    """What stands above and below a page, and the lines that are left for it.

    Where these are too few, each text gets one line, and those at the end of the head get none.
    """
    room = console.height - sum(max(1, len(text.wrap(console, console.width))) for text in head + foot)
    if room >= _LEAST_PAGE:
        return head, foot, room
    for text in head + foot:
        text.no_wrap, text.overflow = True, "ellipsis"
    head = [text for text in head if text][: max(1, console.height - _LEAST_PAGE - 1)]
    foot = foot[-1:]
    return head, foot, max(1, console.height - len(head) - len(foot))


def _table(found: Sequence[Row], columns: Sequence[str], cursor: int, room: int, width: int) -> Table:
    """As many rows and columns as there is room for, the marked row among them."""
    room = max(1, room if len(found) <= room else room - 1)  # without the caption, which tells of the rest
    columns = columns[: _columns_within(found, columns, width)]
    cursor = min(cursor, max(0, len(found) - 1))
    first = max(0, min(cursor - room // 2, len(found) - room))
    table = Table(box=None, padding=(0, 1, 0, 0), expand=False, header_style="bold")
    for heading in columns:
        table.add_column(heading, justify="right", no_wrap=True)
    for place, row in enumerate(found[first : first + room], first):
        style = "reverse" if place == cursor else "bold red" if row.is_late else ""
        table.add_row(*row.texts[: len(columns)], style=style)
    if len(found) > room:
        table.caption = f"{first + 1}-{min(first + room, len(found))} of {len(found)}"
    return table


def _columns_within(found: Sequence[Row], columns: Sequence[str], width: int) -> int:
    widths = [max(len(text) for text in texts) for texts in zip(columns, *(row.texts for row in found), strict=True)]
    ends = list(accumulate(one + 1 for one in widths))  # with a space behind each
    return max(1, sum(end <= width for end in ends))


def _page_of(so_far: PoolStats, late: PoolStats, view: View, room: int) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False, title=f"env {view.env}", title_justify="left")
    for _ in range(2):
        table.add_column(no_wrap=True, overflow="ellipsis")
    for name, value in details(late, so_far, view.env)[:room]:
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
