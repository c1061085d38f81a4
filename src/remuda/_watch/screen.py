"""Draws the pages of `remuda top` with rich."""

from __future__ import annotations

from itertools import accumulate

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from remuda._watch.pages import Page

_LEAST_PAGE = 5  # the lines that a page needs: headings, three rows, and the number of rows.
_TAIL = 8  # the number of lines of a worker's output that are shown at most


def draw(title: str, page: Page, cursor: int, console: Console, notice: str) -> RenderableType:
    """Draws as much of a page as fits. `cursor` is the marked row, `notice` a message in the last line but one."""
    first, second = page.summary
    head = [Text(title, style="bold reverse"), Text(first), Text(second, style="yellow"), Text()]
    foot = [Text(notice, style="green"), Text(page.keys, style="dim")]
    head, foot, room = _fitted(head, foot, console)
    room -= 1  # the headings
    body = [_table(page, cursor, room, console.width)] if page.env is None else _env(page, room)
    return Group(*head, *body, *foot)


def _fitted(head: list[Text], foot: list[Text], console: Console) -> tuple[list[Text], list[Text], int]:
    """Returns the texts to draw above and below a page, and the number of lines that are left for the page.

    If these are too few, each text gets one line, and the last texts of the head are omitted.
    """
    room = console.height - sum(max(1, len(text.wrap(console, console.width))) for text in head + foot)
    if room >= _LEAST_PAGE:
        return head, foot, room
    for text in head + foot:
        text.no_wrap, text.overflow = True, "ellipsis"
    head = [text for text in head if text][: max(1, console.height - _LEAST_PAGE - 1)]
    foot = foot[-1:]
    return head, foot, max(1, console.height - len(head) - len(foot))


def _table(page: Page, cursor: int, room: int, width: int) -> Table:
    """Draws as many rows and columns as fit, including the marked row."""
    count = len(page.rows)
    room = max(1, room if count <= room else room - 1)  # one line is for the caption, if not all rows fit
    cursor = min(cursor, max(0, count - 1))
    first = max(0, min(cursor - room // 2, count - room))
    columns = _columns_within(page, width)
    table = Table(box=None, padding=(0, 1, 0, 0), expand=False, header_style="bold")
    for heading in page.headings[:columns]:
        table.add_column(heading, justify="right", no_wrap=True)
    for place, row in enumerate(page.rows[first : first + room], first):
        style = "reverse" if place == cursor else "bold red" if row.is_late else ""
        table.add_row(*row.texts[:columns], style=style)
    if count > room:
        table.caption = f"{first + 1}-{min(first + room, count)} of {count}"
    return table


def _columns_within(page: Page, width: int) -> int:
    columns = zip(page.headings, *(row.texts for row in page.rows), strict=True)
    ends = accumulate(max(map(len, texts)) + 1 for texts in columns)  # a space follows each column
    return max(1, sum(end <= width for end in ends))


def _env(page: Page, room: int) -> list[RenderableType]:
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False, title=f"env {page.env}", title_justify="left")
    for _ in range(2):
        table.add_column(no_wrap=True, overflow="ellipsis")
    for name, value in page.facts[:room]:
        table.add_row(name, value)
    room -= table.row_count + 2  # two lines are for an empty line and the heading of the output
    return [table, Text(), *_output(page.output, room)] if room > 0 else [table]


def _output(text: str | None, room: int) -> list[RenderableType]:
    if text is None:
        return [Text("its worker's output is not kept: worker_output='capture'", style="dim")]
    lines = text.splitlines()[-min(_TAIL, room) :] or ["(nothing)"]
    shown = "\n".join("".join(c for c in line if c.isprintable() or c == "\t") for line in lines)
    return [Text("the end of its worker's output", style="bold"), Text(shown, overflow="ellipsis", no_wrap=True)]
