"""Floods of log records and giant records do not block workers. Dropped records and cut records are reported."""

from __future__ import annotations

import logging
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from pool_envs import Gate, counting, hooked
from relayed import log, texts

from remuda import Pool
from remuda._relay.records import MAX_BYTES, dump_record
from remuda._relay.sender import RelayHandler


def test_a_flood_of_records_blocks_no_env_and_losses_are_counted(
    log_records: list[Any], tmp_path: Path, reaction: Any
) -> None:
    """A handler holds up the first record until the env has finished its step."""
    total = 30_000
    gate, has_finished = Gate(tmp_path), threading.Event()
    reaction(has_finished.wait)

    def step(*_: Any) -> None:
        for i in range(total):
            logging.getLogger("test.env").info("%d %s", i, "x" * 100)
        gate.wait()

    with Pool(hooked(1, (0,), step=step), num_workers=None) as pool:
        pool.reset()
        pool.send([0])
        gate.await_arrival()
        has_finished.set()
        gate.open()
        assert pool.recv().rewards.tolist() == [0.0]
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


def test_datagrams_that_wait_for_room_are_sent_without_another_call_of_the_handler() -> None:
    reader, writer = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    writer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)  # the smallest possible buffer
    datagrams = [b"%d" % i for i in range(900)]
    with reader, writer:
        handler = RelayHandler(writer, 7)
        for datagram in datagrams:
            handler.send(datagram)
        handler.flush(0.001)  # does not wait for the reader
        assert [reader.recv(100) for _ in datagrams] == datagrams


def test_giant_records_are_cut_and_marked(log_records: list[Any]) -> None:
    def log_something(env: Any) -> None:
        logger = logging.getLogger("test.env")
        logger.info("big %s", "é" * 1_000_000, extra={"mine": "x" * 1_000_000})
        try:
            raise ValueError("y" * 1_000_000 + " the end")
        except ValueError:
            logger.exception("z" * 1_000_000)

    with Pool(counting(1), num_workers=None) as pool:
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
