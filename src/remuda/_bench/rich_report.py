"""Draws the result of a benchmark as a table for a terminal, with rich."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from . import report
from .results import Result


def render(result: Result) -> RenderableType:
    """The table, and under it what the figures mean on this machine."""
    failures = [Text(line, style="red") for line in report.failures(result)]
    return Group(_table(result), *failures, *(Text(note, style="dim") for note in report.notes(result)))


def _table(result: Result) -> Table:
    table = Table(
        title=report.title(result),
        title_justify="left",
        title_style="bold",
        box=SIMPLE_HEAD,
        show_edge=False,
        padding=0,
    )  # as narrow as can be: it has to fit 80 columns
    table.add_column(no_wrap=True)
    for column in report.COLUMNS:
        table.add_column(column, justify="right", no_wrap=True)
    for entry in result.entries:
        style = "bold green" if entry is result.remuda else "" if entry.error is None else "red"
        table.add_row(entry.name, *report.cells(result, entry), style=style)
    return table
