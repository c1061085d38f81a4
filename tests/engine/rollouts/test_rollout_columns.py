"""Columns that the caller adds to a rollout: values that would change are refused before anything is sent."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pool_envs import begun, counting

import remuda


def filled(values: list[Any], columns: Any = None) -> Any:
    """Returns column `v` of a rollout of two envs in which these values were stored one after another."""
    with begun(counting(2), backend="serial") as pool:
        rollout = pool.rollout(len(values), columns)
        for step, value in zip(rollout, values, strict=False):
            step.act([1, 1], v=value)
        return rollout.columns["v"].copy()


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([[0, 0], [0.7, -0.7]], np.float64),
        ([[True, False], [7, 0]], np.int64),
        ([[0, 0], [1j, 0]], np.complex128),
        ([np.zeros(2, np.int8), np.array([300, 1], np.int16)], np.int16),
        ([np.array([-1, 1]), np.array([2**63, 1], np.uint64)], np.float64),
        ([["ab", "c"], ["abcdef", "c"]], np.dtype("<U6")),
        ([[0.5, 0.5], [1, 2]], np.float64),
        ([np.zeros(2, np.float32), [0.1, 0.2]], np.float32),
        ([[0, 0], [None, 1]], None),
        ([[0, 0], ["x", "y"]], None),
    ],
)
def test_a_column_is_widened_for_later_values(values: list[Any], dtype: Any) -> None:
    if dtype is None:
        with pytest.raises(ValueError, match="expected v= to fit into its column of dtype int64"):
            filled(values)
        return
    column = filled(values)
    assert column.dtype == dtype
    np.testing.assert_array_equal(column, np.array([np.asarray(value, dtype) for value in values]))


@pytest.mark.parametrize(
    ("dtype", "value", "got"),
    [
        (np.int32, [0.0, 0.9], "0.9"),
        (np.int32, [2**40, 0], "1099511627776"),
        (np.int32, [np.nan, 0], "nan"),
        (np.uint8, [-1, 0], "-1"),
        (np.int64, np.array([2**63, 0], np.uint64), "9223372036854775808"),
        (np.uint64, [-1, 0], "-1"),
        (np.bool_, [7, 0], "7"),
        (np.bool_, [0.5, 0], "0.5"),
        ("U3", ["abcdef", "a"], "'abcdef'"),
        ("S3", [b"abcdef", b"a"], "b'abcdef'"),
        (np.float32, [1e300, 0], "1e\\+300"),
        (np.float32, [1 + 1j, 0], r"\(1\+1j\)"),
        (np.float32, ["1.5", "2"], "'1.5'"),
        ("U3", [1, 2], "1"),
    ],
)
def test_values_that_a_cast_would_change_are_refused_before_anything_is_sent(dtype: Any, value: Any, got: str) -> None:
    with begun(counting(2), num_workers=1, backend="serial") as pool:
        rollout = pool.rollout(2, {"v": dtype})
        for t, step in enumerate(rollout):
            if t == 0:
                text = rf"expected v= to fit into its column of dtype .*, got {got} .*columns=\{{'v': dtype\}}"
                with pytest.raises(ValueError, match=text):
                    step.act([1, 1], v=value)
                assert pool.pending == 0
            step.act([2, 2])
        assert rollout.rewards.tolist() == [[2.0, 2.0]] * 2
        assert rollout.columns["v"].dtype == np.dtype(dtype)
        assert not rollout.columns["v"].astype(bool).any()


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        (np.float32, [0.1, 1 / 3]),
        (np.float32, [0, 1]),
        (np.float32, [np.inf, np.nan]),
        (np.float16, [2, 3]),
        (np.int32, [5, -6]),
        (np.int32, [5.0, 6.0]),
        (np.bool_, [0, 1]),
        (np.complex64, [0.5, 1]),
        ("U8", ["a", "abcdef"]),
        (object, [{"a": 1}, None]),
        ("datetime64[s]", np.array(["2020-01-01", "2021-01-01"], "datetime64[D]")),
    ],
)
def test_values_are_cast_to_the_columns_dtype(dtype: Any, value: Any) -> None:
    column = filled([value], {"v": dtype})
    assert column.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(column[0], np.asarray(value).astype(dtype))


def test_a_refused_action_does_not_change_columns() -> None:
    with begun(counting(2), backend="serial") as pool:
        rollout = pool.rollout(2)
        turns = iter(rollout)
        step = next(turns)
        with pytest.raises(remuda.InvalidActionError):
            step.act([1], v=np.zeros((2, 3)))
        assert rollout.columns == {}
        step.act([1, 1], v=[0, 1])
        step = next(turns)
        with pytest.raises(remuda.InvalidActionError):
            step.act([1], v=[0.5, 1])
        assert rollout.columns["v"].dtype == np.int64
        step.act([1, 1], v=[0.5, 1])
        assert rollout.columns["v"].tolist() == [[0.0, 1.0], [0.5, 1.0]]
        rollout.close()


@pytest.mark.parametrize(
    ("columns", "kind", "text"),
    [
        (["v"], TypeError, r"expected columns to be a mapping of names to dtypes, or None, got \['v'\]"),
        ("v", TypeError, "expected columns to be a mapping of names to dtypes, or None, got 'v'"),
        ({1: float}, TypeError, "expected names of columns to be strings, got 1"),
        ({"v": "nothing"}, TypeError, r"expected columns\['v'\] to be a dtype, or \(dtype, shape\), got 'nothing'"),
        ({"v": (float, 3)}, TypeError, r"expected columns\['v'\] to be a dtype, or \(dtype, shape\)"),
        ({"v": (float, (-1,))}, ValueError, r"expected columns\['v'\] to be a dtype, or \(dtype, shape\)"),
        ({"v": (float,)}, ValueError, r"expected columns\['v'\] to be a dtype, or \(dtype, shape\)"),
    ],
)
@pytest.mark.parametrize("parts", [1, 2])
def test_wrong_columns_are_refused_without_effect(columns: Any, kind: Any, text: str, parts: int) -> None:
    with begun(counting(2), num_workers=1, backend="serial") as pool:
        rollout = pool.rollout(2)
        with pytest.raises(kind, match=text):
            pool.rollout(2, columns, parts=parts)
        pool.step([1, 1])
        pool.step([1, 1])
        assert rollout.valid.all()
