"""What vector envs of the Gymnasium and Stable-Baselines3 faces have beyond those libraries: parts, which return the
same as without a split, rollouts, states, and other envs in living workers."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
import sb3_originals
from gymnasium import spaces
from gymnasium.error import AlreadyPendingCallError, ClosedEnvironmentError
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium_face_envs import ResetInfoEnv, SpaceEnv
from gymnasium_originals import compare
from odd_exceptions import raising
from pairs import each
from pool_envs import CountingEnv, counting, hooked
from programs import collect, pids_of
from sb3_originals import TheirSubprocVecEnv
from stable_baselines3.common.vec_env import VecEnv

import remuda
from remuda import Part, Pool, SpaceMismatchError, StateError
from remuda.gymnasium import AsyncVectorEnv
from remuda.sb3 import ClosedError, EnvError, SubprocVecEnv

NESTED = spaces.Dict(z=spaces.Box(0, 1, (2,)), image=spaces.Box(0, 255, (4, 4, 1), np.uint8))

Kind = Callable[..., Any]
CLOSED: dict[Kind, type[Exception]] = {AsyncVectorEnv: ClosedEnvironmentError, SubprocVecEnv: ClosedError}
PENDING: dict[Kind, type[Exception]] = {AsyncVectorEnv: AlreadyPendingCallError, SubprocVecEnv: StateError}
each_face = pytest.mark.parametrize("kind", CLOSED)


def cartpole() -> Any:
    return gymnasium.make("CartPole-v1", max_episode_steps=20)


def nested() -> Any:
    return SpaceEnv(NESTED)


def reset(envs: Any) -> Any:
    """Returns the observations of a reset."""
    first = envs.reset()
    return first[0] if isinstance(first, tuple) else first


# -- results ---------------------------------------------------------------------------------------------


@each(make=[cartpole, nested], mode=AutoresetMode, num_workers__parts=[(1, 2), (2, 2), (None, 3)])
def test_each_part_equals_a_sync_vector_env(
    make: Any, mode: AutoresetMode, num_workers: int | None, parts: int
) -> None:
    with closing(AsyncVectorEnv([make] * 4, autoreset_mode=mode, num_workers=num_workers)) as envs:
        halves = envs.split(parts)
        assert sorted(env_id for half in halves for env_id in half.env_ids) == list(range(4))
        for half in halves:
            seeds = list(range(half.num_envs))
            compare(half, SyncVectorEnv(half.env_fns, autoreset_mode=mode), 30, seed=seeds, masked=0.2)


@each(make=[cartpole, nested, ResetInfoEnv], num_workers__parts=[(1, 2), (2, 2), (None, 3)])
def test_each_part_equals_a_vec_env_of_sb3(make: Any, num_workers: int | None, parts: int) -> None:
    with closing(SubprocVecEnv([make] * 4, num_workers=num_workers)) as envs:
        for half in envs.split(parts):
            assert isinstance(half, VecEnv)
            with closing(TheirSubprocVecEnv([make] * half.num_envs, start_method="fork")) as twin:
                twin.seed = lambda seed: setattr(twin, "_seeds", half.seed(seed))  # type: ignore[method-assign] # noqa: B023
                half.reset()
                twin.reset()
                sb3_originals.compare(half, twin, 30)


def test_a_part_has_a_spec_and_the_factories_of_its_envs() -> None:
    with closing(remuda.make_vec("CartPole-v1", 6, num_workers=2, observation_mode="different")) as envs:
        for half in envs.split():
            assert isinstance(half, VectorEnv)
            assert half.spec is not None
            assert half.spec.kwargs["num_envs"] == 3
            assert half.observation_space == SyncVectorEnv(half.env_fns).observation_space
    with closing(AsyncVectorEnv((cartpole for _ in range(4)), backend="serial")) as envs:  # type: ignore[arg-type]
        assert [half.env_fns for half in envs.split()] == [[cartpole] * 2] * 2


def test_a_part_takes_one_seed_for_each_of_its_envs() -> None:
    with closing(AsyncVectorEnv([cartpole] * 4, num_workers=1, backend="serial")) as envs:
        whole, _ = envs.reset(seed=[5, 6, 7, 8])
        _, second = envs.split()
        for seed in ([7, 8], 5):  # an int is the seed of the first env of the whole
            assert second.reset(seed=seed)[0].tobytes() == whole[2:].tobytes()
        with pytest.raises(ValueError, match="num_envs=2"):
            second.reset(seed=[5, 6, 7, 8])


def test_parts_inherit_the_seeds_and_options_for_the_next_reset() -> None:
    with closing(SubprocVecEnv([ResetInfoEnv] * 4, num_workers=2)) as envs:
        envs.seed(10)
        envs.set_options([{"level": i} for i in range(4)])
        for half in envs.split():
            half.reset()
            assert [(info["seed"], info["options"]) for info in half.reset_infos] == [
                (10 + env_id, {"level": env_id}) for env_id in half.env_ids.tolist()
            ]
            assert half.seed(20) == [20 + env_id for env_id in half.env_ids.tolist()]
            half.reset()
            assert [info["seed"] for info in half.reset_infos] == half.seed(20)
        (whole,) = envs.split(1)
        whole.reset()
        assert [info["seed"] for info in whole.reset_infos] == [None] * 4


def test_each_part_keeps_its_own_options() -> None:
    with closing(SubprocVecEnv([ResetInfoEnv] * 4, keep_options=True, backend="serial")) as envs:
        first, second = envs.split()
        first.set_options([{"level": 1}, {"level": 2}])
        for half in (first, second) * 2:
            half.reset()
        assert [info["options"] for info in first.reset_infos] == [{"level": 1}, {"level": 2}]
        assert [info["options"] for info in second.reset_infos] == [None, None]


@each_face
def test_calls_of_a_part_reach_its_envs_alone(kind: Kind) -> None:
    with closing(kind(counting(4), num_workers=2)) as envs:
        first, second = envs.split()
        assert [worker.env_ids for worker in first.processes] == [(0, 1), (2, 3)]
        assert list(first.get_attr("tag")) == first.env_ids.tolist() == [0, 2]
        first.set_attr("length", 10)
        second.set_attr("length", [20, 30] if kind is AsyncVectorEnv else 20)
        assert list(envs.get_attr("length")) == [10, 20, 10, 30 if kind is AsyncVectorEnv else 20]
        for half in (first, second):
            reset(half)
        second.step_async([5, 6])  # a call on the first part does not wait for the second part
        assert list(first.get_attr("steps")) == [0, 0]
        assert second.step_wait()[1].tolist() == [5, 6]


def test_indices_of_a_part_count_its_own_envs() -> None:
    with closing(SubprocVecEnv(counting(4), num_workers=2, backend="serial")) as vec_env:
        half = vec_env.split()[1]
        assert half.get_attr("tag", indices=[1, 0, -1]) == [3, 1, 3]
        with pytest.raises(IndexError, match="2 envs"):
            half.get_attr("tag", indices=2)


# -- refused calls ---------------------------------------------------------------------------------------


@each_face
def test_a_split_vector_env_refuses_steps_and_resets(kind: Kind) -> None:
    with closing(kind(counting(4), num_workers=2)) as envs:
        reset(envs)
        first, second = envs.split()
        first.step_async([1, 1])
        for refused in (envs.reset, lambda: envs.step([0] * 4)):
            with pytest.raises(StateError, match="split"):
                refused()
        with pytest.raises(PENDING[kind], match="step"):
            envs.split(1)
        assert first.step_wait()[1].tolist() == [1, 1]
        assert envs.split(1) == (envs,)
        assert envs.step([0] * 4)[0][:, 2].tolist() == [2, 1, 2, 1]
        with pytest.raises(StateError, match="split"):
            second.step([0, 0])
        with pytest.raises(ValueError, match=r"whole.split"):
            second.split()
        for half in envs.split():
            half.step_async([1, 1])
        del half, first, second
        gc.collect()
        envs.split(1)  # steps in flight of deleted parts are dropped
        assert envs.step([7] * 4)[1].tolist() == [7] * 4


# -- faults and closing ----------------------------------------------------------------------------------


@each_face
def test_closing_the_vector_env_closes_its_parts(kind: Kind) -> None:
    envs = kind(counting(4), num_workers=2)
    workers, (first, second) = envs.processes, envs.split()
    obs = reset(first)
    reset(second)
    envs.close()
    assert not any(worker.is_alive() for worker in workers)
    for half in (first, second):
        assert half.closed
        for refused in (lambda: half.step([1, 1]), half.step_wait, lambda: half.get_attr("steps")):  # noqa: B023
            with pytest.raises(CLOSED[kind]):
                refused()
        half.close()
    assert obs[:, 0].tolist() == [0, 2]
    with pytest.raises(CLOSED[kind]):
        envs.split()


@pytest.mark.filterwarnings("ignore:.*pending call:UserWarning", "ignore:.*ERROR:UserWarning")
@each_face
def test_closing_a_part_waits_for_its_step_and_leaves_the_others(kind: Kind) -> None:
    with closing(kind(hooked(4, (3,), step=raising(lambda: ValueError("wrong"))), num_workers=2)) as envs:
        first, second = envs.split()
        for half in (first, second):
            reset(half)
            half.step_async([1, 1])
        if kind is AsyncVectorEnv:
            with pytest.raises(ValueError, match="wrong"):
                second.close()
        else:
            second.close()  # logs the exception
        for refused in (second.reset, second.step_wait, lambda: second.step([1, 1]), lambda: second.get_attr("tag")):
            with pytest.raises(CLOSED[kind]):
                refused()
        assert first.step_wait()[1].tolist() == [1, 1]
        envs.split(1)
        assert reset(envs)[:, 0].tolist() == [0, 1, 2, 3]


@each_face
def test_a_part_keeps_its_vector_env_open(kind: Kind) -> None:
    envs = kind(counting(2))
    workers, (first, second) = envs.processes, envs.split()
    del envs
    gc.collect()
    assert reset(first)[:, 0].tolist() == [0]
    del first, second
    collect()
    assert not any(worker.is_alive() for worker in workers)


# -- rollouts, states and other envs ---------------------------------------------------------------------


@each_face
def test_steps_and_turns_fill_a_rollout_of_the_whole_and_of_parts(kind: Kind) -> None:
    with closing(kind(counting(4), num_workers=2)) as envs:
        reset(envs)
        rollout = envs.rollout(3)
        for t in range(1, 4):
            assert np.shares_memory(envs.step(np.ones(4, int))[0], rollout.obs[t])
        rollout = envs.rollout(2)
        for step in rollout:
            step.act(np.full(4, 5))
        assert rollout.obs[:, :, 2].tolist() == [[3] * 4, [4] * 4, [5] * 4]
        assert rollout.rewards.tolist() == [[5] * 4] * 2
        assert envs.step(np.full(4, 7))[0][:, 2:].tolist() == [[6, 7]] * 4
        for half in envs.split(2):
            rollout = half.rollout(2)
            for step in rollout:
                step.act(np.zeros(2, int))
            assert rollout.env_ids.tolist() == half.env_ids.tolist()


@each_face
def test_the_errors_of_rollout_are_those_of_the_face(kind: Kind) -> None:
    envs = kind(counting(2), num_workers=1)
    reset(envs)
    envs.step_async([1, 1])
    with pytest.raises(PENDING[kind]):
        envs.rollout(3)
    envs.step_wait()
    envs.close()
    with pytest.raises(CLOSED[kind]):
        envs.rollout(3)


@each_face
def test_a_face_continues_from_states_that_its_pool_restored(kind: Kind) -> None:
    with closing(kind(counting(4), num_workers=2)) as envs:
        reset(envs)
        envs.step(np.array([5, 5, 5, 5]))
        states = envs.pool.get_state(state_fns="attributes")
        envs.step(np.array([6, 6, 6, 6]))
        assert isinstance(envs.pool, Pool) and envs.pool.set_state(states).obs[:, 2].tolist() == [1] * 4
        assert envs.step(np.array([7, 7, 7, 7]))[0][:, 2].tolist() == [2] * 4
        envs.pool.fork_state(0, [1, 2], state_fns="attributes")
        assert envs.step(np.array([7, 7, 7, 7]))[0][:, 0].tolist() == [0, 0, 0, 3]
        half = envs.split(2)[0]
        assert type(half.pool) is Part and half.pool.num_envs == 2
    with pytest.raises(remuda.ClosedError):
        envs.pool.get_state()


def other(tag: int) -> Callable[[], Any]:
    return partial(CountingEnv, tag)


def fails() -> Any:
    raise KeyError("no such task")


class Narrow(CountingEnv):
    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Box(0, 1, (2,))


@each_face
def test_replaced_envs_must_be_reset_and_keep_workers_and_attributes(kind: Kind) -> None:
    options: Any = {"autoreset_mode": "SameStep"} if kind is AsyncVectorEnv else {}
    envs = kind(counting(3), **options)
    envs.set_attr("level", 3)
    reset(envs)
    envs.step(np.array([1, 1, 1]))
    pids = pids_of(envs.pool)
    envs.replace([2, -3], [other(20), other(10)])
    with pytest.raises(StateError, match="call reset first"):
        envs.step(np.array([1, 1, 1]))
    if kind is AsyncVectorEnv:
        obs, _ = envs.reset(options={"reset_mask": np.array([True, False, True])})
        assert obs[:, :3].tolist() == [[10, 1, 0], [1, 1, 1], [20, 1, 0]]
        assert [env_fn().tag for env_fn in envs.env_fns] == [10, 1, 20]
    else:
        reset(envs)
    assert envs.step(np.array([1, 1, 1]))[0][:, 0].tolist() == [10, 1, 20]
    assert (pids_of(envs.pool), [*envs.get_attr("level")]) == (pids, [3, 3, 3])
    envs.close()
    with pytest.raises(CLOSED[kind]):
        envs.replace([0], [other(1)])


@pytest.mark.parametrize(
    ("kind", "raised", "mismatch"),
    [(AsyncVectorEnv, KeyError, RuntimeError), (SubprocVecEnv, EnvError, SpaceMismatchError)],
)
def test_the_old_envs_stay_if_replace_raises(kind: Kind, raised: Any, mismatch: Any) -> None:
    with closing(kind(counting(2))) as envs:
        reset(envs)
        with warnings.catch_warnings(record=True) as logged, pytest.raises(raised, match="KeyError|no such task"):
            warnings.simplefilter("always")
            envs.replace([0, 1], [other(10), fails])
        assert logged or kind is SubprocVecEnv
        assert not any("Shutting it down" in str(one.message) for one in logged)
        with pytest.raises(mismatch, match="expected every observation space"):
            envs.replace([1], [Narrow])
        with pytest.raises(IndexError, match="expected indices of 2 envs, got 2"):
            envs.replace([2], [other(10)])
        envs.step_async(np.array([1, 1]))
        with pytest.raises(PENDING[kind]):
            envs.replace([1], [other(10)])
        assert envs.step_wait()[0][:, :3].tolist() == [[0, 1, 1], [1, 1, 1]]


@each_face
def test_a_part_replaces_its_own_envs(kind: Kind) -> None:
    with closing(kind(counting(4), num_workers=2)) as envs:
        for half in envs.split(2):
            reset(half)
        half.replace([1], [other(10)])
        reset(half)
        assert half.get_attr("tag")[1] == envs.get_attr("tag")[half.env_ids[1]] == 10
