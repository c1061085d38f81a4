"""Errors of rollouts: wrong arguments, wrong states, and turns with envs that another call has stepped or reset."""

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
    with Pool(counting(2)) as pool:
        with pytest.raises(StateError, match="reset"):
            pool.rollout(3)
        pool.reset()
        pool.send([1, 1])
        with pytest.raises(StateError, match="expected no env in flight"):
            pool.rollout(3)
        pool.recv()
        fill(pool.rollout(3))


def test_each_turn_has_one_act() -> None:
    with begun(counting(2)) as pool:
        rollout = pool.rollout(4)
        turns = iter(rollout)
        step = next(turns)
        with pytest.raises(InvalidActionError):
            step.act([1])
        with pytest.raises(ValueError, match="expected value= to have 2 rows"):
            step.act([1, 1], value=np.zeros(3))
        step.act([1, 1], value=np.zeros((2, 3)))
        with pytest.raises(StateError, match="expected one act"):
            step.act([1, 1])
        step = next(turns)
        with pytest.raises(ValueError, match=r"expected value= to have the shape \(2, 3\), got \(2, 4\)"):
            step.act([1, 1], value=np.zeros((2, 4)))
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


def test_a_turn_of_a_part_is_refused_after_another_step() -> None:
    with begun(counting(4), num_workers=2, backend="serial") as pool:
        rollout = pool.rollout(6, parts=2)
        step = next(iter(rollout))
        step._part.step([2, 2])
        with pytest.raises(StateError, match="no other step or reset"):
            step.act([3, 3])
        rollout.close()
        assert rollout.valid.sum() == 2
