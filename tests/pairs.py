"""Chooses few of many combinations of parameters, so that each pair of values, or each value, occurs.

A full product finds little more: most failures depend on one value, or on two that do not work together. Random lives
beside a serial twin (`tests/engine/test_lives.py`) and the storms of `make soak` search for failures that need three
values. A test with three or more parameters is therefore run `pairwise`. A test
with two parameters is run with `each` value if one of them is its subject and the other one only a place. The
combinations depend on the test's name, so that different tests have different ones, and are the same in every run.

    @pairwise(backend=BACKENDS, mode=MODES, spares=[0, 2])
    @each(backend__num_workers=[("process", 3), ("thread", 2)], mode=MODES)

A name with two underscores stands for several parameters, whose values are given together in tuples.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeAlias, TypeVar
from zlib import crc32

import pytest

Cell = TypeVar("Cell")
Test = TypeVar("Test", bound=Callable[..., None])
Parameters: TypeAlias = tuple[tuple[str, ...], list[tuple[Any, ...]]]
"""Names and rows of values, in the form of `pytest.mark.parametrize`."""


def pairwise(**values: Iterable[Any]) -> Callable[[Test], Test]:
    """Runs a test with few combinations in which all pairs of values occur. `values`: by parameter name."""
    return lambda test: pytest.mark.parametrize(*choose(2, test.__name__, values))(test)


def each(**values: Iterable[Any]) -> Callable[[Test], Test]:
    """Runs a test as often as the longest parameter has values. Each value occurs, about equally often."""
    return lambda test: pytest.mark.parametrize(*choose(1, test.__name__, values))(test)


def covering(cells: Iterable[Cell], *aspects: Callable[[Cell], Hashable]) -> list[Cell]:
    """Returns cells, in their order, in which each value occurs that any aspect gives to any cell.

    Greedy: takes the cell with most missing values. Among equals it takes the one whose values were used least.
    """
    every = list(cells)
    brings = [{(number, aspect(cell)) for number, aspect in enumerate(aspects)} for cell in every]
    missing, taken, chosen = set().union(*brings), Counter[Any](), set[int]()
    while missing:
        best = max(range(len(every)), key=lambda n: (len(brings[n] & missing), -sum(taken[b] for b in brings[n]), -n))
        missing -= brings[best]
        taken.update(brings[best])
        chosen.add(best)
    return [every[n] for n in sorted(chosen)]


def choose(strength: int, name: str, values: dict[str, Iterable[Any]]) -> Parameters:
    """Returns combinations in which all values of any `strength` parameters occur together. `name`: of the test."""
    columns = [_rotated(list(column), crc32(f"{name} {i}".encode())) for i, column in enumerate(values.values())]
    places = [*itertools.combinations(range(len(columns)), strength), *((i,) for i in range(len(columns)))]
    rows = covering(itertools.product(*(range(len(column)) for column in columns)), *map(_at, places))
    names = [one.split("__") for one in values]
    return tuple(itertools.chain(*names)), [
        tuple(itertools.chain(*(_as_tuple(names[i], columns[i][at]) for i, at in enumerate(row)))) for row in rows
    ]


def _rotated(column: list[Any], by: int) -> list[Any]:
    start = by % len(column)
    return column[start:] + column[:start]


def _at(places: Sequence[int]) -> Callable[[tuple[int, ...]], Hashable]:
    return lambda row: tuple(row[place] for place in places)


def _as_tuple(names: Sequence[str], value: Any) -> tuple[Any, ...]:
    return (value,) if len(names) == 1 else tuple(value)
