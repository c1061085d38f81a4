"""Faults of envs and workers behind the Stable-Baselines3 face, with the policies "raise" and "restart"."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
import traceback
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import accidents
import gymnasium
import numpy as np
import pytest
from accidents import once
from failing import ACTS, policy_against
from pool_envs import DrawingEnv, Gate, gated, hooked
from programs import Watched
from sb3_face_envs import cartpoles
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

RAISED: dict[str, type[Exception]] = {"death": WorkerDiedError, "exception": EnvError, "hang": EnvTimeoutError}


def failing(kind: str, phase: str, policy: Any, path: Path) -> SubprocVecEnv:
    """Returns two envs with episodes of two steps. The second env has one fault of this kind in this phase."""
    act = once(path / "accident", ACTS[kind])
    env_fns = [partial(DrawingEnv, 0, 2), partial(DrawingEnv, 1, 2, **{phase: act})]
    return SubprocVecEnv(env_fns, faults=policy_against(kind, policy))


def run_until_the_fault(envs: SubprocVecEnv, phase: str) -> Any:
    envs.reset()
    if phase == "call":
        return envs.env_method("poke")
    if phase == "render":
        return envs.get_images()
    step = envs.step([5, 5])
    return envs.step([6, 6]) if phase == "autoreset" else step


# -- raised ----------------------------------------------------------------------------------------------


def test_a_death_is_caught_by_the_exceptions_of_sb3() -> None:
    """The pipes of SB3's own vector env raise one of these."""
    for caught in (EOFError, ConnectionResetError, BrokenPipeError, OSError, remuda.RemudaError):
        envs = SubprocVecEnv(hooked(2, step=accidents.kill_myself))
        envs.reset()
        with pytest.raises(caught):
            envs.step([1, 1])
        envs.close()


ERRORS = [BrokenPoolError, CorruptReplyError, EnvError, EnvTimeoutError, RestartLimitError, WorkerDiedError]


@pytest.mark.parametrize("error", ERRORS)
def test_errors_are_subclasses_of_remudas_errors(error: type[Exception]) -> None:
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


@pytest.mark.parametrize("then", ["step", "reset", "call", "close"])
def test_a_worker_killed_while_idle_is_reported_by_the_next_call(then: str) -> None:
    envs = SubprocVecEnv(hooked(3))
    envs.reset()
    watched = Watched([envs.processes[2].pid])
    os.kill(envs.processes[2].pid, signal.SIGKILL)
    watched.await_end()
    calls = {"step": lambda: envs.step([1, 1, 1]), "reset": envs.reset, "call": lambda: envs.get_attr("tag")}
    if then != "close":
        with pytest.raises(EOFError, match="worker 2"):
            calls[then]()
    envs.close()


def test_after_an_exception_a_reset_is_enough(tmp_path: Path) -> None:
    envs = failing("exception", "step", "raise", tmp_path)
    envs.reset()
    with pytest.raises(EnvError):
        envs.step([5, 5])
    with pytest.raises(remuda.StateError, match="env 1"):
        envs.step([6, 6])
    assert envs.reset().tolist() == [[0, 2, 0, -1], [1, 2, 0, -1]]
    envs.close()


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
    obs, rewards, dones, infos = run_until_the_fault(envs, phase)
    assert (bool(dones[1]), rewards[1], infos[1]["TimeLimit.truncated"]) == (True, 0, True)
    assert infos[1]["terminal_observation"].tolist() == ([1, 1, 0, -1] if phase == "step" else [1, 1, 1, 5])
    assert isinstance(infos[1]["fault"], Fault)
    assert infos[1]["fault"].kind == {"hang": "timeout"}.get(kind, kind)
    assert "fault" not in infos[0]
    assert obs[1].tolist() == [1, 1, 0, -1]  # the observation of the rebuilt env
    assert envs.reset_infos[1] == {}
    assert envs.step([7, 8])[0][1].tolist() == [1, 1, 1, 8]
    envs.close()


def test_a_rebuilt_env_has_a_seed_derived_from_its_last(tmp_path: Path) -> None:
    envs = failing("death", "step", "restart", tmp_path)
    envs.seed(7)
    envs.reset()
    _, _, _, infos = envs.step([5, 5])
    assert infos[1]["fault"].where.seed == 8
    derived = int(np.random.SeedSequence(8, spawn_key=(1, 1)).generate_state(1)[0]) % 2**31
    assert envs.get_attr("last_seed") == [7, derived]
    envs.close()


@pytest.mark.parametrize("kind", ACTS)
def test_a_reset_that_fails_is_repeated(kind: str, tmp_path: Path) -> None:
    envs = failing(kind, "reset", "restart", tmp_path)
    envs.seed(3)
    envs.set_options({"o": 1})
    assert envs.reset()[1].tolist() == [1, 1, 0, -1]
    assert (envs.get_attr("last_seed"), envs.get_attr("last_options")) == ([3, 4], [{"o": 1}] * 2)
    envs.close()


@pytest.mark.parametrize("phase", ["call", "render"])
@pytest.mark.parametrize("kind", ACTS)
def test_a_call_that_fails_is_not_repeated(kind: str, phase: str, tmp_path: Path) -> None:
    envs = failing(kind, phase, "restart", tmp_path)
    with pytest.raises(RAISED[kind]):
        run_until_the_fault(envs, phase)
    *_, dones, infos = envs.step([5, 5])
    assert bool(dones[1]) is (kind != "exception")
    assert ("fault" in infos[1]) is (kind != "exception")
    envs.close()


@pytest.mark.parametrize("kind", ["death", "exception"])
def test_a_rebuilt_env_has_the_attributes_that_were_set(kind: str, tmp_path: Path) -> None:
    envs = failing(kind, "step", "restart", tmp_path)
    envs.set_attr("hint", 3)
    envs.set_attr("hint", 4, indices=[-1, 1])
    assert run_until_the_fault(envs, "step")[2].tolist() == [False, True]
    assert envs.get_attr("hint") == [3, 4]
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


def test_other_envs_are_unaffected_by_restarts() -> None:
    """One of several seeded CartPoles is killed repeatedly."""
    plain = gymnasium.vector.SyncVectorEnv(cartpoles(3), autoreset_mode=gymnasium.vector.AutoresetMode.SAME_STEP)
    expected, _ = plain.reset(seed=5)
    envs = SubprocVecEnv(cartpoles(3), faults=FaultPolicy("restart", max_restarts=99, backoff=0))
    envs.seed(5)
    got = envs.reset()
    faults = 0
    for i, action in enumerate(np.random.default_rng(0).integers(0, 2, (200, 3))):
        np.testing.assert_array_equal(got[1:], expected[1:])
        if i % 40 == 20:
            os.kill(envs.processes[0].pid, signal.SIGKILL)
        expected, *_ = plain.step(action)
        got, *_, infos = envs.step(action)
        faults += "fault" in infos[0]
    assert faults == 5
    envs.close()
