"""Shows a report in the terminal: with rich where it is installed, else in plain text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remuda._reports.packages import is_installed
from remuda._reports.report import Report, Table

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table as RichTable


def show(report: Report) -> None:
    """Prints the report on standard output."""
    if not is_installed("rich"):
        print(as_text(report))
        return
    from rich.console import Console

    Console().print(as_rich(report))


def as_text(report: Report) -> str:
    """Returns the report as plain text."""
    parts = [[report.lead], _lines(report.table), [*report.failures, *report.notes]]
    return "\n\n".join("\n".join(lines) for lines in parts if any(lines))


def as_rich(report: Report) -> RenderableType:
    """Returns the report as an object that rich can print."""
    from rich.console import Group
    from rich.text import Text

    failures = [Text(line, style="red") for line in report.failures]
    notes = [Text(line, style="dim") for line in report.notes]
    return Group(Text(f"{report.lead}\n", style="bold"), _rich_table(report.table), *failures, *notes)


def _lines(table: Table) -> list[str]:
    rows = [[str(cell) for cell in row] for row in (table.columns, *table.rows)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rows.insert(1, ["-" * width for width in widths])
    lines = [[cell.rjust(width) for cell, width in zip(row, widths, strict=True)] for row in rows]
    if not table.columns[0]:
        lines = [[row[0].ljust(widths[0]), *line[1:]] for row, line in zip(rows, lines, strict=True)]
    return ["  ".join(line).rstrip() for line in lines]


def _rich_table(table: Table) -> RichTable:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table as RichTable

    drawn = RichTable(box=SIMPLE_HEAD, show_edge=False, padding=0)  # a narrow table, to fit 80 columns
    for column in table.columns:
        drawn.add_column(column, justify="right" if column else "left", no_wrap=True)
    for number, row in enumerate(table.rows):
        style = "bold green" if number == table.best else "red" if number in table.failed else ""
        drawn.add_row(*map(str, row), style=style)
    return drawn
