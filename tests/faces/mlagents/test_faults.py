"""Faults of Unity environments: errors are Unity's exceptions, and within quotas a new env replaces a lost one."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from accidents import kill_myself, stop_myself
from mlagents.trainers.action_info import ActionInfo
from mlagents_envs.exception import (
    UnityCommunicationException,
    UnityCommunicatorStoppedException,
    UnityEnvironmentException,
    UnityTimeOutException,
)
from mlagents_face_envs import (
    CrowdEnv,
    Policy,
    TestEnv,
    faulty,
    gated,
    limits,
    manager,
    obs_of,
    original,
    step_until_it_fails,
    steps_of,
    unity,
)
from pairs import each
from pool_envs import Gate

from remuda import EnvError, FaultPolicy, RemudaError, StateError
from remuda.mlagents import WorkerDiedError
from remuda.mlagents import subprocess_env_manager as module

pytestmark = pytest.mark.filterwarnings("ignore")

UNITY_ERRORS = (
    UnityCommunicationException,
    UnityTimeOutException,
    UnityEnvironmentException,
    UnityCommunicatorStoppedException,
)
TIME_OUT = unity(UnityTimeOutException)


# -- a killed worker -------------------------------------------------------------------------------------


def test_a_killed_worker_is_restarted_without_effect_on_others(begun: Any, tmp_path: Path) -> None:
    made = begun(faulty(kill_myself, path=tmp_path / "once"))
    first, cut, again, later = steps_of(made, 0, 4)
    assert obs_of(first)[1:3] == [1, 1]
    (decisions, ends) = cut.current_all_step_result["b"]
    assert len(decisions) == 0
    assert ends.obs[0].tolist() == first.current_all_step_result["b"][0].obs[0].tolist()
    assert (ends.agent_id.tolist(), ends.interrupted.tolist(), ends.reward.tolist()) == ([0], [True], [0.0])
    assert cut.brain_name_to_action_info["b"].agent_ids == [0]
    assert obs_of(again)[1:3] == [1, 0]
    assert again.brain_name_to_action_info == {}
    assert obs_of(later)[1:3] == [1, 1]
    others = [obs_of(step)[1:3] for step in steps_of(made, 1, 3)]
    assert [resets for resets, _ in others] == [1, 1, 1]
    assert [step - others[0][1] for _, step in others] == [0, 1, 2]
    assert made.restart_counts == [1, 0]
    assert [len(times) for times in made.recent_restart_timestamps] == [1, 0]


def test_a_death_interrupts_the_episodes_of_all_living_agents(begun: Any) -> None:
    """All agents that were seen and have not ended are included, even if they have not acted in the last step."""
    made = begun(faulty(kill_myself, at=7, kind=CrowdEnv), 1)
    made.set_policy("blue", Policy(2, (3, 2)))
    *_, last, cut = steps_of(made, 0, 7)
    ends = {name: steps[1] for name, steps in cut.current_all_step_result.items()}
    assert sorted(ends["blue"].agent_id.tolist()) == [4, 5, 6, 7]
    assert ends["blue"].group_id.tolist() == [7] * 4
    assert ends["blue"].obs[0].tolist() == last.current_all_step_result["blue"][0].obs[0].tolist()
    assert sorted(ends["red"].agent_id.tolist()) == [3, 6]
    assert ends["red"].obs[0].shape == (2, 2, 2)


def test_a_death_after_a_reset_interrupts_only_agents_of_the_new_episode(begun: Any) -> None:
    made = begun(faulty(kill_myself, at=6, kind=CrowdEnv), 1)
    steps_of(made, 0, 5)
    made.reset({})
    (cut,) = steps_of(made, 0, 1)
    agents = {name: steps[1].agent_id.tolist() for name, steps in cut.current_all_step_result.items()}
    assert agents == {"blue": [1, 2, 3, 4], "red": [0]}


# -- exceptions ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("accident", "options"),
    [
        *((unity(error), {"backend": "thread"}) for error in UNITY_ERRORS),
        (stop_myself, {"faults": FaultPolicy("restart", step_timeout=3)}),
    ],
)
def test_unity_exceptions_and_missed_deadlines_restart_the_env(
    begun: Any, accident: Any, options: Any, tmp_path: Path
) -> None:
    made = begun(faulty(accident, path=tmp_path / "once"), **options)
    _, cut, again = steps_of(made, 0, 3)
    assert cut.current_all_step_result["b"][1].interrupted.tolist() == [True]
    assert obs_of(again)[1:3] == [1, 0]
    assert made.restart_counts == [1, 0]


@pytest.mark.parametrize(
    ("where", "at", "course"),
    [
        ("build", 1, "before its first reset"),
        ("reset", 1, "episode 0, step 0,"),
        ("reset", 2, "episode 1, step 0,"),
        ("step", 2, "step 2,"),
    ],
)
@pytest.mark.parametrize("is_death", [True, False])
def test_errors_and_logs_name_the_operation_episode_and_step(
    where: str, at: int, course: str, is_death: bool, caplog: pytest.LogCaptureFixture
) -> None:
    made = manager(faulty(kill_myself if is_death else unity(SystemExit), where, at), 1, limits(lifetime=0))
    error, message = (WorkerDiedError, f"died while in {where} ") if is_death else (EnvError, f" in {where}: ")
    with pytest.raises(RemudaError, match=message) as caught:
        made.reset({})
        made.reset({})
        step_until_it_fails(made)
    assert isinstance(caught.value, error)
    assert course in str(caught.value)
    logged, decided = (record.getMessage() for record in caplog.records if record.name == "remuda")
    assert logged == f"{caught.value}; it is {'restarted at once' if is_death else 'rebuilt'}"
    assert decided.startswith("worker 0 of ML-Agents gets no other env, and what was restarted for it stays empty: ")
    made.close()


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
def test_restarts_stop_at_the_quota(begun: Any, options: Any, restarts: int) -> None:
    made = begun(faulty(TIME_OUT), 1, options, backend="thread")
    with pytest.raises(UnityTimeOutException):
        step_until_it_fails(made)
    assert made.restart_counts == [restarts]


def test_without_a_quota_restarts_never_stop(begun: Any) -> None:
    made = begun(faulty(TIME_OUT), 1, limits(lifetime=-1, at_once=-1), backend="thread")
    while made.restart_counts[0] < 12:
        made.get_steps()


# -- faults in a reset or a build --------------------------------------------------------------------------


@pytest.mark.parametrize("accident", [kill_myself, TIME_OUT])
def test_a_reset_that_fails_is_repeated(accident: Any, tmp_path: Path) -> None:
    made = manager(faulty(accident, "reset", path=tmp_path / "once"))
    made.reset({"gravity": 3.0})
    made.get_steps()
    made.reset({"gravity": 4.0})
    assert [obs_of(step)[1:3] for step in made.first_step_infos] == [[1, 0], [2, 0]]
    assert made.restart_counts == [1, 0]
    made.close()


@each(
    where__use=[
        ("build", lambda made: made.reset({})),
        ("reset", lambda made: made.reset({})),
        ("build", lambda made: made.training_behaviors),
    ],
    accident__error=[(kill_myself, WorkerDiedError), (unity(UnityEnvironmentException), UnityEnvironmentException)],
)
def test_an_env_that_fails_before_its_first_step_is_not_restarted(
    where: str, use: Any, accident: Any, error: type[Exception]
) -> None:
    made = manager(faulty(accident, where, at=1))
    with pytest.raises(error):
        use(made)
    assert made.restart_counts == [0, 0]
    made.close()


def test_a_restart_that_fails_counts_as_well(begun: Any, tmp_path: Path) -> None:
    class Unlucky(TestEnv):
        """An env that can no longer be built after it was killed."""

        def __init__(self, *args: Any, **hooks: Any) -> None:
            if any(tmp_path.iterdir()):
                raise UnityEnvironmentException("no licence")
            super().__init__(*args, **hooks)

    made = begun(faulty(kill_myself, path=tmp_path / "once", kind=Unlucky), 1, limits(at_once=2))
    with pytest.raises(UnityEnvironmentException, match="no licence"):
        step_until_it_fails(made)
    assert made.restart_counts == [2]


class MessageCountingEnv(TestEnv):
    """Observes its resets, and how often it received the parameters gravity and wind and news of a training."""

    academy_capabilities = SimpleNamespace(trainingAnalytics=True)

    def get_steps(self, behavior_name: str) -> Any:
        decisions, ends = super().get_steps(behavior_name)
        messages = [bytes(message) for message in self.channels[0].message_queue]
        counts = [sum(name in message for message in messages) for name in (b"gravity", b"wind")]
        # The first message of the last channel only announces that an env exists, so it is not counted.
        decisions.obs[0][0] = [self.resets, *counts, len(self.channels[3].message_queue) - 1]
        return decisions, ends


def counting_messages(accident: Any, path: Path, **options: Any) -> Any:
    """Returns a manager whose only env has received both parameters and news of a training, and has an accident."""
    made = manager(faulty(accident, path=path / "once", kind=MessageCountingEnv), 1, **options)
    made.reset({"gravity": 3.0})
    made.set_env_parameters({"wind": 2.0})
    made.on_training_started("b", original.TrainerSettings())
    return made


@pytest.mark.parametrize(
    ("accident", "options", "steps", "expected"),
    [
        (kill_myself, {}, 3, [1, 1, 1, 1]),
        (TIME_OUT, {}, 3, [1, 1, 1, 1]),
        (kill_myself, {"reset_all_on_restart": True}, 2, [1, 1, 2, 1]),  # its reset sends the parameters once more
    ],
)
def test_a_rebuilt_env_receives_all_parameters_again(
    accident: Any, options: Any, steps: int, expected: list[int], tmp_path: Path
) -> None:
    made = counting_messages(accident, tmp_path, **options)
    first, *_, again = steps_of(made, 0, steps)
    assert obs_of(first) == [1, 1, 1, 1]
    assert obs_of(again) == expected
    made.close()


def test_an_env_rebuilt_after_a_raised_fault_receives_all_parameters_again(tmp_path: Path) -> None:
    made = counting_messages(unity(LookupError), tmp_path)
    with pytest.raises(LookupError):
        step_until_it_fails(made)
    made.reset({"gravity": 4.0})
    # received gravity twice: the value before the fault, and the new value
    assert obs_of(made.first_step_infos[0]) == [1, 2, 1, 1]
    made.close()


# -- orders that cannot be sent, answers that cannot be read -----------------------------------------------


class LockedPolicy(Policy):
    """Has actions that cannot be pickled."""

    def get_action(self, steps: Any, worker_id: int) -> Any:
        return ActionInfo(None, threading.Lock(), {}, steps.agent_id.tolist())


def test_a_step_that_cannot_be_sent_drops_no_parameters_or_trainings() -> None:
    made = manager(MessageCountingEnv, 1)
    made.reset({"gravity": 3.0})
    made.set_env_parameters({"wind": 2.0})
    made.on_training_started("b", original.TrainerSettings())
    made.set_policy("b", LockedPolicy())
    for _ in range(2):
        with pytest.raises(TypeError, match="cannot pickle"):
            made.get_steps()
    made.set_policy("b", Policy())
    assert obs_of(made.get_steps()[0]) == [1, 1, 1, 1]
    made.close()


@each(backend=["process", "serial"], num_workers=[1, 3])
def test_a_parameter_that_was_changed_to_one_that_cannot_be_sent_loses_no_answers(
    backend: Any, num_workers: int
) -> None:
    made = manager(TestEnv, 3, num_workers=num_workers, backend=backend)
    parameter: list[Any] = []
    made.set_env_parameters({"gravity": parameter})
    parameter.append(threading.Lock())
    with pytest.raises(TypeError, match="cannot pickle"):
        made.reset({})
    with pytest.raises(StateError, match="call reset first"):
        made.get_steps()
    parameter.clear()
    assert_all_step(made)


def fail_to_load() -> None:
    raise LookupError("an accident")


class Unreadable:
    def __reduce__(self) -> Any:
        return fail_to_load, ()


@each(backend=["process", "serial"], num_workers=[1, 3])
def test_an_answer_that_cannot_be_read_loses_no_answers_of_other_envs(
    backend: Any, num_workers: int, tmp_path: Path
) -> None:
    def spoil(env: Any) -> None:
        env.channels[2].stats["spoilt"] = [(Unreadable(), 0)]

    made = manager(faulty(spoil, path=tmp_path / "once"), 3, num_workers=num_workers, backend=backend)
    made.reset({})
    with pytest.raises(LookupError, match="an accident"):
        step_until_it_fails(made)
    assert_all_step(made)


@each(backend=["process", "serial"], num_workers=[1, 3], path=["step", "reset"])
def test_a_parameter_that_cannot_be_read_in_the_worker_raises_there(backend: Any, num_workers: int, path: str) -> None:
    made = manager(TestEnv, 3, num_workers=num_workers, backend=backend)
    made.reset({})
    made.set_env_parameters({"gravity": Unreadable()})
    with pytest.raises(LookupError, match="an accident"):
        made.get_steps() if path == "step" else made.reset({})
    made.set_env_parameters({"gravity": 1.0})
    assert_all_step(made)


def assert_all_step(made: Any) -> None:
    """Asserts that the three workers step after a reset, and closes the manager."""
    assert made.reset({}) == 3
    assert [len(steps_of(made, worker_id, 2)) for worker_id in range(3)] == [2, 2, 2]
    made.close()


# -- several envs in one worker ----------------------------------------------------------------------------


def test_a_death_restarts_all_envs_of_the_worker(begun: Any, tmp_path: Path) -> None:
    made = begun(faulty(kill_myself, path=tmp_path / "once"), 3, num_workers=2, options=limits(at_once=5))
    _, cut, again = steps_of(made, 0, 3)
    assert cut.current_all_step_result["b"][1].interrupted.tolist() == [True]
    assert obs_of(again)[1:3] == [1, 0]
    while made.restart_counts[1] == 0:
        made.get_steps()
    assert made.restart_counts == [1, 1, 0]


# -- reset_all_on_restart ----------------------------------------------------------------------------------


def test_reset_all_on_restart_resets_all_envs(begun: Any, tmp_path: Path) -> None:
    made = begun(faulty(kill_myself, path=tmp_path / "once"), reset_all_on_restart=True)
    made.agent_managers["b"] = agents = Mock()
    found: list[Any] = []
    while made.restart_counts == [0, 0]:
        found = made._step()
    assert [obs_of(step)[:3] for step in found] == [[0, 1, 0], [1, 2, 0]]
    agents.end_episode.assert_called_once()
    assert made.first_step_infos == []
    assert not any(worker.waiting for worker in made.env_workers)


def test_with_reset_all_on_restart_a_stuck_worker_raises(
    begun: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(tmp_path)

    class Stuck(TestEnv):
        def step(self) -> None:
            super().step()
            if self.worker_id == 1 and self.steps == 2:
                kill_myself()

    monkeypatch.setattr(module, "_DRAIN_TIMEOUT", 0.2)
    made = begun(gated(gate, Stuck), reset_all_on_restart=True)
    with pytest.raises(TimeoutError, match=r"Workers \{0\} stuck in waiting state"):
        step_until_it_fails(made)
    with pytest.raises(StateError, match="call reset first"):
        made.get_steps()
    gate.let_pass()


@pytest.mark.parametrize(
    ("where", "at", "fail"),
    [
        ("step", 2, step_until_it_fails),
        ("reset", 2, lambda made: made.reset({})),
        ("build", 1, lambda made: made.training_behaviors),
    ],
)
def test_after_an_error_without_a_restart_the_envs_must_be_reset(
    where: str, at: int, fail: Any, tmp_path: Path
) -> None:
    made = manager(faulty(unity(LookupError), where, at, tmp_path / "once"), backend="thread")
    if where != "build":
        made.reset({})
    with pytest.raises(LookupError, match="an accident"):
        fail(made)
    assert made.restart_counts == [0, 0]
    for _ in range(2):
        with pytest.raises(StateError, match="call reset first"):
            made.get_steps()
    made.reset({})
    assert obs_of(made.first_step_infos[0])[1:3] == [1, 0]
    assert len(steps_of(made, 0, 2)) == 2
    made.close()


def test_a_reset_after_an_error_raises_no_errors_of_other_envs_from_before(begun: Any) -> None:
    failed = set()

    class Failing(TestEnv):
        def step(self) -> None:
            super().step()
            if self.worker_id not in failed:
                failed.add(self.worker_id)
                raise LookupError("an accident")

    made = begun(Failing, backend="thread")
    with pytest.raises(LookupError, match="an accident"):
        step_until_it_fails(made)
    made.reset({})
    assert [obs_of(step)[1:3] for step in made.first_step_infos] == [[1, 0], [1, 0]]
    assert len(steps_of(made, 0, 2)) == 2
