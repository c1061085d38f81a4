"""Pools that are created and closed repeatedly leak nothing, even if an accident ends each of them."""

from __future__ import annotations

import itertools
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from accidents import raise_value_error
from pool_envs import counting, hooked
from programs import collect, holdings, kill

from remuda import EnvError, Pool, StartTimeoutError, WorkerDiedError
from remuda._engine.engine import Engine

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="worker processes need Linux")

TIMES = {"forkserver": 3, "fork": 3, "spawn": 1}  # a certain leak occurs each time, and `make soak` finds the rare ones


@contextmanager
def nothing_left(backend: Any, start_method: Any = None) -> Iterator[None]:
    cycle(backend, start_method)  # starts the fork server, which remains
    collect()
    before = holdings()
    yield
    collect()
    assert holdings() == before


def cycle(backend: Any, start_method: Any) -> None:
    with Pool(counting(2), num_workers=1, backend=backend, start_method=start_method) as pool:
        pool.reset()
        pool.step([1, 2])
        pool.call("pid")


def forget(backend: Any, start_method: Any = None) -> None:
    pool = Pool(counting(2), backend=backend, start_method=start_method)
    pool.send_reset()
    threads = [thread for thread in threading.enumerate() if thread.name.startswith("remuda")]
    del pool
    collect()
    for thread in threads:
        thread.join()


def terminate(backend: Any, start_method: Any) -> None:
    pool = Pool(counting(2), backend=backend, start_method=start_method)
    pool.send_reset()
    pool.close(terminate=True)


def kill_a_worker(backend: Any, start_method: Any) -> None:
    with Pool(counting(2), backend=backend, start_method=start_method) as pool:
        pool.reset()
        kill(pool, 1)
        with pytest.raises(WorkerDiedError):
            pool.step([1, 2])


def failing_build(build: Callable[[Any], Any], error: type[Exception], **options: Any) -> Callable[[Any, Any], None]:
    def fail(backend: Any, start_method: Any) -> None:
        with pytest.raises(error):
            Pool(hooked(2, build=build), backend=backend, start_method=start_method, **options)

    return fail


refuse = failing_build(raise_value_error, EnvError)
ACCIDENTS = {
    "a factory raises": refuse,
    "a worker dies in build": failing_build(lambda env: os.kill(os.getpid(), signal.SIGKILL), WorkerDiedError),
    "a factory hangs": failing_build(lambda env: signal.pause(), StartTimeoutError, start_timeout=0.5),
    "a worker is killed": kill_a_worker,
    "drop without close": forget,
    "terminate": terminate,
}


@pytest.mark.parametrize(
    ("accident", "start_method"),
    [*zip(ACCIDENTS, itertools.cycle(["fork", "forkserver"])), ("a worker dies in build", "spawn")],
)
def test_accidents_leak_nothing(accident: str, start_method: str) -> None:
    ACCIDENTS[accident]("process", start_method)
    with nothing_left("process", start_method):
        for _ in range(TIMES[start_method]):
            ACCIDENTS[accident]("process", start_method)


@pytest.mark.parametrize(
    ("backend", "start_method", "times"),
    [*(("process", method, 2 * times) for method, times in TIMES.items()), ("thread", None, 20), ("serial", None, 20)],
)
def test_create_and_close_leak_nothing(backend: Any, start_method: Any, times: int) -> None:
    with nothing_left(backend, start_method):
        for _ in range(times):
            cycle(backend, start_method)


@pytest.mark.parametrize("backend", ["thread", "serial"])
def test_failed_starts_and_forgotten_pools_leak_nothing(backend: Any) -> None:
    with nothing_left(backend):
        for _ in range(10):
            refuse(backend, None)
            forget(backend)


def split_while_envs_step(pool: Pool) -> None:
    pool.request_obs()
    try:
        pool.split(2)
    finally:
        pool.discard()


@pytest.mark.parametrize(
    "fail",
    [
        lambda pool: pool.step([1, 2]),  # an env raises
        lambda pool: pool.recv(),  # without a send
        lambda pool: pool.send([1, 2, 3]),
        split_while_envs_step,
    ],
)
def test_a_kept_error_holds_no_shared_memory_of_a_closed_pool(fail: Callable[[Pool], None]) -> None:
    """Programs log errors with their tracebacks. The frames of a traceback hold local variables."""
    with Pool(hooked(2, (0, 1), step=raise_value_error)) as pool:
        pool.reset()
        with pytest.raises(BaseException) as kept:  # noqa: PT011 - errors of each kind
            fail(pool)
    del pool
    collect()
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

    with nothing_left(backend):
        for name in ("publish", "_pids"):
            with monkeypatch.context() as patch, pytest.raises(error) as raised:
                patch.setattr(Engine, name, fail)
                Pool(counting(2), backend=backend)
            assert raised.tb is not None
