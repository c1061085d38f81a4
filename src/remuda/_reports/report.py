"""A report: the texts and the table of a result."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass


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
    """A result, ready to be shown.

    Attributes:
        lead: The result in a sentence.
        table: The figures.
        notes: Lines that a reader needs to judge the figures.
        failures: A line for each failure.
    """

    lead: str
    table: Table
    notes: Sequence[str] = ()
    failures: Sequence[str] = ()
