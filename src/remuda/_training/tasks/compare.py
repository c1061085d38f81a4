"""`compare`: compares two policies on the episodes that both have played. `compare_all`: each pair of several."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from itertools import accumulate, combinations
from typing import Any

from remuda._training import paired
from remuda._training.tasks.results import TaskResults


@dataclass(frozen=True)
class Comparison:
    """The result of `compare(a, b)`.

    Attributes:
        pairs: The number of episodes that count.
        wins: The number of pairs in which a succeeded and b did not.
        losses: The number of pairs in which b succeeded and a did not.
        left_out: The number of episodes that only one of them has, or that ended by faults in one of them.
    """

    pairs: int
    wins: int
    losses: int
    left_out: int

    @property
    def p(self) -> float:
        """The two-sided p-value of McNemar's exact test: how likely a difference at least as large would be by chance
        if both policies were equally good.

        Given `wins + losses` pairs that differ, the number of wins is then binomial with the probability 1/2 (McNemar,
        "Note on the sampling error of the difference between correlated proportions or percentages", Psychometrika 12,
        1947; exact as in Agresti, "Categorical Data Analysis", section 10.1).
        """
        return paired.p_value(self.wins, self.losses)

    @property
    def difference(self) -> float:
        """The success rate of a minus that of b, over the pairs."""
        return (self.wins - self.losses) / self.pairs

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Returns the confidence interval (low, high) of the difference.

        It agrees with the test: it does not contain 0 if and only if `p` is less than 1 - confidence (Fay and Lumbard,
        "Confidence intervals for difference in proportions for matched pairs compatible with exact McNemar's or sign
        tests", Statistics in Medicine 40, 2021).

        Raises:
            ValueError: `confidence` is not between 0 and 1.
        """
        return paired.interval(self.wins, self.losses, self.pairs, confidence)

    def __repr__(self) -> str:
        low, high = (f"{100 * bound:+.1f}" for bound in self.interval())
        without = f", without {self.left_out} episodes that are not pairs" if self.left_out else ""
        return (
            f"<Comparison of {self.pairs} pairs{without}: {self.wins} wins, {self.losses} losses, difference "
            f"{100 * self.difference:+.1f} % (95 %: {low} to {high}), p={self.p:.3g}>"
        )


def compare(a: TaskResults, b: TaskResults) -> Comparison:
    """Compares two results by pairs of episodes with the same task, number, seed and number of the init state.

    Pairs show smaller differences than two rates can, because both policies meet the same situations.

    Args:
        a: The results of one policy.
        b: The results of the other, in the same tasks and with the same seed.

    Returns:
        The numbers of wins and losses of `a`, the p-value and the difference.

    Raises:
        TypeError: An argument is no TaskResults.
        ValueError: There are no pairs, or no unit of an argument is done.
    """
    for results in (a, b):
        _check_type(results)
        if not _successes(results):
            raise ValueError(
                f"expected results with finished units, got none that is done: {len(results.faulted)} ended by faults, "
                f"{len(results.tasks) * results.episodes - len(results)} not played; call evaluate_tasks again"
            )
    ours, theirs = _successes(a), _successes(b)
    both = ours.keys() & theirs.keys()
    if not both:
        raise ValueError(
            f"expected results with episodes of the same task, number, seed and init state, got none: the tasks are "
            f"{list(a.tasks)} and {list(b.tasks)}, the seeds {a.seed} and {b.seed}"
        )
    wins, losses = (sum(one[key] and not other[key] for key in both) for one, other in ((ours, theirs), (theirs, ours)))
    return Comparison(len(both), wins, losses, len(_keys(a) | _keys(b)) - len(both))


@dataclass(frozen=True)
class Comparisons:
    """The result of `compare_all`. `print` shows it as a table.

    Attributes:
        labels: The labels of the results.
        pairs: By (label of a, label of b): the `Comparison` of the two.
    """

    labels: tuple[str, ...]
    pairs: dict[tuple[str, str], Comparison]

    @property
    def adjusted(self) -> dict[tuple[str, str], float]:
        """The p-value of each pair after Holm's correction for the number of pairs.

        If all policies were equally good, one of these values would be below 0.05 by chance in at most 5 % of studies
        (Holm, "A simple sequentially rejective multiple test procedure", Scandinavian Journal of Statistics 6, 1979).
        """
        ordered = sorted(self.pairs, key=lambda pair: self.pairs[pair].p)
        steps = [min(1.0, (len(ordered) - i) * self.pairs[pair].p) for i, pair in enumerate(ordered)]
        found = dict(zip(ordered, accumulate(steps, max), strict=True))
        return {pair: found[pair] for pair in self.pairs}

    def __repr__(self) -> str:
        adjusted = self.adjusted
        lines = [f"{a} - {b}: {one!r}, adjusted p={adjusted[a, b]:.3g}" for (a, b), one in self.pairs.items()]
        return "\n".join(lines)


def compare_all(*results: TaskResults) -> Comparisons:
    """Compares each pair of several results, as `compare` does, and corrects the p-values for the number of pairs.

    Args:
        results: At least two results with different labels, each of one policy.

    Returns:
        The comparisons and the corrected p-values, by pairs of labels.

    Raises:
        TypeError, ValueError: Those of `compare`; or there are fewer than two results, or two have the same label.
    """
    for each in results:
        _check_type(each)
    labels = tuple(str(each.label) for each in results)
    if len(results) < 2 or len(set(labels)) < len(labels):
        raise ValueError(
            f"expected two or more results with different labels, got {list(labels)}; "
            "evaluate_tasks(..., label=...) gives a label"
        )
    return Comparisons(labels, {(str(a.label), str(b.label)): compare(a, b) for a, b in combinations(results, 2)})


def _check_type(results: Any) -> None:
    if not isinstance(results, TaskResults):
        raise TypeError(f"expected remuda.TaskResults, got {results!r}; TaskResults.load reads a file")


def _key(row: dict[str, Any]) -> Hashable:
    return row["task"], row["episode"], row["seed"], row["init_state"]


def _keys(results: TaskResults) -> set[Hashable]:
    return {_key(row) for row in results.rows}


def _successes(results: TaskResults) -> dict[Hashable, bool]:
    return {_key(row): row["success"] for row in results.rows if row["status"] == "done"}
