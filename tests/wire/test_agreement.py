"""Envs with different spaces are refused. The error groups them by difference."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from remuda import SpaceMismatchError
from remuda._wire.codec import check_agreement


def test_equal_spaces_of_any_class_agree() -> None:
    class Odd(spaces.Space[int]):
        def __eq__(self, other: object) -> bool:
            return isinstance(other, Odd)

        def __hash__(self) -> int:
            return 1

    check_agreement("observation", Odd(), "env 0", [Odd(), Odd()])


@given(st.integers(1, 4), st.integers(1, 4))
def test_different_bounds_agree(low: int, high: int) -> None:
    check_agreement("action", spaces.Discrete(low), "env 0", [spaces.Discrete(high), spaces.Discrete(2, start=high)])
    check_agreement("x", spaces.Text(low), "env 0", [spaces.Text(high)])


def test_envs_are_grouped_by_their_difference() -> None:
    box = spaces.Box(0, 1, (2,))
    odd: list[spaces.Space[Any]] = [
        box,
        spaces.Box(0, 1, (3,)),
        spaces.Box(0, 1, (2,), np.float64),
        spaces.Box(0, 1, (3,)),
        spaces.Text(2),
    ]
    with pytest.raises(SpaceMismatchError) as raised:
        check_agreement("observation", box, "env 0", odd)
    assert "envs 1, 3: shape (3,) instead of (2,)" in str(raised.value)
    assert "env 2: dtype float64 instead of float32" in str(raised.value)
    assert "env 4: another structure (Text" in str(raised.value)
    for error in (raised.value, pickle.loads(pickle.dumps(raised.value))):
        assert (error.kind, error.spaces) == ("observation", tuple(odd))
