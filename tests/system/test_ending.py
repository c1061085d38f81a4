"""The end of an object that works in several threads."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from remuda._core import Event

from remuda import RemudaError
from remuda._system.ending import Ending


def test_an_end_waits_for_work_and_happens_once() -> None:
    ending, may_end, works, steps = Ending[int](), Event(), Event(), list[str]()

    def work() -> None:
        works.set()
        may_end.wait()
        steps.append("work")

    def end() -> int:
        steps.append("end")
        return 7

    with ThreadPoolExecutor() as pool:
        worker = pool.submit(ending.before, work)
        works.wait()
        ends = [pool.submit(ending.run, end) for _ in range(2)]
        while not ending.has_begun:
            pass
        with pytest.raises(RemudaError, match="the pool was closed"):
            ending.before(lambda: steps.append("late"))
        may_end.set()
        worker.result()
        assert [one.result() for one in ends] == [7, 7]
    assert ending.run(end) == 7
    assert steps == ["work", "end"]


def test_an_end_or_work_that_raises_is_over() -> None:
    ending, work = Ending[int](), Ending[str]()
    with pytest.raises(ZeroDivisionError):
        ending.run(lambda: 1 // 0)
    assert ending.run(lambda: 1) is None
    with pytest.raises(ZeroDivisionError):
        work.before(lambda: 1 // 0)
    assert work.run(lambda: threading.current_thread().name) == threading.current_thread().name
