"""Work in a thread of its own: results, errors and interrupts."""

from __future__ import annotations

import contextvars
import gc
import os
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any

import pytest
from interrupting import Interrupt
from programs import holdings

from remuda._backends.waiting import Flag
from remuda._system.own_thread import OwnThread, run_apart

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only worker processes need it")


@pytest.fixture
def interrupt() -> Iterator[Callable[[], None]]:
    """Returns a function that makes a signal handler raise in the main thread."""

    def handle(*_: Any) -> None:
        handled.put(None)
        raise Interrupt

    def send() -> None:
        os.kill(os.getpid(), signal.SIGUSR1)
        handled.get()

    handled, before = SimpleQueue[None](), signal.signal(signal.SIGUSR1, handle)
    yield send
    signal.signal(signal.SIGUSR1, before)


def test_the_result_comes_from_another_thread_with_the_callers_context() -> None:
    variable = contextvars.ContextVar("variable", default=0)
    variable.set(7)
    before = threading.active_count()
    ident, value, name = run_apart(lambda: (threading.get_ident(), variable.get(), os.getpid()), lambda: None)
    assert ident != threading.get_ident()
    assert (value, name) == (7, os.getpid())
    assert threading.active_count() == before


def test_the_error_is_raised_and_keeps_nothing() -> None:
    class Thing:
        pass

    thing = Thing()
    reference = weakref.ref(thing)

    def fail(kept: Thing) -> None:
        raise LookupError("failed", kept is thing)

    gc.disable()
    try:
        with pytest.raises(LookupError, match="failed") as raised:
            run_apart(lambda: fail(thing), lambda: None)
        assert "in fail" in str(raised.getrepr(style="native"))
        del thing, raised
        assert reference() is None
    finally:
        gc.enable()


def test_an_interrupt_cancels_the_work_and_waits_for_its_end(interrupt: Callable[[], None]) -> None:
    canceled, steps = threading.Event(), list[str]()

    def work() -> None:
        interrupt()
        canceled.wait()
        steps.append("ended")

    before = holdings()
    with pytest.raises(Interrupt):
        run_apart(work, canceled.set)
    assert steps == ["ended"]
    assert holdings() == before


def test_a_second_interrupt_ends_the_wait_and_not_the_work(interrupt: Callable[[], None]) -> None:
    canceled, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        interrupt()
        canceled.wait()
        interrupt()
        may_end.wait()
        ended.set()

    with pytest.raises(Interrupt):
        run_apart(work, canceled.set)
    assert canceled.is_set()
    may_end.set()
    ended.wait()


def test_a_runtime_error_of_a_signal_handler_is_an_interrupt() -> None:
    def handle(*_: Any) -> None:
        raise RuntimeError("from a handler")

    calls, canceled, before = list[int](), threading.Event(), signal.signal(signal.SIGUSR1, handle)

    def work() -> None:
        calls.append(1)
        os.kill(os.getpid(), signal.SIGUSR1)
        canceled.wait()

    try:
        with pytest.raises(RuntimeError, match="from a handler"):
            run_apart(work, canceled.set)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert calls == [1]


def test_an_error_of_canceled_work_does_not_hide_the_interrupt(interrupt: Callable[[], None]) -> None:
    canceled = threading.Event()

    def work() -> None:
        interrupt()
        canceled.wait()
        raise LookupError

    with pytest.raises(Interrupt):
        run_apart(work, canceled.set)


def test_work_of_a_thread_of_a_pool_runs_in_that_thread() -> None:
    idents: list[tuple[int, int]] = []
    thread = OwnThread(
        lambda: idents.append((threading.get_ident(), run_apart(threading.get_ident, lambda: None))), (), "own"
    )
    thread.start()
    assert thread.join()
    ((own, other),) = idents
    assert own == other


def test_the_callers_thread_works_meanwhile() -> None:
    threads, is_enough = list[int](), threading.Event()

    def meanwhile() -> None:
        threads.append(threading.get_ident())
        is_enough.set()

    run_apart(is_enough.wait, is_enough.set, meanwhile)
    assert set(threads) == {threading.get_ident()}


def test_work_runs_in_the_callers_thread_if_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert run_apart(threading.get_ident, lambda: None) == threading.get_ident()


def test_a_runtime_error_of_the_work_is_raised_after_one_call() -> None:
    calls: list[int] = []

    def fail() -> None:
        calls.append(1)
        raise RuntimeError("once")

    with pytest.raises(RuntimeError, match="once"):
        run_apart(fail, lambda: None)
    assert calls == [1]


def test_a_flag() -> None:
    flag = Flag()
    assert not flag.is_set()
    flag.set()
    flag.set()
    assert flag.wait(None)
    flag.close()
    flag.set()  # does nothing
