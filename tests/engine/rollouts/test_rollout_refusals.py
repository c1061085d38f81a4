"""Errors of rollouts: wrong arguments, wrong states, and turns with envs that another call has stepped or reset.

Values of columns that would change in the column are refused before anything is sent.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from pool_envs import TextEnv, begun, counting
from rollout_envs import fill

from remuda import InvalidActionError, Pool, StateError


@pytest.mark.parametrize(
    ("kind", "text", "call"),
    [
        (TypeError, "expected steps to be an int, got 2.5", lambda pool: pool.rollout(2.5)),
        (ValueError, "expected steps to be at least 1, got 0", lambda pool: pool.rollout(0)),
        (ValueError, "parts to be an int from 1 to 3 .*got None", lambda pool: pool.rollout(1, parts=None)),
        (ValueError, "expected parts to be an int from 1 to 3", lambda pool: pool.rollout(1, parts=4)),
        (MemoryError, "expected .* rows at most, got 30,000,000,003", lambda pool: pool.rollout(10**10)),
        (MemoryError, "expected .* rows at most, got 27,670", lambda pool: pool.rollout(2**63)),
        (ValueError, "min_envs to be an int from 1 to 3, got 4", lambda pool: pool.rollout(1).partial(4)),
        (ValueError, "min_envs to be an int from 1 to 3, got True", lambda pool: pool.rollout(1).partial(True)),
    ],
)
def test_bad_arguments_of_rollouts_have_no_effect(
    kind: type[Exception], text: str, call: Callable[[Pool], Any]
) -> None:
    with begun(counting(3), num_workers=1, backend="serial") as pool:
        with pytest.raises(kind, match=text):
            call(pool)
        assert (pool.step([1, 1, 1]).obs[:, 2] == 1).all()
        fill(pool.rollout(2))


def test_rollouts_are_refused_for_observations_without_columns() -> None:
    expected = "expected an .* space of arrays for a rollout, got a Text"
    with begun([TextEnv] * 2) as pool, pytest.raises(ValueError, match=expected):
        pool.rollout(3)


def test_a_rollout_needs_envs_that_were_reset_and_are_not_in_flight() -> None:
    with Pool(counting(2), num_workers=None) as pool:
        with pytest.raises(StateError, match="reset"):
            pool.rollout(3)
        pool.reset()
        pool.send([1, 1])
        with pytest.raises(StateError, match="expected no env in flight"):
            pool.rollout(3)
        pool.recv()
        fill(pool.rollout(3))


def test_each_turn_has_one_act_and_refused_ones_do_not_change_columns() -> None:
    with begun(counting(2)) as pool:
        rollout = pool.rollout(4)
        turns = iter(rollout)
        step = next(turns)
        with pytest.raises(InvalidActionError):
            step.act([1], value=np.zeros((2, 4)))
        with pytest.raises(ValueError, match="expected value= to have 2 rows"):
            step.act([1, 1], value=np.zeros(3))
        assert rollout.columns == {}
        step.act([1, 1], value=np.zeros((2, 3), np.int64))
        with pytest.raises(StateError, match="expected one act"):
            step.act([1, 1])
        step = next(turns)
        with pytest.raises(ValueError, match=r"expected value= to have the shape \(2, 3\), got \(2, 4\)"):
            step.act([1, 1], value=np.zeros((2, 4)))
        with pytest.raises(InvalidActionError):
            step.act([1], value=np.full((2, 3), 0.5))
        assert rollout.columns["value"].dtype == np.int64
        with pytest.raises(StateError, match="a turn without"):
            next(turns)
        with pytest.raises(StateError, match="filled before"):
            iter(rollout)
        rollout.close()


@pytest.mark.parametrize("do", [pickle.dumps, copy.copy, copy.deepcopy])
def test_arrays_of_a_rollout_can_be_pickled_but_not_the_rollout(do: Callable[[Any], Any]) -> None:
    with begun(counting(2), num_workers=1, backend="serial") as pool:
        rollout = fill(pool.rollout(4))
        with pytest.raises(TypeError, match="got a rollout of 4 steps of 2 envs, which .* its arrays"):
            do(rollout)
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(rollout.obs)), rollout.obs)
        np.testing.assert_array_equal(copy.deepcopy(rollout.rewards), rollout.rewards)


@pytest.mark.parametrize("how", ["step", "reset", "rollout", "split", "close"])
@pytest.mark.parametrize("way", ["lockstep", "partial"])
def test_a_turn_is_refused_after_another_call_used_the_envs(way: str, how: str) -> None:
    with begun(counting(4), num_workers=2, backend="serial") as pool:
        rollout = pool.rollout(6)
        turns = rollout.partial(4) if way == "partial" else iter(rollout)
        for _ in range(2):
            next(turns).act([1] * 4, value=[1.0] * 4)
        step, other = next(turns), None
        if how == "step":
            pool.step([2] * 4)
        elif how == "reset":
            pool.reset()
        elif how == "rollout":
            other = pool.rollout(3)
        elif how == "split":
            pool.split(2)
        else:
            rollout.close()
        with pytest.raises(StateError, match="no other step or reset"):
            step.act([3] * 4)
        assert rollout.is_open == (how == "step")
        rollout.close()
        assert rollout.valid.sum() == (12 if how == "step" else 8)
        assert not (rollout.actions == 3).any()
        if other is not None:
            fill(other)
            assert other.valid.all()


# -- columns of the caller ------------------------------------------------------------------------------------


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
        (np.int64, np.array([2**63, 0], np.uint64), "9223372036854775808"),
        (np.uint64, [-1, 0], "-1"),
        (np.bool_, [7, 0], "7"),
        ("U3", ["abcdef", "a"], "'abcdef'"),
        (np.float32, [1e300, 0], "1e\\+300"),
        (np.float32, [1 + 1j, 0], r"\(1\+1j\)"),
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
        (np.float32, [np.inf, np.nan]),
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
