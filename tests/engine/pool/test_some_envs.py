"""Steps of some envs, and resets of all envs after an error."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pool_envs import begun, counting, hooked

from remuda import EnvError, InvalidActionError, Pool, StateError


def step_with_info(env: Any, action: Any) -> Any:
    """A step with an info that has a number, which gets a column, and a text, which does not."""
    over = env.steps >= env.length
    return env.observe(), float(action), over, False, {"tag": env.tag, "name": f"env {env.tag}"}


def test_a_reset_or_step_of_some_envs_returns_rows_in_the_order_of_env_ids() -> None:
    with Pool(hooked(4, range(4), step=step_with_info), num_workers=2, backend="serial", log_advice=False) as pool:
        for env_ids in ([2, 0, 3], [1], [3, 2, 1, 0]):
            batch = pool.reset(seed=1, env_ids=iter(env_ids))
            assert batch.env_ids.tolist() == batch.obs[:, 0].tolist() == env_ids  # the tags of these envs
        for env_ids in ([2, 0, 3], [1], [3, 2, 1, 0], [0, 1, 2, 3], np.array([1, 2])):
            batch = pool.step([10 + i for i in env_ids], env_ids)
            assert batch.env_ids.tolist() == list(env_ids)
            assert batch.rewards.tolist() == [10.0 + i for i in env_ids]
            assert batch.obs[:, 0].tolist() == list(env_ids)  # their tags
            assert list(batch.infos) == [{"tag": i, "name": f"env {i}"} for i in env_ids]
        assert pool.pending == 0
        assert pool.step([0] * 4).obs[:, 2].tolist() == [4, 5, 5, 4]


def test_terminal_observations_and_irregular_infos_follow_the_order() -> None:
    env_fns = hooked(3, range(3), length=1, step=step_with_info)
    with begun(env_fns, num_workers=1, autoreset="same_step", backend="serial") as pool:
        batch = pool.step([7, 8, 9], [2, 0, 1])
    assert batch.terminations.tolist() == [True] * 3
    assert batch.final_obs[:, 0].tolist() == [2, 0, 1]
    assert batch.final_obs[:, 3].tolist() == [7, 8, 9]
    assert [info["final_info"]["name"] for info in batch.infos] == ["env 2", "env 0", "env 1"]


def test_a_step_of_some_envs_is_refused_while_another_env_is_in_flight() -> None:
    with begun(counting(3), backend="serial") as pool:
        for call in (pool.step, pool.send):
            with pytest.raises(InvalidActionError, match=r"of shape \(2,\).*got list of shape \(3,\): \[1, 2, 3\]"):
                call([1, 2, 3], [0, 1])
        assert pool.pending == 0
        pool.send([5], [2])
        with pytest.raises(StateError, match="expected no env in flight, got 1; call recv or discard first"):
            pool.step([1], [0])
        assert pool.recv().env_ids.tolist() == [2]
        assert pool.step([1], [0]).obs[:, 2].tolist() == [1]


def test_parts_step_some_of_their_envs() -> None:
    with begun(counting(4), num_workers=2) as pool:
        one, other = pool.split(2)
        env_ids = other.env_ids.tolist()[::-1]
        one.send([1, 1])
        assert other.step([3, 4], env_ids).env_ids.tolist() == env_ids
        assert one.recv().env_ids.tolist() == one.env_ids.tolist()


def broken(env: Any, action: Any) -> None:
    if action == 13:
        raise ValueError("broken")


def test_a_reset_of_all_envs_discards_results_after_an_error() -> None:
    with Pool(hooked(3, step=broken), num_workers=3, backend="serial", log_advice=False) as pool:
        for _ in range(2):
            pool.reset()
            with pytest.raises(EnvError, match="broken"):
                pool.step([1, 13, 1])
        batch = pool.reset(seed=1)
        assert batch.env_ids.tolist() == [0, 1, 2]
        assert batch.obs[:, 2].tolist() == [0, 0, 0]
        assert pool.step([1, 1, 1]).obs[:, 2].tolist() == [1, 1, 1]


def test_results_without_a_preceding_error_are_not_discarded() -> None:
    with begun(hooked(3, step=broken), num_workers=3) as pool:
        with pytest.raises(EnvError):
            pool.step([1, 13, 1])
        with pytest.raises(StateError, match="expected no env in flight"):
            pool.reset(env_ids=[1])  # other envs' results would be mixed with those of the reset
        assert pool.recv().env_ids.tolist() == [0, 2] or pool.pending == 0
        pool.reset(env_ids=[1])
        pool.send([1, 1, 1])
        with pytest.raises(StateError, match="expected no env in flight"):
            pool.reset()
        assert len(pool.recv()) == 3
        with pytest.raises(EnvError):
            pool.step([1, 13, 1])
        pool.discard()
        pool.send([1], [0])  # this result does not remain from the failed step
        with pytest.raises(StateError, match="expected no env in flight"):
            pool.reset()
