"""`get_state`, `set_state` and `fork_state` work across the machines of a cluster."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from cluster.conftest import TwoNodes
from cluster_envs import Endless, Scripted, actions, fail, kill_shard, rows_by_env

import remuda
from remuda import FaultPolicy, InvalidEnvError, Pool, StateError

NUM_ENVS, STEPS = 4, 8
SEEDED: Any = {"seeding": "per_episode", "faults": "restart"}


def there_and_back(pool: Pool, kill: bool = False) -> list[Any]:
    """Steps, takes states, steps again, and steps from the states in other envs. Returns all rows."""
    course = [rows_by_env(pool.reset(seed=3))]
    course += [rows_by_env(pool.step(actions(step, range(NUM_ENVS)))) for step in range(2)]
    states = pickle.loads(pickle.dumps(pool.get_state(state_fns="attributes")))
    course += [rows_by_env(pool.step(actions(step, range(NUM_ENVS)))) for step in range(STEPS)]
    if kill:
        kill_shard(pool, 0)
    course.append(rows_by_env(pool.set_state(states[::-1])))
    course += [rows_by_env(pool.step(actions(step, range(NUM_ENVS)))) for step in range(STEPS)]
    course.append(rows_by_env(pool.fork_state(3, [0, 2], state_fns="attributes")))
    course += [rows_by_env(pool.step(actions(step, range(NUM_ENVS)))) for step in range(STEPS)]
    return course


def test_envs_continue_from_states_as_on_one_machine_even_if_a_shard_dies(cluster: TwoNodes) -> None:
    with Pool([Scripted] * NUM_ENVS, backend="serial", **SEEDED) as twin:
        expected = there_and_back(twin)
    with Pool([Scripted] * NUM_ENVS, backend=remuda.Ray(shards=2, backend="serial"), **SEEDED) as pool:
        assert there_and_back(pool, kill=True) == expected
        assert pool.stats().restarts == 1


def test_seeds_continue_after_a_state_was_set_in_a_new_shard(cluster: TwoNodes) -> None:
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


def test_invalid_states_are_refused_before_anything_is_sent(cluster: TwoNodes) -> None:
    with Pool([Scripted] * NUM_ENVS, backend=remuda.Ray(shards=2, backend="serial"), **SEEDED) as pool:
        with pytest.raises(StateError, match="got envs 0-3; call reset first"):
            pool.get_state(state_fns="attributes")
        pool.reset(seed=0)
        with pytest.raises(InvalidEnvError, match="expected envs whose state can be taken .* got env 2, Scripted"):
            pool.get_state([2])
        with pytest.raises(TypeError, match="expected state_fns to be a pair"):
            pool.get_state(state_fns=3)  # type: ignore[arg-type]
        states = pool.get_state([3], state_fns="attributes")
        with pytest.raises(ValueError, match="expected 4 states, one for each env, got 1"):
            pool.set_state(states)
        pool.send([0], env_ids=[3])
        with pytest.raises(StateError, match="got 1; call recv or discard first"):
            pool.set_state(states, [2])
        with pytest.raises(StateError, match="env 3 is in flight"):
            pool.get_state([3], state_fns="attributes")
        pool.recv()
        kill_shard(pool, 3)
        with pytest.raises(remuda.ShardDiedError):
            pool.get_state([3], state_fns="attributes")
        with pytest.raises(StateError, match="got env 3, rebuilt and not reset yet"):
            pool.get_state([3], state_fns="attributes")
        assert pool.set_state(states, [3]).obs[0, 1] == 0


def test_a_rebuilt_env_has_no_state_before_its_reset(cluster: TwoNodes) -> None:
    """Envs are rebuilt because they are due for a renewal, or because they raised."""
    policy = FaultPolicy("restart", renew_every=1)
    with Pool([Scripted] * 2, num_workers=None, backend=remuda.Ray(), faults=policy, autoreset="disabled") as pool:
        pool.reset(seed=3)
        while not (batch := pool.step([0] * 2)).terminations.any():
            pass
        with pytest.raises(StateError, match="rebuilt and not reset yet"):
            pool.get_state(state_fns="attributes")
        over = batch.env_ids[batch.terminations].tolist()
        pool.reset(env_ids=over)
        assert len(pool.get_state(state_fns="attributes")) == 2
        pool.apply(fail, env_ids=[1])
        assert pool.step([0] * 2).truncations.tolist() == [False, True]
        with pytest.raises(StateError, match="expected envs that have been reset, got env 1; call reset first"):
            pool.step([0] * 2)
        assert pool.pending == 0
        pool.reset(env_ids=[1])
        assert len(pool.get_state(state_fns="attributes")) == 2
