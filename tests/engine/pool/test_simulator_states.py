"""States of simulators: after `set_state` an env continues bit for bit as an undisturbed env."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from remuda import Pool

MUJOCO = (
    *("Ant-v5", "HalfCheetah-v5", "Hopper-v5", "Humanoid-v5", "HumanoidStandup-v5", "InvertedDoublePendulum-v5"),
    *("InvertedPendulum-v5", "Pusher-v5", "Reacher-v5", "Swimmer-v5", "Walker2d-v5"),
)


def assert_continues_like_a_twin(env_id: str, restores: int, steps: int) -> None:
    """Copies the state of env 0 into env 1 several times, and compares the steps that follow."""
    with Pool([lambda: gymnasium.make(env_id)] * 2, backend="serial") as pool:
        pool.reset(seed=0)
        space = pool.single_action_space
        space.seed(0)
        for _ in range(restores):
            pool.step(np.stack([space.sample(), space.sample()]))
            pool.fork_state(0, 1)
            for _ in range(steps):
                batch = pool.step(np.stack([space.sample()] * 2))
                np.testing.assert_array_equal(batch.obs[1], batch.obs[0])
                assert batch.reward[1] == batch.reward[0]
                assert batch.terminated[1] == batch.terminated[0]


@pytest.mark.parametrize("env_id", MUJOCO)
def test_mujoco_envs_continue_from_a_state(env_id: str) -> None:
    pytest.importorskip("mujoco")
    assert_continues_like_a_twin(env_id, restores=100, steps=3)


@pytest.mark.parametrize("game", ["Pong", "Breakout"])
def test_atari_envs_with_sticky_actions_continue_from_a_state(game: str) -> None:
    ale_py = pytest.importorskip("ale_py")
    gymnasium.register_envs(ale_py)
    assert_continues_like_a_twin(f"ALE/{game}-v5", restores=40, steps=4)


def test_get_state_does_not_change_the_steps_of_an_atari_game() -> None:
    ale_py = pytest.importorskip("ale_py")
    gymnasium.register_envs(ale_py)
    with Pool([lambda: gymnasium.make("ALE/Pong-v5")] * 2, backend="serial") as pool:
        pool.reset(seed=[0, 0])
        pool.single_action_space.seed(0)
        for _ in range(60):
            pool.get_state([1])
            batch = pool.step([pool.single_action_space.sample()] * 2)
            np.testing.assert_array_equal(batch.obs[1], batch.obs[0])
