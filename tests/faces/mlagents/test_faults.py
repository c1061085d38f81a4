"""Faults of Unity environments: a killed worker is replaced, and errors are Unity's exceptions."""

from __future__ import annotations

from pathlib import Path

import pytest
from accidents import kill_myself
from mlagents_envs.exception import (
    UnityCommunicationException,
    UnityCommunicatorStoppedException,
    UnityEnvironmentException,
    UnityTimeOutException,
)
from mlagents_face_envs import (
    CrowdEnv,
    Policy,
    faulty,
    limits,
    manager,
    obs_of,
    step_until_it_fails,
    steps_of,
    unity,
)

from remuda import EnvError, RemoteTraceback, RemudaError
from remuda.mlagents import WorkerDiedError

pytestmark = pytest.mark.filterwarnings("ignore")


# -- a killed worker -------------------------------------------------------------------------------------


def test_a_killed_worker_is_restarted_without_effect_on_others(tmp_path: Path) -> None:
    made = manager(faulty(kill_myself, path=tmp_path / "once"))
    made.reset({})
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
    made.close()


def test_a_death_interrupts_the_episodes_of_all_living_agents() -> None:
    """All agents that were seen and have not ended are included, even if they have not acted in the last step."""
    made = manager(faulty(kill_myself, at=7, kind=CrowdEnv), 1)
    made.set_policy("blue", Policy(2, (3, 2)))
    made.reset({})
    *_, last, cut = steps_of(made, 0, 7)
    ends = {name: steps[1] for name, steps in cut.current_all_step_result.items()}
    assert sorted(ends["blue"].agent_id.tolist()) == [4, 5, 6, 7]
    assert ends["blue"].group_id.tolist() == [7] * 4
    assert ends["blue"].obs[0].tolist() == last.current_all_step_result["blue"][0].obs[0].tolist()
    assert sorted(ends["red"].agent_id.tolist()) == [3, 6]
    assert ends["red"].obs[0].shape == (2, 2, 2)
    made.close()


def test_a_death_after_a_reset_interrupts_only_agents_of_the_new_episode() -> None:
    made = manager(faulty(kill_myself, at=6, kind=CrowdEnv), 1)
    made.reset({})
    steps_of(made, 0, 5)
    made.reset({})
    (cut,) = steps_of(made, 0, 1)
    agents = {name: steps[1].agent_id.tolist() for name, steps in cut.current_all_step_result.items()}
    assert agents == {"blue": [1, 2, 3, 4], "red": [0]}
    made.close()


def test_a_death_beyond_the_restart_quota_is_raised() -> None:
    made = manager(faulty(kill_myself))
    made.reset({})
    with pytest.raises(UnityCommunicationException, match="SIGKILL") as caught:
        step_until_it_fails(made)
    assert isinstance(caught.value, WorkerDiedError)
    assert caught.value.worker == 0
    assert made.restart_counts == [1, 0]
    made.close()


# -- exceptions ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [UnityCommunicationException, UnityTimeOutException, UnityEnvironmentException, UnityCommunicatorStoppedException],
)
def test_unity_exceptions_restart_the_env(error: type[Exception], tmp_path: Path) -> None:
    made = manager(faulty(unity(error), path=tmp_path / "once"), backend="thread")
    made.reset({})
    _, cut, again = steps_of(made, 0, 3)
    assert cut.current_all_step_result["b"][1].interrupted.tolist() == [True]
    assert obs_of(again)[1:3] == [1, 0]
    assert made.restart_counts == [1, 0]
    made.close()


def test_an_exception_that_is_not_from_unity_is_raised_unchanged() -> None:
    made = manager(faulty(unity(LookupError)))
    made.reset({})
    with pytest.raises(LookupError, match="an accident") as caught:
        step_until_it_fails(made)
    assert isinstance(caught.value.__cause__, RemoteTraceback)
    assert "in hook" in str(caught.value.__cause__)
    assert made.restart_counts == [0, 0]
    made.reset({})  # rebuilds the env
    assert obs_of(steps_of(made, 0, 1)[0])[1:3] == [1, 1]
    made.close()


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


def test_with_faults_raise_nothing_is_restarted() -> None:
    made = manager(faulty(unity(UnityEnvironmentException)), faults="raise", backend="thread")
    made.reset({})
    with pytest.raises(UnityEnvironmentException, match="an accident"):
        step_until_it_fails(made)
    assert made.restart_counts == [0, 0]
    made.close()
