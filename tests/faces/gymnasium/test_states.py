"""The order in which calls are allowed, the state after a timeout, and faults of envs and workers."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from accidents import once
from gymnasium.error import AlreadyPendingCallError, ClosedEnvironmentError, NoAsyncCallError
from gymnasium.vector import AutoresetMode
from odd_exceptions import raising
from pairs import each
from pool_envs import Gate, counting, gated, hooked

from remuda import EnvError, Fault, StateError
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


def test_a_closed_vector_env_refuses_calls_whatever_their_arguments(envs: AsyncVectorEnv) -> None:
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


# -- faults; `test_fault_table.py` has the error of each ---------------------------------------------------

wrong = raising(lambda: ValueError("100% wrong"))


def test_of_several_exceptions_the_last_is_raised_and_all_are_logged_as_in_gymnasium() -> None:
    envs = AsyncVectorEnv(hooked(3, (0, 2), step=wrong))
    envs.reset()
    with warnings.catch_warnings(record=True) as caught, pytest.raises(ValueError, match=r"^100% wrong$") as raised:
        warnings.simplefilter("always")
        envs.step([0, 0, 0])
    error = raised.value.__cause__
    assert isinstance(error, EnvError)
    assert [(failure.env_id, failure.operation) for failure in error.failures] == [(0, "step"), (2, "step")]
    assert error.failures[-1].exception is raised.value
    assert "in hook" in str(error.__cause__)  # the worker's traceback
    assert error.__cause__ is not None and error.__cause__.__cause__ is None
    texts = [str(warning.message) for warning in caught]
    assert len(texts) == 5
    for worker, (headline, trace) in zip((0, 2), (texts[:2], texts[2:4]), strict=True):
        assert f"ERROR: Received the following error from Worker-{worker}" in headline
        assert "ERROR: Traceback (most recent call last):" in trace
        assert "ValueError: 100% wrong\n" in trace
    assert "ERROR: Raising the last exception back to the main process." in texts[4]
    assert envs._state is AsyncState.DEFAULT
    with pytest.raises(StateError, match="got envs 0, 2"):
        envs.step([0, 0, 0])
    assert envs.reset()[0][:, 1].tolist() == [2, 2, 2]
    envs.close()


@pytest.mark.filterwarnings("error")
def test_the_exception_of_a_call_is_not_logged() -> None:
    """Programs ask for attributes that an env may lack, in each step."""
    envs = AsyncVectorEnv(hooked(2), backend="serial")
    for read in (envs.call, envs.get_attr):
        with pytest.raises(AttributeError, match="missing"):
            read("missing")
    envs.close()


@pytest.mark.filterwarnings("ignore:.*ERROR")  # Gymnasium logs as warnings
def test_close_raises_the_exception_of_the_pending_step_after_all_is_closed() -> None:
    envs = AsyncVectorEnv(hooked(3, step=wrong))
    envs.reset()
    envs.step_async([0, 0, 0])
    with pytest.warns(UserWarning, match="pending call to `step`"), pytest.raises(ValueError, match="100% wrong"):
        envs.close()
    assert envs.closed
    assert not any(process.is_alive() for process in envs.processes)


# -- restarted -------------------------------------------------------------------------------------------


@each(mode=AutoresetMode, lazy_infos=[False, True])
def test_a_killed_worker_truncates_the_episode_and_attributes_stay(mode: AutoresetMode, lazy_infos: bool) -> None:
    envs = AsyncVectorEnv(hooked(3), autoreset_mode=mode, faults="restart", lazy_infos=lazy_infos)
    envs.set_attr("hint", [3, 4, 5])
    envs.reset(seed=1)
    envs.step([1, 1, 1])
    os.kill(envs.processes[1].pid, signal.SIGKILL)
    obs, rewards, terminations, truncations, infos = envs.step([2, 2, 2])
    assert truncations.tolist() == [False, True, False]
    assert (rewards.tolist(), terminations.any()) == ([2, 0, 2], False)
    info = infos["final_info"] if mode is AutoresetMode.SAME_STEP else infos
    assert info["_fault"].tolist() == [False, True, False]
    assert isinstance(info["fault"][1], Fault)
    last = infos["final_obs"][1] if mode is AutoresetMode.SAME_STEP else obs[1]
    assert last.tolist() == [1, 1, 1, 1]
    if mode is AutoresetMode.DISABLED:
        obs, _ = envs.reset(options={"reset_mask": np.array([False, True, False])})
    elif mode is AutoresetMode.NEXT_STEP:
        obs, *_ = envs.step([3, 3, 3])
    assert obs[1].tolist() == [1, 1, 0, -1]
    obs, *_ = envs.step([4, 4, 4])
    assert obs[:, 2].tolist() == ([4, 1, 4] if mode is AutoresetMode.NEXT_STEP else [3, 1, 3])
    assert envs.get_attr("hint") == (3, 4, 5)  # also the rebuilt env
    envs.close()


@each(mode=AutoresetMode, is_noticed=[False, True])
def test_a_death_before_a_masked_reset_ends_no_episode_that_is_resumed(mode: AutoresetMode, is_noticed: bool) -> None:
    envs = AsyncVectorEnv(counting(2), autoreset_mode=mode, faults="resume")
    envs.reset(seed=1)
    envs.step([1, 1])
    os.kill(envs.processes[1].pid, signal.SIGKILL)
    while is_noticed and not envs.pool.stats().restarts:
        pass
    obs, infos = envs.reset(options={"reset_mask": np.array([True, False])})
    assert (obs.tolist(), infos) == ([[0, 2, 0, -1], [1, 1, 1, 1]], {})
    obs, rewards, _, truncations, _ = envs.step([2, 2])
    assert (obs[1].tolist(), rewards.tolist(), truncations.tolist()) == ([1, 1, 2, 2], [2, 2], [False, False])
    envs.close()


@each(mode=AutoresetMode, is_noticed=[False, True])
def test_the_step_after_a_masked_reset_shows_the_fault_of_an_env_outside_the_mask(
    mode: AutoresetMode, is_noticed: bool
) -> None:
    envs = AsyncVectorEnv(counting(3), autoreset_mode=mode, faults="restart")
    envs.reset(seed=1)
    for actions in ([1, 1, 1], [2, 2, 2]):
        envs.step(actions)
    os.kill(envs.processes[1].pid, signal.SIGKILL)
    while is_noticed and not envs.pool.stats().restarts:
        pass
    for _ in range(2):  # a second masked reset changes nothing
        obs, infos = envs.reset(options={"reset_mask": np.array([True, False, False])})
        assert (obs[1:, 2].tolist(), infos) == ([2, 2], {})
    obs, rewards, terminations, truncations, infos = envs.step([3, 3, 3])
    assert (truncations.tolist(), terminations.any(), rewards.tolist()) == ([False, True, False], False, [3, 0, 3])
    info = infos["final_info"] if mode is AutoresetMode.SAME_STEP else infos
    assert info["_fault"].tolist() == [False, True, False]
    assert obs[:, 2].tolist() == ([1, 0, 3] if mode is AutoresetMode.SAME_STEP else [1, 2, 3])
    envs.reset(options={"reset_mask": truncations})
    assert envs.step([1, 1, 1])[3].tolist() == [False] * 3
    envs.close()


def test_a_refused_masked_reset_sends_nothing(envs: AsyncVectorEnv) -> None:
    mask = np.array([True, False])
    for options, seed in (({"x": (i for i in range(3))}, None), ({}, ["a", 1])):
        with pytest.raises(TypeError):
            envs.reset(seed=seed, options={"reset_mask": mask, **options})
        assert envs.pool.pending == 0
        assert envs.step([1, 1])[1].tolist() == [1, 1]


@pytest.mark.parametrize("phase", ["call", "step"])
def test_after_an_interrupt_within_an_env_in_this_thread_a_reset_goes_on(phase: str, tmp_path: Path) -> None:
    interrupt = once(tmp_path / "once", lambda *_: signal.raise_signal(signal.SIGINT))
    envs = AsyncVectorEnv(hooked(3, **{phase: interrupt}), backend="serial")  # type: ignore[arg-type]
    envs.reset()
    with pytest.raises(KeyboardInterrupt):
        envs.call("poke") if phase == "call" else envs.step([1, 1, 1])
    if phase == "step":
        with pytest.raises(StateError, match=r"got none of envs \[1\]: a signal interrupted them; call reset"):
            envs.step_wait()
    else:
        with pytest.raises(NoAsyncCallError):
            envs.call_wait()
        assert envs.call("poke") == ("poked",) * 3
    envs.reset()
    assert envs.step([1, 1, 1])[1].tolist() == [1, 1, 1]
    envs.close()
