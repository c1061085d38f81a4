"""A forked copy of the process that owns a pool does the pool no harm, and may have pools of its own."""

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


def in_a_fork(what: Callable[[], Any]) -> Any:
    """What that returns in a forked copy of this process."""
    read, write = os.pipe()
    before = children()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(write, json.dumps(what()).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        answer = pipe.read()
    os.waitpid(pid, 0)
    if os.getpid() == 1:
        for orphan in children() - before:  # what served the copy to its end
            os.waitpid(orphan, 0)
    return json.loads(answer)


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_forked_copy_can_do_a_pool_no_harm() -> None:
    pool: Any = Pool(counting(2))

    def try_all() -> list[str]:
        nonlocal pool
        told = []
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
                told.append("nothing")
            except StateError as error:
                told.append(str(error))
        uses.clear()
        pool = None
        gc.collect()
        return told

    pool.reset()
    told = in_a_fork(try_all)
    assert len(told) == 9
    assert all(f"this pool belongs to process {os.getpid()}, got a call from its forked copy" in text for text in told)
    assert pool.step([1, 2]).reward.tolist() == [1, 2]
    pool.close()


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_forked_copy_may_have_pools_of_its_own() -> None:
    def own() -> list[float]:
        with Pool(counting(2)) as mine:
            mine.reset()
            rewards: list[float] = mine.step([3, 4]).reward.tolist()
            return rewards

    with Pool(counting(2)) as pool:
        pool.reset()
        assert in_a_fork(own) == [3, 4]
        assert pool.step([1, 2]).reward.tolist() == [1, 2]
    assert own() == [3, 4]


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_forked_copy_that_ends_as_programs_do(script: Callable[..., Script]) -> None:
    """With exit handlers, and out of a `with` block."""
    run = script(
        """
with Pool(counting(2)) as pool:
    pool.reset()
    pid = os.fork()
    if pid == 0:
        sys.exit(0)
    os.waitpid(pid, 0)
    say(pool.step([1, 2]).reward.tolist())
"""
    )
    assert run.read_line() == [1, 2]
    code, out, _ = run.await_end()
    assert (code, out) == (0, "")
