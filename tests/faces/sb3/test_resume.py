"""Stable-Baselines3's vector env with `faults="resume"`: calls that only read envs leave their episodes resumable."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drawn import MINUTES, nightly
from programs import kill
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.monitor import Monitor

from remuda import FaultPolicy
from remuda.sb3 import SubprocVecEnv

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


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


@nightly
def test_ppo_learns_the_same_weights_for_minutes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    example = importlib.import_module("resume")
    monkeypatch.setattr(example, "STEPS", round(20_000 * MINUTES))
    monkeypatch.setattr(example, "ACCIDENT_EVERY", 0.5)
    example.main()
    assert "equal weights: True" in capsys.readouterr().out
