"""Faults of envs and workers behind the DI-engine face, without restarts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import ding_face_envs as envs
import pytest
from ding_face_envs import (
    DriftEnv,
    FaultyEnv,
    assert_closed,
    launched,
    ours,
    step_until_it_fails,
    unlaunched,
    with_a_faulty_one,
)
from pairs import each

from remuda import EnvError, EnvTimeoutError, WorkerDiedError

pytestmark = pytest.mark.filterwarnings("ignore")

MANAGERS = [ours.AsyncSubprocessEnvManager, ours.SyncSubprocessEnvManager]
ALL = {0: 0, 1: 0, 2: 0}


# -- steps -----------------------------------------------------------------------------------------------


@each(manager_cls=MANAGERS, accident__raised=[(envs.value_error, ValueError), (envs.needs_two, envs.NeedsTwoError)])
def test_the_envs_own_exception_is_raised(manager_cls: Any, accident: Callable[[], None], raised: type) -> None:
    """DI-engine builds a new exception of the env's class, which fails if the constructor needs more than a text."""
    manager = launched(with_a_faulty_one("step", accident), manager_cls)
    with pytest.raises(raised) as caught:
        step_until_it_fails(manager)
    assert isinstance(caught.value.__cause__, EnvError)
    (failure,) = caught.value.__cause__.failures
    assert (failure.env_id, failure.operation) == (1, "step")
    assert f"in {accident.__name__}" in failure.traceback
    assert_closed(manager)


class Numbered(DriftEnv):
    def step(self, action: Any) -> Any:
        return super().step(action)._replace(info=[1, 2])


def test_the_error_for_an_invalid_info_shows_it() -> None:
    manager = launched([Numbered])
    with pytest.raises(TypeError, match=r"info of a timestep.*got \[1, 2\]"):
        manager.step({0: 0})
    assert_closed(manager)


def test_sys_exit_in_an_env_does_not_end_this_process() -> None:
    manager = launched(with_a_faulty_one("step", envs.exit_python))
    with pytest.raises(EnvError, match="SystemExit"):
        manager.step(ALL)
    assert_closed(manager)


@each(manager_cls=MANAGERS, accident=[envs.kill_myself, envs.leave])
def test_a_dead_worker_raises_an_end_of_file_error(manager_cls: Any, accident: Callable[[], None]) -> None:
    manager = launched(with_a_faulty_one("step", accident), manager_cls)
    with pytest.raises(EOFError, match="worker 1") as caught:
        step_until_it_fails(manager)
    assert isinstance(caught.value.__cause__, WorkerDiedError)
    assert_closed(manager)


@pytest.mark.parametrize("ask", [lambda m: m.step(ALL), lambda m: m.pid, lambda m: m.ready_imgs], ids=range(3))
def test_a_worker_that_died_while_idle_raises_an_end_of_file_error(ask: Callable[[Any], Any]) -> None:
    manager = launched([DriftEnv] * 3)
    os.kill(manager.workers[1].pid, signal.SIGKILL)
    with pytest.raises(EOFError) as caught:
        ask(manager)
    causes = [caught.value.__cause__]
    while causes[-1].__cause__ is not None:
        causes.append(causes[-1].__cause__)
    assert isinstance(causes[-1], WorkerDiedError)
    assert_closed(manager)


def test_the_error_for_a_late_step_has_the_workers_traceback() -> None:
    manager = launched(with_a_faulty_one("step", envs.sleep), step_timeout=0.2)
    with pytest.raises(TimeoutError, match="step_timeout=0.2") as caught:
        manager.step(ALL)
    assert isinstance(caught.value.__cause__, EnvError)
    assert "in sleep" in caught.value.__cause__.failures[0].traceback
    assert_closed(manager)


def test_a_late_step_in_native_code_raises_a_timeout_error() -> None:
    manager = launched(with_a_faulty_one("step", envs.sleep_in_native_code), step_timeout=0.2)
    with pytest.raises(TimeoutError) as caught:
        manager.step(ALL)
    assert isinstance(caught.value, EnvTimeoutError)
    assert (caught.value.deadline, caught.value.limit) == ("step_timeout", 0.2)
    assert_closed(manager)


def test_after_a_fault_the_manager_can_be_launched_again() -> None:
    manager = launched(with_a_faulty_one("step", envs.value_error, at=1))
    for _ in range(2):
        manager.step(ALL)
        with pytest.raises(ValueError, match="100% wrong"):
            step_until_it_fails(manager)
        assert_closed(manager)
        manager.launch()
    manager.close()


# -- resets ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("manager_cls", MANAGERS)
def test_a_reset_that_always_fails_raises_after_max_retry(manager_cls: Any) -> None:
    env_fns = with_a_faulty_one("reset", envs.value_error, at=1)
    manager = launched(env_fns, manager_cls, max_retry=3, retry_waiting_time=0.001)
    with pytest.raises(RuntimeError, match=r"Env 1 reset has exceeded max retries\(3\).*100% wrong"):
        manager.reset()
    assert_closed(manager)
    manager.launch()
    manager.close()


def test_a_first_reset_that_fails_is_raised_by_launch() -> None:
    manager = ours.SyncSubprocessEnvManager(with_a_faulty_one("reset", envs.value_error))
    with pytest.raises(RuntimeError, match="Env 1 reset has exceeded max retries"):
        manager.launch()
    assert_closed(manager)


@pytest.mark.parametrize(("retry_type", "resets"), [("reset", 1), ("renew", 1)])
def test_a_reset_that_fails_is_retried(retry_type: str, resets: int) -> None:
    env_fns = with_a_faulty_one("reset", envs.value_error, at=1, every=False)
    manager = unlaunched(env_fns, max_retry=2, retry_type=retry_type, retry_waiting_time=0.001)
    manager.seed(5, True)
    manager.launch()
    before = manager.pid
    manager.reset()
    # With "reset", the same env has recorded two resets. With "renew", the rebuilt env has recorded one.
    assert [len(one) for one in manager.resets] == [2, 2 if retry_type == "reset" else 1, 2]
    assert manager.seeds == [[(5, True)], [(6, True)], [(7, True)]]
    assert manager.pid == before
    assert manager.ready_env == [0, 1, 2]
    manager.close()


@pytest.mark.parametrize("limit", ["reset_timeout", "connect_timeout"])
def test_the_error_for_a_late_reset_in_native_code_names_the_managers_limit(limit: str) -> None:
    manager = launched(with_a_faulty_one("reset", envs.sleep_in_native_code, at=1), **{limit: 0.2})
    with pytest.raises(RuntimeError, match=f"longer than {limit}=0.2 s"):
        manager.reset()
    assert_closed(manager)


@pytest.mark.parametrize("limit", ["reset_timeout", "connect_timeout"])
def test_a_late_reset_raises_after_max_retry(limit: str) -> None:
    manager = launched(with_a_faulty_one("reset", envs.sleep, at=1), **{limit: 0.2}, max_retry=2)
    with pytest.raises(RuntimeError, match=f"max retries.*within {limit}=0.2 s"):
        manager.reset()
    assert_closed(manager)


@pytest.mark.parametrize("accident", [envs.kill_myself, envs.sleep_in_native_code])
def test_a_worker_that_dies_in_a_reset_raises(accident: Callable[[], None]) -> None:
    manager = launched(with_a_faulty_one("reset", accident, at=1), reset_timeout=0.2)
    with pytest.raises(RuntimeError, match="Env 1 reset has exceeded max retries") as caught:
        manager.reset()
    assert isinstance(caught.value.__cause__, WorkerDiedError)
    assert_closed(manager)


@pytest.mark.parametrize("manager_cls", MANAGERS)
def test_a_background_reset_that_fails_is_raised_by_a_step(manager_cls: Any) -> None:
    """DI-engine's reset fails in a thread, and the next step finds a closed manager."""
    manager = launched(with_a_faulty_one("reset", envs.value_error, at=1), manager_cls)
    with pytest.raises(RuntimeError, match="Env 1 reset has exceeded max retries.*100% wrong"):
        step_until_it_fails(manager)
    assert_closed(manager)


def test_ready_obs_raises_if_all_envs_are_in_error() -> None:
    """DI-engine waits forever."""
    manager = launched([DriftEnv] * 2)
    manager.step({0: "spoil", 1: "spoil"})
    with pytest.raises(RuntimeError, match="call reset"):
        _ = manager.ready_obs
    assert not manager.closed
    manager.reset()
    assert len(manager.ready_obs) == 2
    manager.close()


def test_ready_obs_of_v2_raises_if_all_envs_are_done() -> None:
    manager = launched([DriftEnv] * 2, ours.SubprocessEnvManagerV2, episode_num=1)
    while not manager.done:
        manager.step([0] * len(manager.ready_obs_id))
    with pytest.raises(RuntimeError, match="waits for an action, got.*DONE.*call reset"):
        _ = manager.ready_obs
    manager.reset()
    assert len(manager.ready_obs) == 2
    manager.close()


class Interrupting(DriftEnv):
    """Interrupts the manager's process in its first step."""

    def __init__(self, parent: int) -> None:
        super().__init__()
        self._parent = parent

    def step(self, action: Any) -> Any:
        if self.steps == 0 and len(self.resets) == 1:
            os.kill(self._parent, signal.SIGINT)
        return super().step(action)


@pytest.mark.parametrize("manager_cls", [ours.SyncSubprocessEnvManager, ours.SubprocessEnvManagerV2])
def test_after_an_interrupted_step_the_envs_must_be_reset(manager_cls: Any) -> None:
    """In DI-engine, later steps return the timesteps of earlier actions."""
    manager = launched([partial(Interrupting, os.getpid()), DriftEnv], manager_cls)
    actions = {0: 0, 1: 0} if manager_cls is ours.SyncSubprocessEnvManager else [0, 0]
    with pytest.raises(KeyboardInterrupt):
        manager.step(actions)
    with pytest.raises(RuntimeError, match=r"got \[0, 1\]: an interrupt ended the step; call reset"):
        manager.step(actions)
    if manager_cls is ours.SubprocessEnvManagerV2:
        with pytest.raises(RuntimeError, match="waits for an action"):
            _ = manager.ready_obs
    manager.reset()
    assert len(manager.step(actions)) == 2
    manager.close()


# -- building and closing --------------------------------------------------------------------------------


def build_and_fail(parent: int) -> Any:
    if os.getpid() != parent:
        raise OSError("no such simulator")
    return DriftEnv()


def test_an_env_that_cannot_be_built_is_raised_by_launch() -> None:
    manager = ours.SyncSubprocessEnvManager([partial(build_and_fail, os.getpid())] * 2)
    with pytest.raises(RuntimeError, match="no such simulator") as caught:
        manager.launch()
    assert isinstance(caught.value.__cause__, EnvError)
    assert manager.closed


@pytest.mark.parametrize("accident", [envs.value_error, envs.kill_myself])
def test_an_exception_in_close_is_not_raised(accident: Callable[[], None]) -> None:
    manager = launched(with_a_faulty_one("close", accident))
    manager.close()
    assert_closed(manager)


def test_close_ends_envs_that_hang_in_a_step() -> None:
    manager = launched([partial(FaultyEnv, "step", envs.sleep), DriftEnv], ours.AsyncSubprocessEnvManager, wait_num=1)
    assert list(manager.step({0: 0, 1: 0})) == [1]
    manager.close()
    assert manager.closed


@pytest.mark.leaves_things
def test_no_worker_outlives_a_killed_parent() -> None:
    script = (
        "import os, signal, ding_face_envs as envs\n"
        "manager = envs.ours.SyncSubprocessEnvManager([envs.DriftEnv] * 2)\n"
        "manager.launch()\n"
        "print(*manager.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    path = f"import sys; sys.path[:0] = {sys.path!r}\n"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", path + script], stdout=subprocess.PIPE, check=False)
    # The workers inherited the pipe, so the output ends when the last worker has ended.
    assert len(done.stdout.split()) == 2
