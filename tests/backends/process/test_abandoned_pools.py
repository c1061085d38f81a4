"""Pools that are not closed, or closed while their workers hang, leave no process."""

from __future__ import annotations

import gc
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pool_envs import Gate, counting, hooked
from programs import Script, collect, pids_of

from remuda import (
    Pool,
)

START_METHODS = ("forkserver", "spawn", "fork")


class Untidy(str):
    """A string that runs the garbage collector when it is pickled."""

    __slots__ = ()

    def __reduce__(self) -> Any:
        gc.collect()
        return str, (str(self),)


def test_a_forgotten_pool_may_end_while_another_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The garbage collector runs while the new pool requests a worker of the fork server, which has other workers to
    reap.
    """
    pool = Pool(counting(2))
    pids = pids_of(pool)
    monkeypatch.setattr(sys, "argv", [Untidy("program")])  # part of the request for a worker
    gc.disable()  # the collection happens only within the request
    try:
        cycle: list[Any] = [pool]
        cycle.append(cycle)
        del pool, cycle
        with Pool(counting(1)) as other:
            assert other.reset().obs[:, 0].tolist() == [0]
            collect()
            assert not any(Path(f"/proc/{pid}").exists() for pid in pids)  # the fork server has reaped them
    finally:
        gc.enable()


# Workers end in the same way for every exit of the interpreter except `os._exit`, which skips its cleanup.
ENDS = [*(("", start_method) for start_method in START_METHODS), ("os._exit(3)", "fork")]
ENDS += [("sys.exit(3)", "forkserver"), ("raise ValueError('mine')", "forkserver")]


@pytest.mark.parametrize(("end", "start_method"), ENDS)
def test_the_interpreter_ends_without_a_close(end: str, start_method: Any, script: Callable[..., Script]) -> None:
    run = script(
        f"""
pool = Pool(counting(2), start_method="{start_method}")
other = Pool(counting(2), backend="thread")
pool.reset(), other.reset()
pool.send([1, 2]), other.send([1, 2])
say(pids(pool))
{end}
""",
        "-Werror",
        "-Xdev",
    )
    run.read_line()
    code, _, err = run.await_end()
    if "mine" in end:
        assert (code, err.count("Traceback")) == (1, 1)
    else:
        assert (code, err) == (3 if end else 0, "")


def test_close_ends_hung_workers(tmp_path: Path) -> None:
    """The envs do not answer, and ignore SIGTERM."""

    def step(env: Any, action: Any) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        gate.wait()
        signal.pause()

    gate = Gate(tmp_path)
    pool = Pool(hooked(3, step=step))
    pool.reset()
    pool.send([1, 2, 3])
    gate.let_pass()
    pool.close(timeout=0)
    assert [worker.exitcode for worker in pool.workers][1] == -signal.SIGKILL
    assert not any(worker.is_alive() for worker in pool.workers)
