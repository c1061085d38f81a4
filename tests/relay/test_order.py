"""Log records of workers arrive before the result that they belong to, and also while the pool waits."""

from __future__ import annotations

import logging
import os
import signal
import warnings
from pathlib import Path
from typing import Any

import pytest
from pool_envs import Gate, hooked
from programs import kill, pids_of, stopped
from relayed import log, texts

from remuda import EnvError, Pool, WorkerDiedError


@pytest.mark.parametrize("phase", ["build", "step"])
def test_records_arrive_while_the_pool_waits(phase: str, reaction: Any, tmp_path: Path) -> None:
    """The handler lets the env continue, so no result can come before the record is handled."""
    gate = Gate(tmp_path)

    def wait(*_: Any) -> None:
        logging.getLogger("test.env").info("waiting for you")
        gate.wait()

    reaction(gate.let_pass)
    with Pool(hooked(2, (0,), **{phase: wait}), start_timeout=None, num_workers=None) as pool:
        pool.reset()
        assert pool.step([1, 2]).rewards.tolist() == [1, 2]


def test_a_worker_that_logs_without_end_delays_no_other_env(tmp_path: Path) -> None:
    quiet = tmp_path / "quiet"

    def talk(env: Any, action: Any) -> None:
        while not quiet.exists():
            logging.getLogger("test.env").info("still here")

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            self.format(record)

    logger = logging.getLogger("test.env")
    logger.addHandler(Handler())
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        with Pool(hooked(2, (0,), step=talk), num_workers=None, log_advice=False) as pool:
            pool.reset()
            pool.send([0, 5])
            for _ in range(20):
                batch = pool.recv(min_envs=1)
                assert batch.env_ids.tolist() == [1]
                pool.send([5], [1])
            pool.recv(min_envs=1)
            quiet.touch()
            assert pool.recv().env_ids.tolist() == [0]
    finally:
        logger.handlers.clear()
        logger.setLevel(logging.NOTSET)
        logger.propagate = True


def test_records_arrive_even_if_results_keep_coming(log_records: list[Any]) -> None:
    """The fast path of `recv` does not read records, but they are read in time."""
    with Pool(hooked(2, step=log("stepping")), num_workers=None) as pool:
        pool.reset()
        steps = 0
        while not log_records:  # the watchdog limits this loop
            pool.step([0, 0])
            steps += 1
    assert texts(log_records) == ["stepping"] * steps


def test_records_arrive_before_an_answer_that_needs_no_wait(log_records: list[Any]) -> None:
    with Pool(hooked(2, call=log("poked")), num_workers=1) as pool:
        pool.reset()
        for i in range(1, 40):
            call = pool.call_async("poke")
            while not call.done:  # the watchdog limits this loop
                pass
            call.result()
            assert texts(log_records) == ["poked"] * i


def test_records_and_warnings_of_a_step_arrive_before_its_result(log_records: list[Any]) -> None:
    def step(env: Any, action: Any) -> None:
        logging.getLogger("test.env").info("%d of %d", env.total_steps, env.tag)
        warnings.warn(f"{env.total_steps} of {env.tag}", stacklevel=1)

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        pool = Pool(hooked(4, range(4), step=step), num_workers=2)
    with pool:
        pool.reset()
        for i in range(1, 40):
            log_records.clear()
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                pool.step([0] * 4)
            expected = sorted(f"{i} of {env}" for env in range(4))
            assert sorted(texts(log_records)) == expected
            assert sorted(str(one.message) for one in caught) == expected


@pytest.mark.parametrize("phase", ["step", "close"])
def test_records_that_wait_for_the_socket_arrive_before_the_result_or_the_end(
    phase: str, log_records: list[Any]
) -> None:
    """Records that do not fit into the socket wait in the worker until the pool has read earlier ones."""

    def flood(env: Any, *_: Any) -> None:
        for i in range(220):
            logging.getLogger("test.env").info("%d %d %s", env.tag, i, "x" * 4000)

    hooks: Any = {phase: flood}
    with Pool(hooked(3, range(3), **hooks), num_workers=None) as pool:
        pool.reset()
        for _ in range(3):
            log_records.clear()
            pool.step([0] * 3)
            assert phase == "close" or len(texts(log_records)) == 660
    arrived = [tuple(map(int, text.split()[:2])) for text in texts(log_records)]
    assert sorted(arrived, key=lambda one: one[0]) == [(env, i) for env in range(3) for i in range(220)]


def test_a_worker_killed_before_its_records_were_sent_delays_no_other(log_records: list[Any], tmp_path: Path) -> None:
    """Records that wait in a stopped worker are never sent. The pool must not wait for them."""
    gate = Gate(tmp_path)

    def step(*_: Any) -> None:
        for i in range(1000):
            logging.getLogger("test.env").info("lost %d", i)
        gate.wait()

    with Pool(hooked(2, step=step), num_workers=None) as pool:
        pool.reset()
        pool.send([0, 0])
        gate.await_arrival()
        with stopped(pids_of(pool)[1]):
            for i in range(1, 4):
                assert pool.recv(min_envs=1).env_ids.tolist() == [0]
                pool.send([i], [0])
            kill(pool, 1)
        with pytest.raises(WorkerDiedError):
            while True:
                pool.recv(min_envs=2)


@pytest.mark.parametrize(("phase", "error"), [("build", EnvError), ("step", EnvError), ("step", WorkerDiedError)])
def test_records_arrive_before_an_error(phase: str, error: type[Exception], log_records: list[Any]) -> None:
    def fail(*_: Any) -> None:
        logging.getLogger("test.env").info("about to fail")
        if error is WorkerDiedError:
            os.kill(os.getpid(), signal.SIGKILL)
        raise ValueError("failed")

    hooks: Any = {phase: fail}
    with pytest.raises(error), Pool(hooked(2, **hooks), num_workers=None) as pool:
        pool.reset()
        pool.step([0, 0])
    assert [(r.worker, r.env, r.getMessage()) for r in log_records] == [(1, 1, "about to fail")]


@pytest.mark.parametrize("terminate", [True, False])
def test_records_arrive_if_a_pool_is_terminated_or_garbage_collected(terminate: bool, log_records: list[Any]) -> None:
    pool: Any = Pool(hooked(2, reset=log("reset")), num_workers=None)
    pool.send_reset()
    while pool._engine.running.slots.ready(0) < 2:
        pool._engine.running.hub.wait(2, -1, 0)
    if terminate:
        pool.close(terminate=True)
    del pool
    assert texts(log_records) == ["reset"]
