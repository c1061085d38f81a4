"""Faults of envs and workers behind the Stable-Baselines3 face, with the policies "raise" and "restart"."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
import traceback
from pathlib import Path
from types import FrameType
from typing import Any

import accidents
import numpy as np
import pytest
from accidents import once
from failing import ACTS, policy_against
from pool_envs import Gate, gated, hooked
from stable_baselines3.common.vec_env import VecMonitor

import remuda
from remuda import Fault, FaultPolicy
from remuda.sb3 import (
    BrokenPoolError,
    CorruptReplyError,
    EnvError,
    EnvTimeoutError,
    RestartLimitError,
    SubprocVecEnv,
    WorkerDiedError,
)


def failing(kind: str, phase: str, policy: Any, path: Path) -> SubprocVecEnv:
    """Returns two envs with episodes of two steps. The second env has one fault of this kind in this phase."""
    act = once(path / "accident", ACTS[kind])
    return SubprocVecEnv(hooked(2, length=2, **{phase: act}), faults=policy_against(kind, policy))


# -- raised ----------------------------------------------------------------------------------------------


ERRORS = [BrokenPoolError, CorruptReplyError, EnvError, EnvTimeoutError, RestartLimitError, WorkerDiedError]


def test_errors_are_those_of_pipes_and_of_remuda() -> None:
    """The pipes of SB3's own vector env raise one of the errors of pipes."""
    for error in ERRORS:
        assert issubclass(error, getattr(remuda, error.__name__))
        for caught in (EOFError, ConnectionResetError, BrokenPipeError):
            assert issubclass(error, caught)
        assert issubclass(error, WorkerDiedError) is issubclass(error, remuda.WorkerDiedError)


def test_an_error_has_the_details_of_remudas_error_and_can_be_pickled() -> None:
    envs = SubprocVecEnv(hooked(2, step=accidents.kill_myself))
    envs.seed(7)
    envs.reset()
    pid = envs.processes[1].pid
    with pytest.raises(WorkerDiedError) as raised:
        envs.step([1, 2])
    envs.close()
    for error in (raised.value, pickle.loads(pickle.dumps(raised.value))):
        assert (error.worker, error.pid, error.env_ids, error.operation) == (1, pid, (1,), "step")
        assert (error.exitcode, error.where.seed, error.where.action) == (-signal.SIGKILL, 8, 2)
        assert "killed by SIGKILL" in str(error)


def test_ctrl_c_leaves_the_step_in_flight(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    envs = SubprocVecEnv(gated([None, gate]))
    envs.reset()
    envs.step_async([3, 4])
    gate.await_arrival()
    interrupter = threading.Thread(target=_interrupt_step_wait, args=[threading.get_ident()])
    interrupter.start()
    with pytest.raises(KeyboardInterrupt):
        envs.step_wait()
    interrupter.join()
    assert envs.waiting
    gate.open()
    assert envs.step_wait()[0][:, 3].tolist() == [3, 4]
    envs.close()


def _interrupt_step_wait(thread: int) -> None:
    while all(frame.f_code is not SubprocVecEnv.step_wait.__code__ for frame in _stack_of(thread)):
        pass
    signal.raise_signal(signal.SIGINT)


def _stack_of(thread: int) -> list[FrameType]:
    return [frame for frame, _ in traceback.walk_stack(sys._current_frames()[thread])]


# -- restarted -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", ["step", "autoreset"])
@pytest.mark.parametrize("kind", ACTS)
def test_a_fault_in_an_episode_cuts_it_off_and_restarts_the_env(kind: str, phase: str, tmp_path: Path) -> None:
    envs = failing(kind, phase, "restart", tmp_path)
    envs.reset()
    envs.set_attr("hint", 3)
    envs.set_attr("hint", 4, indices=[-1, 1])
    obs, rewards, dones, infos = [envs.step([5, 5]) for _ in range(1 if phase == "step" else 2)][-1]
    assert (bool(dones[1]), rewards[1], infos[1]["TimeLimit.truncated"]) == (True, 0, True)
    assert infos[1]["terminal_observation"].tolist() == ([1, 1, 0, -1] if phase == "step" else [1, 1, 1, 5])
    assert isinstance(infos[1]["fault"], Fault)
    assert infos[1]["fault"].kind == {"hang": "timeout"}.get(kind, kind)
    assert "fault" not in infos[0]
    assert obs[1].tolist() == [1, 1, 0, -1]  # the observation of the rebuilt env
    assert envs.reset_infos[1] == {}
    assert envs.get_attr("hint") == [3, 4]
    assert envs.step([7, 8])[0][1].tolist() == [1, 1, 1, 8]
    envs.close()


def test_a_reset_that_fails_is_repeated_with_its_seed_and_options(tmp_path: Path) -> None:
    envs = failing("death", "reset", "restart", tmp_path)
    envs.seed(3)
    envs.set_options({"o": 1})
    assert envs.reset()[1].tolist() == [1, 1, 0, -1]
    assert (envs.get_attr("last_seed"), envs.get_attr("last_options")) == ([3, 4], [{"o": 1}] * 2)
    envs.close()


def test_too_many_faults_raise_a_restart_limit_error() -> None:
    envs = SubprocVecEnv(
        hooked(2, step=accidents.raise_value_error), faults=FaultPolicy("restart", max_restarts=1, backoff=0)
    )
    envs.reset()
    assert envs.step([1, 1])[2].tolist() == [False, True]
    with pytest.raises(RestartLimitError, match="max_restarts=1") as raised:
        envs.step([1, 1])
    assert isinstance(raised.value, BrokenPipeError)
    assert len(raised.value.faults) == 2
    envs.close()


def test_statistics_count_an_episode_that_a_fault_cut_off() -> None:
    envs = VecMonitor(SubprocVecEnv(hooked(2), faults="restart"))
    envs.reset()
    envs.step(np.array([1, 1]))
    os.kill(envs.unwrapped.processes[1].pid, signal.SIGKILL)
    *_, infos = envs.step(np.array([2, 2]))
    assert (infos[1]["episode"]["r"], infos[1]["episode"]["l"]) == (1, 2)
    envs.close()
