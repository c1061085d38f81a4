"""Workers, actors and machines are killed, one after another, for as long as one likes: `make soak`.

Among the other tests a few are.
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

import remuda
from remuda import FaultPolicy, Pool
from remuda.errors import Fault

MINUTES = float(os.environ.get("REMUDA_SOAK_MINUTES", "0"))  # of both; 0: a few kills
SEED = int(os.environ.get("REMUDA_SOAK_SEED", "0"))
NUM_ENVS, SHARDS, ALL = 6, 3, list(range(6))
POLICY = FaultPolicy("restart", max_restarts=10**6, backoff=0.0)


class Book:
    """What each env has shown last, and whose episodes were cut off.

    Attributes:
        episodes: Of each env, what its episodes are known by, in order.
        begun: Who has begun an episode since the last kill.
        steps: That were made since then, by env.
    """

    def __init__(self) -> None:
        self._last: dict[int, tuple[float, int]] = {}
        self.episodes: dict[int, list[float]] = {env: [] for env in ALL}
        self.begun, self.steps = set[int](), Counter[int]()

    def note(self, env: int, obs: Any, *, repeats: bool) -> None:
        """`repeats`: the last observation once more, though it may be the first one of another episode."""
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
        victims: The envs whose episodes the latest kill has cut off.
        kills: How many there were, by kind.
    """

    def __init__(self, pool: Pool, cluster: TwoNodes, kinds: tuple[str, ...]) -> None:
        self._pool, self._cluster = pool, cluster
        self._kinds, self._random = itertools.cycle(kinds), random.Random(SEED)
        self.victims, self.kills = set[int](), Counter[str]()

    def strike(self) -> None:
        kind, workers = next(self._kinds), self._pool.workers
        victim = self._random.choice(workers)
        if kind == "worker":
            its = [victim]
            os.kill(victim.pid, signal.SIGKILL)
        elif kind == "actor":
            its = [worker for worker in workers if worker.shard == victim.shard]
            os.kill(actor_of(victim.pid), signal.SIGKILL)
        else:
            its = [worker for worker in workers if not worker.node.endswith(self._cluster.head[:8])]
            if its:  # else all have come to be on the head, which is the cluster's brain
                node = self._cluster.kill_one_of([worker.node for worker in its])
                its = [worker for worker in its if worker.node == node]
        self.victims = {env for worker in its for env in worker.env_ids}
        self.kills[kind] += 1


def actor_of(pid: int) -> int:
    """The actor that a worker is of: one of its ancestors."""
    while b"ShardActor" not in Path(f"/proc/{pid}/cmdline").read_bytes():
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return pid


def rounds(killer: Killer, book: Book) -> Iterator[None]:
    """One for each kill; the next one comes when the last one's envs are back."""
    end = time.monotonic() + MINUTES * 60 / 2
    for number in itertools.count():
        if time.monotonic() > end and number >= 2:
            return
        book.turn_page()
        killer.strike()
        yield
        assert book.begun == killer.victims


KINDS = ("worker", "actor", "node") if MINUTES else ("worker", "actor")


@pytest.mark.watchdog(180 + 60 * MINUTES)
def test_steps_go_on_whoever_is_killed(cluster: TwoNodes) -> None:
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
                    book.note(env, batch.obs[i], repeats=bool(batch.truncated[i]))
                    if batch.truncated[i]:
                        faults.append(batch.infos[i]["fault"])
                busy -= set(batch.env_ids.tolist())
                if book.begun != killer.victims:
                    pool.send([0] * len(batch), batch.env_ids)
                    busy |= set(batch.env_ids.tolist())
            assert sorted(fault.env_id for fault in faults) == sorted(killer.victims)
            assert all(book.steps[env] for env in set(ALL) - killer.victims)
        check_episodes(book)
        print(dict(killer.kills), pool.stats().restarts)


@pytest.mark.watchdog(180 + 60 * MINUTES)
def test_rollouts_go_on_whoever_is_killed(cluster: TwoNodes) -> None:
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
    """Each env has had its episodes in their order, and none twice."""
    with Pool([Endless] * NUM_ENVS, backend="serial", seeding="per_episode") as twin:
        expected = [twin.reset(seed=3).obs[:, 0].tolist()]
        while len(expected) < max(map(len, book.episodes.values())):
            expected.append(twin.reset().obs[:, 0].tolist())
    for env, episodes in book.episodes.items():
        assert episodes == [draws[env] for draws in expected[: len(episodes)]]
