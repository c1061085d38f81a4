"""``rollout`` of the Gymnasium and Stable-Baselines3 faces."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import numpy as np
import pytest
from gymnasium.error import AlreadyPendingCallError, ClosedEnvironmentError
from pool_envs import counting

from remuda import StateError
from remuda.gymnasium import AsyncVectorEnv
from remuda.sb3 import ClosedError, SubprocVecEnv

Kind = Callable[..., Any]
each_face = pytest.mark.parametrize("kind", [AsyncVectorEnv, SubprocVecEnv])


@each_face
def test_steps_and_turns_fill_a_rollout_of_the_whole_and_of_parts(kind: Kind) -> None:
    with closing(kind(counting(4), num_workers=2)) as envs:
        envs.reset()
        rollout = envs.rollout(3)
        for t in range(1, 4):
            assert np.shares_memory(envs.step(np.ones(4, int))[0], rollout.obs[t])
        rollout = envs.rollout(2)
        for step in rollout:
            step.act(np.full(4, 5))
        assert rollout.obs[:, :, 2].tolist() == [[3] * 4, [4] * 4, [5] * 4]
        assert rollout.rewards.tolist() == [[5] * 4] * 2
        assert envs.step(np.full(4, 7))[0][:, 2:].tolist() == [[6, 7]] * 4
        for half in envs.split(2):
            rollout = half.rollout(2)
            for step in rollout:
                step.act(np.zeros(2, int))
            assert rollout.env_ids.tolist() == half.env_ids.tolist()


@each_face
def test_the_errors_of_rollout_are_those_of_the_face(kind: Kind) -> None:
    envs = kind(counting(2), num_workers=1)
    with pytest.raises(StateError, match="reset"):
        envs.rollout(3)
    envs.reset()
    envs.step_async([1, 1])
    with pytest.raises(AlreadyPendingCallError if kind is AsyncVectorEnv else StateError):
        envs.rollout(3)
    envs.step_wait()
    with pytest.raises(ValueError, match="expected steps to be at least 1"):
        envs.rollout(0)
    envs.close()
    with pytest.raises(ClosedEnvironmentError if kind is AsyncVectorEnv else ClosedError):
        envs.rollout(3)
