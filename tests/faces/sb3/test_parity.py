"""The Stable-Baselines3 face, also in wrappers, returns, bit for bit, what SB3's SubprocVecEnv returns for the same
envs, seeds and actions."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
import sb3_originals
import simulator_envs
from gymnasium import spaces
from gymnasium_face_envs import EnvFns, ResetInfoEnv, SpaceEnv, TimelessEnv, cartpoles, rewarding
from pool_envs import assert_same, hooked
from sb3_originals import both
from stable_baselines3.common.vec_env import (
    VecCheckNan,
    VecEnv,
    VecExtractDictObs,
    VecFrameStack,
    VecMonitor,
    VecNormalize,
    VecTransposeImage,
)

NUM_ENVS = 3

SPACES: dict[str, spaces.Space[Any]] = {
    "box": spaces.Box(-1, 1, (2, 3)),
    "image": spaces.Box(0, 255, (8, 8, 3), np.uint8),
    "discrete": spaces.Discrete(7, start=-3),
    "multi_discrete": spaces.MultiDiscrete([4, 5]),
    "multi_binary": spaces.MultiBinary(5),
    "dict": spaces.Dict(z=spaces.Box(0, 1, (2,)), a=spaces.Discrete(3), image=spaces.Box(0, 255, (4, 4, 1), np.uint8)),
    "tuple": spaces.Tuple((spaces.Box(0, 1, (2,)), spaces.MultiBinary(3), spaces.Discrete(4))),
}


def compare(env_fns: EnvFns, steps: int, **options: Any) -> None:
    with both(env_fns, **options) as (ours, reference):
        assert ours.waiting == reference.waiting
        sb3_originals.compare(ours, reference, steps)


def monitored(env_id: str) -> gymnasium.Env[Any, Any]:
    from stable_baselines3.common.monitor import Monitor

    return TimelessEnv(Monitor(gymnasium.make(env_id, max_episode_steps=20)))


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1", "FrozenLake-v1"])
def test_statistics_of_episodes_equal_sb3s(env_id: str) -> None:
    compare([lambda: monitored(env_id)] * NUM_ENVS, 100, num_workers=2)


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES.keys())
def test_observations_of_every_space_equal_sb3s(space: spaces.Space[Any]) -> None:
    compare([lambda: SpaceEnv(space)] * NUM_ENVS, 40, num_workers=2)


PICTURES = spaces.Box(0, 255, (36, 36, 1), np.uint8)
DICTS = spaces.Dict(picture=PICTURES, place=spaces.Box(-1, 1, (2,)))
WRAPPED: dict[str, tuple[Any, Callable[[VecEnv], VecEnv]]] = {
    "an array": (spaces.Box(-1, 1, (3,)), lambda envs: VecNormalize(VecCheckNan(VecMonitor(envs), True))),
    "pictures": (PICTURES, lambda envs: VecTransposeImage(VecFrameStack(envs, 3))),
    "a dict": (DICTS, lambda envs: VecNormalize(VecFrameStack(VecMonitor(envs), 2), norm_obs_keys=["place"])),
    "a part of a dict": (DICTS, lambda envs: VecExtractDictObs(envs, "place")),
}


@pytest.mark.parametrize(("space", "wrap"), WRAPPED.values(), ids=WRAPPED.keys())
def test_wrappers_return_the_same_as_around_sb3s(space: spaces.Space[Any], wrap: Callable[[VecEnv], VecEnv]) -> None:
    with both([lambda: SpaceEnv(space)] * 2, num_workers=1) as sides:
        sb3_originals.compare(*map(wrap, sides), 40)


# SB3's workers are forked
@pytest.mark.watchdog(900)  # each case starts processes of a simulator
@pytest.mark.parametrize("simulator", [name for name in simulator_envs.SOME if name != "pixels"])
def test_simulators_equal_sb3s(simulator: str) -> None:
    compare(simulator_envs.env_fns(simulator, NUM_ENVS), 30, num_workers=2)


REWARDS: dict[str, list[list[Any]]] = {
    "float": [[1.0, 2.5], [0.0, -1.0]],
    "int": [[1, 2], [3, -4]],
    "bool": [[True, False], [False, True]],
    "float32": [[np.float32(0.1), np.float32(0.2)], [np.float32(0.3), np.float32(0.4)]],
    "float64": [[np.float64(0.1), np.float64(0.2)], [np.float64(0.3), np.float64(0.4)]],
    "int32": [[np.int32(5), np.int32(6)], [np.int32(7), np.int32(8)]],
    "int and float32": [[1, 2], [np.float32(0.5), np.float32(0.25)]],
    "int and float": [[1, 2], [0.5, 0.25]],
    "an int first, then a float": [[1, 0.5], [2, 3]],
    "an array without axes": [[np.array(0.1, np.float32), np.array(0.2, np.float32)]] * 2,
}


@pytest.mark.parametrize("rewards", REWARDS.values(), ids=REWARDS.keys())
def test_rewards_have_the_dtype_of_sb3s(rewards: list[list[Any]]) -> None:
    compare([rewarding(own * 3) for own in rewards], 6)


def test_an_env_may_step_copies_of_itself() -> None:
    def step(env: Any, action: Any) -> Any:
        if not hasattr(env, "is_copy"):
            ahead = copy.copy(env)
            ahead.is_copy = True
            ahead.step(action)
        return env.observe(), env.total_steps, False, False, {}

    compare(hooked(2, (0, 1), step=step), 4)


ACTIONS: dict[str, tuple[spaces.Space[Any], Any]] = {
    "an array": (spaces.Box(-1, 1, (2,)), np.array([[0.5, -0.5], [0.25, 0]], np.float32)),
    "a list of arrays": (spaces.Box(-1, 1, (2,)), [np.zeros(2, np.float32), np.ones(2, np.float32)]),
    "many choices": (spaces.MultiDiscrete([3, 4]), np.array([[0, 3], [2, 1]])),
    "flags": (spaces.MultiBinary(3), np.array([[0, 1, 1], [1, 0, 0]], np.int8)),
    "dicts": (
        spaces.Dict(push=spaces.Box(-1, 1, (1,)), key=spaces.MultiBinary(2)),
        [
            {"push": np.array([0.5], np.float32), "key": np.array([0, 1], np.int8)},
            {"key": np.array([1, 1], np.int8), "push": np.array([0.25], np.float32)},
        ],
    ),
    "tuples": (
        spaces.Tuple((spaces.Box(-1, 1, (1,)), spaces.Box(-1, 1, (2,)))),
        [(np.array([i], np.float32), np.array([i, i], np.float32)) for i in range(2)],
    ),
}


@pytest.mark.parametrize(("space", "actions"), ACTIONS.values(), ids=ACTIONS.keys())
def test_actions_arrive_as_in_sb3(space: spaces.Space[Any], actions: Any) -> None:
    with both([lambda: ResetInfoEnv(space)] * 2) as (ours, reference):
        ours.reset()
        reference.reset()
        got, expected = ours.step(actions)[3], reference.step(actions)[3]
        assert_same(got, expected)


def test_seeds_and_options_are_for_one_reset() -> None:
    with both([ResetInfoEnv] * 2) as (ours, reference):
        for envs in (ours, reference):
            assert envs.seed(5) == [5, 6]
            envs.set_options([{"map": 1}, {}])
        for options in (None, None, {"map": {"size": 3}}):
            if options is not None:
                ours.set_options(options)
                reference.set_options(options)
            ours.reset()
            reference.reset()
            assert_same(ours.reset_infos, reference.reset_infos)
        for _ in range(2):  # the second step resets
            assert_same(ours.step(np.array([0, 1])), reference.step(np.array([0, 1])))
            assert_same(ours.reset_infos, reference.reset_infos)


def test_without_a_seed_each_env_differs() -> None:
    with both(cartpoles(2)) as (ours, reference):
        for envs in (ours, reference):
            np.random.seed(1)
            envs.seed()
        assert_same(ours.reset(), obs := reference.reset())
        assert not np.array_equal(obs[0], obs[1])
