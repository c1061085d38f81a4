"""With ``RolloutBuffer``, SB3's algorithms learn the same, from observations that are not copied."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium_face_envs import SpaceEnv
from sb3_face_envs import GoalEnv, cartpoles
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack, VecNormalize

from remuda.sb3 import RolloutBuffer, SubprocVecEnv

N = 4


def train(algorithm: Any, policy: str, make: Callable[[], Any], buffer: Any, total: int, **options: Any) -> Any:
    envs = make()
    model = algorithm(policy, envs, seed=1, device="cpu", rollout_buffer_class=buffer, **options)
    model.learn(total)
    envs.close()
    return model


def weights(model: Any) -> dict[str, torch.Tensor]:
    return {key: value.clone() for key, value in model.policy.state_dict().items()}


def poles() -> Any:
    return SubprocVecEnv(cartpoles(N, max_episode_steps=20), num_workers=2)


def pictures() -> Any:
    return SubprocVecEnv([lambda: SpaceEnv(spaces.Box(0, 255, (36, 40, 3), np.uint8))] * N, num_workers=2)


def goals() -> Any:
    return SubprocVecEnv([GoalEnv] * N, num_workers=2)


SHORT = {"n_steps": 16, "batch_size": 32, "n_epochs": 2}
CASES: dict[str, tuple[Any, str, Callable[[], Any], int, dict[str, Any], bool]] = {
    "PPO": (PPO, "MlpPolicy", poles, 256, SHORT, True),
    "A2C": (A2C, "MlpPolicy", poles, 100, {"n_steps": 5}, True),
    "pictures, which SB3 transposes": (PPO, "CnnPolicy", pictures, 192, SHORT, True),
    "a dict": (PPO, "MultiInputPolicy", goals, 256, SHORT, True),
    "normalised": (PPO, "MlpPolicy", lambda: VecNormalize(poles()), 256, SHORT, False),
    "stacked": (PPO, "MlpPolicy", lambda: VecFrameStack(poles(), 3), 256, SHORT, False),
    "other envs": (PPO, "MlpPolicy", lambda: DummyVecEnv(list(cartpoles(N))), 128, SHORT, False),
}


@pytest.mark.parametrize("case", CASES)
def test_the_weights_equal_those_of_sb3s_buffer(case: str) -> None:
    algorithm, policy, make, total, options, stays = CASES[case]
    reference = weights(train(algorithm, policy, make, None, total, **options))
    model = train(algorithm, policy, make, RolloutBuffer, total, **options)
    ours = weights(model)
    assert all(torch.equal(ours[key], reference[key]) for key in reference)
    assert (model.rollout_buffer.rollout is not None) == stays


def test_observations_are_not_copied() -> None:
    envs = pictures()
    model = PPO("CnnPolicy", envs, seed=1, device="cpu", rollout_buffer_class=RolloutBuffer, **SHORT)
    model.learn(2 * 16 * N)
    buffer: Any = model.rollout_buffer
    assert envs._pool.owns(buffer.rollout.obs)
    assert np.shares_memory(buffer.observations, buffer.rollout.obs)
    assert buffer.observations.shape == (16, N, 3, 36, 40)
    np.testing.assert_array_equal(buffer.observations, buffer.rollout.obs[:-1].transpose(0, 1, 4, 2, 3))
    envs.close()
    del model, buffer, envs
    gc.collect()
    with open("/proc/self/maps") as maps:
        assert "memfd:remuda" not in maps.read()


def test_after_an_aborted_rollout_the_next_one_is_complete() -> None:
    envs = poles()
    model = PPO("MlpPolicy", envs, seed=1, device="cpu", rollout_buffer_class=RolloutBuffer, **SHORT)
    model.learn(2 * 16 * N)
    model.learn(3 * 16 * N, callback=lambda found, _: model.num_timesteps < 3 * 16 * N + 20)
    model.learn(2 * 16 * N)
    buffer: Any = model.rollout_buffer
    assert buffer.rollout.valid.all()
    envs.close()
