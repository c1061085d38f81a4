"""The death of a worker, shard or machine ends the episodes of its own envs only."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cluster.conftest import TwoNodes
from cluster_envs import Endless, Scripted, actions, fail, kill_shard, rows_by_env
from pool_envs import TextEnv

import remuda
from remuda import Batch, BrokenPoolError, FaultPolicy, Pool, RestartLimitError, ShardDiedError, WorkerDiedError
from remuda.errors import EnvProgress

NUM_ENVS, STEPS, KILL_AT = 4, 20, 6
SHARD = [2, 3]  # the ids of the envs of shard 1


def twin_course(autoreset: Any) -> tuple[list[dict[int, Any]], list[EnvProgress]]:
    """Returns the expected batches and fault positions: in a serial pool, the envs of the shard raise in that step."""
    with Pool([Scripted] * NUM_ENVS, backend="serial", autoreset=autoreset, faults="restart", **SEEDED) as twin:
        batches = [rows_by_env(twin.reset(seed=3))]
        for step in range(STEPS):
            if step == KILL_AT:
                twin.apply(fail, env_ids=SHARD)
            batches.append(rows_by_env(batch := twin.step(actions(step, range(NUM_ENVS)))))
            if step == KILL_AT:
                where = [fault.where for fault in faults_of(batch)[2:]]
    return batches, where


def faults_of(batch: Batch) -> list[Any]:
    return [(info.get("final_info") or info).get("fault") for info in batch.infos]


SEEDED: Any = {"seeding": "per_episode"}


@pytest.mark.parametrize("autoreset", ["next_step", "same_step"])
def test_the_death_of_a_shard_cuts_off_an_episode_of_each_of_its_envs(cluster: TwoNodes, autoreset: Any) -> None:
    where = remuda.Ray(shards=2, backend="serial")
    with Pool([Scripted] * NUM_ENVS, backend=where, autoreset=autoreset, faults="restart", **SEEDED) as pool:
        batches = [rows_by_env(pool.reset(seed=3))]
        for step in range(STEPS):
            if step == KILL_AT:
                kill_shard(pool, SHARD[0])
            batch = pool.step(actions(step, range(NUM_ENVS)))
            if step == KILL_AT:
                faults = faults_of(batch)
                assert faults[:2] == [None, None]
                assert [(fault.env_id, fault.shard, fault.kind) for fault in faults[2:]] == [
                    (2, 1, "death"),
                    (3, 1, "death"),
                ]
                where = [replace(fault.where, step=fault.where.step + 1) for fault in faults[2:]]
                assert isinstance(faults[2].error, ShardDiedError)
                assert f"on node {faults[2].node}" in str(faults[2])
            batches.append(rows_by_env(batch))
        assert pool.stats().restarts == 1
    # a shard's fault does not count the lost step, which may not have begun
    assert (batches, where) == twin_course(autoreset)


def test_the_death_of_a_shard_in_a_step_does_not_delay_the_others(cluster: TwoNodes) -> None:
    where = remuda.Ray(shards=2, backend="serial")
    with Pool([Dying] * NUM_ENVS, backend=where, faults=FaultPolicy("restart")) as pool:
        pool.set_attr("bonus", 5, lasting=True)
        pool.set_reset_options({"wind": 1})
        pool.reset(seed=0)
        pool.send([0, 1, 2, KILL_YOURSELF], [0, 1, 2, 3])
        steps = 0
        while pool.pending != 2 or steps == 0:  # the envs of the other shard
            batch = pool.recv(min_envs=2)
            if 0 not in batch.env_ids:
                break
            steps += 1
            pool.send([0, 0], [0, 1])
        assert batch.truncations[np.isin(batch.env_ids, SHARD)].all()
        assert steps > 0
        pool.discard()
        assert pool.step([0] * NUM_ENVS).rewards.tolist()[2:] == [0, 0]  # the envs of the shard have been reset
        assert [info["options"] for info in pool.reset().infos] == ["{'wind': 1}"] * 4
        assert pool.get_attr("bonus") == [5] * 4


KILL_YOURSELF = 4


class Dying(Scripted):
    bonus = 0

    def step(self, action: Any) -> Any:
        if action == KILL_YOURSELF:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(action)


def test_a_shard_replaces_its_dead_worker(cluster: TwoNodes) -> None:
    with Pool([Dying] * NUM_ENVS, backend=remuda.Ray(shards=2), faults="restart", num_workers=None) as pool:
        pool.reset(seed=0)
        batch = pool.step([0, 1, 2, KILL_YOURSELF])
        assert batch.truncations.tolist() == [False, False, False, True]
        fault = batch.infos[3]["fault"]
        assert (fault.env_id, fault.shard, fault.operation, fault.where.step) == (3, 1, "step", 1)
        assert fault.error.env_ids == pool.workers[fault.worker].env_ids == (3,)
        assert fault.error.worker == fault.worker == 3
        assert pool.step([0] * NUM_ENVS).truncations.tolist() == [False] * NUM_ENVS
        assert pool.stats().restarts == 1


def test_faults_of_workers_are_logged_in_the_driver_with_env_and_shard(
    cluster: TwoNodes, caplog: pytest.LogCaptureFixture
) -> None:
    with Pool([Dying] * NUM_ENVS, backend=remuda.Ray(shards=2), faults="restart", num_workers=None) as pool:
        pool.reset(seed=0)
        pool.step([0, 1, 2, KILL_YOURSELF])
        pool.apply(fail, env_ids=[0])
        pool.step([0] * NUM_ENVS)
    first, second = [record for record in caplog.records if record.name == "remuda"]
    assert (first.env, first.shard) == (3, 1) and (second.env, second.shard) == (0, 0)  # type: ignore[attr-defined]
    assert "env 3" in first.getMessage() and "(shard 1, node " in first.getMessage()
    assert "told to" in second.getMessage()


def test_a_death_between_rollouts_is_reported_with_the_next_rollout(
    cluster: TwoNodes, caplog: pytest.LogCaptureFixture
) -> None:
    with Pool([Endless] * NUM_ENVS, backend=remuda.Ray(shards=2), faults="restart", num_workers=None) as pool:
        pool.reset(seed=0)
        victim = pool.workers[3]
        with pool.rollouts(lambda obs: np.zeros(len(obs), int), steps=4, in_flight=1) as rollouts:
            assert victim.pid is not None  # the shard answers this call after its first rollout
            os.kill(victim.pid, signal.SIGKILL)
            while victim.is_alive():
                pass
            of_shard = (rollout for rollout in rollouts if rollout.shard == 1)
            assert next(of_shard).lost == ()
            rollout = next(of_shard)
            assert [(fault.env_id, fault.shard, fault.kind) for fault in rollout.lost] == [(3, 1, "death")]
            assert rollout.faults == {} and next(of_shard).lost == ()
        assert pool.stats().restarts == 1
    (record,) = [record for record in caplog.records if record.name == "remuda"]
    assert (record.env, record.shard) == (3, 1)  # type: ignore[attr-defined]


def test_without_restarts_the_death_of_a_shard_is_raised(cluster: TwoNodes) -> None:
    with Pool([Dying] * NUM_ENVS, backend=remuda.Ray(shards=2, backend="serial")) as pool:
        pool.reset(seed=0)
        pool.send([0, 1, 2, KILL_YOURSELF])
        with pytest.raises(ShardDiedError, match=r"shard 1 \(envs 2, 3, on node .*\) died while in step") as raised:
            pool.recv()
        assert raised.value.env_ids == (2, 3) == pool.workers[raised.value.worker].env_ids
        pool.discard()
        with pytest.raises(BrokenPoolError, match="env 2 was lost"):
            pool.step([0] * NUM_ENVS)
        assert pool.step([0, 1], env_ids=[0, 1]).obs[:, 2].tolist() == [0, 1]


def test_a_shard_that_dies_too_often_raises_a_restart_limit_error(cluster: TwoNodes) -> None:
    policy = FaultPolicy("restart", max_restarts=1, backoff=0)
    with Pool([Dying] * 2, backend=remuda.Ray(shards=2, backend="serial"), faults=policy) as pool:
        pool.reset(seed=0)
        assert pool.step([KILL_YOURSELF, 0]).truncations.tolist() == [True, False]
        pool.step([0, 0])
        with pytest.raises(RestartLimitError, match="max_restarts=1 of one env"):
            pool.step([KILL_YOURSELF, 0])


class DiesInClose(Scripted):
    def close(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_death_in_close_is_raised(cluster: TwoNodes) -> None:
    pool = Pool([Scripted, Scripted, Scripted, DiesInClose], backend=remuda.Ray(shards=2), num_workers=None)
    pool.reset(seed=0)
    with pytest.raises(WorkerDiedError, match="env 3.* died while in close") as raised:
        pool.close()
    assert (raised.value.worker, raised.value.env_ids) == (3, (3,))


def test_a_restart_limit_error_has_each_death_once(cluster: TwoNodes) -> None:
    policy = FaultPolicy("restart", max_restarts=0)
    with Pool([Dying] * NUM_ENVS, backend=remuda.Ray(shards=2), faults=policy, num_workers=1) as pool:
        pool.reset(seed=0)
        with pytest.raises(RestartLimitError) as raised:
            pool.step([0, 1, 2, KILL_YOURSELF])
        assert [fault.env_id for fault in raised.value.faults] == SHARD
        assert str(raised.value).count("died while in step") == 1


def test_observations_without_columns_are_repeated_after_a_fault(cluster: TwoNodes) -> None:
    with Pool([TextEnv] * 2, backend=remuda.Ray(shards=2), faults="restart", num_workers=None) as pool:
        pool.reset()
        pool.step(("a", "b"))
        pid = pool.workers[1].pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        for _ in range(2):
            pool.request_obs()
            assert pool.recv(order="slot").obs == ("a", "b")


def test_the_shards_of_a_lost_machine_move_to_others(cluster: TwoNodes) -> None:
    where = remuda.Ray(shards=2, backend="serial", placement="spread")
    with Pool([Endless] * NUM_ENVS, backend=where, faults="restart", **SEEDED) as pool:
        pool.reset(seed=0)
        lost = cluster.kill_one_of(worker.node for worker in pool.workers)
        cut = [env for worker in pool.workers if worker.node == lost for env in worker.env_ids]
        while not (batch := pool.step(actions(0, range(NUM_ENVS)))).truncations.any():
            pass  # Ray ends the node's processes with a delay
        assert np.flatnonzero(batch.truncations).tolist() == cut
        assert batch.infos[cut[0]]["fault"].node == lost
        for step in range(5):
            pool.step(actions(step, range(NUM_ENVS)))
        assert lost not in {worker.node for worker in pool.workers}


@pytest.mark.parametrize("faults", ["restart", "raise"])
def test_the_death_of_a_shard_in_build_is_a_fault(cluster: TwoNodes, faults: Any, tmp_path: Path) -> None:
    mark = str(tmp_path / "was here")

    def make() -> Any:
        if faults == "raise" or not os.path.exists(mark):
            open(mark, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        return Scripted()

    where = remuda.Ray(shards=2, backend="serial")
    if faults == "raise":
        with pytest.raises(ShardDiedError, match=r"shard 1 \(env 1, .*\) died while in build"):
            Pool([Scripted, make], backend=where)
        return
    with Pool([Scripted, make], backend=where, faults=faults) as pool:
        assert pool.reset(seed=0).env_ids.tolist() == [0, 1]
        assert pool.stats().restarts == 1


def test_envs_observed_at_the_end_of_an_episode_reset_in_the_next_step(cluster: TwoNodes) -> None:
    runs = []
    for backend in ("serial", remuda.Ray(backend="serial")):
        with Pool([Scripted] * NUM_ENVS, backend=backend, faults="restart", **SEEDED) as pool:
            batch = pool.reset(seed=3)
            while not batch.terminations.any():
                batch = pool.step([0] * NUM_ENVS)
            over = np.flatnonzero(batch.terminations).tolist()
            pool.request_obs()
            pool.recv()
            if backend == "serial":
                pool.apply(fail, env_ids=[env for env in range(NUM_ENVS) if env not in over])
            else:
                kill_shard(pool, 0)
            runs.append([rows_by_env(pool.step([0] * NUM_ENVS)) for _ in range(6)])
    assert runs[0] == runs[1]
