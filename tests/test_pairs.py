"""The combinations of `pairs.py`: they contain the promised values and pairs, and are few."""

from __future__ import annotations

import itertools
from typing import Any

from pairs import choose, covering, each, pairwise

VALUES: dict[str, Any] = {"backend": "pts", "mode": range(4), "spares": [0, 2], "policy": ["raise", "restart"]}


def test_every_pair_occurs_in_few_combinations() -> None:
    names, rows = choose(2, "a test", VALUES)
    assert names == tuple(VALUES)
    for (i, one), (j, other) in itertools.combinations(enumerate(VALUES.values()), 2):
        assert {(row[i], row[j]) for row in rows} == set(itertools.product(one, other))
    assert 12 <= len(rows) <= 14  # the full product has 48
    assert choose(2, "a test", VALUES) == (names, rows)


def test_each_value_occurs_about_equally_often() -> None:
    _, rows = choose(1, "a test", VALUES)
    assert len(rows) == 4
    for i, values in enumerate(VALUES.values()):
        column = [row[i] for row in rows]
        assert set(column) == set(values)
        assert max(map(column.count, values)) - min(map(column.count, values)) <= 1


def test_tests_with_other_names_have_other_pairs() -> None:
    backends_and_modes = {name: VALUES[name] for name in ("backend", "mode")}
    met = {row for number in range(50) for row in choose(1, f"test {number}", backends_and_modes)[1]}
    assert met == set(itertools.product("pts", range(4)))


def test_a_name_with_two_underscores_has_values_in_tuples() -> None:
    names, rows = choose(1, "a test", {"mode": "xyz", "backend__workers": [("p", 3), ("t", 2)]})
    assert names == ("mode", "backend", "workers")
    assert {row[0] for row in rows} == set("xyz")
    assert {row[1:] for row in rows} == {("p", 3), ("t", 2)}


def test_covering_keeps_a_cell_for_each_value_of_each_aspect() -> None:
    words = ["ab", "ac", "bc", "ad", "ab"]
    assert covering(words, lambda word: word[0], lambda word: word[1]) == ["ab", "bc", "ad"]
    assert covering(words, lambda word: word) == ["ab", "ac", "bc", "ad"]
    assert covering([], len) == []


@each(one=[1, 2, 3], other="ab")
def test_each_parametrizes_a_test(one: int, other: str) -> None:
    assert one in {1, 2, 3} and other in set("ab")


@pairwise(one=[1, 2], other="ab", third=[True, False])
def test_pairwise_parametrizes_a_test(one: int, other: str, third: bool) -> None:
    assert (one, other, third) in itertools.product([1, 2], "ab", [True, False])
