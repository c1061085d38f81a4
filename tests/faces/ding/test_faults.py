"""Faults of envs and workers behind the DI-engine face, and their restarts; see also ``test_fault_table.py``."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from accidents import kill_myself, once, raise_value_error, run_out_of_memory, stop_myself, wait_for_ever
from ding_face_envs import (
    PARENT,
    DriftEnv,
    EnvState,
    GlobalEnv,
    Hook,
    assert_closed,
    ding_envs,
    later,
    launched,
    one_of_three,
    ours,
    settled,
    step_until_it_fails,
    unlaunched,
)
from odd_exceptions import raising
from pairs import each
from pool_envs import Gate, assert_same

from remuda import EnvError, EnvTimeoutError, FaultPolicy, StateError, WorkerDiedError

pytestmark = pytest.mark.filterwarnings("ignore")

MANAGERS = [ours.AsyncSubprocessEnvManager, ours.SyncSubprocessEnvManager]
V2 = ours.SubprocessEnvManagerV2
ALL = {0: 0, 1: 0, 2: 0}
NOT_DONE = ding_envs.BaseEnvTimestep(None, None, False, {})
RESTART = {"faults": "restart"}
Steady = partial(DriftEnv, length=100)

# -- steps -----------------------------------------------------------------------------------------------


@each(
    manager_cls=MANAGERS,
    accident__raised__text=[
        (raise_value_error, ValueError, "broken"),
        (raising(lambda: UnicodeDecodeError("utf-8", b"7", 0, 1, "seven")), UnicodeDecodeError, "seven"),
        (run_out_of_memory, MemoryError, "^$"),
        (wait_for_ever, TimeoutError, "step_timeout=1.0"),
    ],
)
def test_the_envs_own_exception_is_raised(manager_cls: Any, accident: Hook, raised: type[Exception], text: str) -> None:
    """DI-engine builds a new exception of the env's class, which fails if the constructor needs more than a text."""
    manager = launched(one_of_three(step=accident), manager_cls, step_timeout=1.0 if accident is wait_for_ever else 60)
    with pytest.raises(raised, match=text) as caught:
        step_until_it_fails(manager)
    assert isinstance(caught.value.__cause__, EnvError)
    (failure,) = caught.value.__cause__.failures
    assert (failure.env_id, failure.operation) == (1, "step")
    assert f"in {accident.__name__}" in failure.traceback
    assert_closed(manager)


def test_the_error_for_an_invalid_info_shows_it() -> None:
    manager = launched([partial(DriftEnv, oddity="an info that is invalid")])
    with pytest.raises(TypeError, match=r"info of a timestep.*got \[1, 2\]"):
        manager.step({0: 0})
    assert_closed(manager)


# -- resets ----------------------------------------------------------------------------------------------


@each(
    manager_cls=MANAGERS,
    accident=[raise_value_error, kill_myself, stop_myself],
    fail=[lambda manager: manager.reset(), step_until_it_fails],
)
def test_a_reset_that_always_fails_raises_after_max_retry(manager_cls: Any, accident: Hook, fail: Any) -> None:
    """DI-engine's background reset fails in a thread, and the next step finds a closed manager."""
    options = {"max_retry": 3, "retry_waiting_time": 0.001, "reset_timeout": 0.3}
    manager = launched(one_of_three(background=accident), manager_cls, **options)
    with pytest.raises(RuntimeError, match=r"Env 1 reset has exceeded max retries\(3\)") as caught:
        fail(manager)
    is_exception = accident is raise_value_error
    assert isinstance(caught.value.__cause__, EnvError if is_exception else WorkerDiedError)
    assert ("broken" in str(caught.value)) == is_exception
    assert_closed(manager)
    manager.launch()
    manager.close()


@pytest.mark.parametrize("retry_type", ["reset", "renew"])
def test_a_reset_that_fails_is_retried(retry_type: str) -> None:
    once = lambda env: raise_value_error() if env.calls["background"] == 1 else None  # noqa: E731
    manager = unlaunched(one_of_three(background=once), max_retry=2, retry_type=retry_type, retry_waiting_time=0.001)
    manager.seed(5, True)
    manager.launch()
    before = manager.pid
    manager.reset()
    # With "reset", the same env has recorded two resets. With "renew", the rebuilt env has recorded one.
    assert [len(one) for one in manager.resets] == [2, 2 if retry_type == "reset" else 1, 2]
    assert manager.seeds == [[(5, True)], [(6, True)], [(7, True)]]
    assert manager.pid == before
    assert manager.ready_env == [0, 1, 2]
    manager.close()


@each(
    accident__message=[(stop_myself, "longer than {}=0.2 s"), (wait_for_ever, "max retries.*within {}=0.2 s")],
    limit=["reset_timeout", "connect_timeout"],
)
def test_the_error_for_a_late_reset_names_the_managers_limit(accident: Hook, message: str, limit: str) -> None:
    manager = launched(one_of_three(background=accident), **{limit: 0.2})
    with pytest.raises(RuntimeError, match=message.format(limit)):
        manager.reset()
    assert_closed(manager)


@each(
    phase__raised=[("step", EnvTimeoutError), ("background", RuntimeError)],
    policy=["raise", "restart"],
)
def test_threads_have_the_managers_limits_too(phase: str, raised: type[Exception], policy: str, tmp_path: Path) -> None:
    """A thread cannot be killed, so its env is lost also with `faults="restart"`."""
    gate = Gate(tmp_path)
    hung = partial(Steady, **{phase: lambda _: gate.wait()})
    options = {"backend": "thread", "faults": policy}
    manager = launched([hung], step_timeout=0.1, reset_timeout=0.1, retry_waiting_time=0.0, remuda=options)
    with pytest.raises(raised, match=rf"longer than {'step' if phase == 'step' else 'reset'}_timeout=0.1 s"):
        manager.step({0: 0}) if phase == "step" else manager.reset()
    assert_closed(manager)
    gate.let_pass()


def test_a_hung_thread_may_be_abandoned(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    hung = partial(Steady, step=once(tmp_path / "once", lambda *_: gate.wait()))
    policy = FaultPolicy("restart", abandon_hung_threads=True)
    manager = launched([hung], step_timeout=0.1, remuda={"backend": "thread", "faults": policy})
    assert isinstance(manager.step({0: 0})[0].info["err"].error, EnvTimeoutError)
    assert settled(manager).step({0: 0})[0].info["steps"] == 1
    gate.let_pass()
    manager.close()


def spoil_both(manager: Any) -> None:
    manager.step({0: "spoil", 1: "spoil"})


def step_until_done(manager: Any) -> None:
    while not manager.done:
        manager.step([0] * len(manager.ready_obs_id))


@pytest.mark.parametrize(
    ("manager_cls", "use", "message"),
    [
        (ours.SyncSubprocessEnvManager, spoil_both, "call reset"),
        (V2, step_until_done, "waits for an action, got.*DONE.*call reset"),
    ],
)
def test_ready_obs_raises_if_all_envs_are_in_error_or_done(manager_cls: Any, use: Any, message: str) -> None:
    """DI-engine waits forever."""
    manager = launched([DriftEnv] * 2, manager_cls, episode_num=1)
    use(manager)
    with pytest.raises(RuntimeError, match=message):
        _ = manager.ready_obs
    assert not manager.closed
    manager.reset()
    assert len(manager.ready_obs) == 2
    manager.close()


def interrupt_the_manager(env: Any) -> None:
    if len(env.resets) == 1:
        os.kill(PARENT, signal.SIGINT)


@pytest.mark.parametrize("manager_cls", [ours.SyncSubprocessEnvManager, V2])
def test_after_an_interrupted_step_the_envs_must_be_reset(manager_cls: Any) -> None:
    """In DI-engine, later steps return the timesteps of earlier actions."""
    manager = launched([partial(DriftEnv, step=interrupt_the_manager), DriftEnv], manager_cls)
    actions = {0: 0, 1: 0} if manager_cls is ours.SyncSubprocessEnvManager else [0, 0]
    with pytest.raises(KeyboardInterrupt):
        manager.step(actions)
    with pytest.raises(RuntimeError, match=r"got \[0, 1\]: an interrupt ended the step; call reset"):
        manager.step(actions)
    if manager_cls is V2:
        with pytest.raises(RuntimeError, match="waits for an action"):
            _ = manager.ready_obs
    manager.reset()
    assert len(manager.step(actions)) == 2
    manager.close()


def interrupt(patch: pytest.MonkeyPatch, pool: Any, method: str, when: str) -> None:
    """Raises KeyboardInterrupt in the next call of a method of the pool, "before" it has begun or "after" its end."""
    call = getattr(pool, method)

    def interrupted(*args: Any, **options: Any) -> None:
        patch.undo()
        if when == "after":
            call(*args, **options)
        raise KeyboardInterrupt

    patch.setattr(pool, method, interrupted)


def step_all(manager: Any) -> list[Any]:
    """Steps the envs that wait for an action, and returns the timesteps."""
    ready = manager.ready_obs
    if isinstance(manager, V2):
        return list(manager.step([0] * len(ready)))
    return list(manager.step(dict.fromkeys(ready, 0)).values())


RESETS: list[Hook] = [lambda manager: manager.reset(), lambda manager: manager.reset({1: {}}), step_all]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("use", RESETS, ids=["all", "one", "step"])
@pytest.mark.parametrize("manager_cls", [*MANAGERS, V2])
def test_after_interrupted_resets_the_envs_can_be_reset(
    manager_cls: Any, use: Hook, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`step_all` ends the episodes, so that resets begin in the background."""
    manager = launched([partial(DriftEnv, length=1)] * 3, manager_cls, wait_num=3)
    interrupt(monkeypatch, manager._pool, "send_reset", when)
    with pytest.raises(KeyboardInterrupt):
        use(manager)
    for param in ({1: None}, None):
        manager.reset(param)
        assert manager._env_states[1] == EnvState.RUN
    assert len(step_all(manager)) == 3
    manager.close()


def test_an_interrupted_async_step_loses_no_timesteps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The timestep of the first env has arrived when the interrupt comes. It ends the episode."""
    gate = Gate(tmp_path)
    slow = partial(Steady, step=lambda env: gate.wait() if env.calls["step"] == 1 else None)
    manager = launched([partial(DriftEnv, length=1), slow], ours.AsyncSubprocessEnvManager, wait_num=1)
    receive = manager._pool.recv

    def interrupted(least: int, timeout: float | None) -> Any:
        if manager._arrived and timeout is None:
            raise KeyboardInterrupt
        return receive(least, timeout)

    with monkeypatch.context() as patch:
        patch.setattr(manager._pool, "recv", interrupted)
        with pytest.raises(KeyboardInterrupt):
            manager.step({0: 0, 1: 0})
    assert manager.ready_obs == {}
    gate.let_pass()
    timesteps = manager.step({})
    assert {i: (timestep.done, timestep.info["steps"]) for i, timestep in timesteps.items()} == {
        0: (True, 1),
        1: (False, 1),
    }
    assert settled(manager).ready_env == [0, 1]
    with pytest.raises(AssertionError, match="expected actions"):
        manager.step({})
    manager.close()


@pytest.mark.parametrize("when", ["before", "after"])
def test_timesteps_of_a_step_that_was_interrupted_at_its_end_are_returned_once(
    when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = launched([partial(DriftEnv, length=1)] * 2, ours.AsyncSubprocessEnvManager, episode_num=2)
    interrupt(monkeypatch, manager._pool, "send_reset", when)
    with pytest.raises(KeyboardInterrupt):
        manager.step({0: 0, 1: 0})
    if when == "before":  # the envs count as resetting, although nothing was sent
        with pytest.raises(StateError, match=r"expected results of envs \[0, 1\], got none: .* call reset"):
            _ = manager.ready_obs
    assert [timestep.done for timestep in manager.step({}).values()] == [True, True]
    if when == "before":
        manager.reset()
    assert settled(manager).ready_env == [0, 1]
    assert [len(resets) for resets in manager.resets] == [2, 2]
    assert len(step_all(manager)) == 2
    assert manager.done
    manager.close()


def test_results_that_an_interrupt_has_lost_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    manager = launched([Steady] * 2, ours.AsyncSubprocessEnvManager)
    interrupt(monkeypatch, manager._pool, "recv", "after")
    with pytest.raises(KeyboardInterrupt):
        manager.step({0: 0})
    for actions in ({}, {1: 0}):
        with pytest.raises(StateError, match=r"expected results of envs \[0\], got none: .* call reset"):
            manager.step(actions)
    manager.reset({0: None})
    assert [timestep.info["steps"] for timestep in manager.step({0: 0}).values()] == [1, 1]
    manager.close()


def test_a_step_after_the_end_of_an_episode_is_refused_by_the_worker() -> None:
    """The managers prevent such steps."""
    manager = launched([partial(DriftEnv, length=1)], auto_reset=False)
    manager.step({0: 0})
    with pytest.raises(EnvError, match="expected an order of the manager to reset"):
        manager._pool.step([0])
    manager.close()


# -- restarts --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("accident", [raise_value_error, kill_myself])
def test_an_env_with_a_fault_is_restarted_and_its_step_is_abnormal(accident: Hook) -> None:
    from ding.torch_utils import to_tensor

    manager = launched(one_of_three(step=later(accident)), remuda=RESTART)
    manager.step(ALL)
    timesteps = manager.step(ALL)
    assert not any("abnormal" in timesteps[i].info for i in (0, 2))
    obs, reward, done, info = timesteps[1]
    assert (obs, reward, done, info["abnormal"]) == (None, None, None, True)
    assert isinstance(info["err"].error, EnvError if accident is raise_value_error else WorkerDiedError)
    assert info["err"] == str(info["err"].error)
    assert to_tensor(timesteps)[1].info["err"] == info["err"]  # as DI-engine's evaluators do before they read the info
    assert 1 in settled(manager).ready_obs
    manager.reset({1: None})  # as DI-engine's collectors do after an abnormal step
    assert manager.step({1: 0})[1].info["steps"] == 1
    manager.close()


def test_an_episode_with_a_fault_does_not_count(tmp_path: Path) -> None:
    env_fn = partial(DriftEnv, length=2, step=once(tmp_path, raise_value_error))
    manager = launched([env_fn], episode_num=2, remuda=RESTART)
    dones = []
    while not manager.done:
        dones.append(manager.step(dict.fromkeys(manager.ready_obs, 0))[0].done)
    assert dones == [None, False, True, False, True]
    manager.close()


@pytest.mark.parametrize("accident", [raise_value_error, kill_myself, stop_myself])
def test_a_background_reset_that_fails_is_repeated(accident: Hook) -> None:
    """The rebuilt env repeats the reset, which then succeeds."""
    manager = launched(one_of_three(background=accident), reset_timeout=1.0, remuda=RESTART)
    pids = manager.pid
    while not manager.step(dict.fromkeys(manager.ready_obs, 0)).get(1, NOT_DONE).done:
        pass
    assert settled(manager).ready_obs_id == [0, 1, 2]
    same = [one == other for one, other in zip(manager.pid, pids, strict=True)]
    assert same == [True, accident is raise_value_error, True]
    manager.close()


def draws_after_a_fault(accident: Hook, path: Path, seed: Any, **options: Any) -> list[Any]:
    """Returns the observations of the first resets, those after a fault, and the seeds and reset params of the envs."""
    fault = once(path, accident, lambda env: env.action == "stumble")
    manager = unlaunched([GlobalEnv, partial(GlobalEnv, length=100, step=fault)], remuda={**RESTART, **options})
    if seed is not None:
        manager.seed(*seed)
    manager.launch({0: {"level": 1}, 1: {"level": 2}})
    first = manager.ready_obs
    for _ in range(2):
        manager.reset()
    assert "err" in manager.step({0: "-", 1: "stumble"})[1].info
    seen = [first, settled(manager).ready_obs, manager.seeds, manager.resets]
    manager.close()
    return seen


@each(
    accident__backend=[(raise_value_error, "process"), (kill_myself, "process"), (raise_value_error, "serial")],
    seed=[None, (5,), (5, True), (5, False)],
)
def test_a_rebuilt_env_has_the_reset_params_and_a_derived_seed(
    accident: Hook, backend: str, seed: Any, tmp_path: Path
) -> None:
    """The seed of the rebuilt env is derived from the previous one, or equal to it with `dynamic_seed=False`."""
    first, then, seeds, resets = draws_after_a_fault(accident, tmp_path / "once", seed, backend=backend)
    derived = int(np.random.SeedSequence(6, spawn_key=(1, 1)).generate_state(1)[0]) % 2**31
    expected_seed = 6 if seed == (5, False) else derived
    assert seeds[1] == ([] if seed is None else [(expected_seed, *seed[1:], None)[:2]])
    assert resets[1] == [{"level": 2}]
    if seed is not None:
        again = draws_after_a_fault(accident, tmp_path / "again", seed, backend=backend)
        assert_same([first, then], again[:2])
    assert (first[1] == then[1]).all() == (seed == (5, False))


# -- the timesteps of SubprocessEnvManagerV2 -------------------------------------------------------------


@each(accident=[raise_value_error, kill_myself], reward=["array", "double", "float", "dict"])
def test_an_abnormal_step_has_the_structure_of_other_steps(accident: Hook, reward: str) -> None:
    """The middleware converts each step to tensors and reads the return of a step that is done."""
    fault = lambda env: accident() if env.calls["step"] == 3 else None  # noqa: E731
    steady = partial(Steady, reward=reward)
    manager = launched([steady, partial(steady, step=fault)], V2, remuda=RESTART)
    earned: Any = 0.0
    for _ in range(2):
        _, timesteps = manager.ready_obs, manager.step([0, 0])
        earned += sum(np.sum(leaf) for _, leaf in leaves(timesteps[1].reward))
    before = manager.ready_obs
    healthy, failed = manager.step([0, 0])
    for (key, one), (other_key, other) in zip(leaves(failed), leaves(healthy), strict=True):
        assert (key, one.shape, one.dtype) == (other_key, other.shape, other.dtype)
    assert (failed.obs == before[1]).all()
    assert not any(np.any(leaf) for _, leaf in leaves(failed.reward))
    assert (failed.done, failed.env_id, failed.info.abnormal, failed.info.TimeLimit_truncated) == (True, 1, True, True)
    assert failed.info.eval_episode_return == np.float32(earned)
    failed.tensor()
    assert settled(manager).ready_obs_id == [0, 1]
    manager.close()


def leaves(tree: Any, name: str = "") -> list[tuple[str, Any]]:
    """Returns the names and arrays of a treetensor without the info, because infos differ between steps."""
    if not hasattr(tree, "items"):
        return [(name, tree)]
    return [leaf for key, part in tree.items() if key != "info" for leaf in leaves(part, f"{name}.{key}")]


def test_an_abnormal_first_step_has_the_form_of_the_reward_space() -> None:
    """No earlier step exists, so the reward has the form of the reward space."""
    manager = launched([partial(Steady, step=raise_value_error)], V2, remuda=RESTART)
    (failed,) = manager.step([0])
    assert (failed.reward.shape, failed.reward.dtype) == ((1,), np.float32)
    assert (failed.reward, failed.info.eval_episode_return) == (0.0, 0.0)
    manager.close()


def test_actions_reach_the_envs_of_the_last_ready_obs(tmp_path: Path) -> None:
    """This holds even if another env becomes ready in between. DI-engine would step that env."""
    gate = Gate(tmp_path)
    slow = partial(DriftEnv, length=1, background=lambda env: env.calls["background"] == 1 and gate.wait())
    manager = launched([Steady, slow, Steady], V2)
    manager.step([0, 0, 0])
    seen = manager.ready_obs
    assert len(seen) == 2
    gate.let_pass()
    while manager.ready_obs_id != [0, 1, 2]:
        pass
    assert [int(timestep.env_id) for timestep in manager.step([0, 0])] == [0, 2]
    assert len(manager.ready_obs) == 3
    assert [int(timestep.env_id) for timestep in manager.step([0, 0, 0])] == [0, 1, 2]
    manager.close()


def read_moods(manager: Any) -> None:
    while True:
        assert manager.mood == ["good"] * 3


@pytest.mark.parametrize(
    ("phase", "accident", "use"), [("step", raise_value_error, step_until_it_fails), ("call", kill_myself, read_moods)]
)
def test_too_many_restarts_raise(phase: str, accident: Hook, use: Any) -> None:
    policy = FaultPolicy("restart", max_restarts=1, backoff=0.0)
    manager = launched(one_of_three(**{phase: accident}), remuda={"faults": policy})
    with pytest.raises(RuntimeError, match="max_restarts=1"):
        use(manager)
    assert_closed(manager)


# -- calls -----------------------------------------------------------------------------------------------

CALLS: dict[str, Callable[[Any], Any]] = {
    "attribute": lambda manager: manager.mood,
    "pictures": lambda manager: list(manager.ready_imgs),
    "shaping": lambda manager: len(manager.reward_shaping(1, [{}])),
}
ANSWERS = {"attribute": ["good"] * 3, "pictures": [0, 2], "shaping": 1}


def with_calls(accident: Hook, policy: Any = "restart") -> Any:
    """Returns a manager with three envs. Each call of the middle one calls `accident`."""
    return launched([Steady, partial(Steady, call=accident), Steady], remuda={"faults": policy})


@each(call=CALLS, accident=[None, kill_myself, wait_for_ever])
def test_after_a_death_before_or_in_a_call_the_successor_answers(
    accident: Hook | None, call: str, tmp_path: Path
) -> None:
    """The successor has no picture, because it has not been reset."""
    if accident is None:
        manager = with_calls(lambda _: None)
        os.kill(manager.workers[1].pid, signal.SIGKILL)
    else:
        manager = with_calls(once(tmp_path / "once", accident), FaultPolicy("restart", call_timeout=0.5))
    assert CALLS[call](manager) == ANSWERS[call]
    timesteps = manager.step(ALL)
    assert [timesteps[i].info.get("abnormal", False) for i in range(3)] == [False, True, False]
    assert settled(manager).ready_env == [0, 1, 2]
    assert list(manager.ready_imgs) == [0, 1, 2]
    assert [timestep.info["steps"] for timestep in manager.step(ALL).values()] == [2, 1, 2]
    manager.close()


@pytest.mark.parametrize("call", CALLS)
def test_an_exception_in_a_call_is_raised_without_a_restart(call: str, tmp_path: Path) -> None:
    """The call raises, and the episode continues."""
    manager = with_calls(once(tmp_path / "once", raise_value_error))
    with pytest.raises(ValueError, match="broken") as caught:
        CALLS[call](manager)
    assert isinstance(caught.value.__cause__, EnvError)
    assert [timestep.info["steps"] for timestep in manager.step(ALL).values()] == [1, 1, 1]
    assert CALLS[call](manager) == ([0, 1, 2] if call == "pictures" else ANSWERS[call])
    manager.close()
