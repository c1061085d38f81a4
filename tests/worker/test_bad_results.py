"""Invalid results of `step` and `reset`, and the errors that name them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from failing import assert_goes_on_without
from gymnasium import spaces
from pairs import each, pairwise
from pool_envs import NOTHING, CountingEnv, NestedEnv, counting, hooked
from spare_envs import step
from vector_envs import PlainVector

from remuda import EnvError, Pool

BACKENDS: tuple[Any, ...] = ("process", "thread", "serial")


def stepping(**parts: Any) -> Callable[[Any, Any], Any]:
    """Returns a step hook that returns these values in place of the default ones."""

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
    "obs ragged": (stepping(obs=[[1], [2, 3]]), r"at obs, got list of 2"),
    "reward None": (stepping(reward=None), "a number as the reward, got None"),
    "reward text": (stepping(reward="7"), "a number as the reward, got '7'"),
    "reward array": (stepping(reward=np.zeros(2)), r"a number as the reward, or .*, got array\(\[0., 0.\]\)"),
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
    "short list": (lambda e, a: list(stepping()(e, a)[:4]), r"step\(\) to return .*, got \[array"),
    "long": (stepping(reward="ä😀" * 200), "a number as the reward, got 'ä😀ä😀"),
}  # fmt: skip


@each(backend=BACKENDS, name=BAD_STEPS)
def test_errors_of_invalid_step_results(name: str, backend: Any) -> None:
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


@pairwise(mode=["next_step", "same_step"], phase=["reset", "autoreset"], name=BAD_RESETS)
def test_errors_of_invalid_reset_results(name: str, phase: str, mode: Any) -> None:
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
        (lambda obs: {**obs, "image": obs["image"].astype(int) + 300}, r"at obs\['image'\], got .*\[0\]\[0\] is \d{3}"),
        (lambda obs: {**obs, "pose": obs["pose"][:1]}, r"a tuple of 2 at obs\['pose'\], got tuple of"),
        (lambda obs: {**obs, "pose": (obs["pose"][0], 1.5)}, r"dtype int64 at obs\['pose'\]\[1\], got float: 1.5"),
        (lambda obs: {**obs, "deep": [1]}, r"a dict with the keys .* at obs\['deep'\], got list of 1: \[1\]"),
        (lambda obs: tuple(obs.values()), r"a dict with the keys .* at obs, got tuple of"),
    ],
)  # fmt: skip
def test_errors_of_invalid_nested_observations(spoil: Callable[[Any], Any], message: str) -> None:
    with Pool([NestedEnv, lambda: NestedFault(spoil)], backend="serial") as pool:
        pool.reset()
        with pytest.raises(EnvError, match=f"^env 1 .* in step: expected .*{message}"):
            pool.step({"push": np.zeros((2, 2)), "keys": ([0, 0], np.zeros((2, 2), int))})


def test_keys_that_the_space_lacks_are_left_out() -> None:
    with Pool([lambda: NestedFault(lambda obs: {**obs, "extra": 1})], backend="serial") as pool:
        pool.reset()
        batch = pool.step({"push": np.zeros((1, 2)), "keys": ([0], np.zeros((1, 2), int))})
        assert sorted(batch.obs) == ["deep", "image", "pose"]


def test_observation_space_overrides_the_envs_space() -> None:
    wide = spaces.Box(-(2**40), 2**40, (4,), np.float64)
    with Pool(counting(2), backend="serial", observation_space=wide) as pool:
        assert pool.reset().obs.dtype == np.float64
        assert pool.single_observation_space == wide
    with (
        Pool(counting(2), backend="serial", observation_space=spaces.Box(0, 1, (5,))) as pool,
        pytest.raises(EnvError, match=r"envs 0, 1 .* expected .*shape \(5,\)"),
    ):
        pool.reset()


def as_the_same_list(env: Any) -> Any:
    """Makes an env return the same list from each reset and each step."""
    results: list[Any] = []

    def listed(method: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            results[:] = method(*args, **kwargs)
            return results

        return call

    env.reset, env.step = listed(env.reset), listed(env.step)
    return env


@each(
    backend=BACKENDS,
    mode__size__resets_ahead=[
        ("next_step", None, False),
        ("next_step", None, True),
        ("next_step", 2, False),
        *((mode, None, False) for mode in ("same_step", "disabled", "background")),
    ],
)
def test_results_in_a_list_are_accepted(mode: Any, size: int | None, resets_ahead: bool, backend: Any) -> None:
    make = CountingEnv if size is None else partial(PlainVector, size)
    rows: list[Any] = []
    for change in (lambda env: env, as_the_same_list):
        fns: Any = [lambda tag=tag, change=change: change(make(tag, 2)) for tag in range(2)]
        with Pool(
            fns, backend=backend, autoreset=mode, vector_size=size, resets_ahead=resets_ahead, num_workers=None
        ) as pool:
            batches = [pool.reset()]
            for _ in range(4):
                batches.append(step(pool, mode, batches[-1]))
            rows.append(
                [(batch.obs.tolist(), batch.rewards.tolist(), batch.terminations.tolist()) for batch in batches]
            )
    assert rows[0] == rows[1]
