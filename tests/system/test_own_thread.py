"""Threads of pools: the waits for their ends and for events, and work that runs in a thread of its own meanwhile."""

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
from remuda._core import Event

from remuda._backends.waiting import Flag
from remuda._system.own_thread import OwnThread, run_apart

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc and worker processes")


@pytest.fixture
def interrupt() -> Iterator[Callable[..., None]]:
    """Returns a function that makes a signal handler raise in the main thread."""

    def handle(*_: Any) -> None:
        handled.put(None)
        raise errors.pop()

    def send(error: BaseException | None = None) -> None:
        errors.append(error or Interrupt())
        os.kill(os.getpid(), signal.SIGUSR1)
        handled.get()

    errors, handled = list[BaseException](), SimpleQueue[None]()
    before = signal.signal(signal.SIGUSR1, handle)
    yield send
    signal.signal(signal.SIGUSR1, before)


# -- events and threads ------------------------------------------------------------------------------------


def test_a_signal_handler_ends_a_wait_which_can_be_repeated(interrupt: Callable[..., None]) -> None:
    event, begun = Event(), threading.Event()
    threading.Thread(target=lambda: begun.wait() and interrupt()).start()
    with pytest.raises(Interrupt):
        begun.set()
        event.wait()
    assert not event.is_set()
    assert not event.wait(0)
    assert not event.wait(0.001)
    threading.Thread(target=event.set).start()
    assert event.wait()
    assert event.wait(-1)


def test_a_join_ends_with_the_thread_and_can_be_repeated(interrupt: Callable[..., None]) -> None:
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


@linux
def test_a_flag() -> None:
    flag = Flag()
    assert not flag.is_set()
    flag.set()
    flag.set()
    assert flag.wait(None)
    flag.close()
    flag.set()  # does nothing


# -- work apart --------------------------------------------------------------------------------------------


def test_the_result_comes_from_another_thread_with_the_callers_context() -> None:
    variable = contextvars.ContextVar("variable", default=0)
    variable.set(7)
    before = threading.active_count()
    ident, value = run_apart(lambda: (threading.get_ident(), variable.get()), lambda: None)
    assert ident != threading.get_ident()
    assert value == 7
    assert threading.active_count() == before


def test_an_error_is_raised_after_one_call_and_keeps_nothing() -> None:
    class Thing:
        pass

    thing, calls = Thing(), list[int]()
    reference = weakref.ref(thing)

    def fail(kept: Thing) -> None:
        calls.append(1)
        raise RuntimeError("failed", kept is thing)  # of the kind that a thread raises which cannot be started

    gc.disable()
    try:
        with pytest.raises(RuntimeError, match="failed") as raised:
            run_apart(lambda: fail(thing), lambda: None)
        assert "in fail" in str(raised.getrepr(style="native"))
        assert calls == [1]
        del thing, raised
        assert reference() is None
    finally:
        gc.enable()


@linux
@pytest.mark.parametrize("error", [Interrupt(), RuntimeError("from a handler")])
@pytest.mark.parametrize("outcome", [None, LookupError()])
def test_an_interrupt_cancels_the_work_waits_for_its_end_and_is_raised(
    error: BaseException, outcome: Exception | None, interrupt: Callable[..., None]
) -> None:
    canceled, steps = threading.Event(), list[str]()

    def work() -> None:
        steps.append("begun")
        interrupt(error)
        canceled.wait()
        steps.append("ended")
        if outcome is not None:
            raise outcome

    before = holdings()
    with pytest.raises(type(error)) as raised:
        run_apart(work, canceled.set)
    assert raised.value is error
    assert steps == ["begun", "ended"]
    assert holdings() == before


def test_a_second_interrupt_ends_the_wait_and_not_the_work(interrupt: Callable[..., None]) -> None:
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
