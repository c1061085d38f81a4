"""ML-Agents' own trainer learns through our manager, and goes on where a worker is killed."""

from __future__ import annotations

import importlib
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from mlagents_face_envs import kill, limits

import remuda.mlagents

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.watchdog(300)]

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.chdir(tmp_path)
    return importlib.import_module("mlagents_ppo")


def test_ppo_learns(example: Any, capsys: pytest.CaptureFixture[str]) -> None:
    curve = example.main()
    assert len(curve) >= 4
    assert curve[-1][1] > 0.7 > curve[0][1]
    printed = re.findall(r"^ *(\d+) steps: mean return +-?\d\.\d\d$", capsys.readouterr().out, re.MULTILINE)
    assert [int(step) for step in printed] == [step for step, _ in curve]


def test_ppo_goes_on_when_a_worker_is_killed(example: Any, tmp_path: Path) -> None:
    class Mortal(example.CorridorEnv):  # type: ignore[misc, name-defined]
        """Dies in its 40th step, in the middle of an episode, once."""

        def __init__(self, worker_id: int, channels: list[Any]) -> None:
            super().__init__(worker_id, channels)
            self._life = 40 if worker_id == 1 and not (tmp_path / "dead").exists() else -1

        def step(self) -> None:
            super().step()
            self._life -= 1
            if self._life == 0:
                (tmp_path / "dead").touch()
                kill()

    manager = remuda.mlagents.SubprocessEnvManager(partial(Mortal), limits(), 4)
    curve = example.train(manager, 3000)
    assert manager.restart_counts == [0, 1, 0, 0]
    assert curve[-1][1] > 0.7
