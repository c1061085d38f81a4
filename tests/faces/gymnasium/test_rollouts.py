"""``AsyncVectorEnv.rollout`` holds the steps of the vector env."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium.error import AlreadyPendingCallError, ClosedEnvironmentError
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from pool_envs import counting
from rollout_envs import FailingEnv, ending

import remuda
from remuda.gymnasium import AsyncVectorEnv

LENGTHS = [2, 3, 5]


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_a_rollout_holds_what_gymnasiums_vector_env_returns(mode: Any) -> None:
    ours: Any = AsyncVectorEnv(ending(LENGTHS), autoreset_mode=mode, num_workers=2)
    reference: Any = SyncVectorEnv(ending(LENGTHS), autoreset_mode=mode)
    ours.reset(seed=1)
    seen = [reference.reset(seed=1)[0]]
    rollout, reference_steps = ours.rollout(9), []
    for t, step in enumerate(rollout):
        actions = (np.arange(3) + t) % 5
        if t % 2:  # acts with and without `t`
            step.act(actions)
        else:
            step.act(actions, t=np.full(3, t))
        reference_steps.append(reference.step(actions))
        seen.append(reference_steps[-1][0])
    np.testing.assert_array_equal(rollout.obs, seen)
    for name, i in (("rewards", 1), ("terminations", 2), ("truncations", 3)):
        np.testing.assert_array_equal(getattr(rollout, name), [one[i] for one in reference_steps])
    obs = ours.step(np.zeros(3, int))[0]
    np.testing.assert_array_equal(obs, reference.step(np.zeros(3, int))[0])
    ours.close()
    reference.close()


def test_step_fills_the_rollout_and_parts_have_their_own() -> None:
    envs: Any = AsyncVectorEnv(counting(4), num_workers=2)
    envs.reset()
    rollout = envs.rollout(3)
    for t in range(1, 4):
        assert np.shares_memory(envs.step(np.ones(4, int))[0], rollout.obs[t])
    for half in envs.split(2):
        rollout = half.rollout(2)
        for step in rollout:
            step.act(np.zeros(2, int))
        assert rollout.env_ids.tolist() == half.env_ids.tolist()
    envs.close()


def test_the_errors_of_rollout_are_those_of_the_face() -> None:
    envs: Any = AsyncVectorEnv([FailingEnv] * 2, num_workers=1)
    with pytest.raises(remuda.StateError, match="reset"):
        envs.rollout(3)
    envs.reset()
    envs.step_async([1, 1])
    with pytest.raises(AlreadyPendingCallError):
        envs.rollout(3)
    envs.step_wait()
    with pytest.raises(ValueError, match="expected steps to be at least 1"):
        envs.rollout(0)
    envs.close()
    with pytest.raises(ClosedEnvironmentError):
        envs.rollout(3)
