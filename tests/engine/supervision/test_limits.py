"""Limits of the number of faults, the behaviour after the last allowed one, and rebuilds that fail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import accidents
import pytest
from accidents import once, raise_value_error
from failing import limit_builds_of_successors
from pool_envs import Gate, HookedEnv, begun, counting, hooked
from programs import kill

from remuda import (
    BrokenPoolError,
    EnvError,
    Fault,
    FaultPolicy,
    Pool,
    RestartLimitError,
    StartTimeoutError,
    WorkerDiedError,
)


def policy(**options: Any) -> FaultPolicy:
    return FaultPolicy("restart", **{"backoff": 0, **options})


@pytest.mark.parametrize("max_restarts", [0, 3])
def test_an_env_that_fails_too_often_is_raised_with_all_its_faults(max_restarts: int) -> None:
    env_fns = hooked(3, step=raise_value_error)
    with begun(env_fns, faults=policy(max_restarts=max_restarts), autoreset="same_step") as pool:
        for _ in range(max_restarts):
            assert pool.step([1, 1, 1]).truncations.tolist() == [False, True, False]
        message = f"more faults than max_restarts={max_restarts} of one env"
        with pytest.raises(RestartLimitError, match=message) as raised:
            pool.step([1, 1, 1])
        history = raised.value.faults
        assert [(fault.env_id, fault.kind) for fault in history] == [(1, "exception")] * (max_restarts + 1)
        assert isinstance(raised.value.__cause__, EnvError)
        assert str(raised.value).count("raised ValueError in step: broken") == max_restarts + 1
        batch = pool.recv()  # results of the other envs can still be received
        assert (sorted(batch.env_ids.tolist()), batch.obs[:, 2].tolist()) == ([0, 2], [max_restarts + 1] * 2)
        with pytest.raises(BrokenPoolError, match="env 1 was lost") as broken:
            pool.step([1, 1, 1])
        assert broken.value.__cause__ is raised.value
        assert len(pool.step([1, 1], env_ids=[0, 2])) == 2


@pytest.mark.parametrize("lost", [0, 1])
def test_a_worker_with_a_lost_env_is_restarted_for_the_other_envs(lost: int) -> None:
    env_fns = hooked(3, which=[lost], step=raise_value_error)
    other_ids = [env for env in range(3) if env != lost]
    with begun(env_fns, num_workers=1, faults=policy(max_restarts=1)) as pool:
        with pytest.raises(RestartLimitError, match="max_restarts=1"):
            for _ in range(4):
                pool.step([1, 1, 1])
        pool.discard()
        kill(pool, 0)
        batch = pool.step([2, 2], env_ids=other_ids)
        assert batch.truncations.tolist() == [True, True]
        assert {info["fault"].env_id for info in batch.infos} == set(other_ids)
        assert pool.step([2, 2], env_ids=other_ids).obs[:, 2].tolist() == [0, 0]
        assert pool.step([2, 2], env_ids=other_ids).obs[:, 2].tolist() == [1, 1]
        with pytest.raises(BrokenPoolError, match=f"env {lost} was lost"):
            pool.step([1, 1, 1])


def test_deaths_count_for_each_env_of_the_worker() -> None:
    with begun(counting(4), num_workers=2, faults=policy(max_restarts=1), autoreset="same_step") as pool:
        kill(pool, 0)
        assert pool.step([1] * 4).truncations.tolist() == [True, True, False, False]
        kill(pool, 0)
        with pytest.raises(RestartLimitError) as raised:
            pool.step([2] * 4)
        assert [(fault.env_id, fault.shared) for fault in raised.value.faults] == [(0, False), (1, True)] * 2
        assert str(raised.value).count("\n  ") == 2  # each death once
        assert isinstance(raised.value.__cause__, WorkerDiedError)
        if pool.pending:  # the death was noticed after the step was sent
            assert pool.recv().env_ids.tolist() == [2, 3]
        with pytest.raises(BrokenPoolError, match="env 0 was lost"):
            pool.call("pid")


def test_the_pool_as_a_whole_has_a_limit() -> None:
    with begun(counting(3), faults=policy(max_pool_restarts=2), autoreset="same_step") as pool:
        for worker in (0, 1):
            kill(pool, worker)
            assert pool.step([1] * 3).truncations[worker]
        kill(pool, 2)
        with pytest.raises(RestartLimitError, match="max_pool_restarts=2") as raised:
            pool.step([1] * 3)
        assert [fault.env_id for fault in raised.value.faults] == [0, 1, 2]


def test_faults_before_the_period_do_not_count() -> None:
    """The period is so short that it never contains two faults."""
    env_fns = hooked(1, which=[0], step=raise_value_error)
    with begun(env_fns, backend="serial", faults=policy(max_restarts=1, period=1e-9)) as pool:
        for _ in range(5):
            assert pool.step([1]).truncations[0]
            pool.step([1])


def test_delays_double_up_to_a_limit() -> None:
    patient = FaultPolicy("restart", backoff=0.5, max_backoff=3)
    assert [patient.delay(number) for number in range(6)] == [0, 0.5, 1, 2, 3, 3]
    assert patient.delay(10**6) == 3
    assert FaultPolicy("restart", backoff=0).delay(9) == 0


def test_a_second_restart_waits(tmp_path: Path) -> None:
    """The delay before the restart ends only with the close. Meanwhile the other env steps."""
    with begun(counting(2), faults=policy(backoff=1e6, max_backoff=1e6), autoreset="next_step") as pool:
        for _ in range(2):
            kill(pool, 1)
            assert pool.step([1, 1]).truncations[1]
            pool.send([1, 1])
            pool.recv(min_envs=1 if _ else 2)
        assert pool.recv(timeout=0).env_ids.tolist() == []
        assert pool.pending == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"on_fault": "retry"}, "on_fault"),
        ({"step_timeout": 0}, "step_timeout to be more than 0, or None"),
        ({"reset_timeout": -1}, "reset_timeout"),
        ({"call_timeout": float("nan")}, "call_timeout"),
        ({"max_restarts": -1}, "max_restarts"),
        ({"max_restarts": 1.5}, "max_restarts"),
        ({"max_pool_restarts": True}, "max_pool_restarts"),
        ({"period": 0}, "period"),
        ({"backoff": -1}, "backoff"),
        ({"max_backoff": None}, "max_backoff"),
        ({"renew_every": 0}, "renew_every"),
    ],
)
def test_wrong_fault_policies_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=f"expected {message}"):
        FaultPolicy(**options)


# -- rebuilds that fail ----------------------------------------------------------------------------------


ONE = FaultPolicy("restart", max_restarts=1, backoff=0)
KEPT: list[Fault] = []


@pytest.mark.parametrize(
    ("accident", "num_workers", "kind", "cause"),
    [
        (accidents.kill_myself, 2, "death", WorkerDiedError),
        (accidents.raise_value_error, 2, "exception", EnvError),
        (accidents.raise_value_error, 1, "exception", EnvError),
        (accidents.stop_myself, 2, "timeout", StartTimeoutError),
    ],
)
def test_a_failed_rebuild_is_reported_with_its_kind_and_env(
    accident: accidents.Accident, num_workers: int, kind: str, cause: type[Exception], tmp_path: Path
) -> None:
    """Env 1 dies in its first step. Its successor waits at the gate and then has the accident."""
    gate = Gate(tmp_path)

    def fail(env: Any) -> None:
        gate.wait()
        accident(env)

    build = once(tmp_path / "accident", fail, skip=1)
    env_fns = hooked(2, build=build, step=once(tmp_path / "reason", accidents.kill_myself))
    with begun(env_fns, num_workers=num_workers, faults=ONE, start_timeout=60) as pool:
        if kind == "timeout":
            limit_builds_of_successors(pool)
        assert pool.step([1, 1]).truncations[1]
        gate.let_pass()
        with pytest.raises(RestartLimitError) as raised:
            pool.step([1, 1])
        pool.discard()  # would wait for a lost env that is still in flight
        with pytest.raises(BrokenPoolError, match="was lost to an earlier fault"):
            pool.step([1, 1])
    KEPT[:] = raised.value.faults  # a fixture of all tests checks that they hold no memory of the pool
    builds = [fault for fault in KEPT if fault.operation == "build"]
    assert {fault.kind for fault in builds} == {kind}
    assert [(fault.env_id, fault.shared) for fault in builds] == [(0, True), (1, False)][num_workers - 1 :]
    assert {(fault.kind, fault.operation) for fault in KEPT if fault not in builds} == {("death", "step")}
    assert isinstance(raised.value.__cause__, cause)
    del raised


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
    pool = begun(hooked(1, which=(0,), build=build, step=accidents.raise_value_error), faults="restart")
    pool.send([1])  # the env fails, and no call receives its result before the close
    pool.close(timeout=1e6)
    assert [path.name for path in tmp_path.iterdir()] == ["built.0"]
