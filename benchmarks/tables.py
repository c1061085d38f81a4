"""The parts of a table in Markdown that shows what was reached and what was to be."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from remuda._bench.results import Result


def head(cells: Sequence[str]) -> Iterator[str]:
    yield row(cells)
    yield row(["---"] * len(cells))


def row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def figure(value: float | None) -> str:
    """Three digits that count."""
    return "" if value is None else f"{value:.3g}"


def verdict(at_least: float, reached: float | None) -> str:
    if reached is None:
        return "not measured"
    return "pass" if reached >= at_least else "**falls short**"


def failures(results: Iterable[Result]) -> Iterator[str]:
    for result in results:
        for entry in result.entries:
            if entry.error is not None:
                yield f"\n{entry.name} failed on {result.env}, {result.num_envs} envs: `{entry.error}`"
