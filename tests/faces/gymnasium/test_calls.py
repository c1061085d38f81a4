"""Masks, seeds and actions, ``call``, ``get_attr`` and ``set_attr``, and `extras` of the Gymnasium face."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import gymnasium
import numpy as np
import pytest
from pool_envs import CountingEnv, counting

from remuda import InvalidActionError
from remuda.gymnasium import AsyncVectorEnv


@pytest.fixture
def envs() -> Iterator[AsyncVectorEnv]:
    made = AsyncVectorEnv(counting(3), backend="serial")
    yield made
    made.close()


def test_the_error_of_an_unknown_argument_of_a_method_names_the_class(envs: AsyncVectorEnv) -> None:
    with pytest.raises(TypeError, match=r"^AsyncVectorEnv.reset\(\) got an unexpected keyword argument 'seeds'"):
        envs.reset(seeds=[0, 1, 2])  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("mask", "error", "message"),
    [
        ([True, True, True], TypeError, "must be a numpy array, got <class 'list'>"),
        (np.array([True]), ValueError, r"must have shape `\(3,\)`, got \(1,\)"),
        (np.array([1, 0, 1]), TypeError, "must have `dtype=np.bool_`, got int64"),
        (np.zeros(3, bool), ValueError, "at least one True value, got reset_mask="),
    ],
)
def test_bad_masks_are_refused(envs: AsyncVectorEnv, mask: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        envs.reset(options={"reset_mask": mask})


def test_a_numpy_seed_is_an_int(envs: AsyncVectorEnv) -> None:
    envs.reset(seed=np.int64(4))
    assert envs.np_random_seed == (4, 5, 6)


@pytest.mark.parametrize("actions", [(1, 2, 3), np.array([1, 2, 3]), [np.int64(1), np.int64(2), 3]], ids=str)
def test_actions_can_be_any_sequence(envs: AsyncVectorEnv, actions: Any) -> None:
    envs.reset()
    envs.step(actions)
    assert envs.get_attr("last_action") == (1, 2, 3)


def test_wrong_actions_step_no_env(envs: AsyncVectorEnv) -> None:
    envs.reset()
    for wrong in ([1, 2], np.arange(4), [], [0, 0, 1000], [-1, 0, 0]):
        with pytest.raises(InvalidActionError, match="expected"):
            envs.step(wrong)
    with pytest.raises(TypeError, match="Unable to iterate"):
        envs.step(0)
    assert envs.step([1, 2, 3])[0][:, 2:].tolist() == [[1, 1], [1, 2], [1, 3]]


def test_call_passes_arguments_and_returns_a_tuple(envs: AsyncVectorEnv) -> None:
    assert envs.call("echo", 1, key=2) == (((1,), {"key": 2}),) * 3
    assert envs.call("tag") == envs.get_attr("tag") == (0, 1, 2)
    assert len(envs.get_attr("pid")) == 3  # get_attr calls a method
    for name in ("reset", "step", "close", "_setattr", "_check_spaces"):
        for ask in (envs.call, envs.get_attr):
            with pytest.raises(ValueError, match=f"^Trying to call function `{name}` with `call`, use `{name}` direct"):
                ask(name)


def test_set_attr_takes_one_value_or_a_sequence_of_values(envs: AsyncVectorEnv) -> None:
    for given, expected in ((5, (5, 5, 5)), ([1, 2, 3], (1, 2, 3)), ((4, 5, 6), (4, 5, 6)), ("new", ("new",) * 3)):
        envs.set_attr("mark", given)
        assert envs.get_attr("mark") == expected
    with pytest.raises(ValueError, match="expected 3 values, one for each env, got 2"):
        envs.set_attr("mark", [1, 2])


class Twice(gymnasium.Wrapper[Any, Any, Any, Any]):
    factor = 2

    def doubled(self) -> int:
        return int(self.factor * self.get_wrapper_attr("length"))


def test_call_and_set_attr_see_the_wrappers() -> None:
    wrapped = [lambda: gymnasium.wrappers.TimeLimit(Twice(CountingEnv(length=4)), 9)] * 2
    envs = AsyncVectorEnv(wrapped, backend="serial")
    assert envs.call("doubled") == (8, 8)
    envs.set_attr("factor", [3, 4])
    envs.set_attr("length", 10)
    assert envs.call("doubled") == (30, 40)
    envs.close()


# -- extras ----------------------------------------------------------------------------------------------


def seen(env: Any) -> Any:
    return env.unwrapped.observe()


def check(envs: Any) -> None:
    np.testing.assert_array_equal(envs.extras["seen"], envs.observations)


@pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled"])
def test_extras_are_those_of_the_latest_reset_or_step(mode: str) -> None:
    with closing(AsyncVectorEnv(counting(3, 4), num_workers=2, autoreset_mode=mode, extras={"seen": seen})) as envs:
        assert envs.extras == {}
        envs.reset(seed=0)
        check(envs)
        for i in range(6):
            over = envs.step(np.full(3, i))[2]
            check(envs)
            if mode == "Disabled" and over.any():
                envs.reset(options={"reset_mask": over})
                check(envs)
        envs.reset(options={"reset_mask": np.array([True, False, True])})
        check(envs)
        envs.step_async([1, 2, 3])
        envs.step_wait()
        check(envs)
        for half in envs.split(2):
            half.reset()
            check(half)
            assert half.extras["seen"][:, 0].tolist() == half.env_ids.tolist()
    check(half)  # still readable after close
