"""A Ray cluster of two nodes on this machine, for all tests of a run: it takes some seconds to come up."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from reaper import VARIABLE, who_has

STORE = 100 * 1024 * 1024  # bytes of each node's object store


class TwoNodes:
    """Two nodes of a cluster, and more where a test needs one to lose."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        head = {"num_cpus": 3, "object_store_memory": STORE, "include_dashboard": False}
        self._cluster = Cluster(initialize_head=True, head_node_args=head)
        self.others: list[Any] = []  # beside the head, which is the cluster's brain
        self.add()
        self.address: str = self._cluster.address
        self.head = str(self._cluster.head_node.node_id)

    def add(self, num_cpus: int = 3, **options: Any) -> None:
        """Another node, with these further options of `ray start`."""
        self.others.append(self._cluster.add_node(num_cpus=num_cpus, object_store_memory=STORE, **options))

    def remove_last(self) -> None:
        """Removes the node that was added last."""
        self._cluster.remove_node(self.others.pop())

    def kill_one_of(self, names: Iterable[str]) -> str:
        """One of these nodes, with all that runs on it; another one comes in its place. Returns its name."""
        name, node = next((name, node) for name in names for node in self.others if name.endswith(node.node_id[:8]))
        self._kill(node)
        return name

    def kill_one(self) -> None:
        """A node beside the head, with all that runs on it; another one comes in its place."""
        self._kill(self.others[0])

    def _kill(self, node: Any) -> None:
        """Ray has not noticed when this returns: for some seconds it still puts actors there."""
        self._cluster.remove_node(node, allow_graceful=False)
        self.others.remove(node)
        self.add()

    def shutdown(self) -> None:
        self._cluster.shutdown()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What is left behind here, is looked for below."""
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
    """No shard, and no worker of one, wherever on the machine it is. Ray's own processes come and go."""
    yield
    gc.collect()
    while shards():  # they end soon, or the watchdog tells of it
        pass


def shards() -> list[int]:
    return [pid for pid in who_has(f"{VARIABLE}={os.environ[VARIABLE]}") if _is_of_a_shard(pid)]


def _is_of_a_shard(pid: int) -> bool:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
        state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
    except OSError:
        return False
    if state == "Z" or int(parent) == os.getpid():  # the fork server of this process serves local pools
        return False
    return b"ShardActor" in command or b"remuda._backends" in command
