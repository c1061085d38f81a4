"""Tables in Markdown: figures, goals and whether they were reached, and the conditions of the measurement."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeAlias

from remuda._bench import report
from remuda._bench.results import Entry, Result
from remuda._system import machine
from remuda._system.cores import usable_cores


@dataclass(frozen=True)
class Table:
    """A table of texts. ``str`` returns it in Markdown."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]

    def __str__(self) -> str:
        return "\n".join(
            f"| {' | '.join(cells)} |" for cells in (self.columns, ["---"] * len(self.columns), *self.rows)
        )


Block: TypeAlias = "Table | str"
"""A table, or a paragraph of text."""


def table(columns: Sequence[str], rows: Iterable[Iterable[str]]) -> Table:
    return Table(list(columns), [list(cells) for cells in rows])


def markdown(blocks: Iterable[Block]) -> str:
    """Returns blocks as a text in Markdown, with an empty line between two blocks."""
    return "\n\n".join(map(str, blocks))


def figure(value: float | None) -> str:
    """Returns a number with three significant digits as text. Empty for None."""
    return "" if value is None else f"{value:.3g}"


def rate(value: float | None) -> str:
    """Returns env steps a second as text. "failed" stands for None."""
    return "failed" if value is None else f"{value:,.0f}"


def ratio(entry: Entry | None, value: float | None) -> str:
    """Returns a contender's ratio as text, with two significant digits. Empty if the contender was not raced."""
    if entry is None:
        return ""
    return "failed" if entry.error is not None or value is None else report.ratio(value)


def verdict(at_least: float, reached: float | None) -> str:
    if reached is None:
        return "not measured"
    return "pass" if reached >= at_least else "**falls short**"


def conditions(rounds: int, seconds: float | None = None) -> str:
    """Returns two sentences for the end of a table: the machine, the rounds, and the seconds for each contender."""
    each = "" if seconds is None else f", {seconds:g} s a contender"
    return f"{machine.describe()}; {usable_cores()} cores. Medians of {rounds} interleaved rounds{each}."


def parent_us(entry: Entry) -> float | None:
    """Returns the CPU time of the caller's process for each batch, in microseconds: the median over the rounds."""
    each = [1e6 * turn.parent_cpu_seconds / turn.batches for turn in entry.turns]
    return median(each) if each else None


def failures(results: Iterable[Result]) -> Iterator[str]:
    """Yields a paragraph for each contender that failed."""
    for result in results:
        for entry in result.entries:
            if entry.error is not None:
                yield f"{entry.name} failed on {result.env}, {result.plan.num_envs} envs: `{entry.error}`"
