"""Nothing reads the `__dict__` of an env or wrapper, because that slows each later access to its attributes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from remuda import FaultPolicy, Pool


class Watched:
    """Counts reads of `__dict__`."""

    reads = 0

    def __getattribute__(self, name: str) -> Any:
        if name == "__dict__":
            type(self).reads += 1
        return object.__getattribute__(self, name)


class Env(Watched, gymnasium.Env[Any, Any]):
    observation_space = gymnasium.spaces.Box(-1, 1, (3,))
    action_space = gymnasium.spaces.Discrete(2)
    steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(3, np.float32), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        return np.zeros(3, np.float32), 1.0, self.steps == 3, False, {"steps": self.steps}


class Wrapper(Watched, gymnasium.Wrapper[Any, Any, Any, Any]):
    def reads_of_all(self) -> int:
        return type(self).reads + Env.reads


def make() -> Wrapper:
    return Wrapper(Env())


def test_a_read_is_counted() -> None:
    env = make()
    assert env.reads_of_all() == 0
    vars(env)
    assert env.reads_of_all() == 1
    Wrapper.reads = 0


@pytest.mark.parametrize("backend", ["process", "thread", "serial"])
@pytest.mark.parametrize("faults", ["raise", FaultPolicy("restart", renew_every=2)], ids=["raise", "restart"])
@pytest.mark.parametrize("seeding", ["gymnasium", "per_episode"])
def test_attributes_stay_where_they_are(backend: Any, faults: Any, seeding: Any, tmp_path: Path) -> None:
    options: Any = {"backend": backend, "num_workers": 2, "faults": faults, "seeding": seeding, "record": tmp_path}
    with Pool([make] * 4, extras={"steps": lambda env: env.get_wrapper_attr("steps")}, **options) as pool:
        pool.reset(seed=1)
        for _ in range(9):
            pool.step([0] * 4)
        pool.set_attr("difficulty", 1, lasting=True)
        assert pool.call("reads_of_all") == [0] * 4
