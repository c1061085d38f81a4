"""Fault policies through Gymnasium's interface."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from accidents import once
from failing import ACTS, policy_against
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers.vector import RecordEpisodeStatistics
from odd_exceptions import raising
from pairs import each
from pool_envs import hooked

import remuda
from remuda import EnvTimeoutError, Fault, FaultPolicy, RestartLimitError, WorkerDiedError
from remuda.gymnasium import AsyncVectorEnv

MODES = list(AutoresetMode)


def kill(envs: Any, index: int) -> None:
    os.kill(envs.processes[index].pid, signal.SIGKILL)


@each(mode=MODES, lazy_infos=[False, True])
def test_a_killed_worker_is_a_truncated_episode(mode: AutoresetMode, lazy_infos: bool) -> None:
    envs = AsyncVectorEnv(hooked(3), autoreset_mode=mode, faults="restart", lazy_infos=lazy_infos)
    envs.reset(seed=1)
    envs.step([1, 1, 1])
    kill(envs, 1)
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
    envs.close()


def test_a_rebuilt_env_has_a_seed_derived_from_its_last() -> None:
    envs = AsyncVectorEnv(hooked(2), faults="restart")
    envs.reset(seed=7)
    kill(envs, 1)
    for _ in range(2):
        envs.step([1, 1])
    derived = int(np.random.SeedSequence(8, spawn_key=(1, 1)).generate_state(1)[0]) % 2**31
    assert envs.get_attr("last_seed") == (7, derived)
    envs.close()


RAISED: dict[str, type[Exception]] = {"death": WorkerDiedError, "exception": ValueError, "hang": EnvTimeoutError}
CALLS: dict[str, Any] = {
    "call": lambda envs: envs.call("poke"),
    "render": lambda envs: envs.render(),
}


@pytest.mark.filterwarnings("ignore:.*ERROR")  # Gymnasium logs as warnings
@pytest.mark.parametrize("phase", CALLS)
@pytest.mark.parametrize("kind", ACTS)
def test_a_fault_in_a_call_is_raised_and_the_env_is_restarted(kind: str, phase: str, tmp_path: Path) -> None:
    """The call raises and is not repeated."""
    act = once(tmp_path / "accident", ACTS[kind])
    envs = AsyncVectorEnv(hooked(2, **{phase: act}), faults=policy_against(kind, "restart"))
    envs.reset()
    with pytest.raises(RAISED[kind]):
        CALLS[phase](envs)
    assert len(CALLS[phase](envs)) == 2
    assert envs.step([1, 1])[3].tolist() == [False, kind != "exception"]
    envs.close()


@pytest.mark.parametrize("kind", ["death", "exception"])
def test_a_rebuilt_env_has_the_attributes_that_were_set(kind: str, tmp_path: Path) -> None:
    act = once(tmp_path / "accident", ACTS[kind])
    envs = AsyncVectorEnv(hooked(2, step=act), faults="restart")
    envs.reset()
    envs.set_attr("hint", [3, 4])
    assert envs.step([1, 1])[3].tolist() == [False, True]
    assert envs.get_attr("hint") == (3, 4)
    envs.close()


def test_statistics_count_an_episode_that_a_fault_cut_off() -> None:
    envs = RecordEpisodeStatistics(AsyncVectorEnv(hooked(2), faults="restart"))
    envs.reset(seed=1)
    envs.step(np.array([1, 1]))
    kill(envs.unwrapped, 1)
    *_, infos = envs.step(np.array([2, 2]))
    assert infos["_episode"].tolist() == [False, True]
    assert (infos["episode"]["r"][1], infos["episode"]["l"][1]) == (1, 2)
    envs.close()


def test_a_missed_deadline_is_not_a_timeout_of_step_wait() -> None:
    envs = AsyncVectorEnv(hooked(2, step=lambda *_: ctypes.PyDLL(None).pause()), faults=FaultPolicy(step_timeout=0.3))
    envs.reset()
    envs.step_async([1, 1])
    with pytest.raises(EnvTimeoutError, match="step_timeout") as raised:
        envs.step_wait()
    assert not isinstance(raised.value, multiprocessing.TimeoutError)
    envs.close()


def test_too_many_faults_raise_a_restart_limit_error() -> None:
    failing = hooked(2, step=raising(lambda: ValueError("broken")))
    envs = AsyncVectorEnv(failing, faults=FaultPolicy("restart", max_restarts=1, backoff=0))
    envs.reset()
    assert envs.step([1, 1])[3].tolist() == [False, True]
    envs.step([1, 1])  # resets the env
    with pytest.raises(RestartLimitError, match="max_restarts=1"):
        envs.step([1, 1])
    envs.close()


def test_make_vec_takes_the_same_options(tmp_path: Path) -> None:
    envs = remuda.make_vec("CartPole-v1", num_envs=2, faults="restart", worker_output=tmp_path)
    envs.reset(seed=3)
    kill(envs, 0)
    assert envs.step(np.array([0, 1]))[3].tolist() == [True, False]
    envs.step(np.array([0, 1]))
    envs.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["worker-0.log", "worker-1.log"]


def test_other_envs_are_unaffected_by_restarts(tmp_path: Path) -> None:
    """One of several seeded CartPoles is killed repeatedly."""
    actions = np.random.default_rng(0).integers(0, 2, (300, 4))
    plain = gymnasium.vector.SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")] * 4)
    expected, _ = plain.reset(seed=5)
    envs = AsyncVectorEnv(
        [lambda: gymnasium.make("CartPole-v1")] * 4, faults=FaultPolicy("restart", max_restarts=99, backoff=0)
    )
    got, _ = envs.reset(seed=5)
    faults = 0
    for i, action in enumerate(actions):
        np.testing.assert_array_equal(got[1:], expected[1:])
        if i % 50 == 25:
            kill(envs, 0)
        expected, *_ = plain.step(action)
        got, *_, infos = envs.step(action)
        faults += int(infos["_fault"][0]) if "_fault" in infos else 0
    assert faults >= 4  # a kill between two episodes cuts no episode off
    envs.close()
