"""Actors that never run, such as those that Ray schedules on a dead machine, are replaced, and their commands are sent
again."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from cluster.conftest import TwoNodes
from cluster_envs import Endless, Scripted, actions, fail, kill_shard, rows_by_env

import remuda
from remuda import Pool, ShardDiedError

NUM_ENVS, STEPS, KILL_AT = 2, 9, 4
SEEDED: Any = {"seeding": "per_episode"}
SEATED: Any = remuda.Ray(backend="serial", resources={"seat": 1})


class Pending:
    """Finds actors that wait for resources by their names, and ends them before they run."""

    def __init__(self) -> None:
        import ray

        self._ray, self._known = ray, set[str]()
        self.skip()

    def names(self) -> set[str]:
        """Returns the names of new shards."""
        return {name for name in self._ray.util.list_named_actors() if "-shard-" in name} - self._known

    def skip(self) -> None:
        """Excludes the present shards, which run."""
        self._known |= self.names()

    def cancel_next(self) -> str:
        """Ends the next shard that is started, and returns its name."""
        while not (new := self.names()):
            pass
        (name,) = new
        self._known |= new
        self._ray.kill(self._ray.get_actor(name))
        return name


class Blocker:
    """Occupies the seat of the cluster, or a part of it, so that a shard has to wait."""

    def __init__(self, kill: Callable[[], object] = lambda: None, part: float = 1) -> None:
        """Requests the seat and calls `kill`, which ends the shard there. Ray then gives the seat to this actor."""
        import ray

        class Idle:
            def is_there(self) -> bool:
                return True

        self._ray = ray
        self._actor: Any = ray.remote(Idle).options(num_cpus=0, resources={"seat": part}).remote()
        kill()
        assert ray.get(self._actor.is_there.remote())

    def give_back(self) -> None:
        self._ray.kill(self._actor)


def in_a_thread(function: Callable[[], Any]) -> Callable[[], Any]:
    """Runs a function in a thread. Returns a function that waits for its result and returns it."""
    executor = ThreadPoolExecutor(1)
    future = executor.submit(function)
    executor.shutdown(wait=False)
    return future.result


def action(step: int) -> Any:
    return actions(step, range(NUM_ENVS))


def count(env: Any) -> tuple[int, int]:
    """Returns how many episodes the env has begun, and how often this function was called."""
    env = env.unwrapped
    env.counted = getattr(env, "counted", 0) + 1
    return env.episode, env.counted


def test_a_pool_starts_even_if_its_first_actors_never_run(cluster: TwoNodes) -> None:
    blocker, pending = Blocker(), Pending()
    pool_of = in_a_thread(lambda: Pool([Scripted] * NUM_ENVS, backend=SEATED, faults="restart"))
    names = [pending.cancel_next() for _ in range(3)]
    assert len(set(names)) == 3
    blocker.give_back()
    with pool_of() as pool:
        assert pool.reset(seed=0).env_ids.tolist() == [0, 1]
        assert pool.stats().restarts == 0


def test_an_actor_that_can_never_run_raises(cluster: TwoNodes) -> None:
    where = remuda.Ray(backend="serial", resources={"nowhere": 1})
    pending = Pending()
    pool_of = in_a_thread(lambda: Pool([Scripted], backend=where))
    for _ in range(8):
        pending.cancel_next()
    with pytest.raises(ShardDiedError, match=r"shard 0 .* died while in build"):
        pool_of()


def test_the_commands_of_a_successor_that_never_ran_are_sent_to_the_next_one(cluster: TwoNodes) -> None:
    with Pool([Scripted] * NUM_ENVS, backend="serial", faults="restart", **SEEDED) as twin:
        expected = [rows_by_env(twin.reset(seed=3))]
        for step in range(STEPS):
            if step == KILL_AT:
                twin.apply(fail)
            expected.append(rows_by_env(twin.step(action(step))))
    pending = Pending()
    with Pool([Scripted] * NUM_ENVS, backend=SEATED, faults="restart", **SEEDED) as pool:
        pending.skip()
        batches = [rows_by_env(pool.reset(seed=3))]
        for step in range(STEPS):
            if step == KILL_AT:
                blocker = Blocker(lambda: kill_shard(pool, 0))
            elif step == KILL_AT + 1:
                call = pool.apply_async(count, about="count")
            pool.send(action(step))
            if step == KILL_AT + 1:
                pending.cancel_next()
                while not pending.names():  # the driver reacts to the actor's end in recv
                    assert len(pool.recv(timeout=0)) == 0
                pending.cancel_next()
                blocker.give_back()
            batches.append(rows_by_env(pool.recv()))
            if step == KILL_AT + 1:
                assert call.result() == [(0, 1)] * NUM_ENVS  # called before the step, and once
        assert batches == expected
        assert pool.stats().restarts == 1


def test_rollouts_continue_if_the_first_successor_never_ran(cluster: TwoNodes) -> None:
    pending = Pending()
    with Pool([Scripted] * NUM_ENVS, backend=SEATED, faults="restart", **SEEDED) as pool:
        pending.skip()
        pool.reset(seed=3)
        pids = pool.call("pid")
        with pool.rollouts(lambda obs: obs[:, 1].astype(int) % 5, steps=4) as rollouts:
            assert not next(rollouts).lost
            blocker = Blocker(lambda: os.kill(pids[0], signal.SIGKILL))
            lost = in_a_thread(lambda: next(rollout for rollout in rollouts if rollout.lost))
            pending.cancel_next()
            pending.cancel_next()
            blocker.give_back()
            assert [fault.env_id for fault in lost().lost] == [0, 1]
            assert pool.publish(lambda obs: obs[:, 1].astype(int) * 0) == 1
            while (rollout := next(rollouts)).policy_version == 0:
                pass
            assert (rollout.actions == 0).all()


def test_a_lost_machine_delays_neither_its_own_shards_nor_a_new_pool(cluster: TwoNodes) -> None:
    """Ray has not detected the loss when the new pool starts, so it schedules shards on the lost machine."""
    where = remuda.Ray(shards=2, backend="serial", placement="spread")
    with Pool([Endless] * 4, backend=where, faults="restart", **SEEDED) as pool:
        pool.reset(seed=0)
        homes = [(worker.node, worker.env_ids) for worker in pool.workers]
        lost = cluster.kill_one_of(node for node, _ in homes)
        with Pool([Scripted] * 3, backend=remuda.Ray(shards=3, backend="serial")) as other:
            assert other.reset(seed=0).env_ids.tolist() == [0, 1, 2]
            assert len({worker.node for worker in other.workers} - {lost}) > 1
        cut = [env for node, env_ids in homes if node == lost for env in env_ids]
        while not (batch := pool.step(actions(0, range(4)))).truncations.any():
            pass  # Ray ends the node's processes with a delay
        assert np.flatnonzero(batch.truncations).tolist() == cut
        assert batch.infos[cut[0]]["fault"].node == lost
        for step in range(5):
            pool.step(actions(step, range(4)))
        assert lost not in {worker.node for worker in pool.workers}
