"""`StatsCallback` sends the restarts and faults of the envs to SB3's logger."""

from __future__ import annotations

from typing import Any

import pytest
from accidents import kill_myself, once
from pool_envs import hooked
from sb3_face_envs import cartpoles
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecMonitor

from remuda import FaultPolicy
from remuda.sb3 import StatsCallback, SubprocVecEnv


def learn(envs: VecEnv) -> dict[str, Any]:
    """Learns for one rollout, and returns what was logged."""
    model = PPO("MlpPolicy", envs, n_steps=8, batch_size=8, n_epochs=1, device="cpu")
    model.learn(8 * envs.num_envs, callback=StatsCallback(), log_interval=100)
    return dict(model.logger.name_to_value)


def test_restarts_and_faults_are_logged(tmp_path: Any) -> None:
    fns = hooked(2, [1], step=once(tmp_path / "accident", kill_myself))
    envs = VecMonitor(SubprocVecEnv(fns, faults=FaultPolicy(on_fault="restart", backoff=0.0)))
    logged = learn(envs)
    envs.close()
    assert (logged["remuda/restarts"], logged["remuda/faults"]) == (1, 1)


def test_envs_of_sb3_are_refused() -> None:
    with pytest.raises(TypeError, match=r"expected a model that learns with envs of remuda.sb3, got DummyVecEnv"):
        learn(DummyVecEnv(cartpoles(1)))
