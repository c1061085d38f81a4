"""``replace`` of the Gymnasium and Stable-Baselines3 faces: other envs in living workers."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium.error import AlreadyPendingCallError, ClosedEnvironmentError
from pool_envs import CountingEnv, counting
from programs import pids_of

from remuda.errors import SpaceMismatchError, StateError
from remuda.gymnasium import AsyncVectorEnv
from remuda.sb3 import EnvError, SubprocVecEnv


def other(tag: int) -> Callable[[], Any]:
    return partial(CountingEnv, tag)


def fails() -> Any:
    raise KeyError("no such task")


class Narrow(CountingEnv):
    def __init__(self) -> None:
        super().__init__()
        self.observation_space = type(self.observation_space)(0, 1, (2,))


def test_gymnasium_resets_replaced_envs_by_a_reset_mask() -> None:
    with_mask = {"reset_mask": np.array([True, False, True])}
    envs = AsyncVectorEnv(counting(3), autoreset_mode="SameStep")
    envs.reset()
    envs.step([1, 1, 1])
    pids = pids_of(envs._pool)
    envs.replace([2, 0], [other(20), other(10)])
    with pytest.raises(StateError, match="call reset first"):
        envs.step([1, 1, 1])
    assert envs.reset(options=with_mask)[0][:, :3].tolist() == [[10, 1, 0], [1, 1, 1], [20, 1, 0]]
    assert envs.step([1, 1, 1])[0][:, 0].tolist() == [10, 1, 20]
    assert pids_of(envs._pool) == pids
    assert [env_fn().tag for env_fn in envs.env_fns] == [10, 1, 20]
    envs.close()
    with pytest.raises(ClosedEnvironmentError):
        envs.replace([0], [other(1)])


def test_gymnasium_keeps_the_old_envs_if_a_factory_raises() -> None:
    envs = AsyncVectorEnv(counting(2))
    envs.reset()
    with warnings.catch_warnings(record=True) as logged, pytest.raises(KeyError, match="no such task"):
        warnings.simplefilter("always")
        envs.replace([0, 1], [other(10), fails])
    assert logged
    assert not any("Shutting it down" in str(one.message) for one in logged)
    with pytest.raises(RuntimeError, match="expected every observation space"):
        envs.replace([1], [Narrow])
    with pytest.raises(IndexError, match="expected indices of 2 envs, got 2"):
        envs.replace([2], [other(10)])
    assert envs.step([1, 1])[0][:, :3].tolist() == [[0, 1, 1], [1, 1, 1]]
    envs.step_async([1, 1])
    with pytest.raises(AlreadyPendingCallError):
        envs.replace([1], [other(10)])
    envs.step_wait()
    envs.close()


def test_env_ids_of_a_part_start_from_zero() -> None:
    envs = AsyncVectorEnv(counting(4), num_workers=2)
    one, two = envs.split(2)
    one.reset(), two.reset()
    two.replace([1], [other(10)])
    two.reset()
    assert two.get_attr("tag")[1] == 10
    assert envs.get_attr("tag")[two.env_ids[1]] == 10  # type: ignore[attr-defined]
    envs.close()


def test_stable_baselines_requires_a_reset_of_all_envs() -> None:
    envs = SubprocVecEnv(counting(3))
    envs.set_attr("level", 3)
    envs.reset()
    envs.step(np.array([1, 1, 1]))
    envs.replace([2, -3], [other(20), other(10)])
    with pytest.raises(RuntimeError, match="call reset first"):
        envs.step(np.array([1, 1, 1]))
    obs: Any = envs.reset()
    assert obs[:, 0].tolist() == [10, 1, 20]
    assert envs.get_attr("level") == [3, 3, 3]
    envs.close()


def test_stable_baselines_keeps_the_old_envs_if_a_factory_raises() -> None:
    envs = SubprocVecEnv(counting(2))
    envs.reset()
    with pytest.raises(EnvError, match="raised KeyError in build"):
        envs.replace(1, [fails])
    with pytest.raises(SpaceMismatchError):
        envs.replace(None, [other(10), Narrow])
    envs.step_async(np.array([1, 1]))
    with pytest.raises(StateError, match="call step_wait first"):
        envs.replace(1, [other(10)])
    obs: Any = envs.step_wait()[0]
    assert obs[:, :3].tolist() == [[0, 1, 1], [1, 1, 1]]
    envs.close()
