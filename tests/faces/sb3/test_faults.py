"""Faults of envs behind the Stable-Baselines3 face, and Ctrl-C. `test_fault_table.py` has the errors."""

from __future__ import annotations

import signal
import sys
import threading
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from accidents import once
from failing import ACTS, policy_against
from pairs import each
from pool_envs import Gate, gated, hooked
from programs import kill
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.monitor import Monitor

from remuda import Fault, FaultPolicy
from remuda.sb3 import SubprocVecEnv


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
    wanted = SubprocVecEnv.step_wait.__code__
    while all(frame.f_code is not wanted for frame, _ in traceback.walk_stack(sys._current_frames()[thread])):
        pass
    signal.raise_signal(signal.SIGINT)


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


# -- resumed ---------------------------------------------------------------------------------------------


def position(env: Any) -> Any:
    """Returns the state of a CartPole, for `extras`."""
    return env.unwrapped.state


def live(kills: tuple[int, ...]) -> list[Any]:
    """Returns all rows of three CartPoles. `kills`: the steps before which a worker is killed."""
    faults = FaultPolicy("resume", max_restarts=1000, backoff=0)
    options = {"num_workers": None, "faults": faults, "extras": {"position": (position, ((4,), "float64"))}}
    envs = make_vec_env("CartPole-v1", 3, seed=4, vec_env_cls=SubprocVecEnv, vec_env_kwargs=options)  # type: ignore[arg-type]
    assert isinstance(envs, SubprocVecEnv)
    envs.set_attr("set_before", 1)
    envs.set_options({"low": -0.01, "high": 0.01})
    rows: list[Any] = [envs.reset().tolist()]
    actions = np.random.default_rng(0)
    for step in range(60):
        assert envs.env_is_wrapped(Monitor) == [True] * 3
        assert envs.has_attr("np_random")
        rows.append([state.tolist() for state in envs.env_method("position")])
        rows.append(str(envs.get_attr("np_random", 0)[0].bit_generator.state))
        envs.seed(7)  # holds for the next `reset`, which never comes
        if step in kills:
            kill(envs.pool, step % 3)  # type: ignore[arg-type]
        obs, rewards, dones, infos = envs.step(actions.integers(0, 2, 3))
        ends = [(info["episode"]["r"], info["terminal_observation"].tolist()) for info in infos if "episode" in info]
        rows.append((obs.tolist(), rewards.tolist(), dones.tolist(), ends, ["fault" in info for info in infos]))
    assert envs.stats().restarts >= len(kills)
    envs.close()
    return rows


def test_calls_that_only_read_envs_leave_their_episodes_resumable() -> None:
    expected = live(())
    assert any(any(row[2]) for row in expected if isinstance(row, tuple))
    assert live((3, 10, 11, 25, 26, 27, 40, 59)) == expected


def test_rewards_keep_their_dtype_when_a_fault_ends_an_episode() -> None:
    def step(env: Any, action: Any) -> Any:
        if action == 1:
            raise ValueError("broken")
        return env.observe(), np.float32(0.5), False, False, {}

    with_float32 = SubprocVecEnv(hooked(2, (0, 1), step=step), faults=FaultPolicy("restart", backoff=0.0))
    with_float32.reset()
    rewards = [with_float32.step(np.array(actions))[1] for actions in ([0, 0], [0, 1], [0, 0])]
    with_float32.close()
    assert [(one.dtype, one.tolist()) for one in rewards] == [
        (np.float32, [0.5, 0.5]),
        (np.float32, [0.5, 0.0]),
        (np.float32, [0.5, 0.5]),
    ]
