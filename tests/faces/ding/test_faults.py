"""Faults of envs and workers behind the DI-engine face, without restarts; see also ``test_fault_table.py``."""

from __future__ import annotations

import os
import signal
from functools import partial
from typing import Any

import pytest
from accidents import kill_myself, raise_value_error, run_out_of_memory, stop_myself, wait_for_ever
from ding_face_envs import (
    PARENT,
    DriftEnv,
    Hook,
    assert_closed,
    later,
    launched,
    one_of_three,
    ours,
    step_until_it_fails,
    unlaunched,
)
from pairs import each

from remuda import EnvError, EnvTimeoutError, WorkerDiedError

pytestmark = pytest.mark.filterwarnings("ignore")

MANAGERS = [ours.AsyncSubprocessEnvManager, ours.SyncSubprocessEnvManager]
ALL = {0: 0, 1: 0, 2: 0}


class NeedsTwoError(Exception):
    """An exception with a constructor of two arguments."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(code, reason)


def needs_two(*_: Any) -> None:
    raise NeedsTwoError(7, "seven")


# -- steps -----------------------------------------------------------------------------------------------


@each(
    manager_cls=MANAGERS,
    accident__raised__text=[
        (raise_value_error, ValueError, "broken"),
        (needs_two, NeedsTwoError, "seven"),
        (run_out_of_memory, MemoryError, "^$"),
        (wait_for_ever, TimeoutError, "step_timeout=0.3"),
    ],
)
def test_the_envs_own_exception_is_raised(manager_cls: Any, accident: Hook, raised: type[Exception], text: str) -> None:
    """DI-engine builds a new exception of the env's class, which fails if the constructor needs more than a text."""
    manager = launched(one_of_three(step=accident), manager_cls, step_timeout=0.3 if accident is wait_for_ever else 60)
    with pytest.raises(raised, match=text) as caught:
        step_until_it_fails(manager)
    assert isinstance(caught.value.__cause__, EnvError)
    (failure,) = caught.value.__cause__.failures
    assert (failure.env_id, failure.operation) == (1, "step")
    assert f"in {accident.__name__}" in failure.traceback
    assert_closed(manager)


def test_the_error_for_an_invalid_info_shows_it() -> None:
    manager = launched([partial(DriftEnv, oddity="an info that is invalid")])
    with pytest.raises(TypeError, match=r"info of a timestep.*got \[1, 2\]"):
        manager.step({0: 0})
    assert_closed(manager)


def test_a_late_step_that_takes_no_signals_raises_a_timeout_error() -> None:
    manager = launched(one_of_three(step=stop_myself), step_timeout=0.2)
    with pytest.raises(EnvTimeoutError) as caught:
        manager.step(ALL)
    assert (caught.value.deadline, caught.value.limit) == ("step_timeout", 0.2)
    assert_closed(manager)


def test_after_a_fault_the_manager_can_be_launched_again() -> None:
    manager = launched(one_of_three(step=later(raise_value_error)))
    for _ in range(2):
        manager.step(ALL)
        with pytest.raises(ValueError, match="broken"):
            step_until_it_fails(manager)
        assert_closed(manager)
        manager.launch()
    manager.close()


# -- resets ----------------------------------------------------------------------------------------------


@each(
    manager_cls=MANAGERS,
    accident=[raise_value_error, kill_myself, stop_myself],
    fail=[lambda manager: manager.reset(), step_until_it_fails],
)
def test_a_reset_that_always_fails_raises_after_max_retry(manager_cls: Any, accident: Hook, fail: Any) -> None:
    """DI-engine's background reset fails in a thread, and the next step finds a closed manager."""
    options = {"max_retry": 3, "retry_waiting_time": 0.001, "reset_timeout": 0.3}
    manager = launched(one_of_three(background=accident), manager_cls, **options)
    with pytest.raises(RuntimeError, match=r"Env 1 reset has exceeded max retries\(3\)") as caught:
        fail(manager)
    is_exception = accident is raise_value_error
    assert isinstance(caught.value.__cause__, EnvError if is_exception else WorkerDiedError)
    assert ("broken" in str(caught.value)) == is_exception
    assert_closed(manager)
    manager.launch()
    manager.close()


@pytest.mark.parametrize("retry_type", ["reset", "renew"])
def test_a_reset_that_fails_is_retried(retry_type: str) -> None:
    once = lambda env: raise_value_error() if env.calls["background"] == 1 else None  # noqa: E731
    manager = unlaunched(one_of_three(background=once), max_retry=2, retry_type=retry_type, retry_waiting_time=0.001)
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


@each(
    accident__message=[(stop_myself, "longer than {}=0.2 s"), (wait_for_ever, "max retries.*within {}=0.2 s")],
    limit=["reset_timeout", "connect_timeout"],
)
def test_the_error_for_a_late_reset_names_the_managers_limit(accident: Hook, message: str, limit: str) -> None:
    manager = launched(one_of_three(background=accident), **{limit: 0.2})
    with pytest.raises(RuntimeError, match=message.format(limit)):
        manager.reset()
    assert_closed(manager)


def spoil_both(manager: Any) -> None:
    manager.step({0: "spoil", 1: "spoil"})


def step_until_done(manager: Any) -> None:
    while not manager.done:
        manager.step([0] * len(manager.ready_obs_id))


@pytest.mark.parametrize(
    ("manager_cls", "use", "message"),
    [
        (ours.SyncSubprocessEnvManager, spoil_both, "call reset"),
        (ours.SubprocessEnvManagerV2, step_until_done, "waits for an action, got.*DONE.*call reset"),
    ],
)
def test_ready_obs_raises_if_all_envs_are_in_error_or_done(manager_cls: Any, use: Any, message: str) -> None:
    """DI-engine waits forever."""
    manager = launched([DriftEnv] * 2, manager_cls, episode_num=1)
    use(manager)
    with pytest.raises(RuntimeError, match=message):
        _ = manager.ready_obs
    assert not manager.closed
    manager.reset()
    assert len(manager.ready_obs) == 2
    manager.close()


def interrupt_the_manager(env: Any) -> None:
    if len(env.resets) == 1:
        os.kill(PARENT, signal.SIGINT)


@pytest.mark.parametrize("manager_cls", [ours.SyncSubprocessEnvManager, ours.SubprocessEnvManagerV2])
def test_after_an_interrupted_step_the_envs_must_be_reset(manager_cls: Any) -> None:
    """In DI-engine, later steps return the timesteps of earlier actions."""
    manager = launched([partial(DriftEnv, step=interrupt_the_manager), DriftEnv], manager_cls)
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
