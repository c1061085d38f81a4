"""Envs that fail in their first rebuild, and the reports of these faults."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import accidents
import pytest
from accidents import once
from failing import limit_builds_of_successors
from pool_envs import Gate, HookedEnv, begun, hooked

from remuda import EnvError, Fault, FaultPolicy, Pool, RestartLimitError, StartTimeoutError, WorkerDiedError

ONE = FaultPolicy("restart", max_restarts=1, backoff=0)


def spoilt_when_built_again(directory: Path, accident: accidents.Accident, gate: Gate) -> list[Any]:
    """Returns two envs. Env 1 dies in its first step; its successor waits at the gate and then has the accident."""

    def fail(*args: Any) -> None:
        gate.wait()
        accident(*args)

    hooks = {
        "build": once(directory / "accident", fail, skip=1),
        "step": once(directory / "reason", accidents.kill_myself),
    }
    return hooked(2, which=(1,), **hooks)


KEPT: list[Fault] = []


@pytest.mark.parametrize(
    ("accident", "kind", "cause"),
    [
        (accidents.kill_myself, "death", WorkerDiedError),
        (accidents.raise_value_error, "exception", EnvError),
        (accidents.stop_myself, "timeout", StartTimeoutError),
    ],
)
def test_a_failed_rebuild_is_reported_with_its_kind(
    accident: accidents.Accident, kind: str, cause: type[Exception], tmp_path: Path
) -> None:
    gate = Gate(tmp_path)
    with Pool(spoilt_when_built_again(tmp_path, accident, gate), faults=ONE, start_timeout=60) as pool:
        if kind == "timeout":
            limit_builds_of_successors(pool)
        pool.reset()
        assert pool.step([1, 1]).truncations.tolist() == [False, True]
        gate.let_pass()
        with pytest.raises(RestartLimitError) as raised:
            pool.step([1, 1])
    KEPT[:] = raised.value.faults  # a fixture of all tests checks that they hold no memory of the pool
    assert [(fault.kind, fault.operation) for fault in KEPT] == [("death", "step"), (kind, "build")]
    assert isinstance(raised.value.__cause__, cause)
    del raised


def test_a_failed_rebuild_names_the_env_at_fault(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    env_fns = spoilt_when_built_again(tmp_path, accidents.raise_value_error, gate)
    with begun(env_fns, num_workers=1, faults=ONE) as pool:
        pool.step([1, 1])
        gate.let_pass()
        with pytest.raises(RestartLimitError) as raised:
            pool.step([1, 1])
    build = [fault for fault in raised.value.faults if fault.operation == "build"]
    assert [(fault.env_id, fault.shared) for fault in build] == [(0, True), (1, False)]


def test_a_worker_with_a_full_ring_can_be_sent_a_rebuild(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    spoil = [once(tmp_path / f"accident {i}", accidents.raise_value_error) for i in range(2)]

    def reset(env: HookedEnv) -> None:
        if env.tag == 0 and not (tmp_path / "accident 0.0").exists():
            gate.wait()
        spoil[env.tag]()

    with Pool(hooked(2, which=(0, 1), reset=reset), num_workers=1, faults="restart") as pool:
        pool.send_reset()
        gate.await_arrival()
        calls = []
        while pool._engine.running.workers.has_room(0):
            calls.append(pool.call_async("echo", len(calls), env_ids=[0]))
        gate.open()
        assert pool.recv().obs[:, 1:].tolist() == [[1, 0, -1], [1, 0, -1]]
        assert [call.result() for call in calls] == [[((i,), {})] for i in range(len(calls))]


def test_an_env_that_fails_before_the_close_is_not_rebuilt(tmp_path: Path) -> None:
    build = once(tmp_path / "built", lambda *_: None, skip=1)
    pool = Pool(hooked(1, which=(0,), build=build, step=accidents.raise_value_error), faults="restart")
    pool.reset()
    pool.send([1])  # the env fails, and no call receives its result before the close
    pool.close(timeout=1e6)
    assert [path.name for path in tmp_path.iterdir()] == ["built.0"]
