"""Actors that never run, as those that Ray puts on a machine which is dead already: others do what they were sent."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest
from cluster.conftest import TwoNodes
from cluster_envs import Scripted, actions, fail, kill_shard, told

import remuda
from remuda import Pool, ShardDiedError, StartTimeoutError

NUM_ENVS, STEPS, KILL_AT = 2, 9, 4
SEEDED: Any = {"seeding": "per_episode"}


class Pending:
    """Finds actors that wait for room, by their names, and ends them before they have run."""

    def __init__(self) -> None:
        import ray

        self._ray, self._known = ray, set[str]()

    def names(self) -> set[str]:
        """Of shards that are new."""
        return {name for name in self._ray.util.list_named_actors() if "-shard-" in name} - self._known

    def skip(self) -> None:
        """Those that are there run."""
        self._known |= self.names()

    def cancel_next(self) -> str:
        """The next shard that is started; returns its name."""
        while not (new := self.names()):
            pass
        (name,) = new
        self._known |= new
        self._ray.kill(self._ray.get_actor(name))
        return name


class Blocker:
    """Has the room of a shard, so that its successor has to wait."""

    def __init__(self, resource: str, kill: Callable[[], object]) -> None:
        """`kill`: ends the shard. The next who gets its room is the one that has asked for it before."""
        import ray

        class Nobody:
            def is_there(self) -> bool:
                return True

        self._ray = ray
        self._actor: Any = ray.remote(Nobody).options(num_cpus=0, resources={resource: 1}).remote()
        kill()
        assert ray.get(self._actor.is_there.remote())

    def give_back(self) -> None:
        self._ray.kill(self._actor)


def in_a_thread(function: Callable[[], Any]) -> Callable[[], Any]:
    """Runs it; the function that is returned waits for what it returns."""
    made = list[Any]()

    def run() -> None:
        try:
            made.append(function())
        except BaseException as error:
            made.append(error)

    thread = threading.Thread(target=run)
    thread.start()

    def join() -> Any:
        thread.join()
        if isinstance(made[0], BaseException):
            raise made[0]
        return made[0]

    return join


def action(step: int) -> Any:
    return actions(step, range(NUM_ENVS))


def count(env: Any) -> tuple[int, int]:
    """How many episodes the env has begun, and how often it was asked."""
    env = env.unwrapped
    env.counted = getattr(env, "counted", 0) + 1
    return env.episode, env.counted


@pytest.mark.parametrize("faults", ["raise", "restart"])
def test_a_pool_starts_though_its_first_actors_never_ran(cluster: TwoNodes, faults: Any) -> None:
    where = remuda.Ray(backend="serial", resources={f"late {faults}": 1})
    pending = Pending()
    pool_of = in_a_thread(lambda: Pool([Scripted] * NUM_ENVS, backend=where, faults=faults))
    names = [pending.cancel_next() for _ in range(3)]
    assert len(set(names)) == 3
    cluster.add(resources={f"late {faults}": 1})
    with pool_of() as pool:
        assert pool.reset(seed=0).env_ids.tolist() == [0, 1]
        assert pool.stats().restarts == 0


def test_an_actor_that_can_never_run_is_given_up(cluster: TwoNodes) -> None:
    where = remuda.Ray(backend="serial", resources={"nowhere": 1})
    pending = Pending()
    pool_of = in_a_thread(lambda: Pool([Scripted], backend=where))
    for _ in range(8):
        pending.cancel_next()
    with pytest.raises(ShardDiedError, match=r"shard 0 .* died while in build"):
        pool_of()
    with pytest.raises(StartTimeoutError, match="got 1 that had not"):
        Pool([Scripted], backend=where, start_timeout=0.5)


def test_a_successor_that_never_ran_is_succeeded_by_one_that_does_all_that_it_was_sent(cluster: TwoNodes) -> None:
    with Pool([Scripted] * NUM_ENVS, backend="serial", faults="restart", **SEEDED) as twin:
        expected = [told(twin.reset(seed=3))]
        for step in range(STEPS):
            if step == KILL_AT:
                twin.apply(fail)
            expected.append(told(twin.step(action(step))))
    cluster.add(resources={"one": 1})
    pending, where = Pending(), remuda.Ray(backend="serial", resources={"one": 1})
    with Pool([Scripted] * NUM_ENVS, backend=where, faults="restart", **SEEDED) as pool:
        pending.skip()
        batches = [told(pool.reset(seed=3))]
        for step in range(STEPS):
            if step == KILL_AT:
                blocker = Blocker("one", lambda: kill_shard(pool, 0))
            elif step == KILL_AT + 1:
                call = pool.apply_async(count, about="count")
            pool.send(action(step))
            if step == KILL_AT + 1:
                pending.cancel_next()
                while not pending.names():  # the driver looks at what became of it
                    assert len(pool.recv(timeout=0)) == 0
                pending.cancel_next()
                blocker.give_back()
            batches.append(told(pool.recv()))
            if step == KILL_AT + 1:
                assert call.result() == [(0, 1)] * NUM_ENVS  # before the step, and once
        assert batches == expected
        assert pool.stats().restarts == 1


def test_rollouts_go_on_with_a_successor_of_one_that_never_ran(cluster: TwoNodes) -> None:
    cluster.add(resources={"two": 1})
    pending, where = Pending(), remuda.Ray(backend="serial", resources={"two": 1})
    with Pool([Scripted] * NUM_ENVS, backend=where, faults="restart", **SEEDED) as pool:
        pending.skip()
        pool.reset(seed=3)
        pids = pool.call("pid")
        with pool.rollouts(lambda obs: obs[:, 1].astype(int) % 5, steps=4) as rollouts:
            assert not next(rollouts).lost
            blocker = Blocker("two", lambda: os.kill(pids[0], signal.SIGKILL))
            lost = in_a_thread(lambda: next(rollout for rollout in rollouts if rollout.lost))
            pending.cancel_next()
            pending.cancel_next()
            blocker.give_back()
            assert [fault.env_id for fault in lost().lost] == [0, 1]
            assert pool.publish(lambda obs: obs[:, 1].astype(int) * 0) == 1
            while (rollout := next(rollouts)).policy_version == 0:
                pass
            assert (rollout.actions == 0).all()


def test_a_pool_that_is_made_as_soon_as_a_machine_was_lost(cluster: TwoNodes) -> None:
    """Ray has not noticed, and puts shards there."""
    for _ in range(3):
        cluster.kill_one()
        with Pool([Scripted] * 4, backend=remuda.Ray(shards=4, backend="serial")) as pool:
            assert pool.reset(seed=0).env_ids.tolist() == [0, 1, 2, 3]
            assert len({worker.node for worker in pool.workers}) > 1
