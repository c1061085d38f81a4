"""Floods of log records and giant records do not block workers. Dropped records and cut records are reported."""

from __future__ import annotations

import logging
import os
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pool_envs import CountingEnv, Gate, counting, hooked
from relayed import log, texts

from remuda import Pool, WorkerInfo
from remuda._relay.records import MAX_BYTES, Logged, dump_record, load
from remuda._relay.sender import DatagramSender
from remuda._wire.channel import LocalChannel
from remuda._worker.host import EnvHost
from remuda._worker.worker_info import HostSpec

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="worker processes need Linux"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning"),  # newer Pythons warn about a fork
]


def test_a_flood_of_records_blocks_no_env_and_losses_are_counted(log_records: list[Any], tmp_path: Path) -> None:
    """The env finishes its step before the pool reads a single record."""
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
        assert not log_records
        assert pool.recv().reward.tolist() == [0.0]
        pool.call("pid")
        pool.apply(log("after the flood"))
    arrived = [int(text.split()[0]) for text in texts(log_records) if text != "after the flood"]
    losses = [record for record in log_records if record.name == "remuda"]
    dropped = sum(int(record.getMessage().split()[0]) for record in losses)
    assert dropped > 0 and len(arrived) + dropped == total
    assert arrived == sorted(arrived) and arrived[-1] == total - 1  # the oldest records are dropped
    assert all(loss.levelno == logging.WARNING and loss.worker == 0 for loss in losses)
    assert "log records were dropped: they came faster" in losses[0].getMessage()
    assert texts(log_records)[-1] == "after the flood"


def test_records_that_wait_when_a_worker_ends_arrive(log_records: list[Any]) -> None:
    """The records need more than twice the size of the socket's buffer."""

    def close(env: Any) -> None:
        import logging

        for i in range(220):
            logging.getLogger("test.env").info("%d %s", i, "x" * 4000)

    Pool(hooked(1, (0,), close=close)).close()
    assert [int(text.split()[0]) for text in texts(log_records)] == list(range(220))


def test_a_worker_sends_waiting_records_before_its_goodbye() -> None:
    """After its goodbye message, the pool waits only for the process to end and reads nothing."""
    done: list[str] = []

    class Closing(CountingEnv):
        def close(self) -> None:
            done.append(f"close {host.current_env}")

    host = EnvHost(HostSpec(WorkerInfo(0, 1, (3, 4))), LocalChannel(), lambda: done.append("flush"))
    host.build([Closing, Closing])
    assert host.current_env is None
    host.close()
    assert done == ["close 3", "close 4", "flush"]
    assert host.current_env is None


@pytest.fixture
def narrow() -> Iterator[tuple[socket.socket, DatagramSender]]:
    ours, sending_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sending_end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)  # the smallest possible buffer
    ours.settimeout(60)
    yield ours, DatagramSender(sending_end, 7)
    ours.close()
    sending_end.close()


def test_datagrams_wait_until_the_socket_has_room(narrow: tuple[socket.socket, DatagramSender]) -> None:
    """They are sent later, without another call of the sender."""
    ours, sender = narrow
    datagrams = [b"%d" % i for i in range(1000)]
    for datagram in datagrams:
        sender.say(datagram)
    assert [ours.recv(100) for _ in datagrams] == datagrams
    assert sender._waiter is None or not sender._waiter.join(60)


def test_the_oldest_datagrams_are_dropped_and_counted_once(narrow: tuple[socket.socket, DatagramSender]) -> None:
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


def test_a_flush_waits_no_longer_than_its_timeout(narrow: tuple[socket.socket, DatagramSender]) -> None:
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


def test_a_forked_child_does_not_send_waiting_datagrams_again(narrow: tuple[socket.socket, DatagramSender]) -> None:
    _, sender = narrow
    while not sender._queue:
        sender.say(b"something")
    with sender._lock:  # the forked child inherits the held lock, and its holder does not exist there
        pid = os.fork()
        if pid == 0:
            helper = threading.Thread(target=sender.flush, args=(60,))
            helper.start()
            helper.join()
            os._exit(len(sender._queue))
    assert os.waitpid(pid, 0)[1] == 0
    assert sender._queue


def test_datagrams_are_discarded_if_the_receiver_is_closed(narrow: tuple[socket.socket, DatagramSender]) -> None:
    ours, sender = narrow
    while not sender._queue:
        sender.say(b"something")
    ours.close()
    sender.say(b"more")
    sender.flush(60)
    assert not sender._queue


def test_giant_records_are_cut_and_marked(log_records: list[Any]) -> None:
    def log_something(env: Any) -> None:
        import logging

        logger = logging.getLogger("test.env")
        logger.info("big %s", "é" * 1_000_000, extra={"mine": "x" * 1_000_000})
        try:
            raise ValueError("y" * 1_000_000 + " the end")
        except ValueError:
            logger.exception("z" * 1_000_000)

    with Pool(counting(1)) as pool:
        pool.apply(log_something)
    first, second = log_records
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
