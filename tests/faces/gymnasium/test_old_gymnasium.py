"""On Gymnasium 0.29 the face returns, bit for bit, what that release's vector envs return."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import gymnasium_originals
import numpy as np
import pytest
from accidents import raise_value_error
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv as TheirAsyncVectorEnv
from gymnasium.vector import SyncVectorEnv, VectorEnv, VectorEnvWrapper
from gymnasium.wrappers import RecordEpisodeStatistics
from gymnasium_face_envs import SpaceEnv, TimelessEnv
from gymnasium_originals import SPACES
from pool_envs import SampleEnv, assert_same, counting

from remuda import InvalidActionError, InvalidEnvError, Pool, make_vec
from remuda.gymnasium import AsyncVectorEnv, install, uninstall

NUM_ENVS = 3
THEIRS = [SyncVectorEnv, TheirAsyncVectorEnv]


def plain(value: Any) -> Any:
    """Returns a result with a dict in place of each OrderedDict, which the face returns as a dict."""
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, tuple):
        return tuple(map(plain, value))
    if isinstance(value, np.ndarray) and value.dtype == object:
        made = np.empty_like(value)
        for i, one in enumerate(value):
            made[i] = plain(one)
        return made
    return value


compare = partial(gymnasium_originals.compare, form=plain)


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES.keys())
def test_every_observation_space_and_kind_of_info_equals_gymnasiums(space: spaces.Space[Any]) -> None:
    env_fns = [lambda: SpaceEnv(space)] * NUM_ENVS
    compare(AsyncVectorEnv(env_fns, shared_memory=False, num_workers=2), SyncVectorEnv(env_fns), 60)


@pytest.mark.parametrize("other", THEIRS)
@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1"])
def test_statistics_of_episodes_equal_gymnasiums(env_id: str, other: Callable[..., VectorEnv]) -> None:
    env_fns = [lambda: TimelessEnv(RecordEpisodeStatistics(gymnasium.make(env_id, max_episode_steps=20)))] * NUM_ENVS
    compare(AsyncVectorEnv(env_fns), other(env_fns), 50)


WRAPPERS: dict[str, Callable[[Any], Any]] = {
    "NormalizeObservation": gymnasium.wrappers.NormalizeObservation,
    "NormalizeReward": gymnasium.wrappers.NormalizeReward,
    "VectorListInfo": gymnasium.wrappers.VectorListInfo,
    "VectorEnvWrapper": VectorEnvWrapper,
    "RecordEpisodeStatistics": RecordEpisodeStatistics,
}


@pytest.mark.filterwarnings("ignore:.*deprecated")
@pytest.mark.parametrize("wrapper", WRAPPERS.values(), ids=WRAPPERS.keys())
def test_gymnasiums_wrappers_return_the_same_around_it(wrapper: Callable[[Any], Any]) -> None:
    ours, reference = AsyncVectorEnv(counting(3, 4), num_workers=1), SyncVectorEnv(counting(3, 4))
    compare(wrapper(ours), wrapper(reference), 10)


# -- the constructor -------------------------------------------------------------------------------------


def test_the_spaces_of_the_caller_are_those_of_the_vector_env() -> None:
    observations, actions = spaces.Box(-(2**40), 2**40, (4,), np.int64), spaces.Discrete(1000)
    envs = AsyncVectorEnv(counting(2), observations, actions, True, num_workers=1)
    assert envs.single_observation_space is observations
    assert envs.single_action_space is actions
    assert isinstance(envs, VectorEnv) and isinstance(envs, gymnasium.Env)
    assert (repr(envs), envs.is_vector_env, envs.shared_memory) == ("AsyncVectorEnv(2)", True, True)
    envs.close()


@pytest.mark.parametrize(
    ("argument", "words"),
    [("observation_space", "an observation space different from"), ("action_space", "an action space different from")],
)
def test_an_env_with_another_space_than_the_callers_is_an_error(argument: str, words: str) -> None:
    with pytest.raises(RuntimeError, match=f"Some environments have {words}"):
        AsyncVectorEnv(counting(2), **{argument: spaces.Discrete(2)}, backend="serial")  # type: ignore[arg-type]


def test_vector_envs_of_this_release_are_refused() -> None:
    with pytest.raises(InvalidEnvError, match=r"autoreset modes of Gymnasium 1.x, got .* of Gymnasium 0.29.1; omit"):
        Pool([lambda: SyncVectorEnv(counting(2))], vector_size=2, backend="serial")


def test_options_that_gymnasium_lacks_are_refused() -> None:
    with pytest.raises(TypeError, match=r"takes no autoreset=: with Gymnasium 0.29 an env is reset in the step"):
        AsyncVectorEnv([raise_value_error] * 2, autoreset="disabled")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'autoreset_mode'"):
        AsyncVectorEnv([raise_value_error] * 2, autoreset_mode="Disabled")


@pytest.mark.parametrize("shape", [(), (2,)])
def test_envs_receive_actions_in_the_dtype_of_the_callers_array(shape: tuple[int, ...]) -> None:
    env_fns = [lambda: SampleEnv(spaces.Discrete(9), spaces.Box(-1, 1, shape))] * 2
    ours, reference = AsyncVectorEnv(env_fns, num_workers=1), TheirAsyncVectorEnv(env_fns)
    random = np.random.default_rng(0)
    for envs in (ours, reference):
        envs.reset(seed=0)
    for dtype in (np.float64, np.float32, np.float16, np.float64):
        actions = random.random((2, *shape)).astype(dtype)
        assert_same(plain(ours.step(actions)), plain(reference.step(actions)), str(dtype))
    half = ours.split(2)[0]
    half.reset()
    assert "float64" in half.step(np.ones((1, *shape)))[4]["types"][0]
    with pytest.raises(InvalidActionError):
        half.step(np.ones((2, *shape)))
    ours.close()
    reference.close()


# -- installing -----------------------------------------------------------------------------------------


def test_make_vec_of_ours_and_of_gymnasium_make_the_installed_class() -> None:
    experimental = gymnasium.experimental.vector
    original = experimental.AsyncVectorEnv
    install(num_workers=2)
    try:
        of_gymnasium = gymnasium.make_vec("CartPole-v1", num_envs=4, vectorization_mode="async")
        for envs in (of_gymnasium, make_vec("CartPole-v1", num_envs=4, num_workers=2)):
            assert isinstance(envs, AsyncVectorEnv) and len(envs.processes) == 2 and envs.spec.id == "CartPole-v1"
            envs.reset(seed=0)
            assert len(envs.step(envs.action_space.sample())) == 5
            envs.close()
    finally:
        uninstall()
    assert experimental.AsyncVectorEnv is experimental.async_vector_env.AsyncVectorEnv is original


def test_the_installed_class_takes_the_arguments_of_sync_vector_env() -> None:
    install(sync=True, num_workers=2)
    try:
        observations, actions = spaces.Box(-(2**40), 2**40, (4,), np.int64), spaces.Discrete(1000)
        ours = gymnasium.vector.SyncVectorEnv(counting(3, 4), observations, actions, False)
        assert isinstance(ours, AsyncVectorEnv) and len(ours.processes) == 2
        assert (ours.single_observation_space, ours.single_action_space, ours.copy) == (observations, actions, False)
        ours.close()
        compare(gymnasium.vector.SyncVectorEnv(counting(3, 4)), SyncVectorEnv(counting(3, 4)), 10)
    finally:
        uninstall()
    assert gymnasium.vector.SyncVectorEnv is SyncVectorEnv


def test_the_generator_is_one_of_the_vector_envs_own_as_in_gymnasium() -> None:
    for make in (AsyncVectorEnv, *THEIRS):
        envs: Any = make(counting(2))
        envs.reset(seed=3)
        assert isinstance(envs.np_random, np.random.Generator) and envs.np_random is envs.np_random
        envs.np_random = np.random.default_rng(4)
        assert envs.np_random.random() == np.random.default_rng(4).random()
        envs.close()
