"""Datagrams may be garbage, and log handlers may raise or use the pool."""

from __future__ import annotations

import logging
import os
import pickle
import socket
from collections.abc import Callable
from typing import Any

import pytest
from pool_envs import counting, hooked
from programs import Script
from relayed import log, texts

from remuda import Pool
from remuda._relay.receiver import Relay
from remuda._relay.records import dump_record

# -- datagrams that are no records -----------------------------------------------------------------------


class Unloadable:
    """Cannot be unpickled."""

    def __reduce__(self) -> Any:
        return int, ("no number",)


def send_to_relay(*datagrams: bytes) -> Relay:
    """Returns a relay to which these datagrams were sent."""
    relay = Relay()
    with socket.socket(fileno=os.dup(relay.sending_end)) as other:
        for datagram in datagrams:
            other.send(datagram)
    return relay


def close_and_drain(relay: Relay) -> None:
    relay.close()
    relay.drain()


def datagram(**attributes: Any) -> bytes:
    record = logging.makeLogRecord({"name": "test.env", "levelno": 20, "msg": "hello", **attributes})
    return dump_record(record, 0, 0)


@pytest.mark.parametrize("bad", [b"hello", datagram()[:-20], datagram(extra=Unloadable()), pickle.dumps(5)])
def test_a_datagram_that_is_no_record_is_dropped_and_reported(
    bad: bytes, log_records: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    close_and_drain(send_to_relay(bad, datagram()))
    *reports, hello = log_records
    assert hello.getMessage() == "hello"
    assert [(report.name, report.levelno) for report in reports] == [("remuda", logging.WARNING)] * len(reports)
    said = "".join(report.getMessage() for report in reports) or capsys.readouterr().err
    assert ("TypeError" if bad == pickle.dumps(5) else "cannot be unpickled here was dropped") in said


# -- the parent's handlers -------------------------------------------------------------------------------


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
    with Pool(hooked(2, step=log("stepping"))) as pool:
        pool.reset()
        pool.step([0, 0])
        pool.step([0, 0])
        pool.call("pid")
    assert "RuntimeError: disk full" in capsys.readouterr().err
    assert texts(log_records) == ["stepping"]


def test_a_handler_can_call_the_pool(reaction: Any, log_records: list[Any]) -> None:
    with Pool(counting(2)) as pool:
        tags: list[Any] = []
        reaction(lambda: tags.append(pool.call("tag")))
        for _ in range(2):
            pool.apply(log("called"))
        assert tags == [[0, 1]]
    assert texts(log_records) == ["called"] * 4


def test_later_records_arrive_after_an_interrupted_handler(log_records: list[Any], reaction: Any) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    relay = send_to_relay(datagram(msg="one"), datagram(msg="two"))
    reaction(interrupt)
    with pytest.raises(KeyboardInterrupt):
        relay.drain()
    relay.close()
    close_and_drain(relay)
    assert texts(log_records) == ["two"]


def test_records_of_a_forked_child_of_an_env_arrive(log_records: list[Any]) -> None:
    def fork(env: Any) -> None:
        logging.getLogger("test.env").info("parent")
        pid = os.fork()
        if pid == 0:
            logging.getLogger("test.env").info("child")
            os._exit(0)
        os.waitpid(pid, 0)

    with Pool(counting(1)) as pool:
        pool.apply(fork)
    assert texts(log_records) == ["parent", "child"]
    assert log_records[0].process != log_records[1].process
