"""Datagrams from workers may be forged, and log handlers may raise or use the pool."""

from __future__ import annotations

import json
import logging
import os
import pickle
import socket
import subprocess
import sys
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pool_envs import counting, hooked
from relayed import log, texts

from remuda import Pool
from remuda._relay.receiver import Relay
from remuda._relay.records import dump_record
from remuda._relay.sender import DatagramSender

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="worker processes need Linux"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning"),  # newer Pythons warn about a fork
]
START_METHODS = ("forkserver", "spawn", "fork")


# -- forged datagrams ------------------------------------------------------------------------------------


class Trap:
    """Touches a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def record_datagram(**changes: Any) -> bytes:
    """Returns a log record as a worker sends it, with these changes."""
    record = json.loads(dump_record(logging.makeLogRecord({"name": "test.env", "levelno": 20, "msg": "hello"}), 0, 0))
    return json.dumps({**record, **changes}).encode()


def with_attribute(**attributes: Any) -> bytes:
    return record_datagram(attributes={**json.loads(record_datagram())["attributes"], **attributes})


def warned(category: list[str], text: str = "odd") -> bytes:
    warning = {"kind": "warned", "worker": 0, "env": 0, "categories": [category], "text": text}
    return json.dumps({**warning, "filename": __file__, "lineno": 1, "module": "m"}).encode()


FORGERIES = {
    "no json": b"hello",
    "deep": b"[" * 50_000,
    "digits": b'{"kind":"logged","worker":' + b"9" * 50_000 + b"}",
    "kind": record_datagram(kind="pickled"),
    "kind of another type": record_datagram(kind=["logged"]),
    "more": record_datagram(more=1),
    "worker": record_datagram(worker="0"),
    "env": record_datagram(env=-1),
    "message": record_datagram(message=["%s"]),
    "attributes": record_datagram(attributes=[1]),
    "format": with_attribute(msg="%1000000000d"),
    "exc_info": with_attribute(exc_info=True),
    "method": with_attribute(getMessage="mine"),
    "name": with_attribute(name=None),
    "level": with_attribute(levelno="high"),
    "created": with_attribute(created="then"),
    "text": with_attribute(exc_text=5),
    "nested": with_attribute(mine=[[[[[[1]]]]]]),
    "integer": with_attribute(mine=1 << 64),
    "category": warned(["warnings"]),
    "warning's text": warned(["builtins", "UserWarning"], 5),  # type: ignore[arg-type]
}


def send_to_relay(*datagrams: bytes) -> None:
    relay = Relay()
    with socket.socket(fileno=os.dup(relay.sending_end)) as other:
        for datagram in datagrams:
            other.send(datagram)
    relay.close()


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_forged_datagram_is_dropped_and_reported_once(forgery: str, log_records: list[Any]) -> None:
    with warnings.catch_warnings(record=True) as caught:
        send_to_relay(FORGERIES[forgery], record_datagram(), FORGERIES[forgery])
    report, hello = log_records
    assert (report.name, report.levelno) == ("remuda", logging.WARNING)
    assert "what no worker would, and it was dropped" in report.getMessage()
    assert hello.getMessage() == "hello"
    assert caught == []


def test_nothing_from_a_datagram_is_unpickled(log_records: list[Any], tmp_path: Path) -> None:
    trap = tmp_path / "had"
    send_to_relay(*(pickle.dumps(Trap(trap), protocol) for protocol in range(6)), pickle.dumps(("logged", Trap(trap))))
    assert not trap.exists()
    assert [record.name for record in log_records] == ["remuda"]


def test_categories_are_existing_warning_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The receiver imports no module, calls no module's `__getattr__`, and accepts only warning classes."""
    module = ModuleType("lazy_module")
    module.__getattr__ = lambda name: pytest.fail(f"asked for {name}")  # type: ignore[method-assign]
    monkeypatch.setitem(sys.modules, "lazy_module", module)
    names = (["os", "system"], ["builtins", "SystemExit"], ["lazy_module", "Odd"], ["antigravity", "X"], ["", ""])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        send_to_relay(*(warned(list(name)) for name in names), warned(["builtins", "FutureWarning"]))
    assert [w.category for w in caught] == [UserWarning] * len(names) + [FutureWarning]
    assert {str(w.message) for w in caught} == {"odd"}
    assert "antigravity" not in sys.modules


# -- the parent's handlers -------------------------------------------------------------------------------


@pytest.mark.parametrize("start_method", START_METHODS)
def test_inherited_handlers_print_each_record_once(start_method: Any) -> None:
    code = f"""
import logging, sys
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from pool_envs import counting
from remuda import Pool

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
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "once: hello\n0 test once: hello\ncut\n"


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

    relay = Relay()
    sender = DatagramSender(socket.socket(fileno=os.dup(relay.sending_end)), 0)
    for text in ("one", "two"):
        record = logging.makeLogRecord({"name": "test.env", "levelno": logging.INFO, "msg": text})
        sender.say(dump_record(record, 0, None))
    reaction(interrupt)
    with pytest.raises(KeyboardInterrupt):
        relay.drain()
    relay.close()
    relay.close()
    sender._sock.close()
    assert texts(log_records) == ["two"]


def test_records_of_a_forked_child_of_an_env_arrive(log_records: list[Any]) -> None:
    def fork(env: Any) -> None:
        import logging

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
