"""States of simulators: after `set_state` an env continues bit for bit as an undisturbed env."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from drawn import MINUTES
from pool_envs import begun

from remuda import InvalidEnvError

MUJOCO = ["Ant-v5", "HumanoidStandup-v5", "InvertedDoublePendulum-v5", "Pusher-v5"]
if MINUTES:
    MUJOCO += ["HalfCheetah-v5", "Hopper-v5", "Humanoid-v5", "InvertedPendulum-v5", "Reacher-v5", "Swimmer-v5"]
RESTORES = 100 if MINUTES else 25


def assert_continues_like_a_twin(env_id: str, steps: int, **options: Any) -> None:
    """Copies the state of env 0 into env 1 several times, and compares the steps that follow."""
    with begun([lambda: gymnasium.make(env_id, **options)] * 2, backend="serial", seed=0) as pool:
        space = pool.single_action_space
        space.seed(0)
        for _ in range(RESTORES):
            pool.step(np.stack([space.sample(), space.sample()]))
            pool.fork_state(0, 1)
            for _ in range(steps):
                batch = pool.step(np.stack([space.sample()] * 2))
                np.testing.assert_array_equal(batch.obs[1], batch.obs[0])
                assert batch.rewards[1] == batch.rewards[0]
                assert batch.terminations[1] == batch.terminations[0]


@pytest.mark.parametrize("env_id", MUJOCO)
def test_mujoco_envs_continue_from_a_state(env_id: str) -> None:
    pytest.importorskip("mujoco")
    assert_continues_like_a_twin(env_id, steps=3)


def test_atari_envs_without_repeated_actions_continue_from_a_state() -> None:
    ale_py = pytest.importorskip("ale_py")
    gymnasium.register_envs(ale_py)
    assert_continues_like_a_twin("ALE/Pong-v5", steps=4, repeat_action_probability=0)


def test_an_atari_env_that_may_repeat_its_last_action_has_no_state() -> None:
    ale_py = pytest.importorskip("ale_py")
    gymnasium.register_envs(ale_py)
    with begun([lambda: gymnasium.make("ALE/Pong-v5")], backend="serial", seed=0) as pool:
        with pytest.raises(InvalidEnvError, match=r"repeat_action_probability=0, or pass state_fns=\(get, put\)"):
            pool.get_state()
        assert len(pool.step([0])) == 1
