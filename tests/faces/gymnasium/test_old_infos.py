"""The conventions of Gymnasium 0.29, with ``infos="0.29"``: compared with a pool's infos of the same envs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import RecordEpisodeStatistics
from gymnasium_face_envs import SpaceEnv, TimelessEnv
from pool_envs import assert_same, counting

from remuda import Batch, Pool
from remuda.gymnasium import AsyncVectorEnv, LazyInfos

NUM_ENVS = 3
Info = dict[str, Any]
NAMES = {"final_obs": "final_observation"}
TEXT = spaces.Text(8)
DICTS = spaces.Dict(a=spaces.Discrete(3), b=spaces.Box(0, 1, (2,)))


def check(stacked: Info, batch: Batch) -> None:
    """Checks stacked infos against the info of each env: arrays over the envs, of numbers or of objects, and masks."""
    infos = [{NAMES.get(key, key): value for key, value in info.items()} for info in batch.infos]
    keys = {key for info in infos for key in info}
    assert stacked.keys() == keys | {f"_{key}" for key in keys}
    for key in keys:
        array, mask = stacked[key], stacked[f"_{key}"]
        assert mask.dtype == np.bool_
        assert mask.tolist() == [key in info for info in infos]
        first = next(info[key] for info in infos if key in info)
        is_number = isinstance(first, (int, float, np.number))
        assert array.dtype == (np.dtype(type(first)) if is_number else object)
        for got, info in zip(array, infos, strict=True):
            if key not in info:
                assert got == 0 if is_number else got is None
            elif is_number:
                assert got == info[key]
            else:
                assert_same(got, info[key], key)


def with_statistics() -> Any:
    return TimelessEnv(RecordEpisodeStatistics(gymnasium.make("CartPole-v1")))


@pytest.mark.parametrize("lazy_infos", [False, True])
@pytest.mark.parametrize("env_fn", [lambda: SpaceEnv(DICTS), lambda: SpaceEnv(TEXT), with_statistics])
def test_results_equal_those_of_a_pool_with_same_step_autoreset(env_fn: Callable[[], Any], lazy_infos: bool) -> None:
    envs = AsyncVectorEnv([env_fn] * NUM_ENVS, shared_memory=False, infos="0.29", lazy_infos=lazy_infos, num_workers=2)
    twin, ends = Pool([env_fn] * NUM_ENVS, autoreset="same_step", backend="serial"), 0
    _, infos = envs.reset(seed=3)
    check(infos, twin.reset(seed=3))
    envs.action_space.seed(5)
    for _ in range(60):
        actions = envs.action_space.sample()
        *results, infos = envs.step(actions)
        batch = twin.step(actions)
        assert_same(results, [batch.obs, batch.rewards, batch.terminations, batch.truncations])
        assert isinstance(infos, LazyInfos) is lazy_infos
        check(infos, batch)
        ends += sum(batch.dones)
    assert ends > 3
    envs.close()
    twin.close()


def test_the_parts_of_split_envs_have_the_same_infos() -> None:
    envs = AsyncVectorEnv(counting(4, 1), infos="0.29", num_workers=2)
    for half in envs.split(2):
        half.reset()
        infos = half.step([5, 5])[4]
        assert [one[0] for one in infos["final_observation"]] == half.env_ids.tolist()
    envs.close()


def test_other_values_are_refused(no_start: None) -> None:
    with pytest.raises(ValueError, match=r"expected infos=None or '0.29', got '0.26'"):
        AsyncVectorEnv(counting(2), infos="0.26")  # type: ignore[arg-type]
