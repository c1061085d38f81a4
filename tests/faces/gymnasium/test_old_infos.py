"""The conventions of Gymnasium 0.29, with ``infos="0.29"``. `test_old_gymnasium.py` compares them with that release."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from accidents import raise_value_error
from pool_envs import assert_same, counting, hooked

from remuda.gymnasium import AsyncVectorEnv, LazyInfos


def objects(first: Any, second: Any) -> Any:
    array = np.empty(2, object)
    array[:] = [first, second]
    return array


@pytest.mark.parametrize("lazy_infos", [False, True])
def test_infos_are_arrays_of_numbers_or_objects_and_those_of_ended_episodes_are_final(lazy_infos: bool) -> None:
    def step(env: Any, _: Any) -> Any:
        return env.observe(), 0.0, env.tag == 0, False, {"count": 5, "all": {"vector": np.arange(2)}}

    envs = AsyncVectorEnv(hooked(2, (0, 1), step=step), infos="0.29", lazy_infos=lazy_infos, num_workers=2)
    envs.reset()
    obs, *_, infos = envs.step([7, 7])
    assert obs[:, 1].tolist() == [2, 1]  # an env is reset in the step that ends its episode
    assert isinstance(infos, LazyInfos) is lazy_infos
    expected = {
        "count": np.array([0, 5]),
        "all": objects(None, {"vector": np.arange(2)}),
        "final_observation": objects(np.array([0, 1, 1, 7]), None),
        "final_info": objects({"count": 5, "all": {"vector": np.arange(2)}}, None),
    }
    masks = {f"_{key}": np.array([key.startswith("final"), not key.startswith("final")]) for key in expected}
    assert_same(dict(infos), {**expected, **masks})
    envs.close()


def test_the_parts_of_split_envs_have_the_same_infos() -> None:
    envs = AsyncVectorEnv(counting(4, 1), infos="0.29", num_workers=2)
    for half in envs.split(2):
        half.reset()
        infos = half.step([5, 5])[4]
        assert [one[0] for one in infos["final_observation"]] == half.env_ids.tolist()
    envs.close()


def test_other_values_are_refused() -> None:
    with pytest.raises(ValueError, match=r"expected infos=None or '0.29', got '0.26'"):
        AsyncVectorEnv([raise_value_error] * 2, infos="0.26")  # type: ignore[arg-type]
