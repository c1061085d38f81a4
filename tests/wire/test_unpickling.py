"""A value of an env that cannot be unpickled in the pool's process is an error of that env."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from pool_envs import CountingEnv, counting, hooked

from remuda import EnvError, Pool

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="worker processes need Linux")


class Unloadable:
    def __reduce__(self) -> Any:
        return int, ("no number",)


def numeric_then_unloadable(env: Any, action: Any) -> Any:
    return env.observe(), 1.0, False, False, {"bad": Unloadable(), "number": 3.0}


@pytest.mark.parametrize("faults", ["raise", "restart"])
@pytest.mark.parametrize("backend", ["process", "thread", "serial"])
def test_an_info_that_cannot_be_unpickled_is_an_env_error(backend: Any, faults: Any) -> None:
    """The step itself succeeds. Reading the info raises an error of that env."""
    with Pool(hooked(3, step=numeric_then_unloadable), backend=backend, faults=faults) as pool:
        pool.reset()
        for _ in range(3):
            batch = pool.step([1, 2, 3])
            assert batch.rewards.tolist() == [1, 1, 3]
            assert batch.infos[2] == {}
            for read in (lambda batch=batch: batch.infos[1], lambda batch=batch: batch.infos.stack()):
                with pytest.raises(EnvError, match=r"env 1 .*an info that can be unpickled.*no number") as raised:
                    read()
                assert raised.value.env_ids == (1,)
        assert pool.get_attr("total_steps") == [3, 3, 3]  # no env was rebuilt


def test_an_answer_that_cannot_be_unpickled_is_an_env_error() -> None:
    with Pool(counting(2)) as pool:
        with pytest.raises(EnvError, match=r"env 1 .*in call: expected an answer that can be unpickled.*no number"):
            pool.apply(lambda env: Unloadable() if env.tag == 1 else None)
        assert pool.call("tag") == [0, 1]


class OddMetadata(CountingEnv):
    def __init__(self) -> None:
        super().__init__()
        self.metadata = {"bad": Unloadable()}


def test_metadata_that_cannot_be_unpickled_is_an_env_error() -> None:
    with pytest.raises(EnvError, match=r"env 1 .*in build: expected spaces and metadata that can be unpickled"):
        Pool([CountingEnv, OddMetadata])
