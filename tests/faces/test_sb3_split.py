"""Parts of a split vector env are vector envs, and their envs return the same as without the split."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium_face_envs import EchoEnv, SpaceEnv, faulty
from pairs import each
from pool_envs import assert_same
from sb3_face_envs import ResetInfoEnv, cartpoles
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecFrameStack, VecMonitor, VecNormalize

from remuda import StateError
from remuda.sb3 import ClosedError, EnvError, SubprocVecEnv

SEED = 3
NESTED = spaces.Dict(z=spaces.Box(0, 1, (2,)), image=spaces.Box(0, 255, (4, 4, 1), np.uint8))


def short_cartpole() -> Any:
    return gymnasium.make("CartPole-v1", max_episode_steps=20)


def nested() -> Any:
    return SpaceEnv(NESTED)


def plain(obs: Any) -> Any:
    """Returns a dict for an OrderedDict: SB3's DummyVecEnv returns an OrderedDict."""
    return dict(obs) if isinstance(obs, dict) else obs


@each(make=[short_cartpole, nested, ResetInfoEnv], num_workers__parts=[(1, 2), (2, 2), (None, 3)])
def test_parts_stepped_in_turn_equal_dummy_vec_envs(make: Any, num_workers: int | None, parts: int) -> None:
    env_fns = [make] * 7
    with closing(SubprocVecEnv(env_fns, num_workers=num_workers)) as envs:
        envs.seed(SEED)
        halves = envs.split(parts)  # the parts inherit the seeds
        twins = []
        for half in halves:
            twin = DummyVecEnv([make] * half.num_envs)
            twin._seeds = [SEED + env_id for env_id in half.env_ids.tolist()]
            twins.append(twin)
            for name in ("num_envs", "observation_space", "action_space", "render_mode"):
                assert getattr(half, name) == getattr(twin, name), name
            assert_same(half.reset(), plain(twin.reset()), "reset")
            assert list(half.reset_infos) == list(twin.reset_infos)
            half.step_async(np.ones(half.num_envs, np.int64))
        for i in range(60):
            for half, twin in zip(halves, twins, strict=True):
                obs, rewards, dones, infos = half.step_wait()
                their_obs, _, their_dones, their_infos = twin.step(np.ones(half.num_envs, np.int64))
                assert_same(obs, plain(their_obs), f"step {i}")
                assert_same((dones, list(infos)), (their_dones, their_infos), f"step {i}")
                assert rewards.shape == dones.shape
                half.step_async(np.ones(half.num_envs, np.int64))


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
    with closing(SubprocVecEnv([ResetInfoEnv] * 4, num_workers=2, keep_options=True)) as envs:
        first, second = envs.split()
        first.set_options([{"level": 1}, {"level": 2}])
        for half in (first, second):
            for _ in range(2):
                half.reset()
        assert [info["options"] for info in first.reset_infos] == [{"level": 1}, {"level": 2}]
        assert [info["options"] for info in second.reset_infos] == [None, None]


@pytest.fixture
def one_thread() -> Iterator[None]:
    """With other work on the machine, several threads of PyTorch mostly wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("one_thread")
def test_evaluate_policy_and_learning_on_a_part() -> None:
    envs = make_vec_env(
        "CartPole-v1",
        n_envs=4,
        seed=0,
        env_kwargs={"max_episode_steps": 8},
        vec_env_cls=SubprocVecEnv,  # type: ignore[arg-type]
        vec_env_kwargs={"num_workers": 2},
    )
    with closing(envs):
        first, second = envs.split()  # type: ignore[attr-defined]
        model = PPO("MlpPolicy", first, n_steps=8, batch_size=16, n_epochs=1, seed=0, device="cpu").learn(16)
        assert model.num_timesteps == 16
        rewards, lengths = evaluate_policy(model, second, n_eval_episodes=2, return_episode_rewards=True)
        assert [float(length) for length in lengths] == rewards  # the reward of each step is 1
        assert all(0 < length <= 8 for length in lengths)


@pytest.mark.parametrize("wrap", [VecMonitor, VecNormalize, lambda envs: VecFrameStack(envs, 3)])
def test_wrappers_accept_a_part(wrap: Any) -> None:
    with closing(SubprocVecEnv(cartpoles(4), num_workers=2)) as envs:
        for half in envs.split():
            assert isinstance(half, VecEnv)
            twin = DummyVecEnv(list(cartpoles(2)))
            half.seed(SEED)
            twin._seeds = [SEED + env_id for env_id in half.env_ids.tolist()]
            ours, reference = wrap(half), wrap(twin)
            assert_same(ours.reset(), reference.reset(), "reset")
            for _ in range(30):
                (obs, _, dones, _), (their_obs, _, their_dones, _) = (
                    one.step(np.ones(2, int)) for one in (ours, reference)
                )
                assert_same((obs, dones), (their_obs, their_dones), "step")


def test_calls_of_a_part_reach_its_envs_alone() -> None:
    with closing(SubprocVecEnv([EchoEnv] * 4, num_workers=2)) as envs:
        first, second = envs.split()
        for half in (first, second):
            half.reset()
        first.set_attr("steps", 10)
        second.set_attr("steps", 20, indices=-1)
        assert envs.get_attr("steps") == [10, 0, 10, 20]
        assert second.get_attr("steps", indices=[1, 0, 1]) == [20, 0, 20]
        assert first.env_method("add", 1, right=2, indices=0) == ["3"]
        with pytest.raises(IndexError, match="2 envs"):
            first.get_attr("steps", indices=2)


# -- refused calls -----------------------------------------------------------------------------------------


def test_a_split_vector_env_refuses_steps_and_resets() -> None:
    with closing(SubprocVecEnv([EchoEnv] * 4, num_workers=2)) as envs:
        envs.reset()
        first, second = envs.split()
        for refused in (envs.reset, lambda: envs.step(np.zeros(4, int))):
            with pytest.raises(StateError, match="split"):
                refused()
        first.step_async(np.zeros(2, int))
        with pytest.raises(StateError, match="split"):  # refused while a part has a step in flight, too
            envs.reset()
        with pytest.raises(StateError, match="under way"):
            envs.split(1)
        assert first.step_wait()[1].tolist() == [1.0, 1.0]
        envs.split(1)
        assert envs.step(np.zeros(4, int))[1].tolist() == [2.0, 1.0, 2.0, 1.0]
        with pytest.raises(StateError, match="split"):
            second.reset()
        with pytest.raises(ValueError, match="from 1 to 4"):
            envs.split(5)
        with pytest.raises(ValueError, match=r"whole.split"):
            second.split()


# -- faults and closing ------------------------------------------------------------------------------------


def test_an_exception_is_raised_by_the_part_of_its_env() -> None:
    with closing(SubprocVecEnv(faulty("step", "plain", 4, which=(3,)), num_workers=2)) as envs:
        first, second = envs.split()
        for half in (second, first):
            half.reset()
        for half in (second, first):
            half.step_async(np.zeros(2, int))
        assert first.step_wait()[1].tolist() == [1.0, 1.0]
        with pytest.raises(EnvError, match="100% wrong"):
            second.step_wait()
        for half in (second, first):
            half.reset()
        assert first.step(np.zeros(2, int))[1].tolist() == [1.0, 1.0]


def test_closing_the_vector_env_closes_its_parts() -> None:
    envs = SubprocVecEnv([EchoEnv] * 4, num_workers=2)
    workers = envs.processes
    first, second = envs.split()
    first.reset()
    first.step_async(np.zeros(2, int))
    envs.close()
    assert not any(worker.is_alive() for worker in workers)
    for half in (first, second):
        assert half.closed
        with pytest.raises(ClosedError):
            half.step_wait()
        with pytest.raises(ClosedError):
            half.get_attr("steps")
        half.close()
    with pytest.raises(ClosedError):
        envs.split()


def test_closing_a_part_leaves_the_others() -> None:
    with closing(SubprocVecEnv([EchoEnv] * 4, num_workers=2)) as envs:
        first, second = envs.split()
        for half in (first, second):
            half.reset()
        first.step_async(np.zeros(2, int))
        first.close()
        for refused in (
            first.reset,
            first.step_wait,
            lambda: first.step(np.zeros(2, int)),
            lambda: first.get_attr("x"),
        ):
            with pytest.raises(ClosedError):
                refused()
        assert second.step(np.zeros(2, int))[1].tolist() == [1.0, 1.0]
        envs.split(1)
        assert envs.reset().tolist() == [[200]] * 4


def test_a_part_keeps_its_vector_env_open() -> None:
    envs = SubprocVecEnv([EchoEnv] * 2)
    workers = envs.processes
    first, second = envs.split()
    del envs
    gc.collect()
    assert first.reset().tolist() == [[100]]
    del first, second
    gc.collect()
    assert not any(worker.is_alive() for worker in workers)
