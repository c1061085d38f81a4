"""The pool notices faults, and mends them, while the program does not call it."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import accidents
import pytest
from accidents import once
from failing import LIMIT
from pairs import each
from pool_envs import Gate, begun, counting, hooked
from programs import Script, collect, kill

from remuda import EnvError, FaultPolicy, Pool

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="worker processes need Linux")


def healing(path: Path, start_method: str = "forkserver", **hooks: Callable[..., Any]) -> tuple[Pool, Gate]:
    """Returns a pool of two envs that have been reset, and a gate at which env 1 waits when it is built again."""
    gate = Gate(path)
    build = once(path / "built", lambda _: gate.wait(), skip=1)
    faults = FaultPolicy("restart", step_timeout=LIMIT, backoff=0)
    fns = hooked(2, build=build, **hooks)
    return begun(fns, start_method=start_method, faults=faults), gate


@each(
    accident__restarts=[(accidents.kill_myself, 1), (accidents.wait_for_ever, 1), (accidents.raise_value_error, 0)],
    start_method=["forkserver", "fork"],
)
def test_an_env_that_fails_in_a_step_is_built_again(
    accident: Any, restarts: int, start_method: str, tmp_path: Path
) -> None:
    pool, gate = healing(tmp_path, start_method, step=once(tmp_path / "failed", accident))
    with pool:
        pool.send([1, 1])
        gate.let_pass()  # the program calls nothing until the env is built again
        assert pool.recv(order="slot").truncations.tolist() == [False, True]
        assert pool.step([1, 1]).obs[1].tolist() == [1, 1, 0, -1]
        assert pool.stats().restarts == restarts


def test_a_spare_that_dies_is_replaced(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    build = once(tmp_path / "built", lambda _: gate.wait(), skip=1)
    with begun(hooked(3, (2,), 1, build=build), spares=1, faults="restart") as pool:
        kill(pool, 2)
        gate.let_pass()
        for _ in range(4):
            pool.step([1, 1])
        assert pool.stats().restarts == 1


def test_log_records_arrive_and_faults_are_logged() -> None:
    logged, messages = threading.Semaphore(0), []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            messages.append((record.getMessage(), threading.current_thread().name))
            logged.release()

    handler, loggers = Handler(), [logging.getLogger(name) for name in ("remuda", "test.env")]
    for logger in loggers:
        logger.addHandler(handler)
    try:
        with begun(hooked(2, step=lambda *_: loggers[1].warning("slow")), faults="restart", name="healer") as pool:
            pool.send([1, 1])
            assert logged.acquire()
            pool.recv()
            kill(pool, 0)
            assert logged.acquire()
    finally:
        for logger in loggers:
            logger.removeHandler(handler)
    assert [message.split(" (")[0] for message, _ in messages] == ["slow", "worker 0"]
    assert {thread for _, thread in messages} == {"healer-log"}  # the program does not call the pool meanwhile


# -- the thread ------------------------------------------------------------------------------------------


def supervisors() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("remuda")]


@pytest.mark.parametrize("backend", ["process", "thread", "serial"])
def test_the_thread_ends_with_its_pool(backend: Any) -> None:
    for is_closed in (True, False):
        pool = begun(counting(2), backend=backend)
        assert "remuda-supervisor" in supervisors()
        if is_closed:
            pool.close()
        del pool
        collect()
        assert not supervisors(), is_closed
    with pytest.raises(EnvError, match="broken"):
        Pool(hooked(2, build=accidents.raise_value_error), backend=backend)
    assert not supervisors()


def test_an_idle_worker_that_dies_is_replaced_also_in_a_pool_that_was_made_in_a_thread(tmp_path: Path) -> None:
    made: list[tuple[Pool, Gate]] = []
    thread = threading.Thread(target=lambda: made.append(healing(tmp_path)))
    thread.start()
    thread.join()
    ((pool, gate),) = made
    with pool:
        kill(pool, 1)
        gate.let_pass()
        assert pool.step([1, 1]).truncations.tolist() == [False, True]
        assert pool.step([2, 2]).obs[:, 2].tolist() == [2, 0]


def test_the_program_ends_while_a_successor_is_built(script: Callable[..., Script], tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    run = script(
        f"""
from accidents import once
gate = {gate!r}
build = once({str(tmp_path / "built")!r}, lambda _: gate.wait(), skip=1)
pool = begun(hooked(2, build=build), faults="restart")
os.kill(pool.workers[1].pid, signal.SIGKILL)
gate.await_arrival()
"""
    )
    code, output, errors = run.await_end()
    assert (code, output, len(errors.splitlines())) == (0, "", 1)  # the log record of the death
