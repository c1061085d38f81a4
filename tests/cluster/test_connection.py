"""The connection to a cluster, the placement of shards, errors that name the cause, and the end of the driver."""

from __future__ import annotations

import gc
import os
import re
import socket
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cluster.conftest import TwoNodes, shards
from cluster_envs import Scripted
from programs import Script, Watched, end_process
from reaper import VARIABLE, processes_with

import remuda
from remuda import Pool, StartTimeoutError


def importing(name: str) -> Callable[[], Any]:
    """Returns a factory that imports a module which the driver does not have."""

    def make() -> Any:
        env: Any = Scripted()
        env.found = __import__(name).FOUND
        return env

    return make


def test_local_folders_in_a_runtime_env_are_uploaded(cluster: TwoNodes, tmp_path: Path) -> None:
    for folder in ("only_in_working_dir", "modules/only_in_py_modules"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "__init__.py").write_text("FOUND = 7")
    runtime_env = {"working_dir": str(tmp_path), "py_modules": [str(tmp_path / folder)]}
    where = remuda.Ray(backend="serial", runtime_env=runtime_env)
    with Pool([importing("only_in_working_dir"), importing("only_in_py_modules")], backend=where) as pool:
        assert pool.get_attr("found") == [7, 7]


def test_a_runtime_env_that_fails_is_reported_with_rays_reason(cluster: TwoNodes) -> None:
    where = remuda.Ray(backend="serial", runtime_env={"working_dir": "file:///nowhere/at/all.zip"})
    with pytest.raises(ValueError, match="expected a runtime_env that Ray can set up: shard 0 .*all.zip"):
        Pool([Scripted], backend=where, faults="restart")


def test_a_start_that_takes_too_long_names_what_each_shard_waits_for(
    cluster: TwoNodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Clock:
        """Shows the time, and a later time once the slow env is being built."""

        def monotonic(self) -> float:
            return time.monotonic() + 1000 * (tmp_path / "began").exists()

    def slow() -> Any:
        (tmp_path / "began").touch()
        while True:
            pass

    monkeypatch.setattr("remuda._cluster.driver.start_wait.time", Clock())
    hint = "; give them more time with start_timeout="
    with pytest.raises(
        StartTimeoutError, match=rf"1 that had not: shard 0 is still building its envs on node \S+{hint}"
    ):
        Pool([slow], backend=remuda.Ray(backend="serial"), start_timeout=500)
    monkeypatch.undo()
    with pytest.raises(StartTimeoutError, match="shard 0 waits for 1 CPU, 2 GPU, and no machine of the cluster has 1"):
        Pool([Scripted], backend=remuda.Ray(backend="serial", gpus_per_shard=2), start_timeout=0.5)
    where = remuda.Ray(shards=2, backend="serial", resources={"seat": 1})
    with pytest.raises(StartTimeoutError, match="waits for 1 CPU, 1 seat to become free"):
        Pool([Scripted] * 2, backend=where, start_timeout=0.5)


def test_a_request_that_no_machine_can_meet_fails_without_a_timeout(
    cluster: TwoNodes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("remuda._cluster.driver.start_wait._JOINING", 1.5)
    with pytest.raises(StartTimeoutError, match="expected a cluster with room .* no machine of the cluster has 99 CPU"):
        Pool([Scripted], backend=remuda.Ray(backend="serial", cpus_per_shard=99), start_timeout=None)
    assert "no machine of the cluster has 99 CPU, which a shard needs" in caplog.text


@pytest.mark.usefixtures("kept_actors")
def test_an_address_other_than_the_connections_is_refused(cluster: TwoNodes) -> None:
    port = int(cluster.address.rpartition(":")[2])
    for address in ("auto", cluster.address, f"localhost:{port}"):
        Pool([Scripted], backend=remuda.Ray(backend="serial", address=address)).close()
    with pytest.raises(
        ValueError, match=rf"this process is connected to, {cluster.address}, or None, got '10.9.9.9:1'"
    ):
        Pool([Scripted], backend=remuda.Ray(address="10.9.9.9:1"))


def test_shards_stay_in_a_placement_group_and_follow_a_scheduling_strategy(cluster: TwoNodes) -> None:
    import ray
    from ray.util.placement_group import placement_group, remove_placement_group
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

    def trial() -> set[Any]:
        with Pool([Scripted] * 2, backend=remuda.Ray(shards=2, backend="serial")) as pool:
            pool.reset()
            return set(pool.apply(group_of))

    group = placement_group([{"CPU": 1}] * 3)
    try:
        strategy = PlacementGroupSchedulingStrategy(group, placement_group_capture_child_tasks=True)
        task = ray.remote(trial).options(num_cpus=1, scheduling_strategy=strategy, runtime_env=PATHS)
        assert ray.get(task.remote()) == {group.id.hex()}
        where = remuda.Ray(shards=2, backend="serial", placement=group)
        with Pool([Scripted] * 2, backend=where) as pool:
            assert set(pool.apply(group_of)) == {group.id.hex()}
        with pytest.raises(ValueError, match="a bundle for each of 4 shards, got 3 bundles"):
            Pool([Scripted] * 4, backend=remuda.Ray(shards=4, placement=group))
    finally:
        remove_placement_group(group)
    affinity = NodeAffinitySchedulingStrategy(cluster.head, soft=False)
    with Pool([Scripted] * 2, backend=remuda.Ray(shards=2, backend="serial", placement=affinity)) as pool:
        assert {worker.node.rpartition("-")[2] for worker in pool.workers} == {cluster.head[:8]}


PATHS = {"env_vars": {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1])])}}


def group_of(env: Any) -> str:
    """Returns the placement group of the env's process."""
    import ray

    return str(ray.get_runtime_context().get_placement_group_id())


def test_an_address_without_a_cluster_is_reported_at_once(script: Callable[..., Script]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    program = script(f"""
import remuda
from cluster_envs import Scripted

try:
    Pool([Scripted], backend=Ray(address="127.0.0.1:{port}"))
except remuda.StartTimeoutError as error:
    say(str(error))
""")
    assert f"expected a Ray cluster at address='127.0.0.1:{port}', got" in program.read_line()


def test_a_pool_leaves_the_users_connection_open(cluster: TwoNodes, script: Callable[..., Script]) -> None:
    """A pool on a running cluster leaves the connection open. If the user shuts it down, the pool's error names the
    cause."""
    program = script(f"""
import ray
import remuda
from cluster_envs import Scripted

pool = Pool([Scripted], backend=Ray(backend="serial", address={cluster.address!r}))
kept = ray.put("kept")
pool.close()
say(ray.get(kept))
pool = Pool([Scripted], backend=Ray(backend="serial"))
pool.reset()
ray.shutdown()
for call in (lambda: pool.step([0]), pool.stats):
    try:
        call()
    except remuda.BrokenPoolError as error:
        say(str(error))
pool.close()
say([ray.is_initialized(), pool.closed])
""")
    assert program.read_line() == "kept"
    for _ in range(2):
        assert "the connection to Ray was shut down" in program.read_line()
    assert program.read_line() == [False, True]


@pytest.mark.parametrize(
    ("raised", "error", "text"),
    [
        (RuntimeError("no port is free"), StartTimeoutError, "to connect to a Ray cluster, got RuntimeError after"),
        (ConnectionError("nobody"), StartTimeoutError, "to connect to a Ray cluster, got ConnectionError after"),
        (ValueError("pip and uv"), ValueError, "expected arguments that ray.init accepts, got ray.init("),
    ],
)
def test_an_error_of_ray_init_names_its_arguments(
    raised: Exception, error: type[Exception], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray = pytest.importorskip("ray")

    def refuse(**_: Any) -> None:
        raise raised

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", refuse)
    with pytest.raises(error, match=re.escape(text)) as found:
        Pool([Scripted], backend=remuda.Ray(address="local", runtime_env={"pip": []}))
    assert "address='local'" in str(found.value) and "runtime_env={'pip': []}" in str(found.value)
    assert found.value.__cause__ is raised


def test_nothing_outlives_the_driver(cluster: TwoNodes, script: Callable[..., Script]) -> None:
    program = script(f"""
from cluster_envs import Scripted

pool = Pool([Scripted] * 4, backend=Ray(shards=2, cpus_per_shard=2, address={cluster.address!r}), faults="restart")
policy = lambda obs: [0] * len(obs)
pool.reset(seed=0)
say(pids(pool))
for rollout in pool.rollouts(policy, steps=64):
    pool.publish(policy)
""")
    workers = program.read_line()
    ours = Watched(shards(cluster.kept.pids()))
    assert len(workers) == 4 and len(ours.pids) >= 4 + 2  # the workers, two actors and their fork servers
    assert set(workers) <= set(ours.pids) & set(with_arenas())
    end_process(program.process.pid)
    ours.await_end()
    assert with_arenas() == []


@pytest.mark.usefixtures("kept_actors")
def test_a_dropped_pool_is_freed_without_a_collection() -> None:
    gc.collect()
    gc.disable()
    try:
        pool = Pool([Scripted] * 2, backend=remuda.Ray(shards=2, backend="serial"), faults="restart")
        pool.reset(seed=0)
        gone = weakref.ref(pool)
        del pool
        assert gone() is None
    finally:
        gc.enable()


def with_arenas() -> list[int]:
    """Returns the ids of this run's processes that map a pool's memory."""
    return [pid for pid in processes_with(f"{VARIABLE}={os.environ[VARIABLE]}") if "/memfd:remuda" in _maps(pid)]


def _maps(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/maps").read_text()
    except OSError:
        return ""  # the process has just ended
