"""Columns of `extras` beside the observations of the Gymnasium face."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import numpy as np
import pytest
from gymnasium.wrappers.vector import RecordEpisodeStatistics
from pool_envs import counting
from vector_envs import synced

import remuda
from remuda.gymnasium import AsyncVectorEnv


def seen(env: Any) -> Any:
    return env.unwrapped.observe()


def check(envs: Any) -> None:
    np.testing.assert_array_equal(envs.extras["seen"], envs.observations)


@pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled"])
def test_extras_are_those_of_the_latest_reset_or_step(mode: str) -> None:
    with closing(AsyncVectorEnv(counting(3, 4), num_workers=2, autoreset_mode=mode, extras={"seen": seen})) as envs:
        assert envs.extras == {}
        envs.reset(seed=0)
        check(envs)
        for i in range(6):
            over = envs.step(np.full(3, i))[2]
            check(envs)
            if mode == "Disabled" and over.any():
                envs.reset(options={"reset_mask": over})
                check(envs)
        envs.reset(options={"reset_mask": np.array([True, False, True])})
        check(envs)
        envs.step_async([1, 2, 3])
        envs.step_wait()
        check(envs)
        for half in envs.split(2):
            half.reset()
            check(half)
            assert half.extras["seen"][:, 0].tolist() == half.env_ids.tolist()
    check(half)  # still readable after close


def test_a_vector_env_computes_extras_for_all_its_envs() -> None:
    env_fns: Any = synced(counting(4), 2)
    tags = {"tag": lambda env: [one.unwrapped.tag for one in env.envs]}
    with closing(AsyncVectorEnv(env_fns, vector_size=2, extras=tags, backend="serial")) as envs:
        envs.reset()
        assert envs.extras["tag"].tolist() == [0, 1, 2, 3]


def test_make_vec_takes_extras_which_are_reachable_through_wrappers() -> None:
    with_masks = {"mask": lambda env: np.ones(env.action_space.n, bool)}
    ours = remuda.make_vec("CartPole-v1", num_envs=2, num_workers=1, extras=with_masks)
    with closing(RecordEpisodeStatistics(ours)) as envs:
        envs.reset()
        assert envs.unwrapped.extras["mask"].tolist() == [[True, True]] * 2  # type: ignore[attr-defined]
