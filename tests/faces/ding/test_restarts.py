"""Faults of envs behind the DI-engine face with restarts."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import ding_face_envs as envs
import numpy as np
import pytest
from ding.torch_utils import to_tensor
from ding_face_envs import (
    DriftEnv,
    FaultyEnv,
    assert_closed,
    launched,
    ours,
    settled,
    step_until_it_fails,
    unlaunched,
    with_a_faulty_one,
)
from gymnasium_face_envs import assert_identical
from pairs import each

from remuda import EnvError, FaultPolicy, WorkerDiedError

pytestmark = pytest.mark.filterwarnings("ignore")

ALL = {0: 0, 1: 0, 2: 0}
NOT_DONE = envs.ding_envs.BaseEnvTimestep(None, None, False, {})
V2 = ours.SubprocessEnvManagerV2


@each(accident=[envs.value_error, envs.kill_myself], faults=["restart", FaultPolicy("restart", max_restarts=3)])
def test_an_env_with_a_fault_is_restarted_and_its_step_is_abnormal(accident: Callable[[], None], faults: Any) -> None:
    env_fns = with_a_faulty_one("step", accident, at=1)
    manager = launched(env_fns, remuda={"faults": faults})
    manager.step(ALL)
    timesteps = manager.step(ALL)
    assert not any("abnormal" in timesteps[i].info for i in (0, 2))
    obs, reward, done, info = timesteps[1]
    assert (obs, reward, done, info["abnormal"]) == (None, None, None, True)
    assert isinstance(info["err"].error, EnvError if accident is envs.value_error else WorkerDiedError)
    assert info["err"] == str(info["err"].error)
    assert to_tensor(timesteps)[1].info["err"] == info["err"]  # as DI-engine's evaluators do before they read the info
    assert 1 in settled(manager).ready_obs
    manager.reset({1: None})  # as DI-engine's collectors do after an abnormal step
    assert manager.step({1: 0})[1].info["steps"] == 1
    manager.close()


@each(accident=[envs.value_error, envs.kill_myself, envs.sleep_in_native_code], phase=["explicit", "background"])
def test_a_reset_that_fails_is_repeated(accident: Callable[[], None], phase: str) -> None:
    """The rebuilt env repeats the reset, which then succeeds."""
    env_fns = with_a_faulty_one("reset", accident, at=1)
    manager = launched(env_fns, reset_timeout=0.3, remuda={"faults": "restart"})
    pids = manager.pid
    if phase == "explicit":
        manager.reset()
    else:
        while not manager.step(dict.fromkeys(manager.ready_obs, 0)).get(1, NOT_DONE).done:
            pass
    assert settled(manager).ready_obs_id == [0, 1, 2]
    assert [one == other for one, other in zip(manager.pid, pids, strict=True)] == [
        True,
        accident is envs.value_error,
        True,
    ]
    manager.close()


class Random(DriftEnv):
    """Draws from NumPy's global generator, as DI-engine's envs do, and has one accident."""

    def __init__(self, accident: Callable[[], None] = lambda: None, once: Path | None = None) -> None:
        super().__init__()
        self._accident, self._once = accident, once
        self._repeated: int | None = None

    def seed(self, seed: int, dynamic_seed: bool | None = None) -> None:
        self.seeds.append((seed, dynamic_seed))
        self._repeated = seed if dynamic_seed is False else None
        np.random.seed(seed)

    def reset(self, **param: Any) -> Any:
        super().reset(**param)
        self.length = 100
        if self._repeated is not None:
            np.random.seed(self._repeated)
        return np.random.rand(3).astype(np.float32)

    def step(self, action: Any) -> Any:
        if action == "stumble" and self._once is not None and not self._once.exists():
            self._once.touch()
            self._accident()
        return super().step(action)


def draws_after_a_fault(accident: Callable[[], None], path: Path, seed: Any, **options: Any) -> list[Any]:
    """Returns the observations of the first resets, those after a fault, and the seeds and reset params of the envs."""
    manager = unlaunched([Random, partial(Random, accident, path)], remuda={"faults": "restart", **options})
    if seed is not None:
        manager.seed(*seed)
    manager.launch({0: {"level": 1}, 1: {"level": 2}})
    first = manager.ready_obs
    for _ in range(2):
        manager.reset()
    assert "err" in manager.step({0: "-", 1: "stumble"})[1].info
    path.unlink()
    seen = [first, settled(manager).ready_obs, manager.seeds, manager.resets]
    manager.close()
    return seen


@each(
    accident__backend=[(envs.value_error, "process"), (envs.kill_myself, "process"), (envs.value_error, "serial")],
    seed=[None, (5,), (5, True), (5, False)],
)
def test_a_rebuilt_env_has_the_reset_params_and_a_derived_seed(
    accident: Callable[[], None], backend: str, seed: Any, tmp_path: Path
) -> None:
    """The seed of the rebuilt env is derived from the previous one, or equal to it with `dynamic_seed=False`."""
    first, then, seeds, resets = draws_after_a_fault(accident, tmp_path / "once", seed, backend=backend)
    derived = int(np.random.SeedSequence(6, spawn_key=(1, 1)).generate_state(1)[0]) % 2**31
    expected_seed = 6 if seed == (5, False) else derived
    assert seeds[1] == ([] if seed is None else [(expected_seed, *seed[1:], None)[:2]])
    assert resets[1] == [{"level": 2}]
    if seed is not None:
        again = draws_after_a_fault(accident, tmp_path / "once", seed, backend=backend)
        assert_identical([first, then], again[:2])
    assert (first[1] == then[1]).all() == (seed == (5, False))


@each(accident=[envs.value_error, envs.kill_myself], reward=["array", "double", "float", "dict"])
def test_an_abnormal_step_has_the_structure_of_other_steps(accident: Callable[[], None], reward: str) -> None:
    """The middleware converts each step to tensors and reads the return of a step that is done."""
    env_fns = [partial(Steady, reward), partial(Steady, reward, accident, at=2)]
    manager = launched(env_fns, V2, remuda={"faults": "restart"})
    earned: Any = 0.0
    for _ in range(2):
        before, timesteps = manager.ready_obs, manager.step([0, 0])
        earned += sum(np.sum(leaf) for leaf in leaves(timesteps[1].reward))
    before = manager.ready_obs
    healthy, failed = manager.step([0, 0])
    assert [key for key, _ in leaves_by_name(failed)] == [key for key, _ in leaves_by_name(healthy)]
    for (key, one), (_, other) in zip(leaves_by_name(failed), leaves_by_name(healthy), strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype), key
    assert (failed.obs == before[1]).all()
    assert not any(np.any(leaf) for leaf in leaves(failed.reward))
    assert (failed.done, failed.env_id, failed.info.abnormal, failed.info.TimeLimit_truncated) == (True, 1, True, True)
    assert failed.info.eval_episode_return == np.float32(earned)
    failed.tensor()
    assert settled(manager).ready_obs_id == [0, 1]
    manager.close()


def test_an_abnormal_first_step_has_the_form_of_the_reward_space() -> None:
    """No earlier step exists, so the reward has the form of the reward space."""
    manager = launched([partial(Steady, "array", envs.value_error)], V2, remuda={"faults": "restart"})
    (failed,) = manager.step([0])
    assert (failed.reward.shape, failed.reward.dtype) == ((1,), np.float32)
    assert (failed.reward, failed.info.eval_episode_return) == (0.0, 0.0)
    manager.close()


def test_in_an_evaluation_an_abnormal_step_is_not_done() -> None:
    """A step that is done would count as an episode. Another episode begins with the same seed."""
    manager = unlaunched([partial(Steady, "array", envs.kill_myself, at=1)], V2, remuda={"faults": "restart"})
    manager.seed(3, dynamic_seed=False)
    manager.launch()
    first = manager.ready_obs
    manager.step([0])
    before = manager.ready_obs
    (failed,) = manager.step([0])
    assert (failed.obs == before).all()
    assert (failed.done, failed.reward, failed.info.abnormal) == (False, 0.0, True)
    assert (manager.ready_obs == first).all()
    manager.close()


def leaves_by_name(tree: Any, name: str = "") -> list[tuple[str, Any]]:
    """Returns the names and arrays of a treetensor without the info, because infos differ between steps."""
    if not hasattr(tree, "items"):
        return [(name, tree)]
    return [leaf for key, part in tree.items() if key != "info" for leaf in leaves_by_name(part, f"{name}.{key}")]


def leaves(tree: Any) -> list[Any]:
    return [leaf for _, leaf in leaves_by_name(tree)]


class Steady(FaultyEnv):
    """An env with long episodes."""

    def __init__(self, reward: str, accident: Callable[[], None] = lambda: None, at: int = 0) -> None:
        super().__init__("step", accident, at)
        self._reward = envs.REWARDS[reward]

    def reset(self, **param: Any) -> Any:
        obs = super().reset(**param)
        self.length = 100
        return obs


class GatedReset(Steady):
    """Has episodes of one step. Each reset after the first waits for a byte."""

    def __init__(self, gate: int) -> None:
        super().__init__("array")
        self._gate = gate

    def reset(self, **param: Any) -> Any:
        if self.resets:
            os.read(self._gate, 1)
        obs = super().reset(**param)
        self.length = 1
        return obs


def test_actions_reach_the_envs_of_the_last_ready_obs() -> None:
    """This holds even if another env becomes ready in between. DI-engine would step that env."""
    read_end, gate = os.pipe()
    still = partial(Steady, "array")
    manager = launched([still, partial(GatedReset, read_end), still], V2)
    manager.step([0, 0, 0])
    seen = manager.ready_obs
    assert len(seen) == 2
    os.write(gate, b"x")
    while manager.ready_obs_id != [0, 1, 2]:
        pass
    assert [int(timestep.env_id) for timestep in manager.step([0, 0])] == [0, 2]
    assert len(manager.ready_obs) == 3
    assert [int(timestep.env_id) for timestep in manager.step([0, 0, 0])] == [0, 1, 2]
    manager.close()
    os.close(read_end)
    os.close(gate)


def test_too_many_restarts_raise() -> None:
    manager = launched(
        with_a_faulty_one("step", envs.value_error), remuda={"faults": FaultPolicy("restart", max_restarts=1)}
    )
    with pytest.raises(RuntimeError, match="max_restarts=1"):
        step_until_it_fails(manager)
    assert_closed(manager)


class Answering(Steady):
    """An env with a mood, a picture and shaped rewards. Each of these calls may have an accident, once or always."""

    def __init__(self, accident: Callable[[], None], once: Path | None, parent: int) -> None:
        super().__init__("array")
        self._env = self
        self._accident_in_call, self._once, self._parent = accident, once, parent

    def _answer(self, value: Any) -> Any:
        if os.getpid() != self._parent and not (self._once and self._once.exists()):
            if self._once:
                self._once.touch()
            self._accident_in_call()
        return value

    @property
    def mood(self) -> str:
        return self._answer("good")

    def reward_shaping(self, transitions: list[Any]) -> list[Any]:
        return self._answer(transitions)

    def render(self, mode: str) -> Any:
        assert self.resets, "it must be reset first"
        return self._answer(mode)


class Content(Answering):
    def _answer(self, value: Any) -> Any:
        return value


CALLS: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "attribute": (lambda manager: manager.mood, ["good"] * 3),
    "pictures": (lambda manager: manager.ready_imgs, {0: "rgb_array", 2: "rgb_array"}),
    "shaping": (lambda manager: manager.reward_shaping(1, [5]), [5]),
}


def launched_with_accident(accident: Callable[[], None], once: Path | None, policy: Any, **changes: Any) -> Any:
    """Returns a manager with three envs. The calls of the middle env may have an accident."""
    content, other = (partial(kind, accident, once, os.getpid()) for kind in (Content, Answering))
    return launched([content, other, content], remuda={"faults": policy}, **changes)


def assert_env_1_cut_off_and_usable(manager: Any) -> None:
    timesteps = manager.step(ALL)
    assert [timesteps[i].info.get("abnormal", False) for i in range(3)] == [False, True, False]
    assert settled(manager).ready_env == [0, 1, 2]
    assert list(manager.ready_imgs) == [0, 1, 2]
    assert [timestep.info["steps"] for timestep in manager.step(ALL).values()] == [2, 1, 2]


@pytest.mark.parametrize("call", CALLS)
def test_after_an_idle_death_the_successor_answers_calls(call: str, tmp_path: Path) -> None:
    """The successor answers. It has no picture, because it has not been reset."""
    ask, answer = CALLS[call]
    (tmp_path / "once").touch()
    manager = launched_with_accident(envs.value_error, tmp_path / "once", "restart")
    os.kill(manager.workers[1].pid, signal.SIGKILL)
    assert ask(manager) == answer
    assert_env_1_cut_off_and_usable(manager)
    manager.close()


@each(call=CALLS, accident=[envs.kill_myself, envs.sleep])
def test_after_a_death_in_a_call_the_successor_repeats_it(
    accident: Callable[[], None], call: str, tmp_path: Path
) -> None:
    ask, answer = CALLS[call]
    policy = FaultPolicy("restart", call_timeout=0.5)
    manager = launched_with_accident(accident, tmp_path / "once", policy)
    assert ask(manager) == answer
    assert_env_1_cut_off_and_usable(manager)
    manager.close()


@pytest.mark.parametrize("call", CALLS)
def test_an_exception_in_a_call_is_raised_without_a_restart(call: str, tmp_path: Path) -> None:
    """The call raises, and the episode continues."""
    ask, _ = CALLS[call]
    manager = launched_with_accident(envs.value_error, tmp_path / "once", "restart")
    with pytest.raises(ValueError, match="100% wrong") as caught:
        ask(manager)
    assert isinstance(caught.value.__cause__, EnvError)
    assert [timestep.info["steps"] for timestep in manager.step(ALL).values()] == [1, 1, 1]
    assert len(ask(manager)) == (1 if call == "shaping" else 3)
    manager.close()


@pytest.mark.parametrize("call", CALLS)
def test_repeated_deaths_in_calls_exceed_max_restarts(call: str) -> None:
    manager = launched_with_accident(envs.kill_myself, None, FaultPolicy("restart", max_restarts=1, backoff=0.0))
    if call == "pictures":  # ready_imgs skips an env that has not been reset
        manager.ready_imgs  # noqa: B018
        manager.reset()
    with pytest.raises(RuntimeError, match="max_restarts=1"):
        CALLS[call][0](manager)
        CALLS[call][0](manager)
    assert_closed(manager)
