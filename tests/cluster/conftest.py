"""A Ray cluster of two nodes on this machine. All tests of a run share it, because it takes seconds to start."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from programs import Watched
from reaper import VARIABLE, processes_with

PATIENCE = 5.0  # seconds for an actor to close its envs; Ray may not notice for long that it has died
STORE = 100 * 1024 * 1024  # bytes in each node's object store
# Ray ends actors of a killed node after three of these checks have failed. Its defaults take half a minute. At Ray's
# own niceness of 15, an actor gets next to nothing of a busy core: it starts and ends minutes late.
SETTINGS = {"health_check_period_ms": 1000, "health_check_failure_threshold": 3, "worker_niceness": 0}


class TwoNodes:
    """A cluster of two nodes, of which tests can kill the second one.

    Attributes:
        others: All nodes but the head. The head manages the cluster, so it must not be killed. It has one "seat", a
            resource for which shards can be made to wait.
        kept: The actors that later tests use.
    """

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        head = {"num_cpus": 3, "object_store_memory": STORE, "include_dashboard": False, "resources": {"seat": 1}}
        self._cluster = Cluster(initialize_head=True, head_node_args={**head, "_system_config": SETTINGS})
        self.others: list[Any] = []
        self._add()
        self.address: str = self._cluster.address
        self.head = str(self._cluster.head_node.node_id)
        self.kept = KeptActors()

    def _add(self) -> None:
        self.others.append(self._cluster.add_node(num_cpus=3, object_store_memory=STORE))

    def kill_one_of(self, names: Iterable[str]) -> str:
        """Kills the first of these nodes that is not the head, and returns its name. A new node takes its place.

        For some seconds, Ray still schedules actors on the killed node.
        """
        name, node = next((name, node) for name in names for node in self.others if name.endswith(node.node_id[:8]))
        self._add()
        self._cluster.remove_node(node, allow_graceful=False)
        self.others.remove(node)
        return name

    def shutdown(self) -> None:
        self._cluster.shutdown()


class KeptActors:
    """Passes the actors of closed pools on to later pools, because an actor takes seconds to start.

    These actors request no resources of the cluster.
    """

    def __init__(self) -> None:
        self._free: list[tuple[Any, Any]] = []  # actors, and references to their process ids

    def start(self, start: Any, cluster: Any, shard: int, generation: int, name: str) -> Any:
        """Replaces `Cluster.start`, which is the argument `start`."""
        self.pids()
        if not self._free:
            cluster._where = replace(cluster._where, cpus_per_shard=0.001)
            return start(cluster, shard, generation, name)
        actor, _ = self._free.pop()
        actor.__ray_call__.remote(_begin, shard, generation)
        return actor

    def kill(self, actor: Any) -> None:
        """Replaces `Cluster.kill`."""
        self._free.append((actor, actor.__ray_call__.remote(_end)))

    def pids(self) -> list[int]:
        """Returns the process ids of the actors that can be passed on, and ends those that do not answer."""
        import ray

        found, free = list[int](), []
        for actor, ref in self._free:
            try:
                found.append(ray.get(ref, timeout=PATIENCE))
                free.append((actor, ref))
            except ray.exceptions.RayError:
                ray.kill(actor)
        self._free = free
        return found


def _begin(actor: Any, shard: int, generation: int) -> None:
    actor.__init__(shard, generation)


def _end(actor: Any) -> int:
    actor.close(0)
    actor.__init__(0, 0)
    gc.collect()
    return os.getpid()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Exempts the tests in this folder from the general check for leftovers. The fixture below replaces it."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.leaves_things)


@pytest.fixture(scope="session")
def cluster() -> Iterator[TwoNodes]:
    ray = pytest.importorskip("ray", reason="Ray is not installed: nothing here was tested on a cluster")
    nodes = TwoNodes()
    ray.init(address=nodes.address, log_to_driver=False, logging_level="ERROR")
    yield nodes
    ray.shutdown()
    nodes.shutdown()


@pytest.fixture
def kept_actors(cluster: TwoNodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives the test the actors of earlier tests. For tests that are not about the start or the end of actors."""
    from remuda._cluster.ray.actors import Cluster

    start = Cluster.start
    monkeypatch.setattr(Cluster, "start", lambda *arguments: cluster.kept.start(start, *arguments))
    monkeypatch.setattr(Cluster, "kill", lambda _, actor: cluster.kept.kill(actor))


@pytest.fixture(autouse=True)
def nothing_left_on_the_cluster(request: pytest.FixtureRequest) -> Iterator[None]:
    """Waits until no shard and no worker of a shard runs on this machine, except actors that are kept."""
    yield
    gc.collect()
    if "cluster" in request.fixturenames:
        kept = request.getfixturevalue("cluster").kept
        while left := shards(kept.pids()):  # they end soon; otherwise the watchdog reports the test
            Watched(left).await_end()


def shards(kept: Iterable[int] = ()) -> list[int]:
    """Returns the ids of the actors that run on this machine, their workers and fork servers.

    `kept`: the ids of actors that are left out. Their fork servers are left out, too.
    """
    all_ids = processes_with(f"{VARIABLE}={os.environ[VARIABLE]}")
    return [pid for pid in all_ids if pid not in kept and _is_of_a_shard(pid, kept)]


def _is_of_a_shard(pid: int, kept: Iterable[int]) -> bool:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
        state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
    except OSError:
        return False
    if state == "Z" or int(parent) in (os.getpid(), *kept):  # this process's own fork server serves local pools
        return False
    return b"ShardActor" in command or b"remuda._backends" in command
