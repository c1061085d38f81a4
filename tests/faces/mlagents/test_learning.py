"""ML-Agents' trainer learns through the ML-Agents face, also while workers are killed."""

from __future__ import annotations

import importlib
import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drawn import nightly
from mlagents_face_envs import limits

import remuda.mlagents

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.watchdog(600)]

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.chdir(tmp_path)
    return importlib.import_module("mlagents_ppo")


def test_ppo_learns(example: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(example, "MAX_STEPS", 2000)  # the trainer has learned the task after 1000 steps
    curve = example.main()
    assert len(curve) >= 4
    assert curve[-1][1] > 0.7 > curve[0][1]
    printed = re.findall(r"^ *(\d+) steps: mean return +-?\d\.\d\d$", capsys.readouterr().out, re.MULTILINE)
    assert [int(step) for step in printed] == [step for step, _ in curve]


class Deadly(remuda.mlagents.SubprocessEnvManager):
    """Kills a random worker after some steps, chosen by a seeded generator."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._random, self.kills = np.random.default_rng(5), 0

    def _step(self) -> Any:
        steps = super()._step()
        for _ in steps:
            worker = self.env_workers[self._random.integers(len(self.env_workers))].process
            if self._random.random() < 0.01 and worker.is_alive():
                os.kill(worker.pid, signal.SIGKILL)
                self.kills += 1
        return steps


@nightly
def test_ppo_learns_while_workers_are_killed_at_random(example: Any) -> None:
    trained = Deadly(example.CorridorEnv, limits(lifetime=-1, at_once=-1), 3)
    curve = example.train(trained, 2000)  # deaths delay the learning, by a time that depends on the machine
    assert max(mean_return for _, mean_return in curve) > 0.5
    assert trained.kills >= 3
    assert sum(trained.restart_counts) >= 3


CONFIGURATION = """
behaviors:
  Walker:
    trainer_type: ppo
    hyperparameters: {batch_size: 32, buffer_size: 128, learning_rate: 0.005, learning_rate_schedule: constant}
    network_settings: {hidden_units: 32, num_layers: 1}
    max_steps: 1500
    summary_freq: 500
environment_parameters:
  difficulty:
    curriculum:
      - name: easy
        value: 1.0
        completion_criteria:
          {measure: reward, behavior: Walker, threshold: 0.3, min_lesson_length: 20, require_reset: true}
      - name: hard
        value: 2.0
"""


def test_mlagents_learn_runs_a_curriculum(example: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Runs the whole `mlagents-learn` program. Only the game is replaced."""
    from mlagents.trainers import learn

    resets: list[Any] = []

    class Watched(remuda.mlagents.SubprocessEnvManager):
        def _reset_env(self, config: Any = None) -> Any:
            resets.append({name: value.value for name, value in config.items()})
            return super()._reset_env(config)

    (tmp_path / "configuration.yaml").write_text(CONFIGURATION)
    monkeypatch.setattr(learn, "SubprocessEnvManager", Watched)
    monkeypatch.setattr(learn, "create_environment_factory", lambda *_: example.CorridorEnv)
    monkeypatch.setattr("torch.onnx.export", example.export_nothing)
    monkeypatch.setattr("sys.argv", ["mlagents-learn"])
    options = learn.parse_command_line(["configuration.yaml", "--run-id=run", "--env=game", "--num-envs=3", "--seed=1"])
    learn.run_cli(options)
    assert resets == [{"difficulty": 1.0}, {"difficulty": 2.0}]
    timers = json.loads((tmp_path / "results" / "run" / "run_logs" / "timers.json").read_text())
    advance = timers["children"]["TrainerController.start_learning"]["children"]["TrainerController.advance"]
    env_step = advance["children"]["env_step"]["children"]
    assert env_step["workers"]["children"]["worker_root"]["count"] > 500
    assert env_step["SubprocessEnvManager._take_step"]["count"] > 500
