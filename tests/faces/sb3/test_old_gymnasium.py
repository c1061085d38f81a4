"""On Gymnasium 0.29 the Stable-Baselines3 face is a ``VecEnv`` of that time's Stable-Baselines3."""

from __future__ import annotations

import gymnasium
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import DummyVecEnv

from remuda.sb3 import SubprocVecEnv

ENV_FNS = [lambda: gymnasium.make("CartPole-v1")] * 2


def test_ppo_learns_the_same_as_with_sb3s_vec_env() -> None:
    weights = []
    for kind in (SubprocVecEnv, DummyVecEnv):
        envs = kind(ENV_FNS)
        model = PPO("MlpPolicy", envs, n_steps=32, seed=0).learn(128)
        weights.append({name: value.tolist() for name, value in model.policy.state_dict().items()})
        envs.close()
    assert weights[0] == weights[1]
