"""The socket between the pool and a worker delivers whole messages, also after signals and if an end dies."""

from __future__ import annotations

import errno
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda._wire import channel
from remuda._wire.channel import LocalChannel, NonsenseError, SocketChannel, _Piece


@pytest.fixture
def pair() -> Iterator[tuple[SocketChannel, SocketChannel]]:
    one, other = (SocketChannel(sock) for sock in socket.socketpair())
    yield one, other
    one.close()
    other.close()


def parts_of(sizes: list[int], seed: int = 0) -> list[bytes]:
    rng = np.random.default_rng(seed)
    return [rng.bytes(size) for size in sizes]


MESSAGES = st.lists(st.lists(st.one_of(st.integers(0, 40), st.integers(0, 700_000)), max_size=6), max_size=5)


@given(MESSAGES, MESSAGES)
@settings(max_examples=40, deadline=None)
def test_messages_arrive_whole_and_in_order_whichever_end_writes_first(
    mine: list[list[int]], yours: list[list[int]]
) -> None:
    ends = [SocketChannel(sock) for sock in socket.socketpair()]
    sent = [[parts_of(sizes, i) for i, sizes in enumerate(messages)] for messages in (mine, yours)]
    came: list[list[Any]] = [[], []]

    def talk(end: int) -> None:
        for parts in sent[end]:
            ends[end].send(parts)
        came[end].extend(list(map(bytes, ends[end].recv())) for _ in sent[1 - end])

    other = threading.Thread(target=talk, args=(1,))
    other.start()
    talk(0)
    other.join()
    assert came == sent[::-1]
    ends[0].close()
    with pytest.raises(EOFError):
        ends[1].recv()
    ends[1].close()


class Alarm(Exception):
    pass


def test_an_interrupted_read_continues_where_it_stopped(pair: tuple[SocketChannel, SocketChannel]) -> None:
    """Signals interrupt the read at random points. No byte may be lost or read twice."""

    reading = {f.__code__ for f in (SocketChannel._piece, SocketChannel._fill, SocketChannel._wait, _Piece.missing)}

    def ring(number: int, frame: Any) -> None:
        if frame.f_code in reading:  # outside these functions, an exception would lose the message in this test
            raise Alarm

    one, other = pair
    sent = [parts_of([10, 3_000_000, 0, 5], i) for i in range(30)]
    writer = threading.Thread(target=lambda: list(map(one.send, sent)))
    before = signal.signal(signal.SIGALRM, ring)
    writer.start()
    interrupts, received = 0, list[Any]()
    try:
        while len(received) < len(sent):
            try:
                signal.setitimer(signal.ITIMER_REAL, 1e-4 * (1 + interrupts % 17))
                message = other.recv()
                signal.setitimer(signal.ITIMER_REAL, 0)
                received.append(message)
            except Alarm:
                interrupts += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    writer.join()
    assert [list(map(bytes, message)) for message in received] == sent


@pytest.mark.parametrize(
    ("sent", "error", "text"),
    [
        (b"remuda: msg\n\x01\0\0\0" + (1000).to_bytes(8, "little") + b"some", EOFError, "closed the channel"),
        (b"hello, world, says a simulator\n", NonsenseError, "a message that begins with .*, got b'hello, world'"),
    ],
)
def test_half_a_message_and_other_data_are_refused(sent: bytes, error: type[Exception], text: str, pair: Any) -> None:
    one, other = pair
    one._sock.sendall(sent)
    one.close()
    with pytest.raises(error, match=text):
        other.recv()


def test_a_dead_peer_is_detected_even_if_the_socket_stays_open() -> None:
    ours, peer_socket = socket.socketpair()
    peer = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    fd = os.pidfd_open(peer.pid)
    channel = SocketChannel(ours, fd)
    peer_socket.sendall(b"remuda: msg\n\x01\0\0\0" + (3).to_bytes(8, "little") + b"abc" + b"remuda: msg\n\x01\0")
    peer.kill()
    select.select([fd], [], [])
    assert channel.recv() == [b"abc"]  # what a peer sent before its death is read first
    for use in (channel.recv, lambda: channel.send([bytes(10_000_000)])):
        with pytest.raises(EOFError, match="has ended"):
            use()
    peer.wait()
    channel.close()
    peer_socket.close()
    os.close(fd)


def test_local_channels_copy_arrays() -> None:
    channel = LocalChannel()
    to_worker, from_worker = channel.queues
    array = np.zeros(3)
    channel.send([b"head", array])
    array[:] = 1
    head, body = from_worker.get_nowait()
    assert (head, bytes(body)) == (b"head", bytes(24))
    to_worker.put([b"back"])
    assert channel.recv() == [b"back"]


def test_refused_descriptors_are_sent_again(
    pair: tuple[SocketChannel, SocketChannel], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system refuses further descriptors if the user has too many in flight."""
    tried, slept = [], []

    def refuse(*arguments: Any) -> None:
        tried.append(arguments)
        raise OSError(errno.ETOOMANYREFS, os.strerror(errno.ETOOMANYREFS))

    monkeypatch.setattr(channel, "_FD_TRIES", 3)
    monkeypatch.setattr(channel, "send_fds", refuse)
    monkeypatch.setattr(channel.time, "sleep", slept.append)
    with pytest.raises(OSError, match=re.escape(os.strerror(errno.ETOOMANYREFS))):
        pair[0].send_fds([0])
    assert (len(tried), len(slept)) == (3, 2)
