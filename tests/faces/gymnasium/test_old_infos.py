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
from odd_exceptions import raising
from pool_envs import assert_same, counting, hooked

from remuda import Batch, Fault, Pool
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
def test_infos_equal_those_of_a_pool(env_fn: Callable[[], Any], lazy_infos: bool) -> None:
    envs = AsyncVectorEnv([env_fn] * NUM_ENVS, shared_memory=False, infos="0.29", lazy_infos=lazy_infos, num_workers=2)
    twin, ends = Pool([env_fn] * NUM_ENVS, autoreset="same_step", backend="serial"), 0
    _, infos = envs.reset(seed=3)
    check(infos, twin.reset(seed=3))
    envs.action_space.seed(5)
    for _ in range(60):
        actions = envs.action_space.sample()
        _, rewards, terminations, truncations, infos = envs.step(actions)
        batch = twin.step(actions)
        assert_same((rewards, terminations, truncations), (batch.rewards, batch.terminations, batch.truncations))
        assert isinstance(infos, LazyInfos) is lazy_infos
        check(infos, batch)
        ends += sum(batch.dones)
    assert ends > 3
    envs.close()
    twin.close()


def test_observations_are_the_first_of_the_next_episode() -> None:
    envs = AsyncVectorEnv(counting(2, 2), infos="0.29", backend="serial")
    envs.reset()
    envs.step([1, 2])
    obs, _, terminations, _, infos = envs.step([3, 4])
    assert terminations.all()
    assert obs.tolist() == [[0, 2, 0, -1], [1, 2, 0, -1]]
    assert [one.tolist() for one in infos["final_observation"]] == [[0, 1, 2, 3], [1, 1, 2, 4]]
    assert infos["final_info"].tolist() == [{}, {}]
    assert envs.step([0, 0])[4] == {}
    envs.close()


def test_the_parts_of_split_envs_have_the_same_infos() -> None:
    envs = AsyncVectorEnv(counting(4, 1), infos="0.29", num_workers=2)
    for half in envs.split(2):
        half.reset()
        infos = half.step([5, 5])[4]
        assert [one[0] for one in infos["final_observation"]] == half.env_ids.tolist()
    envs.close()


def test_the_info_of_a_fault_is_the_terminal_info() -> None:
    wrong = raising(lambda: ValueError("wrong"))
    envs = AsyncVectorEnv(hooked(3, (1,), step=wrong), infos="0.29", faults="restart")
    envs.reset()
    obs, _, _, truncations, infos = envs.step([7, 7, 7])
    assert truncations.tolist() == infos["_final_info"].tolist() == [False, True, False]
    assert isinstance(infos["final_info"][1]["fault"], Fault)
    assert infos["final_observation"][1].tolist() == [1, 1, 0, -1]  # the last one before the fault
    assert obs[0].tolist() == [0, 1, 1, 7]
    envs.close()


def test_other_values_are_refused(no_start: None) -> None:
    with pytest.raises(ValueError, match=r"expected infos=None or '0.29', got '0.26'"):
        AsyncVectorEnv(counting(2), infos="0.26")  # type: ignore[arg-type]
