"""Faults of envs and workers behind the ALF face, with restarts. `test_fault_table.py` has the errors."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import accidents
import numpy as np
import pytest
import torch
from accidents import once
from alf.utils.schedulers import get_all_progresses, update_all_progresses, update_progress
from alf_face_envs import NestedAlfEnv, batched_of, counting, hooked, random_actions
from failing import ACTS

from remuda import FaultPolicy
from remuda.alf import FastParallelEnvironment

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")

FIRST, MID, LAST = range(3)


def actions(*numbers: int) -> torch.Tensor:
    return torch.tensor(numbers)


@pytest.mark.parametrize("kind", ["death", "exception"])
def test_a_rebuilt_env_has_a_derived_seed_and_the_progress(kind: str, tmp_path: Path) -> None:
    """The seed is replaced by one derived from it; otherwise the env would repeat the same episodes."""
    act = once(tmp_path / "accident", ACTS[kind], skip=1)
    policy = FaultPolicy("restart", backoff=0)
    with FastParallelEnvironment(hooked(2, step=act), faults=policy) as envs:
        envs.seed([7, 8])
        before = dict(get_all_progresses())
        update_progress("global_counter", 30)
        envs.sync_progress()
        update_all_progresses(before)  # otherwise a forked successor would inherit the progress
        envs.reset()
        envs.step(actions(1, 1))
        assert envs.step(actions(1, 1)).step_type.tolist() == [MID, LAST]
        seeds = [env.last_seed for env in envs.envs]
        assert seeds[0] == 7
        assert seeds[1] not in (None, 7, 8)
        assert envs.call_envs_with_same_args("progress") == [30, 30]


def test_all_rows_of_a_batched_env_end_together_with_their_last_nested_values(tmp_path: Path) -> None:
    class FailingEnv(NestedAlfEnv):
        def _step(self, action: Any) -> Any:
            if self.env_id == 2:
                once(tmp_path / "accident", accidents.kill_myself, skip=3)(self)
            return super()._step(action)

    constructors = batched_of(lambda env_id: FailingEnv(env_id, end=0), 2, 2)
    with FastParallelEnvironment(constructors, faults="restart") as envs:
        random = np.random.default_rng(0)
        before = time_step = envs.reset()
        while not envs.faults:
            before, action = time_step, random_actions(envs.action_spec(), 4, random)
            time_step = envs.step(action)
        assert list(envs.faults) == [1]
        assert time_step.step_type.tolist() == [MID, MID, LAST, LAST]
        assert time_step.reward[:2].all() and not time_step.reward[2:].any()
        assert torch.equal(time_step.prev_action["move"].velocity, action["move"].velocity)
        assert torch.equal(time_step.prev_action["bits"][0], action["bits"][0])
        assert torch.equal(time_step.observation["part"].position[2:], before.observation["part"].position[2:])
        assert torch.equal(time_step.env_info["deep"]["sums"][2:], before.env_info["deep"]["sums"][2:])
        assert envs.step(action).step_type.tolist() == [MID, MID, FIRST, FIRST]


@pytest.mark.parametrize("options", [{"num_workers": 2}, {"num_spare_envs_for_reload": 2}], ids=str)
def test_episodes_stay_whole_while_workers_are_killed_at_random(options: dict[str, Any]) -> None:
    random = np.random.default_rng(3)
    policy = FaultPolicy("restart", max_restarts=1000, backoff=0)
    with FastParallelEnvironment(counting(5, length=4), faults=policy, **options) as envs:
        time_step = envs.reset()
        faults = 0
        for action in range(999):
            if (worker := random.choice(envs.processes)).is_alive() and random.random() < 0.1:
                os.kill(worker.pid, signal.SIGKILL)
            before, time_step = time_step, envs.step(torch.full_like(time_step.env_id, action))
            faults += len(envs.faults)
            for i, (was, now) in enumerate(zip(before.step_type.tolist(), time_step.step_type.tolist(), strict=True)):
                steps, last_action = time_step.observation[i, 2:].tolist()
                assert (was == LAST) == (now == FIRST)
                if i in envs.faults:
                    assert (now, time_step.reward[i], time_step.discount[i]) == (LAST, 0, 1)
                elif now == FIRST:
                    assert (steps, last_action) == (0, -1)
                else:
                    assert (steps, last_action) == (before.observation[i, 2] + 1, action)
                    assert (now == LAST) == (steps == 4)
            if faults >= 8:
                break
    assert faults >= 8
