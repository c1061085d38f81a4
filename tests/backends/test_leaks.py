"""Pools that are created and closed repeatedly leak nothing, even if an accident ends each of them."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
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
from pool_envs import counting, hooked
from programs import collect, holdings, kill, pids_of

from remuda import EnvError, Pool, StartTimeoutError, WorkerDiedError
from remuda._engine.engine import Engine
from remuda._relay.stacks import stack_of

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
    pool = Pool(counting(2), **options)
    pool.send_reset()
    threads = [thread for thread in threading.enumerate() if thread.name.startswith("remuda")]
    del pool
    collect()
    for thread in threads:
        thread.join()


def terminate(options: Any) -> None:
    pool = Pool(counting(2), **options)
    pool.send_reset()
    pool.close(terminate=True)


def kill_a_worker(options: Any) -> None:
    with Pool(counting(2), **options) as pool:
        pool.reset()
        kill(pool, 1)
        with pytest.raises(WorkerDiedError):
            pool.step([1, 2])


def failing_build(build: Callable[[Any], Any], error: type[Exception], **more: Any) -> Callable[[Any], None]:
    def fail(options: Any) -> None:
        with pytest.raises(error):
            Pool(hooked(2, build=build), **options, **more)

    return fail


ENDS: dict[str, Callable[[Any], None]] = {
    "close": close,
    "drop without close": forget,
    "a factory raises": failing_build(raise_value_error, EnvError),
    "a factory hangs": failing_build(lambda env: signal.pause(), StartTimeoutError, start_timeout=0.5),
    "a worker dies in build": failing_build(lambda env: os.kill(os.getpid(), signal.SIGKILL), WorkerDiedError),
    "terminate": terminate,
    "a worker is killed": kill_a_worker,
}
IN_PROCESSES = [
    *(("close", method) for method in ("forkserver", "fork", "spawn")),
    *zip(list(ENDS)[1:], cycle(["fork", "forkserver"])),
    ("a worker dies in build", "spawn"),
]
IN_THIS_PROCESS = product(("close", "drop without close", "a factory raises"), ("thread", "serial"))
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
    assert not arenas()


@pytest.mark.parametrize("backend", ["process", "thread", "serial"])
@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_an_error_at_the_end_of_a_start_leaks_nothing(
    error: type[BaseException], backend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error and its traceback are kept beyond the call."""

    def fail(*_: Any) -> None:
        raise error

    close({"backend": backend})
    with nothing_left():
        for name in ("publish", "_pids"):
            with monkeypatch.context() as patch, pytest.raises(error) as raised:
                patch.setattr(Engine, name, fail)
                Pool(counting(2), backend=backend)
            assert raised.tb is not None


class Untidy(str):
    """A string that runs the garbage collector when it is pickled."""

    __slots__ = ()

    def __reduce__(self) -> Any:
        gc.collect()
        return str, (str(self),)


def test_a_forgotten_pool_may_end_while_another_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The garbage collector runs while the new pool requests a worker of the fork server, which has other workers to
    reap.
    """
    pool = Pool(counting(2))
    pids = pids_of(pool)
    monkeypatch.setattr(sys, "argv", [Untidy("program")])  # part of the request for a worker
    gc.disable()  # the collection happens only within the request
    try:
        loop: list[Any] = [pool]
        loop.append(loop)
        del pool, loop
        with Pool(counting(1)) as other:
            assert other.reset().obs[:, 0].tolist() == [0]
            collect()
            assert not any(Path(f"/proc/{pid}").exists() for pid in pids)  # the fork server has reaped them
    finally:
        gc.enable()


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


# -- stacks of workers -----------------------------------------------------------------------------------

NOT_SO_FAR = """
import os
os.memfd_create("remuda-stacks")
print("there", flush=True)
input()
"""


def test_a_worker_that_is_still_starting_has_no_stack_and_nothing_stays_open() -> None:
    with subprocess.Popen([sys.executable, "-c", NOT_SO_FAR], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"there\n"
        before = holdings()
        assert stack_of(process.pid) == ""
        assert holdings() == before
        process.communicate(b"\n")
