"""Managers of the DI-engine face: construction, options, order of steps, calls, pictures and registered names."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from ding_face_envs import PAIRS, DriftEnv, EnvState, close, config, ding_envs, launched, ours, settled
from easydict import EasyDict
from odd_exceptions import raising
from pool_envs import Gate

pytestmark = pytest.mark.filterwarnings("ignore")

MANAGERS = [ours.AsyncSubprocessEnvManager, ours.SyncSubprocessEnvManager, ours.SubprocessEnvManagerV2]
ASYNC = MANAGERS[0]


@pytest.fixture
def manager() -> Any:
    manager = launched([DriftEnv] * 3)
    yield manager
    manager.close()


# -- construction ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("manager_cls", MANAGERS)
def test_nothing_is_started_before_launch(manager_cls: Any) -> None:
    manager = manager_cls([DriftEnv] * 2, config(manager_cls, max_retry=0))
    assert isinstance(manager, ding_envs.BaseEnvManager)
    assert isinstance(manager, ding_envs.BaseEnvManagerV2) == (manager_cls is MANAGERS[2])
    assert manager.closed and manager.env_num == 2 and isinstance(manager.env_ref, DriftEnv)
    assert set(manager._env_states.values()) == {EnvState.VOID}
    assert manager._max_retry == 1
    assert manager.observation_space is manager.env_ref.observation_space
    manager.close()


@pytest.mark.parametrize("cfg", [None, {}, EasyDict({}), EasyDict(episode_num=4)], ids=repr)
def test_a_config_is_completed_with_the_defaults(cfg: Any) -> None:
    """DI-engine requires a config that is already merged with the defaults."""
    manager = ours.AsyncSubprocessEnvManager([DriftEnv], cfg)
    assert manager._wait_num == 2
    assert manager._episode_num == (4 if cfg else float("inf"))


@pytest.mark.parametrize("changes", [{"retry_type": "again"}, {"reset_inplace": True, "auto_reset": False}], ids=repr)
def test_an_invalid_config_is_refused(changes: Any) -> None:
    for manager_cls in PAIRS["SyncSubprocessEnvManager"]:
        with pytest.raises(AssertionError):
            manager_cls([DriftEnv], config(manager_cls, **changes))


@pytest.mark.parametrize(
    ("env_fns", "cfg", "error", "message"),
    [
        ([DriftEnv], {"remuda": ["num_workers"]}, TypeError, "expected cfg.remuda to be a dict"),
        ([DriftEnv], {"reset_timeout": "soon"}, TypeError, r"cfg\.reset_timeout to be .* seconds .*, got 'soon'"),
        ([DriftEnv], {"step_timeout": -1}, ValueError, r"expected cfg\.step_timeout to be .*, at least 0, got -1"),
        ([DriftEnv], {"reset_timeout": -1}, ValueError, r"expected cfg\.reset_timeout to be .*, at least 0, got -1"),
        ([DriftEnv], {"retry_waiting_time": None}, TypeError, r"expected cfg\.retry_waiting_time .*, got None"),
        ([DriftEnv], {"max_retry": None}, TypeError, r"expected cfg\.max_retry to be an int, got None"),
        ([DriftEnv], {"wait_num": None}, TypeError, r"expected cfg\.wait_num to be a number, got None"),
        *((wrong, {}, TypeError, r"expected env_fn.* to be .*; write \[") for wrong in ("pong", DriftEnv, ["pong"])),
    ],
    ids=str,
)
def test_invalid_options_and_env_fns_are_refused_by_the_constructor(
    env_fns: Any, cfg: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        ours.SyncSubprocessEnvManager(env_fns, cfg)


def test_an_invalid_context_is_refused_by_launch() -> None:
    with pytest.raises(ValueError, match="expected context to be one of .*, got 'clone'"):
        launched([DriftEnv], context="clone")


def test_a_reset_param_that_is_no_dict_starts_no_workers() -> None:
    manager = ASYNC([DriftEnv] * 2)
    with pytest.raises(AssertionError, match="int"):
        manager.launch({0: 5, 1: None})
    assert manager.closed and not manager.workers


@pytest.mark.parametrize("backend", ["process", "thread"])
def test_an_infinite_timeout_is_no_limit(backend: str) -> None:
    endless = dict.fromkeys(("step_timeout", "reset_timeout", "connect_timeout", "step_wait_timeout"), float("inf"))
    manager = launched([DriftEnv] * 2, ASYNC, remuda={"backend": backend}, **endless)
    assert len(manager.step({0: 0, 1: 0})) == 2
    manager.close()


@pytest.mark.parametrize(
    ("options", "processes"),
    [
        ({"context": "fork"}, 4),
        ({"context": "forkserver"}, 4),
        ({"remuda": {"num_workers": 1}}, 2),
        ({"remuda": {"backend": "thread"}}, 1),
        ({"remuda": {"backend": "serial"}}, 1),
    ],
    ids=str,
)
def test_envs_run_in_the_processes_of_the_chosen_workers(options: Any, processes: int) -> None:
    manager = launched([DriftEnv] * 3, **options)
    assert len({os.getpid(), *manager.pid}) == processes
    assert list(manager.step({0: 1, 2: 1})) == [0, 2]
    manager.close()


class Particular(DriftEnv):
    """Needs a reset parameter and has its own `random_action`. Writes its reset param, seeds and action to `log`."""

    def __init__(self, log: Path) -> None:
        super().__init__()
        self.action_space = None
        self._log = log

    def random_action(self) -> Any:
        return 7

    def reset(self, *, level: int) -> Any:
        return super().reset(level=level)

    def step(self, action: Any) -> Any:
        with self._log.open("a") as log:
            log.write(f"{self.resets[0]} {self.seeds} {action}\n")
        return super().step("spoil" if self.steps == 1 else action)


def test_num_workers_auto_measures_envs_as_the_manager_runs_them(tmp_path: Path) -> None:
    """The trial uses the manager's seeds, reset params and actions."""
    log = tmp_path / "log"
    manager = ours.SyncSubprocessEnvManager([partial(Particular, log)] * 3, {"remuda": {"num_workers": "auto"}})
    manager.seed(5, True)
    manager.launch({0: {"level": 1}, 1: {"level": 2}, 2: {"level": 2}})
    assert 1 <= len(manager.workers) <= 3
    manager.close()
    steps = log.read_text().splitlines()
    assert steps[0] == "{'level': 1} [(5, True)] 7"
    assert all(step.startswith("{'level': 1} [(5, True)") and step.endswith(" 7") for step in steps)
    assert len(steps) >= 10  # steps after abnormal ones show that the trial reset the env


# -- steps -----------------------------------------------------------------------------------------------


def test_timesteps_come_in_the_order_of_the_actions(manager: Any) -> None:
    assert list(manager.step({2: 0, 0: 0})) == [2, 0]
    assert [manager.steps[i] for i in range(3)] == [1, 0, 1]


def test_an_env_that_does_not_run_is_not_stepped(manager: Any) -> None:
    manager.step({0: "spoil"})
    with pytest.raises(AssertionError, match="current env state are"):
        manager.step({0: 0, 1: 0})
    assert list(manager.step({1: 0})) == [1]


@pytest.mark.parametrize("manager_cls", MANAGERS)
def test_an_unknown_env_id_raises_a_key_error_as_in_ding_and_changes_nothing(manager_cls: Any) -> None:
    manager = launched([DriftEnv] * 3, manager_cls)
    for call in (
        lambda: manager.reset({0: None, 7: {}}),
        lambda: manager.reward_shaping(7, []),
        lambda: manager.enable_save_figure(-1, "there"),
    ):
        with pytest.raises(KeyError, match=r"from 0 to 2, got \[(7|-1)\]"):
            call()
    if manager_cls is not MANAGERS[2]:
        with pytest.raises(KeyError):
            manager.step({7: 0})
    if manager_cls is ASYNC:
        with pytest.raises(AssertionError):
            manager.step({})
    else:
        assert not manager.step([] if manager_cls is MANAGERS[2] else {})
    assert manager.ready_obs_id == [0, 1, 2]
    assert manager.resets == [[{}]] * 3
    manager.close()
    with pytest.raises(KeyError, match=r"got \[3\]"):
        manager.launch({0: None, 1: None, 3: None})
    assert manager.closed


def gated(steps: int, gate: Gate, length: int = 9) -> Callable[[], Any]:
    """Returns a factory of an env that waits at the gate in its first steps."""
    return partial(DriftEnv, length=length, step=lambda env: gate.wait() if env.calls["step"] <= steps else None)


@pytest.mark.parametrize("manager_cls", PAIRS["AsyncSubprocessEnvManager"])
def test_an_async_step_does_not_wait_for_slow_envs(manager_cls: Any, tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    manager = launched([gated(1, gate), DriftEnv, DriftEnv], manager_cls, wait_num=2, step_wait_timeout=0.001)
    assert set(manager.step({0: 0, 1: 0, 2: 0})) == {1, 2}
    assert (manager.ready_env, manager.ready_obs_id) == ([1, 2], [0, 1, 2])
    assert set(manager.ready_obs) == {1, 2}
    gate.let_pass()
    late: dict[int, Any] = {}
    while 0 not in late:
        late.update(manager.step({1: 0}) if manager._env_states[1] == EnvState.RUN else {})
        manager.ready_obs  # noqa: B018  # completes a reset that has finished
    assert late[0].info["steps"] == 1
    assert 0 in manager.ready_env
    close(manager)


@pytest.mark.parametrize("manager_cls", PAIRS["AsyncSubprocessEnvManager"])
def test_actions_for_an_env_that_still_steps_are_queued(manager_cls: Any, tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    manager = launched([gated(2, gate), partial(DriftEnv, length=9)], manager_cls, wait_num=1)
    for action in "ab":
        assert set(manager.step({0: action, 1: 0})) == {1}
    assert set(manager.random_action()) == {0, 1}
    for action, arrives in ("ca", "db"):
        gate.let_pass()
        assert manager.step({0: action})[0].info["action"] == arrives
    close(manager)


def first_timestep(manager: Any, env_id: int, actions: dict[int, Any]) -> Any:
    """Steps with these actions until the env has a timestep, and returns it."""
    timesteps: dict[int, Any] = {}
    while env_id not in timesteps:
        timesteps = manager.step(actions)
    return timesteps[env_id]


@pytest.mark.parametrize(("inplace", "then"), [(False, "new"), (True, "queued")])
def test_the_end_of_an_episode_drops_queued_actions(inplace: bool, then: str, tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    manager = launched(
        [gated(1, gate, length=1), partial(DriftEnv, length=1000)], ASYNC, wait_num=1, reset_inplace=inplace
    )
    for action in ("last", "queued"):
        assert set(manager.step({0: action, 1: 0})) == {1}
    gate.let_pass()
    end = first_timestep(manager, 0, {1: 0})
    assert end.done and end.info["action"] == "last"
    settled(manager)
    assert first_timestep(manager, 0, {0: "new"}).info["action"] == then
    manager.close()


def test_a_reset_drops_the_step_in_flight(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    manager = launched([gated(1, gate), DriftEnv], ASYNC, wait_num=1, step_wait_timeout=0.001)
    assert set(manager.step({0: "dropped", 1: 0})) == {1}
    gate.let_pass()
    manager.reset({0: None})
    assert 0 in manager.ready_env
    assert manager.step({0: "taken"})[0].info["action"] == "taken"
    manager.close()


def test_async_steps_lose_and_repeat_nothing() -> None:
    manager = launched([DriftEnv] * 4, ASYNC, episode_num=3)
    ends: Counter[int] = Counter()
    steps: Counter[int] = Counter()
    while not manager.done:
        for env_id, timestep in manager.step(dict.fromkeys(manager.ready_obs, 0)).items():
            steps[env_id] += 1
            assert timestep.info["steps"] == steps[env_id]
            if timestep.done:
                ends[env_id] += 1
                steps[env_id] = 0
    assert ends == dict.fromkeys(range(4), 3)
    assert manager.ready_obs == {}
    assert all(manager.env_state_done(i) for i in range(4))
    manager.close()


# -- calls -----------------------------------------------------------------------------------------------


def test_an_attribute_is_read_from_all_envs(manager: Any) -> None:
    assert len(set(manager.pid)) == 3
    with pytest.raises(AttributeError, match="doesn't have the attribute `colour`"):
        _ = manager.colour
    with pytest.raises(RuntimeError, match="method_name_list"):
        _ = manager.method
    manager.close()
    for ask in (lambda: manager.pid, lambda: manager.ready_obs, lambda: manager.ready_imgs):
        with pytest.raises(AssertionError, match="closed"):
            ask()


def test_a_manager_can_be_copied_before_launch() -> None:
    manager = ours.SyncSubprocessEnvManager([DriftEnv] * 2)
    for twin in (copy.copy(manager), copy.deepcopy(manager)):
        assert twin.env_num == 2


def test_calls_reach_one_env_and_pictures_come_from_each(manager: Any) -> None:
    assert manager.reward_shaping(1, [{"a": 1}]) == [{"a": 1, "shaped": manager.pid[1]}]
    manager.enable_save_figure(2, "there")
    assert manager.replays == [[], [], ["figure there"]]
    images = manager.ready_imgs
    assert list(images) == [0, 1, 2]
    assert all(image.shape == (2, 2, 3) for image in images.values())


@pytest.mark.parametrize("path", ["here", ["a", "b"]])
def test_replays_requested_before_launch_are_saved(path: Any) -> None:
    manager = ours.SyncSubprocessEnvManager([DriftEnv] * 2)
    manager.enable_save_replay(path)
    manager.launch()
    assert manager.replays == ([["here"], ["here"]] if path == "here" else [["a"], ["b"]])
    manager.close()


def test_ready_imgs_raises_if_envs_cannot_render() -> None:
    manager = launched([partial(DriftEnv, call=raising(lambda: AttributeError("no `_env`")))] * 2)
    with pytest.raises(AttributeError, match="ready_imgs.*log"):
        _ = manager.ready_imgs
    assert manager.closed


# -- names -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", MANAGERS)
def test_configs_select_our_managers_by_name(kind: type) -> None:
    names = ("remuda_async_subprocess", "remuda_subprocess", "remuda_subprocess_v2")
    cfg = EasyDict(type=names[MANAGERS.index(kind)], episode_num=3, import_names=["remuda.ding"])
    assert ding_envs.get_env_manager_cls(cfg) is kind
    manager = ding_envs.create_env_manager(cfg, [DriftEnv] * 2)
    assert type(manager) is kind
    assert manager._episode_num == 3


def test_install_replaces_the_managers_of_ding() -> None:
    script = (
        "from easydict import EasyDict\n"
        "import ding.envs, ding.envs.env_manager.subprocess_env_manager as module, remuda.ding as ours\n"
        "before = ding.envs.SyncSubprocessEnvManager\n"
        "ours.install()\n"
        "ours.install()\n"
        "for name in ours.__all__[:3]:\n"
        "    assert getattr(ding.envs, name) is getattr(module, name) is getattr(ours, name), name\n"
        "for name in ('async_subprocess', 'subprocess', 'subprocess_v2'):\n"
        "    assert ding.envs.get_env_manager_cls(EasyDict(type=name)).__module__.startswith('remuda.'), name\n"
        "assert ding.envs.BaseEnvManager is not before\n"
        "print('installed')\n"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "installed", done.stderr
