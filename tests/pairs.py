"""Few of many combinations of parameters: every pair of values occurs in one of them, or every value.

A full product of parameters says the same thing many times over: what fails for one combination fails because of one
of its values, or because of two that do not go together. What it takes three for is looked for by random walks beside
a serial twin (`tests/engine/test_feature_pairs.py`, `test_state_machine.py`) and by the storms of `make soak`, which
know all features at once. So a test that has three parameters or more is run `pairwise`. One that has two is run with
`each` value where one of them is what it is about, and the other says only where: that they go together is what the
tests of parity and of pairs of features show for all such tests at once. Which values meet depends on the name of the
test, so that it is not the same two everywhere, and on nothing that changes between runs.

    @pairwise(backend=BACKENDS, mode=MODES, spares=[0, 2])
    @each(backend__num_workers=[("process", 3), ("thread", 2)], mode=MODES)

Names with two underscores between them have their values together, in tuples.
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
"""Names and rows of values, as `pytest.mark.parametrize` has them."""


def pairwise(**values: Iterable[Any]) -> Callable[[Test], Test]:
    """Runs a test with few combinations in which all pairs of values occur; `values` by name of the parameter."""
    return lambda test: pytest.mark.parametrize(*choose(2, test.__name__, values))(test)


def each(**values: Iterable[Any]) -> Callable[[Test], Test]:
    """Runs a test as often as the longest parameter has values: every value occurs, all as often as can be."""
    return lambda test: pytest.mark.parametrize(*choose(1, test.__name__, values))(test)


def covering(cells: Iterable[Cell], *aspects: Callable[[Cell], Hashable]) -> list[Cell]:
    """Some of the cells, in their order: what an aspect makes of any cell, it makes of one of these.

    Greedy: each brings most of what is missing; of several that do, the one whose aspects were taken least.
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
    """Combinations in which all that so many of the parameters can be together occurs; `name`: of the test."""
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
