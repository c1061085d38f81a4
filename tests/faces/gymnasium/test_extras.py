"""Columns of `extras` beside the observations of the Gymnasium face."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import numpy as np
import pytest
from pool_envs import counting

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
