"""Takes the rows of units that end: writes them to the file of results, and shows the progress."""

from __future__ import annotations

from typing import Any

from remuda._progress.bar import Bar
from remuda._training.tasks.results_file import ResultsFile


class Report:
    """Takes rows of units, in the order of their ends."""

    def __init__(self, file: ResultsFile, rows: list[dict[str, Any]], bar: Bar) -> None:
        """`rows`: those of units that ended before, to which further ones are added. `bar`: the bar to show."""
        self._file, self._rows, self._bar = file, rows, bar

    def add(self, row: dict[str, Any]) -> None:
        """Takes a row. It is in the file when this returns."""
        self._file.write(row)
        self._rows.append(row)

    def show(self) -> None:
        """Shows the bar, if a drawing is due."""
        self._bar.show(len(self._rows), self._note)

    def close(self) -> None:
        """Hides the bar; it stays in the terminal."""
        self._bar.show(len(self._rows), self._note, at_once=True)
        self._bar.hide()

    def _note(self) -> str:
        done = [row["success"] for row in self._rows if row["status"] == "done"]
        faulted = len(self._rows) - len(done)
        rate = f"{100 * sum(done) / len(done):.0f} % success" if done else ""
        return f"{rate}, {faulted} by faults" if faulted else rate
