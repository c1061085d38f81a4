"""DI-engine's managers and ours return the same results for the same seeds and actions."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import numpy as np
import pytest
from ding_face_envs import (
    ODDITIES,
    PAIRS,
    REWARDS,
    SPACES,
    DriftEnv,
    EnvState,
    GlobalEnv,
    close,
    launched,
    settled,
    unlaunched,
)
from pairs import each
from pool_envs import assert_same

pytestmark = pytest.mark.filterwarnings("ignore")

SYNC = PAIRS["SyncSubprocessEnvManager"]
ASYNC = PAIRS["AsyncSubprocessEnvManager"]
V2 = PAIRS["SubprocessEnvManagerV2"]
RETURNED = [name for name in ODDITIES if name != "an info that is invalid"]


def play(manager_cls: Any, env_fns: Any, rounds: int = 12, as_list: bool = True, **changes: Any) -> list[Any]:
    """Runs a manager and returns all that a program can observe of the run.

    Args:
        as_list: Whether SubprocessEnvManagerV2 gets its actions in a list; otherwise in one array.
    """
    import treetensor.numpy as tnp

    manager = unlaunched(env_fns, manager_cls, **changes)
    manager.seed(11)
    manager.launch()
    seen: list[Any] = [dict(manager._env_states)]
    for n in range(rounds):
        settled(manager)
        if manager.done:
            break
        obs = manager.ready_obs
        ids = manager.ready_obs_id if manager_cls in V2 else list(obs)
        actions: Any = {i: np.array([n, i]) for i in ids}
        if manager_cls in V2:
            actions = list(actions.values()) if as_list else tnp.array(np.stack(list(actions.values())))
        timesteps = manager.step(actions)
        settled(manager)
        states = dict(manager._env_states), manager._env_episode_count, manager.ready_obs_id
        seen.append([_plain(obs), ids, _plain(timesteps), *states])
        if to_reset := [i for i, state in manager._env_states.items() if state == EnvState.NEED_RESET]:
            manager.reset(dict.fromkeys(to_reset))
    seen += [manager.done, manager.closed, manager.resets, manager.seeds]
    close(manager)
    return [*seen, manager._env_states, manager.closed]


def _plain(value: Any) -> Any:
    """Returns tree tensors, also in a list, as dicts."""
    if isinstance(value, list):
        return [_plain(each) for each in value]
    is_tree = hasattr(value, "items") and type(value) is not dict
    return {key: _plain(each) for key, each in value.items()} if is_tree else value


def assert_alike(pair: Any, env_fns: Any, **changes: Any) -> None:
    ours, originals = (play(manager_cls, env_fns, **changes) for manager_cls in pair)
    assert_same(ours, originals)


@each(
    kind=[
        *({"space": space, "wide": True} for space in SPACES),
        *({"reward": reward} for reward in REWARDS),
        *({"oddity": oddity} for oddity in RETURNED),
    ],
    changes=[{}, {"reset_inplace": True}],
)
def test_timesteps_of_each_kind_equal_those_of_ding(kind: dict[str, Any], changes: dict[str, Any]) -> None:
    for shared_memory in (True, False):
        assert_alike(SYNC, [partial(DriftEnv, **kind)] * 2, rounds=6, shared_memory=shared_memory, **changes)


def test_the_parts_of_an_observation_keep_their_order() -> None:
    for manager_cls in SYNC:
        manager = launched([partial(DriftEnv, "dict")], manager_cls)
        assert list(manager.ready_obs[0]) == list(SPACES["dict"].spaces)
        assert list(manager.step({0: 0})[0].obs) == list(SPACES["dict"].spaces)
        close(manager)


ACTIONS: dict[str, Any] = {
    "of no axis": np.array(2),
    "of one axis": np.array([1], np.int32),
    "empty": np.zeros((0, 2), np.float32),
    "floats": np.linspace(0, 1, 6, dtype=np.float16).reshape(2, 3),
    "columns first": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "many": np.arange(1000),
    "bytes in the other order": np.arange(3, dtype=">i4"),
    "texts": np.array(["left", "right"]),
    "flag": np.array(True),
    "scalar": np.float32(1.5),
    "dict": {"move": np.array([1.0]), "fire": True},
    "nothing": None,
}


@pytest.mark.parametrize("action", ACTIONS.values(), ids=ACTIONS)
def test_actions_arrive_as_they_were_sent(action: Any) -> None:
    """The env returns its action in the info."""
    manager = launched([DriftEnv] * 2)
    got = [timestep.info["action"] for timestep in manager.step({0: action, 1: action}).values()]
    assert_same(got, [action, action])
    close(manager)


def test_an_env_may_write_to_its_action() -> None:
    manager = launched([WritingEnv])
    action = np.array([5])
    assert manager.step({0: action})[0].info["action"].tolist() == [6]
    assert action.tolist() == [5]
    close(manager)


class WritingEnv(DriftEnv):
    def step(self, action: Any) -> Any:
        action += 1
        return super().step(action)


@pytest.mark.parametrize("num_workers", [None, 1, 2])
def test_each_env_has_global_random_numbers_of_its_own(num_workers: int | None) -> None:
    """A run is the same for any number of workers, and equal to DI-engine's."""
    ours, originals = (
        play(manager_cls, [GlobalEnv] * 3, reset_inplace=True, **more)
        for manager_cls, more in zip(SYNC, ({"remuda": {"num_workers": num_workers}}, {}), strict=True)
    )
    assert_same(ours, originals)


def test_unseeded_envs_of_one_worker_draw_different_numbers() -> None:
    """DI-engine's envs all draw the same numbers, because they are forked from one process."""
    manager = launched([GlobalEnv] * 3, remuda={"num_workers": 1})
    assert len({timestep.reward for timestep in manager.step({0: 0, 1: 0, 2: 0}).values()}) == 3
    close(manager)


@each(changes=[{}, {"reset_inplace": True}, {"auto_reset": False}], episode_num=[2, float("inf")])
def test_resets_equal_those_of_ding(changes: dict[str, Any], episode_num: float) -> None:
    assert_alike(SYNC, [DriftEnv] * 3, episode_num=episode_num, **changes)


def test_observations_that_are_not_copied_are_never_overwritten() -> None:
    """DI-engine's observations are overwritten by the next step."""
    changes = {"env_fns": [partial(DriftEnv, "dict")] * 2, "reset_inplace": True}
    assert_same(play(SYNC[0], **changes, copy_on_get=False), play(SYNC[1], **changes))


@pytest.mark.parametrize("episode_num", [2, float("inf")])
def test_an_async_manager_that_waits_for_all_equals_that_of_ding(episode_num: float) -> None:
    assert_alike(ASYNC, [DriftEnv] * 3, episode_num=episode_num, wait_num=3, step_wait_timeout=None)


@pytest.mark.parametrize(
    ("space", "as_list", "changes"),
    [
        ("box", True, {}),
        ("dict", False, {}),
        *(("box", True, {"oddity": name}) for name in RETURNED if "class" not in name),
    ],
)
def test_the_v2_manager_equals_that_of_ding(space: str, as_list: bool, changes: dict[str, Any]) -> None:
    env_fns = [partial(DriftEnv, space, **changes)] * 3
    assert_alike(V2, env_fns, rounds=8, as_list=as_list, reset_inplace=bool(changes))


@pytest.mark.parametrize("shared_memory", [True, False])
def test_an_abnormal_step_ends_the_episode_of_its_env_alone(shared_memory: bool) -> None:
    """An abnormal step ends the episode of its env alone, and a reset recovers that env."""
    seen = []
    for manager_cls in SYNC:
        manager = unlaunched([DriftEnv] * 3, manager_cls, shared_memory=shared_memory)
        manager.seed([3, 4, 5])
        manager.launch()
        first = manager.step({0: "spoil", 1: 1, 2: 2})
        states = dict(manager._env_states)
        ready = manager.ready_obs
        manager.reset({0: None})
        seen.append([first, states, ready, manager._env_states, manager.ready_obs, manager._env_episode_count])
        close(manager)
    assert_same(*seen)
    assert seen[0][1][0] == EnvState.ERROR


def test_the_default_config_is_that_of_ding() -> None:
    for ours, original in PAIRS.values():
        defaults = ours.default_config()
        assert defaults.pop("remuda") == {}
        assert defaults == original.default_config()


@each(seed=[3, [5, 6, 7], {0: 1, 2: 9}], dynamic_seed=[None, True, False])
def test_seeds_are_used_once_as_in_ding(seed: Any, dynamic_seed: bool | None) -> None:
    seen = []
    for manager_cls in reversed(SYNC):  # DI-engine changes the caller's list
        manager, given = unlaunched([DriftEnv] * 3, manager_cls), copy.copy(seed)
        manager.seed(given, dynamic_seed)
        manager.launch()
        manager.reset()
        seen.append([manager.seeds, sorted(dict(enumerate(manager._env_seed))), manager.ready_obs])
        close(manager)
    assert given == seed
    assert_same(*seen)


def test_reset_params_are_remembered() -> None:
    seen = []
    for manager_cls in SYNC:
        manager = unlaunched([DriftEnv] * 2, manager_cls)
        manager.launch({0: {"level": 1}, 1: None})
        manager.reset()
        manager.reset({1: {"level": 2}})
        while not any(timestep.done for timestep in manager.step({0: 0, 1: 0}).values()):
            pass
        seen.append([sorted(map(str, resets)) for resets in settled(manager).resets])
        close(manager)
    assert_same(*seen)
