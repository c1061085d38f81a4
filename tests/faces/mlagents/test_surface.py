"""The ML-Agents face returns the steps, side channel messages and timers of ML-Agents' manager, and refuses wrong
input."""

from __future__ import annotations

import itertools
import os
import queue
import threading
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from mlagents.trainers.action_info import ActionInfo
from mlagents.trainers.env_manager import EnvManager
from mlagents.trainers.settings import (
    ConstantSettings,
    EngineSettings,
    GaussianSettings,
    MultiRangeUniformSettings,
    RunOptions,
    TrainerSettings,
    UniformSettings,
)
from mlagents_envs.base_env import TerminalSteps
from mlagents_envs.timers import get_timer_tree, hierarchical_timer, reset_timers
from mlagents_face_envs import (
    CrowdEnv,
    EchoEnv,
    PictureEnv,
    Policy,
    SubprocessEnvManager,
    TestEnv,
    close_and_join,
    gated,
    manager,
    obs_of,
    original,
    plain,
    steps_of,
    unity_env,
)
from pool_envs import Gate

from remuda.mlagents import ClosedError, wire
from remuda.mlagents.worker import Channels

pytestmark = pytest.mark.filterwarnings("ignore")

BOTH = [SubprocessEnvManager, original.SubprocessEnvManager]
PARAMETERS = {
    "constant": ConstantSettings(value=2.0),
    "uniform": UniformSettings(seed=3, min_value=1.0, max_value=2.0),
    "gaussian": GaussianSettings(seed=4, mean=1.0, st_dev=2.0),
    "ranges": MultiRangeUniformSettings(seed=5, intervals=[(1.0, 2.0), (3.0, 4.0)]),
}


def steps_of_both(env_factory: Any, count: int, n_env: int = 3, options: Any = None, **more: Any) -> list[Any]:
    """Returns the first ``count`` steps of each worker, of our manager and of ML-Agents'. Their order between workers
    varies."""
    outcomes = []
    for manager_cls in BOTH:
        made = manager(env_factory, n_env, options, manager_cls, **(more if manager_cls is BOTH[0] else {}))
        made.set_policy("blue", Policy(2, (3, 2)))
        made.set_policy("red", Policy(1))
        made.reset(PARAMETERS)
        steps: dict[int, list[Any]] = {step.worker_id: [step] for step in made.first_step_infos}
        while min(map(len, steps.values())) < count:
            for step in made.get_steps():
                steps[step.worker_id].append(step)
        outcomes.append(plain([[list(step) for step in steps[i][:count]] for i in range(n_env)]))
        outcomes[-1].append(plain(dict(made.training_behaviors)))
        close_and_join(made)
    return outcomes


# -- steps -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", BOTH)
def test_a_step_takes_answers_until_the_queue_raises_empty(kind: Any) -> None:
    """Programs and tests may put a stand-in with `get_nowait` in the place of the queue, and of workers."""

    class WithStandIns(kind):  # type: ignore[misc]
        @staticmethod
        def create_worker(worker_id: int, *_: Any) -> Any:
            return Mock(worker_id=worker_id, waiting=False)

    made = WithStandIns(CrowdEnv, RunOptions(), 2)
    answers = [
        original.EnvironmentResponse(original.EnvironmentCommand.STEP, i, original.StepResponse({"b": i}, None, {}))
        for i in range(2)
    ]
    made.step_queue, made._take_step = Mock(get_nowait=Mock(side_effect=[*answers, queue.Empty])), Mock()
    steps = made._step()
    assert [step.current_all_step_result for step in steps] == [{"b": 0}, {"b": 1}]
    assert all(worker.send.call_args[0][0] is original.EnvironmentCommand.STEP for worker in made.env_workers)


@pytest.mark.parametrize(
    ("env_factory", "options"),
    [
        *((env_factory, {}) for env_factory in (CrowdEnv, PictureEnv, EchoEnv, TestEnv, unity_env)),
        *((CrowdEnv, {"backend": backend}) for backend in ("thread", "serial")),
        (CrowdEnv, {"num_workers": 2}),
        (CrowdEnv, {"start_method": "fork"}),
    ],
)
def test_steps_are_the_originals_bit_for_bit(env_factory: Any, options: dict[str, Any]) -> None:
    ours, original_steps = steps_of_both(env_factory, 14, **options)
    assert ours == original_steps


@pytest.mark.parametrize(("env_factory", "fits"), [(CrowdEnv, True), (unity_env, True), (PictureEnv, False)])
def test_steps_that_fit_travel_in_rows(env_factory: Any, fits: bool) -> None:
    """If ML-Agents changed the contents of steps, this fast transport would go unused without an error."""
    env = env_factory(0, list(Channels(RunOptions(), 0).of_env))
    row = np.zeros(wire.ANSWERS.shape, np.uint8)
    for _ in range(4):
        env.reset()
        results = {name: env.get_steps(name) for name in env.behavior_specs}
        assert wire.fill_with_answer(row, results) == fits
        if fits:
            no_ends = {name: TerminalSteps.empty(each) for name, each in env.behavior_specs.items()}
            assert plain(wire.load_answer(row, no_ends)) == plain(results)
        env.step()
    env.close()


def test_the_manager_has_the_attributes_of_an_env_manager() -> None:
    made = manager(TestEnv)
    assert isinstance(made, EnvManager)
    assert [worker.worker_id for worker in made.env_workers] == [0, 1]
    assert all(isinstance(worker, original.UnityEnvWorker) for worker in made.env_workers)
    assert len({worker.process.pid for worker in made.env_workers} | {os.getpid()}) == 3
    assert made.workers_alive == 2
    assert made.env_factory is TestEnv
    assert isinstance(made.run_options, RunOptions)
    assert made.env_parameters is None
    made.close()
    assert made.workers_alive == 0
    assert all(worker.closed for worker in made.env_workers)


def test_a_slow_env_does_not_delay_the_others(begun: Any, tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    made = begun(gated(gate), 3)
    assert len(steps_of(made, 0, 1)) == 1
    others = [step.worker_id for step in itertools.chain.from_iterable(made.get_steps() for _ in range(20))]
    assert set(others) == {1, 2}
    assert made.env_workers[0].waiting
    gate.let_pass()
    assert obs_of(steps_of(made, 0, 1)[0])[2] == 2


def test_the_manager_sleeps_while_it_waits(begun: Any, tmp_path: Path) -> None:
    """The thread of ML-Agents' manager never sleeps."""
    gate = Gate(tmp_path)
    made = begun(gated(gate), 1)
    made.get_steps()
    here = Path(f"/proc/self/task/{threading.get_native_id()}/stat")

    def open_when_asleep() -> None:
        asleep = 0
        while asleep < 100:
            asleep += here.read_text().rpartition(")")[2].split()[0] == "S"
        gate.let_pass()

    watcher = threading.Thread(target=open_when_asleep)
    watcher.start()
    assert obs_of(made.get_steps()[0])[2] == 2
    watcher.join()


def test_arrays_of_a_step_are_never_overwritten() -> None:
    for env_factory in (TestEnv, PictureEnv):
        made = manager(env_factory, 1)
        made.reset({})
        steps = steps_of(made, 0, 8)
        before = [plain(step.current_all_step_result) for step in steps[:4]]
        assert len({str(each) for each in before}) == 4
        steps[0].current_all_step_result["b"][0].obs[0][:] = 7
        assert plain(steps[1].current_all_step_result) == before[1]
        made.close()


def test_large_actions_of_another_shape_reach_the_env(begun: Any) -> None:
    class Large(TestEnv):
        def get_steps(self, behavior_name: str) -> Any:
            decisions, ends = super().get_steps(behavior_name)
            action = self.actions.get("b")
            decisions.obs[0][0, 3] = 0 if action is None else action.continuous.sum()
            return decisions, ends

    class Lavish(Policy):
        def get_action(self, steps: Any, worker_id: int) -> Any:
            action = super().get_action(steps, worker_id).action
            return ActionInfo(action, type(action)(np.ones((1, 1000), np.float32)), {}, [0])

    made = begun(Large, 1)
    made.set_policy("b", Lavish())
    assert obs_of(made.get_steps()[0])[3] == 1000


def test_a_behaviour_without_a_policy_gets_no_actions() -> None:
    made = SubprocessEnvManager(TestEnv, RunOptions(), 1)
    made.reset({})
    (step,) = made._step()
    assert step.brain_name_to_action_info == {}
    assert obs_of(step) == [0, 1, 1, 0]
    made.close()


# -- resets, parameters, side channels ---------------------------------------------------------------------


def side_channel_bytes(made: Any, worker_id: int = 0) -> bytes:
    """Returns all bytes that the worker's env has received through side channels."""
    (step,) = [step for step in made._reset_env(made.env_parameters) if step.worker_id == worker_id]
    return np.array(obs_of(step)[:-1]).astype(np.uint8).tobytes()


def test_a_reset_drops_the_steps_in_flight(begun: Any) -> None:
    made = begun(TestEnv, 3)
    for resets in (2, 3, 4):
        assert made.reset({}) == 3
        assert [obs_of(step)[:3] for step in made.first_step_infos] == [[i, resets, 0] for i in range(3)]
        made.get_steps()


def test_side_channel_messages_are_the_originals_bit_for_bit() -> None:
    """Covers engine configuration, parameters of all kinds, and training analytics, which only worker 0 receives."""
    options = RunOptions(engine_settings=EngineSettings(width=100, height=50, time_scale=3.0))
    outcomes = []
    for manager_cls in BOTH:
        made = manager(EchoEnv, 2, options, manager_cls)
        made.reset(PARAMETERS)
        made.on_training_started("b", TrainerSettings())
        made.set_env_parameters({"constant": ConstantSettings(value=5.0)})
        outcomes.append([side_channel_bytes(made, 0), side_channel_bytes(made, 1)])
        assert [obs_of(step)[-1] for step in made._reset_env({})] == [4, 3]
        close_and_join(made)
    assert outcomes[0] == outcomes[1]
    assert all(name.encode() in outcomes[0][0] for name in PARAMETERS)


@pytest.mark.parametrize("value", [2.0, 2, np.float32(2), np.int64(2)])
def test_parameters_can_be_plain_numbers(begun: Any, value: Any) -> None:
    received = []
    for parameter in (value, ConstantSettings(value=2.0)):
        made = begun(EchoEnv, 1)
        made.reset({"gravity": parameter})
        received.append(side_channel_bytes(made))
    assert received[0] == received[1]
    assert received[0].count(b"gravity") == 2  # once for each reset


@pytest.mark.parametrize("num_workers", [1, 3])
def test_what_cannot_be_pickled_is_refused_and_changes_nothing(num_workers: int) -> None:
    made = manager(EchoEnv, 3, num_workers=num_workers)
    for _ in range(2):  # before the envs are built, and afterwards
        with pytest.raises(TypeError, match="cannot pickle"):
            made.reset({"wind": threading.Lock()})
        with pytest.raises(TypeError, match="cannot pickle"):
            made.on_training_started("b", threading.Lock())  # type: ignore[arg-type]
        assert made.reset({"gravity": 2.0}) == 3
        assert len(steps_of(made, 2, 1)) == 1
    assert made.env_parameters == {"gravity": 2.0}
    assert b"wind" not in side_channel_bytes(made)
    made.close()


def test_parameters_set_during_a_step_reach_the_env_after_it(begun: Any, tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    made = begun(gated(gate, EchoEnv), 2)
    steps_of(made, 0, 1)
    made.get_steps()
    made.set_env_parameters({"gravity": ConstantSettings(value=2.0)})
    gate.let_pass()
    before, after = steps_of(made, 0, 2)
    assert b"gravity" not in np.array(obs_of(before)).astype(np.uint8).tobytes()
    assert b"gravity" in np.array(obs_of(after)).astype(np.uint8).tobytes()


# -- behaviours, statistics, timers ------------------------------------------------------------------------


def test_behaviours_that_appear_later_are_added() -> None:
    made = manager(CrowdEnv, 2)
    made.set_policy("blue", Policy(2, (3, 2)))
    assert made.training_behaviors.keys() == {"blue"}
    made.reset({})
    while not any("red" in step.name_behavior_ids for step in made.get_steps()):
        pass
    assert made.training_behaviors.keys() == {"blue", "red"}
    made.close()


def test_timers_of_all_workers_are_in_the_tree() -> None:
    trees = []
    for manager_cls in BOTH:
        reset_timers()
        made = manager(CrowdEnv, 2, manager_cls=manager_cls)
        made.set_policy("blue", Policy(2, (3, 2)))
        made.reset({})
        taken = sum(len(made._step()) for _ in range(20))
        workers = get_timer_tree()["children"]["workers"]["children"]["worker_root"]
        assert workers["is_parallel"]
        assert workers["count"] == taken
        assert workers["children"]["crowd"]["children"]["walks"]["count"] == taken
        trees.append(set(get_timer_tree()["children"]))
        close_and_join(made)
    assert trees[0] == trees[1]


@pytest.mark.parametrize("start_method", ["forkserver", "fork"])
def test_a_workers_timers_are_its_own(begun: Any, start_method: Any) -> None:
    reset_timers()
    with hierarchical_timer("outside"):
        made = begun(CrowdEnv, 1, start_method=start_method)
    made._step()
    assert get_timer_tree()["children"]["workers"]["children"]["worker_root"]["children"].keys() == {"crowd"}


def test_with_the_serial_backend_the_callers_timers_keep_running(begun: Any) -> None:
    reset_timers()
    made = begun(CrowdEnv, 1, backend="serial")
    with hierarchical_timer("outside"):
        made._step()
    assert get_timer_tree()["children"]["outside"]["count"] == 1


# -- the end, and wrong arguments -------------------------------------------------------------------------


def test_a_closed_manager_raises_closed_error() -> None:
    manager(TestEnv).close()  # before its first reset
    made = manager(TestEnv)
    made.reset({})
    made.get_steps()
    made.close()
    made.close()
    for use in (made._step, made.reset, partial(made.set_env_parameters, {"x": 1.0})):
        with pytest.raises(ClosedError):
            use()


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        ({"n_env": 0}, ValueError, "expected n_env to be"),
        ({"run_options": 3}, TypeError, "expected run_options to be"),
        ({"env_factory": [TestEnv] * 2}, TypeError, "expected env_factory to be a function .*; pass one function"),
        ({"num_workers": "auto"}, ValueError, "num_workers to be None .*1 to 2, got 'auto': a game computes"),
        ({"num_workers": 3}, ValueError, "num_workers to be None .*got 3$"),
    ],
)
def test_wrong_arguments_are_refused(wrong: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        SubprocessEnvManager(**{"env_factory": TestEnv, "run_options": RunOptions(), "n_env": 2, **wrong})
