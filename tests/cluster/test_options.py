"""With each option, and with several, the rows on a cluster equal those of a pool of processes."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cluster.conftest import TwoNodes
from cluster_envs import Scripted, actions, rows_by_env
from drawn import MINUTES

import remuda
from remuda import FaultPolicy, InvalidEnvError, Pool

NUM_ENVS = 4
STEPS = 16

OPTIONS: dict[str, dict[str, Any]] = {
    "background": {"autoreset": "background"},
    "same_step": {"autoreset": "same_step"},
    "resets_ahead": {"resets_ahead": True},
    "lazy": {"lazy": True},
    "per_episode": {"seeding": "per_episode"},
    "renew": {"faults": FaultPolicy("raise", renew_every=2), "seeding": "per_episode"},
    "extras": {
        "extras": {"length": (lambda env: env.unwrapped.length if env.unwrapped.episode else 0, ((), np.int64))}
    },
    "frames": {"frames": 1},
    "object_bytes": {"object_bytes": 4096},
    "serially": {"starts_serially": True},
    "one_at_a_time": {"max_concurrency": 1},
    "capture": {"worker_output": "capture"},
    "threads": {"threads_per_worker": 2, "name": "herd"},
}
TOGETHER = [
    ("background", "renew", "extras", "frames", "threads"),
    ("same_step", "per_episode", "lazy", "object_bytes", "one_at_a_time"),
    ("resets_ahead", "renew", "serially", "capture", "extras"),
]
# Actors take seconds to start, so each option occurs in one pool, and alone only in `make soak`.
CASES = [*TOGETHER, *((name,) for name in OPTIONS if MINUTES)]


def lockstep(pool: Pool) -> dict[int, list[Any]]:
    """Steps all envs together and returns the rows of each env."""
    rows: dict[int, list[Any]] = {env: [row] for env, row in rows_by_env(pool.reset(seed=3)).items()}
    for step in range(STEPS):
        for env, row in rows_by_env(pool.step(actions(step, range(NUM_ENVS)))).items():
            rows[env].append(row)
    return rows


def by_twos(pool: Pool) -> dict[int, list[Any]]:
    """Steps the envs in batches of two, in the order of their results, and returns the rows of each env."""
    rows: dict[int, list[Any]] = {env: [] for env in range(NUM_ENVS)}
    pool.send_reset(seed=3)
    while pool.pending:
        batch = pool.recv(min_envs=min(2, pool.pending))
        for env, row in rows_by_env(batch).items():
            rows[env].append((row, _own_columns(pool, batch, env)))
        env_ids = [env for env in batch.env_ids.tolist() if len(rows[env]) <= STEPS]
        if pool.autoreset == "background":
            over = {env for env in env_ids if rows[env][-1][0][2] or rows[env][-1][0][3]}
            env_ids = [env for env in env_ids if env not in over]  # the pool resets these envs
        if env_ids:
            pool.send([actions(len(rows[env]), [env])[0] for env in env_ids], env_ids)
        elif all(len(env_rows) > STEPS for env_rows in rows.values()):
            break
    return {env: env_rows[:STEPS] for env, env_rows in rows.items()}


def _own_columns(pool: Pool, batch: remuda.Batch, env: int) -> dict[str, Any]:
    at = batch.env_ids.tolist().index(env)
    return {name: column[at].tolist() for name, column in batch.extras.items()} if pool.options["extras"] else {}


def compare(run: Callable[[Pool], Any], options: dict[str, Any]) -> None:
    with Pool([Scripted] * NUM_ENVS, num_workers=None, **options) as twin:
        expected = run(twin)
    backend = remuda.Ray(shards=2, cpus_per_shard=2)
    with Pool([Scripted] * NUM_ENVS, num_workers=None, backend=backend, **options) as pool:
        assert run(pool) == expected


@pytest.mark.parametrize("names", CASES, ids="+".join)
def test_rows_equal_those_of_processes(cluster: TwoNodes, names: tuple[str, ...]) -> None:
    options = dict(itertools.chain.from_iterable(OPTIONS[name].items() for name in names))
    ways = [by_twos] if options.get("autoreset") == "background" else [lockstep, by_twos]
    compare(lambda pool: [way(pool) for way in ways], options)


def policy(obs: Any) -> Any:
    return np.int64(obs[:, 1]) % 5


def test_collect_fills_the_same_rollouts(cluster: TwoNodes) -> None:
    def run(pool: Pool) -> list[Any]:
        found = []
        for way in ({"parts": 1}, {"parts": 2}, {"min_envs": 1}):
            pool.reset(seed=3)
            rollouts = remuda.collect(pool, policy, steps=8, **way)
            for _ in range(2):
                rollout = next(rollouts)
                order = np.argsort(rollout.env_ids)
                columns = rollout.obs, rollout.actions, rollout.rewards, rollout.terminations, rollout.valid
                found.append([column[:, order].tolist() for column in columns])
        return found

    compare(run, {"autoreset": "same_step"})


def test_evaluate_plays_the_same_episodes(cluster: TwoNodes) -> None:
    def run(pool: Pool) -> Any:
        result = remuda.evaluate(policy, pool, episodes=10, seed=7)
        return result.seeds.tolist(), result.lengths.tolist(), result.returns.tolist(), result.env_ids.tolist()

    compare(run, {"autoreset": "disabled"})


def test_batches_can_be_converted_to_tensors(cluster: TwoNodes) -> None:
    pytest.importorskip("torch")

    def run(pool: Pool) -> Any:
        return pool.reset(seed=3).to("cpu").obs.tolist()

    compare(run, {})


@pytest.mark.parametrize("what", ["env_fns", "options"])
def test_the_error_names_what_cannot_be_pickled(cluster: TwoNodes, what: str) -> None:
    lock = threading.Lock()

    def look(*_: Any) -> Any:
        return lock.locked()

    env_fns = [look] if what == "env_fns" else [Scripted]
    extras: Any = {"look": look} if what == "options" else None
    with pytest.raises(InvalidEnvError, match=rf"expected {what} that can be pickled.*variable lock of"):
        Pool(env_fns, backend=remuda.Ray(), extras=extras)
