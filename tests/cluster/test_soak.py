"""Workers, actors and machines are killed one after another, for as long as `make soak` sets.

An ordinary test run has a few kills.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cluster.conftest import TwoNodes
from cluster_envs import Endless
from drawn import MINUTES, SEED

import remuda
from remuda import FaultPolicy, Pool
from remuda.errors import Fault

pytestmark = pytest.mark.usefixtures("cluster" if MINUTES else "kept_actors")

NUM_ENVS, SHARDS, ALL = 6, 3, list(range(6))
POLICY = FaultPolicy("restart", max_restarts=10**6, backoff=0.0)


class Book:
    """Records the last observation of each env, and checks that it continues the episode.

    Attributes:
        episodes: For each env, the random draw that identifies each of its episodes, in order.
        begun: The envs that have begun an episode since the last kill.
        steps: The number of steps of each env since the last kill.
    """

    def __init__(self) -> None:
        self._last: dict[int, tuple[float, int]] = {}
        self.episodes: dict[int, list[float]] = {env: [] for env in ALL}
        self.begun, self.steps = set[int](), Counter[int]()

    def note(self, env: int, obs: Any, *, repeats: bool) -> None:
        """With `repeats`, the observation is the last one again, or the first one of a new episode."""
        draw, step = float(obs[0]), int(obs[1])
        episode, last = self._last.get(env, (None, -1))
        if step == 0 and draw != episode:
            self.begun.add(env)
            self.episodes[env].append(draw)
        else:
            assert (draw, step) == (episode, last if repeats else last + 1), env
            self.steps[env] += not repeats
        self._last[env] = draw, step

    def turn_page(self) -> None:
        self.begun, self.steps = set(), Counter()


class Killer:
    """Kills workers, actors and nodes in turn.

    Attributes:
        victims: The envs of the last kill. Their episodes are cut off.
        kills: The number of kills of each kind.
    """

    def __init__(self, pool: Pool, cluster: TwoNodes, kinds: tuple[str, ...]) -> None:
        self._pool, self._cluster = pool, cluster
        self._kinds, self._random = itertools.cycle(kinds), random.Random(SEED)
        self.victims, self.kills = set[int](), Counter[str]()

    def strike(self) -> None:
        kind, workers = next(self._kinds), self._pool.workers
        victim = self._random.choice(workers)
        if kind == "worker":
            hit = [victim]
            os.kill(victim.pid, signal.SIGKILL)
        elif kind == "actor":
            hit = [worker for worker in workers if worker.shard == victim.shard]
            os.kill(actor_of(victim.pid), signal.SIGKILL)
        else:
            hit = [worker for worker in workers if not worker.node.endswith(self._cluster.head[:8])]
            if hit:  # otherwise all workers are on the head, which must live because it manages the cluster
                node = self._cluster.kill_one_of([worker.node for worker in hit])
                hit = [worker for worker in hit if worker.node == node]
        self.victims = {env for worker in hit for env in worker.env_ids}
        self.kills[kind] += 1


def actor_of(pid: int) -> int:
    """Returns the actor of a worker, which is one of its ancestors."""
    while b"ShardActor" not in Path(f"/proc/{pid}/cmdline").read_bytes():
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return pid


def rounds(killer: Killer, book: Book) -> Iterator[None]:
    """Yields after each kill. The next kill follows when the envs of the last one have begun new episodes."""
    end = time.monotonic() + MINUTES * 60 / 2
    for number in itertools.count():
        if time.monotonic() > end and number >= 2:
            return
        book.turn_page()
        killer.strike()
        yield
        assert book.begun == killer.victims


KINDS = ("worker", "actor", "node") if MINUTES else ("worker", "actor")


@pytest.mark.watchdog(600 + 60 * MINUTES)
def test_steps_continue_after_any_kill(cluster: TwoNodes) -> None:
    book = Book()
    with pool_on(cluster) as pool:
        killer = Killer(pool, cluster, KINDS)
        first = pool.reset(seed=3)
        for env in ALL:
            book.note(env, first.obs[env], repeats=False)
        for _ in rounds(killer, book):
            pool.send([0] * NUM_ENVS)
            busy, faults = set(ALL), list[Fault]()
            while busy or book.begun != killer.victims:
                batch = pool.recv(min_envs=1)
                for i, env in enumerate(batch.env_ids.tolist()):
                    book.note(env, batch.obs[i], repeats=bool(batch.truncations[i]))
                    if batch.truncations[i]:
                        faults.append(batch.infos[i]["fault"])
                busy -= set(batch.env_ids.tolist())
                if book.begun != killer.victims:
                    pool.send([0] * len(batch), batch.env_ids)
                    busy |= set(batch.env_ids.tolist())
            assert sorted(fault.env_id for fault in faults) == sorted(killer.victims)
            assert all(book.steps[env] for env in set(ALL) - killer.victims)
        check_episodes(book)
        print(dict(killer.kills), pool.stats().restarts)


@pytest.mark.watchdog(600 + 60 * MINUTES)
def test_rollouts_continue_after_any_kill(cluster: TwoNodes) -> None:
    book = Book()
    with pool_on(cluster) as pool:
        killer = Killer(pool, cluster, KINDS)
        pool.reset(seed=3)
        with pool.rollouts(lambda obs: np.zeros(len(obs), int), steps=16) as rollouts:
            for shard in range(SHARDS):
                while not book.episodes[shard * 2]:
                    enter(book, next(rollouts))
            for _ in rounds(killer, book):
                while book.begun != killer.victims or not all(book.steps[env] for env in ALL):
                    enter(book, next(rollouts))
                    assert book.begun <= killer.victims
        check_episodes(book)
        print(dict(killer.kills))


def enter(book: Book, rollout: Any) -> None:
    for i, env in enumerate(rollout.env_ids.tolist()):
        for t in range(rollout.steps + 1):
            repeats = t == 0 or bool(rollout.truncations[t - 1, i])
            book.note(env, rollout.obs[t, i], repeats=repeats)


def pool_on(cluster: TwoNodes) -> Pool:
    where = remuda.Ray(shards=SHARDS)
    return Pool([Endless] * NUM_ENVS, backend=where, faults=POLICY, seeding="per_episode", num_workers=2)


def check_episodes(book: Book) -> None:
    """Checks that each env has played its episodes in order, each once."""
    with Pool([Endless] * NUM_ENVS, backend="serial", seeding="per_episode") as twin:
        expected = [twin.reset(seed=3).obs[:, 0].tolist()]
        while len(expected) < max(map(len, book.episodes.values())):
            expected.append(twin.reset().obs[:, 0].tolist())
    for env, episodes in book.episodes.items():
        assert episodes == [draws[env] for draws in expected[: len(episodes)]]
