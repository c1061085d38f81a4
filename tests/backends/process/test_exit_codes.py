"""How workers end is told truly, and nobody is taken for a worker who is none."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import simulators
from failing import LIMIT
from pool_envs import counting, hooked
from programs import Script, Watched, end_process, kill, pids_of

from remuda import EnvTimeoutError, FaultPolicy, Pool

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="worker processes need Linux"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning"),
]

START_METHODS = ("forkserver", "spawn", "fork")


@contextmanager
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    """A process that has nothing to do with any pool, and leads a group of its own."""
    process = subprocess.Popen(["sleep", "100000"], start_new_session=True)
    yield process
    assert process.poll() is None
    process.kill()
    process.wait()


@pytest.mark.parametrize("start_method", START_METHODS)
def test_a_program_that_ignores_sigchld(start_method: str, script: Callable[..., Script]) -> None:
    """The kernel tells it no exit codes: some it knows all the same, none is guessed."""
    run = script(
        f"""
signal.signal(signal.SIGCHLD, signal.SIG_IGN)

def step(env, action):
    if action == 1:
        os.kill(os.getpid(), signal.SIGSEGV)
    code = subprocess.run(["sh", "-c", "exit 3"]).returncode
    return env.observe(), code, False, False, {{}}

fns = hooked(2, (0, 1), step=step)
with Pool(fns, start_method="{start_method}") as pool:
    pool.reset()
    say(pool.step([0, 0]).reward.tolist())
    try:
        pool.step([1, 0])
    except WorkerDiedError as error:
        say([error.exitcode, str(error)])
with Pool(fns, start_method="{start_method}", faults="restart") as pool:
    pool.reset()
    pool.step([1, 1])
    say(pool.step([0, 0]).truncated.tolist())
"""
    )
    assert run.read_line() == [3, 3]  # in workers exit codes are told
    code, says = run.read_line()
    assert code in ((-signal.SIGSEGV,) if start_method == "forkserver" else (-signal.SIGSEGV, None)), says
    assert ("killed by SIGSEGV" if code else "its exit code is unknown") in says
    assert run.read_line() == [False, False]
    assert run.await_end()[:2] == (0, "")


@pytest.mark.parametrize("start_method", START_METHODS)
def test_a_program_that_waits_for_all_its_children(start_method: str, script: Callable[..., Script]) -> None:
    """It takes exit codes that are not meant for it, before anybody else looks."""
    run = script(
        f"""
pool = Pool(counting(2), start_method="{start_method}")
pool.reset()
os.kill(pids(pool)[0], signal.SIGKILL)
if "{start_method}" != "forkserver":
    say(os.wait()[0] == pids(pool)[0])
try:
    pool.step([0, 0])
except WorkerDiedError as error:
    say(error.exitcode)
pool.close()
"""
    )
    if start_method != "forkserver":
        assert run.read_line() is True
    assert run.read_line() in (-signal.SIGKILL, None)
    assert run.await_end() == (0, "", "")


def test_how_the_fork_server_ended_where_sigchld_is_ignored(script: Callable[..., Script], tmp_path: Path) -> None:
    (tmp_path / "remuda_test_dying.py").write_text("import os; os._exit(3)")
    run = script(
        """
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
try:
    Pool(counting(1), preload=["remuda_test_dying"])
except RemudaError as error:
    say(str(error))
"""
    )
    says = run.read_line()
    assert "it exited with code 3" in says or "its exit code is unknown" in says
    assert run.await_end()[0] == 0


def test_a_pid_that_is_anothers_by_now_is_not_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its exit code was taken by whoever takes in the orphans of a fork server that has died."""
    with bystander() as other, Pool(counting(2)) as pool:
        (server, _) = pool.apply(lambda env: os.getppid())
        end_process(server)
        process: Any = pool.workers[0]
        kill(pool, 0)
        while _has_its_pid(process.process.pidfd):
            with suppress(ChildProcessError):  # it did not come to us
                os.waitid(os.P_PIDFD, process.process.pidfd, os.WEXITED)
        monkeypatch.setattr(process.process, "pid", other.pid)  # as if the number had come round
        pool.close()


def _has_its_pid(pidfd: int) -> bool:
    try:
        signal.pidfd_send_signal(pidfd, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("start_method", ["forkserver", "fork"])  # others lead sessions, and cannot leave their group
def test_a_worker_that_has_left_its_group(start_method: Any) -> None:
    pool = Pool(counting(1), start_method=start_method)
    pool.reset()
    watched = Watched([*pids_of(pool), *pool.apply(lambda env: simulators.leave_the_group())])
    os.kill(pids_of(pool)[0], signal.SIGSTOP)
    pool.close(terminate=True)
    watched.await_end()


def test_a_worker_that_has_left_its_group_and_hangs() -> None:
    def step(env: Any, action: Any) -> None:
        simulators.leave_the_group()
        signal.pause()

    with Pool(hooked(1, (0,), step=step), faults=FaultPolicy("raise", step_timeout=LIMIT)) as pool:
        pool.reset()
        with pytest.raises(EnvTimeoutError):
            pool.step([0])


# -- nothing that a search would need --------------------------------------------------------------------


@pytest.mark.parametrize("start_method", START_METHODS)
def test_simulators_end_though_no_descriptor_is_free(start_method: Any, script: Callable[..., Script]) -> None:
    run = script(
        f"""
import resource, simulators
pool = Pool(counting(2), start_method="{start_method}")
pool.reset()
say(sum(pool.apply(lambda env: list(simulators.start_all().values())), []))
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
taken = []
try:
    while True:
        taken.append(os.dup(0))
except OSError:
    pass
pool.close()
say("closed")
sys.stdin.readline()
"""
    )
    assert run.outlives_those_told(then="closed") == (0, "", "")


def test_it_is_said_where_there_is_no_proc(script: Callable[..., Script]) -> None:
    """What has left a worker's group may run until the end of the program."""
    if subprocess.run(["unshare", "--mount", "true"], check=False, stderr=subprocess.DEVNULL).returncode != 0:
        pytest.skip("no mount of /proc can be taken away here")
    run = script(
        """
import simulators
from remuda import _core
pool = Pool(counting(1))
pool.reset()
say(pool.apply(lambda env: [simulators.in_the_group(), simulators.in_a_session()])[0])
libc = ctypes.CDLL(None, use_errno=True)
if libc.unshare(0x20000) or libc.mount(b"none", b"/", None, 1 << 18 | 1 << 14, None):
    raise OSError(ctypes.get_errno(), "unshare")
if libc.mount(b"none", b"/proc", b"tmpfs", 0, None):
    raise OSError(ctypes.get_errno(), "mount")
pool.close()
"""
    )
    watched = Watched(run.read_line())
    _, err = run.process.communicate()
    assert "expected to find in /proc what the workers that ended have started, got 'No such file or directory'" in err
    assert run.process.returncode == 0
    watched.await_end()  # the watcher has a view of its own
