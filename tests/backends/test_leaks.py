"""Pools that are created and closed repeatedly leak nothing, even if an accident ends each of them."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle, product
from pathlib import Path
from typing import Any

import pytest
from accidents import raise_value_error
from arena_views import arenas
from pool_envs import CountingEnv, DiceEnv, counting, hooked
from programs import collect, holdings, kill

from remuda import EnvError, Pool, SpaceMismatchError, StartTimeoutError, WorkerDiedError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="worker processes need Linux")


@contextmanager
def nothing_left() -> Iterator[None]:
    collect()
    before = holdings()
    yield
    collect()
    assert holdings() == before


def close(options: Any) -> None:
    with Pool(counting(2), num_workers=1, **options) as pool:
        pool.reset()
        pool.step([1, 2])
        pool.call("pid")


def forget(options: Any) -> None:
    pool = Pool(counting(2), num_workers=2, **options)
    pool.send_reset()
    threads = [thread for thread in threading.enumerate() if thread.name.startswith("remuda")]
    del pool
    collect()
    for thread in threads:
        thread.join()


def terminate(options: Any) -> None:
    pool = Pool(counting(2), num_workers=2, **options)
    pool.send_reset()
    pool.close(terminate=True)


def kill_a_worker(options: Any) -> None:
    with Pool(counting(2), num_workers=2, **options) as pool:
        pool.reset()
        kill(pool, 1)
        with pytest.raises(WorkerDiedError):
            pool.step([1, 2])


def envs_do_not_fit(options: Any) -> None:
    with pytest.raises(SpaceMismatchError):
        Pool([CountingEnv, DiceEnv], num_workers=2, **options)


def failing_build(build: Callable[[Any], Any], error: type[Exception], **more: Any) -> Callable[[Any], None]:
    def fail(options: Any) -> None:
        with pytest.raises(error):
            Pool(hooked(2, build=build), **{"num_workers": 2, **options, **more})

    return fail


ENDS: dict[str, Callable[[Any], None]] = {
    "close": close,
    "drop without close": forget,
    "a factory raises": failing_build(raise_value_error, EnvError),
    "a factory hangs": failing_build(lambda env: signal.pause(), StartTimeoutError, start_timeout=0.5),
    "envs do not fit": envs_do_not_fit,
    "a worker dies in build": failing_build(lambda env: os.kill(os.getpid(), signal.SIGKILL), WorkerDiedError),
    "terminate": terminate,
    "a worker is killed": kill_a_worker,
}
IN_PROCESSES = [
    *(("close", method) for method in ("forkserver", "fork", "spawn")),
    *zip(list(ENDS)[1:], cycle(["fork", "forkserver"])),
    ("a worker dies in build", "spawn"),
]
IN_THIS_PROCESS = product(("close", "drop without close", "a factory raises", "envs do not fit"), ("thread", "serial"))
# A certain leak occurs each time, and `make soak` finds the rare ones.
TIMES = {"forkserver": 3, "fork": 3, "spawn": 1, "thread": 10, "serial": 10}


@pytest.mark.parametrize(("end", "where"), [*IN_PROCESSES, *IN_THIS_PROCESS])
def test_pools_that_end_leak_nothing(end: str, where: str, tmp_path: Path) -> None:
    """The workers' output goes to memory or files, so that these must not leak either."""
    options: dict[str, Any] = {"backend": where}
    if where in ("forkserver", "fork", "spawn"):
        outputs = {"fork": "capture", "forkserver": tmp_path, "spawn": "inherit"}
        options = {"start_method": where, "worker_output": outputs[where]}
    ENDS[end](options)  # also starts the fork server, which remains
    with nothing_left():
        for _ in range(TIMES[where]):
            ENDS[end](options)


# -- exceptions that envs keep, whose tracebacks hold the worker's frames -----------------------------------

has_raised = threading.Event()


def keep(env: Any, _: Any) -> None:
    env.kept = raised_and_caught()


def raised_and_caught() -> BaseException:
    try:
        raise ValueError("to be kept")
    except ValueError as error:
        has_raised.set()
        return error


def function_that_keeps() -> Any:
    def keep(env: Any, kept: list[BaseException] = []) -> int:  # noqa: B006 - the list belongs to the function
        kept.append(raised_and_caught())
        return 0

    return keep


def fail(_: Any) -> None:
    has_raised.set()
    raise ValueError("not asked for")


@pytest.mark.parametrize("backend", ["thread", "serial"])
@pytest.mark.parametrize(
    "make",
    [
        lambda **options: Pool(hooked(2, step=keep), **options),
        lambda **options: Pool(hooked(2), extras={"kept": function_that_keeps()}, **options),
        lambda **options: Pool(hooked(2, length=1, autoreset=fail), resets_ahead=True, **options),
    ],
    ids=["an env keeps it", "a function of extras keeps it", "an unused reset in advance has failed"],
)
def test_an_exception_is_freed_with_the_pool(make: Any, backend: Any) -> None:
    has_raised.clear()
    with make(backend=backend) as pool:
        pool.reset()
        pool.step([0, 0])
        has_raised.wait()
    del pool
    collect()
    assert not arenas()
