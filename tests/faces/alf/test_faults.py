"""Faults of envs and workers behind the ALF face, with the policies "raise" and "restart"."""

from __future__ import annotations

import os
import pickle
import signal
from pathlib import Path
from typing import Any

import accidents
import numpy as np
import pytest
import torch
from accidents import once
from alf.utils.schedulers import get_all_progresses, update_all_progresses, update_progress
from alf_face_envs import CountingAlfEnv, NestedAlfEnv, batched_of, counting, hooked, random_actions
from failing import ACTS, policy_against
from pairs import each
from pool_envs import Gate
from programs import Watched

import remuda
from remuda import FaultPolicy
from remuda.alf import (
    BrokenPoolError,
    ClosedError,
    CorruptReplyError,
    EnvError,
    EnvTimeoutError,
    FastParallelEnvironment,
    InvalidActionError,
    ParallelAlfEnvironment,
    RestartLimitError,
    WorkerDiedError,
)

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")

RAISED: dict[str, type[Exception]] = {"death": WorkerDiedError, "exception": EnvError, "hang": EnvTimeoutError}
FIRST, MID, LAST = range(3)


def failing(kind: str, phase: str, policy: Any, path: Path, **options: Any) -> FastParallelEnvironment:
    """Returns two envs with episodes of two steps. The second env has one fault of this kind in this phase."""
    act = once(path / "accident", ACTS[kind])
    faults = policy_against(kind, policy)
    return FastParallelEnvironment(hooked(2, length=2, **{phase: act}), faults=faults, **options)


def actions(*numbers: int) -> torch.Tensor:
    return torch.tensor(numbers)


def run_until_the_fault(envs: FastParallelEnvironment, phase: str) -> Any:
    envs.reset()
    if phase == "call":
        return envs.call_envs_with_same_args("poke")
    if phase == "render":
        return envs.envs[1].render()
    steps = {"step": 1, "autoreset": 3}.get(phase, 0)
    for i in range(steps):
        time_step = envs.step(actions(5 + i, 5 + i))
    return time_step


# -- raised ----------------------------------------------------------------------------------------------


@each(kind=[FastParallelEnvironment, ParallelAlfEnvironment], then=["step", "reset", "call", "seed", "close"])
def test_a_worker_killed_while_idle_is_reported_by_the_next_call(then: str, kind: Any) -> None:
    envs = kind(counting(3))
    envs.reset()
    watched = Watched([envs.processes[2].pid])
    os.kill(envs.processes[2].pid, signal.SIGKILL)
    watched.await_end()
    calls = {
        "step": lambda: envs.step(actions(1, 1, 1)),
        "reset": envs.reset,
        "call": lambda: envs.call_envs_with_same_args("poke"),
        "seed": lambda: envs.seed([1, 2, 3]),
    }
    if then != "close":
        with pytest.raises(WorkerDiedError, match="worker 2"):
            calls[then]()
    envs.close()


def test_the_error_for_a_worker_killed_in_a_step_names_the_env(tmp_path: Path) -> None:
    gate = Gate(tmp_path)

    def die(_: Any) -> None:
        gate.wait()
        accidents.kill_myself()

    envs = FastParallelEnvironment([*hooked(1, (0,), step=die), *hooked(1, (0,), step=lambda _: gate.let_pass())])
    envs.reset()
    with pytest.raises(WorkerDiedError, match="killed by SIGKILL") as raised:
        envs.step(actions(1, 1))
    assert (raised.value.env_ids, raised.value.operation) == ((0,), "step")
    envs.close()


def test_a_spare_killed_in_its_reset_is_reported(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    envs = FastParallelEnvironment(hooked(2, (1,), reset=lambda _: gate.wait()), num_spare_envs_for_reload=1)
    envs.reset()
    gate.await_arrival()
    os.kill(envs.processes[1].pid, signal.SIGKILL)
    with pytest.raises(WorkerDiedError, match="worker 1"):
        while True:
            envs.step(actions(1))
    envs.close()


ERRORS = [
    BrokenPoolError,
    ClosedError,
    CorruptReplyError,
    EnvError,
    EnvTimeoutError,
    InvalidActionError,
    RestartLimitError,
    WorkerDiedError,
]


@pytest.mark.parametrize("error", ERRORS)
def test_errors_are_subclasses_of_remudas_errors(error: type[Exception]) -> None:
    assert issubclass(error, getattr(remuda, error.__name__))
    assert issubclass(error, RuntimeError)
    assert issubclass(error, WorkerDiedError) is issubclass(error, remuda.WorkerDiedError)


def test_an_error_has_the_details_of_remudas_error_and_can_be_pickled() -> None:
    envs = FastParallelEnvironment(hooked(2, step=accidents.kill_myself))
    envs.reset()
    pid = envs.processes[1].pid
    with pytest.raises(WorkerDiedError) as raised:
        envs.step(actions(1, 2))
    envs.close()
    for error in (raised.value, pickle.loads(pickle.dumps(raised.value))):
        assert (error.worker, error.pid, error.env_ids, error.operation) == (1, pid, (1,), "step")
        assert (error.exitcode, error.where.action) == (-signal.SIGKILL, 2)
        assert "killed by SIGKILL" in str(error)


def test_an_error_names_no_seed_if_none_was_set() -> None:
    """With spares, a reset returns all envs to their slots."""
    failing_ones = hooked(3, (0,), 2, step=accidents.raise_value_error)
    with FastParallelEnvironment(failing_ones, num_spare_envs_for_reload=1) as envs:
        envs.reset()
        with pytest.raises(EnvError, match=r"step: broken \(episode 0, step 1, no seed, "):
            envs.step(actions(1, 1))


# -- restarted -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ACTS)
def test_a_fault_in_a_step_cuts_the_episode_off(kind: str, tmp_path: Path) -> None:
    envs = failing(kind, "step", "restart", tmp_path)
    envs.reset()
    time_step = envs.step(actions(5, 6))
    assert time_step.step_type.tolist() == [MID, LAST]
    assert time_step.reward.tolist() == [5, 0]
    assert time_step.discount.tolist() == [1, 1]  # as if truncated: the task has not ended
    assert time_step.observation.tolist() == [[0, 1, 1, 5], [1, 1, 0, -1]]
    assert time_step.prev_action.tolist() == [5, 6]
    assert time_step.env_id.tolist() == [0, 1]
    assert time_step.env_info["steps"].tolist() == [1, 0]
    assert list(envs.faults) == [1]
    assert envs.faults[1].kind == {"hang": "timeout"}.get(kind, kind)
    time_step = envs.step(actions(5, 6))
    assert time_step.step_type.tolist() == [LAST, FIRST]
    assert time_step.observation[1].tolist() == [1, 1, 0, -1]  # the observation of the rebuilt env
    assert not envs.faults
    assert envs.step(actions(7, 8)).observation[1].tolist() == [1, 1, 1, 8]
    envs.close()


@each(phase=["reset", "autoreset"], kind=ACTS)
def test_a_reset_that_fails_is_repeated(kind: str, phase: str, tmp_path: Path) -> None:
    envs = failing(kind, phase, "restart", tmp_path)
    if phase == "reset":
        assert envs.reset().step_type.tolist() == [FIRST, FIRST]
    else:
        assert run_until_the_fault(envs, phase).step_type.tolist() == [FIRST, FIRST]
    assert not envs.faults
    assert envs.step(actions(7, 8)).observation[:, 2:].tolist() == [[1, 7], [1, 8]]
    envs.close()


@each(phase=["call", "render"], kind=ACTS)
def test_a_call_that_fails_is_not_repeated(kind: str, phase: str, tmp_path: Path) -> None:
    envs = failing(kind, phase, "restart", tmp_path)
    with pytest.raises(RAISED[kind]):
        run_until_the_fault(envs, phase)
    time_step = envs.step(actions(5, 5))
    assert time_step.step_type.tolist() == [MID, MID if kind == "exception" else LAST]
    assert bool(envs.faults) is (kind != "exception")
    envs.close()


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


def test_a_lost_env_keeps_its_last_nested_values(tmp_path: Path) -> None:
    class FailingEnv(NestedAlfEnv):
        def _step(self, action: Any) -> Any:
            if self.env_id == 1:
                once(tmp_path / "accident", accidents.kill_myself, skip=3)(self)
            return super()._step(action)

    with FastParallelEnvironment([lambda env_id: FailingEnv(env_id, end=0)] * 2, faults="restart") as envs:
        random = np.random.default_rng(0)
        before = envs.reset()
        time_step = before
        while not envs.faults:
            before, action = time_step, random_actions(envs.action_spec(), 2, random)
            time_step = envs.step(action)
        assert time_step.step_type.tolist() == [MID, LAST]
        assert time_step.reward[1].tolist() == [0, 0]
        assert torch.equal(time_step.prev_action["move"].velocity, action["move"].velocity)
        assert torch.equal(time_step.prev_action["bits"][0], action["bits"][0])
        assert torch.equal(time_step.observation["part"].position[1], before.observation["part"].position[1])
        assert torch.equal(time_step.env_info["deep"]["sums"][1], before.env_info["deep"]["sums"][1])
        assert envs.step(action).step_type.tolist() == [MID, FIRST]


def test_all_rows_of_a_batched_env_end_together(tmp_path: Path) -> None:
    die = once(tmp_path / "accident", lambda env: accidents.kill_myself(), lambda env: env.steps == 2)
    constructors = [
        *batched_of(CountingAlfEnv, 2, 1),
        *batched_of(lambda env_id: CountingAlfEnv(env_id, step=die), 2, 1),
    ]
    with FastParallelEnvironment(constructors, faults="restart") as envs:
        envs.reset()
        envs.step(actions(1, 2, 3, 4))
        time_step = envs.step(actions(5, 6, 7, 8))
        assert time_step.step_type.tolist() == [MID, MID, LAST, LAST]
        assert time_step.reward.tolist() == [5, 6, 0, 0]
        assert time_step.prev_action.tolist() == [5, 6, 7, 8]
        assert list(envs.faults) == [1]
        assert envs.step(actions(1, 2, 3, 4)).step_type.tolist() == [MID, MID, FIRST, FIRST]


def test_a_lost_env_is_replaced_by_its_spare() -> None:
    with FastParallelEnvironment(counting(3), num_spare_envs_for_reload=1, faults="restart") as envs:
        envs.reset()
        os.kill(envs.processes[1].pid, signal.SIGKILL)
        assert envs.step(actions(1, 1)).step_type.tolist() == [MID, LAST]
        time_step = envs.step(actions(2, 2))
        assert (time_step.step_type.tolist(), time_step.observation[:, 0].tolist()) == ([MID, FIRST], [0, 2])


def test_a_death_cuts_off_all_envs_of_the_worker() -> None:
    with FastParallelEnvironment(counting(3), num_workers=1, faults="restart") as envs:
        envs.reset()
        os.kill(envs.processes[0].pid, signal.SIGKILL)
        assert envs.step(actions(1, 1, 1)).step_type.tolist() == [LAST] * 3
        assert envs.step(actions(1, 1, 1)).step_type.tolist() == [FIRST] * 3


def test_too_many_faults_raise_a_restart_limit_error() -> None:
    policy = FaultPolicy("restart", max_restarts=1, backoff=0)
    envs = FastParallelEnvironment(hooked(2, step=accidents.raise_value_error), faults=policy)
    envs.reset()
    assert envs.step(actions(1, 1)).step_type.tolist() == [MID, LAST]
    with pytest.raises(RestartLimitError, match="max_restarts=1") as raised:
        for _ in range(2):
            envs.step(actions(1, 1))
    assert len(raised.value.faults) == 2
    envs.close()
