"""The seeds and options that `reset` passes to each env."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda._engine.reset_arguments import options_for, reset_arguments, seeds_for

ids = st.lists(st.integers(0, 50), unique=True, max_size=8)


@given(st.integers(-(2**70), 2**70), ids)
def test_an_int_seeds_each_env_by_its_id(seed: int, env_ids: list[int]) -> None:
    assert seeds_for(seed, env_ids) == [seed + i for i in env_ids]


@given(st.lists(st.one_of(st.none(), st.integers()), max_size=8))
def test_a_sequence_has_a_seed_for_each_env(seeds: list[int | None]) -> None:
    assert seeds_for(seeds, range(len(seeds))) == seeds
    assert seeds_for(None, range(3)) == [None] * 3
    with pytest.raises(ValueError, match=f"expected {len(seeds) + 1} seeds"):
        seeds_for(seeds, range(len(seeds) + 1))


def test_options_are_copied() -> None:
    options = {"a": 1}
    (copied,) = options_for([options], [0])
    assert copied == options
    assert copied is not options
    assert options_for(options, [0, 1])[1] is not options


def test_reset_passes_only_the_arguments_that_were_given() -> None:
    assert reset_arguments(None, None) is None
    assert reset_arguments(0, None) == {"seed": 0}
    assert reset_arguments(None, {}) == {"options": {}}
    assert reset_arguments(1, {"x": 2}) == {"seed": 1, "options": {"x": 2}}
