"""TaskResults: the result of `evaluate_tasks`."""

from __future__ import annotations

import csv
import math
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from remuda._training.success import interval
from remuda._training.tasks.results_file import read
from remuda.errors import MissingFrameworkError

_PERCENT = 100.0
_LATEX = {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\\": r"\textbackslash{}"}
_COLUMNS = (
    *("task", "episode", "seed", "init_state", "status", "success", "return", "length", "terminated"),
    *("attempts", "faults"),
)
_MOST_PIXELS = 2**16 - 1  # the largest height that matplotlib draws


class TaskResults:
    """The result of `evaluate_tasks`: a row for each unit that has ended, and rates.

    Units that have ended by faults are in `rows` and `faulted`. They count neither as successes nor as failures.

    Attributes:
        rows: Dicts, in the order of tasks and episodes: "task", "episode" (from 0), "seed", "init_state" (an index, or
            None), "status" ("done" or "fault"), "success", "return" (the sum of the rewards; a list if they are
            vectors), "length" (in steps), "terminated" (else truncated), "attempts", and "faults" (texts). With the
            status "fault" the values of the episode are None.
        tasks: The names of the tasks, in order.
        episodes: The number of episodes of each task.
        seed: The seed of the run.
        label: The name of the policy; None if there is none.
    """

    def __init__(
        self,
        rows: Iterable[dict[str, Any]],
        tasks: Iterable[str],
        episodes: int,
        seed: int,
        label: str | None = None,
    ) -> None:
        self.tasks, self.episodes, self.seed, self.label = tuple(tasks), episodes, seed, label
        order = {name: place for place, name in enumerate(self.tasks)}
        self.rows = tuple(sorted(rows, key=lambda row: (order[row["task"]], row["episode"])))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> TaskResults:
        """Returns the results in the file `path`, which `evaluate_tasks` has written, or still writes.

        Raises:
            ValueError: The file has something else, or several rows of one unit.
            OSError: The file cannot be read.
        """
        run, rows = read(Path(path))
        return cls(rows, [task["name"] for task in run["tasks"]], run["episodes"], run["seed"], run.get("label"))

    @property
    def faulted(self) -> tuple[dict[str, Any], ...]:
        """The rows with the status "fault"."""
        return tuple(row for row in self.rows if row["status"] == "fault")

    @property
    def success_rate(self) -> float:
        """The share of successes among the units that are done; NaN if none is."""
        successes, done = self._counts()
        return successes / done if done else math.nan

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Returns the Wilson score interval (low, high) of the success rate of all possible episodes.

        It is that of Wilson, "Probable inference, the law of succession, and statistical inference", Journal of the
        American Statistical Association 22, 1927. Of several tasks, it reflects the spread of their episodes, but not
        the choice of the tasks.

        Raises:
            ValueError: `confidence` is not between 0 and 1.
        """
        return interval(*self._counts(), confidence)

    @property
    def mean_rate(self) -> float:
        """The mean of the success rates of the tasks; NaN if a task has no unit that is done."""
        return math.fsum(self[name].success_rate for name in self.tasks) / len(self.tasks)

    def mean_interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Returns the confidence interval (low, high) of the mean success rate of these tasks, over all their episodes.

        It combines the Wilson intervals of the tasks (Zou, Huang and Zhang, "A note on confidence interval estimation
        for a linear function of binomial proportions", Computational Statistics and Data Analysis 53, 2009). It
        reflects the spread of the episodes within each task, like a stratified bootstrap, but not the choice of the
        tasks. It is (NaN, NaN) if a task has no unit that is done.

        Raises:
            ValueError: `confidence` is not between 0 and 1.
        """
        each = [self[name] for name in self.tasks]
        bounds = [(one.success_rate, *one.interval(confidence)) for one in each]
        below = math.hypot(*(rate - low for rate, low, _ in bounds)) / len(each)
        above = math.hypot(*(high - rate for rate, _, high in bounds)) / len(each)
        return self.mean_rate - below, self.mean_rate + above

    def to_markdown(self) -> str:
        """Returns the table of `print(results)` in Markdown."""
        head, *rows = [[cell.strip().replace("|", "\\|") for cell in row] for row in self._table()]
        return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))

    def to_latex(self) -> str:
        """Returns the table of `print(results)` as a LaTeX `tabular`, with the rules of the package booktabs."""
        head, *rows = [[_in_latex(cell.strip()) for cell in row] for row in self._table()]
        lines = [" & ".join(row) + r" \\" for row in (head, *rows)]
        begin = rf"\begin{{tabular}}{{{'l' * len(head)}}}"
        return "\n".join([begin, r"\toprule", lines[0], r"\midrule", *lines[1:], r"\bottomrule", r"\end{tabular}"])

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Writes the rows to the CSV file `path`, with the label before them. None is an empty cell, and faults are
        separated by semicolons.

        Raises:
            OSError: The file cannot be written.
        """
        with Path(path).open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, ["label", *_COLUMNS])
            writer.writeheader()
            for row in self.rows:
                writer.writerow({"label": self.label, **row, "faults": "; ".join(row.get("faults", ()))})

    def to_png(self, path: str | os.PathLike[str]) -> None:
        """Draws the rate of each task with its 95 % interval into the PNG file `path`.

        Raises:
            MissingFrameworkError: matplotlib is not installed.
            OSError: The file cannot be written.
        """
        try:
            from matplotlib.figure import Figure  # pyplot is not used, because it needs a display
        except ModuleNotFoundError as missing:
            text = "a picture of results needs matplotlib, which is not installed: pip install matplotlib"
            raise MissingFrameworkError(text, name="matplotlib") from missing
        height = 1.2 + 0.35 * len(self.tasks)
        figure = Figure(figsize=(7.0, height), layout="constrained")
        axes = figure.add_subplot()
        each, places = [self[name] for name in self.tasks], range(len(self.tasks))
        rates = [0.0 if math.isnan(one.success_rate) else one.success_rate for one in each]
        axes.barh(places, rates, color="#a9b4bd")
        axes.hlines(places, *zip(*(one.interval() for one in each), strict=True), color="#000000")
        axes.set_yticks(places, [f"{name} {one._note()}".rstrip() for name, one in zip(self.tasks, each, strict=True)])
        axes.set(xlim=(0, 1), xlabel="success rate, with 95 % intervals")
        axes.invert_yaxis()
        figure.savefig(path, dpi=min(160.0, _MOST_PIXELS / height), format="png")

    def __getitem__(self, task: str) -> TaskResults:
        """Returns the results of one task. Raises KeyError if there is no such task."""
        if task not in self.tasks:
            raise KeyError(f"expected one of the tasks {list(self.tasks)}, got {task!r}")
        rows = [row for row in self.rows if row["task"] == task]
        return TaskResults(rows, [task], self.episodes, self.seed, self.label)

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        """Returns a table with a line for each task."""
        table = self._table()
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in table]
        return "\n".join(line.rstrip() for line in lines)

    def _table(self) -> list[tuple[str, ...]]:
        """Returns the rows of a table: its head, the tasks, all episodes, and the mean over tasks."""
        lines = [(name, self[name]) for name in self.tasks]
        lines += [("all", self)] if len(self.tasks) > 1 else []
        table: list[tuple[str, ...]] = [("task", "success", "95 % interval", "episodes", "")]
        for name, part in lines:
            successes, done = part._counts()
            table.append((name, *_texts(part.success_rate, part.interval()), f"{successes} of {done}", part._note()))
        if len(self.tasks) > 1:
            table.append(("mean of tasks", *_texts(self.mean_rate, self.mean_interval()), "", ""))
        return table

    def _note(self) -> str:
        faulted, missing = len(self.faulted), len(self.tasks) * self.episodes - len(self.rows)
        notes = [f"{faulted} ended by faults"] * bool(faulted) + [f"{missing} not played"] * bool(missing)
        return f"({', '.join(notes)})" if notes else ""

    def _counts(self) -> tuple[int, int]:
        """Returns the numbers of successes and of units that are done."""
        done = [row for row in self.rows if row["status"] == "done"]
        return sum(row["success"] for row in done), len(done)


def _texts(rate: float, interval: tuple[float, float]) -> tuple[str, str]:
    """Returns a rate and its interval in percent, "-" for NaN."""
    low, high = (f"{_PERCENT * bound:.1f}" for bound in interval)
    shown = "-" if math.isnan(rate) else f"{_PERCENT * rate:.1f} %"
    return f"{shown:>7}", "-" if math.isnan(interval[0]) else f"{low} to {high} %"


def _in_latex(text: str) -> str:
    return re.sub(r"[&%$#_{}~^\\]", lambda found: _LATEX.get(found[0], rf"\{found[0]}"), text)
