"""Tasks on a cluster: the same results as here, also after kills in builds, resets and steps."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from task_envs import Mortal, Walk, kills

import remuda
from remuda import FaultPolicy, Task, evaluate_tasks


def noisy(obs: Any, context: remuda.PolicyContext) -> Any:
    return np.array([unit.rng.normal(size=2) for unit in context.units])


@pytest.mark.usefixtures("kept_actors")
def test_tasks_on_a_cluster_have_the_same_results(tmp_path: Path) -> None:
    deaths, scales = {"build": 1, "reset": 1, "step": 1}, (1.0, -1.0)
    tasks = [Task(str(scale), partial(Walk, scale)) for scale in scales]
    expected = evaluate_tasks(noisy, tasks, episodes=3, num_envs=1, seed=3, backend="serial")
    mortal = [Task(str(scale), partial(Mortal, tmp_path, str(scale), deaths, scale)) for scale in scales]
    faults = FaultPolicy(backoff=0.0)
    results = evaluate_tasks(
        noisy, mortal, episodes=3, num_envs=4, seed=3, attempts=9, backend=remuda.Ray(shards=2), faults=faults
    )
    changed = ("attempts", "faults")
    for found, wanted in zip(results.rows, expected.rows, strict=True):
        assert {key: found[key] for key in found if key not in changed} == {
            key: wanted[key] for key in wanted if key not in changed
        }
    assert kills(tmp_path) >= 2 + 6 + 6 - 2  # an episode may end before its second step
