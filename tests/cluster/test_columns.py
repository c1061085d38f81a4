"""Columns of `extras` on a cluster equal those on one machine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cluster.conftest import TwoNodes
from cluster_envs import Scripted, actions, fail, kill_shard, rows_by_env

import remuda
from remuda import Batch, InvalidEnvError, Pool
from remuda.gymnasium import AsyncVectorEnv

NUM_ENVS, STEPS, KILL_AT = 4, 16, 6
EXTRAS: Any = {
    "mask": (lambda env: np.arange(5) <= env.unwrapped.steps, ((5,), np.bool_)),
    "draw": (lambda env: env.unwrapped.draw, ((), np.float64)),
}
SEEDED: Any = {"seeding": "per_episode", "extras": EXTRAS}


def with_columns(batch: Batch) -> Any:
    columns = [(batch.extras["mask"][i].tolist(), batch.extras["draw"][i]) for i in range(len(batch))]
    return rows_by_env(batch), columns


@pytest.mark.parametrize("autoreset", ["next_step", "same_step"])
def test_columns_equal_those_of_one_machine_even_if_a_shard_dies(cluster: TwoNodes, autoreset: Any) -> None:
    common: Any = {"faults": "restart", "autoreset": autoreset, **SEEDED}
    courses = []
    for backend in ("serial", remuda.Ray(shards=2, backend="serial")):
        with Pool([Scripted] * NUM_ENVS, backend=backend, **common) as pool:
            course = [with_columns(pool.reset(seed=3))]
            for step in range(STEPS):
                if step == KILL_AT and backend == "serial":
                    pool.apply(fail, env_ids=[2, 3])
                elif step == KILL_AT:
                    kill_shard(pool, 2)
                course.append(with_columns(pool.step(actions(step, range(NUM_ENVS)))))
            pool.request_obs()
            courses.append([*course, with_columns(pool.recv())])
    assert courses[0] == courses[1]


def test_rollouts_and_vector_envs_have_the_columns(cluster: TwoNodes) -> None:
    def act(obs: Any) -> Any:
        return obs[:, 1].astype(int) % 5

    with Pool([Scripted] * NUM_ENVS, backend="serial", **SEEDED) as twin:
        batches = [twin.reset(seed=3)]
        for _ in range(4):
            batches.append(twin.step(act(batches[-1].obs)))
    where = remuda.Ray(shards=2, backend="serial")
    with Pool([Scripted] * NUM_ENVS, backend=where, **SEEDED) as pool:
        pool.reset(seed=3)
        with pool.rollouts(act, steps=4) as rollouts:
            rollout = next(rollouts)
        assert rollout.extras["mask"].shape == (5, 2, 5) and rollout.extras["mask"].dtype == np.bool_
        for t in range(5):
            for column, env in enumerate(rollout.env_ids.tolist()):
                assert rollout.extras["draw"][t, column] == batches[t].extras["draw"][env]
                assert (rollout.extras["mask"][t, column] == batches[t].extras["mask"][env]).all()
    envs = AsyncVectorEnv([Scripted] * NUM_ENVS, backend=where, extras=EXTRAS)
    obs, _ = envs.reset(seed=1)
    assert envs.extras["draw"].tolist() == obs[:, 0].tolist()
    envs.close()


def test_columns_that_differ_between_shards_are_refused(cluster: TwoNodes) -> None:
    extras: Any = {"size": lambda env: np.zeros(env.unwrapped.size)}

    class Sized(Scripted):
        def __init__(self, size: int) -> None:
            self.size = size

    with pytest.raises(InvalidEnvError, match=r"got the shape \(3,\) and dtype float64 for env 1"):
        Pool([lambda: Sized(2), lambda: Sized(3)], backend=remuda.Ray(shards=2, backend="serial"), extras=extras)
