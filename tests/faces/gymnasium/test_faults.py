"""Faults of envs and workers behind the Gymnasium face. `test_fault_table.py` has the error of each fault."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import warnings

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from odd_exceptions import raising
from pairs import each
from pool_envs import hooked

from remuda import EnvError, EnvTimeoutError, Fault, FaultPolicy, StateError
from remuda.gymnasium import AsyncState, AsyncVectorEnv

wrong = raising(lambda: ValueError("100% wrong"))


# -- raised ----------------------------------------------------------------------------------------------


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


def test_a_missed_deadline_is_not_a_timeout_of_step_wait() -> None:
    envs = AsyncVectorEnv(hooked(2, step=lambda *_: ctypes.PyDLL(None).pause()), faults=FaultPolicy(step_timeout=0.3))
    envs.reset()
    envs.step_async([1, 1])
    with pytest.raises(EnvTimeoutError, match="step_timeout") as raised:
        envs.step_wait()
    assert not isinstance(raised.value, multiprocessing.TimeoutError)
    envs.close()


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
