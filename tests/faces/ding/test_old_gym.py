"""Envs of the old gym library, which the environment for DI-engine has, run in a pool."""

from __future__ import annotations

import sys
from typing import Any

import gymnasium
import numpy as np
import pytest

from remuda import InvalidEnvError, Pool

gym = pytest.importorskip("gym")
pytest.importorskip("shimmy")


class OldEnv(gym.Env):  # type: ignore[misc, name-defined]
    """An env of gym 0.21: `reset` returns an observation, and `step` one flag."""

    observation_space = gym.spaces.Box(-1000, 1000, (2,), np.float32)
    action_space = gym.spaces.Discrete(3)
    first = 0

    def seed(self, seed: int | None = None) -> list[int | None]:
        self.first = seed or 0
        return [seed]

    def reset(self) -> Any:
        self.steps = 0
        return self._observe()

    def step(self, action: int) -> Any:
        self.steps += 1
        return (
            self._observe(),
            float(action),
            self.steps == 2,
            {"TimeLimit.truncated": self.steps == 2, "steps": self.steps},
        )

    def _observe(self) -> Any:
        return np.array([self.first, self.steps], np.float32)


@pytest.mark.parametrize("backend", ["process", "thread"])
def test_an_old_env_runs_in_a_pool(backend: Any) -> None:
    with Pool([OldEnv] * 2, num_workers=2, backend=backend) as pool:
        assert pool.single_observation_space == gymnasium.spaces.Box(-1000, 1000, (2,), np.float32)
        assert pool.reset(seed=[3, 4]).obs.tolist() == [[3, 0], [4, 0]]
        batch = pool.step([1, 2])
        assert batch.rewards.tolist() == [1, 2] and batch.infos[0]["steps"] == 1
        batch = pool.step([1, 2])
        assert batch.truncations.all() and not batch.terminations.any()


def test_without_shimmy_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "shimmy", None)
    with pytest.raises(InvalidEnvError, match=r"of the old gym library; install shimmy.*import gymnasium as gym"):
        Pool([OldEnv], backend="serial")
