"""The worker never reads the `__dict__` of an env or wrapper, because that slows later accesses to its attributes."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from pairs import pairwise
from pool_envs import CountingEnv

from remuda import FaultPolicy, Pool


class Watched:
    """A class that counts reads of its instances' `__dict__`."""

    reads = 0

    def __getattribute__(self, name: str) -> Any:
        if name == "__dict__":
            type(self).reads += 1
        return object.__getattribute__(self, name)


class Env(Watched, CountingEnv):
    def __init__(self) -> None:
        super().__init__(length=3)


class Wrapper(Watched, gymnasium.Wrapper[Any, Any, Any, Any]):
    def total_reads(self) -> int:
        return type(self).reads + Env.reads


def make() -> Wrapper:
    return Wrapper(Env())


def test_a_read_of_dict_is_counted() -> None:
    env = make()
    assert env.total_reads() == 0
    vars(env)
    assert env.total_reads() == 1
    Wrapper.reads = 0


@pairwise(
    backend=["process", "thread", "serial"],
    faults=["raise", FaultPolicy("restart", renew_every=2)],
    seeding=["gymnasium", "per_episode"],
)
def test_a_pool_reads_no_dict(backend: Any, faults: Any, seeding: Any, tmp_path: Path) -> None:
    options: Any = {"backend": backend, "num_workers": 2, "faults": faults, "seeding": seeding, "crash_dir": tmp_path}
    with Pool([make] * 4, extras={"steps": lambda env: env.get_wrapper_attr("steps")}, **options) as pool:
        pool.reset(seed=1)
        for _ in range(9):
            pool.step([0] * 4)
        pool.set_attr("difficulty", 1, lasting=True)
        assert pool.call("total_reads") == [0] * 4


class Lazy(CountingEnv):
    """An env with attribute names by which remuda recognises simulators. Reading these properties fails the test."""

    @property
    def env(self) -> Any:
        raise AssertionError("read too early")

    @cached_property
    def model(self) -> Any:
        raise AssertionError("read too early")

    @cached_property
    def data(self) -> Any:
        raise AssertionError("read too early")


@pytest.mark.parametrize("backend", ["process", "serial"])
def test_properties_of_envs_are_not_read(backend: Any) -> None:
    with Pool([Lazy] * 2, backend=backend, num_workers=2) as pool:
        pool.reset()
        assert [state.steps for state in pool.get_state(state_fns="attributes")] == [0, 0]
