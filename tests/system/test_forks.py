"""In a forked child, locks are free even if a thread of the parent held them."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pool_envs import counting

from remuda import Pool
from remuda._backends.forkserver import client
from remuda._backends.process import watcher
from remuda._system.forks import fork_safe_lock

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux has worker processes"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning"),
]


@contextmanager
def held_by_another_thread(*locks: Any) -> Iterator[None]:
    is_held, is_done = threading.Event(), threading.Event()

    def hold() -> None:
        for lock in locks:
            lock.acquire()
        is_held.set()
        is_done.wait()
        for lock in locks:
            lock.release()

    thread = threading.Thread(target=hold)
    thread.start()
    is_held.wait()
    try:
        yield
    finally:
        is_done.set()
        thread.join()


def in_child(work: Callable[[], object]) -> int:
    """Runs `work` in a forked child and returns its exit code, which is 0 if `work` does not raise."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_lock_held_by_another_thread_is_free_in_a_child() -> None:
    lock = fork_safe_lock()

    def use() -> None:
        with lock, lock:
            assert in_child(lock.acquire) == 0  # a lock held by the forking thread stays held

    with held_by_another_thread(lock):
        assert in_child(use) == 0
        assert not lock.acquire(blocking=False)
    use()


@pytest.mark.parametrize("start_method", ["forkserver", "fork"])
def test_a_forked_child_can_make_a_pool_while_its_parent_starts_one(start_method: Any) -> None:
    def make() -> None:
        with Pool(counting(1), start_method=start_method) as pool:
            assert pool.reset().obs.shape == (1, 4)

    with held_by_another_thread(watcher._lock, client._servers_lock):
        assert in_child(make) == 0
