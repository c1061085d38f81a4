"""`get_state`, `set_state` and `fork_state` on a cluster with shards that die and envs that are rebuilt."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from cluster_envs import Endless, Scripted, actions, kill_shard, rows_by_env

import remuda
from remuda import FaultPolicy, Pool, StateError

pytestmark = pytest.mark.usefixtures("kept_actors")

NUM_ENVS = 4
SEEDED: Any = {"seeding": "per_episode", "faults": "restart"}


def there_and_back(pool: Pool, kill: bool = False) -> list[Any]:
    """Steps, takes states, steps again, and steps from the states in other envs. Returns all rows."""

    def steps(count: int) -> list[Any]:
        return [rows_by_env(pool.step(actions(step, range(NUM_ENVS)))) for step in range(count)]

    course = [rows_by_env(pool.reset(seed=3)), *steps(2)]
    states = pickle.loads(pickle.dumps(pool.get_state(state_fns="attributes")))
    course += steps(8)
    if kill:
        kill_shard(pool, 0)
    course += [rows_by_env(pool.set_state(states[::-1])), *steps(8)]
    return [*course, rows_by_env(pool.fork_state(3, [0, 2], state_fns="attributes")), *steps(8)]


def test_envs_continue_from_states_even_if_a_shard_dies() -> None:
    with Pool([Scripted] * NUM_ENVS, backend="serial", **SEEDED) as twin:
        expected = there_and_back(twin)
    with Pool([Scripted] * NUM_ENVS, backend=remuda.Ray(shards=2, backend="serial"), **SEEDED) as pool:
        assert there_and_back(pool, kill=True) == expected
        assert pool.stats().restarts == 1
        states = pool.get_state([3], state_fns="attributes")
        kill_shard(pool, 3)
        with pytest.raises(remuda.ShardDiedError):
            pool.get_state([3], state_fns="attributes")
        with pytest.raises(StateError, match="got env 3, rebuilt and not reset yet"):
            pool.get_state([3], state_fns="attributes")
        assert len(pool.set_state(states, [3])) == 1


def test_seeds_continue_after_a_state_was_set_in_a_new_shard() -> None:
    """This holds even if a shard has counted the seeds in rollouts and then died."""
    draws = []
    for kill in (False, True):
        with Pool([Endless] * 2, backend=remuda.Ray(backend="serial"), **SEEDED) as pool:
            pool.reset(seed=3)
            states = pool.get_state(state_fns="attributes")
            if kill:
                kill_shard(pool, 0)
            draws.append([pool.set_state(states).obs[:, 0].tolist()])
            with pool.rollouts(lambda obs: [0] * len(obs), steps=4) as rollouts:
                draws[-1].append(next(rollouts).obs[-1, :, 0].tolist())
            if kill:
                kill_shard(pool, 0)
            draws[-1].append(pool.reset().obs[:, 0].tolist())
    assert draws[0] == draws[1]


def test_a_renewed_env_has_no_state_before_its_reset() -> None:
    policy = FaultPolicy("restart", renew_every=1)
    with Pool([Scripted] * 2, num_workers=None, backend=remuda.Ray(), faults=policy, autoreset="disabled") as pool:
        pool.reset(seed=3)
        while not (batch := pool.step([0] * 2)).terminations.any():
            pass
        with pytest.raises(StateError, match="rebuilt and not reset yet"):
            pool.get_state(state_fns="attributes")
        pool.reset(env_ids=batch.env_ids[batch.terminations])
        assert len(pool.get_state(state_fns="attributes")) == 2
