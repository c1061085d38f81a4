"""Columns of `extras` beside the observations of the Gymnasium face."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium.wrappers.vector import RecordEpisodeStatistics
from pool_envs import counting
from state_envs import BufferedEnv, shown
from vector_envs import synced

import remuda
from remuda.gymnasium import AsyncVectorEnv


def seen(env: Any) -> Any:
    return env.unwrapped.observe()


def check(envs: Any) -> None:
    np.testing.assert_array_equal(envs.extras["seen"], envs.observations)


@pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled"])
def test_extras_are_those_of_the_latest_reset_or_step(mode: str) -> None:
    envs = AsyncVectorEnv(counting(3, 4), num_workers=2, autoreset_mode=mode, extras={"seen": seen})
    try:
        assert envs.extras == {}
        envs.reset(seed=0)
        check(envs)
        for i in range(6):
            over = envs.step(np.full(3, i))[2]
            check(envs)
            if mode == "Disabled" and over.any():
                envs.reset(options={"reset_mask": over})
                check(envs)
        envs.reset(options={"reset_mask": np.array([True, False, True])})
        check(envs)
        envs.step_async([1, 2, 3])
        envs.step_wait()
        check(envs)
    finally:
        envs.close()
    check(envs)  # still readable after close


def test_extras_are_reachable_through_wrappers() -> None:
    envs = RecordEpisodeStatistics(AsyncVectorEnv(counting(2), num_workers=1, extras={"seen": seen}))
    try:
        obs, _ = envs.reset()
        np.testing.assert_array_equal(envs.unwrapped.extras["seen"], obs)  # type: ignore[attr-defined]
    finally:
        envs.close()


def test_parts_have_their_own_extras() -> None:
    envs: Any = AsyncVectorEnv(counting(4), num_workers=2, extras={"seen": seen})
    try:
        for half in envs.split(2):
            half.reset()
            check(half)
            assert half.extras["seen"][:, 0].tolist() == half.env_ids.tolist()
    finally:
        envs.close()


def test_a_vector_env_computes_extras_for_all_its_envs() -> None:
    env_fns: Any = synced(counting(4), 2)
    envs = AsyncVectorEnv(env_fns, vector_size=2, extras={"tag": lambda env: [one.unwrapped.tag for one in env.envs]})
    try:
        envs.reset()
        assert envs.extras["tag"].tolist() == [0, 1, 2, 3]
    finally:
        envs.close()


def test_make_vec_takes_extras() -> None:
    with_masks = {"mask": lambda env: np.ones(env.action_space.n, bool)}
    envs = remuda.make_vec("CartPole-v1", num_envs=2, num_workers=1, extras=with_masks)
    try:
        envs.reset()
        assert envs.extras["mask"].tolist() == [[True, True]] * 2
    finally:
        envs.close()


def test_a_masked_reset_keeps_the_extras_of_other_envs() -> None:
    envs = AsyncVectorEnv([partial(BufferedEnv, tag, 1) for tag in range(2)], resets_ahead=True, extras={"seen": shown})
    try:
        envs.reset()
        last = envs.step([5, 6])[0].copy()
        obs, _ = envs.reset(options={"reset_mask": np.array([True, False])})
        assert obs[0, 2] == 0
        assert obs[1].tolist() == last[1].tolist()
        np.testing.assert_array_equal(envs.extras["seen"][1], last[1])
    finally:
        envs.close()
