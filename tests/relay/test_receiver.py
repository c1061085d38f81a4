"""What is read from workers may be forged, and handlers of logs may do whatever they like."""

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
    pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning"),  # newer Pythons, of fork
]
START_METHODS = ("forkserver", "spawn", "fork")


# -- what others write there -----------------------------------------------------------------------------


class Trap:
    """Whoever unpickles it has been had."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def said(**changes: Any) -> bytes:
    """A log record as a worker sends it, but for this."""
    told = json.loads(dump_record(logging.makeLogRecord({"name": "test.env", "levelno": 20, "msg": "hello"}), 0, 0))
    return json.dumps({**told, **changes}).encode()


def with_attribute(**attributes: Any) -> bytes:
    return said(attributes={**json.loads(said())["attributes"], **attributes})


def warned(category: list[str], text: str = "odd") -> bytes:
    told = {"kind": "warned", "worker": 0, "env": 0, "categories": [category], "text": text}
    return json.dumps({**told, "filename": __file__, "lineno": 1, "module": "m"}).encode()


FORGERIES = {
    "no json": b"hello",
    "deep": b"[" * 50_000,
    "digits": b'{"kind":"logged","worker":' + b"9" * 50_000 + b"}",
    "kind": said(kind="pickled"),
    "kind of another type": said(kind=["logged"]),
    "more": said(more=1),
    "worker": said(worker="0"),
    "env": said(env=-1),
    "message": said(message=["%s"]),
    "attributes": said(attributes=[1]),
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


def tell_relay(*datagrams: bytes) -> None:
    relay = Relay()
    with socket.socket(fileno=os.dup(relay.sending_end)) as other:
        for datagram in datagrams:
            other.send(datagram)
    relay.close()


@pytest.mark.parametrize("forgery", FORGERIES)
def test_what_no_worker_would_say_is_dropped_and_told_once(forgery: str, heard: list[Any]) -> None:
    with warnings.catch_warnings(record=True) as caught:
        tell_relay(FORGERIES[forgery], said(), FORGERIES[forgery])
    told, hello = heard
    assert (told.name, told.levelno) == ("remuda", logging.WARNING)
    assert "what no worker would, and it was dropped" in told.getMessage()
    assert hello.getMessage() == "hello"
    assert caught == []


def test_nothing_that_is_said_is_unpickled(heard: list[Any], tmp_path: Path) -> None:
    trap = tmp_path / "had"
    tell_relay(*(pickle.dumps(Trap(trap), protocol) for protocol in range(6)), pickle.dumps(("logged", Trap(trap))))
    assert not trap.exists()
    assert [record.name for record in heard] == ["remuda"]


def test_categories_are_warnings_that_are_there_already(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is imported to find one, no module is asked for what it might make, and what is found must be one."""
    module = ModuleType("lazy_module")
    module.__getattr__ = lambda name: pytest.fail(f"asked for {name}")  # type: ignore[method-assign]
    monkeypatch.setitem(sys.modules, "lazy_module", module)
    names = (["os", "system"], ["builtins", "SystemExit"], ["lazy_module", "Odd"], ["antigravity", "X"], ["", ""])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        tell_relay(*(warned(list(name)) for name in names), warned(["builtins", "FutureWarning"]))
    assert [w.category for w in caught] == [UserWarning] * len(names) + [FutureWarning]
    assert {str(w.message) for w in caught} == {"odd"}
    assert "antigravity" not in sys.modules


# -- the parent's handlers -------------------------------------------------------------------------------


@pytest.mark.parametrize("start_method", START_METHODS)
def test_inherited_handlers_print_once(start_method: Any) -> None:
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


def test_a_handler_that_raises_is_no_fault_of_the_batch(
    reaction: Any, heard: list[Any], capsys: pytest.CaptureFixture[str]
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
    assert texts(heard) == ["stepping"]


def test_a_handler_may_use_the_pool(reaction: Any, heard: list[Any]) -> None:
    with Pool(counting(2)) as pool:
        tags: list[Any] = []
        reaction(lambda: tags.append(pool.call("tag")))
        for _ in range(2):
            pool.apply(log("called"))
        assert tags == [[0, 1]]
    assert texts(heard) == ["called"] * 4


def test_an_interrupted_handler_does_not_silence_the_relay(heard: list[Any], reaction: Any) -> None:
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
    assert texts(heard) == ["two"]


def test_a_forked_child_of_an_env_speaks_for_itself(heard: list[Any]) -> None:
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
    assert texts(heard) == ["parent", "child"]
    assert heard[0].process != heard[1].process
