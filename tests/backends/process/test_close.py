"""`close` ends in every case, and reports the processes that it could not end."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from control_group import ControlGroup
from pool_envs import TextEnv, counting
from programs import Watched, await_sleep, collect, holdings, kill, pids_of

from remuda import CloseTimeoutError, Pool, RemudaError, WorkerDiedError
from remuda._backends.process import os_process as launch


@pytest.fixture
def freezer() -> Iterator[ControlGroup]:
    """A control group that freezes its processes, so that not even SIGKILL ends them."""
    group = ControlGroup("freezer")
    yield group
    group.set("freezer.state", "THAWED")
    group.remove()


@pytest.mark.parametrize("how", ["polite", "terminate"])
def test_close_reports_a_worker_that_does_not_end(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few systems let a test freeze a process, so `wait` reports that one does not end."""
    monkeypatch.setattr(launch, "_SIGTERM_SECONDS", 0.1)
    monkeypatch.setattr(launch, "_SIGKILL_SECONDS", 0.1)
    Pool(counting(1), num_workers=None).close()
    before = holdings()
    pool = Pool(counting(2), num_workers=None)
    pool.reset()
    immortal = pids_of(pool)[0]
    wait = launch.WorkerProcess.wait
    with monkeypatch.context() as patch:
        patch.setattr(
            launch.WorkerProcess, "wait", lambda self, timeout: False if self.pid == immortal else wait(self, timeout)
        )
        with pytest.raises(CloseTimeoutError, match=rf"pids {immortal} \(workers 0\)") as raised:
            pool.close(timeout=0.3, terminate=how == "terminate")
        assert (raised.value.pids, raised.value.workers) == ((immortal,), (0,))
        assert isinstance(raised.value, (RemudaError, TimeoutError))
        pool.close()  # a second close does nothing
        assert pool.closed
    while pool.workers[0].is_alive():
        pass
    assert pool.workers[0].exitcode is not None
    del pool, raised
    collect()
    assert holdings() == before


@pytest.mark.parametrize("timeout", [0, 0.2])
def test_close_does_not_wait_for_a_worker_that_stopped_within_an_answer(timeout: float) -> None:
    pool = Pool([TextEnv], num_workers=None)
    pool.reset()
    slow = pool.apply_async(lambda env: b"x" * 50_000_000)
    (pid,) = pids_of(pool)
    await_sleep(pid)  # the answer is larger than the socket's buffer, so the worker sleeps
    os.kill(pid, signal.SIGSTOP)
    with suppress(RemudaError):  # the worker was killed before it closed its env
        pool.close(timeout=timeout)
    assert pool.closed
    assert not any(worker.is_alive() for worker in pool.workers)
    with pytest.raises(RemudaError):
        slow.result()


@pytest.mark.parametrize(("faults", "has_died"), [("raise", False), ("raise", True), ("restart", True)])
def test_close_reports_simulators_that_do_not_end(
    faults: Any, has_died: bool, freezer: ControlGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`close` also reports those of a worker that has died, even if it was replaced."""
    import simulators

    monkeypatch.setattr(launch, "_FAMILY_SECONDS", 0.1)
    pool = Pool(counting(1), faults=faults, num_workers=None)
    (pid,) = pool.apply(lambda env: simulators.in_a_session())
    watched = Watched([pid])
    freezer.add(pid)
    freezer.set("freezer.state", "FROZEN")
    if has_died:
        kill(pool, 0)
        with suppress(WorkerDiedError):
            pool.reset()
    with pytest.raises(CloseTimeoutError) as raised:
        pool.close()
    assert (raised.value.pids, raised.value.workers) == ((pid,), ())
    freezer.set("freezer.state", "THAWED")
    watched.await_end()
