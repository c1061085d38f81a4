"""Exceptions in envs, deaths of workers, and the death of the parent, with the Gymnasium face."""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium_face_envs
import numpy as np
import pytest
from gymnasium_face_envs import EchoEnv, FaultyEnv, Gate, TwoArgumentsError, faulty, gated
from pairs import each

from remuda import BrokenPoolError, EnvError, InvalidEnvError, StateError, WorkerDiedError
from remuda.gymnasium import AsyncState, AsyncVectorEnv

PHASES: dict[str, Callable[[AsyncVectorEnv], Any]] = {
    "reset": lambda envs: envs.reset(),
    "step": lambda envs: (envs.reset(), envs.step([0] * envs.num_envs)),
    "call": lambda envs: envs.call("pid"),
}

quiet = pytest.mark.filterwarnings("ignore:.*(Received the following error|Traceback|Raising the last)")


def close_and_check(envs: AsyncVectorEnv) -> None:
    envs.close()
    assert envs.closed
    assert not any(process.is_alive() for process in envs.processes)


# -- exceptions ------------------------------------------------------------------------------------


@quiet
@pytest.mark.parametrize("phase", PHASES)
def test_the_envs_own_exception_is_raised(phase: str) -> None:
    envs = AsyncVectorEnv(faulty(phase, "plain"))
    with pytest.raises(ValueError, match=r"^100% wrong$") as raised:
        PHASES[phase](envs)
    assert envs._state is AsyncState.DEFAULT
    error = raised.value.__cause__
    assert isinstance(error, EnvError)
    assert [failure.env_id for failure in error.failures] == [1]
    assert error.failures[0].operation == phase
    assert error.failures[0].exception is raised.value
    close_and_check(envs)


@quiet
def test_the_chain_of_causes_ends_with_the_workers_traceback() -> None:
    envs = AsyncVectorEnv(faulty("step", "plain"))
    with pytest.raises(ValueError, match="100% wrong") as raised:
        PHASES["step"](envs)
    causes = [raised.value.__cause__]
    while causes[-1] is not None:
        assert causes[-1] not in causes[:-1]
        assert causes[-1] is not raised.value
        causes.append(causes[-1].__cause__)
    assert "in plain" in str(causes[-2])
    assert "100% wrong" in str(causes[-2])
    envs.close()


def test_the_log_is_like_gymnasiums() -> None:
    envs = AsyncVectorEnv(faulty("step", "plain", which=(0, 2)))
    envs.reset()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pytest.raises(ValueError, match="100% wrong"):
            envs.step([0, 0, 0])
    envs.close()
    texts = [str(warning.message) for warning in caught]
    assert len(texts) == 5
    for worker, (headline, trace) in zip((0, 2), (texts[:2], texts[2:4]), strict=True):
        assert f"ERROR: Received the following error from Worker-{worker}" in headline
        assert "Shutting it down" not in headline  # the worker lives on
        assert "ERROR: Traceback (most recent call last):" in trace
        assert "ValueError: 100% wrong\n" in trace
    assert "ERROR: Raising the last exception back to the main process." in texts[4]


@pytest.mark.filterwarnings("error")
def test_the_exception_of_a_call_is_not_logged() -> None:
    """Programs ask for attributes that an env may lack, in each step."""
    envs = AsyncVectorEnv(faulty("step", "plain"), backend="serial")
    for read in (lambda: envs.call("missing"), lambda: envs.get_attr("missing")):
        with pytest.raises(AttributeError, match="missing"):
            read()
    envs.close()


@quiet
def test_the_last_of_several_exceptions_is_raised_and_all_are_kept() -> None:
    envs = AsyncVectorEnv(faulty("step", "two_arguments", num_envs=4, which=(1, 3)))
    with pytest.raises(TwoArgumentsError) as raised:
        PHASES["step"](envs)
    assert isinstance(raised.value.__cause__, EnvError)
    failures = raised.value.__cause__.failures
    assert [failure.env_id for failure in failures] == [1, 3]
    assert failures[-1].exception is raised.value
    close_and_check(envs)


@quiet
@pytest.mark.parametrize("phase", PHASES)
def test_d3_an_exception_that_cannot_be_pickled_is_an_env_error(phase: str) -> None:
    envs = AsyncVectorEnv(faulty(phase, "unpicklable"))
    with pytest.raises(EnvError, match="holds a lock") as raised:
        PHASES[phase](envs)
    (failure,) = raised.value.failures
    assert failure.env_id == 1
    assert "UnpicklableError" in failure.type_name
    assert "in unpicklable" in failure.traceback
    close_and_check(envs)


@quiet
@pytest.mark.parametrize("phase", PHASES)
def test_d3_an_exception_of_a_local_class_is_raised(phase: str) -> None:
    envs = AsyncVectorEnv(faulty(phase, "local_class"))
    with pytest.raises((RuntimeError, EnvError), match="known here only"):
        PHASES[phase](envs)
    close_and_check(envs)


@quiet
@pytest.mark.parametrize("phase", PHASES)
def test_d7_an_exception_with_several_arguments_is_raised_whole(phase: str) -> None:
    envs = AsyncVectorEnv(faulty(phase, "two_arguments"))
    with pytest.raises(TwoArgumentsError) as raised:
        PHASES[phase](envs)
    assert (raised.value.code, raised.value.reason) == (7, "seven")
    close_and_check(envs)


@quiet
def test_the_traceback_shows_the_cause_of_an_exception() -> None:
    envs = AsyncVectorEnv(faulty("step", "chained"))
    with pytest.raises(RuntimeError, match="outer") as raised:
        PHASES["step"](envs)
    assert isinstance(raised.value.__cause__, EnvError)
    assert "KeyError: 'inner'" in raised.value.__cause__.failures[0].traceback
    close_and_check(envs)


@quiet
@pytest.mark.parametrize("phase", PHASES)
def test_d5_sys_exit_in_an_env_does_not_end_this_process(phase: str) -> None:
    envs = AsyncVectorEnv(faulty(phase, "sys_exit"))
    with pytest.raises(EnvError, match="env 1 .* raised SystemExit in " + phase):
        PHASES[phase](envs)
    close_and_check(envs)


@quiet
def test_an_exception_in_build_is_raised_by_the_constructor() -> None:
    with pytest.raises(ValueError, match="100% wrong") as raised:
        AsyncVectorEnv(faulty("build", "plain"))
    assert isinstance(raised.value.__cause__, EnvError)
    assert raised.value.__cause__.failures[0].operation == "build"


@quiet
def test_an_exception_in_close_is_raised_after_all_is_closed() -> None:
    envs = AsyncVectorEnv(faulty("close", "plain"))
    envs.reset()
    with pytest.raises((ValueError, EnvError), match="100% wrong"):
        envs.close()
    assert envs.closed
    assert not any(process.is_alive() for process in envs.processes)


@quiet
def test_close_raises_the_exception_of_the_pending_step_after_all_is_closed() -> None:
    envs = AsyncVectorEnv(faulty("step", "plain"))
    envs.reset()
    envs.step_async([0, 0, 0])
    with (
        pytest.warns(UserWarning, match="pending call to `step`"),
        pytest.raises(ValueError, match="100% wrong"),
    ):
        envs.close()
    assert envs.closed
    assert not any(process.is_alive() for process in envs.processes)


@quiet
@pytest.mark.parametrize("phase", ["step", "call"])
def test_after_an_exception_and_a_reset_the_envs_work(phase: str) -> None:
    """Gymnasium's own vector env has lost its worker by then."""
    envs = AsyncVectorEnv(faulty(phase, "plain"))
    with pytest.raises(ValueError, match="100% wrong"):
        PHASES[phase](envs)
    envs.set_attr("where", "")
    obs, _ = envs.reset()
    assert (obs > 0).all()
    assert (envs.step([0, 0, 0])[0] == obs + 1).all()
    assert envs.call("pid") == tuple(process.pid for process in envs.processes)
    close_and_check(envs)


@quiet
def test_after_an_exception_in_step_that_env_must_be_reset() -> None:
    envs = AsyncVectorEnv(faulty("step", "plain"))
    with pytest.raises(ValueError, match="100% wrong"):
        PHASES["step"](envs)
    with pytest.raises(StateError, match="env 1"):
        envs.step([0, 0, 0])
    close_and_check(envs)


@quiet
def test_an_unknown_attribute_raises() -> None:
    envs = AsyncVectorEnv([EchoEnv, EchoEnv])
    with pytest.raises(AttributeError, match="no_such_thing"):
        envs.get_attr("no_such_thing")
    close_and_check(envs)


def test_factories_that_make_no_env_are_refused() -> None:
    with pytest.raises(InvalidEnvError):
        AsyncVectorEnv([EchoEnv, lambda: None])
    with pytest.raises(ValueError, match="at least one env"):
        AsyncVectorEnv([])


# -- workers that die: D4 --------------------------------------------------------------------------


@each(phase=PHASES, what__signal_number=[("killed", signal.SIGKILL), ("segfault", signal.SIGSEGV)])
def test_d4_a_worker_that_dies_in_a_call_is_reported(phase: str, what: str, signal_number: int) -> None:
    envs = AsyncVectorEnv(faulty(phase, what))
    pid = envs.processes[1].pid
    with pytest.raises(WorkerDiedError, match="worker 1") as raised:
        PHASES[phase](envs)
    error = raised.value
    assert (error.worker, error.env_ids, error.pid, error.exitcode) == (1, (1,), pid, -signal_number)
    assert error.operation == phase
    assert envs._state is AsyncState.DEFAULT
    with pytest.raises(BrokenPoolError):
        envs.reset()
    close_and_check(envs)


def wait_for_death(pid: int) -> None:
    """Returns when the process has ended, reaped or not."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        select.select([descriptor], [], [])
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("phase", PHASES)
def test_d4_a_worker_killed_while_idle_is_reported_by_the_next_call(phase: str) -> None:
    envs = AsyncVectorEnv([EchoEnv] * 3)
    envs.reset()
    pid = envs.processes[2].pid
    os.kill(pid, signal.SIGKILL)
    wait_for_death(pid)
    with pytest.raises(WorkerDiedError, match="worker 2") as raised:
        envs.reset() if phase == "reset" else envs.step([0, 0, 0]) if phase == "step" else envs.call("pid")
    assert (raised.value.pid, raised.value.exitcode) == (pid, -signal.SIGKILL)
    close_and_check(envs)


def test_d4_close_works_after_a_worker_was_killed() -> None:
    envs = AsyncVectorEnv([EchoEnv] * 3)
    envs.reset()
    os.kill(envs.processes[0].pid, signal.SIGKILL)
    wait_for_death(envs.processes[0].pid)
    close_and_check(envs)


def test_d4_a_worker_killed_in_a_step_is_reported_by_step_wait(tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    envs = AsyncVectorEnv(gated([None, gate, None], "step"))
    envs.reset()
    envs.step_async([0, 0, 0])
    with open(gate.path, "w"):  # it stands there
        os.kill(envs.processes[1].pid, signal.SIGKILL)
        with pytest.raises(WorkerDiedError, match="SIGKILL") as raised:
            envs.step_wait()
    assert raised.value.operation == "step"
    close_and_check(envs)


@pytest.mark.parametrize("what", ["killed", "segfault"])
def test_a_worker_that_dies_in_build_is_raised_by_the_constructor(what: str) -> None:
    with pytest.raises(WorkerDiedError, match="worker 1"):
        AsyncVectorEnv(faulty("build", what))


def test_a_worker_that_dies_in_close_leaves_the_envs_closed() -> None:
    envs = AsyncVectorEnv(faulty("close", "killed"))
    with contextlib.suppress(WorkerDiedError):
        envs.close()
    assert envs.closed
    assert not any(process.is_alive() for process in envs.processes)


# -- the parent dies: D6 ---------------------------------------------------------------------------

STUCK = """
import sys, time
sys.path[:0] = {path!r}
import gymnasium_face_envs as helper
from remuda.gymnasium import AsyncVectorEnv
if __name__ == "__main__":
    gate = helper.Gate({gate!r})
    envs = AsyncVectorEnv(helper.gated([gate, None], "step"), context={context!r})
    envs.reset()
    envs.step_async([0, 0])
    print(*(process.pid for process in envs.processes), flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("context", ["forkserver", "spawn", "fork"])
def test_d6_no_worker_outlives_a_killed_parent_not_even_inside_step(tmp_path: Path, context: str) -> None:
    script = tmp_path / "stuck.py"
    gate = tmp_path / "gate"
    here = str(Path(gymnasium_face_envs.__file__).parent)
    script.write_text(STUCK.format(path=[here, *sys.path], gate=str(gate), context=context))
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(pids) == 2
        with open(gate, "w"):  # the worker is in its step and stays there
            parent.kill()
            for pid in pids:
                wait_for_death(pid)


# -- other regressions -------------------------------------------------------------------------------


@pytest.mark.parametrize("shared_memory", [True, False])
def test_d2_an_explicit_reset_right_after_the_end_of_an_episode_counts(shared_memory: bool) -> None:
    envs = AsyncVectorEnv([lambda: EchoEnv(length=2)] * 2, shared_memory=shared_memory)
    envs.reset()
    envs.step([0, 0])
    *_, terminations, _, _ = envs.step([0, 0])
    assert terminations.all()
    obs, _ = envs.reset()
    assert obs.tolist() == [[200], [200]]
    obs, rewards, *_ = envs.step([0, 0])
    assert obs.tolist() == [[201], [201]]  # no third episode
    assert rewards.tolist() == [1, 1]
    envs.close()


@quiet
def test_nothing_is_left_open(tmp_path: Path) -> None:
    def descriptors() -> set[str]:
        gc.collect()
        return {os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if _is_open(fd)}

    def _is_open(fd: str) -> bool:
        return os.path.lexists(f"/proc/self/fd/{fd}")

    AsyncVectorEnv([EchoEnv]).close()  # the forkserver stays
    before = descriptors()
    for phase, what in (("reset", "plain"), ("step", "killed"), ("build", "plain"), ("", "")):
        with (
            contextlib.suppress(ValueError, WorkerDiedError),
            contextlib.closing(AsyncVectorEnv(faulty(phase, what))) as envs,
        ):
            PHASES["step"](envs)
    assert descriptors() == before


def test_observations_that_do_not_fit_are_refused() -> None:
    class Liar(EchoEnv):
        def _observe(self) -> np.ndarray:
            return np.zeros((3, 3))

    envs = AsyncVectorEnv([Liar])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises((ValueError, TypeError, EnvError)):
            envs.reset()
    close_and_check(envs)


def test_faulty_envs_without_faults_work() -> None:
    envs = AsyncVectorEnv([FaultyEnv] * 2)
    envs.reset()
    envs.step([0, 0])
    envs.close()
