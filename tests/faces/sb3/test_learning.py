"""Algorithms of Stable-Baselines3 learn the same with our envs as with SB3's, also with `RolloutBuffer`, from
observations that are not copied."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from accidents import kill_myself, once
from gymnasium import spaces
from gymnasium_face_envs import SpaceEnv, cartpoles
from pool_envs import assert_same, hooked
from sb3_originals import both
from stable_baselines3 import A2C, DQN, PPO, SAC, HerReplayBuffer
from stable_baselines3.common.vec_env import (
    DummyVecEnv,
    VecEnv,
    VecFrameStack,
    VecMonitor,
    VecNormalize,
    VecVideoRecorder,
)

from remuda import FaultPolicy
from remuda.sb3 import RolloutBuffer, StatsCallback, SubprocVecEnv

N = 4
POLES = cartpoles(N, max_episode_steps=20)
POLES_WITH_PICTURES = [lambda: gymnasium.make("CartPole-v1", render_mode="rgb_array")] * 2
PENDULUMS = [lambda: gymnasium.make("Pendulum-v1", max_episode_steps=30)] * 2
PICTURES = [lambda: SpaceEnv(spaces.Box(0, 255, (36, 40, 3), np.uint8))] * N
DICTS = [lambda: SpaceEnv(spaces.Dict(place=spaces.Box(-1, 1, (2,)), goal=spaces.Box(-1, 1, (1,))))] * N

ON_POLICY = {"n_steps": 16, "batch_size": 32, "n_epochs": 2}
OFF_POLICY = {"learning_starts": 50, "policy_kwargs": {"net_arch": [16]}}


def plain(envs: Any) -> Any:
    return envs


# For each case: the algorithm, its policy, the envs, a wrapper, the number of steps, arguments, and whether the
# observations stay where the workers write them. None: the algorithm has no rollout buffer.
CASES: dict[str, tuple[Any, str, Any, Callable[[Any], Any], int, dict[str, Any], bool | None]] = {
    "PPO": (PPO, "MlpPolicy", POLES, plain, 256, ON_POLICY, True),
    "A2C": (A2C, "MlpPolicy", POLES, plain, 100, {"n_steps": 5}, True),
    "DQN": (DQN, "MlpPolicy", cartpoles(2), plain, 300, {"train_freq": 10, **OFF_POLICY}, None),
    "SAC": (SAC, "MlpPolicy", PENDULUMS, plain, 150, {"train_freq": 5, **OFF_POLICY}, None),
    "pictures, which SB3 transposes": (PPO, "CnnPolicy", PICTURES, plain, 192, ON_POLICY, True),
    "a dict": (PPO, "MultiInputPolicy", DICTS, plain, 256, ON_POLICY, True),
    "normalised": (PPO, "MlpPolicy", POLES, VecNormalize, 256, ON_POLICY, False),
    "stacked": (PPO, "MlpPolicy", POLES, lambda envs: VecFrameStack(envs, 3), 256, ON_POLICY, False),
    "other envs": (PPO, "MlpPolicy", POLES, lambda _: DummyVecEnv(list(POLES)), 128, ON_POLICY, False),
}


@pytest.mark.parametrize("case", CASES)
def test_the_weights_equal_those_of_sb3(case: str) -> None:
    algorithm, policy, env_fns, wrap, total, arguments, stays = CASES[case]

    def learn(envs: VecEnv, **buffer: Any) -> Any:
        return algorithm(policy, wrap(envs), seed=1, device="cpu", **arguments, **buffer).learn(total)

    def weights(model: Any) -> Any:
        return {name: tensor.numpy() for name, tensor in model.policy.state_dict().items()}

    with both(env_fns, num_workers=2) as (ours, original):
        expected = weights(learn(original))
        assert_same(weights(learn(ours)), expected)
        if stays is not None:
            model = learn(ours, rollout_buffer_class=RolloutBuffer)
            assert_same(weights(model), expected)
            assert (model.rollout_buffer.rollout is not None) == stays


def buffered(policy: str, env_fns: Any) -> Any:
    """Returns a PPO with our rollout buffer and envs."""
    envs = SubprocVecEnv(env_fns, num_workers=2)
    return PPO(policy, envs, seed=1, device="cpu", rollout_buffer_class=RolloutBuffer, **ON_POLICY)  # type: ignore[arg-type]


def test_observations_are_not_copied() -> None:
    model = buffered("CnnPolicy", PICTURES).learn(2 * 16 * N)
    envs, buffer = model.get_env().unwrapped, model.rollout_buffer
    assert envs.pool.owns(buffer.rollout.obs)
    assert np.shares_memory(buffer.observations, buffer.rollout.obs)
    assert buffer.observations.shape == (16, N, 3, 36, 40)
    np.testing.assert_array_equal(buffer.observations, buffer.rollout.obs[:-1].transpose(0, 1, 4, 2, 3))
    envs.close()
    del model, buffer, envs
    gc.collect()
    with open("/proc/self/maps") as maps:
        assert "memfd:remuda" not in maps.read()


def test_after_an_aborted_rollout_the_next_one_is_complete() -> None:
    model = buffered("MlpPolicy", POLES).learn(2 * 16 * N)
    model.learn(3 * 16 * N, callback=lambda found, _: model.num_timesteps < 3 * 16 * N + 20)
    model.learn(2 * 16 * N)
    assert model.rollout_buffer.rollout.valid.all()
    model.get_env().close()


# -- the callback ----------------------------------------------------------------------------------------


def logged(envs: VecEnv) -> dict[str, Any]:
    """Learns for one rollout, and returns what was logged."""
    model = PPO("MlpPolicy", envs, n_steps=8, batch_size=8, n_epochs=1, device="cpu")
    model.learn(8 * envs.num_envs, callback=StatsCallback(), log_interval=100)
    return dict(model.logger.name_to_value)


def test_restarts_and_faults_are_logged(tmp_path: Any) -> None:
    fns = hooked(2, [1], step=once(tmp_path / "accident", kill_myself))
    envs = VecMonitor(SubprocVecEnv(fns, faults=FaultPolicy(on_fault="restart", backoff=0.0)))
    found = logged(envs)
    envs.close()
    assert (found["remuda/restarts"], found["remuda/faults"]) == (1, 1)


def test_envs_of_sb3_are_refused() -> None:
    with pytest.raises(TypeError, match=r"expected a model that learns with envs of remuda.sb3, got DummyVecEnv"):
        logged(DummyVecEnv(list(cartpoles(1))))


class GoalEnv(gymnasium.Env[Any, Any]):
    """Walks along a line to a goal. SB3's hindsight replay calls `compute_reward` for other goals."""

    def __init__(self) -> None:
        line = spaces.Box(-10, 10, (1,), np.float32)
        self.observation_space = spaces.Dict(observation=line, achieved_goal=line, desired_goal=line)
        self.action_space = spaces.Box(-1, 1, (1,), np.float32)

    def observe(self) -> dict[str, Any]:
        place, goal = np.array([self.place], np.float32), np.array([self.goal], np.float32)
        return {"observation": place, "achieved_goal": place.copy(), "desired_goal": goal}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place, self.goal, self.steps = 0.0, float(self.np_random.uniform(-3, 3)), 0
        return self.observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        self.place = float(np.clip(self.place + float(action[0]), -10, 10))
        obs = self.observe()
        reward = float(self.compute_reward(obs["achieved_goal"], obs["desired_goal"], {}))
        return obs, reward, reward == 0, self.steps >= 10, {}

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        return -(np.linalg.norm(achieved_goal - desired_goal, axis=-1) > 0.3).astype(np.float32)


def test_hindsight_replay_computes_rewards_in_the_envs() -> None:
    replay: Any = {"replay_buffer_class": HerReplayBuffer, "replay_buffer_kwargs": {"copy_info_dict": True}}

    def learn(envs: VecEnv) -> Any:
        model = SAC("MultiInputPolicy", envs, seed=1, device="cpu", train_freq=10, **OFF_POLICY, **replay).learn(200)
        assert model.replay_buffer is not None
        assert set(np.unique(model.replay_buffer.sample(32).rewards.numpy())) <= {-1, 0}
        return {name: tensor.numpy() for name, tensor in model.policy.state_dict().items()}

    with both([GoalEnv] * 2, num_workers=1) as (ours, original):
        assert_same(learn(ours), learn(original))


def test_a_video_of_sb3s_recorder_has_the_frame_rate_of_the_env(tmp_path: Path) -> None:
    envs = VecVideoRecorder(SubprocVecEnv(POLES_WITH_PICTURES), str(tmp_path), lambda step: step == 0, video_length=3)
    assert envs.frames_per_sec == 50
    envs.reset()
    for _ in range(4):
        envs.step(np.zeros(2, np.int64))
    envs.close()
    assert envs.unwrapped.closed
    assert (tmp_path / "rl-video-step-0-to-step-3.mp4").stat().st_size > 0
