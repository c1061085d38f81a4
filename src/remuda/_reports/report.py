"""A report: the texts, tables, charts and videos that a terminal or a page shows."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from remuda._reports.charts import Chart


@dataclass(frozen=True)
class Table:
    """A table of texts.

    Attributes:
        heading: Stands above the table on a page.
        columns: The names of the columns. A first column without a name holds the names of the rows.
        rows: As many cells as there are columns.
        best: The number of the row to mark.
        failed: The numbers of the rows that hold no result.
        summary: If given, a page folds the table under this line.
    """

    heading: str
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    best: int | None = None
    failed: Collection[int] = ()
    summary: str = ""


@dataclass(frozen=True)
class Report:
    """A result, ready to be shown. A terminal shows the first table, and neither charts nor videos.

    Attributes:
        title: Heads a page.
        lead: The result in a sentence.
        tables: At least one.
        charts: A page draws them above the tables.
        notes: Lines that a reader needs to judge the figures.
        failures: A line for each failure.
        failures_heading: Stands above them on a page.
        code: Lines to be pasted into a program.
        videos: Files. A page contains the small ones.
    """

    title: str
    lead: str
    tables: Sequence[Table]
    charts: Sequence[Chart] = ()
    notes: Sequence[str] = ()
    failures: Sequence[str] = ()
    failures_heading: str = "Failed"
    code: str = ""
    videos: Sequence[Path] = ()
