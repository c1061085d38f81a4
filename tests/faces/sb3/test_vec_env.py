"""Any pool as a vector env of SB3, also a pool of vector envs: SB3's own results, and answers to its questions."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv
from gymnasium.wrappers import TimeLimit
from pool_envs import CountingEnv, counting
from sb3_originals import TheirSubprocVecEnv, compare
from stable_baselines3.common.vec_env import DummyVecEnv
from vector_envs import synced
from vector_reward_envs import TwoGoals

import remuda.gymnasium
from remuda import Pool
from remuda.sb3 import ClosedError, SubprocVecEnv, vec_env

SAME_STEP: Any = {"autoreset": "same_step"}


FNS = counting(4, 3)
POOLS: dict[str, Callable[[], Any]] = {
    "envs": lambda: Pool(FNS, num_workers=2, **SAME_STEP),
    "vector envs": lambda: Pool(synced(FNS, 2, "same_step"), vector_size=2, num_workers=2, **SAME_STEP),
    "a face": lambda: remuda.gymnasium.AsyncVectorEnv(FNS, num_workers=2, autoreset_mode="SameStep"),
}


@pytest.mark.parametrize("make", POOLS.values(), ids=POOLS.keys())
def test_results_are_those_of_sb3(make: Callable[[], Any]) -> None:
    ours = vec_env(make())
    with closing(TheirSubprocVecEnv(FNS, start_method="fork")) as theirs:
        compare(ours, theirs, 8)
    assert ours.metadata["render_fps"] == 5
    ours.close()
    ours.close()
    with pytest.raises(OSError, match="closed"):
        ours.reset()


def test_the_owner_is_closed_with_it() -> None:
    owner = remuda.gymnasium.AsyncVectorEnv(counting(2), autoreset_mode="SameStep")
    vec_env(owner).close()
    assert owner.closed
    envs = SubprocVecEnv(counting(1))
    assert vec_env(envs) is envs
    envs.close()


def test_a_vector_env_answers_for_its_envs() -> None:
    pool = Pool([partial(Tagged, 5), partial(Tagged, 6)], vector_size=2, num_workers=1, **SAME_STEP)
    envs = vec_env(pool)
    envs.reset()
    assert envs.get_attr("tag") == [5, 5, 6, 6]
    assert envs.get_attr("tag", [3, 0]) == [6, 5]
    assert envs.has_attr("tag") and not envs.has_attr("tags")
    assert envs.env_is_wrapped(TimeLimit, [1]) == [False]
    assert envs.env_method("double") == [10, 10, 12, 12]
    envs.set_attr("tag", 7, [2, 3])
    assert envs.env_method("double", indices=[2, 3]) == [14, 14]
    for ask in (partial(envs.env_method, "double", indices=1), partial(envs.set_attr, "tag", 1, indices=[0])):
        with pytest.raises(ValueError, match="vector env"):
            ask()
    assert [picture.tolist() for picture in envs.get_images()] == [[0], [1], [0], [1]]
    envs.close()


class Tagged(SyncVectorEnv):
    def __init__(self, tag: int) -> None:
        super().__init__([CountingEnv] * 2, autoreset_mode="SameStep")
        self.tag, self.render_mode = tag, "rgb_array"

    def double(self) -> int:
        return self.tag * 2

    def render(self) -> Any:
        return np.zeros(1), np.ones(1)


def test_columns_answer_for_each_env_of_a_vector_env() -> None:
    masks: Any = {"action_masks": lambda env: np.array([[True, False], [False, True]])}
    envs = vec_env(Pool([partial(Tagged, 5)] * 2, vector_size=2, num_workers=1, extras=masks, **SAME_STEP))
    envs.reset()
    expected = [[True, False], [False, True]] * 2
    assert [row.tolist() for row in envs.env_method("action_masks")] == expected
    envs.set_attr("tag", 1)  # now the workers answer
    assert [row.tolist() for row in envs.env_method("action_masks")] == expected
    assert envs.env_method("action_masks", indices=[3])[0].tolist() == [False, True]
    for part in envs.split(2):
        part.reset()
        assert [row.tolist() for row in part.env_method("action_masks")] == expected[:2]
    envs.close()


def test_other_pools_are_refused() -> None:
    with (
        Pool(counting(1), num_workers=None) as pool,
        pytest.raises(ValueError, match="expected a pool with autoreset='same_step', got"),
    ):
        vec_env(pool)
    with Pool([TwoGoals], **SAME_STEP) as pool, pytest.raises(ValueError, match=r"got vectors of the shape \(2,\)"):
        vec_env(pool)
    with Pool(counting(2), num_workers=1, **SAME_STEP) as pool:
        for other in (pool.split(2)[0], DummyVecEnv(counting(1)), None):
            with pytest.raises(TypeError, match=r"expected a remuda\.Pool or a whole vector env"):
                vec_env(other)
    with pytest.raises(ClosedError):
        vec_env(pool)
