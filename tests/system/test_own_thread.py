"""Threads of pools, and the work and the ends in them: interrupted starts, stuck work, patches, and no more threads."""

from __future__ import annotations

import select
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from interrupting import Interrupt
from pool_envs import counting
from programs import Script, Watched, collect, pids_of
from remuda._core import Event

from remuda import Pool, RemudaError
from remuda._system import originals
from remuda._system.ending import Ending
from remuda._system.finalizers import await_all, hand_over, prepare
from remuda._system.own_thread import OwnThread

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc and worker processes")


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


def test_a_thread_does_not_wait_for_itself() -> None:
    joins = list[bool]()
    thread = OwnThread(lambda: joins.append(thread.join()), (), "mine")
    thread.start()
    assert thread.join()
    assert joins == [False]


@linux
def test_pools_end_if_no_more_threads_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    pool, forgotten = Pool(counting(2), num_workers=None), Pool(counting(2), num_workers=None)
    watched = Watched([*pids_of(pool), *pids_of(forgotten)])
    monkeypatch.setattr(threading.Thread, "start", refuse)
    pool.close()
    del forgotten
    collect()
    watched.await_end()


def test_stuck_work_of_a_finalizer_does_not_hold_up_other_work() -> None:
    may_end, done, steps = Event(), Event(), list[str]()

    def get_stuck() -> None:
        may_end.wait()
        steps.append("stuck")

    def note() -> None:
        steps.append(threading.current_thread().name)
        done.set()

    prepare()
    hand_over(get_stuck)
    hand_over(note)
    done.wait()
    assert steps == ["finalizer of remuda"]
    assert not await_all(0)
    may_end.set()
    assert await_all(1e6)
    assert steps == ["finalizer of remuda", "stuck"]


@linux
def test_stuck_work_of_a_finalizer_does_not_prevent_the_exit(script: Callable[..., Script]) -> None:
    run = script("""
from remuda._system import finalizers
finalizers.prepare()
finalizers.hand_over(wait_for_ever)
""")
    assert run.await_end() == (0, "", "")


def test_an_end_happens_once_and_refuses_later_work() -> None:
    ending, ends = Ending[int](), list[str]()

    def end() -> int:
        ends.append("end")
        return 7

    assert ending.before(lambda: "work") == "work"
    with ThreadPoolExecutor(2) as threads:
        assert [one.result() for one in [threads.submit(ending.run, end) for _ in range(2)]] == [7, 7]
    with pytest.raises(RemudaError, match="the pool was closed"):
        ending.before(lambda: "late work")
    assert ends == ["end"]
    broken = Ending[int]()
    with pytest.raises(ZeroDivisionError):
        broken.run(lambda: 1 // 0)
    assert broken.run(lambda: 1) is None


def test_patches_do_not_reach_the_modules_that_remuda_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 0.0)
    monkeypatch.setattr(select, "select", lambda *_: ([], [], []))
    assert originals.time.monotonic() > 0
    assert originals.select.select is not select.select
