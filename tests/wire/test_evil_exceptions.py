"""Hostile exceptions and objects from an env are at worst a fault of that env: the pool's process neither ends nor
hangs."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from odd_exceptions import EVIL, EndsWhoUnpickles
from pairs import each
from pool_envs import CountingEnv, counting, hooked

from remuda import EnvError, Pool

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="worker processes need Linux")

BACKENDS = ["process", "thread", "serial"]


@each(evil=EVIL, backend=BACKENDS)
def test_exceptions_with_raising_attributes_are_reported(backend: Any, evil: str) -> None:
    """Their text, class, traceback and notes raise when they are read."""

    def step(env: Any, _: Any) -> None:
        raise EVIL[evil]("hello")

    with Pool(hooked(2, step=step), backend=backend) as pool:
        pool.reset()
        with pytest.raises(EnvError, match=rf"env 1 \(worker 1\) raised odd_exceptions.{evil} in step") as raised:
            pool.step([1, 2])
        assert raised.value.env_ids == (1,)
        pool.discard()
        pool.reset(env_ids=[1])
        assert pool.call("tag") == [0, 1]  # the worker is unaffected


@pytest.mark.parametrize("evil", EVIL)
def test_an_env_with_a_hostile_exception_is_restarted(evil: str) -> None:
    def step(env: Any, _: Any) -> None:
        raise EVIL[evil]("hello")

    with Pool(hooked(2, step=step), faults="restart") as pool:
        pool.reset()
        batch = pool.step([1, 2])
        assert batch.truncated.tolist() == [False, True]
        assert batch.infos[1]["fault"].kind == "exception"
        assert pool.stats().restarts == 0


@each(evil=EVIL, backend=BACKENDS)
def test_exceptions_with_raising_attributes_in_build_are_reported(backend: Any, evil: str) -> None:
    def build(env: Any) -> None:
        raise EVIL[evil]("hello")

    with pytest.raises(EnvError, match=rf"env 1 .*raised odd_exceptions.{evil} in build"):
        Pool(hooked(2, build=build), backend=backend)


# -- objects that end the process that unpickles them -----------------------------------------------------


def numeric_then_evil(env: Any, action: Any) -> Any:
    return env.observe(), 1.0, False, False, {"evil": EndsWhoUnpickles(), "number": 3.0}


@pytest.mark.parametrize("faults", ["raise", "restart"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_an_info_that_exits_when_unpickled_is_an_env_error(backend: Any, faults: Any) -> None:
    """The step itself succeeds. Reading the info raises an error of that env."""
    with Pool(hooked(3, step=numeric_then_evil), backend=backend, faults=faults) as pool:
        pool.reset()
        for _ in range(3):
            batch = pool.step([1, 2, 3])
            assert batch.reward.tolist() == [1, 1, 3]
            assert batch.infos[2] == {}
            for read in (lambda batch=batch: batch.infos[1], lambda batch=batch: batch.infos.stack()):
                with pytest.raises(EnvError, match=r"env 1 .*an info that can be unpickled.*SystemExit") as raised:
                    read()
                assert raised.value.env_ids == (1,)
        assert pool.get_attr("total_steps") == [3, 3, 3]  # no env was rebuilt


def test_an_answer_that_exits_when_unpickled_is_an_env_error() -> None:
    with Pool(counting(2)) as pool:
        with pytest.raises(EnvError, match=r"env 1 .*in call: expected an answer that can be unpickled.*SystemExit"):
            pool.apply(lambda env: EndsWhoUnpickles() if env.tag == 1 else None)
        assert pool.call("tag") == [0, 1]


class EvilMetadata(CountingEnv):
    def __init__(self) -> None:
        super().__init__()
        self.metadata = {"evil": EndsWhoUnpickles()}


@pytest.mark.parametrize("start_method", ["forkserver", "fork"])
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_metadata_that_exits_when_unpickled_is_an_env_error(start_method: Any) -> None:
    with pytest.raises(EnvError, match=r"env 1 .*in build: expected spaces and metadata that can be unpickled"):
        Pool([CountingEnv, EvilMetadata], start_method=start_method)


def test_ctrl_c_during_unpickling_is_raised() -> None:
    def interrupted(env: Any, action: Any) -> Any:
        return env.observe(), 1.0, False, False, {"evil": EndsWhoUnpickles(KeyboardInterrupt)}

    with Pool(hooked(2, step=interrupted)) as pool:
        pool.reset()
        batch = pool.step([1, 2])
        with pytest.raises(KeyboardInterrupt):
            batch.infos.stack()
