"""The order in which calls are allowed, and the state after a timeout."""

from __future__ import annotations

import multiprocessing
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.error import AlreadyPendingCallError, ClosedEnvironmentError, NoAsyncCallError
from pairs import each
from pool_envs import Gate, counting, gated, hooked

from remuda import StateError
from remuda.gymnasium import AsyncState, AsyncVectorEnv

ASYNC: dict[str, Callable[[AsyncVectorEnv], None]] = {
    "reset": lambda envs: envs.reset_async(seed=5),
    "step": lambda envs: envs.step_async([1, 2]),
    "call": lambda envs: envs.call_async("poke"),
}


@pytest.fixture
def envs() -> Iterator[AsyncVectorEnv]:
    made = AsyncVectorEnv(counting(2))
    made.reset()
    yield made
    made.close(terminate=True)


def test_each_wait_follows_its_own_async_call() -> None:
    envs = AsyncVectorEnv(gated([None, None]), backend="serial")
    with pytest.raises(StateError, match="reset"):
        envs.step([0, 0])
    assert envs._state is AsyncState.DEFAULT
    for name, call in ASYNC.items():
        with pytest.raises(NoAsyncCallError, match=f"`{name}_wait` without any prior call to `{name}_async`") as raised:
            getattr(envs, f"{name}_wait")()
        assert raised.value.name == name
        call(envs)
        assert envs._state is AsyncState(name)
        pending = f"while waiting for a pending call to `{name}` to complete"
        for other, other_call in ASYNC.items():
            with pytest.raises(AlreadyPendingCallError, match=f"Calling `{other}_async` {pending}") as refused:
                other_call(envs)
            assert refused.value.name == name
            if other != name:
                with pytest.raises(NoAsyncCallError):
                    getattr(envs, f"{other}_wait")()
        with pytest.raises(AlreadyPendingCallError, match=f"Calling `set_attr` {pending}"):
            envs.set_attr("length", 5)
        getattr(envs, f"{name}_wait")()
        assert envs._state is AsyncState.DEFAULT
    envs.close()


def test_the_order_of_checks(envs: AsyncVectorEnv) -> None:
    """The checks run in this order: closed, wrong number of seeds, pending call, wrong mask or actions."""
    bad_mask = {"reset_mask": "no mask"}
    envs.step_async([1, 2])
    with pytest.raises(ValueError, match="match num_envs=2 but got length=1"):
        envs.reset_async(seed=[1])
    with pytest.raises(ValueError, match="expected 2 values"):
        envs.set_attr("length", [1])
    for refused in (
        lambda: envs.reset_async(options=bad_mask),
        lambda: envs.step_async([1]),
        lambda: envs.call_async("reset"),
    ):
        with pytest.raises(AlreadyPendingCallError):
            refused()
    envs.step_wait()
    envs.close()
    for call in (
        *(lambda: envs.reset(seed=[1]), envs.reset_wait, lambda: envs.step([1, 2]), envs.step_wait),
        *(lambda: envs.step_async([1, 2]), lambda: envs.call("pid"), envs.call_wait, lambda: envs.get_attr("length")),
        *(lambda: envs.set_attr("length", [1]), envs.render, lambda: envs.np_random),
    ):
        with pytest.raises(ClosedEnvironmentError, match=re.escape("operate on `AsyncVectorEnv`, after a call to")):
            call()


# -- closing ---------------------------------------------------------------------------------------------


@each(name=ASYNC, terminate=[False, True])
def test_close_while_a_call_is_pending_warns(envs: AsyncVectorEnv, name: str, terminate: bool) -> None:
    ASYNC[name](envs)
    with pytest.warns(UserWarning, match=f"Calling `close` while waiting for a pending call to `{name}` to complete."):
        envs.close(terminate=terminate)
    assert not any(process.is_alive() for process in envs.processes)
    envs.close(terminate=True)  # does nothing


@pytest.mark.parametrize("how", [{"timeout": 0.01}, {"terminate": True}, {"timeout": 0, "late": True}])
def test_close_with_a_limit_does_not_wait_for_a_stuck_env(tmp_path: Path, how: dict[str, Any]) -> None:
    envs = AsyncVectorEnv(gated([Gate(tmp_path), None], "reset"))
    envs.reset_async()
    if how.pop("late", False):
        time_out(envs, "reset")
        envs.close(**how)
    else:
        with pytest.warns(UserWarning, match="pending call to `reset`"):
            envs.close(**how)
    assert not any(process.is_alive() for process in envs.processes)


# -- timeouts --------------------------------------------------------------------------------------------


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(tmp_path)


@pytest.fixture
def gated_envs(gate: Gate, request: pytest.FixtureRequest) -> Iterator[AsyncVectorEnv]:
    """Yields three envs. The middle one waits at the gate."""
    envs = AsyncVectorEnv(gated([None, gate, None], request.param))
    if request.param != "reset":
        envs.reset()
    yield envs
    envs.close(terminate=True)


def time_out(envs: AsyncVectorEnv, name: str) -> None:
    message = rf"^The call to `{name}_wait` has timed out after 0.0 second\(s\).$"
    with pytest.raises(multiprocessing.TimeoutError, match=message):
        getattr(envs, f"{name}_wait")(timeout=0.0)
    assert envs._state is AsyncState.DEFAULT


@pytest.mark.parametrize("gated_envs", ["step"], indirect=True)
def test_step_wait_again_gets_the_late_result(gated_envs: AsyncVectorEnv, gate: Gate) -> None:
    gated_envs.step_async([1, 2, 3])
    while sum(map(len, gated_envs._parts)) < 2:  # the results of the other envs
        time_out(gated_envs, "step")
    with pytest.raises(NoAsyncCallError):
        gated_envs.reset_wait()
    for refused in (
        lambda: gated_envs.reset_async(seed=[1]),
        lambda: gated_envs.reset_async(options={"reset_mask": np.zeros(3, bool)}),
        lambda: gated_envs.call_async("step"),
        lambda: gated_envs.set_attr("length", [1]),
    ):
        with pytest.raises(ValueError, match=r"num_envs|True value|use `step`|3 values"):
            refused()
    gate.let_pass()
    obs, rewards, terminations, truncations, infos = gated_envs.step_wait()
    assert obs.tolist() == [[0, 1, 1, 1], [1, 1, 1, 2], [2, 1, 1, 3]]
    assert rewards.tolist() == [1, 2, 3]
    assert (terminations.shape, truncations.shape, infos) == ((3,), (3,), {})


@pytest.mark.parametrize("infos", [None, "0.29"])
def test_late_infos_are_those_of_their_envs(infos: Any, gate: Gate) -> None:
    def end_episode(env: Any, _: Any) -> Any:
        if env.tag == 0:
            gate.wait()
        return env.observe(), 0.0, True, False, {"tag": env.tag, f"of_{env.tag}": True}

    envs = AsyncVectorEnv(hooked(2, (0, 1), step=end_episode), autoreset_mode="SameStep", infos=infos)
    envs.reset()
    envs.step_async([0, 0])
    while not any(map(len, envs._parts)):  # the result of the second env
        time_out(envs, "step")
    gate.let_pass()
    got = envs.step_wait()[4]
    assert [one[0] for one in got["final_observation" if infos else "final_obs"]] == [0, 1]
    if infos:
        assert got["final_info"].tolist() == [{"tag": 0, "of_0": True}, {"tag": 1, "of_1": True}]
    else:
        assert got["final_info"]["tag"].tolist() == [0, 1]
        assert [got["final_info"][key].tolist() for key in ("_of_0", "_of_1")] == [[True, False], [False, True]]
    envs.close()


@pytest.mark.parametrize("gated_envs", ["reset"], indirect=True)
def test_reset_wait_again_gets_the_late_result(gated_envs: AsyncVectorEnv, gate: Gate) -> None:
    gated_envs.reset_async(seed=5)
    time_out(gated_envs, "reset")
    gate.let_pass()
    obs, infos = gated_envs.reset_wait()
    assert (obs[:, 0].tolist(), infos) == ([0, 1, 2], {})
    assert gated_envs.np_random_seed == (5, 6, 7)


@pytest.mark.parametrize("gated_envs", ["call"], indirect=True)
def test_call_wait_again_gets_the_late_result(gated_envs: AsyncVectorEnv, gate: Gate) -> None:
    gated_envs.call_async("poke")
    time_out(gated_envs, "call")
    gate.let_pass()
    assert gated_envs.call_wait() == ("poked",) * 3
    gated_envs.call_async("poke")
    time_out(gated_envs, "call")
    gate.let_pass()
    assert gated_envs.step([1, 2, 3])[1].tolist() == [1, 2, 3]  # a step drops the late result
    assert gated_envs.call("tag") == (0, 1, 2)


@pytest.mark.parametrize("gated_envs", ["step"], indirect=True)
@pytest.mark.parametrize("name", ASYNC)
def test_another_call_drops_the_late_result(gated_envs: AsyncVectorEnv, gate: Gate, name: str) -> None:
    """A late result is never returned for another call."""
    gated_envs.step_async([1, 2, 3])
    time_out(gated_envs, "step")
    gate.let_pass()
    if name == "reset":
        assert gated_envs.reset()[0][:, 1:].tolist() == [[2, 0, -1]] * 3
    elif name == "call":
        assert gated_envs.call("steps") == (1, 1, 1)
    else:
        gated_envs.step_async([4, 5, 6])
        gate.let_pass()
        obs, rewards, *_ = gated_envs.step_wait()
        assert (obs[:, 2].tolist(), rewards.tolist()) == ([2, 2, 2], [4, 5, 6])
    with pytest.raises(NoAsyncCallError):
        gated_envs.step_wait()
