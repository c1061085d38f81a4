"""Arguments of the constructor and attributes of the Gymnasium face, among them spaces and lazy infos."""

from __future__ import annotations

import copy
import functools
import os
import pickle
import re
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from accidents import raise_value_error
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium_face_envs import SpaceEnv
from gymnasium_originals import compare
from pairs import each
from pool_envs import ColourSpace, assert_same, counting

from remuda.gymnasium import AsyncVectorEnv, LazyInfos


def test_attributes_are_those_of_gymnasium() -> None:
    env_fns = [functools.partial(SpaceEnv, spaces.Discrete(2))] * 2
    given = {
        "shared_memory": True,
        "copy": False,
        "context": "spawn",
        "daemon": False,
        "worker": None,
        "observation_mode": "same",
        "autoreset_mode": AutoresetMode.SAME_STEP,
        "max_concurrency": 1,
    }
    envs = AsyncVectorEnv(env_fns, *given.values())  # type: ignore[arg-type]  # the arguments have Gymnasium's order
    assert isinstance(envs, VectorEnv)
    assert {name: getattr(envs, name) for name in given} == given
    assert envs.env_fns is env_fns
    assert (envs.num_envs, envs.spec, envs.render_mode) == (2, None, "rgb_array")
    assert envs.metadata == {**SpaceEnv.metadata, "autoreset_mode": AutoresetMode.SAME_STEP}
    assert "autoreset_mode" not in SpaceEnv.metadata
    assert envs.unwrapped is envs
    assert envs.observations.tolist() == [0, 0]  # before the first reset
    assert not envs.closed
    envs.close()
    assert envs.closed


def test_each_env_has_its_own_process_named_after_the_class() -> None:
    class Mine(AsyncVectorEnv[Any, Any]):
        pass

    envs = Mine(counting(3))
    assert repr(envs) == "Mine(num_envs=3)"
    assert envs.call("pid") == tuple(process.pid for process in envs.processes)
    assert os.getpid() not in envs.call("pid")
    assert [process.name for process in envs.processes] == [f"Worker<Mine>-{i}" for i in range(3)]
    assert all(process.is_alive() and process.exitcode is None for process in envs.processes)
    envs.close()
    assert [(process.is_alive(), process.exitcode) for process in envs.processes] == [(False, 0)] * 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"worker": lambda *args: None}, r"gymnasium\.Wrapper.*autoreset_mode"),
        ({"observation_mode": "nonsense"}, "Invalid `observation_mode`, expected: 'same' or 'different' or tuple"),
        ({"observation_mode": None}, "Invalid `observation_mode`"),
        ({"observation_mode": (1, 2)}, "Expected both elements of observation_mode to be Spaces, got <class 'int'>"),
        ({"autoreset_mode": "next_step"}, "next_step"),
        ({"context": "nonsense"}, "expected context to be one of .*nonsense"),
    ],
)
def test_bad_arguments_are_refused_before_any_worker_starts(options: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError, NotImplementedError), match=message):
        AsyncVectorEnv([raise_value_error], **options)


def test_vector_envs_equal_one_large_vector_env() -> None:
    build = functools.partial(gymnasium.make_vec, "CartPole-v1", num_envs=2, vectorization_mode="sync")
    single = gymnasium.make_vec("CartPole-v1", num_envs=4, vectorization_mode="sync")
    envs = AsyncVectorEnv([build] * 2, vector_size=2)
    assert (envs.num_envs, len(envs.processes)) == (4, 2)
    assert_same(envs.reset(seed=3), single.reset(seed=3))
    for actions in ([0, 1, 0, 1], [1, 1, 0, 0]):
        assert_same(envs.step(actions), single.step(np.array(actions)))
    with pytest.raises(ValueError, match="whole vector envs"):
        envs.reset(options={"reset_mask": np.array([True, False, False, False])})
    envs.reset(seed=3, options={"reset_mask": np.array([True, True, False, False])})
    envs.close()
    single.close()


# -- spaces ----------------------------------------------------------------------------------------------


def fns(*observation_spaces: spaces.Space[Any]) -> list[Callable[[], SpaceEnv]]:
    return [lambda space=space: SpaceEnv(space) for space in observation_spaces]  # type: ignore[misc]


BOUNDS = [spaces.Box(0, high, (2,)) for high in (1, 2, 3)]


def test_the_mode_same_requires_equal_spaces() -> None:
    message = re.escape(
        "AsyncVectorEnv(..., observation_mode='same') however some of the sub-environments observation "
        "spaces are not equivalent. If this is intentional, use `observation_mode='different'` instead."
    )
    with pytest.raises(RuntimeError, match=message):
        AsyncVectorEnv(fns(*BOUNDS), backend="serial")


def test_the_mode_different_batches_the_bounds() -> None:
    ours, reference = (cls(fns(*BOUNDS), observation_mode="different") for cls in (AsyncVectorEnv, SyncVectorEnv))
    assert ours.single_observation_space == BOUNDS[0]
    assert ours.reset(seed=3)[0] in ours.observation_space
    compare(ours, reference, 5)


def test_a_pair_of_spaces_is_the_batched_and_the_single_space() -> None:
    single = spaces.Box(0, 9, (2,))
    batched = spaces.Box(-9, 9, (3, 2))
    envs = AsyncVectorEnv(fns(*BOUNDS), observation_mode=(batched, single), backend="serial")
    assert envs.observation_space is batched
    assert envs.single_observation_space is single
    assert envs.reset()[0].shape == (3, 2)
    envs.close()


@each(
    mode=["same", "different", (spaces.Box(0, 1, (3, 2)), spaces.Box(0, 1, (2,)))],
    other=[
        spaces.Box(0, 1, (3,)),
        spaces.Box(0, 1, (2,), np.float64),
        spaces.Discrete(3),
        spaces.Dict(a=spaces.Discrete(2)),
    ],
)
def test_spaces_that_cannot_be_batched_are_refused(mode: Any, other: spaces.Space[Any]) -> None:
    with pytest.raises(RuntimeError):
        AsyncVectorEnv(fns(BOUNDS[0], other, BOUNDS[0]), observation_mode=mode, backend="serial")


def test_different_action_spaces_are_refused() -> None:
    for other in (spaces.Discrete(4), spaces.Box(0, 1, (2,))):
        with pytest.raises(RuntimeError, match="action"):
            AsyncVectorEnv([lambda space=space: SpaceEnv(BOUNDS[0], space) for space in (spaces.Discrete(3), other)])  # type: ignore[misc]


def test_a_custom_space_is_refused_only_with_shared_memory() -> None:
    for space in (ColourSpace(), spaces.Dict(a=spaces.Tuple([spaces.Discrete(2), ColourSpace()]))):
        with pytest.raises(ValueError, match="pass shared_memory=False"):
            AsyncVectorEnv(fns(space, space), backend="serial")
        AsyncVectorEnv(fns(space, space), shared_memory=False, backend="serial").close()


# -- lazy_infos ------------------------------------------------------------------------------------------

PLAIN = {"a": 1, "_a": True}


def lazy() -> LazyInfos:
    return LazyInfos(lambda: dict(PLAIN))


def test_infos_are_stacked_once_at_the_first_access() -> None:
    calls: list[int] = []
    infos = LazyInfos(lambda: calls.append(1) or dict(PLAIN))  # type: ignore[func-returns-value]
    assert isinstance(infos, dict)
    assert not calls
    assert infos["a"] == 1
    assert list(infos) == ["a", "_a"]
    assert calls == [1]


def _match(infos: dict[str, Any]) -> Any:
    match infos:
        case {"a": value}:
            return value


# All methods are overridden alike. These are the accesses that may bypass them, and some others.
ACCESSES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "getitem": lambda d: d["a"],
    "repr": repr,
    "== dict": lambda d: d == PLAIN,
    "dict()": dict,
    "{**d}": lambda d: {**d},
    "f(**d)": lambda d: dict(**d),
    "d | x": lambda d: d | {"b": 2},
    "x | d": lambda d: {"b": 2} | d,
    "into": lambda d: (other := {"b": 2}, other.update(d)),
    "popitem": lambda d: (d.popitem(), dict(d)),
    "copy.copy": copy.copy,
    "copy.deepcopy": copy.deepcopy,
    "pickle": lambda d: pickle.loads(pickle.dumps(d)),
    "match": _match,
}


@pytest.mark.parametrize("access", ACCESSES.values(), ids=ACCESSES.keys())
def test_every_access_returns_what_a_plain_dict_returns(access: Callable[[dict[str, Any]], Any]) -> None:
    assert access(lazy()) == access(dict(PLAIN))


def test_two_lazy_infos_compare_by_their_contents_and_copies_are_plain_dicts() -> None:
    assert lazy() == lazy() != LazyInfos(dict)
    infos: dict[str, Any] = lazy()
    before = infos
    infos |= {"b": 2}
    assert infos is before
    assert infos == {**PLAIN, "b": 2}
    for made in (copy.copy(lazy()), copy.deepcopy(lazy()), lazy().copy(), pickle.loads(pickle.dumps(lazy()))):
        assert type(made) is dict


def test_every_method_of_dict_is_overridden() -> None:
    kept = {"__class_getitem__", "__getattribute__", "__hash__", "__init__", "__new__", "fromkeys"}
    for name in dict.__dict__.keys() - kept:
        method = getattr(LazyInfos, name)
        assert name == "__doc__" or method is not getattr(dict, name), name


def test_an_exception_in_stacking_is_raised_by_each_access() -> None:
    def stack() -> dict[str, Any]:
        raise ValueError("bad")

    infos = LazyInfos(stack)
    for _ in range(2):
        with pytest.raises(ValueError, match="bad"):
            len(infos)
