"""Faults of envs behind the Stable-Baselines3 face, and Ctrl-C. `test_fault_table.py` has the errors."""

from __future__ import annotations

import signal
import sys
import threading
import traceback
from pathlib import Path
from types import FrameType

import pytest
from accidents import once
from failing import ACTS, policy_against
from pairs import each
from pool_envs import Gate, gated, hooked

from remuda import Fault
from remuda.sb3 import (
    SubprocVecEnv,
)


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


@each(kind=ACTS, phase=["step", "autoreset"])
def test_a_fault_in_an_episode_cuts_it_off_and_restarts_the_env(kind: str, phase: str, tmp_path: Path) -> None:
    act = once(tmp_path / "accident", ACTS[kind])
    envs = SubprocVecEnv(hooked(2, length=2, **{phase: act}), faults=policy_against(kind, "restart"))
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
