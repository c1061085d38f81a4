"""Envs that write each observation to the same array: the pool repeats the last observation as the env returned it."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from pool_envs import begun
from state_envs import BufferedEnv, BufferedVector, shown

from remuda import Batch, FaultPolicy, Pool

EXTRAS = {"seen": shown}
AHEAD: list[Any] = [{"resets_ahead": True}, {"spares": 2}]


def buffered(num_envs: int, length: int = 1_000_000) -> list[Any]:
    return [partial(BufferedEnv, tag, length) for tag in range(num_envs)]


def observed(pool: Pool) -> Batch:
    pool.request_obs()
    return pool.recv(order="slot")


def check(batch: Batch, obs: Any) -> None:
    np.testing.assert_array_equal(batch.obs, obs)
    np.testing.assert_array_equal(batch.extras["seen"], obs)


def ended(pool: Pool) -> Any:
    """Ends the episode of each env and lets the envs reset in advance. Returns the last observations."""
    batch = pool.step([5, 6])
    assert batch.terminations.all()
    obs = batch.obs.copy()
    pool.apply(repr)  # a worker makes a reset that is due before or after this call, at the latest before the next one
    pool.apply(repr)
    return obs


@pytest.mark.parametrize("options", AHEAD)
def test_observes_rollouts_and_states_after_the_end_have_the_terminal_observation(options: Any) -> None:
    with begun(buffered(2 + options.get("spares", 0), 1), extras=EXTRAS, **options, seed=0) as pool:
        for _ in range(2):
            obs = ended(pool)
            check(observed(pool), obs)
            pool.step([1, 1])
        obs = ended(pool)
        rollout = pool.rollout(2)
        for step in rollout:
            step.act([1, 1])
        np.testing.assert_array_equal(rollout.obs[0], obs)
        np.testing.assert_array_equal(rollout.extras["seen"][0], obs)
        pool.reset()
        obs = ended(pool)
        states = pool.get_state(state_fns="attributes")
        pool.step([1, 1])
        for _ in range(2):
            batch = pool.set_state(states)
            assert batch.terminations.all()
            check(batch, obs)
            check(observed(pool), obs)
            assert [state.is_over for state in pool.get_state(state_fns="attributes")] == [True, True]


def test_columns_that_a_state_lacks_are_computed_from_the_env() -> None:
    with begun(buffered(2, 1), num_workers=1, extras=EXTRAS, resets_ahead=True) as pool:
        obs = ended(pool)
        states = pool.get_state(state_fns="attributes")
    both = {"tag": lambda env: env.tag, **EXTRAS}
    for extras, names in ((both, ["tag"]), ({}, []), (EXTRAS, ["seen"])):
        with Pool(buffered(2, 1), num_workers=1, extras=extras, resets_ahead=True) as pool:
            batch = pool.set_state(states)
            np.testing.assert_array_equal(batch.obs, obs)
            if "tag" in names:
                assert batch.extras["tag"].tolist() == [0, 1]
            if "seen" in names:
                check(batch, obs)


@pytest.mark.parametrize("restarts", [False, True])
def test_an_observe_after_replace_returns_the_old_envs_last_observation(restarts: bool) -> None:
    faults = FaultPolicy("restart") if restarts else FaultPolicy()
    with begun(buffered(2), extras=EXTRAS, faults=faults) as pool:
        obs = pool.step([5, 6]).obs.copy()
        pool.replace([1], [partial(BufferedEnv, 10)])
        check(observed(pool), obs)
        rollout = pool.rollout(1)
        for step in rollout:
            step.act([1, 1])
        np.testing.assert_array_equal(rollout.obs[0], obs)
        np.testing.assert_array_equal(rollout.extras["seen"][0], obs)


def test_an_observe_of_a_replaced_or_called_vector_env_returns_the_last_observation() -> None:
    make = partial(Pool, vector_size=2, backend="serial")
    with make([partial(BufferedVector, [0, 1]), partial(BufferedVector, [2, 3])]) as pool:
        pool.reset()
        obs = pool.step([5, 6, 7, 8]).obs.copy()
        pool.call("spoil")
        pool.replace([2, 3], [partial(BufferedVector, [10, 11])])
        np.testing.assert_array_equal(observed(pool).obs, obs)


def test_an_observe_after_a_renewal_in_advance_returns_the_terminal_observation() -> None:
    faults = FaultPolicy(renew_every=1)
    with begun(buffered(2, 1), backend="serial", extras=EXTRAS, faults=faults, resets_ahead=True) as pool:
        obs = ended(pool)
        check(observed(pool), obs)
        states = pool.get_state(state_fns="attributes")
        check(pool.set_state(states), obs)
        assert pool.step([1, 1]).obs[:, 2].tolist() == [0, 0]


def test_calls_do_not_change_the_last_observation() -> None:
    with begun(buffered(2), backend="serial", extras=EXTRAS) as pool:
        obs = pool.step([5, 6]).obs.copy()
        pool.call("spoil")
        check(observed(pool), obs)
        check(pool.set_state(pool.get_state(state_fns="attributes")), obs)


def test_a_failed_step_does_not_change_the_last_observation() -> None:
    with begun(buffered(2), backend="serial", extras=EXTRAS, faults=FaultPolicy("restart", backoff=0)) as pool:
        obs = pool.step([5, 6]).obs.copy()
        pool.set_attr("broken", True, [1])
        batch = pool.step([5, 6])
        assert batch.truncations.tolist() == [False, True]
        assert batch.obs[1].tolist() == obs[1].tolist()
        again = observed(pool)
        check(again, batch.obs)
        assert pool.step([1, 1]).obs[1].tolist() == [1, 1, 0, -1]
