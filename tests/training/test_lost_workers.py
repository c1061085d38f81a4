"""Evaluations of tasks end although a worker can no longer be started, or dies whenever its episode is played again."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

import accidents
import numpy as np
import pytest
from task_envs import Walk

from remuda import FaultPolicy, RestartLimitError, Task, evaluate_tasks


def still(obs: Any) -> Any:
    return np.zeros((len(obs), 2))


MODULE = """
from pathlib import Path
from accidents import kill_myself
from task_envs import Walk

class Vanishing(Walk):
    def step(self, action):
        if self.steps == 1:
            Path(__file__).unlink()
            kill_myself()
        return super().step(action)
"""


def test_a_worker_whose_module_has_gone_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "vanishing.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    import vanishing  # type: ignore[import-not-found]  # it was just written

    faults = FaultPolicy("restart", max_restarts=2, backoff=0.0)
    with pytest.raises(RestartLimitError, match="max_restarts=2 of one env.*\n.*No module named 'vanishing'"):
        evaluate_tasks(still, [Task("gone", vanishing.Vanishing)], episodes=2, num_envs=1, faults=faults)


class Doomed(Walk):
    """A walk that kills its worker in the second step of each episode, after it was built for the second time."""

    def __init__(self, builds: Path) -> None:
        super().__init__()
        with builds.open("a") as file:
            file.write(".")
        self.is_again = builds.stat().st_size > 1

    def step(self, action: Any) -> Any:
        if self.steps == (1 if self.is_again else 2):
            accidents.kill_myself()
        return super().step(action)


def test_an_episode_that_dies_whenever_it_is_played_again_has_the_status_fault(tmp_path: Path) -> None:
    task = Task("doomed", partial(Doomed, tmp_path / "builds"))
    faults = FaultPolicy("resume", backoff=0.0)
    results = evaluate_tasks(still, [task], episodes=2, num_envs=1, attempts=2, faults=faults)
    assert [row["status"] for row in results.rows] == ["fault", "fault"]
