"""Parts of split vector envs of the Gymnasium and Stable-Baselines3 faces return the same as without a split."""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import closing
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.error import AlreadyPendingCallError, ClosedEnvironmentError
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium_face_envs import SpaceEnv
from odd_exceptions import raising
from pairs import each
from pool_envs import assert_same, counting, hooked
from programs import collect
from sb3_face_envs import ResetInfoEnv
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv

import remuda
from remuda import StateError
from remuda.gymnasium import AsyncVectorEnv
from remuda.sb3 import ClosedError, EnvError, SubprocVecEnv

SEED = 3
NESTED = spaces.Dict(z=spaces.Box(0, 1, (2,)), image=spaces.Box(0, 255, (4, 4, 1), np.uint8))

Kind = Callable[..., Any]
CLOSED: dict[Kind, type[Exception]] = {AsyncVectorEnv: ClosedEnvironmentError, SubprocVecEnv: ClosedError}
PENDING: dict[Kind, type[Exception]] = {AsyncVectorEnv: AlreadyPendingCallError, SubprocVecEnv: StateError}
RAISED: dict[Kind, type[Exception]] = {AsyncVectorEnv: ValueError, SubprocVecEnv: EnvError}
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
def test_parts_stepped_in_turn_equal_sync_vector_envs(
    make: Any, mode: AutoresetMode, num_workers: int | None, parts: int
) -> None:
    with closing(AsyncVectorEnv([make] * 4, autoreset_mode=mode, num_workers=num_workers)) as envs:
        halves = envs.split(parts)
        assert sorted(env_id for half in halves for env_id in half.env_ids) == list(range(4))
        twins = [SyncVectorEnv(half.env_fns, autoreset_mode=mode) for half in halves]
        for half, twin in zip(halves, twins, strict=True):
            for name in ("observation_space", "action_space", "single_observation_space", "single_action_space"):
                assert getattr(half, name) == getattr(twin, name), name
            for name in ("num_envs", "metadata", "render_mode"):
                assert getattr(half, name) == getattr(twin, name), name
            assert_same(half.reset(seed=SEED), twin.reset(seed=[SEED + i for i in half.env_ids.tolist()]), "reset")
            half.step_async(np.ones(half.num_envs, np.int64))
        for i in range(30):
            for half, twin in zip(halves, twins, strict=True):
                step = half.step_wait()
                assert half.observations is step[0]
                assert_same(step, twin.step(np.ones(half.num_envs, np.int64)), f"step {i}")
                done = step[2] | step[3]
                if mode is AutoresetMode.DISABLED and done.any():
                    mask = {"reset_mask": done}
                    assert_same(half.reset(options=mask), twin.reset(options=dict(mask)), f"reset at {i}")
                half.step_async(np.ones(half.num_envs, np.int64))


@each(make=[cartpole, nested, ResetInfoEnv], num_workers__parts=[(1, 2), (2, 2), (None, 3)])
def test_parts_stepped_in_turn_equal_dummy_vec_envs(make: Any, num_workers: int | None, parts: int) -> None:
    def plain(obs: Any) -> Any:
        return dict(obs) if isinstance(obs, dict) else obs  # SB3's DummyVecEnv returns an OrderedDict

    with closing(SubprocVecEnv([make] * 4, num_workers=num_workers)) as envs:
        envs.seed(SEED)
        halves = envs.split(parts)  # the parts inherit the seeds
        twins = [DummyVecEnv([make] * half.num_envs) for half in halves]
        for half, twin in zip(halves, twins, strict=True):
            assert isinstance(half, VecEnv)
            twin._seeds = [SEED + env_id for env_id in half.env_ids.tolist()]
            for name in ("num_envs", "observation_space", "action_space", "render_mode"):
                assert getattr(half, name) == getattr(twin, name), name
            assert_same(half.reset(), plain(twin.reset()), "reset")
            assert list(half.reset_infos) == list(twin.reset_infos)
            half.step_async(np.ones(half.num_envs, np.int64))
        for i in range(30):
            for half, twin in zip(halves, twins, strict=True):
                obs, rewards, dones, infos = half.step_wait()
                their_obs, _, their_dones, their_infos = twin.step(np.ones(half.num_envs, np.int64))
                assert_same((obs, dones, list(infos)), (plain(their_obs), their_dones, their_infos), f"step {i}")
                assert rewards.shape == dones.shape
                half.step_async(np.ones(half.num_envs, np.int64))


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
        assert second.reset(seed=[7, 8])[0].tobytes() == whole[2:].tobytes()
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
        for wrong in (0, 5, True, "2"):
            with pytest.raises(ValueError, match="from 1 to 4"):
                envs.split(wrong)
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
