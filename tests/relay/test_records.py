"""Log records of workers arrive unchanged, and the logging of the pool's process handles them."""

from __future__ import annotations

import io
import logging
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from odd_exceptions import NeedsArguments
from pool_envs import Gate, counting, gated, hooked
from relayed import log, texts

from remuda import Pool

# -- log records -----------------------------------------------------------------------------------------


def test_records_of_every_phase_arrive(start_method: Any, log_records: list[Any]) -> None:
    phases = ("build", "reset", "step", "call", "close")
    fns = hooked(4, (1, 2), **{phase: log(phase) for phase in phases})
    with Pool(fns, num_workers=2, start_method=start_method) as pool:
        assert texts(log_records) == ["build"] * 2  # already
        pids = [worker.pid for worker in pool.workers]
        pool.reset()
        pool.step([0] * 4)
        pool.call("poke")
        # records arrive before the result that they belong to
        assert sorted(texts(log_records)) == sorted([*phases[:-1]] * 2)
    arrived = [(r.worker, r.env, r.process, r.getMessage()) for r in log_records if r.name == "test.env"]
    for worker, env in ((0, 1), (1, 2)):
        assert [t for t in arrived if t[0] == worker] == [(worker, env, pids[worker], phase) for phase in phases]


def test_a_record_keeps_its_fields(log_records: list[Any]) -> None:
    def log_something(env: Any) -> None:
        logging.getLogger("test.a.b").warning("%s and %d", "this", 5, extra={"mine": [1, 2]}, stack_info=True)

    with Pool(counting(2), num_workers=1) as pool:
        pool.apply(log_something, env_ids=[1])
    (record,) = log_records
    assert (record.name, record.levelno, record.levelname) == ("test.a.b", logging.WARNING, "WARNING")
    assert (record.msg, record.args, record.getMessage()) == ("this and 5", (), "this and 5")
    assert (record.funcName, record.pathname, record.threadName) == ("log_something", __file__, "MainThread")
    assert (record.worker, record.env, record.mine) == (0, 1, [1, 2])
    assert "in log_something" in record.stack_info


def test_workers_use_the_levels_of_the_pools_process(
    start_method: Any, log_records: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    def look(env: Any) -> Any:
        names = ("", "test.loud", "test.loud.below", "test.quiet", "test.env")
        for name in names:
            logging.getLogger(name).info(name)
        return [logging.getLogger(name).isEnabledFor(logging.INFO) for name in names]

    caplog.set_level(logging.WARNING)
    caplog.set_level(logging.DEBUG, "test.loud")
    caplog.set_level(logging.CRITICAL, "test.quiet")
    with Pool(counting(1), start_method=start_method, num_workers=None) as pool:
        assert pool.apply(look) == [[False, True, True, False, False]]
        assert [record.name for record in log_records] == ["test.loud", "test.loud.below"]
        log_records.clear()
        caplog.set_level(logging.ERROR, "test.loud.below")  # the receiving side applies levels that are set later
        pool.apply(look)
        assert [record.name for record in log_records] == ["test.loud"]


def test_disabled_logging_is_disabled_in_workers(log_records: list[Any]) -> None:
    logging.disable(logging.ERROR)
    try:
        with Pool(counting(1), num_workers=None) as pool:
            assert pool.apply(lambda env: logging.getLogger("x").isEnabledFor(logging.ERROR)) == [False]
            assert pool.apply(lambda env: logging.getLogger("x").isEnabledFor(logging.CRITICAL)) == [True]
    finally:
        logging.disable(logging.NOTSET)


def test_arguments_and_exceptions_become_text_and_extras_are_pickled_or_text(log_records: list[Any]) -> None:
    def log_something(env: Any, stubborn: Any) -> None:
        logger = logging.getLogger("test.env")
        messages: list[Any] = [("%s", np.arange(3)), ("%(a)s %(b)s", {"a": 1, "b": 2}), ("%s", threading.Lock())]
        messages += [("%s", stubborn(3, "why")), (ValueError("a message that is no text"),)]
        for message in [*messages, ("100% and a lone \udc80 surrogate",)]:
            logger.info(*message)
        logger.info("extra", extra={"lock": threading.Lock(), "array": np.arange(2), "signal": signal.SIGTERM})
        try:
            raise LookupError("lost")
        except LookupError:
            logger.exception("it failed")

    with Pool(counting(1), num_workers=None) as pool:
        pool.apply(log_something, NeedsArguments)
    array, mapping, lock, needs, value, odd, extra, failed = log_records
    formatted = [record.getMessage() for record in (array, mapping, needs, value)]
    assert formatted == ["[0 1 2]", "1 2", "why (3)", "a message that is no text"]
    assert all(record.args == () for record in log_records)
    assert lock.getMessage().startswith("<unlocked _thread.lock")
    assert odd.getMessage() == "100% and a lone \udc80 surrogate"
    assert extra.lock.startswith("<unlocked _thread.lock")
    assert (extra.array.tolist(), extra.signal) == ([0, 1], signal.SIGTERM)
    assert (failed.exc_info, failed.levelno) == (None, logging.ERROR)
    text = logging.Formatter("%(message)s").format(failed)
    assert text.startswith("it failed\nTraceback (most recent call last)")
    assert text.endswith("LookupError: lost")


def test_a_record_that_cannot_be_formatted_is_dropped(log_records: list[Any]) -> None:
    """`logging` reports the error in the worker."""

    def log_something(env: Any) -> None:
        logging.getLogger("test.env").info("%d %d", object())  # noqa: PLE1206 - the wrong format is intended
        logging.getLogger("test.env").info("next")

    with Pool(counting(1), worker_output="capture", num_workers=None) as pool:
        pool.apply(log_something)
        assert "--- Logging error ---" in pool.workers[0].output()
    assert texts(log_records) == ["next"]


def test_records_of_other_threads_of_a_worker_arrive(log_records: list[Any], tmp_path: Path) -> None:
    """Such a record has the env that is stepping; none if the worker is idle."""
    gate, before, after = (Gate(tmp_path, name) for name in ("gate", "before", "after"))

    def start(env: Any) -> None:
        def log_twice() -> None:
            for _ in range(2):
                before.wait()
                logging.getLogger("test.env").info("from a thread")
                after.wait()

        threading.Thread(target=log_twice, name="thinker").start()

    with Pool(gated([None, gate]), num_workers=1) as pool:
        pool.reset()
        pool.apply(start, env_ids=[0])
        for is_stepping in (False, True):
            if is_stepping:
                pool.send([0, 0])
                gate.await_arrival()
            before.let_pass()
            after.let_pass()
        gate.open()
        pool.recv()
        pool.call("pid")
    found = [(record.worker, record.env, record.threadName, record.getMessage()) for record in log_records]
    assert found == [(0, env, "thinker", "from a thread") for env in (None, 1)]


def test_loggers_without_propagation_send_no_records(log_records: list[Any]) -> None:
    """Records still reach the handlers that the env has added."""

    def log_something(env: Any) -> str:
        own = io.StringIO()
        logger = logging.getLogger("test.cut")
        logger.addHandler(logging.StreamHandler(own))
        logging.basicConfig(level=logging.CRITICAL)  # has no effect if the root logger has a handler
        logger.warning("both")
        logger.propagate = False
        logger.warning("its own")
        return own.getvalue()

    with Pool(counting(1), worker_output="capture", num_workers=None) as pool:
        assert pool.apply(log_something) == ["both\nits own\n"]
        assert pool.workers[0].output() == ""
    assert [record.getMessage() for record in log_records] == ["both"]
