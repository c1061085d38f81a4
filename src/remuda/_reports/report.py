"""A report: the texts, the table and the chart of a result."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from remuda._reports.charts import Bars


@dataclass(frozen=True)
class Table:
    """A table of texts.

    Attributes:
        columns: The names of the columns. A first column without a name holds the names of the rows.
        rows: As many cells as there are columns.
        best: The number of the row to mark.
        failed: The numbers of the rows that hold no result.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    best: int | None = None
    failed: Collection[int] = ()


@dataclass(frozen=True)
class Report:
    """A result, ready to be shown. A terminal shows everything but the title and the chart.

    Attributes:
        title: Heads a picture.
        lead: The result in a sentence.
        table: The figures.
        chart: The figures as a picture; None if there are none yet.
        notes: Lines that a reader needs to judge the figures.
        failures: A line for each failure.
    """

    title: str
    lead: str
    table: Table
    chart: Bars | None = None
    notes: Sequence[str] = ()
    failures: Sequence[str] = ()
