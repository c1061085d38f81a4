"""Errors about factories: lists that are no factories, factories that return no env, and envs that do not match."""

from __future__ import annotations

import os
import pickle
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from accidents import raise_value_error
from gymnasium import spaces
from old_gymnasium import discrete, needs_dtypes
from pairs import each
from pool_envs import CountingEnv, HookedEnv, SampleEnv, begun

from remuda import EnvError, InvalidEnvError, Pool, RestartLimitError, SpaceMismatchError, record_video
from remuda.gymnasium import AsyncVectorEnv

BACKENDS: tuple[Any, ...] = ("process", "thread", "serial")


def test_the_error_of_wrong_factories_suggests_the_code_to_write() -> None:
    env, instead = CountingEnv(), "write [make_env] * 8, where make_env is a function that returns a new env"
    by_id = "write [lambda: gymnasium.make('CartPole-v1')] * 8, or call remuda.make_vec('CartPole-v1', num_envs=8)"
    sequence = "expected env_fns to be a sequence of functions that build an env each, got "
    for given, message in (
        ("CartPole-v1", f"{sequence}'CartPole-v1'; {by_id}"),
        (["CartPole-v1"] * 2, f"expected env_fns[0] to be a function that builds an env, got 'CartPole-v1'; {by_id}"),
        (None, f"{sequence}None; {instead}"),
        (CountingEnv, f"{sequence}{CountingEnv!r}; {instead}"),
        (env, f"{sequence}{env!r}; {instead}"),
        ([CountingEnv, env], f"expected env_fns[1] to be a function that builds an env, got {env!r}; {instead}"),
        ({"a": CountingEnv}, f"{sequence}{{'a': {CountingEnv!r}}}; {instead}"),
        (3, f"{sequence}3; {instead}"),
    ):
        for take in (Pool, lambda env_fns: record_video(env_fns, "not-made"), AsyncVectorEnv):
            with pytest.raises(TypeError, match=re.escape(message) + "$"):
                take(given)
    assert not Path("not-made").exists()


def build_with_a_broken_simulator() -> Any:
    import broken_simulator  # type: ignore[import-not-found]

    return broken_simulator


def build_by_a_broken_id() -> Any:
    return gymnasium.make("not_installed:Env-v0")


@each(backend=BACKENDS, env_fn__where=[(build_with_a_broken_simulator, "made"), (build_by_a_broken_id, "here")])
def test_the_error_of_a_missing_module_names_the_users_line_that_imports_it(
    env_fn: Any, where: str, backend: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tmp_path / "broken_simulator.py"
    made.write_text("import os\nimport not_installed\n")
    monkeypatch.syspath_prepend(tmp_path)
    line = f"{made}:2" if where == "made" else f"{__file__}:{env_fn.__code__.co_firstlineno + 1}"
    with pytest.raises(
        EnvError, match=rf"No module named 'not_installed'.* \(imported at {re.escape(line)}\)"
    ) as raised:
        Pool([env_fn], backend=backend, num_workers=1)
    original = raised.value.__cause__
    assert isinstance(original, ModuleNotFoundError)
    assert original.name == "not_installed" or where == "here"
    assert str(original).endswith(f"(imported at {line})")
    assert f"{os.sep}remuda{os.sep}" not in str(original.__cause__)  # a traceback without frames of the package


def without(space: str) -> Any:
    env = CountingEnv()
    setattr(env, space, None)
    return env


@each(
    backend=BACKENDS,
    env_fn__message=[
        (lambda: None, "to return a gymnasium.Env, got None"),
        (lambda: 3, "to return a gymnasium.Env, got 3"),
        (lambda: "CartPole-v1", "to return a gymnasium.Env, got 'CartPole-v1'"),
        (lambda: CountingEnv, "to return a gymnasium.Env, got <class"),
        (lambda: without("observation_space"), ".*observation_space.*Space, got None"),
        (lambda: without("action_space"), ".*action_space.*Space, got None"),
    ],
)
def test_factories_that_return_no_env_or_an_env_without_a_space(env_fn: Any, message: str, backend: Any) -> None:
    with pytest.raises(InvalidEnvError, match=rf"expected env_fns\[1\] ?{message}") as raised:
        Pool([CountingEnv, env_fn, CountingEnv], backend=backend, num_workers=1)
    assert 'File "' not in str(raised.value.__cause__)  # frames of the package


class Endless(gymnasium.Wrapper[Any, Any, Any, Any]):
    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)  # `inner` is missing, so this calls itself


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_error_of_an_endless_getattr_names_the_wrapper(backend: Any) -> None:
    with pytest.raises(EnvError, match=r"__getattr__ \(.*\.py:\d+\) called itself without end") as raised:
        Pool([lambda: Endless(CountingEnv())] * 2, backend=backend, num_workers=1)
    assert sys.version_info < (3, 11) or "Endless.__getattr__" in str(raised.value.__cause__)


class OddWrapper(gymnasium.Wrapper[Any, Any, Any, Any]):
    def __init__(self, make_unwrapped: Callable[[], Any]) -> None:
        super().__init__(CountingEnv())
        self._make_unwrapped = make_unwrapped

    @property
    def unwrapped(self) -> Any:
        return self._make_unwrapped()


NO_INNER_ENV = (CountingEnv, dict, lambda: 1 / 0)


@each(
    backend__num_workers=[("process", 1), ("thread", 1), ("thread", 3), ("serial", 1), ("serial", 3)],
    lazy=[False, True],
    env__wrap=[
        (CountingEnv(), gymnasium.Wrapper),
        (CountingEnv(), lambda env: env),
        (OddWrapper(NO_INNER_ENV[-1]), lambda env: env),
    ],
)
def test_one_env_in_two_slots_is_refused(
    env: Any, wrap: Callable[[Any], Any], lazy: bool, backend: Any, num_workers: int
) -> None:
    fns = [CountingEnv, lambda: wrap(env), lambda: wrap(wrap(env))]
    message = r"env_fns\[[12]\] to build an env of its own, got the same object as env_fns\[[12]\]"
    with (
        pytest.raises(EnvError if lazy else InvalidEnvError, match=message),
        Pool(fns, backend=backend, num_workers=num_workers, lazy=lazy) as pool,
    ):
        pool.reset()


def test_envs_whose_inner_envs_cannot_be_compared_are_accepted() -> None:
    with Pool([partial(OddWrapper, make) for make in NO_INNER_ENV * 2], backend="serial", num_workers=1) as pool:
        assert len(pool.reset()) == 6


@pytest.mark.parametrize("backend", ["thread", "serial"])
def test_a_closed_env_is_not_used_again(backend: Any) -> None:
    env = HookedEnv(step=raise_value_error)
    with begun([lambda: env], backend=backend, faults="restart") as pool:
        with pytest.raises(InvalidEnvError, match=r"got the same object as env_fns\[0\]"):
            pool.replace([0], [lambda: gymnasium.Wrapper(env)])
        pool.step([0])
        with pytest.raises(RestartLimitError, match="got the same object as before"):
            pool.reset()


def _with_spaces(observation: spaces.Space[Any], action: spaces.Space[Any]) -> Callable[[], Any]:
    return lambda: SampleEnv(observation, action)


BOX2, GRAPH = spaces.Box(0, 1, (2,)), spaces.Graph(spaces.Discrete(2), None)


def nested(shape: tuple[int, ...]) -> spaces.Space[Any]:
    return spaces.Dict(a=spaces.Tuple((BOX2, spaces.Box(0, 1, shape))))


@pytest.mark.parametrize(
    ("kind", "plain", "odd", "message"),
    [
        ("observation", BOX2, spaces.Box(0, 1, (3,)), r"shape \(3,\) instead of \(2,\)"),
        ("observation", BOX2, spaces.Box(0, 1, (2,), np.float64), "dtype float64 instead of float32"),
        ("observation", BOX2, spaces.Dict(a=BOX2), "another structure"),
        ("observation", BOX2, spaces.Text(3), "another structure"),
        ("observation", spaces.Dict(x=GRAPH), spaces.Dict(x=spaces.Text(3)), r"Text instead of Graph at \['x'\]"),
        ("observation", nested((1,)), nested((4,)), r"shape \(4,\) instead of \(1,\) at \['a'\]\[1\]"),
        ("action", spaces.Discrete(2), BOX2, r"shape \(2,\) instead of \(\)"),
        pytest.param(
            *("action", spaces.Discrete(2), discrete(2, np.int32), "dtype int32 instead of int64"), marks=needs_dtypes
        ),
    ],
)
def test_different_spaces_are_refused(kind: str, plain: Any, odd: Any, message: str) -> None:
    fns = [_with_spaces(one, BOX2) if kind == "observation" else _with_spaces(BOX2, one) for one in (plain, odd, odd)]
    with pytest.raises(SpaceMismatchError, match=f"^expected every {kind} space .*envs 1, 2: {message}") as raised:
        Pool(fns, backend="serial")
    for error in (raised.value, pickle.loads(pickle.dumps(raised.value))):
        assert (error.kind, error.spaces) == (kind, (plain, odd, odd))


class Unloadable:
    def __reduce__(self) -> Any:
        return int, ("no number",)


def test_metadata_that_cannot_be_unpickled_is_an_env_error() -> None:
    odd = partial(HookedEnv, build=lambda env: setattr(env, "metadata", {"bad": Unloadable()}))
    with pytest.raises(EnvError, match=r"env 1 .*in build: expected spaces and metadata that can be unpickled"):
        Pool([CountingEnv, odd], num_workers=None)
