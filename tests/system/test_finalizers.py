"""The work of finalizers, in threads that may block."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable

import pytest
from programs import Script
from remuda._core import Event

from remuda._system.finalizers import await_all, hand_over, prepare

FOREVER = 1e6  # seconds


@pytest.fixture(autouse=True)
def prepared() -> None:
    prepare()


def test_work_is_done_in_other_threads_and_is_not_held_up_by_stuck_work() -> None:
    may_end, done, steps = Event(), Event(), list[str]()

    def get_stuck() -> None:
        may_end.wait()
        steps.append("stuck")

    def note() -> None:
        steps.append(threading.current_thread().name)
        done.set()

    hand_over(get_stuck)
    hand_over(note)
    done.wait()
    assert steps == ["finalizer of remuda"]
    assert not await_all(0)
    may_end.set()
    assert await_all(FOREVER)
    assert steps == ["finalizer of remuda", "stuck"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_work_that_raises_is_reported_and_harms_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    reported, steps = list[type[BaseException]](), list[str]()
    monkeypatch.setattr(threading, "excepthook", lambda args: reported.append(args.exc_type))
    hand_over(lambda: [].pop())
    hand_over(lambda: steps.append("other"))
    assert await_all(FOREVER)
    assert (reported, steps) == ([IndexError], ["other"])


def test_work_is_done_without_a_thread_of_its_own_if_none_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    threads = list[int]()
    monkeypatch.setattr(threading.Thread, "start", refuse)
    for _ in range(2):
        hand_over(lambda: threads.append(threading.get_ident()))
    assert await_all(FOREVER)
    assert threads[0] == threads[1] != threading.get_ident()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_child_has_a_thread_of_its_own(script: Callable[..., Script]) -> None:
    run = script(
        """
from remuda._system import finalizers
finalizers.prepare()
if (pid := os.fork()) == 0:
    finalizers.prepare()
    finalizers.hand_over(lambda: say("in the child"))
    finalizers.await_all(1e6)
    os._exit(0)
os.waitpid(pid, 0)
"""
    )
    assert run.read_line() == "in the child"
    assert run.await_end()[:2] == (0, "")


@pytest.mark.skipif(sys.platform != "linux", reason="it finds descendants in /proc")
def test_stuck_work_does_not_prevent_the_exit(script: Callable[..., Script]) -> None:
    run = script(
        """
from remuda._system import finalizers
finalizers.prepare()
finalizers.hand_over(wait_for_ever)
"""
    )
    assert run.await_end() == (0, "", "")
