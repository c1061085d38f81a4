"""What dies takes its own envs' episodes along and nothing else: workers, shards, machines."""

from __future__ import annotations

import os
import signal
from typing import Any

import numpy as np
import pytest
from cluster.conftest import TwoNodes
from cluster_envs import Scripted, actions, fail, kill_shard, told

import remuda
from remuda import BrokenPoolError, FaultPolicy, Pool, RestartLimitError, ShardDiedError

NUM_ENVS, STEPS, KILL_AT = 4, 20, 6
SHARD = [2, 3]  # the envs of shard 1


def twin_course(autoreset: Any) -> list[dict[int, Any]]:
    """What is right: there the envs raise in the step that those which die would have made next."""
    with Pool([Scripted] * NUM_ENVS, backend="serial", autoreset=autoreset, faults="restart", **SEEDED) as twin:
        batches = [told(twin.reset(seed=3))]
        for step in range(STEPS):
            if step == KILL_AT:
                twin.apply(fail, env_ids=SHARD)
            batches.append(told(twin.step(actions(step, range(NUM_ENVS)))))
    return batches


SEEDED: Any = {"seeding": "per_episode"}


@pytest.mark.parametrize("autoreset", ["next_step", "same_step"])
def test_a_shard_that_dies_costs_its_envs_an_episode_each(cluster: TwoNodes, autoreset: Any) -> None:
    where = remuda.Ray(shards=2, backend="serial")
    with Pool([Scripted] * NUM_ENVS, backend=where, autoreset=autoreset, faults="restart", **SEEDED) as pool:
        batches = [told(pool.reset(seed=3))]
        for step in range(STEPS):
            if step == KILL_AT:
                kill_shard(pool, SHARD[0])
            batch = pool.step(actions(step, range(NUM_ENVS)))
            if step == KILL_AT:
                infos = list(batch.infos)
                faults = [(info.get("final_info") or info).get("fault") for info in infos]
                assert faults[:2] == [None, None]
                assert [(fault.env_id, fault.shard, fault.kind) for fault in faults[2:]] == [
                    (2, 1, "death"),
                    (3, 1, "death"),
                ]
                assert isinstance(faults[2].error, ShardDiedError)
                assert f"on node {faults[2].node}" in str(faults[2])
            batches.append(told(batch))
        assert pool.stats().restarts == 1
    assert batches == twin_course(autoreset)


def test_a_shard_that_dies_in_a_step_is_told_then_and_the_others_go_on(cluster: TwoNodes) -> None:
    where = remuda.Ray(shards=2, backend="serial")
    with Pool([Dying] * NUM_ENVS, backend=where, faults=FaultPolicy("restart")) as pool:
        pool.set_attr("bonus", 5, lasting=True)
        pool.set_reset_options({"wind": 1})
        pool.reset(seed=0)
        pool.send([0, 1, 2, KILL_YOURSELF], [0, 1, 2, 3])
        steps = 0
        while pool.pending != 2 or steps == 0:  # those of the other shard
            batch = pool.recv(min_envs=2)
            if 0 not in batch.env_ids:
                break
            steps += 1
            pool.send([0, 0], [0, 1])
        assert batch.truncated[np.isin(batch.env_ids, SHARD)].all()
        assert steps > 0
        pool.discard()
        assert pool.step([0] * NUM_ENVS).reward.tolist()[2:] == [0, 0]  # they are reset
        assert [info["options"] for info in pool.reset().infos] == ["{'wind': 1}"] * 4
        assert pool.get_attr("bonus") == [5] * 4


KILL_YOURSELF = 4


class Dying(Scripted):
    bonus = 0

    def step(self, action: Any) -> Any:
        if action == KILL_YOURSELF:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(action)


def test_a_worker_that_dies_is_its_shards_affair(cluster: TwoNodes) -> None:
    with Pool([Dying] * NUM_ENVS, backend=remuda.Ray(shards=2), faults="restart", num_workers=None) as pool:
        pool.reset(seed=0)
        batch = pool.step([0, 1, 2, KILL_YOURSELF])
        assert batch.truncated.tolist() == [False, False, False, True]
        fault = batch.infos[3]["fault"]
        assert (fault.env_id, fault.shard, fault.operation, fault.where.step) == (3, 1, "step", 1)
        assert fault.error.env_ids == (3,)
        assert pool.step([0] * NUM_ENVS).truncated.tolist() == [False] * NUM_ENVS
        assert pool.stats().restarts == 1


def test_without_restarts_the_death_of_a_shard_is_raised(cluster: TwoNodes) -> None:
    with Pool([Dying] * NUM_ENVS, backend=remuda.Ray(shards=2, backend="serial")) as pool:
        pool.reset(seed=0)
        pool.send([0, 1, 2, KILL_YOURSELF])
        with pytest.raises(ShardDiedError, match=r"shard 1 \(envs 2, 3, on node .*\) died while in step") as raised:
            pool.recv()
        assert raised.value.env_ids == (2, 3)
        pool.discard()
        with pytest.raises(BrokenPoolError, match="env 2 was lost"):
            pool.step([0] * NUM_ENVS)
        assert pool.step([0, 1], env_ids=[0, 1]).obs[:, 2].tolist() == [0, 1]


def test_a_shard_that_dies_too_often_is_given_up(cluster: TwoNodes) -> None:
    policy = FaultPolicy("restart", max_restarts=1, backoff=0)
    with Pool([Dying] * 2, backend=remuda.Ray(shards=2, backend="serial"), faults=policy) as pool:
        pool.reset(seed=0)
        assert pool.step([KILL_YOURSELF, 0]).truncated.tolist() == [True, False]
        pool.step([0, 0])
        with pytest.raises(RestartLimitError, match="max_restarts=1 of one env"):
            pool.step([KILL_YOURSELF, 0])


class Endless(Scripted):
    """In the step in which its shard dies, no episode of it has just ended by itself."""

    def reset(self, **arguments: Any) -> Any:
        told = super().reset(**arguments)
        self.length = 1 << 30
        return told


def test_a_machine_that_is_lost_gives_its_shards_to_others(cluster: TwoNodes) -> None:
    where = remuda.Ray(shards=2, backend="serial", placement="spread")
    with Pool([Endless] * NUM_ENVS, backend=where, faults="restart", **SEEDED) as pool:
        pool.reset(seed=0)
        lost = cluster.kill_one_of(worker.node for worker in pool.workers)
        cut = [env for worker in pool.workers if worker.node == lost for env in worker.env_ids]
        while not (batch := pool.step(actions(0, range(NUM_ENVS)))).truncated.any():
            pass  # its processes end when they have noticed
        assert np.flatnonzero(batch.truncated).tolist() == cut
        assert batch.infos[cut[0]]["fault"].node == lost
        for step in range(5):
            pool.step(actions(step, range(NUM_ENVS)))
        assert lost not in {worker.node for worker in pool.workers}
