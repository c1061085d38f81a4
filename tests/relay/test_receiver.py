"""Records may be garbage, and log handlers may raise or use the pool."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pool_envs import Gate, counting, hooked
from programs import Script
from relayed import log, texts

from remuda import Pool


class Unloadable:
    """Cannot be unpickled."""

    def __reduce__(self) -> Any:
        return int, ("no number",)


def test_a_record_that_cannot_be_unpickled_is_dropped_and_reported(log_records: list[Any]) -> None:
    def log_something(env: Any, extra: Any) -> None:
        logging.getLogger("test.env").info("lost", extra={"mine": extra()})
        logging.getLogger("test.env").info("hello")

    with Pool(counting(1), num_workers=None) as pool:
        pool.apply(log_something, Unloadable)
    report, hello = log_records
    assert (report.name, report.levelno, hello.getMessage()) == ("remuda", logging.WARNING, "hello")
    assert "cannot be unpickled here was dropped, in place of a log record (ValueError" in report.getMessage()
    assert [type(one) for one in report.args] == [str, str]  # a handler that keeps the report does not keep the pool


@pytest.mark.parametrize("start_method", ["forkserver", "fork"])
def test_inherited_handlers_print_each_record_once(start_method: Any, script: Callable[..., Script]) -> None:
    run = script(f"""
import logging

class Prefix(logging.Filter):
    def filter(self, record):
        record.msg = "once: " + record.msg
        return True

logging.basicConfig(stream=sys.stdout, format="%(worker)d %(name)s %(message)s")
logger = logging.getLogger("test")
logger.addFilter(Prefix())
logger.addHandler(logging.StreamHandler(sys.stdout))
logging.getLogger("cut").propagate = False
logging.getLogger("cut").addHandler(logging.StreamHandler(sys.stdout))
with Pool(counting(1), start_method={start_method!r}) as pool:
    pool.apply(lambda env: (logging.getLogger("test").error("hello"), logging.getLogger("cut").error("cut")) and None)
""")
    assert run.await_end() == (0, "once: hello\n0 test once: hello\ncut\n", "")


def test_a_handler_that_raises_does_not_lose_the_batch(
    reaction: Any, log_records: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse() -> None:
        raise RuntimeError("disk full")

    reaction(refuse)
    with Pool(hooked(2, step=log("stepping")), num_workers=None) as pool:
        pool.reset()
        pool.step([0, 0])
        pool.step([0, 0])
        pool.call("pid")
    assert "RuntimeError: disk full" in capsys.readouterr().err
    assert texts(log_records) == ["stepping"]


def test_a_handler_can_call_the_pool(reaction: Any, log_records: list[Any]) -> None:
    with Pool(counting(2), num_workers=None) as pool:
        tags: list[Any] = []
        reaction(lambda: tags.append(pool.call("tag")))
        for _ in range(2):
            pool.apply(log("called"))
        assert tags == [[0, 1]]
    assert texts(log_records) == ["called"] * 4


def test_later_records_arrive_after_an_interrupted_handler(log_records: list[Any], reaction: Any) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    def log_twice(env: Any) -> None:
        for text in ("one", "two"):
            logging.getLogger("test.env").info(text)

    reaction(interrupt)
    # The pool's end, after the exception, waits until the worker has logged "two".
    with Pool(counting(1), num_workers=None) as pool, pytest.raises(KeyboardInterrupt):
        pool.apply(log_twice)
    assert texts(log_records) == ["two"]


def test_a_forked_child_of_an_env_sends_its_own_records_alone(
    log_records: list[Any], reaction: Any, tmp_path: Path
) -> None:
    """Records of the worker wait for room in the socket when it forks, because a handler holds up the first one."""
    gate = Gate(tmp_path)

    def fork(env: Any) -> None:
        for i in range(900):
            logging.getLogger("test.env").info("%d %s", i, "x" * 4000)
        pid = os.fork()
        if pid == 0:
            logging.getLogger("test.env").info("child")
            for thread in threading.enumerate():
                if thread is not threading.current_thread():
                    thread.join()  # it has sent what waited in the child
            os._exit(0)
        gate.wait()
        os.waitpid(pid, 0)

    reaction(gate.let_pass)
    with Pool(counting(1), num_workers=None) as pool:
        pool.apply(fork)
    assert sorted(text.split()[0] for text in texts(log_records)) == sorted([*map(str, range(900)), "child"])
    assert len({record.process for record in log_records}) == 2
