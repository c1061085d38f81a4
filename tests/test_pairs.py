"""Which combinations of parameters tests are run with: what they promise to have in them, and few."""

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
    assert 12 <= len(rows) <= 14  # of 48
    assert choose(2, "a test", VALUES) == (names, rows)


def test_each_value_occurs_and_none_much_more_often_than_others() -> None:
    _, rows = choose(1, "a test", VALUES)
    assert len(rows) == 4
    for i, values in enumerate(VALUES.values()):
        column = [row[i] for row in rows]
        assert set(column) == set(values)
        assert max(map(column.count, values)) - min(map(column.count, values)) <= 1


def test_other_tests_have_other_pairs() -> None:
    backends_and_modes = {name: VALUES[name] for name in ("backend", "mode")}
    met = {row for number in range(50) for row in choose(1, f"test {number}", backends_and_modes)[1]}
    assert met == set(itertools.product("pts", range(4)))


def test_some_have_their_values_together() -> None:
    names, rows = choose(1, "a test", {"mode": "xyz", "backend__workers": [("p", 3), ("t", 2)]})
    assert names == ("mode", "backend", "workers")
    assert {row[0] for row in rows} == set("xyz")
    assert {row[1:] for row in rows} == {("p", 3), ("t", 2)}


def test_what_is_left_out_is_seen_by_no_aspect() -> None:
    words = ["ab", "ac", "bc", "ad", "ab"]
    assert covering(words, lambda word: word[0], lambda word: word[1]) == ["ab", "bc", "ad"]
    assert covering(words, lambda word: word) == ["ab", "ac", "bc", "ad"]
    assert covering([], len) == []


@each(one=[1, 2, 3], other="ab")
def test_it_is_what_a_test_is_run_with(one: int, other: str) -> None:
    assert one in {1, 2, 3} and other in set("ab")


@pairwise(one=[1, 2], other="ab", third=[True, False])
def test_so_are_pairs(one: int, other: str, third: bool) -> None:
    assert (one, other, third) in itertools.product([1, 2], "ab", [True, False])
