"""The order in which calls are allowed, and the state after a timeout."""

from __future__ import annotations

import gc
import multiprocessing
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pool_envs
import pytest
from gymnasium.error import AlreadyPendingCallError, ClosedEnvironmentError, NoAsyncCallError
from gymnasium_face_envs import EchoEnv, Gate, gated

from remuda import StateError
from remuda.gymnasium import AsyncState, AsyncVectorEnv

ASYNC: dict[str, Callable[[AsyncVectorEnv], None]] = {
    "reset": lambda envs: envs.reset_async(),
    "step": lambda envs: envs.step_async([1, 2]),
    "call": lambda envs: envs.call_async("pid"),
}


@pytest.fixture
def envs() -> Iterator[AsyncVectorEnv]:
    made = AsyncVectorEnv([EchoEnv, EchoEnv])
    made.reset()
    yield made
    made.close(terminate=True)


@pytest.mark.parametrize("name", ASYNC)
def test_each_async_call_sets_the_state_and_each_wait_restores_it(envs: AsyncVectorEnv, name: str) -> None:
    assert envs._state is AsyncState.DEFAULT
    ASYNC[name](envs)
    assert envs._state is AsyncState(name)
    getattr(envs, f"{name}_wait")()
    assert envs._state is AsyncState.DEFAULT


@pytest.mark.parametrize("name", ASYNC)
def test_a_wait_without_its_async_call_raises(envs: AsyncVectorEnv, name: str) -> None:
    with pytest.raises(
        NoAsyncCallError, match=f"^Calling `{name}_wait` without any prior call to `{name}_async`.$"
    ) as e:
        getattr(envs, f"{name}_wait")()
    assert e.value.name == name


@pytest.mark.parametrize("pending", ASYNC)
@pytest.mark.parametrize("name", ASYNC)
def test_an_async_call_while_another_is_pending_raises(envs: AsyncVectorEnv, pending: str, name: str) -> None:
    ASYNC[pending](envs)
    message = f"Calling `{name}_async` while waiting for a pending call to `{pending}` to complete"
    with pytest.raises(AlreadyPendingCallError, match=message) as e:
        ASYNC[name](envs)
    assert e.value.name == pending
    getattr(envs, f"{pending}_wait")()  # the first call is still pending


def test_the_wait_of_another_call_raises(envs: AsyncVectorEnv) -> None:
    envs.step_async([1, 2])
    with pytest.raises(NoAsyncCallError):
        envs.reset_wait()
    envs.step_wait()


def test_set_attr_while_a_call_is_pending_raises(envs: AsyncVectorEnv) -> None:
    envs.step_async([1, 2])
    with pytest.raises(AlreadyPendingCallError, match="Calling `set_attr` while waiting for a pending call to `step`"):
        envs.set_attr("length", 5)
    envs.step_wait()


@pytest.mark.parametrize(
    "call",
    [
        lambda envs: envs.reset(),
        lambda envs: envs.reset_async(),
        lambda envs: envs.reset_wait(),
        lambda envs: envs.step([1, 2]),
        lambda envs: envs.step_async([1, 2]),
        lambda envs: envs.step_wait(),
        lambda envs: envs.call("pid"),
        lambda envs: envs.call_async("pid"),
        lambda envs: envs.call_wait(),
        lambda envs: envs.get_attr("length"),
        lambda envs: envs.set_attr("length", 5),
        lambda envs: envs.render(),
        lambda envs: envs.np_random,
    ],
)
def test_nothing_works_after_close(envs: AsyncVectorEnv, call: Callable[[AsyncVectorEnv], Any]) -> None:
    envs.close()
    message = re.escape("Trying to operate on `AsyncVectorEnv`, after a call to `close()`.")
    with pytest.raises(ClosedEnvironmentError, match=message):
        call(envs)


def test_the_order_of_checks(envs: AsyncVectorEnv) -> None:
    """The checks run in this order: closed, wrong number of seeds, pending call, wrong mask or actions."""
    bad_mask = {"reset_mask": "no mask"}
    envs.step_async([1, 2])
    with pytest.raises(ValueError, match="match num_envs=2 but got length=1"):
        envs.reset_async(seed=[1])
    with pytest.raises(AlreadyPendingCallError):
        envs.reset_async(options=bad_mask)
    with pytest.raises(AlreadyPendingCallError):
        envs.step_async([1])
    with pytest.raises(AlreadyPendingCallError):
        envs.call_async("reset")
    with pytest.raises(ValueError, match="Got `1` values for 2 environments"):
        envs.set_attr("length", [1])
    envs.step_wait()
    envs.close()
    for call in (lambda: envs.reset_async(seed=[1]), lambda: envs.set_attr("length", [1])):
        with pytest.raises(ClosedEnvironmentError):
            call()


def test_a_step_before_the_first_reset_raises() -> None:
    envs = AsyncVectorEnv([EchoEnv, EchoEnv])
    with pytest.raises(StateError, match="reset"):
        envs.step([0, 0])
    assert envs._state is AsyncState.DEFAULT
    envs.reset()
    envs.step([0, 0])
    envs.close()


# -- closing ---------------------------------------------------------------------------------------


def test_close_can_be_called_twice(envs: AsyncVectorEnv) -> None:
    envs.close()
    envs.close(terminate=True)
    assert envs.closed
    assert not any(process.is_alive() for process in envs.processes)


@pytest.mark.parametrize("terminate", [False, True])
@pytest.mark.parametrize("name", ASYNC)
def test_close_while_a_call_is_pending_warns(envs: AsyncVectorEnv, name: str, terminate: bool) -> None:
    ASYNC[name](envs)
    message = f"Calling `close` while waiting for a pending call to `{name}` to complete."
    with pytest.warns(UserWarning, match=message):
        envs.close(terminate=terminate)
    assert not any(process.is_alive() for process in envs.processes)


@pytest.mark.parametrize("how", [{"timeout": 0.01}, {"timeout": 0}, {"terminate": True}])
def test_close_with_a_timeout_does_not_wait_for_a_stuck_env(tmp_path: Path, how: dict[str, Any]) -> None:
    envs = AsyncVectorEnv(gated([Gate(tmp_path / "gate"), None], "reset"))
    envs.reset_async()
    with pytest.warns(UserWarning, match="pending call to `reset`"):
        envs.close(**how)
    assert not any(process.is_alive() for process in envs.processes)


def test_close_after_a_timeout_does_not_wait_for_a_stuck_env(tmp_path: Path) -> None:
    envs = AsyncVectorEnv(gated([Gate(tmp_path / "gate"), None], "reset"))
    envs.reset_async()
    with pytest.raises(multiprocessing.TimeoutError):
        envs.reset_wait(timeout=0)
    envs.close(timeout=0)
    assert not any(process.is_alive() for process in envs.processes)


def test_a_garbage_collected_vector_env_ends_its_workers() -> None:
    envs = AsyncVectorEnv([EchoEnv, EchoEnv])
    processes = envs.processes
    del envs
    gc.collect()
    assert not any(process.is_alive() for process in processes)


# -- timeouts: D1 ----------------------------------------------------------------------------------

MESSAGE = r"^The call to `{}_wait` has timed out after 0.0 second\(s\).$"


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(tmp_path / "gate")


@pytest.fixture
def gated_envs(gate: Gate, request: pytest.FixtureRequest) -> Iterator[AsyncVectorEnv]:
    """Yields three envs. The middle one waits at the gate."""
    envs = AsyncVectorEnv(gated([None, gate, None], request.param))
    yield envs
    envs.close(terminate=True)


def time_out(envs: AsyncVectorEnv, name: str) -> None:
    with pytest.raises(multiprocessing.TimeoutError, match=MESSAGE.format(name)):
        getattr(envs, f"{name}_wait")(timeout=0.0)
    assert envs._state is AsyncState.DEFAULT


def test_a_late_result_is_the_row_of_its_env(tmp_path: Path) -> None:
    gate = pool_envs.Gate(tmp_path)
    with closing(AsyncVectorEnv(pool_envs.gated([None, gate, None]))) as envs:
        envs.reset()
        envs.step_async([1, 2, 3])
        while sum(map(len, envs._parts)) < 2:  # the results of the other envs
            time_out(envs, "step")
        gate.let_pass()
        assert envs.step_wait()[1].tolist() == [1, 2, 3]


@pytest.mark.parametrize("gated_envs", ["step"], indirect=True)
def test_step_wait_again_gets_the_late_result(gated_envs: AsyncVectorEnv, gate: Gate) -> None:
    gated_envs.reset()
    gated_envs.step_async([1, 2, 3])
    time_out(gated_envs, "step")
    time_out(gated_envs, "step")
    gate.open()
    obs, rewards, terminations, truncations, infos = gated_envs.step_wait()
    assert obs.tolist() == [[101], [101], [101]]
    assert rewards.tolist() == [1, 1, 1]
    assert (terminations.shape, truncations.shape, infos) == ((3,), (3,), {})
    assert gated_envs.get_attr("last_action") == (1, 2, 3)


@pytest.mark.parametrize("gated_envs", ["reset"], indirect=True)
def test_reset_wait_again_gets_the_late_result(gated_envs: AsyncVectorEnv, gate: Gate) -> None:
    gated_envs.reset_async(seed=5)
    time_out(gated_envs, "reset")
    gate.open()
    obs, infos = gated_envs.reset_wait()
    assert obs.tolist() == [[100], [100], [100]]
    assert infos["episode_number"].tolist() == [1, 1, 1]
    assert infos["_episode_number"].tolist() == [True, True, True]
    assert gated_envs.np_random_seed == (5, 6, 7)


@pytest.mark.parametrize("gated_envs", ["call"], indirect=True)
def test_call_wait_again_gets_the_late_result(gated_envs: AsyncVectorEnv, gate: Gate) -> None:
    gated_envs.call_async("pid")
    time_out(gated_envs, "call")
    gate.open()
    assert gated_envs.call_wait() == tuple(process.pid for process in gated_envs.processes)


@pytest.mark.parametrize("gated_envs", ["step"], indirect=True)
@pytest.mark.parametrize("name", ASYNC)
def test_another_call_drops_the_late_result(gated_envs: AsyncVectorEnv, gate: Gate, name: str) -> None:
    """A late result is never returned for another call."""
    gated_envs.reset()
    gated_envs.step_async([1, 2, 3])
    time_out(gated_envs, "step")
    gate.open()
    if name == "reset":
        obs, _ = gated_envs.reset()
        assert obs.tolist() == [[200], [200], [200]]
    elif name == "call":
        assert gated_envs.call("steps") == (1, 1, 1)
    else:
        gated_envs.step_async([4, 5, 6])
        gate.open()
        obs, rewards, *_ = gated_envs.step_wait()
        assert obs.tolist() == [[102], [102], [102]]
        assert rewards.tolist() == [2, 2, 2]
    with pytest.raises(NoAsyncCallError):
        gated_envs.step_wait()


@pytest.mark.parametrize("gated_envs", ["call"], indirect=True)
def test_a_step_after_a_late_call_returns_its_own_result(gated_envs: AsyncVectorEnv, gate: Gate) -> None:
    gated_envs.reset()
    gated_envs.call_async("pid")
    time_out(gated_envs, "call")
    gate.open()
    obs, *_ = gated_envs.step([1, 2, 3])
    assert obs.tolist() == [[101], [101], [101]]
    assert gated_envs.call("add", 1, right=2, prefix="n") == ("n3", "n3", "n3")


@pytest.mark.parametrize("gated_envs", ["step"], indirect=True)
def test_another_wait_does_not_get_the_late_result(gated_envs: AsyncVectorEnv, gate: Gate) -> None:
    gated_envs.reset()
    gated_envs.step_async([1, 2, 3])
    time_out(gated_envs, "step")
    with pytest.raises(NoAsyncCallError):
        gated_envs.reset_wait()
    gate.open()
    assert gated_envs.step_wait()[0].tolist() == [[101], [101], [101]]


@pytest.mark.parametrize("gated_envs", ["step"], indirect=True)
def test_a_refused_call_does_not_drop_the_late_result(gated_envs: AsyncVectorEnv, gate: Gate) -> None:
    gated_envs.reset()
    gated_envs.step_async([1, 2, 3])
    time_out(gated_envs, "step")
    for refused in (
        lambda: gated_envs.reset_async(seed=[1]),
        lambda: gated_envs.reset_async(options={"reset_mask": np.zeros(3, bool)}),
        lambda: gated_envs.call_async("step"),
        lambda: gated_envs.set_attr("length", [1]),
    ):
        with pytest.raises(ValueError, match=r"num_envs|True value|use `step`|environments"):
            refused()
    gate.open()
    assert gated_envs.step_wait()[0].tolist() == [[101], [101], [101]]


@pytest.mark.parametrize("gated_envs", ["step"], indirect=True)
def test_an_interrupted_wait_may_be_called_again(gated_envs: AsyncVectorEnv, gate: Gate) -> None:
    gated_envs.reset()
    gated_envs.step_async([1, 2, 3])

    def interrupt_during(wait: Callable[[], Any]) -> None:
        # if the alarm is early, `wait` is never called, which is also correct
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        wait()

    previous = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            interrupt_during(gated_envs.step_wait)
    finally:
        signal.signal(signal.SIGALRM, previous)
    assert gated_envs._state is AsyncState.WAITING_STEP
    gate.open()
    assert gated_envs.step_wait()[0].tolist() == [[101], [101], [101]]
