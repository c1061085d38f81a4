"""Rewards that are vectors: Gymnasium's face returns them as Gymnasium does, and Stable-Baselines3's refuses them."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv
from vector_reward_envs import Sum, TwoGoals

import remuda.gymnasium


def test_gymnasium_has_a_row_of_rewards_for_each_env() -> None:
    ours, theirs = remuda.gymnasium.AsyncVectorEnv([TwoGoals] * 2), AsyncVectorEnv([TwoGoals] * 2)
    try:
        for envs in (ours, theirs):
            envs.reset()
        for _ in range(3):
            np.testing.assert_array_equal(ours.step(np.array([1, 2]))[1], theirs.step(np.array([1, 2]))[1])
        assert ours.reward_space.shape == (2,)
        for half in ours.split(2):
            assert half.reward_space == ours.reward_space
            half.reset()
            half.step_async(np.array([4]))
            assert half.step_wait()[1].tolist() == [[1, -4]]
    finally:
        ours.close()
        theirs.close()


def test_rewards_that_are_numbers_have_no_space() -> None:
    envs = remuda.gymnasium.AsyncVectorEnv([lambda: Sum(TwoGoals())], backend="serial")
    assert not hasattr(envs, "reward_space")
    envs.close()


def test_sb3_refuses_vectors_and_takes_their_sums() -> None:
    sb3 = pytest.importorskip("remuda.sb3")
    envs = sb3.SubprocVecEnv([TwoGoals])
    envs.reset()
    with pytest.raises(sb3.EnvError, match="learns from numbers, so wrap the env in a wrapper that weighs"):
        envs.step(np.array([1]))
    envs.close()
    envs = sb3.SubprocVecEnv([lambda: Sum(TwoGoals())])
    envs.reset()
    assert envs.step(np.array([3]))[1].tolist() == [-2]
    envs.close()
