"""Pickled values are equal and writable, also functions by value; invalid messages are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pool_envs import assert_same, counting

from remuda import EnvError, Pool
from remuda._wire.pickling import bundle, dump, load, unbundle

VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.integers(),
        st.floats(allow_nan=False),
        st.text(),
        st.binary(),
        st.builds(np.arange, st.integers(0, 50)),
        st.builds(lambda n: np.asfortranarray(np.arange(2.0 * n).reshape(2, n)), st.integers(0, 9)),
        st.builds(lambda n: np.arange(4 * n)[::-3], st.integers(0, 9)),
        st.builds(lambda n: np.full(n, "é", dtype=object), st.integers(0, 3)),
    ),
    lambda inner: st.one_of(st.lists(inner), st.tuples(inner), st.dictionaries(st.text(), inner)),
    max_leaves=8,
)


@given(VALUES)
@settings(max_examples=100, deadline=None)
def test_values_are_unpickled_unchanged(value: Any) -> None:
    copy = load([bytearray(part) for part in dump(value)])
    assert_same(copy, value)
    for array in copy if isinstance(copy, (list, tuple)) else [copy]:
        assert not isinstance(array, np.ndarray) or array.flags.writeable


def test_big_arrays_travel_out_of_band() -> None:
    array = np.arange(100_000)
    head, body = dump({"a": array})
    assert len(head) < 1000
    assert np.shares_memory(np.frombuffer(body, dtype=array.dtype), array)


def _fail(env: Any) -> None:
    def inner() -> None:
        raise ValueError("of a function that no import finds")

    inner()


@pytest.mark.parametrize("start_method", ["forkserver", "spawn"])
def test_a_traceback_shows_the_lines_of_a_function_pickled_by_value(start_method: Any) -> None:
    def fail(env: Any) -> None:
        _fail(env)

    with Pool(counting(1), num_workers=1, start_method=start_method) as pool, pytest.raises(EnvError) as caught:
        pool.apply(fail)
    (failure,) = caught.value.failures
    assert "_fail(env)" in failure.traceback
    assert __file__ in failure.traceback


@pytest.mark.parametrize(
    ("parts", "rows"),
    [
        ([b""], 1),
        ([b"noise"], 2),
        (bundle([None, None]), 3),
        (bundle([(0, [b"a", b"b"]), None])[:-1], 2),
        ([*bundle([None]), b"more"], 1),
    ],
)
def test_invalid_bundles_are_refused(parts: Any, rows: int) -> None:
    with pytest.raises(ValueError, match=r"expected the matter of|buffer"):
        unbundle(parts, rows)
