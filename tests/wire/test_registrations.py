"""Ids registered with Gymnasium reach every worker, also if modules there register them again."""

from __future__ import annotations

import importlib
import logging
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from gymnasium.envs.registration import registry
from odd_exceptions import NeedsArguments
from pairs import each
from pool_envs import CountingEnv, counting

from remuda import Pool

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")  # newer Pythons warn about a fork

# Like ale_py and MiniGrid, it registers its ids when it is imported.
MODULE = """
import gymnasium
from pool_envs import CountingEnv

class Env(CountingEnv):
    pass

for name in "ABC":
    gymnasium.register(f"remuda-test/{name}-v0", entry_point=f"{__name__}:Env", kwargs={"tag": 1})
gymnasium.register("remuda-test/Made-v0", entry_point=lambda **kwargs: __import__("pool_envs").CountingEnv(**kwargs))

def make(env_id):
    return gymnasium.make(env_id)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    before = dict(registry)
    (tmp_path / "registers_ids.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("registers_ids")
    del sys.modules["registers_ids"]
    registry.clear()
    registry.update(before)


@pytest.fixture
def overridings() -> Iterator[Callable[[], list[str]]]:
    """Returns the warnings of registrations that override others."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        yield lambda: [str(one.message) for one in caught if "Overriding" in str(one.message)]


def test_workers_can_make_ids_that_the_program_registered(
    start_method: Any, module: Any, overridings: Callable[[], list[str]], caplog: pytest.LogCaptureFixture
) -> None:
    """Ids with other arguments, of Gymnasium's envs, and of functions. Equal registrations cause no warning.

    An id that cannot be pickled or unpickled is left out.
    """
    pole = "gymnasium.envs.classic_control.cartpole:CartPoleEnv"
    make_tagged: Any = lambda tag, **_: CountingEnv(tag)  # noqa: E731
    gymnasium.register("remuda-test/Counting-v0", entry_point="pool_envs:CountingEnv", kwargs={"tag": 6})
    gymnasium.register("remuda-test/Lambda-v0", entry_point=make_tagged, kwargs={"tag": 2})
    gymnasium.register("remuda-test/ShortPole-v0", entry_point=pole, max_episode_steps=3)
    for name, value in [
        ("Locked", threading.Lock()),
        ("Unreadable", NeedsArguments(7, "seven")),
        ("Given", module.make),
    ]:
        gymnasium.register(f"remuda-test/{name}-v0", entry_point=make_tagged, kwargs={"tag": 5, "value": value})
    caplog.clear()
    makers = [partial(gymnasium.make, f"remuda-test/{name}-v0") for name in ("Counting", "A", "Made", "Given")]
    with Pool(
        [*makers, lambda: gymnasium.make("remuda-test/Lambda-v0", tag=3)], start_method=start_method, num_workers=None
    ) as pool:
        assert pool.reset().obs[:, 0].tolist() == [6, 1, 0, 5, 3]
        assert pool.spec is not None
        assert pool.spec.id == "remuda-test/Counting-v0"
    assert (overridings(), "Overriding" in caplog.text) == ([], False)
    with Pool(
        [lambda: gymnasium.make("remuda-test/ShortPole-v0")], start_method=start_method, num_workers=None
    ) as pool:
        pool.reset()
        assert [bool(pool.step([0]).truncations[0]) for _ in range(3)] == [False, False, True]


def test_the_module_of_an_entry_point_is_imported_when_an_env_needs_it(module: Any) -> None:
    def make_others(env: Any) -> list[Any]:
        others = [gymnasium.make(f"remuda-test/{name}-v0") for name in ("Made", "Class")]
        return [(int(other.reset()[0][0]), other.metadata["render_modes"]) for other in others]

    def has_imported(env: Any) -> bool:
        return "registers_ids" in sys.modules

    spec = gymnasium.spec("remuda-test/Made-v0")
    spec.entry_point = partial(spec.entry_point)  # type: ignore[arg-type]  # it has no name
    gymnasium.register("remuda-test/Class-v0", entry_point=module.Env)
    with Pool(counting(2), num_workers=None) as pool:
        assert pool.apply(has_imported) == [False, False]
        assert pool.apply(make_others) == [[(0, ["rgb_array"])] * 2] * 2
        assert pool.apply(has_imported) == [True, True]


@each(num_workers=[None, "auto"], start_method=["forkserver", "spawn"])
def test_different_registrations_cause_one_warning(
    start_method: Any, num_workers: Any, module: Any, overridings: Callable[[], list[str]]
) -> None:
    registry["remuda-test/B-v0"].kwargs = {"tag": 2}
    env_fns = [lambda: gymnasium.make("remuda-test/B-v0")] * 3
    with Pool(env_fns, start_method=start_method, num_workers=num_workers) as pool:
        assert pool.reset().obs[:, 0].tolist() == [2, 2, 2]
    (override,) = overridings()
    assert "remuda-test/B-v0" in override


def test_the_programs_ids_override_those_of_gymnasium_and_of_the_factories_module(
    start_method: Any, module: Any, overridings: Callable[[], list[str]], caplog: pytest.LogCaptureFixture
) -> None:
    """The factory is a function of the module, so the worker imports the module before it makes an env."""
    caplog.set_level(logging.WARNING)
    gymnasium.register("CartPole-v1", entry_point="pool_envs:CountingEnv", kwargs={"tag": 4})
    registry["remuda-test/C-v0"].kwargs = {"tag": 3}
    make = module.make
    fns = [lambda: make("remuda-test/C-v0"), lambda: make("CartPole-v1")]
    with Pool(fns, start_method=start_method, num_workers=None) as pool:
        assert pool.reset().obs[:, 0].tolist() == [3, 4]
