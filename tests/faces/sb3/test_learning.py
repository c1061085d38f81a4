"""Algorithms of Stable-Baselines3 learn the same with our envs as with SB3's."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from pool_envs import assert_same
from sb3_face_envs import GoalEnv, cartpoles
from sb3_originals import both
from stable_baselines3 import A2C, DQN, PPO, SAC, HerReplayBuffer
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecEnv

from remuda.sb3 import SubprocVecEnv


def small() -> dict[str, Any]:
    """Returns new arguments for each algorithm, because algorithms modify them."""
    return {"device": "cpu", "policy_kwargs": {"net_arch": [16]}}


def pendulums(num_envs: int) -> Any:
    return [lambda: gymnasium.make("Pendulum-v1", max_episode_steps=30)] * num_envs


class Diary(BaseCallback):
    """Records the actions, rewards, observations and infos of the algorithm."""

    def __init__(self) -> None:
        super().__init__()
        self.entries: list[Any] = []

    def _on_step(self) -> bool:
        seen = {name: self.locals[name] for name in ("actions", "rewards", "dones", "infos", "new_obs")}
        self.entries.append({name: np.array(value) if name != "infos" else value for name, value in seen.items()})
        return True


def train(algorithm: type[BaseAlgorithm], envs: VecEnv, steps: int, **arguments: Any) -> tuple[list[Any], Any]:
    model = algorithm("MlpPolicy", envs, seed=1, **small(), **arguments)
    diary = Diary()
    model.learn(steps, callback=diary)
    return diary.entries, {name: tensor.numpy() for name, tensor in model.policy.state_dict().items()}


SAME: dict[str, tuple[Any, Any, int, dict[str, Any]]] = {
    "PPO": (PPO, cartpoles(4), 512, {"n_steps": 64, "batch_size": 64, "n_epochs": 2}),
    "A2C": (A2C, cartpoles(3), 200, {}),
    "DQN": (DQN, cartpoles(2), 300, {"learning_starts": 50, "train_freq": 10}),
    "SAC": (SAC, pendulums(2), 150, {"learning_starts": 50, "train_freq": 5}),
}


@pytest.mark.parametrize(("algorithm", "env_fns", "steps", "arguments"), SAME.values(), ids=SAME.keys())
def test_actions_results_and_weights_equal_those_of_sb3(
    algorithm: Any, env_fns: Any, steps: int, arguments: Any
) -> None:
    """The actions, rewards, observations, infos and final weights are equal."""
    with both(env_fns, num_workers=2) as (ours, original):
        our_diary, our_weights = train(algorithm, ours, steps, **arguments)
        their_diary, their_weights = train(algorithm, original, steps, **arguments)
    assert len(our_diary) >= steps // len(env_fns)
    assert sum(entry["dones"].sum() for entry in our_diary) > 0
    assert_same(our_diary, their_diary)
    assert_same(our_weights, their_weights)


def test_hindsight_replay_computes_rewards_in_the_envs() -> None:
    envs = SubprocVecEnv([GoalEnv] * 2, num_workers=1)
    model = SAC(
        "MultiInputPolicy",
        envs,
        replay_buffer_class=HerReplayBuffer,
        replay_buffer_kwargs={"copy_info_dict": True},
        learning_starts=60,
        train_freq=10,
        seed=1,
        **small(),
    )
    model.learn(200)
    assert model.num_timesteps >= 200
    assert model.replay_buffer is not None
    sample = model.replay_buffer.sample(32)
    assert set(np.unique(sample.rewards.numpy())) <= {-1, 0}
    envs.close()
