"""A Ray cluster of two nodes on this machine. All tests of a run share it, because it takes seconds to start."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from programs import Watched
from reaper import VARIABLE, processes_with

STORE = 100 * 1024 * 1024  # bytes in each node's object store


class TwoNodes:
    """A cluster of two nodes. Tests can add nodes and kill them."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        head = {"num_cpus": 3, "object_store_memory": STORE, "include_dashboard": False}
        self._cluster = Cluster(initialize_head=True, head_node_args=head)
        self.others: list[Any] = []  # all nodes but the head, which must not be killed because it manages the cluster
        self.add()
        self.address: str = self._cluster.address
        self.head = str(self._cluster.head_node.node_id)

    def add(self, num_cpus: int = 3, **options: Any) -> None:
        """Adds a node with these options of `ray start`."""
        self.others.append(self._cluster.add_node(num_cpus=num_cpus, object_store_memory=STORE, **options))

    def remove_last(self) -> None:
        """Removes the node that was added last."""
        self._cluster.remove_node(self.others.pop())

    def kill_one_of(self, names: Iterable[str]) -> str:
        """Kills the first of these nodes that is not the head, adds a new node, and returns the killed node's name."""
        name, node = next((name, node) for name in names for node in self.others if name.endswith(node.node_id[:8]))
        self._kill(node)
        return name

    def kill_one(self) -> None:
        """Kills a node that is not the head, and adds a new node."""
        self._kill(self.others[0])

    def _kill(self, node: Any) -> None:
        """Kills a node and adds a new one. For some seconds, Ray still schedules actors on the killed node."""
        self._cluster.remove_node(node, allow_graceful=False)
        self.others.remove(node)
        self.add()

    def shutdown(self) -> None:
        self._cluster.shutdown()


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


@pytest.fixture(autouse=True)
def nothing_left_on_the_cluster() -> Iterator[None]:
    """Waits until no shard and no worker of a shard runs on this machine."""
    yield
    gc.collect()
    while left := shards():  # they end soon; otherwise the watchdog reports the test
        Watched(left).await_end()


def shards() -> list[int]:
    return [pid for pid in processes_with(f"{VARIABLE}={os.environ[VARIABLE]}") if _is_of_a_shard(pid)]


def _is_of_a_shard(pid: int) -> bool:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
        state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
    except OSError:
        return False
    if state == "Z" or int(parent) == os.getpid():  # this process's own fork server serves local pools
        return False
    return b"ShardActor" in command or b"remuda._backends" in command
