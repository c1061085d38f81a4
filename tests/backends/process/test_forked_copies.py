"""Forked copies of the process that owns a pool cannot disturb the pool, and may have pools of their own."""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Callable
from typing import Any

import pytest
from pool_envs import counting
from programs import Script, children

from remuda import (
    Pool,
    StateError,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="worker processes need Linux")


def in_a_fork(call: Callable[[], Any]) -> Any:
    """Returns the result of a call in a forked copy of this process."""
    read, write = os.pipe()
    before = children()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(write, json.dumps(call()).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        answer = pipe.read()
    os.waitpid(pid, 0)
    if os.getpid() == 1:
        for orphan in children() - before:  # the processes that served the copy
            os.waitpid(orphan, 0)
    return json.loads(answer)


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_forked_copy_cannot_use_the_pool() -> None:
    pool: Any = Pool(counting(2))

    def try_all_calls() -> list[str]:
        nonlocal pool
        messages = []
        uses: list[Callable[[], Any]] = [
            lambda: pool.step([1, 2]),
            lambda: pool.send([1, 2]),
            pool.reset,
            pool.recv,
            lambda: pool.call("pid"),
            pool.stats,
            pool.discard,
            pool.close,
            lambda: pool.close(terminate=True),
        ]
        for use in uses:
            try:
                use()
                messages.append("nothing")
            except StateError as error:
                messages.append(str(error))
        uses.clear()
        pool = None
        gc.collect()
        return messages

    pool.reset()
    messages = in_a_fork(try_all_calls)
    assert len(messages) == 9
    assert all(
        f"this pool belongs to process {os.getpid()}, got a call from its forked copy" in text for text in messages
    )
    assert pool.step([1, 2]).rewards.tolist() == [1, 2]
    pool.close()


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_forked_copy_may_have_its_own_pools() -> None:
    def own() -> list[float]:
        with Pool(counting(2)) as own_pool:
            own_pool.reset()
            rewards: list[float] = own_pool.step([3, 4]).rewards.tolist()
            return rewards

    with Pool(counting(2)) as pool:
        pool.reset()
        assert in_a_fork(own) == [3, 4]
        assert pool.step([1, 2]).rewards.tolist() == [1, 2]
    assert own() == [3, 4]


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_forked_copy_may_exit_normally(script: Callable[..., Script]) -> None:
    """The copy leaves the `with` block and runs exit handlers."""
    run = script(
        """
with Pool(counting(2)) as pool:
    pool.reset()
    pid = os.fork()
    if pid == 0:
        sys.exit(0)
    os.waitpid(pid, 0)
    say(pool.step([1, 2]).rewards.tolist())
"""
    )
    assert run.read_line() == [1, 2]
    code, out, _ = run.await_end()
    assert (code, out) == (0, "")
