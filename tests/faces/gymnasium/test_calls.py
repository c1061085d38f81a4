"""``reset`` with options, actions, ``call``, ``get_attr``, ``set_attr`` and ``render`` of the Gymnasium face."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium_face_envs import EchoEnv

from remuda import InvalidActionError
from remuda.gymnasium import AsyncVectorEnv


@pytest.fixture
def envs() -> Iterator[AsyncVectorEnv]:
    made = AsyncVectorEnv([EchoEnv] * 3)
    yield made
    made.close(terminate=True)


# -- reset -----------------------------------------------------------------------------------------


def test_every_env_receives_the_options_without_the_mask(envs: AsyncVectorEnv) -> None:
    envs.reset(options={"level": 2})
    assert envs.get_attr("options") == ({"level": 2},) * 3
    envs.reset()
    assert envs.get_attr("options") == (None,) * 3
    options = {"reset_mask": np.array([True, False, True]), "level": 3}
    envs.reset(options=options)
    assert envs.get_attr("options") == ({"level": 3}, None, {"level": 3})
    assert options.keys() == {"reset_mask", "level"}  # the caller's dict is unchanged
    envs.reset(options={"reset_mask": np.array([False, True, False])})
    assert envs.get_attr("options") == ({"level": 3}, {}, {"level": 3})


def test_masked_out_envs_return_their_last_observation_and_no_info(envs: AsyncVectorEnv) -> None:
    envs.reset()
    envs.step([0, 0, 0])
    obs, infos = envs.reset(options={"reset_mask": np.array([False, True, False])})
    assert obs.tolist() == [[101], [200], [101]]
    assert infos["episode_number"].tolist() == [0, 2, 0]
    assert infos["_episode_number"].tolist() == [False, True, False]
    assert envs.step([0, 0, 0])[0].tolist() == [[102], [201], [102]]


@pytest.mark.parametrize(
    ("mask", "error", "message"),
    [
        ([True, True, True], TypeError, "must be a numpy array, got <class 'list'>"),
        (np.array([True]), ValueError, r"must have shape `\(3,\)`, got \(1,\)"),
        (np.ones((1, 3), bool), ValueError, r"must have shape `\(3,\)`, got \(1, 3\)"),
        (np.array([1, 0, 1]), TypeError, "must have `dtype=np.bool_`, got int64"),
        (np.zeros(3, bool), ValueError, "at least one True value, got reset_mask="),
    ],
)
def test_bad_masks_are_refused(envs: AsyncVectorEnv, mask: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        envs.reset(options={"reset_mask": mask})
    envs.reset()


def test_a_wrong_number_of_seeds_is_refused(envs: AsyncVectorEnv) -> None:
    with pytest.raises(ValueError, match="the length must match num_envs=3 but got length=2"):
        envs.reset(seed=[1, 2])


def test_a_numpy_seed_is_an_int(envs: AsyncVectorEnv) -> None:
    envs.reset(seed=np.int64(4))
    assert envs.np_random_seed == (4, 5, 6)


# -- actions ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("actions", [[1, 2, 3], (1, 2, 3), np.array([1, 2, 3]), [np.int64(1), np.int64(2), 3]])
def test_actions_can_be_any_sequence(envs: AsyncVectorEnv, actions: Any) -> None:
    envs.reset()
    envs.step(actions)
    assert envs.get_attr("last_action") == (1, 2, 3)


@pytest.mark.parametrize("actions", [[1, 2], [1, 2, 3, 4], np.arange(2), np.arange(4), []])
def test_a_wrong_number_of_actions_steps_no_env(envs: AsyncVectorEnv, actions: Any) -> None:
    envs.reset()
    with pytest.raises(ValueError, match="expected"):
        envs.step(actions)
    assert envs.step([1, 2, 3])[0].tolist() == [[101], [101], [101]]


def test_one_action_for_all_is_refused(envs: AsyncVectorEnv) -> None:
    envs.reset()
    with pytest.raises(TypeError):
        envs.step(0)
    assert envs.step([1, 2, 3])[0].tolist() == [[101], [101], [101]]


@pytest.mark.parametrize("actions", [[0, 0, 10], [-1, 0, 0]])
def test_an_action_out_of_range_steps_no_env(envs: AsyncVectorEnv, actions: list[int]) -> None:
    envs.reset()
    with pytest.raises(InvalidActionError, match="expected 0 <= action <= 9"):
        envs.step(actions)
    assert envs.step([1, 2, 3])[0].tolist() == [[101], [101], [101]]


def test_dict_actions() -> None:
    space = spaces.Dict(a=spaces.Discrete(5), b=spaces.Box(0, 1, (2,)))
    envs = AsyncVectorEnv([lambda: EchoEnv(space)] * 2)
    envs.reset()
    actions = envs.action_space.sample()
    envs.step(actions)
    for i, got in enumerate(envs.get_attr("last_action")):
        assert got in space
        assert got["a"] == actions["a"][i]
        np.testing.assert_array_equal(got["b"], actions["b"][i])
    envs.close()


# -- calls -----------------------------------------------------------------------------------------


def test_call_passes_arguments_and_returns_a_tuple(envs: AsyncVectorEnv) -> None:
    assert envs.call("add", 1, right=2, prefix="sum=") == ("sum=3",) * 3
    assert envs.call("length") == (1_000_000,) * 3
    assert envs.get_attr("pid") == tuple(process.pid for process in envs.processes)  # get_attr calls a method


@pytest.mark.parametrize("name", ["reset", "step", "close", "_setattr", "_check_spaces"])
def test_call_and_get_attr_refuse_reserved_names(envs: AsyncVectorEnv, name: str) -> None:
    message = f"^Trying to call function `{name}` with `call`, use `{name}` directly instead.$"
    for ask in (envs.call, envs.get_attr):
        with pytest.raises(ValueError, match=message):
            ask(name)
    envs.reset()  # the envs still work


def test_set_attr(envs: AsyncVectorEnv) -> None:
    envs.set_attr("length", 5)
    assert envs.get_attr("length") == (5, 5, 5)
    envs.set_attr("length", [1, 2, 3])
    assert envs.get_attr("length") == (1, 2, 3)
    envs.set_attr("length", (4, 5, 6))
    assert envs.get_attr("length") == (4, 5, 6)
    envs.set_attr("new", "word")
    assert envs.get_attr("new") == ("word",) * 3
    with pytest.raises(ValueError, match="Got `2` values for 3 environments"):
        envs.set_attr("length", [1, 2])


class Twice(gymnasium.Wrapper[Any, Any, Any, Any]):
    factor = 2

    def doubled(self) -> int:
        return int(self.factor * self.get_wrapper_attr("length"))


def test_call_and_set_attr_see_the_wrappers() -> None:
    envs = AsyncVectorEnv([lambda: gymnasium.wrappers.TimeLimit(Twice(EchoEnv(length=4)), 9)] * 2)
    assert envs.call("doubled") == (8, 8)
    envs.set_attr("factor", [3, 4])
    envs.set_attr("length", 10)
    assert envs.call("doubled") == (30, 40)
    envs.close()


def test_render() -> None:
    envs = AsyncVectorEnv([lambda: gymnasium.make("CartPole-v1", render_mode="rgb_array")] * 2)
    envs.reset(seed=1)
    frames = envs.render()
    assert isinstance(frames, tuple)
    assert [frame.shape for frame in frames] == [(400, 600, 3)] * 2
    assert envs.render_mode == "rgb_array"
    envs.close()
