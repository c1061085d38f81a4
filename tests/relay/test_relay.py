"""What workers log and warn: it reaches the pool's process, as if it had been said there, and blocks nobody."""

from __future__ import annotations

import json
import logging
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pool_envs import CountingEnv, Gate, NeedsArguments, counting, gated, hooked

from remuda import EnvError, Pool, WorkerDiedError, WorkerInfo
from remuda._relay.receiver import Relay
from remuda._relay.records import MAX_BYTES, Logged, dump_record, load
from remuda._relay.sender import DatagramSender
from remuda._wire.channel import LocalChannel
from remuda._worker.host import EnvHost

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="worker processes need Linux"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning"),  # newer Pythons, of fork
]

START_METHODS = ("forkserver", "spawn", "fork")


class Collector(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[Any] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture
def heard(caplog: pytest.LogCaptureFixture) -> Iterator[list[Any]]:
    """The log records handled in this process, from DEBUG up."""
    caplog.set_level(logging.DEBUG)
    collector = Collector()
    logging.root.addHandler(collector)
    yield collector.records
    logging.root.removeHandler(collector)


class Reaction(logging.Handler):
    """Does something at the first record that it is given."""

    def __init__(self, react: Callable[[], Any]) -> None:
        super().__init__()
        self._react: Callable[[], Any] | None = react

    def emit(self, record: logging.LogRecord) -> None:
        react, self._react = self._react, None
        if react is not None:
            react()


@pytest.fixture
def reaction() -> Iterator[Callable[[Callable[[], Any]], None]]:
    target = logging.getLogger("test.env")
    before = target.handlers[:], target.level

    def react(what: Callable[[], Any]) -> None:
        target.setLevel(logging.INFO)
        target.addHandler(Reaction(what))

    yield react
    target.handlers[:], target.level = before


def log(text: str) -> Callable[..., None]:
    """A hook that logs; by value, for a worker cannot import this module."""

    def hook(*_: Any) -> None:
        import logging

        logging.getLogger("test.env").info(text)

    return hook


def texts(records: list[Any]) -> list[str]:
    return [record.getMessage() for record in records if record.name == "test.env"]


# -- log records -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("start_method", START_METHODS)
def test_records_of_all_phases_arrive(start_method: Any, heard: list[Any]) -> None:
    phases = ("build", "reset", "step", "call", "close")
    fns = hooked(4, (1, 2), **{phase: log(phase) for phase in phases})
    with Pool(fns, num_workers=2, start_method=start_method) as pool:
        assert texts(heard) == ["build"] * 2  # already
        pids = [worker.pid for worker in pool.workers]
        pool.reset()
        pool.step([0] * 4)
        pool.call("poke")
        assert sorted(texts(heard)) == sorted([*phases[:-1]] * 2)  # whoever has an answer has the records before it
    told = [(r.worker, r.env, r.process, r.getMessage()) for r in heard if r.name == "test.env"]
    for worker, env in ((0, 1), (1, 2)):
        assert [t for t in told if t[0] == worker] == [(worker, env, pids[worker], phase) for phase in phases]


def test_a_record_is_as_it_was_made(heard: list[Any]) -> None:
    def speak(env: Any) -> None:
        import logging

        logging.getLogger("test.a.b").warning("%s and %d", "this", 5, extra={"mine": [1, 2]}, stack_info=True)

    with Pool(counting(2), num_workers=1) as pool:
        pool.apply(speak, env_ids=[1])
    (record,) = heard
    assert (record.name, record.levelno, record.levelname) == ("test.a.b", logging.WARNING, "WARNING")
    assert (record.msg, record.args, record.getMessage()) == ("this and 5", (), "this and 5")
    assert (record.funcName, record.pathname, record.threadName) == ("speak", __file__, "MainThread")
    assert (record.worker, record.env, record.mine) == (0, 1, [1, 2])
    assert "in speak" in record.stack_info
    own = logging.makeLogRecord({})
    assert abs((own.created - record.created) - (own.relativeCreated - record.relativeCreated) / 1000) < 1e-3


def test_levels_are_those_of_the_pools_process(heard: list[Any], caplog: pytest.LogCaptureFixture) -> None:
    def look(env: Any) -> Any:
        import logging

        names = ("", "test.loud", "test.loud.below", "test.quiet", "test.env")
        for name in names:
            logging.getLogger(name).info(name)
        return [logging.getLogger(name).isEnabledFor(logging.INFO) for name in names]

    caplog.set_level(logging.WARNING)
    caplog.set_level(logging.DEBUG, "test.loud")
    caplog.set_level(logging.CRITICAL, "test.quiet")
    for start_method in START_METHODS:
        with Pool(counting(1), start_method=start_method) as pool:
            assert pool.apply(look) == [[False, True, True, False, False]]
            assert [record.name for record in heard] == ["test.loud", "test.loud.below"]
            heard.clear()
            caplog.set_level(logging.ERROR, "test.loud.below")  # what is set later counts here
            pool.apply(look)
            assert [record.name for record in heard] == ["test.loud"]
            heard.clear()
            caplog.set_level(logging.NOTSET, "test.loud.below")


def test_disabled_logging_is_disabled_in_workers(heard: list[Any]) -> None:
    logging.disable(logging.ERROR)
    try:
        with Pool(counting(1)) as pool:
            assert pool.apply(lambda env: logging.getLogger("x").isEnabledFor(logging.ERROR)) == [False]
            assert pool.apply(lambda env: logging.getLogger("x").isEnabledFor(logging.CRITICAL)) == [True]
    finally:
        logging.disable(logging.NOTSET)


def test_exceptions_become_text(heard: list[Any]) -> None:
    def fail(env: Any) -> None:
        import logging

        try:
            raise LookupError("lost")
        except LookupError:
            logging.getLogger("test.env").exception("it failed")

    with Pool(counting(1)) as pool:
        pool.apply(fail)
    (record,) = heard
    assert (record.exc_info, record.levelno) == (None, logging.ERROR)
    text = logging.Formatter("%(message)s").format(record)
    assert text.startswith("it failed\nTraceback (most recent call last)")
    assert text.endswith("LookupError: lost")


def test_arguments_are_formatted_and_extras_are_plain(heard: list[Any]) -> None:
    def speak(env: Any, stubborn: Any) -> None:
        import logging
        import threading

        import numpy as np

        logger = logging.getLogger("test.env")
        logger.info("%s", np.arange(3))
        logger.info("%(a)s %(b)s", {"a": 1, "b": 2})
        logger.info("%s", threading.Lock())
        logger.info("%s", stubborn(3, "why"))
        logger.info(ValueError("a message that is no text"))
        extra = {"lock": threading.Lock(), "array": np.arange(2), "nested": {"a": [1, (2,)]}, "scalar": np.float32(0.5)}
        logger.info("extra", extra={**extra, "level": logging.Handler, "signal": signal.SIGTERM, "huge": 1 << 99999})
        logger.info("100% and a lone \udc80 surrogate", extra={"getMessage": "no method of mine"})

    with Pool(counting(1)) as pool:
        pool.apply(speak, NeedsArguments)
    array, mapping, lock, needs, value, extra, odd = heard
    assert [(record.getMessage(), record.args) for record in (array, mapping, needs, value)] == [
        ("[0 1 2]", ()),
        ("1 2", ()),
        ("why (3)", ()),
        ("a message that is no text", ()),
    ]
    assert lock.getMessage().startswith("<unlocked _thread.lock")
    assert extra.lock.startswith("<unlocked _thread.lock")
    assert (extra.array, extra.nested, extra.scalar) == ("array([0, 1])", {"a": [1, "(2,)"]}, 0.5)
    assert (extra.level, extra.signal) == ("<class 'logging.Handler'>", 15)
    assert extra.huge.startswith("0x8000")
    assert odd.getMessage() == "100% and a lone \udc80 surrogate"


def test_a_record_that_cannot_be_made_harms_nobody(heard: list[Any]) -> None:
    """`logging` tells of it where it happens."""

    def speak(env: Any) -> None:
        import logging

        logging.getLogger("test.env").info("%d %d", object())  # noqa: PLE1206 - that is the point
        logging.getLogger("test.env").info("next")

    with Pool(counting(1), worker_output="capture") as pool:
        pool.apply(speak)
        assert "--- Logging error ---" in pool.workers[0].output()
    assert texts(heard) == ["next"]


def test_threads_of_a_worker_speak_too(heard: list[Any], tmp_path: Path) -> None:
    """Also while the worker has nothing to do; then no env is known."""
    before, after = Gate(tmp_path, "before"), Gate(tmp_path, "after")

    def start(env: Any) -> None:
        import logging
        import threading

        def speak() -> None:
            before.wait()
            logging.getLogger("test.env").info("from a thread")
            after.wait()

        threading.Thread(target=speak, name="thinker").start()

    with Pool(counting(2)) as pool:
        pool.apply(start, env_ids=[1])
        before.let_pass()
        after.let_pass()
        pool.call("pid")
        (record,) = heard
        assert (record.worker, record.env, record.threadName) == (1, None, "thinker")
        assert record.getMessage() == "from a thread"


def test_loggers_that_are_made_or_cut_off_later(heard: list[Any]) -> None:
    """Handlers that an env adds are its own affair."""

    def speak(env: Any) -> str:
        import io
        import logging

        own = io.StringIO()
        logger = logging.getLogger("test.cut")
        logger.addHandler(logging.StreamHandler(own))
        logging.basicConfig(level=logging.CRITICAL)  # does nothing where there is a handler
        logger.warning("both")
        logger.propagate = False
        logger.warning("its own")
        return own.getvalue()

    with Pool(counting(1), worker_output="capture") as pool:
        assert pool.apply(speak) == ["both\nits own\n"]
        assert pool.workers[0].output() == ""
    assert [record.getMessage() for record in heard] == ["both"]


# -- when they arrive ------------------------------------------------------------------------------------


def test_records_appear_while_the_pool_waits(reaction: Any, tmp_path: Path) -> None:
    """No result comes before the record has been handled: it is the handler that lets the env go on."""
    gate = Gate(tmp_path)

    def step(*_: Any) -> None:
        import logging

        logging.getLogger("test.env").info("waiting for you")
        gate.wait()

    reaction(gate.let_pass)
    with Pool(hooked(2, step=step)) as pool:
        pool.reset()
        assert pool.step([1, 2]).reward.tolist() == [1, 2]


def test_records_appear_while_envs_are_built(reaction: Any, tmp_path: Path) -> None:
    gate = Gate(tmp_path)

    def build(*_: Any) -> None:
        import logging

        logging.getLogger("test.env").info("waiting for you")
        gate.wait()

    reaction(gate.let_pass)
    Pool(hooked(2, build=build), start_timeout=None).close()


def test_records_appear_though_results_keep_coming(heard: list[Any]) -> None:
    """The short way of `recv` has no time for them; they are not forgotten over it."""
    with Pool(hooked(2, step=log("stepping"))) as pool:
        pool.reset()
        steps = 0
        while not heard:  # the watchdog bounds this
            pool.step([0, 0])
            steps += 1
    assert texts(heard) == ["stepping"] * steps


def test_what_a_step_logs_and_warns_comes_before_its_result(heard: list[Any]) -> None:
    def step(env: Any, action: Any) -> None:
        import logging
        import warnings

        logging.getLogger("test.env").info("%d of %d", env.total_steps, env.tag)
        warnings.warn(f"{env.total_steps} of {env.tag}", stacklevel=1)

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        pool = Pool(hooked(4, range(4), step=step), num_workers=2)
    with pool:
        pool.reset()
        for i in range(1, 40):
            heard.clear()
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                pool.step([0] * 4)
            expected = sorted(f"{i} of {env}" for env in range(4))
            assert sorted(texts(heard)) == expected
            assert sorted(str(one.message) for one in caught) == expected


def test_what_a_step_logs_comes_before_its_result_in_a_partial_batch(heard: list[Any]) -> None:
    def step(env: Any, action: Any) -> None:
        import logging

        logging.getLogger("test.env").info("%d of %d", env.total_steps, env.tag)

    steps = dict.fromkeys(range(3), 1)
    with Pool(hooked(3, range(3), step=step)) as pool:
        pool.reset()
        pool.send([0] * 3)
        while sum(steps.values()) < 100:
            batch = pool.recv(min_envs=1)
            for env in batch.env_ids.tolist():
                assert f"{steps[env]} of {env}" in texts(heard)
                steps[env] += 1
            pool.send([0] * len(batch.env_ids), batch.env_ids)


def test_so_does_what_the_socket_has_no_room_for(heard: list[Any]) -> None:
    """It waits in the workers until the pool has read what came before."""

    def step(env: Any, action: Any) -> None:
        import logging

        for i in range(200):
            logging.getLogger("test.env").info("%d %d %s", env.tag, i, "x" * 1000)

    with Pool(hooked(3, range(3), step=step)) as pool:
        pool.reset()
        for _ in range(3):
            heard.clear()
            pool.step([0] * 3)
            assert len(texts(heard)) == 600


def test_who_is_killed_before_his_words_were_sent_holds_nobody_up(heard: list[Any], tmp_path: Path) -> None:
    """A worker that is stopped while its words wait for room does not send them; the other's are not lost over it."""
    gate = Gate(tmp_path)

    def step(env: Any, action: Any) -> None:
        import logging

        if env.tag == 1:
            for i in range(1000):
                logging.getLogger("test.env").info("lost %d", i)
            gate.wait()

    with Pool(hooked(2, (0, 1), step=step)) as pool:
        pool.reset()
        pool.send([0, 0])
        gate.await_arrival()
        os.kill(pool.workers[1].pid or 0, signal.SIGSTOP)
        for i in range(1, 4):
            assert pool.recv(min_envs=1).env_ids.tolist() == [0]
            pool.send([i], [0])
        os.kill(pool.workers[1].pid or 0, signal.SIGKILL)
        with pytest.raises(WorkerDiedError):
            while True:
                pool.recv(min_envs=2)


def test_what_an_env_logged_comes_before_what_it_raised(heard: list[Any]) -> None:
    def step(env: Any, action: Any) -> None:
        import logging

        logging.getLogger("test.env").info("about to fail")
        raise ValueError("failed")

    with Pool(hooked(2, step=step)) as pool:
        pool.reset()
        with pytest.raises(EnvError):
            pool.step([0, 0])
        assert texts(heard) == ["about to fail"]


@pytest.mark.parametrize("start_method", START_METHODS)
def test_what_a_worker_logged_outlives_it(start_method: Any, heard: list[Any]) -> None:
    def step(env: Any, action: Any) -> None:
        import logging

        logging.getLogger("test.env").info("about to die")
        os.kill(os.getpid(), signal.SIGKILL)

    with Pool(hooked(2, step=step), start_method=start_method) as pool:
        pool.reset()
        with pytest.raises(WorkerDiedError):
            pool.step([0, 0])
        assert texts(heard) == ["about to die"]


@pytest.mark.parametrize("start_method", START_METHODS)
def test_records_of_a_start_that_fails(start_method: Any, heard: list[Any]) -> None:
    def build(env: Any) -> None:
        import logging

        logging.getLogger("test.env").info("no licence")
        raise ValueError("no")

    with pytest.raises(EnvError):
        Pool(hooked(2, build=build), start_method=start_method)
    assert [(r.worker, r.env, r.getMessage()) for r in heard] == [(1, 1, "no licence")]


def test_records_of_a_pool_that_is_terminated_or_forgotten(heard: list[Any]) -> None:
    for end in ("terminate", "forget"):
        heard.clear()
        pool: Any = Pool(hooked(2, reset=log("reset")))
        pool.send_reset()
        while not pool._engine.running.hub.needs_attention and pool._exchange.ready(0) < 2:
            pool._engine.running.hub.wait(2, -1)
        if end == "terminate":
            pool.close(terminate=True)
        del pool
        assert texts(heard) == ["reset"]


# -- floods and giants -----------------------------------------------------------------------------------


def test_a_flood_blocks_nobody_and_is_counted(heard: list[Any], tmp_path: Path) -> None:
    """The env is through before the pool reads a single record."""
    total = 30_000
    gate = Gate(tmp_path)

    def step(*_: Any) -> None:
        import logging

        for i in range(total):
            logging.getLogger("test.env").info("%d %s", i, "x" * 100)
        gate.wait()

    with Pool(hooked(1, (0,), step=step)) as pool:
        pool.reset()
        pool.send([0])
        gate.let_pass()
        assert not heard
        assert pool.recv().reward.tolist() == [0.0]
        pool.call("pid")
        pool.apply(log("after the flood"))
    arrived = [int(text.split()[0]) for text in texts(heard) if text != "after the flood"]
    losses = [record for record in heard if record.name == "remuda"]
    dropped = sum(int(record.getMessage().split()[0]) for record in losses)
    assert dropped > 0 and len(arrived) + dropped == total
    assert arrived == sorted(arrived) and arrived[-1] == total - 1  # it is the oldest that go
    assert all(loss.levelno == logging.WARNING and loss.worker == 0 for loss in losses)
    assert "log records were dropped: they came faster" in losses[0].getMessage()
    assert texts(heard)[-1] == "after the flood"


def test_what_waits_when_a_worker_leaves_is_not_lost(heard: list[Any]) -> None:
    """Twice and more what the socket has room for."""

    def close(env: Any) -> None:
        import logging

        for i in range(220):
            logging.getLogger("test.env").info("%d %s", i, "x" * 4000)

    Pool(hooked(1, (0,), close=close)).close()
    assert [int(text.split()[0]) for text in texts(heard)] == list(range(220))


def test_a_worker_sends_what_waits_before_its_goodbye() -> None:
    """After it the pool waits for the process alone, and reads no more."""
    done: list[str] = []

    class Closing(CountingEnv):
        def close(self) -> None:
            done.append(f"close {host.current_env}")

    host = EnvHost(
        WorkerInfo(0, 1, (3, 4)), LocalChannel.pair()[0], rebuilds=False, before_goodbye=lambda: done.append("flush")
    )
    host.build([Closing, Closing])
    assert host.current_env is None
    host.close()
    assert done == ["close 3", "close 4", "flush"]
    assert host.current_env is None


@pytest.fixture
def narrow() -> Iterator[tuple[socket.socket, DatagramSender]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)  # the least there is
    ours.settimeout(60)
    yield ours, DatagramSender(theirs, 7)
    ours.close()
    theirs.close()


def test_datagrams_wait_for_room(narrow: tuple[socket.socket, DatagramSender]) -> None:
    """They go on their way without anybody saying more."""
    ours, sender = narrow
    said = [b"%d" % i for i in range(1000)]
    for datagram in said:
        sender.say(datagram)
    assert [ours.recv(100) for _ in said] == said
    assert sender._waiter is None or not sender._waiter.join(60)


def test_the_oldest_are_dropped_and_counted_once(narrow: tuple[socket.socket, DatagramSender]) -> None:
    ours, sender = narrow
    first = b"first"
    while not sender._queue:
        sender.say(first)
    sent = 0
    for i in range(2000):
        sender.say(b"%06d" % i + bytes(994))
    with sender._lock:
        dropped = sender._dropped
    while (datagram := ours.recv(MAX_BYTES)) == first:
        sent += 1
    loss = load(datagram)
    assert isinstance(loss, Logged)
    assert loss.worker == 7
    assert loss.message.startswith(f"{dropped} log records were dropped") and dropped > 900
    rest = [int(ours.recv(MAX_BYTES)[:6]) for _ in range(2000 + 1 - dropped)]
    assert rest == list(range(2000 - len(rest), 2000))


def test_a_flush_waits_no_longer_than_told(narrow: tuple[socket.socket, DatagramSender]) -> None:
    ours, sender = narrow
    count = 0
    while not sender._queue:
        sender.say(b"something")
        count += 1
    sender.flush(0.001)
    assert sender._queue
    reader = threading.Thread(target=lambda: [ours.recv(100) for _ in range(count)])
    reader.start()
    sender.flush(60)
    assert not sender._queue
    reader.join()


def test_what_waits_is_not_said_twice_after_a_fork(narrow: tuple[socket.socket, DatagramSender]) -> None:
    _, sender = narrow
    while not sender._queue:
        sender.say(b"something")
    with sender._lock:  # whoever holds it in the moment of the fork will not be there to release it
        pid = os.fork()
        if pid == 0:
            helper = threading.Thread(target=sender.flush, args=(60,))
            helper.start()
            helper.join()
            os._exit(len(sender._queue))
    assert os.waitpid(pid, 0)[1] == 0
    assert sender._queue


def test_nobody_listens_any_more(narrow: tuple[socket.socket, DatagramSender]) -> None:
    ours, sender = narrow
    while not sender._queue:
        sender.say(b"something")
    ours.close()
    sender.say(b"more")
    sender.flush(60)
    assert not sender._queue


def test_giants_are_cut_and_say_so(heard: list[Any]) -> None:
    def speak(env: Any) -> None:
        import logging

        logger = logging.getLogger("test.env")
        logger.info("big %s", "é" * 1_000_000, extra={"mine": "x" * 1_000_000})
        try:
            raise ValueError("y" * 1_000_000 + " the end")
        except ValueError:
            logger.exception("z" * 1_000_000)

    with Pool(counting(1)) as pool:
        pool.apply(speak)
    first, second = heard
    assert first.getMessage().startswith("big éé")
    assert first.getMessage().endswith("é [cut: it was too big for one record]")
    assert not hasattr(first, "mine")
    assert (first.worker, first.env, first.levelno) == (0, 0, logging.INFO)
    assert second.exc_text.endswith("yy the end")
    assert second.getMessage().startswith("zz")


@pytest.mark.parametrize("character", ["\U0001f40e", "\x00", "\udc80", '"'])
def test_a_cut_record_always_fits(character: str) -> None:
    giant = character * 100_000
    record = logging.LogRecord(giant, 20, giant, 1, giant, None, None, func=giant, sinfo=giant)
    record.exc_text = record.threadName = record.processName = giant
    assert len(dump_record(record, 0, 0)) <= MAX_BYTES


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


# -- warnings --------------------------------------------------------------------------------------------


def warn(category: Any = RuntimeWarning, text: str = "odd") -> Callable[..., None]:
    def hook(*_: Any) -> None:
        import warnings

        warnings.warn(text, category, stacklevel=1)

    return hook


LINE = warn.__code__.co_firstlineno + 4


@pytest.mark.parametrize("start_method", START_METHODS)
def test_a_place_is_shown_once_per_pool(start_method: Any) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for n in (1, 2):
            with Pool(hooked(4, range(4), step=warn()), num_workers=2, start_method=start_method) as pool:
                pool.reset()
                for _ in range(3):
                    pool.step([0] * 4)
            ours = [w for w in caught if w.category is RuntimeWarning]
            assert len(ours) == n
        told = ours[-1]
        assert (str(told.message), told.filename, told.lineno) == ("odd", __file__, LINE)


def test_warnings_of_constructors_arrive() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        pool = Pool(hooked(2, build=warn()))
        assert [str(w.message) for w in caught] == ["odd"]
        pool.close()
        with pytest.raises(EnvError):
            Pool(hooked(2, build=lambda env: (warnings.warn("before", UserWarning, stacklevel=1), 1 / 0)))
        assert str(caught[-1].message) == "before"


def test_other_filters_of_the_pools_process() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        warnings.filterwarnings("ignore", "quiet")
        warnings.filterwarnings("always", "often", FutureWarning)
        warnings.filterwarnings("once", "once")
        warnings.filterwarnings("ignore", module=r"nobody\.knows")
        with Pool(counting(2)) as pool:
            for text, category in (("quiet please", UserWarning), ("often", FutureWarning), ("once", UserWarning)):
                for _ in range(3):
                    pool.apply(warn(category, text))
    told = [str(w.message) for w in caught]
    assert [told.count(text) for text in ("quiet please", "often", "once")] == [0, 6, 1]


def test_filters_by_module_see_the_module() -> None:
    def warn_in(env: Any) -> None:
        code = "import warnings; warnings.warn('here', UserWarning)"
        exec(compile(code, "/some/where.py", "exec"), {"__name__": "some.module"})

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        with Pool(counting(1)) as pool:
            warnings.filterwarnings("ignore", module=r"some\.module")  # too late for the worker, not for us
            pool.apply(warn_in)
            assert caught == []
            warnings.simplefilter("default")
            warnings.filterwarnings("ignore", module=r"some\.other")
            pool.apply(lambda env: warnings.warn("said", UserWarning, stacklevel=1))
    assert [str(w.message) for w in caught] == ["said"]


def test_a_category_that_cannot_travel_becomes_a_user_warning() -> None:
    def warn_hard(env: Any) -> None:
        import warnings

        class HardToMake(UserWarning):
            def __init__(self, code: int, reason: str) -> None:
                super().__init__(f"{reason} ({code})")

            def __reduce__(self) -> Any:
                raise TypeError("not to be pickled")

        warnings.warn(HardToMake(3, "why"), stacklevel=1)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        with Pool(counting(1)) as pool:
            pool.apply(warn_hard)
    assert [(w.category, str(w.message)) for w in caught if w.filename == __file__] == [
        (UserWarning, "HardToMake: why (3)")
    ]


@pytest.mark.parametrize("start_method", START_METHODS)
def test_a_filter_that_raises_becomes_an_error_in_the_log(start_method: Any, heard: list[Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", ".*multi-threaded", DeprecationWarning)
        with Pool(hooked(2, step=warn()), start_method=start_method) as pool:
            pool.reset()
            assert pool.step([1, 2]).reward.tolist() == [1, 2]
            pool.call("pid")
            (record,) = heard
    assert (record.name, record.levelno, record.worker, record.env) == ("remuda", logging.ERROR, 1, 1)
    assert record.getMessage() == f"{__file__}:{LINE}: RuntimeWarning: odd"


def test_giant_warnings_are_cut() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        with Pool(counting(1)) as pool:
            pool.apply(lambda env: warnings.warn("x" * 1_000_000, FutureWarning, stacklevel=1))
    (told,) = caught
    assert told.category is FutureWarning
    assert str(told.message).endswith("x [cut: it was too big for one record]")


def test_an_env_that_catches_its_warnings_keeps_them() -> None:
    def catch(env: Any) -> int:
        import warnings

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            warnings.warn("mine", UserWarning, stacklevel=1)
        return len(caught)

    with warnings.catch_warnings(record=True) as ours:
        warnings.simplefilter("always")
        with Pool(counting(1)) as pool:
            assert pool.apply(catch) == [1]
    assert ours == []


def test_classes_of_main_are_the_same_on_both_sides() -> None:
    code = f"""
import sys, warnings
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from pool_envs import counting
from remuda import Pool

class Mine(UserWarning):
    pass

warnings.simplefilter("ignore")
warnings.simplefilter("default", Mine)
for start_method in {START_METHODS!r}:
    with warnings.catch_warnings(record=True) as caught:
        with Pool(counting(2), start_method=start_method) as pool:
            pool.apply(lambda env: warnings.warn("odd", Mine))
            pool.apply(lambda env: warnings.warn("ignored", UserWarning))
    assert [w.category for w in caught if w.category is not DeprecationWarning] == [Mine], caught
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# -- which env -------------------------------------------------------------------------------------------


def test_the_env_that_runs_is_known_to_other_threads(heard: list[Any], tmp_path: Path) -> None:
    """A thread that logs while an env steps says which one steps."""
    gate, after = Gate(tmp_path, "gate"), Gate(tmp_path, "after")

    def start(env: Any) -> None:
        import logging
        import threading

        def speak() -> None:
            after.wait()
            logging.getLogger("test.env").info("aside")
            after.wait()

        threading.Thread(target=speak).start()

    with Pool(gated([None, gate]), num_workers=1) as pool:
        pool.reset()
        pool.apply(start, env_ids=[0])
        pool.send([0, 0])
        gate.await_arrival()
        after.let_pass()
        after.let_pass()
        gate.open()
        pool.recv()
        pool.call("pid")
    assert [(r.worker, r.env) for r in heard] == [(0, 1)]
