"""Restarts of Unity environments: how often, in which phase, and what the new one is told."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mlagents_face_envs as envs
import pytest
from mlagents.trainers.settings import ConstantSettings, TrainerSettings
from mlagents_envs.exception import (
    UnityCommunicationException,
    UnityEnvironmentException,
    UnityTimeOutException,
)
from mlagents_face_envs import (
    FaultyEnv,
    GatedEnv,
    SubprocessEnvManager,
    TestEnv,
    faulty,
    limits,
    make_gate,
    manager,
    obs_of,
    open_gate,
    raising,
    step_until_it_fails,
    steps_of,
)

from remuda import FaultPolicy, StateError, load_record
from remuda.mlagents import EnvTimeoutError, WorkerDiedError

pytestmark = pytest.mark.filterwarnings("ignore")


# -- quotas ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "restarts"),
    [
        (limits(lifetime=10, at_once=1), 1),
        (limits(lifetime=2, at_once=5), 2),
        (limits(lifetime=2, at_once=-1), 2),
        (limits(lifetime=-1, at_once=3), 3),
        (limits(lifetime=3, at_once=1, period=0), 3),
        (limits(lifetime=0, at_once=-1), 0),
    ],
)
def test_quotas(options: Any, restarts: int) -> None:
    made = manager(faulty(raising(UnityTimeOutException)), 1, options)
    made.reset({})
    with pytest.raises(UnityTimeOutException):
        step_until_it_fails(made)
    assert made.restart_counts == [restarts]
    made.close()


def test_no_quota_at_all() -> None:
    made = manager(faulty(raising(UnityTimeOutException)), 1, limits(lifetime=-1, at_once=-1))
    made.reset({})
    while made.restart_counts[0] < 12:
        made.get_steps()
    made.close()


# -- when it happens -------------------------------------------------------------------------------------


@pytest.mark.parametrize("accident", [envs.kill, raising(UnityTimeOutException)])
def test_a_reset_that_fails_is_tried_again(accident: Any, tmp_path: Path) -> None:
    made = manager(faulty(accident, where="reset", place=tmp_path / "once"))
    made.reset({"gravity": 3.0})
    made.get_steps()
    made.reset({"gravity": 4.0})
    assert [obs_of(step)[1:3] for step in made.first_step_infos] == [[1, 0], [2, 0]]
    assert made.restart_counts == [1, 0]
    made.close()


@pytest.mark.parametrize("where", ["build", "reset"])
@pytest.mark.parametrize(
    ("accident", "error"),
    [(envs.kill, WorkerDiedError), (raising(UnityEnvironmentException), UnityEnvironmentException)],
)
def test_an_env_that_could_never_be_reset_is_no_case_for_a_restart(
    where: str, accident: Any, error: type[Exception]
) -> None:
    made = manager(faulty(accident, where=where, at=1))
    with pytest.raises(error):
        made.reset({})
    assert made.restart_counts == [0, 0]
    made.close()


def test_a_restart_that_fails_counts_as_well(tmp_path: Path) -> None:
    class Unlucky(FaultyEnv):
        """Once it was killed, it cannot be built any more."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            if (tmp_path / "once").exists():
                raise UnityEnvironmentException("no licence")
            super().__init__(*args, **kwargs)

    made = manager(partial(Unlucky, accident=envs.kill, place=tmp_path / "once"), 1, limits(at_once=2))
    made.reset({})
    with pytest.raises(UnityEnvironmentException, match="no licence"):
        step_until_it_fails(made)
    assert made.restart_counts == [2]
    made.close()


class TellingEnv(FaultyEnv):
    """Shows what it was told, in the order of the messages: names of parameters, and of behaviours that are trained."""

    academy_capabilities = SimpleNamespace(trainingAnalytics=True)

    def told(self) -> list[str]:
        messages = [(bytes(m), name) for m in self.channels[0].message_queue for name in NAMES if name in bytes(m)]
        return [name.decode() for _, name in messages] + ["training"] * self._begun()

    def _begun(self) -> int:
        """The first message says that there is an env."""
        return len(self.channels[3].message_queue) - 1 if len(self.channels) > 3 else 0

    def get_steps(self, behavior_name: str) -> Any:
        decisions, ends = super().get_steps(behavior_name)
        told = self.told()
        decisions.obs[0][0] = [self.resets, told.count("gravity"), told.count("wind"), told.count("training")]
        return decisions, ends


NAMES = (b"gravity", b"wind")


def telling(made: Any) -> Any:
    made.reset({"gravity": 3.0})
    made.set_env_parameters({"wind": ConstantSettings(value=2.0)})
    made.on_training_started("b", TrainerSettings())
    return made


@pytest.mark.parametrize("accident", [envs.kill, raising(UnityTimeOutException)])
def test_an_env_that_was_built_anew_is_told_all_that_the_one_before_was(accident: Any, tmp_path: Path) -> None:
    made = telling(manager(partial(TellingEnv, accident=accident, place=tmp_path / "once"), 1))
    first, _, again = steps_of(made, 0, 3)
    assert obs_of(first) == [1, 1, 1, 1]
    assert obs_of(again) == [1, 1, 1, 1]
    made.close()


def test_so_is_one_whose_failure_was_raised(tmp_path: Path) -> None:
    made = telling(manager(partial(TellingEnv, accident=raising(LookupError), place=tmp_path / "once"), 1))
    with pytest.raises(LookupError):
        step_until_it_fails(made)
    made.reset({"gravity": 4.0})
    assert obs_of(made.first_step_infos[0]) == [1, 2, 1, 1]  # gravity as before, and as it is to be from now on
    made.close()


def test_so_is_one_of_those_that_are_all_reset(tmp_path: Path) -> None:
    made = telling(
        manager(partial(TellingEnv, accident=envs.kill, place=tmp_path / "once"), 1, reset_all_on_restart=True)
    )
    _, again = steps_of(made, 0, 2)
    assert obs_of(again) == [1, 1, 2, 1]
    made.close()


def test_an_env_that_dies_when_asked_for_its_behaviours() -> None:
    made = manager(faulty(envs.kill, where="build", at=1))
    with pytest.raises(WorkerDiedError):
        _ = made.training_behaviors
    made.close()


def test_a_hang_is_ended_by_its_deadline(tmp_path: Path) -> None:
    made = manager(faulty(envs.hang, place=tmp_path / "once"), faults=FaultPolicy("restart", step_timeout=0.3))
    made.reset({})
    _, cut, again = steps_of(made, 0, 3)
    assert cut.current_all_step_result["b"][1].interrupted.tolist() == [True]
    assert obs_of(again)[1:3] == [1, 0]
    made.close()


def test_a_hang_without_a_quota() -> None:
    made = manager(faulty(envs.hang), faults=FaultPolicy("raise", step_timeout=0.3))
    made.reset({})
    with pytest.raises(UnityTimeOutException, match="step_timeout=0.3") as caught:
        step_until_it_fails(made)
    assert isinstance(caught.value, EnvTimeoutError)
    assert isinstance(caught.value, UnityCommunicationException)
    made.close()


def test_who_shares_a_worker_goes_with_it(tmp_path: Path) -> None:
    made = manager(faulty(envs.kill, place=tmp_path / "once"), 3, num_workers=2, options=limits(at_once=5))
    made.reset({})
    _, cut, again = steps_of(made, 0, 3)
    assert cut.current_all_step_result["b"][1].interrupted.tolist() == [True]
    assert obs_of(again)[1:3] == [1, 0]
    while made.restart_counts[1] == 0:
        made.get_steps()
    assert made.restart_counts == [1, 1, 0]
    made.close()


# -- the original's way ----------------------------------------------------------------------------------


class AgentManager:
    """Notes that its episodes are ended."""

    def __init__(self) -> None:
        self.ended = 0

    def end_episode(self) -> None:
        self.ended += 1


def test_all_are_reset_if_asked_so(tmp_path: Path) -> None:
    made = manager(faulty(envs.kill, place=tmp_path / "once"), reset_all_on_restart=True)
    made.reset({})
    agents = AgentManager()
    made.agent_managers["b"] = agents
    found: list[Any] = []
    while made.restart_counts == [0, 0]:
        found = made._step()
    assert [obs_of(step)[:3] for step in found] == [[0, 1, 0], [1, 2, 0]]
    assert agents.ended == 1
    assert made.first_step_infos == []
    assert not any(worker.waiting for worker in made.env_workers)
    made.close()


def test_workers_that_are_stuck_when_all_are_to_be_reset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from remuda.mlagents import subprocess_env_manager as module

    class Stuck(GatedEnv):
        def step(self) -> None:
            super().step()
            if self.worker_id == 1 and self.steps == 2:
                envs.kill()

    monkeypatch.setattr(module, "_DRAIN_TIMEOUT", 0.2)
    gate = make_gate(tmp_path)
    made = manager(partial(Stuck, gate=gate), reset_all_on_restart=True)
    made.reset({})
    with pytest.raises(TimeoutError, match=r"Workers \{0\} stuck in waiting state"):
        step_until_it_fails(made)
    open_gate(gate)
    made.close()


def test_nobody_steps() -> None:
    made = manager(TestEnv, 1)
    made.reset({})
    made.env_workers[0].waiting = True
    with pytest.raises(StateError, match="call reset first"):
        made.get_steps()
    made.close()


def test_a_manager_is_let_go_unclosed() -> None:
    made = manager(TestEnv)
    made.reset({})
    made.get_steps()
    assert isinstance(made, SubprocessEnvManager)


def test_crash_records(tmp_path: Path) -> None:
    made = manager(faulty(envs.kill, place=tmp_path / "once"), record=tmp_path / "crashes")
    made.reset({})
    steps_of(made, 0, 3)
    made.close()
    (record,) = (load_record(path) for path in (tmp_path / "crashes").iterdir())
    assert (record.env_id, record.fault.kind, record.fault.operation) == (0, "death", "step")
