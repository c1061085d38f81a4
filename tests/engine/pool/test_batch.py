"""Batches create their arrays on first use, and their copies have the same values."""

from __future__ import annotations

import copy
import gc
import weakref
from typing import Any

import gymnasium
import numpy as np
from accidents import raise_value_error
from pool_envs import NestedEnv, begun, counting, hooked

from remuda import Batch, Pool


def test_arrays_are_made_once_can_be_set_and_outlive_the_pool() -> None:
    with begun(counting(3), num_workers=1) as pool:
        batch = pool.step([3, 4, 5])
        assert batch.obs is batch.obs
        assert batch.rewards is batch.rewards
        batch.rewards *= 2
        assert batch.rewards.tolist() == [6.0, 8.0, 10.0]
        batch.obs = batch.obs[::-1]
        assert batch.obs[:, 3].tolist() == [5, 4, 3]
    assert batch.terminations.tolist() == [False] * 3  # the array is created only now
    assert batch.truncations is batch.truncations
    assert batch.env_ids.tolist() == [0, 1, 2]


def test_a_copy_of_a_batch_has_the_same_values_and_a_deep_copy_its_own_arrays() -> None:
    with begun([NestedEnv] * 2, backend="serial", autoreset="same_step", frames=2, seed=0) as pool:
        for _ in range(12):
            batch = pool.step({"push": np.zeros((2, 2)), "keys": ([0, 0], np.zeros((2, 2), int))})
            for other in (copy.copy(batch), copy.deepcopy(batch)):
                assert type(other) is Batch
                assert other.has_infos == batch.has_infos
                for name in ("env_ids", "obs", "rewards", "terminations", "truncations", "final_obs"):
                    np.testing.assert_equal(getattr(other, name), getattr(batch, name))
                assert list(map(repr, other.infos)) == list(map(repr, batch.infos))
        first = repr(batch.obs)
        batch.obs["image"][:] = 0
        batch.rewards[:] = 99
        assert repr(other.obs) == first != repr(batch.obs)
        assert 99 not in other.rewards
    with begun(hooked(2, step=raise_value_error), backend="serial", faults="restart", seed=0) as pool:
        batch = pool.step([0, 0])
        fault, other = (one.infos[1]["fault"] for one in (batch, copy.deepcopy(batch)))
        assert str(other) == str(fault) and repr(other.error) == repr(fault.error)


def test_a_copy_has_terminal_observations_if_no_info_has_a_column() -> None:
    with Pool([lambda: gymnasium.make("CartPole-v1")] * 2, backend="serial", autoreset="same_step") as pool:
        batch = pool.reset(seed=0)
        while not batch.dones.any():
            batch = pool.step([1, 0])
        other = copy.copy(batch)
        assert repr(other.list_infos()) == repr(batch.list_infos())
        assert repr(other.stack_infos()) == repr(batch.stack_infos())
        assert "final_obs" in other.stack_infos()


def test_a_batch_in_a_reference_cycle_is_collected() -> None:
    with Pool(counting(2), num_workers=1, frames=2) as pool:
        batch: Any = pool.reset()
        array = batch.rewards
        batch.itself, gone = batch, weakref.ref(batch)
        del batch
        gc.collect()
        assert gone() is None
        assert array.tolist() == [0.0, 0.0]


def test_a_closed_pool_is_freed_without_a_collection() -> None:
    gc.collect()
    gc.disable()
    try:
        pool = begun(counting(2), backend="serial")
        pool.step([1, 1])
        pool.close()
        gone = weakref.ref(pool)
        del pool
        assert gone() is None
    finally:
        gc.enable()
