"""Pools that are created and closed repeatedly leak nothing, even if an accident ends each of them."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pairs import each
from pool_envs import counting, hooked
from programs import holdings, kill

from remuda import EnvError, Pool, StartTimeoutError, WorkerDiedError
from remuda._engine.commands.engine import Engine

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="worker processes need Linux"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning"),
]

TIMES = {"forkserver": 3, "fork": 3, "spawn": 1}  # a certain leak occurs each time, and `make soak` finds the rare ones


def _a_factory_raises(start_method: Any) -> None:
    def refuse(env: Any) -> None:
        raise ValueError("no")

    with pytest.raises(EnvError, match="no"):
        Pool(hooked(2, build=refuse), start_method=start_method)


def _a_worker_dies_in_build(start_method: Any) -> None:
    with pytest.raises(WorkerDiedError):
        Pool(hooked(2, build=lambda env: os.kill(os.getpid(), signal.SIGKILL)), start_method=start_method)


def _a_factory_hangs(start_method: Any) -> None:
    with pytest.raises(StartTimeoutError):
        Pool(hooked(2, build=lambda env: signal.pause()), start_method=start_method, start_timeout=0.5)


def _a_worker_is_killed(start_method: Any) -> None:
    with Pool(counting(2), start_method=start_method) as pool:
        pool.reset()
        kill(pool, 1)
        with pytest.raises(WorkerDiedError):
            pool.step([1, 2])


def _drop_without_close(start_method: Any) -> None:
    pool = Pool(counting(2), start_method=start_method)
    pool.send_reset()
    del pool
    gc.collect()


def _terminate(start_method: Any) -> None:
    pool = Pool(counting(2), start_method=start_method)
    pool.send_reset()
    pool.close(terminate=True)


@each(
    start_method=TIMES,
    accident=[
        _a_factory_raises,
        _a_worker_dies_in_build,
        _a_factory_hangs,
        _a_worker_is_killed,
        _drop_without_close,
        _terminate,
    ],
)
def test_accidents_leak_nothing(accident: Callable[[Any], None], start_method: str) -> None:
    _cycle("process", start_method)  # starts the fork server, which remains
    accident(start_method)
    gc.collect()
    before = holdings()
    for _ in range(TIMES[start_method]):
        accident(start_method)
    gc.collect()
    assert holdings() == before


def _cycle(backend: Any, start_method: Any) -> None:
    with Pool(counting(2), num_workers=1, backend=backend, start_method=start_method) as pool:
        pool.reset()
        pool.step([1, 2])
        pool.call("pid")


@pytest.mark.parametrize(
    ("backend", "start_method", "times"),
    [
        ("process", "forkserver", 10),
        ("process", "fork", 5),
        ("process", "spawn", 1),
        ("thread", None, 20),
        ("serial", None, 20),
    ],
)
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_create_and_close_leak_nothing(backend: Any, start_method: Any, times: int) -> None:
    _cycle(backend, start_method)  # starts the fork server, which remains
    gc.collect()
    before = holdings()
    for _ in range(times):
        _cycle(backend, start_method)
    assert holdings() == before


@pytest.mark.parametrize("backend", ["process", "thread", "serial"])
def test_failed_starts_and_forgotten_pools_leak_nothing(backend: Any) -> None:
    _cycle(backend, None)
    gc.collect()
    before = holdings()
    for _ in range(10):
        with pytest.raises(EnvError, match="no"):
            Pool(hooked(2, build=_refuse), backend=backend)
        pool = Pool(counting(2), backend=backend)
        pool.send_reset()
        threads = [thread for thread in threading.enumerate() if thread.name.startswith("remuda")]
        del pool
        gc.collect()
        for thread in threads:
            thread.join()
    del threads
    gc.collect()
    assert holdings() == before


def _refuse(env: Any) -> None:
    raise ValueError("no")


def _step_with_an_env_that_raises(pool: Pool) -> None:
    pool.step([1, 2])


def _receive_before_send(pool: Pool) -> None:
    pool.recv()


def _send_wrong_actions(pool: Pool) -> None:
    pool.send([1, 2, 3])


def _split_while_envs_step(pool: Pool) -> None:
    pool.request_obs()
    try:
        pool.split(2)
    finally:
        pool.discard()


@pytest.mark.parametrize(
    "fail",
    [
        _step_with_an_env_that_raises,
        _receive_before_send,
        _send_wrong_actions,
        _split_while_envs_step,
    ],
)
def test_a_kept_error_holds_no_shared_memory_of_a_closed_pool(fail: Callable[[Pool], None]) -> None:
    """Programs log errors with their tracebacks. The frames of a traceback hold local variables."""

    def step(*_: Any) -> None:
        raise ValueError("no")

    with Pool(hooked(2, (0, 1), step=step)) as pool:
        pool.reset()
        with pytest.raises(BaseException) as kept:  # noqa: PT011 - errors of each kind
            fail(pool)
    del pool
    gc.collect()
    assert kept.tb is not None
    assert not [line for line in Path("/proc/self/maps").read_text().splitlines() if "/memfd:remuda" in line]


@pytest.mark.parametrize("backend", ["process", "thread", "serial"])
@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_an_error_at_the_end_of_a_start_leaks_nothing(
    error: type[BaseException], backend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error and its traceback are kept beyond the call."""

    def fail(*_: Any) -> None:
        raise error

    Pool(counting(1), backend=backend).close()
    gc.collect()
    before = holdings()
    for name in ("publish", "_pids"):
        with monkeypatch.context() as patch, pytest.raises(error) as raised:
            patch.setattr(Engine, name, fail)
            Pool(counting(2), backend=backend)
        assert holdings() == before
        assert raised.tb is not None
