"""DI-engine's pipelines run on our managers."""

from __future__ import annotations

import copy
import importlib
import warnings
from pathlib import Path
from typing import Any

import pytest
from ding_face_envs import ours, reap

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from ding.entry import serial_pipeline
    from dizoo.classic_control.cartpole.config.cartpole_dqn_config import create_config, main_config

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.watchdog(300)]

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture(autouse=True)
def a_place_for_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("kind", ["remuda_subprocess", "remuda_async_subprocess"])
def test_a_serial_pipeline(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Collector, evaluator, learner."""
    steps: list[int] = []
    step = ours.AsyncSubprocessEnvManager.step

    def counting(self: Any, actions: Any) -> Any:
        timesteps = step(self, actions)
        steps.append(len(timesteps))
        return timesteps

    monkeypatch.setattr(ours.AsyncSubprocessEnvManager, "step", counting)
    config, create = copy.deepcopy((main_config, create_config))
    create.env_manager.type = kind
    config.policy.learn.update_per_collect = 1
    config.env.collector_env_num, config.env.evaluator_env_num, config.env.n_evaluator_episode = 3, 2, 2
    policy = serial_pipeline([config, create], seed=0, max_train_iter=3)
    assert policy is not None
    assert sum(steps) >= 3 * 8  # as many samples as it collects, and the episodes of an evaluation


def test_the_example(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """It learns on our envs what it learns on the original's."""
    monkeypatch.syspath_prepend(EXAMPLES)
    example = importlib.import_module("ding_dqn")
    monkeypatch.setattr(example, "MAX_STEPS", 600)
    curves = example.main(tmp_path / "curves.png")
    reap()
    ours, theirs = ([point[1:] for point in curve] for curve in curves.values())
    assert ours == theirs
    assert len(ours) > 2
    assert "the same curve: True" in capsys.readouterr().out
    assert (tmp_path / "curves.png").stat().st_size > 0
