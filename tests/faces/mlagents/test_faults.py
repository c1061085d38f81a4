"""Faults of Unity environments: a killed worker is replaced, and errors are Unity's exceptions."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import mlagents_face_envs as envs
import pytest
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
    limits,
    manager,
    obs_of,
    raising,
    step_until_it_fails,
    steps_of,
)

from remuda import EnvError, RemoteTraceback, RemudaError
from remuda.mlagents import WorkerDiedError

pytestmark = pytest.mark.filterwarnings("ignore")
SUPPORT = Path(__file__).parents[1] / "support"


# -- a killed worker -------------------------------------------------------------------------------------


def test_a_killed_worker_is_restarted_without_effect_on_others(tmp_path: Path) -> None:
    made = manager(faulty(envs.kill, place=tmp_path / "once"))
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


def test_a_death_interrupts_the_episodes_of_all_living_agents(tmp_path: Path) -> None:
    """All agents that were seen and have not ended are included, even if they have not acted in the last step."""

    class Crowd(CrowdEnv):
        def step(self) -> None:
            super().step()
            if self.steps == 7:
                envs.kill()

    made = manager(Crowd, 1)
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
    class Crowd(CrowdEnv):
        def step(self) -> None:
            super().step()
            if (self.resets, self.steps) == (2, 1):
                envs.kill()

    made = manager(Crowd, 1)
    made.reset({})
    steps_of(made, 0, 5)
    made.reset({})
    (cut,) = steps_of(made, 0, 1)
    assert {name: steps[1].agent_id.tolist() for name, steps in cut.current_all_step_result.items()} == {
        "blue": [1, 2, 3, 4],
        "red": [0],
    }
    made.close()


def test_a_worker_that_is_killed_while_idle_is_restarted(tmp_path: Path) -> None:
    made = manager(TestEnv, 1)
    made.reset({})
    made.get_steps()
    os.kill(made.env_workers[0].process.pid, signal.SIGKILL)
    cut, again = steps_of(made, 0, 2)
    assert cut.current_all_step_result["b"][1].agent_id.tolist() == [0]
    assert obs_of(again)[1:3] == [1, 0]
    assert made.restart_counts == [1]
    made.close()


def test_a_death_beyond_the_restart_quota_is_raised() -> None:
    made = manager(faulty(envs.kill))
    made.reset({})
    with pytest.raises(UnityCommunicationException, match="SIGKILL") as caught:
        step_until_it_fails(made)
    assert isinstance(caught.value, WorkerDiedError)
    assert caught.value.worker == 0
    assert made.restart_counts == [1, 0]
    made.close()


def test_the_manager_of_unity_spins_forever_after_a_worker_was_killed() -> None:
    """ML-Agents' manager spins: its process uses more than a second of CPU time and does not end."""
    script = f"""
import sys; sys.path.insert(0, {str(SUPPORT)!r})
from functools import partial
from mlagents_face_envs import FaultyEnv, kill, manager, original
made = manager(partial(FaultyEnv, accident=kill), 1, manager_cls=original.SubprocessEnvManager)
made.reset({{}})
made.get_steps()
print("stepping", flush=True)
try:
    made.get_steps()
finally:
    print("over", flush=True)
"""
    child = subprocess.Popen([sys.executable, "-W", "ignore", "-c", script], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        assert "stepping\n" in iter(child.stdout.readline, "")
        before = cpu_seconds(child.pid)
        while cpu_seconds(child.pid) < before + 1.0:
            assert not select.select([child.stdout], [], [], 0.1)[0], "it has said something, or has ended"
    finally:
        child.kill()
        rest, _ = child.communicate()
    assert "over" not in rest


def cpu_seconds(pid: int) -> float:
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


# -- exceptions ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        UnityCommunicationException,
        UnityTimeOutException,
        UnityEnvironmentException,
        UnityCommunicatorStoppedException,
    ],
)
def test_unity_exceptions_restart_the_env(error: type[Exception], tmp_path: Path) -> None:
    made = manager(faulty(raising(error), place=tmp_path / "once"))
    made.reset({})
    _, cut, again = steps_of(made, 0, 3)
    assert cut.current_all_step_result["b"][1].interrupted.tolist() == [True]
    assert obs_of(again)[1:3] == [1, 0]
    assert made.restart_counts == [1, 0]
    made.close()


class LocalException(UnityCommunicationException):
    """An exception that cannot be pickled, because it holds a lock."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.lock = threading.Lock()


class DemandingException(UnityTimeOutException):
    """An exception that can be pickled but not unpickled."""

    def __init__(self, *, code: int) -> None:
        super().__init__(f"code {code}")


def raise_demanding() -> None:
    raise DemandingException(code=7)


@pytest.mark.parametrize(
    ("accident", "error", "message"),
    [
        (raising(LocalException), UnityCommunicationException, "LocalException: an accident"),
        (raise_demanding, UnityTimeOutException, "DemandingException: code 7"),
    ],
)
@pytest.mark.parametrize("backend", ["process", "thread"])
def test_a_unity_exception_that_cannot_be_pickled_is_raised_as_its_base_class(
    accident: Any, error: Any, message: str, backend: Any
) -> None:
    made = manager(faulty(accident), 1, limits(lifetime=1), backend=backend)
    made.reset({})
    _, cut, again = steps_of(made, 0, 3)
    assert cut.current_all_step_result["b"][1].interrupted.tolist() == [True]
    assert obs_of(again)[1:3] == [1, 0]
    with pytest.raises(error, match=message) as caught:
        step_until_it_fails(made)
    assert type(caught.value) is error
    assert "in raise_demanding" in str(caught.value.__cause__) or "in _raise" in str(caught.value.__cause__)
    assert made.restart_counts == [1]
    made.close()


def test_an_exception_that_is_not_from_unity_is_raised_unchanged() -> None:
    made = manager(faulty(raising(LookupError)))
    made.reset({})
    with pytest.raises(LookupError, match="an accident") as caught:
        step_until_it_fails(made)
    assert isinstance(caught.value.__cause__, RemoteTraceback)
    assert "in _raise" in str(caught.value.__cause__)
    assert made.restart_counts == [0, 0]
    made.reset({})  # rebuilds the env
    assert obs_of(steps_of(made, 0, 1)[0])[1:3] == [1, 1]
    made.close()


def test_sys_exit_in_an_env_does_not_end_the_program() -> None:
    made = manager(faulty(raising(SystemExit)))
    made.reset({})
    with pytest.raises(EnvError, match="SystemExit"):
        step_until_it_fails(made)
    made.close()


BEFORE = "before its first reset"


@pytest.mark.parametrize(
    ("where", "at", "course"),
    [
        ("build", 1, BEFORE),
        ("reset", 1, "episode 0, step 0,"),
        ("reset", 2, "episode 1, step 0,"),
        ("step", 2, "step 2,"),
    ],
)
@pytest.mark.parametrize(("accident", "message"), [(envs.kill, "died while in {} "), (raising(SystemExit), " in {}: ")])
def test_errors_and_logs_name_the_operation_episode_and_step(
    where: str, at: int, course: str, accident: Any, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    made = manager(faulty(accident, where=where, at=at), 1, limits(lifetime=0), backend="process")
    with pytest.raises(RemudaError, match=message.format(where)) as caught:
        made.reset({})
        made.reset({})
        step_until_it_fails(made)
    assert course in str(caught.value)
    then = "restarted at once" if accident is envs.kill else "rebuilt"
    logged, decided = (record.getMessage() for record in caplog.records if record.name == "remuda")
    assert logged == f"{caught.value}; it is {then}"
    assert decided.startswith("worker 0 of ML-Agents gets no other env, and what was restarted for it stays empty: ")
    made.close()


def test_with_faults_raise_nothing_is_restarted() -> None:
    made = manager(faulty(raising(UnityEnvironmentException)), faults="raise")
    made.reset({})
    with pytest.raises(UnityEnvironmentException, match="an accident"):
        step_until_it_fails(made)
    assert made.restart_counts == [0, 0]
    made.close()
