"""`resize` changes the number of shards of an open pool. Seeds continue, and a failed resize changes nothing."""

from __future__ import annotations

import logging
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from accidents import kill_myself, once, raise_value_error
from cluster.conftest import TwoNodes
from cluster.test_rollouts import Greedy, by_env, rollouts_of_each_shard
from cluster.test_unstarted import Blocker, in_a_thread
from cluster_envs import Endless, Scripted, actions, fail, kill_shard, rows_by_env
from pool_envs import hooked

import remuda
from remuda import ClusterPool, EnvError, Pool, ShardDiedError, StartTimeoutError, StateError

NUM_ENVS, STEPS, RESIZE_AT, KILL_AT = 6, 24, {6: 3, 14: 1}, {10: [0, 1], 17: [0, 1, 2, 3, 4, 5]}
SEEDED: Any = {"seeding": "per_episode", "faults": "restart"}
ONE: Any = remuda.Ray(shards=1, backend="serial")


def as_fault(row: Any) -> Any:
    """Renames the info of an episode cut off by a resize to that of a fault, to compare it with a run with faults."""
    if isinstance(row, dict):
        return {"fault" if key == "resized" else key: as_fault(value) for key, value in row.items()}
    return type(row)(map(as_fault, row)) if isinstance(row, (list, tuple)) else row


def course(pool: Pool, keep: bool, on_cluster: bool) -> list[Any]:
    """Runs a pool with resizes and kills. On one machine, an exception in the env cuts off the episode instead."""
    batches = [rows_by_env(pool.reset(seed=3))]
    for step in range(STEPS):
        if step in RESIZE_AT and on_cluster:
            states = pool.get_state(state_fns="attributes") if keep else None
            pool.resize(RESIZE_AT[step])
            assert {worker.shard for worker in pool.workers} == set(range(RESIZE_AT[step]))
            if states is not None:
                batches[-1] = {env: row[:4] for env, row in rows_by_env(pool.set_state(states)).items()}
        elif step in RESIZE_AT and keep:
            batches[-1] = {env: (obs, 0.0, *row[1:3]) for env, (obs, *row) in batches[-1].items()}
        elif step in RESIZE_AT or (step in KILL_AT and not on_cluster):
            cut = range(NUM_ENVS) if step in RESIZE_AT else KILL_AT[step]
            pool.apply(fail, env_ids=[env for env in cut if not is_over(pool, batches[-1][env])])
        if step in KILL_AT and on_cluster:
            kill_shard(pool, KILL_AT[step][0])
        batches.append(rows_by_env(pool.step(actions(step, range(NUM_ENVS)))))
    return batches


def is_over(pool: Pool, row: Any) -> bool:
    return pool.autoreset == "next_step" and bool(row[2] or row[3])


@pytest.mark.usefixtures("kept_actors")
@pytest.mark.parametrize(("autoreset", "keep"), [("same_step", False), ("next_step", True)])
def test_results_equal_those_of_one_machine(autoreset: Any, keep: bool) -> None:
    with Pool([Scripted] * NUM_ENVS, backend="serial", autoreset=autoreset, **SEEDED) as twin:
        expected = course(twin, keep, on_cluster=False)
    with Pool([Scripted] * NUM_ENVS, backend=ONE, autoreset=autoreset, **SEEDED) as pool:
        assert as_fault(course(pool, keep, on_cluster=True)) == expected
        assert pool.backend.shards == 1 and len(pool.workers) == pool.num_workers == 1


@pytest.mark.usefixtures("kept_actors")
def test_the_info_of_an_episode_cut_off_by_a_resize_says_so() -> None:
    with Pool([Scripted] * NUM_ENVS, backend=ONE, **SEEDED) as pool:
        pool.set_attr("bonus", 5, lasting=True)
        pool.set_reset_options({"wind": 1})
        pool.reset(seed=3)
        last = pool.step([1] * NUM_ENVS).obs
        pool.resize(2)
        batch = pool.step([0] * NUM_ENVS)
        assert batch.obs.tolist() == last.tolist() and batch.truncations.all()
        assert [info["resized"] for info in batch.infos] == [True] * NUM_ENVS
        pool.resize(6)
        # the envs reset, as they would have without the second resize
        assert not pool.step([0] * NUM_ENVS).truncations.any()
        assert pool.get_attr("bonus") == [5] * NUM_ENVS
        assert [info["options"] for info in pool.reset().infos] == ["{'wind': 1}"] * NUM_ENVS
        pool.apply(fail, env_ids=[2])
        kill_shard(pool, 5)
        faults = [info["fault"] for info in pool.step([0] * NUM_ENVS).infos if info]
        assert [(fault.env_id, fault.shard, fault.worker) for fault in faults] == [(2, 2, 2), (5, 5, 5)]


@pytest.mark.usefixtures("kept_actors")
def test_rollouts_have_the_same_episodes_before_and_after() -> None:
    runs = []
    for sizes in ((2, 2, 2), (1, 3, 1)):
        where = remuda.Ray(shards=sizes[0], backend="serial")
        with Pool([Scripted] * NUM_ENVS, backend=where, **SEEDED) as pool:
            pool.reset(seed=5)
            course = [by_env(rollouts_of_each_shard(pool, Greedy(), 2))]
            for size in sizes[1:]:
                pool.resize(size)
                pool.reset(seed=5)  # an unknown number of rollouts has been made in advance
                course.append(by_env(rollouts_of_each_shard(pool, Greedy(), 2)))
            runs.append(course)
    assert runs[0] == runs[1]


def test_a_resize_waits_until_the_cluster_has_room_or_changes_nothing(cluster: TwoNodes) -> None:
    where = remuda.Ray(shards=1, backend="serial", resources={"seat": 0.5})
    blocker = Blocker(part=0.5)
    with Pool([Scripted] * 2, backend=where, **SEEDED) as pool:
        pool.reset(seed=3)
        with pytest.raises(StartTimeoutError, match=r"within 0.5 s, got . that had not.*The pool is as before"):
            pool.resize(2, timeout=0.5)
        assert pool.step([1, 1]).obs[:, 1].tolist() == [1, 1]
        resized = in_a_thread(lambda: pool.resize(2))
        blocker.give_back()
        resized()
        assert len(set(pool.call("pid"))) == 2
        assert pool.step([0, 0]).truncations.all()


@pytest.mark.usefixtures("kept_actors")
@pytest.mark.parametrize("phase", ["build", "close"])
def test_an_interrupted_resize_changes_nothing_or_is_completed(phase: str, tmp_path: Path) -> None:
    """Ctrl-C while new envs are built changes nothing. While old envs are closed, it is raised when all is done."""
    owner, shards = os.getpid(), 1 if phase == "build" else 2
    interrupt = once(tmp_path / "once", lambda *_: os.kill(owner, signal.SIGINT), skip=1 if phase == "build" else 0)
    with Pool(hooked(4, **{phase: interrupt}), backend=ONE, **SEEDED) as pool:
        pool.reset(seed=3)
        with pytest.raises(KeyboardInterrupt):
            pool.resize(2)
        assert (pool.backend.shards, len(pool.workers)) == (shards, shards)
        assert pool.step([1] * 4).truncations.tolist() == [phase == "close"] * 4
        pool.resize(3 - shards)
        assert pool.step([1] * 4).truncations.tolist() == [phase == "build"] * 4  # the others reset in this step


@pytest.mark.usefixtures("kept_actors")
def test_log_handlers_run_in_the_thread_that_resizes() -> None:
    """They may take a lock that the program holds around `resize`."""
    lock, threads = threading.RLock(), list[int]()

    class Locking(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            with lock:
                threads.append(threading.get_ident())

    handler, logger = Locking(), logging.getLogger("remuda")
    logger.addHandler(handler)
    try:
        with Pool(hooked(4, close=raise_value_error), backend=ONE, **SEEDED) as pool:
            pool.reset(seed=3)
            pool.set_attr("hint", 5, lasting=True)
            with lock:
                pool.resize(2)
            assert pool.get_attr("hint") == [5] * 4
            assert threads and set(threads) == {threading.get_ident()}
            pool.close(terminate=True)
    finally:
        logger.removeHandler(handler)


@pytest.mark.usefixtures("kept_actors")
@pytest.mark.parametrize("autoreset", ["next_step", "same_step", "disabled"])
def test_a_resize_loses_no_end_of_an_episode_that_a_death_has_ended(autoreset: Any) -> None:
    where = remuda.Ray(shards=1, backend="process")
    with Pool([Endless] * 2, backend=where, num_workers=None, autoreset=autoreset, **SEEDED) as pool:
        pool.reset(seed=5)
        last = pool.step([1, 1]).obs[0].tolist()
        os.kill(pool.workers[0].pid, signal.SIGKILL)
        while not pool.stats().restarts:
            pass
        pool.call("pid", env_ids=[0])  # waits until the env is rebuilt
        pool.step([1], env_ids=[1])  # the answer says that env 0 must be reset
        pool.resize(2)
        batch = pool.step([1], env_ids=[0])
        assert batch.truncations.all()
        assert (batch.obs if batch.final_obs is None else batch.final_obs)[0].tolist() == last


@pytest.mark.usefixtures("kept_actors")
def test_a_death_in_the_reset_after_a_resize_repeats_the_reset(tmp_path: Path) -> None:
    dying = hooked(2, length=1, reset=once(tmp_path / "once", kill_myself, skip=1))
    with Pool(dying, backend=remuda.Ray(shards=1, backend="process"), **SEEDED) as pool:
        pool.reset(seed=3)
        assert pool.step([1, 1]).terminations.all()
        pool.resize(2)
        batch = pool.step([1, 1])
        assert (batch.obs.tolist(), batch.truncations.any()) == ([[0, 1, 0, -1], [1, 1, 0, -1]], False)
        assert pool.stats().restarts == 1


@pytest.mark.usefixtures("kept_actors")
def test_a_resize_with_a_failing_factory_changes_nothing(tmp_path: Path) -> None:
    env_fns = hooked(2, [1], build=once(tmp_path / "built", raise_value_error, skip=1))
    with Pool(env_fns, backend=ONE, **SEEDED) as pool:
        pool.reset(seed=3)
        with pytest.raises(EnvError, match=r"env 1 .*raised ValueError.*: broken"):
            pool.resize(2)
        assert pool.step([1, 1]).obs[:, 1:3].tolist() == [[1, 1], [1, 1]]  # the first step of the first episode
        pool.resize(2)
        assert pool.step([0, 0]).truncations.all()


@pytest.mark.usefixtures("kept_actors")
def test_the_death_of_a_shard_during_a_resize_is_a_fault(tmp_path: Path) -> None:
    env_fns = hooked(2, [0], build=once(tmp_path / "built", kill_myself, skip=1))
    with Pool(env_fns, backend=ONE, **SEEDED) as pool:
        pool.reset(seed=3)
        with pytest.raises(ShardDiedError, match="died while in build"):
            pool.resize(2)
        batch = pool.step([0, 0])
        assert batch.truncations.all() and [info["fault"].kind for info in batch.infos] == ["death"] * 2
        pool.call("pid")  # the successor answers after it has built its envs
        pool.resize(2)
        assert len(pool.workers) == 2 and pool.step([0, 0]).obs[:, 2].tolist() == [0, 0]


@pytest.mark.usefixtures("kept_actors")
def test_invalid_resizes_are_refused() -> None:
    with pytest.raises(TypeError, match=r"expected backend=remuda.Ray\(...\) for a ClusterPool, got 'serial'"):
        ClusterPool([Scripted] * 2, backend="serial")
    packed = remuda.Ray(backend="serial", placement="pack")
    with Pool([Scripted] * 2, backend=packed) as pool, pytest.raises(ValueError, match="resized, got 'pack': the room"):
        pool.resize(2)
    refused = pytest.raises(ValueError, match="expected shards to be from 1 to 1 with num_workers=2, got 2")
    with Pool([Scripted] * 2, backend=ONE, num_workers=2) as pool, refused:
        pool.resize(2)
    with Pool([Scripted] * 2, backend=ONE) as pool:
        for shards in (0, 3, True, 1.5):
            with pytest.raises(ValueError, match=r"expected shards to be an int from 1 to 2 \(the number of envs\)"):
                pool.resize(shards)  # type: ignore[arg-type]
        pool.send_reset(seed=0)
        with pytest.raises(StateError, match="expected no env in flight when a pool is resized"):
            pool.resize(2)
        pool.recv()
        with pool.rollouts(Greedy(), steps=4) as rollouts:
            next(rollouts)
            with pytest.raises(StateError, match="expected no rollouts under way when a pool is resized"):
                pool.resize(2)
            assert len(next(rollouts)) == 4
        (half,) = pool.split(1)
        pool.resize(2)
        halves = pool.split(2)
        pool.resize(1)
        with pytest.raises(StateError, match="split since"):
            halves[0].send_reset()
        assert half is pool and len(pool.reset()) == 2
