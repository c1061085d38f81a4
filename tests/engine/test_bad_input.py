"""Mistakes of the caller and of envs: each gets an error that names the env, what was expected and what came.

Nothing is sent when a call is refused; after an env's fault the pool goes on without it, or can be closed at once.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from pool_envs import (
    NOTHING,
    CountingEnv,
    Falsy,
    Farewell,
    HookedEnv,
    NeedsArguments,
    NestedEnv,
    SampleEnv,
    TwoArguments,
    Unpicklable,
    Unprintable,
    counting,
    hooked,
    raising,
)

from remuda import (
    ClosedError,
    EnvError,
    InvalidActionError,
    InvalidEnvError,
    Pool,
    RemoteTraceback,
    RemudaError,
    SpaceMismatchError,
    StateError,
)

BACKENDS: tuple[Any, ...] = ("process", "thread", "serial")


def assert_untouched(pool: Pool, steps: int = 0) -> None:
    assert pool.pending == 0
    assert pool.get_attr("total_steps") == [steps] * pool.num_envs


# -- actions ---------------------------------------------------------------------------------------------

DISCRETE = counting(3)
BOX = [lambda: SampleEnv(spaces.Discrete(2), spaces.Box(-1, 1, (2, 2)))] * 3
NESTED = [NestedEnv] * 3


def good_nest() -> dict[str, Any]:
    return {"push": np.zeros((3, 2)), "keys": (np.zeros(3, int), np.zeros((3, 2), int))}


def spoilt_nest(**changes: Any) -> dict[str, Any]:
    return {**good_nest(), **changes}


BAD_ACTIONS: list[tuple[Any, Any, str]] = [
    # too few, too many, none, another shape
    (DISCRETE, [1, 2], r"shape \(3,\) and dtype int64 at actions, got .*\[1, 2\]"),
    (DISCRETE, np.zeros(4, int), r"shape \(3,\).* at actions, got an array of shape \(4,\)"),
    (DISCRETE, [], r"shape \(3,\)"),
    (DISCRETE, 1, r"shape \(3,\).*got int: 1"),
    (DISCRETE, np.zeros((3, 2), int), r"shape \(3,\).*shape \(3, 2\)"),
    (DISCRETE, None, r"shape \(3,\).*got NoneType: None"),
    (DISCRETE, {0: 1, 1: 1, 2: 1}, r"shape \(3,\).*got a dict with the keys \[0, 1, 2\]"),
    (BOX, np.zeros((3, 4)), r"shape \(3, 2, 2\) and dtype float32 at actions, got .*\(3, 4\)"),
    (BOX, np.zeros((2, 2)), r"shape \(3, 2, 2\)"),
    (BOX, np.zeros((2, 2, 3)), r"shape \(3, 2, 2\)"),
    # another dtype
    (DISCRETE, [0.5, 1, 2], r"dtype int64 at actions, got .*0\.5"),
    (DISCRETE, ["0", "1", "2"], r"dtype int64"),
    (DISCRETE, [None] * 3, r"dtype int64"),
    (BOX, np.zeros((3, 2, 2), complex), r"dtype float32.*complex128"),
    (BOX, np.full((3, 2, 2), "a"), r"dtype float32"),
    # out of range
    (DISCRETE, [0, -1, 2], r"0 <= action <= 999 at actions\[1\], got -1"),
    (DISCRETE, [0, 1, 1000], r"0 <= action <= 999 at actions\[2\], got 1000"),
    (DISCRETE, np.array([0, 2**63, 1], np.uint64), r"int64"),
    # nested
    (
        NESTED,
        spoilt_nest(keys=([0, 4, 0], np.zeros((3, 2), int))),
        r"0 <= action <= 3 at actions\['keys'\]\[0\]\[1\], got 4",
    ),
    (
        NESTED,
        spoilt_nest(keys=([0, 0, 0], np.full((3, 2), 2))),
        r"0 <= action <= 1 at actions\['keys'\]\[1\]\[0\]\[0\], got 2",
    ),
    (
        NESTED,
        spoilt_nest(push=np.zeros((2, 2))),
        r"shape \(3, 2\) and dtype float32 at actions\['push'\], got .*\(2, 2\)",
    ),
    (NESTED, spoilt_nest(keys=[0]), r"a tuple of 2 at actions\['keys'\], got list: \[0\]"),
    (NESTED, {"push": 1}, r"keys \['push', 'keys'\] at actions, got a dict with the keys \['push'\]"),
    (NESTED, [good_nest()] * 3, r"a dict with the keys .* at actions, got list"),
]


@pytest.mark.parametrize(("env_fns", "actions", "message"), BAD_ACTIONS)
def test_actions_that_do_not_fit(env_fns: Any, actions: Any, message: str) -> None:
    with Pool(env_fns, backend="serial", num_workers=2) as pool:
        pool.reset()
        for send in (pool.send, pool.step):
            with pytest.raises(InvalidActionError, match=f"^expected .*{message}"):
                send(actions)
            assert pool.pending == 0
        assert pool.apply(lambda env: getattr(env, "total_steps", 0)) == [0, 0, 0]
        pool.step(good_nest() if env_fns is NESTED else np.zeros((3, *(pool.single_action_space.shape or ())), int))


def test_actions_that_do_not_fit_in_a_process() -> None:
    with Pool(counting(3), num_workers=2) as pool:
        pool.reset()
        pool.step([1, 2, 3])
        for actions in ([1, 2], [1, 2, 3, 4], [0, 0, 1000], [0.5] * 3, "abc", None):
            with pytest.raises(InvalidActionError, match="^expected "):
                pool.step(actions)
        assert_untouched(pool, steps=1)
        assert pool.step([4, 5, 6]).obs[:, 3].tolist() == [4, 5, 6]


@pytest.mark.parametrize("texts", [("a", "b"), "ab", ("a", "b", "c", "d"), None, 3, ()])
def test_a_wrong_number_of_objects(texts: Any) -> None:
    fns = [lambda: SampleEnv(spaces.Discrete(2), spaces.Text(3))] * 3
    with Pool(fns, backend="serial") as pool:
        pool.reset()
        with pytest.raises(InvalidActionError, match=r"expected a sequence of 3 at actions, one for each env, got"):
            pool.step(texts)


def test_an_action_that_cannot_be_pickled() -> None:
    fns = [lambda: SampleEnv(spaces.Discrete(2), spaces.Text(3))] * 2
    with Pool(fns, backend="serial") as pool:
        pool.reset()
        with pytest.raises(InvalidActionError, match=r"expected actions that can be pickled, .* env 1"):
            pool.step(["a", (i for i in range(3))])
        assert pool.pending == 0
        pool.step(["a", "b"])


def test_the_number_of_actions_follows_env_ids() -> None:
    with Pool(counting(3), backend="serial") as pool:
        pool.reset()
        with pytest.raises(InvalidActionError, match=r"expected an array of shape \(2,\).*got list: \[1, 2, 3\]"):
            pool.send([1, 2, 3], env_ids=[0, 2])
        assert_untouched(pool)


# -- env_ids ---------------------------------------------------------------------------------------------


BAD_IDS = [[3], [-1], [0, 0], [2**40], ["a"], [1.5], [None], [[0], [1]], 1, "01", [True, False, True]]


@pytest.mark.parametrize("env_ids", BAD_IDS)
def test_wrong_env_ids(env_ids: Any) -> None:
    with Pool(counting(3), backend="serial") as pool:
        pool.reset()
        n = len(env_ids) if isinstance(env_ids, list) else 1
        for call in (
            lambda: pool.send([1] * n, env_ids=env_ids),
            lambda: pool.send_reset(env_ids=env_ids),
            lambda: pool.send_observe(env_ids=env_ids),
            lambda: pool.call("pid", env_ids=env_ids),
            lambda: pool.set_attr("tag", 1, env_ids=env_ids),
        ):
            with pytest.raises((ValueError, TypeError), match=r"^expected .*env_ids.* 0 (and|to) 2, got"):
                call()
        assert_untouched(pool)
        assert pool.get_attr("episodes") == [1] * 3


@pytest.mark.parametrize("env_ids", [[2, 0], (2, 0), np.array([2, 0]), [np.int8(2), 0], {2: "a", 0: "b"}])
def test_env_ids_of_many_kinds(env_ids: Any) -> None:
    with Pool(counting(3), backend="serial") as pool:
        pool.reset()
        pool.send([7, 8], env_ids=env_ids)
        batch = pool.recv()
        assert dict(zip(batch.env_ids.tolist(), batch.reward.tolist(), strict=True)) == {2: 7.0, 0: 8.0}


def test_no_env_ids_is_nobody() -> None:
    with Pool(counting(2), backend="serial") as pool:
        pool.reset()
        pool.send([], env_ids=[])
        assert pool.pending == 0
        assert pool.call("pid", env_ids=[]) == []
        pool.set_attrs("tag", [], env_ids=[])


# -- seeds and options -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"seed": [1, 2]}, ValueError, "expected 3 seeds, one for each env to reset, got 2"),
        ({"seed": ["a", 1, 2]}, TypeError, "expected an int or None as the seed of env 0, got 'a'"),
        ({"seed": [1, 2.5, 2]}, TypeError, "seed of env 1, got 2.5"),
        ({"seed": 1.5}, TypeError, "expected seed to be an int, None, or a sequence .*, got 1.5"),
        ({"seed": "abc"}, TypeError, "seed"),
        ({"options": [{}, {}]}, ValueError, "expected 3 reset options, one for each env to reset, got 2"),
        ({"options": 5}, TypeError, "expected options to be a dict, None, or a sequence .*, got 5"),
        ({"options": [1, {}, {}]}, TypeError, "expected a dict or None as the options of env 0, got 1"),
        ({"options": {"f": (i for i in range(3))}}, Exception, "pickle"),
    ],
)
def test_wrong_seeds_and_options(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with Pool(counting(3), backend="serial") as pool:
        with pytest.raises(error, match=message):
            pool.reset(**arguments)
        assert pool.pending == 0
        assert pool.get_attr("episodes") == [0] * 3


# -- settings --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"num_workers": 0}, ValueError, "num_workers .* from 1 to 3 .* got 0"),
        ({"num_workers": 4}, ValueError, "from 1 to 3 .*got 4"),
        ({"num_workers": "many"}, ValueError, "got 'many'"),
        ({"num_workers": 1.0}, ValueError, "got 1.0"),
        ({"num_workers": True}, ValueError, "got True"),
        ({"backend": "cloud"}, ValueError, "backend to be one of .* got 'cloud'"),
        ({"autoreset": "never"}, ValueError, "autoreset to be one of .* got 'never'"),
        ({"seeding": "often"}, ValueError, r"seeding to be one of \('gymnasium', 'per_episode'\), got 'often'"),
        ({"frames": 0}, ValueError, "frames.* got 0"),
        ({"frames": 64}, ValueError, "frames.* got 64"),
        ({"frames": 2.5}, ValueError, "frames.* got 2.5"),
        ({"object_bytes": 4095}, ValueError, "object_bytes .* from 4096 up, got 4095"),
        ({"object_bytes": 1e6}, ValueError, "object_bytes .* got 1000000.0"),
        ({"max_concurrency": 0}, ValueError, "max_concurrency .* got 0"),
        ({"max_concurrency": "all"}, ValueError, "max_concurrency .* got 'all'"),
        ({"start_method": "teleport", "backend": "process"}, ValueError, "start_method .* 'spawn'.* got 'teleport'"),
        ({"start_timeout": -1}, ValueError, "start_timeout .* got -1"),
        ({"threads_per_worker": 0}, ValueError, "threads_per_worker .* got 0"),
        ({"preload": "numpy"}, TypeError, r"preload .* got 'numpy'"),
        ({"observation_space": 3}, TypeError, "observation_space .* got 3"),
    ],
)
def test_wrong_settings(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=f"^expected .*{message}"):
        Pool(counting(3), **{"backend": "serial", **options})


@pytest.mark.parametrize("num_workers", [None, 1, "auto"])
def test_no_envs(num_workers: Any) -> None:
    with pytest.raises(ValueError, match="expected at least one env, got an empty list"):
        Pool([], num_workers=num_workers)


@pytest.mark.parametrize(
    ("env_fns", "message"),
    [
        ([CountingEnv, CountingEnv()], r"env_fns\[1\] to be a function that builds an env, got <.*CountingEnv"),
        ([None], r"env_fns\[0\] .* got None"),
        (["CartPole-v1"], r"env_fns\[0\] .* got 'CartPole-v1'"),
        (CountingEnv, r"a sequence of functions .* got <class '.*CountingEnv'>"),
        (None, r"a sequence of functions .* got None"),
    ],
)
def test_factories_that_are_none(env_fns: Any, message: str) -> None:
    with pytest.raises(TypeError, match=f"^expected .*{message}"):
        Pool(env_fns)


def test_a_factory_that_cannot_be_pickled() -> None:
    secret = (i for i in range(3))
    with pytest.raises(InvalidEnvError, match=r"expected env_fns that can be pickled.*backend='thread'") as raised:
        Pool([CountingEnv, lambda: secret])
    assert isinstance(raised.value.__cause__, (TypeError, pickle.PicklingError))


# -- factories that give no env --------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("value", "message"),
    [(None, "got None"), (3, "got 3"), ("CartPole-v1", "got 'CartPole-v1'"), (CountingEnv, "got <class")],
)
def test_factories_that_return_no_env(value: Any, message: str, backend: Any) -> None:
    with pytest.raises(InvalidEnvError, match=rf"expected env_fns\[1\] to return a gymnasium.Env, {message}"):
        Pool([CountingEnv, lambda: value, CountingEnv], backend=backend, num_workers=1)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_same_env_twice_in_a_worker(backend: Any) -> None:
    env = CountingEnv()
    with pytest.raises(InvalidEnvError, match=r"env_fns\[2\] .* of its own, got the same object as env_fns\[1\]"):
        Pool([CountingEnv, lambda: env, lambda: env], backend=backend, num_workers=1)


@pytest.mark.parametrize("backend", ["thread", "serial"])
def test_the_same_env_in_two_workers(backend: Any) -> None:
    env = CountingEnv()
    with pytest.raises(InvalidEnvError, match=r"env_fns\[2\] .* of its own, got the same object as env_fns\[0\]"):
        Pool([lambda: env, CountingEnv, lambda: env], backend=backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["observation_space", "action_space"])
def test_an_env_without_a_space(name: str, backend: Any) -> None:
    def fn() -> Any:
        env = CountingEnv()
        setattr(env, name, None)
        return env

    with pytest.raises(InvalidEnvError, match=rf"expected env_fns\[1\].*{name}.*Space, got None"):
        Pool([CountingEnv, fn], backend=backend)


def _with_spaces(observation: spaces.Space[Any], action: spaces.Space[Any]) -> Callable[[], Any]:
    return lambda: SampleEnv(observation, action)


BOX2 = spaces.Box(0, 1, (2,))
PLAIN = _with_spaces(BOX2, spaces.Discrete(2))


@pytest.mark.parametrize(
    ("odd", "message"),
    [
        (
            _with_spaces(spaces.Box(0, 1, (3,)), spaces.Discrete(2)),
            r"^expected every observation space .*envs 1, 2: shape \(3,\) instead of \(2,\)",
        ),
        (
            _with_spaces(spaces.Box(0, 1, (2,), np.float64), spaces.Discrete(2)),
            "envs 1, 2: dtype float64 instead of float32",
        ),
        (_with_spaces(spaces.Dict(a=BOX2), spaces.Discrete(2)), "envs 1, 2: another structure"),
        (_with_spaces(spaces.Text(3), spaces.Discrete(2)), "envs 1, 2: another structure"),
        (_with_spaces(BOX2, BOX2), r"^expected every action space .*envs 1, 2: shape \(2,\) instead of \(\)"),
        (
            _with_spaces(BOX2, spaces.Discrete(2, dtype=np.int32)),
            "^expected every action space .*envs 1, 2: dtype int32 instead of int64",
        ),
    ],
)
def test_spaces_that_disagree(odd: Callable[[], Any], message: str) -> None:
    with pytest.raises(SpaceMismatchError, match=message):
        Pool([PLAIN, odd, odd], backend="serial")


def test_objects_that_disagree() -> None:
    graph, text = spaces.Graph(spaces.Discrete(2), None), spaces.Text(3)
    with pytest.raises(SpaceMismatchError, match=r"env 1: Text instead of Graph at \['x'\]"):
        Pool([_with_spaces(spaces.Dict(x=space), BOX2) for space in (graph, text)], backend="serial")


def test_nested_spaces_that_disagree() -> None:
    one, other = (spaces.Dict(a=spaces.Tuple((BOX2, spaces.Box(0, 1, shape)))) for shape in [(1,), (4,)])
    with pytest.raises(SpaceMismatchError, match=r"env 1: shape \(4,\) instead of \(1,\) at \['a'\]\[1\]"):
        Pool([_with_spaces(one, BOX2), _with_spaces(other, BOX2)], backend="serial")


def test_bounds_may_differ() -> None:
    fns = [_with_spaces(spaces.Box(0, high, (2,)), spaces.Discrete(2)) for high in (1, 2, 3)]
    with Pool(fns, backend="serial") as pool:
        assert [getattr(space, "high")[0] for space in pool.observation_spaces]  # noqa: B009 == [1, 2, 3]
        pool.reset()


# -- what an env must not return -------------------------------------------------------------------------


def stepping(**parts: Any) -> Callable[[Any, Any], Any]:
    """A step hook whose result has these parts instead of the usual ones."""

    def step(env: Any, action: Any) -> Any:
        usual = {"obs": env.observe(), "reward": 0.0, "terminated": False, "truncated": False, "info": {}}
        return tuple({**usual, **parts}.values())

    return step


def returning(value: Any) -> Callable[..., Any]:
    return lambda *_: value


BAD_STEPS: dict[str, tuple[Callable[..., Any], str]] = {
    "shape": (stepping(obs=np.zeros(3, np.int64)), r"shape \(4,\) and dtype int64 at obs, got .*\(3,\)"),
    "float": (stepping(obs=np.full(4, 0.5)), r"dtype int64 at obs, got .*float64"),
    "obs None": (stepping(obs=None), r"shape \(4,\).* at obs, got NoneType: None"),
    "obs text": (stepping(obs="abcd"), r"at obs, got str: 'abcd'"),
    "obs ragged": (stepping(obs=[[1], [2, 3]]), r"at obs, got list"),
    "reward None": (stepping(reward=None), "a number as the reward, got None"),
    "reward text": (stepping(reward="7"), "a number as the reward, got '7'"),
    "reward array": (stepping(reward=np.zeros(2)), r"a number as the reward, got array\(\[0., 0.\]\)"),
    "reward complex": (stepping(reward=1j), "a number as the reward, got 1j"),
    "terminated": (stepping(terminated=np.array([True, False])), "a bool as terminated, got array"),
    "truncated": (stepping(truncated=np.array([True, False])), "a bool as truncated, got array"),
    "info None": (stepping(info=None), "a dict as the info, got None"),
    "info list": (stepping(info=[1]), r"a dict as the info, got \[1\]"),
    "info unpicklable": (
        lambda e, a: (*stepping()(e, a)[:4], {"a": (i for i in "abc")}),
        "info that can be pickled, got .*generator",
    ),
    "old api": (lambda e, a: stepping()(e, a)[:4], r"step\(\) to return \(observation, reward, .*info\), got \(array"),
    "None": (returning(NOTHING), r"step\(\) to return \(observation, reward, .*info\), got None"),
    "list": (lambda e, a: list(stepping()(e, a)), r"step\(\) to return"),
    "long": (stepping(reward="ä😀" * 200), "a number as the reward, got 'ä😀ä😀"),
}  # fmt: skip


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", BAD_STEPS)
def test_steps_that_return_what_they_must_not(name: str, backend: Any) -> None:
    step, message = BAD_STEPS[name]
    with Pool(hooked(3, step=step), backend=backend, num_workers=2) as pool:
        pool.reset()
        with pytest.raises(EnvError, match=rf"^env 1 \(worker 0\) raised .* in step: expected .*{message}") as raised:
            pool.step([1, 2, 3])
        assert "expected" in raised.value.failures[0].traceback
        assert_goes_on_without(pool, 1)


BAD_RESETS: dict[str, tuple[Callable[..., Any], str]] = {
    "shape": (lambda e: (np.zeros(3, np.int64), {}), r"shape \(4,\)"),
    "old api": (lambda e: e.observe(), r"reset\(\) to return \(observation, info\), got array"),
    "None": (returning(NOTHING), r"reset\(\) to return \(observation, info\), got None"),
    "three": (lambda e: (e.observe(), {}, 1), r"reset\(\) to return \(observation, info\)"),
    "info": (lambda e: (e.observe(), None), r"a dict as the info, got None"),
}


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
@pytest.mark.parametrize("phase", ["reset", "autoreset"])
@pytest.mark.parametrize("name", BAD_RESETS)
def test_resets_that_return_what_they_must_not(name: str, phase: str, mode: Any) -> None:
    hook, message = BAD_RESETS[name]
    hooks: Any = {phase: hook}
    with Pool(hooked(3, length=1, **hooks), backend="serial", num_workers=2, autoreset=mode) as pool:
        with pytest.raises(EnvError, match=rf"^env 1 .* in reset: expected .*{message}"):
            pool.reset()
            pool.step([0, 0, 0])
            pool.step([0, 0, 0])
        assert sorted(pool.recv().env_ids.tolist()) == [0, 2]


class NestedFault(NestedEnv):
    def __init__(self, spoil: Callable[[Any], Any]) -> None:
        super().__init__()
        self.spoil = spoil

    def step(self, action: Any) -> Any:
        obs, *rest = super().step(action)
        return self.spoil(obs), *rest


def without(key: str) -> Callable[[Any], Any]:
    return lambda obs: {k: v for k, v in obs.items() if k != key}


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (without("pose"), r"a dict with the keys .*'pose'.* at obs, got a dict with the keys \['image', 'deep'\]"),
        (lambda obs: {**obs, "image": None}, r"shape \(3, 4\) and dtype uint8 at obs\['image'\], got NoneType"),
        (lambda obs: {**obs, "image": obs["image"].T}, r"at obs\['image'\], got an array of shape \(4, 3\)"),
        (lambda obs: {**obs, "image": obs["image"].astype(int) + 300}, r"dtype uint8 at obs\['image'\]"),
        (lambda obs: {**obs, "pose": obs["pose"][:1]}, r"a tuple of 2 at obs\['pose'\], got tuple"),
        (lambda obs: {**obs, "pose": (obs["pose"][0], 1.5)}, r"dtype int64 at obs\['pose'\]\[1\], got float: 1.5"),
        (lambda obs: {**obs, "deep": [1]}, r"a dict with the keys .* at obs\['deep'\], got list: \[1\]"),
        (lambda obs: tuple(obs.values()), r"a dict with the keys .* at obs, got tuple"),
    ],
)  # fmt: skip
def test_nested_observations_that_do_not_fit(spoil: Callable[[Any], Any], message: str) -> None:
    with Pool([NestedEnv, lambda: NestedFault(spoil)], backend="serial") as pool:
        pool.reset()
        with pytest.raises(EnvError, match=f"^env 1 .* in step: expected .*{message}"):
            pool.step({"push": np.zeros((2, 2)), "keys": ([0, 0], np.zeros((2, 2), int))})


def test_keys_that_the_space_does_not_know_are_left_out() -> None:
    with Pool([lambda: NestedFault(lambda obs: {**obs, "extra": 1})], backend="serial") as pool:
        pool.reset()
        batch = pool.step({"push": np.zeros((1, 2)), "keys": ([0], np.zeros((1, 2), int))})
        assert sorted(batch.obs) == ["deep", "image", "pose"]


def test_an_override_says_what_the_observations_must_be() -> None:
    wide = spaces.Box(-(2**40), 2**40, (4,), np.float64)
    with Pool(counting(2), backend="serial", observation_space=wide) as pool:
        assert pool.reset().obs.dtype == np.float64
        assert pool.single_observation_space == wide
    with (
        Pool(counting(2), backend="serial", observation_space=spaces.Box(0, 1, (5,))) as pool,
        pytest.raises(EnvError, match=r"envs 0, 1 .* expected .*shape \(5,\)"),
    ):
        pool.reset()


# -- envs that raise -------------------------------------------------------------------------------------


def local_exception() -> BaseException:
    class Local(RuntimeError):
        pass

    return Local("known nowhere else")


def chained() -> BaseException:
    try:
        raise KeyError("inner")
    except KeyError as inner:
        error = RuntimeError("outer")
        error.__cause__ = inner
        return error


EXCEPTIONS: dict[str, tuple[Callable[[], BaseException], str]] = {
    "plain": (lambda: ValueError("100% {wrong}"), "ValueError in {}: 100% {{wrong}}"),
    "empty": (lambda: RuntimeError(), "RuntimeError in {}"),
    "multiline": (lambda: RuntimeError("one\ntwo"), "RuntimeError in {}: one\ntwo"),
    "stop iteration": (lambda: StopIteration(3), "StopIteration in {}: 3"),
    "key error": (lambda: KeyError("key"), "KeyError in {}: 'key'"),
    "chained": (chained, "RuntimeError in {}: outer"),
    "local": (local_exception, "Local in {}: known nowhere else"),
    "SystemExit": (lambda: SystemExit(3), "SystemExit in {}: 3"),
    "GeneratorExit": (lambda: GeneratorExit(), "GeneratorExit in {}"),
    "TwoArguments": (TwoArguments, "TwoArguments in {}: seven (7)"),
    "NeedsArguments": (lambda: NeedsArguments(7, "seven"), "NeedsArguments in {}: seven (7)"),
    "Unpicklable": (Unpicklable, "Unpicklable in {}: holds a generator"),
    "Unprintable": (Unprintable, "Unprintable in {}: <"),
    "Falsy": (lambda: Falsy("not nothing"), "Falsy in {}: not nothing"),
    "Farewell": (lambda: Farewell("bye"), "Farewell in {}: bye"),
}


def assert_traceback(error: EnvError) -> None:
    """The cause is the env's exception, its cause the worker's traceback; or at least the latter."""
    failure = error.failures[0]
    cause: BaseException | None = error.__cause__
    if failure.exception is not None:
        assert cause is failure.exception
        cause = None if cause is None else cause.__cause__
    assert isinstance(cause, RemoteTraceback)
    assert failure.traceback in str(cause)
    assert failure.traceback.startswith("Traceback (most recent call last)")


def assert_goes_on_without(pool: Pool, failed: int) -> None:
    """The others' results are there; the failed env must be reset, then all go on."""
    others = [i for i in range(pool.num_envs) if i != failed]
    batch = pool.recv()
    assert sorted(batch.env_ids.tolist()) == others
    assert pool.pending == 0
    with pytest.raises(StateError, match=f"expected envs that have been reset, got env {failed}; call reset first"):
        pool.send([0] * pool.num_envs)
    pool.send([5] * len(others), env_ids=others)
    assert pool.recv().reward.tolist() == [5.0] * len(others)
    assert pool.reset(env_ids=[failed]).env_ids.tolist() == [failed]
    pool.send_observe()
    assert pool.recv().env_ids.tolist() == list(range(pool.num_envs))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", EXCEPTIONS)
def test_envs_that_raise_in_step(name: str, backend: Any) -> None:
    make, message = EXCEPTIONS[name]
    with Pool(hooked(3, step=raising(make)), backend=backend, num_workers=2) as pool:
        pool.reset()
        with pytest.raises(EnvError) as raised:
            pool.step([1, 2, 3])
        error = raised.value
        assert str(error).startswith("env 1 (worker 0) raised ")
        assert message.format("step") in str(error)
        assert error.env_ids == (1,)
        assert (error.failures[0].env_id, error.failures[0].operation) == (1, "step")
        assert_traceback(error)
        assert_goes_on_without(pool, 1)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", EXCEPTIONS)
def test_envs_that_raise_when_built(name: str, backend: Any, tmp_path: Path) -> None:
    make, message = EXCEPTIONS[name]
    closed = tmp_path / "closed"
    good = lambda: HookedEnv(close=lambda env: closed.touch())  # noqa: E731
    with pytest.raises(EnvError) as raised:
        Pool([good, lambda: HookedEnv(build=raising(make)), good], backend=backend, num_workers=2)
    assert str(raised.value).startswith("env 1 (worker 0) raised ")
    assert message.format("build") in str(raised.value)
    assert_traceback(raised.value)
    assert closed.exists()  # what was built in the same worker


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("phase", ["reset", "autoreset", "call", "render"])
@pytest.mark.parametrize("name", ["plain", "SystemExit", "Unpicklable", "NeedsArguments"])
def test_envs_that_raise_elsewhere(name: str, phase: str, backend: Any) -> None:
    make, message = EXCEPTIONS[name]
    operation = "call" if phase in ("call", "render") else "reset"
    hooks: Any = {phase: raising(make)}
    with Pool(hooked(3, length=1, **hooks), backend=backend, num_workers=2) as pool:
        if phase != "reset":
            pool.reset()
        with pytest.raises(EnvError) as raised:
            _provoke(pool, phase)
        assert message.format(operation) in str(raised.value)
        assert raised.value.env_ids == (1,)
        assert_traceback(raised.value)
        if operation == "call":  # it does not touch the episode
            assert pool.pending == 0
            pool.step([0, 0, 0])
        else:
            assert sorted(pool.recv().env_ids.tolist()) == [0, 2]


def _provoke(pool: Pool, phase: str) -> None:
    if phase == "reset":
        pool.reset()
    elif phase == "autoreset":
        pool.step([0, 0, 0])
        pool.step([0, 0, 0])
    elif phase == "call":
        pool.call("poke")
    else:
        pool.render()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", EXCEPTIONS)
def test_envs_that_raise_in_close(name: str, backend: Any) -> None:
    make, message = EXCEPTIONS[name]
    pool = Pool(hooked(3, close=raising(make)), backend=backend, num_workers=2)
    pool.reset()
    with pytest.raises(EnvError) as raised:
        pool.close()
    assert message.format("close") in str(raised.value)
    assert raised.value.env_ids == (1,)
    assert_traceback(raised.value)
    assert pool.closed
    pool.close()
    assert not any(worker.is_alive() for worker in pool.workers)


def test_every_env_is_closed_though_some_raise(tmp_path: Path) -> None:
    def close(env: Any) -> None:
        (tmp_path / str(env.tag)).touch()
        raise ValueError(f"env {env.tag} will not")

    for backend in BACKENDS:
        pool = Pool(hooked(4, (0, 1, 2, 3), close=close), backend=backend, num_workers=2)
        with pytest.raises(EnvError) as raised:
            pool.close()
        assert raised.value.env_ids == (0, 1, 2, 3)
        assert sorted(os.listdir(tmp_path)) == ["0", "1", "2", "3"]
        for path in tmp_path.iterdir():
            path.unlink()


@pytest.mark.parametrize("backend", ["process", "thread"])
def test_an_interrupt_raised_by_an_env_elsewhere_is_its_fault(backend: Any) -> None:
    with Pool(hooked(3, step=raising(KeyboardInterrupt)), backend=backend, num_workers=2) as pool:
        pool.reset()
        with pytest.raises(EnvError, match="env 1 .* raised KeyboardInterrupt in step"):
            pool.step([1, 2, 3])
        assert_goes_on_without(pool, 1)


@pytest.mark.parametrize("phase", ["reset", "step", "call", "close"])
def test_an_interrupt_in_the_callers_own_thread_is_the_callers(phase: str) -> None:
    """An env that is stepped by the caller gets the caller's Ctrl-C: `except Exception` must not catch it."""
    hooks: Any = {phase: raising(KeyboardInterrupt)}
    pool = Pool(hooked(2, **hooks), backend="serial")
    with pytest.raises(KeyboardInterrupt) as raised:
        pool.reset()
        pool.step([0, 0])
        pool.call("poke")
        pool.close()
    assert isinstance(raised.value.__cause__, EnvError)
    assert f"env 1 (worker 1) raised KeyboardInterrupt in {phase}" in str(raised.value.__cause__)
    pool.close()
    assert pool.closed


@pytest.mark.parametrize("backend", ["serial", "thread"])
def test_an_interrupt_while_envs_are_built_here(backend: Any) -> None:
    with pytest.raises(KeyboardInterrupt):
        Pool(hooked(2, build=raising(KeyboardInterrupt)), backend=backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_several_envs_that_raise_are_all_named(backend: Any) -> None:
    def step(env: Any, action: Any) -> None:
        raise ValueError(f"no {env.tag}")

    with Pool(hooked(5, (1, 2, 4), step=step), backend=backend, num_workers=2) as pool:
        pool.reset()
        with pytest.raises(EnvError) as raised:
            pool.step([0] * 5)
        assert raised.value.env_ids == (1, 2, 4)
        assert [str(failure.exception) for failure in raised.value.failures] == ["no 1", "no 2", "no 4"]
        assert all(f"no {i}" in str(raised.value) for i in (1, 2, 4))
        assert sorted(pool.recv().env_ids.tolist()) == [0, 3]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_pool_can_be_closed_at_once_after_a_fault(backend: Any) -> None:
    with (
        pytest.raises(EnvError, match="env 1"),
        Pool(hooked(3, step=raising(ValueError)), backend=backend) as pool,
    ):
        pool.reset()
        pool.step([0, 0, 0])
    assert pool.closed
    assert not any(worker.is_alive() for worker in pool.workers)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_fault_that_meets_an_answer_is_told_all_the_same(backend: Any) -> None:
    """Answers to calls wake the pool while it waits for results: the failures seen by then must still count."""
    with Pool(hooked(3, step=raising(ValueError)), backend=backend, num_workers=2) as pool:
        for _ in range(30):
            pool.reset()
            pool.send([0, 0, 0])
            calls = [pool.call_async("pid") for _ in range(3)]
            with pytest.raises(EnvError, match="env 1 "):
                pool.recv()
            assert all(len(call.result()) == 3 for call in calls)
            assert sorted(pool.recv().env_ids.tolist()) == [0, 2]


def test_faults_are_told_by_whoever_waits_next() -> None:
    with Pool(hooked(3, step=raising(ValueError)), backend="thread") as pool:
        pool.reset()
        pool.send([0, 0, 0])
        assert pool.call("pid") == [os.getpid()] * 3  # each env's answer comes after its step
        with pytest.raises(EnvError, match="env 1 "):
            pool.recv()
        assert sorted(pool.recv().env_ids.tolist()) == [0, 2]


def test_discard_drops_faults_too() -> None:
    with Pool(hooked(3, step=raising(ValueError)), backend="thread") as pool:
        pool.reset()
        pool.send([0, 0, 0])
        pool.discard()
        assert pool.pending == 0
        with pytest.raises(StateError, match="got env 1"):
            pool.send([0, 0, 0])
        pool.reset()


# -- values that cannot be sent --------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
def test_answers_that_cannot_be_pickled(backend: Any) -> None:
    with Pool(counting(2), backend=backend) as pool:
        with pytest.raises(
            EnvError, match=r"envs 0, 1 .* in call: expected a result that can be pickled, got <generator"
        ):
            pool.apply(lambda env: (i for i in range(3)))
        assert pool.call("tag") == [0, 1]


def test_calls_that_cannot_be_pickled() -> None:
    with Pool(counting(2), backend="serial") as pool:
        with pytest.raises(Exception, match="pickle"):
            pool.call("echo", (i for i in range(3)))
        with pytest.raises(Exception, match="pickle"):
            pool.set_attrs("tag", [1, (i for i in range(3))])
        assert pool.call("tag") == [0, 1]


def test_an_attribute_that_is_not_there() -> None:
    with Pool([lambda: gymnasium.make("CartPole-v1")] * 2, backend="serial") as pool:
        with pytest.raises(EnvError, match=r"envs 0, 1 .*AttributeError in call: .*'velocity'"):
            pool.get_attr("velocity")
        with pytest.raises(EnvError, match="'fly'"):
            pool.call("fly")


def test_a_wrong_number_of_values() -> None:
    with Pool(counting(3), backend="serial") as pool:
        with pytest.raises(ValueError, match="expected 3 .*got 2"):
            pool.set_attrs("tag", [1, 2])
        assert pool.get_attr("tag") == [0, 1, 2]


# -- at the wrong moment ---------------------------------------------------------------------------------


def test_step_before_reset() -> None:
    with Pool(counting(3), backend="serial") as pool:
        for call in (lambda: pool.step([0, 0, 0]), lambda: pool.send([0, 0, 0]), pool.send_observe):
            with pytest.raises(StateError, match=r"expected envs that have been reset, got envs 0-2; call reset"):
                call()
        pool.reset(env_ids=[1])
        with pytest.raises(StateError, match="got envs 0, 2;"):
            pool.step([0, 0, 0])
        assert_untouched(pool)


def test_recv_before_send() -> None:
    with Pool(counting(2), backend="serial") as pool:
        with pytest.raises(StateError, match="expected envs in flight, got none: recv follows send"):
            pool.recv()
        pool.reset()
        with pytest.raises(StateError, match="got none"):
            pool.recv(timeout=0)


def test_send_twice() -> None:
    with Pool(counting(3), backend="serial") as pool:
        pool.reset()
        pool.send([1, 2], env_ids=[0, 2])
        with pytest.raises(StateError, match="expected envs whose last result was received, but env 2 is in flight"):
            pool.send([5, 6], env_ids=[1, 2])
        calls: list[Callable[[], Any]] = [lambda: pool.step([1, 2, 3]), pool.reset]
        for call in calls:
            with pytest.raises(StateError, match="in flight"):
                call()
        assert pool.pending == 2
        batch = pool.recv()
        assert dict(zip(batch.env_ids.tolist(), batch.reward.tolist(), strict=True)) == {0: 1, 2: 2}
        assert pool.get_attr("total_steps") == [1, 0, 1]


@pytest.mark.parametrize(
    "arguments", [{"min_envs": -1}, {"min_envs": 1.5}, {"max_envs": -1}, {"max_envs": "a"}, {"timeout": "soon"}]
)
def test_recv_with_impossible_limits(arguments: dict[str, Any]) -> None:
    with Pool(counting(3), backend="serial") as pool:
        pool.send_reset()
        with pytest.raises((ValueError, TypeError), match=f"expected {next(iter(arguments))} .*, got"):
            pool.recv(**arguments)
        assert len(pool.recv()) == 3


def test_calls_after_close() -> None:
    pool = Pool(counting(2), backend="serial")
    call = pool.call_async("pid")
    pool.close()
    assert pool.closed
    assert pool.pending == 0
    for use in (
        pool.reset,
        lambda: pool.step([0, 0]),
        lambda: pool.send([0, 0]),
        pool.send_reset,
        pool.send_observe,
        pool.recv,
        pool.discard,
        pool.render,
        pool.stats,
        lambda: pool.call("pid"),
        lambda: pool.call_async("pid"),
        lambda: pool.apply(id),
        lambda: pool.get_attr("tag"),
        lambda: pool.set_attr("tag", 1),
        lambda: pool.set_attrs("tag", [1, 2]),
    ):
        with pytest.raises(ClosedError, match="the pool is closed; make a new one"):
            use()
    assert len(call.result()) == 2  # it was answered before the envs were closed
    pool.close()
    pool.close(terminate=True)
    assert "closed" in repr(pool)


def test_a_call_that_a_close_cut_off() -> None:
    pool = Pool(counting(2), backend="serial")
    call = pool.call_async("pid")
    pool.close(terminate=True)
    with pytest.raises(ClosedError):
        call.result()


def test_all_errors_have_one_base() -> None:
    import remuda.errors

    classes = [c for c in vars(remuda.errors).values() if isinstance(c, type) and issubclass(c, Exception)]
    assert [c for c in classes if not issubclass(c, RemudaError)] == [RemoteTraceback]
