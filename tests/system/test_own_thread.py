"""Threads of pools, and the waits for their ends and for other events."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from interrupting import Interrupt
from remuda._core import Event

from remuda._system.own_thread import OwnThread


@pytest.fixture
def interrupt() -> Iterator[Callable[[], None]]:
    """Returns a function that makes a signal handler raise in the main thread."""

    def handle(*_: Any) -> None:
        raise Interrupt

    before = signal.signal(signal.SIGUSR1, handle)
    yield lambda: os.kill(os.getpid(), signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, before)


def test_an_event_is_seen_by_all_waits_of_all_threads() -> None:
    event, waits = Event(), list[bool]()
    threads = [threading.Thread(target=lambda: waits.append(event.wait())) for _ in range(3)]
    for thread in threads:
        thread.start()
    assert not event.is_set()
    assert not event.wait(0)
    assert not event.wait(0.001)
    event.set()
    for thread in threads:
        thread.join()
    assert waits == [True] * 3
    assert event.is_set()
    assert event.wait()
    assert event.wait(-1)


def test_a_signal_handler_ends_a_wait_which_can_be_repeated(interrupt: Callable[[], None]) -> None:
    event, begun = Event(), threading.Event()
    threading.Thread(target=lambda: begun.wait() and interrupt()).start()
    with pytest.raises(Interrupt):
        begun.set()
        event.wait()
    threading.Thread(target=event.set).start()
    assert event.wait()


def test_a_join_ends_with_the_thread_and_can_be_repeated(interrupt: Callable[[], None]) -> None:
    may_end = Event()
    before = threading.active_count()
    thread = OwnThread(may_end.wait, (), "mine")
    thread.start()
    assert not thread.join(0)
    interrupter = threading.Thread(target=interrupt)
    with pytest.raises(Interrupt):
        interrupter.start()
        thread.join()
    interrupter.join()
    may_end.set()
    assert thread.join()
    assert thread.join(0)
    assert threading.active_count() == before


def test_a_thread_does_not_wait_for_itself() -> None:
    joins = list[bool]()
    thread = OwnThread(lambda: joins.append(thread.join()), (), "mine")
    thread.start()
    assert thread.join()
    assert joins == [False]


def test_a_target_whose_start_was_interrupted_has_run_after_a_join_or_never_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start = threading.Thread.start

    def start_and_raise(thread: threading.Thread) -> None:
        start(thread)
        raise Interrupt

    monkeypatch.setattr(threading.Thread, "start", start_and_raise)
    for _ in range(100):
        calls = list[int]()
        thread = OwnThread(calls.append, (1,), "mine")
        with pytest.raises(Interrupt):
            thread.start()
        assert thread.join()
        before = len(calls)
        for one in threading.enumerate():
            if one.name == "mine":
                one.join()
        assert len(calls) == before


def test_a_thread_that_was_not_started_is_not_awaited() -> None:
    assert OwnThread(lambda: None, (), "mine").join()
