"""`close` ends in every case, and reports the processes that it could not end."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pool_envs import TextEnv, counting
from programs import Watched, await_sleep, holdings, kill, pids_of

from remuda import CloseTimeoutError, Pool, RemudaError, WorkerDiedError
from remuda._backends.process import os_process as launch

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="worker processes need Linux")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shortens the time for which `close` waits for processes that cannot be ended."""
    monkeypatch.setattr(launch, "_SIGTERM_SECONDS", 0.1)
    monkeypatch.setattr(launch, "_SIGKILL_SECONDS", 0.1)


class Freezer:
    """A control group that freezes its processes, so that not even SIGKILL ends them."""

    def __init__(self) -> None:
        self._group = Path(f"/sys/fs/cgroup/freezer/remuda-test-{os.getpid()}")
        try:
            self._group.mkdir()
        except OSError as error:
            pytest.skip(f"no process can be frozen here: {error}")

    def freeze(self, pid: int) -> None:
        (self._group / "cgroup.procs").write_text(str(pid))
        (self._group / "freezer.state").write_text("FROZEN")
        while (self._group / "freezer.state").read_text().strip() != "FROZEN":
            pass

    def thaw(self) -> None:
        (self._group / "freezer.state").write_text("THAWED")

    def remove(self) -> None:
        self.thaw()
        for pid in (self._group / "cgroup.procs").read_text().split():
            with suppress(ProcessLookupError):
                watched = Watched([int(pid)])
                os.kill(int(pid), signal.SIGKILL)
                watched.await_end()
        self._group.rmdir()


@pytest.fixture
def freezer() -> Iterator[Freezer]:
    freezer = Freezer()
    yield freezer
    freezer.remove()


@pytest.mark.parametrize("how", ["polite", "terminate"])
def test_close_reports_workers_that_do_not_end(how: str, freezer: Freezer, impatient: None) -> None:
    pool = Pool(counting(3))
    pool.reset()
    pid = pids_of(pool)[1]
    watched = Watched([pid])
    freezer.freeze(pid)
    with pytest.raises(CloseTimeoutError, match=rf"pids {pid} \(workers 1\)") as raised:
        pool.close(timeout=0.1, terminate=how == "terminate")
    assert (raised.value.pids, raised.value.workers) == ((pid,), (1,))
    assert isinstance(raised.value, (RemudaError, TimeoutError))
    assert pool.closed
    pool.close()  # a second close does nothing
    assert [worker.is_alive() for worker in pool.workers] == [False, True, False]
    freezer.thaw()
    watched.await_end()
    # both signals were pending, and either may end it
    assert [worker.exitcode for worker in pool.workers][1] in (-signal.SIGTERM, -signal.SIGKILL)
    assert not any(worker.is_alive() for worker in pool.workers)


def test_close_reports_a_worker_that_has_not_ended(impatient: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests the same without a freezer: `wait` reports that one process does not end."""
    Pool(counting(1)).close()
    before = holdings()
    pool = Pool(counting(2))
    immortal = pids_of(pool)[0]
    wait = launch.WorkerProcess.wait
    with monkeypatch.context() as patch:
        patch.setattr(
            launch.WorkerProcess,
            "wait",
            lambda self, timeout: False if self.pid == immortal else wait(self, timeout),
        )
        with pytest.raises(CloseTimeoutError) as raised:
            pool.close(timeout=0.3)
        assert (raised.value.pids, raised.value.workers) == ((immortal,), (0,))
    while pool.workers[0].is_alive():
        pass
    assert pool.workers[0].exitcode is not None
    del pool, raised
    assert holdings() == before


@pytest.mark.parametrize("timeout", [0, 0.2])
def test_close_does_not_wait_for_a_worker_that_stopped_within_an_answer(timeout: float) -> None:
    pool = Pool([TextEnv])
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
    faults: Any, has_died: bool, freezer: Freezer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`close` also reports those of a worker that has died, even if it was replaced."""
    import simulators

    monkeypatch.setattr(launch, "_FAMILY_SECONDS", 0.1)
    pool = Pool(counting(1), faults=faults)
    (pid,) = pool.apply(lambda env: simulators.in_a_session())
    watched = Watched([pid])
    freezer.freeze(pid)
    if has_died:
        kill(pool, 0)
        with suppress(WorkerDiedError):
            pool.reset()
    with pytest.raises(CloseTimeoutError) as raised:
        pool.close()
    assert (raised.value.pids, raised.value.workers) == ((pid,), ())
    freezer.thaw()
    watched.await_end()
